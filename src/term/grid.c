/*
 * Rows and cells: clearing, shifting, scrolling. Every function here keeps the invariants of own.h:
 * no half of a wide character, no wrapped row with a last column that was never written.
 */
#include "term/own.h"

struct row *grid_row_new(unsigned cols)
{
    struct row *row = xmalloc(sizeof(*row) + cols * sizeof(union cell));

    *row = (struct row){ 0 };
    return row;
}

void grid_make(struct grid *grid, unsigned rows, unsigned cols)
{
    grid->rows = xcalloc(rows, sizeof(struct row *));
    for (unsigned i = 0; i < rows; i++)
        grid->rows[i] = grid_row_new(cols);
}

void grid_free(struct grid *grid, unsigned rows)
{
    for (unsigned i = 0; grid->rows && i < rows; i++)
        free(grid->rows[i]);
    free(take_ptr(&grid->rows));
}

/* ---- within a row -----------------------------------------------------------------------------
 */

void grid_write_fill(struct row *row, unsigned to)
{
    for (; row->used < to; row->used++)
        row->cells[row->used] = row->fill;
}

/* A wide character of which one half is about to be overwritten: the other becomes a blank too,
 * with the background of what cuts it, as in xterm.js. */
static void split(struct screen *screen, struct row *row, unsigned col)
{
    if (col == 0 || col >= row->used || row->cells[col].kind != CELL_TAIL)
        return;
    row->cells[col - 1] = row->cells[col] = cell_blank(screen);
    if (col == screen->cols - 1)
        row->wrapped = false;
}

void grid_open(struct screen *screen, struct row *row, unsigned from, unsigned to)
{
    if (from > row->used) {
        grid_write_fill(row, from);
    } else {
        split(screen, row, from);
        split(screen, row, to);
    }
    if (to > row->used)
        row->used = to;
    if (to == screen->cols)
        row->wrapped = false; /* until something wraps from here */
}

void grid_clear_row(struct row *row, union cell blank)
{
    row->fill = blank;
    row->used = 0;
    row->wrapped = false;
}

void grid_erase(struct screen *screen, unsigned row_index, unsigned from, unsigned to)
{
    struct row *row = row_at(screen, row_index);
    union cell blank = cell_blank(screen);

    to = clamp(to, screen->cols);
    if (from >= to)
        return;
    split(screen, row, from);
    split(screen, row, to);
    if (to == screen->cols) {
        grid_write_fill(row, from);
        row->used = from;
        row->fill = blank;
        row->wrapped = false;
        return;
    }
    grid_write_fill(row, to);
    for (unsigned i = from; i < to; i++)
        row->cells[i] = blank;
}

void grid_erase_rows(struct screen *screen, unsigned from, unsigned to)
{
    if (from >= to)
        return;
    grid_cut(screen, from);
    for (unsigned i = from; i < to; i++)
        grid_clear_row(row_at(screen, i), cell_blank(screen));
}

/* Both shift what lies right of the cursor; a wide character that the edge cuts goes whole. */
void grid_insert_cells(struct screen *screen, unsigned n)
{
    struct row *row = row_at(screen, screen->at.row);
    unsigned col = screen->at.col, cols = screen->cols;

    n = clamp(n, cols - col);
    grid_write_fill(row, cols);
    split(screen, row, col);
    split(screen, row, cols - n);
    memmove(row->cells + col + n, row->cells + col, (cols - col - n) * sizeof(union cell));
    for (unsigned i = 0; i < n; i++)
        row->cells[col + i] = cell_blank(screen);
    row->wrapped = false;
}

void grid_delete_cells(struct screen *screen, unsigned n)
{
    struct row *row = row_at(screen, screen->at.row);
    unsigned col = screen->at.col, cols = screen->cols;

    n = clamp(n, cols - col);
    grid_write_fill(row, cols);
    if (row->cells[cols - 1].kind == CELL_PAD)
        row->cells[cols - 1].kind = CELL_NARROW;
    split(screen, row, col);
    split(screen, row, col + n);
    memmove(row->cells + col, row->cells + col + n, (cols - col - n) * sizeof(union cell));
    row->used = cols - n;
    row->fill = cell_blank(screen);
    row->wrapped = false;
}

/* ---- rows -------------------------------------------------------------------------------------
 */

void grid_cut(struct screen *screen, unsigned row)
{
    if (row > 0)
        row_at(screen, row - 1)->wrapped = false;
    else if (screen->on == &screen->main)
        scrollback_cut(screen);
}

static void reverse(struct row **rows, unsigned count)
{
    for (unsigned i = 0, j = count; i + 1 < j; i++) {
        struct row *row = rows[--j];

        rows[j] = rows[i];
        rows[i] = row;
    }
}

/* Moves the first `n` of `count` row pointers behind the others; one, most of the time. */
static void rotate(struct row **rows, unsigned count, unsigned n)
{
    struct row *first = rows[0];

    if (n == 1) {
        memmove(rows, rows + 1, (count - 1) * sizeof(struct row *));
        rows[count - 1] = first;
        return;
    }
    reverse(rows, n);
    reverse(rows + n, count - n);
    reverse(rows, count);
}

void grid_scroll_up(struct screen *screen, unsigned top, unsigned n, unsigned flags)
{
    struct row **rows = screen->on->rows + top;
    unsigned count = screen->bottom - top + 1;

    n = clamp(n, count);
    if (!(flags & SCROLL_WRAP))
        rows[count - 1]->wrapped = false;
    if (!(flags & SCROLL_KEEP) || top != 0)
        grid_cut(screen, top);
    else if (screen->on == &screen->main)
        for (unsigned i = 0; i < n; i++)
            scrollback_push(screen, rows[i]);
    rotate(rows, count, n);
    for (unsigned i = count - n; i < count; i++)
        grid_clear_row(rows[i], cell_blank(screen));
}

void grid_scroll_down(struct screen *screen, unsigned top, unsigned n)
{
    struct row **rows = screen->on->rows + top;
    unsigned count = screen->bottom - top + 1;

    n = clamp(n, count);
    grid_cut(screen, top);
    rotate(rows, count, count - n);
    for (unsigned i = 0; i < n; i++)
        grid_clear_row(rows[i], cell_blank(screen));
    rows[count - 1]->wrapped = false; /* what it went on in is gone */
}

void grid_linefeed(struct screen *screen, bool wrapped)
{
    struct cursor *at = &screen->at;

    at->wrap_next = false;
    if (at->row == screen->bottom) {
        row_at(screen, at->row)->wrapped = wrapped;
        grid_scroll_up(screen, screen->top, 1, SCROLL_KEEP | (wrapped ? SCROLL_WRAP : 0));
    } else if (at->row < screen->rows - 1) {
        if (wrapped)
            row_at(screen, at->row)->wrapped = true;
        at->row++;
    }
}

void grid_reverse_linefeed(struct screen *screen)
{
    struct cursor *at = &screen->at;

    at->wrap_next = false;
    if (at->row == screen->top)
        grid_scroll_down(screen, screen->top, 1);
    else if (at->row > 0)
        at->row--;
}
