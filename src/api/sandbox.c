/*
 * Sandboxes. What only looks is answered from memory; what changes something goes through the box
 * room and is answered when it is done and stored. The audit row and the idempotent answer are
 * written in the transaction of the change itself.
 */
#include "api/egress.h"
#include "api/page.h"

#include <stdio.h>

#include "base/clock.h"
#include "box/boxes.h"

/* A call that waits for the box room. */
struct pending {
    struct box_op op;
    struct call *call;
    struct box_usage usage;
    struct box_applied applied;
    const char *id;           /* of the sandbox that `applied` is about */
    struct sandbox_view view; /* of it: numbers and words of ours, the box may go meanwhile */
};

static int pending_record(struct box_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct pending, op)->call, db, err);
}

static void pending_done(struct box_op *op, const struct err *err)
{
    call_finish(container_of(op, struct pending, op)->call, err);
}

static void put_view(struct call *call, const struct box *box)
{
    struct sandbox_view view;

    box_view(box, &view);
    view.egress_mode = policy_mode_name(gate_mode(call->api->gate, box));
    buf_clear(&call->reply);
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "sandbox/%s", view.id);
    call->detail = layers_detail(&call->arena, box_without(box));
}

static void pending_prepare(struct box_op *op)
{
    put_view(container_of(op, struct pending, op)->call, op->box);
}

static struct pending *pending_new(struct call *call)
{
    struct pending *pending = arena_new(&call->arena, struct pending);

    pending->call = call;
    pending->op = (struct box_op){ .tenant = call->who.tenant,
                                   .by = call->who.id,
                                   .reach = call_reach(call),
                                   .role = role_name(call->who.role),
                                   .prepare = pending_prepare,
                                   .record = pending_record,
                                   .done = pending_done };
    return pending;
}

struct box_op *call_op(struct call *call)
{
    return &pending_new(call)->op;
}

struct call *call_of(struct box_op *op)
{
    return container_of(op, struct pending, op)->call;
}

/* The same without a trace: looking at what it uses does not keep it awake. */
static int look_at_box(struct call *call, struct box **out, struct err *err)
{
    struct sandbox_view view;

    if (boxes_find_prefix(call->api->boxes, call_reach(call), call_param(call, "id"), out, err) < 0)
        return -1;
    box_view(*out, &view);
    return call_whole(call, "id", view.id, view.name, err);
}

int call_whole(struct call *call, const char *param, const char *id, const char *name,
               struct err *err)
{
    const char *said = call_param(call, param);

    if (strcmp(call->route->method, "DELETE") != 0 && !(call->route->flags & ROUTE_WHOLE))
        return 0;
    if (strcmp(said, id) == 0 || (name && strcmp(said, name) == 0))
        return 0;
    return err_set(err, ERR_NOT_FOUND,
                   "\"%.64s\" is the beginning of an id; this call needs the whole id or the name",
                   said);
}

int call_box(struct call *call, struct box **out, struct err *err)
{
    if (look_at_box(call, out, err) < 0)
        return -1;
    box_touch(*out);
    return 0;
}

struct waking {
    struct box_op op;
    struct call *call;
    route_fn then;
};

static void woken(struct box_op *op, const struct err *failed)
{
    struct waking *waking = container_of(op, struct waking, op);
    struct err err = { 0 };

    if (failed && waking->call->route->on == ON_STREAM)
        err = *failed; /* that it ends is for `then`, too */
    else if (failed) {
        call_finish(waking->call, failed);
        return;
    }
    if (waking->then(waking->call, &err) < 0)
        call_finish(waking->call, &err);
}

int call_awake(struct call *call, route_fn then, struct err *err)
{
    struct waking *waking = arena_new(&call->arena, struct waking);
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    *waking = (struct waking){ { .tenant = call->who.tenant, .by = call->who.id, .done = woken },
                               call,
                               then };
    int rc = box_wake(box, &waking->op, err);
    return rc == 1 ? then(call, err) : rc;
}

/* ---- changes ---- */

static int sandbox_post(struct call *call, struct err *err)
{
    struct sandbox_spec spec = { 0 };

    if (call_decode(call, &spec, err) < 0 || egress_may(call, spec.egress, "egress.", err) < 0 ||
        egress_secrets(call, spec.egress, "egress.", err) < 0 || may_wish(call, &spec, err) < 0 ||
        may_own(call, &spec.access, err) < 0)
        return -1;
    return boxes_create(call->api->boxes, &spec, &pending_new(call)->op, err);
}

static int change(struct call *call, int (*fn)(struct box *, struct box_op *, struct err *),
                  struct err *err)
{
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    return fn(box, &pending_new(call)->op, err);
}

static int pause_post(struct call *call, struct err *err)
{
    return change(call, box_pause, err);
}

static int resume_post(struct call *call, struct err *err)
{
    return change(call, box_resume, err);
}

static int start_post(struct call *call, struct err *err)
{
    return change(call, box_start, err);
}

static int stop_post(struct call *call, struct err *err)
{
    return change(call, box_stop, err);
}

static int sandbox_delete(struct call *call, struct err *err)
{
    return change(call, box_delete, err);
}

/* ---- looking ---- */

/* What the sandboxes of a list have in common; NULL: any. */
struct wanted {
    const char *state, *label, *name;
};

static bool labelled(const struct field_pair *labels, const char *wanted)
{
    struct str value = str_of(wanted), key = str_cut(&value, '=');
    bool valued = strchr(wanted, '=');

    for (; labels && labels->key; labels++)
        if (str_is(key, labels->key) && (!valued || str_is(value, labels->value)))
            return true;
    return false;
}

static bool fits(const struct wanted *wanted, const struct sandbox_view *view)
{
    if (wanted->state && strcmp(view->state, wanted->state) != 0)
        return false;
    if (wanted->name &&
        (!view->name || strncmp(view->name, wanted->name, strlen(wanted->name)) != 0))
        return false;
    return !wanted->label || labelled(view->labels, wanted->label);
}

static int sandbox_list(struct call *call, struct err *err)
{
    struct wanted wanted = { call_query(call, "state"), call_query(call, "label"),
                             call_query(call, "name") };
    enum sandbox_state state;
    struct sandbox_view view;
    struct page page;

    if (wanted.state && !sandbox_state_parse(str_of(wanted.state), &state))
        return err_field(err, "state", "creating, running, paused, stopped or failed");
    if (page_open(&page, call, "sb", err) < 0)
        return -1;
    struct box *box = page.after ? boxes_upto(call->api->boxes, page.after) : NULL;
    while ((box = boxes_next(call->api->boxes, call_reach(call), box))) {
        box_view(box, &view);
        view.egress_mode = policy_mode_name(gate_policy(call->api->gate, box, NULL)->mode);
        if (!page_take(&page, view.id, fits(&wanted, &view), &view))
            break;
    }
    page_close(&page);
    return 0;
}

static int sandbox_get(struct call *call, struct err *err)
{
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    put_view(call, box);
    return 0;
}

/* ---- what the kernel says ---- */

static void stats_done(struct box_op *op, const struct err *err)
{
    struct pending *pending = container_of(op, struct pending, op);
    const struct box_usage *usage = &pending->usage;
    struct stats_view view = { .cpu_us = (int64_t)usage->cpu_us,
                               .memory = (int64_t)usage->memory,
                               .memory_peak = (int64_t)usage->memory_peak,
                               .pids = (int64_t)usage->pids,
                               .oom_kills = (int64_t)usage->oom_kills,
                               .disk = (int64_t)usage->disk };
    struct io_use io = { (int64_t)usage->io_read, (int64_t)usage->io_written };

    if (usage->io_read != UINT64_MAX)
        view.io = &io;
    if (!err)
        call_reply(pending->call, &view);
    call_finish(pending->call, err);
}

static int stats_get(struct call *call, struct err *err)
{
    struct pending *pending = pending_new(call);
    struct box *box;

    if (look_at_box(call, &box, err) < 0)
        return -1;
    pending->op.done = stats_done;
    return box_stats(box, &pending->usage, &pending->op, err);
}

static void put_limit(struct json_out *json, const char *key, uint64_t value)
{
    json_key(json, key);
    if (value > INT64_MAX)
        json_put_null(json);
    else
        json_put_int(json, (int64_t)value);
}

static void put_hex(struct json_out *json, const char *key, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%016llx", (unsigned long long)value);
    json_kv_text(json, key, text);
}

static void put_namespaces(struct json_out *json, const struct box_applied *applied)
{
    static const char *const names[BOX_NS_COUNT] = { "pid", "mnt",    "net", "ipc",
                                                     "uts", "cgroup", "user" };

    json_key(json, "namespaces");
    json_open(json, '{');
    for (size_t i = 0; i < BOX_NS_COUNT; i++) {
        json_key(json, names[i]);
        json_open(json, '{');
        json_kv_int(json, "inode", (int64_t)applied->ns[i]);
        json_kv_bool(json, "own", applied->own_ns >> i & 1);
        json_close(json, '}');
    }
    json_close(json, '}');
}

static void put_capabilities(struct json_out *json, const struct box_applied *applied)
{
    static const char *const names[BOX_CAPS_COUNT] = { "inheritable", "permitted", "effective",
                                                       "bounding", "ambient" };

    json_key(json, "capabilities");
    json_open(json, '{');
    for (size_t i = 0; i < BOX_CAPS_COUNT; i++)
        put_hex(json, names[i], applied->caps[i]);
    json_close(json, '}');
}

static void put_limits(struct json_out *json, const struct box_applied *applied)
{
    json_key(json, "limits");
    json_open(json, '{');
    put_limit(json, "memory", applied->memory);
    put_limit(json, "pids", applied->pids);
    json_key(json, "cpu_percent");
    if (applied->cpu_quota_us && applied->cpu_period_us)
        json_put_int(json, (int64_t)(applied->cpu_quota_us * 100 / applied->cpu_period_us));
    else
        json_put_null(json);
    put_limit(json, "io_bytes", applied->io_bytes);
    put_limit(json, "io_ops", applied->io_ops);
    put_limit(json, "nofile", applied->nofile);
    put_limit(json, "core", applied->core);
    put_limit(json, "disk", applied->disk);
    put_limit(json, "inodes", applied->inodes);
    json_close(json, '}');
}

static void put_applied(struct json_out *json, const struct sandbox_view *view,
                        const struct box_applied *applied, const struct layers_egress *egress)
{
    char digest[sizeof(applied->seccomp_digest) + 1] = "";
    char mode[sizeof(applied->cgroup_mode) + 1] = "";

    memcpy(digest, applied->seccomp_digest, sizeof(applied->seccomp_digest));
    memcpy(mode, applied->cgroup_mode, sizeof(applied->cgroup_mode));
    json_open(json, '{');
    put_namespaces(json, applied);
    put_capabilities(json, applied);
    json_kv_int(json, "uid_first", applied->uid_first);
    json_kv_int(json, "uid_count", applied->uid_count);
    json_kv_int(json, "gid_first", applied->gid_first);
    json_kv_int(json, "gid_count", applied->gid_count);
    json_kv_int(json, "uid", applied->uid);
    json_kv_int(json, "seccomp_mode", applied->seccomp_mode);
    json_kv_int(json, "seccomp_filters", applied->seccomp_filters);
    json_kv_text(json, "seccomp_digest", digest[0] ? digest : NULL);
    json_kv_bool(json, "no_new_privs", applied->no_new_privs);
    json_kv_int(json, "landlock_abi", applied->landlock_abi);
    json_kv_int(json, "mounts", applied->mounts);
    json_kv_int(json, "mounts_writable", applied->mounts_writable);
    json_kv_int(json, "oom_score_adj", applied->oom_score_adj);
    json_kv_text(json, "cgroup_mode", mode);
    put_limits(json, applied);
    json_key(json, "layers");
    layers_put(json, view, applied, egress);
    json_close(json, '}');
}

static struct layers_egress egress_of(const struct api *api, const char *id)
{
    const struct box *box = boxes_by_id(api->boxes, id);

    if (!box) /* it has gone since it was asked about */
        return (struct layers_egress){ .mode = "deny" };
    struct gate_holds holds = gate_holds(api->gate, box);
    return (struct layers_egress){ policy_mode_name(gate_policy(api->gate, box, NULL)->mode),
                                   holds.version, holds.held, gate_linked(api->gate),
                                   holds.steered };
}

static void applied_done(struct box_op *op, const struct err *err)
{
    struct pending *pending = container_of(op, struct pending, op);
    struct json_out json = call_json(pending->call);

    if (!err) {
        struct layers_egress egress = egress_of(pending->call->api, pending->id);

        put_applied(&json, &pending->view, &pending->applied, &egress);
    }
    call_finish(pending->call, err);
}

static int applied_get(struct call *call, struct err *err)
{
    struct pending *pending = pending_new(call);
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    pending->op.done = applied_done;
    box_view(box, &pending->view);
    pending->id = arena_strdup(&call->arena, pending->view.id);
    return box_applied(box, &pending->applied, &pending->op, err);
}

const struct route sandbox_routes[] = {
    { .name = "sandbox.create",
      .method = "POST",
      .path = "/api/v1/sandboxes",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = sandbox_post,
      .takes = sandbox_spec_fields,
      .gives = sandbox_fields,
      .flags = ROUTE_CREATES,
      .summary = "Make a sandbox; answered when it runs." },
    { .name = "sandbox.list",
      .method = "GET",
      .path = "/api/v1/sandboxes",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = sandbox_list,
      .items = sandbox_fields,
      .query = "state:string,label:string,name:string," PAGE_QUERY,
      .summary = "The caller's sandboxes, oldest first: all, or those with a `label` (KEY or "
                 "KEY=VALUE), a `state`, a `name` that begins so; " PAGE_SUMMARY },
    { .name = "sandbox.read",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = sandbox_get,
      .gives = sandbox_fields,
      .summary = "One sandbox, by id, by name, or by the beginning of its id. Calls that stop or "
                 "delete something take the whole id or the name." },
    { .name = "sandbox.delete",
      .method = "DELETE",
      .path = "/api/v1/sandboxes/{id}",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = sandbox_delete,
      .gives = sandbox_fields,
      .summary = "Kill everything in it and forget it, its commands and their output." },
    { .name = "sandbox.pause",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/pause",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = pause_post,
      .flags = ROUTE_WHOLE,
      .gives = sandbox_fields,
      .summary = "Freeze every process in it." },
    { .name = "sandbox.resume",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/resume",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = resume_post,
      .gives = sandbox_fields,
      .summary = "Let it go on after a pause." },
    { .name = "sandbox.stop",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/stop",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = stop_post,
      .flags = ROUTE_WHOLE,
      .gives = sandbox_fields,
      .summary = "Kill everything in it. Its files, its commands and their output stay; refused "
                 "with storage memory, where the files would not." },
    { .name = "sandbox.start",
      .method = "POST",
      .path = "/api/v1/sandboxes/{id}/start",
      .on = ON_LATER,
      .roles = ROLE_USE,
      .fn = start_post,
      .gives = sandbox_fields,
      .summary = "Let a stopped one run again, with the files and limits it had and its volumes." },
    { .name = "sandbox.stats",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/stats",
      .on = ON_LATER,
      .roles = ROLE_LOOK,
      .fn = stats_get,
      .gives = stats_fields,
      .summary = "What it uses now, as the kernel counts it." },
    { .name = "sandbox.applied",
      .method = "GET",
      .path = "/api/v1/sandboxes/{id}/applied",
      .on = ON_LATER,
      .roles = ROLE_LOOK,
      .fn = applied_get,
      .summary = "What isolates it, read back from the kernel: namespaces, capabilities, filters, "
                 "mounts, limits." },
    { 0 },
};
