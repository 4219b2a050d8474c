/*
 * SGR: the looks of what is written next, from parameters and back to them.
 *
 * Colours beyond the first sixteen come in two spellings: 38;2;R;G;B and 38;5;N take the parameters
 * that follow, 38:2::R:G:B, 38:2:R:G:B and 38:5:N bring theirs along. A spelling that is cut short
 * or out of range sets nothing.
 */
#include "term/own.h"

struct sgr_attr {
    uint16_t code, clear, set;
};

/* clang-format off */
static const struct sgr_attr attrs[] = {
    { 1,  0,                        SCREEN_BOLD },
    { 2,  0,                        SCREEN_DIM },
    { 3,  0,                        SCREEN_ITALIC },
    { 4,  SCREEN_UNDERLINE,         1 << SCREEN_UNDERLINE_SHIFT },
    { 5,  0,                        SCREEN_BLINK },
    { 6,  0,                        SCREEN_BLINK },
    { 7,  0,                        SCREEN_REVERSE },
    { 8,  0,                        SCREEN_CONCEAL },
    { 9,  0,                        SCREEN_STRIKE },
    { 21, SCREEN_UNDERLINE,         2 << SCREEN_UNDERLINE_SHIFT },
    { 22, SCREEN_BOLD | SCREEN_DIM, 0 },
    { 23, SCREEN_ITALIC,            0 },
    { 24, SCREEN_UNDERLINE,         0 },
    { 25, SCREEN_BLINK,             0 },
    { 27, SCREEN_REVERSE,           0 },
    { 28, SCREEN_CONCEAL,           0 },
    { 29, SCREEN_STRIKE,            0 },
    { 53, 0,                        SCREEN_OVERLINE },
    { 55, SCREEN_OVERLINE,          0 },
};
/* clang-format on */

static void change_attr(union cell *pen, unsigned code)
{
    for (size_t i = 0; i < ARRAY_LEN(attrs); i++)
        if (attrs[i].code == code)
            pen->attrs = ((pen->attrs & ~(unsigned)attrs[i].clear) | attrs[i].set) & 0xfff;
}

static void set_color(union cell *pen, unsigned which, uint32_t color)
{
    if (which == 38)
        pen->fg = CELL_COLOR(color);
    else if (which == 48)
        pen->bg = CELL_COLOR(color);
    else
        pen->ul = CELL_COLOR(color);
}

static bool rgb(const int *part, uint32_t *color)
{
    *color = SCREEN_RGB;
    for (int i = 0; i < 3; i++) {
        if (part[i] > 255)
            return false;
        *color |= (uint32_t)MAX(part[i], 0) << (16 - 8 * i);
    }
    return true;
}

/* The colour in `part`, `count` of them: 5;N or 2;R;G;B. Returns how many it took; 0: none. */
static unsigned read_color(const int *part, unsigned count, uint32_t *color)
{
    if (count >= 2 && part[0] == 5) {
        *color = SCREEN_INDEXED | (uint32_t)MAX(part[1], 0);
        return part[1] > 255 ? 0 : 2;
    }
    if (count >= 4 && part[0] == 2)
        return rgb(part + 1, color) ? 4 : 0;
    return 0;
}

/* 38, 48 or 58 at `i`; returns the index behind what belongs to it. */
static unsigned extended(union cell *pen, const struct csi *csi, unsigned i)
{
    unsigned which = (unsigned)csi->param[i], first = i + 1, end = first;
    uint32_t color = 0;

    while (end < csi->count && csi->colon[end])
        end++;
    if (end == first) {
        unsigned took = read_color(csi->param + first, csi->count - first, &color);

        if (took)
            set_color(pen, which, color);
        /* Like xterm: what cannot be a colour is passed over as far as its kind is long. */
        return first < csi->count ? first + (took ? took : 1) : first;
    }
    if (csi->param[first] == 2 && end - first >= 5) { /* with a place for the colour space */
        if (rgb(csi->param + first + 2, &color))
            set_color(pen, which, color);
    } else if (read_color(csi->param + first, end - first, &color)) {
        set_color(pen, which, color);
    }
    return end;
}

/* The first sixteen colours, eight at a time, and what takes colours away. */
static void change_color(union cell *pen, unsigned code)
{
    static const struct {
        uint8_t first, which, color;
    } ranges[] = { { 30, 38, 0 }, { 40, 48, 0 }, { 90, 38, 8 }, { 100, 48, 8 } };

    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        if (code >= ranges[i].first && code < ranges[i].first + 8u)
            set_color(pen, ranges[i].which,
                      SCREEN_INDEXED | (code - ranges[i].first + ranges[i].color));
    if (code == 39 || code == 49 || code == 59)
        set_color(pen, code - 1, SCREEN_DEFAULT);
}

static void change(union cell *pen, unsigned code)
{
    if (code == 0)
        *pen = (union cell){ 0 };
    else if (code < 30 || code == 53 || code == 55)
        change_attr(pen, code);
    else
        change_color(pen, code);
}

/* 4:N */
static unsigned underline(union cell *pen, const struct csi *csi, unsigned i)
{
    int style = csi->param[i + 1];

    if (style >= 0 && style <= 5)
        pen->attrs = ((pen->attrs & ~(unsigned)SCREEN_UNDERLINE) | (unsigned)style
                                                                       << SCREEN_UNDERLINE_SHIFT) &
                     0xfff;
    i += 2;
    while (i < csi->count && csi->colon[i])
        i++;
    return i;
}

void sgr_run(struct screen *screen, const struct csi *csi)
{
    union cell *pen = &screen->at.pen;

    if (csi->count == 0)
        *pen = (union cell){ 0 };
    for (unsigned i = 0; i < csi->count;) {
        unsigned code = (unsigned)MAX(csi->param[i], 0);
        bool has_sub = i + 1 < csi->count && csi->colon[i + 1];

        if (code == 38 || code == 48 || code == 58) {
            i = extended(pen, csi, i);
        } else if (code == 4 && has_sub) {
            i = underline(pen, csi, i);
        } else if (has_sub || csi->colon[i]) {
            i++; /* a form that nobody knows, and its parts */
        } else {
            change(pen, code);
            i++;
        }
    }
}

/* ---- and back ---------------------------------------------------------------------------------
 */

static void put_color(struct buf *out, unsigned which, uint32_t color)
{
    unsigned value = color & 0xffffff;

    if ((color & SCREEN_COLOR_KIND) == SCREEN_RGB && which == 58)
        buf_printf(out, ";58:2::%u:%u:%u", value >> 16, value >> 8 & 255, value & 255);
    else if ((color & SCREEN_COLOR_KIND) == SCREEN_RGB)
        buf_printf(out, ";%u;2;%u;%u;%u", which, value >> 16, value >> 8 & 255, value & 255);
    else if (color && value < 8 && which != 58)
        buf_printf(out, ";%u", which - 8 + value);
    else if (color && value < 16 && which != 58)
        buf_printf(out, ";%u", which + 52 + value - 8);
    else if (color && which == 58)
        buf_printf(out, ";58:5:%u", value);
    else if (color)
        buf_printf(out, ";%u;5;%u", which, value);
}

/* From whatever it was to these. */
void sgr_put(struct buf *out, union cell looks)
{
    unsigned line = (unsigned)looks.attrs >> SCREEN_UNDERLINE_SHIFT & 7;

    buf_puts(out, "\033[0");
    for (size_t i = 0; i < ARRAY_LEN(attrs); i++)
        if (attrs[i].set && !attrs[i].clear && attrs[i].code != 6 && (looks.attrs & attrs[i].set))
            buf_printf(out, ";%u", attrs[i].code);
    if (line == 1)
        buf_puts(out, ";4");
    else if (line)
        buf_printf(out, ";4:%u", line);
    put_color(out, 38, (uint32_t)looks.fg);
    put_color(out, 48, (uint32_t)looks.bg);
    put_color(out, 58, (uint32_t)looks.ul);
    buf_putc(out, 'm');
}
