/* Growth doubles; the sticky `over` flag is the whole error handling of composing text. */
#include "base/buf.h"

#include <stdio.h>

#include "base/mem.h"

void buf_free(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){ .max = buf->max };
}

void buf_clear(struct buf *buf)
{
    buf->len = 0;
    buf->over = false;
}

char *buf_reserve(struct buf *buf, size_t len)
{
    size_t max = buf->max ? buf->max : BUF_MAX_DEFAULT;

    if (buf->over || len > max || buf->len > max - len) {
        buf->over = true;
        return NULL;
    }
    if (buf->cap - buf->len < len || !buf->data) {
        size_t cap = buf->cap ? buf->cap : 64;

        while (cap - buf->len < len)
            cap = cap > SIZE_MAX / 2 ? SIZE_MAX : cap * 2;
        buf->data = xrealloc(buf->data, cap);
        buf->cap = cap;
    }
    return buf->data + buf->len;
}

void buf_append(struct buf *buf, const void *data, size_t len)
{
    if (!len)
        return;
    if (!buf_fits(buf, len) && !buf_reserve(buf, len))
        return;
    memcpy(buf->data + buf->len, data, len);
    buf->len += len;
}

void buf_str(struct buf *buf, struct str text)
{
    buf_append(buf, text.p, text.n);
}

void buf_puts(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

void buf_u64(struct buf *buf, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    buf_append(buf, digits + at, sizeof(digits) - at);
}

/* By way of the stack: vsnprintf wants room for a NUL, which the maximum has no place for. */
void buf_vprintf(struct buf *buf, const char *fmt, va_list args)
{
    char few[256];
    va_list again;

    va_copy(again, args);
    int len = vsnprintf(few, sizeof(few), fmt, args);
    if (len >= (int)sizeof(few)) {
        autofree char *many = xmalloc((size_t)len + 1);

        vsnprintf(many, (size_t)len + 1, fmt, again);
        buf_append(buf, many, (size_t)len);
    } else if (len > 0) {
        buf_append(buf, few, (size_t)len);
    }
    va_end(again);
}

void buf_printf(struct buf *buf, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    buf_vprintf(buf, fmt, args);
    va_end(args);
}

void buf_consume(struct buf *buf, size_t len)
{
    if (len >= buf->len) {
        buf->len = 0;
        return;
    }
    memmove(buf->data, buf->data + len, buf->len - len);
    buf->len -= len;
}

const char *buf_cstr(struct buf *buf)
{
    if (buf->cap == buf->len) {
        buf->cap = buf->len + 1;
        buf->data = xrealloc(buf->data, buf->cap);
    }
    buf->data[buf->len] = 0;
    return buf->data;
}

char *buf_take(struct buf *buf, size_t *len)
{
    buf_cstr(buf);
    if (len)
        *len = buf->len;
    char *data = buf->data;
    *buf = (struct buf){ .max = buf->max };
    return data;
}
