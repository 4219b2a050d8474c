/*
 * pace - the command waits for readers that must have every byte.
 *
 * Such a reader (a holder) says how far it has read. The init of the sandbox is told to drop bytes
 * only up to EXEC_AHEAD beyond the slowest holder. When its own ring is full it stops reading, and
 * the command blocks in write. So a spool of SPOOL_RING bytes always has what lies between the
 * slowest holder and the end, and as much again of what that holder was sent before, which is more
 * than a broken connection can lose.
 *
 * A holder whose connection broke is away. Its position stays, in memory and in the head of the
 * spool's file, where the next process finds it after a kill. The command runs on until it needs
 * the room; from then on it is held back for EXEC_AWAY_MS and the position is given up. A command
 * that was started with `hold` has one holder that is away at position 0.
 *
 * Signals and timeouts do not go through here: a command that is held back can be killed.
 */
#include <assert.h>

#include "base/log.h"
#include "box/own.h"

/* Room that is worth an acknowledgement of its own while the command is held back. */
#define ROOM_LEAST (INIT_RING_SIZE / 4)

/*
 * Init sends INIT_RING_SIZE beyond an acknowledgement, and INIT_RING_ENDED at the end of a command.
 * The rest of the ring is for broken connections.
 */
static_assert(EXEC_AHEAD + INIT_RING_ENDED < SPOOL_RING / 4 * 3,
              "the ring keeps what holders need");

static uint64_t slowest(const struct box_exec *exec, unsigned stream)
{
    uint64_t least = exec->pace.away ? exec->pace.at[stream] : POSITION_ANY;

    list_each (pos, &exec->readers) {
        const struct box_reader *reader = list_entry(pos, struct box_reader, node);

        if (reader->holds)
            least = MIN(least, reader->at[stream]);
    }
    return least;
}

/* The end of the room that a position leaves. */
static uint64_t room_of(const struct box_exec *exec, unsigned stream, uint64_t position)
{
    uint64_t end = exec->spool[stream].end;

    return position >= end || end - position <= EXEC_AHEAD ? end : position + EXEC_AHEAD;
}

uint64_t pace_limit(const struct box_exec *exec, unsigned stream)
{
    return room_of(exec, stream, slowest(exec, stream));
}

static unsigned holders(const struct box_exec *exec)
{
    unsigned count = exec->pace.away;

    list_each (pos, &exec->readers)
        count += list_entry(pos, struct box_reader, node)->holds;
    return count;
}

/* For the heads of the files; `now`: written, and not with the next bytes. */
static void note(struct box_exec *exec, bool now)
{
    char name[SPOOL_NAME_SIZE];
    unsigned count = holders(exec);
    struct err err = { 0 };

    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        exec->spool[s].holders = count;
        exec->spool[s].held = slowest(exec, s);
        spool_name(name, exec->id, s);
        if (now && spool_note(&exec->spool[s], exec->box->boxes->spool_dir, name, &err) < 0)
            log_warn("a restart will not know that a reader holds a command",
                     kv_str("exec", exec->id), kv_str("error", err.msg));
    }
}

/* ---- holders that are away ---- */

bool pace_held(const struct box_exec *exec)
{
    return timer_is_set(&exec->pace.lapse);
}

static void settle_away(struct box_exec *exec)
{
    struct loop *loop = exec->box->boxes->loop;
    bool needed = false;

    for (unsigned s = 0; exec->pace.away && s < INIT_STREAMS; s++)
        needed |= room_of(exec, s, exec->pace.at[s]) < exec->spool[s].end;
    if (!needed) {
        timer_cancel(loop, &exec->pace.lapse);
        return;
    }
    if (pace_held(exec))
        return;
    timer_set(loop, &exec->pace.lapse, exec->box->boxes->away_ms);
    list_each_safe (pos, &exec->waits) {
        struct box_wait *wait = list_entry(pos, struct box_wait, node);

        if (wait->till_held)
            timer_set(loop, &wait->timer, 0);
    }
}

/* A holder came, went or has read: there may be room for init. */
static void moved(struct box_exec *exec)
{
    bool due = false;

    if (exec->state != EXEC_RUNNING)
        return;
    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        uint64_t limit = pace_limit(exec, s), acked = exec->pace.acked[s];

        due |= limit > acked && (limit == exec->spool[s].end || limit - acked >= ROOM_LEAST);
    }
    note(exec, false);
    if (due) {
        exec->ack_due = true;
        exec_ack(exec);
    }
    settle_away(exec);
}

static void lapse(struct timer *timer)
{
    struct box_exec *exec = container_of(timer, struct box_exec, pace.lapse);

    exec->pace.away = 0;
    note(exec, true);
    moved(exec);
}

static void go_away(struct box_exec *exec, const struct box_reader *reader)
{
    for (unsigned s = 0; s < INIT_STREAMS; s++)
        exec->pace.at[s] = exec->pace.away ? MIN(exec->pace.at[s], reader->at[s]) : reader->at[s];
    exec->pace.away++;
}

/* ---- the command ---- */

void pace_init(struct box_exec *exec)
{
    exec->pace.lapse.fn = lapse;
}

void pace_started(struct box_exec *exec)
{
    if (!exec->spec.hold)
        return;
    exec->pace.away = 1;
    note(exec, false);
}

void pace_load(struct box_exec *exec)
{
    bool made = false;

    if (exec_over(exec))
        return;
    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        const struct spool *spool = &exec->spool[s];

        made |= spool->made;
        exec->pace.most[s] = spool->end;
        exec->pace.at[s] = spool->holders ? spool->held : 0;
        exec->pace.away = MAX(exec->pace.away, spool->holders);
    }
    if (!made)
        pace_started(exec);
}

void pace_end(struct box_exec *exec)
{
    exec->pace.away = 0;
    timer_cancel(exec->box->boxes->loop, &exec->pace.lapse);
}

void pace_acked(struct box_exec *exec, const uint64_t position[INIT_STREAMS])
{
    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        exec->pace.acked[s] = position[s];
        exec->pace.most[s] = MAX(exec->pace.most[s], position[s]);
    }
    settle_away(exec);
}

bool pace_allows(const struct box_exec *exec, unsigned stream, uint64_t end)
{
    return slowest(exec, stream) == POSITION_ANY ||
           end <= exec->pace.most[stream] + INIT_RING_ENDED;
}

/* ---- readers ---- */

void box_exec_follow(struct box_exec *exec, struct box_reader *reader)
{
    reader->exec = exec;
    list_append(&exec->readers, &reader->node);
    if (!reader->holds || exec_over(exec))
        return;
    if (exec->pace.away)
        exec->pace.away--;
    note(exec, true);
    moved(exec);
}

void box_exec_unfollow(struct box_reader *reader)
{
    struct box_exec *exec = reader->exec;

    list_remove(&reader->node);
    reader->exec = NULL;
    if (!exec || exec_over(exec))
        return;
    if (reader->holds)
        go_away(exec, reader);
    moved(exec);
}

void box_exec_advance(struct box_reader *reader, unsigned stream, uint64_t at)
{
    if (!reader->holds || !reader->exec)
        return;
    reader->at[stream] = at;
    moved(reader->exec);
}

void reader_gone(struct box_reader *reader)
{
    list_remove(&reader->node);
    reader->exec = NULL;
    reader->gone(reader);
}
