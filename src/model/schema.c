/*
 * Field tables as OpenAPI 3.1, that is JSON Schema 2020-12. A request schema says what field_decode
 * takes: nothing unknown, no null but where one takes something back, bounds. A reply schema says
 * what field_encode writes: every field, some of them null; it sets no bounds and may grow fields.
 * JSON Schema counts characters where we count bytes, so its maxLength is the looser.
 */
#include "model/field.h"

static void put_type(struct json_out *out, const char *type, bool or_null)
{
    json_key(out, "type");
    if (or_null) {
        json_open(out, '[');
        json_put_str(out, str_of(type));
        json_put_str(out, STR("null"));
        json_close(out, ']');
    } else {
        json_put_str(out, str_of(type));
    }
}

/* Bounds under the names that this type has for them; max 0 means `otherwise`. */
static void put_bounds(struct json_out *out, const struct field *field, bool request,
                       const char *min, const char *max, int64_t otherwise)
{
    if (!request)
        return;
    if (field->min)
        json_kv_int(out, min, field->min);
    json_kv_int(out, max, field->max ? field->max : otherwise);
}

static void put_range(struct json_out *out, const struct field *field, bool request)
{
    if (request && (field->min || field->max)) {
        json_kv_int(out, "minimum", field->min);
        json_kv_int(out, "maximum", field->max);
    }
}

static void put_choices(struct json_out *out, const struct field *field, bool or_null)
{
    struct str rest = str_of(field->choices);

    json_key(out, "enum");
    json_open(out, '[');
    while (rest.n)
        json_put_str(out, str_cut(&rest, '|'));
    if (or_null)
        json_put_null(out);
    json_close(out, ']');
}

static void put_strings_of(struct json_out *out, const struct field *field, const char *key,
                           bool request)
{
    json_key(out, key);
    json_open(out, '{');
    json_kv_text(out, "type", "string");
    if (request)
        json_kv_int(out, "maxLength", field->each_max ? field->each_max : FIELD_BYTES_MAX);
    json_close(out, '}');
}

/* The members of an object's schema, without its braces. */
static void put_object(struct json_out *out, const struct field *fields, bool request,
                       bool or_null);

static void put_field_type(struct json_out *out, const struct field *field, bool request)
{
    switch (field->type) {
    case F_STRING:
        put_type(out, "string", !request);
        put_bounds(out, field, request, "minLength", "maxLength", FIELD_BYTES_MAX);
        break;
    case F_INT:
        put_type(out, "integer", false);
        put_range(out, field, request);
        break;
    case F_DOUBLE:
        put_type(out, "number", false);
        put_range(out, field, request);
        break;
    case F_BOOL:
        put_type(out, "boolean", false);
        break;
    case F_MAYBE:
        put_type(out, "boolean", !request);
        break;
    case F_ENUM:
        put_type(out, "string", !request);
        put_choices(out, field, !request);
        break;
    case F_STRINGS:
        put_type(out, "array", false);
        put_strings_of(out, field, "items", request);
        put_bounds(out, field, request, "minItems", "maxItems", FIELD_ITEMS_MAX);
        break;
    case F_MAP:
        put_type(out, "object", false);
        put_strings_of(out, field, "additionalProperties", request);
        put_bounds(out, field, request, "minProperties", "maxProperties", FIELD_ITEMS_MAX);
        break;
    case F_OBJECT:
        put_object(out, field->of, request, !request || (field->flags & F_NULL));
        break;
    case F_LIST:
        put_type(out, "array", false);
        json_key(out, "items");
        field_schema(field->of, request, out);
        put_bounds(out, field, request, "minItems", "maxItems", FIELD_ITEMS_MAX);
        break;
    case F_TIME:
        put_type(out, "string", true);
        json_kv_text(out, "format", "date-time");
        break;
    case F_NAIVE: /* not a date-time: that has a zone */
        put_type(out, "string", true);
        break;
    case F_JSON: /* anything: no type */
    default:
        break;
    }
}

static bool shown(const struct field *field, bool request)
{
    return !request || (!(field->flags & F_READONLY) && field->type != F_TIME);
}

/* A secret is not promised: a reply given again to an Idempotency-Key comes without it. */
static bool promised(const struct field *field, bool request)
{
    return request ? (field->flags & F_REQUIRED) != 0 : !(field->flags & F_SECRET);
}

static void put_object(struct json_out *out, const struct field *fields, bool request, bool or_null)
{
    bool any = false;

    put_type(out, "object", or_null);
    json_key(out, "properties");
    json_open(out, '{');
    for (const struct field *field = fields; field->name; field++) {
        if (!shown(field, request))
            continue;
        any |= promised(field, request);
        json_key(out, field->name);
        json_open(out, '{');
        put_field_type(out, field, request);
        if (field->help)
            json_kv_text(out, "description", field->help);
        if (request && (field->flags & F_SECRET))
            json_kv_bool(out, "writeOnly", true);
        json_close(out, '}');
    }
    json_close(out, '}');
    if (any) {
        json_key(out, "required");
        json_open(out, '[');
        for (const struct field *field = fields; field->name; field++)
            if (shown(field, request) && promised(field, request))
                json_put_str(out, str_of(field->name));
        json_close(out, ']');
    }
    if (request)
        json_kv_bool(out, "additionalProperties", false);
}

void field_schema(const struct field *fields, bool request, struct json_out *out)
{
    json_open(out, '{');
    put_object(out, fields, request, false);
    json_close(out, '}');
}
