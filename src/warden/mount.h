/* mount - the kernel's calls about mounts by descriptor, which no C library has in all versions. */
#pragma once

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/guard.h"

#ifndef MOVE_MOUNT_T_EMPTY_PATH
#define MOVE_MOUNT_T_EMPTY_PATH 0x40
#endif

static inline int fs_open(const char *type)
{
    return (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
}

static inline int fs_string(int fs, const char *key, const char *value)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, key, value, 0);
}

static inline int fs_flag(int fs, const char *key)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, key, NULL, 0);
}

static inline int fs_create(int fs)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
}

static inline int fs_mount(int fs, unsigned attrs)
{
    return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attrs);
}

/* The file system mounted at `dir`, to change its options with fs_string and fs_change. */
static inline int fs_pick(int dir)
{
    return (int)syscall(SYS_fspick, dir, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
}

static inline int fs_change(int fs)
{
    return (int)syscall(SYS_fsconfig, fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0);
}

/* A detached copy of the mount below a directory; of that alone, not of what is mounted in it. */
static inline int tree_clone(int dir, const char *path)
{
    return (int)syscall(SYS_open_tree, dir, path,
                        OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
                            (*path ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH));
}

static inline int tree_attrs(int tree, uint64_t set, int userns_fd)
{
    struct mount_attr attr = { .attr_set = set };

    if (userns_fd >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (unsigned)userns_fd;
    }

    return (int)syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr));
}

static inline int tree_attach(int tree, int target)
{
    return (int)syscall(SYS_move_mount, tree, "", target, "",
                        MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

/* Of every mount that a box can write to: no program runs as its owner, no file is a device. */
static inline unsigned mount_safe(void)
{
    return (guard(nosuid) ? MOUNT_ATTR_NOSUID : 0) | (guard(nodev) ? MOUNT_ATTR_NODEV : 0);
}

/* What is reached from `root` without leaving it and without any symlink. */
static inline int open_beneath(int root, const char *path, int flags)
{
    struct open_how how = { .flags = (unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
                            .resolve =
                                RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };

    if (!guard(links))
        return openat(root, path, flags | O_CLOEXEC);
    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}
