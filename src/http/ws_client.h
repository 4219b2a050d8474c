/*
 * ws_client - the other end of ws.h, for the command line: blocking to open and to send, and read
 * when its descriptor is readable. What the server sends is untrusted: frames have limits, and what
 * breaks RFC 6455 is an error. One thread at a time.
 */
#pragma once

#include "http/client.h"

struct ws_client;

#define WS_CLIENT_MESSAGE_MAX ((size_t)64 << 20)

struct ws_message {
    bool text;
    struct str data; /* borrowed until the next call */
};

/*
 * 1 open; 0 the server answered something else: `reply` and, up to 64 KiB, its body. `path` and
 * `token` are as for client_request.
 */
must_use int ws_client_open(struct ws_client **out, const struct client_target *target,
                            const char *path, const char *token,
                            const struct client_options *options, struct client_reply *reply,
                            struct buf *body, struct err *err);
/* Over a connection whose ends have shaken hands already; takes fd, even on failure. */
must_use int ws_client_adopt(struct ws_client **out, int fd, struct err *err);
void ws_client_free(struct ws_client *ws);
int ws_client_fd(const struct ws_client *ws);
/* Takes what has arrived: to be called when the descriptor is readable. 0, or -1 when it is over.
 */
must_use int ws_client_read(struct ws_client *ws, struct err *err);
/* 1 a message, 0 none that is whole, -1 closed: ws_client_code says how. */
must_use int ws_client_next(struct ws_client *ws, struct ws_message *out, struct err *err);
int ws_client_code(const struct ws_client *ws); /* 1006 until the server closed in order */
must_use int ws_client_send(struct ws_client *ws, bool text, struct str data, struct err *err);
