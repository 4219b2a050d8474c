/*
 * Process 1. Starts with the listening socket at INIT_LISTEN_FD and perhaps a first connection at
 * INIT_LINK_FD, everything else closed; makes itself non-dumpable, so that nobody inside can look
 * into it; then waits, for ever.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "init/init.h"

#define ROUND_EVENTS 64
#define DRAIN_READS 16
#define LEAN_MS 100
#define FEW_FDS 32u /* with which some commands can run at once */

static int epoll_fd, signal_fd;
static int late[2 * INIT_STREAMS]; /* to be closed when all was said */
static size_t late_count;
static uint32_t link_waits; /* what the connection is watched for */
static unsigned nobodys;    /* pipes that outlived their command */
static bool lean;           /* we have no more than we need */
static int64_t lean_ms;     /* before that, who was made for one command is gone */

int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Which command, by its place; or, of a pipe that is nobody's, which descriptor. */
static uint64_t tag(enum watch_kind kind, int which)
{
    return (uint64_t)kind << 32 | (uint32_t)which;
}

static int place_of(const struct exec *exec)
{
    return exec ? (int)(exec - execs) : 0;
}

bool watch_fd(int fd, uint32_t events, enum watch_kind kind, const struct exec *exec)
{
    struct epoll_event event = { .events = events, .data.u64 = tag(kind, place_of(exec)) };

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

void watch_change(int fd, uint32_t events, enum watch_kind kind, const struct exec *exec)
{
    struct epoll_event event = { .events = events, .data.u64 = tag(kind, place_of(exec)) };

    epoll_ctl(epoll_fd, events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL, fd, &event);
}

void close_late(int fd)
{
    if (late_count < ARRAY_LEN(late))
        late[late_count++] = fd;
    else
        close(fd);
}

/* The end of a round: nobody waits for this; nor for anything when it was a quiet one. */
static void tidy(bool quiet)
{
    while (late_count)
        close(late[--late_count]);
    exec_ahead(quiet);
    if (quiet && !lean && now_ms() >= lean_ms) {
        lean = true;
        spawn_shed();
    }
}

static struct exec *find_running(pid_t pid)
{
    for (size_t i = 0; i < exec_top; i++)
        if (execs[i].id && !execs[i].ended && execs[i].pid == pid)
            return &execs[i];
    return NULL;
}

/* A command may stop, or be stopped. An operation is our own doing, and whoever asked waits. */
static void reap(void)
{
    struct signalfd_siginfo info;
    struct rusage used;
    int status;
    pid_t pid;

    (void)!read(signal_fd, &info, sizeof(info)); /* there is never more than one: SIGCHLD */
    while ((pid = wait4(-1, &status, WNOHANG | WUNTRACED, &used)) > 0) {
        struct exec *exec = find_running(pid);

        if (exec && !WIFSTOPPED(status))
            exec_reaped(exec, status, &used);
        else if (exec && exec->operation)
            kill(pid, SIGCONT); /* not waited for: the number is its own */
    }
}

/* After the end was told, what still comes is nobody's: read and dropped, a bit at a time. */
static bool drain(int fd)
{
    char nowhere[4096];
    ssize_t got = 1;

    for (int i = 0; i < DRAIN_READS && got > 0; i++)
        got = read(fd, nowhere, sizeof(nowhere));
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return true;
    close(fd);
    return false;
}

/* A part of the descriptors that commands do not need. */
static unsigned nobodys_max(void)
{
    struct rlimit limit = { 0 };

    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur < FEW_FDS ? 0 : (unsigned)MIN((limit.rlim_cur - FEW_FDS) / 4, 64u);
}

/*
 * A command is forgotten soon after its end, and what it left running goes on printing. So its
 * pipes stay, as long as there are enough descriptors for what comes.
 */
void leave_open(int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = tag(WATCH_NOBODY, fd) };

    if (nobodys < nobodys_max() && epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event) == 0)
        nobodys++;
    else
        close(fd);
}

static void readable(struct exec *exec, int stream)
{
    struct out *out = &exec->out[stream];

    if (!exec->id || out->fd < 0)
        return;
    if (exec->draining) {
        if (!drain(out->fd))
            out->fd = -1;
        return;
    }
    while (!out_full(out) && out_fill(out) > 0)
        ;
    if (out->fd >= 0 && out_full(out)) {
        out->paused = true;
        watch_change(out->fd, EPOLLERR, stream == INIT_OUT ? WATCH_OUT : WATCH_ERR, exec);
    }
}

static void accept_link(void)
{
    int fd = accept4(INIT_LISTEN_FD, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        link_adopt(fd);
        link_waits = EPOLLIN;
    }
}

static void dispatch(const struct epoll_event *event)
{
    struct exec *exec = &execs[(uint32_t)event->data.u64 % INIT_EXECS_MAX];

    switch ((enum watch_kind)(event->data.u64 >> 32)) {
    case WATCH_LISTEN:
        accept_link();
        break;
    case WATCH_LINK:
        if (link_fd >= 0 && (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
            link_readable();
        break;
    case WATCH_SIGNAL:
        reap();
        break;
    case WATCH_OUT:
        readable(exec, INIT_OUT);
        break;
    case WATCH_ERR:
        readable(exec, INIT_ERR);
        break;
    case WATCH_IN:
        if (exec->id)
            exec_input_write(exec);
        break;
    case WATCH_NOBODY:
        nobodys -= !drain((int)(uint32_t)event->data.u64);
        break;
    }
}

/* Kills what is over its time; how long until the next thing is due, or -1. */
static int due(void)
{
    int64_t now = now_ms(), ahead_at = exec_ahead_due(now),
            next = ahead_at ? ahead_at
                   : lean   ? -1
                            : lean_ms;

    for (size_t i = 0; i < exec_top; i++) {
        struct exec *exec = &execs[i];

        if (!exec->id)
            continue;
        if (exec->deadline_ms && exec->deadline_ms <= now) {
            exec->timed_out = true;
            exec->deadline_ms = 0;
            exec_fell(exec);
        }
        bool waits = exec->ended && !exec->told && link_fd >= 0;
        int64_t at = exec->deadline_ms       ? exec->deadline_ms
                     : waits && exec->felled ? exec->look_ms
                     : waits                 ? exec->grace_ms
                                             : 0;
        if (at && (next < 0 || at < next))
            next = at;
    }
    return next < 0 ? -1 : next <= now ? 10 : (int)MIN(next - now, (int64_t)60000);
}

static void mind_the_link(void)
{
    uint32_t want = link_fd < 0 ? 0 : link_events();

    if (link_fd >= 0 && want != link_waits)
        watch_change(link_fd, want, WATCH_LINK, NULL);
    link_waits = want;
}

static void set_up(void)
{
    sigset_t child;
    bool linked = fcntl(INIT_LINK_FD, F_SETFD, FD_CLOEXEC) == 0; /* before the number is taken */

    if (chdir("/") < 0) /* where looking up a working directory begins */
        _exit(70);
    umask(022); /* for commands, too */
    /* Who is the same as we in all its groups could change our limits: root's commands are not. */
    if (guard(saved_group) && getuid() == 0 && setresgid(0, 0, INIT_AGENT_UID) < 0)
        _exit(70);
    if (guard(dumpable))
        prctl(PR_SET_DUMPABLE, 0);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (epoll_fd < 0 || signal_fd < 0)
        _exit(70);
    fcntl(INIT_LISTEN_FD, F_SETFD, FD_CLOEXEC);
    fcntl(INIT_LISTEN_FD, F_SETFL, O_NONBLOCK);
    watch_fd(signal_fd, EPOLLIN, WATCH_SIGNAL, NULL);
    watch_fd(INIT_LISTEN_FD, EPOLLIN, WATCH_LISTEN, NULL);
    lean_ms = now_ms() + LEAN_MS;
    if (linked) {
        link_adopt(INIT_LINK_FD);
        link_waits = EPOLLIN;
    }
}

int main(void)
{
    struct epoll_event events[ROUND_EVENTS];

    set_up();
    for (;;) {
        int count = epoll_wait(epoll_fd, events, ROUND_EVENTS, due());

        for (int i = 0; i < count; i++)
            dispatch(&events[i]);
        link_flush();
        mind_the_link();
        tidy(count == 0);
    }
}
