/* disk: rows and the model of a warden; whatever is refused or killed, nothing stays half. */
#include "box/model_rig.h"

struct disk_caller {
    struct disk_op op;
    int done;
    struct err err;
};

static void caller_told(struct disk_op *op, const struct err *err)
{
    struct disk_caller *caller = container_of(op, struct disk_caller, op);

    caller->done++;
    caller->err = err ? *err : (struct err){ 0 };
}

static struct disk_caller disk_caller(void)
{
    return (struct disk_caller){ .op = { .done = caller_told, .tenant = "default" } };
}

static const struct disk_want volume = {
    .kind = DISK_VOLUME, .tenant = "default", .by = "me", .name = "data", .bytes = 1 << 20
};

/* Made and ready; NULL when something went wrong on the way. */
static struct disk *make_one(const struct disk_want *want)
{
    static struct disk_caller one, two; /* a killed process takes its time to forget them */
    struct err err;

    one = two = disk_caller();
    CHECK_OK(disk_make(boxes, want, &one.op, &err), &err);
    model_run();
    if (model_dead || one.err.code || !one.done)
        return NULL;
    two.op.event = "volume.created";
    struct disk *disk = one.op.disk;
    disk_ready(disk, &two.op);
    model_run();
    return two.done && !two.err.code ? disk : NULL;
}

TEST(a_disk_is_made_found_resized_and_removed)
{
    struct disk_caller caller = disk_caller();
    struct disk_usage usage;
    struct disk *found;
    struct err err = { 0 };

    model_up();
    struct disk *disk = make_one(&volume);
    CHECK(disk && model_disk(disk->number) && disk->state == DISK_READY);
    CHECK_OK(disk_find(boxes, reach_all("default"), DISK_VOLUME, NULL, "data", &found, &err), &err);
    CHECK(found == disk && strncmp(disk->id, "vo", 2) == 0);
    CHECK_OK(disk_find(boxes, reach_all("default"), DISK_VOLUME, NULL, disk->id, &found, &err),
             &err);
    CHECK(disk_find(boxes, reach_all("other"), DISK_VOLUME, NULL, "data", &found, &err) < 0);
    CHECK(disk_find(boxes, reach_all("default"), DISK_SNAPSHOT, NULL, "data", &found, &err) < 0);
    CHECK_OK(disk_stat(disk, &usage, &caller.op, &err), &err);
    model_run();
    CHECK(caller.done == 1 && usage.used == 4096);
    CHECK(disk_resize(disk, 1, &caller.op, &err) < 0);
    CHECK_OK(disk_resize(disk, 2 << 20, &caller.op, &err), &err);
    model_run();
    CHECK(caller.done == 2 && disk->bytes == 2 << 20);
    CHECK_INT(model_disk(disk->number)->bytes, 2 << 20);
    uint64_t number = disk->number;
    model_again();
    disk = disk_by_number(boxes, number);
    CHECK(disk && disk->bytes == 2 << 20 && disk->state == DISK_READY);
    CHECK_OK(disk_remove(disk, &caller.op, &err), &err);
    CHECK(disk_remove(disk, &caller.op, &err) < 0);
    model_run();
    CHECK_INT(caller.done, 3);
    CHECK(!model_disk(number) && !disk_by_number(boxes, number));
    /* Its number is not given out again, whoever comes next. */
    model_again();
    disk = make_one(&volume);
    CHECK(disk && disk->number > number);
    down();
}

TEST(a_name_is_taken_once_and_a_copy_needs_its_source)
{
    struct disk_caller one = disk_caller(), two = disk_caller();
    struct disk_want want = volume;
    struct err err = { 0 };

    model_up();
    CHECK_OK(disk_make(boxes, &volume, &one.op, &err), &err);
    CHECK_OK(disk_make(boxes, &volume, &two.op, &err), &err); /* the row decides */
    model_run();
    CHECK(one.done == 1 && !one.err.code);
    CHECK(two.done == 1 && two.err.code == ERR_CONFLICT && strstr(two.err.msg, "named data"));
    disk_ready(one.op.disk, &one.op);
    model_run();
    CHECK(disk_make(boxes, &volume, &two.op, &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_STR(err.field, "name");
    want.name = "copy";
    want.from = 4711;
    two = disk_caller();
    CHECK_OK(disk_make(boxes, &want, &two.op, &err), &err);
    model_run();
    CHECK(two.done == 1 && two.err.code == ERR_CONFLICT && strstr(two.err.msg, "gone"));
    want.from = one.op.disk->number;
    struct disk *copy = make_one(&want);
    CHECK(copy && model_disk(copy->number)->from == want.from);
    CHECK_INT(model_count_disks(), 2);
    down();
}

TEST(no_more_than_allowed)
{
    struct disk_caller caller = disk_caller();
    struct err err = { 0 };

    model_up();
    struct disk *disk = make_one(&volume);
    for (int i = 1; i < DISKS_NAMED_MAX; i++) { /* as if they were there */
        struct disk *more = xnew(struct disk);

        *more = *disk;
        more->name = xprintf("n%d", i);
        more->sandbox = xstrdup("");
        more->spec = xstrdup("");
        list_append(&boxes->disks, &more->node);
    }
    struct disk_want want = volume;
    want.name = "one-more";
    CHECK(disk_make(boxes, &want, &caller.op, &err) < 0);
    CHECK_INT(err.code, ERR_RATE);
    struct disk *last = list_entry(boxes->disks.prev, struct disk, node);
    free(last->name);
    free(last->sandbox);
    free(last->spec);
    list_remove(&last->node);
    free(last);
    CHECK(make_one(&want) != NULL);
    down();
}

/*
 * Every question of making and of removing, refused, unheard, unanswered, or the last of a life;
 * the next start is before the room gives up waiting.
 */
TEST(whatever_fails_nothing_is_left)
{
    static const int ways[] = { MODEL_REFUSES, MODEL_KILLED, MODEL_DEAF, MODEL_SILENT };

    for (size_t way = 0; way < ARRAY_LEN(ways); way++)
        for (unsigned at = 1; at <= 2; at++) {
            struct disk_caller caller = disk_caller();
            struct err err;

            model_up();
            model_questions = 0;
            model_at = at;
            model_how = ways[way];
            model_errno = EIO;
            struct disk *disk = make_one(&volume);
            CHECK((disk != NULL) == (at > 1));
            if (disk) {
                CHECK_OK(disk_remove(disk, &caller.op, &err), &err);
                model_run();
                CHECK(caller.done == 1 &&
                      !caller.err.code); /* the row is gone: that is what counts */
            }
            model_at = 0;
            model_again();
            CHECK_INT(model_count_disks(), 0);
            CHECK(disk_next(boxes, reach_all("default"), DISK_VOLUME, NULL, NULL) == NULL);
            CHECK(make_one(&volume) != NULL);
            down();
        }
}

TEST(a_drop_that_is_refused_is_tried_again)
{
    struct disk_caller caller = disk_caller();
    struct err err;

    model_up();
    struct disk *disk = make_one(&volume);
    model_questions = 0;
    model_at = 1;
    model_how = MODEL_REFUSES;
    model_errno = EBUSY;
    CHECK_OK(disk_remove(disk, &caller.op, &err), &err);
    model_run();
    CHECK_INT(model_count_disks(), 1);
    turn(1100);
    model_run();
    CHECK_INT(model_count_disks(), 0);
    down();
}

TEST(a_disk_that_is_gone_is_lost_and_says_so)
{
    struct disk_caller caller = disk_caller();
    struct disk_usage usage;
    struct err err = { 0 };

    model_up();
    struct disk *disk = make_one(&volume);
    *model_disk(disk->number) = (struct model_disk){ 0 };
    model_again();
    CHECK_OK(disk_find(boxes, reach_all("default"), DISK_VOLUME, NULL, "data", &disk, &err), &err);
    CHECK_INT(disk->state, DISK_LOST);
    CHECK(disk_stat(disk, &usage, &caller.op, &err) < 0);
    /* A machine that cannot tell is not one that has lost everything. */
    down();
    model_up();
    CHECK(make_one(&volume) != NULL);
    model_no_disks = true;
    model_again();
    CHECK_OK(disk_find(boxes, reach_all("default"), DISK_VOLUME, NULL, "data", &disk, &err), &err);
    CHECK_INT(disk->state, DISK_READY);
    struct disk_want want = volume;
    want.name = "other";
    CHECK(disk_make(boxes, &want, &caller.op, &err) < 0);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    model_no_disks = false;
    down();
}

static unsigned count_aside(void)
{
    struct disk_aside *one = NULL;
    unsigned count = 0;

    while ((one = disk_aside_next(boxes, one)))
        count++;
    return count;
}

/* They are of another store: this one may be an older copy, and the right one comes back. */
TEST(disks_that_no_row_names_are_kept_aside_page_by_page)
{
    struct disk_caller caller = disk_caller();
    struct err err = { 0 };

    model_up();
    struct disk *disk = make_one(&volume);
    uint64_t number = disk->number;
    for (uint64_t i = 0; i < 7; i++)
        CHECK_INT(model_make_disk(&(struct disk_wish){ .id = 100 + i }), 0);
    model_again();
    CHECK_INT(model_count_disks(), 8);
    CHECK_INT(count_aside(), 7);
    CHECK(disk_by_number(boxes, number)->state == DISK_READY);
    int64_t found_ms = disk_aside_next(boxes, NULL)->found_ms;
    model_again();
    CHECK_INT(count_aside(), 7);
    CHECK_INT(disk_aside_next(boxes, NULL)->found_ms, found_ms);
    /* None of their numbers is given out. */
    struct disk_want other = volume;
    other.name = "other";
    CHECK_INT(make_one(&other)->number, 107);
    /* One goes when somebody says so, once. */
    CHECK(disk_aside_drop(boxes, 99, &caller.op, &err) < 0);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK_OK(disk_aside_drop(boxes, 100, &caller.op, &err), &err);
    CHECK(disk_aside_drop(boxes, 100, &caller.op, &err) < 0);
    model_run();
    CHECK(caller.done == 1 && !caller.err.code);
    CHECK(!model_disk(100) && model_disk(101));
    model_again();
    CHECK_INT(count_aside(), 6);
    CHECK_INT(model_count_disks(), 8);
    down();
}

TEST(disks_aside_go_when_their_time_is_over)
{
    model_up();
    CHECK_INT(model_make_disk(&(struct disk_wish){ .id = 100 }), 0);
    model_again();
    CHECK_INT(count_aside(), 1);
    turn(20);
    rig_aside_keep_ms = 3600000;
    model_again();
    CHECK_INT(count_aside(), 1);
    CHECK_INT(model_count_disks(), 1);
    rig_aside_keep_ms = 10;
    model_again();
    CHECK_INT(count_aside(), 0);
    CHECK_INT(model_count_disks(), 0);
    rig_aside_keep_ms = 0;
    down();
}
