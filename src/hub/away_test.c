/* What leads away and what does not, spelling by spelling. */
#include "hub/away.h"

#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/test.h"

static const char *const allow[] = { "localhost", "127.0.0.1", "::1", "172.28.0.0/16", NULL };
static const char *const schemes[] = { "http", "https", NULL };

static bool hit(const char *text)
{
    static struct away *filter;
    struct err err;

    if (!filter)
        CHECK_OK(away_new(&filter, allow, schemes, &err), &err);
    return away_hit(filter, str_of(text));
}

TEST(away_stops_what_leads_elsewhere)
{
    static const char *const texts[] = {
        "https://google.com",
        "HTTPS://EVIL.COM",
        "http://8.8.8.8",
        "http://10.0.0.1/x",
        "http://192.168.1.5",
        "http://172.29.0.1",
        "http://127.0.0.2",
        "http://0.0.0.0",
        "http://user@127.0.0.1/",
        "http://a@evil.com",
        "http://127.0.0.1/?u=http://evil.com",
        "http://xn--e1afmkfd.com",
        /* what a search for patterns lets through */
        "http://localhost.evil.com",
        "http://127.0.0.1.evil.com",
        "http://172.28.evil.com",
        "http://[2001:db8::1]/",
        "http://\xc3\xa9.com",
        "https://x.toolongtld",
        "http://evil%2ecom",
        /* and what browsers understand besides */
        "http:/evil.com",
        "http:\\\\evil.com",
        "http:evil.com",
        "http:////evil.com",
        "ht\ntp://evil.com",
        "http\t://evil.com",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://a!b@evil.com",
        "http://localhost).evil.com",
        "http://[::1].evil.com",
        "http://[::1]x/",
        "http://u:8@evil.com",
        "http://[::ffff:8.8.8.8]/",
        "http://localhost:80@evil.com",
        "http://localhost\\@evil.com",
        "http://\xe3\x80\x82"
        "evil.com",
        "http://evil%00.com",
        "http://evil%2",
        "http://[evil",
        "http://localhost:80a.evil.com",
        "xhttp://evil.com",
        "see (http://evil.com).",
        "http://%6cocalhost.evil.com",
        "http://172.28.0.0.1/",
        "http://172.28.0/",
    };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (!hit(texts[i]))
            test_fail(__FILE__, __LINE__, "not seen: %s", texts[i]);
}

TEST(away_lets_local_ones_and_plain_text_through)
{
    static const char *const texts[] = {
        "",
        "172.28.0.10:8080",
        "localhost:3000",
        "http://127.0.0.1/api",
        "http://localhost:1/",
        "http://172.28.0.10:8080/ping",
        "http://hub:8080/ping",
        "http://[::1]:80/",
        "http://LOCALHOST",
        "http://localhost./",
        "(see http://localhost)",
        "http://localhost, then",
        "http://localhost.",
        "evil.com",
        "www.evil.com",
        "ftp://evil.com",
        "ws://evil.com",
        "hxxp://evil.com",
        "http://",
        "http:",
        "the http: scheme",
        "http:8080",
        "https",
        "http://127.0.0.1:8080/a?b#c",
        "http://%6cocalhost/",
        "http://172.28.255.255",
        "say \"http://hub\"",
    };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (hit(texts[i]))
            test_fail(__FILE__, __LINE__, "stopped: %s", texts[i]);
}

/* As large as a file may be, and made to be read again and again: it has to come to an end. */
TEST(away_reads_every_byte_a_few_times)
{
    static const char *const parts[] = {
        "\n", "h\n", "http:", "http:a", "http:/", "http:a\n", "/"
    };
    struct away *filter = NULL;
    struct err err;

    CHECK_OK(away_new(&filter, allow, schemes, &err), &err);
    char *text = xmalloc(HUB_FILE_MAX);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        size_t len = strlen(parts[i]);

        for (size_t at = 0; at < HUB_FILE_MAX; at++)
            text[at] = parts[i][at % len];
        bool far = away_hit(filter, (struct str){ text, HUB_FILE_MAX });
        CHECK(far == (strcmp(parts[i], "http:") == 0 || strcmp(parts[i], "http:a") == 0));
    }
    free(text);
    away_free(filter);
}

TEST(away_does_not_trust_what_is_too_long_to_be_a_host)
{
    char text[600];
    struct str rest = { text, 0 };
    struct away *filter = NULL;
    struct err err;

    CHECK_OK(away_new(&filter, allow, schemes, &err), &err);
    memcpy(text, "http:", 5);
    memset(text + 5, 'a', sizeof(text) - 5);
    rest.n = 5 + 512;
    CHECK(!away_hit(filter, rest));
    rest.n++;
    CHECK(away_hit(filter, rest));
    away_free(filter);
}

TEST(away_refuses_settings_that_mean_nothing)
{
    static const char *const bad[] = { "a b", "10.0.0.0/33", "10.0.0.0/", "host/8", "::1/129", "" };
    struct away *filter = NULL;
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const char *const list[] = { bad[i], NULL };

        CHECK(away_new(&filter, list, schemes, &err) < 0 && !filter);
    }
    const char *const none[] = { NULL }, *const odd[] = { "ht tp", NULL };
    CHECK(away_new(&filter, allow, odd, &err) < 0);
    CHECK_OK(away_new(&filter, none, none, &err), &err);
    CHECK(!away_hit(filter, STR("http://evil.com")));
    away_free(filter);
}
