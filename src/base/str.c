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
        *rest = str_from(*rest, rest->n);
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

size_t str_utf8_at(const char *p, size_t n, uint32_t *code)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    uint32_t c = n ? (unsigned char)p[0] : 0xff;
    size_t size = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;

    if (size == 0 || size > n)
        return 0;
    if (size > 1)
        c &= 0x7fu >> size;
    for (size_t i = 1; i < size; i++) {
        uint32_t more = (unsigned char)p[i];

        if ((more & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (more & 0x3f);
    }
    if (c < least[size] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    if (code)
        *code = c;
    return size;
}

bool str_utf8(struct str a)
{
    for (size_t i = 0; i < a.n;) {
        size_t size = str_utf8_at(a.p + i, a.n - i, NULL);

        if (size == 0)
            return false;
        i += size;
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
        { "ms", 1 },
        { "s", 1000 },
        { "m", 60ull * 1000 },
        { "h", 3600ull * 1000 },
        { "d", 86400ull * 1000 },
    };

    return with_unit(a, units, ARRAY_LEN(units), out);
}
