/*
 * Proposals: what an advisory agent would claim or move, as asks in the one inbox that people have.
 * An ask is decided once, by an operator; what it allows happens within the same job, so an
 * approval that can no longer be carried out is no approval.
 */
#include "hub/own.h"

#include "base/hash.h"
#include "gate/gate.h"

static const char *action_of(const struct hub_by *by, const struct hub_task *task,
                             const struct hub_step *step, const struct hub_patch *wish)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);

    json_open(&json, '{');
    json_kv_text(&json, "do", wish ? HUB_ASK_MOVE : HUB_ASK_CLAIM);
    json_kv_text(&json, "agent", step->agent);
    json_kv_text(&json, "project", task->project_id);
    json_kv_text(&json, "task", task->id);
    json_kv_text(&json, "title", task->title);
    if (wish) {
        json_kv_text(&json, "from", task->status);
        json_kv_text(&json, "status", step->to);
        if (wish->note)
            json_kv_text(&json, "note", wish->note);
        if (wish->blocked_reason)
            json_kv_text(&json, "blocked_reason", wish->blocked_reason);
        if (wish->blocked_by) {
            json_key(&json, "blocked_by");
            json_put_raw(&json, str_of(hub_json_text(by, wish->blocked_by)));
        }
    }
    json_close(&json, '}');
    return arena_memdup0(by->arena, text.data, text.len);
}

static const char *state_of(const char *state)
{
    return strcmp(state, "allowed") == 0  ? "approved"
           : strcmp(state, "denied") == 0 ? "rejected"
                                          : state;
}

static const char *text_of(const struct hub_by *by, const struct json *action, const char *key)
{
    struct str text = json_text(action, key);

    return arena_memdup0(by->arena, text.p ? text.p : "", text.n);
}

static void take_ask(const struct hub_by *by, const struct ask_row *row, struct hub_proposal *out)
{
    const struct json *action = hub_json(by, str_of(row->action));
    bool over = strcmp(row->state, "pending") == 0 && row->expires_ms <= by->now_ms;

    *out = (struct hub_proposal){
        .id = arena_strdup(by->arena, row->id),
        .state = over ? "expired" : state_of(arena_strdup(by->arena, row->state)),
        .agent = text_of(by, action, "agent"),
        .project = text_of(by, action, "project"),
        .task_id = text_of(by, action, "task"),
        .title = text_of(by, action, "title"),
        .status = hub_or_null(text_of(by, action, "status")),
        .by = row->by && row->by[0] ? arena_strdup(by->arena, row->by) : NULL,
        .note = row->note && row->note[0] ? arena_strdup(by->arena, row->note) : NULL,
        .created_at = row->created_ms,
        .expires_at = row->expires_ms,
        .decided_at = row->decided_ms
    };
}

struct search {
    const struct hub_by *by;
    const char *hash, *agent; /* what is looked for; whose are counted */
    struct hub_proposal *same;
    bool found;
    size_t count;
};

static void look(void *ctx, const struct ask_row *row)
{
    struct search *search = ctx;
    struct hub_proposal one;

    if (!hub_ask_is(row->kind) || row->expires_ms <= search->by->now_ms)
        return;
    take_ask(search->by, row, &one);
    search->count += strcmp(one.agent, search->agent) == 0;
    if (strcmp(row->hash, search->hash) == 0) {
        *search->same = one;
        search->found = true;
    }
}

int hub_propose(const struct hub_by *by, const struct hub_task *task, const struct hub_step *step,
                const struct hub_patch *wish, struct hub_proposal *out, struct err *err)
{
    const char *agent = step->agent;
    unsigned char digest[SHA256_SIZE];
    char *hash = arena_alloc(by->arena, SHA256_HEX_SIZE), *id = arena_alloc(by->arena, ID_SIZE);
    struct ask_row row = { .id = id,
                           .tenant = by->tenant,
                           .kind = wish ? HUB_ASK_MOVE : HUB_ASK_CLAIM,
                           .sandbox = "",
                           .action = action_of(by, task, step, wish),
                           .hash = hash,
                           .state = "pending",
                           .created_ms = by->now_ms,
                           .expires_ms = by->now_ms + HUB_PROPOSAL_MS };
    struct search search = { .by = by, .hash = hash, .agent = agent, .same = out };

    sha256(row.action, strlen(row.action), digest);
    hex_text(digest, sizeof(digest), hash);
    if (ask_each(by->db, by->tenant, "pending", NULL, ASKS_KEPT_MAX, look, &search, err) < 0)
        return -1;
    if (search.found)
        return 0;
    if (search.count >= ASKS_PENDING_MAX)
        return err_set(err, ERR_CONFLICT, "%s has %d proposals that nobody decided", agent,
                       ASKS_PENDING_MAX);
    id_make(id, "ask");
    if (ask_add(by->db, &row, err) < 0)
        return -1;
    take_ask(by, &row, out);
    return hub_tell(by, "proposal_created", hub_project_object(by, task->project_id, task->id), err,
                    "id", id, "project", task->project_id, "task_id", task->id, "agent", agent,
                    "by", NULL, NULL);
}

/* ---- reading ---- */

struct list_wish {
    const struct hub_by *by;
    const char *state, *agent, *project;
    hub_item_fn *fn;
    void *ctx;
};

static void pass(void *ctx, const struct ask_row *row)
{
    const struct list_wish *wish = ctx;
    struct hub_proposal one;

    if (!hub_ask_is(row->kind))
        return;
    take_ask(wish->by, row, &one);
    if ((wish->by->agent && strcmp(wish->by->agent, one.agent) != 0) ||
        (wish->state && strcmp(wish->state, one.state) != 0) ||
        (wish->agent && strcmp(wish->agent, one.agent) != 0) ||
        (wish->project && strcmp(wish->project, one.project) != 0))
        return;
    wish->fn(wish->ctx, &one);
}

int hub_proposals(const struct hub_by *by, const char *state, const char *agent,
                  const char *project, hub_item_fn *fn, void *ctx, struct err *err)
{
    struct list_wish wish = { by, state, agent, project, fn, ctx };

    return ask_each(by->db, by->tenant, NULL, NULL, 2 * ASKS_KEPT_MAX, pass, &wish, err);
}

int hub_proposal_get(const struct hub_by *by, const char *id, struct hub_proposal *out,
                     struct err *err)
{
    struct ask_row row;

    if (ask_read(by->db, by->tenant, id, by->arena, &row, err) < 0)
        return err->code == ERR_NOT_FOUND ? err_set(err, ERR_NOT_FOUND, "proposal not found") : -1;
    if (!hub_ask_is(row.kind))
        return err_set(err, ERR_NOT_FOUND, "proposal not found");
    take_ask(by, &row, out);
    if (by->agent && strcmp(by->agent, out->agent) != 0)
        return err_set(err, ERR_FORBIDDEN, "the proposal is not %s's", by->agent);
    return 0;
}

/* ---- deciding ---- */

static int carry_out(const struct hub_by *by, const struct json *action, const char *agent,
                     struct err *err)
{
    const struct json *blocked_by = json_get(action, "blocked_by");
    const struct hub_patch wish = { .note = text_of(by, action, "note"),
                                    .blocked_reason = text_of(by, action, "blocked_reason"),
                                    .blocked_by = blocked_by };
    const char *to = hub_or_null(text_of(by, action, "status"));
    struct hub_step step = { .way = to ? HUB_MOVES : HUB_CLAIMS,
                             .agent = agent,
                             .holder = agent,
                             .to = to,
                             .from = to ? text_of(by, action, "from") : NULL };

    return hub_step_approved(by, text_of(by, action, "project"), text_of(by, action, "task"), &step,
                             &wish, err);
}

int hub_decided(const struct hub_by *by, const char *id, const char *action, bool allow,
                struct err *err)
{
    const struct json *json = hub_json(by, str_of(action));
    const char *project = text_of(by, json, "project"), *task = text_of(by, json, "task");
    const char *agent = text_of(by, json, "agent");

    if (allow && carry_out(by, json, agent, err) < 0)
        return -1;
    return hub_tell(by, allow ? "proposal_approved" : "proposal_rejected",
                    hub_project_object(by, project, task), err, "id", id, "project", project,
                    "task_id", task, "agent", agent, "by", by->actor, NULL);
}

int hub_expired(struct db *db, const struct ask_row *row, struct err *err)
{
    autoarena struct arena arena = { 0 };
    const struct hub_by by = { .db = db, .arena = &arena, .tenant = row->tenant };

    if (!hub_ask_is(row->kind))
        return 0;
    const struct json *json = hub_json(&by, str_of(row->action));
    const char *project = text_of(&by, json, "project"), *task = text_of(&by, json, "task");
    return hub_tell(&by, "proposal_expired", hub_project_object(&by, project, task), err, "id",
                    row->id, "project", project, "task_id", task, "agent",
                    text_of(&by, json, "agent"), "by", NULL, NULL);
}
