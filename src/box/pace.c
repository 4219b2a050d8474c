/*
 * pace - the command waits for readers that must have every byte.
 *
 * Such a reader (a holder) says how far it has read. The source (the init of a sandbox, or the
 * keeper of a command on a linked agent) is told to drop bytes only up to EXEC_AHEAD beyond the
 * slowest holder. When its own store is full it stops reading, and the command blocks in write. So
 * a spool of SPOOL_RING bytes always has what lies between the slowest holder and the end, and as
 * much again of what that holder was sent before, which is more than a broken connection can lose.
 *
 * A holder whose connection broke is away. Its position stays, in memory and in the head of the
 * spool's file, where the next process finds it after a kill. The command runs on until it needs
 * the room; from then on it is held back for EXEC_AWAY_MS and the position is given up. A command
 * that was started with `hold` has one holder that is away at position 0.
 *
 * Signals and timeouts do not go through here: a command that is held back can be killed.
 */
#include <assert.h>

#include "base/limits.h"
#include "base/log.h"
#include "box/pace.h"

/* Room that is worth an acknowledgement of its own while the command is held back. */
#define ROOM_LEAST (INIT_RING_SIZE / 4)

/*
 * Init sends INIT_RING_SIZE beyond an acknowledgement, and INIT_RING_ENDED at the end of a command;
 * a keeper sends LINK_KEEP_MAX, and what is in a pipe at the end.
 * The rest of the ring is for broken connections.
 */
static_assert(EXEC_AHEAD + INIT_RING_ENDED < SPOOL_RING / 4 * 3 &&
                  EXEC_AHEAD + LINK_KEEP_MAX < SPOOL_RING / 8 * 7,
              "the ring keeps what holders need");

static uint64_t slowest(const struct pace *pace, unsigned stream)
{
    uint64_t least = pace->away ? pace->at[stream] : POSITION_ANY;

    list_each (pos, &pace->readers) {
        const struct pace_reader *reader = list_entry(pos, struct pace_reader, node);

        if (reader->holds)
            least = MIN(least, reader->at[stream]);
    }
    return least;
}

/* The end of the room that a position leaves. */
static uint64_t room_of(const struct pace *pace, unsigned stream, uint64_t position)
{
    uint64_t end = pace->spools[stream].end;

    return position >= end || end - position <= EXEC_AHEAD ? end : position + EXEC_AHEAD;
}

uint64_t pace_limit(const struct pace *pace, unsigned stream)
{
    return room_of(pace, stream, slowest(pace, stream));
}

static unsigned holders(const struct pace *pace)
{
    unsigned count = pace->away;

    list_each (pos, &pace->readers)
        count += list_entry(pos, struct pace_reader, node)->holds;
    return count;
}

/* For the heads of the files; `now`: written, and not with the next bytes. */
static void note(struct pace *pace, bool now)
{
    char name[SPOOL_NAME_SIZE];
    unsigned count = holders(pace);
    struct err err = { 0 };

    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        pace->spools[s].holders = count;
        pace->spools[s].held = slowest(pace, s);
        spool_name(name, pace->id, s);
        if (now && spool_note(&pace->spools[s], pace->dir, name, &err) < 0)
            log_warn("a restart will not know that a reader holds a command",
                     kv_str("command", pace->id), kv_str("error", err.msg));
    }
}

/* ---- holders that are away ---- */

bool pace_held(const struct pace *pace)
{
    return timer_is_set(&pace->lapse);
}

static void settle_away(struct pace *pace)
{
    bool needed = false;

    for (unsigned s = 0; pace->away && s < INIT_STREAMS; s++)
        needed |= room_of(pace, s, pace->at[s]) < pace->spools[s].end;
    if (!needed) {
        timer_cancel(pace->loop, &pace->lapse);
        return;
    }
    if (pace_held(pace))
        return;
    timer_set(pace->loop, &pace->lapse, pace->away_ms);
    pace->kind->held(pace);
}

/* A holder came, went or has read: there may be room for init. */
static void moved(struct pace *pace)
{
    bool due = false;

    if (pace->kind->over(pace))
        return;
    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        uint64_t limit = pace_limit(pace, s), acked = pace->acked[s];

        due |= limit > acked && (limit == pace->spools[s].end || limit - acked >= ROOM_LEAST);
    }
    note(pace, false);
    if (due)
        pace->kind->room(pace);
    settle_away(pace);
}

static void lapse(struct timer *timer)
{
    struct pace *pace = container_of(timer, struct pace, lapse);

    pace->away = 0;
    note(pace, true);
    moved(pace);
}

static void go_away(struct pace *pace, const struct pace_reader *reader)
{
    for (unsigned s = 0; s < INIT_STREAMS; s++)
        pace->at[s] = pace->away ? MIN(pace->at[s], reader->at[s]) : reader->at[s];
    pace->away++;
}

/* ---- the command ---- */

void pace_init(struct pace *pace)
{
    list_init(&pace->readers);
    pace->lapse.fn = lapse;
}

void pace_started(struct pace *pace)
{
    if (!pace->hold)
        return;
    pace->away = 1;
    note(pace, false);
}

void pace_load(struct pace *pace)
{
    bool made = false;

    if (pace->kind->over(pace))
        return;
    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        const struct spool *spool = &pace->spools[s];

        made |= spool->made;
        pace->most[s] = spool->end;
        pace->at[s] = spool->holders ? spool->held : 0;
        pace->away = MAX(pace->away, spool->holders);
    }
    if (!made)
        pace_started(pace);
}

void pace_end(struct pace *pace)
{
    pace->away = 0;
    timer_cancel(pace->loop, &pace->lapse);
}

void pace_acked(struct pace *pace, const uint64_t position[INIT_STREAMS])
{
    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        pace->acked[s] = position[s];
        pace->most[s] = MAX(pace->most[s], position[s]);
    }
    settle_away(pace);
}

bool pace_allows(const struct pace *pace, unsigned stream, uint64_t end)
{
    return slowest(pace, stream) == POSITION_ANY || end <= pace->most[stream] + INIT_RING_ENDED;
}

/* ---- readers ---- */

void pace_follow(struct pace *pace, struct pace_reader *reader)
{
    reader->pace = pace;
    list_append(&pace->readers, &reader->node);
    if (!reader->holds || pace->kind->over(pace))
        return;
    if (pace->away)
        pace->away--;
    note(pace, true);
    moved(pace);
}

void pace_unfollow(struct pace_reader *reader)
{
    struct pace *pace = reader->pace;

    list_remove(&reader->node);
    reader->pace = NULL;
    if (!pace || pace->kind->over(pace))
        return;
    if (reader->holds)
        go_away(pace, reader);
    moved(pace);
}

void pace_advance(struct pace_reader *reader, unsigned stream, uint64_t at)
{
    if (!reader->holds || !reader->pace)
        return;
    reader->at[stream] = at;
    moved(reader->pace);
}
