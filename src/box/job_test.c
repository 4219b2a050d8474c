/*
 * job: file operations against an init that is played. Bytes are bounded both ways, what breaks the
 * protocol ends the sandbox, and whatever becomes of an operation its caller hears of it once.
 */
#include "box/job.h"

#include "box/box_rig.h"

struct asker {
    struct box_job job;
    int done, rooms;
    bool failed;
    struct err err;
    char text[1024];
    size_t len;
};

static void asker_data(struct box_job *job, struct str data)
{
    struct asker *asker = container_of(job, struct asker, job);

    if (asker->len + data.n <= sizeof(asker->text))
        memcpy(asker->text + asker->len, data.p, data.n);
    asker->len += data.n;
}

static void asker_room(struct box_job *job)
{
    container_of(job, struct asker, job)->rooms++;
}

static void asker_done(struct box_job *job, const struct err *err)
{
    struct asker *asker = container_of(job, struct asker, job);

    asker->done++;
    asker->failed = err != NULL;
    if (err)
        asker->err = *err;
}

static void asker_init(struct asker *asker)
{
    *asker =
        (struct asker){ .job = { .data = asker_data, .room = asker_room, .done = asker_done } };
}

static const char *const stat_args[] = { "stat", "f", "0", NULL };

static uint32_t begin(struct box *box, struct asker *asker, bool input)
{
    struct init_exec head;
    uint32_t number;
    struct err err;

    asker_init(asker);
    CHECK_OK(box_job_start(box, &asker->job,
                           &(struct box_job_spec){ .args = stat_args, .input = input }, &err),
             &err);
    CHECK(heard(INIT_EXEC, &number, (char *)&head, sizeof(head)));
    CHECK(head.flags & INIT_BUILTIN);
    CHECK(number >= JOB_NUMBERS);
    say(INIT_STARTED, number, &(struct init_started){ .pid = 7 }, sizeof(struct init_started),
        NULL);
    turn(5);
    return number;
}

static bool condemned(void)
{
    return asked_count && asked[asked_count - 1].verb == WIRE_BOX_DESTROY;
}

TEST(an_operation_gives_its_bytes_and_its_end)
{
    struct asker asker;
    struct init_ack ack;

    up(true);
    struct box *box = made();
    uint32_t number = begin(box, &asker, false);
    say_output(number, INIT_OUT, 0, "hello ");
    say_output(number, INIT_OUT, 0, "hello "); /* twice, after a broken connection */
    say_output(number, INIT_OUT, 6, "world");
    turn(10);
    CHECK(heard(INIT_ACK, NULL, (char *)&ack, sizeof(ack)));
    CHECK_INT(ack.position[INIT_OUT], 11);
    CHECK(asker.len == 11 && memcmp(asker.text, "hello world", 11) == 0);
    say_exited(number, 0, 11, 0);
    turn(10);
    CHECK(asker.done == 1 && !asker.failed);
    CHECK(heard(INIT_FORGET, NULL, NULL, 0));
    CHECK(box_exec_next(box, NULL) == NULL); /* it was no command */
    down();
}

static void fault(struct asker *asker, int error, uint32_t why, const char *path, uint32_t path_len)
{
    struct init_output head = { .stream = INIT_ERR };
    struct init_fault told = { INIT_FAULT_MAGIC, error, why, path_len };
    char fixed[sizeof(head) + sizeof(told)];
    struct box *box = made();
    uint32_t number = begin(box, asker, false);

    memcpy(fixed, &head, sizeof(head));
    memcpy(fixed + sizeof(head), &told, sizeof(told));
    say(INIT_OUTPUT, number, fixed, sizeof(fixed), path);
    say_exited(number, INIT_BUILTIN_FAILED, 0, sizeof(told) + strlen(path));
    turn(10);
    CHECK(asker->done == 1 && asker->failed);
}

TEST(what_went_wrong_becomes_an_error_of_the_api)
{
    static const struct {
        int error;
        uint32_t why;
        enum err_code code;
    } cases[] = {
        { ENOENT, TREE_SYSTEM, ERR_NOT_FOUND }, { EACCES, TREE_SYSTEM, ERR_FORBIDDEN },
        { EISDIR, TREE_KIND, ERR_CONFLICT },    { EINVAL, TREE_KIND, ERR_INVALID },
        { EDQUOT, TREE_SYSTEM, ERR_NO_SPACE },  { EBADMSG, TREE_ARCHIVE, ERR_INVALID },
        { EXDEV, TREE_OUTSIDE, ERR_INVALID },   { EXDEV, TREE_SYSTEM, ERR_CONFLICT },
        { E2BIG, TREE_LIMIT, ERR_LIMIT },       { 9999, TREE_SYSTEM, ERR_INTERNAL },
        { ENOENT, TREE_WHYS, ERR_UNAVAILABLE }, { -5, TREE_SYSTEM, ERR_INTERNAL },
    };
    struct asker asker;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        up(true);
        fault(&asker, cases[i].error, cases[i].why, "the/path", 8);
        CHECK_INT(asker.err.code, cases[i].code);
        down();
    }
    up(true);
    fault(&asker, ENOENT, TREE_SYSTEM, "the/path", 7); /* a length that lies */
    CHECK_INT(asker.err.code, ERR_UNAVAILABLE);
    down();
}

static void fill_ring(uint32_t number, uint64_t from)
{
    static char chunk[32769];

    memset(chunk, 'x', sizeof(chunk) - 1);
    for (uint64_t at = from; at < from + INIT_RING_SIZE; at += 32768) {
        say_output(number, INIT_OUT, at, chunk);
        turn(5);
    }
}

/* Output that nobody may read yet is bounded, and an init that sends more is none of ours. */
TEST(a_paused_operation_is_not_acknowledged_and_may_not_go_on_for_ever)
{
    struct asker asker;

    up(true);
    uint32_t number = begin(made(), &asker, false);
    box_job_pause(&asker.job);
    fill_ring(number, 0);
    CHECK_INT(asker.len, INIT_RING_SIZE);
    CHECK(!heard(INIT_ACK, NULL, NULL, 0));
    CHECK(!condemned());
    box_job_resume(&asker.job);
    CHECK(heard(INIT_ACK, NULL, NULL, 0));
    box_job_pause(&asker.job);
    fill_ring(number, INIT_RING_SIZE);
    CHECK(!condemned());
    say_output(number, INIT_OUT, (uint64_t)2 * INIT_RING_SIZE, "x");
    turn(10);
    CHECK(condemned());
    down();
    CHECK_INT(asker.done, 1);
}

TEST(gaps_ends_and_room_that_cannot_be_end_the_sandbox)
{
    for (int kind = 0; kind < 5; kind++) {
        struct init_room room = { .taken = 1 };
        struct asker asker;

        up(true);
        uint32_t number = begin(made(), &asker, true);
        if (kind == 0)
            say_output(number, INIT_OUT, 1, "gap");
        else if (kind == 1)
            say_output(number, 2, 0, "no such stream");
        else if (kind == 2)
            say_output(number, INIT_OUT, UINT64_MAX - 1, "far");
        else if (kind == 3)
            say(INIT_STDIN_ROOM, number, &room, sizeof(room), NULL);
        if (kind == 4) {
            say_output(number, INIT_OUT, 0, "four");
            turn(5);
            say_exited(number, 0, 3, 0);
        }
        turn(10);
        CHECK(condemned());
        down();
        CHECK_INT(asker.done, 1);
        CHECK(asker.failed);
    }
}

TEST(input_waits_for_what_was_taken)
{
    static char data[2 * INIT_STDIN_QUEUE + 1];
    struct init_room room = { 0 };
    struct asker asker;
    uint64_t sent = 0;
    size_t len;

    up(true);
    uint32_t number = begin(made(), &asker, true);
    len = box_job_put(&asker.job, (struct str){ data, sizeof(data) });
    CHECK(len < sizeof(data));
    while (heard(INIT_STDIN, NULL, NULL, 0))
        sent++;
    CHECK(sent > 1 && sent * 61440 <= INIT_STDIN_QUEUE);
    CHECK(asker.job.in_sent - asker.job.in_taken <= INIT_STDIN_QUEUE);
    room.taken = asker.job.in_sent;
    say(INIT_STDIN_ROOM, number, &room, sizeof(room), NULL);
    turn(10);
    CHECK_INT(asker.rooms, 1);
    CHECK(heard(INIT_STDIN, NULL, NULL, 0));
    box_job_eof(&asker.job);
    CHECK_INT(box_job_put(&asker.job, STR("late")), 0);
    say(INIT_ERROR, number, &(struct init_error){ EPIPE, INIT_STDIN }, sizeof(struct init_error),
        NULL);
    turn(10);
    CHECK(!condemned() && !asker.done); /* its end will tell */
    down();
    CHECK(asker.done == 1 && asker.failed);
}

TEST(little_input_waits_for_what_went_before_to_be_taken)
{
    struct init_room room = { .taken = 1 };
    struct asker asker;

    up(true);
    uint32_t number = begin(made(), &asker, true);
    CHECK_INT(box_job_put(&asker.job, STR("a")), 1);
    CHECK(heard(INIT_STDIN, NULL, NULL, 0)); /* nothing was on its way */
    CHECK_INT(box_job_put(&asker.job, STR("b")), 1);
    CHECK_INT(box_job_put(&asker.job, STR("c")), 1);
    CHECK(!heard(INIT_STDIN, NULL, NULL, 0));
    say(INIT_STDIN_ROOM, number, &room, sizeof(room), NULL);
    turn(10);
    CHECK(heard(INIT_STDIN, NULL, NULL, 0) && asker.job.in_sent == 3);
    CHECK_INT(box_job_put(&asker.job, STR("d")), 1);
    CHECK(!heard(INIT_STDIN, NULL, NULL, 0));
    box_job_eof(&asker.job); /* waits for nobody */
    CHECK(heard(INIT_STDIN, NULL, NULL, 0) && asker.job.in_sent == 4);
    CHECK(heard(INIT_STDIN, NULL, NULL, 0) && !asker.job.in_open);
    down();
    CHECK(asker.done == 1 && asker.failed);
}

/* A sandbox that takes no input can still be told to do something, and all of it arrives in the
 * end. */
TEST(input_that_nobody_takes_leaves_room_for_orders)
{
    static struct asker askers[BOX_JOBS_MAX - 1];
    static char data[INIT_STDIN_QUEUE];
    const struct box_job_spec with_input = { .args = stat_args, .input = true };
    size_t wanted = 0, got = 0;
    struct init_head head;
    struct asker another;
    struct err err;

    up(true);
    struct box *box = made();
    for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
        asker_init(&askers[i]);
        CHECK_OK(box_job_start(box, &askers[i].job, &with_input, &err), &err);
        wanted += box_job_put(&askers[i].job, (struct str){ data, 200000 });
        box_job_eof(&askers[i].job);
    }
    CHECK(wanted > BOX_IN_MAX && box->in_waits);
    CHECK(box->frames_size > BOX_IN_MAX / 2 && box->frames_size <= BOX_IN_MAX);
    asker_init(&another);
    CHECK_OK(box_job_start(box, &another.job, &(struct box_job_spec){ .args = stat_args }, &err),
             &err);
    for (ssize_t len; (len = recv(init_end, data, sizeof(data), MSG_DONTWAIT)) > 0; turn(0)) {
        memcpy(&head, data, sizeof(head));
        got += head.type == INIT_STDIN ? head.len : 0;
    }
    CHECK_INT(got, wanted);
    down();
}

/* Dropped ones are killed; what they still say is acknowledged, so that they can end. */
TEST(a_dropped_operation_is_killed_and_forgotten)
{
    struct init_signal signal;
    struct init_ack ack;
    struct asker asker;
    uint32_t who;

    up(true);
    uint32_t number = begin(made(), &asker, false);
    box_job_drop(&asker.job);
    box_job_drop(&asker.job);
    CHECK(heard(INIT_SIGNAL, &who, (char *)&signal, sizeof(signal)));
    CHECK(who == number && signal.number == 9);
    say_output(number, INIT_OUT, 0, "late");
    say(INIT_STDIN_ROOM, number, &(struct init_room){ 0 }, sizeof(struct init_room), NULL);
    turn(10);
    CHECK(heard(INIT_ACK, &who, (char *)&ack, sizeof(ack)));
    CHECK(who == number && ack.position[INIT_OUT] == 4);
    say_exited(number, -1, 4, 0);
    turn(10);
    CHECK(heard(INIT_FORGET, &who, NULL, 0));
    CHECK_INT(who, number);
    CHECK(!asker.done && !asker.len && !condemned());
    down();
}

/* Whoever ends a sandbox ends what is done in it: a conflict, not a failure of the sandbox. */
TEST(an_operation_whose_sandbox_is_deleted_says_so)
{
    for (int killed_first = 0; killed_first < 2; killed_first++) {
        struct caller caller = caller_new();
        struct asker asker;
        struct err err;

        up(true);
        struct box *box = made();
        uint32_t number = begin(box, &asker, false);
        CHECK_OK(box_delete(box, &caller.op, &err), &err);
        CHECK(box_delete(box, &caller.op, &err) < 0 && err.reason == REASON_DELETING);
        if (killed_first) { /* its init outlives it, and tells */
            say_exited(number, -9, 0, 0);
            turn(10);
        }
        CHECK_INT(asker.done, killed_first);
        answer_with(&asked[asked_count - 1], 0, false);
        settle();
        CHECK(asker.done == 1 && asker.failed && caller.done == 1 && !caller.failed);
        CHECK_INT(asker.err.code, ERR_CONFLICT);
        CHECK(strstr(asker.err.msg, "is being deleted"));
        CHECK_INT(asker.err.reason, REASON_DELETING);
        down();
    }
}

TEST(an_operation_that_is_killed_inside_is_a_failure)
{
    struct asker asker;

    up(true);
    uint32_t number = begin(made(), &asker, false);
    say_exited(number, -9, 0, 0);
    turn(10);
    CHECK(asker.done == 1 && asker.failed);
    CHECK_INT(asker.err.code, ERR_UNAVAILABLE);
    down();
}

/* To ask again would be no use: the sandbox is what it is from now on. */
TEST(an_operation_whose_sandbox_ends_by_itself_is_a_conflict)
{
    struct asker asker;

    up(true);
    struct box *box = made();
    struct wire_msg died = { .verb = WIRE_BOX_DIED, .died = { .code = -1, .signal = 9 } };
    memcpy(died.died.name.id, box->id, strlen(box->id));
    begin(box, &asker, false);
    boxes_heard(boxes, &died, NULL, 0);
    settle();
    CHECK(asker.done == 1 && asker.failed);
    CHECK_INT(asker.err.code, ERR_CONFLICT);
    down();
}

/* What an earlier life of this process left running is killed with all it may have started. */
TEST(a_stranger_is_killed)
{
    struct init_signal signal;
    uint32_t who, number = JOB_NUMBERS;

    up(true);
    struct box *box = made();
    while (job_dropped(box, number))
        number++;
    say_output(number, INIT_OUT, 0, "who am I");
    turn(10);
    CHECK(heard(INIT_SIGNAL, &who, (char *)&signal, sizeof(signal)));
    CHECK(who == number && signal.number == 9 && signal.tree == 1);
    CHECK(heard(INIT_ACK, &who, NULL, 0));
    down();
}

TEST(operations_of_one_sandbox_are_bounded)
{
    static struct asker askers[BOX_JOBS_MAX + 1];
    struct err err = { 0 };

    up(true);
    struct box *box = made();
    for (size_t i = 0; i < BOX_JOBS_MAX; i++)
        begin(box, &askers[i], false);
    asker_init(&askers[BOX_JOBS_MAX]);
    struct box_job_spec spec = { .args = stat_args };
    CHECK(box_job_start(box, &askers[BOX_JOBS_MAX].job, &spec, &err) < 0);
    CHECK_INT(err.code, ERR_RATE);
    box_job_drop(&askers[0].job);
    CHECK_OK(box_job_start(box, &askers[BOX_JOBS_MAX].job, &spec, &err), &err);
    down();
    for (size_t i = 1; i <= BOX_JOBS_MAX; i++)
        CHECK_INT(askers[i].done, 1);
}

/* Connections to ports have a limit of their own: neither keeps the other from starting. */
TEST(connections_are_bounded_apart_from_file_operations)
{
    static struct asker askers[BOX_CONNS_MAX + 3];
    struct box_job_spec spec = { .args = stat_args };
    struct err err = { 0 };

    up(true);
    struct box *box = made();
    for (size_t i = 0; i < ARRAY_LEN(askers); i++) {
        asker_init(&askers[i]);
        askers[i].job.conn = i <= BOX_CONNS_MAX;
    }
    for (size_t i = 0; i < BOX_CONNS_MAX; i++)
        CHECK_OK(box_job_start(box, &askers[i].job, &spec, &err), &err);
    CHECK(box_job_start(box, &askers[BOX_CONNS_MAX].job, &spec, &err) < 0);
    CHECK_INT(err.code, ERR_RATE);
    CHECK_OK(box_job_start(box, &askers[BOX_CONNS_MAX + 1].job, &spec, &err), &err);
    box_job_drop(&askers[0].job);
    CHECK_OK(box_job_start(box, &askers[BOX_CONNS_MAX].job, &spec, &err), &err);
    down();
}

TEST(a_broken_connection_is_taken_up_where_it_was)
{
    struct init_attach attach;
    struct asker asker;
    uint32_t who;

    up(true);
    uint32_t number = begin(made(), &asker, false);
    say_output(number, INIT_OUT, 0, "one");
    turn(10);
    close(init_end);
    init_end = -1;
    turn(700); /* the next tick opens it again */
    CHECK_INT(asked[asked_count - 1].verb, WIRE_BOX_OPEN);
    answer_with(&asked[asked_count - 1], 0, true);
    say(INIT_READY, 0, &(struct init_ready){ .version = INIT_VERSION }, sizeof(struct init_ready),
        NULL);
    turn(10);
    CHECK(heard(INIT_ATTACH, &who, (char *)&attach, sizeof(attach)));
    CHECK(who == number && attach.position[INIT_OUT] == 3);
    say_output(number, INIT_OUT, 0, "onetwo");
    say_exited(number, 0, 6, 0);
    turn(10);
    CHECK(asker.done == 1 && !asker.failed && asker.len == 6);
    CHECK(memcmp(asker.text, "onetwo", 6) == 0);
    down();
}
