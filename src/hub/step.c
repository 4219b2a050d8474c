/*
 * Steps: every way in which a task gets an owner or changes its column. A claim, a PATCH, a
 * creation with an owner, an assignment and the approval of a proposal all ask hub_step_check, so
 * that no way allows what another one refuses.
 *
 * People are bound by the board alone: its columns, its reviews and its limits. An agent is also
 * bound by what it is: paused or revoked, its mode, its capabilities, and whose task it is.
 */
#include "hub/own.h"

const char *hub_owner(const struct hub_task *task)
{
    return task->assigned_to ? task->assigned_to : task->claimed_by;
}

bool hub_owns(const struct hub_task *task, const char *agent)
{
    const char *owner = hub_owner(task);

    return owner && strcmp(owner, agent) == 0;
}

bool hub_is_person(const char *name)
{
    return !name || !name[0] || strcmp(name, HUB_HUMAN) == 0;
}

/* ---- limits ---- */

/* Tasks that nobody owns have one limit together, in the columns where work is going on. */
static bool is_limited(const char *holder, const char *status)
{
    return holder[0] || strcmp(status, "in_progress") == 0 || strcmp(status, "in_review") == 0;
}

int hub_wip_full(const struct hub_by *by, const struct hub_task *task, const char *holder,
                 const char *status, int64_t *limit, struct err *err)
{
    if (!is_limited(holder, status))
        return 0;
    autoquery struct query *q =
        db_query(by->db, "SELECT most FROM hub_wip WHERE tenant = $1 AND project = $2"
                         " AND status = $3 AND most <= (SELECT count(*) FROM hub_task WHERE"
                         " tenant = $1 AND project = $2 AND assigned_to = $4"
                         " AND status = $3 AND id <> $5)");

    query_text(q, 1, by->tenant);
    query_text(q, 2, task->project_id);
    query_text(q, 3, status);
    query_text(q, 4, holder);
    query_text(q, 5, task->id);
    int rc = query_step(q, err);
    if (rc > 0)
        *limit = query_col_i64(q, 0);
    return rc;
}

static int check_column_wip(const struct hub_by *by, const struct hub_task *task,
                            const char *holder, const char *status, struct err *err)
{
    int64_t limit;
    int rc = hub_wip_full(by, task, holder, status, &limit, err);

    if (rc <= 0)
        return rc;
    return err_set(err, ERR_INVALID, "WIP limit reached for %s in %s (limit: %lld)",
                   holder[0] ? holder : "tasks without an owner", status, (long long)limit);
}

/* Both columns that a new owner needs room in, by one statement; in_progress comes first. */
static int check_owner_wip(const struct hub_by *by, const struct hub_task *task, const char *agent,
                           struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "SELECT status, most FROM hub_wip w WHERE tenant = $1 AND project = $2"
                         " AND most <= (SELECT count(*) FROM hub_task t WHERE t.tenant = $1"
                         " AND t.project = $2 AND t.assigned_to = $3 AND t.assigned_to <> ''"
                         " AND t.status = w.status AND t.id <> $4) ORDER BY status");
    int rc;

    query_text(q, 1, by->tenant);
    query_text(q, 2, task->project_id);
    query_text(q, 3, agent);
    query_text(q, 4, task->id);
    while ((rc = query_step(q, err)) > 0) {
        struct str status = query_col_str(q, 0);
        bool ready = str_is(status, "ready");

        if (ready || str_is(status, "in_progress"))
            return err_set(err, ERR_INVALID, "WIP limit reached for %s%s (limit: %lld)", agent,
                           ready ? " in ready" : "", (long long)query_col_i64(q, 1));
    }
    return rc;
}

static int check_wip(const struct hub_by *by, const struct hub_task *task,
                     const struct hub_step *step, struct err *err)
{
    if (step->way != HUB_MOVES)
        return check_owner_wip(by, task, step->holder, err);
    const char *holder = step->takes ? step->agent : task->assigned_to ? task->assigned_to : "";
    return check_column_wip(by, task, holder, step->to, err);
}

/* ---- columns ---- */

enum { BACKLOG, READY, IN_PROGRESS, IN_REVIEW, BLOCKED, DONE };

static int number_of(const char *status)
{
    int i = 0;

    while (hub_statuses[i] && strcmp(hub_statuses[i], status) != 0)
        i++;
    return i;
}

static bool may_follow(const char *from, const char *to)
{
    static const unsigned char next[] = {
        [BACKLOG] = 1 << READY | 1 << BLOCKED,
        [READY] = 1 << BACKLOG | 1 << IN_PROGRESS | 1 << BLOCKED,
        [IN_PROGRESS] = 1 << READY | 1 << IN_REVIEW | 1 << BLOCKED,
        [IN_REVIEW] = 1 << IN_PROGRESS | 1 << DONE,
        [BLOCKED] = 1 << BACKLOG | 1 << READY,
        [DONE] = 1 << BACKLOG,
    };

    return next[number_of(from)] >> number_of(to) & 1;
}

/* The columns that stand for work; in the others a task waits. */
static bool is_work(const char *status)
{
    int number = number_of(status);

    return number == IN_PROGRESS || number == IN_REVIEW || number == DONE;
}

static int check_gate(const struct hub_by *by, const struct hub_task *task, struct err *err)
{
    int64_t needed = hub_approvals_required(task), have;

    if (!needed)
        return 0;
    if (hub_approvals(by, task, &have, err) < 0)
        return -1;
    return have >= needed ? 0
                          : err_set(err, ERR_CONFLICT, "Review required: %lld of %lld approvals",
                                    (long long)have, (long long)needed);
}

static int check_column(const struct hub_by *by, const struct hub_task *task,
                        const struct hub_step *step, struct err *err)
{
    if (step->way == HUB_CLAIMS && strcmp(task->status, "backlog") != 0 &&
        strcmp(task->status, "ready") != 0)
        return err_set(err, ERR_INVALID, "Cannot claim task in %s status", task->status);
    if (step->way != HUB_MOVES)
        return 0;
    if (!hub_status_ok(step->to))
        return err_set(err, ERR_INVALID, "Invalid status: %.64s", step->to);
    if (!may_follow(task->status, step->to))
        return err_set(err, ERR_INVALID, "Invalid transition: %s \u2192 %s", task->status,
                       step->to);
    return strcmp(step->to, "done") == 0 ? check_gate(by, task, err) : 0;
}

/* ---- what binds an agent ---- */

static int check_tags(const struct hub_by *by, const struct hub_task *task, const char *agent,
                      struct err *err)
{
    const char **needs = hub_tags_clean(by, task->required_capabilities), **has;

    if (!*needs)
        return 0;
    if (hub_tags_of(by, agent, &has, err) < 0)
        return -1;
    for (const char **tag = needs; *tag; tag++)
        if (!hub_has(has, *tag))
            return err_set(err, ERR_INVALID,
                           "Capabilities insufficient. Required: %.200s, have: %.200s",
                           hub_tags_text(by, needs), hub_tags_text(by, has));
    return 0;
}

/* A person who moves or gives tasks under a name of their own, which no agent has. */
static bool is_people(const struct hub_by *by, const char *name,
                      const struct hub_standing *standing)
{
    return hub_is_person(name) || (!by->agent && !standing->known);
}

int hub_mover_check(const struct hub_by *by, const struct hub_task *task, const char *agent,
                    struct err *err)
{
    if (hub_self(by, agent, "agent", err) < 0)
        return -1;
    struct hub_standing standing;

    if (hub_is_person(agent) || !hub_owner(task) || hub_owns(task, agent) ||
        strcmp(task->created_by, agent) == 0 || hub_has(task->reviewers, agent))
        return 0;
    if (hub_standing(by, agent, &standing, err) < 0)
        return -1;
    if (is_people(by, agent, &standing))
        return 0;
    return err_set(err, ERR_FORBIDDEN, "the task is %s's", hub_owner(task));
}

static int check_owner(const struct hub_by *by, const struct hub_task *task,
                       const struct hub_step *step, struct err *err)
{
    const char *owner = hub_owner(task);

    if (step->way == HUB_MOVES)
        return hub_mover_check(by, task, step->agent, err);
    if (!owner || strcmp(owner, step->agent) == 0)
        return 0;
    return err_set(err, ERR_CONFLICT, "Task is already %s %s",
                   task->claimed_by && strcmp(task->claimed_by, owner) == 0 ? "claimed by"
                                                                            : "assigned to",
                   owner);
}

/* Does the agent become the owner? Those who review a task move it without taking it. */
static bool takes(const struct hub_task *task, const struct hub_step *step)
{
    if (step->way != HUB_MOVES)
        return true;
    return !hub_owner(task) && is_work(step->to) && !hub_has(task->reviewers, step->agent);
}

/* A manual agent works on what people gave it: its own tasks, and those that it is to review. */
static bool is_given(const struct hub_task *task, const struct hub_step *step)
{
    return task && !step->takes &&
           (hub_owns(task, step->agent) ||
            (strcmp(task->status, "in_review") == 0 && hub_has(task->reviewers, step->agent)));
}

static int check_mode(const struct hub_task *task, const struct hub_step *step, const char *mode,
                      struct err *err)
{
    if (step->approved || strcmp(mode, "fully_autonomous") == 0)
        return 0;
    if (strcmp(mode, "manual") == 0)
        return is_given(task, step)
                   ? 0
                   : err_set(err, ERR_FORBIDDEN,
                             "agent %s is in manual mode: people assign its tasks", step->agent);
    if (step->way == HUB_CREATES || step->way == HUB_ASSIGNS)
        return err_set(err, ERR_FORBIDDEN,
                       "agent %s is in advisory mode: it claims tasks, and people approve",
                       step->agent);
    return 0;
}

/* Only giving its own task back and reporting it as blocked need nobody's consent. */
static bool is_proposed(const struct hub_task *task, const struct hub_step *step, const char *mode)
{
    return !step->approved && strcmp(mode, "advisory") == 0 &&
           !(step->way == HUB_MOVES && hub_owns(task, step->agent) && !is_work(step->to));
}

static bool is_claimed(const struct hub_task *task, const char *agent)
{
    return strcmp(task->status, "ready") == 0 && task->claimed_by && task->assigned_to &&
           strcmp(task->claimed_by, agent) == 0 && strcmp(task->assigned_to, agent) == 0;
}

/* ---- the decision ---- */

static int check_board(const struct hub_by *by, const struct hub_task *task,
                       const struct hub_step *step, struct err *err)
{
    if (check_column(by, task, step, err) < 0)
        return -1;
    return check_wip(by, task, step, err) < 0 ? -1 : HUB_STEP_DO;
}

int hub_step_check(const struct hub_by *by, const struct hub_task *task, struct hub_step *step,
                   struct err *err)
{
    struct hub_standing standing;

    step->takes = false;
    if (step->way != HUB_CLAIMS && hub_is_person(step->agent))
        return check_board(by, task, step, err);
    if (hub_standing(by, step->agent, &standing, err) < 0)
        return -1;
    if (step->way != HUB_CLAIMS && is_people(by, step->agent, &standing))
        return check_board(by, task, step, err);
    if (hub_standing_active(&standing, step->agent, err) < 0)
        return -1;
    if (task && step->way == HUB_CLAIMS && is_claimed(task, step->agent))
        return HUB_STEP_DONE;
    step->takes = task && takes(task, step);
    if (check_mode(task, step, standing.mode, err) < 0)
        return -1;
    if (!task)
        return err_set(err, ERR_INVALID, "Task not found");
    if (check_column(by, task, step, err) < 0 || check_owner(by, task, step, err) < 0 ||
        (step->takes && check_tags(by, task, step->agent, err) < 0) ||
        check_wip(by, task, step, err) < 0)
        return -1;
    return is_proposed(task, step, standing.mode) ? HUB_STEP_PROPOSE : HUB_STEP_DO;
}

int hub_take_task(const struct hub_by *by, struct hub_task *task, const char *agent,
                  struct err *err)
{
    task->assigned_to = task->claimed_by = agent;
    if (hub_task_save_owner(by, task, err) < 0 || hub_agent_task(by, agent, task->id, err) < 0)
        return -1;
    return hub_tell(by, "task_claimed", hub_project_object(by, task->project_id, task->id), err,
                    "project", task->project_id, "task_id", task->id, "agent", agent, "title",
                    task->title, NULL);
}
