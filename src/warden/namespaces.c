/*
 * User and network namespaces, made ahead of need and kept as descriptors. A namespace is born with
 * a process; that process is a short-lived child here, and the descriptor keeps the namespace when
 * it is gone. The child's work is raw system calls in a copy of this small process.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "warden/box.h"

static int write_file(const char *path, const char *text)
{
    autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

/* Runs fn in a new namespace of this kind; the namespace's descriptor, or -1 with errno. */
static int make(int flag, const char *name, int (*outside)(pid_t pid, uint32_t arg),
                int (*inside)(void), uint32_t arg)
{
    int go[2], done[2];
    char path[64], byte = 0;

    if (pipe2(go, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(done, O_CLOEXEC) < 0) {
        close(go[0]), close(go[1]);
        return -1;
    }
    pid_t pid = (pid_t)syscall(SYS_clone, flag | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        close(go[1]);
        if (read(go[0], &byte, 1) == 1 && inside() == 0)
            byte = write(done[1], "x", 1) == 1 ? 1 : 0;
        (void)!read(go[0], &byte, 1); /* until the parent has taken the descriptor */
        _exit(0);
    }
    int error = errno, fd = -1;
    close(go[0]), close(done[1]);
    if (pid > 0) {
        snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
        if (outside(pid, arg) == 0 && write(go[1], "x", 1) == 1 && read(done[0], &byte, 1) == 1)
            fd = open(path, O_RDONLY | O_CLOEXEC);
        error = errno ? errno : EPROTO;
    }
    close(go[1]), close(done[0]);
    if (pid > 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    errno = error;
    return fd;
}

static int map_ids(pid_t pid, uint32_t first)
{
    char path[64], text[64];

    snprintf(text, sizeof(text), "0 %u %u\n", first, BOX_UIDS);
    snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    if (write_file(path, text) < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
    return write_file(path, text);
}

/* Per user namespace: no further ones below it, whatever a filter may forget. */
static int no_nested(void)
{
    return write_file("/proc/sys/user/max_user_namespaces", "0\n");
}

int userns_make(uint32_t first_uid)
{
    return make(CLONE_NEWUSER, "user", map_ids, no_nested, first_uid);
}

static int nothing(pid_t pid, uint32_t arg)
{
    (void)pid, (void)arg;
    return 0;
}

static int loopback_up(void)
{
    struct ifreq lo = { .ifr_name = "lo" };
    autoclose int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &lo) < 0)
        return -1;
    lo.ifr_flags |= IFF_UP;
    return ioctl(fd, SIOCSIFFLAGS, &lo);
}

int netns_make(void)
{
    return make(CLONE_NEWNET, "net", nothing, loopback_up, 0);
}
