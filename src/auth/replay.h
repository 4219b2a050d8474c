/*
 * replay - signed requests of the last minutes, in memory. The store remembers nonces across a
 * restart, but forgets one together with the change that failed and was rolled back; this does not.
 * Fixed memory. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct replay {
    uint64_t *young, *old; /* owned; marks, 0 is free */
    uint32_t count;        /* in young */
    int64_t turned_ms;     /* when young began */
};

enum replay_answer { REPLAY_NEW, REPLAY_SEEN, REPLAY_FULL };

void replay_free(struct replay *replay);
/* Notes a verified signature (32 uniformly random bytes). Remembered for at least twice the skew.
 */
enum replay_answer replay_note(struct replay *replay, const unsigned char signature[32],
                               int64_t now_ms);
