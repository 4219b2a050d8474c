/*
 * Namespaces and mounts: everything is tried in a child with namespaces of its own, so that what it
 * mounts ends with it. Without root the child first enters a user namespace, as the rootless server
 * does.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "host/own.h"
#include "host/subid.h"

#define MS_REC_ 16384ul
#define MS_PRIVATE_ (1ul << 18)

static void failed_as(struct probe_result *out, int failed, enum probe_state state,
                      const char *lost, const char *fix)
{
    probe_found(out, "%s", failed > 0 ? strerrordesc_np(failed) : "the attempt was killed");
    probe_say(out, state, lost, fix);
}

/* ---- user namespaces ---- */

static int put(const char *path, const char *text)
{
    autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd < 0 || write(fd, text, strlen(text)) < 0 ? errno : 0;
}

/* A user namespace in which we are root. */
static int become_inner_root(void)
{
    char map[64];
    unsigned uid = geteuid(), gid = getegid();
    int failed;

    if (unshare(CLONE_NEWUSER) < 0)
        return errno;
    put("/proc/self/setgroups", "deny");
    snprintf(map, sizeof(map), "0 %u 1", uid);
    if ((failed = put("/proc/self/uid_map", map)))
        return failed;
    snprintf(map, sizeof(map), "0 %u 1", gid);
    return put("/proc/self/gid_map", map);
}

static int enter_userns(const void *arg)
{
    (void)arg;
    return become_inner_root();
}

static void user_namespaces(const struct probe_world *world, struct probe_result *out)
{
    int failed = probe_child(enter_userns, NULL, 2000);
    int64_t limit = host_number("/proc/sys/user/max_user_namespaces", -1);

    if (!failed) {
        probe_found(out, "at most %lld", (long long)limit);
        if (limit >= 0 && limit < 1024)
            probe_say(out, PROBE_LOST, "only so many sandboxes can run at once",
                      "sysctl user.max_user_namespaces=65536");
        return;
    }
    failed_as(out, failed, world->root ? PROBE_LOST : PROBE_FAIL,
              world->root ? "sandboxes cannot have user ids of their own"
                          : "an ordinary user cannot make sandboxes",
              limit == 0
                  ? "sysctl user.max_user_namespaces=65536"
                  : "sysctl kernel.unprivileged_userns_clone=1, or start the server as root");
}

static void apparmor(const struct probe_world *world, struct probe_result *out)
{
    static const char knob[] = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
    int64_t restricted = host_number(knob, -1);

    if (restricted <= 0) {
        probe_found(out, "%s", restricted < 0 ? "no restriction known to this kernel" : "off");
        return;
    }
    probe_found(out, "unprivileged user namespaces are restricted");
    if (!world->root)
        probe_say(out, PROBE_LOST, "an ordinary user gets user namespaces without capabilities",
                  "install the AppArmor profile of atoll, or start the server as root");
}

static void subordinate_ids(const struct probe_world *world, struct probe_result *out)
{
    struct subid found;
    const char *why = subid_look(&found);

    if (world->root) {
        probe_found(out, "not needed by root");
        return;
    }
    if (!why) {
        probe_found(out, "%u user and %u group ids", found.uids.count, found.gids.count);
        return;
    }
    probe_found(out, "%s", why);
    probe_say(out, PROBE_LOST,
              "sandboxes run as you yourself: all share one user id, and none has a root",
              found.uids.count && found.gids.count && !(found.uid_program && found.gid_program)
                  ? "apt install uidmap"
                  : "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER, and apt "
                    "install uidmap");
}

static int enter_all(const void *arg)
{
    int failed = geteuid() == 0 ? 0 : become_inner_root();

    (void)arg;
    if (failed)
        return failed;
    return unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                   CLONE_NEWCGROUP) < 0
               ? errno
               : 0;
}

static void namespaces(const struct probe_world *world, struct probe_result *out)
{
    int failed = probe_child(enter_all, NULL, 5000);

    (void)world;
    if (!failed)
        probe_found(out, "pid, mount, network, ipc, uts and cgroup");
    else
        failed_as(out, failed, PROBE_LOST, "no sandboxes with namespaces can be made",
                  "start the server as root, or allow user namespaces");
}

/* ---- mounts ---- */

/* A mount namespace in which nothing we do is seen outside. */
static int private_mounts(void)
{
    int failed = geteuid() == 0 ? 0 : become_inner_root();

    if (failed)
        return failed;
    if (unshare(CLONE_NEWNS) < 0 ||
        syscall(SYS_mount, "none", "/", NULL, MS_REC_ | MS_PRIVATE_, NULL) < 0)
        return errno;
    return 0;
}

/* A detached tmpfs; a descriptor of its root, or -1. */
static int scratch_tmpfs(void)
{
    autoclose int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);

    if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

static int try_mount_api(const void *arg)
{
    int failed = private_mounts();

    (void)arg;
    if (failed)
        return failed;
    autoclose int fd = scratch_tmpfs();
    return fd < 0 ? errno : 0;
}

static void mount_api(const struct probe_world *world, struct probe_result *out)
{
    int failed = probe_child(try_mount_api, NULL, 5000);

    (void)world;
    if (!failed)
        probe_found(out, "fsopen, fsconfig, fsmount");
    else
        failed_as(out, failed, PROBE_LOST, "sandboxes cannot be mounted by descriptor",
                  "use Linux 5.12 or newer, and start the server as root");
}

/* A child of its own that sits in a user namespace with a map, for its descriptor. */
static int mapped_userns(void)
{
    int ready[2], hold[2], fd = -1, status;
    char path[64], byte;

    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(hold, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        close(hold[1]);
        if (unshare(CLONE_NEWUSER) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        _exit(read(hold[0], &byte, 1) < 0); /* until the parent lets go */
    }
    close(ready[1]);
    if (pid > 0 && read(ready[0], &byte, 1) == 1) {
        snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
        int failed = put(path, "0 1000000 65536");
        snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
        failed = failed ? failed : put(path, "0 1000000 65536");
        snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
        fd = failed ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    }
    close(ready[0]);
    close(hold[0]);
    close(hold[1]);
    if (pid > 0)
        waitpid(pid, &status, 0);
    return fd;
}

static int try_idmap(const void *arg)
{
    const char *dir = arg;
    int failed = private_mounts();

    if (failed)
        return failed;
    autoclose int userns = mapped_userns();
    if (userns < 0)
        return EPERM;
    autoclose int tree =
        (int)syscall(SYS_open_tree, AT_FDCWD, dir, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0)
        return errno;
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)userns };
    return syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ? errno : 0;
}

static void idmapped(const struct probe_world *world, struct probe_result *out)
{
    static const char lost[] = "each sandbox needs its own copy of its image";

    if (!world->root) {
        probe_found(out, "for root alone");
        probe_say(out, PROBE_LOST,
                  "files of the image belong to nobody inside, and there are no disks: nothing "
                  "written outlives a sandbox",
                  "start the server as root");
        return;
    }
    int failed = probe_child(try_idmap, world->near, 5000);
    if (!failed)
        probe_found(out, "on the file system of %s", world->near);
    else
        failed_as(out, failed, PROBE_LOST, lost,
                  "put the state directory on ext4, xfs or btrfs, with Linux 5.19 or newer");
}

/* ---- overlay ---- */

struct overlay_try {
    const char *dir; /* holds lower, upper and work already; or a place to mount a tmpfs on */
    bool on_tmpfs, is_volatile;
};

static int make_three(int dir)
{
    return mkdirat(dir, "lower", 0700) < 0 || mkdirat(dir, "upper", 0700) < 0 ||
                   mkdirat(dir, "work", 0700) < 0
               ? errno
               : 0;
}

/* Of lower, upper and work in the working directory. */
static int overlay_here(bool is_volatile, bool inner_root)
{
    static const char *const options[][2] = { { "lowerdir", "lower" },
                                              { "upperdir", "upper" },
                                              { "workdir", "work" } };
    autoclose int fs = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);

    if (fs < 0)
        return errno;
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, options[i][0], options[i][1], 0) < 0)
            return errno;
    if (inner_root && syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) < 0)
        return errno;
    if (is_volatile && syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0) < 0)
        return errno;
    if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return errno;
    autoclose int mount = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0);
    return mount < 0 ? errno : 0;
}

static int try_overlay(const void *arg)
{
    const struct overlay_try *try = arg;
    bool inner_root = geteuid() != 0;
    int failed = private_mounts();

    if (failed)
        return failed;
    if (try->on_tmpfs) {
        autoclose int fs = scratch_tmpfs();

        /* A layer must be attached somewhere; here nobody else sees it. */
        if (fs < 0 ||
            syscall(SYS_move_mount, fs, "", AT_FDCWD, try->dir, MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
            fchdir(fs) < 0)
            return errno;
        if ((failed = make_three(fs)))
            return failed;
    } else if (chdir(try->dir) < 0) {
        return errno;
    }
    return overlay_here(try->is_volatile, inner_root);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

/* A directory that `doctor --leaks` would name, should we be killed. */
static bool scratch_dir(char *out, size_t size, const char *state_dir)
{
    int len = snprintf(out, size, "%s/probe.tmp-XXXXXX", state_dir);

    return len > 0 && (size_t)len < size && mkdtemp(out);
}

/* What overlay leaves in its work directory can be listed by root alone. */
static void open_up(int dir)
{
    static const char *const closed[] = { "work/work", "work/work/incompat",
                                          "work/work/incompat/volatile" };

    for (size_t i = 0; i < ARRAY_LEN(closed); i++)
        if (fchmodat(dir, closed[i], 0700, 0) < 0)
            return; /* not made, nothing below either */
}

/* On the state directory's own file system where we may write, otherwise on a tmpfs. */
static int overlay_with(const struct probe_world *world, bool is_volatile, bool *on_tmpfs)
{
    char dir[4160];
    struct overlay_try try = { .dir = dir, .is_volatile = is_volatile };

    *on_tmpfs = !world->writable || !scratch_dir(dir, sizeof(dir), world->state_dir);
    if (*on_tmpfs) {
        try.dir = world->near;
        try.on_tmpfs = true;
        return probe_child(try_overlay, &try, 5000);
    }
    autoclose int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 ? errno : make_three(fd);
    if (!failed)
        failed = probe_child(try_overlay, &try, 5000);
    if (fd >= 0)
        open_up(fd);
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return failed;
}

static void overlay(const struct probe_world *world, struct probe_result *out)
{
    bool on_tmpfs;
    int failed = overlay_with(world, false, &on_tmpfs);

    if (failed) {
        failed_as(out, failed, PROBE_LOST, "images cannot be shared between sandboxes",
                  "load the overlay module; put the state directory on ext4, xfs or btrfs");
        return;
    }
    failed = overlay_with(world, true, &on_tmpfs);
    probe_found(out, "%s volatile, upper layer on %s", failed ? "without" : "with",
                on_tmpfs ? "a tmpfs" : world->near);
    if (failed)
        probe_say(out, PROBE_LOST, "removing a sandbox flushes the whole disk first",
                  "use Linux 5.10 or newer");
}

const struct probe_check probe_mount_checks[] = {
    { "user_namespaces", user_namespaces },
    { "apparmor_userns", apparmor },
    { "subordinate_ids", subordinate_ids },
    { "namespaces", namespaces },
    { "mount_api", mount_api },
    { "idmapped_mounts", idmapped },
    { "overlayfs", overlay },
    { 0 },
};
