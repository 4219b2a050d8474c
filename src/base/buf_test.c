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
