/*
 * Terminals: commands with a PTY, under their own paths. Starting, signals and sizes are those of
 * any command (exec.c); what is more is who watches (terminal_ws.c), the screen that the server
 * keeps, and the recording (terminal_cast.c).
 */
#include "api/terminal.h"

#include "term/screen.h"

struct terminal_view {
    const char *id, *sandbox, *name, *state, *cwd, *user, *by;
    const char **argv;
    int64_t rows, cols, pid, exit_code, signal;
    int64_t begin, end, viewers, controllers, max_controllers, lease_ms;
    int64_t started_at, ended_at;
};

static const struct field terminal_fields[] = {
    FIELD(terminal_view, id, F_STRING, F_READONLY, .help = "ex…, as of the command it is"),
    FIELD(terminal_view, sandbox, F_STRING, F_READONLY, .help = "Where it runs"),
    FIELD(terminal_view, name, F_STRING, F_READONLY, .help = "If it was given one"),
    FIELD(terminal_view, state, F_STRING, F_READONLY, .help = "running, exited or lost"),
    FIELD(terminal_view, argv, F_STRINGS, F_READONLY, .help = "Program and arguments"),
    FIELD(terminal_view, cwd, F_STRING, F_READONLY, .help = "Working directory"),
    FIELD(terminal_view, user, F_STRING, F_READONLY, .help = "Who runs it"),
    FIELD(terminal_view, rows, F_INT, F_READONLY, .help = "Its size now"),
    FIELD(terminal_view, cols, F_INT, F_READONLY, .help = "Its size now"),
    FIELD(terminal_view, begin, F_INT, F_READONLY, .help = "The oldest byte that is kept"),
    FIELD(terminal_view, end, F_INT, F_READONLY, .help = "Bytes printed so far"),
    FIELD(terminal_view, viewers, F_INT, F_READONLY, .help = "Who is attached, controllers too"),
    FIELD(terminal_view, controllers, F_INT, F_READONLY, .help = "Who may type now"),
    FIELD(terminal_view, max_controllers, F_INT, F_READONLY, .help = "And how many may at once"),
    FIELD(terminal_view, lease_ms, F_INT, F_READONLY,
          .help = "Who types nothing for this long becomes an observer"),
    FIELD(terminal_view, pid, F_INT, F_READONLY, .help = "Process id inside"),
    FIELD(terminal_view, exit_code, F_INT, F_READONLY,
          .help = "As a shell says it (128 + signal); -1 until it has exited"),
    FIELD(terminal_view, signal, F_INT, F_READONLY, .help = "That ended it, or 0"),
    FIELD(terminal_view, by, F_STRING, F_READONLY, .help = "Who started it"),
    FIELD(terminal_view, started_at, F_TIME, F_READONLY, .help = "When it was started"),
    FIELD(terminal_view, ended_at, F_TIME, F_READONLY, .help = "When it ended; null until then"),
    { 0 },
};

static void view_of(struct box_exec *exec, struct terminal_view *out)
{
    struct box_term *term = box_exec_term(exec);
    struct exec_view view;
    uint64_t begin, end;
    unsigned rows, cols;

    box_exec_view(exec, &view);
    box_exec_range(exec, INIT_OUT, &begin, &end);
    term_size(term, &rows, &cols);
    *out = (struct terminal_view){ .id = view.id,
                                   .sandbox = view.sandbox,
                                   .name = view.name,
                                   .state = view.state,
                                   .argv = view.argv,
                                   .cwd = view.cwd,
                                   .user = view.user,
                                   .by = view.by,
                                   .rows = rows,
                                   .cols = cols,
                                   .begin = (int64_t)begin,
                                   .end = (int64_t)end,
                                   .viewers = term_viewers(term),
                                   .controllers = term_controllers(term),
                                   .max_controllers = term_lease_count(term),
                                   .lease_ms = term_lease_ms(term),
                                   .pid = view.pid,
                                   .exit_code = view.exit_code,
                                   .signal = view.signal,
                                   .started_at = view.started_at,
                                   .ended_at = view.ended_at };
}

/* ---- finding ---- */

int terminal_find(struct box *box, const char *text, struct box_exec **out, struct err *err)
{
    struct box_exec *named = NULL;
    struct exec_view view;
    struct err why = { 0 };

    for (struct box_exec *exec = NULL; (exec = box_exec_next(box, exec));) {
        box_exec_view(exec, &view);
        if (strcmp(view.id, text) == 0 && view.tty) {
            *out = exec;
            return 0;
        }
        if (view.tty && view.name && strcmp(view.name, text) == 0)
            named = exec; /* the newest: an older one of this name has ended */
    }
    if (!named && box_exec_find_prefix(box, text, &named, &why) < 0 && why.code == ERR_CONFLICT)
        return err_set(err, ERR_CONFLICT, "%s", why.msg);
    if (!named || !box_exec_term(named))
        return err_set(err, ERR_NOT_FOUND, "no terminal %.64s in this sandbox", text);
    *out = named;
    return 0;
}

int call_terminal(struct call *call, struct box_exec **out, struct err *err)
{
    struct exec_view view;
    struct box *box;

    if (call_box(call, &box, err) < 0 || terminal_find(box, call_param(call, "tid"), out, err) < 0)
        return -1;
    box_exec_view(*out, &view);
    return call_whole(call, "tid", view.id, view.name, err);
}

/* ---- changes ---- */

static void prepare(struct box_op *op)
{
    struct call *call = call_of(op);
    struct terminal_view view;

    view_of(op->exec, &view);
    buf_clear(&call->reply);
    call_reply(call, &view);
    call_exec_audit(call, op->exec);
}

static struct box_op *op_new(struct call *call)
{
    struct box_op *op = call_op(call);

    op->prepare = prepare; /* answered with the terminal instead */
    return op;
}

void shell_unless_said(struct exec_spec *spec)
{
    static const char *argv[] = { "/bin/sh", "-c",
                                  "command -v bash >/dev/null && exec bash -l; exec sh -l", NULL };

    if (!spec->argv && !spec->command)
        spec->argv = argv;
}

static int terminal_post(struct call *call, struct err *err)
{
    struct exec_spec spec = { 0 };
    struct box *box;

    if (call_box(call, &box, err) < 0 || call_decode(call, &spec, err) < 0)
        return -1;
    spec.tty = true;
    shell_unless_said(&spec);
    return box_exec(box, &spec, op_new(call), err);
}

static int terminal_get(struct call *call, struct err *err)
{
    struct terminal_view view;
    struct box_exec *exec;

    if (call_terminal(call, &exec, err) < 0)
        return -1;
    view_of(exec, &view);
    return call_reply(call, &view);
}

static int terminal_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct box_exec *exec = NULL;
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    json_open_list(&json, "items");
    while ((exec = box_exec_next(box, exec))) {
        struct terminal_view view;

        if (!box_exec_term(exec))
            continue;
        view_of(exec, &view);
        field_encode(terminal_fields, &view, &json);
    }
    json_close_list(&json);
    return 0;
}

static int terminal_signal(struct call *call, struct err *err)
{
    struct signal_wish wish = { 0 };
    struct box_exec *exec;

    int number = call_terminal(call, &exec, err) < 0 ? -1 : call_signal(call, &wish, err);

    if (number < 0)
        return -1;
    return box_exec_signal(exec, number, wish.tree, op_new(call), err);
}

static int terminal_kill(struct call *call, struct err *err)
{
    struct box_exec *exec;

    if (call_terminal(call, &exec, err) < 0)
        return -1;
    return box_exec_signal(exec, 9, true, op_new(call), err);
}

static int terminal_resize(struct call *call, struct err *err)
{
    struct resize_wish wish = { 0 };
    struct box_exec *exec;

    if (call_terminal(call, &exec, err) < 0 || call_decode(call, &wish, err) < 0 ||
        box_exec_resize(exec, (unsigned)wish.rows, (unsigned)wish.cols, err) < 0)
        return -1;
    box_input_note(exec, op_new(call));
    return 0;
}

/* ---- the screen ---- */

static void put_screen(struct call *call, const struct screen *screen, struct box_exec *exec,
                       uint64_t position, bool cells)
{
    struct json_out json = call_json(call);
    struct screen_cursor cursor = screen_cursor(screen);
    autobuf struct buf text = { 0 }, above = { 0 };
    struct exec_view view;

    box_exec_view(exec, &view);
    json_open(&json, '{');
    json_kv_text(&json, "terminal", view.id);
    json_kv_text(&json, "state", view.state);
    json_kv_int(&json, "position", (int64_t)position);
    json_kv_int(&json, "rows", screen_rows(screen));
    json_kv_int(&json, "cols", screen_cols(screen));
    if (cells) {
        json_key(&json, "screen");
        screen_json(screen, &json);
    } else {
        screen_text(screen, &text);
        screen_scrollback_text(screen, SCREEN_TAIL, &above);
        json_kv_str(&json, "title", screen_title(screen));
        json_key(&json, "cursor");
        json_open(&json, '{');
        json_kv_int(&json, "row", cursor.row);
        json_kv_int(&json, "col", cursor.col);
        json_kv_bool(&json, "visible", cursor.visible);
        json_close(&json, '}');
        json_kv_bool(&json, "alternate", screen_modes(screen).alternate);
        json_kv_str(&json, "text", buf_view(&text));
        json_kv_str(&json, "scrollback_tail", buf_view(&above));
    }
    json_close(&json, '}');
}

static int terminal_screen(struct call *call, struct err *err)
{
    const char *format = call_query(call, "format");
    struct box_exec *exec;
    uint64_t position;

    if (call_terminal(call, &exec, err) < 0)
        return -1;
    if (format && strcmp(format, "text") != 0 && strcmp(format, "cells") != 0)
        return err_field(err, "format", "text or cells; JSON with both cursor and text without it");
    struct screen *screen = term_screen(box_exec_term(exec), &position, err);
    if (!screen)
        return -1;
    if (format && strcmp(format, "text") == 0) {
        call->content_type = "text/plain; charset=utf-8";
        screen_text(screen, &call->reply);
        buf_putc(&call->reply, '\n');
        return 0;
    }
    put_screen(call, screen, exec, position, format != NULL);
    return 0;
}

#define TERMINAL "/api/v1/sandboxes/{id}/terminals"

const struct route terminal_routes[] = {
    { .name = "terminal.create",
      .method = "POST",
      .path = TERMINAL,
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = terminal_post,
      .takes = exec_spec_fields,
      .gives = terminal_fields,
      .flags = ROUTE_CREATES | ROUTE_AWAKE,
      .summary = "Start a command with a terminal; a shell, unless `argv` or `command` says "
                 "otherwise." },
    { .name = "terminal.list",
      .method = "GET",
      .path = TERMINAL,
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = terminal_list,
      .items = terminal_fields,
      .summary = "The terminals of a sandbox that are kept, oldest first." },
    { .name = "terminal.read",
      .method = "GET",
      .path = TERMINAL "/{tid}",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = terminal_get,
      .gives = terminal_fields,
      .summary = "One terminal, by id or name." },
    { .name = "terminal.kill",
      .method = "DELETE",
      .path = TERMINAL "/{tid}",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = terminal_kill,
      .gives = terminal_fields,
      .summary = "Kill its command and everything that it started; what was printed is kept." },
    { .name = "terminal.attach",
      .method = "GET",
      .path = TERMINAL "/{tid}/ws",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = terminal_ws,
      .query = "from:int,role:string,take:int",
      .flags = ROUTE_WS,
      .summary = "Watch it, and as `role`=controller type, over a WebSocket (docs/terminals.md): "
                 "from position `from` on, or from a picture of the screen." },
    { .name = "terminal.screen",
      .method = "GET",
      .path = TERMINAL "/{tid}/screen",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = terminal_screen,
      .query = "format:string",
      .summary = "What it shows now: text, cursor and the newest rows above as JSON; with "
                 "`format`=cells every character with its looks; with `format`=text plain text." },
    { .name = "terminal.recording",
      .method = "GET",
      .path = TERMINAL "/{tid}/recording",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = terminal_recording,
      .summary = "What is kept of it, with its times, as an asciicast (version 2)." },
    { .name = "terminal.signal",
      .method = "POST",
      .path = TERMINAL "/{tid}/signal",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = terminal_signal,
      .flags = ROUTE_WHOLE,
      .takes = signal_wish_fields,
      .gives = terminal_fields,
      .summary = "A signal to the command's process group, or to everything it started." },
    { .name = "terminal.resize",
      .method = "POST",
      .path = TERMINAL "/{tid}/resize",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = terminal_resize,
      .takes = resize_wish_fields,
      .gives = terminal_fields,
      .summary = "Another size." },
    { 0 },
};
