/*
 * User and network namespaces, made ahead of need and kept as descriptors.
 *
 * A network namespace is made by stepping into a new one and back: this process has one thread and
 * no business with the network. A user namespace cannot be stepped out of, so a short-lived child
 * is born into it; the descriptor keeps it when the child is gone.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "warden/mount.h"
#include "warden/net.h"

static int write_file(int dir, const char *path, const char *text)
{
    autoclose int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    return write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

/* ---- user ---- */

/* `count` users from `uid` and groups from `gid` on are, outside, those from `first` on. */
struct id_map {
    uint32_t uid, gid, first, count;
};

static int map_ids(pid_t pid, const struct id_map *map)
{
    char path[64], text[64];

    snprintf(text, sizeof(text), "%u %u %u\n", map->uid, map->first, map->count);
    snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    if (write_file(AT_FDCWD, path, text) < 0)
        return -1;
    snprintf(text, sizeof(text), "%u %u %u\n", map->gid, map->first, map->count);
    snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
    return write_file(AT_FDCWD, path, text);
}

/*
 * Each user namespace has a limit of its own on further ones, all by the same name, and the kernel
 * walks through all of that name which were looked up below one mount of /proc, for as long as
 * their namespaces live. With thousands of boxes that took longer than all else here. So they are
 * looked up below a mount of our own, and below another one now and then.
 */
#define SETTINGS_USES 256

static int settings_fd = -1;
static unsigned settings_uses;

static int settings(void)
{
    if (settings_fd >= 0 && ++settings_uses % SETTINGS_USES)
        return settings_fd;
    userns_close();
    autoclose int fs = fs_open("proc");
    if (fs >= 0 && fs_create(fs) == 0)
        settings_fd = fs_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (settings_fd < 0) /* an ordinary user's: not everywhere */
        settings_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return settings_fd;
}

void userns_close(void)
{
    if (settings_fd >= 0)
        close(settings_fd);
    settings_fd = -1;
}

/*
 * In the child: once it is told that it is mapped, it turns off further user namespaces below it
 * (the setting is the namespace's own) unless they were asked for, says so, and stays until nobody
 * needs it to be there.
 */
static _Noreturn void userns_child(int talk, int proc, bool nested)
{
    char byte;

    if (read(talk, &byte, 1) != 1)
        _exit(1);
    byte = !nested && !box_skipped(BOX_STEP_USERNS) &&
           write_file(proc, "sys/user/max_user_namespaces", "0\n") < 0;
    if (write(talk, &byte, 1) == 1 && read(talk, &byte, 1) == 0)
        _exit(0);
    _exit(1);
}

/*
 * Of some things (instances and watches of inotify above all) the kernel has so many for each
 * user, and what is used in a user namespace counts for its owner, too. So its owner is an id that
 * only this box has: whoever takes all there are inside takes none from the host's root or from
 * other boxes. Capabilities stay meanwhile; what is to happen at a parent's death would not.
 */
static pid_t clone_owned(uid_t owner, const int talk[2], int proc)
{
    struct clone_args args = { .flags = CLONE_NEWUSER }; /* its end sends no signal */
    autoclose int pidfd = -1;
    int death = 0;

    prctl(PR_GET_PDEATHSIG, &death);
    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP_);
    /* Raw, as elsewhere: the library would look for other threads. */
    pid_t pid = syscall(SYS_setresuid, -1, guard(own_counts) ? owner : 0, -1) < 0
                    ? -1
                    : clone_apart(&args, talk, MAX(talk[1], proc), &pidfd);
    if (pid == 0)
        return 0;
    int error = errno;
    if (syscall(SYS_setresuid, -1, 0, -1) < 0)
        abort(); /* never go on as somebody else */
    prctl(PR_SET_SECUREBITS, 0);
    prctl(PR_SET_PDEATHSIG, death);
    errno = error;
    return pid;
}

static int make_begin(const struct id_map *map, bool nested, struct userns_making *out)
{
    int talk[2], proc = settings();

    if (proc < 0 || box_fault_now() ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, talk) < 0)
        return -1;
    pid_t pid = clone_owned(map->first, talk, proc);
    if (pid == 0)
        userns_child(talk[1], proc, nested);
    int error = errno;
    close(talk[1]);
    *out = (struct userns_making){ pid, talk[0] };
    if (pid > 0 && map_ids(pid, map) == 0 && write(talk[0], "", 1) == 1)
        return 0;
    error = pid > 0 ? errno : error;
    close(talk[0]); /* with which it ends */
    while (pid > 0 && waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
    errno = error;
    return -1;
}

int userns_finish(struct userns_making *making)
{
    char path[64], byte = 1;
    int fd = -1, error = EPROTO;

    if (read(making->talk, &byte, 1) == 1 && byte == 0) {
        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)making->pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        error = errno;
    }
    close(making->talk);
    while (waitpid(making->pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
    errno = error;
    return fd;
}

static int make(const struct id_map *map, bool nested)
{
    struct userns_making making;

    return make_begin(map, nested, &making) < 0 ? -1 : userns_finish(&making);
}

/* A box that has only one id has an agent and no root. */
int userns_begin(const struct box_host *host, uint32_t slot, bool nested, struct userns_making *out)
{
    uint32_t inside = host->uids == 1 ? BOX_AGENT : 0;
    const struct id_map map = { inside, inside, box_uid_first(host, slot), host->uids };

    return make_begin(&map, nested, out);
}

int userns_make_one(uid_t uid, gid_t gid, uid_t to)
{
    return make(&(struct id_map){ uid, gid, to, 1 }, false);
}

/* ---- network ---- */

int loopback_up(void)
{
    struct ifreq lo = { .ifr_name = "lo" };
    autoclose int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &lo) < 0)
        return -1;
    lo.ifr_flags |= IFF_UP;
    return ioctl(fd, SIOCSIFFLAGS, &lo);
}

/* Without them nothing of the box reaches anything, which is no reason not to have it. */
static void sockets_make(struct net *net)
{
    static bool told;

    if (net_make(net) == 0) {
        net_learn();
        return;
    }
    if (told)
        return;
    log_warn("sandboxes have no network at all", kv_str("error", strerror(errno)));
    told = true;
}

int netns_make(struct net *net)
{
    autoclose int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), fd = -1;

    if (home < 0 || box_fault_now() || unshare(CLONE_NEWNET) < 0)
        return -1;
    if (loopback_up() == 0)
        fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        sockets_make(net);
    int error = errno;
    if (setns(home, CLONE_NEWNET) < 0)
        abort(); /* never go on in a stranger's network */
    errno = error;
    return take_fd(&fd);
}
