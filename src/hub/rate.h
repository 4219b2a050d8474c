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
    size_t before = MIN(strlen(tenant), (size_t)62);
    size_t len = MIN(strlen(name), (size_t)HUB_NAME_MAX + 1);

    memcpy(out, tenant, before);
    out[before] = '/';
    memcpy(out + before + 1, name, len);
    return (struct str){ out, before + 1 + len };
}

void rate_free(struct rate *rate);
/* 0: it may, and is counted; otherwise milliseconds until it may. */
int64_t rate_take(struct rate *rate, const char *tenant, const char *name, int64_t now_ms);
