/*
 * One connection: its turns, its input, and when it ends. Output is in conn_out.c.
 *
 * Input goes from the socket into one buffer that all connections share, and from there to the
 * protocol; only what the protocol leaves is copied into the connection's own buffer, which has no
 * memory while it is empty. Output of a turn is gathered in another shared buffer and sent by one
 * call when the turn ends; only what the socket does not take is copied. So an idle connection owns
 * no buffers, and a small request costs one recv and one send.
 *
 * A write that fails outside a turn must not call back into the application that is writing: the
 * connection is doomed, further writes are dropped, and it is cut at the end of the round.
 *
 * Closing: what waits is sent, the sending side is shut, and what still comes in is thrown away for
 * a moment before the descriptor is closed. Otherwise the kernel would answer bytes still on their
 * way with a reset, and the peer might never see our last answer (RFC 9112 section 9.6).
 */
#include "http/server.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/metric.h"

#define IN_MAX (HTTP_HEAD_MAX + HTTP_RECV_SIZE)

METRIC_COUNTER(bytes_in, "atoll_http_received_bytes_total", "Bytes received by HTTP connections");

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
#define PREFACE_SIZE (sizeof(preface) - 1)

static const struct http_proto sniff;

/* The protocol gets bytes unless it stopped them or the peer does not take our answers. */
static bool may_offer(const struct http_conn *conn)
{
    return !conn->closing && !conn->stop_reading && http_conn_waiting(conn) <= HTTP_OUT_HIGH;
}

/* And more are read for it unless enough wait already: no protocol needs more at once than a head.
 */
static bool may_read(const struct http_conn *conn)
{
    if (conn->lingering)
        return true;
    return !conn->eof && may_offer(conn) && conn->in.len < HTTP_HEAD_MAX;
}

void http_conn_events(struct http_conn *conn)
{
    uint32_t events = 0;

    if (conn->dead)
        return;
    if (conn->handshaking) {
        events = tls_wants_write(conn->tls) ? EPOLLOUT : EPOLLIN;
    } else {
        if (may_read(conn))
            events |= EPOLLIN;
        if (!conn->eof && !conn->rdhup)
            events |= EPOLLRDHUP;
        if (http_conn_waiting(conn))
            events |= EPOLLOUT;
    }
    loop_change(conn->server->loop, &conn->watch, events);
}

/* ---- ending ---- */

void http_conn_cut(struct http_conn *conn, const char *reason)
{
    if (conn->dead)
        return;
    conn->dead = true;
    log_debug("connection closed", kv_str("peer", conn->peer.text), kv_str("reason", reason));
    if (conn->in_turn)
        conn->server->gathered = 0;
    loop_unwatch(conn->server->loop, &conn->watch);
    if (conn->proto->on_close)
        conn->proto->on_close(conn, reason);
    tls_conn_free(take_ptr(&conn->tls));
    close(take_fd(&conn->watch.fd));
    http_server_lost(conn->server, conn);
}

/* Closing, and nothing is left to send: our side ends here. */
static void linger(struct http_conn *conn)
{
    if (conn->eof) {
        http_conn_cut(conn, conn->doomed ? conn->doomed : "closed");
        return;
    }
    if (conn->tls)
        tls_end(conn->tls);
    shutdown(conn->watch.fd, SHUT_WR);
    buf_free(&conn->in);
    conn->lingering = true;
    conn->stalled_ms = loop_now(conn->server->loop);
    http_conn_events(conn);
}

void http_conn_finish(struct http_conn *conn, const char *reason)
{
    if (conn->dead || conn->closing)
        return;
    log_debug("connection ends", kv_str("peer", conn->peer.text), kv_str("reason", reason));
    conn->closing = true;
    if (conn->in_turn) /* the turn's end goes on */
        return;
    if (http_conn_waiting(conn))
        http_conn_events(conn);
    else
        linger(conn);
}

void http_conn_free(struct http_conn *conn)
{
    if (conn->peer.app_free)
        conn->peer.app_free(conn->peer.app);
    buf_free(&conn->in);
    free(conn->out);
    free(conn);
}

/* ---- turns ---- */

static void turn_begin(struct http_conn *conn)
{
    assert(!conn->in_turn && !conn->server->gathered);
    conn->in_turn = true;
}

static void turn_end(struct http_conn *conn)
{
    if (!conn->dead && !conn->closing && conn->proto->on_flush)
        conn->proto->on_flush(conn);
    conn->in_turn = false;
    if (conn->dead) {
        conn->server->gathered = 0;
        return;
    }
    http_conn_send_gathered(conn);
    if (conn->closing && !conn->lingering && !http_conn_waiting(conn))
        linger(conn);
    else
        http_conn_events(conn);
}

void http_conn_again(struct http_conn *conn)
{
    if (conn->again || conn->dead)
        return;
    conn->again = true;
    list_append(&conn->server->later, &conn->later_link);
    http_server_wake(conn->server);
}

void http_conn_later(struct http_conn *conn)
{
    if (!conn->in_turn)
        http_conn_again(conn);
}

void http_conn_reading(struct http_conn *conn, bool on)
{
    if (conn->stop_reading == !on)
        return;
    conn->stop_reading = !on;
    if (on && (conn->in.len || (conn->tls && tls_pending(conn->tls))))
        http_conn_again(conn);
    if (!conn->in_turn)
        http_conn_events(conn);
}

/* Offers bytes to the protocol inside a turn; returns how many it took. */
static size_t offer(struct http_conn *conn, const char *data, size_t len)
{
    size_t taken = conn->proto->on_data(conn, data, len);

    assert(taken <= len);
    return conn->dead || conn->closing ? len : taken;
}

static void offer_kept(struct http_conn *conn)
{
    size_t taken = offer(conn, conn->in.len ? conn->in.data : "", conn->in.len);

    if (conn->dead)
        return;
    buf_consume(&conn->in, taken);
    if (!conn->in.len)
        buf_free(&conn->in);
}

static void saw_eof(struct http_conn *conn)
{
    conn->eof = true;
    if (conn->lingering) {
        http_conn_cut(conn, "closed");
        return;
    }
    if (conn->closing) {
        http_conn_events(conn);
        return;
    }
    turn_begin(conn);
    conn->proto->on_eof(conn);
    turn_end(conn);
}

/* One recv, or as many TLS records as fit: bytes, 0 at the end, -1 nothing now, -2 broken. */
static ssize_t receive(struct http_conn *conn, char *room, size_t size)
{
    ssize_t n, total = 0;

    if (!conn->tls) {
        do {
            n = recv(conn->watch.fd, room, size, 0);
        } while (n < 0 && errno == EINTR);
        if (n < 0)
            return errno == EAGAIN ? -1 : -2;
        return n;
    }
    do {
        n = tls_read(conn->tls, room + total, size - (size_t)total);
        if (n > 0)
            total += n;
    } while (n > 0 && (size_t)total < size && tls_pending(conn->tls));
    if (total > 0) {
        if ((size_t)total == size || n == 0)
            conn->read_more = true; /* the socket may stay silent about the rest */
        if (conn->read_more)
            http_conn_again(conn);
        return total;
    }
    return n == TLS_AGAIN ? -1 : n == TLS_FAILED ? -2 : 0;
}

static void read_socket(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    ssize_t n = receive(conn, server->recv, HTTP_RECV_SIZE);

    if (n == -1)
        return;
    if (n == -2) {
        http_conn_cut(conn, "connection reset");
        return;
    }
    if (n == 0) {
        saw_eof(conn);
        return;
    }
    metric_add(&bytes_in, 0, n);
    if (conn->proto != &sniff) /* whose time runs from the start, however slowly bytes drip */
        conn->active_ms = loop_now(server->loop);
    turn_begin(conn);
    if (conn->in.len) {
        buf_append(&conn->in, server->recv, (size_t)n);
        offer_kept(conn);
    } else {
        size_t taken = offer(conn, server->recv, (size_t)n);

        if (!conn->dead)
            buf_append(&conn->in, server->recv + taken, (size_t)n - taken);
    }
    turn_end(conn);
}

static void throw_away(struct http_conn *conn)
{
    ssize_t n = receive(conn, conn->server->recv, HTTP_RECV_SIZE);

    if (n == -1)
        return;
    if (n > 0)
        conn->lingered += (size_t)n;
    if (n <= 0 || conn->lingered > HTTP_LINGER_BYTES_MAX)
        http_conn_cut(conn, "closed");
}

void http_conn_turn(struct http_conn *conn)
{
    conn->again = false;
    if (conn->doomed) {
        http_conn_cut(conn, conn->doomed);
        return;
    }
    if (conn->handshaking || conn->lingering)
        return;
    turn_begin(conn);
    if (may_offer(conn))
        offer_kept(conn);
    turn_end(conn);
    if (conn->dead || conn->lingering || !may_read(conn) || !conn->tls)
        return;
    if (conn->read_more || tls_pending(conn->tls)) {
        conn->read_more = false;
        read_socket(conn);
    }
}

void http_conn_drain(struct http_conn *conn)
{
    conn->draining = true;
    if (conn->dead || conn->closing)
        return;
    turn_begin(conn);
    conn->proto->on_drain(conn);
    turn_end(conn);
}

void http_conn_tick(struct http_conn *conn, int64_t now_ms)
{
    if (conn->lingering) {
        if (now_ms - conn->stalled_ms > HTTP_LINGER_MS)
            http_conn_cut(conn, "closed");
        return;
    }
    if (conn->stalled_ms && !conn->patient &&
        now_ms - conn->stalled_ms > conn->server->options.write_stall_ms) {
        http_conn_cut(conn, "peer reads nothing");
        return;
    }
    if (conn->closing)
        return;
    turn_begin(conn);
    conn->proto->on_tick(conn, now_ms);
    turn_end(conn);
}

/* ---- the first bytes: which protocol is it? ---- */

static size_t sniff_data(struct http_conn *conn, const char *data, size_t len)
{
    size_t compare = MIN(len, PREFACE_SIZE);

    if (!len)
        return 0;
    if (memcmp(data, preface, compare) == 0) {
        if (compare < PREFACE_SIZE)
            return 0;
        h2_start(conn);
    } else {
        h1_start(conn);
    }
    return conn->dead ? len : conn->proto->on_data(conn, data, len);
}

static void sniff_eof(struct http_conn *conn)
{
    http_conn_cut(conn, "closed by the peer");
}

static void sniff_tick(struct http_conn *conn, int64_t now_ms)
{
    if (now_ms - conn->active_ms > conn->server->options.head_timeout_ms)
        http_conn_cut(conn, "no request in time");
}

static void sniff_drain(struct http_conn *conn)
{
    if (conn->handshaking)
        http_conn_cut(conn, "draining");
    else
        http_conn_finish(conn, "draining");
}

static const struct http_proto sniff = {
    .name = "none yet",
    .on_data = sniff_data,
    .on_eof = sniff_eof,
    .on_tick = sniff_tick,
    .on_drain = sniff_drain,
};

static void shake_hands(struct http_conn *conn)
{
    int result = tls_handshake(conn->tls);

    if (result == TLS_FAILED) {
        http_conn_cut(conn, "TLS handshake failed");
        return;
    }
    if (result == TLS_AGAIN) {
        http_conn_events(conn);
        return;
    }
    conn->handshaking = false;
    if (tls_is_h2(conn->tls)) {
        turn_begin(conn);
        h2_start(conn);
        turn_end(conn);
    }
    if (conn->dead)
        return;
    http_conn_events(conn);
    if (tls_pending(conn->tls))
        http_conn_again(conn);
}

/* Plain HTTP on a listener with TLS is told so, whatever it asks for; other noise is not answered.
 */
static size_t no_tls_data(struct http_conn *conn, const char *data, size_t len)
{
    const struct http_app *app = &conn->server->app;
    autobuf struct buf body = { 0 }, head = { 0 };
    struct err err = { 0 };

    if (!len)
        return 0;
    err_set(&err, ERR_INVALID, "this address speaks TLS: use https://");
    if (app->error_body)
        app->error_body(app->ctx, STR_NONE, &err, &body);
    buf_printf(&head,
               "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\nConnection: close\r\n\r\n",
               body.len);
    if (data[0] >= 'A' && data[0] <= 'Z')
        http_conn_write(conn, (struct str[]){ buf_view(&head), buf_view(&body) }, 2);
    http_conn_finish(conn, "plain HTTP on a TLS listener");
    return len;
}

static const struct http_proto no_tls = {
    .name = "not TLS",
    .on_data = no_tls_data,
    .on_eof = sniff_eof,
    .on_tick = sniff_tick,
    .on_drain = sniff_drain,
};

/* The first byte on a listener with TLS: looks without taking it. True: wait or it is TLS. */
static bool peek_tls(struct http_conn *conn)
{
    struct tls *tls = conn->tls_server;
    unsigned char first;
    ssize_t n = recv(conn->watch.fd, &first, 1, MSG_PEEK);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    conn->tls_server = NULL;
    if (n != 1 || first != 0x16) {
        conn->proto = &no_tls;
        return false;
    }
    if (tls_conn_new(&conn->tls, tls, conn->watch.fd, NULL) < 0) {
        http_conn_cut(conn, "no memory for TLS");
        return true;
    }
    conn->peer.tls = true;
    conn->handshaking = true;
    shake_hands(conn);
    return true;
}

/* ---- events ---- */

static void socket_writable(struct http_conn *conn)
{
    http_conn_send_queue(conn);
    if (conn->doomed) {
        http_conn_cut(conn, conn->doomed);
        return;
    }
    if (conn->closing) {
        if (!http_conn_waiting(conn) && !conn->lingering)
            linger(conn);
        return;
    }
    if (conn->owes_room && http_conn_waiting(conn) <= HTTP_OUT_LOW) {
        conn->owes_room = false;
        turn_begin(conn);
        if (conn->proto->on_room)
            conn->proto->on_room(conn);
        if (!conn->dead && may_offer(conn))
            offer_kept(conn);
        turn_end(conn);
    } else {
        http_conn_events(conn);
    }
}

static void socket_hung_up(struct http_conn *conn, uint32_t events)
{
    if (events & EPOLLHUP) {
        http_conn_cut(conn, "closed by the peer");
        return;
    }
    /* Bytes may wait before the end of the stream: it counts when they have been read. */
    conn->rdhup = true;
    http_conn_events(conn);
}

static void on_event(struct watch *watch, uint32_t events)
{
    struct http_conn *conn = container_of(watch, struct http_conn, watch);

    if (events & EPOLLERR) {
        http_conn_cut(conn, "connection reset");
        return;
    }
    if (conn->tls_server && peek_tls(conn))
        return;
    if (conn->handshaking) {
        shake_hands(conn);
        return;
    }
    if (http_conn_waiting(conn) && (conn->tls || (events & EPOLLOUT)))
        socket_writable(conn);
    if (conn->dead)
        return;
    if (conn->lingering)
        throw_away(conn);
    else if ((events & (EPOLLIN | EPOLLHUP)) && may_read(conn))
        read_socket(conn);
    else if (events & (EPOLLHUP | EPOLLRDHUP))
        socket_hung_up(conn, events);
}

void http_conn_open(struct http_server *server, int fd, const struct http_peer *peer,
                    struct tls *tls)
{
    struct http_conn *conn = xnew(struct http_conn);

    conn->watch = (struct watch){ .fd = fd, .events = EPOLLIN | EPOLLRDHUP, .fn = on_event };
    conn->proto = &sniff;
    conn->server = server;
    conn->peer = *peer;
    conn->tls_server = tls;
    conn->active_ms = loop_now(server->loop);
    conn->in.max = IN_MAX;
    list_append(&server->conns, &conn->link);
    server->conn_count++;
    if (loop_watch(server->loop, &conn->watch, NULL) < 0)
        http_conn_cut(conn, "cannot be watched");
}

/* ---- small answers about a connection ---- */

const struct http_app *http_conn_app(const struct http_conn *conn)
{
    return &conn->server->app;
}

const struct http_options *http_conn_options(const struct http_conn *conn)
{
    return &conn->server->options;
}

int64_t http_conn_now(const struct http_conn *conn)
{
    return loop_now(conn->server->loop);
}
