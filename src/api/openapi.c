/*
 * The description of the API, from the route tables: OpenAPI 3.1 for programs and docs/api.md for
 * people. Nothing here knows a route by name, so neither can fall behind.
 */
#include "api/own.h"

#include <stdio.h>

#include "base/map.h"

static void put_roles(const struct route *route, struct json_out *json)
{
    json_key(json, "x-roles");
    json_open(json, '[');
    if (route->roles & ROLE_PUBLIC)
        json_put_str(json, STR("public"));
    for (unsigned role = ROLE_SANDBOX; role <= ROLE_ADMIN; role <<= 1)
        if (route->roles & role)
            json_put_str(json, str_of(role_name((enum role)role)));
    json_close(json, ']');
    if (route->flags & ROUTE_NODE) /* for the tenant that owns the server alone */
        json_kv_bool(json, "x-node", true);
}

static void put_parameter(struct json_out *json, struct str name, const char *in, struct str type)
{
    json_open(json, '{');
    json_kv_str(json, "name", name);
    json_kv_text(json, "in", in);
    json_kv_bool(json, "required", strcmp(in, "path") == 0);
    json_key(json, "schema");
    json_open(json, '{');
    if (str_is(type, "strings"))
        json_put_raw(json, STR("\"type\":\"array\",\"items\":{\"type\":\"string\"}"));
    else
        json_kv_str(json, "type", str_is(type, "int") ? STR("integer") : STR("string"));
    json_close(json, '}');
    json_close(json, '}');
}

static void put_parameters(const struct route *route, struct json_out *json)
{
    struct str path = str_of(route->path), query = str_of(route->query);

    json_key(json, "parameters");
    json_open(json, '[');
    while (path.n) {
        struct str part = str_cut(&path, '/');

        if (part.n > 2 && part.p[0] == '{') {
            struct str name = { part.p + 1, part.n - 2 };

            name.n -= name.p[name.n - 1] == '*'; /* the rest of the path, slashes and all */
            put_parameter(json, name, "path", STR("string"));
        }
    }
    while (query.n) {
        struct str item = str_cut(&query, ','), type = item;
        struct str name = str_cut(&type, ':');

        if (!str_is(type, "agentic"))
            put_parameter(json, name, "query", type);
    }
    if (route->flags & (ROUTE_CREATES | ROUTE_ONCE) && route->on != ON_STREAM)
        put_parameter(json, STR("Idempotency-Key"), "header", STR("string"));
    json_close(json, ']');
}

/* {"items":[…]}, the shape of every list but the hub's. */
static void put_list_schema(struct json_out *json, const struct field *items, bool bare)
{
    if (bare) {
        json_open(json, '{');
        json_kv_text(json, "type", "array");
        json_key(json, "items");
        field_schema(items, false, json);
        json_close(json, '}');
        return;
    }
    json_open(json, '{');
    json_kv_text(json, "type", "object");
    json_key(json, "required");
    json_put_raw(json, STR("[\"items\"]"));
    json_key(json, "properties");
    json_open(json, '{');
    json_key(json, "items");
    json_open(json, '{');
    json_kv_text(json, "type", "array");
    json_key(json, "items");
    field_schema(items, false, json);
    json_close(json, '}');
    json_close(json, '}');
    json_close(json, '}');
}

static void put_content(struct json_out *json, const char *type, const struct field *fields,
                        const struct field *items, bool request, bool bare)
{
    json_key(json, "content");
    json_open(json, '{');
    json_key(json, type);
    json_open(json, '{');
    json_key(json, "schema");
    if (items)
        put_list_schema(json, items, bare);
    else if (fields)
        field_schema(fields, request, json);
    else
        json_put_bool(json, true);
    json_close(json, '}');
    json_close(json, '}');
}

static const char *reply_type(const struct route *route)
{
    return route->flags & ROUTE_SSE                  ? "text/event-stream"
           : route->surface == SURFACE_TEXT          ? "text/plain"
           : route->on == ON_STREAM && !route->gives ? "application/octet-stream"
                                                     : "application/json";
}

static void put_operation(const struct route *route, struct json_out *json)
{
    char method[16];
    size_t i = 0;

    for (; i < sizeof(method) - 1 && route->method[i]; i++)
        method[i] = (char)(route->method[i] | 0x20);
    method[i] = 0;
    json_key(json, method);
    json_open(json, '{');
    json_kv_text(json, "operationId", route->name);
    json_kv_text(json, "summary", route->summary);
    put_roles(route, json);
    if (route->flags & ROUTE_WS)
        json_kv_bool(json, "x-websocket", true);
    put_parameters(route, json);
    if (route->takes || route->flags & (ROUTE_BODY | ROUTE_RAW)) {
        json_key(json, "requestBody");
        json_open(json, '{');
        json_kv_bool(json, "required", !(route->flags & ROUTE_LOOSE));
        put_content(json,
                    route->takes               ? "application/json"
                    : route->flags & ROUTE_RAW ? "multipart/form-data"
                                               : "application/octet-stream",
                    route->takes, NULL, true, false);
        json_close(json, '}');
    }
    if (route->roles & ROLE_PUBLIC) {
        json_key(json, "security");
        json_open(json, '[');
        json_close(json, ']');
    }
    json_key(json, "responses");
    json_open(json, '{');
    json_key(json, route->flags & ROUTE_CREATES ? "201" : "200");
    json_open(json, '{');
    json_kv_text(json, "description", "Success");
    put_content(json, reply_type(route), route->gives, route->items, false,
                route->flags & ROUTE_BARE);
    json_close(json, '}');
    json_key(json, "default");
    json_open(json, '{');
    json_key(json, "$ref");
    json_put_str(json, STR("#/components/responses/Error"));
    json_close(json, '}');
    json_close(json, '}');
    json_close(json, '}');
}

/* Of several routes with one method and path (page, SSE, WebSocket) the first speaks for all. */
static bool first_of_its_kind(const struct route *route)
{
    for (const struct route *const *table = api_tables; *table; table++)
        for (const struct route *other = *table; other->name; other++) {
            if (other == route)
                return true;
            if (strcmp(other->path, route->path) == 0 && strcmp(other->method, route->method) == 0)
                return false;
        }
    return true;
}

static void put_path(const char *path, struct json_out *json)
{
    char shown[128];
    size_t len = strlen(path), end = len > 2 && path[len - 2] == '*' ? len - 2 : len;

    /* "{path*}" is our router's word. */
    snprintf(shown, sizeof(shown), "%.*s%s", (int)end, path, end < len ? "}" : "");
    json_key(json, shown);
    json_open(json, '{');
    for (const struct route *const *table = api_tables; *table; table++)
        for (const struct route *route = *table; route->name; route++)
            if (strcmp(route->path, path) == 0 && !(route->flags & ROUTE_HIDDEN) &&
                first_of_its_kind(route))
                put_operation(route, json);
    json_close(json, '}');
}

static const char error_components[] =
    "{\"securitySchemes\":{\"token\":{\"type\":\"http\",\"scheme\":\"bearer\"},"
    "\"session\":{\"type\":\"apiKey\",\"in\":\"cookie\",\"name\":\"" SESSION_COOKIE "\"}},"
    "\"responses\":{\"Error\":{\"description\":\"What went "
    "wrong\",\"content\":{\"application/json\":{\"schema\":"
    "{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":\"object\","
    "\"required\":[\"code\",\"message\"],\"properties\":{\"code\":{\"type\":\"string\"},"
    "\"reason\":{\"type\":[\"string\",\"null\"]},"
    "\"message\":{\"type\":\"string\"},"
    "\"field\":{\"type\":[\"string\",\"null\"]},\"request_id\":{\"type\":[\"string\",\"null\"]}}}}}"
    "}}}}}";

void api_openapi(const char *version, struct buf *out)
{
    struct json_out json = json_to(out);
    automap struct map seen = { 0 };

    json_open(&json, '{');
    json_kv_text(&json, "openapi", "3.1.0");
    json_key(&json, "info");
    json_open(&json, '{');
    json_kv_text(&json, "title", "Atoll");
    json_kv_text(&json, "version", version);
    json_close(&json, '}');
    json_key(&json, "security");
    json_put_raw(&json, STR("[{\"token\":[]},{\"session\":[]}]"));
    json_key(&json, "paths");
    json_open(&json, '{');
    for (const struct route *const *table = api_tables; *table; table++)
        for (const struct route *route = *table; route->name; route++)
            if (!(route->flags & ROUTE_HIDDEN) && !map_put(&seen, str_of(route->path), &seen))
                put_path(route->path, &json);
    json_close(&json, '}');
    json_key(&json, "components");
    json_put_raw(&json, str_of(error_components));
    json_close(&json, '}');
}

/* ---- for people ---- */

static void put_field_rows(const struct field *fields, bool request, struct buf *out)
{
    static const char *const types[] = {
        [F_STRING] = "string", [F_INT] = "integer",   [F_DOUBLE] = "number",
        [F_BOOL] = "boolean",  [F_ENUM] = "enum",     [F_STRINGS] = "strings",
        [F_MAP] = "map",       [F_OBJECT] = "object", [F_LIST] = "list",
        [F_JSON] = "any",      [F_TIME] = "time",     [F_NAIVE] = "time",
        [F_MAYBE] = "boolean",
    };

    buf_puts(out, "| field | type | meaning |\n|---|---|---|\n");
    for (const struct field *f = fields; f->name; f++) {
        if (request && (f->flags & F_READONLY))
            continue;
        buf_printf(out, "| `%s`%s | %s | %s", f->name, f->flags & F_REQUIRED ? " (required)" : "",
                   types[f->type], f->help ? f->help : "");
        if (f->choices) {
            struct str rest = str_of(f->choices);

            buf_puts(out, ":");
            while (rest.n) {
                struct str choice = str_cut(&rest, '|');

                buf_printf(out, " `%.*s`", STR_FMT(choice));
            }
        }
        buf_puts(out, " |\n");
    }
    buf_putc(out, '\n');
}

static void put_role_words(const struct route *route, struct buf *out)
{
    if (route->roles & ROLE_PUBLIC)
        buf_puts(out, " nobody in particular");
    for (unsigned role = ROLE_ADMIN; role >= ROLE_SANDBOX; role >>= 1)
        if (route->roles & role)
            buf_printf(out, " %s", role_name((enum role)role));
}

void api_reference(struct buf *out)
{
    buf_puts(out,
             "# API reference\n\nMade from the route tables by `make docs`; do not edit.\n\n"
             "Errors are `{\"error\":{\"code\",\"reason\",\"message\",\"field\",\"request_id\"}}`. "
             "`reason` tells some apart\nthat have the same code, and is null otherwise: `role` "
             "(403: another role, scope or tenant might),\n`deleting` (409: the sandbox is being "
             "deleted), `paused` and\n`stopped` (409: it must be resumed, or started). "
             "Unknown fields and query parameters,\n"
             "wrong types and values over a limit are 400 with the field's name. Every `POST` "
             "that creates takes an\n"
             "`Idempotency-Key`, kept for 24 hours.\n\n");
    for (const struct route *const *table = api_tables; *table; table++)
        for (const struct route *route = *table; route->name; route++) {
            if (route->flags & ROUTE_HIDDEN)
                continue;
            buf_printf(out, "## %s %s%s\n\n%s\n\nAction `%s`; roles:", route->method, route->path,
                       route->flags & ROUTE_WS    ? " (event stream, WebSocket)"
                       : route->flags & ROUTE_SSE ? " (event stream)"
                                                  : "",
                       route->summary, route->name);
            put_role_words(route, out);
            buf_puts(out, ".\n\n");
            if (route->query)
                buf_printf(out, "Query: `%s`.\n\n", route->query);
            if (route->takes) {
                buf_puts(out, "Takes:\n\n");
                put_field_rows(route->takes, true, out);
            }
            if (route->gives) {
                buf_puts(out, "Gives:\n\n");
                put_field_rows(route->gives, false, out);
            }
            if (route->items) {
                buf_puts(out, route->flags & ROUTE_BARE ? "Gives a list, each:\n\n"
                                                        : "Gives `items`, each:\n\n");
                put_field_rows(route->items, false, out);
            }
        }
}
