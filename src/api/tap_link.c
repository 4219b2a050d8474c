/*
 * Commands of linked agents on agentic's socket, in the same messages as those of sandboxes. Their
 * numbers are UUIDs and their output is tapped from its spool (tap.c), so it is told whoever began
 * them and goes on after a cut. What changes something leaves a row, as the requests do.
 */
#include <stdio.h>

#include "api/tap.h"
#include "base/clock.h"
#include "base/log.h"

#define HANGUP_KILL 9
#define TERMINATE 15
#define SESSION_NAME_MAX 63

/* A command that was asked for and whose row is not stored yet. */
struct link_start {
    struct link_op op;
    struct list node;
    struct hub *hub; /* NULL: the connection is gone */
    struct arena arena;
    const char *agent, *command, *name, *reply, *type;
    struct audit row;
};

struct linked *tap_linked(struct hub *hub, const struct json *json)
{
    struct linked *agent;

    if (links_find(hub->socket.api->links, principal_reach(&hub->socket.who),
                   hub_text(hub, json, "agent_id"), &agent, NULL) < 0)
        return NULL;
    return agent;
}

static const char *name_of(const struct command_view *view)
{
    return view->session_name ? view->session_name : view->command_id;
}

struct link_command *link_named(const struct linked *agent, const char *name)
{
    struct link_command *found = NULL;

    for (struct link_command *command = NULL; (command = linked_next(agent, command));) {
        struct command_view view;

        command_view(command, &view);
        if (!command_ended(command) &&
            (strcmp(name_of(&view), name) == 0 || strcmp(view.command_id, name) == 0))
            found = command;
    }
    return found;
}

static int find_named(struct hub *hub, const struct linked *agent, const struct json *json,
                      struct link_command **out, struct err *err)
{
    const char *name = hub_text(hub, json, "session_name");

    *out = link_named(agent, name);
    return *out ? 0 : err_set(err, ERR_NOT_FOUND, "Session '%.64s' not found", name);
}

void link_put_sessions(struct json_out *json, const struct linked *agent)
{
    for (struct link_command *command = NULL; (command = linked_next(agent, command));) {
        struct command_view view;

        command_view(command, &view);
        if (!command_ended(command))
            tap_put_session(json, view.command_id, name_of(&view),
                            session_type(view.pty, view.background), view.command);
    }
}

/* ---- starting ---- */

static void start_free(struct link_start *start)
{
    list_remove(&start->node);
    arena_free(&start->arena);
    free(start);
}

static int start_record(struct link_op *op, struct db *db, struct err *err)
{
    return audit_add(db, &container_of(op, struct link_start, op)->row, err);
}

static void say_started(struct hub *hub, const struct link_start *start,
                        struct link_command *command)
{
    struct command_view view;

    command_view(command, &view);
    tap_say_started(hub, &(struct tap_begun){
                             .reply = start->reply,
                             .type = start->type ? session_type(view.pty, view.background) : NULL,
                             .agent = start->agent,
                             .id = view.command_id,
                             .name = name_of(&view),
                             .command = start->command });
    tap_command(hub, command);
}

static void start_done(struct link_op *op, const struct err *err)
{
    struct link_start *start = container_of(op, struct link_start, op);
    struct hub *hub = start->hub;

    if (hub && err)
        hub_error(hub, err->msg);
    else if (hub && op->command)
        say_started(hub, start, op->command);
    start_free(start);
}

int link_check_wish(struct command_wish *wish, struct err *err)
{
    size_t count = 0;

    while (wish->args && wish->args[count])
        if (strlen(wish->args[count++]) > LINK_WORD_MAX || count > LINK_ARGS_MAX)
            return err_set(err, ERR_LIMIT, "more arguments, or longer ones, than a command takes");
    if (!wish->command[0] || strlen(wish->command) > LINK_WORD_MAX)
        return err_set(err, ERR_INVALID, "command is missing or too long");
    if (wish->session_name && strlen(wish->session_name) > SESSION_NAME_MAX)
        return err_set(err, ERR_INVALID, "session_name is longer than %d bytes", SESSION_NAME_MAX);
    if (wish->working_dir && strlen(wish->working_dir) > 4095)
        return err_set(err, ERR_INVALID, "working_dir is too long");
    return command_wish_settle(wish, err);
}

static struct link_start *start_new(struct hub *hub, const struct linked *agent, const char *reply)
{
    struct link_start *start = xnew(struct link_start);
    struct agent_view view;

    linked_view(agent, &view);
    start->hub = hub;
    start->reply = reply;
    start->agent = arena_strdup(&start->arena, view.id);
    start->row = tap_row(hub, &start->arena, "command.create");
    start->row.object = arena_printf(&start->arena, "agent/%s", view.id);
    start->op = (struct link_op){ .tenant = start->row.tenant,
                                  .by = start->row.actor,
                                  .record = start_record,
                                  .done = start_done };
    list_append(&hub->link_starts, &start->node);
    return start;
}

/* Takes `start`. */
static int start_go(struct link_start *start, struct linked *agent, struct command_wish *wish,
                    struct err *err)
{
    start->command = wish->command;
    if (link_check_wish(wish, err) == 0 && linked_run(agent, wish, &start->op, err) == 0)
        return 0;
    start_free(start);
    return -1;
}

/* A terminal that runs already under this name: told, and tapped. */
static bool reuse(struct hub *hub, const struct linked *agent, struct link_start *start,
                  const char *name)
{
    struct link_command *command = link_named(agent, name);
    struct command_view view = { 0 };

    if (command)
        command_view(command, &view);
    if (!command || !view.pty)
        return false;
    start->command = view.command;
    say_started(hub, start, command);
    start_free(start);
    return true;
}

int link_send_command(struct hub *hub, struct linked *agent, const struct json *json,
                      struct err *err)
{
    if (tap_may_use(hub, err) < 0)
        return -1;
    struct link_start *start = start_new(hub, agent, "command_started");
    const char **argv = tap_argv(&start->arena, json, "");
    struct command_wish wish = { .command = argv[0], .args = argv + 1 };
    return start_go(start, agent, &wish, err);
}

int link_start_shell(struct hub *hub, struct linked *agent, const struct json *json,
                     struct err *err)
{
    struct command_wish wish = { .command = "bash", .allocate_pty = true, .session_name = "main" };

    if (tap_may_use(hub, err) < 0 || size_of(json, &wish.pty_rows, &wish.pty_cols, err) < 0)
        return -1;
    struct link_start *start = start_new(hub, agent, "shell_started");
    return reuse(hub, agent, start, "main") ? 0 : start_go(start, agent, &wish, err);
}

int link_create_session(struct hub *hub, struct linked *agent, const struct json *json,
                        struct err *err)
{
    const char *name = hub_text(hub, json, "session_name"),
               *dir = hub_text(hub, json, "working_dir");
    const char *type = tap_session_type(hub, json, err);
    struct command_wish wish = { .working_dir = *dir ? dir : NULL, .session_name = name };

    if (!type || tap_may_use(hub, err) < 0)
        return -1;
    wish.allocate_pty = strcmp(type, "headless") != 0;
    wish.background = strcmp(type, "background") == 0;
    if (wish.allocate_pty && size_of(json, &wish.pty_rows, &wish.pty_cols, err) < 0)
        return -1;
    struct link_start *start = start_new(hub, agent, "session_created");
    start->type = type;
    if (wish.allocate_pty && reuse(hub, agent, start, name))
        return 0;
    struct link_command *old = wish.allocate_pty ? NULL : link_named(agent, name);
    const char **argv = tap_argv(&start->arena, json, "bash");
    wish.command = argv[0];
    wish.args = argv + 1;
    if (start_go(start, agent, &wish, err) < 0)
        return -1;
    if (old) /* one of this name is replaced */
        (void)!command_signal(old, TERMINATE, NULL);
    return 0;
}

void link_starts_free(struct hub *hub)
{
    struct list *node;

    while ((node = list_pop(&hub->link_starts))) /* start_done frees them */
        list_entry(node, struct link_start, node)->hub = NULL;
}

/* ---- what runs ---- */

/* A row of its own, for what has no other. */
struct noting {
    struct store_job job;
    struct arena arena;
    struct audit row;
};

static int note_run(struct store_job *job, struct db *db, struct err *err)
{
    return audit_add(db, &container_of(job, struct noting, job)->row, err);
}

static void note_done(struct store_job *job)
{
    struct noting *noting = container_of(job, struct noting, job);

    if (job->rc < 0)
        log_error("what was done to a linked command is not on record",
                  kv_str("error", job->err.msg));
    arena_free(&noting->arena);
    free(noting);
}

static void note(struct hub *hub, const char *action, const struct command_view *view)
{
    struct noting *noting = xnew(struct noting);

    noting->row = tap_row(hub, &noting->arena, action);
    noting->row.object = arena_printf(&noting->arena, "agent/%s", view->agent_id);
    noting->row.detail = arena_printf(&noting->arena, "{\"command\":\"%s\"}", view->command_id);
    noting->job = (struct store_job){ .run = note_run, .done = note_done };
    store_write(hub->socket.api->store, &noting->job);
}

int link_attach_session(struct hub *hub, struct linked *agent, const struct json *json,
                        struct err *err)
{
    struct link_command *command;
    struct command_view view;
    int64_t rows, cols;

    if (find_named(hub, agent, json, &command, err) < 0)
        return -1;
    command_view(command, &view);
    if (view.pty && json_get(json, "cols") &&
        (tap_may_use(hub, err) < 0 || size_of(json, &rows, &cols, err) < 0 ||
         command_resize(command, (unsigned)MIN(rows, (int64_t)SCREEN_ROWS_MAX),
                        (unsigned)MIN(cols, (int64_t)SCREEN_COLS_MAX), err) < 0))
        return -1;
    tap_answer(hub, "session_attached", json, view.command_id);
    tap_command(hub, command);
    return 0;
}

int link_kill_session(struct hub *hub, struct linked *agent, const struct json *json,
                      struct err *err)
{
    struct link_command *command;
    struct command_view view;

    if (tap_may_use(hub, err) < 0 || find_named(hub, agent, json, &command, err) < 0)
        return -1;
    command_view(command, &view);
    if (command_signal(command, HANGUP_KILL, err) < 0)
        return -1;
    note(hub, "command.signal", &view);
    tap_answer(hub, "session_killed", json, view.command_id);
    return 0;
}

static int by_id(struct hub *hub, struct linked *agent, const struct json *json,
                 struct link_command **out, struct err *err)
{
    if (tap_may_use(hub, err) < 0)
        return -1;
    if (linked_command(agent, hub_text(hub, json, "command_id"), out, NULL) < 0 ||
        command_ended(*out))
        return err_set(err, ERR_NOT_FOUND, "Command not found");
    return 0;
}

int link_send_input(struct hub *hub, struct linked *agent, const struct json *json, struct err *err)
{
    struct str data = json_text(json, "data");
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "input_sent");
    struct link_command *command;

    if (by_id(hub, agent, json, &command, err) < 0)
        return -1;
    if (data.n > LINK_STDIN_MAX)
        return err_set(err, ERR_LIMIT, "at most %d bytes at once", LINK_STDIN_MAX);
    if (command_input(command, data, false, err) < 0)
        return -1;
    json_kv_text(&reply, "agent_id", hub_text(hub, json, "agent_id"));
    json_kv_text(&reply, "command_id", hub_text(hub, json, "command_id"));
    (void)hub_send(hub, &reply);
    return 0;
}

int link_pty_resize(struct hub *hub, struct linked *agent, const struct json *json, struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "pong");
    struct link_command *command;
    int64_t rows, cols;

    if (by_id(hub, agent, json, &command, err) < 0 || size_of(json, &rows, &cols, err) < 0 ||
        command_resize(command, (unsigned)MIN(rows, (int64_t)SCREEN_ROWS_MAX),
                       (unsigned)MIN(cols, (int64_t)SCREEN_COLS_MAX), err) < 0)
        return -1;
    json_kv_int(&reply, "timestamp", 0);
    (void)hub_send(hub, &reply);
    return 0;
}
