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
 * body is thrown away up to H1_DISCARD_MAX, so that a client can keep its connection after a 404 to
 * a small POST; for more the answer says "connection: close".
 *
 * After status 101 both directions are raw bytes until the application ends the answer or the peer
 * hangs up.
 */
#include "http/h1_own.h"

static struct h1 *h1_of(struct http_conn *conn)
{
    return conn->state;
}

static void refuse(struct h1 *h1, const struct h1_bad *bad)
{
    struct err err;

    err_set(&err, bad->code, "%s", bad->text);
    h1->keep_alive = false;
    http_stream_refuse_as(&h1->stream, bad->status, &err);
}

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
    head.path = STR_NONE; /* until the target is understood */
    if (size < 0 || h1_head_finish(&h1->stream.req.arena, data, (size_t)size, &head, &bad) < 0) {
        h1->stream.req.path = head.path; /* in its words it is refused */
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
        h1_became_idle(h1);
    else if (h1->discarded > H1_DISCARD_MAX)
        http_conn_finish(h1->stream.conn, "unwanted body too large");
    return at;
}

/* Body bytes for the application, as long as it wants them. */
static size_t take_body(struct h1 *h1, const char *data, size_t len)
{
    struct http_stream *stream = &h1->stream;
    struct http_conn *conn = stream->conn;
    size_t at = 0;

    if (stream->slim && h1->body_over) { /* an event stream: nobody will ever look at this */
        h1->keep_alive = h1->keep_alive && !len;
        return len;
    }
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
    else if (!h1->has_stream || h1->stream.slim || h1->stream.hangup_counts ||
             (!h1->body_over && !h1->raw))
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
    bool waits = conn->in.len && !h1->in_head; /* requests, or a body, whose turn is to come */
    if (waits || (h1->raw && h1->has_stream))
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
