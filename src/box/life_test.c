/*
 * Life: sandboxes on disks against the model of a warden. Every operation is tried with each of its
 * questions refused, and with the process killed at each of them; what the next start then finds
 * must be whole: no box and no disk that no row names, no row that promises what is not there.
 */
#include "box/life_rig.h"

/* ---- the usual ---- */

TEST(stop_keeps_the_disk_and_start_brings_it_back)
{
    struct sandbox_spec spec = on_disk;
    struct box_op *op;
    struct err err;

    spec.memory = 64 << 20;
    spec.disk = 200 << 20; /* more than memory: it is not there */
    model_up();
    struct box *box = create_one(&spec);
    CHECK(box && box->disk);
    uint64_t disk = box->disk;
    CHECK_INT(model_disk(disk)->bytes, 200 << 20);
    CHECK_INT(model_box(box->id)->upper, disk);
    CHECK_OK(box_stop(box, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op) && strcmp(state_of(box), "stopped") == 0);
    check_whole();
    CHECK(box_stop(box, op, &err) < 0);
    model_again();
    check_whole();
    box = only();
    CHECK_STR(state_of(box), "stopped");
    CHECK_OK(box_start(box, op = call(), &err), &err);
    CHECK(box_start(box, call(), &err) < 0);
    model_run();
    CHECK(went_well(op) && box->disk == disk);
    CHECK_STR(state_of(box), "running");
    CHECK_INT(model_box(box->id)->spec.memory, 64 << 20);
    CHECK(box_start(box, call(), &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    model_again();
    check_whole();
    box = only();
    CHECK_OK(box_delete(box, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op));
    CHECK_INT(model_count_disks(), 0);
    check_whole();
    down();
}

TEST(what_died_while_nobody_looked_can_be_started)
{
    struct box_op *op;
    struct err err;

    model_up();
    CHECK(create_one(&on_disk) != NULL);
    CHECK(create_one(&(struct sandbox_spec){ .name = "two", .storage = "memory" }) != NULL);
    for (unsigned i = 0; i < MODEL_MAX; i++) /* a reboot */
        if (model_boxes[i].id[0])
            model_box_end(&model_boxes[i]);
    model_again();
    check_whole();
    struct box *box = only(), *memory = boxes_next(boxes, reach_all("default"), box);
    CHECK_STR(state_of(box), "stopped");
    CHECK(strstr(box->reason, "away") != NULL);
    CHECK_STR(state_of(memory), "failed");
    CHECK(box_start(memory, call(), &err) < 0);
    CHECK(strstr(err.msg, "memory") != NULL);
    CHECK_OK(box_start(box, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op) && !box->reason[0]);
    struct wire_msg died = { .verb = WIRE_BOX_DIED, .died = { .code = -1, .signal = 9 } };
    memcpy(died.died.name.id, box->id, strlen(box->id));
    model_box_end(model_box(box->id));
    boxes_heard(boxes, &died, NULL, 0);
    model_run();
    CHECK_STR(state_of(box), "stopped");
    CHECK(strstr(box->reason, "signal 9") != NULL);
    *model_disk(box->disk) = (struct model_disk){ 0 };
    model_again();
    box = only();
    CHECK_STR(state_of(box), "failed");
    CHECK_STR(box->reason, "its disk is gone");
    CHECK(box_start(box, call(), &err) < 0);
    CHECK(strstr(err.msg, "gone") != NULL);
    CHECK_OK(box_delete(box, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op));
    down();
}

TEST(what_another_release_made_is_ended_and_can_be_started)
{
    struct box_op *op;
    struct err err;

    model_up();
    CHECK(create_one(&on_disk) != NULL);
    CHECK(create_one(&(struct sandbox_spec){ .name = "two", .storage = "memory" }) != NULL);
    model_version = INIT_VERSION - 1;
    model_again();
    check_whole(); /* nothing of them is left with the warden */
    CHECK_INT(model_count_boxes(), 0);
    struct box *box = only(), *memory = boxes_next(boxes, reach_all("default"), box);
    CHECK_STR(state_of(box), "stopped");
    CHECK(strstr(box->reason, "another release") && strstr(box->reason, "start it"));
    CHECK_STR(state_of(memory), "failed");
    CHECK(strstr(memory->reason, "another release") && strstr(memory->reason, "in memory"));
    model_version = INIT_VERSION;
    CHECK_OK(box_start(box, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op) && !box->reason[0]);
    model_again();
    check_whole();
    CHECK_STR(state_of(only()), "running");
    down();
}

/* The first question about it that the warden refuses is asked again. */
TEST(what_another_release_made_is_ended_when_the_warden_can)
{
    model_up();
    CHECK(create_one(&on_disk) != NULL);
    model_version = INIT_VERSION + 1; /* or we are the older one */
    model_again();
    check_whole();
    model_fresh();
    down();

    model_up();
    struct box *box = create_one(&on_disk);
    model_version = INIT_VERSION + 1;
    close(model_box(box->id)->init);
    model_box(box->id)->init = -1;
    model_how = MODEL_REFUSES;
    model_errno = EIO;
    model_questions = 0;
    model_at = 3; /* OPEN, THAW, DESTROY */
    turn(700);
    model_run();
    CHECK_STR(state_of(box), "running");
    CHECK(!box->busy);
    turn(700);
    model_run();
    CHECK_STR(state_of(box), "stopped");
    check_whole();
    down();
}

/* A change that is under way is over before it is ended. */
TEST(another_release_is_noticed_while_something_else_is_done)
{
    struct box_op *op = call();
    struct err err;

    model_up();
    struct box *box = create_one(&on_disk);
    model_version = INIT_VERSION - 1;
    close(model_box(box->id)->init);
    model_box(box->id)->init = -1;
    turn(700);
    model_answer(&asked[model_seen++]); /* it is open, and will say READY */
    CHECK_OK(box_pause(box, op, &err), &err);
    turn(20);
    CHECK(box->foreign);
    CHECK_STR(box->busy, "being paused");
    model_run();
    CHECK(went_well(op));
    turn(700);
    model_run();
    CHECK_STR(state_of(box), "stopped");
    check_whole();
    down();
}

TEST(storage_is_disk_where_the_machine_can)
{
    struct box_op *op = call();
    struct err err = { 0 };

    model_up();
    struct box *box = create_one(&(struct sandbox_spec){ 0 });
    CHECK_STR(box->spec.storage, "disk");
    model_no_disks = true;
    model_again();
    box = create_one(&(struct sandbox_spec){ 0 });
    CHECK_STR(box->spec.storage, "memory");
    CHECK(boxes_create(boxes, &on_disk, op, &err) < 0);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    CHECK_STR(err.field, "storage");
    down();
}

/* ---- every question refused, every question the last ---- */

static struct disk *make_volume(const char *name);

static struct volume_use two_volumes[] = { { "data", "/data", false }, { "data", "/ro", true } };
static const struct sandbox_spec with_volumes = { .name = "one",
                                                  .storage = "disk",
                                                  .volumes = { two_volumes, 2 } };

/* One operation on a sandbox with a disk and two volumes; NULL makes it. */
struct trial {
    const char *name;
    int (*begin)(struct box *box, struct box_op *op, struct err *err);
    bool stopped; /* the sandbox is before */
};

static int begin_create(struct box *box, struct box_op *op, struct err *err)
{
    (void)box;
    return boxes_create(boxes, &with_volumes, op, err);
}

static int begin_snapshot(struct box *box, struct box_op *op, struct err *err)
{
    return box_snapshot(box, "second", op, err);
}

static int begin_fork(struct box *box, struct box_op *op, struct err *err)
{
    return box_fork(box, &(struct fork_wish){ .name = "child" }, op, err);
}

static int begin_rollback(struct box *box, struct box_op *op, struct err *err)
{
    return box_rollback(box, "first", op, err);
}

static int begin_patch(struct box *box, struct box_op *op, struct err *err)
{
    const struct sandbox_patch patch = { .memory = 128 << 20, .disk = 64 << 20 };

    return box_patch(box, &patch, 1 << PATCH_MEMORY | 1 << PATCH_DISK, op, err);
}

static int begin_from_snapshot(struct box *box, struct box_op *op, struct err *err)
{
    (void)box;
    return boxes_create(boxes, &(struct sandbox_spec){ .from_snapshot = "first" }, op, err);
}

static const struct trial trials[] = {
    { "create", begin_create, false },     { "stop", box_stop, false },
    { "start", box_start, true },          { "pause", box_pause, false },
    { "delete", box_delete, false },       { "delete stopped", box_delete, true },
    { "snapshot", begin_snapshot, false }, { "snapshot stopped", begin_snapshot, true },
    { "fork", begin_fork, false },         { "fork stopped", begin_fork, true },
    { "rollback", begin_rollback, false }, { "rollback stopped", begin_rollback, true },
    { "patch", begin_patch, false },       { "from snapshot", begin_from_snapshot, false },
};

/* Ready for a trial: what there is before it. */
static struct box *prepared(const struct trial *trial)
{
    struct box *box = NULL;
    struct box_op *op;
    struct err err;

    model_up();
    CHECK(make_volume("data") != NULL);
    if (trial->begin == begin_create)
        return NULL;
    box = create_one(&with_volumes);
    CHECK(box != NULL);
    CHECK_OK(box_snapshot(box, "first", op = call(), &err), &err);
    model_run();
    CHECK(went_well(op));
    if (trial->stopped) {
        CHECK_OK(box_stop(box, op = call(), &err), &err);
        model_run();
        CHECK(went_well(op));
    }
    return box;
}

/* How many questions a trial takes when nothing goes wrong. */
static unsigned questions_of(const struct trial *trial)
{
    struct box *box = prepared(trial);
    struct box_op *op = call();
    struct err err;

    model_questions = 0;
    CHECK_OK(trial->begin(box, op, &err), &err);
    model_run();
    CHECK(went_well(op));
    unsigned count = model_questions;
    check_whole();
    model_again();
    check_whole();
    down();
    return count;
}

static int refuse_record(struct box_op *op, struct db *db, struct err *err)
{
    (void)op, (void)db;
    return err_set(err, ERR_NO_SPACE, "the disk is full");
}

/* What cannot be stored is said to have failed, and is undone or found again. */
TEST(what_is_not_stored_is_not_promised)
{
    for (size_t t = 0; t < ARRAY_LEN(trials); t++) {
        struct box *box = prepared(&trials[t]);
        struct box_op *op = call();
        struct err err;

        op->record = refuse_record;
        CHECK_OK(trials[t].begin(box, op, &err), &err);
        model_run();
        CHECK_INT(caller_of(op)->done, 1);
        CHECK(caller_of(op)->failed && caller_of(op)->err.code == ERR_NO_SPACE);
        if (trials[t].begin != box_delete) /* of which the row is all that is left */
            check_whole();
        model_again();
        check_whole();
        down();
    }
}

TEST(disks_are_listed_after_the_boxes_that_nobody_knows_are_gone)
{
    struct err err;

    model_up();
    model_questions = 0;
    model_at = 2; /* the disk, then the box: made, and the process is gone */
    model_how = MODEL_KILLED;
    CHECK_OK(boxes_create(boxes, &on_disk, call(), &err), &err);
    model_run();
    CHECK(model_count_boxes() == 1 && model_count_disks() == 1);
    down();
    up(false);
    model_seen = model_at = 0;
    model_dead = false;
    load_and_start();
    CHECK_INT(asked_count, 1);
    model_answer(&asked[0]);
    turn(20);
    CHECK_INT(asked_count, 2);
    CHECK_INT(asked[1].verb, WIRE_BOX_DESTROY); /* and no question about disks before its answer */
    model_answer(&asked[1]);
    CHECK_INT(asked[2].verb, WIRE_DISK_LIST);
    model_seen = 2;
    model_run();
    CHECK(is_started);
    check_whole();
    CHECK_INT(model_count_disks(), 0);
    down();
}

TEST(whatever_fails_or_is_killed_the_next_start_finds_everything_whole)
{
    for (size_t t = 0; t < ARRAY_LEN(trials); t++) {
        unsigned count = questions_of(&trials[t]);

        CHECK(count > 0);
        for (unsigned at = 1; at <= count; at++)
            for (int how = 0; how < 2; how++) {
                struct box *box = prepared(&trials[t]);
                struct box_op *op = call();
                struct err err;

                model_questions = 0;
                model_at = at;
                model_how = how ? MODEL_KILLED : MODEL_REFUSES;
                model_errno = EIO;
                CHECK_OK(trials[t].begin(box, op, &err), &err);
                model_run();
                if (!how && !caller_of(op)->done) { /* something is asked again */
                    turn(300);
                    model_run();
                }
                if (!how) { /* an answer, exactly one, and nothing half */
                    CHECK_INT(caller_of(op)->done, 1);
                    if (caller_of(op)->failed)
                        check_whole();
                }
                model_again();
                check_whole();
                if (!only())
                    CHECK(create_one(&with_volumes) != NULL); /* its name is free */
                down();
            }
    }
}

TEST(a_warden_without_descriptors_is_told_as_that)
{
    const struct sandbox_spec in_memory = { .name = "one", .storage = "memory" };
    struct box_op *op = call();
    struct err err;

    model_up();
    model_never = WIRE_BOX_CREATE;
    model_errno = EMFILE;
    CHECK_OK(boxes_create(boxes, &in_memory, op, &err), &err);
    model_run();
    model_never = 0;
    CHECK(caller_of(op)->failed && caller_of(op)->err.code == ERR_UNAVAILABLE);
    CHECK(strstr(caller_of(op)->err.msg, "LimitNOFILE"));
    down();
}

/* Its row is gone then: it is asked for again, and in the end by whoever deletes it again. */
TEST(a_box_that_does_not_go_is_not_forgotten)
{
    struct box_op *op;
    struct err err;

    model_up();
    struct box *box = create_one(&on_disk);
    model_never = WIRE_BOX_DESTROY;
    model_errno = EBUSY;
    CHECK_OK(box_delete(box, op = call(), &err), &err);
    model_run();
    CHECK_INT(caller_of(op)->done, 0);
    for (int i = 0; i < 20 && !caller_of(op)->done; i++) {
        turn(50);
        model_run();
    }
    CHECK(caller_of(op)->done == 1 && caller_of(op)->failed);
    CHECK(only() == box && !box->busy);
    CHECK_INT(model_count_disks(), 1); /* it may still write to it */
    CHECK_OK(box_delete(box, op = call(), &err), &err);
    model_run();
    model_never = 0;
    turn(150);
    model_run();
    CHECK(went_well(op) && only() == NULL);
    check_whole();

    box = create_one(&on_disk);
    model_never = WIRE_BOX_DESTROY;
    CHECK_OK(box_delete(box, op = call(), &err), &err);
    model_run();
    CHECK_INT(caller_of(op)->done, 0);
    model_never = 0;
    model_again(); /* the server stops meanwhile: said, and done by the next */
    CHECK(caller_of(op)->done == 1 && caller_of(op)->failed);
    CHECK(only() == NULL);
    check_whole();
    down();
}

/* What ran in it is the first to be stored. */
TEST(the_end_of_a_command_is_stored_before_its_sandbox_is_deleted)
{
    struct box_op *op;
    struct err err;
    uint32_t number;

    model_up();
    struct box *box = create_one(&on_disk);
    init_end = model_box(box->id)->init;
    (void)started(box, &number);
    model_never = WIRE_BOX_DESTROY;
    model_errno = EBUSY;
    CHECK_OK(box_delete(box, op = call(), &err), &err);
    model_run();
    model_never = 0;
    CHECK(caller_of(op)->done == 1 && caller_of(op)->failed);
    CHECK_STR(state_of(box), "running"); /* nothing has happened to it */
    check_whole();
    CHECK_OK(box_delete(box, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op) && only() == NULL);
    check_whole();
    down();
}

/* ---- volumes ---- */

struct disk_caller {
    struct disk_op op;
    int done;
    bool failed;
};

static void disk_told(struct disk_op *op, const struct err *err)
{
    struct disk_caller *caller = container_of(op, struct disk_caller, op);

    caller->done++;
    caller->failed = err != NULL;
}

static struct disk *make_volume(const char *name)
{
    static struct disk_caller one, two;
    struct disk_want want = {
        .kind = DISK_VOLUME, .tenant = "default", .by = "me", .name = name, .bytes = 1 << 20
    };
    struct err err;

    one = two = (struct disk_caller){ .op = { .done = disk_told, .tenant = "default" } };
    CHECK_OK(disk_make(boxes, &want, &one.op, &err), &err);
    model_run();
    CHECK(one.done == 1 && !one.failed);
    struct disk *disk = one.op.disk;
    disk_ready(disk, &two.op);
    model_run();
    CHECK(two.done == 1 && !two.failed);
    return disk;
}

TEST(volumes_are_mounted_and_again_at_a_start)
{
    struct box_op *op;
    struct err err = { 0 };

    model_up();
    CHECK(boxes_create(boxes, &with_volumes, call(), &err) < 0);
    CHECK_STR(err.field, "volumes[0].volume");
    struct disk *disk = make_volume("data");
    model_mount_count = 0;
    struct box *box = create_one(&with_volumes);
    CHECK(box != NULL);
    for (int i = 0; i < 2; i++) {
        if (i == 1) {
            CHECK_OK(box_stop(box, op = call(), &err), &err);
            model_run();
            model_again(); /* out of the row */
            box = only();
            model_mount_count = 0;
            CHECK_OK(box_start(box, op = call(), &err), &err);
            model_run();
            CHECK(went_well(op));
        }
        CHECK_INT(model_mount_count, 2);
        CHECK_STR(model_mounts[0].target, "/data");
        CHECK_INT(model_mounts[0].flags, 0);
        CHECK_STR(model_mounts[1].target, "/ro");
        CHECK_INT(model_mounts[1].flags, BOX_MOUNT_READ_ONLY);
        CHECK(model_mounts[0].disk == model_mounts[1].disk && model_mounts[0].disk);
    }
    (void)disk;
    struct volume_use bad[] = { { "data", "/proc/x", false } };
    struct sandbox_spec spec = { .storage = "memory", .volumes = { bad, 1 } };
    CHECK(boxes_create(boxes, &spec, call(), &err) < 0);
    CHECK_STR(err.field, "volumes[0].path");
    bad[0].path = "/a/../b";
    CHECK(boxes_create(boxes, &spec, call(), &err) < 0);
    down();
}

TEST(directories_are_mounted_by_ticket_once_and_not_kept)
{
    struct bind_use binds[] = { { .ticket = "00112233445566778899aabbccddeeff", .path = "/work" } };
    struct sandbox_spec spec = on_disk;
    struct box_op *op;
    struct err err = { 0 };

    model_up();
    spec.binds = (struct field_list){ binds, 1 };
    model_mount_count = 0;
    struct box *box = create_one(&spec);
    CHECK(box && model_mount_count == 1);
    CHECK_INT(model_mounts[0].flags, BOX_MOUNT_TICKET);
    CHECK(model_mounts[0].ticket[1] == 0x11 && model_mounts[0].ticket[15] == 0xff);
    struct bind_use *kept = box->spec.binds.items;
    CHECK_STR(kept[0].ticket, "");
    model_again();
    box = only();
    CHECK_INT(box->spec.binds.count, 1);
    CHECK_OK(box_stop(box, op = call(), &err), &err);
    model_run();
    model_mount_count = 0;
    CHECK_OK(box_start(box, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op) && model_mount_count == 0);
    CHECK_INT(box->spec.binds.count, 0);
    binds[0].ticket = "0011";
    spec.name = "other";
    CHECK(boxes_create(boxes, &spec, call(), &err) < 0);
    CHECK_STR(err.field, "binds[0].ticket");
    down();
}

/* ---- copies ---- */

TEST(a_snapshot_is_a_copy_of_an_instant_and_what_runs_goes_on)
{
    struct sandbox_spec spec = on_disk;
    struct box_op *op, *two;
    struct err err = { 0 };

    spec.user = "root";
    spec.memory = 99 << 20;
    model_up();
    struct box *box = create_one(&spec);
    CHECK_OK(box_snapshot(box, "first", op = call(), &err), &err);
    CHECK(box_snapshot(box, "other", call(), &err) < 0); /* one after the other */
    CHECK(box_fork(box, &(struct fork_wish){ 0 }, call(), &err) < 0);
    model_run();
    CHECK(went_well(op) && op->disk);
    struct disk *snapshot = op->disk;
    CHECK_INT(model_disk(snapshot->number)->from, box->disk);
    CHECK_STR(snapshot->sandbox, box->id);
    CHECK(!model_box(box->id)->frozen && !box->busy);
    CHECK(box_snapshot(box, "first", call(), &err) < 0);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK(box_snapshot(box, "No/good", call(), &err) < 0);
    check_whole();
    /* It outlives its sandbox, and another can begin with it. */
    CHECK_OK(box_delete(box, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op));
    model_again();
    box = create_one(&(struct sandbox_spec){ .from_snapshot = "first", .pids = 33 });
    CHECK(box && model_disk(box->disk)->from);
    CHECK_STR(box->spec.user, "root");
    CHECK(box->spec.memory == 99 << 20 && box->spec.pids == 33);
    CHECK(boxes_create(boxes, &(struct sandbox_spec){ .from_snapshot = "none" }, two = call(),
                       &err) < 0);
    CHECK_STR(err.field, "from_snapshot");
    CHECK(boxes_create(boxes,
                       &(struct sandbox_spec){ .from_snapshot = "first", .storage = "memory" }, two,
                       &err) < 0);
    CHECK_STR(err.field, "storage");
    check_whole();
    down();
}

TEST(copies_of_what_is_in_memory_are_refused)
{
    struct sandbox_spec spec = { .storage = "memory" };
    struct err err = { 0 };

    model_up();
    struct box *box = create_one(&spec);
    CHECK(box_snapshot(box, "first", call(), &err) < 0);
    CHECK(err.code == ERR_CONFLICT && strstr(err.msg, "in memory"));
    CHECK(box_fork(box, &(struct fork_wish){ 0 }, call(), &err) < 0);
    CHECK(err.code == ERR_CONFLICT && strstr(err.msg, "in memory"));
    CHECK(!box->busy);
    down();
}

TEST(a_fork_is_another_sandbox_with_the_same_files)
{
    struct box_op *op;
    struct err err = { 0 };

    model_up();
    CHECK(make_volume("data") != NULL);
    struct box *box = create_one(&with_volumes);
    CHECK(box_fork(box, &(struct fork_wish){ .name = "one" }, call(), &err) < 0);
    CHECK_STR(err.field, "name"); /* it is taken */
    CHECK(!box->busy);
    model_mount_count = 0;
    CHECK_OK(box_fork(box, &(struct fork_wish){ .name = "child" }, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op) && op->box != box);
    CHECK_STR(op->box->spec.name, "child");
    CHECK_INT(model_disk(op->box->disk)->from, box->disk);
    CHECK_INT(model_mount_count, 2);
    CHECK_STR(state_of(box), "running");
    CHECK(!model_box(box->id)->frozen);
    check_whole();
    model_again();
    check_whole();
    down();
}

TEST(a_rollback_ends_what_runs_and_goes_on_with_the_old_files)
{
    struct box_op *op;
    struct err err = { 0 };
    uint32_t number;

    model_up();
    struct box *box = create_one(&on_disk);
    CHECK_OK(box_snapshot(box, "first", op = call(), &err), &err);
    model_run();
    uint64_t before = box->disk, snapshot = op->disk->number;
    init_end = model_box(box->id)->init;
    struct box_exec *exec = started(box, &number);
    init_end = -1;
    CHECK(box_rollback(box, "none", call(), &err) < 0);
    CHECK_STR(err.field, "snapshot");
    CHECK_OK(box_rollback(box, "first", op = call(), &err), &err);
    model_run();
    CHECK(went_well(op));
    CHECK_INT(op->ended, 1);
    CHECK_INT(exec->state, EXEC_LOST);
    CHECK_STR(state_of(box), "running");
    CHECK(box->disk != before && !model_disk(before));
    CHECK_INT(model_disk(box->disk)->from, snapshot);
    check_whole();
    struct box *other = create_one(&(struct sandbox_spec){ .name = "two", .storage = "disk" });
    CHECK(box_rollback(other, "first", call(), &err) < 0);
    CHECK(strstr(err.msg, "another sandbox") != NULL);
    down();
}

TEST(a_thaw_that_is_refused_is_asked_again)
{
    struct box_op *op;
    struct err err;

    model_up();
    struct box *box = create_one(&on_disk);
    model_questions = 0;
    model_at = 3; /* FREEZE, MAKE, THAW */
    model_how = MODEL_REFUSES;
    model_errno = EIO;
    CHECK_OK(box_snapshot(box, "first", op = call(), &err), &err);
    model_run();
    CHECK(model_box(box->id)->frozen && !caller_of(op)->done);
    turn(300);
    model_run();
    CHECK(!model_box(box->id)->frozen && went_well(op));
    down();
}

/* ---- new limits ---- */

TEST(limits_change_while_it_runs_and_are_kept)
{
    struct sandbox_patch patch = { .memory = 300 << 20, .pids = 77, .disk = 50 << 20 };
    struct field_pair labels[] = { { "a", "b" }, { 0 } };
    struct box_op *op;
    struct err err = { 0 };

    patch.labels = labels;
    model_up();
    struct box *box = create_one(&on_disk);
    uint64_t all = 1 << PATCH_MEMORY | 1 << PATCH_PIDS | 1 << PATCH_DISK | 1 << PATCH_LABELS;
    CHECK_OK(box_patch(box, &patch, all, op = call(), &err), &err);
    CHECK(box_patch(box, &patch, all, call(), &err) < 0);
    model_run();
    CHECK(went_well(op));
    CHECK_INT(model_box(box->id)->spec.memory, 300 << 20);
    CHECK_INT(model_box(box->id)->spec.pids, 77);
    CHECK_INT(model_disk(box->disk)->bytes, 50 << 20);
    model_again();
    box = only();
    CHECK(box->spec.memory == 300 << 20 && box->spec.pids == 77 && box->spec.disk == 50 << 20);
    CHECK_STR(box->spec.labels[0].key, "a");
    CHECK_STR(box->spec.name, "one");
    /* What the warden refuses is as it was, the size of the disk too. */
    patch.disk = 90 << 20;
    model_questions = 0;
    model_at = 2;
    model_how = MODEL_REFUSES;
    model_errno = EBUSY;
    CHECK_OK(box_patch(box, &patch, all, op = call(), &err), &err);
    model_run();
    CHECK(caller_of(op)->failed && caller_of(op)->err.code == ERR_CONFLICT);
    CHECK_INT(box->spec.disk, 50 << 20);
    CHECK_INT(model_disk(box->disk)->bytes, 50 << 20);
    /* In memory the disk is a part of it. */
    box = create_one(&(struct sandbox_spec){ .storage = "memory", .memory = 64 << 20 });
    patch.disk = 60 << 20;
    CHECK(box_patch(box, &patch, 1 << PATCH_DISK, call(), &err) < 0);
    CHECK_STR(err.field, "disk");
    patch.ttl_ms = 1;
    CHECK_OK(box_patch(box, &patch, 1 << PATCH_TTL, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op));
    turn(1100); /* its time was over while it was busy: asked again */
    model_run();
    CHECK_INT(boxes->count, 1);
    down();
}

static void see_the_new(struct box_op *op)
{
    CHECK_INT(op->box->spec.memory, 128 << 20); /* of which row and answer are composed */
}

/* The kernel had it already; nobody else did. */
TEST(a_change_that_is_not_stored_is_taken_back)
{
    struct box_op *op;
    struct err err;

    model_up();
    struct box *box = create_one(&on_disk);
    int64_t memory = box->spec.memory, disk = box->spec.disk;
    CHECK(memory != 128 << 20 && disk != 64 << 20);
    op = call();
    op->prepare = see_the_new;
    op->record = refuse_record;
    CHECK_OK(begin_patch(box, op, &err), &err);
    model_run();
    CHECK(caller_of(op)->failed && caller_of(op)->done == 1);
    CHECK(box->spec.memory == memory && box->spec.disk == disk);
    CHECK(model_box(box->id)->spec.memory == (uint64_t)memory);
    CHECK_INT(model_disk(box->disk)->bytes, disk);
    CHECK_OK(begin_patch(box, op = call(), &err), &err);
    model_run();
    CHECK(went_well(op) && box->spec.memory == 128 << 20);
    CHECK(model_box(box->id)->spec.memory == 128 << 20);
    down();
}

TEST(a_death_during_a_change_counts_when_that_is_over)
{
    struct wire_msg died = { .verb = WIRE_BOX_DIED, .died = { .code = -1, .signal = 9 } };
    struct sandbox_patch patch = { .ttl_ms = 3600000 };
    struct box_op *op;
    struct err err;

    model_up();
    struct box *box = create_one(&on_disk);
    CHECK_OK(box_patch(box, &patch, 1 << PATCH_TTL, op = call(), &err), &err);
    memcpy(died.died.name.id, box->id, strlen(box->id));
    model_box_end(model_box(box->id));
    boxes_heard(boxes, &died, NULL, 0);
    CHECK_STR(state_of(box), "running"); /* its row is on its way */
    model_run();
    CHECK(went_well(op));
    CHECK_STR(state_of(box), "stopped");
    CHECK(strstr(box->reason, "signal 9") != NULL);
    CHECK_OK(box_start(box, op = call(), &err), &err); /* and that death is over */
    model_run();
    CHECK(went_well(op));
    CHECK_OK(box_patch(box, &patch, 1 << PATCH_TTL, op = call(), &err), &err);
    model_run();
    CHECK_STR(state_of(box), "running");
    down();
}
