/*
 * The link to the egress process. Each new one begins with the settings, then every policy, then
 * SYNCED; from then on changes are said as they come. When the socket is full the link is only
 * marked as behind: what follows is said again, whole, as soon as there is room, because policies
 * replace each other and nothing but the newest matters.
 *
 * What comes in is checked by egress_recv. Something that is no message, or more messages in one
 * turn than there is time for, does not end the api: the first closes the link (the warden makes
 * another when that process is started again), the second waits for the next turn.
 */
#include <errno.h>

#include "base/log.h"
#include "gate/own.h"

_Static_assert(POLICY_BYTES_MAX == EGRESS_POLICY_MAX, "a policy is one message");

#define PEER_TURN 256 /* messages read before others run */

bool gate_linked(const struct gate *gate)
{
    return gate->started && gate->peer.fd >= 0;
}

void peer_close(struct gate *gate)
{
    if (gate->peer.fd < 0)
        return;
    if (gate->started)
        loop_unwatch(gate->loop, &gate->peer);
    close(gate->peer.fd);
    gate->peer.fd = -1;
    egress_in_reset(&gate->in);
    effective_unlinked(gate);
    questions_unlinked(gate);
}

/* ---- saying ---- */

static void name_put(struct box_name *name, const char *id)
{
    memcpy(name->id, id, MIN(strlen(id), sizeof(name->id) - 1));
}

static void behind(struct gate *gate)
{
    gate->behind = true;
    loop_change(gate->loop, &gate->peer, EPOLLIN | EPOLLOUT);
}

/* False: it was not said, and will be with everything else. */
static bool say(struct gate *gate, struct egress_msg *msg)
{
    if (gate->peer.fd < 0 || !gate->started)
        return false;
    if (egress_send(gate->peer.fd, msg) == 0)
        return true;
    if (errno == EAGAIN || errno == ENOBUFS) {
        behind(gate);
        return false;
    }
    log_warn("the egress process cannot be told", kv_int("errno", errno));
    peer_close(gate);
    return false;
}

static bool say_policy(struct gate *gate, const struct gate_box *box)
{
    struct egress_msg msg = { .head.verb = EGRESS_POLICY, .tail = box->bytes.data };

    if (!box->bytes.len) { /* nothing is allowed */
        msg = (struct egress_msg){ .head.verb = EGRESS_FORGET };
        name_put(&msg.body.forget, box->id);
        return say(gate, &msg);
    }
    name_put(&msg.body.policy.name, box->id);
    msg.body.policy.version = box->version;
    msg.body.policy.used = (uint64_t)box->totals.used;
    msg.body.policy.size = (uint32_t)box->bytes.len;
    return say(gate, &msg);
}

/* Also when it is nothing: what an earlier life of this process said would go on holding. */
static bool say_inject(struct gate *gate, const struct gate_box *box)
{
    struct egress_msg msg = { .head.verb = EGRESS_INJECT, .tail = box->inject.data };

    if (!box->bytes.len)
        return true; /* forgotten, with all it had */
    name_put(&msg.body.inject.name, box->id);
    msg.body.inject.size = (uint32_t)box->inject.len;
    return say(gate, &msg);
}

static bool say_box(struct gate *gate, const struct gate_box *box)
{
    return say_policy(gate, box) && say_inject(gate, box);
}

void peer_policy(struct gate *gate, const struct gate_box *box)
{
    if (!gate->behind)
        say_box(gate, box);
}

void peer_forget(struct gate *gate, const char *id)
{
    struct egress_msg msg = { .head.verb = EGRESS_FORGET };

    name_put(&msg.body.forget, id);
    if (!gate->behind)
        say(gate, &msg);
}

void peer_answer(struct gate *gate, uint32_t number, bool allow)
{
    struct egress_msg msg = { .head = { .verb = EGRESS_ANSWER, .number = number },
                              .body.answer.allow = allow };

    say(gate, &msg); /* unsaid, it is as if nobody had answered: the connection is refused */
}

void peer_told(struct gate *gate, uint32_t number, unsigned status, struct str body)
{
    struct egress_msg msg = { .head = { .verb = EGRESS_TOLD, .number = number },
                              .body.told = { status, (uint32_t)body.n },
                              .tail = body.p };

    say(gate, &msg); /* unsaid, the program inside is told to try again */
}

static void say_all(struct gate *gate)
{
    struct egress_msg config = { .head.verb = EGRESS_CONFIG, .body.config = gate->config };
    struct egress_msg synced = { .head.verb = EGRESS_SYNCED };
    struct map_slot *slot;
    size_t at = 0;

    gate->behind = false;
    if (!say(gate, &config))
        return;
    while ((slot = map_next(&gate->known, &at)))
        if (!say_box(gate, slot->value))
            return;
    if (say(gate, &synced))
        loop_change(gate->loop, &gate->peer, EPOLLIN);
}

/* ---- hearing ---- */

/* What a sandbox is to trust: it goes into that sandbox and nowhere else. */
static void authority(struct gate *gate, const struct egress_authority *what, const char *pem)
{
    struct box *box = boxes_by_id(gate->boxes, what->name.id);

    if (box && map_get(&gate->known, str_of(what->name.id)))
        box_trust(box, (struct str){ pem, what->size }, what->hash);
}

static void holds(struct gate *gate, const struct egress_holds *what)
{
    struct gate_box *box = map_get(&gate->known, str_of(what->name.id));

    if (!box)
        return;
    box->held = what->version;
    box->steered = what->flags & EGRESS_STEERED;
}

static void take(struct gate *gate, const struct egress_msg *msg)
{
    switch ((enum egress_verb)msg->head.verb) {
    case EGRESS_DECISION:
        records_decision(gate, &msg->body.decision);
        return;
    case EGRESS_FLOW:
        records_flow(gate, &msg->body.flow);
        return;
    case EGRESS_OWN:
        wishes_heard(gate, msg->head.number, &msg->body.own);
        return;
    case EGRESS_HUB:
        wishes_hub(gate, msg->head.number, &msg->body.hub, msg->tail);
        return;
    case EGRESS_USED:
        records_used(gate, &msg->body.used);
        return;
    case EGRESS_AUTHORITY:
        authority(gate, &msg->body.authority, msg->tail);
        return;
    case EGRESS_HOLDS:
        holds(gate, &msg->body.holds);
        return;
    case EGRESS_LOST:
        gate->lost += msg->body.lost.count;
        return;
    case EGRESS_ASK:
        questions_asked(gate, msg->head.number, &msg->body.decision);
        return;
    case EGRESS_UNASK:
        questions_unasked(gate, msg->head.number);
        return;
    default:
        return; /* what only we say */
    }
}

void peer_hear(struct gate *gate)
{
    struct egress_msg msg;

    if (!gate->started)
        return;
    for (int i = 0; (i < PEER_TURN || egress_in_more(&gate->in)) && gate->peer.fd >= 0; i++) {
        int got = egress_recv(gate->peer.fd, &gate->in, &msg);

        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            log_warn(got == 0 ? "the egress process is gone" : "the egress process says nonsense");
            peer_close(gate);
            return;
        }
        take(gate, &msg);
    }
}

static void on_peer(struct watch *watch, uint32_t events)
{
    struct gate *gate = container_of(watch, struct gate, peer);

    if ((events & EPOLLOUT) && gate->behind)
        say_all(gate);
    peer_hear(gate);
}

static void begin(struct gate *gate)
{
    struct err err = { 0 };

    if (loop_watch(gate->loop, &gate->peer, &err) < 0) {
        log_error("the egress process cannot be heard", kv_str("error", err.msg));
        close(gate->peer.fd);
        gate->peer.fd = -1;
        return;
    }
    say_all(gate);
}

void gate_peer(struct gate *gate, int fd)
{
    peer_close(gate);
    gate->peer = (struct watch){ .fd = fd, .events = EPOLLIN, .fn = on_peer };
    if (gate->started)
        begin(gate);
}

void gate_start(struct gate *gate)
{
    gate->started = true;
    gate->behind = true; /* nothing is said before the link begins, which says everything */
    questions_start(gate);
    effective_all(gate); /* also without a link: what commands find in their environment */
    if (gate->peer.fd >= 0)
        begin(gate);
}
