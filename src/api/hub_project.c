/* The hub's projects, their files, and leases on their paths. */
#include "api/hub_call.h"

#include "http/url.h"

static const char *project_object(struct call *call)
{
    return arena_printf(&call->arena, "project/%.64s", call_param(call, "project"));
}

/* ---- projects ---- */

static int project_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_project project = { 0 };
    struct json_out json = call_json(call);

    if (hub_take(call, &project, NULL, err) < 0)
        return -1;
    hub_note(call, project.creator, "name", project.name, NULL);
    if (hub_project_create(&by, &project, err) < 0)
        return -1;
    call->object = arena_printf(&call->arena, "project/%s", project.id);
    static const struct field made[] = {
        FIELD(hub_project, id, F_STRING, 0),
        FIELD(hub_project, name, F_STRING, 0),
        FIELD(hub_project, created_at, F_NAIVE, 0),
        { 0 },
    };
    field_encode(made, &project, &json);
    return 0;
}

static int projects_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);

    return hub_list_end(&list,
                        hub_projects(&by, call_query(call, "agent"), hub_put_item, &list, err));
}

static int project_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_project project;

    return hub_project_get(&by, call_param(call, "project"), &project, err) < 0
               ? -1
               : call_reply(call, &project);
}

static int project_delete(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);

    hub_note(call, hub_who(&by, NULL), "project", call_param(call, "project"), NULL);
    call->object = project_object(call);
    if (hub_project_delete(&by, call_param(call, "project"), err) < 0)
        return -1;
    return hub_ok(call);
}

static int join_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_agent_named wish = { 0 };

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, wish.agent, "project", call_param(call, "project"), NULL);
    call->object = project_object(call);
    if (hub_project_join(&by, call_param(call, "project"), wish.agent, err) < 0)
        return -1;
    return hub_ok(call);
}

static int wip_patch(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_wip_wish wish = { 0 };

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, HUB_HUMAN, "project", call_param(call, "project"), "status", wish.status, NULL);
    call->object = project_object(call);
    if (hub_wip_set(&by, call_param(call, "project"), &wish, err) < 0)
        return -1;
    return hub_ok(call);
}

/* ---- files ---- */

static int file_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_form form;
    struct hub_file file;

    call->object = project_object(call);
    hub_note(call, hub_who(&by, NULL), "project", call_param(call, "project"), NULL);
    if (hub_form_parse(str_of(call->body_type), call->body, &form, err) < 0)
        return -1;
    const char *uploader = form.uploader.n
                               ? arena_memdup0(&call->arena, form.uploader.p, form.uploader.n)
                           : by.agent ? by.agent
                                      : "unknown";
    hub_note(call, str_utf8(form.uploader) ? uploader : NULL, "project",
             call_param(call, "project"), "filename",
             arena_memdup0(&call->arena, form.filename.p, MIN(form.filename.n, (size_t)255)), NULL);
    if (str_has_nul(form.uploader) || !str_utf8(form.uploader))
        return err_set(err, ERR_INVALID, "uploader: must be UTF-8");
    return hub_file_put(&by, call_param(call, "project"), form.filename, uploader, form.data, &file,
                        err) < 0
               ? -1
               : call_reply(call, &file);
}

/* The rest of the path, decoded; a name that cannot be is the name of nothing. */
static int file_name(struct call *call, const char **out, struct err *err)
{
    struct str text;

    if (!url_decode(&call->arena, str_of(call_param(call, "name")), false, &text))
        return err_set(err, ERR_NOT_FOUND, "File not found");
    *out = arena_memdup0(&call->arena, text.p ? text.p : "", text.n);
    return 0;
}

static int put_files(struct call *call, const char *name, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);
    struct hub_project project;
    struct hub_file file;

    if (hub_project_get(&by, call_param(call, "project"), &project, err) < 0 ||
        (name && hub_file_get(&by, project.id, name, 0, &file, NULL, err) < 0))
        return -1;
    return hub_list_end(&list, hub_files(&by, project.id, name, hub_put_item, &list, err));
}

static int files_get(struct call *call, struct err *err)
{
    return put_files(call, NULL, err);
}

static int versions_get(struct call *call, struct err *err)
{
    const char *name;

    return file_name(call, &name, err) < 0 ? -1 : put_files(call, name, err);
}

static int file_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_file file;
    struct str data;
    const char *name;
    int64_t version;

    if (call_query_int(call, "version", 1, INT64_MAX, 0, &version, err) < 0 ||
        file_name(call, &name, err) < 0 ||
        hub_file_get(&by, call_param(call, "project"), name, version, &file, &data, err) < 0)
        return -1;
    call->content_type = "application/octet-stream";
    call_header(call, "etag", arena_printf(&call->arena, "\"%s\"", file.checksum));
    call_header(call, "x-checksum-sha256", file.checksum);
    call_header(call, "x-version", arena_printf(&call->arena, "%lld", (long long)file.version));
    call_header(call, "content-disposition", "attachment");
    buf_str(&call->reply, data);
    return 0;
}

static int file_delete(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *name;

    if (file_name(call, &name, err) < 0)
        return -1;
    hub_note(call, hub_who(&by, NULL), "project", call_param(call, "project"), "filename", name,
             NULL);
    call->object = project_object(call);
    if (hub_file_delete(&by, call_param(call, "project"), name, err) < 0)
        return -1;
    return hub_ok(call);
}

/* ---- leases ---- */

static int lease_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_lease_wish wish = { 0 };
    struct json_out json = call_json(call);
    struct hub_lease lease;

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, wish.agent, "project", call_param(call, "project"), "path", wish.paths[0],
             "mode", wish.mode, NULL);
    call->object = project_object(call);
    int rc = hub_lease_take(&by, call_param(call, "project"), &wish, &lease, err);
    if (rc <= 0)
        return rc < 0 ? -1 : call_reply(call, &lease);
    call->status = 409; /* told here, because whoever is refused is told who stands in the way */
    call->outcome = "conflict";
    json_open(&json, '{');
    json_kv_text(&json, "error",
                 arena_printf(&call->arena, "%s has a lease on %s", lease.agent, lease.paths[0]));
    json_key(&json, "holder");
    field_encode(hub_lease_fields, &lease, &json);
    json_close(&json, '}');
    return 0;
}

static int leases_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);
    struct hub_project project;

    if (hub_project_get(&by, call_param(call, "project"), &project, err) < 0)
        return -1;
    return hub_list_end(&list, hub_leases(&by, project.id, call_query(call, "agent"),
                                          call_query(call, "path"), hub_put_item, &list, err));
}

static int lease_renew(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_lease_wish wish = { 0 };
    struct hub_lease lease;

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, hub_who(&by, NULL), "project", call_param(call, "project"), "lease",
             call_param(call, "id"), NULL);
    call->object = project_object(call);
    return hub_lease_renew(&by, call_param(call, "project"), call_param(call, "id"),
                           wish.ttl_seconds, &lease, err) < 0
               ? -1
               : call_reply(call, &lease);
}

static int lease_delete(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);

    hub_note(call, hub_who(&by, NULL), "project", call_param(call, "project"), "lease",
             call_param(call, "id"), NULL);
    call->object = project_object(call);
    if (hub_lease_release(&by, call_param(call, "project"), call_param(call, "id"), err) < 0)
        return -1;
    return hub_ok(call);
}

#define PROJECT(name_, method_, path_, on_, roles_, fn_, ...)                                      \
    {                                                                                              \
        .name = "hub." name_, .method = method_, .path = "/projects" path_, .on = on_,             \
        .roles = roles_, .fn = fn_, .surface = SURFACE_HUB, __VA_ARGS__                            \
    }

/* clang-format off */
const struct route hub_project_routes[] = {
    PROJECT("create_project", "POST", "", ON_WRITER, ROLE_USE, project_post,
        .takes = hub_project_wish_fields, .flags = ROUTE_CREATES | HUB_CHANGE,
        .summary = "Make a project; its creator is its first member."),
    PROJECT("list_projects", "GET", "", ON_READER, ROLE_LOOK, projects_get,
        .items = hub_project_fields, .query = "agent:string", .flags = ROUTE_BARE,
        .summary = "Projects, oldest first; those that `agent` is a member of."),
    PROJECT("read_project", "GET", "/{project}", ON_READER, ROLE_LOOK, project_get,
        .gives = hub_project_one_fields, .summary = "One with its files and limits."),
    PROJECT("delete_project", "DELETE", "/{project}", ON_WRITER, ROLE_USE, project_delete,
        .takes = hub_nothing, .flags = HUB_CHANGE,
        .summary = "Delete it with its tasks, files and leases."),
    PROJECT("join_project", "POST", "/{project}/join", ON_WRITER, ROLE_USE, join_post,
        .takes = hub_agent_named_fields, .flags = HUB_CHANGE, .summary = "An agent joins in."),
    PROJECT("set_wip", "PATCH", "/{project}/wip", ON_WRITER, ROLE_STEER, wip_patch,
        .takes = hub_wip_fields, .flags = HUB_CHANGE,
        .summary = "How many tasks one agent may have in a column."),
    PROJECT("upload_file", "POST", "/{project}/files", ON_WRITER, ROLE_USE, file_post,
        .gives = hub_uploaded_fields, .flags = ROUTE_RAW | ROUTE_ON_RECORD | ROUTE_ONCE,
        .body_max = HUB_FILE_MAX + 1048576,
        .summary = "multipart/form-data: the part `file`, whose filename is the name, and the field "
                   "`uploader`."),
    PROJECT("list_files", "GET", "/{project}/files", ON_READER, ROLE_LOOK, files_get,
        .items = hub_file_fields, .flags = ROUTE_BARE, .summary = "The newest version of each file."),
    PROJECT("download_file", "GET", "/{project}/files/{name*}", ON_READER, ROLE_LOOK, file_get,
        .query = "version:int", .summary = "Its bytes; of the newest `version`, or an older one."),
    PROJECT("delete_file", "DELETE", "/{project}/files/{name*}", ON_WRITER, ROLE_USE, file_delete,
        .takes = hub_nothing, .flags = HUB_CHANGE, .summary = "With all of its versions."),
    PROJECT("list_versions", "GET", "/{project}/versions/{name*}", ON_READER, ROLE_LOOK,
        versions_get, .items = hub_file_fields, .flags = ROUTE_BARE,
        .summary = "Of one file, newest first."),
    PROJECT("take_lease", "POST", "/{project}/leases", ON_WRITER, ROLE_USE, lease_post,
        .takes = hub_lease_wish_fields, .gives = hub_lease_fields,
        .flags = ROUTE_CREATES | HUB_CHANGE,
        .summary = "Say that paths are about to be edited; 409 with the `holder` when somebody else "
                   "did."),
    PROJECT("list_leases", "GET", "/{project}/leases", ON_READER, ROLE_LOOK, leases_get,
        .items = hub_lease_fields, .query = "agent:string,path:string", .flags = ROUTE_BARE,
        .summary = "Those that hold now; of an `agent`, on a `path`."),
    PROJECT("renew_lease", "POST", "/{project}/leases/{id}/renew", ON_WRITER, ROLE_USE, lease_renew,
        .takes = hub_renew_fields, .gives = hub_lease_fields, .flags = HUB_CHANGE,
        .summary = "For longer, from now."),
    PROJECT("release_lease", "DELETE", "/{project}/leases/{id}", ON_WRITER, ROLE_USE, lease_delete,
        .takes = hub_nothing, .flags = HUB_CHANGE, .summary = "The paths are free again."),
    { 0 },
};
/* clang-format on */
