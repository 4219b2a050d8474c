/*
 * A body to the input of a command, at the pace at which that reads. Answered when its pipe has
 * taken all of it, and the audit says how much that was.
 *
 * The answer names the position behind it. Who got none, because the server was killed, sends the
 * same body again with the position it had before, and what was taken of it is not taken twice.
 */
#include "api/exec.h"
#include "box/term.h"

struct stdin_view {
    int64_t bytes, position;
    bool eof;
};

const struct field stdin_fields[] = {
    FIELD(stdin_view, bytes, F_INT, F_READONLY,
          .help = "Taken of this body, now or, with `at`, before"),
    FIELD(stdin_view, position, F_INT, F_READONLY,
          .help = "Bytes of input from the first one ever, this body included; `at` of the next"),
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

static void input_fail(struct input *input, const struct err *err)
{
    struct call *call = input->call;

    input_free(input);
    call_finish(call, err);
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
    call_reply(call, &(struct stdin_view){ .bytes = (int64_t)input->bytes,
                                           .position = (int64_t)box_input_position(op->exec),
                                           .eof = input->eof });
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
    struct err err = { 0 };

    if (input->noting)
        return;
    if (input->input.over && (input->input.refused || !(input->last && input->rest.len == 0)))
        err_set(&err, ERR_CONFLICT, "nothing reads the input any more");
    if (err.code || box_input_place(box_input, &err) < 0)
        input_fail(input, &err);
    else
        input_push(input);
}

static void input_body(struct http_req *req, struct str data, bool last)
{
    struct input *input = req->app;

    buf_str(&input->rest, data);
    input->last = last;
    if (last) /* it may take long until all of it is read, and others wait for their turn */
        http_hangup_counts(req);
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

int stdin_post(struct call *call, struct err *err)
{
    struct box_exec *exec;
    int64_t eof, at;

    if (call_exec(call, &exec, err) < 0 || call_query_int(call, "eof", 0, 1, 0, &eof, err) < 0 ||
        call_query_int(call, "at", 0, INT64_MAX, -1, &at, err) < 0)
        return -1;
    struct box_term *term = box_exec_term(exec);
    if (term && term_controllers(term) >= term_lease_count(term))
        return err_set(err, ERR_CONFLICT, "somebody else controls this terminal");
    struct input *input = xnew(struct input);
    input->input = (struct box_input){ .room = input_room, .at = at };
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
