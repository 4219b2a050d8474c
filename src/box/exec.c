/*
 * One command: its start, its output into files, its end.
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
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "box/own.h"

METRIC_COUNTER(execs_total, "atoll_execs_total", "Commands in sandboxes", "what", "started",
               "refused", "exited", "lost");
enum { EXECS_STARTED, EXECS_REFUSED, EXECS_EXITED, EXECS_LOST };

#define ARGS_INLINE (INIT_PAYLOAD_MAX - sizeof(struct init_exec))

/* ---- life of the object ---- */

static void hold_over(struct timer *timer)
{
    exec_store_start(container_of(timer, struct box_exec, hold));
}

struct box_exec *exec_new(struct box *box, const char *id, uint32_t number)
{
    struct box_exec *exec = xnew(struct box_exec);

    exec->box = box;
    exec->number = number;
    snprintf(exec->id, sizeof(exec->id), "%s", id);
    exec->end.code = -1;
    exec->oom_before = box->oom_kills;
    exec->spool[INIT_OUT] = exec->spool[INIT_ERR] = SPOOL_NONE;
    list_init(&exec->readers);
    list_init(&exec->waits);
    exec->hold.fn = hold_over;
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
    exec->in_flight = false;
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
    struct list *node;

    exec_end_input(exec);
    tell_waits(exec);
    while ((node = list_pop(&exec->readers))) {
        struct box_reader *reader = list_entry(node, struct box_reader, node);

        reader->gone(reader);
    }
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

void exec_remove_files(struct box_exec *exec)
{
    term_remove_files(exec);
    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        char name[SPOOL_NAME_SIZE];

        spool_name(name, exec->id, s);
        if (exec->spool[s].made && unlinkat(exec->box->boxes->spool_dir, name, 0) < 0 &&
            errno != ENOENT)
            log_warn("an output file stays", kv_str("file", name),
                     kv_str("error", strerrordesc_np(errno)));
    }
}

/* ---- looking ---- */

int box_exec_find(struct box *box, const char *id, struct box_exec **out, struct err *err)
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

struct box_exec *box_exec_next(const struct box *box, struct box_exec *after)
{
    const struct list *at = after ? &after->node : &box->execs;

    do
        at = at->next;
    while (at != &box->execs &&
           list_entry((struct list *)at, struct box_exec, node)->state == EXEC_STARTING);
    return at == &box->execs ? NULL : list_entry((struct list *)at, struct box_exec, node);
}

static bool has_ended(const struct box_exec *exec)
{
    return exec->state == EXEC_EXITED || exec->state == EXEC_LOST;
}

bool box_exec_ended(const struct box_exec *exec)
{
    return has_ended(exec) && (exec->end_stored || exec->end_place);
}

void box_exec_view(const struct box_exec *exec, struct exec_view *out)
{
    const struct init_exited *end = &exec->end;
    bool over = exec->state == EXEC_EXITED;

    *out = (struct exec_view){ .id = exec->id,
                               .sandbox = exec->box->id,
                               .name = exec->spec.name,
                               .state = exec_state_name(exec->state),
                               .argv = exec->spec.argv,
                               .cwd = exec->spec.cwd,
                               .user = exec->spec.user,
                               .by = exec->by,
                               .tty = exec->spec.tty,
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

/* ---- starting ---- */

/* Settings of the environment; a later one of the same name wins. */
struct env {
    const char *keys[800], *values[800];
    size_t count;
};

static void env_put(struct env *env, const char *key, const char *value)
{
    size_t i = 0;

    while (i < env->count && strcmp(env->keys[i], key) != 0)
        i++;
    if (i == ARRAY_LEN(env->keys))
        return; /* tables allow fewer */
    env->keys[i] = key;
    env->values[i] = value;
    if (i == env->count)
        env->count++;
}

/*
 * The way out, for those who ask for it: others find it by any address and any resolver. There are
 * programs that read the one spelling and programs that read the other.
 */
#define PROXY_URL "http://" EGRESS_SELF_TEXT ":3128"
#define PROXY_NOT "localhost,127.0.0.1,::1," EGRESS_NAME
_Static_assert(EGRESS_PORT == 3128, "PROXY_URL");

static const struct field_pair proxy_env[] = {
    { "HTTP_PROXY", PROXY_URL }, { "HTTPS_PROXY", PROXY_URL }, { "NO_PROXY", PROXY_NOT },
    { "http_proxy", PROXY_URL }, { "https_proxy", PROXY_URL }, { "no_proxy", PROXY_NOT },
};

static void env_fill(struct env *env, const struct box *box, const struct exec_spec *spec)
{
    bool root = strcmp(spec->user, "root") == 0;

    env_put(env, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    /* check-style: allow machine-path: inside every sandbox */
    env_put(env, "HOME", root ? "/root" : "/home/agent");
    env_put(env, "USER", spec->user);
    env_put(env, "LOGNAME", spec->user);
    env_put(env, "SHELL", "/bin/sh");
    env_put(env, "LANG", "C.UTF-8");
    env_put(env, "ATOLL_SANDBOX", box->id);
    for (size_t i = 0; i < ARRAY_LEN(proxy_env); i++)
        env_put(env, proxy_env[i].key, proxy_env[i].value);
    if (spec->tty)
        env_put(env, "TERM", "xterm-256color");
    const struct image *image = box_image(box);
    for (const struct field_pair *pair = image ? image->env : NULL; pair && pair->key; pair++)
        env_put(env, pair->key, pair->value);
    /* Behind the image's: its own list of whom to trust does not know who is to be trusted here. */
    for (const struct field_pair *pair = trusted_env(box); pair->key; pair++)
        env_put(env, pair->key, pair->value);
    for (const struct field_pair *pair = box->trust.env; pair && pair->key; pair++)
        env_put(env, pair->key, pair->value);
    for (const struct field_pair *pair = box->spec.env; pair && pair->key; pair++)
        env_put(env, pair->key, pair->value);
    for (const struct field_pair *pair = spec->env; pair && pair->key; pair++)
        env_put(env, pair->key, pair->value);
}

static void put_text(struct buf *out, const char *text)
{
    buf_append(out, text, strlen(text) + 1);
}

/* Rules of one set, with its letters for read and write. */
static uint32_t put_rules(struct buf *out, struct field_list files, const char letters[2])
{
    const struct file_rule *rules = files.items;

    for (size_t i = 0; i < files.count; i++) {
        buf_putc(out, letters[strcmp(rules[i].access, "write") == 0]);
        put_text(out, rules[i].path);
    }
    return (uint32_t)files.count;
}

/* The texts of an EXEC frame, and the numbers that describe them. */
static int compose(const struct box *box, const struct exec_spec *spec, struct init_exec *head,
                   struct buf *texts, struct err *err)
{
    struct env env = { .count = 0 };

    *head = (struct init_exec){ .flags = (spec->tty ? INIT_TTY : 0u) |
                                         (spec->stdin_open ? INIT_STDIN_OPEN : 0u) |
                                         (strcmp(spec->user, "root") == 0 ? INIT_AS_ROOT : 0u),
                                .rows = (uint16_t)spec->rows,
                                .cols = (uint16_t)spec->cols,
                                .timeout_ms = (uint32_t)spec->timeout_ms };
    for (const char **arg = spec->argv; *arg; arg++, head->argc++)
        put_text(texts, *arg);
    env_fill(&env, box, spec);
    for (size_t i = 0; i < env.count; i++, head->envc++) {
        buf_puts(texts, env.keys[i]);
        buf_putc(texts, '=');
        put_text(texts, env.values[i]);
    }
    head->filec = put_rules(texts, box->spec.files, "rw");
    head->filec += put_rules(texts, spec->files, "RW");
    put_text(texts, spec->cwd);
    if (texts->len > INIT_ARGS_MAX)
        return err_field(err, "argv", "arguments and environment have more than %u bytes",
                         INIT_ARGS_MAX);
    head->text_len = (uint32_t)texts->len;
    return 0;
}

/* Sealed memory with the texts, for those that do not fit a frame. */
static int texts_fd(struct str texts, struct err *err)
{
    autoclose int fd = (int)syscall(SYS_memfd_create, "exec", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return err_sys(err, "memory for the arguments");
    while (texts.n) {
        ssize_t put = write(fd, texts.p, texts.n);

        if (put <= 0)
            return err_sys(err, "write the arguments");
        texts = str_from(texts, (size_t)put);
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return err_sys(err, "seal the arguments");
    return take_fd(&fd);
}

static int send_exec(struct box_exec *exec, struct err *err)
{
    autobuf struct buf texts = { 0 };
    struct init_exec head;
    int fd = -1;

    exec->number = exec->box->next_number++;
    if (compose(exec->box, &exec->spec, &head, &texts, err) < 0)
        return -1;
    if (exec->feeding)
        head.flags |= INIT_STDIN_OPEN;
    bool beside = texts.len > ARGS_INLINE;
    if (beside) {
        head.flags |= INIT_TEXT_FD;
        fd = texts_fd(buf_view(&texts), err);
        if (fd < 0)
            return -1;
    }
    if (!link_send(exec->box, INIT_EXEC, exec->number, &head, sizeof(head), texts.data,
                   beside ? 0 : texts.len, fd))
        return err_set(err, ERR_UNAVAILABLE, "sandbox %s cannot be reached now", exec->box->id);
    exec_feed(exec);
    return 0;
}

bool exec_send_bare(struct box *box, uint32_t number, const char *const *argv)
{
    autobuf struct buf texts = { 0 };
    struct exec_spec spec = { .argv = (const char **)argv, .cwd = "/", .user = box->spec.user };
    struct init_exec head;
    struct err err;

    return compose(box, &spec, &head, &texts, &err) == 0 && texts.len <= ARGS_INLINE &&
           link_send(box, INIT_EXEC, number, &head, sizeof(head), texts.data, texts.len, -1);
}

/* A copy in the command's own memory, with `command` turned into argv. */
static void spec_copy(struct box_exec *exec, const struct exec_spec *from)
{
    struct arena *arena = &exec->arena;
    struct exec_spec *to = &exec->spec;
    size_t argc = 0, envc = 0;

    *to = *from;
    while (from->argv && from->argv[argc])
        argc++;
    to->argv = arena_alloc(arena, (MAX(argc, (size_t)3) + 1) * sizeof(*to->argv));
    for (size_t i = 0; i < argc; i++)
        to->argv[i] = arena_strdup(arena, from->argv[i]);
    if (from->command) {
        to->argv[0] = "/bin/sh";
        to->argv[1] = "-c";
        to->argv[2] = arena_strdup(arena, from->command);
    }
    to->command = to->stdin = to->stdin_base64 = NULL;
    to->input = STR_NONE;
    to->cwd = arena_strdup(arena, from->cwd);
    to->name = from->name ? arena_strdup(arena, from->name) : NULL;
    to->files = files_copy(arena, from->files);
    to->user = strcmp(from->user, "root") == 0 ? "root" : "agent";
    while (from->env && from->env[envc].key)
        envc++;
    to->env = arena_alloc(arena, (envc + 1) * sizeof(*to->env));
    for (size_t i = 0; i < envc; i++)
        to->env[i] = (struct field_pair){ arena_strdup(arena, from->env[i].key),
                                          arena_strdup(arena, from->env[i].value) };
}

/* Names are for finding what runs; one that has ended has given its name back. */
static int check_name(const struct box *box, const char *name, struct err *err)
{
    list_each (pos, &box->execs) {
        const struct box_exec *exec = list_entry(pos, struct box_exec, node);

        if (!has_ended(exec) && exec->spec.tty && exec->spec.name &&
            strcmp(exec->spec.name, name) == 0)
            return err_set(err, ERR_CONFLICT, "a terminal of this name runs already: %s", exec->id);
    }
    return 0;
}

/* The oldest ended ones make room. */
static void forget_oldest(struct box *box)
{
    list_each_safe (pos, &box->execs) {
        struct box_exec *exec = list_entry(pos, struct box_exec, node);

        if (box->kept < EXECS_KEPT_MAX)
            return;
        if (!exec->end_stored)
            continue;
        struct change *change = change_new(box, exec, NULL, NULL);
        change->exec = NULL;
        change->write = row_exec_delete;
        change->lazy_ms = box->boxes->hold_ms;
        change_submit(change);
        exec_remove_files(exec);
        exec_free(exec);
        box->kept--;
    }
}

int box_exec(struct box *box, const struct exec_spec *spec, struct box_op *op, struct err *err)
{
    const struct image *image = box_image(box);
    struct exec_spec settled = *spec;
    char id[ID_SIZE];

    if (box->state != SANDBOX_RUNNING || box->busy)
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id,
                       box->busy ? box->busy : sandbox_state_name(box->state));
    if (image && !settled.cwd)
        settled.cwd = *image->told.config->workdir ? image->told.config->workdir : "/";
    if (exec_spec_settle(&settled, box->spec.user, err) < 0)
        return -1;
    if (strcmp(settled.user, "root") == 0 && strcmp(box->spec.user, "root") != 0)
        return err_field(err, "user", "this sandbox was made for user agent");
    if (settled.name && settled.tty && check_name(box, settled.name, err) < 0)
        return -1;
    if (box->running >= EXECS_RUNNING_MAX)
        return err_set(err, ERR_RATE, "%u commands run already in this sandbox", box->running);
    forget_oldest(box);
    id_make(id, "ex");
    struct box_exec *exec = exec_new(box, id, 0);
    spec_copy(exec, &settled);
    exec->state = EXEC_STARTING;
    exec->started_ms = clock_wall_ms();
    exec->start_due_ms = clock_mono_ms() + EXEC_START_MS;
    snprintf(exec->by, sizeof(exec->by), "%s", op->by);
    if (exec_feed_take(exec, &settled, err) < 0 || (!box->unsure && send_exec(exec, err) < 0)) {
        exec_free(exec);
        return -1;
    }
    exec->starting = op;
    op->box = box;
    op->exec = exec;
    box->running++;
    link_tick_soon(box);
    return 0;
}

static void start_failed(struct box_exec *exec, const struct err *err)
{
    struct box_op *op = exec->starting;

    metric_add(&execs_total, EXECS_REFUSED, 1);
    exec->starting = NULL;
    exec->box->running--;
    exec_free(exec);
    if (op) {
        op->exec = NULL;
        op->done(op, err);
    }
}

/*
 * Of an adopted sandbox: what was started just before we were killed has a number that no row
 * tells, and its end would be taken for that of the next one with it.
 */
void exec_send_late(struct box_exec *exec)
{
    struct err err = { 0 };

    if (!exec->number && send_exec(exec, &err) < 0)
        start_failed(exec, &err);
}

static void start_stored(struct change *change, const struct err *err)
{
    struct box_exec *exec = change->exec;
    struct box_op *op = exec->starting;

    exec->starting = NULL;
    if (err && exec->end_place) { /* it was told, and stays so */
        exec->held = change;
        change->again = exec->end_due = true;
        link_tick_soon(exec->box);
        return;
    }
    if (err) { /* what is not stored does not run */
        struct init_signal kill_it = { .number = 9, .tree = 1 };

        (void)link_send(change->box, INIT_SIGNAL, exec->number, &kill_it, sizeof(kill_it), NULL, 0,
                        -1);
    }
    exec->start_stored = !err;
    end_note_free(exec);
    if (op)
        op->done(op, err);
}

/* A rule that could not be entered, by its number. */
static void files_error(const struct box_exec *exec, uint32_t which, int error, const char *why,
                        struct err *err)
{
    const struct field_list *boxs = &exec->box->spec.files, *own = &exec->spec.files;
    bool of_box = which < boxs->count;
    const struct file_rule *rules = of_box ? boxs->items : own->items;
    char field[48] = "files";

    if (of_box)
        err_field(err, field, "rule of the sandbox: \"%s\": %s", rules[which].path, why);
    else if (which - boxs->count < own->count) {
        snprintf(field, sizeof(field), "files[%zu].path", which - boxs->count);
        err_field(err, field, "\"%s\": %s", rules[which - boxs->count].path, why);
    } else {
        err_field(err, field, "rules about files cannot be kept here: %s",
                  error == EOPNOTSUPP ? "they need Landlock as of Linux 6.2" : why);
    }
}

/* Who made the mistake, by where it failed. */
static void start_error(const struct box_exec *exec, const struct init_started *answer,
                        struct err *err)
{
    const char *why = strerrordesc_np(answer->error);
    const char *step = init_step_name(answer->step);

    if (!why)
        why = "error";
    if (answer->step == INIT_STEP_CWD)
        err_field(err, "cwd", "%s \"%s\": %s", step, exec->spec.cwd,
                  answer->error == ELOOP ? "a magic link, or too many symbolic links" : why);
    else if (answer->step == INIT_STEP_FIND || answer->step == INIT_STEP_EXECVE)
        err_field(err, "argv[0]", "%s: %s", step, why);
    else if (answer->step >= INIT_STEP_FILES && answer->step <= INIT_STEP_FILES + INIT_FILES_MAX)
        files_error(exec, answer->step - INIT_STEP_FILES, answer->error, why, err);
    else
        err_set(err, answer->step == INIT_STEP_LIMIT ? ERR_RATE : ERR_UNAVAILABLE,
                "the command could not be started: %s: %s", step, why);
    if (err->code == ERR_INVALID)
        err->code = ERR_UNPROCESSABLE;
    err->sys = answer->error;
}

void exec_hold_start(struct box_exec *exec, struct box_op *op)
{
    exec->held = change_new(exec->box, exec, op, "exec.started");
    exec->held->write = row_exec_insert;
    exec->held->settled = start_stored;
}

void exec_store_start(struct box_exec *exec)
{
    struct change *change = exec->held;

    timer_cancel(exec->box->boxes->loop, &exec->hold);
    if (!change)
        return;
    exec->held = NULL;
    change_submit(change);
}

/*
 * Whoever waits for the end is told nothing before it, so the row may wait for it too: most
 * commands are short, and then their start and end are in one commit, after the answer. A kill
 * meanwhile undoes the command, as one that was acknowledged to nobody (take_stranger). Input that
 * came with the wish is with its init first, so that no command goes on with half of it.
 */
void exec_fed(struct box_exec *exec)
{
    struct boxes *boxes = exec->box->boxes;

    if (exec->note.len && exec->held && !boxes->stopping)
        timer_set(boxes->loop, &exec->hold, boxes->hold_ms);
    else
        exec_store_start(exec);
}

void exec_started(struct box_exec *exec, const struct init_started *answer)
{
    if (exec->state != EXEC_STARTING)
        return; /* known already, from a list */
    if (answer->pid <= 0) {
        struct err err = { 0 };

        start_error(exec, answer, &err);
        start_failed(exec, &err);
        return;
    }
    exec->pid = answer->pid;
    exec->state = EXEC_RUNNING;
    metric_add(&execs_total, EXECS_STARTED, 1);
    struct box_op *op = exec->starting;
    struct audit row;
    if (op && op->prepare)
        op->prepare(op);
    exec_hold_start(exec, op);
    if (op && op->till_end) {
        if (op->audit && op->audit(op, &row))
            end_note_start(exec, exec->held, &row);
        exec->held->lazy_ms = exec->note.len ? 0 : exec->box->boxes->hold_ms;
    }
    if (!exec->feeding)
        exec_fed(exec);
}

/* ---- output ---- */

static void stall(struct box_exec *exec)
{
    exec->stalled = true;
    link_tick_soon(exec->box);
}

static void acknowledge(struct box_exec *exec)
{
    struct init_ack ack = { { exec->spool[INIT_OUT].end, exec->spool[INIT_ERR].end } };

    if (!exec->ack_due)
        return;
    exec->ack_due = !link_send(exec->box, INIT_ACK, exec->number, &ack, sizeof(ack), NULL, 0, -1);
    if (exec->ack_due)
        link_tick_soon(exec->box);
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
    data = str_from(data, (size_t)MIN(spool->end - head->position, (uint64_t)data.n));
    exec->ack_due = true;
    list_remove(&exec->heard);
    list_append(&exec->box->heard, &exec->heard);
    if (data.n == 0)
        return;
    spool_name(name, exec->id, head->stream);
    if (spool_add(spool, exec->box->boxes->spool_dir, name, data.p, data.n, &err) < 0) {
        if (!exec->stalled)
            log_error("output waits in its sandbox", kv_str("exec", exec->id),
                      kv_str("error", err.msg));
        stall(exec);
        return;
    }
    exec->news = true;
    if (data.n >= ACK_NOW)
        acknowledge(exec);
}

static void tell_readers(struct box_exec *exec)
{
    if (exec->spec.tty)
        term_round(exec);
    list_each_safe (pos, &exec->readers) {
        struct box_reader *reader = list_entry(pos, struct box_reader, node);

        reader->more(reader);
    }
}

void exec_acknowledge(struct box_exec *exec)
{
    acknowledge(exec);
    if (exec->news) {
        exec->news = false;
        tell_readers(exec);
    }
}

void exec_attach(struct box_exec *exec)
{
    struct init_attach attach = { { exec->spool[INIT_OUT].end, exec->spool[INIT_ERR].end } };

    if (link_send(exec->box, INIT_ATTACH, exec->number, &attach, sizeof(attach), NULL, 0, -1))
        exec->stalled = false;
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
        log_error("the end of a command is not stored yet", kv_str("exec", exec->id),
                  kv_str("error", err->msg));
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
    metric_add(&execs_total, EXECS_EXITED, 1);
    if (end_keep(exec))
        tell_end(exec);
    exec_store_start(exec);
    exec_store_end(exec);
}

void exec_lost(struct box_exec *exec)
{
    if (exec->state == EXEC_STARTING) {
        struct err err = { 0 };

        err_set(&err, ERR_UNAVAILABLE, "sandbox %s ended", exec->box->id);
        start_failed(exec, &err);
        return;
    }
    if (exec->state != EXEC_RUNNING)
        return;
    exec_store_start(exec);
    leave(exec, EXEC_LOST);
    metric_add(&execs_total, EXECS_LOST, 1);
    exec_store_end(exec);
}

void exec_tick(struct box_exec *exec, int64_t now_ms, bool *again)
{
    if (exec->state == EXEC_STARTING) {
        if (now_ms >= exec->start_due_ms) {
            struct err err = { 0 };

            err_set(&err, ERR_TIMEOUT, "sandbox %s does not answer", exec->box->id);
            start_failed(exec, &err);
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
    timer_set(boxes->loop, &wait->timer, box_exec_ended(exec) || boxes->stopping ? 0 : ms);
}

void box_exec_unwait(struct box_wait *wait)
{
    if (!wait->exec)
        return;
    timer_cancel(wait->exec->box->boxes->loop, &wait->timer);
    list_remove(&wait->node);
    wait->exec = NULL;
}

void box_exec_follow(struct box_exec *exec, struct box_reader *reader)
{
    list_append(&exec->readers, &reader->node);
}

void box_exec_unfollow(struct box_reader *reader)
{
    list_remove(&reader->node);
}

ssize_t box_exec_read(struct box_exec *exec, unsigned stream, uint64_t from, void *out, size_t len,
                      struct err *err)
{
    char name[SPOOL_NAME_SIZE];
    struct spool *spool = &exec->spool[stream];

    spool_name(name, exec->id, stream);
    ssize_t got = spool_read(spool, exec->box->boxes->spool_dir, name, from, out, len, err);
    if (has_ended(exec))
        spool_close(spool);
    return got;
}

void box_exec_range(const struct box_exec *exec, unsigned stream, uint64_t *begin, uint64_t *end)
{
    *begin = spool_begin(&exec->spool[stream]);
    *end = exec->spool[stream].end;
}
