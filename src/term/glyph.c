/*
 * Reads rows, on the grid or packed in the scrollback, as the same sequence of characters with
 * their looks; everything that tells others about a screen is written over this.
 */
#include "term/own.h"

static bool is_blank(union cell cell)
{
    cell.kind = cell.kind == CELL_PAD ? 0 : cell.kind;
    return cell.word[0] == 0 && cell.word[1] == 0;
}

unsigned glyph_row_len(const struct row *row, unsigned cols)
{
    unsigned len = is_blank(row->fill) ? row->used : cols;

    if (row->wrapped)
        return cols;
    while (len > 0 && is_blank(cell_at(row, len - 1)))
        len--;
    return len;
}

struct glyphs glyphs_of_row(const struct screen *screen, const struct row *row)
{
    return (struct glyphs){ .screen = screen, .row = row, .end = glyph_row_len(row, screen->cols) };
}

struct glyphs glyphs_of_line(const struct line *line)
{
    return (struct glyphs){ .line = line, .end = line->len };
}

struct glyphs glyphs_of(const struct screen *screen, int row)
{
    if (row >= 0 && (unsigned)row < screen->rows)
        return glyphs_of_row(screen, row_at(screen, (unsigned)row));
    const struct line *line = row < 0 ? scrollback_at(screen, (unsigned)-(row + 1)) : NULL;
    return line ? glyphs_of_line(line) : (struct glyphs){ 0 };
}

static bool next_of_row(struct glyphs *glyphs, struct glyph *out)
{
    union cell cell = cell_at(glyphs->row, glyphs->at);

    out->width = cell.kind == CELL_WIDE ? 2 : 1;
    out->pad = cell.kind == CELL_PAD;
    out->len = 0;
    if (cell.code) {
        struct str marks = marks_text(glyphs->screen, cell);

        out->len = (uint8_t)utf8_put((uint32_t)cell.code, out->text);
        if (marks.n)
            memcpy(out->text + out->len, marks.p, marks.n);
        out->len = (uint8_t)(out->len + marks.n);
    }
    out->looks = cell_looks(cell);
    glyphs->at += out->width;
    return true;
}

/* The bytes are our own; what scrollback.c wrote is not checked again. */
static bool next_of_line(struct glyphs *glyphs, struct glyph *out)
{
    const uint8_t *p = glyphs->line->data + glyphs->at;

    *out = (struct glyph){ .width = 1 };
    if (*p == GLYPH_LOOKS) {
        memcpy(&glyphs->looks, p + 1, GLYPH_LOOKS_BYTES);
        p += 1 + GLYPH_LOOKS_BYTES;
    }
    out->looks = glyphs->looks;
    out->pad = *p == GLYPH_PAD;
    if (*p == GLYPH_BLANK || *p == GLYPH_PAD) {
        p++;
    } else {
        if (*p == GLYPH_WIDE) {
            out->width = 2;
            p++;
        }
        out->len = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
        memcpy(out->text, p, out->len);
        p += out->len;
        if (p < glyphs->line->data + glyphs->end && *p == GLYPH_MARKS) {
            memcpy(out->text + out->len, p + 2, p[1]);
            out->len = (uint8_t)(out->len + p[1]);
            p += 2 + p[1];
        }
    }
    glyphs->at = (unsigned)(p - glyphs->line->data);
    return true;
}

bool glyphs_next(struct glyphs *glyphs, struct glyph *out)
{
    if (glyphs->at >= glyphs->end)
        return false;
    return glyphs->row ? next_of_row(glyphs, out) : next_of_line(glyphs, out);
}
