/*
 * ws - WebSocket (RFC 6455) on a request: HTTP/1.1 Upgrade, or extended CONNECT on HTTP/2
 * (RFC 8441). Framing by wslay; loop thread.
 *
 * Callbacks come from the loop only, never from inside one of the functions below, so a caller
 * needs no care about being re-entered; on_close is the last of them and comes exactly once for
 * every accepted socket. A socket that reads nothing costs at most HTTP_OUT_MAX (then close code
 * 1013); one that answers no ping for WS_PING_MS is cut.
 */
#pragma once

#include "http/http.h"

struct ws;

struct ws_ops {
    void (*on_message)(struct ws *ws, bool text, struct str data); /* text is checked UTF-8 */
    void (*on_drain)(struct ws *ws); /* after HTTP_FULL: there is room again */
    /* Last call; ws is dead after it. 1005: closed without a code; 1006: vanished or was cut. */
    void (*on_close)(struct ws *ws, int code, struct str reason);
};

/* Does this request ask for a WebSocket? */
bool ws_wanted(const struct http_req *req);
/* Is it a proper one? For who passes it on instead of accepting it. */
must_use int ws_check(const struct http_req *req, struct err *err);
/*
 * A page cannot send Authorization with a WebSocket, so it offers its token as a subprotocol:
 * "bearer." and the token in base64url (auth.h, token_offered).
 */
#define WS_BEARER "bearer."
/* One subprotocol after the other: struct ws_offers at = { 0 }; while (ws_offer_next(…)) */
struct ws_offers {
    size_t header;
    struct str rest;
};
bool ws_offer_next(const struct http_req *req, struct ws_offers *at, struct str *item);
/* Does the client offer any that is not a bearer's? */
bool ws_offers_any(const struct http_req *req);
/* Is `protocol` among the subprotocols that the client offers? */
bool ws_offers(const struct http_req *req, const char *protocol);

/*
 * Answers 101 (or 200 on HTTP/2) and takes the request over: `req` is dead afterwards. `protocol`
 * is the chosen subprotocol (one the client offers) or NULL. On failure the request is untouched
 * and must be answered: ws_refuse does it right.
 */
must_use int ws_accept(struct http_req *req, const char *protocol, const struct ws_ops *ops,
                       void *ctx, struct ws **out, struct err *err);
/* Answers what ws_accept failed on: 426 for another version of the protocol, otherwise by code. */
void ws_refuse(struct http_req *req, const struct err *err);
void *ws_ctx(const struct ws *ws);
struct http_peer *ws_peer(const struct ws *ws);

/* HTTP_CUT when the socket is closing: the message was dropped, on_close follows. */
enum http_flow ws_send(struct ws *ws, bool text, struct str data);
size_t ws_unsent(const struct ws *ws);
/* No on_message until ws_resume; what the peer sends meanwhile is not read from the network. */
void ws_pause(struct ws *ws);
void ws_resume(struct ws *ws);
/* Sends a close frame; on_close follows when the peer answered or was cut. */
void ws_close(struct ws *ws, int code, const char *reason);

/* Other times than limits.h's, for tests; 0 leaves one as it is. */
void ws_set_times(int64_t ping_ms, int64_t close_ms);
