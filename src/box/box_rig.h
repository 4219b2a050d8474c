/*
 * box_rig - a warden and inits that are played, over real sockets and a real store. Only for
 * x_test.c files of this room.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "box/own.h"
#include "store/testing.h"

/* ---- a warden that is played ---- */

UNUSED_OK static struct boxes *boxes;
UNUSED_OK static struct wire_msg asked[64];
UNUSED_OK static unsigned asked_count;
UNUSED_OK static int init_end = -1; /* our end of the newest box's connection */

UNUSED_OK static int played_send(void *ctx, const struct wire_msg *msg)
{
    (void)ctx;
    CHECK(asked_count < ARRAY_LEN(asked));
    asked[asked_count++] = *msg;
    return 0;
}

/* Runs the loop for a moment. */
UNUSED_OK static struct timer pause_timer;

UNUSED_OK static void pause_over(struct timer *timer)
{
    (void)timer;
    loop_stop(test_loop);
}

UNUSED_OK static void turn(int64_t ms)
{
    pause_timer = (struct timer){ .fn = pause_over };
    timer_set(test_loop, &pause_timer, ms);
    loop_run(test_loop);
}

UNUSED_OK static int no_run(struct db *db, void *ctx, struct err *err)
{
    (void)db, (void)ctx, (void)err;
    return 0;
}

/* What is in the sockets is read, what was to be stored is stored, and what follows is done. */
UNUSED_OK static void settle(void)
{
    for (int i = 0; i < 2; i++) {
        struct test_job job = { .fn = no_run, .stop = true };

        turn(20);
        job.job = (struct store_job){ .run = test_job_run, .done = test_job_done };
        store_write(test_store, &job.job);
        loop_run(test_loop);
    }
    turn(5);
}

UNUSED_OK static void answer_with(const struct wire_msg *question, int status, bool with_link)
{
    struct wire_msg msg = *question;
    int fds[2] = { -1, -1 };
    unsigned count = 0;

    msg.status = status;
    if (question->verb == WIRE_BOX_CREATE || question->verb == WIRE_BOX_OPEN)
        msg.created =
            (struct box_created){ .step = status ? BOX_STEP_SECCOMP : BOX_STEP_NONE, .slot = 3 };
    if (with_link) {
        int pair[2];

        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
        if (init_end >= 0)
            close(init_end);
        init_end = pair[0];
        fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        fds[1] = pair[1];
        count = 2;
    }
    boxes_heard(boxes, &msg, fds, count);
}

/* ---- an init that is played ---- */

UNUSED_OK static void say(uint16_t type, uint32_t exec, const void *fixed, size_t fixed_len,
                          const char *more)
{
    static char frame[70000];
    struct init_head head = { INIT_MAGIC, type, 0, exec,
                              (uint32_t)(fixed_len + (more ? strlen(more) : 0)) };

    memcpy(frame, &head, sizeof(head));
    if (fixed_len)
        memcpy(frame + sizeof(head), fixed, fixed_len);
    if (more)
        memcpy(frame + sizeof(head) + fixed_len, more, strlen(more));
    CHECK(send(init_end, frame, sizeof(head) + head.len, MSG_NOSIGNAL) > 0);
}

/* The next frame of this type that the room sent; others are passed over. False: none. */
UNUSED_OK static bool heard(uint16_t type, uint32_t *exec, char *body, size_t size)
{
    static char frame[70000];
    struct init_head head;
    ssize_t got;

    while ((got = recv(init_end, frame, sizeof(frame), MSG_DONTWAIT)) > 0) {
        CHECK(init_frame_ok(frame, (size_t)got, true));
        memcpy(&head, frame, sizeof(head));
        if (head.type != type)
            continue;
        if (exec)
            *exec = head.exec;
        if (body)
            memcpy(body, frame + sizeof(head), MIN(head.len, size));
        return true;
    }
    return false;
}

UNUSED_OK static void say_output(uint32_t exec, uint32_t stream, uint64_t position,
                                 const char *text)
{
    struct init_output head = { .stream = stream, .position = position };

    say(INIT_OUTPUT, exec, &head, sizeof(head), text);
}

UNUSED_OK static void say_exited(uint32_t exec, int code, uint64_t out, uint64_t err_)
{
    struct init_exited end = { .code = code, .end = { out, err_ } };

    say(INIT_EXITED, exec, &end, sizeof(end), NULL);
}

/* A command that failed: the warden is asked how many were killed for lack of memory. */
UNUSED_OK static void tell_oom(uint64_t kills)
{
    turn(20);
    CHECK_INT(asked[asked_count - 1].verb, WIRE_BOX_STAT);
    struct wire_msg msg = asked[asked_count - 1];
    msg.status = 0;
    msg.usage = (struct box_usage){ .oom_kills = kills };
    boxes_heard(boxes, &msg, NULL, 0);
}

/* ---- a caller ---- */

struct caller {
    struct box_op op;
    int done;
    struct err err;
    bool failed;
};

UNUSED_OK static void caller_done(struct box_op *op, const struct err *err)
{
    struct caller *caller = container_of(op, struct caller, op);

    caller->done++;
    caller->failed = err != NULL;
    if (err)
        caller->err = *err;
}

UNUSED_OK static struct caller caller_new(void)
{
    return (struct caller){ .op = { .tenant = "default",
                                    .by = "me",
                                    .reach = { .tenant = "default", .all = true },
                                    .done = caller_done } };
}

UNUSED_OK static char *store_path;
static unsigned rig_pool; /* size of the default pool */
UNUSED_OK static int64_t rig_aside_keep_ms;

UNUSED_OK static void up(bool fresh)
{
    static int number;

    if (fresh) {
        char name[32];

        snprintf(name, sizeof(name), "box%d.db", ++number);
        free(store_path);
        store_path = test_path(name);
    }
    test_open(store_path, NULL, NULL);
    static const char *spools; /* the same after a restart */
    if (!spools)
        spools = test_dir();
    int dir = open(spools, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    boxes = boxes_new(&(struct boxes_options){ .loop = test_loop,
                                               .store = test_store,
                                               .spool_dir = dir,
                                               .sandboxes_max = 3,
                                               .pool_default = rig_pool,
                                               .aside_keep_ms = rig_aside_keep_ms,
                                               .send = played_send });
    asked_count = 0;
}

UNUSED_OK static void down(void)
{
    store_close(test_store);
    test_store = NULL;
    boxes_free(boxes);
    boxes = NULL;
    test_close();
    if (init_end >= 0)
        close(init_end);
    init_end = -1;
}

UNUSED_OK static struct box *made(void)
{
    struct caller caller = caller_new();
    struct sandbox_spec spec = { 0 };
    struct err err;

    CHECK_OK(boxes_create(boxes, &spec, &caller.op, &err), &err);
    CHECK_INT(asked[asked_count - 1].verb, WIRE_BOX_CREATE);
    CHECK(box_spec_ok(&asked[asked_count - 1].spec));
    answer_with(&asked[asked_count - 1], 0, true);
    settle();
    CHECK_INT(caller.done, 1);
    CHECK(!caller.failed);
    say(INIT_READY, 0, &(struct init_ready){ .version = INIT_VERSION }, sizeof(struct init_ready),
        NULL);
    say(INIT_LISTED, 0, NULL, 0, NULL);
    turn(20);
    return caller.op.box;
}

UNUSED_OK static struct box_exec *started(struct box *box, uint32_t *number)
{
    struct caller caller = caller_new();
    const char *argv[] = { "echo", "hi", NULL };
    struct exec_spec spec = { .argv = argv };
    struct err err;

    CHECK_OK(box_exec(box, &spec, &caller.op, &err), &err);
    CHECK(heard(INIT_EXEC, number, NULL, 0));
    say(INIT_STARTED, *number, &(struct init_started){ .pid = 7 }, sizeof(struct init_started),
        NULL);
    settle();
    CHECK_INT(caller.done, 1);
    CHECK(!caller.failed);
    return caller.op.exec;
}

/* ---- restarts ---- */

UNUSED_OK static bool is_started;

UNUSED_OK static void on_started(void *ctx)
{
    (void)ctx;
    is_started = true;
}

UNUSED_OK static int load_job(struct db *db, void *ctx, struct err *err)
{
    (void)ctx;
    return boxes_load(boxes, db, err);
}

UNUSED_OK static void load_and_start(void)
{
    struct err err = { 0 };

    CHECK_OK(test_write(load_job, NULL, &err), &err);
    is_started = false;
    boxes_start(boxes, on_started, NULL);
}

/* We are killed and come back; the warden has the sandbox `listed`, or none. */
UNUSED_OK static void again(const char *listed)
{
    down();
    up(false);
    load_and_start();
    CHECK_INT(asked[0].verb, WIRE_BOX_LIST);
    struct wire_msg msg = asked[0];
    memset(&msg.rows, 0, sizeof(msg.rows));
    if (listed) {
        msg.rows.count = 1;
        memcpy(msg.rows.rows[0].id, listed, strlen(listed));
        msg.rows.rows[0].state = BOX_RUNNING;
    }
    boxes_heard(boxes, &msg, NULL, 0);
    for (unsigned i = 1; i < asked_count; i++)
        if (asked[i].verb == WIRE_BOX_DESTROY)
            answer_with(&asked[i], 0, false);
    CHECK_INT(asked[asked_count - 1].verb, WIRE_DISK_LIST);
    answer_with(&asked[--asked_count], ENOTSUP, false);
    turn(20);
}
