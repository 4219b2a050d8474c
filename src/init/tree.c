/*
 * Who belongs to a command? Its session, its descendants by parent, and whoever still carries its
 * mark in the environment (ATOLL_EXEC=n): a daemon that left session and parent behind. The walk
 * over /proc is repeated while it finds somebody new, because a tree can grow while it is felled;
 * the rounds are bounded. Of one that is to die the end is told when a look finds nobody left, and
 * one that could not be made has not found that.
 *
 * Whoever forks holds the lock of its own memory, in which the mark is, nearly all the time. Where
 * many do, each look for it waits, and the tree grows faster than it is felled. So a walk that
 * takes too long is made again while everybody stands still.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "init/init.h"

#define PROCS_MAX 8192
#define ROUNDS_MAX 20
#define WALK_MS 100    /* a hundred times what it takes to look at a usual number of marks */
#define HOLD_LOOKS 500 /* a millisecond or more each */

struct proc {
    pid_t pid, parent, session;
    bool member, dead;
    bool still; /* stopped, or dead */
};

static struct proc procs[PROCS_MAX];
static size_t proc_count;

static ssize_t read_file(const char *path, char *out, size_t size)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;

    if (fd < 0)
        return -1;
    while (len < size - 1) {
        ssize_t got = read(fd, out + len, size - 1 - len);

        if (got <= 0)
            break;
        len += (size_t)got;
    }
    out[len] = 0;
    return (ssize_t)len;
}

static bool marked(pid_t pid, const char *mark)
{
    static char env[65536];
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    ssize_t len = read_file(path, env, sizeof(env));
    for (ssize_t at = 0; at < len; at += (ssize_t)strlen(env + at) + 1)
        if (strcmp(env + at, mark) == 0)
            return true;
    return false;
}

/* There is no descriptor left, or no memory: that says nothing about whoever was to be read. */
static bool cannot_look(void)
{
    return errno == EMFILE || errno == ENFILE || errno == ENOMEM;
}

static bool look(pid_t pid, struct proc *out)
{
    char path[64], text[1024], state;
    int parent, group, session;
    long threads;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (read_file(path, text, sizeof(text)) <= 0)
        return false;
    const char *after = strrchr(text, ')'); /* the name may hold anything, parentheses too */
    if (!after ||
        sscanf(after + 1, " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld",
               &state, &parent, &group, &session, &threads) != 5)
        return false;
    *out = (struct proc){ .pid = pid, .parent = parent, .session = session };
    /* Others of its threads may live on behind a first one that has ended. */
    out->dead = state == 'X' || (state == 'Z' && threads <= 1);
    out->still = out->dead || state == 'T' || state == 't';
    return true;
}

/* False: somebody may have been missed. */
static bool look_at_all(void)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    bool all = dir;

    proc_count = 0;
    while (dir && (entry = readdir(dir)) && proc_count < PROCS_MAX) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);

        if (pid <= 1 || *end)
            continue;
        errno = 0;
        if (look((pid_t)pid, &procs[proc_count]))
            proc_count++;
        else
            all &= !cannot_look();
    }
    if (dir)
        closedir(dir);
    return all;
}

static bool is_member(pid_t pid)
{
    for (size_t i = 0; i < proc_count; i++)
        if (procs[i].pid == pid)
            return procs[i].member;
    return false;
}

/* Once waited for, its number may be another command's. */
static bool number_is_reused(const struct exec *exec)
{
    for (size_t i = 0; exec->ended && i < exec_top; i++)
        if (&execs[i] != exec && execs[i].id && !execs[i].ended && execs[i].pid == exec->pid)
            return true;
    return false;
}

/* False: it took too long (until_ms; 0: as long as it takes), and says nothing. */
static bool find_members(const struct exec *exec, int64_t until_ms)
{
    char mark[32];
    bool more = true, own = exec->pid && !number_is_reused(exec);

    snprintf(mark, sizeof(mark), "ATOLL_EXEC=%u", exec->id);
    for (size_t i = 0; i < proc_count; i++) {
        procs[i].member = (own && !exec->ended && procs[i].pid == exec->pid) ||
                          (own && procs[i].session == exec->pid) || marked(procs[i].pid, mark);
        if (until_ms && now_ms() > until_ms)
            return false;
    }
    while (more) { /* children of members are members */
        more = false;
        for (size_t i = 0; i < proc_count; i++)
            if (!procs[i].member && procs[i].parent > 1 && is_member(procs[i].parent))
                procs[i].member = more = true;
    }
    return true;
}

/* What needs no descriptor: those that have stayed in its group. */
static void group_kill(const struct exec *exec, int signal)
{
    if (!exec->ended && kill(-exec->pid, signal) < 0)
        kill(exec->pid, signal);
}

static bool among(const pid_t *pids, size_t count, pid_t pid)
{
    for (size_t i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

static bool all_still(void)
{
    bool all = look_at_all();

    for (size_t i = 0; i < proc_count; i++)
        all &= procs[i].still;
    return all;
}

static bool stops(int signal)
{
    return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

/*
 * The kernel's own walk over all processes, unlike ours, misses none that is being born. Whoever is
 * not its own, and had not been stopped before, is sent on: children before their parents, who
 * would otherwise find them stopped.
 */
static void held_kill(const struct exec *exec, int signal)
{
    static pid_t before[PROCS_MAX];
    size_t count = 0;

    if (getpid() != 1)
        return; /* it is, always; anywhere else "everybody" would be the whole machine */
    look_at_all();
    for (size_t i = 0; i < proc_count; i++)
        if (procs[i].still && !procs[i].dead)
            before[count++] = procs[i].pid;
    kill(-1, SIGSTOP);
    for (int looks = 0; !all_still() && looks < HOLD_LOOKS; looks++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    if (!look_at_all() || proc_count == PROCS_MAX) {
        kill(-1, SIGCONT); /* who cannot be seen could not be sent on */
        return;
    }
    (void)find_members(exec, 0);
    for (size_t i = proc_count; i-- > 0;) {
        if (procs[i].member)
            kill(procs[i].pid, signal);
        if (!among(before, count, procs[i].pid) && !(procs[i].member && stops(signal)))
            kill(procs[i].pid, SIGCONT);
    }
}

void tree_kill(const struct exec *exec, int signal)
{
    static pid_t hit[PROCS_MAX];
    size_t hits = 0;

    for (int round = 0; round < ROUNDS_MAX; round++) {
        bool found = false;

        if (!look_at_all() && hits == 0) {
            group_kill(exec, signal);
            return;
        }
        if (!find_members(exec, now_ms() + WALK_MS)) {
            held_kill(exec, signal);
            return;
        }
        for (size_t i = 0; i < proc_count; i++) {
            pid_t pid = procs[i].pid;

            if (!procs[i].member || procs[i].dead || among(hit, hits, pid))
                continue;
            kill(pid, signal);
            found = true;
            if (hits < PROCS_MAX)
                hit[hits++] = pid;
        }
        if (!found)
            return;
    }
}

bool tree_left(const struct exec *exec)
{
    bool left = !look_at_all();

    if (!find_members(exec, now_ms() + WALK_MS)) {
        held_kill(exec, SIGKILL);
        return true;
    }
    for (size_t i = 0; i < proc_count; i++) {
        if (!procs[i].member || procs[i].dead)
            continue;
        kill(procs[i].pid, SIGKILL);
        left = true;
    }
    return left;
}
