/* grpc_own - what grpc.c (a call) and grpc_answer.c (what is said to the client) share. */
#pragma once

#include "http/grpc.h"

#define GRPC_PREFIX 5

enum grpc_kind {
    KIND_GRPC,
    KIND_WEB,
    KIND_WEB_TEXT,
    KIND_CONNECT, /* a stream: frames as in gRPC, the end is one too */
    KIND_UNARY,   /* Connect with one message each way: the body is the message */
};

struct grpc_type {
    const char *text;
    enum grpc_kind kind;
    bool json; /* what the messages are */
};

/* By content type, or by the query of a GET; NULL when it is none of these protocols. */
const struct grpc_type *grpc_type_of(const struct http_req *req);
/* The head of an answer that has messages. */
void grpc_answer_begin(struct http_req *req, const struct grpc_type *type);
enum http_flow grpc_answer_message(struct http_req *req, const struct grpc_type *type,
                                   struct str message);
/*
 * Ends the request; its on_gone must not be the call's any more. `begun`: grpc_answer_begin was
 * said. `only` is what KIND_UNARY answers with when it is well.
 */
void grpc_answer_end(struct http_req *req, const struct grpc_type *type, bool begun, int status,
                     const char *message, struct str only);
/* For the metric: it left before it was answered. */
void grpc_answer_gone(void);
