/* One check for each sequence, on a screen of 4 rows and 10 columns; then the limits. */
#include <time.h>

#include "base/test.h"
#include "term/own.h"

static void feed(struct screen *screen, const char *text)
{
    screen_feed(screen, str_of(text));
}

struct look {
    const char *bytes, *rows; /* what is fed; what is shown, blank rows at the end left out */
    unsigned row, col;        /* where the cursor is then */
};

static void check_looks(const struct look *looks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        autoscreen struct screen *screen = screen_new(4, 10, 100);
        autobuf struct buf text = { 0 };

        feed(screen, looks[i].bytes);
        screen_text(screen, &text);
        while (text.len && text.data[text.len - 1] == '\n')
            text.len--;
        if (strcmp(buf_cstr(&text), looks[i].rows) != 0 || screen->at.row != looks[i].row ||
            screen->at.col != looks[i].col)
            test_fail(__FILE__, __LINE__, "look %zu: \"%s\" at %u,%u, not \"%s\" at %u,%u", i,
                      buf_cstr(&text), screen->at.row, screen->at.col, looks[i].rows, looks[i].row,
                      looks[i].col);
    }
}

#define LOOKS(...)                                                                                 \
    do {                                                                                           \
        static const struct look looks_[] = { __VA_ARGS__ };                                       \
        check_looks(looks_, ARRAY_LEN(looks_));                                                    \
    } while (0)
#define FULL "aaaa\r\nbbbb\r\ncccc\r\ndddd"

TEST(text_and_controls)
{
    LOOKS({ "hello", "hello", 0, 5 }, { "one\r\ntwo", "one\ntwo", 1, 3 },
          { "one\ntwo", "one\n   two", 1, 6 }, { "abc\rX", "Xbc", 0, 1 },
          { "abc\b\bX", "aXc", 0, 2 }, { "\bX", "X", 0, 1 }, { "a\tb", "a       b", 0, 9 },
          { "a\vb\fc", "a\n b\n  c", 2, 3 }, { "a\033Eb", "a\nb", 1, 1 },
          { "a\033Db", "a\n b", 1, 2 }, { "\n\nx\033My", "\n y\nx", 1, 2 },
          { "\a\x01\x7f"
            "a",
            "a", 0, 1 },
          { "1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5", 3, 1 }, { "a\033[20h\nb", "a\nb", 1, 1 });
}

TEST(the_edge_wraps_with_the_next_character)
{
    LOOKS({ "0123456789", "0123456789", 0, 9 }, { "0123456789a", "0123456789\na", 1, 1 },
          { "0123456789\r\na", "0123456789\na", 1, 1 }, { "0123456789\rX", "X123456789", 0, 1 },
          { "0123456789\033[KX", "0123456789\nX", 1, 1 }, { "0123456789\bX", "01234567X9", 0, 9 },
          { "\033[?7l0123456789ab", "012345678b", 0, 9 },
          { "\033[?7l0123456789ab\033[?7hcd", "012345678c\nd", 1, 1 },
          { "01234567\tab", "01234567 a\nb", 1, 1 });
}

TEST(utf8_wide_and_combining)
{
    LOOKS({ "\u00e9\u4e2dx", "\u00e9\u4e2dx", 0, 4 }, { "e\u0301x", "e\u0301x", 0, 2 },
          { "\u0301x", "x", 0, 1 }, { "012345678\u4e2d", "012345678\n\u4e2d", 1, 2 },
          { "\u4e2d\bX", " X", 0, 2 }, { "\u4e2d\rX", "X", 0, 1 },
          { "0123456789\u0301", "0123456789\u0301", 0, 9 },
          { "\xff\xe4\xb8x", "\ufffd\ufffdx", 0, 3 },
          { "\xe4\xb8\xe4\xb8\xad", "\ufffd\u4e2d", 0, 3 },
          { "\xc0\x80\xed\xa0\x80", "\ufffd\ufffd\ufffd\ufffd\ufffd", 0, 5 },
          { "\xc2\x9b"
            "31m",
            "31m", 0, 3 },
          { "\xe4\xb8\033[2Cx", "\ufffd  x", 0, 4 },
          { "\033[?7l012345678\u4e2d", "012345678", 0, 9 },
          { "\U0001f600\u200dx", "\U0001f600\u200dx", 0, 3 });
}

TEST(the_rest_of_a_wide_character_has_the_background_of_what_cut_it)
{
    static const char *const cuts[] = { "\r\033[42mx", "\033[1;2H\033[42mx", "\r\033[42m\033[X",
                                        "\033[1;2H\033[42m\033[K" };

    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        autoscreen struct screen *screen = screen_new(2, 10, 0);
        struct screen_cell cell;

        feed(screen, "\033[41m\u4e2d");
        feed(screen, cuts[i]);
        CHECK(screen_cell(screen, 0, i % 2 ? 0 : 1, &cell));
        CHECK(cell.len == 0 && cell.width == 1);
        CHECK_INT(cell.bg, 1 << 24 | 2);
    }
}

TEST(cursor_moves_stay_on_the_screen)
{
    LOOKS({ "\033[2;3Hx", "\n  x", 1, 3 }, { "\033[2;3fx", "\n  x", 1, 3 },
          { "\033[99;99H", "", 3, 9 }, { "\033[3;3H\033[A", "", 1, 2 },
          { "\033[3;3H\033[99A", "", 0, 2 }, { "\033[B\033[2B", "", 3, 0 },
          { "\033[4C\033[2D", "", 0, 2 }, { "\033[99C\033[99D", "", 0, 0 },
          { "\033[3;3H\033[E", "", 3, 0 }, { "\033[3;3H\033[2F", "", 0, 0 },
          { "\033[5G", "", 0, 4 }, { "\033[5`", "", 0, 4 }, { "\033[3d", "", 2, 0 },
          { "\033[2a", "", 0, 2 }, { "\033[2e", "", 2, 0 }, { "\033[0;0H", "", 0, 0 },
          { "\033[2147483647C\033[99999999999999999999B", "", 3, 9 });
}

TEST(tabs)
{
    LOOKS({ "\t\t", "", 0, 9 }, { "\033[3g\ta", "         a", 0, 9 },
          { "\033[4G\033H\r\ta", "   a", 0, 4 }, { "\033[9G\033[g\r\ta", "         a", 0, 9 },
          { "\033[2I", "", 0, 9 }, { "\033[10G\033[Za", "        a", 0, 9 },
          { "\033[10G\033[99Z", "", 0, 0 });
}

TEST(margins)
{
    LOOKS({ FULL "\033[2;3r\033[3;1H\n", "aaaa\ncccc\n\ndddd", 2, 0 },
          { FULL "\033[2;3r\033[2;1H\033M", "aaaa\n\nbbbb\ndddd", 1, 0 },
          { FULL "\033[2;3r", "aaaa\nbbbb\ncccc\ndddd", 0, 0 },
          { FULL "\033[3;2rx", "aaaa\nbbbb\ncccc\nddddx", 3, 5 },
          { FULL "\033[2;3r\033[4;1H\n", "aaaa\nbbbb\ncccc\ndddd", 3, 0 },
          { "\033[2;3r\033[?6hx", "\nx", 1, 1 }, { "\033[2;3r\033[?6h\033[9;1Hx", "\n\nx", 2, 1 },
          { "\033[2;3r\033[3;1H\033[9A", "", 1, 0 }, { "\033[2;3r\033[9B", "", 2, 0 },
          { "\033[2;3r\033[4;1H\033[9A", "", 1, 0 }, { "\033[2;3r\033[9e", "", 3, 0 },
          { "\033[2;3r\033[?6h\033[9e", "", 2, 0 },
          { FULL "\033[2;3r\033[S", "aaaa\ncccc\n\ndddd", 0, 0 },
          { FULL "\033[2T", "\n\naaaa\nbbbb", 3, 4 }, { FULL "\033[99S", "", 3, 4 });
}

TEST(inserting_and_deleting)
{
    LOOKS({ "0123456789\033[3G\033[2@", "01  234567", 0, 2 },
          { "0123456789\033[3G\033[2P", "01456789", 0, 2 },
          { "0123456789\033[3G\033[99@", "01", 0, 2 },
          { "0123456789\033[3G\033[65535P", "01", 0, 2 },
          { FULL "\033[2;3H\033[L", "aaaa\n\nbbbb\ncccc", 1, 0 },
          { FULL "\033[2;3H\033[2M", "aaaa\ndddd", 1, 0 },
          { FULL "\033[3;4r\033[1;2H\033[L", "aaaa\nbbbb\ncccc\ndddd", 0, 1 },
          { "abc\033[1G\033[4hX", "Xabc", 0, 1 }, { "abc\033[1G\033[4hX\033[4lY", "XYbc", 0, 2 },
          { "01234567\u4e2d\033[1G\033[@", " 01234567", 0, 0 },
          { "\u4e2dab\033[2G\033[P", " ab", 0, 1 });
}

TEST(erasing)
{
    LOOKS({ "0123456789\033[5G\033[K", "0123", 0, 4 },
          { "0123456789\033[5G\033[1K", "     56789", 0, 4 },
          { "0123456789\033[5G\033[2K", "", 0, 4 }, { FULL "\033[2;3H\033[J", "aaaa\nbb", 1, 2 },
          { FULL "\033[2;3H\033[1J", "\n   b\ncccc\ndddd", 1, 2 }, { FULL "\033[2J", "", 3, 4 },
          { "0123456789\033[5G\033[3X", "0123   789", 0, 4 },
          { "0123456789\033[5G\033[65535X", "0123", 0, 4 },
          { "\u4e2d\u6587\033[2G\033[X", "  \u6587", 0, 1 }, { "a\u4e2d\033[2G\033[X", "a", 0, 1 },
          { "\033#8\033[2;2H\033[J", "EEEEEEEEEE\nE", 1, 1 });
}

TEST(repeating)
{
    LOOKS({ "ab\033[3b", "abbbb", 0, 5 }, { "\033[3bx", "x", 0, 1 },
          { "a\033[m\033[3bx", "ax", 0, 2 }, { "\u4e2d\033[b", "\u4e2d\u4e2d", 0, 4 },
          { "a\033[65535b", "aaaaaaaaaa\na", 1, 1 });
}

TEST(saving_and_the_alternate_screen)
{
    LOOKS({ "ab\0337\033[3;3H\0338c", "abc", 0, 3 }, { "ab\033[s\033[3;3H\033[uc", "abc", 0, 3 },
          { "abc\033[?1049hX", "   X", 0, 4 },
          { "abc\033[?1049h\033[3;3HX\033[?1049ld", "abcd", 0, 4 },
          { "abc\033[?47hX\033[?47ld", "abc d", 0, 5 },
          { "abc\033[?1047hX\033[?1047l", "abc", 0, 4 },
          { "\033[?1049hX\033[?1049l\033[?1049h", "", 0, 0 },
          { "ab\033[?1048h\033[3;3H\033[?1048lc", "abc", 0, 3 }, { "abc\033c", "", 0, 0 });
}

TEST(character_sets)
{
    LOOKS({ "\033(0lqk\033(Bq", "\u250c\u2500\u2510q", 0, 4 },
          { "\033)0q\016q\017q", "q\u2500q", 0, 3 }, { "\033*0\033Nqq", "\u2500q", 0, 2 },
          { "\033+0\033Oqq", "\u2500q", 0, 2 }, { "\033+0\033oq\017q", "\u2500q", 0, 2 },
          { "\033(A#", "\u00a3", 0, 1 }, { "\033(0\0337\033(B\0338q", "\u2500", 0, 1 });
}

TEST(strings_are_swallowed)
{
    LOOKS({ "a\033]0;title\ab", "ab", 0, 2 }, { "a\033]52;c;AAAA\033\\b", "ab", 0, 2 },
          { "a\033Pq#0;1\033\\b", "ab", 0, 2 }, { "a\033_x\ay\033\\b", "ab", 0, 2 },
          { "a\033^x\033\\b", "ab", 0, 2 }, { "a\033Xx\033\\b", "ab", 0, 2 },
          { "a\033kname\033\\b", "ab", 0, 2 },
          { "a\033]0;t\x18"
            "b",
            "ab", 0, 2 },
          { "a\033]0;t\033[2Cb", "a  b", 0, 4 });
}

TEST(broken_sequences_mean_nothing_and_controls_act_inside)
{
    LOOKS({ "a\033[1\x18"
            "b",
            "ab", 0, 2 },
          { "a\033[1\033[2Cb", "a  b", 0, 4 }, { "a\033[\r2Cb", "a b", 0, 3 },
          { "a\033[<5Cb", "ab", 0, 2 }, { "a\033[5<Cb", "ab", 0, 2 }, { "a\033[5 Cb", "ab", 0, 2 },
          { "a\033[ 5Cb", "ab", 0, 2 }, { "a\033[1;2;3~b", "ab", 0, 2 },
          { "a\033%Gb\033 Fc", "abc", 0, 3 },
          { "a\033[3\x7f"
            "Cb",
            "a   b", 0, 5 },
          { "a\033[3\xff"
            "b",
            "a\ufffdb", 0, 3 });
}

/* ---- looks ------------------------------------------------------------------------------------
 */

struct sgr_look {
    const char *sequence;
    uint32_t fg, bg, ul;
    unsigned attrs;
};

TEST(sgr)
{
    static const struct sgr_look looks[] = {
        { "\033[1m", 0, 0, 0, SCREEN_BOLD },
        { "\033[1;2;3;5;7;8;9;53m", 0, 0, 0, 255 },
        { "\033[1;2m\033[22m", 0, 0, 0, 0 },
        { "\033[3;5;7;8;9;53m\033[23;25;27;28;29;55m", 0, 0, 0, 0 },
        { "\033[4m", 0, 0, 0, 1 << 8 },
        { "\033[21m", 0, 0, 0, 2 << 8 },
        { "\033[4:3m", 0, 0, 0, 3 << 8 },
        { "\033[4:5m\033[4:0m", 0, 0, 0, 0 },
        { "\033[4:6m", 0, 0, 0, 0 },
        { "\033[4m\033[24m", 0, 0, 0, 0 },
        { "\033[31;42m", SCREEN_INDEXED | 1, SCREEN_INDEXED | 2, 0, 0 },
        { "\033[91;102m", SCREEN_INDEXED | 9, SCREEN_INDEXED | 10, 0, 0 },
        { "\033[31;42m\033[39;49m", 0, 0, 0, 0 },
        { "\033[38;5;200;48;5;100m", SCREEN_INDEXED | 200, SCREEN_INDEXED | 100, 0, 0 },
        { "\033[38;2;1;2;3;1m", SCREEN_RGB | 0x010203, 0, 0, SCREEN_BOLD },
        { "\033[38:2::1:2:3m", SCREEN_RGB | 0x010203, 0, 0, 0 },
        { "\033[38:2:1:2:3m", SCREEN_RGB | 0x010203, 0, 0, 0 },
        { "\033[48:5:77;58:5:3m", 0, SCREEN_INDEXED | 77, SCREEN_INDEXED | 3, 0 },
        { "\033[58:2::9:8:7m\033[59m", 0, 0, 0, 0 },
        { "\033[58;2;9;8;7m", 0, 0, SCREEN_RGB | 0x090807, 0 },
        { "\033[38;5;256m", 0, 0, 0, 0 },
        { "\033[38;2;256;0;0m", 0, 0, 0, 0 },
        { "\033[38m", 0, 0, 0, 0 },
        { "\033[38;5m", 0, 0, 0, 0 },
        { "\033[38:5m", 0, 0, 0, 0 },
        { "\033[31m\033[0m", 0, 0, 0, 0 },
        { "\033[31m\033[m", 0, 0, 0, 0 },
        { "\033[31;;1m", 0, 0, 0, SCREEN_BOLD },
        { "\033[7:1m", 0, 0, 0, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(looks); i++) {
        autoscreen struct screen *screen = screen_new(1, 10, 0);
        struct screen_cell cell;

        feed(screen, looks[i].sequence);
        feed(screen, "x");
        CHECK(screen_cell(screen, 0, 0, &cell));
        if (cell.fg != looks[i].fg || cell.bg != looks[i].bg || cell.ul != looks[i].ul ||
            cell.attrs != looks[i].attrs)
            test_fail(__FILE__, __LINE__, "SGR %zu (%s): %x %x %x %x", i, looks[i].sequence + 1,
                      cell.fg, cell.bg, cell.ul, cell.attrs);
    }
}

TEST(erased_cells_take_the_background)
{
    autoscreen struct screen *screen = screen_new(2, 10, 0);
    struct screen_cell cell;

    feed(screen, "abc\033[41;1m\033[2G\033[K");
    CHECK(screen_cell(screen, 0, 5, &cell) && cell.bg == (SCREEN_INDEXED | 1) && !cell.attrs);
    CHECK(screen_cell(screen, 0, 0, &cell) && cell.bg == 0 && cell.len == 1);
    feed(screen, "\033[42m\033[2;1H\n");
    CHECK(screen_cell(screen, 1, 0, &cell) && cell.bg == (SCREEN_INDEXED | 2));
}

TEST(a_wide_character_covers_two_cells)
{
    autoscreen struct screen *screen = screen_new(1, 10, 0);
    struct screen_cell cell;

    feed(screen, "a\u4e2d\u0301");
    CHECK(screen_cell(screen, 0, 1, &cell) && cell.width == 2 && cell.len == 5);
    CHECK_STR(cell.text, "\u4e2d\u0301");
    CHECK(screen_cell(screen, 0, 2, &cell) && cell.width == 0 && cell.len == 0);
    CHECK(screen_cell(screen, 0, 3, &cell) && cell.width == 1 && cell.len == 0);
    CHECK(!screen_cell(screen, 0, 10, &cell) && !screen_cell(screen, 1, 0, &cell));
    CHECK(!screen_cell(screen, -1, 0, &cell));
}

TEST(widths)
{
    static const struct {
        uint32_t code;
        unsigned width;
    } known[] = { { 'a', 1 },     { 0xad, 1 },   { 0x300, 0 },   { 0x36f, 0 },   { 0x370, 1 },
                  { 0x1100, 2 },  { 0x1160, 0 }, { 0x200b, 0 },  { 0x2500, 1 },  { 0x2e80, 2 },
                  { 0x3000, 2 },  { 0x4e00, 2 }, { 0xac00, 2 },  { 0xfe0f, 0 },  { 0xff01, 2 },
                  { 0xff61, 1 },  { 0xfffd, 1 }, { 0x1f600, 2 }, { 0x20000, 2 }, { 0xe0100, 0 },
                  { 0x10ffff, 1 } };

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (width_of(known[i].code) != known[i].width)
            test_fail(__FILE__, __LINE__, "U+%04X", known[i].code);
}

/* ---- state ------------------------------------------------------------------------------------
 */

TEST(modes)
{
    autoscreen struct screen *screen = screen_new(4, 10, 0);

    feed(screen, "\033[?1;5;1003;1006;1004;2004;2026h\033=\033[4;20h\033[?1049h");
    struct screen_modes m = screen_modes(screen);
    CHECK(m.app_cursor && m.reverse && m.focus_events && m.bracketed_paste && m.synchronized &&
          m.app_keypad && m.insert && m.newline && m.alternate);
    CHECK(m.mouse == SCREEN_MOUSE_ALL && m.mouse_code == SCREEN_MOUSE_SGR);
    feed(screen, "\033[?1;5;1003;1006;1004;2004;2026l\033>\033[4;20l\033[?1049l");
    m = screen_modes(screen);
    CHECK(!m.app_cursor && !m.reverse && !m.focus_events && !m.bracketed_paste && !m.synchronized &&
          !m.app_keypad && !m.insert && !m.newline && !m.alternate && !m.mouse && !m.mouse_code);
    feed(screen, "\033[?1000h\033[?1002h\033[?9h");
    CHECK(screen_modes(screen).mouse == SCREEN_MOUSE_X10);
    feed(screen, "\033[4h\033[?1h\033[?7l\033[2;3r\033[?6h\033[?25l\033[!p");
    m = screen_modes(screen);
    CHECK(!m.insert && !m.app_cursor && m.autowrap && !m.origin && screen_cursor(screen).visible);
    CHECK(screen->top == 0 && screen->bottom == 3);
}

TEST(cursor_looks)
{
    autoscreen struct screen *screen = screen_new(4, 10, 0);

    feed(screen, "\033[?25l\033[5 q");
    struct screen_cursor c = screen_cursor(screen);
    CHECK(!c.visible && c.blinking && c.style == SCREEN_CURSOR_BAR);
    feed(screen, "\033[?25h\033[4 q\033[7 q");
    c = screen_cursor(screen);
    CHECK(c.visible && !c.blinking && c.style == SCREEN_CURSOR_UNDERLINE);
}

TEST(answers_wait_for_the_caller)
{
    autoscreen struct screen *screen = screen_new(4, 10, 0);
    autobuf struct buf got = { 0 };

    feed(screen, "\033[2;3H\033[6n\033[5n\033[c\033[>c\033[?6n\033Z\033[?25$p\033[?2026$p\033[4$"
                 "p\033[?9999$p");
    buf_str(&got, screen_replies(screen));
    CHECK_STR(buf_cstr(&got), "\033[2;3R\033[0n\033[?1;2c\033[>0;276;0c\033[?2;3R\033[?1;2c"
                              "\033[?25;1$y\033[?2026;2$y\033[4;2$y\033[?9999;0$y");
    screen_replies_clear(screen);
    CHECK_INT(screen_replies(screen).n, 0);
    for (int i = 0; i < 2000; i++)
        feed(screen, "\033[6n");
    CHECK(screen_replies(screen).n <= SCREEN_REPLIES_MAX);
    CHECK(screen_replies(screen).n > SCREEN_REPLIES_MAX - 10);
    screen_replies_clear(screen);
    feed(screen, "\033[5n");
    CHECK_INT(screen_replies(screen).n, 4);
}

TEST(the_title_is_text)
{
    autoscreen struct screen *screen = screen_new(4, 10, 0);
    autobuf struct buf title = { 0 };

    feed(screen, "\033]2;a\u00e9\xff\xc2\x85\x01z\a");
    buf_str(&title, screen_title(screen));
    CHECK_STR(buf_cstr(&title), "a\u00e9\ufffdz");
    feed(screen, "\033]1;icon\a\033]3;x\a\033]2\a");
    CHECK(str_eq(screen_title(screen), buf_view(&title)));
    feed(screen, "\033]0;\a");
    CHECK_INT(screen_title(screen).n, 0);
    for (unsigned n = SCREEN_TITLE_MAX - 2; n < SCREEN_TITLE_MAX + 3; n++) {
        feed(screen, "\033]2;");
        for (unsigned i = 0; i < n; i++)
            feed(screen, "t");
        feed(screen, "\u00e9\033\\");
        CHECK_INT(screen_title(screen).n,
                  n + 2 <= SCREEN_TITLE_MAX ? n + 2 : MIN(n, SCREEN_TITLE_MAX));
    }
}

TEST(generation_changes_with_every_change)
{
    autoscreen struct screen *screen = screen_new(4, 10, 0);
    uint64_t before = screen_generation(screen);

    screen_feed(screen, STR_NONE);
    screen_resize(screen, 4, 10);
    CHECK(screen_generation(screen) == before);
    feed(screen, "a");
    CHECK(screen_generation(screen) != before);
    before = screen_generation(screen);
    screen_resize(screen, 5, 10);
    CHECK(screen_generation(screen) != before);
    before = screen_generation(screen);
    screen_reset(screen);
    CHECK(screen_generation(screen) != before);
}

TEST(json_tells_runs_of_equal_looks)
{
    autoscreen struct screen *screen = screen_new(2, 10, 0);
    autobuf struct buf text = { 0 };
    struct json_out out = json_to(&text);

    feed(screen, "a\033[1;31mb\033[0;48;2;1;2;3mc\033]2;\"t\"\a");
    screen_json(screen, &out);
    CHECK_STR(buf_cstr(&text), "{\"rows\":2,\"cols\":10,\"cursor\":{\"row\":0,\"col\":3,"
                               "\"visible\":true,\"blinking\":false,"
                               "\"style\":\"block\"},\"title\":\"\\\"t\\\"\",\"modes\":{"
                               "\"alternate\":false,\"app_cursor\":false,"
                               "\"app_keypad\":false,\"bracketed_paste\":false,\"focus_events\":"
                               "false,\"synchronized\":false,"
                               "\"mouse\":\"off\",\"mouse_code\":\"bytes\"},\"lines\":[[{\"text\":"
                               "\"a\"},{\"text\":\"b\",\"fg\":1,"
                               "\"attrs\":[\"bold\"]},{\"text\":\"c\",\"bg\":\"#010203\"}],[]]}");
}

/* ---- scrollback and resize --------------------------------------------------------------------
 */

static void check_text(const struct screen *screen, const char *back, const char *rows)
{
    autobuf struct buf above = { 0 }, text = { 0 };

    screen_scrollback_text(screen, 1000, &above);
    screen_text(screen, &text);
    CHECK_STR(buf_cstr(&above), back);
    CHECK_STR(buf_cstr(&text), rows);
}

TEST(rows_that_leave_are_kept)
{
    autoscreen struct screen *screen = screen_new(2, 10, 3);
    struct screen_cell cell;

    feed(screen, "1\r\n\033[31m\u4e2d\u6587\033[m e\u0301\r\n3\r\n4");
    check_text(screen, "1\n\u4e2d\u6587 e\u0301", "3\n4");
    CHECK(screen_cell(screen, -1, 2, &cell) && cell.fg == (SCREEN_INDEXED | 1) && cell.width == 2);
    CHECK(screen_cell(screen, -1, 5, &cell) && cell.len == 3);
    feed(screen, "\r\n5\r\n6\r\n7");
    check_text(screen, "3\n4\n5", "6\n7");
    feed(screen, "\033[?1049hx\r\ny\r\nz\033[?1049l");
    check_text(screen, "3\n4\n5", "6\n7");
    feed(screen, "\033[3J");
    check_text(screen, "", "6\n7");
}

TEST(a_resize_wraps_lines_anew)
{
    autoscreen struct screen *screen = screen_new(3, 10, 100);

    feed(screen, "0123456789abcdef\r\nshort");
    screen_resize(screen, 3, 8);
    check_text(screen, "", "01234567\n89abcdef\nshort");
    CHECK(screen->at.row == 2 && screen->at.col == 5);
    screen_resize(screen, 3, 4);
    check_text(screen, "0123\n4567\n89ab", "cdef\nshor\nt");
    CHECK(screen->at.row == 2 && screen->at.col == 1);
    screen_resize(screen, 3, 20);
    check_text(screen, "", "0123456789abcdef\nshort\n");
    CHECK(screen->at.row == 1 && screen->at.col == 5);
    feed(screen, "\r\n2\r\n3\r\n4");
    screen_resize(screen, 5, 20);
    check_text(screen, "", "0123456789abcdef\nshort\n2\n3\n4");
    screen_resize(screen, 2, 20);
    check_text(screen, "0123456789abcdef\nshort\n2", "3\n4");
}

TEST(a_resize_keeps_wide_characters_whole)
{
    autoscreen struct screen *screen = screen_new(3, 5, 100);

    feed(screen, "abcd\u4e2de");
    check_text(screen, "", "abcd\n\u4e2de\n");
    screen_resize(screen, 3, 7);
    check_text(screen, "", "abcd\u4e2de\n\n");
    screen_resize(screen, 3, 1);
    CHECK_INT(screen_cols(screen), 1);
}

TEST(the_alternate_screen_is_cut_and_the_main_one_comes_back)
{
    autoscreen struct screen *screen = screen_new(3, 10, 100);

    feed(screen, "0123456789ab\r\nprompt\033[?1049h\033[Halt 456789\r\nsecond\r\nthird");
    screen_resize(screen, 2, 6);
    check_text(screen, "012345", "second\nthird");
    feed(screen, "\033[?1049l");
    check_text(screen, "012345", "6789ab\nprompt");
    CHECK(screen->at.row == 1 && screen->at.col == 5);
}

TEST(blank_rows_below_give_way_first)
{
    autoscreen struct screen *screen = screen_new(4, 10, 100);

    feed(screen, "one\r\ntwo");
    screen_resize(screen, 2, 10);
    check_text(screen, "", "one\ntwo");
}

/* ---- limits -----------------------------------------------------------------------------------
 */

TEST(sizes_are_moved_into_range)
{
    static const unsigned sizes[][4] = {
        { 0, 0, 1, 1 },
        { SCREEN_ROWS_MAX, SCREEN_COLS_MAX, SCREEN_ROWS_MAX, SCREEN_COLS_MAX },
        { SCREEN_ROWS_MAX + 1, SCREEN_COLS_MAX + 1, SCREEN_ROWS_MAX, SCREEN_COLS_MAX },
        { ~0u, ~0u, SCREEN_ROWS_MAX, SCREEN_COLS_MAX }
    };

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        autoscreen struct screen *screen = screen_new(sizes[i][0], sizes[i][1], ~0u),
                                 *other = screen_new(7, 7, 0);

        screen_resize(other, sizes[i][0], sizes[i][1]);
        CHECK(screen_rows(screen) == sizes[i][2] && screen_cols(screen) == sizes[i][3]);
        CHECK(screen_rows(other) == sizes[i][2] && screen_cols(other) == sizes[i][3]);
        CHECK_INT(screen->back.max, SCREEN_SCROLLBACK_MAX);
        feed(screen, "\033[999;999Hx\033[?1049h\033#8");
    }
}

static void feed_many(struct screen *screen, const char *text, unsigned times)
{
    while (times--)
        feed(screen, text);
}

TEST(a_sequence_is_understood_up_to_its_limit)
{
    static const unsigned extra[] = { 0, 1 };

    for (size_t i = 0; i < ARRAY_LEN(extra); i++) {
        autoscreen struct screen *pieces = screen_new(2, 10, 0), *whole = screen_new(2, 10, 0);
        autobuf struct buf bytes = { 0 };

        buf_puts(&bytes, "\033[");
        for (unsigned n = 0; n < SCREEN_SEQ_MAX - 2 + extra[i]; n++)
            buf_putc(&bytes, '0');
        buf_puts(&bytes, "5Cx");
        screen_feed(whole, buf_view(&bytes));
        for (size_t n = 0; n < bytes.len; n++)
            screen_feed(pieces, (struct str){ bytes.data + n, 1 });
        CHECK_INT(whole->at.col, extra[i] ? 1 : 6);
        CHECK(screen_equal(whole, pieces));
    }
}

TEST(parameters_beyond_the_limit_mean_nothing)
{
    for (unsigned n = SCREEN_PARAMS_MAX - 1; n <= SCREEN_PARAMS_MAX; n++) {
        autoscreen struct screen *screen = screen_new(2, 10, 0);
        struct screen_cell cell;

        feed(screen, "\033[");
        feed_many(screen, "0;", n);
        feed(screen, "1mx");
        CHECK(screen_cell(screen, 0, 0, &cell));
        CHECK_INT(cell.attrs, n < SCREEN_PARAMS_MAX ? SCREEN_BOLD : 0);
    }
}

TEST(scrollback_is_bounded_in_bytes)
{
    autoscreen struct screen *screen = screen_new(2, SCREEN_COLS_MAX, SCREEN_SCROLLBACK_MAX);

    for (unsigned i = 0; i < 2000; i++) {
        for (unsigned col = 0; col < SCREEN_COLS_MAX / 4; col++)
            feed(screen, col % 2 ? "\033[0;31mx" : "\033[0;42mx");
        feed(screen, "\r\n");
        CHECK(screen->back.bytes <= SCREEN_SCROLLBACK_BYTES);
    }
    CHECK(screen->back.count < 1900 && screen->back.bytes > SCREEN_SCROLLBACK_BYTES - 100000);
    CHECK(screen_bytes(screen) <= SCREEN_BYTES_MAX(2, SCREEN_COLS_MAX));
}

/* More marks than there is room for: those that are overwritten make room, the rest is not shown.
 */
TEST(marks_are_bounded)
{
    autoscreen struct screen *screen = screen_new(40, 500, 0);
    struct screen_cell cell;

    for (unsigned i = 0; i < SCREEN_MARKS_MAX * 3; i++)
        feed(screen, "\033[He\u0301");
    CHECK(screen_cell(screen, 0, 0, &cell) && cell.len == 3);
    feed(screen, "\033[2J\033[H");
    for (unsigned i = 0; i < 40 * 500 - 1; i++)
        feed(screen, "e\u0301");
    CHECK(screen_cell(screen, 0, 1, &cell) && cell.len == 3);
    CHECK_INT(screen->marks.size, SCREEN_MARKS_MAX);
    CHECK(screen_cell(screen, 39, 498, &cell) && cell.len == 1);
    feed(screen, "\033[H\033[2J");
    feed_many(screen, "\033[He\u0301", 3000);
    CHECK(screen_cell(screen, 0, 0, &cell) && cell.len == 3);
}

TEST(marks_of_one_cell_are_bounded)
{
    autoscreen struct screen *screen = screen_new(1, 10, 0);
    struct screen_cell cell;

    feed(screen, "e");
    feed_many(screen, "\u0301", MARKS_BYTES / 2 + 5);
    CHECK(screen_cell(screen, 0, 0, &cell));
    CHECK_INT(cell.len, 1 + MARKS_BYTES);
}

/* A row that comes back must not take the marks of one that came back with it. */
TEST(marks_stay_where_they_are_in_a_resize)
{
    autoscreen struct screen *screen = screen_new(40, 500, 1000);
    struct screen_cell cell;
    char want[8] = "e";

    for (unsigned row = 0; row < 70; row++)
        for (unsigned col = 0; col < 500; col++) {
            want[1 + utf8_put(0x300 + col % 64, want + 1)] = 0;
            feed(screen, want);
        }
    screen_resize(screen, 70, 500);
    unsigned marked = 0;
    for (int row = 0; row < 70; row++)
        for (unsigned col = 0; col < 500; col++) {
            want[1 + utf8_put(0x300 + col % 64, want + 1)] = 0;
            CHECK(screen_cell(screen, row, col, &cell));
            marked += cell.len > 1;
            if (cell.len > 1)
                CHECK_STR(cell.text, want);
            col += 13; /* every cell would be slow: screen_cell reads a row from its beginning */
        }
    CHECK(marked > 500);
}

TEST(a_keyframe_tells_of_a_sequence_that_is_too_long)
{
    static const char *const begins[] = { "\033[", "\033]2;", "\033 " };

    for (size_t i = 0; i < ARRAY_LEN(begins); i++) {
        autoscreen struct screen *screen = screen_new(2, 10, 0), *late = screen_new(2, 10, 0);
        autobuf struct buf frame = { 0 };

        feed(screen, begins[i]);
        feed_many(screen, i < 2 ? "0" : " ", SCREEN_SEQ_MAX + 5);
        screen_keyframe(screen, 0, &frame);
        screen_feed(late, buf_view(&frame));
        CHECK(screen_equal(screen, late));
    }
}

/* Few bytes, much work: as often as many bytes hold them, on the largest screen. In CPU time, and
 * a hundred times what it takes. */
TEST(no_sequence_costs_much_more_than_its_bytes)
{
    static const char *const costly[] = {
        "\033[41m\033[2J", "\033#8",      "\033[65535S",  "\033[65535T", "\033[65535L",
        "\033[65535@",     "\033[65535P", "x\033[65535b", "\033[65535I", "\033[?1049h\033[?1049l",
        "\033c",           "\n",          "\033[65535X",  "e\u0301",     "\033[65535Z",
    };

    clock_t clear = 0;

    /* Against the first, which clears the whole screen and no more: what repeats its work by the
     * number it was given takes thousands of times as long, whatever the machine and the build. */
    for (size_t i = 0; i < ARRAY_LEN(costly); i++) {
        autoscreen struct screen *screen = screen_new(SCREEN_ROWS_MAX, SCREEN_COLS_MAX, 1000);
        clock_t start = clock();

        for (size_t bytes = 0; bytes < 200000; bytes += strlen(costly[i]))
            feed(screen, costly[i]);
        if (i == 0)
            clear = clock() - start;
        if (clock() - start > 200 * clear)
            test_fail(__FILE__, __LINE__, "%s takes %d times as long as clearing", costly[i] + 1,
                      (int)((clock() - start) / clear));
    }
}
