/* The window slides: against a naive count over everything that was let through. */
#include "hub/rate.h"

#include <stdio.h>

#include "base/limits.h"
#include "base/test.h"

TEST(rate_lets_the_sixtieth_through_and_not_the_next)
{
    struct rate rate = { .most = 60 };

    for (int i = 0; i < 60; i++)
        CHECK(rate_take(&rate, "t", "a", 1000 + i) == 0);
    CHECK(rate_take(&rate, "t", "a", 1060) == HUB_RATE_WINDOW_MS - 60);
    CHECK(rate_take(&rate, "t", "b", 1060) == 0); /* another's */
    CHECK(rate_take(&rate, "u", "a", 1060) == 0); /* and another tenant's */
    CHECK(rate_take(&rate, "t", "a", 1000 + HUB_RATE_WINDOW_MS - 1) == 1);
    CHECK(rate_take(&rate, "t", "a", 1000 + HUB_RATE_WINDOW_MS) == 0);
    CHECK(rate_take(&rate, "t", "a", 1000 + HUB_RATE_WINDOW_MS) == 1);
    rate_free(&rate);
}

static void agrees(int64_t most, unsigned pause_ms)
{
    struct rate rate = { .most = most };
    static int64_t passed[4096];
    int64_t now = 100000;
    size_t count = 0;

    for (int round = 0; round < 4000; round++) {
        size_t recent = 0;

        /* Slowly and fast in turn, so that the ring grows after it went round. */
        now += (int64_t)test_rand(round % 400 < 100 ? 20 * pause_ms : pause_ms);
        for (size_t i = 0; i < count; i++)
            recent += passed[i] > now - HUB_RATE_WINDOW_MS;
        bool may = rate_take(&rate, "t", "a", now) == 0;
        CHECK(may == (recent < (size_t)most));
        if (may)
            passed[count++] = now;
    }
    rate_free(&rate);
}

TEST(rate_agrees_with_counting)
{
    agrees(1, 50000);
    agrees(7, 20000);
    agrees(100, 900);
    agrees(1000, 90);
}

TEST(rate_forgets_names_rather_than_growing)
{
    struct rate rate = { .most = 1 };
    char name[32];

    for (int i = 0; i < HUB_RATES_MAX + 10; i++) {
        snprintf(name, sizeof(name), "agent-%d", i);
        CHECK(rate_take(&rate, "t", name, 5) == 0);
    }
    CHECK(rate.count <= HUB_RATES_MAX);
    rate_free(&rate);
}
