/*
 * How a job's bytes are bounded, both ways. Out: its init sends at most INIT_RING_SIZE bytes beyond
 * what we acknowledged, and one that sends more is not ours. In: at most INIT_STDIN_QUEUE bytes
 * beyond what it said was taken. A job is over when its end and every byte before it have arrived;
 * after a broken connection it asks again from where it stands, as commands do.
 *
 * An operation that moves nothing for JOB_IDLE_MS, though neither its caller nor its peer is being
 * waited for, is killed: the sandbox may be frozen, or somebody inside has stopped it.
 */
#include "box/job.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/metric.h"
#include "box/own.h"

METRIC_COUNTER(jobs_total, "atoll_file_operations_total", "File operations in sandboxes", "what",
               "started", "done", "failed", "dropped");
enum { JOBS_STARTED, JOBS_DONE, JOBS_FAILED, JOBS_DROPPED };

#define IN_FRAME 61440
#define IN_QUEUE 262144
#define ERRORS_MAX (sizeof(struct init_fault) + TREE_PATH_MAX)

/* ---- what went wrong ---- */

static enum err_code code_of(const struct init_fault *fault)
{
    static const struct {
        int error;
        enum err_code code;
    } table[] = {
        { ENOENT, ERR_NOT_FOUND },   { EACCES, ERR_FORBIDDEN },   { EPERM, ERR_FORBIDDEN },
        { EROFS, ERR_FORBIDDEN },    { EEXIST, ERR_CONFLICT },    { ENOTEMPTY, ERR_CONFLICT },
        { EISDIR, ERR_CONFLICT },    { ENOTDIR, ERR_CONFLICT },   { EBUSY, ERR_CONFLICT },
        { ETXTBSY, ERR_CONFLICT },   { EXDEV, ERR_CONFLICT },     { ESTALE, ERR_CONFLICT },
        { ENODATA, ERR_CONFLICT },   { ENOSPC, ERR_NO_SPACE },    { EDQUOT, ERR_NO_SPACE },
        { EFBIG, ERR_LIMIT },        { E2BIG, ERR_LIMIT },        { ENAMETOOLONG, ERR_INVALID },
        { ELOOP, ERR_INVALID },      { EINVAL, ERR_INVALID },     { ENOTSUP, ERR_INVALID },
        { ENOMEM, ERR_UNAVAILABLE }, { EMFILE, ERR_UNAVAILABLE }, { ENFILE, ERR_UNAVAILABLE },
        { EAGAIN, ERR_UNAVAILABLE },
    };

    if (fault->why == TREE_ARCHIVE || fault->why == TREE_OUTSIDE || fault->why == TREE_USAGE)
        return ERR_INVALID;
    if (fault->why == TREE_LIMIT)
        return ERR_LIMIT;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].error == fault->error)
            return table[i].code;
    return ERR_INTERNAL;
}

static void fault_err(const struct buf *errors, struct err *err)
{
    struct init_fault fault;
    struct str path = buf_view(errors);

    if (path.n < sizeof(fault)) {
        err_set(err, ERR_UNAVAILABLE, "the operation ended in the sandbox without a word");
        return;
    }
    memcpy(&fault, path.p, sizeof(fault));
    path = str_from(path, sizeof(fault));
    if (fault.magic != INIT_FAULT_MAGIC || fault.path_len != path.n || fault.why >= TREE_WHYS) {
        err_set(err, ERR_UNAVAILABLE, "the operation ended in the sandbox with nonsense");
        return;
    }
    const char *text = strerrordesc_np(fault.error), *why = tree_why_text(fault.why);
    err_set(err, code_of(&fault), "%.*s%s%s%s%s", (int)MIN(path.n, (size_t)256),
            path.p ? path.p : "", path.n ? ": " : "",
            *why   ? why
            : text ? text
                   : "error",
            *why && text ? ": " : "", *why && text ? text : "");
    err->sys = fault.error;
}

/* ---- its end ---- */

static void leave(struct box_job *job)
{
    if (!job->box)
        return;
    timer_cancel(job->box->boxes->loop, &job->timer);
    side_close(job);
    list_remove(&job->node);
    job->box->jobs_count--;
    job->box->conns_count -= job->conn;
    job->box = NULL;
    buf_free(&job->in);
    job->in = (struct buf){ 0 };
}

void job_end(struct box_job *job, const struct err *err)
{
    metric_add(&jobs_total, err ? JOBS_FAILED : JOBS_DONE, 1);
    leave(job);
    buf_free(&job->errors);
    job->errors = (struct buf){ 0 };
    job->done(job, err);
}

static void kill_it(const struct box_job *job)
{
    struct init_signal frame = { .number = 9 };

    (void)link_send(job->box, INIT_SIGNAL, job->number, &frame, sizeof(frame), NULL, 0, -1);
}

void box_job_drop(struct box_job *job)
{
    if (!job->box)
        return;
    metric_add(&jobs_total, JOBS_DROPPED, 1);
    kill_it(job); /* its end is then a stranger's, and forgotten */
    leave(job);
    buf_free(&job->errors);
}

void job_lost(struct box_job *job, enum err_code code, const char *why)
{
    struct err err = { 0 };

    /* Where somebody ends the sandbox nothing has failed, and to ask again is no use. */
    if (box_is_ending(job->box))
        (void)box_refuse(job->box, &err);
    else
        err_set(&err, code, "%s", why);
    job_end(job, &err);
}

static void on_timer(struct timer *timer)
{
    struct box_job *job = container_of(timer, struct box_job, timer);
    bool theirs = job->started &&
                  (job->paused || (job->in_open && job->in_sent == job->in_taken && !job->in.len &&
                                   !job->in_eof && !(job->side_in && job->side_on)));
    int64_t due = job->started ? job->moved_ms + JOB_IDLE_MS : job->start_due_ms;
    int64_t now = clock_mono_ms();
    struct err err = { 0 };

    if (theirs || now < due) {
        timer_set(job->box->boxes->loop, timer, theirs ? JOB_IDLE_MS : due - now + 1);
        return;
    }
    err_set(&err, ERR_TIMEOUT, "sandbox %s does not answer", job->box->id);
    kill_it(job);
    job_end(job, &err);
}

/* ---- starting ---- */

static void put_text(struct buf *out, const char *text)
{
    buf_append(out, text, strlen(text) + 1);
}

static int send_job(struct box_job *job, const struct box_job_spec *spec, bool root,
                    struct err *err)
{
    autobuf struct buf texts = { 0 };
    struct init_exec head = { .flags = (spec->program ? 0u : INIT_BUILTIN) |
                                       (spec->input ? INIT_STDIN_OPEN : 0u) |
                                       (root ? INIT_AS_ROOT : 0u) };

    for (const char *const *arg = spec->args; *arg; arg++, head.argc++)
        put_text(&texts, *arg);
    put_text(&texts, "/workspace"); /* as commands have it */
    head.text_len = (uint32_t)texts.len;
    if (texts.len > INIT_PAYLOAD_MAX - sizeof(head))
        return err_set(err, ERR_LIMIT, "the path is too long");
    int side = spec->side || spec->side_in ? side_make(job, spec->side_in) : -1;
    if (side >= 0)
        head.flags |= INIT_SIDE;
    if (!link_send(job->box, INIT_EXEC, job->number, &head, sizeof(head), texts.data, texts.len,
                   side))
        return err_set(err, ERR_UNAVAILABLE, "sandbox %s cannot be reached now", job->box->id);
    return 0;
}

int box_job_start(struct box *box, struct box_job *job, const struct box_job_spec *spec,
                  struct err *err)
{
    const char *user = spec->user ? spec->user : box->spec.user;
    bool root = strcmp(user, "root") == 0;

    if (box->state != SANDBOX_RUNNING || box->busy)
        return box_refuse(box, err);
    if (root && !spec->ours && strcmp(box->spec.user, "root") != 0)
        return err_field(err, "user", "this sandbox was made for user agent");
    unsigned files = box->jobs_count - box->conns_count;
    if (job->conn ? box->conns_count >= BOX_CONNS_MAX : files >= BOX_JOBS_MAX)
        return err_set(err, ERR_RATE, "%u %s in this sandbox", job->conn ? box->conns_count : files,
                       job->conn ? "connections to ports are open"
                                 : "file operations are under way");
    job->box = box;
    job->number = box->next_job;
    box->next_job = (box->next_job + 1) | JOB_NUMBERS;
    job->in_open = spec->input;
    job->program = spec->program;
    job->errors.max = ERRORS_MAX;
    if (send_job(job, spec, root, err) < 0) {
        side_close(job);
        job->box = NULL;
        return -1;
    }
    metric_add(&jobs_total, JOBS_STARTED, 1);
    list_append(&box->jobs, &job->node);
    box->jobs_count++;
    box->conns_count += job->conn;
    job->start_due_ms = clock_mono_ms() + EXEC_START_MS;
    job->timer = (struct timer){ .fn = on_timer };
    timer_set(box->boxes->loop, &job->timer, EXEC_START_MS);
    return 0;
}

static void has_started(struct box_job *job)
{
    job->started = true;
    job->moved_ms = clock_mono_ms();
    if (job->endless)
        timer_cancel(job->box->boxes->loop, &job->timer);
}

void job_started(struct box_job *job, const struct init_started *answer)
{
    struct err err = { 0 };

    if (job->started)
        return;
    if (answer->pid > 0) {
        has_started(job);
        return;
    }
    err_set(&err, answer->step == INIT_STEP_LIMIT ? ERR_RATE : ERR_UNAVAILABLE,
            "the operation could not be started: %s", init_step_name(answer->step));
    job_end(job, &err);
}

/* ---- output ---- */

void job_output(struct box_job *job, const struct init_output *head, struct str data)
{
    if (head->stream >= INIT_STREAMS || data.n == 0 || head->position > INT64_MAX) {
        box_condemn(job->box, "its init broke the protocol (output)");
        return;
    }
    if (!job->started)
        has_started(job);
    uint64_t *got = &job->got[head->stream];
    if (head->position > *got ||
        head->position + data.n > job->acked[head->stream] + INIT_RING_SIZE) {
        if (!job->stalled)
            box_condemn(job->box, "its init broke the protocol (flow)");
        return;
    }
    data = str_from(data, (size_t)MIN(*got - head->position, (uint64_t)data.n));
    *got += data.n;
    job->ack_due = true;
    job->moved_ms = clock_mono_ms();
    if (!data.n)
        return;
    if (head->stream == INIT_ERR)
        buf_str(&job->errors, data);
    else if (job->data)
        job->data(job, data); /* may drop the job */
}

void job_acknowledge(struct box_job *job)
{
    struct init_ack ack = { { job->got[INIT_OUT], job->got[INIT_ERR] } };

    if (!job->ack_due || job->paused)
        return;
    if (!link_send(job->box, INIT_ACK, job->number, &ack, sizeof(ack), NULL, 0, -1)) {
        link_tick_soon(job->box);
        return;
    }
    job->ack_due = false;
    memcpy(job->acked, job->got, sizeof(job->acked));
}

void box_job_pause(struct box_job *job)
{
    job->paused = true;
    side_mind(job);
}

void box_job_resume(struct box_job *job)
{
    if (!job->paused || !job->box)
        return;
    job->paused = false;
    job->moved_ms = clock_mono_ms();
    job_acknowledge(job);
    side_mind(job);
}

void job_attach(struct box_job *job)
{
    struct init_attach attach = { { job->got[INIT_OUT], job->got[INIT_ERR] } };

    if (!link_send(job->box, INIT_ATTACH, job->number, &attach, sizeof(attach), NULL, 0, -1))
        return;
    job->stalled = false;
    memcpy(job->acked, job->got, sizeof(job->acked));
}

void job_exited(struct box_job *job, const struct init_exited *told)
{
    struct err err = { 0 };

    if (told->end[INIT_OUT] < job->got[INIT_OUT] || told->end[INIT_ERR] < job->got[INIT_ERR]) {
        box_condemn(job->box, "its init broke the protocol (end)");
        return;
    }
    if (told->end[INIT_OUT] != job->got[INIT_OUT] || told->end[INIT_ERR] != job->got[INIT_ERR]) {
        job->stalled = true; /* the connection broke in between: asked again */
        link_tick_soon(job->box);
        return;
    }
    (void)link_send(job->box, INIT_FORGET, job->number, NULL, 0, NULL, 0, -1);
    if (told->code == 0 && job->side_left) {
        job->exited = true; /* what it sent may still be on its way (side.c) */
        job->moved_ms = clock_mono_ms();
        err_set(&err, ERR_UNAVAILABLE, SIDE_SHORT);
        if (!job->side_on)
            job_end(job, &err);
        return;
    }
    if (told->code == 0 || (job->program && told->code > 0)) {
        job->code = told->code;
        job_end(job, NULL);
        return;
    }
    if (told->code != INIT_BUILTIN_FAILED) {
        job_lost(job, ERR_UNAVAILABLE, "the operation was killed in the sandbox");
        return;
    }
    fault_err(&job->errors, &err);
    job_end(job, &err);
}

void job_tick(struct box_job *job, bool *again)
{
    if (job->stalled)
        job_attach(job);
    job_acknowledge(job);
    *again = *again || job->stalled || (job->ack_due && !job->paused) || !job->started;
}

/* ---- input ---- */

/* How much of it is on its way now. */
static size_t send_input(struct box_job *job, struct str data)
{
    size_t sent = 0;

    while (job->in_open) {
        uint64_t window = INIT_STDIN_QUEUE - (job->in_sent - job->in_taken);
        size_t len = MIN(data.n - sent, (size_t)IN_FRAME);

        if (len < IN_FRAME && !job->in_eof && (len == 0 || job->in_sent != job->in_taken))
            break; /* little waits for more, or for what went before to be taken */
        if (len > window ||
            !link_send(job->box, INIT_STDIN, job->number, NULL, 0, data.p + sent, len, -1))
            break;
        sent += len;
        job->in_sent += len;
        job->in_open = len != 0;
    }
    return sent;
}

void job_pump(struct box_job *job)
{
    buf_consume(&job->in, send_input(job, buf_view(&job->in)));
}

size_t box_job_put(struct box_job *job, struct str data)
{
    if (!job->box || !job->in_open || job->in_eof)
        return 0;
    if (job->side_in)
        return side_put(job, data);
    size_t len = MIN(data.n, IN_QUEUE - MIN(job->in.len, (size_t)IN_QUEUE));
    size_t sent = job->in.len ? 0 : send_input(job, (struct str){ data.p, len });
    buf_append(&job->in, data.p + sent, len - sent);
    job->moved_ms = clock_mono_ms();
    job_pump(job);
    return len;
}

void box_job_eof(struct box_job *job)
{
    if (!job->box || !job->in_open)
        return;
    if (job->side_in)
        side_end(job);
    job->in_eof = true;
    job->moved_ms = clock_mono_ms();
    job_pump(job);
}

void job_room(struct box_job *job, const struct init_room *room)
{
    if (room->taken > job->in_sent || room->taken < job->in_taken) {
        box_condemn(job->box, "its init broke the protocol (input)");
        return;
    }
    job->in_taken = room->taken;
    job->moved_ms = clock_mono_ms();
    job_pump(job);
    if (job->room && job->in_open)
        job->room(job); /* may drop the job */
}

void job_deaf(struct box_job *job)
{
    job->in_open = false; /* its end is about to come, and says why */
    buf_clear(&job->in);
}

/* ---- among the box's other things ---- */

void box_jobs_init(struct box *box)
{
    random_bytes(&box->next_job, sizeof(box->next_job));
    box->next_job |= JOB_NUMBERS;
    box->first_job = box->next_job;
    list_init(&box->jobs);
}

bool job_dropped(const struct box *box, uint32_t number)
{
    return number >= JOB_NUMBERS && ((number - box->first_job) & ~JOB_NUMBERS) <
                                        ((box->next_job - box->first_job) & ~JOB_NUMBERS);
}

struct box_job *job_by_number(const struct box *box, uint32_t number)
{
    list_each (pos, &box->jobs) {
        struct box_job *job = list_entry(pos, struct box_job, node);

        if (job->number == number)
            return job;
    }
    return NULL;
}

void box_jobs_lost(struct box *box, enum err_code code, const char *why)
{
    while (!list_empty(&box->jobs))
        job_lost(list_entry(box->jobs.next, struct box_job, node), code, why);
}

void box_jobs_drain(struct box *box)
{
    list_each_safe (pos, &box->jobs) {
        struct box_job *job = list_entry(pos, struct box_job, node);

        if (job->endless) {
            kill_it(job);
            job_lost(job, ERR_UNAVAILABLE, "the server is stopping");
        }
    }
}

void box_note(struct box *box, struct box_op *op)
{
    op->box = box;
    if (op->prepare)
        op->prepare(op);
    struct change *change = change_new(box, NULL, op, NULL);
    change->write = row_nothing;
    change_submit(change);
}
