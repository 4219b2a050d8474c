/*
 * What handlers say: decode, query, reply, event. All of it works on any thread, because a call
 * keeps copies of what it needs of the request; only call->req belongs to the loop thread.
 */
#include "api/own.h"

#include <stdio.h>

#include "base/clock.h"

const char *call_param(struct call *call, const char *name)
{
    for (unsigned i = 0; i < call->param_count; i++)
        if (strcmp(call->params[i].name, name) == 0)
            return call->params[i].value;
    abort(); /* the route's own path does not have it */
}

const char *call_query(struct call *call, const char *name)
{
    for (unsigned i = 0; i < call->query_count; i++)
        if (strcmp(call->queries[i].name, name) == 0)
            return call->queries[i].value;
    return NULL;
}

int call_query_int(struct call *call, const char *name, int64_t min, int64_t max, int64_t otherwise,
                   int64_t *out, struct err *err)
{
    const char *text = call_query(call, name);
    int64_t value;

    if (!text) {
        *out = otherwise;
        return 0;
    }
    if (!str_to_i64(str_of(text), &value))
        return err_field(err, name, "%s must be a whole number", name);
    if (value < min || value > max)
        return err_field(err, name, "%s must be from %lld to %lld", name, (long long)min,
                         (long long)max);
    *out = value;
    return 0;
}

int call_decode_patch(struct call *call, void *out, uint64_t *present, struct err *err)
{
    if (!call->json)
        return err_set(err, ERR_INVALID, "a JSON object is needed as the body");
    return field_decode(call->route->takes, call->json, out, &call->arena, present, err);
}

int call_decode(struct call *call, void *out, struct err *err)
{
    return call_decode_patch(call, out, NULL, err);
}

struct json_out call_json(struct call *call)
{
    if (!call->reply.data)
        (void)buf_reserve(&call->reply, 512); /* as much as most have, at once */
    return json_to(&call->reply);
}

int call_reply(struct call *call, const void *in)
{
    struct json_out out = call_json(call);

    field_encode(call->route->gives, in, &out);
    return 0;
}

void call_header(struct call *call, const char *name, const char *value)
{
    if (call->extra_count == CALL_EXTRA_MAX)
        abort(); /* a handler's own mistake */
    call->extra[call->extra_count++] =
        (struct http_header){ str_of(name), str_of(arena_strdup(&call->arena, value)) };
}

int call_event(struct call *call, const char *type, const char *object, struct str body,
               struct err *err)
{
    return event_add(call->db, call->who.tenant, type, object, body, err);
}

enum surface surface_of_path(struct str path)
{
    static const char *const hub[] = { "agents",       "messages", "projects",   "tasks",
                                       "capabilities", "autonomy", "revocation", "events",
                                       "audit",        "ping",     "channels",   "proposals" };

    path = str_from(path, path.n && path.p[0] == '/');
    struct str first = str_cut(&path, '/');
    for (size_t i = 0; i < ARRAY_LEN(hub); i++)
        if (str_is(first, hub[i]))
            return SURFACE_HUB;
    return SURFACE_ATOLL;
}

static const char *error_text(const struct err *err)
{
    return err->code == ERR_INTERNAL ? "internal error; see the server's log by request_id"
                                     : err->msg;
}

const char *call_error_text(struct call *call, const struct err *err)
{
    return err->code == ERR_INTERNAL
               ? arena_printf(&call->arena, "%s %s", error_text(err), call->request_id)
               : err->msg;
}

/* The word that was given with it (err_word), or the one that stands for its code. */
static const char *vm_word(const struct err *err)
{
    static const struct {
        enum err_code code;
        const char *word;
    } words[] = { { ERR_INVALID, "VALIDATION_ERROR" },
                  { ERR_NOT_FOUND, "VM_NOT_FOUND" },
                  { ERR_CONFLICT, "VM_NOT_RUNNING" },
                  { ERR_FORBIDDEN, "FORBIDDEN" },
                  { ERR_UNAUTHENTICATED, "UNAUTHENTICATED" },
                  { ERR_RATE, "RATE_LIMITED" },
                  { ERR_QUOTA, "QUOTA_EXCEEDED" },
                  { ERR_CAPACITY, "INSUFFICIENT_RESOURCES" } };

    if (err->field[0] >= 'A' && err->field[0] <= 'Z')
        return err->field;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (words[i].code == err->code)
            return words[i].word;
    return "PROVISIONING_ERROR";
}

/* Where a shape has no place for the field, it stands before the words. */
static void put_words(struct json_out *json, const struct err *err)
{
    const char *text = error_text(err);
    char words[sizeof(err->field) + sizeof(err->msg) + 2];
    bool named = strncmp(text, err->field, strlen(err->field)) == 0; /* true without a field */

    snprintf(words, sizeof(words), "%s%s%s", named ? "" : err->field,
             named || text[0] == '[' ? "" : ": ", text);
    json_put_str(json, str_of(words));
}

void api_error_body(enum surface surface, const struct err *err, const char *request_id,
                    struct buf *out)
{
    struct json_out json = json_to(out);

    if (surface == SURFACE_TEXT) {
        buf_printf(out, "%s\n", err->msg);
        return;
    }
    json_open(&json, '{');
    json_key(&json, "error");
    if (surface == SURFACE_HUB) {
        put_words(&json, err);
    } else if (surface == SURFACE_VM) {
        json_open(&json, '{');
        json_kv_text(&json, "code", vm_word(err));
        json_key(&json, "message");
        if (vm_word(err) == err->field)
            json_put_str(&json, str_of(error_text(err)));
        else
            put_words(&json, err);
        json_close(&json, '}');
    } else {
        json_open(&json, '{');
        json_kv_text(&json, "code", err_info(err->code)->name);
        json_kv_text(&json, "reason", err_reason_name(err->reason));
        json_kv_text(&json, "message", error_text(err));
        json_kv_text(&json, "field", err->field[0] ? err->field : NULL);
        json_kv_text(&json, "request_id", request_id);
        json_close(&json, '}');
    }
    json_close(&json, '}');
    buf_putc(out, '\n');
}
