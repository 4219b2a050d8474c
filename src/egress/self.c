/*
 * http://atoll.internal/: the one thing of the server that programs inside can talk to. It is
 * narrow: who they are, what they may reach, a way to ask people for more, and a few routes of the
 * hub, as the one agent that an operator has made of the sandbox. What this process knows it says
 * itself; the rest is asked of the api process by a message (wire/egress.h). Whose it is, is the
 * socket that it came in by.
 *
 *   request ─▶ route ─▶ answered here
 *                  └──▶ body ─▶ EGRESS_OWN ~ api ~ EGRESS_TOLD ─▶ answered
 */
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"
#include "egress/own.h"
#include "http/h1.h"

/* ---- answers ---- */

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = { { 200, "OK" },
                    { 201, "Created" },
                    { 202, "Accepted" },
                    { 400, "Bad Request" },
                    { 403, "Forbidden" },
                    { 404, "Not Found" },
                    { 405, "Method Not Allowed" },
                    { 409, "Conflict" },
                    { 411, "Length Required" },
                    { 413, "Content Too Large" },
                    { 429, "Too Many Requests" },
                    { 503, "Service Unavailable" } };

    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Answer";
}

static void reply(struct conn *conn, int status, struct str body)
{
    http_answer(conn, status, reason_of(status), body);
    conn_end(conn);
}

static void fail(struct conn *conn, int status, const char *code, const char *message)
{
    autobuf struct buf body = { 0 };
    struct json_out out = json_to(&body);

    json_open(&out, '{');
    json_key(&out, "error");
    json_open(&out, '{');
    json_kv_text(&out, "code", code);
    json_kv_text(&out, "message", message);
    json_close(&out, '}');
    json_close(&out, '}');
    buf_putc(&body, '\n');
    reply(conn, status, buf_view(&body));
}

static void put_limits(struct conn *conn, struct json_out *out)
{
    const struct box *box = conn->box;

    json_kv_int(out, "max_bytes", (int64_t)box->policy.max_bytes);
    json_kv_int(out, "used_bytes", box->kept ? (int64_t)box->kept->bytes : 0);
    json_kv_int(out, "max_connections", box->policy.max_connections);
    json_kv_int(out, "connections", box->conn_count);
}

static void get_self(struct conn *conn)
{
    autobuf struct buf body = { 0 };
    struct json_out out = json_to(&body);

    json_open(&out, '{');
    json_kv_text(&out, "sandbox", conn->box->id);
    json_kv_text(&out, "egress_mode", policy_mode_name(conn->box->policy.mode));
    json_kv_int(&out, "policy_version", (int64_t)conn->box->policy.version);
    json_kv_int(&out, "rules", conn->box->policy.rule_count);
    json_close(&out, '}');
    buf_putc(&body, '\n');
    reply(conn, 200, buf_view(&body));
}

static void get_policy(struct conn *conn)
{
    const struct policy *policy = &conn->box->policy;
    autobuf struct buf body = { 0 };
    struct json_out out = json_to(&body);

    json_open(&out, '{');
    json_kv_text(&out, "mode", policy_mode_name(policy->mode));
    json_kv_int(&out, "version", (int64_t)policy->version);
    put_limits(conn, &out);
    json_key(&out, "rules");
    json_open(&out, '[');
    for (uint32_t i = 0; i < policy->rule_count; i++) {
        struct policy_rule rule = policy_rule_at(policy, i);

        json_open(&out, '{');
        json_kv_text(&out, "list", rule.list);
        json_kv_str(&out, "rule", rule.text);
        json_kv_text(&out, "level", policy_level_name(rule.level));
        json_close(&out, '}');
    }
    json_close(&out, ']');
    json_close(&out, '}');
    buf_putc(&body, '\n');
    reply(conn, 200, buf_view(&body));
}

static void put_budget(struct json_out *out, const char *name, uint64_t allowed, uint64_t used)
{
    json_key(out, name);
    json_open(out, '{');
    json_key(out, "allowed");
    if (allowed)
        json_put_int(out, (int64_t)allowed);
    else
        json_put_null(out);
    json_kv_int(out, "used", (int64_t)used);
    json_key(out, "left");
    if (allowed)
        json_put_int(out, used < allowed ? (int64_t)(allowed - used) : 0);
    else
        json_put_null(out);
    json_close(out, '}');
}

/* All that is kept of it for now; null: as much as it likes. */
static void get_budget(struct conn *conn)
{
    const struct box *box = conn->box;
    autobuf struct buf body = { 0 };
    struct json_out out = json_to(&body);

    json_open(&out, '{');
    put_budget(&out, "bytes", box->policy.max_bytes, box->kept ? box->kept->bytes : 0);
    put_budget(&out, "connections", box_conns_max(box), box->conn_count);
    json_close(&out, '}');
    buf_putc(&body, '\n');
    reply(conn, 200, buf_view(&body));
}

/* ---- questions ---- */

static void put_text(char *out, size_t size, struct str text)
{
    size_t len = MIN(text.n, size - 1);

    memcpy(out, text.p ? text.p : "", len);
    out[len] = 0;
}

static void wish(struct conn *conn, struct egress_own *own)
{
    conn_ask_begin(conn);
    conn_stage(conn, STAGE_SELF, EGRESS_SELF_MS);
    conn_wants(conn, 0, 0);
    if (record_own(conn, own))
        return;
    conn_ask_over(conn);
    fail(conn, 503, "unavailable", "nobody can be asked now; try again");
}

void self_told(struct egress *egress, uint32_t number, int status, struct str body)
{
    struct conn *conn = conn_by_ask(egress, number);

    if (!conn || conn->stage != STAGE_SELF)
        return; /* it did not wait so long */
    conn_ask_over(conn);
    reply(conn, status, body);
}

void self_late(struct conn *conn)
{
    conn_ask_over(conn);
    fail(conn, 503, "unavailable", "no answer in time; try again");
}

static void get_asks(struct conn *conn)
{
    wish(conn, &(struct egress_own){ .wish = EGRESS_WISH_LIST });
}

static void get_ask(struct conn *conn, struct str id)
{
    struct egress_own own = { .wish = EGRESS_WISH_READ };

    if (!id_valid(id, "ask")) {
        fail(conn, 404, "not_found", "no such ask");
        return;
    }
    put_text(own.id, sizeof(own.id), id);
    wish(conn, &own);
}

/* It is shown to people, in terminals too. */
static bool printable(struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] < 32 || text.p[i] == 127)
            return false;
    return text.n < EGRESS_HOST_SIZE;
}

/* What is wrong with it; NULL: nothing. */
static const char *read_ask(struct str text, struct egress_own *own)
{
    autoarena struct arena arena = { 0 };
    struct json *doc = NULL;
    struct host host;

    if (json_parse(&arena, text, &doc, &(struct err){ 0 }) < 0 || doc->type != JSON_OBJECT)
        return "the body is {\"host\": NAME, \"port\": NUMBER, \"reason\": TEXT}";
    const struct json *port = json_get(doc, "port"), *reason = json_get(doc, "reason");
    if (host_parse_name(json_text(doc, "host"), &host, NULL) < 0)
        return "host: a name such as api.example.org, and no address";
    if (port && (port->type != JSON_INT || port->num < 1 || port->num > 65535))
        return "port: 1 to 65535; without it 80 and 443 are meant";
    if (reason && (reason->type != JSON_STRING || !printable(reason->text)))
        return "reason: a line of at most 255 bytes";
    own->wish = EGRESS_WISH_ASK;
    own->port = port ? (uint16_t)port->num : 0;
    put_text(own->host, sizeof(own->host), host_str(&host));
    put_text(own->reason, sizeof(own->reason), json_text(doc, "reason"));
    return NULL;
}

static void post_ask(struct conn *conn)
{
    struct egress_own own = { 0 };
    const char *why = read_ask(buf_view(&conn->in), &own);

    if (why)
        fail(conn, 400, "invalid", why);
    else
        wish(conn, &own);
}

/* ---- the hub ---- */

static const struct str hub_prefix = STR_INIT("/hub");

static bool is_hub(struct str path)
{
    return str_starts(path, hub_prefix) && (path.n == hub_prefix.n || path.p[hub_prefix.n] == '/');
}

/* As it came: the api process knows whom this sandbox may be, and reads it as any request. */
static void ask_hub(struct conn *conn)
{
    const struct h1_head *head = http_head_of(conn);
    struct str path = str_from(head->target, hub_prefix.n);

    if (!path.n || path.p[0] != '/')
        path = STR("/"); /* "/hub", perhaps with a query, which means nothing there */
    conn_ask_begin(conn);
    conn_stage(conn, STAGE_SELF, EGRESS_SELF_MS);
    conn_wants(conn, 0, 0);
    if (record_hub(conn, head->method, path, buf_view(&conn->in)))
        return;
    conn_ask_over(conn);
    fail(conn, 503, "unavailable", "nobody can be asked now; try again");
}

/* ---- bodies ---- */

static size_t body_max(const struct conn *conn)
{
    return is_hub(http_head_of(conn)->path) ? EGRESS_HUB_BODY_MAX : EGRESS_SELF_BODY_MAX;
}

static void with_body(struct conn *conn)
{
    conn->in.len = (size_t)http_head_of(conn)->body_size;
    if (is_hub(http_head_of(conn)->path))
        ask_hub(conn);
    else
        post_ask(conn);
}

void self_woken(struct conn *conn)
{
    if (!conn_read(conn, body_max(conn)))
        return;
    if (conn->in.len >= (size_t)http_head_of(conn)->body_size)
        with_body(conn);
}

static void begin_body(struct conn *conn)
{
    int64_t size = http_head_of(conn)->body_size;
    char text[48];

    if (size < 0) {
        fail(conn, 411, "length_required", "say the length of the body");
    } else if ((uint64_t)size > body_max(conn)) {
        snprintf(text, sizeof(text), "a body has at most %zu bytes", body_max(conn));
        fail(conn, 413, "too_large", text);
    } else if (conn->in.len >= (size_t)size) {
        with_body(conn);
    } else {
        conn_stage(conn, STAGE_SELF, EGRESS_HEAD_MS);
        conn_wants(conn, EPOLLIN, 0);
    }
}

static void begin_hub(struct conn *conn)
{
    const struct h1_head *head = http_head_of(conn);

    if (!str_is(head->method, "GET") && !str_is(head->method, "POST") &&
        !str_is(head->method, "PATCH") && !str_is(head->method, "DELETE"))
        fail(conn, 405, "method_not_allowed", "not by this method");
    else if (head->target.n > hub_prefix.n + EGRESS_HUB_PATH_MAX)
        fail(conn, 400, "invalid", "the path is too long");
    else
        begin_body(conn);
}

/* ---- routes ---- */

static const struct {
    const char *method, *path;
    void (*fn)(struct conn *conn);
} routes[] = {
    { "GET", "/", get_self },         { "GET", "/policy", get_policy },
    { "GET", "/budget", get_budget }, { "GET", "/asks", get_asks },
    { "POST", "/asks", begin_body },
};

static bool within_rate(struct box *box)
{
    int64_t now = loop_now(box->egress->loop);

    if (now - box->self_ms >= 1000) {
        box->self_ms = now;
        box->self_count = 0;
    }
    return box->self_count++ < EGRESS_SELF_PER_SECOND;
}

void self_asked(struct conn *conn)
{
    const struct h1_head *head = http_head_of(conn);
    static const struct str asks = STR_INIT("/asks/");
    bool known = false;

    conn->kind = EGRESS_KIND_SELF;
    if (!within_rate(conn->box) && guard(self_rate)) {
        char text[64];

        snprintf(text, sizeof(text), "at most %d requests in a second", EGRESS_SELF_PER_SECOND);
        fail(conn, 429, "too_many_requests", text);
        return;
    }
    if (is_hub(head->path)) {
        begin_hub(conn);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!str_is(head->path, routes[i].path))
            continue;
        known = true;
        if (str_is(head->method, routes[i].method)) {
            routes[i].fn(conn);
            return;
        }
    }
    if (str_starts(head->path, asks) && str_is(head->method, "GET"))
        get_ask(conn, str_from(head->path, asks.n));
    else if (known || str_starts(head->path, asks))
        fail(conn, 405, "method_not_allowed", "not by this method");
    else
        fail(conn, 404, "not_found", "there are /, /policy, /budget, /asks, /asks/ID and /hub");
}
