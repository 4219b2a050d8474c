/*
 * Sessions of linked agents by requests: their commands, in the words of agentic. They have no
 * screen here, so what watches one (the socket's attach_session, or command.output by position)
 * gets its bytes.
 */
#include "api/session_link.h"

#include "api/tap.h"
#include "base/clock.h"

bool session_linked(struct call *call, struct linked **out)
{
    return links_find(call->api->links, call_reach(call), call_param(call, "id"), out, NULL) == 0;
}

/* ---- looking ---- */

static const char *name_of(const struct command_view *view)
{
    return view->session_name ? view->session_name : view->command_id;
}

static void put_session(struct json_out *json, const struct command_view *view)
{
    json_open(json, '{');
    json_kv_text(json, "session_id", view->command_id);
    json_kv_text(json, "command_id", view->command_id);
    json_kv_text(json, "session_name", name_of(view));
    json_kv_text(json, "session_type", session_type(view->pty, view->background));
    json_kv_text(json, "command", view->command);
    json_kv_int(json, "created_at_secs", (clock_wall_ms() - view->started_at) / 1000);
    json_kv_bool(json, "has_screen", false);
    json_close(json, '}');
}

int session_link_list(struct call *call, const struct linked *agent)
{
    struct json_out json = call_json(call);

    json_open(&json, '{');
    json_kv_text(&json, "agent_id", call_param(call, "id"));
    json_key(&json, "sessions");
    json_open(&json, '[');
    for (struct link_command *command = NULL; (command = linked_next(agent, command));) {
        struct command_view view;

        command_view(command, &view);
        if (!command_ended(command))
            put_session(&json, &view);
    }
    json_close(&json, ']');
    json_close(&json, '}');
    return 0;
}

/* They are replayed by position, not by frames, so of frames there are none. */
static void put_registered(struct json_out *json, const struct link_command *command)
{
    static const char *const empty[] = { "controllers", "observers" };
    static const char *const none[] = { "replay_len", "replay_max_frames",
                                        "replay_evicted_frames_total", "max_client_lag" };
    struct command_view view;
    uint64_t begin, end;

    command_view(command, &view);
    command_range(command, 0, &begin, &end);
    json_open(json, '{');
    json_kv_text(json, "session_id", view.command_id);
    json_kv_text(json, "agent_id", view.agent_id);
    json_kv_text(json, "command_id", view.command_id);
    json_kv_text(json, "name", name_of(&view));
    json_kv_int(json, "attachment_count", 0);
    for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
        json_key(json, empty[i]);
        json_put_raw(json, STR("[]"));
    }
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        json_kv_int(json, none[i], 0);
    json_kv_int(json, "replay_total_bytes", (int64_t)(end - begin));
    json_kv_int(json, "replay_max_bytes", SPOOL_RING);
    json_kv_int(json, "replay_evicted_bytes_total", (int64_t)begin);
    json_close(json, '}');
}

void session_link_terminals(struct call *call, struct json_out *json)
{
    struct linked *agent = NULL;

    while ((agent = links_next(call->api->links, call_reach(call), agent)))
        for (struct link_command *command = NULL; (command = linked_next(agent, command));) {
            struct command_view view;

            command_view(command, &view);
            if (view.pty && !command_ended(command))
                put_registered(json, command);
        }
}

/* ---- starting ---- */

struct starting {
    struct link_op op;
    struct call *call;
};

static void start_prepare(struct link_op *op)
{
    struct call *call = container_of(op, struct starting, op)->call;
    struct json_out json;
    struct command_view view;
    struct linked *agent;
    struct agent_view whose = { 0 };

    buf_clear(&call->reply);
    json = call_json(call);
    command_view(op->command, &view);
    if (session_linked(call, &agent))
        linked_view(agent, &whose);
    json_open(&json, '{');
    json_kv_text(&json, "session_id", view.command_id);
    json_kv_text(&json, "instance_id", whose.instance_id);
    json_kv_text(&json, "command_id", view.command_id);
    json_kv_text(&json, "session_name", name_of(&view));
    json_kv_text(&json, "ws_endpoint", session_ws_endpoint(call));
    json_key(&json, "join_message");
    json_open(&json, '{');
    json_kv_text(&json, "type", "attach_session");
    json_kv_text(&json, "agent_id", view.agent_id);
    json_kv_text(&json, "session_name", name_of(&view));
    json_close(&json, '}');
    json_kv_text(&json, "default_role", "controller");
    json_kv_text(&json, "controller_policy", "shared");
    json_close(&json, '}');
    call->status = 200;
    call->object = arena_printf(&call->arena, "agent/%s", view.agent_id);
}

static int start_record(struct link_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct starting, op)->call, db, err);
}

static void start_done(struct link_op *op, const struct err *err)
{
    call_finish(container_of(op, struct starting, op)->call, err);
}

int session_link_post(struct call *call, struct linked *agent, struct command_wish *wish,
                      struct err *err)
{
    struct starting *starting = arena_new(&call->arena, struct starting);

    if (link_check_wish(wish, err) < 0)
        return -1;
    if (link_named(agent, wish->session_name))
        return err_set(err, ERR_CONFLICT, "session '%.64s' exists", wish->session_name);
    starting->call = call;
    starting->op = (struct link_op){ .tenant = call->who.tenant,
                                     .by = call->who.id,
                                     .prepare = start_prepare,
                                     .record = start_record,
                                     .done = start_done };
    return linked_run(agent, wish, &starting->op, err);
}

/* ---- signals ---- */

struct recording {
    struct store_job job;
    struct call *call;
};

static int record_run(struct store_job *job, struct db *db, struct err *err)
{
    return call_record(container_of(job, struct recording, job)->call, db, err);
}

static void record_done(struct store_job *job)
{
    call_finish(container_of(job, struct recording, job)->call, job->rc < 0 ? &job->err : NULL);
}

/* Sent; the answer is there when it is on record. */
static int signal_and_record(struct call *call, struct link_command *command, int number,
                             struct err *err)
{
    struct recording *recording = arena_new(&call->arena, struct recording);
    struct command_view view;

    if (command_signal(command, number, err) < 0)
        return -1;
    command_view(command, &view);
    call->object = arena_printf(&call->arena, "agent/%s", view.agent_id);
    call->detail =
        arena_printf(&call->arena, "{\"command\":\"%s\",\"signal\":%d}", view.command_id, number);
    recording->call = call;
    recording->job = (struct store_job){ .run = record_run, .done = record_done };
    store_write(call->api->store, &recording->job);
    return 0;
}

int session_link_delete(struct call *call, const struct linked *agent, struct err *err)
{
    const char *name = call_param(call, "name");
    struct link_command *command = link_named(agent, name);
    struct command_view view;

    if (!command)
        return err_set(err, ERR_NOT_FOUND, "Session '%.64s' not found", name);
    command_view(command, &view);
    call->status = 204;
    return signal_and_record(call, command, view.pty ? 9 : 15, err);
}

struct link_command *session_link_find(struct call *call, const char *id)
{
    struct link_command *command;
    struct linked *agent = NULL;

    while ((agent = links_next(call->api->links, call_reach(call), agent)))
        if (linked_command(agent, id, &command, NULL) == 0 && !command_ended(command))
            return command;
    return NULL;
}

int session_link_signal(struct call *call, struct link_command *command, int number,
                        struct err *err)
{
    struct json_out json = call_json(call);
    struct command_view view;

    command_view(command, &view);
    json_open(&json, '{');
    json_kv_text(&json, "session_id", view.command_id);
    json_kv_int(&json, "signal", number);
    json_kv_text(&json, "status", "signaled");
    json_close(&json, '}');
    return signal_and_record(call, command, number, err);
}
