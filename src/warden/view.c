/*
 * A view of a directory: an overlay whose lower layer is a directory left at the door, read-only
 * and mapped to its owner, and whose upper layer is a file system in memory of the box's own. So
 * the box begins with the directory's files at no cost, whatever it changes stays with it, and what
 * it changed is the upper layer.
 *
 * Everything stands below VIEW_PLACE in the box, where its own init reads it and nobody writes:
 *
 *   before   the directory as it is
 *   upper    what was changed; the layer that the overlay writes to, by a mount of its own
 *   work     overlay's
 *
 * The layers are named by paths relative to the new file system, in which nothing is the box's but
 * what is below `upper`: no path of the box is followed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "warden/disk.h"
#include "warden/mount.h"

/* As large as what the box may write elsewhere: both count for its memory. */
static int make_space(int root)
{
    char size[32], inodes[32];
    struct statfs st;
    autoclose int shm = open_beneath(root, "dev/shm", O_PATH | O_DIRECTORY);
    autoclose int fs = shm < 0 || fstatfs(shm, &st) < 0 ? -1 : fs_open("tmpfs");

    snprintf(size, sizeof(size), "%llu",
             (unsigned long long)st.f_blocks * (unsigned long long)st.f_bsize);
    snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)st.f_files);
    if (fs < 0 || box_fault_now() || fs_string(fs, "size", size) < 0 ||
        fs_string(fs, "nr_inodes", inodes) < 0 || fs_string(fs, "mode", "0755") < 0 ||
        fs_create(fs) < 0)
        return -1;
    return fs_mount(fs, mount_safe());
}

/* The top of the view is the upper layer's: it looks like the directory, and is its user's. */
static int make_dirs(int space, int lower, uid_t owner)
{
    struct stat st;

    if (fstat(lower, &st) < 0 || mkdirat(space, "before", 0755) < 0 ||
        mkdirat(space, "upper", 0700) < 0 || mkdirat(space, "work", 0700) < 0 ||
        fchownat(space, "upper", owner, owner, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    return fchmodat(space, "upper", st.st_mode & 0777, 0);
}

static int place_at(int root, uid_t first, const char *path, int tree)
{
    umask(022);
    fs_become(first);
    autoclose int target = target_make(root, path);
    fs_return();
    return target < 0 || box_fault_now() ? -1 : tree_attach(tree, target);
}

/* Its current directory is the file system that has the layers. */
static int make_view(void)
{
    autoclose int fs = fs_open("overlay");

    if (fs < 0 || box_fault_now() || fs_string(fs, "lowerdir", "before") < 0 ||
        fs_string(fs, "upperdir", "upper") < 0 || fs_string(fs, "workdir", "work") < 0 ||
        fs_string(fs, "index", "off") < 0 || fs_flag(fs, "userxattr") < 0 ||
        fs_flag(fs, "volatile") < 0 || fs_create(fs) < 0)
        return -1;
    return fs_mount(fs, mount_safe());
}

int view_mount(int lower, uid_t first, uid_t owner, const char *target)
{
    autoclose int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    autoclose int space = root < 0 ? -1 : make_space(root);

    if (space < 0 || make_dirs(space, lower, owner) < 0 ||
        place_at(root, first, VIEW_PLACE + 1, space) < 0)
        return -1;
    autoclose int before = openat(space, "before", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (before < 0 || tree_attach(lower, before) < 0 || fchdir(space) < 0)
        return -1;
    autoclose int view = make_view();
    if (view < 0 || (guard(view_fixed) && tree_attrs(space, MOUNT_ATTR_RDONLY, -1) < 0))
        return -1;
    return place_at(root, first, target, view);
}
