/* What this process logged last, out of memory: for whoever cannot reach its standard error. */
#include "api/own.h"

#include <pthread.h>

#include "base/clock.h"

struct line {
    int64_t at_ms;
    enum log_level level;
    const char *role; /* static */
    char *text;       /* owned */
};

static struct {
    pthread_mutex_t lock;
    struct line lines[LOG_KEPT_MAX]; /* a ring */
    unsigned next, count;
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

void server_log_keep(enum log_level level, int64_t at_ms, const char *role, struct str text)
{
    char *copy = xmemdup0(text.p, text.n);

    pthread_mutex_lock(&kept.lock);
    struct line *line = &kept.lines[kept.next];
    free(line->text);
    *line = (struct line){ at_ms, level, role, copy };
    kept.next = (kept.next + 1) % LOG_KEPT_MAX;
    kept.count = MIN(kept.count + 1, (unsigned)LOG_KEPT_MAX);
    pthread_mutex_unlock(&kept.lock);
}

static void put_line(struct json_out *json, const struct line *line)
{
    char when[CLOCK_TEXT_SIZE];

    clock_text(line->at_ms, when);
    json_open(json, '{');
    json_kv_text(json, "timestamp", when);
    json_kv_text(json, "level", log_level_name(line->level));
    json_kv_text(json, "target", line->role);
    json_kv_text(json, "message", line->text);
    json_close(json, '}');
}

static void put_lines(struct json_out *json, int64_t since_ms, int64_t limit)
{
    pthread_mutex_lock(&kept.lock);
    for (unsigned i = 1; i <= kept.count && limit; i++) {
        const struct line *line = &kept.lines[(kept.next + LOG_KEPT_MAX - i) % LOG_KEPT_MAX];

        if (line->at_ms < since_ms)
            continue;
        put_line(json, line);
        limit--;
    }
    pthread_mutex_unlock(&kept.lock);
}

static int logs_get(struct call *call, struct err *err)
{
    const char *since = call_query(call, "since");
    struct json_out json = call_json(call);
    int64_t limit, since_ms = 0;

    if (call_query_int(call, "limit", 1, LOG_KEPT_MAX, LOG_LINES_DEFAULT, &limit, err) < 0)
        return -1;
    if (since && !clock_parse(str_of(since), &since_ms))
        return err_field(err, "since", "a time such as 2026-11-15T09:14:07Z");
    json_open_list(&json, "logs");
    put_lines(&json, since_ms, limit);
    json_close_list(&json);
    return 0;
}

const struct route server_log_routes[] = {
    { .name = "log.read",
      .method = "GET",
      .path = "/api/v1/logs",
      .on = ON_LOOP,
      .roles = ROLE_ADMIN,
      .fn = logs_get,
      .query = "limit:int,since:string",
      .flags = ROUTE_NODE,
      .surface = SURFACE_HUB,
      .summary = "What the server's api process logged, newest first: `limit` (200) of the last "
                 "2000 lines, not older than `since` (RFC 3339). They are kept in memory, and gone "
                 "with the process." },
    { 0 },
};
