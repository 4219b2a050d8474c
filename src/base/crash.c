/* See crash.h. */
#include "base/crash.h"

bool crash_ended(struct crash *crash, int64_t from_ms, int64_t now_ms, bool asked)
{
    crash_alive(crash, from_ms, now_ms);
    if (asked || now_ms - from_ms >= CRASH_SHORT_MS)
        return false;
    crash->at_ms[crash->next] = now_ms;
    crash->next = (crash->next + 1) % CRASH_LOOP_COUNT;
    if (crash->count < CRASH_LOOP_COUNT)
        crash->count++;
    /* The ring is full, and its oldest is where the next will be written. */
    bool loop =
        crash->count == CRASH_LOOP_COUNT && now_ms - crash->at_ms[crash->next] <= CRASH_WINDOW_MS;
    bool became = loop && !crash->loop;
    crash->loop = loop;
    return became;
}

void crash_alive(struct crash *crash, int64_t from_ms, int64_t now_ms)
{
    if (now_ms - from_ms >= CRASH_HEALTHY_MS)
        *crash = (struct crash){ 0 };
}
