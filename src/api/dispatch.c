/*
 * One request from head to handler.
 *
 *   on_request   Host, Origin, route, who, role, rate (may.c): the refusals that need no body
 *   body         collected (limited by the route), parsed as JSON where the route takes some
 *   run          on the loop, or as a job on a reader or the writer (run.c)
 *   finish       on the loop: commit hooks, the reply or the error in the surface's words
 * (answer.c)
 *
 * A call outlives its request when the peer leaves; what it wrote stays written.
 */
#include "api/dispatch.h"

#include <ctype.h>

#include "base/clock.h"
#include "base/hash.h"
#include "http/grpc.h"
#include "http/url.h"
#include "http/ws.h"

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
    struct str given = req ? http_header(req, "x-request-id") : STR_NONE;
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

struct running *running_new(struct api *api, struct http_req *req)
{
    struct running *run = xcalloc(1, sizeof(*run));

    run->call.api = api;
    run->call.req = req;
    make_request_id(api, req, &run->call);
    if (!req)
        return run;
    struct str trace = http_header(req, "traceparent");
    if (trace.n == 55)
        memcpy(run->traceparent, trace.p, trace.n);
    req->app = run;
    req->on_gone = on_gone;
    return run;
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

int running_take_body(struct running *run, struct str body, struct err *err)
{
    struct call *call = &run->call;
    struct json *json;

    if (call->route->flags & ROUTE_RAW) {
        struct str said = call->req ? http_header(call->req, "content-type") : STR_NONE;

        call->body = arena_str(&call->arena, body);
        call->body_type = arena_memdup0(&call->arena, said.p ? said.p : "", said.n);
        return 0;
    }
    if (!body.n && call->route->flags & ROUTE_UNSAID) {
        if (json_parse(&call->arena, STR("{}"), &json, err) < 0)
            return -1;
        call->json = json;
        return 0;
    }
    if (!body.n) {
        if (call->route->takes && !(call->route->flags & ROUTE_LOOSE))
            return err_set(err, ERR_INVALID, "a JSON object is needed as the body");
        return 0;
    }
    if (!call->route->takes)
        return err_set(err, ERR_INVALID, "%s %s takes no body", call->route->method,
                       call->route->path);
    struct str type = call->req ? http_header(call->req, "content-type") : STR_NONE;
    if (!json_type(type) && !(call->route->flags & ROUTE_LOOSE))
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

    if (!key.p || !(call->route->flags & (ROUTE_CREATES | ROUTE_ONCE)) ||
        call->route->on == ON_STREAM)
        return 0;
    if (key.n == 0 || key.n > IDEMPOTENCY_KEY_MAX || !str_utf8(key))
        return err_field(err, "Idempotency-Key", "must be 1 to %d bytes of UTF-8",
                         IDEMPOTENCY_KEY_MAX);
    run->idempotency = arena_str(&call->arena, key);
    /* The target too: of two sandboxes or mailboxes, the same body means different things. */
    const struct str parts[] = { call->req->target, STR("\n"), body };
    sha256_parts(parts, ARRAY_LEN(parts), run->body_hash);
    return 0;
}

static void with_body(struct http_req *req, struct str body)
{
    struct running *run = req->app;
    struct call *call = &run->call;
    struct err err = { 0 };

    if (run->is_signed) { /* the signature covers the body, so it is checked only now */
        if (auth_signed(call->api->auth, req, body, &call->who, run->nonce_key, &err) < 0) {
            running_refuse_audited(run, &err, err.code == ERR_RATE ? WHY_RATE : WHY_NOBODY);
            return;
        }
        if (may_role(run))
            return;
    }
    if (running_take_body(run, body, &err) < 0 || take_idempotency_key(run, body, &err) < 0) {
        running_refuse(run, &err, WHY_INVALID);
        return;
    }
    if (run->is_signed)
        running_start_signed(run);
    else
        running_start(run);
}

/* ---- the query ---- */

/* Is `name` one of "a:int,b:strings"? 2: any number of times. */
static int query_known(const char *spec, struct str name)
{
    struct str rest = str_of(spec);

    while (rest.n) {
        struct str item = str_cut(&rest, ',');

        if (str_eq(str_cut(&item, ':'), name))
            return str_is(item, "strings") ? 2 : 1;
    }
    return 0;
}

int running_take_query(struct call *call, struct str query, struct err *err)
{
    struct str key, value, name, text;

    while (url_query_next(&query, &key, &value)) {
        if (!url_decode(&call->arena, key, true, &name) ||
            !url_decode(&call->arena, value, true, &text))
            return err_set(err, ERR_INVALID, "the query string is not properly encoded");
        int known_as = query_known(call->route->query, name);
        if (!known_as)
            return err_field(err, arena_memdup0(&call->arena, name.p, MIN(name.n, (size_t)60)),
                             "unknown query parameter");
        const char *known = arena_memdup0(&call->arena, name.p, name.n);
        if (known_as == 1 && call_query(call, known))
            return err_field(err, known, "given twice");
        if (call->query_count == CALL_QUERIES_MAX)
            return err_set(err, ERR_INVALID, "too many query parameters");
        call->queries[call->query_count++] =
            (struct call_param){ known, arena_memdup0(&call->arena, text.p, text.n) };
    }
    return 0;
}

/* ---- the route ---- */

static bool follows(struct str query)
{
    struct str key, value;

    while (url_query_next(&query, &key, &value))
        if (str_is(key, "follow"))
            return str_is(value, "true");
    return false;
}

static unsigned wish_of(const struct http_req *req)
{
    if (ws_wanted(req))
        return ROUTE_WS;
    struct str accept = http_header(req, "accept");
    if (accept.n >= 17 && memmem(accept.p, accept.n, "text/event-stream", 17))
        return ROUTE_SSE;
    return follows(req->query) ? ROUTE_FOLLOW : 0;
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

/* A letter, digit or one of these: the path can stand behind "/#" as it is. */
static bool is_plain(struct str path)
{
    for (size_t i = 0; i < path.n; i++)
        if (!isalnum((unsigned char)path.p[i]) && !strchr("/-_", path.p[i]))
            return false;
    return true;
}

/* Somebody typed the address of a view without its "#". */
static bool wants_view(const struct http_req *req)
{
    return str_is(req->method, "GET") && str_starts(http_header(req, "accept"), STR("text/html")) &&
           str_is(http_header(req, "sec-fetch-mode"), "navigate") && is_plain(req->path);
}

/* Answers a request that no route is for. */
static void refuse_unrouted(struct running *run, const struct router_path *path)
{
    struct call *call = &run->call;
    struct http_req *req = call->req;
    autobuf struct buf allow = { 0 };
    struct err err = { 0 };

    if (!path && wants_view(req)) {
        const struct http_header to = { STR("location"), str_of(arena_printf(&call->arena, "/#%.*s",
                                                                             STR_FMT(req->path))) };

        http_reply(req, 303, &to, 1, STR_NONE);
        call->req = NULL;
        call_free(call);
        return;
    }
    if (!path) {
        /* gRPC tells an unknown method apart from an unknown object. */
        err_set(&err, grpc_wanted(req) ? ERR_UNSUPPORTED : ERR_NOT_FOUND, "no such path: %.*s",
                STR_FMT(req->path));
        running_refuse(run, &err, WHY_NOT_FOUND);
        return;
    }
    if (str_is(req->method, "OPTIONS")) {
        answer_options(run, path);
        return;
    }
    router_allow(path, &allow);
    call_header(call, "allow", buf_cstr(&allow));
    err_set(&err, ERR_METHOD, "%s takes %s", path->pattern, buf_cstr(&allow));
    running_refuse(run, &err, WHY_INVALID);
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

    if (may_origin(call->api, req, &err) < 0) {
        running_refuse_audited(run, &err, WHY_ORIGIN);
        return false;
    }
    const struct router_path *path = find(run);
    if (!(call->route && call->route->flags & ROUTE_ANY_HOST) &&
        may_host(call->api, req, &err) < 0) {
        running_refuse_audited(run, &err, WHY_HOST);
        return false;
    }
    bool slashes = call->route && call->route->flags & ROUTE_SLASHES;
    if (!url_path_ok(req->path) && !(slashes && url_path_ok_slashes(req->path))) {
        err_set(&err, ERR_INVALID,
                "the path is not canonical: no empty, dot or encoded-slash segments");
        running_refuse(run, &err, WHY_INVALID);
        return false;
    }
    if (!call->route) {
        refuse_unrouted(run, path);
        return false;
    }
    return true;
}

/* ---- hosts that are ports of sandboxes ---- */

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
    if (may_own_origin(req, &err) < 0) {
        running_refuse_audited(run, &err, WHY_ORIGIN);
        return true;
    }
    int known = port_host_who(call, &err);
    if (known < 0)
        running_refuse_audited(run, &err, WHY_NOBODY);
    else if (!(known ? may_role(run) : may_who(run)))
        running_start(run);
    return true;
}

/* ---- the head ---- */

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
    if (!check_place(run) || may_who(run))
        return;
    if (req->query.n && !(call->route->flags & ROUTE_PASS) &&
        running_take_query(call, req->query, &err) < 0) {
        running_refuse(run, &err, WHY_INVALID);
        return;
    }
    if (call->route->on == ON_READER || call->route->on == ON_WRITER ||
        call->route->on == ON_LATER || run->is_signed) {
        call->method = call->route->method;
        call->path = arena_memdup0(&call->arena, req->path.p, req->path.n);
        call->peer = arena_strdup(&call->arena, req->peer->text);
    }
    if (call->route->on == ON_STREAM)
        running_start(run);
    else if (req->body_size == 0)
        with_body(req, STR_NONE);
    else
        http_read_all(req, call->route->body_max ? call->route->body_max : HTTP_BODY_DEFAULT_MAX,
                      with_body);
}

static void protocol_error(void *ctx, struct str path, const struct err *err, struct buf *out)
{
    (void)ctx;
    api_error_body(surface_of_path(path), err, NULL, out);
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
