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

TEST(rate_agrees_with_counting)
{
    struct rate rate = { .most = 7 };
    static int64_t passed[4096];
    int64_t now = 100000;
    size_t count = 0;

    for (int round = 0; round < 4000; round++) {
        size_t recent = 0;

        now += (int64_t)test_rand(20000);
        for (size_t i = 0; i < count; i++)
            recent += passed[i] > now - HUB_RATE_WINDOW_MS;
        bool may = rate_take(&rate, "t", "a", now) == 0;
        CHECK(may == (recent < 7));
        if (may)
            passed[count++] = now;
    }
    rate_free(&rate);
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
