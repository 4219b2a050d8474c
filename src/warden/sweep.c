/*
 * Clearing away what nobody can see any more: the mounts of a box that was destroyed.
 *
 * Whoever lets go of a mount namespace last takes it apart, and waits until no processor can still
 * be looking at it (an RCU grace period): a part of a millisecond, several on a busy machine. That
 * would be process 1 at its end, and who asked for the end would wait as well. So the warden takes
 * a reference before it kills, and when all else is gone and was said to be, gives it to a process
 * that does nothing but let go of what it is given: it has no capabilities and nothing open but its
 * socket, and dies with the warden. Where it does not keep up, the warden lets go by itself.
 *
 * Only for boxes that live in memory: a disk must be free when its box is said to be gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "warden/boxes.h"

static int to_sweeper = -1;
static pid_t sweeper;

union beside {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* ---- the process ---- */

static int be_small(int link, pid_t parent)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { 0 };

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent || setsid() < 0 ||
        dup2(link, 0) < 0 || syscall(SYS_close_range, 1u, ~0u, 0) < 0)
        return -1;
    prctl(PR_SET_NAME, "atoll-sweep");
    return (int)syscall(SYS_capset, &head, none);
}

static _Noreturn void sweep(void)
{
    for (;;) {
        union beside beside;
        char byte;
        struct iovec part = { &byte, 1 };
        struct msghdr msg = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = &beside,
                              .msg_controllen = sizeof(beside) };
        ssize_t got = recvmsg(0, &msg, MSG_CMSG_CLOEXEC);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            _exit(0);
        syscall(SYS_close_range, 1u, ~0u, 0);
    }
}

/* ---- in the warden ---- */

static int start(void)
{
    int pair[2];
    pid_t parent = getpid();

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    sweeper = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (sweeper == 0) {
        if (be_small(pair[1], parent) < 0)
            _exit(1);
        sweep();
    }
    close(pair[1]);
    if (sweeper < 0) {
        sweeper = 0;
        close(pair[0]);
        return -1;
    }
    to_sweeper = pair[0];
    return 0;
}

int sweep_hold(const struct box *box, int pidfd)
{
    return box->in_memory ? process_namespace(pidfd, box->pid, CLONE_NEWNS) : -1;
}

void sweep_take(int *fd)
{
    union beside beside = { 0 };
    struct iovec part = { (void *)(uintptr_t) "", 1 };
    struct msghdr msg = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &beside, .msg_controllen = sizeof(beside)
    };
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);

    if (*fd < 0)
        return;
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), fd, sizeof(int));
    if (to_sweeper >= 0 || start() == 0)
        (void)!sendmsg(to_sweeper, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    close_one(fd); /* for good, if it was not sent */
}

bool sweep_own(pid_t pid)
{
    return pid && pid == sweeper;
}

void sweep_reaped(void)
{
    sweeper = 0;
    close_one(&to_sweeper);
}

void sweep_stop(void)
{
    close_one(&to_sweeper);
    while (sweeper && waitpid(sweeper, NULL, 0) < 0 && errno == EINTR)
        ;
    sweeper = 0;
}
