/*
 * h2_peer - for tests: the server on a loopback port and HTTP/2 clients of it, all on one loop.
 *
 * A client is nghttp2 in its client role (h2_peer_open), or nothing but a socket for frames made by
 * hand (raw). Bytes are sent and received in random pieces when `piece` is set. Included once per
 * test program.
 */
#pragma once

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/test.h"
#include "http/http.h"
#include "net/sock.h"

#define WAIT_MAX_MS 8000

/* ---- the server ---- */

static struct loop *loop;
static struct http_server *server;
static char server_addr[SOCK_TEXT_SIZE];

static void stop_(struct timer *timer)
{
    (void)timer;
    loop_stop(loop);
}

/* Lets the loop run. */
static void step(int64_t ms)
{
    struct timer stop = { .fn = stop_ };

    timer_set(loop, &stop, ms);
    loop_run(loop);
}

#define WAIT(cond)                                                                                 \
    do {                                                                                           \
        int64_t until_ = clock_mono_ms() + WAIT_MAX_MS;                                            \
        while (!(cond) && clock_mono_ms() < until_)                                                \
            step(1);                                                                               \
        CHECK(cond);                                                                               \
    } while (0)

static void serve(const struct http_app *app, const struct http_options *options)
{
    struct err err;

    if (!loop)
        CHECK_OK(loop_new(&loop, &err), &err);
    http_server_free(server);
    CHECK_OK(http_server_new(&server, loop, app, options, &err), &err);
    int fd = sock_listen("127.0.0.1:0", 64, server_addr, &err);
    CHECK_OK(fd, &err);
    CHECK_OK(http_server_listen(server, fd, NULL, &err), &err);
}

/* ---- clients ---- */

#define PEER_STREAMS_MAX 512

struct peer_stream {
    int32_t id;
    int status;                      /* 0: none yet; 100 is in `informed` */
    bool informed;                   /* 100 Continue came */
    struct buf head, body, trailers; /* heads as "name: value\n" */
    bool closed;
    uint32_t code; /* it was closed with */

    struct str send; /* request body, borrowed */
    size_t sent;
    bool stall; /* send nothing for now, until peer_go_on */
    bool hold;  /* do not end the body */
    bool deferred;
    const nghttp2_nv *trailer; /* one, or NULL */
};

struct peer {
    struct watch watch;
    nghttp2_session *session; /* NULL: raw */
    struct buf out, in;       /* in: raw only */
    struct peer_stream streams[PEER_STREAMS_MAX];
    unsigned count;
    uint32_t piece; /* largest piece of bytes; 0: as it comes */
    bool deaf;      /* reads nothing */
    bool eof;
    bool goaway;
    uint32_t goaway_code;
    unsigned acks, settings;
};

static struct peer_stream *peer_find(struct peer *peer, int32_t id)
{
    for (unsigned i = 0; i < peer->count; i++)
        if (peer->streams[i].id == id)
            return &peer->streams[i];
    return NULL;
}

static void peer_events(struct peer *peer)
{
    loop_change(loop, &peer->watch, (peer->deaf ? 0u : EPOLLIN) | (peer->out.len ? EPOLLOUT : 0u));
}

static size_t peer_piece(const struct peer *peer, size_t len)
{
    size_t n = peer->piece ? 1 + test_rand(peer->piece) : len;

    return MIN(n, len);
}

static void peer_pump(struct peer *peer)
{
    const uint8_t *data;
    ssize_t n;

    while (peer->session && (n = nghttp2_session_mem_send(peer->session, &data)) > 0)
        buf_append(&peer->out, data, (size_t)n);
    if (peer->out.len && !peer->eof) {
        size_t len = peer_piece(peer, peer->out.len);

        n = send(peer->watch.fd, peer->out.data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            buf_consume(&peer->out, (size_t)n);
        else if (n < 0 && errno != EAGAIN)
            peer->out.len = 0;
    }
    peer_events(peer);
}

static void peer_event(struct watch *watch, uint32_t events)
{
    struct peer *peer = container_of(watch, struct peer, watch);
    char data[8192];

    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && !peer->deaf) {
        ssize_t n = recv(watch->fd, data, peer_piece(peer, sizeof(data)), MSG_DONTWAIT);

        if (n > 0 && peer->session)
            CHECK_INT(nghttp2_session_mem_recv(peer->session, (uint8_t *)data, (size_t)n), n);
        else if (n > 0)
            buf_append(&peer->in, data, (size_t)n);
        else if (n == 0 || errno != EAGAIN) {
            peer->eof = true;
            loop_unwatch(loop, watch);
            return;
        }
    }
    if (!peer->eof)
        peer_pump(peer);
}

static int peer_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                       size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                       void *user)
{
    struct peer_stream *stream = peer_find(user, frame->hd.stream_id);
    struct buf *out = &stream->head;

    (void)session, (void)flags;
    if (name_len == 7 && memcmp(name, ":status", 7) == 0) {
        int status = (value[0] - '0') * 100 + (value[1] - '0') * 10 + value[2] - '0';

        if (status == 100)
            stream->informed = true;
        else
            stream->status = status;
        return 0;
    }
    if (frame->headers.cat == NGHTTP2_HCAT_HEADERS && stream->head.len)
        out = &stream->trailers;
    buf_append(out, name, name_len);
    buf_puts(out, ": ");
    buf_append(out, value, value_len);
    buf_putc(out, '\n');
    return 0;
}

static int peer_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                     size_t len, void *user)
{
    (void)session, (void)flags;
    buf_append(&peer_find(user, id)->body, data, len);
    return 0;
}

static int peer_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct peer_stream *stream = peer_find(user, id);

    (void)session;
    if (stream) {
        stream->closed = true;
        stream->code = code;
    }
    return 0;
}

static int peer_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct peer *peer = user;

    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        peer->goaway = true;
        peer->goaway_code = frame->goaway.error_code;
    }
    peer->acks += frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK);
    peer->settings += frame->hd.type == NGHTTP2_SETTINGS;
    return 0;
}

static ssize_t peer_body(nghttp2_session *session, int32_t id, uint8_t *out, size_t room,
                         uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct peer_stream *stream = peer_find(user, id);
    size_t left = stream->stall ? 0 : stream->send.n - stream->sent;
    size_t n = MIN(left, room);

    (void)source;
    if (n && test_rand(2))
        n = 1 + test_rand((uint32_t)n);
    if (n)
        memcpy(out, stream->send.p + stream->sent, n);
    stream->sent += n;
    if (stream->sent == stream->send.n && !stream->hold && !stream->stall) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (stream->trailer) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            nghttp2_submit_trailer(session, id, stream->trailer, 1);
        }
    } else if (!n) {
        stream->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

/* More of the body may go. */
static inline void peer_go_on(struct peer *peer, struct peer_stream *stream)
{
    if (stream->deferred) {
        stream->deferred = false;
        nghttp2_session_resume_data(peer->session, stream->id);
    }
    peer_pump(peer);
}

static struct peer *peer_raw(void)
{
    struct peer *peer = xnew(struct peer);
    struct err err;

    int fd = sock_connect(server_addr, 1000, &err);
    CHECK_OK(fd, &err);
    peer->watch = (struct watch){ .fd = fd, .events = EPOLLIN, .fn = peer_event };
    CHECK_OK(loop_watch(loop, &peer->watch, &err), &err);
    return peer;
}

static inline struct peer *peer_open(uint32_t piece, const nghttp2_settings_entry *settings,
                                     size_t count)
{
    struct peer *peer = peer_raw();
    nghttp2_session_callbacks *all;
    nghttp2_option *option;

    peer->piece = piece;
    CHECK_INT(nghttp2_session_callbacks_new(&all), 0);
    nghttp2_session_callbacks_set_on_header_callback(all, peer_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(all, peer_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(all, peer_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(all, peer_frame);
    CHECK_INT(nghttp2_option_new(&option), 0);
    nghttp2_option_set_no_http_messaging(option, 1); /* so that it can misbehave */
    nghttp2_option_set_peer_max_concurrent_streams(option, 1000);
    CHECK_INT(nghttp2_session_client_new2(&peer->session, all, peer, option), 0);
    nghttp2_session_callbacks_del(all);
    nghttp2_option_del(option);
    nghttp2_submit_settings(peer->session, NGHTTP2_FLAG_NONE, settings, count);
    peer_pump(peer);
    return peer;
}

static inline void peer_shut(struct peer *peer)
{
    if (!peer->eof)
        loop_unwatch(loop, &peer->watch);
    close(peer->watch.fd);
    nghttp2_session_del(peer->session);
    for (unsigned i = 0; i < peer->count; i++) {
        buf_free(&peer->streams[i].head);
        buf_free(&peer->streams[i].body);
        buf_free(&peer->streams[i].trailers);
    }
    buf_free(&peer->in);
    buf_free(&peer->out);
    free(peer);
}

#define NV(name, value)                                                                            \
    {                                                                                              \
        (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, sizeof(value) - 1,                \
            NGHTTP2_NV_FLAG_NONE                                                                   \
    }

static inline nghttp2_nv nv_of(struct str name, struct str value)
{
    return (nghttp2_nv){ (uint8_t *)(uintptr_t)name.p, (uint8_t *)(uintptr_t)value.p, name.n,
                         value.n, NGHTTP2_NV_FLAG_NONE };
}

/* Sends exactly these fields; `body` NULL ends the stream with the head. */
static inline struct peer_stream *peer_send(struct peer *peer, const nghttp2_nv *fields,
                                            size_t count, const struct str *body)
{
    struct peer_stream *stream = &peer->streams[peer->count];
    nghttp2_data_provider provider = { .read_callback = peer_body };

    CHECK(peer->count < PEER_STREAMS_MAX);
    if (body)
        stream->send = *body;
    stream->id =
        nghttp2_submit_request(peer->session, NULL, fields, count, body ? &provider : NULL, NULL);
    CHECK(stream->id > 0);
    peer->count++;
    peer_pump(peer);
    return stream;
}

static inline struct peer_stream *peer_ask(struct peer *peer, const char *method, const char *path,
                                           const struct str *body)
{
    const nghttp2_nv fields[] = { nv_of(STR(":method"), str_of(method)),
                                  nv_of(STR(":path"), str_of(path)), NV(":scheme", "http"),
                                  NV(":authority", "localhost:1") };

    return peer_send(peer, fields, ARRAY_LEN(fields), body);
}

/* ---- frames by hand ---- */

static inline void raw_hello(struct peer *peer)
{
    buf_puts(&peer->out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    buf_append(&peer->out, "\0\0\0\4\0\0\0\0\0", 9);
    peer_pump(peer);
}

static inline void raw_frame(struct peer *peer, unsigned type, unsigned flags, uint32_t id,
                             const void *payload, size_t len)
{
    const char head[9] = { (char)(len >> 16), (char)(len >> 8), (char)len,
                           (char)type,        (char)flags,      (char)(id >> 24),
                           (char)(id >> 16),  (char)(id >> 8),  (char)id };

    buf_append(&peer->out, head, sizeof(head));
    buf_append(&peer->out, payload, len);
}

/* GET /hello of localhost, in HPACK's literal form. */
#define RAW_GET                                                                                    \
    "\x82\x86\x04\x06/hello\x41\x09localhost" /* :method GET, :scheme http, :path, :authority */

/* How many frames of this type came, and the error code of the last if it has one. */
static inline unsigned raw_count(const struct peer *peer, unsigned type, uint32_t *code)
{
    unsigned count = 0;

    for (size_t at = 0; at + 9 <= peer->in.len;) {
        const uint8_t *p = (const uint8_t *)peer->in.data + at;
        size_t len = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];

        if (at + 9 + len > peer->in.len)
            break;
        if (p[3] == type) {
            const uint8_t *c = p + 9 + (type == NGHTTP2_GOAWAY ? 4 : 0);

            count++;
            if (code && len >= 4)
                *code = (uint32_t)c[0] << 24 | (uint32_t)c[1] << 16 | (uint32_t)c[2] << 8 | c[3];
        }
        at += 9 + len;
    }
    return count;
}
