/*
 * What counts for one sandbox: the layers of node, tenant, project and its own, with their packs,
 * compiled. Made when it is first asked for and whenever something changes below it; when the
 * layers do not fit into one policy, nothing is allowed and `why` says so.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gate/own.h"
#include "policy/pack.h"

/* ---- layers of a sandbox ---- */

static const char **joined(struct arena *arena, const char *const *first, const char **second)
{
    size_t a = 0, b = 0;

    while (first && first[a])
        a++;
    while (second && second[b])
        b++;
    const char **both = arena_alloc(arena, (a + b + 1) * sizeof(*both));
    for (size_t i = 0; i < a; i++)
        both[i] = first[i];
    for (size_t i = 0; i < b; i++)
        both[a + i] = second[i];
    return both;
}

/* A name that is no pack any more allows nothing. */
static const char **pack_rules(const struct gate *gate, const char *tenant, const char *name,
                               struct arena *arena)
{
    const struct pack *built_in = pack_find(str_of(name));
    const struct gate_pack *own = gate_pack_find(gate, tenant, name);

    return joined(arena, built_in ? built_in->rules : NULL, own ? own->rules : NULL);
}

static struct policy_layer layer_of(const struct gate *gate, const char *tenant,
                                    const struct egress_spec *spec, struct arena *arena)
{
    struct policy_layer layer = { .present = true,
                                  .locked = spec->locked,
                                  .allow = spec->allow,
                                  .deny = spec->deny,
                                  .intercept = held_opened(gate, tenant, spec, arena),
                                  .unchecked = spec->unchecked,
                                  .max_bytes = (uint64_t)spec->max_bytes,
                                  .max_connections = (uint32_t)spec->max_connections,
                                  .ask_s = (uint32_t)spec->ask_s };
    struct policy_pack *named;

    if (spec->mode && !policy_mode_from(str_of(spec->mode), &layer.mode))
        layer.mode = POLICY_MODE_DENY;
    while (spec->packs && spec->packs[layer.pack_count])
        layer.pack_count++;
    layer.packs = named = arena_alloc(arena, (layer.pack_count + 1) * sizeof(*named));
    for (size_t i = 0; spec->packs && i < layer.pack_count; i++)
        named[i] =
            (struct policy_pack){ spec->packs[i], pack_rules(gate, tenant, spec->packs[i], arena) };
    return layer;
}

size_t layers_of(const struct gate *gate, const char *tenant, const struct egress_spec *own,
                 struct layer_ref out[LEVELS])
{
    const struct gate_layer *found[] = {
        gate_layer_find(gate, LEVEL_NODE, "", ""),
        gate_layer_find(gate, LEVEL_TENANT, tenant, ""),
        own && own->project ? gate_layer_find(gate, LEVEL_PROJECT, tenant, own->project) : NULL,
    };
    bool locked = false;
    size_t count = 0;

    for (size_t i = 0; i < ARRAY_LEN(found) && !locked; i++) {
        if (found[i] && i != LEVEL_NODE) /* whose secrets would its be? */
            out[count++] = (struct layer_ref){ (enum policy_level)i, found[i]->spec };
        locked = found[i] && found[i]->spec->locked;
    }
    if (own && !locked)
        out[count++] = (struct layer_ref){ LEVEL_SANDBOX, own };
    return count;
}

static void put(const struct gate *gate, const struct gate_layer *from, const char *tenant,
                struct arena *arena, struct policy_layer *out)
{
    if (from)
        *out = layer_of(gate, tenant, from->spec, arena);
}

static int compile(const struct gate *gate, const char *tenant, const struct egress_spec *own,
                   uint64_t version, struct buf *out, struct err *err)
{
    struct policy_layer layers[LEVELS] = { 0 };
    autoarena struct arena arena = { 0 };
    /* The packs of the node's layer are those of the tenant that owns the node. */
    const char *owner = "default";

    put(gate, gate_layer_find(gate, LEVEL_NODE, "", ""), owner, &arena, &layers[LEVEL_NODE]);
    put(gate, gate_layer_find(gate, LEVEL_TENANT, tenant, ""), tenant, &arena,
        &layers[LEVEL_TENANT]);
    if (own && own->project)
        put(gate, gate_layer_find(gate, LEVEL_PROJECT, tenant, own->project), tenant, &arena,
            &layers[LEVEL_PROJECT]);
    if (own)
        layers[LEVEL_SANDBOX] = layer_of(gate, tenant, own, &arena);
    return policy_compile(layers, version, out, err);
}

int gate_try(struct gate *gate, const struct box *box, const struct egress_spec *own,
             struct err *err)
{
    autobuf struct buf bytes = { 0 }, inject = { 0 };

    if (compile(gate, box_tenant(box), own, 1, &bytes, err) < 0)
        return -1;
    return held_compile(gate, box_tenant(box), own, &inject, err);
}

/* ---- kept ---- */

static struct gate_box *know(struct gate *gate, const struct box *box);

/* What goes into its requests, and what stands for it in the environment of its commands. */
static void compile_credentials(struct gate *gate, struct gate_box *known,
                                const struct egress_spec *own)
{
    struct field_pair pairs[ENV_HELD_MAX];
    autoarena struct arena arena = { 0 };
    struct box *box = boxes_by_id(gate->boxes, known->id);
    struct err err = { 0 };

    buf_clear(&known->inject);
    known->inject_why[0] = 0;
    if (held_compile(gate, known->tenant, own, &known->inject, &err) < 0) {
        log_error("no credentials for a sandbox", kv_str("sandbox", known->id),
                  kv_str("error", err.msg));
        snprintf(known->inject_why, sizeof(known->inject_why), "%s", err.msg);
        buf_clear(&known->inject);
    }
    if (!box)
        return;
    size_t count = held_env(gate, known->tenant, own, pairs, ARRAY_LEN(pairs), &arena);
    box_held(box, pairs, count);
    box_trust_expect(box, policy_intercepts(&known->policy));
}

const char *gate_credentials(struct gate *gate, const struct box *box)
{
    const struct gate_box *known = know(gate, box);

    return known->inject_why[0] ? known->inject_why : NULL;
}

static void compile_box(struct gate *gate, struct gate_box *known, const struct egress_spec *own)
{
    struct err err = { 0 };
    struct buf bytes = { 0 };

    known->version = ++gate->versions;
    known->why[0] = 0;
    if (compile(gate, known->tenant, own, known->version, &bytes, &err) < 0 ||
        policy_open(&known->policy, bytes.data, bytes.len, &err) < 0) {
        log_error("a sandbox reaches nothing: its policy", kv_str("sandbox", known->id),
                  kv_str("error", err.msg));
        snprintf(known->why, sizeof(known->why), "%s", err.msg);
        buf_free(&bytes);
        bytes = (struct buf){ 0 };
        known->policy = policy_none;
        known->policy.version = known->version;
    }
    buf_free(&known->bytes);
    known->bytes = bytes;
    compile_credentials(gate, known, own);
    peer_policy(gate, known);
}

static struct gate_box *know(struct gate *gate, const struct box *box)
{
    struct sandbox_view view;
    struct gate_box *known;

    box_view(box, &view);
    known = map_get(&gate->known, str_of(view.id));
    if (known)
        return known;
    known = xnew(struct gate_box);
    snprintf(known->id, sizeof(known->id), "%s", view.id);
    snprintf(known->tenant, sizeof(known->tenant), "%s", box_tenant(box));
    map_put(&gate->known, str_of(known->id), known);
    struct gate_totals *before = map_del(&gate->before, str_of(known->id));
    if (before)
        known->totals = *before;
    free(before);
    compile_box(gate, known, view.egress);
    return known;
}

static void again(struct gate *gate, const struct box *box)
{
    struct sandbox_view view;
    struct gate_box *known;

    box_view(box, &view);
    known = map_get(&gate->known, str_of(view.id));
    if (known)
        compile_box(gate, known, view.egress);
    else
        know(gate, box);
}

static bool concerns(enum policy_level level, const char *tenant, const char *project,
                     const struct box *box)
{
    struct sandbox_view view;

    if (level == LEVEL_NODE)
        return true;
    if (strcmp(tenant, box_tenant(box)) != 0)
        return strcmp(tenant, "default") == 0 &&
               level == LEVEL_TENANT; /* its packs are the node's */
    box_view(box, &view);
    return level != LEVEL_PROJECT ||
           (view.egress && view.egress->project && strcmp(view.egress->project, project) == 0);
}

/* One that is not known yet is compiled when it is, from the layers as they are then. */
void gate_changed(struct gate *gate, enum policy_level level, const char *tenant,
                  const char *project)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&gate->known, &at))) {
        const struct gate_box *known = slot->value;
        const struct box *box = boxes_by_id(gate->boxes, known->id);

        if (box && concerns(level, tenant, project, box))
            again(gate, box);
    }
}

const struct policy *gate_policy(struct gate *gate, const struct box *box, const char **why)
{
    struct gate_box *known = know(gate, box);

    if (why)
        *why = known->why[0] ? known->why : NULL;
    return &known->policy;
}

enum policy_mode gate_mode(const struct gate *gate, const struct box *box)
{
    autobuf struct buf bytes = { 0 };
    struct sandbox_view view;
    struct policy policy;
    struct err err = { 0 };

    box_view(box, &view);
    if (compile(gate, box_tenant(box), view.egress, 1, &bytes, &err) < 0 ||
        policy_open(&policy, bytes.data, bytes.len, &err) < 0)
        return POLICY_MODE_DENY;
    return policy.mode;
}

struct gate_holds gate_holds(struct gate *gate, const struct box *box)
{
    const struct gate_box *known = know(gate, box);

    return (struct gate_holds){ known->version, known->held, known->steered };
}

void effective_unlinked(struct gate *gate)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&gate->known, &at)))
        ((struct gate_box *)slot->value)->held = 0;
}

struct gate_totals gate_totals(struct gate *gate, const struct box *box)
{
    return know(gate, box)->totals;
}

/* ---- sandboxes come and go ---- */

static void gate_box_free(struct gate_box *known)
{
    buf_free(&known->bytes);
    buf_free(&known->inject);
    free(known->blocked);
    free(known);
}

void gate_heard(struct gate *gate, const struct event *event)
{
    static const char prefix[] = "sandbox/";
    const char *id = event->object + sizeof(prefix) - 1;

    if (strncmp(event->type, "sandbox.", 8) != 0 ||
        strncmp(event->object, prefix, sizeof(prefix) - 1) != 0)
        return;
    if (strcmp(event->type, "sandbox.deleted") == 0) {
        struct gate_box *known = map_del(&gate->known, str_of(id));

        if (known)
            gate_box_free(known);
        peer_forget(gate, id);
        return;
    }
    struct box *box = boxes_by_id(gate->boxes, id);
    if (box && (strcmp(event->type, "sandbox.created") == 0 ||
                strcmp(event->type, "sandbox.changed") == 0))
        again(gate, box);
    else if (box)
        know(gate, box);
}

/* ---- showing ---- */

static size_t list_layer(const struct gate *gate, const char *tenant, struct layer_ref layer,
                         struct gate_credential *out, size_t max)
{
    const struct egress_spec *spec = layer.spec;
    struct inject_rule rule;
    struct str variable, name;
    size_t count = 0;

    for (size_t i = 0; spec->inject && spec->inject[i] && count < max; i++)
        if (inject_rule_parse(str_of(spec->inject[i]), &rule, NULL) == 0)
            out[count++] =
                (struct gate_credential){ layer.level, "inject", spec->inject[i],
                                          !gate_secret_known(gate, tenant, inject_named(&rule)) };
    for (size_t i = 0; spec->secrets && spec->secrets[i] && count < max; i++)
        if (inject_wish_parse(str_of(spec->secrets[i]), &variable, &name, NULL) == 0)
            out[count++] = (struct gate_credential){ layer.level, "secret", spec->secrets[i],
                                                     !gate_secret_known(gate, tenant, name) };
    return count;
}

size_t gate_credential_list(struct gate *gate, const struct box *box, struct gate_credential *out,
                            size_t max)
{
    struct layer_ref layers[LEVELS];
    struct sandbox_view view;
    size_t used = 0;

    box_view(box, &view);
    size_t count = layers_of(gate, box_tenant(box), view.egress, layers);
    for (size_t i = 0; i < count; i++)
        used += list_layer(gate, box_tenant(box), layers[i], out + used, max - used);
    return used;
}

void effective_free(struct gate *gate)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&gate->known, &at)))
        gate_box_free(slot->value);
    map_free(&gate->known);
}

void effective_all(struct gate *gate)
{
    struct box *box = NULL;

    while ((box = boxes_next(gate->boxes, reach_all(NULL), box)))
        know(gate, box);
}
