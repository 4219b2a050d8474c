/*
 * CSI sequences: parameters read once, then one line of a table for each function. Numbers are
 * bounded when they are read, and every function bounds them again by the screen, so that no
 * sequence costs more than the screen is large.
 */
#include "term/own.h"

/* ---- the cursor -------------------------------------------------------------------------------
 */

/* The rows that a move within the margins stays in; one that begins outside may go to the edge. */
static void move_rows(struct screen *screen, unsigned n, bool down)
{
    unsigned row = screen->at.row;
    unsigned low = row >= screen->top ? screen->top : 0;
    unsigned high = row <= screen->bottom ? screen->bottom : screen->rows - 1;

    row = down ? clamp(row + n, high) : row - clamp(n, row - low);
    control_goto(screen, row, screen->at.col);
}

static void cursor_up(struct screen *screen, const struct csi *csi)
{
    move_rows(screen, csi_count(csi, 0, 1), false);
}

static void cursor_down(struct screen *screen, const struct csi *csi)
{
    move_rows(screen, csi_count(csi, 0, 1), true);
}

/* VPR: a place and no move, so margins hold it up only where places are counted from them. */
static void down_from_here(struct screen *screen, const struct csi *csi)
{
    unsigned row = screen->at.row + csi_count(csi, 0, 1);

    control_goto(screen, screen->at.origin ? clamp(row, screen->bottom) : row, screen->at.col);
}

static void cursor_right(struct screen *screen, const struct csi *csi)
{
    control_goto(screen, screen->at.row, screen->at.col + csi_count(csi, 0, 1));
}

static void cursor_left(struct screen *screen, const struct csi *csi)
{
    control_goto(screen, screen->at.row,
                 screen->at.col - clamp(csi_count(csi, 0, 1), screen->at.col));
}

static void next_line(struct screen *screen, const struct csi *csi)
{
    cursor_down(screen, csi);
    screen->at.col = 0;
}

static void previous_line(struct screen *screen, const struct csi *csi)
{
    cursor_up(screen, csi);
    screen->at.col = 0;
}

/* An absolute place, which counts from the margin in origin mode and cannot leave it. */
static void go(struct screen *screen, unsigned row, unsigned col)
{
    if (screen->at.origin)
        row = clamp(row + screen->top, screen->bottom);
    control_goto(screen, row, col);
}

static void to_column(struct screen *screen, const struct csi *csi)
{
    control_goto(screen, screen->at.row, csi_count(csi, 0, 1) - 1);
}

static void to_row(struct screen *screen, const struct csi *csi)
{
    go(screen, csi_count(csi, 0, 1) - 1, screen->at.col);
}

static void to_place(struct screen *screen, const struct csi *csi)
{
    go(screen, csi_count(csi, 0, 1) - 1, csi_count(csi, 1, 1) - 1);
}

static void tabs_forward(struct screen *screen, const struct csi *csi)
{
    for (unsigned n = csi_count(csi, 0, 1); n > 0 && screen->at.col < screen->cols - 1; n--)
        control_byte(screen, '\t');
}

static void tabs_back(struct screen *screen, const struct csi *csi)
{
    unsigned n = csi_count(csi, 0, 1), col = screen->at.col;

    while (n > 0 && col > 0) {
        col--;
        if (screen->tabs[col / 64] >> col % 64 & 1)
            n--;
    }
    control_goto(screen, screen->at.row, col);
}

static void clear_tabs(struct screen *screen, const struct csi *csi)
{
    unsigned what = csi_count(csi, 0, 0);

    if (what == 0)
        screen->tabs[screen->at.col / 64] &= ~(1ull << screen->at.col % 64);
    else if (what == 3)
        memset(screen->tabs, 0, sizeof(screen->tabs));
}

static void save(struct screen *screen, const struct csi *csi)
{
    (void)csi;
    control_save(screen);
}

static void restore(struct screen *screen, const struct csi *csi)
{
    (void)csi;
    control_restore(screen);
}

/* ---- erasing and shifting ---------------------------------------------------------------------
 */

/*
 * From the cursor on. Behind the last column there is nothing to erase: top and others write a
 * whole row and then clear the rest of it.
 */
static void erase_rest(struct screen *screen)
{
    const struct cursor *at = &screen->at;

    if (!at->wrap_next)
        grid_erase(screen, at->row, at->col, screen->cols);
}

static void erase_display(struct screen *screen, const struct csi *csi)
{
    const struct cursor *at = &screen->at;
    unsigned what = csi_count(csi, 0, 0);

    screen->at.wrap_next = screen->at.wrap_next && (what == 0 || what > 2);
    switch (what) {
    case 0:
        erase_rest(screen);
        grid_erase_rows(screen, at->row + 1, screen->rows);
        break;
    case 1:
        grid_erase_rows(screen, 0, at->row);
        grid_erase(screen, at->row, 0, at->col + 1);
        break;
    case 2:
        grid_erase_rows(screen, 0, screen->rows);
        break;
    case 3:
        scrollback_clear(screen);
        break;
    default:
        break;
    }
}

static void erase_line(struct screen *screen, const struct csi *csi)
{
    const struct cursor *at = &screen->at;
    unsigned what = csi_count(csi, 0, 0);

    screen->at.wrap_next = screen->at.wrap_next && (what == 0 || what > 2);
    switch (what) {
    case 0:
        erase_rest(screen);
        break;
    case 1:
        grid_erase(screen, at->row, 0, at->col + 1);
        break;
    case 2:
        grid_erase_rows(screen, at->row, at->row + 1);
        break;
    default:
        break;
    }
}

static void erase_cells(struct screen *screen, const struct csi *csi)
{
    screen->at.wrap_next = false;
    grid_erase(screen, screen->at.row, screen->at.col, screen->at.col + csi_count(csi, 0, 1));
}

static void insert_cells(struct screen *screen, const struct csi *csi)
{
    screen->at.wrap_next = false;
    grid_insert_cells(screen, csi_count(csi, 0, 1));
}

static void delete_cells(struct screen *screen, const struct csi *csi)
{
    screen->at.wrap_next = false;
    grid_delete_cells(screen, csi_count(csi, 0, 1));
}

static bool in_margins(const struct screen *screen)
{
    return screen->at.row >= screen->top && screen->at.row <= screen->bottom;
}

static void insert_lines(struct screen *screen, const struct csi *csi)
{
    if (!in_margins(screen))
        return;
    grid_scroll_down(screen, screen->at.row, csi_count(csi, 0, 1));
    control_goto(screen, screen->at.row, 0);
}

static void delete_lines(struct screen *screen, const struct csi *csi)
{
    if (!in_margins(screen))
        return;
    grid_scroll_up(screen, screen->at.row, csi_count(csi, 0, 1), 0);
    control_goto(screen, screen->at.row, 0);
}

static void scroll_up(struct screen *screen, const struct csi *csi)
{
    screen->at.wrap_next = false;
    grid_scroll_up(screen, screen->top, csi_count(csi, 0, 1), SCROLL_KEEP);
}

/* With more than one parameter it is xterm's mouse highlighting, long gone. */
static void scroll_down(struct screen *screen, const struct csi *csi)
{
    if (csi->count > 1)
        return;
    screen->at.wrap_next = false;
    grid_scroll_down(screen, screen->top, csi_count(csi, 0, 1));
}

static void repeat(struct screen *screen, const struct csi *csi)
{
    write_repeat(screen, csi_count(csi, 0, 1));
}

/* ---- settings ---------------------------------------------------------------------------------
 */

static void set_margins(struct screen *screen, const struct csi *csi)
{
    unsigned top = csi_count(csi, 0, 1), bottom = csi_count(csi, 1, screen->rows);

    bottom = clamp(bottom, screen->rows);
    if (top >= bottom)
        return;
    screen->top = top - 1;
    screen->bottom = bottom - 1;
    go(screen, 0, 0);
}

static void set_modes(struct screen *screen, const struct csi *csi)
{
    mode_run(screen, csi, true);
}

static void reset_modes(struct screen *screen, const struct csi *csi)
{
    mode_run(screen, csi, false);
}

/* DECSCUSR: 0 and 1 blinking block, 2 block, 3 and 4 underline, 5 and 6 bar. */
static void cursor_style(struct screen *screen, const struct csi *csi)
{
    unsigned style = csi_count(csi, 0, 0);

    if (style > 6)
        return;
    screen->style = style < 3   ? SCREEN_CURSOR_BLOCK
                    : style < 5 ? SCREEN_CURSOR_UNDERLINE
                                : SCREEN_CURSOR_BAR;
    screen->blinking = style % 2 == 1;
}

/* DECSTR: modes and looks, but not what is shown. */
static void soft_reset(struct screen *screen, const struct csi *csi)
{
    struct cursor *at = &screen->at;

    (void)csi;
    screen->hidden = false;
    screen->top = 0;
    screen->bottom = screen->rows - 1;
    screen->modes.insert = screen->modes.app_cursor = screen->modes.app_keypad = false;
    screen->modes.autowrap = true;
    at->origin = false;
    at->wrap_next = false;
    at->pen = (union cell){ 0 };
    memset(at->charset, CHARSET_ASCII, sizeof(at->charset));
    at->gl = 0;
    screen->shift = 0;
    screen->on->saved = (struct cursor){ 0 };
}

/* ---- answers ----------------------------------------------------------------------------------
 */

static void attributes(struct screen *screen, const struct csi *csi)
{
    if (csi_count(csi, 0, 0) == 0)
        buf_puts(&screen->replies, csi->private == '>' ? "\033[>0;276;0c" : "\033[?1;2c");
}

static void report(struct screen *screen, const struct csi *csi)
{
    unsigned row = screen->at.row - (screen->at.origin ? screen->top : 0);

    if (csi_count(csi, 0, 0) == 5 && !csi->private)
        buf_puts(&screen->replies, "\033[0n");
    else if (csi_count(csi, 0, 0) == 6)
        buf_printf(&screen->replies, "\033[%s%u;%uR", csi->private ? "?" : "", row + 1,
                   screen->at.col + 1);
}

static void report_mode(struct screen *screen, const struct csi *csi)
{
    unsigned mode = csi_count(csi, 0, 0);

    buf_printf(&screen->replies, "\033[%s%u;%d$y", csi->private ? "?" : "", mode,
               mode_get(screen, csi->private != 0, mode));
}

/* ---- the table --------------------------------------------------------------------------------
 */

struct csi_function {
    char private, inter, final;
    void (*run)(struct screen *screen, const struct csi *csi);
};

/* clang-format off */
static const struct csi_function functions[] = {
    { 0,   0,   'm', sgr_run },
    { 0,   0,   'H', to_place },
    { 0,   0,   'K', erase_line },
    { 0,   0,   'A', cursor_up },
    { 0,   0,   'B', cursor_down },
    { 0,   0,   'C', cursor_right },
    { 0,   0,   'D', cursor_left },
    { 0,   0,   'E', next_line },
    { 0,   0,   'F', previous_line },
    { 0,   0,   'G', to_column },
    { 0,   0,   'I', tabs_forward },
    { 0,   0,   'J', erase_display },
    { 0,   0,   'L', insert_lines },
    { 0,   0,   'M', delete_lines },
    { 0,   0,   'P', delete_cells },
    { 0,   0,   'S', scroll_up },
    { 0,   0,   'T', scroll_down },
    { 0,   0,   'X', erase_cells },
    { 0,   0,   'Z', tabs_back },
    { 0,   0,   '@', insert_cells },
    { 0,   0,   '`', to_column },
    { 0,   0,   'a', cursor_right },
    { 0,   0,   'b', repeat },
    { 0,   0,   'c', attributes },
    { 0,   0,   'd', to_row },
    { 0,   0,   'e', down_from_here },
    { 0,   0,   'f', to_place },
    { 0,   0,   'g', clear_tabs },
    { 0,   0,   'h', set_modes },
    { 0,   0,   'l', reset_modes },
    { 0,   0,   'n', report },
    { 0,   0,   'r', set_margins },
    { 0,   0,   's', save },
    { 0,   0,   'u', restore },
    { '?', 0,   'J', erase_display },
    { '?', 0,   'K', erase_line },
    { '?', 0,   'h', set_modes },
    { '?', 0,   'l', reset_modes },
    { '?', 0,   'n', report },
    { '>', 0,   'c', attributes },
    { 0,   ' ', 'q', cursor_style },
    { 0,   '!', 'p', soft_reset },
    { 0,   '$', 'p', report_mode },
    { '?', '$', 'p', report_mode },
};
/* clang-format on */

static bool is_param(char c)
{
    return (c >= '0' && c <= '9') || c == ';' || c == ':';
}

/* Digits of one parameter; -1 when there are none. */
static int read_number(struct str seq, size_t *at)
{
    int value = -1;

    for (; *at < seq.n && seq.p[*at] >= '0' && seq.p[*at] <= '9'; ++*at)
        value = MIN((value < 0 ? 0 : value) * 10 + (seq.p[*at] - '0'), SCREEN_PARAM_MAX);
    return value;
}

/* [private] parameters [intermediate] final; anything else means nothing. */
static bool read_csi(struct str seq, struct csi *csi)
{
    size_t at = 0;
    bool colon = false;

    if (seq.p[0] >= '<' && seq.p[0] <= '?')
        csi->private = seq.p[at++];
    while (at < seq.n && is_param(seq.p[at])) {
        int value = read_number(seq, &at);

        if (csi->count < SCREEN_PARAMS_MAX) {
            csi->param[csi->count] = value;
            csi->colon[csi->count++] = colon;
        }
        colon = at < seq.n && seq.p[at] == ':';
        if (is_param(seq.p[at])) {
            at++; /* a separator; behind the last one a parameter is left out */
            if (!is_param(seq.p[at]) && csi->count < SCREEN_PARAMS_MAX) {
                csi->param[csi->count] = -1;
                csi->colon[csi->count++] = colon;
            }
        }
    }
    if (seq.p[at] >= 0x20 && seq.p[at] < 0x30)
        csi->inter = seq.p[at++];
    csi->final = seq.p[at];
    return at == seq.n - 1 && (unsigned char)csi->final >= 0x40;
}

/* `seq` ends with a final byte, so that reading up to something else than a parameter is safe. */
void csi_run(struct screen *screen, struct str seq)
{
    struct csi csi = { 0 };

    if (!read_csi(seq, &csi))
        return;
    for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
        const struct csi_function *f = &functions[i];

        if (f->final == csi.final && f->private == csi.private && f->inter == csi.inter) {
            f->run(screen, &csi);
            break;
        }
    }
    screen->last = 0;
}
