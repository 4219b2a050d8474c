/* Signals to a command, by who waits for them or not, and the size of its terminal. */
#include <stdio.h>

#include "box/own.h"

int box_exec_signal(struct box_exec *exec, int signal, bool tree, struct box_op *op,
                    struct err *err)
{
    struct init_signal frame = { .number = signal, .tree = tree };

    if (exec->state != EXEC_RUNNING)
        return err_set(err, ERR_CONFLICT, "command %s has ended", exec->id);
    if (!link_send(exec->box, INIT_SIGNAL, exec->number, &frame, sizeof(frame), NULL, 0, -1))
        return err_set(err, ERR_UNAVAILABLE, "sandbox %s cannot be reached now", exec->box->id);
    exec->killed |= signal == 9;
    op->box = exec->box;
    op->exec = exec;
    if (op->prepare)
        op->prepare(op);
    struct change *change = change_new(exec->box, exec, op, "exec.signalled");
    change->write = row_nothing;
    change_submit(change);
    return 0;
}

/* A signal that no request waits for. */
struct unasked {
    struct box_op op;
    char by[ID_SIZE];
};

static void unasked_done(struct box_op *op, const struct err *err)
{
    (void)err;
    free(container_of(op, struct unasked, op));
}

int exec_signal_by(struct box_exec *exec, int signal, bool tree, const char *by, struct err *err)
{
    struct unasked *unasked = xnew(struct unasked);

    snprintf(unasked->by, sizeof(unasked->by), "%s", by);
    unasked->op =
        (struct box_op){ .tenant = exec->box->tenant, .by = unasked->by, .done = unasked_done };
    if (box_exec_signal(exec, signal, tree, &unasked->op, err) == 0)
        return 0;
    free(unasked);
    return -1;
}

int box_exec_kill(struct box_exec *exec, const char *by, struct err *err)
{
    return exec_signal_by(exec, 9, true, by, err);
}

int box_exec_resize(struct box_exec *exec, unsigned rows, unsigned cols, struct err *err)
{
    struct init_resize frame = { (uint16_t)rows, (uint16_t)cols };

    if (exec->state != EXEC_RUNNING || !exec->spec.tty)
        return err_set(err, ERR_CONFLICT, "command %s has no terminal", exec->id);
    if (!link_send(exec->box, INIT_RESIZE, exec->number, &frame, sizeof(frame), NULL, 0, -1))
        return err_set(err, ERR_UNAVAILABLE, "sandbox %s cannot be reached now", exec->box->id);
    term_resized(exec, rows, cols);
    return 0;
}
