/* pages: whatever is made, renumbered and dropped, the cache holds what a list of numbers says. */
#include "store/pages.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"

#define PAGES 64
#define FAR 100000u

static unsigned truncated; /* times that the real cache was asked to */
static sqlite3_pcache_methods2 real, ours;

static void counting(sqlite3_pcache *cache, unsigned limit)
{
    truncated++;
    real.xTruncate(cache, limit);
}

static sqlite3_pcache *fresh(void)
{
    if (!ours.iVersion) {
        CHECK_INT(sqlite3_config(SQLITE_CONFIG_GETPCACHE2, &real), SQLITE_OK);
        sqlite3_pcache_methods2 counted = real;
        counted.xTruncate = counting;
        ours = pages_before(&counted);
        CHECK_INT(sqlite3_config(SQLITE_CONFIG_PCACHE2, &ours), SQLITE_OK);
        CHECK_INT(sqlite3_initialize(), SQLITE_OK);
    }
    sqlite3_pcache *cache = ours.xCreate(4096, 128, 1);
    CHECK(cache != NULL);
    ours.xCachesize(cache, 1000);
    truncated = 0;
    return cache;
}

static sqlite3_pcache_page *put(sqlite3_pcache *cache, unsigned key)
{
    sqlite3_pcache_page *page = ours.xFetch(cache, key, 2);

    CHECK(page != NULL);
    memset(page->pExtra, 0, 128);
    return page;
}

static bool holds(sqlite3_pcache *cache, unsigned key)
{
    sqlite3_pcache_page *page = ours.xFetch(cache, key, 0);

    if (page)
        ours.xUnpin(cache, page, 0);
    return page != NULL;
}

TEST(a_page_that_passed_through_a_far_number_costs_nothing)
{
    sqlite3_pcache *cache = fresh();
    sqlite3_pcache_page *one = put(cache, 1), *two = put(cache, 2);

    ours.xRekey(cache, one, 1, FAR); /* as SQLite exchanges two */
    ours.xRekey(cache, two, 2, 1);
    ours.xRekey(cache, one, FAR, 2);
    ours.xTruncate(cache, 3);
    CHECK_INT(truncated, 0);
    CHECK(holds(cache, 1) && holds(cache, 2) && !holds(cache, FAR));
    CHECK_INT(ours.xPagecount(cache), 2);
    ours.xTruncate(cache, 2);
    CHECK_INT(truncated, 1);
    CHECK(holds(cache, 1) && !holds(cache, 2));
    ours.xDestroy(cache);
}

TEST(a_page_that_stays_at_a_far_number_is_dropped)
{
    sqlite3_pcache *cache = fresh();
    sqlite3_pcache_page *one = put(cache, 1), *two = put(cache, 2);

    ours.xRekey(cache, one, 1, FAR);
    ours.xRekey(cache, two, 2, FAR + 1); /* a second one at the same time */
    ours.xUnpin(cache, one, 0);
    ours.xUnpin(cache, two, 0);
    ours.xTruncate(cache, FAR + 1);
    CHECK(holds(cache, FAR) && !holds(cache, FAR + 1));
    ours.xTruncate(cache, 3);
    CHECK(!holds(cache, FAR));
    CHECK_INT(ours.xPagecount(cache), 0);
    ours.xShrink(cache);
    ours.xDestroy(cache);
}

TEST(random_changes_are_those_of_a_plain_list)
{
    sqlite3_pcache *cache = fresh();
    bool there[PAGES + 2] = { false };

    for (int i = 0; i < 20000; i++) {
        unsigned key = 1 + test_rand(PAGES), to = 1 + test_rand(PAGES + 1);

        if (there[key] && test_rand(3) == 0 && !there[to]) {
            sqlite3_pcache_page *page = ours.xFetch(cache, key, 0);

            CHECK(page != NULL);
            ours.xRekey(cache, page, key, to);
            ours.xUnpin(cache, page, 0);
            there[key] = false;
            there[to] = true;
        } else if (test_rand(20) == 0) {
            ours.xTruncate(cache, key);
            memset(there + key, 0, sizeof(there) - key);
        } else if (test_rand(4) == 0) {
            sqlite3_pcache_page *page = put(cache, key);

            ours.xUnpin(cache, page, 1);
            there[key] = false;
        } else {
            ours.xUnpin(cache, put(cache, key), 0);
            there[key] = true;
        }
        int count = 0;
        for (unsigned at = 1; at < ARRAY_LEN(there); at++) {
            CHECK_INT(holds(cache, at), there[at]);
            count += there[at];
        }
        CHECK_INT(ours.xPagecount(cache), count);
    }
    CHECK(truncated > 100);
    ours.xDestroy(cache);
}
