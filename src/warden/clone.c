/*
 * Children beside thousands of boxes. The warden keeps up to four descriptors for each box as long
 * as the box runs: its sockets, what steers connections to them, the memory of the egress process.
 * A child needs none of them. But clone copies every descriptor, and the child has to close them
 * all; beside 3,000 boxes that was most of what one more cost.
 *
 * So these descriptors get high numbers, and all others have lower ones. A child begins with the
 * table of the warden itself (CLONE_FILES), and its first step is a copy of the lower part. The
 * warden waits until the child says that it has its copy: meanwhile nobody may change the table.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "warden/boxes.h"

int fds_kept_from(void)
{
    struct rlimit limit;
    bool room = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 2 >= FDS_KEPT;

    return room ? (int)FDS_KEPT : 0;
}

void fd_lift(int *fd)
{
    int from = fds_kept_from();

    if (*fd < 0 || *fd >= from)
        return;
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, from);
    if (high < 0)
        return;
    close(*fd);
    *fd = high;
}

/* In the child. Whoever fails here must end: it would change the descriptors of the warden. */
static void leave_table(const int ends[2], int highest)
{
    if (syscall(SYS_close_range, MAX((unsigned)highest + 1, FDS_KEPT), ~0u, CLOSE_RANGE_UNSHARE) <
            0 ||
        write(ends[1], "", 1) != 1)
        _exit(1);
    close(ends[0]);
}

/* False: the child has ended before it had a table of its own, or it takes too long. */
static bool has_left(int end, int pidfd)
{
    struct pollfd waits[] = { { .fd = end, .events = POLLIN }, { .fd = pidfd, .events = POLLIN } };
    char byte;
    int got;

    while ((got = poll(waits, ARRAY_LEN(waits), BOX_CREATE_MS)) < 0 && errno == EINTR)
        ;
    return got > 0 && waits[0].revents & POLLIN && read(end, &byte, 1) == 1;
}

pid_t clone_apart(struct clone_args *args, const int ends[2], int highest, int *pidfd)
{
    args->flags |= CLONE_FILES | CLONE_PIDFD;
    args->pidfd = (uint64_t)(uintptr_t)pidfd;
    pid_t pid = (pid_t)syscall(SYS_clone3, args, sizeof(*args));
    if (pid == 0)
        leave_table(ends, highest);
    if (pid <= 0 || has_left(ends[0], *pidfd))
        return pid;
    syscall(SYS_pidfd_send_signal, *pidfd, SIGKILL, NULL, 0);
    while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
    close_one(pidfd);
    errno = ECHILD;
    return -1;
}
