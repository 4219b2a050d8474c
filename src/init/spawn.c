/*
 * A new process by clone(CLONE_VM): no page tables are copied and the parent waits until the child
 * has become the command, so what went wrong in between comes back through plain memory. The child
 * therefore calls only what does not touch shared state: raw system calls.
 *
 * The wait is our own and not the kernel's (CLONE_VFORK), which nothing ends but the child: from
 * the moment it is the agent's, any process of the agent can stop it.
 *
 * Order: session and terminal, descriptors, capabilities, signals; user, working directory (looked
 * up as that user, inside, never through a magic link), rules about files, limits, execve. What the
 * sandbox's seccomp filter and Landlock rules say was inherited from process 1.
 *
 * To make a process is a tenth of what a short command takes. So one is made ahead, when nobody
 * waits, and stands still after the first half of that order. It is not the agent's by then, so
 * nobody of the workload's can change its limits or stop it, and it holds nothing but its pipes.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "init/init.h"

/* All but what would let it look into process 1. */
#define ROOT_CAPS (INIT_CAPS & ~INIT_CAP(CAP_SYS_PTRACE))

#define SPAWN_LOOK_MS 20
#define SPAWN_LOOKS 400 /* until who has not become the command is ended */

static int fail(struct spawn *spawn, uint32_t step, int error)
{
    spawn->step = step;
    spawn->error = error;
    return -1;
}

/*
 * Of our bounding set only `keep` stays: exec as root gives no more than that. Each drop makes new
 * credentials, so what the warden took from us before is not dropped again.
 */
static int keep_caps(uint64_t keep)
{
    for (uint64_t drop = INIT_CAPS & ~keep; drop; drop &= drop - 1)
        if (prctl(PR_CAPBSET_DROP, (unsigned long)__builtin_ctzll(drop), 0, 0, 0) < 0)
            return -1;
    return 0;
}

/* Supplementary groups: there are none where the warden could drop them. */
static int leave_groups(void)
{
    static int groups = -1;

    if (groups < 0)
        groups = (int)syscall(SYS_getgroups, 0, NULL);
    return groups ? (int)syscall(SYS_setgroups, 0, NULL) : 0;
}

/* For who does not execve, which would do it: what is held now is no more than `keep` either. */
static int hold_caps(uint64_t keep)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &head, data) < 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        data[i].permitted &= (uint32_t)(keep >> (32 * i));
        data[i].effective = data[i].permitted;
        data[i].inheritable = 0;
    }
    return (int)syscall(SYS_capset, &head, data);
}

static bool one_user(void) /* there is nobody here but the agent: wire/box.h */
{
    return syscall(SYS_getuid) == INIT_AGENT_UID;
}

/*
 * A command of root's keeps the short list of process 1 but for what would let it look into
 * process 1. The agent keeps nothing.
 */
static int shed_caps(struct spawn *spawn)
{
    if (one_user())
        return spawn->as_root ? fail(spawn, INIT_STEP_USER, EPERM) : 0;
    if (guard(command_caps) && keep_caps(spawn->as_root ? ROOT_CAPS : 0) < 0)
        return fail(spawn, INIT_STEP_USER, errno);
    return 0;
}

static int become_user(struct spawn *spawn)
{
    if (one_user())
        return 0;
    if (spawn->as_root && syscall(SYS_setresgid, 0, 0, 0) < 0)
        return fail(spawn, INIT_STEP_USER, errno);
    if (spawn->as_root || !guard(agent))
        return spawn->builtin && guard(operation_caps) && hold_caps(ROOT_CAPS) < 0
                   ? fail(spawn, INIT_STEP_USER, errno)
                   : 0;
    /* Raw: the library's versions would look for other threads in the shared memory. */
    if (leave_groups() < 0 ||
        syscall(SYS_setresgid, INIT_AGENT_UID, INIT_AGENT_UID, INIT_AGENT_UID) < 0 ||
        syscall(SYS_setresuid, INIT_AGENT_UID, INIT_AGENT_UID, INIT_AGENT_UID) < 0)
        return fail(spawn, INIT_STEP_USER, errno);
    return 0; /* nothing is held any more: who was root and is not has lost it */
}

static bool below(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == 0);
}

/* One at a time becomes a command; of a stack that is new every page would be fetched first. */
static char path[4096];

#define CWD_TRIES 100

/*
 * Looked up as the user, from our own (the root), through no magic link; and what it turned out to
 * be is judged.
 */
static int enter_cwd(struct spawn *spawn)
{
    struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                            .resolve =
                                guard(cwd_lookup) ? RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS : 0 };
    int dir, tries = CWD_TRIES;

    /* With ".." in a path the kernel gives up when anybody anywhere renames just then. */
    do
        dir = (int)syscall(SYS_openat2, AT_FDCWD, spawn->cwd, &how, sizeof(how));
    while (dir < 0 && errno == EAGAIN && --tries);
    if (dir < 0 || fchdir(dir) < 0 || syscall(SYS_getcwd, path, sizeof(path)) < 0)
        return fail(spawn, INIT_STEP_CWD, errno);
    close(dir);
    if (guard(cwd_judged) &&
        (path[0] != '/' || below(path, "/proc") || below(path, "/sys") || below(path, "/dev")))
        return fail(spawn, INIT_STEP_CWD, EACCES);
    return 0;
}

static int take_stdio(struct spawn *spawn)
{
    if (setsid() < 0)
        return fail(spawn, INIT_STEP_SPAWN, errno);
    for (int i = 0; i < 3; i++)
        if (dup2(spawn->stdio[i], i) < 0)
            return fail(spawn, INIT_STEP_SPAWN, errno);
    if (spawn->tty && ioctl(0, TIOCSCTTY, 0) < 0)
        return fail(spawn, INIT_STEP_TTY, errno);
    return 0;
}

static const char *search_path(char **env)
{
    for (; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

static void run_program(struct spawn *spawn)
{
    const char *name = spawn->argv[0];
    int error = ENOENT;

    if (strchr(name, '/')) {
        execve(name, spawn->argv, spawn->env);
        (void)fail(spawn, errno == ENOENT ? INIT_STEP_FIND : INIT_STEP_EXECVE, errno);
        return;
    }
    for (const char *dir = search_path(spawn->env); *dir;) {
        size_t len = strcspn(dir, ":");
        int wrote = snprintf(path, sizeof(path), "%.*s/%s", (int)len, dir, name);
        if (len && wrote > 0 && (size_t)wrote < sizeof(path)) {
            execve(path, spawn->argv, spawn->env);
            if (errno != ENOENT && errno != ENOTDIR)
                error = errno;
        }
        dir += len + (dir[len] == ':');
    }
    (void)fail(spawn, error == ENOENT ? INIT_STEP_FIND : INIT_STEP_EXECVE, error);
}

/* What every command has in common; of a process that is made ahead this is all for now. */
static int prepare(struct spawn *spawn)
{
    sigset_t none;

    if (take_stdio(spawn) < 0)
        return -1;
    if (spawn->side && dup2(spawn->side, SPAWN_SIDE) < 0)
        return fail(spawn, INIT_STEP_SPAWN, errno);
    if (guard(descriptors)) /* what is opened from here on closes itself */
        syscall(SYS_close_range, spawn->side ? SPAWN_SIDE + 1 : 3, ~0u, 0);
    /* The one that we changed; we began with none changed. Not shared: CLONE_SIGHAND is off. */
    sigaction(SIGPIPE, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    return shed_caps(spawn);
}

static int become(struct spawn *spawn)
{
    uint32_t which;

    if (become_user(spawn) < 0 || enter_cwd(spawn) < 0)
        return -1;
    int refused = guard(file_rules) ? files_enter(spawn->files, &which) : 0;
    if (refused)
        return fail(spawn, INIT_STEP_FILES + which, refused);
    if (spawn->nofile) {
        struct rlimit limit = { spawn->nofile, spawn->nofile };

        syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, NULL); /* only ever lowers it */
    }
    return 0;
}

int spawn_become(struct spawn *spawn)
{
    return prepare(spawn) < 0 || become(spawn) < 0 ? -1 : 0;
}

/* ---- processes on our memory ---- */

struct seat {
    uint32_t shared;     /* while its process runs on our memory; the kernel clears it */
    uint32_t ordered;    /* `order` is the command that it is to become */
    uint32_t taken;      /* by a process that lived long enough */
    struct spawn *order; /* before that: what is known of any */
    pid_t pid;
    char *top; /* of its stack */
};
static char stacks[2][32768] __attribute__((aligned(16)));
static struct seat usual = { .top = stacks[0] + sizeof(stacks[0]) },
                   ahead = { .top = stacks[1] + sizeof(stacks[1]) };

static uint32_t load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void wait_for_order(const struct seat *seat)
{
    while (!load(&seat->ordered))
        syscall(SYS_futex, &seat->ordered, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static int child(void *arg)
{
    struct seat *seat = arg;

    if (prepare(seat->order) < 0 || (!guard(spare_user) && become_user(seat->order) < 0))
        _exit(127);
    wait_for_order(seat);
    seat->taken = 1;
    if (become(seat->order) == 0)
        run_program(seat->order);
    _exit(127);
}

/* Who only keeps the place, so that there are two who share what `flags` say. */
static int keep_place(void *arg)
{
    wait_for_order(arg);
    _exit(0);
}

static int sit_down(struct seat *seat, struct spawn *order, int flags, bool ordered)
{
    seat->order = order;
    seat->ordered = ordered;
    seat->taken = 0;
    seat->shared = 1;
    /* No signal has a handler here that could run in the child and on our memory. */
    seat->pid =
        clone(flags ? keep_place : child, seat->top,
              flags | CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, seat, NULL, NULL, &seat->shared);
    if (seat->pid < 0)
        seat->shared = 0;
    return seat->pid < 0 ? -1 : 0;
}

static void wake(struct seat *seat)
{
    __atomic_store_n(&seat->ordered, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &seat->ordered, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void spawn_ahead(const int stdio[3])
{
    static struct spawn unordered;

    if (load(&ahead.shared) || one_user()) /* there it would be the agent's */
        return;
    memcpy(unordered.stdio, stdio, sizeof(unordered.stdio));
    (void)sit_down(&ahead, &unordered, 0, false);
}

pid_t spawn_spare(void)
{
    return load(&ahead.shared) && !ahead.ordered ? ahead.pid : 0;
}

void spawn_dismiss(void)
{
    if (spawn_spare())
        syscall(SYS_kill, ahead.pid, SIGKILL);
}

/*
 * Waits until nobody runs on our memory any more. Who was stopped is sent on, again and again: each
 * time it gets at least to its next call. Looks are counted and not time, as there is none for who
 * is frozen.
 */
static void wait_until_alone(const struct seat *seat)
{
    const struct timespec look = { .tv_nsec = SPAWN_LOOK_MS * 1000000L };
    int late = 0;

    while (load(&seat->shared))
        if (syscall(SYS_futex, &seat->shared, FUTEX_WAIT, 1, &look, NULL, 0) < 0 &&
            errno == ETIMEDOUT)
            syscall(SYS_kill, seat->pid, ++late < SPAWN_LOOKS ? SIGCONT : SIGKILL);
    if (late >= SPAWN_LOOKS)
        (void)fail(seat->order, INIT_STEP_SPAWN, ETIMEDOUT);
}

/* True: the process that waits takes it, whatever comes of it. False: there is none, or it dies. */
static bool stand_up(struct spawn *order)
{
    if (!order->spare || !spawn_spare())
        return false;
    ahead.order = order;
    wake(&ahead);
    wait_until_alone(&ahead);
    return load(&ahead.taken);
}

void spawn_shed(void)
{
    char stack[2048] __attribute__((aligned(16))); /* no page that nobody else uses */
    struct seat seat = { .top = stack + sizeof(stack) };
    struct spawn nobody;

    if (sit_down(&seat, &nobody, CLONE_FILES, false) < 0)
        return;
    syscall(SYS_close_range, ~0u, ~0u, CLOSE_RANGE_UNSHARE);
    wake(&seat);
    wait_until_alone(&seat);
}

pid_t spawn(struct spawn *spawn)
{
    spawn->error = 0;
    spawn->step = INIT_STEP_NONE;
    if (stand_up(spawn))
        return ahead.pid;
    spawn->error = 0; /* the waiting one's own */
    if (sit_down(&usual, spawn, 0, true) < 0)
        return fail(spawn, INIT_STEP_SPAWN, errno);
    wait_until_alone(&usual);
    return usual.pid; /* with spawn->error set it is a zombie already, reaped like any other */
}
