/*
 * Making and unmaking a box, seen from outside. The parent prepares what can be prepared before
 * (cgroups, socket, copies of mounts), clones, and does not wait: the report pipe closes
 * by itself when the child has become atoll-init, or has ended; what it said before tells which.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "warden/disk.h"

#define LISTEN_BACKLOG 4

#ifdef ATOLL_FAULTS
int box_fault_in;
uint64_t box_skips;
enum box_step box_fault_at;
bool box_fault_ends;

bool box_fault_here(enum box_step step)
{
    errno = EIO;
    return step == box_fault_at;
}

bool box_fault_now(void)
{
    if (box_fault_in == 0 || --box_fault_in)
        return false;
    if (box_fault_ends && getpid() == 1)
        _exit(1);
    errno = EIO;
    return true;
}
#endif

/* By a path below /proc/self/fd, so that no length and no symlink matters. */
static void socket_name(const struct box_host *host, const char *id, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d/%.*s", host->boxes_fd,
             BOX_ID_SIZE, id);
}

static int make_listener(const struct box_host *host, const char *id)
{
    struct sockaddr_un name;
    autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    socket_name(host, id, &name);
    if (bind(fd, (struct sockaddr *)&name, sizeof(name)) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
        return -1;
    return take_fd(&fd);
}

int box_connect(const struct box_host *host, const char *id)
{
    struct sockaddr_un name;
    autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    socket_name(host, id, &name);
    if (connect(fd, (struct sockaddr *)&name, sizeof(name)) < 0)
        return -1; /* EAGAIN: an init that does not take connections */
    return take_fd(&fd);
}

static int prepare(const struct box_host *host, const struct box_spec *spec, struct box_fds *fds,
                   int link[2], enum box_step *step)
{
    TRY(BOX_STEP_CGROUP, cgroup_make(spec->id, spec));
    TRY(BOX_STEP_CGROUP, cgroup_doors(spec->id, &fds->doors));
    TRY(BOX_STEP_SOCKET, fds->listen = make_listener(host, spec->id));
    TRY(BOX_STEP_SOCKET, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link));
    fds->link = link[1];
    if (spec->layer_count == 0) {
        TRY(BOX_STEP_LOWER, fds->lower = tree_detach(host->skeleton_fd));
        TRY(BOX_STEP_USR,
            fds->usr = host->rootless ? rootless_tree(host->usr_fd) : tree_detach(host->usr_fd));
    }
    for (uint32_t i = 0; i < spec->layer_count; i++)
        TRY(BOX_STEP_LOWER, fds->layers[i] = disks_tree(spec->layers[i], false));
    if (spec->upper)
        TRY(BOX_STEP_UPPER, fds->upper = disks_tree(spec->upper, true));
    if (spec->flags & BOX_WITH_TOOL)
        TRY(BOX_STEP_TOOL, fds->tool = tool_tree(host));
    if (host->dev_fd >= 0)
        TRY(BOX_STEP_DEV, fds->dev = tree_detach(host->dev_fd));
    if (host->rootless)
        TRY(BOX_STEP_DEV, rootless_devices(host, fds->devices));
    return 0;
}

static _Noreturn void be_child(const struct box_host *host, const struct box_spec *spec,
                               uint32_t slot, struct box_fds *fds)
{
    enum box_step step = BOX_STEP_CLONE;

    (void)!box_child(host, spec, slot, fds, &step);
    struct box_report report = { (int32_t)step, errno };
    (void)!write(fds->report, &report, sizeof(report));
    _exit(1);
}

/* All that may be open; cgroup_doors_close has the rest. */
#define FDS_MOST (10 + BOX_LAYERS_MAX + BOX_DEVICES)

static void each_fd(struct box_fds *fds, int *all[FDS_MOST])
{
    int *const single[] = { &fds->listen, &fds->link, &fds->userns, &fds->netns, &fds->report,
                            &fds->lower,  &fds->usr,  &fds->dev,    &fds->upper, &fds->tool };
    unsigned count = 0;

    for (size_t i = 0; i < ARRAY_LEN(single); i++)
        all[count++] = single[i];
    for (size_t i = 0; i < ARRAY_LEN(fds->layers); i++)
        all[count++] = &fds->layers[i];
    for (size_t i = 0; i < BOX_DEVICES; i++)
        all[count++] = &fds->devices[i];
}

static int highest(struct box_fds *fds)
{
    int *all[FDS_MOST], most = MAX(fds->doors.memory, fds->doors.into);

    each_fd(fds, all);
    for (size_t i = 0; i < FDS_MOST; i++)
        most = MAX(most, *all[i]);
    for (unsigned i = 0; i < fds->doors.count; i++)
        most = MAX(most, fds->doors.tasks[i]);
    return most;
}

static int start(const struct box_host *host, const struct box_spec *spec, uint32_t slot,
                 struct box_fds *fds, struct box_begun *out, enum box_step *step)
{
    struct clone_args args = { .flags = (guard(own_pids) ? CLONE_NEWPID : 0) |
                                        (guard(own_ipc) ? CLONE_NEWIPC : 0) |
                                        (guard(own_uts) ? CLONE_NEWUTS : 0) | CLONE_CLEAR_SIGHAND,
                               .exit_signal = SIGCHLD };
    int report[2] = { -1, -1 };

    if (fds->doors.into >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (unsigned)fds->doors.into;
    }
    TRY(BOX_STEP_CLONE, pipe2(report, O_CLOEXEC | O_NONBLOCK));
    fds->report = report[1];
    *step = BOX_STEP_CLONE;
    pid_t pid = box_fault_now() ? -1 : clone_apart(&args, report, highest(fds), &out->pidfd);
    if (pid == 0)
        be_child(host, spec, slot, fds);
    if (pid < 0) {
        int error = errno;

        close(report[0]);
        errno = error;
        return -1;
    }
    out->pid = pid;
    out->report = report[0];
    return 0;
}

static void close_fds(struct box_fds *fds)
{
    int *all[FDS_MOST];

    each_fd(fds, all);
    cgroup_doors_close(&fds->doors);
    for (size_t i = 0; i < FDS_MOST; i++)
        close_one(all[i]);
}

int box_begin(const struct box_host *host, const struct box_spec *spec, uint32_t slot,
              const struct box_ahead *ahead, struct box_begun *out, enum box_step *step)
{
    struct box_fds fds = { .listen = -1,
                           .link = -1,
                           .userns = ahead->userns,
                           .netns = ahead->netns,
                           .report = -1,
                           .lower = -1,
                           .usr = -1,
                           .dev = -1,
                           .upper = -1,
                           .tool = -1,
                           .proc = -1,
                           .sys = -1,
                           .devices = { -1, -1, -1, -1, -1, -1 },
                           .doors = { .memory = -1, .into = -1 } };
    int link[2] = { -1, -1 };

    for (size_t i = 0; i < ARRAY_LEN(fds.layers); i++)
        fds.layers[i] = -1;
    *out = (struct box_begun){ .pidfd = -1, .link = -1, .report = -1 };
    int rc = prepare(host, spec, &fds, link, step);
    if (rc == 0)
        rc = start(host, spec, slot, &fds, out, step);
    int error = errno;
    close_fds(&fds);
    if (rc == 0) {
        out->link = link[0];
        return 0;
    }
    if (link[0] >= 0)
        close(link[0]);
    errno = error;
    return -1;
}

/* Boxes of earlier builds had a directory each, with these two in it. */
static int remove_directory(int boxes_fd, const char *id)
{
    autoclose int dir = openat(boxes_fd, id, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (dir >= 0) {
        (void)!unlinkat(dir, "box", 0);
        (void)!unlinkat(dir, "init.sock", 0);
    }
    return unlinkat(boxes_fd, id, AT_REMOVEDIR);
}

int box_unmake(const struct box_host *host, const char *id)
{
    if (cgroup_remove(id) < 0)
        return -1;
    if (unlinkat(host->boxes_fd, id, 0) == 0 || errno == ENOENT)
        return 0;
    return errno == EISDIR ? remove_directory(host->boxes_fd, id) : -1;
}
