/*
 * str - a slice of bytes: pointer and length, borrowed from whoever owns the memory.
 *
 * Inside the program text is slices; NUL-terminated strings appear only where a system call or a
 * library wants one, after str_has_nul() said that none is hidden inside.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/auto.h"

struct str {
    const char *p;
    size_t n;
};

/* For printf's "%.*s". */
#define STR_FMT(s) (int)((s).n > 4096 ? 4096 : (s).n), (s).p
#define STR(literal) ((struct str){ "" literal, sizeof(literal) - 1 })
/* The same as a constant initialiser, for static tables. */
#define STR_INIT(literal)                                                                          \
    {                                                                                              \
        "" literal, sizeof(literal) - 1                                                            \
    }
#define STR_NONE ((struct str){ 0 })

static inline struct str str_of(const char *text)
{
    return text ? (struct str){ text, strlen(text) } : STR_NONE;
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool str_is(struct str a, const char *text)
{
    return str_eq(a, str_of(text));
}

static inline bool str_starts(struct str a, struct str prefix)
{
    return a.n >= prefix.n && (prefix.n == 0 || memcmp(a.p, prefix.p, prefix.n) == 0);
}

static inline bool str_has_nul(struct str a)
{
    return a.n && memchr(a.p, 0, a.n) != NULL;
}

static inline struct str str_from(struct str a, size_t at)
{
    if (at >= a.n)
        at = a.n;
    return at ? (struct str){ a.p + at, a.n - at } : a; /* NULL + 0 is not allowed in C */
}

bool str_eq_nocase(struct str a, struct str b); /* ASCII */
struct str str_trim(struct str a);              /* spaces and tabs at both ends */

/* Cuts *rest at the first `sep`: the part before is returned, *rest becomes what follows it. */
struct str str_cut(struct str *rest, char sep);

/* Decimal digits only: no sign, no space, no leading zero except "0". False leaves *out alone. */
must_use bool str_to_u64(struct str a, uint64_t *out);
must_use bool str_to_i64(struct str a, int64_t *out);

/* Is it well-formed UTF-8 (no surrogates, no overlong forms)? */
bool str_utf8(struct str a);
/*
 * Bytes (1 to 4) of the well-formed sequence that begins p[0..n), and its code point; 0 when none
 * does. `code` may be NULL.
 */
size_t str_utf8_at(const char *p, size_t n, uint32_t *code);

/* "10", "64k", "512M", "2G", "1T" in bytes; "250ms", "30s", "5m", "2h", "7d" in milliseconds. */
must_use bool str_to_bytes(struct str a, uint64_t *out);
must_use bool str_to_ms(struct str a, uint64_t *out);
