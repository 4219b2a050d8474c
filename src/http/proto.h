/*
 * proto - inside the http room: what the connection core (server.c) and the protocols (h1.c, h2.c)
 * owe each other. Nobody outside src/http includes this. Loop thread.
 *
 * The core owns the socket, TLS, the bytes that wait in either direction, timeouts of writing, caps
 * and accounting. A protocol turns bytes into streams (one per request) and answers into bytes.
 * The public calls of http.h arrive as the operations of http_stream.
 *
 *     socket -> core -> proto.on_data -> http_stream_request, http_stream_body -> application
 *     application -> http_reply… -> stream ops -> http_conn_write -> core -> socket
 *
 * Re-entrance. Every call of a protocol's function by the core is a *turn* of that connection.
 * What is written during a turn is gathered and sent once, when it ends; proto.on_flush is the last
 * call of each turn. A write outside a turn (an answer that comes later) goes out at once;
 * a protocol that would rather gather those too asks for a turn by http_conn_later, which comes at
 * the end of this round of the loop. Application callbacks are made only inside a turn.
 *
 * Lifetime. http_conn_close and http_conn_cut may be called at any time, inside a turn too:
 * the connection is then dead (conn->dead), proto.on_close has been called, and its memory stays
 * until the round of the loop ends. A stream that ends while the core is inside one of the
 * application's callbacks for it is released when that callback returns. So: after any call that
 * can reach the application, look at conn->dead, and do not touch a stream for which the call
 * returned false.
 */
#pragma once

#include "http/http.h"

struct http_conn;
struct http_stream;

/* ---- what a protocol provides ---- */

struct http_proto {
    const char *name;

    /*
     * Bytes from the peer; returns how many were taken. The rest is kept by the core and offered
     * again, together with what follows. Also called without new bytes (len may be 0) in the turn
     * that http_conn_later asked for. Not called while reading is stopped (http_conn_reading) or
     * more than HTTP_OUT_HIGH bytes are unsent.
     */
    size_t (*on_data)(struct http_conn *conn, const char *data, size_t len);
    /* Last call of every turn: put out what is ready while http_conn_room allows. May be NULL. */
    void (*on_flush)(struct http_conn *conn);
    /*
     * The socket took bytes and no more than HTTP_OUT_LOW are unsent: producers may go on. Called
     * only if more had been unsent, or if a write had filled the socket. May be NULL.
     */
    void (*on_room)(struct http_conn *conn);
    /* The peer will send no more; bytes not taken are offered again only in turns asked for. */
    void (*on_eof)(struct http_conn *conn);
    /* Every so often (at most each second), for timeouts. */
    void (*on_tick)(struct http_conn *conn, int64_t now_ms);
    /* The server drains: finish what is under way, take nothing new, close when idle. */
    void (*on_drain)(struct http_conn *conn);
    /*
     * The connection is gone: http_stream_gone for each stream that lives, free conn->state. Called
     * exactly once, not necessarily inside a turn. `reason` is a constant text for the log.
     */
    void (*on_close)(struct http_conn *conn, const char *reason);
};

/*
 * The operations behind http.h. The core checks the state first (nothing after the end, begin
 * before write), so a protocol sees only calls that make sense.
 */
struct http_stream_ops {
    /*
     * The application wants (more of) the body: it asked for it the first time, or resumed after a
     * pause. Nothing is delivered from inside this call: HTTP/1 asks for a turn; HTTP/2 notes the
     * stream, asks for a turn and calls http_stream_deliver in it.
     */
    void (*want)(struct http_stream *stream);
    /* `len` bytes of body have reached the application (flow control). May be NULL. */
    void (*consumed)(struct http_stream *stream, size_t len);

    /* Whole answer; calls http_stream_end when it is queued. */
    void (*reply)(struct http_stream *stream, int status, const struct http_header *headers,
                  size_t count, struct str body);
    void (*reply_begin)(struct http_stream *stream, int status, const struct http_header *headers,
                        size_t count);
    /*
     * HTTP_CUT: the peer is gone or just proved too slow; http_stream_gone follows in a later turn,
     * never from inside this call.
     */
    enum http_flow (*reply_write)(struct http_stream *stream, struct str data);
    /* Calls http_stream_end; bytes may still be unsent. */
    void (*reply_end)(struct http_stream *stream, const struct http_header *trailers, size_t count);
    size_t (*unsent)(const struct http_stream *stream);
    /* Head strings are no longer needed: the core frees the arena, drop the rest. May be NULL. */
    void (*slim)(struct http_stream *stream);
    /* Reset the stream or drop the connection; calls http_stream_end first. */
    void (*cut)(struct http_stream *stream, const char *reason);
    /*
     * The stream has ended and nobody looks at it any more: free its memory or take the next
     * request. The arena and the body are already freed.
     */
    void (*release)(struct http_stream *stream);
};

enum http_reading { HTTP_READ_NONE, HTTP_READ_ALL, HTTP_READ_STREAM };

/*
 * One request and its answer. A protocol embeds it in its own struct, zeroed, and finds that again
 * by container_of.
 */
struct http_stream {
    const struct http_stream_ops *ops;
    struct http_conn *conn;
    struct http_req req;

    /* The rest is the core's; protocols may read the flags. */
    union {
        void (*all)(struct http_req *req, struct str body);
        void (*piece)(struct http_req *req, struct str data, bool last);
    } on_body;
    struct buf body;             /* collected, or held until the application wants it */
    uint64_t body_max, body_got; /* got: bytes seen by http_stream_body */
    size_t body_seen;            /* of `body`, those that the protocol was told of (consumed) */
    unsigned held;               /* callbacks of the application under way */
    uint16_t status;             /* of the answer, once begun */
    uint8_t reading;             /* enum http_reading */
    bool paused;                 /* by http_read_pause */
    bool body_done;              /* the last piece has come from the peer */
    bool body_told;              /* and has reached the application */
    bool shown;                  /* on_request was called */
    bool begun;                  /* answer begun */
    bool full;                   /* HTTP_FULL was said: on_drain is owed */
    bool slim;                   /* http_slim was called */
    bool hangup_counts;          /* so was http_hangup_counts */
    bool patient;                /* so was http_patient */
    bool refused;                /* by http_stream_refuse: the application is out of it */
    bool ended;                  /* released when `held` falls to 0 */
};

/* ---- streams: what the core provides ---- */

/* Of a zeroed stream: binds it, stamps started_us. The protocol then fills req's head fields. */
void http_stream_init(struct http_stream *stream, const struct http_stream_ops *ops,
                      struct http_conn *conn);

/*
 * The head is complete: calls the application. With req.body_size == 0 the body is over at once.
 * False: the stream ended meanwhile; do not touch it.
 */
must_use bool http_stream_request(struct http_stream *stream);

/*
 * Bytes of body, already unframed; `last` with or after the final ones. Delivered if the
 * application reads, held otherwise: a protocol with flow control of its own (HTTP/2) bounds them
 * by its window, one without asks http_stream_wants first. Over the application's limit the stream
 * is refused with 413. False: the stream ended meanwhile; do not touch it.
 */
must_use bool http_stream_body(struct http_stream *stream, const char *data, size_t len, bool last);
/* Does the application take body bytes now? */
bool http_stream_wants(const struct http_stream *stream);
/* Delivers what is held, if wanted. False: the stream ended meanwhile. */
must_use bool http_stream_deliver(struct http_stream *stream);

/* There is room again: calls req.on_drain if HTTP_FULL had been said. False: ended meanwhile. */
must_use bool http_stream_drained(struct http_stream *stream);

/*
 * Our own refusal (bad body, over a limit, too slow): answers with the application's error_body if
 * no answer has begun, cuts otherwise; tells on_gone if the application had seen the request.
 * ERR_TIMEOUT is 408 here. HTTP/1 closes the connection after it.
 */
void http_stream_refuse(struct http_stream *stream, const struct err *err);
/* The same with a status that no error code stands for (414, 505). */
void http_stream_refuse_as(struct http_stream *stream, int status, const struct err *err);

/* The answer is complete (or the stream was cut by the application): released when not held. */
void http_stream_end(struct http_stream *stream);
/* The peer left, reset or was cut: on_gone if the application had seen it, then end. */
void http_stream_gone(struct http_stream *stream, const char *reason);

/* ---- connections: what the core provides ---- */

/* Small output is gathered to this much per send. */
#define HTTP_SEND_MAX 65536
#define HTTP_OUT_LOW (HTTP_OUT_HIGH / 4)

struct http_conn {
    struct watch watch;
    const struct http_proto *proto;
    void *state; /* the protocol's own; freed in on_close */
    struct http_server *server;
    struct http_peer peer;
    int64_t active_ms; /* when bytes last came in */
    bool dead;         /* closed; the memory goes at the end of the round */
    bool draining;     /* the server is: no new requests, please */

    /* The rest is the core's (conn.c). */
    unsigned patient; /* streams whose peer may read as slowly as it likes */
    bool in_turn, again, stop_reading, eof, rdhup, closing, lingering, owes_room, handshaking,
        read_more;
    const char *doomed;     /* why it will be cut at the end of the round */
    struct list link;       /* in server.conns or server.dead */
    struct list later_link; /* in server.later */
    struct tls_conn *tls;   /* NULL: plain */
    struct tls *tls_server; /* of the listener, until the first byte is seen */
    struct buf in;          /* received, not yet taken; no memory while empty */
    char *out;              /* unsent bytes [out_at, out_end); NULL while none */
    size_t out_at, out_end, out_cap;
    size_t lingered;    /* bytes thrown away while closing */
    int64_t stalled_ms; /* since when the socket has taken nothing; 0: not waiting */
};

/* HTTP/2 over this connection, from its client preface on (which on_data will see). */
void h2_start(struct http_conn *conn);
void h1_start(struct http_conn *conn);

/* Sends, or queues behind what waits. The bytes are copied if they cannot go at once. */
void http_conn_write(struct http_conn *conn, const struct str *parts, size_t count);
/* Bytes not yet taken by the kernel, those gathered in this turn included. */
size_t http_conn_unsent(const struct http_conn *conn);
/* How much more may be written before HTTP_SEND_MAX bytes wait; 0 when on_room will tell. */
size_t http_conn_room(struct http_conn *conn);
/* Asks for a turn at the end of this round of the loop (nothing to do inside a turn). */
void http_conn_later(struct http_conn *conn);
/* The same from inside a turn: there is more to do, but others should have their turn first. */
void http_conn_again(struct http_conn *conn);
/* Stops and restarts reading from the socket and on_data. */
void http_conn_reading(struct http_conn *conn, bool on);

/* Sends what waits, then closes; on_data is called no more. Streams must have ended. */
void http_conn_finish(struct http_conn *conn, const char *reason);
/* Drops all output from now on and cuts at the end of the round; safe where cutting is not. */
void http_conn_doom(struct http_conn *conn, const char *reason);
/* Closes at once, dropping what is unsent. */
void http_conn_cut(struct http_conn *conn, const char *reason);

const struct http_app *http_conn_app(const struct http_conn *conn);
/* With the defaults of limits.h filled in. */
const struct http_options *http_conn_options(const struct http_conn *conn);
int64_t http_conn_now(const struct http_conn *conn); /* loop_now */

/* ---- what both write into every answer ---- */

/* "Sun, 06 Nov 1994 08:49:37 GMT", refreshed each second. */
struct str http_date(struct http_conn *conn);
/* The security headers, lower case, for HTTP/2; HTTP/1 has them as one block. */
extern const struct http_header http_security_headers[];
extern const size_t http_security_header_count;
/* "cache-control: no-store" is added unless the application gave a cache-control of its own. */
bool http_has_header(const struct http_header *headers, size_t count, const char *name);
/*
 * May this header of the application's go out? The name is a token and not one of those that
 * belong to the protocol (connection, transfer-encoding, keep-alive, date…); the value has no
 * control bytes. One that may not is dropped and logged: it would split the answer.
 */
bool http_header_allowed(const struct http_header *header);
