/* Projects: members, and how much one agent may have in each column. */
#include "hub/own.h"

#include "base/clock.h"

int hub_project_exists(const struct hub_by *by, const char *id, struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT 1 FROM hub_project WHERE tenant = $1 AND id = $2", id);

    return hub_row(q, "project not found", err);
}

/* ---- by name ---- */

/* The one row of a statement that gives ids; `many` is the error where there are several. */
static int only_id(const struct hub_by *by, struct query *q, const char *many, const char *name,
                   const char **out, struct err *err)
{
    const char **ids;

    if (hub_column(by, q, &ids, err) < 0)
        return -1;
    if (!ids[0])
        return 0;
    if (ids[1])
        return err_set(err, ERR_CONFLICT, "several %s are named %.100s: use an id", many, name);
    *out = ids[0];
    return 1;
}

/* The beginning of an id, long enough not to be somebody's name by chance. */
static bool is_prefix(const char *text)
{
    return strlen(text) >= HUB_ID_PREFIX_MIN && strspn(text, "0123456789abcdef-") == strlen(text);
}

int hub_project_named(const struct hub_by *by, const char *name, const char **out, struct err *err)
{
    autoquery struct query *named =
        hub_query(by, "SELECT id FROM hub_project WHERE tenant = $1 AND name = $2 LIMIT 2", name);
    int rc = only_id(by, named, "projects", name, out, err);

    if (rc != 0 || !is_prefix(name))
        return rc;
    autoquery struct query *begun = hub_query(
        by,
        "SELECT id FROM hub_project WHERE tenant = $1 AND substr(id, 1, length($2)) = $2 LIMIT 2",
        name);
    return only_id(by, begun, "projects", name, out, err);
}

int hub_task_named(const struct hub_by *by, const char *project, const char *name, const char **out,
                   struct err *err)
{
    autoquery struct query *named =
        hub_query(by,
                  "SELECT id FROM hub_task WHERE tenant = $1 AND project = $2 AND title = $3"
                  " LIMIT 2",
                  project, name);
    int rc = only_id(by, named, "tasks", name, out, err);

    if (rc != 0 || !is_prefix(name))
        return rc;
    autoquery struct query *begun =
        hub_query(by,
                  "SELECT id FROM hub_task WHERE tenant = $1 AND project = $2"
                  " AND substr(id, 1, length($3)) = $3 LIMIT 2",
                  project, name);
    return only_id(by, begun, "tasks", name, out, err);
}

static int add_member(const struct hub_by *by, const char *id, const char *agent, int64_t seq,
                      struct err *err)
{
    autoquery struct query *q = db_query(
        by->db, "INSERT INTO hub_member (tenant, project, agent, seq) VALUES ($1, $2, $3, $4)"
                " ON CONFLICT (tenant, project, agent) DO NOTHING");

    query_text(q, 1, by->tenant);
    query_text(q, 2, id);
    query_text(q, 3, agent);
    query_i64(q, 4, seq);
    return query_run(q, err);
}

static int put_limit(const struct hub_by *by, const char *id, const char *status, int64_t most,
                     struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "INSERT INTO hub_wip (tenant, project, status, most) VALUES ($1, $2, $3,"
                         " $4) ON CONFLICT (tenant, project, status) DO UPDATE SET"
                         " most = excluded.most");

    query_text(q, 1, by->tenant);
    query_text(q, 2, id);
    query_text(q, 3, status);
    query_i64(q, 4, most);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int insert(const struct hub_by *by, const struct hub_project *project, int64_t seq,
                  struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "INSERT INTO hub_project (tenant, id, seq, name, creator, created_ms)"
                         " VALUES ($1, $2, $3, $4, $5, $6)");

    query_text(q, 1, by->tenant);
    query_text(q, 2, project->id);
    query_i64(q, 3, seq);
    query_text(q, 4, project->name);
    query_text(q, 5, project->creator);
    query_i64(q, 6, project->created_at);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int check_create(const struct hub_by *by, const struct hub_project *project, struct err *err)
{
    int64_t count;
    autoquery struct query *q = hub_query(by, "SELECT count(*) FROM hub_project WHERE tenant = $1");

    if (hub_title_check(project->name, "name", err) < 0 ||
        hub_name_check(project->creator, "creator", err) < 0 ||
        hub_text_check(by, project->name, err) < 0 ||
        hub_self(by, project->creator, "creator", err) < 0)
        return -1;
    if (hub_active(by, project->creator, err) < 0 || hub_number(q, 0, &count, err) < 0)
        return -1;
    return count < HUB_PROJECTS_MAX
               ? 0
               : err_set(err, ERR_CONFLICT, "there are %d projects already", HUB_PROJECTS_MAX);
}

int hub_project_create(const struct hub_by *by, struct hub_project *project, struct err *err)
{
    if (check_create(by, project, err) < 0)
        return -1;
    project->id = hub_uuid(by);
    project->created_at = by->now_ms;
    if (hub_tell(by, "project_created", hub_project_object(by, project->id, ""), err, "id",
                 project->id, "name", project->name, "creator", project->creator, NULL) < 0)
        return -1;
    int64_t seq = event_last_seq(by->db);
    if (insert(by, project, seq, err) < 0 ||
        add_member(by, project->id, project->creator, seq, err) < 0)
        return -1;
    return put_limit(by, project->id, "in_progress", HUB_WIP_PROGRESS, err) < 0
               ? -1
               : put_limit(by, project->id, "in_review", HUB_WIP_REVIEW, err);
}

/* ---- reading ---- */

static int members_of(const struct hub_by *by, const char *id, const char ***out, struct err *err)
{
    autoquery struct query *q = hub_query(
        by, "SELECT agent FROM hub_member WHERE tenant = $1 AND project = $2 ORDER BY seq", id);

    return hub_column(by, q, out, err);
}

static int take_row(const struct hub_by *by, struct query *q, struct hub_project *out,
                    struct err *err)
{
    *out = (struct hub_project){ .id = query_col_dup(q, 0, by->arena),
                                 .name = query_col_dup(q, 1, by->arena),
                                 .creator = query_col_dup(q, 2, by->arena),
                                 .created_at = query_col_i64(q, 3) };
    return members_of(by, out->id, &out->members, err);
}

int hub_projects(const struct hub_by *by, const char *member, hub_item_fn *fn, void *ctx,
                 struct err *err)
{
    autoquery struct query *q =
        hub_query(by,
                  "SELECT id, name, creator, created_ms FROM hub_project p WHERE tenant = $1"
                  " AND ($2 = '' OR EXISTS (SELECT 1 FROM hub_member m WHERE m.tenant = p.tenant"
                  " AND m.project = p.id AND m.agent = $2)) ORDER BY seq",
                  member ? member : "");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct hub_by own = *by;
        struct hub_project one;

        own.arena = &arena;
        if (take_row(&own, q, &one, err) < 0)
            return -1;
        fn(ctx, &one);
    }
    return rc;
}

static void put_file(void *ctx, const void *item)
{
    const struct hub_file *file = item;
    struct json_out *json = ctx;
    char when[CLOCK_NAIVE_SIZE];

    clock_naive(file->updated_at, when);
    json_key(json, file->filename);
    json_open(json, '{');
    json_kv_text(json, "checksum", file->checksum);
    json_kv_int(json, "size", file->size);
    json_kv_text(json, "updated_at", when);
    json_kv_int(json, "version", file->version);
    json_close(json, '}');
}

static int put_limits(const struct hub_by *by, struct json_out *json, const char *id,
                      struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT status, most FROM hub_wip WHERE tenant = $1 AND project = $2", id);
    int rc;

    json_open(json, '{');
    while ((rc = query_step(q, err)) > 0) {
        json_key_str(json, query_col_str(q, 0));
        json_put_int(json, query_col_i64(q, 1));
    }
    json_close(json, '}');
    return rc;
}

int hub_project_get(const struct hub_by *by, const char *id, struct hub_project *out,
                    struct err *err)
{
    autobuf struct buf files = { 0 }, limits = { 0 };
    struct json_out json = json_to(&files), wip = json_to(&limits);
    autoquery struct query *q =
        hub_query(by,
                  "SELECT id, name, creator, created_ms FROM hub_project WHERE tenant = $1"
                  " AND id = $2",
                  id);

    if (hub_row(q, "project not found", err) < 0 || take_row(by, q, out, err) < 0)
        return -1;
    json_open(&json, '{');
    if (hub_files(by, id, NULL, put_file, &json, err) < 0 || put_limits(by, &wip, id, err) < 0)
        return -1;
    json_close(&json, '}');
    out->files = hub_json(by, buf_view(&files));
    out->wip_limits = hub_json(by, buf_view(&limits));
    return 0;
}

/* ---- changing ---- */

static int drop_tasks(const struct hub_by *by, const char *id, struct err *err)
{
    static const char *const sql[] = {
        "DELETE FROM hub_transition WHERE tenant = $1 AND task IN (SELECT id FROM hub_task"
        " WHERE tenant = $1 AND project = $2)",
        "DELETE FROM hub_review WHERE tenant = $1 AND task IN (SELECT id FROM hub_task"
        " WHERE tenant = $1 AND project = $2)",
        "DELETE FROM hub_blocker WHERE tenant = $1 AND task IN (SELECT id FROM hub_task"
        " WHERE tenant = $1 AND project = $2)",
        "DELETE FROM hub_comment WHERE tenant = $1 AND task IN (SELECT id FROM hub_task"
        " WHERE tenant = $1 AND project = $2)",
        "UPDATE hub_agent SET task = NULL WHERE tenant = $1 AND task IN (SELECT id FROM hub_task"
        " WHERE tenant = $1 AND project = $2)",
        "DELETE FROM hub_task WHERE tenant = $1 AND project = $2",
        "DELETE FROM hub_member WHERE tenant = $1 AND project = $2",
        "DELETE FROM hub_wip WHERE tenant = $1 AND project = $2",
        "DELETE FROM hub_project WHERE tenant = $1 AND id = $2",
    };

    for (size_t i = 0; i < ARRAY_LEN(sql); i++)
        if (hub_change_texts(by, sql[i], HUB_TEXTS(by, id), 2, err) < 0)
            return -1;
    return 0;
}

int hub_project_delete(const struct hub_by *by, const char *id, struct err *err)
{
    struct hub_project project;

    if (hub_project_get(by, id, &project, err) < 0)
        return -1;
    if (by->agent && strcmp(by->agent, project.creator) != 0)
        return err_set(err, ERR_FORBIDDEN, "%s did not make this project", by->agent);
    if ((by->agent && hub_active(by, by->agent, err) < 0) || hub_files_drop(by, id, err) < 0 ||
        hub_leases_drop(by, id, err) < 0 || drop_tasks(by, id, err) < 0)
        return -1;
    return hub_tell(by, "project_deleted", hub_project_object(by, id, ""), err, "id", id, NULL);
}

int hub_project_join(const struct hub_by *by, const char *id, const char *agent, struct err *err)
{
    if (hub_project_exists(by, id, err) < 0 || hub_name_check(agent, "agent", err) < 0 ||
        hub_self(by, agent, "agent", err) < 0)
        return -1;
    if (hub_tell(by, "agent_joined_project", hub_project_object(by, id, ""), err, "project", id,
                 "agent", agent, NULL) < 0)
        return -1;
    return add_member(by, id, agent, event_last_seq(by->db), err) < 0 ? -1 : 0;
}

static int limit_of(const struct json *limit, int64_t *out, struct err *err)
{
    if (limit->type == JSON_INT)
        *out = limit->num;
    else if (limit->type != JSON_STRING || !str_to_i64(str_trim(limit->text), out))
        return err_field(err, "limit", "must be a whole number");
    if (*out < 0 || *out > HUB_WIP_MAX)
        return err_field(err, "limit", "must be from 0 to %d", HUB_WIP_MAX);
    return 0;
}

int hub_wip_set(const struct hub_by *by, const char *id, const struct hub_wip_wish *wish,
                struct err *err)
{
    const char *status = hub_status_of(by, wish->status);
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    int64_t most;

    if (hub_project_exists(by, id, err) < 0)
        return -1;
    if (!status)
        return err_set(err, ERR_INVALID, "Invalid status: %.64s", wish->status);
    if (limit_of(wish->limit, &most, err) < 0 || put_limit(by, id, status, most, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "project", id);
    json_kv_text(&json, "status", status);
    json_kv_int(&json, "limit", most);
    json_close(&json, '}');
    return hub_tell_json(by, "wip_changed", hub_project_object(by, id, ""), &body, err);
}

int hub_wip_of(const struct hub_by *by, const char *project, const char *status, int64_t *out,
               struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT most FROM hub_wip WHERE tenant = $1 AND project = $2 AND status = $3",
                  project, status);

    return hub_number(q, -1, out, err);
}
