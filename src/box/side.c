/*
 * A stream for an operation's bytes alone, beside the frames: both ends are made here, and the
 * operation writes into its own. So a file goes from the page cache into the socket by reference
 * and is copied twice on its way to a peer, not four times; and process 1 has no part in it.
 *
 * A socket and not a pipe: a pipe is locked while a file is read into it, so the loop would wait
 * for whatever disk the sandbox reads from, however slow its limits make that. No descriptor comes
 * out of a sandbox here, as everywhere: one that is sent along is dropped by the kernel.
 *
 * The same for input: what is put goes into the socket as long as it has room, and the operation
 * takes it there. That the stream ends says nothing (we may have been killed): how much it was is
 * told by the usual input, and only then the operation has all of it.
 *
 * What comes is hostile. No more is read than was asked for; a stream that ends before is an error,
 * and one on which nothing comes is ended by the clock of its job.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "box/job.h"
#include "box/own.h"

#define SIDE_READ 262144
#define SIDE_SEND 1048576 /* as much of it as the machine allows */
#define SIDE_ROUND 4      /* reads before others have their turn */

static void on_side(struct watch *watch, uint32_t events);

static void on_room(struct watch *watch, uint32_t events);

int side_make(struct box_job *job, bool input)
{
    int pair[2], size = input ? SIDE_SEND : SIDE_READ;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    setsockopt(pair[!input], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    job->side = (struct watch){ .fd = pair[0],
                                .events = input ? EPOLLOUT : EPOLLIN,
                                .fn = input ? on_room : on_side };
    job->side_in = input;
    return pair[1];
}

void side_close(struct box_job *job)
{
    job->side_on = false;
    side_mind(job);
    if (job->side.fd > 0)
        close(job->side.fd);
    job->side.fd = 0;
    job->side_left = 0;
}

/* Not watched at all while nothing is wanted: one whose other end is gone would never be quiet. */
void side_mind(struct box_job *job)
{
    bool wanted = job->side_on && !job->paused;

    if (wanted == job->side_watched || !job->box)
        return;
    if (!wanted)
        loop_unwatch(job->box->boxes->loop, &job->side);
    job->side_watched = wanted && loop_watch(job->box->boxes->loop, &job->side, NULL) == 0;
}

bool box_job_expect(struct box_job *job, uint64_t len)
{
    if (!job->box || job->side.fd <= 0 || !len)
        return false;
    job->side_on = true;
    job->side_left = len;
    side_mind(job);
    return true;
}

/* All of it is here, or no more comes. */
static void side_over(struct box_job *job)
{
    uint64_t left = job->side_left;
    struct err err = { 0 };

    side_close(job);
    job->side_left = left; /* while any is left no end is a good one */
    err_set(&err, ERR_UNAVAILABLE, SIDE_SHORT);
    if (job->exited)
        job_end(job, left ? &err : NULL);
}

static bool still_there(const struct box *box, const struct watch *watch)
{
    list_each (pos, &box->jobs)
        if (&list_entry(pos, struct box_job, node)->side == watch)
            return true;
    return false;
}

static void on_side(struct watch *watch, uint32_t events)
{
    static char bytes[SIDE_READ]; /* the loop thread's */
    struct box_job *job = container_of(watch, struct box_job, side);

    (void)events;
    for (int i = 0; i < SIDE_ROUND && job->side_on && !job->paused; i++) {
        size_t most = (size_t)MIN(job->side_left, (uint64_t)sizeof(bytes));
        ssize_t got = recv(job->side.fd, bytes, most, MSG_DONTWAIT);

        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            side_over(job);
            return;
        }
        job->side_left -= (uint64_t)got;
        job->moved_ms = clock_mono_ms();
        bool last = job->side_left == 0;
        struct box *box = job->box;
        job->data(job, (struct str){ bytes, (size_t)got }); /* may drop the job */
        if (!still_there(box, watch))
            return;
        if (last) {
            side_over(job); /* may end the job */
            return;
        }
    }
}

/* ---- input ---- */

/* As much as the socket takes now; `room` follows when it has some again. */
size_t side_put(struct box_job *job, struct str data)
{
    ssize_t sent;

    if (job->side_on) /* others wait already */
        return 0;
    do {
        sent = send(job->side.fd, data.p, data.n, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN) {
        job_deaf(job); /* nobody reads there any more */
        return 0;
    }
    size_t took = sent > 0 ? (size_t)sent : 0;
    job->side_sent += took;
    if (took)
        job->moved_ms = clock_mono_ms();
    job->side_on = took < data.n;
    side_mind(job);
    return took;
}

void side_end(struct box_job *job)
{
    shutdown(job->side.fd, SHUT_WR);
    buf_append(&job->in, &job->side_sent, sizeof(job->side_sent));
}

static void on_room(struct watch *watch, uint32_t events)
{
    struct box_job *job = container_of(watch, struct box_job, side);

    (void)events;
    job->side_on = false;
    side_mind(job);
    if (job->room && job->in_open)
        job->room(job); /* may drop the job */
}
