/*
 * TLS that is opened, because the policy says so for this host: towards the program inside we are
 * the host, with a certificate of the sandbox's own authority; towards the host we are a client
 * that takes nothing on faith (trust.h). In between are requests of HTTP/1.1, read and composed
 * anew like those in clear (http.c), each judged by its method and path.
 *
 *   CONNECT ─▶ 200 ─┐
 *                   ├▶ HELLO ─▶ TLS_IN ─▶ HEAD ─▶ decided, LOOKUP, CONNECT ─▶ TLS_OUT ─▶ HTTP
 *   port 443 ───────┘                     ▲                                              │
 *                                         └──────────────────────────────────────────────┘
 *
 * Nothing is looked up before the first request was judged, and nothing of a request is sent before
 * the host has shown who it is. Bytes of either end go through conn_get and conn_put from then on;
 * what the library has already taken off the socket is announced by asking to be woken when there
 * is room to write, which there is.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "egress/own.h"

#define RETELL_MS 200

/* ---- bytes ---- */

static ssize_t result_of(ssize_t result)
{
    if (result >= 0)
        return result;
    errno = result == TLS_AGAIN ? EAGAIN : ECONNRESET;
    return -1;
}

ssize_t conn_get(struct conn *conn, bool down, void *out, size_t len)
{
    struct tls_conn *tls = down ? conn->down_tls : conn->up_tls;

    if (tls)
        return result_of(tls_read(tls, out, len));
    return recv(down ? conn->down.fd : conn->up.fd, out, len, MSG_DONTWAIT);
}

ssize_t conn_put(struct conn *conn, bool down, const void *data, size_t len)
{
    struct tls_conn *tls = down ? conn->down_tls : conn->up_tls;

    if (conn->opened == OPENED_YES && !tls) { /* what was said in TLS is never said in clear */
        errno = EPIPE;
        return -1;
    }
    if (tls)
        return len ? result_of(tls_write(tls, data, len)) : 0;
    return send(down ? conn->down.fd : conn->up.fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void intercept_free(struct conn *conn, bool down)
{
    struct tls_conn **tls = down ? &conn->down_tls : &conn->up_tls;

    tls_conn_free(*tls);
    *tls = NULL;
}

static bool has_more(const struct tls_conn *tls)
{
    return tls && (tls_pending(tls) || tls_wants_write(tls));
}

uint32_t intercept_wants(const struct tls_conn *tls, uint32_t events)
{
    return events != UINT32_MAX && events & EPOLLIN && has_more(tls) ? events | EPOLLOUT : events;
}

uint32_t intercept_events(const struct tls_conn *tls, const struct watch *watch, uint32_t events)
{
    return watch->events & EPOLLIN && has_more(tls) ? events | EPOLLIN : events;
}

/* ---- may it, must it ---- */

/* Names alone, and never on the port of plain HTTP. */
static bool look(const struct conn *conn, struct policy_answer *answer)
{
    const struct policy_question question = { .host = &conn->host,
                                              .port = conn->port,
                                              .view = POLICY_PEEK };

    if (conn->box->egress->signer || conn->host.kind != HOST_NAME || conn->port == 80)
        return false;
    policy_decide(&conn->box->policy, &question, answer);
    return answer->intercept;
}

static void handshake_inside(struct conn *conn);

bool intercept_takes(struct conn *conn)
{
    struct policy_answer answer;

    if (!look(conn, &answer))
        return false;
    if (conn->kind == EGRESS_KIND_TCP)
        conn->kind = EGRESS_KIND_TLS;
    conn->opened = OPENED_SOON;
    if (answer.verdict == POLICY_DENY) {
        conn->opened = OPENED_NO; /* refused as any other connection is */
        conn->request++;
        conn_refuse(conn, EGRESS_DENIED, &answer, NULL);
        return true;
    }
    if (conn->kind == EGRESS_KIND_CONNECT) {
        buf_puts(&conn->out, "HTTP/1.1 200 Connection established\r\n\r\n");
        conn_flush(conn);
    }
    conn_stage(conn, STAGE_HELLO, EGRESS_HEAD_MS);
    conn_wants(conn, EPOLLIN, 0);
    if (conn->kind == EGRESS_KIND_CONNECT && conn->in.len)
        conn_hello(conn); /* it did not wait for the 200 */
    return true;
}

/* ---- the authority of a sandbox ---- */

static void tell_authority(struct box *box)
{
    struct egress_msg msg = { .head.verb = EGRESS_AUTHORITY };
    autobuf struct buf pem = { 0 };
    struct err err = { 0 };

    if (box->egress->peer.fd < 0 || mint_ca_pem(box->mint, &pem, &err) < 0)
        return;
    snprintf(msg.body.authority.name.id, sizeof(msg.body.authority.name.id), "%s", box->id);
    msg.body.authority.size = (uint32_t)pem.len;
    msg.body.authority.hash = mint_hash(box->mint);
    msg.tail = pem.data;
    if (egress_send(box->egress->peer.fd, &msg) < 0)
        timer_set(box->egress->loop, &box->retell, RETELL_MS); /* it has no room for it now */
}

static void on_retell(struct timer *timer)
{
    struct box *box = container_of(timer, struct box, retell);

    if (box->mint)
        tell_authority(box);
}

void authority_drop(struct box *box)
{
    timer_cancel(box->egress->loop, &box->retell);
    mint_free(box->mint);
    box->mint = NULL;
}

void authority_keep(struct box *box)
{
    int64_t now_s = clock_wall_ms() / 1000;
    struct err err = { 0 };

    box->retell.fn = on_retell;
    if (!policy_intercepts(&box->policy) || (box->mint && mint_stale(box->mint, now_s)))
        authority_drop(box);
    if (!policy_intercepts(&box->policy))
        return;
    if (!box->mint && mint_new(&box->mint, &box->egress->key, str_of(box->id), now_s, &err) < 0) {
        log_error("a sandbox has no authority", kv_str("box", box->id), kv_str("error", err.msg));
        return;
    }
    tell_authority(box);
}

/* ---- towards the program inside ---- */

/* The first message was read and is to the right host; it is in conn->in. */
void intercept_hello(struct conn *conn)
{
    struct box *box = conn->box;
    int64_t now_s = clock_wall_ms() / 1000;
    struct err err = { 0 };

    if (!box->mint || mint_stale(box->mint, now_s))
        authority_keep(box);
    if (!box->mint || trust_server(box->egress->trust, box->mint, &conn->host, now_s, conn->down.fd,
                                   buf_view(&conn->in), &conn->down_tls, &err) < 0) {
        conn->request++;
        conn_refuse(conn, EGRESS_UNREACHED, NULL, err.code ? err.msg : "it cannot be opened");
        return;
    }
    buf_clear(&conn->in);
    conn_stage(conn, STAGE_TLS_IN, EGRESS_HEAD_MS);
    handshake_inside(conn);
}

/* Alerts of RFC 8446 with which a client says that it does not like the certificate. */
static bool of_certificate(int alert)
{
    return alert == 42 || alert == 43 || alert == 46 || alert == 48 || alert == 49;
}

static void not_inside(struct conn *conn)
{
    enum { NO_APPLICATION_PROTOCOL = 120 };
    bool ours;
    int alert = trust_alert(conn->down_tls, &ours);

    conn->request++;
    if (ours && alert == NO_APPLICATION_PROTOCOL)
        record_decision(conn, EGRESS_MALFORMED, NULL,
                        "its TLS is opened, and the program inside wants other than HTTP/1.1");
    else if (ours)
        record_decision(conn, EGRESS_MALFORMED, NULL, "TLS that cannot be spoken");
    else if (of_certificate(alert))
        record_decision(conn, EGRESS_DISTRUSTED, NULL,
                        "the program inside does not trust the sandbox's authority");
    else
        record_decision(conn, EGRESS_DISTRUSTED, NULL,
                        "the program inside ended the handshake: it may pin a certificate");
    conn_close(conn);
}

static void handshake_inside(struct conn *conn)
{
    int rc = tls_handshake(conn->down_tls);

    if (rc == TLS_AGAIN) {
        conn_wants(conn, tls_wants_write(conn->down_tls) ? EPOLLOUT : EPOLLIN, 0);
        return;
    }
    if (rc < 0) {
        not_inside(conn);
        return;
    }
    conn->opened = OPENED_YES;
    conn->kind = EGRESS_KIND_HTTP;
    conn_stage(conn, STAGE_HEAD, EGRESS_IDLE_MS);
    conn_wants(conn, EPOLLIN, 0);
}

/* ---- towards the host ---- */

static void handshake_outside(struct conn *conn)
{
    struct err err = { 0 };
    int rc = tls_handshake(conn->up_tls);

    if (rc == TLS_AGAIN) {
        conn_wants(conn, 0, tls_wants_write(conn->up_tls) ? EPOLLOUT : EPOLLIN);
        return;
    }
    if (trust_checked(conn->up_tls, &err) < 0) {
        conn_refuse(conn, EGRESS_DISTRUSTED, NULL, err.msg);
        return;
    }
    if (rc < 0) {
        conn_refuse(conn, EGRESS_UNREACHED, NULL, "it does not speak TLS as we do");
        return;
    }
    http_connected(conn);
}

void intercept_connected(struct conn *conn)
{
    struct err err = { 0 };

    if (trust_client(conn->box->egress->trust, &conn->host, conn->up.fd, &conn->up_tls, &err) < 0) {
        conn_refuse(conn, EGRESS_UNREACHED, NULL, err.msg);
        return;
    }
    conn_stage(conn, STAGE_TLS_OUT, EGRESS_CONNECT_MS);
    handshake_outside(conn);
}

void intercept_woken(struct conn *conn, bool down)
{
    if (conn->stage == STAGE_TLS_IN)
        handshake_inside(conn);
    else if (down)
        conn_close(conn); /* it hung up meanwhile */
    else
        handshake_outside(conn);
}

void intercept_late(struct conn *conn)
{
    if (conn->stage == STAGE_TLS_IN)
        not_inside(conn);
    else
        conn_refuse(conn, EGRESS_UNREACHED, NULL, "it does not finish its part of TLS");
}
