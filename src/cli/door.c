/*
 * --bind: the directory itself goes to the warden, as an open descriptor, through the door of the
 * state directory (wire/box.h); what we get for it is a ticket to be named in a request. So only
 * somebody on the server's machine can do this, and only with a directory that is open to them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/hash.h"
#include "base/mem.h"
#include "cli/sandbox.h"
#include "wire/box.h"

#define ANSWER_MS 5000

static int open_dir(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd >= 0)
        return fd;
    if (errno == ENOTDIR)
        return err_set(err, ERR_INVALID,
                       "%s is not a directory; --copy takes directories only, too", path);
    return err_sys(err, "%s", path);
}

static int knock(const char *state, struct err *err)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    struct timeval wait = { .tv_sec = ANSWER_MS / 1000 };

    if ((size_t)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/" DOOR_SOCKET, state) >=
        sizeof(addr.sun_path))
        return err_set(err, ERR_INVALID, "the path of the state directory is too long");
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0 ||
        connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return err_sys(err, "the server takes no directories at %s", addr.sun_path);
    return take_fd(&fd);
}

static int leave(int door, int dir, struct door_left *out, struct err *err)
{
    struct door_leave ask = { .magic = DOOR_MAGIC };
    struct iovec iov = { &ask, sizeof(ask) };
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
    };

    control.head = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(&control.head), &dir, sizeof(dir));
    if (sendmsg(door, &msg, MSG_NOSIGNAL) < 0)
        return err_sys(err, "leave the directory");
    ssize_t got = recv(door, out, sizeof(*out), 0);
    if (got < 0)
        return err_sys(err, "the server did not take the directory");
    if (got != (ssize_t)sizeof(*out) || out->magic != DOOR_MAGIC)
        return err_set(err, ERR_INTERNAL, "the server's door answered with something else");
    if (!out->error)
        return 0;
    if (out->error == EAGAIN)
        return err_set(err, ERR_RATE, "too many directories are handed over at once; try again");
    errno = out->error;
    return err_sys(err, "the server does not take this directory");
}

/* A server that is not root's: the kernel lets it mount nothing out of its caller's namespace. */
static bool is_ordinary(const char *state)
{
    struct stat st;

    return stat(state, &st) == 0 && st.st_uid != 0;
}

int door_leave(struct cli *cli, const char *path, char ticket[DOOR_TICKET_HEX], struct err *err)
{
    struct door_left left = { 0 };
    autoclose int dir = open_dir(path, err);
    bool named = false;
    autofree char *state = cli->at.state ? xstrdup(cli->at.state) : cli_state_dir(cli, &named);

    if (dir < 0)
        return -1;
    if (!cli->at.state && !named)
        return err_set(err, ERR_UNSUPPORTED,
                       "the server (%s) may be on another machine: name its state directory with "
                       "--state, or use --copy",
                       cli->at.how);
    autoclose int door = knock(state, err);
    if (door < 0)
        return -1;
    if (leave(door, dir, &left, err) < 0)
        return left.error != EPERM || !is_ordinary(state)
                   ? -1
                   : err_set(err, ERR_UNSUPPORTED,
                             "a server that an ordinary user started can bind no directory; use "
                             "--copy, and --apply to take changes back");
    hex_text(left.ticket, sizeof(left.ticket), ticket);
    return 0;
}
