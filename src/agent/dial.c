/*
 * nghttp2 does the framing; this file moves bytes between it and the socket, and cuts the body into
 * messages. Callbacks of nghttp2 only note what happened; the owner is told after the library has
 * returned, so that it may end the call from there.
 */
#include "agent/dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "http/client_io.h"
#include "http/grpc.h"

#define CONNECT_MS 10000
#define QUEUE_HIGH 262144
#define WINDOW (1u << 20)
#define PING_MS 10000   /* between our questions whether anybody is there */
#define SILENT_MS 30000 /* no byte for this long: nobody is */

struct dial {
    struct loop *loop;
    const struct dial_ops *ops;
    void *ctx;
    struct client_io io;
    struct watch watch;
    struct timer ping;
    nghttp2_session *session;
    int32_t stream;
    struct buf queue;       /* the body that is to be sent */
    struct buf body;        /* what came and is not a whole message yet */
    const uint8_t *pending; /* bytes of nghttp2's that the socket has not taken */
    size_t pending_len;
    bool deferred, over, full;
    int status;
    char why[256];
    int64_t heard_ms;
};

/* ---- nghttp2 ---- */

static ssize_t give_body(nghttp2_session *session, int32_t stream, uint8_t *out, size_t len,
                         uint32_t *flags, nghttp2_data_source *source, void *ctx)
{
    struct dial *dial = source->ptr;

    (void)session, (void)stream, (void)flags, (void)ctx;
    if (!dial->queue.len) {
        dial->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t n = MIN(len, dial->queue.len);
    memcpy(out, dial->queue.data, n);
    buf_consume(&dial->queue, n);
    return (ssize_t)n;
}

static int on_chunk(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                    size_t len, void *ctx)
{
    struct dial *dial = ctx;

    (void)session, (void)flags;
    if (stream == dial->stream)
        buf_append(&dial->body, data, len);
    return 0;
}

static int percent(const char *text, size_t len)
{
    unsigned value = 0;

    for (size_t i = 0; i < 2; i++) {
        char c = i < len ? text[i] : '?';
        const char *digits = "0123456789ABCDEFabcdef", *at = c ? strchr(digits, c) : NULL;

        if (!at)
            return -1;
        value = value * 16 + (unsigned)(at - digits > 15 ? at - digits - 6 : at - digits);
    }
    return (int)value;
}

static void keep_why(struct dial *dial, struct str text)
{
    size_t at = 0;

    for (size_t i = 0; i < text.n && at + 1 < sizeof(dial->why); i++) {
        int code = text.p[i] == '%' ? percent(text.p + i + 1, text.n - i - 1) : -1;

        dial->why[at++] = code < 0 ? text.p[i] : (char)code;
        i += code < 0 ? 0 : 2;
    }
    dial->why[at] = 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *ctx)
{
    struct dial *dial = ctx;
    struct str key = { (const char *)name, name_len }, text = { (const char *)value, value_len };
    uint64_t number;

    (void)session, (void)flags;
    if (frame->hd.stream_id != dial->stream)
        return 0;
    if (str_is(key, "grpc-status") && str_to_u64(text, &number))
        dial->status = (int)MIN(number, (uint64_t)99);
    else if (str_is(key, "grpc-message"))
        keep_why(dial, text);
    else if (str_is(key, ":status") && !str_is(text, "200") && dial->status < 0)
        snprintf(dial->why, sizeof(dial->why), "HTTP status %.*s", STR_FMT(text));
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t code, void *ctx)
{
    struct dial *dial = ctx;

    (void)session;
    if (stream == dial->stream && code && dial->status < 0 && !dial->why[0])
        snprintf(dial->why, sizeof(dial->why), "the call was reset: %s",
                 nghttp2_http2_strerror(code));
    if (stream == dial->stream)
        dial->over = true;
    return 0;
}

static int make_session(struct dial *dial)
{
    const nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
        { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW },
    };
    nghttp2_session_callbacks *callbacks;
    int rc;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return -1;
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_chunk);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    rc = nghttp2_session_client_new(&dial->session, callbacks, dial);
    nghttp2_session_callbacks_del(callbacks);
    if (rc != 0)
        return -1;
    return nghttp2_submit_settings(dial->session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings));
}

static void put(nghttp2_nv *field, const char *name, const char *value)
{
    *field = (nghttp2_nv){ (uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                           strlen(value), NGHTTP2_NV_FLAG_NONE };
}

static int submit(struct dial *dial, const struct dial_options *options)
{
    nghttp2_data_provider body = { .source.ptr = dial, .read_callback = give_body };
    nghttp2_nv fields[12];
    size_t count = 0;

    put(&fields[count++], ":method", "POST");
    put(&fields[count++], ":scheme", options->target->tls ? "https" : "http");
    put(&fields[count++], ":authority", options->target->host);
    put(&fields[count++], ":path", options->path);
    put(&fields[count++], "content-type", "application/grpc");
    put(&fields[count++], "te", "trailers");
    for (size_t i = 0; i < ARRAY_LEN(options->headers) && options->headers[i].name; i++)
        put(&fields[count++], options->headers[i].name, options->headers[i].value);
    dial->stream = nghttp2_submit_request(dial->session, NULL, fields, count, &body, NULL);
    return dial->stream < 0 ? -1 : 0;
}

/* ---- the socket ---- */

static void lost(struct dial *dial, const char *why)
{
    if (dial->over)
        return;
    dial->over = true;
    if (dial->status < 0)
        snprintf(dial->why, sizeof(dial->why), "%s", why);
}

/* Bytes, 0 not now, -1 over. */
static ssize_t put_bytes(struct dial *dial, const uint8_t *data, size_t len)
{
    if (dial->io.ssl) {
        size_t done = 0;

        ERR_clear_error();
        int rc = SSL_write_ex(dial->io.ssl, data, len, &done);
        if (rc == 1)
            return (ssize_t)done;
        rc = SSL_get_error(dial->io.ssl, rc);
        return rc == SSL_ERROR_WANT_READ || rc == SSL_ERROR_WANT_WRITE ? 0 : -1;
    }
    ssize_t sent = send(dial->io.fd, data, len, MSG_NOSIGNAL);
    return sent >= 0 ? sent : errno == EAGAIN || errno == EINTR ? 0 : -1;
}

static ssize_t get_bytes(struct dial *dial, uint8_t *out, size_t len, bool *over)
{
    if (dial->io.ssl) {
        size_t got = 0;

        ERR_clear_error();
        int rc = SSL_read_ex(dial->io.ssl, out, len, &got);
        if (rc == 1)
            return (ssize_t)got;
        rc = SSL_get_error(dial->io.ssl, rc);
        *over = rc != SSL_ERROR_WANT_READ && rc != SSL_ERROR_WANT_WRITE;
        return 0;
    }
    ssize_t got = recv(dial->io.fd, out, len, 0);
    *over = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    return got > 0 ? got : 0;
}

static void flush(struct dial *dial)
{
    while (!dial->over) {
        if (!dial->pending_len) {
            ssize_t len = nghttp2_session_mem_send(dial->session, &dial->pending);

            if (len < 0)
                lost(dial, nghttp2_strerror((int)len));
            if (len <= 0)
                break;
            dial->pending_len = (size_t)len;
        }
        ssize_t put_now = put_bytes(dial, dial->pending, dial->pending_len);
        if (put_now < 0)
            lost(dial, "the connection was lost");
        if (put_now <= 0)
            break;
        dial->pending += put_now;
        dial->pending_len -= (size_t)put_now;
    }
    loop_change(dial->loop, &dial->watch, EPOLLIN | (dial->pending_len ? EPOLLOUT : 0u));
}

static void fill(struct dial *dial)
{
    static uint8_t data[65536];
    bool over = false;
    ssize_t got;

    while (!dial->over && (got = get_bytes(dial, data, sizeof(data), &over)) > 0) {
        ssize_t rc = nghttp2_session_mem_recv(dial->session, data, (size_t)got);

        dial->heard_ms = clock_mono_ms();
        if (rc < 0)
            lost(dial, nghttp2_strerror((int)rc));
    }
    if (over)
        lost(dial, "the server closed the connection");
}

/* ---- what the owner hears ---- */

static void tell_messages(struct dial *dial)
{
    while (dial->body.len >= 5) {
        const uint8_t *head = (const uint8_t *)dial->body.data;
        size_t len = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];

        if (head[0] || len > GRPC_MESSAGE_MAX) {
            lost(dial, "the server sent what is no message");
            return;
        }
        if (dial->body.len < 5 + len)
            return;
        dial->ops->on_message(dial->ctx, (struct str){ dial->body.data + 5, len });
        buf_consume(&dial->body, 5 + len);
    }
}

static void settle(struct dial *dial)
{
    tell_messages(dial);
    flush(dial);
    if (dial->over) {
        int status = dial->status < 0 ? GRPC_UNAVAILABLE : dial->status;

        loop_unwatch(dial->loop, &dial->watch);
        dial->watch.fn = NULL;
        timer_cancel(dial->loop, &dial->ping);
        dial->ops->on_end(dial->ctx, status, dial->why);
        return;
    }
    if (dial->full && dial->queue.len < QUEUE_HIGH / 2) {
        dial->full = false;
        dial->ops->on_room(dial->ctx);
        flush(dial);
    }
}

static void on_ready(struct watch *watch, uint32_t events)
{
    struct dial *dial = container_of(watch, struct dial, watch);

    (void)events;
    fill(dial);
    settle(dial);
}

static void on_ping(struct timer *timer)
{
    struct dial *dial = container_of(timer, struct dial, ping);

    timer_set(dial->loop, timer, PING_MS);
    if (clock_mono_ms() - dial->heard_ms > SILENT_MS)
        lost(dial, "the server does not answer");
    else
        nghttp2_submit_ping(dial->session, NGHTTP2_FLAG_NONE, NULL);
    settle(dial);
}

/* ---- life ---- */

static int connect_to(struct dial *dial, const struct dial_options *options, struct err *err)
{
    const struct client_target *target = options->target;
    const unsigned char *alpn = NULL;
    unsigned alpn_len = 0;
    int one = 1, fd = sock_connect(target->connect, CONNECT_MS, err);

    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (client_io_init(&dial->io, fd, target->tls ? target->name : NULL, "h2", options->ca_file,
                       clock_mono_ms() + CONNECT_MS, err) < 0)
        return -1;
    if (dial->io.ssl)
        SSL_get0_alpn_selected(dial->io.ssl, &alpn, &alpn_len);
    if (dial->io.ssl && (alpn_len != 2 || memcmp(alpn, "h2", 2) != 0))
        return err_set(err, ERR_UNSUPPORTED, "the server does not speak HTTP/2");
    return 0;
}

int dial_open(struct dial **out, const struct dial_options *options, struct err *err)
{
    struct dial *dial = xnew(struct dial);

    dial->loop = options->loop;
    dial->ops = options->ops;
    dial->ctx = options->ctx;
    dial->status = -1;
    dial->io.fd = -1;
    dial->body.max = GRPC_MESSAGE_MAX + 65536 + 5;
    dial->heard_ms = clock_mono_ms();
    dial->ping.fn = on_ping;
    if (connect_to(dial, options, err) < 0) {
        dial_free(dial);
        return -1;
    }
    dial->watch = (struct watch){ .fd = dial->io.fd, .events = EPOLLIN | EPOLLOUT, .fn = on_ready };
    if (make_session(dial) < 0 || submit(dial, options) < 0 ||
        loop_watch(dial->loop, &dial->watch, err) < 0) {
        dial_free(dial);
        return err_set(err, ERR_INTERNAL, "HTTP/2 cannot be set up");
    }
    timer_set(dial->loop, &dial->ping, PING_MS);
    *out = dial;
    return 0;
}

void dial_free(struct dial *dial)
{
    if (!dial)
        return;
    if (dial->watch.fn)
        loop_unwatch(dial->loop, &dial->watch);
    timer_cancel(dial->loop, &dial->ping);
    nghttp2_session_del(dial->session);
    client_io_free(&dial->io);
    buf_free(&dial->queue);
    buf_free(&dial->body);
    free(dial);
}

void dial_send(struct dial *dial, struct str message)
{
    const uint8_t head[5] = { 0, (uint8_t)(message.n >> 24), (uint8_t)(message.n >> 16),
                              (uint8_t)(message.n >> 8), (uint8_t)message.n };

    if (dial->over || !dial->watch.fn)
        return;
    buf_append(&dial->queue, head, sizeof(head));
    buf_str(&dial->queue, message);
    dial->full |= dial->queue.len >= QUEUE_HIGH;
    if (dial->deferred) {
        dial->deferred = false;
        nghttp2_session_resume_data(dial->session, dial->stream);
    }
    loop_change(dial->loop, &dial->watch, EPOLLIN | EPOLLOUT); /* on_ready sends */
}

bool dial_full(const struct dial *dial)
{
    return dial->full;
}

void dial_address(const struct dial *dial, char *out, size_t size)
{
    struct sockaddr_storage address = { 0 };
    socklen_t len = sizeof(address);

    out[0] = 0;
    if (getsockname(dial->io.fd, (struct sockaddr *)&address, &len) < 0)
        return;
    if (address.ss_family == AF_INET)
        inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)&address)->sin_addr, out,
                  (socklen_t)size);
    else if (address.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)(void *)&address)->sin6_addr, out,
                  (socklen_t)size);
}
