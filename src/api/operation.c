/*
 * Operations: what was answered 202 and goes on by itself. Each has a row, so that its end is told
 * after a restart too; one that a restart cut off has failed. Kept for an hour after its end.
 */
#include "api/operation.h"

#include "base/clock.h"
#include "base/log.h"

#define KEEP_MS 3600000
#define COLUMNS "id, type, status, target, error, result, progress, created_ms, completed_ms"

struct operation_note {
    struct store_job job;
    struct arena arena;
    struct operation_end end; /* in the arena */
};

int operation_add(struct db *db, const struct operation *op, struct err *err)
{
    autoquery struct query *old =
        db_query(db, "DELETE FROM operation WHERE completed_ms > 0 AND completed_ms < $1");
    query_i64(old, 1, op->created_ms - KEEP_MS);
    if (query_run(old, err) < 0)
        return -1;
    autoquery struct query *q =
        db_query(db, "INSERT INTO operation (id, tenant, type, status, target, error, result,"
                     " progress, created_ms, completed_ms, by)"
                     " VALUES ($1, $2, $3, $4, $5, '', '', $6, $7, $8, $9)");
    query_text(q, 1, op->id);
    query_text(q, 2, op->tenant);
    query_text(q, 3, op->type);
    query_text(q, 4, op->completed_ms ? "completed" : "running");
    query_text(q, 5, op->target);
    query_i64(q, 6, op->completed_ms ? 100 : op->progress);
    query_i64(q, 7, op->created_ms);
    query_i64(q, 8, op->completed_ms);
    query_text(q, 9, op->by);
    return query_run(q, err) < 0 ? -1 : 0;
}

/* ---- its beginning ---- */

struct operation operation_new(struct call *call, const char *type, const char *target)
{
    char id[UUID_SIZE];

    uuid_v4(id);
    return (struct operation){ .id = arena_strdup(&call->arena, id),
                               .tenant = call->who.tenant,
                               .by = call->who.id,
                               .type = type,
                               .status = "running",
                               .target = arena_strdup(&call->arena, target),
                               .progress = 10,
                               .created_ms = clock_wall_ms() };
}

static int begin_run(struct store_job *job, struct db *db, struct err *err)
{
    struct operation_start *start = container_of(job, struct operation_start, job);
    struct call *call = start->call;

    if (operation_add(db, &start->operation, err) < 0 ||
        (start->event &&
         event_add(db, call->who.tenant, start->event, call->object, STR("{}"), err) < 0))
        return -1;
    return call_record(call, db, err);
}

static void begin_done(struct store_job *job)
{
    struct operation_start *start = container_of(job, struct operation_start, job);
    struct call *call = start->call;

    if (job->rc < 0)
        start->drop(start);
    else
        start->go(start);
    call_finish(call, job->rc < 0 ? &job->err : NULL);
}

void operation_begin(struct call *call, struct operation_start *start)
{
    call->status = 202;
    start->call = call;
    start->job = (struct store_job){ .run = begin_run, .done = begin_done };
    store_write(call->api->store, &start->job);
}

/* ---- its way and its end ---- */

static int end_run(struct store_job *job, struct db *db, struct err *err)
{
    const struct operation_end *end = &container_of(job, struct operation_note, job)->end;
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    autoquery struct query *q =
        db_query(db, "UPDATE operation SET status = $1, error = $2, result = $3, progress = 100,"
                     " completed_ms = $4 WHERE id = $5");

    query_text(q, 1, end->error ? "failed" : "completed");
    query_text(q, 2, end->error ? end->error : "");
    query_text(q, 3, end->result ? end->result : "");
    query_i64(q, 4, clock_wall_ms());
    query_text(q, 5, end->id);
    if (query_run(q, err) < 0)
        return -1;
    json_open(&json, '{');
    if (end->reason)
        json_kv_text(&json, "reason", end->reason);
    json_close(&json, '}');
    return event_add(db, end->tenant, end->event, end->object, buf_view(&body), err);
}

static int progress_run(struct store_job *job, struct db *db, struct err *err)
{
    const struct operation_end *end = &container_of(job, struct operation_note, job)->end;
    autoquery struct query *q = db_query(db, "UPDATE operation SET progress = $1 WHERE id = $2");

    query_i64(q, 1, end->percent);
    query_text(q, 2, end->id);
    return query_run(q, err) < 0 ? -1 : 0;
}

static void end_done(struct store_job *job)
{
    struct operation_note *note = container_of(job, struct operation_note, job);

    if (job->rc < 0)
        log_warn("the state of an operation was not kept", kv_str("operation", note->end.id),
                 kv_str("error", job->err.msg));
    arena_free(&note->arena);
    free(note);
}

static const char *copy(struct operation_note *note, const char *text)
{
    return text ? arena_strdup(&note->arena, text) : NULL;
}

void operation_end(const struct api *api, const struct operation_end *end)
{
    struct operation_note *note = xnew(struct operation_note);

    note->end = (struct operation_end){ .id = copy(note, end->id),
                                        .tenant = copy(note, end->tenant),
                                        .event = copy(note, end->event),
                                        .object = copy(note, end->object),
                                        .reason = copy(note, end->reason),
                                        .error = copy(note, end->error),
                                        .result = copy(note, end->result) };
    note->job = (struct store_job){ .run = end_run, .done = end_done };
    store_write(api->store, &note->job);
}

void operation_progress(const struct api *api, const char *id, int percent)
{
    struct operation_note *note = xnew(struct operation_note);

    note->end = (struct operation_end){ .id = copy(note, id), .percent = percent };
    note->job = (struct store_job){ .run = progress_run, .done = end_done };
    store_write(api->store, &note->job);
}

void operation_put(struct json_out *json, const struct operation *op)
{
    char text[CLOCK_TEXT_SIZE];

    json_open(json, '{');
    json_kv_text(json, "id", op->id);
    json_kv_text(json, "type", op->type);
    json_kv_text(json, "status", op->status);
    if (op->error && op->error[0])
        json_kv_text(json, "error", op->error);
    json_kv_text(json, "target", op->target);
    clock_text(op->created_ms, text);
    json_kv_text(json, "created_at", text);
    if (op->completed_ms) {
        clock_text(op->completed_ms, text);
        json_kv_text(json, "completed_at", text);
    }
    json_kv_int(json, "progress_percent", op->progress);
    if (op->result && op->result[0]) {
        json_key(json, "result");
        json_put_raw(json, str_of(op->result)); /* made by us */
    }
    json_close(json, '}');
}

int api_boot(struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "UPDATE operation SET status = 'failed', error = 'the server was restarted',"
                     " completed_ms = $1 WHERE completed_ms = 0");

    query_i64(q, 1, clock_wall_ms());
    return query_run(q, err) < 0 ? -1 : 0;
}

static int operation_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    autoquery struct query *q = db_query(call->db, "SELECT " COLUMNS " FROM operation"
                                                   " WHERE tenant = $1 AND id = $2"
                                                   " AND ($3 = '' OR by = $3)");

    query_text(q, 1, call->who.tenant);
    query_text(q, 2, call_param(call, "id"));
    query_text(q, 3, call_reach(call).all ? "" : call->who.id);
    int rc = query_step(q, err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return err_word(err, ERR_NOT_FOUND, "OPERATION_NOT_FOUND", "there is no such operation");
    struct operation op = { .id = query_col_dup(q, 0, &call->arena),
                            .type = query_col_dup(q, 1, &call->arena),
                            .status = query_col_dup(q, 2, &call->arena),
                            .target = query_col_dup(q, 3, &call->arena),
                            .error = query_col_dup(q, 4, &call->arena),
                            .result = query_col_dup(q, 5, &call->arena),
                            .progress = query_col_i64(q, 6),
                            .created_ms = query_col_i64(q, 7),
                            .completed_ms = query_col_i64(q, 8) };
    operation_put(&json, &op);
    return 0;
}

const struct route operation_routes[] = {
    { .name = "operation.read",
      .method = "GET",
      .path = "/api/v1/operations/{id}",
      .on = ON_READER,
      .roles = ROLE_LOOK,
      .fn = operation_get,
      .surface = SURFACE_VM,
      .summary = "What was answered 202: how far it is, and how it ended. Kept for an hour." },
    { 0 },
};
