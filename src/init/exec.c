/*
 * A command's life: starting (texts checked, pipes or terminal made), input, signals, its end.
 *
 * A command has ended when its first process has; its children may still hold the pipes. EXITED is
 * said when both streams are over, or EXEC_GRACE_MS after the end and all that was in them then was
 * read; what its children print after that is dropped, so that they do not die of a broken pipe. Of
 * one that was killed with everything it started the end is told when nothing of that is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "init/init.h"

#define EXEC_GRACE_MS 100
#define LOOK_MS 5 /* between two looks at a tree that was felled */
#define FEW_TEXTS 64
#define QUIET_MS 1     /* without any event, after the end of a command: nobody waits */
#define SPARE_MS 60000 /* a process that waits for the next command waits so long */

struct exec execs[INIT_EXECS_MAX];
size_t exec_top;

struct exec *exec_find(uint32_t id)
{
    for (size_t i = 0; id && i < exec_top; i++)
        if (execs[i].id == id)
            return &execs[i];
    return NULL;
}

static struct exec *free_slot(void)
{
    for (size_t i = 0; i < exec_top; i++)
        if (execs[i].id == 0)
            return &execs[i];
    return exec_top < INIT_EXECS_MAX ? &execs[exec_top] : NULL;
}

/* ---- texts ---- */

/* Points `count` pointers at NUL-terminated texts from *at on; false when they run out. */
static bool split(char **out, uint32_t count, char **at, const char *end)
{
    for (uint32_t i = 0; i < count; i++) {
        char *nul = *at < end ? memchr(*at, 0, (size_t)(end - *at)) : NULL;

        if (!nul)
            return false;
        out[i] = *at;
        *at = nul + 1;
    }
    out[count] = NULL;
    return true;
}

/* A letter that is known, then an absolute path. */
static bool rules_ok(char *const *rules)
{
    for (; *rules; rules++)
        if (!**rules || !strchr("rwRW", **rules) || (*rules)[1] != '/')
            return false;
    return true;
}

/* argv, env, rules and cwd point into `text`, by way of `list`; false when malformed. */
static bool parse_texts(const struct init_exec *wish, char *text, size_t len, char **list,
                        struct spawn *spawn, char *mark)
{
    char *at = text;

    spawn->argv = list;
    spawn->env = list + wish->argc + 1;
    spawn->files = spawn->env + wish->envc + 2;
    if (!split(spawn->argv, wish->argc, &at, text + len) ||
        !split(spawn->env, wish->envc, &at, text + len) ||
        !split(spawn->files, wish->filec, &at, text + len) || !rules_ok(spawn->files) ||
        at >= text + len || text[len - 1] != 0 || at + strlen(at) + 1 != text + len)
        return false;
    spawn->env[wish->envc] = mark;
    spawn->env[wish->envc + 1] = NULL;
    spawn->cwd = *at ? at : "/";
    return true;
}

/* Three lists, each with its end, and the mark in the second. */
static size_t texts_of(const struct init_exec *wish)
{
    return (size_t)wish->argc + wish->envc + wish->filec + 4;
}

/*
 * Room for the pointers of parse_texts. What most commands need is there: the allocator would ask
 * the kernel for a page each time and give it back.
 */
static char *few[FEW_TEXTS];

static char **list_new(const struct init_exec *wish)
{
    if (wish->argc == 0 || wish->argc > INIT_ARGC_MAX || wish->envc > INIT_ARGC_MAX)
        return NULL;
    return texts_of(wish) <= FEW_TEXTS ? few : calloc(texts_of(wish), sizeof(char *));
}

static void list_free(char **list)
{
    if (list != few)
        free(list);
}

/* The texts that came beside the frame: a sealed memfd of the promised size, copied out. */
static char *read_texts(int fd, size_t len)
{
    struct stat st;

    if (len == 0 || len > INIT_ARGS_MAX || fstat(fd, &st) < 0 || (size_t)st.st_size != len)
        return NULL;
    char *text = malloc(len);
    if (!text)
        return NULL;
    for (size_t at = 0; at < len;) {
        ssize_t got = pread(fd, text + at, len - at, (off_t)at);

        if (got <= 0) {
            free(text);
            return NULL;
        }
        at += (size_t)got;
    }
    return text;
}

/* ---- descriptors ---- */

/*
 * Pipes are made ahead, for one command: when the end of the last one was told nobody waits. Before
 * the first there are none, so that who never runs anything holds none. After the second, as most
 * who run two run more, a process that has them as its output is made too, when nothing happens.
 */
static int ahead[INIT_STREAMS][2] = { { -1, -1 }, { -1, -1 } };
static bool ahead_due, spare_due, has_run;
static int64_t spare_ms; /* until then it is kept */

/* Our end of it, the `ours`-th, does not block. */
static bool pipe_make(int pair[2], int ours)
{
    if (pipe2(pair, O_CLOEXEC) < 0) {
        pair[0] = pair[1] = -1;
        return false;
    }
    fcntl(pair[ours], F_SETFL, O_NONBLOCK);
    return true;
}

/* Those of a process that waits are for whoever it becomes, and for nobody else. */
static bool pipe_take(int stream, int pair[2], bool spare)
{
    if (ahead[stream][0] < 0 || (!spare && spawn_spare()))
        return pipe_make(pair, 0);
    memcpy(pair, ahead[stream], sizeof(ahead[stream]));
    ahead[stream][0] = ahead[stream][1] = -1;
    return true;
}

/* Input that is at its end: one for all, as nothing can be changed about it. */
static int no_input(void)
{
    static int fd = -1;

    if (fd < 0)
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd;
}

int64_t exec_ahead_due(int64_t now)
{
    if (spare_due)
        return now + QUIET_MS;
    if (!spawn_spare())
        return 0;
    if (now >= spare_ms)
        spawn_dismiss();
    return now < spare_ms ? spare_ms : 0;
}

static void make_spare(void)
{
    spare_due = false;
    spare_ms = now_ms() + SPARE_MS;
    if (!spawn_spare() && ahead[INIT_OUT][1] >= 0 && ahead[INIT_ERR][1] >= 0 && no_input() >= 0)
        spawn_ahead((int[3]){ no_input(), ahead[INIT_OUT][1], ahead[INIT_ERR][1] });
}

void exec_ahead(bool quiet)
{
    for (int s = 0; ahead_due && s < INIT_STREAMS; s++)
        if (ahead[s][0] < 0)
            (void)pipe_make(ahead[s], 0);
    ahead_due = false;
    if (quiet && spare_due)
        make_spare();
}

struct ends {
    int ours[3], theirs[3]; /* by 0 input, 1 output, 2 errors; -1 for none */
};

static void close_all(int *fds)
{
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static bool make_pipes(struct ends *ends, bool input, bool spare)
{
    int pair[2];

    if (input) {
        if (!pipe_make(pair, 1))
            return false;
        ends->ours[0] = pair[1];
        ends->theirs[0] = pair[0];
    }
    for (int s = 0; s < INIT_STREAMS; s++) {
        if (!pipe_take(s, pair, spare))
            return false;
        ends->ours[s + 1] = pair[0];
        ends->theirs[s + 1] = pair[1];
    }
    return input || no_input() >= 0;
}

static bool make_tty(struct ends *ends, const struct init_exec *wish)
{
    struct winsize size = { .ws_row = wish->rows ? wish->rows : 24,
                            .ws_col = wish->cols ? wish->cols : 80 };
    int unlock = 0;
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

    if (master < 0)
        return false;
    ends->ours[1] = master;
    if (ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCSWINSZ, &size) < 0)
        return false;
    int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0)
        return false;
    /* For tty(1) and mesg(1). */
    (void)!fchown(slave, wish->flags & INIT_AS_ROOT ? 0 : INIT_AGENT_UID, 5);
    ends->theirs[0] = ends->theirs[1] = ends->theirs[2] = slave;
    return true;
}

/* ---- starting ---- */

static void adopt(struct exec *exec, uint32_t id, pid_t pid, const struct init_exec *wish,
                  struct ends *ends)
{
    *exec = (struct exec){ .id = id,
                           .pid = pid,
                           .tty = wish->flags & INIT_TTY,
                           .operation = wish->flags & INIT_BUILTIN,
                           .in_fd = ends->ours[0] };
    exec_top = MAX(exec_top, (size_t)(exec - execs) + 1);
    exec->out[INIT_OUT].fd = ends->ours[1];
    exec->out[INIT_ERR].fd = ends->ours[2];
    if (exec->tty)
        exec->in_fd = fcntl(ends->ours[1], F_DUPFD_CLOEXEC, 0);
    if (wish->timeout_ms)
        exec->deadline_ms = now_ms() + wish->timeout_ms;
    watch_fd(exec->out[INIT_OUT].fd, EPOLLIN, WATCH_OUT, exec);
    if (exec->out[INIT_ERR].fd >= 0)
        watch_fd(exec->out[INIT_ERR].fd, EPOLLIN, WATCH_ERR, exec);
}

static bool refuse(struct init_started *answer, uint32_t step, int error)
{
    *answer = (struct init_started){ .pid = 0, .error = error, .step = step };
    return false;
}

/* May it be the process that was made ahead? That has no input, and is for the agent. */
static bool is_plain(const struct init_exec *wish)
{
    return !(wish->flags & (INIT_TTY | INIT_STDIN_OPEN | INIT_AS_ROOT | INIT_BUILTIN));
}

static bool start_with(uint32_t id, const struct init_exec *wish, struct spawn *spawn_,
                       struct init_started *answer)
{
    struct ends ends = { { -1, -1, -1 }, { -1, -1, -1 } };
    struct exec *exec = free_slot();
    bool tty = wish->flags & INIT_TTY;

    if (!exec || exec_find(id))
        return refuse(answer, INIT_STEP_LIMIT, exec ? EEXIST : EAGAIN);
    spawn_->spare = is_plain(wish) && spawn_spare();
    if (tty ? !make_tty(&ends, wish)
            : !make_pipes(&ends, wish->flags & INIT_STDIN_OPEN, spawn_->spare)) {
        (void)refuse(answer, tty ? INIT_STEP_TTY : INIT_STEP_PIPES, errno);
        close_all(ends.ours);
        if (!tty)
            close_all(ends.theirs);
        return false;
    }
    memcpy(spawn_->stdio, ends.theirs, sizeof(ends.theirs));
    if (spawn_->stdio[0] < 0)
        spawn_->stdio[0] = no_input();
    spawn_->tty = tty;
    spawn_->as_root = wish->flags & INIT_AS_ROOT;
    spawn_->nofile = wish->nofile;
    spawn_->builtin = wish->flags & INIT_BUILTIN;
    pid_t pid = spawn_->builtin ? builtin_spawn(spawn_) : spawn(spawn_);
    if (tty)
        close(ends.theirs[0]);
    else
        close_all(ends.theirs);
    if (pid < 0 || spawn_->error) {
        close_all(ends.ours);
        return refuse(answer, spawn_->step, spawn_->error);
    }
    adopt(exec, id, pid, wish, &ends);
    *answer = (struct init_started){ .pid = pid };
    return true;
}

void exec_start(uint32_t id, const struct init_exec *wish, const char *text, size_t len, int fd,
                struct init_started *answer)
{
    struct spawn spawn_ = { 0 };
    char mark[32];
    bool beside = wish->flags & INIT_TEXT_FD;
    char *copy = NULL;

    if ((beside ? fd < 0 : wish->text_len != len) || (wish->flags & INIT_SIDE && fd < 0)) {
        (void)refuse(answer, INIT_STEP_TEXT, EINVAL);
        return;
    }
    if (beside)
        text = copy = read_texts(fd, wish->text_len);
    if (wish->flags & INIT_SIDE)
        spawn_.side = fd;
    snprintf(mark, sizeof(mark), "ATOLL_EXEC=%u", id);
    char **list = text && wish->text_len && id ? list_new(wish) : NULL;
    /* The frame is ours until the next one is read, and nobody writes to it. */
    if (list && parse_texts(wish, (char *)(uintptr_t)text, wish->text_len, list, &spawn_, mark))
        (void)start_with(id, wish, &spawn_, answer);
    else
        (void)refuse(answer, INIT_STEP_TEXT, EINVAL);
    list_free(list);
    free(copy);
}

/* ---- while it runs ---- */

static void close_input(struct exec *exec)
{
    if (exec->in_fd >= 0)
        close(exec->in_fd);
    exec->in_fd = -1;
    exec->in_watched = false;
    free(exec->in);
    exec->in = NULL;
    exec->in_len = exec->in_cap = 0;
}

/*
 * What is read is told that nothing more comes. Not for a command that has ended: its terminal
 * would echo the character, behind output that nobody has read yet.
 */
static void end_input(struct exec *exec)
{
    if (exec->in_fd >= 0 && exec->tty) {
        char eot = 4; /* a terminal has no end of file; its line discipline makes one of this */

        if (write(exec->in_fd, &eot, 1) < 0)
            errno = 0;
    }
    close_input(exec);
}

void exec_input_write(struct exec *exec)
{
    while (exec->in_len && exec->in_fd >= 0) {
        ssize_t put = write(exec->in_fd, exec->in, exec->in_len);

        if (put < 0 && errno == EAGAIN) {
            if (!exec->in_watched)
                exec->in_watched = watch_fd(exec->in_fd, EPOLLOUT, WATCH_IN, exec);
            return;
        }
        if (put < 0 && errno != EINTR) {
            close_input(exec); /* nobody reads it any more */
            return;
        }
        if (put > 0) {
            exec->in_len -= (uint32_t)put;
            memmove(exec->in, exec->in + put, exec->in_len);
        }
    }
    if (exec->in_watched) {
        watch_change(exec->in_fd, 0, WATCH_IN, exec); /* 0: taken out */
        exec->in_watched = false;
    }
    if (exec->in_eof)
        end_input(exec);
}

/* What waits for a reader; false when there is no memory. */
static bool keep_input(struct exec *exec, const char *data, size_t len)
{
    if (exec->in_len + len > exec->in_cap) {
        char *grown = realloc(exec->in, exec->in_len + len);

        if (!grown)
            return false;
        exec->in = grown;
        exec->in_cap = (uint32_t)(exec->in_len + len);
    }
    memcpy(exec->in + exec->in_len, data, len);
    exec->in_len += (uint32_t)len;
    return true;
}

int exec_input(struct exec *exec, const char *data, size_t len)
{
    if (exec->in_fd < 0 || exec->in_eof)
        return EPIPE;
    if (len == 0) {
        exec->in_eof = true;
        exec_input_write(exec);
        return 0;
    }
    exec->in_room = true; /* to be told when there is room again */
    if (exec->in_len + len > INIT_STDIN_QUEUE)
        return EAGAIN;
    /* Mostly there is room for it where it belongs; only the rest is copied. */
    ssize_t put = exec->in_len ? 0 : write(exec->in_fd, data, len);
    size_t done = put > 0 ? (size_t)put : 0;
    if (done < len && !keep_input(exec, data + done, len - done)) {
        if (!done)
            return EAGAIN;
        end_input(exec); /* a part of it is nothing that could be asked for again */
        return EPIPE;
    }
    exec->in_total += len;
    if (exec->in_len)
        exec_input_write(exec);
    return 0;
}

bool exec_resize(struct exec *exec, const struct init_resize *size)
{
    struct winsize win = { .ws_row = size->rows, .ws_col = size->cols };

    return exec->tty && size->rows && size->cols && exec->out[INIT_OUT].fd >= 0 &&
           ioctl(exec->out[INIT_OUT].fd, TIOCSWINSZ, &win) == 0;
}

bool exec_signal(struct exec *exec, const struct init_signal *signal_)
{
    if (signal_->number < 1 || signal_->number > 64)
        return false;
    if (signal_->tree && signal_->number == SIGKILL) {
        exec_fell(exec);
        return true;
    }
    if (signal_->tree) {
        tree_kill(exec, signal_->number);
        return true;
    }
    /* A file operation may not have come as far as a group of its own. */
    return !exec->ended && (kill(-exec->pid, signal_->number) == 0 ||
                            (errno == ESRCH && kill(exec->pid, signal_->number) == 0));
}

/* ---- its end ---- */

/* What is in it now. A terminal does not tell of all of it, but cannot hold more than a ring. */
static void set_due(struct out *out, bool tty, bool rest)
{
    int held = 0;

    if (out->fd >= 0 && !tty)
        (void)ioctl(out->fd, FIONREAD, &held);
    out->due = out->end + (tty ? INIT_RING_SIZE : (uint64_t)MAX(held, 0));
    out->rest = rest;
}

void exec_reaped(struct exec *exec, int status, const void *rusage)
{
    const struct rusage *used = rusage;

    set_due(&exec->out[INIT_OUT], exec->tty, !exec->operation);
    set_due(&exec->out[INIT_ERR], exec->tty, !exec->operation);
    ahead_due = true;
    spare_due = has_run;
    has_run = true;
    exec->ended = true;
    exec->grace_ms = now_ms() + EXEC_GRACE_MS;
    exec->end.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    exec->end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    exec->end.timed_out = exec->timed_out;
    exec->end.user_us =
        (uint64_t)used->ru_utime.tv_sec * 1000000 + (uint64_t)used->ru_utime.tv_usec;
    exec->end.system_us =
        (uint64_t)used->ru_stime.tv_sec * 1000000 + (uint64_t)used->ru_stime.tv_usec;
    exec->end.maxrss_kb = (uint64_t)used->ru_maxrss;
    exec->deadline_ms = 0;
    exec->in_eof = true;
    close_input(exec);
}

void exec_fell(struct exec *exec)
{
    tree_kill(exec, SIGKILL);
    exec->felled = true;
    exec->look_ms = 0;
}

/* A process that was killed is not gone yet, and one may have been born meanwhile. */
void exec_look(struct exec *exec, int64_t now)
{
    if (!exec->felled || !exec->ended || now < exec->look_ms)
        return;
    exec->felled = tree_left(exec);
    exec->look_ms = now + LOOK_MS;
}

/* There is more that may be its own, and no room for it yet. */
static bool out_waits(const struct out *out)
{
    return out_full(out) && out->end < out->due;
}

bool exec_finished(const struct exec *exec, int64_t now)
{
    bool open = exec->out[INIT_OUT].fd >= 0 || exec->out[INIT_ERR].fd >= 0;
    bool waiting = out_waits(&exec->out[INIT_OUT]) || out_waits(&exec->out[INIT_ERR]);

    return exec->ended && !exec->felled &&
           (!open || exec->draining || (now >= exec->grace_ms && !waiting));
}

void exec_forget(struct exec *exec)
{
    close_input(exec);
    for (int s = 0; s < INIT_STREAMS && !exec->tty; s++)
        if (exec->out[s].fd >= 0) {
            leave_open(exec->out[s].fd);
            exec->out[s].fd = -1;
        }
    out_free(&exec->out[INIT_OUT]);
    out_free(&exec->out[INIT_ERR]);
    *exec = (struct exec){ .in_fd = -1 };
}
