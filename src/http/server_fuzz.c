/*
 * A whole server and one peer that sends the input: once in one piece, once in pieces (the first
 * byte says how large). The answers must be the same bytes, and when the peer has gone nothing of
 * it may be left. The first letter of a path chooses what the application does.
 */
#include <stdio.h>
#include <sys/socket.h>

#include "base/log.h"
#include "http/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

#define REST_MAX 3 /* rounds without news before the server counts as idle */

static struct loop *loop;
static struct http_server *server;
static struct http_req *waiting; /* answered by the driver when all else is quiet */
static unsigned living;          /* requests shown and neither answered nor gone */

/* ---- the application ---- */

static void answer(struct http_req *req, struct str body)
{
    living--;
    http_reply(req, 200, NULL, 0, body);
}

static void answer_size(struct http_req *req)
{
    char text[32];
    int len = snprintf(text, sizeof(text), "%zu", (size_t)(uintptr_t)req->app);

    answer(req, (struct str){ text, (size_t)len });
}

static void on_gone(struct http_req *req)
{
    living--;
    if (waiting == req)
        waiting = NULL;
}

static void count_piece(struct http_req *req, struct str piece, bool last)
{
    req->app = (void *)((uintptr_t)req->app + piece.n);
    if (last)
        answer_size(req);
}

static void sip_piece(struct http_req *req, struct str piece, bool last)
{
    req->app = (void *)((uintptr_t)req->app + piece.n);
    if (last) {
        answer_size(req);
        return;
    }
    http_read_pause(req);
    waiting = req;
}

static void raw_piece(struct http_req *req, struct str piece, bool last)
{
    http_reply_write(req, piece);
    if (!last)
        return;
    living--;
    http_reply_end(req, NULL, 0);
}

static void on_request(void *ctx, struct http_req *req)
{
    (void)ctx;
    living++;
    req->on_gone = on_gone;
    switch (req->path.n > 1 ? req->path.p[1] : 0) {
    case 'a':
        http_read_all(req, 64, answer);
        break;
    case 's':
        http_read_stream(req, 64, count_piece);
        break;
    case 'p':
        http_read_stream(req, 1000, sip_piece);
        break;
    case 'w':
        waiting = req;
        break;
    case 'c':
        http_reply_begin(req, 200, NULL, 0);
        http_reply_write(req, req->query);
        living--;
        http_reply_end(req, NULL, 0);
        break;
    case 'e':
        http_reply_begin(req, 200, NULL, 0);
        http_slim(req);
        http_reply_write(req, STR("event"));
        break;
    case 'x':
        living--;
        http_cut(req, "asked for");
        break;
    case 'u':
        http_reply_begin(req, 101, NULL, 0);
        http_read_stream(req, UINT64_MAX, raw_piece);
        break;
    default:
        answer(req, req->target);
    }
}

/* Lets the one that waits go on. */
static bool wake_waiting(void)
{
    struct http_req *req = waiting;

    waiting = NULL;
    if (!req)
        return false;
    if (req->stream->paused)
        http_read_resume(req);
    else
        answer(req, STR("at last"));
    return true;
}

/* ---- driving ---- */

static void stop_loop(struct timer *timer)
{
    (void)timer;
    loop_stop(loop);
}

static void run_round(void)
{
    struct timer stop = { .fn = stop_loop };

    timer_set(loop, &stop, 0);
    loop_run(loop);
}

/* Rounds until the server is idle, collecting what it says. */
static void settle(int fd, struct buf *out)
{
    for (int idle = 0; idle < REST_MAX; idle++) {
        char *room = buf_reserve(out, 65536);
        ssize_t n;

        run_round();
        must(room);
        n = recv(fd, room, 65536, MSG_DONTWAIT);
        if (n > 0)
            out->len += (size_t)n;
        if (n > 0 || wake_waiting())
            idle = 0;
    }
}

static void remove_all(struct buf *text, struct str what, size_t len)
{
    for (;;) {
        char *at = text->len ? memmem(text->data, text->len, what.p, what.n) : NULL;

        if (!at)
            return;
        len = MIN(len, text->len - (size_t)(at - text->data));
        memmove(at, at + len, text->len - (size_t)(at - text->data) - len);
        text->len -= len;
    }
}

static void converse(struct str data, size_t step, struct buf *out)
{
    static const struct http_peer peer = { .text = "fuzz", .addr = "fuzz", .local = true };
    int fds[2];

    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    map_put(&server->peers, str_of(peer.addr), (void *)(uintptr_t)1);
    http_conn_open(server, fds[0], &peer, NULL);
    while (data.n) {
        ssize_t n = send(fds[1], data.p, MIN(step, data.n), MSG_NOSIGNAL);

        if (n <= 0)
            break; /* it has hung up, or is not reading */
        data = str_from(data, (size_t)n);
        run_round();
    }
    settle(fds[1], out);
    shutdown(fds[1], SHUT_WR);
    settle(fds[1], out);
    close(fds[1]);
    for (int i = 0; i < REST_MAX; i++)
        run_round();
    must(http_server_conns(server) == 0 && living == 0 && !waiting);
    /* The date ticks, and whether 100 is sent depends on who was faster. */
    remove_all(out, STR("date: "), 37);
    remove_all(out, STR("HTTP/1.1 100 Continue\r\n\r\n"), 25);
}

static void set_up(void)
{
    static const struct http_app app = { .on_request = on_request };
    struct err err;

    if (server)
        return;
    log_setup(LOG_ERROR, LOG_TEXT, "fuzz");
    must(loop_new(&loop, &err) == 0);
    must(http_server_new(&server, loop, &app, NULL, &err) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    autobuf struct buf whole = { 0 }, cut = { 0 };
    struct str text = { (const char *)data + 1, size ? size - 1 : 0 };

    if (!size || str_starts(text, STR("PRI * HTTP/2")))
        return 0; /* HTTP/2 has its own */
    set_up();
    converse(text, MAX(text.n, 1u), &whole);
    converse(text, 1 + data[0] % 32u, &cut);
    must(str_eq(buf_view(&whole), buf_view(&cut)));
    return 0;
}
