/* A secret goes to the host it is for, in headers alone, and does not come back. */
#include "egress/creds.h"

#include "base/hash.h"
#include "base/id.h"
#include "base/test.h"

#define SECRET_A "sk-live-0123456789"
#define SECRET_B "sk-live-0123456789-and-more" /* holds the other */
#define HELD_A INJECT_PLACEHOLDER_PREFIX "aaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HELD_B INJECT_PLACEHOLDER_PREFIX "bbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

#define CONTEXT_A STR("t\0A\0*.a.org\nplain.a.org:80")
#define CONTEXT_B STR("t\0B\0.a.org")

static struct seal_private mine;

static void drop(struct creds **creds)
{
    creds_free(*creds);
}
#define autocreds auto_with(drop)

static void put_sealed(struct buf *out, const char *value, struct str context)
{
    struct seal_public to;
    struct err err;

    CHECK_OK(seal_public_of(&mine, &to, &err), &err);
    CHECK_OK(seal_to(&to, context, str_of(value), out, &err), &err);
}

static int make(struct creds **out, struct err *err)
{
    static const struct inject_rule rules[] = {
        { STR_INIT("api.a.org * /v1/"), STR_INIT("Authorization"), STR_INIT("Bearer {secret:A}") },
        { STR_INIT("api.a.org"), STR_INIT("X-Other"), STR_INIT("{secret:B}") },
        { STR_INIT("api.a.org"), STR_INIT("x-other"), STR_INIT("second {secret:A}") },
        { STR_INIT("env.a.org"), STR_INIT(""), STR_INIT("{secret:A}") },
        { STR_INIT("env.a.org"), STR_INIT(""), STR_INIT("{secret:B}") },
        { STR_INIT("git.a.org"), STR_INIT("Authorization"), STR_INIT("Basic {basic:me:A}") },
        { STR_INIT("plain.a.org:80"), STR_INIT("X-Key"), STR_INIT("{secret:A}") },
    };
    autobuf struct buf a = { 0 }, b = { 0 }, bytes = { 0 };

    random_bytes(&mine, sizeof(mine));
    put_sealed(&a, SECRET_A, CONTEXT_A);
    put_sealed(&b, SECRET_B, CONTEXT_B);
    const struct inject_secret secrets[] = {
        { STR("A"), CONTEXT_A, STR(HELD_A), buf_view(&a) },
        { STR("B"), CONTEXT_B, STR(HELD_B), buf_view(&b) },
    };
    CHECK_OK(inject_compile(rules, ARRAY_LEN(rules), secrets, 2, &bytes, err), err);
    CHECK(!memmem(bytes.data, bytes.len, "0123456789", 10));
    return creds_new(out, &mine, buf_view(&bytes), err);
}

static struct creds_plan plan_for(const struct creds *creds, const char *name, uint16_t port,
                                  bool tls, const char *path)
{
    struct host host;
    struct err err;

    CHECK_OK(host_parse(str_of(name), &host, &err), &err);
    return creds_plan(creds,
                      &(struct inject_question){ &host, port, tls, METHOD_GET, str_of(path) });
}

TEST(a_header_is_set_where_the_rule_says_and_nowhere_else)
{
    autocreds struct creds *creds = NULL;
    autobuf struct buf out = { 0 };
    struct err err;

    CHECK_OK(make(&creds, &err), &err);
    struct creds_plan plan = plan_for(creds, "api.a.org", 443, true, "/v1/x");
    creds_add(&plan, &out);
    CHECK_STR(buf_cstr(&out), "Authorization: Bearer " SECRET_A "\r\nX-Other: " SECRET_B "\r\n");
    CHECK_INT(creds_header(&plan, STR("authorization"), STR("Bearer mine"), &out), CREDS_DROP);
    CHECK_INT(creds_header(&plan, STR("accept"), STR("*/*"), &out), CREDS_KEEP);

    static const struct {
        const char *host;
        uint16_t port;
        bool tls;
        const char *path;
    } none[] = {
        { "a.org", 443, true, "/v1/x" },          { "api.a.org", 80, false, "/v1/x" },
        { "api.a.org", 443, false, "/v1/x" },     { "b.org", 443, true, "/v1/" },
        { "api.a.org.evil.org", 443, true, "/" }, { "plain.a.org", 443, true, "/" },
    };
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        plan = plan_for(creds, none[i].host, none[i].port, none[i].tls, none[i].path);
        buf_clear(&out);
        creds_add(&plan, &out);
        CHECK_INT(out.len, 0);
        CHECK(!creds_any(&plan));
        CHECK_INT(creds_header(&plan, STR("x-key"), STR(HELD_A), &out), CREDS_KEEP);
        CHECK_INT(out.len, 0);
    }
    plan = plan_for(NULL, "api.a.org", 443, true, "/v1/x");
    CHECK(!creds_any(&plan));
}

TEST(a_placeholder_becomes_the_secret_towards_its_host_alone)
{
    static const struct {
        const char *host, *name, *value, *want; /* NULL: kept */
    } rows[] = {
        { "env.a.org", "x-key", HELD_A, SECRET_A },
        { "env.a.org", "authorization", "Bearer " HELD_A, "Bearer " SECRET_A },
        { "env.a.org", "x", HELD_A HELD_A, SECRET_A SECRET_A },
        { "env.a.org", "x", "a " HELD_B " b " HELD_A " c", "a " SECRET_B " b " SECRET_A " c" },
        { "env.a.org", "x", INJECT_PLACEHOLDER_PREFIX "ccccccccccccccccccccccccccccc", NULL },
        { "env.a.org", "x", "", NULL },
        { "api.a.org", "x-key", HELD_A, NULL }, /* its rules set headers, they replace nothing */
        { "evil.org", "x-key", HELD_A, NULL },
    };
    autocreds struct creds *creds = NULL;
    struct err err;

    CHECK_OK(make(&creds, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct creds_plan plan = plan_for(creds, rows[i].host, 443, true, "/");
        autobuf struct buf out = { 0 };
        enum creds_fate fate =
            creds_header(&plan, str_of(rows[i].name), str_of(rows[i].value), &out);

        CHECK_INT(fate, rows[i].want ? CREDS_CHANGED : CREDS_KEEP);
        CHECK_STR(buf_cstr(&out), rows[i].want ? rows[i].want : "");
    }
}

TEST(a_placeholder_as_a_password_becomes_the_secret)
{
    autobuf struct buf sent = { 0 }, out = { 0 }, want = { 0 };
    autocreds struct creds *creds = NULL;
    struct err err;

    CHECK_OK(make(&creds, &err), &err);
    struct creds_plan plan = plan_for(creds, "env.a.org", 443, true, "/");
    buf_puts(&sent, "Basic ");
    base64_put(&sent, "user:" HELD_A, sizeof("user:" HELD_A) - 1);
    buf_puts(&want, "Basic ");
    base64_put(&want, "user:" SECRET_A, sizeof("user:" SECRET_A) - 1);
    CHECK_INT(creds_header(&plan, STR("Authorization"), buf_view(&sent), &out), CREDS_CHANGED);
    CHECK(str_eq(buf_view(&out), buf_view(&want)));
    buf_clear(&out);
    CHECK_INT(creds_header(&plan, STR("x-auth"), buf_view(&sent), &out), CREDS_KEEP);
    CHECK_INT(creds_header(&plan, STR("authorization"), STR("Basic !!"), &out), CREDS_KEEP);
    CHECK_INT(out.len, 0);
}

TEST(a_reply_that_echoes_shows_stars)
{
    autobuf struct buf basic = { 0 };
    autocreds struct creds *creds = NULL;
    char text[] = "you sent " SECRET_B " and " SECRET_A ", " SECRET_A "!";
    struct err err;

    CHECK_OK(make(&creds, &err), &err);
    creds_hide(creds, text, sizeof(text) - 1);
    CHECK_STR(text, "you sent *************************** and ******************, "
                    "******************!");
    base64_put(&basic, "me:" SECRET_A, sizeof("me:" SECRET_A) - 1);
    creds_hide(creds, basic.data, basic.len);
    for (size_t i = 0; i < basic.len; i++)
        CHECK_INT(basic.data[i], '*');
    creds_hide(creds, NULL, 0);
    creds_hide(NULL, text, sizeof(text) - 1);
}

/* However a body is cut into pieces, what comes out is what hiding it whole gives. */
TEST(a_body_in_pieces_shows_no_part_of_a_secret)
{
    static const char body[] = "x" SECRET_A "sk-live-0" SECRET_B "sk-live-0123456789-and-" SECRET_A
                               "sk-sk-live-" SECRET_B SECRET_B "end sk-live-01234567";
    autocreds struct creds *creds = NULL;
    char whole[sizeof(body)];
    struct err err;

    CHECK_OK(make(&creds, &err), &err);
    memcpy(whole, body, sizeof(body));
    creds_hide(creds, whole, sizeof(body) - 1);
    CHECK(!strstr(whole, SECRET_A) && strstr(whole, "end sk-live-01234567"));
    for (int round = 0; round < 2000; round++) {
        autobuf struct buf held = { 0 }, got = { 0 };

        for (size_t at = 0; at < sizeof(body) - 1;) {
            size_t some = 1 + (size_t)test_rand(30), n = MIN(some, sizeof(body) - 1 - at);

            buf_append(&held, body + at, n);
            at += n;
            size_t pass = creds_scrub(creds, held.data, held.len, at == sizeof(body) - 1);
            CHECK(held.len - pass < sizeof(SECRET_B));
            buf_append(&got, held.data, pass);
            buf_consume(&held, pass);
        }
        CHECK_INT(held.len, 0);
        CHECK_STR(buf_cstr(&got), whole);
    }
}

TEST(a_request_on_its_way_keeps_what_it_was_made_with)
{
    autocreds struct creds *held = NULL;
    struct creds *creds;
    char text[] = "echo " SECRET_A;
    struct err err;

    CHECK_OK(make(&creds, &err), &err);
    held = creds_ref(creds);
    creds_free(creds); /* the sandbox's own: its rules changed */
    creds_hide(held, text, sizeof(text) - 1);
    CHECK_STR(text, "echo ******************");
    CHECK(!creds_ref(NULL));
}

TEST(with_another_key_there_are_none)
{
    static const struct inject_rule rule = { STR_INIT("a.org"), STR_INIT("A"),
                                             STR_INIT("{secret:A}") };
    autobuf struct buf a = { 0 }, bytes = { 0 };
    autocreds struct creds *creds = NULL;
    struct seal_private other;
    struct err err;

    random_bytes(&mine, sizeof(mine));
    random_bytes(&other, sizeof(other));
    put_sealed(&a, SECRET_A, STR("t\0A\0a.org"));
    struct inject_secret secret = { STR("A"), STR("t\0A\0a.org"), STR(HELD_A), buf_view(&a) };
    CHECK_OK(inject_compile(&rule, 1, &secret, 1, &bytes, &err), &err);
    CHECK(creds_new(&creds, &other, buf_view(&bytes), &err) < 0);
    CHECK(!creds && !strstr(err.msg, SECRET_A));
    secret.context = STR("u\0A\0a.org"); /* another tenant's row */
    buf_clear(&bytes);
    CHECK_OK(inject_compile(&rule, 1, &secret, 1, &bytes, &err), &err);
    CHECK(creds_new(&creds, &mine, buf_view(&bytes), &err) < 0);
}

/* Sealed by somebody who did not look: it would end the header and begin another. */
TEST(a_value_that_is_no_line_is_refused_when_it_is_opened)
{
    static const struct inject_rule rule = { STR_INIT("a.org"), STR_INIT("A"),
                                             STR_INIT("{secret:A}") };
    autobuf struct buf a = { 0 }, bytes = { 0 };
    autocreds struct creds *creds = NULL;
    struct err err;

    random_bytes(&mine, sizeof(mine));
    put_sealed(&a, "value\r\nHost: evil.org", STR("t\0A\0a.org"));
    struct inject_secret secret = { STR("A"), STR("t\0A\0a.org"), STR(HELD_A), buf_view(&a) };
    CHECK_OK(inject_compile(&rule, 1, &secret, 1, &bytes, &err), &err);
    CHECK(creds_new(&creds, &mine, buf_view(&bytes), &err) < 0);
    CHECK(!strstr(err.msg, "evil"));
}

/* The rule says every name beneath it, the secret was put for one: no rule widens that. */
TEST(a_rule_cannot_send_a_secret_where_it_is_not_for)
{
    static const struct inject_rule rules[] = {
        { STR_INIT(".org"), STR_INIT("A"), STR_INIT("{secret:A}") },
        { STR_INIT("evil.org"), STR_INIT(""), STR_INIT("{secret:A}") },
    };
    autobuf struct buf a = { 0 }, bytes = { 0 }, out = { 0 };
    autocreds struct creds *creds = NULL;
    struct err err;

    random_bytes(&mine, sizeof(mine));
    put_sealed(&a, SECRET_A, STR("t\0A\0api.good.org POST"));
    struct inject_secret secret = { STR("A"), STR("t\0A\0api.good.org POST"), STR(HELD_A),
                                    buf_view(&a) };
    CHECK_OK(inject_compile(rules, 2, &secret, 1, &bytes, &err), &err);
    CHECK_OK(creds_new(&creds, &mine, buf_view(&bytes), &err), &err);
    static const char *const hosts[] = { "evil.org", "api.good.org", "good.org" };
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        struct creds_plan plan = plan_for(creds, hosts[i], 443, true, "/"); /* GET */

        CHECK(!creds_any(&plan));
        CHECK_INT(creds_header(&plan, STR("x"), STR(HELD_A), &out), CREDS_KEEP);
    }
    /* Nor does who hands it over: the hosts are part of what it is sealed with. */
    struct creds *wider = NULL;
    secret.context = STR("t\0A\0evil.org");
    buf_clear(&bytes);
    CHECK_OK(inject_compile(rules, 2, &secret, 1, &bytes, &err), &err);
    CHECK(creds_new(&wider, &mine, buf_view(&bytes), &err) < 0);
}
