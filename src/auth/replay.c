/*
 * Two tables of 64-bit marks, a mark being the head of the signature: that is uniformly random to
 * whoever does not hold the key, so it needs no hashing, and two requests share one by chance
 * only. New marks go into the young table; after twice the permitted skew the old one is emptied
 * and they change places, so a mark lives at least as long as its request could be shown again.
 */
#include "auth/replay.h"

#include <string.h>

#include "base/limits.h"
#include "base/mem.h"

#define SLOTS 262144u /* AUTH_REPLAYS_MAX is three quarters of it */
#define TURN_MS (2ll * AUTH_SKEW_MS)

_Static_assert(AUTH_REPLAYS_MAX <= SLOTS / 4 * 3, "probing needs free slots");

void replay_free(struct replay *replay)
{
    free(replay->young);
    free(replay->old);
    *replay = (struct replay){ 0 };
}

/* Where the mark is, or the free slot where it would go. */
static size_t probe(const uint64_t *table, uint64_t mark)
{
    size_t at = mark & (SLOTS - 1);

    while (table[at] && table[at] != mark)
        at = (at + 1) & (SLOTS - 1);
    return at;
}

static void turn(struct replay *replay, int64_t now_ms)
{
    uint64_t *emptied = replay->old;
    bool long_ago = now_ms - replay->turned_ms >= 2 * TURN_MS;

    memset(emptied, 0, SLOTS * sizeof(*emptied));
    replay->old = replay->young;
    replay->young = emptied;
    if (long_ago)
        memset(replay->old, 0, SLOTS * sizeof(*emptied));
    replay->count = 0;
    replay->turned_ms = now_ms;
}

enum replay_answer replay_note(struct replay *replay, const unsigned char signature[32],
                               int64_t now_ms)
{
    uint64_t mark;

    memcpy(&mark, signature, sizeof(mark));
    mark |= (uint64_t)(mark == 0);
    if (!replay->young) {
        replay->young = xcalloc(SLOTS, sizeof(uint64_t));
        replay->old = xcalloc(SLOTS, sizeof(uint64_t));
        replay->turned_ms = now_ms;
    }
    if (now_ms - replay->turned_ms >= TURN_MS)
        turn(replay, now_ms);
    if (replay->old[probe(replay->old, mark)])
        return REPLAY_SEEN;
    size_t at = probe(replay->young, mark);
    if (replay->young[at])
        return REPLAY_SEEN;
    if (replay->count == AUTH_REPLAYS_MAX)
        return REPLAY_FULL;
    replay->young[at] = mark;
    replay->count++;
    return REPLAY_NEW;
}
