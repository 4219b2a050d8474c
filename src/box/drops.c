/*
 * How disks end, and what the start makes of those that it finds.
 *
 * A disk is dropped only when a row says so: state 'making' (its making did not end) or 'dropping'
 * (whatever it was for is gone). The row is deleted after the warden has dropped the disk, so a
 * kill loses no drop. A drop that fails (something may still hold the tree for a moment) is tried
 * again for a while, and then by the next start.
 *
 * A disk without any row is never dropped by itself. It was made by a server with another store:
 * this one may be an older copy, or another server's. The disk stays where it is, gets a row of
 * state 'aside', and goes when somebody says so or when disks_aside_keep is over. A start with the
 * right store finds it as if nothing had happened. No number that such a disk has is given out.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "box/own.h"

#define DROP_RETRY_MS 1000
#define DROP_TRIES 60
#define ASIDE_LOOK_MS 3600000 /* how often the time of those aside is looked at */

/* ---- a row that is no disk of ours ---- */

struct aside_job {
    struct store_job job;
    struct boxes *boxes;
    uint64_t number;
    int64_t found_ms;
    struct disk_op *op; /* disk_aside_drop; NULL: nobody asked */
};

static struct aside_job *aside_job(struct boxes *boxes, uint64_t number)
{
    struct aside_job *job = xnew(struct aside_job);

    job->boxes = boxes;
    job->number = number;
    return job;
}

static void aside_job_done(struct store_job *store_job)
{
    struct aside_job *job = container_of(store_job, struct aside_job, job);

    if (store_job->rc < 0)
        log_error("the row of a disk is not stored", kv_int("disk", (int64_t)job->number),
                  kv_str("error", store_job->err.msg));
    free(job);
}

static void aside_job_submit(struct aside_job *job,
                             int (*run)(struct store_job *, struct db *, struct err *),
                             void (*done)(struct store_job *))
{
    job->job = (struct store_job){ .run = run, .done = done };
    store_write(job->boxes->store, &job->job);
}

static int forget_run(struct store_job *store_job, struct db *db, struct err *err)
{
    const struct aside_job *job = container_of(store_job, struct aside_job, job);
    autoquery struct query *q =
        db_query(db, "DELETE FROM disk WHERE number = $1 AND state <> 'ready'");

    query_i64(q, 1, (int64_t)job->number);
    return query_run(q, err) < 0 ? -1 : 0;
}

static void forget(struct boxes *boxes, uint64_t number)
{
    if (!boxes->stopping)
        aside_job_submit(aside_job(boxes, number), forget_run, aside_job_done);
}

/* ---- dropping ---- */

static void on_drops(struct timer *timer);

static void dropped(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct drop *drop = ask->out;
    struct boxes *boxes = drop->boxes;

    (void)fds;
    if (msg && (!msg->status || msg->status == ENOENT)) {
        forget(boxes, drop->number);
        free(drop);
        return;
    }
    if (boxes->stopping || ++drop->tries >= DROP_TRIES) {
        log_error("a disk could not be dropped; the next start tries again",
                  kv_int("disk", (int64_t)drop->number), kv_int("status", msg ? msg->status : -1));
        free(drop);
        return;
    }
    list_append(&boxes->drops, &drop->node);
    boxes->drop_timer.fn = on_drops;
    if (!timer_is_set(&boxes->drop_timer))
        timer_set(boxes->loop, &boxes->drop_timer, DROP_RETRY_MS);
}

static void drop_send(struct drop *drop)
{
    struct ask *ask = ask_new(WIRE_DISK_DROP, NULL);

    ask->msg.disk.id = drop->number;
    ask->answered = dropped;
    ask->out = drop;
    ask_send(drop->boxes, ask);
}

static void on_drops(struct timer *timer)
{
    struct boxes *boxes = container_of(timer, struct boxes, drop_timer);
    struct list *node;

    while ((node = list_pop(&boxes->drops)))
        drop_send(list_entry(node, struct drop, node));
}

void disk_drop_number(struct boxes *boxes, uint64_t number)
{
    struct drop *drop = xnew(struct drop);

    drop->boxes = boxes;
    drop->number = number;
    drop_send(drop);
}

/* ---- aside ---- */

static struct disk_aside *aside_new(struct boxes *boxes, uint64_t number, int64_t found_ms)
{
    struct disk_aside *aside = xnew(struct disk_aside);

    aside->number = number;
    aside->found_ms = found_ms;
    list_append(&boxes->aside, &aside->node);
    return aside;
}

static void aside_free(struct disk_aside *aside)
{
    list_remove(&aside->node);
    free(aside);
}

struct disk_aside *disk_aside_next(struct boxes *boxes, struct disk_aside *after)
{
    struct list *at = after ? after->node.next : boxes->aside.next;

    while (at != &boxes->aside && list_entry(at, struct disk_aside, node)->ends)
        at = at->next;
    return at == &boxes->aside ? NULL : list_entry(at, struct disk_aside, node);
}

static struct disk_aside *aside_find(struct boxes *boxes, uint64_t number)
{
    list_each (pos, &boxes->aside) {
        struct disk_aside *aside = list_entry(pos, struct disk_aside, node);

        if (aside->number == number)
            return aside;
    }
    return NULL;
}

/* Its number, and every smaller one, is not given out any more. */
static int keep_run(struct store_job *store_job, struct db *db, struct err *err)
{
    const struct aside_job *job = container_of(store_job, struct aside_job, job);
    autoquery struct query *row =
        db_query(db, "INSERT INTO disk (number, id, tenant, kind, name, sandbox, spec, bytes,"
                     " state, by, made_ms)"
                     " VALUES ($1, '', 'default', 'root', '', '', '', 0, 'aside', '-', $2)");
    autoquery struct query *last =
        db_query(db, "UPDATE disk_number SET last = $1 WHERE id = 1 AND last < $1");

    query_i64(row, 1, (int64_t)job->number);
    query_i64(row, 2, job->found_ms);
    query_i64(last, 1, (int64_t)job->number);
    return query_run(row, err) < 0 || query_run(last, err) < 0 ? -1 : 0;
}

static void keep(struct boxes *boxes, uint64_t number)
{
    struct aside_job *job = aside_job(boxes, number);

    boxes->aside_new++;
    job->found_ms = clock_wall_ms();
    aside_new(boxes, number, job->found_ms)->there = true;
    aside_job_submit(job, keep_run, aside_job_done);
}

static int ends_run(struct store_job *store_job, struct db *db, struct err *err)
{
    const struct aside_job *job = container_of(store_job, struct aside_job, job);

    if (disk_row_drop(db, job->number, err) < 0)
        return -1;
    return job->op && job->op->record ? job->op->record(job->op, db, err) : 0;
}

static void ends_done(struct store_job *store_job)
{
    struct aside_job *job = container_of(store_job, struct aside_job, job);
    struct disk_aside *aside = aside_find(job->boxes, job->number);

    if (store_job->rc == 0)
        disk_drop_number(job->boxes, job->number);
    if (aside && store_job->rc == 0)
        aside_free(aside);
    else if (aside)
        aside->ends = false;
    if (job->op)
        job->op->done(job->op, store_job->rc < 0 ? &store_job->err : NULL);
    free(job);
}

static void aside_end(struct boxes *boxes, struct disk_aside *aside, struct disk_op *op)
{
    struct aside_job *job = aside_job(boxes, aside->number);

    aside->ends = true;
    job->op = op;
    aside_job_submit(job, ends_run, ends_done);
}

int disk_aside_drop(struct boxes *boxes, uint64_t number, struct disk_op *op, struct err *err)
{
    struct disk_aside *aside = aside_find(boxes, number);

    if (boxes->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    if (!aside || aside->ends)
        return err_set(err, ERR_NOT_FOUND, "no disk %llu is kept aside",
                       (unsigned long long)number);
    aside_end(boxes, aside, op);
    return 0;
}

/* Those whose time is over go. */
static void on_aside(struct timer *timer)
{
    struct boxes *boxes = container_of(timer, struct boxes, aside_timer);
    int64_t now = clock_wall_ms();

    if (boxes->stopping || !boxes->aside_keep_ms)
        return;
    list_each (pos, &boxes->aside) {
        struct disk_aside *aside = list_entry(pos, struct disk_aside, node);

        if (aside->ends || now - aside->found_ms < boxes->aside_keep_ms)
            continue;
        log_warn("a disk that was kept aside is dropped: its time is over",
                 kv_int("disk", (int64_t)aside->number));
        aside_end(boxes, aside, NULL);
    }
    timer_set(boxes->loop, &boxes->aside_timer, MIN(boxes->aside_keep_ms, ASIDE_LOOK_MS));
}

/* ---- the start ---- */

int drops_load(struct boxes *boxes, struct db *db, struct err *err)
{
    int rc;
    autoquery struct query *q = db_query(
        db, "SELECT number, state, made_ms FROM disk WHERE state <> 'ready' ORDER BY number");

    while ((rc = query_step(q, err)) > 0) {
        struct disk_aside *aside =
            aside_new(boxes, (uint64_t)query_col_i64(q, 0), query_col_i64(q, 2));

        aside->ends = !str_is(query_col_str(q, 1), "aside");
    }
    return rc;
}

void drops_free(struct boxes *boxes)
{
    struct list *node;

    timer_cancel(boxes->loop, &boxes->drop_timer);
    timer_cancel(boxes->loop, &boxes->aside_timer);
    while ((node = list_pop(&boxes->drops)))
        free(list_entry(node, struct drop, node));
    while ((node = list_pop(&boxes->aside)))
        free(list_entry(node, struct disk_aside, node));
}

/* What the rows said was to end does; a row whose disk is not there has nothing to say. */
static void settle(struct boxes *boxes)
{
    list_each_safe (pos, &boxes->aside) {
        struct disk_aside *aside = list_entry(pos, struct disk_aside, node);

        if (aside->ends)
            disk_drop_number(boxes, aside->number);
        else if (!aside->there)
            forget(boxes, aside->number);
        else
            continue;
        aside_free(aside);
    }
    boxes->aside_timer.fn = on_aside;
    on_aside(&boxes->aside_timer);
}

static void all_listed(struct boxes *boxes)
{
    if (boxes->aside_new)
        log_warn("disks that the database does not name are kept aside: it is older than they are, "
                 "or another server's; `atoll disk ls` lists them",
                 kv_int("disks", boxes->aside_new));
    if (disks_work(boxes))
        settle(boxes);
    list_each (pos, &boxes->disks) {
        struct disk *disk = list_entry(pos, struct disk, node);

        if (disk->there || !disks_work(boxes))
            continue;
        disk->state = DISK_LOST;
        log_error("a disk is gone", kv_int("disk", (int64_t)disk->number),
                  kv_str("kind", disk_kind_name(disk->kind)), kv_str("name", disk->name));
    }
    boxes->disks_listed(boxes);
}

static void found(struct boxes *boxes, uint64_t number)
{
    struct disk *disk = disk_by_number(boxes, number);
    struct disk_aside *aside = disk ? NULL : aside_find(boxes, number);

    if (disk)
        disk->there = true;
    else if (aside)
        aside->there = true;
    else
        keep(boxes, number);
}

static void listed(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX]);

static void ask_page(struct boxes *boxes, uint64_t after)
{
    struct ask *ask = ask_new(WIRE_DISK_LIST, NULL);

    ask->msg.disk_page.after = after;
    ask->answered = listed;
    ask->out = boxes;
    ask_send(boxes, ask);
}

static void listed(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct boxes *boxes = ask->out;
    uint64_t last = ask->msg.disk_page.after;

    (void)fds;
    if (boxes->stopping)
        return;
    boxes->disks_asked = true;
    boxes->disks_status = msg ? msg->status : ETIMEDOUT;
    if (boxes->disks_status) {
        all_listed(boxes);
        return;
    }
    for (uint32_t i = 0; i < MIN(msg->disk_rows.count, (uint32_t)DISK_ROWS); i++) {
        last = msg->disk_rows.ids[i];
        found(boxes, last);
    }
    if (msg->disk_rows.more && last > ask->msg.disk_page.after)
        ask_page(boxes, last);
    else
        all_listed(boxes);
}

void disks_start(struct boxes *boxes, void (*done)(struct boxes *boxes))
{
    boxes->disks_listed = done;
    ask_page(boxes, 0);
}
