/* See hub_call.h. */
#include "api/hub_call.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/uuid.h"

const struct field hub_nothing[] = { { 0 } };

/* A browser's session has no name; the role says more than "browser". */
static const char *person(const struct principal *who)
{
    if (who->via == VIA_COOKIE)
        return role_name(who->role);
    return who->name[0] ? who->name : HUB_HUMAN;
}

struct hub_by hub_by_db(struct call *call, struct db *db)
{
    return (struct hub_by){ .db = db,
                            .arena = &call->arena,
                            .hub = call->api->hub,
                            .tenant = call->who.tenant,
                            .agent = call->who.role == ROLE_AGENT ? call->who.name : NULL,
                            .actor = person(&call->who),
                            .mover = call->who.via == VIA_OPEN ? NULL : person(&call->who),
                            .looks = call->who.role == ROLE_VIEWER,
                            .now_ms = clock_wall_ms() };
}

struct hub_by hub_by(struct call *call)
{
    return hub_by_db(call, call->db);
}

/* ---- names ---- */

/* Gives 1 for an id and for a name that was resolved to one, 0 for an unknown name. */
static int resolve(const struct hub_by *by, struct call_param *one, const char *project,
                   struct err *err)
{
    const char *id;

    if (uuid_shaped(str_of(one->value)))
        return 1;
    int rc = project ? hub_task_named(by, project, one->value, &id, err)
                     : hub_project_named(by, one->value, &id, err);
    if (rc > 0)
        one->value = id;
    return rc;
}

/* Lists are empty of a project that is not there any more, and wrong of one that never was. */
static int no_project(const struct call *call, const char *name, struct err *err)
{
    if (strcmp(call->method, "GET") != 0)
        return 0; /* the handler says so, in its order and words */
    return err_set(err, ERR_NOT_FOUND, "project not found: %.100s", name);
}

int hub_resolve(struct call *call, struct err *err)
{
    const char *project = NULL;

    if (!str_starts(str_of(call->route->name), STR("hub.")))
        return 0;
    struct hub_by by = hub_by(call);
    for (unsigned i = 0; i < call->param_count; i++) {
        struct call_param *one = &call->params[i];
        bool is_project = strcmp(one->name, "project") == 0;

        if (!is_project && !(project && strcmp(one->name, "task") == 0))
            continue;
        int rc = resolve(&by, one, is_project ? NULL : project, err);
        if (rc < 0 || (rc == 0 && is_project && no_project(call, one->value, err) < 0))
            return -1;
        project = one->value;
    }
    for (unsigned i = 0; i < call->query_count; i++) {
        struct call_param *one = &call->queries[i];

        if (!one->value[0] ||
            (strcmp(one->name, "project") != 0 && strcmp(one->name, "project_id") != 0))
            continue;
        int rc = resolve(&by, one, NULL, err);
        if (rc < 0 || (rc == 0 && no_project(call, one->value, err) < 0))
            return -1;
    }
    return 0;
}

/* ---- bodies ---- */

static const struct field *known(const struct field *fields, struct str name)
{
    for (const struct field *field = fields; field->name; field++)
        if (str_is(name, field->name) && !(field->flags & F_READONLY))
            return field;
    return NULL;
}

/* The members that count, as an object of their own. */
static struct json *sift(struct call *call, const struct field *fields)
{
    struct json *out = arena_new(&call->arena, struct json), **end = &out->first;

    out->type = JSON_OBJECT;
    json_each(member, call->json)
    {
        const struct field *field = known(fields, member->key);

        if (!field || member->type == JSON_NULL ||
            (field->flags & F_REQUIRED && member->type == JSON_STRING && !member->text.n))
            continue;
        struct json *copy = arena_new(&call->arena, struct json);
        *copy = *member;
        copy->next = NULL;
        *end = copy;
        end = &copy->next;
        out->count++;
    }
    return out;
}

static int say_required(const struct field *fields, struct err *err)
{
    autobuf struct buf names = { 0 };

    for (const struct field *field = fields; field->name; field++)
        if (field->flags & F_REQUIRED)
            buf_printf(&names, "%s%s", names.len ? " and " : "", field->name);
    return err_set(err, ERR_INVALID, "%s required", buf_cstr(&names));
}

static int check_required(const struct field *fields, const struct json *given, struct err *err)
{
    for (const struct field *field = fields; field->name; field++)
        if (field->flags & F_REQUIRED && !json_get(given, field->name))
            return say_required(fields, err);
    return 0;
}

void hub_name_field(const struct route *route, struct err *err)
{
    char text[ERR_MSG_SIZE];
    size_t len = strlen(err->field);

    if (!str_starts(str_of(route->name), STR("hub.")) || !len ||
        strncmp(err->msg, err->field, len) == 0)
        return;
    snprintf(text, sizeof(text), "%s%s%.380s", err->field, err->msg[0] == '[' ? "" : ": ",
             err->msg);
    memcpy(err->msg, text, sizeof(text));
}

int hub_take(struct call *call, void *out, uint64_t *present, struct err *err)
{
    const struct field *fields = call->route->takes;

    if (call->json && call->json->type != JSON_OBJECT)
        return err_set(err, ERR_INVALID, "the body must be a JSON object, not %s",
                       json_type_name(call->json->type));
    const struct json *given = sift(call, fields);
    if (check_required(fields, given, err) < 0)
        return -1;
    return field_decode(fields, given, out, &call->arena, present, err);
}

/* ---- the query ---- */

int hub_limit(struct call *call, int64_t otherwise, int64_t most, int64_t *out, struct err *err)
{
    if (call_query_int(call, "limit", 0, INT64_MAX, otherwise, out, err) < 0)
        return err_field(err, "limit", "must be a whole number from 0; over %lld it counts as that",
                         (long long)most);
    *out = MIN(*out, most);
    return 0;
}

bool hub_true(struct call *call, const char *query)
{
    const char *text = call_query(call, query);

    return text && str_eq_nocase(str_of(text), STR("true"));
}

int hub_yes(struct call *call, const char *query, bool *out, struct err *err)
{
    const char *text = call_query(call, query);

    *out = hub_true(call, query);
    if (!text || *out || str_eq_nocase(str_of(text), STR("false")))
        return 0;
    return err_field(err, query, "must be true or false");
}

/* ---- answers and records ---- */

void hub_note_words(struct call *call, const char *agent, const char *const *words)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);

    json_open(&json, '{');
    json_kv_text(&json, "agent", agent);
    json_key(&json, "details");
    json_open(&json, '{');
    for (; words[0]; words += 2)
        if (words[1])
            json_kv_str(&json, words[0],
                        (struct str){ words[1], MIN(strlen(words[1]), (size_t)HUB_NOTE_MAX) });
    json_close(&json, '}');
    json_close(&json, '}');
    call->detail = arena_memdup0(&call->arena, text.data, text.len);
}

int hub_say_words(struct call *call, const char *const *words)
{
    struct json_out json = call_json(call);

    json_open(&json, '{');
    for (; words[0]; words += 2)
        json_kv_text(&json, words[0], words[1]);
    json_close(&json, '}');
    return 0;
}

int hub_ok(struct call *call)
{
    return hub_say(call, "status", "ok", NULL);
}

/* ---- lists ---- */

struct hub_list hub_list(struct call *call)
{
    struct hub_list list = { call_json(call), call->route->items };

    json_open(&list.json, '[');
    return list;
}

void hub_put_item(void *list, const void *item)
{
    struct hub_list *to = list;

    field_encode(to->fields, item, &to->json);
}

int hub_list_end(struct hub_list *list, int rc)
{
    if (rc >= 0)
        json_close(&list->json, ']');
    return rc < 0 ? -1 : 0;
}
