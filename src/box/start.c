/*
 * How a command begins: its wish is copied and sent to its init with everything it will find in its
 * environment; what the init answers makes it run, or is said to whoever asked, by the field that
 * was wrong. Its row is stored then, or held back while its end may come first. What follows,
 * output and end, is in exec.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/log.h"
#include "box/own.h"
#include "model/tally.h"

#define ARGS_INLINE (INIT_PAYLOAD_MAX - sizeof(struct init_exec))

/* ---- what it is told ---- */

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

/* Names are for finding what runs; one that has ended or was killed has given its name back. */
static int check_name(const struct box *box, const char *name, struct err *err)
{
    list_each (pos, &box->execs) {
        const struct box_exec *exec = list_entry(pos, struct box_exec, node);

        if (!exec_over(exec) && !exec->killed && exec->spec.tty && exec->spec.name &&
            strcmp(exec->spec.name, name) == 0)
            return err_set(err, ERR_CONFLICT, "a terminal of this name runs already: %s", exec->id);
    }
    return 0;
}

/*
 * Its row is gone: now its files. The other way round, a kill in between would leave a row that
 * promises output which is not there; this way it leaves files that nobody asks for.
 */
static void forgotten(struct change *change, const struct err *err)
{
    if (err)
        log_error("a command is not forgotten; the next start knows it again",
                  kv_str("exec", change->exec_id), kv_str("error", err->msg));
    else
        exec_files_remove(change->boxes, change->exec_id, (unsigned)(uintptr_t)change->ctx);
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
        change->settled = forgotten;
        change->ctx = (void *)(uintptr_t)exec_files(exec);
        change_submit(change);
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
        return box_refuse(box, err);
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
    if (room_check(box->boxes, err) < 0)
        return -1;
    forget_oldest(box);
    id_make(id, "ex");
    struct box_exec *exec = exec_new(box, id, 0);
    spec_copy(exec, &settled);
    exec->state = EXEC_STARTING;
    exec->started_ms = clock_wall_ms();
    exec->start_due_ms = clock_mono_ms() + EXEC_START_MS;
    exec->pace.hold = exec->spec.hold;
    pace_started(&exec->pace);
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

void exec_start_failed(struct box_exec *exec, const struct err *err)
{
    struct box_op *op = exec->starting;

    exec_counted(EXECS_REFUSED);
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
        exec_start_failed(exec, &err);
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
    if (!err)
        exec_tell_begun(exec);
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
    else if (answer->step == INIT_STEP_FIND && !box_image(exec->box))
        err_field(err, "argv[0]",
                  "%s: the sandbox has the /usr of the server's machine and no home directory of "
                  "it; install the program below /usr/local, or put it into the workspace",
                  step);
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
        exec_start_failed(exec, &err);
        return;
    }
    exec->pid = answer->pid;
    exec->state = EXEC_RUNNING;
    exec_counted(EXECS_STARTED);
    tally_command_started();
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
