/*
 * Images: imported from an upload that is passed on as it comes, listed, looked at, removed. The
 * upload goes no faster than the unpacker reads it (box/image.h), and none of it is ever held here.
 */
#include "api/own.h"

#include "box/image.h"
#include "http/url.h"

/* ---- looking ---- */

static int call_image(struct call *call, struct image **out, struct err *err)
{
    struct str name;

    /* All that is left of the path, as it was sent: slashes as such, or as %2F. */
    if (!url_decode(&call->arena, str_of(call_param(call, "name")), false, &name))
        return err_set(err, ERR_NOT_FOUND, "no such image");
    return image_find(call->api->boxes, call->who.tenant,
                      arena_memdup0(&call->arena, name.p ? name.p : "", name.n), out, err);
}

static int image_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct image *image = NULL;

    (void)err;
    json_open_list(&json, "items");
    while ((image = image_next(call->api->boxes, call->who.tenant, image))) {
        struct image_view view;

        image_view(image, &view);
        field_encode(image_fields, &view, &json);
    }
    json_close_list(&json);
    return 0;
}

static int image_get(struct call *call, struct err *err)
{
    struct image_view view;
    struct image *image;

    if (call_image(call, &image, err) < 0)
        return -1;
    image_view(image, &view);
    return call_reply(call, &view);
}

/* ---- changes ---- */

struct upload {
    struct image_op op;
    struct call *call;
    struct image_import *import;
    struct buf rest; /* not yet taken */
    bool last, eof, paused;
};

static int upload_record(struct image_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct upload, op)->call, db, err);
}

static void upload_prepare(struct image_op *op)
{
    struct call *call = container_of(op, struct upload, op)->call;
    struct image_view view;

    image_view(op->image, &view);
    buf_clear(&call->reply);
    if (call->route->gives)
        call_reply(call, &view);
    call->object = arena_printf(&call->arena, "image/%s", view.name);
    call->detail = arena_printf(&call->arena, "{\"digest\":\"%s\"}", view.digest);
}

static void upload_done(struct image_op *op, const struct err *err)
{
    struct upload *upload = container_of(op, struct upload, op);
    struct call *call = upload->call;

    buf_free(&upload->rest);
    free(upload);
    call_finish(call, err);
}

static void upload_push(struct upload *upload)
{
    struct http_req *req = upload->call->req;

    while (upload->rest.len) {
        size_t took = image_import_put(upload->import, buf_view(&upload->rest));

        if (!took)
            break;
        buf_consume(&upload->rest, took);
    }
    bool full = upload->rest.len > 0;
    if (req && !upload->last && full != upload->paused) {
        upload->paused = full;
        if (full)
            http_read_pause(req);
        else
            http_read_resume(req);
    }
    if (upload->last && !full && !upload->eof) {
        upload->eof = true;
        image_import_eof(upload->import);
    }
}

static void upload_room(struct image_op *op)
{
    upload_push(container_of(op, struct upload, op));
}

static void upload_body(struct http_req *req, struct str data, bool last)
{
    struct upload *upload = req->app;

    buf_str(&upload->rest, data);
    upload->last = last;
    upload_push(upload);
}

/* Who leaves with the upload unfinished wants nothing; who leaves after it may come back for it. */
static void upload_gone(struct http_req *req)
{
    struct upload *upload = req->app;
    struct call *call = upload->call;

    call->req = NULL;
    if (upload->eof)
        return; /* upload_done frees both */
    image_import_drop(upload->import);
    buf_free(&upload->rest);
    free(upload);
    call_free(call);
}

static int image_post(struct call *call, struct err *err)
{
    const char *name = call_query(call, "name");

    if (!name)
        return err_field(err, "name", "must be given, as in ?name=debian");
    struct upload *upload = xnew(struct upload);
    upload->call = call;
    upload->op = (struct image_op){ .tenant = call->who.tenant,
                                    .by = call->who.id,
                                    .prepare = upload_prepare,
                                    .record = upload_record,
                                    .room = upload_room,
                                    .done = upload_done };
    if (image_import(call->api->boxes, name, &upload->op, &upload->import, err) < 0) {
        free(upload);
        return -1;
    }
    call->peer = arena_strdup(&call->arena, call->req->peer->text); /* for another thread */
    call->req->app = upload;
    call->req->on_gone = upload_gone;
    http_read_stream(call->req, IMAGE_UPLOAD_MAX, upload_body);
    return 0;
}

struct pending {
    struct image_op op;
    struct call *call;
};

static int pending_record(struct image_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct pending, op)->call, db, err);
}

static void pending_prepare(struct image_op *op)
{
    struct call *call = container_of(op, struct pending, op)->call;
    struct image_view view;

    image_view(op->image, &view);
    buf_clear(&call->reply);
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "image/%s", view.name);
}

static void pending_done(struct image_op *op, const struct err *err)
{
    call_finish(container_of(op, struct pending, op)->call, err);
}

static int image_delete(struct call *call, struct err *err)
{
    struct pending *pending = arena_new(&call->arena, struct pending);
    struct image *image;

    if (call_image(call, &image, err) < 0)
        return -1;
    if (!reach_owns(call_reach(call), image->tenant, image->by, &(struct access){ 0 }))
        return err_role(err, "only an operator may remove an image that another principal made");
    pending->call = call;
    pending->op = (struct image_op){ .tenant = call->who.tenant,
                                     .by = call->who.id,
                                     .prepare = pending_prepare,
                                     .record = pending_record,
                                     .done = pending_done };
    return image_remove(image, &pending->op, err);
}

const struct route image_routes[] = {
    { .name = "image.import",
      .method = "POST",
      .path = "/api/v1/images",
      .on = ON_STREAM,
      .roles = ROLE_USE,
      .fn = image_post,
      .gives = image_fields,
      .query = "name:string",
      .flags = ROUTE_BODY | ROUTE_CREATES,
      .summary = "The body, a root tree, a `docker save` archive or an OCI layout as tar (plain, "
                 "gzip, xz, zstd), becomes the image `name`. Answered when it is unpacked; "
                 "`image.progress` events tell how far it is, and `image.failed` why it failed." },
    { .name = "image.list",
      .method = "GET",
      .path = "/api/v1/images",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = image_list,
      .items = image_fields,
      .summary = "The images, oldest first." },
    { .name = "image.read",
      .method = "GET",
      .path = "/api/v1/images/{name*}",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = image_get,
      .flags = ROUTE_SLASHES,
      .gives = image_fields,
      .summary = "One image; a name with slashes as it is, or with %2F for each." },
    { .name = "image.delete",
      .method = "DELETE",
      .path = "/api/v1/images/{name*}",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = image_delete,
      .flags = ROUTE_SLASHES,
      .gives = image_fields,
      .summary = "Remove it, and the layers that no other image has. 409 while a sandbox or a "
                 "snapshot needs it." },
    { 0 },
};
