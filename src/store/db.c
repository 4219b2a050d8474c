/*
 * Queries over an engine. A statement is prepared at its first use on a connection and kept; the
 * table of them is keyed by the address of the literal, which is a pointer comparison in the
 * usual case, and then by the text, so that a buffer reused for other words can never run the
 * wrong statement. A query that is wanted again while it is in use (a handler that calls another)
 * is prepared once more and kept as well.
 *
 * Preparing and binding have no error to return; what went wrong is kept in the query and told by
 * the next step, so that a caller checks in one place.
 */
#include <assert.h>

#include "store/engine.h"

#define SLOTS_FIRST 64u

static size_t slot_of(const char *literal, size_t slot_count)
{
    return (size_t)(((uintptr_t)literal * 0x9e3779b97f4a7c15u) >> 32) & (slot_count - 1);
}

struct db *db_new(const struct db_engine *engine, const char *path)
{
    struct db *db = xnew(struct db);

    db->engine = engine;
    db->path = xstrdup(path);
    db->lock_fd = -1;
    db->slot_count = SLOTS_FIRST;
    db->slots = xcalloc(db->slot_count, sizeof(struct query *));
    return db;
}

static void query_free(struct query *q)
{
    if (q->stmt)
        q->db->engine->finalize(q);
    free(q->text);
    free(q);
}

void db_close(struct db *db)
{
    if (!db)
        return;
    for (size_t i = 0; i < db->slot_count; i++) {
        while (db->slots[i]) {
            struct query *q = db->slots[i];

            db->slots[i] = q->next;
            query_free(q);
        }
    }
    db->engine->close(db);
    if (db->lock_fd >= 0)
        close(db->lock_fd);
    free(db->slots);
    free(db->path);
    free(db);
}

static void grow(struct db *db)
{
    size_t slot_count = db->slot_count * 2;
    struct query **slots = xcalloc(slot_count, sizeof(struct query *));

    for (size_t i = 0; i < db->slot_count; i++) {
        while (db->slots[i]) {
            struct query *q = db->slots[i];
            size_t slot = slot_of(q->literal, slot_count);

            db->slots[i] = q->next;
            q->next = slots[slot];
            slots[slot] = q;
        }
    }
    free(db->slots);
    db->slots = slots;
    db->slot_count = slot_count;
}

static void keep(struct query *q)
{
    struct db *db = q->db;

    if (db->query_count >= db->slot_count)
        grow(db);
    size_t slot = slot_of(q->literal, db->slot_count);
    q->next = db->slots[slot];
    db->slots[slot] = q;
    db->query_count++;
}

struct query *db_query(struct db *db, const char *literal_sql)
{
    struct query *q = db->slots[slot_of(literal_sql, db->slot_count)];

    while (q && (q->busy || q->literal != literal_sql || strcmp(q->text, literal_sql) != 0))
        q = q->next;
    if (!q) {
        q = xnew(struct query);
        q->db = db;
        q->literal = literal_sql;
        q->text = xstrdup(literal_sql);
        if (db->engine->prepare(q, &q->err) == 0)
            keep(q);
    }
    q->busy = true;
    db->busy++;
    return q;
}

void query_done(struct query **slot)
{
    struct query *q = *slot;

    if (!q)
        return;
    *slot = NULL;
    q->db->busy--;
    if (!q->stmt) {
        query_free(q); /* it may be good the next time: the disk has room again, … */
        return;
    }
    q->db->engine->reset(q);
    q->err.code = ERR_NONE;
    q->busy = false;
}

static void bound(struct query *q, int at, int rc)
{
    if (rc < 0 && q->err.code == ERR_NONE)
        (void)err_set(&q->err, ERR_INTERNAL, "parameter $%d does not fit: %s", at, q->text);
}

void query_str(struct query *q, int at, struct str text)
{
    if (q->stmt)
        bound(q, at, q->db->engine->bind_text(q, at, text));
}

void query_text(struct query *q, int at, const char *text)
{
    query_str(q, at, str_of(text));
}

void query_i64(struct query *q, int at, int64_t num)
{
    if (q->stmt)
        bound(q, at, q->db->engine->bind_i64(q, at, num));
}

void query_blob(struct query *q, int at, const void *data, size_t len)
{
    if (q->stmt)
        bound(q, at, q->db->engine->bind_blob(q, at, data, len));
}

int query_step(struct query *q, struct err *err)
{
    if (q->err.code != ERR_NONE) {
        if (err)
            *err = q->err;
        return -1;
    }
    /* The transaction of a job may be given up under it; the rest must not run outside of one. */
    if (q->db->job && !db_in_transaction(q->db))
        return err_set(err, ERR_INTERNAL, "the transaction was given up");
    return q->db->engine->step(q, err);
}

int query_run(struct query *q, struct err *err)
{
    int rc;

    while ((rc = query_step(q, err)) > 0)
        ;
    return rc < 0 ? -1 : q->db->engine->changes(q);
}

int64_t query_col_i64(struct query *q, int col)
{
    return q->db->engine->col_i64(q, col);
}

struct str query_col_str(struct query *q, int col)
{
    return q->db->engine->col_str(q, col);
}

char *query_col_dup(struct query *q, int col, struct arena *arena)
{
    struct str text = query_col_str(q, col);

    return text.p ? arena_memdup0(arena, text.p, text.n) : NULL;
}

/* ---- transactions ---- */

int db_run(struct db *db, const char *literal_sql, struct err *err)
{
    autoquery struct query *q = db_query(db, literal_sql);

    return query_run(q, err) < 0 ? -1 : 0; /* BEGIN and the like change no rows */
}

int db_begin(struct db *db, struct err *err)
{
    return db_run(db, db->engine->begin_write, err);
}

int db_begin_read(struct db *db, struct err *err)
{
    return db_run(db, "BEGIN", err);
}

int db_commit(struct db *db, struct err *err)
{
    return db_run(db, "COMMIT", err);
}

void db_rollback(struct db *db)
{
    struct err err;

    if (db_in_transaction(db) && db_run(db, "ROLLBACK", &err) < 0)
        assert(!db_in_transaction(db)); /* an engine that cannot even give up is not to be used */
}
