/*
 * What happens to a sandbox that is there. Each change asks the warden first; its answer moves the
 * state, the store writes it down, and then the caller is told. While a change is under way the
 * sandbox is busy, and a second one is refused.
 *
 * A sandbox with an idle policy falls asleep (paused or stopped) when no command runs in it, nobody
 * reads and nobody asks; who then wants to use it wakes it and waits (box_wake). One that falls
 * asleep at the same moment is woken as soon as it sleeps.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "box/own.h"

#define TTL_RETRY_MS 1000
#define DESTROY_RETRY_MS 100
#define DESTROY_TRIES 5 /* of a box whose row is gone already */
#define TIMER_TURN_MAX_MS (24ll * 3600 * 1000)

/* ---- the end ---- */

static void destroyed_quietly(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    (void)fds;
    if (!msg || (msg->status && msg->status != ENOENT))
        log_error("a sandbox could not be destroyed; the next start tries again",
                  kv_str("sandbox", ask->msg.name.id));
}

static void destroy_quietly(struct boxes *boxes, const char *id)
{
    struct ask *ask = ask_new(WIRE_BOX_DESTROY, id);

    ask->answered = destroyed_quietly;
    ask_send(boxes, ask);
}

static void change_over(struct change *change, const struct err *err)
{
    struct box *box = change->box;

    box->busy = NULL;
    if (change->op)
        change->op->done(change->op, err);
    else if (err)
        log_error("a change of a sandbox is not stored", kv_str("sandbox", change->id),
                  kv_str("error", err->msg));
    box_woken(box, err);
}

void keep_state(struct box *box, const char *event, struct box_op *op)
{
    if (op) {
        op->box = box;
        if (op->prepare)
            op->prepare(op);
    }
    struct change *change = change_new(box, NULL, op, event);
    change->write = row_sandbox_update;
    change->settled = change_over;
    change->audit = op == NULL;
    change_submit(change);
}

void box_ended(struct box *box, enum sandbox_state state, const char *reason, struct box_op *op)
{
    if (box->pool) {
        pool_lost(box, reason);
        return;
    }
    link_drain(box);
    list_each_safe (pos, &box->execs)
        exec_lost(list_entry(pos, struct box_exec, node));
    box_jobs_lost(box, ERR_CONFLICT, "the sandbox has ended");
    timer_cancel(box->boxes->loop, &box->tick);
    timer_cancel(box->boxes->loop, &box->idle);
    snprintf(box->reason, sizeof(box->reason), "%s", reason);
    box_move(box, state);
    if (box->helper) { /* no row, nobody to tell but the one who has it */
        box->helper->lost(box->helper, reason);
        return;
    }
    keep_state(box, state == SANDBOX_STOPPED ? "sandbox.stopped" : "sandbox.failed", op);
}

/* What it becomes when its processes are gone: with a disk it can go on. */
void box_lost(struct box *box, const char *reason)
{
    box_ended(box, box->disk ? SANDBOX_STOPPED : SANDBOX_FAILED, reason, NULL);
}

void box_condemn(struct box *box, const char *why)
{
    if (!sandbox_lives(box->state) || box->busy)
        return;
    log_error("a sandbox is destroyed", kv_str("sandbox", box->id), kv_str("why", why));
    link_close(box); /* nothing more is believed */
    destroy_quietly(box->boxes, box->id);
    box_ended(box, SANDBOX_FAILED, why, NULL);
}

void box_died(struct boxes *boxes, const struct box_died *news)
{
    struct box *box = NULL;
    char reason[160];

    if (box_name_ok(&news->name))
        box = map_get(&boxes->by_id, str_of(news->name.id));
    if (!box || !sandbox_lives(box->state))
        return;
    if (box->busy == box_busy_changed) { /* when that is over */
        box->died = true;
        box->death = *news;
    }
    if (box->busy)
        return; /* whoever is busy with it learns it from the answer */
    if (news->oom_kills)
        snprintf(reason, sizeof(reason), "out of memory: its process 1 was killed");
    else if (news->signal)
        snprintf(reason, sizeof(reason), "its process 1 was killed by signal %d", news->signal);
    else
        snprintf(reason, sizeof(reason), "its process 1 ended (%d)", news->code);
    bool somebodys = !box->pool && !box->helper;
    int64_t up_ms = box->up_ms;
    box_lost(box, reason);
    if (somebodys)
        box_crashed(box, up_ms);
}

/* ---- changes ---- */

const char box_busy_stopped[] = "being stopped", box_busy_deleted[] = "being deleted",
           box_busy_rolled_back[] = "being rolled back";

bool box_is_ending(const struct box *box)
{
    return box->busy == box_busy_stopped || box->busy == box_busy_deleted ||
           box->busy == box_busy_rolled_back;
}

int box_may_begin(struct box *box, enum sandbox_state to, const char *busy, struct err *err)
{
    if (box->busy || !sandbox_may(box->state, to))
        return box_refuse(box, err);
    if (box->boxes->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    box->busy = busy;
    return 0;
}

static void begin(struct box *box, uint16_t verb, struct box_op *op,
                  void (*answered)(struct ask *, const struct wire_msg *, int[WIRE_FDS_MAX]))
{
    struct ask *ask = ask_new(verb, box->id);

    ask->answered = answered;
    ask->box = box;
    ask->op = op;
    if (op)
        op->box = box;
    ask_send(box->boxes, ask);
}

void change_told(struct box *box, struct box_op *op, const struct err *err)
{
    bool died = box->died;

    box->busy = NULL;
    box->died = false;
    if (op)
        op->done(op, err);
    else if (err)
        log_warn("a sandbox does not change by itself now", kv_str("sandbox", box->id),
                 kv_str("error", err->msg));
    if (died)
        box_died(box->boxes, &box->death);
    else
        box_woken(box, err);
}

/* The warden does not know it any more: it died, and nobody could listen. */
static bool gone_already(struct ask *ask, const struct wire_msg *msg)
{
    if (!msg || msg->status != ENOENT)
        return false;
    struct err err = { 0 };
    struct box *box = ask->box;

    box_lost(box, "it ended");
    err_set(&err, ERR_CONFLICT, "sandbox %s has ended", box->id);
    change_told(box, ask->op, &err);
    return true;
}

static void frozen(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;
    bool pause = ask->msg.verb == WIRE_BOX_FREEZE;
    struct err err = { 0 };

    (void)fds;
    if (gone_already(ask, msg))
        return;
    if (!msg || msg->status) {
        ask_err(&err, msg, pause ? "pause" : "resume");
        change_told(box, ask->op, &err);
        return;
    }
    box_move(box, pause ? SANDBOX_PAUSED : SANDBOX_RUNNING);
    if (!pause)
        box->asleep = false;
    keep_state(box, pause ? "sandbox.paused" : "sandbox.resumed", ask->op);
    link_tick_soon(box);
    box_timers_set(box);
}

int box_pause(struct box *box, struct box_op *op, struct err *err)
{
    if (box_may_begin(box, SANDBOX_PAUSED, "being paused", err) < 0)
        return -1;
    begin(box, WIRE_BOX_FREEZE, op, frozen);
    return 0;
}

int box_resume(struct box *box, struct box_op *op, struct err *err)
{
    if (box->state != SANDBOX_PAUSED && !box->busy)
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id,
                       sandbox_state_name(box->state));
    if (box_may_begin(box, SANDBOX_RUNNING, "being resumed", err) < 0)
        return -1;
    begin(box, WIRE_BOX_THAW, op, frozen);
    return 0;
}

static void stopped(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;
    struct err err = { 0 };
    char reason[160];

    (void)fds;
    if (!msg || (msg->status && msg->status != ENOENT)) {
        ask_err(&err, msg, "stop");
        change_told(box, ask->op, &err);
        return;
    }
    if (ask->op)
        snprintf(reason, sizeof(reason), "stopped by %s", ask->op->by);
    else
        snprintf(reason, sizeof(reason), "idle for %lld ms",
                 (long long)(box->spec.idle ? box->spec.idle->after_ms : 0));
    box_ended(box, SANDBOX_STOPPED, reason, ask->op);
}

static int begin_stop(struct box *box, struct box_op *op, struct err *err)
{
    if (sandbox_lives(box->state) && !box->disk)
        return err_set(err, ERR_CONFLICT,
                       "the files of sandbox %s are in memory, and a stop would lose them; delete "
                       "or pause it, or make it with storage disk",
                       box->id);
    if (box_may_begin(box, SANDBOX_STOPPED, box_busy_stopped, err) < 0)
        return -1;
    begin(box, WIRE_BOX_DESTROY, op, stopped);
    return 0;
}

int box_stop(struct box *box, struct box_op *op, struct err *err)
{
    return begin_stop(box, op, err);
}

/* ---- deleting ---- */

/*
 * Its row goes while its box does, and whoever asked is told when both are gone. A kill in between
 * leaves a box that no row knows, and the next start destroys it; a box that does not go at once is
 * asked again. Only what still runs in it makes the box the first to go: its last words are stored
 * before its row is deleted.
 */
static void delete_over(struct box *box)
{
    struct box_op *op = box->gone.op;
    struct disk *disk = disk_by_number(box->boxes, box->disk);
    const struct err *err = &box->gone.err;

    if (err->code) { /* it can be deleted again */
        if (!op && !box->boxes->stopping)
            timer_set(box->boxes->loop, &box->ttl, TTL_RETRY_MS);
        change_told(box, op, err);
        return;
    }
    if (disk)
        disk_drop(disk);
    list_each (pos, &box->execs)
        exec_remove_files(list_entry(pos, struct box_exec, node));
    if (op)
        op->box = NULL;
    box_free(box);
    if (op) /* whoever hears it can take the name again */
        op->done(op, NULL);
}

static void delete_part_over(struct box *box)
{
    if (--box->gone.parts == 0)
        delete_over(box);
}

static void delete_stored(struct change *change, const struct err *err)
{
    if (err)
        change->box->gone.err = *err;
    delete_part_over(change->box);
}

static void delete_rows(struct box *box)
{
    struct box_op *op = box->gone.op;

    link_drain(box);
    list_each_safe (pos, &box->execs)
        exec_lost(list_entry(pos, struct box_exec, node));
    box_jobs_lost(box, ERR_CONFLICT, "the sandbox has ended");
    timer_cancel(box->boxes->loop, &box->ttl);
    timer_cancel(box->boxes->loop, &box->idle);
    timer_cancel(box->boxes->loop, &box->tick);
    box_move(box, SANDBOX_DELETED);
    if (op && op->prepare)
        op->prepare(op);
    struct change *change = change_new(box, NULL, op, "sandbox.deleted");
    change->write = row_sandbox_delete;
    change->settled = delete_stored;
    change->audit = op == NULL;
    box->gone.parts++;
    change_submit(change);
}

static void deleted(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;

    bool first = sandbox_lives(box->state);

    (void)fds;
    if (!msg || (msg->status && msg->status != ENOENT)) {
        if (!first && msg && ++box->gone.tries < DESTROY_TRIES) {
            timer_set(box->boxes->loop, &box->gone.again, DESTROY_RETRY_MS);
            return;
        }
        box->gone.err = (struct err){ 0 };
        ask_err(&box->gone.err, msg, "delete");
    } else {
        box->gone.there = false;
        if (first)
            delete_rows(box);
    }
    delete_part_over(box);
}

static void destroy_again(struct timer *timer)
{
    struct box *box = container_of(timer, struct box, gone.again);

    begin(box, WIRE_BOX_DESTROY, box->gone.op, deleted);
}

static int begin_delete(struct box *box, struct box_op *op, struct err *err)
{
    bool there = sandbox_lives(box->state) || box->gone.there;

    if (box->state == SANDBOX_DELETED) { /* its row or its box could not be deleted then */
        if (box->busy)
            return box_refuse(box, err);
        box->state = SANDBOX_FAILED;
    }
    if (box_may_begin(box, SANDBOX_DELETED, box_busy_deleted, err) < 0)
        return -1;
    box->gone.op = op;
    box->gone.err = (struct err){ 0 };
    box->gone.parts = box->gone.tries = 0;
    box->gone.there = there;
    if (op)
        op->box = box;
    if (there) {
        box->gone.parts++;
        begin(box, WIRE_BOX_DESTROY, op, deleted);
    }
    if (!there || (!box->running && !box->jobs_count))
        delete_rows(box);
    return 0;
}

int box_delete(struct box *box, struct box_op *op, struct err *err)
{
    return begin_delete(box, op, err);
}

static void on_ttl(struct timer *timer)
{
    struct box *box = container_of(timer, struct box, ttl);
    struct err err;

    if (clock_wall_ms() < box->expires_ms)
        box_timers_set(box);
    else if (begin_delete(box, NULL, &err) < 0 && !box->boxes->stopping)
        timer_set(box->boxes->loop, timer, TTL_RETRY_MS);
}

/* ---- idle, and awake again ---- */

static bool is_used(const struct box *box)
{
    if (box->jobs_count || box->running || box->busy)
        return true;
    list_each (pos, &box->execs) {
        const struct box_exec *exec = list_entry(pos, struct box_exec, node);

        if (!list_empty(&exec->pace.readers) || !list_empty(&exec->waits))
            return true;
    }
    return false;
}

static int fall_asleep(struct box *box, struct err *err)
{
    const char *action = box->spec.idle->action;
    int rc;

    if (strcmp(action, "delete") == 0)
        return begin_delete(box, NULL, err);
    rc = strcmp(action, "pause") == 0 ? box_pause(box, NULL, err) : begin_stop(box, NULL, err);
    if (rc == 0)
        box->asleep = true;
    return rc;
}

static void on_idle(struct timer *timer)
{
    struct box *box = container_of(timer, struct box, idle);
    struct err err = { 0 };

    if (!box->spec.idle || box->state != SANDBOX_RUNNING || box->boxes->stopping)
        return;
    if (is_used(box))
        box_touch(box);
    if (clock_mono_ms() - box->used_ms >= box->spec.idle->after_ms && fall_asleep(box, &err) == 0)
        return;
    if (err.code) {
        log_warn("an idle sandbox stays as it is", kv_str("sandbox", box->id),
                 kv_str("error", err.msg));
        box_touch(box);
    }
    box_timers_set(box);
}

void box_touch(struct box *box)
{
    box->used_ms = clock_mono_ms();
}

void box_timers_set(struct box *box)
{
    struct loop *loop = box->boxes->loop;
    int64_t left = box->expires_ms - clock_wall_ms();

    if (box->expires_ms)
        timer_set(loop, &box->ttl, left < 0 ? 0 : MIN(left, (int64_t)TIMER_TURN_MAX_MS));
    else
        timer_cancel(loop, &box->ttl);
    if (!box->spec.idle || box->state != SANDBOX_RUNNING) {
        timer_cancel(loop, &box->idle);
        return;
    }
    if (!box->used_ms)
        box_touch(box);
    left = box->used_ms + box->spec.idle->after_ms - clock_mono_ms();
    timer_set(loop, &box->idle, left < 0 ? 0 : MIN(left, (int64_t)TIMER_TURN_MAX_MS));
}

static void tell_wakers(struct box *box, const struct err *err)
{
    struct list wakers, *node;

    list_init(&wakers);
    while ((node = list_pop(&box->wakers)))
        list_append(&wakers, node);
    while ((node = list_pop(&wakers))) {
        struct box_op *op = list_entry(node, struct box_op, node);

        if (err || !trusted_wait(box, op))
            op->done(op, err);
    }
}

static int begin_wake(struct box *box, struct err *err)
{
    return box->state == SANDBOX_PAUSED ? box_resume(box, NULL, err) : box_start(box, NULL, err);
}

void box_woken(struct box *box, const struct err *err)
{
    struct err now = { 0 };

    trusted_try(box);
    if (list_empty(&box->wakers) || box->busy)
        return;
    if (!err && box->asleep && box->state != SANDBOX_RUNNING && begin_wake(box, &now) == 0)
        return; /* it had only just fallen asleep */
    box_touch(box);
    tell_wakers(box, now.code ? &now : err);
}

int box_wake(struct box *box, struct box_op *op, struct err *err)
{
    box_touch(box);
    if (!box->asleep && list_empty(&box->wakers))
        return trusted_wait(box, op) ? 0 : 1; /* also while others wait, it is being woken */
    if (!box->busy && begin_wake(box, err) < 0)
        return -1;
    op->box = box;
    list_append(&box->wakers, &op->node);
    return 0;
}

void box_unwake(struct box_op *op)
{
    list_remove(&op->node);
}

/* ---- begin and end of the object ---- */

void life_init(struct box *box)
{
    box->ttl.fn = on_ttl;
    box->idle.fn = on_idle;
    box->gone.again.fn = destroy_again;
    list_init(&box->wakers);
}

void life_free(struct box *box)
{
    struct err err = { 0 };

    timer_cancel(box->boxes->loop, &box->ttl);
    timer_cancel(box->boxes->loop, &box->idle);
    err_set(&err, box->boxes->stopping ? ERR_UNAVAILABLE : ERR_NOT_FOUND,
            box->boxes->stopping ? "the server is stopping" : "the sandbox was deleted");
    if (timer_is_set(&box->gone.again) && box->gone.op)
        box->gone.op->done(box->gone.op, &err);
    timer_cancel(box->boxes->loop, &box->gone.again);
    tell_wakers(box, &err);
    trusted_free(box, &err);
}
