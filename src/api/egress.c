/*
 * Layers of egress policy and packs. A change is checked on the loop, applied to the row in the
 * write job that also keeps its event and audit row, and counts for every sandbox it concerns as
 * soon as that is stored.
 */
#include "api/egress.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "policy/pack.h"

/* ---- who may say what ---- */

static bool owner(const struct call *call)
{
    return strcmp(call->who.tenant, TENANT_OWNER) == 0;
}

static int no_secret(struct err *err, const char *prefix, const char *list, size_t at,
                     struct str name)
{
    char field[ERR_FIELD_SIZE];

    snprintf(field, sizeof(field), "%s%s[%zu]", prefix, list, at);
    return err_field(err, field, "no secret %.*s for requests; atoll secret set NAME --host HOST",
                     STR_FMT(name));
}

/* Each secret that is named must be there. A rule may outlive it: then it says nothing. */
int egress_secrets(struct call *call, const struct egress_spec *spec, const char *prefix,
                   struct err *err)
{
    struct inject_rule rule;
    struct str variable, name;

    if (!spec)
        return 0;
    for (size_t i = 0; spec->inject && spec->inject[i]; i++)
        if (inject_rule_parse(str_of(spec->inject[i]), &rule, NULL) == 0 &&
            !gate_secret_known(call->api->gate, call->who.tenant, inject_named(&rule)))
            return no_secret(err, prefix, "inject", i, inject_named(&rule));
    for (size_t i = 0; spec->secrets && spec->secrets[i]; i++)
        if (inject_wish_parse(str_of(spec->secrets[i]), &variable, &name, NULL) == 0 &&
            !gate_secret_known(call->api->gate, call->who.tenant, name))
            return no_secret(err, prefix, "secrets", i, name);
    return 0;
}

int egress_may(struct call *call, const struct egress_spec *spec, const char *prefix,
               struct err *err)
{
    char field[ERR_FIELD_SIZE];

    if (!spec)
        return 0;
    if (!(call->who.role & ROLE_STEER) && !egress_spec_narrows(spec))
        return err_role(
            err, "only an operator may allow hosts, choose packs or projects, use secrets, or "
                 "set a mode other than deny");
    if (egress_spec_has_addr(spec) && !owner(call))
        return err_role(err, "rules that allow addresses are for operators of the whole server");
    for (size_t i = 0; spec->packs && spec->packs[i]; i++)
        if (!gate_pack_known(call->api->gate, call->who.tenant, spec->packs[i])) {
            snprintf(field, sizeof(field), "%spacks[%zu]", prefix, i);
            return err_field(err, field, "no pack %.32s; `atoll egress packs` lists them",
                             spec->packs[i]);
        }
    return 0;
}

/* ---- showing ---- */

const struct field layer_fields[] = {
    FIELD(layer_view, level, F_ENUM, F_READONLY, .choices = "node|tenant|project|sandbox",
          .help = "Whom it is for; what is further to the right stands inside"),
    FIELD(layer_view, name, F_STRING, F_READONLY,
          .help = "Of the tenant, the project or the sandbox; null for the node"),
    FIELD(layer_view, policy, F_OBJECT, F_READONLY, .of = egress_fields,
          .of_size = sizeof(struct egress_spec), .help = "What it says"),
    FIELD(layer_view, by, F_STRING, F_READONLY, .help = "Who changed it last; null for nobody"),
    FIELD(layer_view, changed_at, F_TIME, F_READONLY, .help = "When"),
    { 0 },
};

static struct layer_view view_of(const struct gate_layer *layer)
{
    return (struct layer_view){ .level = policy_level_name(layer->level),
                                .name = layer->level == LEVEL_NODE     ? NULL
                                        : layer->level == LEVEL_TENANT ? layer->tenant
                                                                       : layer->name,
                                .policy = layer->spec,
                                .by = layer->by,
                                .changed_at = layer->changed_ms };
}

static int layer_list(struct call *call, struct err *err)
{
    const struct gate_layer *layer = NULL;
    struct json_out json = call_json(call);

    (void)err;
    json_open(&json, '{');
    json_key(&json, "items");
    json_open(&json, '[');
    while ((layer = gate_layer_next(call->api->gate, call->who.tenant, layer))) {
        struct layer_view view = view_of(layer);

        field_encode(layer_fields, &view, &json);
    }
    json_close(&json, ']');
    json_close(&json, '}');
    return 0;
}

/* One that nobody has written yet is there, and says nothing. */
static int show(struct call *call, enum policy_level level, const char *name)
{
    const char *tenant = level == LEVEL_NODE ? "" : call->who.tenant;
    const struct gate_layer *layer = gate_layer_find(call->api->gate, level, tenant, name);
    struct gate_layer none = {
        .level = level, .tenant = tenant, .name = name, .spec = &(struct egress_spec){ 0 }
    };
    struct layer_view view = view_of(layer ? layer : &none);

    return call_reply(call, &view);
}

static int node_get(struct call *call, struct err *err)
{
    (void)err;
    return show(call, LEVEL_NODE, "");
}

static int tenant_get(struct call *call, struct err *err)
{
    (void)err;
    return show(call, LEVEL_TENANT, "");
}

static int project_name(struct call *call, const char **out, struct err *err)
{
    *out = call_param(call, "project");
    if (!pack_name_ok(str_of(*out)))
        return err_field(err, "project",
                         "lower-case letters, digits and hyphens, beginning with a letter");
    return 0;
}

static int project_get(struct call *call, struct err *err)
{
    const char *name;

    return project_name(call, &name, err) < 0 ? -1 : show(call, LEVEL_PROJECT, name);
}

/* ---- changing ---- */

/* The list with `rule` at its end, or without it. */
static const char **with_rule(struct arena *arena, const char **list, const char *rule, bool in)
{
    size_t count = 0, used = 0;

    while (list && list[count])
        count++;
    const char **out = arena_alloc(arena, (count + 2) * sizeof(*out));
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], rule) != 0)
            out[used++] = list[i];
    if (in)
        out[used++] = rule;
    return out;
}

int layer_apply(const struct layer_change *change, struct egress_spec *spec, struct arena *arena,
                struct err *err)
{
    int64_t version = spec->version;

    if (change->spec.version && change->spec.version != version)
        return err_set(err, ERR_CONFLICT, "it has version %lld by now, not %lld",
                       (long long)version, (long long)change->spec.version);
    if (change->how == LAYER_PUT) {
        *spec = change->spec;
    } else if (change->how == LAYER_PATCH) {
        egress_spec_merge(spec, &change->spec, change->present);
    } else if (change->how == LAYER_RULE) {
        spec->allow = with_rule(arena, spec->allow, change->rule, !change->deny);
        spec->deny = with_rule(arena, spec->deny, change->rule, change->deny);
    } else {
        *spec = (struct egress_spec){ 0 };
    }
    spec->version = version + 1;
    for (size_t i = 0; spec->allow && spec->allow[i]; i++)
        if (i >= EGRESS_RULES_MAX)
            return err_field(err, "allow", "at most %d rules", EGRESS_RULES_MAX);
    for (size_t i = 0; spec->deny && spec->deny[i]; i++)
        if (i >= EGRESS_RULES_MAX)
            return err_field(err, "deny", "at most %d rules", EGRESS_RULES_MAX);
    return 0;
}

struct layer_call {
    struct store_job job;
    struct call *call;
    struct gate_layer layer;
    struct egress_spec spec; /* as it becomes */
    struct layer_change change;
};

static int64_t count_of(const char **list)
{
    int64_t count = 0;

    while (list && list[count])
        count++;
    return count;
}

/* In the event and the audit row: what it is, and the digest of all it says. */
static const char *told(struct layer_call *put)
{
    autobuf struct buf text = { 0 }, body = { 0 };
    struct json_out said = json_to(&text), json = json_to(&body);
    unsigned char hash[SHA256_SIZE];
    char hex[SHA256_HEX_SIZE];

    field_encode(egress_fields, &put->spec, &said);
    sha256(text.data, text.len, hash);
    hex_text(hash, sizeof(hash), hex);
    json_open(&json, '{');
    json_kv_text(&json, "level", policy_level_name(put->layer.level));
    json_kv_text(&json, "name", put->layer.name[0] ? put->layer.name : NULL);
    json_kv_int(&json, "version", put->spec.version);
    json_kv_text(&json, "mode", put->spec.mode);
    json_kv_int(&json, "allow", count_of(put->spec.allow));
    json_kv_int(&json, "deny", count_of(put->spec.deny));
    json_kv_int(&json, "packs", count_of(put->spec.packs));
    json_kv_int(&json, "inject", count_of(put->spec.inject));
    json_kv_int(&json, "secrets", count_of(put->spec.secrets));
    json_kv_bool(&json, "locked", put->spec.locked);
    if (put->change.how == LAYER_RULE) {
        json_kv_text(&json, "rule", put->change.rule);
        json_kv_text(&json, "verdict", put->change.deny ? "deny" : "allow");
    }
    json_kv_text(&json, "sha256", hex);
    json_kv_text(&json, "by", put->call->who.id);
    json_close(&json, '}');
    return arena_memdup0(&put->call->arena, body.data, body.len);
}

static int layer_run(struct store_job *job, struct db *db, struct err *err)
{
    struct layer_call *put = container_of(job, struct layer_call, job);
    struct call *call = put->call;
    struct gate_layer *layer = &put->layer;

    if (gate_layer_read(db, layer->level, layer->tenant, layer->name, &call->arena, &put->spec,
                        err) < 0 ||
        layer_apply(&put->change, &put->spec, &call->arena, err) < 0)
        return -1;
    layer->spec = &put->spec;
    /* Also of one that says nothing any more: its number must go on rising. */
    if (gate_layer_write(db, layer, err) < 0)
        return -1;
    struct layer_view view = view_of(layer);
    call_reply(call, &view);
    call->object = arena_printf(&call->arena, "egress/%s%s%s", view.level,
                                layer->name[0] ? "/" : "", layer->name);
    call->detail = told(put);
    /* Of the node everybody would like to hear, but events belong to tenants. */
    if (event_add(db, call->who.tenant, "egress.policy.changed", call->object, str_of(call->detail),
                  err) < 0)
        return -1;
    return call_record(call, db, err);
}

static void layer_done(struct store_job *job)
{
    struct layer_call *put = container_of(job, struct layer_call, job);

    if (job->rc >= 0)
        gate_layer_set(put->call->api->gate, &put->layer);
    call_finish(put->call, job->rc < 0 ? &job->err : NULL);
}

int layer_submit(struct call *call, enum policy_level level, const char *name,
                 const struct layer_change *change, struct err *err)
{
    struct layer_call *put = arena_new(&call->arena, struct layer_call);

    if (egress_spec_check(&change->spec, "", err) < 0 ||
        egress_may(call, &change->spec, "", err) < 0 ||
        egress_secrets(call, &change->spec, "", err) < 0)
        return -1;
    if (level == LEVEL_NODE && (count_of(change->spec.inject) || count_of(change->spec.secrets)))
        return err_field(err, count_of(change->spec.inject) ? "inject" : "secrets",
                         "secrets are a tenant's: its layers, projects and sandboxes use them");
    put->call = call;
    put->change = *change;
    put->layer = (struct gate_layer){ .level = level,
                                      .tenant = level == LEVEL_NODE ? "" : call->who.tenant,
                                      .name = name,
                                      .by = call->who.id,
                                      .changed_ms = clock_wall_ms() };
    put->job = (struct store_job){ .run = layer_run, .done = layer_done };
    store_write(call->api->store, &put->job);
    return 0;
}

static int change(struct call *call, enum policy_level level, const char *name, struct err *err)
{
    struct layer_change change = { .how = call->method[0] == 'D'   ? LAYER_DELETE
                                          : call->method[1] == 'A' ? LAYER_PATCH
                                                                   : LAYER_PUT };

    if (change.how != LAYER_DELETE &&
        call_decode_patch(call, &change.spec, &change.present, err) < 0)
        return -1;
    return layer_submit(call, level, name, &change, err);
}

static int node_change(struct call *call, struct err *err)
{
    return change(call, LEVEL_NODE, "", err);
}

static int tenant_change(struct call *call, struct err *err)
{
    return change(call, LEVEL_TENANT, "", err);
}

static int project_change(struct call *call, struct err *err)
{
    const char *name;

    return project_name(call, &name, err) < 0 ? -1 : change(call, LEVEL_PROJECT, name, err);
}

/* ---- packs ---- */

struct pack_wish {
    const char *help;
    const char **rules;
};

static const struct field pack_wish_fields[] = {
    FIELD(pack_wish, help, F_STRING, 0, .max = 200, .help = "What it is for"),
    FIELD(pack_wish, rules, F_STRINGS, F_REQUIRED, .min = 1, .max = EGRESS_RULES_MAX,
          .each_max = RULE_TEXT_MAX, .help = "What it allows"),
    { 0 },
};

struct pack_view {
    const char *name, *help, *by;
    const char *const *rules, *const *added;
    bool built_in;
    int64_t changed_at;
};

static const struct field pack_fields[] = {
    FIELD(pack_view, name, F_STRING, F_READONLY, .help = "What policies call it"),
    FIELD(pack_view, help, F_STRING, F_READONLY, .help = "What it is for"),
    FIELD(pack_view, built_in, F_BOOL, F_READONLY, .help = "It came with the program"),
    FIELD(pack_view, rules, F_STRINGS, F_READONLY, .help = "What a built-in one allows"),
    FIELD(pack_view, added, F_STRINGS, F_READONLY, .help = "What this tenant's operators added"),
    FIELD(pack_view, by, F_STRING, F_READONLY, .help = "Who added it last; null for nobody"),
    FIELD(pack_view, changed_at, F_TIME, F_READONLY, .help = "When"),
    { 0 },
};

static const char *const no_rules[] = { NULL };

static struct pack_view pack_view(const struct pack *built_in, const struct gate_pack *own)
{
    const char *help = built_in ? built_in->help : NULL;

    if (own && own->help[0])
        help = own->help;
    return (struct pack_view){ .name = built_in ? built_in->name : own->name,
                               .help = help,
                               .by = own ? own->by : NULL,
                               .rules = built_in ? built_in->rules : no_rules,
                               .added = own ? (const char *const *)own->rules : no_rules,
                               .built_in = built_in != NULL,
                               .changed_at = own ? own->changed_ms : 0 };
}

static int pack_list(struct call *call, struct err *err)
{
    struct gate *gate = call->api->gate;
    const struct gate_pack *own = NULL;
    struct json_out json = call_json(call);

    (void)err;
    json_open(&json, '{');
    json_key(&json, "items");
    json_open(&json, '[');
    for (const struct pack *pack = packs; pack->name; pack++) {
        struct pack_view view = pack_view(pack, gate_pack_find(gate, call->who.tenant, pack->name));

        field_encode(pack_fields, &view, &json);
    }
    while ((own = gate_pack_next(gate, call->who.tenant, own))) {
        struct pack_view view = pack_view(NULL, own);

        if (!pack_find(str_of(own->name)))
            field_encode(pack_fields, &view, &json);
    }
    json_close(&json, ']');
    json_close(&json, '}');
    return 0;
}

struct pack_call {
    struct store_job job;
    struct call *call;
    struct gate_pack pack;
};

static int pack_run(struct store_job *job, struct db *db, struct err *err)
{
    struct pack_call *put = container_of(job, struct pack_call, job);
    struct call *call = put->call;
    const struct gate_pack *pack = &put->pack;
    int rc = pack->rules ? gate_pack_write(db, pack, err)
                         : gate_pack_erase(db, pack->tenant, pack->name, err);

    if (rc < 0)
        return -1;
    if (!pack->rules && rc == 0)
        return err_set(err, ERR_NOT_FOUND, "nothing was added to a pack %.32s", pack->name);
    call->object = arena_printf(&call->arena, "egress/pack/%s", pack->name);
    call->detail = arena_printf(&call->arena, "{\"pack\":\"%s\",\"rules\":%lld}", pack->name,
                                (long long)count_of(pack->rules));
    if (event_add(db, call->who.tenant, "egress.pack.changed", call->object, str_of(call->detail),
                  err) < 0)
        return -1;
    return call_record(call, db, err);
}

static void pack_done(struct store_job *job)
{
    struct pack_call *put = container_of(job, struct pack_call, job);

    if (job->rc >= 0)
        gate_pack_set(put->call->api->gate, &put->pack);
    call_finish(put->call, job->rc < 0 ? &job->err : NULL);
}

static int pack_submit(struct call *call, const struct pack_wish *wish, struct err *err)
{
    struct pack_call *put = arena_new(&call->arena, struct pack_call);
    const char *name = call_param(call, "pack");

    if (!pack_name_ok(str_of(name)))
        return err_field(err, "pack",
                         "lower-case letters, digits and hyphens, beginning with a letter");
    put->call = call;
    put->pack = (struct gate_pack){ .tenant = call->who.tenant,
                                    .name = name,
                                    .help = wish && wish->help ? wish->help : "",
                                    .rules = wish ? wish->rules : NULL,
                                    .by = call->who.id,
                                    .changed_ms = clock_wall_ms() };
    if (wish) {
        struct pack_view view = pack_view(pack_find(str_of(name)), &put->pack);

        call_reply(call, &view);
    } else {
        call->status = 204;
    }
    put->job = (struct store_job){ .run = pack_run, .done = pack_done };
    store_write(call->api->store, &put->job);
    return 0;
}

static int pack_put(struct call *call, struct err *err)
{
    struct pack_wish wish = { 0 };

    if (call_decode(call, &wish, err) < 0)
        return -1;
    struct egress_spec as_layer = { .allow = wish.rules };
    if (egress_spec_check(&as_layer, "", err) < 0) {
        snprintf(err->field, sizeof(err->field), "rules");
        return -1;
    }
    if (egress_may(call, &as_layer, "", err) < 0)
        return -1;
    return pack_submit(call, &wish, err);
}

static int pack_delete(struct call *call, struct err *err)
{
    return pack_submit(call, NULL, err);
}

/* clang-format off: a table */
#define LAYER_ROUTES(noun, path_, get_, change_, flags_, whose)                                    \
    { .name = "egress." noun ".read",                                                              \
      .method = "GET",                                                                             \
      .path = path_,                                                                               \
      .on = ON_LOOP,                                                                               \
      .roles = ROLE_LOOK,                                                                          \
      .fn = get_,                                                                                  \
      .gives = layer_fields,                                                                       \
      .summary = "The layer of " whose ": what its sandboxes may reach." },                        \
        { .name = "egress." noun ".put",                                                           \
          .method = "PUT",                                                                         \
          .path = path_,                                                                           \
          .on = ON_LATER,                                                                          \
          .roles = ROLE_STEER,                                                                     \
          .fn = change_,                                                                           \
          .takes = egress_fields,                                                                  \
          .gives = layer_fields,                                                                   \
          .flags = flags_,                                                                         \
          .summary = "Write the layer of " whose " anew." },                                       \
        { .name = "egress." noun ".change",                                                        \
          .method = "PATCH",                                                                       \
          .path = path_,                                                                           \
          .on = ON_LATER,                                                                          \
          .roles = ROLE_STEER,                                                                     \
          .fn = change_,                                                                           \
          .takes = egress_fields,                                                                  \
          .gives = layer_fields,                                                                   \
          .flags = flags_,                                                                         \
          .summary = "Change the layer of " whose "; what is not named stays." },                  \
    {                                                                                              \
        .name = "egress." noun ".clear", .method = "DELETE", .path = path_, .on = ON_LATER,        \
        .roles = ROLE_STEER, .fn = change_, .gives = layer_fields, .flags = flags_,                \
        .summary = "Let the layer of " whose " say nothing."                                       \
    }

const struct route egress_routes[] = {
    { .name = "egress.policies",
      .method = "GET",
      .path = "/api/v1/egress/policies",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = layer_list,
      .items = layer_fields,
      .summary = "Every layer that was written, the node's first." },
    LAYER_ROUTES("node", "/api/v1/egress/policies/node", node_get, node_change, ROUTE_NODE,
                 "the node"),
    LAYER_ROUTES("tenant", "/api/v1/egress/policies/tenant", tenant_get, tenant_change, 0,
                 "the caller's tenant"),
    LAYER_ROUTES("project", "/api/v1/egress/policies/projects/{project}", project_get,
                 project_change, 0, "a project"),
    { .name = "egress.pack.list",
      .method = "GET",
      .path = "/api/v1/egress/packs",
      .on = ON_LOOP,
      .roles = ROLE_LOOK,
      .fn = pack_list,
      .items = pack_fields,
      .summary = "Named lists of rules: built in, and what the tenant's operators added." },
    { .name = "egress.pack.put",
      .method = "PUT",
      .path = "/api/v1/egress/packs/{pack}",
      .on = ON_LATER,
      .roles = ROLE_STEER,
      .fn = pack_put,
      .takes = pack_wish_fields,
      .gives = pack_fields,
      .summary = "Make a pack, or say what is added to a built-in one." },
    { .name = "egress.pack.delete",
      .method = "DELETE",
      .path = "/api/v1/egress/packs/{pack}",
      .on = ON_LATER,
      .roles = ROLE_STEER,
      .fn = pack_delete,
      .summary = "Forget a pack, or what was added to a built-in one." },
    { 0 },
};
/* clang-format on */
