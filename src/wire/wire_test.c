/* Messages and descriptors both ways, and everything that must not be taken for a message. */
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/test.h"

static void pair_open(int pair[2])
{
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
}

static void pair_close(int pair[2])
{
    close(pair[0]);
    close(pair[1]);
}

static int lowest_free(void)
{
    int fd = fcntl(2, F_DUPFD_CLOEXEC, 3);

    CHECK(fd >= 0);
    close(fd);
    return fd;
}

static struct wire_msg good(void)
{
    return (struct wire_msg){ .magic = WIRE_MAGIC, .version = WIRE_VERSION, .verb = WIRE_PING };
}

/* Sends raw bytes with `count` copies of descriptor 2, as a hostile peer would. */
static void raw_send(int fd, const void *data, size_t size, size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 16)];
    } control = { 0 };
    struct iovec iov = { (void *)(uintptr_t)data, size };
    struct msghdr head = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (count) {
        head.msg_control = control.bytes;
        head.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&head);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * count);
        for (size_t i = 0; i < count; i++)
            memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &(int){ 2 }, sizeof(int));
    }
    CHECK(sendmsg(fd, &head, MSG_NOSIGNAL) == (ssize_t)size);
}

static void check_refused(const void *data, size_t size, size_t fd_count)
{
    int pair[2], fds[WIRE_FDS_MAX], free_before = lowest_free();
    struct wire_msg msg;
    unsigned count = 99;

    pair_open(pair);
    raw_send(pair[0], data, size, fd_count);
    errno = 0;
    CHECK_INT(wire_recv(pair[1], &msg, fds, &count), -1);
    CHECK_INT(errno, EPROTO);
    CHECK_INT(count, 0);
    pair_close(pair);
    CHECK_INT(lowest_free(), free_before);
}

TEST(a_message_arrives_as_sent)
{
    struct wire_msg out = { .verb = WIRE_HELLO, .number = 7, .status = -5, .hello = { 2, 4242 } };
    struct wire_msg in;
    int pair[2], fds[WIRE_FDS_MAX];
    unsigned count;

    pair_open(pair);
    CHECK_INT(wire_send(pair[0], &out, NULL, 0), 0);
    CHECK_INT(wire_recv(pair[1], &in, fds, &count), 1);
    CHECK_INT(in.verb, WIRE_HELLO);
    CHECK_INT(in.number, 7);
    CHECK_INT(in.status, -5);
    CHECK_INT(in.hello.role, 2);
    CHECK_INT(in.hello.pid, 4242);
    CHECK_INT(count, 0);
    pair_close(pair);
}

TEST(descriptors_travel_along_and_close_on_exec)
{
    int pair[2], fds[WIRE_FDS_MAX], pipes[2];
    struct wire_msg out = { .verb = WIRE_RELOAD }, in;
    struct stat sent, got;
    unsigned count;

    pair_open(pair);
    CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    int give[WIRE_FDS_MAX + 1] = { pipes[0], pipes[1], pipes[0], pipes[1], pipes[0] };
    CHECK_INT(wire_send(pair[0], &out, give, WIRE_FDS_MAX), 0);
    CHECK_INT(wire_recv(pair[1], &in, fds, &count), 1);
    CHECK_INT(count, WIRE_FDS_MAX);
    for (unsigned i = 0; i < count; i++) {
        CHECK(fstat(give[i], &sent) == 0 && fstat(fds[i], &got) == 0);
        CHECK(sent.st_ino == got.st_ino);
        CHECK(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
        close(fds[i]);
    }
    CHECK_INT(wire_send(pair[0], &out, give, WIRE_FDS_MAX + 1), -1);
    CHECK_INT(errno, EINVAL);
    close(pipes[0]);
    close(pipes[1]);
    pair_close(pair);
}

TEST(a_message_of_the_wrong_size_is_refused)
{
    char data[WIRE_SIZE + 1] = { 0 };
    struct wire_msg msg = good();

    memcpy(data, &msg, sizeof(msg));
    check_refused(data, WIRE_SIZE - 1, 0);
    check_refused(data, WIRE_SIZE + 1, 0);
    check_refused(data, 1, 0);
}

TEST(a_message_with_wrong_magic_version_or_verb_is_refused)
{
    struct wire_msg msg = good();

    msg.magic++;
    check_refused(&msg, sizeof(msg), 0);
    msg = good();
    msg.version++;
    check_refused(&msg, sizeof(msg), 0);
    msg = good();
    msg.verb = 0;
    check_refused(&msg, sizeof(msg), 0);
    msg.verb = WIRE_VERBS;
    check_refused(&msg, sizeof(msg), 0);
}

TEST(too_many_descriptors_are_refused_and_closed)
{
    struct wire_msg msg = good();

    for (size_t count = WIRE_FDS_MAX + 1; count <= 16; count++)
        check_refused(&msg, sizeof(msg), count);
}

TEST(descriptors_of_a_refused_message_are_closed)
{
    struct wire_msg msg = good();

    msg.verb = WIRE_VERBS;
    for (size_t count = 1; count <= WIRE_FDS_MAX; count++)
        check_refused(&msg, sizeof(msg), count);
}

TEST(a_closed_end_and_an_empty_datagram_read_as_the_end)
{
    int pair[2], fds[WIRE_FDS_MAX];
    struct wire_msg msg;
    unsigned count;

    pair_open(pair);
    CHECK_INT(wire_recv(pair[1], &msg, fds, &count), -1);
    CHECK_INT(errno, EAGAIN);
    raw_send(pair[0], "", 0, 0);
    CHECK_INT(wire_recv(pair[1], &msg, fds, &count), 0);
    close(pair[0]);
    CHECK_INT(wire_recv(pair[1], &msg, fds, &count), 0);
    close(pair[1]);
}

TEST(an_empty_datagram_keeps_no_descriptors)
{
    int pair[2], fds[WIRE_FDS_MAX], free_before = lowest_free();
    struct wire_msg msg;
    unsigned count;

    pair_open(pair);
    raw_send(pair[0], "", 0, 3);
    CHECK_INT(wire_recv(pair[1], &msg, fds, &count), 0);
    CHECK_INT(count, 0);
    pair_close(pair);
    CHECK_INT(lowest_free(), free_before);
}

TEST(text_without_an_end_stays_within_the_message)
{
    struct wire_msg msg = good();

    memset(msg.text, 'x', sizeof(msg.text));
    CHECK_INT(wire_text(&msg).n, sizeof(msg.text));
    msg.text[3] = 0;
    CHECK_INT(wire_text(&msg).n, 3);
}

TEST(sending_an_unknown_verb_is_our_own_mistake)
{
    int pair[2];

    pair_open(pair);
    CHECK_INT(wire_send(pair[0], &(struct wire_msg){ .verb = WIRE_VERBS }, NULL, 0), -1);
    CHECK_INT(errno, EINVAL);
    CHECK_INT(wire_send(pair[0], &(struct wire_msg){ 0 }, NULL, 0), -1);
    pair_close(pair);
}

/* Random datagrams against the one-line definition of a good one. */
TEST(random_datagrams_agree_with_the_definition)
{
    int pair[2], fds[WIRE_FDS_MAX], free_before = lowest_free();
    struct wire_msg in;
    unsigned count;

    pair_open(pair);
    for (int round = 0; round < 20000; round++) {
        struct wire_msg msg = good();
        size_t size = test_rand(4) ? sizeof(msg) : 1 + test_rand(sizeof(msg));
        size_t sent = test_rand(WIRE_FDS_MAX + 3);

        msg.verb = (uint16_t)test_rand(WIRE_VERBS + 2);
        if (test_rand(8) == 0)
            ((unsigned char *)&msg)[test_rand(8)] ^= (unsigned char)(1 + test_rand(255));
        bool fine = size == sizeof(msg) && msg.magic == WIRE_MAGIC && msg.version == WIRE_VERSION &&
                    msg.verb >= 1 && msg.verb < WIRE_VERBS && sent <= WIRE_FDS_MAX;
        raw_send(pair[0], &msg, size, sent);
        CHECK_INT(wire_recv(pair[1], &in, fds, &count), fine ? 1 : -1);
        CHECK_INT(count, fine ? sent : 0);
        for (unsigned i = 0; i < count; i++)
            close(fds[i]);
    }
    pair_close(pair);
    CHECK_INT(lowest_free(), free_before);
}
