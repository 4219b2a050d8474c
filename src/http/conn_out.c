/*
 * Output of a connection: what is written in a turn is gathered and sent by one call at its end,
 * what is written outside goes out at once, and what the socket does not take waits in a queue that
 * has no memory while it is empty.
 */
#include "http/server.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/metric.h"

#define WRITE_PARTS_MAX 8
#define SMALL_WRITE                                                                                \
    1024 /* put together on the stack: a plain send is cheaper than a gathering one */

METRIC_COUNTER(bytes_out, "atoll_http_sent_bytes_total", "Bytes sent by HTTP connections");

size_t http_conn_unsent(const struct http_conn *conn)
{
    return http_conn_waiting(conn) + (conn->in_turn ? conn->server->gathered : 0);
}

void http_conn_doom(struct http_conn *conn, const char *reason)
{
    if (conn->doomed || conn->dead)
        return;
    conn->doomed = reason;
    http_conn_again(conn);
}

static void out_append(struct http_conn *conn, const char *data, size_t len)
{
    size_t waiting = http_conn_waiting(conn);

    if (!len)
        return;
    if (conn->out_cap - conn->out_end < len) {
        if (conn->out_at) {
            memmove(conn->out, conn->out + conn->out_at, waiting);
            conn->out_at = 0;
            conn->out_end = waiting;
        }
        if (conn->out_cap - waiting < len) {
            size_t cap = MAX(conn->out_cap, 512u);

            while (cap - waiting < len)
                cap *= 2;
            conn->out = xrealloc(conn->out, cap);
            conn->out_cap = cap;
        }
    }
    memcpy(conn->out + conn->out_end, data, len);
    conn->out_end += len;
    conn->owes_room = true;
    if (!conn->stalled_ms)
        conn->stalled_ms = loop_now(conn->server->loop);
}

static void out_taken(struct http_conn *conn, size_t len)
{
    conn->out_at += len;
    conn->stalled_ms = loop_now(conn->server->loop);
    if (http_conn_waiting(conn))
        return;
    free(conn->out);
    conn->out = NULL;
    conn->out_at = conn->out_end = conn->out_cap = 0;
    conn->stalled_ms = 0;
}

/* Bytes taken by the socket: 0 when it is full, -1 when it is broken. */
static ssize_t send_parts(struct http_conn *conn, struct iovec *parts, size_t count)
{
    struct msghdr msg = { .msg_iov = parts, .msg_iovlen = count };
    ssize_t n;

    if (conn->tls) { /* one part only: see write_parts */
        n = tls_write(conn->tls, parts[0].iov_base, parts[0].iov_len);
        if (n < 0)
            n = n == TLS_AGAIN ? 0 : -1;
    } else {
        do {
            n = count == 1 ? send(conn->watch.fd, parts[0].iov_base, parts[0].iov_len, MSG_NOSIGNAL)
                           : sendmsg(conn->watch.fd, &msg, MSG_NOSIGNAL);
        } while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
            n = 0;
    }
    if (n > 0)
        metric_add(&bytes_out, 0, n);
    return n;
}

void http_conn_send_queue(struct http_conn *conn)
{
    while (http_conn_waiting(conn) && !conn->doomed) {
        struct iovec part = { conn->out + conn->out_at, http_conn_waiting(conn) };
        ssize_t n = send_parts(conn, &part, 1);

        if (n < 0)
            http_conn_doom(conn, "write failed");
        if (n <= 0)
            return;
        out_taken(conn, (size_t)n);
        if (!conn->tls && (size_t)n < part.iov_len)
            return; /* the next try would only say EAGAIN */
    }
}

/* Nothing waits: hands the parts to the socket and queues what it does not take. */
static void write_parts(struct http_conn *conn, struct iovec *parts, size_t count)
{
    ssize_t n = 0;

    if (!conn->tls) {
        n = send_parts(conn, parts, count);
        if (n < 0) {
            http_conn_doom(conn, "write failed");
            return;
        }
    }
    for (size_t i = 0; i < count; i++) {
        size_t skip = MIN((size_t)n, parts[i].iov_len);

        n -= (ssize_t)skip;
        out_append(conn, (char *)parts[i].iov_base + skip, parts[i].iov_len - skip);
    }
    if (conn->tls)
        http_conn_send_queue(conn);
    if (http_conn_waiting(conn))
        http_conn_events(conn);
}

void http_conn_send_gathered(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    struct iovec part = { server->gather, server->gathered };

    if (!server->gathered)
        return;
    server->gathered = 0;
    if (conn->tls) { /* straight from the gathered bytes: saves the copy of the usual case */
        while (part.iov_len) {
            ssize_t n = send_parts(conn, &part, 1);

            if (n < 0)
                http_conn_doom(conn, "write failed");
            if (n <= 0)
                break;
            part.iov_base = (char *)part.iov_base + n;
            part.iov_len -= (size_t)n;
        }
        if (!part.iov_len || conn->doomed)
            return;
    }
    write_parts(conn, &part, 1);
}

/* Copies the parts one after another; returns where they end. */
static char *join(char *to, const struct str *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (parts[i].n)
            memcpy(to, parts[i].p, parts[i].n);
        to += parts[i].n;
    }
    return to;
}

static void write_small(struct http_conn *conn, const struct str *parts, size_t count)
{
    char small[SMALL_WRITE] __attribute__((uninitialized));
    struct iovec whole = { small, (size_t)(join(small, parts, count) - small) };

    if (whole.iov_len)
        write_parts(conn, &whole, 1);
}

/* Too much to gather: goes out with what was gathered before it. */
static void write_large(struct http_conn *conn, const struct str *parts, size_t count)
{
    struct http_server *server = conn->server;
    struct iovec iov[WRITE_PARTS_MAX + 1];
    size_t used = 0;

    if (conn->in_turn && server->gathered) {
        iov[used++] = (struct iovec){ server->gather, server->gathered };
        server->gathered = 0;
    }
    for (size_t i = 0; i < count; i++)
        if (parts[i].n)
            iov[used++] = (struct iovec){ (char *)(uintptr_t)parts[i].p, parts[i].n };
    write_parts(conn, iov, used);
}

void http_conn_write(struct http_conn *conn, const struct str *parts, size_t count)
{
    struct http_server *server = conn->server;
    size_t total = 0;

    assert(count <= WRITE_PARTS_MAX);
    if (conn->dead || conn->doomed)
        return;
    for (size_t i = 0; i < count; i++)
        total += parts[i].n;
    if (http_conn_waiting(conn)) {
        for (size_t i = 0; i < count; i++)
            out_append(conn, parts[i].p, parts[i].n);
    } else if (conn->in_turn && server->gathered + total <= HTTP_SEND_MAX) {
        char *at = server->gather + server->gathered;

        server->gathered += (size_t)(join(at, parts, count) - at);
    } else if (!conn->in_turn && total <= SMALL_WRITE) {
        write_small(conn, parts, count);
    } else {
        write_large(conn, parts, count);
    }
}

size_t http_conn_room(struct http_conn *conn)
{
    size_t unsent = http_conn_unsent(conn);

    if (conn->dead || conn->doomed || http_conn_waiting(conn) || unsent >= HTTP_SEND_MAX)
        return 0;
    return HTTP_SEND_MAX - unsent;
}
