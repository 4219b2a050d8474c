/*
 * Heartbeats, and who is silent. Loop thread.
 *
 * A heartbeat changes two numbers in memory and is answered at once; once a second, and before
 * anybody asks for the list, what changed is written in one job. So a thousand agents cost one
 * commit a second, and a crash loses a second of heartbeats: who was online is given the whole time
 * to be silent again. Going offline, coming back and stalling are events, written with it.
 */
#include "hub/own.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

#define TENANT_SIZE 40
#define KEEP_EVERY_MS (3600ll * 1000)

enum { TELL_ONLINE = 1, TELL_OFFLINE = 2, TELL_STALLED = 4 };

struct live {
    char tenant[TENANT_SIZE], name[HUB_NAME_MAX + 1];
    int64_t last_ms, tick;
    bool paused, offline, stalled, dirty, flush;
    unsigned tell;
    char revocation[UUID_SIZE]; /* "": none is pending */
    char *reason;               /* owned, or NULL */
};

static struct live *find(const struct hub *hub, const char *tenant, const char *name)
{
    char key[HUB_KEY_SIZE];

    return map_get(&hub->live, hub_key(key, tenant, name));
}

static struct live *find_or_new(struct hub *hub, const char *tenant, const char *name)
{
    char key[HUB_KEY_SIZE];
    struct live *live = find(hub, tenant, name);

    if (live)
        return live;
    live = xnew(struct live);
    snprintf(live->tenant, sizeof(live->tenant), "%s", tenant);
    snprintf(live->name, sizeof(live->name), "%s", name);
    map_put(&hub->live, hub_key(key, tenant, name), live);
    return live;
}

static void live_free(struct live *live)
{
    free(live->reason);
    free(live);
}

bool hub_known(const struct hub *hub, const char *tenant, const char *name)
{
    return find(hub, tenant, name) != NULL;
}

/* ---- writing down ---- */

struct flush_item {
    char tenant[TENANT_SIZE], name[HUB_NAME_MAX + 1];
    int64_t last_ms, tick;
    bool offline, stalled;
    unsigned tell;
};

struct flush {
    struct store_job job;
    struct hub *hub;
    struct flush_item *items; /* owned */
    size_t count;
    bool leases, keep;
    int64_t now_ms;
    int left, swept; /* leases, messages */
};

static int tell_one(const struct hub_by *by, const struct flush_item *item, struct err *err)
{
    const char *object = hub_agent_object(by, item->name);
    char when[CLOCK_NAIVE_SIZE];

    clock_naive(item->last_ms, when);
    if ((item->tell & TELL_OFFLINE) && hub_tell(by, "agent_offline", object, err, "name",
                                                item->name, "last_heartbeat", when, NULL) < 0)
        return -1;
    if ((item->tell & TELL_ONLINE) &&
        hub_tell(by, "agent_online", object, err, "name", item->name, NULL) < 0)
        return -1;
    if (!(item->tell & TELL_STALLED))
        return 0;
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    json_open(&json, '{');
    json_kv_text(&json, "name", item->name);
    json_kv_int(&json, "missed", item->tick / HUB_CHECKPOINT_TICKS);
    json_close(&json, '}');
    return hub_tell_json(by, "agent_stalled", object, &body, err);
}

static int put_one(struct db *db, struct arena *arena, const struct flush_item *item,
                   struct err *err)
{
    const struct hub_by by = { .db = db, .arena = arena, .tenant = item->tenant };
    autoquery struct query *q =
        db_query(db, "UPDATE hub_agent SET heartbeat_ms = $1, tick = $2, offline = $3, stalled = $4"
                     " WHERE tenant = $5 AND name = $6");

    query_i64(q, 1, item->last_ms);
    query_i64(q, 2, item->tick);
    query_i64(q, 3, item->offline);
    query_i64(q, 4, item->stalled);
    query_text(q, 5, item->tenant);
    query_text(q, 6, item->name);
    int rows = query_run(q, err);
    if (rows <= 0) /* 0: it has left meanwhile */
        return rows;
    return tell_one(&by, item, err);
}

static int flush_run(struct store_job *job, struct db *db, struct err *err)
{
    struct flush *flush = container_of(job, struct flush, job);
    autoarena struct arena arena = { 0 };

    for (size_t i = 0; i < flush->count; i++)
        if (put_one(db, &arena, &flush->items[i], err) < 0)
            return -1;
    if (flush->leases && (flush->left = hub_leases_sweep(db, flush->now_ms, err)) < 0)
        return -1;
    if (flush->keep &&
        (flush->swept = hub_messages_sweep(db, flush->now_ms - flush->hub->keep_ms, err)) < 0)
        return -1;
    return 0;
}

struct waiter {
    struct list node;
    void (*done)(void *ctx);
    void *ctx;
    bool next; /* what is being written is older than what it waits for */
};

static bool flush_now(struct hub *hub);

/* Those whose words are written now; the others are next. */
static void tell_waiting(struct hub *hub)
{
    struct list told = { 0 };
    bool more = false;

    list_each_safe (node, &hub->waiting) {
        struct waiter *one = list_entry(node, struct waiter, node);

        more |= one->next;
        if (!one->next) {
            list_remove(node);
            list_append(&told, node);
        }
        one->next = false;
    }
    if (more && !flush_now(hub))
        tell_waiting(hub); /* nothing was said since */
    while (!list_empty(&told)) {
        struct waiter *one = list_entry(told.next, struct waiter, node);

        list_remove(&one->node);
        one->done(one->ctx);
        free(one);
    }
}

static void flush_done(struct store_job *job)
{
    struct flush *flush = container_of(job, struct flush, job);
    struct hub *hub = flush->hub;

    hub->writing = false;
    if (job->rc < 0)
        log_warn("heartbeats are written later", kv_str("error", job->err.msg));
    for (size_t i = 0; job->rc < 0 && i < flush->count; i++) {
        struct live *live = find(hub, flush->items[i].tenant, flush->items[i].name);

        if (live) {
            live->dirty = true;
            live->tell |= flush->items[i].tell;
        }
    }
    if (job->rc == 0 && flush->leases)
        hub->leases = flush->left > 0 || hub->lease_news;
    if (job->rc == 0 && flush->keep && flush->swept < STORE_SWEEP_ROWS) /* there may be more */
        hub->kept_ms = flush->now_ms;
    free(flush->items);
    free(flush);
    tell_waiting(hub);
}

static size_t gather(struct hub *hub, struct flush_item **out)
{
    struct flush_item *items = NULL;
    const struct map_slot *slot;
    size_t at = 0, count = 0, cap = 0;

    while ((slot = map_next(&hub->live, &at))) {
        struct live *live = slot->value;

        if (!live->dirty && !live->tell)
            continue;
        if (count == cap) {
            cap = cap ? 2 * cap : 16;
            items = xrealloc(items, cap * sizeof(*items));
        }
        struct flush_item *item = &items[count++];
        *item = (struct flush_item){ .last_ms = live->last_ms,
                                     .tick = live->tick,
                                     .offline = live->offline,
                                     .stalled = live->stalled,
                                     .tell = live->tell };
        memcpy(item->tenant, live->tenant, sizeof(item->tenant));
        memcpy(item->name, live->name, sizeof(item->name));
        live->dirty = false;
        live->tell = 0;
    }
    *out = items;
    return count;
}

/* True: something is being written. */
static bool flush_now(struct hub *hub)
{
    int64_t now = clock_wall_ms();
    struct flush_item *items = NULL;
    bool keep = now - hub->kept_ms >= KEEP_EVERY_MS;

    if (hub->writing)
        return true;
    size_t count = gather(hub, &items);
    if (!count && !hub->leases && !keep)
        return false;
    struct flush *flush = xnew(struct flush);
    *flush = (struct flush){ .job = { .run = flush_run, .done = flush_done },
                             .hub = hub,
                             .items = items,
                             .count = count,
                             .leases = hub->leases,
                             .keep = keep,
                             .now_ms = now };
    hub->writing = true;
    hub->lease_news = false;
    store_write(hub->store, &flush->job);
    return true;
}

void hub_settle(struct hub *hub, void (*done)(void *ctx), void *ctx)
{
    bool was = hub->writing;

    if (!flush_now(hub)) {
        done(ctx);
        return;
    }
    struct waiter *one = xnew(struct waiter);
    one->done = done;
    one->ctx = ctx;
    one->next = was;
    list_append(&hub->waiting, &one->node);
}

/* ---- time ---- */

static void on_tick(struct timer *timer)
{
    struct hub *hub = container_of(timer, struct hub, tick);
    int64_t now = clock_wall_ms();
    const struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&hub->live, &at))) {
        struct live *live = slot->value;

        if (!live->offline && now - live->last_ms > hub->stale_ms) {
            live->offline = true;
            live->tell = (live->tell & ~(unsigned)TELL_ONLINE) | TELL_OFFLINE;
        }
    }
    flush_now(hub);
    if (!hub->draining)
        timer_set(hub->loop, timer, HUB_SWEEP_MS);
}

static const char *status_of(const struct live *live)
{
    return live->revocation[0] ? "revoked"
           : live->paused      ? "busy"
           : live->offline     ? "offline"
           : live->stalled     ? "stalled"
                               : "online";
}

int hub_heartbeat(struct hub *hub, const char *tenant, const char *name, struct hub_beat *out,
                  struct err *err)
{
    struct live *live = find(hub, tenant, name);
    int64_t now = clock_wall_ms();

    if (!live)
        return err_set(err, ERR_NOT_FOUND, "agent not found");
    int64_t wait = rate_take(&hub->beats, tenant, name, now);
    if (wait) {
        err_set(err, ERR_RATE, "Rate limit exceeded: %lld heartbeats in 60 seconds",
                (long long)hub->beats.most);
        if (err)
            err->retry_after = (int)((wait + 999) / 1000);
        return -1;
    }
    live->last_ms = now;
    live->tick++;
    live->dirty = true;
    if (live->offline) {
        live->offline = false;
        live->tell = live->tell & TELL_OFFLINE ? live->tell & ~(unsigned)TELL_OFFLINE
                                               : live->tell | TELL_ONLINE;
    }
    if (live->tick / HUB_CHECKPOINT_TICKS >= HUB_MISSED_MAX && !live->stalled) {
        live->stalled = true;
        live->tell |= TELL_STALLED;
    }
    if (live->tell)
        flush_now(hub);
    bool pending = live->revocation[0];
    *out = (struct hub_beat){ .tick = live->tick,
                              .due = live->tick >= HUB_CHECKPOINT_TICKS,
                              .status = status_of(live),
                              .revocation = pending ? live->revocation : NULL,
                              .reason = pending ? live->reason : NULL,
                              .flush = live->flush };
    return 0;
}

/* ---- what is committed ---- */

static void set_revocation(struct live *live, struct str id, struct str reason, bool flush)
{
    snprintf(live->revocation, sizeof(live->revocation), "%.*s", STR_FMT(id));
    free(live->reason);
    live->reason = xmemdup0(reason.p ? reason.p : "", reason.n);
    live->flush = flush;
}

static void heard_revoked(struct live *live, const struct event *event)
{
    autoarena struct arena arena = { 0 };
    struct json *body = NULL;

    if (json_parse(&arena, event->body, &body, NULL) == 0)
        set_revocation(live, json_text(body, "revocation_id"), json_text(body, "reason"),
                       json_true(body, "flush_required"));
}

static void heard_begin(struct live *live)
{
    live->tick = 0;
    live->stalled = false;
    live->tell &= ~(unsigned)TELL_STALLED;
}

static void heard_agent(struct hub *hub, const struct event *event, const char *name)
{
    char key[HUB_KEY_SIZE];
    struct live *live = strcmp(event->type, "agent_registered") == 0
                            ? find_or_new(hub, event->tenant, name)
                            : find(hub, event->tenant, name);

    if (!live)
        return;
    if (strcmp(event->type, "agent_registered") == 0) {
        heard_begin(live);
        live->offline = false;
        live->last_ms = event->at_ms;
    } else if (strcmp(event->type, "agent_unregistered") == 0) {
        map_del(&hub->live, hub_key(key, event->tenant, name));
        live_free(live);
    } else if (strcmp(event->type, "checkpoint_submitted") == 0) {
        heard_begin(live);
    } else if (strcmp(event->type, "agent_paused") == 0) {
        live->paused = true;
    } else if (strcmp(event->type, "agent_resumed") == 0) {
        live->paused = false;
        set_revocation(live, STR_NONE, STR_NONE, false);
    } else if (strcmp(event->type, "agent_revoked") == 0) {
        heard_revoked(live, event);
    } else if (strcmp(event->type, "agent_recovered") == 0) {
        heard_begin(live);
        set_revocation(live, STR_NONE, STR_NONE, false);
    }
}

void hub_heard(struct hub *hub, const struct event *event)
{
    struct str object = str_of(event->object), prefix = STR("hub/agent/");

    if (str_starts(object, prefix))
        heard_agent(hub, event, event->object + prefix.n);
    else if (strcmp(event->type, "lease_taken") == 0)
        hub->leases = hub->lease_news = true;
}

/* ---- a life ---- */

int hub_new(struct hub **out, const struct hub_options *options, struct err *err)
{
    struct hub *hub = xnew(struct hub);

    hub->loop = options->loop;
    hub->store = options->store;
    hub->stale_ms = options->stale_ms;
    hub->keep_ms = options->keep_ms;
    hub->filter = options->filter;
    hub->sends.most = options->message_rate;
    hub->beats.most = options->heartbeat_rate;
    hub->tick.fn = on_tick;
    list_init(&hub->waiting);
    if (away_new(&hub->urls, options->url_allow, options->url_schemes, err) < 0) {
        free(hub);
        return -1;
    }
    *out = hub;
    return 0;
}

void hub_free(struct hub *hub)
{
    const struct map_slot *slot;
    size_t at = 0;

    if (!hub)
        return;
    if (hub->loop)
        timer_cancel(hub->loop, &hub->tick);
    while ((slot = map_next(&hub->live, &at)))
        live_free(slot->value);
    while (!list_empty(&hub->waiting)) {
        struct waiter *one = list_entry(hub->waiting.next, struct waiter, node);

        list_remove(&one->node);
        free(one);
    }
    map_free(&hub->live);
    rate_free(&hub->sends);
    rate_free(&hub->beats);
    away_free(hub->urls);
    free(hub);
}

int hub_load(struct hub *hub, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT a.tenant, a.name, a.tick, a.paused, a.offline, a.stalled,"
                     " a.revocation, coalesce(r.reason, ''), coalesce(r.flush, 0), a.heartbeat_ms"
                     " FROM hub_agent a LEFT JOIN hub_revocation r ON r.tenant = a.tenant"
                     " AND r.id = a.revocation");
    int64_t now = clock_wall_ms();
    int rc;

    hub->leases = true; /* the first look says whether there are any */
    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        struct live *live =
            find_or_new(hub, query_col_dup(q, 0, &arena), query_col_dup(q, 1, &arena));

        live->tick = query_col_i64(q, 2);
        live->paused = query_col_i64(q, 3);
        live->offline = query_col_i64(q, 4);
        live->stalled = query_col_i64(q, 5);
        live->last_ms = live->offline ? query_col_i64(q, 9) : now;
        set_revocation(live, query_col_str(q, 6), query_col_str(q, 7), query_col_i64(q, 8));
    }
    return rc;
}

void hub_start(struct hub *hub)
{
    timer_set(hub->loop, &hub->tick, HUB_SWEEP_MS);
}

void hub_drain(struct hub *hub)
{
    hub->draining = true;
    flush_now(hub);
    timer_cancel(hub->loop, &hub->tick);
}
