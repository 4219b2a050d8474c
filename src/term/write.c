/*
 * Characters into cells. Runs of printable ASCII are by far the most of what programs write, so
 * they have a way of their own: the edges of the run are looked at once, the cells between are
 * stores.
 *
 * After the last column is written the cursor stays on it, with wrap_next; only the next character
 * wraps. That keeps a line of exactly `cols` characters from costing two rows.
 */
#include "term/own.h"

/* A wide character that does not fit leaves a blank behind, which a resize must not take for text.
 */
static void pad_row(struct screen *screen)
{
    struct row *row = row_at(screen, screen->at.row);
    unsigned last = screen->cols - 1;

    grid_open(screen, row, last, last + 1);
    row->cells[last] = cell_blank(screen);
    row->cells[last].kind = CELL_PAD;
}

static void wrap(struct screen *screen)
{
    grid_linefeed(screen, true);
    screen->at.col = 0;
}

static void advance(struct screen *screen, unsigned n)
{
    struct cursor *at = &screen->at;

    at->col += n;
    if (at->col >= screen->cols) {
        at->col = screen->cols - 1;
        at->wrap_next = screen->modes.autowrap;
    }
}

static void put(struct screen *screen, uint32_t code, unsigned width)
{
    struct cursor *at = &screen->at;
    struct row *row;

    if (at->wrap_next)
        wrap(screen);
    if (width > screen->cols - at->col) {
        if (!screen->modes.autowrap || width > screen->cols) {
            screen->last = 0; /* there is no place where it would fit */
            return;
        }
        pad_row(screen);
        wrap(screen);
    }
    if (screen->modes.insert)
        grid_insert_cells(screen, width);
    row = row_at(screen, at->row);
    grid_open(screen, row, at->col, at->col + width);
    row->cells[at->col] = at->pen;
    row->cells[at->col].code = code & 0x1fffff;
    if (width == 2) {
        row->cells[at->col].kind = CELL_WIDE;
        row->cells[at->col + 1] = at->pen;
        row->cells[at->col + 1].kind = CELL_TAIL;
    }
    advance(screen, width);
}

/* Onto the character before the cursor; without one a mark means nothing. */
static void put_mark(struct screen *screen, uint32_t code)
{
    const struct cursor *at = &screen->at;
    struct row *row = row_at(screen, at->row);
    unsigned col = at->col;

    if (!at->wrap_next) {
        if (col == 0)
            return;
        col--;
    }
    if (cell_at(row, col).kind == CELL_TAIL)
        col--;
    if (!cell_at(row, col).code)
        return;
    grid_write_fill(row, col + 1);
    marks_add(screen, &row->cells[col], code);
}

void write_code(struct screen *screen, uint32_t code)
{
    unsigned width = width_of(code);

    if (width == 0) {
        put_mark(screen, code);
        return;
    }
    screen->last = code;
    put(screen, code, width);
}

/* Bounded by a row: REP is for runs within one, and 8 bytes must not write a whole screen. */
void write_repeat(struct screen *screen, unsigned times)
{
    times = clamp(times, screen->cols);
    while (screen->last && times--)
        put(screen, screen->last, width_of(screen->last));
}

void write_ascii(struct screen *screen, const char *text, size_t len)
{
    struct cursor *at = &screen->at;

    screen->last = (unsigned char)text[len - 1];
    if (screen->modes.insert) {
        for (size_t i = 0; i < len; i++)
            put(screen, (unsigned char)text[i], 1);
        return;
    }
    while (len) {
        if (at->wrap_next)
            wrap(screen);
        unsigned n = (unsigned)MIN(len, screen->cols - at->col);
        struct row *row = row_at(screen, at->row);
        uint64_t looks = at->pen.word[0], colors = at->pen.word[1];

        grid_open(screen, row, at->col, at->col + n);
        for (unsigned i = 0; i < n; i++) {
            union cell *cell = &row->cells[at->col + i];

            cell->word[0] = looks | (unsigned char)text[i];
            cell->word[1] = colors;
        }
        advance(screen, n);
        text += n;
        len -= n;
        if (len && !screen->modes.autowrap) { /* all of the rest goes over the last column */
            text += len - 1;
            len = 1;
        }
    }
}
