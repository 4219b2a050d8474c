/*
 * An archive becomes an image, as image.h tells. One step at a time:
 *
 *   scratch disk · unpacker up · scratch at /in · inspect (the upload is its input)
 *   for each layer that is not there yet: disk · at /out/K · unpack
 *   unpacker gone · row stored, layers ready
 *
 * What goes wrong, or a caller who leaves, is noted in `err`; the step under way ends, and then
 * everything is undone the way it came. What the unpacker says is a stranger's word: its answer has
 * a maximum, is read by a table, and the sizes in it only choose how much each disk may hold.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/show.h"
#include "box/job.h"
#include "box/own.h"

/* Per layer: what a file costs beyond its content, and room for the file system's own needs. */
#define ENTRY_BYTES 8192
#define LAYER_ROOM (64ll << 20)
#define IMAGE_KEY_SIZE 80
#define TOOL "/run/atoll"
#ifdef __aarch64__
#define ARCH "arm64"
#else
#define ARCH "amd64"
#endif

/* One disk: a layer of the archive, or its lowest ones on top of one another. */
struct import_layer {
    char name[IMAGE_KEY_SIZE]; /* diff id; of several, a digest of them all */
    unsigned first, count;     /* in import->used */
    struct disk *disk;         /* NULL: not made yet */
    bool ours;                 /* made by this import; otherwise it was there */
};

struct image_import {
    struct list node;
    struct boxes *boxes;
    struct image_op *op; /* NULL: nobody waits any more */
    char tenant[33], by[ID_SIZE];
    char *name; /* owned */
    struct err err;
    bool undoing;
    bool eof;           /* of the upload, before or after the unpacker was there to hear of it */
    struct timer timer; /* a command that does not end */

    struct helper helper;
    struct box_job job;
    struct disk_op disk_op;
    struct disk *scratch;
    struct buf answer;
    void (*answered)(struct image_import *import, struct str text);
    struct arena arena;
    struct image_told told;
    struct str told_text;
    unsigned used[IMAGE_LAYERS_MAX]; /* numbers of the archive's layers, the lowest first */
    unsigned used_count;
    struct import_layer layers[BOX_LAYERS_MAX]; /* the lowest first, none twice */
    unsigned count, at;
    struct image *image; /* while it is stored */
    struct store_job store;
};

static void next_layer(struct image_import *import);

/* ---- the end ---- */

static void import_free(struct image_import *import)
{
    timer_cancel(import->boxes->loop, &import->timer);
    list_remove(&import->node);
    import->boxes->import_count--;
    buf_free(&import->answer);
    arena_free(&import->arena);
    free(import->name);
    free(import);
}

static void drop_disks(struct image_import *import)
{
    if (import->scratch)
        disk_drop(take_ptr(&import->scratch));
    for (unsigned i = 0; i < import->count; i++)
        if (import->layers[i].ours && import->layers[i].disk)
            disk_drop(take_ptr(&import->layers[i].disk));
}

/* ---- events ---- */

struct told {
    struct store_job job;
    char *name, *tenant, *text;
    bool failed;
};

static int told_run(struct store_job *job, struct db *db, struct err *err)
{
    const struct told *told = container_of(job, struct told, job);

    return image_event(db, told->tenant, told->name,
                       told->failed ? "image.failed" : "image.progress",
                       told->failed ? "reason" : "stage", told->text, err);
}

static void told_done(struct store_job *job)
{
    struct told *told = container_of(job, struct told, job);

    free(told->name);
    free(told->tenant);
    free(told->text);
    free(told);
}

/* Writes the event of a stage, or of the end of an import that failed. Takes `text`. */
static void tell(const struct image_import *import, bool failed, char *text)
{
    struct told *told = xnew(struct told);

    told->name = xstrdup(import->name);
    told->tenant = xstrdup(import->tenant);
    told->text = text;
    told->failed = failed;
    told->job = (struct store_job){ .run = told_run, .done = told_done };
    store_write(import->boxes->store, &told->job);
}

static void over(struct image_import *import, const struct err *err)
{
    struct image_op *op = import->op;

    if (err) {
        drop_disks(import);
        if (!import->boxes->stopping) /* the store may be closed already */
            tell(import, true, xstrdup(err->msg));
    }
    if (op)
        op->done(op, err);
    import_free(import);
}

/* With the unpacker still there: it goes first, for it holds the disks. */
static void undo(struct image_import *import)
{
    if (import->undoing)
        return;
    import->undoing = true;
    if (import->helper.box)
        helper_end(&import->helper);
    else
        over(import, &import->err);
}

/* Between two steps: true when there is no next one, and perhaps no import any more. */
static bool ends(struct image_import *import, const struct err *err)
{
    if (err && !import->err.code)
        import->err = *err;
    if (!import->err.code)
        return false;
    undo(import);
    return true;
}

/* From outside of the steps: a command is killed, another step comes to its end first. */
static void fail(struct image_import *import, enum err_code code, const char *text)
{
    if (!import->err.code)
        err_set(&import->err, code, "%s", text);
    if (!import->job.box)
        return;
    box_job_drop(&import->job);
    undo(import);
}

/* ---- storing ---- */

static int store_run(struct store_job *job, struct db *db, struct err *err)
{
    struct image_import *import = container_of(job, struct image_import, store);

    if (image_row_insert(db, import->image, err) < 0 ||
        image_event(db, import->tenant, import->name, "image.imported", NULL, NULL, err) < 0)
        return -1;
    for (unsigned i = 0; i < import->count; i++) {
        const struct import_layer *layer = &import->layers[i];
        autoquery struct query *q =
            db_query(db, "UPDATE disk SET state = 'ready', name = $1 WHERE number = $2");

        if (!layer->ours)
            continue;
        query_text(q, 1, layer->name);
        query_i64(q, 2, (int64_t)layer->disk->number);
        int rows = query_run(q, err);
        if (rows <= 0)
            return rows < 0 ? err_wrap(err, "store a layer")
                            : err_set(err, ERR_INTERNAL, "a layer has no row");
    }
    return import->op && import->op->record ? import->op->record(import->op, db, err) : 0;
}

static void store_done(struct store_job *job)
{
    struct image_import *import = container_of(job, struct image_import, store);

    if (job->rc < 0) {
        image_free(take_ptr(&import->image));
        over(import, &job->err);
        return;
    }
    for (unsigned i = 0; i < import->count; i++) {
        struct import_layer *layer = &import->layers[i];

        if (!layer->ours)
            continue;
        layer->disk->state = DISK_READY;
        free(layer->disk->name);
        layer->disk->name = xstrdup(layer->name);
    }
    list_append(&import->boxes->images, &import->image->node);
    disk_drop(take_ptr(&import->scratch));
    over(import, NULL);
}

static void store(struct image_import *import)
{
    struct err err = { 0 };

    import->image =
        image_new(import->boxes, import->tenant, import->by, import->name, import->told_text, &err);
    if (!import->image) {
        over(import, &err);
        return;
    }
    import->image->made_ms = clock_wall_ms();
    for (unsigned i = 0; i < import->count; i++)
        import->image->layers[import->image->layer_count++] = import->layers[i].disk->number;
    if (import->op) {
        import->op->image = import->image;
        if (import->op->prepare)
            import->op->prepare(import->op);
    }
    import->store = (struct store_job){ .run = store_run, .done = store_done };
    store_write(import->boxes->store, &import->store);
}

static void helper_gone(struct helper *helper, bool sure)
{
    struct image_import *import = container_of(helper, struct image_import, helper);

    if (!sure && !import->err.code) /* it could still write to the layers */
        err_set(&import->err, ERR_UNAVAILABLE, "the unpacker does not end");
    if (import->err.code)
        over(import, &import->err);
    else
        store(import);
}

static void helper_lost(struct helper *helper, const char *reason)
{
    struct image_import *import = container_of(helper, struct image_import, helper);

    log_warn("an unpacker ended", kv_str("image", import->name), kv_str("why", reason));
    fail(import, ERR_UNPROCESSABLE, "the unpacker ended; the archive may need too much memory");
}

/* ---- a command of the unpacker ---- */

static void take_answer(struct box_job *job, struct str data)
{
    buf_str(&container_of(job, struct image_import, job)->answer, data);
}

static void has_room(struct box_job *job)
{
    struct image_import *import = container_of(job, struct image_import, job);

    if (import->op && import->op->room)
        import->op->room(import->op);
}

/* {"error":{"code":…,"message":…}}: only codes about archives, and a text that is safe to show. */
static bool take_error(struct image_import *import, const struct json *answer)
{
    const struct json *error = json_get(answer, "error");
    struct str code = json_text(error, "code"), message = json_text(error, "message");
    autobuf struct buf text = { .max = 400 };

    if (!error)
        return false;
    char name[32];
    snprintf(name, sizeof(name), "%.*s", (int)MIN(code.n, sizeof(name) - 1), code.n ? code.p : "");
    enum err_code is = err_from_name(name);
    if (is != ERR_INVALID && is != ERR_LIMIT && is != ERR_NO_SPACE)
        is = ERR_UNPROCESSABLE;
    show_text(&text, (struct str){ message.p, MIN(message.n, 300) });
    err_set(&import->err, is, "%s", buf_cstr(&text));
    return true;
}

static void command_done(struct box_job *job, const struct err *err)
{
    struct image_import *import = container_of(job, struct image_import, job);
    struct arena *arena = &import->arena;
    struct str text = arena_str(arena, buf_view(&import->answer));
    struct json *json;
    struct err bad = { 0 };

    timer_cancel(import->boxes->loop, &import->timer);
    bool whole = buf_ok(&import->answer);
    buf_clear(&import->answer);
    import->answer.over = false;
    if (ends(import, err))
        return;
    if (!whole || json_parse(arena, str_trim(text), &json, &bad) < 0)
        err_set(&import->err, ERR_UNPROCESSABLE, "the unpacker gave no answer");
    else if (!take_error(import, json) && job->code != 0)
        err_set(&import->err, ERR_UNPROCESSABLE, "the unpacker failed (%d)", job->code);
    if (ends(import, NULL))
        return;
    import->answered(import, text);
}

static void on_timer(struct timer *timer)
{
    fail(container_of(timer, struct image_import, timer), ERR_TIMEOUT,
         "the unpacker did not come to an end");
}

/* From when it has all that it works with. */
static void limit_time(struct image_import *import)
{
    import->timer.fn = on_timer;
    timer_set(import->boxes->loop, &import->timer, IMAGE_STEP_MS);
}

/* False: there is perhaps no import any more. */
static bool run(struct image_import *import, const char *const *args, bool input,
                void (*answered)(struct image_import *import, struct str text))
{
    struct box_job_spec spec = { .user = "root", .args = args, .input = input, .program = true };
    struct err err = { 0 };

    import->job = (struct box_job){ .data = take_answer, .room = has_room, .done = command_done };
    import->job.endless = true; /* what it reads may be large, and its caller slow */
    import->answered = answered;
    if (box_job_start(import->helper.box, &import->job, &spec, &err) < 0)
        return !ends(import, &err);
    if (!input)
        limit_time(import);
    return true;
}

/* ---- layers ---- */

static void unpacked(struct image_import *import, struct str text)
{
    (void)text;
    import->at++;
    next_layer(import);
}

/* Where the disk that is being made is in the unpacker. */
static void place_of(const struct image_import *import, char out[32])
{
    snprintf(out, 32, "/out/%u", import->at);
}

static void layer_mounted(struct helper *helper, const struct err *err)
{
    struct image_import *import = container_of(helper, struct image_import, helper);
    const struct import_layer *layer = &import->layers[import->at];
    const char *args[IMAGE_LAYERS_MAX + 6] = { TOOL, "helper", "unpack", "/in" };
    char numbers[IMAGE_LAYERS_MAX][4], place[32];
    size_t count = 4;

    if (ends(import, err))
        return;
    place_of(import, place);
    args[count++] = place;
    for (unsigned i = 0; i < layer->count; i++) {
        snprintf(numbers[i], sizeof(numbers[i]), "%u", import->used[layer->first + i] % 1000);
        args[count++] = numbers[i];
    }
    (void)run(import, args, false, unpacked);
}

static void layer_made(struct disk_op *op, const struct err *err)
{
    struct image_import *import = container_of(op, struct image_import, disk_op);
    char place[32];

    if (!err) {
        import->layers[import->at].disk = op->disk;
        import->layers[import->at].ours = true;
    }
    if (ends(import, err))
        return;
    place_of(import, place);
    import->helper.mounted = layer_mounted;
    helper_mount(&import->helper, op->disk->number, place);
}

static int64_t bytes_of(const struct image_import *import, const struct import_layer *layer)
{
    const struct image_part *parts = import->told.layers.items;
    int64_t bytes = LAYER_ROOM;

    for (unsigned i = 0; i < layer->count; i++) {
        const struct image_part *part = &parts[import->used[layer->first + i]];

        bytes += part->bytes + part->entries * ENTRY_BYTES;
    }
    return bytes;
}

static void next_layer(struct image_import *import)
{
    struct err err = { 0 };

    while (import->at < import->count && import->layers[import->at].disk)
        import->at++; /* it was there */
    if (import->at == import->count) {
        helper_end(&import->helper);
        return;
    }
    struct disk_want want = { .kind = DISK_LAYER,
                              .tenant = import->tenant,
                              .by = import->by,
                              .bytes = bytes_of(import, &import->layers[import->at]) };
    tell(import, false, xprintf("unpacking layer %u of %u", import->at + 1, import->count));
    import->disk_op = (struct disk_op){ .done = layer_made };
    if (disk_make(import->boxes, &want, &import->disk_op, &err) < 0)
        (void)ends(import, &err);
}

static struct disk *layer_there(const struct image_import *import, const char *diff_id)
{
    struct disk *disk = NULL;

    while ((disk = disk_next(import->boxes, reach_all(import->tenant), DISK_LAYER, NULL, disk)))
        if (disk->state == DISK_READY && strcmp(disk->name, diff_id) == 0)
            return disk;
    return NULL;
}

/*
 * A layer that comes again higher up hides everything of its lower self: only the last one is
 * used, and overlayfs would refuse the same directory twice.
 */
static bool comes_again(const struct image_told *told, size_t at)
{
    const struct image_part *parts = told->layers.items;

    for (size_t i = at + 1; i < told->layers.count; i++)
        if (strcmp(parts[i].diff_id, parts[at].diff_id) == 0)
            return true;
    return false;
}

static void name_layer(const struct image_import *import, struct import_layer *layer)
{
    const struct image_part *parts = import->told.layers.items;
    struct str ids[IMAGE_LAYERS_MAX];
    unsigned char digest[SHA256_SIZE];
    char text[SHA256_HEX_SIZE];

    if (layer->count == 1) {
        snprintf(layer->name, sizeof(layer->name), "%s", parts[import->used[layer->first]].diff_id);
        return;
    }
    for (unsigned i = 0; i < layer->count; i++)
        ids[i] = str_of(parts[import->used[layer->first + i]].diff_id);
    sha256_parts(ids, layer->count, digest);
    hex_text(digest, sizeof(digest), text);
    snprintf(layer->name, sizeof(layer->name), "merged:%s", text);
}

/* Which disks: one for each layer, but no more than a sandbox takes; the lowest then share one. */
static void plan(struct image_import *import)
{
    unsigned at = 0;

    for (unsigned i = 0; i < import->told.layers.count; i++)
        if (!comes_again(&import->told, i))
            import->used[import->used_count++] = i;
    unsigned merged =
        import->used_count > BOX_LAYERS_MAX ? import->used_count - BOX_LAYERS_MAX + 1 : 1;
    while (at < import->used_count) {
        struct import_layer *layer = &import->layers[import->count];

        layer->first = at;
        layer->count = import->count == 0 ? merged : 1;
        at += layer->count;
        import->count++;
        name_layer(import, layer);
        layer->disk = layer_there(import, layer->name);
    }
}

static void inspected(struct image_import *import, struct str text)
{
    struct err err = { 0 };

    if (image_told_read(&import->arena, text, &import->told, &err) < 0) {
        (void)ends(import, &err);
        return;
    }
    import->told_text = text;
    plan(import);
    next_layer(import);
}

/* ---- the upload ---- */

static void scratch_mounted(struct helper *helper, const struct err *err)
{
    static const char *const args[] = { TOOL, "helper", "inspect", "/in", ARCH, NULL };
    struct image_import *import = container_of(helper, struct image_import, helper);

    if (ends(import, err))
        return;
    if (!run(import, args, true, inspected))
        return;
    if (import->eof)
        image_import_eof(import);
    else if (import->op && import->op->room)
        import->op->room(import->op);
}

static void helper_up(struct helper *helper, const struct err *err)
{
    struct image_import *import = container_of(helper, struct image_import, helper);

    if (ends(import, err))
        return;
    helper->mounted = scratch_mounted;
    helper_mount(helper, import->scratch->number, "/in");
}

static void scratch_made(struct disk_op *op, const struct err *err)
{
    struct image_import *import = container_of(op, struct image_import, disk_op);

    if (!err)
        import->scratch = op->disk;
    if (ends(import, err))
        return;
    helper_start(&import->helper, import->boxes);
}

static int check(struct boxes *boxes, const char *name, const struct image_op *op, struct err *err)
{
    unsigned count = 0;

    if (image_name_check(name, err) < 0)
        return -1;
    if (image_named(boxes, op->tenant, name))
        return err_set(err, ERR_CONFLICT, "there is an image named %s already; remove it first",
                       name);
    for (struct image *image = NULL; (image = image_next(boxes, op->tenant, image));)
        count++;
    if (count >= IMAGES_MAX)
        return err_set(err, ERR_RATE, "there are %d images already; remove some", IMAGES_MAX);
    if (boxes->import_count >= IMAGE_IMPORTS_MAX) {
        err_set(err, ERR_UNAVAILABLE, "%u images are being imported; wait for one of them",
                boxes->import_count);
        err->retry_after = 5;
        return -1;
    }
    return 0;
}

int image_import(struct boxes *boxes, const char *name, struct image_op *op,
                 struct image_import **out, struct err *err)
{
    if (check(boxes, name, op, err) < 0)
        return -1;
    struct image_import *import = xnew(struct image_import);
    struct disk_want want = {
        .kind = DISK_LAYER, .tenant = op->tenant, .by = op->by, .bytes = IMAGE_SCRATCH_BYTES
    };
    import->boxes = boxes;
    import->op = op;
    import->name = xstrdup(name);
    snprintf(import->tenant, sizeof(import->tenant), "%s", op->tenant);
    snprintf(import->by, sizeof(import->by), "%s", op->by);
    import->answer.max = IMAGE_INFO_MAX + 1;
    import->helper = (struct helper){ .up = helper_up, .lost = helper_lost, .gone = helper_gone };
    import->disk_op = (struct disk_op){ .done = scratch_made };
    list_append(&boxes->imports, &import->node);
    boxes->import_count++;
    if (disk_make(boxes, &want, &import->disk_op, err) < 0) {
        import_free(import);
        return -1;
    }
    *out = import;
    return 0;
}

size_t image_import_put(struct image_import *import, struct str data)
{
    return box_job_put(&import->job, data); /* nothing before it runs */
}

void image_import_eof(struct image_import *import)
{
    import->eof = true;
    box_job_eof(&import->job);
    if (import->job.box)
        limit_time(import);
}

void image_import_drop(struct image_import *import)
{
    import->op = NULL;
    if (!import->image) /* otherwise it is being stored: too late */
        fail(import, ERR_CANCELLED, "the upload was given up");
}

bool import_uses(const struct boxes *boxes, uint64_t number)
{
    list_each (pos, &boxes->imports) {
        const struct image_import *import = list_entry(pos, struct image_import, node);

        for (unsigned i = 0; i < import->count; i++)
            if (import->layers[i].disk && import->layers[i].disk->number == number)
                return true;
    }
    return false;
}

void imports_drain(struct boxes *boxes)
{
    list_each_safe (pos, &boxes->imports)
        fail(list_entry(pos, struct image_import, node), ERR_UNAVAILABLE, "the server is stopping");
}

void imports_free(struct boxes *boxes)
{
    while (!list_empty(&boxes->imports)) {
        struct image_import *import = list_entry(boxes->imports.next, struct image_import, node);

        box_job_drop(&import->job);
        if (import->helper.box)
            import->helper.box->helper = NULL;
        if (!import->err.code)
            err_set(&import->err, ERR_UNAVAILABLE, "the server is stopping");
        over(import, &import->err);
    }
}
