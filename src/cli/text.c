/* How it works: a table keeps the text of its cells and measures them only when it is put. */
#include "cli/text.h"

#include <wchar.h>

#include "base/mem.h"
#include "base/show.h"

/* Columns of the character at the front; *len is its length in bytes. */
static size_t char_width(struct str text, size_t *len)
{
    uint32_t code;

    *len = str_utf8_at(text.p, text.n, &code);
    if (!*len) {
        *len = 1;
        return 1;
    }
    int width = code < 0x80 ? 1 : wcwidth((wchar_t)code);
    return width < 0 ? 1 : (size_t)width;
}

size_t text_width(struct str text)
{
    size_t width = 0, len;

    for (; text.n; text = str_from(text, len))
        width += char_width(text, &len);
    return width;
}

struct str text_fit(struct str text, size_t width)
{
    size_t used = 0, at = 0, len;

    while (at < text.n) {
        size_t next = char_width(str_from(text, at), &len);

        if (used + next > width)
            break;
        used += next;
        at += len;
    }
    return (struct str){ text.p, at };
}

void text_duration(struct buf *out, int64_t ms)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = { { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 } };

    if (ms < 1000) {
        buf_printf(out, "%lldms", (long long)MAX(ms, 0));
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (ms < units[i].ms)
            continue;
        buf_printf(out, "%lld%s", (long long)(ms / units[i].ms), units[i].name);
        ms %= units[i].ms;
        if (i + 1 < ARRAY_LEN(units) && ms >= units[i + 1].ms)
            buf_printf(out, " %lld%s", (long long)(ms / units[i + 1].ms), units[i + 1].name);
        return;
    }
}

void text_bytes(struct buf *out, int64_t bytes)
{
    static const char names[] = "KMGTPE";
    double value = (double)bytes;
    int at = -1;

    while (value >= 1023.95 && names[at + 1]) { /* so that none becomes 1024.0 */
        value /= 1024;
        at++;
    }
    if (at < 0)
        buf_printf(out, "%lld", (long long)bytes);
    else
        buf_printf(out, "%.*f%c", bytes % (1ll << (10 * (at + 1))) ? 1 : 0, value, names[at]);
}

/* ---- tables ---- */

void table_free(struct table *table)
{
    buf_free(&table->cells);
    *table = (struct table){ 0 };
}

void table_cell(struct table *table, struct str text)
{
    show_text(&table->cells, text);
    buf_putc(&table->cells, 0);
    table->count++;
}

void table_titles(struct table *table, const char *titles)
{
    struct str rest = str_of(titles);

    while (rest.n && table->columns < TABLE_COLUMNS_MAX) {
        struct str title = str_cut(&rest, ',');

        for (; title.n && strchr(">!", title.p[0]); title = str_from(title, 1))
            *(title.p[0] == '>' ? &table->right : &table->whole) |= 1u << table->columns;
        table_cell(table, title);
        table->columns++;
    }
}

/*
 * Narrows the widest column by one until all fit. No column becomes narrower than a short word, and
 * those of `whole` stay: a line that still does not fit is wrapped by the terminal.
 */
static void squeeze(size_t *widths, const struct table *table, size_t width)
{
    const size_t least = 8;

    for (;;) {
        size_t total = ((size_t)table->columns - 1) * 2, widest = 0;
        unsigned at = 0;

        for (unsigned i = 0; i < table->columns; i++) {
            total += widths[i];
            if (widths[i] > widest && !(table->whole >> i & 1)) {
                widest = widths[i];
                at = i;
            }
        }
        if (total <= width || widest <= least)
            return;
        widths[at]--;
    }
}

static void put_cell(struct buf *out, struct str cell, size_t width, bool right, bool last)
{
    size_t have = text_width(cell);
    bool cut = have > width;

    if (cut) {
        cell = text_fit(cell, width - 1);
        have = text_width(cell) + 1;
    }
    size_t pad = width - have;
    for (size_t i = 0; right && i < pad; i++)
        buf_putc(out, ' ');
    buf_str(out, cell);
    if (cut)
        buf_puts(out, "…");
    for (size_t i = 0; !right && !last && i < pad; i++)
        buf_putc(out, ' ');
    buf_puts(out, last ? "" : "  ");
}

static struct str next_cell(struct str *rest)
{
    return str_cut(rest, 0);
}

void table_put(const struct table *table, struct buf *out, size_t width, bool bold)
{
    size_t widths[TABLE_COLUMNS_MAX] = { 0 };
    struct str rest = buf_view(&table->cells);

    if (!table->columns)
        return;
    for (size_t i = 0; i < table->count; i++) {
        size_t have = text_width(next_cell(&rest));
        unsigned column = (unsigned)(i % table->columns);

        widths[column] = MAX(widths[column], have);
    }
    if (width)
        squeeze(widths, table, width);
    rest = buf_view(&table->cells);
    for (size_t i = 0; i < table->count; i++) {
        unsigned column = (unsigned)(i % table->columns);
        bool last = column + 1 == table->columns, title = bold && i < table->columns;

        if (title && column == 0)
            buf_puts(out, "\x1b[1m");
        put_cell(out, next_cell(&rest), widths[column], table->right >> column & 1, last);
        while (last && out->len && out->data[out->len - 1] == ' ')
            out->len--;
        if (title && last)
            buf_puts(out, "\x1b[0m");
        if (last)
            buf_putc(out, '\n');
    }
}
