/*
 * pace - a command waits for readers that must have every byte; see pace.c. Used by the commands of
 * sandboxes and by those of linked agents. Loop thread.
 */
#pragma once

#include "base/list.h"
#include "box/spool.h"
#include "loop/loop.h"
#include "wire/init.h"

struct pace;

/* What every reader has; embedded. `holds` and `at` are set before pace_follow. */
struct pace_reader {
    struct list node;
    struct pace *pace; /* NULL: not attached */
    bool holds;
    uint64_t at[INIT_STREAMS]; /* of a holder: its next byte; POSITION_ANY: not of this stream */
};
#define POSITION_ANY UINT64_MAX

struct pace_kind {
    bool (*over)(const struct pace *pace); /* nothing more is printed */
    void (*room)(struct pace *pace); /* its source is to be told pace_limit, then pace_acked */
    void (*held)(struct pace *pace); /* it is held back for a reader that is away */
};

struct pace {
    /* set by the owner */
    const struct pace_kind *kind;
    struct loop *loop;
    const char *id;
    struct spool *spools; /* INIT_STREAMS of them */
    int dir;              /* of their files */
    unsigned away_ms;
    bool hold; /* one reader will come */

    struct list readers;
    unsigned away;                /* holders that are not attached and may come back */
    uint64_t at[INIT_STREAMS];    /* the lowest position of these */
    uint64_t acked[INIT_STREAMS]; /* the last acknowledgement to the source */
    uint64_t most[INIT_STREAMS];  /* and the highest; of the process before us: not beyond this */
    struct timer lapse;           /* set while the command is held back for those that are away */
};

/* After the owner's fields. */
void pace_init(struct pace *pace);
void pace_started(struct pace *pace);
void pace_load(struct pace *pace); /* after its spools */
void pace_end(struct pace *pace);
/* How far its source may be told to drop what it keeps. */
uint64_t pace_limit(const struct pace *pace, unsigned stream);
void pace_acked(struct pace *pace, const uint64_t position[INIT_STREAMS]);
bool pace_held(const struct pace *pace);
/* Whether its source had room to send up to here. */
bool pace_allows(const struct pace *pace, unsigned stream, uint64_t end);

void pace_follow(struct pace *pace, struct pace_reader *reader);
void pace_unfollow(struct pace_reader *reader);
void pace_advance(struct pace_reader *reader, unsigned stream, uint64_t at);
