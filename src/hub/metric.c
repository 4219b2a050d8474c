/*
 * What a board says about how work goes: how long tasks take (cycle: begun to done, lead: made to
 * done, review: first review to done), as nearest-rank percentiles, and how many are done in each
 * part of a window.
 */
#include "hub/own.h"

#include "base/clock.h"

#include <stdlib.h>

struct span {
    const char *name;
    int64_t *ms;
    size_t count;
};

struct done_of {
    const char *agent;
    int64_t count;
};

struct tally {
    int64_t total, by_status[6];
    size_t cap;
    struct span spans[3];           /* cycle, lead, review; of the window if there is one */
    int64_t cycle_sum, cycle_count; /* of all */
    int64_t *completed;             /* of tasks that are done */
    size_t completed_count;
    struct done_of *agents;
    size_t agent_count;
};

static double minutes(double ms)
{
    return (double)(int64_t)(ms / 60000 * 10 + 0.5) / 10;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void put_span(struct json_out *json, struct span *span)
{
    static const struct {
        const char *name;
        size_t percent;
    } ranks[] = { { "p50", 50 }, { "p90", 90 }, { "p95", 95 }, { "p99", 99 } };
    double sum = 0;

    if (span->count)
        qsort(span->ms, span->count, sizeof(*span->ms), by_number);
    for (size_t i = 0; i < span->count; i++)
        sum += (double)span->ms[i];
    json_key(json, span->name);
    json_open(json, '{');
    json_kv_int(json, "count", (int64_t)span->count);
    json_kv_double(json, "avg", span->count ? minutes(sum / (double)span->count) : 0);
    for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
        size_t rank = (span->count * ranks[i].percent + 99) / 100;

        json_kv_double(json, ranks[i].name, rank ? minutes((double)span->ms[rank - 1]) : 0);
    }
    json_close(json, '}');
}

static void add_span(struct span *span, int64_t from_ms, int64_t to_ms)
{
    if (from_ms && to_ms >= from_ms)
        span->ms[span->count++] = to_ms - from_ms;
}

static void count_agent(const struct hub_by *by, struct tally *tally, struct str agent)
{
    for (size_t i = 0; i < tally->agent_count; i++)
        if (str_is(agent, tally->agents[i].agent)) {
            tally->agents[i].count++;
            return;
        }
    tally->agents[tally->agent_count++] =
        (struct done_of){ arena_memdup0(by->arena, agent.p, agent.n), 1 };
}

/* status, assigned_to, created, started, review, completed */
static void take_task(const struct hub_by *by, struct query *q, int64_t since_ms,
                      struct tally *tally)
{
    int64_t created = query_col_i64(q, 2), started = query_col_i64(q, 3);
    int64_t review = query_col_i64(q, 4), completed = query_col_i64(q, 5);
    bool done = str_is(query_col_str(q, 0), "done");

    tally->total++;
    for (int i = 0; hub_statuses[i]; i++)
        tally->by_status[i] += str_is(query_col_str(q, 0), hub_statuses[i]);
    if (done && query_col_str(q, 1).n)
        count_agent(by, tally, query_col_str(q, 1));
    if (done)
        tally->completed[tally->completed_count++] = completed;
    if (!completed)
        return;
    if (started) {
        tally->cycle_sum += completed - started;
        tally->cycle_count++;
    }
    if (completed <= since_ms)
        return;
    add_span(&tally->spans[0], started, completed);
    add_span(&tally->spans[1], created, completed);
    add_span(&tally->spans[2], review, completed);
}

static int gather(const struct hub_by *by, const char *project, int64_t since_ms,
                  struct tally *tally, struct err *err)
{
    static const char *const names[] = { "cycle_time_minutes", "lead_time_minutes",
                                         "review_time_minutes" };
    int64_t count;
    int rc;
    autoquery struct query *size =
        db_query(by->db, "SELECT tasks FROM hub_project WHERE tenant = $1 AND id = $2");
    autoquery struct query *q = db_query(
        by->db, "SELECT status, assigned_to, created_ms, started_ms, review_ms, completed_ms"
                " FROM hub_task WHERE tenant = $1 AND project = $2");

    query_text(size, 1, by->tenant);
    query_text(size, 2, project);
    if (hub_number(size, 0, &count, err) < 0)
        return -1;
    tally->cap = (size_t)count;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        tally->spans[i] =
            (struct span){ .name = names[i],
                           .ms = arena_alloc(by->arena, (tally->cap + 1) * sizeof(int64_t)) };
    tally->completed = arena_alloc(by->arena, (tally->cap + 1) * sizeof(int64_t));
    tally->agents = arena_alloc(by->arena, (tally->cap + 1) * sizeof(*tally->agents));
    query_text(q, 1, by->tenant);
    query_text(q, 2, project);
    while ((rc = query_step(q, err)) > 0 && (size_t)tally->total < tally->cap)
        take_task(by, q, since_ms, tally);
    return rc < 0 ? -1 : 0;
}

static void put_throughput(const struct hub_by *by, struct json_out *json,
                           const struct tally *tally, int64_t window_s, int64_t bucket_s)
{
    int64_t from = by->now_ms - window_s * 1000, total = 0;
    char when[CLOCK_NAIVE_SIZE];

    json_key(json, "throughput");
    json_open(json, '{');
    json_kv_int(json, "window_seconds", window_s);
    json_kv_int(json, "bucket_seconds", bucket_s);
    json_key(json, "buckets");
    json_open(json, '[');
    for (int64_t at = from; at < by->now_ms; at += bucket_s * 1000) {
        int64_t end = MIN(at + bucket_s * 1000, by->now_ms), done = 0;

        for (size_t i = 0; i < tally->completed_count; i++)
            done += tally->completed[i] > at && tally->completed[i] <= end;
        total += done;
        json_open(json, '{');
        clock_naive(at, when);
        json_kv_text(json, "from", when);
        clock_naive(end, when);
        json_kv_text(json, "to", when);
        json_kv_int(json, "done", done);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_kv_int(json, "total", total);
    json_close(json, '}');
}

int hub_metrics(const struct hub_by *by, const char *project, int64_t window_s, int64_t bucket_s,
                bool windowed, struct json_out *json, struct err *err)
{
    struct tally tally = { 0 };

    if ((window_s + bucket_s - 1) / bucket_s > HUB_BUCKETS_MAX)
        return err_field(err, "bucket", "a window has at most %d buckets", HUB_BUCKETS_MAX);
    if (gather(by, project, windowed ? by->now_ms - window_s * 1000 : 0, &tally, err) < 0)
        return -1;
    json_open(json, '{');
    json_kv_int(json, "total_tasks", tally.total);
    json_key(json, "by_status");
    json_open(json, '{');
    for (int i = 0; hub_statuses[i]; i++)
        json_kv_int(json, hub_statuses[i], tally.by_status[i]);
    json_close(json, '}');
    json_kv_double(json, "avg_cycle_time_minutes",
                   tally.cycle_count ? minutes((double)tally.cycle_sum / (double)tally.cycle_count)
                                     : 0);
    json_kv_int(json, "completed_count", tally.cycle_count);
    json_key(json, "agent_throughput");
    json_open(json, '{');
    for (size_t i = 0; i < tally.agent_count; i++)
        json_kv_int(json, tally.agents[i].agent, tally.agents[i].count);
    json_close(json, '}');
    for (size_t i = 0; i < ARRAY_LEN(tally.spans); i++)
        put_span(json, &tally.spans[i]);
    put_throughput(by, json, &tally, window_s, bucket_s);
    json_close(json, '}');
    return 0;
}
