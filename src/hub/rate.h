/*
 * rate - so many in any 60 seconds, for each name: the times of the newest ones are kept, and one
 * more is let through when the oldest of them is old enough. Refused ones do not count. One thread.
 */
#pragma once

#include <stdint.h>

#include <string.h>

#include "base/limits.h"
#include "base/map.h"

struct rate {
    struct map names; /* → struct rate_ring */
    int64_t most;
    unsigned count;
};

#define HUB_KEY_SIZE (HUB_NAME_MAX + 64)
/* "tenant/name"; where there is no room for it, less. */
static inline struct str hub_key(char out[HUB_KEY_SIZE], const char *tenant, const char *name)
{
    struct str whose = { tenant, strlen(tenant) }, who = { name, strlen(name) };

    whose.n = MIN(whose.n, (size_t)62);
    who.n = MIN(who.n, (size_t)HUB_NAME_MAX + 1);
    memcpy(out, whose.p, whose.n);
    out[whose.n] = '/';
    memcpy(out + whose.n + 1, who.p, who.n);
    return (struct str){ out, whose.n + 1 + who.n };
}

void rate_free(struct rate *rate);
/* 0: it may, and is counted; otherwise milliseconds until it may. */
int64_t rate_take(struct rate *rate, const char *tenant, const char *name, int64_t now_ms);
