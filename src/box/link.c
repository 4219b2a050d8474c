/*
 * Frames to and from a sandbox's init. The init shares its sandbox with the workload, so whatever
 * comes is checked twice: as a frame (init_frame_ok) and against what we know of the command. What
 * no init of ours would send is counted; BOX_STRIKES_MAX and the sandbox is destroyed.
 *
 * Sending does not block: what the socket does not take waits here, in order, up to BOX_OUT_MAX.
 * Input of commands may fill half of that, so that a sandbox that takes none can still be told to
 * start or to end something; who found no room for input is asked again when there is.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/metric.h"
#include "box/job.h"
#include "box/own.h"

#define ROUND_FRAMES 64 /* of one init before others have their turn */
#define BOX_STRIKES_MAX 64
#define TICK_MS 500

METRIC_COUNTER(bad_frames, "atoll_box_bad_frames_total", "Frames of sandboxes that made no sense");

static void on_link(struct watch *watch, uint32_t events);
static void on_tick(struct timer *timer);

void link_init(struct box *box)
{
    box->link = (struct watch){ .fd = -1, .fn = on_link };
    list_init(&box->frames);
    box->tick.fn = on_tick;
}

/* ---- sending ---- */

static void frame_free(struct box *box, struct box_frame *frame)
{
    list_remove(&frame->node);
    box->frames_size -= frame->len;
    if (frame->fd >= 0)
        close(frame->fd);
    free(frame);
}

/* 1 sent, 0 no room now, -1 the connection is dead. */
static int send_now(int fd, struct iovec *parts, size_t count, int beside)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct msghdr msg = { .msg_iov = parts, .msg_iovlen = count };

    if (beside >= 0) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);
        struct cmsghdr *head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &beside, sizeof(int));
    }
    if (sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return 1;
    return errno == EAGAIN || errno == ENOBUFS || errno == EINTR ? 0 : -1;
}

static void mind_room(struct box *box)
{
    if (box->link.fd >= 0)
        loop_change(box->boxes->loop, &box->link,
                    list_empty(&box->frames) ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

static void flush(struct box *box)
{
    while (!list_empty(&box->frames)) {
        struct box_frame *frame = list_entry(box->frames.next, struct box_frame, node);
        struct iovec part = { frame->data, frame->len };

        if (send_now(box->link.fd, &part, 1, frame->fd) <= 0)
            break; /* a dead connection is seen by reading */
        frame_free(box, frame);
    }
    mind_room(box);
    if (box->in_waits && box->frames_size < BOX_IN_MAX / 2) {
        box->in_waits = false;
        list_each (pos, &box->execs)
            exec_pump(list_entry(pos, struct box_exec, node));
        list_each (pos, &box->jobs)
            job_pump(list_entry(pos, struct box_job, node));
    }
}

bool link_send(struct box *box, uint16_t type, uint32_t exec, const void *fixed, size_t fixed_len,
               const void *more, size_t more_len, int fd)
{
    struct init_head head = { INIT_MAGIC, type, 0, exec, (uint32_t)(fixed_len + more_len) };
    struct iovec parts[3] = { { &head, sizeof(head) },
                              { (void *)fixed, fixed_len },
                              { (void *)more, more_len } };
    autoclose int beside = fd;
    size_t len = sizeof(head) + fixed_len + more_len;

    if (box->link.fd < 0)
        return false;
    if (list_empty(&box->frames)) {
        int rc = send_now(box->link.fd, parts, 3, beside);

        if (rc != 0)
            return rc > 0;
    }
    if (box->frames_size + len > (type == INIT_STDIN ? BOX_IN_MAX : BOX_OUT_MAX)) {
        box->in_waits |= type == INIT_STDIN;
        return false;
    }
    struct box_frame *frame = xmalloc(sizeof(*frame) + len);
    char *at = frame->data;
    *frame = (struct box_frame){ .fd = take_fd(&beside), .len = len };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (parts[i].iov_len)
            memcpy(at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    list_append(&box->frames, &frame->node);
    box->frames_size += len;
    mind_room(box);
    return true;
}

/* ---- receiving ---- */

static void strike(struct box *box)
{
    metric_add(&bad_frames, 0, 1);
    if (++box->strikes == BOX_STRIKES_MAX)
        box_condemn(box, "its init broke the protocol");
}

/*
 * Something runs inside that nobody here knows: started just before we were killed, or a job that
 * was dropped. It is killed; what it has said is acknowledged, so that its end can be said too.
 */
static void take_stranger(struct box *box, const struct init_head *head, const char *body)
{
    struct init_signal kill_it = { .number = 9, .tree = 1 };
    struct init_output output;
    struct init_started started;
    struct init_ack ack = { 0 };

    switch (head->type) {
    case INIT_EXITED:
        (void)link_send(box, INIT_FORGET, head->exec, NULL, 0, NULL, 0, -1);
        if (box->pool)
            pool_exited(box);
        break;
    case INIT_OUTPUT:
        memcpy(&output, body, sizeof(output));
        if (output.stream >= INIT_STREAMS) {
            strike(box);
            break;
        }
        ack.position[output.stream] = output.position + head->len - sizeof(output);
        if (!job_dropped(box, head->exec)) /* that was killed then */
            (void)link_send(box, INIT_SIGNAL, head->exec, &kill_it, sizeof(kill_it), NULL, 0, -1);
        (void)link_send(box, INIT_ACK, head->exec, &ack, sizeof(ack), NULL, 0, -1);
        break;
    case INIT_STARTED:
        memcpy(&started, body, sizeof(started));
        if (started.error && box->pool)
            pool_exited(box); /* an image without that command */
        break;
    case INIT_ERROR:
    case INIT_STDIN_ROOM:
        break;
    default:
        strike(box);
    }
}

static bool in_list(const char *data, size_t count, uint32_t number, struct init_listed *row)
{
    for (size_t i = 0; i < count; i++) {
        memcpy(row, data + i * sizeof(*row), sizeof(*row));
        if (number && row->exec == number)
            return true;
    }
    return false;
}

static void list_jobs(struct box *box, const char *data, size_t count)
{
    list_each_safe (pos, &box->jobs) {
        struct box_job *job = list_entry(pos, struct box_job, node);
        struct init_listed row;
        bool there = in_list(data, count, job->number, &row);

        if (there && !job->started)
            job_started(job, &(struct init_started){ .pid = 1 });
        else if (!there && job->started && !job->exited)
            job_lost(job, ERR_UNAVAILABLE, "the sandbox knows nothing of the operation any more");
    }
}

static void take_list(struct box *box, const char *data, size_t len)
{
    size_t count = len / sizeof(struct init_listed);
    struct init_signal kill_it = { .number = 9, .tree = 1 };

    box->listed = true;
    list_each_safe (pos, &box->execs) {
        struct box_exec *exec = list_entry(pos, struct box_exec, node);
        struct init_listed row;
        bool there = in_list(data, count, exec->number, &row);

        if (exec->state == EXEC_STARTING && there)
            exec_started(exec, &(struct init_started){ .pid = 1 });
        else if (exec->state == EXEC_RUNNING && !there)
            exec_lost(exec);
        if (there)
            exec_placed(exec, row.taken);
    }
    list_jobs(box, data, count);
    for (size_t i = 0; i < count; i++) {
        struct init_listed row;

        memcpy(&row, data + i * sizeof(row), sizeof(row));
        if (row.exec >= box->next_number && row.exec < JOB_NUMBERS)
            box->next_number = row.exec + 1;
        if (!exec_by_number(box, row.exec) && !job_by_number(box, row.exec) && !box->pool)
            (void)link_send(box, INIT_SIGNAL, row.exec, &kill_it, sizeof(kill_it), NULL, 0, -1);
    }
    box->unsure = false;
    list_each_safe (pos, &box->execs)
        exec_send_late(list_entry(pos, struct box_exec, node));
    if (box->pool)
        pool_connected(box);
}

static void take_exec(struct box_exec *exec, const struct init_head *head, const char *body)
{
    union {
        struct init_started started;
        struct init_output output;
        struct init_exited exited;
        struct init_error error;
        struct init_room room;
    } args;

    memcpy(&args, body, MIN(head->len, sizeof(args)));
    switch (head->type) {
    case INIT_STARTED:
        exec_started(exec, &args.started);
        break;
    case INIT_OUTPUT:
        exec_output(exec, &args.output,
                    (struct str){ body + sizeof(args.output), head->len - sizeof(args.output) });
        break;
    case INIT_EXITED:
        exec_exited(exec, &args.exited);
        break;
    case INIT_STDIN_ROOM:
        exec_room(exec, args.room.taken);
        break;
    case INIT_ERROR:
        if (args.error.type == INIT_STDIN)
            exec_deaf(exec);
        break;
    default:
        strike(exec->box);
    }
}

static void take_job(struct box_job *job, const struct init_head *head, const char *body)
{
    union {
        struct init_started started;
        struct init_output output;
        struct init_exited exited;
        struct init_error error;
        struct init_room room;
    } args;

    memcpy(&args, body, MIN(head->len, sizeof(args)));
    switch (head->type) {
    case INIT_STARTED:
        job_started(job, &args.started);
        break;
    case INIT_OUTPUT:
        job_output(job, &args.output,
                   (struct str){ body + sizeof(args.output), head->len - sizeof(args.output) });
        break;
    case INIT_EXITED:
        job_exited(job, &args.exited);
        break;
    case INIT_STDIN_ROOM:
        job_room(job, &args.room);
        break;
    case INIT_ERROR:
        if (args.error.type == INIT_STDIN)
            job_deaf(job);
        break;
    default:
        strike(job->box);
    }
}

/*
 * An init of another release is not spoken to at all. It is ended from the timer, because whoever
 * drains a connection may be about to free the box.
 */
static void take_ready(struct box *box, const char *body)
{
    struct init_ready ready;

    memcpy(&ready, body, sizeof(ready));
    if (ready.version != INIT_VERSION) {
        box->foreign = true;
        box->version = ready.version;
        link_close(box);
        timer_set(box->boxes->loop, &box->tick, 0);
        return;
    }
    list_each (pos, &box->execs) {
        struct box_exec *exec = list_entry(pos, struct box_exec, node);

        if (exec->state == EXEC_RUNNING)
            exec_attach(exec);
    }
    list_each (pos, &box->jobs)
        job_attach(list_entry(pos, struct box_job, node));
    (void)link_send(box, INIT_LIST, 0, NULL, 0, NULL, 0, -1);
}

void link_take(struct box *box, const void *data, size_t len)
{
    struct init_head head;
    const char *body = (const char *)data + sizeof(head);

    if (!init_frame_ok(data, len, false)) {
        strike(box);
        return;
    }
    memcpy(&head, data, sizeof(head));
    switch (head.type) {
    case INIT_READY:
        take_ready(box, body);
        break;
    case INIT_LISTED:
        take_list(box, body, head.len);
        break;
    case INIT_PONG:
        break;
    default: {
        struct box_exec *exec = exec_by_number(box, head.exec);
        struct box_job *job = exec ? NULL : job_by_number(box, head.exec);

        if (exec)
            take_exec(exec, &head, body);
        else if (job)
            take_job(job, &head, body);
        else
            take_stranger(box, &head, body);
    }
    }
}

/* One datagram into link_take: 1 there was one, 0 none now, -1 closed. */
static int receive(struct box *box)
{
    static char frame[INIT_FRAME_MAX + 1]; /* the loop thread's */
    /* No descriptor is ever expected; without a place for them the kernel drops them. */
    ssize_t got = recv(box->link.fd, frame, sizeof(frame), MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0)
        return -1;
    link_take(box, frame, (size_t)got);
    return 1;
}

/* After a round: what arrived is acknowledged once, and whoever follows is told once. */
static void round_over(struct box *box)
{
    struct list *node;

    while ((node = list_pop(&box->heard)))
        exec_acknowledge(list_entry(node, struct box_exec, heard));
    list_each_safe (pos, &box->jobs)
        job_acknowledge(list_entry(pos, struct box_job, node));
}

static void on_link(struct watch *watch, uint32_t events)
{
    struct box *box = container_of(watch, struct box, link);
    int rc = 1;

    if (events & EPOLLOUT)
        flush(box);
    for (int i = 0; i < ROUND_FRAMES && rc > 0 && box->link.fd >= 0; i++)
        rc = receive(box);
    round_over(box);
    if (rc < 0 && box->link.fd >= 0) {
        link_close(box);
        link_tick_soon(box);
    }
}

void link_open(struct box *box, int fd)
{
    struct err err;

    link_close(box);
    box->link.fd = fd;
    box->link.events = EPOLLIN;
    box->listed = box->foreign = false;
    list_each (pos, &box->execs) {
        struct box_exec *exec = list_entry(pos, struct box_exec, node);

        exec->in_unsure = exec->number && !exec->in_closed;
    }
    if (loop_watch(box->boxes->loop, &box->link, &err) < 0) {
        close(fd);
        box->link.fd = -1;
    }
    link_tick_soon(box);
}

void link_close(struct box *box)
{
    if (box->link.fd >= 0) {
        loop_unwatch(box->boxes->loop, &box->link);
        close(box->link.fd);
        box->link.fd = -1;
    }
    while (!list_empty(&box->frames))
        frame_free(box, list_entry(box->frames.next, struct box_frame, node));
}

void link_drain(struct box *box)
{
    while (box->link.fd >= 0 && receive(box) > 0)
        ;
    round_over(box);
    link_close(box);
}

/* ---- asking again ---- */

void link_tick_soon(struct box *box)
{
    if (!timer_is_set(&box->tick))
        timer_set(box->boxes->loop, &box->tick, TICK_MS);
}

static void on_tick(struct timer *timer)
{
    struct box *box = container_of(timer, struct box, tick);
    int64_t now = clock_mono_ms();
    bool again = false;

    if (!sandbox_lives(box->state))
        return;
    if (box->busy) {
        link_tick_soon(box);
        return;
    }
    if (box->foreign) {
        box_part(box);
        return;
    }
    if (box->link.fd < 0) {
        box_reopen(box);
        return;
    }
    if (!box->listed && box->state == SANDBOX_RUNNING) {
        (void)link_send(box, INIT_LIST, 0, NULL, 0, NULL, 0, -1);
        again = true;
    }
    list_each_safe (pos, &box->execs)
        exec_tick(list_entry(pos, struct box_exec, node), now, &again);
    list_each_safe (pos, &box->jobs)
        job_tick(list_entry(pos, struct box_job, node), &again);
    if (again)
        link_tick_soon(box);
}
