/*
 * http_rig_app - an application for http_rig with one path for each way to read and to answer.
 * Included once per program.
 */
#pragma once

#include "base/log.h"
#include "base/mem.h"
#include "http/http_rig.h"

#define H "\r\nHost: a\r\n"

static const struct http_header plain = { STR("content-type"), STR("text/plain") };

static void reply(struct http_req *req, struct str body)
{
    http_reply(req, 200, &plain, 1, body);
}

/* ---- an answer that comes later ---- */

struct later {
    struct timer timer;
    struct http_req *req;
};

static void later_gone(struct http_req *req)
{
    struct later *later = req->app;

    rig.gone++;
    timer_cancel(rig.loop, &later->timer);
    free(later);
}

static void later_due(struct timer *timer)
{
    struct later *later = container_of(timer, struct later, timer);

    reply(later->req, later->req->query);
    free(later);
}

static void answer_later(struct http_req *req, int64_t ms, void (*fn)(struct timer *timer))
{
    struct later *later = xnew(struct later);

    later->timer.fn = fn;
    later->req = req;
    req->app = later;
    req->on_gone = later_gone;
    timer_set(rig.loop, &later->timer, ms);
}

/* ---- bodies ---- */

static void echo_all(struct http_req *req, struct str body)
{
    reply(req, body);
}

static void echo_piece(struct http_req *req, struct str data, bool last)
{
    http_reply_write(req, data);
    if (last)
        http_reply_end(req, NULL, 0);
}

static void answer_at_last(struct http_req *req, struct str data, bool last)
{
    (void)data;
    if (last)
        reply(req, STR("all read"));
}

static void read_now(struct timer *timer)
{
    struct later *later = container_of(timer, struct later, timer);
    struct http_req *req = later->req;

    free(later);
    req->on_gone = rig_count_gone;
    http_read_all(req, 1000, echo_all);
}

/* Takes a piece, pauses for a moment, takes the next. */
static void resume(struct timer *timer)
{
    struct later *later = container_of(timer, struct later, timer);
    struct http_req *req = later->req;

    free(later);
    req->on_gone = rig_count_gone;
    http_read_resume(req);
}

static void sip(struct http_req *req, struct str data, bool last)
{
    http_reply_write(req, data);
    if (last) {
        http_reply_end(req, NULL, 0);
        return;
    }
    http_read_pause(req);
    answer_later(req, 1, resume);
}

/* ---- routes ---- */

static void route_hello(struct http_req *req)
{
    reply(req, STR("hello"));
}

static void route_echo(struct http_req *req)
{
    http_read_all(req, 1000, echo_all);
}

static void size_of_all(struct http_req *req, struct str body)
{
    char text[32];
    int len = snprintf(text, sizeof(text), "%zu", body.n);

    reply(req, (struct str){ text, (size_t)len });
}

static void route_huge(struct http_req *req)
{
    http_read_all(req, 100u << 20, size_of_all);
}

static void route_echo_stream(struct http_req *req)
{
    http_read_stream(req, 4 << 20, echo_piece);
    http_reply_begin(req, 200, &plain, 1);
}

static void route_sip(struct http_req *req)
{
    http_read_stream(req, 4 << 20, sip);
    http_reply_begin(req, 200, &plain, 1);
}

static void route_swallow(struct http_req *req)
{
    http_read_stream(req, 1000, answer_at_last);
}

static void route_later(struct http_req *req)
{
    answer_later(req, (int64_t)(req->query.n % 7), later_due);
}

static void route_slow(struct http_req *req)
{
    answer_later(req, 100, later_due);
}

static void route_read_later(struct http_req *req)
{
    answer_later(req, 20, read_now);
}

static void route_chunks(struct http_req *req)
{
    static const struct http_header trailer = { STR("x-end"), STR("yes") };

    http_reply_begin(req, 200, &plain, 1);
    http_reply_write(req, STR("one "));
    http_reply_write(req, STR(""));
    http_reply_write(req, STR("two"));
    http_reply_end(req, &trailer, 1);
}

static void route_promise(struct http_req *req)
{
    static const struct http_header size = { STR("content-length"), STR("5") };

    http_reply_begin(req, 200, &size, 1);
    http_reply_write(req, STR("abc"));
    http_reply_write(req, str_is(req->query, "long") ? STR("def") : STR("de"));
    http_reply_end(req, NULL, 0);
}

static void route_broken_promise(struct http_req *req)
{
    static const struct http_header size = { STR("content-length"), STR("5") };

    http_reply_begin(req, 200, &size, 1);
    http_reply_write(req, STR("abc"));
    http_reply_end(req, NULL, 0);
}

static void route_empty(struct http_req *req)
{
    http_reply(req, 204, NULL, 0, STR_NONE);
}

static void route_same(struct http_req *req)
{
    http_reply(req, 304, NULL, 0, STR_NONE);
}

static void route_inject(struct http_req *req)
{
    static const struct http_header headers[] = {
        { STR("x-one"), STR("a\r\nx-evil: 1") },
        { STR("x two"), STR("b") },
        { STR("x-three\r\nx-evil"), STR("c") },
        { STR("x-four"), STR("d\0") },
        { STR("transfer-encoding"), STR("gzip") },
        { STR("Content-Length"), STR("99") },
        { STR("x-good"), STR("e\tf") },
        { STR("cache-control"), STR("max-age=1") },
    };

    http_reply(req, 200, headers, ARRAY_LEN(headers), STR("x"));
}

static void route_events(struct http_req *req)
{
    req->on_gone = rig_count_gone;
    http_reply_begin(req, 200, &plain, 1);
    http_slim(req);
    http_reply_write(req, STR("first\n"));
}

static void route_cut(struct http_req *req)
{
    req->on_gone = rig_count_gone;
    http_cut(req, "because");
}

static void raw_piece(struct http_req *req, struct str data, bool last)
{
    http_reply_write(req, data);
    if (last || (data.n && memchr(data.p, '.', data.n))) {
        http_reply_write(req, last ? STR("<end>") : STR("<dot>"));
        http_reply_end(req, NULL, 0);
    }
}

static void route_upgrade(struct http_req *req)
{
    static const struct http_header upgrade = { STR("upgrade"), STR("echo") };

    req->on_gone = rig_count_gone;
    http_reply_begin(req, 101, &upgrade, 1);
    http_read_stream(req, UINT64_MAX, raw_piece);
}

static void route_peer(struct http_req *req)
{
    char text[200];
    int len = snprintf(text, sizeof(text), "%s|%s|%d|%d|%u|%d", req->peer->text, req->peer->addr,
                       req->peer->local, req->peer->loopback, req->peer->uid, req->peer->pid);

    reply(req, (struct str){ text, (size_t)len });
}

static const struct {
    const char *path;
    void (*fn)(struct http_req *req);
} routes[] = {
    { "/hello", route_hello },
    { "/echo", route_echo },
    { "/swallow", route_swallow },
    { "/echo-stream", route_echo_stream },
    { "/sip", route_sip },
    { "/later", route_later },
    { "/slow", route_slow },
    { "/read-later", route_read_later },
    { "/chunks", route_chunks },
    { "/promise", route_promise },
    { "/broken", route_broken_promise },
    { "/empty", route_empty },
    { "/same", route_same },
    { "/inject", route_inject },
    { "/events", route_events },
    { "/cut", route_cut },
    { "/huge", route_huge },
    { "/upgrade", route_upgrade },
    { "/peer", route_peer },
};

static void on_request(void *ctx, struct http_req *req)
{
    (void)ctx;
    rig.requests++;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        if (str_is(req->path, routes[i].path)) {
            routes[i].fn(req);
            return;
        }
    http_reply(req, 404, NULL, 0, STR("nothing here"));
}

static void start(void)
{
    log_setup(LOG_ERROR + 1, LOG_TEXT, "test"); /* bad input is the point here */
    rig_start(on_request, NULL);
}
