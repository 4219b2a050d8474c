/*
 * Sandboxes that fall asleep when nobody uses them, and who wakes them.
 */
#include "box/life_rig.h"

static struct box *idle_one(const char *action, int64_t after_ms)
{
    struct sandbox_spec spec = on_disk;
    struct idle_policy idle = { .after_ms = after_ms, .action = action };

    spec.idle = &idle;
    return create_one(&spec);
}

static void check_sleeps_and_wakes(const char *action, const char *asleep)
{
    struct box_op *one = call(), *two = call();
    struct err err;

    model_up();
    struct box *box = idle_one(action, 60000);
    box->used_ms -= 60000;
    box_touch(box);
    box->idle.fn(&box->idle);
    model_run();
    CHECK_STR(state_of(box), "running"); /* it was used meanwhile */
    box->spec.idle->after_ms = 150;
    box_timers_set(box);
    turn(150);
    model_run();
    CHECK_STR(state_of(box), asleep);
    CHECK(box->asleep);
    model_again();
    check_whole();
    box = only();
    CHECK(box->asleep);
    CHECK_INT(box_wake(box, one, &err), 0);
    CHECK_INT(box_wake(box, two, &err), 0);
    model_run();
    CHECK(went_well(one) && went_well(two));
    CHECK_STR(state_of(box), "running");
    CHECK(!box->asleep);
    CHECK_INT(box_wake(box, call(), &err), 1);
    check_whole();
    down();
}

TEST(an_idle_sandbox_sleeps_and_is_woken)
{
    check_sleeps_and_wakes("pause", "paused");
    check_sleeps_and_wakes("stop", "stopped");
}

TEST(an_idle_sandbox_may_be_deleted)
{
    model_up();
    CHECK(idle_one("delete", 50) != NULL);
    turn(100);
    model_run();
    CHECK(only() == NULL);
    CHECK_INT(model_count_disks(), 0);
    down();
}

TEST(a_command_keeps_it_awake)
{
    uint32_t number;

    model_up();
    struct box *box = idle_one("pause", 100);
    init_end = model_box(box->id)->init;
    (void)started(box, &number);
    turn(250);
    model_run();
    CHECK_STR(state_of(box), "running");
    say_exited(number, 0, 0, 0);
    turn(60);
    model_run();
    CHECK_STR(state_of(box), "running");
    turn(150);
    model_run();
    CHECK_STR(state_of(box), "paused");
    init_end = -1;
    down();
}

TEST(who_comes_while_it_is_woken_waits_too)
{
    struct box_op *one = call(), *two = call();
    struct err err;

    model_up();
    struct box *box = idle_one("pause", 100);
    turn(150);
    model_run();
    CHECK_STR(state_of(box), "paused");
    CHECK_INT(box_wake(box, one, &err), 0);
    model_answer(&asked[model_seen++]); /* it runs, and that is being stored */
    CHECK(box->busy && box->state == SANDBOX_RUNNING);
    CHECK_INT(box_wake(box, two, &err), 0);
    model_run();
    CHECK(went_well(one) && went_well(two));
    down();
}

TEST(who_comes_while_it_falls_asleep_wakes_it_at_once)
{
    struct box_op *op = call();
    struct err err;

    model_up();
    struct box *box = idle_one("stop", 50);
    turn(100); /* the question is on its way */
    CHECK(box->busy && box->asleep);
    CHECK_INT(box_wake(box, op, &err), 0);
    model_run();
    CHECK(went_well(op));
    CHECK_STR(state_of(box), "running");
    check_whole();
    down();
}

/* Its connection broke while it slept: who comes before there is a new one is not forgotten. */
TEST(who_comes_while_it_is_connected_again_wakes_it)
{
    struct box_op *op = call();
    struct err err;

    model_up();
    struct box *box = idle_one("pause", 50);
    turn(100);
    model_run();
    CHECK_STR(state_of(box), "paused");
    link_close(box);
    box_reopen(box);
    CHECK_INT(box_wake(box, op, &err), 0);
    model_run();
    CHECK(went_well(op));
    CHECK_STR(state_of(box), "running");
    check_whole();
    down();
}

TEST(one_that_somebody_stopped_is_not_woken)
{
    struct box_op *op = call();
    struct err err;

    model_up();
    struct box *box = idle_one("stop", 5000);
    CHECK_OK(box_stop(box, op, &err), &err);
    model_run();
    CHECK(!box->asleep);
    CHECK_INT(box_wake(box, call(), &err), 1); /* and what follows says that it is stopped */
    CHECK_STR(state_of(box), "stopped");
    down();
}

TEST(stopping_what_is_in_memory_is_no_idle_action)
{
    struct idle_policy idle = { .after_ms = 5000, .action = "stop" };
    struct sandbox_spec spec = { .storage = "memory", .idle = &idle };
    struct err err = { 0 };

    model_up();
    CHECK(boxes_create(boxes, &spec, call(), &err) < 0);
    CHECK_STR(err.field, "idle.action");
    down();
}
