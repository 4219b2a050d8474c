/*
 * Rows of disks, and the questions to the warden about them. What is here in memory is what the
 * rows say. How disks end, and what the warden has besides them, is drops.c.
 */
#include "box/disk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "box/own.h"

static const char *const kind_names[DISK_KINDS] = { "root", "layer", "volume", "snapshot" };
static const char *const id_prefixes[DISK_KINDS] = { NULL, NULL, "vo", "sn" };

const char *disk_kind_name(enum disk_kind kind)
{
    return kind_names[kind];
}

bool disks_work(const struct boxes *boxes)
{
    return boxes->disks_asked && boxes->disks_status == 0;
}

const char *disks_storage(const struct boxes *boxes)
{
    return disks_work(boxes) ? "disk" : "memory";
}

int disks_refuse(const struct boxes *boxes, struct err *err)
{
    int status = boxes->disks_status;

    if (status == EACCES || status == EPERM)
        return err_set(err, ERR_UNSUPPORTED,
                       "only a server started by root keeps disks, which storage disk, snapshots, "
                       "forks and volumes need");
    return err_set(err, ERR_UNSUPPORTED, "this machine keeps no disks for sandboxes: %s",
                   !status             ? "not known yet"
                   : status == ENOTSUP ? "`atoll doctor` says what is missing"
                                       : strerrordesc_np(status));
}

/* ---- the set ---- */

static struct disk *disk_new(struct boxes *boxes, uint64_t number, enum disk_kind kind)
{
    struct disk *disk = xnew(struct disk);

    disk->boxes = boxes;
    disk->number = number;
    disk->kind = kind;
    list_append(&boxes->disks, &disk->node);
    return disk;
}

static void disk_free(struct disk *disk)
{
    list_remove(&disk->node);
    free(disk->name);
    free(disk->sandbox);
    free(disk->spec);
    arena_free(&disk->arena);
    free(disk);
}

void disks_free(struct boxes *boxes)
{
    struct list *node;

    drops_free(boxes);
    while ((node = list_pop(&boxes->disks)))
        disk_free(list_entry(node, struct disk, node));
}

struct disk *disk_by_number(const struct boxes *boxes, uint64_t number)
{
    list_each (pos, &boxes->disks) {
        struct disk *disk = list_entry(pos, struct disk, node);

        if (disk->number == number)
            return disk;
    }
    return NULL;
}

bool disk_owned(const struct disk *disk, struct reach reach)
{
    return reach_owns(reach, disk->tenant, disk->by, &disk->access);
}

static bool fits(const struct disk *disk, struct reach reach, enum disk_kind kind,
                 const char *sandbox)
{
    return disk->kind == kind && disk->state != DISK_MAKING &&
           reach_has(reach, disk->tenant, disk->by, &disk->access) &&
           (!sandbox || strcmp(disk->sandbox, sandbox) == 0);
}

struct disk *disk_next(struct boxes *boxes, struct reach reach, enum disk_kind kind,
                       const char *sandbox, struct disk *after)
{
    struct list *at = after ? &after->node : &boxes->disks;

    do
        at = at->next;
    while (at != &boxes->disks && !fits(list_entry(at, struct disk, node), reach, kind, sandbox));
    return at == &boxes->disks ? NULL : list_entry(at, struct disk, node);
}

struct disk *disk_upto(struct boxes *boxes, const char *id)
{
    struct disk *found = NULL;

    list_each (pos, &boxes->disks) {
        struct disk *disk = list_entry(pos, struct disk, node);
        int order = disk->id[0] ? strcmp(disk->id, id) : 1;

        if (order == 0)
            return disk;
        if (order < 0)
            found = disk;
    }
    return found;
}

int disk_find(struct boxes *boxes, struct reach reach, enum disk_kind kind, const char *sandbox,
              const char *text, struct disk **out, struct err *err)
{
    struct disk *disk = NULL, *found = NULL;

    while ((disk = disk_next(boxes, reach, kind, sandbox, disk))) {
        if (strcmp(disk->id, text) == 0) {
            found = disk;
            break;
        }
        if (strcmp(disk->name, text) != 0)
            continue;
        if (found)
            return err_set(err, ERR_CONFLICT, "more than one %s is named %.64s; use the id",
                           kind_names[kind], text);
        found = disk;
    }
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "no %s %.64s", kind_names[kind], text);
    *out = found;
    return 0;
}

/* ---- rows, on the writer thread ---- */

int disk_row_ready(struct db *db, uint64_t number, const char *sandbox, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "UPDATE disk SET state = 'ready', sandbox = $1 WHERE number = $2");

    query_text(q, 1, sandbox);
    query_i64(q, 2, (int64_t)number);
    int rows = query_run(q, err);
    if (rows == 0)
        return err_set(err, ERR_INTERNAL, "disk %llu has no row", (unsigned long long)number);
    return rows < 0 ? -1 : 0;
}

int disk_row_drop(struct db *db, uint64_t number, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "UPDATE disk SET state = 'dropping', name = '' WHERE number = $1");

    query_i64(q, 1, (int64_t)number);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int next_number(struct db *db, int64_t *out, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "UPDATE disk_number SET last = last + 1 WHERE id = 1 RETURNING last");

    if (query_step(q, err) <= 0)
        return -1;
    *out = query_col_i64(q, 0);
    return 0;
}

/* ---- jobs ---- */

struct disk_job {
    struct store_job job;
    struct boxes *boxes;
    struct disk *disk;
    struct disk_op *op;
    struct arena arena;
    struct disk_want want; /* texts in the arena */
    const char *id;
    int64_t number, bytes, made_ms;
    const char *tenant, *event, *sandbox;
    struct access access;
    struct str body;
};

static struct disk_job *job_new(struct boxes *boxes, struct disk *disk, struct disk_op *op)
{
    struct disk_job *job = xnew(struct disk_job);

    job->boxes = boxes;
    job->disk = disk;
    job->op = op;
    if (disk) {
        job->number = (int64_t)disk->number;
        job->bytes = disk->bytes;
        job->id = arena_strdup(&job->arena, disk->id);
        job->sandbox = arena_strdup(&job->arena, disk->sandbox);
        job->access = access_copy(&job->arena, &disk->access);
    }
    if (op && op->event) {
        autobuf struct buf body = { 0 };
        struct json_out json = json_to(&body);

        job->event = op->event;
        job->tenant = arena_strdup(&job->arena, op->tenant);
        json_open(&json, '{');
        json_kv_text(&json, disk_kind_name(disk->kind), disk->id);
        json_kv_text(&json, "name", disk->name);
        json_kv_text(&json, "sandbox", disk->sandbox[0] ? disk->sandbox : NULL);
        access_put(&json, &disk->access, disk->by);
        json_close(&json, '}');
        job->body = arena_str(&job->arena, buf_view(&body));
    }
    if (op)
        op->disk = disk;
    return job;
}

static void job_free(struct disk_job *job)
{
    arena_free(&job->arena);
    free(job);
}

static void job_submit(struct disk_job *job,
                       int (*run)(struct store_job *, struct db *, struct err *),
                       void (*done)(struct store_job *))
{
    job->job = (struct store_job){ .run = run, .done = done };
    store_write(job->boxes->store, &job->job);
}

static int record(struct disk_job *job, struct db *db, struct err *err)
{
    if (job->event) {
        const char *object = arena_printf(&job->arena, "disk/%s", job->id);

        if (event_add(db, job->tenant, job->event, object, job->body, err) < 0)
            return -1;
    }
    return job->op && job->op->record ? job->op->record(job->op, db, err) : 0;
}

/* ---- making ---- */

static void made(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct disk_op *op = ask->out;
    struct err err = { 0 };

    (void)fds;
    if (msg && !msg->status) {
        op->disk->there = true;
        op->done(op, NULL);
        return;
    }
    ask_err(&err, msg, "make a disk");
    struct disk *disk = op->disk;
    op->disk = NULL;
    if (msg && msg->status == ENOENT)
        err_set(&err, ERR_CONFLICT, "make a disk: what it is to be a copy of is gone");
    disk_drop(disk); /* it may have been made after all */
    op->done(op, &err);
}

static int insert_run(struct store_job *store_job, struct db *db, struct err *err)
{
    struct disk_job *job = container_of(store_job, struct disk_job, job);
    const struct disk_want *want = &job->want;

    if (next_number(db, &job->number, err) < 0)
        return err_wrap(err, "a number for a disk");
    autoquery struct query *q =
        db_query(db, "INSERT INTO disk (number, id, tenant, kind, name, sandbox, spec, bytes,"
                     " state, by, made_ms, access)"
                     " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'making', $9, $10, $11)");
    query_i64(q, 1, job->number);
    query_text(q, 2, job->id);
    query_text(q, 3, want->tenant);
    query_text(q, 4, kind_names[want->kind]);
    query_text(q, 5, want->name);
    query_text(q, 6, want->sandbox);
    query_text(q, 7, want->spec);
    query_i64(q, 8, want->bytes);
    query_text(q, 9, want->by);
    query_i64(q, 10, job->made_ms);
    query_text(q, 11, access_text(&job->arena, &want->access));
    if (query_run(q, err) >= 0)
        return 0;
    if (err->code == ERR_CONFLICT && want->name[0])
        return err_set(err, ERR_CONFLICT, "there is a %s named %s already", kind_names[want->kind],
                       want->name);
    return err_wrap(err, "store a disk");
}

static void insert_done(struct store_job *store_job)
{
    struct disk_job *job = container_of(store_job, struct disk_job, job);
    const struct disk_want *want = &job->want;

    if (store_job->rc < 0) {
        job->op->done(job->op, &store_job->err);
        job_free(job);
        return;
    }
    struct disk *disk = disk_new(job->boxes, (uint64_t)job->number, want->kind);
    snprintf(disk->id, sizeof(disk->id), "%s", job->id);
    snprintf(disk->tenant, sizeof(disk->tenant), "%s", want->tenant);
    snprintf(disk->by, sizeof(disk->by), "%s", want->by);
    disk->name = xstrdup(want->name);
    disk->sandbox = xstrdup(want->sandbox);
    disk->spec = xstrdup(want->spec);
    disk->access = access_copy(&disk->arena, &want->access);
    disk->bytes = want->bytes;
    disk->made_ms = job->made_ms;
    disk->from = want->from;
    struct disk_op *op = job->op;
    op->disk = disk;
    job_free(job);
    if (op->stored)
        op->stored(op);
    else
        disk_make_now(disk, op);
}

void disk_make_now(struct disk *disk, struct disk_op *op)
{
    struct ask *ask = ask_new(WIRE_DISK_MAKE, NULL);

    ask->msg.disk =
        (struct disk_wish){ .id = disk->number,
                            .bytes = (uint64_t)disk->bytes,
                            .from = disk->from,
                            .flags =
                                disk->kind == DISK_VOLUME && !disk->from ? DISK_FOR_AGENT : 0 };
    ask->answered = made;
    ask->out = op;
    ask_send(disk->boxes, ask);
}

static const char *text_of(struct arena *arena, const char *text)
{
    return arena_strdup(arena, text ? text : "");
}

static int check_name(struct boxes *boxes, const struct disk_want *want, struct err *err)
{
    struct disk *disk = NULL;
    unsigned count = 0;

    while ((disk = disk_next(boxes, reach_all(want->tenant), want->kind, NULL, disk))) {
        count++;
        if (strcmp(disk->name, want->name) == 0 &&
            strcmp(disk->sandbox, want->sandbox ? want->sandbox : "") == 0) {
            err_field(err, "name", "there is a %s named %s already", kind_names[want->kind],
                      want->name);
            err->code = ERR_CONFLICT;
            return -1;
        }
    }
    if (count >= DISKS_NAMED_MAX)
        return err_set(err, ERR_RATE, "there are %d %ss already; remove some", DISKS_NAMED_MAX,
                       kind_names[want->kind]);
    return 0;
}

int disk_make(struct boxes *boxes, const struct disk_want *want, struct disk_op *op,
              struct err *err)
{
    char id[ID_SIZE] = "";

    if (boxes->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    if (!disks_work(boxes))
        return disks_refuse(boxes, err);
    if ((want->name && check_name(boxes, want, err) < 0) || quota_disk(boxes, want, NULL, err) < 0)
        return -1;
    struct disk_job *job = job_new(boxes, NULL, NULL);
    struct arena *arena = &job->arena;
    job->op = op;
    job->want = *want;
    job->want.tenant = text_of(arena, want->tenant);
    job->want.by = text_of(arena, want->by);
    job->want.name = text_of(arena, want->name);
    job->want.sandbox = text_of(arena, want->sandbox);
    job->want.spec = text_of(arena, want->spec);
    job->want.access = access_copy(arena, &want->access);
    if (id_prefixes[want->kind])
        id_make(id, id_prefixes[want->kind]);
    job->id = arena_strdup(arena, id);
    job->made_ms = clock_wall_ms();
    job_submit(job, insert_run, insert_done);
    return 0;
}

/* ---- ready ---- */

static int ready_run(struct store_job *store_job, struct db *db, struct err *err)
{
    struct disk_job *job = container_of(store_job, struct disk_job, job);

    if (disk_row_ready(db, (uint64_t)job->number, job->sandbox, err) < 0)
        return -1;
    return record(job, db, err);
}

static void ready_done(struct store_job *store_job)
{
    struct disk_job *job = container_of(store_job, struct disk_job, job);

    if (store_job->rc < 0) {
        job->op->disk = NULL;
        disk_drop(job->disk);
    } else {
        job->disk->state = DISK_READY;
    }
    job->op->done(job->op, store_job->rc < 0 ? &store_job->err : NULL);
    job_free(job);
}

void disk_ready(struct disk *disk, struct disk_op *op)
{
    job_submit(job_new(disk->boxes, disk, op), ready_run, ready_done);
}

/* ---- removing ---- */

static int delete_run(struct store_job *store_job, struct db *db, struct err *err)
{
    struct disk_job *job = container_of(store_job, struct disk_job, job);

    if (disk_row_drop(db, (uint64_t)job->number, err) < 0)
        return err_wrap(err, "forget a disk");
    return record(job, db, err);
}

void disk_drop(struct disk *disk)
{
    if (!disk->boxes->stopping) /* otherwise the next start does it: its row says so */
        disk_drop_number(disk->boxes, disk->number);
    disk_free(disk);
}

static void remove_done(struct store_job *store_job)
{
    struct disk_job *job = container_of(store_job, struct disk_job, job);
    struct disk_op *op = job->op;

    job->disk->busy = false;
    if (store_job->rc >= 0) {
        disk_drop(job->disk);
        op->disk = NULL;
    }
    op->done(op, store_job->rc < 0 ? &store_job->err : NULL);
    job_free(job);
}

int disk_remove(struct disk *disk, struct disk_op *op, struct err *err)
{
    if (disk->boxes->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    if (disk->busy)
        return err_set(err, ERR_CONFLICT, "%s is being removed", disk->name);
    disk->busy = true;
    job_submit(job_new(disk->boxes, disk, op), delete_run, remove_done);
    return 0;
}

/* ---- size ---- */

static int resize_run(struct store_job *store_job, struct db *db, struct err *err)
{
    struct disk_job *job = container_of(store_job, struct disk_job, job);
    autoquery struct query *q =
        db_query(db, "UPDATE disk SET bytes = $1, access = $2 WHERE number = $3");

    query_i64(q, 1, job->bytes);
    query_text(q, 2, access_text(&job->arena, &job->access));
    query_i64(q, 3, job->number);
    return query_run(q, err) < 0 ? -1 : record(job, db, err);
}

static void resize_done(struct store_job *store_job)
{
    struct disk_job *job = container_of(store_job, struct disk_job, job);
    struct disk *disk = disk_by_number(job->boxes, (uint64_t)job->number);

    if (disk && store_job->rc >= 0) {
        disk->bytes = job->bytes;
        arena_free(&disk->arena);
        disk->arena = (struct arena){ 0 };
        disk->access = access_copy(&disk->arena, &job->access);
    }
    job->op->done(job->op, store_job->rc < 0 ? &store_job->err : NULL);
    job_free(job);
}

static void limited(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct disk_job *job = ask->out;
    struct err err = { 0 };

    (void)fds;
    if (msg && !msg->status && !job->boxes->stopping) {
        job_submit(job, resize_run, resize_done);
        return;
    }
    ask_err(&err, msg && msg->status ? msg : NULL, "size of a disk");
    job->op->done(job->op, &err);
    job_free(job);
}

int disk_resize(struct disk *disk, int64_t bytes, struct disk_op *op, struct err *err)
{
    return disk_change(disk, bytes, NULL, op, err);
}

int disk_change(struct disk *disk, int64_t bytes, const struct access *access, struct disk_op *op,
                struct err *err)
{
    struct disk_wish wish = { .id = disk->number, .bytes = (uint64_t)bytes };
    const struct disk_want want = {
        .kind = disk->kind, .tenant = disk->tenant, .by = disk->by, .role = op->role, .bytes = bytes
    };

    if (bytes && !disk_wish_ok(&wish))
        return err_set(err, ERR_INVALID, "a size that no disk can have");
    if (disk->boxes->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    if (bytes && quota_disk(disk->boxes, &want, disk, err) < 0)
        return -1;
    struct disk_job *job = job_new(disk->boxes, disk, op);
    if (access)
        job->access = access_copy(&job->arena, access);
    if (!bytes) {
        job_submit(job, resize_run, resize_done);
        return 0;
    }
    job->bytes = bytes;
    struct ask *ask = ask_new(WIRE_DISK_LIMIT, NULL);
    ask->msg.disk = wish;
    ask->answered = limited;
    ask->out = job;
    ask_send(disk->boxes, ask);
    return 0;
}

/* ---- use ---- */

struct stat_wait {
    struct disk_op *op;
    struct disk_usage *out;
};

static void measured(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    autofree struct stat_wait *wait = ask->out;
    struct err err = { 0 };

    (void)fds;
    if (msg && !msg->status)
        *wait->out = msg->disk_usage;
    else
        ask_err(&err, msg, "use of a disk");
    wait->op->done(wait->op, err.code ? &err : NULL);
}

int disk_stat(struct disk *disk, struct disk_usage *out, struct disk_op *op, struct err *err)
{
    if (disk->state == DISK_LOST)
        return err_set(err, ERR_CONFLICT, "its disk is gone");
    struct ask *ask = ask_new(WIRE_DISK_STAT, NULL);
    struct stat_wait *wait = xnew(struct stat_wait);

    *wait = (struct stat_wait){ op, out };
    op->disk = disk;
    ask->msg.disk.id = disk->number;
    ask->answered = measured;
    ask->out = wait;
    ask_send(disk->boxes, ask);
    return 0;
}

/* ---- the start ---- */

static int load_disk(struct boxes *boxes, struct query *q, struct err *err)
{
    struct str kind = query_col_str(q, 3);
    unsigned at = 0;

    while (at < DISK_KINDS && !str_is(kind, kind_names[at]))
        at++;
    if (at == DISK_KINDS)
        return err_set(err, ERR_INTERNAL, "the row of disk %lld", (long long)query_col_i64(q, 0));
    struct disk *disk = disk_new(boxes, (uint64_t)query_col_i64(q, 0), (enum disk_kind)at);
    snprintf(disk->id, sizeof(disk->id), "%.*s", STR_FMT(query_col_str(q, 1)));
    snprintf(disk->tenant, sizeof(disk->tenant), "%.*s", STR_FMT(query_col_str(q, 2)));
    disk->name = xmemdup0(query_col_str(q, 4).p, query_col_str(q, 4).n);
    disk->sandbox = xmemdup0(query_col_str(q, 5).p, query_col_str(q, 5).n);
    disk->spec = xmemdup0(query_col_str(q, 6).p, query_col_str(q, 6).n);
    disk->bytes = query_col_i64(q, 7);
    snprintf(disk->by, sizeof(disk->by), "%.*s", STR_FMT(query_col_str(q, 8)));
    disk->made_ms = query_col_i64(q, 9);
    disk->state = DISK_READY;
    return access_read(&disk->arena, query_col_str(q, 10), &disk->access, err);
}

int disks_load(struct boxes *boxes, struct db *db, struct err *err)
{
    int rc;
    autoquery struct query *q =
        db_query(db, "SELECT number, id, tenant, kind, name, sandbox, spec, bytes, by, made_ms,"
                     " access FROM disk WHERE state = 'ready' ORDER BY number");

    while ((rc = query_step(q, err)) > 0)
        if (load_disk(boxes, q, err) < 0)
            return -1;
    return rc < 0 ? -1 : drops_load(boxes, db, err);
}
