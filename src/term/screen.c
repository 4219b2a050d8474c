/* A screen's life, and what can be asked of it at once. */
#include "term/own.h"

/* What both a new screen and a reset one begin with. */
static void set_defaults(struct screen *screen)
{
    screen->on = &screen->main;
    screen->at = screen->main.saved = screen->alt.saved = (struct cursor){ 0 };
    screen->shift = 0;
    screen->last = 0;
    screen->top = 0;
    screen->bottom = screen->rows - 1;
    screen->modes = (struct screen_modes){ .autowrap = true };
    screen->hidden = screen->blinking = false;
    screen->style = SCREEN_CURSOR_BLOCK;
    screen->title_len = 0;
    screen_tabs_reset(screen);
}

struct screen *screen_new(unsigned rows, unsigned cols, unsigned scrollback_max)
{
    struct screen *screen = xnew(struct screen);

    screen->rows = clamp(MAX(rows, 1), SCREEN_ROWS_MAX);
    screen->cols = clamp(MAX(cols, 1), SCREEN_COLS_MAX);
    screen->back.max = clamp(scrollback_max, SCREEN_SCROLLBACK_MAX);
    screen->replies.max = SCREEN_REPLIES_MAX;
    grid_make(&screen->main, screen->rows, screen->cols);
    set_defaults(screen);
    return screen;
}

void screen_free(struct screen *screen)
{
    if (!screen)
        return;
    grid_free(&screen->main, screen->rows);
    grid_free(&screen->alt, screen->rows);
    scrollback_free(&screen->back);
    free(screen->marks.at);
    buf_free(&screen->replies);
    free(screen);
}

void screen_reset(struct screen *screen)
{
    set_defaults(screen);
    for (unsigned i = 0; i < screen->rows; i++)
        grid_clear_row(screen->main.rows[i], (union cell){ 0 });
    scrollback_clear(screen);
    screen->parser.state = PARSE_GROUND;
    screen->generation++;
}

void screen_tabs_reset(struct screen *screen)
{
    memset(screen->tabs, 0, sizeof(screen->tabs));
    for (unsigned i = 8; i < SCREEN_COLS_MAX; i += 8)
        screen->tabs[i / 64] |= 1ull << i % 64;
}

unsigned screen_rows(const struct screen *screen)
{
    return screen->rows;
}

unsigned screen_cols(const struct screen *screen)
{
    return screen->cols;
}

uint64_t screen_generation(const struct screen *screen)
{
    return screen->generation;
}

size_t screen_bytes(const struct screen *screen)
{
    size_t grid = screen->rows *
                  (sizeof(struct row *) + sizeof(struct row) + screen->cols * sizeof(union cell));

    return sizeof(*screen) + grid * (screen->alt.rows ? 2 : 1) + screen->back.bytes +
           screen->back.size * sizeof(struct line *) + screen->marks.size * sizeof(struct marks) +
           screen->back.scratch_cols * PACKED_CELL_MAX + screen->replies.cap;
}

struct screen_cursor screen_cursor(const struct screen *screen)
{
    return (struct screen_cursor){
        .row = screen->at.row,
        .col = screen->at.col,
        .wrap_next = screen->at.wrap_next,
        .visible = !screen->hidden,
        .blinking = screen->blinking,
        .style = screen->style,
    };
}

struct screen_modes screen_modes(const struct screen *screen)
{
    struct screen_modes modes = screen->modes;

    modes.alternate = screen->on == &screen->alt;
    modes.origin = screen->at.origin;
    return modes;
}

struct str screen_title(const struct screen *screen)
{
    return (struct str){ screen->title, screen->title_len };
}

unsigned screen_scrollback(const struct screen *screen)
{
    return screen->back.count;
}

struct str screen_replies(const struct screen *screen)
{
    return buf_view(&screen->replies);
}

void screen_replies_clear(struct screen *screen)
{
    buf_clear(&screen->replies);
}
