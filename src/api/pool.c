/*
 * Pools of warm sandboxes: a setting of the whole server, stored like any change, effective when it
 * is on disk.
 */
#include "api/own.h"

#include "box/pool.h"

static struct boxes *boxes_of(const struct call *call)
{
    return call->api->boxes;
}

/* Runs on the loop thread before the write: what can be refused is refused here. */
struct pool_call {
    struct pool_wish wish;
    struct store_job job;
    struct call *call;
};

static int put_run(struct store_job *job, struct db *db, struct err *err)
{
    struct pool_call *put = container_of(job, struct pool_call, job);

    if (pool_row_set(db, call_param(put->call, "name"), &put->wish, err) < 0)
        return -1;
    return call_record(put->call, db, err);
}

static void put_done(struct store_job *job)
{
    struct pool_call *put = container_of(job, struct pool_call, job);

    if (job->rc >= 0)
        pool_set(boxes_of(put->call), call_param(put->call, "name"), &put->wish);
    call_finish(put->call, job->rc < 0 ? &job->err : NULL);
}

static int pool_put(struct call *call, struct err *err)
{
    struct pool_call *put = arena_new(&call->arena, struct pool_call);
    const char *name = call_param(call, "name");

    put->call = call;
    if (call_decode(call, &put->wish, err) < 0 ||
        pool_check(boxes_of(call), call->who.tenant, name, &put->wish, err) < 0)
        return -1;
    struct pool_view view = { .name = name,
                              .size = put->wish.size,
                              .image = put->wish.image,
                              .user = put->wish.user,
                              .storage = put->wish.storage };
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "pool/%s", name);
    put->job = (struct store_job){ .run = put_run, .done = put_done };
    store_write(call->api->store, &put->job);
    return 0;
}

static int pool_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct pool *pool = NULL;

    (void)err;
    json_open_list(&json, "items");
    while ((pool = pool_next(boxes_of(call), pool))) {
        struct pool_view view;

        pool_view(pool, &view);
        field_encode(pool_fields, &view, &json);
    }
    json_close_list(&json);
    return 0;
}

const struct route pool_routes[] = {
    { .name = "pool.list",
      .method = "GET",
      .path = "/api/v1/pools",
      .on = ON_LOOP,
      .roles = ROLE_PEOPLE,
      .fn = pool_list,
      .items = pool_fields,
      .flags = ROUTE_NODE,
      .summary = "The pools of warm sandboxes, and how many stand ready." },
    { .name = "pool.set",
      .method = "PUT",
      .path = "/api/v1/pools/{name}",
      .on = ON_LATER,
      .roles = ROLE_ADMIN,
      .fn = pool_put,
      .takes = pool_wish_fields,
      .gives = pool_fields,
      .flags = ROUTE_NODE,
      .summary = "Make, change or (size 0) remove a pool. Creations of the same image, user and "
                 "storage take a warm sandbox from it." },
    { 0 },
};
