/*
 * Changes of what a sandbox may use, while it runs or not:  [DISK_LIMIT] · [BOX_LIMITS] · row ·
 * memory. The kernel comes first, because it may refuse and can be set back; what is in memory, and
 * with it what anybody is shown and what may be reached, becomes so once it is stored. While one
 * change is under way the next is refused.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "box/own.h"

struct patching {
    struct box *box;
    struct box_op *op;
    struct sandbox_patch patch; /* texts in the arena of `spec` */
    uint64_t present;
    struct arena arena;
    struct sandbox_spec spec; /* as it will be */
    int64_t expires_ms;       /* likewise */
    bool limited;             /* the kernel has the new limits */
    struct disk_op disk_op;
};

static bool has(const struct patching *p, unsigned bit)
{
    return p->present >> bit & 1;
}

static void patch_free(struct patching *p)
{
    arena_free(&p->arena);
    free(p);
}

static uint64_t new_rate(bool said, int64_t value)
{
    return !said ? 0 : value ? (uint64_t)value : BOX_IO_FREE;
}

/* Those that the patch is about, as `spec` has them. */
static struct box_limits limits_of(const struct patching *p, const struct sandbox_spec *spec)
{
    bool memory = !p->box->disk;
    struct box_limits limits = {
        .disk = memory && has(p, PATCH_DISK) ? (uint64_t)spec->disk : 0,
        .inodes = memory && has(p, PATCH_INODES) ? (uint32_t)spec->inodes : 0,
        .memory = has(p, PATCH_MEMORY) ? (uint64_t)spec->memory : 0,
        .pids = has(p, PATCH_PIDS) ? (uint32_t)spec->pids : 0,
        .cpu_percent = has(p, PATCH_CPU) ? (uint32_t)spec->cpu_percent : 0,
        .io_bytes = new_rate(has(p, PATCH_IO_BYTES), spec->io_bytes),
        .io_ops = new_rate(has(p, PATCH_IO_OPS), spec->io_ops),
    };

    memcpy(limits.name.id, p->box->id, strlen(p->box->id));
    return limits;
}

/* ---- it failed ---- */

static void quietly(struct disk_op *op, const struct err *err)
{
    (void)err; /* the row has the old size, which the next change sets again */
    free(op);
}

static void limited_back(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    (void)fds;
    if (!msg || (msg->status && msg->status != ENOENT))
        log_error("a sandbox keeps limits that are not stored", kv_str("sandbox", ask->msg.name.id),
                  kv_int("errno", msg ? msg->status : 0));
}

static void patch_undo(struct patching *p)
{
    struct box *box = p->box;
    struct disk *disk = disk_by_number(box->boxes, box->disk);
    struct err ignored;

    if (p->limited && sandbox_lives(box->state)) {
        struct ask *ask = ask_new(WIRE_BOX_LIMITS, NULL);

        ask->msg.limits = limits_of(p, &box->spec);
        ask->answered = limited_back;
        ask_send(box->boxes, ask);
    }
    if (disk && disk->bytes != box->spec.disk) {
        struct disk_op *back = xnew(struct disk_op);

        back->done = quietly;
        if (disk_resize(disk, box->spec.disk, back, &ignored) < 0)
            free(back);
    }
}

static void patch_failed(struct patching *p, const struct err *err)
{
    if (!p->box->boxes->stopping)
        patch_undo(p);
    change_told(p->box, p->op, err);
    patch_free(p);
}

/* ---- stored, then true ---- */

/* What is in memory against what will be, or was. */
static void trade(struct patching *p)
{
    struct box *box = p->box;
    struct arena arena = box->arena;
    struct sandbox_spec spec = box->spec;
    int64_t expires_ms = box->expires_ms;

    box->arena = p->arena;
    box->spec = p->spec;
    box->expires_ms = p->expires_ms;
    p->arena = arena;
    p->spec = spec;
    p->expires_ms = expires_ms;
}

static void patch_applied(struct change *change)
{
    struct patching *p = change->ctx;

    trade(p);
    box_timers_set(p->box);
}

static void patch_over(struct change *change, const struct err *err)
{
    struct patching *p = change->ctx;

    if (err) {
        patch_failed(p, err);
        return;
    }
    change_told(p->box, p->op, NULL);
    patch_free(p);
}

/* Row and answer are composed of what will be; nobody looks in between. */
static void patch_store(struct patching *p)
{
    struct box *box = p->box;

    p->expires_ms = !has(p, PATCH_TTL) ? box->expires_ms
                    : p->patch.ttl_ms  ? clock_wall_ms() + p->patch.ttl_ms
                                       : 0;
    trade(p);
    if (p->op->prepare)
        p->op->prepare(p->op);
    struct change *change = change_new(box, NULL, p->op, "sandbox.changed");
    change->write = row_sandbox_update;
    change->applied = patch_applied;
    change->settled = patch_over;
    change->ctx = p;
    change_submit(change);
    trade(p);
}

static void limited(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct patching *p = ask->out;
    struct err err = { 0 };

    (void)fds;
    p->limited = msg != NULL; /* or a part of them, if it was refused */
    if (msg && !msg->status) {
        patch_store(p);
        return;
    }
    ask_err(&err, msg, "new limits");
    if (msg && msg->status == EBUSY)
        err_set(&err, ERR_CONFLICT, "new limits: more is in use than they would allow");
    patch_failed(p, &err);
}

static void patch_limits(struct patching *p)
{
    struct box_limits limits = limits_of(p, &p->spec);
    bool any = limits.disk || limits.inodes || limits.memory || limits.pids || limits.cpu_percent ||
               limits.io_bytes || limits.io_ops;

    if (!any || !sandbox_lives(p->box->state)) {
        patch_store(p);
        return;
    }
    struct ask *ask = ask_new(WIRE_BOX_LIMITS, NULL);
    ask->msg.limits = limits;
    ask->answered = limited;
    ask->out = p;
    ask_send(p->box->boxes, ask);
}

static void resized(struct disk_op *op, const struct err *err)
{
    struct patching *p = container_of(op, struct patching, disk_op);

    if (err)
        patch_failed(p, err);
    else
        patch_limits(p);
}

static void merge(struct sandbox_spec *spec, const struct sandbox_patch *patch, uint64_t present)
{
    if (present >> PATCH_MEMORY & 1)
        spec->memory = patch->memory;
    if (present >> PATCH_PIDS & 1)
        spec->pids = patch->pids;
    if (present >> PATCH_CPU & 1)
        spec->cpu_percent = patch->cpu_percent;
    if (present >> PATCH_IO_BYTES & 1)
        spec->io_bytes = patch->io_bytes;
    if (present >> PATCH_IO_OPS & 1)
        spec->io_ops = patch->io_ops;
    if (present >> PATCH_DISK & 1)
        spec->disk = patch->disk;
    if (present >> PATCH_INODES & 1)
        spec->inodes = patch->inodes;
    if (present >> PATCH_TTL & 1)
        spec->ttl_ms = patch->ttl_ms;
    if (present >> PATCH_LABELS & 1)
        spec->labels = patch->labels;
    if (present >> PATCH_IDLE & 1)
        spec->idle = patch->idle;
    if (present >> PATCH_EGRESS & 1)
        spec->egress = patch->egress;
    access_merge(&spec->access, &patch->access, present, PATCH_ACCESS);
}

const char box_busy_changed[] = "being changed";

int box_patch(struct box *box, const struct sandbox_patch *patch, uint64_t present,
              struct box_op *op, struct err *err)
{
    struct sandbox_spec spec = box->spec;
    struct disk *disk = disk_by_number(box->boxes, box->disk);

    merge(&spec, patch, present);
    if (wish_fits(&spec, err) < 0)
        return -1;
    if (box->busy || box->state == SANDBOX_DELETED)
        return box_refuse(box, err);
    if (box->boxes->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    if (quota_change(box, &spec, sandbox_lives(box->state), present >> PATCH_LABELS & 1, op->role,
                     err) < 0)
        return -1;
    struct patching *p = xnew(struct patching);
    *p = (struct patching){ .box = box, .op = op, .patch = *patch, .present = present };
    wish_copy(&p->arena, &p->spec, &spec);
    p->disk_op = (struct disk_op){ .done = resized };
    op->box = box;
    if (has(p, PATCH_DISK) && disk) {
        if (disk_resize(disk, patch->disk, &p->disk_op, err) < 0) {
            patch_free(p);
            return -1;
        }
    }
    box->busy = box_busy_changed;
    if (!has(p, PATCH_DISK) || !disk)
        patch_limits(
            p); /* never tells the caller before it returns: a store or a question follows */
    return 0;
}
