/*
 * A screen as bytes that paint it: what a viewer gets that comes late or has lost some.
 *
 * Rows are written from top to bottom as a program would write them, and a row that the edge had
 * wrapped is wrapped by the edge again, so that the viewer's terminal can select and resize as if
 * it had been there. What a sequence would disturb comes before it: saved cursors before their grid
 * (to save one, it must be made), margins and origin before the cursor. The last things are the
 * cursor's looks and, when a character was the last thing printed, that character again: wrap_next
 * and REP depend on it. Then comes the beginning of the sequence under way.
 */
#include "term/own.h"

struct painter {
    const struct screen *screen;
    struct buf *out;
    union cell looks; /* the terminal's, now */
};

static void paint_looks(struct painter *painter, union cell looks)
{
    if (cell_same(painter->looks, looks))
        return;
    sgr_put(painter->out, looks);
    painter->looks = looks;
}

static void paint_goto(struct painter *painter, unsigned row, unsigned col)
{
    buf_printf(painter->out, "\033[%u;%uH", row + 1, col + 1);
}

/* ---- rows -------------------------------------------------------------------------------------
 */

/* Erased in its colour where it has one, then stepped over. */
static void paint_blanks(struct painter *painter, union cell looks, unsigned n)
{
    if (looks.word[1]) {
        paint_looks(painter, looks);
        buf_printf(painter->out, "\033[%uX", n);
    }
    buf_printf(painter->out, "\033[%uC", n);
}

/* Returns whether the row ended in a pad, and its looks. */
static bool paint_row(struct painter *painter, int row, union cell *pad)
{
    struct glyphs glyphs = glyphs_of(painter->screen, row);
    struct glyph glyph;
    union cell blank = { 0 };
    unsigned blanks = 0;
    bool padded = false;

    while (glyphs_next(&glyphs, &glyph)) {
        if (blanks && (glyph.len || !cell_same(blank, glyph.looks))) {
            paint_blanks(painter, blank, blanks);
            blanks = 0;
        }
        padded = glyph.pad;
        if (glyph.len) {
            paint_looks(painter, glyph.looks);
            buf_append(painter->out, glyph.text, glyph.len);
        } else if (padded && screen_row_wrapped(painter->screen, row)) {
            *pad = glyph.looks;
        } else {
            blank = glyph.looks;
            blanks++;
        }
    }
    if (blanks)
        paint_blanks(painter, blank, blanks);
    return padded;
}

/*
 * From a wrapped row into the next: by its first character, if that leaves nothing else behind, or
 * by something that is erased again. A new row takes the colour of the pen when it is scrolled in.
 */
static void paint_wrap(struct painter *painter, int next, bool padded, union cell pad)
{
    struct glyphs glyphs = glyphs_of(painter->screen, next);
    struct glyph glyph;

    if (!padded && glyphs_next(&glyphs, &glyph) && glyph.len && !glyph.looks.bg)
        return;
    paint_looks(painter, padded ? pad : (union cell){ 0 });
    buf_puts(painter->out, padded ? "\u3000\r" : " \r");
    paint_looks(painter, (union cell){ 0 });
    buf_puts(painter->out, pad.bg ? "\033[K" : padded ? "\033[2X" : "\033[X");
}

/* From where the cursor is: home of a blank grid. */
static void paint_rows(struct painter *painter, int first)
{
    int last = (int)painter->screen->rows - 1;

    for (int row = first; row <= last; row++) {
        union cell pad = { 0 };
        bool padded = paint_row(painter, row, &pad);

        if (row == last)
            break;
        if (screen_row_wrapped(painter->screen, row)) {
            paint_wrap(painter, row + 1, padded, pad);
        } else {
            paint_looks(painter, (union cell){ 0 });
            buf_puts(painter->out, "\r\n");
        }
    }
}

/* ---- the cursor -------------------------------------------------------------------------------
 */

static void paint_charsets(struct painter *painter, const struct cursor *at)
{
    static const char names[] = {
        [CHARSET_ASCII] = 'B', [CHARSET_LINES] = '0', [CHARSET_UK] = 'A'
    };
    static const char *const locks[] = { "\017", "\016", "\033n", "\033o" };

    for (int i = 0; i < 4; i++)
        if (at->charset[i] != CHARSET_ASCII)
            buf_printf(painter->out, "\033%c%c", "()*+"[i], names[at->charset[i]]);
    if (at->gl)
        buf_puts(painter->out, locks[at->gl]);
}

/* Makes a cursor and saves it, then goes back to a plain one at home. The grid is blank before. */
static void paint_saved(struct painter *painter, const struct cursor *saved)
{
    static const struct cursor none;

    if (equal_cursor(saved, &none))
        return;
    if (saved->origin)
        buf_puts(painter->out, "\033[?6h");
    paint_goto(painter, saved->row, saved->col);
    if (saved->wrap_next)
        buf_putc(painter->out, ' ');
    paint_looks(painter, saved->pen);
    paint_charsets(painter, saved);
    buf_puts(painter->out, "\0337\033[?6l\017\033(B\033)B\033*B\033+B");
    paint_looks(painter, (union cell){ 0 });
    buf_puts(painter->out, "\033[2J\033[H");
}

/*
 * The character that was written last: before the cursor, or under it in the last column when there
 * is no autowrap. Where both could be it, writing either one again changes nothing.
 */
static unsigned last_col(const struct screen *screen)
{
    const struct row *row = row_at(screen, screen->at.row);
    unsigned col = screen->at.col, before = col > 0 ? col - 1 : 0;

    if (cell_at(row, before).kind == CELL_TAIL)
        before--;
    union cell cell = cell_at(row, before);
    bool is_it = cell.code == screen->last && cell_same(cell_looks(cell), screen->at.pen);
    if (!screen->at.wrap_next && (col < screen->cols - 1 || screen->modes.autowrap || is_it))
        return before;
    return cell_at(row, col).kind == CELL_TAIL ? col - 1 : col;
}

/*
 * A character that the set in use would turn into another came by a single shift, and one of those
 * sets does not.
 */
static void paint_shift(struct painter *painter, uint32_t code)
{
    const struct cursor *at = &painter->screen->at;
    uint8_t set = at->charset[at->gl];

    if (code >= 0x80 || (set == CHARSET_LINES && code < 0x60) ||
        (set == CHARSET_UK && code != '#') || set == CHARSET_ASCII)
        return;
    buf_puts(painter->out, at->charset[2] != set ? "\033N" : "\033O");
}

/* That character once more. In insert mode its place is closed first. */
static void paint_last(struct painter *painter, bool insert)
{
    const struct screen *screen = painter->screen;
    const struct row *row = row_at(screen, screen->at.row);
    unsigned col = last_col(screen), top = screen->at.origin ? screen->top : 0;
    union cell cell = cell_at(row, col);
    char text[4];

    paint_goto(painter, screen->at.row - top, col);
    if (insert)
        buf_puts(painter->out, cell.kind == CELL_WIDE ? "\033[2P" : "\033[P");
    if (!screen->last)
        paint_looks(painter, cell_looks(cell));
    if (screen->last)
        paint_shift(painter, (uint32_t)cell.code);
    buf_append(painter->out, text, utf8_put((uint32_t)cell.code, text));
    buf_str(painter->out, marks_text(screen, cell));
}

static void paint_cursor(struct painter *painter)
{
    const struct screen *screen = painter->screen;
    const struct cursor *at = &screen->at;

    if (at->origin)
        buf_puts(painter->out, "\033[?6h");
    if (at->wrap_next && !screen->last)
        paint_last(painter, false);
    else
        paint_goto(painter, at->row - (at->origin ? screen->top : 0), at->col);
    sgr_put(painter->out, at->pen); /* always: it also ends what REP could repeat */
    painter->looks = at->pen;
    paint_charsets(painter, at);
    if (!screen->modes.autowrap)
        buf_puts(painter->out, "\033[?7l");
    if (screen->modes.insert)
        buf_puts(painter->out, "\033[4h");
    if (screen->modes.newline)
        buf_puts(painter->out, "\033[20h");
    if (screen->last)
        paint_last(painter, screen->modes.insert);
    if (screen->shift)
        buf_puts(painter->out, screen->shift == 2 ? "\033N" : "\033O");
}

/* ---- the rest ---------------------------------------------------------------------------------
 */

static void paint_tabs(struct painter *painter)
{
    const struct screen *screen = painter->screen;
    bool same = true;

    for (unsigned col = 0; col < screen->cols; col++)
        same = same && (screen->tabs[col / 64] >> col % 64 & 1) == (col > 0 && col % 8 == 0);
    if (same)
        return;
    buf_puts(painter->out, "\033[3g");
    for (unsigned col = 0; col < screen->cols; col++)
        if (screen->tabs[col / 64] >> col % 64 & 1)
            buf_printf(painter->out, "\033[%uG\033H", col + 1);
    buf_putc(painter->out, '\r');
}

static void paint_settings(struct painter *painter)
{
    const struct screen *screen = painter->screen;
    unsigned style = (unsigned)screen->style * 2 + (screen->blinking ? 1 : 2);

    if (screen->title_len)
        buf_printf(painter->out, "\033]2;%.*s\a", (int)screen->title_len, screen->title);
    if (screen->top != 0 || screen->bottom != screen->rows - 1)
        buf_printf(painter->out, "\033[%u;%ur", screen->top + 1, screen->bottom + 1);
    mode_put(screen, painter->out);
    if (style != 2)
        buf_printf(painter->out, "\033[%u q", style);
    if (screen->hidden)
        buf_puts(painter->out, "\033[?25l");
}

/* What came of a sequence so far. One that is too long already is made one that means nothing. */
static void paint_partial(struct painter *painter)
{
    const struct parser *parser = &painter->screen->parser;

    if (parser->state == PARSE_GROUND)
        return;
    if (parser->state != PARSE_UTF8)
        buf_putc(painter->out, '\033');
    if (parser->state == PARSE_CSI)
        buf_putc(painter->out, '[');
    if (parser->state == PARSE_STRING)
        buf_putc(painter->out, parser->string);
    buf_append(painter->out, parser->seq, parser->len);
    if (parser->over)
        buf_putc(painter->out, parser->seq[parser->len - 1]);
}

void screen_keyframe(const struct screen *screen, unsigned scrollback, struct buf *out)
{
    struct screen base = *screen; /* shallow: the main grid, also while the other one is shown */
    struct painter painter = { .screen = &base, .out = out };

    buf_puts(out, "\033c");
    paint_tabs(&painter);
    base.on = &base.main;
    paint_saved(&painter, &base.main.saved);
    paint_rows(&painter, -(int)clamp(scrollback, screen->back.count));
    painter.screen = screen;
    if (screen->on == &screen->alt) {
        paint_looks(&painter, (union cell){ 0 });
        buf_puts(out, "\033[?1047h\033[H");
        paint_saved(&painter, &screen->alt.saved);
        paint_rows(&painter, 0);
    }
    paint_settings(&painter);
    paint_cursor(&painter);
    paint_partial(&painter);
}
