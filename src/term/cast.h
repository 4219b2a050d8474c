/*
 * cast - a terminal's output as asciicast v2, for recordings that players everywhere understand.
 *
 * A header line, then one line for each event: [seconds, "o", text] for output, [seconds, "r",
 * "COLSxROWS"] for another size, both JSON. Output comes in any pieces: a character that is cut in
 * two is held back until its rest comes, and what is no UTF-8 becomes U+FFFD. Nothing fails but the
 * buffer that is written to (buf_ok).
 */
#pragma once

#include "base/buf.h"

struct cast {
    int64_t start_ms; /* of the clock that events are told in */
    int64_t last_ms;  /* times never go back */
    char held[4];     /* the beginning of a character */
    unsigned char held_len;
};

struct cast_head {
    unsigned rows, cols;
    int64_t start_ms; /* of the first event's clock */
    int64_t wall_ms;  /* when that was, since 1970 */
    struct str title; /* left out when empty, and so are these */
    struct str command;
    struct str term; /* the environment's TERM */
};

/* Begins a recording: writes the header. */
void cast_begin(struct cast *cast, const struct cast_head *head, struct buf *out);
void cast_output(struct cast *cast, int64_t at_ms, struct str bytes, struct buf *out);
void cast_resize(struct cast *cast, int64_t at_ms, unsigned rows, unsigned cols, struct buf *out);
/* A character whose rest never came. */
void cast_end(struct cast *cast, int64_t at_ms, struct buf *out);
