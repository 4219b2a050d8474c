/*
 * What is typed into a command: one queue, one frame under way to its init, the next when that was
 * passed on. A request has it to itself while it writes (box_input); keys of a terminal go between.
 */
#include "box/own.h"

#define INPUT_FRAME 32768
#define INPUT_QUEUE 131072

/* One frame at a time: the next when its init has passed this one on. */
void exec_pump(struct box_exec *exec)
{
    if (exec->in_flight || exec->in_closed)
        return;
    size_t len = MIN(exec->in.len, (size_t)INPUT_FRAME);
    if (len == 0 && !(exec->in_eof && !exec->in_eof_sent))
        return;
    if (!link_send(exec->box, INIT_STDIN, exec->number, NULL, 0, exec->in.data, len, -1))
        return;
    if (len == 0) {
        exec->in_eof_sent = exec->in_closed = true;
        return;
    }
    exec->in_flight = true;
    buf_consume(&exec->in, len);
}

void exec_room(struct box_exec *exec, bool refused)
{
    if (refused) {
        exec_end_input(exec);
        return;
    }
    if (!exec->in_flight)
        return;
    exec->in_flight = false;
    exec_pump(exec);
    if (exec->input && !exec->input->over)
        exec->input->room(exec->input);
    if (exec->term && exec->in.len < INPUT_QUEUE)
        term_room(exec);
}

bool exec_typed(struct box_exec *exec, struct str data)
{
    if (exec->in_closed)
        return true; /* nothing reads it */
    buf_str(&exec->in, data);
    exec_pump(exec);
    return exec->in.len < INPUT_QUEUE;
}

int box_exec_type(struct box_exec *exec, struct str data, struct err *err)
{
    if (exec->state != EXEC_RUNNING || exec->in_closed || exec->in_eof)
        return err_set(err, ERR_CONFLICT, "nothing reads the input of command %s", exec->id);
    if (!exec->spec.stdin_open && !exec->spec.tty)
        return err_set(err, ERR_CONFLICT, "command %s was started without input (stdin_open)",
                       exec->id);
    if (exec->in.len + data.n > INPUT_QUEUE + TERM_INPUT_MAX)
        return err_set(err, ERR_RATE, "command %s has not read its earlier input yet", exec->id);
    (void)exec_typed(exec, data);
    return 0;
}

int box_input_begin(struct box_exec *exec, struct box_input *input, struct err *err)
{
    if (exec->state != EXEC_RUNNING)
        return err_set(err, ERR_CONFLICT, "command %s has ended", exec->id);
    if (!exec->spec.stdin_open && !exec->spec.tty)
        return err_set(err, ERR_CONFLICT, "command %s was started without input (stdin_open)",
                       exec->id);
    if (exec->in_closed || exec->in_eof)
        return err_set(err, ERR_CONFLICT, "the input of command %s is closed", exec->id);
    if (exec->input)
        return err_set(err, ERR_CONFLICT, "somebody else is writing to command %s", exec->id);
    exec->input = input;
    input->exec = exec;
    input->over = false;
    return 0;
}

size_t box_input_put(struct box_input *input, struct str data)
{
    struct box_exec *exec = input->exec;

    if (!exec || input->over)
        return 0;
    size_t room = exec->in.len < INPUT_QUEUE ? INPUT_QUEUE - exec->in.len : 0;
    size_t len = MIN(room, data.n);
    buf_append(&exec->in, data.p, len);
    exec_pump(exec);
    return len;
}

void box_input_eof(struct box_input *input)
{
    if (!input->exec)
        return;
    input->exec->in_eof = true;
    exec_pump(input->exec);
}

bool box_input_idle(const struct box_input *input)
{
    const struct box_exec *exec = input->exec;

    return !exec || (!exec->in_flight && exec->in.len == 0);
}

void box_input_end(struct box_input *input)
{
    if (input->exec)
        input->exec->input = NULL;
    input->exec = NULL;
}

void box_input_note(struct box_exec *exec, struct box_op *op)
{
    op->box = exec->box;
    op->exec = exec;
    if (op->prepare)
        op->prepare(op);
    struct change *change = change_new(exec->box, exec, op, NULL);
    change->write = row_nothing;
    change_submit(change);
}
