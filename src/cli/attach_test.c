/* attach: the keys that detach, as people write them. */
#include "cli/attach.h"

#include <stdio.h>

#include "base/test.h"

static const char *keys_of(const char *text)
{
    static char shown[64];
    char keys[4];
    size_t count;

    if (attach_keys(text, keys, sizeof(keys), &count) < 0)
        return "no";
    shown[0] = 0;
    for (size_t i = 0; i < count; i++)
        snprintf(shown + 2 * i, sizeof(shown) - 2 * i, "%02x", (unsigned char)keys[i]);
    return shown;
}

TEST(keys_are_written_as_people_say_them)
{
    CHECK_STR(keys_of(DETACH_KEYS), "1011");
    CHECK_STR(keys_of("ctrl-a,d"), "0164");
    CHECK_STR(keys_of("ctrl-]"), "1d");
    CHECK_STR(keys_of("ctrl-@"), "00");
    CHECK_STR(keys_of("ctrl-A"), "01");
    CHECK_STR(keys_of(""), "");
    CHECK_STR(keys_of("a,b,c,d"), "61626364");
    CHECK_STR(keys_of("a,b,c,d,e"), "no");
    CHECK_STR(keys_of("ctrl-"), "no");
    CHECK_STR(keys_of("ctrl-1"), "no");
    CHECK_STR(keys_of("control-a"), "no");
    CHECK_STR(keys_of("a,,b"), "no");
}
