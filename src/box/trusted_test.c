/*
 * What a sandbox trusts is put into it whenever it comes: while it is made, connected, copied or
 * changed, it waits for the end of that.
 */
#include <semaphore.h>

#include "box/life_rig.h"

static const struct str authority = STR("-----BEGIN CERTIFICATE-----\n");

static void tell(struct box *box)
{
    box_trust_expect(box, true);
    box_trust(box, authority, 0x12345678);
    CHECK(!box->trust.putting && !box->trust.in); /* it is busy */
}

static void with_inits(void)
{
    model_up();
    model_inits = true;
}

/* Nothing is stored until it is let go. */
static int hold(struct db *db, void *ctx, struct err *err)
{
    (void)db, (void)err;
    while (sem_wait(ctx) < 0)
        CHECK(errno == EINTR);
    return 0;
}

/* Its box is there, and its row is on the way to the disk. */
TEST(what_comes_while_a_sandbox_is_stored_is_put_in_afterwards)
{
    sem_t let_go;
    struct test_job held = test_job_of(hold, &let_go);
    struct box_op *op = call();
    struct err err;

    held.stop = false;
    CHECK(sem_init(&let_go, 0, 0) == 0);
    with_inits();
    CHECK_OK(boxes_create(boxes, &on_disk, op, &err), &err);
    while (model_seen == asked_count || asked[model_seen].verb != WIRE_BOX_CREATE) {
        if (model_seen < asked_count)
            model_answer(&asked[model_seen++]);
        turn(1);
    }
    store_write(test_store, &held.job);
    model_answer(&asked[model_seen++]);
    turn(5); /* its init says that it is there */
    struct box *box = only();
    CHECK(box && box->busy);
    tell(box);
    CHECK(sem_post(&let_go) == 0);
    model_run();
    CHECK(went_well(op));
    CHECK(box->trust.in);
    down();
    sem_destroy(&let_go);
}

TEST(what_comes_while_it_is_connected_again_is_put_in_afterwards)
{
    with_inits();
    struct box *box = create_one(&on_disk);
    link_close(box);
    box_reopen(box);
    tell(box);
    model_run();
    CHECK(box->trust.in);
    down();
}

TEST(what_comes_while_it_is_copied_or_changed_is_put_in_afterwards)
{
    struct sandbox_patch patch = { .ttl_ms = 60000 };
    struct fork_wish wish = { .name = "two" };
    struct err err;

    for (int i = 0; i < 4; i++) {
        struct box_op *op = call();

        with_inits();
        struct box *box = create_one(&on_disk);
        if (i == 0)
            CHECK_OK(box_snapshot(box, "shot", op, &err), &err);
        else if (i == 1)
            CHECK_OK(box_fork(box, &wish, op, &err), &err);
        else if (i == 2)
            CHECK_OK(box_patch(box, &patch, 1 << PATCH_TTL, op, &err), &err);
        else
            CHECK_OK(box_pause(box, op, &err), &err);
        tell(box);
        model_run();
        CHECK(went_well(op));
        if (i == 3) {
            CHECK_OK(box_resume(box, op = call(), &err), &err);
            model_run();
        }
        CHECK(box->trust.in);
        down();
    }
}
