/*
 * Making and unmaking a box. The parent prepares what can be prepared outside (cgroups, sockets,
 * namespaces), clones, and waits for one word: the report pipe closes by itself when the child has
 * become atoll-init, or carries the step and errno of what failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "warden/box.h"

#define BOX_SOCKET "init.sock"

/* Binds by a path below /proc/self/fd, so that no length and no symlink matters. */
static int make_listener(const struct box_host *host, const char *id)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    autoclose int dir = openat(host->boxes_fd, id, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (dir < 0 || fd < 0)
        return -1;
    snprintf(name.sun_path, sizeof(name.sun_path), "/proc/self/fd/%d/" BOX_SOCKET, dir);
    mode_t before = umask(0177);
    int rc = bind(fd, (struct sockaddr *)&name, sizeof(name));
    umask(before);
    if (rc < 0 || fchownat(dir, BOX_SOCKET, host->api_uid, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0 ||
        listen(fd, 4) < 0)
        return -1;
    return take_fd(&fd);
}

static int prepare(const struct box_host *host, const struct box_spec *spec, struct box_fds *fds,
                   int link[2], enum box_step *step)
{
    *step = BOX_STEP_SPEC;
    if (!box_spec_ok(spec)) {
        errno = EINVAL;
        return -1;
    }
    if (mkdirat(host->boxes_fd, spec->id, 0711) < 0)
        return -1;
    *step = BOX_STEP_CGROUP;
    if (cgroup_make(spec->id, spec) < 0 || cgroup_doors(spec->id, fds->doors, &fds->door_count) < 0)
        return -1;
    *step = BOX_STEP_SOCKET;
    fds->listen = make_listener(host, spec->id);
    if (fds->listen < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) < 0)
        return -1;
    fds->link = link[1];
    *step = BOX_STEP_USERNS;
    if ((fds->userns = userns_make(fds->uid_first)) < 0)
        return -1;
    *step = BOX_STEP_LOWER;
    if ((fds->lower = tree_detach(host->skeleton_fd)) < 0 ||
        (fds->usr = tree_detach(host->usr_fd)) < 0)
        return -1;
    *step = BOX_STEP_NETNS;
    return (fds->netns = netns_make()) < 0 ? -1 : 0;
}

struct report {
    int32_t step, error;
};

static int start(const struct box_host *host, const struct box_spec *spec, struct box_fds *fds,
                 struct box_made *out, enum box_step *step)
{
    struct clone_args args = { .flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS |
                                        CLONE_PIDFD,
                               .pidfd = (uint64_t)(uintptr_t)&out->pidfd,
                               .exit_signal = SIGCHLD };
    struct report report = { 0 };
    int pipe_fds[2];

    *step = BOX_STEP_CLONE;
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return -1;
    fds->report = pipe_fds[1];
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        enum box_step at = BOX_STEP_CLONE;

        (void)!box_child(host, spec, fds, &at);
        report = (struct report){ (int32_t)at, errno };
        (void)!write(fds->report, &report, sizeof(report));
        _exit(1);
    }
    int error = errno;
    close(pipe_fds[1]);
    ssize_t got = pid < 0 ? 0 : read(pipe_fds[0], &report, sizeof(report));
    close(pipe_fds[0]);
    if (pid < 0) {
        errno = error;
        return -1;
    }
    out->pid = pid;
    if (got == 0)
        return 0;
    *step = (enum box_step)report.step;
    errno = report.error;
    return -1;
}

static void close_fds(struct box_fds *fds)
{
    for (unsigned i = 0; i < fds->door_count; i++)
        close(fds->doors[i]);
    const int rest[] = { fds->listen, fds->link, fds->userns, fds->netns, fds->lower, fds->usr };
    for (size_t i = 0; i < ARRAY_LEN(rest); i++)
        if (rest[i] >= 0)
            close(rest[i]);
}

int box_create(const struct box_host *host, const struct box_spec *spec, struct box_made *out,
               enum box_step *step)
{
    struct box_fds fds = { .uid_first = host->uid_base + BOX_UIDS,
                           .listen = -1,
                           .link = -1,
                           .userns = -1,
                           .netns = -1,
                           .report = -1,
                           .lower = -1,
                           .usr = -1 };
    int link[2] = { -1, -1 };

    *out = (struct box_made){ .pidfd = -1, .link = -1 };
    int rc = prepare(host, spec, &fds, link, step);
    if (rc == 0)
        rc = start(host, spec, &fds, out, step);
    int error = errno;
    close_fds(&fds);
    if (rc == 0) {
        out->link = link[0];
        *step = BOX_STEP_NONE;
        return 0;
    }
    if (link[0] >= 0)
        close(link[0]);
    if (error != EEXIST || *step != BOX_STEP_SPEC) /* somebody else's box of the same name stays */
        (void)!box_destroy(host, spec->id, out);
    errno = error;
    return -1;
}

int box_destroy(const struct box_host *host, const char *id, struct box_made *made)
{
    int rc = 0;

    if (made->pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, made->pidfd, SIGKILL, NULL, 0);
        (void)!cgroup_freeze(id, false); /* a frozen process does not die */
        siginfo_t info;
        while (waitid(P_PIDFD, (id_t)made->pidfd, &info, WEXITED) < 0 && errno == EINTR)
            ;
        close(made->pidfd);
        made->pidfd = -1;
    }
    for (int i = 0; i < 500 && (rc = cgroup_remove(id)) < 0 && errno == EBUSY; i++)
        usleep(200); /* the last exit takes a moment to be noticed */
    autoclose int dir = openat(host->boxes_fd, id, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir >= 0 && unlinkat(dir, BOX_SOCKET, 0) < 0 && errno != ENOENT)
        rc = -1;
    if (unlinkat(host->boxes_fd, id, AT_REMOVEDIR) < 0 && errno != ENOENT)
        rc = -1;
    return rc;
}
