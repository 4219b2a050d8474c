/*
 * http - one request shape, whichever protocol carried it; the server that makes such requests.
 *
 * One port serves HTTP/1.1, HTTP/2 (prior knowledge, or ALPN under TLS) and WebSocket by looking at
 * what arrives. The application gets one call per request, when its head is complete
 * (http_app.on_request). It then
 *
 *   - asks for the body: http_read_all (collected, limited) or http_read_stream (as it comes),
 *   - answers: http_reply (whole), or http_reply_begin / _write / _end (streamed, trailers), or
 *   - turns it into a WebSocket: ws_accept (ws.h).
 *
 * A request lives from on_request until it is answered whole (http_reply, http_reply_end) or until
 * on_gone tells that its peer left or was cut; either ends it, and the pointer is dead afterwards.
 * The answer may come later, from any later round of the loop. Everything is for the loop thread.
 *
 * Back-pressure: http_reply_write says HTTP_FULL when more than HTTP_OUT_HIGH bytes wait; a
 * producer then stops until on_drain. One that goes on is cut at HTTP_OUT_MAX. A body that the
 * application paused (http_read_pause) is not read from the network.
 *
 * No callback is ever made from inside a call of the application's. HTTP_CUT only says that bytes
 * are no longer wanted; on_gone follows in a moment and is what ends the request.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "loop/loop.h"

enum http_version { HTTP_1_0, HTTP_1_1, HTTP_2 };
enum http_flow { HTTP_OK, HTTP_FULL, HTTP_CUT };

struct http_header {
    struct str name, value; /* names in requests are lower case */
};

/* Who is at the other end; shared by all requests of one connection. */
struct http_peer {
    char text[56]; /* "127.0.0.1:4242", "[::1]:4242", "unix:uid=1000" */
    char addr[48]; /* without the port: the key for limits by peer */
    bool local;    /* Unix socket */
    bool tls;
    bool loopback;
    unsigned uid; /* of a Unix peer, by SO_PEERCRED */
    int pid;
    unsigned listener; /* index of the listener it came in by */
    void *app;         /* the application may remember something per connection (verified token) */
    void (*app_free)(void *app);
};

struct http_req {
    enum http_version version;
    struct str method;
    struct str target;                 /* as sent: origin-form, or "*" for OPTIONS */
    struct str path;                   /* of the target, before '?', not decoded */
    struct str query;                  /* after '?', or empty */
    struct str host;                   /* Host or :authority, as sent */
    const struct http_header *headers; /* extended CONNECT: ":protocol" is among them */
    size_t header_count;
    int64_t body_size;  /* Content-Length; 0 for none; -1 when it will be seen */
    int64_t started_us; /* monotonic */
    struct http_peer *peer;
    struct arena arena; /* lives as long as the request; head strings are in it */

    /* Set by the application in on_request, or later. */
    void *app;
    void (*on_gone)(struct http_req *req);  /* the peer left or was cut: do not answer */
    void (*on_drain)(struct http_req *req); /* after HTTP_FULL: there is room again */

    struct http_stream *stream; /* the protocol's own side of it */
};

struct http_app {
    void (*on_request)(void *ctx, struct http_req *req);
    /*
     * Composes the body of an error that the protocol layer itself must answer (bad head, over a
     * limit, timeout) to a request for `path`, empty where none was read; content type
     * application/json. May be NULL.
     */
    void (*error_body)(void *ctx, struct str path, const struct err *err, struct buf *out);
    void *ctx;
};

/* ---- reading ---- */

/* The value of a header (lower-case name), or STR_NONE with p == NULL. The first if repeated. */
struct str http_header(const struct http_req *req, const char *name);

/*
 * Collects the body and calls `fn` once with all of it (borrowed: in the request's memory until
 * the request ends). Over `max` the request is answered 413 and ended (on_gone is called).
 */
void http_read_all(struct http_req *req, size_t max,
                   void (*fn)(struct http_req *req, struct str body));
/*
 * Calls `fn` with each piece (borrowed during the call); `last` with the final one, which may be
 * empty. Over `max`: 413 as above, or cut if the answer has begun.
 */
void http_read_stream(struct http_req *req, uint64_t max,
                      void (*fn)(struct http_req *req, struct str data, bool last));
void http_read_pause(struct http_req *req);
void http_read_resume(struct http_req *req);

/* ---- answering ---- */

/* Whole answer. Content-Length, Date and the security headers are added. Ends the request. */
void http_reply(struct http_req *req, int status, const struct http_header *headers, size_t count,
                struct str body);
/*
 * Streamed answer: chunked on HTTP/1.1 (unless the headers say content-length, which must then be
 * kept to the byte), DATA frames on HTTP/2. Status 101 on HTTP/1.1 (and 200 to
 * an extended CONNECT on HTTP/2) makes both directions raw bytes: http_read_stream then gives
 * whatever the peer sends and http_reply_write sends as is. That is all a WebSocket needs.
 */
void http_reply_begin(struct http_req *req, int status, const struct http_header *headers,
                      size_t count);
enum http_flow http_reply_write(struct http_req *req, struct str data);
/* Ends it; trailers (gRPC's status) may be NULL. Ends the request. */
void http_reply_end(struct http_req *req, const struct http_header *trailers, size_t count);
/*
 * Gives back what only the head needed (strings, arena); for answers that live long (SSE). A peer
 * that closes its sending side of such an answer counts as gone.
 */
void http_slim(struct http_req *req);
/*
 * From now on a peer that closes its sending side counts as gone, as for http_slim: nobody is left
 * for whom work should go on.
 */
void http_hangup_counts(struct http_req *req);
/* From now on a peer that reads nothing is waited for, and not cut after write_stall_ms. */
void http_patient(struct http_req *req);
/*
 * Does the peer have to read first? on_drain follows. A producer that is told of news meanwhile
 * asks before it writes: what is written all the same piles up until the peer is cut
 * (HTTP_OUT_MAX).
 */
bool http_full(const struct http_req *req);
/* Bytes written but not yet taken by the kernel. */
size_t http_unsent(const struct http_req *req);
/* Drops the connection (HTTP/1) or resets the stream (HTTP/2). on_gone is not called. */
void http_cut(struct http_req *req, const char *reason);

/* ---- server ---- */

struct http_server;
struct tls;

struct http_options {
    int64_t head_timeout_ms, keepalive_ms, write_stall_ms, body_window_ms; /* 0 means limits.h */
    unsigned conns_max, conns_per_peer_max;
};

must_use int http_server_new(struct http_server **out, struct loop *loop,
                             const struct http_app *app, const struct http_options *options,
                             struct err *err);
/* Takes a listening socket (TCP or Unix, already listening). `tls` may be NULL: plain. */
must_use int http_server_listen(struct http_server *server, int fd, struct tls *tls,
                                struct err *err);
/* Stops accepting, finishes what is under way, closes idle connections; `done` when none is left.
 */
void http_server_drain(struct http_server *server, int64_t max_ms, void (*done)(void *ctx),
                       void *ctx);
void http_server_free(struct http_server *server);
unsigned http_server_conns(const struct http_server *server);

/* The loop that serves this request, for timers of whoever took it over. */
struct loop *http_loop(const struct http_req *req);

/* The reason phrase of a status, "Unknown" if none. */
const char *http_reason(int status);
