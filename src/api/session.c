/*
 * Sessions by requests: agentic's routes over the same terminals (session.h). Answers have that
 * system's shapes; what it leaves out (real exit, exact arguments, work that outlives its viewers)
 * is as everywhere here.
 */
#include "api/session_link.h"

#include "base/clock.h"
#include "base/hash.h"
#include "term/prompt.h"

#define TRANSCRIPT_MAX 5000
#define TRANSCRIPT_BYTES (4u << 20) /* looked through by one request */

/* ---- finding ---- */

int terminal_by_id(struct api *api, struct reach reach, const char *id, struct box_exec **out,
                   struct err *err)
{
    struct box_exec *found = NULL, *exec;
    struct exec_view view;
    struct err why;

    for (struct box *box = NULL; (box = boxes_next(api->boxes, reach, box));) {
        int rc = box_exec_find_prefix(box, id, &exec, &why);

        if (rc == 0)
            box_exec_view(exec, &view);
        if (rc == 0 && strcmp(view.id, id) == 0) {
            *out = exec;
            return 0;
        }
        if ((rc == 0 && found) || (rc < 0 && why.code == ERR_CONFLICT))
            return err_set(err, ERR_CONFLICT, "more than one session begins with '%.64s'", id);
        found = rc == 0 ? exec : found;
    }
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "Session '%.64s' not found", id);
    *out = found;
    return 0;
}

struct box_exec *session_named(struct box *box, const char *name, bool running)
{
    struct box_exec *found = NULL;

    for (struct box_exec *exec = NULL; (exec = box_exec_next(box, exec));) {
        struct exec_view view;

        box_exec_view(exec, &view);
        if ((!running || box_exec_stays(exec)) &&
            ((view.name && strcmp(view.name, name) == 0) || strcmp(view.id, name) == 0))
            found = exec;
    }
    return found;
}

const char *session_name(const struct exec_view *view)
{
    return view->name ? view->name : view->id;
}

const char *session_type(bool tty, bool background)
{
    return background ? "background" : tty ? "interactive" : "headless";
}

const char *agent_name(const struct sandbox_view *view)
{
    return view->name ? view->name : view->id;
}

const char *session_cwd(const char *wish, bool root)
{
    if (wish && *wish && strcmp(wish, "~") != 0)
        return wish;
    /* check-style: allow machine-path: inside every sandbox */
    return root ? "/root" : "/home/agent";
}

int session_box(struct call *call, struct box **out, struct err *err)
{
    const char *id = call_param(call, "id");

    if (boxes_find(call->api->boxes, call_reach(call), id, out, NULL) < 0)
        return err_set(err, ERR_NOT_FOUND, "Agent '%.64s' not found", id);
    box_touch(*out);
    return 0;
}

/* ---- frames ---- */

struct json_out session_frame_open(struct buf *out, const char *type, const char *session,
                                   uint64_t seq, int64_t ts, const char *kind)
{
    struct json_out json = json_to(out);

    json_open(&json, '{');
    if (type)
        json_kv_text(&json, "type", type);
    json_kv_text(&json, "session_id", session);
    json_kv_int(&json, "seq", (int64_t)seq);
    json_kv_int(&json, "ts", ts);
    json_kv_text(&json, "kind", kind);
    return json;
}

static void put_data(struct json_out *json, struct str data)
{
    autobuf struct buf base64 = { 0 };

    base64_put(&base64, data.p, data.n);
    json_kv_text(json, "stream", "stdout");
    json_kv_str(json, "data", buf_view(&base64));
    json_close(json, '}');
}

bool session_frame_put(struct buf *out, const char *type, const char *session,
                       const struct term_frame *frame, struct str data)
{
    struct json_out json;

    if (frame->kind != TERM_OUTPUT && frame->kind != TERM_RESIZE)
        return false;
    json = session_frame_open(out, type, session, frame->number, frame->at_ms,
                              frame->kind == TERM_OUTPUT ? "output" : "resize");
    if (frame->kind == TERM_OUTPUT) {
        put_data(&json, data);
        return true;
    }
    json_kv_int(&json, "cols", frame->cols);
    json_kv_int(&json, "rows", frame->rows);
    json_close(&json, '}');
    return true;
}

void session_keyframe_put(struct buf *out, const char *type, const char *session, uint64_t seq,
                          struct str data)
{
    struct json_out json = session_frame_open(out, type, session, seq, clock_wall_ms(), "keyframe");

    put_data(&json, data);
}

void session_closed_put(struct buf *out, const char *type, struct box_exec *exec)
{
    struct exec_view view;
    uint64_t begin, end;

    box_exec_view(exec, &view);
    term_range(box_exec_term(exec), &begin, &end);
    struct json_out json = session_frame_open(out, type, view.id, end, view.ended_at, "closed");
    if (view.exit_code >= 0) {
        json_kv_int(&json, "exit_code", view.exit_code);
    } else {
        json_key(&json, "exit_code");
        json_put_null(&json);
    }
    json_close(&json, '}');
}

void session_screen_put(struct json_out *json, const struct screen *screen, bool flat)
{
    struct screen_cursor cursor = screen_cursor(screen);
    autobuf struct buf text = { 0 }, above = { 0 };

    screen_text(screen, &text);
    screen_scrollback_text(screen, SCREEN_TAIL, &above);
    json_kv_int(json, "rows", screen_rows(screen));
    json_kv_int(json, "cols", screen_cols(screen));
    json_kv_str(json, "text", text.len ? buf_view(&text) : STR(""));
    if (flat) {
        json_key(json, "cursor");
        json_open(json, '{');
        json_kv_int(json, "row", cursor.row);
        json_kv_int(json, "col", cursor.col);
        json_close(json, '}');
    } else {
        json_kv_int(json, "cursor_row", cursor.row);
        json_kv_int(json, "cursor_col", cursor.col);
    }
    json_kv_str(json, "scrollback_tail", above.len ? buf_view(&above) : STR(""));
}

/* ---- lists ---- */

static const char *line_of(struct call *call, const struct exec_view *view)
{
    autobuf struct buf line = { .max = 4096 };

    for (const char **arg = view->argv; arg && *arg; arg++) {
        buf_puts(&line, arg == view->argv ? "" : " ");
        buf_puts(&line, *arg);
    }
    return arena_memdup0(&call->arena, line.data, line.len);
}

static void put_clients(struct json_out *json, const char *key, struct box_term *term,
                        enum attach_role role)
{
    json_key(json, key);
    json_open(json, '[');
    for (struct attach *at = NULL; (at = term_attached(term, at));)
        if (at->role == role)
            json_put_str(json, str_of(at->id));
    json_close(json, ']');
}

/* How far the slowest of those who watch is behind, in frames. */
static uint64_t most_lag(struct box_term *term, uint64_t next)
{
    uint64_t lag = 0;

    for (struct attach *at = NULL; (at = term_attached(term, at));)
        lag = MAX(lag, next - MIN(next, at->frame));
    return lag;
}

/* Who looks at it, and how well it is. */
static void put_membership(struct json_out *json, struct box_exec *exec)
{
    struct box_term *term = box_exec_term(exec);
    uint64_t first, next;

    if (!term)
        return;
    term_range(term, &first, &next);
    json_key(json, "membership");
    json_open(json, '{');
    put_clients(json, "controllers", term, ATTACH_CONTROLLER);
    put_clients(json, "observers", term, ATTACH_OBSERVER);
    json_kv_int(json, "attachment_count", term_viewers(term));
    json_close(json, '}');
    json_key(json, "liveness");
    json_open(json, '{');
    json_kv_bool(json, "agent_connected", true);
    json_kv_bool(json, "has_screen", true);
    if (next > first)
        json_kv_int(json, "replay_newest_seq", (int64_t)next - 1);
    json_kv_int(json, "max_client_lag", (int64_t)most_lag(term, next));
    json_close(json, '}');
}

static void put_session(struct call *call, struct json_out *json, struct box_exec *exec,
                        const struct exec_view *view)
{
    json_open(json, '{');
    json_kv_text(json, "session_id", view->id);
    json_kv_text(json, "command_id", view->id);
    json_kv_text(json, "session_name", session_name(view));
    json_kv_text(json, "session_type", session_type(view->tty, view->background));
    json_kv_text(json, "command", line_of(call, view));
    json_kv_int(json, "created_at_secs", (clock_wall_ms() - view->started_at) / 1000);
    json_kv_bool(json, "has_screen", view->tty);
    put_membership(json, exec);
    json_close(json, '}');
}

static int agent_sessions(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct sandbox_view agent;
    struct linked *linked;
    struct box *box;

    if (session_linked(call, &linked))
        return session_link_list(call, linked);
    if (session_box(call, &box, err) < 0)
        return -1;
    box_view(box, &agent);
    json_open(&json, '{');
    json_kv_text(&json, "agent_id", agent_name(&agent));
    json_key(&json, "sessions");
    json_open(&json, '[');
    for (struct box_exec *exec = NULL; (exec = box_exec_next(box, exec));) {
        struct exec_view view;

        box_exec_view(exec, &view);
        if (strcmp(view.state, "running") == 0)
            put_session(call, &json, exec, &view);
    }
    json_close(&json, ']');
    json_close(&json, '}');
    return 0;
}

static void put_registered(struct json_out *json, struct box_exec *exec, const char *agent)
{
    struct box_term *term = box_exec_term(exec);
    uint64_t first, next, begin, end;
    struct exec_view view;

    box_exec_view(exec, &view);
    box_exec_range(exec, INIT_OUT, &begin, &end);
    term_range(term, &first, &next);
    json_open(json, '{');
    json_kv_text(json, "session_id", view.id);
    json_kv_text(json, "agent_id", agent);
    json_kv_text(json, "command_id", view.id);
    json_kv_text(json, "name", session_name(&view));
    json_kv_int(json, "attachment_count", term_viewers(term));
    put_clients(json, "controllers", term, ATTACH_CONTROLLER);
    put_clients(json, "observers", term, ATTACH_OBSERVER);
    if (next > first) {
        json_kv_int(json, "replay_oldest_seq", (int64_t)first);
        json_kv_int(json, "replay_newest_seq", (int64_t)next - 1);
    }
    json_kv_int(json, "replay_len", (int64_t)(next - first));
    json_kv_int(json, "replay_total_bytes", (int64_t)(end - begin));
    json_kv_int(json, "replay_max_frames", SPOOL_RING / 16);
    json_kv_int(json, "replay_max_bytes", SPOOL_RING);
    json_kv_int(json, "replay_evicted_frames_total", (int64_t)first);
    json_kv_int(json, "replay_evicted_bytes_total", (int64_t)begin);
    json_kv_int(json, "max_client_lag", (int64_t)most_lag(term, next));
    json_close(json, '}');
}

static int session_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);

    (void)err;
    json_open(&json, '[');
    for (struct box *box = NULL; (box = boxes_next(call->api->boxes, call_reach(call), box));) {
        struct sandbox_view agent;

        box_view(box, &agent);
        for (struct box_exec *exec = NULL; (exec = box_exec_next(box, exec));)
            if (box_exec_term(exec) && !box_exec_ended(exec))
                put_registered(&json, exec, agent_name(&agent));
    }
    session_link_terminals(call, &json);
    json_close(&json, ']');
    return 0;
}

/* ---- changes ---- */

struct session_wish {
    const char *command, *session_name, *working_dir, *cwd, *session_backend, *session_class;
    const char **args;
};

static const struct field session_wish_fields[] = {
    FIELD(session_wish, command, F_STRING, 0, .min = 1, .max = 131071,
          .help = "The program (bash)"),
    FIELD(session_wish, args, F_STRINGS, 0, .max = EXEC_ARGC_MAX, .each_max = 131071,
          .help = "Its arguments, exactly as they are"),
    FIELD(session_wish, session_name, F_STRING, 0, .min = 1, .max = SANDBOX_NAME_MAX,
          .help = "terminal- and eight digits unless said"),
    FIELD(session_wish, working_dir, F_STRING, 0, .max = 4095,
          .help = "Home unless said, or when ~"),
    FIELD(session_wish, cwd, F_STRING, 0, .max = 4095, .help = "The same"),
    FIELD(session_wish, session_backend, F_STRING, 0, .max = 32,
          .help = "tmux, which means: it goes on without viewers, as all of them do"),
    FIELD(session_wish, session_class, F_STRING, 0, .max = 32, .help = "managed"),
    { 0 },
};

struct pending {
    struct box_op op;
    struct call *call;
    int signal;
    void (*compose)(struct pending *pending, const struct exec_view *view);
};

static void prepare(struct box_op *op)
{
    struct pending *pending = container_of(op, struct pending, op);
    struct call *call = pending->call;
    struct exec_view view;

    box_exec_view(op->exec, &view);
    buf_clear(&call->reply);
    pending->compose(pending, &view);
    call_exec_audit(call, op->exec);
}

static int record(struct box_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct pending, op)->call, db, err);
}

static void done(struct box_op *op, const struct err *err)
{
    call_finish(container_of(op, struct pending, op)->call, err);
}

static struct pending *pending_new(struct call *call,
                                   void (*compose)(struct pending *, const struct exec_view *))
{
    struct pending *pending = arena_new(&call->arena, struct pending);

    pending->call = call;
    pending->compose = compose;
    pending->op = (struct box_op){ .tenant = call->who.tenant,
                                   .by = call->who.id,
                                   .prepare = prepare,
                                   .record = record,
                                   .done = done };
    return pending;
}

static const char *own_host(const struct call *call)
{
    const char *base = call->api->options.base_url ? call->api->options.base_url : "";

    return strstr(base, "://") ? strstr(base, "://") + 3 : "localhost";
}

const char *session_ws_endpoint(struct call *call)
{
    return arena_printf(&call->arena, "%s://%s/ws", call->tls ? "wss" : "ws", own_host(call));
}

static void compose_created(struct pending *pending, const struct exec_view *view)
{
    struct call *call = pending->call;
    struct json_out json = call_json(call);

    json_open(&json, '{');
    json_kv_text(&json, "session_id", view->id);
    json_kv_text(&json, "instance_id", view->sandbox);
    json_kv_text(&json, "command_id", view->id);
    json_kv_text(&json, "session_name", session_name(view));
    json_kv_text(&json, "ws_endpoint", session_ws_endpoint(call));
    json_key(&json, "join_message");
    json_open(&json, '{');
    json_kv_text(&json, "type", "join_session");
    json_kv_text(&json, "session_id", view->id);
    json_kv_text(&json, "role", "controller");
    json_close(&json, '}');
    json_kv_text(&json, "pty_ws_url",
                 arena_printf(&call->arena, "%s://%s/agents/%s/sessions/%s/attach",
                              call->tls ? "wss" : "ws", own_host(call), view->sandbox, view->id));
    json_kv_text(&json, "pty_ws_subprotocol", "pty-ws.v1");
    json_kv_text(&json, "orchestrator_observer_url",
                 arena_printf(&call->arena, "/ws/sessions/%s/orchestrate?role=observer", view->id));
    json_kv_text(
        &json, "orchestrator_controller_url",
        arena_printf(&call->arena, "/ws/sessions/%s/orchestrate?role=controller", view->id));
    json_kv_text(&json, "default_role", "observer");
    json_kv_text(&json, "controller_policy", "single_lease");
    json_close(&json, '}');
    call->status = 200;
}

static const char **argv_of(struct call *call, const struct session_wish *wish)
{
    size_t argc = 0;

    while (wish->args && wish->args[argc])
        argc++;
    const char **argv = arena_alloc(&call->arena, (argc + 2) * sizeof(*argv));
    argv[0] = wish->command ? wish->command : "bash";
    for (size_t i = 0; i < argc; i++)
        argv[i + 1] = wish->args[i];
    argv[argc + 1] = NULL;
    return argv;
}

/* What was asked for, with a name. */
static int session_wish_take(struct call *call, struct session_wish *wish, struct err *err)
{
    unsigned char raw[4];
    char digits[9];

    if (call_decode(call, wish, err) < 0)
        return -1;
    if (wish->session_backend && strcmp(wish->session_backend, "tmux") != 0)
        return err_set(err, ERR_UNSUPPORTED, "session_backend '%.32s' is not supported",
                       wish->session_backend);
    random_bytes(raw, sizeof(raw));
    hex_text(raw, sizeof(raw), digits);
    if (!wish->session_name)
        wish->session_name = arena_printf(&call->arena, "terminal-%s", digits);
    if (!wish->working_dir)
        wish->working_dir = wish->cwd;
    return 0;
}

static int session_in_box(struct call *call, struct err *err)
{
    struct session_wish wish = { 0 };
    struct sandbox_view agent;
    struct box *box;

    if (session_box(call, &box, err) < 0 || session_wish_take(call, &wish, err) < 0)
        return -1;
    box_view(box, &agent);
    struct exec_spec spec = {
        .argv = argv_of(call, &wish),
        .tty = true,
        .rows = SESSION_ROWS,
        .cols = SESSION_COLS,
        .cwd = session_cwd(wish.working_dir, strcmp(agent.user, "root") == 0),
        .name = wish.session_name,
    };
    return box_exec(box, &spec, &pending_new(call, compose_created)->op, err);
}

static int session_post(struct call *call, struct err *err)
{
    struct session_wish wish = { 0 };
    struct linked *linked;
    struct box *box;

    if (!session_linked(call, &linked))
        return session_box(call, &box, err) < 0 ? -1 : call_awake(call, session_in_box, err);
    if (session_wish_take(call, &wish, err) < 0)
        return -1;
    bool home = !wish.working_dir || !*wish.working_dir || strcmp(wish.working_dir, "~") == 0;
    const char **argv = argv_of(call, &wish);
    return session_link_post(call, linked,
                             &(struct command_wish){ .command = argv[0],
                                                     .args = argv + 1,
                                                     .working_dir = home ? NULL : wish.working_dir,
                                                     .session_name = wish.session_name,
                                                     .allocate_pty = true,
                                                     .pty_rows = SESSION_ROWS,
                                                     .pty_cols = SESSION_COLS },
                             err);
}

static void compose_nothing(struct pending *pending, const struct exec_view *view)
{
    (void)view;
    pending->call->status = 204;
}

static int agent_session_delete(struct call *call, struct err *err)
{
    const char *name = call_param(call, "name");
    struct exec_view view;
    struct linked *linked;
    struct box *box;

    if (session_linked(call, &linked))
        return session_link_delete(call, linked, err);
    if (session_box(call, &box, err) < 0)
        return -1;
    struct box_exec *exec = session_named(box, name, true);
    if (!exec)
        return err_set(err, ERR_NOT_FOUND, "Session '%.64s' not found", name);
    box_exec_view(exec, &view);
    return box_exec_signal(exec, view.tty ? 9 : 15, view.tty,
                           &pending_new(call, compose_nothing)->op, err);
}

static const struct {
    const char *name;
    int number;
} signals[] = { { "TERM", 15 }, { "KILL", 9 }, { "INT", 2 }, { "HUP", 1 } };

static void refuse_signal(struct call *call, const char *text)
{
    struct json_out json = call_json(call);

    json_open(&json, '{');
    json_kv_text(&json, "error", arena_printf(&call->arena, "unsupported signal '%.16s'", text));
    json_key(&json, "supported");
    json_open(&json, '[');
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        json_put_str(&json, str_of(signals[i].name));
    json_close(&json, ']');
    json_close(&json, '}');
    call->status = 400;
    call_finish(call, NULL);
}

static void compose_signalled(struct pending *pending, const struct exec_view *view)
{
    struct json_out json = call_json(pending->call);

    json_open(&json, '{');
    json_kv_text(&json, "session_id", view->id);
    json_kv_int(&json, "signal", pending->signal);
    json_kv_text(&json, "status", "signaled");
    json_close(&json, '}');
}

static int session_delete(struct call *call, struct err *err)
{
    const char *text = call_query(call, "signal");
    int number = signal_parse(text ? text : "TERM");
    struct link_command *linked = session_link_find(call, call_param(call, "sid"));
    struct exec_view view;
    struct box_exec *exec;
    bool known = false;

    if (!linked && terminal_by_id((struct api *)call->api, call_reach(call),
                                  call_param(call, "sid"), &exec, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++)
        known |= signals[i].number == number;
    if (!known) {
        refuse_signal(call, text ? text : "");
        return 0;
    }
    if (linked)
        return session_link_signal(call, linked, number, err);
    box_exec_view(exec, &view);
    if (call_whole(call, "sid", view.id, NULL, err) < 0)
        return -1;
    struct pending *pending = pending_new(call, compose_signalled);
    pending->signal = number;
    return box_exec_signal(exec, number, false, &pending->op, err);
}

/* ---- looking ---- */

static int session_screen(struct call *call, struct err *err)
{
    const char *id = call_param(call, "sid");
    struct json_out json = call_json(call);
    autobuf struct buf prompt = { 0 };
    struct exec_view view;
    struct box_exec *exec;
    struct err ignored;
    uint64_t position;

    if (terminal_by_id((struct api *)call->api, call_reach(call), id, &exec, &ignored) < 0 ||
        !box_exec_term(exec))
        return err_set(err, ERR_NOT_FOUND, "session '%.64s' not tracked", id);
    struct screen *screen = term_screen(box_exec_term(exec), &position, err);
    if (!screen)
        return -1;
    bool asks = screen_prompt(screen, &prompt) > 0;
    box_exec_view(exec, &view);
    json_open(&json, '{');
    json_kv_text(&json, "session_id", view.id);
    session_screen_put(&json, screen, true);
    json_kv_bool(&json, "prompt_detected", asks);
    json_kv_text(&json, "prompt_text", asks ? buf_cstr(&prompt) : NULL);
    json_close(&json, '}');
    return 0;
}

struct transcript {
    int64_t from, to, limit;
    const char *stream, *pattern;
};

/* True when there was an item. */
static bool put_item(struct json_out *json, const struct term_frame *frame, struct str data,
                     const struct exec_view *view, const char *pattern)
{
    if (pattern && *pattern && !memmem(data.p, data.n, pattern, strlen(pattern)))
        return false;
    json_open(json, '{');
    json_kv_text(json, "session_id", view->id);
    json_kv_int(json, "seq", (int64_t)frame->number);
    json_kv_int(json, "ts", frame->at_ms);
    json_kv_text(json, "kind", "output");
    json_kv_text(json, "stream", "stdout");
    json_kv_str(json, "text", data);
    json_kv_int(json, "bytes", (int64_t)data.n);
    json_close(json, '}');
    return true;
}

static int64_t put_items(struct json_out *json, struct box_exec *exec, const struct transcript *ask)
{
    static char data[TERM_FRAME_MAX]; /* the loop thread's */
    struct box_term *term = box_exec_term(exec);
    struct term_frame frame;
    struct exec_view view;
    struct err ignored;
    uint64_t begin, end;
    int64_t count = 0;
    size_t seen = 0;

    box_exec_view(exec, &view);
    term_range(term, &begin, &end);
    uint64_t at = MAX(begin, (uint64_t)ask->from);
    for (; at < end && at <= (uint64_t)ask->to && count < ask->limit && seen < TRANSCRIPT_BYTES;
         at++) {
        if (term_frame(term, at, &frame, &ignored) <= 0)
            break;
        size_t len = 0, want = frame.kind == TERM_OUTPUT ? (size_t)(frame.to - frame.from) : 0;
        while (len < want) {
            ssize_t got =
                box_exec_read(exec, INIT_OUT, frame.from + len, data + len, want - len, &ignored);
            if (got <= 0)
                break;
            len += (size_t)got;
        }
        seen += len;
        if (len)
            count += put_item(json, &frame, (struct str){ data, len }, &view, ask->pattern);
    }
    return (int64_t)at;
}

static int session_transcript(struct call *call, struct err *err)
{
    struct transcript ask = { .stream = call_query(call, "stream"),
                              .pattern = call_query(call, "q") };
    struct json_out json = call_json(call);
    struct exec_view view;
    struct box_exec *exec;

    if (!ask.pattern)
        ask.pattern = call_query(call, "pattern");
    if (terminal_by_id((struct api *)call->api, call_reach(call), call_param(call, "sid"), &exec,
                       err) < 0 ||
        call_query_int(call, "from_seq", 0, INT64_MAX, 0, &ask.from, err) < 0 ||
        call_query_int(call, "to_seq", 0, INT64_MAX, INT64_MAX, &ask.to, err) < 0 ||
        call_query_int(call, "limit", 1, TRANSCRIPT_MAX, 500, &ask.limit, err) < 0)
        return -1;
    if (ask.stream && strcmp(ask.stream, "stdout") != 0 && strcmp(ask.stream, "stderr") != 0 &&
        strcmp(ask.stream, "log") != 0)
        return err_field(err, "stream", "stdout, stderr or log");
    if (!box_exec_term(exec))
        return err_set(err, ERR_NOT_FOUND, "session has no terminal; its output is at /execs");
    box_exec_view(exec, &view);
    json_open(&json, '{');
    json_kv_text(&json, "session_id", view.id);
    json_key(&json, "items");
    json_open(&json, '[');
    int64_t next = ask.from;
    if (!ask.stream || strcmp(ask.stream, "stdout") == 0)
        next = put_items(&json, exec, &ask);
    json_close(&json, ']');
    json_kv_int(&json, "next_seq", next);
    json_close(&json, '}');
    return 0;
}

#define SESSION "/api/v1/sessions/{sid}"
#define AGENT_SESSIONS "/api/v1/agents/{id}/sessions"

const struct route session_routes[] = {
    { .name = "session.list_of",
      .method = "GET",
      .path = AGENT_SESSIONS,
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = agent_sessions,
      .surface = SURFACE_HUB,
      .summary = "What runs in a sandbox or on a linked agent, as sessions of an agent." },
    { .name = "session.create",
      .method = "POST",
      .path = AGENT_SESSIONS,
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = session_post,
      .takes = session_wish_fields,
      .flags = ROUTE_CREATES | ROUTE_UNSAID,
      .surface = SURFACE_HUB,
      .summary = "Start a terminal of 220 by 50, in a sandbox or on a linked agent; the answer "
                 "says where it can be watched." },
    { .name = "session.kill_of",
      .method = "DELETE",
      .path = AGENT_SESSIONS "/{name}",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = agent_session_delete,
      .surface = SURFACE_HUB,
      .summary = "Kill a session by its name." },
    { .name = "session.list",
      .method = "GET",
      .path = "/api/v1/sessions",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = session_list,
      .surface = SURFACE_HUB,
      .summary = "All terminals that run, with who is attached and what can be replayed." },
    { .name = "session.kill",
      .method = "DELETE",
      .path = SESSION,
      .on = ON_LATER,
      .roles = ROLE_ADMIN,
      .fn = session_delete,
      .query = "signal:string",
      .surface = SURFACE_HUB,
      .summary = "Signal a session: TERM unless said, KILL, INT or HUP." },
    { .name = "session.screen",
      .method = "GET",
      .path = SESSION "/screen",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = session_screen,
      .surface = SURFACE_HUB,
      .summary = "What a session shows now, and whether it asks something." },
    { .name = "session.transcript",
      .method = "GET",
      .path = SESSION "/transcript",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = session_transcript,
      .query = "from_seq:int,to_seq:int,stream:string,q:string,pattern:string,limit:int",
      .surface = SURFACE_HUB,
      .summary = "Frames of output by number; `q` finds text. Go on at `next_seq`." },
    { .name = "session.stream",
      .method = "GET",
      .path = SESSION "/stream",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = session_stream,
      .query = "from:int",
      .flags = ROUTE_SSE,
      .surface = SURFACE_HUB,
      .summary = "Its frames as server-sent events, from number `from` on or from a keyframe." },
    { 0 },
};
