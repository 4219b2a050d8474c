/*
 * May it? A connection, or a request, is judged when it is known whom it is to: by its policy, by
 * what its sandbox has used, and perhaps by somebody who is asked. What was allowed is judged again
 * whenever the policy changes.
 */
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "egress/own.h"
#include "http/h1.h"

/* ---- asking ---- */

static struct str ask_key(const uint32_t *number)
{
    return (struct str){ (const char *)number, sizeof(*number) };
}

struct conn *conn_by_ask(struct egress *egress, uint32_t number)
{
    return map_get(&egress->asks, ask_key(&number));
}

void conn_ask_begin(struct conn *conn)
{
    struct egress *egress = conn->box->egress;

    if (++egress->asked == 0)
        egress->asked = 1;
    conn->ask = egress->asked;
    map_put(&egress->asks, ask_key(&conn->ask), conn);
}

/* Nobody waits for an answer any more. */
void conn_ask_over(struct conn *conn)
{
    if (conn->ask)
        map_del(&conn->box->egress->asks, ask_key(&conn->ask));
    conn->ask = 0;
}

void conn_ask_give_up(struct conn *conn)
{
    if (conn->ask && conn->stage == STAGE_ASK)
        record_unask(conn);
    conn_ask_over(conn);
}

static void ask(struct conn *conn, const struct policy_answer *answer)
{
    int64_t wait_s = conn->box->policy.ask_s ? conn->box->policy.ask_s : EGRESS_ASK_S;

    conn_ask_begin(conn);
    conn->asked_ms = clock_wall_ms();
    /* Between two api processes nobody hears: the next one is told when it has said everything. */
    if (conn->box->egress->synced && !record_ask(conn, answer)) {
        conn_ask_over(conn);
        conn_refuse(conn, EGRESS_DENIED, answer, "nobody can be asked now");
        return;
    }
    conn_stage(conn, STAGE_ASK, wait_s * 1000);
    conn_wants(conn, 0, 0);
}

void conn_ask_again(struct conn *conn)
{
    bool seen = conn->kind == EGRESS_KIND_HTTP;
    struct policy_answer answer;

    if (conn->stage != STAGE_ASK)
        return;
    policy_decide(&conn->box->policy,
                  &(struct policy_question){
                      .host = &conn->host,
                      .port = conn->port,
                      .view = seen ? POLICY_REQUEST : POLICY_OPAQUE,
                      .method = seen ? rule_method(http_head_of(conn)->method) : 0,
                      .path = seen ? http_head_of(conn)->target : STR_NONE,
                  },
                  &answer);
    if (answer.verdict == POLICY_ASK &&
        (record_ask(conn, &answer) || conn->box->egress->peer.fd < 0))
        return;
    conn_ask_over(conn);
    if (answer.verdict == POLICY_ASK) {
        conn_refuse(conn, EGRESS_DENIED, &answer, "nobody can be asked now");
        return;
    }
    if (answer.verdict == POLICY_DENY) {
        conn_refuse(conn, EGRESS_DENIED, &answer, NULL);
        return;
    }
    record_decision(conn, EGRESS_ALLOWED, &answer, NULL);
    conn_reach(conn);
}

void conn_answered(struct egress *egress, uint32_t number, bool allow)
{
    struct conn *conn = conn_by_ask(egress, number);

    if (!conn || conn->stage != STAGE_ASK)
        return; /* it did not wait so long */
    conn_ask_over(conn);
    if (!allow) {
        conn_refuse(conn, EGRESS_DENIED, NULL, "denied by whoever was asked");
        return;
    }
    conn->granted = true;
    record_decision(conn, EGRESS_ALLOWED, NULL, "allowed by whoever was asked");
    conn_reach(conn);
}

/* What a tunnel may not do, a request may not either: port 443 is for TLS, unless it was loosened.
 */
static bool in_clear(const struct conn *conn)
{
    return conn->kind == EGRESS_KIND_HTTP && conn->port == 443 && !conn->unchecked &&
           !conn->opened && guard(tls_by_proxy);
}

void conn_over_limit(struct conn *conn)
{
    char why[96];

    snprintf(why, sizeof(why), "this sandbox has used all of its %llu bytes",
             (unsigned long long)conn->box->policy.max_bytes);
    conn_refuse(conn, EGRESS_LIMITED, NULL, why);
}

/* A socket that has ended is read from, so that its end is seen. */
size_t conn_may_take(struct conn *conn, int fd, size_t most)
{
    uint64_t left = box_left(conn->box);
    char byte;

    if (left)
        return left < most ? (size_t)left : most;
    if (conn->up_tls)
        return 0; /* what the library holds is not seen on the socket */
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0 ? 0 : most;
}

void conn_decide(struct conn *conn, enum policy_view view, uint8_t method, struct str path)
{
    const struct policy_question question = {
        .host = &conn->host, .port = conn->port, .view = view, .method = method, .path = path
    };
    struct policy_answer answer;

    conn->request++;
    policy_decide(&conn->box->policy, &question, &answer);
    conn->unchecked = answer.unchecked;
    if (answer.verdict == POLICY_ASK && conn->in_tunnel && conn->granted)
        answer.verdict = POLICY_ALLOW; /* the tunnel was what somebody was asked about */
    else
        conn->granted = false;
    if (!guard(each_request) && conn->request > 1)
        answer.verdict = POLICY_ALLOW;
    if (answer.verdict == POLICY_DENY && guard(decision)) {
        conn_refuse(conn, EGRESS_DENIED, &answer, NULL);
    } else if (!box_left(conn->box)) {
        conn_over_limit(conn);
    } else if (in_clear(conn)) {
        conn_refuse(conn, EGRESS_MALFORMED, NULL, "port 443, and not TLS");
    } else if (answer.verdict == POLICY_ASK) {
        ask(conn, &answer);
    } else {
        record_decision(conn, EGRESS_ALLOWED, &answer, NULL);
        conn_reach(conn);
    }
}

void conn_judge_again(struct conn *conn)
{
    bool out = conn->stage >= STAGE_LOOKUP && conn->stage != STAGE_END;
    const struct policy_question question = {
        .host = &conn->host,
        .port = conn->port,
        .view = conn->kind == EGRESS_KIND_HTTP ? POLICY_PEEK : POLICY_OPAQUE,
    };
    struct policy_answer answer;

    if ((!out && !conn->flowing) || !guard(taken_back))
        return; /* it has not been judged yet, or is over */
    policy_decide(&conn->box->policy, &question, &answer);
    bool was_raw = conn->stage == STAGE_TUNNEL && conn->unchecked && !answer.unchecked;
    if (answer.verdict == POLICY_ASK && conn->granted)
        answer.verdict = POLICY_ALLOW; /* it was, and nobody has said otherwise since */
    if (answer.verdict == POLICY_ALLOW && conn->flowing)
        policy_addr(&conn->box->policy, &conn->addrs[conn->addr_at], conn->port, &answer);
    if (answer.verdict == POLICY_ALLOW && !was_raw)
        return;
    conn->revoked = true;
    record_decision(conn, EGRESS_DENIED, &answer, "its rule was taken back");
    conn_close(conn);
}
