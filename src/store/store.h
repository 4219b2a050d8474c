/*
 * store - one writer thread with group commit, a few readers, and what every row shares.
 *
 * Work is a job. A write job runs top to bottom on the writer thread, inside a transaction that it
 * shares with its neighbours; when the queue is empty or the batch is full the
 * writer commits once, and only then does each job come back to the loop thread (`done`). So an
 * acknowledged write is on disk, and many share one fsync. A job that fails is taken back alone.
 * If the commit itself fails, every job of the batch comes back failed (ERR_NO_SPACE, …).
 *
 * Events made by a job (event_add) are handed to the loop with it, after the commit, in order.
 */
#pragma once

#include "base/list.h"
#include "loop/loop.h"
#include "store/db.h"

struct store;
struct event;

struct store_job {
    /* On the writer or a reader thread. -1 with *err set rolls the job back. */
    int (*run)(struct store_job *job, struct db *db, struct err *err);
    /* On the loop thread, after the commit, before its events are told: what they tell of can be
     * made true. May be NULL. */
    void (*committed)(struct store_job *job);
    /* On the loop thread, after the commit (or the failure): rc and err say how it went. */
    void (*done)(struct store_job *job);
    unsigned lazy_ms; /* of a write: so long its commit may wait for others to share it */

    int rc;
    struct err err;
    struct event *events; /* made by the job, in order; freed after `done` */
    /* the store's own */
    struct event **events_end;
    struct store_job *next;
};

struct store_options {
    const char *path; /* of the database file; its directory is ours */
    unsigned readers; /* threads; 0 means 2 */
    bool throw_away;  /* no commit of this process waits for the disk */
    /* On the loop thread, for each committed event in order, before the job's `done`. */
    void (*on_event)(void *ctx, const struct event *event);
    void *ctx;
};

/*
 * Opens, checks (a corrupt file is refused with a clear message, never repaired) and migrates.
 * Threads start here; `loop` is where jobs come back. The check of a file above
 * STORE_CHECK_NOW_MAX goes on while it is served.
 */
must_use int store_open(struct store **out, struct loop *loop, const struct store_options *options,
                        struct err *err);
/* Finishes what is queued, commits, checkpoints, joins the threads. */
void store_close(struct store *store);

/*
 * Loop thread. Never calls `done` before it returns: when STORE_QUEUE_MAX jobs wait, the job comes
 * back in the next round as ERR_UNAVAILABLE. A read job sees one moment of the store, with
 * everything that had come back when it was handed in.
 */
void store_write(struct store *store, struct store_job *job);
void store_read(struct store *store, struct store_job *job);
/* What is known about the file; damaged: nothing is written any more. Any thread. */
enum store_state { STORE_SOUND, STORE_CHECKING, STORE_DAMAGED };
enum store_state store_state(const struct store *store);
/* Newest event number of the tenant that reached the loop; 0 when none has. Loop thread. */
int64_t store_event_head(const struct store *store, const char *tenant);

/*
 * For the command line: one connection, no threads. To write, no server may be running
 * (ERR_CONFLICT); reading works beside a running one and on a copy of the file.
 */
must_use int store_open_alone(struct db **out, const char *path, bool write, struct err *err);
void store_close_alone(struct db *db);
/* Runs a write job on such a connection in a transaction of its own; `done` is not called. */
must_use int store_run_alone(struct db *db, struct store_job *job);
#define BACKUP_OF_CLIENT "cli" /* ids with this prefix: copies that `atoll backup` asked for */
/* A consistent copy into a new file while the server runs or not; refuses to overwrite. */
must_use int store_backup(struct db *db, const char *to_path, struct err *err);
/* Is the file a whole store of ours, every page and the audit chain? Before it is put to use. */
must_use int store_check(const char *path, struct err *err);

/*
 * Within a write job: forgets what is beyond retention (events, nonces, idempotency keys, ended
 * sessions and login codes). Gives the number of rows removed; when it is STORE_SWEEP_ROWS there
 * may be more. The other one is told the time.
 */
must_use int store_sweep(struct db *db, struct err *err);
/* How long events are kept from now on, instead of EVENT_KEEP_MS. Any thread. */
void store_keep_events(int64_t ms);
must_use int store_sweep_at(struct db *db, int64_t now_ms, struct err *err);

/* ---- events: one increasing number per tenant, without gaps ---- */

struct event {
    struct event *next;
    int64_t seq; /* within the tenant, from 1 */
    int64_t at_ms;
    char *tenant;    /* all in one allocation with the event */
    char *type;      /* "token.created" */
    char *object;    /* "token/tok…", or "" */
    struct str body; /* a JSON object */
};

/* Within a write job: takes the next number of the tenant. */
must_use int event_add(struct db *db, const char *tenant, const char *type, const char *object,
                       struct str body, struct err *err);
/* The number that the last event_add of this job took. */
int64_t event_last_seq(const struct db *db);
/* A number from Last-Event-ID or since=: digits only, at most INT64_MAX. */
must_use bool event_since_parse(struct str text, int64_t *out);
struct event_filter {
    const char *types;  /* comma list of exact types or "prefix.*"; NULL or "" for all */
    const char *object; /* exact, or "kind/" for all of a kind; NULL or "" for all */
};
bool event_matches(const struct event *event, const struct event_filter *filter);

struct event_page {
    struct event *first; /* owned: event_list_free */
    int64_t head;        /* newest number given out */
    int64_t floor;       /* oldest number still kept; head+1 when none */
};
/*
 * Rows with seq > since, oldest first, at most `limit` (and about EVENT_PAGE_BYTES). ERR_GONE when
 * since+1 < floor. None when since is beyond the head.
 */
must_use int event_page(struct db *db, const char *tenant, int64_t since, unsigned limit,
                        struct event_page *out, struct err *err);
/* The newest number of an event before `at_ms`, found by halves; floor - 1 when there is none. */
must_use int event_before(struct db *db, const char *tenant, int64_t at_ms, int64_t *out,
                          struct err *err);
void event_list_free(struct event *first);
struct event *event_copy(const struct event *event); /* gives; event_list_free */
size_t event_size(const struct event *event);        /* bytes in memory */

/* ---- audit: rows in a SHA-256 chain ---- */

struct audit {
    int64_t seq; /* from 1, one chain per store */
    int64_t at_ms;
    const char *tenant;
    const char *actor; /* principal id, or "-" */
    const char *role;
    const char *action; /* the route's name or "refused.forbidden" */
    const char *object;
    const char *outcome; /* "ok" or an error name */
    const char *request_id;
    const char *peer;
    const char *detail; /* JSON object */
};
/* Within a write job. */
must_use int audit_add(struct db *db, const struct audit *row, struct err *err);
/*
 * At most `limit` rows, oldest first: the first ones with seq > since, or with since -1 the newest
 * ones. tenant NULL means all. Calls `fn` with each; texts are borrowed for that call.
 */
must_use int audit_list(struct db *db, const char *tenant, int64_t since, unsigned limit,
                        void (*fn)(void *ctx, const struct audit *row, const char *hash_hex),
                        void *ctx, struct err *err);
/* The newest `limit` rows whose action begins with "hub.", oldest first. */
must_use int audit_list_hub(struct db *db, const char *tenant, unsigned limit,
                            void (*fn)(void *ctx, const struct audit *row, const char *hash_hex),
                            void *ctx, struct err *err);
struct audit_verdict {
    int64_t rows;    /* checked */
    int64_t bad_seq; /* first row that does not fit; 0 when all do */
    char why[160];   /* "row 7 was edited", "rows 5..6 are missing", "…truncated after 90" */
    char head[65];   /* hash of the last row, hex */
};
must_use int audit_verify(struct db *db, struct audit_verdict *out, struct err *err);
/* The same, and row `seq` must have this hash (a head noted elsewhere: detects a rollback). */
must_use int audit_verify_against(struct db *db, int64_t seq, struct str hash_hex,
                                  struct audit_verdict *out, struct err *err);
