/*
 * json - a strict reader into an arena, and a writer that cannot produce bad JSON.
 *
 * The reader takes RFC 8259 and nothing more: UTF-8 checked, depth at most JSON_DEPTH_MAX, no
 * duplicate keys, no lone surrogates, no NUL inside a string (names and paths come from here).
 * Integers that fit int64 stay exact, other numbers are the nearest double; one beyond any double
 * is refused. Strings without escapes point into the input, which must outlive the tree.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

enum json_type {
    JSON_NULL,
    JSON_BOOL,
    JSON_INT,
    JSON_DOUBLE,
    JSON_STRING,
    JSON_ARRAY, /* from here on: containers */
    JSON_OBJECT
};

struct json {
    enum json_type type;
    uint32_t count;    /* members or elements */
    struct str key;    /* in an object */
    struct json *next; /* sibling */
    union {
        bool truth;
        int64_t num;
        double real;
        struct str text;
        struct json *first;
    };
};

/*
 * Reads one document; everything lives in `arena`. ERR_INVALID says what and at which byte;
 * ERR_LIMIT past JSON_SIZE_MAX or JSON_VALUES_MAX.
 */
must_use int json_parse(struct arena *arena, struct str text, struct json **out, struct err *err);

/* The member of an object, or NULL (also when `obj` is NULL or no object). */
const struct json *json_get(const struct json *obj, const char *key);
/* Conveniences for trusted documents (our own files, tests, the CLI's replies). */
struct str json_text(const struct json *obj, const char *key); /* STR_NONE unless a string */
int64_t json_num(const struct json *obj, const char *key, int64_t otherwise);
bool json_true(const struct json *obj, const char *key);

/* The first member or element; NULL of anything else. */
static inline const struct json *json_first(const struct json *parent)
{
    return parent && parent->type >= JSON_ARRAY ? parent->first : NULL;
}

#define json_each(pos, parent)                                                                     \
    for (const struct json *pos = json_first(parent); pos; pos = pos->next)

const char *json_type_name(enum json_type type);

/*
 * The writer appends to a buf and puts the commas. Strings that are not UTF-8 are written with
 * U+FFFD in place of each bad byte, numbers that JSON has no word for as null.
 */
struct json_out {
    struct buf *buf;
    bool comma; /* a value stands before, in the same container */
};

static inline struct json_out json_to(struct buf *buf)
{
    return (struct json_out){ .buf = buf };
}

void json_open(struct json_out *out, char bracket); /* '{' or '[' */
void json_close(struct json_out *out, char bracket);
void json_key(struct json_out *out, const char *key);
void json_key_str(struct json_out *out, struct str key);
void json_put_str(struct json_out *out, struct str text);
void json_put_int(struct json_out *out, int64_t num);
void json_put_double(struct json_out *out, double num);
void json_put_bool(struct json_out *out, bool truth);
void json_put_null(struct json_out *out);
/* A whole tree, as json_parse made it (its own key is left out). */
void json_put(struct json_out *out, const struct json *value);
void json_put_raw(struct json_out *out, struct str json); /* already JSON, made by us */

/* key and value at once */
void json_kv_str(struct json_out *out, const char *key, struct str text);
void json_kv_text(struct json_out *out, const char *key, const char *text); /* NULL is null */
void json_kv_int(struct json_out *out, const char *key, int64_t num);
void json_kv_bool(struct json_out *out, const char *key, bool truth);
void json_kv_double(struct json_out *out, const char *key, double num);
