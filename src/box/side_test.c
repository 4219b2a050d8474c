/*
 * side: bytes of an operation beside its frames, from an init that is played. What was asked for
 * arrives and nothing else; whatever the other end does, the loop does not wait for it.
 */
#include "box/job.h"

#include <fcntl.h>

#include "box/box_rig.h"

struct asker {
    struct box_job job;
    int done, rooms;
    bool failed, pauses, drops;
    struct err err;
    uint64_t got;
    bool wrong;
};

static char byte_at(uint64_t position)
{
    return (char)(position * 7 + position / 253);
}

static void asker_data(struct box_job *job, struct str data)
{
    struct asker *asker = container_of(job, struct asker, job);

    for (size_t i = 0; i < data.n; i++)
        asker->wrong |= data.p[i] != byte_at(asker->got + i);
    asker->got += data.n;
    if (asker->pauses)
        box_job_pause(job);
    if (asker->drops)
        box_job_drop(job);
}

static void asker_done(struct box_job *job, const struct err *err)
{
    struct asker *asker = container_of(job, struct asker, job);

    asker->done++;
    asker->failed = err != NULL;
    if (err)
        asker->err = *err;
}

/* The end that the operation would have; its job has started. */
static int begin_with(struct asker *asker, uint32_t *number, bool input)
{
    static const char *const args[] = { "file", "f", NULL };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    static char frame[70000];
    struct iovec part = { frame, sizeof(frame) };
    struct init_head head = { 0 };
    struct err err;
    int fd = -1;

    *asker = (struct asker){ .job = { .data = asker_data, .done = asker_done } };
    CHECK_OK(box_job_start(made(), &asker->job,
                           &(struct box_job_spec){
                               .args = args, .input = true, .side = !input, .side_in = input },
                           &err),
             &err);
    while (head.type != INIT_EXEC) {
        struct msghdr msg = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = &control,
                              .msg_controllen = sizeof(control) };

        CHECK(recvmsg(init_end, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) > 0);
        memcpy(&head, frame, sizeof(head));
        if (CMSG_FIRSTHDR(&msg))
            memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
    }
    *number = head.exec;
    CHECK(fd >= 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    say(INIT_STARTED, *number, &(struct init_started){ .pid = 7 }, sizeof(struct init_started),
        NULL);
    turn(5);
    return fd;
}

/* The same, and `len` bytes are expected from it. */
static int begin(struct asker *asker, uint32_t *number, uint64_t len)
{
    int fd = begin_with(asker, number, false);

    CHECK(box_job_expect(&asker->job, len));
    return fd;
}

/* As many as it takes, from `at` on; how many that were. */
static uint64_t send_some(int fd, uint64_t at, uint64_t most)
{
    static char data[1 << 20];
    size_t len = (size_t)MIN(most, (uint64_t)sizeof(data));

    for (size_t i = 0; i < len; i++)
        data[i] = byte_at(at + i);
    ssize_t put = send(fd, data, len, MSG_NOSIGNAL);
    return put > 0 ? (uint64_t)put : 0;
}

static void send_all(int fd, uint64_t at, uint64_t len)
{
    for (uint64_t end = at + len; at < end; turn(1))
        at += send_some(fd, at, end - at);
}

#define LONG 3000000

TEST(bytes_come_whole_whichever_end_is_told_first)
{
    for (int late = 0; late < 2; late++) {
        struct asker asker;
        uint32_t number;

        up(true);
        autoclose int fd = begin(&asker, &number, LONG);
        send_all(fd, 0, LONG - 10);
        if (!late) { /* the last of them are still in the socket when its end is told */
            CHECK_INT(send_some(fd, LONG - 10, 10), 10);
            say_exited(number, 0, 0, 0);
        }
        turn(10);
        if (late) {
            CHECK(asker.done == 0);
            CHECK_INT(send_some(fd, LONG - 10, 10), 10);
            turn(10);
            CHECK(asker.done == 0 && asker.got == LONG); /* its end has not come */
            say_exited(number, 0, 0, 0);
            turn(10);
        }
        CHECK(asker.done == 1 && !asker.failed && asker.got == LONG && !asker.wrong);
        down();
    }
}

TEST(no_more_is_read_than_was_asked_for)
{
    struct asker asker;
    uint32_t number;

    up(true);
    autoclose int fd = begin(&asker, &number, 1000);
    CHECK_INT(send_some(fd, 0, 5000), 5000);
    turn(10);
    CHECK_INT(asker.got, 1000);
    say_exited(number, 0, 0, 0);
    turn(10);
    CHECK(asker.done == 1 && !asker.failed && asker.got == 1000 && !asker.wrong);
    down();
}

TEST(one_that_ends_early_is_an_error)
{
    for (int order = 0; order < 3; order++) {
        struct asker asker;
        uint32_t number;

        up(true);
        int fd = begin(&asker, &number, 1000);
        CHECK_INT(send_some(fd, 0, 999), 999);
        if (order == 1)
            say_exited(number, 0, 0, 0);
        turn(10);
        CHECK(asker.done == 0);
        close(fd);
        turn(10);
        if (order != 1) {
            CHECK(asker.done == 0); /* its own end may say why */
            say_exited(number, order ? INIT_BUILTIN_FAILED : 0, 0, 0);
            turn(10);
        }
        CHECK(asker.done == 1 && asker.failed && asker.got == 999);
        CHECK_INT(asker.err.code, ERR_UNAVAILABLE);
        down();
    }
}

/* Nothing is read for who does not take it; and an end that is gone keeps nobody awake. */
TEST(a_pause_holds_the_bytes)
{
    struct asker asker;
    uint32_t number;
    uint64_t put = 0, more;

    up(true);
    int fd = begin(&asker, &number, LONG);
    asker.pauses = true;
    put += send_some(fd, 0, LONG);
    turn(10);
    uint64_t got = asker.got;
    CHECK(got > 0 && got <= 262144);
    while ((more = send_some(fd, put, LONG - put)))
        put += more;
    CHECK(put < LONG); /* as much as a socket holds */
    say_exited(number, 0, 0, 0);
    close(fd);
    for (int i = 0; i < 20; i++)
        turn(1);
    CHECK(asker.got == got && asker.done == 0 && !asker.job.side_watched);
    asker.pauses = false;
    box_job_resume(&asker.job);
    turn(20);
    CHECK(asker.got == put && !asker.wrong && asker.done == 1 && asker.failed);
    down();
}

TEST(one_that_is_dropped_or_lost_closes_its_end)
{
    for (int lost = 0; lost < 3; lost++) {
        struct asker asker;
        uint32_t number;
        char byte;

        up(true);
        autoclose int fd = begin(&asker, &number, LONG);
        asker.drops = lost == 0;
        CHECK(send_some(fd, 0, 1000) == 1000);
        turn(10);
        if (lost == 1)
            say_exited(number, INIT_BUILTIN_FAILED, 0, 0); /* the file has shrunk, say */
        if (lost == 2)
            say_exited(number, -1, 0, 0);
        turn(10);
        CHECK(lost ? asker.done == 1 && asker.failed : asker.done == 0);
        CHECK_INT(recv(fd, &byte, 1, MSG_DONTWAIT), 0);
        CHECK(send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0);
        down();
    }
}

/* Somebody else's descriptors are dropped by the kernel, and the bytes beside them are bytes. */
TEST(no_descriptor_comes_along)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    char byte = byte_at(0);
    struct iovec part = { &byte, 1 };
    struct msghdr msg = { .msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control) };
    struct asker asker;
    uint32_t number;
    int pair[2];
    char end;

    up(true);
    autoclose int fd = begin(&asker, &number, 1);
    CHECK_INT(pipe2(pair, O_CLOEXEC | O_NONBLOCK), 0);
    struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &pair[1], sizeof(int));
    CHECK_INT(sendmsg(fd, &msg, MSG_NOSIGNAL), 1);
    close(pair[1]);
    say_exited(number, 0, 0, 0);
    turn(10);
    CHECK(asker.done == 1 && !asker.failed && asker.got == 1);
    CHECK_INT(read(pair[0], &end, 1), 0); /* nobody holds the other end */
    close(pair[0]);
    down();
}

/* Its init has forgotten it, as it was told to; that is no reason to give up what it has sent. */
TEST(what_is_still_on_its_way_outlives_a_new_connection)
{
    struct asker asker;
    uint32_t number;

    up(true);
    autoclose int fd = begin(&asker, &number, 1000);
    say_exited(number, 0, 0, 0);
    turn(10);
    say(INIT_LISTED, 0, NULL, 0, NULL);
    turn(10);
    CHECK(asker.done == 0);
    CHECK_INT(send_some(fd, 0, 1000), 1000);
    turn(10);
    CHECK(asker.done == 1 && !asker.failed && asker.got == 1000);
    down();
}

/* ---- input ---- */

static void asker_room(struct box_job *job)
{
    container_of(job, struct asker, job)->rooms++;
}

static int begin_input(struct asker *asker, uint32_t *number)
{
    int fd = begin_with(asker, number, true);

    asker->job.room = asker_room;
    return fd;
}

/* Puts as many of those from `at` on as are taken. */
static uint64_t put_some(struct asker *asker, uint64_t at, uint64_t most)
{
    static char data[1 << 20];
    size_t len = (size_t)MIN(most, (uint64_t)sizeof(data));

    for (size_t i = 0; i < len; i++)
        data[i] = byte_at(at + i);
    return box_job_put(&asker->job, (struct str){ data, len });
}

TEST(what_is_put_waits_until_the_operation_takes_it)
{
    uint64_t put = 0, got = 0, total = 0, more;
    static char data[300000];
    struct asker asker;
    uint32_t number;

    up(true);
    int fd = begin_input(&asker, &number);
    while ((more = put_some(&asker, put, LONG - put)) > 0)
        put += more;
    CHECK(put > 0 && put < LONG); /* no more than the socket holds, and nothing is kept here */
    CHECK_INT(asker.job.in.len, 0);
    CHECK_INT(put_some(&asker, put, 1), 0); /* in turn: not before what was refused */
    turn(10);
    CHECK_INT(asker.rooms, 0);
    for (ssize_t n; got < LONG; turn(1)) {
        while ((n = recv(fd, data, sizeof(data), 0)) > 0) {
            for (ssize_t i = 0; i < n; i++)
                CHECK(data[i] == byte_at(got + (uint64_t)i));
            got += (uint64_t)n;
        }
        CHECK(n < 0); /* its end is not told yet */
        turn(1);
        put += put_some(&asker, put, LONG - put);
    }
    CHECK(put == LONG && asker.rooms > 0);
    CHECK(!heard(INIT_STDIN, NULL, NULL, 0));
    box_job_eof(&asker.job);
    CHECK_INT(recv(fd, data, sizeof(data), 0), 0);
    CHECK(heard(INIT_STDIN, NULL, (char *)&total, sizeof(total)));
    CHECK_INT(total, LONG);
    CHECK(heard(INIT_STDIN, NULL, NULL, 0) && !asker.job.in_open);
    say_exited(number, 0, 0, 0);
    turn(10);
    CHECK(asker.done == 1 && !asker.failed);
    close(fd);
    down();
}

TEST(an_operation_that_takes_no_more_is_left_alone)
{
    struct asker asker;
    uint32_t number;
    uint64_t more;

    up(true);
    int fd = begin_input(&asker, &number);
    while ((more = put_some(&asker, 0, LONG)) > 0)
        ;
    close(fd);
    turn(10);
    CHECK(asker.rooms <= 1);
    CHECK_INT(put_some(&asker, 0, 10), 0);
    turn(10);
    CHECK(asker.rooms <= 1 && !asker.job.side_watched && !asker.done);
    box_job_eof(&asker.job);
    say_exited(number, -9, 0, 0);
    turn(10);
    CHECK(asker.done == 1 && asker.failed);
    down();
}
