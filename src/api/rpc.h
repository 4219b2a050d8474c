/*
 * rpc - remote calls: a method is a line in a table, and is then served over gRPC, gRPC-Web and
 * Connect, binary and JSON, with the roles, rates and audit of its route. Loop thread.
 *
 * A call lives as long as its client waits for it or its handler holds it. The handler ends it with
 * rpc_finish (or rpc_reply); before that, `over` may tell it that nobody waits any more. What a
 * handler has begun and cannot take back (a box_op) it holds the call for.
 */
#pragma once

#include "api/own.h"
#include "api/rpc_codec.h"
#include "http/http.h"

struct rpc;
struct grpc;
struct box;

struct rpc_method {
    const ProtobufCMessageDescriptor *takes, *gives;
    /*
     * The request is in the call's arena. 0: finished, or will be; -1: finished with *err. With
     * streams_in it comes once for each message, and with NULL when there are no more.
     */
    int (*fn)(struct rpc *rpc, ProtobufCMessage *request, struct err *err);
    bool streams_in, streams_out;
};

enum rpc_end {
    RPC_CANCELLED, /* the client left, cancelled, or its deadline or credential has ended */
    RPC_STOPPING,  /* the server is about to stop */
};

struct rpc {
    struct call *call;
    const struct rpc_method *method;
    struct grpc *grpc; /* NULL: nobody waits any more */
    ProtobufCMessage *request;
    unsigned held;
    struct list node; /* in the api's rpcs */
    /* the handler's, all may be NULL */
    void *state;
    void (*over)(struct rpc *rpc, enum rpc_end why);
    void (*drained)(struct rpc *rpc); /* after HTTP_FULL: there is room again */
    void (*last)(struct rpc *rpc);    /* the server stops, and the stream is about to end with it */
};

/* The handler of every route that has a method. */
int rpc_open(struct call *call, struct err *err);

/* For handlers of their own: is the content type one for such a method? */
must_use int rpc_shape(struct call *call, bool streams, struct err *err);
/* Messages as this client says and reads them: protobuf or JSON. */
must_use int rpc_read(const struct grpc *grpc, const ProtobufCMessageDescriptor *type,
                      struct str bytes, struct arena *arena, ProtobufCMessage **out,
                      struct err *err);
enum http_flow rpc_write(struct grpc *grpc, const ProtobufCMessage *message);

enum http_flow rpc_send(struct rpc *rpc, const ProtobufCMessage *message);
/* Must the client read first? Then `drained` follows. */
bool rpc_full(const struct rpc *rpc);
/* err NULL: it went well. The call is dead afterwards, unless it is held. */
void rpc_finish(struct rpc *rpc, const struct err *err);
/* The only message, and the end. */
void rpc_reply(struct rpc *rpc, const ProtobufCMessage *message);

/* With streams_in: no more messages until there is room for answers again. */
void rpc_pause(struct rpc *rpc);

/* Each service of the tables once. */
void rpc_services(void (*fn)(void *ctx, struct str service), void *ctx);
bool rpc_service_known(const char *service);

void rpc_hold(struct rpc *rpc);
void rpc_drop(struct rpc *rpc); /* it may be dead afterwards */

/* Ends calls: of a credential that has ended; those that stream, because the server stops. */
void rpc_cut(struct api *api, const char *who);
void rpc_drain(struct api *api);

/* A line of a table of routes: `name` is the action for scopes and audit, as REST has it. */
#define RPC_ROUTE(service_, method_, name_, roles_, rpc_, ...)                                     \
    {                                                                                              \
        .name = (name_), .method = "POST", .path = "/" service_ "/" method_, .on = ON_STREAM,      \
        .roles = (roles_), .fn = rpc_open, .surface = SURFACE_RPC, .rpc = (rpc_),                  \
        .summary = service_ "/" method_, .flags = ROUTE_HIDDEN | ROUTE_BODY __VA_ARGS__            \
    }
/* The same for one that changes nothing: Connect may GET it. */
#define RPC_ROUTE_GET(service_, method_, name_, roles_, rpc_)                                      \
    {                                                                                              \
        .name = (name_), .method = "GET", .path = "/" service_ "/" method_, .on = ON_STREAM,       \
        .roles = (roles_), .fn = rpc_open, .surface = SURFACE_RPC, .rpc = (rpc_),                  \
        .summary = service_ "/" method_, .flags = ROUTE_HIDDEN,                                    \
        .query = "connect:string,encoding:string,message:string,base64:string,compression:string"  \
    }
