/*
 * Frames of an init that was taken over: any sequence of them may end its sandbox and nothing else.
 * The input is a list of records: a length (two bytes), then that many bytes of a datagram; a
 * record of length 0 says that a round is over. A sandbox with two commands and a file operation
 * listens; the first of them was there before the connection, and has input.
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "box/job.h"
#include "box/own.h"
#include "store/store.h"

static struct loop *loop;
static struct store *store;
static char dir[] = "/tmp/atoll-fuzz-XXXXXX";

static int nowhere(void *ctx, const struct wire_msg *msg)
{
    (void)ctx, (void)msg;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void leave(void)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void set_up(void)
{
    static char path[64];
    struct err err;

    if (!mkdtemp(dir) || atexit(leave) != 0 || loop_new(&loop, &err) < 0)
        abort();
    snprintf(path, sizeof(path), "%s/fuzz.db", dir);
    if (store_open(&store, loop, &(struct store_options){ .path = path }, &err) < 0)
        abort();
}

static struct timer done_timer;

static void on_done(struct timer *timer)
{
    (void)timer;
    loop_stop(loop);
}

/* Until every job that was handed in has come back. */
static int last_run(struct store_job *job, struct db *db, struct err *err)
{
    (void)job, (void)db, (void)err;
    return 0;
}

static void last_done(struct store_job *job)
{
    (void)job;
    done_timer = (struct timer){ .fn = on_done };
    timer_set(loop, &done_timer, 0);
}

static void settle(void)
{
    struct store_job last = { .run = last_run, .done = last_done };

    store_write(store, &last);
    loop_run(loop);
}

static struct box_exec *command(struct box *box, const char *id, enum exec_state state)
{
    static const char *argv[] = { "true", NULL };
    struct box_exec *exec = exec_new(box, id, box->next_number++);

    exec->state = state;
    exec->spec = (struct exec_spec){ .argv = argv, .cwd = "/", .user = "agent" };
    box->running++;
    return exec;
}

/* A file operation, always with the same number, that takes what it is given. */
static struct box_job job;

static void job_data(struct box_job *one, struct str data)
{
    (void)one;
    (void)data;
}

static void job_done(struct box_job *one, const struct err *err)
{
    (void)one;
    (void)err;
}

static void operation(struct box *box)
{
    static const char *const args[] = { "write", "f", "-", "0", NULL };
    struct err err;

    job = (struct box_job){ .data = job_data, .done = job_done };
    box->first_job = box->next_job = JOB_NUMBERS | 1;
    if (box_job_start(box, &job, &(struct box_job_spec){ .args = args, .input = true }, &err) < 0)
        abort();
    (void)box_job_put(&job, STR("some input"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2];

    if (!loop)
        set_up();
    struct boxes *boxes =
        boxes_new(&(struct boxes_options){ .loop = loop,
                                           .store = store,
                                           .spool_dir = open(dir, O_RDONLY | O_CLOEXEC),
                                           .sandboxes_max = 2,
                                           .send = nowhere });
    struct box *box = box_new(boxes, "sb1", "default");
    box->state = SANDBOX_RUNNING;
    box->spec.user = "agent";
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    struct box_exec *first = command(box, "ex1", EXEC_RUNNING);
    link_open(box, pair[1]);
    (void)exec_typed(first, STR("some input"));
    command(box, "ex2", EXEC_STARTING);
    operation(box);
    while (size >= 2) {
        size_t len = (size_t)data[0] | (size_t)data[1] << 8;

        data += 2;
        size -= 2;
        if (len == 0) {
            list_each_safe (pos, &box->execs)
                exec_acknowledge(list_entry(pos, struct box_exec, node));
            list_each_safe (pos, &box->jobs)
                job_acknowledge(list_entry(pos, struct box_job, node));
            continue;
        }
        len = MIN(len, size);
        char *copy = malloc(len); /* so that reading past the end is seen */
        memcpy(copy, data, len);
        link_take(box, copy, len);
        free(copy);
        data += len;
        size -= len;
    }
    settle();
    list_each_safe (pos, &box->execs) {
        struct box_exec *exec = list_entry(pos, struct box_exec, node);

        exec_remove_files(exec);
    }
    boxes_free(boxes);
    close(pair[0]);
    return 0;
}
