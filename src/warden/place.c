/*
 * Where a box is: a directory of its own in STATE/boxes with its socket and its record (record.c),
 * and cgroups of its name.
 *
 * File systems take their time to make files (ext4 looks at every inode that was freed lately), so
 * places are made ahead, under names that no box can have, and get their box's name when they are
 * taken: renaming makes nothing. Those of a warden that died are removed when the next one opens.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "warden/box.h"

#define BOX_SOCKET "init.sock"
#define LISTEN_BACKLOG 4

static int box_dir(const struct box_host *host, const char *id)
{
    return openat(host->boxes_fd, id, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* By a path below /proc/self/fd, so that no length and no symlink matters. */
static void socket_name(int dir, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    snprintf(out->sun_path, sizeof(out->sun_path), "/proc/self/fd/%d/" BOX_SOCKET, dir);
}

int place_listen(const struct box_host *host, const char *id)
{
    struct sockaddr_un name;
    autoclose int dir = box_dir(host, id);
    autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (dir < 0 || fd < 0)
        return -1;
    socket_name(dir, &name);
    if (bind(fd, (struct sockaddr *)&name, sizeof(name)) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
        return -1;
    return take_fd(&fd);
}

int box_connect(const struct box_host *host, const char *id)
{
    struct sockaddr_un name;
    autoclose int dir = box_dir(host, id);
    autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (dir < 0 || fd < 0)
        return -1;
    socket_name(dir, &name);
    if (connect(fd, (struct sockaddr *)&name, sizeof(name)) < 0)
        return -1; /* EAGAIN: an init that does not take connections */
    return take_fd(&fd);
}

/* ---- made ahead ---- */

int place_make_spare(const struct box_host *host, unsigned number, struct box_ahead *out)
{
    char *name = out->place;

    snprintf(name, sizeof(out->place), PLACE_SPARE "%u", number);
    out->listen = -1;
    if (mkdirat(host->boxes_fd, name, 0700) == 0 && record_make(host, name) == 0 &&
        cgroup_make_spare(name) == 0)
        out->listen = place_listen(host, name);
    if (out->listen >= 0)
        return 0;
    int error = errno;
    place_remove_spare(host, name);
    *name = 0;
    errno = error;
    return -1;
}

void place_remove_spare(const struct box_host *host, const char *name)
{
    if (*name)
        (void)!box_unmake(host, name);
}

void place_sweep(const struct box_host *host, unsigned numbers)
{
    for (unsigned i = 0; i < numbers; i++) {
        char name[BOX_ID_SIZE];

        snprintf(name, sizeof(name), PLACE_SPARE "%u", i);
        place_remove_spare(host, name);
    }
}

int place_take(const struct box_host *host, const char *spare, const char *id)
{
    if (!*spare)
        return mkdirat(host->boxes_fd, id, 0700);
    return (int)syscall(SYS_renameat2, host->boxes_fd, spare, host->boxes_fd, id, RENAME_NOREPLACE);
}

/* ---- taken away ---- */

int box_unmake(const struct box_host *host, const char *id)
{
    if (cgroup_remove(id) < 0)
        return -1;
    record_remove(host, id);
    autoclose int dir = box_dir(host, id);
    if (dir >= 0 && unlinkat(dir, BOX_SOCKET, 0) < 0 && errno != ENOENT)
        return -1;
    return unlinkat(host->boxes_fd, id, AT_REMOVEDIR) < 0 && errno != ENOENT ? -1 : 0;
}
