/* What everything else here is made of: who acts, names, events, lists in columns. */
#include "hub/own.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/show.h"

/* ---- who ---- */

int hub_acts(const struct hub_by *by, const char *name, struct err *err)
{
    struct hub_standing standing;

    if (!by->agent || strcmp(by->agent, name) == 0)
        return 0;
    if (hub_standing_known(by, name, &standing, err) < 0)
        return -1;
    return err_set(err, ERR_FORBIDDEN, "%s may not act as %s", by->agent, name);
}

int hub_self(const struct hub_by *by, const char *name, const char *field, struct err *err)
{
    if (!by->agent || strcmp(by->agent, name) == 0)
        return 0;
    return err_set(err, ERR_FORBIDDEN, "%s: %s may not act as %s", field, by->agent, name);
}

const char *hub_who(const struct hub_by *by, const char *said)
{
    return said && said[0] ? said : by->agent ? by->agent : HUB_HUMAN;
}

/* ---- names ---- */

int hub_shown_check(const char *text, const char *field, struct err *err)
{
    struct str rest = str_of(text);
    uint32_t code;

    while (rest.n) {
        size_t len = str_utf8_at(rest.p, rest.n, &code);

        if (!len || show_hidden(code))
            return err_field(err, field, "must not have control, bidi or invisible characters");
        rest = str_from(rest, len);
    }
    return 0;
}

static int check_word(const char *text, const char *field, struct err *err)
{
    size_t len = strlen(text);

    if (!len)
        return err_field(err, field, "must not be empty");
    if (text[0] == ' ' || text[len - 1] == ' ')
        return err_field(err, field, "must not begin or end with a space");
    return hub_shown_check(text, field, err);
}

int hub_title_check(const char *title, const char *field, struct err *err)
{
    if (strlen(title) > HUB_TITLE_MAX)
        return err_field(err, field, "must have at most %d bytes", HUB_TITLE_MAX);
    return check_word(title, field, err);
}

int hub_name_check(const char *name, const char *field, struct err *err)
{
    if (strlen(name) > HUB_NAME_MAX)
        return err_field(err, field, "must have at most %d bytes", HUB_NAME_MAX);
    if (check_word(name, field, err) < 0)
        return -1;
    if (strchr(name, '/') || strchr(name, '\\') || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0)
        return err_field(err, field, "must not have slashes, nor be . or ..");
    return 0;
}

bool hub_mode_ok(const char *mode)
{
    return strcmp(mode, "fully_autonomous") == 0 || strcmp(mode, "advisory") == 0 ||
           strcmp(mode, "manual") == 0;
}

int hub_text_check(const struct hub_by *by, const char *text, struct err *err)
{
    if (by->hub->filter != HUB_FILTER_ALL || !text || !away_hit(by->hub->urls, str_of(text)))
        return 0;
    return err_set(err, ERR_INVALID, "Sandbox: text blocked (external URL detected)");
}

int hub_metadata_check(const struct json *metadata, struct err *err)
{
    autobuf struct buf text = { .max = HUB_METADATA_MAX };
    struct json_out json = json_to(&text);

    if (!metadata)
        return 0;
    if (metadata->type != JSON_OBJECT)
        return err_field(err, "metadata", "must be an object, not %s",
                         json_type_name(metadata->type));
    json_put(&json, metadata);
    if (!buf_ok(&text))
        return err_field(err, "metadata", "must have at most %d bytes", HUB_METADATA_MAX);
    return 0;
}

/* ---- events ---- */

const char *hub_uuid(const struct hub_by *by)
{
    char *id = arena_alloc(by->arena, UUID_SIZE);
    struct hub *hub = by->hub;

    if (!hub->ids_left) { /* asked of the kernel for many at once */
        random_bytes(hub->ids, sizeof(hub->ids));
        hub->ids_left = ARRAY_LEN(hub->ids);
    }
    uuid_v7_of(hub->ids[--hub->ids_left], id); /* by time: made together they lie together */
    return id;
}

int hub_tell_json(const struct hub_by *by, const char *type, const char *object, struct buf *body,
                  struct err *err)
{
    return event_add(by->db, by->tenant, type, object, buf_view(body), err);
}

int hub_tell_words(const struct hub_by *by, const char *type, const char *object, struct err *err,
                   const char *const *words)
{
    autobuf struct buf body = hub_room();
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    for (; words[0]; words += 2)
        json_kv_text(&json, words[0], words[1]);
    json_close(&json, '}');
    return hub_tell_json(by, type, object, &body, err);
}

const char *hub_agent_object(const struct hub_by *by, const char *name)
{
    return arena_printf(by->arena, "hub/agent/%s", name);
}

const char *hub_project_object(const struct hub_by *by, const char *project, const char *rest)
{
    return arena_printf(by->arena, "hub/project/%s/%s", project, rest);
}

/* ---- lists in columns ---- */

struct json *hub_json(const struct hub_by *by, struct str text)
{
    struct json *json = NULL;

    text = arena_str(by->arena, text);
    if (json_parse(by->arena, text, &json, NULL) < 0)
        return NULL; /* our own words: cannot be */
    return json;
}

const char *hub_json_text(const struct hub_by *by, const struct json *value)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);

    json_put(&json, value);
    return arena_memdup0(by->arena, text.data, text.len);
}

const char **hub_strings(const struct hub_by *by, struct str text)
{
    const struct json *list = str_is(text, "[]") ? NULL : hub_json(by, text);
    const char **items = arena_alloc(by->arena, ((list ? list->count : 0) + 1) * sizeof(*items));
    size_t count = 0;

    json_each(item, list)
    {
        if (item->type == JSON_STRING)
            items[count++] = arena_memdup0(by->arena, item->text.p, item->text.n);
    }
    return items;
}

const char *hub_strings_text(const struct hub_by *by, const char *const *items)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);

    json_open(&json, '[');
    for (; items && *items; items++)
        json_put_str(&json, str_of(*items));
    json_close(&json, ']');
    return arena_memdup0(by->arena, text.data, text.len);
}

bool hub_has(const char *const *items, const char *item)
{
    for (; items && *items; items++)
        if (strcmp(*items, item) == 0)
            return true;
    return false;
}

const char *hub_or_null(const char *text)
{
    return text && text[0] ? text : NULL;
}

char *hub_lower(const struct hub_by *by, struct str text)
{
    char *low = arena_memdup0(by->arena, text.p ? text.p : "", text.n);

    for (char *p = low; *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p |= 0x20;
    return low;
}

void *hub_twice(const struct hub_by *by, const void *items, size_t size, size_t *cap)
{
    size_t most = *cap ? 2 * *cap : 64;
    void *more = arena_alloc(by->arena, most * size);

    if (*cap)
        memcpy(more, items, *cap * size);
    *cap = most;
    return more;
}

/* ---- statements ---- */

struct query *hub_query_texts(const struct hub_by *by, const char *literal_sql,
                              const char *const *texts, size_t count)
{
    struct query *q = db_query(by->db, literal_sql);

    for (size_t i = 0; i < count; i++)
        query_text(q, (int)i + 1, texts[i]);
    return q;
}

int hub_change_texts(const struct hub_by *by, const char *literal_sql, const char *const *texts,
                     size_t count, struct err *err)
{
    autoquery struct query *q = hub_query_texts(by, literal_sql, texts, count);

    return query_run(q, err);
}

int hub_set(const struct hub_by *by, const char *literal_sql, const char *text, const char *name,
            struct err *err)
{
    return hub_change_texts(by, literal_sql, (const char *const[]){ text, by->tenant, name }, 3,
                            err);
}

int hub_row(struct query *q, const char *missing, struct err *err)
{
    int rc = query_step(q, err);

    if (rc < 0)
        return -1;
    return rc ? 0 : err_set(err, ERR_NOT_FOUND, "%s", missing);
}

int hub_number(struct query *q, int64_t otherwise, int64_t *out, struct err *err)
{
    int rc = query_step(q, err);

    if (rc < 0)
        return -1;
    *out = rc ? query_col_i64(q, 0) : otherwise;
    return 0;
}

int hub_column(const struct hub_by *by, struct query *q, const char ***out, struct err *err)
{
    size_t count = 0, cap = 16;
    const char **items = arena_alloc(by->arena, cap * sizeof(*items));
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        if (count + 1 == cap)
            items = hub_twice(by, items, sizeof(*items), &cap);
        items[count++] = query_col_dup(q, 0, by->arena);
    }
    if (rc < 0)
        return -1;
    *out = items;
    return 0;
}
