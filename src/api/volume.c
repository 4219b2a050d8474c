/*
 * Volumes and snapshots: named disks. Lists are answered from memory; what changes something goes
 * through the box room, with the audit row in the transaction of the change itself.
 */
#include "api/own.h"

#include "api/page.h"
#include "box/disk.h"

/* A call that waits for a disk. */
struct disk_call {
    struct disk_op op;
    struct call *call;
    struct disk_usage usage;
};

static int disk_record(struct disk_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct disk_call, op)->call, db, err);
}

static void disk_done(struct disk_op *op, const struct err *err)
{
    call_finish(container_of(op, struct disk_call, op)->call, err);
}

static struct disk_call *disk_call_new(struct call *call, const char *event)
{
    struct disk_call *wait = arena_new(&call->arena, struct disk_call);

    wait->call = call;
    wait->op = (struct disk_op){
        .record = disk_record,
        .done = disk_done,
        .tenant = call->who.tenant,
        .event = event,
        .role = role_name(call->who.role),
    };
    return wait;
}

static const char *state_of(const struct disk *disk)
{
    return disk->state == DISK_LOST ? "lost" : "ready";
}

/* ---- volumes ---- */

/* Ids of the sandboxes that name it, as the reply shows them. */
static const char **users_of(struct call *call, struct reach reach, const struct disk *disk,
                             size_t *out)
{
    struct box *box = NULL;
    size_t count = 0, at = 0;

    while ((box = boxes_next(call->api->boxes, reach, box)))
        count += box_names_volume(box, disk->name);
    const char **ids = arena_alloc(&call->arena, (count + 1) * sizeof(*ids));
    while ((box = boxes_next(call->api->boxes, reach, box))) {
        struct sandbox_view view;

        if (!box_names_volume(box, disk->name))
            continue;
        box_view(box, &view);
        ids[at++] = arena_strdup(&call->arena, view.id);
    }
    *out = count;
    return ids;
}

static struct volume_view volume_view(struct call *call, const struct disk *disk)
{
    size_t count;

    return (struct volume_view){ .id = disk->id,
                                 .name = disk->name,
                                 .state = state_of(disk),
                                 .by = disk->by,
                                 .sandboxes = users_of(call, call_reach(call), disk, &count),
                                 .bytes = disk->bytes,
                                 .created_at = disk->made_ms,
                                 .access = access_shown(&disk->access, disk->by) };
}

static int call_volume(struct call *call, struct disk **out, struct err *err)
{
    return disk_find(call->api->boxes, call_reach(call), DISK_VOLUME, NULL,
                     call_param(call, "volume"), out, err);
}

static void put_volume(struct call *call, struct disk *disk)
{
    struct volume_view view = volume_view(call, disk);

    buf_clear(&call->reply);
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "volume/%s", disk->id);
}

static void volume_made(struct disk_op *op, const struct err *err)
{
    struct disk_call *wait = container_of(op, struct disk_call, op);

    if (err) {
        call_finish(wait->call, err);
        return;
    }
    put_volume(wait->call, op->disk);
    op->done = disk_done;
    disk_ready(op->disk, op);
}

static int volume_post(struct call *call, struct err *err)
{
    struct disk_call *wait = disk_call_new(call, "volume.created");
    struct volume_wish wish = { 0 };

    if (call_decode(call, &wish, err) < 0 || name_check(wish.name, "vo", "name", err) < 0 ||
        may_own(call, &wish.access, err) < 0)
        return -1;
    struct disk_want want = { .kind = DISK_VOLUME,
                              .tenant = call->who.tenant,
                              .by = call->who.id,
                              .role = role_name(call->who.role),
                              .name = wish.name,
                              .bytes = wish.bytes,
                              .access = wish.access };
    wait->op.done = volume_made;
    return disk_make(call->api->boxes, &want, &wait->op, err);
}

static int volume_list(struct call *call, struct err *err)
{
    struct disk *disk = NULL;
    struct page page;

    if (page_open(&page, call, "vo", err) < 0)
        return -1;
    if (page.after)
        disk = disk_upto(call->api->boxes, page.after);
    while ((disk = disk_next(call->api->boxes, call_reach(call), DISK_VOLUME, NULL, disk))) {
        struct volume_view view = volume_view(call, disk);

        if (!page_take(&page, disk->id, true, &view))
            break;
    }
    page_close(&page);
    return 0;
}

static void volume_measured(struct disk_op *op, const struct err *err)
{
    struct disk_call *wait = container_of(op, struct disk_call, op);
    struct call *call = wait->call;
    struct err gone = { 0 };
    struct disk *disk;

    if (!err && call_volume(call, &disk, &gone) == 0) {
        struct volume_view view = volume_view(call, disk);

        view.used = (int64_t)wait->usage.used;
        call_reply(call, &view);
    }
    call_finish(call, err ? err : gone.code ? &gone : NULL);
}

static int volume_get(struct call *call, struct err *err)
{
    struct disk_call *wait = disk_call_new(call, NULL);
    struct disk *disk;

    if (call_volume(call, &disk, err) < 0)
        return -1;
    wait->op.done = volume_measured;
    return disk_stat(disk, &wait->usage, &wait->op, err);
}

static void volume_resized(struct disk_op *op, const struct err *err)
{
    call_finish(container_of(op, struct disk_call, op)->call, err);
}

static int volume_patch(struct call *call, struct err *err)
{
    struct disk_call *wait = disk_call_new(call, "volume.changed");
    struct volume_wish wish = { 0 };
    uint64_t present = 0;
    struct disk *disk;

    if (call_volume(call, &disk, err) < 0 || call_decode_patch(call, &wish, &present, err) < 0 ||
        may_give(call, disk_owned(disk, call_reach(call)), present, VOLUME_PATCH_ACCESS, err) < 0)
        return -1;
    struct access access = disk->access;
    access_merge(&access, &wish.access, present, VOLUME_PATCH_ACCESS);
    struct volume_view view = volume_view(call, disk);
    view.bytes = wish.bytes ? wish.bytes : disk->bytes;
    view.access = access_shown(&access, disk->by);
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "volume/%s", disk->id);
    wait->op.done = volume_resized;
    return disk_change(disk, wish.bytes, &access, &wait->op, err);
}

static int volume_delete(struct call *call, struct err *err)
{
    struct disk *disk;
    size_t count;

    if (call_volume(call, &disk, err) < 0)
        return -1;
    const char **users = users_of(call, reach_all(call->who.tenant), disk, &count);
    if (count && !call_reach(call).all) /* whose it is may be none of the caller's business */
        return err_set(err, ERR_CONFLICT, "volume %s is in use by a sandbox", disk->name);
    if (count)
        return err_set(err, ERR_CONFLICT, "volume %s is in use by sandbox %s%s", disk->name,
                       users[0], count > 1 ? " and others" : "");
    put_volume(call, disk);
    return disk_remove(disk, &disk_call_new(call, "volume.deleted")->op, err);
}

const struct route volume_routes[] = {
    { .name = "volume.create",
      .method = "POST",
      .path = "/api/v1/volumes",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = volume_post,
      .takes = volume_wish_fields,
      .gives = volume_fields,
      .flags = ROUTE_CREATES,
      .summary =
          "Make a volume: a tree of files that sandboxes can share and that outlives them." },
    { .name = "volume.list",
      .method = "GET",
      .path = "/api/v1/volumes",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = volume_list,
      .items = volume_fields,
      .query = PAGE_QUERY,
      .summary = "The caller's volumes, oldest first: " PAGE_SUMMARY },
    { .name = "volume.read",
      .method = "GET",
      .path = "/api/v1/volumes/{volume}",
      .on = ON_LATER,
      .roles = ROLE_LOOK,
      .fn = volume_get,
      .gives = volume_stat_fields,
      .summary = "One volume, by name or id, and how much of it is used." },
    { .name = "volume.change",
      .method = "PATCH",
      .path = "/api/v1/volumes/{volume}",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = volume_patch,
      .takes = volume_patch_fields,
      .gives = volume_fields,
      .summary = "Give a volume another size, owner, visibility or list of principals." },
    { .name = "volume.delete",
      .method = "DELETE",
      .path = "/api/v1/volumes/{volume}",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = volume_delete,
      .gives = volume_fields,
      .summary = "Remove a volume and what is in it; refused while a sandbox names it." },
    { 0 },
};

/* ---- snapshots ---- */

static struct snapshot_view snapshot_view(const struct disk *disk)
{
    return (struct snapshot_view){ .id = disk->id,
                                   .name = disk->name,
                                   .sandbox = disk->sandbox,
                                   .state = state_of(disk),
                                   .by = disk->by,
                                   .bytes = disk->bytes,
                                   .created_at = disk->made_ms,
                                   .access = access_shown(&disk->access, disk->by) };
}

static void put_snapshot(struct call *call, const struct disk *disk)
{
    struct snapshot_view view = snapshot_view(disk);

    buf_clear(&call->reply);
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "snapshot/%s", disk->id);
}

static void snapshot_prepare(struct box_op *op)
{
    put_snapshot(call_of(op), op->disk);
}

static int snapshot_post(struct call *call, struct err *err)
{
    struct box_op *op = call_op(call);
    struct snapshot_wish wish = { 0 };
    struct box *box;

    if (call_box(call, &box, err) < 0 || call_decode(call, &wish, err) < 0)
        return -1;
    op->prepare = snapshot_prepare;
    return box_snapshot(box, wish.name, op, err);
}

static int put_snapshots(struct call *call, const char *sandbox, struct err *err)
{
    struct disk *disk = NULL;
    struct page page;

    if (page_open(&page, call, "sn", err) < 0)
        return -1;
    if (page.after)
        disk = disk_upto(call->api->boxes, page.after);
    while ((disk = disk_next(call->api->boxes, call_reach(call), DISK_SNAPSHOT, sandbox, disk))) {
        struct snapshot_view view = snapshot_view(disk);

        if (!page_take(&page, disk->id, true, &view))
            break;
    }
    page_close(&page);
    return 0;
}

static int snapshot_list(struct call *call, struct err *err)
{
    return put_snapshots(call, NULL, err);
}

static int snapshot_list_of(struct call *call, struct err *err)
{
    struct sandbox_view view;
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    box_view(box, &view);
    return put_snapshots(call, view.id, err);
}

static int remove_snapshot(struct call *call, const char *sandbox, struct err *err)
{
    struct disk *disk;

    if (disk_find(call->api->boxes, call_reach(call), DISK_SNAPSHOT, sandbox,
                  call_param(call, "snapshot"), &disk, err) < 0)
        return -1;
    put_snapshot(call, disk);
    return disk_remove(disk, &disk_call_new(call, "snapshot.deleted")->op, err);
}

static int snapshot_delete(struct call *call, struct err *err)
{
    return remove_snapshot(call, NULL, err);
}

static int snapshot_delete_of(struct call *call, struct err *err)
{
    struct sandbox_view view;
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    box_view(box, &view);
    return remove_snapshot(call, view.id, err);
}

const struct route snapshot_routes[] = {
    { .name = "snapshot.create",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/snapshots",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = snapshot_post,
      .takes = snapshot_wish_fields,
      .gives = snapshot_fields,
      .flags = ROUTE_CREATES,
      .summary = "Keep the files of a sandbox as they are now, under a name. What runs is frozen "
                 "for that moment. Volumes are not part of it." },
    { .name = "snapshot.list_of",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/snapshots",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = snapshot_list_of,
      .items = snapshot_fields,
      .query = PAGE_QUERY,
      .summary = "The snapshots of a sandbox, oldest first: " PAGE_SUMMARY },
    { .name = "snapshot.delete_of",
      .method = "DELETE",
      .path = "/api/v1/sandboxes/{id}/snapshots/{snapshot}",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = snapshot_delete_of,
      .gives = snapshot_fields,
      .summary = "Remove a snapshot of a sandbox, by name or id." },
    { .name = "snapshot.list",
      .method = "GET",
      .path = "/api/v1/snapshots",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = snapshot_list,
      .items = snapshot_fields,
      .query = PAGE_QUERY,
      .summary = "All snapshots of the caller, oldest first; they outlive their "
                 "sandboxes: " PAGE_SUMMARY },
    { .name = "snapshot.delete",
      .method = "DELETE",
      .path = "/api/v1/snapshots/{snapshot}",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = snapshot_delete,
      .gives = snapshot_fields,
      .summary = "Remove a snapshot, by id, or by a name that only one has." },
    { 0 },
};

/* ---- disks that no row names ---- */

struct aside_view {
    int64_t number, found_at;
};

static const struct field aside_fields[] = {
    FIELD(aside_view, number, F_INT, F_READONLY, .help = "The number of the disk"),
    FIELD(aside_view, found_at, F_TIME, F_READONLY, .help = "When a start first found it"),
    { 0 },
};

static int aside_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct disk_aside *aside = NULL;

    (void)err;
    json_open_list(&json, "items");
    while ((aside = disk_aside_next(call->api->boxes, aside))) {
        struct aside_view view = { (int64_t)aside->number, aside->found_ms };

        field_encode(aside_fields, &view, &json);
    }
    json_close_list(&json);
    return 0;
}

static int aside_delete(struct call *call, struct err *err)
{
    const char *text = call_param(call, "number");
    struct disk_aside *aside = NULL;
    struct aside_view view = { 0 };

    if (!str_to_i64(str_of(text), &view.number) || view.number <= 0)
        return err_field(err, "number", "must be a number, as `atoll disk ls` shows it");
    while ((aside = disk_aside_next(call->api->boxes, aside)))
        if (aside->number == (uint64_t)view.number)
            view.found_at = aside->found_ms;
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "disk/%s", text);
    return disk_aside_drop(call->api->boxes, (uint64_t)view.number, &disk_call_new(call, NULL)->op,
                           err);
}

const struct route aside_routes[] = {
    { .name = "disk.list",
      .method = "GET",
      .path = "/api/v1/disks",
      .on = ON_LOOP,
      .roles = ROLE_PEOPLE,
      .fn = aside_list,
      .items = aside_fields,
      .flags = ROUTE_NODE,
      .summary = "Disks that the database does not name, as after a restore of an older backup. "
                 "They are kept aside." },
    { .name = "disk.delete",
      .method = "DELETE",
      .path = "/api/v1/disks/{number}",
      .on = ON_LATER,
      .roles = ROLE_ADMIN,
      .fn = aside_delete,
      .gives = aside_fields,
      .flags = ROUTE_NODE,
      .summary = "Remove a disk that is kept aside, and what is in it, for ever." },
    { 0 },
};
