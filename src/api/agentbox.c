/*
 * Sessions of agentbox: made, found, listed, destroyed.
 *
 * A tenant's storage is two volumes of the caller's own, named by a digest of the tenant id: no
 * part of what a caller says is ever a path or a name. They are made when they are first needed and
 * stay when the session goes. Whoever creates a session that is being created waits for that one.
 */
#include "api/agentbox.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "box/disk.h"
#include "model/egress.h"
#include "policy/grant.h"

#define RETRY_MS 5 /* between looks at what somebody else is making */
#define RETRIES_MAX 6000
#define VOLUMES 2

/* The hosts of a session that names none, as agentbox has them. */
static const char *const default_hosts[] = {
    "pypi.org",   "files.pythonhosted.org",    "*.npmjs.org",
    "github.com", "raw.githubusercontent.com", "objects.githubusercontent.com",
    "crates.io",  "static.crates.io",
};

/* ---- looking ---- */

const char *session_label(const struct sandbox_view *view, const char *key)
{
    for (const struct field_pair *pair = view->labels; pair && pair->key; pair++)
        if (strcmp(pair->key, key) == 0)
            return pair->value;
    return NULL;
}

static const char *session_id_of(const struct sandbox_view *view)
{
    const char *given = session_label(view, SESSION_LABEL);

    return given ? given : view->name ? view->name : view->id;
}

struct box *session_find(struct rpc *rpc, const char *session_id)
{
    struct boxes *boxes = rpc->call->api->boxes;
    struct box *box = NULL;
    struct sandbox_view view;

    while ((box = boxes_next(boxes, call_reach(rpc->call), box))) {
        box_view(box, &view);
        if (strcmp(session_id_of(&view), session_id) == 0 || strcmp(view.id, session_id) == 0)
            return box;
    }
    return NULL;
}

static void put_hosts(struct arena *arena, const char *lines, Sandbox__V1__SessionInfo *info)
{
    struct str rest = str_of(lines);
    size_t count = 0;

    for (size_t i = 0; i < rest.n; i++)
        count += rest.p[i] == '\n';
    info->allowed_hosts = arena_alloc(arena, (count + 1) * sizeof(*info->allowed_hosts));
    while (rest.n) {
        struct str host = str_cut(&rest, '\n');

        info->allowed_hosts[info->n_allowed_hosts++] = arena_memdup0(arena, host.p, host.n);
    }
}

static Sandbox__V1__SessionInfo *session_info(struct rpc *rpc, const struct box *box)
{
    struct arena *arena = &rpc->call->arena;
    Sandbox__V1__SessionInfo *info = arena_new(arena, Sandbox__V1__SessionInfo);
    struct sandbox_view view;

    box_view(box, &view);
    sandbox__v1__session_info__init(info);
    info->session_id = arena_strdup(arena, session_id_of(&view));
    info->container_id = arena_strdup(arena, view.id);
    info->created_at = (double)view.created_at / 1000;
    info->last_activity = (double)view.used_at / 1000;
    info->status = arena_strdup(arena, view.state);
    const char *tenant = session_label(&view, TENANT_LABEL);
    if (tenant)
        RPC_SET(info, tenant_id, 6, arena_strdup(arena, tenant));
    const char *hosts = session_label(&view, HOSTS_LABEL);
    put_hosts(arena, hosts ? hosts : "", info);
    return info;
}

/* ---- texts ---- */

bool session_text(struct arena *arena, struct str bytes, char **out)
{
    if (str_utf8(bytes) && !str_has_nul(bytes)) {
        *out = arena_memdup0(arena, bytes.p, bytes.n);
        return true;
    }
    char *text = arena_raw(arena, bytes.n * 3 + 1);
    size_t len = 0;
    for (size_t at = 0; at < bytes.n;) {
        size_t n = bytes.p[at] ? str_utf8_at(bytes.p + at, bytes.n - at, NULL) : 0;

        memcpy(text + len, n ? bytes.p + at : "\xef\xbf\xbd", n ? n : 3);
        len += n ? n : 3;
        at += n ? n : 1;
    }
    text[len] = 0;
    *out = text;
    return false;
}

/* ---- waking ---- */

struct waking {
    struct box_op op;
    struct rpc *rpc;
    session_fn then;
};

static void woken(struct box_op *op, const struct err *failed)
{
    struct waking *waking = container_of(op, struct waking, op);
    struct rpc *rpc = waking->rpc;
    struct err err = { 0 };

    if (failed)
        rpc_finish(rpc, failed);
    else if (rpc->grpc && waking->then(rpc, op->box, &err) < 0)
        rpc_finish(rpc, &err);
    rpc_drop(rpc);
}

int session_awake(struct rpc *rpc, struct box *box, session_fn then, struct err *err)
{
    struct waking *waking = arena_new(&rpc->call->arena, struct waking);

    waking->op =
        (struct box_op){ .tenant = rpc->call->who.tenant, .by = rpc->call->who.id, .done = woken };
    waking->rpc = rpc;
    waking->then = then;
    int rc = box_wake(box, &waking->op, err);
    if (rc == 0)
        rpc_hold(rpc);
    return rc == 1 ? then(rpc, box, err) : rc;
}

/* ---- creating ---- */

struct creating {
    struct box_op op;
    struct disk_op disk_op;
    struct rpc *rpc;
    const Sandbox__V1__CreateSessionRequest *request;
    const char *id, *tenant; /* of the session */
    const char *volumes[VOLUMES];
    struct timer retry;
    unsigned retries;
};

static int go_on(struct creating *creating, struct err *err);

static void reply_created(struct rpc *rpc, const struct box *box)
{
    Sandbox__V1__CreateSessionResponse reply = SANDBOX__V1__CREATE_SESSION_RESPONSE__INIT;

    reply.session = session_info(rpc, box);
    rpc_reply(rpc, &reply.base);
}

static void create_next(struct creating *creating)
{
    struct err err = { 0 };

    if (go_on(creating, &err) < 0)
        rpc_finish(creating->rpc, &err);
}

static void on_retry(struct timer *timer)
{
    struct creating *creating = container_of(timer, struct creating, retry);
    struct rpc *rpc = creating->rpc;

    create_next(creating);
    rpc_drop(rpc);
}

/* Somebody else is making what we need: look again soon. */
static int wait_for(struct creating *creating, struct err *err)
{
    struct rpc *rpc = creating->rpc;

    if (!rpc->grpc)
        return 0;
    if (++creating->retries > RETRIES_MAX)
        return err_set(err, ERR_UNAVAILABLE, "session %.64s is still being made", creating->id);
    rpc_hold(rpc);
    creating->retry = (struct timer){ .fn = on_retry };
    timer_set(rpc->call->api->loop, &creating->retry, RETRY_MS);
    return 0;
}

static void box_prepare(struct box_op *op)
{
    struct call *call = container_of(op, struct creating, op)->rpc->call;
    struct sandbox_view view;

    box_view(op->box, &view);
    call->object = arena_printf(&call->arena, "sandbox/%s", view.id);
    call->detail = layers_detail(&call->arena, box_without(op->box));
}

static int box_record(struct box_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct creating, op)->rpc->call, db, err);
}

static void box_made(struct box_op *op, const struct err *err)
{
    struct creating *creating = container_of(op, struct creating, op);
    struct rpc *rpc = creating->rpc;

    if (err)
        rpc_finish(rpc, err);
    else
        reply_created(rpc, op->box);
    rpc_drop(rpc);
}

static struct field_pair *labels_of(const struct creating *creating, bool named, struct err *err)
{
    struct arena *arena = &creating->rpc->call->arena;
    struct field_pair *labels = arena_alloc(arena, 4 * sizeof(*labels));
    const Sandbox__V1__CreateSessionRequest *request = creating->request;
    autobuf struct buf hosts = { .max = FIELD_BYTES_MAX };
    size_t count = request->n_allowed_hosts, at = 0;
    size_t usual = request->no_hosts ? 0 : ARRAY_LEN(default_hosts);

    for (size_t i = 0; i < (count ? count : usual); i++) {
        const char *host = count ? request->allowed_hosts[i] : default_hosts[i];

        if (!grant_host(str_of(host)).n) {
            err_field(err, "allowed_hosts",
                      "allowed_hosts[%zu] \"%.100s\" is not a host name, as example.com, "
                      "*.example.com or example.com:8443 are",
                      i, host);
            return NULL;
        }
        buf_puts(&hosts, host);
        buf_putc(&hosts, '\n');
    }
    if (!buf_ok(&hosts)) {
        err_field(err, "allowed_hosts", "allowed_hosts have more than %d bytes", FIELD_BYTES_MAX);
        return NULL;
    }
    labels[at++] = (struct field_pair){ HOSTS_LABEL, arena_strdup(arena, buf_cstr(&hosts)) };
    if (!named)
        labels[at++] = (struct field_pair){ SESSION_LABEL, creating->id };
    if (creating->tenant)
        labels[at++] = (struct field_pair){ TENANT_LABEL, creating->tenant };
    return labels;
}

/*
 * The hosts that it asked for, as rules of its own. Only who may allow hosts elsewhere allows them
 * here; what an agent asks for is kept and told, and allowed by the layers around it or not at all.
 */
static int egress_of(const struct creating *creating, const char *hosts, struct sandbox_spec *spec,
                     struct err *err)
{
    struct call *call = creating->rpc->call;
    struct egress_spec *egress = arena_new(&call->arena, struct egress_spec);
    struct str rest = str_of(hosts);
    size_t count = 0;

    if (creating->request->no_hosts) { /* to ask for less is everybody's */
        egress->mode = "deny";
        spec->egress = egress;
        return 0;
    }
    if (!(call->who.role & ROLE_STEER))
        return 0;
    egress->allow = arena_alloc(&call->arena, (rest.n + 1) * sizeof(*egress->allow));
    while (rest.n) {
        struct str rule = grant_host(str_cut(&rest, '\n'));

        if (rule.n)
            egress->allow[count++] = arena_memdup0(&call->arena, rule.p, rule.n);
    }
    egress->allow[count] = NULL;
    spec->egress = egress;
    return egress_spec_check(egress, "allowed_hosts: ", err);
}

/* A session has no more than there is, whatever the settings say. */
static int64_t machine_memory(void)
{
    return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

static int64_t machine_cpu_percent(void)
{
    return 100 * (int64_t)sysconf(_SC_NPROCESSORS_ONLN);
}

static int make_box(struct creating *creating, struct err *err)
{
    struct call *call = creating->rpc->call;
    const struct api_options *options = &call->api->options;
    struct idle_policy idle = { options->agentbox_idle_ms, "delete" };
    struct volume_use uses[VOLUMES] = { { creating->volumes[0], "/workspace", false },
                                        { creating->volumes[1], "/mnt/user-data/outputs", false } };
    bool named = strlen(creating->id) <= SANDBOX_NAME_MAX &&
                 name_check(creating->id, "sb", "session_id", &(struct err){ 0 }) == 0;
    struct sandbox_spec spec = { .name = named ? creating->id : NULL,
                                 .user = options->agentbox_root ? "root" : "agent",
                                 .memory = MIN(options->agentbox_memory, machine_memory()),
                                 .cpu_percent =
                                     MIN(options->agentbox_cpu_percent, machine_cpu_percent()),
                                 .idle = idle.after_ms ? &idle : NULL };

    spec.labels = labels_of(creating, named, err);
    if (!spec.labels || egress_of(creating, spec.labels[0].value, &spec, err) < 0)
        return -1;
    if (creating->tenant)
        spec.volumes = (struct field_list){ uses, VOLUMES };
    creating->op = (struct box_op){ .tenant = call->who.tenant,
                                    .by = call->who.id,
                                    .reach = call_reach(call),
                                    .role = role_name(call->who.role),
                                    .prepare = box_prepare,
                                    .record = box_record,
                                    .done = box_made };
    if (boxes_create(call->api->boxes, &spec, &creating->op, err) < 0)
        return -1;
    rpc_hold(creating->rpc);
    return 0;
}

/* ---- a tenant's storage ---- */

static int disk_record(struct disk_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct creating, disk_op)->rpc->call, db, err);
}

static void disk_stored(struct disk_op *op, const struct err *err)
{
    struct creating *creating = container_of(op, struct creating, disk_op);
    struct rpc *rpc = creating->rpc;

    if (err)
        rpc_finish(rpc, err);
    else
        create_next(creating);
    rpc_drop(rpc);
}

static void disk_made(struct disk_op *op, const struct err *err)
{
    struct creating *creating = container_of(op, struct creating, disk_op);
    struct call *call = creating->rpc->call;

    if (err) {
        disk_stored(op, err);
        return;
    }
    call->object = arena_printf(&call->arena, "volume/%s", op->disk->id);
    call->detail = NULL;
    op->done = disk_stored;
    disk_ready(op->disk, op);
}

/* 1: it is there; 0: wait; -1. */
static int need_volume(struct creating *creating, const char *name, struct err *err)
{
    struct call *call = creating->rpc->call;
    struct disk *disk;

    if (disk_find(call->api->boxes, call_reach(call), DISK_VOLUME, NULL, name, &disk,
                  &(struct err){ 0 }) == 0) {
        if (disk->state == DISK_LOST)
            return err_set(err, ERR_CONFLICT, "the storage of this tenant is lost");
        return disk->state == DISK_MAKING ? wait_for(creating, err) : 1;
    }
    struct disk_want want = { .kind = DISK_VOLUME,
                              .tenant = call->who.tenant,
                              .by = call->who.id,
                              .role = role_name(call->who.role),
                              .name = name,
                              .bytes = AGENTBOX_VOLUME_BYTES };
    if (may_own(call, &want.access, err) < 0)
        return -1;
    creating->disk_op = (struct disk_op){ .record = disk_record,
                                          .done = disk_made,
                                          .tenant = call->who.tenant,
                                          .event = "volume.created" };
    if (disk_make(call->api->boxes, &want, &creating->disk_op, err) < 0)
        return -1;
    rpc_hold(creating->rpc);
    return 0;
}

/* Not what the caller said, but a digest of it. */
static void name_volumes(struct creating *creating)
{
    static const char *const parts[VOLUMES] = { "workspace", "outputs" };
    unsigned char hash[SHA256_SIZE];
    char hex[33];

    sha256(creating->tenant, strlen(creating->tenant), hash);
    hex_text(hash, 16, hex);
    for (size_t i = 0; i < VOLUMES; i++)
        creating->volumes[i] =
            arena_printf(&creating->rpc->call->arena, "agentbox-%s-%s", hex, parts[i]);
}

/* ---- step by step ---- */

static int go_on(struct creating *creating, struct err *err)
{
    struct rpc *rpc = creating->rpc;
    struct box *box = session_find(rpc, creating->id);
    struct sandbox_view view;

    if (box) {
        box_view(box, &view);
        if (strcmp(view.state, "creating") == 0)
            return wait_for(creating, err);
        box_touch(box);
        reply_created(rpc, box);
        return 0;
    }
    if (!rpc->grpc)
        return 0; /* nobody wants it any more */
    for (size_t i = 0; i < VOLUMES && creating->tenant; i++) {
        int rc = need_volume(creating, creating->volumes[i], err);

        if (rc <= 0)
            return rc;
    }
    return make_box(creating, err);
}

static const char *new_uuid(struct arena *arena)
{
    unsigned char raw[16];
    char hex[33];

    random_bytes(raw, sizeof(raw));
    raw[6] = (unsigned char)((raw[6] & 15) | 0x40);
    raw[8] = (unsigned char)((raw[8] & 63) | 0x80);
    hex_text(raw, sizeof(raw), hex);
    return arena_printf(arena, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
                        hex + 20);
}

static int check_id(const char *id, const char *field, struct err *err)
{
    size_t len = strlen(id);

    if (len > AGENTBOX_ID_MAX)
        return err_field(err, field, "%s has more than %d bytes", field, AGENTBOX_ID_MAX);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)id[i] < 0x20 || id[i] == 0x7f)
            return err_field(err, field, "%s has a control character in it", field);
    return 0;
}

static int create_session(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    const Sandbox__V1__CreateSessionRequest *request = (void *)message;
    struct creating *creating = arena_new(&rpc->call->arena, struct creating);

    creating->rpc = rpc;
    creating->request = request;
    if (request->session_id_is_case && *request->session_id)
        creating->id = request->session_id;
    else
        creating->id = new_uuid(&rpc->call->arena);
    if (request->tenant_id_is_case && *request->tenant_id)
        creating->tenant = request->tenant_id;
    if (request->no_hosts && request->n_allowed_hosts)
        return err_field(err, "no_hosts", "no_hosts, or allowed_hosts");
    if (check_id(creating->id, "session_id", err) < 0 ||
        (creating->tenant && check_id(creating->tenant, "tenant_id", err) < 0))
        return -1;
    if (creating->tenant)
        name_volumes(creating);
    return go_on(creating, err);
}

/* ---- destroying ---- */

struct destroying {
    struct box_op op;
    struct rpc *rpc;
};

static void destroy_prepare(struct box_op *op)
{
    struct call *call = container_of(op, struct destroying, op)->rpc->call;
    struct sandbox_view view;

    box_view(op->box, &view);
    call->object = arena_printf(&call->arena, "sandbox/%s", view.id);
}

static int destroy_record(struct box_op *op, struct db *db, struct err *err)
{
    return call_record(container_of(op, struct destroying, op)->rpc->call, db, err);
}

static void reply_destroyed(struct rpc *rpc, bool success)
{
    Sandbox__V1__DestroySessionResponse reply = SANDBOX__V1__DESTROY_SESSION_RESPONSE__INIT;

    reply.success = success;
    rpc_reply(rpc, &reply.base);
}

static void destroyed(struct box_op *op, const struct err *err)
{
    struct rpc *rpc = container_of(op, struct destroying, op)->rpc;

    if (err)
        rpc_finish(rpc, err);
    else
        reply_destroyed(rpc, true);
    rpc_drop(rpc);
}

static int destroy_session(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    const Sandbox__V1__DestroySessionRequest *request = (void *)message;
    struct destroying *destroying = arena_new(&rpc->call->arena, struct destroying);
    struct box *box = session_find(rpc, request->session_id);

    if (!box) {
        reply_destroyed(rpc, false);
        return 0;
    }
    destroying->rpc = rpc;
    destroying->op = (struct box_op){ .tenant = rpc->call->who.tenant,
                                      .by = rpc->call->who.id,
                                      .prepare = destroy_prepare,
                                      .record = destroy_record,
                                      .done = destroyed };
    if (box_delete(box, &destroying->op, err) < 0)
        return -1;
    rpc_hold(rpc);
    return 0;
}

/* ---- telling ---- */

static int get_session(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    const Sandbox__V1__GetSessionRequest *request = (void *)message;
    Sandbox__V1__GetSessionResponse reply = SANDBOX__V1__GET_SESSION_RESPONSE__INIT;
    struct box *box = session_find(rpc, request->session_id);

    if (!box)
        return err_set(err, ERR_NOT_FOUND, NO_SESSION);
    box_touch(box);
    reply.session = session_info(rpc, box);
    rpc_reply(rpc, &reply.base);
    return 0;
}

static int list_sessions(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    Sandbox__V1__ListSessionsResponse reply = SANDBOX__V1__LIST_SESSIONS_RESPONSE__INIT;
    struct boxes *boxes = rpc->call->api->boxes;
    struct box *box = NULL;
    size_t count = 0;

    (void)message, (void)err;
    while ((box = boxes_next(boxes, call_reach(rpc->call), box)))
        count++;
    reply.sessions = arena_alloc(&rpc->call->arena, (count + 1) * sizeof(*reply.sessions));
    while ((box = boxes_next(boxes, call_reach(rpc->call), box)))
        reply.sessions[reply.n_sessions++] = session_info(rpc, box);
    rpc_reply(rpc, &reply.base);
    return 0;
}

/* ---- the table ---- */

#define METHOD(takes_, gives_, fn_)                                                                \
    {                                                                                              \
        .takes = &sandbox__v1__##takes_##__descriptor,                                             \
        .gives = &sandbox__v1__##gives_##__descriptor, .fn = (fn_)                                 \
    }

static const struct rpc_method create_method =
    METHOD(create_session_request, create_session_response, create_session);
static const struct rpc_method destroy_method =
    METHOD(destroy_session_request, destroy_session_response, destroy_session);
static const struct rpc_method get_method =
    METHOD(get_session_request, get_session_response, get_session);
static const struct rpc_method list_method =
    METHOD(list_sessions_request, list_sessions_response, list_sessions);

#define SERVICE "sandbox.v1.SandboxService"

const struct route agentbox_routes[] = {
    RPC_ROUTE(SERVICE, "CreateSession", "sandbox.create", ROLE_USE, &create_method),
    RPC_ROUTE(SERVICE, "DestroySession", "sandbox.delete", ROLE_USE, &destroy_method),
    RPC_ROUTE(SERVICE, "GetSession", "sandbox.read", ROLE_LOOK, &get_method),
    RPC_ROUTE_GET(SERVICE, "GetSession", "sandbox.read", ROLE_LOOK, &get_method),
    RPC_ROUTE(SERVICE, "ListSessions", "sandbox.list", ROLE_LOOK, &list_method),
    RPC_ROUTE_GET(SERVICE, "ListSessions", "sandbox.list", ROLE_LOOK, &list_method),
    RPC_ROUTE(SERVICE, "Exec", "exec.create", ROLE_USE, &agentbox_exec),
    RPC_ROUTE(SERVICE, "ExecStream", "exec.create", ROLE_USE, &agentbox_exec_stream),
    RPC_ROUTE(SERVICE, "WriteFile", "file.write", ROLE_USE, &agentbox_write_file),
    RPC_ROUTE(SERVICE, "ReadFile", "file.read", ROLE_LOOK, &agentbox_read_file),
    RPC_ROUTE_GET(SERVICE, "ReadFile", "file.read", ROLE_LOOK, &agentbox_read_file),
    RPC_ROUTE(SERVICE, "PipInstall", "exec.create", ROLE_USE, &agentbox_pip_install),
    { 0 },
};
