/*
 * Questions to the warden, each with a number. At most BOX_ASKS_MAX are with it at a time, so that
 * its socket never fills and a burst of creations does not keep everything else waiting; the others
 * stand in line here. A question that is not answered in BOX_ASK_MS is given up; an answer that
 * comes later is nobody's, and its descriptors are closed.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "box/own.h"

#define ASKS_CHECK_MS 1000

struct ask *ask_new(uint16_t verb, const char *id)
{
    struct ask *ask = xnew(struct ask);

    ask->msg.verb = verb;
    if (id)
        memcpy(ask->msg.name.id, id, MIN(strlen(id), sizeof(ask->msg.name.id) - 1));
    return ask;
}

static void answer(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    int none[WIRE_FDS_MAX];

    for (size_t i = 0; i < WIRE_FDS_MAX; i++)
        none[i] = -1;
    ask->answered(ask, msg, fds ? fds : none);
    free(ask);
}

static void pump(struct boxes *boxes)
{
    struct asks *asks = &boxes->asks;

    while (asks->sent_count < BOX_ASKS_MAX && !list_empty(&asks->waiting)) {
        struct ask *ask = list_entry(asks->waiting.next, struct ask, node);

        list_remove(&ask->node);
        asks->waiting_count--;
        ask->msg.number = ++asks->number ? asks->number : ++asks->number;
        ask->due_ms = clock_mono_ms() + BOX_ASK_MS;
        list_append(&asks->sent, &ask->node);
        asks->sent_count++;
        if (boxes->send(boxes->ctx, &ask->msg) < 0)
            ask->due_ms = 0; /* given up by the timer: never from inside the caller */
        if (!timer_is_set(&asks->timer))
            timer_set(boxes->loop, &asks->timer, ask->due_ms ? ASKS_CHECK_MS : 0);
    }
}

void ask_send(struct boxes *boxes, struct ask *ask)
{
    list_append(&boxes->asks.waiting, &ask->node);
    boxes->asks.waiting_count++;
    pump(boxes);
}

static void on_check(struct timer *timer)
{
    struct boxes *boxes = container_of(timer, struct boxes, asks.timer);
    struct asks *asks = &boxes->asks;
    int64_t now = clock_mono_ms();

    while (!list_empty(&asks->sent)) {
        struct ask *ask = list_entry(asks->sent.next, struct ask, node);

        if (ask->due_ms > now)
            break;
        list_remove(&ask->node);
        asks->sent_count--;
        answer(ask, NULL, NULL);
    }
    pump(boxes);
    if (!list_empty(&asks->sent))
        timer_set(boxes->loop, timer, ASKS_CHECK_MS);
}

void asks_heard(struct boxes *boxes, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    list_each (pos, &boxes->asks.sent) {
        struct ask *ask = list_entry(pos, struct ask, node);

        if (ask->msg.number != msg->number || ask->msg.verb != msg->verb)
            continue;
        list_remove(&ask->node);
        boxes->asks.sent_count--;
        answer(ask, msg, fds);
        pump(boxes);
        return;
    }
}

void asks_init(struct boxes *boxes)
{
    list_init(&boxes->asks.sent);
    list_init(&boxes->asks.waiting);
    boxes->asks.timer.fn = on_check;
}

void asks_free(struct boxes *boxes)
{
    struct list *node;

    timer_cancel(boxes->loop, &boxes->asks.timer);
    while ((node = list_pop(&boxes->asks.sent)) || (node = list_pop(&boxes->asks.waiting)))
        answer(list_entry(node, struct ask, node), NULL, NULL);
}

int ask_err(struct err *err, const struct wire_msg *msg, const char *what)
{
    if (!msg)
        return err_set(err, ERR_UNAVAILABLE, "%s: the warden does not answer", what);
    bool made = msg->verb == WIRE_BOX_CREATE;
    const char *step = made ? box_step_name(msg->created.step) : "";
    const char *why = strerrordesc_np(msg->status);
    enum err_code code = msg->status == ENOTSUP  ? ERR_UNSUPPORTED
                         : msg->status == ENOENT ? ERR_CONFLICT
                         : msg->status == EAGAIN ? ERR_UNAVAILABLE
                         : msg->status == ENOSPC ? ERR_UNAVAILABLE
                                                 : ERR_INTERNAL;

    if (msg->status == ENOTSUP && (!made || msg->created.step <= BOX_STEP_SPEC))
        return err_set(err, code,
                       "%s: not on this machine, or not by the user who started the server; "
                       "`atoll doctor` says what is missing",
                       what);
    if (msg->status == ESRCH)
        return err_set(err, ERR_CONFLICT, "%s: the sandbox has ended", what);
    if (msg->status == EMFILE && made)
        return err_set(err, ERR_UNAVAILABLE,
                       "%s: the server has as many files open as it may; raise that limit "
                       "(LimitNOFILE of its service, ulimit -Hn) or remove sandboxes",
                       what);
    /* A layer that could not be applied is told by name, whatever the reason. */
    if (made && msg->created.step > BOX_STEP_SPEC && code == ERR_INTERNAL)
        code = ERR_UNAVAILABLE;
    return err_set(err, code, "%s%s%s: %s", what, made ? ": " : "", step, why ? why : "error");
}
