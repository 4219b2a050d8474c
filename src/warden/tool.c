/*
 * The atoll program, for boxes that work on images: one file, mounted into them. A mount of a file
 * that has lost its name cannot be moved anywhere, and that is what an upgrade does to the program
 * of a server that runs. Its bytes are still there, so then a copy is made below the state
 * directory, once; it goes with the server, or with the start of the next.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "warden/boxes.h"
#include "warden/mount.h"

#define COPY "images/tool"
#define NO_NAME " (deleted)" /* how the kernel says it */

static int copy_fd = -1; /* O_PATH */

/* The warden opened it with O_PATH, which is all that a mount and an exec need. */
static void fd_path(int fd, char out[32])
{
    snprintf(out, 32, "/proc/self/fd/%d", fd);
}

static bool has_name(int fd)
{
    char path[32], name[4096];

    fd_path(fd, path);
    ssize_t len = readlink(path, name, sizeof(name) - 1);
    if (len < (ssize_t)strlen(NO_NAME))
        return true;
    name[len] = 0;
    return strcmp(name + len - strlen(NO_NAME), NO_NAME) != 0;
}

static int copy_bytes(int from, int to)
{
    ssize_t sent;

    while ((sent = sendfile(to, from, NULL, 1u << 30)) > 0)
        ;
    return sent < 0 || fchmod(to, 0555) < 0 ? -1 : 0;
}

static int copy_make(const struct box_host *host)
{
    char path[32];

    fd_path(host->tool_fd, path);
    autoclose int from = open(path, O_RDONLY | O_CLOEXEC);
    (void)!unlinkat(host->state_fd, COPY, 0);
    autoclose int to =
        openat(host->state_fd, COPY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0500);
    if (from < 0 || to < 0)
        return -1;
    if (copy_bytes(from, to) < 0) {
        int error = errno;

        (void)!unlinkat(host->state_fd, COPY, 0);
        errno = error;
        return -1;
    }
    copy_fd = openat(host->state_fd, COPY, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return copy_fd < 0 ? -1 : 0;
}

int tool_tree(const struct box_host *host)
{
    if (has_name(host->tool_fd))
        return tree_detach(host->tool_fd);
    if (copy_fd < 0 && copy_make(host) < 0)
        return -1;
    autoclose int tree = tree_detach(copy_fd);
    struct mount_attr attr = { .attr_clr = MOUNT_ATTR_NOEXEC }; /* as it is said of /var */
    if (tree < 0 || syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return -1;
    return take_fd(&tree);
}

void tool_close(const struct box_host *host)
{
    close_one(&copy_fd);
    (void)!unlinkat(host->state_fd, COPY, 0);
}
