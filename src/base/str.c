/* Slices: comparison, cutting, and the only number parsers the rest of the house may use. */
#include "base/str.h"

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool str_eq_nocase(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (lower(a.p[i]) != lower(b.p[i]))
            return false;
    return true;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

struct str str_trim(struct str a)
{
    while (a.n && blank(a.p[0]))
        a = str_from(a, 1);
    while (a.n && blank(a.p[a.n - 1]))
        a.n--;
    return a;
}

struct str str_cut(struct str *rest, char sep)
{
    const char *at = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
    struct str head = *rest;

    if (!at) {
        *rest = (struct str){ rest->p + rest->n, 0 };
        return head;
    }
    head.n = (size_t)(at - rest->p);
    *rest = str_from(*rest, head.n + 1);
    return head;
}

bool str_to_u64(struct str a, uint64_t *out)
{
    uint64_t value = 0;

    if (a.n == 0 || (a.n > 1 && a.p[0] == '0'))
        return false;
    for (size_t i = 0; i < a.n; i++) {
        if (a.p[i] < '0' || a.p[i] > '9')
            return false;
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(a.p[i] - '0'), &value))
            return false;
    }
    *out = value;
    return true;
}

bool str_to_i64(struct str a, int64_t *out)
{
    bool minus = a.n && a.p[0] == '-';
    uint64_t value;

    if (!str_to_u64(minus ? str_from(a, 1) : a, &value))
        return false;
    if (value > (uint64_t)INT64_MAX + (minus ? 1 : 0) || (minus && value == 0))
        return false;
    *out = minus ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

bool str_utf8(struct str a)
{
    const unsigned char *p = (const unsigned char *)a.p;
    size_t i = 0;

    while (i < a.n) {
        unsigned c = p[i];
        size_t more;
        uint32_t min, code;

        if (c < 0x80) {
            i++;
            continue;
        }
        if (c >= 0xc2 && c <= 0xdf)
            more = 1, min = 0x80, code = c & 0x1f;
        else if (c >= 0xe0 && c <= 0xef)
            more = 2, min = 0x800, code = c & 0x0f;
        else if (c >= 0xf0 && c <= 0xf4)
            more = 3, min = 0x10000, code = c & 0x07;
        else
            return false;
        if (a.n - i <= more)
            return false;
        for (size_t k = 1; k <= more; k++) {
            if ((p[i + k] & 0xc0) != 0x80)
                return false;
            code = code << 6 | (p[i + k] & 0x3fu);
        }
        if (code < min || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            return false;
        i += more + 1;
    }
    return true;
}

struct unit {
    const char *name;
    uint64_t factor;
};

static bool with_unit(struct str a, const struct unit *units, size_t count, uint64_t *out)
{
    size_t digits = 0;
    uint64_t value;

    while (digits < a.n && a.p[digits] >= '0' && a.p[digits] <= '9')
        digits++;
    if (!str_to_u64((struct str){ a.p, digits }, &value))
        return false;
    for (size_t i = 0; i < count; i++)
        if (str_is(str_from(a, digits), units[i].name))
            return !__builtin_mul_overflow(value, units[i].factor, out);
    return false;
}

bool str_to_bytes(struct str a, uint64_t *out)
{
    static const struct unit units[] = {
        { "", 1 },         { "k", 1024 },       { "K", 1024 },
        { "M", 1u << 20 }, { "m", 1u << 20 },   { "G", 1u << 30 },
        { "g", 1u << 30 }, { "T", 1ull << 40 }, { "t", 1ull << 40 },
    };

    return with_unit(a, units, ARRAY_LEN(units), out);
}

bool str_to_ms(struct str a, uint64_t *out)
{
    static const struct unit units[] = {
        { "ms", 1 }, { "s", 1000 }, { "m", 60 * 1000 }, { "h", 3600 * 1000 }, { "d", 86400 * 1000 },
    };

    return with_unit(a, units, ARRAY_LEN(units), out);
}
