/*
 * A tunnel before its bytes flow: the far end is connected, and the first bytes of the program
 * inside say whether it may go on. TLS must name the host that was allowed. HTTP/1 is no tunnel any
 * more: each request is read, judged and sent by itself, as on port 80 (http.c). SSH passes. Any
 * other bytes, and programs that wait for the server to speak first, need a rule that ends in
 * "/raw", or a host in `unchecked`; such a tunnel never comes here.
 */
#include "egress/opening.h"
#include "egress/own.h"

static void refuse_raw(struct conn *conn)
{
    const struct policy_question question = { .host = &conn->host,
                                              .port = conn->port,
                                              .view = POLICY_OPAQUE };
    struct policy_answer answer;

    policy_decide(&conn->box->policy, &question, &answer);
    answer.verdict = POLICY_DENY;
    answer.why = WHY_RAW;
    conn_refuse(conn, EGRESS_DENIED, &answer, NULL);
}

/* The connection to the far end is not used: each request has one of its own. */
static void go_http(struct conn *conn)
{
    conn_up_close(conn);
    conn->kind = EGRESS_KIND_HTTP;
    conn->in_tunnel = true;
    conn_stage(conn, STAGE_HEAD, EGRESS_HEAD_MS);
    http_head(conn);
}

static void go_raw(struct conn *conn)
{
    conn->ahead = conn->in;
    conn->in = (struct buf){ 0 };
    relay_start(conn);
}

bool tunnel_begins(struct conn *conn)
{
    bool is_tls = conn->kind == EGRESS_KIND_TLS; /* its first message was read already */

    if (conn->unchecked || is_tls || (conn->port != 443 && !guard(tunnel_looked)))
        return false;
    conn_flush(conn);
    conn_stage(conn, STAGE_HELLO, conn->port == 443 ? EGRESS_HEAD_MS : EGRESS_IDLE_MS);
    conn_wants(conn, EPOLLIN, EPOLLIN);
    if (conn->in.len) /* it did not wait for the reply to CONNECT */
        conn_hello(conn);
    return true;
}

void tunnel_opens(struct conn *conn)
{
    switch (opening_of(buf_view(&conn->in))) {
    case OPENING_MORE:
        return;
    case OPENING_TLS:
        conn_hello_tls(conn);
        return;
    case OPENING_HTTP:
        go_http(conn);
        return;
    case OPENING_HTTP2:
        conn_refuse(conn, EGRESS_MALFORMED, NULL, "HTTP/2 without TLS is not passed on");
        return;
    case OPENING_SSH:
        if (conn->port != 80) {
            go_raw(conn);
            return;
        }
        break;
    case OPENING_OTHER:
        break;
    }
    refuse_raw(conn);
}

/*
 * Servers of SSH speak at once, too, so the program inside gets a moment to say something. The
 * bytes stay in the socket.
 */
void tunnel_far_spoke(struct conn *conn, uint32_t events)
{
    if (events & (EPOLLERR | EPOLLHUP)) {
        conn_close(conn);
        return;
    }
    conn->far_spoke = true;
    conn_timer(conn, EGRESS_SPEAK_MS);
    conn_wants(conn, EPOLLIN | (conn->out.len ? EPOLLOUT : 0), 0);
}

void tunnel_late(struct conn *conn)
{
    if (conn->far_spoke && !conn->in.len)
        refuse_raw(conn);
    else
        conn_close(conn);
}
