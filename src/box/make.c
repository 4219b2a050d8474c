/*
 * Bringing a sandbox up: a box of the warden's, then its mounts one after the other. That is the
 * same for one that is made and for one that is started again; they differ in what is stored.
 *
 *   create   [disk row · DISK_MAKE] · BOX_CREATE · BOX_MOUNT… · row (and the disk is ready)
 *   start                             BOX_CREATE · BOX_MOUNT… · row
 *
 * What fails is undone before the caller is told. A kill in between leaves a box whose row is
 * missing or not running, and a disk whose row is not ready: the next start removes both.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metric.h"
#include "box/own.h"
#include "box/template.h"
#include "model/egress.h"

METRIC_HISTOGRAM(create_seconds, "atoll_sandbox_create_seconds",
                 "From the wish for a sandbox to its being stored", 0.001, 0.002, 0.005, 0.01, 0.02,
                 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5);

#define PROFILE_AGENT 0 /* enum seccomp_profile, by wire/box.h */
#define PROFILE_ROOT 1
#define PROFILE_NESTING 2

/* ---- the wish ---- */

static struct field_pair *pairs_copy(struct arena *arena, const struct field_pair *from)
{
    size_t count = 0;

    while (from && from[count].key)
        count++;
    struct field_pair *to = arena_alloc(arena, (count + 1) * sizeof(*to));
    for (size_t i = 0; i < count; i++)
        to[i] = (struct field_pair){ arena_strdup(arena, from[i].key),
                                     arena_strdup(arena, from[i].value) };
    return to;
}

static const char *text_copy(struct arena *arena, const char *text)
{
    return text ? arena_strdup(arena, text) : NULL;
}

static struct field_list volumes_copy(struct arena *arena, struct field_list from)
{
    struct volume_use *to = arena_alloc(arena, from.count * sizeof(*to));
    const struct volume_use *uses = from.items;

    for (size_t i = 0; i < from.count; i++)
        to[i] = (struct volume_use){ arena_strdup(arena, uses[i].volume),
                                     arena_strdup(arena, uses[i].path), uses[i].read_only };
    return (struct field_list){ to, from.count };
}

static struct field_list binds_copy(struct arena *arena, struct field_list from)
{
    struct bind_use *to = arena_alloc(arena, from.count * sizeof(*to));
    const struct bind_use *uses = from.items;

    for (size_t i = 0; i < from.count; i++)
        to[i] =
            (struct bind_use){ arena_strdup(arena, uses[i].ticket),
                               arena_strdup(arena, uses[i].path), uses[i].read_only, uses[i].view };
    return (struct field_list){ to, from.count };
}

struct field_list files_copy(struct arena *arena, struct field_list from)
{
    struct file_rule *to = arena_alloc(arena, from.count * sizeof(*to));
    const struct file_rule *rules = from.items;

    for (size_t i = 0; i < from.count; i++)
        to[i] = (struct file_rule){ arena_strdup(arena, rules[i].path),
                                    arena_strdup(arena, rules[i].access) };
    return (struct field_list){ to, from.count };
}

void wish_copy(struct arena *arena, struct sandbox_spec *to, const struct sandbox_spec *from)
{
    *to = *from;
    to->name = text_copy(arena, from->name);
    to->user = strcmp(from->user, "root") == 0 ? "root" : "agent";
    to->storage = sandbox_on_disk(from) ? "disk" : "memory";
    to->image = text_copy(arena, from->image);
    to->from_snapshot = NULL;
    to->warm = NULL;
    to->template = text_copy(arena, from->template);
    to->parent = text_copy(arena, from->parent);
    to->env = pairs_copy(arena, from->env);
    to->labels = pairs_copy(arena, from->labels);
    to->volumes = volumes_copy(arena, from->volumes);
    to->binds = binds_copy(arena, from->binds);
    to->files = files_copy(arena, from->files);
    if (from->idle) {
        to->idle = arena_new(arena, struct idle_policy);
        *to->idle =
            (struct idle_policy){ from->idle->after_ms, arena_strdup(arena, from->idle->action) };
    }
    if (from->egress)
        to->egress = egress_spec_copy(arena, from->egress);
    to->access = access_copy(arena, &from->access);
}

void wish_own(struct sandbox_spec *spec, struct reach reach)
{
    if (!reach.all)
        spec->access.owner = reach.name;
}

void wish_confine(struct sandbox_spec *spec, struct reach reach, struct arena *arena)
{
    if (reach.all)
        return;
    spec->nesting = spec->sys = false;
    spec->tier = NULL;
    if (spec->egress)
        spec->egress = egress_spec_narrowed(arena, spec->egress);
}

void box_wish(const struct box *box, struct arena *arena, struct sandbox_spec *out)
{
    wish_copy(arena, out, &box->spec);
    out->template = NULL; /* what it said is in there; it may be gone */
    out->binds.count = 0; /* their tickets were good once */
}

/* ---- mounts ---- */

static size_t mount_count(const struct sandbox_spec *spec)
{
    return spec->volumes.count + spec->binds.count;
}

bool box_names_volume(const struct box *box, const char *name)
{
    const struct volume_use *uses = box->spec.volumes.items;

    for (size_t i = 0; i < box->spec.volumes.count; i++)
        if (strcmp(uses[i].volume, name) == 0)
            return true;
    return false;
}

static int mount_volume(struct boxes *boxes, struct reach reach, const struct volume_use *use,
                        size_t at, struct box_mount *out, struct err *err)
{
    char field[40];
    struct disk *disk;

    snprintf(field, sizeof(field), "volumes[%zu].volume", at);
    if (disk_find(boxes, reach, DISK_VOLUME, NULL, use->volume, &disk, err) < 0)
        return err_field(err, field, "no volume %.64s", use->volume);
    if (disk->state == DISK_LOST || disk->busy)
        return err_field(err, field, "volume %s %s", disk->name,
                         disk->busy ? "is being removed" : "is lost: its disk is gone");
    out->disk = disk->number;
    return 0;
}

static int mount_bind(const struct bind_use *use, size_t at, struct box_mount *out, struct err *err)
{
    char field[40];

    snprintf(field, sizeof(field), "binds[%zu].ticket", at);
    if (strlen(use->ticket) != 2 * sizeof(out->ticket) ||
        !hex_bytes(str_of(use->ticket), out->ticket, sizeof(out->ticket)))
        return err_field(err, field, "must be %zu hexadecimal digits", 2 * sizeof(out->ticket));
    out->flags |= BOX_MOUNT_TICKET | (use->view ? BOX_MOUNT_VIEW : 0);
    return 0;
}

/* There is one place for a view's layers. */
static int check_views(const struct sandbox_spec *spec, struct err *err)
{
    const struct bind_use *binds = spec->binds.items;
    size_t views = 0;
    char field[40];

    for (size_t i = 0; i < spec->binds.count; i++) {
        if (!binds[i].view)
            continue;
        snprintf(field, sizeof(field), "binds[%zu].view", i);
        if (++views > 1)
            return err_field(err, field, "a sandbox has a view of one directory");
        if (binds[i].read_only)
            return err_field(err, field, "not with read_only");
    }
    return 0;
}

/* The mount with this number, volumes first, as the warden is asked for it. */
static int mount_of(struct boxes *boxes, struct reach reach, const struct sandbox_spec *spec,
                    const char *id, size_t at, struct box_mount *out, struct err *err)
{
    bool volume = at < spec->volumes.count;
    size_t i = volume ? at : at - spec->volumes.count;
    const struct volume_use *use = spec->volumes.items;
    const struct bind_use *bind = spec->binds.items;
    const char *path = volume ? use[i].path : bind[i].path;
    bool read_only = volume ? use[i].read_only : bind[i].read_only;
    char field[40];

    memset(out, 0, sizeof(*out));
    memcpy(out->name.id, id, MIN(strlen(id), sizeof(out->name.id) - 1));
    memcpy(out->target, path, MIN(strlen(path), sizeof(out->target) - 1));
    out->flags = read_only ? BOX_MOUNT_READ_ONLY : 0;
    if ((volume ? mount_volume(boxes, reach, &use[i], i, out, err)
                : mount_bind(&bind[i], i, out, err)) < 0)
        return -1;
    if (!volume && strcmp(spec->user, "root") == 0)
        out->flags |= BOX_MOUNT_AS_ROOT;
    snprintf(field, sizeof(field), "%s[%zu].path", volume ? "volumes" : "binds", i);
    if (!box_mount_ok(out))
        return err_field(err, field,
                         "%s: nothing can be mounted there; a plain absolute path, not in /proc, "
                         "/sys or /dev",
                         path);
    return 0;
}

static int check_mounts(struct boxes *boxes, struct reach reach, const struct sandbox_spec *spec,
                        struct err *err)
{
    struct box_mount mount;

    if (check_views(spec, err) < 0)
        return -1;
    for (size_t i = 0; i < mount_count(spec); i++)
        if (mount_of(boxes, reach, spec, "check", i, &mount, err) < 0)
            return -1;
    return 0;
}

/* ---- up ---- */

static void up_over(struct box *box, const struct err *err)
{
    void (*done)(struct box * box, const struct err *err) = box->up.done;

    box->up.done = NULL;
    done(box, err);
}

static void up_undone(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct err err = ask->box->up.err;

    (void)fds;
    if (!msg || (msg->status && msg->status != ENOENT))
        log_error("a sandbox could not be destroyed; the next start tries again",
                  kv_str("sandbox", ask->msg.name.id));
    up_over(ask->box, &err);
}

/* It was made, at least perhaps: gone before anybody is told. */
static void up_undo(struct box *box, const struct err *err)
{
    struct ask *ask = ask_new(WIRE_BOX_DESTROY, box->id);

    link_close(box);
    box->up.err = *err;
    ask->answered = up_undone;
    ask->box = box;
    ask_send(box->boxes, ask);
}

static void up_mount(struct box *box);

static void mounted(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;
    const struct sandbox_spec *spec = &box->spec;
    bool volume = box->up.next < spec->volumes.count;
    struct err err = { 0 };

    (void)fds;
    if (msg && !msg->status) {
        box->up.next++;
        up_mount(box);
        return;
    }
    if (msg && (msg->status == EBUSY || msg->status == ETIMEDOUT) && !volume) {
        err_field(&err, "binds", "%s: the ticket %s", ask->msg.mount.target,
                  msg->status == EBUSY ? "was used already" : "is too old or unknown");
        err.code = ERR_UNPROCESSABLE;
    } else if (msg && (msg->status == ELOOP || msg->status == ENOTDIR)) {
        err_field(&err, volume ? "volumes" : "binds",
                  "%s: a symbolic link%s is there or on the way, and a mount needs a directory",
                  ask->msg.mount.target, msg->status == ELOOP ? "" : " or a file");
        err.code = ERR_UNPROCESSABLE;
    } else if (msg && !volume &&
               (msg->status == EINVAL || msg->status == EPERM || msg->status == ENOTSUP)) {
        err_field(&err, "binds",
                  box->lost & BOX_LOST_DISKS
                      ? "%s: only a server started by root can bind a directory, because the "
                        "kernel shows files with another owner to nobody else; copy it instead"
                      : "%s: the directory's file system cannot be shown with another owner",
                  ask->msg.mount.target);
        err.code = ERR_UNPROCESSABLE;
    } else {
        ask_err(&err, msg, volume ? "mount a volume" : "mount a directory");
    }
    up_undo(box, &err);
}

static void up_mount(struct box *box)
{
    struct err err = { 0 };

    if (box->up.next == mount_count(&box->spec)) {
        struct bind_use *binds = box->spec.binds.items;

        for (size_t i = 0; i < box->spec.binds.count; i++)
            binds[i].ticket = ""; /* used, and nobody's business any more */
        up_over(box, NULL);
        return;
    }
    struct ask *ask = ask_new(WIRE_BOX_MOUNT, NULL);
    ask->answered = mounted;
    ask->box = box;
    if (mount_of(box->boxes, reach_all(box->tenant), &box->spec, box->id, box->up.next,
                 &ask->msg.mount, &err) < 0) {
        free(ask);
        up_undo(box, &err);
        return;
    }
    ask_send(box->boxes, ask);
}

/* What was asked for by name, and cannot be had by whoever started the server. */
static const struct {
    uint32_t lost;
    const char *field, *why;
} musts[] = {
    { BOX_LOST_MEMORY, "memory", "memory cannot be limited for all processes together" },
    { BOX_LOST_CPU, "cpu_percent", "cpu_percent cannot be limited" },
    { BOX_LOST_PIDS, "pids", "pids cannot be limited for root and agent together" },
    { BOX_LOST_OWN_ID, "user", "user cannot be root where there is only one user id" },
};

static void refuse_lost(struct err *err, uint32_t lost)
{
    for (size_t i = 0; i < ARRAY_LEN(musts); i++)
        if (lost & musts[i].lost) {
            err_field(
                err, musts[i].field,
                "%s by the user who started the server; `atoll doctor` says how to get that%s",
                musts[i].why,
                musts[i].lost == BOX_LOST_OWN_ID
                    ? ""
                    : ", and allow_degraded = cgroups accepts limits that do not hold");
            err->code = ERR_UNSUPPORTED;
            return;
        }
    if (lost & BOX_LOST_IO) {
        err_field(
            err, "io_bytes",
            "what is read from and written to disks cannot be limited here: there is no disk, "
            "or no cgroup controller for it (io, blkio); allow_degraded = cgroups accepts "
            "limits that do not hold");
        err->code = ERR_UNSUPPORTED;
        return;
    }
    err_set(err, ERR_UNSUPPORTED, "not as the user who started the server; see `atoll doctor`");
}

/* Defaults are held as well as they can be; what was asked for holds, or there is no sandbox. */
static uint32_t musts_of(const struct sandbox_spec *asked, bool degraded)
{
    bool root = asked->user && strcmp(asked->user, "root") == 0;
    uint32_t must = root ? BOX_LOST_OWN_ID : 0;

    if (degraded)
        return must;
    if (asked->memory)
        must |= BOX_LOST_MEMORY;
    if (asked->cpu_percent)
        must |= BOX_LOST_CPU;
    if (asked->io_bytes || asked->io_ops)
        must |= BOX_LOST_IO;
    if (asked->pids && root)
        must |= BOX_LOST_PIDS;
    return must;
}

uint32_t box_without(const struct box *box)
{
    return box->lost;
}

static void created(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;
    struct err err = { 0 };

    if (msg && !msg->status && fds[1] >= 0) {
        box->slot = msg->created.slot;
        box->lost = msg->created.lost;
        link_open(box, take_fd(&fds[1]));
        up_mount(box);
        return;
    }
    if (msg && msg->status == ENOTSUP && msg->created.lost)
        refuse_lost(&err, msg->created.lost);
    else
        ask_err(&err, msg && msg->status ? msg : NULL, "create a sandbox");
    if (msg && msg->status)
        up_over(box, &err);
    else
        up_undo(box, &err);
}

static int fill_wish(const struct sandbox_spec *spec, uint64_t upper, struct box_spec *wish,
                     struct err *err)
{
    wish->flags = spec->sys ? BOX_WITH_SYS : 0;
    wish->profile = spec->nesting                     ? PROFILE_NESTING
                    : strcmp(spec->user, "root") == 0 ? PROFILE_ROOT
                                                      : PROFILE_AGENT;
    wish->memory = (uint64_t)spec->memory;
    wish->disk = (uint64_t)spec->disk;
    wish->inodes = spec->inodes ? (uint32_t)spec->inodes : BOX_INODES_MIN; /* 0: on a disk */
    wish->nofile = (uint32_t)spec->nofile;
    wish->pids = (uint32_t)spec->pids;
    wish->cpu_percent = (uint32_t)spec->cpu_percent;
    wish->io_bytes = (uint64_t)spec->io_bytes;
    wish->io_ops = (uint64_t)spec->io_ops;
    wish->upper = upper;
    if (!box_spec_ok(wish))
        return err_set(err, ERR_INVALID, "limits that no sandbox can have");
    return 0;
}

void box_up(struct box *box, void (*done)(struct box *box, const struct err *err))
{
    struct ask *ask = ask_new(WIRE_BOX_CREATE, box->id);
    struct err err = { 0 };

    box->up.done = done;
    box->up.next = 0;
    ask->answered = created;
    ask->box = box;
    if (fill_wish(&box->spec, box->disk, &ask->msg.spec, &err) < 0)
        abort(); /* every wish was checked before it was taken */
    ask->msg.spec.must = box->must;
    image_layers(box, &ask->msg.spec);
    if (box->helper)
        ask->msg.spec.flags |= BOX_WITH_TOOL;
    ask_send(box->boxes, ask);
}

/* ---- create ---- */

void create_failed(struct box *box, const struct err *err)
{
    struct box_op *op = box->op;
    struct disk *disk = disk_by_number(box->boxes, box->disk);

    if (disk)
        disk_drop(disk);
    op->box = NULL;
    op->done(op, err);
    box_free(box);
}

static void create_stored(struct change *change, const struct err *err)
{
    struct box *box = change->box;
    struct box_op *op = box->op;
    struct disk *disk = disk_by_number(box->boxes, box->disk);

    box->start = NULL; /* only the answer to the creation says it */
    box->create_us = 0;
    if (err) {
        box->up.done = create_failed;
        up_undo(box, err);
        return;
    }
    box->busy = NULL;
    if (disk) {
        disk->state = DISK_READY;
        disk->bytes = box->spec.disk;
        snprintf(disk->tenant, sizeof(disk->tenant), "%s", box->tenant);
    }
    metric_observe_us(&create_seconds, (clock_wall_ms() - box->created_ms) * 1000);
    box_timers_set(box);
    box->op = NULL;
    trusted_try(box); /* it may have come while the row was stored */
    op->done(op, NULL);
}

static void create_up(struct box *box, const struct err *err)
{
    struct box_op *op = box->op;

    if (err) {
        create_failed(box, err);
        return;
    }
    box_move(box, SANDBOX_RUNNING);
    box->create_us = clock_mono_us() - box->begun_us;
    op->box = box;
    if (op->prepare)
        op->prepare(op);
    struct change *change = change_new(box, NULL, op, "sandbox.created");
    change->write = row_sandbox_insert;
    change->settled = create_stored;
    change_submit(change);
}

void create_with_disk(struct box *box, struct disk *disk)
{
    box->disk = disk->number;
    box_up(box, create_up);
}

static void disk_made(struct disk_op *disk_op, const struct err *err)
{
    struct box *box = container_of(disk_op, struct box, disk_op);

    if (err)
        create_failed(box, err);
    else
        create_with_disk(box, disk_op->disk);
}

static int check_room(struct boxes *boxes, const struct sandbox_spec *spec, const char *tenant,
                      struct err *err)
{
    if (boxes->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    list_each (pos, &boxes->all) {
        const struct box *box = list_entry(pos, struct box, node);

        if (spec->name && box->spec.name && strcmp(spec->name, box->spec.name) == 0 &&
            strcmp(box->tenant, tenant) == 0) {
            err_field(err, "name", "a sandbox is named %s already: %s", spec->name, box->id);
            err->code = ERR_CONFLICT;
            return -1;
        }
    }
    return 0;
}

int wish_fits(const struct sandbox_spec *spec, struct err *err)
{
    struct sandbox_spec settled = *spec;
    struct box_spec wish = { .id = "check" };

    if (spec->io_bytes && spec->io_bytes < SANDBOX_IO_BYTES_MIN)
        return err_field(err, "io_bytes", "at least %lld", SANDBOX_IO_BYTES_MIN);
    if (spec->io_ops && spec->io_ops < SANDBOX_IO_OPS_MIN)
        return err_field(err, "io_ops", "at least %d", SANDBOX_IO_OPS_MIN);
    if (sandbox_on_disk(spec) && spec->inodes)
        return err_field(err, "inodes",
                         "counted with storage memory only; on a disk its bytes bound them");
    return sandbox_spec_settle(&settled, err) < 0 ? -1 : fill_wish(&settled, 0, &wish, err);
}

int wish_check(struct boxes *boxes, struct sandbox_spec *spec, const struct box_op *op,
               struct err *err)
{
    struct reach reach = op->reach;

    if (!reach.tenant) /* a caller that says nothing about itself reaches nothing */
        return err_set(err, ERR_INTERNAL, "a sandbox is to be made without a reach");
    if (!spec->storage)
        spec->storage = disks_storage(boxes);
    if (image_apply(boxes, spec, reach.tenant, err) < 0 || sandbox_spec_settle(spec, err) < 0 ||
        check_room(boxes, spec, reach.tenant, err) < 0 || wish_fits(spec, err) < 0 ||
        quota_sandbox(boxes, spec, op, err) < 0)
        return -1;
    if (sandbox_on_disk(spec) && !disks_work(boxes)) {
        (void)disks_refuse(boxes, err);
        snprintf(err->field, sizeof(err->field), "storage");
        return -1;
    }
    return check_mounts(boxes, reach, spec, err);
}

/* Volumes are kept by name, however they were named. */
static void settle_volumes(struct box *box)
{
    struct volume_use *uses = box->spec.volumes.items;
    struct disk *disk;
    struct err err;

    for (size_t i = 0; i < box->spec.volumes.count; i++)
        if (disk_find(box->boxes, reach_all(box->tenant), DISK_VOLUME, NULL, uses[i].volume, &disk,
                      &err) == 0)
            uses[i].volume = arena_strdup(&box->arena, disk->name);
}

/* A box becomes somebody's sandbox. */
static void bind(struct box *box, const struct sandbox_spec *spec, uint32_t must, struct box_op *op)
{
    arena_free(&box->arena);
    box->arena = (struct arena){ 0 };
    snprintf(box->tenant, sizeof(box->tenant), "%s", op->tenant);
    wish_copy(&box->arena, &box->spec, spec);
    settle_volumes(box);
    snprintf(box->by, sizeof(box->by), "%s", op->by);
    box->busy = "being created";
    box->start = "cold";
    box->must = must;
    box->begun_us = clock_mono_us();
    box->created_ms = box->changed_ms = clock_wall_ms();
    box->expires_ms = spec->ttl_ms ? box->created_ms + spec->ttl_ms : 0;
    box->op = op;
}

struct box *create_begin(struct boxes *boxes, const struct sandbox_spec *spec, uint32_t must,
                         struct box_op *op)
{
    char id[ID_SIZE];

    id_make(id, "sb");
    struct box *box = box_new(boxes, id, op->tenant);
    bind(box, spec, must, op);
    return box;
}

/* ---- warm ---- */

/* A warm one that cannot be had after all is made anew, under the id and on the disk it has. */
static void warm_undone(struct box *box, const struct err *err)
{
    (void)err;
    box->start = "cold";
    box_up(box, create_up);
}

static void warm_failed(struct box *box, const struct err *err)
{
    log_warn("a warm sandbox could not be taken", kv_str("sandbox", box->id),
             kv_str("error", err->msg));
    box->up.done = warm_undone;
    up_undo(box, err);
}

static void warm_mounts(struct box *box)
{
    box->up.done = create_up;
    box->up.next = 0;
    up_mount(box);
}

static void warm_limited(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct err err = { 0 };

    (void)fds;
    if (msg && !msg->status) {
        warm_mounts(ask->box);
        return;
    }
    ask_err(&err, msg, "limits");
    warm_failed(ask->box, &err);
}

static void warm_ask(struct box *box, struct ask *ask,
                     void (*answered)(struct ask *, const struct wire_msg *, int[WIRE_FDS_MAX]))
{
    ask->answered = answered;
    ask->box = box;
    ask_send(box->boxes, ask);
}

/* Only what differs from what it was made with is asked for. */
static void warm_limits(struct box *box)
{
    const struct sandbox_spec *spec = &box->spec, *was = &box->up.was;
    struct box_limits limits = { .name = { .id = "" } };
    bool in_memory = !box->disk;

    if (in_memory && spec->disk != was->disk)
        limits.disk = (uint64_t)spec->disk;
    if (in_memory && spec->inodes != was->inodes)
        limits.inodes = (uint32_t)spec->inodes;
    if (spec->memory != was->memory)
        limits.memory = (uint64_t)spec->memory;
    if (spec->pids != was->pids)
        limits.pids = (uint32_t)spec->pids;
    if (spec->cpu_percent != was->cpu_percent)
        limits.cpu_percent = (uint32_t)spec->cpu_percent;
    limits.io_bytes = (uint64_t)spec->io_bytes; /* a warm one has none */
    limits.io_ops = (uint64_t)spec->io_ops;
    if (!limits.disk && !limits.inodes && !limits.memory && !limits.pids && !limits.cpu_percent &&
        !limits.io_bytes && !limits.io_ops) {
        warm_mounts(box);
        return;
    }
    struct ask *ask = ask_new(WIRE_BOX_LIMITS, NULL);
    memcpy(limits.name.id, box->id, strlen(box->id));
    ask->msg.limits = limits;
    warm_ask(box, ask, warm_limited);
}

static void warm_resized(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct err err = { 0 };

    (void)fds;
    if (msg && !msg->status) {
        warm_limits(ask->box);
        return;
    }
    ask_err(&err, msg, "size of its disk");
    warm_failed(ask->box, &err);
}

static void create_warm(struct box *box, const struct sandbox_spec *spec, uint32_t must,
                        struct box_op *op)
{
    box->up.was = box->spec; /* its numbers; the texts are gone with `bind` */
    bind(box, spec, must, op);
    box->state = SANDBOX_CREATING; /* as a sandbox it does not run yet */
    box->start = "warm";
    if (!box->disk || spec->disk == box->up.was.disk) {
        warm_limits(box);
        return;
    }
    struct ask *ask = ask_new(WIRE_DISK_LIMIT, NULL);
    ask->msg.disk = (struct disk_wish){ .id = box->disk, .bytes = (uint64_t)spec->disk };
    warm_ask(box, ask, warm_resized);
}

/* What was not wished for is as it was in the sandbox that the snapshot was taken of. */
static int take_snapshot(struct boxes *boxes, struct reach reach, struct sandbox_spec *spec,
                         struct arena *arena, struct disk **out, struct err *err)
{
    struct sandbox_spec was = { 0 };
    struct err why = { 0 };

    if (disk_find(boxes, reach, DISK_SNAPSHOT, NULL, spec->from_snapshot, out, &why) < 0 ||
        (*out)->state == DISK_LOST) {
        err_field(err, "from_snapshot", "%s", why.code ? why.msg : "its disk is gone");
        err->code = ERR_UNPROCESSABLE;
        return -1;
    }
    if (spec->storage && !sandbox_on_disk(spec))
        return err_field(err, "storage", "what begins with a snapshot is on disk");
    if (spec->image)
        return err_field(err, "image", "the snapshot says it");
    if (spec_read(arena, str_of((*out)->spec), &was, err) < 0)
        return err_wrap(err, "snapshot %s", (*out)->id);
    spec->storage = "disk";
    spec->parent = (*out)->sandbox;
    spec->image = was.image;
    if (!spec->user)
        spec->user = was.user;
    if (!spec->env)
        spec->env = was.env;
    wish_confine(&was, reach, arena);
    if (!spec->egress)
        spec->egress = was.egress;
    spec->memory = spec->memory ? spec->memory : was.memory;
    spec->pids = spec->pids ? spec->pids : was.pids;
    spec->cpu_percent = spec->cpu_percent ? spec->cpu_percent : was.cpu_percent;
    spec->io_bytes = spec->io_bytes ? spec->io_bytes : was.io_bytes;
    spec->io_ops = spec->io_ops ? spec->io_ops : was.io_ops;
    spec->disk = spec->disk ? spec->disk : was.disk;
    spec->nofile = spec->nofile ? spec->nofile : was.nofile;
    return 0;
}

int boxes_create(struct boxes *boxes, const struct sandbox_spec *spec, struct box_op *op,
                 struct err *err)
{
    struct sandbox_spec settled = *spec;
    struct disk *snapshot = NULL;
    autoarena struct arena arena = { 0 };

    if (spec->template && template_apply(boxes, op->tenant, &settled, &arena, err) < 0)
        return -1;
    uint32_t must = musts_of(&settled, boxes->degraded);
    if (settled.from_snapshot &&
        take_snapshot(boxes, op->reach, &settled, &arena, &snapshot, err) < 0)
        return -1;
    if (wish_check(boxes, &settled, op, err) < 0)
        return -1;
    if (room_check(boxes, err) < 0)
        return -1;
    wish_own(&settled, op->reach);
    struct box *box = snapshot ? NULL : pool_take(boxes, &settled, op->tenant, must);
    if (box) {
        create_warm(box, &settled, must, op);
        return 0;
    }
    box = create_begin(boxes, &settled, must, op);
    if (!sandbox_on_disk(&settled)) {
        box_up(box, create_up);
        return 0;
    }
    struct disk_want want = { .kind = DISK_ROOT,
                              .tenant = op->tenant,
                              .by = op->by,
                              .sandbox = box->id,
                              .bytes = settled.disk,
                              .from = snapshot ? snapshot->number : 0 };
    box->disk_op = (struct disk_op){ .done = disk_made };
    if (disk_make(boxes, &want, &box->disk_op, err) < 0) {
        box_free(box);
        return -1;
    }
    return 0;
}

/* ---- start ---- */

static void start_over(struct box *box, const struct err *err)
{
    struct box_op *op = box->op;

    box->busy = NULL;
    box->op = NULL;
    if (op)
        op->done(op, err);
    else if (err)
        log_error("a sandbox could not be started", kv_str("sandbox", box->id),
                  kv_str("error", err->msg));
    box_woken(box, err);
}

static void start_stored(struct change *change, const struct err *err)
{
    struct box *box = change->box;

    if (err) { /* what is not stored does not run */
        box_move(box, SANDBOX_STOPPED);
        box->up.done = start_over;
        up_undo(box, err);
        return;
    }
    box_timers_set(box);
    start_over(box, NULL);
}

static void start_up(struct box *box, const struct err *err)
{
    if (err) {
        start_over(box, err);
        return;
    }
    box_move(box, SANDBOX_RUNNING);
    box->reason[0] = 0;
    box->asleep = false;
    if (box->op && box->op->prepare)
        box->op->prepare(box->op);
    struct change *change = change_new(box, NULL, box->op, "sandbox.started");
    change->write = row_sandbox_update;
    change->settled = start_stored;
    change->audit = box->op == NULL;
    change_submit(change);
}

int box_start(struct box *box, struct box_op *op, struct err *err)
{
    struct disk *disk = disk_by_number(box->boxes, box->disk);

    if (box->state != SANDBOX_STOPPED && box->state != SANDBOX_FAILED && !box->busy)
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id,
                       sandbox_state_name(box->state));
    if (!box->disk)
        return err_set(
            err, ERR_CONFLICT,
            "sandbox %s had its files in memory, and they are gone; make it with storage "
            "disk",
            box->id);
    if (!disk || disk->state == DISK_LOST)
        return err_set(err, ERR_CONFLICT, "the disk of sandbox %s is gone", box->id);
    if (room_check(box->boxes, err) < 0)
        return -1;
    if (quota_change(box, &box->spec, true, false, op ? op->role : NULL, err) < 0)
        return -1;
    box->spec.binds.count = 0; /* their tickets were good once */
    if (box_may_begin(box, SANDBOX_RUNNING, "being started", err) < 0)
        return -1;
    box->op = op;
    if (op)
        op->box = box;
    box_up(box, start_up);
    return 0;
}
