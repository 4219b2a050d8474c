/*
 * Three readers, by the first byte of the input:
 *
 * - 0xff: the rest is a compiled policy. Whatever the bytes: opened or refused, and what was opened
 *   answers any question.
 * - 0xfe: the rest is a host, a rule, an address of a page. What is accepted is written one way,
 * and that way is accepted and means the same.
 * - otherwise: lines. "mo" sets the mode, "a2 RULE" (a, d, i, u and a level) adds a rule, "l1"
 *   locks a level, "q HOST:PORT VIEW METHOD PATH" asks. The answer is that of naive.h.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "policy/naive.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

/* ---- hostile bytes ---- */

static void ask_all(const struct policy *policy)
{
    static const char *const names[] = {
        "a",       "example.org",  "a.b.example.org", "192.0.2.1", "[2001:db8::1]",
        "8.8.8.8", "x.y.z.w.v.u.t"
    };
    struct policy_answer answer;
    char text[POLICY_TEXT_SIZE];
    struct host host;

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (int view = POLICY_OPAQUE; view <= POLICY_REQUEST; view++) {
            struct policy_question question = { .host = &host,
                                                .port = 443,
                                                .view = (enum policy_view)view,
                                                .method = METHOD_GET,
                                                .path = STR("/a/b") };

            must(host_parse(str_of(names[i]), &host, NULL) == 0);
            policy_decide(policy, &question, &answer);
            policy_say(&answer, text);
            if (host.kind == HOST_ADDR)
                policy_addr(policy, &host.addr, 443, &answer);
        }
    for (uint32_t i = 0; i < policy->rule_count; i++)
        must(policy_rule_at(policy, i).list);
}

static void hostile_bytes(struct str bytes)
{
    autofree char *copy = xmemdup0(bytes.p, bytes.n);
    struct policy policy;

    if (policy_open(&policy, copy, bytes.n, NULL) == 0)
        ask_all(&policy);
}

/* ---- one way to write things ---- */

static void check_host(struct str text)
{
    char canonical[HOST_PORT_SIZE];
    struct host host, again;
    uint16_t port, port_again;

    if (host_port_parse(text, 443, &host, &port, NULL) < 0)
        return;
    host_port_text(&host, port, canonical);
    must(host_port_parse(str_of(canonical), 0, &again, &port_again, NULL) == 0);
    must(host_eq(&host, &again) && port == port_again);
    must(strlen(host.text) == host.len && host.len > 0);
    must(strspn(host.text, host.kind == HOST_NAME ? "abcdefghijklmnopqrstuvwxyz0123456789-."
                                                  : "0123456789abcdef:.") == host.len);
    must(host.kind == HOST_ADDR || (host.text[0] != '.' && host.text[host.len - 1] != '.'));
}

static void check_rule(struct str text)
{
    autobuf struct buf once = { 0 }, twice = { 0 };
    struct rule rule, again;

    if (rule_parse(text, &rule, NULL) < 0)
        return;
    rule_text(&rule, &once);
    must(rule_parse(buf_view(&once), &again, NULL) == 0);
    rule_text(&again, &twice);
    must(str_eq(buf_view(&once), buf_view(&twice)));
    must(rule.kind == again.kind && host_eq(&rule.host, &again.host) && rule.ports == again.ports &&
         rule.port == again.port && rule.methods == again.methods && rule.prefix == again.prefix &&
         str_eq(rule.path, again.path));
}

static void check_url(struct str text)
{
    struct host_url url;

    if (host_url_parse(text, &url, NULL) < 0)
        return;
    must(url.port != 0 && url.path.n > 0 && url.path.p[0] == '/');
    must(!memchr(url.path.p, '#', url.path.n) && !memchr(url.path.p, ' ', url.path.n));
}

/* ---- against the naive one ---- */

struct world {
    struct naive naive;
    const char *lists[LEVELS][4][256];
    size_t counts[LEVELS][4];
    bool locked[LEVELS];
    char mode;
    struct arena arena;
};

static void add_rule(struct world *w, struct str line)
{
    static const char kinds[] = "adiu";
    const char *at = memchr(kinds, line.p[0], 4);
    int level = line.p[1] - '0';
    struct str text = str_from(line, 3);
    struct rule rule;

    if (!at || level < 0 || level >= LEVELS || rule_parse(text, &rule, NULL) < 0)
        return;
    int list = (int)(at - kinds);
    if (list >= 2 && (rule.kind == RULE_ADDR || rule.methods || rule.path.n))
        return;
    if (w->counts[level][list] < 255)
        w->lists[level][list][w->counts[level][list]++] = arena_memdup0(&w->arena, text.p, text.n);
}

/* In the order that the compiler promises. */
static void lay_out(struct world *w)
{
    static const int order[] = { 1, 0, 2, 3 };
    bool locked = false;

    w->naive.count = 0;
    w->naive.mode = w->mode;
    for (int level = 0; level < LEVELS; level++) {
        for (int k = 0; k < 4; k++) {
            int list = order[k];

            for (size_t i = 0; i < w->counts[level][list] && (list == 1 || !locked); i++) {
                struct naive_rule *rule = &w->naive.rules[w->naive.count++];

                snprintf(rule->text, sizeof(rule->text), "%s", w->lists[level][list][i]);
                rule->list = "adiu"[list];
                rule->level = level;
            }
        }
        locked = locked || w->locked[level];
    }
}

static void compile(const struct world *w, struct buf *out)
{
    struct policy_layer layers[LEVELS] = { 0 };

    for (int level = 0; level < LEVELS; level++)
        layers[level] = (struct policy_layer){ .present = true,
                                               .locked = w->locked[level],
                                               .allow = w->lists[level][0],
                                               .deny = w->lists[level][1],
                                               .intercept = w->lists[level][2],
                                               .unchecked = w->lists[level][3] };
    layers[0].mode = w->mode == 'o'   ? POLICY_MODE_OPEN
                     : w->mode == 'a' ? POLICY_MODE_ASK
                                      : POLICY_MODE_DENY;
    must(policy_compile(layers, 7, out, NULL) == 0);
}

static void ask(const struct world *w, const struct policy *policy, struct str line)
{
    struct str rest = str_from(line, 2), target = str_cut(&rest, ' '), view = str_cut(&rest, ' ');
    struct str method = str_cut(&rest, ' ');
    char method_text[300], path[2048];
    struct host host;
    uint16_t port;

    if (host_port_parse(target, 443, &host, &port, NULL) < 0 || view.n != 1 || method.n > 200 ||
        rest.n > 2000 || str_has_nul(rest) || str_has_nul(method) ||
        (method.n && memchr(method.p, ',', method.n)))
        return;
    if (host.kind == HOST_ADDR && addr_class(&host.addr) != ADDR_PUBLIC)
        return;
    snprintf(method_text, sizeof(method_text), "%.*s", STR_FMT(method));
    snprintf(path, sizeof(path), "%.*s", STR_FMT(rest));
    struct naive_question nq = { .is_addr = host.kind == HOST_ADDR,
                                 .port = port,
                                 .view = view.p[0],
                                 .method = method_text,
                                 .path = path };
    snprintf(nq.host, sizeof(nq.host), "%s", host.text);
    if (!memchr("opr", nq.view, 3))
        return;
    struct policy_question question = { .host = &host,
                                        .port = port,
                                        .view = nq.view == 'o'   ? POLICY_OPAQUE
                                                : nq.view == 'p' ? POLICY_PEEK
                                                                 : POLICY_REQUEST,
                                        .method = rule_method(method),
                                        .path = rest };
    struct naive_answer want = naive_decide(&w->naive, &nq);
    struct policy_answer got;
    policy_decide(policy, &question, &got);
    must("da?"[got.verdict] == want.verdict);
    must(want.index < 0 || (got.has_rule && got.index == (uint32_t)want.index));
    must(got.intercept == want.intercept && got.unchecked == want.unchecked);
}

static void lines(struct str text, struct world *w, const struct policy *policy)
{
    for (struct str rest = text; rest.n;) {
        struct str line = str_cut(&rest, '\n');

        if (line.n < 2 || str_has_nul(line))
            continue;
        if (policy && line.p[0] == 'q')
            ask(w, policy, line);
        else if (!policy && line.p[0] == 'm')
            w->mode = line.p[1];
        else if (!policy && line.p[0] == 'l' && line.p[1] >= '0' && line.p[1] < '0' + LEVELS)
            w->locked[line.p[1] - '0'] = true;
        else if (!policy && line.n > 3 && line.p[2] == ' ')
            add_rule(w, line);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = { (const char *)data, size };
    static struct world w;
    autobuf struct buf bytes = { 0 };
    struct policy policy;

    if (size && data[0] == 0xff) {
        hostile_bytes(str_from(text, 1));
        return 0;
    }
    if (size && data[0] == 0xfe) {
        check_host(str_from(text, 1));
        check_rule(str_from(text, 1));
        check_url(str_from(text, 1));
        return 0;
    }
    memset(w.lists, 0, sizeof(w.lists));
    memset(w.counts, 0, sizeof(w.counts));
    memset(w.locked, 0, sizeof(w.locked));
    w.mode = 'd';
    lines(text, &w, NULL);
    lay_out(&w);
    compile(&w, &bytes);
    must(policy_open(&policy, bytes.data, bytes.len, NULL) == 0);
    must(policy.rule_count == (uint32_t)w.naive.count);
    lines(text, &w, &policy);
    arena_free(&w.arena);
    w.arena = (struct arena){ 0 };
    return 0;
}
