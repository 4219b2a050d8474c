#include "base/test.h"

#include "egress/opening.h"

/* clang-format off */
static const struct {
    const char *text;
    enum opening want;
} rows[] = {
    { "", OPENING_MORE },
    { "\x16", OPENING_TLS },
    { "\x16\x03\x01 and more", OPENING_TLS },
    { "S", OPENING_MORE },
    { "SSH-2.0", OPENING_MORE },
    { "SSH-2.0-OpenSSH_9.2\r\n", OPENING_SSH },
    { "SSH-1.99-x\r\n", OPENING_SSH },
    { "SSH-2.0-x", OPENING_MORE },
    { "SSH-2.0-x comment\n", OPENING_SSH },
    { "SSH-2.0-x / HTTP/1.1\r\n", OPENING_HTTP },
    { "SSH-1.5-x\r\n", OPENING_OTHER },
    { "SSH-2.0 / HTTP/1.1\r\n", OPENING_HTTP }, /* a method of this name: the HTTP reader judges it */
    { "GET", OPENING_MORE },
    { "GET / HTTP/1.1", OPENING_MORE },
    { "GET / HTTP/1.1\r\n", OPENING_HTTP },
    { "GET / HTTP/1.1\n", OPENING_HTTP },
    { "GET / HTTP/1.0\r\nHost: x\r\n\r\n", OPENING_HTTP },
    { "CONNECT x:1 HTTP/1.1\r\n", OPENING_HTTP },
    { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", OPENING_HTTP2 },
    { "GET /\r\n", OPENING_OTHER },             /* HTTP/0.9 */
    { "\r\nGET / HTTP/1.1\r\n", OPENING_OTHER },
    { "\nGET / HTTP/1.1\r\n", OPENING_OTHER },
    { " GET / HTTP/1.1\r\n", OPENING_OTHER },
    { "GET\t/ HTTP/1.1\r\n", OPENING_OTHER },
    { "EHLO name", OPENING_MORE },
    { "EHLO name\r\nGET / HTTP/1.1\r\n", OPENING_OTHER },
    { "PING\r\n", OPENING_OTHER },
    { "*1\r\n$4\r\nPING\r\n", OPENING_OTHER },
    { "abcdefghijklmnopqrstuvwxyzabcdefghi", OPENING_OTHER },
    { "\x80", OPENING_OTHER },
};
/* clang-format on */

TEST(the_first_bytes_say_the_protocol)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (opening_of(str_of(rows[i].text)) != rows[i].want)
            test_fail(__FILE__, __LINE__, "row %zu: %s", i, rows[i].text);
    CHECK_INT(opening_of((struct str){ "\0\0\0\x08\x04\xd2\x16\x2f", 8 }), OPENING_OTHER);
}

/* However the bytes arrive, a part of them is never of another protocol than the whole. */
TEST(parts_are_undecided_or_as_the_whole)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t n = 0; n < strlen(rows[i].text); n++) {
            enum opening got = opening_of((struct str){ rows[i].text, n });

            if (got != OPENING_MORE && got != rows[i].want)
                test_fail(__FILE__, __LINE__, "row %zu, %zu bytes", i, n);
        }
}

TEST(a_first_line_has_an_end)
{
    static char line[OPENING_LINE_MAX] = "GET ";
    static char ssh[255] = "SSH-2.0-";

    memset(line + 4, 'x', sizeof(line) - 4);
    CHECK_INT(opening_of((struct str){ line, sizeof(line) - 1 }), OPENING_MORE);
    CHECK_INT(opening_of((struct str){ line, sizeof(line) }), OPENING_OTHER);
    memset(ssh + 8, 'x', sizeof(ssh) - 8);
    CHECK_INT(opening_of((struct str){ ssh, sizeof(ssh) - 1 }), OPENING_MORE);
    CHECK_INT(opening_of((struct str){ ssh, sizeof(ssh) }), OPENING_OTHER);
}
