/*
 * What was told of a command is there after a kill, whatever the store had of it: the writer is
 * made to wait, and what is on disk then, copied, is what a kill would have left.
 */
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

#include "box/box_rig.h"
#include "store/fault_vfs.h"

/* ---- a writer that waits ---- */

static sem_t go;
static struct test_job barrier;

static int wait_for_go(struct db *db, void *ctx, struct err *err)
{
    (void)db, (void)ctx, (void)err;
    while (sem_wait(&go) < 0)
        ;
    return 0;
}

static void hold_writer(void)
{
    sem_init(&go, 0, 0);
    barrier = test_job_of(wait_for_go, NULL);
    barrier.stop = false;
    store_write(test_store, &barrier.job);
}

static void free_writer(void)
{
    sem_post(&go);
    settle();
}

/* ---- what a kill leaves ---- */

static char *file_read(const char *path, size_t *len)
{
    FILE *file = fopen(path, "re");
    char *data = NULL;

    *len = 0;
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    *len = (size_t)ftell(file);
    rewind(file);
    data = xmalloc(*len + 1);
    CHECK(fread(data, 1, *len, file) == *len);
    fclose(file);
    return data;
}

static void file_write(const char *path, const char *data, size_t len)
{
    FILE *file = fopen(path, "we");

    CHECK(file != NULL && fwrite(data, 1, len, file) == len && fclose(file) == 0);
}

static char *spool_path(const char *name)
{
    char dir[4096];
    autofree char *link = xprintf("/proc/self/fd/%d", boxes->spool_dir);
    ssize_t len = readlink(link, dir, sizeof(dir) - 1);

    CHECK(len > 0);
    dir[MAX(len, (ssize_t)0)] = 0;
    return xprintf("%s/%s", dir, name);
}

struct left {
    char *data[3], *to[3]; /* the store's file, its log, the places */
    size_t len[3];
};

/* While the writer waits. */
static struct left look(void)
{
    static int number;
    autofree char *log = xprintf("%s-wal", store_path);
    autofree char *name = xprintf("killed%d.db", ++number);
    autofree char *copy = test_path(name);
    autofree char *ends = spool_path("ends");
    struct left left = { 0 };

    left.data[0] = file_read(store_path, &left.len[0]);
    left.data[1] = file_read(log, &left.len[1]);
    left.data[2] = file_read(ends, &left.len[2]);
    left.to[0] = xprintf("%s", copy);
    left.to[1] = xprintf("%s-wal", copy);
    left.to[2] = xprintf("%s", ends);
    return left;
}

/* The next life, in which the sandbox is gone with all else. */
static void begin_again(void)
{
    up(false);
    load_and_start();
    struct wire_msg msg = asked[0];
    memset(&msg.rows, 0, sizeof(msg.rows));
    boxes_heard(boxes, &msg, NULL, 0);
    answer_with(&asked[--asked_count], ENOTSUP, false);
    settle();
}

/* It finds what was left. */
static void live_on(struct left *left)
{
    down();
    for (int i = 0; i < 3; i++)
        file_write(left->to[i], left->data[i], left->len[i]);
    free(store_path);
    store_path = xprintf("%s", left->to[0]);
    begin_again();
}

static void left_free(struct left *left)
{
    for (int i = 0; i < 3; i++) {
        free(left->data[i]);
        free(left->to[i]);
    }
}

/* ---- counting ---- */

struct counts {
    int64_t rows, exited, began, ended, audits;
};

static int count_all(struct db *db, void *ctx, struct err *err)
{
    struct counts *counts = ctx;

    (void)err;
    counts->rows = test_number(db, "SELECT count(*) FROM exec");
    counts->exited = test_number(db, "SELECT count(*) FROM exec WHERE state = 'exited'");
    counts->began = test_number(db, "SELECT count(*) FROM event WHERE type = 'exec.started'");
    counts->ended = test_number(db, "SELECT count(*) FROM event WHERE type = 'exec.exited'");
    counts->audits = test_number(db, "SELECT count(*) FROM audit WHERE action = 'exec.test' AND"
                                     " actor = 'me' AND detail = '{}' AND at_ms = 77");
    return 0;
}

static struct counts counted(void)
{
    struct counts counts = { 0 };
    struct err err;

    CHECK_OK(test_read(count_all, &counts, &err), &err);
    return counts;
}

static void check_counts(int64_t number)
{
    struct counts counts = counted();

    CHECK_INT(counts.rows, number);
    CHECK_INT(counts.exited, number);
    CHECK_INT(counts.began, number);
    CHECK_INT(counts.ended, number);
    CHECK_INT(counts.audits, number);
}

static bool all_wiped(void)
{
    autofree char *path = spool_path("ends");
    size_t len;
    autofree char *data = file_read(path, &len);

    for (size_t i = 0; i < len; i++)
        if (data[i])
            return false;
    return len > 0;
}

/* ---- commands ---- */

static bool audit_of(struct box_op *op, struct audit *out)
{
    *out = (struct audit){ .at_ms = 77,
                           .tenant = op->tenant,
                           .actor = op->by,
                           .role = "-",
                           .action = "exec.test",
                           .object = "",
                           .outcome = "ok",
                           .request_id = "",
                           .peer = "",
                           .detail = "{}" };
    return true;
}

/* One whose caller waits for its end, that has started. */
static struct box_exec *awaited(struct box *box, struct caller *caller, const char *arg,
                                uint32_t *number)
{
    const char *argv[] = { "true", arg, NULL };
    struct exec_spec spec = { .argv = argv };
    struct err err;

    *caller = caller_new();
    caller->op.till_end = true;
    caller->op.audit = audit_of;
    CHECK_OK(box_exec(box, &spec, &caller->op, &err), &err);
    CHECK(heard(INIT_EXEC, number, NULL, 0));
    say(INIT_STARTED, *number, &(struct init_started){ .pid = 7 }, sizeof(struct init_started),
        NULL);
    turn(1);
    return caller->op.exec;
}

/* A bad end is known when the warden has said that memory was not short. */
static void end_with(uint32_t number, int code, uint64_t out)
{
    say_exited(number, code, out, 0);
    turn(20);
    if (code)
        tell_oom(0);
}

static struct box_exec *found(const char *sandbox, const char *id)
{
    struct box *box = boxes_by_id(boxes, sandbox);
    struct box_exec *exec = NULL;
    struct err err;

    return box && box_exec_find(box, id, &exec, &err) == 0 ? exec : NULL;
}

static void remember(const struct box_exec *exec, char sandbox[ID_SIZE], char id[ID_SIZE])
{
    memcpy(sandbox, exec->box->id, ID_SIZE);
    memcpy(id, exec->id, ID_SIZE);
}

TEST(an_end_is_told_before_the_store_has_it_and_outlives_every_process)
{
    char sandbox[ID_SIZE], id[ID_SIZE];
    struct caller caller;
    struct exec_view view;
    uint32_t number;

    up(true);
    boxes->hold_ms = 60000;
    struct box *box = made();
    hold_writer();
    struct box_exec *exec = awaited(box, &caller, "a word", &number);
    remember(exec, sandbox, id);
    CHECK(!caller.done && !box_exec_ended(exec));
    say_output(number, INIT_OUT, 0, "said");
    end_with(number, 3, 4);
    CHECK(caller.done == 1 && !caller.failed && box_exec_ended(exec));
    CHECK_INT(counted().rows, 0);
    struct left left = look();
    free_writer();
    check_counts(1); /* without a kill: once, and the place is empty again */
    CHECK(all_wiped());
    live_on(&left);
    exec = found(sandbox, id);
    CHECK(exec != NULL && box_exec_ended(exec));
    box_exec_view(exec, &view);
    CHECK_STR(view.state, "exited");
    CHECK_INT(view.exit_code, 3);
    CHECK_STR(view.argv[1], "a word");
    CHECK_STR(view.by, "me");
    CHECK_INT(view.pid, 7);
    CHECK_INT(view.stdout_bytes, 4);
    check_counts(1);
    CHECK(all_wiped());
    left_free(&left);
    down();
}

TEST(an_end_whose_start_is_stored_outlives_every_process)
{
    char sandbox[ID_SIZE], id[ID_SIZE];
    uint32_t number;

    up(true);
    struct box *box = made();
    struct box_exec *exec = started(box, &number);
    remember(exec, sandbox, id);
    hold_writer();
    end_with(number, 9, 0);
    CHECK(box_exec_ended(exec));
    struct left left = look();
    free_writer();
    live_on(&left);
    exec = found(sandbox, id);
    CHECK(exec != NULL && exec->state == EXEC_EXITED && exec->end.code == 9);
    struct counts counts = counted();
    CHECK(counts.rows == 1 && counts.exited == 1 && counts.began == 1 && counts.ended == 1);
    left_free(&left);
    down();
}

static int forget_rows(struct db *db, void *ctx, struct err *err)
{
    autoquery struct query *q = db_query(db, "DELETE FROM exec");

    (void)ctx;
    return query_run(q, err);
}

TEST(a_place_whose_command_is_stored_never_comes_back)
{
    char sandbox[ID_SIZE], id[ID_SIZE];
    struct caller caller;
    uint32_t number;
    struct err err;

    up(true);
    boxes->hold_ms = 60000;
    struct box *box = made();
    hold_writer();
    remember(awaited(box, &caller, NULL, &number), sandbox, id);
    end_with(number, 0, 0); /* it said nothing: no file tells that it was forgotten */
    struct left left = look();
    free_writer();
    check_counts(1);
    down(); /* killed after the commit, before the place was wiped */
    file_write(left.to[2], left.data[2], left.len[2]);
    begin_again();
    CHECK(found(sandbox, id) != NULL);
    CHECK(all_wiped());
    down();
    up(false);
    CHECK_OK(test_write(forget_rows, NULL, &err), &err); /* others took its row's place */
    down();
    begin_again();
    CHECK(found(sandbox, id) == NULL);
    struct counts counts = counted();
    CHECK(counts.rows == 0 && counts.began == 1 && counts.ended == 1 && counts.audits == 1);
    left_free(&left);
    down();
}

TEST(a_place_that_says_something_else_means_nothing)
{
    char sandbox[ID_SIZE], id[ID_SIZE];
    struct caller caller;
    uint32_t number;

    for (int way = 0; way < 4; way++) {
        up(true);
        boxes->hold_ms = 60000;
        struct box *box = made();
        hold_writer();
        struct box_exec *exec = awaited(box, &caller, NULL, &number);
        remember(exec, sandbox, id);
        say_output(number, INIT_OUT, 0, "said");
        end_with(number, 3, 4);
        struct left left = look();
        autofree char *name = xprintf("%s.out", id);
        autofree char *out = spool_path(name);
        free_writer();
        switch (way) { /* one byte of its words, its length, its output; and nothing */
        case 0:
            left.data[2][500] ^= 1;
            break;
        case 1:
            left.len[2] = 300;
            break;
        case 2:
            CHECK(unlink(out) == 0);
            break;
        default:
            break;
        }
        live_on(&left);
        CHECK((found(sandbox, id) != NULL) == (way == 3));
        CHECK_INT(counted().rows, way == 3);
        left_free(&left);
        down();
    }
}

TEST(what_is_too_long_for_a_place_waits_for_the_store)
{
    static char arg[END_PLACE_SIZE];
    struct caller caller;
    uint32_t number;

    up(true);
    boxes->hold_ms = 60000;
    struct box *box = made();
    hold_writer();
    memset(arg, 'x', 100);
    struct box_exec *exec = awaited(box, &caller, arg, &number);
    size_t rest = exec->note.max - exec->note.len;
    end_with(number, 0, 0);
    for (int more = 0; more < 2; more++) {
        memset(arg, 'x', 100 + rest + (size_t)more);
        exec = awaited(box, &caller, arg, &number);
        CHECK_INT(exec->note.len, more ? 0 : exec->note.max);
        end_with(number, 0, 0);
        CHECK_INT(caller.done, !more);
        CHECK_INT(box_exec_ended(exec), !more);
    }
    free_writer();
    CHECK(caller.done == 1 && box_exec_ended(exec));
    down();
}

TEST(when_all_places_are_taken_one_waits_for_the_store)
{
    struct caller caller;
    uint32_t number;

    up(true);
    boxes->hold_ms = 60000;
    struct box *box = made();
    hold_writer();
    for (int i = 0; i <= ENDS_MAX; i++) {
        struct box_exec *exec = awaited(box, &caller, NULL, &number);

        say_exited(number, 0, 0, 0);
        turn(1);
        CHECK_INT(caller.done, i < ENDS_MAX);
        CHECK_INT(box_exec_ended(exec), i < ENDS_MAX);
    }
    free_writer();
    CHECK_INT(caller.done, 1);
    check_counts(ENDS_MAX + 1);
    CHECK(all_wiped());
    down();
}

TEST(what_was_told_is_stored_when_the_disk_has_room_again)
{
    struct caller caller;
    uint32_t number;

    fault_install();
    up(true);
    boxes->hold_ms = 60000;
    struct box *box = made();
    fault.full = true;
    struct box_exec *exec = awaited(box, &caller, NULL, &number);
    end_with(number, 5, 0);
    settle();
    CHECK(caller.done == 1 && !caller.failed && box_exec_ended(exec));
    CHECK_INT(counted().rows, 0);
    fault.full = false;
    for (int i = 0; i < 100 && !exec->end_stored; i++)
        turn(20);
    CHECK(exec->end_stored && exec->state == EXEC_EXITED);
    check_counts(1);
    down();
}
