/* Thin over clock_gettime, so that nobody picks the wrong clock by accident. */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_mono_ms(void)
{
    return read_us(CLOCK_MONOTONIC) / 1000;
}

int64_t clock_mono_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

int64_t clock_wall_ms(void)
{
    return read_us(CLOCK_REALTIME) / 1000;
}

void clock_text(int64_t wall_ms, char out[CLOCK_TEXT_SIZE])
{
    time_t sec = (time_t)(wall_ms / 1000);
    char full[64];
    struct tm tm;

    if (wall_ms < 0 || !gmtime_r(&sec, &tm))
        tm = (struct tm){ .tm_year = 70, .tm_mday = 1 };
    snprintf(full, sizeof(full), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
             wall_ms < 0 ? 0 : (int)(wall_ms % 1000));
    snprintf(out, CLOCK_TEXT_SIZE, "%.24s", full);
}
