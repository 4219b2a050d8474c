/*
 * The reader. No recursion: open containers stand on a stack of JSON_DEPTH_MAX frames, and each
 * step reads one member, element or closing bracket of the innermost. A node is written once, into
 * arena memory that nobody zeroed. Strings are scanned eight bytes at a time; only one that holds
 * an escape is copied.
 *
 * Duplicate keys. Two readers of one document may each believe a different one of two equal keys,
 * so there must not be two. Up to KEYS_NEAR members a key is compared with its siblings, and hardly
 * ever that: a 64-bit summary of the keys seen tells most new ones apart. Longer objects are
 * checked in one pass when they close, through a hash table with a secret seed, so nobody can make
 * this quadratic.
 *
 * Numbers. Integers that fit int64 are that. Anything else is the nearest double: by one exact
 * multiplication when digits and exponent are small (Clinger's fast path), else by strtod on at
 * most 768 significant digits, which decide the rounding of every double.
 */
#include "base/json.h"

#include <math.h>
#include <stdio.h>

#include "base/json_scan.h"
#include "base/limits.h"
#include "base/map.h"

#define KEYS_NEAR 16u
#define DIGITS_MAX 768u
#define EXPONENT_MAX 100000000 /* past any that digits within JSON_SIZE_MAX could compensate */

struct frame {
    struct json *node, *last;
    uint64_t seen; /* summary of the keys so far */
};

struct reader {
    const char *p, *end, *start;
    struct arena *arena;
    struct err *err;
    unsigned depth;
    uint32_t values;
    const struct json **table; /* owned; scratch of check_keys */
    size_t table_cap;
    struct frame stack[JSON_DEPTH_MAX];
};

static int fail(struct reader *r, const char *at, const char *what)
{
    return err_set(r->err, ERR_INVALID, "bad JSON at byte %zu: %s", (size_t)(at - r->start), what);
}

/* The next byte that is no white space, not taken; -1 at the end. */
static inline int peek(struct reader *r)
{
    const char *p = r->p;

    while (p < r->end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'))
        p++;
    r->p = p;
    return p < r->end ? (unsigned char)*p : -1;
}

/* ---- strings ---- */

/* As skip_plain, copying on the way; `*out` needs 8 bytes more room than is used. */
static inline const char *copy_plain(const char *p, const char *end, char **out)
{
    while (end - p >= 8) {
        uint64_t word;

        memcpy(&word, p, 8);
        memcpy(*out, &word, 8);
        uint64_t marks = specials(word);
        size_t n = marks ? (size_t)(__builtin_ctzll(marks) >> 3) : 8;
        p += n;
        *out += n;
        if (marks)
            return p;
    }
    while (p < end && !is_special(*p))
        *(*out)++ = *p++;
    return p;
}

static bool hex4(const char *p, const char *end, uint32_t *out)
{
    uint32_t value = 0;

    if (end - p < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        uint32_t c = (unsigned char)p[i], lower = c | 0x20;

        if (c >= '0' && c <= '9')
            value = value << 4 | (c - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = value << 4 | (lower - 'a' + 10);
        else
            return false;
    }
    *out = value;
    return true;
}

static char *put_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

/* \uXXXX at p, of a string that closes at `end`; where it ends, or NULL with the error set. */
static const char *read_unicode(struct reader *r, const char *p, const char *end, char **out)
{
    uint32_t code, low;

    if (!hex4(p + 2, end, &code))
        return fail(r, p, "\\u needs four hex digits"), NULL;
    if (code == 0)
        return fail(r, p, "NUL in a string"), NULL;
    if (code >= 0xdc00 && code <= 0xdfff)
        return fail(r, p, "lone low surrogate"), NULL;
    if (code < 0xd800 || code > 0xdbff) {
        *out = put_utf8(*out, code);
        return p + 6;
    }
    if (end - p < 12 || p[6] != '\\' || p[7] != 'u' || !hex4(p + 8, end, &low) || low < 0xdc00 ||
        low > 0xdfff)
        return fail(r, p, "lone high surrogate"), NULL;
    *out = put_utf8(*out, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
    return p + 12;
}

static const char *read_escape(struct reader *r, const char *p, const char *end, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = end - p >= 2 ? p[1] : 0;

    if (c == 'u')
        return read_unicode(r, p, end, out);
    const char *at = c ? memchr(from, c, sizeof(from) - 1) : NULL;
    if (!at)
        return fail(r, p, "unknown escape"), NULL;
    *(*out)++ = to[at - from];
    return p + 2;
}

/* One byte or sequence that skip_plain stopped at, apart from quote and backslash. */
static inline size_t read_special(struct reader *r, const char *p, const char *end)
{
    if ((unsigned char)*p < 0x20)
        return fail(r, p, "control byte in a string"), 0;
    size_t size = str_utf8_at(p, (size_t)(end - p), NULL);

    if (size == 0)
        return fail(r, p, "not UTF-8"), 0;
    return size;
}

/* A string whose first escape is at `p`: decoded into the arena, never longer than it was. */
static int read_escaped(struct reader *r, const char *start, const char *p, struct str *text)
{
    const char *close = p;

    for (;;) {
        close = skip_plain(close, r->end);
        if (close >= r->end)
            return fail(r, start - 1, "string without end");
        if (*close == '"')
            break;
        close += *close == '\\' && r->end - close > 1 ? 2 : 1;
    }
    char *room = arena_raw(r->arena, (size_t)(close - start) + 8), *out = room;
    memcpy(out, start, (size_t)(p - start));
    out += p - start;
    while (p < close) {
        if (*p == '\\') {
            p = read_escape(r, p, close, &out);
            if (!p)
                return -1;
        } else if (is_special(*p)) {
            size_t size = read_special(r, p, close);

            if (size == 0)
                return -1;
            memcpy(out, p, size);
            out += size;
            p += size;
        }
        p = copy_plain(p, close, &out);
    }
    *text = (struct str){ room, (size_t)(out - room) };
    r->p = close + 1;
    return 0;
}

/* r->p is at the opening quote. */
static inline int read_string(struct reader *r, struct str *text)
{
    const char *start = r->p + 1, *p = start;

    for (;;) {
        p = skip_plain(p, r->end);
        if (p >= r->end)
            return fail(r, start - 1, "string without end");
        if (*p == '"') {
            *text = (struct str){ start, (size_t)(p - start) };
            r->p = p + 1;
            return 0;
        }
        if (*p == '\\')
            return read_escaped(r, start, p, text);
        size_t size = read_special(r, p, r->end);
        if (size == 0)
            return -1;
        p += size;
    }
}

/* ---- numbers ---- */

struct number {
    const char *digits, *end; /* after the sign, to before the exponent */
    const char *point;        /* or NULL */
    int64_t exponent;         /* as written, clamped to EXPONENT_MAX */
    bool minus;
};

/* Digits as an integer times a power of ten, at most DIGITS_MAX of them and one that says "and
 * something more"; then strtod rounds exactly, whatever the locale's decimal point is. */
static double number_slow(const struct number *num)
{
    char text[DIGITS_MAX + 32];
    size_t len = 0;
    int64_t scale = num->exponent;
    bool more = false;

    text[len++] = num->minus ? '-' : '+';
    for (const char *p = num->digits; p < num->end; p++) {
        bool fraction = num->point && p > num->point;

        if (*p == '.')
            continue;
        if (len <= DIGITS_MAX) {
            if (len > 1 || *p != '0')
                text[len++] = *p;
            scale -= fraction;
        } else {
            more = more || *p != '0';
            scale += !fraction;
        }
    }
    if (len == 1)
        return num->minus ? -0.0 : 0.0;
    if (more) {
        text[len++] = '1';
        scale--;
    }
    snprintf(text + len, sizeof(text) - len, "e%lld", (long long)scale);
    return strtod(text, NULL);
}

static inline bool digit_at(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

static int read_exponent(struct reader *r, struct number *num, const char **at)
{
    const char *p = *at + 1;
    bool minus = p < r->end && *p == '-';

    if (minus || (p < r->end && *p == '+'))
        p++;
    if (!digit_at(p, r->end))
        return fail(r, p, "exponent without digits");
    for (; digit_at(p, r->end); p++)
        if (num->exponent < EXPONENT_MAX)
            num->exponent = num->exponent * 10 + (*p - '0');
    if (minus)
        num->exponent = -num->exponent;
    *at = p;
    return 0;
}

static int number_double(struct reader *r, struct json *node, const struct number *num,
                         uint64_t mantissa, size_t digits)
{
    static const double tens[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    int64_t scale = num->exponent - (num->point ? num->end - num->point - 1 : 0);

    node->type = JSON_DOUBLE;
    /* Both factors are exact doubles, so the one operation rounds once, correctly. */
    if (digits <= 19 && mantissa <= 1ull << 53 && scale >= -22 && scale <= 22) {
        double value = (double)mantissa;

        value = scale < 0 ? value / tens[-scale] : value * tens[scale];
        node->real = num->minus ? -value : value;
        return 0;
    }
    node->real = number_slow(num);
    if (isinf(node->real))
        return fail(r, num->digits - num->minus, "number out of range");
    return 0;
}

static inline int read_number(struct reader *r, struct json *node)
{
    const char *p = r->p, *end = r->end;
    struct number num = { .minus = *p == '-' };
    uint64_t mantissa = 0; /* wraps when there are more than 19 digits; then it is not used */

    p += num.minus;
    num.digits = p;
    if (!digit_at(p, end))
        return fail(r, p, "a digit must follow '-'");
    if (*p == '0' && digit_at(p + 1, end))
        return fail(r, p, "number with a leading zero");
    for (; digit_at(p, end); p++)
        mantissa = mantissa * 10 + (uint64_t)(*p - '0');
    size_t digits = (size_t)(p - num.digits);
    if (p == end || (*p != '.' && (*p | 0x20) != 'e')) {
        r->p = num.end = p;
        if (digits > 19 || mantissa > (uint64_t)INT64_MAX + num.minus)
            return number_double(r, node, &num, mantissa, digits);
        node->type = JSON_INT;
        node->num = (int64_t)(num.minus ? 0 - mantissa : mantissa);
        return 0;
    }
    if (*p == '.') {
        num.point = p++;
        if (!digit_at(p, end))
            return fail(r, p, "a digit must follow the decimal point");
        for (; digit_at(p, end); p++)
            mantissa = mantissa * 10 + (uint64_t)(*p - '0');
        digits += (size_t)(p - num.point) - 1;
    }
    num.end = p;
    if (p < end && (*p | 0x20) == 'e' && read_exponent(r, &num, &p) < 0)
        return -1;
    r->p = p;
    return number_double(r, node, &num, mantissa, digits);
}

/* ---- values ---- */

static inline struct json *new_node(struct reader *r)
{
    struct json *node = arena_raw(r->arena, sizeof(*node));

    node->count = 0;
    node->key = STR_NONE;
    node->next = NULL;
    return node;
}

static int read_word(struct reader *r, struct json *node, const char *word, enum json_type type)
{
    size_t len = strlen(word);

    if ((size_t)(r->end - r->p) < len || memcmp(r->p, word, len) != 0)
        return fail(r, r->p, "expected a value");
    node->type = type;
    node->truth = *word == 't';
    r->p += len;
    return 0;
}

static inline int open_container(struct reader *r, struct json *node, enum json_type type)
{
    if (r->depth == JSON_DEPTH_MAX)
        return fail(r, r->p, "nested too deep");
    r->p++;
    node->type = type;
    node->first = NULL;
    r->stack[r->depth++] = (struct frame){ .node = node };
    return 0;
}

/* A whole scalar, or the opening of a container; peek() said what comes. */
static inline int read_value(struct reader *r, struct json *node, int c)
{
    switch (c) {
    case '"':
        node->type = JSON_STRING;
        return read_string(r, &node->text);
    case '{':
        return open_container(r, node, JSON_OBJECT);
    case '[':
        return open_container(r, node, JSON_ARRAY);
    case 't':
        return read_word(r, node, "true", JSON_BOOL);
    case 'f':
        return read_word(r, node, "false", JSON_BOOL);
    case 'n':
        return read_word(r, node, "null", JSON_NULL);
    default:
        if (c == '-' || (c >= '0' && c <= '9'))
            return read_number(r, node);
        return fail(r, r->p, "expected a value");
    }
}

static int fail_duplicate(struct reader *r, struct str key)
{
    /* A key that held escapes is not in the input any more; then name where its object ends. */
    bool there = (uintptr_t)key.p >= (uintptr_t)r->start && (uintptr_t)key.p <= (uintptr_t)r->end;

    return fail(r, there ? key.p - 1 : r->p - 1, "duplicate key");
}

/* Notes the key in the summary; compares it with its siblings when the summary cannot tell. */
static inline int check_near(struct reader *r, struct frame *top, struct str key)
{
    const unsigned char *p = (const unsigned char *)key.p;
    size_t n = key.n, sum = n;

    if (n)
        sum += p[0] * (size_t)7 + p[n / 2] * (size_t)3 + p[n - 1] * (size_t)13;
    uint64_t bit = 1ull << (sum & 63);

    if (top->seen & bit)
        for (const struct json *other = top->node->first; other; other = other->next)
            if (str_eq(other->key, key))
                return fail_duplicate(r, key);
    top->seen |= bit;
    return 0;
}

static int check_keys(struct reader *r, const struct json *object)
{
    size_t cap = 64;

    while (cap < (size_t)object->count * 2)
        cap *= 2;
    if (cap > r->table_cap) {
        r->table = xrealloc(r->table, cap * sizeof(*r->table));
        r->table_cap = cap;
    }
    memset(r->table, 0, cap * sizeof(*r->table));
    for (const struct json *node = object->first; node; node = node->next) {
        size_t at = map_hash(node->key.p, node->key.n) & (cap - 1);

        for (; r->table[at]; at = (at + 1) & (cap - 1))
            if (str_eq(r->table[at]->key, node->key))
                return fail_duplicate(r, node->key);
        r->table[at] = node;
    }
    return 0;
}

static inline int read_key(struct reader *r, struct frame *top, struct json *node, int *c)
{
    if (*c != '"')
        return fail(r, r->p, "expected a key in double quotes");
    if (read_string(r, &node->key) < 0)
        return -1;
    if (peek(r) != ':')
        return fail(r, r->p, "expected ':'");
    r->p++;
    if (top->node->count < KEYS_NEAR && check_near(r, top, node->key) < 0)
        return -1;
    *c = peek(r);
    return 0;
}

/* One member or element of the innermost container, or its end. */
static inline int step(struct reader *r)
{
    struct frame *top = &r->stack[r->depth - 1];
    struct json *parent = top->node;
    bool object = parent->type == JSON_OBJECT;
    int c = peek(r);

    if (c == (object ? '}' : ']')) {
        r->p++;
        r->depth--;
        return parent->count > KEYS_NEAR && object ? check_keys(r, parent) : 0;
    }
    if (parent->count) {
        if (c != ',')
            return fail(r, r->p, object ? "expected ',' or '}'" : "expected ',' or ']'");
        r->p++;
        c = peek(r);
    }
    if (++r->values > JSON_VALUES_MAX)
        return err_set(r->err, ERR_LIMIT, "JSON of more than %d values", JSON_VALUES_MAX);
    struct json *node = new_node(r);
    if (object && read_key(r, top, node, &c) < 0)
        return -1;
    if (top->last)
        top->last->next = node;
    else
        parent->first = node;
    top->last = node;
    parent->count++;
    return read_value(r, node, c);
}

static int read_document(struct reader *r, struct json *root)
{
    r->values = 1;
    if (read_value(r, root, peek(r)) < 0)
        return -1;
    while (r->depth)
        if (step(r) < 0)
            return -1;
    if (peek(r) != -1)
        return fail(r, r->p, "something follows the value");
    return 0;
}

int json_parse(struct arena *arena, struct str text, struct json **out, struct err *err)
{
    if (text.n > JSON_SIZE_MAX)
        return err_set(err, ERR_LIMIT, "JSON of more than %d bytes", JSON_SIZE_MAX);
    struct reader r = { .arena = arena, .err = err };
    r.p = r.start = text.n ? text.p : "";
    r.end = r.p + text.n;
    struct json *root = new_node(&r);
    int rc = read_document(&r, root);

    free(r.table);
    if (rc == 0)
        *out = root;
    return rc;
}

/* ---- looking into a tree ---- */

const struct json *json_get(const struct json *obj, const char *key)
{
    struct str want = str_of(key);

    if (obj && obj->type == JSON_OBJECT)
        for (const struct json *pos = obj->first; pos; pos = pos->next)
            if (str_eq(pos->key, want))
                return pos;
    return NULL;
}

struct str json_text(const struct json *obj, const char *key)
{
    const struct json *value = json_get(obj, key);

    return value && value->type == JSON_STRING ? value->text : STR_NONE;
}

int64_t json_num(const struct json *obj, const char *key, int64_t otherwise)
{
    const struct json *value = json_get(obj, key);

    return value && value->type == JSON_INT ? value->num : otherwise;
}

bool json_true(const struct json *obj, const char *key)
{
    const struct json *value = json_get(obj, key);

    return value && value->type == JSON_BOOL && value->truth;
}

const char *json_type_name(enum json_type type)
{
    static const char *const names[] = { "null",   "boolean", "integer", "number",
                                         "string", "array",   "object" };

    return (unsigned)type < ARRAY_LEN(names) ? names[type] : "unknown";
}
