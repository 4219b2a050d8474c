#include "base/mem.h"
#include "base/test.h"
#include "policy/naive.h"
#include "policy/own.h"
#include "policy/pack.h"

#define LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* A policy of these layers; the bytes live until the test ends. */
static struct policy made(const struct policy_layer layers[LEVELS], struct buf *bytes)
{
    struct err err = { 0 };
    struct policy policy;

    if (policy_compile(layers, 42, bytes, &err) < 0 ||
        policy_open(&policy, bytes->data, bytes->len, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.msg);
    return policy;
}

static struct policy_answer ask(const struct policy *policy, const char *target,
                                enum policy_view view, const char *method, const char *path)
{
    struct policy_question question = { .view = view,
                                        .method = rule_method(str_of(method)),
                                        .path = str_of(path) };
    struct policy_answer answer;
    struct host host;
    struct err err = { 0 };

    if (host_port_parse(str_of(target), 443, &host, &question.port, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", target, err.msg);
    question.host = &host;
    policy_decide(policy, &question, &answer);
    return answer;
}

static struct policy_answer tunnel(const struct policy *policy, const char *target)
{
    return ask(policy, target, POLICY_OPAQUE, NULL, NULL);
}

static void check_rows(const struct policy *policy, const char *const rows[][3], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct policy_answer got = tunnel(policy, rows[i][0]);
        char rule[RULE_TEXT_MAX + 1] = "";

        if (got.has_rule)
            snprintf(rule, sizeof(rule), "%.*s", STR_FMT(got.rule));
        if (strcmp(policy_verdict_name(got.verdict), rows[i][1]) != 0 ||
            strcmp(rule, rows[i][2]) != 0)
            test_fail(__FILE__, __LINE__, "%s: %s by \"%s\" (%s)", rows[i][0],
                      policy_verdict_name(got.verdict), rule, policy_why_name(got.why));
    }
}

TEST(nothing_is_allowed_by_nothing)
{
    autobuf struct buf bytes = { 0 };
    struct policy_layer layers[LEVELS] = { 0 };
    struct policy empty = made(layers, &bytes);
    const struct policy *both[] = { &empty, &policy_none };

    for (size_t i = 0; i < 2; i++) {
        struct policy_answer answer = tunnel(both[i], "example.org");

        CHECK_INT(answer.verdict, POLICY_DENY);
        CHECK_INT(answer.why, WHY_NO_RULE);
        CHECK(!answer.has_rule);
        CHECK_INT(tunnel(both[i], "8.8.8.8").verdict, POLICY_DENY);
        CHECK_INT(tunnel(both[i], "8.8.8.8").why, WHY_ADDRESS);
        CHECK_INT(both[i]->ask_s, EGRESS_ASK_S);
    }
    CHECK_INT(empty.version, 42);
}

TEST(labels_are_compared_whole)
{
    static const char *const rows[][3] = {
        { "github.test", "allow", "github.test" },
        { "evil-github.test", "deny", "" },
        { "github.test.evil.test", "deny", "" },
        { "www.github.test", "deny", "" },
        { "a.wild.test", "allow", "*.wild.test" },
        { "a.b.c.wild.test", "allow", "*.wild.test" },
        { "wild.test", "deny", "" }, /* the apex is not beneath itself */
        { "xwild.test", "deny", "" },
        { "tree.test", "allow", ".tree.test" },
        { "a.tree.test", "allow", ".tree.test" },
        { "atree.test", "deny", "" },
        { "a.special.wild.test", "allow", "*.special.wild.test" }, /* the more particular one */
        { "special.wild.test", "allow", "*.wild.test" },
        { "test", "deny", "" },
    };
    autobuf struct buf bytes = { 0 };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_TENANT] = { .present = true,
                           .allow = LIST("github.test", "*.wild.test", ".tree.test",
                                         "*.special.wild.test") },
    };
    struct policy policy = made(layers, &bytes);

    check_rows(&policy, rows, ARRAY_LEN(rows));
}

TEST(ports_are_the_webs_unless_said_and_all_for_denies)
{
    static const char *const rows[][3] = {
        { "a.test:80", "allow", "a.test" },
        { "a.test:443", "allow", "a.test" },
        { "a.test:8443", "deny", "a.test" },
        { "one.test:22", "allow", "one.test:22" },
        { "one.test:443", "deny", "one.test:22" },
        { "any.test:9", "allow", "any.test:*" },
        { "x.any.test:9", "deny", "x.any.test" },
        { "y.any.test:443", "deny", "y.any.test:443" },
        { "y.any.test:80", "allow", ".any.test:80" },
        { "raw.test:5432", "allow", "raw.test:5432/raw" },
        { "raw.test:443", "deny", "raw.test:5432/raw" },
    };
    autobuf struct buf bytes = { 0 };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_NODE] = { .present = true,
                         .allow = LIST("a.test", "one.test:22", "any.test:*", ".any.test:80",
                                       "*.any.test:443", "raw.test:5432/raw", "*.raw.test:*/raw",
                                       "10.1.0.0/16:25/raw"),
                         .deny = LIST("x.any.test", "y.any.test:443") },
    };
    struct policy policy = made(layers, &bytes);

    check_rows(&policy, rows, ARRAY_LEN(rows));
    CHECK_INT(tunnel(&policy, "a.test:8443").why, WHY_PORT);
}

/* Only where a rule says so, on its port. */
TEST(raw_bytes_are_for_rules_that_say_so)
{
    static const struct {
        const char *target;
        bool raw;
    } rows[] = {
        { "a.test:443", false },    { "one.test:22", false },       { "any.test:9", false },
        { "raw.test:5432", true },  { "raw.test:5433", false },     { "raw.test:443", false },
        { "x.raw.test:9", true },   { "x.raw.test:80", true },      { "10.1.2.3:25", true },
        { "10.1.2.3:26", false },   { "10.2.2.3:25", false },       { "loose.test:443", true },
        { "loose.test:80", false }, { "loose.test:8443", false },   { "more.test:8443", true },
        { "more.test:443", false }, { "elsewhere.test:22", false },
    };
    autobuf struct buf bytes = { 0 };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_NODE] = { .present = true,
                         .mode = POLICY_MODE_OPEN,
                         .allow = LIST("a.test", "one.test:22", "any.test:*", "raw.test:5432/raw",
                                       "*.raw.test:*/raw", "10.1.0.0/16:25/raw"),
                         .unchecked = LIST("loose.test", "more.test:8443") },
    };
    struct policy policy = made(layers, &bytes);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (tunnel(&policy, rows[i].target).unchecked != rows[i].raw)
            test_fail(__FILE__, __LINE__, "%s", rows[i].target);
}

TEST(rules_that_can_open_nothing_are_known)
{
    static const struct {
        const char *rule;
        bool opens;
    } rows[] = {
        { "a.test", true },
        { "127.0.0.1", false },
        { "127.0.0.0/8:80", false },
        { "127.9.0.0/16", false },
        { "126.0.0.0/7", true },
        { "0.0.0.0/0", true },
        { "0.0.0.0/8", false },
        { "169.254.169.254", false },
        { "169.254.0.0/16", true },
        { "10.0.0.1", true },
        { "198.18.0.1:80", false },
        { "224.0.0.1", false },
        { "::1", false },
        { "::/0", true },
        { "[ff02::1]:80", false },
        { "2001:4860::8", true },
        { "8.8.8.8/32", true },
    };
    struct err err = { 0 };
    struct rule rule;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CHECK_OK(rule_parse(str_of(rows[i].rule), &rule, &err), &err);
        if ((rule_reachable(&rule, &err) == 0) != rows[i].opens)
            test_fail(__FILE__, __LINE__, "%s", rows[i].rule);
    }
    CHECK_OK(rule_parse(STR("127.0.0.1"), &rule, &err), &err);
    CHECK(rule_reachable(&rule, &err) < 0);
    CHECK_STR(err.msg, "loopback addresses are never reached, whatever a rule says");
}

TEST(what_is_wrong_with_a_rule_is_said)
{
    static const char *const rows[][2] = {
        { "https://api.example.org/", "write the host alone: api.example.org" },
        { "https://api.example.org", "write the host alone: api.example.org" },
        { "http://api.example.org:8080/a b", "write the host alone: api.example.org:8080" },
        { "https://", "write the host alone, without https://" },
        { "a.test/raw", "\"/raw\" follows a port, as in db.example:5432/raw" },
        { "a.test:/raw", "a port is a number from 1 to 65535, or *; \"/raw\" may follow" },
        { "a.test:1/raw/raw", "a port is a number from 1 to 65535, or *; \"/raw\" may follow" },
        { "a.test:1/RAW", "a port is a number from 1 to 65535, or *; \"/raw\" may follow" },
        { "a.test:1/raw GET", "a rule for raw bytes has no methods and no path" },
    };
    struct err err = { 0 };
    struct rule rule;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CHECK(rule_parse(str_of(rows[i][0]), &rule, &err) < 0);
        CHECK_STR(err.msg, rows[i][1]);
    }
}

TEST(deny_wins_whoever_says_it)
{
    static const char *const rows[][3] = {
        { "a.test", "allow", "a.test" },
        { "b.test", "deny", "b.test" },
        { "x.c.test", "deny", "*.c.test" },
        { "d.test", "deny", ".d.test" },
    };
    autobuf struct buf bytes = { 0 };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_NODE] = { .present = true, .deny = LIST("*.c.test"), .allow = LIST("d.test") },
        [LEVEL_PROJECT] = { .present = true, .allow = LIST("a.test", "b.test", "x.c.test") },
        [LEVEL_SANDBOX] = { .present = true, .deny = LIST("b.test", ".d.test") },
    };
    struct policy policy = made(layers, &bytes);
    struct policy_answer answer = tunnel(&policy, "b.test");

    check_rows(&policy, rows, ARRAY_LEN(rows));
    CHECK_INT(answer.level, LEVEL_SANDBOX);
    CHECK_INT(answer.why, WHY_RULE);
    CHECK_INT(tunnel(&policy, "a.test").level, LEVEL_PROJECT);
}

TEST(a_locked_layer_leaves_nothing_to_those_inside_but_denies)
{
    autobuf struct buf bytes = { 0 };
    struct policy_pack pack = { "mine", LIST("p.test") };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_TENANT] = { .present = true,
                           .locked = true,
                           .mode = POLICY_MODE_ASK,
                           .allow = LIST("a.test", "b.test"),
                           .max_bytes = 1000 },
        [LEVEL_SANDBOX] = { .present = true,
                            .mode = POLICY_MODE_OPEN,
                            .allow = LIST("c.test"),
                            .deny = LIST("b.test"),
                            .intercept = LIST("a.test"),
                            .unchecked = LIST("a.test"),
                            .packs = &pack,
                            .pack_count = 1,
                            .max_bytes = 10,
                            .max_connections = 5 },
    };
    struct policy policy = made(layers, &bytes);

    CHECK_INT(tunnel(&policy, "a.test").verdict, POLICY_ALLOW);
    CHECK(!tunnel(&policy, "a.test").intercept && !tunnel(&policy, "a.test").unchecked);
    CHECK_INT(tunnel(&policy, "b.test").verdict, POLICY_DENY);
    CHECK_INT(tunnel(&policy, "c.test").verdict, POLICY_ASK);
    CHECK_INT(tunnel(&policy, "p.test").verdict, POLICY_ASK);
    CHECK_INT(policy.max_bytes, 10);
    CHECK_INT(policy.max_connections, 5);
}

TEST(the_innermost_mode_counts_and_open_is_open_but_for_denies)
{
    autobuf struct buf bytes = { 0 }, again = { 0 };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_NODE] = { .present = true,
                         .mode = POLICY_MODE_ASK,
                         .deny = LIST("b.test", "9.9.9.9") },
        [LEVEL_SANDBOX] = { .present = true, .mode = POLICY_MODE_OPEN, .allow = LIST("a.test:22") },
    };
    struct policy policy = made(layers, &bytes);

    CHECK_INT(policy.mode, POLICY_MODE_OPEN);
    CHECK_INT(policy.mode_level, LEVEL_SANDBOX);
    CHECK_INT(tunnel(&policy, "a.test:9").why, WHY_OPEN);
    CHECK_INT(tunnel(&policy, "a.test:9").verdict, POLICY_ALLOW);
    CHECK_INT(tunnel(&policy, "b.test").verdict, POLICY_DENY);
    CHECK_INT(tunnel(&policy, "8.8.8.8").verdict, POLICY_ALLOW);
    CHECK_INT(tunnel(&policy, "9.9.9.9").verdict, POLICY_DENY);
    CHECK_INT(tunnel(&policy, "10.0.0.1").verdict, POLICY_DENY);
    CHECK_INT(tunnel(&policy, "127.0.0.1").verdict, POLICY_DENY);
    layers[LEVEL_SANDBOX].mode = POLICY_MODE_UNSAID;
    policy = made(layers, &again);
    CHECK_INT(tunnel(&policy, "a.test:9").verdict, POLICY_ASK);
    CHECK_INT(tunnel(&policy, "a.test:9").why, WHY_PORT);
    CHECK_INT(tunnel(&policy, "10.0.0.1").verdict, POLICY_DENY); /* nothing to ask about */
}

TEST(requests_are_judged_where_they_are_seen)
{
    static const struct {
        const char *host, *method, *path;
        enum policy_view view;
        enum policy_verdict verdict;
        enum policy_why why;
    } rows[] = {
        { "r.test", "GET", "/v1/x", POLICY_REQUEST, POLICY_ALLOW, WHY_RULE },
        { "r.test", "POST", "/v1/x", POLICY_REQUEST, POLICY_DENY, WHY_REQUEST },
        { "r.test", "GET", "/v2", POLICY_REQUEST, POLICY_DENY, WHY_REQUEST },
        { "r.test", "GET", "/v1/../v2", POLICY_REQUEST, POLICY_DENY, WHY_REQUEST },
        { "r.test", NULL, NULL, POLICY_PEEK, POLICY_ALLOW, WHY_RULE },
        { "r.test", NULL, NULL, POLICY_OPAQUE, POLICY_DENY, WHY_UNSEEN },
        { "d.test", "GET", "/a", POLICY_REQUEST, POLICY_ALLOW, WHY_RULE },
        { "d.test", "DELETE", "/a", POLICY_REQUEST, POLICY_DENY, WHY_RULE },
        { "d.test", "GET", "/admin", POLICY_REQUEST, POLICY_DENY, WHY_RULE },
        { "d.test", "GET", "/%61dmin/x", POLICY_REQUEST, POLICY_DENY, WHY_RULE },
        { "d.test", "GET", "/x/..%2fadmin", POLICY_REQUEST, POLICY_DENY, WHY_RULE },
        { "d.test", "PROPFIND", "/a", POLICY_REQUEST, POLICY_ALLOW, WHY_RULE },
        { "d.test", NULL, NULL, POLICY_PEEK, POLICY_ALLOW, WHY_RULE },
        { "d.test", NULL, NULL, POLICY_OPAQUE, POLICY_DENY, WHY_UNSEEN },
    };
    autobuf struct buf bytes = { 0 };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_SANDBOX] = { .present = true,
                            .allow = LIST("r.test GET,HEAD /v1", "d.test"),
                            .deny = LIST("d.test DELETE", "d.test * /admin"),
                            .intercept = LIST("r.test"),
                            .unchecked = LIST("*.test") },
    };
    struct policy policy = made(layers, &bytes);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct policy_answer got =
            ask(&policy, rows[i].host, rows[i].view, rows[i].method, rows[i].path);

        if (got.verdict != rows[i].verdict || got.why != rows[i].why)
            test_fail(__FILE__, __LINE__, "row %zu: %s, %s", i, policy_verdict_name(got.verdict),
                      policy_why_name(got.why));
        CHECK(got.intercept == (rows[i].host[0] == 'r') && got.unchecked);
    }
}

TEST(addresses_need_rules_with_addresses_and_some_have_none)
{
    static const struct {
        const char *text;
        uint16_t port;
        enum policy_verdict raw, resolved;
    } rows[] = {
        { "8.8.8.8", 443, POLICY_DENY, POLICY_ALLOW },
        { "9.9.9.9", 443, POLICY_ALLOW, POLICY_ALLOW },
        { "9.9.9.9", 53, POLICY_DENY, POLICY_ALLOW },
        { "7.7.7.7", 443, POLICY_DENY, POLICY_DENY },
        { "10.1.2.3", 443, POLICY_ALLOW, POLICY_ALLOW },
        { "10.1.2.3", 22, POLICY_DENY, POLICY_DENY },
        { "10.2.0.1", 22, POLICY_ALLOW, POLICY_ALLOW },
        { "10.2.3.4", 443, POLICY_DENY, POLICY_DENY },
        { "192.168.1.1", 443, POLICY_DENY, POLICY_DENY },
        { "127.0.0.1", 443, POLICY_DENY, POLICY_DENY },
        { "169.254.169.254", 80, POLICY_DENY, POLICY_DENY },
        { "198.18.0.1", 80, POLICY_DENY, POLICY_DENY },
        { "169.254.1.1", 80, POLICY_ALLOW, POLICY_ALLOW },
        { "[2001:4860::1]", 443, POLICY_ALLOW, POLICY_ALLOW },
        { "[2003::1]", 443, POLICY_DENY, POLICY_ALLOW },
        { "[fc00::1]", 443, POLICY_DENY, POLICY_DENY },
        { "[::1]", 443, POLICY_DENY, POLICY_DENY },
    };
    autobuf struct buf bytes = { 0 };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_NODE] = { .present = true,
                         .allow =
                             LIST("9.9.9.9", "10.0.0.0/8", "10.2.0.0/16:*", "127.0.0.0/8:*",
                                  "169.254.0.0/16:*", "198.18.0.0/15:*", "2001:4860::/32", "::1"),
                         .deny = LIST("7.7.7.0/24", "10.2.3.0/24") },
    };
    struct policy policy = made(layers, &bytes);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct policy_question question = { .port = rows[i].port };
        struct policy_answer raw, resolved;
        struct host host;

        CHECK(host_parse(str_of(rows[i].text), &host, NULL) == 0);
        question.host = &host;
        policy_decide(&policy, &question, &raw);
        policy_addr(&policy, &host.addr, rows[i].port, &resolved);
        if (raw.verdict != rows[i].raw || resolved.verdict != rows[i].resolved)
            test_fail(__FILE__, __LINE__, "%s:%u: %s, resolved %s", rows[i].text, rows[i].port,
                      policy_verdict_name(raw.verdict), policy_verdict_name(resolved.verdict));
    }
    CHECK_INT(tunnel(&policy, "169.254.169.254").why, WHY_CLASS);
    CHECK_INT(tunnel(&policy, "169.254.169.254").class, ADDR_METADATA);
}

TEST(packs_are_named_in_answers_and_come_once)
{
    autobuf struct buf bytes = { 0 };
    struct policy_pack both[] = { { "python", pack_find(STR("python"))->rules },
                                  { "mine", LIST("m.test") } };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_TENANT] = { .present = true, .packs = both, .pack_count = 1 },
        [LEVEL_SANDBOX] = { .present = true, .packs = both, .pack_count = 2 },
    };
    struct policy policy = made(layers, &bytes);
    struct policy_answer answer = tunnel(&policy, "m.test");
    char text[POLICY_TEXT_SIZE];

    CHECK(str_is(answer.pack, "mine"));
    CHECK_INT(answer.level, LEVEL_SANDBOX);
    policy_say(&answer, text);
    CHECK_STR(text, "allowed: by the rule m.test (sandbox, pack mine)");
    size_t rules = 0;
    while (both[0].rules[rules])
        rules++;
    CHECK_INT(policy.rule_count, rules + 1);
}

TEST(every_built_in_pack_compiles)
{
    CHECK(!pack_find(STR("nothing")));
    for (const struct pack *pack = packs; pack->name; pack++) {
        autobuf struct buf bytes = { 0 };
        struct policy_pack one = { pack->name, pack->rules };
        struct policy_layer layers[LEVELS] = {
            [LEVEL_NODE] = { .present = true, .packs = &one, .pack_count = 1 },
        };

        CHECK(pack_name_ok(str_of(pack->name)) && pack->help && pack->rules[0]);
        CHECK(made(layers, &bytes).rule_count > 0);
        CHECK(pack_find(str_of(pack->name)) == pack);
    }
    CHECK(!pack_name_ok(STR("")) && !pack_name_ok(STR("-a")) && !pack_name_ok(STR("A")));
    CHECK(!pack_name_ok(STR("9a")) && !pack_name_ok(STR("a b")) && !pack_name_ok(STR("a/b")));
    CHECK(pack_name_ok(STR("abcdefghijklmnopqrstuvwxyz012345")));
    CHECK(!pack_name_ok(STR("abcdefghijklmnopqrstuvwxyz0123456")));
}

static int compile_many(size_t count, bool wide)
{
    autofree const char **list = xcalloc(count + 1, sizeof(*list));
    autoarena struct arena arena = { 0 };
    autobuf struct buf bytes = { 0 };
    struct policy_pack pieces[16] = { 0 };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_NODE] = { .present = true, .packs = pieces, .pack_count = ARRAY_LEN(pieces) },
    };
    struct err err = { 0 };

    if (!wide) {
        for (size_t i = 0; i < count; i++)
            list[i] = arena_printf(&arena, "h%zu.test", i);
        layers[LEVEL_NODE].pack_count = 0;
        layers[LEVEL_NODE].allow = list;
    }
    for (size_t p = 0; wide && p < ARRAY_LEN(pieces); p++) {
        const char **part = arena_alloc(&arena, (count / 16 + 1) * sizeof(*part));

        for (size_t i = 0; i < count / 16; i++)
            part[i] = arena_printf(&arena, "h%zu.p%zu.test", i, p);
        pieces[p] = (struct policy_pack){ arena_printf(&arena, "p%zu", p), part };
    }
    const char *const more[] = { "one.more.test", NULL };
    if (wide && count % 16)
        layers[LEVEL_NODE].allow = more;
    int rc = policy_compile(layers, 1, &bytes, &err);
    if (rc < 0)
        CHECK_INT(err.code, ERR_LIMIT);
    return rc;
}

TEST(a_policy_has_its_limits)
{
    CHECK(compile_many(EGRESS_RULES_MAX, false) == 0);
    CHECK(compile_many(EGRESS_RULES_MAX + 1, false) < 0);
    CHECK(compile_many(POLICY_RULES_MAX, true) == 0);
    CHECK(compile_many(POLICY_RULES_MAX + 1, true) < 0);
}

TEST(marks_are_names_alone)
{
    static const char *const bad[] = { "a.test GET", "a.test * /x", "8.8.8.8", "10.0.0.0/8" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autobuf struct buf bytes = { 0 };
        struct policy_layer layers[LEVELS] = {
            [LEVEL_NODE] = { .present = true, .intercept = LIST(bad[i]) },
        };
        struct err err = { 0 };

        CHECK(policy_compile(layers, 1, &bytes, &err) < 0);
        CHECK_INT(err.code, ERR_INVALID);
    }
}

/* ---- hostile bytes ---- */

TEST(any_change_of_the_bytes_is_refused_or_harmless)
{
    autobuf struct buf bytes = { 0 };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_NODE] = { .present = true,
                         .allow = LIST("a.test", "*.b.test GET /x", "10.0.0.0/8", "2001:4860::/32"),
                         .deny = LIST("c.test") },
    };
    struct policy policy = made(layers, &bytes);
    size_t refused = 0;

    for (int round = 0; round < 200000; round++) {
        autofree char *copy = xmemdup0(bytes.data, bytes.len);

        for (uint32_t k = test_rand(4) + 1; k > 0; k--)
            copy[test_rand((uint32_t)bytes.len)] = (char)test_rand(256);
        if (policy_open(&policy, copy, bytes.len, NULL) < 0) {
            refused++;
            continue;
        }
        tunnel(&policy, "x.b.test");
        tunnel(&policy, "10.1.1.1");
        tunnel(&policy, "[2001:4860::1]");
        ask(&policy, "x.b.test", POLICY_REQUEST, "GET", "/x");
        for (uint32_t i = 0; i < policy.rule_count; i++)
            CHECK(policy_rule_at(&policy, i).text.n <= bytes.len);
    }
    CHECK(refused > 1000);
    for (size_t len = 0; len < bytes.len; len++)
        CHECK(policy_open(&policy, bytes.data, len, NULL) < 0);
}

/* Each line of the reader, by the one number that only that line refuses. */
TEST(each_number_of_the_bytes_is_checked)
{
    autobuf struct buf bytes = { 0 };
    struct policy_layer layers[LEVELS] = {
        [LEVEL_NODE] = { .present = true, .allow = LIST("a.test GET /x", "10.0.0.0/8") },
    };
    struct policy_head head;
    struct policy_record first, second;
    struct policy policy = made(layers, &bytes);

    memcpy(&head, bytes.data, sizeof(head));
    memcpy(&first, bytes.data + sizeof(head), sizeof(first));
    memcpy(&second, bytes.data + sizeof(head) + sizeof(first), sizeof(second));
#define REFUSED(object, at, field, value)                                                          \
    do {                                                                                           \
        __typeof__(object) saved_ = object;                                                        \
        object.field = (__typeof__(object.field))(value);                                          \
        memcpy(bytes.data + (at), &object, sizeof(object));                                        \
        object = saved_;                                                                           \
        CHECK(policy_open(&policy, bytes.data, bytes.len, NULL) < 0);                              \
        memcpy(bytes.data + (at), &object, sizeof(object));                                        \
    } while (0)
    REFUSED(head, 0, magic, 1);
    REFUSED(head, 0, format, POLICY_FORMAT + 1);
    REFUSED(head, 0, mode, 0);
    REFUSED(head, 0, mode, POLICY_MODE_OPEN + 1);
    REFUSED(head, 0, mode_level, LEVELS);
    REFUSED(head, 0, ask_s, EGRESS_ASK_MAX_S + 1);
    REFUSED(head, 0, rule_count, 3);
    REFUSED(head, 0, bucket_count, 0);
    REFUSED(head, 0, bucket_count, 3);
    REFUSED(head, 0, texts_len, head.texts_len + 1);
    size_t at = sizeof(head);
    REFUSED(first, at, next, 1);
    REFUSED(first, at, name_at, head.texts_len + 1);
    REFUSED(first, at, name_len, head.texts_len + 1);
    REFUSED(first, at, text_at, UINT32_MAX);
    REFUSED(first, at, text_len, head.texts_len + 1);
    REFUSED(first, at, path_at, UINT32_MAX);
    REFUSED(first, at, path_len, head.texts_len + 1);
    REFUSED(first, at, pack_at, UINT32_MAX);
    REFUSED(first, at, pack_len, 255);
    REFUSED(first, at, kind, RULE_KINDS);
    REFUSED(first, at, list, LISTS);
    REFUSED(first, at, level, LEVELS);
    REFUSED(first, at, ports, PORTS_KINDS);
    at += sizeof(first);
    REFUSED(second, at, next, 2);
    REFUSED(second, at, family, 5);
    REFUSED(second, at, prefix, 33);
    at += sizeof(second);
    uint32_t bucket, wrong = 3;
    memcpy(&bucket, bytes.data + at, sizeof(bucket));
    memcpy(bytes.data + at, &wrong, sizeof(wrong));
    CHECK(policy_open(&policy, bytes.data, bytes.len, NULL) < 0);
    memcpy(bytes.data + at, &bucket, sizeof(bucket));
    CHECK(policy_open(&policy, bytes.data, bytes.len, NULL) == 0);
}

/* ---- against the naive one ---- */

static const char *random_name(struct arena *arena)
{
    static const char *const labels[] = { "a", "b", "aa", "x-y", "test", "org" };
    char text[256] = "";
    uint32_t count = test_rand(4) + 1;

    for (uint32_t i = 0; i < count; i++) {
        size_t n = strlen(text);

        snprintf(text + n, sizeof(text) - n, "%s%s", i ? "." : "",
                 labels[test_rand(ARRAY_LEN(labels))]);
    }
    return arena_strdup(arena, text);
}

static const char *random_addr(struct arena *arena, bool rule)
{
    unsigned prefix = 16 + 8 * test_rand(3);

    if (!rule || prefix == 32)
        return arena_printf(arena, "9.%u.%u.%u", test_rand(2), test_rand(2), test_rand(2));
    return prefix == 16 ? arena_printf(arena, "9.%u.0.0/16", test_rand(2))
                        : arena_printf(arena, "9.%u.%u.0/24", test_rand(2), test_rand(2));
}

static const char *random_rule(struct arena *arena, bool mark, bool allow)
{
    static const char *const before[] = { "", "*.", "." }, *const ports[] = { "", ":*", ":443",
                                                                              ":22" };
    static const char *const requests[] = { "", "", " GET", " GET,POST", " * /a", " GET /a/b" };
    const char *port = ports[test_rand(ARRAY_LEN(ports))];

    if (allow && test_rand(8) == 0)
        return arena_printf(arena, "%s%s:%s/raw", before[test_rand(3)], random_name(arena),
                            test_rand(2) ? "22" : "*");
    if (!mark && test_rand(5) == 0)
        return arena_printf(arena, "%s%s", random_addr(arena, true), port);
    return arena_printf(arena, "%s%s%s%s", before[test_rand(3)], random_name(arena), port,
                        mark ? "" : requests[test_rand(ARRAY_LEN(requests))]);
}

static void random_lists(struct arena *arena, struct policy_layer layers[LEVELS],
                         struct naive *naive)
{
    bool locked = false;

    naive->count = 0;
    for (int level = 0; level < LEVELS; level++) {
        const char **lists[4];

        layers[level] = (struct policy_layer){ .present = true, .locked = test_rand(8) == 0 };
        for (int list = 0; list < 4; list++) {
            size_t count = test_rand(6);

            lists[list] = arena_alloc(arena, (count + 1) * sizeof(char *));
            for (size_t i = 0; i < count; i++) {
                lists[list][i] = random_rule(arena, list >= 2, list == 1);
                if (locked && list != 0)
                    continue;
                struct naive_rule *rule = &naive->rules[naive->count++];
                snprintf(rule->text, sizeof(rule->text), "%s", lists[list][i]);
                rule->list = "daiu"[list];
            }
        }
        layers[level].deny = lists[0];
        layers[level].allow = lists[1];
        layers[level].intercept = lists[2];
        layers[level].unchecked = lists[3];
        locked = locked || layers[level].locked;
    }
}

static void compare(const struct policy *policy, const struct naive *naive, struct arena *arena)
{
    static const char *const methods[] = { "GET", "POST", "BREW" };
    static const char *const paths[] = { "/a", "/a/b", "/a/b/c", "/b", "/a/../b", "/%61/b" };
    static const uint16_t ports[] = { 443, 80, 22, 8443 };
    bool addr = test_rand(5) == 0;
    const char *target = addr ? random_addr(arena, false) : random_name(arena);
    uint32_t view = test_rand(3);
    struct naive_question nq = { .is_addr = addr,
                                 .port = ports[test_rand(ARRAY_LEN(ports))],
                                 .view = "opr"[view],
                                 .method = methods[test_rand(ARRAY_LEN(methods))],
                                 .path = paths[test_rand(ARRAY_LEN(paths))] };

    snprintf(nq.host, sizeof(nq.host), "%s", target);
    struct naive_answer want = naive_decide(naive, &nq);
    struct policy_answer got = ask(policy, arena_printf(arena, "%s:%d", target, nq.port),
                                   (enum policy_view)view, nq.method, nq.path);
    if ("da?"[got.verdict] != want.verdict || got.intercept != want.intercept ||
        got.unchecked != want.unchecked ||
        (want.index >= 0 && (!got.has_rule || got.index != (uint32_t)want.index)))
        test_fail(__FILE__, __LINE__, "%s:%d %c %s %s: %s, not %c by %s", target, nq.port, nq.view,
                  nq.method, nq.path, policy_verdict_name(got.verdict), want.verdict,
                  want.index < 0 ? "the mode" : naive->rules[want.index].text);
}

TEST(random_policies_mean_what_a_naive_reader_says)
{
    static struct naive naive;

    for (int round = 0; round < 1500; round++) {
        autoarena struct arena arena = { 0 };
        autobuf struct buf bytes = { 0 };
        struct policy_layer layers[LEVELS];
        uint32_t mode = test_rand(3) + 1;

        random_lists(&arena, layers, &naive);
        layers[0].mode = (enum policy_mode)mode;
        naive.mode = "dao"[mode - 1];
        struct policy policy = made(layers, &bytes);
        for (int i = 0; i < 60; i++)
            compare(&policy, &naive, &arena);
    }
}
