/*
 * The connection to the api: frames in, frames out. Sending never blocks: what does not fit now is
 * sent when the socket has room, and what was sent but not acknowledged is sent again on the next
 * connection. Nothing is queued here besides the rings themselves and answers that fit the socket.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "init/init.h"

#define CHUNK_MAX 61440
#define CHUNK_LEAST 16384 /* less waits for the answer to what went before */
#define ROUND_FRAMES 64   /* requests taken before others have their turn */

int link_fd = -1;
static bool blocked;

/*
 * Answers that found no room wait here; while any does, no further request is read, so the answers
 * of one round fit.
 */
static struct answer {
    uint16_t type, len;
    uint32_t exec;
    char body[sizeof(struct init_started)];
} answers[ROUND_FRAMES + 1];
static size_t answer_count;
static bool list_due;
static char frame[INIT_FRAME_MAX + 1];

uint32_t link_events(void)
{
    return !blocked ? EPOLLIN : answer_count ? EPOLLOUT : EPOLLIN | EPOLLOUT;
}

void link_drop(void)
{
    if (link_fd >= 0)
        close(link_fd);
    link_fd = -1;
    blocked = false;
    answer_count = 0;
    list_due = false;
}

/* False: there is no room now, or no connection. */
static bool send_frame(uint16_t type, uint32_t exec, const void *fixed, size_t fixed_len,
                       const void *more, size_t more_len)
{
    struct init_head head = { INIT_MAGIC, type, 0, exec, (uint32_t)(fixed_len + more_len) };
    struct iovec parts[3] = { { &head, sizeof(head) },
                              { (void *)fixed, fixed_len },
                              { (void *)more, more_len } };
    struct msghdr msg = { .msg_iov = parts, .msg_iovlen = 3 };

    if (link_fd < 0)
        return false;
    if (sendmsg(link_fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return true;
    if (errno == EAGAIN || errno == ENOBUFS)
        blocked = true;
    else
        link_drop();
    return false;
}

static void send_answer(uint16_t type, uint32_t exec, const void *body, size_t len)
{
    if (answer_count == 0 && send_frame(type, exec, body, len, NULL, 0))
        return;
    if (link_fd < 0 || answer_count == ARRAY_LEN(answers))
        return;
    struct answer *answer = &answers[answer_count++];
    *answer = (struct answer){ .type = type, .exec = exec, .len = (uint16_t)len };
    if (len)
        memcpy(answer->body, body, len);
}

static bool flush_answers(void)
{
    size_t sent = 0;

    while (sent < answer_count && send_frame(answers[sent].type, answers[sent].exec,
                                             answers[sent].body, answers[sent].len, NULL, 0))
        sent++;
    answer_count -= MIN(sent, answer_count); /* a dropped link has forgotten them */
    memmove(answers, answers + sent, answer_count * sizeof(answers[0]));
    return answer_count == 0;
}

static void send_error(const struct init_head *head, int error)
{
    struct init_error answer = { error, head->type };

    send_answer(INIT_ERROR, head->exec, &answer, sizeof(answer));
}

/* Everything that is held is due again on a new connection. */
static void rewind_all(void)
{
    for (size_t i = 0; i < exec_top; i++) {
        execs[i].told = false;
        for (int s = 0; s < INIT_STREAMS; s++)
            execs[i].out[s].sent = execs[i].out[s].begin;
    }
}

void link_adopt(int fd)
{
    struct init_ready ready = { .version = INIT_VERSION };

    link_drop();
    link_fd = fd;
    for (size_t i = 0; i < exec_top; i++)
        ready.execs += execs[i].id != 0;
    rewind_all();
    if (!watch_fd(fd, EPOLLIN, WATCH_LINK, NULL) ||
        !send_frame(INIT_READY, 0, &ready, sizeof(ready), NULL, 0))
        link_drop();
}

static bool send_list(void)
{
    static struct init_listed rows[INIT_EXECS_MAX];
    size_t count = 0;

    for (size_t i = 0; i < exec_top; i++) {
        const struct exec *exec = &execs[i];

        if (!exec->id)
            continue;
        rows[count] = (struct init_listed){ .exec = exec->id,
                                            .running = !exec->ended,
                                            .taken = exec->in_total };
        for (int s = 0; s < INIT_STREAMS; s++) {
            rows[count].begin[s] = exec->out[s].begin;
            rows[count].end[s] = exec->out[s].end;
        }
        count++;
    }
    return send_frame(INIT_LISTED, 0, rows, count * sizeof(rows[0]), NULL, 0);
}

static void take_acks(struct exec *exec, const uint64_t position[INIT_STREAMS],
                      enum watch_kind first)
{
    for (int s = 0; s < INIT_STREAMS; s++) {
        struct out *out = &exec->out[s];

        out_ack(out, position[s]);
        if (out->paused && !out_full(out) && out->fd >= 0) {
            out->paused = false;
            watch_change(out->fd, EPOLLIN, first + (unsigned)s, exec);
        }
    }
}

/* 0, or the errno of a refusal. */
static int obey_exec(struct exec *exec, const struct init_head *head, const char *body)
{
    union {
        struct init_signal signal;
        struct init_resize resize;
        struct init_ack ack;
        struct init_attach attach;
    } args;

    if (!exec)
        return ENOENT;
    memcpy(&args, body, MIN(head->len, sizeof(args)));
    switch (head->type) {
    case INIT_STDIN:
        return exec_input(exec, body, head->len);
    case INIT_SIGNAL:
        return exec_signal(exec, &args.signal) ? 0 : ESRCH;
    case INIT_RESIZE:
        return exec_resize(exec, &args.resize) ? 0 : EINVAL;
    case INIT_ACK:
        take_acks(exec, args.ack.position, WATCH_OUT);
        return 0;
    case INIT_ATTACH:
        take_acks(exec, args.attach.position, WATCH_OUT);
        exec->out[INIT_OUT].sent = exec->out[INIT_OUT].begin;
        exec->out[INIT_ERR].sent = exec->out[INIT_ERR].begin;
        exec->told = false;
        return 0;
    case INIT_FORGET:
        if (!exec->ended)
            return EBUSY;
        exec_forget(exec);
        return 0;
    default:
        return EINVAL;
    }
}

static void obey(const char *data, int fd)
{
    struct init_head head;
    const char *body = data + sizeof(head);
    int error = 0;

    memcpy(&head, data, sizeof(head));
    switch (head.type) {
    case INIT_EXEC: {
        struct init_exec wish;
        struct init_started answer;

        memcpy(&wish, body, sizeof(wish));
        exec_start(head.exec, &wish, body + sizeof(wish), head.len - sizeof(wish), fd, &answer);
        send_answer(INIT_STARTED, head.exec, &answer, sizeof(answer));
        break;
    }
    case INIT_LIST:
        list_due = !send_list() && link_fd >= 0;
        break;
    case INIT_PING:
        send_answer(INIT_PONG, 0, NULL, 0);
        break;
    default:
        error = obey_exec(exec_find(head.exec), &head, body);
    }
    if (error)
        send_error(&head, error);
}

/* One datagram and at most one descriptor; more are closed. 1 got one, 0 nothing now, -1 gone. */
static int receive(size_t *len, int *fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct iovec part = { frame, sizeof(frame) };
    struct msghdr msg = { .msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = sizeof(control) };
    ssize_t got = recvmsg(link_fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *fd = -1;
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    struct cmsghdr *beside = CMSG_FIRSTHDR(&msg); /* the kernel puts all descriptors into one */
    size_t count = beside && beside->cmsg_type == SCM_RIGHTS
                       ? (beside->cmsg_len - CMSG_LEN(0)) / sizeof(int)
                       : 0;
    for (size_t i = 0; i < count; i++) {
        int one;

        memcpy(&one, CMSG_DATA(beside) + i * sizeof(int), sizeof(one));
        if (*fd < 0)
            *fd = one;
        else
            close(one);
    }
    *len = (size_t)got;
    return got == 0 ? -1 : 1;
}

void link_readable(void)
{
    for (int i = 0; i < ROUND_FRAMES && link_fd >= 0 && answer_count == 0; i++) {
        size_t len;
        int fd;
        int rc = receive(&len, &fd);

        if (rc > 0 && !init_frame_ok(frame, len, true))
            rc = -1; /* whoever sends that is not our api */
        if (rc > 0)
            obey(frame, fd);
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            link_drop();
        if (rc <= 0)
            return;
    }
}

/*
 * Who prints fast is told of in large pieces: a small one waits while another is on its way, until
 * that was acknowledged or more has come. Every piece costs the api as much as two more processes
 * that wake up.
 */
static bool worth_sending(const struct exec *exec, const struct out *out)
{
    return exec->ended || out->sent == out->begin || out->end - out->sent >= CHUNK_LEAST;
}

static bool flush_stream(struct exec *exec, int stream)
{
    struct out *out = &exec->out[stream];
    const char *data;
    size_t len;

    while (worth_sending(exec, out) && (len = out_next(out, CHUNK_MAX, &data))) {
        struct init_output head = { .stream = (uint32_t)stream, .position = out->sent };

        if (!send_frame(INIT_OUTPUT, exec->id, &head, sizeof(head), data, len))
            return false;
        out->sent += len;
    }
    return true;
}

/* All input was taken: how much may come now; or none ever will be. False: it could not be said. */
static bool flush_room(struct exec *exec)
{
    struct init_room room = { .bytes = INIT_STDIN_QUEUE, .taken = exec->in_total };
    struct init_error closed = { EPIPE, INIT_STDIN };

    if (!exec->in_room || exec->in_len || exec->ended)
        return true;
    if (!(exec->in_fd < 0 ? send_frame(INIT_ERROR, exec->id, &closed, sizeof(closed), NULL, 0)
                          : send_frame(INIT_STDIN_ROOM, exec->id, &room, sizeof(room), NULL, 0)))
        return false;
    exec->in_room = false;
    return true;
}

/*
 * The command is over and its time too, but what it printed may still be in its pipes: they were
 * not read while the ring was full, or the sandbox was frozen. True: there was something.
 */
static bool catch_up(struct exec *exec, int64_t now)
{
    bool got = false;

    if (exec->draining || !exec_finished(exec, now))
        return false;
    for (int s = 0; s < INIT_STREAMS; s++)
        while (exec->out[s].end < exec->out[s].due && !out_full(&exec->out[s]) &&
               out_fill(&exec->out[s]) > 0)
            got = true;
    return got;
}

void link_flush(void)
{
    int64_t now = now_ms();

    blocked = false;
    if (link_fd < 0 || !flush_answers() || (list_due && !send_list()))
        return;
    list_due = false;
    for (size_t i = 0; i < exec_top && link_fd >= 0; i++) {
        struct exec *exec = &execs[i];

        if (!exec->id || !flush_room(exec))
            continue;
        exec_look(exec, now);
        do
            if (!flush_stream(exec, INIT_OUT) || !flush_stream(exec, INIT_ERR))
                return;
        while (catch_up(exec, now));
        if (exec->told || !exec_finished(exec, now))
            continue;
        exec->draining = true; /* the end positions are now a promise */
        exec->end.end[INIT_OUT] = exec->out[INIT_OUT].end;
        exec->end.end[INIT_ERR] = exec->out[INIT_ERR].end;
        if (!send_frame(INIT_EXITED, exec->id, &exec->end, sizeof(exec->end), NULL, 0))
            return;
        exec->told = true;
    }
}
