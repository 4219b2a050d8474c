/*
 * Queries over an engine. A statement is prepared at its first use on a connection and kept; the
 * table of them is keyed by the address of the literal, which is a pointer comparison in the
 * usual case, and then by the text, so that a buffer reused for other words can never run the
 * wrong statement. A query that is wanted again while it is in use (a handler that calls another)
 * is prepared once more and kept as well.
 *
 * Preparing and binding have no error to return; what went wrong is kept in the query and told by
 * the next step, so that a caller checks in one place.
 *
 * While `redo` is on, each statement that changed something is noted with its values, which lie in
 * one arena until the transaction ends. To take a job back the transaction is rolled back and the
 * others' statements run again: they meet what they met before, and so do the same.
 */
#include <assert.h>

#include "base/buf.h"

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
    db_redo_end(db);
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
    db_redo_end(db);
    heads_forget(db);
    for (size_t i = 0; i < ARRAY_LEN(db->rows_sql); i++)
        free(db->rows_sql[i].text);
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

struct query *db_query_rows(struct db *db, const char *head, unsigned columns, unsigned rows)
{
    struct rows_sql *one = db->rows_sql;
    struct buf sql = { 0 };

    while (one->text && (one->head != head || one->rows != rows))
        one++;
    assert(one < db->rows_sql + ARRAY_LEN(db->rows_sql));
    if (!one->text) {
        buf_printf(&sql, "%s %s", db->engine->insert, head);
        for (unsigned i = 0; i < rows * columns; i++)
            buf_printf(&sql, "%s$%u%s",
                       i % columns ? ", "
                       : i         ? ", ("
                                   : " (",
                       i + 1, (i + 1) % columns ? "" : ")");
        *one = (struct rows_sql){ head, rows, xstrdup(buf_cstr(&sql)) };
        buf_free(&sql);
    }
    return db_query(db, one->text); /* check-style: allow sql: made of a literal and numbers */
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
    q->busy = q->underway = false;
    q->count = 0;
}

static void bind(struct query *q, int at, struct db_value value)
{
    struct redo *redo = &q->db->redo;

    if (!q->stmt)
        return;
    if (redo->on && value.bytes.p)
        value.bytes = arena_str(&redo->arena, value.bytes);
    if ((redo->on && at > QUERY_VALUES_MAX) || q->db->engine->bind(q, at, &value, redo->on) < 0) {
        if (q->err.code == ERR_NONE)
            (void)err_set(&q->err, ERR_INTERNAL, "parameter $%d does not fit: %s", at, q->text);
        return;
    }
    while (redo->on && q->count < (unsigned)at)
        q->values[q->count++] = (struct db_value){ 0 };
    if (redo->on)
        q->values[at - 1] = value;
}

void query_str(struct query *q, int at, struct str text)
{
    bind(q, at, (struct db_value){ text.p ? VALUE_TEXT : VALUE_NULL, 0, text });
}

void query_text(struct query *q, int at, const char *text)
{
    query_str(q, at, str_of(text));
}

void query_i64(struct query *q, int at, int64_t num)
{
    bind(q, at, (struct db_value){ VALUE_INT, num, STR_NONE });
}

void query_blob(struct query *q, int at, const void *data, size_t len)
{
    bind(q, at, (struct db_value){ data ? VALUE_BLOB : VALUE_NULL, 0, { data, len } });
}

void query_lent(struct query *q, int at, struct str text)
{
    const struct db_value value = { VALUE_TEXT, 0, text };

    if (q->stmt && q->db->engine->bind(q, at, &value, true) < 0 && q->err.code == ERR_NONE)
        (void)err_set(&q->err, ERR_INTERNAL, "parameter $%d does not fit: %s", at, q->text);
}

/* A statement has done all that it changes when its first row comes. */
static void note(struct query *q)
{
    struct redo *redo = &q->db->redo;
    size_t size = q->count * sizeof(q->values[0]);
    struct redo_step *step = arena_raw(&redo->arena, sizeof(*step) + size);

    *step = (struct redo_step){ .q = q, .count = q->count };
    memcpy(step->values, q->values, size);
    *redo->end = step;
    redo->end = &step->next;
}

int query_step(struct query *q, struct err *err)
{
    if (q->err.code != ERR_NONE) {
        if (err)
            *err = q->err;
        return -1;
    }
    if (db_check_job(q->db, err) < 0)
        return -1;
    int rc = q->db->engine->step(q, err);
    if (rc >= 0 && q->writes && q->db->redo.on && !q->underway)
        note(q);
    q->underway = rc > 0;
    return rc;
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

/* ---- again ---- */

void db_redo_begin(struct db *db)
{
    db_redo_end(db);
    db->redo.on = true;
}

void db_redo_end(struct db *db)
{
    arena_free(&db->redo.arena);
    db->redo = (struct redo){ 0 };
    db->redo.end = &db->redo.first;
    db->audits = NULL;
    db->audits_end = &db->audits;
}

static int run_again(const struct redo_step *step, struct err *err)
{
    struct query *q = step->q;
    const struct db_engine *engine = q->db->engine;
    int rc = 0;

    for (unsigned i = 0; rc >= 0 && i < step->count; i++)
        rc = engine->bind(q, (int)i + 1, &step->values[i], true);
    if (rc < 0)
        (void)err_set(err, ERR_INTERNAL, "a value does not fit a second time: %s", q->text);
    for (rc = rc < 0 ? rc : 1; rc > 0;)
        rc = engine->step(q, err);
    engine->reset(q);
    return rc;
}

int db_redo(struct db *db, struct redo_step **mark, struct err *err)
{
    assert(db->redo.on && db->busy == 0);
    *mark = NULL;
    db->redo.end = mark;
    db->redo.again = true;
    db->redo.on = false; /* BEGIN is no part of it */
    db_rollback(db);
    int rc = db_begin(db, err);
    for (const struct redo_step *step = db->redo.first; rc >= 0 && step; step = step->next)
        rc = run_again(step, err);
    db->redo.on = true;
    return rc < 0 ? err_wrap(err, "take a job back") : 0;
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
