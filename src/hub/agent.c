/*
 * Agents: who there is, what they can do, what they may do by themselves. The row holds what people
 * decided (paused, revoked, the mode), and registering again leaves that alone: whoever restarts is
 * who they were.
 */
#include "hub/own.h"

#include <stdlib.h>

#define MODE_DEFAULT "fully_autonomous"

/* ---- modes ---- */

static int mode_rank(const char *mode)
{
    return strcmp(mode, "manual") == 0 ? 0 : strcmp(mode, "advisory") == 0 ? 1 : 2;
}

int hub_default_mode(const struct hub_by *by, const char **out, struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT default_mode FROM hub_state WHERE tenant = $1");
    int rc = query_step(q, err);
    if (rc < 0)
        return -1;
    *out = rc ? query_col_dup(q, 0, by->arena) : MODE_DEFAULT;
    return 0;
}

int hub_standing(const struct hub_by *by, const char *name, struct hub_standing *out,
                 struct err *err)
{
    autoquery struct query *q =
        hub_query(by,
                  "SELECT mode, paused, revocation, checkpoint_seq, capabilities FROM hub_agent"
                  " WHERE tenant = $1 AND name = $2",
                  name);
    int rc = query_step(q, err);

    if (rc < 0)
        return -1;
    *out = (struct hub_standing){ .known = rc > 0 };
    if (!rc)
        return hub_default_mode(by, &out->mode, err);
    out->mode = query_col_dup(q, 0, by->arena);
    out->paused = query_col_i64(q, 1);
    out->revoked = query_col_str(q, 2).n > 0;
    out->checkpointed = query_col_i64(q, 3) > 0;
    out->capabilities = query_col_dup(q, 4, by->arena);
    return 0;
}

int hub_standing_known(const struct hub_by *by, const char *name, struct hub_standing *out,
                       struct err *err)
{
    if (hub_standing(by, name, out, err) < 0)
        return -1;
    return out->known ? 0 : err_set(err, ERR_NOT_FOUND, "agent not found");
}

int hub_standing_active(const struct hub_standing *standing, const char *name, struct err *err)
{
    if (standing->revoked)
        return err_set(err, ERR_CONFLICT, "agent %s is revoked", name);
    if (standing->paused)
        return err_set(err, ERR_CONFLICT, "agent %s is paused", name);
    return 0;
}

int hub_active(const struct hub_by *by, const char *name, struct err *err)
{
    struct hub_standing standing;

    if (!name || !name[0])
        return 0;
    if (hub_standing(by, name, &standing, err) < 0)
        return -1;
    return hub_standing_active(&standing, name, err);
}

/* ---- capabilities ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char **hub_tags_clean(const struct hub_by *by, const char *const *tags)
{
    size_t count = 0, kept = 0;

    while (tags && tags[count])
        count++;
    const char **out = arena_alloc(by->arena, (count + 1) * sizeof(*out));
    for (size_t i = 0; i < count; i++) {
        const char *low = hub_lower(by, str_trim(str_of(tags[i])));

        if (low[0] && !hub_has(out, low))
            out[kept++] = low;
    }
    qsort(out, kept, sizeof(*out), by_text);
    return out;
}

const char *hub_tags_text(const struct hub_by *by, const char *const *tags)
{
    autobuf struct buf text = { 0 };

    if (!tags || !*tags)
        return "set()";
    for (const char *const *tag = tags; *tag; tag++)
        buf_printf(&text, "%s'%s'", tag == tags ? "{" : ", ", *tag);
    buf_putc(&text, '}');
    return arena_memdup0(by->arena, text.data, text.len);
}

int hub_tags_of(const struct hub_by *by, const char *name, const char ***out, struct err *err)
{
    autoquery struct query *q = hub_query(
        by, "SELECT tag FROM hub_tag WHERE tenant = $1 AND agent = $2 ORDER BY tag", name);

    return hub_column(by, q, out, err);
}

int hub_match(const struct hub_by *by, const char *tag, const char ***out, struct err *err)
{
    autoquery struct query *q =
        hub_query(by,
                  "SELECT t.agent FROM hub_tag t JOIN hub_agent a ON a.tenant = t.tenant"
                  " AND a.name = t.agent WHERE t.tenant = $1 AND t.tag = $2 ORDER BY a.seq",
                  hub_lower(by, str_of(tag)));

    return hub_column(by, q, out, err);
}

static int drop_tags(const struct hub_by *by, const char *name, struct err *err)
{
    return hub_change(by, err, "DELETE FROM hub_tag WHERE tenant = $1 AND agent = $2", name);
}

static int put_tags(const struct hub_by *by, const char *name, const char *const *tags,
                    struct err *err)
{
    if (drop_tags(by, name, err) < 0)
        return -1;
    for (const char **tag = hub_tags_clean(by, tags); *tag; tag++)
        if (hub_change(by, err, "INSERT INTO hub_tag (tenant, tag, agent) VALUES ($1, $2, $3)",
                       *tag, name) < 0)
            return -1;
    return 0;
}

int hub_tags_check(const char *const *tags, const char *field, struct err *err)
{
    for (; tags && *tags; tags++)
        if (**tags && hub_shown_check(*tags, field, err) < 0)
            return -1;
    return 0;
}

/* A list, or "a, b". */
static int tags_of_json(const struct hub_by *by, const struct json *tags, const char ***out,
                        struct err *err)
{
    const char **items = arena_alloc(by->arena, (HUB_TAGS_MAX + 1) * sizeof(*items));
    struct str rest = tags && tags->type == JSON_STRING ? tags->text : STR_NONE;
    size_t count = 0;

    if (tags && tags->type != JSON_STRING && tags->type != JSON_ARRAY)
        return err_field(err, "tags", "must be an array or a string, not %s",
                         json_type_name(tags->type));
    const struct json *item = tags && tags->type == JSON_ARRAY ? json_first(tags) : NULL;
    while (rest.n || item) {
        struct str tag = item ? item->text : str_trim(str_cut(&rest, ','));

        if (item && item->type != JSON_STRING)
            return err_field(err, "tags", "[%zu] must be a string, not %s", count,
                             json_type_name(item->type));
        item = item ? item->next : NULL;
        if (count == HUB_TAGS_MAX)
            return err_field(err, "tags", "must have at most %d items", HUB_TAGS_MAX);
        if (tag.n > HUB_TAG_MAX)
            return err_field(err, "tags", "[%zu] must have at most %d bytes", count, HUB_TAG_MAX);
        if (tag.n || (tags && tags->type == JSON_ARRAY))
            items[count++] = arena_memdup0(by->arena, tag.p ? tag.p : "", tag.n);
    }
    *out = items;
    return hub_tags_check(items, "tags", err);
}

int hub_set_tags(const struct hub_by *by, const char *name, const struct hub_tags_wish *wish,
                 const char ***out, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    struct hub_standing standing;
    autoquery struct query *q =
        db_query(by->db, "UPDATE hub_agent SET capabilities = $1, description = $2"
                         " WHERE tenant = $3 AND name = $4");

    if (hub_standing_known(by, name, &standing, err) < 0 || hub_acts(by, name, err) < 0 ||
        tags_of_json(by, wish->tags, out, err) < 0 || put_tags(by, name, *out, err) < 0)
        return -1;
    query_text(q, 1, hub_strings_text(by, *out));
    query_text(q, 2, wish->description ? wish->description : "");
    query_text(q, 3, by->tenant);
    query_text(q, 4, name);
    if (query_run(q, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "name", name);
    json_key(&json, "tags");
    json_put_raw(&json, str_of(hub_strings_text(by, *out)));
    json_close(&json, '}');
    return hub_tell_json(by, "agent_capabilities_changed", hub_agent_object(by, name), &body, err);
}

int hub_profiles(const struct hub_by *by, hub_item_fn *fn, void *ctx, struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT name, description FROM hub_agent WHERE tenant = $1 ORDER BY seq");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct hub_by own = *by;
        struct hub_profile profile = { .agent = query_col_dup(q, 0, &arena),
                                       .description = query_col_dup(q, 1, &arena) };

        own.arena = &arena;
        if (hub_tags_of(&own, profile.agent, &profile.tags, err) < 0)
            return -1;
        fn(ctx, &profile);
    }
    return rc;
}

/* ---- rows ---- */

#define COLUMNS                                                                                    \
    "a.name, a.type, a.registered_ms, a.heartbeat_ms, a.mode, a.capabilities, a.description,"      \
    " a.task, a.checkpoint_seq, a.paused, a.paused_reason, a.revocation, a.offline, a.stalled,"    \
    " coalesce(m.unacked, 0) FROM hub_agent a LEFT JOIN hub_mailbox m ON m.tenant = a.tenant"      \
    " AND m.name = a.name"

static void take_row(const struct hub_by *by, struct query *q, struct hub_agent *out)
{
    bool paused = query_col_i64(q, 9), revoked = query_col_str(q, 11).n > 0;
    bool offline = query_col_i64(q, 12), stalled = query_col_i64(q, 13);

    *out = (struct hub_agent){ .name = query_col_dup(q, 0, by->arena),
                               .type = query_col_dup(q, 1, by->arena),
                               .registered_at = query_col_i64(q, 2),
                               .last_heartbeat = query_col_i64(q, 3),
                               .autonomy_mode = query_col_dup(q, 4, by->arena),
                               .capabilities = hub_strings(by, query_col_str(q, 5)),
                               .description = query_col_dup(q, 6, by->arena),
                               .current_task_id = query_col_dup(q, 7, by->arena),
                               .checkpoint_sequence = query_col_i64(q, 8),
                               .paused_reason = paused ? query_col_dup(q, 10, by->arena) : NULL,
                               .pending_revocation = revoked,
                               .unacknowledged = query_col_i64(q, 14) };
    out->id = out->name;
    out->status = revoked   ? "revoked"
                  : paused  ? "busy"
                  : offline ? "offline"
                  : stalled ? "stalled"
                            : "online";
}

int hub_agents(const struct hub_by *by, const char *status, const char *type, hub_item_fn *fn,
               void *ctx, struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT " COLUMNS " WHERE a.tenant = $1 ORDER BY a.seq");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct hub_by own = *by;
        struct hub_agent agent;

        own.arena = &arena;
        take_row(&own, q, &agent);
        if ((!status || strcmp(status, agent.status) == 0) &&
            (!type || strcmp(type, agent.type) == 0))
            fn(ctx, &agent);
    }
    return rc;
}

int hub_agent_get(const struct hub_by *by, const char *name, struct hub_agent *out, struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT " COLUMNS " WHERE a.tenant = $1 AND a.name = $2", name);

    if (hub_row(q, "agent not found", err) < 0)
        return -1;
    take_row(by, q, out);
    return 0;
}

int hub_agent_task(const struct hub_by *by, const char *name, const char *task, struct err *err)
{
    return hub_set(by, "UPDATE hub_agent SET task = $1 WHERE tenant = $2 AND name = $3", task, name,
                   err);
}

/* ---- registering ---- */

static const char *type_of(const struct hub_register *wish)
{
    const char *type = wish->type && wish->type[0] ? wish->type : wish->agent_type;

    return type && type[0] ? type : "unknown";
}

static int check_wish(const struct hub_by *by, const struct hub_register *wish, struct err *err)
{
    if (hub_name_check(wish->name, "name", err) < 0)
        return -1;
    if (strcmp(wish->name, "register") == 0 || strcmp(wish->name, HUB_HUMAN) == 0)
        return err_field(err, "name", "%s is a word of the hub", wish->name);
    if (hub_name_check(type_of(wish), "type", err) < 0 ||
        hub_tags_check(wish->capabilities, "capabilities", err) < 0)
        return -1;
    if (by->agent && strcmp(by->agent, wish->name) != 0)
        return err_set(err, ERR_FORBIDDEN, "%s may not register as %s", by->agent, wish->name);
    return hub_metadata_check(wish->metadata, err);
}

/*
 * The mode to begin with. People say any; an agent that was there keeps its own and may lower it; a
 * new one has the default, or less.
 */
static const char *mode_of(const struct hub_by *by, const struct hub_register *wish,
                           const struct hub_standing *standing)
{
    if (wish->autonomy_mode && hub_mode_ok(wish->autonomy_mode) &&
        (!by->agent || mode_rank(wish->autonomy_mode) < mode_rank(standing->mode)))
        return wish->autonomy_mode;
    return standing->mode; /* its own, or the default */
}

/* One more, if there is room, or one less. */
static int count_agent(const struct hub_by *by, int change, struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "INSERT INTO hub_state (tenant, default_mode, agents) VALUES ($1, $2, $3)"
                         " ON CONFLICT (tenant) DO UPDATE SET agents = hub_state.agents + $3"
                         " WHERE hub_state.agents + $3 <= $4");

    query_text(q, 1, by->tenant);
    query_text(q, 2, MODE_DEFAULT);
    query_i64(q, 3, change);
    query_i64(q, 4, HUB_AGENTS_MAX);
    int rows = query_run(q, err);
    if (rows < 0)
        return -1;
    return rows ? 0 : err_set(err, ERR_CONFLICT, "there are %d agents already", HUB_AGENTS_MAX);
}

static int put_agent(const struct hub_by *by, const struct hub_register *wish, const char *mode,
                     const char *capabilities, int64_t seq, struct err *err)
{
    autoquery struct query *q = db_query(
        by->db,
        "INSERT INTO hub_agent (tenant, name, seq, type, registered_ms, heartbeat_ms, metadata,"
        " mode, capabilities) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        " ON CONFLICT (tenant, name) DO UPDATE SET type = excluded.type, tick = 0,"
        " registered_ms = excluded.registered_ms, heartbeat_ms = excluded.heartbeat_ms,"
        " metadata = excluded.metadata, mode = excluded.mode,"
        " capabilities = excluded.capabilities, description = '', task = NULL,"
        " checkpoint_seq = 0, offline = 0, stalled = 0");

    query_text(q, 1, by->tenant);
    query_text(q, 2, wish->name);
    query_i64(q, 3, seq);
    query_text(q, 4, type_of(wish));
    query_i64(q, 5, by->now_ms);
    query_i64(q, 6, by->now_ms);
    query_text(q, 7, wish->metadata ? hub_json_text(by, wish->metadata) : "{}");
    query_text(q, 8, mode);
    query_text(q, 9, capabilities);
    return query_run(q, err) < 0 ? -1 : 0;
}

/* What stays as it was is not written again: the tags of the same capabilities. */
static int put_all(const struct hub_by *by, const struct hub_register *wish,
                   const struct hub_standing *before, const char *mode, struct err *err)
{
    const char *capabilities = hub_strings_text(by, wish->capabilities);
    bool same = before->known && strcmp(before->capabilities, capabilities) == 0;

    if (put_agent(by, wish, mode, capabilities, event_last_seq(by->db), err) < 0 ||
        (!same && put_tags(by, wish->name, wish->capabilities, err) < 0))
        return -1;
    return before->checkpointed ? hub_checkpoint_drop(by, wish->name, err) : 0;
}

int hub_register(const struct hub_by *by, const struct hub_register *wish, struct hub_agent *out,
                 struct err *err)
{
    autobuf struct buf body = hub_room();
    struct json_out json = json_to(&body);
    struct hub_standing standing;

    if (check_wish(by, wish, err) < 0 || hub_standing(by, wish->name, &standing, err) < 0 ||
        (!standing.known && count_agent(by, 1, err) < 0))
        return -1;
    const char *mode = mode_of(by, wish, &standing);
    const char **none = arena_alloc(by->arena, sizeof(*none));
    json_open(&json, '{');
    json_kv_text(&json, "name", wish->name);
    json_kv_text(&json, "type", type_of(wish));
    json_kv_text(&json, "autonomy_mode", mode);
    json_key(&json, "capabilities");
    json_put_raw(&json, str_of(hub_strings_text(by, wish->capabilities)));
    json_close(&json, '}');
    if (hub_tell_json(by, "agent_registered", hub_agent_object(by, wish->name), &body, err) < 0 ||
        put_all(by, wish, &standing, mode, err) < 0)
        return -1;
    *out = (struct hub_agent){ .id = wish->name,
                               .name = wish->name,
                               .type = type_of(wish),
                               .registered_at = by->now_ms,
                               .last_heartbeat = by->now_ms,
                               .autonomy_mode = mode,
                               .capabilities = wish->capabilities ? wish->capabilities : none,
                               .status = standing.revoked  ? "revoked"
                                         : standing.paused ? "busy"
                                                           : "online" };
    return 0;
}

/* An agent may not shake off what people decided by leaving and coming back. */
static int may_leave(const struct hub_by *by, const char *name, struct err *err)
{
    struct hub_standing standing;
    const char *usual;

    if (!by->agent)
        return 0;
    if (hub_active(by, name, err) < 0 || hub_standing(by, name, &standing, err) < 0 ||
        hub_default_mode(by, &usual, err) < 0)
        return -1;
    if (mode_rank(standing.mode) < mode_rank(usual))
        return err_set(err, ERR_FORBIDDEN, "%s is %s, and does not leave by itself", name,
                       standing.mode);
    return 0;
}

int hub_unregister(const struct hub_by *by, const char *name, struct err *err)
{
    struct hub_agent agent;

    if (hub_agent_get(by, name, &agent, err) < 0 || hub_acts(by, name, err) < 0 ||
        may_leave(by, name, err) < 0)
        return -1;
    if (hub_change(by, err, "DELETE FROM hub_agent WHERE tenant = $1 AND name = $2", name) < 0 ||
        hub_change(by, err,
                   "UPDATE hub_revocation SET state = 'withdrawn'"
                   " WHERE tenant = $1 AND agent = $2 AND state = 'pending'",
                   name) < 0 ||
        hub_change(by, err, "DELETE FROM hub_channel_member WHERE tenant = $1 AND agent = $2",
                   name) < 0 ||
        drop_tags(by, name, err) < 0 || hub_checkpoint_drop(by, name, err) < 0 ||
        hub_leases_end(by, name, "unregistered", err) < 0 || count_agent(by, -1, err) < 0)
        return -1;
    return hub_tell(by, "agent_unregistered", hub_agent_object(by, name), err, "name", name, NULL);
}

/* ---- changing modes ---- */

static int check_mode(const char *mode, struct err *err)
{
    return hub_mode_ok(mode) ? 0 : err_set(err, ERR_INVALID, "Invalid mode: %.64s", mode);
}

static int put_mode(const struct hub_by *by, const char *name, const char *mode, struct err *err)
{
    return hub_set(by, "UPDATE hub_agent SET mode = $1 WHERE tenant = $2 AND name = $3", mode, name,
                   err);
}

int hub_set_mode(const struct hub_by *by, const char *name, const char *mode, struct err *err)
{
    struct hub_standing standing;

    if (check_mode(mode, err) < 0 || hub_standing_known(by, name, &standing, err) < 0 ||
        hub_acts(by, name, err) < 0)
        return -1;
    if (by->agent && mode_rank(mode) > mode_rank(standing.mode))
        return err_set(err, ERR_FORBIDDEN, "an agent does not raise its own mode");
    if (put_mode(by, name, mode, err) < 0)
        return -1;
    return hub_tell(by, "agent_autonomy_changed", hub_agent_object(by, name), err, "name", name,
                    "mode", mode, NULL);
}

static int put_default(const struct hub_by *by, const char *mode, struct err *err)
{
    return hub_change(by, err,
                      "INSERT INTO hub_state (tenant, default_mode) VALUES ($1, $2)"
                      " ON CONFLICT (tenant) DO UPDATE SET default_mode = excluded.default_mode",
                      mode);
}

int hub_set_global_mode(const struct hub_by *by, const char *mode, const char *type,
                        const char ***out, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    autoquery struct query *names =
        hub_query(by,
                  "SELECT name FROM hub_agent WHERE tenant = $1 AND ($2 = '' OR type = $2)"
                  " ORDER BY seq",
                  type ? type : "");

    if (check_mode(mode, err) < 0 || hub_column(by, names, out, err) < 0)
        return -1;
    for (const char **name = *out; *name; name++)
        if (put_mode(by, *name, mode, err) < 0)
            return -1;
    if (!(type && type[0]) && put_default(by, mode, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "mode", mode);
    json_key(&json, "agents");
    json_open(&json, '[');
    for (const char **name = *out; *name && body.len < EVENT_BODY_MAX / 2; name++)
        json_put_str(&json, str_of(*name));
    json_close(&json, ']');
    json_close(&json, '}');
    return hub_tell_json(by, "global_autonomy_changed", "hub/autonomy", &body, err);
}
