/* Word by word; a word longer than a line stands alone rather than being cut. */
#include "cli/wrap.h"

#include "cli/text.h"

static void new_line(struct buf *out, size_t indent)
{
    buf_putc(out, '\n');
    for (size_t i = 0; i < indent; i++)
        buf_putc(out, ' ');
}

static void wrap_line(struct buf *out, struct str line, size_t *at, size_t indent, size_t width)
{
    while (line.n) {
        struct str word = str_cut(&line, ' ');
        size_t need = text_width(word);

        if (!word.n)
            continue;
        if (*at > indent && *at + 1 + need > width) {
            new_line(out, indent);
            *at = indent;
        } else if (*at > indent) {
            buf_putc(out, ' ');
            (*at)++;
        }
        buf_str(out, word);
        *at += need;
    }
}

void wrap_text(struct buf *out, const char *text, size_t at, size_t indent, size_t width)
{
    struct str rest = str_of(text);
    bool kept = false;

    while (rest.n) {
        struct str line = str_cut(&rest, '\n');

        if (!line.n) { /* between paragraphs */
            new_line(out, 0);
            new_line(out, indent);
            at = indent;
            kept = false;
        } else if (line.p[0] == ' ') {
            if (at > indent || kept)
                new_line(out, indent);
            buf_str(out, line);
            kept = true;
            at = indent;
        } else {
            if (kept)
                new_line(out, indent);
            kept = false;
            wrap_line(out, line, &at, indent, width);
        }
    }
    buf_putc(out, '\n');
}
