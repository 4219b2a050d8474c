/*
 * h1 - inside the http room: the two readers of HTTP/1.1 (RFC 9112), without any I/O, so that tests
 * and fuzzers can hold them against other implementations.
 *
 * Both are strict. What the RFC lets a server be lenient about is where two programs in a row come
 * to disagree on where a request ends, so all of it is refused: bare LF, folded lines, space before
 * a colon, repeated or contradicting lengths, odd transfer codings. Any thread.
 */
#pragma once

#include "base/limits.h"
#include "http/http.h"

/* Why a request is refused; always one of the constants in these files. */
struct h1_bad {
    int status;
    enum err_code code;
    const char *text;
};

/* ---- the head ---- */

struct h1_head {
    enum http_version version;
    struct str method, target, path, query, host;
    struct http_header headers[HTTP_FIELDS_MAX];
    size_t count;
    const struct http_header *fields; /* the same in the arena, after h1_head_finish */
    int64_t body_size;                /* -1: chunked */
    bool keep_alive, expect_continue;
};

/* How far an incomplete head has been checked, between calls; zero before the first. */
struct h1_resume {
    uint32_t line; /* where the first line begins that was not yet complete */
    uint32_t fields;
};

/*
 * Reads the lines of a head. Returns its length with the blank line when it is complete, 0 when
 * more bytes are needed (call again with the same bytes and more), -1 with *bad. The result does
 * not depend on how the bytes were cut. Slices point into `data`; only lines are checked.
 */
must_use int h1_head_scan(const char *data, size_t len, struct h1_resume *resume,
                          struct h1_head *head, const struct h1_bad **bad);
/*
 * Copies a scanned head of `len` bytes into the arena, lower-cases the names, and checks what the
 * fields mean together. -1 with *bad.
 */
must_use int h1_head_finish(struct arena *arena, const char *data, size_t len, struct h1_head *head,
                            const struct h1_bad **bad);

/* A token of RFC 9110: methods, header names. */
bool h1_is_token(struct str text);
/* No control bytes but the tab. */
bool h1_is_value(struct str text);

/* ---- chunked bodies ---- */

/* Zero is the start of a body. */
struct h1_chunks {
    uint8_t state;
    uint8_t digits; /* of the chunk size, so far */
    uint16_t line;  /* bytes of the size line or the trailers, so far */
    uint64_t left;  /* of the chunk */
};

/*
 * Takes bytes up to the end of one piece of data. Returns how many were taken; *piece is the data
 * in them (empty if there was only framing). *done when the body and its trailers are over. -1 with
 * *bad.
 */
must_use int64_t h1_chunks_next(struct h1_chunks *chunks, const char *data, size_t len,
                                struct str *piece, bool *done, const struct h1_bad **bad);
