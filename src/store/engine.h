/*
 * engine - the seam behind db.h: what one database engine must be able to do.
 *
 * db.c owns the query objects, their cache and the transactions' words; an engine prepares, binds,
 * steps and reads columns. sqlite.c is the one engine there is; postgres.c will be the other.
 * Private to store/.
 */
#pragma once

#include <stdbool.h>

#include "store/db.h"

struct store_job;
struct db_engine;

enum db_mode {
    DB_CREATE,   /* an empty file that becomes a database; no log beside it */
    DB_WRITE,    /* the one writer */
    DB_READ,     /* one of many readers of a database that may be live */
    DB_READ_COPY /* a file that nobody has open: no locks, no files beside it */
};

struct db {
    const struct db_engine *engine;
    void *conn;    /* the engine's */
    char *path;    /* owned */
    int lock_fd;   /* of the file that says "in use", or -1 */
    unsigned busy; /* queries between db_query and query_done */
    bool damaged;  /* the engine met a page that makes no sense */
    bool unread;   /* opened without a look at every page: it is large */

    struct query **slots; /* owned: hash table of chains by text pointer */
    size_t slot_count, query_count;

    struct store_job *job; /* the write job that is running, or NULL */
    int64_t last_seq;      /* of the last event added */
};

struct query {
    struct db *db;
    const char *literal; /* as the caller gave it: the fast key */
    char *text;          /* owned copy */
    void *stmt;          /* the engine's; NULL when preparing failed */
    bool busy;
    struct err err; /* of preparing or binding; told by the next step */
    struct query *next;
};

struct db_engine {
    const char *name;
    const char *blob_type; /* {blob} in migrations */
    const char *clustered; /* {clustered}: rows live in the primary key's tree */
    const char *begin_write;
    const char *mark; /* says in the database that it is ours; mark_query answers mark_value then */
    const char *mark_query, *mark_value;

    int (*prepare)(struct query *q, struct err *err);
    void (*finalize)(struct query *q);
    void (*reset)(struct query *q);
    int (*bind_text)(struct query *q, int at, struct str text);
    int (*bind_i64)(struct query *q, int at, int64_t num);
    int (*bind_blob)(struct query *q, int at, const void *data, size_t len);
    int (*step)(struct query *q, struct err *err);
    int (*changes)(struct query *q);
    int64_t (*col_i64)(struct query *q, int col);
    struct str (*col_str)(struct query *q, int col);

    /* Several statements without parameters, for migrations. */
    int (*script)(struct db *db, const char *sql, struct err *err);
    bool (*in_transaction)(struct db *db);
    /* Is every page what it should be? `deep` compares tables with their indexes too. */
    int (*check)(struct db *db, bool deep, struct err *err);
    /* From another thread: what runs on the connection ends with an error. */
    void (*interrupt)(struct db *db);
    /* A consistent copy into an existing empty file; outside of a transaction. */
    int (*copy)(struct db *db, const char *to_path, struct err *err);
    /* Work put off from commits (SQLite: frames in the log), and doing it. */
    int (*backlog)(struct db *db);
    int (*settle)(struct db *db, bool wholly, struct err *err);
    int (*make_room)(struct db *db, struct err *err);
    void (*close)(struct db *db);
};

/* Opens without judging the contents; the engine's connection is set up for `mode`. */
must_use int sqlite_open(struct db **out, const char *path, enum db_mode mode, struct err *err);

struct db *db_new(const struct db_engine *engine, const char *path);
void db_close(struct db *db);
static inline void db_close_(struct db **db)
{
    db_close(*db);
}
#define autodb auto_with(db_close_)

/* One statement from a literal, to its end. */
must_use int db_run(struct db *db, const char *literal_sql, struct err *err);

must_use int db_begin(struct db *db, struct err *err);      /* to write */
must_use int db_begin_read(struct db *db, struct err *err); /* one view of everything */
must_use int db_commit(struct db *db, struct err *err);
/* Rolls back whatever is open; never fails in a way the caller could mend. */
void db_rollback(struct db *db);
static inline bool db_in_transaction(struct db *db)
{
    return db->engine->in_transaction(db);
}
