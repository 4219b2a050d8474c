/* Word distance against its definition by plain recursion. */
#include <limits.h>

#include "base/near.h"
#include "base/test.h"

TEST(near_counts_single_slips_as_one)
{
    CHECK_INT(near_distance(STR("token"), STR("token")), 0);
    CHECK_INT(near_distance(STR("token"), STR("tokn")), 1);
    CHECK_INT(near_distance(STR("token"), STR("tokken")), 1);
    CHECK_INT(near_distance(STR("token"), STR("toben")), 1);
    CHECK_INT(near_distance(STR("token"), STR("tokne")), 1);
    CHECK_INT(near_distance(STR(""), STR("abc")), 3);
    CHECK_INT(near_distance(STR("abc"), STR("")), 3);
    CHECK_INT(near_distance(STR("abc"), STR("xyz")), 3);
}

TEST(near_stops_at_the_word_limit)
{
    char word[NEAR_WORD_MAX + 1];

    memset(word, 'a', sizeof(word));
    CHECK_INT(near_distance((struct str){ word, NEAR_WORD_MAX }, (struct str){ word, 30 }), 2);
    CHECK(near_distance((struct str){ word, NEAR_WORD_MAX + 1 }, STR("a")) == UINT_MAX);
    CHECK(near_distance(STR("a"), (struct str){ word, NEAR_WORD_MAX + 1 }) == UINT_MAX);
}

TEST(near_enough_knows_slips_from_other_words)
{
    CHECK(near_enough(1, STR("lst")));
    CHECK(!near_enough(1, STR("x")));
    CHECK(!near_enough(2, STR("lst")));
    CHECK(near_enough(2, STR("lisste")));
    CHECK(!near_enough(UINT_MAX, STR("token")));
}

/* The same by plain recursion on tiny words, without rows to mix up. */
static unsigned slow(const char *a, size_t n, const char *b, size_t m)
{
    if (!n || !m)
        return (unsigned)(n + m);
    unsigned best = slow(a, n - 1, b, m - 1) + (a[n - 1] != b[m - 1]);
    best = MIN(best, slow(a, n - 1, b, m) + 1);
    best = MIN(best, slow(a, n, b, m - 1) + 1);
    if (n > 1 && m > 1 && a[n - 1] == b[m - 2] && a[n - 2] == b[m - 1])
        best = MIN(best, slow(a, n - 2, b, m - 2) + 1);
    return best;
}

TEST(near_agrees_with_the_definition)
{
    for (int round = 0; round < 2000; round++) {
        char a[6], b[6];
        size_t n = test_rand(6), m = test_rand(6);

        for (size_t i = 0; i < n; i++)
            a[i] = (char)('a' + test_rand(3));
        for (size_t i = 0; i < m; i++)
            b[i] = (char)('a' + test_rand(3));
        CHECK_INT(near_distance((struct str){ a, n }, (struct str){ b, m }), slow(a, n, b, m));
    }
}
