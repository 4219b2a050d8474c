/*
 * The hub's agents: registering, heartbeats, modes, capabilities, checkpoints, and what people do
 * when they step in. A revoked agent that lives in one of our sandboxes (label agent=NAME) is
 * frozen there after the commit, before anybody hears of it.
 */
#include "api/hub_call.h"

#include "base/clock.h"
#include "base/log.h"
#include "box/boxes.h"

/* ---- GET after what heartbeats said is stored ---- */

struct settled {
    struct call *call;
    struct store_job job;
    route_fn read;
};

static int settled_run(struct store_job *job, struct db *db, struct err *err)
{
    struct settled *one = container_of(job, struct settled, job);

    one->call->db = db;
    int rc = one->read(one->call, err);
    one->call->db = NULL;
    return rc;
}

static void settled_done(struct store_job *job)
{
    call_finish(container_of(job, struct settled, job)->call, job->rc < 0 ? &job->err : NULL);
}

static void settled_go(void *ctx)
{
    struct settled *one = ctx;

    one->job = (struct store_job){ .run = settled_run, .done = settled_done };
    store_read(one->call->api->store, &one->job);
}

static int read_settled(struct call *call, route_fn read)
{
    struct settled *one = arena_new(&call->arena, struct settled);

    one->call = call;
    one->read = read;
    hub_settle(call->api->hub, settled_go, one);
    return 0;
}

static int agents_read(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);

    return hub_list_end(&list, hub_agents(&by, call_query(call, "status"), call_query(call, "type"),
                                          hub_put_item, &list, err));
}

static int agents_get(struct call *call, struct err *err)
{
    (void)err;
    return read_settled(call, agents_read);
}

static int agent_read(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_agent agent;

    return hub_agent_get(&by, call_param(call, "name"), &agent, err) < 0 ? -1
                                                                         : call_reply(call, &agent);
}

static int agent_get(struct call *call, struct err *err)
{
    (void)err;
    return read_settled(call, agent_read);
}

/* ---- coming and going ---- */

static void about_agent(struct call *call)
{
    call->object = arena_printf(&call->arena, "agent/%.200s", call_param(call, "name"));
}

static int register_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_register wish = { 0 };
    struct hub_agent agent;

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, wish.name, "type", wish.type, "autonomy_mode", wish.autonomy_mode, NULL);
    call->object = arena_printf(&call->arena, "agent/%s", wish.name);
    return hub_register(&by, &wish, &agent, err) < 0 ? -1 : call_reply(call, &agent);
}

static int unregister(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);

    hub_note(call, call_param(call, "name"), NULL);
    about_agent(call);
    if (hub_unregister(&by, call_param(call, "name"), err) < 0)
        return -1;
    return hub_ok(call);
}

/* On the loop: nothing is waited for. */
static int heartbeat_post(struct call *call, struct err *err)
{
    const char *name = call_param(call, "name");
    struct json_out json = call_json(call);
    struct hub_beat beat;

    if (call->who.role == ROLE_AGENT && strcmp(call->who.name, name) != 0 &&
        hub_known(call->api->hub, call->who.tenant, name))
        return err_set(err, ERR_FORBIDDEN, "%s may not act as %s", call->who.name, name);
    if (hub_heartbeat(call->api->hub, call->who.tenant, name, &beat, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "status", "ok");
    json_kv_int(&json, "checkpoint_tick", beat.tick);
    json_kv_bool(&json, "checkpoint_due", beat.due);
    json_kv_text(&json, "agent_status", beat.status);
    json_key(&json, "pending_revocation");
    if (beat.revocation) {
        json_open(&json, '{');
        json_kv_text(&json, "revocation_id", beat.revocation);
        json_kv_text(&json, "reason", beat.reason);
        json_kv_bool(&json, "flush_required", beat.flush);
        json_close(&json, '}');
    } else {
        json_put_null(&json);
    }
    json_close(&json, '}');
    return 0;
}

/*
 * People may step in before the agent registers: a live token with this name is registered on its
 * behalf. Whatever else is wrong with the name is said by the change that follows.
 */
static int stand_in(struct call *call, const struct hub_by *by, const char *name, struct err *err)
{
    struct hub_register wish = { .name = name };
    struct hub_agent agent;

    if (!(call->who.role & ROLE_STEER) || hub_agent_get(by, name, &agent, NULL) == 0)
        return 0;
    int rc = token_is_agent(call->db, call->who.tenant, name, err);
    return rc <= 0 ? rc : hub_register(by, &wish, &agent, err);
}

/* ---- modes ---- */

static int autonomy_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_mode_wish wish = { .mode = "fully_autonomous" };
    const char *name = call_param(call, "name");

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, name, "mode", wish.mode, NULL);
    about_agent(call);
    if (stand_in(call, &by, name, err) < 0 || hub_set_mode(&by, name, wish.mode, err) < 0)
        return -1;
    return hub_say(call, "name", name, "autonomy_mode", wish.mode, NULL);
}

static void put_names(struct json_out *json, const char *key, const char *const *names)
{
    json_key(json, key);
    json_open(json, '[');
    for (; *names; names++)
        json_put_str(json, str_of(*names));
    json_close(json, ']');
}

static int global_autonomy_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_mode_wish wish = { .mode = "fully_autonomous" };
    struct json_out json = call_json(call);
    const char **names;

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, HUB_HUMAN, "mode", wish.mode, "agent_type", wish.agent_type, NULL);
    if (hub_set_global_mode(&by, wish.mode, wish.agent_type, &names, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "mode", wish.mode);
    put_names(&json, "updated_agents", names);
    json_close(&json, '}');
    return 0;
}

static int global_autonomy_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *mode;

    if (hub_default_mode(&by, &mode, err) < 0)
        return -1;
    return hub_say(call, "default_mode", mode, NULL);
}

/* ---- capabilities ---- */

static int capabilities_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_tags_wish wish = { 0 };
    const char *name = call_param(call, "name"), **tags;
    struct json_out json = call_json(call);

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, name, "description", wish.description, NULL);
    about_agent(call);
    if (hub_set_tags(&by, name, &wish, &tags, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "name", name);
    put_names(&json, "tags", tags);
    json_close(&json, '}');
    return 0;
}

static int capabilities_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);

    return hub_list_end(&list, hub_profiles(&by, hub_put_item, &list, err));
}

static int match_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *tag = call_query(call, "tag"), **names;
    struct json_out json = call_json(call);

    if (!tag || !tag[0])
        return err_set(err, ERR_INVALID, "tag required");
    if (hub_match(&by, tag, &names, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "tag", tag);
    put_names(&json, "agents", names);
    json_close(&json, '}');
    return 0;
}

/* ---- sandboxes of an agent ---- */

static void changed(struct box_op *op, const struct err *err)
{
    if (err)
        log_warn("a sandbox of an agent was not frozen or thawed", kv_str("error", err->msg));
    free(op);
}

static bool is_of(const struct sandbox_view *view, const char *agent)
{
    for (const struct field_pair *label = view->labels; label && label->key; label++)
        if (strcmp(label->key, "agent") == 0 && strcmp(label->value, agent) == 0)
            return true;
    return false;
}

/* Freezes or thaws the sandboxes with the agent's label; writes their ids. */
static void boxes_of(struct call *call, const char *agent, const char *state,
                     int (*change)(struct box *, struct box_op *, struct err *),
                     struct json_out *json)
{
    struct boxes *boxes = call->api->boxes;
    struct box *box = NULL;

    while ((box = boxes_next(boxes, reach_all(call->who.tenant), box))) {
        struct sandbox_view view;
        struct err err = { 0 };

        box_view(box, &view);
        if (!is_of(&view, agent) || strcmp(view.state, state) != 0)
            continue;
        struct box_op *op = xnew(struct box_op);
        op->tenant = box_tenant(box);
        op->by = "hub";
        op->done = changed;
        if (change(box, op, &err) < 0)
            changed(op, &err);
        else
            json_put_str(json, str_of(view.id));
    }
}

static void thaw(struct call *call)
{
    autobuf struct buf ids = { 0 };
    struct json_out json = json_to(&ids);

    boxes_of(call, call_param(call, "name"), "paused", box_resume, &json);
}

/* ---- stepping in ---- */

static int pause_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *name = call_param(call, "name");
    struct hub_reason wish = { 0 };

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, HUB_HUMAN, "agent", name, "reason", wish.reason, NULL);
    about_agent(call);
    if (stand_in(call, &by, name, err) < 0 || hub_pause(&by, name, wish.reason, err) < 0)
        return -1;
    return hub_say(call, "name", name, "status", "busy", NULL);
}

static int resume_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *name = call_param(call, "name");

    hub_note(call, HUB_HUMAN, "agent", name, NULL);
    about_agent(call);
    if (hub_resume(&by, name, err) < 0)
        return -1;
    call->committed = thaw;
    return hub_say(call, "name", name, "status", "online", NULL);
}

static void put_revoked(struct call *call, bool committed)
{
    const struct hub_revocation *one = call->state;
    struct json_out json = call_json(call);
    char when[CLOCK_NAIVE_SIZE];

    clock_naive(one->issued_at, when);
    json_open(&json, '{');
    json_kv_text(&json, "revocation_id", one->id);
    json_kv_text(&json, "agent", one->agent);
    json_kv_text(&json, "issued_at", when);
    json_key(&json, "frozen");
    json_open(&json, '[');
    if (committed)
        boxes_of(call, one->agent, "running", box_pause, &json);
    json_close(&json, ']');
    json_close(&json, '}');
}

/* The answer again, with what it led to. */
static void freeze(struct call *call)
{
    buf_clear(&call->reply);
    put_revoked(call, true);
}

static int revoke_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *name = call_param(call, "name");
    struct hub_revocation *one = arena_new(&call->arena, struct hub_revocation);
    struct hub_reason wish = { .flush_required = true };

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, HUB_HUMAN, "agent", name, "reason", wish.reason, NULL);
    about_agent(call);
    if (stand_in(call, &by, name, err) < 0 || hub_revoke(&by, name, &wish, one, err) < 0)
        return -1;
    call->state = one;
    call->committed = freeze;
    put_revoked(call, false);
    return 0;
}

static int revocation_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct json_out json = call_json(call);
    struct hub_revocation one;
    bool pending;

    if (hub_revocation_get(&by, call_param(call, "name"), &pending, &one, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_bool(&json, "pending", pending);
    if (pending) {
        json_kv_text(&json, "revocation_id", one.id);
        json_kv_text(&json, "reason", one.reason);
        json_kv_bool(&json, "flush_required", one.flush_required);
    }
    json_close(&json, '}');
    return 0;
}

static int revocation_ack(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *name = call_param(call, "name");
    struct hub_ack wish = { 0 };

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, name, "revocation_id", wish.revocation_id, NULL);
    about_agent(call);
    int rc = hub_revocation_ack(&by, name, wish.revocation_id, err);
    if (rc < 0)
        return -1;
    if (rc > 0)
        call->committed = thaw;
    return hub_ok(call);
}

static int history_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);
    int64_t limit;

    if (hub_limit(call, 50, PAGE_MAX, &limit, err) < 0)
        return -1;
    return hub_list_end(&list, hub_revocations(&by, limit, hub_put_item, &list, err));
}

/* ---- checkpoints ---- */

static int checkpoint_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *name = call_param(call, "name");
    struct hub_checkpoint one = { 0 };
    struct json_out json = call_json(call);
    char when[CLOCK_NAIVE_SIZE];

    if (hub_take(call, &one, NULL, err) < 0)
        return -1;
    hub_note(call, name, "task_id", one.task_id, "state", one.state, NULL);
    about_agent(call);
    if (hub_checkpoint_put(&by, name, &one, err) < 0)
        return -1;
    clock_naive(one.timestamp, when);
    json_open(&json, '{');
    json_kv_text(&json, "id", one.id);
    json_kv_int(&json, "sequence", one.sequence);
    json_kv_text(&json, "timestamp", when);
    json_close(&json, '}');
    return 0;
}

static int checkpoint_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_checkpoint one;

    return hub_checkpoint_get(&by, call_param(call, "name"), &one, err) < 0
               ? -1
               : call_reply(call, &one);
}

/* ---- health, audit ---- */

static int ping(struct call *call, struct err *err)
{
    (void)err;
    return hub_ok(call);
}

/* A row in the words of the hub's own log. */
static void put_audit(void *ctx, const struct audit *row, const char *hash_hex)
{
    autoarena struct arena arena = { 0 };
    struct json_out *json = ctx;
    struct json *detail = NULL;
    char when[CLOCK_NAIVE_SIZE];

    (void)hash_hex;
    if (json_parse(&arena, str_of(row->detail), &detail, NULL) < 0)
        detail = NULL;
    const struct json *about = json_get(detail, "about"), *said = about ? about : detail;
    const struct json *details = json_get(said, "details");
    struct str agent = json_text(said, "agent");
    clock_naive(row->at_ms, when);
    json_open(json, '{');
    json_kv_text(json, "timestamp", when);
    json_kv_str(json, "agent", agent.p ? agent : str_of(row->actor));
    json_kv_text(json, "action", row->action + strlen("hub."));
    json_key(json, "details");
    if (details)
        json_put(json, details);
    else
        json_put_raw(json, STR("{}"));
    json_kv_text(json, "outcome", row->outcome);
    if (json_text(detail, "message").p)
        json_kv_str(json, "error", json_text(detail, "message"));
    json_close(json, '}');
}

static int audit_log_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    int64_t limit;

    if (hub_limit(call, 100, PAGE_MAX, &limit, err) < 0)
        return -1;
    json_open(&json, '[');
    if (audit_list_hub(call->db, call->who.tenant, limit ? (unsigned)limit : PAGE_MAX, put_audit,
                       &json, err) < 0)
        return -1;
    json_close(&json, ']');
    return 0;
}

#define AGENT(name_, method_, path_, on_, roles_, fn_, ...)                                        \
    {                                                                                              \
        .name = "hub." name_, .method = method_, .path = path_, .on = on_, .roles = roles_,        \
        .fn = fn_, .surface = SURFACE_HUB, __VA_ARGS__                                             \
    }

/* clang-format off */
const struct route hub_agent_routes[] = {
    AGENT("ping", "GET", "/ping", ON_LOOP, ROLE_PUBLIC, ping, .flags = ROUTE_NO_RATE,
        .summary = "Is the hub there?"),
    AGENT("ping", "POST", "/ping", ON_LOOP, ROLE_PUBLIC, ping, .takes = hub_nothing,
        .flags = ROUTE_NO_RATE | ROUTE_LOOSE,
        .summary = "The same."),
    AGENT("register", "POST", "/agents/register", ON_WRITER, ROLE_USE, register_post,
        .takes = hub_register_fields, .gives = hub_registered_fields,
        .flags = ROUTE_CREATES | HUB_CHANGE,
        .summary = "Register an agent, or the same one again; an agent registers itself."),
    AGENT("list_agents", "GET", "/agents", ON_LATER, ROLE_LOOK, agents_get,
        .items = hub_agent_fields, .query = "status:string,type:string", .flags = ROUTE_BARE,
        .summary = "Agents in the order they came; those with a `status`, of a `type`."),
    AGENT("read_agent", "GET", "/agents/{name}", ON_LATER, ROLE_LOOK, agent_get,
        .gives = hub_agent_fields, .summary = "One of them."),
    AGENT("unregister", "DELETE", "/agents/{name}", ON_WRITER, ROLE_USE, unregister,
        .takes = hub_nothing, .flags = HUB_CHANGE,
        .summary = "Forget an agent; its messages and tasks stay."),
    AGENT("heartbeat", "POST", "/agents/{name}/heartbeat", ON_LOOP, ROLE_USE, heartbeat_post,
        .takes = hub_nothing, .flags = ROUTE_LOOSE,
        .summary = "An agent is alive. The answer says when a checkpoint is due, and whether it was "
                   "revoked."),
    AGENT("set_autonomy", "POST", "/agents/{name}/autonomy", ON_WRITER, ROLE_USE, autonomy_post,
        .takes = hub_mode_fields, .flags = HUB_CHANGE,
        .summary = "What an agent may do by itself; an agent only lowers its own."),
    AGENT("set_capabilities", "POST", "/agents/{name}/capabilities", ON_WRITER, ROLE_USE,
        capabilities_post, .takes = hub_tags_fields, .flags = HUB_CHANGE,
        .summary = "What an agent can do."),
    AGENT("pause_agent", "POST", "/agents/{name}/pause", ON_WRITER, ROLE_STEER, pause_post,
        .takes = hub_reason_fields, .flags = HUB_CHANGE,
        .summary = "Its claims, moves and messages are refused from now on."),
    AGENT("resume_agent", "POST", "/agents/{name}/resume", ON_WRITER, ROLE_STEER, resume_post,
        .takes = hub_nothing, .flags = HUB_CHANGE,
        .summary = "Lift a pause, and withdraw a revocation."),
    AGENT("revoke_agent", "POST", "/agents/{name}/revoke", ON_WRITER, ROLE_STEER, revoke_post,
        .takes = hub_revoke_fields, .flags = HUB_CHANGE,
        .summary = "Tell an agent to stop. It is refused like a paused one until it acknowledges; "
                   "sandboxes with the label agent=NAME are frozen, and its leases end."),
    AGENT("read_revocation", "GET", "/agents/{name}/revocation", ON_READER, ROLE_LOOK,
        revocation_get, .summary = "Whether one waits to be acknowledged."),
    AGENT("revocation_acknowledged", "POST", "/agents/{name}/revocation/ack", ON_WRITER, ROLE_USE,
        revocation_ack, .takes = hub_ack_fields, .flags = HUB_CHANGE,
        .summary = "The agent has stopped, and may go on."),
    AGENT("list_revocations", "GET", "/revocation/history", ON_READER, ROLE_LOOK, history_get,
        .items = hub_revocation_fields, .query = "limit:int", .flags = ROUTE_BARE,
        .summary = "Revocations from their issue on, oldest first; the newest `limit`."),
    AGENT("checkpoint", "POST", "/agents/{name}/checkpoint", ON_WRITER, ROLE_USE, checkpoint_post,
        .takes = hub_checkpoint_wish_fields, .flags = HUB_CHANGE,
        .summary = "Where an agent is with its work."),
    AGENT("read_checkpoint", "GET", "/agents/{name}/checkpoint", ON_READER, ROLE_LOOK,
        checkpoint_get, .gives = hub_checkpoint_fields, .summary = "The newest one."),
    AGENT("list_capabilities", "GET", "/capabilities", ON_READER, ROLE_LOOK, capabilities_get,
        .items = hub_profile_fields, .flags = ROUTE_BARE, .summary = "What every agent can do."),
    AGENT("match_capability", "GET", "/capabilities/match", ON_READER, ROLE_LOOK, match_get,
        .query = "tag:string", .summary = "Who can do `tag`."),
    AGENT("global_autonomy", "POST", "/autonomy/set-mode", ON_WRITER, ROLE_STEER,
        global_autonomy_post, .takes = hub_global_mode_fields, .flags = HUB_CHANGE,
        .summary = "The mode of all agents, or of a type of them; without a type also of those that "
                   "register later."),
    AGENT("read_autonomy", "GET", "/autonomy", ON_READER, ROLE_LOOK, global_autonomy_get,
        .summary = "The mode of agents that register."),
    AGENT("read_audit", "GET", "/audit/log", ON_READER, ROLE_STEER, audit_log_get,
        .query = "limit:int",
        .summary = "What was done and refused here, oldest first; the newest `limit`."),
    { 0 },
};
/* clang-format on */
