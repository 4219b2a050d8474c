/* See template.h. A wish is kept as the text that came, so that what was not said stays unsaid. */
#include "box/template.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "box/own.h"

struct template
{
    struct list node; /* by name */
    struct arena arena;
    char tenant[BOX_TENANT_MAX + 1];
    const char *name, *by;
    struct sandbox_spec spec;
    int64_t changed_ms;
};

const struct field template_fields[] = {
    FIELD(template_view, name, F_STRING, F_READONLY, .help = "Its name"),
    FIELD(template_view, spec, F_OBJECT, F_READONLY, .of = sandbox_spec_fields,
          .of_size = sizeof(struct sandbox_spec),
          .help = "What it says; 0, null and empty is what it leaves open"),
    FIELD(template_view, by, F_STRING, F_READONLY, .help = "Who wrote it"),
    FIELD(template_view, changed_at, F_TIME, F_READONLY, .help = "When"),
    { 0 },
};

/* ---- the set ---- */

struct template *template_next(struct boxes *boxes, const char *tenant, struct template *after)
{
    struct list *at = after ? &after->node : &boxes->templates;

    do
        at = at->next;
    while (at != &boxes->templates &&
           strcmp(list_entry(at, struct template, node)->tenant, tenant) != 0);
    return at == &boxes->templates ? NULL : list_entry(at, struct template, node);
}

static struct template *named(struct boxes *boxes, const char *tenant, const char *name)
{
    struct template *template = NULL;

    while ((template = template_next(boxes, tenant, template)))
        if (strcmp(template->name, name) == 0)
            return template;
    return NULL;
}

int template_find(struct boxes *boxes, const char *tenant, const char *name, struct template **out,
                  struct err *err)
{
    *out = named(boxes, tenant, name);
    return *out ? 0 : err_set(err, ERR_NOT_FOUND, "no template %.64s", name);
}

void template_view(const struct template *template, struct template_view *out)
{
    *out = (struct template_view){ template->name, template->by, &template->spec,
                                   template->changed_ms };
}

const struct sandbox_spec *template_spec(const struct template *template)
{
    return &template->spec;
}

static void template_free(struct template *template)
{
    list_remove(&template->node);
    arena_free(&template->arena);
    free(template);
}

void templates_free(struct boxes *boxes)
{
    while (!list_empty(&boxes->templates))
        template_free(list_entry(boxes->templates.next, struct template, node));
}

/* ---- changing ---- */

int template_check(struct boxes *boxes, const char *tenant, const char *name,
                   const struct sandbox_spec *spec, struct err *err)
{
    struct sandbox_spec settled = *spec;
    struct template *template = NULL;
    unsigned count = 0;

    if (strlen(name) > DISK_NAME_MAX || name_check(name, "sb", "name", err) < 0)
        return err_field(err, "name", "lower-case letters, digits and hyphens, at most %d",
                         DISK_NAME_MAX);
    if (spec->name)
        return err_field(err, "name", "a name belongs to one sandbox, not to a template");
    if (spec->template)
        return err_field(err, "template", "a template names no other");
    if (spec->binds.count)
        return err_field(err, "binds", "a ticket is good once, so not in a template");
    if (spec->access.owner || spec->access.visibility || spec->access.shared_with)
        return err_field(err,
                         spec->access.owner        ? "owner"
                         : spec->access.visibility ? "visibility"
                                                   : "shared_with",
                         "access belongs to one sandbox, not to a template");
    if (sandbox_spec_settle(&settled, err) < 0)
        return -1;
    while ((template = template_next(boxes, tenant, template)))
        count++;
    if (count >= TEMPLATES_MAX && !named(boxes, tenant, name))
        return err_set(err, ERR_RATE, "there are %d templates already; remove one", TEMPLATES_MAX);
    return 0;
}

int template_set(struct boxes *boxes, const struct template_row *row, struct err *err)
{
    struct template *made = xnew(struct template), *old = named(boxes, row->tenant, row->name);
    struct list *at = boxes->templates.next;
    struct json *json;

    snprintf(made->tenant, sizeof(made->tenant), "%s", row->tenant);
    made->name = arena_strdup(&made->arena, row->name);
    made->by = arena_strdup(&made->arena, row->by);
    made->changed_ms = row->changed_ms;
    if (json_parse(&made->arena, str_of(arena_strdup(&made->arena, row->text)), &json, err) < 0 ||
        field_decode(sandbox_spec_fields, json, &made->spec, &made->arena, NULL, err) < 0) {
        template_free(made);
        return err_wrap(err, "template %s", row->name);
    }
    if (old)
        template_free(old);
    for (at = boxes->templates.next; at != &boxes->templates; at = at->next)
        if (strcmp(list_entry(at, struct template, node)->name, made->name) > 0)
            break;
    list_append(at, &made->node); /* before it */
    return 0;
}

void template_remove(struct boxes *boxes, const char *tenant, const char *name)
{
    struct template *template = named(boxes, tenant, name);

    if (template)
        template_free(template);
}

/* ---- rows ---- */

int template_row_set(struct db *db, const struct template_row *row, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "INSERT INTO template (tenant, name, spec, by, changed_ms)"
                     " VALUES ($1, $2, $3, $4, $5)"
                     " ON CONFLICT (tenant, name) DO UPDATE SET spec = excluded.spec,"
                     " by = excluded.by, changed_ms = excluded.changed_ms");

    query_text(q, 1, row->tenant);
    query_text(q, 2, row->name);
    query_text(q, 3, row->text);
    query_text(q, 4, row->by);
    query_i64(q, 5, row->changed_ms);
    return query_run(q, err) < 0 ? err_wrap(err, "store template %s", row->name) : 0;
}

int template_row_remove(struct db *db, const char *tenant, const char *name, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "DELETE FROM template WHERE tenant = $1 AND name = $2");

    query_text(q, 1, tenant);
    query_text(q, 2, name);
    return query_run(q, err) < 0 ? -1 : 0;
}

/* One that this release does not understand is left in its row and out of use. */
int templates_load(struct boxes *boxes, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT tenant, name, spec, by, changed_ms FROM template");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct template_row row = { .tenant = query_col_dup(q, 0, &arena),
                                    .name = query_col_dup(q, 1, &arena),
                                    .text = query_col_dup(q, 2, &arena),
                                    .by = query_col_dup(q, 3, &arena),
                                    .changed_ms = query_col_i64(q, 4) };
        struct err bad = { 0 };

        if (template_set(boxes, &row, &bad) < 0)
            log_error("a template cannot be used", kv_str("error", bad.msg));
    }
    return rc;
}

/* ---- using one ---- */

static size_t pairs_count(const struct field_pair *pairs)
{
    size_t count = 0;

    while (pairs && pairs[count].key)
        count++;
    return count;
}

/* Both, and of what both name the second. */
static struct field_pair *pairs_join(struct arena *arena, struct field_pair *first,
                                     struct field_pair *second)
{
    size_t count = pairs_count(second), used = 0;

    if (!pairs_count(first))
        return second;
    struct field_pair *both =
        arena_alloc(arena, (pairs_count(first) + count + 1) * sizeof(struct field_pair));
    for (; first->key; first++) {
        bool again = false;

        for (size_t i = 0; i < count; i++)
            again |= strcmp(second[i].key, first->key) == 0;
        if (!again)
            both[used++] = *first;
    }
    for (size_t i = 0; i < count; i++)
        both[used++] = second[i];
    return both;
}

int template_apply(struct boxes *boxes, const char *tenant, struct sandbox_spec *spec,
                   struct arena *arena, struct err *err)
{
    struct template *template;

    if (template_find(boxes, tenant, spec->template, &template, &(struct err){ 0 }) < 0)
        return err_field(err, "template", "no template %.64s", spec->template);
    const struct sandbox_spec *from = &template->spec;
#define OTHERWISE(member)                                                                          \
    if (!spec->member)                                                                             \
    spec->member = from->member
    OTHERWISE(user);
    OTHERWISE(memory);
    OTHERWISE(pids);
    OTHERWISE(cpu_percent);
    OTHERWISE(io_bytes);
    OTHERWISE(io_ops);
    OTHERWISE(disk);
    OTHERWISE(inodes);
    OTHERWISE(nofile);
    OTHERWISE(ttl_ms);
    OTHERWISE(storage);
    OTHERWISE(idle);
    OTHERWISE(egress);
    OTHERWISE(sys);
    OTHERWISE(nesting);
    OTHERWISE(tier);
    OTHERWISE(warm);
#undef OTHERWISE
    if (!spec->image && !spec->from_snapshot) { /* two ways to say one thing */
        spec->image = from->image;
        spec->from_snapshot = from->from_snapshot;
    }
    if (!spec->volumes.count)
        spec->volumes = from->volumes;
    if (!spec->files.count)
        spec->files = from->files;
    spec->env = pairs_join(arena, from->env, spec->env);
    spec->labels = pairs_join(arena, from->labels, spec->labels);
    return 0;
}
