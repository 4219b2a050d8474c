/* When dying becomes a habit. */
#include "base/crash.h"

#include "base/test.h"

TEST(five_short_lives_in_ten_minutes_are_a_loop_told_once)
{
    struct crash crash = { 0 };
    int64_t now = 1000000;

    for (int i = 0; i < CRASH_LOOP_COUNT - 1; i++, now += 1000)
        CHECK(!crash_ended(&crash, now - 500, now, false));
    CHECK(!crash.loop);
    CHECK(crash_ended(&crash, now - 500, now, false) && crash.loop);
    CHECK(!crash_ended(&crash, now, now + 1, false) && crash.loop);
}

TEST(long_lives_and_asked_ends_do_not_count)
{
    struct crash crash = { 0 };
    int64_t now = 1000000;

    for (int i = 0; i < 20; i++, now += 70000) {
        CHECK(!crash_ended(&crash, now - CRASH_SHORT_MS, now, false));
        CHECK(!crash_ended(&crash, now - 1, now, true));
    }
    CHECK(crash.count == 0);
    CHECK(!crash_ended(&crash, now - CRASH_SHORT_MS + 1, now, false));
    CHECK(crash.count == 1);
}

TEST(crashes_far_apart_are_no_loop_and_health_clears)
{
    struct crash crash = { 0 };
    int64_t now = 1000000, step = CRASH_WINDOW_MS / (CRASH_LOOP_COUNT - 1);

    for (int i = 0; i < 20; i++, now += step + 1)
        CHECK(!crash_ended(&crash, now - 1, now, false));
    for (int i = 0; i < CRASH_LOOP_COUNT; i++)
        now += step, crash_ended(&crash, now - 1, now, false);
    CHECK(crash.loop);
    crash_alive(&crash, now, now + CRASH_HEALTHY_MS - 1);
    CHECK(crash.loop);
    crash_alive(&crash, now, now + CRASH_HEALTHY_MS);
    CHECK(!crash.loop && crash.count == 0);
}
