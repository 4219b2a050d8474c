/*
 * One sandbox. The warden and the api process speak of it in any order, each by its id: it exists
 * here while either has something to say about it. Without sockets there is nothing to decide,
 * without a policy nothing is allowed.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "egress/dns.h"
#include "egress/own.h"

#define ACCEPTS 8 /* of one listener, before others have their turn */

static void on_hold(struct timer *timer);
static void on_tell(struct timer *timer);
static void on_holds(struct timer *timer);

void box_init(struct box *box, struct egress *egress, const char *id)
{
    box->egress = egress;
    snprintf(box->id, sizeof(box->id), "%.*s", BOX_ID_SIZE - 1, id);
    for (size_t i = 0; i < LISTENERS; i++)
        box->listeners[i].fd = -1;
    box->dns.fd = -1;
    box->policy = policy_none;
    box->hold.fn = on_hold;
    box->tell.fn = on_tell;
    box->holds.fn = on_holds;
}

static struct box *box_get(struct egress *egress, const struct box_name *name)
{
    struct str id = str_of(name->id);
    struct box *box = map_get(&egress->by_id, id);

    if (box || egress->boxes >= EGRESS_BOXES_MAX)
        return box;
    box = xnew(struct box);
    box_init(box, egress, name->id);
    map_put(&egress->by_id, id, box);
    egress->boxes++;
    return box;
}

/* Nobody has anything to say about it any more. */
static void box_drop(struct box *box)
{
    if (box->here || box->said)
        return;
    map_del(&box->egress->by_id, str_of(box->id));
    box->egress->boxes--;
    creds_free(box->creds);
    authority_drop(box);
    buf_free(&box->bytes);
    free(box);
}

static void unwatch(struct box *box, struct watch *watch)
{
    if (watch->fd < 0)
        return;
    loop_unwatch(box->egress->loop, watch);
    close(watch->fd);
    watch->fd = -1;
}

static void sockets_close(struct box *box)
{
    if (!box->here)
        return;
    for (size_t i = 0; i < LISTENERS; i++)
        unwatch(box, &box->listeners[i]);
    unwatch(box, &box->dns);
    box->egress->slots[box->slot] = NULL;
    box->here = false;
    list_each_safe (node, &box->conns)
        conn_close(list_entry(node, struct conn, link));
    timer_cancel(box->egress->loop, &box->hold);
    timer_cancel(box->egress->loop, &box->tell);
    timer_cancel(box->egress->loop, &box->holds);
    names_free(&box->names);
    box->names = (struct names){ 0 };
    kept_close(box->kept);
    box->kept = NULL;
}

void box_goes(struct egress *egress, uint32_t slot)
{
    struct box *box = egress->slots[slot];

    if (!box)
        return;
    sockets_close(box);
    box_drop(box);
}

/* ---- connections ---- */

static void accepting(struct box *box, bool on)
{
    box->held = !on;
    for (size_t i = 0; i < LISTENERS; i++)
        if (box->listeners[i].fd >= 0)
            loop_change(box->egress->loop, &box->listeners[i], on ? EPOLLIN : 0);
}

unsigned box_conns_max(const struct box *box)
{
    unsigned wished = box->policy.max_connections;

    return wished && wished < EGRESS_CONNS_MAX && guard(max_connections) ? wished
                                                                         : EGRESS_CONNS_MAX;
}

void box_has_room(struct box *box)
{
    if (box->here && box->held && !timer_is_set(&box->hold) && box->conn_count < box_conns_max(box))
        accepting(box, true);
}

static void on_hold(struct timer *timer)
{
    box_has_room(container_of(timer, struct box, hold));
}

/* Who is over its limit waits in the kernel's queue, and so does everybody without descriptors. */
static void accept_from(struct box *box, int listener)
{
    struct list spoken = { 0 };
    int fd = 0;

    for (int i = 0; i < ACCEPTS && fd >= 0 && box->conn_count < box_conns_max(box); i++) {
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            conn_new(box, fd, &spoken);
    }
    int error = errno;
    conn_spoken(box->egress, &spoken);
    if (fd < 0 && (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM)) {
        log_warn("out of descriptors, connections wait", kv_str("box", box->id));
        accepting(box, false);
        timer_set(box->egress->loop, &box->hold, EGRESS_HOLD_MS);
        return;
    }
    if (box->conn_count >= box_conns_max(box))
        accepting(box, false);
}

static struct box *box_at(struct watch *watch, size_t place)
{
    return container_of(watch - place, struct box, listeners[0]);
}

static void on_listener_0(struct watch *watch, uint32_t events)
{
    (void)events;
    accept_from(box_at(watch, 0), watch->fd);
}

static void on_listener_1(struct watch *watch, uint32_t events)
{
    (void)events;
    accept_from(box_at(watch, 1), watch->fd);
}

static void on_listener_2(struct watch *watch, uint32_t events)
{
    (void)events;
    accept_from(box_at(watch, 2), watch->fd);
}

static void (*const on_listener[LISTENERS])(struct watch *watch,
                                            uint32_t events) = { on_listener_0, on_listener_1,
                                                                 on_listener_2 };

/* ---- bytes ---- */

/*
 * What the last process counted, or what the api process knows, if that is more. If it is less, it
 * was killed before it had stored the rest, and is told.
 */
static void catch_up(struct box *box)
{
    if (!box->kept)
        return;
    if (box->kept->bytes < box->said_used)
        box->kept->bytes = box->said_used;
    else if (box->kept->bytes > box->said_used && box->said && guard(told_again))
        timer_set(box->egress->loop, &box->tell, 0);
}

uint64_t box_left(const struct box *box)
{
    uint64_t most = box->policy.max_bytes, used = box->kept ? box->kept->bytes : 0;

    return !most || !guard(max_bytes) ? UINT64_MAX : used < most ? most - used : 0;
}

void box_uses(struct box *box, size_t bytes)
{
    if (!box->kept)
        return;
    box->kept->bytes += bytes;
    if (box->policy.max_bytes && !timer_is_set(&box->tell))
        timer_set(box->egress->loop, &box->tell, EGRESS_USED_MS);
}

static void on_tell(struct timer *timer)
{
    struct box *box = container_of(timer, struct box, tell);

    if (!record_used(box) && box->egress->peer.fd >= 0)
        timer_set(box->egress->loop, timer, EGRESS_USED_MS); /* it has no room for it now */
}

static void on_holds(struct timer *timer)
{
    struct box *box = container_of(timer, struct box, holds);

    if (box->here && box->said && !box->deaf && !record_holds(box) && box->egress->peer.fd >= 0)
        timer_set(box->egress->loop, timer, EGRESS_USED_MS); /* it has no room for it now */
}

/* Sockets or a policy have come: once both are here, the api process is told. */
static void tell_holds(struct box *box)
{
    if (box->here && box->said && !box->egress->signer)
        timer_set(box->egress->loop, &box->holds, 0);
}

/* ---- questions ---- */

uint32_t box_name_addr(void *ctx, const struct host *host)
{
    return names_put(&((struct box *)ctx)->names, host);
}

/* Answered from the address that was asked, whichever that is: others are not believed. */
static void on_dns(struct watch *watch, uint32_t events)
{
    struct box *box = container_of(watch, struct box, dns);
    uint8_t ask[DNS_ANSWER_MAX], answer[DNS_ANSWER_MAX];
    struct sockaddr_in from;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct in_pktinfo))];
    } control;
    struct iovec part = { ask, sizeof(ask) };
    struct msghdr head = { .msg_name = &from,
                           .msg_namelen = sizeof(from),
                           .msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof(control.bytes) };
    ssize_t got = recvmsg(watch->fd, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    (void)events;
    if (got <= 0 || head.msg_flags & MSG_TRUNC)
        return;
    struct cmsghdr *info = CMSG_FIRSTHDR(&head);
    if (!info || info->cmsg_level != IPPROTO_IP || info->cmsg_type != IP_PKTINFO)
        return;
    struct in_pktinfo *to = (struct in_pktinfo *)(void *)CMSG_DATA(info);
    to->ipi_spec_dst = to->ipi_addr;
    part = (struct iovec){ answer, dns_answer(ask, (size_t)got, box_name_addr, box, answer) };
    if (part.iov_len)
        (void)!sendmsg(watch->fd, &head, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int watch_one(struct box *box, struct watch *watch, int fd,
                     void (*fn)(struct watch *watch, uint32_t events), struct err *err)
{
    const int on = 1;

    *watch = (struct watch){ .fd = fd, .events = EPOLLIN, .fn = fn };
    /*
     * For all that it accepts. The way inside is memory, on which nothing is lost and nothing has
     * to be paced: with the timers of bbr it is a third slower.
     */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    if (loop_watch(box->egress->loop, watch, err) == 0)
        return 0;
    watch->fd = -1;
    close(fd);
    return -1;
}

void box_comes(struct egress *egress, const struct egress_box *what, const int *fds, unsigned count)
{
    struct err err = { 0 };

    box_goes(egress, what->slot);
    struct box *box = box_get(egress, &what->name);
    if (!box) {
        log_error("too many sandboxes", kv_int("count", egress->boxes));
        for (unsigned i = 0; i < count; i++)
            close(fds[i]);
        return;
    }
    sockets_close(box); /* told again, perhaps in another slot */
    box->here = true;
    box->slot = what->slot;
    egress->slots[box->slot] = box;
    int kept = what->flags & EGRESS_KEPT ? fds[--count] : -1;
    box->kept = kept_open(kept);
    if (kept >= 0)
        close(kept);
    names_open(&box->names, box->kept);
    catch_up(box);
    int rc = watch_one(box, &box->dns, fds[count - 1], on_dns, &err);
    for (unsigned i = 0; i + 1 < count && i < LISTENERS; i++)
        rc |= watch_one(box, &box->listeners[i], fds[i], on_listener[i], &err);
    if (rc < 0)
        log_error("a sandbox has no egress", kv_str("box", box->id), kv_str("error", err.msg));
    box->deaf = rc < 0;
    box->steered = what->flags & EGRESS_STEERED;
    tell_holds(box);
}

/* ---- what it may reach ---- */

static void judge_again(struct box *box)
{
    list_each_safe (node, &box->conns)
        conn_judge_again(list_entry(node, struct conn, link));
    list_each_safe (node, &box->conns)
        conn_policy(list_entry(node, struct conn, link));
    box_has_room(box);
}

void box_policy(struct egress *egress, const struct box_name *name, uint64_t used, struct str bytes)
{
    struct box *box = box_get(egress, name);
    struct err err = { 0 };

    if (!box) {
        log_error("too many sandboxes", kv_int("count", egress->boxes));
        return;
    }
    box->said = true;
    box->said_used = used;
    catch_up(box);
    buf_clear(&box->bytes);
    buf_str(&box->bytes, bytes);
    if (policy_open(&box->policy, box->bytes.data, box->bytes.len, &err) < 0) {
        log_error("a policy that is none, all is denied", kv_str("box", box->id),
                  kv_str("error", err.msg));
        box->policy = policy_none;
    }
    authority_keep(box);
    judge_again(box);
    tell_holds(box);
}

void box_forget(struct egress *egress, const struct box_name *name)
{
    struct box *box = map_get(&egress->by_id, str_of(name->id));

    if (!box)
        return;
    box->said = false;
    if (guard(no_policy))
        box->policy = policy_none;
    buf_clear(&box->bytes);
    creds_free(box->creds);
    box->creds = NULL;
    authority_drop(box);
    judge_again(box);
    box_drop(box);
}

/* Whatever goes wrong, nothing goes into its requests: no error says more than which secret. */
void box_inject(struct egress *egress, const struct box_name *name, struct str bytes)
{
    struct box *box = map_get(&egress->by_id, str_of(name->id));
    struct err err = { 0 };

    if (!box || !box->said)
        return;
    creds_free(box->creds);
    box->creds = NULL;
    if (bytes.n && creds_new(&box->creds, &egress->key, bytes, &err) < 0)
        log_error("no credentials for a sandbox", kv_str("box", box->id), kv_str("error", err.msg));
}

void boxes_synced(struct egress *egress)
{
    for (uint32_t slot = 0; slot < BOX_SLOTS; slot++) {
        struct box *box = egress->slots[slot];

        if (!box)
            continue;
        list_each_safe (node, &box->conns)
            conn_ask_again(list_entry(node, struct conn, link));
        list_each_safe (node, &box->conns)
            conn_policy(list_entry(node, struct conn, link));
    }
}

void egress_boxes_free(struct egress *egress)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&egress->by_id, &at));) {
        struct box *box = slot->value;

        sockets_close(box);
        creds_free(box->creds);
        authority_drop(box);
        buf_free(&box->bytes);
        free(box);
    }
    map_free(&egress->by_id);
}
