/*
 * Listeners, caps, time and the end of the server; connections look after themselves (conn.c).
 *
 * Whatever cannot be done in the middle of something else is done by the round timer, which is set
 * for "now" and so runs when this round of the loop is over: turns that connections asked for,
 * freeing dead ones, draining. Time is one coarse tick for all connections instead of timers for
 * each; it runs only while there are any.
 *
 * Out of descriptors: the spare one is closed, the peer is accepted, dropped, and the spare opened
 * again; otherwise the pending connection would keep the listener readable and the loop spinning.
 * If even that fails, listening pauses for a moment.
 */
#include "http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/metric.h"

#define ACCEPTS_PER_EVENT 64
#define ACCEPT_PAUSE_MS 100
#define TICK_MAX_MS 1000
#define TICK_MIN_MS 10

METRIC_GAUGE(conns_open, "atoll_http_connections", "Open connections");
METRIC_COUNTER(conns_total, "atoll_http_connections_total", "Connections accepted or refused",
               "result", "accepted", "refused");
enum { RESULT_ACCEPTED, RESULT_REFUSED };

/* ---- rounds ---- */

void http_server_wake(struct http_server *server)
{
    if (!timer_is_set(&server->round))
        timer_set(server->loop, &server->round, 0);
}

void http_server_lost(struct http_server *server, struct http_conn *conn)
{
    struct str key = str_of(conn->peer.addr);

    list_remove(&conn->later_link);
    list_remove(&conn->link);
    list_append(&server->dead, &conn->link);
    server->conn_count--;
    metric_set(&conns_open, 0, server->conn_count);
    uintptr_t left = (uintptr_t)map_del(&server->peers, key) - 1;
    if (left)
        map_put(&server->peers, key, (void *)left);
    http_server_wake(server);
}

static void free_dead(struct http_server *server)
{
    struct list *node;

    while ((node = list_pop(&server->dead)))
        http_conn_free(list_entry(node, struct http_conn, link));
}

/*
 * Calls `fn` for every connection. A call may end any of them, so the walk is over a list that
 * only shrinks: each is put back among the living before its call.
 */
static void each_conn(struct http_server *server, void (*fn)(struct http_conn *conn, int64_t arg),
                      int64_t arg)
{
    struct list todo, *node;

    if (list_empty(&server->conns))
        return;
    list_init(&todo);
    list_append(&server->conns, &todo); /* take the whole ring, leave its head out */
    list_remove(&server->conns);
    while ((node = list_pop(&todo))) {
        struct http_conn *conn = list_entry(node, struct http_conn, link);

        list_append(&server->conns, node);
        fn(conn, arg);
    }
}

static void drain_one(struct http_conn *conn, int64_t arg)
{
    (void)arg;
    http_conn_drain(conn);
}

static void cut_one(struct http_conn *conn, int64_t arg)
{
    (void)arg;
    http_conn_cut(conn, "server stops");
}

static void finish_drain(struct http_server *server)
{
    void (*done)(void *ctx) = server->drained;

    timer_cancel(server->loop, &server->drain_timer);
    server->drained = NULL;
    if (done)
        done(server->drained_ctx); /* may free the server */
}

static void run_round(struct timer *timer)
{
    struct http_server *server = container_of(timer, struct http_server, round);
    struct list todo, *node;

    if (server->drain_asked) {
        server->drain_asked = false;
        each_conn(server, drain_one, 0);
    }
    if (!list_empty(&server->later)) { /* those who ask again from here on wait for the next */
        list_init(&todo);
        list_append(&server->later, &todo);
        list_remove(&server->later);
        while ((node = list_pop(&todo)))
            http_conn_turn(list_entry(node, struct http_conn, later_link));
    }
    free_dead(server);
    if (server->draining && !server->conn_count && server->drained)
        finish_drain(server);
}

static void run_tick(struct timer *timer)
{
    struct http_server *server = container_of(timer, struct http_server, tick);

    each_conn(server, http_conn_tick, loop_now(server->loop));
    if (server->conn_count)
        timer_set(server->loop, &server->tick, server->tick_ms);
}

/* ---- accepting ---- */

static void peer_inet(struct http_peer *peer, const struct sockaddr_storage *addr)
{
    if (addr->ss_family == AF_INET6) {
        struct sockaddr_in6 v6;

        memcpy(&v6, addr, sizeof(v6));
        inet_ntop(AF_INET6, &v6.sin6_addr, peer->addr, sizeof(peer->addr));
        snprintf(peer->text, sizeof(peer->text), "[%s]:%u", peer->addr, ntohs(v6.sin6_port));
        peer->loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
    } else {
        struct sockaddr_in v4;

        memcpy(&v4, addr, sizeof(v4));
        inet_ntop(AF_INET, &v4.sin_addr, peer->addr, sizeof(peer->addr));
        snprintf(peer->text, sizeof(peer->text), "%s:%u", peer->addr, ntohs(v4.sin_port));
        peer->loopback = ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    }
}

/* False: we cannot know who it is. */
static bool peer_of(struct http_peer *peer, int fd, const struct sockaddr_storage *addr)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    if (addr->ss_family == AF_INET || addr->ss_family == AF_INET6) {
        peer_inet(peer, addr);
        return true;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return false;
    peer->local = peer->loopback = true;
    peer->uid = cred.uid;
    peer->pid = cred.pid;
    snprintf(peer->text, sizeof(peer->text), "unix:uid=%u", cred.uid);
    snprintf(peer->addr, sizeof(peer->addr), "unix:uid=%u", cred.uid);
    return true;
}

static void refuse(int fd)
{
    static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n"
                               "retry-after: 1\r\nconnection: close\r\n\r\n";

    metric_add(&conns_total, RESULT_REFUSED, 1);
    (void)!send(fd, busy, sizeof(busy) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void take(struct http_listener *listener, int fd, const struct sockaddr_storage *addr)
{
    struct http_server *server = listener->server;
    struct http_peer peer = { .listener = listener->index };

    if (!peer_of(&peer, fd, addr)) {
        close(fd);
        return;
    }
    uintptr_t held = (uintptr_t)map_get(&server->peers, str_of(peer.addr));
    if (server->conn_count >= server->options.conns_max ||
        held >= server->options.conns_per_peer_max) {
        refuse(fd);
        return;
    }
    map_put(&server->peers, str_of(peer.addr), (void *)(held + 1));
    metric_add(&conns_total, RESULT_ACCEPTED, 1);
    metric_set(&conns_open, 0, server->conn_count + 1);
    http_conn_open(server, fd, &peer, listener->tls);
    if (!timer_is_set(&server->tick))
        timer_set(server->loop, &server->tick, server->tick_ms);
}

static void watch_listeners(struct http_server *server, bool on)
{
    for (unsigned i = 0; i < server->listener_count; i++)
        loop_change(server->loop, &server->listeners[i]->watch, on ? EPOLLIN : 0);
}

static void accept_again(struct timer *timer)
{
    watch_listeners(container_of(timer, struct http_server, accept_again), true);
}

/* No descriptor is left: drops one waiting peer with the help of the spare. */
static void shed(struct http_listener *listener)
{
    struct http_server *server = listener->server;

    log_warn("out of descriptors, a connection is refused");
    if (server->spare_fd >= 0) {
        close(take_fd(&server->spare_fd));
        int fd = accept4(listener->watch.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0)
            refuse(fd);
        server->spare_fd = fcntl(listener->watch.fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0)
            return;
    }
    watch_listeners(server, false);
    timer_set(server->loop, &server->accept_again, ACCEPT_PAUSE_MS);
}

static void on_listener(struct watch *watch, uint32_t events)
{
    struct http_listener *listener = container_of(watch, struct http_listener, watch);
    struct http_server *server = listener->server;

    (void)events;
    if (server->spare_fd < 0)
        server->spare_fd = fcntl(watch->fd, F_DUPFD_CLOEXEC, 0);
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct sockaddr_storage addr = { 0 };
        socklen_t len = sizeof(addr);
        int fd = accept4(watch->fd, (struct sockaddr *)&addr, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            take(listener, fd, &addr);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            shed(listener);
        return;
    }
}

/* ---- the server ---- */

static void run_drain_timer(struct timer *timer)
{
    struct http_server *server = container_of(timer, struct http_server, drain_timer);

    each_conn(server, cut_one, 0);
    http_server_wake(server);
}

static void fill_options(struct http_options *out, const struct http_options *in)
{
    *out = in ? *in : (struct http_options){ 0 };
    out->head_timeout_ms = out->head_timeout_ms ? out->head_timeout_ms : HTTP_HEAD_TIMEOUT_MS;
    out->keepalive_ms = out->keepalive_ms ? out->keepalive_ms : HTTP_KEEPALIVE_MS;
    out->write_stall_ms = out->write_stall_ms ? out->write_stall_ms : HTTP_WRITE_STALL_MS;
    out->body_window_ms = out->body_window_ms ? out->body_window_ms : HTTP_BODY_WINDOW_MS;
    out->conns_max = out->conns_max ? out->conns_max : HTTP_CONNS_MAX;
    out->conns_per_peer_max =
        out->conns_per_peer_max ? out->conns_per_peer_max : HTTP_CONNS_PER_PEER_MAX;
}

int http_server_new(struct http_server **out, struct loop *loop, const struct http_app *app,
                    const struct http_options *options, struct err *err)
{
    struct http_server *server = xnew(struct http_server);

    (void)err;
    server->loop = loop;
    server->app = *app;
    fill_options(&server->options, options);
    int64_t shortest = MIN(MIN(server->options.head_timeout_ms, server->options.keepalive_ms),
                           MIN(server->options.write_stall_ms, server->options.body_window_ms));
    server->tick_ms = MAX(TICK_MIN_MS, MIN(TICK_MAX_MS, shortest / 4));
    server->spare_fd = -1;
    list_init(&server->conns);
    list_init(&server->later);
    list_init(&server->dead);
    server->round.fn = run_round;
    server->tick.fn = run_tick;
    server->accept_again.fn = accept_again;
    server->drain_timer.fn = run_drain_timer;
    server->recv = xmalloc(HTTP_RECV_SIZE);
    server->gather = xmalloc(HTTP_SEND_MAX);
    *out = server;
    return 0;
}

int http_server_listen(struct http_server *server, int fd, struct tls *tls, struct err *err)
{
    struct sockaddr_storage addr = { 0 };
    socklen_t len = sizeof(addr);
    int on = 1;

    if (server->listener_count == ARRAY_LEN(server->listeners))
        return err_set(err, ERR_LIMIT, "at most %zu listeners", ARRAY_LEN(server->listeners));
    if (getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
        return err_sys(err, "listening socket");
    if (addr.ss_family != AF_UNIX) { /* accepted sockets inherit both */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    }
    struct http_listener *listener = xnew(struct http_listener);
    *listener = (struct http_listener){
        .watch = { .fd = fd, .events = EPOLLIN, .fn = on_listener },
        .server = server,
        .tls = tls,
        .index = server->listener_count,
    };
    if (loop_watch(server->loop, &listener->watch, err) < 0) {
        free(listener);
        return -1;
    }
    server->listeners[server->listener_count++] = listener;
    return 0;
}

static void stop_listening(struct http_server *server)
{
    timer_cancel(server->loop, &server->accept_again);
    while (server->listener_count) {
        struct http_listener *listener = server->listeners[--server->listener_count];

        loop_unwatch(server->loop, &listener->watch);
        close(listener->watch.fd);
        free(listener);
    }
    if (server->spare_fd >= 0)
        close(take_fd(&server->spare_fd));
}

void http_server_drain(struct http_server *server, int64_t max_ms, void (*done)(void *ctx),
                       void *ctx)
{
    stop_listening(server);
    server->draining = server->drain_asked = true;
    server->drained = done;
    server->drained_ctx = ctx;
    timer_set(server->loop, &server->drain_timer, max_ms);
    http_server_wake(server);
}

void http_server_free(struct http_server *server)
{
    if (!server)
        return;
    stop_listening(server);
    each_conn(server, cut_one, 0);
    free_dead(server);
    timer_cancel(server->loop, &server->round);
    timer_cancel(server->loop, &server->tick);
    timer_cancel(server->loop, &server->drain_timer);
    map_free(&server->peers);
    free(server->recv);
    free(server->gather);
    free(server);
}

unsigned http_server_conns(const struct http_server *server)
{
    return server->conn_count;
}
