/* About the server itself: health, readiness, version, who am I, metrics, OpenAPI, echo. */
#include "api/own.h"
#include "box/boxes.h"

#include "base/clock.h"
#include "base/metric.h"
#include "link/links.h"

/* As agentic's clients read it. */
struct health_agents {
    int64_t connected, ready;
};

static const struct field health_agents_fields[] = {
    FIELD(health_agents, connected, F_INT, F_READONLY, .help = "Linked agents that are there"),
    FIELD(health_agents, ready, F_INT, F_READONLY, .help = "Of those, ready or busy"),
    { 0 },
};

struct health {
    const char *status, *reason, *version, *store;
    int64_t uptime_ms, uptime_seconds;
    bool ready;
    int64_t subscribers, calls;
    int64_t started_at;
    const struct health_agents *agents;
};

static const struct field health_fields[] = {
    FIELD(health, status, F_ENUM, F_READONLY, .choices = "ok|full|draining|damaged",
          .help = "What it is doing; full: no room in the state directory, so nothing is started"),
    FIELD(health, reason, F_STRING, F_READONLY, .help = "Of full; otherwise null"),
    FIELD(health, version, F_STRING, F_READONLY, .help = "Of the program"),
    FIELD(health, ready, F_BOOL, F_READONLY, .help = "Whether it takes requests"),
    FIELD(health, store, F_ENUM, F_READONLY, .choices = "sound|checking|damaged",
          .help = "The store's file; a large one is checked while it serves, a damaged one is read "
                  "but not written"),
    FIELD(health, started_at, F_TIME, F_READONLY, .help = "When this process began to serve"),
    FIELD(health, uptime_ms, F_INT, F_READONLY, .help = "Since then, in milliseconds"),
    FIELD(health, uptime_seconds, F_INT, F_READONLY, .help = "The same in seconds"),
    FIELD(health, agents, F_OBJECT, F_READONLY, .of = health_agents_fields,
          .of_size = sizeof(struct health_agents), .help = "Agents that are linked"),
    FIELD(health, subscribers, F_INT, F_READONLY, .help = "Open event streams"),
    FIELD(health, calls, F_INT, F_READONLY, .help = "Calls under way on workers"),
    { 0 },
};

static int health_get(struct call *call, struct err *err)
{
    static const char *const stores[] = {
        [STORE_SOUND] = "sound", [STORE_CHECKING] = "checking", [STORE_DAMAGED] = "damaged"
    };
    const struct api *api = call->api;
    enum store_state store = store_state(api->store);
    struct health_agents agents = { links_connected(api->links), links_ready(api->links) };
    struct err why = { 0 };
    bool full = boxes_full(api->boxes, &why);
    struct health health = {
        .status = api->draining            ? "draining"
                  : store == STORE_DAMAGED ? "damaged"
                  : full                   ? "full"
                                           : "ok",
        .reason = full ? why.msg : NULL,
        .version = api->options.version,
        .ready = !api->draining && store != STORE_DAMAGED,
        .store = stores[store],
        .started_at = api->started_ms,
        .uptime_ms = clock_wall_ms() - api->started_ms,
        .uptime_seconds = (clock_wall_ms() - api->started_ms) / 1000,
        .agents = &agents,
        .subscribers = bus_subscribers(api->bus),
        .calls = api->own->calls,
    };

    (void)err;
    return call_reply(call, &health);
}

static int live_get(struct call *call, struct err *err)
{
    (void)err;
    buf_puts(&call->reply, "{\"status\":\"alive\"}\n");
    return 0;
}

/* Touches nothing that anybody else could hold. */
static int http_get(struct call *call, struct err *err)
{
    (void)err;
    buf_puts(&call->reply, "{\"http\":\"alive\"}\n");
    return 0;
}

static int service_get(struct call *call, struct err *err)
{
    (void)err;
    buf_puts(&call->reply, "{\"status\":\"ok\",\"service\":\"atoll\"}\n");
    return 0;
}

static int alive_get(struct call *call, struct err *err)
{
    (void)err;
    buf_puts(&call->reply, "{\"alive\":true}\n");
    return 0;
}

static int check_ready(struct call *call, struct err *err)
{
    if (call->api->draining)
        return err_set(err, ERR_UNAVAILABLE, "draining: the server is about to stop");
    if (store_state(call->api->store) == STORE_DAMAGED)
        return err_set(err, ERR_UNAVAILABLE, "the store's file is damaged; restore a backup");
    return 0;
}

/* A server without agents is ready too, unless the caller wants some (as agentic's did). */
static int ready_get(struct call *call, struct err *err)
{
    unsigned agents = links_connected(call->api->links);
    const char *wants = call_query(call, "require");
    struct json_out json = call_json(call);

    if (wants && strcmp(wants, "agents") != 0)
        return err_field(err, "require", "agents, or nothing");
    if (check_ready(call, err) < 0)
        return -1;
    json_open(&json, '{');
    if (wants && !agents) {
        call->status = 503;
        json_kv_text(&json, "status", "not_ready");
        json_kv_text(&json, "reason", "no_agents_connected");
    } else {
        json_kv_text(&json, "status", "ready");
        json_kv_int(&json, "agent_count", agents);
    }
    json_close(&json, '}');
    return 0;
}

static int ready_v1_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);

    if (check_ready(call, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_bool(&json, "ready", true);
    json_kv_text(&json, "reason",
                 links_connected(call->api->links) ? "agents_connected"
                                                   : "no_agents_but_operational");
    json_close(&json, '}');
    return 0;
}

static int deep_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);

    if (check_ready(call, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "status", "healthy");
    json_kv_int(&json, "uptime_seconds", (clock_wall_ms() - call->api->started_ms) / 1000);
    json_kv_int(&json, "agent_count", links_connected(call->api->links));
    json_kv_int(&json, "active_tasks", 0); /* there are no tasks yet */
    json_close(&json, '}');
    return 0;
}

static int version_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);

    (void)err;
    json_open(&json, '{');
    json_kv_text(&json, "version", call->api->options.version);
    json_kv_text(&json, "api", "v1");
    json_close(&json, '}');
    return 0;
}

struct whoami {
    const char *id, *name, *role, *tenant, *via, *scopes;
    int64_t expires_at;
};

static const struct field whoami_fields[] = {
    FIELD(whoami, id, F_STRING, F_READONLY, .help = "Token or session id, or unix:UID"),
    FIELD(whoami, name, F_STRING, F_READONLY, .help = "The name it was given"),
    FIELD(whoami, role, F_STRING, F_READONLY, .help = "What it may do"),
    FIELD(whoami, tenant, F_STRING, F_READONLY, .help = "Whose objects it sees"),
    FIELD(whoami, via, F_ENUM, F_READONLY, .choices = "token|cookie|unix|signed|open",
          .help = "How it was recognised"),
    FIELD(whoami, scopes, F_STRING, F_READONLY,
          .help = "Comma list; empty means all that the role may"),
    FIELD(whoami, expires_at, F_TIME, F_READONLY, .help = "When it ends; null for never"),
    { 0 },
};

static int whoami_get(struct call *call, struct err *err)
{
    static const char *const ways[] = { [VIA_TOKEN] = "token",
                                        [VIA_COOKIE] = "cookie",
                                        [VIA_UNIX] = "unix",
                                        [VIA_SIGNED] = "signed",
                                        [VIA_OPEN] = "open" };
    const struct principal *who = &call->who;
    struct whoami me = { .id = who->id,
                         .name = who->name,
                         .role = role_name(who->role),
                         .tenant = who->tenant,
                         .via = ways[who->via],
                         .scopes = who->scopes,
                         .expires_at = who->expires_ms };

    (void)err;
    return call_reply(call, &me);
}

static int metrics_get(struct call *call, struct err *err)
{
    if (call->api->options.no_metrics)
        return err_set(err, ERR_NOT_FOUND, "metrics are switched off (metrics_enabled = false)");
    call->content_type = "text/plain; version=0.0.4; charset=utf-8";
    metric_text(&call->reply);
    agentic_metrics(call->api, &call->reply);
    return 0;
}

static int openapi_get(struct call *call, struct err *err)
{
    (void)err;
    api_openapi(call->api->options.version, &call->reply);
    return 0;
}

struct echo {
    const char *text, *note;
    int64_t number;
    bool flag;
    const char **tags;
};

static const struct field echo_fields[] = {
    FIELD(echo, text, F_STRING, F_REQUIRED, .max = 4096, .help = "Any text"),
    FIELD(echo, number, F_INT, 0, .min = -9007199254740991, .max = 9007199254740991,
          .help = "A whole number"),
    FIELD(echo, flag, F_BOOL, 0, .help = "True or false"),
    FIELD(echo, tags, F_STRINGS, 0, .max = 32, .help = "Up to 32 words"),
    FIELD(echo, note, F_STRING, 0, .max = 4096, .help = "More text"),
    { 0 },
};

static int echo_post(struct call *call, struct err *err)
{
    struct echo echo = { 0 };

    if (call_decode(call, &echo, err) < 0)
        return -1;
    return call_reply(call, &echo);
}

const struct route meta_routes[] = {
    { .name = "health.live",
      .method = "GET",
      .path = "/healthz",
      .on = ON_LOOP,
      .roles = ROLE_PUBLIC,
      .fn = live_get,
      .flags = ROUTE_ANY_HOST,
      .summary = "Is the process alive? Needs no token." },
    { .name = "health.ready",
      .method = "GET",
      .path = "/readyz",
      .on = ON_LOOP,
      .roles = ROLE_PUBLIC,
      .fn = ready_get,
      .flags = ROUTE_ANY_HOST,
      .query = "require:string",
      .summary =
          "Does it take requests? 503 while it drains, and with require=agents while no agent "
          "is linked. Needs no token." },
    { .name = "health.http",
      .method = "GET",
      .path = "/healthz/http",
      .on = ON_LOOP,
      .roles = ROLE_PUBLIC,
      .fn = http_get,
      .flags = ROUTE_ANY_HOST,
      .summary = "Does it answer at all? Needs no token." },
    { .name = "health.deep",
      .method = "GET",
      .path = "/healthz/deep",
      .on = ON_LOOP,
      .roles = ROLE_ANY,
      .fn = deep_get,
      .summary = "Is it well: how long it runs, how many agents are linked." },
    { .name = "health.service",
      .method = "GET",
      .path = "/api/health",
      .on = ON_LOOP,
      .roles = ROLE_ANY,
      .fn = service_get,
      .summary = "Which service this is." },
    { .name = "health.ready_v1",
      .method = "GET",
      .path = "/api/v1/health/ready",
      .on = ON_LOOP,
      .roles = ROLE_ANY,
      .fn = ready_v1_get,
      .summary = "As /readyz, for agentic's clients." },
    { .name = "health.live_v1",
      .method = "GET",
      .path = "/api/v1/health/live",
      .on = ON_LOOP,
      .roles = ROLE_ANY,
      .fn = alive_get,
      .summary = "As /healthz, for agentic's clients." },
    { .name = "health.read",
      .method = "GET",
      .path = "/api/v1/health",
      .on = ON_LOOP,
      .roles = ROLE_ANY,
      .fn = health_get,
      .gives = health_fields,
      .summary = "State, version and load of the server." },
    { .name = "version.read",
      .method = "GET",
      .path = "/api/v1/version",
      .on = ON_LOOP,
      .roles = ROLE_ANY,
      .fn = version_get,
      .summary = "Version of the program and of the API." },
    { .name = "whoami.read",
      .method = "GET",
      .path = "/api/v1/whoami",
      .on = ON_LOOP,
      .roles = ROLE_ANY,
      .fn = whoami_get,
      .gives = whoami_fields,
      .summary = "Who the server takes the caller for." },
    { .name = "metrics.read",
      .method = "GET",
      .path = "/metrics",
      .on = ON_LOOP,
      .roles = ROLE_PEOPLE,
      .fn = metrics_get,
      .flags = ROUTE_NODE,
      .surface = SURFACE_TEXT,
      .summary = "Prometheus text; 404 with the setting metrics_enabled = false." },
    { .name = "openapi.read",
      .method = "GET",
      .path = "/api/openapi.json",
      .on = ON_LOOP,
      .roles = ROLE_ANY,
      .fn = openapi_get,
      .summary = "This description." },
    { .name = "echo.try",
      .method = "POST",
      .path = "/api/v1/echo",
      .on = ON_LOOP,
      .roles = ROLE_ANY,
      .fn = echo_post,
      .takes = echo_fields,
      .gives = echo_fields,
      .summary =
          "Checks a small document and gives it back: for trying out clients and credentials." },
    { 0 },
};
