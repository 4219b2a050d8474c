/*
 * buf - growing bytes with a maximum.
 *
 * Writers append without looking; the first append that would pass `max` sets `over`, keeps what
 * was there and drops the rest, so one check at the end (buf_ok) covers a whole composition.
 * Zero is a valid empty buffer whose maximum is BUF_MAX_DEFAULT.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/str.h"

#define BUF_MAX_DEFAULT ((size_t)64 << 20)

struct buf {
    char *data; /* owned; not NUL-terminated unless buf_cstr was called */
    size_t len, cap;
    size_t max; /* 0 means BUF_MAX_DEFAULT */
    bool over;
};

void buf_free(struct buf *buf);
#define autobuf auto_with(buf_free)

void buf_clear(struct buf *buf); /* empties, keeps the memory */
void buf_append(struct buf *buf, const void *data, size_t len);
void buf_str(struct buf *buf, struct str text);
void buf_puts(struct buf *buf, const char *text);
void buf_u64(struct buf *buf, uint64_t value);
void buf_printf(struct buf *buf, const char *fmt, ...) printf_like(2, 3);
void buf_vprintf(struct buf *buf, const char *fmt, va_list args) printf_like(2, 0);

/* Room for `len` more bytes at data+len, for reading into; NULL (and over) past the maximum. */
char *buf_reserve(struct buf *buf, size_t len);
/* Removes `len` bytes from the front. */
void buf_consume(struct buf *buf, size_t len);
/* A NUL behind the bytes (not counted); the pointer lives until the next change. */
const char *buf_cstr(struct buf *buf);
/* Gives the bytes, NUL-terminated; the buffer is empty afterwards. */
char *buf_take(struct buf *buf, size_t *len);

static inline bool buf_ok(const struct buf *buf)
{
    return !buf->over;
}

/* Is the room for so many more bytes there already? */
static inline bool buf_fits(const struct buf *buf, size_t len)
{
    size_t max = buf->max ? buf->max : BUF_MAX_DEFAULT, room = buf->cap < max ? buf->cap : max;

    return buf->data && !buf->over && buf->len <= room && room - buf->len >= len;
}

static inline void buf_putc(struct buf *buf, char c)
{
    if (buf->data && buf_fits(buf, 1)) /* said here, too: an analyser does not look inside */
        buf->data[buf->len++] = c;
    else
        buf_append(buf, &c, 1);
}

static inline struct str buf_view(const struct buf *buf)
{
    return (struct str){ buf->data, buf->len };
}
