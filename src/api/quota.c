/*
 * Quotas. Rows about tenants belong to the tenant that owns the server, so that no tenant raises
 * its own; all others are within a tenant. Stored like any change, in effect when on disk.
 */
#include "api/own.h"

#include "base/clock.h"
#include "box/quota.h"

struct quota_call {
    struct store_job job;
    struct call *call;
    struct quota_row row;
    bool remove;
};

static bool owner(const struct call *call)
{
    return strcmp(call->who.tenant, TENANT_OWNER) == 0;
}

static int put_run(struct store_job *job, struct db *db, struct err *err)
{
    struct quota_call *put = container_of(job, struct quota_call, job);
    const struct quota_row *row = &put->row;

    if ((put->remove ? quota_row_remove(db, row->tenant, row->subject, err)
                     : quota_row_set(db, row, err)) < 0)
        return -1;
    return call_record(put->call, db, err);
}

static void put_done(struct store_job *job)
{
    struct quota_call *put = container_of(job, struct quota_call, job);
    struct boxes *boxes = put->call->api->boxes;

    if (job->rc >= 0 && put->remove)
        quota_remove(boxes, put->row.tenant, put->row.subject);
    else if (job->rc >= 0)
        quota_set(boxes, &put->row);
    call_finish(put->call, job->rc < 0 ? &job->err : NULL);
}

static int submit(struct call *call, const struct quota_row *row, bool remove)
{
    struct quota_call *put = arena_new(&call->arena, struct quota_call);

    *put = (struct quota_call){ .call = call, .row = *row, .remove = remove };
    call->object = arena_printf(&call->arena, "quota/%s", row->subject);
    put->job = (struct store_job){ .run = put_run, .done = put_done };
    store_write(call->api->store, &put->job);
    return 0;
}

static int may_change(struct call *call, const char *subject, struct err *err)
{
    if (quota_of_tenants(subject) && !owner(call))
        return err_role(err, "only tenant %s may set quotas of tenants", TENANT_OWNER);
    return 0;
}

static int quota_put(struct call *call, struct err *err)
{
    struct quota_row row = { .tenant = call->who.tenant,
                             .subject = call_param(call, "subject"),
                             .by = call->who.id,
                             .changed_ms = clock_wall_ms() };

    if (may_change(call, row.subject, err) < 0 || call_decode(call, &row.limits, err) < 0 ||
        quota_check(call->api->boxes, row.tenant, row.subject, err) < 0)
        return -1;
    struct quota_view view = {
        .subject = row.subject, .by = row.by, .limits = row.limits, .changed_at = row.changed_ms
    };
    call_reply(call, &view);
    return submit(call, &row, false);
}

static int quota_delete(struct call *call, struct err *err)
{
    const char *subject = call_param(call, "subject");
    struct quota_view view;

    if (may_change(call, subject, err) < 0 ||
        quota_find(call->api->boxes, call->who.tenant, subject, &view, err) < 0)
        return -1;
    call_reply(call, &view);
    return submit(call, &(struct quota_row){ .tenant = call->who.tenant, .subject = subject },
                  true);
}

static void put_view(void *ctx, const struct quota_view *view)
{
    field_encode(quota_fields, view, ctx);
}

static int quota_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);

    (void)err;
    json_open_list(&json, "items");
    quota_each(call->api->boxes, call->who.tenant, owner(call), put_view, &json);
    json_close_list(&json);
    return 0;
}

const struct route quota_routes[] = {
    { .name = "quota.list",
      .method = "GET",
      .path = "/api/v1/quotas",
      .on = ON_LOOP,
      .roles = ROLE_PEOPLE,
      .fn = quota_list,
      .items = quota_fields,
      .summary = "Quotas with what is used of them: the machine (for the tenant that owns the "
                 "server), presets, then rows by subject." },
    { .name = "quota.set",
      .method = "PUT",
      .path = "/api/v1/quotas/{subject}",
      .on = ON_LATER,
      .roles = ROLE_STEER,
      .fn = quota_put,
      .takes = quota_limits_fields,
      .gives = quota_fields,
      .summary = "Set the quota of a subject: tenant:NAME, role:NAME, by:ID or label:KEY=VALUE, "
                 "with * for each of them. What is not named has no limit. Only the tenant that "
                 "owns the server sets quotas of tenants." },
    { .name = "quota.delete",
      .method = "DELETE",
      .path = "/api/v1/quotas/{subject}",
      .on = ON_LATER,
      .roles = ROLE_STEER,
      .fn = quota_delete,
      .gives = quota_fields,
      .summary = "Delete a quota. The preset of role:agent is in effect again." },
    { 0 },
};
