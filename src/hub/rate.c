/* See rate.h. A flood of names pushes out those that are idle; if none is, all of them. */
#include "hub/rate.h"

#include <stdio.h>

#include "base/limits.h"
#include "base/mem.h"

struct rate_ring {
    int64_t count; /* ever let through */
    int64_t newest_ms;
    int64_t times[]; /* `most` of them */
};

static void forget(struct rate *rate, int64_t before_ms)
{
    struct map kept = { 0 };
    const struct map_slot *slot;
    size_t at = 0;

    rate->count = 0;
    while ((slot = map_next(&rate->names, &at))) {
        struct rate_ring *ring = slot->value;

        if (ring->newest_ms < before_ms) {
            free(ring);
            continue;
        }
        map_put(&kept, (struct str){ slot->key, slot->len }, ring);
        rate->count++;
    }
    map_free(&rate->names);
    rate->names = kept;
}

void rate_free(struct rate *rate)
{
    forget(rate, INT64_MAX);
    map_free(&rate->names);
}

static struct rate_ring *ring_of(struct rate *rate, struct str key, int64_t now_ms)
{
    struct rate_ring *ring = map_get(&rate->names, key);

    if (ring)
        return ring;
    if (rate->count >= HUB_RATES_MAX)
        forget(rate, now_ms - HUB_RATE_WINDOW_MS);
    if (rate->count >= HUB_RATES_MAX)
        forget(rate, INT64_MAX);
    ring = xcalloc(1, sizeof(*ring) + (size_t)rate->most * sizeof(ring->times[0]));
    map_put(&rate->names, key, ring);
    rate->count++;
    return ring;
}

int64_t rate_take(struct rate *rate, const char *tenant, const char *name, int64_t now_ms)
{
    char key[HUB_NAME_MAX + 64];
    int len = snprintf(key, sizeof(key), "%s/%s", tenant, name);
    struct rate_ring *ring = ring_of(rate, (struct str){ key, (size_t)len }, now_ms);
    int64_t *slot = &ring->times[ring->count % rate->most];

    if (ring->count >= rate->most && *slot > now_ms - HUB_RATE_WINDOW_MS)
        return *slot + HUB_RATE_WINDOW_MS - now_ms;
    *slot = now_ms;
    ring->newest_ms = now_ms;
    ring->count++;
    return 0;
}
