/*
 * Control characters, sequences of ESC and one more byte or two, and strings (of which only the
 * title means anything here). One table for each kind.
 */
#include "term/own.h"

void control_goto(struct screen *screen, unsigned row, unsigned col)
{
    screen->at.row = clamp(row, screen->rows - 1);
    screen->at.col = clamp(col, screen->cols - 1);
    screen->at.wrap_next = false;
}

static void carriage_return(struct screen *screen)
{
    screen->at.col = 0;
    screen->at.wrap_next = false;
}

/* Keeps the column: it is the column of a character just written, also when the next would wrap. */
static void line_feed(struct screen *screen)
{
    grid_linefeed(screen, false);
    if (screen->modes.newline)
        carriage_return(screen);
}

static void next_line(struct screen *screen)
{
    carriage_return(screen);
    grid_linefeed(screen, false);
}

static void backspace(struct screen *screen)
{
    if (screen->at.col > 0)
        screen->at.col--;
    screen->at.wrap_next = false;
}

/* To the next stop, or the last column; from there nowhere, and what would wrap still does. */
static void tab(struct screen *screen)
{
    unsigned col = screen->at.col + 1;

    if (screen->at.col == screen->cols - 1)
        return;
    while (col < screen->cols - 1 && !(screen->tabs[col / 64] >> col % 64 & 1))
        col++;
    screen->at.col = col;
}

static void shift_out(struct screen *screen)
{
    screen->at.gl = 1;
}

static void shift_in(struct screen *screen)
{
    screen->at.gl = 0;
}

void control_byte(struct screen *screen, unsigned char byte)
{
    static void (*const table[0x20])(struct screen *) = {
        ['\b'] = backspace, ['\t'] = tab,       ['\n'] = line_feed,
        ['\v'] = line_feed, ['\f'] = line_feed, ['\r'] = carriage_return,
        [0x0e] = shift_out, [0x0f] = shift_in,
    };

    screen->last = 0;
    if (table[byte])
        table[byte](screen);
}

/* ---- character sets ---------------------------------------------------------------------------
 */

/* ` to ~ of DEC's special graphics. */
static const uint16_t line_drawing[] = {
    0x25c6, 0x2592, 0x2409, 0x240c, 0x240d, 0x240a, 0x00b0, 0x00b1, 0x2424, 0x240b, 0x2518,
    0x2510, 0x250c, 0x2514, 0x253c, 0x23ba, 0x23bb, 0x2500, 0x23bc, 0x23bd, 0x251c, 0x2524,
    0x2534, 0x252c, 0x2502, 0x2264, 0x2265, 0x03c0, 0x2260, 0x00a3, 0x00b7,
};

/* One printable ASCII byte, by the set in use. */
void control_print(struct screen *screen, unsigned char byte)
{
    uint8_t set = screen->at.charset[screen->shift ? screen->shift : screen->at.gl];
    uint32_t code = byte;

    screen->shift = 0;
    if (set == CHARSET_LINES && byte >= 0x60 && byte < 0x60 + ARRAY_LEN(line_drawing))
        code = line_drawing[byte - 0x60];
    else if (set == CHARSET_UK && byte == '#')
        code = 0xa3;
    write_code(screen, code);
}

static void designate(struct screen *screen, unsigned set, char name)
{
    screen->at.charset[set] = name == '0'   ? CHARSET_LINES
                              : name == 'A' ? CHARSET_UK
                                            : CHARSET_ASCII;
}

/* ---- ESC --------------------------------------------------------------------------------------
 */

void control_save(struct screen *screen)
{
    screen->on->saved = screen->at;
}

/* Margins, autowrap and what stands in the last column may be others now. */
void control_restore(struct screen *screen)
{
    struct cursor *at = &screen->at;

    *at = screen->on->saved;
    if (at->origin)
        at->row = MAX(clamp(at->row, screen->bottom), screen->top);
    struct row *row = row_at(screen, at->row);
    union cell last = cell_at(row, screen->cols - 1);
    if (!screen->modes.autowrap || (!last.code && last.kind != CELL_TAIL))
        at->wrap_next = false;
    if (at->wrap_next)
        row->wrapped = false; /* as if the last column had just been written */
}

/* Nothing is kept of the alternate screen when it is left. */
void control_alternate(struct screen *screen, bool on)
{
    if (on == (screen->on == &screen->alt))
        return;
    screen->on = on ? &screen->alt : &screen->main;
    screen->at.wrap_next = false;
    if (!on)
        return;
    if (!screen->alt.rows)
        grid_make(&screen->alt, screen->rows, screen->cols);
    screen->alt.saved = (struct cursor){ 0 };
    for (unsigned i = 0; i < screen->rows; i++)
        grid_clear_row(screen->alt.rows[i], cell_blank(screen));
}

static void index_down(struct screen *screen)
{
    grid_linefeed(screen, false);
}

static void set_tab(struct screen *screen)
{
    screen->tabs[screen->at.col / 64] |= 1ull << screen->at.col % 64;
}

static void app_keypad(struct screen *screen)
{
    screen->modes.app_keypad = true;
}

static void num_keypad(struct screen *screen)
{
    screen->modes.app_keypad = false;
}

static void lock_g2(struct screen *screen)
{
    screen->at.gl = 2;
}

static void lock_g3(struct screen *screen)
{
    screen->at.gl = 3;
}

static void single_g2(struct screen *screen)
{
    screen->shift = 2;
}

static void single_g3(struct screen *screen)
{
    screen->shift = 3;
}

static void identify(struct screen *screen)
{
    buf_puts(&screen->replies, "\033[?1;2c");
}

/* DECALN: the whole screen in E, for adjusting a tube that nobody has any more. */
static void alignment(struct screen *screen)
{
    screen->top = 0;
    screen->bottom = screen->rows - 1;
    grid_cut(screen, 0);
    for (unsigned i = 0; i < screen->rows; i++)
        grid_clear_row(row_at(screen, i), (union cell){ .code = 'E' });
    control_goto(screen, 0, 0);
}

void control_escape(struct screen *screen, struct str seq)
{
    static void (*const table[0x80])(struct screen *) = {
        ['7'] = control_save, ['8'] = control_restore, ['D'] = index_down,
        ['E'] = next_line,    ['H'] = set_tab,         ['M'] = grid_reverse_linefeed,
        ['N'] = single_g2,    ['O'] = single_g3,       ['Z'] = identify,
        ['c'] = screen_reset, ['n'] = lock_g2,         ['o'] = lock_g3,
        ['='] = app_keypad,   ['>'] = num_keypad,
    };

    screen->last = 0;
    if (seq.n == 1 && table[(unsigned char)seq.p[0]])
        table[(unsigned char)seq.p[0]](screen);
    else if (seq.n == 2 && seq.p[0] >= '(' && seq.p[0] <= '+')
        designate(screen, (unsigned)(seq.p[0] - '('), seq.p[1]);
    else if (str_is(seq, "#8"))
        alignment(screen);
}

/* ---- strings ----------------------------------------------------------------------------------
 */

/* As much of it as fits, in whole characters, without control characters. */
static void set_title(struct screen *screen, struct str text)
{
    screen->title_len = 0;
    for (size_t at = 0; at < text.n;) {
        uint32_t code = 0xfffd;
        size_t size = str_utf8_at(text.p + at, text.n - at, &code);
        char bytes[4];
        size_t len = utf8_put(code, bytes);

        at += size ? size : 1;
        if (code < 0x20 || (code >= 0x7f && code < 0xa0))
            continue;
        if (screen->title_len + len > SCREEN_TITLE_MAX)
            return;
        memcpy(screen->title + screen->title_len, bytes, len);
        screen->title_len += (uint32_t)len;
    }
}

void control_string(struct screen *screen, char kind, struct str seq)
{
    struct str rest = seq;
    struct str number = str_cut(&rest, ';');

    if (kind == ']' && (str_is(number, "0") || str_is(number, "2")) && number.n < seq.n)
        set_title(screen, rest);
}
