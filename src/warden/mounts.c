/*
 * The box's root, mount by mount. Everything is done by descriptor: sources are opened once,
 * targets are opened beneath the new root with no symlink on the way, and mounts are attached to
 * the descriptor. No path of an image is ever followed, so an image that has a symlink where a
 * mount belongs fails the step instead of leading us elsewhere.
 *
 *   scratch   one tmpfs with a size and a number of inodes: upper, work, tmp and shm together
 *   lower     the image, idmapped, read-only
 *   overlay   of both, volatile; made with the box's own file-system user id
 *   usr       the host's /usr, read-only (default image)
 *   proc, dev (a template, read-only), dev/pts (own instance), dev/shm, tmp
 *
 * Started by an ordinary user, nothing is idmapped and devices are bound: rootless.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "seccomp/seccomp.h"
#include "warden/box.h"

#ifndef MOVE_MOUNT_T_EMPTY_PATH
#define MOVE_MOUNT_T_EMPTY_PATH 0x40
#endif
#define SECBIT_NO_SETUID_FIXUP_ 4

static int fs_open(const char *type)
{
    return (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
}

static int fs_string(int fs, const char *key, const char *value)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, key, value, 0);
}

static int fs_flag(int fs, const char *key)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, key, NULL, 0);
}

static int fs_create(int fs)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
}

static int fs_mount(int fs, unsigned attrs)
{
    return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attrs);
}

int tree_clone(int dir, const char *path)
{
    return (int)syscall(SYS_open_tree, dir, path,
                        OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
                            (*path ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH));
}

int tree_attrs(int tree, uint64_t set, int userns_fd)
{
    struct mount_attr attr = { .attr_set = set };

    if (userns_fd >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (unsigned)userns_fd;
    }

    return (int)syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr));
}

static int attach(int tree, int target)
{
    return (int)syscall(SYS_move_mount, tree, "", target, "",
                        MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

/* A directory beneath `root` that is reached without any symlink. */
static int target_open(int root, const char *path)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
                            .resolve =
                                RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };

    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

int attach_at(int tree, int root, const char *path)
{
    autoclose int target = target_open(root, path);

    return target < 0 ? -1 : attach(tree, target);
}

/* ---- the parts ---- */

/* Mounted over the box's own directory-to-be: somewhere that only this mount namespace sees. */
static const char stage[] = "/run";

static int make_scratch(const struct box_spec *spec)
{
    char size[32], inodes[32];
    autoclose int fs = fs_open("tmpfs");

    snprintf(size, sizeof(size), "%llu", (unsigned long long)spec->disk);
    snprintf(inodes, sizeof(inodes), "%u", spec->inodes);
    if (fs < 0 || fs_string(fs, "size", size) < 0 || fs_string(fs, "nr_inodes", inodes) < 0 ||
        fs_string(fs, "mode", "0755") < 0 || fs_create(fs) < 0)
        return -1;
    autoclose int tree = fs_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    autoclose int at = open(stage, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (tree < 0 || at < 0 || attach(tree, at) < 0)
        return -1;
    static const char *const dirs[] = { "lower", "up", "root", "up/upper", "up/work" };
    autoclose int scratch = open(stage, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (mkdirat(scratch, dirs[i], 0755) < 0 || fchmodat(scratch, dirs[i], 0755, 0) < 0)
            return -1;
    return mkdirat(scratch, "up/tmp", 01777) < 0 || mkdirat(scratch, "up/shm", 01777) < 0 ||
                   fchmodat(scratch, "up/tmp", 01777, 0) < 0 ||
                   fchmodat(scratch, "up/shm", 01777, 0) < 0
               ? -1
               : 0;
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
    return attach(tree, at);
}

static int attach_overlay(int created, int fs)
{
    autoclose int tree = created < 0 ? -1 : fs_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    autoclose int at = tree < 0 ? -1 : open("/run/root", O_PATH | O_DIRECTORY | O_CLOEXEC);

    return at < 0 ? -1 : attach(tree, at);
}

/*
 * The upper is idmapped: to the overlay, its maker must be somebody of the box, or the kernel
 * cannot make the work directory and mounts the whole thing read-only without a word.
 */
static int make_overlay(uid_t first, bool rootless)
{
    autoclose int fs = fs_open("overlay");

    if (fs < 0 || fs_string(fs, "lowerdir", "/run/lower") < 0 ||
        fs_string(fs, "upperdir", "/run/up/upper") < 0 ||
        fs_string(fs, "workdir", "/run/up/work") < 0 || fs_flag(fs, "volatile") < 0 ||
        (rootless && fs_flag(fs, "userxattr") < 0))
        return -1;
    if (rootless)
        return attach_overlay(fs_create(fs), fs);
    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP_);
    setfsgid(first);
    setfsuid(first);
    int rc = fs_create(fs);
    int error = errno;
    setfsuid(0);
    setfsgid(0);
    prctl(PR_SET_SECUREBITS, 0);
    errno = error;
    return attach_overlay(rc, fs);
}

static int mount_fs(int root, const char *type, const char *path, unsigned attrs,
                    const char *const options[][2])
{
    autoclose int fs = fs_open(type);

    if (fs < 0)
        return -1;
    for (; options && (*options)[0]; options++)
        if (fs_string(fs, (*options)[0], (*options)[1]) < 0)
            return -1;
    if (fs_create(fs) < 0)
        return -1;
    autoclose int tree = fs_mount(fs, attrs);
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
    if (tree_attrs(tree, MOUNT_ATTR_RDONLY, -1) < 0)
        return -1;
    return take_fd(&tree);
}

static int attach_dev(const struct box_host *host, const struct box_fds *fds, int root)
{
    autoclose int made = fds->dev < 0 ? dev_make(!host->rootless) : -1;
    int tree = fds->dev < 0 ? made : fds->dev;

    if (tree < 0 || attach_at(tree, root, "dev") < 0)
        return -1;
    return host->rootless ? rootless_dev(root, fds->devices) : 0;
}

/* The writable layer: idmapped, or else with the owners that it must have. */
static int make_upper(const struct box_host *host, const struct box_fds *fds, uid_t uid_first)
{
    const uint64_t safe = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

    if (!host->rootless) {
        autoclose int up = tree_clone(AT_FDCWD, "/run/up");

        return attach_mapped(up, "/run/up", safe, fds->userns);
    }
    static const char *const own[] = { "/run/up/upper", "/run/up/tmp", "/run/up/shm" };
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        if (chown(own[i], uid_first, uid_first) < 0)
            return -1;
    autoclose int upper = open(own[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return upper < 0 ? -1 : host->uids == 1 ? 0 : skeleton_dirs(upper, uid_first);
}

/*
 * Covers what tells of the host; our own empty file and directory do the covering. What only the
 * host's root may read or write (kcore, kmsg, timer_list, slabinfo, kpage*, sysrq-trigger, irq,
 * bus) needs no cover: its owner is nobody of the box, so no capability inside reaches it, and each
 * mount costs time at every creation. The probe of tests/escape watches all of them.
 */
static int make_masks(int root)
{
    static const char *const read_only[] = { "proc/sys" };
    static const char *const files[] = { "proc/keys",     "proc/key-users",     "proc/interrupts",
                                         "proc/kallsyms", "proc/latency_stats", "proc/softirqs" };
    static const char *const dirs[] = { "proc/acpi", "proc/scsi", "proc/asound", "proc/driver" };

    for (size_t i = 0; i < ARRAY_LEN(read_only); i++) {
        autoclose int tree = tree_clone(root, read_only[i]);

        if (tree < 0 && errno == ENOENT)
            continue;
        if (tree < 0 ||
            tree_attrs(tree,
                       MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
                       -1) < 0 ||
            attach_at(tree, root, read_only[i]) < 0)
            return -1;
    }
    for (size_t i = 0; i < ARRAY_LEN(files) + ARRAY_LEN(dirs); i++) {
        bool dir = i >= ARRAY_LEN(files);
        const char *name = dir ? dirs[i - ARRAY_LEN(files)] : files[i];
        autoclose int target = target_open(root, name);

        if (target < 0 && errno == ENOENT)
            continue;
        autoclose int tree = tree_clone(AT_FDCWD, dir ? "/run/empty" : "/run/none");
        if (target < 0 || tree < 0 ||
            tree_attrs(tree, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, -1) < 0 ||
            attach(tree, target) < 0)
            return -1;
    }
    return 0;
}

/* What the masks cover with; outside of what the box can reach. */
static int make_covers(void)
{
    autoclose int none = open("/run/none", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);

    return none < 0 ? -1 : mkdir("/run/empty", 0555);
}

static int enter_root(int root)
{
    if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0)
        return -1;
    return chdir("/");
}

int box_mounts(const struct box_host *host, const struct box_spec *spec, const struct box_fds *fds,
               uid_t uid_first, enum box_step *step)
{
    static const char *const pts[][2] = {
        { "mode", "0620" }, { "ptmxmode", "0666" }, { "max", "64" }, { NULL, NULL }
    };
    const uint64_t safe = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

    TRY(BOX_STEP_SCRATCH, mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    TRY(BOX_STEP_SCRATCH, make_scratch(spec));
    TRY(BOX_STEP_SCRATCH, make_covers());
    TRY(BOX_STEP_LOWER, attach_mapped(fds->lower, "/run/lower", safe | MOUNT_ATTR_RDONLY,
                                      host->rootless ? -1 : fds->userns));
    TRY(BOX_STEP_UPPER, make_upper(host, fds, uid_first));
    TRY(BOX_STEP_OVERLAY, make_overlay(uid_first, host->rootless));
    autoclose int root = -1;
    TRY(BOX_STEP_ROOT, root = open("/run/root", O_PATH | O_DIRECTORY | O_CLOEXEC));
    TRY(BOX_STEP_USR, tree_attrs(fds->usr, safe | MOUNT_ATTR_RDONLY, -1));
    TRY(BOX_STEP_USR, attach_at(fds->usr, root, "usr"));
    TRY(BOX_STEP_PROC, mount_fs(root, "proc", "proc",
                                MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, NULL));
    TRY(BOX_STEP_DEV, attach_dev(host, fds, root));
    TRY(BOX_STEP_PTS,
        mount_fs(root, "devpts", "dev/pts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, pts));
    autoclose int shm = -1, tmp = -1;
    TRY(BOX_STEP_SHM, shm = tree_clone(AT_FDCWD, "/run/up/shm"));
    TRY(BOX_STEP_SHM, attach_at(shm, root, "dev/shm"));
    TRY(BOX_STEP_TMP, tmp = tree_clone(AT_FDCWD, "/run/up/tmp"));
    TRY(BOX_STEP_TMP, attach_at(tmp, root, "tmp"));
    if (spec->profile != SECCOMP_NESTING) /* a new /proc inside may show no more than this one */
        TRY(BOX_STEP_MASKS, make_masks(root));
    TRY(BOX_STEP_PIVOT, enter_root(root));
    return 0;
}
