/*
 * Copies of a sandbox's disk: snapshots, forks, and the way back.
 *
 *   copy       row of the new disk · [FREEZE] · DISK_MAKE · [THAW]
 *   snapshot   copy · row ready
 *   fork       copy · then as any creation (make.c), on the new disk
 *   rollback   DISK_MAKE of the snapshot · DESTROY · row: stopped, on the new disk, the old one
 *              forgotten · [start]
 *
 * The row stands before the freezing, so that what runs waits for the copy alone. Who froze thaws:
 * the end of the copy does, however it ended, and asks again while the warden does not answer. If
 * this process is killed in between, the next one thaws what its row calls running (adopt.c).
 *
 * A rollback stores the change of disks while nothing runs: a kill before that leaves the old disk
 * and a sandbox that ended; one after it leaves the new disk and a stopped sandbox.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "box/own.h"

#define THAW_AGAIN_MS 250
#define THAW_TRIES 40

/* ---- one copy ---- */

static void copy_over(struct box *box)
{
    if (box->boxes->stopping && !box->copy.err.code) /* nothing more is stored */
        err_set(&box->copy.err, ERR_UNAVAILABLE, "the server is stopping");
    struct disk *disk = box->copy.err.code ? NULL : box->copy.op.disk;

    if (box->copy.err.code && box->copy.op.disk)
        disk_drop(box->copy.op.disk);
    box->copy.op.disk = NULL;
    box->copy.done(box, disk, disk ? NULL : &box->copy.err);
}

static void thaw(struct box *box);

static void thawed(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;

    (void)fds;
    if (msg && (!msg->status || msg->status == ENOENT)) {
        copy_over(box);
        return;
    }
    if (box->boxes->stopping) { /* the next process does it */
        copy_over(box);
        return;
    }
    if (++box->copy.tries < THAW_TRIES) {
        timer_set(box->boxes->loop, &box->copy.again, THAW_AGAIN_MS);
        return;
    }
    log_error("a sandbox stays frozen after a copy", kv_str("sandbox", box->id));
    box_move(box, SANDBOX_PAUSED); /* which is the truth, and can be resumed */
    struct change *change = change_new(box, NULL, NULL, "sandbox.paused");
    change->write = row_sandbox_update;
    change->audit = true;
    change_submit(change);
    copy_over(box);
}

static void thaw(struct box *box)
{
    struct ask *ask = ask_new(WIRE_BOX_THAW, box->id);

    ask->answered = thawed;
    ask->box = box;
    ask_send(box->boxes, ask);
}

static void on_again(struct timer *timer)
{
    thaw(container_of(timer, struct box, copy.again));
}

static void copy_end(struct box *box, const struct err *err)
{
    if (err)
        box->copy.err = *err;
    if (box->copy.frozen)
        thaw(box);
    else
        copy_over(box);
}

static void copied(struct disk_op *op, const struct err *err)
{
    copy_end(container_of(op, struct box, copy.op), err);
}

static void frozen(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;
    struct err err = { 0 };

    (void)fds;
    if (msg && !msg->status) {
        disk_make_now(box->copy.op.disk, &box->copy.op);
        return;
    }
    ask_err(&err, msg, "freeze it for the copy");
    copy_end(box, &err); /* it may be frozen all the same */
}

static void copy_stored(struct disk_op *op)
{
    struct box *box = container_of(op, struct box, copy.op);

    if (box->state != SANDBOX_RUNNING) {
        disk_make_now(op->disk, op);
        return;
    }
    struct ask *ask = ask_new(WIRE_BOX_FREEZE, box->id);
    box->copy.frozen = true;
    ask->answered = frozen;
    ask->box = box;
    ask_send(box->boxes, ask);
}

static int copy_begin(struct box *box, struct disk_want *want,
                      void (*done)(struct box *box, struct disk *disk, const struct err *err),
                      struct err *err)
{
    want->tenant = box->tenant;
    want->bytes = box->spec.disk;
    want->from = box->disk;
    box->copy.done = done;
    box->copy.err = (struct err){ 0 };
    box->copy.frozen = false;
    box->copy.tries = 0;
    box->copy.op = (struct disk_op){ .done = copied, .stored = copy_stored };
    return disk_make(box->boxes, want, &box->copy.op, err);
}

void copy_init(struct box *box)
{
    box->copy.again.fn = on_again;
}

void copy_free(struct box *box)
{
    timer_cancel(box->boxes->loop, &box->copy.again);
}

/* Has it a disk that can be copied now? */
static int may_copy(struct box *box, const char *busy, struct err *err)
{
    const struct disk *disk = disk_by_number(box->boxes, box->disk);

    if (box->busy)
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id, box->busy);
    if (box->state == SANDBOX_DELETED || box->state == SANDBOX_CREATING)
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id,
                       sandbox_state_name(box->state));
    if (!box->disk)
        return err_set(err, ERR_CONFLICT,
                       "the files of sandbox %s are in memory; copies need storage disk", box->id);
    if (!disk || disk->state == DISK_LOST)
        return err_set(err, ERR_CONFLICT, "the disk of sandbox %s is gone", box->id);
    if (box->boxes->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    box->busy = busy;
    return 0;
}

/* ---- snapshots ---- */

static int snapshot_record(struct disk_op *disk_op, struct db *db, struct err *err)
{
    struct box *box = container_of(disk_op, struct box, disk_op);

    return box->op->record ? box->op->record(box->op, db, err) : 0;
}

static void snapshot_over(struct box *box, const struct err *err)
{
    struct box_op *op = box->op;

    box->op = NULL;
    if (err)
        op->disk = NULL;
    change_told(box, op, err); /* of the sandbox nothing changed */
}

static void snapshot_ready(struct disk_op *disk_op, const struct err *err)
{
    snapshot_over(container_of(disk_op, struct box, disk_op), err);
}

static void snapshot_copied(struct box *box, struct disk *disk, const struct err *err)
{
    if (err) {
        snapshot_over(box, err);
        return;
    }
    box->op->disk = disk;
    if (box->op->prepare)
        box->op->prepare(box->op);
    box->disk_op = (struct disk_op){ .record = snapshot_record,
                                     .done = snapshot_ready,
                                     .tenant = box->tenant,
                                     .event = "snapshot.created" };
    disk_ready(disk, &box->disk_op);
}

int box_snapshot(struct box *box, const char *name, struct box_op *op, struct err *err)
{
    autoarena struct arena arena = { 0 };
    struct disk_want want = { .kind = DISK_SNAPSHOT, .by = op->by, .role = op->role, .name = name };

    if (name_check(name, "sn", "name", err) < 0 || may_copy(box, "being copied", err) < 0)
        return -1;
    want.sandbox = box->id;
    want.spec = spec_text(&arena, &box->spec);
    want.access = box->spec.access;
    box->op = op;
    op->box = box;
    if (copy_begin(box, &want, snapshot_copied, err) < 0) {
        box->busy = NULL;
        return -1;
    }
    return 0;
}

/* ---- forks ---- */

static void fork_copied(struct box *box, struct disk *disk, const struct err *err)
{
    struct box *child = box->copy.child;

    box->copy.child = NULL;
    box->busy = NULL;
    box_touch(box);
    if (err)
        create_failed(child, err);
    else
        create_with_disk(child, disk);
    box_woken(box, NULL);
}

int box_fork(struct box *box, const struct fork_wish *wish, struct box_op *op, struct err *err)
{
    autoarena struct arena arena = { 0 };
    struct sandbox_spec spec = box->spec;
    struct disk_want want = { .kind = DISK_ROOT, .by = op->by };

    spec.access = (struct access){ 0 };
    wish_own(&spec, op->reach);
    wish_confine(&spec, op->reach, &arena);
    spec.name = wish->name;
    spec.parent = box->id;
    spec.ttl_ms = wish->ttl_ms;
    if (wish->labels)
        spec.labels = wish->labels;
    spec.binds.count = 0; /* their tickets were good once */
    if (may_copy(box, "being copied", err) < 0)
        return -1;
    if (wish_check(box->boxes, &spec, op, err) < 0 || room_check(box->boxes, err) < 0) {
        box->busy = NULL;
        return -1;
    }
    struct box *child = create_begin(box->boxes, &spec, box->must, op);
    box->copy.child = child;
    want.sandbox = child->id;
    if (copy_begin(box, &want, fork_copied, err) < 0) {
        box->busy = NULL;
        box_free(child);
        return -1;
    }
    return 0;
}

/* ---- the way back ---- */

static void rolled_over(struct box *box, const struct err *err)
{
    struct box_op *op = box->op;

    box->op = NULL;
    change_told(box, op, err);
}

static void started_again(struct box_op *inner, const struct err *err)
{
    struct box_op *op = inner->box->copy.outer;
    struct err why = err ? *err : (struct err){ 0 };

    if (err)
        err_wrap(&why, "rolled back, but it could not be started");
    op->done(op, err ? &why : NULL);
}

/* From here on it is a start like any other. */
static void start_again(struct box *box)
{
    struct err err = { 0 };

    box->copy.outer = box->op;
    box->copy.start = (struct box_op){ .tenant = box->op->tenant,
                                       .by = box->op->by,
                                       .role = box->op->role,
                                       .done = started_again,
                                       .box = box };
    box->op = NULL;
    box->busy = NULL;
    if (box_start(box, &box->copy.start, &err) < 0)
        started_again(&box->copy.start, &err);
}

static void switch_stored(struct change *change, const struct err *err)
{
    struct box *box = change->box;
    struct disk *old = disk_by_number(box->boxes, (uint64_t)change->old_disk);
    struct disk *new = disk_by_number(box->boxes, box->disk);

    if (err) { /* the row still names the old one */
        box->disk = (uint64_t)change->old_disk;
        snprintf(box->reason, sizeof(box->reason), "a rollback could not be stored");
        if (new)
            disk_drop(new);
        rolled_over(box, err);
        return;
    }
    new->state = DISK_READY;
    if (old)
        disk_drop(old);
    if (box->copy.was_up)
        start_again(box);
    else
        rolled_over(box, NULL);
}

/* Nothing of it runs: the disks are changed. */
static void switch_disks(struct box *box)
{
    uint64_t old = box->disk;

    link_drain(box);
    box->op->ended = box->running;
    list_each_safe (pos, &box->execs)
        exec_lost(list_entry(pos, struct box_exec, node));
    box_jobs_lost(box, ERR_CONFLICT, "the sandbox was rolled back");
    timer_cancel(box->boxes->loop, &box->tick);
    if (box->state != SANDBOX_STOPPED)
        box_move(box, SANDBOX_STOPPED);
    snprintf(box->reason, sizeof(box->reason), "rolled back by %s", box->op->by);
    box->disk = box->copy.op.disk->number;
    box->spec.binds.count = 0;
    box->asleep = false;
    if (box->op->prepare)
        box->op->prepare(box->op);
    struct change *change = change_new(box, NULL, box->op, "sandbox.rolled_back");
    change->old_disk = (int64_t)old;
    change->write = row_sandbox_switch;
    change->settled = switch_stored;
    change_submit(change);
}

static void ended_for_rollback(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;
    struct err err = { 0 };

    (void)fds;
    if (msg && (!msg->status || msg->status == ENOENT)) {
        switch_disks(box);
        return;
    }
    ask_err(&err, msg, "end what runs");
    disk_drop(box->copy.op.disk);
    rolled_over(box, &err);
}

static void rollback_copied(struct disk_op *op, const struct err *err)
{
    struct box *box = container_of(op, struct box, copy.op);

    if (err) {
        rolled_over(box, err);
        return;
    }
    if (!box->copy.was_up) {
        switch_disks(box);
        return;
    }
    struct ask *ask = ask_new(WIRE_BOX_DESTROY, box->id);
    ask->answered = ended_for_rollback;
    ask->box = box;
    ask_send(box->boxes, ask);
}

int box_rollback(struct box *box, const char *snapshot, struct box_op *op, struct err *err)
{
    struct disk_want want = { .kind = DISK_ROOT, .by = op->by };
    struct disk *from;

    if (disk_find(box->boxes, op->reach, DISK_SNAPSHOT, box->id, snapshot, &from, err) < 0 &&
        disk_find(box->boxes, op->reach, DISK_SNAPSHOT, NULL, snapshot, &from, err) < 0) {
        snprintf(err->field, sizeof(err->field), "snapshot");
        return -1;
    }
    if (strcmp(from->sandbox, box->id) != 0)
        return err_field(err, "snapshot", "%s is of another sandbox; create one from it", from->id);
    if (from->state == DISK_LOST)
        return err_set(err, ERR_CONFLICT, "the disk of snapshot %s is gone", from->name);
    if (may_copy(box, box_busy_rolled_back, err) < 0)
        return -1;
    if (box->state == SANDBOX_FAILED)
        box->state = SANDBOX_STOPPED; /* that is what a rollback makes of it */
    want.tenant = box->tenant;
    want.bytes = box->spec.disk;
    want.sandbox = box->id;
    want.from = from->number;
    box->copy.was_up = op->was_up = sandbox_lives(box->state);
    box->copy.op = (struct disk_op){ .done = rollback_copied };
    box->op = op;
    op->box = box;
    op->disk = from;
    if (disk_make(box->boxes, &want, &box->copy.op, err) < 0) {
        box->busy = NULL;
        return -1;
    }
    return 0;
}
