/*
 * One sandbox. The warden and the api process speak of it in any order, each by its id: it exists
 * here while either has something to say about it. Without sockets there is nothing to decide,
 * without a policy nothing is allowed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "egress/own.h"

static struct box *box_get(struct egress *egress, const struct box_name *name)
{
    struct str id = str_of(name->id);
    struct box *box = map_get(&egress->by_id, id);

    if (box || egress->boxes >= EGRESS_BOXES_MAX)
        return box;
    box = xnew(struct box);
    box->egress = egress;
    memcpy(box->id, name->id, BOX_ID_SIZE);
    for (size_t i = 0; i < LISTENERS; i++)
        box->listeners[i].fd = -1;
    box->dns.fd = -1;
    map_put(&egress->by_id, id, box);
    egress->boxes++;
    return box;
}

/* Nobody has anything to say about it any more. */
static void box_drop(struct box *box)
{
    if (box->here || box->policy_version)
        return;
    map_del(&box->egress->by_id, str_of(box->id));
    box->egress->boxes--;
    buf_free(&box->policy);
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
}

void box_goes(struct egress *egress, uint32_t slot)
{
    struct box *box = egress->slots[slot];

    if (!box)
        return;
    sockets_close(box);
    box_drop(box);
}

static void on_listener(struct watch *watch, uint32_t events)
{
    int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)events;
    if (fd >= 0)
        close(fd);
}

static void on_dns(struct watch *watch, uint32_t events)
{
    char byte;

    (void)events;
    (void)!recv(watch->fd, &byte, 1, MSG_DONTWAIT);
}

static int watch_one(struct box *box, struct watch *watch, int fd,
                     void (*fn)(struct watch *watch, uint32_t events), struct err *err)
{
    *watch = (struct watch){ .fd = fd, .events = EPOLLIN, .fn = fn };
    if (loop_watch(box->egress->loop, watch, err) == 0)
        return 0;
    watch->fd = -1;
    close(fd);
    return -1;
}

void box_comes(struct egress *egress, const struct egress_box *what, const int *fds,
               unsigned count)
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
    box->steered = what->flags & EGRESS_STEERED;
    egress->slots[box->slot] = box;
    int rc = watch_one(box, &box->dns, fds[count - 1], on_dns, &err);
    for (unsigned i = 0; i + 1 < count; i++)
        rc |= watch_one(box, &box->listeners[i], fds[i], on_listener, &err);
    if (rc < 0)
        log_error("a sandbox has no egress", kv_str("box", box->id), kv_str("error", err.msg));
}

void box_policy(struct egress *egress, const struct box_name *name, uint64_t version,
                struct str bytes)
{
    struct box *box = box_get(egress, name);

    if (!box) {
        log_error("too many sandboxes", kv_int("count", egress->boxes));
        return;
    }
    box->policy_version = version;
    buf_clear(&box->policy);
    buf_str(&box->policy, bytes);
    box_drop(box);
}

void egress_boxes_free(struct egress *egress)
{
    struct map_slot *slot;

    for (size_t at = 0; (slot = map_next(&egress->by_id, &at));) {
        struct box *box = slot->value;

        sockets_close(box);
        buf_free(&box->policy);
        free(box);
    }
    map_free(&egress->by_id);
}
