/* own - what the files of the api room share among themselves. */
#pragma once

#include "api/api.h"
#include "api/router.h"
#include "base/list.h"
#include "model/sandbox.h"

/* An answer that is a list under one name: {"items":[…]}. */
static inline void json_open_list(struct json_out *json, const char *key)
{
    json_open(json, '{');
    json_key(json, key);
    json_open(json, '[');
}

static inline void json_close_list(struct json_out *json)
{
    json_close(json, ']');
    json_close(json, '}');
}

struct refusals; /* refuse.c */

struct api_private {
    struct api *api;
    struct router *router;
    char boot[9];      /* random, the same for one life of the process */
    uint64_t requests; /* for request ids */
    struct refusals *refusals;
    struct list streams;         /* event streams, for keep-alives (event.c) */
    struct list outputs;         /* output streams, to be cut with their credential (exec.c) */
    struct list files;           /* downloads, likewise (file_down.c) */
    struct list sockets;         /* WebSockets, likewise (socket.c) */
    struct list casts;           /* recordings, likewise (terminal_cast.c) */
    struct list session_streams; /* and frames as events (session_sse.c) */
    struct list previews;        /* requests to ports, likewise (preview.c) */
    struct list rpcs;            /* remote calls, likewise (rpc.c) */
    unsigned watches;            /* of our health, that are open (rpc_health.c) */
    struct timer keepalive;
    struct timer tidy;  /* backups that nobody fetched (backup.c) */
    struct event_text { /* the newest event as SSE text, made once for all subscribers */
        struct buf text;
        int64_t seq;
        char tenant[TENANT_MAX + 1];
    } event_texts[2];   /* with the envelope; in the hub's words */
    unsigned calls;     /* under way on workers */
    struct list laters; /* ON_LATER calls with an Idempotency-Key, until they are answered */
};

/* A call and what carries it through the workers. */
struct running {
    struct call call;
    struct store_job job;
    struct err err;
    bool failed;
    bool replayed; /* the answer is an earlier one, by Idempotency-Key */
    bool is_signed;
    bool later;             /* ON_LATER, and not yet finished */
    bool inside;            /* of a program in a sandbox, which the gate answers… */
    uint32_t number;        /* …by this number (inside.c) */
    struct list node;       /* in laters */
    char nonce_key[160];    /* of a signed request: to be stored before it acts */
    struct str idempotency; /* the key, or empty */
    unsigned char body_hash[32];
    char traceparent[64];
    struct audit
        refusal; /* the row to be written before a refusal is told; borrows from the call */
};

static inline struct running *running_of(struct call *call)
{
    return container_of(call, struct running, call);
}

/* idempotency.c: inside the write job. 1: an earlier answer was put into the call; 0: go on. */
must_use int idempotency_find(struct running *run, struct db *db, struct err *err);
must_use int idempotency_keep(struct running *run, struct db *db, struct err *err);

/*
 * What the caller may reach. Every look-up of an object takes it, on every surface: it is the
 * second of the two questions of authorisation, after the role (may_role).
 */
static inline struct reach call_reach(const struct call *call)
{
    return principal_reach(&call->who);
}

/* within.c: what of the event log and of stored lists such a caller sees. */
struct within {
    const struct api *api; /* on the loop, without a list */
    struct reach reach;
    const char *list; /* call->within, for any thread */
};
bool within_event(const struct within *within, const struct event *event);
/* Ids of the sandboxes and "agent/" with those of linked agents within reach; NULL: all of them. */
const char *within_list(struct call *call);
bool within_has(const char *list, struct str id);

/* may.c: what only operators may ask for, of a sandbox or a volume that the caller makes. */
must_use int may_wish(const struct call *call, const struct sandbox_spec *spec, struct err *err);
must_use int may_own(const struct call *call, struct access *access, struct err *err);
/* may.c: may the caller, who owns the object or not, change these fields of its access? */
must_use int may_give(const struct call *call, bool owned, uint64_t present, unsigned first,
                      struct err *err);

/* sandbox.c: the sandbox that the path names, if it is within the caller's reach. */
struct box;
struct box_op;
must_use int call_box(struct call *call, struct box **out, struct err *err);
/*
 * Refuses a path parameter that is only the beginning of `id`, where the route ends or deletes
 * something (ROUTE_WHOLE, DELETE). `name` may be NULL.
 */
must_use int call_whole(struct call *call, const char *param, const char *id, const char *name,
                        struct err *err);
/* A change of a sandbox by this call: answered with the sandbox, audited, finished. In the call's
 * arena. */
struct box_op *call_op(struct call *call);
struct call *call_of(struct box_op *op);
/*
 * `then` goes on with the call once the sandbox of the path is awake. One that is ON_STREAM may be
 * without its request by then, and gets the error in *err when it could not be woken.
 */
must_use int call_awake(struct call *call, route_fn then, struct err *err);

/* exec.c: the signal that the body asks for; -1 when it is none. */
struct signal_wish;
must_use int call_signal(struct call *call, struct signal_wish *wish, struct err *err);

/* layers.c: what was asked, what is applied, what is lost; and the last in an audit row's detail.
 */
struct sandbox_view;
struct box_applied;
struct layers_egress {
    const char *mode;
    uint64_t version, held; /* of its policy: as it is, and as the egress process says it holds */
    bool linked, steered;
};
void layers_put(struct json_out *json, const struct sandbox_view *view,
                const struct box_applied *applied, const struct layers_egress *egress);
const char *layers_detail(struct arena *arena, uint32_t lost);

/* refuse.c: a refusal becomes an audit row, unless this peer has had its share this minute (false).
 */
struct refusals *refusals_new(struct api *api);
void refusals_free(struct refusals *refusals);
must_use bool refusals_row(struct refusals *refusals, struct call *call, const struct err *err,
                           struct audit *out);

/* agentic_metrics.c: what agentic's dashboards and alerts read, as Prometheus text. */
void agentic_metrics(const struct api *api, struct buf *out);

/* backup.c: removes what an earlier life left there, and goes on watching. */
void backups_init(struct api *api);
void backups_free(struct api *api);

/* event.c */
void event_streams_init(struct api *api);
void event_streams_free(struct api *api);
/* Ends the streams that this principal opened: its credential is gone. */
void event_streams_cut(struct api *api, const char *who);

/* exec.c: what the audit says of a command, into the call. */
struct box_exec;
void call_exec_audit(struct call *call, const struct box_exec *exec);
/* exec.c: likewise for output. */
void output_streams_cut(struct api *api, const char *who);
/* file_down.c: likewise for downloads. */
void file_streams_cut(struct api *api, const char *who);
/* preview.c: likewise for what talks to ports. */
void preview_streams_cut(struct api *api, const char *who);
/*
 * port.c: does this Host name a port of a sandbox ("8000-sb….localhost"), at an address of ours?
 * With api NULL: of that form, wherever.
 */
must_use bool port_host(const struct api *api, struct str host, struct str *id, unsigned *port);
/* Who asks for such a host: 1 told by a pass, 0 to be found out as for any route, -1 refused. */
must_use int port_host_who(struct call *call, struct err *err);
extern const struct route port_host_route;

/* may.c: is it one of the values of Host that are ours? */
bool api_host_known(const struct api *api, struct str host);

/* socket.c, terminal_cast.c: likewise for WebSockets and recordings. */
void sockets_cut(struct api *api, const char *who);
void sockets_drain(struct api *api);
void cast_streams_cut(struct api *api, const char *who);
void session_streams_cut(struct api *api, const char *who);

/* Whose words errors are told in where there is no route: by the first part of the path. */
enum surface surface_of_path(struct str path);
/* An error's body in the surface's words. */
void api_error_body(enum surface surface, const struct err *err, const char *request_id,
                    struct buf *out);
