/*
 * Commands of sandboxes on agentic's socket: begun, typed to, resized, killed. What is begun here
 * is tapped (tap.c), and leaves the row that a request leaves.
 */
#include <stdio.h>

#include "api/tap.h"
#include "base/clock.h"

/* A command that was asked for and has not started yet. */
struct start {
    struct box_op op;
    struct list node;
    struct hub *hub; /* NULL: the connection is gone */
    struct arena arena;
    char agent[64];
    const char *reply, *type;
    struct audit row;
    struct box_op wake; /* its sandbox was asleep… */
    struct box *box;
    struct exec_spec spec; /* …and this is what follows; texts in the arena */
    struct timer again;    /* another of its name is being started… */
    int64_t due_ms;        /* …and is waited for until then */
};

#define AGAIN_MS 10

int tap_box(struct hub *hub, const char *name, struct box **out, struct err *err)
{
    struct err ignored;

    if (boxes_find(hub->socket.api->boxes, principal_reach(&hub->socket.who), name, out, &ignored) <
        0)
        return err_set(err, ERR_NOT_FOUND, "Agent '%.64s' not found", name);
    box_touch(*out);
    return 0;
}

int tap_may_use(const struct hub *hub, struct err *err)
{
    if (may_type(&hub->socket.who))
        return 0;
    return err_role(err, "this credential may watch and nothing else");
}

/* ---- starting ---- */

void tap_say_started(struct hub *hub, const struct tap_begun *begun)
{
    autobuf struct buf text = { 0 };
    struct json_out json = hub_open(&text, begun->reply);

    json_kv_text(&json, "agent_id", begun->agent);
    json_kv_text(&json, "command_id", begun->id);
    if (strcmp(begun->reply, "shell_started") != 0)
        json_kv_text(&json, "command", begun->command);
    if (begun->type) {
        json_kv_text(&json, "session_id", begun->id);
        json_kv_text(&json, "session_name", begun->name);
        json_kv_text(&json, "session_type", begun->type);
    }
    (void)hub_send(hub, &json);
}

static void say_started(struct hub *hub, const struct start *start, const struct exec_view *view)
{
    tap_say_started(hub, &(struct tap_begun){
                             .reply = start->reply,
                             .type = start->type ? session_type(view->tty, view->background) : NULL,
                             .agent = start->agent,
                             .id = view->id,
                             .name = session_name(view),
                             .command = view->argv[0] });
}

struct audit tap_row(struct hub *hub, struct arena *arena, const char *action)
{
    return (struct audit){ .at_ms = clock_wall_ms(),
                           .tenant = arena_strdup(arena, hub->socket.who.tenant),
                           .actor = arena_strdup(arena, hub->socket.who.id),
                           .role = role_name(hub->socket.who.role),
                           .action = action,
                           .object = "",
                           .outcome = "ok",
                           .request_id = "",
                           .peer = arena_strdup(arena, ws_peer(hub->socket.ws)->text),
                           .detail = "{}" };
}

static void start_prepare(struct box_op *op)
{
    struct start *start = container_of(op, struct start, op);
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);
    struct exec_view view;

    box_exec_view(op->exec, &view);
    json_open(&json, '{');
    json_kv_text(&json, "sandbox", view.sandbox);
    json_kv_text(&json, "command", view.argv[0]);
    json_kv_bool(&json, "tty", view.tty);
    json_close(&json, '}');
    start->row.object = arena_printf(&start->arena, "exec/%s", view.id);
    start->row.detail = arena_memdup0(&start->arena, text.data, text.len);
}

static int start_record(struct box_op *op, struct db *db, struct err *err)
{
    return audit_add(db, &container_of(op, struct start, op)->row, err);
}

static void start_free(struct start *start)
{
    list_remove(&start->node);
    arena_free(&start->arena);
    free(start);
}

static void start_done(struct box_op *op, const struct err *err)
{
    struct start *start = container_of(op, struct start, op);
    struct hub *hub = start->hub;
    struct exec_view view;

    if (hub && err) {
        hub_error(hub, err->msg);
    } else if (hub) {
        box_exec_view(op->exec, &view);
        say_started(hub, start, &view);
        tap_exec(hub, op->exec, start->agent);
    }
    start_free(start);
}

static void start_again(struct timer *timer);

static struct start *start_new(struct hub *hub, const char *agent, const char *reply)
{
    struct start *start = xnew(struct start);

    start->hub = hub;
    start->reply = reply;
    snprintf(start->agent, sizeof(start->agent), "%s", agent);
    start->row = tap_row(hub, &start->arena, "exec.create");
    start->op = (struct box_op){ .tenant = start->row.tenant,
                                 .by = start->row.actor,
                                 .prepare = start_prepare,
                                 .record = start_record,
                                 .done = start_done };
    start->again.fn = start_again;
    list_append(&hub->starts, &start->node);
    return start;
}

/* One that runs already under this name: told, and tapped. */
static bool reuse(struct hub *hub, struct box *box, struct start *start, const char *name)
{
    struct box_exec *exec = session_named(box, name, true);
    struct exec_view view;

    if (!exec || !box_exec_term(exec))
        return false;
    box_exec_view(exec, &view);
    say_started(hub, start, &view);
    tap_exec(hub, exec, start->agent);
    start_free(start);
    return true;
}

/*
 * A name that is taken by what has not started yet, for somebody else perhaps: whoever asks for a
 * session of that name gets that one, as soon as it is there.
 */
static bool wait_for_other(struct start *start, const struct err *err)
{
    struct loop *loop = start->hub->socket.api->loop;

    if (err->code != ERR_CONFLICT || !start->spec.tty || !start->spec.name)
        return false;
    if (!start->due_ms)
        start->due_ms = loop_now(loop) + EXEC_START_MS;
    if (loop_now(loop) >= start->due_ms)
        return false;
    timer_set(loop, &start->again, AGAIN_MS);
    return true;
}

static int start_exec(struct start *start, struct err *err)
{
    if (box_exec(start->box, &start->spec, &start->op, err) == 0)
        return 0;
    if (start->hub && wait_for_other(start, err))
        return 0;
    start_free(start);
    return -1;
}

static void start_again(struct timer *timer)
{
    struct start *start = container_of(timer, struct start, again);
    struct hub *hub = start->hub;
    struct err err = { 0 };

    if (tap_box(hub, start->agent, &start->box, &err) < 0)
        start_free(start);
    else if (reuse(hub, start->box, start, start->spec.name) || start_exec(start, &err) == 0)
        return;
    hub_error(hub, err.msg);
}

static void start_woken(struct box_op *op, const struct err *failed)
{
    struct start *start = container_of(op, struct start, wake);
    struct hub *hub = start->hub;
    struct err err = { 0 };

    if (failed) {
        err = *failed;
        start_free(start);
    } else if (start_exec(start, &err) == 0) {
        return;
    }
    if (hub)
        hub_error(hub, err.msg);
}

/* Takes `start`. */
static int start_go(struct start *start, struct box *box, const struct exec_spec *spec,
                    struct err *err)
{
    start->box = box;
    start->spec = *spec;
    start->wake =
        (struct box_op){ .tenant = start->op.tenant, .by = start->op.by, .done = start_woken };
    int awake = box_wake(box, &start->wake, err);
    if (awake > 0)
        return start_exec(start, err);
    if (awake < 0)
        start_free(start);
    return awake;
}

/* argv of a message: command and args. */
const char **tap_argv(struct arena *arena, const struct json *json, const char *otherwise)
{
    const struct json *args = json_get(json, "args");
    struct str command = json_text(json, "command");
    size_t argc = 0, max = args && args->type == JSON_ARRAY ? args->count : 0;
    const char **argv = arena_alloc(arena, (max + 2) * sizeof(*argv));

    argv[argc++] = command.n ? arena_memdup0(arena, command.p, command.n) : otherwise;
    json_each(arg, args) if (arg->type == JSON_STRING && argc <= max) argv[argc++] =
        arena_memdup0(arena, arg->text.p, arg->text.n);
    argv[argc] = NULL;
    return argv;
}

static int open_agent(struct hub *hub, const struct json *json, struct box **box,
                      struct sandbox_view *view, struct err *err)
{
    const char *agent = hub_text(hub, json, "agent_id");

    if (tap_may_use(hub, err) < 0 || tap_box(hub, agent, box, err) < 0)
        return -1;
    box_view(*box, view);
    return 0;
}

int hub_send_command(struct hub *hub, const struct json *json, struct err *err)
{
    struct linked *linked = tap_linked(hub, json);
    struct sandbox_view view;
    struct box *box;

    if (linked)
        return link_send_command(hub, linked, json, err);
    if (open_agent(hub, json, &box, &view, err) < 0)
        return -1;
    struct start *start = start_new(hub, hub_text(hub, json, "agent_id"), "command_started");
    struct exec_spec spec = { .argv = tap_argv(&start->arena, json, ""),
                              .stdin_open = true,
                              .cwd = session_cwd(NULL, strcmp(view.user, "root") == 0) };
    return start_go(start, box, &spec, err);
}

int hub_start_shell(struct hub *hub, const struct json *json, struct err *err)
{
    struct linked *linked = tap_linked(hub, json);
    struct exec_spec spec = { .tty = true, .name = "main" };
    struct sandbox_view view;
    struct box *box;

    if (linked)
        return link_start_shell(hub, linked, json, err);
    if (open_agent(hub, json, &box, &view, err) < 0 ||
        size_of(json, &spec.rows, &spec.cols, err) < 0)
        return -1;
    struct start *start = start_new(hub, hub_text(hub, json, "agent_id"), "shell_started");
    if (reuse(hub, box, start, "main"))
        return 0;
    shell_unless_said(&spec);
    spec.cwd = session_cwd(NULL, strcmp(view.user, "root") == 0);
    return start_go(start, box, &spec, err);
}

const char *tap_session_type(struct hub *hub, const struct json *json, struct err *err)
{
    static const char *const types[] = { "interactive", "headless", "background" };
    const char *type = hub_text(hub, json, "session_type");

    if (!*hub_text(hub, json, "session_name")) {
        err_set(err, ERR_INVALID, "session_name is missing");
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(*type ? type : types[0], types[i]) == 0)
            return types[i];
    err_set(err, ERR_INVALID, "session_type '%.32s' is none of interactive, headless, background",
            type);
    return NULL;
}

int hub_create_session(struct hub *hub, const struct json *json, struct err *err)
{
    struct linked *linked = tap_linked(hub, json);
    const char *name = hub_text(hub, json, "session_name");
    struct exec_spec spec = { 0 };
    struct sandbox_view view;
    struct box *box;

    if (linked)
        return link_create_session(hub, linked, json, err);
    const char *type = tap_session_type(hub, json, err);
    if (!type)
        return -1;
    bool headless = strcmp(type, "headless") == 0;
    if (open_agent(hub, json, &box, &view, err) < 0 ||
        (!headless && size_of(json, &spec.rows, &spec.cols, err) < 0))
        return -1;
    struct start *start = start_new(hub, hub_text(hub, json, "agent_id"), "session_created");
    start->type = type;
    spec.argv = tap_argv(&start->arena, json, "bash");
    spec.name = arena_strdup(&start->arena, name);
    spec.background = strcmp(type, "background") == 0;
    spec.tty = !headless; /* in the background too, so that one can look at it later */
    spec.cwd = arena_strdup(&start->arena, session_cwd(hub_text(hub, json, "working_dir"),
                                                       strcmp(view.user, "root") == 0));
    struct box_exec *old = headless ? session_named(box, name, true) : NULL;
    if (old)
        (void)!box_exec_kill(old, hub->socket.who.id, err);
    if (!headless && reuse(hub, box, start, name))
        return 0;
    return start_go(start, box, &spec, err);
}

/* ---- what runs ---- */

static int named(struct hub *hub, const struct json *json, struct box_exec **out, struct err *err)
{
    const char *name = hub_text(hub, json, "session_name");
    struct box *box;

    if (tap_box(hub, hub_text(hub, json, "agent_id"), &box, err) < 0)
        return -1;
    *out = session_named(box, name, true);
    return *out ? 0 : err_set(err, ERR_NOT_FOUND, "Session '%.64s' not found", name);
}

void tap_answer(struct hub *hub, const char *type, const struct json *json, const char *id)
{
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, type);

    json_kv_text(&reply, "agent_id", hub_text(hub, json, "agent_id"));
    json_kv_text(&reply, "session_name", hub_text(hub, json, "session_name"));
    if (id) {
        json_kv_text(&reply, "command_id", id);
        json_kv_text(&reply, "session_id", id);
    }
    (void)hub_send(hub, &reply);
}

/* Typing past a lease that somebody else holds is refused here as well. */
static int check_free(struct hub *hub, struct box_exec *exec, struct err *err)
{
    struct box_term *term = box_exec_term(exec);
    struct exec_view view;

    box_exec_view(exec, &view);
    if (tap_may_use(hub, err) < 0)
        return -1;
    if (term && term_controllers(term) >= term_lease_count(term) && !hub_controls(hub, view.id))
        return err_set(err, ERR_FORBIDDEN, "somebody else controls this session");
    return 0;
}

int hub_attach_session(struct hub *hub, const struct json *json, struct err *err)
{
    struct linked *linked = tap_linked(hub, json);
    struct box_exec *exec;
    struct exec_view view;
    int64_t rows, cols;

    if (linked)
        return link_attach_session(hub, linked, json, err);
    if (named(hub, json, &exec, err) < 0)
        return -1;
    box_exec_view(exec, &view);
    if (view.tty && json_get(json, "cols")) {
        if (size_of(json, &rows, &cols, err) < 0 || check_free(hub, exec, err) < 0 ||
            box_exec_resize(exec, (unsigned)MIN(rows, (int64_t)SCREEN_ROWS_MAX),
                            (unsigned)MIN(cols, (int64_t)SCREEN_COLS_MAX), err) < 0)
            return -1;
    }
    tap_answer(hub, "session_attached", json, view.id);
    tap_exec(hub, exec, hub_text(hub, json, "agent_id"));
    return 0;
}

int hub_detach_session(struct hub *hub, const struct json *json, struct err *err)
{
    (void)err;
    tap_answer(hub, "session_detached", json, NULL);
    return 0;
}

int hub_kill_session(struct hub *hub, const struct json *json, struct err *err)
{
    struct linked *linked = tap_linked(hub, json);
    struct box_exec *exec;
    struct exec_view view;

    if (linked)
        return link_kill_session(hub, linked, json, err);
    if (named(hub, json, &exec, err) < 0 || tap_may_use(hub, err) < 0 ||
        box_exec_kill(exec, hub->socket.who.id, err) < 0)
        return -1;
    box_exec_view(exec, &view);
    tap_answer(hub, "session_killed", json, view.id);
    return 0;
}

static int by_command(struct hub *hub, const struct json *json, struct box_exec **out,
                      struct err *err)
{
    struct err ignored;
    struct box *box;

    if (tap_box(hub, hub_text(hub, json, "agent_id"), &box, err) < 0)
        return -1;
    if (box_exec_find(box, hub_text(hub, json, "command_id"), out, &ignored) < 0)
        return err_set(err, ERR_NOT_FOUND, "Command not found");
    return check_free(hub, *out, err);
}

int hub_send_input(struct hub *hub, const struct json *json, struct err *err)
{
    struct linked *linked = tap_linked(hub, json);
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "input_sent");
    struct box_exec *exec;

    if (linked)
        return link_send_input(hub, linked, json, err);
    if (by_command(hub, json, &exec, err) < 0 ||
        box_exec_type(exec, json_text(json, "data"), err) < 0)
        return -1;
    json_kv_text(&reply, "agent_id", hub_text(hub, json, "agent_id"));
    json_kv_text(&reply, "command_id", hub_text(hub, json, "command_id"));
    (void)hub_send(hub, &reply);
    return 0;
}

int hub_pty_resize(struct hub *hub, const struct json *json, struct err *err)
{
    struct linked *linked = tap_linked(hub, json);
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "pong");
    struct box_exec *exec;
    int64_t rows, cols;

    if (linked)
        return link_pty_resize(hub, linked, json, err);
    if (by_command(hub, json, &exec, err) < 0 || size_of(json, &rows, &cols, err) < 0 ||
        box_exec_resize(exec, (unsigned)MIN(rows, (int64_t)SCREEN_ROWS_MAX),
                        (unsigned)MIN(cols, (int64_t)SCREEN_COLS_MAX), err) < 0)
        return -1;
    json_kv_int(&reply, "timestamp", 0);
    (void)hub_send(hub, &reply);
    return 0;
}

void tap_starts_free(struct hub *hub)
{
    struct list *node;

    while ((node = list_pop(&hub->starts))) {
        struct start *start = list_entry(node, struct start, node);

        start->hub = NULL;
        if (!timer_is_set(&start->again))
            continue; /* start_done frees it */
        timer_cancel(hub->socket.api->loop, &start->again);
        start_free(start);
    }
}
