/* See rate.h. A flood of names pushes out those that are idle; if none is, all of them. */
#include "hub/rate.h"

#include "base/mem.h"

/* The times that still count, oldest first, in a ring that grows up to `most`. */
struct rate_ring {
    size_t first, count, cap;
    int64_t newest_ms;
    int64_t *times; /* owned */
};

#define RING_FIRST 8

static void ring_free(struct rate_ring *ring)
{
    free(ring->times);
    free(ring);
}

static void forget(struct rate *rate, int64_t before_ms)
{
    struct map kept = { 0 };
    const struct map_slot *slot;
    size_t at = 0;

    rate->count = 0;
    while ((slot = map_next(&rate->names, &at))) {
        struct rate_ring *ring = slot->value;

        if (ring->newest_ms < before_ms) {
            ring_free(ring);
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
    ring = xnew(struct rate_ring);
    map_put(&rate->names, key, ring);
    rate->count++;
    return ring;
}

/* Room for one more: as many as were there, and no more than ever count. */
static void grow(struct rate_ring *ring, size_t most)
{
    size_t cap = MIN(ring->cap ? 2 * ring->cap : RING_FIRST, most);
    int64_t *times = xcalloc(cap, sizeof(*times));

    for (size_t i = 0; i < ring->count; i++)
        times[i] = ring->times[(ring->first + i) % ring->cap];
    free(ring->times);
    ring->times = times;
    ring->first = 0;
    ring->cap = cap;
}

int64_t rate_take(struct rate *rate, const char *tenant, const char *name, int64_t now_ms)
{
    char key[HUB_KEY_SIZE];
    struct rate_ring *ring = ring_of(rate, hub_key(key, tenant, name), now_ms);
    int64_t old = now_ms - HUB_RATE_WINDOW_MS;

    while (ring->count && ring->times[ring->first] <= old) {
        ring->first = (ring->first + 1) % ring->cap;
        ring->count--;
    }
    if (ring->count >= (size_t)rate->most)
        return ring->times[ring->first] - old;
    if (ring->count == ring->cap)
        grow(ring, (size_t)rate->most);
    ring->times[(ring->first + ring->count++) % ring->cap] = now_ms;
    ring->newest_ms = now_ms;
    return 0;
}
