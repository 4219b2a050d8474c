/*
 * Each system call of a box's whole life failed once with each of several errors, which makes a
 * thousand lives: of the warden itself, of the child that makes its user namespace, of the child
 * that becomes init, of init, and of its child that becomes the command. Whatever fails, the answer
 * is an error or a box that works; then nothing is left, and the next box is made.
 *
 * The steps' own hooks (boxes_test.c) fail a step as a whole; here a process beside us traces us
 * and all that we start, and lets the n-th call of one of them return an error without being made.
 * Who is who is known by who started it, so that n means the same call in every round.
 */
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include "warden/box_rig.h"

enum role { WARDEN, USERNS, BOX, COMMAND, OTHER, ROLES };
static const char *const role_names[] = { "warden", "user namespace", "box", "command", "other" };

/* Between us and who traces us. */
static struct shared {
    volatile bool traced, quit;
    volatile bool cycle;        /* somebody's call is to fail */
    volatile bool warden;       /* we are in the warden's code, not in the test's */
    volatile unsigned births;   /* of our children, in this round */
    volatile unsigned role, at; /* whose call, and which */
    volatile int error;         /* how it fails */
    volatile unsigned seen[ROLES];
    volatile bool hit;
    volatile long call;
} * shared;

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/* ---- the one that traces ---- */

struct tracee {
    pid_t pid;
    enum role role;
    unsigned execs;
    bool known; /* who it is; until then it stands still */
    bool stopped, fails;
};

static struct tracee tracees[64];

static struct tracee *tracee_of(pid_t pid)
{
    struct tracee *free_one = NULL;

    for (size_t i = 0; i < ARRAY_LEN(tracees); i++) {
        if (tracees[i].pid == pid)
            return &tracees[i];
        if (!tracees[i].pid && !free_one)
            free_one = &tracees[i];
    }
    if (!free_one) {
        fprintf(stderr, "too many processes to trace\n");
        _exit(2);
    }
    *free_one = (struct tracee){ .pid = pid, .role = OTHER };
    return free_one;
}

static void go_on(struct tracee *tracee, int signal)
{
    tracee->stopped = false;
    ptrace(PTRACE_SYSCALL, tracee->pid, 0, signal);
}

/* What cannot fail so on any machine, or whose failure is made to end the process that calls. */
static bool can_fail(const struct tracee *tracee, uint64_t call)
{
    static const long never[] = {
        SYS_exit,           SYS_exit_group,   SYS_close, SYS_kill,   SYS_pidfd_send_signal,
        SYS_munmap,         SYS_rt_sigreturn, SYS_wait4, SYS_waitid, SYS_close_range,
        SYS_restart_syscall
    };

    for (size_t i = 0; i < ARRAY_LEN(never); i++)
        if ((long)call == never[i])
            return false;
    /* Who cannot return from a box's network, or to its own user, must not go on. */
    return tracee->role != WARDEN || (call != SYS_setns && call != SYS_setresuid);
}

static bool counts(const struct tracee *tracee)
{
    if (!shared->cycle || (tracee->role == WARDEN && !shared->warden))
        return false;
    return tracee->execs <= (tracee->role == BOX); /* init is ours, the command's program is not */
}

static void on_call(struct tracee *tracee)
{
    struct __ptrace_syscall_info info;

    if (ptrace(PTRACE_GET_SYSCALL_INFO, tracee->pid, sizeof(info), &info) < 0)
        return;
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY && counts(tracee) && can_fail(tracee, info.entry.nr) &&
        ++shared->seen[tracee->role] == shared->at && tracee->role == shared->role) {
        /* Another, that every filter lets through. */
        ptrace(PTRACE_POKEUSER, tracee->pid, offsetof(struct user_regs_struct, orig_rax),
               SYS_getppid);
        tracee->fails = true;
        shared->call = (long)info.entry.nr;
        shared->hit = true;
    } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && tracee->fails) {
        ptrace(PTRACE_POKEUSER, tracee->pid, offsetof(struct user_regs_struct, rax),
               (long)-shared->error);
        tracee->fails = false;
    }
}

static void on_birth(const struct tracee *parent)
{
    unsigned long pid = 0;

    if (ptrace(PTRACE_GETEVENTMSG, parent->pid, 0, &pid) < 0)
        return;
    struct tracee *child = tracee_of((pid_t)pid);
    child->known = true;
    if (parent->role == WARDEN && shared->cycle)
        child->role = shared->births++ ? BOX : USERNS;
    else if (parent->role == BOX)
        child->role = COMMAND;
    if (parent->role == COMMAND)
        child->execs = parent->execs;
    if (child->stopped)
        go_on(child, 0);
}

static void on_stop(struct tracee *tracee, int status)
{
    int signal = WSTOPSIG(status), event = status >> 16;

    tracee->stopped = true;
    if (signal == (SIGTRAP | 0x80)) {
        on_call(tracee);
        signal = 0;
    } else if (event) {
        if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK ||
            event == PTRACE_EVENT_CLONE)
            on_birth(tracee);
        tracee->execs += event == PTRACE_EVENT_EXEC;
        signal = 0;
    }
    if (tracee->known)
        go_on(tracee, signal);
}

static _Noreturn void trace(pid_t us)
{
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    struct tracee *self = tracee_of(us);
    int status;

    self->role = WARDEN;
    self->known = true;
    syscall(SYS_close_range, 3u, ~0u, 0); /* who waits for the end of a socket waits for no other */
    if (ptrace(PTRACE_SEIZE, us, 0, options) < 0 || ptrace(PTRACE_INTERRUPT, us, 0, 0) < 0)
        _exit(1);
    for (pid_t pid; (pid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR;) {
        struct tracee *tracee = tracee_of(pid);

        if (!WIFSTOPPED(status)) {
            *tracee = (struct tracee){ 0 };
            if (pid == us)
                _exit(1); /* and what is traced ends with us */
            continue;
        }
        shared->traced = true;
        if (pid == us && shared->quit) {
            ptrace(PTRACE_DETACH, pid, 0, 0);
            _exit(0);
        }
        on_stop(tracee, status);
    }
    _exit(0);
}

/* Nobody's child, so that it is not taken for one that was left. */
static void be_traced(void)
{
    pid_t us = getpid(), pid;
    int status;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pid = fork();
    if (pid == 0) {
        pid = fork();
        if (pid == 0)
            trace(us);
        _exit(pid < 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    for (int i = 0; i < test_patience(5000) && !shared->traced; i++)
        poll(NULL, 0, 1);
    CHECK(shared->traced);
}

/* ---- a life ---- */

static void say_aside(void *owner, const struct wire_msg *msg, const int *fds, unsigned count)
{
    bool was = shared->warden;

    shared->warden = false;
    rig_say(owner, msg, fds, count);
    shared->warden = was;
}

static void pump(void)
{
    struct pollfd waits[BOXES_WAITS];

    shared->warden = true;
    unsigned count = boxes_waits(waits);
    shared->warden = false;
    poll(waits, count, 1);
    shared->warden = true;
    boxes_woken(waits, count);
    boxes_reap();
    boxes_run_due();
    shared->warden = false;
}

static struct rig_heard ask(struct wire_msg *msg)
{
    struct rig_heard heard;
    int64_t until = clock_mono_ms() + test_patience(15000);

    msg->number = ++rig_number;
    shared->warden = true;
    CHECK(boxes_hear(msg));
    shared->warden = false;
    while (!rig_wait(msg->verb, msg->number, 0, &heard)) {
        if (clock_mono_ms() > until)
            test_fail(__FILE__, __LINE__, "no answer to verb %d: call %ld of %s", msg->verb,
                      shared->call, role_names[shared->role]);
        pump();
    }
    return heard;
}

/* A command: how it ended does not matter here, or that its init is gone. */
static void run_true(const struct rig_box *box)
{
    static const char text[] = "/bin/true\0/";
    static char frame[INIT_FRAME_MAX];
    struct init_head head = { INIT_MAGIC, INIT_EXEC, 0, 1,
                              sizeof(struct init_exec) + sizeof(text) };
    struct init_exec exec = { .argc = 1, .text_len = sizeof(text) };
    struct iovec parts[] = { { &head, sizeof(head) },
                             { &exec, sizeof(exec) },
                             { (void *)(uintptr_t)text, sizeof(text) } };
    struct msghdr msg = { .msg_iov = parts, .msg_iovlen = ARRAY_LEN(parts) };

    if (sendmsg(box->link, &msg, MSG_NOSIGNAL) < 0)
        return;
    for (struct pollfd link = { .fd = box->link, .events = POLLIN }; poll(&link, 1, 200) > 0;) {
        struct init_started started;

        if (recv(box->link, frame, sizeof(frame), MSG_DONTWAIT) <= 0)
            return;
        memcpy(&head, frame, sizeof(head));
        memcpy(&started, frame + sizeof(head), sizeof(started));
        if (head.type == INIT_EXITED || (head.type == INIT_STARTED && started.error))
            return;
    }
}

/* True: there was such a call, and it failed. */
static bool one_fails(enum role role, unsigned at, int error, const char *state,
                      struct rig_left before)
{
    struct wire_msg spec = rig_spec("calls"),
                    end = { .verb = WIRE_BOX_DESTROY, .name.id = "calls" };

    pool_empty(); /* its user namespace is made, too */
    *shared =
        (struct shared){ .traced = true, .cycle = true, .role = role, .at = at, .error = error };
    struct rig_heard heard = ask(&spec);
    if (heard.msg.status == 0) {
        struct rig_box box = rig_made("calls", &heard);

        run_true(&box);
        int status = ask(&end).msg.status;
        CHECK(status == 0 || status == ENOENT || status == ESRCH); /* it may have ended by itself */
        close(box.pidfd);
        close(box.link);
    } else {
        CHECK_INT(heard.count, 0);
        CHECK(shared->hit);
    }
    shared->cycle = false;
    rig_settle();
    rig_count = 0;
    struct rig_left now = rig_left(state);
    if (memcmp(&now, &before, sizeof(now)) != 0 || rig_child(false))
        test_fail(__FILE__, __LINE__, "call %ld, number %u, of %s (%s) left something: %d %d %d %d",
                  shared->call, at, role_names[role], strerror(error), now.fds - before.fds,
                  now.mounts - before.mounts, now.cgroups - before.cgroups, now.dirs - before.dirs);
    return shared->hit;
}

TEST(each_system_call_fails_and_nothing_is_left)
{
    static const int errors[] = { EIO, ENOMEM, EMFILE };
    const char *state = rig_open();
    unsigned lives = 0;

    boxes_pool(0);
    struct rig_left before = rig_before(state);
    be_traced();
    say_to(say_aside, NULL);
    for (unsigned turn = 0; turn < ARRAY_LEN(errors) * OTHER; turn++) {
        enum role role = turn % OTHER;
        int error = errors[turn / OTHER];
        unsigned at = 1;

        while (one_fails(role, at, error, state, before))
            at++;
        fprintf(stderr, "%s: %u calls, %s\n", role_names[role], at - 1, strerror(error));
        CHECK(at > 5);
        lives += at;
    }
    CHECK(lives > 1000);
    /* All is as it was. */
    struct rig_box box = rig_create(rig_spec("after"), "after");
    CHECK_INT(rig_sh(&box, "exit 3", 0)->code, 3);
    rig_destroy(&box);
    boxes_pool(4);
    rig_close();
    shared->quit = true;
    poll(NULL, 0, 1);
}

#else

TEST(each_system_call_fails_once_and_nothing_is_left)
{
    (void)shared, (void)role_names;
    test_skip("knows the registers of x86-64, and nothing of the sanitizers'");
}

#endif
