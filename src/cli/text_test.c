/* What may reach a terminal, and how tables line up. */
#include "cli/text.h"

#include <locale.h>

#include "base/mem.h"
#include "base/test.h"

static void check_visible(struct str in, const char *want)
{
    autobuf struct buf out = { 0 };

    text_visible(&out, in);
    CHECK_STR(buf_cstr(&out), want);
}

TEST(visible_leaves_text_alone)
{
    check_visible(STR("plain text, 100% \\ \"quoted\""), "plain text, 100% \\ \"quoted\"");
    check_visible(STR("Grüße 日本 🎉"), "Grüße 日本 🎉");
    check_visible(STR(""), "");
}

TEST(visible_shows_what_commands_terminals)
{
    check_visible(STR("a\x1b]52;c;aGk=\x07"
                      "b"),
                  "a\\x1b]52;c;aGk=\\x07b");
    check_visible(STR("one\r\ntwo\tthree"), "one\\r\\ntwo\\tthree");
    check_visible(STR("nul\0del\x7f"), "nul\\x00del\\x7f");
    check_visible(STR("csi \xc2\x9b"
                      "31m"),
                  "csi \\u{9b}31m");
    check_visible(STR("raw csi \x9b"
                      "31m"),
                  "raw csi \\x9b31m");
    check_visible(STR("\xe2\x80\xae"
                      "gpj.exe"),
                  "\\u{202e}gpj.exe");
    check_visible(STR("\xe2\x81\xa6x\xe2\x81\xa9"), "\\u{2066}x\\u{2069}");
    check_visible(STR("zero\xe2\x80\x8bwidth"), "zero\\u{200b}width");
    check_visible(STR("\xef\xbb\xbf"
                      "bom"),
                  "\\u{feff}bom");
    check_visible(STR("tag\xf3\xa0\x81\x81"), "tag\\u{e0041}");
}

TEST(visible_shows_broken_utf8_by_byte)
{
    check_visible(STR("\xff\xc0\x80"), "\\xff\\xc0\\x80");
    check_visible(STR("cut \xe2\x80"), "cut \\xe2\\x80");
    check_visible(STR("\xed\xa0\x80"), "\\xed\\xa0\\x80"); /* a surrogate */
    check_visible(STR("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
    check_visible(STR("\xc2"
                      "A"),
                  "\\xc2A");
}

/* Whatever comes in, nothing that acts comes out, and plain ASCII comes out as it was. */
TEST(visible_holds_for_random_bytes)
{
    for (int round = 0; round < 20000; round++) {
        char in[24];
        size_t n = test_rand(sizeof(in));
        autobuf struct buf out = { 0 };

        for (size_t i = 0; i < n; i++)
            in[i] = test_rand(2) ? (char)test_rand(256) : "\xe2\x80\xc2\x9b"[test_rand(4)];
        text_visible(&out, (struct str){ in, n });
        CHECK(str_utf8(buf_view(&out)));
        for (size_t i = 0; i < out.len; i++) {
            unsigned char c = (unsigned char)out.data[i];

            CHECK(c >= 0x20 && c != 0x7f);
            CHECK(!(c == 0xc2 && (unsigned char)out.data[i + 1] < 0xa0)); /* C1 */
        }
    }
}

TEST(width_counts_columns)
{
    setlocale(LC_CTYPE, "C.UTF-8");
    CHECK_INT(text_width(STR("abc")), 3);
    CHECK_INT(text_width(STR("Grüße")), 5);
    CHECK_INT(text_width(STR("日本")), 4);
    CHECK_INT(text_width(STR("e\xcc\x81")), 1); /* combining accent */
    CHECK(str_is(text_fit(STR("日本"), 3), "日"));
    CHECK(str_is(text_fit(STR("abc"), 2), "ab"));
    CHECK(str_is(text_fit(STR("abc"), 9), "abc"));
}

static void check_duration(int64_t ms, const char *want)
{
    autobuf struct buf out = { 0 };

    text_duration(&out, ms);
    CHECK_STR(buf_cstr(&out), want);
}

TEST(duration_names_two_units)
{
    check_duration(0, "0ms");
    check_duration(999, "999ms");
    check_duration(1000, "1s");
    check_duration(59999, "59s");
    check_duration(60000, "1m");
    check_duration(3661000, "1h 1m");
    check_duration(3601000, "1h");
    check_duration(90000000, "1d 1h");
}

TEST(table_aligns)
{
    autotable struct table table = { 0 };
    autobuf struct buf out = { 0 };

    table_titles(&table, "NAME,>SIZE,NOTE");
    table_cell(&table, STR("a"));
    table_cell(&table, STR("1"));
    table_cell(&table, STR("x\ny"));
    table_cell(&table, STR("日本語"));
    table_cell(&table, STR("10000"));
    table_cell(&table, STR(""));
    table_put(&table, &out, 0, false);
    CHECK_STR(buf_cstr(&out), "NAME     SIZE  NOTE\n"
                              "a           1  x\\ny\n"
                              "日本語  10000\n");
    buf_clear(&out);
    table_put(&table, &out, 0, true);
    CHECK(str_starts(buf_view(&out), STR("\x1b[1mNAME     SIZE  NOTE\x1b[0m\na ")));
}

TEST(table_fits_the_terminal)
{
    autotable struct table table = { 0 };
    autobuf struct buf out = { 0 };

    table_titles(&table, "A,B");
    table_cell(&table, STR("0123456789012345678901234567890123456789"));
    table_cell(&table, STR("short"));
    table_put(&table, &out, 20, false);
    CHECK_STR(buf_cstr(&out), "A              B\n"
                              "012345678901…  short\n");
    buf_clear(&out);
    table_put(&table, &out, 4, false); /* too narrow for anybody: still readable */
    CHECK_STR(buf_cstr(&out), "A         B\n"
                              "0123456…  short\n");
}

TEST(table_without_rows_or_columns)
{
    autotable struct table table = { 0 };
    autobuf struct buf out = { 0 };

    table_put(&table, &out, 80, true);
    CHECK_INT(out.len, 0);
    table_titles(&table, "A,B");
    table_put(&table, &out, 80, false);
    CHECK_STR(buf_cstr(&out), "A  B\n");
}
