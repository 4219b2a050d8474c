/*
 * own - the parts of a screen, for the files of this room.
 *
 * A grid is an array of rows; scrolling moves pointers to rows, not cells. There are two grids,
 * `main` and `alt`; `on` is the one shown. Cells from row->used on were never written: they look
 * like row->fill, so that clearing a row in any colour is one store. A sequence of a few bytes can
 * clear or scroll the whole screen, so that must cost little.
 *
 * A wide character has its code in a CELL_WIDE and a CELL_TAIL behind it, never one without the
 * other; CELL_PAD is the blank last column that a wide character left because it did not fit. A row
 * is `wrapped` when the next row continues it by the edge alone; its last column is then written.
 */
#pragma once

#include <assert.h>

#include "base/mem.h"
#include "term/screen.h"

enum cell_kind {
    CELL_NARROW, /* or blank, when code is 0 */
    CELL_WIDE,
    CELL_TAIL, /* the column that the wide one before it covers: code 0 */
    CELL_PAD   /* blank, see above */
};

/* `code` must be the low bits of word[0]: print_ascii adds to it. */
union cell {
    struct {
        uint64_t code : 21, kind : 2, marks : 15, ul : 26;
        uint64_t fg : 26, bg : 26, attrs : 12;
    };
    uint64_t word[2];
};
static_assert(sizeof(union cell) == 16, "cells are compact");
static_assert(SCREEN_MARKS_MAX <= 1 << 15, "marks is an index");

#define CELL_COLOR(color) ((color)&0x3ffffffu)

struct row {
    union cell fill; /* how cells[used…] look; blank or, after DECALN, an E */
    uint32_t used;
    bool wrapped;
    union cell cells[]; /* `cols` of them */
};

/* What ESC 7 keeps; one for each grid, as in xterm. */
struct cursor {
    unsigned row, col;
    bool wrap_next;
    bool origin;
    union cell pen;     /* looks of what is written next: code, kind and marks are 0 */
    uint8_t charset[4]; /* of enum charset, G0 to G3 */
    uint8_t gl;         /* which of them is in use */
};

enum charset {
    CHARSET_ASCII,
    CHARSET_LINES, /* DEC special graphics */
    CHARSET_UK
};

struct grid {
    struct row **rows; /* owned; NULL while the alternate grid was never used */
    struct cursor saved;
};

/* Combining marks of one cell, as UTF-8; cell.marks is the index, 0 means none. */
#define MARKS_BYTES 22
struct marks {
    uint8_t len;
    bool live; /* while sweeping */
    char text[MARKS_BYTES];
};

struct marks_table {
    struct marks *at;     /* owned; [0] is not used */
    uint32_t size, count; /* count: in use, or not yet swept */
    uint32_t next;        /* no free one is before it */
    uint32_t asked;       /* for room, since the last sweep */
    bool frozen;          /* some cells are in no grid now: no sweep */
};

/* Rows that scrolled off, packed (see scrollback.c). */
struct scrollback {
    struct line **ring; /* owned */
    uint32_t size;      /* of ring; grows up to max */
    uint32_t first, count;
    uint32_t max;
    size_t bytes;     /* of all lines */
    uint8_t *scratch; /* owned: where a row is packed, PACKED_CELL_MAX for each of… */
    uint32_t scratch_cols;
};

enum parse_state {
    PARSE_GROUND,
    PARSE_UTF8,   /* seq holds the first bytes of a character */
    PARSE_ESCAPE, /* seq holds what came behind ESC */
    PARSE_CSI,    /* …behind ESC [ */
    PARSE_STRING  /* …behind ESC and the byte in `string` */
};

struct parser {
    enum parse_state state;
    char string; /* ']' OSC, 'P' DCS, '_' APC, '^' PM, 'X' SOS, 'k' title of screen(1) */
    bool over;   /* more came than fits; what is in seq means nothing */
    uint32_t len;
    char seq[SCREEN_SEQ_MAX];
};

struct screen {
    unsigned rows, cols;
    struct grid main, alt, *on;
    struct cursor at;
    uint8_t shift;        /* SS2 or SS3: the set for one character, else 0 */
    uint32_t last;        /* character that REP repeats; 0 once anything else came */
    unsigned top, bottom; /* rows that scroll, both inside */
    struct screen_modes modes;
    bool hidden, blinking;
    enum screen_cursor_style style;
    uint64_t tabs[(SCREEN_COLS_MAX + 63) / 64];
    uint32_t title_len;
    char title[SCREEN_TITLE_MAX];
    struct marks_table marks;
    struct scrollback back;
    struct parser parser;
    struct buf replies;
    uint64_t generation;
};

/* A cell that shows nothing, in the background of the pen. */
static inline union cell cell_blank(const struct screen *screen)
{
    return (union cell){ .bg = screen->at.pen.bg };
}

static inline bool cell_same(union cell a, union cell b)
{
    return a.word[0] == b.word[0] && a.word[1] == b.word[1];
}

/* Without what it shows. */
static inline union cell cell_looks(union cell cell)
{
    return (union cell){ .ul = cell.ul, .fg = cell.fg, .bg = cell.bg, .attrs = cell.attrs };
}

static inline union cell cell_at(const struct row *row, unsigned col)
{
    return col < row->used ? row->cells[col] : row->fill;
}

/* The active row; no bounds are checked. */
static inline struct row *row_at(const struct screen *screen, unsigned row)
{
    return screen->on->rows[row];
}

static inline unsigned clamp(unsigned value, unsigned max)
{
    return value < max ? value : max;
}

/* grid.c: rows and cells */
void grid_make(struct grid *grid, unsigned rows, unsigned cols);
void grid_free(struct grid *grid, unsigned rows);
struct row *grid_row_new(unsigned cols);
/* Writes down what row->fill stood for, up to `to`. */
void grid_write_fill(struct row *row, unsigned to);
/* Room for cells [from, to) to be written: what lies before is there, wide ones are not cut. */
void grid_open(struct screen *screen, struct row *row, unsigned from, unsigned to);
void grid_clear_row(struct row *row, union cell blank);
/* Makes cells [from, to) of a row blank in the pen's background; wide ones that are cut go whole.
 */
void grid_erase(struct screen *screen, unsigned row, unsigned from, unsigned to);
void grid_erase_rows(struct screen *screen, unsigned from, unsigned to);
/* The row above `row` no longer goes on in it. */
void grid_cut(struct screen *screen, unsigned row);
void grid_insert_cells(struct screen *screen, unsigned n);
void grid_delete_cells(struct screen *screen, unsigned n);

enum {
    SCROLL_KEEP = 1, /* rows that leave the screen at its top go to the scrollback */
    SCROLL_WRAP = 2  /* the last row goes on in the new one */
};
void grid_scroll_up(struct screen *screen, unsigned top, unsigned n, unsigned flags);
void grid_scroll_down(struct screen *screen, unsigned top, unsigned n);
/* One row down, scrolling at the bottom margin. `wrapped`: because the row was full. */
void grid_linefeed(struct screen *screen, bool wrapped);
void grid_reverse_linefeed(struct screen *screen);

/* write.c: characters */
void write_ascii(struct screen *screen, const char *text, size_t len);
void write_code(struct screen *screen, uint32_t code);
void write_repeat(struct screen *screen, unsigned times);

/* marks.c: combining marks */
void marks_add(struct screen *screen, union cell *cell, uint32_t code);
/* Of a cell that comes from elsewhere; 0 when there is no room. */
uint32_t marks_new(struct screen *screen, struct str text);
struct str marks_text(const struct screen *screen, union cell cell);

/* scrollback.c: rows that left */
struct line {
    uint32_t len;  /* of data */
    uint32_t cols; /* that it covers, blanks at its end left out */
    bool wrapped;
    uint8_t data[];
};
void scrollback_push(struct screen *screen, const struct row *row);
/* The same of a row that has another width than the screen. */
void scrollback_push_cols(struct screen *screen, const struct row *row, unsigned cols);
struct line *scrollback_pop(struct screen *screen); /* gives the newest; NULL for none */
void scrollback_clear(struct screen *screen);
void scrollback_free(struct scrollback *back);
void scrollback_cut(struct screen *screen); /* the newest row no longer goes on in row 0 */
/* 0 is the newest. */
const struct line *scrollback_at(const struct screen *screen, unsigned back);

/*
 * glyph.c: what stands in a row, wherever the row is. Rows count from the top; negative ones are
 * scrollback. Blanks at the end of a row do not come.
 */
struct glyph {
    char text[32]; /* with its marks; nothing when blank */
    uint8_t len, width;
    bool pad;
    union cell looks; /* code, kind and marks are 0 */
};

struct glyphs {
    const struct screen *screen;
    const struct row *row; /* or… */
    const struct line *line;
    unsigned at, end;
    union cell looks; /* of the line, here */
};
struct glyphs glyphs_of(const struct screen *screen, int row);
struct glyphs glyphs_of_row(const struct screen *screen, const struct row *row);
struct glyphs glyphs_of_line(const struct line *line);
bool glyphs_next(struct glyphs *glyphs, struct glyph *out);
/* Cells up to the last one that is not blank. */
unsigned glyph_row_len(const struct row *row, unsigned cols);

enum glyph_tag { /* in a line's data; other bytes are UTF-8 */
                 GLYPH_BLANK = 0,
                 GLYPH_MARKS = 0xfc, /* of the character before: length, bytes */
                 GLYPH_PAD = 0xfd,
                 GLYPH_WIDE = 0xfe, /* the next character is */
                 GLYPH_LOOKS = 0xff /* from here on: GLYPH_LOOKS_BYTES of a cell */
};
#define GLYPH_LOOKS_BYTES (sizeof(uint64_t) * 2)
/* A cell at its worst: new looks, wide tag, character, marks. */
#define PACKED_CELL_MAX (1 + GLYPH_LOOKS_BYTES + 1 + 4 + 2 + MARKS_BYTES)

/* width.c: columns of a character: 0, 1 or 2 */
unsigned width_of(uint32_t code);
/* Writes 1 to 4 bytes. */
size_t utf8_put(uint32_t code, char out[4]);

/* equal.c */
bool equal_cursor(const struct cursor *x, const struct cursor *y);

/* screen.c */
void screen_tabs_reset(struct screen *screen);

/* control.c: single characters, ESC sequences, strings */
void control_byte(struct screen *screen, unsigned char byte);
void control_print(struct screen *screen, unsigned char byte);
void control_escape(struct screen *screen, struct str seq);
void control_string(struct screen *screen, char kind, struct str seq);
void control_save(struct screen *screen);
void control_restore(struct screen *screen);
void control_alternate(struct screen *screen, bool on);
void control_goto(struct screen *screen, unsigned row, unsigned col); /* clamped to the screen */
/* Does printable ASCII stand for itself? */
static inline bool control_is_plain(const struct screen *screen)
{
    return !screen->shift && screen->at.charset[screen->at.gl] == CHARSET_ASCII;
}

/* csi.c, sgr.c, mode.c: control sequences */
struct csi {
    char private; /* one of <=>?, or 0 */
    char inter;   /* intermediate, or 0 */
    char final;
    unsigned count;
    int param[SCREEN_PARAMS_MAX];  /* -1: left out */
    bool colon[SCREEN_PARAMS_MAX]; /* follows the one before by ':' */
};
void csi_run(struct screen *screen, struct str seq);
/* A parameter, or `otherwise` when it is left out or 0. */
static inline unsigned csi_count(const struct csi *csi, unsigned i, unsigned otherwise)
{
    return i < csi->count && csi->param[i] > 0 ? (unsigned)csi->param[i] : otherwise;
}
void sgr_run(struct screen *screen, const struct csi *csi);
void sgr_put(struct buf *out, union cell looks);
void mode_put(const struct screen *screen, struct buf *out); /* those that are set */
void mode_run(struct screen *screen, const struct csi *csi, bool set);
int mode_get(const struct screen *screen, bool private, unsigned mode);
