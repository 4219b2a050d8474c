/*
 * rate - so many in any 60 seconds, for each name: the times of the newest ones are kept, and one
 * more is let through when the oldest of them is old enough. Refused ones do not count. One thread.
 */
#pragma once

#include <stdint.h>

#include "base/map.h"

struct rate {
    struct map names; /* → struct rate_ring */
    int64_t most;
    unsigned count;
};

void rate_free(struct rate *rate);
/* 0: it may, and is counted; otherwise milliseconds until it may. */
int64_t rate_take(struct rate *rate, const char *tenant, const char *name, int64_t now_ms);
