/*
 * screen - what a terminal shows, kept on the server.
 *
 * Bytes that a program writes to its terminal go in by screen_feed; what an xterm of the same size
 * would show can be read at any time: text, cells, cursor, title, modes, and the rows that scrolled
 * off. Bytes are hostile: they may come in any pieces, mean anything or nothing, and nothing that
 * they say makes one call cost more than its length times the size of the screen, or the screen
 * larger than SCREEN_BYTES_MAX. Nothing here fails: sizes out of range are moved into it.
 *
 * What terminals disagree about is decided as xterm and xterm.js do, because a viewer's terminal is
 * one of these. A resize wraps lines anew as they were wrapped by the edge, except on the alternate
 * screen. One thread at a time; a screen knows no other thing and may live anywhere.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"

struct screen;

/*
 * rows and cols are moved into 1..SCREEN_ROWS_MAX and 1..SCREEN_COLS_MAX. `scrollback_max` is the
 * number of rows kept that scrolled off the top (at most SCREEN_SCROLLBACK_MAX, and together at
 * most SCREEN_SCROLLBACK_BYTES; the oldest make room).
 */
struct screen *screen_new(unsigned rows, unsigned cols, unsigned scrollback_max);
void screen_free(struct screen *screen);
static inline void screen_free_ptr_(struct screen **screen)
{
    screen_free(*screen);
}
#define autoscreen auto_with(screen_free_ptr_)

void screen_feed(struct screen *screen, struct str bytes);
void screen_resize(struct screen *screen, unsigned rows, unsigned cols);
/* As new, in the same size: for a program that starts in a used terminal. */
void screen_reset(struct screen *screen);

unsigned screen_rows(const struct screen *screen);
unsigned screen_cols(const struct screen *screen);
/* Another number after every call that may have changed anything that can be read here. */
uint64_t screen_generation(const struct screen *screen);
/* Bytes that the screen holds now; never more than SCREEN_BYTES_MAX of its largest size. */
size_t screen_bytes(const struct screen *screen);

/* A screen of this size with both its grids, all its scrollback, marks and small parts. */
#define SCREEN_BYTES_MAX(rows, cols)                                                               \
    ((size_t)(rows) * ((size_t)(cols)*16 * 2 + 64) + SCREEN_SCROLLBACK_BYTES +                     \
     SCREEN_SCROLLBACK_MAX * 8 * 2 + SCREEN_MARKS_MAX * 32 + 65536)

/* ---- what it shows ----------------------------------------------------------------------------
 */

enum screen_cursor_style { SCREEN_CURSOR_BLOCK, SCREEN_CURSOR_UNDERLINE, SCREEN_CURSOR_BAR };

struct screen_cursor {
    unsigned row, col; /* from 0; col < cols */
    bool wrap_next;    /* the last column is written; the next character goes to the next row */
    bool visible;
    bool blinking;
    enum screen_cursor_style style;
};

enum screen_mouse {
    SCREEN_MOUSE_OFF,
    SCREEN_MOUSE_X10,     /* 9: presses */
    SCREEN_MOUSE_BUTTONS, /* 1000: presses and releases */
    SCREEN_MOUSE_DRAG,    /* 1002: and motion while a button is down */
    SCREEN_MOUSE_ALL      /* 1003: and all motion */
};

enum screen_mouse_code {
    SCREEN_MOUSE_BYTES,
    SCREEN_MOUSE_UTF8,  /* 1005 */
    SCREEN_MOUSE_SGR,   /* 1006 */
    SCREEN_MOUSE_URXVT, /* 1015 */
    SCREEN_MOUSE_PIXELS /* 1016 */
};

struct screen_modes {
    bool alternate;       /* 47, 1047, 1049 */
    bool app_cursor;      /* 1: arrows send ESC O */
    bool app_keypad;      /* ESC = */
    bool bracketed_paste; /* 2004 */
    bool focus_events;    /* 1004 */
    bool synchronized;    /* 2026: the program is drawing; a viewer waits for its end */
    bool autowrap;        /* 7 */
    bool origin;          /* 6 */
    bool insert;          /* CSI 4 h */
    bool newline;         /* CSI 20 h: LF does CR too */
    bool reverse;         /* 5: whole screen in reverse video */
    enum screen_mouse mouse;
    enum screen_mouse_code mouse_code;
};

struct screen_cursor screen_cursor(const struct screen *screen);
struct screen_modes screen_modes(const struct screen *screen);
/* By OSC 0 or 2; UTF-8, at most SCREEN_TITLE_MAX bytes. Lives until the next feed. */
struct str screen_title(const struct screen *screen);

/* ---- text and cells ---------------------------------------------------------------------------
 */

/* Visible rows joined by '\n', blanks at their ends left out; UTF-8 without control characters. */
void screen_text(const struct screen *screen, struct buf *out);
/* One row, counted from the top; negative ones are scrollback, -1 the newest. None: nothing. */
void screen_row_text(const struct screen *screen, int row, struct buf *out);
/* Rows that can be read above the visible ones. */
unsigned screen_scrollback(const struct screen *screen);
/* The newest `rows` of them, as screen_text does. */
void screen_scrollback_text(const struct screen *screen, unsigned rows, struct buf *out);

enum screen_attr {
    SCREEN_BOLD = 1 << 0,
    SCREEN_DIM = 1 << 1,
    SCREEN_ITALIC = 1 << 2,
    SCREEN_BLINK = 1 << 3,
    SCREEN_REVERSE = 1 << 4,
    SCREEN_CONCEAL = 1 << 5,
    SCREEN_STRIKE = 1 << 6,
    SCREEN_OVERLINE = 1 << 7,
    SCREEN_UNDERLINE = 7 << 8 /* 0 none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed */
};
#define SCREEN_UNDERLINE_SHIFT 8

/* A colour: SCREEN_DEFAULT, SCREEN_INDEXED | 0..255, or SCREEN_RGB | 0xrrggbb. */
#define SCREEN_DEFAULT 0u
#define SCREEN_INDEXED (1u << 24)
#define SCREEN_RGB (2u << 24)
#define SCREEN_COLOR_KIND (3u << 24)

struct screen_cell {
    char text[32];       /* UTF-8 with its combining marks, NUL-terminated; "" when blank */
    unsigned char len;   /* of text */
    unsigned char width; /* 1, or 2 for a wide character; 0 for the column that one covers */
    uint16_t attrs;      /* of enum screen_attr */
    uint32_t fg, bg, ul; /* ul: of the underline */
};

/* False outside of the screen. Rows as for screen_row_text. */
bool screen_cell(const struct screen *screen, int row, unsigned col, struct screen_cell *out);
/* Does the row go on in the next one, by the edge alone? */
bool screen_row_wrapped(const struct screen *screen, int row);

/*
 * {rows, cols, cursor, title, modes, lines: [[{text, fg?, bg?, ul?, attrs?}…]…]}: every line is its
 * runs of equal looks; colours are 0..255 or "#rrggbb".
 */
void screen_json(const struct screen *screen, struct json_out *out);

/*
 * Bytes that make an xterm of the same size, in whatever state it is, show and do as this screen:
 * both grids, cursor, saved cursors, margins, tabs, modes, title; `scrollback` newest rows above;
 * and the beginning of a sequence whose end has not come yet, so that what comes next continues it.
 * Feeding it to a screen_new of the same size makes an equal one (screen_equal).
 */
void screen_keyframe(const struct screen *screen, unsigned scrollback, struct buf *out);
/* The same size, look and behaviour from here on; scrollback is not compared. */
bool screen_equal(const struct screen *a, const struct screen *b);

/* ---- answers ----------------------------------------------------------------------------------
 */

/*
 * What a terminal would have answered (device attributes, cursor reports), in order, up to
 * SCREEN_REPLIES_MAX bytes; further ones are dropped. A viewer's terminal answers by itself, so
 * these are for the time when nobody watches. The view lives until the next call.
 */
struct str screen_replies(const struct screen *screen);
void screen_replies_clear(struct screen *screen);
