/*
 * Commands in a sandbox: started, waited for, given signals, cancelled. Their output is in
 * exec_output.c, their input in exec_input.c.
 */
#include "api/exec.h"

#include <signal.h>

#include "box/boxes.h"
#include "gate/gate.h"

#define AUDIT_COMMAND_MAX 4096
#define CANCEL_WAIT_MS 10000 /* unless said */

int call_exec(struct call *call, struct box_exec **out, struct err *err)
{
    struct exec_view view;
    struct box *box;

    if (call_box(call, &box, err) < 0 ||
        box_exec_find_prefix(box, call_param(call, "eid"), out, err) < 0)
        return -1;
    box_exec_view(*out, &view);
    return call_whole(call, "eid", view.id, NULL, err);
}

/* ---- starting and waiting ---- */

struct pending {
    struct box_op op;
    struct box_wait wait;
    struct call *call;
    struct box_exec *exec;
    int64_t wait_ms;
};

static int pending_record(struct box_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct pending, op)->call, db, err);
}

static bool pending_audit(struct box_op *op, struct audit *out)
{
    return call_audit_only(container_of(op, struct pending, op)->call, out);
}

static void pending_done(struct box_op *op, const struct err *err)
{
    call_finish(container_of(op, struct pending, op)->call, err);
}

/* What was run, for the audit: as much of it as is bearable. */
static const char *audit_detail(struct call *call, const struct exec_view *view)
{
    autobuf struct buf line = { .max = AUDIT_COMMAND_MAX }, out = { 0 };
    struct json_out json = json_to(&out);

    for (const char **arg = view->argv; arg && *arg; arg++) {
        buf_puts(&line, arg == view->argv ? "" : " ");
        buf_puts(&line, *arg);
    }
    json_open(&json, '{');
    json_kv_text(&json, "sandbox", view->sandbox);
    json_kv_str(&json, "command", buf_view(&line));
    json_kv_bool(&json, "cut", !buf_ok(&line));
    json_kv_text(&json, "user", view->user);
    json_kv_text(&json, "cwd", view->cwd);
    json_close(&json, '}');
    return arena_memdup0(&call->arena, out.data, out.len);
}

/* The beginning of a stream as text; a NUL becomes a byte that JSON shows as U+FFFD. */
static const char *inline_text(struct call *call, struct box_exec *exec, unsigned stream)
{
    uint64_t begin, end;
    size_t len = 0;
    struct err err;

    box_exec_range(exec, stream, &begin, &end);
    size_t most = (size_t)MIN(end - begin, (uint64_t)EXEC_INLINE_MAX);
    char *text = arena_alloc(&call->arena, most + 1);
    while (len < most) {
        ssize_t got = box_exec_read(exec, stream, begin + len, text + len, most - len, &err);

        if (got <= 0)
            break;
        len += (size_t)got;
    }
    for (size_t i = 0; i < len; i++)
        if (!text[i])
            text[i] = (char)0xff;
    return text;
}

void exec_put_blocked(struct gate *gate, struct exec_view *view, struct arena *arena)
{
    int64_t until = view->ended_at ? view->ended_at : INT64_MAX;

    view->blocked = gate_blocked(gate, view->sandbox, view->started_at, until, arena);
}

static void put_view(struct call *call, struct box_exec *exec, bool with_output)
{
    struct exec_view view;

    box_exec_view(exec, &view);
    exec_put_blocked(call->api->gate, &view, &call->arena);
    if (with_output) {
        view.output = inline_text(call, exec, INIT_OUT);
        view.errors = inline_text(call, exec, INIT_ERR);
    }
    buf_clear(&call->reply);
    call_reply(call, &view);
}

void call_exec_audit(struct call *call, const struct box_exec *exec)
{
    struct exec_view view;

    box_exec_view(exec, &view);
    call->object = arena_printf(&call->arena, "exec/%s", view.id);
    call->detail = audit_detail(call, &view);
}

static void exec_prepare(struct box_op *op)
{
    struct call *call = container_of(op, struct pending, op)->call;
    struct exec_view view;

    box_exec_view(op->exec, &view);
    buf_clear(&call->reply);
    if (call->route->gives)
        call_reply(call, &view);
    call_exec_audit(call, op->exec);
}

static struct pending *pending_new(struct call *call)
{
    struct pending *pending = arena_new(&call->arena, struct pending);

    pending->call = call;
    pending->op = (struct box_op){ .tenant = call->who.tenant,
                                   .by = call->who.id,
                                   .prepare = exec_prepare,
                                   .record = pending_record,
                                   .audit = pending_audit,
                                   .done = pending_done };
    return pending;
}

static void wait_done(struct box_wait *wait)
{
    struct pending *pending = container_of(wait, struct pending, wait);

    put_view(pending->call, pending->exec, box_exec_ended(pending->exec));
    call_finish(pending->call, NULL);
}

static void exec_running(struct box_op *op, const struct err *err)
{
    struct pending *pending = container_of(op, struct pending, op);

    if (err || !pending->wait_ms) {
        call_finish(pending->call, err);
        return;
    }
    pending->exec = op->exec;
    pending->wait.done = wait_done;
    box_exec_wait(op->exec, pending->wait_ms, &pending->wait);
}

static int exec_post(struct call *call, struct err *err)
{
    struct pending *pending = pending_new(call);
    struct exec_spec spec = { 0 };
    struct box *box;

    if (call_box(call, &box, err) < 0 || call_decode(call, &spec, err) < 0 ||
        call_query_int(call, "wait", 0, EXEC_WAIT_MAX_MS, 0, &pending->wait_ms, err) < 0)
        return -1;
    pending->op.done = exec_running;
    pending->op.till_end = pending->wait_ms > 0;
    pending->wait.till_held = spec.hold;
    return box_exec(box, &spec, &pending->op, err);
}

static int exec_get(struct call *call, struct err *err)
{
    struct pending *pending = pending_new(call);

    if (call_exec(call, &pending->exec, err) < 0 ||
        call_query_int(call, "wait", 0, EXEC_WAIT_MAX_MS, 0, &pending->wait_ms, err) < 0)
        return -1;
    if (pending->wait_ms && !box_exec_ended(pending->exec)) {
        pending->wait.done = wait_done;
        box_exec_wait(pending->exec, pending->wait_ms, &pending->wait);
        return 0;
    }
    put_view(call, pending->exec, pending->wait_ms != 0);
    call_finish(call, NULL);
    return 0;
}

static int exec_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct box_exec *exec = NULL;
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    json_open_list(&json, "items");
    while ((exec = box_exec_next(box, exec))) {
        struct exec_view view;

        box_exec_view(exec, &view);
        field_encode(exec_fields, &view, &json);
    }
    json_close_list(&json);
    return 0;
}

int call_signal(struct call *call, struct signal_wish *wish, struct err *err)
{
    if (call_decode(call, wish, err) < 0)
        return -1;
    int number = signal_parse(wish->signal);
    return number ? number : err_field(err, "signal", "\"%.16s\" is no signal", wish->signal);
}

static int signal_post(struct call *call, struct err *err)
{
    struct signal_wish wish = { 0 };
    struct box_exec *exec;

    int number = call_exec(call, &exec, err) < 0 ? -1 : call_signal(call, &wish, err);

    if (number < 0)
        return -1;
    return box_exec_signal(exec, number, wish.tree, &pending_new(call)->op, err);
}

static int resize_post(struct call *call, struct err *err)
{
    struct resize_wish wish = { 0 };
    struct box_exec *exec;

    if (call_exec(call, &exec, err) < 0 || call_decode(call, &wish, err) < 0 ||
        box_exec_resize(exec, (unsigned)wish.rows, (unsigned)wish.cols, err) < 0)
        return -1;
    box_input_note(exec, &pending_new(call)->op);
    return 0;
}

/* ---- cancelling ---- */

static void cancel_sent(struct box_op *op, const struct err *err)
{
    struct pending *pending = container_of(op, struct pending, op);

    if (err) {
        call_finish(pending->call, err);
        return;
    }
    pending->wait.done = wait_done;
    box_exec_wait(pending->exec, pending->wait_ms, &pending->wait);
}

/* It has ended when nothing of it is left (init/exec.c), so its state says which of the two it is.
 */
static int cancel_post(struct call *call, struct err *err)
{
    struct pending *pending = pending_new(call);

    if (call_exec(call, &pending->exec, err) < 0 ||
        call_query_int(call, "wait", 1, EXEC_WAIT_MAX_MS, CANCEL_WAIT_MS, &pending->wait_ms, err) <
            0)
        return -1;
    if (box_exec_ended(pending->exec)) {
        put_view(call, pending->exec, true);
        call_finish(call, NULL);
        return 0;
    }
    pending->op.done = cancel_sent;
    if (box_exec_signal(pending->exec, SIGKILL, true, &pending->op, err) == 0)
        return 0;
    if (err->code != ERR_CONFLICT)
        return -1;
    cancel_sent(&pending->op, NULL); /* it has ended by itself, and that is being stored */
    return 0;
}

const struct route exec_routes[] = {
    { .name = "exec.create",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/execs",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = exec_post,
      .takes = exec_spec_fields,
      .gives = exec_fields,
      .query = "wait:int",
      .flags = ROUTE_CREATES | ROUTE_AWAKE,
      .summary = "Run a command; answered when it has started, or with `wait` (milliseconds) when "
                 "it has ended, that time is over, or `hold` holds it back." },
    { .name = "exec.list",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/execs",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = exec_list,
      .items = exec_fields,
      .summary = "The commands of a sandbox that are kept, oldest first." },
    { .name = "exec.read",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/execs/{eid}",
      .on = ON_LATER,
      .roles = ROLE_LOOK,
      .fn = exec_get,
      .gives = exec_fields,
      .query = "wait:int",
      .summary = "One command; with `wait` (milliseconds), when it has ended or that time is over, "
                 "and with its output." },
    { .name = "exec.output",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/execs/{eid}/output",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = output_get,
      .query = "stream:string,from:string,follow:int,hold:int",
      .summary = "Bytes of stdout (or `stream`=stderr) from position `from`; with `follow`=1 until "
                 "the command has ended. With `stream`=both, both streams in frames until the end: "
                 "8 bytes (1 stdout, 2 stderr or 3 the end; three zeros; the length, 32 bits, "
                 "highest byte first) and the data, which at the end is the command as JSON; "
                 "`from` is then OUT,ERR. With `hold`=1 the command is held back instead of losing "
                 "bytes that were not read. 410 when that position is no longer kept." },
    { .name = "exec.output",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/execs/{eid}/output",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = output_sse,
      .query = "from:string,hold:int",
      .flags = ROUTE_SSE,
      .summary =
          "Both streams as events stdout and stderr (base64) until `exit`; ids are positions "
          "of both, OUT,ERR, for Last-Event-ID or `from`. With `hold`=1 the command is held back "
          "instead of losing bytes that were not read." },
    { .name = "exec.stdin",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/execs/{eid}/stdin",
      .on = ON_STREAM,
      .roles = ROLE_USE,
      .fn = stdin_post,
      .gives = stdin_fields,
      .query = "eof:int,at:int",
      .flags = ROUTE_BODY,
      .summary = "The body, of any type, to the command's input; with `eof`=1 that was all. "
                 "Answered when the command's pipe has taken it. With `at` it begins at that "
                 "position of all input: what was taken of it already is left out, so that a body "
                 "whose answer was lost can be sent again; 409 when the input is not as far." },
    { .name = "exec.signal",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/execs/{eid}/signal",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = signal_post,
      .takes = signal_wish_fields,
      .flags = ROUTE_WHOLE,
      .gives = exec_fields,
      .summary = "A signal to the command's process group, or to everything it started." },
    { .name = "exec.cancel",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/execs/{eid}/cancel",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = cancel_post,
      .flags = ROUTE_WHOLE,
      .gives = exec_fields,
      .query = "wait:int",
      .summary = "Kill the command and everything it started; answered with its output when all of "
                 "that is gone, or after `wait` milliseconds (10000), when its state is still "
                 "running. One that has ended stays as it is." },
    { .name = "exec.resize",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/execs/{eid}/resize",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = resize_post,
      .takes = resize_wish_fields,
      .gives = exec_fields,
      .summary = "Another size for the command's terminal." },
    { 0 },
};
