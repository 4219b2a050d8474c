/* buf: appends agree with a plain array; the maximum holds exactly. */
#include "base/buf.h"

#include "base/test.h"

TEST(buf_agrees_with_a_plain_array)
{
    for (int round = 0; round < 200; round++) {
        autobuf struct buf buf = { 0 };
        char model[4096];
        size_t len = 0;

        for (int step = 0; step < 50; step++) {
            char piece[64];
            size_t n = test_rand(sizeof(piece));

            for (size_t i = 0; i < n; i++)
                piece[i] = (char)test_rand(256);
            if (len + n <= sizeof(model)) {
                memcpy(model + len, piece, n);
                len += n;
                buf_append(&buf, piece, n);
            }
            size_t drop = test_rand(20);
            if (drop > len)
                drop = len;
            memmove(model, model + drop, len - drop);
            len -= drop;
            buf_consume(&buf, drop);
            CHECK(buf.len == len && (len == 0 || memcmp(buf.data, model, len) == 0));
        }
    }
}

TEST(buf_holds_its_maximum_and_not_one_byte_more)
{
    autobuf struct buf buf = { .max = 10 };

    buf_puts(&buf, "0123456789");
    CHECK(buf_ok(&buf));
    buf_putc(&buf, 'x');
    CHECK(!buf_ok(&buf));
    CHECK_INT(buf.len, 10);
    CHECK_STR(buf_cstr(&buf), "0123456789");
}

TEST(buf_numbers)
{
    autobuf struct buf buf = { 0 };

    buf_u64(&buf, 0);
    buf_putc(&buf, ' ');
    buf_u64(&buf, UINT64_MAX);
    buf_printf(&buf, " %d", -5);
    CHECK_STR(buf_cstr(&buf), "0 18446744073709551615 -5");
}

TEST(printf_holds_the_maximum_exactly_too)
{
    for (size_t max = 1; max < 600; max += 7) {
        autobuf struct buf fits = { .max = max }, not = { .max = max };

        buf_printf(&fits, "%*s", (int)max, "x");
        CHECK(buf_ok(&fits) && fits.len == max && fits.data[max - 1] == 'x');
        buf_printf(&not, "%*s", (int)max + 1, "x");
        CHECK(!buf_ok(&not ) && not .len == 0);
    }
    autobuf struct buf empty = { 0 };
    buf_printf(&empty, "%s", "");
    CHECK(buf_ok(&empty) && empty.len == 0);
}

TEST(once_over_always_over_until_cleared)
{
    autobuf struct buf buf = { .max = 4 };

    buf_puts(&buf, "abc");
    buf_puts(&buf, "de");
    buf_putc(&buf, 'f'); /* would fit, but then the text would have a hole */
    CHECK(!buf_ok(&buf) && buf.len == 3);
    buf_clear(&buf);
    buf_puts(&buf, "wxyz");
    CHECK(buf_ok(&buf));
    CHECK_STR(buf_cstr(&buf), "wxyz");
}

TEST(reserve_gives_room_or_says_no)
{
    autobuf struct buf buf = { .max = 100 };

    CHECK(buf_reserve(&buf, 0));
    CHECK(buf_reserve(&buf, 100) && buf_ok(&buf));
    CHECK(!buf_reserve(&buf, 101) && !buf_ok(&buf));
    CHECK(!buf_reserve(&buf, SIZE_MAX));
    autobuf struct buf usual = { 0 };
    CHECK(!buf_reserve(&usual, BUF_MAX_DEFAULT + 1));
    usual.over = false;
    CHECK(buf_reserve(&usual, BUF_MAX_DEFAULT));
}

TEST(taking_empties_the_buffer)
{
    autobuf struct buf buf = { .max = 10 };
    size_t len;

    buf_puts(&buf, "0123456789");
    autofree char *taken = buf_take(&buf, &len);
    CHECK(len == 10 && buf.len == 0 && !buf.data && buf.max == 10);
    CHECK_STR(taken, "0123456789");
    autofree char *nothing = buf_take(&buf, NULL);
    CHECK_STR(nothing, "");
    CHECK_STR(buf_cstr(&buf), "");
}
