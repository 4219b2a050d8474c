/*
 * h2_own - what the files of HTTP/2 share: h2.c (the connection), h2_head.c (requests from header
 * blocks), h2_stream.c (answers to frames). Loop thread.
 *
 * A stream lives as long as either side needs it: nghttp2, until on_stream_close (`closed`), and
 * the core, until the release operation (`released`). Whoever comes second frees it.
 */
#pragma once

#include <nghttp2/nghttp2.h>

#include "http/proto.h"

/* Why a head is refused. */
struct h2_bad {
    int status;
    enum err_code code;
    const char *text;
};

struct h2 {
    struct http_conn *conn;
    nghttp2_session *session; /* owned */
    struct list streams;      /* all that nghttp2 knows */
    unsigned stream_count;
    struct list ready; /* streams about which the application is to be told something */
    size_t queued;     /* unsent bytes of all streams */
    bool crowded;      /* so many that producers with empty queues wait too */
    unsigned busy;     /* nghttp2 is running: do not delete its session */
    bool dead;         /* the connection is gone */
    const char *fault; /* GOAWAY is queued for this reason; when it is out we close */

    size_t block;     /* bytes of the header block under way, continuations included */
    int64_t block_ms; /* when it began; 0: none is under way */
    bool greeted;     /* the client's SETTINGS came */
    int64_t born_ms, idle_ms;
    int64_t window_ms; /* abuse is counted since then */
    unsigned resets, idle_frames;
    int64_t goaway_ms; /* draining: when the last streams are cut off from new ones; 0: not */
    bool goaway;
};

struct h2_stream {
    struct http_stream base;
    struct h2 *h2; /* NULL once `closed` */
    struct list link, ready_link;
    int32_t id;

    /* The head, while it comes in. All in base.req.arena. */
    struct http_header *headers;
    size_t header_room;
    size_t head_size; /* as RFC 9113 section 6.5.2 counts */
    struct str authority, protocol;
    bool has_authority;
    const struct h2_bad *bad; /* refuse when the head is complete */

    /* The answer. */
    struct buf out; /* [out_at, len) waits for nghttp2 */
    size_t out_at;
    nghttp2_nv *trailers; /* owned, with their text */
    size_t trailer_count;
    int64_t moved_ms; /* when the peer last took bytes, or the first ones were queued */

    /* The body. */
    size_t unconsumed; /* received, not yet reported to flow control */
    int64_t rate_ms;   /* start of the window over which its rate is measured; 0: not measured */
    uint64_t rate_got;

    int64_t answered_ms; /* the answer is out and the body still comes; 0: not */

    const char *doomed; /* cut it in the next turn, for this reason */
    uint32_t doom_code;
    bool wants;    /* the application asked for body */
    bool late;     /* the body came too slowly */
    bool expect;   /* 100-continue is awaited */
    bool deferred; /* nghttp2 waits for nghttp2_session_resume_data */
    bool out_end;  /* what is queued is all */
    bool no_body;  /* HEAD, 204, 304: whatever is written is dropped */
    bool closed, released;
};

/* ---- h2.c ---- */

/* Puts the stream on the list of those to be looked at in the (next) turn. */
void h2_ready(struct h2_stream *stream);
/* Closes the connection after GOAWAY with this code. `reason` is constant. */
void h2_fail(struct h2 *h2, uint32_t code, const char *reason);

/* ---- h2_head.c ---- */

/* Begins a stream; NULL when the connection takes none. */
struct h2_stream *h2_stream_new(struct h2 *h2, int32_t id);
void h2_head_field(struct h2_stream *stream, struct str name, struct str value);
/* The head is complete: to the application with it, or refuse it. */
void h2_head_done(struct h2_stream *stream, bool no_body);

/* ---- h2_stream.c ---- */

extern const struct http_stream_ops h2_stream_ops;

size_t h2_unsent(const struct h2_stream *stream);
/* May its producer go on? */
bool h2_has_room(const struct h2_stream *stream);
/* nghttp2 has closed it, or the connection is gone. May free the stream. */
void h2_stream_closed(struct h2_stream *stream, const char *reason);
