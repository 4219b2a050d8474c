/*
 * One table drives reading, writing and describing. Nesting follows the tables, which are ours, so
 * the calls below are as deep as a table is, never as deep as an input.
 *
 * Where a value stands is kept as a chain of names on the stack while descending, and turned into
 * text ("limits.memory", "argv[3]") only when something is wrong.
 */
#include "model/field.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/near.h"

struct place {
    const struct place *up;
    struct str name; /* p == NULL: an index */
    size_t index;
};

struct decoder {
    struct arena *arena;
    struct err *err;
};

/* ---- where and what is wrong ---- */

static void put_place(struct buf *out, const struct place *place)
{
    const struct place *chain[2 * JSON_DEPTH_MAX];
    size_t count = 0;

    for (; place && count < ARRAY_LEN(chain); place = place->up)
        chain[count++] = place;
    while (count--) {
        if (!chain[count]->name.p) {
            buf_printf(out, "[%zu]", chain[count]->index);
            continue;
        }
        if (out->len)
            buf_putc(out, '.');
        buf_str(out, chain[count]->name);
    }
}

printf_like(3, 4) static int wrong(const struct decoder *d, const struct place *place,
                                   const char *fmt, ...)
{
    autobuf struct buf path = { 0 }, why = { 0 };
    va_list args;

    put_place(&path, place);
    va_start(args, fmt);
    buf_vprintf(&why, fmt, args);
    va_end(args);
    return err_field(d->err, buf_cstr(&path), "%s", buf_cstr(&why));
}

static int wrong_type(const struct decoder *d, const struct place *place, const struct json *value,
                      const char *want)
{
    return wrong(d, place, "must be %s, not %s", want, json_type_name(value->type));
}

/* ---- reading ---- */

static int64_t most(const struct field *field, int64_t otherwise)
{
    return field->max ? field->max : otherwise;
}

static int take_text(const struct decoder *d, const struct place *place, const struct json *value,
                     int64_t min, int64_t max, const char **out)
{
    if (value->type != JSON_STRING)
        return wrong_type(d, place, value, "a string");
    if (value->text.n < (size_t)min)
        return value->text.n ? wrong(d, place, "must have at least %lld bytes", (long long)min)
                             : wrong(d, place, "must not be empty");
    if (value->text.n > (size_t)max)
        return wrong(d, place, "must have at most %lld bytes", (long long)max);
    *out = arena_memdup0(d->arena, value->text.p, value->text.n);
    return 0;
}

/* The unit that the end of a name says; NULL: none. */
static const char *unit_of(const struct field *field)
{
    static const char *const units[][2] = { { "bytes", "bytes" },      { "_ms", "milliseconds" },
                                            { "_s", "seconds" },       { "_seconds", "seconds" },
                                            { "_percent", "percent" }, { "_mb", "MiB" },
                                            { "_gb", "GiB" } };

    if (field->flags & F_BYTES)
        return units[0][1];
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        size_t name = strlen(field->name), end = strlen(units[i][0]);

        if (name >= end && strcmp(field->name + name - end, units[i][0]) == 0)
            return units[i][1];
    }
    return NULL;
}

static int out_of_range(const struct decoder *d, const struct place *place,
                        const struct field *field)
{
    const char *unit = unit_of(field);
    char least[BYTES_TEXT_SIZE], most[BYTES_TEXT_SIZE];

    if (unit && strcmp(unit, "bytes") == 0 && field->max >= 1024)
        return wrong(d, place, "must be from %s to %s (%lld to %lld bytes)",
                     bytes_text(field->min, least), bytes_text(field->max, most),
                     (long long)field->min, (long long)field->max);
    return wrong(d, place, "must be from %lld to %lld%s%s", (long long)field->min,
                 (long long)field->max, unit ? " " : "", unit ? unit : "");
}

static int take_int(const struct decoder *d, const struct place *place, const struct json *value,
                    const struct field *field, int64_t *out)
{
    if (value->type != JSON_INT)
        return wrong_type(d, place, value, "an integer");
    if ((field->min || field->max) && (value->num < field->min || value->num > field->max))
        return out_of_range(d, place, field);
    *out = value->num;
    return 0;
}

static int take_double(const struct decoder *d, const struct place *place, const struct json *value,
                       const struct field *field, double *out)
{
    if (value->type != JSON_DOUBLE && value->type != JSON_INT)
        return wrong_type(d, place, value, "a number");
    double num = value->type == JSON_INT ? (double)value->num : value->real;

    if ((field->min || field->max) && (num < (double)field->min || num > (double)field->max))
        return out_of_range(d, place, field);
    *out = num;
    return 0;
}

static int take_bool(const struct decoder *d, const struct place *place, const struct json *value,
                     bool *out)
{
    if (value->type != JSON_BOOL)
        return wrong_type(d, place, value, "true or false");
    *out = value->truth;
    return 0;
}

static int take_maybe(const struct decoder *d, const struct place *place, const struct json *value,
                      const bool **out)
{
    bool *said = arena_new(d->arena, bool);

    if (take_bool(d, place, value, said) < 0)
        return -1;
    *out = said;
    return 0;
}

static int take_enum(const struct decoder *d, const struct place *place, const struct json *value,
                     const struct field *field, const char **out)
{
    struct str rest = str_of(field->choices);

    if (value->type != JSON_STRING)
        return wrong_type(d, place, value, "a string");
    while (rest.n)
        if (str_eq(str_cut(&rest, '|'), value->text))
            return take_text(d, place, value, 0, FIELD_BYTES_MAX, out);
    return wrong(d, place, "must be one of %s", field->choices);
}

static int64_t most_each(const struct field *field)
{
    return field->each_max ? field->each_max : FIELD_BYTES_MAX;
}

/* A container of the right type that holds neither too little nor too much. */
static int check_count(const struct decoder *d, const struct place *place, const struct json *value,
                       const struct field *field, enum json_type type)
{
    int64_t max = most(field, FIELD_ITEMS_MAX);

    if (value->type != type)
        return wrong_type(d, place, value, type == JSON_ARRAY ? "an array" : "an object");
    if (value->count < field->min)
        return wrong(d, place, "must have at least %lld items", (long long)field->min);
    if (value->count > max)
        return wrong(d, place, "must have at most %lld items", (long long)max);
    return 0;
}

static int take_strings(const struct decoder *d, const struct place *place,
                        const struct json *value, const struct field *field, const char ***out)
{
    if (check_count(d, place, value, field, JSON_ARRAY) < 0)
        return -1;
    const char **items = arena_alloc(d->arena, ((size_t)value->count + 1) * sizeof(*items));
    size_t i = 0;

    json_each(item, value)
    {
        struct place at = { .up = place, .index = i };

        if (take_text(d, &at, item, 0, most_each(field), &items[i++]) < 0)
            return -1;
    }
    *out = items;
    return 0;
}

static int take_map(const struct decoder *d, const struct place *place, const struct json *value,
                    const struct field *field, struct field_pair **out)
{
    if (check_count(d, place, value, field, JSON_OBJECT) < 0)
        return -1;
    struct field_pair *pairs = arena_alloc(d->arena, ((size_t)value->count + 1) * sizeof(*pairs));
    size_t i = 0;

    json_each(item, value)
    {
        struct place at = { .up = place, .name = item->key };

        if (item->key.n == 0)
            return wrong(d, place, "must not have an empty name");
        if (item->key.n > FIELD_BYTES_MAX)
            return wrong(d, &at, "the name must have at most %d bytes", FIELD_BYTES_MAX);
        if (take_text(d, &at, item, 0, most_each(field), &pairs[i].value) < 0)
            return -1;
        pairs[i++].key = arena_memdup0(d->arena, item->key.p, item->key.n);
    }
    *out = pairs;
    return 0;
}

static int take_object(const struct decoder *d, const struct place *place, const struct json *value,
                       const struct field *fields, char *out, uint64_t *present);

static int take_list(const struct decoder *d, const struct place *place, const struct json *value,
                     const struct field *field, struct field_list *out)
{
    if (check_count(d, place, value, field, JSON_ARRAY) < 0)
        return -1;
    char *items = arena_alloc(d->arena, value->count * field->of_size);
    size_t i = 0;

    json_each(item, value)
    {
        struct place at = { .up = place, .index = i };

        if (take_object(d, &at, item, field->of, items + i++ * field->of_size, NULL) < 0)
            return -1;
    }
    *out = (struct field_list){ items, i };
    return 0;
}

static int take_nested(const struct decoder *d, const struct place *place, const struct json *value,
                       const struct field *field, void **out)
{
    if (value->type == JSON_NULL && (field->flags & F_NULL)) {
        *out = NULL;
        return 0;
    }
    void *nested = arena_alloc(d->arena, field->of_size);
    if (take_object(d, place, value, field->of, nested, NULL) < 0)
        return -1;
    *out = nested;
    return 0;
}

static int take_value(const struct decoder *d, const struct place *place, const struct json *value,
                      const struct field *field, void *slot)
{
    switch (field->type) {
    case F_STRING:
        return take_text(d, place, value, field->min, most(field, FIELD_BYTES_MAX), slot);
    case F_INT:
        return take_int(d, place, value, field, slot);
    case F_DOUBLE:
        return take_double(d, place, value, field, slot);
    case F_BOOL:
        return take_bool(d, place, value, slot);
    case F_MAYBE:
        return take_maybe(d, place, value, slot);
    case F_ENUM:
        return take_enum(d, place, value, field, slot);
    case F_STRINGS:
        return take_strings(d, place, value, field, slot);
    case F_MAP:
        return take_map(d, place, value, field, slot);
    case F_OBJECT:
        return take_nested(d, place, value, field, slot);
    case F_LIST:
        return take_list(d, place, value, field, slot);
    case F_JSON:
        *(const struct json **)slot = value;
        return 0;
    case F_TIME: /* never writable */
    case F_NAIVE:
    default:
        return wrong(d, place, "unknown field");
    }
}

static bool writable(const struct field *field)
{
    return !(field->flags & F_READONLY) && field->type != F_TIME && field->type != F_NAIVE;
}

static const struct field *find(const struct field *fields, struct str name)
{
    for (const struct field *field = fields; field->name; field++)
        if (writable(field) && str_is(name, field->name))
            return field;
    return NULL;
}

static int unknown(const struct decoder *d, const struct place *place, const struct field *fields,
                   struct str name)
{
    const struct field *nearest = NULL;
    unsigned best = UINT_MAX;

    for (const struct field *field = fields; field->name; field++) {
        unsigned distance = near_distance(name, str_of(field->name));

        if (writable(field) && distance < best && near_enough(distance, name)) {
            nearest = field;
            best = distance;
        }
    }
    return nearest ? wrong(d, place, "unknown field; did you mean %s?", nearest->name)
                   : wrong(d, place, "unknown field");
}

static int take_object(const struct decoder *d, const struct place *place, const struct json *value,
                       const struct field *fields, char *out, uint64_t *present)
{
    uint64_t given = 0;

    if (value->type != JSON_OBJECT)
        return wrong_type(d, place, value, "an object");
    json_each(member, value)
    {
        struct place at = { .up = place, .name = member->key };
        const struct field *field = find(fields, member->key);

        if (!field)
            return unknown(d, &at, fields, member->key);
        assert(field - fields < FIELDS_MAX);
        given |= 1ull << (field - fields);
        if (take_value(d, &at, member, field, out + field->offset) < 0)
            return -1;
    }
    for (const struct field *field = fields; field->name; field++) {
        struct place at = { .up = place, .name = str_of(field->name) };

        if ((field->flags & F_REQUIRED) && writable(field) && !(given >> (field - fields) & 1))
            return wrong(d, &at, "required");
    }
    if (present)
        *present = given;
    return 0;
}

int field_decode(const struct field *fields, const struct json *json, void *out,
                 struct arena *arena, uint64_t *present, struct err *err)
{
    struct decoder d = { arena, err };

    return take_object(&d, NULL, json, fields, out, present);
}

/* ---- writing ---- */

static void put_text(struct json_out *out, const char *text)
{
    if (text)
        json_put_str(out, str_of(text));
    else
        json_put_null(out);
}

static void put_maybe(struct json_out *out, const bool *said)
{
    if (said)
        json_put_bool(out, *said);
    else
        json_put_null(out);
}

static void put_time(struct json_out *out, int64_t wall_ms)
{
    char text[CLOCK_TEXT_SIZE];

    clock_text(wall_ms, text);
    put_text(out, wall_ms ? text : NULL);
}

static void put_naive(struct json_out *out, int64_t wall_ms)
{
    char text[CLOCK_NAIVE_SIZE];

    clock_naive(wall_ms, text);
    put_text(out, wall_ms ? text : NULL);
}

static void put_strings(struct json_out *out, const char *const *items)
{
    json_open(out, '[');
    for (; items && *items; items++)
        put_text(out, *items);
    json_close(out, ']');
}

static void put_map(struct json_out *out, const struct field_pair *pairs)
{
    json_open(out, '{');
    for (; pairs && pairs->key; pairs++)
        json_kv_text(out, pairs->key, pairs->value);
    json_close(out, '}');
}

static void put_list(struct json_out *out, const struct field *field, const struct field_list *list)
{
    json_open(out, '[');
    for (size_t i = 0; i < list->count; i++)
        field_encode(field->of, (const char *)list->items + i * field->of_size, out);
    json_close(out, ']');
}

static void put_nested(struct json_out *out, const struct field *field, const void *nested)
{
    if (nested)
        field_encode(field->of, nested, out);
    else
        json_put_null(out);
}

static void put_value(struct json_out *out, const struct field *field, const void *slot)
{
    switch (field->type) {
    case F_STRING:
    case F_ENUM:
        put_text(out, *(const char *const *)slot);
        break;
    case F_INT:
        json_put_int(out, *(const int64_t *)slot);
        break;
    case F_DOUBLE:
        json_put_double(out, *(const double *)slot);
        break;
    case F_BOOL:
        json_put_bool(out, *(const bool *)slot);
        break;
    case F_MAYBE:
        put_maybe(out, *(const bool *const *)slot);
        break;
    case F_STRINGS:
        put_strings(out, *(const char *const *const *)slot);
        break;
    case F_MAP:
        put_map(out, *(const struct field_pair *const *)slot);
        break;
    case F_OBJECT:
        put_nested(out, field, *(const void *const *)slot);
        break;
    case F_LIST:
        put_list(out, field, slot);
        break;
    case F_TIME:
        put_time(out, *(const int64_t *)slot);
        break;
    case F_NAIVE:
        put_naive(out, *(const int64_t *)slot);
        break;
    case F_JSON:
    default: {
        const struct json *any = *(const struct json *const *)slot;

        if (any)
            json_put(out, any);
        else
            json_put_null(out);
    }
    }
}

void field_encode(const struct field *fields, const void *in, struct json_out *out)
{
    json_open(out, '{');
    for (const struct field *field = fields; field->name; field++) {
        json_key(out, field->name);
        put_value(out, field, (const char *)in + field->offset);
    }
    json_close(out, '}');
}
