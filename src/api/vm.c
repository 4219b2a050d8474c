/*
 * Virtual machines as agentic knows them: views of our sandboxes. The tier `vm` itself is not there
 * yet, and every answer that lists tiers says so; what is made here is a sandbox.
 */
#include <stdarg.h>
#include <stdio.h>

#include "api/gentle.h"
#include "api/operation.h"
#include "api/vm.h"
#include "base/clock.h"
#include "base/hash.h"
#include "box/boxes.h"
#include "box/disk.h"
#include "link/links.h"
#include "model/sandbox.h"

#define PREFIX_DEFAULT "agent-"

int(err_word)(struct err *err, enum err_code code, const char *word, const char *fmt, ...)
{
    va_list args;
    char text[ERR_MSG_SIZE];

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    err_set(err, code, "%s", text);
    if (err)
        snprintf(err->field, sizeof(err->field), "%s", word);
    return -1;
}

static int find(struct call *call, struct box **out, struct err *err)
{
    const char *name = call_param(call, "name");

    if (boxes_find(call->api->boxes, call_reach(call), name, out, NULL) < 0)
        return err_word(err, ERR_NOT_FOUND, "VM_NOT_FOUND", "there is no VM '%.63s'", name);
    return 0;
}

/* ---- looking ---- */

const char *vm_name(const struct sandbox_view *view)
{
    return view->name ? view->name : view->id;
}

const char *vm_state(const struct sandbox_view *view)
{
    static const struct {
        const char *ours, *theirs;
    } words[] = { { "running", "running" },
                  { "paused", "paused" },
                  { "stopped", "stopped" },
                  { "failed", "crashed" } };

    if (view->crashed)
        return "crashed";
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(view->state, words[i].ours) == 0)
            return words[i].theirs;
    return "unknown";
}

/* The same for the same sandbox, and in the form that clients expect (RFC 9562, version 8). */
static void put_uuid(struct json_out *json, const char *id)
{
    unsigned char hash[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE], text[UUID_SIZE];

    sha256(id, strlen(id), hash);
    hash[6] = (unsigned char)((hash[6] & 0x0f) | 0x80);
    hash[8] = (unsigned char)((hash[8] & 0x3f) | 0x80);
    hex_text(hash, 16, hex);
    snprintf(text, sizeof(text), "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
    json_kv_text(json, "uuid", text);
}

/* Open: the caller adds to it and closes. */
static void put_vm(struct json_out *json, const struct sandbox_view *view)
{
    json_open(json, '{');
    json_kv_text(json, "name", vm_name(view));
    json_kv_text(json, "state", vm_state(view));
    put_uuid(json, view->id);
    json_kv_int(json, "vcpus", (view->cpu_percent + 99) / 100);
    json_kv_int(json, "memory_mb", view->memory >> 20);
    if (strcmp(view->state, "running") == 0)
        json_kv_int(json, "uptime_seconds", MAX(clock_wall_ms() - view->changed_at, 0) / 1000);
    json_kv_text(json, "sandbox_id", view->id);
}

static void put_tiers(struct json_out *json)
{
    json_key(json, "tiers");
    json_open(json, '{');
    json_key(json, "vm");
    json_open(json, '{');
    json_kv_bool(json, "available", false);
    json_kv_text(json, "reason", "this version makes sandboxes, not virtual machines");
    json_close(json, '}');
    json_close(json, '}');
}

static bool wanted(const struct sandbox_view *view, const char *state, const char *prefix)
{
    const char *now = vm_state(view);

    if (strcmp(state, "running") == 0 && strcmp(now, "running") != 0)
        return false;
    if (strcmp(state, "stopped") == 0 && strcmp(now, "running") == 0)
        return false;
    return strcmp(prefix, "*") == 0 || strncmp(vm_name(view), prefix, strlen(prefix)) == 0;
}

static int vm_list(struct call *call, struct err *err)
{
    const char *state = call_query(call, "state"), *prefix = call_query(call, "prefix");
    struct json_out json = call_json(call);
    struct box *box = NULL;
    int64_t total = 0;

    state = state ? state : "all";
    prefix = prefix ? prefix : PREFIX_DEFAULT;
    if (strcmp(state, "all") != 0 && strcmp(state, "running") != 0 && strcmp(state, "stopped") != 0)
        return err_word(err, ERR_INVALID, "VALIDATION_ERROR",
                        "state must be running, stopped or all");
    json_open(&json, '{');
    json_key(&json, "vms");
    json_open(&json, '[');
    while ((box = boxes_next(call->api->boxes, call_reach(call), box))) {
        struct sandbox_view view;

        box_view(box, &view);
        if (!wanted(&view, state, prefix))
            continue;
        put_vm(&json, &view);
        json_close(&json, '}');
        total++;
    }
    json_close(&json, ']');
    json_kv_int(&json, "total", total);
    put_tiers(&json);
    json_close(&json, '}');
    return 0;
}

static void put_agent(struct call *call, struct json_out *json, const char *name)
{
    struct linked *agent;
    struct agent_view view;

    json_key(json, "agent");
    json_open(json, '{');
    if (links_find(call->api->links, call_reach(call), name, &agent, NULL) == 0) {
        linked_view(agent, &view);
        json_kv_bool(json, "connected", linked_connected(agent));
        json_kv_int(json, "connected_at", view.connected_at);
        json_kv_text(json, "hostname", view.hostname);
    } else {
        json_kv_bool(json, "connected", false);
    }
    json_close(json, '}');
}

static int vm_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    struct sandbox_view view;
    struct box *box;

    if (find(call, &box, err) < 0)
        return -1;
    box_view(box, &view);
    put_vm(&json, &view);
    put_agent(call, &json, vm_name(&view));
    json_close(&json, '}');
    return 0;
}

/* ---- making ---- */

struct vm_wish {
    const char *name, *profile, *loadout, *ssh_key, *tier;
    const struct json *composition;
    int64_t vcpus, memory_mb, disk_gb;
    bool agentshare, start;
};

#define VM_WISH_START 9

static const struct field vm_wish_fields[] = {
    FIELD(vm_wish, name, F_STRING, F_REQUIRED, .min = 1, .max = SANDBOX_NAME_MAX,
          .help = "Lower-case letters, digits and hyphens"),
    FIELD(vm_wish, profile, F_STRING, 0, .max = 63, .help = "agentic-dev; others are not there"),
    FIELD(vm_wish, loadout, F_STRING, 0, .max = 255, .help = "None is there yet"),
    FIELD(vm_wish, composition, F_JSON, 0, .help = "None is there yet"),
    FIELD(vm_wish, tier, F_ENUM, 0, .choices = "sandbox|vm",
          .help = "sandbox; vm is refused until it is there"),
    FIELD(vm_wish, vcpus, F_INT, 0, .min = 1, .max = 1024, .help = "Cores (4)"),
    FIELD(vm_wish, memory_mb, F_INT, 0, .min = 16, .max = 4194304, .help = "Memory (8192)"),
    FIELD(vm_wish, disk_gb, F_INT, 0, .min = 1, .max = 4096, .help = "Everything writable (50)"),
    FIELD(vm_wish, agentshare, F_BOOL, 0, .help = "false; true is refused until shares are there"),
    [VM_WISH_START] =
        FIELD(vm_wish, start, F_BOOL, 0, .help = "Let it run (true); else it is stopped once made"),
    FIELD(vm_wish, ssh_key, F_STRING, 0, .max = 4095,
          .help =
              "Refused: sandboxes have no SSH server; `atoll exec` and `atoll shell` need none"),
    { 0 },
};

/* The making itself, after the answer. */
struct making {
    struct box_op op;
    const struct api *api;
    bool stops; /* it was not wanted to run */
    const char *role;
    char id[UUID_SIZE], name[SANDBOX_NAME_MAX + 1], tenant[TENANT_MAX + 1], by[ID_SIZE];
    struct principal who;
};

static void made(struct box_op *op, const struct err *err);

static int stop_made(struct making *making, struct box *box, struct err *err)
{
    making->stops = false;
    making->op = (struct box_op){
        .tenant = making->tenant, .by = making->by, .role = making->role, .done = made
    };
    return box_stop(box, &making->op, err);
}

static void made(struct box_op *op, const struct err *err)
{
    struct making *making = container_of(op, struct making, op);
    struct err failed = { 0 };

    if (!err && making->stops) {
        if (stop_made(making, op->box, &failed) == 0)
            return;
        err = &failed;
    }
    autobuf struct buf result = { 0 };
    struct json_out json = json_to(&result);
    struct sandbox_view view;

    if (!err) {
        box_view(op->box, &view);
        json_open(&json, '{');
        json_key(&json, "vm");
        put_vm(&json, &view);
        json_close(&json, '}');
        put_tiers(&json);
        json_close(&json, '}');
    }
    autofree char *object = xprintf("vm/%s", making->name);
    operation_end(making->api, &(struct operation_end){ .id = making->id,
                                                        .tenant = making->tenant,
                                                        .event = err ? "vm.provisioning.failed"
                                                                     : "vm.provisioning.completed",
                                                        .object = object,
                                                        .error = err ? err->msg : NULL,
                                                        .result = err ? NULL : buf_cstr(&result) });
    free(making);
}

/* The row of the operation, then the answer and the work. */
struct ordering {
    struct operation_start start;
    struct making *making;
    struct sandbox_spec spec;
};

static void ordered(struct operation_start *start)
{
    struct ordering *ordering = container_of(start, struct ordering, start);
    struct making *making = ordering->making;
    struct err err = { 0 };

    if (boxes_create(making->api->boxes, &ordering->spec, &making->op, &err) < 0)
        made(&making->op, &err);
}

static void not_ordered(struct operation_start *start)
{
    free(container_of(start, struct ordering, start)->making);
}

static int check_wish(struct call *call, struct vm_wish *wish, struct err *err)
{
    bool profile = wish->profile && strcmp(wish->profile, "agentic-dev") != 0;
    struct box *box;

    if (strspn(wish->name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(wish->name) ||
        wish->name[0] == '-')
        return err_word(err, ERR_INVALID, "INVALID_VM_NAME",
                        "lower-case letters, digits and hyphens, not beginning with a hyphen");
    if (profile + (wish->loadout && wish->loadout[0]) + (wish->composition != NULL) > 1)
        return err_word(err, ERR_INVALID, "VALIDATION_ERROR",
                        "at most one of profile, loadout and composition");
    if (profile || (wish->loadout && wish->loadout[0]) || wish->composition)
        return err_word(err, ERR_INVALID, "VALIDATION_ERROR",
                        "profiles other than agentic-dev, loadouts and compositions are not there");
    if (wish->agentshare)
        return err_word(err, ERR_INVALID, "VALIDATION_ERROR",
                        "agentshare: shared directories are not there yet; leave it out, or say "
                        "false");
    if (wish->ssh_key && wish->ssh_key[0])
        return err_word(err, ERR_INVALID, "VALIDATION_ERROR",
                        "ssh_key: sandboxes have no SSH server; `atoll exec` and `atoll shell` "
                        "need no key");
    if (wish->tier && strcmp(wish->tier, "vm") == 0)
        return err_word(err, ERR_UNSUPPORTED, "VM_TIER_UNAVAILABLE",
                        "this version makes sandboxes, not virtual machines");
    if (boxes_find(call->api->boxes, call_reach(call), wish->name, &box, NULL) == 0)
        return err_word(err, ERR_CONFLICT, "VM_ALREADY_EXISTS", "'%s' exists", wish->name);
    return 0;
}

static int vm_post(struct call *call, struct err *err)
{
    struct ordering *ordering = arena_new(&call->arena, struct ordering);
    struct json_out json = call_json(call);
    struct vm_wish wish = { 0 };
    uint64_t present = 0;

    if (call_decode_patch(call, &wish, &present, err) < 0 || check_wish(call, &wish, err) < 0)
        return -1;
    const struct sandbox_spec spec = { .cpu_percent = (wish.vcpus ? wish.vcpus : 4) * 100,
                                       .memory = (wish.memory_mb ? wish.memory_mb : 8192) << 20,
                                       .disk = (wish.disk_gb ? wish.disk_gb : 50) << 30 };
    if (boxes_admit(call->api->boxes, &spec, NULL, call_op(call), err) < 0)
        return -1; /* now, rather than as the end of an operation */
    struct making *making = xnew(struct making);
    ordering->start = (struct operation_start){
        .operation = operation_new(call, "vm_create", wish.name),
        .event = "vm.provisioning.started",
        .go = ordered,
        .drop = not_ordered,
    };
    making->api = call->api;
    making->stops = present >> VM_WISH_START & 1 && !wish.start;
    snprintf(making->id, sizeof(making->id), "%s", ordering->start.operation.id);
    snprintf(making->name, sizeof(making->name), "%s", wish.name);
    snprintf(making->tenant, sizeof(making->tenant), "%s", call->who.tenant);
    snprintf(making->by, sizeof(making->by), "%s", call->who.id);
    making->role = role_name(call->who.role);
    making->who = call->who;
    making->op = (struct box_op){ .tenant = making->tenant,
                                  .by = making->by,
                                  .role = making->role,
                                  .reach = principal_reach(&making->who),
                                  .done = made };
    ordering->making = making;
    ordering->spec = spec;
    ordering->spec.name = making->name;
    call->object = arena_printf(&call->arena, "vm/%s", wish.name);
    json_open(&json, '{');
    json_key(&json, "operation");
    operation_put(&json, &ordering->start.operation);
    json_close(&json, '}');
    operation_begin(call, &ordering->start);
    return 0;
}

/* ---- changing ---- */

struct changing {
    struct box_op op;
    struct gentle gentle;
    struct call *call;
    struct vm_change wish;
    const char *name, *vm;
    const char *id, *snapshot; /* with `keeps`: whose it was, and its files now */
};

static void put_change(struct changing *changing)
{
    struct json_out json = call_json(changing->call);

    buf_clear(&changing->call->reply);
    json_open(&json, '{');
    if (changing->wish.deletes) {
        json_kv_bool(&json, "deleted", true);
        json_kv_text(&json, "name", changing->name);
        json_kv_bool(&json, "disk_deleted", !changing->snapshot);
        if (changing->snapshot)
            json_kv_text(&json, "snapshot", changing->snapshot);
    } else {
        json_key(&json, "vm");
        json_open(&json, '{');
        json_kv_text(&json, "name", changing->name);
        json_kv_text(&json, "state", changing->wish.state);
        json_close(&json, '}');
        if (changing->wish.message)
            json_kv_text(&json, "message", changing->wish.message);
    }
    json_close(&json, '}');
}

static void changing_prepare(struct box_op *op)
{
    put_change(container_of(op, struct changing, op));
}

/* Besides what the sandbox itself tells: the event that agentic's clients wait for. */
static int changing_record(struct box_op *op, struct db *db, struct err *err)
{
    struct changing *changing = container_of(op, struct changing, op);
    autofree char *body = xprintf("{\"reason\":\"%s\"}", changing->wish.reason);

    if (event_add(db, op->tenant, changing->wish.event, changing->vm, str_of(body), err) < 0)
        return -1;
    return call_record(changing->call, db, err);
}

static void changing_done(struct box_op *op, const struct err *err)
{
    call_finish(container_of(op, struct changing, op)->call, err);
}

/* What did not end in time is about to be killed, and the answer and the event say so. */
static void will_kill(struct changing *changing, unsigned left)
{
    struct vm_change *wish = &changing->wish;

    wish->message =
        arena_printf(&changing->call->arena,
                     "%u of its commands did not end within the timeout of %lld s and "
                     "%s killed",
                     left, (long long)wish->gentle_ms / 1000, left == 1 ? "was" : "were");
    wish->state = "stopped";
    wish->event = "vm.stopped";
    wish->reason = "force";
}

static void changing_asked(struct gentle *gentle, struct box *box)
{
    struct changing *changing = container_of(gentle, struct changing, gentle);
    struct err err = { 0 };

    if (gentle->left)
        will_kill(changing, gentle->left);

    if (!box)
        err_set(&err, ERR_UNAVAILABLE, "it was deleted, or the server is about to stop");
    if (!box || changing->wish.fn(box, &changing->op, &err) < 0)
        call_finish(changing->call, &err);
}

/* Its files are safe: now it may go. */
static void kept(struct box_op *op, const struct err *failed)
{
    struct changing *changing = container_of(op, struct changing, op);
    struct call *call = changing->call;
    struct err err = { 0 };

    if (failed) {
        call_finish(call, failed);
        return;
    }
    changing->snapshot = arena_strdup(&call->arena, op->disk->id);
    changing->op = (struct box_op){ .tenant = call->who.tenant,
                                    .by = call->who.id,
                                    .role = role_name(call->who.role),
                                    .prepare = changing_prepare,
                                    .record = changing_record,
                                    .done = changing_done };
    struct box *box = boxes_by_id(call->api->boxes, changing->id);
    if (!box)
        err_set(&err, ERR_CONFLICT, "it was deleted meanwhile; its files are snapshot %s",
                changing->snapshot);
    if (!box || changing->wish.fn(box, &changing->op, &err) < 0)
        call_finish(call, &err);
}

static int keep_files(struct changing *changing, struct box *box, const char *id, struct err *err)
{
    struct call *call = changing->call;

    changing->id = arena_strdup(&call->arena, id);
    changing->op = (struct box_op){ .tenant = call->who.tenant,
                                    .by = call->who.id,
                                    .role = role_name(call->who.role),
                                    .done = kept };
    return box_snapshot(box,
                        arena_printf(&call->arena, "%.*s-disk", DISK_NAME_MAX - 5, changing->name),
                        &changing->op, err);
}

/* delete_disk of the query: *keeps when it is false; without it the disk goes. */
static int keeps_disk(struct call *call, bool *keeps, struct err *err)
{
    const char *said = call_query(call, "delete_disk");

    if (said && strcmp(said, "true") != 0 && strcmp(said, "false") != 0)
        return err_word(err, ERR_INVALID, "VALIDATION_ERROR", "delete_disk must be true or false");
    *keeps = said && strcmp(said, "false") == 0;
    return 0;
}

int vm_change(struct call *call, struct box *box, const struct vm_change *wish, struct err *err)
{
    struct changing *changing = arena_new(&call->arena, struct changing);
    struct sandbox_view view;

    box_view(box, &view);
    *changing = (struct changing){ .op = { .tenant = call->who.tenant,
                                           .by = call->who.id,
                                           .role = role_name(call->who.role),
                                           .prepare = changing_prepare,
                                           .record = changing_record,
                                           .done = changing_done },
                                   .call = call,
                                   .wish = *wish,
                                   .name = arena_strdup(&call->arena, vm_name(&view)) };
    changing->vm = arena_printf(&call->arena, "vm/%s", changing->name);
    call->object = arena_printf(&call->arena, "sandbox/%s", view.id);
    bool runs = strcmp(view.state, "running") == 0 || strcmp(view.state, "paused") == 0;
    if (wish->deletes && runs && !wish->force)
        return err_word(err, ERR_CONFLICT, "VM_RUNNING",
                        "'%s' is running; stop it first, or force=true", changing->name);
    if (wish->already && runs == (strcmp(wish->state, "running") == 0)) {
        changing->wish.message = wish->already; /* nothing changes, and nothing is recorded */
        put_change(changing);
        call_finish(call, NULL);
        return 0;
    }
    if (wish->keeps)
        return keep_files(changing, box, view.id, err);
    if (!wish->gentle_ms)
        return wish->fn(box, &changing->op, err);
    changing->gentle.done = changing_asked;
    gentle_begin(&changing->gentle, call->api, box, call->who.tenant, call->who.id,
                 wish->gentle_ms);
    return 0;
}

static bool is_true(struct call *call, const char *query)
{
    const char *text = call_query(call, query);

    return text && strcmp(text, "true") == 0;
}

static int change(struct call *call, const struct vm_change *wish, struct err *err)
{
    struct box *box;

    return find(call, &box, err) < 0 ? -1 : vm_change(call, box, wish, err);
}

const struct vm_change vm_starting = { .state = "running",
                                       .already = "VM is already running",
                                       .event = "vm.started",
                                       .reason = "manual",
                                       .fn = box_start };
const struct vm_change vm_destroying = { .state = "stopped",
                                         .message = "VM destroyed",
                                         .already = "VM destroyed",
                                         .event = "vm.stopped",
                                         .reason = "destroyed",
                                         .fn = box_stop };

int vm_deleting(struct call *call, bool force, struct vm_change *out, struct err *err)
{
    *out = (struct vm_change){
        .deletes = true, .force = force, .event = "vm.undefined", .reason = "api", .fn = box_delete
    };
    return keeps_disk(call, &out->keeps, err);
}

static int vm_start(struct call *call, struct err *err)
{
    return change(call, &vm_starting, err);
}

static int vm_stop(struct call *call, struct err *err)
{
    bool force = is_true(call, "force");
    int64_t timeout;

    if (call_query_int(call, "timeout", 0, 3600, 15, &timeout, err) < 0)
        return -1;
    return change(call,
                  &(struct vm_change){
                      .state = force ? "stopped" : "shutdown",
                      .message = arena_printf(&call->arena, "stopped within the timeout of %lld s",
                                              (long long)timeout),
                      .already = "VM is already stopped",
                      .event = force ? "vm.stopped" : "vm.shutdown",
                      .reason = force ? "force" : "shutdown",
                      .gentle_ms = force ? 0 : timeout * 1000,
                      .fn = box_stop },
                  err);
}

static int vm_destroy(struct call *call, struct err *err)
{
    return change(call, &vm_destroying, err);
}

static int vm_delete(struct call *call, struct err *err)
{
    struct vm_change wish;

    if (vm_deleting(call, is_true(call, "force"), &wish, err) < 0)
        return -1;
    return change(call, &wish, err);
}

#define VM_ROUTE(name_, method_, path_, on_, roles_, fn_, ...)                                     \
    {                                                                                              \
        .name = name_, .method = method_, .path = "/api/v1/vms" path_, .on = on_, .roles = roles_, \
        .fn = fn_, .surface = SURFACE_VM, __VA_ARGS__                                              \
    }

/* clang-format off */
const struct route vm_routes[] = {
    VM_ROUTE("vm.list", "GET", "", ON_LOOP, ROLE_LOOK, vm_list,
        .query = "state:string,prefix:string",
        .summary = "Sandboxes as VMs: `state` is running, stopped or all; `prefix` of the name "
                   "(agent-; * for any). `tiers` says that the tier vm is not there."),
    VM_ROUTE("vm.read", "GET", "/{name}", ON_LOOP, ROLE_LOOK, vm_get,
        .summary = "One, and the linked agent of the same name."),
    VM_ROUTE("vm.create", "POST", "", ON_LATER, ROLE_USE, vm_post, .takes = vm_wish_fields,
        .flags = ROUTE_CREATES,
        .summary = "Make a sandbox; answered 202 with an operation."),
    VM_ROUTE("vm.start", "POST", "/{name}/start", ON_LATER, ROLE_USE, vm_start,
        .summary = "Let a stopped one run."),
    VM_ROUTE("vm.stop", "POST", "/{name}/stop", ON_LATER, ROLE_USE, vm_stop,
        .query = "force:string,timeout:int",
        .summary = "Ask its commands to end, wait `timeout` seconds for them (15), stop it; its disk "
                   "stays. With force=true at once."),
    VM_ROUTE("vm.destroy", "POST", "/{name}/destroy", ON_LATER, ROLE_ADMIN, vm_destroy,
        .summary = "Stop it at once; its disk stays."),
    VM_ROUTE("vm.delete", "DELETE", "/{name}", ON_LATER, ROLE_ADMIN, vm_delete,
        .query = "delete_disk:string,force:string",
        .summary = "Delete it with its disk; one that runs only with force=true. With "
                   "delete_disk=false its files stay as a snapshot, whose id is in the answer."),
    { 0 },
};
/* clang-format on */
