/*
 * What the api process is told. It is told without waiting: a record that it does not take is
 * counted, and the count is told when it takes something again. Records of one turn of the loop go
 * out together at its end, and where there are many turns in a millisecond, those of all of them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "egress/own.h"
#include "http/h1.h"

void record_flush(struct egress *egress)
{
    unsigned count = egress->record_count;

    egress->record_count = 0;
    egress->flushed_ms = loop_now(egress->loop);
    timer_cancel(egress->loop, &egress->flush);
    if (count &&
        (egress->peer.fd < 0 || egress_send_many(egress->peer.fd, egress->records, count) < 0))
        egress->lost += count;
}

void record_turn(void *ctx)
{
    struct egress *egress = ctx;

    if (!egress->record_count || timer_is_set(&egress->flush))
        return;
    if (loop_now(egress->loop) != egress->flushed_ms)
        record_flush(egress);
    else
        timer_set(egress->loop, &egress->flush, 1);
}

/* Nothing overtakes a record. */
static bool send_one(struct egress *egress, struct egress_msg *msg)
{
    record_flush(egress);
    return egress->peer.fd >= 0 && egress_send(egress->peer.fd, msg) == 0;
}

static void tell(struct box *box, struct egress_msg *msg)
{
    struct egress *egress = box->egress;
    struct egress_msg lost = { .head.verb = EGRESS_LOST, .body.lost.count = egress->lost };

    if (egress->signer) {
        signed_record(box, msg);
        return;
    }
    if (egress->lost && send_one(egress, &lost))
        egress->lost = 0;
    if (egress->lost) {
        egress->lost++;
        return;
    }
    egress->records[egress->record_count++] = *msg;
    if (egress->record_count == EGRESS_MANY)
        record_flush(egress);
}

static void put_text(char *out, size_t size, struct str text)
{
    size_t len = MIN(text.n, size - 1);

    memcpy(out, text.p ? text.p : "", len);
    out[len] = 0;
}

static uint8_t kind_of(const struct conn *conn)
{
    return conn->opened == OPENED_YES ? (uint8_t)EGRESS_KIND_HTTPS : conn->kind;
}

/* What is asked for, where that is seen; without what is behind a question mark. */
static void fill_request(struct egress_decision *one, const struct conn *conn)
{
    const struct h1_head *head = http_head_of(conn);
    struct str path = head->target;

    put_text(one->method, sizeof(one->method), head->method);
    put_text(one->path, sizeof(one->path), str_cut(&path, '?'));
}

static void fill(struct egress_decision *one, struct conn *conn, enum egress_verdict verdict,
                 const struct policy_answer *answer, const char *text)
{
    char why[POLICY_TEXT_SIZE];

    memcpy(one->name.id, conn->box->id, BOX_ID_SIZE);
    one->serial = conn->serial;
    one->version = conn->box->said ? conn->box->policy.version : 0;
    one->time_ms = clock_wall_ms();
    one->pid = conn->box->egress->pid;
    one->request = conn->request;
    one->port = conn->port;
    one->kind = kind_of(conn);
    one->verdict = (uint8_t)verdict;
    put_text(one->host, sizeof(one->host), host_str(&conn->host));
    if (conn->http && verdict != EGRESS_MALFORMED)
        fill_request(one, conn);
    one->reason = UINT32_MAX; /* of the policy there is none */
    if (answer) {
        one->reason = answer->why;
        put_text(one->rule, sizeof(one->rule), answer->rule);
        policy_say(answer, why);
        put_text(one->text, sizeof(one->text), str_of(why));
    }
    if (text)
        put_text(one->text, sizeof(one->text), str_of(text));
}

void record_decision(struct conn *conn, enum egress_verdict verdict,
                     const struct policy_answer *answer, const char *text)
{
    struct egress_msg msg = { .head.verb = EGRESS_DECISION };

    fill(&msg.body.decision, conn, verdict, answer, text);
    tell(conn->box, &msg);
    if (verdict == EGRESS_DENIED)
        record_flush(conn->box->egress); /* the end of the command that hears of it shows it */
}

bool record_used(struct box *box)
{
    struct egress_msg msg = { .head.verb = EGRESS_USED };

    if (box->egress->signer)
        return true;
    memcpy(msg.body.used.name.id, box->id, BOX_ID_SIZE);
    msg.body.used.bytes = box->kept->bytes;
    return send_one(box->egress, &msg);
}

bool record_holds(struct box *box)
{
    struct egress_msg msg = { .head.verb = EGRESS_HOLDS };

    memcpy(msg.body.holds.name.id, box->id, BOX_ID_SIZE);
    msg.body.holds.version = box->policy.version;
    msg.body.holds.flags = box->steered ? EGRESS_STEERED : 0;
    return send_one(box->egress, &msg);
}

bool record_own(struct conn *conn, struct egress_own *own)
{
    struct egress_msg msg = { .head = { .verb = EGRESS_OWN, .number = conn->ask } };

    memcpy(own->name.id, conn->box->id, BOX_ID_SIZE);
    msg.body.own = *own;
    return send_one(conn->box->egress, &msg);
}

bool record_hub(struct conn *conn, struct str method, struct str path, struct str body)
{
    struct egress_msg msg = { .head = { .verb = EGRESS_HUB, .number = conn->ask },
                              .body.hub = { .path_size = (uint32_t)path.n,
                                            .body_size = (uint32_t)body.n } };
    autobuf struct buf tail = { 0 };

    memcpy(msg.body.hub.name.id, conn->box->id, BOX_ID_SIZE);
    put_text(msg.body.hub.method, sizeof(msg.body.hub.method), method);
    buf_str(&tail, path);
    buf_str(&tail, body);
    msg.tail = tail.data;
    return send_one(conn->box->egress, &msg);
}

bool record_ask(struct conn *conn, const struct policy_answer *answer)
{
    struct egress_msg msg = { .head = { .verb = EGRESS_ASK, .number = conn->ask } };

    fill(&msg.body.decision, conn, EGRESS_ASKED, answer, NULL);
    msg.body.decision.time_ms = conn->asked_ms;
    return send_one(conn->box->egress, &msg);
}

/* Not said, the answer finds nobody: that is all. */
void record_unask(struct conn *conn)
{
    struct egress_msg msg = { .head = { .verb = EGRESS_UNASK, .number = conn->ask } };

    msg.body.asked.serial = conn->serial;
    (void)send_one(conn->box->egress, &msg);
}

void record_flow(struct conn *conn)
{
    struct egress_msg msg = { .head.verb = EGRESS_FLOW };
    struct egress_flow *one = &msg.body.flow;
    const struct addr *addr = &conn->addrs[conn->addr_at];

    memcpy(one->name.id, conn->box->id, BOX_ID_SIZE);
    one->serial = conn->serial;
    one->started_ms = conn->started_ms;
    one->ended_ms = clock_wall_ms();
    one->sent = conn->sent;
    one->received = conn->received;
    one->pid = conn->box->egress->pid;
    one->request = conn->request;
    one->addr = (struct egress_addr){ .family = addr->family, .port = conn->port };
    memcpy(one->addr.bytes, addr->bytes, sizeof(addr->bytes));
    one->kind = kind_of(conn);
    one->revoked = conn->revoked;
    put_text(one->host, sizeof(one->host), host_str(&conn->host));
    tell(conn->box, &msg);
}
