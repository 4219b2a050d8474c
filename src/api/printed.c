/* Two kinds of commands that keep what they print by position, as one. */
#include "api/printed.h"

#include <string.h>

static void box_more(struct box_reader *reader)
{
    struct printed *printed = container_of(reader, struct printed, box_reader);

    printed->more(printed);
}

static void box_gone(struct box_reader *reader)
{
    struct printed *printed = container_of(reader, struct printed, box_reader);

    printed->gone(printed);
}

static void link_more(struct link_reader *reader)
{
    struct printed *printed = container_of(reader, struct printed, link_reader);

    printed->more(printed);
}

static void link_gone(struct link_reader *reader, const struct err *why)
{
    struct printed *printed = container_of(reader, struct printed, link_reader);

    (void)why;
    printed->gone(printed);
}

void printed_follow(struct printed *printed, const uint64_t at[INIT_STREAMS])
{
    printed->box_reader =
        (struct box_reader){ .more = box_more, .gone = box_gone, .holds = printed->holds };
    memcpy(printed->box_reader.at, at, sizeof(printed->box_reader.at));
    printed->link_reader = (struct link_reader){ .more = link_more, .gone = link_gone };
    if (printed->exec)
        box_exec_follow(printed->exec, &printed->box_reader);
    else
        command_follow(printed->linked, &printed->link_reader);
}

void printed_unfollow(struct printed *printed)
{
    if (printed->exec)
        box_exec_unfollow(&printed->box_reader);
    else
        command_unfollow(&printed->link_reader);
}

bool printed_ended(const struct printed *printed)
{
    return printed->exec ? box_exec_ended(printed->exec) : command_ended(printed->linked);
}

ssize_t printed_read(struct printed *printed, unsigned stream, uint64_t from, void *out, size_t len,
                     struct err *err)
{
    return printed->exec ? box_exec_read(printed->exec, stream, from, out, len, err)
                         : command_read(printed->linked, stream, from, out, len, err);
}

void printed_advance(struct printed *printed, unsigned stream, uint64_t at)
{
    if (printed->exec)
        box_exec_advance(&printed->box_reader, stream, at);
}

void printed_range(const struct printed *printed, unsigned stream, uint64_t *begin, uint64_t *end)
{
    if (printed->exec)
        box_exec_range(printed->exec, stream, begin, end);
    else
        command_range(printed->linked, stream, begin, end);
}
