/* pool: warm sandboxes against the model of a warden, whose inits run what they are asked to. */
#include "box/model_rig.h"

static struct caller callers[8];
static unsigned caller_count;

static struct box_op *call(void)
{
    struct caller *caller = &callers[caller_count++ % ARRAY_LEN(callers)];

    *caller = caller_new();
    return &caller->op;
}

static bool went_well(struct box_op *op)
{
    struct caller *caller = container_of(op, struct caller, op);

    return caller->done == 1 && !caller->failed;
}

static char how[8]; /* "warm", "cold": what the answer of the newest creation said */

static void note_how(struct box_op *op)
{
    struct sandbox_view view;

    box_view(op->box, &view);
    snprintf(how, sizeof(how), "%s", view.start ? view.start : "?");
}

static struct box *create_one(const struct sandbox_spec *spec)
{
    struct box_op *op = call();
    struct err err;

    op->prepare = note_how;
    CHECK_OK(boxes_create(boxes, spec, op, &err), &err);
    model_run();
    return went_well(op) ? op->box : NULL;
}

static struct pool_view first_pool(void)
{
    struct pool_view view = { 0 };

    if (pool_next(boxes, NULL))
        pool_view(pool_next(boxes, NULL), &view);
    return view;
}

/* What waits in a pool: no sandbox yet, so boxes_next does not show it. */
static struct box *first_warm(void)
{
    list_each (pos, &boxes->all) {
        struct box *box = list_entry(pos, struct box, node);

        if (!box->tenant[0])
            return box;
    }
    return NULL;
}

static void pool_up(unsigned size)
{
    rig_pool = size;
    model_fresh();
    model_inits = true;
    up(true);
    load_and_start();
    model_run();
    CHECK(is_started);
}

static void pool_down(void)
{
    down();
    rig_pool = 0;
}

static const struct sandbox_spec in_memory = { .storage = "memory" };

TEST(a_pool_fills_itself_and_each_has_run_a_command)
{
    pool_up(2);
    struct pool_view view = first_pool();
    CHECK_STR(view.name, "default");
    CHECK_INT(view.ready, 2);
    CHECK_INT(model_count_boxes(), 2);
    CHECK_INT(model_ran, 2);
    CHECK(boxes_next(boxes, reach_all("default"), NULL) == NULL); /* nobody's */
    CHECK(boxes_next(boxes, reach_all(NULL), NULL) == NULL);
    CHECK(first_warm() != NULL && boxes->count == 0);
    pool_down();
}

/* However far it has come: nothing of ours goes on running behind a server that has stopped. */
TEST(a_stop_while_one_is_being_made_leaves_none_behind)
{
    for (unsigned answers = 0; answers < 12; answers++) {
        rig_pool = 2;
        model_fresh();
        model_inits = true;
        up(true);
        load_and_start();
        for (unsigned i = 0; i < answers && model_seen < asked_count; i++) {
            model_answer(&asked[model_seen++]);
            turn(10);
        }
        boxes_drain(boxes);
        model_run();
        CHECK_INT(model_count_boxes(), 0);
        pool_down();
    }
}

TEST(a_pool_that_is_removed_while_one_is_being_made_leaves_none_behind)
{
    for (unsigned answers = 0; answers < 12; answers++) {
        rig_pool = 2;
        model_fresh();
        model_inits = true;
        up(true);
        load_and_start();
        for (unsigned i = 0; i < answers && model_seen < asked_count; i++) {
            model_answer(&asked[model_seen++]);
            turn(10);
        }
        pool_set(boxes, "default", &(struct pool_wish){ .user = "agent", .storage = "memory" });
        for (int i = 0; i < 4; i++) { /* its timers */
            turn(10);
            model_run();
        }
        CHECK_INT(model_count_boxes(), 0);
        CHECK(list_empty(&boxes->pools));
        pool_down();
    }
}

static int store_pool(struct db *db, void *ctx, struct err *err)
{
    return pool_row_set(db, "default", ctx, err);
}

/* The default pool with sandboxes in memory, as `atoll pool set default` would have made it. */
static void pool_up_in_memory(unsigned size)
{
    struct pool_wish wish = { .size = size, .user = "agent", .storage = "memory" };
    struct err err = { 0 };

    pool_up(0);
    CHECK_OK(test_write(store_pool, &wish, &err), &err);
    pool_set(boxes, "default", &wish);
    turn(10);
    model_run();
}

TEST(a_creation_that_fits_takes_a_warm_one_and_binds_its_wishes)
{
    struct field_pair labels[] = { { "a", "b" }, { 0 } };
    struct sandbox_spec spec = in_memory;
    char id[ID_SIZE];

    pool_up_in_memory(2);
    model_questions = 0;
    struct box *box = create_one(&in_memory);
    CHECK(box != NULL);
    CHECK_STR(how, "warm");
    CHECK(model_box(box->id) && model_box(box->id)->spec.memory == 1 << 30);
    CHECK_INT(first_pool().ready, 2); /* filled up again */
    CHECK_INT(first_pool().taken, 1);
    spec.memory = 64 << 20;
    spec.pids = 55;
    spec.labels = labels;
    spec.name = "mine";
    box = create_one(&spec);
    CHECK_STR(how, "warm");
    CHECK_INT(model_box(box->id)->spec.memory, 64 << 20);
    CHECK_INT(model_box(box->id)->spec.pids, 55);
    CHECK_INT(model_box(box->id)->spec.disk, 32 << 20);
    CHECK_STR(box->spec.labels[0].key, "a");
    snprintf(id, sizeof(id), "%s", box->id);
    CHECK_INT(boxes->count, 2);
    /* It is a sandbox like any other: it can be used, and it is found after a restart. */
    uint32_t number;
    model_inits = false;
    init_end = model_box(box->id)->init;
    (void)started(box, &number);
    CHECK(number > 1);
    init_end = -1;
    model_inits = true;
    model_again();
    box = boxes_next(boxes, reach_all("default"), NULL);
    CHECK(boxes_next(boxes, reach_all("default"), box) != NULL);
    CHECK_INT(boxes->count, 2);
    CHECK_INT(model_count_boxes(), 4); /* the warm ones of before are gone, two new ones there */
    pool_down();
}

TEST(what_does_not_fit_is_made_cold)
{
    struct sandbox_spec spec = in_memory;

    pool_up_in_memory(1);
    spec.user = "root";
    CHECK(create_one(&spec) != NULL);
    CHECK_STR(how, "cold");
    spec = in_memory;
    spec.nofile = 4096;
    CHECK(create_one(&spec) != NULL);
    CHECK_STR(how, "cold");
    spec = (struct sandbox_spec){ .storage = "disk" };
    CHECK(create_one(&spec) != NULL);
    CHECK_STR(how, "cold");
    CHECK_INT(first_pool().ready, 1);
    pool_down();
}

TEST(the_default_pool_serves_a_default_request)
{
    const struct sandbox_spec by_default = { 0 };

    pool_up(1);
    CHECK_STR(first_pool().storage, "disk");
    CHECK(create_one(&by_default) != NULL);
    CHECK_STR(how, "warm");
    CHECK(create_one(&in_memory) != NULL);
    CHECK_STR(how, "cold");
    pool_down();
}

TEST(the_limit_of_sandboxes_does_not_count_warm_ones)
{
    struct err err = { 0 };

    pool_up_in_memory(2);
    for (int i = 0; i < 3; i++)
        CHECK(create_one(&in_memory) != NULL);
    CHECK(boxes_create(boxes, &in_memory, call(), &err) < 0);
    CHECK_INT(err.code, ERR_QUOTA);
    CHECK_INT(first_pool().ready, 2);
    pool_down();
}

TEST(a_pool_on_disk_gives_its_disk_along)
{
    struct sandbox_spec spec = { .storage = "disk", .disk = 20 << 20 };
    struct pool_wish wish = { .size = 1, .storage = "disk" };
    struct box_op *op;
    struct err err;

    pool_up(0);
    CHECK_OK(pool_check(boxes, "default", "disks", &wish, &err), &err);
    pool_set(boxes, "disks", &wish);
    turn(10);
    model_run();
    CHECK_INT(first_pool().ready, 1);
    struct box *box = create_one(&spec);
    CHECK_STR(how, "warm");
    CHECK(box->disk && model_disk(box->disk)->bytes == 20 << 20);
    uint64_t disk = box->disk;
    model_again();
    box = boxes_next(boxes, reach_all("default"), NULL);
    CHECK(box->disk == disk && disk_by_number(boxes, disk)->bytes == 20 << 20);
    CHECK_STR(disk_by_number(boxes, disk)->sandbox, box->id);
    CHECK_OK(box_stop(box, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op));
    CHECK_OK(box_start(box, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op));
    pool_down();
}

TEST(a_warm_one_that_is_dead_is_replaced_or_made_anew)
{
    struct sandbox_spec spec = in_memory;

    pool_up_in_memory(1);
    struct box *warm = first_warm();
    struct wire_msg died = { .verb = WIRE_BOX_DIED, .died = { .code = -1, .signal = 9 } };
    memcpy(died.died.name.id, warm->id, strlen(warm->id));
    model_box_end(model_box(warm->id));
    boxes_heard(boxes, &died, NULL, 0);
    model_run();
    CHECK_INT(first_pool().ready, 1);
    CHECK_INT(model_count_boxes(), 1);
    /* One that died unnoticed: the creation is a cold one, and succeeds. */
    warm = first_warm();
    *model_box(warm->id) = (struct model_box){ .init = -1 };
    spec.pids = 44;
    struct box *box = create_one(&spec);
    CHECK(box != NULL);
    CHECK_STR(how, "cold");
    CHECK_INT(model_box(box->id)->spec.pids, 44);
    pool_down();
}

TEST(making_that_fails_is_tried_again_and_said)
{
    rig_pool = 1;
    model_fresh();
    model_inits = true;
    up(true);
    load_and_start();
    model_at = 3; /* two lists, then the first creation */
    model_how = MODEL_REFUSES;
    model_errno = ENOMEM;
    model_run();
    CHECK_INT(first_pool().ready, 0);
    CHECK(first_pool().error != NULL);
    turn(600);
    model_run();
    CHECK_INT(first_pool().ready, 1);
    CHECK(first_pool().error == NULL);
    pool_down();
}

TEST(settings_are_kept_and_checked)
{
    struct pool_wish none = { .size = 0, .user = "agent", .storage = "memory" };
    struct pool_wish wish = { .size = 1, .image = "nowhere" };
    struct err err = { 0 };

    pool_up(2);
    CHECK(pool_check(boxes, "default", "x", &wish, &err) < 0);
    CHECK_STR(err.field, "image");
    wish.image = NULL;
    CHECK(pool_check(boxes, "default", "No", &wish, &err) < 0);
    CHECK_STR(err.field, "name");
    for (int i = 1; i < POOLS_MAX; i++) {
        char name[16];

        snprintf(name, sizeof(name), "p%d", i);
        CHECK_OK(pool_check(boxes, "default", name, &wish, &err), &err);
        pool_set(boxes, name, &(struct pool_wish){ .size = 1, .user = "root", .storage = "disk" });
    }
    CHECK(pool_check(boxes, "default", "one-more", &wish, &err) < 0);
    CHECK_INT(err.code, ERR_RATE);
    for (int i = 1; i < POOLS_MAX; i++) {
        char name[16];

        snprintf(name, sizeof(name), "p%d", i);
        pool_set(boxes, name, &none);
    }
    /* Smaller, and then none at all: also after a restart, whatever the setting says. */
    pool_set(boxes, "default",
             &(struct pool_wish){ .size = 1, .user = "agent", .storage = "memory" });
    turn(10);
    model_run();
    turn(10);
    model_run();
    CHECK_INT(model_count_boxes(), 1);
    CHECK_OK(test_write(store_pool, &none, &err), &err);
    pool_set(boxes, "default", &none);
    model_run();
    CHECK_INT(model_count_boxes(), 0);
    model_again();
    CHECK_INT(model_count_boxes(), 0);
    CHECK(pool_next(boxes, NULL) == NULL);
    pool_down();
}
