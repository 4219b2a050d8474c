/* See target.h. Every function has one branch for each kind, and nobody else has any. */
#include "api/target.h"

#include <stdio.h>

#include "api/session.h"
#include "base/clock.h"
#include "box/boxes.h"
#include "box/term.h"
#include "link/links.h"
#include "model/sandbox.h"

#define COMMAND_LINE_MAX 4096 /* of a command's arguments in one text */

/* ---- finding ---- */

int target_find(const struct api *api, struct reach reach, const char *name, struct target *out,
                struct err *err)
{
    struct target found = { 0 };

    if (links_find(api->links, reach, name, &found.linked, NULL) < 0 &&
        boxes_find(api->boxes, reach, name, &found.box, NULL) < 0)
        return err_set(err, ERR_NOT_FOUND, "Agent '%.63s' not found", name);
    *out = found;
    return 0;
}

int call_target(struct call *call, struct target *out, struct err *err)
{
    return target_find(call->api, call_reach(call), call_param(call, "id"), out, err);
}

bool target_next(const struct api *api, struct reach reach, struct target *at)
{
    if (!at->box && (at->linked = links_next(api->links, reach, at->linked)))
        return true;
    at->box = boxes_next(api->boxes, reach, at->box);
    return at->box != NULL;
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

/*
 * The end of process 1 is known at once, so a sandbox that runs was alive just now; one that does
 * not run was alive until its state changed. Its id is its host name.
 */
static struct agent_view view_of_box(const struct box *box)
{
    struct sandbox_view view;

    box_view(box, &view);
    bool runs = strcmp(view.state, "running") == 0;
    return (struct agent_view){ .id = agent_name(&view),
                                .instance_id = view.id,
                                .hostname = view.id,
                                .ip_address = "127.0.0.1",
                                .profile = view.image,
                                .status = status_of(&view),
                                .connected_at = view.created_at,
                                .last_heartbeat = runs ? clock_wall_ms() : view.changed_at,
                                .runtime = "sandbox",
                                .crash_loop = view.crash_loop };
}

void target_view(const struct target *target, struct agent_view *out)
{
    if (target->linked)
        linked_view(target->linked, out);
    else
        *out = view_of_box(target->box);
}

/* ---- commands: looking ---- */

int target_command(const struct target *target, const char *id, struct printed *out,
                   struct err *err)
{
    struct printed found = { 0 };

    if (target->linked ? linked_command(target->linked, id, &found.linked, err) < 0
                       : box_exec_find(target->box, id, &found.exec, err) < 0)
        return -1;
    *out = found;
    return 0;
}

bool target_command_next(const struct target *target, struct printed *at)
{
    if (target->linked)
        at->linked = linked_next(target->linked, at->linked);
    else
        at->exec = box_exec_next(target->box, at->exec);
    return at->linked || at->exec;
}

static const char *line_of(struct arena *arena, const char **argv)
{
    autobuf struct buf line = { .max = COMMAND_LINE_MAX };

    for (const char **arg = argv; arg && *arg; arg++) {
        buf_puts(&line, arg == argv ? "" : " ");
        buf_puts(&line, *arg);
    }
    return arena_memdup0(arena, line.data, line.len);
}

static const char *error_of(const struct exec_view *view)
{
    if (strcmp(view->state, "lost") == 0)
        return "the sandbox ended before the command did";
    return view->oom ? "out of memory" : view->timed_out ? "Command timed out" : NULL;
}

void target_command_view(const struct printed *command, struct arena *arena,
                         struct command_view *out)
{
    struct exec_view view;

    if (command->linked) {
        command_view(command->linked, out);
        return;
    }
    box_exec_view(command->exec, &view);
    bool ended = box_exec_ended(command->exec);
    *out = (struct command_view){ .command_id = view.id,
                                  .agent_id = view.sandbox,
                                  .state = ended ? view.state : "running",
                                  .command = line_of(arena, view.argv),
                                  .error = error_of(&view),
                                  .by = view.by,
                                  .session_name = view.name,
                                  .pty = view.tty,
                                  .background = view.background,
                                  .exit_code = ended ? view.exit_code : -1,
                                  .duration_ms = ended ? view.ended_at - view.started_at : 0,
                                  .stdout_bytes = view.stdout_bytes,
                                  .stderr_bytes = view.stderr_bytes,
                                  .started_at = view.started_at,
                                  .ended_at = view.ended_at };
}

/* ---- commands: running ---- */

static void link_prepare(struct link_op *op)
{
    struct target_run *run = container_of(op, struct target_run, link_op);

    run->command = (struct printed){ .linked = op->command };
    if (run->prepare)
        run->prepare(run);
}

static int link_record(struct link_op *op, struct db *db, struct err *err)
{
    struct target_run *run = container_of(op, struct target_run, link_op);

    return run->record ? run->record(run, db, err) : 0;
}

static void link_done(struct link_op *op, const struct err *err)
{
    struct target_run *run = container_of(op, struct target_run, link_op);

    run->command = (struct printed){ .linked = op->command };
    run->done(run, err);
}

static void box_prepare(struct box_op *op)
{
    struct target_run *run = container_of(op, struct target_run, box_op);

    run->command = (struct printed){ .exec = op->exec };
    if (run->prepare)
        run->prepare(run);
}

static int box_record(struct box_op *op, struct db *db, struct err *err)
{
    struct target_run *run = container_of(op, struct target_run, box_op);

    return run->record ? run->record(run, db, err) : 0;
}

/* The program is named by the field `command` here. */
static void rename_field(struct err *err)
{
    if (strncmp(err->field, "argv", 4) == 0)
        snprintf(err->field, sizeof(err->field), "command");
}

static void box_done(struct box_op *op, const struct err *err)
{
    struct target_run *run = container_of(op, struct target_run, box_op);
    struct err failed = { 0 };

    run->command = (struct printed){ .exec = op->exec };
    if (err) {
        failed = *err;
        rename_field(&failed);
    }
    run->done(run, err ? &failed : NULL);
}

static int begin_in_box(struct target_run *run, struct err *err)
{
    if (box_exec(run->box, &run->spec, &run->box_op, err) == 0)
        return 0;
    rename_field(err);
    return -1;
}

static void box_woken(struct box_op *op, const struct err *failed)
{
    struct target_run *run = container_of(op, struct target_run, wake);
    struct err err = { 0 };

    if (failed)
        run->done(run, failed);
    else if (begin_in_box(run, &err) < 0)
        run->done(run, &err);
}

/* As a linked agent does it: a terminal without arguments is for a line. */
static const char **argv_of(const struct command_wish *wish, struct arena *arena)
{
    size_t argc = 0, at = 0;
    bool line;

    while (wish->args && wish->args[argc])
        argc++;
    line = wish->allocate_pty && !argc;
    const char **argv = arena_alloc(arena, (argc + 4) * sizeof(*argv));
    if (line) {
        argv[at++] = "bash";
        argv[at++] = "-c";
    }
    argv[at++] = wish->command;
    for (size_t i = 0; i < argc; i++)
        argv[at++] = wish->args[i];
    argv[at] = NULL;
    return argv;
}

static int spec_of(const struct box *box, const struct command_wish *wish, struct arena *arena,
                   struct exec_spec *out, struct err *err)
{
    const char *user = wish->run_as && wish->run_as[0] ? wish->run_as : NULL;
    struct sandbox_view view;

    box_view(box, &view);
    if (user && strcmp(user, "agent") != 0 && strcmp(user, "root") != 0)
        return err_field(err, "run_as", "must be agent or root in a sandbox");
    user = user ? user : view.user;
    *out = (struct exec_spec){ .argv = argv_of(wish, arena),
                               .cwd = session_cwd(wish->working_dir, strcmp(user, "root") == 0),
                               .user = user,
                               .env = wish->env,
                               .tty = wish->allocate_pty,
                               .stdin_open = true,
                               .background = wish->background,
                               .timeout_ms = wish->timeout_seconds * 1000,
                               .name = wish->session_name };
    if (wish->allocate_pty) {
        out->rows = wish->pty_rows;
        out->cols = wish->pty_cols;
    }
    return 0;
}

static int run_in_box(struct box *box, const struct command_wish *wish, struct arena *arena,
                      struct target_run *run, struct err *err)
{
    if (spec_of(box, wish, arena, &run->spec, err) < 0)
        return -1;
    run->box = box;
    run->box_op = (struct box_op){ .tenant = run->tenant,
                                   .by = run->by,
                                   .prepare = box_prepare,
                                   .record = box_record,
                                   .done = box_done };
    run->wake = (struct box_op){ .tenant = run->tenant, .by = run->by, .done = box_woken };
    box_touch(box);
    int awake = box_wake(box, &run->wake, err);
    return awake > 0 ? begin_in_box(run, err) : awake;
}

int target_run(const struct target *target, const struct command_wish *wish, struct arena *arena,
               struct target_run *run, struct err *err)
{
    if (target->box)
        return run_in_box(target->box, wish, arena, run, err);
    run->link_op = (struct link_op){ .tenant = run->tenant,
                                     .by = run->by,
                                     .prepare = link_prepare,
                                     .record = link_record,
                                     .done = link_done };
    return linked_run(target->linked, wish, &run->link_op, err);
}

/* ---- input and signals of commands ---- */

/* Nothing waits for the end of input to arrive. */
static void input_room(struct box_input *input)
{
    (void)input;
}

static int box_close_input(struct box_exec *exec, struct err *err)
{
    struct box_input input = { .room = input_room, .at = -1 };

    if (box_input_begin(exec, &input, err) < 0)
        return -1;
    box_input_eof(&input);
    box_input_end(&input);
    return 0;
}

int target_input(struct printed *command, struct str data, bool eof, struct err *err)
{
    if (command->linked)
        return command_input(command->linked, data, eof, err);
    struct box_term *term = box_exec_term(command->exec);
    if (term && term_controllers(term) >= term_lease_count(term))
        return err_set(err, ERR_CONFLICT, "somebody else controls this terminal");
    if (data.n && box_exec_type(command->exec, data, err) < 0)
        return -1;
    return eof ? box_close_input(command->exec, err) : 0;
}

int target_signal(struct printed *command, int number, struct box_op *op, struct err *err)
{
    if (command->linked)
        return command_signal(command->linked, number, err);
    return box_exec_signal(command->exec, number, true, op, err) < 0 ? -1 : 1;
}

int target_resize(struct printed *command, unsigned rows, unsigned cols, struct err *err)
{
    return command->linked ? command_resize(command->linked, rows, cols, err)
                           : box_exec_resize(command->exec, rows, cols, err);
}
