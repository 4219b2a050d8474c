/* Tables of good and bad spellings, and random bytes against a naive decoder. */
#include "http/url.h"

#include <stdio.h>

#include "base/test.h"

TEST(decoding)
{
    static const struct {
        const char *text;
        bool plus;
        const char *want; /* NULL: refused */
    } cases[] = {
        { "", false, "" },
        { "abc", false, "abc" },
        { "a%20b", false, "a b" },
        { "a+b", false, "a+b" },
        { "a+b", true, "a b" },
        { "%2B+", true, "+ " },
        { "%c3%A9", false, "\xc3\xa9" },
        { "%", false, NULL },
        { "%4", false, NULL },
        { "a%4", false, NULL },
        { "%g0", false, NULL },
        { "%0g", false, NULL },
        { "%00", false, NULL },
        { "%%41", false, NULL },
        { "%25", false, "%" },
        { "%2541", false, "%41" },
        { "% 1", false, NULL },
        { "%+1", false, NULL },
    };
    autoarena struct arena arena = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str out = STR("untouched");
        bool good = url_decode(&arena, str_of(cases[i].text), cases[i].plus, &out);

        if (good != (cases[i].want != NULL) ||
            !str_is(out, cases[i].want ? cases[i].want : "untouched"))
            test_fail(__FILE__, __LINE__, "\"%s\" gave \"%.*s\"", cases[i].text, STR_FMT(out));
    }
    struct str out;
    CHECK(!url_decode(&arena, STR("a\0b"), false, &out));
}

/* Whatever is escaped, and in whichever case of digits, the text comes back. */
TEST(escaping_everything_and_decoding_it_gives_the_text)
{
    for (int round = 0; round < 2000; round++) {
        autoarena struct arena arena = { 0 };
        char text[40], escaped[3 * sizeof(text) + 1];
        size_t len = test_rand(sizeof(text)), at = 0;
        struct str out;

        for (size_t i = 0; i < len; i++) {
            text[i] = (char)(1 + test_rand(255));
            bool raw = text[i] != '%' && text[i] != '+' && test_rand(2);
            if (raw)
                escaped[at++] = text[i];
            else
                at += (size_t)snprintf(escaped + at, 4, test_rand(2) ? "%%%02x" : "%%%02X",
                                       (unsigned char)text[i]);
        }
        CHECK(url_decode(&arena, (struct str){ escaped, at }, test_rand(2), &out));
        CHECK(str_eq(out, (struct str){ text, len }));
    }
}

TEST(paths)
{
    static const char *good[] = { "/",    "/a",       "/a/b",   "/a/",    "/...",
                                  "/a.b", "/%41/..a", "/a%20b", "/a;b=c", "/.a" };
    static const char *bad[] = { "",        "a",      "//",      "/a//b",   "/.",    "/..",
                                 "/a/../b", "/a/./b", "/%2e",    "/%2E%2e", "/.%2e", "/a%2fb",
                                 "/a%2Fb",  "/a\\b",  "/a%5cb",  "/a%00b",  "/%",    "/a/%4",
                                 "/a//",    "*",      "/a/.%2E/" };

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        if (!url_path_ok(str_of(good[i])))
            test_fail(__FILE__, __LINE__, "\"%s\" is refused", good[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (url_path_ok(str_of(bad[i])))
            test_fail(__FILE__, __LINE__, "\"%s\" is accepted", bad[i]);
}

TEST(paths_with_slashes_in_names)
{
    static const char *const good[] = { "/a%2fb", "/a%2Fb%2Fc", "/a/b%2Fc", "/a" };
    static const char *const bad[] = { "/%2Fa",       "/a%2F",    "/a%2F%2Fb", "/a%2F..%2Fb",
                                       "/%2e%2e%2Fa", "/a%2F%2e", "/a%5cb",    "/..%2F..%2Fetc" };

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        CHECK(url_path_ok_slashes(str_of(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (url_path_ok_slashes(str_of(bad[i])))
            test_fail(__FILE__, __LINE__, "\"%s\" is accepted", bad[i]);
}

TEST(queries)
{
    struct str rest = STR("a=1&&b&=x&c=2=3&"), key, value;

    CHECK(url_query_next(&rest, &key, &value) && str_is(key, "a") && str_is(value, "1"));
    CHECK(url_query_next(&rest, &key, &value) && str_is(key, "b") && str_is(value, ""));
    CHECK(url_query_next(&rest, &key, &value) && str_is(key, "") && str_is(value, "x"));
    CHECK(url_query_next(&rest, &key, &value) && str_is(key, "c") && str_is(value, "2=3"));
    CHECK(!url_query_next(&rest, &key, &value));
}

TEST(hosts)
{
    static const char *good[] = {
        "a",          "localhost:8080", "example.org", "127.0.0.1:1",
        "[::1]",      "[::1]:65535",    "a-b.c9",      "3000-sb1.localhost:80",
        "xn--a.org",  "1a.b",           "0.0.0.0",     "255.255.255.255:9",
        "1.2.3.4.5a", "A.ORG"
    };
    static const char *bad[] = { "",         ":80",       "a:",        "a:65536",
                                 "a:+1",     "a:123456",  "a b",       "a/b",
                                 "a@b",      "-a",        "a-",        "a..b",
                                 ".a",       "a.",        "[::1",      "[::1]x",
                                 "[::1]:",   "[1.2.3.4]", "256.0.0.1", "1.2.3.256",
                                 "01.2.3.4", "1.2.3.04",  "1.2.3.4.5", "1.2.3.4444",
                                 "1",        "00.0.0.0",  "1.2.3",     "a.1",
                                 "a_b",      "a%41",      "::1",       "[fe80::1%eth0]",
                                 "a,b",      "a:80:80",   "\xc3\xa9",  "[]" };

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        if (!url_host_ok(str_of(good[i])))
            test_fail(__FILE__, __LINE__, "\"%s\" is refused", good[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (url_host_ok(str_of(bad[i])))
            test_fail(__FILE__, __LINE__, "\"%s\" is accepted", bad[i]);
    CHECK(!url_host_ok(STR("a\0b")) && !url_host_ok(STR("[::1\0]")));
}

TEST(host_lengths)
{
    char name[300];

    memset(name, 'a', sizeof(name));
    CHECK(url_host_ok((struct str){ name, 63 }));
    CHECK(!url_host_ok((struct str){ name, 64 }));
    for (size_t i = 50; i < sizeof(name); i += 50)
        name[i] = '.';
    CHECK(url_host_ok((struct str){ name, 253 }));
    CHECK(!url_host_ok((struct str){ name, 254 }));
}
