/*
 * HTTP/1.1 on one connection: one request at a time, in order.
 *
 * A pipelined request is not looked at before the one in front of it is answered: answers are then
 * in order whatever the application does, and a peer cannot make us hold more than one. Its bytes
 * wait in the core's buffer, and the socket is not read while they do.
 *
 *     idle -> head -> (application) -> body as wanted -> answer -> rest of the body -> idle
 *
 * `busy` spans from the head to the end of both directions. What the application did not read of a
 * body is thrown away up to DISCARD_MAX, so that a client can keep its connection after a 404 to a
 * small POST; for more the answer says "connection: close".
 *
 * After status 101 both directions are raw bytes until the application ends the answer or the peer
 * hangs up.
 */
#include "http/h1.h"

#include <stdio.h>

#include "base/log.h"
#include "http/proto.h"

#define DISCARD_MAX 65536

struct h1 {
    struct http_stream stream;
    struct h1_resume resume; /* of an incomplete head */
    struct h1_chunks chunks;
    uint64_t body_left;  /* of a body with a length */
    uint64_t reply_left; /* of an answer whose length the application promised */
    uint64_t window_got; /* body bytes since window_ms */
    uint64_t discarded;
    int64_t since_ms; /* of being idle, of the first byte of a head */
    int64_t window_ms;

    bool in_head;    /* part of a head has come */
    bool busy;       /* a request is under way */
    bool served;     /* one has been: the keep-alive timeout counts */
    bool has_stream; /* the application's side of it is not over */
    bool body_over;  /* the request has been read to its end */
    bool keep_alive; /* after this request */
    bool is_head;
    bool chunked_in, chunked_out, counted_out; /* framing */
    bool bodiless;                             /* the answer has no body: HEAD, 204, 304 */
    bool expecting;                            /* 100 Continue is owed before the body is read */
    bool raw;                                  /* after 101 */
    bool peer_done;                            /* end of input seen */
    bool closed;                               /* the connection is gone */
};

static struct h1 *h1_of(struct http_conn *conn)
{
    return conn->state;
}

static struct h1 *h1_of_stream(const struct http_stream *stream)
{
    return container_of(stream, struct h1, stream);
}

static void refuse(struct h1 *h1, const struct h1_bad *bad)
{
    struct err err;

    err_set(&err, bad->code, "%s", bad->text);
    h1->keep_alive = false;
    http_stream_refuse_as(&h1->stream, bad->status, &err);
}

/* ---- composing ---- */

#define LINE(text) STR(text "\r\n")
static const struct str security_block = STR("\r\nx-content-type-options: nosniff\r\n"
                                             "referrer-policy: no-referrer\r\n"
                                             "cross-origin-resource-policy: same-origin\r\n");

static char *put(char *at, struct str text)
{
    memcpy(at, text.p, text.n);
    return at + text.n;
}

static char *put_number(char *at, uint64_t value)
{
    char digits[20];
    size_t from = sizeof(digits);

    do {
        digits[--from] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    return put(at, (struct str){ digits + from, sizeof(digits) - from });
}

static char *put_status(char *at, int status)
{
    if (status == 200)
        return put(at, STR("HTTP/1.1 200 OK\r\n"));
    at = put(at, STR("HTTP/1.1 "));
    at = put_number(at, (uint64_t)status);
    *at++ = ' ';
    at = put(at, str_of(http_reason(status)));
    return put(at, STR("\r\n"));
}

static char *put_headers(char *at, const struct http_header *headers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!http_header_allowed(&headers[i]))
            continue;
        at = put(at, headers[i].name);
        at = put(at, STR(": "));
        at = put(at, headers[i].value);
        at = put(at, STR("\r\n"));
    }
    return at;
}

static size_t headers_size(const struct http_header *headers, size_t count)
{
    size_t size = 0;

    for (size_t i = 0; i < count; i++)
        size += headers[i].name.n + headers[i].value.n + 4;
    return size;
}

#define HEAD_FIXED_MAX 512 /* status line and everything that is ours */

/* Head of an answer; body_size < 0: not said. Returns its end. */
static char *put_head(struct h1 *h1, char *at, int status, const struct http_header *headers,
                      size_t count, int64_t body_size)
{
    at = put_status(at, status);
    at = put(at, STR("date: "));
    at = put(at, http_date(h1->stream.conn));
    at = put(at, security_block);
    if (!http_has_header(headers, count, "cache-control"))
        at = put(at, LINE("cache-control: no-store"));
    if (status == 101)
        at = put(at, LINE("connection: upgrade"));
    else if (!h1->keep_alive)
        at = put(at, LINE("connection: close"));
    else if (h1->stream.req.version == HTTP_1_0)
        at = put(at, LINE("connection: keep-alive"));
    if (body_size >= 0) {
        at = put(at, STR("content-length: "));
        at = put_number(at, (uint64_t)body_size);
        at = put(at, STR("\r\n"));
    } else if (h1->chunked_out) {
        at = put(at, LINE("transfer-encoding: chunked"));
    }
    at = put_headers(at, headers, count);
    return put(at, STR("\r\n"));
}

static void send_head(struct h1 *h1, int status, const struct http_header *headers, size_t count,
                      int64_t body_size, struct str body)
{
    size_t size = HEAD_FIXED_MAX + headers_size(headers, count);
    char small[2048] __attribute__((uninitialized));
    autofree char *large = size > sizeof(small) ? xmalloc(size) : NULL;
    char *head = large ? large : small;
    char *end = put_head(h1, head, status, headers, count, body_size);
    struct str parts[] = { { head, (size_t)(end - head) }, body };

    http_conn_write(h1->stream.conn, parts, body.n ? 2 : 1);
}

/* ---- ending a request ---- */

static void became_idle(struct h1 *h1)
{
    struct http_conn *conn = h1->stream.conn;

    h1->busy = false;
    h1->served = true;
    h1->since_ms = http_conn_now(conn);
    if (!h1->keep_alive || conn->draining || (h1->peer_done && !conn->in.len)) {
        http_conn_finish(conn, "done");
        return;
    }
    http_conn_reading(conn, true);
    if (conn->in.len)
        http_conn_later(conn);
}

/* Is what is left of the request's body little enough to read past it? */
static bool can_discard(const struct h1 *h1)
{
    if (h1->expecting || h1->peer_done)
        return false;
    return h1->chunked_in || h1->body_left <= DISCARD_MAX;
}

/*
 * Decided before the head of the answer is written, which has to say so. An answer that begins while
 * the application is still reading is expected to read on.
 */
static void decide_keep_alive(struct h1 *h1, bool whole)
{
    bool reads = !whole && h1->stream.reading != HTTP_READ_NONE;

    if (h1->stream.conn->draining || h1->stream.refused ||
        (!h1->body_over && !reads && !can_discard(h1)))
        h1->keep_alive = false;
}

static void h1_release(struct http_stream *stream)
{
    struct h1 *h1 = h1_of_stream(stream);
    struct http_conn *conn = stream->conn;

    h1->has_stream = false;
    if (h1->closed) {
        free(h1);
        return;
    }
    if (h1->body_over || !h1->keep_alive) {
        became_idle(h1);
        return;
    }
    h1->discarded = 0;
    http_conn_reading(conn, true);
    http_conn_later(conn);
}

/* ---- operations of the stream ---- */

static void h1_want(struct http_stream *stream)
{
    http_conn_reading(stream->conn, true);
    http_conn_later(stream->conn);
}

static bool has_no_body(const struct h1 *h1, int status)
{
    return h1->is_head || status == 204 || status == 304;
}

static void h1_reply(struct http_stream *stream, int status, const struct http_header *headers,
                     size_t count, struct str body)
{
    struct h1 *h1 = h1_of_stream(stream);
    bool bodiless = has_no_body(h1, status);
    int64_t size = status == 204 || (status == 304 && !body.n) ? -1 : (int64_t)body.n;

    decide_keep_alive(h1, true);
    h1->chunked_out = false;
    send_head(h1, status, headers, count, size, bodiless ? STR_NONE : body);
    http_stream_end(stream);
}

/* The length that the application promises in its headers, or -1. */
static int64_t promised(const struct http_header *headers, size_t count)
{
    uint64_t size;

    for (size_t i = 0; i < count; i++)
        if (str_eq_nocase(headers[i].name, STR("content-length")) &&
            str_to_u64(headers[i].value, &size) && size <= INT64_MAX)
            return (int64_t)size;
    return -1;
}

static void h1_reply_begin(struct http_stream *stream, int status,
                           const struct http_header *headers, size_t count)
{
    struct h1 *h1 = h1_of_stream(stream);
    int64_t size = promised(headers, count);

    if (status == 101) {
        h1->raw = true;
        h1->body_over = false;
        h1->stream.body_done = h1->stream.body_told = false;
        h1->keep_alive = false; /* the connection ends with it */
        send_head(h1, status, headers, count, -1, STR_NONE);
        h1_want(stream);
        return;
    }
    decide_keep_alive(h1, false);
    h1->bodiless = has_no_body(h1, status);
    h1->counted_out = size >= 0;
    h1->reply_left = h1->counted_out ? (uint64_t)size : 0;
    h1->chunked_out =
        !h1->counted_out && stream->req.version == HTTP_1_1 && status != 204 && status != 304;
    if (!h1->bodiless && !h1->counted_out && !h1->chunked_out)
        h1->keep_alive = false; /* HTTP/1.0: the end of the connection is the end of the body */
    send_head(h1, status, headers, count, size, STR_NONE);
}

static enum http_flow flow_of(const struct http_conn *conn)
{
    if (conn->dead || conn->doomed)
        return HTTP_CUT;
    return http_conn_unsent(conn) > HTTP_OUT_HIGH ? HTTP_FULL : HTTP_OK;
}

static enum http_flow h1_reply_write(struct http_stream *stream, struct str data)
{
    struct h1 *h1 = h1_of_stream(stream);
    struct http_conn *conn = stream->conn;
    size_t unsent = http_conn_unsent(conn);
    char size[20];

    if (!data.n || h1->bodiless)
        return flow_of(conn);
    if (unsent > HTTP_OUT_HIGH && unsent + data.n > HTTP_OUT_MAX) {
        http_conn_doom(conn, "peer reads too slowly");
        return HTTP_CUT;
    }
    if (h1->counted_out) {
        if (data.n > h1->reply_left) {
            log_error("answer longer than promised, connection cut");
            http_conn_doom(conn, "answer longer than promised");
            return HTTP_CUT;
        }
        h1->reply_left -= data.n;
    }
    if (h1->chunked_out) {
        int len = snprintf(size, sizeof(size), "%zx\r\n", data.n);
        struct str parts[] = { { size, (size_t)len }, data, STR("\r\n") };

        http_conn_write(conn, parts, 3);
    } else {
        http_conn_write(conn, &data, 1);
    }
    return flow_of(conn);
}

static void h1_reply_end(struct http_stream *stream, const struct http_header *trailers,
                         size_t count)
{
    struct h1 *h1 = h1_of_stream(stream);

    if (h1->chunked_out && !h1->bodiless) {
        autofree char *end = xmalloc(8 + headers_size(trailers, count));
        char *at = put(end, STR("0\r\n"));

        at = put_headers(at, trailers, count);
        at = put(at, STR("\r\n"));
        http_conn_write(stream->conn, &(struct str){ end, (size_t)(at - end) }, 1);
    }
    if (h1->counted_out && !h1->bodiless && h1->reply_left) {
        log_error("answer shorter than promised, connection cut");
        http_conn_doom(stream->conn, "answer shorter than promised");
    }
    if (h1->raw)
        h1->body_over = true;
    http_stream_end(stream);
}

static size_t h1_unsent(const struct http_stream *stream)
{
    return http_conn_unsent(stream->conn);
}

static void h1_cut(struct http_stream *stream, const char *reason)
{
    stream->req.on_gone = NULL; /* whoever cuts knows */
    http_conn_cut(stream->conn, reason);
}

static const struct http_stream_ops h1_ops = {
    .want = h1_want,
    .reply = h1_reply,
    .reply_begin = h1_reply_begin,
    .reply_write = h1_reply_write,
    .reply_end = h1_reply_end,
    .unsent = h1_unsent,
    .cut = h1_cut,
    .release = h1_release,
};

/* ---- input ---- */

/* A new request begins: everything about the last one is forgotten. */
static void begin(struct h1 *h1)
{
    struct http_conn *conn = h1->stream.conn;

    h1->stream = (struct http_stream){ 0 };
    http_stream_init(&h1->stream, &h1_ops, conn);
    h1->busy = h1->has_stream = true;
    h1->body_over = true;
    h1->keep_alive = false;
    h1->is_head = h1->chunked_in = h1->chunked_out = h1->counted_out = false;
    h1->bodiless = h1->expecting = h1->raw = false;
    h1->resume = (struct h1_resume){ 0 };
}

static void fill_request(struct h1 *h1, const struct h1_head *head)
{
    struct http_req *req = &h1->stream.req;

    req->version = head->version;
    req->method = head->method;
    req->target = head->target;
    req->path = head->path;
    req->query = head->query;
    req->host = head->host;
    req->headers = head->fields;
    req->header_count = head->count;
    req->body_size = head->body_size;

    h1->keep_alive = head->keep_alive;
    h1->is_head = str_eq(head->method, STR("HEAD"));
    h1->chunked_in = head->body_size < 0;
    h1->body_left = head->body_size > 0 ? (uint64_t)head->body_size : 0;
    h1->body_over = head->body_size == 0;
    h1->expecting = head->expect_continue && !h1->body_over;
    h1->chunks = (struct h1_chunks){ 0 };
    h1->window_ms = http_conn_now(h1->stream.conn);
    h1->window_got = 0;
}

/* Takes a head off the input and shows the request; returns bytes taken, 0 if more are needed. */
static size_t take_head(struct h1 *h1, const char *data, size_t len)
{
    struct h1_head head __attribute__((uninitialized));
    const struct h1_bad *bad = NULL;

    if (!h1->in_head)
        h1->since_ms = http_conn_now(h1->stream.conn);
    int size = h1_head_scan(data, len, &h1->resume, &head, &bad);
    if (size == 0) {
        h1->in_head = true;
        return 0;
    }
    h1->in_head = false;
    begin(h1);
    if (size < 0 || h1_head_finish(&h1->stream.req.arena, data, (size_t)size, &head, &bad) < 0) {
        refuse(h1, bad);
        return len;
    }
    fill_request(h1, &head);
    (void)!http_stream_request(&h1->stream);
    return (size_t)size;
}

/* Takes body bytes of either framing; *piece is the data in them. -1: refused. */
static int64_t unframe(struct h1 *h1, const char *data, size_t len, struct str *piece)
{
    const struct h1_bad *bad = NULL;
    bool done = false;

    if (!h1->chunked_in) {
        *piece = (struct str){ data, MIN(len, h1->body_left) };
        h1->body_left -= piece->n;
        h1->body_over = h1->body_left == 0;
        return (int64_t)piece->n;
    }
    int64_t taken = h1_chunks_next(&h1->chunks, data, len, piece, &done, &bad);
    if (taken < 0) {
        if (h1->has_stream)
            refuse(h1, bad);
        else
            http_conn_finish(h1->stream.conn, "bad body of an answered request");
        return -1;
    }
    h1->body_over = done;
    return taken;
}

/* The answer is out, the rest of the body is not wanted. */
static size_t discard_body(struct h1 *h1, const char *data, size_t len)
{
    size_t at = 0;

    while (at < len && !h1->body_over) {
        struct str piece;
        int64_t taken = unframe(h1, data + at, len - at, &piece);

        if (taken < 0)
            return len;
        at += (size_t)taken;
    }
    h1->window_got += at;
    h1->discarded += at;
    if (h1->body_over)
        became_idle(h1);
    else if (h1->discarded > DISCARD_MAX)
        http_conn_finish(h1->stream.conn, "unwanted body too large");
    return at;
}

/* Body bytes for the application, as long as it wants them. */
static size_t take_body(struct h1 *h1, const char *data, size_t len)
{
    struct http_stream *stream = &h1->stream;
    struct http_conn *conn = stream->conn;
    size_t at = 0;

    if (!http_stream_deliver(stream))
        return 0;
    if (h1->expecting && http_stream_wants(stream)) {
        static const struct str go_on = STR("HTTP/1.1 100 Continue\r\n\r\n");

        h1->expecting = false;
        if (!len && !stream->begun)
            http_conn_write(conn, &go_on, 1);
    }
    while (at < len && !h1->body_over && http_stream_wants(stream)) {
        struct str piece;
        int64_t taken = unframe(h1, data + at, len - at, &piece);

        if (taken < 0)
            return len;
        at += (size_t)taken;
        h1->window_got += (uint64_t)taken;
        if ((piece.n || h1->body_over) &&
            !http_stream_body(stream, piece.p, piece.n, h1->body_over))
            break;
    }
    return at;
}

static size_t take_raw(struct h1 *h1, const char *data, size_t len)
{
    if (!http_stream_deliver(&h1->stream) || !http_stream_wants(&h1->stream))
        return 0;
    if (h1->stream.body_done || (!len && !h1->peer_done))
        return 0;
    (void)!http_stream_body(&h1->stream, data, len, h1->peer_done);
    return len;
}

/* Moves a request that is under way; returns bytes taken. */
static size_t advance(struct h1 *h1, const char *data, size_t len)
{
    if (!h1->has_stream)
        return discard_body(h1, data, len);
    return h1->raw ? take_raw(h1, data, len) : take_body(h1, data, len);
}

/* The input is over and all of it taken: can what is under way still be answered? */
static void no_more_data(struct h1 *h1)
{
    struct http_conn *conn = h1->stream.conn;

    if (!h1->busy && !h1->in_head)
        http_conn_finish(conn, "closed by the peer");
    else if (!h1->has_stream || h1->stream.slim || (!h1->body_over && !h1->raw))
        http_conn_cut(conn, "closed by the peer in a request");
}

static size_t h1_data(struct http_conn *conn, const char *data, size_t len)
{
    struct h1 *h1 = h1_of(conn);
    size_t at = 0;
    int requests = 0;

    for (;;) {
        bool was_busy = h1->busy, had_stream = h1->has_stream;
        size_t taken;

        if (was_busy) {
            taken = advance(h1, data + at, len - at);
        } else {
            if (at == len || http_conn_unsent(conn) > HTTP_OUT_HIGH)
                break;
            if (requests++ == HTTP_PIPELINE_MAX) {
                http_conn_again(conn);
                break;
            }
            taken = take_head(h1, data + at, len - at);
        }
        if (conn->dead || conn->closing || conn->doomed)
            return len;
        at += taken;
        if (!taken && h1->busy == was_busy && h1->has_stream == had_stream)
            break;
    }
    if (h1->busy && at < len) /* paused, or the next request: its turn comes */
        http_conn_reading(conn, false);
    if (h1->peer_done && at == len)
        no_more_data(h1);
    return at;
}

static void h1_eof(struct http_conn *conn)
{
    struct h1 *h1 = h1_of(conn);

    h1->peer_done = true;
    if (conn->in.len && !h1->in_head)
        http_conn_again(conn); /* requests or a body that wait their turn */
    else if (h1->raw && h1->has_stream)
        http_conn_again(conn);
    else
        no_more_data(h1);
}

static void h1_room(struct http_conn *conn)
{
    struct h1 *h1 = h1_of(conn);

    if (h1->has_stream)
        (void)!http_stream_drained(&h1->stream);
}

/* ---- time ---- */

static void refuse_slow(struct h1 *h1, const char *what)
{
    struct err err;

    err_set(&err, ERR_TIMEOUT, "%s", what);
    h1->keep_alive = false;
    http_stream_refuse(&h1->stream, &err);
}

static void tick_body(struct h1 *h1, int64_t now_ms)
{
    bool waiting = !h1->has_stream || http_stream_wants(&h1->stream);

    if (!waiting) { /* the application's own time */
        h1->window_ms = now_ms;
        h1->window_got = 0;
        return;
    }
    int64_t elapsed = now_ms - h1->window_ms;
    if (elapsed < http_conn_options(h1->stream.conn)->body_window_ms)
        return;
    if (h1->window_got * 1000 >= HTTP_BODY_MIN_RATE * (uint64_t)elapsed) {
        h1->window_ms = now_ms;
        h1->window_got = 0;
    } else if (h1->has_stream) {
        refuse_slow(h1, "the body comes too slowly");
    } else {
        http_conn_finish(h1->stream.conn, "the body comes too slowly");
    }
}

static void h1_tick(struct http_conn *conn, int64_t now_ms)
{
    struct h1 *h1 = h1_of(conn);
    const struct http_options *options = http_conn_options(conn);

    if (h1->busy) {
        if (!h1->body_over && !h1->raw)
            tick_body(h1, now_ms);
    } else if (h1->in_head) {
        if (now_ms - h1->since_ms <= options->head_timeout_ms)
            return;
        begin(h1);
        refuse_slow(h1, "the request head comes too slowly");
    } else if (now_ms - h1->since_ms >
               (h1->served ? options->keepalive_ms : options->head_timeout_ms)) {
        http_conn_finish(conn, "idle");
    }
}

static void h1_drain(struct http_conn *conn)
{
    if (!h1_of(conn)->busy)
        http_conn_finish(conn, "draining");
}

static void h1_close(struct http_conn *conn, const char *reason)
{
    struct h1 *h1 = h1_of(conn);

    conn->state = NULL;
    h1->closed = true;
    if (h1->has_stream)
        http_stream_gone(&h1->stream, reason); /* h1_release frees */
    else
        free(h1);
}

static const struct http_proto h1_proto = {
    .name = "HTTP/1.1",
    .on_data = h1_data,
    .on_room = h1_room,
    .on_eof = h1_eof,
    .on_tick = h1_tick,
    .on_drain = h1_drain,
    .on_close = h1_close,
};

void h1_start(struct http_conn *conn)
{
    struct h1 *h1 = xnew(struct h1);

    h1->stream.conn = conn;
    h1->since_ms = conn->active_ms;
    conn->proto = &h1_proto;
    conn->state = h1;
}
