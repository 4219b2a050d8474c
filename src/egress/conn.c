/*
 * One connection of a program in a sandbox, from its acceptance to its end (own.h has the picture).
 *
 * Where it thinks it is going says what it is: the kernel brings every connection to our listener,
 * whatever address was meant, and that address is its own end of the connection. Who it comes from
 * is the listener that it came in by; nothing that it says matters for that.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/dns.h"
#include "egress/hello.h"
#include "egress/own.h"

#define READ_SIZE 16384
#define DNS_ASK_MAX 512

static void on_down(struct watch *watch, uint32_t events);

/* ---- waiting ---- */

void conn_timer(struct conn *conn, int64_t ms)
{
    if (ms)
        timer_set(conn->box->egress->loop, &conn->timer, ms);
    else
        timer_cancel(conn->box->egress->loop, &conn->timer);
}

void conn_stage(struct conn *conn, enum stage stage, int64_t ms)
{
    conn->stage = stage;
    conn_timer(conn, ms);
}

/*
 * The program inside is waited for from the first time that this is wanted. If it has a tunnel by
 * then, each piece of news is told once (EPOLLET): who has said all would be told of until the far
 * end has, too. Whatever else is wanted later changes that.
 */
static void first_wants(struct conn *conn, uint32_t events)
{
    bool once = conn->stage == STAGE_TUNNEL && events == EPOLLIN;
    struct err err = { 0 };

    conn->down.events = EPOLLIN | events | (once ? EPOLLET : 0);
    conn->watched = loop_watch(conn->box->egress->loop, &conn->down, &err) == 0;
    if (!conn->watched)
        conn_stage(conn, STAGE_END, 1); /* nothing would wake it but its timer */
}

/*
 * UINT32_MAX: not to be woken by it at all, not even by its end. To want less than before is not
 * said to the kernel until it wakes us in vain: usually more is wanted again before that.
 */
static void wants(struct conn *conn, struct watch *watch, uint32_t events)
{
    struct loop *loop = conn->box->egress->loop;
    const struct tls_conn *tls = watch == &conn->down ? conn->down_tls : conn->up_tls;

    if (watch == &conn->down && !conn->watched) {
        first_wants(conn, events);
        return;
    }
    if (watch->fd < 0 || watch->events == UINT32_MAX)
        return; /* once off, off */
    if (events == UINT32_MAX) {
        loop_unwatch(loop, watch);
        watch->events = UINT32_MAX;
    } else if (tls) {
        loop_change(loop, watch, intercept_wants(tls, events));
    } else if (events & ~watch->events) {
        loop_change(loop, watch, events);
    }
}

void conn_wants(struct conn *conn, uint32_t down, uint32_t up)
{
    conn->down_wants = down;
    conn->up_wants = up;
    wants(conn, &conn->down, down);
    wants(conn, &conn->up, up);
}

/* ---- the end ---- */

void conn_close(struct conn *conn)
{
    struct box *box = conn->box;

    relay_free(conn);
    conn_ask_give_up(conn);
    conn_up_close(conn);
    http_free(conn);
    intercept_free(conn, true);
    timer_cancel(box->egress->loop, &conn->timer);
    loop_close(box->egress->loop, &conn->down);
    buf_free(&conn->in);
    buf_free(&conn->out);
    buf_free(&conn->ahead);
    list_remove(&conn->link);
    list_remove(&conn->turn);
    box->conn_count--;
    free(conn);
    box_has_room(box);
    signed_idle(box);
}

void conn_flush(struct conn *conn)
{
    while (conn->out.len) {
        ssize_t put = conn_put(conn, true, conn->out.data, conn->out.len);

        if (put <= 0)
            return; /* if it is broken, reading will tell */
        buf_consume(&conn->out, (size_t)put);
    }
}

/*
 * Closing with bytes unread would make the kernel say "reset", and what was written last would be
 * lost on the way: so they are read and thrown away, for a moment.
 */
static void no_more(struct conn *conn)
{
    intercept_free(conn, true);
    (void)shutdown(conn->down.fd, SHUT_WR);
    conn_timer(conn, EGRESS_LINGER_MS);
}

void conn_end(struct conn *conn)
{
    conn_up_close(conn);
    conn_stage(conn, STAGE_END, EGRESS_IDLE_MS);
    conn_flush(conn);
    if (!conn->out.len)
        no_more(conn);
    conn_wants(conn, EPOLLIN | (conn->out.len ? EPOLLOUT : 0), 0);
}

static void end_woken(struct conn *conn, uint32_t events)
{
    char waste[4096];
    bool had = conn->out.len;

    if (events & (EPOLLERR | EPOLLHUP)) {
        conn_close(conn);
        return;
    }
    conn_flush(conn);
    if (had && !conn->out.len)
        no_more(conn);
    if (events & EPOLLIN && recv(conn->down.fd, waste, sizeof(waste), MSG_DONTWAIT) <= 0) {
        conn_close(conn);
        return;
    }
    conn_wants(conn, EPOLLIN | (conn->out.len ? EPOLLOUT : 0), 0);
}

/* ---- refusing ---- */

static void tls_alert(struct conn *conn, enum egress_verdict verdict)
{
    enum { UNRECOGNIZED_NAME = 112, ACCESS_DENIED = 49, INTERNAL = 80 };
    char alert[] = { 21, 3, 3, 0, 2, 2, ACCESS_DENIED };

    if (verdict == EGRESS_MISLED)
        alert[6] = UNRECOGNIZED_NAME;
    else if (verdict == EGRESS_UNRESOLVED || verdict == EGRESS_UNREACHED)
        alert[6] = INTERNAL;
    buf_append(&conn->out, alert, sizeof(alert));
}

void conn_refuse(struct conn *conn, enum egress_verdict verdict, const struct policy_answer *answer,
                 const char *text)
{
    record_decision(conn, verdict, answer, text);
    if (conn->stage == STAGE_TUNNEL || (conn->kind == EGRESS_KIND_CONNECT && conn->flowing)) {
        conn_close(conn); /* it was told 200 */
        return;
    }
    if (conn->opened == OPENED_SOON) {
        if (verdict != EGRESS_MALFORMED)
            tls_alert(conn, verdict); /* whoever said CONNECT was told 200 */
    } else if (conn->kind == EGRESS_KIND_HTTP || conn->kind == EGRESS_KIND_CONNECT)
        http_refusal(conn, verdict, answer, text);
    else if (conn->kind == EGRESS_KIND_TLS && verdict != EGRESS_MALFORMED)
        tls_alert(conn, verdict);
    if (conn->out.len)
        conn_end(conn);
    else
        conn_close(conn);
}

/* ---- reading what comes from inside ---- */

bool conn_read(struct conn *conn, size_t max)
{
    static char space[READ_SIZE]; /* so that nobody holds more than was said */

    if (conn->in.len >= max)
        return true; /* what is there must be enough to say that it is too much */
    ssize_t got = conn_get(conn, true, space, MIN(READ_SIZE, max - conn->in.len));
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0) {
        conn_close(conn);
        return false;
    }
    buf_append(&conn->in, space, (size_t)got);
    return true;
}

/* The name of the tunnel's other end must be the one that was allowed. */
static const char *misled(const struct conn *conn, enum hello hello, const struct host *name)
{
    if (hello == HELLO_BAD)
        return conn->port != 443   ? "TLS that cannot be read"
               : guard(tls_in_443) ? "port 443, and not TLS"
                                   : NULL;
    if (conn->host.kind == HOST_ADDR)
        return hello == HELLO_NAMED ? "a server name, where an address was meant" : NULL;
    if (hello == HELLO_UNNAMED)
        return guard(server_name_said) ? "TLS without a server name" : NULL;
    return host_eq(name, &conn->host) || !guard(server_name)
               ? NULL
               : "the server name is another one than the host";
}

void conn_hello(struct conn *conn)
{
    if (conn->flowing && !conn->opened && conn->port != 443)
        tunnel_opens(conn);
    else
        conn_hello_tls(conn);
}

void conn_hello_tls(struct conn *conn)
{
    struct host name = { 0 };

    enum hello hello = hello_read((const uint8_t *)conn->in.data, conn->in.len, &name);
    if (hello == HELLO_MORE && conn->in.len < HELLO_MAX)
        return;
    const char *why = misled(conn, hello, &name);
    if (why) {
        conn_refuse(conn, hello == HELLO_BAD ? EGRESS_MALFORMED : EGRESS_MISLED, NULL, why);
    } else if (conn->opened) {
        intercept_hello(conn);
    } else if (conn->flowing) {
        conn->ahead = conn->in;
        conn->in = (struct buf){ 0 };
        relay_start(conn);
    } else {
        if (guard(said_before))
            egress_hear(conn->box->egress);
        conn_decide(conn, POLICY_OPAQUE, 0, STR_NONE);
    }
}

/* DNS over TCP: a length before each message. */
static void dns_woken(struct conn *conn)
{
    uint8_t answer[2 + DNS_ANSWER_MAX];

    if (!conn_read(conn, 2 + DNS_ASK_MAX))
        return;
    while (conn->in.len >= 2) {
        const uint8_t *data = (const uint8_t *)conn->in.data;
        size_t len = (size_t)(data[0] << 8 | data[1]);

        if (len > DNS_ASK_MAX) {
            conn_close(conn);
            return;
        }
        if (conn->in.len < 2 + len)
            break;
        size_t n = dns_answer(data + 2, len, box_name_addr, conn->box, answer + 2);
        answer[0] = (uint8_t)(n >> 8);
        answer[1] = (uint8_t)n;
        if (!n ||
            send(conn->down.fd, answer, 2 + n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)(2 + n)) {
            conn_close(conn); /* who does not read its answers */
            return;
        }
        buf_consume(&conn->in, 2 + len);
    }
    conn_timer(conn, EGRESS_HEAD_MS);
}

/* ---- what wakes it ---- */

static void woken(struct conn *conn, bool down, uint32_t events)
{
    switch (conn->stage) {
    case STAGE_POLICY:
    case STAGE_ASK:
    case STAGE_LOOKUP:
        conn_close(conn); /* nothing was asked for: it is gone */
        break;
    case STAGE_HEAD:
        conn_flush(conn); /* of the answer before */
        conn_wants(conn, EPOLLIN | (conn->out.len ? EPOLLOUT : 0), 0);
        if (events & ~(uint32_t)EPOLLOUT && conn_read(conn, HTTP_HEAD_MAX + 1))
            http_head(conn);
        break;
    case STAGE_SELF:
        if (!down || conn->ask)
            conn_close(conn); /* it has gone */
        else
            self_woken(conn);
        break;
    case STAGE_HELLO:
        conn_flush(conn);
        if (!down)
            tunnel_far_spoke(conn, events);
        else if (events & ~(uint32_t)EPOLLOUT && conn_read(conn, HELLO_MAX))
            conn_hello(conn);
        break;
    case STAGE_TLS_IN:
    case STAGE_TLS_OUT:
        intercept_woken(conn, down);
        break;
    case STAGE_DNS:
        dns_woken(conn);
        break;
    case STAGE_CONNECT:
        dial_woken(conn, down, events);
        break;
    case STAGE_TUNNEL:
        relay_woken(conn, down, events);
        break;
    case STAGE_HTTP:
        http_woken(conn, down, events);
        break;
    case STAGE_END:
        end_woken(conn, events);
        break;
    }
}

/*
 * What of it counts. 0: nothing, and it shall not be woken so again; but once that may be, since
 * often the end follows in the same turn.
 */
static uint32_t counts(struct conn *conn, struct watch *watch, const struct tls_conn *tls,
                       uint32_t events, uint32_t wanted)
{
    if (tls)
        return intercept_events(tls, watch, events);
    events &= wanted | EPOLLERR | EPOLLHUP;
    if (!events && conn->in_vain++)
        loop_change(conn->box->egress->loop, watch, wanted);
    return events;
}

static void on_down(struct watch *watch, uint32_t events)
{
    struct conn *conn = container_of(watch, struct conn, down);

    if ((events = counts(conn, watch, conn->down_tls, events, conn->down_wants)))
        woken(conn, true, events);
}

void conn_up_woken(struct watch *watch, uint32_t events)
{
    struct conn *conn = container_of(watch, struct conn, up);

    if ((events = counts(conn, watch, conn->up_tls, events, conn->up_wants)))
        woken(conn, false, events);
}

static void on_timer(struct timer *timer)
{
    struct conn *conn = container_of(timer, struct conn, timer);

    switch (conn->stage) {
    case STAGE_POLICY:
        conn_policy(conn); /* without one */
        break;
    case STAGE_ASK:
        conn_ask_give_up(conn);
        conn_refuse(conn, EGRESS_DENIED, NULL, "nobody has answered in time whether it may");
        break;
    case STAGE_SELF:
        self_late(conn);
        break;
    case STAGE_LOOKUP:
        conn_refuse(conn, EGRESS_UNRESOLVED, NULL, "the resolver does not answer");
        break;
    case STAGE_CONNECT:
        conn->addr_at++;
        dial_next(conn);
        break;
    case STAGE_TLS_IN:
    case STAGE_TLS_OUT:
        intercept_late(conn);
        break;
    case STAGE_HELLO:
        tunnel_late(conn);
        break;
    case STAGE_HTTP:
        http_late(conn);
        break;
    default:
        conn_close(conn);
    }
}

/* ---- the beginning ---- */

/* Whom the address stands for that it thinks it is going to. */
static bool host_of(struct conn *conn)
{
    uint32_t addr = (uint32_t)conn->to.bytes[0] << 24 | (uint32_t)conn->to.bytes[1] << 16 |
                    (uint32_t)conn->to.bytes[2] << 8 | conn->to.bytes[3];

    conn->port = conn->to_port;
    host_from_addr(&conn->to, &conn->host);
    if ((addr & EGRESS_NET_MASK) != EGRESS_NET)
        return true;
    return names_get(&conn->box->names, addr, &conn->host);
}

/* Does the policy allow any bytes there? */
static bool may_be_raw(const struct conn *conn)
{
    const struct policy_question question = { .host = &conn->host,
                                              .port = conn->port,
                                              .view = POLICY_PEEK };
    struct policy_answer answer;

    policy_decide(&conn->box->policy, &question, &answer);
    return answer.unchecked;
}

static bool begin_transparent(struct conn *conn)
{
    bool known = host_of(conn);

    if (guard(said_before))
        egress_hear(conn->box->egress);
    conn->kind = known && may_be_raw(conn) ? EGRESS_KIND_TCP
                 : conn->port == 80        ? EGRESS_KIND_HTTP
                 : conn->port == 443       ? EGRESS_KIND_TLS
                                           : EGRESS_KIND_TCP;
    if (!known) {
        conn->request++;
        conn_refuse(conn, EGRESS_DENIED, NULL, "this address stands for no name");
    } else if (conn->kind == EGRESS_KIND_HTTP) {
        conn_stage(conn, STAGE_HEAD, EGRESS_HEAD_MS);
        return true;
    } else if (intercept_takes(conn)) {
        return false;
    } else if (conn->kind == EGRESS_KIND_TLS) {
        conn_stage(conn, STAGE_HELLO, EGRESS_HEAD_MS);
        conn_wants(conn, EPOLLIN, 0);
    } else {
        conn_decide(conn, POLICY_OPAQUE, 0, STR_NONE);
    }
    return false;
}

static bool to_self(const struct conn *conn)
{
    static const uint8_t self[4] = { EGRESS_SELF >> 24, EGRESS_SELF >> 16 & 255,
                                     EGRESS_SELF >> 8 & 255, EGRESS_SELF & 255 };

    return conn->to.family == 4 && memcmp(conn->to.bytes, self, 4) == 0;
}

/* True: the head of a request is to be read. */
static bool begin(struct conn *conn)
{
    bool self = to_self(conn);

    conn->stage = STAGE_HEAD; /* it waits for no policy any more */
    if (conn->to_port == 53) {
        conn_stage(conn, STAGE_DNS, EGRESS_HEAD_MS);
        conn_wants(conn, EPOLLIN, 0);
        return false;
    }
    if (self && (conn->to_port == EGRESS_PORT || conn->to_port == 80)) {
        conn->kind = conn->to_port == 80 ? EGRESS_KIND_SELF : EGRESS_KIND_HTTP; /* or CONNECT */
        conn_stage(conn, STAGE_HEAD, EGRESS_HEAD_MS);
        return true;
    }
    if (self || conn->to.family != 4 || conn->to.bytes[0] == 127) {
        conn_close(conn); /* not ours to answer */
        return false;
    }
    return begin_transparent(conn);
}

void conn_policy(struct conn *conn)
{
    if (conn->stage == STAGE_POLICY && begin(conn))
        conn_wants(conn, EPOLLIN, 0);
}

static struct conn *conn_make(struct box *box, int fd)
{
    struct conn *conn = xnew(struct conn);

    conn->box = box;
    conn->up.fd = -1;
    conn->timer.fn = on_timer;
    conn->serial = ++box->egress->serial;
    conn->down = (struct watch){ .fd = fd, .fn = on_down };
    list_append(&box->conns, &conn->link);
    box->conn_count++;
    return conn;
}

void conn_new(struct box *box, int fd, struct list *spoken)
{
    struct sockaddr_in to = { 0 };
    socklen_t len = sizeof(to);

    if (getsockname(fd, (struct sockaddr *)&to, &len) < 0 || to.sin_family != AF_INET) {
        close(fd);
        return;
    }
    struct conn *conn = conn_make(box, fd);
    conn->to = addr_from_bytes(&to.sin_addr, 4);
    conn->to_port = ntohs(to.sin_port);
    if (!box->said && !box->egress->synced) {
        conn_stage(conn, STAGE_POLICY, EGRESS_POLICY_MS);
        conn_wants(conn, 0, 0);
    } else if (begin(conn) && conn_read(conn, HTTP_HEAD_MAX + 1)) {
        if (conn->in.len)
            list_append(spoken, &conn->turn);
        else
            conn_wants(conn, EPOLLIN, 0);
    }
}

/*
 * Usually a request is there with its connection. Those that came together were all read before the
 * first is judged, so that what was said before is heard once for them.
 */
void conn_spoken(struct egress *egress, struct list *spoken)
{
    if (list_empty(spoken))
        return;
    if (guard(said_before))
        egress_hear(egress);
    reach_hear(egress);
    egress->heard = true;
    for (struct list *node; (node = list_pop(spoken));)
        http_head(list_entry(node, struct conn, turn));
    egress->heard = false;
}

void conn_proxy(struct box *box, int fd)
{
    struct conn *conn = conn_make(box, fd);

    conn->to_port = EGRESS_PORT;
    conn->kind = EGRESS_KIND_HTTP;
    conn_stage(conn, STAGE_HEAD, EGRESS_HEAD_MS);
    conn_wants(conn, EPOLLIN, 0);
}
