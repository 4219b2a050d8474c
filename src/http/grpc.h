/*
 * grpc - gRPC over HTTP/2, and gRPC-Web (binary and text) over either version: length-prefixed
 * messages in and out, deadline, status and message in the trailers. Loop thread.
 */
#pragma once

#include "http/http.h"

struct grpc;

struct grpc_ops {
    void (*on_message)(struct grpc *call, struct str message); /* borrowed during the call */
    void (*on_end)(struct grpc *call);                         /* the client has no more messages */
    void (*on_drain)(struct grpc *call);                       /* after HTTP_FULL */
    void (*on_cancel)(struct grpc *call); /* gone, cancelled or past its deadline: last call */
};

/* Is this a gRPC or gRPC-Web request (by content type)? */
bool grpc_wanted(const struct http_req *req);
/* Takes the request over. `ctx` is the handler's own. */
struct grpc *grpc_begin(struct http_req *req, const struct grpc_ops *ops, void *ctx);
void *grpc_ctx(const struct grpc *call);
struct http_req *grpc_req(const struct grpc *call);
enum http_flow grpc_send(struct grpc *call, struct str message);
/* Ends the call; `message` is percent-encoded for the wire, NULL for none. */
void grpc_finish(struct grpc *call, int status, const char *message);
/* For a request refused before grpc_begin: answers trailers-only. */
void grpc_refuse(struct http_req *req, int status, const char *message);
