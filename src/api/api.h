/*
 * api - the public surface: routes are a table, and everything about a route stands in its line.
 *
 * From the table come dispatch, authorisation (deny by default), validation, audit, idempotency,
 * OpenAPI and the reference page. A handler reads top to bottom: decode, look up, act, reply; where
 * it runs is the route's word:
 *
 * - ON_LOOP: bounded work, no waiting, no db.
 * - ON_READER: on a reader thread with call->db.
 * - ON_WRITER: on the writer thread, whole or not at all, with call->db; replies after the commit.
 * Each success is audited by the framework under the route's name.
 * - ON_STREAM: on the loop; the handler takes call->req over (SSE, WebSocket, gRPC, large bodies).
 * - ON_LATER: on the loop; the handler returns and says call_finish in a later round. What changes
 *   something is recorded by call_record, inside the write job that stores the change.
 */
#pragma once

#include "auth/auth.h"
#include "base/json.h"
#include "base/log.h"
#include "bus/bus.h"
#include "http/http.h"
#include "model/field.h"
#include "store/store.h"

enum route_on { ON_LOOP, ON_READER, ON_WRITER, ON_STREAM, ON_LATER };

enum route_flag {
    ROUTE_CREATES = 1,    /* honours Idempotency-Key; a success is 201 */
    ROUTE_SSE = 2,        /* taken when the caller accepts text/event-stream… */
    ROUTE_WS = 4,         /* …or asks for a WebSocket; of neither: every other caller */
    ROUTE_ANY_HOST = 8,   /* no Host check: probes come by address */
    ROUTE_NO_RATE = 16,   /* not counted against the caller's rate */
    ROUTE_BODY = 32,      /* ON_STREAM: the handler reads the body itself */
    ROUTE_NODE = 128,     /* about the whole server: only for the tenant that owns it */
    ROUTE_AWAKE = 256,    /* ON_LATER: a sandbox that sleeps is woken before the handler runs */
    ROUTE_PASS = 512,     /* the query is another server's: passed on, not looked at */
    ROUTE_AFTER = 32768,  /* ON_READER: sees what every answer before left, stored or not */
    ROUTE_UNSAID = 16384, /* a body that is left out is {} */
    ROUTE_HIDDEN = 64,    /* not in OpenAPI nor the reference: another protocol's own paths */
    /* JSON whatever its type is said to be; no body is an empty object (hub_take, hub_call.h) */
    ROUTE_LOOSE = 1024,
    ROUTE_RAW = 2048,       /* the body is bytes: call->body, call->body_type */
    ROUTE_ON_RECORD = 4096, /* every refusal of its handler is an audit row, not only 401 and 403 */
    ROUTE_FOLLOW = 131072,  /* ROUTE_SSE: taken when the query says follow=true, too */
    ROUTE_ONCE = 65536,     /* honours Idempotency-Key, and a success is 200 */
    ROUTE_WITHIN = 262144,  /* ON_READER: it goes by call->within */
    ROUTE_BARE = 8192,      /* `items`: the reply is the array itself */
    ROUTE_SLASHES = 524288, /* "{name*}": %2F in it is a slash, as clients encode names */
    ROUTE_WHOLE = 1048576,  /* ends something: whole ids or names, as every DELETE wants them */
};

/* In whose words errors are told. */
enum surface { SURFACE_ATOLL, SURFACE_HUB, SURFACE_VM, SURFACE_RPC, SURFACE_TEXT };

struct call;
struct rpc_method;
typedef int (*route_fn)(struct call *call, struct err *err);

struct route {
    const char *name; /* "token.create": audit action, scope, operationId */
    const char *method;
    const char *path; /* "/api/v1/tokens/{id}" */
    enum route_on on;
    unsigned roles; /* ROLE_… bits, or ROLE_PUBLIC */
    route_fn fn;
    const struct field *takes; /* request body; NULL: none allowed */
    const struct field *gives; /* reply; NULL: described by summary only */
    const struct field *items; /* of a list: each of the reply's `items` */
    const char *query; /* "since:int,type:string,tag:strings": known query parameters; strings:
                          repeatable; agentic: its clients' word, which OpenAPI leaves out */
    const char *summary;
    unsigned flags;
    size_t body_max; /* 0: HTTP_BODY_DEFAULT_MAX */
    enum surface surface;
    const struct rpc_method *rpc; /* SURFACE_RPC: what rpc_open (rpc.h) calls */
};

#define CALL_PARAMS_MAX 6
#define CALL_QUERIES_MAX 12
#define CALL_EXTRA_MAX 6

/* One request on its way; owned by the framework. */
struct call {
    const struct api *api;
    const struct route *route;
    struct http_req *req; /* NULL once the peer has left; loop thread only */
    struct arena arena;   /* the call's memory; survives the request */
    struct principal who;
    char request_id[REQUEST_ID_MAX + 1];
    const char *method, *path, *peer; /* copies, safe on any thread */
    bool tls;
    struct str body;
    const char *body_type;   /* ROUTE_RAW: its Content-Type, or "" */
    const struct json *json; /* parsed body, or NULL */
    struct call_param {
        const char *name, *value; /* decoded */
    } params[CALL_PARAMS_MAX], queries[CALL_QUERIES_MAX];
    unsigned param_count, query_count;

    struct db *db;      /* ON_READER, ON_WRITER */
    const char *within; /* ON_READER: what the caller reaches (within_list); NULL: everything */

    /* what the handler leaves */
    int status;       /* 0: 200, or 201 with ROUTE_CREATES */
    struct buf reply; /* body; JSON unless content_type says otherwise */
    const char *content_type;
    struct http_header extra[CALL_EXTRA_MAX];
    unsigned extra_count;
    const char *object;  /* for the audit row: "token/tok…" */
    const char *detail;  /* JSON for the audit row */
    const char *outcome; /* for the audit row; NULL: ok */
    /* Runs on the loop thread after the commit and before the reply (make changes effective). */
    void (*committed)(struct call *call);
    void *state; /* the handler's own, for `committed` */
};

/* Path parameter; never NULL (the route table promises it). */
const char *call_param(struct call *call, const char *name);
/* Query parameter, percent-decoded, or NULL. */
const char *call_query(struct call *call, const char *name);
/* A number in the query, within [min, max]; `otherwise` when absent. */
must_use int call_query_int(struct call *call, const char *name, int64_t min, int64_t max,
                            int64_t otherwise, int64_t *out, struct err *err);
/* Decodes the JSON body by the route's `takes`. */
must_use int call_decode(struct call *call, void *out, struct err *err);
/* The same; bit i of *present: takes[i] was given. */
must_use int call_decode_patch(struct call *call, void *out, uint64_t *present, struct err *err);
/* Writes the reply by the route's `gives`. */
int call_reply(struct call *call, const void *in);
struct json_out call_json(struct call *call); /* for replies that no table describes */
void call_header(struct call *call, const char *name, const char *value);
/* Within ON_WRITER: an event of the caller's tenant. */
must_use int call_event(struct call *call, const char *type, const char *object, struct str body,
                        struct err *err);

/*
 * For ON_LATER handlers that returned 0: the answer is ready (err NULL: in call->reply), exactly
 * once, from the loop thread and not from inside the handler. The call is dead afterwards. The peer
 * may have left meanwhile (call->req is NULL then).
 */
void call_finish(struct call *call, const struct err *err);
/*
 * Within a write job: what a change leaves behind besides itself, the audit row under the route's
 * name and, with an Idempotency-Key, the answer. call->object, ->detail and ->reply are settled.
 */
must_use int call_record(struct call *call, struct db *db, struct err *err);
/* Would that be an audit row alone? This one; its texts are the call's. */
bool call_audit_only(struct call *call, struct audit *out);

/*
 * For ON_STREAM handlers, which own call->req: answers with an error in the surface's shape. The
 * call ends with the request; call->req->app stays the framework's until the handler replaces it
 * together with on_gone, and then call_free is the handler's duty.
 */
void call_refuse(struct call *call, const struct err *err);
void call_free(struct call *call);
/* A line in the log, as every answer has one; err NULL: it went well. */
void call_logged(struct call *call, const struct err *err);
/* What the caller is told: not what the kernel or a library said, which is for the log. */
const char *call_error_text(struct call *call, const struct err *err);
/* The headers every answer carries (request id); for handlers that answer themselves. */
unsigned call_headers(struct call *call, struct http_header *out, unsigned max);

struct api_options {
    const char *const *hosts; /* exact Host values allowed, NULL-terminated; borrowed */
    const char *version;
    const char *base_url; /* "http://127.0.0.1:8080" of the first TCP listener, or NULL; borrowed */
    const char *data_dir; /* ours to write: backups */
    const struct asset *assets;
    const struct vault_keys *keys; /* of sealed values; borrowed */
    /* what settings say, for those who ask (machine.c); others enforce it */
    int64_t sandboxes_max, rate_per_second, rate_burst, event_keep_ms;
    bool no_metrics; /* /metrics is not there */
    /* of agentbox's sessions; agentbox_idle_ms 0: they stay until they are destroyed */
    int64_t agentbox_memory, agentbox_cpu_percent, agentbox_idle_ms;
    bool agentbox_root;
};

struct api {
    struct loop *loop;
    struct store *store;
    struct bus *bus;
    struct auth *auth;
    struct boxes *boxes;
    struct links *links;
    struct gate *gate;
    struct hub *hub;
    struct api_options options;
    int64_t started_ms;
    bool draining;
    /* private to api/ */
    struct api_private *own;
};

must_use int api_init(struct api *api, struct err *err);
void api_free(struct api *api);
/* Within the first job of a start: what an earlier life left half done has failed. */
must_use int api_boot(struct db *db, struct err *err);
/* Before http_server_drain: /readyz says no, event streams end. */
void api_drain(struct api *api);
/* A program in a sandbox asks the hub (gate_options.hub): answered by gate_hub_told. */
struct gate_hub_ask;
void api_inside(void *api, const struct gate_hub_ask *ask);
/* The http_app of this api. */
struct http_app api_app(struct api *api);

/* For log_tap: what /api/v1/logs tells. Any thread. */
void server_log_keep(enum log_level level, int64_t at_ms, const char *role, struct str text);

/* Tables of handlers, by noun; routes.c lists them. */
extern const struct route *const api_tables[];

void api_openapi(const char *version, struct buf *out);
/* docs/api.md, generated. */
void api_reference(struct buf *out);
