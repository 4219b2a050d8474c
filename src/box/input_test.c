/*
 * input: what comes with a wish is with the sandbox's init before anybody is told of a start, and
 * no byte is lost or doubled whoever is killed, as long as the writer says where its bytes begin.
 */
#include "base/hash.h"
#include "base/test.h"
#include "box/box_rig.h"

/* The frames of input that were sent, in order; true when the last was the end. */
static bool drained(uint32_t number, struct buf *out)
{
    static char frame[70000];
    struct init_head head;
    ssize_t got;
    bool end = false;

    while ((got = recv(init_end, frame, sizeof(frame), MSG_DONTWAIT)) > 0) {
        memcpy(&head, frame, sizeof(head));
        if (head.type != INIT_STDIN || head.exec != number)
            continue;
        CHECK(!end);
        end = head.len == 0;
        buf_append(out, frame + sizeof(head), head.len);
    }
    return end;
}

static int wish(struct box *box, struct exec_spec spec, struct caller *caller, struct err *err)
{
    const char *argv[] = { "cat", NULL };

    spec.argv = argv;
    *caller = caller_new();
    return box_exec(box, &spec, &caller->op, err);
}

static bool opened(uint32_t *number)
{
    struct init_exec head;

    CHECK(heard(INIT_EXEC, number, (char *)&head, sizeof(head)));
    return head.flags & INIT_STDIN_OPEN;
}

static void say_started(uint32_t number)
{
    say(INIT_STARTED, number, &(struct init_started){ .pid = 7 }, sizeof(struct init_started),
        NULL);
    settle();
}

TEST(input_that_comes_with_the_wish_is_sent_behind_it_and_ends)
{
    autobuf struct buf got = { 0 };
    struct caller caller;
    struct box_input more = { 0 };
    struct err err = { 0 };
    uint32_t number;

    up(true);
    struct box *box = made();
    CHECK_OK(wish(box, (struct exec_spec){ .stdin = "one\n" }, &caller, &err), &err);
    CHECK(opened(&number));
    CHECK(drained(number, &got) && str_is(buf_view(&got), "one\n"));
    say_started(number);
    CHECK(caller.done == 1 && !caller.failed);
    CHECK(!caller.op.exec->spec.stdin); /* not kept */
    CHECK(box_input_begin(caller.op.exec, &more, &err) < 0);

    buf_clear(&got);
    CHECK_OK(wish(box, (struct exec_spec){ .stdin_base64 = "AAH/" }, &caller, &err), &err);
    CHECK(opened(&number));
    CHECK(drained(number, &got) && str_eq(buf_view(&got), (struct str){ "\0\1\377", 3 }));

    /* Without an end where more may follow, and on a terminal. */
    buf_clear(&got);
    CHECK_OK(wish(box, (struct exec_spec){ .stdin = "a", .stdin_open = true }, &caller, &err),
             &err);
    CHECK(opened(&number) && !drained(number, &got) && got.len == 1);
    say_started(number);
    CHECK_OK(box_input_begin(caller.op.exec, &more, &err), &err);
    box_input_end(&more);
    CHECK_OK(wish(box, (struct exec_spec){ .stdin = "b", .tty = true }, &caller, &err), &err);
    CHECK(heard(INIT_EXEC, &number, NULL, 0));
    CHECK(!drained(number, &got) && got.len == 2);

    /* None is none. */
    CHECK_OK(wish(box, (struct exec_spec){ 0 }, &caller, &err), &err);
    CHECK(!opened(&number) && !drained(number, &got) && got.len == 2);
    down();
}

TEST(input_that_is_no_base64_or_said_twice_is_refused)
{
    struct caller caller;
    struct err err = { 0 };

    up(true);
    struct box *box = made();
    CHECK(wish(box, (struct exec_spec){ .stdin_base64 = "a b" }, &caller, &err) < 0);
    CHECK_STR(err.field, "stdin_base64");
    CHECK(wish(box, (struct exec_spec){ .stdin = "", .stdin_base64 = "" }, &caller, &err) < 0);
    CHECK_STR(err.field, "stdin_base64");
    CHECK(!box_exec_next(box, NULL) && !heard(INIT_EXEC, NULL, NULL, 0));
    down();
}

/* A kill between the two would leave a command that waits for the rest for ever. */
TEST(a_start_is_told_when_nothing_of_its_input_is_here_any_more)
{
    autofree char *text = xmalloc(EXEC_STDIN_INLINE_MAX + 1);
    autobuf struct buf got = { 0 };
    struct caller caller;
    struct err err = { 0 };
    int small = 65536; /* a frame or three */

    memset(text, 'x', EXEC_STDIN_INLINE_MAX);
    text[EXEC_STDIN_INLINE_MAX] = 0;
    up(true);
    struct box *box = made();
    CHECK(setsockopt(box->link.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
    CHECK_OK(wish(box, (struct exec_spec){ .stdin = text }, &caller, &err), &err);
    struct box_exec *exec = caller.op.exec;
    uint32_t number = exec->number;
    CHECK(!list_empty(&box->frames));
    say_started(number);
    CHECK(exec->state == EXEC_RUNNING && !caller.done && exec->held);

    bool end = false;
    for (int i = 0; i < 200 && !end; i++) {
        end = drained(number, &got);
        turn(1);
    }
    CHECK(end && got.len == EXEC_STDIN_INLINE_MAX);
    settle();
    CHECK(caller.done == 1 && !caller.failed && !exec->held);
    down();
}

/* One that closed its input at once is told of all the same. */
TEST(a_start_is_told_when_nothing_reads_its_input)
{
    autofree char *text = xmalloc(EXEC_STDIN_INLINE_MAX + 1);
    struct init_error refused = { .error = EPIPE, .type = INIT_STDIN };
    struct caller caller;
    struct err err = { 0 };
    int small = 65536; /* a frame or three */

    memset(text, 'x', EXEC_STDIN_INLINE_MAX);
    text[EXEC_STDIN_INLINE_MAX] = 0;
    up(true);
    struct box *box = made();
    CHECK(setsockopt(box->link.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
    CHECK_OK(wish(box, (struct exec_spec){ .stdin = text }, &caller, &err), &err);
    say_started(caller.op.exec->number);
    CHECK(!caller.done);
    say(INIT_ERROR, caller.op.exec->number, &refused, sizeof(refused), NULL);
    settle();
    CHECK(caller.done == 1 && !caller.failed);
    down();
}

/* ---- positions ---- */

static unsigned char byte_at(uint64_t position)
{
    return (unsigned char)(position * 31 + position / 251);
}

static void roomy(struct box_input *input)
{
    (void)input;
}

static void connected(uint32_t number, uint64_t taken)
{
    struct init_listed row = { .exec = number, .running = 1, .taken = taken };

    say(INIT_READY, 0, &(struct init_ready){ .version = INIT_VERSION, .execs = 1 },
        sizeof(struct init_ready), NULL);
    say(INIT_LISTED, 0, &row, sizeof(row), NULL);
    turn(5);
}

/* We are killed; the command's init has so much of its input. */
static struct box_exec *restarted(const char *box, uint32_t number, uint64_t taken)
{
    again(box);
    answer_with(&asked[1], 0, true);
    turn(5);
    struct box_exec *exec = box_exec_next(boxes_next(boxes, reach_all("default"), NULL), NULL);
    CHECK(exec && exec->number == number);
    if (taken != UINT64_MAX)
        connected(number, taken);
    return exec;
}

static struct box_exec *reader(const char *stdin_, char box_id[ID_SIZE], uint32_t *number)
{
    struct caller caller;
    struct err err = { 0 };

    up(true);
    struct box *box = made();
    snprintf(box_id, ID_SIZE, "%s", box->id);
    CHECK_OK(wish(box, (struct exec_spec){ .stdin = stdin_, .stdin_open = true }, &caller, &err),
             &err);
    CHECK(opened(number));
    say_started(*number);
    CHECK(caller.done == 1 && !caller.failed);
    return caller.op.exec;
}

TEST(input_goes_on_at_its_position_after_a_restart)
{
    struct box_input input = { .room = roomy, .at = -1 };
    autobuf struct buf got = { 0 };
    char id[ID_SIZE];
    struct err err = { 0 };
    uint32_t number;

    struct box_exec *exec = reader("ab", id, &number);
    CHECK(box_input_position(exec) == 2); /* what came with the wish counts */
    CHECK_OK(box_input_begin(exec, &input, &err), &err);
    CHECK(box_input_put(&input, STR("cdef")) == 4);
    CHECK(box_input_position(exec) == 6);
    box_input_end(&input);

    /* Its init had taken "abcd" when we were killed: the same bytes again. */
    exec = restarted(id, number, 4);
    CHECK(box_input_position(exec) == 4);
    input = (struct box_input){ .room = roomy, .at = 2 };
    CHECK_OK(box_input_begin(exec, &input, &err), &err);
    CHECK(box_input_put(&input, STR("c")) == 1 && box_input_put(&input, STR("def")) == 3);
    CHECK(!drained(number, &got) && str_is(buf_view(&got), "ef"));
    CHECK(box_input_position(exec) == 6 && !box_input_idle(&input));
    say(INIT_STDIN_ROOM, number, &(struct init_room){ .taken = 5 }, sizeof(struct init_room), NULL);
    turn(5);
    CHECK(!box_input_idle(&input)); /* not all that was sent */
    say(INIT_STDIN_ROOM, number, &(struct init_room){ .taken = 6 }, sizeof(struct init_room), NULL);
    turn(5);
    CHECK(box_input_idle(&input));
    box_input_end(&input);

    /* Behind its position there would be a gap; and while it is somebody's turn, come again. */
    input = (struct box_input){ .room = roomy, .at = 7 };
    CHECK(box_input_begin(exec, &input, &err) < 0 && err.code == ERR_CONFLICT);
    CHECK(strstr(err.msg, "is at 6") && !input.exec && !exec->input);
    input.at = 6;
    CHECK_OK(box_input_begin(exec, &input, &err), &err);
    struct box_input other = { .room = roomy, .at = -1 };
    CHECK(box_input_begin(exec, &other, &err) < 0 && err.code == ERR_CONFLICT);
    other.at = 6;
    CHECK(box_input_begin(exec, &other, &err) < 0 && err.code == ERR_UNAVAILABLE);
    box_input_end(&input);
    down();
}

/* It is asked first how far it is: nothing is sent, skipped or answered before. */
TEST(input_waits_until_its_init_has_said_how_far_it_is)
{
    struct box_input input = { .room = roomy, .at = 1 };
    autobuf struct buf got = { 0 };
    char id[ID_SIZE];
    struct err err = { 0 };
    uint32_t number;

    (void)reader("ab", id, &number);
    struct box_exec *exec = restarted(id, number, UINT64_MAX);
    CHECK_OK(box_input_begin(exec, &input, &err), &err);
    CHECK(box_input_put(&input, STR("bc")) == 0 && !box_input_idle(&input));
    (void)exec_typed(exec, STR("x")); /* keys wait, too */
    CHECK(!drained(number, &got) && got.len == 0);
    connected(number, 2);
    CHECK(box_input_position(exec) == 3);
    CHECK(!drained(number, &got) && str_is(buf_view(&got), "x"));
    CHECK_OK(box_input_place(&input, &err), &err);
    CHECK(box_input_put(&input, STR("bc")) == 2); /* the key has the place of the second */
    CHECK(box_input_position(exec) == 3);
    box_input_end(&input);

    exec = restarted(id, number, UINT64_MAX);
    input = (struct box_input){ .room = roomy, .at = 9 };
    CHECK_OK(box_input_begin(exec, &input, &err), &err);
    connected(number, UINT64_MAX); /* a lie: only a number */
    CHECK(box_input_position(exec) <= INT64_MAX / 2 + 1);
    CHECK_OK(box_input_place(&input, &err), &err);
    box_input_end(&input);
    again(id);
    exec =
        box_exec_next(boxes_next(boxes, reach_all("default"), NULL), NULL); /* not even connected */
    input = (struct box_input){ .room = roomy, .at = 9 };
    CHECK_OK(box_input_begin(exec, &input, &err), &err);
    answer_with(&asked[1], 0, true);
    turn(5);
    connected(number, 8);
    CHECK(box_input_place(&input, &err) < 0 && strstr(err.msg, "is at 8"));
    box_input_end(&input);
    down();
}

/* With what is in it. */
static void broken(struct box *box, uint32_t number, uint64_t taken)
{
    int pair[2];

    close(init_end);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    init_end = pair[0];
    link_open(box, pair[1]);
    connected(number, taken);
}

TEST(input_that_a_broken_connection_lost_is_sent_again)
{
    struct box_input input = { .room = roomy, .at = -1 };
    autobuf struct buf got = { 0 };
    char id[ID_SIZE];
    struct err err = { 0 };
    uint32_t number;

    struct box_exec *exec = reader(NULL, id, &number);
    CHECK_OK(box_input_begin(exec, &input, &err), &err);
    CHECK(box_input_put(&input, STR("abc")) == 3);
    broken(exec->box, number, 0);
    CHECK(!drained(number, &got) && str_is(buf_view(&got), "abc"));
    broken(exec->box, number, 3); /* it was taken, and that could not be said */
    buf_clear(&got);
    CHECK(!drained(number, &got) && got.len == 0 && box_input_idle(&input));
    CHECK(box_input_put(&input, STR("de")) == 2);
    CHECK(!drained(number, &got) && str_is(buf_view(&got), "de"));
    say_exited(number, 0, 0, 0);
    settle();
    CHECK(input.over && box_input_position(exec) == 5); /* as it will be answered */
    down();
}

/*
 * A writer, an init that takes frames or not, connections that break with what is in them, writers
 * that leave and come back, and kills of ours, against the plainest model: a count of bytes.
 */
static struct {
    uint64_t taken;  /* by the init; every byte is compared */
    uint64_t told;   /* to the writer, by an answer */
    uint64_t cursor; /* the writer's next byte */
    unsigned skipped;
} walk;

static void walk_take(uint32_t number, unsigned most)
{
    static char frame[70000];
    struct init_head head;

    while (most-- && recv(init_end, frame, sizeof(frame), MSG_DONTWAIT) > 0) {
        memcpy(&head, frame, sizeof(head));
        if (head.type != INIT_STDIN || head.exec != number)
            continue;
        for (size_t i = 0; i < head.len; i++)
            CHECK_INT((unsigned char)frame[sizeof(head) + i], byte_at(walk.taken + i));
        walk.taken += head.len;
    }
}

static void walk_put(struct box_input *input)
{
    static char data[50000];
    size_t len = 1 + test_rand(sizeof(data) - 1);

    for (size_t i = 0; i < len; i++)
        data[i] = (char)byte_at(walk.cursor + i);
    walk.cursor += box_input_put(input, (struct str){ data, len });
    if (box_input_idle(input))
        walk.told = walk.cursor;
}

/* The writer has lost its connection, or its server: it says its bytes again from the last answer.
 */
static void walk_back(struct box_exec *exec, struct box_input *input)
{
    struct err err = { 0 };

    box_input_end(input);
    walk.cursor = walk.told;
    *input = (struct box_input){ .room = roomy, .at = (int64_t)walk.told };
    CHECK_OK(box_input_begin(exec, input, &err), &err);
    walk.skipped += input->skip > 0;
}

TEST(input_is_neither_lost_nor_doubled)
{
    struct box_input input = { .room = roomy, .at = -1 };
    char id[ID_SIZE];
    struct err err = { 0 };
    uint32_t number;
    unsigned kills = 0;

    struct box_exec *exec = reader(NULL, id, &number);
    CHECK_OK(box_input_begin(exec, &input, &err), &err);
    for (int step = 0; step < 1500; step++) {
        unsigned what = test_rand(100);
        struct init_room room = { .taken = walk.taken };

        if (what < 40)
            walk_put(&input);
        else if (what < 70)
            walk_take(number, 1 + test_rand(3));
        else if (what < 92)
            say(INIT_STDIN_ROOM, number, &room, sizeof(room), NULL);
        else if (what < 95)
            broken(exec->box, number, walk.taken);
        else if (what < 99)
            walk_back(exec, &input);
        else if (kills++ < 12) {
            box_input_end(&input);
            exec = restarted(id, number, walk.taken);
            walk_back(exec, &input);
        }
        turn(1);
        if (box_input_idle(&input))
            walk.told = walk.cursor;
    }
    for (int i = 0; i < 100 && !box_input_idle(&input); i++) {
        walk_take(number, 100);
        say(INIT_STDIN_ROOM, number, &(struct init_room){ .taken = walk.taken },
            sizeof(struct init_room), NULL);
        turn(1);
    }
    CHECK(box_input_idle(&input) && walk.taken == box_input_position(exec));
    CHECK(walk.taken > 100000 && walk.skipped && kills);
    box_input_end(&input);
    down();
}
