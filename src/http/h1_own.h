/*
 * h1_own - inside HTTP/1.1: one connection as h1.c (input, time) and h1_reply.c (answers) share it.
 */
#pragma once

#include "http/h1.h"
#include "http/proto.h"

/* This much of a body that nobody wants is read past, to keep the connection. */
#define H1_DISCARD_MAX 65536

struct h1 {
    struct http_stream stream;
    struct h1_resume resume; /* of an incomplete head */
    struct h1_chunks chunks;
    uint64_t body_left;  /* of a body with a length */
    uint64_t reply_left; /* of an answer whose length the application promised */
    uint64_t window_got; /* body bytes since window_ms */
    uint64_t discarded;
    int64_t since_ms; /* of being idle, of the first byte of a head */
    int64_t window_ms;

    bool in_head;    /* part of a head has come */
    bool busy;       /* a request is under way */
    bool served;     /* one has been: the keep-alive timeout counts */
    bool has_stream; /* the application's side of it is not over */
    bool body_over;  /* the request has been read to its end */
    bool keep_alive; /* after this request */
    bool is_head;
    bool chunked_in, chunked_out, counted_out; /* framing */
    bool bodiless;                             /* the answer has no body: HEAD, 204, 304 */
    bool expecting;                            /* 100 Continue is owed before the body is read */
    bool raw;                                  /* after 101 */
    bool peer_done;                            /* end of input seen */
    bool closed;                               /* the connection is gone */
};

static inline struct h1 *h1_of_stream(const struct http_stream *stream)
{
    return container_of(stream, struct h1, stream);
}

/* h1_reply.c: the operations of our streams; both directions of a request are over. */
extern const struct http_stream_ops h1_ops;
void h1_became_idle(struct h1 *h1);
