/* The width of text, and how tables line up. */
#include "cli/text.h"

#include <locale.h>

#include "base/mem.h"
#include "base/test.h"

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

static void check_bytes(int64_t bytes, const char *want)
{
    autobuf struct buf out = { 0 };

    text_bytes(&out, bytes);
    CHECK_STR(buf_cstr(&out), want);
}

TEST(sizes_are_short)
{
    check_bytes(0, "0");
    check_bytes(1023, "1023");
    check_bytes(1024, "1K");
    check_bytes(1536, "1.5K");
    check_bytes(64ll << 20, "64M");
    check_bytes((1 << 20) - 1, "1.0M");
    check_bytes(4ll << 40, "4T");
    check_bytes(INT64_MAX, "8.0E");
}

TEST(table_aligns)
{
    autotable struct table table = { 0 };
    autobuf struct buf out = { 0 };

    table_titles(&table, "NAME,>SIZE,NOTE");
    table_cell(&table, STR("a"));
    table_cell(&table, STR("1"));
    table_cell(&table, STR("x\x1b\n"));
    table_cell(&table, STR("日本語"));
    table_cell(&table, STR("10000"));
    table_cell(&table, STR(""));
    table_put(&table, &out, 0, false);
    CHECK_STR(buf_cstr(&out), "NAME     SIZE  NOTE\n"
                              "a           1  x\\x1b\\n\n"
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

TEST(a_column_that_is_there_to_be_copied_is_never_cut)
{
    autotable struct table table = { 0 };
    autobuf struct buf out = { 0 };

    table_titles(&table, "!ID,NAME");
    table_cell(&table, STR("sb01m7rrcywjskc6aex00000"));
    table_cell(&table, STR("a long name that is cut"));
    table_put(&table, &out, 36, false);
    CHECK_STR(buf_cstr(&out), "ID                        NAME\n"
                              "sb01m7rrcywjskc6aex00000  a long na…\n");
    buf_clear(&out);
    table_put(&table, &out, 10, false);
    CHECK_STR(buf_cstr(&out), "ID                        NAME\n"
                              "sb01m7rrcywjskc6aex00000  a long …\n");
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
