/*
 * gentle - ends what runs in a sandbox as it wants to end: every command is asked, and all of them
 * are waited for, no longer than was said. Loop thread.
 */
#pragma once

#include "api/own.h"
#include "box/boxes.h"

struct gentle {
    /* Exactly once: nothing runs any more, or the time is over. NULL: the sandbox was deleted
     * meanwhile, or the server is about to stop. May come from inside of gentle_begin. */
    void (*done)(struct gentle *gentle, struct box *box);
    unsigned left; /* in `done`: commands that still run, because the time is over */

    /* its own */
    struct box_wait wait;
    const struct api *api;
    char box[ID_SIZE];
    int64_t until_ms;
};

/* `by` is who asks, for the record. */
void gentle_begin(struct gentle *gentle, const struct api *api, struct box *box, const char *tenant,
                  const char *by, int64_t ms);
