/* What a screen shows, for readers that are no terminal: text, cells, JSON. */
#include <stdio.h>

#include "term/own.h"

static void trim_spaces(struct buf *out, size_t from)
{
    while (out->len > from && out->data[out->len - 1] == ' ')
        out->len--;
}

void screen_row_text(const struct screen *screen, int row, struct buf *out)
{
    struct glyphs glyphs = glyphs_of(screen, row);
    size_t from = out->len;
    struct glyph glyph;

    while (glyphs_next(&glyphs, &glyph)) {
        if (glyph.len)
            buf_append(out, glyph.text, glyph.len);
        else
            buf_putc(out, ' ');
    }
    trim_spaces(out, from);
}

void screen_text(const struct screen *screen, struct buf *out)
{
    for (unsigned i = 0; i < screen->rows; i++) {
        if (i)
            buf_putc(out, '\n');
        screen_row_text(screen, (int)i, out);
    }
}

void screen_scrollback_text(const struct screen *screen, unsigned rows, struct buf *out)
{
    rows = clamp(rows, screen->back.count);
    for (unsigned i = rows; i > 0; i--) {
        screen_row_text(screen, -(int)i, out);
        if (i > 1)
            buf_putc(out, '\n');
    }
}

bool screen_row_wrapped(const struct screen *screen, int row)
{
    if (row >= 0)
        return (unsigned)row < screen->rows && row_at(screen, (unsigned)row)->wrapped;
    const struct line *line = scrollback_at(screen, (unsigned)-(row + 1));
    return line && line->wrapped;
}

static void fill_cell(struct screen_cell *out, const struct glyph *glyph)
{
    *out = (struct screen_cell){
        .len = glyph->len,
        .width = glyph->width,
        .attrs = (uint16_t)glyph->looks.attrs,
        .fg = (uint32_t)glyph->looks.fg,
        .bg = (uint32_t)glyph->looks.bg,
        .ul = (uint32_t)glyph->looks.ul,
    };
    memcpy(out->text, glyph->text, glyph->len);
}

bool screen_cell(const struct screen *screen, int row, unsigned col, struct screen_cell *out)
{
    bool above = row < 0 && scrollback_at(screen, (unsigned)-(row + 1));
    struct glyphs glyphs = glyphs_of(screen, row);
    struct glyph glyph;
    unsigned at = 0;

    if (col >= screen->cols || row >= (int)screen->rows || (row < 0 && !above))
        return false;
    *out = (struct screen_cell){ .width = 1 };
    while (at <= col && glyphs_next(&glyphs, &glyph)) {
        if (at + glyph.width > col) {
            fill_cell(out, &glyph);
            if (at < col) {
                out->len = out->width = 0;
                out->text[0] = 0;
            }
        }
        at += glyph.width;
    }
    return true;
}

/* ---- JSON -------------------------------------------------------------------------------------
 */

static void put_color(struct json_out *out, const char *key, uint32_t color)
{
    char text[8];

    if ((color & SCREEN_COLOR_KIND) == SCREEN_INDEXED)
        json_kv_int(out, key, color & 0xff);
    if ((color & SCREEN_COLOR_KIND) != SCREEN_RGB)
        return;
    snprintf(text, sizeof(text), "#%06x", color & 0xffffff);
    json_kv_text(out, key, text);
}

static void put_attrs(struct json_out *out, unsigned attrs)
{
    static const char *const names[] = { "bold",    "dim",     "italic", "blink",
                                         "reverse", "conceal", "strike", "overline" };
    static const char *const lines[] = { "",          "underline", "underline2",
                                         "undercurl", "underdots", "underdashes" };

    if (!attrs)
        return;
    json_key(out, "attrs");
    json_open(out, '[');
    for (unsigned i = 0; i < ARRAY_LEN(names); i++)
        if (attrs >> i & 1)
            json_put_str(out, str_of(names[i]));
    unsigned line = attrs >> SCREEN_UNDERLINE_SHIFT & 7;
    if (line && line < ARRAY_LEN(lines))
        json_put_str(out, str_of(lines[line]));
    json_close(out, ']');
}

static void put_run(struct json_out *out, struct buf *text, union cell looks)
{
    json_open(out, '{');
    json_kv_str(out, "text", buf_view(text));
    put_color(out, "fg", (uint32_t)looks.fg);
    put_color(out, "bg", (uint32_t)looks.bg);
    put_color(out, "ul", (uint32_t)looks.ul);
    put_attrs(out, (unsigned)looks.attrs);
    json_close(out, '}');
    buf_clear(text);
}

static void put_line(struct json_out *out, const struct screen *screen, unsigned row)
{
    struct glyphs glyphs = glyphs_of(screen, (int)row);
    autobuf struct buf text = { 0 };
    union cell looks = { 0 };
    struct glyph glyph;

    json_open(out, '[');
    while (glyphs_next(&glyphs, &glyph)) {
        if (text.len && !cell_same(looks, glyph.looks))
            put_run(out, &text, looks);
        looks = glyph.looks;
        if (glyph.len)
            buf_append(&text, glyph.text, glyph.len);
        else
            buf_putc(&text, ' ');
    }
    if (text.len)
        put_run(out, &text, looks);
    json_close(out, ']');
}

static void put_cursor(struct json_out *out, const struct screen *screen)
{
    static const char *const styles[] = { "block", "underline", "bar" };
    struct screen_cursor cursor = screen_cursor(screen);

    json_key(out, "cursor");
    json_open(out, '{');
    json_kv_int(out, "row", cursor.row);
    json_kv_int(out, "col", cursor.col);
    json_kv_bool(out, "visible", cursor.visible);
    json_kv_bool(out, "blinking", cursor.blinking);
    json_kv_text(out, "style", styles[cursor.style]);
    json_close(out, '}');
}

static void put_modes(struct json_out *out, const struct screen *screen)
{
    static const char *const mice[] = { "off", "x10", "buttons", "drag", "all" };
    static const char *const codes[] = { "bytes", "utf8", "sgr", "urxvt", "pixels" };
    struct screen_modes modes = screen_modes(screen);

    json_key(out, "modes");
    json_open(out, '{');
    json_kv_bool(out, "alternate", modes.alternate);
    json_kv_bool(out, "app_cursor", modes.app_cursor);
    json_kv_bool(out, "app_keypad", modes.app_keypad);
    json_kv_bool(out, "bracketed_paste", modes.bracketed_paste);
    json_kv_bool(out, "focus_events", modes.focus_events);
    json_kv_bool(out, "synchronized", modes.synchronized);
    json_kv_text(out, "mouse", mice[modes.mouse]);
    json_kv_text(out, "mouse_code", codes[modes.mouse_code]);
    json_close(out, '}');
}

void screen_json(const struct screen *screen, struct json_out *out)
{
    json_open(out, '{');
    json_kv_int(out, "rows", screen->rows);
    json_kv_int(out, "cols", screen->cols);
    put_cursor(out, screen);
    json_kv_str(out, "title", screen_title(screen));
    put_modes(out, screen);
    json_key(out, "lines");
    json_open(out, '[');
    for (unsigned i = 0; i < screen->rows; i++)
        put_line(out, screen, i);
    json_close(out, ']');
    json_close(out, '}');
}
