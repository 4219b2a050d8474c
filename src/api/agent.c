/*
 * Agents as agentic knows them: those that are linked (link/links.h), and our own sandboxes, which
 * are instances too. Commands of linked agents, whose output is read by position.
 */
#include "api/own.h"

#include <stdio.h>

#include "api/exec.h"
#include "api/operation.h"
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

static int call_agent(struct call *call, struct linked **out, struct err *err)
{
    return links_find(links_of(call), call_reach(call), call_param(call, "id"), out, err);
}

/* ---- looking ---- */

static enum agent_status status_of(const struct sandbox_view *view)
{
    static const struct {
        const char *state;
        enum agent_status status;
    } words[] = { { "creating", AGENT_STARTING },
                  { "paused", AGENT_STALE },
                  { "stopped", AGENT_DISCONNECTED },
                  { "failed", AGENT_ERROR } };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(view->state, words[i].state) == 0)
            return words[i].status;
    return view->execs_running ? AGENT_BUSY : AGENT_READY;
}

static void put_box(struct json_out *json, const struct box *box)
{
    struct sandbox_view view;

    box_view(box, &view);
    struct agent_view agent = { .id = view.name ? view.name : view.id,
                                .instance_id = view.id,
                                .hostname = view.id,
                                .profile = view.image,
                                .status = status_of(&view),
                                .connected_at = view.created_at,
                                .last_heartbeat = view.changed_at,
                                .runtime = "sandbox" };
    agent_put(json, &agent);
}

static int agent_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct linked *agent = NULL;
    struct box *box = NULL;

    (void)err;
    json_open_list(&json, "agents");
    while ((agent = links_next(links_of(call), call_reach(call), agent))) {
        struct agent_view view;

        linked_view(agent, &view);
        agent_put(&json, &view);
    }
    while ((box = boxes_next(call->api->boxes, call_reach(call), box)))
        put_box(&json, box);
    json_close_list(&json);
    return 0;
}

static int agent_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    const char *id = call_param(call, "id");
    struct linked *agent;
    struct box *box;

    if (call_agent(call, &agent, NULL) == 0) {
        struct agent_view view;

        linked_view(agent, &view);
        agent_put(&json, &view);
        return 0;
    }
    if (boxes_find(call->api->boxes, call_reach(call), id, &box, NULL) < 0)
        return err_set(err, ERR_NOT_FOUND, "Agent '%.63s' not found", id);
    put_box(&json, box);
    return 0;
}

/* ---- changing ---- */

static int change(struct call *call, const struct vm_change *wish, struct err *err)
{
    const char *id = call_param(call, "id");
    struct box *box;

    if (boxes_find(call->api->boxes, call_reach(call), id, &box, NULL) < 0)
        return err_set(err, ERR_NOT_FOUND, "Agent '%.63s' not found", id);
    return vm_change(call, box, wish, err);
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

static int agent_delete(struct call *call, struct err *err)
{
    const char *force = call_query(call, "force"); /* here it is so unless it is said not to be */
    struct vm_change wish;

    if (vm_deleting(call, !force || strcmp(force, "false") != 0, &wish, err) < 0)
        return -1;
    return change(call, &wish, err);
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
    if (call_agent(call, &agent, NULL) < 0 || !linked_connected(agent))
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
    struct link_op op;
    struct link_reader reader;
    struct timer timer;
    struct call *call;
    struct link_command *command;
    int64_t wait_ms;
};

static void put_command(struct call *call, const struct link_command *command)
{
    struct command_view view;

    command_view(command, &view);
    buf_clear(&call->reply);
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "agent/%s", view.agent_id);
}

static void run_prepare(struct link_op *op)
{
    put_command(container_of(op, struct running_call, op)->call, op->command);
}

static int run_record(struct link_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct running_call, op)->call, db, err);
}

static void wait_over(struct running_call *run)
{
    timer_cancel(run->call->api->loop, &run->timer);
    command_unfollow(&run->reader);
    put_command(run->call, run->command);
    call_finish(run->call, NULL);
}

static void wait_more(struct link_reader *reader)
{
    struct running_call *run = container_of(reader, struct running_call, reader);

    if (command_ended(run->command))
        wait_over(run);
}

static void wait_gone(struct link_reader *reader, const struct err *why)
{
    struct running_call *run = container_of(reader, struct running_call, reader);

    timer_cancel(run->call->api->loop, &run->timer);
    call_finish(run->call, why);
}

static void wait_timer(struct timer *timer)
{
    wait_over(container_of(timer, struct running_call, timer));
}

static void wait_for(struct running_call *run)
{
    run->reader.more = wait_more;
    run->reader.gone = wait_gone;
    run->timer.fn = wait_timer;
    command_follow(run->command, &run->reader);
    timer_set(run->call->api->loop, &run->timer, run->wait_ms);
}

static void run_done(struct link_op *op, const struct err *err)
{
    struct running_call *run = container_of(op, struct running_call, op);

    if (err || !run->wait_ms || !op->command) {
        call_finish(run->call, err);
        return;
    }
    run->command = op->command;
    wait_for(run);
}

static int command_post(struct call *call, struct err *err)
{
    struct running_call *run = arena_new(&call->arena, struct running_call);
    struct command_wish wish = { 0 };
    struct linked *agent;

    run->call = call;
    if (call_agent(call, &agent, err) < 0 || call_decode(call, &wish, err) < 0 ||
        command_wish_settle(&wish, err) < 0 ||
        call_query_int(call, "wait", 0, EXEC_WAIT_MAX_MS, 0, &run->wait_ms, err) < 0)
        return -1;
    run->op = (struct link_op){ .tenant = call->who.tenant,
                                .by = call->who.id,
                                .prepare = run_prepare,
                                .record = run_record,
                                .done = run_done };
    return linked_run(agent, &wish, &run->op, err);
}

static int call_command(struct call *call, struct link_command **out, struct err *err)
{
    struct linked *agent;

    if (call_agent(call, &agent, err) < 0)
        return -1;
    return linked_command(agent, call_param(call, "cid"), out, err);
}

static int command_get(struct call *call, struct err *err)
{
    struct running_call *run = arena_new(&call->arena, struct running_call);

    run->call = call;
    if (call_command(call, &run->command, err) < 0 ||
        call_query_int(call, "wait", 0, EXEC_WAIT_MAX_MS, 0, &run->wait_ms, err) < 0)
        return -1;
    if (run->wait_ms && !command_ended(run->command)) {
        wait_for(run);
        return 0;
    }
    put_command(call, run->command);
    call_finish(call, NULL);
    return 0;
}

static int command_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct link_command *command = NULL;
    struct linked *agent;

    if (call_agent(call, &agent, err) < 0)
        return -1;
    json_open_list(&json, "items");
    while ((command = linked_next(agent, command))) {
        struct command_view view;

        command_view(command, &view);
        field_encode(command_fields, &view, &json);
    }
    json_close_list(&json);
    return 0;
}

static int bytes_get(struct call *call, struct err *err)
{
    const char *stream = call_query(call, "stream");
    struct link_command *command;
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
        ssize_t got = room ? command_read(command, number, at, room, 65536, err) : 0;

        if (got < 0)
            return -1;
        if (got == 0)
            break;
        call->reply.len += (size_t)got;
        at += (uint64_t)got;
    }
    command_view(command, &view);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)at);
    call_header(call, "x-atoll-next", text);
    call_header(call, "x-atoll-state", view.state);
    call->content_type = "application/octet-stream";
    return 0;
}

static int output_follow(struct call *call, struct err *err)
{
    struct printed of = { 0 };

    return call_command(call, &of.linked, err) < 0 ? -1 : output_events(call, &of, err);
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
    struct call *call;
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

static int record_sent(struct call *call, struct link_command *command)
{
    struct sent_call *sent = arena_new(&call->arena, struct sent_call);

    put_command(call, command);
    sent->call = call;
    sent->job = (struct store_job){ .run = sent_run, .done = sent_done };
    store_write(call->api->store, &sent->job);
    return 0;
}

static int input_post(struct call *call, struct err *err)
{
    struct input_wish wish = { 0 };
    struct link_command *command;
    autobuf struct buf bytes = { 0 };

    if (call_command(call, &command, err) < 0 || call_decode(call, &wish, err) < 0)
        return -1;
    if (wish.text && wish.data)
        return err_field(err, "data", "text or data, not both");
    if (wish.data && !base64_get(&bytes, str_of(wish.data)))
        return err_field(err, "data", "is not base64");
    if (command_input(command, wish.data ? buf_view(&bytes) : str_of(wish.text), wish.eof, err) < 0)
        return -1;
    return record_sent(call, command);
}

static int signal_post(struct call *call, struct err *err)
{
    struct signal_wish wish = { 0 };
    struct link_command *command;

    int number = call_command(call, &command, err) < 0 ? -1 : call_signal(call, &wish, err);

    if (number < 0)
        return -1;
    if (command_signal(command, number, err) < 0)
        return -1;
    return record_sent(call, command);
}

static int resize_post(struct call *call, struct err *err)
{
    struct resize_wish wish = { 0 };
    struct link_command *command;

    if (call_command(call, &command, err) < 0 || call_decode(call, &wish, err) < 0 ||
        command_resize(command, (unsigned)wish.rows, (unsigned)wish.cols, err) < 0)
        return -1;
    return record_sent(call, command);
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
        .summary = "One agent, by its id; or a sandbox, by name or id."),
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
        .summary = "Delete a sandbox with its files; with delete_disk=false they stay as a snapshot."),
    AGENT_ROUTE("agent.rotate_secret", "POST", "/{id}/rotate-secret", ON_LATER, ROLE_ADMIN,
        agent_rotate, .query = "grace_seconds:int",
        .summary = "Give an agent that is connected another secret, over its link; the old one holds "
                   "until the new one was used, which it must be within the grace."),
    AGENT_ROUTE("command.create", "POST", "/{id}/commands", ON_LATER, ROLE_USE, command_post,
        .takes = command_wish_fields, .gives = command_fields, .query = "wait:int",
        .flags = ROUTE_CREATES,
        .summary = "Run a command on a linked agent; with `wait` answered when it ends, or after "
                   "that many milliseconds."),
    AGENT_ROUTE("command.list", "GET", "/{id}/commands", ON_LOOP, ROLE_LOOK, command_list,
        .summary = "Commands of a linked agent, oldest first."),
    AGENT_ROUTE("command.read", "GET", COMMAND, ON_LATER, ROLE_LOOK, command_get,
        .gives = command_fields, .query = "wait:int",
        .summary = "One command; `wait` as above."),
    AGENT_ROUTE("command.output", "GET", COMMAND "/output", ON_LOOP, ROLE_LOOK, bytes_get,
        .query = "stream:string,from:int",
        .summary = "Bytes of `stream` (stdout or stderr) from a position; X-Atoll-Next is where to "
                   "go on, X-Atoll-State the command's state."),
    AGENT_ROUTE("command.output", "GET", COMMAND "/output", ON_STREAM, ROLE_LOOK, output_follow,
        .query = "from:string", .flags = ROUTE_SSE,
        .summary = "Both streams as events stdout and stderr (base64) until `exit`; ids are positions "
                   "of both, OUT,ERR, for Last-Event-ID or `from`."),
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
