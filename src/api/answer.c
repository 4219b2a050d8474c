/*
 * How a call ends: the reply, the error in its surface's words, the refusal that is on record
 * before it is told, the line in the log; then it is freed.
 */
#include "api/dispatch.h"

#include <stdio.h>

#include "api/hub_call.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "gate/gate.h"
#include "http/grpc.h"

METRIC_COUNTER(refused_total, "atoll_api_refused_total", "Requests refused before their handler",
               "why", "host", "origin", "nobody", "forbidden", "rate", "not_found", "invalid");

void call_free(struct call *call)
{
    struct running *run = running_of(call);

    buf_free(&call->reply);
    arena_free(&call->arena);
    free(run);
}

unsigned call_headers(struct call *call, struct http_header *out, unsigned max)
{
    unsigned count = 0;

    if (count < max)
        out[count++] = (struct http_header){ STR("x-request-id"), str_of(call->request_id) };
    for (unsigned i = 0; i < call->extra_count && count < max; i++)
        out[count++] = call->extra[i];
    return count;
}

static void log_call(struct running *run, int status)
{
    const struct call *call = &run->call;
    const struct log_kv fields[] = {
        kv_str("request", call->request_id),
        kv_str("route", call->route ? call->route->name : "-"),
        kv_int("status", status),
        kv_str("actor", call->who.id),
        kv_str("peer", call->req ? call->req->peer->text : call->peer),
        kv_int("us", call->req ? clock_mono_us() - call->req->started_us : 0),
        kv_str(run->traceparent[0] ? "traceparent" : "error",
               run->traceparent[0] ? run->traceparent : run->err.msg),
        { 0 },
    };

    /* A caller that sends a trace wants to find it; otherwise only trouble is worth a line. */
    enum log_level level = status >= 500 ? LOG_WARN : run->traceparent[0] ? LOG_INFO : LOG_DEBUG;
    if (log_wants(level))
        log_write(level, "request", fields);
}

static void send_error(struct running *run, const struct err *err)
{
    struct call *call = &run->call;
    enum surface surface = call->route ? call->route->surface : surface_of_path(call->req->path);
    struct http_header headers[CALL_EXTRA_MAX + 6];
    autobuf struct buf body = { 0 };
    char retry[16];

    if (surface == SURFACE_RPC || grpc_wanted(call->req)) {
        grpc_refuse(call->req, err_info(err->code)->grpc, call_error_text(call, err));
        return;
    }
    unsigned count = call_headers(call, headers, CALL_EXTRA_MAX + 1);
    headers[count++] =
        (struct http_header){ STR("content-type"), surface == SURFACE_TEXT
                                                       ? STR("text/plain; charset=utf-8")
                                                       : STR("application/json") };
    if (err->code == ERR_UNAUTHENTICATED)
        headers[count++] =
            (struct http_header){ STR("www-authenticate"), STR("Bearer realm=\"atoll\"") };
    if (err->retry_after > 0) {
        snprintf(retry, sizeof(retry), "%d", err->retry_after);
        headers[count++] = (struct http_header){ STR("retry-after"), str_of(retry) };
    }
    api_error_body(surface, err, call->request_id, &body);
    http_reply(call->req, err_info(err->code)->http, headers, count, buf_view(&body));
}

void call_logged(struct call *call, const struct err *err)
{
    struct running *run = running_of(call);

    if (err)
        run->err = *err;
    log_call(run, err ? err_info(err->code)->http : 200);
}

static int status_of(const struct call *call)
{
    return call->status ? call->status : call->route->flags & ROUTE_CREATES ? 201 : 200;
}

/* To a program in a sandbox, in the words that the hub's clients know. */
static void tell_inside(struct running *run, const struct err *err)
{
    const struct call *call = &run->call;
    autobuf struct buf body = { 0 };

    if (err)
        api_error_body(SURFACE_HUB, err, call->request_id, &body);
    gate_hub_told(call->api->gate, run->number, err ? err_info(err->code)->http : status_of(call),
                  err ? buf_view(&body) : buf_view(&call->reply));
}

void call_refuse(struct call *call, const struct err *err)
{
    struct running *run = running_of(call);

    run->err = *err;
    log_call(run, err_info(err->code)->http);
    if (run->inside) {
        tell_inside(run, err);
    } else if (call->req) {
        send_error(run, err);
        call->req = NULL;
    }
    call_free(call);
}

/* ---- refusals ---- */

static int job_refusal(struct store_job *job, struct db *db, struct err *err)
{
    return audit_add(db, &container_of(job, struct running, job)->refusal, err);
}

static void job_refusal_done(struct store_job *job)
{
    struct running *run = container_of(job, struct running, job);
    struct err err = run->err;

    if (job->rc < 0) /* it stays a refusal: a full disk lets nobody in */
        log_warn("a refusal could not be recorded", kv_str("request", run->call.request_id),
                 kv_str("error", job->err.msg));
    run->call.api->own->calls--;
    call_refuse(&run->call, &err);
}

/* A refusal that is worth an audit row: told when the row is on disk. */
static void refuse_on_record(struct running *run, const struct err *err)
{
    struct call *call = &run->call;
    struct api *api = (struct api *)call->api;

    run->err = *err;
    if (!refusals_row(api->own->refusals, call, err, &run->refusal)) {
        call_refuse(call, err);
        return;
    }
    run->job = (struct store_job){ .run = job_refusal, .done = job_refusal_done };
    api->own->calls++;
    store_write(api->store, &run->job);
}

void running_refuse_audited(struct running *run, const struct err *err, enum why why)
{
    metric_add(&refused_total, (unsigned)why, 1);
    refuse_on_record(run, err);
}

void running_refuse(struct running *run, const struct err *err, enum why why)
{
    struct err told = *err;

    metric_add(&refused_total, (unsigned)why, 1);
    if (run->call.route)
        hub_name_field(run->call.route, &told);
    call_refuse(&run->call, &told);
}

/* ---- the end ---- */

static void send_reply(struct running *run)
{
    struct call *call = &run->call;
    struct http_header headers[CALL_EXTRA_MAX + 4];
    unsigned count = call_headers(call, headers, CALL_EXTRA_MAX + 1);
    int status = status_of(call);

    if (call->reply.len || call->content_type)
        headers[count++] = (struct http_header){ STR("content-type"),
                                                 str_of(call->content_type ? call->content_type
                                                                           : "application/json") };
    if (run->replayed)
        headers[count++] = (struct http_header){ STR("idempotent-replayed"), STR("true") };
    log_call(run, status);
    http_reply(call->req, status, headers, count, buf_view(&call->reply));
}

void running_finish(struct running *run)
{
    struct call *call = &run->call;

    if (!run->failed && call->reply.over) {
        run->failed = true;
        err_set(&run->err, ERR_LIMIT, "the reply is too large");
    }
    if (!run->failed && call->committed && !run->replayed)
        call->committed(call);
    if (run->failed)
        hub_name_field(call->route, &run->err);
    if (run->failed && run->err.code == ERR_UNAUTHENTICATED && call->req)
        /* A wrong login code, a replayed nonce. */
        auth_failed(call->api->auth, call->req->peer, STR_NONE, &run->err);
    if (run->failed && (run->err.code == ERR_FORBIDDEN || run->err.code == ERR_UNAUTHENTICATED ||
                        (call->route->flags & ROUTE_ON_RECORD && run->err.code != ERR_INTERNAL))) {
        struct err err = run->err;

        refuse_on_record(run, &err);
        return;
    }
    if (!call->req && !run->inside) {
        call_free(call);
        return;
    }
    if (run->failed) {
        struct err err = run->err;

        call_refuse(call, &err);
        return;
    }
    if (run->inside)
        tell_inside(run, NULL);
    else
        send_reply(run);
    call->req = NULL;
    call_free(call);
}
