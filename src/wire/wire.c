/*
 * One recvmsg per message, with room for exactly one message and WIRE_FDS_MAX descriptors. Whatever
 * does not fit is seen by the kernel's MSG_TRUNC and MSG_CTRUNC and refused; every descriptor that
 * arrived with a refused message is closed, so that a hostile peer cannot fill our table.
 */
#include "wire/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

_Static_assert(WIRE_FDS_MAX % 2 == 0, "what the kernel aligns to holds none more");

union wire_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * WIRE_FDS_MAX)];
};

struct str wire_text(const struct wire_msg *msg)
{
    return (struct str){ msg->text, strnlen(msg->text, sizeof(msg->text)) };
}

int wire_send(int fd, const struct wire_msg *msg, const int *fds, unsigned count)
{
    struct wire_msg out = *msg;
    union wire_control control = { 0 };
    struct iovec iov = { &out, sizeof(out) };
    struct msghdr head = { .msg_iov = &iov, .msg_iovlen = 1 };
    ssize_t sent;

    if (count > WIRE_FDS_MAX || msg->verb == 0 || msg->verb >= WIRE_VERBS) {
        errno = EINVAL;
        return -1;
    }
    out.magic = WIRE_MAGIC;
    out.version = WIRE_VERSION;
    if (count) {
        head.msg_control = control.bytes;
        head.msg_controllen = (socklen_t)CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr *cmsg = &control.align; /* what CMSG_FIRSTHDR would say */
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = (socklen_t)CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * count);
    }
    do
        sent = sendmsg(fd, &head, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

/*
 * Takes the descriptors out of the control data. The kernel gathers all of a message's descriptors
 * in one header, and a second header would not fit into our buffer, so the first is the only one.
 */
static unsigned take_fds(struct msghdr *head, int fds[WIRE_FDS_MAX])
{
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(head);

    if (!cmsg || cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
        return 0;
    size_t held = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    if (held > WIRE_FDS_MAX)
        abort(); /* more than the buffer holds */
    memcpy(fds, CMSG_DATA(cmsg), held * sizeof(int));
    return (unsigned)held;
}

static bool well_formed(const struct wire_msg *msg, size_t size, int flags)
{
    return size == sizeof(*msg) && !(flags & (MSG_TRUNC | MSG_CTRUNC)) &&
           msg->magic == WIRE_MAGIC && msg->version == WIRE_VERSION && msg->verb > 0 &&
           msg->verb < WIRE_VERBS;
}

int wire_recv(int fd, struct wire_msg *msg, int fds[WIRE_FDS_MAX], unsigned *count)
{
    union wire_control control = { 0 };
    struct iovec iov = { msg, sizeof(*msg) };
    struct msghdr head = { .msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof(control.bytes) };
    ssize_t size;

    *count = 0;
    do
        size = recvmsg(fd, &head, MSG_CMSG_CLOEXEC);
    while (size < 0 && errno == EINTR);
    if (size < 0)
        return -1;

    unsigned got = take_fds(&head, fds);
    if (size > 0 && well_formed(msg, (size_t)size, head.msg_flags)) {
        *count = got;
        return 1;
    }
    for (unsigned i = 0; i < got; i++)
        close(fds[i]);
    if (size == 0)
        return 0;
    errno = EPROTO;
    return -1;
}
