/*
 * http_fake - one request without a server, for tests and fuzzers of what stands on http.h alone
 * (ws.c, grpc.c). It defines the calls of http.h itself; the linker then leaves server.c out of
 * the program. What the code under test writes is collected, what it reads is what the test feeds.
 * Included once per program.
 */
#pragma once

#include "base/limits.h"
#include "http/http.h"

#define FAKE_HEADERS_MAX 16

static struct fake {
    struct http_req req;
    struct http_peer peer;
    struct loop *loop;
    struct http_header headers[FAKE_HEADERS_MAX]; /* of the request */

    void (*piece)(struct http_req *req, struct str data, bool last);
    bool paused;

    int status;            /* of the answer; 0: none yet */
    struct buf head;       /* "name: value\n" each */
    struct buf body;       /* all that was written */
    struct buf trailers;   /* as head */
    bool ended, cut, slim; /* how the request ended */
    bool hangup_counts;
    bool doomed; /* HTTP_CUT was said: on_gone follows when the loop runs */
    bool stuck;  /* the peer reads nothing: what is written stays unsent */
    size_t unsent;
} fake;

static void fake_put(struct buf *out, const struct http_header *headers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        buf_str(out, headers[i].name);
        buf_puts(out, ": ");
        buf_str(out, headers[i].value);
        buf_putc(out, '\n');
    }
}

static inline void fake_reset(struct loop *loop, enum http_version version, const char *method)
{
    buf_free(&fake.head);
    buf_free(&fake.body);
    buf_free(&fake.trailers);
    arena_free(&fake.req.arena);
    fake = (struct fake){ .loop = loop };
    fake.req.version = version;
    fake.req.method = str_of(method);
    fake.req.path = fake.req.target = STR("/");
    fake.req.headers = fake.headers;
    fake.req.peer = &fake.peer;
}

static inline void fake_header(const char *name, const char *value)
{
    if (fake.req.header_count == FAKE_HEADERS_MAX)
        abort();
    fake.headers[fake.req.header_count++] = (struct http_header){ str_of(name), str_of(value) };
}

static inline bool fake_over(void)
{
    return fake.ended || fake.cut;
}

/* Bytes from the peer; nothing happens once the request is over. */
static inline void fake_feed(const void *data, size_t len, bool last)
{
    if (!fake_over() && fake.piece)
        fake.piece(&fake.req, (struct str){ data, len }, last);
}

/* The peer vanishes. */
static inline void fake_gone(void)
{
    if (fake_over())
        return;
    fake.cut = true;
    if (fake.req.on_gone)
        fake.req.on_gone(&fake.req);
}

/* The peer reads everything. */
static inline void fake_drain(void)
{
    bool tell = fake.unsent > HTTP_OUT_HIGH && !fake_over();

    fake.unsent = 0;
    fake.stuck = false;
    if (tell && fake.req.on_drain)
        fake.req.on_drain(&fake.req);
}

static void fake_stop_(struct timer *timer)
{
    (void)timer;
    loop_stop(fake.loop);
}

/* Lets the loop run for a while. */
static inline void fake_run(int64_t ms)
{
    struct timer stop = { .fn = fake_stop_ };

    if (fake.doomed)
        fake_gone();
    timer_set(fake.loop, &stop, ms);
    loop_run(fake.loop);
    timer_cancel(fake.loop, &stop);
}

/* ---- http.h ---- */

struct str http_header(const struct http_req *req, const char *name)
{
    for (size_t i = 0; i < req->header_count; i++)
        if (str_is(req->headers[i].name, name))
            return req->headers[i].value;
    return STR_NONE;
}

void http_read_stream(struct http_req *req, uint64_t max,
                      void (*fn)(struct http_req *req, struct str data, bool last))
{
    (void)req, (void)max;
    fake.piece = fn;
}

void http_read_pause(struct http_req *req)
{
    (void)req;
    fake.paused = true;
}

void http_read_resume(struct http_req *req)
{
    (void)req;
    fake.paused = false;
}

void http_reply_begin(struct http_req *req, int status, const struct http_header *headers,
                      size_t count)
{
    (void)req;
    if (fake.status || fake_over())
        abort();
    fake.status = status;
    fake_put(&fake.head, headers, count);
}

enum http_flow http_reply_write(struct http_req *req, struct str data)
{
    if (!fake.status || fake_over())
        abort();
    (void)req;
    fake.doomed |= fake.unsent > HTTP_OUT_HIGH && fake.unsent + data.n > HTTP_OUT_MAX;
    if (fake.doomed)
        return HTTP_CUT;
    if (fake.stuck)
        fake.unsent += data.n;
    buf_str(&fake.body, data);
    return fake.unsent > HTTP_OUT_HIGH ? HTTP_FULL : HTTP_OK;
}

void http_reply_end(struct http_req *req, const struct http_header *trailers, size_t count)
{
    (void)req;
    if (!fake.status || fake_over())
        abort();
    fake.ended = true;
    fake_put(&fake.trailers, trailers, count);
}

void http_reply(struct http_req *req, int status, const struct http_header *headers, size_t count,
                struct str body)
{
    http_reply_begin(req, status, headers, count);
    buf_str(&fake.body, body);
    fake.ended = true;
}

void http_hangup_counts(struct http_req *req)
{
    (void)req;
    fake.hangup_counts = true;
}

void http_patient(struct http_req *req)
{
    (void)req;
}

void http_slim(struct http_req *req)
{
    (void)req;
    fake.slim = true;
}

size_t http_unsent(const struct http_req *req)
{
    (void)req;
    return fake.unsent;
}

void http_cut(struct http_req *req, const char *reason)
{
    (void)req, (void)reason;
    if (fake_over())
        abort();
    fake.cut = true;
}

struct loop *http_loop(const struct http_req *req)
{
    (void)req;
    return fake.loop;
}
