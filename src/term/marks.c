/*
 * Combining marks: a table beside the grids, because one cell in a thousand has any. A cell names
 * its entry by index and no two cells share one. An entry is not freed when its cell is
 * overwritten; when the table is full, the cells of both grids say which ones are still in use.
 *
 * A sweep looks at every cell, so a hostile program must not cause one with every mark: the table
 * first grows to its maximum, and between two sweeps as many marks are asked for as an eighth of
 * the cells. A mark that finds no room is not shown.
 */
#include "term/own.h"

struct str marks_text(const struct screen *screen, union cell cell)
{
    if (!cell.marks)
        return STR_NONE;
    const struct marks *marks = &screen->marks.at[cell.marks];
    return (struct str){ marks->text, marks->len };
}

static void note_live(struct screen *screen, const struct grid *grid)
{
    for (unsigned i = 0; grid->rows && i < screen->rows; i++) {
        const struct row *row = grid->rows[i];

        for (unsigned col = 0; col < row->used; col++)
            screen->marks.at[row->cells[col].marks].live = true;
    }
}

/* Entries in use keep their index; the others have no length and are found by take_slot. */
static void sweep(struct screen *screen)
{
    struct marks_table *table = &screen->marks;

    for (uint32_t i = 0; i < table->size; i++)
        table->at[i].live = false;
    note_live(screen, &screen->main);
    note_live(screen, &screen->alt);
    table->count = 1;
    for (uint32_t i = 1; i < table->size; i++) {
        if (table->at[i].live)
            table->count++;
        else
            table->at[i].len = 0;
    }
    table->next = 1;
    table->asked = 0;
}

static void grow(struct marks_table *table)
{
    uint32_t size = table->size ? MIN(table->size * 2, SCREEN_MARKS_MAX) : 64;

    table->at = xrealloc(table->at, size * sizeof(struct marks));
    memset(table->at + table->size, 0, (size - table->size) * sizeof(struct marks));
    table->size = size;
    if (table->count == 0)
        table->count = table->next = 1;
}

/* A free index, or 0. */
static uint32_t take_slot(struct screen *screen)
{
    struct marks_table *table = &screen->marks;

    table->asked++;
    if (table->count == table->size) {
        if (table->size < SCREEN_MARKS_MAX)
            grow(table);
        else if (!table->frozen && table->asked > screen->rows * screen->cols / 8)
            sweep(screen);
    }
    if (table->count == table->size)
        return 0;
    while (table->at[table->next].len)
        table->next++;
    table->count++;
    return table->next++;
}

uint32_t marks_new(struct screen *screen, struct str text)
{
    uint32_t slot = text.n && text.n <= MARKS_BYTES ? take_slot(screen) : 0;

    if (slot) {
        struct marks *marks = &screen->marks.at[slot];

        marks->len = (uint8_t)text.n;
        memcpy(marks->text, text.p, text.n);
    }
    return slot;
}

void marks_add(struct screen *screen, union cell *cell, uint32_t code)
{
    char text[4];
    size_t len = utf8_put(code, text);

    if (!cell->marks) {
        cell->marks = marks_new(screen, (struct str){ text, len }) & 0x7fff;
        return;
    }
    struct marks *marks = &screen->marks.at[cell->marks];
    if (marks->len + len > MARKS_BYTES)
        return;
    memcpy(marks->text + marks->len, text, len);
    marks->len = (uint8_t)(marks->len + len);
}
