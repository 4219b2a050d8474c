/*
 * The calls of http.h, and what is the same for both protocols behind them: when the application is
 * called, how a body is collected, held or limited, how our own refusals look, and when a request
 * is over.
 *
 * `held` counts callbacks of the application under way for a stream. A request that ends inside one
 * of them (the usual case: on_request answers) is only marked; the stream is released when the
 * callback returns, so nobody up the stack stands on freed memory.
 */
#include <assert.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metric.h"
#include "http/h1.h"
#include "http/server.h"

METRIC_COUNTER(requests_total, "atoll_http_requests_total", "Requests ended, by answer", "status",
               "none", "1xx", "2xx", "3xx", "4xx", "5xx");
METRIC_HISTOGRAM(request_seconds, "atoll_http_request_seconds",
                 "Time from the end of the head to the end of the answer", 0.0001, 0.00025, 0.0005,
                 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30);

/* ---- life of a stream ---- */

void http_stream_init(struct http_stream *stream, const struct http_stream_ops *ops,
                      struct http_conn *conn)
{
    stream->ops = ops;
    stream->conn = conn;
    stream->req.stream = stream;
    stream->req.peer = &conn->peer;
    stream->req.started_us = clock_mono_us();
}

static void release(struct http_stream *stream)
{
    arena_free(&stream->req.arena);
    buf_free(&stream->body);
    stream->ops->release(stream);
}

/* Ends a callback of the application. False: the stream is not to be touched any more. */
static bool let_go(struct http_stream *stream)
{
    stream->held--;
    if (!stream->ended)
        return true;
    if (!stream->held)
        release(stream);
    return false;
}

void http_stream_end(struct http_stream *stream)
{
    if (stream->ended)
        return;
    stream->ended = true;
    stream->conn->patient -= stream->patient;
    metric_add(&requests_total, stream->status / 100u, 1);
    metric_observe_us(&request_seconds, clock_mono_us() - stream->req.started_us);
    if (!stream->held)
        release(stream);
}

/* Tells the application that it is out, once; the stream is held by the caller. */
static void tell_gone(struct http_stream *stream)
{
    void (*gone)(struct http_req * req) = stream->req.on_gone;

    stream->req.on_gone = NULL;
    stream->refused = true;
    if (stream->shown && gone)
        gone(&stream->req);
}

void http_stream_gone(struct http_stream *stream, const char *reason)
{
    if (stream->ended)
        return;
    log_debug("request lost", kv_str("peer", stream->conn->peer.text), kv_str("reason", reason));
    stream->held++;
    tell_gone(stream);
    http_stream_end(stream);
    (void)let_go(stream);
}

void http_stream_refuse_as(struct http_stream *stream, int status, const struct err *err)
{
    const struct http_app *app = http_conn_app(stream->conn);
    const struct http_header type = { STR("content-type"), STR("application/json") };
    autobuf struct buf body = { 0 };

    if (stream->ended)
        return;
    stream->held++;
    tell_gone(stream);
    if (stream->begun) {
        stream->ops->cut(stream, err->msg);
    } else {
        if (app->error_body)
            app->error_body(app->ctx, stream->req.path, err, &body);
        stream->begun = true;
        stream->status = (uint16_t)status;
        stream->ops->reply(stream, status, &type, body.len ? 1 : 0, buf_view(&body));
    }
    (void)let_go(stream);
}

void http_stream_refuse(struct http_stream *stream, const struct err *err)
{
    /* The code's own status is that of a gateway; here it is the client that is late. */
    http_stream_refuse_as(stream, err->code == ERR_TIMEOUT ? 408 : err_info(err->code)->http, err);
}

/* ---- requests and bodies ---- */

bool http_stream_request(struct http_stream *stream)
{
    const struct http_app *app = http_conn_app(stream->conn);

    stream->body_done = stream->req.body_size == 0;
    stream->shown = true;
    stream->held++;
    app->on_request(app->ctx, &stream->req);
    return let_go(stream) && http_stream_deliver(stream);
}

bool http_stream_wants(const struct http_stream *stream)
{
    return !stream->ended && stream->reading != HTTP_READ_NONE &&
           (stream->reading == HTTP_READ_ALL || !stream->paused);
}

/* Is the body longer than the application wants, or will it be? */
static bool over_limit(const struct http_stream *stream)
{
    return stream->body_got > stream->body_max ||
           (stream->req.body_size > 0 && (uint64_t)stream->req.body_size > stream->body_max);
}

static void refuse_body(struct http_stream *stream)
{
    struct err err;

    err_set(&err, ERR_LIMIT, "the body may have at most %llu bytes",
            (unsigned long long)stream->body_max);
    http_stream_refuse(stream, &err);
}

static void consumed(struct http_stream *stream, size_t len)
{
    if (len && stream->ops->consumed)
        stream->ops->consumed(stream, len);
}

/* Gives one piece to the application. */
static bool deliver_piece(struct http_stream *stream, struct str data)
{
    bool last = stream->body_done;

    stream->body_told = last;
    stream->held++;
    stream->on_body.piece(&stream->req, data, last);
    if (!stream->ended)
        consumed(stream, data.n);
    return let_go(stream);
}

static bool deliver_all(struct http_stream *stream)
{
    stream->body_told = true;
    stream->held++;
    stream->on_body.all(&stream->req, buf_view(&stream->body));
    return let_go(stream);
}

bool http_stream_deliver(struct http_stream *stream)
{
    if (stream->ended)
        return false;
    if (!http_stream_wants(stream) || stream->body_told)
        return true;
    if (over_limit(stream)) {
        refuse_body(stream);
        return false;
    }
    if (stream->reading == HTTP_READ_ALL) {
        consumed(stream, stream->body.len - stream->body_seen);
        stream->body_seen = stream->body.len;
        return stream->body_done ? deliver_all(stream) : true;
    }
    if (!stream->body.len && !stream->body_done)
        return true;
    autobuf struct buf held = stream->body;
    stream->body = (struct buf){ 0 };
    return deliver_piece(stream, buf_view(&held));
}

bool http_stream_body(struct http_stream *stream, const char *data, size_t len, bool last)
{
    if (stream->ended)
        return false;
    stream->body_got += len;
    stream->body_done = stream->body_done || last;
    if (http_stream_wants(stream) && stream->reading == HTTP_READ_STREAM && !stream->body.len) {
        if (over_limit(stream)) {
            refuse_body(stream);
            return false;
        }
        return len || last ? deliver_piece(stream, (struct str){ data, len }) : true;
    }
    if (stream->reading == HTTP_READ_NONE || !over_limit(stream)) {
        if (!stream->body.data && stream->req.body_size > 0) /* one allocation for small bodies */
            (void)buf_reserve(&stream->body, (size_t)MIN(stream->req.body_size, 16384));
        buf_append(&stream->body, data, len);
    }
    return http_stream_deliver(stream);
}

bool http_stream_drained(struct http_stream *stream)
{
    if (stream->ended)
        return false;
    if (!stream->full)
        return true;
    stream->full = false;
    if (!stream->req.on_drain)
        return true;
    stream->held++;
    stream->req.on_drain(&stream->req);
    return let_go(stream);
}

static void start_reading(struct http_req *req, enum http_reading how, uint64_t max)
{
    struct http_stream *stream = req->stream;

    stream->reading = (uint8_t)how;
    stream->body_max = max;
    stream->ops->want(stream);
}

/* An answered or lost request, or a second reader: our own mistake, but not one to die of. */
static bool out_of_order(const struct http_stream *stream, bool wrong, const char *call)
{
    if (stream->ended || stream->refused)
        return true;
    if (!wrong)
        return false;
    log_error("http call out of order, ignored", kv_str("call", call));
    return true;
}

void http_read_all(struct http_req *req, size_t max,
                   void (*fn)(struct http_req *req, struct str body))
{
    struct http_stream *stream = req->stream;

    if (out_of_order(stream, stream->reading != HTTP_READ_NONE, "http_read_all"))
        return;
    stream->on_body.all = fn;
    stream->body.max = MAX(max, 1u);
    start_reading(req, HTTP_READ_ALL, max);
}

void http_read_stream(struct http_req *req, uint64_t max,
                      void (*fn)(struct http_req *req, struct str data, bool last))
{
    struct http_stream *stream = req->stream;

    if (out_of_order(stream, stream->reading != HTTP_READ_NONE, "http_read_stream"))
        return;
    stream->on_body.piece = fn;
    start_reading(req, HTTP_READ_STREAM, max);
}

void http_read_pause(struct http_req *req)
{
    req->stream->paused = true;
}

void http_read_resume(struct http_req *req)
{
    struct http_stream *stream = req->stream;

    if (!stream->paused)
        return;
    stream->paused = false;
    if (!stream->ended && stream->reading != HTTP_READ_NONE)
        stream->ops->want(stream);
}

/* ---- answers ---- */

void http_reply(struct http_req *req, int status, const struct http_header *headers, size_t count,
                struct str body)
{
    struct http_stream *stream = req->stream;

    if (out_of_order(stream, stream->begun, "http_reply"))
        return;
    stream->begun = true;
    stream->status = (uint16_t)status;
    stream->ops->reply(stream, status, headers, count, body);
}

void http_reply_begin(struct http_req *req, int status, const struct http_header *headers,
                      size_t count)
{
    struct http_stream *stream = req->stream;

    if (out_of_order(stream, stream->begun, "http_reply_begin"))
        return;
    stream->begun = true;
    stream->status = (uint16_t)status;
    stream->ops->reply_begin(stream, status, headers, count);
}

enum http_flow http_reply_write(struct http_req *req, struct str data)
{
    struct http_stream *stream = req->stream;

    if (out_of_order(stream, !stream->begun, "http_reply_write"))
        return HTTP_CUT;
    enum http_flow flow = stream->ops->reply_write(stream, data);
    if (flow == HTTP_FULL)
        stream->full = true;
    return flow;
}

bool http_full(const struct http_req *req)
{
    return req->stream->full;
}

void http_reply_end(struct http_req *req, const struct http_header *trailers, size_t count)
{
    struct http_stream *stream = req->stream;

    if (out_of_order(stream, !stream->begun, "http_reply_end"))
        return;
    stream->ops->reply_end(stream, trailers, count);
}

void http_slim(struct http_req *req)
{
    struct http_stream *stream = req->stream;

    if (out_of_order(stream, false, "http_slim"))
        return;
    stream->slim = true;
    if (stream->ops->slim)
        stream->ops->slim(stream);
    req->method = req->target = req->path = req->query = req->host = STR_NONE;
    req->headers = NULL;
    req->header_count = 0;
    arena_free(&req->arena);
    if (stream->reading != HTTP_READ_ALL || stream->body_told)
        buf_free(&stream->body);
}

void http_hangup_counts(struct http_req *req)
{
    struct http_stream *stream = req->stream;

    if (!out_of_order(stream, false, "http_hangup_counts"))
        stream->hangup_counts = true;
}

void http_patient(struct http_req *req)
{
    struct http_stream *stream = req->stream;

    if (out_of_order(stream, false, "http_patient"))
        return;
    stream->patient = true;
    stream->conn->patient++;
}

size_t http_unsent(const struct http_req *req)
{
    return req->stream->ended ? 0 : req->stream->ops->unsent(req->stream);
}

void http_cut(struct http_req *req, const char *reason)
{
    struct http_stream *stream = req->stream;

    if (!out_of_order(stream, false, "http_cut"))
        stream->ops->cut(stream, reason);
}

struct loop *http_loop(const struct http_req *req)
{
    return req->stream->conn->server->loop;
}

/* ---- headers ---- */

struct str http_header(const struct http_req *req, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < req->header_count; i++) {
        const struct http_header *header = &req->headers[i];

        if (header->name.n == len && memcmp(header->name.p, name, len) == 0)
            return header->value;
    }
    return STR_NONE;
}

bool http_has_header(const struct http_header *headers, size_t count, const char *name)
{
    struct str want = str_of(name);

    for (size_t i = 0; i < count; i++)
        if (headers[i].name.n == want.n && str_eq_nocase(headers[i].name, want))
            return true;
    return false;
}

bool http_header_allowed(const struct http_header *header)
{
    /* clang-format off */
    static const struct str ours[] = {
        STR("connection"), STR("keep-alive"), STR("transfer-encoding"), STR("content-length"),
        STR("date"), STR("te"), STR("trailer"), STR("proxy-connection"),
        STR("x-content-type-options"), STR("referrer-policy"), STR("cross-origin-resource-policy"),
    };
    /* clang-format on */

    if (!h1_is_token(header->name) || !h1_is_value(header->value)) {
        log_warn("a malformed header is left out of the answer", kv_slice("name", header->name));
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (header->name.n == ours[i].n && str_eq_nocase(header->name, ours[i]))
            return false;
    return true;
}

const struct http_header http_security_headers[] = {
    { STR("x-content-type-options"), STR("nosniff") },
    { STR("referrer-policy"), STR("no-referrer") },
    { STR("cross-origin-resource-policy"), STR("same-origin") },
};
const size_t http_security_header_count = ARRAY_LEN(http_security_headers);

struct str http_date(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    struct timespec now;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (now.tv_sec != server->date_s) {
        server->date_s = now.tv_sec;
        gmtime_r(&now.tv_sec, &tm);
        strftime(server->date, sizeof(server->date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    }
    return (struct str){ server->date, sizeof(server->date) - 1 };
}
