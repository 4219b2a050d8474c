/*
 * field - from one table per noun: JSON in (validated), JSON out, OpenAPI schemas, reference pages.
 *
 *     struct token_wish { const char *name; const char *role; int64_t ttl_ms; bool signing; };
 *     const struct field token_wish_fields[] = {
 *         FIELD(token_wish, name, F_STRING, F_REQUIRED, .max = 64, .help = "What it is for"),
 *         …
 *         { 0 },
 *     };
 *
 * Decoding refuses unknown fields, wrong types, missing required ones and anything outside min/max
 * or choices, as ERR_INVALID with err.field naming the path ("limits.memory", "argv[3]"). A null is
 * a wrong type, because who wants nothing leaves the field out; but where leaving it out means that
 * it stays as it is (PATCH), F_NULL lets a null take it back. Lengths count bytes.
 */
#pragma once

#include "base/json.h"

enum field_type {
    F_STRING,  /* const char * (arena, NUL-terminated; JSON strings hold no NUL) */
    F_INT,     /* int64_t; min and max apply */
    F_DOUBLE,  /* double; min and max apply */
    F_BOOL,    /* bool */
    F_MAYBE,   /* const bool *; NULL when absent */
    F_ENUM,    /* const char *, one of choices ("a|b|c") */
    F_STRINGS, /* const char ** NULL-terminated; min and max count the items */
    F_MAP,     /* struct field_pair *, ended by a NULL key; string values, max counts them */
    F_OBJECT,  /* pointer to nested struct, of = its fields; NULL when absent */
    F_LIST,    /* struct field_list: of = fields of each element */
    F_JSON,    /* const struct json *: anything; borrowed from the tree */
    F_TIME,    /* int64_t wall ms; JSON shows ISO 8601; 0 shows null. Reply only */
    F_NAIVE,   /* the same without a zone, as the hub's clients know it (clock_naive) */
};

enum field_flag {
    F_REQUIRED = 1,
    F_READONLY = 2, /* server-owned: in a request it is an unknown field */
    F_SECRET = 4,   /* never logged, audited or kept */
    F_BYTES = 16,   /* F_INT: a number of bytes whose name does not say so */
    F_NULL = 8,     /* F_OBJECT: null is taken, as NULL; `present` tells it from nothing said */
};

struct field_pair {
    const char *key, *value;
};

struct field_list {
    void *items; /* array of structs, of_size bytes each */
    size_t count;
};

struct field {
    const char *name;
    enum field_type type;
    unsigned flags;
    size_t offset;
    const struct field *of; /* F_OBJECT, F_LIST */
    size_t of_size;
    int64_t min, max; /* range of numbers (both 0: none); of others the length or count */
    int64_t each_max; /* F_STRINGS, F_MAP: bytes of an item; 0 means FIELD_BYTES_MAX */
    const char *choices;
    const char *help;
};

#define FIELD(struct_, member_, type_, flags_, ...)                                                \
    {                                                                                              \
        .name = #member_, .type = type_, .flags = flags_,                                          \
        .offset = offsetof(struct struct_, member_), __VA_ARGS__                                   \
    }

/* Where max is 0, and for each item of F_STRINGS and F_MAP unless each_max says otherwise. */
#define FIELD_BYTES_MAX 4096
#define FIELD_ITEMS_MAX 1000
#define FIELDS_MAX 64 /* of one table */

/*
 * `out` is the zeroed struct. Bit i of *present is set when fields[i] was given (for PATCH); may be
 * NULL. Memory comes from the arena. On failure `out` may be partly filled.
 */
must_use int field_decode(const struct field *fields, const struct json *json, void *out,
                          struct arena *arena, uint64_t *present, struct err *err);
/*
 * A whole object, every field of it: NULL strings, objects and times of 0 are null, other missing
 * things empty. Secrets too: the reply that makes one is where it is shown.
 */
void field_encode(const struct field *fields, const void *in, struct json_out *out);
/* An OpenAPI 3.1 schema object. `request` leaves read-only fields out. */
void field_schema(const struct field *fields, bool request, struct json_out *out);
