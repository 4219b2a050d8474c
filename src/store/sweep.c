/*
 * Retention: what may be forgotten, a bounded number of rows at a time, from the old end. Events
 * go from the floor up and the floor moves in the same transaction, so a reader either gets the
 * rows it asks for or is told that they are gone.
 */
#include <stdatomic.h>

#include "base/clock.h"
#include "base/limits.h"
#include "store/engine.h"
#include "store/store.h"

/* One table whose rows end by a time: statement with $1 = cut-off, $2 = most rows. */
struct ending {
    const char *sql;
    int64_t keep_ms; /* after the time in the row */
};

static const struct ending endings[] = {
    { "DELETE FROM nonce WHERE key IN"
      " (SELECT key FROM nonce WHERE at_ms < $1 ORDER BY at_ms LIMIT $2)",
      2ll * AUTH_SKEW_MS },
    { "DELETE FROM idempotency WHERE (tenant, principal, key) IN"
      " (SELECT tenant, principal, key FROM idempotency WHERE at_ms < $1 ORDER BY at_ms LIMIT $2)",
      IDEMPOTENCY_KEEP_MS },
    { "DELETE FROM session WHERE id IN"
      " (SELECT id FROM session WHERE expires_ms < $1 ORDER BY expires_ms LIMIT $2)",
      0 },
    { "DELETE FROM login_code WHERE hash IN"
      " (SELECT hash FROM login_code WHERE expires_ms < $1 ORDER BY expires_ms LIMIT $2)",
      0 },
};

static int sweep_ending(struct db *db, const struct ending *ending, int64_t now_ms, int most,
                        struct err *err)
{
    autoquery struct query *q = db_query(db, ending->sql);

    query_i64(q, 1, now_ms - ending->keep_ms);
    query_i64(q, 2, most);
    return query_run(q, err);
}

/* ---- events ---- */

struct log_end {
    char *tenant; /* owned */
    int64_t head, floor;
    struct log_end *next;
};

/* The tenants whose oldest event is too old, or who have too many. */
static int find_logs(struct db *db, struct log_end **first, struct err *err)
{
    int rc;
    autoquery struct query *q = db_query(
        db, "SELECT id, event_seq, event_floor FROM tenant WHERE event_floor <= event_seq");

    while ((rc = query_step(q, err)) > 0) {
        struct str tenant = query_col_str(q, 0);
        struct log_end *log = xnew(struct log_end);

        log->tenant = xmemdup0(tenant.p, tenant.n);
        log->head = query_col_i64(q, 1);
        log->floor = query_col_i64(q, 2);
        log->next = *first;
        *first = log;
    }
    return rc;
}

static _Atomic int64_t event_keep_ms = EVENT_KEEP_MS;

void store_keep_events(int64_t ms)
{
    atomic_store(&event_keep_ms, ms);
}

/* The floor that retention wants: the first row that is young enough and within the count. */
static int wanted_floor(struct db *db, const struct log_end *log, int64_t now_ms, int most,
                        int64_t *out, struct err *err)
{
    int rc;
    autoquery struct query *q =
        db_query(db, "SELECT seq, at_ms FROM event WHERE tenant = $1 AND seq >= $2"
                     " ORDER BY seq LIMIT $3");
    query_text(q, 1, log->tenant);
    query_i64(q, 2, log->floor);
    query_i64(q, 3, most);

    *out = log->floor;
    while ((rc = query_step(q, err)) > 0) {
        bool old = query_col_i64(q, 1) < now_ms - atomic_load(&event_keep_ms);
        int64_t seq = query_col_i64(q, 0);

        if (!old && seq > log->head - EVENT_KEEP_ROWS)
            return 0;
        *out = seq + 1;
    }
    return rc;
}

static int cut_log(struct db *db, const struct log_end *log, int64_t floor, struct err *err)
{
    autoquery struct query *move = db_query(db, "UPDATE tenant SET event_floor = $1 WHERE id = $2");
    query_i64(move, 1, floor);
    query_text(move, 2, log->tenant);
    if (query_run(move, err) < 0)
        return -1;
    autoquery struct query *cut = db_query(db, "DELETE FROM event WHERE tenant = $1 AND seq < $2");
    query_text(cut, 1, log->tenant);
    query_i64(cut, 2, floor);
    return query_run(cut, err);
}

static int sweep_events(struct db *db, const struct log_end *logs, int64_t now_ms, int most,
                        struct err *err)
{
    int removed = 0;

    for (; logs && removed < most; logs = logs->next) {
        int64_t floor;

        if (wanted_floor(db, logs, now_ms, most - removed, &floor, err) < 0)
            return -1;
        if (floor == logs->floor)
            continue;
        int rows = cut_log(db, logs, floor, err);
        if (rows < 0)
            return -1;
        removed += rows;
    }
    return removed;
}

static void free_logs(struct log_end *logs)
{
    while (logs) {
        struct log_end *next = logs->next;

        free(logs->tenant);
        free(logs);
        logs = next;
    }
}

int store_sweep_at(struct db *db, int64_t now_ms, struct err *err)
{
    struct log_end *logs = NULL;
    int removed = find_logs(db, &logs, err);

    if (removed == 0)
        removed = sweep_events(db, logs, now_ms, STORE_SWEEP_ROWS, err);
    free_logs(logs);
    for (size_t i = 0; i < ARRAY_LEN(endings) && removed >= 0 && removed < STORE_SWEEP_ROWS; i++) {
        int rows = sweep_ending(db, &endings[i], now_ms, STORE_SWEEP_ROWS - removed, err);

        removed = rows < 0 ? -1 : removed + rows;
    }
    return removed < 0 ? err_wrap(err, "sweep") : removed;
}

int store_sweep(struct db *db, struct err *err)
{
    return store_sweep_at(db, clock_wall_ms(), err);
}
