/*
 * Whether there may be one more, or a larger one: ceilings of one sandbox, sums of a subject, then
 * the machine. One function answers for every way in: create, fork, start, new limits, volumes and
 * snapshots. Only growth is refused, so that a lowered quota never keeps anybody from deleting or
 * shrinking.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/metric.h"
#include "box/quota_own.h"

METRIC_COUNTER(refused, "atoll_quota_refusals_total",
               "Requests refused by a quota, or because the machine has no more", "by", "quota",
               "machine");

/* clang-format off */
static const struct {
    const char *name;   /* in events */
    const char *total;  /* in messages */
    const char *each;   /* the field of a sandbox */
    const char *factor; /* the setting */
    int64_t free;       /* up to here a limit is not held against the machine */
} resources[QUOTAS] = {
    [QUOTA_SANDBOXES] = { "sandboxes",   "sandboxes",        "sandboxes",   "sandboxes_max",     0 },
    [QUOTA_MEMORY]    = { "memory",      "memory limits",    "memory",      "overcommit_memory", QUOTA_FREE_MEMORY },
    [QUOTA_CPU]       = { "cpu_percent", "processor limits", "cpu_percent", "overcommit_cpu",    QUOTA_FREE_CPU },
    [QUOTA_DISK]      = { "disk",        "disks",            "disk",        "overcommit_disk",   QUOTA_FREE_DISK },
};
/* clang-format on */

#define AMOUNT_SIZE 40

static const char *amount(unsigned of, int64_t value, char out[AMOUNT_SIZE])
{
    if (of == QUOTA_SANDBOXES)
        snprintf(out, AMOUNT_SIZE, "%lld", (long long)value);
    else if (of == QUOTA_CPU)
        snprintf(out, AMOUNT_SIZE, "%.*f processor%s", value % 100 ? 2 : 0, (double)value / 100,
                 value == 100 ? "" : "s");
    else
        bytes_text(value, out);
    return out;
}

/* ---- who is asked about ---- */

bool quota_counts(const struct box *box)
{
    return !box->pool && !box->helper && box->state != SANDBOX_DELETED;
}

struct quota_ask quota_ask_of(const struct box *box)
{
    return (struct quota_ask){ .tenant = box->tenant, .by = box->by, .labels = box->spec.labels };
}

const char *quota_label(const struct field_pair *labels, struct str key)
{
    for (; labels && labels->key; labels++)
        if (str_is(key, labels->key))
            return labels->value;
    return NULL;
}

/* Is there a row of the same kind that names this one value? It replaces the row for each. */
static bool has_own(const struct boxes *boxes, const struct quota *star, const char *value)
{
    list_each (pos, &boxes->quotas) {
        const struct quota *quota = list_entry(pos, struct quota, node);

        if (quota != star && strcmp(quota->tenant, star->tenant) == 0 &&
            quota->about.kind == star->about.kind && str_eq(quota->about.key, star->about.key) &&
            str_is(quota->about.value, value))
            return true;
    }
    return false;
}

bool quota_covers(const struct boxes *boxes, const struct quota *quota, const struct quota_ask *ask)
{
    const char *value = NULL;

    if (quota->about.kind != SUBJECT_TENANT && strcmp(quota->tenant, ask->tenant) != 0)
        return false;
    switch (quota->about.kind) {
    case SUBJECT_TENANT:
        value = ask->tenant;
        break;
    case SUBJECT_ROLE:
        value = ask->role;
        break;
    case SUBJECT_BY:
        value = ask->by;
        break;
    case SUBJECT_LABEL:
        value = quota_label(ask->labels, quota->about.key);
        break;
    case SUBJECT_KINDS:
    default:
        return false;
    }
    if (!value)
        return false;
    return quota->about.star ? !has_own(boxes, quota, value) : str_is(quota->about.value, value);
}

/* ---- what is used ---- */

static void box_use(const struct box *box, int64_t out[QUOTAS])
{
    bool up = box->state == SANDBOX_CREATING || box->state == SANDBOX_RUNNING ||
              box->state == SANDBOX_PAUSED;

    out[QUOTA_SANDBOXES] = 1;
    out[QUOTA_MEMORY] = up ? box->spec.memory : 0;
    out[QUOTA_CPU] = up ? box->spec.cpu_percent : 0;
    out[QUOTA_DISK] = sandbox_on_disk(&box->spec) ? box->spec.disk : 0;
}

static bool same_group(const struct quota *quota, const struct quota_ask *ask,
                       const struct box *box)
{
    const char *mine, *other;

    if (strcmp(box->tenant, ask->tenant) != 0)
        return false;
    if (quota->about.kind == SUBJECT_TENANT)
        return true;
    if (quota->about.kind != SUBJECT_LABEL)
        return strcmp(box->by, ask->by) == 0;
    mine = quota_label(ask->labels, quota->about.key);
    other = quota_label(box->spec.labels, quota->about.key);
    return mine && other && strcmp(mine, other) == 0;
}

static bool kept(const struct disk *disk)
{
    return disk->kind == DISK_VOLUME || disk->kind == DISK_SNAPSHOT;
}

void quota_used(struct boxes *boxes, const struct quota *quota, const struct quota_ask *ask,
                int64_t out[QUOTAS])
{
    list_each (pos, &boxes->all) {
        const struct box *box = list_entry(pos, struct box, node);
        int64_t use[QUOTAS];

        if (box == ask->box || !quota_counts(box) || !same_group(quota, ask, box))
            continue;
        box_use(box, use);
        for (unsigned i = 0; i < QUOTAS; i++)
            out[i] += use[i];
    }
    if (quota->about.kind == SUBJECT_LABEL)
        return; /* volumes have none */
    list_each (pos, &boxes->disks) {
        const struct disk *disk = list_entry(pos, struct disk, node);

        if (disk != ask->disk && kept(disk) && strcmp(disk->tenant, ask->tenant) == 0 &&
            (quota->about.kind == SUBJECT_TENANT || strcmp(disk->by, ask->by) == 0))
            out[QUOTA_DISK] += disk->bytes;
    }
}

/* What counts against the machine, of a tenant (NULL: of all). */
static int64_t committed(const struct boxes *boxes, unsigned of, const char *tenant,
                         const struct quota_ask *except)
{
    int64_t sum = 0;

    list_each (pos, &boxes->all) {
        const struct box *box = list_entry(pos, struct box, node);
        int64_t use[QUOTAS];

        if ((except && box == except->box) || !quota_counts(box) ||
            (tenant && strcmp(box->tenant, tenant) != 0))
            continue;
        box_use(box, use);
        if (use[of] > resources[of].free)
            sum += use[of];
    }
    if (of != QUOTA_DISK)
        return sum;
    list_each (pos, &boxes->disks) {
        const struct disk *disk = list_entry(pos, struct disk, node);

        if ((!except || disk != except->disk) && kept(disk) && disk->bytes > QUOTA_FREE_DISK &&
            (!tenant || strcmp(disk->tenant, tenant) == 0))
            sum += disk->bytes;
    }
    return sum;
}

/* ---- a refusal ---- */

struct refusal {
    struct store_job job;
    struct arena arena;
    const char *tenant, *object;
    struct str body;
};

static int refusal_run(struct store_job *job, struct db *db, struct err *err)
{
    struct refusal *refusal = container_of(job, struct refusal, job);

    return event_add(db, refusal->tenant, "quota.exceeded", refusal->object, refusal->body, err);
}

static void refusal_done(struct store_job *job)
{
    struct refusal *refusal = container_of(job, struct refusal, job);

    arena_free(&refusal->arena);
    free(refusal);
}

/* One event a minute for each subject and resource: a client that tries again writes no log full.
 */
static bool recent(struct boxes *boxes, const struct quota_ask *ask, const char *subject,
                   unsigned of)
{
    char text[256];
    unsigned char hash[SHA256_SIZE];
    uint64_t key;
    int64_t now = clock_mono_us() / 1000;

    snprintf(text, sizeof(text), "%s %s %s %u", ask->tenant, subject, ask->by ? ask->by : "", of);
    sha256(text, strlen(text), hash);
    memcpy(&key, hash, sizeof(key));
    for (size_t i = 0; i < ARRAY_LEN(boxes->refusals); i++)
        if (boxes->refusals[i].key == key && now < boxes->refusals[i].until_ms)
            return true;
    boxes->refusals[boxes->refusal_next].key = key;
    boxes->refusals[boxes->refusal_next].until_ms = now + QUOTA_EVENT_MS;
    boxes->refusal_next = (boxes->refusal_next + 1) % ARRAY_LEN(boxes->refusals);
    return false;
}

static void note(struct boxes *boxes, const struct quota_ask *ask, const char *subject, unsigned of,
                 int64_t limit, int64_t used)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    metric_add(&refused, strcmp(subject, QUOTA_MACHINE) == 0, 1);
    if (recent(boxes, ask, subject, of))
        return;
    json_open(&json, '{');
    json_kv_text(&json, "subject", subject);
    json_kv_text(&json, "resource", resources[of].name);
    json_kv_int(&json, "limit", limit);
    json_kv_int(&json, "used", used);
    json_kv_int(&json, "asked", ask->want[of]);
    json_kv_text(&json, "by", ask->by);
    json_close(&json, '}');
    struct refusal *refusal = xnew(struct refusal);
    refusal->tenant = arena_strdup(&refusal->arena, ask->tenant);
    refusal->object = arena_printf(&refusal->arena, "quota/%s", subject);
    refusal->body = arena_str(&refusal->arena, buf_view(&body));
    refusal->job = (struct store_job){ .run = refusal_run, .done = refusal_done };
    store_write(boxes->store, &refusal->job);
}

/* ---- rows ---- */

static bool grows(const struct quota_ask *ask, unsigned of)
{
    return ask->want[of] > ask->have[of];
}

static int over_ceiling(struct boxes *boxes, const struct quota *quota, const struct quota_ask *ask,
                        unsigned of, struct err *err)
{
    char most[AMOUNT_SIZE], asked[AMOUNT_SIZE];

    note(boxes, ask, quota->subject, of, quota->limits.each[of], 0);
    err_field(err, resources[of].each, "%s is more than the quota %s allows one sandbox: %s",
              amount(of, ask->want[of], asked), quota->subject,
              amount(of, quota->limits.each[of], most));
    if (err)
        err->code = ERR_QUOTA;
    return -1;
}

static int over_total(struct boxes *boxes, const struct quota *quota, const struct quota_ask *ask,
                      unsigned of, int64_t used, struct err *err)
{
    char most[AMOUNT_SIZE], asked[AMOUNT_SIZE], now[AMOUNT_SIZE];

    note(boxes, ask, quota->subject, of, quota->limits.all[of], used);
    return err_set(err, ERR_QUOTA,
                   "the quota %s allows %s of %s; %s are in use and %s more would be needed",
                   quota->subject, resources[of].total, amount(of, quota->limits.all[of], most),
                   amount(of, used, now), amount(of, ask->want[of], asked));
}

static int check_row(struct boxes *boxes, const struct quota *quota, const struct quota_ask *ask,
                     struct err *err)
{
    const struct quota_limits *limits = &quota->limits;
    bool counted = false, moved = ask->relabeled && quota->about.kind == SUBJECT_LABEL;
    int64_t used[QUOTAS] = { 0 };

    for (unsigned i = 0; i < QUOTAS; i++) {
        if (!grows(ask, i) && !moved)
            continue;
        if (limits->each[i] && ask->want[i] > limits->each[i])
            return over_ceiling(boxes, quota, ask, i, err);
        if (!limits->all[i])
            continue;
        if (!counted)
            quota_used(boxes, quota, ask, used);
        counted = true;
        if (used[i] + ask->want[i] > limits->all[i])
            return over_total(boxes, quota, ask, i, used[i], err);
    }
    return 0;
}

bool quota_preset(const struct boxes *boxes, const char *tenant, struct quota *out)
{
    const int64_t *has = boxes->machine.has;

    if (quota_named(boxes, tenant, "role:agent"))
        return false;
    *out = (struct quota){ .subject = "role:agent", .preset = true };
    snprintf(out->tenant, sizeof(out->tenant), "%s", tenant);
    subject_parse(out->subject, &out->about);
    out->limits.all[QUOTA_SANDBOXES] = MAX(boxes->max / 2, 1);
    out->limits.each[QUOTA_MEMORY] = MAX(has[QUOTA_MEMORY] / 2, QUOTA_FREE_MEMORY);
    out->limits.each[QUOTA_CPU] = MAX(has[QUOTA_CPU], QUOTA_FREE_CPU);
    out->limits.each[QUOTA_DISK] = MAX(has[QUOTA_DISK] / 4, QUOTA_FREE_DISK);
    return true;
}

static int check_rows(struct boxes *boxes, const struct quota_ask *ask, struct err *err)
{
    struct quota preset;

    if (ask->role && strcmp(ask->role, "agent") == 0 && quota_preset(boxes, ask->tenant, &preset) &&
        check_row(boxes, &preset, ask, err) < 0)
        return -1;
    list_each (pos, &boxes->quotas) {
        const struct quota *quota = list_entry(pos, struct quota, node);

        if (quota_covers(boxes, quota, ask) && check_row(boxes, quota, ask, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- the machine ---- */

void quota_tenant(struct boxes *boxes, const char *tenant)
{
    if (!boxes->first_tenant[0])
        snprintf(boxes->first_tenant, sizeof(boxes->first_tenant), "%s", tenant);
    boxes->shared |= strcmp(boxes->first_tenant, tenant) != 0;
}

static int64_t memory_free(const struct boxes *boxes)
{
    char text[512] = "";
    long long kib = 0;

    if (boxes->machine.meminfo < 0 || pread(boxes->machine.meminfo, text, sizeof(text) - 1, 0) <= 0)
        return -1;
    const char *line = strstr(text, "MemAvailable:");
    return line && sscanf(line, "MemAvailable: %lld", &kib) == 1 ? (int64_t)kib << 10 : -1;
}

static int64_t disk_free(const struct boxes *boxes)
{
    struct statvfs fs;

    if (fstatvfs(boxes->spool_dir, &fs) < 0)
        return -1;
    return (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}

/* ", of which 3 GiB are free"; nothing for processors. */
static void put_free(const struct boxes *boxes, unsigned of, char *out, size_t size)
{
    int64_t left = of == QUOTA_MEMORY ? memory_free(boxes)
                   : of == QUOTA_DISK ? disk_free(boxes)
                                      : -1;
    char text[AMOUNT_SIZE];

    out[0] = 0;
    if (left >= 0)
        snprintf(out, size, ", of which %s are free", amount(of, left, text));
}

static int too_large(struct boxes *boxes, const struct quota_ask *ask, unsigned of, struct err *err)
{
    char asked[AMOUNT_SIZE], has[AMOUNT_SIZE], left[80];

    note(boxes, ask, QUOTA_MACHINE, of, boxes->machine.has[of], 0);
    put_free(boxes, of, left, sizeof(left));
    err_field(err, resources[of].each, "%s is more than this machine has: %s%s",
              amount(of, ask->want[of], asked), amount(of, boxes->machine.has[of], has), left);
    if (err)
        err->code = ERR_CAPACITY;
    return -1;
}

static int too_many(struct boxes *boxes, const struct quota_ask *ask, unsigned of, int64_t used,
                    int64_t most, struct err *err)
{
    char asked[AMOUNT_SIZE], now[AMOUNT_SIZE], limit[AMOUNT_SIZE], left[80];

    note(boxes, ask, QUOTA_MACHINE, of, most, used);
    put_free(boxes, of, left, sizeof(left));
    err_field(err, resources[of].each,
              "%s more would be needed; large %s add up to %s of at most %s, which the setting %s "
              "allows%s",
              amount(of, ask->want[of], asked), resources[of].total, amount(of, used, now),
              amount(of, most, limit), resources[of].factor, left);
    if (err)
        err->code = ERR_CAPACITY;
    return -1;
}

/* Has the tenant a limit of its own for this? Then that is its share. */
static bool has_row(const struct boxes *boxes, const struct quota_ask *ask, unsigned of)
{
    list_each (pos, &boxes->quotas) {
        const struct quota *quota = list_entry(pos, struct quota, node);

        if (quota->about.kind == SUBJECT_TENANT && quota->limits.all[of] &&
            quota_covers(boxes, quota, ask))
            return true;
    }
    return false;
}

static int check_share(struct boxes *boxes, const struct quota_ask *ask, unsigned of, int64_t used,
                       int64_t most, struct err *err)
{
    char mine[AMOUNT_SIZE], left[AMOUNT_SIZE];

    if (!boxes->shared || has_row(boxes, ask, of))
        return 0;
    int64_t own = committed(boxes, of, ask->tenant, ask);
    if (own + ask->want[of] <= most - used)
        return 0;
    note(boxes, ask, QUOTA_MACHINE, of, most, used);
    return err_set(err, ERR_QUOTA,
                   "tenant %s has %s of the %s, and %s are left for all tenants; a quota "
                   "tenant:%s can allow more",
                   ask->tenant, amount(of, own, mine), resources[of].total,
                   amount(of, most - used, left), ask->tenant);
}

static int check_count(struct boxes *boxes, const struct quota_ask *ask, struct err *err)
{
    if (!grows(ask, QUOTA_SANDBOXES))
        return 0;
    if (boxes->count >= boxes->max) {
        note(boxes, ask, QUOTA_MACHINE, QUOTA_SANDBOXES, boxes->max, boxes->count);
        return err_set(err, ERR_QUOTA,
                       "there are %u sandboxes, and the setting sandboxes_max allows no more; "
                       "delete some",
                       boxes->count);
    }
    return check_share(boxes, ask, QUOTA_SANDBOXES, boxes->count, boxes->max, err);
}

static int check_machine(struct boxes *boxes, const struct quota_ask *ask, struct err *err)
{
    for (unsigned i = QUOTA_MEMORY; i < QUOTAS; i++) {
        int64_t has = boxes->machine.has[i], most;

        if (!boxes->machine.factor[i] || !has || !grows(ask, i) ||
            ask->want[i] <= resources[i].free)
            continue;
        if (ask->want[i] > has)
            return too_large(boxes, ask, i, err);
        most = has * boxes->machine.factor[i];
        int64_t used = committed(boxes, i, NULL, ask);
        if (used + ask->want[i] > most)
            return too_many(boxes, ask, i, used, most, err);
        if (check_share(boxes, ask, i, used, most, err) < 0)
            return -1;
    }
    return 0;
}

void quota_machine(struct boxes *boxes, struct quota_view *out)
{
    *out = (struct quota_view){ .subject = QUOTA_MACHINE, .preset = true };
    out->limits.all[QUOTA_SANDBOXES] = boxes->max;
    out->used[QUOTA_SANDBOXES] = boxes->count;
    for (unsigned i = QUOTA_MEMORY; i < QUOTAS; i++) {
        int64_t factor = boxes->machine.factor[i], has = boxes->machine.has[i];

        out->limits.all[i] = has * factor;
        out->limits.each[i] = factor && has ? MAX(has, resources[i].free) : 0;
        out->used[i] = committed(boxes, i, NULL, NULL);
    }
}

/* ---- the ways in ---- */

int quota_admit(struct boxes *boxes, const struct quota_ask *ask, struct err *err)
{
    return check_count(boxes, ask, err) < 0 || check_rows(boxes, ask, err) < 0
               ? -1
               : check_machine(boxes, ask, err);
}

static struct quota_ask ask_for(const struct sandbox_spec *spec, const struct box_op *op)
{
    return (struct quota_ask){ .tenant = op->tenant,
                               .by = op->by,
                               .role = op->role,
                               .labels = spec->labels,
                               .want = { 1, spec->memory, spec->cpu_percent,
                                         sandbox_on_disk(spec) ? spec->disk : 0 } };
}

int quota_sandbox(struct boxes *boxes, const struct sandbox_spec *spec, const struct box_op *op,
                  struct err *err)
{
    struct quota_ask ask = ask_for(spec, op);

    return quota_admit(boxes, &ask, err);
}

int quota_change(struct box *box, const struct sandbox_spec *spec, bool up, bool relabeled,
                 const char *role, struct err *err)
{
    struct quota_ask ask = { .tenant = box->tenant,
                             .by = box->by,
                             .role = role,
                             .labels = spec->labels,
                             .box = box,
                             .relabeled = relabeled,
                             .want = { 1, up ? spec->memory : 0, up ? spec->cpu_percent : 0,
                                       sandbox_on_disk(spec) ? spec->disk : 0 } };

    box_use(box, ask.have);
    return quota_admit(box->boxes, &ask, err);
}

int quota_disk(struct boxes *boxes, const struct disk_want *want, const struct disk *disk,
               struct err *err)
{
    struct quota_ask ask = { .tenant = want->tenant,
                             .by = want->by,
                             .role = want->role,
                             .disk = disk,
                             .want = { 0, 0, 0, want->bytes } };

    if (want->kind != DISK_VOLUME && want->kind != DISK_SNAPSHOT)
        return 0; /* the root of a sandbox counts as a part of it */
    if (disk)
        ask.have[QUOTA_DISK] = disk->bytes;
    return quota_admit(boxes, &ask, err);
}

int boxes_admit(struct boxes *boxes, const struct sandbox_spec *spec, const struct box *instead,
                const struct box_op *op, struct err *err)
{
    struct sandbox_spec settled = *spec;

    if (!settled.storage)
        settled.storage = disks_work(boxes) ? "disk" : "memory";
    if (sandbox_spec_settle(&settled, err) < 0)
        return -1;
    struct quota_ask ask = ask_for(&settled, op);
    ask.box = instead;
    ask.want[QUOTA_SANDBOXES] = 0;
    return quota_admit(boxes, &ask, err);
}
