/*
 * http_rig - a real server in a thread of the test program, and blocking clients for it.
 *
 * The loop runs in its own thread; tests talk to it through sockets like anybody else. The
 * application is the test's: rig_start takes its on_request. Included once per program.
 */
#pragma once

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/test.h"
#include "http/http.h"
#include "net/sock.h"

struct rig {
    struct loop *loop;
    struct http_server *server;
    pthread_t thread;
    struct http_app app;
    char addr[SOCK_TEXT_SIZE];
    _Atomic unsigned requests, gone, drained;
};

static struct rig rig;

static void *rig_thread(void *arg)
{
    (void)arg;
    loop_run(rig.loop);
    return NULL;
}

static void rig_error_body(void *ctx, struct str path, const struct err *err, struct buf *out)
{
    (void)ctx, (void)path;
    buf_printf(out, "{\"error\":\"%s\"}", err_info(err->code)->name);
}

static void rig_count_gone(struct http_req *req)
{
    (void)req;
    rig.gone++;
}

/* Starts a server on a loopback port; `tls` may be NULL. */
static inline void rig_start_at(const char *addr,
                                void (*on_request)(void *ctx, struct http_req *req),
                                const struct http_options *options, struct tls *tls)
{
    struct err err = { 0 };

    rig.requests = rig.gone = rig.drained = 0;
    rig.app = (struct http_app){ .on_request = on_request, .error_body = rig_error_body };
    CHECK_OK(loop_new(&rig.loop, &err), &err);
    CHECK_OK(http_server_new(&rig.server, rig.loop, &rig.app, options, &err), &err);
    int fd = sock_listen(addr, 256, rig.addr, &err);
    CHECK_OK(fd, &err);
    CHECK_OK(http_server_listen(rig.server, fd, tls, &err), &err);
    CHECK(pthread_create(&rig.thread, NULL, rig_thread, NULL) == 0);
}

static inline void rig_start(void (*on_request)(void *ctx, struct http_req *req),
                             const struct http_options *options)
{
    rig_start_at("127.0.0.1:0", on_request, options, NULL);
}

static void rig_stop_post(struct post *post)
{
    (void)post;
    http_server_free(rig.server);
    loop_stop(rig.loop);
}

static inline void rig_stop(void)
{
    static struct post post;

    post.fn = rig_stop_post;
    loop_post(rig.loop, &post);
    pthread_join(rig.thread, NULL);
    loop_free(rig.loop);
}

/* Runs `fn` on the loop thread and waits for it. */
struct rig_call {
    struct post post;
    void (*fn)(void);
    _Atomic bool done;
};

static void rig_call_post(struct post *post)
{
    struct rig_call *call = container_of(post, struct rig_call, post);

    call->fn();
    call->done = true;
}

static inline void rig_on_loop(void (*fn)(void))
{
    struct rig_call call = { .post = { .fn = rig_call_post }, .fn = fn };

    loop_post(rig.loop, &call.post);
    while (!call.done)
        poll(NULL, 0, 1);
}

/* Waits until *value is at least `want`, or fails. */
#define rig_wait(value, want)                                                                      \
    do {                                                                                           \
        int64_t until_ = clock_mono_ms() + test_patience(10000);                                   \
        while ((value) < (want) && clock_mono_ms() < until_)                                       \
            poll(NULL, 0, 1);                                                                      \
        if ((value) < (want))                                                                      \
            test_fail(__FILE__, __LINE__, "%s is still %u", #value, (unsigned)(value));            \
    } while (0)

static _Atomic unsigned rig_conns_now;

static void rig_count_conns(void)
{
    rig_conns_now = http_server_conns(rig.server);
}

static inline unsigned rig_conns(void)
{
    rig_on_loop(rig_count_conns);
    return rig_conns_now;
}

/* ---- clients ---- */

static inline int rig_connect(void)
{
    struct err err = { 0 };
    struct timeval limit = { .tv_sec = 10 };
    int fd = sock_connect(rig.addr, 5000, &err);

    CHECK_OK(fd, &err);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    return fd;
}

static inline void rig_send(int fd, struct str data)
{
    while (data.n) {
        ssize_t n = send(fd, data.p, data.n, MSG_NOSIGNAL);

        if (n <= 0)
            test_fail(__FILE__, __LINE__, "send: %m");
        data = str_from(data, (size_t)n);
    }
}

static inline void rig_puts(int fd, const char *text)
{
    rig_send(fd, str_of(text));
}

/* One more piece of what the server sends; false at the end. A reset counts as the end. */
static inline bool rig_more(int fd, struct buf *in)
{
    char *room = buf_reserve(in, 65536);
    ssize_t n = recv(fd, room, 65536, 0);

    if (n < 0 && errno == EAGAIN)
        test_fail(__FILE__, __LINE__, "no answer in time; so far: %.*s", STR_FMT(buf_view(in)));
    if (n > 0)
        in->len += (size_t)n;
    return n > 0;
}

static inline void rig_read_end(int fd, struct buf *in)
{
    while (rig_more(fd, in))
        ;
}

/* Nothing comes for `ms`, and the connection stays. */
static inline bool rig_silent(int fd, int ms)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

    return poll(&poll_fd, 1, ms) == 0;
}

/* An answer taken off the front of `in`. */
struct answer {
    int status;
    struct buf head, body, trailers; /* head without the status line, "name: value\r\n" each */
    bool chunked, close;
};

static inline void answer_free(struct answer *answer)
{
    buf_free(&answer->head);
    buf_free(&answer->body);
    buf_free(&answer->trailers);
}
#define autoanswer auto_with(answer_free)

/* The value of a header in the answer, NUL-terminated in a static buffer, or NULL. */
static inline const char *answer_header(const struct answer *answer, const char *name)
{
    static char value[512];
    struct str rest = buf_view(&answer->head);

    while (rest.n) {
        struct str line = str_cut(&rest, '\n');
        struct str key = str_cut(&line, ':');

        line = str_trim(line);
        if (!str_is(key, name))
            continue;
        CHECK(line.n && line.p[line.n - 1] == '\r');
        snprintf(value, sizeof(value), "%.*s", (int)line.n - 1, line.p);
        return value;
    }
    return NULL;
}

/* Reads until `in` holds `text`; its position. */
static inline size_t rig_until(int fd, struct buf *in, size_t from, const char *text)
{
    for (;;) {
        const char *at =
            in->len > from ? memmem(in->data + from, in->len - from, text, strlen(text)) : NULL;

        if (at)
            return (size_t)(at - in->data);
        if (!rig_more(fd, in))
            test_fail(__FILE__, __LINE__, "the answer ends early: %.*s", STR_FMT(buf_view(in)));
    }
}

static inline void rig_need(int fd, struct buf *in, size_t len)
{
    while (in->len < len)
        if (!rig_more(fd, in))
            test_fail(__FILE__, __LINE__, "the body ends early");
}

static inline void answer_chunks(int fd, struct buf *in, struct answer *answer)
{
    for (;;) {
        size_t line = rig_until(fd, in, 0, "\r\n");
        size_t size = strtoul(buf_cstr(in), NULL, 16);

        buf_consume(in, line + 2);
        if (!size) {
            while ((line = rig_until(fd, in, 0, "\r\n")) > 0) {
                buf_append(&answer->trailers, in->data, line + 2);
                buf_consume(in, line + 2);
            }
            buf_consume(in, 2);
            return;
        }
        rig_need(fd, in, size + 2);
        buf_append(&answer->body, in->data, size);
        CHECK(memcmp(in->data + size, "\r\n", 2) == 0);
        buf_consume(in, size + 2);
    }
}

/* Reads one answer; `to_head`: the request was HEAD. Bodies without a length go to the end. */
static inline void rig_answer(int fd, struct buf *in, bool to_head, struct answer *answer)
{
    size_t end = rig_until(fd, in, 0, "\r\n\r\n") + 4;
    size_t line = (size_t)((char *)memmem(in->data, end, "\r\n", 2) - in->data) + 2;

    answer_free(answer);
    CHECK(in->len > 12 && memcmp(in->data, "HTTP/1.1 ", 9) == 0);
    *answer = (struct answer){ .status = (int)strtol(in->data + 9, NULL, 10) };
    buf_append(&answer->head, in->data + line, end - 2 - line);
    buf_consume(in, end);
    const char *text = answer_header(answer, "connection");
    answer->close = text && strcmp(text, "close") == 0;
    text = answer_header(answer, "transfer-encoding");
    answer->chunked = text && strcmp(text, "chunked") == 0;
    if (to_head || answer->status < 200 || answer->status == 204 || answer->status == 304)
        return;
    text = answer_header(answer, "content-length");
    CHECK(!(text && answer->chunked)); /* never both */
    if (answer->chunked) {
        answer_chunks(fd, in, answer);
    } else if (text) {
        size_t size = strtoul(text, NULL, 10);

        rig_need(fd, in, size);
        buf_append(&answer->body, in->data, size);
        buf_consume(in, size);
    } else {
        rig_read_end(fd, in);
        buf_str(&answer->body, buf_view(in));
        buf_clear(in);
    }
}

/* A request on a connection of its own: answer and whether the connection ended after it. */
static inline void rig_ask(const char *request, struct answer *answer)
{
    autoclose int fd = rig_connect();
    autobuf struct buf in = { 0 };

    rig_puts(fd, request);
    rig_answer(fd, &in, strncmp(request, "HEAD ", 5) == 0, answer);
}

static inline bool body_is(const struct answer *answer, const char *text)
{
    return str_is(buf_view(&answer->body), text);
}
