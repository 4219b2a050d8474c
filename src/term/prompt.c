/* See prompt.h. The first hit of the table counts; scores are those that existing clients know. */
#include "term/prompt.h"

enum where { ANYWHERE, AT_END, AT_TRIMMED_END };

static const struct {
    double score;
    enum where where;
    char text[24];
} table[] = {
    { 0.95, ANYWHERE, "❯ " },
    { 0.95, ANYWHERE, "Human: " },
    { 0.95, ANYWHERE, "(y/n)" },
    { 0.95, ANYWHERE, "(yes/no)" },
    { 0.95, ANYWHERE, "[Y/n]" },
    { 0.95, ANYWHERE, "[y/N]" },
    { 0.95, ANYWHERE, "[Y/N]" },
    { 0.90, ANYWHERE, "Do you want to proceed" },
    { 0.90, ANYWHERE, "Would you like to" },
    { 0.90, ANYWHERE, "Are you sure" },
    { 0.85, ANYWHERE, "Press any key" },
    { 0.85, ANYWHERE, "Press ENTER" },
    { 0.85, ANYWHERE, "press enter" },
    { 0.60, AT_END, "$ " },
    { 0.60, AT_END, "# " },
    { 0.55, AT_END, "> " },
    { 0.40, AT_TRIMMED_END, "?" },
};

static bool ends_with(struct str line, struct str end)
{
    return line.n >= end.n && memcmp(line.p + line.n - end.n, end.p, end.n) == 0;
}

static bool hit(struct str line, struct str trimmed, size_t i)
{
    struct str text = str_of(table[i].text);

    switch (table[i].where) {
    case ANYWHERE:
        return line.n && memmem(line.p, line.n, text.p, text.n) != NULL;
    case AT_END:
        return ends_with(line, text);
    case AT_TRIMMED_END:
    default:
        return ends_with(trimmed, text);
    }
}

double prompt_score(struct str line, struct buf *text)
{
    struct str trimmed = line;

    while (trimmed.n && trimmed.p[trimmed.n - 1] == ' ')
        trimmed.n--;
    for (size_t i = 0; trimmed.n && i < ARRAY_LEN(table); i++)
        if (hit(line, trimmed, i)) {
            if (text)
                buf_str(text, trimmed);
            return table[i].score;
        }
    return 0;
}

double screen_prompt(const struct screen *screen, struct buf *text)
{
    struct screen_cursor cursor = screen_cursor(screen);

    for (int row = (int)screen_rows(screen) - 1; row >= 0; row--) {
        autobuf struct buf line = { 0 };

        screen_row_text(screen, row, &line);
        if (!line.len)
            continue;
        if ((int)cursor.row == row && cursor.col > 0) {
            struct screen_cell cell;

            /* Blanks at the end are left out of the text; one before the cursor was printed. */
            if (screen_cell(screen, row, cursor.col - 1, &cell) &&
                (cell.text[0] == 0 || cell.text[0] == ' ') && line.data[line.len - 1] != ' ')
                buf_putc(&line, ' ');
        }
        return prompt_score(buf_view(&line), text);
    }
    return 0;
}
