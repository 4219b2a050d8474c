/*
 * grpc - remote calls: gRPC over HTTP/2, gRPC-Web (binary and text) and Connect (unary and streams,
 * binary and JSON) over either version. Messages in and out, deadline, status and its message in
 * the protocol's own words. Loop thread.
 *
 * A call lives from grpc_begin until the handler ends it (grpc_finish) or until on_cancel tells
 * that it is over without the handler: client gone, deadline passed, message broken or over
 * GRPC_MESSAGE_MAX (the client has its status by then). Exactly one of the two happens, and the
 * pointer is dead afterwards. Callbacks come from the loop, never from inside a call below.
 */
#pragma once

#include "http/http.h"

enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_DATA_LOSS = 15,
    GRPC_UNAUTHENTICATED = 16,
};

struct grpc;

struct grpc_ops {
    void (*on_message)(struct grpc *call, struct str message); /* borrowed during the call */
    void (*on_end)(struct grpc *call);                         /* the client has no more messages */
    void (*on_drain)(struct grpc *call);                       /* after HTTP_FULL */
    void (*on_cancel)(struct grpc *call); /* gone, cancelled or past its deadline: last call */
};

/* Is this a gRPC or gRPC-Web request (by content type)? */
bool grpc_wanted(const struct http_req *req);
/* How many messages its content type is for: Connect has one for each. */
enum grpc_shape { GRPC_ANY, GRPC_ONE, GRPC_STREAM };
enum grpc_shape grpc_shape(const struct http_req *req);
/*
 * Takes the request over, always. `ctx` is the handler's own. A request that cannot be a call (gRPC
 * without HTTP/2, a malformed timeout, one that is past) is answered here; on_cancel follows. A GET
 * is a unary call of Connect: only for what changes nothing.
 */
struct grpc *grpc_begin(struct http_req *req, const struct grpc_ops *ops, void *ctx);
void *grpc_ctx(const struct grpc *call);
/* Are its messages JSON? Otherwise they are protobuf. */
bool grpc_json(const struct grpc *call);
/* For its path, headers and peer; NULL once the client is gone (on_cancel follows). */
struct http_req *grpc_req(const struct grpc *call);
/* HTTP_CUT: the client is gone, on_cancel follows. */
enum http_flow grpc_send(struct grpc *call, struct str message);
/* Must the client read first? As http_full; on_drain follows. */
bool grpc_full(const struct grpc *call);
/* No on_message until grpc_resume; what the client sends meanwhile stays in the network. */
void grpc_pause(struct grpc *call);
void grpc_resume(struct grpc *call);
/* Ends the call; `message` is percent-encoded for the wire, NULL for none. */
void grpc_finish(struct grpc *call, int status, const char *message);
/* For a request refused before grpc_begin, in its protocol's words; Connect's for one of none. */
void grpc_refuse(struct http_req *req, int status, const char *message);

/* For an OPTIONS of a browser whose Origin was judged: headers into `out`, at most 5; how many. */
unsigned grpc_preflight(const struct http_req *req, struct http_header *out);

/* "100m", "5S"…, in milliseconds rounded up; less than a microsecond is 0, which is past. False:
 * not as the specification writes them. */
must_use bool grpc_timeout(struct str text, int64_t *ms);
