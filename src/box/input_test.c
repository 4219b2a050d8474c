/* input: what comes with a wish is with the sandbox's init before anybody is told of a start. */
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
