/* Questions that have an answer, and everything that has none. */
#include "egress/dns.h"

#include <stdio.h>
#include <string.h>

#include "base/test.h"
#include "egress/names.h"
#include "wire/egress.h"

static struct names names;
static unsigned asked;

static void begin(void)
{
    if (!names.kept)
        names_open(&names, kept_open(-1));
}

static void end(void)
{
    struct kept *kept = names.kept;

    names_free(&names);
    kept_close(kept);
    names = (struct names){ 0 };
}

static uint32_t name(void *ctx, const struct host *host)
{
    asked++;
    begin();
    return names_put(ctx, host);
}

/* A question as text: "name", its type and class. */
static size_t question(uint8_t *out, const char *text, unsigned type, unsigned class)
{
    static const uint8_t head[] = { 0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0 };
    size_t len = sizeof(head);

    memcpy(out, head, len);
    while (*text) {
        size_t label = strcspn(text, ".");

        out[len++] = (uint8_t)label;
        memcpy(out + len, text, label);
        len += label;
        text += label + (text[label] == '.');
    }
    out[len++] = 0;
    out[len++] = (uint8_t)(type >> 8);
    out[len++] = (uint8_t)type;
    out[len++] = (uint8_t)(class >> 8);
    out[len++] = (uint8_t) class;
    return len;
}

static unsigned rcode(const uint8_t *answer)
{
    return answer[3] & 15;
}

static uint32_t ask_a(const char *text)
{
    uint8_t ask[512], out[DNS_ANSWER_MAX];
    size_t len = question(ask, text, 1, 1), got = dns_answer(ask, len, name, &names, out);

    CHECK(got == len + 16 && rcode(out) == 0 && out[0] == 0xab && out[1] == 0xcd && out[7] == 1);
    CHECK(memcmp(ask + 12, out + 12, len - 12) == 0);
    const uint8_t *at = out + got - 4;
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

TEST(a_name_has_one_address_whatever_its_case)
{
    uint32_t first = ask_a("example.test");
    struct host host;

    CHECK((first & EGRESS_NET_MASK) == EGRESS_NET && first != EGRESS_SELF);
    CHECK(ask_a("EXAMPLE.Test") == first);
    CHECK(ask_a("other.test") != first);
    CHECK(names_get(&names, first, &host) && str_is(host_str(&host), "example.test"));
    CHECK(ask_a("atoll.internal") == EGRESS_SELF);
    CHECK(ask_a("localhost") == 0x7f000001 && ask_a("a.localhost") == 0x7f000001);
    CHECK(ask_a("notlocalhost") != 0x7f000001);
    end();
}

static void check_empty(const char *text, unsigned type, unsigned class, unsigned code)
{
    uint8_t ask[512], out[DNS_ANSWER_MAX];
    size_t len = question(ask, text, type, class), got;

    asked = 0;
    got = dns_answer(ask, len, name, &names, out);
    CHECK(got == len && rcode(out) == code && out[7] == 0 && asked == 0);
}

TEST(everything_but_an_address_is_empty)
{
    check_empty("example.test", 28, 1, 0);  /* AAAA */
    check_empty("example.test", 16, 1, 0);  /* TXT */
    check_empty("example.test", 255, 1, 0); /* ANY */
    check_empty("example.test", 1, 3, 4);   /* CHAOS */
    check_empty("_http._tcp.example.test", 33, 1, 3);
    check_empty("a_b.test", 1, 1, 3);
    check_empty("1.2.3.4", 1, 1, 3); /* an address is no name */
    check_empty("caf\xc3\xa9.test", 1, 1, 3);
    check_empty("", 1, 1, 3);
}

static size_t changed(size_t at, uint8_t value, size_t cut, uint8_t *out)
{
    uint8_t ask[512];
    size_t len = question(ask, "example.test", 1, 1);

    ask[at] = value;
    asked = 0;
    size_t got = dns_answer(ask, len - cut, name, &names, out);
    CHECK(asked == 0);
    return got;
}

TEST(what_is_no_question_is_refused)
{
    uint8_t out[DNS_ANSWER_MAX];

    CHECK(changed(2, 0x81, 0, out) == 0);                     /* an answer */
    CHECK(changed(0, 0, 30 - 11, out) == 0);                  /* half a head */
    CHECK(changed(2, 0x29, 0, out) == 12 && rcode(out) == 4); /* another opcode */
    CHECK(changed(5, 2, 0, out) == 12 && rcode(out) == 1);    /* two questions */
    CHECK(changed(5, 0, 0, out) == 12 && rcode(out) == 1);
    CHECK(changed(7, 1, 0, out) == 12 && rcode(out) == 1); /* an answer in it */
    CHECK(changed(9, 1, 0, out) == 12 && rcode(out) == 1);
    CHECK(changed(11, 2, 0, out) == 12 && rcode(out) == 1);
    CHECK(changed(12, 0xc0, 0, out) == 12 && rcode(out) == 1); /* compressed */
    CHECK(changed(12, 64, 0, out) == 12 && rcode(out) == 1);
    CHECK(changed(0, 0, 1, out) == 12 && rcode(out) == 1); /* cut off */
    CHECK(changed(0, 0, 5, out) == 12 && rcode(out) == 1);
}

TEST(a_dot_inside_a_label_is_no_dot)
{
    uint8_t ask[512], out[DNS_ANSWER_MAX];
    size_t len = question(ask, "aaabbb.test", 1, 1);

    ask[12 + 4] = '.';
    asked = 0;
    CHECK(dns_answer(ask, len, name, &names, out) == 12 && rcode(out) == 1 && asked == 0);
}

TEST(names_are_bounded_and_the_oldest_makes_room)
{
    struct host host, first;
    char text[32];

    begin();
    CHECK(host_parse_name(STR("first.test"), &first, NULL) == 0);
    uint32_t first_addr = names_put(&names, &first), second_addr = 0;
    for (unsigned i = 1; i < EGRESS_NAMES_MAX; i++) {
        snprintf(text, sizeof(text), "n%u.test", i);
        CHECK(host_parse_name(str_of(text), &host, NULL) == 0);
        uint32_t addr = names_put(&names, &host);
        second_addr = i == 1 ? addr : second_addr;
    }
    CHECK(names.count == EGRESS_NAMES_MAX && names_get(&names, first_addr, &host)); /* used */
    CHECK(host_parse_name(STR("one.more.test"), &host, NULL) == 0);
    uint32_t last = names_put(&names, &host);
    CHECK(names.count == EGRESS_NAMES_MAX && last != second_addr);
    CHECK(names_get(&names, first_addr, &host) && !names_get(&names, second_addr, &host));
    end();
}

static uint32_t put(const char *text)
{
    struct host host;

    CHECK(host_parse_name(str_of(text), &host, NULL) == 0);
    return names_put(&names, &host);
}

static bool stands_for(uint32_t addr, const char *text)
{
    struct host host;

    return names_get(&names, addr, &host) && str_is(host_str(&host), text);
}

/* The process dies: of all that it had, only what is kept is left. */
static void again(void)
{
    struct kept *kept = names.kept;

    names_free(&names);
    names_open(&names, kept);
}

TEST(names_are_found_again)
{
    begin();
    uint32_t one = put("one.test"), two = put("two.test");

    again();
    CHECK(names.count == 2 && stands_for(one, "one.test") && stands_for(two, "two.test"));
    CHECK(put("one.test") == one && put("three.test") != one && put("three.test") != two);
    end();
}

TEST(what_is_found_keeps_its_turn)
{
    char text[32];

    begin();
    uint32_t first = put("first.test"), second = put("second.test");
    for (unsigned i = 2; i < EGRESS_NAMES_MAX; i++) {
        snprintf(text, sizeof(text), "n%u.test", i);
        put(text);
    }
    CHECK(stands_for(first, "first.test")); /* used last */
    again();
    CHECK(names.count == EGRESS_NAMES_MAX);
    uint32_t more = put("one.more.test");
    CHECK(names.count == EGRESS_NAMES_MAX && more != second && !stands_for(second, "second.test"));
    CHECK(stands_for(first, "first.test") && stands_for(more, "one.more.test"));
    end();
}

/* Whatever was half written, or is none of ours, stands for nothing. */
TEST(what_cannot_be_is_not_found)
{
    begin();
    uint32_t good = put("good.test");
    uint32_t bad[6];
    for (unsigned i = 0; i < 6; i++) {
        char text[32];

        snprintf(text, sizeof(text), "bad%u.test", i);
        bad[i] = put(text);
    }
    struct kept_name *at = names.kept->names;
    at[1].addr = 0;                            /* killed before it was written */
    memset(at[2].text, 'x', sizeof(at->text)); /* no end */
    memcpy(at[3].text, "no name!", 9);
    memcpy(at[4].text, "127.0.0.1", 10);
    at[5].addr = EGRESS_SELF;
    at[6].addr = good; /* of another, used later: the first stays */
    again();
    CHECK(names.count == 1 && stands_for(good, "good.test"));
    for (unsigned i = 0; i < 6; i++)
        CHECK(!stands_for(bad[i], "x"));
    CHECK(!stands_for(EGRESS_SELF, "bad4.test"));
    names.kept->top = UINT32_MAX;
    again();
    CHECK(names.count == 1 && put("new.test") != 0);
    end();
}
