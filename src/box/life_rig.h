/*
 * life_rig - sandboxes on disks against the model of a warden, and what must hold whatever happened
 * to them. Only for x_test.c files of this room.
 */
#pragma once

#include "box/model_rig.h"

static struct caller callers[16];
static unsigned caller_count;

/* Callers outlive a killed process: their memory must, too. */
UNUSED_OK static struct box_op *call(void)
{
    struct caller *caller = &callers[caller_count++ % ARRAY_LEN(callers)];

    *caller = caller_new();
    return &caller->op;
}

UNUSED_OK static struct caller *caller_of(struct box_op *op)
{
    return container_of(op, struct caller, op);
}

UNUSED_OK static bool went_well(struct box_op *op)
{
    return caller_of(op)->done == 1 && !caller_of(op)->failed;
}

UNUSED_OK static const char *state_of(const struct box *box)
{
    return sandbox_state_name(box->state);
}

UNUSED_OK static struct box *only(void)
{
    return boxes_next(boxes, reach_all("default"), NULL);
}

UNUSED_OK static struct box *create_one(const struct sandbox_spec *spec)
{
    struct box_op *op = call();
    struct err err;

    CHECK_OK(boxes_create(boxes, spec, op, &err), &err);
    model_run();
    return went_well(op) ? op->box : NULL;
}

UNUSED_OK static const struct sandbox_spec on_disk = { .name = "one", .storage = "disk" };

/* ---- what must always hold ---- */

static int count_rows(struct db *db, void *ctx, struct err *err)
{
    (void)err;
    *(int64_t *)ctx = test_number(db, "SELECT count(*) FROM disk WHERE state = 'ready'");
    CHECK_INT(test_number(db, "SELECT count(*) FROM disk WHERE state <> 'ready'"), 0);
    return 0;
}

/* After a start: rows, memory and the warden agree. */
UNUSED_OK static void check_whole(void)
{
    unsigned live = 0, disks = 0;
    struct box *box = NULL;
    int64_t rows;
    struct err err;

    while ((box = boxes_next(boxes, reach_all("default"), box))) {
        bool lives = sandbox_lives(box->state);

        CHECK(!box->busy);
        CHECK(lives == (model_box(box->id) != NULL));
        live += lives;
        if (lives) {
            CHECK(model_box(box->id)->frozen == (box->state == SANDBOX_PAUSED));
            CHECK(model_box(box->id)->upper == box->disk);
        }
        if (box->disk && box->state != SANDBOX_FAILED) {
            struct disk *disk = disk_by_number(boxes, box->disk);

            CHECK(disk && disk->state == DISK_READY && strcmp(disk->sandbox, box->id) == 0);
            CHECK(model_disk(box->disk) != NULL);
        }
    }
    CHECK_INT(model_count_boxes(), live);
    list_each (pos, &boxes->disks)
        disks += list_entry(pos, struct disk, node)->state == DISK_READY;
    CHECK_INT(model_count_disks(), disks);
    CHECK_OK(test_write(count_rows, &rows, &err), &err);
    CHECK_INT(rows, disks);
}
