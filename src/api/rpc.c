/*
 * One remote call from its message to its status. The transport (http/grpc.h) says when there is a
 * message, when there are no more and when nobody waits; the codec is chosen by the content type;
 * the handler knows neither. Its errors have the codes of the API, which map to a status in one
 * table (err_info).
 */
#include "api/rpc.h"

#include "http/grpc.h"

/* ---- life ---- */

static void settle(struct rpc *rpc)
{
    if (rpc->grpc || rpc->held)
        return;
    list_remove(&rpc->node);
    rpc->call->req = NULL;
    call_free(rpc->call); /* the rpc is in its arena */
}

void rpc_hold(struct rpc *rpc)
{
    rpc->held++;
}

void rpc_drop(struct rpc *rpc)
{
    rpc->held--;
    settle(rpc);
}

/* ---- out ---- */

/* A byte of text may become six in JSON ("\u0001"). */
#define JSON_GROWS 6

enum http_flow rpc_write(struct grpc *grpc, const ProtobufCMessage *message)
{
    autobuf struct buf bytes = { .max = (size_t)(JSON_GROWS + 1) * GRPC_MESSAGE_MAX };

    if (grpc_json(grpc))
        rpc_json_encode(message, &bytes);
    else
        rpc_encode(message, &bytes);
    return grpc_send(grpc, buf_view(&bytes));
}

enum http_flow rpc_send(struct rpc *rpc, const ProtobufCMessage *message)
{
    return rpc->grpc ? rpc_write(rpc->grpc, message) : HTTP_CUT;
}

bool rpc_full(const struct rpc *rpc)
{
    return rpc->grpc && grpc_full(rpc->grpc);
}

static void end(struct rpc *rpc, int status, const char *message)
{
    struct grpc *grpc = take_ptr(&rpc->grpc);

    rpc->call->req = NULL;
    list_remove(&rpc->node);
    grpc_finish(grpc, status, message);
}

void rpc_finish(struct rpc *rpc, const struct err *err)
{
    if (rpc->grpc) {
        call_logged(rpc->call, err);
        end(rpc, err ? err_info(err->code)->grpc : GRPC_OK,
            err ? call_error_text(rpc->call, err) : NULL);
    }
    settle(rpc);
}

void rpc_reply(struct rpc *rpc, const ProtobufCMessage *message)
{
    struct err err = { 0 };

    if (protobuf_c_message_get_packed_size(message) > GRPC_MESSAGE_MAX)
        err_set(&err, ERR_LIMIT, "the answer would have more than %d bytes", GRPC_MESSAGE_MAX);
    else
        rpc_send(rpc, message);
    rpc_finish(rpc, err.code ? &err : NULL);
}

/* ---- in ---- */

int rpc_read(const struct grpc *grpc, const ProtobufCMessageDescriptor *type, struct str bytes,
             struct arena *arena, ProtobufCMessage **out, struct err *err)
{
    return grpc_json(grpc) ? rpc_json_decode(type, bytes, arena, out, err)
                           : rpc_decode(type, bytes, arena, out, err);
}

static void run(struct rpc *rpc, ProtobufCMessage *request)
{
    struct err err = { 0 };

    if (rpc->method->fn(rpc, request, &err) < 0)
        rpc_finish(rpc, &err);
}

static void on_message(struct grpc *grpc, struct str bytes)
{
    struct rpc *rpc = grpc_ctx(grpc);
    ProtobufCMessage *request = NULL;
    struct err err = { 0 };
    int rc;

    if (rpc->request)
        rc = err_set(&err, ERR_INVALID, "one message is wanted, and there is another");
    else
        rc = rpc_read(grpc, rpc->method->takes, bytes, &rpc->call->arena, &request, &err);
    if (rc < 0)
        rpc_finish(rpc, &err);
    else if (rpc->method->streams_in)
        run(rpc, request);
    else
        rpc->request = request; /* and run when it is sure that there is no other */
}

static void on_end(struct grpc *grpc)
{
    struct rpc *rpc = grpc_ctx(grpc);
    struct err err = { 0 };

    if (!rpc->request && !rpc->method->streams_in) {
        err_set(&err, ERR_INVALID, "a request message is needed");
        rpc_finish(rpc, &err);
        return;
    }
    run(rpc, rpc->request);
}

void rpc_pause(struct rpc *rpc)
{
    if (rpc->grpc)
        grpc_pause(rpc->grpc);
}

static void on_drain(struct grpc *grpc)
{
    struct rpc *rpc = grpc_ctx(grpc);

    grpc_resume(grpc);
    if (rpc->drained)
        rpc->drained(rpc);
}

static void tell_over(struct rpc *rpc, enum rpc_end why)
{
    rpc->held++;
    if (rpc->over)
        rpc->over(rpc, why);
    rpc_drop(rpc);
}

static void on_cancel(struct grpc *grpc)
{
    struct rpc *rpc = grpc_ctx(grpc);

    rpc->grpc = NULL;
    rpc->call->req = NULL;
    list_remove(&rpc->node);
    tell_over(rpc, RPC_CANCELLED);
}

static const struct grpc_ops ops = { on_message, on_end, on_drain, on_cancel };

int rpc_shape(struct call *call, bool streams, struct err *err)
{
    if (grpc_shape(call->req) != (streams ? GRPC_ONE : GRPC_STREAM))
        return 0;
    return err_set(err, ERR_MEDIA, "%s is %s: the content type is for the other kind",
                   call->route->path, streams ? "a stream" : "unary");
}

int rpc_open(struct call *call, struct err *err)
{
    const struct rpc_method *method = call->route->rpc;

    if (rpc_shape(call, method->streams_in || method->streams_out, err) < 0)
        return -1;
    struct rpc *rpc = arena_new(&call->arena, struct rpc);
    rpc->call = call;
    rpc->method = method;
    call->peer = arena_strdup(&call->arena, call->peer); /* for another thread */
    list_append(&call->api->own->rpcs, &rpc->node);
    rpc->grpc = grpc_begin(call->req, &ops, rpc);
    return 0;
}

/* ---- ends that are not the client's ---- */

static void cut(struct rpc *rpc, enum rpc_end why, enum err_code code, const char *text)
{
    struct err err = { 0 };

    err_set(&err, code, "%s", text);
    call_logged(rpc->call, &err);
    end(rpc, err_info(code)->grpc, text);
    tell_over(rpc, why);
}

void rpc_cut(struct api *api, const char *who)
{
    list_each_safe (pos, &api->own->rpcs) {
        struct rpc *rpc = list_entry(pos, struct rpc, node);

        if (strcmp(rpc->call->who.id, who) == 0)
            cut(rpc, RPC_CANCELLED, ERR_UNAUTHENTICATED, "the credential has ended");
    }
}

void rpc_drain(struct api *api)
{
    list_each_safe (pos, &api->own->rpcs) {
        struct rpc *rpc = list_entry(pos, struct rpc, node);

        if (rpc->method->streams_out && rpc->last)
            rpc->last(rpc);
        if (rpc->method->streams_out)
            cut(rpc, RPC_STOPPING, ERR_UNAVAILABLE, "the server is about to stop");
    }
}

/* ---- which services there are ---- */

/* "sandbox.v1.SandboxService" of "/sandbox.v1.SandboxService/Exec" */
static struct str service_of(const struct route *route)
{
    struct str path = str_from(str_of(route->path), 1);

    return str_cut(&path, '/');
}

void rpc_services(void (*fn)(void *ctx, struct str service), void *ctx)
{
    struct str last = STR_NONE;

    for (const struct route *const *table = api_tables; *table; table++)
        for (const struct route *route = *table; route->name; route++)
            if (route->surface == SURFACE_RPC && !str_eq(service_of(route), last)) {
                last = service_of(route); /* those of one stand together */
                fn(ctx, last);
            }
}

struct looking {
    const char *service;
    bool found;
};

static void look(void *ctx, struct str service)
{
    struct looking *looking = ctx;

    looking->found |= str_is(service, looking->service);
}

bool rpc_service_known(const char *service)
{
    struct looking looking = { service, false };

    rpc_services(look, &looking);
    return looking.found;
}
