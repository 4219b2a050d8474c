/*
 * Answers of HTTP/1.1: heads composed in one go, bodies whole, chunked, counted, to the end of the
 * connection (HTTP/1.0) or raw (after 101); and what becomes of the connection afterwards.
 */
#include "http/h1_own.h"

#include "base/log.h"

/* ---- composing ---- */

#define LINE(text) STR(text "\r\n")
static const struct str security_block = STR("\r\nx-content-type-options: nosniff\r\n"
                                             "referrer-policy: no-referrer\r\n"
                                             "cross-origin-resource-policy: same-origin\r\n");

static char *put(char *at, struct str text)
{
    if (text.n)
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

void h1_became_idle(struct h1 *h1)
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
    return h1->chunked_in || h1->body_left <= H1_DISCARD_MAX;
}

/*
 * Decided before the head of the answer is written, which has to say so. An application that begins
 * to answer while it is still reading is expected to read on.
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
        h1_became_idle(h1);
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

static void write_chunk(struct http_conn *conn, struct str data)
{
    char size[18] = { [16] = '\r', [17] = '\n' };
    size_t at = 16;

    for (size_t left = data.n; left; left >>= 4)
        size[--at] = "0123456789abcdef"[left & 15];
    struct str parts[] = { { size + at, sizeof(size) - at }, data, STR("\r\n") };
    http_conn_write(conn, parts, ARRAY_LEN(parts));
}

static enum http_flow h1_reply_write(struct http_stream *stream, struct str data)
{
    struct h1 *h1 = h1_of_stream(stream);
    struct http_conn *conn = stream->conn;
    size_t unsent = http_conn_unsent(conn);

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
        write_chunk(conn, data);
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

const struct http_stream_ops h1_ops = {
    .want = h1_want,
    .reply = h1_reply,
    .reply_begin = h1_reply_begin,
    .reply_write = h1_reply_write,
    .reply_end = h1_reply_end,
    .unsent = h1_unsent,
    .cut = h1_cut,
    .release = h1_release,
};
