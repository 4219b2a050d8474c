/*
 * Chunked bodies (RFC 9112 section 7.1): a state per place in the grammar, moved by one byte at a
 * time except inside data, which is taken whole.
 *
 *     SIZE (hex digits) -> EXT? -> SIZE_LF -> DATA -> DATA_CR -> DATA_LF -> SIZE …
 *     a size of 0 leads from SIZE_LF to the trailers: LINE -> NAME -> VALUE -> VALUE_LF -> LINE …
 *     and an empty line: LINE -> END_LF -> done
 *
 * Trailers are checked like header fields and dropped: nothing a client says there is used.
 */
#include "http/h1.h"

enum { SIZE, EXT, SIZE_LF, DATA, DATA_CR, DATA_LF, LINE, NAME, VALUE, VALUE_LF, END_LF, OVER };

#define SIZE_DIGITS_MAX 15 /* 2^60: cannot overflow, is over every limit */

/* clang-format off */
static const struct h1_bad
    bad_chunk     = { 400, ERR_INVALID, "malformed chunk" },
    long_chunk    = { 400, ERR_INVALID, "chunk line too long" },
    bad_trailer   = { 400, ERR_INVALID, "malformed trailer" },
    long_trailers = { 431, ERR_HEADERS, "trailers too large" };
/* clang-format on */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool control(char c)
{
    return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

/* A byte of the line with the size and extensions; the new state or -1. */
static int step_size(struct h1_chunks *chunks, char c, const struct h1_bad **bad)
{
    int digit = chunks->state == SIZE ? hex_value(c) : -1;

    *bad = &bad_chunk;
    if (++chunks->line > HTTP_CHUNK_LINE_MAX) {
        *bad = &long_chunk;
        return -1;
    }
    if (chunks->state == SIZE_LF) {
        if (c != '\n')
            return -1;
        chunks->line = 0;
        chunks->digits = 0;
        return chunks->left ? DATA : LINE;
    }
    if (digit >= 0) {
        if (chunks->digits == SIZE_DIGITS_MAX)
            return -1;
        chunks->digits++;
        chunks->left = chunks->left * 16 + (uint64_t)digit;
        return SIZE;
    }
    if (!chunks->digits)
        return -1;
    if (c == '\r')
        return SIZE_LF;
    if (chunks->state == SIZE)
        return c == ';' ? EXT : -1;
    return control(c) ? -1 : EXT;
}

static int step_trailer(struct h1_chunks *chunks, char c, const struct h1_bad **bad)
{
    *bad = &bad_trailer;
    if (++chunks->line > HTTP_TRAILER_MAX) {
        *bad = &long_trailers;
        return -1;
    }
    switch (chunks->state) {
    case LINE:
        if (c == '\r')
            return END_LF;
        return h1_is_token((struct str){ &c, 1 }) ? NAME : -1;
    case NAME:
        if (c == ':')
            return VALUE;
        return h1_is_token((struct str){ &c, 1 }) ? NAME : -1;
    case VALUE:
        if (c == '\r')
            return VALUE_LF;
        return control(c) ? -1 : VALUE;
    case VALUE_LF:
        return c == '\n' ? LINE : -1;
    default: /* END_LF */
        return c == '\n' ? OVER : -1;
    }
}

static int step(struct h1_chunks *chunks, char c, const struct h1_bad **bad)
{
    switch (chunks->state) {
    case SIZE:
    case EXT:
    case SIZE_LF:
        return step_size(chunks, c, bad);
    case DATA_CR:
        *bad = &bad_chunk;
        return c == '\r' ? DATA_LF : -1;
    case DATA_LF:
        *bad = &bad_chunk;
        return c == '\n' ? SIZE : -1;
    default:
        return step_trailer(chunks, c, bad);
    }
}

int64_t h1_chunks_next(struct h1_chunks *chunks, const char *data, size_t len, struct str *piece,
                       bool *done, const struct h1_bad **bad)
{
    size_t at = 0;

    *piece = STR_NONE;
    *done = false;
    while (at < len && chunks->state != OVER) {
        if (chunks->state == DATA) {
            size_t take = MIN(len - at, chunks->left);

            *piece = (struct str){ data + at, take };
            chunks->left -= take;
            if (!chunks->left)
                chunks->state = DATA_CR;
            return (int64_t)(at + take);
        }
        int next = step(chunks, data[at], bad);
        if (next < 0)
            return -1;
        chunks->state = (uint8_t)next;
        at++;
    }
    *done = chunks->state == OVER;
    return (int64_t)at;
}
