/* Templates: wishes for sandboxes under a name. Stored like any change, in use when on disk. */
#include "api/egress.h"

#include "base/clock.h"
#include "box/template.h"

struct template_call {
    struct store_job job;
    struct call *call;
    struct template_row row; /* without a text: it goes */
};

static int put_run(struct store_job *job, struct db *db, struct err *err)
{
    struct template_call *put = container_of(job, struct template_call, job);
    const struct template_row *row = &put->row;

    if ((row->text ? template_row_set(db, row, err)
                   : template_row_remove(db, row->tenant, row->name, err)) < 0)
        return -1;
    return call_record(put->call, db, err);
}

static void put_done(struct store_job *job)
{
    struct template_call *put = container_of(job, struct template_call, job);
    struct boxes *boxes = put->call->api->boxes;
    struct err err = job->err;

    if (job->rc >= 0 && !put->row.text)
        template_remove(boxes, put->row.tenant, put->row.name);
    else if (job->rc >= 0 && template_set(boxes, &put->row, &err) < 0)
        job->rc = -1;
    call_finish(put->call, job->rc < 0 ? &err : NULL);
}

static int submit(struct call *call, const struct template_view *view, const char *text)
{
    struct template_call *put = arena_new(&call->arena, struct template_call);

    put->call = call;
    put->row =
        (struct template_row){ call->who.tenant, view->name, call->who.id, text, view->changed_at };
    call_reply(call, view);
    call->object = arena_printf(&call->arena, "template/%s", view->name);
    put->job = (struct store_job){ .run = put_run, .done = put_done };
    store_write(call->api->store, &put->job);
    return 0;
}

/* Templates are read by the whole tenant; besides operators, their makers change them. */
static int may_change(struct call *call, const char *name, struct err *err)
{
    struct template *template;
    struct template_view view;

    if (template_find(call->api->boxes, call->who.tenant, name, &template, &(struct err){ 0 }) < 0)
        return 0;
    template_view(template, &view);
    if (reach_owns(call_reach(call), call->who.tenant, view.by, &(struct access){ 0 }))
        return 0;
    return err_role(err, "only an operator may change a template that another principal made");
}

static int template_put(struct call *call, struct err *err)
{
    struct sandbox_spec spec = { 0 };
    const char *name = call_param(call, "template_name");

    if (may_change(call, name, err) < 0)
        return -1;
    if (call_decode(call, &spec, err) < 0 || egress_may(call, spec.egress, "egress.", err) < 0 ||
        egress_secrets(call, spec.egress, "egress.", err) < 0 || may_wish(call, &spec, err) < 0 ||
        template_check(call->api->boxes, call->who.tenant, name, &spec, err) < 0)
        return -1;
    struct template_view view = { arena_strdup(&call->arena, name), call->who.id, &spec,
                                  clock_wall_ms() };
    return submit(call, &view, arena_memdup0(&call->arena, call->body.p, call->body.n));
}

static int call_template(struct call *call, struct template_view *out, struct err *err)
{
    struct template *template;

    if (template_find(call->api->boxes, call->who.tenant, call_param(call, "template_name"),
                      &template, err) < 0)
        return -1;
    template_view(template, out);
    return 0;
}

static int template_delete(struct call *call, struct err *err)
{
    struct template_view view;

    if (call_template(call, &view, err) < 0 || may_change(call, view.name, err) < 0)
        return -1;
    view.name = arena_strdup(&call->arena, view.name);
    return submit(call, &view, NULL);
}

static int template_get(struct call *call, struct err *err)
{
    struct template_view view;

    return call_template(call, &view, err) < 0 ? -1 : call_reply(call, &view);
}

static int template_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct template *template = NULL;

    (void)err;
    json_open_list(&json, "items");
    while ((template = template_next(call->api->boxes, call->who.tenant, template))) {
        struct template_view view;

        template_view(template, &view);
        field_encode(template_fields, &view, &json);
    }
    json_close_list(&json);
    return 0;
}

const struct route template_routes[] = {
    { .name = "template.list",
      .method = "GET",
      .path = "/api/v1/templates",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = template_list,
      .items = template_fields,
      .summary = "Wishes for sandboxes that have a name, by name." },
    { .name = "template.read",
      .method = "GET",
      .path = "/api/v1/templates/{template_name}",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = template_get,
      .gives = template_fields,
      .summary = "One template." },
    { .name = "template.set",
      .method = "PUT",
      .path = "/api/v1/templates/{template_name}",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = template_put,
      .takes = sandbox_spec_fields,
      .gives = template_fields,
      .summary = "Make or change a template: the body is a wish for a sandbox, without `name`, "
                 "`template` and `binds`. Sandboxes made of it before do not change." },
    { .name = "template.delete",
      .method = "DELETE",
      .path = "/api/v1/templates/{template_name}",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = template_delete,
      .gives = template_fields,
      .summary = "Remove a template; sandboxes made of it stay." },
    { 0 },
};
