/*
 * Plain HTTP, and CONNECT. Each request is read strictly (http/h1.h), judged by itself, and
 * composed anew from what was understood; its answer likewise (http/origin.h). So whatever two
 * readers could take in two ways never gets to the second. Every request has a connection of its
 * own to the far end: nothing is left on it for the next.
 *
 * Who a request is to: of a proxy's, what its target says and nothing else; of one on port 80, the
 * name that the address stands for; of one in a tunnel, the host of the tunnel. Host must say the
 * same.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/json.h"
#include "base/mem.h"
#include "egress/own.h"
#include "http/h1.h"
#include "http/origin.h"

#define READ_SIZE 8192

struct http {
    struct h1_resume resume;
    struct h1_head head;
    struct arena arena; /* of the head */
    struct origin origin;
    struct h1_chunks chunks;
    struct creds *creds;    /* shared: those of the sandbox when it was composed */
    struct creds_plan plan; /* which of them go into it */
    struct buf held;        /* of the answer's body: what may be the beginning of a secret */
    uint64_t left;          /* of the request's body, if it is not in chunks */
    bool body_done;         /* all of it was taken from inside */
    bool continued;         /* 100 was said, or is not waited for */
    bool begun;             /* the answer's head went out */
    bool in_chunks;         /* the answer goes out in chunks */
    bool keep;              /* another request may follow */
    bool upgrade;           /* it wants to go on as WebSocket… */
    bool raw;               /* …and may */
};

void http_free(struct conn *conn)
{
    if (!conn->http)
        return;
    arena_free(&conn->http->arena);
    buf_free(&conn->http->held);
    creds_free(conn->http->creds);
    origin_free(&conn->http->origin);
    free(conn->http);
    conn->http = NULL;
}

/* ---- answers of our own ---- */

/* `fields`: more lines of the head. */
static void say_reply(struct conn *conn, int status, const char *reason, struct str fields,
                      struct str body)
{
    buf_printf(&conn->out,
               "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
               "Cache-Control: no-store\r\nConnection: close\r\n",
               status, reason, body.n);
    buf_str(&conn->out, fields);
    buf_puts(&conn->out, "\r\n");
    buf_str(&conn->out, body);
}

void http_answer(struct conn *conn, int status, const char *reason, struct str body)
{
    say_reply(conn, status, reason, STR_NONE, body);
}

const struct h1_head *http_head_of(const struct conn *conn)
{
    return &conn->http->head;
}

static const struct {
    int status;
    const char *reason, *code;
} refusals[EGRESS_VERDICTS] = {
    [EGRESS_DENIED] = { 403, "Blocked by the egress policy", "egress_denied" },
    [EGRESS_REFUSED] = { 403, "Forbidden", "egress_refused" },
    [EGRESS_MALFORMED] = { 400, "Bad Request", "malformed" },
    [EGRESS_MISLED] = { 403, "Forbidden", "egress_misled" },
    [EGRESS_UNRESOLVED] = { 502, "Bad Gateway", "unresolved" },
    [EGRESS_UNREACHED] = { 502, "Bad Gateway", "unreached" },
    [EGRESS_DISTRUSTED] = { 502, "Bad Gateway", "distrusted" },
    [EGRESS_LIMITED] = { 429, "Too Many Requests", "egress_limited" },
    [EGRESS_TIMED_OUT] = { 504, "Gateway Timeout", "egress_timeout" },
};

void http_refusal(struct conn *conn, enum egress_verdict verdict,
                  const struct policy_answer *answer, const char *text)
{
    autobuf struct buf body = { 0 }, fields = { 0 };
    struct json_out out = json_to(&body);
    char why[POLICY_TEXT_SIZE], name[HOST_PORT_SIZE];

    if (conn->http && conn->http->begun)
        return; /* too late for a word */
    if (answer && !text) {
        policy_say(answer, why);
        text = why;
    }
    json_open(&out, '{');
    json_key(&out, "error");
    json_open(&out, '{');
    json_kv_text(&out, "code", refusals[verdict].code);
    json_kv_text(&out, "message", text ? text : "");
    json_kv_str(&out, "host", host_str(&conn->host));
    json_kv_int(&out, "port", conn->port);
    json_kv_str(&out, "rule", answer ? answer->rule : STR_NONE);
    if (conn->box->egress->signer)
        json_kv_text(&out, "session", signed_session(conn->box));
    else
        json_kv_text(&out, "sandbox", conn->box->id);
    if (!conn->box->egress->signer && verdict == EGRESS_DENIED && conn->host.kind != HOST_NONE) {
        host_port_text(&conn->host, conn->port == 80 || conn->port == 443 ? 0 : conn->port, name);
        json_key(&out, "ask");
        autobuf struct buf ask = { 0 };
        buf_printf(&ask, "atoll egress allow %s %s", conn->box->id, name);
        buf_printf(&fields, "Atoll-Egress-Allow: %.*s\r\n", STR_FMT(buf_view(&ask)));
        json_put_str(&out, buf_view(&ask));
    }
    json_close(&out, '}');
    json_close(&out, '}');
    buf_putc(&body, '\n');
    buf_printf(&fields, "Atoll-Egress: %s\r\n", refusals[verdict].code);
    say_reply(conn, refusals[verdict].status, refusals[verdict].reason, buf_view(&fields),
              buf_view(&body));
}

static void refuse(struct conn *conn, const char *text)
{
    conn->request++;
    conn_refuse(conn, EGRESS_MALFORMED, NULL, text);
}

/* ---- the request ---- */

static bool is_proxy(const struct conn *conn)
{
    return conn->to_port == EGRESS_PORT && !conn->opened && !conn->in_tunnel;
}

static bool has_prefix(struct str text, const char *prefix)
{
    struct str want = str_of(prefix);

    return text.n >= want.n && str_eq_nocase((struct str){ text.p, want.n }, want);
}

/* CONNECT is not a request that is passed on: its fields mean nothing, and it has no body. */
static void connect_head(struct conn *conn, const struct h1_head *head, size_t len)
{
    struct err err = { 0 };
    char why[ERR_MSG_SIZE];

    conn->kind = EGRESS_KIND_CONNECT;
    for (size_t i = 0; i < head->count && guard(connect_body); i++)
        if (str_eq_nocase(head->headers[i].name, STR("content-length")) ||
            str_eq_nocase(head->headers[i].name, STR("transfer-encoding"))) {
            refuse(conn, "CONNECT with a body");
            return;
        }
    if (head->version != HTTP_1_1 && head->version != HTTP_1_0) {
        refuse(conn, "CONNECT of another version");
        return;
    }
    if (host_port_parse(head->target, 0, &conn->host, &conn->port, &err) < 0) {
        snprintf(why, sizeof(why), "%s", err.msg);
        refuse(conn, why);
        return;
    }
    buf_consume(&conn->in, len);
    http_free(conn); /* from here on it is a tunnel */
    if (intercept_takes(conn))
        return;
    conn_decide(conn, POLICY_OPAQUE, 0, STR_NONE);
}

/* NULL: conn->host and port are who it is to. */
static const char *authority(struct conn *conn, const struct h1_head *head, struct err *err)
{
    uint16_t port, usual = conn->in_tunnel ? conn->port : conn->opened ? 443 : 80;
    struct host host;

    if (host_port_parse(head->host, usual, &host, &port, err) < 0)
        return err->msg;
    if (is_proxy(conn)) {
        conn->host = host;
        conn->port = port;
        return NULL;
    }
    return (host_eq(&host, &conn->host) && port == conn->port) || !guard(host_field)
               ? NULL
               : "Host is not the host that the connection is for";
}

static bool passed_on(const struct h1_head *head, const struct http_header *field)
{
    static const char *const own[] = { "host", "content-length", "expect", "via", "forwarded" };

    if ((header_is_hop(field->name) || has_prefix(field->name, "proxy-")) && guard(proxy_fields))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (str_eq_nocase(field->name, str_of(own[i])))
            return false;
    for (size_t i = 0; i < head->count; i++)
        if (str_is(head->fields[i].name, "connection") &&
            header_lists(head->fields[i].value, field->name))
            return false;
    return true;
}

/* As it came, with a credential in the place of its placeholder, or not at all. */
static void put_field(struct conn *conn, const struct http_header *field)
{
    const struct creds_plan *plan = &conn->http->plan;
    size_t start = conn->ahead.len;

    if (creds_any(plan) && (str_eq_nocase(field->name, STR("accept-encoding")) ||
                            str_eq_nocase(field->name, STR("sec-websocket-extensions"))))
        return; /* the answer is looked through, so it must come as it is */
    buf_str(&conn->ahead, field->name);
    buf_puts(&conn->ahead, ": ");
    switch (creds_header(plan, field->name, field->value, &conn->ahead)) {
    case CREDS_DROP:
        conn->ahead.len = start;
        return;
    case CREDS_KEEP:
        buf_str(&conn->ahead, field->value);
        break;
    case CREDS_CHANGED:
        break;
    }
    buf_puts(&conn->ahead, "\r\n");
}

static void compose(struct conn *conn)
{
    const struct h1_head *head = &conn->http->head;
    char name[HOST_PORT_SIZE];

    conn->http->creds = creds_ref(conn->box->creds);
    conn->http->plan = creds_plan(conn->http->creds,
                                  &(struct inject_question){ .host = &conn->host,
                                                             .port = conn->port,
                                                             .tls = conn->opened == OPENED_YES,
                                                             .method = rule_method(head->method),
                                                             .path = head->target });
    host_port_text(&conn->host, conn->port == (conn->opened ? 443 : 80) ? 0 : conn->port, name);
    buf_str(&conn->ahead, head->method);
    buf_putc(&conn->ahead, ' ');
    buf_str(&conn->ahead, head->target);
    buf_printf(&conn->ahead, " HTTP/1.1\r\nHost: %s\r\n%s", name,
               conn->http->upgrade     ? "Connection: Upgrade\r\nUpgrade: websocket\r\n"
               : guard(own_connection) ? "Connection: close\r\n"
                                       : "");
    for (size_t i = 0; i < head->count; i++)
        if (passed_on(head, &head->fields[i]))
            put_field(conn, &head->fields[i]);
    creds_add(&conn->http->plan, &conn->ahead);
    if (creds_any(&conn->http->plan))
        buf_puts(&conn->ahead, "Accept-Encoding: identity\r\n");
    if (head->body_size < 0)
        buf_puts(&conn->ahead, "Transfer-Encoding: chunked\r\n");
    else if (head->body_size > 0 || str_is(head->method, "POST") || str_is(head->method, "PUT"))
        buf_printf(&conn->ahead, "Content-Length: %lld\r\n", (long long)head->body_size);
    buf_puts(&conn->ahead, "\r\n");
}

/* RFC 6455; anything else that a connection might become is not passed on. */
static bool wants_websocket(const struct h1_head *head)
{
    bool upgrade = false, websocket = false;

    for (size_t i = 0; i < head->count; i++) {
        const struct http_header *field = &head->fields[i];

        upgrade = upgrade ||
                  (str_is(field->name, "connection") && header_lists(field->value, STR("upgrade")));
        websocket = websocket || (str_is(field->name, "upgrade") &&
                                  str_eq_nocase(field->value, STR("websocket")));
    }
    return upgrade && websocket && str_is(head->method, "GET") && head->body_size == 0 &&
           head->version == HTTP_1_1;
}

static void request(struct conn *conn)
{
    struct http *http = conn->http;
    struct err err = { 0 };
    const char *why = authority(conn, &http->head, &err);

    if (why && err.code) {
        refuse(conn, why);
        return;
    }
    if (why) {
        conn->request++;
        conn_refuse(conn, EGRESS_MISLED, NULL, why);
        return;
    }
    if (!conn->box->egress->signer && conn->port == 80 &&
        str_is(host_str(&conn->host), EGRESS_NAME)) {
        self_asked(conn);
        return;
    }
    if (str_is(http->head.method, "TRACE") && guard(trace)) {
        refuse(conn, "TRACE is not passed on");
        return;
    }
    http->origin.to_head = str_is(http->head.method, "HEAD");
    http->upgrade = http->origin.may_switch = wants_websocket(&http->head);
    http->keep = http->head.keep_alive && http->head.version == HTTP_1_1;
    http->left = http->head.body_size > 0 ? (uint64_t)http->head.body_size : 0;
    http->body_done = http->head.body_size == 0;
    http->continued = !http->head.expect_continue;
    conn_decide(conn, POLICY_REQUEST, rule_method(http->head.method), http->head.target);
}

void http_head(struct conn *conn)
{
    struct http *http = conn->http ? conn->http : xnew(struct http);
    const struct h1_bad *bad = NULL;

    conn->http = http;
    int len = h1_head_scan(conn->in.data, conn->in.len, &http->resume, &http->head, &bad);
    if (len == 0 && conn->in.len <= HTTP_HEAD_MAX) {
        conn_wants(conn, EPOLLIN | (conn->out.len ? EPOLLOUT : 0), 0);
        return;
    }
    if (len <= 0) {
        refuse(conn, bad ? bad->text : "the head is too long");
        return;
    }
    if (guard(said_before))
        egress_hear(conn->box->egress);
    if (conn->box->egress->signer && is_proxy(conn) && !signed_enter(conn, &http->head))
        return;
    if (is_proxy(conn) && str_is(http->head.method, "CONNECT")) {
        connect_head(conn, &http->head, (size_t)len);
        return;
    }
    /* A proxy is asked by the whole address; whoever speaks to a server does not say it. */
    if (is_proxy(conn) != has_prefix(http->head.target, "http://")) {
        refuse(conn, is_proxy(conn) ? "a proxy takes http://HOST/ and CONNECT"
                                    : "a request for a proxy, which this is not");
        return;
    }
    if (h1_head_finish(&http->arena, conn->in.data, (size_t)len, &http->head, &bad) < 0) {
        refuse(conn, bad->text);
        return;
    }
    buf_consume(&conn->in, (size_t)len);
    if (conn->kind == EGRESS_KIND_SELF)
        self_asked(conn);
    else
        request(conn);
}

/* ---- bytes both ways ---- */

/* The request is over: the next one, or the end. */
static void finished(struct conn *conn)
{
    bool keep = conn->http->keep && conn->http->body_done;

    conn_up_close(conn);
    http_free(conn);
    buf_clear(&conn->ahead);
    if (!keep) {
        conn_end(conn);
        return;
    }
    conn_flush(conn);
    conn_stage(conn, STAGE_HEAD, EGRESS_IDLE_MS);
    conn_wants(conn, EPOLLIN | (conn->out.len ? EPOLLOUT : 0), 0);
    if (conn->in.len)
        http_head(conn);
}

static void put_chunk(struct buf *out, struct str data)
{
    buf_printf(out, "%zx\r\n", data.n);
    buf_str(out, data);
    buf_puts(out, "\r\n");
}

/* Takes what there is of the body from conn->in; false: it is none. */
static bool body_forward(struct conn *conn)
{
    struct http *http = conn->http;
    const struct h1_bad *bad;

    if (http->raw && conn->ahead.len < EGRESS_IN_MAX) {
        buf_str(&conn->ahead, buf_view(&conn->in));
        buf_clear(&conn->in);
    }
    while (!http->body_done && conn->in.len && conn->ahead.len < EGRESS_IN_MAX) {
        struct str piece = { conn->in.data, MIN(conn->in.len, http->left) };
        int64_t taken = (int64_t)piece.n;

        if (http->head.body_size < 0) {
            taken = h1_chunks_next(&http->chunks, conn->in.data, conn->in.len, &piece,
                                   &http->body_done, &bad);
            if (taken < 0)
                return false;
            if (piece.n)
                put_chunk(&conn->ahead, piece);
            if (http->body_done)
                buf_puts(&conn->ahead, "0\r\n\r\n");
        } else {
            buf_str(&conn->ahead, piece);
            http->left -= piece.n;
            http->body_done = http->left == 0;
        }
        buf_consume(&conn->in, (size_t)taken);
        if (!taken)
            break;
    }
    return true;
}

/* A field that the origin's Connection lists is for its next hop, which is here. */
static bool passed_back(const struct origin *origin, const struct http_header *field)
{
    bool length = str_is(field->name, "content-length");

    if (header_is_hop(field->name) || has_prefix(field->name, "proxy-") ||
        (length && !origin->to_head))
        return false;
    for (size_t i = 0; i < origin->count; i++)
        if (str_is(origin->headers[i].name, "connection") &&
            header_lists(origin->headers[i].value, field->name))
            return false;
    return true;
}

static void answer_head(struct conn *conn)
{
    struct http *http = conn->http;
    const struct origin *origin = &http->origin;
    size_t start = conn->out.len;

    http->begun = true;
    http->raw = origin->status == 101;
    if (http->raw)
        http->keep = false;
    http->in_chunks = !http->raw &&
                      (origin->framing == FRAMED_CHUNKED || origin->framing == FRAMED_CLOSE) &&
                      http->head.version == HTTP_1_1;
    if (origin->framing == FRAMED_CLOSE && !http->in_chunks)
        http->keep = false;
    if (origin->framing == FRAMED_CHUNKED && !http->in_chunks)
        http->keep = false;
    buf_printf(&conn->out, "HTTP/1.1 %d \r\n", origin->status);
    for (size_t i = 0; i < origin->count; i++) {
        const struct http_header *field = &origin->headers[i];

        if (!passed_back(origin, field))
            continue;
        buf_str(&conn->out, field->name);
        buf_puts(&conn->out, ": ");
        buf_str(&conn->out, field->value);
        buf_puts(&conn->out, "\r\n");
    }
    if (http->raw)
        buf_puts(&conn->out, "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    else if (http->in_chunks)
        buf_puts(&conn->out, "Transfer-Encoding: chunked\r\n");
    else if (origin->framing == FRAMED_LENGTH)
        buf_printf(&conn->out, "Content-Length: %llu\r\n", (unsigned long long)origin->left);
    if (!http->raw)
        buf_puts(&conn->out, http->keep ? "\r\n" : "Connection: close\r\n\r\n");
    creds_hide(http->creds, conn->out.data + start, conn->out.len - start);
}

static void put_body(struct conn *conn, struct str piece)
{
    if (!piece.n)
        return;
    if (conn->http->in_chunks)
        put_chunk(&conn->out, piece);
    else
        buf_str(&conn->out, piece);
}

/* What could be the beginning of a secret is held back until more has come. */
static void answer_body(struct conn *conn, struct str piece, bool end)
{
    struct http *http = conn->http;

    if (!creds_any(&http->plan)) {
        put_body(conn, piece);
        return;
    }
    if (http->raw) { /* who waits for a message gets it: only what comes in one piece is found */
        size_t start = conn->out.len;

        put_body(conn, piece);
        creds_hide(http->creds, conn->out.data + start, conn->out.len - start);
        return;
    }
    buf_str(&http->held, piece);
    size_t pass = creds_scrub(http->creds, http->held.data, http->held.len, end);
    put_body(conn, (struct str){ http->held.data, pass });
    buf_consume(&http->held, pass);
}

static void answer_end(struct conn *conn)
{
    answer_body(conn, STR_NONE, true);
    if (conn->http->in_chunks)
        buf_puts(&conn->out, "0\r\n\r\n");
    finished(conn);
}

/* False: the connection is no more. */
static bool answer_take(struct conn *conn, struct str data)
{
    struct http *http = conn->http;
    struct err err = { 0 };
    struct str piece;

    for (;;) {
        switch (origin_next(&http->origin, &data, &piece, &err)) {
        case ORIGIN_BAD:
            conn_refuse(conn, EGRESS_UNREACHED, NULL, "the answer is malformed");
            return false;
        case ORIGIN_MORE:
            return true;
        case ORIGIN_HEAD:
            answer_head(conn);
            break;
        case ORIGIN_DATA:
            answer_body(conn, piece, false);
            break;
        case ORIGIN_END:
            answer_end(conn);
            return false;
        }
    }
}

/* The far end has closed. */
static void answer_over(struct conn *conn)
{
    struct http *http = conn->http;

    if (!http->begun) {
        conn_refuse(conn, EGRESS_UNREACHED, NULL, "the far end closed without an answer");
    } else if (!origin_closed(&http->origin)) {
        conn_close(conn); /* cut, so that nobody takes it for whole */
    } else {
        answer_end(conn);
    }
}

/* An answer that has begun is cut, so that nobody takes it for whole. */
static void over_limit(struct conn *conn)
{
    if (conn->http->begun)
        buf_clear(&conn->out);
    conn_over_limit(conn);
}

static bool read_up(struct conn *conn)
{
    char data[READ_SIZE];
    size_t most = conn_may_take(conn, conn->up.fd, sizeof(data));

    if (!most) {
        over_limit(conn);
        return false;
    }
    ssize_t got = conn_get(conn, false, data, most);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0) {
        answer_over(conn);
        return false;
    }
    conn->received += (uint64_t)got;
    box_uses(conn->box, (size_t)got);
    return answer_take(conn, (struct str){ data, (size_t)got });
}

/* False: the connection is no more. */
static bool write_up(struct conn *conn)
{
    size_t most = (size_t)MIN(conn->ahead.len, box_left(conn->box));

    if (!most) {
        over_limit(conn);
        return false;
    }
    ssize_t put = conn_put(conn, false, conn->ahead.data, most);
    if (put < 0 && (errno == EAGAIN || errno == EINTR || errno == EPIPE || errno == ECONNRESET))
        return true;
    if (put < 0) {
        conn_close(conn);
        return false;
    }
    conn->sent += (uint64_t)put;
    box_uses(conn->box, (size_t)put);
    buf_consume(&conn->ahead, (size_t)put);
    return true;
}

static void wants(struct conn *conn)
{
    bool body = (!conn->http->body_done || conn->http->raw) && conn->ahead.len < EGRESS_IN_MAX;

    conn_wants(conn, (body ? EPOLLIN : 0) | (conn->out.len ? EPOLLOUT : 0),
               (conn->out.len < EGRESS_IN_MAX ? EPOLLIN : 0) | (conn->ahead.len ? EPOLLOUT : 0));
}

/* Models think for minutes before the first byte, and pause in the middle of a stream. */
static int64_t patience(const struct conn *conn)
{
    const struct egress_config *config = &conn->box->egress->config;

    if (conn->http->begun)
        return config->stream_ms ? config->stream_ms : EGRESS_STREAM_MS;
    return config->answer_ms ? config->answer_ms : EGRESS_ANSWER_MS;
}

void http_late(struct conn *conn)
{
    char why[96];

    snprintf(why, sizeof(why),
             conn->http->begun ? "the answer stopped: no byte has come for %lld s"
                               : "the host has not answered for %lld s",
             (long long)patience(conn) / 1000);
    if (conn->http->begun)
        buf_clear(&conn->out); /* cut, so that nobody takes it for whole */
    conn_refuse(conn, EGRESS_TIMED_OUT, NULL, why);
}

void http_woken(struct conn *conn, bool down, uint32_t events)
{
    conn_timer(conn, conn->http->raw ? 0 : patience(conn)); /* as tunnels: as long as they like */
    if (down && events & (EPOLLERR | EPOLLHUP)) {
        conn_close(conn);
        return;
    }
    if (down && events & EPOLLIN && !conn_read(conn, EGRESS_IN_MAX))
        return;
    if (!body_forward(conn)) {
        conn_refuse(conn, EGRESS_MALFORMED, NULL, "malformed body");
        return;
    }
    if (!down && events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !read_up(conn))
        return;
    if (conn->ahead.len && !write_up(conn))
        return;
    conn_flush(conn);
    wants(conn);
}

void http_connected(struct conn *conn)
{
    compose(conn);
    if (!conn->http->continued)
        buf_puts(&conn->out, "HTTP/1.1 100 Continue\r\n\r\n");
    conn_stage(conn, STAGE_HTTP, patience(conn));
    http_woken(conn, true, 0);
}
