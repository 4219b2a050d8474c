/* What is a rule, where it holds, and bytes that come back the same or are refused. */
#include "policy/inject.h"

#include "base/mem.h"
#include "base/test.h"

#define PLACEHOLDER INJECT_PLACEHOLDER_PREFIX "0123456789abcdef0123456789abc"

static struct inject_rule rule_of(const char *match, const char *header, const char *value)
{
    return (struct inject_rule){ str_of(match), str_of(header), str_of(value) };
}

static const struct inject_secret key_secret = { STR_INIT("KEY"),
                                                 STR_INIT("t\0KEY\0a.org\n*.b.org"),
                                                 STR_INIT(PLACEHOLDER), STR_INIT("sealed bytes") };

TEST(rules_that_are_rules)
{
    static const char *const rows[][3] = {
        { "api.example.org", "Authorization", "Bearer {secret:KEY}" },
        { "*.example.org:8443 GET,POST /v1/", "X-Api-Key", "{secret:a.b-c_1}" },
        { ".example.org:*", "Authorization", "Basic {basic:x-access-token:KEY}" },
        { "example.org", "", "{secret:KEY}" },
        { "example.org", "Cookie", "a=b; session={secret:KEY}; c=d" },
    };
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct inject_rule rule = rule_of(rows[i][0], rows[i][1], rows[i][2]);

        CHECK_OK(inject_rule_check(&rule, &err), &err);
    }
}

TEST(rules_that_are_none)
{
    static const char *const rows[][4] = {
        { "", "A", "{secret:K}", "match" },
        { "10.0.0.1", "A", "{secret:K}", "match" },
        { "203.0.113.0/24:443", "A", "{secret:K}", "match" },
        { "a b c d", "A", "{secret:K}", "match" },
        { "a.org", "A B", "{secret:K}", "header" },
        { "a.org", "A:", "{secret:K}", "header" },
        { "a.org", "A\r\nB", "{secret:K}", "header" },
        { "a.org", "hOsT", "{secret:K}", "header" },
        { "a.org", "Content-Length", "{secret:K}", "header" },
        { "a.org", "Transfer-Encoding", "{secret:K}", "header" },
        { "a.org", "Connection", "{secret:K}", "header" },
        { "a.org", "Proxy-Authorization", "{secret:K}", "header" },
        { "a.org", "A", "", "value" },
        { "a.org", "A", "no secret", "value" },
        { "a.org", "A", "{secret:K} {secret:L}", "value" },
        { "a.org", "A", "{secret:}", "value" },
        { "a.org", "A", "{secret:-K}", "value" },
        { "a.org", "A", "{secret:K", "value" },
        { "a.org", "A", "}{secret:K}", "value" },
        { "a.org", "A", "{other:K}", "value" },
        { "a.org", "A", "{basic:K}", "value" },
        { "a.org", "A", "{basic:a b:K}", "value" },
        { "a.org", "A", "x {secret:K}\r\nB: c", "value" },
        { "a.org", "A", " {secret:K}", "value" },
        { "a.org", "A", "\x01{secret:K}", "value" },
        { "a.org", "", "Bearer {secret:K}", "value" },
        { "a.org", "", "{basic:u:K}", "value" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct inject_rule rule = rule_of(rows[i][0], rows[i][1], rows[i][2]);
        struct err err = { 0 };

        if (inject_rule_check(&rule, &err) == 0)
            test_fail(__FILE__, __LINE__, "row %zu is taken", i);
        CHECK_INT(err.code, ERR_INVALID);
        CHECK(str_starts(str_of(err.msg), str_of(rows[i][3])));
    }
}

TEST(limits_of_a_rule_and_of_a_value)
{
    char header[INJECT_HEADER_MAX + 2] = "", value[INJECT_TEMPLATE_MAX + 2] = "";
    autofree char *secret = xmalloc(INJECT_VALUE_MAX + 1);
    struct err err;

    memset(header, 'a', INJECT_HEADER_MAX);
    struct inject_rule rule = rule_of("a.org", header, "{secret:K}");
    CHECK_OK(inject_rule_check(&rule, &err), &err);
    header[INJECT_HEADER_MAX] = 'a';
    rule.header = str_of(header);
    CHECK(inject_rule_check(&rule, &err) < 0);

    memset(value, 'a', INJECT_TEMPLATE_MAX);
    memcpy(value, "{secret:K}", 10);
    rule = rule_of("a.org", "A", value);
    CHECK_OK(inject_rule_check(&rule, &err), &err);
    value[INJECT_TEMPLATE_MAX] = 'a';
    rule.value = str_of(value);
    CHECK(inject_rule_check(&rule, &err) < 0);

    memset(secret, 's', INJECT_VALUE_MAX + 1);
    CHECK_OK(inject_value_check((struct str){ secret, INJECT_VALUE_MIN }, &err), &err);
    CHECK_OK(inject_value_check((struct str){ secret, INJECT_VALUE_MAX }, &err), &err);
    CHECK(inject_value_check((struct str){ secret, INJECT_VALUE_MIN - 1 }, &err) < 0);
    CHECK(inject_value_check((struct str){ secret, INJECT_VALUE_MAX + 1 }, &err) < 0);
    static const char *const bad[] = { "two\nlines of it", "a\rcarriage return",  " leading one",
                                       "trailing one ",    "caf\xc3\xa9 au lait", "tab\tinside" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK(inject_value_check(str_of(bad[i]), &err) < 0);
        CHECK(!strstr(err.msg, bad[i]));
    }
    CHECK(inject_value_check(STR("with\0a NUL in it"), &err) < 0);
}

TEST(where_a_rule_holds)
{
    static const struct {
        const char *match, *host;
        uint16_t port;
        bool tls;
        const char *method, *path;
        bool want;
    } rows[] = {
        { "api.a.org", "api.a.org", 443, true, "GET", "/", true },
        { "api.a.org", "api.a.org", 443, false, "GET", "/", false },
        { "api.a.org", "api.a.org", 80, false, "GET", "/", false },
        { "api.a.org", "api.a.org", 8443, true, "GET", "/", false },
        { "api.a.org", "a.org", 443, true, "GET", "/", false },
        { "api.a.org", "x.api.a.org", 443, true, "GET", "/", false },
        { "api.a.org", "xapi.a.org", 443, true, "GET", "/", false },
        { "api.a.org:80", "api.a.org", 80, false, "GET", "/", true },
        { "api.a.org:80", "api.a.org", 443, true, "GET", "/", false },
        { "api.a.org:*", "api.a.org", 8443, true, "GET", "/", true },
        { "api.a.org:*", "api.a.org", 8080, false, "GET", "/", false },
        { "*.a.org", "api.a.org", 443, true, "GET", "/", true },
        { "*.a.org", "a.org", 443, true, "GET", "/", false },
        { "*.a.org", "x.b.org", 443, true, "GET", "/", false },
        { "*.a.org", "evila.org", 443, true, "GET", "/", false },
        { ".a.org", "a.org", 443, true, "GET", "/", true },
        { ".a.org", "b.a.org", 443, true, "GET", "/", true },
        { "a.org GET", "a.org", 443, true, "GET", "/", true },
        { "a.org GET", "a.org", 443, true, "POST", "/", false },
        { "a.org GET", "a.org", 443, true, "TRACE", "/", false },
        { "a.org", "a.org", 443, true, "TRACE", "/", true },
        { "a.org * /v1/", "a.org", 443, true, "GET", "/v1/x?y", true },
        { "a.org * /v1/", "a.org", 443, true, "GET", "/v2/x", false },
        { "a.org * /v1/", "a.org", 443, true, "GET", "/v1/../v2", false },
        { "a.org * /v1/", "a.org", 443, true, "GET", "/v1/%2e%2e/v2", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct rule match;
        struct host host;
        struct err err;

        CHECK_OK(rule_parse(str_of(rows[i].match), &match, &err), &err);
        CHECK_OK(host_parse(str_of(rows[i].host), &host, &err), &err);
        struct inject_question question = { &host, rows[i].port, rows[i].tls,
                                            rule_method(str_of(rows[i].method)),
                                            str_of(rows[i].path) };
        if (inject_meets(&match, &question) != rows[i].want)
            test_fail(__FILE__, __LINE__, "row %zu: %s, %s", i, rows[i].match, rows[i].host);
    }
}

TEST(bytes_come_back_and_nothing_else_is_taken)
{
    const struct inject_rule rules[] = {
        rule_of("a.org GET /x/", "Authorization", "Bearer {secret:KEY}"),
        rule_of("b.org", "", "{secret:KEY}"),
    };
    autofree struct inject_set *set = xnew(struct inject_set);
    autobuf struct buf bytes = { 0 };
    struct err err;

    CHECK_OK(inject_compile(rules, 2, &key_secret, 1, &bytes, &err), &err);
    CHECK_OK(inject_parse(buf_view(&bytes), set, &err), &err);
    CHECK_INT(set->rule_count, 2);
    CHECK_INT(set->secret_count, 1);
    CHECK(str_eq(set->rules[0].value, rules[0].value) && set->rules[1].header.n == 0);
    CHECK(str_eq(set->secrets[0].sealed, key_secret.sealed));
    for (size_t i = 0; i < bytes.len; i++)
        CHECK(inject_parse((struct str){ bytes.data, i }, set, &err) < 0);
    buf_putc(&bytes, 0);
    CHECK(inject_parse(buf_view(&bytes), set, &err) < 0);
    CHECK_INT(set->rule_count, 0);

    const struct inject_rule other = rule_of("a.org", "A", "{secret:OTHER}");
    CHECK(inject_compile(&other, 1, &key_secret, 1, &bytes, &err) < 0);
    CHECK(strstr(err.msg, "OTHER"));
}

/* Whatever one changed byte does, it is refused or means rules that are rules. */
TEST(changed_bytes_are_refused_or_harmless)
{
    const struct inject_rule rule = rule_of("a.org GET /x/", "X-Key", "Bearer {secret:KEY}");
    autofree struct inject_set *set = xnew(struct inject_set);
    autobuf struct buf bytes = { 0 };
    struct err err;

    CHECK_OK(inject_compile(&rule, 1, &key_secret, 1, &bytes, &err), &err);
    for (size_t i = 0; i < bytes.len; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes.data[i] = (char)(bytes.data[i] ^ 1 << bit);
            if (inject_parse(buf_view(&bytes), set, NULL) == 0)
                CHECK_OK(inject_rule_check(&set->rules[0], &err), &err);
            bytes.data[i] = (char)(bytes.data[i] ^ 1 << bit);
        }
}

TEST(limits_of_a_set)
{
    struct inject_rule rules[INJECT_RULES_MAX + 1];
    struct inject_secret secrets[INJECT_SECRETS_MAX + 1];
    autofree char *large = xmalloc(INJECT_VALUE_MAX);
    autobuf struct buf bytes = { 0 };
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        rules[i] = rule_of("a.org", "A", "{secret:KEY}");
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++)
        secrets[i] = key_secret;
    CHECK_OK(inject_compile(rules, INJECT_RULES_MAX, secrets, INJECT_SECRETS_MAX, &bytes, &err),
             &err);
    CHECK(inject_compile(rules, INJECT_RULES_MAX + 1, secrets, 1, &bytes, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);
    CHECK(inject_compile(rules, 1, secrets, INJECT_SECRETS_MAX + 1, &bytes, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);
    memset(large, 'x', INJECT_VALUE_MAX);
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++)
        secrets[i].sealed = (struct str){ large, INJECT_VALUE_MAX };
    CHECK(inject_compile(rules, 1, secrets, 20, &bytes, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);
}

TEST(a_context_holds_the_hosts_of_a_secret)
{
    static const char *const hosts[] = { "a.org", "*.b.org:8443 GET /x/", NULL };
    static const char *const bad[][2] = { { "10.0.0.1", NULL },
                                          { "a.org\nb.org", NULL },
                                          { "", NULL } };
    const char *many[INJECT_HOSTS_MAX + 2] = { NULL };
    struct rule out[INJECT_HOSTS_MAX];
    autobuf struct buf context = { 0 };
    struct err err;

    CHECK_OK(inject_context(&context, "t", "KEY", hosts, &err), &err);
    CHECK_INT(inject_hosts(buf_view(&context), out), 2);
    CHECK_STR(out[1].host.text, "b.org");
    CHECK(out[1].kind == RULE_SUFFIX && out[1].port == 8443 && out[1].methods == METHOD_GET);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autobuf struct buf none = { 0 };

        CHECK(inject_context(&none, "t", "KEY", bad[i], &err) < 0);
    }
    for (size_t i = 0; i <= INJECT_HOSTS_MAX; i++) {
        autobuf struct buf some = { 0 };

        CHECK_INT(inject_context(&some, "t", "KEY", many, &err), i > 0 ? 0 : -1);
        CHECK_INT(inject_hosts(buf_view(&some), out), i > 0 ? (int)i : -1);
        many[i] = "a.org";
    }
    autobuf struct buf over = { 0 };
    CHECK(inject_context(&over, "t", "KEY", many, &err) < 0);
    CHECK(inject_hosts(buf_view(&over), out) < 0);
    CHECK(inject_hosts(STR("t\0KEY"), out) < 0);
    CHECK(inject_hosts(STR("a.org"), out) < 0);
    CHECK(inject_hosts(STR("t\0KEY\0"
                           "10.0.0.1"),
                       out) < 0);
}

TEST(rules_as_people_write_them)
{
    static const char *const bad[] = {
        "",
        "a.org",
        "a.org => ",
        "a.org=>X: {secret:K}",
        "a.org => : {secret:K}",
        "a.org => X {secret:K}",
        "a.org => X: plain",
        "a.org => Host: {secret:K}",
        "10.0.0.1 => X: {secret:K}",
        "a.org => {secret:K} more",
        "a.org => {basic:u:K}",
        "a.org => X: {secret:K}\r\nY: 1",
    };
    char text[INJECT_TEXT_MAX + 2];
    struct inject_rule rule;
    struct err err;

    CHECK_OK(
        inject_rule_parse(STR("*.a.org:8443 GET,POST /v1/ => X-Key: k {secret:KEY}"), &rule, &err),
        &err);
    CHECK(str_is(rule.match, "*.a.org:8443 GET,POST /v1/") && str_is(rule.header, "X-Key"));
    CHECK(str_is(rule.value, "k {secret:KEY}") && str_is(inject_named(&rule), "KEY"));
    CHECK_OK(inject_rule_parse(STR("a.org => {secret:KEY}"), &rule, &err), &err);
    CHECK(!rule.header.n && str_is(rule.value, "{secret:KEY}"));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(inject_rule_parse(str_of(bad[i]), &rule, &err) < 0);
    /* As long as its parts may be, and no longer than one may be. */
    memset(text, 'x', sizeof(text));
    memcpy(text, "a.org => X: {secret:KEY} ", 25);
    CHECK_OK(inject_rule_parse((struct str){ text, 12 + INJECT_TEMPLATE_MAX }, &rule, &err), &err);
    CHECK(inject_rule_parse((struct str){ text, 13 + INJECT_TEMPLATE_MAX }, &rule, &err) < 0);
    CHECK(inject_rule_parse((struct str){ text, INJECT_TEXT_MAX + 1 }, &rule, &err) < 0);
}

TEST(variables_that_hold_a_placeholder)
{
    static const char *const bad[] = { "",      "=",    "A=",    "=K",  "1A=K", "A B=K",
                                       "A-B=K", "A=-K", "A=K L", "a.b", "A=K=L" };
    struct str variable, name;
    struct err err;

    CHECK_OK(inject_wish_parse(STR("API_KEY"), &variable, &name, &err), &err);
    CHECK(str_is(variable, "API_KEY") && str_is(name, "API_KEY"));
    CHECK_OK(inject_wish_parse(STR("_a1=b.c-d"), &variable, &name, &err), &err);
    CHECK(str_is(variable, "_a1") && str_is(name, "b.c-d"));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(inject_wish_parse(str_of(bad[i]), &variable, &name, &err) < 0);
}

TEST(hosts_that_must_be_opened)
{
    CHECK(str_is(inject_opened(STR("a.org")), "a.org"));
    CHECK(str_is(inject_opened(STR(".a.org GET /x")), ".a.org"));
    CHECK(str_is(inject_opened(STR("a.org:443")), "a.org:443"));
    CHECK(!inject_opened(STR("a.org:8443")).n); /* what is spoken there is not known */
    CHECK(!inject_opened(STR("a.org:*")).n);
    CHECK(!inject_opened(STR("10.0.0.1")).n);
    CHECK(!inject_opened(STR("")).n);
}
