/*
 * A hostile process at the other end: the input's first byte says how many descriptors go along,
 * the rest is the datagram. Whatever arrives must be refused or be a whole message, and not one
 * descriptor may stay behind: the lowest free number is the same before and after.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "wire/wire.h"

#define SENT_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int lowest_free(void)
{
    int fd = fcntl(2, F_DUPFD_CLOEXEC, 3);

    if (fd < 0)
        abort();
    close(fd);
    return fd;
}

static void hostile_send(int fd, const uint8_t *data, size_t size, size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * SENT_MAX)];
    } control = { 0 };
    struct iovec iov = { (void *)(uintptr_t)data, size };
    struct msghdr head = { .msg_iov = &iov, .msg_iovlen = 1 };
    const int fds[SENT_MAX] = { 2, 2, 2, 2, 2, 2, 2, 2 };

    if (count) {
        head.msg_control = control.bytes;
        head.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&head);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * count);
    }
    if (sendmsg(fd, &head, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int free_before = lowest_free(), pair[2], fds[WIRE_FDS_MAX];
    struct wire_msg msg;
    unsigned count;

    if (size < 1 || size > 4096)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        abort();
    size_t sent = data[0] % (SENT_MAX + 1);
    hostile_send(pair[0], data + 1, size - 1, sent);
    int rc = wire_recv(pair[1], &msg, fds, &count);
    if (rc == 1) {
        if (count != sent || size - 1 != sizeof(msg) ||
            memcmp((char *)&msg, data + 1, sizeof(msg)) != 0 || msg.magic != WIRE_MAGIC ||
            !msg.verb || msg.verb >= WIRE_VERBS || wire_text(&msg).n > sizeof(msg.text))
            abort();
        for (unsigned i = 0; i < count; i++)
            close(fds[i]);
    } else if (count != 0) {
        abort();
    }
    close(pair[0]);
    close(pair[1]);
    if (lowest_free() != free_before)
        abort();
    return 0;
}
