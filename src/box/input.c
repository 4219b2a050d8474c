/*
 * What is typed into a command: one queue, one frame under way to its init, the next when that was
 * passed on. A request has it to itself while it writes (box_input); keys of a terminal go between.
 *
 * Every byte has a position. What was sent stays here until its init has confirmed it, so that a
 * broken connection costs nothing: on the next one its init says how much it has, and the rest is
 * sent again. After a kill of ours that same number is all that is left of the input, and whoever
 * wrote comes back with the position of what was not answered.
 *
 * Input that came with the wish is sent all at once: its init takes so much before anybody reads
 * it. The start is stored when nothing of it is here any more.
 */
#include "base/hash.h"
#include "box/own.h"

_Static_assert(EXEC_STDIN_INLINE_MAX <= INIT_STDIN_QUEUE, "an init holds all of it");

#define INPUT_FRAME 32768
#define INPUT_QUEUE 131072
#define POSITION_MAX (UINT64_MAX / 4) /* of an init's word: nothing that is added makes it wrap */

/* ---- input that came with the wish ---- */

int exec_feed_take(struct box_exec *exec, const struct exec_spec *spec, struct err *err)
{
    const char *encoded = spec->stdin_base64;

    if (!spec->stdin && !encoded && !spec->input.p)
        return 0;
    buf_str(&exec->in, spec->stdin ? str_of(spec->stdin) : spec->input);
    if (encoded && !base64_get(&exec->in, str_of(encoded)))
        return err_field(err, "stdin_base64", "is not base64");
    if (exec->in.len > EXEC_STDIN_INLINE_MAX)
        return err_field(err, encoded ? "stdin_base64" : "stdin",
                         "more than %d bytes; the rest can be sent once it runs",
                         EXEC_STDIN_INLINE_MAX);
    exec->feeding = true;
    exec->in_eof = !spec->stdin_open && !spec->tty;
    return 0;
}

static void feed_over(struct box_exec *exec)
{
    exec->feeding = false;
    if (exec->state == EXEC_RUNNING)
        exec_fed(exec);
}

/* Is it all with its init? Then its start may be told. */
static void feed_look(struct box_exec *exec)
{
    struct box *box = exec->box;

    if (!list_empty(&box->frames) || exec->in.len || exec->in_eof != exec->in_eof_sent) {
        box->in_waits = true; /* looked at again when frames have gone */
        return;
    }
    feed_over(exec);
}

void exec_feed(struct box_exec *exec)
{
    if (!exec->feeding || !exec->number)
        return;
    while (exec->in.len) {
        size_t len = MIN(exec->in.len, (size_t)INPUT_FRAME);

        if (!link_send(exec->box, INIT_STDIN, exec->number, NULL, 0, exec->in.data, len, -1))
            break;
        exec->in_flight = true;
        exec->in_at += len;
        buf_consume(&exec->in, len);
    }
    if (!exec->in.len && exec->in_eof && !exec->in_eof_sent)
        exec->in_eof_sent = exec->in_closed =
            link_send(exec->box, INIT_STDIN, exec->number, NULL, 0, NULL, 0, -1);
    feed_look(exec);
}

/* ---- input that follows ---- */

/* One frame at a time: the next when its init has passed this one on. */
void exec_pump(struct box_exec *exec)
{
    if (exec->in_unsure)
        return;
    if (exec->feeding) {
        exec_feed(exec);
        return;
    }
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
    exec->in_sent = len;
}

/* The first bytes of what is here are with its init, and whoever waits for room has some. */
static void confirmed(struct box_exec *exec, size_t len)
{
    buf_consume(&exec->in, len);
    exec->in_at += len;
    exec->in_sent = 0;
    exec->in_flight = false;
    exec_pump(exec);
    if (exec->input && !exec->input->over)
        exec->input->room(exec->input);
    if (exec->term && exec->in.len < INPUT_QUEUE)
        term_room(exec);
}

void exec_room(struct box_exec *exec, uint64_t taken)
{
    /* Of an earlier frame, where several were sent with the wish; or it is to be asked first. */
    if (!exec->in_flight || exec->in_unsure || taken < exec->in_at + exec->in_sent)
        return;
    confirmed(exec, exec->in_sent);
}

void exec_deaf(struct box_exec *exec)
{
    if (exec->input)
        exec->input->refused = true;
    exec_end_input(exec);
    feed_over(exec);
}

/*
 * What was on its way is with its init, or is sent again. Behind a restart nothing was, and the
 * position is whatever it says: one that lies counts wrongly for its own command.
 */
void exec_placed(struct box_exec *exec, uint64_t taken)
{
    size_t had = 0;

    if (!exec->in_unsure)
        return;
    taken = MIN(taken, POSITION_MAX);
    if (taken > exec->in_at)
        had = (size_t)MIN(taken - exec->in_at, (uint64_t)exec->in_sent);
    exec->in_unsure = false;
    exec->in_at = taken - had;
    confirmed(exec, had);
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
    if (exec->input) /* who comes back after a break may meet itself, and is to come again */
        return err_set(err, input->at < 0 ? ERR_CONFLICT : ERR_UNAVAILABLE,
                       "somebody else is writing to command %s", exec->id);
    input->exec = exec;
    input->over = input->refused = false;
    input->skip = 0;
    if (box_input_place(input, err) < 0) {
        input->exec = NULL;
        return -1;
    }
    exec->input = input;
    return 0;
}

int box_input_place(struct box_input *input, struct err *err)
{
    const struct box_exec *exec = input->exec;

    if (!exec || exec->in_unsure || input->at < 0)
        return 0;
    uint64_t position = box_input_position(exec);
    if ((uint64_t)input->at > position)
        return err_set(err, ERR_CONFLICT, "the input of command %s is at %llu", exec->id,
                       (unsigned long long)position);
    input->skip = position - (uint64_t)input->at;
    input->at = -1;
    return 0;
}

uint64_t box_input_position(const struct box_exec *exec)
{
    return exec->in_at + exec->in.len;
}

size_t box_input_put(struct box_input *input, struct str data)
{
    struct box_exec *exec = input->exec;

    if (!exec || input->over || exec->in_unsure)
        return 0;
    size_t known = (size_t)MIN(input->skip, (uint64_t)data.n);
    input->skip -= known;
    data = str_from(data, known);
    size_t room = exec->in.len < INPUT_QUEUE && !exec->feeding ? INPUT_QUEUE - exec->in.len : 0;
    size_t len = MIN(room, data.n);
    buf_append(&exec->in, data.p, len);
    exec_pump(exec);
    return known + len;
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

    return !exec || (!exec->in_flight && !exec->in_unsure && exec->in.len == 0);
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
