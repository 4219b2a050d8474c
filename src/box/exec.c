/*
 * One command: its output into files, its end; how it starts is in start.c.
 *
 *   STARTING ── STARTED ──▶ RUNNING (row stored, caller told) ── EXITED ──▶ EXITED (kept in its
 *                              place, waiters told; row stored, init told to FORGET)
 *
 * Whoever waits for the end is told when no kill takes it back, not when the disk has it (ends.c);
 * whoever waits for the start only, when its row is on disk.
 *
 * Output is written by position and acknowledged once a round. What arrives twice is recognised by
 * its position; what is missing (a full disk made us drop it) is asked for again by ATTACH, and its
 * init holds it until then. The end counts only when both streams are as long as it says.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "box/own.h"
#include "model/tally.h"

METRIC_COUNTER(execs_total, "atoll_execs_total", "Commands in sandboxes", "what", "started",
               "refused", "exited", "lost");

void exec_counted(enum execs_counted what)
{
    metric_add(&execs_total, what, 1);
}

/* ---- life of the object ---- */

static void hold_over(struct timer *timer)
{
    exec_store_start(container_of(timer, struct box_exec, hold));
}

static bool pace_over(const struct pace *pace)
{
    return exec_over(container_of((struct pace *)(uintptr_t)pace, struct box_exec, pace));
}

static void pace_room(struct pace *pace)
{
    struct box_exec *exec = container_of(pace, struct box_exec, pace);

    if (exec->state != EXEC_RUNNING)
        return;
    exec->ack_due = true;
    exec_ack(exec);
}

static void pace_held_back(struct pace *pace)
{
    struct box_exec *exec = container_of(pace, struct box_exec, pace);

    list_each_safe (pos, &exec->waits) {
        struct box_wait *wait = list_entry(pos, struct box_wait, node);

        if (wait->till_held)
            timer_set(pace->loop, &wait->timer, 0);
    }
}

static const struct pace_kind exec_pace = { .over = pace_over,
                                            .room = pace_room,
                                            .held = pace_held_back };

struct box_exec *exec_new(struct box *box, const char *id, uint32_t number)
{
    struct box_exec *exec = xnew(struct box_exec);

    exec->box = box;
    exec->number = number;
    snprintf(exec->id, sizeof(exec->id), "%s", id);
    exec->end.code = -1;
    exec->oom_before = box->oom_kills;
    exec->spool[INIT_OUT] = exec->spool[INIT_ERR] = SPOOL_NONE;
    list_init(&exec->waits);
    exec->hold.fn = hold_over;
    exec->pace = (struct pace){ .kind = &exec_pace,
                                .loop = box->boxes->loop,
                                .id = exec->id,
                                .spools = exec->spool,
                                .dir = box->boxes->spool_dir,
                                .away_ms = box->boxes->away_ms };
    pace_init(&exec->pace);
    list_init(&exec->heard);
    list_append(&box->execs, &exec->node);
    return exec;
}

static void tell_waits(struct box_exec *exec)
{
    struct list *node;

    while ((node = list_pop(&exec->waits))) {
        struct box_wait *wait = list_entry(node, struct box_wait, node);

        timer_cancel(exec->box->boxes->loop, &wait->timer);
        wait->exec = NULL;
        wait->done(wait);
    }
}

void exec_end_input(struct box_exec *exec)
{
    struct box_input *input = exec->input;

    exec->in_closed = true;
    exec->in_flight = exec->in_unsure = false;
    exec->in_at += exec->in.len;
    exec->in_sent = 0;
    buf_free(&exec->in);
    exec->in = (struct buf){ 0 };
    if (!input)
        return;
    exec->input = NULL;
    input->exec = NULL;
    input->over = true;
    input->room(input);
}

void exec_close_files(struct box_exec *exec)
{
    spool_close(&exec->spool[INIT_OUT]);
    spool_close(&exec->spool[INIT_ERR]);
}

void exec_free(struct box_exec *exec)
{
    exec_end_input(exec);
    tell_waits(exec);
    pace_end(&exec->pace);
    room_found(exec);
    while (!list_empty(&exec->pace.readers))
        reader_gone(list_entry(exec->pace.readers.next, struct box_reader, pace.node));
    term_free(exec);
    exec_close_files(exec);
    if (exec->held)
        change_free(exec->held);
    timer_cancel(exec->box->boxes->loop, &exec->hold);
    end_note_free(exec);
    end_drop(exec);
    list_remove(&exec->heard);
    list_remove(&exec->node);
    arena_free(&exec->arena);
    free(exec);
}

struct box_exec *exec_by_number(const struct box *box, uint32_t number)
{
    /* The newest first: it is mostly one of those. */
    for (struct list *pos = box->execs.prev; pos != &box->execs; pos = pos->prev) {
        struct box_exec *exec = list_entry(pos, struct box_exec, node);

        if (exec->number == number && number)
            return exec;
    }
    return NULL;
}

#define FILES_OF_TERM (1u << INIT_STREAMS) /* beside a bit for each stream */

unsigned exec_files(const struct box_exec *exec)
{
    unsigned which = exec->spec.tty ? FILES_OF_TERM : 0;

    for (unsigned s = 0; s < INIT_STREAMS; s++)
        which |= exec->spool[s].made ? 1u << s : 0;
    return which;
}

void exec_files_remove(struct boxes *boxes, const char *id, unsigned which)
{
    if (which & FILES_OF_TERM)
        term_remove_files(boxes, id);
    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        char name[SPOOL_NAME_SIZE];

        spool_name(name, id, s);
        if (which >> s & 1 && unlinkat(boxes->spool_dir, name, 0) < 0 && errno != ENOENT)
            log_warn("an output file stays", kv_str("file", name),
                     kv_str("error", strerrordesc_np(errno)));
    }
}

void exec_remove_files(struct box_exec *exec)
{
    exec_files_remove(exec->box->boxes, exec->id, exec_files(exec));
}

/* ---- looking ---- */

int box_exec_find(struct box *box, const char *id, struct box_exec **out, struct err *err)
{
    for (struct box_exec *exec = NULL; (exec = box_exec_next(box, exec));)
        if (strcmp(exec->id, id) == 0) {
            *out = exec;
            return 0;
        }
    return err_set(err, ERR_NOT_FOUND, "no command %.64s in sandbox %s", id, box->id);
}

int box_exec_find_prefix(struct box *box, const char *id, struct box_exec **out, struct err *err)
{
    size_t len = strlen(id), found = 0;

    list_each (pos, &box->execs) {
        struct box_exec *exec = list_entry(pos, struct box_exec, node);

        if (exec->state == EXEC_STARTING || strncmp(exec->id, id, len) != 0 ||
            (len < ID_PREFIX_MIN && exec->id[len]))
            continue;
        *out = exec;
        if (!exec->id[len])
            return 0;
        found++;
    }
    if (found > 1)
        return err_set(err, ERR_CONFLICT, "more than one command begins with %.64s", id);
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "no command %.64s in sandbox %s", id, box->id);
    return 0;
}

struct box *box_exec_box(const struct box_exec *exec)
{
    return exec->box;
}

struct box_exec *box_exec_next(const struct box *box, struct box_exec *after)
{
    const struct list *at = after ? &after->node : &box->execs;

    do
        at = at->next;
    while (at != &box->execs &&
           list_entry((struct list *)at, struct box_exec, node)->state == EXEC_STARTING);
    return at == &box->execs ? NULL : list_entry((struct list *)at, struct box_exec, node);
}

bool box_exec_stays(const struct box_exec *exec)
{
    return exec->state == EXEC_RUNNING && !exec->killed;
}

bool box_exec_ended(const struct box_exec *exec)
{
    return exec_over(exec) && (exec->end_stored || exec->end_place);
}

void box_exec_view(const struct box_exec *exec, struct exec_view *out)
{
    const struct init_exited *end = &exec->end;
    bool over = exec->state == EXEC_EXITED;

    *out = (struct exec_view){ .id = exec->id,
                               .sandbox = exec->box->id,
                               .name = exec->spec.name,
                               .state = exec_state_name(exec->state),
                               .reason = exec->lacks_room ? exec->box->boxes->room.why : NULL,
                               .argv = exec->spec.argv,
                               .cwd = exec->spec.cwd,
                               .user = exec->spec.user,
                               .by = exec->by,
                               .tty = exec->spec.tty,
                               .background = exec->spec.background,
                               .stdin_open = exec->spec.stdin_open,
                               .timeout_ms = exec->spec.timeout_ms,
                               .files = exec->spec.files,
                               .file_policy = exec->pid > 0 && (exec->spec.files.count ||
                                                                exec->box->spec.files.count),
                               .pid = exec->pid,
                               .exit_code = !over             ? -1
                                            : end->signal > 0 ? 128 + end->signal
                                                              : end->code,
                               .signal = over ? end->signal : 0,
                               .timed_out = over && end->timed_out,
                               .oom = over && exec->oom,
                               .stdout_bytes = (int64_t)exec->spool[INIT_OUT].end,
                               .stderr_bytes = (int64_t)exec->spool[INIT_ERR].end,
                               .user_us = (int64_t)(end->user_us & INT64_MAX),
                               .system_us = (int64_t)(end->system_us & INT64_MAX),
                               .maxrss_kb = (int64_t)(end->maxrss_kb & INT64_MAX),
                               .started_at = exec->started_ms,
                               .ended_at = exec->ended_ms };
}

/* ---- output ---- */

static void stall(struct box_exec *exec)
{
    exec->stalled = true;
    link_tick_soon(exec->box);
}

void exec_ack(struct box_exec *exec)
{
    struct init_ack ack = { { pace_limit(&exec->pace, INIT_OUT),
                              pace_limit(&exec->pace, INIT_ERR) } };

    if (!exec->ack_due)
        return;
    exec->ack_due = !link_send(exec->box, INIT_ACK, exec->number, &ack, sizeof(ack), NULL, 0, -1);
    if (exec->ack_due)
        link_tick_soon(exec->box);
    else
        pace_acked(&exec->pace, ack.position);
}

/* Bytes at once that are acknowledged at once: whoever prints much goes on while we do. */
#define ACK_NOW 16384

void exec_output(struct box_exec *exec, const struct init_output *head, struct str data)
{
    struct err err = { 0 };
    char name[SPOOL_NAME_SIZE];

    if (head->stream >= INIT_STREAMS || data.n == 0 || head->position > INT64_MAX) {
        box_condemn(exec->box, "its init broke the protocol (output)");
        return;
    }
    if (exec->state == EXEC_STARTING)
        exec_started(exec, &(struct init_started){ .pid = 1 });
    if (exec->state != EXEC_RUNNING)
        return;
    struct spool *spool = &exec->spool[head->stream];
    if (head->position > spool->end) {
        if (!exec->stalled)
            box_condemn(exec->box, "its init left out bytes");
        return;
    }
    if (!pace_allows(&exec->pace, head->stream, head->position + data.n)) {
        box_condemn(exec->box, "its init sent output that no room was left for");
        return;
    }
    data = str_from(data, (size_t)MIN(spool->end - head->position, (uint64_t)data.n));
    exec->ack_due = true;
    list_remove(&exec->heard);
    list_append(&exec->box->heard, &exec->heard);
    if (data.n == 0)
        return;
    spool_name(name, exec->id, head->stream);
    if (spool_add(spool, exec->box->boxes->spool_dir, name, data.p, data.n, &err) < 0) {
        room_lacks(exec, &err);
        stall(exec);
        return;
    }
    room_found(exec);
    exec->news = true;
    if (data.n >= ACK_NOW)
        exec_ack(exec);
}

static void tell_readers(struct box_exec *exec)
{
    if (exec->spec.tty)
        term_round(exec);
    list_each_safe (pos, &exec->pace.readers) {
        struct box_reader *reader = list_entry(pos, struct box_reader, pace.node);

        reader->more(reader);
    }
}

void exec_acknowledge(struct box_exec *exec)
{
    exec_ack(exec);
    if (exec->news) {
        exec->news = false;
        tell_readers(exec);
    }
}

void exec_attach(struct box_exec *exec)
{
    struct init_attach attach = { { pace_limit(&exec->pace, INIT_OUT),
                                    pace_limit(&exec->pace, INIT_ERR) } };

    if (!link_send(exec->box, INIT_ATTACH, exec->number, &attach, sizeof(attach), NULL, 0, -1))
        return;
    exec->stalled = false;
    pace_acked(&exec->pace, attach.position);
}

/* ---- the start, to those that watch all commands ---- */

void boxes_watch(struct boxes *boxes, struct boxes_watch *watch)
{
    list_append(&boxes->watches, &watch->node);
}

void boxes_unwatch(struct boxes_watch *watch)
{
    list_remove(&watch->node);
}

void exec_tell_begun(struct box_exec *exec)
{
    if (exec->begun_told)
        return;
    exec->begun_told = true;
    list_each_safe (pos, &exec->box->boxes->watches) {
        struct boxes_watch *watch = list_entry(pos, struct boxes_watch, node);

        watch->began(watch, exec);
    }
}

/* ---- the end ---- */

/* Whoever waits is told; those who asked for the command to begin with come first. */
static void tell_end(struct box_exec *exec)
{
    struct box_op *op = exec->starting;

    if (exec->end_told)
        return;
    exec->end_told = true;
    exec->starting = NULL;
    if (op)
        op->done(op, NULL);
    exec_tell_begun(exec);
    exec_close_files(exec);
    if (exec->spec.tty)
        term_ended(exec);
    tell_readers(exec);
    tell_waits(exec);
}

static void end_stored(struct change *change, const struct err *err)
{
    struct box_exec *exec = change->exec;

    if (err) {
        room_lacks(exec, err);
        if (exec->end_place) { /* it was told, and stays so */
            exec->end_due = true;
            link_tick_soon(exec->box);
            return;
        }
        exec->state = EXEC_RUNNING; /* its init says it again */
        exec->box->running++;
        exec->box->kept--;
        stall(exec);
        return;
    }
    exec->end_stored = true;
    room_found(exec);
    end_drop(exec);
    (void)link_send(exec->box, INIT_FORGET, exec->number, NULL, 0, NULL, 0, -1);
    tell_end(exec);
}

void exec_store_end(struct box_exec *exec)
{
    struct change *change =
        change_new(exec->box, exec, NULL, exec->state == EXEC_LOST ? "exec.lost" : "exec.exited");

    exec->end_due = false;
    change->write = row_exec_update;
    change->settled = end_stored;
    change->lazy_ms = exec->end_place ? END_LAZY_MS : 0;
    change_submit(change);
}

static void leave(struct box_exec *exec, enum exec_state state)
{
    exec->state = state;
    exec->box->running--;
    exec->box->kept++;
    exec->ended_ms = clock_wall_ms();
    box_touch(exec->box);
    exec_end_input(exec);
    pace_end(&exec->pace);
}

void exec_exited(struct box_exec *exec, const struct init_exited *end)
{
    bool whole = end->end[INIT_OUT] == exec->spool[INIT_OUT].end &&
                 end->end[INIT_ERR] == exec->spool[INIT_ERR].end;

    if (exec->state == EXEC_STARTING)
        exec_started(exec, &(struct init_started){ .pid = 1 });
    if (exec->state == EXEC_EXITED && exec->end_stored) {
        (void)link_send(exec->box, INIT_FORGET, exec->number, NULL, 0, NULL, 0, -1);
        return;
    }
    if (exec->state != EXEC_RUNNING)
        return;
    if (end->code < -1 || end->code > 255 || end->signal < 0 || end->signal > 64 ||
        (end->code < 0) != (end->signal > 0) || end->end[INIT_OUT] < exec->spool[INIT_OUT].end ||
        end->end[INIT_ERR] < exec->spool[INIT_ERR].end) {
        box_condemn(exec->box, "its init broke the protocol (end)");
        return;
    }
    if (!whole) {
        stall(exec);
        return;
    }
    if (exec_ask_oom(exec, end))
        return;
    exec->end = *end;
    leave(exec, EXEC_EXITED);
    exec_counted(EXECS_EXITED);
    tally_command_ended(end->code == 0, exec->ended_ms - exec->started_ms);
    if (end_keep(exec)) { /* nobody waits for the store any more */
        tell_end(exec);
        if (exec->held)
            exec->held->lazy_ms = END_LAZY_MS;
    }
    exec_store_start(exec);
    exec_store_end(exec);
}

void exec_lost(struct box_exec *exec)
{
    if (exec->state == EXEC_STARTING) {
        struct err err = { 0 };

        err_set(&err, ERR_UNAVAILABLE, "sandbox %s ended", exec->box->id);
        exec_start_failed(exec, &err);
        return;
    }
    if (exec->state != EXEC_RUNNING)
        return;
    exec_store_start(exec);
    leave(exec, EXEC_LOST);
    exec_counted(EXECS_LOST);
    tally_command_ended(false, exec->ended_ms - exec->started_ms);
    exec_store_end(exec);
}

void exec_tick(struct box_exec *exec, int64_t now_ms, bool *again)
{
    if (exec->state == EXEC_STARTING) {
        if (now_ms >= exec->start_due_ms) {
            struct err err = { 0 };

            err_set(&err, ERR_TIMEOUT, "sandbox %s does not answer", exec->box->id);
            exec_start_failed(exec, &err);
            return;
        }
        /* Its answer may have found no room in the socket; a list tells too. */
        (void)link_send(exec->box, INIT_LIST, 0, NULL, 0, NULL, 0, -1);
        *again = true;
    }
    if (exec->end_due) {
        exec_store_start(exec);
        exec_store_end(exec);
    }
    if (exec->state == EXEC_RUNNING && (exec->stalled || exec->ack_due)) {
        if (exec->stalled)
            exec_attach(exec);
        exec_acknowledge(exec);
        *again = true;
    }
}

/* ---- waiting and reading ---- */

static void wait_over(struct timer *timer)
{
    struct box_wait *wait = container_of(timer, struct box_wait, timer);

    list_remove(&wait->node);
    wait->exec = NULL;
    wait->done(wait);
}

void box_exec_wait(struct box_exec *exec, int64_t ms, struct box_wait *wait)
{
    struct boxes *boxes = exec->box->boxes;

    wait->exec = exec;
    wait->timer = (struct timer){ .fn = wait_over };
    list_append(&exec->waits, &wait->node);
    bool now =
        box_exec_ended(exec) || boxes->stopping || (wait->till_held && pace_held(&exec->pace));
    timer_set(boxes->loop, &wait->timer, now ? 0 : ms);
}

void box_exec_unwait(struct box_wait *wait)
{
    if (!wait->exec)
        return;
    timer_cancel(wait->exec->box->boxes->loop, &wait->timer);
    list_remove(&wait->node);
    wait->exec = NULL;
}

ssize_t box_exec_read(struct box_exec *exec, unsigned stream, uint64_t from, void *out, size_t len,
                      struct err *err)
{
    char name[SPOOL_NAME_SIZE];
    struct spool *spool = &exec->spool[stream];

    spool_name(name, exec->id, stream);
    ssize_t got = spool_read(spool, exec->box->boxes->spool_dir, name, from, out, len, err);
    if (exec_over(exec))
        spool_close(spool);
    return got;
}

void box_exec_range(const struct box_exec *exec, unsigned stream, uint64_t *begin, uint64_t *end)
{
    *begin = spool_begin(&exec->spool[stream]);
    *end = exec->spool[stream].end;
}

/* ---- readers ---- */

void box_exec_follow(struct box_exec *exec, struct box_reader *reader)
{
    pace_follow(&exec->pace, &reader->pace);
}

void box_exec_unfollow(struct box_reader *reader)
{
    pace_unfollow(&reader->pace);
}

void box_exec_advance(struct box_reader *reader, unsigned stream, uint64_t at)
{
    pace_advance(&reader->pace, stream, at);
}

void reader_gone(struct box_reader *reader)
{
    list_remove(&reader->pace.node);
    reader->pace.pace = NULL;
    reader->gone(reader);
}
