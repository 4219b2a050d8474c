/* What must hold for any bytes: in any pieces, through a keyframe, at any size. */
#include <stdio.h>

#include "base/test.h"
#include "term/own.h"
#include "term/random.h"

static struct screen *random_screen(void)
{
    static const unsigned sizes[][2] = { { 4, 10 }, { 1, 1 }, { 2, 2 }, { 24, 80 }, { 7, 3 } };
    const unsigned *size = sizes[test_rand(ARRAY_LEN(sizes))];

    return screen_new(size[0], size[1], 50);
}

static struct screen *same_size(const struct screen *screen)
{
    return screen_new(screen->rows, screen->cols, 50);
}

static void show_state(const struct screen *s)
{
    fprintf(stderr,
            "%ux%u at %u,%u wrap %d origin %d last %x shift %u margins %u-%u parser %d/%u wrapped",
            s->rows, s->cols, s->at.row, s->at.col, s->at.wrap_next, s->at.origin, s->last,
            s->shift, s->top, s->bottom, (int)s->parser.state, s->parser.len);
    for (unsigned i = 0; i < s->rows; i++)
        fprintf(stderr, " %d", s->on->rows[i]->wrapped);
    fprintf(stderr, " saved %u,%u wrap %d\n", s->main.saved.row, s->main.saved.col,
            s->main.saved.wrap_next);
}

static void show_difference(const struct screen *a, const struct screen *b, struct str bytes)
{
    autobuf struct buf one = { 0 }, two = { 0 };
    struct json_out out = json_to(&one), out2 = json_to(&two);

    show_state(a);
    show_state(b);
    screen_json(a, &out);
    screen_json(b, &out2);
    fprintf(stderr, "%s\n%s\nfrom ", buf_cstr(&one), buf_cstr(&two));
    for (size_t i = 0; i < bytes.n; i++)
        fprintf(stderr, bytes.p[i] >= 0x20 && bytes.p[i] < 0x7f ? "%c" : "\\x%02x",
                (unsigned char)bytes.p[i]);
    fputc('\n', stderr);
}

/* The rules of own.h. */
static void check_grid(const struct screen *screen, const struct grid *grid)
{
    for (unsigned y = 0; grid->rows && y < screen->rows; y++) {
        const struct row *row = grid->rows[y];
        union cell last = cell_at(row, screen->cols - 1);

        CHECK(row->used <= screen->cols);
        CHECK(row->fill.kind == CELL_NARROW && row->fill.marks == 0);
        if (row->wrapped)
            CHECK(last.code || last.kind == CELL_TAIL || last.kind == CELL_PAD);
        for (unsigned x = 0; x < screen->cols; x++) {
            union cell cell = cell_at(row, x);
            bool head_before = x > 0 && cell_at(row, x - 1).kind == CELL_WIDE;

            CHECK((cell.kind == CELL_TAIL) == head_before);
            CHECK(cell.kind != CELL_WIDE || x + 1 < screen->cols);
            CHECK(cell.kind < CELL_TAIL || !cell.code);
            CHECK(cell.kind != CELL_PAD || x == screen->cols - 1);
            CHECK(cell.marks == 0 || (cell.code && cell.marks < screen->marks.size));
        }
    }
}

static void check_rules(const struct screen *screen)
{
    check_grid(screen, &screen->main);
    check_grid(screen, &screen->alt);
    CHECK(screen->at.row < screen->rows && screen->at.col < screen->cols);
    CHECK(screen->top <= screen->bottom && screen->bottom < screen->rows);
    CHECK(!screen->at.wrap_next || screen->at.col == screen->cols - 1);
    CHECK(screen->back.count <= screen->back.max);
    CHECK(screen_bytes(screen) <= SCREEN_BYTES_MAX(screen->rows, screen->cols));
}

TEST(any_pieces_make_the_same_screen)
{
    for (int round = 0; round < 3000; round++) {
        autoscreen struct screen *whole = random_screen(), *pieces = same_size(whole);
        autobuf struct buf bytes = { 0 };

        for (uint32_t n = test_rand(60); n > 0; n--)
            random_piece(&bytes);
        screen_feed(whole, buf_view(&bytes));
        for (size_t at = 0; at < bytes.len;) {
            size_t n = 1 + test_rand(4);

            n = MIN(n, bytes.len - at);
            screen_feed(pieces, (struct str){ bytes.data + at, n });
            at += n;
        }
        check_rules(whole);
        if (!screen_equal(whole, pieces))
            show_difference(whole, pieces, buf_view(&bytes));
        CHECK(screen_equal(whole, pieces));
        CHECK(str_eq(screen_replies(whole), screen_replies(pieces)));
        CHECK_INT(screen_scrollback(whole), screen_scrollback(pieces));
    }
}

/* Cut anywhere, also inside of a sequence: a viewer that gets the keyframe and the rest is equal.
 */
TEST(a_keyframe_and_the_rest_are_as_good_as_the_whole)
{
    for (int round = 0; round < 6000; round++) {
        autoscreen struct screen *whole = random_screen(), *late = same_size(whole);
        autobuf struct buf bytes = { 0 }, frame = { 0 };

        for (uint32_t n = test_rand(40); n > 0; n--)
            random_piece(&bytes);
        size_t cut = test_rand((uint32_t)bytes.len + 1);
        screen_feed(whole, (struct str){ bytes.data, cut });
        screen_keyframe(whole, test_rand(3) ? 0 : 100, &frame);
        screen_feed(late, buf_view(&frame));
        if (!screen_equal(whole, late)) {
            show_difference(whole, late, (struct str){ bytes.data, cut });
            show_difference(whole, late, buf_view(&frame));
        }
        CHECK(screen_equal(whole, late));
        screen_feed(whole, str_from(buf_view(&bytes), cut));
        screen_feed(late, str_from(buf_view(&bytes), cut));
        if (!screen_equal(whole, late)) {
            fprintf(stderr, "cut at %zu\n", cut);
            show_difference(whole, late, buf_view(&bytes));
        }
        CHECK(screen_equal(whole, late));
    }
}

TEST(a_keyframe_brings_scrollback_along)
{
    for (int round = 0; round < 2000; round++) {
        autoscreen struct screen *a = random_screen(), *b = same_size(a);
        autobuf struct buf bytes = { 0 }, one = { 0 }, two = { 0 };

        for (uint32_t n = test_rand(80); n > 0; n--) {
            buf_puts(&bytes, random_texts[test_rand(ARRAY_LEN(random_texts))]);
            if (test_rand(3) == 0)
                buf_puts(&bytes, "\033[44m");
        }
        screen_feed(a, buf_view(&bytes));
        screen_keyframe(a, 100, &one);
        screen_feed(b, buf_view(&one));
        buf_clear(&one);
        CHECK_INT(screen_scrollback(a), screen_scrollback(b));
        screen_scrollback_text(a, 100, &one);
        screen_scrollback_text(b, 100, &two);
        CHECK_STR(buf_cstr(&one), buf_cstr(&two));
        for (int row = -1; row >= -(int)screen_scrollback(a); row--)
            CHECK(screen_row_wrapped(a, row) == screen_row_wrapped(b, row));
    }
}

TEST(a_resize_keeps_the_rules)
{
    for (int round = 0; round < 3000; round++) {
        autoscreen struct screen *screen = random_screen();

        for (uint32_t turns = test_rand(6); turns > 0; turns--) {
            autobuf struct buf bytes = { 0 };

            for (uint32_t n = test_rand(30); n > 0; n--)
                random_piece(&bytes);
            screen_feed(screen, buf_view(&bytes));
            screen_resize(screen, test_rand(12), test_rand(30));
            check_rules(screen);
            autoscreen struct screen *late = same_size(screen);
            buf_clear(&bytes);
            screen_keyframe(screen, 0, &bytes);
            screen_feed(late, buf_view(&bytes));
            CHECK(screen_equal(screen, late));
        }
    }
}

/* All that was written, without blanks and rows. */
static void all_text(const struct screen *screen, struct buf *out)
{
    for (int row = -(int)screen_scrollback(screen); row < (int)screen->rows; row++)
        screen_row_text(screen, row, out);
}

TEST(a_resize_loses_no_text)
{
    for (int round = 0; round < 1000; round++) {
        autoscreen struct screen *screen = screen_new(5, 20, 10000);
        autobuf struct buf before = { 0 }, after = { 0 };

        for (uint32_t lines = test_rand(20) + 1; lines > 0; lines--) {
            for (uint32_t n = test_rand(60); n > 0; n--) {
                static const char *const words[] = { "a", "b", "\u4e2d", "e\u0301" };

                screen_feed(screen, str_of(words[test_rand(4)]));
            }
            screen_feed(screen, STR("\r\n"));
        }
        all_text(screen, &before);
        for (int turn = 0; turn < 5; turn++)
            screen_resize(screen, 1 + test_rand(10), 2 + test_rand(40));
        all_text(screen, &after);
        CHECK_STR(buf_cstr(&after), buf_cstr(&before));
    }
}
