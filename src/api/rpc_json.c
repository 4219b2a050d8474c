/*
 * The JSON of proto3, by one walk over the descriptors either way. Values are kept where protobuf-c
 * keeps them, so a message does not know which of the two it came in by. A message inside a message
 * is a call of the same function one deeper, and that is bounded (RPC_DEPTH_MAX).
 *
 * Presence: a member of a oneof (which is what `optional` is compiled to) is there when the case
 * says so; a message when it is not NULL; a list when it has elements; every other field when it
 * differs from its default. A map is a list of messages on the wire and an object in JSON; those of
 * our files have texts for keys.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/rpc_codec.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/map.h"

#define AT(message, offset) ((char *)(message) + (offset))
#define INT64_BOUND 9223372036854775808.0 /* 2^63 */

/* ---- kinds of values ---- */

static size_t size_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    default:
        return 4;
    }
}

static bool is_oneof(const ProtobufCFieldDescriptor *field)
{
    return field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
}

/* The compiler makes a message of each map, "NameEntry" inside of the one that has it. */
static bool is_map(const ProtobufCMessageDescriptor *parent, const ProtobufCFieldDescriptor *field)
{
    const ProtobufCMessageDescriptor *entry = field->descriptor;
    size_t len = strlen(parent->name);

    return field->label == PROTOBUF_C_LABEL_REPEATED && field->type == PROTOBUF_C_TYPE_MESSAGE &&
           strncmp(entry->name, parent->name, len) == 0 && entry->name[len] == '.' &&
           entry->n_fields == 2 && strcmp(entry->fields[0].name, "key") == 0 &&
           entry->fields[0].type == PROTOBUF_C_TYPE_STRING &&
           strcmp(entry->fields[1].name, "value") == 0;
}

/* ---- names ---- */

/* "session_id" and "sessionId" both name session_id. */
static bool names(struct str key, const char *name)
{
    size_t at = 0;
    bool up = false;

    if (str_is(key, name))
        return true;
    for (; *name; name++) {
        if (*name == '_') {
            up = true;
            continue;
        }
        char c = up && *name >= 'a' && *name <= 'z' ? (char)(*name - 32) : *name;
        if (at == key.n || key.p[at++] != c)
            return false;
        up = false;
    }
    return at == key.n;
}

static void put_name(struct json_out *out, const char *name)
{
    char camel[128];
    size_t at = 0;
    bool up = false;

    for (; *name && at < sizeof(camel); name++) {
        if (*name == '_') {
            up = true;
            continue;
        }
        camel[at++] = up && *name >= 'a' && *name <= 'z' ? (char)(*name - 32) : *name;
        up = false;
    }
    json_key_str(out, (struct str){ camel, at });
}

/* ---- reading ---- */

struct reading {
    struct arena *arena;
    struct err *err;
};

static int read_message(struct reading *in, const ProtobufCMessageDescriptor *type,
                        const struct json *json, unsigned depth, ProtobufCMessage **out);

static int wrong(struct reading *in, const ProtobufCFieldDescriptor *field, const char *wanted)
{
    return err_field(in->err, field->name, "%s must be %s", field->name, wanted);
}

/* A whole number, however it is written; a double only where it is one exactly. */
static bool read_int(const struct json *json, int64_t *out)
{
    if (json->type == JSON_INT) {
        *out = json->num;
        return true;
    }
    if (json->type == JSON_STRING)
        return str_to_i64(json->text, out);
    if (json->type != JSON_DOUBLE || json->real != trunc(json->real) || json->real < -INT64_BOUND ||
        json->real >= INT64_BOUND)
        return false;
    *out = (int64_t)json->real;
    return true;
}

static bool read_unsigned(const struct json *json, uint64_t *out)
{
    int64_t value;

    if (json->type == JSON_STRING)
        return str_to_u64(json->text, out);
    if (json->type == JSON_DOUBLE && json->real == trunc(json->real) && json->real >= INT64_BOUND &&
        json->real < 2 * INT64_BOUND) {
        *out = (uint64_t)json->real;
        return true;
    }
    if (!read_int(json, &value) || value < 0)
        return false;
    *out = (uint64_t)value;
    return true;
}

static bool read_real(struct reading *in, const struct json *json, double *out)
{
    static const struct {
        const char *name;
        double value;
    } words[] = { { "NaN", NAN }, { "Infinity", INFINITY }, { "-Infinity", -INFINITY } };
    struct json *number;
    struct err ignored;

    if (json->type == JSON_INT || json->type == JSON_DOUBLE) {
        *out = json->type == JSON_INT ? (double)json->num : json->real;
        return true;
    }
    if (json->type != JSON_STRING)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (str_is(json->text, words[i].name)) {
            *out = words[i].value;
            return true;
        }
    /* A number in quotes is a number of JSON, not whatever strtod takes. */
    return json_parse(in->arena, json->text, &number, &ignored) == 0 &&
           number->type != JSON_STRING && read_real(in, number, out);
}

static bool read_enum(const ProtobufCEnumDescriptor *type, const struct json *json, int32_t *out)
{
    int64_t number;

    if (json->type == JSON_STRING) {
        for (unsigned i = 0; i < type->n_value_names; i++)
            if (str_is(json->text, type->values_by_name[i].name)) {
                *out = type->values[type->values_by_name[i].index].value;
                return true;
            }
        return false;
    }
    if (!read_int(json, &number) || number < INT32_MIN || number > INT32_MAX)
        return false;
    *out = (int32_t)number;
    return true;
}

static bool read_bytes(struct reading *in, const struct json *json, ProtobufCBinaryData *out)
{
    autobuf struct buf bytes = { .max = GRPC_MESSAGE_MAX };

    if (json->type != JSON_STRING || !base64_get(&bytes, json->text) || !buf_ok(&bytes))
        return false;
    *out = (ProtobufCBinaryData){ bytes.len,
                                  (uint8_t *)arena_memdup0(in->arena, bytes.data, bytes.len) };
    return true;
}

static bool read_float(struct reading *in, const struct json *json, float *out)
{
    double real;

    if (!read_real(in, json, &real) || (isfinite(real) && fabs(real) > 3.4028235677973366e38))
        return false; /* beyond what rounds to the largest float */
    *out = (float)real;
    return true;
}

static int read_value(struct reading *in, const ProtobufCFieldDescriptor *field,
                      const struct json *json, unsigned depth, void *at)
{
    uint64_t natural;
    int64_t number;

    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        if (!read_int(json, &number) || number < INT32_MIN || number > INT32_MAX)
            return wrong(in, field, "a whole number of 32 bits");
        *(int32_t *)at = (int32_t)number;
        return 0;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        if (!read_unsigned(json, &natural) || natural > UINT32_MAX)
            return wrong(in, field, "a whole number of 32 bits, not negative");
        *(uint32_t *)at = (uint32_t)natural;
        return 0;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        return read_int(json, at) ? 0 : wrong(in, field, "a whole number of 64 bits");
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return read_unsigned(json, at)
                   ? 0
                   : wrong(in, field, "a whole number of 64 bits, not negative");
    case PROTOBUF_C_TYPE_DOUBLE:
        return read_real(in, json, at) ? 0 : wrong(in, field, "a number");
    case PROTOBUF_C_TYPE_FLOAT:
        return read_float(in, json, at) ? 0 : wrong(in, field, "a number of single precision");
    case PROTOBUF_C_TYPE_BOOL:
        if (json->type != JSON_BOOL)
            return wrong(in, field, "true or false");
        *(protobuf_c_boolean *)at = json->truth;
        return 0;
    case PROTOBUF_C_TYPE_ENUM:
        return read_enum(field->descriptor, json, at) ? 0 : wrong(in, field, "one of its names");
    case PROTOBUF_C_TYPE_STRING:
        if (json->type != JSON_STRING)
            return wrong(in, field, "a string");
        *(char **)at = arena_memdup0(in->arena, json->text.p, json->text.n);
        return 0;
    case PROTOBUF_C_TYPE_BYTES:
        return read_bytes(in, json, at) ? 0 : wrong(in, field, "a string of base64");
    case PROTOBUF_C_TYPE_MESSAGE:
    default:
        return read_message(in, field->descriptor, json, depth + 1, at);
    }
}

static int read_list(struct reading *in, const ProtobufCFieldDescriptor *field,
                     const struct json *json, unsigned depth, ProtobufCMessage *message)
{
    size_t size = size_of(field->type), count = 0;

    if (json->type != JSON_ARRAY)
        return wrong(in, field, "a list");
    if (json->count > RPC_FIELDS_MAX)
        return err_set(in->err, ERR_LIMIT, "%s has more than %d elements", field->name,
                       RPC_FIELDS_MAX);
    char *items = arena_alloc(in->arena, MAX((size_t)json->count, (size_t)1) * size);
    json_each(item, json)
    {
        if (item->type == JSON_NULL)
            return wrong(in, field, "a list without null");
        if (read_value(in, field, item, depth, items + count * size) < 0)
            return -1;
        count++;
    }
    *(size_t *)AT(message, field->quantifier_offset) = count;
    *(void **)AT(message, field->offset) = count ? items : NULL;
    return 0;
}

static int read_entry(struct reading *in, const ProtobufCFieldDescriptor *field,
                      const struct json *json, unsigned depth, ProtobufCMessage **out)
{
    const ProtobufCMessageDescriptor *type = field->descriptor;
    ProtobufCMessage *entry = rpc_message(type, in->arena);

    if (json->type == JSON_NULL)
        return wrong(in, field, "an object without null");
    *(char **)AT(entry, type->fields[0].offset) =
        arena_memdup0(in->arena, json->key.p, json->key.n);
    if (read_value(in, &type->fields[1], json, depth + 1, AT(entry, type->fields[1].offset)) < 0)
        return -1;
    *out = entry;
    return 0;
}

static int read_map(struct reading *in, const ProtobufCFieldDescriptor *field,
                    const struct json *json, unsigned depth, ProtobufCMessage *message)
{
    automap struct map seen = { 0 };
    size_t count = 0;

    if (json->type != JSON_OBJECT)
        return wrong(in, field, "an object");
    if (json->count > RPC_FIELDS_MAX)
        return err_set(in->err, ERR_LIMIT, "%s has more than %d elements", field->name,
                       RPC_FIELDS_MAX);
    ProtobufCMessage **entries =
        arena_alloc(in->arena, MAX((size_t)json->count, (size_t)1) * sizeof(*entries));
    json_each(member, json)
    {
        if (map_put(&seen, member->key, entries))
            return err_field(in->err, field->name, "%s has a key twice", field->name);
        if (read_entry(in, field, member, depth, &entries[count]) < 0)
            return -1;
        count++;
    }
    *(size_t *)AT(message, field->quantifier_offset) = count;
    *(void **)AT(message, field->offset) = count ? entries : NULL;
    return 0;
}

static const ProtobufCFieldDescriptor *find(const ProtobufCMessageDescriptor *type, struct str key)
{
    for (unsigned i = 0; i < type->n_fields; i++)
        if (names(key, type->fields[i].name))
            return &type->fields[i];
    return NULL;
}

static int read_field(struct reading *in, const ProtobufCFieldDescriptor *field,
                      const struct json *json, unsigned depth, ProtobufCMessage *message)
{
    uint32_t *which = (uint32_t *)AT(message, field->quantifier_offset);

    if (is_map(message->descriptor, field))
        return read_map(in, field, json, depth, message);
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return read_list(in, field, json, depth, message);
    if (is_oneof(field) && *which)
        return err_field(in->err, field->name, "%s: another of the same choice is there already",
                         field->name);
    if (read_value(in, field, json, depth, AT(message, field->offset)) < 0)
        return -1;
    if (is_oneof(field))
        *which = field->id;
    return 0;
}

static int read_message(struct reading *in, const ProtobufCMessageDescriptor *type,
                        const struct json *json, unsigned depth, ProtobufCMessage **out)
{
    ProtobufCMessage *message = rpc_message(type, in->arena);
    uint64_t seen = 0;

    if (json->type != JSON_OBJECT)
        return err_set(in->err, ERR_INVALID, "a %s must be an object", type->name);
    if (depth > RPC_DEPTH_MAX)
        return err_set(in->err, ERR_LIMIT, "more than %d messages inside one another",
                       RPC_DEPTH_MAX);
    json_each(member, json)
    {
        const ProtobufCFieldDescriptor *field = find(type, member->key);

        if (!field)
            return err_set(in->err, ERR_INVALID, "%s has no field \"%.*s\"", type->name,
                           (int)MIN(member->key.n, (size_t)60), member->key.p);
        uint64_t bit = 1ull << ((field - type->fields) & 63);
        if (seen & bit)
            return err_field(in->err, field->name, "%s is given twice", field->name);
        seen |= bit;
        if (member->type != JSON_NULL && read_field(in, field, member, depth, message) < 0)
            return -1;
    }
    *out = message;
    return 0;
}

int rpc_json_decode(const ProtobufCMessageDescriptor *type, struct str text, struct arena *arena,
                    ProtobufCMessage **out, struct err *err)
{
    struct reading in = { arena, err };
    struct json *json;

    if (json_parse(arena, text, &json, err) < 0)
        return -1;
    return read_message(&in, type, json, 1, out);
}

/* ---- writing ---- */

static void put_message(struct json_out *out, const ProtobufCMessage *message);

static void put_long(struct json_out *out, uint64_t value, bool is_signed)
{
    char text[24];
    int len = is_signed ? snprintf(text, sizeof(text), "%lld", (long long)value)
                        : snprintf(text, sizeof(text), "%llu", (unsigned long long)value);

    json_put_str(out, (struct str){ text, (size_t)len });
}

static void put_real(struct json_out *out, double real)
{
    if (isnan(real))
        json_put_str(out, STR("NaN"));
    else if (isinf(real))
        json_put_str(out, real > 0 ? STR("Infinity") : STR("-Infinity"));
    else
        json_put_double(out, real);
}

/* The shortest text that is this float: more digits would only show how it is kept. */
static void put_float(struct json_out *out, float real)
{
    char text[32];

    for (int digits = 6; isfinite(real) && digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)real);
        if (strtof(text, NULL) == real) { /* NOLINT: exactly is what is asked */
            put_real(out, strtod(text, NULL));
            return;
        }
    }
    put_real(out, (double)real);
}

static void put_enum(struct json_out *out, const ProtobufCEnumDescriptor *type, int32_t value)
{
    const ProtobufCEnumValue *known = protobuf_c_enum_descriptor_get_value(type, value);

    if (known)
        json_put_str(out, str_of(known->name));
    else
        json_put_int(out, value);
}

static void put_bytes(struct json_out *out, const ProtobufCBinaryData *bytes)
{
    autobuf struct buf text = { 0 };

    base64_put(&text, bytes->data, bytes->len);
    json_put_str(out, buf_view(&text));
}

static void put_value(struct json_out *out, const ProtobufCFieldDescriptor *field, const void *at)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
        json_put_int(out, *(const int32_t *)at);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        json_put_int(out, *(const uint32_t *)at);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
        put_long(out, *(const uint64_t *)at, true);
        break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        put_long(out, *(const uint64_t *)at, false);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        put_real(out, *(const double *)at);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        put_float(out, *(const float *)at);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        json_put_bool(out, *(const protobuf_c_boolean *)at);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        put_enum(out, field->descriptor, *(const int32_t *)at);
        break;
    case PROTOBUF_C_TYPE_STRING:
        json_put_str(out, str_of(*(char *const *)at));
        break;
    case PROTOBUF_C_TYPE_BYTES:
        put_bytes(out, at);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
    default:
        put_message(out, *(ProtobufCMessage *const *)at);
        break;
    }
}

static bool is_default(const ProtobufCFieldDescriptor *field, const void *at)
{
    static const char zero[8];

    if (field->type == PROTOBUF_C_TYPE_STRING) {
        const char *text = *(char *const *)at;

        return !text || !*text;
    }
    if (field->type == PROTOBUF_C_TYPE_BYTES)
        return ((const ProtobufCBinaryData *)at)->len == 0;
    return memcmp(at, zero, size_of(field->type)) == 0; /* -0.0 is not the default */
}

static bool is_there(const ProtobufCFieldDescriptor *field, const ProtobufCMessage *message)
{
    const char *quantifier = AT(message, field->quantifier_offset);

    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return *(const size_t *)quantifier > 0;
    if (is_oneof(field))
        return *(const uint32_t *)quantifier == field->id;
    return !is_default(field, AT(message, field->offset));
}

static void put_list(struct json_out *out, const ProtobufCFieldDescriptor *field,
                     const ProtobufCMessage *message)
{
    size_t count = *(const size_t *)AT(message, field->quantifier_offset);
    const char *items = *(char *const *)AT(message, field->offset);

    json_open(out, '[');
    for (size_t i = 0; i < count; i++)
        put_value(out, field, items + i * size_of(field->type));
    json_close(out, ']');
}

/* Of a key that is there twice the last one counts, as in protobuf. */
static void put_map(struct json_out *out, const ProtobufCFieldDescriptor *field,
                    const ProtobufCMessage *message)
{
    size_t count = *(const size_t *)AT(message, field->quantifier_offset);
    ProtobufCMessage **entries = *(ProtobufCMessage ***)AT(message, field->offset);
    const ProtobufCFieldDescriptor *key =
        ((const ProtobufCMessageDescriptor *)field->descriptor)->fields;
    automap struct map last = { 0 };

    for (size_t i = 0; i < count; i++)
        map_put(&last, str_of(*(char **)AT(entries[i], key->offset)), entries[i]);
    json_open(out, '{');
    for (size_t i = 0; i < count; i++) {
        struct str name = str_of(*(char **)AT(entries[i], key->offset));

        if (map_get(&last, name) != entries[i])
            continue;
        json_key_str(out, name);
        put_value(out, key + 1, AT(entries[i], key[1].offset));
    }
    json_close(out, '}');
}

/* NULL is one without fields: what a map has for a key without a value. */
static void put_message(struct json_out *out, const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *type = message ? message->descriptor : NULL;

    json_open(out, '{');
    for (unsigned i = 0; type && i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];

        if (!is_there(field, message))
            continue;
        put_name(out, field->name);
        if (is_map(type, field))
            put_map(out, field, message);
        else if (field->label == PROTOBUF_C_LABEL_REPEATED)
            put_list(out, field, message);
        else
            put_value(out, field, AT(message, field->offset));
    }
    json_close(out, '}');
}

void rpc_json_encode(const ProtobufCMessage *message, struct buf *out)
{
    struct json_out json = json_to(out);

    put_message(&json, message);
}
