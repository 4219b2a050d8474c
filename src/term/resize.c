/*
 * Another size. Lines of the main grid that the edge had wrapped are joined and wrapped anew, as
 * tmux and xterm.js do; the alternate grid is cut or extended, because its program draws it again.
 *
 * Rows that were only wrapped by the edge form one line. The visible ones are written into rows of
 * the new width; the first of them may begin in the scrollback, whose rows then come along. What
 * finds no place leaves at the top; where there is place, rows come back from the scrollback. Blank
 * rows below the cursor give way first (tmux pushes text out instead). Scrollback that stays keeps
 * its width, so the work is bounded by the screen and FLOW_LINES_MAX rows, not by what was ever
 * written.
 */
#include "term/own.h"

/* Rows of scrollback that one line may bring along; a longer one begins anew in its middle. */
#define FLOW_LINES_MAX 1000

struct flow {
    struct screen *screen;
    unsigned cols;               /* the new width */
    struct row **rows;           /* the newest `max` rows written… */
    unsigned max, count;         /* …and how many there are */
    unsigned written;            /* ever */
    struct row *row;             /* under way */
    unsigned from_row, from_col; /* the cursor in the old grid… */
    unsigned to_row, to_col;     /* …and where it comes to, in rows written */
};

static void flow_begin(struct flow *flow)
{
    flow->row = grid_row_new(flow->cols);
}

/* A blank within a line that comes to its edge must count as written. */
static void flow_end(struct flow *flow, bool wrapped)
{
    union cell *last = &flow->row->cells[flow->cols - 1];

    if (wrapped && !last->code && last->kind == CELL_NARROW)
        last->code = ' ';
    flow->row->wrapped = wrapped;
    if (flow->count == flow->max) {
        scrollback_push_cols(flow->screen, flow->rows[0], flow->cols);
        free(flow->rows[0]);
        memmove(flow->rows, flow->rows + 1, (flow->max - 1) * sizeof(struct row *));
        flow->count--;
    }
    flow->rows[flow->count++] = flow->row;
    flow->row = NULL;
    flow->written++;
}

static void flow_put(struct flow *flow, union cell cell, unsigned width)
{
    struct row *row = flow->row;

    if (width > flow->cols)
        return;
    if (width > flow->cols - row->used) {
        if (row->used < flow->cols)
            row->cells[row->used++] = (union cell){ .kind = CELL_PAD };
        flow_end(flow, true);
        flow_begin(flow);
        row = flow->row;
    }
    row->cells[row->used++] = cell;
    if (width == 2) {
        row->cells[row->used] = cell_looks(cell);
        row->cells[row->used++].kind = CELL_TAIL;
    }
}

/* ---- from where -------------------------------------------------------------------------------
 */

/* Blank cells at the end become the new row's fill: a coloured rest of a line does not wrap. */
static unsigned flow_len(const struct screen *screen, const struct row *row, union cell *fill)
{
    unsigned len = screen->cols;
    union cell last = cell_at(row, len - 1);

    *fill = (union cell){ 0 };
    if (row->wrapped)
        return len;
    if (last.kind == CELL_PAD)
        last.kind = CELL_NARROW;
    if (!last.code && last.kind == CELL_NARROW) {
        *fill = last;
        while (len > 0 && cell_same(cell_at(row, len - 1), last))
            len--;
    }
    return len;
}

/* Old columns [col, end) of a row begin at column `to` of the row under way. */
static void flow_cursor(struct flow *flow, unsigned row, unsigned col, unsigned end, unsigned to)
{
    if (flow->from_row != row || flow->from_col < col || flow->from_col >= end)
        return;
    flow->to_row = flow->written;
    flow->to_col = clamp(to + flow->from_col - col, flow->cols - 1);
}

static void flow_row(struct flow *flow, unsigned index)
{
    const struct screen *screen = flow->screen;
    const struct row *row = screen->main.rows[index];
    union cell fill;
    unsigned len = flow_len(screen, row, &fill);

    for (unsigned col = 0; col < len; col++) {
        union cell cell = cell_at(row, col);
        unsigned width = cell.kind == CELL_WIDE ? 2 : cell.kind == CELL_PAD ? 0 : 1;

        if (cell.kind == CELL_TAIL)
            continue;
        if (width)
            flow_put(flow, cell, width);
        unsigned used = flow->row->used;
        flow_cursor(flow, index, col, col + MAX(width, 1), used > width ? used - width : 0);
    }
    if (!row->wrapped) {
        flow_cursor(flow, index, len, screen->cols, flow->row->used);
        flow->row->fill = fill;
    }
}

static void flow_line(struct flow *flow, const struct line *line)
{
    struct glyphs glyphs = glyphs_of_line(line);
    struct glyph glyph;

    while (glyphs_next(&glyphs, &glyph)) {
        union cell cell = glyph.looks;
        uint32_t code = 0;
        size_t size = str_utf8_at(glyph.text, glyph.len, &code);

        if (glyph.pad)
            continue;
        cell.code = code & 0x1fffff;
        if (glyph.len > size)
            cell.marks =
                marks_new(flow->screen, (struct str){ glyph.text + size, glyph.len - size }) &
                0x7fff;
        if (glyph.width == 2)
            cell.kind = CELL_WIDE;
        flow_put(flow, cell, glyph.width);
    }
}

/* Takes rows out of the scrollback that end in one that goes on; the newest first. */
static unsigned take_wrapped(struct screen *screen, struct line **out, unsigned count)
{
    const struct line *newest;

    while (count < FLOW_LINES_MAX && (newest = scrollback_at(screen, 0)) && newest->wrapped)
        out[count++] = scrollback_pop(screen);
    return count;
}

static void flow_taken(struct flow *flow, struct line **lines, unsigned count)
{
    while (count-- > 0) {
        flow_line(flow, lines[count]);
        free(lines[count]);
    }
}

/* ---- the main grid ----------------------------------------------------------------------------
 */

static bool blank_row(const struct screen *screen, const struct row *row)
{
    return glyph_row_len(row, screen->cols) == 0;
}

/* The visible rows up to `last`. */
static void flow_visible(struct flow *flow, unsigned last, struct line **lines)
{
    struct screen *screen = flow->screen;

    flow_begin(flow);
    flow_taken(flow, lines, take_wrapped(screen, lines, 0));
    for (unsigned i = 0; i <= last; i++) {
        flow_row(flow, i);
        if (i == last || !screen->main.rows[i]->wrapped) {
            flow_end(flow, false);
            if (i < last)
                flow_begin(flow);
        }
    }
}

/* Brings back whole lines until `want` more rows are there, and puts them before the others. */
static void flow_back(struct flow *flow, unsigned want, struct line **lines)
{
    while (want > 0 && flow->screen->back.count) {
        struct row *held[SCREEN_ROWS_MAX];
        struct flow above = {
            .screen = flow->screen, .cols = flow->cols, .rows = held, .max = want
        };

        lines[0] = scrollback_pop(flow->screen);
        unsigned count = take_wrapped(flow->screen, lines, 1);
        flow_begin(&above);
        flow_taken(&above, lines, count);
        flow_end(&above, false);
        memmove(flow->rows + above.count, flow->rows, flow->count * sizeof(struct row *));
        memcpy(flow->rows, held, above.count * sizeof(struct row *));
        flow->count += above.count;
        flow->written += above.count;
        flow->to_row += above.count;
        want -= above.count;
    }
}

static void resize_main(struct screen *screen, unsigned rows, unsigned cols)
{
    /* While the alternate grid is shown, the cursor to come back to is the saved one. */
    struct cursor *at = screen->on == &screen->main ? &screen->at : &screen->main.saved;
    struct flow flow = {
        .screen = screen,
        .cols = cols,
        .rows = xcalloc(rows, sizeof(struct row *)),
        .max = rows,
        .from_row = at->row,
        .from_col = at->col,
    };
    autofree struct line **lines = xcalloc(FLOW_LINES_MAX, sizeof(struct line *));
    unsigned last = screen->rows - 1;

    while (last > at->row && blank_row(screen, screen->main.rows[last]))
        last--;
    unsigned below = screen->rows - 1 - last;
    screen->marks.frozen = true;
    flow_visible(&flow, last, lines);
    if (flow.count + below < rows)
        flow_back(&flow, rows - flow.count - below, lines);
    screen->marks.frozen = false;
    unsigned gone = flow.written - flow.count;
    at->row = flow.to_row > gone ? flow.to_row - gone : 0;
    at->col = flow.to_col;
    while (flow.count < rows)
        flow.rows[flow.count++] = grid_row_new(cols);
    grid_free(&screen->main, screen->rows);
    screen->main.rows = flow.rows;
}

/* ---- the alternate grid -----------------------------------------------------------------------
 */

static struct row *cropped(const struct screen *screen, const struct row *from, unsigned cols)
{
    struct row *row = grid_row_new(cols);
    unsigned n = clamp(from->used, cols);

    row->fill = from->fill;
    row->used = n;
    memcpy(row->cells, from->cells, n * sizeof(union cell));
    if (n > 0 && n < screen->cols && row->cells[n - 1].kind == CELL_WIDE)
        row->cells[n - 1] = (union cell){ .bg = row->cells[n - 1].bg };
    if (n > 0 && row->cells[n - 1].kind == CELL_PAD)
        row->cells[n - 1].kind = CELL_NARROW;
    row->wrapped = from->wrapped && cols == screen->cols && row->cells[n - 1].code;
    return row;
}

/* Keeps the cursor's row: rows above it go when those below are not enough. */
static void resize_alt(struct screen *screen, unsigned rows, unsigned cols)
{
    bool shown = screen->on == &screen->alt;
    unsigned skip = shown && screen->at.row >= rows ? screen->at.row - (rows - 1) : 0;
    struct row **made = xcalloc(rows, sizeof(struct row *));

    for (unsigned i = 0; i < rows; i++)
        made[i] = i + skip < screen->rows ? cropped(screen, screen->alt.rows[i + skip], cols)
                                          : grid_row_new(cols);
    made[rows - 1]->wrapped = false;
    grid_free(&screen->alt, screen->rows);
    screen->alt.rows = made;
    if (shown) {
        screen->at.row -= skip;
        screen->at.col = clamp(screen->at.col, cols - 1);
    }
}

static void settle(struct cursor *at, unsigned rows, unsigned cols)
{
    at->row = clamp(at->row, rows - 1);
    at->col = clamp(at->col, cols - 1);
    at->wrap_next = false;
}

void screen_resize(struct screen *screen, unsigned rows, unsigned cols)
{
    rows = clamp(MAX(rows, 1), SCREEN_ROWS_MAX);
    cols = clamp(MAX(cols, 1), SCREEN_COLS_MAX);
    if (rows == screen->rows && cols == screen->cols)
        return;
    resize_main(screen, rows, cols);
    if (screen->alt.rows)
        resize_alt(screen, rows, cols);
    screen->rows = rows;
    screen->cols = cols;
    screen->top = 0;
    screen->bottom = rows - 1;
    screen->last = 0;
    settle(&screen->at, rows, cols);
    settle(&screen->main.saved, rows, cols);
    settle(&screen->alt.saved, rows, cols);
    screen->generation++;
}
