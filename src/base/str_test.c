/* str: cutting and comparing at the edges, numbers at their limits, every UTF-8 sequence. */
#include "base/str.h"

#include "base/buf.h"
#include "base/test.h"

TEST(comparing_looks_at_length_and_bytes)
{
    CHECK(str_eq(STR(""), STR_NONE) && str_eq(STR("a"), STR("a")) && !str_eq(STR("a"), STR("b")));
    CHECK(!str_eq(STR("a"), STR("ab")) &&
          !str_eq((struct str){ "a\0b", 3 }, (struct str){ "a\0c", 3 }));
    CHECK(str_is(STR("abc"), "abc") && !str_is(STR("abc"), "ab") && str_is(STR_NONE, ""));
    CHECK(str_eq_nocase(STR("Content-Length"), STR("cONTENT-lENGTH")));
    CHECK(!str_eq_nocase(STR("a["), STR("a{")) && !str_eq_nocase(STR("@"), STR("`")));
    CHECK(!str_eq_nocase(STR("abc"), STR("abcd")));
    CHECK(str_starts(STR("abc"), STR("ab")) && str_starts(STR("abc"), STR_NONE) &&
          !str_starts(STR("ab"), STR("abc")) && !str_starts(STR("xbc"), STR("ab")));
    CHECK(str_has_nul((struct str){ "a\0", 2 }) && !str_has_nul(STR("a")) &&
          !str_has_nul(STR_NONE));
}

TEST(cutting_never_leaves_the_slice)
{
    struct str text = STR("a,,bc,");
    static const char *const parts[] = { "a", "", "bc" };

    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        CHECK(str_is(str_cut(&text, ','), parts[i]));
    CHECK_INT(text.n, 0);
    CHECK(str_is(str_cut(&text, ','), ""));
    struct str none = STR_NONE;
    CHECK_INT(str_cut(&none, ',').n, 0);
    CHECK(str_is(str_from(STR("abc"), 1), "bc") && str_from(STR("abc"), 3).n == 0 &&
          str_from(STR("abc"), 99).n == 0 && str_from(STR_NONE, 1).n == 0);
    CHECK(str_is(str_trim(STR(" \t a b \t")), "a b") && str_trim(STR(" \t")).n == 0);
    CHECK(str_is(str_trim(STR("\na\n")), "\na\n"));
}

TEST(joining_the_cuts_gives_the_text_again)
{
    for (int round = 0; round < 2000; round++) {
        autobuf struct buf joined = { 0 };
        char text[40];
        size_t len = test_rand(sizeof(text));

        for (size_t i = 0; i < len; i++)
            text[i] = "ab,"[test_rand(3)];
        struct str rest = { text, len };
        size_t commas = 0;
        for (size_t i = 0; i < len; i++)
            commas += text[i] == ',';
        for (size_t i = 0; i <= commas; i++) {
            buf_str(&joined, str_cut(&rest, ','));
            if (i < commas)
                buf_putc(&joined, ',');
        }
        CHECK(rest.n == 0 && str_eq(buf_view(&joined), (struct str){ text, len }));
    }
}

TEST(whole_numbers_are_digits_and_fit)
{
    static const struct {
        const char *text;
        bool fine;
        uint64_t value;
    } cases[] = {
        { "0", true, 0 },
        { "7", true, 7 },
        { "18446744073709551615", true, UINT64_MAX },
        { "18446744073709551616", false, 0 },
        { "99999999999999999999", false, 0 },
        { "", false, 0 },
        { "00", false, 0 },
        { "01", false, 0 },
        { "+1", false, 0 },
        { "-1", false, 0 },
        { " 1", false, 0 },
        { "1 ", false, 0 },
        { "1a", false, 0 },
        { "0x1", false, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t value = 42;

        CHECK(str_to_u64(str_of(cases[i].text), &value) == cases[i].fine);
        CHECK(value == (cases[i].fine ? cases[i].value : 42));
    }
}

TEST(signed_numbers_reach_both_ends)
{
    int64_t value = 42;

    CHECK(str_to_i64(STR("9223372036854775807"), &value) && value == INT64_MAX);
    CHECK(str_to_i64(STR("-9223372036854775808"), &value) && value == INT64_MIN);
    CHECK(str_to_i64(STR("-1"), &value) && value == -1);
    static const char *const bad[] = {
        "9223372036854775808", "-9223372036854775809", "-0", "-", "--1", "", "-01", "1-"
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!str_to_i64(str_of(bad[i]), &value) && value == -1);
}

TEST(sizes_and_durations_have_units)
{
    uint64_t value = 0;

    CHECK(str_to_bytes(STR("10"), &value) && value == 10);
    CHECK(str_to_bytes(STR("64k"), &value) && value == 65536);
    CHECK(str_to_bytes(STR("2G"), &value) && value == 2ull << 30);
    CHECK(str_to_bytes(STR("1T"), &value) && value == 1ull << 40);
    CHECK(str_to_bytes(STR("16777215T"), &value) && value == 16777215ull << 40);
    CHECK(!str_to_bytes(STR("16777216T"), &value)); /* 2^64 */
    CHECK(str_to_ms(STR("250ms"), &value) && value == 250);
    CHECK(str_to_ms(STR("5m"), &value) && value == 300000);
    CHECK(str_to_ms(STR("7d"), &value) && value == 604800000);
    static const char *const bad[] = { "", "k", "1kb", "1 k", "-1k", "1.5k", "01k", "1ms" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!str_to_bytes(str_of(bad[i]), &value));
    CHECK(!str_to_ms(STR("5"), &value) && !str_to_ms(STR("5M"), &value) &&
          !str_to_ms(STR("ms"), &value));
    CHECK_INT(value, 604800000);
}

static size_t encode(uint32_t code, char out[4])
{
    if (code < 0x80)
        return out[0] = (char)code, 1;
    size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00u >> size & 0xff) | code);
    return size;
}

TEST(every_code_point_is_utf8_once_and_surrogates_are_not)
{
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char bytes[4];
        size_t size = encode(code, bytes);
        uint32_t back = 0;
        bool fine = code < 0xd800 || code > 0xdfff;

        CHECK_INT(str_utf8_at(bytes, size, &back), fine ? size : 0);
        if (fine)
            CHECK_INT(back, code);
        CHECK_INT(str_utf8_at(bytes, size - 1, NULL), 0); /* cut short */
    }
}

TEST(no_other_bytes_are_utf8)
{
    unsigned accepted = 0;

    /* Every start of three bytes: as many are accepted as there are sequences of one to three. */
    for (uint32_t bits = 0; bits < 1u << 24; bits++) {
        char bytes[3] = { (char)(bits >> 16), (char)(bits >> 8), (char)bits };
        size_t size = str_utf8_at(bytes, 3, NULL);

        accepted += size == 3 || (size == 2 && !bytes[2]) || (size == 1 && !bytes[1] && !bytes[2]);
    }
    CHECK_INT(accepted, 0x10000 - 0x800);
    static const char *const bad[] = { "\xf8\x88\x80\x80\x80", "\xf4\x90\x80\x80",
                                       "\xf0\x80\x80\x80", "\xff" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!str_utf8(str_of(bad[i])));
    CHECK(str_utf8(STR("a\xc3\xa9\xf0\x9f\x98\x80")) && str_utf8(STR_NONE) &&
          !str_utf8(STR("a\xc3")));
}
