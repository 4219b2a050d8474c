/*
 * origin - the far end of a request that we relay: its answer, read piece by piece, without any
 * I/O.
 *
 * What answers is a program in a sandbox, so the answer is hostile bytes: the head is split by the
 * strict reader of client_head.h, a body is exactly as long as the head said, chunks are taken off,
 * trailers dropped. Nothing is passed on as it came: the server composes an answer of its own from
 * what was understood. Any thread.
 */
#pragma once

#include "http/client_head.h"
#include "http/h1.h"

struct origin {
    bool to_head;    /* the request was HEAD: set by the caller */
    bool may_switch; /* a 101 is welcome: likewise */

    /* once ORIGIN_HEAD was returned */
    int status;
    const struct http_header *headers; /* lower-case names; in the arena */
    size_t count;

    /* its own */
    enum { ORIGIN_IN_HEAD, ORIGIN_IN_BODY, ORIGIN_RAW, ORIGIN_OVER } at;
    enum client_framing framing;
    uint64_t left;
    struct h1_chunks chunks;
    struct buf head;
    struct arena arena;
};

enum origin_got {
    ORIGIN_BAD = -1, /* *err says why; nothing more is to be read */
    ORIGIN_MORE,     /* all was taken; more is needed */
    ORIGIN_HEAD,     /* the head is there */
    ORIGIN_DATA,     /* *piece is of the body, or raw after a 101 */
    ORIGIN_END,      /* the answer is complete; what follows is nobody's */
};

/* Takes bytes off *in up to the next thing to tell. */
enum origin_got origin_next(struct origin *origin, struct str *in, struct str *piece,
                            struct err *err);
/* The far end has closed: was the answer complete? */
bool origin_closed(const struct origin *origin);
void origin_free(struct origin *origin);

/* Does a comma-separated list, as of Connection, hold this word? */
bool header_lists(struct str list, struct str word);
/* Is it about one connection only (RFC 9110 section 7.6.1), whatever Connection lists besides? */
bool header_is_hop(struct str name);
