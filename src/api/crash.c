/* How sandboxes crashed: the ends of their process 1 that nobody asked for. */
#include "api/own.h"

#include "box/boxes.h"

static void put_crash(void *ctx, const struct crash_view *view)
{
    field_encode(crash_fields, view, ctx);
}

static int crash_list(struct call *call, struct err *err)
{
    autoquery struct query *q =
        db_query(call->db, "SELECT id FROM sandbox WHERE tenant = $1 AND (id = $2 OR name = $2)");
    struct json_out json = call_json(call);
    const char *text = call_param(call, "id");
    int rc;

    query_text(q, 1, call->who.tenant);
    query_text(q, 2, text);
    rc = query_step(q, err);
    if (rc < 0)
        return -1;
    if (rc == 0 || (call->within && !within_has(call->within, query_col_str(q, 0))))
        return err_set(err, ERR_NOT_FOUND, "no sandbox %.64s", text);
    json_open_list(&json, "items");
    if (crashes_each(call->db, call->who.tenant, query_col_dup(q, 0, &call->arena), put_crash,
                     &json, err) < 0)
        return -1;
    json_close_list(&json);
    return 0;
}

const struct route crash_routes[] = {
    { .name = "sandbox.crashes",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/crashes",
      .on = ON_READER,
      .roles = ROLE_LOOK,
      .fn = crash_list,
      .items = crash_fields,
      .flags = ROUTE_WITHIN,
      .summary = "When and how its process 1 died by itself, newest first; the last 100." },
    { 0 },
};
