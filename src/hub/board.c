/*
 * How tasks move: claimed, assigned, from column to column, reviewed, unblocked. All of it inside
 * the one writer, so that looking and changing are one step: of a hundred claims one finds the task
 * free, and the others find its owner.
 */
#include "hub/own.h"

/* ---- claims ---- */

/* A claim that nothing stands against. */
static int do_claim(const struct hub_by *by, struct hub_task *task, const char *agent,
                    struct err *err)
{
    task->status = "ready";
    return hub_take_task(by, task, agent, err);
}

int hub_claim(const struct hub_by *by, const char *project, const char *id, const char *agent,
              struct hub_proposal *out, struct err *err)
{
    struct hub_step step = { .way = HUB_CLAIMS, .agent = agent, .holder = agent };
    struct hub_task task;

    if (hub_name_check(agent, "agent", err) < 0 || hub_self(by, agent, "agent", err) < 0)
        return -1;
    int rc = hub_task_find(by, project, id, &task, err);
    if (rc < 0)
        return -1;
    switch (hub_step_check(by, rc ? &task : NULL, &step, err)) {
    case HUB_STEP_DO:
        return do_claim(by, &task, agent, err);
    case HUB_STEP_PROPOSE:
        return hub_propose(by, &task, &step, NULL, out, err) < 0 ? -1 : 1;
    case HUB_STEP_DONE:
        return 0;
    default:
        return -1;
    }
}

/* ---- blockers ---- */

static int drop_blockers(const struct hub_by *by, const char *task, struct err *err)
{
    return hub_change(by, err, "DELETE FROM hub_blocker WHERE tenant = $1 AND task = $2", task);
}

static void unblock(struct hub_task *task)
{
    task->blocked_reason = "";
    task->blocked_by = NULL;
    task->blocked_from = "";
}

/* What is named and is a task of the project that is not done: it is waited for. */
static int add_blocker(const struct hub_by *by, const struct hub_task *task, struct str name,
                       struct err *err)
{
    struct hub_task other;
    const char *id = arena_memdup0(by->arena, name.p ? name.p : "", name.n);

    if (strcmp(id, task->id) == 0)
        return err_field(err, "blocked_by", "a task does not wait for itself");
    int rc = hub_task_find(by, task->project_id, id, &other, err);
    if (rc <= 0 || strcmp(other.status, "done") == 0)
        return rc < 0 ? -1 : 0;
    return hub_change(by, err,
                      "INSERT INTO hub_blocker (tenant, blocker, task) VALUES ($1, $2, $3)"
                      " ON CONFLICT (tenant, blocker, task) DO NOTHING",
                      id, task->id);
}

static int check_blockers(const struct json *blocked_by, struct err *err)
{
    if (!blocked_by)
        return 0;
    if (blocked_by->type == JSON_STRING && blocked_by->text.n > HUB_NAME_MAX)
        return err_field(err, "blocked_by", "must have at most %d bytes", HUB_NAME_MAX);
    if (blocked_by->type != JSON_STRING && blocked_by->type != JSON_ARRAY)
        return err_field(err, "blocked_by", "must be a string or an array, not %s",
                         json_type_name(blocked_by->type));
    if (blocked_by->type == JSON_ARRAY && blocked_by->count > HUB_BLOCKERS_MAX)
        return err_field(err, "blocked_by", "must have at most %d items", HUB_BLOCKERS_MAX);
    json_each(item, blocked_by)
    {
        if (item->type != JSON_STRING || item->text.n > HUB_NAME_MAX)
            return err_field(err, "blocked_by", "must be strings of at most %d bytes",
                             HUB_NAME_MAX);
    }
    return 0;
}

static int add_blockers(const struct hub_by *by, const struct hub_task *task, struct err *err)
{
    const struct json *blocked_by = task->blocked_by;

    if (blocked_by && blocked_by->type == JSON_STRING)
        return add_blocker(by, task, blocked_by->text, err);
    json_each(item, blocked_by)
    {
        if (add_blocker(by, task, item->text, err) < 0)
            return -1;
    }
    return 0;
}

/* Does anything still stand in its way? */
static int is_blocked(const struct hub_by *by, const char *task, int64_t *out, struct err *err)
{
    autoquery struct query *q =
        hub_query(by, "SELECT count(*) FROM hub_blocker WHERE tenant = $1 AND task = $2", task);

    return hub_number(q, 0, out, err);
}

static int release_one(const struct hub_by *by, const char *id, struct err *err)
{
    struct hub_task task;
    int64_t left;
    int rc = hub_task_find(by, NULL, id, &task, err);

    if (rc <= 0)
        return rc;
    if (is_blocked(by, id, &left, err) < 0)
        return -1;
    if (left || strcmp(task.status, "blocked") != 0)
        return 0;
    return hub_move(by, &task, strcmp(task.blocked_from, "backlog") == 0 ? "backlog" : "ready",
                    "hub", "nothing blocks it any more", err);
}

/* `task` is done: what waited for it alone goes on. */
static int release_waiting(const struct hub_by *by, const struct hub_task *task, struct err *err)
{
    const char **waiting;
    autoquery struct query *q =
        hub_query(by, "SELECT task FROM hub_blocker WHERE tenant = $1 AND blocker = $2", task->id);

    if (hub_column(by, q, &waiting, err) < 0 ||
        hub_change(by, err, "DELETE FROM hub_blocker WHERE tenant = $1 AND blocker = $2",
                   task->id) < 0)
        return -1;
    for (; *waiting; waiting++)
        if (release_one(by, *waiting, err) < 0)
            return -1;
    return 0;
}

/* ---- moving ---- */

static int add_transition(const struct hub_by *by, const struct hub_task *task, const char *from,
                          const char *who, const char *note, struct err *err)
{
    autoquery struct query *q = db_query(
        by->db, "INSERT INTO hub_transition (tenant, task, number, was, became, by, note, at_ms)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)");

    query_text(q, 1, by->tenant);
    query_text(q, 2, task->id);
    query_i64(q, 3, task->moves);
    query_text(q, 4, from);
    query_text(q, 5, task->status);
    query_text(q, 6, who);
    query_text(q, 7, note);
    query_i64(q, 8, by->now_ms);
    return query_run(q, err) < 0 ? -1 : 0;
}

static void stamp(const struct hub_by *by, struct hub_task *task)
{
    if (strcmp(task->status, "in_progress") == 0 && !task->started_at)
        task->started_at = by->now_ms;
    if (strcmp(task->status, "in_review") == 0) {
        task->round++;
        if (!task->review_started_at)
            task->review_started_at = by->now_ms;
    }
    if (strcmp(task->status, "done") == 0)
        task->completed_at = by->now_ms;
}

int hub_move(const struct hub_by *by, struct hub_task *task, const char *status, const char *who,
             const char *note, struct err *err)
{
    const char *from = task->status;

    task->status = status;
    task->moves++;
    stamp(by, task);
    if (strcmp(from, "blocked") == 0) {
        unblock(task);
        if (drop_blockers(by, task->id, err) < 0)
            return -1;
    }
    if (add_transition(by, task, from, who, note, err) < 0 || hub_task_save(by, task, err) < 0)
        return -1;
    if (hub_tell(by, "task_transition", hub_project_object(by, task->project_id, task->id), err,
                 "project", task->project_id, "task_id", task->id, "title", task->title,
                 "new_status", status, "by", who, NULL) < 0)
        return -1;
    return strcmp(status, "done") == 0 ? release_waiting(by, task, err) : 0;
}

static int apply_move(const struct hub_by *by, struct hub_task *task, const struct hub_patch *wish,
                      const struct hub_step *step, struct err *err)
{
    if (step->takes && hub_take_task(by, task, step->agent, err) < 0)
        return -1;
    if (strcmp(step->to, "blocked") == 0) {
        task->blocked_reason = wish->blocked_reason ? wish->blocked_reason : "";
        task->blocked_by = wish->blocked_by;
        task->blocked_from = task->status;
        if (add_blockers(by, task, err) < 0)
            return -1;
    }
    const char *who = step->agent[0] ? step->agent : by->mover ? by->mover : "";
    return hub_move(by, task, step->to, who, wish->note ? wish->note : "", err);
}

static int patch_status(const struct hub_by *by, struct hub_task *task,
                        const struct hub_patch *wish, const char *agent, struct hub_proposal *out,
                        struct err *err)
{
    struct hub_step step = { .way = HUB_MOVES, .agent = agent, .to = wish->status };
    int rc = hub_step_check(by, task, &step, err);

    if (rc < 0 || hub_text_check(by, wish->note, err) < 0 ||
        hub_text_check(by, wish->blocked_reason, err) < 0)
        return -1;
    if (rc == HUB_STEP_PROPOSE)
        return hub_propose(by, task, &step, wish, out, err) < 0 ? -1 : 1;
    return apply_move(by, task, wish, &step, err);
}

/* ---- approved proposals ---- */

int hub_step_approved(const struct hub_by *by, const char *project, const char *id,
                      struct hub_step *step, const struct hub_patch *wish, struct err *err)
{
    struct hub_task task;
    int rc = hub_task_find(by, project, id, &task, err);

    if (rc < 0)
        return -1;
    if (rc && step->from && strcmp(step->from, task.status) != 0)
        return err_set(err, ERR_CONFLICT, "the task has moved to %s since", task.status);
    step->approved = true;
    rc = hub_step_check(by, rc ? &task : NULL, step, err);
    if (rc < 0 && (err->code == ERR_INVALID || err->code == ERR_FORBIDDEN))
        err->code = ERR_CONFLICT;
    if (rc < 0 || rc == HUB_STEP_DONE)
        return rc < 0 ? -1 : 0;
    return step->way == HUB_CLAIMS ? do_claim(by, &task, step->agent, err)
                                   : apply_move(by, &task, wish, step, err);
}

/* ---- PATCH ---- */

static int tell_updated(const struct hub_by *by, const struct hub_task *task, uint64_t present,
                        struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "project", task->project_id);
    json_kv_text(&json, "task_id", task->id);
    json_key(&json, "fields");
    json_open(&json, '[');
    for (const struct field *field = hub_patch_fields; field->name; field++)
        if ((1ull << (field - hub_patch_fields)) >= HUB_PATCH_TITLE &&
            present >> (field - hub_patch_fields) & 1)
            json_put_str(&json, str_of(field->name));
    json_close(&json, ']');
    json_close(&json, '}');
    return hub_tell_json(by, "task_updated", hub_project_object(by, task->project_id, task->id),
                         &body, err);
}

int hub_patch(const struct hub_by *by, const char *project, const char *id,
              const struct hub_patch *wish, uint64_t present, struct hub_task *out,
              struct hub_proposal *proposal, struct err *err)
{
    const char *agent = wish->agent && wish->agent[0] ? wish->agent : by->agent ? by->agent : "";
    bool words = present >= HUB_PATCH_TITLE, moves = wish->status && wish->status[0];

    int rc = hub_task_find(by, NULL, id, out, err);
    if (rc < 0)
        return -1;
    bool elsewhere = rc && strcmp(out->project_id, project) != 0;
    if (rc == 0 || (elsewhere && !moves))
        return err_set(err, ERR_NOT_FOUND, "task not found");
    if (elsewhere)
        return err_set(err, ERR_INVALID, "Task not found");
    if ((agent[0] && hub_name_check(agent, "agent", err) < 0) ||
        check_blockers(wish->blocked_by, err) < 0)
        return -1;
    if (!words && !moves)
        return 0;
    if (hub_mover_check(by, out, agent, err) < 0 || (words && hub_active(by, agent, err) < 0) ||
        hub_patch_words(by, out, wish, present, err) < 0)
        return -1;
    if (words && (hub_task_save(by, out, err) < 0 || tell_updated(by, out, present, err) < 0))
        return -1;
    return moves ? patch_status(by, out, wish, agent, proposal, err) : 0;
}

/* ---- assigning ---- */

static int find(const struct hub_by *by, const char *project, const char *id, struct hub_task *out,
                struct err *err)
{
    int rc = hub_task_find(by, project, id, out, err);

    if (rc < 0)
        return -1;
    return rc ? 0 : err_set(err, ERR_INVALID, "Task not found");
}

int hub_assign(const struct hub_by *by, const char *project, const char *id,
               const struct hub_agent_named *wish, struct err *err)
{
    const char *who = wish->assigned_by && wish->assigned_by[0] ? wish->assigned_by : HUB_HUMAN;
    struct hub_step step = hub_step_giving(HUB_ASSIGNS, who, wish->agent);
    struct hub_task task;

    if (hub_name_check(wish->agent, "agent", err) < 0 ||
        hub_name_check(who, "assigned_by", err) < 0 || find(by, project, id, &task, err) < 0 ||
        hub_step_check(by, &task, &step, err) < 0)
        return -1;
    if (strcmp(task.status, "blocked") == 0)
        unblock(&task);
    task.assigned_to = wish->agent;
    task.status = "ready";
    if (drop_blockers(by, id, err) < 0 || hub_task_save(by, &task, err) < 0)
        return -1;
    return hub_tell(by, "task_assigned", hub_project_object(by, project, id), err, "project",
                    project, "task_id", id, "title", task.title, "agent", wish->agent, "by", who,
                    NULL);
}

int hub_unassign(const struct hub_by *by, const char *project, const char *id, struct err *err)
{
    struct hub_task task;

    if (find(by, project, id, &task, err) < 0)
        return -1;
    if (by->agent && !hub_owns(&task, by->agent))
        return err_set(err, ERR_FORBIDDEN, "the task is not %s's", by->agent);
    if (by->agent && hub_active(by, by->agent, err) < 0)
        return -1;
    if (strcmp(task.status, "blocked") == 0)
        unblock(&task);
    task.assigned_to = task.claimed_by = NULL;
    task.status = "backlog";
    if (drop_blockers(by, id, err) < 0 || hub_task_save(by, &task, err) < 0)
        return -1;
    return hub_tell(by, "task_unassigned", hub_project_object(by, project, id), err, "project",
                    project, "task_id", id, NULL);
}

/* ---- reviews ---- */

int hub_reviewer_add(const struct hub_by *by, const char *project, const char *id, const char *name,
                     struct err *err)
{
    struct hub_task task;
    size_t count = 0;

    if (hub_task_must(by, project, id, &task, err) < 0 || hub_name_check(name, "name", err) < 0 ||
        (by->agent && hub_active(by, by->agent, err) < 0))
        return -1;
    if (hub_has(task.reviewers, name))
        return 0;
    while (task.reviewers[count])
        count++;
    if (count >= HUB_REVIEWERS_MAX)
        return err_set(err, ERR_CONFLICT, "a task has %d reviewers already", HUB_REVIEWERS_MAX);
    const char **more = arena_alloc(by->arena, (count + 2) * sizeof(*more));
    memcpy(more, task.reviewers, count * sizeof(*more));
    more[count] = name;
    task.reviewers = more;
    if (hub_task_save(by, &task, err) < 0)
        return -1;
    return hub_tell(by, "task_reviewer_added", hub_project_object(by, project, id), err, "project",
                    project, "task_id", id, "reviewer", name, NULL);
}

static int check_review(const struct hub_by *by, const struct hub_task *task, const char *reviewer,
                        struct err *err)
{
    if (hub_self(by, reviewer, "reviewer", err) < 0)
        return -1;
    if (hub_owns(task, reviewer) || (task->claimed_by && strcmp(task->claimed_by, reviewer) == 0))
        return err_set(err, ERR_FORBIDDEN, "%s does not review its own work", reviewer);
    if (strcmp(reviewer, HUB_HUMAN) != 0 && !hub_has(task->reviewers, reviewer))
        return err_set(err, ERR_FORBIDDEN, "%s is not a reviewer of this task", reviewer);
    if (strcmp(task->status, "in_review") != 0)
        return err_set(err, ERR_CONFLICT, "the task is %s, not in_review", task->status);
    return hub_active(by, reviewer, err);
}

static int put_review(const struct hub_by *by, const struct hub_task *task, const char *reviewer,
                      const char *verdict, const char *note, struct err *err)
{
    autoquery struct query *q = db_query(
        by->db, "INSERT INTO hub_review (tenant, task, seq, round, reviewer, verdict, note, at_ms)"
                " VALUES ($1, $2, (SELECT coalesce(max(seq), 0) + 1 FROM hub_review WHERE"
                " tenant = $1 AND task = $2), $3, $4, $5, $6, $7)");

    query_text(q, 1, by->tenant);
    query_text(q, 2, task->id);
    query_i64(q, 3, task->round);
    query_text(q, 4, reviewer);
    query_text(q, 5, verdict);
    query_text(q, 6, note);
    query_i64(q, 7, by->now_ms);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int tell_review(const struct hub_by *by, const struct hub_task *task, const char *reviewer,
                       const char *verdict, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "project", task->project_id);
    json_kv_text(&json, "task_id", task->id);
    json_kv_text(&json, "reviewer", reviewer);
    json_kv_text(&json, "verdict", verdict);
    json_kv_int(&json, "approvals", task->approvals);
    json_kv_int(&json, "required", task->approvals_required);
    json_close(&json, '}');
    return hub_tell_json(by, "task_reviewed", hub_project_object(by, task->project_id, task->id),
                         &body, err);
}

/* Back to work; when its owner has no room for it there, it waits where it is. */
static int rework(const struct hub_by *by, struct hub_task *task, const char *reviewer,
                  const char *note, struct err *err)
{
    int64_t limit;
    int rc = hub_wip_full(by, task, task->assigned_to ? task->assigned_to : "", "in_progress",
                          &limit, err);

    if (rc != 0)
        return rc < 0 ? -1 : 0;
    return hub_move(by, task, "in_progress", reviewer, note, err);
}

int hub_review(const struct hub_by *by, const char *project, const char *id,
               const struct hub_verdict *wish, bool approve, struct hub_task *out, struct err *err)
{
    const char *reviewer = hub_who(by, wish->reviewer);
    const char *verdict = approve ? "approved" : "changes_requested";
    const char *note = wish->note ? wish->note : "";

    if (hub_task_must(by, project, id, out, err) < 0 ||
        hub_name_check(reviewer, "reviewer", err) < 0 || hub_text_check(by, note, err) < 0 ||
        check_review(by, out, reviewer, err) < 0 ||
        put_review(by, out, reviewer, verdict, note, err) < 0 ||
        hub_approvals(by, out, &out->approvals, err) < 0)
        return -1;
    out->approvals_required = hub_approvals_required(out);
    if (tell_review(by, out, reviewer, verdict, err) < 0)
        return -1;
    return approve ? 0 : rework(by, out, reviewer, note, err);
}
