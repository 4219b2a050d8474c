/*
 * Rows that scrolled off the top, newest last, in a ring of packed lines.
 *
 * A packed line is its text in UTF-8, with tags (own.h, GLYPH_…) where the looks change, where a
 * cell is blank, and for wide characters and marks: plain text costs one byte for a column instead
 * of 16, and a line stands for itself, with no table beside it that would need tending. Rows stay
 * as wide as they were; only what a resize brings back onto the screen is wrapped anew.
 */
#include "term/own.h"

/* What malloc needs for itself, so that the bound is one of memory. */
#define LINE_COST (sizeof(struct line) + 16)

const struct line *scrollback_at(const struct screen *screen, unsigned back)
{
    const struct scrollback *sb = &screen->back;

    return back < sb->count ? sb->ring[(sb->first + sb->count - 1 - back) % sb->size] : NULL;
}

static void drop_oldest(struct scrollback *back)
{
    struct line *line = back->ring[back->first];

    back->bytes -= line->len + LINE_COST;
    back->first = (back->first + 1) % back->size;
    back->count--;
    free(line);
}

void scrollback_clear(struct screen *screen)
{
    while (screen->back.count)
        drop_oldest(&screen->back);
}

void scrollback_free(struct scrollback *back)
{
    while (back->count)
        drop_oldest(back);
    free(take_ptr(&back->ring));
    free(take_ptr(&back->scratch));
    back->size = back->scratch_cols = 0;
}

void scrollback_cut(struct screen *screen)
{
    struct scrollback *back = &screen->back;

    if (back->count)
        back->ring[(back->first + back->count - 1) % back->size]->wrapped = false;
}

struct line *scrollback_pop(struct screen *screen)
{
    struct scrollback *back = &screen->back;

    if (!back->count)
        return NULL;
    struct line *line = back->ring[(back->first + back->count - 1) % back->size];
    back->count--;
    back->bytes -= line->len + LINE_COST;
    return line;
}

/* ---- packing ----------------------------------------------------------------------------------
 */

static uint8_t *pack_cell(const struct screen *screen, union cell cell, uint8_t *out)
{
    if (cell.kind == CELL_PAD || !cell.code) {
        *out++ = cell.kind == CELL_PAD ? GLYPH_PAD : GLYPH_BLANK;
        return out;
    }
    if (cell.kind == CELL_WIDE)
        *out++ = GLYPH_WIDE;
    out += utf8_put((uint32_t)cell.code, (char *)out);
    struct str marks = marks_text(screen, cell);
    if (marks.n) {
        *out++ = GLYPH_MARKS;
        *out++ = (uint8_t)marks.n;
        memcpy(out, marks.p, marks.n);
        out += marks.n;
    }
    return out;
}

static uint8_t *pack_looks(union cell looks, uint8_t *out)
{
    *out++ = GLYPH_LOOKS;
    memcpy(out, &looks, GLYPH_LOOKS_BYTES);
    return out + GLYPH_LOOKS_BYTES;
}

/*
 * Into memory of PACKED_CELL_MAX for each of `cols`; returns the end. ASCII in the looks of the
 * cell before differs from these looks in its code alone, which one comparison sees.
 */
static uint8_t *pack(const struct screen *screen, const struct row *row, unsigned cols,
                     uint8_t *out)
{
    union cell looks = { 0 };
    unsigned i = 0, written = clamp(cols, row->used);

    while (i < cols) {
        for (; i < written && row->cells[i].word[1] == looks.word[1]; i++) {
            uint64_t code = row->cells[i].word[0] ^ looks.word[0];

            if (code - 1 >= 0x7f)
                break;
            *out++ = (uint8_t)code;
        }
        if (i == cols)
            break;
        union cell cell = cell_at(row, i++);
        if (cell.kind == CELL_TAIL)
            continue;
        if (!cell_same(cell_looks(cell), looks)) {
            looks = cell_looks(cell);
            out = pack_looks(looks, out);
        }
        out = pack_cell(screen, cell, out);
    }
    return out;
}

/* ---- the ring ---------------------------------------------------------------------------------
 */

static void grow(struct scrollback *back)
{
    uint32_t size = back->size ? MIN(back->size * 2, back->max) : MIN(64, back->max);
    struct line **ring = xcalloc(size, sizeof(struct line *));

    for (uint32_t i = 0; i < back->count; i++)
        ring[i] = back->ring[(back->first + i) % back->size];
    free(back->ring);
    back->ring = ring;
    back->size = size;
    back->first = 0;
}

static void append(struct scrollback *back, struct line *line)
{
    size_t cost = line->len + LINE_COST;

    while (back->count &&
           (back->count == back->max || back->bytes + cost > SCREEN_SCROLLBACK_BYTES))
        drop_oldest(back);
    if (back->count == back->size)
        grow(back);
    back->ring[(back->first + back->count++) % back->size] = line;
    back->bytes += cost;
}

void scrollback_push(struct screen *screen, const struct row *row)
{
    scrollback_push_cols(screen, row, screen->cols);
}

void scrollback_push_cols(struct screen *screen, const struct row *row, unsigned row_cols)
{
    static_assert(SCREEN_COLS_MAX * PACKED_CELL_MAX < SCREEN_SCROLLBACK_BYTES, "one row fits");
    struct scrollback *back = &screen->back;
    unsigned cols = glyph_row_len(row, row_cols);

    if (!back->max)
        return;
    if (back->scratch_cols < cols) {
        back->scratch = xrealloc(back->scratch, row_cols * PACKED_CELL_MAX);
        back->scratch_cols = row_cols;
    }
    size_t len = (size_t)(pack(screen, row, cols, back->scratch) - back->scratch);
    struct line *line = xmalloc(sizeof(*line) + len);
    *line = (struct line){ .len = (uint32_t)len, .cols = cols, .wrapped = row->wrapped };
    if (len)
        memcpy(line->data, back->scratch, len);
    append(back, line);
}
