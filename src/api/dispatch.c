/*
 * One request from head to answer.
 *
 *   on_request   Host, Origin, route, who, role, rate: the refusals that need no body
 *   body         collected (limited by the route), parsed as JSON where the route takes some
 *   run          on the loop, or as a job on a reader or the writer
 *   finish       on the loop: commit hooks, the reply or the error in the surface's words
 *
 * Deny by default: a route names the roles that may use it, and one that names none is used by
 * nobody. A call outlives its request when the peer leaves; what it wrote stays written.
 */
#include "api/own.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metric.h"
#include "http/grpc.h"
#include "http/url.h"
#include "http/ws.h"

METRIC_COUNTER(refused_total, "atoll_api_refused_total", "Requests refused before their handler",
               "why", "host", "origin", "nobody", "forbidden", "rate", "not_found", "invalid");
enum { WHY_HOST, WHY_ORIGIN, WHY_NOBODY, WHY_FORBIDDEN, WHY_RATE, WHY_NOT_FOUND, WHY_INVALID };
METRIC_COUNTER(calls_total, "atoll_api_calls_total", "Calls that reached their handler", "on",
               "loop", "reader", "writer", "stream", "later");

static void finish(struct running *run);

/* ---- the call object ---- */

static void on_gone(struct http_req *req)
{
    struct running *run = req->app;

    run->call.req = NULL;
    if (!run->job.run && !run->later) /* not with a worker: nobody else will free it */
        call_free(&run->call);
}

static void make_request_id(struct api *api, struct http_req *req, struct call *call)
{
    struct str given = http_header(req, "x-request-id");
    bool good = given.n > 0 && given.n <= REQUEST_ID_MAX;

    for (size_t i = 0; good && i < given.n; i++)
        good = (given.p[i] >= '0' && given.p[i] <= '9') ||
               (given.p[i] >= 'a' && given.p[i] <= 'z') ||
               (given.p[i] >= 'A' && given.p[i] <= 'Z') || given.p[i] == '-' || given.p[i] == '_' ||
               given.p[i] == '.';
    if (good) {
        memcpy(call->request_id, given.p, given.n);
        return;
    }
    static const char digits[] = "0123456789abcdef";
    uint64_t number = ++api->own->requests;
    char *p = call->request_id;
    memcpy(p, api->own->boot, 8);
    for (int i = 0; i < 12; i++)
        p[8 + i] = digits[number >> (44 - 4 * i) & 15];
}

static struct running *running_new(struct api *api, struct http_req *req)
{
    struct running *run = xcalloc(1, sizeof(*run));

    run->call.api = api;
    run->call.req = req;
    make_request_id(api, req, &run->call);
    struct str trace = http_header(req, "traceparent");
    if (trace.n == 55)
        memcpy(run->traceparent, trace.p, trace.n);
    req->app = run;
    req->on_gone = on_gone;
    return run;
}

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
    enum surface surface = call->route ? call->route->surface : SURFACE_ATOLL;
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

void call_refuse(struct call *call, const struct err *err)
{
    struct running *run = running_of(call);

    run->err = *err;
    log_call(run, err_info(err->code)->http);
    if (call->req) {
        send_error(run, err);
        call->req = NULL;
    }
    call_free(call);
}

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

static void refuse_audited(struct running *run, const struct err *err, int why)
{
    metric_add(&refused_total, (unsigned)why, 1);
    refuse_on_record(run, err);
}

static void refuse(struct running *run, const struct err *err, int why)
{
    metric_add(&refused_total, (unsigned)why, 1);
    call_refuse(&run->call, err);
}

/* ---- running ---- */

static bool changes_something(const struct route *route)
{
    return strcmp(route->method, "GET") != 0;
}

static int add_audit_row(struct running *run, struct db *db, struct err *err)
{
    struct call *call = &run->call;
    struct audit row = {
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

    return audit_add(db, &row, err);
}

/* The handler, unless an earlier answer to the same Idempotency-Key is there. */
static int run_once(struct running *run, struct db *db, struct err *err)
{
    if (run->idempotency.n) {
        int found = idempotency_find(run, db, err);

        if (found != 0)
            return found < 0 ? -1 : 0;
    }
    return run->call.route->fn(&run->call, err);
}

/* What a change leaves behind besides itself. */
static int record(struct running *run, struct db *db, struct err *err)
{
    if (run->replayed)
        return 0;
    if (add_audit_row(run, db, err) < 0)
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
    finish(run);
}

static void send_reply(struct running *run)
{
    struct call *call = &run->call;
    struct http_header headers[CALL_EXTRA_MAX + 4];
    unsigned count = call_headers(call, headers, CALL_EXTRA_MAX + 1);
    int status = call->status ? call->status : call->route->flags & ROUTE_CREATES ? 201 : 200;

    if (call->reply.len || call->content_type)
        headers[count++] = (struct http_header){ STR("content-type"),
                                                 str_of(call->content_type ? call->content_type
                                                                           : "application/json") };
    if (run->replayed)
        headers[count++] = (struct http_header){ STR("idempotent-replayed"), STR("true") };
    log_call(run, status);
    http_reply(call->req, status, headers, count, buf_view(&call->reply));
}

static void finish(struct running *run)
{
    struct call *call = &run->call;

    if (!run->failed && call->reply.over) {
        run->failed = true;
        err_set(&run->err, ERR_LIMIT, "the reply is too large");
    }
    if (!run->failed && call->committed && !run->replayed)
        call->committed(call);
    if (run->failed && run->err.code == ERR_UNAUTHENTICATED && call->req)
        auth_failed(call->api->auth, call->req->peer); /* a wrong login code, a replayed nonce */
    if (run->failed && (run->err.code == ERR_FORBIDDEN || run->err.code == ERR_UNAUTHENTICATED)) {
        struct err err = run->err;

        refuse_on_record(run, &err);
        return;
    }
    if (!call->req) {
        call_free(call);
        return;
    }
    if (run->failed) {
        struct err err = run->err;

        call_refuse(call, &err);
        return;
    }
    send_reply(run);
    call->req = NULL;
    call_free(call);
}

static void start_job(struct running *run)
{
    struct call *call = &run->call;
    struct api *api = (struct api *)call->api;

    run->job = (struct store_job){ .run = job_run, .done = job_done };
    api->own->calls++;
    if (call->route->on == ON_WRITER)
        store_write(api->store, &run->job);
    else
        store_read(api->store, &run->job);
}

/* ---- answers that come later ---- */

int call_record(struct call *call, struct db *db, struct err *err)
{
    return record(running_of(call), db, err);
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
    finish(run);
}

static void launch_later(struct running *run)
{
    struct err err = { 0 };

    const struct route *route = run->call.route;

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

static void start(struct running *run)
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
        start_job(run);
        return;
    }
    run->failed = call->route->fn(call, &run->err) < 0;
    finish(run);
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
        finish(run);
    else
        start(run);
}

static void start_signed(struct running *run)
{
    run->job = (struct store_job){ .run = job_nonce, .done = job_nonce_done };
    store_write(run->call.api->store, &run->job);
}

/* ---- the body ---- */

static bool json_type(struct str type)
{
    struct str rest = type;

    type = str_trim(str_cut(&rest, ';'));
    return str_eq_nocase(type, STR("application/json")) ||
           (type.n > 17 && str_eq_nocase((struct str){ type.p, 12 }, STR("application/")) &&
            str_eq_nocase(str_from(type, type.n - 5), STR("+json")));
}

static int take_body(struct running *run, struct str body, struct err *err)
{
    struct call *call = &run->call;
    struct json *json;

    if (!body.n) {
        if (call->route->takes)
            return err_set(err, ERR_INVALID, "a JSON object is needed as the body");
        return 0;
    }
    if (!call->route->takes)
        return err_set(err, ERR_INVALID, "%s %s takes no body", call->route->method,
                       call->route->path);
    struct str type = http_header(call->req, "content-type");
    if (!json_type(type))
        return err_set(err, ERR_MEDIA, "the body must be application/json, not \"%.*s\"",
                       STR_FMT(type));
    call->body = arena_str(&call->arena, body);
    if (json_parse(&call->arena, call->body, &json, err) < 0)
        return -1;
    call->json = json;
    return 0;
}

static int take_idempotency_key(struct running *run, struct str body, struct err *err)
{
    struct call *call = &run->call;
    struct str key = http_header(call->req, "idempotency-key");

    if (!key.p || !(call->route->flags & ROUTE_CREATES) || call->route->on == ON_STREAM)
        return 0;
    if (key.n == 0 || key.n > IDEMPOTENCY_KEY_MAX || !str_utf8(key))
        return err_field(err, "Idempotency-Key", "must be 1 to %d bytes of UTF-8",
                         IDEMPOTENCY_KEY_MAX);
    run->idempotency = arena_str(&call->arena, key);
    sha256(body.p, body.n, run->body_hash);
    return 0;
}

/* 0: this principal may; 1: already answered. */
static int check_role(struct running *run)
{
    struct call *call = &run->call;
    const struct route *route = call->route;
    struct err err = { 0 };

    if (!(route->roles & call->who.role) || !principal_scope(&call->who, route->name)) {
        err_set(&err, ERR_FORBIDDEN, "role %s may not do %s", role_name(call->who.role),
                route->name);
        refuse_audited(run, &err, WHY_FORBIDDEN);
        return 1;
    }
    if ((route->flags & ROUTE_NODE) && strcmp(call->who.tenant, TENANT_OWNER) != 0) {
        err_set(&err, ERR_FORBIDDEN, "%s is about the whole server; tenant %s may not", route->name,
                call->who.tenant);
        refuse_audited(run, &err, WHY_FORBIDDEN);
        return 1;
    }
    if (!(route->flags & ROUTE_NO_RATE) && auth_rate(call->api->auth, &call->who, &err) < 0) {
        refuse_audited(run, &err, WHY_RATE);
        return 1;
    }
    return 0;
}

static void with_body(struct http_req *req, struct str body)
{
    struct running *run = req->app;
    struct call *call = &run->call;
    struct err err = { 0 };

    if (run->is_signed) { /* the signature covers the body, so it is checked only now */
        if (auth_signed(call->api->auth, req, body, &call->who, run->nonce_key, &err) < 0) {
            refuse_audited(run, &err, err.code == ERR_RATE ? WHY_RATE : WHY_NOBODY);
            return;
        }
        if (check_role(run))
            return;
    }
    if (take_body(run, body, &err) < 0 || take_idempotency_key(run, body, &err) < 0) {
        refuse(run, &err, WHY_INVALID);
        return;
    }
    if (run->is_signed)
        start_signed(run);
    else
        start(run);
}

/* ---- the head ---- */

bool api_host_known(const struct api *api, struct str host)
{
    for (const char *const *known = api->options.hosts; *known; known++)
        if (str_eq_nocase(host, str_of(*known)))
            return true;
    return false;
}

static int check_host(const struct api *api, const struct http_req *req, struct err *err)
{
    if (req->peer->local || api_host_known(api, req->host))
        return 0;
    return err_set(err, ERR_MISDIRECTED,
                   "Host \"%.*s\" is not served here; add it with the setting `host`",
                   STR_FMT(req->host));
}

/* A browser always names where a page came from; anything but our own pages is refused. */
static int check_origin(const struct api *api, const struct http_req *req, struct err *err)
{
    struct str origin = http_header(req, "origin");
    struct str scheme = req->peer->tls ? STR("https://") : STR("http://");

    if (!origin.p)
        return 0;
    if (str_starts(origin, scheme) && api_host_known(api, str_from(origin, scheme.n)))
        return 0;
    return err_set(err, ERR_FORBIDDEN, "Origin \"%.*s\" is not ours", STR_FMT(origin));
}

/* Is `name` one of "a:int,b:string"? */
static bool query_known(const char *spec, struct str name)
{
    struct str rest = str_of(spec);

    while (rest.n) {
        struct str item = str_cut(&rest, ',');

        if (str_eq(str_cut(&item, ':'), name))
            return true;
    }
    return false;
}

static int take_query(struct call *call, struct str query, struct err *err)
{
    struct str key, value, name, text;

    while (url_query_next(&query, &key, &value)) {
        if (!url_decode(&call->arena, key, true, &name) ||
            !url_decode(&call->arena, value, true, &text))
            return err_set(err, ERR_INVALID, "the query string is not properly encoded");
        if (!query_known(call->route->query, name))
            return err_field(err, arena_memdup0(&call->arena, name.p, MIN(name.n, (size_t)60)),
                             "unknown query parameter");
        const char *known = arena_memdup0(&call->arena, name.p, name.n);
        if (call_query(call, known))
            return err_field(err, known, "given twice");
        if (call->query_count == CALL_QUERIES_MAX)
            return err_set(err, ERR_INVALID, "too many query parameters");
        call->queries[call->query_count++] =
            (struct call_param){ known, arena_memdup0(&call->arena, text.p, text.n) };
    }
    return 0;
}

/* 0: go on; 1: already answered. */
static int check_who(struct running *run)
{
    struct call *call = &run->call;
    const struct route *route = call->route;
    struct err err = { 0 };

    if (route->roles & ROLE_PUBLIC) {
        if (!changes_something(route) || auth_may_try(call->api->auth, call->req->peer, &err) == 0)
            return 0;
        refuse_audited(run, &err, WHY_RATE);
        return 1;
    }
    switch (auth_check(call->api->auth, call->req, &call->who, &err)) {
    case AUTH_OK:
        break;
    case AUTH_BODY:
        if (route->on == ON_STREAM) {
            err_set(&err, ERR_UNAUTHENTICATED, "signed requests cannot open streams; use a token");
            refuse_audited(run, &err, WHY_NOBODY);
            return 1;
        }
        run->is_signed = true; /* to be finished in with_body */
        return 0;
    case AUTH_NOBODY:
    case AUTH_REFUSED:
    default:
        refuse_audited(run, &err, err.code == ERR_RATE ? WHY_RATE : WHY_NOBODY);
        return 1;
    }
    return check_role(run);
}

static unsigned wish_of(const struct http_req *req)
{
    if (ws_wanted(req))
        return ROUTE_WS;
    struct str accept = http_header(req, "accept");
    return accept.n >= 17 && memmem(accept.p, accept.n, "text/event-stream", 17) ? ROUTE_SSE : 0;
}

static void answer_options(struct running *run, const struct router_path *path)
{
    struct call *call = &run->call;
    struct http_header headers[8];
    autobuf struct buf allow = { 0 };

    router_allow(path, &allow);
    unsigned count = call_headers(call, headers, 2);
    headers[count++] = (struct http_header){ STR("allow"), buf_view(&allow) };
    if (path->routes[0]->surface == SURFACE_RPC)
        count += grpc_preflight(call->req, headers + count);
    http_reply(call->req, 204, headers, count, STR_NONE);
    call->req = NULL;
    call_free(call);
}

/* Answers a request that no route is for. */
static void refuse_unrouted(struct running *run, const struct router_path *path)
{
    struct call *call = &run->call;
    struct http_req *req = call->req;
    autobuf struct buf allow = { 0 };
    struct err err = { 0 };

    if (!path) {
        /* gRPC tells an unknown method apart from an unknown object. */
        err_set(&err, grpc_wanted(req) ? ERR_UNSUPPORTED : ERR_NOT_FOUND, "no such path: %.*s",
                STR_FMT(req->path));
        refuse(run, &err, WHY_NOT_FOUND);
        return;
    }
    if (str_is(req->method, "OPTIONS")) {
        answer_options(run, path);
        return;
    }
    router_allow(path, &allow);
    call_header(call, "allow", buf_cstr(&allow));
    err_set(&err, ERR_METHOD, "%s takes %s", path->pattern, buf_cstr(&allow));
    refuse(run, &err, WHY_INVALID);
}

static const struct router_path *find(struct running *run)
{
    struct call *call = &run->call;
    struct http_req *req = call->req;
    const struct router_path *path = router_find(call->api->own->router, req->path, &call->arena,
                                                 call->params, &call->param_count);

    if (path) {
        /* An extended CONNECT is how HTTP/2 asks for a WebSocket; to the table it is a GET. */
        bool connect = str_is(req->method, "CONNECT") && ws_wanted(req);

        call->route = router_pick(path, connect ? STR("GET") : req->method, wish_of(req));
    }
    return path;
}

/* Where the request came from and went to, before who sent it. False: already answered. */
static bool check_place(struct running *run)
{
    struct call *call = &run->call;
    struct http_req *req = call->req;
    struct err err = { 0 };

    if (check_origin(call->api, req, &err) < 0) {
        refuse_audited(run, &err, WHY_ORIGIN);
        return false;
    }
    const struct router_path *path = find(run);
    if (!(call->route && call->route->flags & ROUTE_ANY_HOST) &&
        check_host(call->api, req, &err) < 0) {
        refuse_audited(run, &err, WHY_HOST);
        return false;
    }
    if (!url_path_ok(req->path)) {
        err_set(&err, ERR_INVALID,
                "the path is not canonical: no empty, dot or encoded-slash segments");
        refuse(run, &err, WHY_INVALID);
        return false;
    }
    if (!call->route) {
        refuse_unrouted(run, path);
        return false;
    }
    return true;
}

/* ---- hosts that are ports of sandboxes ---- */

/* Its pages are an origin of their own, and nobody else's pages may speak to it. */
static int check_own_origin(const struct http_req *req, struct err *err)
{
    struct str origin = http_header(req, "origin");
    struct str scheme = req->peer->tls ? STR("https://") : STR("http://");

    if (!origin.p ||
        (str_starts(origin, scheme) && str_eq_nocase(str_from(origin, scheme.n), req->host)))
        return 0;
    return err_set(err, ERR_FORBIDDEN, "Origin \"%.*s\" is not this host", STR_FMT(origin));
}

/* True: it was such a request, and is taken care of. */
static bool take_port_host(struct running *run)
{
    struct call *call = &run->call;
    const struct http_req *req = call->req;
    struct err err = { 0 };
    struct str id;
    unsigned port;

    if (!port_host(req->peer->local ? NULL : call->api, req->host, &id, &port))
        return false;
    call->route = &port_host_route;
    if (check_own_origin(req, &err) < 0) {
        refuse_audited(run, &err, WHY_ORIGIN);
        return true;
    }
    int known = port_host_who(call, &err);
    if (known < 0)
        refuse_audited(run, &err, WHY_NOBODY);
    else if (!(known ? check_role(run) : check_who(run)))
        start(run);
    return true;
}

static void on_request(void *ctx, struct http_req *req)
{
    struct api *api = ctx;
    struct running *run = running_new(api, req);
    struct call *call = &run->call;
    struct err err = { 0 };

    call->peer = req->peer->text;
    call->tls = req->peer->tls;
    if (take_port_host(run))
        return;
    if (!check_place(run) || check_who(run))
        return;
    if (req->query.n && !(call->route->flags & ROUTE_PASS) &&
        take_query(call, req->query, &err) < 0) {
        refuse(run, &err, WHY_INVALID);
        return;
    }
    if (call->route->on == ON_READER || call->route->on == ON_WRITER ||
        call->route->on == ON_LATER || run->is_signed) {
        call->method = call->route->method;
        call->path = arena_memdup0(&call->arena, req->path.p, req->path.n);
        call->peer = arena_strdup(&call->arena, req->peer->text);
    }
    if (call->route->on == ON_STREAM)
        start(run);
    else if (req->body_size == 0)
        with_body(req, STR_NONE);
    else
        http_read_all(req, call->route->body_max ? call->route->body_max : HTTP_BODY_DEFAULT_MAX,
                      with_body);
}

static void protocol_error(void *ctx, const struct err *err, struct buf *out)
{
    (void)ctx;
    api_error_body(SURFACE_ATOLL, err, NULL, out);
}

/* ---- life ---- */

int api_init(struct api *api, struct err *err)
{
    unsigned char raw[4];

    (void)err;
    api->own = xnew(struct api_private);
    random_bytes(raw, sizeof(raw));
    hex_text(raw, sizeof(raw), api->own->boot);
    api->own->router = router_new(api_tables);
    api->own->refusals = refusals_new(api);
    event_streams_init(api);
    backups_init(api);
    list_init(&api->own->outputs);
    list_init(&api->own->files);
    list_init(&api->own->previews);
    list_init(&api->own->sockets);
    list_init(&api->own->casts);
    list_init(&api->own->session_streams);
    list_init(&api->own->laters);
    list_init(&api->own->rpcs);
    api->started_ms = clock_wall_ms();
    return 0;
}

void api_free(struct api *api)
{
    if (!api->own)
        return;
    event_streams_free(api);
    backups_free(api);
    refusals_free(api->own->refusals);
    router_free(api->own->router);
    free(api->own);
    api->own = NULL;
}

struct http_app api_app(struct api *api)
{
    return (struct http_app){ .on_request = on_request, .error_body = protocol_error, .ctx = api };
}
