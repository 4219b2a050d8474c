/* The hub's tasks and boards, reviews, and the proposals of agents that may not decide alone. */
#include "api/hub_call.h"

#include "base/clock.h"
#include "gate/gate.h"

static const char *task_object(struct call *call)
{
    return arena_printf(&call->arena, "task/%.64s", call_param(call, "task"));
}

static void put_ok(struct call *call)
{
    struct json_out json = call_json(call);

    json_open(&json, '{');
    json_kv_bool(&json, "ok", true);
    json_close(&json, '}');
}

/* ---- making and reading ---- */

static int task_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_task_wish wish = { 0 };
    struct hub_task task;
    uint64_t present;

    if (hub_take(call, &wish, &present, err) < 0)
        return -1;
    bool gate = json_get(call->json, "required_reviewers") &&
                json_get(call->json, "required_reviewers")->type != JSON_NULL;
    hub_note(call, by.agent ? by.agent : wish.created_by, "project", call_param(call, "project"),
             "title", wish.title, NULL);
    if (hub_task_create(&by, call_param(call, "project"), &wish, gate, &task, err) < 0)
        return -1;
    call->object = arena_printf(&call->arena, "task/%s", task.id);
    return call_reply(call, &task);
}

static const char *asked(struct call *call, const char *name)
{
    const char *text = call_query(call, name);

    return text && text[0] ? text : NULL;
}

static int tasks_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);
    const char *blocked = call_query(call, "include_blocked");
    const struct hub_tasks_wish wish = {
        .project = call_param(call, "project"),
        .status = asked(call, "status"),
        .agent = asked(call, "agent"),
        .assigned_to = asked(call, "assigned_to"),
        .label = asked(call, "label"),
        .no_blocked = blocked && str_eq_nocase(str_of(blocked), STR("false")),
        .whole = true,
    };

    return hub_list_end(&list, hub_tasks(&by, &wish, hub_put_item, &list, err));
}

static int all_tasks_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);
    const struct hub_tasks_wish wish = { .project = asked(call, "project_id"),
                                         .status = asked(call, "status"),
                                         .agent = asked(call, "agent"),
                                         .assigned_to = asked(call, "assigned_to") };

    bool any = wish.project || wish.status || wish.agent || wish.assigned_to;
    return hub_list_end(&list, any ? hub_tasks(&by, &wish, hub_put_item, &list, err) : 0);
}

static int task_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_task task;

    return hub_task_get(&by, call_param(call, "project"), call_param(call, "task"), &task, err) < 0
               ? -1
               : call_reply(call, &task);
}

static int reviews_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);
    struct hub_task task;

    if (hub_task_get(&by, call_param(call, "project"), call_param(call, "task"), &task, err) < 0)
        return -1;
    const struct hub_review *items = task.reviews.items;
    for (size_t i = 0; i < task.reviews.count; i++)
        hub_put_item(&list, &items[i]);
    return hub_list_end(&list, 0);
}

/* The capabilities count only together with an agent, as they always did. */
static int ready_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);
    const char *tags[CALL_QUERIES_MAX + 1] = { NULL };
    unsigned count = 0;

    for (unsigned i = 0; i < call->query_count; i++)
        if (strcmp(call->queries[i].name, "capabilities") == 0)
            tags[count++] = call->queries[i].value;
    return hub_list_end(&list, hub_ready(&by, call_param(call, "project"),
                                         asked(call, "agent") && count ? tags : NULL, hub_put_item,
                                         &list, err));
}

/* ---- claims ---- */

static void opened(struct call *call)
{
    gate_ask_opened(call->api->gate, call->state);
}

static int put_proposed(struct call *call, const struct hub_proposal *one)
{
    struct ask_row *row = arena_new(&call->arena, struct ask_row);
    struct json_out json = call_json(call);
    char when[CLOCK_NAIVE_SIZE];

    *row = (struct ask_row){ .id = one->id,
                             .tenant = call->who.tenant,
                             .kind = one->status ? HUB_ASK_MOVE : HUB_ASK_CLAIM,
                             .sandbox = "",
                             .state = "pending",
                             .hash = "",
                             .expires_ms = one->expires_at };
    call->state = row;
    call->committed = opened;
    call->status = 202;
    call->outcome = "proposed";
    clock_naive(one->expires_at, when);
    json_open(&json, '{');
    json_kv_bool(&json, "ok", false);
    json_kv_text(&json, "status", "proposed");
    json_kv_text(&json, "proposal_id", one->id);
    json_kv_text(&json, "task_id", one->task_id);
    json_kv_text(&json, "agent", one->agent);
    json_kv_text(&json, "expires_at", when);
    json_close(&json, '}');
    return 0;
}

static int claim_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_agent_named wish = { 0 };
    struct json_out json = call_json(call);
    struct hub_proposal proposal;

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, wish.agent, "project", call_param(call, "project"), "task",
             call_param(call, "task"), NULL);
    call->object = task_object(call);
    int rc = hub_claim(&by, call_param(call, "project"), call_param(call, "task"), wish.agent,
                       &proposal, err);
    if (rc != 0)
        return rc < 0 ? -1 : put_proposed(call, &proposal);
    json_open(&json, '{');
    json_kv_bool(&json, "ok", true);
    json_kv_text(&json, "task_id", call_param(call, "task"));
    json_close(&json, '}');
    return 0;
}

static int assign_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_agent_named wish = { 0 };

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, wish.assigned_by ? wish.assigned_by : HUB_HUMAN, "project",
             call_param(call, "project"), "task", call_param(call, "task"), "agent", wish.agent,
             NULL);
    call->object = task_object(call);
    if (hub_assign(&by, call_param(call, "project"), call_param(call, "task"), &wish, err) < 0)
        return -1;
    put_ok(call);
    return 0;
}

static int unassign_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);

    hub_note(call, hub_who(&by, NULL), "project", call_param(call, "project"), "task",
             call_param(call, "task"), NULL);
    call->object = task_object(call);
    if (hub_unassign(&by, call_param(call, "project"), call_param(call, "task"), err) < 0)
        return -1;
    put_ok(call);
    return 0;
}

static int task_patch(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_patch wish = { 0 };
    struct hub_proposal proposal;
    struct hub_task task;
    uint64_t present;

    if (hub_take(call, &wish, &present, err) < 0)
        return -1;
    hub_note(call, wish.agent ? wish.agent : by.agent, "project", call_param(call, "project"),
             "task", call_param(call, "task"), "status", wish.status, "note", wish.note, NULL);
    call->object = task_object(call);
    int rc = hub_patch(&by, call_param(call, "project"), call_param(call, "task"), &wish, present,
                       &task, &proposal, err);
    if (rc != 0)
        return rc < 0 ? -1 : put_proposed(call, &proposal);
    return call_reply(call, &task);
}

/* ---- reviews ---- */

static int reviewer_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);

    hub_note(call, hub_who(&by, NULL), "task", call_param(call, "task"), "reviewer",
             call_param(call, "name"), NULL);
    call->object = task_object(call);
    if (hub_reviewer_add(&by, call_param(call, "project"), call_param(call, "task"),
                         call_param(call, "name"), err) < 0)
        return -1;
    return hub_ok(call);
}

static int review(struct call *call, bool approve, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_verdict wish = { 0 };
    struct json_out json = call_json(call);
    struct hub_task task;

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, hub_who(&by, wish.reviewer), "task", call_param(call, "task"), "note", wish.note,
             NULL);
    call->object = task_object(call);
    if (hub_review(&by, call_param(call, "project"), call_param(call, "task"), &wish, approve,
                   &task, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_bool(&json, "ok", true);
    json_kv_text(&json, "task_id", task.id);
    json_kv_text(&json, "status", task.status);
    json_kv_int(&json, "approvals", task.approvals);
    json_kv_int(&json, "required", task.approvals_required);
    json_close(&json, '}');
    return 0;
}

static int approve_post(struct call *call, struct err *err)
{
    return review(call, true, err);
}

static int changes_post(struct call *call, struct err *err)
{
    return review(call, false, err);
}

/* ---- the whole board ---- */

static int board_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct json_out json = call_json(call);

    return hub_board(&by, call_param(call, "project"), call_query(call, "lanes"), &json, err);
}

#define WEEK_S (7ll * 86400)
#define YEARS_S (10ll * 366 * 86400)

static int metrics_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct json_out json = call_json(call);
    int64_t window, bucket;

    if (call_query_int(call, "window", 1, YEARS_S, WEEK_S, &window, err) < 0 ||
        call_query_int(call, "bucket", 1, YEARS_S, MIN(window, 86400), &bucket, err) < 0)
        return -1;
    return hub_metrics(&by, call_param(call, "project"), window, bucket,
                       call_query(call, "window") != NULL, &json, err);
}

/* ---- proposals ---- */

static int proposals_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);

    return hub_list_end(&list, hub_proposals(&by, asked(call, "state"), asked(call, "agent"),
                                             asked(call, "project"), hub_put_item, &list, err));
}

static int proposal_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_proposal one;

    return hub_proposal_get(&by, call_param(call, "id"), &one, err) < 0 ? -1
                                                                        : call_reply(call, &one);
}

static void decided(struct call *call)
{
    const struct ask_row *row = call->state;

    gate_ask_decided(call->api->gate, row->id, strcmp(row->state, "allowed") == 0);
}

static int decide(struct call *call, bool allow, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *id = call_param(call, "id");
    struct ask_row *row = arena_new(&call->arena, struct ask_row);
    struct hub_verdict wish = { 0 };
    struct hub_proposal one;

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, HUB_HUMAN, "proposal", id, "verdict", allow ? "approve" : "reject", "note",
             wish.note, NULL);
    call->object = arena_printf(&call->arena, "ask/%.64s", id);
    if (hub_proposal_get(&by, id, &one, err) < 0)
        return -1;
    struct ask_decision decision = { .allow = allow, .by = call->who.id, .note = wish.note };
    int rc = ask_decide(call->db, call->who.tenant, id, &decision, &call->arena, row, err);
    if (rc < 0 || (rc > 0 && hub_decided(&by, id, row->action, allow, err) < 0))
        return -1;
    call->state = row;
    if (rc > 0)
        call->committed = decided;
    return hub_proposal_get(&by, id, &one, err) < 0 ? -1 : call_reply(call, &one);
}

static int proposal_approve(struct call *call, struct err *err)
{
    return decide(call, true, err);
}

static int proposal_reject(struct call *call, struct err *err)
{
    return decide(call, false, err);
}

#define TASK(name_, method_, path_, on_, roles_, fn_, ...)                                         \
    {                                                                                              \
        .name = "hub." name_, .method = method_, .path = path_, .on = on_, .roles = roles_,        \
        .fn = fn_, .surface = SURFACE_HUB, __VA_ARGS__                                             \
    }
#define IN "/projects/{project}"
#define ONE IN "/tasks/{task}"

/* clang-format off */
const struct route hub_task_routes[] = {
    TASK("create_task", "POST", IN "/tasks", ON_WRITER, ROLE_USE, task_post,
        .takes = hub_task_wish_fields, .gives = hub_created_fields,
        .flags = ROUTE_CREATES | HUB_CHANGE, .summary = "Put a card on the board."),
    TASK("list_tasks", "GET", IN "/tasks", ON_READER, ROLE_LOOK, tasks_get,
        .items = hub_task_fields, .flags = ROUTE_BARE,
        .query = "status:string,agent:string,assigned_to:string,include_blocked:string,label:string",
        .summary = "Its tasks by priority, then age."),
    TASK("list_ready", "GET", IN "/tasks/ready", ON_READER, ROLE_LOOK, ready_get,
        .items = hub_ready_fields, .query = "agent:string,capabilities:strings",
        .flags = ROUTE_BARE,
        .summary = "What can be claimed; with an `agent` only what these `capabilities` do for."),
    TASK("read_task", "GET", ONE, ON_READER, ROLE_LOOK, task_get, .gives = hub_task_fields,
        .summary = "One task with all of its moves and reviews."),
    TASK("transition_task", "PATCH", ONE, ON_WRITER, ROLE_USE, task_patch,
        .takes = hub_patch_fields, .gives = hub_patched_fields, .flags = HUB_CHANGE,
        .summary = "Move a task to another column, or change its words."),
    TASK("claim_task", "POST", ONE "/claim", ON_WRITER, ROLE_USE, claim_post,
        .takes = hub_agent_named_fields, .flags = HUB_CHANGE,
        .summary = "An agent takes a task; an advisory one proposes that (202)."),
    TASK("assign_task", "POST", ONE "/assign", ON_WRITER, ROLE_STEER, assign_post,
        .takes = hub_assign_fields, .flags = HUB_CHANGE, .summary = "People give a task to an agent."),
    TASK("unassign_task", "POST", ONE "/unassign", ON_WRITER, ROLE_USE, unassign_post,
        .takes = hub_nothing, .flags = HUB_CHANGE, .summary = "Back to the backlog, and nobody's."),
    TASK("add_reviewer", "POST", ONE "/reviewers/{name}", ON_WRITER, ROLE_USE, reviewer_post,
        .takes = hub_nothing, .flags = HUB_CHANGE,
        .summary = "Somebody is to look at it before it is done."),
    TASK("approve_task", "POST", ONE "/approve", ON_WRITER, ROLE_USE, approve_post,
        .takes = hub_verdict_fields, .flags = HUB_CHANGE, .summary = "A reviewer is content."),
    TASK("request_changes", "POST", ONE "/request-changes", ON_WRITER, ROLE_USE, changes_post,
        .takes = hub_verdict_fields, .flags = HUB_CHANGE,
        .summary = "A reviewer is not: back to work."),
    TASK("list_reviews", "GET", ONE "/reviews", ON_READER, ROLE_LOOK, reviews_get,
        .items = hub_review_fields, .flags = ROUTE_BARE, .summary = "What reviewers said, oldest first."),
    TASK("read_board", "GET", IN "/board", ON_READER, ROLE_LOOK, board_get, .query = "lanes:string",
        .summary = "The board by columns and `lanes` (none, agent, priority, label), with leases."),
    TASK("read_metrics", "GET", IN "/metrics", ON_READER, ROLE_LOOK, metrics_get,
        .query = "window:int,bucket:int",
        .summary = "Cycle, lead and review times, and what was done in each `bucket` of a `window`, "
                   "both in seconds."),
    TASK("find_tasks", "GET", "/tasks", ON_READER, ROLE_LOOK, all_tasks_get,
        .items = hub_task_short_fields, .flags = ROUTE_BARE,
        .query = "agent:string,project_id:string,status:string,assigned_to:string",
        .summary = "Tasks of any project; none without a filter."),
    TASK("list_proposals", "GET", "/proposals", ON_READER, ROLE_LOOK, proposals_get,
        .items = hub_proposal_fields, .query = "state:string,agent:string,project:string",
        .flags = ROUTE_BARE, .summary = "Claims that people are to decide; an agent sees its own."),
    TASK("read_proposal", "GET", "/proposals/{id}", ON_READER, ROLE_LOOK, proposal_get,
        .gives = hub_proposal_fields, .summary = "One of them."),
    TASK("decide_proposal", "POST", "/proposals/{id}/approve", ON_WRITER, ROLE_STEER,
        proposal_approve, .takes = hub_note_fields, .gives = hub_proposal_fields,
        .flags = HUB_CHANGE, .summary = "The agent claims the task at this moment, or 409."),
    TASK("decide_proposal", "POST", "/proposals/{id}/reject", ON_WRITER, ROLE_STEER,
        proposal_reject, .takes = hub_note_fields, .gives = hub_proposal_fields,
        .flags = HUB_CHANGE, .summary = "It does not."),
    { 0 },
};
/* clang-format on */
