/*
 * A call that may: its handler on the loop, or as a job on a reader or the writer, with its audit
 * row and its idempotency answer beside what it changes; or an answer that comes later; or a stream
 * that answers for itself.
 */
#include "api/dispatch.h"
#include "api/hub_call.h"

#include <assert.h>

#include "base/clock.h"
#include "base/metric.h"

METRIC_COUNTER(calls_total, "atoll_api_calls_total", "Calls that reached their handler", "on",
               "loop", "reader", "writer", "stream", "later");

/* ---- jobs ---- */

static struct audit audit_row(struct call *call)
{
    return (struct audit){
        .at_ms = clock_wall_ms(),
        .tenant = call->who.tenant[0] ? call->who.tenant : "default",
        .actor = call->who.id[0] ? call->who.id : "-",
        .role = call->who.role ? role_name(call->who.role) : "-",
        .action = call->route->name,
        .object = call->object ? call->object : "",
        .outcome = call->outcome ? call->outcome : "ok",
        .request_id = call->request_id,
        .peer = call->peer,
        .detail = call->detail ? call->detail : "{}",
    };
}

/* The handler, unless an earlier answer to the same Idempotency-Key is there. */
static int run_once(struct running *run, struct db *db, struct err *err)
{
    if (run->idempotency.n) {
        int found = idempotency_find(run, db, err);

        if (found != 0)
            return found < 0 ? -1 : 0;
    }
    if (hub_resolve(&run->call, err) < 0)
        return -1;
    return run->call.route->fn(&run->call, err);
}

/* What a change leaves behind besides itself. */
static int record(struct running *run, struct db *db, struct err *err)
{
    if (run->replayed)
        return 0;
    struct audit row = audit_row(&run->call);
    if (audit_add(db, &row, err) < 0)
        return err_wrap(err, "audit");
    return run->idempotency.n ? idempotency_keep(run, db, err) : 0;
}

static int job_run(struct store_job *job, struct db *db, struct err *err)
{
    struct running *run = container_of(job, struct running, job);

    run->call.db = db;
    int rc = run_once(run, db, err);
    if (rc >= 0 && run->call.route->on == ON_WRITER)
        rc = record(run, db, err);
    run->call.db = NULL;
    return rc;
}

/* The second half of a change that ran on a reader: its record, then the answer. */
static int job_record(struct store_job *job, struct db *db, struct err *err)
{
    return record(container_of(job, struct running, job), db, err);
}

static void job_done(struct store_job *job)
{
    struct running *run = container_of(job, struct running, job);
    struct api *api = (struct api *)run->call.api;

    run->failed = job->rc < 0;
    run->err = job->err;
    if (!run->failed && run->call.route->on == ON_READER && changes_something(run->call.route) &&
        job->run == job_run) {
        run->job = (struct store_job){ .run = job_record, .done = job_done };
        store_write(api->store, &run->job);
        return;
    }
    api->own->calls--;
    running_finish(run);
}

static int run_nothing(struct store_job *job, struct db *db, struct err *err)
{
    (void)job, (void)db, (void)err;
    return 0;
}

static void read_now(struct store_job *job)
{
    struct running *run = container_of(job, struct running, job);

    run->job = (struct store_job){ .run = job_run, .done = job_done };
    store_read(((struct api *)run->call.api)->store, &run->job);
}

/* Some answers come before what they leave in the store (box/ends.c): it has its turn first. */
static void start_job(struct running *run)
{
    struct call *call = &run->call;
    struct api *api = (struct api *)call->api;

    api->own->calls++;
    if (call->route->flags & ROUTE_AFTER) {
        run->job = (struct store_job){ .run = run_nothing, .done = read_now };
        store_write(api->store, &run->job);
    } else if (call->route->on == ON_WRITER) {
        run->job = (struct store_job){ .run = job_run, .done = job_done };
        store_write(api->store, &run->job);
    } else {
        read_now(&run->job);
    }
}

/* ---- answers that come later ---- */

int call_record(struct call *call, struct db *db, struct err *err)
{
    return record(running_of(call), db, err);
}

bool call_audit_only(struct call *call, struct audit *out)
{
    const struct running *run = running_of(call);

    *out = audit_row(call);
    return !run->replayed && !run->idempotency.n;
}

void call_finish(struct call *call, const struct err *err)
{
    struct running *run = running_of(call);

    list_remove(&run->node);
    run->later = false;
    run->job = (struct store_job){ 0 };
    run->failed = err != NULL;
    if (err)
        run->err = *err;
    running_finish(run);
}

static void launch_later(struct running *run)
{
    struct err err = { 0 };

    const struct route *route = run->call.route;

    assert(route); /* nothing is put off before it was found */
    if ((route->flags & ROUTE_AWAKE ? call_awake(&run->call, route->fn, &err)
                                    : route->fn(&run->call, &err)) < 0)
        call_finish(&run->call, &err);
}

static int later_find(struct store_job *job, struct db *db, struct err *err)
{
    struct running *run = container_of(job, struct running, job);
    int found = idempotency_find(run, db, err);

    return found < 0 ? -1 : 0;
}

static void later_found(struct store_job *job)
{
    struct running *run = container_of(job, struct running, job);
    struct err err = job->err;

    run->job = (struct store_job){ 0 };
    if (job->rc < 0)
        call_finish(&run->call, &err);
    else if (run->replayed)
        call_finish(&run->call, NULL);
    else
        launch_later(run);
}

/* Is the same creation under way already? It cannot be answered from the store yet. */
static bool under_way(const struct running *run)
{
    list_each (pos, &run->call.api->own->laters) {
        const struct running *other = list_entry(pos, struct running, node);

        if (str_eq(other->idempotency, run->idempotency) &&
            strcmp(other->call.who.id, run->call.who.id) == 0 &&
            strcmp(other->call.who.tenant, run->call.who.tenant) == 0)
            return true;
    }
    return false;
}

static void start_later(struct running *run)
{
    struct api *api = (struct api *)run->call.api;
    struct err err = { 0 };

    run->later = true;
    if (!run->idempotency.n) {
        launch_later(run);
        return;
    }
    if (under_way(run)) {
        err_set(&err, ERR_CONFLICT, "a request with this Idempotency-Key is under way");
        call_finish(&run->call, &err);
        return;
    }
    list_append(&api->own->laters, &run->node);
    run->job = (struct store_job){ .run = later_find, .done = later_found };
    store_read(api->store, &run->job);
}

/* ---- streams ---- */

static int stream_begin(struct call *call, struct err *err)
{
    running_of(call)->later = false;
    if (!call->req) /* who asked did not wait */
        call_free(call);
    else if (err->code || call->route->fn(call, err) < 0)
        call_refuse(call, err);
    return 0;
}

/* The body, if there is one, is not read while the sandbox wakes up. */
static void start_stream(struct running *run)
{
    struct call *call = &run->call;
    struct err err = { 0 };

    if (!(call->route->flags & ROUTE_AWAKE)) {
        (void)stream_begin(call, &err);
        return;
    }
    run->later = true;
    if (call_awake(call, stream_begin, &err) < 0) {
        run->later = false;
        call_refuse(call, &err);
    }
}

/* ---- the start ---- */

void running_start(struct running *run)
{
    struct call *call = &run->call;

    metric_add(&calls_total, (unsigned)call->route->on, 1);
    if (call->route->on == ON_STREAM) {
        start_stream(run);
        return;
    }
    if (call->route->on == ON_LATER) {
        start_later(run);
        return;
    }
    if (call->route->on != ON_LOOP) {
        if (call->route->flags & ROUTE_WITHIN)
            call->within = within_list(call);
        start_job(run);
        return;
    }
    run->failed = call->route->fn(call, &run->err) < 0;
    running_finish(run);
}

/*
 * A signed request acts only once its nonce is on disk, in a commit of its own: whatever becomes of
 * the request, the signature is used up.
 */
static int job_nonce(struct store_job *job, struct db *db, struct err *err)
{
    return auth_nonce_put(db, container_of(job, struct running, job)->nonce_key, err);
}

static void job_nonce_done(struct store_job *job)
{
    struct running *run = container_of(job, struct running, job);

    run->failed = job->rc < 0;
    run->err = job->err;
    run->job = (struct store_job){ 0 };
    if (run->failed || !run->call.req)
        running_finish(run);
    else
        running_start(run);
}

void running_start_signed(struct running *run)
{
    run->job = (struct store_job){ .run = job_nonce, .done = job_nonce_done };
    store_write(run->call.api->store, &run->job);
}
