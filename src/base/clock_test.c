/* clock: the calendar agrees with libc's, and the monotonic clock goes forward. */
#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/test.h"

static void check_text(int64_t ms)
{
    time_t sec = (time_t)(ms / 1000);
    struct tm tm;
    char want[64], got[CLOCK_TEXT_SIZE];

    gmtime_r(&sec, &tm);
    size_t len = strftime(want, sizeof(want), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(want + len, sizeof(want) - len, ".%03dZ", (int)(ms % 1000));
    clock_text(ms, got);
    CHECK_STR(got, want);
}

TEST(dates_are_those_of_libc)
{
    for (int i = 0; i < 100000; i++)
        check_text((int64_t)(((uint64_t)test_rand(UINT32_MAX) << 20 ^ test_rand(UINT32_MAX)) %
                             253402300800000u));
    /* Each day to 2110, its first and last instant. */
    for (int64_t day = 0; day < 366ll * 140; day++) {
        check_text(day * 86400000);
        check_text(day * 86400000 + 86399999);
    }
}

TEST(dates_out_of_range_show_the_nearest)
{
    char text[CLOCK_TEXT_SIZE];

    clock_text(-1, text);
    CHECK_STR(text, "1970-01-01T00:00:00.000Z");
    clock_text(INT64_MIN, text);
    CHECK_STR(text, "1970-01-01T00:00:00.000Z");
    clock_text(253402300799999, text);
    CHECK_STR(text, "9999-12-31T23:59:59.999Z");
    clock_text(253402300800000, text);
    CHECK_STR(text, "9999-12-31T23:59:59.999Z");
    clock_text(INT64_MAX, text);
    CHECK_STR(text, "9999-12-31T23:59:59.999Z");
}

TEST(clocks_agree_with_each_other)
{
    int64_t us = clock_mono_us(), ms = clock_mono_ms(), later = clock_mono_us();

    CHECK(us <= later && ms >= us / 1000 && ms <= later / 1000);
    CHECK(clock_wall_ms() > 1600000000000);
}
