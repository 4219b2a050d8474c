#include "policy/grant.h"

#include "base/hash.h"
#include "base/test.h"
#include "policy/policy.h"

#define HEAD "{\"typ\":\"JWT\",\"alg\":\"HS256\"}"
#define NOW 1000000
#define CLAIMS(more) "{\"iss\":\"sandbox-egress-control\",\"session_id\":\"s1\"," more "}"
#define GOOD CLAIMS("\"tenant_id\":null,\"allowed_hosts\":\"pkg.test\",\"exp\":1003600")

static const struct grant_terms terms = { STR_INIT("dev-secret"), NOW, GRANT_LIFE_S };

/* head.body.signature, signed with `key`. */
static void sign(struct buf *out, const char *head, const char *body, const char *key)
{
    unsigned char mac[SHA256_SIZE];

    base64url_put(out, head, strlen(head));
    buf_putc(out, '.');
    base64url_put(out, body, strlen(body));
    hmac_sha256(str_of(key), buf_view(out), mac);
    buf_putc(out, '.');
    base64url_put(out, mac, sizeof(mac));
}

/* What grant_read says about these; *out may be NULL. */
static int read_one(const char *head, const char *body, const char *key, struct grant *out,
                    struct err *err)
{
    autobuf struct buf token = { 0 }, value = { 0 };
    struct grant grant = { 0 };

    sign(&token, head, body, key);
    buf_puts(&value, "Bearer ");
    buf_str(&value, buf_view(&token));
    int rc = grant_read(buf_view(&value), &terms, &grant, err);
    if (out)
        *out = grant;
    else
        grant_free(&grant);
    return rc;
}

static bool allows(const struct grant *grant, const char *name, uint16_t port)
{
    struct policy policy;
    struct policy_answer answer;
    struct host host;
    struct err err = { 0 };

    CHECK_INT(policy_open(&policy, grant->policy.data, grant->policy.len, &err), 0);
    CHECK_INT(host_parse(str_of(name), &host, &err), 0);
    struct policy_question question = { .host = &host, .port = port, .view = POLICY_OPAQUE };
    policy_decide(&policy, &question, &answer);
    return answer.verdict == POLICY_ALLOW;
}

/* Of the specification: key dev-secret, session s1, one host and *.example.com, until 2100. */
#define VECTOR                                                                                     \
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9."                                                        \
    "eyJpc3MiOiJzYW5kYm94LWVncmVzcy1jb250cm9sIiwic2Vzc2lvbl9pZCI6InMxIiwidGVuYW50X2lkIjpudWxsLCJh" \
    "b"                                                                                            \
    "Gxvd2VkX2hvc3RzIjoicHlwaS5vcmcsKi5leGFtcGxlLmNvbSIsImV4cCI6NDEwMjQ0NDgwMH0."                  \
    "EsMTb7HrNkVNvNDR2K3wUkhbA6nEdxaMd0jiWlQ7qE0"

static void check_vector(const char *value)
{
    struct grant_terms then = { STR("dev-secret"), 4102444800 - 4 * 3600, GRANT_LIFE_S };
    struct grant grant = { 0 };
    struct err err = { 0 };

    if (grant_read(str_of(value), &then, &grant, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    CHECK_STR(grant.session, "s1");
    CHECK_STR(grant.tenant, "");
    CHECK_INT(grant.ends_s, 4102444800);
    CHECK(allows(&grant, "a.example.com", 443));
    CHECK(allows(&grant, "example.com", 443));
    CHECK(!allows(&grant, "www.pkg.test", 443));
    grant_free(&grant);
}

TEST(grant_reads_the_vector_in_every_scheme)
{
    autobuf struct buf basic = { 0 };

    check_vector("Bearer " VECTOR);
    check_vector("bearer jwt_" VECTOR);
    buf_puts(&basic, "Basic ");
    base64_put(&basic, "sandbox:jwt_" VECTOR, strlen("sandbox:jwt_" VECTOR));
    check_vector(buf_cstr(&basic));
}

TEST(grant_matches_hosts_as_its_clients_expect)
{
    static const char body[] = CLAIMS(
        "\"allowed_hosts\":\" pkg.test ,*.example.com,,build.example:8443,10.0.0.5,*,.dot.example,"
        "any.example:*,get.example GET,169.254.169.254/32,[2600::1],localhost\",\"exp\":1003600");
    static const struct {
        const char *host;
        uint16_t port;
        bool want;
    } rows[] = {
        { "pkg.test", 443, true },         { "Pkg.Test", 80, true },
        { "pkg.test", 8443, false },       { "www.pkg.test", 443, false },
        { "xpkg.test", 443, false },       { "a.example.com", 443, true },
        { "a.b.example.com", 443, true },  { "example.com", 443, true },
        { "badexample.com", 443, false },  { "example.com.evil.example", 443, false },
        { "build.example", 8443, true },   { "build.example", 443, false },
        { "10.0.0.5", 443, false },        { "anything.example", 443, false },
        { "dot.example", 443, false },     { "x.dot.example", 443, false },
        { "any.example", 443, false },     { "get.example", 443, false },
        { "169.254.169.254", 443, false }, { "[2600::1]", 443, false },
        { "files.pkg.test", 443, false }, /* of agentbox's defaults */
    };
    struct grant grant = { 0 };
    struct err err = { 0 };

    if (read_one(HEAD, body, "dev-secret", &grant, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (allows(&grant, rows[i].host, rows[i].port) != rows[i].want)
            test_fail(__FILE__, __LINE__, "%s:%d", rows[i].host, rows[i].port);
    grant_free(&grant);
}

TEST(grant_takes_a_list_and_names)
{
    static const char body[] = CLAIMS("\"tenant_id\":\"acme\",\"allowed_hosts\":[\"a.example\","
                                      "\" b.example \",\"a,b\"],\"exp\":1003600,\"iat\":1000059");
    struct grant grant = { 0 };
    struct err err = { 0 };

    CHECK_INT(read_one("{\"alg\":\"HS256\"}", body, "dev-secret", &grant, &err), 0);
    CHECK_STR(grant.tenant, "acme");
    CHECK(allows(&grant, "a.example", 443) && allows(&grant, "b.example", 443));
    CHECK(!allows(&grant, "a", 443));
    grant_free(&grant);
    CHECK_INT(read_one(HEAD, CLAIMS("\"allowed_hosts\":\"\",\"exp\":1003600"), "dev-secret", &grant,
                       &err),
              0);
    CHECK(!allows(&grant, "pkg.test", 443));
    grant_free(&grant);
}

TEST(grant_refuses_what_is_not_signed_as_it_must_be)
{
    static const struct {
        const char *head, *body, *key, *want;
    } rows[] = {
        { HEAD, GOOD, "other-secret", "not signed with our key" },
        { HEAD, GOOD, "", "not signed with our key" },
        { "{\"typ\":\"JWT\",\"alg\":\"none\"}", GOOD, "dev-secret", "algorithm" },
        { "{\"alg\":\"hs256\"}", GOOD, "dev-secret", "algorithm" },
        { "{\"alg\":\"RS256\"}", GOOD, "dev-secret", "algorithm" },
        { "{\"alg\":\"HS512\"}", GOOD, "dev-secret", "algorithm" },
        { "{\"alg\":[\"HS256\"]}", GOOD, "dev-secret", "algorithm" },
        { "{}", GOOD, "dev-secret", "algorithm" },
        { "{\"alg\":\"HS256\",\"alg\":\"none\"}", GOOD, "dev-secret", "JSON" },
        { "{\"alg\":\"HS256\",\"typ\":\"JWE\"}", GOOD, "dev-secret", "type" },
        { "{\"alg\":\"HS256\",\"typ\":1}", GOOD, "dev-secret", "type" },
        { "{\"alg\":\"HS256\",\"crit\":[\"exp\"]}", GOOD, "dev-secret", "extensions" },
        { "{\"alg\":\"HS256\",\"zip\":\"DEF\"}", GOOD, "dev-secret", "zip" },
        { "{\"alg\":\"HS256\",\"enc\":\"A256GCM\"}", GOOD, "dev-secret", "enc" },
        { "[]", GOOD, "dev-secret", "JSON" },
        { "", GOOD, "dev-secret", "JSON" },
        { HEAD, "null", "dev-secret", "JSON" },
        { HEAD, GOOD "x", "dev-secret", "JSON" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = { 0 };

        if (read_one(rows[i].head, rows[i].body, rows[i].key, NULL, &err) == 0 ||
            err.code != ERR_UNAUTHENTICATED || !strstr(err.msg, rows[i].want))
            test_fail(__FILE__, __LINE__, "%s %s: %s", rows[i].head, rows[i].body, err.msg);
    }
}

TEST(grant_refuses_claims_that_are_not_ours)
{
#define HOSTS "\"allowed_hosts\":\"pkg.test\""
    static const struct {
        const char *body, *want;
    } rows[] = {
        { CLAIMS(HOSTS), "no end" },
        { CLAIMS(HOSTS ",\"exp\":1000000"), "expired" },
        { CLAIMS(HOSTS ",\"exp\":0"), "expired" },
        { CLAIMS(HOSTS ",\"exp\":-1"), "time" },
        { CLAIMS(HOSTS ",\"exp\":\"1003600\""), "time" },
        { CLAIMS(HOSTS ",\"exp\":1003600.5"), "time" },
        { CLAIMS(HOSTS ",\"exp\":null"), "time" },
        { CLAIMS(HOSTS ",\"exp\":1086401"), "longer" },
        { CLAIMS(HOSTS ",\"exp\":9223372036854775807"), "longer" },
        { CLAIMS(HOSTS ",\"exp\":1003600,\"nbf\":1000061"), "not valid yet" },
        { CLAIMS(HOSTS ",\"exp\":1003600,\"iat\":1000061"), "not valid yet" },
        { CLAIMS(HOSTS ",\"exp\":1003600,\"aud\":\"x\""), "somebody else" },
        { CLAIMS("\"exp\":1003600"), "allowed_hosts" },
        { CLAIMS("\"exp\":1003600,\"allowed_hosts\":null"), "allowed_hosts" },
        { CLAIMS("\"exp\":1003600,\"allowed_hosts\":{}"), "allowed_hosts" },
        { CLAIMS("\"exp\":1003600,\"allowed_hosts\":[1]"), "allowed_hosts" },
        { CLAIMS(HOSTS ",\"exp\":1003600,\"tenant_id\":7"), "tenant_id" },
        { CLAIMS(HOSTS ",\"exp\":1003600,\"tenant_id\":\"a\\nb\""), "tenant_id" },
        { "{\"iss\":\"other\",\"session_id\":\"s\"," HOSTS ",\"exp\":1003600}", "issuer" },
        { "{\"session_id\":\"s\"," HOSTS ",\"exp\":1003600}", "issuer" },
        { "{\"iss\":\"sandbox-egress-control\"," HOSTS ",\"exp\":1003600}", "session" },
        { "{\"iss\":\"sandbox-egress-control\",\"session_id\":\"\"," HOSTS ",\"exp\":1003600}",
          "session" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = { 0 };

        if (read_one(HEAD, rows[i].body, "dev-secret", NULL, &err) == 0 ||
            err.code != ERR_UNAUTHENTICATED || !strstr(err.msg, rows[i].want))
            test_fail(__FILE__, __LINE__, "%s: %s", rows[i].body, err.msg);
    }
    struct err err = { 0 };
    CHECK_INT(read_one(HEAD, CLAIMS(HOSTS ",\"exp\":1086400"), "dev-secret", NULL, &err), 0);
    CHECK_INT(
        read_one(HEAD, CLAIMS(HOSTS ",\"exp\":1000001,\"nbf\":1000060"), "dev-secret", NULL, &err),
        0);
}

TEST(grant_refuses_other_headers_and_touched_tokens)
{
    static const char *const rows[] = {
        "",
        "Bearer",
        "Bearer ",
        "Basic ",
        "Digest x",
        VECTOR,
        "Bearer a.b",
        "Bearer a.b.c.d",
        "Bearer ..",
        "Basic !!!",
        "Basic c2FuZGJveDpub3RvaHJlZQ==", /* a password without jwt_ */
        "Basic c2FuZGJveA==",             /* no password at all */
        "BearerX " VECTOR,
        "Bearer " VECTOR ".x",
        "Bearer " VECTOR "=",
        "Bearer x" VECTOR,
        "Bearer " VECTOR "AA",
        "Bearer " VECTOR " x",
    };
    struct grant_terms then = { STR("dev-secret"), 4102444800 - 60, GRANT_LIFE_S };
    struct grant grant = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = { 0 };

        if (grant_read(str_of(rows[i]), &then, &grant, &err) == 0 ||
            err.code != ERR_UNAUTHENTICATED)
            test_fail(__FILE__, __LINE__, "%s", rows[i]);
    }
    /* Any one character that is another one. */
    char touched[] = "Bearer " VECTOR;
    for (size_t i = 7; i < sizeof(touched) - 1; i++) {
        struct err err = { 0 };
        char was = touched[i];

        touched[i] = was == 'A' ? 'B' : 'A';
        CHECK(grant_read(str_of(touched), &then, &grant, &err) < 0);
        touched[i] = was;
    }
}

TEST(grant_has_limits)
{
    autobuf struct buf body = { 0 }, long_id = { 0 }, value = { 0 };
    struct err err = { 0 };
    struct grant grant = { 0 };

    buf_puts(&value, "Bearer ");
    while (value.len < GRANT_BYTES_MAX)
        buf_putc(&value, 'x');
    CHECK(grant_read(buf_view(&value), &terms, &grant, &err) < 0);
    CHECK_INT(err.code, ERR_UNAUTHENTICATED);
    buf_putc(&value, 'x');
    CHECK(grant_read(buf_view(&value), &terms, &grant, &err) < 0);
    CHECK_INT(err.code, ERR_LIMIT);

    for (int count = EGRESS_RULES_MAX; count <= EGRESS_RULES_MAX + 1; count++) {
        buf_clear(&body);
        buf_puts(&body, "{\"iss\":\"sandbox-egress-control\",\"session_id\":\"s\",\"exp\":1003600,"
                        "\"allowed_hosts\":\"");
        for (int i = 0; i < count; i++)
            buf_printf(&body, "h%d,", i);
        buf_puts(&body, "\"}");
        int rc = read_one(HEAD, buf_cstr(&body), "dev-secret", NULL, &err);
        CHECK_INT(rc, count > EGRESS_RULES_MAX ? -1 : 0);
        CHECK(rc == 0 || err.code == ERR_LIMIT);
    }
    for (int len = GRANT_ID_MAX; len <= GRANT_ID_MAX + 1; len++) {
        buf_clear(&body);
        buf_printf(&body,
                   "{\"iss\":\"sandbox-egress-control\",\"session_id\":\"%0*d\",\"exp\":1003600,"
                   "\"allowed_hosts\":\"\"}",
                   len, 0);
        CHECK_INT(read_one(HEAD, buf_cstr(&body), "dev-secret", NULL, &err),
                  len > GRANT_ID_MAX ? -1 : 0);
    }
}
