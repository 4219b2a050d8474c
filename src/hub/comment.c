/*
 * What people and agents say under a task. Comments are numbered from 1 in the order they came, and
 * are neither changed nor taken back: what was said when a decision was made can be read later.
 * They end with the task's project.
 */
#include "hub/own.h"

static int add(const struct hub_by *by, const char *task, const struct hub_comment *one,
               struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "INSERT INTO hub_comment (tenant, task, number, author, text, at_ms)"
                         " VALUES ($1, $2, $3, $4, $5, $6)");

    query_text(q, 1, by->tenant);
    query_text(q, 2, task);
    query_i64(q, 3, one->number);
    query_text(q, 4, one->author);
    query_text(q, 5, one->text);
    query_i64(q, 6, one->at);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int newest(const struct hub_by *by, const char *task, int64_t *out, struct err *err)
{
    autoquery struct query *q = hub_query(
        by, "SELECT coalesce(max(number), 0) FROM hub_comment WHERE tenant = $1 AND task = $2",
        task);

    return hub_number(q, 0, out, err);
}

static int tell(const struct hub_by *by, const struct hub_task *task, const struct hub_comment *one,
                struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "project", task->project_id);
    json_kv_text(&json, "task_id", task->id);
    json_kv_text(&json, "title", task->title);
    json_kv_text(&json, "author", one->author);
    json_kv_int(&json, "number", one->number);
    json_kv_str(&json, "text", hub_first_of(one->text, HUB_EVENT_CONTENT));
    json_close(&json, '}');
    return hub_tell_json(by, "task_commented", hub_project_object(by, task->project_id, task->id),
                         &body, err);
}

static int check_author(const struct hub_by *by, const char *author, struct err *err)
{
    if (hub_name_check(author, "author", err) < 0 || hub_self(by, author, "author", err) < 0)
        return -1;
    return hub_active(by, author, err);
}

int hub_comment_add(const struct hub_by *by, const char *project, const char *id,
                    const struct hub_comment *wish, struct hub_comment *out, struct err *err)
{
    struct hub_task task;
    int64_t last;

    *out = (struct hub_comment){ .author = hub_who(by, wish->author),
                                 .text = wish->text,
                                 .at = by->now_ms };
    if (hub_task_must(by, project, id, &task, err) < 0 || check_author(by, out->author, err) < 0 ||
        hub_text_check(by, out->text, err) < 0 || newest(by, id, &last, err) < 0)
        return -1;
    if (last >= HUB_COMMENTS_MAX)
        return err_set(err, ERR_CONFLICT, "a task has %d comments already", HUB_COMMENTS_MAX);
    out->number = last + 1;
    return add(by, id, out, err) < 0 || tell(by, &task, out, err) < 0 ? -1 : 0;
}

int hub_comments(const struct hub_by *by, const char *project, const char *id, int64_t after,
                 int64_t limit, hub_item_fn *fn, void *ctx, struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "SELECT number, author, text, at_ms FROM hub_comment WHERE tenant = $1"
                         " AND task = $2 AND number > $3 ORDER BY number LIMIT $4");
    struct hub_task task;
    int rc;

    if (hub_task_must(by, project, id, &task, err) < 0)
        return -1;
    query_text(q, 1, by->tenant);
    query_text(q, 2, id);
    query_i64(q, 3, after);
    query_i64(q, 4, limit);
    while ((rc = query_step(q, err)) > 0) {
        const struct hub_comment one = { .number = query_col_i64(q, 0),
                                         .author = query_col_dup(q, 1, by->arena),
                                         .text = query_col_dup(q, 2, by->arena),
                                         .at = query_col_i64(q, 3) };
        fn(ctx, &one);
    }
    return rc;
}
