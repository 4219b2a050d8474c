/*
 * Commands in a sandbox: started, waited for, read by position, given input and signals.
 *
 * Output is a file by position (box/spool.h), so a reader needs no queue: it reads on from where
 * its peer is, stops when the peer is slow, and is told when there is more. One that comes back
 * names its position. Server-sent events carry both streams in one answer: each event's id is the
 * position of both ("OUT,ERR"), its data base64, and the last one is `exit` with the command.
 */
#include "api/own.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "box/boxes.h"

#define CHUNK 49152 /* a multiple of 3: base64 without padding in between */
#define AUDIT_COMMAND_MAX 4096

static int call_exec(struct call *call, struct box_exec **out, struct err *err)
{
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    return box_exec_find(box, call_param(call, "eid"), out, err);
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
    char *text = arena_alloc(&call->arena, EXEC_INLINE_MAX + 1);
    uint64_t begin, end;
    size_t len = 0;
    struct err err;

    box_exec_range(exec, stream, &begin, &end);
    while (len < EXEC_INLINE_MAX) {
        ssize_t got =
            box_exec_read(exec, stream, begin + len, text + len, EXEC_INLINE_MAX - len, &err);

        if (got <= 0)
            break;
        len += (size_t)got;
    }
    for (size_t i = 0; i < len; i++)
        if (!text[i])
            text[i] = (char)0xff;
    return text;
}

static void put_view(struct call *call, struct box_exec *exec, bool with_output)
{
    struct exec_view view;

    box_exec_view(exec, &view);
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
    json_open(&json, '{');
    json_key(&json, "items");
    json_open(&json, '[');
    while ((exec = box_exec_next(box, exec))) {
        struct exec_view view;

        box_exec_view(exec, &view);
        field_encode(exec_fields, &view, &json);
    }
    json_close(&json, ']');
    json_close(&json, '}');
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

/* ---- output ---- */

struct output {
    struct box_reader reader;
    struct list node; /* in the api's outputs */
    struct http_req *req;
    struct box_exec *exec;
    uint64_t at[INIT_STREAMS];
    unsigned first, last; /* streams: both, or one */
    bool sse, follow;
    char who[ID_SIZE];
};

static void output_free(struct output *output)
{
    box_exec_unfollow(&output->reader);
    list_remove(&output->node);
    free(output);
}

static enum http_flow put_bytes(struct output *output, unsigned stream, struct str data)
{
    autobuf struct buf text = { 0 };

    if (!output->sse)
        return http_reply_write(output->req, data);
    buf_printf(&text, "id: %llu,%llu\nevent: %s\ndata: ", (unsigned long long)output->at[INIT_OUT],
               (unsigned long long)output->at[INIT_ERR], stream == INIT_ERR ? "stderr" : "stdout");
    base64_put(&text, data.p, data.n);
    buf_puts(&text, "\n\n");
    return http_reply_write(output->req, buf_view(&text));
}

static void put_exit(struct output *output)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);
    struct exec_view view;

    box_exec_view(output->exec, &view);
    buf_puts(&text, "event: exit\ndata: ");
    field_encode(exec_fields, &view, &json);
    buf_puts(&text, "\n\n");
    (void)http_reply_write(output->req, buf_view(&text));
}

/* 1: the peer must read first; 0: everything was given; -1: cannot go on. */
static int give(struct output *output, unsigned stream)
{
    static char data[CHUNK]; /* the loop thread's */
    struct err err;

    for (;;) {
        ssize_t got =
            box_exec_read(output->exec, stream, output->at[stream], data, sizeof(data), &err);
        if (got <= 0)
            return got < 0 ? -1 : 0;
        output->at[stream] += (uint64_t)got;
        enum http_flow flow = put_bytes(output, stream, (struct str){ data, (size_t)got });
        if (flow != HTTP_OK)
            return 1;
    }
}

static void pump(struct output *output)
{
    struct http_req *req = output->req;
    bool ended = box_exec_ended(output->exec);

    for (unsigned s = output->first; s <= output->last; s++) {
        int rc = give(output, s);

        if (rc > 0)
            return;
        if (rc < 0) { /* so slow that its place was overwritten */
            output_free(output);
            http_cut(req, "output beyond what is kept");
            return;
        }
    }
    if (output->follow && !ended)
        return;
    if (output->sse)
        put_exit(output);
    output_free(output);
    http_reply_end(req, NULL, 0);
}

static void output_more(struct box_reader *reader)
{
    pump(container_of(reader, struct output, reader));
}

static void output_cut(struct output *output, const char *why)
{
    struct http_req *req = output->req;

    output_free(output);
    http_cut(req, why);
}

static void output_gone(struct box_reader *reader)
{
    output_cut(container_of(reader, struct output, reader), "the command is no longer kept here");
}

static void on_req_gone(struct http_req *req)
{
    output_free(req->app);
}

static void on_req_drain(struct http_req *req)
{
    pump(req->app);
}

void output_streams_cut(struct api *api, const char *who)
{
    list_each_safe (pos, &api->own->outputs) {
        struct output *output = list_entry(pos, struct output, node);

        if (strcmp(output->who, who) == 0)
            output_cut(output, "the credential has ended");
    }
}

static int check_place(const struct box_exec *exec, unsigned stream, uint64_t at, struct err *err)
{
    uint64_t begin, end;

    box_exec_range(exec, stream, &begin, &end);
    if (at < begin)
        return err_set(err, ERR_GONE, "bytes before position %llu are no longer kept",
                       (unsigned long long)begin);
    if (at > end)
        return err_set(err, ERR_RANGE, "the stream has %llu bytes so far", (unsigned long long)end);
    return 0;
}

/* Takes the request over from the call. */
static void output_begin(struct call *call, struct output *output, const char *type)
{
    struct http_req *req = call->req;
    struct http_header headers[CALL_EXTRA_MAX + 4];
    unsigned count = call_headers(call, headers, CALL_EXTRA_MAX);

    headers[count++] = (struct http_header){ STR("content-type"), str_of(type) };
    headers[count++] = (struct http_header){ STR("x-accel-buffering"), STR("no") };
    output->reader.more = output_more;
    output->reader.gone = output_gone;
    output->req = req;
    snprintf(output->who, sizeof(output->who), "%s", call->who.id);
    req->app = output;
    req->on_gone = on_req_gone;
    req->on_drain = on_req_drain;
    list_append(&call->api->own->outputs, &output->node);
    box_exec_follow(output->exec, &output->reader);
    http_reply_begin(req, 200, headers, count);
    http_slim(req);
    call->req = NULL;
    call_free(call);
    pump(output);
}

static int output_get(struct call *call, struct err *err)
{
    const char *stream = call_query(call, "stream");
    struct box_exec *exec;
    int64_t from, follow;

    if (call_exec(call, &exec, err) < 0 ||
        call_query_int(call, "from", 0, INT64_MAX, 0, &from, err) < 0 ||
        call_query_int(call, "follow", 0, 1, 0, &follow, err) < 0)
        return -1;
    if (stream && strcmp(stream, "stdout") != 0 && strcmp(stream, "stderr") != 0)
        return err_field(err, "stream", "stdout or stderr");
    unsigned number = stream && strcmp(stream, "stderr") == 0 ? INIT_ERR : INIT_OUT;
    uint64_t begin, end;
    box_exec_range(exec, number, &begin, &end);
    if (!call_query(call, "from"))
        from = (int64_t)begin;
    if (check_place(exec, number, (uint64_t)from, err) < 0)
        return -1;
    struct output *output = xnew(struct output);
    output->exec = exec;
    output->first = output->last = number;
    output->at[number] = (uint64_t)from;
    output->follow = follow;
    call_header(call, "atoll-position", arena_printf(&call->arena, "%lld", (long long)from));
    output_begin(call, output, "application/octet-stream");
    return 0;
}

/* "OUT,ERR" from Last-Event-ID or ?from=; without either, everything that is kept. */
static int both_places(struct call *call, const struct box_exec *exec, uint64_t at[INIT_STREAMS],
                       struct err *err)
{
    struct str last = http_header(call->req, "last-event-id");
    struct str text = last.n ? last : str_of(call_query(call, "from"));
    uint64_t end;

    if (!text.n) {
        box_exec_range(exec, INIT_OUT, &at[INIT_OUT], &end);
        box_exec_range(exec, INIT_ERR, &at[INIT_ERR], &end);
        return 0;
    }
    struct str out = str_cut(&text, ',');
    if (!str_to_u64(out, &at[INIT_OUT]) || !str_to_u64(text, &at[INIT_ERR]))
        return err_field(err, last.n ? "Last-Event-ID" : "from",
                         "two positions, such as 120,0: of stdout and of stderr");
    if (check_place(exec, INIT_OUT, at[INIT_OUT], err) < 0)
        return -1;
    return check_place(exec, INIT_ERR, at[INIT_ERR], err);
}

static int output_sse(struct call *call, struct err *err)
{
    struct box_exec *exec;
    uint64_t at[INIT_STREAMS];

    if (call_exec(call, &exec, err) < 0 || both_places(call, exec, at, err) < 0)
        return -1;
    struct output *output = xnew(struct output);
    output->exec = exec;
    output->first = INIT_OUT;
    output->last = INIT_ERR;
    memcpy(output->at, at, sizeof(at));
    output->sse = output->follow = true;
    output_begin(call, output, "text/event-stream");
    return 0;
}

/* ---- input ---- */

struct stdin_view {
    int64_t bytes;
    bool eof;
};

static const struct field stdin_fields[] = {
    FIELD(stdin_view, bytes, F_INT, F_READONLY, .help = "Taken of this body"),
    FIELD(stdin_view, eof, F_BOOL, F_READONLY, .help = "Whether that was the end of input"),
    { 0 },
};

struct input {
    struct box_input input;
    struct box_op op;
    struct call *call;
    struct box_exec *exec;
    struct buf rest; /* not yet taken */
    uint64_t bytes;
    bool last, eof, paused, noting;
};

static void input_free(struct input *input)
{
    box_input_end(&input->input);
    buf_free(&input->rest);
    free(input);
}

static void input_fail(struct input *input, const char *why)
{
    struct call *call = input->call;
    struct err err = { 0 };

    err_set(&err, ERR_CONFLICT, "%s", why);
    input_free(input);
    call_finish(call, &err);
}

static int input_record(struct box_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct input, op)->call, db, err);
}

static void input_noted(struct box_op *op, const struct err *err)
{
    struct input *input = container_of(op, struct input, op);
    struct call *call = input->call;

    input_free(input);
    call_finish(call, err);
}

static void input_prepare(struct box_op *op)
{
    struct input *input = container_of(op, struct input, op);
    struct call *call = input->call;
    struct exec_view view;

    box_exec_view(op->exec, &view);
    buf_clear(&call->reply);
    call_reply(call, &(struct stdin_view){ (int64_t)input->bytes, input->eof });
    call->object = arena_printf(&call->arena, "exec/%s", view.id);
    call->detail = arena_memdup0(&call->arena, call->reply.data, call->reply.len);
}

static void input_push(struct input *input)
{
    struct http_req *req = input->call->req;

    while (input->rest.len) {
        size_t took = box_input_put(&input->input, buf_view(&input->rest));

        if (!took)
            break;
        input->bytes += took;
        buf_consume(&input->rest, took);
    }
    bool full = input->rest.len > 0;
    if (req && !input->last && full != input->paused) {
        input->paused = full;
        if (full)
            http_read_pause(req);
        else
            http_read_resume(req);
    }
    if (!input->last || full || input->noting || !box_input_idle(&input->input))
        return;
    if (input->eof)
        box_input_eof(&input->input);
    input->noting = true;
    box_input_end(&input->input);
    box_input_note(input->exec, &input->op);
}

static void input_room(struct box_input *box_input)
{
    struct input *input = container_of(box_input, struct input, input);

    if (input->noting)
        return;
    if (input->input.over && !(input->last && input->rest.len == 0))
        input_fail(input, "nothing reads the input any more");
    else
        input_push(input);
}

static void input_body(struct http_req *req, struct str data, bool last)
{
    struct input *input = req->app;

    buf_str(&input->rest, data);
    input->last = last;
    input_push(input);
}

static void input_gone(struct http_req *req)
{
    struct input *input = req->app;
    struct call *call = input->call;

    call->req = NULL;
    if (input->noting)
        return; /* input_noted frees both */
    input_free(input);
    call_free(call);
}

static int stdin_post(struct call *call, struct err *err)
{
    struct box_exec *exec;
    int64_t eof;

    if (call_exec(call, &exec, err) < 0 || call_query_int(call, "eof", 0, 1, 0, &eof, err) < 0)
        return -1;
    struct input *input = xnew(struct input);
    input->input.room = input_room;
    if (box_input_begin(exec, &input->input, err) < 0) {
        free(input);
        return -1;
    }
    input->call = call;
    input->exec = exec;
    input->eof = eof;
    input->op = (struct box_op){ .tenant = call->who.tenant,
                                 .by = call->who.id,
                                 .prepare = input_prepare,
                                 .record = input_record,
                                 .done = input_noted };
    call->peer = arena_strdup(&call->arena, call->req->peer->text); /* for another thread */
    call->req->app = input;
    call->req->on_gone = input_gone;
    http_read_stream(call->req, EXEC_STDIN_BODY_MAX, input_body);
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
                 "it has ended or that time is over." },
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
      .query = "stream:string,from:int,follow:int",
      .summary = "Bytes of stdout (or `stream`=stderr) from position `from`; with `follow`=1 until "
                 "the command has ended. 410 when that position is no longer kept." },
    { .name = "exec.output",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/execs/{eid}/output",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = output_sse,
      .query = "from:string",
      .flags = ROUTE_SSE,
      .summary =
          "Both streams as events stdout and stderr (base64) until `exit`; ids are positions "
          "of both, OUT,ERR, for Last-Event-ID or `from`." },
    { .name = "exec.stdin",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/execs/{eid}/stdin",
      .on = ON_STREAM,
      .roles = ROLE_USE,
      .fn = stdin_post,
      .gives = stdin_fields,
      .query = "eof:int",
      .flags = ROUTE_BODY,
      .summary = "The body, of any type, to the command's input; with `eof`=1 that was all. "
                 "Answered when the command's pipe has taken it." },
    { .name = "exec.signal",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/execs/{eid}/signal",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = signal_post,
      .takes = signal_wish_fields,
      .gives = exec_fields,
      .summary = "A signal to the command's process group, or to everything it started." },
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
