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

TEST(a_time_that_was_written_is_read_again)
{
    for (int i = 0; i < 100000; i++) {
        int64_t ms = (int64_t)(((uint64_t)test_rand(UINT32_MAX) << 20 ^ test_rand(UINT32_MAX)) %
                               253402300800000u),
                got = -1;
        char text[CLOCK_TEXT_SIZE];

        clock_text(ms, text);
        CHECK(clock_parse(str_of(text), &got));
        CHECK_INT(got, ms);
    }
}

TEST(times_of_others_are_read_or_refused)
{
    static const struct {
        const char *text;
        int64_t ms; /* -1: refused */
    } cases[] = {
        { "1970-01-01T00:00:00Z", 0 },
        { "1970-01-01t00:00:01.5z", 1500 },
        { "1970-01-01T01:00:00.0019999+01:00", 1 },
        { "1969-12-31T23:00:00-01:30", 1800000 },
        { "2024-02-29T00:00:00Z", 1709164800000 },
        { "2000-02-29T23:59:60Z", 951868800000 },
        { "1969-12-31T23:59:59Z", -1 },
        { "2023-02-29T00:00:00Z", -1 },
        { "1900-02-29T00:00:00Z", -1 },
        { "2026-00-10T00:00:00Z", -1 },
        { "2026-13-10T00:00:00Z", -1 },
        { "2026-04-31T00:00:00Z", -1 },
        { "2026-01-10T24:00:00Z", -1 },
        { "2026-01-10T00:60:00Z", -1 },
        { "2026-01-10T00:00:61Z", -1 },
        { "2026-01-10T00:00:00", -1 },
        { "2026-01-10T00:00:00.Z", -1 },
        { "2026-01-10T00:00:00+0100", -1 },
        { "2026-01-10T00:00:00+24:00", -1 },
        { "2026-01-10T00:00:00Zx", -1 },
        { "2026-01-10 00:00:00Z", -1 },
        { "26-01-10T00:00:00Z", -1 },
        { "2026-1-10T00:00:00Z", -1 },
        { "2026-01-10", -1 },
        { "1700000000", -1 },
        { "", -1 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t got = -1;
        bool good = clock_parse(str_of(cases[i].text), &got);

        if (good != (cases[i].ms >= 0) || got != cases[i].ms)
            test_fail(__FILE__, __LINE__, "%s: %lld", cases[i].text, (long long)got);
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
