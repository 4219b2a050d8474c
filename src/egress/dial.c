/*
 * From a decision to a connection: the name is looked up, every address that it leads to is judged,
 * and one after the other is tried. What was looked at is what is connected to.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "egress/own.h"

/* ---- what must not be: a request on the connection that another has left ---- */

#ifdef ATOLL_UNGUARDED
static struct {
    int fd;
    struct host host;
} leftover = { .fd = -1 };

static bool leave_open(struct conn *conn)
{
    if (conn->stage != STAGE_HTTP || conn->up_tls || conn->up.fd < 0 || leftover.fd >= 0)
        return false;
    loop_unwatch(conn->box->egress->loop, &conn->up);
    leftover.fd = take_fd(&conn->up.fd);
    leftover.host = conn->host;
    return true;
}

static int take_left(const struct conn *conn)
{
    return leftover.fd >= 0 && host_eq(&leftover.host, &conn->host) ? take_fd(&leftover.fd) : -1;
}
#else
static bool leave_open(struct conn *conn)
{
    (void)conn;
    return false;
}

static int take_left(const struct conn *conn)
{
    (void)conn;
    return -1;
}
#endif

/* ---- its end ---- */

void conn_up_close(struct conn *conn)
{
    if (conn->flowing)
        record_flow(conn);
    conn->flowing = false;
    resolve_cancel(conn);
    if (!guard(own_connection) && leave_open(conn))
        return;
    intercept_free(conn, false);
    if (conn->up.fd < 0)
        return;
    loop_close(conn->box->egress->loop, &conn->up);
}

/* ---- reaching ---- */

/* Of all that was looked up: any that may not be reached, and none is. */
static const char *forbidden(struct conn *conn, struct policy_answer *answer)
{
    for (unsigned i = 0; i < conn->addr_count && (i == 0 || guard(every_answer)); i++) {
        policy_addr(&conn->box->policy, &conn->addrs[i], conn->port, answer);
        if (answer->verdict != POLICY_ALLOW && guard(address))
            return "it leads to an address that may not be reached";
        if (reach(conn->box->egress, &conn->addrs[i], conn->port) == REACH_OWN)
            return "it leads to this machine";
    }
    return NULL;
}

static void conn_connected(struct conn *conn)
{
    conn->flowing = true;
    conn->started_ms = clock_wall_ms();
    conn->sent = conn->received = 0;
    if (conn->opened) {
        intercept_connected(conn);
        return;
    }
    if (conn->kind == EGRESS_KIND_HTTP) {
        http_connected(conn);
        return;
    }
    if (conn->kind == EGRESS_KIND_CONNECT)
        buf_puts(&conn->out, "HTTP/1.1 200 Connection established\r\n\r\n");
    if (tunnel_begins(conn))
        return;
    conn->ahead = conn->in;
    conn->in = (struct buf){ 0 };
    relay_start(conn);
}

/*
 * To whom is near the kernel has connected by now, and a second call says so: that saves a tunnel
 * waiting for it. A request waits, because the next one that is there already would be done from
 * inside of this one. 0: not yet, -1: it will not be.
 */
static int at_once(const struct conn *conn, int fd, const struct sockaddr_storage *to,
                   socklen_t len)
{
    if (conn->kind == EGRESS_KIND_HTTP || conn->opened)
        return 0;
    if (connect(fd, (const struct sockaddr *)to, len) == 0)
        return 1;
    return errno == EALREADY ? 0 : -1;
}

/* The first address was looked at just now. */
static bool connect_one(struct conn *conn)
{
    const struct addr *addr = &conn->addrs[conn->addr_at];
    struct sockaddr_storage to;
    socklen_t len = addr_sock(addr, conn->port, &to);
    const int on = 1;
    struct err err = { 0 };
    int old = guard(own_connection) ? -1 : take_left(conn);
    autoclose int fd =
        old >= 0 ? old : socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || (conn->addr_at && reach(conn->box->egress, addr, conn->port) != REACH_OUT))
        return false;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (old < 0 && connect(fd, (const struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS)
        return false;
    int done = old < 0 ? at_once(conn, fd, &to, len) : 0;
    if (done < 0)
        return false;
    conn->up_wants = done ? EPOLLIN : EPOLLOUT;
    conn->up = (struct watch){ .fd = fd, .events = conn->up_wants, .fn = conn_up_woken };
    if (loop_watch(conn->box->egress->loop, &conn->up, &err) < 0) {
        conn->up.fd = -1;
        return false;
    }
    (void)take_fd(&fd);
    if (done) {
        conn_connected(conn);
        return true;
    }
    conn_stage(conn, STAGE_CONNECT, EGRESS_CONNECT_MS);
    conn_wants(conn, 0, EPOLLOUT);
    return true;
}

void dial_next(struct conn *conn)
{
    conn_up_close(conn);
    for (; conn->addr_at < conn->addr_count; conn->addr_at++)
        if (connect_one(conn))
            return;
    conn->addr_at = 0;
    conn_refuse(conn, EGRESS_UNREACHED, NULL, "nobody answers there");
}

void dial_woken(struct conn *conn, bool down, uint32_t events)
{
    if (down) {
        conn_close(conn); /* it hung up meanwhile */
        return;
    }
    if (events & (EPOLLERR | EPOLLHUP)) {
        conn->addr_at++;
        dial_next(conn);
        return;
    }
    conn_connected(conn);
}

void conn_resolved(struct conn *conn, const char *error)
{
    struct policy_answer answer = { 0 };
    const char *why = error ? NULL : forbidden(conn, &answer);

    if (error)
        conn_refuse(conn, EGRESS_UNRESOLVED, NULL, error);
    else if (why)
        conn_refuse(conn, EGRESS_REFUSED, answer.verdict != POLICY_ALLOW ? &answer : NULL, why);
    else
        dial_next(conn);
}

void conn_reach(struct conn *conn)
{
    conn->addr_at = conn->addr_count = 0;
    if (conn->host.kind == HOST_ADDR) {
        conn->stage = STAGE_LOOKUP;
        conn->addrs[0] = conn->host.addr;
        conn->addr_count = 1;
        conn_resolved(conn, NULL);
        return;
    }
    conn_stage(conn, STAGE_LOOKUP, EGRESS_LOOKUP_MS);
    conn_wants(conn, 0, 0);
    resolve(conn);
}
