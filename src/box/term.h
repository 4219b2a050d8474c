/*
 * term - terminals: a command with a PTY, its screen, the log of its frames, who watches it and who
 * may type.
 *
 * A terminal is no second object: it is what a command with `tty` has besides, and its id is the
 * command's. All that was printed is in the spool, by position. The log beside it cuts the stream
 * into numbered frames, each with its time and the size of the terminal, in the order in which
 * things happened; every way of watching walks along that log, so replay, gaps and recordings exist
 * once. Loop thread.
 */
#pragma once

#include "box/boxes.h"

struct box_term;
struct screen;

enum term_kind {
    TERM_OUTPUT = 1, /* bytes */
    TERM_RESIZE,     /* another size from here on */
    TERM_NOTE,       /* a number for something that is told and not kept */
};

struct term_frame {
    uint64_t number; /* from 0 on, without holes */
    enum term_kind kind;
    uint64_t from, to; /* positions in the output */
    int64_t at_ms;     /* wall clock */
    unsigned rows, cols;
};

/* NULL for a command without a terminal; otherwise valid as long as the command is known. */
struct box_term *box_exec_term(struct box_exec *exec);
struct box_exec *term_exec(const struct box_term *term);
void term_size(const struct box_term *term, unsigned *rows, unsigned *cols);
void term_first_size(const struct box_term *term, unsigned *rows, unsigned *cols);
/* Frames that can still be given whole: numbers in [*begin, *end). */
void term_range(struct box_term *term, uint64_t *begin, uint64_t *end);
/* A frame of the log: 1, 0 when there is none yet. ERR_GONE: no longer kept. */
must_use int term_frame(struct box_term *term, uint64_t number, struct term_frame *out,
                        struct err *err);
/* The frame that holds this position, or the one that comes next. ERR_GONE likewise. */
must_use int term_find(struct box_term *term, uint64_t position, uint64_t *number, struct err *err);
/*
 * The screen as of *position: everything that has been printed. Valid until the next round of the
 * loop; NULL when the output cannot be read.
 */
struct screen *term_screen(struct box_term *term, uint64_t *position, struct err *err);

/* ---- watching ---- */

enum attach_role { ATTACH_OBSERVER, ATTACH_CONTROLLER };

/* Why a role is what it is now. */
enum attach_why {
    ATTACH_ASKED,    /* as it was wished */
    ATTACH_HELD,     /* somebody else controls it already */
    ATTACH_TAKEN,    /* somebody took it over */
    ATTACH_IDLE,     /* nothing was typed for the length of a lease */
    ATTACH_RELEASED, /* given back */
};
const char *attach_role_name(enum attach_role role);
const char *attach_why_name(enum attach_why why);

struct attach;

/*
 * How one protocol tells it. A call that returns bool says whether there may be more at once; after
 * false comes nothing until attach_drained. Nothing is called from inside attach_open; `ended` and
 * `lost` may free the attachment, the others may not.
 */
struct attach_ops {
    /* The bytes of an output frame from attach->at on; others come without. */
    bool (*frame)(struct attach *attach, const struct term_frame *frame, struct str data);
    /* What is in [attach->at, to) cannot be had; a keyframe at `to` follows. */
    void (*gap)(struct attach *attach, uint64_t to);
    /* Bytes that paint the whole screen as it was at attach->at, which is before attach->frame. */
    bool (*keyframe)(struct attach *attach, struct str data);
    void (*role)(struct attach *attach, enum attach_why why);
    void (*members)(struct attach *attach, uint64_t number); /* may be NULL */
    void (*room)(struct attach *attach);                     /* after attach_input said 1 */
    void (*ended)(struct attach *attach); /* all was given, and the end is stored */
    /* Not attached any more: it read too slowly, or the command is being forgotten. */
    void (*lost)(struct attach *attach, const char *why);
};

struct attach {
    const struct attach_ops *ops;
    struct box_term *term; /* NULL: not attached */
    struct list node;
    char id[12];       /* of this attachment */
    char who[ID_SIZE]; /* the principal */
    bool may_control;
    enum attach_role role;
    uint64_t frame, at; /* what it gets next: a frame, and the position of its first byte */
    int64_t active_ms;  /* when its lease was last used, monotonic */
    bool waiting, going, fresh, end_told, wants_key;
};

enum attach_from { ATTACH_SCREEN, ATTACH_POSITION, ATTACH_FRAME };

struct attach_wish {
    enum attach_role role;
    bool take; /* from whoever controls it */
    enum attach_from from;
    uint64_t place;
};

/*
 * Joins; attach->role says as what and *why tells the reason. ops, who and may_control are set
 * before. ERR_RANGE: a place that is not there yet. ERR_RATE: too many watch it. ERR_FORBIDDEN.
 */
must_use int attach_open(struct attach *attach, struct box_exec *exec,
                         const struct attach_wish *wish, enum attach_why *why, struct err *err);
/* From now on it is told things. */
void attach_go(struct attach *attach);
void attach_drained(struct attach *attach);
/* Leaves; the command goes on. Fine when not attached. */
void attach_close(struct attach *attach);
/* A keyframe of the screen now, in its turn: what was not given yet is left out as a gap. */
void attach_repaint(struct attach *attach);

/* Wants to type: 1 may, 0 somebody else does (ops->role tells both); ERR_FORBIDDEN. */
must_use int attach_control(struct attach *attach, bool take, struct err *err);
void attach_release(struct attach *attach);
/*
 * 0 taken; 1 taken, and the next only after ops->room. ERR_FORBIDDEN for an observer, ERR_LIMIT
 * over TERM_INPUT_MAX, ERR_CONFLICT when it has ended.
 */
must_use int attach_input(struct attach *attach, struct str data, struct err *err);
must_use int attach_resize(struct attach *attach, int64_t rows, int64_t cols, struct err *err);
must_use int attach_signal(struct attach *attach, int number, bool tree, struct err *err);

/* Who is there, one after the other; NULL begins and ends. */
struct attach *term_attached(struct box_term *term, struct attach *after);
unsigned term_viewers(const struct box_term *term);
unsigned term_controllers(const struct box_term *term);
unsigned term_lease_count(const struct box_term *term); /* how many may control it at once */
int64_t term_lease_ms(const struct box_term *term);
/* A number of the log for something that is told to watchers and not kept. */
uint64_t term_note(struct box_term *term);
