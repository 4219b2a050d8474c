#include "diff/lines.h"

#include "base/buf.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/test.h"

#define SMALL 40

static void random_text(struct buf *out, uint32_t lines, uint32_t kinds)
{
    buf_clear(out);
    for (uint32_t i = 0; i < lines; i++)
        buf_printf(out, "%u\n", test_rand(kinds));
    if (out->len && test_rand(4) == 0)
        out->len--; /* no newline at the end */
}

/* Is the script true, in order and without touching changes? Gives how many lines it changes. */
static uint32_t check_script(const struct lines *a, const struct lines *b,
                             const struct lines_script *script)
{
    uint32_t i = 0, j = 0, cost = 0;

    for (size_t c = 0; c <= script->count; c++) {
        struct lines_change end = { a->count, 0, b->count, 0 };
        const struct lines_change *at = c < script->count ? &script->at[c] : &end;

        CHECK(at->old_at >= i && at->new_at >= j);
        CHECK(c == 0 || c == script->count || at->old_at > i);
        CHECK_INT(at->old_at - i, at->new_at - j);
        while (i < at->old_at) {
            CHECK(str_eq(a->at[i], b->at[j]));
            i++, j++;
        }
        i += at->old_count;
        j += at->new_count;
        cost += at->old_count + at->new_count;
    }
    CHECK_INT(i, a->count);
    CHECK_INT(j, b->count);
    return cost;
}

/* By the textbook: the longest common subsequence. */
static uint32_t naive_cost(const struct lines *a, const struct lines *b)
{
    uint32_t best[SMALL + 1][SMALL + 1] = { 0 };

    for (uint32_t i = 0; i < a->count; i++)
        for (uint32_t j = 0; j < b->count; j++)
            best[i + 1][j + 1] =
                str_eq(a->at[i], b->at[j]) ? best[i][j] + 1 : MAX(best[i][j + 1], best[i + 1][j]);
    return a->count + b->count - 2 * best[a->count][b->count];
}

TEST(the_script_is_true_and_shortest)
{
    autobuf struct buf before = { 0 }, after = { 0 };

    for (int round = 0; round < 30000; round++) {
        autolines struct lines a = { 0 }, b = { 0 };
        autoscript struct lines_script script = { 0 };
        uint32_t kinds = 1 + test_rand(12);

        random_text(&before, test_rand(SMALL), kinds);
        random_text(&after, test_rand(SMALL), kinds);
        CHECK(lines_split(&a, buf_view(&before)) && lines_split(&b, buf_view(&after)));
        lines_compare(&a, &b, &script);
        CHECK_INT(check_script(&a, &b, &script), naive_cost(&a, &b));
    }
}

TEST(without_work_it_is_longer_but_true)
{
    autobuf struct buf before = { 0 }, after = { 0 };
    uint32_t longer = 0;

    for (int round = 0; round < 2000; round++) {
        autolines struct lines a = { 0 }, b = { 0 };
        autoscript struct lines_script script = { 0 };

        random_text(&before, test_rand(SMALL), 6);
        random_text(&after, test_rand(SMALL), 6);
        CHECK(lines_split(&a, buf_view(&before)) && lines_split(&b, buf_view(&after)));
        lines_compare_within(&a, &b, test_rand(60), &script);
        uint32_t cost = check_script(&a, &b, &script), least = naive_cost(&a, &b);
        CHECK(cost >= least);
        longer += cost > least;
    }
    CHECK(longer > 0); /* or the bound bounds nothing */
}

TEST(lines_are_split_at_newlines_alone)
{
    autolines struct lines lines = { 0 };

    CHECK(lines_split(&lines, STR("a\r\n\nb\0c\nlast")));
    CHECK_INT(lines.count, 4);
    CHECK(str_eq(lines.at[0], STR("a\r\n")) && str_eq(lines.at[1], STR("\n")));
    CHECK(str_eq(lines.at[2], STR("b\0c\n")) && str_eq(lines.at[3], STR("last")));
}

TEST(an_empty_text_has_no_lines)
{
    autolines struct lines none = { 0 };
    autoscript struct lines_script script = { 0 };

    CHECK(lines_split(&none, STR_NONE));
    CHECK_INT(none.count, 0);
    lines_compare(&none, &none, &script);
    CHECK_INT(script.count, 0);
}

/* The worst that the work allows: two long texts of the same few lines in random order. */
TEST(at_the_limit_of_lines_and_one_past_it)
{
    autobuf struct buf before = { 0 }, after = { 0 };
    autolines struct lines a = { 0 }, b = { 0 }, past = { 0 };
    autoscript struct lines_script script = { 0 };

    for (uint32_t i = 0; i < DIFF_LINES_MAX; i++) {
        buf_putc(&before, (char)('a' + test_rand(20)));
        buf_putc(&after, (char)('a' + test_rand(20)));
        buf_putc(&before, '\n');
        buf_putc(&after, '\n');
    }
    CHECK(lines_split(&a, buf_view(&before)) && lines_split(&b, buf_view(&after)));
    CHECK_INT(a.count, DIFF_LINES_MAX);
    lines_compare(&a, &b, &script);
    check_script(&a, &b, &script);
    buf_putc(&before, 'x');
    CHECK(!lines_split(&past, buf_view(&before)));
    CHECK(!past.at);
}
