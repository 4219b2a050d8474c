/*
 * Ports of a sandbox: which are listened on, what listens there shown by path and by host, and
 * tunnels. The relaying itself is preview.c.
 *
 * By host a browser has a pass: POST …/previews gives a link, the link's visit a cookie of that
 * host, good for that port of that sandbox alone. Programs show their token instead. What a
 * browser's page can send is not taken for a token: a page in the sandbox could otherwise guess in
 * its visitor's name until that address is shut out.
 */
#include <stdio.h>

#include "api/preview.h"
#include "base/clock.h"
#include "http/url.h"
#include "http/ws.h"

#define PORTS_BYTES_MAX (INIT_PORTS_MAX * sizeof(struct init_port))
#define PASS_QUERY "atoll_pass"

bool port_parse(struct str text, unsigned *out)
{
    uint64_t value;

    if (!str_to_u64(text, &value) || value < 1 || value > UINT16_MAX)
        return false;
    *out = (unsigned)value;
    return true;
}

static int call_port(struct call *call, unsigned *port, struct err *err)
{
    const char *text = call_param(call, "port");

    if (!port_parse(str_of(text), port))
        return err_set(err, ERR_NOT_FOUND, "\"%.40s\" is no port: 1 to 65535", text);
    return 0;
}

/* ---- which are listened on ---- */

struct port_view {
    int64_t port, uid;
    const char *address;
};

static const struct field port_fields[] = {
    FIELD(port_view, port, F_INT, F_READONLY, .help = "Its number"),
    FIELD(port_view, address, F_STRING, F_READONLY,
          .help = "loopback, or any for every address inside"),
    FIELD(port_view, uid, F_INT, F_READONLY, .help = "Who listens, as seen inside"),
    { 0 },
};

struct listing {
    struct box_job job;
    struct call *call;
    struct buf out;
};

static int by_number(const void *a, const void *b)
{
    const struct init_port *x = a, *y = b;

    return x->port != y->port ? (int)x->port - (int)y->port : (int)y->open - (int)x->open;
}

/* One line each, though most programs listen twice, for IPv4 and for IPv6. */
static void put_ports(struct call *call, struct init_port *ports, size_t count)
{
    struct json_out json = call_json(call);
    unsigned last = 0;

    qsort(ports, count, sizeof(*ports), by_number);
    json_open_list(&json, "items");
    for (size_t i = 0; i < count; i++) {
        struct port_view view = { ports[i].port, ports[i].uid, ports[i].open ? "any" : "loopback" };

        if (ports[i].port != last)
            field_encode(port_fields, &view, &json);
        last = ports[i].port;
    }
    json_close_list(&json);
}

static void listing_data(struct box_job *job, struct str data)
{
    buf_str(&container_of(job, struct listing, job)->out, data);
}

static void listing_done(struct box_job *job, const struct err *err)
{
    struct listing *listing = container_of(job, struct listing, job);
    struct call *call = listing->call;
    autobuf struct buf out = listing->out;
    struct err own = { 0 };

    listing->out = (struct buf){ 0 };
    if (!err && (!buf_ok(&out) || out.len % sizeof(struct init_port))) {
        err_set(&own, ERR_UNAVAILABLE, "the sandbox answered with nonsense");
        err = &own;
    }
    if (!err) {
        size_t count = out.len / sizeof(struct init_port);
        struct init_port *ports = arena_alloc(&call->arena, PORTS_BYTES_MAX);

        if (count)
            memcpy(ports, out.data, out.len);
        put_ports(call, ports, count);
    }
    call_finish(call, err);
}

static int ports_get(struct call *call, struct err *err)
{
    struct listing *listing = arena_new(&call->arena, struct listing);
    const char *const args[] = { "ports", NULL };
    struct box_job_spec spec = { .args = args };
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    listing->call = call;
    listing->out.max = PORTS_BYTES_MAX;
    listing->job.data = listing_data;
    listing->job.done = listing_done;
    return box_job_start(box, &listing->job, &spec, err);
}

/* ---- by path ---- */

/* What stands before {path*}, as the caller has written it. */
static const char *prefix_of(struct call *call)
{
    struct str path = call->req->path;
    size_t rest = strlen(call_param(call, "path"));

    return arena_memdup0(&call->arena, path.p, path.n - rest - 1);
}

static const char *target_of(struct call *call, const char *path, struct str query)
{
    autobuf struct buf text = { 0 };

    buf_puts(&text, path);
    if (query.n) {
        buf_putc(&text, '?');
        buf_str(&text, query);
    }
    return arena_memdup0(&call->arena, text.data, text.len);
}

static int port_pass(struct call *call, struct err *err)
{
    struct box *box;
    unsigned port;

    if (http_header(call->req, "service-worker").p)
        return err_set(err, ERR_FORBIDDEN, "a service worker would be one of the dashboard's");
    if (call_port(call, &port, err) < 0 || call_box(call, &box, err) < 0)
        return -1;
    const char *path = arena_printf(&call->arena, "/%s", call_param(call, "path"));
    return preview_start(call, box, port, PREVIEW_BY_PATH, prefix_of(call),
                         target_of(call, path, call->req->query), err);
}

/* Relative links of a page need the slash. */
static int port_slash(struct call *call, struct err *err)
{
    unsigned port;

    if (call_port(call, &port, err) < 0)
        return -1;
    call->status = 308;
    call_header(call, "location", arena_printf(&call->arena, "%.*s/", STR_FMT(call->req->path)));
    return 0;
}

/* ---- tunnels ---- */

static int tunnel_get(struct call *call, struct err *err)
{
    const struct http_req *req = call->req;
    struct box *box;
    unsigned port;

    if (call_port(call, &port, err) < 0)
        return -1;
    if (req->version != HTTP_1_1 || !str_eq_nocase(http_header(req, "upgrade"), STR("tcp")) ||
        !header_lists(http_header(req, "connection"), STR("upgrade")) || req->body_size != 0)
        return err_set(err, ERR_INVALID,
                       "a tunnel is asked for over HTTP/1.1 with Upgrade: tcp and no body");
    if (call_box(call, &box, err) < 0)
        return -1;
    return preview_start(call, box, port, PREVIEW_TUNNEL, "", "", err);
}

/* ---- by host ---- */

bool port_host(const struct api *api, struct str host, struct str *id, unsigned *port)
{
    struct str rest = host, label = str_cut(&rest, '.'), number = label;

    number = str_cut(&label, '-');
    *id = label;
    return port_parse(number, port) && id_valid(*id, "sb") && str_starts(rest, STR("localhost")) &&
           (!api || api_host_known(api, rest));
}

/* The cookie's pass, or empty. */
static struct str cookie_pass(const struct http_req *req)
{
    for (size_t i = 0; i < req->header_count; i++) {
        struct str rest = req->headers[i].value;

        if (!str_is(req->headers[i].name, "cookie"))
            continue;
        while (rest.n) {
            struct str value = str_trim(str_cut(&rest, ';'));

            if (str_is(str_cut(&value, '='), PASS_COOKIE))
                return value;
        }
    }
    return STR_NONE;
}

/* Takes the pass of a link out of the query; what is left of it in *rest. */
static struct str link_pass(struct call *call, struct str query, struct str *rest)
{
    struct str at = query, key, value, pass = STR_NONE;
    autobuf struct buf kept = { 0 };

    while (url_query_next(&at, &key, &value)) {
        if (str_is(key, PASS_QUERY)) {
            pass = value;
            continue;
        }
        if (kept.len)
            buf_putc(&kept, '&');
        buf_str(&kept, key);
        if (value.p) {
            buf_putc(&kept, '=');
            buf_str(&kept, value);
        }
    }
    *rest = arena_str(&call->arena, buf_view(&kept));
    return pass;
}

int port_host_who(struct call *call, struct err *err)
{
    const struct http_req *req = call->req;
    struct pass pass = { 0 };
    struct str id, rest, text = link_pass(call, req->query, &rest);

    if (!port_host(NULL, req->host, &id, &pass.port))
        return err_set(err, ERR_INTERNAL, "not a port's host");
    pass.sandbox = arena_memdup0(&call->arena, id.p, id.n);
    pass.kind = text.n ? PASS_LINK : PASS_SHOWN;
    if (!text.n)
        text = cookie_pass(req);
    if (text.n && auth_pass_check(call->api->auth, &pass, text, &call->who, err) == 0)
        return 1;
    struct str token = http_header(req, "authorization");
    bool bearer = str_eq_nocase(str_cut(&token, ' '), STR("Bearer")) && token_shaped(token);
    bool bare = !http_header(req, "authorization").p && !http_header(req, "cookie").p;
    if (!http_header(req, "sec-fetch-site").p && (bearer || bare))
        return 0; /* as everywhere else */
    return err_set(err, ERR_UNAUTHENTICATED,
                   "no valid pass for port %u of %s: open it by `atoll port %s --open %u`, or by "
                   "POST /api/v1/sandboxes/%s/previews",
                   pass.port, pass.sandbox, pass.sandbox, pass.port, pass.sandbox);
}

/* The link has done its work: from here on the cookie does. */
static int use_link(struct call *call, const struct pass *pass, struct str query)
{
    struct http_req *req = call->req;
    struct http_header headers[CALL_EXTRA_MAX + 3];
    int64_t now = clock_wall_ms();
    struct pass shown = { PASS_SHOWN, pass->sandbox, pass->port, now + LOGIN_SESSION_MS };
    char text[PASS_TEXT_SIZE];

    if (call->who.expires_ms)
        shown.expires_ms = MIN(shown.expires_ms, call->who.expires_ms);
    auth_pass_make(call->api->auth, &shown, &call->who, text);
    call_header(call, "set-cookie",
                arena_printf(
                    &call->arena, PASS_COOKIE "=%s; Path=/; HttpOnly; SameSite=Lax; Max-Age=%lld%s",
                    text, (long long)(shown.expires_ms - now) / 1000, call->tls ? "; Secure" : ""));
    const char *path = arena_memdup0(&call->arena, req->path.p, req->path.n);
    call_header(call, "location", target_of(call, path, query));
    unsigned count = call_headers(call, headers, ARRAY_LEN(headers));
    http_reply(req, 303, headers, count, STR_NONE);
    call->req = NULL;
    call_free(call);
    return 0;
}

static int port_by_host(struct call *call, struct err *err)
{
    struct http_req *req = call->req;
    struct pass pass = { 0 };
    struct str id, rest;
    struct box *box;
    bool linked = link_pass(call, req->query, &rest).n;

    if (!port_host(NULL, req->host, &id, &pass.port))
        return err_set(err, ERR_INTERNAL, "not a port's host");
    pass.sandbox = arena_memdup0(&call->arena, id.p, id.n);
    /* By its whole id alone: a name or a beginning might be another's tomorrow. */
    if (boxes_find(call->api->boxes, call_reach(call), pass.sandbox, &box, err) < 0)
        return -1;
    if (linked)
        return use_link(call, &pass, rest);
    const char *path = arena_memdup0(&call->arena, req->path.p, req->path.n);
    return preview_start(call, box, pass.port, PREVIEW_BY_HOST, "",
                         target_of(call, path, req->query), err);
}

/* Not in the table of paths: any method, any path, of a host that is a port's. */
const struct route port_host_route = {
    .name = "port.use",
    .method = "GET",
    .path = "/",
    .on = ON_STREAM,
    .roles = ROLE_USE,
    .fn = port_by_host,
    .flags = ROUTE_PASS | ROUTE_BODY,
    .summary = "What listens on a port of a sandbox.",
};

/* ---- links for browsers ---- */

struct preview_wish {
    int64_t port;
    const char *path;
};

static const struct field preview_wish_fields[] = {
    FIELD(preview_wish, port, F_INT, F_REQUIRED, .min = 1, .max = UINT16_MAX,
          .help = "The port inside"),
    FIELD(preview_wish, path, F_STRING, 0, .min = 1, .max = 2048,
          .help = "Where it begins, with its query; / unless said"),
    { 0 },
};

struct preview_view {
    const char *url;
    int64_t port, expires_at;
};

static const struct field preview_view_fields[] = {
    FIELD(preview_view, url, F_STRING, F_READONLY | F_SECRET,
          .help = "To be opened in a browser on this machine"),
    FIELD(preview_view, port, F_INT, F_READONLY, .help = "The port inside"),
    FIELD(preview_view, expires_at, F_TIME, F_READONLY, .help = "Until when it can be opened"),
    { 0 },
};

struct link_call {
    struct box_op op;
    struct call *call;
};

static int link_record(struct box_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct link_call, op)->call, db, err);
}

static void link_done(struct box_op *op, const struct err *err)
{
    call_finish(container_of(op, struct link_call, op)->call, err);
}

/* "http://localhost:8080" by which this server is reached; NULL when it is not. */
static const char *localhost_of(struct call *call)
{
    const char *base = call->api->options.base_url;
    struct str host = call->req ? call->req->host : STR_NONE;
    const char *scheme = call->tls ? "https" : "http";
    const char *colon = host.n ? memrchr(host.p, ':', host.n) : NULL;
    struct str port = colon ? str_from(host, (size_t)(colon - host.p)) : STR_NONE;
    char *name = arena_printf(&call->arena, "localhost%.*s", STR_FMT(port));

    if (call->req && !call->req->peer->local && api_host_known(call->api, str_of(name)))
        return arena_printf(&call->arena, "%s://%s", scheme, name);
    colon = base ? strrchr(base, ':') : NULL;
    if (!colon)
        return NULL;
    bool named = colon[1] != '/'; /* not the scheme's */
    name = arena_printf(&call->arena, "localhost%s", named ? colon : "");
    if (!api_host_known(call->api, str_of(name)))
        return NULL;
    return arena_printf(&call->arena, "%.*s://%s", (int)strcspn(base, ":"), base, name);
}

static int path_check(const char *path, struct err *err)
{
    if (path[0] != '/' || path[1] == '/' || path[1] == '\\' || strchr(path, '#'))
        return err_field(err, "path", "a path that begins with one slash, without a fragment");
    for (const char *p = path; *p; p++)
        if (*p <= ' ' || *p > '~')
            return err_field(err, "path", "must be percent-encoded");
    return 0;
}

static int preview_post(struct call *call, struct err *err)
{
    struct link_call *link = arena_new(&call->arena, struct link_call);
    struct preview_wish wish = { 0 };
    struct sandbox_view box_is;
    char text[PASS_TEXT_SIZE];
    struct box *box;

    if (call_decode(call, &wish, err) < 0 || call_box(call, &box, err) < 0 ||
        (wish.path && path_check(wish.path, err) < 0))
        return -1;
    const char *base = localhost_of(call), *path = wish.path ? wish.path : "/";
    if (!base)
        return err_set(err, ERR_UNSUPPORTED,
                       "previews by host need a listener that localhost names");
    box_view(box, &box_is);
    struct pass pass = { PASS_LINK, box_is.id, (unsigned)wish.port,
                         clock_wall_ms() + LOGIN_LINK_MS };
    auth_pass_make(call->api->auth, &pass, &call->who, text);
    const char *rest = strstr(base, "://") + 3;
    struct preview_view view = {
        .url = arena_printf(&call->arena, "%.*s%u-%s.%s%s%c" PASS_QUERY "=%s", (int)(rest - base),
                            base, pass.port, box_is.id, rest, path, strchr(path, '?') ? '&' : '?',
                            text),
        .port = wish.port,
        .expires_at = pass.expires_ms,
    };
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "sandbox/%s", box_is.id);
    call->detail = arena_printf(&call->arena, "{\"port\":%u}", pass.port);
    link->call = call;
    link->op = (struct box_op){
        .tenant = call->who.tenant, .by = call->who.id, .record = link_record, .done = link_done
    };
    box_note(box, &link->op);
    return 0;
}

#define PORTS "/api/v1/sandboxes/{id}/ports"
#define PASSING(verb, hidden)                                                                      \
    {                                                                                              \
        .name = "port.use", .method = verb, .path = PORTS "/{port}/{path*}", .on = ON_STREAM,      \
        .roles = ROLE_USE, .fn = port_pass, .flags = ROUTE_BODY | ROUTE_PASS | (hidden),           \
        .summary = "What listens on that port inside answers, to any method but CONNECT and "      \
                   "OPTIONS, with a WebSocket if that is asked for; `bad_gateway` when nothing "   \
                   "listens. No cookie and no Authorization goes inside, and a browser shows the " \
                   "answer as an origin of nobody; for pages use a preview's link."                \
    }

const struct route port_routes[] = {
    { .name = "port.list",
      .method = "GET",
      .path = PORTS,
      .on = ON_LATER,
      .roles = ROLE_LOOK,
      .fn = ports_get,
      .items = port_fields,
      .flags = ROUTE_AWAKE,
      .summary = "The TCP ports that programs in it listen on." },
    { .name = "port.use",
      .method = "GET",
      .path = PORTS "/{port}",
      .on = ON_LOOP,
      .roles = ROLE_USE,
      .fn = port_slash,
      .flags = ROUTE_PASS | ROUTE_HIDDEN,
      .summary = "The same with a slash at the end, which relative links of a page need." },
    PASSING("GET", 0), /* speaks for all of them */
    PASSING("POST", ROUTE_HIDDEN),
    PASSING("PUT", ROUTE_HIDDEN),
    PASSING("PATCH", ROUTE_HIDDEN),
    PASSING("DELETE", ROUTE_HIDDEN),
    { .name = "port.tunnel",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/tunnels/{port}",
      .on = ON_STREAM,
      .roles = ROLE_USE,
      .fn = tunnel_get,
      .summary = "With `Upgrade: tcp` over HTTP/1.1: after the 101, the bytes of a connection to "
                 "that port inside, both ways." },
    { .name = "port.preview",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/previews",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = preview_post,
      .takes = preview_wish_fields,
      .gives = preview_view_fields,
      .summary = "A link to a port inside, for a browser: a host of its own "
                 "(`PORT-ID.localhost`), which lets in whoever opens the link within ten minutes, "
                 "for twelve hours, as long as the token or session it was made with lives." },
    { 0 },
};
