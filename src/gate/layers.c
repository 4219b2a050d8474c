/*
 * Layers and packs: rows, and the same in memory. A row holds what was said as JSON by the model's
 * table; a row that this release does not understand stays where it is, and nothing is allowed by
 * it. They are few, so lists will do.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "gate/own.h"
#include "policy/pack.h"

/* ---- rows ---- */

/* What was not said is stored as null, which a wish may not say. */
static void drop_null(struct json *object)
{
    struct json **at = &object->first;

    while (*at) {
        if ((*at)->type == JSON_NULL) {
            *at = (*at)->next;
            object->count--;
        } else {
            at = &(*at)->next;
        }
    }
}

static int spec_from(struct arena *arena, struct str text, struct egress_spec *out, struct err *err)
{
    struct json *json;

    if (json_parse(arena, arena_str(arena, text), &json, err) < 0)
        return -1;
    if (json->type == JSON_OBJECT)
        drop_null(json);
    return field_decode(egress_fields, json, out, arena, NULL, err);
}

int gate_layer_read(struct db *db, enum policy_level level, const char *tenant, const char *name,
                    struct arena *arena, struct egress_spec *out, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT spec, version FROM egress_layer WHERE tenant = $1 AND level = $2"
                     " AND name = $3");

    query_text(q, 1, tenant);
    query_text(q, 2, policy_level_name(level));
    query_text(q, 3, name);
    int rc = query_step(q, err);
    if (rc <= 0)
        return rc;
    if (spec_from(arena, query_col_str(q, 0), out, err) < 0)
        return err_wrap(err, "the layer as it is stored");
    out->version = query_col_i64(q, 1);
    return 1;
}

static int check_room(struct db *db, const struct gate_layer *layer, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT count(*) FROM egress_layer WHERE tenant = $1 AND level = 'project'"
                     " AND name <> $2");

    query_text(q, 1, layer->tenant);
    query_text(q, 2, layer->name);
    if (query_step(q, err) < 0)
        return -1;
    if (query_col_i64(q, 0) >= EGRESS_PROJECTS_MAX)
        return err_set(err, ERR_RATE, "there are %d projects with a layer already; remove one",
                       EGRESS_PROJECTS_MAX);
    return 0;
}

int gate_layer_write(struct db *db, const struct gate_layer *layer, struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);
    autoquery struct query *q =
        db_query(db, "INSERT INTO egress_layer (tenant, level, name, version, spec, by, changed_ms)"
                     " VALUES ($1, $2, $3, $4, $5, $6, $7)"
                     " ON CONFLICT (tenant, level, name) DO UPDATE SET version = excluded.version,"
                     " spec = excluded.spec, by = excluded.by, changed_ms = excluded.changed_ms");

    if (layer->level == LEVEL_PROJECT && check_room(db, layer, err) < 0)
        return -1;
    field_encode(egress_fields, layer->spec, &json);
    query_text(q, 1, layer->tenant);
    query_text(q, 2, policy_level_name(layer->level));
    query_text(q, 3, layer->name);
    query_i64(q, 4, layer->spec->version);
    query_str(q, 5, buf_view(&text));
    query_text(q, 6, layer->by);
    query_i64(q, 7, layer->changed_ms);
    return query_run(q, err) < 0 ? err_wrap(err, "store a layer of policy") : 0;
}

int gate_layer_erase(struct db *db, enum policy_level level, const char *tenant, const char *name,
                     struct err *err)
{
    autoquery struct query *q =
        db_query(db, "DELETE FROM egress_layer WHERE tenant = $1 AND level = $2 AND name = $3");

    query_text(q, 1, tenant);
    query_text(q, 2, policy_level_name(level));
    query_text(q, 3, name);
    return query_run(q, err);
}

int gate_pack_write(struct db *db, const struct gate_pack *pack, struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);
    autoquery struct query *q =
        db_query(db, "INSERT INTO egress_pack (tenant, name, help, rules, by, changed_ms)"
                     " VALUES ($1, $2, $3, $4, $5, $6)"
                     " ON CONFLICT (tenant, name) DO UPDATE SET help = excluded.help,"
                     " rules = excluded.rules, by = excluded.by, changed_ms = excluded.changed_ms");
    autoquery struct query *count =
        db_query(db, "SELECT count(*) FROM egress_pack WHERE tenant = $1 AND name <> $2");

    query_text(count, 1, pack->tenant);
    query_text(count, 2, pack->name);
    if (query_step(count, err) < 0)
        return -1;
    if (query_col_i64(count, 0) >= EGRESS_PACKS_MAX)
        return err_set(err, ERR_RATE, "there are %d packs already; remove one", EGRESS_PACKS_MAX);
    json_open(&json, '[');
    for (size_t i = 0; pack->rules[i]; i++)
        json_put_str(&json, str_of(pack->rules[i]));
    json_close(&json, ']');
    query_text(q, 1, pack->tenant);
    query_text(q, 2, pack->name);
    query_text(q, 3, pack->help);
    query_str(q, 4, buf_view(&text));
    query_text(q, 5, pack->by);
    query_i64(q, 6, pack->changed_ms);
    return query_run(q, err) < 0 ? err_wrap(err, "store pack %s", pack->name) : 0;
}

int gate_pack_erase(struct db *db, const char *tenant, const char *name, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "DELETE FROM egress_pack WHERE tenant = $1 AND name = $2");

    query_text(q, 1, tenant);
    query_text(q, 2, name);
    return query_run(q, err);
}

/* ---- in memory ---- */

static struct layer *find_layer(const struct gate *gate, enum policy_level level,
                                const char *tenant, const char *name)
{
    list_each (pos, &gate->layers) {
        struct layer *one = list_entry(pos, struct layer, node);

        if (one->view.level == level && strcmp(one->view.tenant, tenant) == 0 &&
            strcmp(one->view.name, name) == 0)
            return one;
    }
    return NULL;
}

const struct gate_layer *gate_layer_find(const struct gate *gate, enum policy_level level,
                                         const char *tenant, const char *name)
{
    struct layer *one = find_layer(gate, level, tenant, name);

    return one ? &one->view : NULL;
}

const struct gate_layer *gate_layer_next(const struct gate *gate, const char *tenant,
                                         const struct gate_layer *after)
{
    const struct list *at = after ? &container_of(after, struct layer, view)->node : &gate->layers;

    while ((at = at->next) != &gate->layers) {
        const struct layer *one = list_entry(at, struct layer, node);

        if (one->view.level == LEVEL_NODE || strcmp(one->view.tenant, tenant) == 0)
            return &one->view;
    }
    return NULL;
}

static void layer_free(struct layer *one)
{
    list_remove(&one->node);
    arena_free(&one->arena);
    free(one);
}

/* By level, then by name. */
static bool layer_before(const struct gate_layer *a, const struct gate_layer *b)
{
    return a->level != b->level ? a->level < b->level : strcmp(a->name, b->name) < 0;
}

static void put_layer(struct gate *gate, const struct gate_layer *layer)
{
    struct layer *old = find_layer(gate, layer->level, layer->tenant, layer->name);
    struct list *at = gate->layers.next;

    if (layer->spec) {
        struct layer *made = xnew(struct layer);

        made->view = *layer;
        made->view.tenant = arena_strdup(&made->arena, layer->tenant);
        made->view.name = arena_strdup(&made->arena, layer->name);
        made->view.by = arena_strdup(&made->arena, layer->by);
        made->view.spec = egress_spec_copy(&made->arena, layer->spec);
        while (at != &gate->layers &&
               layer_before(&list_entry(at, struct layer, node)->view, &made->view))
            at = at->next;
        list_append(at, &made->node);
    }
    if (old)
        layer_free(old);
}

void gate_layer_set(struct gate *gate, const struct gate_layer *layer)
{
    put_layer(gate, layer);
    gate_changed(gate, layer->level, layer->tenant, layer->name);
}

const struct gate_pack *gate_pack_next(const struct gate *gate, const char *tenant,
                                       const struct gate_pack *after)
{
    const struct list *at =
        after ? &container_of(after, struct pack_row, view)->node : &gate->packs;

    while ((at = at->next) != &gate->packs) {
        const struct pack_row *one = list_entry(at, struct pack_row, node);

        if (strcmp(one->view.tenant, tenant) == 0)
            return &one->view;
    }
    return NULL;
}

const struct gate_pack *gate_pack_find(const struct gate *gate, const char *tenant,
                                       const char *name)
{
    const struct gate_pack *pack = NULL;

    while ((pack = gate_pack_next(gate, tenant, pack)))
        if (strcmp(pack->name, name) == 0)
            return pack;
    return NULL;
}

bool gate_pack_known(const struct gate *gate, const char *tenant, const char *name)
{
    return pack_find(str_of(name)) || gate_pack_find(gate, tenant, name);
}

static void pack_free(struct pack_row *one)
{
    list_remove(&one->node);
    arena_free(&one->arena);
    free(one);
}

static void put_pack(struct gate *gate, const struct gate_pack *pack)
{
    const struct gate_pack *old = gate_pack_find(gate, pack->tenant, pack->name);
    size_t count = 0;

    if (pack->rules) {
        struct pack_row *made = xnew(struct pack_row);

        while (pack->rules[count])
            count++;
        made->view = *pack;
        made->view.tenant = arena_strdup(&made->arena, pack->tenant);
        made->view.name = arena_strdup(&made->arena, pack->name);
        made->view.help = arena_strdup(&made->arena, pack->help);
        made->view.by = arena_strdup(&made->arena, pack->by);
        made->view.rules = arena_alloc(&made->arena, (count + 1) * sizeof(char *));
        for (size_t i = 0; i < count; i++)
            made->view.rules[i] = arena_strdup(&made->arena, pack->rules[i]);
        list_append(&gate->packs, &made->node);
    }
    if (old)
        pack_free(container_of((struct gate_pack *)(uintptr_t)old, struct pack_row, view));
}

void gate_pack_set(struct gate *gate, const struct gate_pack *pack)
{
    put_pack(gate, pack);
    gate_changed(gate, LEVEL_TENANT, pack->tenant, "");
}

void layers_free(struct gate *gate)
{
    while (!list_empty(&gate->layers))
        layer_free(list_entry(gate->layers.next, struct layer, node));
    while (!list_empty(&gate->packs))
        pack_free(list_entry(gate->packs.next, struct pack_row, node));
}

/* ---- loading ---- */

static enum policy_level level_of(struct str name)
{
    return str_is(name, "node")     ? LEVEL_NODE
           : str_is(name, "tenant") ? LEVEL_TENANT
                                    : LEVEL_PROJECT;
}

static int load_layers(struct gate *gate, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT tenant, level, name, version, spec, by, changed_ms FROM egress_layer");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct egress_spec spec = { 0 };
        struct gate_layer layer = { .tenant = query_col_dup(q, 0, &arena),
                                    .level = level_of(query_col_str(q, 1)),
                                    .name = query_col_dup(q, 2, &arena),
                                    .spec = &spec,
                                    .by = query_col_dup(q, 5, &arena),
                                    .changed_ms = query_col_i64(q, 6) };
        struct err bad = { 0 };

        if (spec_from(&arena, query_col_str(q, 4), &spec, &bad) < 0) {
            log_error("a layer of policy cannot be read; it allows nothing",
                      kv_str("error", bad.msg));
            spec = (struct egress_spec){ .mode = "deny", .locked = true };
        }
        spec.version = query_col_i64(q, 3);
        put_layer(gate, &layer);
    }
    return rc;
}

static const char **rules_from(struct arena *arena, struct str text)
{
    struct json *json;
    size_t count = 0;

    if (json_parse(arena, arena_str(arena, text), &json, &(struct err){ 0 }) < 0)
        return arena_alloc(arena, sizeof(char *));
    const char **rules = arena_alloc(arena, ((size_t)json->count + 1) * sizeof(*rules));
    json_each(item, json) if (item->type == JSON_STRING) rules[count++] =
        arena_memdup0(arena, item->text.p, item->text.n);
    return rules;
}

int layers_load(struct gate *gate, struct db *db, struct err *err)
{
    autoquery struct query *q = db_query(
        db, "SELECT tenant, name, help, rules, by, changed_ms FROM egress_pack ORDER BY name");
    int rc;

    if (load_layers(gate, db, err) < 0)
        return -1;
    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct gate_pack pack = { .tenant = query_col_dup(q, 0, &arena),
                                  .name = query_col_dup(q, 1, &arena),
                                  .help = query_col_dup(q, 2, &arena),
                                  .rules = rules_from(&arena, query_col_str(q, 3)),
                                  .by = query_col_dup(q, 4, &arena),
                                  .changed_ms = query_col_i64(q, 5) };

        put_pack(gate, &pack);
    }
    return rc;
}
