/*
 * db - the only door to a database. Behind it stands SQLite now and PostgreSQL later, so statements
 * keep to what both understand: $1… parameters in ascending order, TEXT/BIGINT/BLOB, RETURNING,
 * ON CONFLICT; ids and times made by the application, JSON kept in TEXT and never queried inside.
 *
 * A struct db belongs to one thread (the writer or a reader); handlers get it with their call.
 * Statements are prepared once per connection and kept by their text, so the text must be a
 * literal. Parameters are always bound, never pasted.
 *
 *     autoquery struct query *q = db_query(db, "SELECT name FROM token WHERE id = $1");
 *     query_text(q, 1, id);
 *     if (query_step(q, err) …
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

struct db;
struct query;

struct query *db_query(struct db *db, const char *literal_sql);
void query_done(struct query **q); /* resets it for the next use */
#define autoquery auto_with(query_done)

void query_text(struct query *q, int at, const char *text); /* NULL binds NULL; copied */
void query_str(struct query *q, int at, struct str text);
void query_i64(struct query *q, int at, int64_t num);
void query_blob(struct query *q, int at, const void *data, size_t len);

/* 1: a row is there; 0: no more; -1: err (ERR_CONFLICT on a broken constraint, ERR_NO_SPACE…). */
must_use int query_step(struct query *q, struct err *err);
/* Runs to the end; the number of rows changed, or -1. */
must_use int query_run(struct query *q, struct err *err);

/* Columns of the current row, from 0; text and blobs are borrowed until the next step. */
int64_t query_col_i64(struct query *q, int col);
struct str query_col_str(struct query *q, int col); /* p == NULL for NULL */
/* Copied into the arena, NUL-terminated; NULL for NULL. */
char *query_col_dup(struct query *q, int col, struct arena *arena);
