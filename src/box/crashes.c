/*
 * Sandboxes whose process 1 dies by itself. Each such end is a row and an event `vm.crashed`; short
 * lives that repeat are a crash loop (base/crash.h), which is an event `vm.crash_loop` once.
 * Nothing is started or rebuilt here: a rebuild would delete the files of the sandbox, and is the
 * decision of an operator (`vm reprovision`).
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "box/own.h"

METRIC_COUNTER(crashes, "atoll_sandbox_crashes_total", "Sandboxes whose process 1 died by itself");
METRIC_COUNTER(loops, "atoll_sandbox_crash_loops_total", "Sandboxes that began to crash in a loop");

const struct field crash_fields[] = {
    FIELD(crash_view, at, F_TIME, F_READONLY, .help = "When its process 1 died"),
    FIELD(crash_view, uptime_ms, F_INT, F_READONLY, .help = "How long it had run"),
    FIELD(crash_view, reason, F_STRING, F_READONLY, .help = "How it ended"),
    { 0 },
};

struct noting {
    struct store_job job;
    struct arena arena;
    const char *id, *tenant, *object, *reason;
    struct str body;
    int64_t at_ms, uptime_ms;
    bool loop;
};

static int write_row(const struct noting *noting, struct db *db, struct err *err)
{
    autoquery struct query *q = db_query(db, "INSERT INTO crash (sandbox, at_ms, uptime_ms, reason)"
                                             " SELECT id, $1, $2, $3 FROM sandbox WHERE id = $4"
                                             " ON CONFLICT (sandbox, at_ms) DO NOTHING");
    autoquery struct query *old =
        db_query(db, "DELETE FROM crash WHERE sandbox = $1 AND at_ms NOT IN"
                     " (SELECT at_ms FROM crash WHERE sandbox = $1 ORDER BY at_ms DESC LIMIT $2)");

    query_i64(q, 1, noting->at_ms);
    query_i64(q, 2, noting->uptime_ms);
    query_text(q, 3, noting->reason);
    query_text(q, 4, noting->id);
    query_text(old, 1, noting->id);
    query_i64(old, 2, CRASHES_KEPT);
    return query_run(q, err) < 0 || query_run(old, err) < 0 ? -1 : 0;
}

static int noting_run(struct store_job *job, struct db *db, struct err *err)
{
    struct noting *noting = container_of(job, struct noting, job);

    if (write_row(noting, db, err) < 0 ||
        event_add(db, noting->tenant, "vm.crashed", noting->object, noting->body, err) < 0)
        return -1;
    return noting->loop
               ? event_add(db, noting->tenant, "vm.crash_loop", noting->object, noting->body, err)
               : 0;
}

static void noting_done(struct store_job *job)
{
    struct noting *noting = container_of(job, struct noting, job);

    if (job->rc < 0)
        log_error("a crash is not stored", kv_str("sandbox", noting->id),
                  kv_str("error", job->err.msg));
    arena_free(&noting->arena);
    free(noting);
}

static struct str body_of(const struct box *box, struct noting *noting)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "sandbox", box->id);
    json_kv_text(&json, "name", box->spec.name);
    json_kv_text(&json, "reason", noting->reason);
    json_kv_int(&json, "uptime_seconds", noting->uptime_ms / 1000);
    json_kv_int(&json, "crashes", box->crash.count);
    json_close(&json, '}');
    return arena_str(&noting->arena, buf_view(&body));
}

void box_crashed(struct box *box, int64_t up_ms)
{
    struct noting *noting = xnew(struct noting);
    struct arena *arena = &noting->arena;

    metric_add(&crashes, 0, 1);
    box->crashed_ms = noting->at_ms = box->changed_ms;
    noting->uptime_ms = MAX(noting->at_ms - up_ms, 0);
    noting->loop = crash_ended(&box->crash, up_ms, noting->at_ms, false);
    noting->id = arena_strdup(arena, box->id);
    noting->tenant = arena_strdup(arena, box->tenant);
    noting->object = arena_printf(arena, "vm/%s", box->spec.name ? box->spec.name : box->id);
    noting->reason = arena_strdup(arena, box->reason);
    noting->body = body_of(box, noting);
    if (noting->loop) {
        metric_add(&loops, 0, 1);
        log_warn("a sandbox keeps crashing soon after it starts", kv_str("sandbox", box->id));
    }
    noting->job = (struct store_job){ .run = noting_run, .done = noting_done };
    store_write(box->boxes->store, &noting->job);
}

bool box_in_crash_loop(const struct box *box)
{
    bool healthy = sandbox_lives(box->state) && clock_wall_ms() - box->up_ms >= CRASH_HEALTHY_MS;

    return box->crash.loop && !healthy;
}

int crashes_load(struct boxes *boxes, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT sandbox, at_ms, uptime_ms FROM crash ORDER BY sandbox, at_ms");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        struct box *box = map_get(&boxes->by_id, query_col_str(q, 0));
        int64_t at_ms = query_col_i64(q, 1);

        if (!box)
            continue;
        (void)crash_ended(&box->crash, at_ms - query_col_i64(q, 2), at_ms, false);
        box->crashed_ms = at_ms;
    }
    return rc;
}

int crashes_each(struct db *db, const char *tenant, const char *sandbox,
                 void (*fn)(void *ctx, const struct crash_view *view), void *ctx, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT at_ms, uptime_ms, crash.reason FROM crash JOIN sandbox ON id = sandbox"
                     " WHERE sandbox = $1 AND tenant = $2 ORDER BY at_ms DESC");
    int rc;

    query_text(q, 1, sandbox);
    query_text(q, 2, tenant);
    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct crash_view view = { query_col_i64(q, 0), query_col_i64(q, 1),
                                   query_col_dup(q, 2, &arena) };

        fn(ctx, &view);
    }
    return rc;
}
