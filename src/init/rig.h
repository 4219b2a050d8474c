/*
 * rig - the whole of init but for what makes or kills processes, for its test and its fuzzer: the
 * files themselves are included, and a "child" is the other ends of its pipes, held here. Time is
 * the rig's own. Included once by each program.
 */
#pragma once

#include "init/init.h"

int64_t real_now_ms(void);
int init_main(void);
#define now_ms real_now_ms
#define main init_main
#include "init/main.c"
#undef main
#undef now_ms

#include "init/exec.c"
#include "init/link.c"
#include "init/out.c"

#define RIG_PID 0x30000000 /* beyond every pid there can be: signals go nowhere */
#define RIG_CHILDREN 1024

static struct rig_child {
    int fd[3]; /* -1 closed */
} rig_children[RIG_CHILDREN];
static int rig_count;
static int64_t rig_now = 1000;
static int rig_end = -1; /* our end of the connection */

int64_t now_ms(void)
{
    return rig_now;
}

static void rig_take(struct rig_child *child, const int stdio[3])
{
    for (int i = 0; i < 3; i++) {
        child->fd[i] = fcntl(stdio[i], F_DUPFD_CLOEXEC, 0);
        fcntl(child->fd[i], F_SETFL, O_NONBLOCK);
    }
}

/* The one that was made ahead: it has its ends of the pipes, and nobody else may have them. */
static struct rig_child rig_spare;
static bool rig_waits;
static unsigned rig_used; /* commands that it became */

void spawn_ahead(const int stdio[3])
{
    if (!rig_waits)
        rig_take(&rig_spare, stdio);
    rig_waits = true;
}

pid_t spawn_spare(void)
{
    return rig_waits ? RIG_PID + RIG_CHILDREN : 0;
}

void spawn_dismiss(void) /* or whoever is root inside has killed it */
{
    for (int i = 0; rig_waits && i < 3; i++)
        close(rig_spare.fd[i]);
    rig_waits = false;
}

pid_t spawn(struct spawn *spawn)
{
    if (rig_count == RIG_CHILDREN || strcmp(spawn->argv[0], "missing") == 0) {
        spawn->error = ENOENT;
        spawn->step = INIT_STEP_FIND;
        return -1;
    }
    if (spawn->spare && rig_waits) {
        rig_children[rig_count] = rig_spare;
        rig_waits = false;
        rig_used++;
    } else {
        rig_take(&rig_children[rig_count], spawn->stdio);
    }
    return RIG_PID + rig_count++;
}

void spawn_shed(void)
{
}

pid_t builtin_spawn(struct spawn *spawn_)
{
    return spawn(spawn_);
}

void tree_kill(const struct exec *exec, int signal)
{
    (void)exec, (void)signal;
}

bool tree_left(const struct exec *exec)
{
    (void)exec;
    return false;
}

static struct rig_child *rig_child(const struct exec *exec)
{
    return &rig_children[exec->pid - RIG_PID];
}

static void rig_exit(struct exec *exec, int status)
{
    struct rusage used = { 0 };

    for (int i = 0; i < 3; i++)
        if (rig_child(exec)->fd[i] >= 0)
            close(rig_child(exec)->fd[i]);
    memset(rig_child(exec)->fd, 0xff, sizeof(rig_child(exec)->fd));
    exec_reaped(exec, status, &used);
}

static void rig_connect(void)
{
    int pair[2];

    if (rig_end >= 0)
        close(rig_end);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        abort();
    rig_end = pair[0];
    link_adopt(pair[1]);
    link_waits = EPOLLIN;
}

/* One round of init's loop. */
static void rig_turn(void)
{
    struct epoll_event events[ROUND_EVENTS];
    int count = epoll_wait(epoll_fd, events, ROUND_EVENTS, 0);

    for (int i = 0; i < count; i++)
        dispatch(&events[i]);
    link_flush();
    mind_the_link();
    tidy(count == 0);
    (void)exec_ahead_due(rig_now);
}

static void rig_begin(void)
{
    if (epoll_fd <= 0)
        epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL);
    rig_connect();
}

/* Everything is forgotten, whatever state it was in. */
static void rig_clear(void)
{
    for (size_t i = 0; i < exec_top; i++) {
        if (!execs[i].id)
            continue;
        if (!execs[i].ended)
            rig_exit(&execs[i], 0);
        exec_forget(&execs[i]);
    }
    spawn_dismiss();
    for (int i = 0; nobodys && i < 100; i++) /* their pipes are at their ends */
        rig_turn();
    link_drop();
    rig_count = 0;
}
