/*
 * A view of a directory: an overlay whose lower layer is a directory left at the door, read-only
 * and mapped to its owner, and whose upper layer is the box's own: a file system in memory, or a
 * directory on the box's disk. So the box begins with the directory's files at no cost, whatever it
 * changes stays with it, and what it changed is the upper layer.
 *
 * Everything stands below VIEW_PLACE in the box, where its own init reads it and nobody writes:
 *
 *   before   the directory as it is
 *   upper    what was changed; the layer that the overlay writes to, by a mount of its own
 *   work     overlay's; on a disk, the mount of what disk_view made
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
    struct statfs st = { 0 };
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

/*
 * The top of the view is the upper layer's: it looks like the directory, and is its user's. Layers
 * on a disk go to `work`, from where `upper` is shown again.
 */
static int make_dirs(const struct view_wish *wish, int space)
{
    const char *upper = wish->disk < 0 ? "upper" : "work/upper";
    struct stat st;

    if (fstat(wish->lower, &st) < 0 || mkdirat(space, "before", 0755) < 0 ||
        mkdirat(space, "upper", 0700) < 0 || mkdirat(space, "work", 0700) < 0)
        return -1;
    autoclose int work = openat(space, "work", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (work < 0 || (wish->disk >= 0 && tree_attach(wish->disk, work) < 0) ||
        (wish->disk < 0 &&
         fchownat(space, upper, wish->owner, wish->owner, AT_SYMLINK_NOFOLLOW) < 0))
        return -1;
    return fchmodat(space, upper, st.st_mode & 0777, 0);
}

static int place_at(int root, uid_t first, const char *path, int tree)
{
    umask(022);
    fs_become(first);
    autoclose int target = target_make(root, path);
    fs_return();
    return target < 0 || box_fault_now() ? -1 : tree_attach(tree, target);
}

/*
 * Its current directory is the file system that has the layers. On a disk, which is mapped, the
 * overlay's maker must be somebody of the box, and must not be above the disk's quota.
 */
static int make_view(const struct view_wish *wish)
{
    bool on_disk = wish->disk >= 0;
    autoclose int fs = fs_open("overlay");

    if (fs < 0 || box_fault_now() || fs_string(fs, "lowerdir", "before") < 0 ||
        fs_string(fs, "upperdir", on_disk ? "work/upper" : "upper") < 0 ||
        fs_string(fs, "workdir", on_disk ? "work/work" : "work") < 0 ||
        fs_string(fs, "index", "off") < 0 || fs_flag(fs, "userxattr") < 0 ||
        fs_flag(fs, "volatile") < 0 || (on_disk && guard(resource) && fs_drop_resource() < 0))
        return -1;
    if (on_disk)
        fs_become(wish->first);
    int rc = fs_create(fs);
    if (on_disk)
        fs_return();
    return rc < 0 ? -1 : fs_mount(fs, mount_safe());
}

/* The overlay has its layers; from here on the box may only read them. */
static int fix_layers(const struct view_wish *wish, int space)
{
    uint64_t fixed = guard(view_fixed) ? MOUNT_ATTR_RDONLY : 0;

    if (wish->disk >= 0) {
        autoclose int copy = tree_clone(space, "work/upper");
        autoclose int at = openat(space, "upper", O_PATH | O_DIRECTORY | O_CLOEXEC);

        if (copy < 0 || at < 0 || tree_attrs(copy, fixed, -1) < 0 || tree_attach(copy, at) < 0 ||
            tree_attrs(wish->disk, fixed, -1) < 0)
            return -1;
    }
    return tree_attrs(space, fixed, -1);
}

int view_mount(const struct view_wish *wish)
{
    autoclose int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    autoclose int space = root < 0 ? -1 : make_space(root);

    if (space < 0 || place_at(root, wish->first, VIEW_PLACE + 1, space) < 0 ||
        make_dirs(wish, space) < 0)
        return -1;
    autoclose int before = openat(space, "before", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (before < 0 || tree_attach(wish->lower, before) < 0 || fchdir(space) < 0)
        return -1;
    autoclose int view = make_view(wish);
    if (view < 0 || fix_layers(wish, space) < 0)
        return -1;
    return place_at(root, wish->first, wish->target, view);
}
