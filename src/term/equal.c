/* Are two screens the same, to look at and to write on? */
#include "term/own.h"

/* A pad is a blank with a past. Marks are equal when their text is. */
static bool same_cell(const struct screen *a, union cell x, const struct screen *b, union cell y)
{
    if (!str_eq(marks_text(a, x), marks_text(b, y)))
        return false;
    x.marks = y.marks = 0;
    if (x.kind == CELL_PAD)
        x.kind = CELL_NARROW;
    if (y.kind == CELL_PAD)
        y.kind = CELL_NARROW;
    return cell_same(x, y);
}

static bool same_grid(const struct screen *a, const struct grid *x, const struct screen *b,
                      const struct grid *y)
{
    for (unsigned row = 0; row < a->rows; row++) {
        if (x->rows[row]->wrapped != y->rows[row]->wrapped)
            return false;
        for (unsigned col = 0; col < a->cols; col++)
            if (!same_cell(a, cell_at(x->rows[row], col), b, cell_at(y->rows[row], col)))
                return false;
    }
    return true;
}

bool equal_cursor(const struct cursor *x, const struct cursor *y)
{
    return x->row == y->row && x->col == y->col && x->wrap_next == y->wrap_next &&
           x->origin == y->origin && x->gl == y->gl && cell_same(x->pen, y->pen) &&
           memcmp(x->charset, y->charset, sizeof(x->charset)) == 0;
}

static bool same_parser(const struct parser *x, const struct parser *y)
{
    return x->state == y->state &&
           (x->state == PARSE_GROUND ||
            (x->len == y->len && x->over == y->over && memcmp(x->seq, y->seq, x->len) == 0 &&
             (x->state != PARSE_STRING || x->string == y->string)));
}

static bool same_tabs(const struct screen *a, const struct screen *b)
{
    for (unsigned col = 0; col < a->cols; col++)
        if ((a->tabs[col / 64] ^ b->tabs[col / 64]) >> col % 64 & 1)
            return false;
    return true;
}

static bool same_modes(struct screen_modes x, struct screen_modes y)
{
    return x.alternate == y.alternate && x.app_cursor == y.app_cursor &&
           x.app_keypad == y.app_keypad && x.bracketed_paste == y.bracketed_paste &&
           x.focus_events == y.focus_events && x.synchronized == y.synchronized &&
           x.autowrap == y.autowrap && x.origin == y.origin && x.insert == y.insert &&
           x.newline == y.newline && x.reverse == y.reverse && x.mouse == y.mouse &&
           x.mouse_code == y.mouse_code;
}

bool screen_equal(const struct screen *a, const struct screen *b)
{
    bool alt = a->on == &a->alt;

    if (a->rows != b->rows || a->cols != b->cols || !same_modes(screen_modes(a), screen_modes(b)))
        return false;
    return same_grid(a, &a->main, b, &b->main) && (!alt || same_grid(a, &a->alt, b, &b->alt)) &&
           equal_cursor(&a->at, &b->at) && equal_cursor(&a->main.saved, &b->main.saved) &&
           (!alt || equal_cursor(&a->alt.saved, &b->alt.saved)) && a->top == b->top &&
           a->bottom == b->bottom && a->hidden == b->hidden && a->blinking == b->blinking &&
           a->style == b->style && a->shift == b->shift && a->last == b->last && same_tabs(a, b) &&
           same_parser(&a->parser, &b->parser) && str_eq(screen_title(a), screen_title(b));
}
