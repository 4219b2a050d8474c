/* show: nothing that commands a terminal or deceives a reader passes. */
#include "base/show.h"

#include "base/test.h"

static void check_shown(struct str text, const char *want)
{
    autobuf struct buf out = { 0 };

    show_text(&out, text);
    CHECK_STR(buf_cstr(&out), want);
}

TEST(deceiving_text_becomes_visible)
{
    check_shown(STR("plain text, caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 C:\\dir"),
                "plain text, caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 C:\\dir");
    check_shown(STR("a\nb\tc\rd"), "a\\nb\\tc\\rd");
    check_shown(STR("\x1b]52;c;eA==\x07"), "\\x1b]52;c;eA==\\x07");
    check_shown((struct str){ "a\0b\x7f", 4 }, "a\\x00b\\x7f");
    check_shown(STR("\xc2\x9b"
                    "31m"),
                "\\u{9b}31m"); /* C1 control sequence introducer */
    check_shown(STR("\x9b"
                    "31m"),
                "\\x9b31m"); /* the same as a bare byte */
    check_shown(STR("evil\xe2\x80\xae"
                    "fdp.exe"),
                "evil\\u{202e}fdp.exe");
    check_shown(STR("a\xe2\x81\xa6"
                    "b\xe2\x80\xa8"),
                "a\\u{2066}b\\u{2028}");
    check_shown(STR("zero\xe2\x80\x8bwidth\xef\xbb\xbf"), "zero\\u{200b}width\\u{feff}");
    check_shown(STR("tag\xf3\xa0\x81\xa1"), "tag\\u{e0061}");
    check_shown(STR("cut\xe2\x82"), "cut\\xe2\\x82");
    check_shown(STR_NONE, "");
}

TEST(whatever_comes_in_one_harmless_line_of_utf8_comes_out)
{
    for (int round = 0; round < 5000; round++) {
        autobuf struct buf out = { 0 };
        char bytes[30];
        size_t len = test_rand(sizeof(bytes));

        for (size_t i = 0; i < len; i++)
            bytes[i] = test_rand(2) ? (char)test_rand(256) : "\xe2\x80\xaa\xc2\x80"[test_rand(5)];
        show_text(&out, (struct str){ bytes, len });
        for (size_t i = 0; i < out.len;) {
            uint32_t code;
            size_t size = str_utf8_at(out.data + i, out.len - i, &code);

            CHECK(size && !show_hidden(code));
            i += size;
        }
    }
}

TEST(letters_of_the_world_are_not_hidden)
{
    static const uint32_t fine[] = { ' ',   '~',    0xa0,   0xe9,   0x416,  0x5d0,
                                     0x627, 0x4e2d, 0xac00, 0xfe0f, 0x1f600 };
    static const uint32_t hidden[] = { 0,     0x1f,   0x7f,   0x80,   0x9f,
                                       0x61c, 0x200e, 0x202a, 0x2069, 0xe0001 };

    for (size_t i = 0; i < ARRAY_LEN(fine); i++)
        CHECK(!show_hidden(fine[i]));
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++)
        CHECK(show_hidden(hidden[i]));
}
