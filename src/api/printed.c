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
    struct pace_reader pace = { .holds = printed->holds };

    memcpy(pace.at, at, sizeof(pace.at));
    printed->box_reader = (struct box_reader){ .pace = pace, .more = box_more, .gone = box_gone };
    printed->link_reader = (struct link_reader){
        .pace = pace, .till_held = printed->till_held, .more = link_more, .gone = link_gone
    };
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

bool printed_held(const struct printed *printed)
{
    return printed->linked && command_held(printed->linked);
}

void printed_leave(struct printed *printed)
{
    printed->box_reader.pace.holds = printed->link_reader.pace.holds = false;
}

void printed_advance(struct printed *printed, unsigned stream, uint64_t at)
{
    pace_advance(printed->exec ? &printed->box_reader.pace : &printed->link_reader.pace, stream,
                 at);
}

void printed_range(const struct printed *printed, unsigned stream, uint64_t *begin, uint64_t *end)
{
    if (printed->exec)
        box_exec_range(printed->exec, stream, begin, end);
    else
        command_range(printed->linked, stream, begin, end);
}
