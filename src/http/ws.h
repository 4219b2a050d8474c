/*
 * ws - WebSocket (RFC 6455) on a request: HTTP/1.1 Upgrade, or extended CONNECT on HTTP/2
 * (RFC 8441) where the library gives it. Framing by wslay; loop thread.
 */
#pragma once

#include "http/http.h"

struct ws;

struct ws_ops {
    void (*on_message)(struct ws *ws, bool text, struct str data); /* text is checked UTF-8 */
    void (*on_drain)(struct ws *ws); /* after HTTP_FULL: there is room again */
    void (*on_close)(struct ws *ws, int code,
                     struct str reason); /* last call; ws is dead after it */
};

/* Does this request ask for a WebSocket? */
bool ws_wanted(const struct http_req *req);

/*
 * Answers 101 (or 200 on HTTP/2) and takes the request over: `req` is dead afterwards. `protocol`
 * is the chosen subprotocol or NULL. On failure the request is untouched and must be answered.
 */
must_use int ws_accept(struct http_req *req, const char *protocol, const struct ws_ops *ops,
                       void *ctx, struct ws **out, struct err *err);
void *ws_ctx(const struct ws *ws);
struct http_peer *ws_peer(const struct ws *ws);

enum http_flow ws_send(struct ws *ws, bool text, struct str data);
size_t ws_unsent(const struct ws *ws);
/* Sends a close frame; on_close follows when the peer answered or was cut. */
void ws_close(struct ws *ws, int code, const char *reason);
