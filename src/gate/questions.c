/*
 * Questions to people. One is a row: exactly what is asked for, its digest, when it ends, and at
 * most one decision; the row is changed only while it is pending and not over, so of a click, a
 * second click and the clock one wins. What waits for it is in memory: connections that the egress
 * process holds open. They get the answer once it is stored, and a refusal when nobody answers.
 *
 * An ask is for those who wait: allowing it allows them and nobody later. The same question again
 * joins the one that is open; after a denial it is denied without asking until that one would have
 * ended, so that a program that tries again and again does not make people answer again and again.
 *
 * Either process may be killed meanwhile. The egress process repeats the questions of connections
 * that still wait, and says since when: one that waited when the row was decided gets that
 * decision, whichever process made it. Connections of an egress process that was killed are closed;
 * when a question is allowed and no connection waits for it, the next one that asks the same is
 * allowed, once, until the question would have ended.
 *
 * A program may also ask by itself (wishes.c), and then nothing waits: once it is allowed, a rule
 * is written into the sandbox's own layer (api/ask.c).
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "gate/own.h"

#define ASKS_TICK_MS 1000

enum ask_state { ASK_OPEN, ASK_DENIED, ASK_ALLOWED };

struct open_ask {
    struct list node;
    char id[ID_SIZE], sandbox[ID_SIZE], tenant[GATE_TENANT_MAX + 1];
    char hash[SHA256_HEX_SIZE];
    int64_t expires_ms;
    char rule[HOST_PORT_SIZE]; /* of a program's question: what it wants allowed; else "" */
    enum ask_state state;      /* decided ones are kept until they would have ended */
    int64_t decided_ms;
    bool owed;         /* allowed, and no connection has got it */
    bool connects;     /* it is about a connection, and no wish of a program or an agent */
    bool ending;       /* its end is being stored */
    uint32_t *numbers; /* of connections that wait; owned */
    size_t count;
};

static const char *const states[] = { "pending", "allowed", "denied", "expired", "withdrawn" };

/* ---- in memory ---- */

static void open_free(struct open_ask *ask)
{
    list_remove(&ask->node);
    free(ask->numbers);
    free(ask);
}

static struct open_ask *by_id(struct gate *gate, const char *id)
{
    list_each (pos, &gate->asks)
        if (strcmp(list_entry(pos, struct open_ask, node)->id, id) == 0)
            return list_entry(pos, struct open_ask, node);
    return NULL;
}

static struct open_ask *by_hash(struct gate *gate, const char *sandbox, const char *hash)
{
    list_each (pos, &gate->asks) {
        struct open_ask *ask = list_entry(pos, struct open_ask, node);

        if (strcmp(ask->sandbox, sandbox) == 0 && strcmp(ask->hash, hash) == 0 && !ask->ending &&
            ask->state != ASK_ALLOWED)
            return ask;
    }
    return NULL;
}

/* Was this allowed to a connection that has waited since `since_ms`? */
static bool allowed_before(struct gate *gate, const char *sandbox, const char *hash,
                           int64_t since_ms)
{
    list_each (pos, &gate->asks) {
        struct open_ask *ask = list_entry(pos, struct open_ask, node);

        if (ask->state != ASK_ALLOWED || strcmp(ask->sandbox, sandbox) != 0 ||
            strcmp(ask->hash, hash) != 0 || (!ask->owed && since_ms > ask->decided_ms))
            continue;
        ask->owed = false;
        return true;
    }
    return false;
}

static void answer_all(struct gate *gate, struct open_ask *ask, bool allow)
{
    for (size_t i = 0; i < ask->count; i++)
        peer_answer(gate, ask->numbers[i], allow);
    ask->count = 0;
}

static bool join(struct open_ask *ask, uint32_t number)
{
    for (size_t i = 0; i < ask->count; i++)
        if (ask->numbers[i] == number)
            return true; /* repeated */
    if (ask->count >= ASKS_WAITING_MAX)
        return false;
    ask->numbers = xrealloc(ask->numbers, (ask->count + 1) * sizeof(*ask->numbers));
    ask->numbers[ask->count++] = number;
    return true;
}

static void on_tick(struct timer *timer);

static void watch_time(struct gate *gate)
{
    gate->ask_tick.fn = on_tick;
    if (gate->started && !timer_is_set(&gate->ask_tick)) /* before, this is the store's thread */
        timer_set(gate->loop, &gate->ask_tick, ASKS_TICK_MS);
}

/* Out of an action of our own making; "" when it is none. */
static void rule_of(const char *action, char out[HOST_PORT_SIZE])
{
    autoarena struct arena arena = { 0 };
    struct json *doc = NULL;
    struct host host;

    out[0] = 0;
    if (json_parse(&arena, str_of(action), &doc, &(struct err){ 0 }) < 0 ||
        host_parse_name(json_text(doc, "host"), &host, NULL) < 0)
        return;
    const struct json *port = json_get(doc, "port");
    host_port_text(&host, port && port->type == JSON_INT ? (uint16_t)port->num : 0, out);
}

static struct open_ask *open_new(struct gate *gate, const struct ask_row *row)
{
    struct open_ask *ask = xnew(struct open_ask);

    snprintf(ask->id, sizeof(ask->id), "%s", row->id);
    snprintf(ask->sandbox, sizeof(ask->sandbox), "%s", row->sandbox);
    snprintf(ask->tenant, sizeof(ask->tenant), "%s", row->tenant);
    snprintf(ask->hash, sizeof(ask->hash), "%s", row->hash);
    ask->expires_ms = row->expires_ms;
    ask->decided_ms = row->decided_ms;
    ask->state = strcmp(row->state, "denied") == 0    ? ASK_DENIED
                 : strcmp(row->state, "allowed") == 0 ? ASK_ALLOWED
                                                      : ASK_OPEN;
    ask->connects = strcmp(row->kind, ASK_EGRESS) == 0;
    if (strcmp(row->kind, ASK_RULE) == 0)
        rule_of(row->action, ask->rule);
    list_append(&gate->asks, &ask->node);
    watch_time(gate);
    return ask;
}

/* ---- rows ---- */

static void row_take(struct query *q, struct arena *arena, struct ask_row *out)
{
    *out = (struct ask_row){ .id = query_col_dup(q, 0, arena),
                             .tenant = query_col_dup(q, 1, arena),
                             .kind = query_col_dup(q, 2, arena),
                             .sandbox = query_col_dup(q, 3, arena),
                             .action = query_col_dup(q, 4, arena),
                             .hash = query_col_dup(q, 5, arena),
                             .state = query_col_dup(q, 6, arena),
                             .created_ms = query_col_i64(q, 7),
                             .expires_ms = query_col_i64(q, 8),
                             .decided_ms = query_col_i64(q, 9),
                             .by = query_col_dup(q, 10, arena),
                             .note = query_col_dup(q, 11, arena) };
}

int ask_read(struct db *db, const char *tenant, const char *id, struct arena *arena,
             struct ask_row *out, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT id, tenant, kind, sandbox, action, hash, state, created_ms,"
                     " expires_ms, decided_ms, by, note FROM ask WHERE tenant = $1 AND id = $2");

    query_text(q, 1, tenant);
    query_text(q, 2, id);
    int rc = query_step(q, err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "no ask %.64s", id);
    row_take(q, arena, out);
    return 0;
}

int ask_each(struct db *db, const char *tenant, const char *state, const char *after,
             unsigned limit, void (*fn)(void *ctx, const struct ask_row *row), void *ctx,
             struct err *err)
{
    autoquery struct query *q = db_query(
        db, "SELECT id, tenant, kind, sandbox, action, hash, state, created_ms, expires_ms,"
            " decided_ms, by, note FROM ask WHERE tenant = $1 AND ($2 = '' OR state = $2)"
            " AND id > $3 ORDER BY id LIMIT $4");
    int rc;

    query_text(q, 1, tenant);
    query_text(q, 2, state ? state : "");
    query_text(q, 3, after ? after : "");
    query_i64(q, 4, limit);
    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct ask_row row;

        row_take(q, &arena, &row);
        fn(ctx, &row);
    }
    return rc;
}

bool ask_state_ok(const char *state)
{
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        if (strcmp(states[i], state) == 0)
            return true;
    return false;
}

static int ask_event(struct db *db, const struct ask_row *row, const char *type, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    char object[ID_SIZE + 8];

    snprintf(object, sizeof(object), "ask/%s", row->id);
    json_open(&json, '{');
    json_kv_text(&json, "id", row->id);
    json_kv_text(&json, "kind", row->kind);
    json_kv_text(&json, "sandbox", row->sandbox);
    json_kv_text(&json, "state", row->state);
    json_key(&json, "action");
    json_put_raw(&json, str_of(row->action));
    json_kv_text(&json, "by", row->by && row->by[0] ? row->by : NULL);
    json_close(&json, '}');
    return event_add(db, row->tenant, type, object, buf_view(&body), err);
}

int ask_add(struct db *db, const struct ask_row *row, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "INSERT INTO ask (id, tenant, kind, sandbox, action, hash, state, created_ms,"
                     " expires_ms) VALUES ($1, $2, $3, $4, $5, $6, 'pending', $7, $8)");
    autoquery struct query *old =
        db_query(db, "DELETE FROM ask WHERE id IN (SELECT id FROM ask WHERE state <> 'pending'"
                     " ORDER BY id DESC LIMIT 100 OFFSET $1)");

    query_text(q, 1, row->id);
    query_text(q, 2, row->tenant);
    query_text(q, 3, row->kind);
    query_text(q, 4, row->sandbox);
    query_text(q, 5, row->action);
    query_text(q, 6, row->hash);
    query_i64(q, 7, row->created_ms);
    query_i64(q, 8, row->expires_ms);
    query_i64(old, 1, ASKS_KEPT_MAX);
    if (query_run(q, err) < 0 || query_run(old, err) < 0)
        return err_wrap(err, "store an ask");
    return ask_event(db, row, "ask.created", err);
}

static int move(struct db *db, const struct ask_row *row, const char *state, const char *by,
                const char *note, int64_t now_ms, bool over, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "UPDATE ask SET state = $1, by = $2, note = $3, decided_ms = $4"
                     " WHERE id = $5 AND tenant = $6 AND state = 'pending'"
                     " AND (expires_ms <= $4) = $7");

    query_text(q, 1, state);
    query_text(q, 2, by);
    query_text(q, 3, note);
    query_i64(q, 4, now_ms);
    query_text(q, 5, row->id);
    query_text(q, 6, row->tenant);
    query_i64(q, 7, over);
    return query_run(q, err);
}

int ask_decide(struct db *db, const char *tenant, const char *id, const struct ask_decision *what,
               struct arena *arena, struct ask_row *out, struct err *err)
{
    const char *state = what->allow ? "allowed" : "denied";
    int64_t now = clock_wall_ms();

    if (ask_read(db, tenant, id, arena, out, err) < 0)
        return -1;
    if (what->hash && strcmp(what->hash, out->hash) != 0)
        return err_set(err, ERR_CONFLICT, "that is not what was asked for");
    int rc = move(db, out, state, what->by, what->note ? what->note : "", now, false, err);
    if (rc < 0)
        return -1;
    if (rc == 0 && strcmp(out->state, state) == 0)
        return 0; /* said before: the same again changes nothing */
    if (rc == 0)
        return err_set(err, ERR_CONFLICT, "it is %s already",
                       strcmp(out->state, "pending") == 0 ? "expired" : out->state);
    if (ask_read(db, tenant, id, arena, out, err) < 0 || ask_event(db, out, "ask.decided", err) < 0)
        return -1;
    return 1;
}

/* ---- jobs of our own ---- */

struct ask_job {
    struct store_job job;
    struct gate *gate;
    struct arena arena;
    struct ask_row row;
    uint32_t told; /* number of the request that is answered when it is stored; 0: none */
};

static void job_free(struct ask_job *one)
{
    arena_free(&one->arena);
    free(one);
}

static int add_run(struct store_job *job, struct db *db, struct err *err)
{
    return ask_add(db, &container_of(job, struct ask_job, job)->row, err);
}

static void add_done(struct store_job *job)
{
    struct ask_job *one = container_of(job, struct ask_job, job);
    struct open_ask *ask = job->rc < 0 ? by_id(one->gate, one->row.id) : NULL;

    if (ask) { /* what nobody can be shown, nobody can allow */
        log_error("an ask could not be stored", kv_str("error", job->err.msg));
        answer_all(one->gate, ask, false);
        open_free(ask);
    }
    if (one->told)
        wishes_asked(one->gate, one->told, job->rc < 0 ? NULL : &one->row);
    job_free(one);
}

static int expire_run(struct store_job *job, struct db *db, struct err *err)
{
    struct ask_job *one = container_of(job, struct ask_job, job);
    int rc = move(db, &one->row, "expired", "", "", clock_wall_ms(), true, err);

    if (rc <= 0)
        return rc;
    if (ask_read(db, one->row.tenant, one->row.id, &one->arena, &one->row, err) < 0 ||
        ask_event(db, &one->row, "ask.expired", err) < 0)
        return -1;
    return one->gate->expired ? one->gate->expired(db, &one->row, err) : 0;
}

static void expire_done(struct store_job *job)
{
    job_free(container_of(job, struct ask_job, job));
}

static struct ask_job *job_new(struct gate *gate,
                               int (*run)(struct store_job *, struct db *, struct err *),
                               void (*done)(struct store_job *))
{
    struct ask_job *one = xnew(struct ask_job);

    one->gate = gate;
    one->job = (struct store_job){ .run = run, .done = done };
    return one;
}

static void expire(struct gate *gate, struct open_ask *ask)
{
    struct ask_job *one = job_new(gate, expire_run, expire_done);

    one->row = (struct ask_row){ .id = arena_strdup(&one->arena, ask->id),
                                 .tenant = arena_strdup(&one->arena, ask->tenant) };
    store_write(gate->store, &one->job);
}

static void on_tick(struct timer *timer)
{
    struct gate *gate = container_of(timer, struct gate, ask_tick);
    int64_t now = clock_wall_ms();
    struct list *next;

    for (struct list *pos = gate->asks.next; pos != &gate->asks; pos = next) {
        struct open_ask *ask = list_entry(pos, struct open_ask, node);

        next = pos->next;
        if (ask->expires_ms > now)
            continue;
        answer_all(gate, ask, false);
        if (ask->state == ASK_OPEN)
            expire(gate, ask);
        open_free(ask);
    }
    if (!list_empty(&gate->asks))
        timer_set(gate->loop, timer, ASKS_TICK_MS);
}

/* ---- the egress process ---- */

static const char *action_of(struct arena *arena, const struct egress_decision *what)
{
    static const char *const kinds[EGRESS_KINDS] = {
        [EGRESS_KIND_HTTP] = "http", [EGRESS_KIND_CONNECT] = "connect",
        [EGRESS_KIND_TLS] = "tls",   [EGRESS_KIND_TCP] = "tcp",
        [EGRESS_KIND_SELF] = "self", [EGRESS_KIND_HTTPS] = "https",
    };
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "do", "connect");
    json_kv_text(&json, "sandbox", what->name.id);
    json_kv_text(&json, "host", what->host);
    json_kv_int(&json, "port", what->port);
    json_kv_text(&json, "kind", kinds[what->kind]);
    if (what->method[0])
        json_kv_text(&json, "method", what->method);
    if (what->path[0])
        json_kv_text(&json, "path", what->path);
    json_close(&json, '}');
    return arena_memdup0(arena, body.data, body.len);
}

static size_t open_of(struct gate *gate, const char *sandbox)
{
    size_t count = 0;

    list_each (pos, &gate->asks) {
        const struct open_ask *ask = list_entry(pos, struct open_ask, node);

        count += ask->state != ASK_ALLOWED && strcmp(ask->sandbox, sandbox) == 0;
    }
    return count;
}

static struct open_ask *ask_people(struct gate *gate, const struct gate_box *box, const char *kind,
                                   int64_t open_ms, struct ask_job *one, const char *hash)
{
    char id[ID_SIZE];

    id_make(id, "ask");
    one->row.id = arena_strdup(&one->arena, id);
    one->row.tenant = arena_strdup(&one->arena, box->tenant);
    one->row.kind = kind;
    one->row.sandbox = arena_strdup(&one->arena, box->id);
    one->row.hash = arena_strdup(&one->arena, hash);
    one->row.state = "pending";
    one->row.created_ms = clock_wall_ms();
    one->row.expires_ms = one->row.created_ms + open_ms;
    struct open_ask *ask = open_new(gate, &one->row);
    store_write(gate->store, &one->job);
    return ask;
}

static void hash_of(const char *action, char out[SHA256_HEX_SIZE])
{
    unsigned char digest[SHA256_SIZE];

    sha256(action, strlen(action), digest);
    hex_text(digest, sizeof(digest), out);
}

void questions_asked(struct gate *gate, uint32_t number, const struct egress_decision *what)
{
    struct gate_box *box = map_get(
        &gate->known, (struct str){ what->name.id, strnlen(what->name.id, sizeof(what->name.id)) });
    struct ask_job *one = job_new(gate, add_run, add_done);
    char hash[SHA256_HEX_SIZE];

    one->row.action = action_of(&one->arena, what);
    hash_of(one->row.action, hash);
    if (box && allowed_before(gate, box->id, hash, what->time_ms)) {
        job_free(one);
        peer_answer(gate, number, true);
        return;
    }
    struct open_ask *same = box ? by_hash(gate, box->id, hash) : NULL;
    if (box && !same && box->policy.mode == POLICY_MODE_ASK &&
        open_of(gate, box->id) < ASKS_PENDING_MAX) {
        join(ask_people(gate, box, ASK_EGRESS, box->policy.ask_s * 1000ll, one, hash), number);
        return;
    }
    job_free(one);
    if (!same || same->state != ASK_OPEN || !join(same, number))
        peer_answer(gate, number, false);
}

enum wished questions_wished(struct gate *gate, const struct gate_box *box, const char *action,
                             uint32_t number, char id[ID_SIZE])
{
    char hash[SHA256_HEX_SIZE];

    hash_of(action, hash);
    const struct open_ask *same = by_hash(gate, box->id, hash);
    if (same) {
        memcpy(id, same->id, ID_SIZE);
        return WISHED_BEFORE;
    }
    if (open_of(gate, box->id) >= ASKS_PENDING_MAX)
        return WISHED_TOO_MUCH;
    struct ask_job *one = job_new(gate, add_run, add_done);
    one->row.action = arena_strdup(&one->arena, action);
    one->told = number;
    ask_people(gate, box, ASK_RULE, ASKS_RULE_S * 1000ll, one, hash);
    return WISHED;
}

const char *gate_ask_rule(struct gate *gate, const char *tenant, const char *id,
                          const char **sandbox)
{
    const struct open_ask *ask = by_id(gate, id);

    if (!ask || !ask->rule[0] || ask->state != ASK_OPEN || strcmp(ask->tenant, tenant) != 0)
        return NULL;
    *sandbox = ask->sandbox;
    return ask->rule;
}

int ask_of_box(struct db *db, const char *tenant, const char *sandbox, const char *id,
               void (*fn)(void *ctx, const struct ask_row *row), void *ctx, struct err *err)
{
    autoquery struct query *q = db_query(
        db, "SELECT id, tenant, kind, sandbox, action, hash, state, created_ms, expires_ms,"
            " decided_ms, by, note FROM ask WHERE tenant = $1 AND sandbox = $2 AND kind = $3"
            " AND ($4 = '' OR id = $4) ORDER BY id DESC LIMIT $5");
    int rc;

    query_text(q, 1, tenant);
    query_text(q, 2, sandbox);
    query_text(q, 3, ASK_RULE);
    query_text(q, 4, id);
    query_i64(q, 5, ASKS_SHOWN_MAX);
    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct ask_row row;

        row_take(q, &arena, &row);
        fn(ctx, &row);
    }
    return rc;
}

void questions_unasked(struct gate *gate, uint32_t number)
{
    list_each (pos, &gate->asks) {
        struct open_ask *ask = list_entry(pos, struct open_ask, node);

        for (size_t i = 0; i < ask->count; i++)
            if (ask->numbers[i] == number) {
                ask->numbers[i] = ask->numbers[--ask->count];
                return;
            }
    }
}

void questions_unlinked(struct gate *gate)
{
    list_each (pos, &gate->asks)
        list_entry(pos, struct open_ask, node)->count = 0;
}

void gate_ask_opened(struct gate *gate, const struct ask_row *row)
{
    if (!by_id(gate, row->id))
        open_new(gate, row);
}

void gate_ask_decided(struct gate *gate, const char *id, bool allow)
{
    struct open_ask *ask = by_id(gate, id);

    if (!ask)
        return;
    ask->owed = allow && ask->count == 0;
    answer_all(gate, ask, allow);
    ask->state = allow ? ASK_ALLOWED : ASK_DENIED;
    ask->decided_ms = clock_wall_ms();
    if (allow && !ask->connects)
        open_free(ask); /* no connection waits for such a question */
}

size_t gate_ask_waiting(struct gate *gate, const char *id)
{
    const struct open_ask *ask = by_id(gate, id);

    return ask ? ask->count : 0;
}

/* ---- a life ---- */

int questions_load(struct gate *gate, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT id, tenant, kind, sandbox, action, hash, state, created_ms,"
                     " expires_ms, decided_ms, by, note FROM ask WHERE state = 'pending'"
                     " OR (kind = $1 AND state IN ('allowed', 'denied') AND expires_ms > $2)");
    int rc;

    query_text(q, 1, ASK_EGRESS);
    query_i64(q, 2, clock_wall_ms());
    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct ask_row row;

        row_take(q, &arena, &row);
        open_new(gate, &row);
    }
    return rc;
}

void questions_start(struct gate *gate)
{
    if (!list_empty(&gate->asks))
        watch_time(gate);
}

void questions_free(struct gate *gate)
{
    timer_cancel(gate->loop, &gate->ask_tick);
    while (!list_empty(&gate->asks))
        open_free(list_entry(gate->asks.next, struct open_ask, node));
}
