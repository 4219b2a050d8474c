/*
 * Agents as agentic knows them: those that are linked from elsewhere and sandboxes (api/target.h),
 * and their commands, whose output is read by position.
 */
#include <stdio.h>

#include "api/exec.h"
#include "api/operation.h"
#include "api/target.h"
#include "api/vm.h"
#include "auth/vault.h"
#include "base/clock.h"
#include "base/hash.h"
#include "box/boxes.h"
#include "link/links.h"
#include "model/sandbox.h"

#define OUTPUT_MAX 262144 /* bytes in one answer */

static struct links *links_of(const struct call *call)
{
    return call->api->links;
}

/* ---- looking ---- */

static void put_target(struct json_out *json, const struct target *target)
{
    struct agent_view view;

    target_view(target, &view);
    agent_put(json, &view);
}

static int agent_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct target at = { 0 };

    (void)err;
    json_open_list(&json, "agents");
    while (target_next(call->api, call_reach(call), &at))
        put_target(&json, &at);
    json_close_list(&json);
    return 0;
}

/* Finds the agent among those that the list shows to the caller. */
static int call_shown(struct call *call, struct target *out, struct err *err)
{
    if (call_target(call, out, err) < 0)
        return -1;
    if (out->linked && !linked_shown(out->linked))
        return err_set(err, ERR_NOT_FOUND, "Agent '%.63s' not found", call_param(call, "id"));
    return 0;
}

static int agent_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct target target;

    if (call_shown(call, &target, err) < 0)
        return -1;
    put_target(&json, &target);
    return 0;
}

/* ---- changing ---- */

static int change(struct call *call, const struct vm_change *wish, struct err *err)
{
    struct target target;

    if (call_target(call, &target, err) < 0)
        return -1;
    if (target.linked)
        return err_set(err, ERR_UNSUPPORTED,
                       "Agent '%.63s' runs elsewhere: it is started and stopped there",
                       call_param(call, "id"));
    return vm_change(call, target.box, wish, err);
}

static int agent_start(struct call *call, struct err *err)
{
    return change(call, &vm_starting, err);
}

static int agent_stop(struct call *call, struct err *err)
{
    return change(call,
                  &(struct vm_change){ .state = "shutdown",
                                       .already = "VM is already stopped",
                                       .event = "vm.shutdown",
                                       .reason = "shutdown",
                                       .gentle_ms = VM_STOP_MS,
                                       .fn = box_stop },
                  err);
}

static int agent_destroy(struct call *call, struct err *err)
{
    return change(call, &vm_destroying, err);
}

/* A linked agent exists as long as it has a secret. Its machine is not ours to touch. */
struct removal {
    struct store_job job;
    struct call *call;
    const char *id;
    const char *body; /* of the event, with the access of the agent that was removed */
    struct secret_row row;
};

static int removal_run(struct store_job *job, struct db *db, struct err *err)
{
    struct removal *removal = container_of(job, struct removal, job);
    struct call *call = removal->call;

    if (secret_delete(db, call->who.tenant, removal->id, &removal->row, err) < 0 ||
        event_add(db, call->who.tenant, "agent.removed", call->object, str_of(removal->body), err) <
            0)
        return -1;
    return call_record(call, db, err);
}

static void removal_done(struct store_job *job)
{
    struct removal *removal = container_of(job, struct removal, job);

    if (job->rc >= 0)
        links_secret_gone(links_of(removal->call), removal->id);
    call_finish(removal->call, job->rc < 0 ? &job->err : NULL);
}

static const char *removal_body(struct arena *arena, const struct linked *agent)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);
    struct agent_view view;

    linked_view(agent, &view);
    json_open(&json, '{');
    access_put(&json, &view.access, NULL);
    json_close(&json, '}');
    return arena_memdup0(arena, text.data, text.len);
}

static int remove_linked(struct call *call, const struct linked *agent, bool force, struct err *err)
{
    struct removal *removal = arena_new(&call->arena, struct removal);
    struct json_out json = call_json(call);

    removal->call = call;
    removal->id = call_param(call, "id");
    if (linked_connected(agent) && !force)
        return err_set(err, ERR_CONFLICT, "Agent '%.63s' is connected; force=true removes it",
                       removal->id);
    call->object = arena_printf(&call->arena, "agent/%s", removal->id);
    removal->body = removal_body(&call->arena, agent);
    json_open(&json, '{');
    json_kv_bool(&json, "deleted", true);
    json_kv_text(&json, "name", removal->id);
    json_kv_bool(&json, "disk_deleted", false);
    json_close(&json, '}');
    removal->job = (struct store_job){ .run = removal_run, .done = removal_done };
    store_write(call->api->store, &removal->job);
    return 0;
}

static int agent_delete(struct call *call, struct err *err)
{
    const char *said = call_query(call, "force");
    bool force = !said || strcmp(said, "false") != 0; /* true is the default here */
    struct target target;
    struct vm_change wish;

    if (call_shown(call, &target, err) < 0 || vm_deleting(call, force, &wish, err) < 0)
        return -1;
    return target.linked ? remove_linked(call, target.linked, force, err)
                         : vm_change(call, target.box, &wish, err);
}

/* ---- another secret ---- */

/* Of one that is there to be told; another would never learn what is expected of it. */
struct rotation {
    struct store_job job;
    struct call *call;
    struct operation operation;
    int64_t until_ms;
    struct secret_row row;
    char plain[AGENT_SECRET_SIZE];
};

static int rotate_run(struct store_job *job, struct db *db, struct err *err)
{
    struct rotation *rotation = container_of(job, struct rotation, job);
    struct call *call = rotation->call;

    if (agent_secret_rotate(db, call->who.tenant, rotation->operation.target, rotation->until_ms,
                            &rotation->row, rotation->plain, err) < 0 ||
        operation_add(db, &rotation->operation, err) < 0 ||
        event_add(db, call->who.tenant, "secret.rotated", call->object, STR("{}"), err) < 0)
        return -1;
    return call_record(call, db, err);
}

static void rotate_done(struct store_job *job)
{
    struct rotation *rotation = container_of(job, struct rotation, job);
    struct call *call = rotation->call;
    struct linked *agent;

    if (job->rc >= 0) {
        links_secret(links_of(call), &rotation->row);
        if (links_find(links_of(call), call_reach(call), rotation->row.name, &agent, NULL) == 0)
            linked_tell_secret(agent, rotation->plain);
    }
    explicit_bzero(rotation->plain, sizeof(rotation->plain));
    call_finish(call, job->rc < 0 ? &job->err : NULL);
}

static int agent_rotate(struct call *call, struct err *err)
{
    struct rotation *rotation = arena_new(&call->arena, struct rotation);
    struct json_out json = call_json(call);
    const char *id = call_param(call, "id");
    struct linked *agent;
    int64_t grace;

    if (call_query_int(call, "grace_seconds", 1, SECRET_GRACE_MAX_S, SECRET_GRACE_DEFAULT_S, &grace,
                       err) < 0)
        return -1;
    if (links_find(links_of(call), call_reach(call), id, &agent, NULL) < 0 ||
        !linked_connected(agent))
        return err_set(err, ERR_NOT_FOUND, "Agent '%.63s' is not connected", id);
    rotation->call = call;
    rotation->until_ms = clock_wall_ms() + grace * 1000;
    rotation->operation = operation_new(call, "secret_rotation", id);
    rotation->operation.completed_ms = rotation->operation.created_ms; /* it is told at once */
    rotation->job = (struct store_job){ .run = rotate_run, .done = rotate_done };
    call->object = arena_printf(&call->arena, "agent/%s", id);
    call->status = 202;
    json_open(&json, '{');
    json_kv_text(&json, "operation_id", rotation->operation.id);
    json_kv_text(&json, "status", "accepted");
    json_kv_int(&json, "deadline_ms", rotation->until_ms);
    json_kv_int(&json, "grace_seconds", grace);
    json_close(&json, '}');
    store_write(call->api->store, &rotation->job);
    return 0;
}

/* ---- who reaches it ---- */

static const struct field agent_access_fields[] = {
    FIELD(agent_view, id, F_STRING, F_READONLY, .help = "The agent"),
    ACCESS_FIELDS(agent_view, F_READONLY),
    { 0 },
};

static void given(struct call *call)
{
    links_give((struct links *)links_of(call), call_param(call, "id"), call->state);
}

static int agent_patch(struct call *call, struct err *err)
{
    struct access_wish *wish = arena_new(&call->arena, struct access_wish);
    const char *id = call_param(call, "id");
    uint64_t present = 0;

    if (call_decode_patch(call, wish, &present, err) < 0 ||
        link_access_write(call->db, call->who.tenant, id, &wish->access, present, &call->arena,
                          err) < 0)
        return -1;
    struct agent_view view = { .id = id, .access = access_shown(&wish->access, NULL) };
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "agent/%s", id);
    call->detail = access_text(&call->arena, &wish->access);
    call->state = &wish->access;
    call->committed = given;
    return 0;
}

/* ---- commands ---- */

struct running_call {
    struct target_run run;
    struct timer timer;
    struct call *call;
    struct printed command; /* waited for */
    int64_t wait_ms;
};

static void put_command(struct call *call, const struct printed *command)
{
    struct command_view view;

    target_command_view(command, &call->arena, &view);
    buf_clear(&call->reply);
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, command->linked ? "agent/%s" : "exec/%s",
                                command->linked ? view.agent_id : view.command_id);
}

static void run_prepare(struct target_run *run)
{
    put_command(container_of(run, struct running_call, run)->call, &run->command);
}

static int run_record(struct target_run *run, struct db *db, struct err *err)
{
    return call_record(container_of(run, struct running_call, run)->call, db, err);
}

static void wait_over(struct running_call *run)
{
    timer_cancel(run->call->api->loop, &run->timer);
    printed_unfollow(&run->command);
    put_command(run->call, &run->command);
    call_finish(run->call, NULL);
}

static void wait_more(struct printed *printed)
{
    struct running_call *run = container_of(printed, struct running_call, command);

    if (printed_ended(&run->command) || printed_held(&run->command))
        wait_over(run);
}

static void wait_gone(struct printed *printed)
{
    struct running_call *run = container_of(printed, struct running_call, command);
    struct err why = { 0 };

    timer_cancel(run->call->api->loop, &run->timer);
    err_set(&why, ERR_UNAVAILABLE, "the command was deleted, or the server is about to stop");
    call_finish(run->call, &why);
}

static void wait_timer(struct timer *timer)
{
    wait_over(container_of(timer, struct running_call, timer));
}

static void wait_for(struct running_call *run, const struct printed *command)
{
    run->command = (struct printed){ .exec = command->exec,
                                     .linked = command->linked,
                                     .more = wait_more,
                                     .gone = wait_gone,
                                     .till_held = true };
    if (printed_ended(&run->command)) {
        put_command(run->call, &run->command);
        call_finish(run->call, NULL);
        return;
    }
    run->timer.fn = wait_timer;
    printed_follow(&run->command, (const uint64_t[INIT_STREAMS]){ 0 });
    timer_set(run->call->api->loop, &run->timer, run->wait_ms);
}

static void run_done(struct target_run *target_run, const struct err *err)
{
    struct running_call *run = container_of(target_run, struct running_call, run);
    const struct printed *command = &target_run->command;

    if (err || !run->wait_ms || !(command->linked || command->exec))
        call_finish(run->call, err);
    else
        wait_for(run, command);
}

static int command_post(struct call *call, struct err *err)
{
    struct running_call *run = arena_new(&call->arena, struct running_call);
    struct command_wish *wish = arena_new(&call->arena, struct command_wish);
    struct target target;

    run->call = call;
    if (call_target(call, &target, err) < 0 || call_decode(call, wish, err) < 0 ||
        command_wish_settle(wish, err) < 0 ||
        call_query_int(call, "wait", 0, EXEC_WAIT_MAX_MS, 0, &run->wait_ms, err) < 0)
        return -1;
    run->run = (struct target_run){ .tenant = call->who.tenant,
                                    .by = call->who.id,
                                    .prepare = run_prepare,
                                    .record = run_record,
                                    .done = run_done };
    return target_run(&target, wish, &call->arena, &run->run, err);
}

static int call_command(struct call *call, struct printed *out, struct err *err)
{
    struct target target;

    if (call_target(call, &target, err) < 0)
        return -1;
    return target_command(&target, call_param(call, "cid"), out, err);
}

static int command_get(struct call *call, struct err *err)
{
    struct running_call *run = arena_new(&call->arena, struct running_call);
    struct printed command;

    run->call = call;
    if (call_command(call, &command, err) < 0 ||
        call_query_int(call, "wait", 0, EXEC_WAIT_MAX_MS, 0, &run->wait_ms, err) < 0)
        return -1;
    if (run->wait_ms) {
        wait_for(run, &command);
        return 0;
    }
    put_command(call, &command);
    call_finish(call, NULL);
    return 0;
}

static int command_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct printed command = { 0 };
    struct target target;

    if (call_target(call, &target, err) < 0)
        return -1;
    json_open_list(&json, "items");
    while (target_command_next(&target, &command)) {
        struct command_view view;

        target_command_view(&command, &call->arena, &view);
        field_encode(command_fields, &view, &json);
    }
    json_close_list(&json);
    return 0;
}

static int bytes_get(struct call *call, struct err *err)
{
    const char *stream = call_query(call, "stream");
    struct printed command;
    struct command_view view;
    int64_t from;
    char text[32];

    if (call_command(call, &command, err) < 0 ||
        call_query_int(call, "from", 0, INT64_MAX, 0, &from, err) < 0)
        return -1;
    if (stream && strcmp(stream, "stdout") != 0 && strcmp(stream, "stderr") != 0)
        return err_field(err, "stream", "stdout or stderr");
    unsigned number = stream && strcmp(stream, "stderr") == 0;
    uint64_t at = (uint64_t)from;
    while (call->reply.len < OUTPUT_MAX) {
        char *room = buf_reserve(&call->reply, 65536);
        ssize_t got = room ? printed_read(&command, number, at, room, 65536, err) : 0;

        if (got < 0)
            return -1;
        if (got == 0)
            break;
        call->reply.len += (size_t)got;
        at += (uint64_t)got;
    }
    target_command_view(&command, &call->arena, &view);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)at);
    call_header(call, "x-atoll-next", text);
    call_header(call, "x-atoll-state", view.state);
    call->content_type = "application/octet-stream";
    return 0;
}

static int output_follow(struct call *call, struct err *err)
{
    struct printed of = { 0 };

    return call_command(call, &of, err) < 0 ? -1 : output_events(call, &of, err);
}

/* ---- what goes to a command ---- */

struct input_wish {
    const char *text, *data;
    bool eof;
};

static const struct field input_wish_fields[] = {
    FIELD(input_wish, text, F_STRING, 0, .max = LINK_STDIN_MAX, .help = "What it reads next"),
    FIELD(input_wish, data, F_STRING, 0, .max = LINK_STDIN_MAX / 3 * 4 + 4,
          .help = "The same in base64, for bytes that are no text; not both"),
    FIELD(input_wish, eof, F_BOOL, 0, .help = "Nothing follows"),
    { 0 },
};

/* Sent, and recorded: what goes in may change things there. */
struct sent_call {
    struct store_job job;
    struct box_op op; /* of a change that the sandbox stores itself */
    struct call *call;
    struct printed command;
};

static int sent_run(struct store_job *job, struct db *db, struct err *err)
{
    return call_record(container_of(job, struct sent_call, job)->call, db, err);
}

static void sent_done(struct store_job *job)
{
    struct call *call = container_of(job, struct sent_call, job)->call;

    call_finish(call, job->rc < 0 ? &job->err : NULL);
}

static void stored_prepare(struct box_op *op)
{
    struct sent_call *sent = container_of(op, struct sent_call, op);

    put_command(sent->call, &sent->command);
}

static int stored_record(struct box_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct sent_call, op)->call, db, err);
}

static void stored_done(struct box_op *op, const struct err *err)
{
    call_finish(container_of(op, struct sent_call, op)->call, err);
}

static struct sent_call *sent_new(struct call *call)
{
    struct sent_call *sent = arena_new(&call->arena, struct sent_call);

    sent->call = call;
    sent->job = (struct store_job){ .run = sent_run, .done = sent_done };
    sent->op = (struct box_op){ .tenant = call->who.tenant,
                                .by = call->who.id,
                                .prepare = stored_prepare,
                                .record = stored_record,
                                .done = stored_done };
    return sent;
}

static int record_sent(struct sent_call *sent)
{
    put_command(sent->call, &sent->command);
    store_write(sent->call->api->store, &sent->job);
    return 0;
}

static int input_post(struct call *call, struct err *err)
{
    struct sent_call *sent = sent_new(call);
    struct input_wish wish = { 0 };
    autobuf struct buf bytes = { 0 };

    if (call_command(call, &sent->command, err) < 0 || call_decode(call, &wish, err) < 0)
        return -1;
    if (wish.text && wish.data)
        return err_field(err, "data", "text or data, not both");
    if (wish.data && !base64_get(&bytes, str_of(wish.data)))
        return err_field(err, "data", "is not base64");
    if (target_input(&sent->command, wish.data ? buf_view(&bytes) : str_of(wish.text), wish.eof,
                     err) < 0)
        return -1;
    return record_sent(sent);
}

static int signal_post(struct call *call, struct err *err)
{
    struct sent_call *sent = sent_new(call);
    struct signal_wish wish = { 0 };
    int number = call_command(call, &sent->command, err) < 0 ? -1 : call_signal(call, &wish, err);

    if (number < 0)
        return -1;
    int rc = target_signal(&sent->command, number, &sent->op, err);
    return rc == 0 ? record_sent(sent) : rc > 0 ? 0 : -1;
}

static int resize_post(struct call *call, struct err *err)
{
    struct sent_call *sent = sent_new(call);
    struct resize_wish wish = { 0 };

    if (call_command(call, &sent->command, err) < 0 || call_decode(call, &wish, err) < 0 ||
        target_resize(&sent->command, (unsigned)wish.rows, (unsigned)wish.cols, err) < 0)
        return -1;
    return record_sent(sent);
}

#define AGENT_ROUTE(name_, method_, path_, on_, roles_, fn_, ...)                                  \
    {                                                                                              \
        .name = name_, .method = method_, .path = "/api/v1/agents" path_, .on = on_,               \
        .roles = roles_, .fn = fn_, .surface = SURFACE_HUB, __VA_ARGS__                            \
    }
#define COMMAND "/{id}/commands/{cid}"

/* clang-format off */
const struct route agent_routes[] = {
    AGENT_ROUTE("agent.list", "GET", "", ON_LOOP, ROLE_LOOK, agent_list,
        .summary = "Linked agents, and the caller's sandboxes as agents. What is empty is left "
                   "out; times are Unix milliseconds."),
    AGENT_ROUTE("agent.read", "GET", "/{id}", ON_LOOP, ROLE_LOOK, agent_get,
        .summary = "A linked agent, by its id; or a sandbox, by its whole id or its name."),
    AGENT_ROUTE("agent.change", "PATCH", "/{id}", ON_WRITER, ROLE_STEER, agent_patch,
        .takes = access_fields, .gives = agent_access_fields,
        .summary = "Say which tokens of role agent may use a linked agent, connected or not. Without "
                   "a word none of them may, because its commands run on somebody's machine outside "
                   "of any sandbox. Who reaches a sandbox is changed at /api/v1/sandboxes."),
    AGENT_ROUTE("agent.start", "POST", "/{id}/start", ON_LATER, ROLE_USE, agent_start,
        .summary = "Start a sandbox that is stopped."),
    AGENT_ROUTE("agent.stop", "POST", "/{id}/stop", ON_LATER, ROLE_USE, agent_stop,
        .summary = "Ask the commands of a sandbox to end, wait 15 seconds for them, stop it; its "
                   "files stay."),
    AGENT_ROUTE("agent.destroy", "POST", "/{id}/destroy", ON_LATER, ROLE_ADMIN, agent_destroy,
        .summary = "Stop a sandbox at once; its files stay."),
    AGENT_ROUTE("agent.delete", "DELETE", "/{id}", ON_LATER, ROLE_ADMIN, agent_delete,
        .query = "delete_disk:string,force:string",
        .summary = "Delete a sandbox with its files; with delete_disk=false they stay as a snapshot. Of a "
                   "linked agent its secret is deleted, which ends its connection; with "
                   "force=false only if it is not connected."),
    AGENT_ROUTE("agent.rotate_secret", "POST", "/{id}/rotate-secret", ON_LATER, ROLE_ADMIN,
        agent_rotate, .query = "grace_seconds:int",
        .summary = "Give an agent that is connected another secret, over its link; the old one holds "
                   "until the new one was used, which it must be within the grace."),
    AGENT_ROUTE("command.create", "POST", "/{id}/commands", ON_LATER, ROLE_USE, command_post,
        .takes = command_wish_fields, .gives = command_fields, .query = "wait:int",
        .flags = ROUTE_CREATES,
        .summary = "Run a command on a linked agent or in a sandbox; with `wait` answered when it ends, or after "
                   "that many milliseconds."),
    AGENT_ROUTE("command.list", "GET", "/{id}/commands", ON_LOOP, ROLE_LOOK, command_list,
        .summary = "Commands of an agent, oldest first."),
    AGENT_ROUTE("command.read", "GET", COMMAND, ON_LATER, ROLE_LOOK, command_get,
        .gives = command_fields, .query = "wait:int",
        .summary = "One command; `wait` as above."),
    AGENT_ROUTE("command.output", "GET", COMMAND "/output", ON_LOOP, ROLE_LOOK, bytes_get,
        .query = "stream:string,from:int",
        .summary = "Bytes of `stream` (stdout or stderr) from a position; X-Atoll-Next is where to "
                   "go on, X-Atoll-State the command's state."),
    AGENT_ROUTE("command.output", "GET", COMMAND "/output", ON_STREAM, ROLE_LOOK, output_follow,
        .query = "from:string,hold:int", .flags = ROUTE_SSE,
        .summary = "Both streams as events stdout and stderr (base64) until `exit`; ids are positions "
                   "of both, OUT,ERR, for Last-Event-ID or `from`. With `hold`=1 the command is held "
                   "back instead of losing bytes that its reader has not had."),
    AGENT_ROUTE("command.stdin", "POST", COMMAND "/stdin", ON_LATER, ROLE_USE, input_post,
        .takes = input_wish_fields, .gives = command_fields,
        .summary = "Text or bytes for the command to read. 429 when its agent has not taken yet what "
                   "it was sent before."),
    AGENT_ROUTE("command.signal", "POST", COMMAND "/signal", ON_LATER, ROLE_USE, signal_post,
        .takes = signal_wish_fields, .gives = command_fields,
        .summary = "A signal for all of its processes."),
    AGENT_ROUTE("command.resize", "POST", COMMAND "/resize", ON_LATER, ROLE_USE, resize_post,
        .takes = resize_wish_fields, .gives = command_fields,
        .summary = "Another size of its terminal."),
    { 0 },
};
/* clang-format on */
