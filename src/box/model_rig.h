/*
 * model_rig - a warden that is a model: sets of boxes and disks that do what wire/box.h promises,
 * with one question at a time to be refused, left unanswered, or to be the last that the api
 * process lived to ask. Only for x_test.c files of this room.
 */
#pragma once

#include "box/box_rig.h"

#define MODEL_MAX 64

static struct model_box {
    char id[BOX_ID_SIZE];
    uint64_t upper;
    bool frozen;
    struct box_spec spec;
    int init; /* our end of its connection, or -1 */
} model_boxes[MODEL_MAX];
static struct model_disk {
    uint64_t id, bytes, from;
} model_disks[MODEL_MAX];
static struct box_mount model_mounts[MODEL_MAX];
static unsigned model_mount_count;

/* What happens to the question with this number, from 1; 0: nothing does. */
static unsigned model_at;
enum { MODEL_REFUSES, MODEL_SILENT, MODEL_KILLED, MODEL_DEAF };
static int model_how;
static int model_errno;
static uint16_t model_never;     /* a verb that is always refused */
static unsigned model_questions; /* so far */
static bool model_no_disks;
static uint32_t model_version = INIT_VERSION; /* what its inits speak */
static bool model_dead; /* the api process was killed: nothing more is answered */

/* Inits run whatever they are asked to: it exits at once. */
static bool model_inits;
static unsigned model_ran;

static unsigned model_seen; /* of asked[] */

UNUSED_OK static struct model_box *model_box(const char *id)
{
    for (unsigned i = 0; i < MODEL_MAX; i++)
        if (model_boxes[i].id[0] && strcmp(model_boxes[i].id, id) == 0)
            return &model_boxes[i];
    return NULL;
}

UNUSED_OK static struct model_disk *model_disk(uint64_t id)
{
    for (unsigned i = 0; i < MODEL_MAX; i++)
        if (model_disks[i].id && model_disks[i].id == id)
            return &model_disks[i];
    return NULL;
}

UNUSED_OK static unsigned model_count_boxes(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MODEL_MAX; i++)
        count += model_boxes[i].id[0] != 0;
    return count;
}

UNUSED_OK static unsigned model_count_disks(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MODEL_MAX; i++)
        count += model_disks[i].id != 0;
    return count;
}

static void model_box_end(struct model_box *box)
{
    if (box->init >= 0)
        close(box->init);
    *box = (struct model_box){ .init = -1 };
}

UNUSED_OK static void model_fresh(void)
{
    for (unsigned i = 0; i < MODEL_MAX; i++) {
        if (model_boxes[i].id[0])
            model_box_end(&model_boxes[i]);
        model_boxes[i].init = -1;
        model_disks[i] = (struct model_disk){ 0 };
    }
    model_mount_count = 0;
    model_at = model_questions = 0;
    model_no_disks = model_dead = model_inits = false;
    model_ran = 0;
    model_seen = 0;
    model_version = INIT_VERSION;
}

/* The other end of a fresh connection, with READY and an empty list said by the init. */
static int model_connect(struct model_box *box)
{
    int pair[2];
    int before = init_end;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    if (box->init >= 0)
        close(box->init);
    box->init = pair[0];
    init_end = pair[0];
    say(INIT_READY, 0, &(struct init_ready){ .version = model_version }, sizeof(struct init_ready),
        NULL);
    say(INIT_LISTED, 0, NULL, 0, NULL);
    init_end = before;
    return pair[1];
}

static bool model_upper_used(uint64_t disk)
{
    for (unsigned i = 0; i < MODEL_MAX; i++)
        if (model_boxes[i].id[0] && model_boxes[i].upper == disk)
            return true;
    return false;
}

static int model_create(const struct box_spec *spec, struct wire_msg *out, int fds[2])
{
    struct model_box *box = NULL;

    CHECK(box_spec_ok(spec));
    if (model_box(spec->id))
        return EEXIST;
    if (spec->upper && !model_disk(spec->upper))
        return ENOENT;
    if (spec->upper && model_upper_used(spec->upper))
        return EBUSY;
    for (unsigned i = 0; !box && i < MODEL_MAX; i++)
        if (!model_boxes[i].id[0])
            box = &model_boxes[i];
    CHECK(box != NULL);
    *box = (struct model_box){ .upper = spec->upper, .spec = *spec, .init = -1 };
    memcpy(box->id, spec->id, sizeof(box->id));
    fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    fds[1] = model_connect(box);
    out->created = (struct box_created){ .slot = 3, .pid = 99 };
    return 0;
}

static int model_make_disk(const struct disk_wish *wish)
{
    CHECK(disk_wish_ok(wish));
    if (model_disk(wish->id))
        return EEXIST;
    if (wish->from && !model_disk(wish->from))
        return ENOENT;
    for (unsigned i = 0; i < MODEL_MAX; i++)
        if (!model_disks[i].id) {
            model_disks[i] = (struct model_disk){ wish->id, wish->bytes, wish->from };
            return 0;
        }
    return ENOSPC;
}

static void model_list_boxes(struct wire_msg *out)
{
    uint32_t from = out->page.from;

    memset(&out->rows, 0, sizeof(out->rows));
    for (uint32_t i = from; i < MODEL_MAX; i++) {
        if (!model_boxes[i].id[0])
            continue;
        if (out->rows.count == BOX_ROWS) {
            out->rows.next = i;
            return;
        }
        struct box_row *row = &out->rows.rows[out->rows.count++];
        memcpy(row->id, model_boxes[i].id, sizeof(row->id));
        row->state = BOX_RUNNING;
    }
}

static void model_list_disks(struct wire_msg *out)
{
    uint64_t after = out->disk_page.after, next;

    memset(&out->disk_rows, 0, sizeof(out->disk_rows));
    do {
        next = UINT64_MAX;
        for (unsigned i = 0; i < MODEL_MAX; i++)
            if (model_disks[i].id > after && model_disks[i].id < next)
                next = model_disks[i].id;
        if (next == UINT64_MAX)
            return;
        out->disk_rows.ids[out->disk_rows.count++] = after = next;
    } while (out->disk_rows.count < 2); /* small pages, so that there are several */
    out->disk_rows.more = 1;
}

/* What the model does: an errno, or 0. */
static int model_do(const struct wire_msg *msg, struct wire_msg *out, int fds[2])
{
    struct model_box *box = msg->verb < WIRE_DISK_MAKE ? model_box(msg->name.id) : NULL;
    struct model_disk *disk = msg->verb >= WIRE_DISK_MAKE ? model_disk(msg->disk.id) : NULL;

    if (msg->verb >= WIRE_DISK_MAKE && model_no_disks)
        return ENOTSUP;
    switch (msg->verb) {
    case WIRE_BOX_CREATE:
        return model_create(&msg->spec, out, fds);
    case WIRE_BOX_LIST:
        model_list_boxes(out);
        return 0;
    case WIRE_DISK_LIST:
        model_list_disks(out);
        return 0;
    case WIRE_DISK_MAKE:
        return model_make_disk(&msg->disk);
    default:
        break;
    }
    if (msg->verb >= WIRE_DISK_MAKE ? !disk : !box)
        return ENOENT;
    switch (msg->verb) {
    case WIRE_BOX_OPEN:
        fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        fds[1] = model_connect(box);
        out->created = (struct box_created){ .slot = 3, .pid = 99 };
        return 0;
    case WIRE_BOX_FREEZE:
    case WIRE_BOX_THAW:
        box->frozen = msg->verb == WIRE_BOX_FREEZE;
        return 0;
    case WIRE_BOX_DESTROY:
        model_box_end(box);
        return 0;
    case WIRE_BOX_LIMITS:
        CHECK(box_limits_ok(&msg->limits));
        if (msg->limits.memory)
            box->spec.memory = msg->limits.memory;
        if (msg->limits.pids)
            box->spec.pids = msg->limits.pids;
        if (msg->limits.disk)
            box->spec.disk = msg->limits.disk;
        return 0;
    case WIRE_BOX_MOUNT:
        CHECK(box_mount_ok(&msg->mount));
        if (msg->mount.disk && !model_disk(msg->mount.disk))
            return ENOENT;
        model_mounts[model_mount_count++ % MODEL_MAX] = msg->mount;
        return 0;
    case WIRE_DISK_LIMIT:
        disk->bytes = msg->disk.bytes;
        return 0;
    case WIRE_DISK_STAT:
        out->disk_usage = (struct disk_usage){ .used = 4096, .bytes = disk->bytes };
        return 0;
    case WIRE_DISK_DROP:
        if (model_upper_used(disk->id))
            return EBUSY;
        *disk = (struct model_disk){ 0 };
        return 0;
    default:
        return EINVAL;
    }
}

static void model_answer(const struct wire_msg *question)
{
    struct wire_msg msg = *question;
    int fds[2] = { -1, -1 };
    bool chosen = ++model_questions == model_at;

    if (chosen && model_how == MODEL_DEAF) /* it never heard it */
        return;
    if ((chosen && model_how == MODEL_REFUSES) || question->verb == model_never)
        msg.status = model_errno;
    else
        msg.status = model_do(question, &msg, fds);
    if (chosen && model_how == MODEL_KILLED)
        model_dead = true; /* done, and nobody there to hear of it */
    if (chosen && (model_how == MODEL_SILENT || model_how == MODEL_KILLED)) {
        if (fds[0] >= 0)
            close(fds[0]);
        if (fds[1] >= 0)
            close(fds[1]);
        return;
    }
    boxes_heard(boxes, &msg, fds, fds[1] >= 0 ? 2 : 0);
}

static void model_play_inits(void)
{
    int before = init_end;
    uint32_t number;

    for (unsigned i = 0; model_inits && i < MODEL_MAX; i++) {
        init_end = model_boxes[i].id[0] ? model_boxes[i].init : -1;
        while (init_end >= 0 && heard(INIT_EXEC, &number, NULL, 0)) {
            say(INIT_STARTED, number, &(struct init_started){ .pid = 7 },
                sizeof(struct init_started), NULL);
            say_exited(number, 0, 0, 0);
            model_ran++;
        }
    }
    init_end = before;
}

/* Answers what was asked until nothing more happens. */
UNUSED_OK static void model_run(void)
{
    for (int quiet = 0; quiet < 2 && !model_dead;) {
        if (model_seen < asked_count) {
            struct wire_msg msg = asked[model_seen++];

            if (model_seen == asked_count)
                model_seen = asked_count = 0;
            model_answer(&msg);
            quiet = 0;
            continue;
        }
        struct test_job job = test_job_of(no_run, NULL);
        model_play_inits();
        turn(model_inits ? 4 : 1);
        store_write(test_store, &job.job);
        loop_run(test_loop);
        turn(1);
        quiet = model_seen < asked_count ? 0 : quiet + 1;
    }
}

/* The api process is killed, and another one comes. */
UNUSED_OK static void model_again(void)
{
    down();
    up(false);
    model_seen = 0;
    model_at = 0;
    model_dead = false;
    load_and_start();
    model_run();
    CHECK(is_started);
}

UNUSED_OK static void model_up(void)
{
    model_fresh();
    up(true);
    load_and_start();
    model_run();
    CHECK(is_started);
}
