/*
 * The mount namespace that every box begins in a copy of: one small read-only tmpfs and nothing of
 * the host. What a box needs of the host comes as detached copies of single mounts. Copying the
 * host's whole table of mounts for each box, only to unmount it again, would cost more with every
 * mount the host has; and no path of the host is ever in sight from inside.
 *
 *   /run     what is written in a box that has no disk, and the layers of its image
 *   /lower, /disk, /root   the other parts of its root, and the root itself
 *   /empty   an empty directory, and
 *   /none    an empty file, that cover what a box may not see
 *
 * The warden stays in the host's mount namespace. The lean one is made in a child, because nobody
 * else is to see it half made, and kept by a descriptor.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "warden/box.h"
#include "warden/mount.h"

static int tmpfs_make(void)
{
    autoclose int fs = fs_open("tmpfs");

    if (fs < 0 || fs_string(fs, "size", "64k") < 0 || fs_string(fs, "nr_inodes", "16") < 0 ||
        fs_string(fs, "mode", "0755") < 0 || fs_create(fs) < 0)
        return -1;
    return fs_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

static int fill(int root)
{
    umask(0);
    if (mkdirat(root, "run", 0755) < 0 || mkdirat(root, "lower", 0755) < 0 ||
        mkdirat(root, "disk", 0755) < 0 || mkdirat(root, "root", 0755) < 0 ||
        mkdirat(root, "empty", 0555) < 0)
        return -1;
    if (mknodat(root, "none", S_IFREG | 0444, 0) < 0)
        return -1;
    return tree_attrs(root, MOUNT_ATTR_RDONLY, -1);
}

/* In the child: over the old root, and then the old root away. */
static int leave_host(void)
{
    autoclose int root = tmpfs_make();

    if (root < 0 || fill(root) < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        syscall(SYS_move_mount, root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
        fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0)
        return -1;
    return chdir("/");
}

static _Noreturn void lean_child(int talk)
{
    int error = leave_host() < 0 ? errno : 0;
    char byte;

    if (write(talk, &error, sizeof(error)) == (ssize_t)sizeof(error) && read(talk, &byte, 1) == 0)
        _exit(0); /* it has been opened */
    _exit(1);
}

static int lean_take(pid_t pid, int talk)
{
    char path[64];
    int error = EPROTO;

    if (read(talk, &error, sizeof(error)) != (ssize_t)sizeof(error) || error) {
        errno = error;
        return -1;
    }
    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

int lean_make(void)
{
    int talk[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, talk) < 0)
        return -1;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        close(talk[0]);
        lean_child(talk[1]);
    }
    close(talk[1]); /* so that a child that dies is heard */
    int fd = pid < 0 ? -1 : lean_take(pid, talk[0]), error = errno;
    close(talk[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    errno = error;
    return fd;
}

int lean_enter(int lean_fd)
{
    return setns(lean_fd, CLONE_NEWNS) < 0 ? -1 : unshare(CLONE_NEWNS);
}
