/* Tasks: their rows, made and read. What moves them is in board.c. */
#include "hub/own.h"

const char *const hub_statuses[] = { "backlog", "ready", "in_progress", "in_review",
                                     "blocked", "done",  NULL };

bool hub_status_ok(const char *status)
{
    return hub_has(hub_statuses, status);
}

const char *hub_status_of(const struct hub_by *by, const char *text)
{
    struct str prefix = STR("TaskStatus.");

    if (hub_status_ok(text))
        return text;
    if (!str_starts(str_of(text), prefix))
        return NULL;
    const char *low = hub_lower(by, str_of(text + prefix.n));
    return hub_status_ok(low) ? low : NULL;
}

/* ---- rows ---- */

#define COLUMNS                                                                                    \
    "id, project, title, description, status, priority, assigned_to, claimed_by, capabilities,"    \
    " labels, blocked_reason, blocked_by, blocked_from, parent, created_by, reviewers,"            \
    " required_reviewers, gate, round, moves, created_ms, updated_ms, started_ms, review_ms,"      \
    " completed_ms, seq FROM hub_task"

static const char *priority_name(int64_t rank)
{
    static const char *const names[] = { "P0", "P1", "P2", "P3" };

    return names[rank & 3];
}

static int64_t priority_rank(const char *name)
{
    return name && (name[0] | 0x20) == 'p' && name[1] >= '0' && name[1] <= '3' && !name[2]
               ? name[1] - '0'
               : 2;
}

static void take_row(const struct hub_by *by, struct query *q, struct hub_task *out)
{
    struct arena *arena = by->arena;

    *out = (struct hub_task){ .id = query_col_dup(q, 0, arena),
                              .project_id = query_col_dup(q, 1, arena),
                              .title = query_col_dup(q, 2, arena),
                              .description = query_col_dup(q, 3, arena),
                              .status = query_col_dup(q, 4, arena),
                              .priority = priority_name(query_col_i64(q, 5)),
                              .rank = query_col_i64(q, 5),
                              .assigned_to = hub_or_null(query_col_dup(q, 6, arena)),
                              .claimed_by = hub_or_null(query_col_dup(q, 7, arena)),
                              .required_capabilities = hub_strings(by, query_col_str(q, 8)),
                              .labels = hub_strings(by, query_col_str(q, 9)),
                              .blocked_reason = query_col_dup(q, 10, arena),
                              .blocked_by = hub_json(by, query_col_str(q, 11)),
                              .blocked_from = query_col_dup(q, 12, arena),
                              .parent_task_id = hub_or_null(query_col_dup(q, 13, arena)),
                              .created_by = query_col_dup(q, 14, arena),
                              .reviewers = hub_strings(by, query_col_str(q, 15)),
                              .required_reviewers = query_col_i64(q, 16),
                              .gate = query_col_i64(q, 17),
                              .round = query_col_i64(q, 18),
                              .moves = query_col_i64(q, 19),
                              .created_at = query_col_i64(q, 20),
                              .updated_at = query_col_i64(q, 21),
                              .started_at = query_col_i64(q, 22),
                              .review_started_at = query_col_i64(q, 23),
                              .completed_at = query_col_i64(q, 24),
                              .seq = query_col_i64(q, 25) };
}

int hub_task_find(const struct hub_by *by, const char *project, const char *id,
                  struct hub_task *out, struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT " COLUMNS " WHERE tenant = $1 AND id = $2", id);
    int rc = query_step(q, err);

    if (rc <= 0)
        return rc;
    take_row(by, q, out);
    return !project || strcmp(project, out->project_id) == 0;
}

int hub_task_must(const struct hub_by *by, const char *project, const char *id,
                  struct hub_task *out, struct err *err)
{
    int rc = hub_task_find(by, project, id, out, err);

    if (rc < 0)
        return -1;
    return rc ? 0 : err_set(err, ERR_NOT_FOUND, "task not found");
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

int hub_task_save(const struct hub_by *by, struct hub_task *task, struct err *err)
{
    autoquery struct query *q = db_query(
        by->db,
        "UPDATE hub_task SET title = $1, description = $2, status = $3, priority = $4,"
        " assigned_to = $5, claimed_by = $6, labels = $7, blocked_reason = $8, blocked_by = $9,"
        " blocked_from = $10, reviewers = $11, round = $12, moves = $13, updated_ms = $14,"
        " started_ms = $15, review_ms = $16, completed_ms = $17 WHERE tenant = $18 AND id = $19");

    task->updated_at = by->now_ms;
    query_text(q, 1, task->title);
    query_text(q, 2, task->description);
    query_text(q, 3, task->status);
    query_i64(q, 4, task->rank);
    query_text(q, 5, or_empty(task->assigned_to));
    query_text(q, 6, or_empty(task->claimed_by));
    query_text(q, 7, hub_strings_text(by, task->labels));
    query_text(q, 8, or_empty(task->blocked_reason));
    query_text(q, 9, task->blocked_by ? hub_json_text(by, task->blocked_by) : "null");
    query_text(q, 10, or_empty(task->blocked_from));
    query_text(q, 11, hub_strings_text(by, task->reviewers));
    query_i64(q, 12, task->round);
    query_i64(q, 13, task->moves);
    query_i64(q, 14, task->updated_at);
    query_i64(q, 15, task->started_at);
    query_i64(q, 16, task->review_started_at);
    query_i64(q, 17, task->completed_at);
    query_text(q, 18, by->tenant);
    query_text(q, 19, task->id);
    return query_run(q, err) < 0 ? -1 : 0;
}

int hub_task_save_owner(const struct hub_by *by, struct hub_task *task, struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "UPDATE hub_task SET status = $1, assigned_to = $2, claimed_by = $3,"
                         " updated_ms = $4 WHERE tenant = $5 AND id = $6");

    task->updated_at = by->now_ms;
    query_text(q, 1, task->status);
    query_text(q, 2, or_empty(task->assigned_to));
    query_text(q, 3, or_empty(task->claimed_by));
    query_i64(q, 4, task->updated_at);
    query_text(q, 5, by->tenant);
    query_text(q, 6, task->id);
    return query_run(q, err) < 0 ? -1 : 0;
}

/* ---- what belongs to it ---- */

int64_t hub_approvals_required(const struct hub_task *task)
{
    int64_t listed = 0;

    while (task->reviewers && task->reviewers[listed])
        listed++;
    if (task->gate)
        return task->required_reviewers;
    return MIN(listed, MAX(task->required_reviewers, 1));
}

int hub_approvals(const struct hub_by *by, const struct hub_task *task, int64_t *out,
                  struct err *err)
{
    autoquery struct query *q = db_query(
        by->db, "SELECT count(*) FROM hub_review r WHERE tenant = $1 AND task = $2 AND round = $3"
                " AND verdict = 'approved' AND seq = (SELECT max(seq) FROM hub_review n WHERE"
                " n.tenant = $1 AND n.task = $2 AND n.round = $3 AND n.reviewer = r.reviewer)");

    query_text(q, 1, by->tenant);
    query_text(q, 2, task->id);
    query_i64(q, 3, task->round);
    return hub_number(q, 0, out, err);
}

static int fill_transitions(const struct hub_by *by, struct hub_task *task, int64_t most,
                            struct err *err)
{
    int64_t first = most && task->moves > most ? task->moves - most : 0;
    struct hub_transition *items =
        arena_alloc(by->arena, (size_t)(task->moves - first + 1) * sizeof(*items));
    autoquery struct query *q =
        db_query(by->db, "SELECT was, became, at_ms, by, note FROM hub_transition WHERE tenant = $1"
                         " AND task = $2 AND number > $3 ORDER BY number");
    size_t count = 0;
    int rc;

    query_text(q, 1, by->tenant);
    query_text(q, 2, task->id);
    query_i64(q, 3, first);
    while ((rc = query_step(q, err)) > 0 && (int64_t)count < task->moves - first)
        items[count++] = (struct hub_transition){ .from = query_col_dup(q, 0, by->arena),
                                                  .to = query_col_dup(q, 1, by->arena),
                                                  .at = query_col_i64(q, 2),
                                                  .by = query_col_dup(q, 3, by->arena),
                                                  .note = query_col_dup(q, 4, by->arena) };
    task->transitions = (struct field_list){ items, count };
    return rc < 0 ? -1 : 0;
}

/* most 0: of all rounds. */
static int fill_reviews(const struct hub_by *by, struct hub_task *task, int64_t most,
                        struct err *err)
{
    size_t count = 0, cap = 8;
    struct hub_review *items = arena_alloc(by->arena, cap * sizeof(*items));
    autoquery struct query *q = db_query(
        by->db, "SELECT reviewer, verdict, note, at_ms, round FROM hub_review WHERE tenant = $1"
                " AND task = $2 AND round >= $3 ORDER BY seq");
    int rc;

    query_text(q, 1, by->tenant);
    query_text(q, 2, task->id);
    query_i64(q, 3, most ? task->round : 0);
    while ((rc = query_step(q, err)) > 0) {
        if (count == cap)
            items = hub_twice(by, items, sizeof(*items), &cap);
        items[count++] = (struct hub_review){ .reviewer = query_col_dup(q, 0, by->arena),
                                              .verdict = query_col_dup(q, 1, by->arena),
                                              .note = query_col_dup(q, 2, by->arena),
                                              .at = query_col_i64(q, 3),
                                              .counts = query_col_i64(q, 4) == task->round };
    }
    task->reviews = (struct field_list){ items, count };
    return rc < 0 ? -1 : 0;
}

int hub_task_fill(const struct hub_by *by, struct hub_task *task, int64_t most, struct err *err)
{
    autoquery struct query *q =
        hub_query(by,
                  "SELECT id FROM hub_task WHERE tenant = $1 AND parent = $2 AND parent <> ''"
                  " ORDER BY seq",
                  task->id);

    task->approvals_required = hub_approvals_required(task);
    if (hub_column(by, q, &task->subtasks, err) < 0 || fill_reviews(by, task, most, err) < 0)
        return -1;
    if (task->reviews.count && hub_approvals(by, task, &task->approvals, err) < 0)
        return -1;
    return fill_transitions(by, task, most, err);
}

/* ---- lists ---- */

static struct query *tasks_query(struct db *db, const struct hub_tasks_wish *wish)
{
    if (wish->project)
        return db_query(db, "SELECT " COLUMNS " WHERE tenant = $1 AND ($2 = '' OR status = $2)"
                            " AND ($3 = '' OR assigned_to = $3 OR claimed_by = $3)"
                            " AND ($4 = '' OR assigned_to = $4) AND project = $5"
                            " ORDER BY priority, seq");
    if (wish->agent || wish->assigned_to)
        return db_query(db,
                        "SELECT " COLUMNS " WHERE tenant = $1 AND ($2 = '' OR status = $2)"
                        " AND ($3 = '' OR assigned_to = $3 OR claimed_by = $3)"
                        " AND ($4 = '' OR assigned_to = $4) AND id IN"
                        " (SELECT id FROM hub_task WHERE tenant = $1 AND assigned_to = $5"
                        " AND assigned_to <> '' UNION SELECT id FROM hub_task WHERE tenant = $1"
                        " AND claimed_by = $5 AND claimed_by <> '' AND claimed_by <> assigned_to)"
                        " ORDER BY priority, seq");
    return db_query(db, "SELECT " COLUMNS " WHERE tenant = $1 AND ($2 = '' OR status = $2)"
                        " AND $3 = '' AND $4 = '' AND $5 = '' ORDER BY priority, seq");
}

int hub_tasks(const struct hub_by *by, const struct hub_tasks_wish *wish, hub_item_fn *fn,
              void *ctx, struct err *err)
{
    autoquery struct query *q = tasks_query(by->db, wish);
    int rc;

    query_text(q, 1, by->tenant);
    query_text(q, 2, or_empty(wish->status));
    query_text(q, 3, or_empty(wish->agent));
    query_text(q, 4, or_empty(wish->assigned_to));
    query_text(q, 5,
               wish->project       ? wish->project
               : wish->assigned_to ? wish->assigned_to
                                   : or_empty(wish->agent));
    while ((rc = query_step(q, err)) > 0) {
        struct hub_task task;

        take_row(by, q, &task);
        if ((wish->label && !hub_has(task.labels, wish->label)) ||
            (wish->no_blocked && strcmp(task.status, "blocked") == 0))
            continue;
        if (wish->whole && hub_task_fill(by, &task, HUB_TRANSITIONS_SHOWN, err) < 0)
            return -1;
        fn(ctx, &task);
    }
    return rc;
}

int hub_task_get(const struct hub_by *by, const char *project, const char *id, struct hub_task *out,
                 struct err *err)
{
    return hub_task_must(by, project, id, out, err) < 0 ? -1 : hub_task_fill(by, out, 0, err);
}

struct ready {
    const char *const *tags; /* clean; NULL: of anybody */
    const struct hub_by *by;
    hub_item_fn *fn;
    void *ctx;
};

static void pass_ready(void *ctx, const void *item)
{
    const struct hub_task *task = item;
    const struct ready *ready = ctx;

    if (strcmp(task->status, "backlog") != 0 && strcmp(task->status, "ready") != 0)
        return;
    for (const char **tag = hub_tags_clean(ready->by, task->required_capabilities);
         ready->tags && *tag; tag++)
        if (!hub_has(ready->tags, *tag))
            return;
    ready->fn(ready->ctx, task);
}

int hub_ready(const struct hub_by *by, const char *project, const char *const *tags,
              hub_item_fn *fn, void *ctx, struct err *err)
{
    struct ready ready = {
        .tags = tags ? hub_tags_clean(by, tags) : NULL, .by = by, .fn = fn, .ctx = ctx
    };
    const struct hub_tasks_wish wish = { .project = project };

    return hub_tasks(by, &wish, pass_ready, &ready, err);
}

/* ---- making ---- */

static int check_words(const struct hub_by *by, const struct hub_task_wish *wish, struct err *err)
{
    if (hub_title_check(wish->title, "title", err) < 0 ||
        hub_text_check(by, wish->title, err) < 0 || hub_text_check(by, wish->description, err) < 0)
        return -1;
    if (wish->assigned_to && wish->assigned_to[0] &&
        hub_name_check(wish->assigned_to, "assigned_to", err) < 0)
        return -1;
    if (wish->created_by && wish->created_by[0] &&
        hub_name_check(wish->created_by, "created_by", err) < 0)
        return -1;
    for (const char **label = wish->labels; label && *label; label++)
        if (hub_name_check(*label, "labels", err) < 0)
            return -1;
    return hub_tags_check(wish->required_capabilities, "required_capabilities", err);
}

/* Whoever creates a task: may they, and may the task have that owner from the start? */
static int check_creator(const struct hub_by *by, const char *project,
                         const struct hub_task_wish *wish, struct err *err)
{
    const char *who = by->agent ? by->agent : or_empty(wish->created_by);
    const char *holder = or_empty(wish->assigned_to);
    const struct hub_task task = { .id = "",
                                   .project_id = project,
                                   .status = "backlog",
                                   .created_by = who,
                                   .required_capabilities = wish->required_capabilities };
    struct hub_step step = hub_step_giving(HUB_CREATES, who, holder);

    if (wish->created_by && wish->created_by[0] &&
        hub_self(by, wish->created_by, "created_by", err) < 0)
        return -1;
    if (hub_active(by, who, err) < 0)
        return -1;
    if (!holder[0])
        return 0;
    if (by->agent && strcmp(holder, by->agent) != 0)
        return err_set(err, ERR_FORBIDDEN, "assigned_to: only people assign tasks");
    /* People plan beyond what an agent has room for; an agent that takes a task does not. */
    return !hub_is_person(step.agent) && hub_step_check(by, &task, &step, err) < 0 ? -1 : 0;
}

static int check_parent(const struct hub_by *by, const char *project, const char *parent,
                        struct err *err)
{
    struct hub_task task;

    if (!parent || !parent[0])
        return 0;
    int rc = hub_task_find(by, project, parent, &task, err);
    if (rc < 0)
        return -1;
    return rc ? 0 : err_set(err, ERR_NOT_FOUND, "parent task not found");
}

static int count_task(const struct hub_by *by, const char *project, struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "UPDATE hub_project SET tasks = tasks + 1 WHERE tenant = $1 AND id = $2"
                         " AND tasks < $3");

    query_text(q, 1, by->tenant);
    query_text(q, 2, project);
    query_i64(q, 3, HUB_TASKS_MAX);
    int rows = query_run(q, err);
    if (rows != 0)
        return rows < 0 ? -1 : 0;
    if (hub_project_exists(by, project, err) < 0)
        return -1;
    return err_set(err, ERR_CONFLICT, "a project has %d tasks already", HUB_TASKS_MAX);
}

static int check_wish(const struct hub_by *by, const char *project,
                      const struct hub_task_wish *wish, struct err *err)
{
    if (check_words(by, wish, err) < 0 || check_creator(by, project, wish, err) < 0)
        return -1;
    return check_parent(by, project, wish->parent_task_id, err);
}

static int insert(const struct hub_by *by, const struct hub_task *task, struct err *err)
{
    autoquery struct query *q = db_query(
        by->db,
        "INSERT INTO hub_task (tenant, id, project, seq, title, description, status, priority,"
        " assigned_to, capabilities, labels, parent, created_by, required_reviewers, gate,"
        " created_ms, updated_ms) VALUES ($1, $2, $3, $4, $5, $6, 'backlog', $7, $8, $9, $10, $11,"
        " $12, $13, $14, $15, $16)");

    query_text(q, 1, by->tenant);
    query_text(q, 2, task->id);
    query_text(q, 3, task->project_id);
    query_i64(q, 4, task->seq);
    query_text(q, 5, task->title);
    query_text(q, 6, task->description);
    query_i64(q, 7, task->rank);
    query_text(q, 8, or_empty(task->assigned_to));
    query_text(q, 9, hub_strings_text(by, task->required_capabilities));
    query_text(q, 10, hub_strings_text(by, task->labels));
    query_text(q, 11, or_empty(task->parent_task_id));
    query_text(q, 12, task->created_by);
    query_i64(q, 13, task->required_reviewers);
    query_i64(q, 14, task->gate);
    query_i64(q, 15, task->created_at);
    query_i64(q, 16, task->created_at);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int tell_created(const struct hub_by *by, struct hub_task *task, struct err *err)
{
    autobuf struct buf body = hub_room();
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "project", task->project_id);
    json_key(&json, "task");
    json_open(&json, '{');
    json_kv_text(&json, "id", task->id);
    json_kv_text(&json, "title", task->title);
    json_kv_text(&json, "status", task->status);
    json_kv_int(&json, "priority", task->rank);
    json_kv_text(&json, "assigned_to", task->assigned_to);
    json_key(&json, "required_capabilities");
    json_put_raw(&json, str_of(hub_strings_text(by, task->required_capabilities)));
    json_close(&json, '}');
    json_close(&json, '}');
    if (hub_tell_json(by, "task_created", hub_project_object(by, task->project_id, task->id), &body,
                      err) < 0)
        return -1;
    task->seq = event_last_seq(by->db);
    return 0;
}

int hub_task_create(const struct hub_by *by, const char *project, const struct hub_task_wish *wish,
                    bool gate, struct hub_task *out, struct err *err)
{
    int64_t rank = priority_rank(wish->priority);
    struct err missing;

    /* Counting finds the project, or not; a wish that is wrong besides is told so second. */
    if (check_wish(by, project, wish, err) < 0) {
        if (hub_project_exists(by, project, &missing) < 0 && err)
            *err = missing;
        return -1;
    }
    if (count_task(by, project, err) < 0)
        return -1;
    *out = (struct hub_task){ .id = hub_uuid(by),
                              .project_id = project,
                              .title = wish->title,
                              .description = or_empty(wish->description),
                              .status = "backlog",
                              .priority = priority_name(rank),
                              .rank = rank,
                              .assigned_to = hub_or_null(wish->assigned_to),
                              .required_capabilities = wish->required_capabilities,
                              .labels = wish->labels,
                              .parent_task_id = hub_or_null(wish->parent_task_id),
                              .created_by = by->agent ? by->agent : or_empty(wish->created_by),
                              .required_reviewers = gate ? wish->required_reviewers : 1,
                              .gate = gate,
                              .created_at = by->now_ms,
                              .updated_at = by->now_ms };
    return tell_created(by, out, err) < 0 ? -1 : insert(by, out, err);
}

int hub_patch_words(const struct hub_by *by, struct hub_task *task, const struct hub_patch *wish,
                    uint64_t present, struct err *err)
{
    if ((present & HUB_PATCH_TITLE) && hub_title_check(wish->title, "title", err) < 0)
        return -1;
    for (const char **label = wish->labels; label && *label; label++)
        if (hub_name_check(*label, "labels", err) < 0)
            return -1;
    if (hub_text_check(by, wish->title, err) < 0 || hub_text_check(by, wish->description, err) < 0)
        return -1;
    if (present & HUB_PATCH_TITLE)
        task->title = wish->title;
    if (present & HUB_PATCH_DESCRIPTION)
        task->description = wish->description;
    if (present & HUB_PATCH_PRIORITY)
        task->rank = priority_rank(wish->priority);
    if (present & HUB_PATCH_LABELS)
        task->labels = wish->labels;
    task->priority = priority_name(task->rank);
    return 0;
}
