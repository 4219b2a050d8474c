/*
 * crash - does it keep dying? Counts short lives in a window; no clock and no I/O of its own.
 *
 * A life that ended unasked before CRASH_SHORT_MS is a crash. CRASH_LOOP_COUNT of them within
 * CRASH_WINDOW_MS are a loop; a life of CRASH_HEALTHY_MS clears the count.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

struct crash {
    int64_t at_ms[CRASH_LOOP_COUNT]; /* the newest ones, a ring */
    unsigned count, next;
    bool loop;
};

/* A life that began at `from_ms` has ended. True: with this one it has become a loop. */
bool crash_ended(struct crash *crash, int64_t from_ms, int64_t now_ms, bool asked);
/* It still lives. */
void crash_alive(struct crash *crash, int64_t from_ms, int64_t now_ms);
