/*
 * Containers as agentic's command line and dashboard know them: one more view of our sandboxes.
 * What is made here is a sandbox with an image; directories of the host and networks are refused by
 * name instead of being left out silently. A first command is one like others: its end is not the
 * container's, and where it cannot be started nothing is left of the container.
 */
#include "api/gentle.h"

#include "base/clock.h"
#include "box/image.h"
#include "model/sandbox.h"

static int find(struct call *call, struct box **out, struct err *err)
{
    const char *name = call_param(call, "name");

    if (boxes_find(call->api->boxes, call_reach(call), name, out, NULL) < 0)
        return err_set(err, ERR_NOT_FOUND, "container not found: %.63s", name);
    return 0;
}

/* ---- looking ---- */

static const char *name_of(const struct sandbox_view *view)
{
    return view->name ? view->name : view->id;
}

static bool runs(const struct sandbox_view *view)
{
    return strcmp(view->state, "running") == 0 || strcmp(view->state, "paused") == 0;
}

static void put(struct json_out *json, const struct sandbox_view *view, const char *command)
{
    char ended[CLOCK_TEXT_SIZE];

    clock_text(view->changed_at, ended);
    json_open(json, '{');
    json_kv_text(json, "id", view->id);
    json_kv_text(json, "name", name_of(view));
    json_kv_text(json, "image", view->image);
    json_kv_text(json, "status", runs(view) ? "running" : "stopped");
    if (!runs(view))
        json_kv_text(json, "finished_at", ended);
    if (command)
        json_kv_text(json, "command_id", command);
    json_close(json, '}');
}

static int container_list(struct call *call, struct err *err)
{
    const char *status = call_query(call, "status");
    struct json_out json = call_json(call);
    struct box *box = NULL;
    int64_t total = 0;

    status = status ? status : "all";
    if (strcmp(status, "all") != 0 && strcmp(status, "running") != 0 &&
        strcmp(status, "stopped") != 0)
        return err_field(err, "status", "running, stopped or all");
    json_open(&json, '{');
    json_key(&json, "containers");
    json_open(&json, '[');
    while ((box = boxes_next(call->api->boxes, call_reach(call), box))) {
        struct sandbox_view view;

        box_view(box, &view);
        if (strcmp(status, "all") != 0 && runs(&view) != (status[0] == 'r'))
            continue;
        put(&json, &view, NULL);
        total++;
    }
    json_close(&json, ']');
    json_kv_int(&json, "total", total);
    json_close(&json, '}');
    return 0;
}

static int container_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct sandbox_view view;
    struct box *box;

    if (find(call, &box, err) < 0)
        return -1;
    box_view(box, &view);
    put(&json, &view, NULL);
    return 0;
}

static int image_list(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct image *image = NULL;

    (void)err;
    json_open_list(&json, "images");
    while ((image = image_next(call->api->boxes, call->who.tenant, image))) {
        json_open(&json, '{');
        json_kv_text(&json, "ref", image->name);
        json_kv_text(&json, "label", image->name);
        json_kv_text(&json, "description", "");
        json_close(&json, '}');
    }
    json_close_list(&json);
    return 0;
}

/* ---- changing ---- */

struct changing {
    struct box_op op;
    struct gentle gentle;
    struct call *call;
    const char *action, *status; /* NULL: it was made, or is gone */
    const char *name, *event;
    int64_t timeout;
    unsigned killed; /* commands that did not end within the timeout */
    bool deletes;
    const char **cmd; /* of one that is being made: what runs first, or NULL */
    const char *id;
    struct err failed;
};

static void put_change(struct changing *changing)
{
    struct json_out json = call_json(changing->call);

    buf_clear(&changing->call->reply);
    json_open(&json, '{');
    json_kv_text(&json, "name", changing->name);
    if (changing->deletes)
        json_kv_bool(&json, "deleted", true);
    if (changing->action)
        json_kv_text(&json, "action", changing->action);
    if (changing->status)
        json_kv_text(&json, "status", changing->status);
    if (changing->timeout >= 0)
        json_kv_int(&json, "timeout", changing->timeout);
    if (changing->killed)
        json_kv_int(&json, "killed", changing->killed);
    json_close(&json, '}');
}

static void prepare_change(struct box_op *op)
{
    put_change(container_of(op, struct changing, op));
}

static void prepare_made(struct box_op *op)
{
    struct changing *changing = container_of(op, struct changing, op);
    struct json_out json = call_json(changing->call);
    struct exec_view command = { 0 };
    struct sandbox_view view;

    box_view(op->box, &view);
    if (op->exec)
        box_exec_view(op->exec, &command);
    buf_clear(&changing->call->reply);
    put(&json, &view, command.id);
    changing->call->object = arena_printf(&changing->call->arena, "sandbox/%s", view.id);
}

/* Besides what the sandbox itself tells: the event that agentic's clients wait for. */
static int record(struct box_op *op, struct db *db, struct err *err)
{
    struct changing *changing = container_of(op, struct changing, op);
    autofree char *object = xprintf("container/%s", changing->name);

    if (changing->event && event_add(db, op->tenant, changing->event, object, STR("{}"), err) < 0)
        return -1;
    return call_record(changing->call, db, err);
}

static void done(struct box_op *op, const struct err *err)
{
    call_finish(container_of(op, struct changing, op)->call, err);
}

static struct changing *changing_new(struct call *call)
{
    struct changing *changing = arena_new(&call->arena, struct changing);

    *changing = (struct changing){ .op = { .tenant = call->who.tenant,
                                           .by = call->who.id,
                                           .reach = call_reach(call),
                                           .role = role_name(call->who.role),
                                           .prepare = prepare_change,
                                           .record = record,
                                           .done = done },
                                   .call = call,
                                   .timeout = -1 };
    return changing;
}

static void asked(struct gentle *gentle, struct box *box)
{
    struct changing *changing = container_of(gentle, struct changing, gentle);
    struct err err = { 0 };

    changing->killed = gentle->left;
    if (!box)
        err_set(&err, ERR_UNAVAILABLE, "it was deleted, or the server is about to stop");
    if (!box || box_stop(box, &changing->op, &err) < 0)
        call_finish(changing->call, &err);
}

static int stop_gently(struct box *box, struct box_op *op, struct err *err)
{
    struct changing *changing = container_of(op, struct changing, op);

    (void)err;
    changing->gentle.done = asked;
    gentle_begin(&changing->gentle, changing->call->api, box, op->tenant, op->by,
                 changing->timeout * 1000);
    return 0;
}

static int change(struct call *call, struct changing *changing,
                  int (*fn)(struct box *box, struct box_op *op, struct err *err), struct err *err)
{
    struct sandbox_view view;
    struct box *box;

    if (find(call, &box, err) < 0)
        return -1;
    box_view(box, &view);
    changing->name = arena_strdup(&call->arena, name_of(&view));
    call->object = arena_printf(&call->arena, "sandbox/%s", view.id);
    if (changing->status && runs(&view) == (strcmp(changing->status, "running") == 0)) {
        put_change(changing); /* it is so already: nothing changes, and nothing is recorded */
        call_finish(call, NULL);
        return 0;
    }
    return fn(box, &changing->op, err);
}

static int container_start(struct call *call, struct err *err)
{
    struct changing *changing = changing_new(call);

    changing->action = "start";
    changing->status = "running";
    return change(call, changing, box_start, err);
}

static int container_stop(struct call *call, struct err *err)
{
    struct changing *changing = changing_new(call);

    changing->action = "stop";
    changing->status = "stopped";
    if (call_query_int(call, "timeout", 0, 3600, 10, &changing->timeout, err) < 0)
        return -1;
    return change(call, changing, stop_gently, err);
}

static int container_delete(struct call *call, struct err *err)
{
    struct changing *changing = changing_new(call);

    changing->deletes = true;
    changing->event = "container.removed";
    return change(call, changing, box_delete, err);
}

/* ---- making ---- */

struct container_wish {
    const char *name, *image, *network;
    const char **mounts, **cmd;
    const struct json *env;
};

static const struct field container_wish_fields[] = {
    FIELD(container_wish, name, F_STRING, F_REQUIRED, .min = 1, .max = SANDBOX_NAME_MAX,
          .help = "A name of its own"),
    FIELD(container_wish, image, F_STRING, F_REQUIRED, .min = 1, .max = 255,
          .help = "One that was imported"),
    FIELD(container_wish, env, F_JSON, 0, .help = "A list of \"K=V\" or {key, value}"),
    FIELD(container_wish, mounts, F_STRINGS, 0, .max = 64,
          .help = "Refused: directories of the host are bound by `atoll run --bind`"),
    FIELD(container_wish, network, F_STRING, 0, .max = 255, .help = "Refused: none is there"),
    FIELD(container_wish, cmd, F_STRINGS, 0, .max = EXEC_ARGC_MAX, .each_max = 131071,
          .help = "Run in it once it is made, exactly as it is; its end ends nothing else"),
    { 0 },
};

static int pair_of(struct call *call, const struct json *item, struct field_pair *out,
                   struct err *err)
{
    struct str key, value;

    if (item->type == JSON_STRING) {
        value = item->text;
        key = str_cut(&value, '=');
        if (key.n == item->text.n)
            return err_field(err, "env", "each is \"K=V\" or {key, value}");
    } else {
        key = json_text(item, "key");
        value = json_text(item, "value");
    }
    if (!key.n || memchr(value.p ? value.p : "", 0, value.n))
        return err_field(err, "env", "each is \"K=V\" or {key, value}");
    *out = (struct field_pair){ arena_memdup0(&call->arena, key.p, key.n),
                                arena_memdup0(&call->arena, value.p ? value.p : "", value.n) };
    return 0;
}

/* What was said, and who it is (unless that was said too). */
static int env_of(struct call *call, const struct container_wish *wish, struct field_pair **out,
                  struct err *err)
{
    size_t count = 0, at = 0;
    bool named = false;

    if (wish->env && wish->env->type != JSON_ARRAY)
        return err_field(err, "env", "must be a list");
    json_each(item, wish->env) count++;
    if (count > 255)
        return err_field(err, "env", "more than 255");
    struct field_pair *pairs = arena_alloc(&call->arena, (count + 2) * sizeof(*pairs));
    json_each(item, wish->env)
    {
        if (pair_of(call, item, &pairs[at], err) < 0)
            return -1;
        named |= strcmp(pairs[at++].key, "AGENT_ID") == 0;
    }
    if (!named)
        pairs[at++] = (struct field_pair){ "AGENT_ID", arena_strdup(&call->arena, wish->name) };
    pairs[at] = (struct field_pair){ 0 };
    *out = pairs;
    return 0;
}

/* What could not be begun is not kept. */
static void unmade(struct box_op *op, const struct err *err)
{
    struct changing *changing = container_of(op, struct changing, op);

    (void)err; /* why it was not made is the better answer */
    call_finish(changing->call, &changing->failed);
}

static void unmake(struct changing *changing, const struct err *why)
{
    struct box *box = boxes_by_id(changing->call->api->boxes, changing->id);
    struct err err;

    changing->failed = *why;
    if (strncmp(why->field, "argv", 4) == 0)
        memcpy(changing->failed.field, "cmd", sizeof("cmd"));
    changing->op =
        (struct box_op){ .tenant = changing->op.tenant, .by = changing->op.by, .done = unmade };
    if (!box || box_delete(box, &changing->op, &err) < 0)
        call_finish(changing->call, &changing->failed);
}

static void begun(struct box_op *op, const struct err *err)
{
    struct changing *changing = container_of(op, struct changing, op);

    if (err)
        unmake(changing, err);
    else
        call_finish(changing->call, NULL);
}

/* It is there: now its command. */
static void made(struct box_op *op, const struct err *err)
{
    struct changing *changing = container_of(op, struct changing, op);
    struct exec_spec spec = { .argv = changing->cmd };
    struct err why = { 0 };
    struct sandbox_view view;

    if (err || !changing->cmd) {
        call_finish(changing->call, err);
        return;
    }
    box_view(op->box, &view);
    changing->id = arena_strdup(&changing->call->arena, view.id);
    op->prepare = prepare_made;
    op->record = record;
    op->done = begun;
    if (box_exec(op->box, &spec, op, &why) < 0)
        unmake(changing, &why);
}

static int container_post(struct call *call, struct err *err)
{
    struct changing *changing = changing_new(call);
    struct container_wish wish = { 0 };
    struct sandbox_spec spec = { 0 };
    struct image *image;

    if (call_decode(call, &wish, err) < 0)
        return -1;
    if (wish.mounts || wish.network)
        return err_field(err, wish.mounts ? "mounts" : "network",
                         "is not done here; see /api/v1/sandboxes");
    if (image_find(call->api->boxes, call->who.tenant, wish.image, &image, err) < 0 ||
        env_of(call, &wish, &spec.env, err) < 0)
        return -1;
    spec.name = wish.name;
    spec.image = wish.image;
    changing->name = wish.name;
    changing->event = "container.created";
    changing->cmd = wish.cmd && wish.cmd[0] ? wish.cmd : NULL;
    changing->op.done = made;
    changing->op.prepare = prepare_made;
    if (changing->cmd) /* recorded, and answered, when that runs */
        changing->op.record = NULL;
    return boxes_create(call->api->boxes, &spec, &changing->op, err);
}

#define CONTAINER_ROUTE(name_, method_, path_, on_, roles_, fn_, ...)                              \
    {                                                                                              \
        .name = name_, .method = method_, .path = "/api/v1/" path_, .on = on_, .roles = roles_,    \
        .fn = fn_, .surface = SURFACE_HUB, __VA_ARGS__                                             \
    }

/* clang-format off */
const struct route container_routes[] = {
    CONTAINER_ROUTE("container.list", "GET", "containers", ON_LOOP, ROLE_LOOK, container_list,
        .query = "status:string",
        .summary = "Sandboxes as containers: `status` is running, stopped or all."),
    CONTAINER_ROUTE("container.read", "GET", "containers/{name}", ON_LOOP, ROLE_LOOK, container_get,
        .summary = "One of them."),
    CONTAINER_ROUTE("container.create", "POST", "containers", ON_LATER, ROLE_USE, container_post,
        .takes = container_wish_fields, .flags = ROUTE_CREATES,
        .summary = "Make a sandbox with an image; AGENT_ID in it is its name. With `cmd` that runs in "
                   "it, and `command_id` says which of its commands it is."),
    CONTAINER_ROUTE("container.start", "POST", "containers/{name}/start", ON_LATER, ROLE_USE,
        container_start, .summary = "Let a stopped one run."),
    CONTAINER_ROUTE("container.stop", "POST", "containers/{name}/stop", ON_LATER, ROLE_USE,
        container_stop, .query = "timeout:int",
        .summary = "Ask its commands to end, wait `timeout` seconds for them (10), stop it; its files "
                   "stay."),
    CONTAINER_ROUTE("container.delete", "DELETE", "containers/{name}", ON_LATER, ROLE_ADMIN,
        container_delete, .summary = "Delete it with its files, whatever runs in it."),
    CONTAINER_ROUTE("container_image.list", "GET", "container-images", ON_LOOP, ROLE_LOOK,
        image_list, .summary = "Images that were imported, as containers are made of them."),
    { 0 },
};
/* clang-format on */
