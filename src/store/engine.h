/*
 * engine - the seam behind db.h: what one database engine must be able to do.
 *
 * db.c owns the query objects, their cache and the transactions' words; an engine prepares, binds,
 * steps and reads columns. sqlite.c is the one engine there is; postgres.c will be the other.
 * Private to store/.
 */
#pragma once

#include <stdbool.h>

#include "base/hash.h"
#include "base/map.h"
#include "store/db.h"

#define QUERY_VALUES_MAX 32

struct store_job;
struct db_engine;

enum db_mode {
    DB_CREATE,   /* an empty file that becomes a database; no log beside it */
    DB_WRITE,    /* the one writer */
    DB_READ,     /* one of many readers of a database that may be live */
    DB_READ_COPY /* a file that nobody has open: no locks, no files beside it */
};

/*
 * Events and audit rows of a transaction are written together, before it is committed
 * (events_write, audits_write), many in a statement. Their newest numbers are kept here, and are
 * ahead of the rows while it is open.
 */
struct event_head {
    int64_t seq;
    int64_t written, stored; /* newest of the rows; as the tenant's row has it */
};
struct audit_head {
    bool known, moved;
    int64_t seq, stored; /* newest; as its row has it */
    unsigned char hash[SHA256_SIZE];
};
struct audit_row; /* that is not written yet */

/* A value that was bound. */
struct db_value {
    enum { VALUE_NULL, VALUE_INT, VALUE_TEXT, VALUE_BLOB } kind;
    int64_t num;
    struct str bytes;
};

/* A statement that changed something, with its values. */
struct redo_step {
    struct redo_step *next;
    struct query *q;
    unsigned count;
    struct db_value values[];
};

/*
 * What was changed in the open transaction, to do it again without the last job (store.c). A
 * savepoint for each job would do as well, and copies every page that the job touches: half of
 * what a small job costs.
 */
struct redo {
    bool on;
    bool again; /* it was needed: this transaction had better end */
    struct arena arena;
    struct redo_step *first, **end;
};

struct db {
    const struct db_engine *engine;
    void *conn;    /* the engine's */
    char *path;    /* owned */
    int lock_fd;   /* of the file that says "in use", or -1 */
    unsigned busy; /* queries between db_query and query_done */
    bool damaged;  /* the engine met a page that makes no sense */
    bool unread;   /* opened without a look at every page: it is large */

    struct rows_sql {
        const char *head;
        unsigned rows;
        char *text; /* owned; NULL: this and those behind it are free */
    } rows_sql[16];
    struct query **slots; /* owned: hash table of chains by text pointer */
    size_t slot_count, query_count;

    struct map event_heads; /* tenant → struct event_head; owned */
    struct audit_head audit_head;
    struct audit_row *audits, **audits_end; /* in the arena of `redo` */
    struct redo redo;
    struct store_job *job; /* the write job that is running, or NULL */
    int64_t last_seq;      /* of the last event added */
};

struct query {
    struct db *db;
    const char *literal; /* as the caller gave it: the fast key */
    char *text;          /* owned copy */
    void *stmt;          /* the engine's; NULL when preparing failed */
    bool busy;
    bool writes;    /* it changes something */
    bool underway;  /* it gave a row, and may give more */
    unsigned count; /* of values, while they are kept for `redo` */
    struct db_value values[QUERY_VALUES_MAX];
    struct err err; /* of preparing or binding; told by the next step */
    struct query *next;
};

struct db_engine {
    const char *name;
    const char *blob_type;   /* {blob} in migrations */
    const char *clustered;   /* {clustered}: rows live in the primary key's tree */
    const char *number_type; /* {number}: a primary key that is a whole number, and costs no tree */
    const char *begin_write;
    const char *insert; /* words for rows of which all or none are committed, whatever fails */
    const char *mark; /* says in the database that it is ours; mark_query answers mark_value then */
    const char *mark_query, *mark_value;

    int (*prepare)(struct query *q, struct err *err);
    void (*finalize)(struct query *q);
    void (*reset)(struct query *q);
    /* `stays`: the bytes are there until the reset; otherwise they are copied. */
    int (*bind)(struct query *q, int at, const struct db_value *value, bool stays);
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
/* From now on no database that is opened waits for the disk: for one that is thrown away. */
void sqlite_throw_away(void);
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

/* What the jobs of a transaction told of, and where the numbers are now. */
must_use int events_write(struct db *db, const struct store_job *first, struct err *err);
must_use int audits_write(struct db *db, struct err *err);
/* The transaction is gone: what the rows say counts again. */
void heads_forget(struct db *db);
/* Numbers of events that were made last, and are not after all. */
struct event;
void event_heads_back(struct db *db, const struct event *first);

/* Inserts so many rows; `head`, a literal, is the table with its columns and VALUES. */
#define ROWS_AT_ONCE 32 /* a power of two */
struct query *db_query_rows(struct db *db, const char *head, unsigned columns, unsigned rows);
/* How many of these to write next: powers of two, so that there are few such statements. */
static inline unsigned rows_at_once(unsigned left)
{
    unsigned count = ROWS_AT_ONCE;

    while (count > left)
        count /= 2;
    return count;
}

/* Bytes that stay until the query is done, which is not noted for `redo`. */
void query_lent(struct query *q, int at, struct str text);

/* From now on what is changed can be done again, until the transaction ends. */
void db_redo_begin(struct db *db);
void db_redo_end(struct db *db);
/* Takes back what was changed since `mark`, which is redo.end of then: all of it again, but that.
 */
must_use int db_redo(struct db *db, struct redo_step **mark, struct err *err);
static inline bool db_in_transaction(struct db *db)
{
    return db->engine->in_transaction(db);
}

/* The transaction of a job may be given up under it; the rest must not be outside of one. */
static inline int db_check_job(struct db *db, struct err *err)
{
    return db->job && !db_in_transaction(db)
               ? err_set(err, ERR_INTERNAL, "the transaction was given up")
               : 0;
}
