/*
 * Agents on agentic's socket: commands begun here, their output as text, and agents that somebody
 * subscribed to. A tap follows one command from a place on and needs no queue: it reads on when the
 * peer has read. What it gives is text; bytes that are none become U+FFFD, and a character that two
 * pieces share is kept whole.
 *
 * A subscription finds commands that others start by looking from time to time, which is cheap
 * beside what they print, and tells all of their output either way.
 */
#include <stdio.h>

#include "api/session_ws.h"
#include "base/clock.h"
#include "link/links.h"

#define LOOK_MS 200
#define PIECE 32768

struct tap {
    struct box_reader reader;
    struct list node;
    struct hub *hub;
    struct box_exec *exec;
    char agent[64], command[ID_SIZE];
    uint64_t at[INIT_STREAMS];
    bool waiting;
};

struct subscription {
    struct list node;
    char agent[64], sandbox[ID_SIZE]; /* sandbox "": all of them */
};

/* A command that was asked for and has not started yet. */
struct start {
    struct box_op op;
    struct list node;
    struct hub *hub; /* NULL: the connection is gone */
    struct arena arena;
    char agent[64], who[ID_SIZE], tenant[TENANT_MAX + 1];
    const char *reply, *type;
    struct audit row;
    struct box_op wake; /* its sandbox was asleep… */
    struct box *box;
    struct exec_spec spec; /* …and this is what follows; texts in the arena */
};

static int find_agent(struct hub *hub, const char *name, struct box **out, struct err *err)
{
    struct err ignored;

    if (boxes_find(hub->socket.api->boxes, hub->socket.who.tenant, name, out, &ignored) < 0)
        return err_set(err, ERR_NOT_FOUND, "Agent '%.64s' not found", name);
    box_touch(*out);
    return 0;
}

static int check_may_use(const struct hub *hub, struct err *err)
{
    if (may_type(&hub->socket.who))
        return 0;
    return err_set(err, ERR_FORBIDDEN, "this credential may watch and nothing else");
}

/* ---- taps ---- */

static void tap_free(struct tap *tap)
{
    box_exec_unfollow(&tap->reader);
    list_remove(&tap->node);
    free(tap);
}

/* Without the beginning of a character whose end has not come; all of it if nothing follows. */
static size_t whole_text(const char *data, size_t len, bool last)
{
    for (size_t back = 1; !last && back <= MIN(len, (size_t)3); back++) {
        unsigned char c = (unsigned char)data[len - back];

        if (c < 0x80)
            break;
        if (c >= 0xc0)
            return back < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) && len > back ? len - back : len;
    }
    return len;
}

static bool say_output(struct tap *tap, unsigned stream, struct str data)
{
    autobuf struct buf text = { 0 };
    struct json_out json = hub_open(&text, "output");

    json_kv_text(&json, "agent_id", tap->agent);
    json_kv_text(&json, "command_id", tap->command);
    json_kv_text(&json, "stream", stream == INIT_ERR ? "stderr" : "stdout");
    json_kv_str(&json, "data", data);
    json_kv_int(&json, "ts", clock_wall_ms());
    return hub_send(tap->hub, &json);
}

static void say_completed(struct tap *tap)
{
    autobuf struct buf text = { 0 };
    struct json_out json = hub_open(&text, "command_completed");
    struct exec_view view;

    box_exec_view(tap->exec, &view);
    json_kv_text(&json, "agent_id", tap->agent);
    json_kv_text(&json, "command_id", tap->command);
    json_kv_int(&json, "exit_code", view.exit_code);
    json_kv_int(&json, "duration_ms", view.ended_at - view.started_at);
    if (strcmp(view.state, "lost") == 0)
        json_kv_text(&json, "error", "the sandbox ended before the command did");
    else if (view.oom)
        json_kv_text(&json, "error", "out of memory");
    (void)hub_send(tap->hub, &json);
}

/* False: the tap is gone. */
static bool tap_pump(struct tap *tap)
{
    static char data[PIECE]; /* the loop thread's */
    bool ended = box_exec_ended(tap->exec);
    struct err err;

    for (unsigned s = 0; s < INIT_STREAMS && !tap->waiting; s++)
        for (;;) {
            ssize_t got = box_exec_read(tap->exec, s, tap->at[s], data, sizeof(data), &err);

            if (got < 0) {
                hub_error(tap->hub, "too slow: output was left out");
                tap_free(tap);
                return false;
            }
            size_t len = got ? whole_text(data, (size_t)got, ended) : 0;
            if (len == 0)
                break;
            tap->at[s] += len;
            tap->waiting = !say_output(tap, s, (struct str){ data, len });
            if (tap->waiting)
                break;
        }
    if (tap->waiting || !ended)
        return true;
    say_completed(tap);
    tap_free(tap);
    return false;
}

static void tap_more(struct box_reader *reader)
{
    (void)tap_pump(container_of(reader, struct tap, reader));
}

static void tap_gone(struct box_reader *reader)
{
    tap_free(container_of(reader, struct tap, reader));
}

static bool tapped(const struct hub *hub, const struct box_exec *exec)
{
    list_each (pos, &hub->taps)
        if (list_entry(pos, struct tap, node)->exec == exec)
            return true;
    return false;
}

static void tap_open(struct hub *hub, struct box_exec *exec, const char *agent, bool from_now)
{
    struct exec_view view;
    uint64_t begin, end;

    if (tapped(hub, exec))
        return;
    struct tap *tap = xnew(struct tap);
    box_exec_view(exec, &view);
    tap->hub = hub;
    tap->exec = exec;
    tap->reader = (struct box_reader){ .more = tap_more, .gone = tap_gone };
    snprintf(tap->agent, sizeof(tap->agent), "%s", agent);
    snprintf(tap->command, sizeof(tap->command), "%s", view.id);
    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        box_exec_range(exec, s, &begin, &end);
        tap->at[s] = from_now ? end : begin;
    }
    list_append(&hub->taps, &tap->node);
    box_exec_follow(exec, &tap->reader);
    (void)tap_pump(tap);
}

/* ---- subscriptions ---- */

static void look_at(struct hub *hub, struct box *box, bool from_now)
{
    struct sandbox_view agent;

    box_view(box, &agent);
    for (struct box_exec *exec = NULL; (exec = box_exec_next(box, exec));)
        if (!box_exec_ended(exec))
            tap_open(hub, exec, agent_name(&agent), from_now);
}

static void look_all(struct hub *hub, bool from_now)
{
    struct boxes *boxes = hub->socket.api->boxes;
    const char *tenant = hub->socket.who.tenant;
    struct err ignored;
    struct box *box;

    list_each (pos, &hub->subscriptions) {
        struct subscription *sub = list_entry(pos, struct subscription, node);

        if (sub->sandbox[0]) {
            if (boxes_find(boxes, tenant, sub->sandbox, &box, &ignored) == 0)
                look_at(hub, box, from_now);
            continue;
        }
        for (box = NULL; (box = boxes_next(boxes, tenant, box));)
            look_at(hub, box, from_now);
    }
}

bool hub_subscribed(const struct hub *hub, const char *agent, const char *sandbox)
{
    list_each (pos, &hub->subscriptions) {
        const struct subscription *sub = list_entry(pos, struct subscription, node);

        if (strcmp(sub->agent, "*") == 0 || strcmp(sub->agent, agent) == 0 ||
            (sandbox && strcmp(sub->sandbox, sandbox) == 0))
            return true;
    }
    return false;
}

static void look(struct timer *timer)
{
    struct hub *hub = container_of(timer, struct hub, look);

    look_all(hub, false);
    pulse_beat(hub);
    if (!list_empty(&hub->subscriptions))
        timer_set(hub->socket.api->loop, timer, LOOK_MS);
}

static void subscribe(struct hub *hub, const char *agent, const char *sandbox, bool from_now)
{
    list_each (pos, &hub->subscriptions)
        if (strcmp(list_entry(pos, struct subscription, node)->agent, agent) == 0)
            return;
    struct subscription *sub = xnew(struct subscription);
    snprintf(sub->agent, sizeof(sub->agent), "%s", agent);
    snprintf(sub->sandbox, sizeof(sub->sandbox), "%s", sandbox);
    list_append(&hub->subscriptions, &sub->node);
    if (from_now)
        look_all(hub, true);
    if (!timer_is_set(&hub->look))
        timer_set(hub->socket.api->loop, &hub->look, LOOK_MS);
}

static void answer_agent(struct hub *hub, const char *type, const char *agent)
{
    autobuf struct buf text = { 0 };
    struct json_out json = hub_open(&text, type);

    json_kv_text(&json, "agent_id", agent);
    (void)hub_send(hub, &json);
}

int hub_subscribe(struct hub *hub, const struct json *json, struct err *err)
{
    const char *agent = hub_text(hub, json, "agent_id");
    struct sandbox_view view = { .id = "" };
    struct linked *linked;
    struct box *box;

    if (links_find(hub->socket.api->links, hub->socket.who.tenant, agent, &linked, NULL) == 0) {
        view.id = agent; /* no sandbox; but how it does is told */
    } else if (strcmp(agent, "*") != 0) {
        if (find_agent(hub, agent, &box, err) < 0)
            return -1;
        box_view(box, &view);
    }
    answer_agent(hub, "subscribed", agent);
    subscribe(hub, agent, view.id, true);
    return 0;
}

int hub_unsubscribe(struct hub *hub, const struct json *json, struct err *err)
{
    const char *agent = hub_text(hub, json, "agent_id");

    (void)err;
    list_each_safe (pos, &hub->subscriptions) {
        struct subscription *sub = list_entry(pos, struct subscription, node);

        if (strcmp(sub->agent, agent) != 0)
            continue;
        list_remove(&sub->node);
        free(sub);
    }
    list_each_safe (pos, &hub->taps) {
        struct tap *tap = list_entry(pos, struct tap, node);

        if (strcmp(agent, "*") == 0 || strcmp(tap->agent, agent) == 0)
            tap_free(tap);
    }
    answer_agent(hub, "unsubscribed", agent);
    return 0;
}

/* ---- questions ---- */

int hub_ping(struct hub *hub, const struct json *json, struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "pong");

    (void)err;
    json_kv_int(&reply, "timestamp", json_num(json, "timestamp", 0));
    (void)hub_send(hub, &reply);
    return 0;
}

static const char *agent_status(const struct sandbox_view *view)
{
    if (strcmp(view->state, "running") == 0)
        return view->execs_running ? "Busy" : "Ready";
    if (strcmp(view->state, "creating") == 0)
        return "Starting";
    return strcmp(view->state, "failed") == 0 ? "Error" : "Disconnected";
}

static void put_agent(struct json_out *json, const struct agent_view *view, const char *status)
{
    json_open(json, '{');
    json_kv_text(json, "id", view->id);
    json_kv_text(json, "hostname", view->hostname);
    json_kv_text(json, "ip_address", view->ip_address);
    json_kv_text(json, "status", status);
    json_kv_int(json, "connected_at", view->connected_at);
    json_kv_int(json, "last_heartbeat", view->last_heartbeat);
    json_close(json, '}');
}

int hub_list_agents(struct hub *hub, const struct json *json, struct err *err)
{
    const char *tenant = hub->socket.who.tenant;
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "agent_list");
    struct linked *linked = NULL;
    struct box *box = NULL;
    struct agent_view agent;
    struct sandbox_view view;

    (void)json, (void)err;
    json_key(&reply, "agents");
    json_open(&reply, '[');
    while ((linked = links_next(hub->socket.api->links, tenant, linked))) {
        linked_view(linked, &agent);
        put_agent(&reply, &agent, agent_status_name(agent.status));
    }
    while ((box = boxes_next(hub->socket.api->boxes, tenant, box))) {
        box_view(box, &view);
        agent = (struct agent_view){ .id = agent_name(&view),
                                     .hostname = agent_name(&view),
                                     .ip_address = "127.0.0.1",
                                     .connected_at = view.created_at,
                                     .last_heartbeat = clock_wall_ms() };
        put_agent(&reply, &agent, agent_status(&view));
    }
    json_close(&reply, ']');
    (void)hub_send(hub, &reply);
    return 0;
}

static void put_session(struct json_out *json, const struct exec_view *view)
{
    autobuf struct buf line = { .max = 4096 };

    for (const char **arg = view->argv; arg && *arg; arg++) {
        buf_puts(&line, arg == view->argv ? "" : " ");
        buf_puts(&line, *arg);
    }
    json_open(json, '{');
    json_kv_text(json, "session_name", session_name(view));
    json_kv_text(json, "command_id", view->id);
    json_kv_text(json, "session_id", view->id);
    json_kv_text(json, "session_type", view->tty ? "interactive" : "headless");
    json_kv_str(json, "command", buf_view(&line));
    json_kv_bool(json, "running", true);
    json_close(json, '}');
}

int hub_list_sessions(struct hub *hub, const struct json *json, struct err *err)
{
    const char *agent = hub_text(hub, json, "agent_id");
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "session_list");
    struct box *box;

    if (find_agent(hub, agent, &box, err) < 0)
        return -1;
    json_kv_text(&reply, "agent_id", agent);
    json_key(&reply, "sessions");
    json_open(&reply, '[');
    for (struct box_exec *exec = NULL; (exec = box_exec_next(box, exec));) {
        struct exec_view view;

        box_exec_view(exec, &view);
        if (strcmp(view.state, "running") == 0)
            put_session(&reply, &view);
    }
    json_close(&reply, ']');
    (void)hub_send(hub, &reply);
    return 0;
}

/* ---- starting ---- */

static void say_started(struct hub *hub, const struct start *start, const struct exec_view *view)
{
    autobuf struct buf text = { 0 };
    struct json_out json = hub_open(&text, start->reply);

    json_kv_text(&json, "agent_id", start->agent);
    json_kv_text(&json, "command_id", view->id);
    if (strcmp(start->reply, "shell_started") != 0)
        json_kv_text(&json, "command", view->argv[0]);
    if (start->type) {
        json_kv_text(&json, "session_id", view->id);
        json_kv_text(&json, "session_name", session_name(view));
        json_kv_text(&json, "session_type", start->type);
    }
    (void)hub_send(hub, &json);
}

/* The same row that a request leaves. */
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
    start->row = (struct audit){ .at_ms = clock_wall_ms(),
                                 .tenant = start->tenant,
                                 .actor = start->who,
                                 .role = start->row.role,
                                 .action = "exec.create",
                                 .object = arena_printf(&start->arena, "exec/%s", view.id),
                                 .outcome = "ok",
                                 .request_id = "",
                                 .peer = start->row.peer,
                                 .detail = arena_memdup0(&start->arena, text.data, text.len) };
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
        tap_open(hub, op->exec, start->agent, false);
    }
    start_free(start);
}

static struct start *start_new(struct hub *hub, const char *agent, const char *reply)
{
    struct start *start = xnew(struct start);

    start->hub = hub;
    start->reply = reply;
    snprintf(start->agent, sizeof(start->agent), "%s", agent);
    snprintf(start->who, sizeof(start->who), "%s", hub->socket.who.id);
    snprintf(start->tenant, sizeof(start->tenant), "%s", hub->socket.who.tenant);
    start->row.role = role_name(hub->socket.who.role);
    start->row.peer = arena_strdup(&start->arena, ws_peer(hub->socket.ws)->text);
    start->op = (struct box_op){ .tenant = start->tenant,
                                 .by = start->who,
                                 .prepare = start_prepare,
                                 .record = start_record,
                                 .done = start_done };
    list_append(&hub->starts, &start->node);
    return start;
}

static int start_exec(struct start *start, struct err *err)
{
    if (box_exec(start->box, &start->spec, &start->op, err) == 0)
        return 0;
    start_free(start);
    return -1;
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
    start->wake = (struct box_op){ .tenant = start->tenant, .by = start->who, .done = start_woken };
    int awake = box_wake(box, &start->wake, err);
    if (awake > 0)
        return start_exec(start, err);
    if (awake < 0)
        start_free(start);
    return awake;
}

/* argv of a message: command and args. */
static const char **argv_of(struct arena *arena, const struct json *json, const char *otherwise)
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

    if (check_may_use(hub, err) < 0 || find_agent(hub, agent, box, err) < 0)
        return -1;
    box_view(*box, view);
    return 0;
}

int hub_send_command(struct hub *hub, const struct json *json, struct err *err)
{
    struct sandbox_view view;
    struct box *box;

    if (open_agent(hub, json, &box, &view, err) < 0)
        return -1;
    struct start *start = start_new(hub, hub_text(hub, json, "agent_id"), "command_started");
    struct exec_spec spec = { .argv = argv_of(&start->arena, json, ""),
                              .stdin_open = true,
                              .cwd = session_cwd(NULL, strcmp(view.user, "root") == 0) };
    return start_go(start, box, &spec, err);
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
    tap_open(hub, exec, start->agent, false);
    start_free(start);
    return true;
}

int hub_start_shell(struct hub *hub, const struct json *json, struct err *err)
{
    struct exec_spec spec = { .tty = true, .name = "main" };
    struct sandbox_view view;
    struct box *box;

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

int hub_create_session(struct hub *hub, const struct json *json, struct err *err)
{
    const char *name = hub_text(hub, json, "session_name"),
               *type = hub_text(hub, json, "session_type");
    struct exec_spec spec = { 0 };
    struct sandbox_view view;
    struct box *box;

    bool headless = strcmp(type, "headless") == 0;
    if (!headless && *type && strcmp(type, "interactive") != 0 && strcmp(type, "background") != 0)
        return err_set(err, ERR_INVALID,
                       "session_type '%.32s' is none of interactive, headless, background", type);
    if (!*name)
        return err_set(err, ERR_INVALID, "session_name is missing");
    if (open_agent(hub, json, &box, &view, err) < 0 ||
        (!headless && size_of(json, &spec.rows, &spec.cols, err) < 0))
        return -1;
    struct start *start = start_new(hub, hub_text(hub, json, "agent_id"), "session_created");
    start->type = headless                          ? "headless"
                  : strcmp(type, "background") == 0 ? "background"
                                                    : "interactive";
    spec.argv = argv_of(&start->arena, json, "bash");
    spec.name = arena_strdup(&start->arena, name);
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

    if (find_agent(hub, hub_text(hub, json, "agent_id"), &box, err) < 0)
        return -1;
    *out = session_named(box, name, true);
    return *out ? 0 : err_set(err, ERR_NOT_FOUND, "Session '%.64s' not found", name);
}

static void answer_session(struct hub *hub, const char *type, const struct json *json,
                           const struct exec_view *view)
{
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, type);

    json_kv_text(&reply, "agent_id", hub_text(hub, json, "agent_id"));
    json_kv_text(&reply, "session_name", hub_text(hub, json, "session_name"));
    if (view) {
        json_kv_text(&reply, "command_id", view->id);
        json_kv_text(&reply, "session_id", view->id);
    }
    (void)hub_send(hub, &reply);
}

/* Typing past a lease that somebody else holds is refused here as well. */
static int check_free(struct hub *hub, struct box_exec *exec, struct err *err)
{
    struct box_term *term = box_exec_term(exec);
    struct exec_view view;

    box_exec_view(exec, &view);
    if (check_may_use(hub, err) < 0)
        return -1;
    if (term && term_controllers(term) >= term_lease_count(term) && !hub_controls(hub, view.id))
        return err_set(err, ERR_FORBIDDEN, "somebody else controls this session");
    return 0;
}

int hub_attach_session(struct hub *hub, const struct json *json, struct err *err)
{
    struct box_exec *exec;
    struct exec_view view;
    int64_t rows, cols;

    if (named(hub, json, &exec, err) < 0)
        return -1;
    box_exec_view(exec, &view);
    if (view.tty && json_get(json, "cols")) {
        if (size_of(json, &rows, &cols, err) < 0 || check_free(hub, exec, err) < 0 ||
            box_exec_resize(exec, (unsigned)MIN(rows, (int64_t)SCREEN_ROWS_MAX),
                            (unsigned)MIN(cols, (int64_t)SCREEN_COLS_MAX), err) < 0)
            return -1;
    }
    answer_session(hub, "session_attached", json, &view);
    tap_open(hub, exec, hub_text(hub, json, "agent_id"), false);
    return 0;
}

int hub_detach_session(struct hub *hub, const struct json *json, struct err *err)
{
    (void)err;
    answer_session(hub, "session_detached", json, NULL);
    return 0;
}

int hub_kill_session(struct hub *hub, const struct json *json, struct err *err)
{
    struct box_exec *exec;
    struct exec_view view;

    if (named(hub, json, &exec, err) < 0 || check_may_use(hub, err) < 0 ||
        box_exec_kill(exec, hub->socket.who.id, err) < 0)
        return -1;
    box_exec_view(exec, &view);
    answer_session(hub, "session_killed", json, &view);
    return 0;
}

static int by_command(struct hub *hub, const struct json *json, struct box_exec **out,
                      struct err *err)
{
    struct err ignored;
    struct box *box;

    if (find_agent(hub, hub_text(hub, json, "agent_id"), &box, err) < 0)
        return -1;
    if (box_exec_find(box, hub_text(hub, json, "command_id"), out, &ignored) < 0)
        return err_set(err, ERR_NOT_FOUND, "Command not found");
    return check_free(hub, *out, err);
}

int hub_send_input(struct hub *hub, const struct json *json, struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "input_sent");
    struct box_exec *exec;

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
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "pong");
    struct box_exec *exec;
    int64_t rows, cols;

    if (by_command(hub, json, &exec, err) < 0 || size_of(json, &rows, &cols, err) < 0 ||
        box_exec_resize(exec, (unsigned)MIN(rows, (int64_t)SCREEN_ROWS_MAX),
                        (unsigned)MIN(cols, (int64_t)SCREEN_COLS_MAX), err) < 0)
        return -1;
    json_kv_int(&reply, "timestamp", 0);
    (void)hub_send(hub, &reply);
    return 0;
}

/* ---- with the connection ---- */

void taps_init(struct hub *hub)
{
    list_init(&hub->taps);
    list_init(&hub->subscriptions);
    list_init(&hub->starts);
    hub->look.fn = look;
    pulse_init(hub);
}

void taps_drained(struct hub *hub)
{
    list_each_safe (pos, &hub->taps) {
        struct tap *tap = list_entry(pos, struct tap, node);

        tap->waiting = false;
        (void)tap_pump(tap);
    }
}

void taps_free(struct hub *hub)
{
    struct list *node;

    timer_cancel(hub->socket.api->loop, &hub->look);
    pulse_free(hub);
    while (!list_empty(&hub->taps))
        tap_free(list_entry(hub->taps.next, struct tap, node));
    while ((node = list_pop(&hub->subscriptions)))
        free(list_entry(node, struct subscription, node));
    while ((node = list_pop(&hub->starts))) /* start_done frees them */
        list_entry(node, struct start, node)->hub = NULL;
}
