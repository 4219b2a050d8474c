/*
 * A tunnel: bytes both ways by splice, so that they never pass through this process. Between the
 * two calls they are in a pipe, whose size is all that can wait; an idle tunnel has none.
 *
 * When one end has said all, the other is told (shutdown) and may go on; when both have, or either
 * breaks, it is over. So it is when the sandbox has used up its bytes and there is one more.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "egress/own.h"

#define PIPE_SIZE (1 << 20)
#define ROUNDS 16 /* for one end, before others have their turn */

enum { UP, DOWN }; /* lanes */

static bool pipe_take(struct egress *egress, int out[2])
{
    if (egress->pipe_count) {
        egress->pipe_count--;
        out[0] = egress->pipes[egress->pipe_count][0];
        out[1] = egress->pipes[egress->pipe_count][1];
        return true;
    }
    if (pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0)
        return false;
    if (egress->pipes_open++ < EGRESS_PIPES_LARGE)
        (void)fcntl(out[1], F_SETPIPE_SZ, PIPE_SIZE); /* a smaller one is slower, no more */
    return true;
}

static void pipe_close(struct egress *egress, const int pipe[2])
{
    egress->pipes_open--;
    close(pipe[0]);
    close(pipe[1]);
}

/* Only an empty one is for others. */
static void pipe_give(struct egress *egress, struct lane *lane)
{
    if (lane->pipe[0] < 0)
        return;
    if (lane->held == 0 && egress->pipe_count < EGRESS_PIPES_MAX) {
        egress->pipes[egress->pipe_count][0] = lane->pipe[0];
        egress->pipes[egress->pipe_count++][1] = lane->pipe[1];
    } else {
        pipe_close(egress, lane->pipe);
    }
    lane->pipe[0] = lane->pipe[1] = -1;
}

void pipes_free(struct egress *egress)
{
    while (egress->pipe_count)
        pipe_close(egress, egress->pipes[--egress->pipe_count]);
}

enum moved { MOVED, WAITS, BROKEN, OVER };

static enum moved failed(void)
{
    return errno == EAGAIN || errno == EINTR ? WAITS : BROKEN;
}

/* What is said first inside is our own word; what is said first outside came from inside. */
static enum moved put_first(struct conn *conn, struct lane *lane)
{
    bool counts = lane == &conn->lanes[UP];
    size_t most = counts ? (size_t)MIN(lane->first->len, box_left(conn->box)) : lane->first->len;

    if (!most)
        return OVER;
    ssize_t put = send(lane->to, lane->first->data, most, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0)
        return failed();
    if (counts) {
        *lane->count += (uint64_t)put;
        box_uses(conn->box, (size_t)put);
    }
    buf_consume(lane->first, (size_t)put);
    if (!lane->first->len)
        buf_free(lane->first);
    return MOVED;
}

static enum moved fill(struct conn *conn, struct lane *lane)
{
    size_t most = conn_may_take(conn, lane->from, PIPE_SIZE);

    if (!most)
        return OVER;
    if (lane->pipe[0] < 0 && !pipe_take(conn->box->egress, lane->pipe))
        return BROKEN;
    ssize_t got =
        splice(lane->from, NULL, lane->pipe[1], NULL, most, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    if (got < 0)
        return failed();
    box_uses(conn->box, (size_t)got);
    lane->held = (size_t)got;
    lane->eof = got == 0;
    return MOVED;
}

static enum moved drain(struct lane *lane)
{
    ssize_t put =
        splice(lane->pipe[0], NULL, lane->to, NULL, lane->held, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

    if (put < 0)
        return failed();
    lane->held -= (size_t)put;
    *lane->count += (uint64_t)put;
    return MOVED;
}

static bool blocked(const struct lane *lane)
{
    return lane->held || lane->first->len;
}

/* The first bytes; for others their socket will wake us. */
static enum moved begin(struct conn *conn, struct lane *lane)
{
    enum moved moved = MOVED;

    while (lane->first->len && moved == MOVED)
        moved = put_first(conn, lane);
    return moved;
}

static enum moved pump(struct conn *conn, struct lane *lane)
{
    const struct lane *other = &conn->lanes[lane == &conn->lanes[UP] ? DOWN : UP];
    enum moved moved = MOVED;

    for (int i = 0; i < ROUNDS && moved == MOVED && !lane->shut; i++) {
        if (lane->first->len) {
            moved = put_first(conn, lane);
        } else if (lane->held) {
            moved = drain(lane);
        } else if (lane->eof) {
            lane->shut = true;
            if (!other->shut && shutdown(lane->to, SHUT_WR) < 0)
                return BROKEN; /* the last word is said by closing it */
        } else {
            moved = fill(conn, lane);
        }
    }
    if (!lane->held)
        pipe_give(conn->box->egress, lane);
    return moved;
}

static uint32_t events_of(const struct lane *from, const struct lane *to)
{
    return (!from->eof && !blocked(from) ? EPOLLIN : 0) | (blocked(to) ? EPOLLOUT : 0);
}

static void moved_on(struct conn *conn, bool down, uint32_t events, enum moved up, enum moved back)
{
    struct lane *up_lane = &conn->lanes[UP], *down_lane = &conn->lanes[DOWN];

    if (up == BROKEN || back == BROKEN || (up_lane->shut && down_lane->shut)) {
        conn_close(conn);
        return;
    }
    if (up == OVER || back == OVER) {
        conn_over_limit(conn);
        return;
    }
    /*
     * Hung up: it takes nothing more and has said all. What it said last still waits for the other
     * end; the kernel would repeat itself until then.
     */
    if (events & EPOLLHUP && blocked(down ? up_lane : down_lane)) {
        conn_wants(conn, down ? UINT32_MAX : events_of(up_lane, down_lane),
                   down ? events_of(down_lane, up_lane) : UINT32_MAX);
        return;
    }
    if (events & EPOLLHUP && (down ? up_lane : down_lane)->eof) {
        conn_close(conn);
        return;
    }
    conn_wants(conn, events_of(up_lane, down_lane), events_of(down_lane, up_lane));
}

/* Only what can be moved now is tried. */
void relay_woken(struct conn *conn, bool down, uint32_t events)
{
    uint32_t in = EPOLLIN | EPOLLHUP, out = EPOLLOUT | EPOLLHUP;
    enum moved up = WAITS, back = WAITS;

    if (events & EPOLLERR)
        up = BROKEN;
    else if (events & (down ? in : out))
        up = pump(conn, &conn->lanes[UP]);
    if (up != BROKEN && events & (down ? out : in))
        back = pump(conn, &conn->lanes[DOWN]);
    if (up == MOVED && !conn->lanes[UP].shut && conn->down.events & EPOLLET)
        loop_change(conn->box->egress->loop, &conn->down, EPOLLIN); /* or it was told for good */
    moved_on(conn, down, events, up, back);
}

void relay_start(struct conn *conn)
{
    conn->lanes[UP] = (struct lane){ .from = conn->down.fd,
                                     .to = conn->up.fd,
                                     .first = &conn->ahead,
                                     .pipe = { -1, -1 },
                                     .count = &conn->sent };
    conn->lanes[DOWN] = (struct lane){ .from = conn->up.fd,
                                       .to = conn->down.fd,
                                       .first = &conn->out,
                                       .pipe = { -1, -1 },
                                       .count = &conn->received };
    conn_stage(conn, STAGE_TUNNEL, 0);
    enum moved up = begin(conn, &conn->lanes[UP]), back = begin(conn, &conn->lanes[DOWN]);
    moved_on(conn, true, 0, up, back);
}

void relay_free(struct conn *conn)
{
    for (int i = 0; i < 2; i++)
        if (conn->lanes[i].count)
            pipe_give(conn->box->egress, &conn->lanes[i]);
}
