/*
 * The rows of sandboxes and commands. A change carries copies of everything it writes, because it
 * runs on the writer thread while the loop goes on. The event, and what the caller records, are in
 * the same transaction as the rows.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "box/own.h"

static const char *json_of(struct arena *arena, const struct field *fields, const void *in)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);

    field_encode(fields, in, &json);
    return arena_memdup0(arena, text.data, text.len);
}

const char *spec_text(struct arena *arena, const struct sandbox_spec *spec)
{
    return json_of(arena, sandbox_spec_fields, spec);
}

static void put_event(struct change *change, struct box_exec *exec)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct box *box = change->box;

    json_open(&json, '{');
    json_kv_text(&json, "sandbox", box->id);
    if (exec) {
        struct exec_view view;

        box_exec_view(exec, &view);
        json_kv_text(&json, "exec", exec->id);
        json_kv_text(&json, "state", view.state);
        if (exec->state == EXEC_EXITED) {
            json_kv_int(&json, "exit_code", view.exit_code);
            json_kv_int(&json, "signal", view.signal);
            json_kv_bool(&json, "timed_out", view.timed_out);
            json_kv_bool(&json, "oom", view.oom);
            json_kv_int(&json, "stdout_bytes", view.stdout_bytes);
            json_kv_int(&json, "stderr_bytes", view.stderr_bytes);
        }
    } else {
        json_kv_text(&json, "name", box->spec.name);
        json_kv_text(&json, "state", sandbox_state_name(box->state));
        json_kv_text(&json, "reason", box->reason[0] ? box->reason : NULL);
    }
    json_kv_text(&json, "by", change->op ? change->op->by : NULL);
    access_put(&json, &box->spec.access, box->by);
    json_close(&json, '}');
    change->body = arena_str(&change->arena, buf_view(&body));
}

struct change *change_new(struct box *box, struct box_exec *exec, struct box_op *op,
                          const char *event)
{
    struct change *change = xnew(struct change);
    struct arena *arena = &change->arena;

    change->boxes = box->boxes;
    change->box = box;
    change->exec = exec;
    change->op = op;
    change->event = event;
    change->id = arena_strdup(arena, box->id);
    change->tenant = arena_strdup(arena, box->tenant);
    change->name = arena_strdup(arena, box->spec.name ? box->spec.name : "");
    change->state = sandbox_state_name(box->state);
    change->reason = arena_strdup(arena, box->reason);
    change->by = arena_strdup(arena, box->by);
    change->slot = box->slot;
    change->created_ms = box->created_ms;
    change->changed_ms = box->changed_ms;
    change->expires_ms = box->expires_ms;
    change->disk = (int64_t)box->disk;
    change->disk_bytes = box->spec.disk;
    change->asleep = box->asleep;
    if (exec) {
        change->exec_id = arena_strdup(arena, exec->id);
        change->exec_state = exec_state_name(exec->state);
        change->exec_by = arena_strdup(arena, exec->by);
        change->number = exec->number;
        change->pid = exec->pid;
        change->started_ms = exec->started_ms;
        change->ended_ms = exec->ended_ms;
        change->end = exec->end;
        change->oom = exec->oom;
        change->placed = exec->end_place != 0;
    }
    if (event)
        put_event(change, exec);
    return change;
}

/* ---- on the writer thread ---- */

int row_nothing(struct change *change, struct db *db, struct err *err)
{
    (void)change, (void)db, (void)err;
    return 0;
}

int row_sandbox_insert(struct change *change, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "INSERT INTO sandbox (id, tenant, name, slot, state, reason, spec, by,"
                     " created_ms, changed_ms, expires_ms, disk)"
                     " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)");
    query_text(q, 1, change->id);
    query_text(q, 2, change->tenant);
    query_text(q, 3, change->name);
    query_i64(q, 4, change->slot);
    query_text(q, 5, change->state);
    query_text(q, 6, change->reason);
    query_text(q, 7, change->spec);
    query_text(q, 8, change->by);
    query_i64(q, 9, change->created_ms);
    query_i64(q, 10, change->changed_ms);
    query_i64(q, 11, change->expires_ms);
    query_i64(q, 12, change->disk);
    if (query_run(q, err) < 0)
        return err_wrap(err, "store sandbox %s", change->id);
    if (!change->disk)
        return 0;
    /* A warm one was made before anybody knew for whom. */
    autoquery struct query *owner = db_query(db, "UPDATE disk SET tenant = $1, bytes = $2"
                                                 " WHERE number = $3");
    query_text(owner, 1, change->tenant);
    query_i64(owner, 2, change->disk_bytes);
    query_i64(owner, 3, change->disk);
    if (query_run(owner, err) < 0)
        return err_wrap(err, "store sandbox %s", change->id);
    return disk_row_ready(db, (uint64_t)change->disk, change->id, err);
}

int row_sandbox_update(struct change *change, struct db *db, struct err *err)
{
    autoquery struct query *q = db_query(
        db, "UPDATE sandbox SET state = $1, reason = $2, changed_ms = $3,"
            " expires_ms = $4, spec = $5, slot = $6, disk = $7, asleep = $8 WHERE id = $9");
    query_text(q, 1, change->state);
    query_text(q, 2, change->reason);
    query_i64(q, 3, change->changed_ms);
    query_i64(q, 4, change->expires_ms);
    query_text(q, 5, change->spec);
    query_i64(q, 6, change->slot);
    query_i64(q, 7, change->disk);
    query_i64(q, 8, change->asleep);
    query_text(q, 9, change->id);
    return query_run(q, err) < 0 ? err_wrap(err, "store sandbox %s", change->id) : 0;
}

int row_sandbox_switch(struct change *change, struct db *db, struct err *err)
{
    if (row_sandbox_update(change, db, err) < 0 ||
        disk_row_ready(db, (uint64_t)change->disk, change->id, err) < 0)
        return -1;
    return disk_row_drop(db, (uint64_t)change->old_disk, err);
}

int row_sandbox_delete(struct change *change, struct db *db, struct err *err)
{
    autoquery struct query *execs = db_query(db, "DELETE FROM exec WHERE sandbox = $1");
    autoquery struct query *crashes = db_query(db, "DELETE FROM crash WHERE sandbox = $1");
    autoquery struct query *q = db_query(db, "DELETE FROM sandbox WHERE id = $1");

    query_text(execs, 1, change->id);
    query_text(crashes, 1, change->id);
    query_text(q, 1, change->id);
    if (query_run(execs, err) < 0 || query_run(crashes, err) < 0 || query_run(q, err) < 0)
        return err_wrap(err, "delete sandbox %s", change->id);
    return change->disk ? disk_row_drop(db, (uint64_t)change->disk, err) : 0;
}

int row_exec_insert(struct change *change, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "INSERT INTO exec (id, sandbox, number, state, spec, by, pid, started_ms)"
                     " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)");
    query_text(q, 1, change->exec_id);
    query_text(q, 2, change->id);
    query_i64(q, 3, change->number);
    query_text(q, 4, change->exec_state);
    query_text(q, 5, change->exec_spec);
    query_text(q, 6, change->exec_by);
    query_i64(q, 7, change->pid);
    query_i64(q, 8, change->started_ms);
    return query_run(q, err) < 0 ? err_wrap(err, "store command %s", change->exec_id) : 0;
}

int row_exec_update(struct change *change, struct db *db, struct err *err)
{
    autoquery struct query *q = db_query(
        db, "UPDATE exec SET state = $1, code = $2, signal = $3, timed_out = $4, user_us = $5,"
            " system_us = $6, maxrss_kb = $7, ended_ms = $8, oom = $9 WHERE id = $10");
    query_text(q, 1, change->exec_state);
    query_i64(q, 2, change->end.code);
    query_i64(q, 3, change->end.signal);
    query_i64(q, 4, change->end.timed_out != 0);
    query_i64(q, 5, (int64_t)(change->end.user_us & INT64_MAX));
    query_i64(q, 6, (int64_t)(change->end.system_us & INT64_MAX));
    query_i64(q, 7, (int64_t)(change->end.maxrss_kb & INT64_MAX));
    query_i64(q, 8, change->ended_ms);
    query_i64(q, 9, change->oom);
    query_text(q, 10, change->exec_id);
    int rows = query_run(q, err);
    if (rows == 0 && change->placed) /* its start did not get into the store */
        return err_set(err, ERR_UNAVAILABLE, "command %s has no row", change->exec_id);
    return rows < 0 ? err_wrap(err, "store command %s", change->exec_id) : 0;
}

int row_exec_delete(struct change *change, struct db *db, struct err *err)
{
    autoquery struct query *q = db_query(db, "DELETE FROM exec WHERE id = $1");

    query_text(q, 1, change->exec_id);
    return query_run(q, err) < 0 ? err_wrap(err, "forget command %s", change->exec_id) : 0;
}

static int audit_unasked(struct change *change, struct db *db, struct err *err)
{
    struct audit row = { .at_ms = clock_wall_ms(),
                         .tenant = change->tenant,
                         .actor = change->actor ? change->actor : "-",
                         .role = "-",
                         .action = change->event,
                         .object = arena_printf(&change->arena, "sandbox/%s", change->id),
                         .outcome = "ok",
                         .request_id = "",
                         .peer = "",
                         .detail = arena_memdup0(&change->arena, change->body.p, change->body.n) };

    return audit_add(db, &row, err);
}

static int change_run(struct store_job *job, struct db *db, struct err *err)
{
    struct change *change = container_of(job, struct change, job);

    if (change->write(change, db, err) < 0)
        return -1;
    if (change->event) {
        const char *object = change->exec_id
                                 ? arena_printf(&change->arena, "exec/%s", change->exec_id)
                                 : arena_printf(&change->arena, "sandbox/%s", change->id);

        if (event_add(db, change->tenant, change->event, object, change->body, err) < 0)
            return -1;
    }
    if (change->audit && audit_unasked(change, db, err) < 0)
        return -1;
    if (change->noted)
        return audit_add(db, change->noted, err);
    return change->op && change->op->record ? change->op->record(change->op, db, err) : 0;
}

void change_free(struct change *change)
{
    arena_free(&change->arena);
    free(change);
}

static void change_done(struct store_job *job)
{
    struct change *change = container_of(job, struct change, job);
    const struct err *err = job->rc < 0 ? &job->err : NULL;

    if (change->settled)
        change->settled(change, err);
    else if (change->op)
        change->op->done(change->op, err);
    else if (err)
        log_error("a change of a sandbox is not stored", kv_str("sandbox", change->id),
                  kv_str("error", err->msg));
    if (!change->again)
        change_free(change);
}

static void change_committed(struct store_job *job)
{
    struct change *change = container_of(job, struct change, job);

    if (change->applied)
        change->applied(change);
}

void change_texts(struct change *change)
{
    if (change->write == row_sandbox_insert || change->write == row_sandbox_update ||
        change->write == row_sandbox_switch)
        change->spec = spec_text(&change->arena, &change->box->spec);
    if (change->write == row_exec_insert && !change->exec_spec)
        change->exec_spec = json_of(&change->arena, exec_spec_fields, &change->exec->spec);
}

void change_submit(struct change *change)
{
    change_texts(change);
    change->again = false;
    change->job = (struct store_job){ .run = change_run,
                                      .committed = change_committed,
                                      .done = change_done,
                                      .lazy_ms = change->lazy_ms };
    store_write(change->boxes->store, &change->job);
}
