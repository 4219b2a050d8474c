/*
 * dial - one gRPC call with streams both ways, as a client: HTTP/2 by prior knowledge, or over TLS.
 * Connecting waits (CLI manners); from then on everything is on the loop.
 *
 * What is sent goes through one queue, in order. dial_full says when to stop; on_room that there is
 * room again. The call ends once: on_end, with the server's status, or GRPC_UNAVAILABLE and why.
 */
#pragma once

#include "base/buf.h"
#include "http/client.h"
#include "loop/loop.h"

struct dial;

struct dial_ops {
    void (*on_message)(void *ctx, struct str message); /* borrowed during the call */
    void (*on_room)(void *ctx);
    /* The last call; the owner may dial_free from inside of it. */
    void (*on_end)(void *ctx, int status, const char *why);
};

struct dial_options {
    struct loop *loop;
    const struct client_target *target;
    const char *ca_file; /* NULL: the system's */
    const char *path;    /* "/package.Service/Method" */
    struct client_field headers[4];
    const struct dial_ops *ops;
    void *ctx;
};

must_use int dial_open(struct dial **out, const struct dial_options *options, struct err *err);
/* Without a word to anybody; NULL is fine. Not from inside its other callbacks. */
void dial_free(struct dial *dial);
void dial_send(struct dial *dial, struct str message);
bool dial_full(const struct dial *dial);
/* "10.0.0.2": our end of the connection; "" when it has no address. */
void dial_address(const struct dial *dial, char *out, size_t size);
