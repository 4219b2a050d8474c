/* term_own - what term.c and attach.c share. */
#pragma once

#include "box/own.h"
#include "box/term.h"

#define TERM_RECENT 64 /* records in memory */

/* Of the log, on disk. */
struct record {
    uint64_t end_kind; /* position of the frame's end << 8 | enum term_kind */
    uint32_t ms;       /* since the command started */
    uint16_t rows, cols;
};

struct box_term {
    struct box_exec *exec;
    unsigned rows, cols;

    struct spool log;
    uint64_t frames; /* records in it */
    uint64_t logged; /* the position that they reach */
    struct record recent[TERM_RECENT];
    bool troubled; /* the disk refuses; said once */

    struct screen *screen; /* NULL: not built */
    uint64_t seen;         /* its position */
    uint64_t answered;     /* what was asked before here needs no answer any more */
    uint64_t key_at;       /* of the keyframe that is kept */
    bool key_made;
    struct timer drop; /* of the screen of one that has ended */

    struct list attached; /* oldest first */
    unsigned viewers, controllers;
    struct timer lease, news;
};

/* Frames for all bytes that have none yet. */
void term_log_bytes(struct box_term *term);

/* ---- attach.c ---- */

void attach_init(struct box_term *term);
void attach_free(struct box_term *term);
void attach_all(struct box_term *term); /* whoever can take more gets more */
