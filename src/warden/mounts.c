/*
 * The box's root, mount by mount. Everything is done by descriptor: sources are opened once,
 * targets are opened beneath the new root with no symlink on the way, and mounts are attached to
 * the descriptor. No path of an image is ever followed, so an image that has a symlink where a
 * mount belongs fails the step instead of leading us elsewhere.
 *
 *   scratch   one tmpfs with a size and a number of inodes: upper, work, tmp and shm together; for
 * a box on a disk only shm, and small lower     the image, idmapped, read-only: a skeleton, or the
 * disks that are its layers disk      the writable layer of a box that may be stopped, idmapped
 *   overlay   of both, volatile; made with the box's own file-system user id
 *   usr       the host's /usr, read-only (default image)
 *   proc, dev (a template, read-only), dev/pts (own instance), dev/shm, tmp; sys and tool if asked
 *
 * Started by an ordinary user, nothing is idmapped and devices are bound: rootless.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/guard.h"
#include "base/limits.h"
#include "seccomp/seccomp.h"
#include "warden/disk.h"
#include "warden/mount.h"

#define CLOSED (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* The new root, and the user id outside of who is root in it. */
struct root {
    int fd;
    uid_t first;
};

void fs_become(uid_t uid)
{
    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP_); /* the capabilities stay */
    setfsgid(uid);
    setfsuid(uid);
}

void fs_return(void)
{
    int error = errno;

    setfsuid(0);
    setfsgid(0);
    prctl(PR_SET_SECUREBITS, 0);
    errno = error;
}

/* Where a mount goes: an image that lacks the directory gets it in the writable layer. */
static int target_open(const struct root *root, const char *path)
{
    int fd = open_beneath(root->fd, path, O_PATH);

    if (fd >= 0 || errno != ENOENT || strchr(path, '/'))
        return fd;
    fs_become(root->first);
    int rc = mkdirat(root->fd, path, 0755);
    fs_return();
    return rc < 0 ? -1 : open_beneath(root->fd, path, O_PATH);
}

static int attach_at(int tree, const struct root *root, const char *path)
{
    autoclose int target = target_open(root, path);

    return target < 0 ? -1 : tree_attach(tree, target);
}

/* ---- the parts ---- */

/* Mounted over the box's own directory-to-be: somewhere that only this mount namespace sees. */
static const char stage[] = "/run";

static int make_scratch(const struct box_spec *spec)
{
    char size[32], inodes[32];
    autoclose int fs = fs_open("tmpfs");

    snprintf(size, sizeof(size), "%llu", (unsigned long long)(spec->upper ? BOX_SHM : spec->disk));
    snprintf(inodes, sizeof(inodes), "%u", spec->upper ? BOX_SHM_INODES : spec->inodes);
    if (fs < 0 || (guard(disk_bytes) && fs_string(fs, "size", size) < 0) ||
        (guard(disk_inodes) && fs_string(fs, "nr_inodes", inodes) < 0) ||
        fs_string(fs, "mode", "0755") < 0 || fs_create(fs) < 0)
        return -1;
    autoclose int tree = fs_mount(fs, mount_safe());
    autoclose int at = open(stage, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (tree < 0 || at < 0 || tree_attach(tree, at) < 0)
        return -1;
    static const char *const dirs[] = { "up", "up/upper", "up/work" };
    static const char *const open_dirs[] = { "up/tmp", "up/shm" };
    autoclose int scratch = open(stage, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc = 0;
    mode_t before = umask(0); /* they have the modes that are named here */

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(dirs); i++)
        rc = mkdirat(scratch, dirs[i], 0755);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(open_dirs); i++)
        rc = mkdirat(scratch, open_dirs[i], 01777);
    umask(before);
    return rc;
}

int tree_detach(int dir_fd)
{
    return tree_clone(dir_fd, "");
}

static int attach_mapped(int tree, const char *target, uint64_t attrs, int userns_fd)
{
    autoclose int at = open(target, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (tree < 0 || at < 0 || tree_attrs(tree, attrs, userns_fd) < 0)
        return -1;
    return tree_attach(tree, at);
}

/* ---- layers ---- */

#define LAYER_PATH "/run/l%u"

/* The disks of an image, the lowest first; overlay wants to hear of the topmost first. */
static int attach_layers(const struct box_spec *spec, const struct box_fds *fds)
{
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        char path[sizeof(LAYER_PATH) + 10];

        snprintf(path, sizeof(path), LAYER_PATH, i);
        if (mkdir(path, 0755) < 0 ||
            attach_mapped(fds->layers[i], path, mount_safe() | MOUNT_ATTR_RDONLY, fds->userns) < 0)
            return -1;
    }
    return 0;
}

static void lowers(const struct box_spec *spec, char *out, size_t size)
{
    size_t at = 0;

    snprintf(out, size, "/lower");
    for (uint32_t i = spec->layer_count; i > 0; i--)
        at += (size_t)snprintf(out + at, size - at, "%s" LAYER_PATH, at ? ":" : "", i - 1);
}

/*
 * A volatile overlay leaves a mark in its work directory, by which the next one would refuse the
 * disk: what it protects from is a crash of the machine, after which a disk is what btrfs had
 * written. A copy of a disk in use has the mark too. Everything else in there overlay clears.
 */
static int clear_mark(int disk)
{
    static const struct {
        const char *path;
        int flags;
    } mark[] = { { "work/work/incompat/volatile/dirty", 0 },
                 { "work/work/incompat/volatile", AT_REMOVEDIR },
                 { "work/work/incompat", AT_REMOVEDIR } };

    for (size_t i = 0; i < ARRAY_LEN(mark); i++)
        if (unlinkat(disk, mark[i].path, mark[i].flags) < 0 && errno != ENOENT)
            return -1;
    return 0;
}

static int attach_disk(int tree, int userns)
{
    if (clear_mark(tree) < 0)
        return -1;
    return attach_mapped(tree, "/disk", mount_safe(), userns);
}

/* Overlay writes with the rights of whoever mounted it, and this one would be above all quotas. */
int fs_drop_resource(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &head, data) < 0)
        return -1;
    data[0].permitted &= ~(1u << CAP_SYS_RESOURCE);
    data[0].effective &= ~(1u << CAP_SYS_RESOURCE);
    return (int)syscall(SYS_capset, &head, data);
}

/*
 * The upper is idmapped: to the overlay, its maker must be somebody of the box, or the kernel
 * cannot make the work directory and mounts the whole thing read-only without a word.
 */
static int make_overlay(const struct box_spec *spec, uid_t first, bool rootless)
{
    autoclose int fs = fs_open("overlay");
    char lower[BOX_LAYERS_MAX * sizeof(LAYER_PATH) + 16];

    lowers(spec, lower, sizeof(lower));
    if (fs < 0 || fs_string(fs, "lowerdir", lower) < 0 ||
        fs_string(fs, "upperdir", spec->upper ? "/disk/up" : "/run/up/upper") < 0 ||
        fs_string(fs, "workdir", spec->upper ? "/disk/work" : "/run/up/work") < 0 ||
        fs_flag(fs, "volatile") < 0)
        return -1;
    /* Marks that helpers inside of a box can write, too: they make the layers. */
    if ((rootless || spec->upper || spec->layer_count) && fs_flag(fs, "userxattr") < 0)
        return -1;
    fs_become(first);
    int rc = fs_create(fs);
    fs_return();
    if (rc < 0)
        return -1;
    autoclose int tree = fs_mount(fs, mount_safe());
    autoclose int at = open("/root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return tree < 0 || at < 0 ? -1 : tree_attach(tree, at);
}

static int make_fs(const char *type, unsigned attrs, const char *const options[][2])
{
    autoclose int fs = fs_open(type);

    if (fs < 0)
        return -1;
    for (; options && (*options)[0]; options++)
        if (fs_string(fs, (*options)[0], (*options)[1]) < 0)
            return -1;
    if (fs_create(fs) < 0)
        return -1;
    return fs_mount(fs, attrs);
}

static int mount_fs(const struct root *root, const char *type, const char *path, unsigned attrs,
                    const char *const options[][2])
{
    autoclose int tree = make_fs(type, attrs, options);

    return tree < 0 ? -1 : attach_at(tree, root, path);
}

/* A minimal /dev: six devices, the usual links, nothing else; read-only. */
int dev_make(bool with_nodes)
{
    static const struct {
        const char *name;
        unsigned minor, major;
    } nodes[] = { { "null", 3, 1 },   { "zero", 5, 1 },    { "full", 7, 1 },
                  { "random", 8, 1 }, { "urandom", 9, 1 }, { "tty", 0, 5 } };
    static const char *const links[][2] = { { "/proc/self/fd", "fd" },
                                            { "/proc/self/fd/0", "stdin" },
                                            { "/proc/self/fd/1", "stdout" },
                                            { "/proc/self/fd/2", "stderr" },
                                            { "pts/ptmx", "ptmx" } };
    static const char *const dirs[] = { "pts", "shm", "mqueue" };
    autoclose int fs = fs_open("tmpfs");

    if (fs < 0 || fs_string(fs, "size", "64k") < 0 || fs_string(fs, "nr_inodes", "32") < 0 ||
        fs_string(fs, "mode", "0755") < 0 || fs_create(fs) < 0)
        return -1;
    autoclose int tree = fs_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    if (tree < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
        if (mknodat(tree, nodes[i].name, with_nodes ? S_IFCHR | 0666 : S_IFREG | 0666,
                    with_nodes ? makedev(nodes[i].major, nodes[i].minor) : 0) < 0 ||
            fchmodat(tree, nodes[i].name, 0666, 0) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(links); i++)
        if (symlinkat(links[i][0], tree, links[i][1]) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (mkdirat(tree, dirs[i], 0755) < 0)
            return -1;
    if (guard(dev_fixed) && tree_attrs(tree, MOUNT_ATTR_RDONLY, -1) < 0)
        return -1;
    return take_fd(&tree);
}

static int attach_dev(const struct box_host *host, const struct box_fds *fds,
                      const struct root *root)
{
    autoclose int made = fds->dev < 0 ? dev_make(!host->rootless) : -1;
    int tree = fds->dev < 0 ? made : fds->dev;

    if (tree < 0 || attach_at(tree, root, "dev") < 0)
        return -1;
    return host->rootless ? rootless_dev(root->fd, fds->devices) : 0;
}

/* The writable layer in memory: idmapped, or else with the owners that it must have. */
static int attach_upper(const struct box_host *host, const struct box_fds *fds, uid_t uid_first)
{
    if (!host->rootless) {
        autoclose int up = tree_clone(AT_FDCWD, "/run/up");

        return attach_mapped(up, "/run/up", mount_safe(), fds->userns);
    }
    static const char *const own[] = { "/run/up/upper", "/run/up/tmp", "/run/up/shm" };
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (chown(own[i], uid_first, uid_first) < 0)
            return -1;
    autoclose int upper = open(own[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return upper < 0 ? -1 : host->uids == 1 ? 0 : skeleton_dirs(upper, uid_first);
}

/*
 * Covers what tells of the host, with the empty file and directory of the lean root (lean.c). What
 * only the host's root may read or write (kcore, kmsg, timer_list, slabinfo, kpage*, sysrq-trigger,
 * irq, bus) needs no cover: its owner is nobody of the box, so no capability inside reaches it, and
 * each mount costs time at every creation. The probe of tests/escape watches all of them.
 */
static int cover(int base, const char *name, const char *with)
{
    autoclose int target = open_beneath(base, name, O_PATH);

    if (target < 0 && errno == ENOENT)
        return 0;
    autoclose int tree = tree_clone(AT_FDCWD, with);
    return target < 0 || tree < 0 ? -1 : tree_attach(tree, target);
}

/* /proc/sys as it is, and nobody writes to it. */
static int protect_settings(int proc)
{
    autoclose int tree = tree_clone(proc, "sys");

    if (tree < 0 && errno == ENOENT)
        return 0;
    autoclose int target = open_beneath(proc, "sys", O_PATH);
    return tree < 0 || target < 0 || tree_attrs(tree, CLOSED | MOUNT_ATTR_RDONLY, -1) < 0
               ? -1
               : tree_attach(tree, target);
}

static int make_masks(int proc, int sys)
{
    static const char *const files[] = { "keys",     "key-users",     "interrupts",
                                         "kallsyms", "latency_stats", "softirqs" };
    static const char *const dirs[] = { "acpi", "scsi", "asound", "driver" };
    /* Among them: whose disks are on this machine. */
    static const char *const of_sys[] = { "firmware", "fs", "block", "devices/virtual/block",
                                          "devices/virtual/powercap" };

    if (guard(proc_sys) && protect_settings(proc) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (cover(proc, files[i], "/none") < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (cover(proc, dirs[i], "/empty") < 0)
            return -1;
    for (size_t i = 0; sys >= 0 && i < ARRAY_LEN(of_sys); i++)
        if (cover(sys, of_sys[i], "/empty") < 0)
            return -1;
    return 0;
}

/*
 * The new root goes over the old one, as the root of every machine lies over the one that it booted
 * with. What is beneath (lean.c's few names, and the stage) is of this box or of nobody, no path
 * leads there, and nobody inside has power over this mount namespace; in a copy of it, the kernel
 * keeps the cover locked. To take the old root away instead, the kernel would wait until no
 * processor can still be looking at it: a part of a millisecond, and several on a busy machine.
 */
static int enter_root(int root)
{
    if (fchdir(root) < 0 ||
        syscall(SYS_move_mount, root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
        chroot(".") < 0)
        return -1;
    return chdir("/");
}

/* On a disk, /tmp is a directory like others; an image that lacks it gets one for everybody. */
static int tmp_on_disk(const struct root *root)
{
    autoclose int there = open_beneath(root->fd, "tmp", O_PATH | O_DIRECTORY);

    if (there >= 0 || errno != ENOENT)
        return there < 0 ? -1 : 0;
    autoclose int made = target_open(root, "tmp");
    return made < 0 ? -1 : fchmodat(root->fd, "tmp", 01777, 0);
}

static int tmp_in_memory(const struct root *root)
{
    autoclose int tree = tree_clone(AT_FDCWD, "/run/up/tmp");

    return tree < 0 ? -1 : attach_at(tree, root, "tmp");
}

/* Our own program, for our own helpers: a file that the box can neither write nor replace. */
static int attach_tool(int tree, const struct root *root)
{
    autoclose int run = target_open(root, "run");
    struct stat st;

    if (run < 0 ||
        tree_attrs(tree, mount_safe() | (guard(tool_fixed) ? MOUNT_ATTR_RDONLY : 0), -1) < 0)
        return -1;
    fs_become(root->first);
    autoclose int made = openat(run, "atoll", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0444);
    fs_return();
    autoclose int target = made < 0 ? -1 : open_beneath(run, "atoll", O_PATH);
    if (target < 0 || fstat(target, &st) < 0)
        return -1;
    if (!S_ISREG(st.st_mode)) {
        errno = EEXIST;
        return -1;
    }
    return tree_attach(tree, target);
}

/* The image and what is written over it, as one tree. */
static int make_root(const struct box_host *host, const struct box_spec *spec,
                     const struct box_fds *fds, uid_t uid_first, enum box_step *step)
{
    TRY(BOX_STEP_SCRATCH, make_scratch(spec));
    if (spec->layer_count)
        TRY(BOX_STEP_LOWER, attach_layers(spec, fds));
    else
        TRY(BOX_STEP_LOWER, attach_mapped(fds->lower, "/lower", mount_safe() | MOUNT_ATTR_RDONLY,
                                          host->rootless ? -1 : fds->userns));
    TRY(BOX_STEP_UPPER, attach_upper(host, fds, uid_first));
    if (spec->upper)
        TRY(BOX_STEP_UPPER, attach_disk(fds->upper, fds->userns));
    TRY(BOX_STEP_OVERLAY, guard(resource) ? fs_drop_resource() : 0);
    TRY(BOX_STEP_OVERLAY, make_overlay(spec, uid_first, host->rootless));
    return 0;
}

/* A directory of this user's; what has the name already is left as it is, a link too. */
static int make_place(int dir, const char *name, uid_t uid)
{
    mode_t before = umask(022);

    fs_become(uid);
    int rc = mkdirat(dir, name, 0755);
    fs_return();
    umask(before);
    return rc < 0 && errno != EEXIST && errno != ENOTDIR ? -1 : 0;
}

/* What every sandbox has, for an image that has not: where work goes, and the agent's home. */
static int make_places(const struct root *root)
{
    if (make_place(root->fd, "workspace", root->first + BOX_AGENT) < 0 ||
        make_place(root->fd, "home", root->first) < 0)
        return -1;
    autoclose int home = open_beneath(root->fd, "home", O_PATH | O_DIRECTORY);
    if (home < 0)
        return errno == ELOOP || errno == ENOTDIR ? 0 : -1;
    return make_place(home, "agent", root->first + BOX_AGENT);
}

/*
 * An ordinary user may have these two only where others of their kind are in sight: with the mounts
 * of the host. /sys is that of the network namespace that was entered before.
 */
int box_mounts_early(const struct box_spec *spec, struct box_fds *fds, enum box_step *step)
{
    TRY(BOX_STEP_PROC, fds->proc = make_fs("proc", CLOSED, NULL));
    if (spec->flags & BOX_WITH_SYS)
        TRY(BOX_STEP_SYS,
            fds->sys = make_fs("sysfs", CLOSED | (guard(sys_fixed) ? MOUNT_ATTR_RDONLY : 0), NULL));
    return 0;
}

int box_mounts(const struct box_host *host, const struct box_spec *spec, const struct box_fds *fds,
               uid_t uid_first, enum box_step *step)
{
    const char *const pts[][2] = { { "mode", "0620" },
                                   { "ptmxmode", "0666" },
                                   { "max", guard(ptys) ? "64" : "4096" },
                                   { NULL, NULL } };
    autoclose int fd = -1, shm = -1;

    if (make_root(host, spec, fds, uid_first, step) < 0)
        return -1;
    TRY(BOX_STEP_ROOT, fd = open("/root", O_PATH | O_DIRECTORY | O_CLOEXEC));
    const struct root root = { fd, uid_first };
    if (!spec->layer_count) {
        TRY(BOX_STEP_USR,
            tree_attrs(fds->usr, mount_safe() | (guard(usr_fixed) ? MOUNT_ATTR_RDONLY : 0), -1));
        TRY(BOX_STEP_USR, attach_at(fds->usr, &root, "usr"));
    } else {
        TRY(BOX_STEP_ROOT, make_places(&root));
    }
    TRY(BOX_STEP_PROC, attach_at(fds->proc, &root, "proc"));
    TRY(BOX_STEP_DEV, attach_dev(host, fds, &root));
    TRY(BOX_STEP_PTS,
        mount_fs(&root, "devpts", "dev/pts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, pts));
    TRY(BOX_STEP_SHM, shm = tree_clone(AT_FDCWD, "/run/up/shm"));
    TRY(BOX_STEP_SHM, attach_at(shm, &root, "dev/shm"));
    TRY(BOX_STEP_TMP, spec->upper ? tmp_on_disk(&root) : tmp_in_memory(&root));
    if (spec->flags & BOX_WITH_SYS)
        TRY(BOX_STEP_SYS, attach_at(fds->sys, &root, "sys"));
    if (spec->flags & BOX_WITH_TOOL)
        TRY(BOX_STEP_TOOL, attach_tool(fds->tool, &root));
    if (spec->profile != SECCOMP_NESTING) /* a new /proc inside may show no more than this one */
        TRY(BOX_STEP_MASKS, make_masks(fds->proc, fds->sys));
    TRY(BOX_STEP_PIVOT, enter_root(root.fd));
    return 0;
}
