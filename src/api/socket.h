/*
 * socket - a WebSocket that a handler has opened: what all of them share, whatever they speak.
 *
 * It ends with the credential that opened it (code 4401) and with the server (1001). Embedded in
 * its owner, which frees itself in `closed`. Loop thread.
 */
#pragma once

#include "api/own.h"
#include "http/ws.h"

struct socket {
    struct list node; /* of all */
    struct ws *ws;    /* NULL once closed */
    struct api *api;
    struct principal who;
    struct timer expiry;
    const struct socket_ops *ops;
};

struct socket_ops {
    void (*message)(struct socket *socket, bool text, struct str data);
    void (*drained)(struct socket *socket);
    void (*closed)(struct socket *socket); /* last */
};

/* Close codes of ours, besides the registered ones. */
enum {
    SOCKET_NORMAL = 1000,
    SOCKET_GOING = 1001,
    SOCKET_INVALID = 4400,
    SOCKET_NOBODY = 4401,
    SOCKET_FORBIDDEN = 4403,
    SOCKET_UNKNOWN = 4404,
    SOCKET_SLOW = 4408,
    SOCKET_GONE = 4410,
};

/*
 * Takes the call's request over and frees the call. False: it was refused and answered, and the
 * owner frees itself (`closed` is not called). `protocol`: the subprotocol we chose, or NULL.
 */
must_use bool socket_open(struct socket *socket, struct call *call, const char *protocol,
                          const struct socket_ops *ops);
/* False: no more until `drained`. */
bool socket_text(struct socket *socket, struct buf *text);
bool socket_bytes(struct socket *socket, struct str data);
void socket_close(struct socket *socket, int code, const char *reason);
