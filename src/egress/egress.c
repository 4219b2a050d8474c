/*
 * Two links. The warden's says which sandboxes there are and where the api process is; if it ends,
 * so do we. The api process's says what each sandbox may reach; if it ends, what was said holds
 * until a new one says it anew, so a restart of the api process changes nothing for a sandbox.
 */
#include "egress/egress.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/own.h"

#define PEER_TURN 256 /* messages heard before others have their turn */

/* ---- the api process ---- */

static void peer_gone(struct egress *egress)
{
    if (egress->peer.fd < 0)
        return;
    record_flush(egress);
    loop_unwatch(egress->loop, &egress->peer);
    close(egress->peer.fd);
    egress->peer.fd = -1;
    egress_in_reset(&egress->in);
    egress->synced = false;
}

static void on_config(struct egress *egress, const struct egress_msg *msg)
{
    egress->config = msg->body.config;
    resolver_config(egress);
}

static void on_policy(struct egress *egress, const struct egress_msg *msg)
{
    const struct egress_policy *policy = &msg->body.policy;

    box_policy(egress, &policy->name, policy->used,
               (struct str){ msg->tail, (size_t)policy->size });
}

static void on_inject(struct egress *egress, const struct egress_msg *msg)
{
    const struct egress_inject *inject = &msg->body.inject;

    box_inject(egress, &inject->name, (struct str){ msg->tail, (size_t)inject->size });
}

static void on_forget(struct egress *egress, const struct egress_msg *msg)
{
    box_forget(egress, &msg->body.forget);
}

static void on_synced(struct egress *egress, const struct egress_msg *msg)
{
    (void)msg;
    egress->synced = true;
    boxes_synced(egress);
}

static void on_answer(struct egress *egress, const struct egress_msg *msg)
{
    conn_answered(egress, msg->head.number, msg->body.answer.allow == 1);
}

static void on_told(struct egress *egress, const struct egress_msg *msg)
{
    const struct egress_told *told = &msg->body.told;

    self_told(egress, msg->head.number, (int)told->status,
              (struct str){ msg->tail, (size_t)told->size });
}

/* clang-format off */
static void (*const peer_fn[EGRESS_VERBS])(struct egress *egress, const struct egress_msg *msg) = {
    [EGRESS_CONFIG] = on_config,
    [EGRESS_POLICY] = on_policy,
    [EGRESS_FORGET] = on_forget,
    [EGRESS_INJECT] = on_inject,
    [EGRESS_SYNCED] = on_synced,
    [EGRESS_ANSWER] = on_answer,
    [EGRESS_TOLD]   = on_told,
};
/* clang-format on */

/* False: there is nothing more to be heard now. */
static bool hear_one(struct egress *egress)
{
    struct egress_msg msg;
    int got = egress_recv(egress->peer.fd, &egress->in, &msg);

    if (got < 0 && errno == EAGAIN)
        return false;
    if (got <= 0) {
        if (got < 0)
            log_error("the api process says what is no message", kv_str("now", "link closed"));
        peer_gone(egress);
        return false;
    }
    if (peer_fn[msg.head.verb])
        peer_fn[msg.head.verb](egress, &msg);
    return true;
}

/*
 * What was said before a request came counts for it, so it is heard before that is judged: which of
 * two sockets is ready first, the kernel does not promise. Judging may itself be part of hearing.
 */
void egress_hear(struct egress *egress)
{
    if (egress->hearing || egress->heard)
        return;
    egress->hearing = true;
    for (int i = 0; i < PEER_TURN || egress_in_more(&egress->in); i++)
        if (egress->peer.fd < 0 || !hear_one(egress))
            break;
    egress->hearing = false;
}

static void on_peer(struct watch *watch, uint32_t events)
{
    (void)events;
    egress_hear(container_of(watch, struct egress, peer));
}

static void peer_new(struct egress *egress, int fd)
{
    struct err err = { 0 };

    peer_gone(egress);
    egress->peer.fd = fd;
    if (loop_watch(egress->loop, &egress->peer, &err) < 0) {
        log_error("cannot hear the api process", kv_str("error", err.msg));
        close(fd);
        egress->peer.fd = -1;
    }
}

/* ---- the warden ---- */

static void on_message(struct egress *egress, const struct wire_msg *msg, int *fds, unsigned count)
{
    struct wire_msg pong = { .verb = WIRE_PONG, .number = msg->number };

    unsigned kept = msg->egress.flags & EGRESS_KEPT ? 1 : 0;

    if (msg->verb == WIRE_EGRESS_BOX && count >= 2 + kept && count <= LISTENERS + 1 + kept &&
        box_name_ok(&msg->egress.name) && msg->egress.slot < BOX_SLOTS) {
        box_comes(egress, &msg->egress, fds, count);
        return;
    }
    if (msg->verb == WIRE_EGRESS_PEER && count == 1) {
        peer_new(egress, fds[0]);
        return;
    }
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
    if (msg->verb == WIRE_EGRESS_GONE && msg->egress.slot < BOX_SLOTS)
        box_goes(egress, msg->egress.slot);
    else if (msg->verb == WIRE_PING && wire_send(egress->link.fd, &pong, NULL, 0) < 0)
        log_error("cannot answer the warden", kv_str("error", strerrordesc_np(errno)));
}

static void on_link(struct watch *watch, uint32_t events)
{
    struct egress *egress = container_of(watch, struct egress, link);
    struct wire_msg msg;
    int fds[WIRE_FDS_MAX];
    unsigned count;
    int got = wire_recv(watch->fd, &msg, fds, &count);

    (void)events;
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        log_error("the warden is gone");
        loop_stop(egress->loop);
        return;
    }
    on_message(egress, &msg, fds, count);
}

static void on_flush(struct timer *timer)
{
    record_flush(container_of(timer, struct egress, flush));
}

static struct egress *egress_make(struct loop *loop)
{
    struct egress *egress = xnew(struct egress);

    egress->loop = loop;
    egress->link = (struct watch){ .fd = -1, .events = EPOLLIN, .fn = on_link };
    egress->peer = (struct watch){ .fd = -1, .events = EPOLLIN, .fn = on_peer };
    egress_in_init(&egress->in);
    egress->routes = egress->changes = -1;
    egress->records = xmalloc(EGRESS_MANY * sizeof(*egress->records));
    egress->pid = (uint32_t)getpid();
    random_bytes(&egress->asked, sizeof(egress->asked)); /* no answer to a process before us fits */
    egress->flush.fn = on_flush;
    loop_before_wait(loop, record_turn, egress);
    return egress;
}

/* Whom hosts may be certified by. Without anybody, TLS that is to be opened goes nowhere. */
static int trust_open(struct egress *egress, struct str roots, struct err *err)
{
    if (trust_new(&egress->trust, err) < 0) {
        log_warn("hosts cannot be verified", kv_str("error", err->msg));
        if (trust_empty(&egress->trust, err) < 0)
            return -1;
    }
    if (roots.n && trust_add(egress->trust, roots, err) < 0)
        return err_wrap(err, "egress_authorities");
    return 0;
}

int egress_new(struct egress **out, struct loop *loop, int link, const struct seal_private *key,
               struct str roots, struct err *err)
{
    struct egress *egress = egress_make(loop);

    egress->key = *key;
    egress->link.fd = link;
    if (loop_watch(loop, &egress->link, err) < 0 || reach_open(egress, err) < 0 ||
        resolver_new(egress, err) < 0 || trust_open(egress, roots, err) < 0) {
        egress_free(egress);
        return -1;
    }
    *out = egress;
    return 0;
}

int egress_new_signed(struct egress **out, struct loop *loop, const struct egress_signed *how,
                      struct err *err)
{
    struct egress *egress = egress_make(loop);

    egress->config = how->config;
    if (reach_open(egress, err) < 0 || resolver_new(egress, err) < 0 ||
        signed_open(egress, how, err) < 0) {
        egress_free(egress);
        return -1;
    }
    resolver_config(egress);
    *out = egress;
    return 0;
}

void egress_free(struct egress *egress)
{
    if (!egress)
        return;
    peer_gone(egress);
    signed_close(egress);
    egress_boxes_free(egress);
    map_free(&egress->asks);
    resolver_free(egress);
    pipes_free(egress);
    reach_close(egress);
    loop_before_wait(egress->loop, NULL, NULL);
    timer_cancel(egress->loop, &egress->flush);
    free(egress->records);
    trust_free(egress->trust);
    egress_in_free(&egress->in);
    explicit_bzero(&egress->key, sizeof(egress->key));
    free(egress);
}
