/*
 * text - how text stands on a terminal: its width, and tables. Text from elsewhere goes through
 * base/show.h before it is printed; the cells of tables do so by themselves. Any thread.
 */
#pragma once

#include "base/buf.h"
#include "base/str.h"

/* Columns that visible UTF-8 takes on a terminal. */
size_t text_width(struct str text);
/* The longest prefix that takes at most `width` columns. */
struct str text_fit(struct str text, size_t width);

/* "1h 3m", "45s", "2d 4h": the two largest units; below a second "120ms". */
void text_duration(struct buf *out, int64_t ms);

/* "512", "64M", "1.5G": as flags take sizes, rounded to a tenth where it is no whole number. */
void text_bytes(struct buf *out, int64_t bytes);

#define TABLE_COLUMNS_MAX 12

/* Rows of cells. Zero is a valid empty table. */
struct table {
    unsigned columns;
    unsigned right;   /* bit per column: numbers stand right */
    unsigned whole;   /* bit per column: never cut, because it is there to be copied */
    struct buf cells; /* visible text, each ended by NUL, row by row */
    size_t count;
};

void table_free(struct table *table);
#define autotable auto_with(table_free)

/*
 * "SEQ,>SIZE,!ID": the titles and thereby the columns. '>' aligns a column to the right, '!' keeps
 * it from being cut.
 */
void table_titles(struct table *table, const char *titles);
/* The next cell; untrusted text is fine. */
void table_cell(struct table *table, struct str text);
/*
 * Appends the table, columns two spaces apart. With `width` not 0 the widest columns are cut (with
 * "…") until a line fits. `bold` highlights the titles.
 */
void table_put(const struct table *table, struct buf *out, size_t width, bool bold);
