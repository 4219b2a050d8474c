/*
 * limit - how often a peer may fail and how fast a principal may ask. Memory is fixed: a flood of
 * addresses or names pushes out the entries that were idle longest, never allocates. Loop thread;
 * the caller brings the time (monotonic ms).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct limit {
    struct fail_entry *fails; /* owned; made when the first failure comes */
    struct rate_entry *rates; /* owned; made at the first request */
};

void limit_free(struct limit *limit);

/*
 * A credential of this peer did not hold: 0, or milliseconds until the next failure of its kind is
 * judged. Repeating one credential counts for that credential, another one for the peer's guesses.
 * An empty credential is a guess.
 */
int64_t limit_fail(struct limit *limit, const char *peer_addr, struct str credential,
                   int64_t now_ms);
/* Has the peer guessed too often? */
bool limit_failed(const struct limit *limit, const char *peer_addr, int64_t now_ms);

/* Takes one request from the bucket of `id`: 0, or milliseconds until there is one (not taken). */
int64_t limit_rate(struct limit *limit, const char *id, int64_t per_second, int64_t burst,
                   int64_t now_ms);
