/*
 * Answers to frames. What the application writes is queued per stream and copied into DATA frames
 * when nghttp2 asks, which is when the peer's windows and the socket have room. The queue bounds
 * what a stream may hold (HTTP_OUT_HIGH: the producer waits, HTTP_OUT_MAX: cut), and h2->queued
 * what all of them may (H2_OUT_MAX), because one peer can open many.
 */
#include "base/limits.h"
#include "http/h2_own.h"

#define HEADERS_MAX 96
#define OUT_KEEP 4096 /* larger queues give their memory back when empty */

static struct h2_stream *own(struct http_stream *base)
{
    return container_of(base, struct h2_stream, base);
}

size_t h2_unsent(const struct h2_stream *stream)
{
    return stream->out.len - stream->out_at;
}

bool h2_has_room(const struct h2_stream *stream)
{
    return h2_unsent(stream) <= HTTP_OUT_HIGH && stream->h2->queued <= H2_OUT_MAX / 2;
}

static void drop_out(struct h2_stream *stream)
{
    if (stream->h2)
        stream->h2->queued -= h2_unsent(stream);
    buf_free(&stream->out);
    stream->out_at = 0;
    free(take_ptr(&stream->trailers));
}

static void stream_free(struct h2_stream *stream)
{
    drop_out(stream);
    free(stream);
}

/* Nobody will read what has come of the body: its share of the connection's window is free. */
static void give_back(struct h2_stream *stream)
{
    if (stream->h2 && stream->unconsumed)
        nghttp2_session_consume_connection(stream->h2->session, stream->unconsumed);
    stream->unconsumed = 0;
}

void h2_stream_closed(struct h2_stream *stream, const char *reason)
{
    struct h2 *h2 = stream->h2;

    list_remove(&stream->link);
    list_remove(&stream->ready_link);
    drop_out(stream);
    if (!h2->dead)
        give_back(stream);
    if (--h2->stream_count == 0)
        h2->idle_ms = http_conn_now(h2->conn);
    stream->h2 = NULL;
    stream->closed = true;
    if (stream->released)
        stream_free(stream);
    else if (!stream->base.ended)
        http_stream_gone(&stream->base, reason); /* which leads to release */
}

static void op_release(struct http_stream *base)
{
    struct h2_stream *stream = own(base);

    stream->released = true;
    give_back(stream); /* the core has dropped what was held of the body */
    if (stream->closed)
        stream_free(stream);
}

/* ---- body in ---- */

static void op_want(struct http_stream *base)
{
    struct h2_stream *stream = own(base);
    struct h2 *h2 = stream->h2;

    if (!h2)
        return;
    if (stream->expect && !base->body_got && !base->begun) {
        nghttp2_nv go_on = { (uint8_t *)":status", (uint8_t *)"100", 7, 3, NGHTTP2_NV_FLAG_NONE };

        nghttp2_submit_headers(h2->session, NGHTTP2_FLAG_NONE, stream->id, NULL, &go_on, 1, NULL);
    }
    stream->expect = false;
    if (base->reading == HTTP_READ_ALL) {
        stream->rate_ms = http_conn_now(h2->conn);
        stream->rate_got = base->body_got;
    }
    stream->wants = true;
    h2_ready(stream);
}

static void op_consumed(struct http_stream *base, size_t len)
{
    struct h2_stream *stream = own(base);

    if (!stream->h2)
        return;
    len = MIN(len, stream->unconsumed);
    stream->unconsumed -= len;
    nghttp2_session_consume(stream->h2->session, stream->id, len);
    http_conn_later(stream->h2->conn);
}

/* ---- heads out ---- */

struct head {
    nghttp2_nv fields[HEADERS_MAX];
    size_t count;
    char status[4], length[24];
};

static void put(struct head *head, struct str name, struct str value, uint8_t flags)
{
    if (head->count == HEADERS_MAX)
        return;
    head->fields[head->count++] =
        (nghttp2_nv){ (uint8_t *)(uintptr_t)name.p, (uint8_t *)(uintptr_t)value.p, name.n, value.n,
                      flags };
}

#define STATIC_TEXT (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)

/* HTTP/2 has lower-case names only; the application need not know. */
static struct str lower(struct arena *arena, struct str name)
{
    size_t at = 0;

    while (at < name.n && !(name.p[at] >= 'A' && name.p[at] <= 'Z'))
        at++;
    if (at == name.n)
        return name;
    char *copy = arena_memdup0(arena, name.p, name.n);
    for (; at < name.n; at++)
        if (copy[at] >= 'A' && copy[at] <= 'Z')
            copy[at] = (char)(copy[at] | 0x20);
    return (struct str){ copy, name.n };
}

static void put_own(struct head *head, struct http_stream *base, const struct http_header *headers,
                    size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (http_header_allowed(&headers[i]))
            put(head, lower(&base->req.arena, headers[i].name), headers[i].value, 0);
}

/* `length` < 0: none is said. */
static void make_head(struct head *head, struct http_stream *base, int status,
                      const struct http_header *headers, size_t count, int64_t length)
{
    head->count = 0;
    head->status[0] = (char)('0' + status / 100 % 10);
    head->status[1] = (char)('0' + status / 10 % 10);
    head->status[2] = (char)('0' + status % 10);
    put(head, STR(":status"), (struct str){ head->status, 3 }, NGHTTP2_NV_FLAG_NO_COPY_NAME);
    put(head, STR("date"), http_date(base->conn), NGHTTP2_NV_FLAG_NO_COPY_NAME);
    for (size_t i = 0; i < http_security_header_count; i++)
        put(head, http_security_headers[i].name, http_security_headers[i].value, STATIC_TEXT);
    if (!http_has_header(headers, count, "cache-control"))
        put(head, STR("cache-control"), STR("no-store"), STATIC_TEXT);
    if (length >= 0) {
        size_t at = sizeof(head->length);

        do {
            head->length[--at] = (char)('0' + length % 10);
            length /= 10;
        } while (length);
        put(head, STR("content-length"),
            (struct str){ head->length + at, sizeof(head->length) - at },
            NGHTTP2_NV_FLAG_NO_COPY_NAME);
    }
    put_own(head, base, headers, count);
}

/* ---- body out ---- */

/* The bytes are all with nghttp2: what is left is the end. */
static void out_ended(struct h2_stream *stream, uint32_t *flags)
{
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!stream->trailers)
        return;
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    nghttp2_submit_trailer(stream->h2->session, stream->id, stream->trailers,
                           stream->trailer_count);
    free(take_ptr(&stream->trailers));
}

static ssize_t give_body(nghttp2_session *session, int32_t id, uint8_t *out, size_t room,
                         uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct h2_stream *stream = source->ptr;
    struct h2 *h2 = user;
    size_t n = MIN(room, h2_unsent(stream));

    (void)session, (void)id;
    if (n) {
        memcpy(out, stream->out.data + stream->out_at, n);
        stream->out_at += n;
        h2->queued -= n;
        h2->idle_frames = 0;
        stream->moved_ms = http_conn_now(h2->conn);
    }
    size_t left = h2_unsent(stream);
    if (!left) {
        stream->out.len = stream->out_at = 0;
        if (stream->out.cap > OUT_KEEP)
            buf_free(&stream->out);
    }
    if (stream->base.full && left <= HTTP_OUT_LOW)
        h2_ready(stream);
    if (!left && stream->out_end && !stream->doomed)
        out_ended(stream, flags);
    else if (!n) {
        stream->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

static void go_on(struct h2_stream *stream)
{
    if (stream->deferred) {
        stream->deferred = false;
        nghttp2_session_resume_data(stream->h2->session, stream->id);
    }
    http_conn_later(stream->h2->conn);
}

static void queue(struct h2_stream *stream, struct str data)
{
    if (!data.n)
        return;
    if (!h2_unsent(stream))
        stream->moved_ms = http_conn_now(stream->h2->conn);
    if (stream->out_at > stream->out.len / 2) {
        buf_consume(&stream->out, stream->out_at);
        stream->out_at = 0;
    }
    stream->out.max = SIZE_MAX; /* bounded by op_write; a whole answer is what it is */
    buf_str(&stream->out, data);
    stream->h2->queued += data.n;
}

static void submit(struct h2_stream *stream, const struct head *head)
{
    nghttp2_data_provider provider = { .source.ptr = stream, .read_callback = give_body };
    struct h2 *h2 = stream->h2;

    if (nghttp2_submit_response(h2->session, stream->id, head->fields, head->count,
                                stream->no_body ? NULL : &provider) != 0)
        nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, stream->id,
                                  NGHTTP2_INTERNAL_ERROR);
    http_conn_later(h2->conn);
}

static bool bodiless(const struct http_stream *base, int status)
{
    return str_is(base->req.method, "HEAD") || status == 204 || status == 304;
}

/* ---- operations ---- */

static void doom(struct h2_stream *stream, uint32_t code, const char *reason)
{
    if (stream->doomed)
        return;
    stream->doomed = reason;
    stream->doom_code = code;
    drop_out(stream);
    h2_ready(stream);
}

static void op_reply(struct http_stream *base, int status, const struct http_header *headers,
                     size_t count, struct str body)
{
    struct h2_stream *stream = own(base);
    struct head head;

    if (stream->h2 && !stream->doomed) {
        /* An answer cannot wait, but a peer that piles up answers unread gets no more of them. */
        if (stream->h2->queued > H2_OUT_MAX) {
            nghttp2_submit_rst_stream(stream->h2->session, NGHTTP2_FLAG_NONE, stream->id,
                                      NGHTTP2_ENHANCE_YOUR_CALM);
            http_conn_later(stream->h2->conn);
        } else {
            bool quiet = bodiless(base, status);

            stream->no_body = quiet || !body.n;
            stream->out_end = true;
            make_head(&head, base, status, headers, count, status == 204 ? -1 : (int64_t)body.n);
            if (!stream->no_body)
                queue(stream, body);
            submit(stream, &head);
        }
    }
    http_stream_end(base);
}

static void op_begin(struct http_stream *base, int status, const struct http_header *headers,
                     size_t count)
{
    struct h2_stream *stream = own(base);
    struct head head;

    if (!stream->h2 || stream->doomed)
        return;
    stream->no_body = bodiless(base, status);
    make_head(&head, base, status, headers, count, -1);
    submit(stream, &head);
}

static enum http_flow op_write(struct http_stream *base, struct str data)
{
    struct h2_stream *stream = own(base);
    struct h2 *h2 = stream->h2;

    if (!h2 || stream->doomed)
        return HTTP_CUT;
    if (stream->no_body)
        return HTTP_OK;
    /* A producer that waits when told so is never cut, however large its one write is. */
    size_t unsent = h2_unsent(stream);
    if ((unsent > HTTP_OUT_HIGH && unsent + data.n > HTTP_OUT_MAX) || h2->queued > H2_OUT_MAX) {
        doom(stream, NGHTTP2_ENHANCE_YOUR_CALM, "peer reads too slowly");
        return HTTP_CUT;
    }
    queue(stream, data);
    go_on(stream);
    if (h2->queued > H2_OUT_MAX / 2)
        h2->crowded = true;
    return h2_has_room(stream) ? HTTP_OK : HTTP_FULL;
}

/* Trailers wait for the body, so they are kept, as one piece of memory. */
static void keep_trailers(struct h2_stream *stream, const struct http_header *trailers,
                          size_t count)
{
    size_t size = count * sizeof(nghttp2_nv);

    for (size_t i = 0; i < count; i++)
        size += trailers[i].name.n + trailers[i].value.n;
    stream->trailers = xmalloc(size);
    char *text = (char *)(stream->trailers + count);
    for (size_t i = 0; i < count; i++) {
        nghttp2_nv *nv = &stream->trailers[stream->trailer_count];
        struct str name = lower(&stream->base.req.arena, trailers[i].name);

        if (!http_header_allowed(&trailers[i]))
            continue;
        *nv = (nghttp2_nv){ (uint8_t *)text, (uint8_t *)text + name.n, name.n, trailers[i].value.n,
                            NGHTTP2_NV_FLAG_NONE };
        memcpy(text, name.p, name.n);
        if (trailers[i].value.n)
            memcpy(text + name.n, trailers[i].value.p, trailers[i].value.n);
        text += name.n + trailers[i].value.n;
        stream->trailer_count++;
    }
}

static void op_end(struct http_stream *base, const struct http_header *trailers, size_t count)
{
    struct h2_stream *stream = own(base);

    if (stream->h2 && !stream->doomed && !stream->no_body) {
        stream->out_end = true;
        if (count)
            keep_trailers(stream, trailers, count);
        go_on(stream);
    }
    http_stream_end(base);
}

static size_t op_unsent(const struct http_stream *base)
{
    return h2_unsent(container_of(base, const struct h2_stream, base));
}

static void op_cut(struct http_stream *base, const char *reason)
{
    struct h2_stream *stream = own(base);

    (void)reason;
    if (stream->h2) {
        drop_out(stream);
        stream->doomed = reason;
        nghttp2_submit_rst_stream(stream->h2->session, NGHTTP2_FLAG_NONE, stream->id,
                                  NGHTTP2_CANCEL);
        http_conn_later(stream->h2->conn);
    }
    http_stream_end(base);
}

const struct http_stream_ops h2_stream_ops = {
    .want = op_want,
    .consumed = op_consumed,
    .reply = op_reply,
    .reply_begin = op_begin,
    .reply_write = op_write,
    .reply_end = op_end,
    .unsent = op_unsent,
    .cut = op_cut,
    .release = op_release,
};
