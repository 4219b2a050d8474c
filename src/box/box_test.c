/*
 * box: the room against a warden and inits that are played here, over real sockets and a real
 * store. What an init may not do is tried, what a restart must find is found.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "box/box_rig.h"

static const char *read_all(struct box_exec *exec, unsigned stream)
{
    static char text[4096];
    struct err err;
    size_t len = 0;
    ssize_t got;

    while ((got = box_exec_read(exec, stream, len, text + len, sizeof(text) - 1 - len, &err)) > 0)
        len += (size_t)got;
    CHECK(got == 0);
    text[len] = 0;
    return text;
}

/* ---- sandboxes ---- */

TEST(a_creation_that_fails_names_the_step_and_leaves_nothing)
{
    struct caller caller = caller_new();
    struct sandbox_spec spec = { 0 };
    struct err err;

    up(true);
    CHECK_OK(boxes_create(boxes, &spec, &caller.op, &err), &err);
    answer_with(&asked[0], EPERM, false);
    settle();
    CHECK_INT(caller.done, 1);
    CHECK(caller.failed && strstr(caller.err.msg, "seccomp"));
    CHECK(boxes_next(boxes, reach_all("default"), NULL) == NULL);
    down();
}

TEST(the_limit_counts_all_that_are_not_deleted)
{
    struct caller caller = caller_new();
    struct sandbox_spec spec = { 0 };
    struct err err = { 0 };
    struct box *box;

    up(true);
    for (int i = 0; i < 3; i++)
        box = made();
    CHECK(boxes_create(boxes, &spec, &caller.op, &err) < 0);
    CHECK_INT(err.code, ERR_QUOTA);
    CHECK_OK(box_delete(box, &caller.op, &err), &err);
    answer_with(&asked[asked_count - 1], 0, false);
    settle();
    CHECK_INT(caller.done, 1);
    CHECK(!caller.failed);
    made();
    down();
}

TEST(changes_follow_the_table_and_one_comes_after_the_other)
{
    struct caller one = caller_new(), two = caller_new();
    struct err err = { 0 };
    struct sandbox_view view;

    up(true);
    struct box *box = made();
    CHECK(box_resume(box, &one.op, &err) < 0);
    CHECK_OK(box_pause(box, &one.op, &err), &err);
    CHECK(box_pause(box, &two.op, &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    answer_with(&asked[asked_count - 1], 0, false);
    settle();
    box_view(box, &view);
    CHECK_STR(view.state, "paused");
    const char *argv[] = { "true", NULL };
    CHECK(box_exec(box, &(struct exec_spec){ .argv = argv }, &two.op, &err) < 0);
    CHECK(box_stop(box, &two.op, &err) < 0); /* its files are in memory */
    CHECK(strstr(err.msg, "in memory") != NULL);
    CHECK(box_start(box, &two.op, &err) < 0);
    CHECK_OK(box_delete(box, &two.op, &err), &err);
    answer_with(&asked[asked_count - 1], ENOENT, false); /* it was gone already: the same */
    settle();
    CHECK(two.done == 1 && !two.failed);
    CHECK(boxes_next(boxes, reach_all("default"), NULL) == NULL);
    down();
}

TEST(who_asks_about_one_that_ends_is_told_so)
{
    struct caller caller = caller_new();
    struct box_applied applied;
    struct err err = { 0 };

    up(true);
    struct box *box = made();
    CHECK_OK(box_applied(box, &applied, &caller.op, &err), &err);
    answer_with(&asked[asked_count - 1], ESRCH, false);
    settle();
    CHECK(caller.done == 1 && caller.failed);
    CHECK_INT(caller.err.code, ERR_CONFLICT);
    CHECK(strstr(caller.err.msg, "the sandbox has ended") != NULL);
    down();
}

TEST(states_move_only_along_the_table)
{
    for (int from = 0; from < SANDBOX_STATES; from++)
        for (int to = 0; to < SANDBOX_STATES; to++) {
            bool lives = from <= SANDBOX_PAUSED,
                 may = sandbox_may((enum sandbox_state)from, (enum sandbox_state)to);

            if (from == SANDBOX_DELETED || to == SANDBOX_CREATING || from == to)
                CHECK(!may);
            else if (to == SANDBOX_DELETED)
                CHECK(may);
            else if (!lives) /* only a start brings it back, and a loss of its disk ends it */
                CHECK(may ==
                      (to == SANDBOX_RUNNING || (from == SANDBOX_STOPPED && to == SANDBOX_FAILED)));
        }
    CHECK(sandbox_may(SANDBOX_RUNNING, SANDBOX_PAUSED));
    CHECK(sandbox_may(SANDBOX_PAUSED, SANDBOX_RUNNING));
    CHECK(!sandbox_may(SANDBOX_CREATING, SANDBOX_PAUSED));
    CHECK(!exec_may(EXEC_EXITED, EXEC_LOST) && exec_may(EXEC_RUNNING, EXEC_EXITED));
}

/* ---- commands ---- */

TEST(output_is_written_once_whatever_is_said_twice)
{
    struct exec_view view;
    struct init_ack ack;
    uint32_t number;

    up(true);
    struct box *box = made();
    struct box_exec *exec = started(box, &number);
    say_output(number, INIT_OUT, 0, "hello ");
    say_output(number, INIT_OUT, 0, "hello ");   /* again */
    say_output(number, INIT_OUT, 3, "lo world"); /* half again */
    say_output(number, INIT_ERR, 0, "oops");
    settle();
    CHECK(heard(INIT_ACK, NULL, (char *)&ack, sizeof(ack)));
    CHECK(ack.position[0] == 11 && ack.position[1] == 4);
    CHECK_STR(read_all(exec, INIT_OUT), "hello world");
    CHECK_STR(read_all(exec, INIT_ERR), "oops");
    say_exited(number, 5, 11, 4);
    tell_oom(0);
    settle();
    CHECK(box_exec_ended(exec));
    CHECK(heard(INIT_FORGET, NULL, NULL, 0));
    box_exec_view(exec, &view);
    CHECK_INT(view.exit_code, 5);
    down();
}

TEST(an_end_before_all_bytes_asks_for_them)
{
    struct init_attach attach;
    uint32_t number;

    up(true);
    struct box *box = made();
    struct box_exec *exec = started(box, &number);
    say_output(number, INIT_OUT, 0, "abc");
    say_exited(number, 0, 6, 0);
    turn(700);
    CHECK(!box_exec_ended(exec));
    CHECK(heard(INIT_ATTACH, NULL, (char *)&attach, sizeof(attach)));
    CHECK(attach.position[0] == 3);
    say_output(number, INIT_OUT, 3, "def");
    say_exited(number, 0, 6, 0);
    settle();
    CHECK(box_exec_ended(exec));
    CHECK_STR(read_all(exec, INIT_OUT), "abcdef");
    down();
}

/* What no init of ours says; each ends the sandbox. */
static void check_condemned(void (*lie)(uint32_t number))
{
    struct sandbox_view view;
    uint32_t number;

    up(true);
    struct box *box = made();
    struct box_exec *exec = started(box, &number);
    unsigned before = asked_count;
    lie(number);
    settle();
    box_view(box, &view);
    CHECK_STR(view.state, "failed");
    CHECK_INT(asked[before].verb, WIRE_BOX_DESTROY);
    struct exec_view exec_view;
    box_exec_view(exec, &exec_view);
    CHECK_STR(exec_view.state, "lost");
    down();
}

static void lie_gap(uint32_t number)
{
    say_output(number, INIT_OUT, 1, "x");
}

static void lie_stream(uint32_t number)
{
    say_output(number, 2, 0, "x");
}

static void lie_short(uint32_t number)
{
    say_output(number, INIT_OUT, 0, "abc");
    say_exited(number, 0, 2, 0);
}

static void lie_code(uint32_t number)
{
    say_exited(number, 256, 0, 0);
}

static void lie_noise(uint32_t number)
{
    (void)number;
    for (int i = 0; i < 64; i++)
        CHECK(send(init_end, "nonsense", 8, MSG_NOSIGNAL) == 8);
}

TEST(an_init_that_lies_is_destroyed)
{
    check_condemned(lie_gap);
    check_condemned(lie_stream);
    check_condemned(lie_short);
    check_condemned(lie_code);
    check_condemned(lie_noise);
}

TEST(a_command_that_cannot_start_says_why_and_is_nowhere)
{
    struct caller caller = caller_new();
    const char *argv[] = { "nothing", NULL };
    struct exec_spec spec = { .argv = argv };
    struct err err;
    uint32_t number;

    up(true);
    struct box *box = made();
    CHECK_OK(box_exec(box, &spec, &caller.op, &err), &err);
    CHECK(heard(INIT_EXEC, &number, NULL, 0));
    say(INIT_STARTED, number, &(struct init_started){ .error = ENOENT, .step = INIT_STEP_FIND },
        sizeof(struct init_started), NULL);
    settle();
    CHECK_INT(caller.done, 1);
    CHECK(caller.failed && caller.err.code == ERR_UNPROCESSABLE);
    CHECK_STR(caller.err.field, "argv[0]");
    CHECK(box_exec_next(box, NULL) == NULL);
    down();
}

/* The number comes from an init: any is taken, none believed. */
TEST(a_rule_about_files_that_fails_is_named)
{
    static struct file_rule of_box[] = { { "/boxes", "read" } };
    static struct file_rule own[] = { { "/first", "read" }, { "/second", "write" } };
    static const struct {
        uint32_t which;
        int error;
        const char *field, *text;
    } cases[] = {
        { 0, ENOENT, "files", "\"/boxes\"" },
        { 2, ENOENT, "files[1].path", "\"/second\"" },
        { 3, ENOENT, "files", "cannot be kept" },
        { INIT_FILES_MAX, EOPNOTSUPP, "files", "Linux 6.2" },
        { INIT_FILES_MAX + 1, ENOENT, "", "could not be started" },
    };
    const char *argv[] = { "x", NULL };
    struct exec_spec spec = { .argv = argv, .files = { own, 2 } };
    struct err err;
    uint32_t number;

    up(true);
    struct box *box = made();
    box->spec.files = (struct field_list){ of_box, 1 };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct caller caller = caller_new();
        struct init_exec head;
        char body[4096];

        CHECK_OK(box_exec(box, &spec, &caller.op, &err), &err);
        CHECK(heard(INIT_EXEC, &number, body, sizeof(body)));
        memcpy(&head, body, sizeof(head));
        CHECK_INT(head.filec, 3);
        CHECK(memmem(body, sizeof(body), "\0r/boxes\0R/first\0W/second\0/", 27) != NULL);
        say(INIT_STARTED, number,
            &(struct init_started){ .error = cases[i].error,
                                    .step = INIT_STEP_FILES + cases[i].which },
            sizeof(struct init_started), NULL);
        settle();
        CHECK_INT(caller.done, 1);
        CHECK_STR(caller.err.field, cases[i].field);
        CHECK(strstr(caller.err.msg, cases[i].text));
    }
    box->spec.files.count = 0;
    down();
}

TEST(a_warden_that_tells_of_a_death_loses_what_ran)
{
    struct wire_msg msg = { .verb = WIRE_BOX_DIED, .died = { .code = -1, .signal = 9 } };
    struct sandbox_view view;
    uint32_t number;

    up(true);
    struct box *box = made();
    struct box_exec *exec = started(box, &number);
    box_view(box, &view);
    memcpy(msg.died.name.id, view.id, strlen(view.id));
    say_output(number, INIT_OUT, 0, "last words");
    boxes_heard(boxes, &msg, NULL, 0);
    settle();
    CHECK_STR(read_all(exec, INIT_OUT), "last words"); /* what was in the socket still counts */
    box_view(box, &view);
    CHECK_STR(view.state, "failed");
    CHECK(box_exec_ended(exec));
    down();
}

/* ---- short commands ---- */

static int count_execs(struct db *db, void *ctx, struct err *err)
{
    (void)err;
    *(int64_t *)ctx = test_number(db, "SELECT count(*) FROM exec");
    return 0;
}

static int64_t stored_execs(void)
{
    struct err err;
    int64_t rows;

    CHECK_OK(test_read(count_execs, &rows, &err), &err); /* of what is committed */
    return rows;
}

/* A command whose caller waits for its end, that has started. */
static struct box_exec *awaited(struct box *box, struct caller *caller, uint32_t *number)
{
    const char *argv[] = { "true", NULL };
    struct exec_spec spec = { .argv = argv };
    struct err err;

    *caller = caller_new();
    caller->op.till_end = true;
    CHECK_OK(box_exec(box, &spec, &caller->op, &err), &err);
    CHECK(heard(INIT_EXEC, number, NULL, 0));
    say(INIT_STARTED, *number, &(struct init_started){ .pid = 7 }, sizeof(struct init_started),
        NULL);
    turn(1);
    return caller->op.exec;
}

TEST(the_start_of_a_short_command_is_stored_with_its_end)
{
    struct caller caller;
    uint32_t number;

    up(true);
    boxes->hold_ms = 60000;
    struct box *box = made();
    struct box_exec *exec = awaited(box, &caller, &number);
    turn(20);
    CHECK(!caller.done);
    CHECK_INT(stored_execs(), 0);
    say_exited(number, 0, 0, 0);
    settle();
    CHECK(caller.done == 1 && !caller.failed && box_exec_ended(exec));
    CHECK_INT(stored_execs(), 1);
    /* One that goes on is stored soon, and who does not wait for the end is told at once. */
    boxes->hold_ms = EXEC_HOLD_MS;
    exec = awaited(box, &caller, &number);
    for (int i = 0; i < 500 && !caller.done; i++)
        turn(EXEC_HOLD_MS);
    CHECK(caller.done == 1 && !box_exec_ended(exec));
    CHECK_INT(stored_execs(), 2);
    boxes->hold_ms = 60000;
    (void)started(box, &number); /* this one shares its commit with whatever waits */
    CHECK_INT(stored_execs(), 3);
    down();
}

TEST(a_held_start_is_not_forgotten_when_something_ends)
{
    struct wire_msg died = { .verb = WIRE_BOX_DIED, .died = { .code = -1, .signal = 9 } };
    struct caller caller;
    uint32_t number;

    up(true);
    boxes->hold_ms = 60000;
    struct box *box = made();
    struct box_exec *exec = awaited(box, &caller, &number);
    memcpy(died.died.name.id, box->id, strlen(box->id));
    boxes_heard(boxes, &died, NULL, 0);
    settle();
    CHECK(caller.done == 1 && exec->state == EXEC_LOST);
    CHECK_INT(stored_execs(), 1);
    box = made();
    (void)awaited(box, &caller, &number);
    turn(20);
    CHECK(!caller.done);
    down(); /* the server stops: it is told that the command runs */
    CHECK(caller.done == 1 && !caller.failed);
}

/* ---- the oldest makes room ---- */

static bool has_output(const char *id)
{
    char name[SPOOL_NAME_SIZE];

    spool_name(name, id, INIT_OUT);
    return faccessat(boxes->spool_dir, name, F_OK, 0) == 0;
}

/* A row that is there promises output; a kill may come at any instant. */
TEST(output_goes_after_the_row_that_promises_it)
{
    struct caller caller;
    char oldest[ID_SIZE] = "";
    uint32_t number;

    up(true);
    struct box *box = made();
    for (unsigned i = 0; i < EXECS_KEPT_MAX; i++) {
        const struct box_exec *exec = awaited(box, &caller, &number);

        if (!i)
            snprintf(oldest, sizeof(oldest), "%s", exec->id);
        say_output(number, INIT_OUT, 0, "words");
        say_exited(number, 0, 5, 0);
        for (int k = 0; k < 200 && !caller.done; k++)
            turn(1);
        CHECK(caller.done == 1 && !caller.failed);
    }
    settle();
    CHECK_INT(stored_execs(), EXECS_KEPT_MAX);
    CHECK(has_output(oldest));
    boxes->hold_ms = 60000;
    (void)awaited(box, &caller, &number);
    turn(20);
    CHECK_INT(stored_execs(), EXECS_KEPT_MAX);
    CHECK(has_output(oldest));                 /* its row is still there */
    settle();                                  /* whatever waits is stored with this */
    CHECK_INT(stored_execs(), EXECS_KEPT_MAX); /* that of the newest instead */
    CHECK(!has_output(oldest));
    say_exited(number, 0, 0, 0);
    settle();
    CHECK_INT(caller.done, 1);
    down();
}

/* ---- restarts ---- */

TEST(files_that_no_command_has_go_at_a_start)
{
    static const char *const stay[] = { "ex01m7n8x30h9wc7rbxfx2jr41ey.out", "ends", "ex.out",
                                        "exit.me" },
                             *const go[] = { "ex01m7n8x30h9wc7rbxfx2jr41ex.out",
                                             "ex01m7n8x30h9wc7rbxfx2jr41ex.frm" };
    const struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    char id[ID_SIZE], mine[SPOOL_NAME_SIZE];
    uint32_t number;

    up(true);
    struct box *box = made();
    snprintf(id, sizeof(id), "%s", box->id);
    spool_name(mine, started(box, &number)->id, INIT_OUT);
    say_output(number, INIT_OUT, 0, "words");
    settle();
    for (size_t i = 0; i < ARRAY_LEN(stay); i++)
        close(openat(boxes->spool_dir, stay[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    for (size_t i = 0; i < ARRAY_LEN(go); i++) {
        close(openat(boxes->spool_dir, go[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        CHECK(utimensat(boxes->spool_dir, go[i], old, 0) == 0);
    }
    CHECK(utimensat(boxes->spool_dir, mine, old, 0) == 0); /* old, and its command is there */
    for (size_t i = 1; i < ARRAY_LEN(stay); i++)           /* old, and no command's */
        CHECK(utimensat(boxes->spool_dir, stay[i], old, 0) == 0);
    again(id);
    for (size_t i = 0; i < ARRAY_LEN(go); i++)
        CHECK(faccessat(boxes->spool_dir, go[i], F_OK, 0) < 0);
    for (size_t i = 0; i < ARRAY_LEN(stay); i++) {
        CHECK(faccessat(boxes->spool_dir, stay[i], F_OK, 0) == 0);
        if (strcmp(stay[i], "ends") != 0)
            CHECK(unlinkat(boxes->spool_dir, stay[i], 0) == 0);
    }
    CHECK(faccessat(boxes->spool_dir, mine, F_OK, 0) == 0);
    down();
}

TEST(a_number_that_only_an_init_remembers_is_not_used_again)
{
    const char *argv[] = { "true", NULL };
    struct exec_spec spec = { .argv = argv, .stdin = "words" };
    struct caller caller = caller_new();
    struct init_listed rows[] = { { .exec = 0 }, { .exec = 9 } }; /* and one that lies */
    char id[ID_SIZE];
    uint32_t number;
    struct err err;

    up(true);
    snprintf(id, sizeof(id), "%s", made()->id);
    again(id);
    answer_with(&asked[1], 0, true);
    turn(20);
    struct box *box = boxes_next(boxes, reach_all("default"), NULL);
    CHECK_OK(box_exec(box, &spec, &caller.op, &err), &err);
    say(INIT_READY, 0, &(struct init_ready){ .version = INIT_VERSION, .execs = 1 },
        sizeof(struct init_ready), NULL);
    say_exited(0, 0, 0, 0);
    turn(20);
    CHECK(heard(INIT_LIST, NULL, NULL, 0));
    say_exited(9, 0, 0, 0); /* of the life before */
    turn(20);
    CHECK(caller.op.exec->state == EXEC_STARTING && !caller.done);
    say(INIT_LISTED, 0, rows, sizeof(rows), NULL);
    turn(20);
    CHECK(heard(INIT_EXEC, &number, NULL, 0));
    CHECK_INT(number, 10);
    CHECK(heard(INIT_STDIN, &number, NULL, 0));
    CHECK_INT(number, 10);
    say(INIT_STARTED, number, &(struct init_started){ .pid = 7 }, sizeof(struct init_started),
        NULL);
    settle();
    CHECK(caller.done == 1 && !caller.failed);
    down();
}

TEST(a_restart_goes_on_where_the_files_end)
{
    char id[ID_SIZE];
    struct init_attach attach;
    struct sandbox_view view;
    uint32_t number;

    up(true);
    struct box *box = made();
    (void)started(box, &number);
    say_output(number, INIT_OUT, 0, "one ");
    settle();
    box_view(box, &view);
    snprintf(id, sizeof(id), "%s", view.id);
    again(id);
    CHECK(!is_started);
    CHECK_INT(asked[1].verb, WIRE_BOX_OPEN);
    answer_with(&asked[1], 0, true);
    turn(20);
    CHECK(is_started);
    CHECK_INT(asked[asked_count - 1].verb, WIRE_BOX_THAW); /* as its row says, whatever it was */
    struct init_listed row = { .exec = number, .running = 1 };
    say(INIT_READY, 0, &(struct init_ready){ .version = INIT_VERSION, .execs = 1 },
        sizeof(struct init_ready), NULL);
    say_output(number, INIT_OUT, 0, "one two"); /* an init says everything that it holds */
    say(INIT_LISTED, 0, &row, sizeof(row), NULL);
    settle();
    CHECK(heard(INIT_ATTACH, NULL, (char *)&attach, sizeof(attach)));
    CHECK_INT(attach.position[0], 4);
    box = boxes_next(boxes, reach_all("default"), NULL);
    struct box_exec *exec = box_exec_next(box, NULL);
    CHECK_STR(read_all(exec, INIT_OUT), "one two");
    say_exited(number, 0, 7, 0);
    settle();
    CHECK(box_exec_ended(exec));
    again(id);
    answer_with(&asked[1], 0, true);
    turn(20);
    struct exec_view ended;
    box_exec_view(box_exec_next(boxes_next(boxes, reach_all("default"), NULL), NULL), &ended);
    CHECK_STR(ended.state, "exited");
    CHECK_INT(ended.stdout_bytes, 7);
    CHECK_STR(ended.argv[1], "hi");
    down();
}

TEST(a_restart_fails_what_is_gone_and_destroys_what_nobody_knows)
{
    struct sandbox_view view;
    uint32_t number;

    up(true);
    struct box *box = made();
    (void)started(box, &number);
    again("sbstranger");
    CHECK(is_started);
    CHECK_INT(asked[1].verb, WIRE_BOX_DESTROY);
    CHECK_STR(asked[1].name.id, "sbstranger");
    settle();
    box = boxes_next(boxes, reach_all("default"), NULL);
    box_view(box, &view);
    CHECK_STR(view.state, "failed");
    struct exec_view exec;
    box_exec_view(box_exec_next(box, NULL), &exec);
    CHECK_STR(exec.state, "lost");
    down();
}

/* ---- the files ---- */

TEST(a_spool_gives_back_what_a_naive_copy_holds)
{
    struct spool spool = SPOOL_NONE;
    struct err err;
    int dir = open(test_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const uint64_t total = SPOOL_RING + (SPOOL_RING >> 3);
    static unsigned char data[60000], back[70000];
    uint64_t at = 0;

    /* The byte at position p is a function of p. */
    while (at < total) {
        size_t len = 1 + test_rand(sizeof(data));

        for (size_t i = 0; i < len; i++)
            data[i] = (unsigned char)((at + i) * 2654435761u >> 7);
        CHECK_OK(spool_add(&spool, dir, "ring.out", data, len, &err), &err);
        at += len;
        if (test_rand(8) == 0) { /* a restart */
            spool_close(&spool);
            CHECK_OK(spool_load(&spool, dir, "ring.out", &err), &err);
            CHECK(spool.end == at);
        }
        uint64_t begin = spool_begin(&spool), from = begin + test_rand((uint32_t)(at - begin));
        ssize_t got = spool_read(&spool, dir, "ring.out", from, back, sizeof(back), &err);
        CHECK(got > 0);
        for (ssize_t i = 0; i < got; i++)
            CHECK(back[i] == (unsigned char)((from + (uint64_t)i) * 2654435761u >> 7));
    }
    CHECK(spool_begin(&spool) > 0);
    CHECK(spool_read(&spool, dir, "ring.out", spool_begin(&spool) - 1, back, 1, &err) < 0);
    CHECK_INT(err.code, ERR_GONE);
    CHECK(spool_read(&spool, dir, "ring.out", at, back, 1, &err) == 0);
    CHECK(spool_read(&spool, dir, "ring.out", at + 1, back, 1, &err) < 0);
    CHECK_INT(err.code, ERR_RANGE);
    spool_close(&spool);
    close(dir);
}
