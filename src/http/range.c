/* See range.h. */
#include "http/range.h"

#include <stdio.h>

/* 1*DIGIT; more digits than fit are as good as the largest number. */
static bool number(struct str text, uint64_t *out)
{
    uint64_t value = 0;

    if (!text.n)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        unsigned digit = (unsigned)(text.p[i] - '0');

        if (digit > 9)
            return false;
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, digit, &value))
            value = UINT64_MAX / 16; /* stays huge, however many follow */
    }
    *out = value;
    return true;
}

enum http_range http_range_parse(struct str value, uint64_t size, uint64_t *first, uint64_t *last)
{
    struct str unit = STR("bytes=");
    uint64_t from, to = UINT64_MAX;

    if (!value.p || value.n < unit.n || !str_eq_nocase((struct str){ value.p, unit.n }, unit))
        return HTTP_RANGE_NONE;
    value = str_trim(str_from(value, unit.n));
    const char *dash = value.n ? memchr(value.p, '-', value.n) : NULL;
    if (!dash)
        return HTTP_RANGE_NONE;
    struct str left = { value.p, (size_t)(dash - value.p) };
    struct str right = str_from(value, left.n + 1);

    if (!left.n) { /* the last N bytes */
        if (!number(right, &to))
            return HTTP_RANGE_NONE;
        if (!to || !size)
            return HTTP_RANGE_BAD;
        *first = to < size ? size - to : 0;
        *last = size - 1;
        return HTTP_RANGE_PART;
    }
    if (!number(left, &from) || (right.n && (!number(right, &to) || to < from)))
        return HTTP_RANGE_NONE;
    if (from >= size)
        return HTTP_RANGE_BAD;
    *first = from;
    *last = to < size ? to : size - 1;
    return HTTP_RANGE_PART;
}

struct str http_range_text(char out[HTTP_RANGE_TEXT_SIZE], enum http_range range, uint64_t first,
                           uint64_t last, uint64_t size)
{
    int len =
        range == HTTP_RANGE_PART
            ? snprintf(out, HTTP_RANGE_TEXT_SIZE, "bytes %llu-%llu/%llu", (unsigned long long)first,
                       (unsigned long long)last, (unsigned long long)size)
            : snprintf(out, HTTP_RANGE_TEXT_SIZE, "bytes */%llu", (unsigned long long)size);

    return (struct str){ out, (size_t)len };
}
