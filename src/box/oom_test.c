/* oom: what failed for lack of memory is told apart, and nothing else is. */
#include "base/test.h"
#include "box/box_rig.h"

static void say_end(uint32_t number, int code, int signal, bool timed_out)
{
    struct init_exited end = { .code = code, .signal = signal, .timed_out = timed_out };

    say(INIT_EXITED, number, &end, sizeof(end), NULL);
    turn(20);
}

static bool says_oom(const struct box_exec *exec)
{
    struct exec_view view;

    settle();
    CHECK(box_exec_ended(exec));
    box_exec_view(exec, &view);
    return view.oom;
}

TEST(who_failed_while_the_kernel_killed_was_out_of_memory)
{
    uint32_t number, other;

    up(true);
    struct box *box = made();
    struct box_exec *exec = started(box, &number), *beside = started(box, &other);
    say_end(number, -1, 9, false);
    CHECK(!box_exec_ended(exec)); /* not before it is known */
    say_end(number, -1, 9, false);
    unsigned before = asked_count;
    tell_oom(2);
    CHECK_INT(asked_count, before); /* asked once */
    CHECK(says_oom(exec));
    /* It ran at the same time, so it is told the same; a shell says 137 for its child. */
    say_end(other, 137, 0, false);
    tell_oom(2);
    CHECK(says_oom(beside));
    /* One that began afterwards is not blamed for it. */
    exec = started(box, &number);
    say_end(number, 1, 0, false);
    tell_oom(2);
    CHECK(!says_oom(exec));
    down();
}

TEST(it_is_kept_over_a_restart)
{
    uint32_t number;
    struct box *box;
    struct err err;

    up(true);
    struct box_exec *exec = started(made(), &number);
    say_end(number, -1, 9, false);
    tell_oom(1);
    CHECK(says_oom(exec));
    down();
    up(false);
    load_and_start();
    CHECK_OK(boxes_find(boxes, reach_all("default"),
                        boxes_next(boxes, reach_all("default"), NULL)->id, &box, &err),
             &err);
    exec = box_exec_next(box, NULL);
    struct exec_view view;
    box_exec_view(exec, &view);
    CHECK(view.oom && view.signal == 9);
    down();
}

TEST(nobody_is_asked_where_the_reason_is_known)
{
    struct caller caller = caller_new();
    struct err err = { 0 };
    uint32_t number;

    up(true);
    struct box *box = made();
    unsigned before = asked_count;
    struct box_exec *exec = started(box, &number);
    say_end(number, 0, 0, false);
    CHECK(!says_oom(exec));
    exec = started(box, &number);
    say_end(number, -1, 9, true); /* its time was over */
    CHECK(!says_oom(exec));
    exec = started(box, &number);
    CHECK_OK(box_exec_signal(exec, 9, true, &caller.op, &err), &err);
    settle();
    say_end(number, -1, 9, false); /* somebody's wish */
    CHECK(!says_oom(exec));
    CHECK_INT(asked_count, before);
    down();
}

/* Without an answer the end is told all the same; one that comes for nobody is nobody's. */
TEST(a_warden_that_does_not_know_ends_it_too)
{
    uint32_t number;

    up(true);
    struct box *box = made();
    struct box_exec *exec = started(box, &number);
    say_end(number, 1, 0, false);
    struct wire_msg msg = asked[asked_count - 1];
    msg.status = ENOENT;
    boxes_heard(boxes, &msg, NULL, 0);
    CHECK(!says_oom(exec));

    exec = started(box, &number);
    say_end(number, 1, 0, false);
    msg = asked[asked_count - 1];
    msg.status = 0;
    box_lost(box, "it died");
    settle();
    boxes_heard(boxes, &msg, NULL, 0);
    down();
}
