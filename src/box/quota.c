/* Rows of quotas, and how they are shown. What they mean for a sandbox is in admit.c. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "box/quota_own.h"

#define OF(member_, of_, help_)                                                                    \
    {                                                                                              \
        .name = #member_, .type = F_INT, .offset = offsetof(struct quota_limits, of_),             \
        .max = INT64_MAX, .help = help_                                                            \
    }
#define SHOWN(member_, of_, help_)                                                                 \
    {                                                                                              \
        .name = #member_, .type = F_INT, .flags = F_READONLY,                                      \
        .offset = offsetof(struct quota_view, of_), .help = help_                                  \
    }

const struct field quota_limits_fields[] = {
    OF(sandboxes, all[QUOTA_SANDBOXES], "Sandboxes at once, stopped ones included; 0: no limit"),
    OF(memory, all[QUOTA_MEMORY],
       "Bytes: sum of the memory limits of those that run or are paused; 0: no limit"),
    OF(cpu_percent, all[QUOTA_CPU], "Sum of their processor limits, 100 is one core; 0: no limit"),
    OF(disk, all[QUOTA_DISK],
       "Bytes: sum of the sizes of their disks, of volumes and of snapshots; 0: no limit"),
    OF(sandbox_memory, each[QUOTA_MEMORY], "Bytes of memory that one may have; 0: no limit"),
    OF(sandbox_cpu_percent, each[QUOTA_CPU],
       "Processor time that one may have, 100 is one core; 0: no limit"),
    OF(sandbox_disk, each[QUOTA_DISK], "Bytes of disk that one may have, or a volume; 0: no limit"),
    { 0 },
};

const struct field quota_fields[] = {
    FIELD(quota_view, subject, F_STRING, F_READONLY,
          .help = "tenant:NAME, role:NAME, by:ID or label:KEY=VALUE, or * for each; machine for "
                  "what the machine has"),
    FIELD(quota_view, group, F_STRING, F_READONLY,
          .help = "With * and role: the one that `used` is about, which has most sandboxes; null "
                  "when none has any"),
    FIELD(quota_view, preset, F_BOOL, F_READONLY,
          .help = "In effect because no row says otherwise; it cannot be deleted, only replaced"),
    SHOWN(sandboxes, limits.all[QUOTA_SANDBOXES], "Most sandboxes; 0: no limit"),
    SHOWN(memory, limits.all[QUOTA_MEMORY], "Most bytes of memory limits; 0: no limit"),
    SHOWN(cpu_percent, limits.all[QUOTA_CPU], "Most processor time; 0: no limit"),
    SHOWN(disk, limits.all[QUOTA_DISK], "Most bytes of disks; 0: no limit"),
    SHOWN(sandbox_memory, limits.each[QUOTA_MEMORY], "Most bytes of memory of one; 0: no limit"),
    SHOWN(sandbox_cpu_percent, limits.each[QUOTA_CPU], "Most processor time of one; 0: no limit"),
    SHOWN(sandbox_disk, limits.each[QUOTA_DISK], "Most bytes of disk of one; 0: no limit"),
    SHOWN(used_sandboxes, used[QUOTA_SANDBOXES], "Sandboxes that there are"),
    SHOWN(used_memory, used[QUOTA_MEMORY], "Bytes of memory limits"),
    SHOWN(used_cpu_percent, used[QUOTA_CPU], "Processor limits"),
    SHOWN(used_disk, used[QUOTA_DISK], "Bytes of disks"),
    FIELD(quota_view, by, F_STRING, F_READONLY, .help = "Who wrote it; null for a preset"),
    FIELD(quota_view, changed_at, F_TIME, F_READONLY, .help = "When"),
    { 0 },
};

/* ---- subjects ---- */

static const char *const kinds[] = { "tenant", "role", "by", "label" };

bool subject_parse(const char *text, struct subject *out)
{
    struct str rest = str_of(text), kind = str_cut(&rest, ':');

    *out = (struct subject){ .kind = SUBJECT_KINDS };
    for (unsigned i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_is(kind, kinds[i]))
            out->kind = (enum subject_kind)i;
    if (out->kind == SUBJECT_LABEL)
        out->key = str_cut(&rest, '=');
    out->value = rest;
    out->star = str_is(rest, "*");
    return out->kind != SUBJECT_KINDS && rest.n && (out->kind != SUBJECT_LABEL || out->key.n);
}

bool quota_of_tenants(const char *subject)
{
    return strncmp(subject, "tenant:", 7) == 0;
}

int quota_check(struct boxes *boxes, const char *tenant, const char *subject, struct err *err)
{
    struct subject parsed;
    unsigned count = 0;

    if (!subject_parse(subject, &parsed) || strlen(subject) > QUOTA_SUBJECT_MAX)
        return err_field(err, "subject",
                         "tenant:NAME, role:NAME, by:ID or label:KEY=VALUE, with * for each of "
                         "them, at most %d bytes",
                         QUOTA_SUBJECT_MAX);
    if (parsed.kind == SUBJECT_ROLE && !str_is(parsed.value, "agent") &&
        !str_is(parsed.value, "operator") && !str_is(parsed.value, "admin"))
        return err_field(err, "subject", "a role that creates sandboxes: agent, operator or admin");
    list_each (pos, &boxes->quotas)
        count += strcmp(list_entry(pos, struct quota, node)->tenant, tenant) == 0;
    if (count >= QUOTAS_MAX && !quota_named(boxes, tenant, subject))
        return err_set(err, ERR_RATE, "there are %d quotas already; delete one", QUOTAS_MAX);
    return 0;
}

/* ---- the set ---- */

struct quota *quota_named(const struct boxes *boxes, const char *tenant, const char *subject)
{
    list_each (pos, &boxes->quotas) {
        struct quota *quota = list_entry(pos, struct quota, node);

        if (strcmp(quota->tenant, tenant) == 0 && strcmp(quota->subject, subject) == 0)
            return quota;
    }
    return NULL;
}

static void quota_free(struct quota *quota)
{
    list_remove(&quota->node);
    free(quota);
}

void quotas_free(struct boxes *boxes)
{
    while (!list_empty(&boxes->quotas))
        quota_free(list_entry(boxes->quotas.next, struct quota, node));
}

void quota_set(struct boxes *boxes, const struct quota_row *row)
{
    struct quota *quota = quota_named(boxes, row->tenant, row->subject);
    struct list *at;

    if (!quota) {
        quota = xnew(struct quota);
        snprintf(quota->tenant, sizeof(quota->tenant), "%s", row->tenant);
        snprintf(quota->subject, sizeof(quota->subject), "%s", row->subject);
        for (at = boxes->quotas.next; at != &boxes->quotas; at = at->next)
            if (strcmp(list_entry(at, struct quota, node)->subject, quota->subject) > 0)
                break;
        list_append(at, &quota->node); /* before it */
    }
    subject_parse(quota->subject, &quota->about);
    snprintf(quota->by, sizeof(quota->by), "%s", row->by);
    quota->limits = row->limits;
    quota->changed_ms = row->changed_ms;
}

void quota_remove(struct boxes *boxes, const char *tenant, const char *subject)
{
    struct quota *quota = quota_named(boxes, tenant, subject);

    if (quota)
        quota_free(quota);
}

/* ---- showing ---- */

/* The group of a row that has most sandboxes, by one of them; NULL: there is none. */
static const struct box *largest(struct boxes *boxes, const struct quota *quota)
{
    const struct box *found = NULL;
    int64_t most = 0;

    list_each (pos, &boxes->all) {
        const struct box *box = list_entry(pos, struct box, node);
        int64_t used[QUOTAS] = { 0 };
        struct quota_ask ask = quota_ask_of(box);

        if (!quota_counts(box) || !quota_covers(boxes, quota, &ask))
            continue;
        quota_used(boxes, quota, &ask, used);
        if (used[QUOTA_SANDBOXES] > most) {
            most = used[QUOTA_SANDBOXES];
            found = box;
        }
        if (!quota->about.star && quota->about.kind != SUBJECT_ROLE)
            break; /* there is one group */
    }
    return found;
}

static const char *group_name(const struct quota *quota, const struct box *box)
{
    if (quota->about.kind == SUBJECT_TENANT)
        return box->tenant;
    return quota->about.kind == SUBJECT_LABEL ? quota_label(box->spec.labels, quota->about.key)
                                              : box->by;
}

static void view_of(struct boxes *boxes, const struct quota *quota, struct quota_view *out)
{
    const struct box *box = largest(boxes, quota);

    *out = (struct quota_view){ .subject = quota->subject,
                                .by = quota->by[0] ? quota->by : NULL,
                                .limits = quota->limits,
                                .preset = quota->preset,
                                .changed_at = quota->changed_ms };
    if (box) {
        struct quota_ask ask = quota_ask_of(box);

        quota_used(boxes, quota, &ask, out->used);
        if (quota->about.star || quota->about.kind == SUBJECT_ROLE)
            out->group = group_name(quota, box);
    }
}

int quota_find(struct boxes *boxes, const char *tenant, const char *subject, struct quota_view *out,
               struct err *err)
{
    struct quota *quota = quota_named(boxes, tenant, subject);

    if (!quota)
        return err_set(err, ERR_NOT_FOUND, "no quota %.64s", subject);
    view_of(boxes, quota, out);
    return 0;
}

void quota_each(struct boxes *boxes, const char *tenant, bool owner,
                void (*fn)(void *ctx, const struct quota_view *view), void *ctx)
{
    struct quota_view view = { 0 };
    struct quota preset;

    if (owner) {
        quota_machine(boxes, &view);
        fn(ctx, &view);
    }
    if (quota_preset(boxes, tenant, &preset)) {
        view_of(boxes, &preset, &view);
        fn(ctx, &view);
    }
    list_each (pos, &boxes->quotas) {
        struct quota *quota = list_entry(pos, struct quota, node);
        bool about = quota->about.kind == SUBJECT_TENANT &&
                     (quota->about.star || str_is(quota->about.value, tenant));

        if (strcmp(quota->tenant, tenant) != 0 && !about)
            continue;
        view_of(boxes, quota, &view);
        fn(ctx, &view);
    }
}

/* ---- rows ---- */

int quota_row_set(struct db *db, const struct quota_row *row, struct err *err)
{
    autoquery struct query *q = db_query(
        db, "INSERT INTO quota (tenant, subject, sandboxes, memory, cpu_percent, disk,"
            " sandbox_memory, sandbox_cpu_percent, sandbox_disk, by, changed_ms)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
            " ON CONFLICT (tenant, subject) DO UPDATE SET sandboxes = excluded.sandboxes,"
            " memory = excluded.memory, cpu_percent = excluded.cpu_percent, disk = excluded.disk,"
            " sandbox_memory = excluded.sandbox_memory,"
            " sandbox_cpu_percent = excluded.sandbox_cpu_percent,"
            " sandbox_disk = excluded.sandbox_disk, by = excluded.by,"
            " changed_ms = excluded.changed_ms");

    query_text(q, 1, row->tenant);
    query_text(q, 2, row->subject);
    for (int i = 0; i < QUOTAS; i++)
        query_i64(q, 3 + i, row->limits.all[i]);
    for (int i = QUOTA_MEMORY; i < QUOTAS; i++)
        query_i64(q, 6 + i, row->limits.each[i]);
    query_text(q, 10, row->by);
    query_i64(q, 11, row->changed_ms);
    return query_run(q, err) < 0 ? err_wrap(err, "store quota %s", row->subject) : 0;
}

int quota_row_remove(struct db *db, const char *tenant, const char *subject, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "DELETE FROM quota WHERE tenant = $1 AND subject = $2");

    query_text(q, 1, tenant);
    query_text(q, 2, subject);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int load_tenants(struct boxes *boxes, struct db *db, struct err *err)
{
    autoquery struct query *q = db_query(db, "SELECT id FROM tenant");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };

        quota_tenant(boxes, query_col_dup(q, 0, &arena));
    }
    return rc;
}

int quotas_load(struct boxes *boxes, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT tenant, subject, by, changed_ms, sandboxes, memory, cpu_percent, disk,"
                     " sandbox_memory, sandbox_cpu_percent, sandbox_disk FROM quota");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct quota_row row = { .tenant = query_col_dup(q, 0, &arena),
                                 .subject = query_col_dup(q, 1, &arena),
                                 .by = query_col_dup(q, 2, &arena),
                                 .changed_ms = query_col_i64(q, 3) };

        for (int i = 0; i < QUOTAS; i++)
            row.limits.all[i] = query_col_i64(q, 4 + i);
        for (int i = QUOTA_MEMORY; i < QUOTAS; i++)
            row.limits.each[i] = query_col_i64(q, 7 + i);
        quota_set(boxes, &row);
    }
    return rc < 0 ? -1 : load_tenants(boxes, db, err);
}
