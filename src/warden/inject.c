/*
 * Into a box that runs: a mount, or another size of its memory. A child of the warden enters the
 * box's mount namespace alone (by pidfd: nobody inside sees a new process, nobody can trace it) and
 * does it there by descriptors.
 *
 * The target is the box's own and may change at any moment. So each part of the path is opened from
 * the one before, without following anything, made in the name of the box's root if it is missing,
 * and the mount goes onto the descriptor. Whatever is swapped meanwhile, it lands on a directory of
 * the box or nowhere.
 *
 * Whose files: a disk is mapped like the box's root. A directory from the door is mapped for its
 * caller alone: what belongs to that user is the box's agent's, everybody else is nobody.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "warden/disk.h"
#include "warden/mount.h"

#define AGENT 1000

/* What the next child works on: it is born with a copy. */
static struct {
    pid_t pid;
    int pidfd;
    uid_t first;
    uint64_t upper;      /* the disk that the box writes to, or 0 */
    struct door_dir dir; /* fd -1: a disk */
} todo = { .dir.fd = -1 };

/* ---- the target ---- */

static int open_part(int at, const char *part)
{
    return open_beneath(at, part, O_PATH | O_DIRECTORY);
}

int target_make(int root, const char *path)
{
    autoclose int at = openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    while (at >= 0 && *path) {
        size_t n = strcspn(path, "/");
        char part[BOX_TARGET_SIZE];

        snprintf(part, sizeof(part), "%.*s", (int)n, path);
        path += n + (path[n] == '/');
        int next = open_part(at, part);
        if (next < 0 && errno == ENOENT && (mkdirat(at, part, 0755) == 0 || errno == EEXIST))
            next = open_part(at, part);
        int error = errno;
        close(at);
        at = next;
        errno = error;
    }
    return take_fd(&at);
}

/* ---- in the child ---- */

/* The process that was meant is still there: so it was its namespace, not a later one's. */
static int box_userns(void)
{
    autoclose int fd = process_namespace(todo.pidfd, todo.pid, CLONE_NEWUSER);

    if (fd < 0 || syscall(SYS_pidfd_send_signal, todo.pidfd, 0, NULL, 0) < 0)
        return -1;
    return take_fd(&fd);
}

static uid_t owner_of(const struct box_mount *mount)
{
    return todo.first + (mount->flags & BOX_MOUNT_AS_ROOT ? 0 : AGENT);
}

/*
 * In a view nothing of the directory can be changed, so whose files are shown as the box's own is
 * about reading alone: those of the caller, and of the directory's group if the caller is in it. To
 * root everybody's can be shown: then it is the directory's owner.
 */
static int view_userns(uid_t to)
{
    const struct door_dir *dir = &todo.dir;
    uid_t uid = dir->uid;
    gid_t gid = dir->gid;
    struct stat st;

    if (fstat(dir->fd, &st) < 0)
        return -1;
    if (uid == 0) {
        uid = st.st_uid;
        gid = st.st_gid;
    }
    for (unsigned i = 0; i < dir->group_count; i++)
        if (dir->groups[i] == st.st_gid)
            gid = st.st_gid;
    return userns_make_one(uid, gid, to);
}

static int source_tree(const struct box_mount *mount)
{
    bool ticket = mount->flags & BOX_MOUNT_TICKET;
    uid_t to = owner_of(mount);
    bool view = mount->flags & BOX_MOUNT_VIEW, fixed = mount->flags & BOX_MOUNT_READ_ONLY;
    uint64_t attrs = mount_safe() | (fixed || (view && guard(view_lower)) ? MOUNT_ATTR_RDONLY : 0);
    autoclose int tree =
        ticket ? fcntl(todo.dir.fd, F_DUPFD_CLOEXEC, 0) : disks_tree(mount->disk, false);

    if (tree < 0 || box_fault_now())
        return -1;
    autoclose int userns = !ticket ? box_userns()
                           : view  ? view_userns(to)
                                   : userns_make_one(todo.dir.uid, todo.dir.gid, to);
    if (userns < 0 || box_fault_now() ||
        tree_attrs(tree, attrs, !ticket || guard(ticket_map) ? userns : -1) < 0)
        return -1;
    return take_fd(&tree);
}

/* What is changed in a view goes where the box writes to: its disk, or memory. */
static int view_child(const struct box_mount *mount, int lower)
{
    struct view_wish wish = { .lower = lower,
                              .disk = -1,
                              .first = todo.first,
                              .owner = owner_of(mount),
                              .target = mount->target + 1 };
    autoclose int userns = todo.upper ? box_userns() : -1;
    autoclose int disk =
        todo.upper && userns >= 0 ? disks_view(todo.upper, wish.owner - todo.first) : -1;

    if (todo.upper && (disk < 0 || tree_attrs(disk, mount_safe(), userns) < 0))
        return -1;
    wish.disk = disk;
    return setns(todo.pidfd, CLONE_NEWNS) < 0 ? -1 : view_mount(&wish);
}

static int mount_child(struct wire_msg *msg, int *fd)
{
    autoclose int tree = source_tree(&msg->mount);

    (void)fd;
    if (tree < 0 || box_fault_now())
        return -1;
    if (msg->mount.flags & BOX_MOUNT_VIEW)
        return view_child(&msg->mount, tree);
    if (setns(todo.pidfd, CLONE_NEWNS) < 0)
        return -1;
    autoclose int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -1;
    umask(022);
    fs_become(todo.first);
    autoclose int target = target_make(root, msg->mount.target + 1);
    fs_return();
    return target < 0 || box_fault_now() ? -1 : tree_attach(tree, target);
}

/* All that a box in memory writes to is one tmpfs; at /dev/shm nothing else is ever mounted. */
static int size_child(struct wire_msg *msg, int *fd)
{
    const struct box_limits limits = msg->limits;
    char text[32];
    struct statfs st;

    (void)fd;
    if (box_fault_now() || setns(todo.pidfd, CLONE_NEWNS) < 0)
        return -1;
    autoclose int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    autoclose int shm = root < 0 ? -1 : open_beneath(root, "dev/shm", O_PATH | O_DIRECTORY);
    autoclose int fs = shm < 0 || fstatfs(shm, &st) < 0 ? -1 : fs_pick(shm);
    if (fs < 0)
        return -1;
    snprintf(text, sizeof(text), "%llu", (unsigned long long)limits.disk);
    if (limits.disk && fs_string(fs, "size", text) < 0)
        return -1;
    snprintf(text, sizeof(text), "%u", limits.inodes);
    if (limits.inodes && fs_string(fs, "nr_inodes", text) < 0)
        return -1;
    int rc = fs_change(fs);
    if (rc < 0 && errno == EINVAL)
        errno = ENOSPC; /* there is more in it already */
    return rc;
}

/* ---- in the warden ---- */

static void start(const struct box *box, const struct wire_msg *request, job_fn *fn)
{
    autoclose int pidfd = box_pidfd(box);

    todo.pid = box->pid;
    todo.pidfd = pidfd;
    todo.first = box->uid_first;
    todo.upper = box->upper;
    if (pidfd < 0)
        say_status(request, errno);
    else
        job_start(request, fn, NULL);
}

void inject_mount(struct box *box, const struct wire_msg *request)
{
    const struct box_mount *mount = &request->mount;
    bool ticket = mount->flags & BOX_MOUNT_TICKET;
    bool view = mount->flags & BOX_MOUNT_VIEW;
    int error = !box_mount_ok(mount) && guard(target) ? EINVAL
                : view && box_host.rootless           ? ENOTSUP
                : ticket                              ? door_take(mount->ticket, &todo.dir)
                                                      : disks_ready(request);

    if (error == EINPROGRESS)
        return; /* heard again when there are disks */
    if (error) {
        say_status(request, error);
        return;
    }
    if (cgroup_io_again(box->id) < 0) { /* it may bring a disk that was not there before */
        say_status(request, errno);
        close_one(&todo.dir.fd);
        return;
    }
    box->in_memory = false;
    start(box, request, mount_child);
    if (ticket)
        close_one(&todo.dir.fd);
}

void inject_size(struct box *box, const struct wire_msg *request)
{
    start(box, request, size_child);
}
