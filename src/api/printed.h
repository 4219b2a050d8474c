/*
 * printed - what a command prints, in a sandbox or on a linked agent, for whoever tells it on. Loop
 * thread.
 */
#pragma once

#include "box/boxes.h"
#include "link/links.h"

struct printed {
    struct box_exec *exec; /* one of them; the other is NULL */
    struct link_command *linked;
    void (*more)(struct printed *printed); /* bytes, or the end */
    void (*gone)(struct printed *printed); /* no more follows; it is not followed any more */
    bool holds;                            /* see struct box_reader */
    bool till_held; /* `more` also when it is held back; of linked agents only */
    struct box_reader box_reader;
    struct link_reader link_reader;
};

/* `more`, `gone` and `holds` are set before. `at`: where the reader begins. */
void printed_follow(struct printed *printed, const uint64_t at[INIT_STREAMS]);
void printed_unfollow(struct printed *printed);
bool printed_ended(const struct printed *printed); /* and that is stored */
/* As box_exec_read. */
must_use ssize_t printed_read(struct printed *printed, unsigned stream, uint64_t from, void *out,
                              size_t len, struct err *err);
/* A linked agent's command is held back for a reader that is away. */
bool printed_held(const struct printed *printed);
/* It will not come back: the command does not wait for it once it is unfollowed. */
void printed_leave(struct printed *printed);
/* A reader that holds has read up to here. */
void printed_advance(struct printed *printed, unsigned stream, uint64_t at);
void printed_range(const struct printed *printed, unsigned stream, uint64_t *begin, uint64_t *end);
