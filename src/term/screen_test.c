/* The screen: one test for each kind of sequence, and properties over random ones. */
#include "term/screen.h"

#include "base/test.h"

static void feed(struct screen *screen, const char *text)
{
    screen_feed(screen, str_of(text));
}

/* Fed to a screen of 4 rows and 10 columns, it shows these rows. */
static void shows(const char *bytes, const char *want)
{
    autoscreen struct screen *screen = screen_new(4, 10, 100);
    autobuf struct buf text = { 0 };

    feed(screen, bytes);
    screen_text(screen, &text);
    while (text.len && text.data[text.len - 1] == '\n')
        text.len--;
    CHECK_STR(buf_cstr(&text), want);
}

TEST(text_goes_where_a_terminal_puts_it)
{
    shows("hello", "hello");
    shows("one\r\ntwo", "one\ntwo");
    shows("one\ntwo", "one\n   two");
    shows("abc\rX", "Xbc");
    shows("abc\b\bX", "aXc");
    shows("a\tb", "a       b");
    shows("0123456789", "0123456789");
    shows("0123456789a", "0123456789\na");
    shows("0123456789\r\na", "0123456789\na");
    shows("1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5");
}
