/*
 * What is different when an ordinary user started the server. `atoll serve` has entered a user
 * namespace in which that user is root and has a range of further ids (daemon/rootless.c), so the
 * rest of the warden does what it always does. The kernel refuses some of it there:
 *
 *   device nodes      cannot be made: the host's own are bound into each /dev
 *   idmapped mounts   need power over the file system: the image stays the user's, who is nobody
 *                     inside, and the directories that must have an owner are made in the upper
 *                     layer
 *   network           one cannot step back into the host's: a child is born into a new one
 *   cgroups           only where a part of the tree was handed to the user. Without them a limit
 *                     holds for each process or for each user inside (RLIMIT_DATA, RLIMIT_NPROC),
 *                     and what was half made is found by the command line of its process 1
 *
 * What is lost is counted in box_host.lost, told with every box, and refused where a wish says that
 * it must not be lost.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "warden/boxes.h"
#include "warden/mount.h"
#include "warden/net.h"

/* ---- ids ---- */

void rootless_plan(uint32_t ids, uint32_t *each, uint32_t *slots)
{
    *each = BOX_UIDS;
    if (ids < ROOTLESS_UIDS_MIN) { /* too few for one box: all are one and the same user */
        *each = 1;
        *slots = ROOTLESS_BOXES;
        return;
    }
    while (*each > ROOTLESS_UIDS_MIN && ids / *each < ROOTLESS_BOXES)
        *each /= 2;
    *slots = MIN(ids / *each, BOX_SLOTS);
}

void boxes_rootless(uint32_t ids)
{
    box_host.rootless = true;
    rootless_plan(ids, &box_host.uids, &box_host.slots);
    box_host.uid_first = box_host.uids == 1 ? 0 : 1;
}

/* What this machine does not give; after the cgroups were looked for. */
void rootless_count(void)
{
    box_host.lost = BOX_LOST_DISKS | BOX_LOST_IMAGE | BOX_LOST_FILTER | cgroup_lost();
    if (box_host.uids < BOX_UIDS)
        box_host.lost |= BOX_LOST_IDS;
    if (box_host.uids == 1)
        box_host.lost = (box_host.lost & ~(uint32_t)BOX_LOST_IMAGE) | BOX_LOST_OWN_ID;
}

/* ---- network ---- */

/* Says how it went, with the sockets beside it, and stays until nobody needs it to be there. */
static _Noreturn void netns_child(int talk, int pidfd)
{
    struct wire_msg msg = { .verb = WIRE_EGRESS_BOX };
    struct net net = NET_NONE;
    int fds[NET_LISTENERS + 1];
    char byte;

    if (pidfd >= 0 ? net_enter(pidfd) < 0 : loopback_up() < 0)
        msg.status = errno;
    else if (net_make(&net) < 0)
        msg.number = (uint32_t)errno;
    if (wire_send(talk, &msg, fds, net_fds(&net, fds)) == 0 && read(talk, &byte, 1) == 0)
        _exit(0);
    _exit(1);
}

/* What the child said: the listeners, then dns. */
static int net_hear(int talk, struct net *net)
{
    struct wire_msg msg;
    int fds[WIRE_FDS_MAX];
    unsigned count;

    if (wire_recv(talk, &msg, fds, &count) != 1) {
        errno = EPROTO;
        return -1;
    }
    for (unsigned i = 0; i + 1 < count; i++)
        net->listeners[i] = fds[i];
    if (count)
        net->dns = fds[count - 1];
    else
        log_debug("a sandbox without a network", kv_str("error", strerror((int)msg.number)));
    errno = msg.status;
    return msg.status ? -1 : 0;
}

/* A child in a network of its own, or in that of a process; a descriptor of it if it is new. */
static int netns_with(int pidfd, struct net *net)
{
    char path[64];
    int talk[2], fd = -1;

    if (box_fault_now() || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, talk) < 0)
        return -1;
    pid_t pid =
        (pid_t)syscall(SYS_clone, (pidfd < 0 ? CLONE_NEWNET : 0) | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        close(talk[0]);
        netns_child(talk[1], pidfd);
    }
    int error = errno;
    close(talk[1]);
    if (pid > 0 && net_hear(talk[0], net) < 0) {
        error = errno;
    } else if (pid > 0) {
        snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        error = errno;
    }
    close(talk[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    errno = error;
    return fd;
}

int rootless_netns(struct net *net)
{
    return netns_with(-1, net);
}

int rootless_net(int pidfd, struct net *net)
{
    autoclose int fd = netns_with(pidfd, net);

    if (fd >= 0 && net->dns >= 0)
        return 0;
    net_close(net);
    return -1;
}

/* ---- mounts ---- */

/*
 * Who copies a mount may not uncover what is below others that are mounted in it: they come along,
 * or there is no copy.
 */
int rootless_tree(int dir_fd)
{
    struct mount_attr attr = { .attr_set =
                                   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY };
    autoclose int tree = tree_clone(dir_fd, "");

    if (tree >= 0 || errno != EINVAL)
        return take_fd(&tree);
    tree = (int)syscall(SYS_open_tree, dir_fd, "",
                        OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
    if (tree < 0 ||
        syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
        return -1;
    return take_fd(&tree);
}

static const char *const nodes[BOX_DEVICES] = {
    "null", "zero", "full", "random", "urandom", "tty"
};

int rootless_devices(const struct box_host *host, int *devices)
{
    for (size_t i = 0; i < BOX_DEVICES; i++)
        if ((devices[i] = tree_clone(host->host_dev_fd, nodes[i])) < 0 ||
            tree_attrs(devices[i], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, -1) < 0)
            return -1;
    return 0;
}

int rootless_dev(int root, const int *devices)
{
    char name[16];

    for (size_t i = 0; i < BOX_DEVICES; i++) {
        snprintf(name, sizeof(name), "dev/%s", nodes[i]);
        autoclose int target = open_beneath(root, name, O_PATH);
        if (target < 0 || tree_attach(devices[i], target) < 0)
            return -1;
    }
    return 0;
}

/* ---- what was half made ---- */

/* "atoll-init\0TAG\0ID\0": what process 1 of a box of this server was started with. */
static bool init_of(const char *pid, const char *tag, char id[BOX_ID_SIZE])
{
    char path[288], text[256];

    snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (len <= 0)
        return false;
    text[len] = 0;
    const char *mark = text + strlen(text) + 1,
               *name = mark - text < len ? mark + strlen(mark) : "";

    if (strcmp(text, "atoll-init") != 0 || mark - text >= len || strcmp(mark, tag) != 0 ||
        ++name - text >= len || strlen(name) >= BOX_ID_SIZE)
        return false;
    memset(id, 0, BOX_ID_SIZE);
    memcpy(id, name, strlen(name) + 1);
    return box_id_ok(id);
}

/*
 * Only what no record tells about: a box whose maker died between its start and its record. Who
 * imitates that command line inside of a box ends itself with it, and nothing else.
 */
void rootless_sweep(void)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    char id[BOX_ID_SIZE];

    while (dir && (entry = readdir(dir))) {
        int pid = (int)strtol(entry->d_name, NULL, 10);

        if (pid <= 1 || !init_of(entry->d_name, box_host.name, id) || table_find(id))
            continue;
        /* First the descriptor, then the look: so it is this process that was looked at. */
        autoclose int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (pidfd < 0 || !init_of(entry->d_name, box_host.name, id))
            continue;
        log_info("ending a sandbox that was never finished", kv_str("box", id));
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
    }
    if (dir)
        closedir(dir);
}
