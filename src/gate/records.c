/*
 * Records: each decision, and what became of what was let out. They come as fast as sandboxes can
 * be refused, so they are limited for each sandbox and stored together, a few times a second; what
 * is over the limit is counted and not kept. A flow that ended completes the record of its decision
 * by the connection's number.
 *
 * The writer runs with copies: a batch belongs to its job until it comes back. One job at a time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gate/own.h"

/* clang-format off */
static const char *const kinds[EGRESS_KINDS] = {
    [EGRESS_KIND_HTTP] = "http", [EGRESS_KIND_CONNECT] = "connect", [EGRESS_KIND_TLS] = "tls",
    [EGRESS_KIND_TCP] = "tcp", [EGRESS_KIND_SELF] = "self",
    [EGRESS_KIND_HTTPS] = "https",
};
static const char *const verdicts[EGRESS_VERDICTS] = {
    [EGRESS_ALLOWED] = "allowed", [EGRESS_DENIED] = "denied", [EGRESS_REFUSED] = "refused",
    [EGRESS_MALFORMED] = "malformed", [EGRESS_MISLED] = "misled",
    [EGRESS_UNRESOLVED] = "unresolved", [EGRESS_UNREACHED] = "unreached",
    [EGRESS_LIMITED] = "limited", [EGRESS_DISTRUSTED] = "distrusted",
    [EGRESS_TIMED_OUT] = "timeout", [EGRESS_ASKED] = "asked",
};
/* clang-format on */

struct record {
    struct list node;
    char tenant[GATE_TENANT_MAX + 1];
    bool is_flow;
    bool counted_only; /* over the limit: the counts of its host, and no row */
    bool is_used;      /* `used` and nothing else */
    bool announced;    /* a limit was reached, and nobody was told yet */
    union {
        struct egress_decision decision;
        struct egress_flow flow;
        struct egress_used used;
    };
    int64_t used_bytes; /* of the sandbox, then */
};

struct batch {
    struct store_job job;
    struct gate *gate;
    struct list records;
    int64_t first, last; /* numbers of the rows it made */
    int64_t denied;
};

/* ---- taking ---- */

static void flush(struct gate *gate);

static void on_flush(struct timer *timer)
{
    flush(container_of(timer, struct gate, flush));
}

/* NULL: it waits nowhere, because too much does. */
static struct record *record_new(struct gate *gate, struct gate_box *box)
{
    if (gate->waiting >= EGRESS_WAITING_MAX) {
        box->totals.lost++;
        return NULL;
    }
    struct record *record = xnew(struct record);
    snprintf(record->tenant, sizeof(record->tenant), "%s", box->tenant);
    list_append(&gate->records, &record->node);
    gate->waiting++;
    gate->flush.fn = on_flush;
    if (!timer_is_set(&gate->flush))
        timer_set(gate->loop, &gate->flush,
                  gate->waiting >= EGRESS_FLUSH_RECORDS ? 0 : EGRESS_FLUSH_MS);
    return record;
}

/* Of what is said about a sandbox, so many in a second are kept. */
static bool within_rate(struct gate *gate, struct gate_box *box)
{
    int64_t now = loop_now(gate->loop);

    if (now - box->second_ms >= 1000) {
        box->second_ms = now;
        box->this_second = 0;
    }
    return box->this_second++ < EGRESS_RECORDS_PER_SECOND;
}

static struct gate_box *box_of(struct gate *gate, const struct box_name *name)
{
    return map_get(&gate->known, (struct str){ name->id, strnlen(name->id, sizeof(name->id)) });
}

/* In the place of the one that was denied the longest time ago. */
static void remember_blocked(struct gate_box *box, const struct egress_decision *decision)
{
    struct blocked *place;
    struct blocked one = { .last_ms = decision->time_ms };

    if (!decision->host[0])
        return;
    snprintf(one.rule, sizeof(one.rule), strchr(decision->host, ':') ? "[%s]:%u%s" : "%s:%u%s",
             decision->host, decision->port, decision->reason == WHY_RAW ? RULE_RAW : "");
    if (!box->blocked)
        box->blocked = xcalloc(EGRESS_BLOCKED_MAX, sizeof(*box->blocked));
    place = box->blocked;
    for (size_t i = 0; i < EGRESS_BLOCKED_MAX; i++) {
        struct blocked *at = &box->blocked[i];

        if (strcmp(at->rule, one.rule) == 0) {
            place = at;
            break;
        }
        if (at->last_ms < place->last_ms)
            place = at;
    }
    *place = one;
}

const char **gate_blocked(struct gate *gate, const char *sandbox, int64_t from_ms, int64_t to_ms,
                          struct arena *arena)
{
    const char **out = arena_alloc(arena, (EGRESS_BLOCKED_MAX + 1) * sizeof(*out));
    size_t count = 0;

    /* A denial is sent before the program hears of it, so before the program's end. */
    peer_hear(gate);
    const struct gate_box *box = map_get(&gate->known, str_of(sandbox));

    for (size_t i = 0; box && box->blocked && i < EGRESS_BLOCKED_MAX; i++)
        if (box->blocked[i].rule[0] && box->blocked[i].last_ms >= from_ms &&
            box->blocked[i].last_ms <= to_ms)
            out[count++] = arena_strdup(arena, box->blocked[i].rule);
    out[count] = NULL;
    return out;
}

void records_decision(struct gate *gate, const struct egress_decision *decision)
{
    struct gate_box *box = box_of(gate, &decision->name);

    if (!box)
        return; /* deleted meanwhile */
    if (decision->verdict == EGRESS_ALLOWED)
        box->totals.allowed++;
    else
        box->totals.denied++;
    if (decision->verdict == EGRESS_DENIED)
        remember_blocked(box, decision);
    bool keep = within_rate(gate, box);
    box->totals.lost += !keep;
    struct record *record = record_new(gate, box);
    if (!record)
        return;
    record->counted_only = !keep;
    record->decision = *decision;
    if (decision->verdict == EGRESS_LIMITED && box->limited != box->version) {
        box->limited = box->version;
        record->announced = true;
        record->used_bytes = box->totals.used;
    }
}

/* It only ever rises: a process that was started again may know less. */
static void used_at_least(struct gate_box *box, int64_t bytes)
{
    if (box->totals.used < bytes)
        box->totals.used = bytes;
}

void records_used(struct gate *gate, const struct egress_used *used)
{
    struct gate_box *box = box_of(gate, &used->name);

    if (!box || used->bytes > INT64_MAX / 4)
        return;
    used_at_least(box, (int64_t)used->bytes);
    struct record *record = record_new(gate, box);
    if (!record)
        return;
    record->is_used = true;
    record->used = *used;
}

void records_flow(struct gate *gate, const struct egress_flow *flow)
{
    struct gate_box *box = box_of(gate, &flow->name);

    if (!box || flow->sent > INT64_MAX / 4 || flow->received > INT64_MAX / 4)
        return;
    box->totals.sent += (int64_t)flow->sent;
    box->totals.received += (int64_t)flow->received;
    used_at_least(box, box->totals.sent + box->totals.received);
    struct record *record = record_new(gate, box);
    if (!record)
        return;
    record->is_flow = true;
    record->flow = *flow;
}

/* ---- storing ---- */

static void conn_text(char out[64], uint32_t pid, uint64_t serial, uint32_t request)
{
    snprintf(out, 64, "%" PRIu32 "-%" PRIu64 "-%" PRIu32, pid, serial, request);
}

static int insert(struct db *db, const struct record *record, int64_t seq, struct err *err)
{
    const struct egress_decision *d = &record->decision;
    char conn[64];
    autoquery struct query *q = db_query(
        db, "INSERT INTO egress_record (seq, tenant, sandbox, conn, run, at_ms, kind, verdict, why,"
            " host, port, rule, reason, method, path, version, ended_ms)"
            " VALUES ($1, $2, $3, $4, '', $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)");

    conn_text(conn, d->pid, d->serial, d->request);
    query_i64(q, 1, seq);
    query_text(q, 2, record->tenant);
    query_text(q, 3, d->name.id);
    query_text(q, 4, conn);
    query_i64(q, 5, d->time_ms);
    query_text(q, 6, kinds[d->kind]);
    query_text(q, 7, verdicts[d->verdict]);
    query_text(q, 8, d->reason < WHYS ? policy_why_name((enum policy_why)d->reason) : "");
    query_text(q, 9, d->host);
    query_i64(q, 10, d->port);
    query_text(q, 11, d->rule);
    query_text(q, 12, d->text);
    query_text(q, 13, d->method);
    query_text(q, 14, d->path);
    query_i64(q, 15, (int64_t)d->version);
    query_i64(q, 16, d->verdict == EGRESS_ALLOWED ? 0 : d->time_ms);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int complete(struct db *db, const struct record *record, struct err *err)
{
    const struct egress_flow *flow = &record->flow;
    char conn[64], text[ADDR_TEXT_SIZE] = "", where[ADDR_TEXT_SIZE + 16] = "";
    autoquery struct query *q =
        db_query(db, "UPDATE egress_record SET ended_ms = $1, sent = $2, received = $3, addr = $4,"
                     " revoked = $5 WHERE sandbox = $6 AND conn = $7 AND ended_ms = 0");

    if (flow->addr.family) {
        struct addr addr = addr_from_bytes(flow->addr.bytes, flow->addr.family == 4 ? 4 : 16);

        addr_text(&addr, text);
        snprintf(where, sizeof(where), addr.family == 4 ? "%s:%u" : "[%s]:%u", text,
                 flow->addr.port);
    }
    conn_text(conn, flow->pid, flow->serial, flow->request);
    query_i64(q, 1, flow->ended_ms);
    query_i64(q, 2, (int64_t)flow->sent);
    query_i64(q, 3, (int64_t)flow->received);
    query_text(q, 4, where);
    query_i64(q, 5, flow->revoked);
    query_text(q, 6, flow->name.id);
    query_text(q, 7, conn);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int host_count(struct db *db, const char *sandbox, int64_t *out, struct err *err)
{
    autoquery struct query *q = db_query(db, "SELECT count(*) FROM egress_host WHERE sandbox = $1");

    query_text(q, 1, sandbox);
    if (query_step(q, err) < 0)
        return -1;
    *out = query_col_i64(q, 0);
    return 0;
}

/* Counts of one host, and of all together; hosts beyond EGRESS_HOSTS_MAX are only in the latter. */
static int count(struct db *db, const struct record *record, const char *host, int64_t port,
                 struct err *err)
{
    const char *sandbox = record->is_flow ? record->flow.name.id : record->decision.name.id;
    int64_t at = record->is_flow ? record->flow.ended_ms : record->decision.time_ms;
    bool allowed = !record->is_flow && record->decision.verdict == EGRESS_ALLOWED;
    autoquery struct query *q = db_query(
        db, "UPDATE egress_host SET allowed = allowed + $1, denied = denied + $2, sent = sent + $3,"
            " received = received + $4, last_ms = $5 WHERE sandbox = $6 AND host = $7"
            " AND port = $8");
    autoquery struct query *add = db_query(
        db, "INSERT INTO egress_host (tenant, sandbox, host, port, allowed, denied, sent, received,"
            " first_ms, last_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)");
    int64_t sent = record->is_flow ? (int64_t)record->flow.sent : 0;
    int64_t received = record->is_flow ? (int64_t)record->flow.received : 0;
    int64_t denied = !record->is_flow && !allowed, hosts;

    query_i64(q, 1, allowed);
    query_i64(q, 2, denied);
    query_i64(q, 3, sent);
    query_i64(q, 4, received);
    query_i64(q, 5, at);
    query_text(q, 6, sandbox);
    query_text(q, 7, host);
    query_i64(q, 8, port);
    int rc = query_run(q, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (host_count(db, sandbox, &hosts, err) < 0)
        return -1;
    if (host[0] && hosts > EGRESS_HOSTS_MAX) /* one row is that of all */
        return 0;
    query_text(add, 1, record->tenant);
    query_text(add, 2, sandbox);
    query_text(add, 3, host);
    query_i64(add, 4, port);
    query_i64(add, 5, allowed);
    query_i64(add, 6, denied);
    query_i64(add, 7, sent);
    query_i64(add, 8, received);
    query_i64(add, 9, at);
    query_i64(add, 10, at);
    return query_run(add, err) < 0 ? -1 : 0;
}

/* Of all hosts together. Its row may be missing: a kill takes what waits, and bytes are told again.
 */
static int use(struct db *db, const struct record *record, struct err *err)
{
    autoquery struct query *q = db_query(
        db, "INSERT INTO egress_host (tenant, sandbox, host, port, first_ms, last_ms, used)"
            " VALUES ($1, $2, '', 0, $3, $3, $4) ON CONFLICT (sandbox, host, port)"
            " DO UPDATE SET used = excluded.used WHERE egress_host.used < excluded.used");

    query_text(q, 1, record->tenant);
    query_text(q, 2, record->used.name.id);
    query_i64(q, 3, clock_wall_ms());
    query_i64(q, 4, (int64_t)record->used.bytes);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int count_both(struct db *db, const struct record *record, struct err *err)
{
    const char *host = record->is_flow ? record->flow.host : record->decision.host;
    /* A flow does not say the port that was asked for; on the way out it is the same. */
    int64_t port = record->is_flow ? record->flow.addr.port : record->decision.port;

    if (count(db, record, "", 0, err) < 0)
        return -1;
    return host[0] ? count(db, record, host, port, err) : 0;
}

static int newest(struct db *db, int64_t *out, struct err *err)
{
    autoquery struct query *q = db_query(db, "SELECT coalesce(max(seq), 0) FROM egress_record");

    if (query_step(q, err) < 0)
        return -1;
    *out = query_col_i64(q, 0);
    return 0;
}

/* What is too old or too much; a bounded piece each time. */
static int forget(struct db *db, int64_t last, int64_t now_ms, struct err *err)
{
    autoquery struct query *hosts = db_query(
        db,
        "DELETE FROM egress_host WHERE (sandbox, host, port) IN (SELECT sandbox, host, port FROM"
        " egress_host WHERE last_ms < $1 AND sandbox NOT IN (SELECT id FROM sandbox) LIMIT $2)");
    autoquery struct query *q =
        db_query(db, "DELETE FROM egress_record WHERE seq IN (SELECT seq FROM egress_record"
                     " WHERE seq <= $1 OR at_ms < $2 ORDER BY seq LIMIT $3)");

    query_i64(q, 1, last - EGRESS_RECORDS_MAX);
    query_i64(q, 2, now_ms - EGRESS_RECORDS_MS);
    query_i64(q, 3, STORE_SWEEP_ROWS);
    query_i64(hosts, 1, now_ms - EGRESS_RECORDS_MS);
    query_i64(hosts, 2, STORE_SWEEP_ROWS);
    return query_run(q, err) < 0 || query_run(hosts, err) < 0 ? -1 : 0;
}

/* Whoever follows is told which records are new, once for each batch and tenant. */
static int announce(struct db *db, const struct batch *batch, const char *tenant, struct err *err)
{
    char body[160];

    snprintf(body, sizeof(body), "{\"first\":%lld,\"last\":%lld,\"denied\":%lld}",
             (long long)batch->first, (long long)batch->last, (long long)batch->denied);
    return event_add(db, tenant, "egress.recorded", "egress/records", str_of(body), err);
}

static int announce_all(struct db *db, const struct batch *batch, struct err *err)
{
    const char *told[8];
    size_t known = 0;

    list_each (pos, &batch->records) {
        const char *tenant = list_entry(pos, struct record, node)->tenant;
        bool again = false;

        for (size_t i = 0; i < known; i++)
            again = again || strcmp(told[i], tenant) == 0;
        if (again || known == ARRAY_LEN(told))
            continue;
        told[known++] = tenant;
        if (announce(db, batch, tenant, err) < 0)
            return -1;
    }
    return 0;
}

static int announce_limit(struct db *db, const struct record *record, struct err *err)
{
    char object[ID_SIZE + 16], body[160];

    snprintf(object, sizeof(object), "sandbox/%s", record->decision.name.id);
    snprintf(body, sizeof(body), "{\"limit\":\"max_bytes\",\"used\":%lld,\"version\":%llu}",
             (long long)record->used_bytes, (unsigned long long)record->decision.version);
    return event_add(db, record->tenant, "egress.limited", object, str_of(body), err);
}

static int batch_run(struct store_job *job, struct db *db, struct err *err)
{
    struct batch *batch = container_of(job, struct batch, job);
    int64_t seq;

    if (newest(db, &seq, err) < 0)
        return -1;
    batch->first = seq + 1;
    list_each (pos, &batch->records) {
        struct record *record = list_entry(pos, struct record, node);
        bool denied = !record->is_flow && record->decision.verdict != EGRESS_ALLOWED;

        if (record->is_used) {
            if (use(db, record, err) < 0)
                return -1;
            continue;
        }
        if (record->announced && announce_limit(db, record, err) < 0)
            return -1;
        if (record->is_flow ? complete(db, record, err) < 0
                            : !record->counted_only && insert(db, record, ++seq, err) < 0)
            return -1;
        if (count_both(db, record, err) < 0)
            return -1;
        batch->denied += denied;
    }
    batch->last = seq;
    if (seq >= batch->first && announce_all(db, batch, err) < 0)
        return -1;
    return forget(db, seq, clock_wall_ms(), err);
}

static void batch_free(struct batch *batch)
{
    while (!list_empty(&batch->records)) {
        struct record *record = list_entry(batch->records.next, struct record, node);

        list_remove(&record->node);
        free(record);
    }
    free(batch);
}

static void batch_done(struct store_job *job)
{
    struct batch *batch = container_of(job, struct batch, job);
    struct gate *gate = batch->gate;

    if (job->rc < 0)
        log_error("records of outbound traffic are lost", kv_str("error", job->err.msg));
    batch_free(batch);
    gate->writing = false;
    if (!list_empty(&gate->records))
        timer_set(gate->loop, &gate->flush, 0);
}

static void flush(struct gate *gate)
{
    if (gate->writing || list_empty(&gate->records))
        return;
    struct batch *batch = xnew(struct batch);
    list_init(&batch->records);
    for (unsigned i = 0; i < EGRESS_FLUSH_RECORDS && !list_empty(&gate->records); i++) {
        struct list *one = gate->records.next;

        list_remove(one);
        list_append(&batch->records, one);
        gate->waiting--;
    }
    batch->gate = gate;
    batch->job = (struct store_job){ .run = batch_run, .done = batch_done };
    gate->writing = true;
    store_write(gate->store, &batch->job);
}

/* ---- reading ---- */

static void put_record(struct query *q, void (*fn)(void *ctx, const struct gate_record *row),
                       void *ctx)
{
    autoarena struct arena arena = { 0 };
    struct gate_record row = { .seq = query_col_i64(q, 0),
                               .at_ms = query_col_i64(q, 1),
                               .sandbox = query_col_dup(q, 2, &arena),
                               .run = query_col_dup(q, 3, &arena),
                               .kind = query_col_dup(q, 4, &arena),
                               .verdict = query_col_dup(q, 5, &arena),
                               .why = query_col_dup(q, 6, &arena),
                               .host = query_col_dup(q, 7, &arena),
                               .port = query_col_i64(q, 8),
                               .rule = query_col_dup(q, 9, &arena),
                               .reason = query_col_dup(q, 10, &arena),
                               .method = query_col_dup(q, 11, &arena),
                               .path = query_col_dup(q, 12, &arena),
                               .version = query_col_i64(q, 13),
                               .ended_ms = query_col_i64(q, 14),
                               .sent = query_col_i64(q, 15),
                               .received = query_col_i64(q, 16),
                               .addr = query_col_dup(q, 17, &arena),
                               .revoked = query_col_i64(q, 18) != 0 };

    fn(ctx, &row);
}

#define RECORD_COLUMNS                                                                             \
    "SELECT seq, at_ms, sandbox, run, kind, verdict, why, host, port, rule, reason, method, path," \
    " version, ended_ms, sent, received, addr, revoked FROM egress_record WHERE tenant = $1"       \
    " AND ($2 = '' OR sandbox = $2) AND ($3 = 0 OR verdict <> 'allowed') AND seq > $4"             \
    " AND ($5 = '' OR $5 LIKE '%,' || sandbox || ',%')"

int gate_records(struct db *db, const struct gate_filter *filter,
                 void (*fn)(void *ctx, const struct gate_record *row), void *ctx, struct err *err)
{
    bool newest_first = filter->since < 0;
    autoquery struct query *q =
        newest_first ? db_query(db, "SELECT * FROM (" RECORD_COLUMNS
                                    " ORDER BY seq DESC LIMIT $6) AS newest ORDER BY seq")
                     : db_query(db, RECORD_COLUMNS " ORDER BY seq LIMIT $6");
    int rc;

    query_text(q, 1, filter->tenant);
    query_text(q, 2, filter->sandbox ? filter->sandbox : "");
    query_i64(q, 3, filter->denied);
    query_i64(q, 4, filter->since);
    query_text(q, 5, filter->within ? filter->within : "");
    query_i64(q, 6, filter->limit);
    while ((rc = query_step(q, err)) > 0)
        put_record(q, fn, ctx);
    return rc;
}

int gate_hosts(struct db *db, const char *tenant, const char *sandbox,
               void (*fn)(void *ctx, const struct gate_host *row), void *ctx, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT host, port, allowed, denied, sent, received, first_ms, last_ms"
                     " FROM egress_host WHERE tenant = $1 AND sandbox = $2 AND host <> ''"
                     " ORDER BY denied DESC, allowed DESC, host, port");
    int rc;

    query_text(q, 1, tenant);
    query_text(q, 2, sandbox);
    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct gate_host row = { .host = query_col_dup(q, 0, &arena),
                                 .port = query_col_i64(q, 1),
                                 .allowed = query_col_i64(q, 2),
                                 .denied = query_col_i64(q, 3),
                                 .sent = query_col_i64(q, 4),
                                 .received = query_col_i64(q, 5),
                                 .first_ms = query_col_i64(q, 6),
                                 .last_ms = query_col_i64(q, 7) };

        fn(ctx, &row);
    }
    return rc;
}

/* ---- an earlier life ---- */

int records_load(struct gate *gate, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT sandbox, allowed, denied, sent, received, used FROM egress_host"
                     " WHERE host = ''");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        struct gate_totals *totals = xnew(struct gate_totals);

        *totals = (struct gate_totals){ .allowed = query_col_i64(q, 1),
                                        .denied = query_col_i64(q, 2),
                                        .sent = query_col_i64(q, 3),
                                        .received = query_col_i64(q, 4) };
        totals->used = MAX(query_col_i64(q, 5), totals->sent + totals->received);
        free(map_put(&gate->before, query_col_str(q, 0), totals));
    }
    return rc;
}

void records_free(struct gate *gate)
{
    struct map_slot *slot;
    size_t at = 0;

    timer_cancel(gate->loop, &gate->flush);
    while (!list_empty(&gate->records)) {
        struct record *record = list_entry(gate->records.next, struct record, node);

        list_remove(&record->node);
        free(record);
    }
    while ((slot = map_next(&gate->before, &at)))
        free(slot->value);
    map_free(&gate->before);
}
