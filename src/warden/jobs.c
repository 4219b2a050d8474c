/*
 * Work that may take long: flushing before a copy, making a file system, entering a box. Each runs
 * in a child that dies with the warden; its answer comes as one message over a socket pair and is
 * passed on. The child never returns into the warden's code, and what it changes in memory is its
 * own.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "warden/disk.h"

struct job {
    pid_t pid; /* 0: waited for */
    int link;  /* -1: heard */
    bool used, own;
    uint16_t verb;
    uint32_t number, asker;
    job_fn *fn;
    job_done_fn *done;
    int64_t due_ms;
};

static struct job jobs[JOBS_MAX];

static struct job *free_job(void)
{
    for (unsigned i = 0; i < JOBS_MAX; i++)
        if (!jobs[i].used)
            return &jobs[i];
    return NULL;
}

/* Whoever died before this was set is no longer the parent. */
static void die_with(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        _exit(1);
}

static _Noreturn void be_child(struct wire_msg *msg, job_fn *fn, int link, pid_t parent)
{
    int fd = -1;

    die_with(parent);
    /* A box's child takes the end of the other readers of its pipe for the end of the warden. */
    for (unsigned i = 0; i < table_pending(); i++)
        close(table_pending_at(i)->report);
    msg->status = fn(msg, &fd) < 0 ? errno : 0;
    if (wire_send(link, msg, &fd, fd >= 0) < 0)
        _exit(1);
    /* Until it was heard: what a stranger sent is let go of by this process and not by the warden.
     */
    poll(&(struct pollfd){ .fd = link }, 1, -1);
    _exit(0);
}

static int start(struct job *job, const struct wire_msg *request, job_fn *fn)
{
    struct wire_msg msg = *request;
    pid_t parent = getpid();
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -1;
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        close(pair[0]);
        be_child(&msg, fn, pair[1], parent);
    }
    int error = errno;
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        errno = error;
        return -1;
    }
    *job = (struct job){ .pid = pid,
                         .link = pair[0],
                         .used = true,
                         .verb = request->verb,
                         .number = request->number,
                         .asker = say_asker(),
                         .fn = fn,
                         .due_ms = clock_mono_ms() + DISK_JOB_MS };
    return 0;
}

void job_start(const struct wire_msg *request, job_fn *fn, job_done_fn *done)
{
    struct job *job = free_job();

    if (!job || start(job, request, fn) < 0)
        say_status(request, job ? errno : EAGAIN);
    else
        job->done = done;
}

int job_own(uint32_t number, job_fn *fn, job_done_fn *done)
{
    struct wire_msg none = { .verb = WIRE_DISK_STAT, .number = number }; /* never said */
    struct job *job = free_job();

    if (!job)
        errno = EAGAIN;
    if (!job || start(job, &none, fn) < 0)
        return -1;
    job->own = true;
    job->done = done;
    return 0;
}

void job_kill(job_fn *fn, uint32_t number)
{
    for (unsigned i = 0; i < JOBS_MAX; i++)
        if (jobs[i].used && jobs[i].own && jobs[i].pid && jobs[i].fn == fn &&
            jobs[i].number == number)
            kill(jobs[i].pid, SIGKILL); /* not waited for: the number is its own */
}

static void settle(struct job *job)
{
    if (!job->pid && job->link < 0)
        *job = (struct job){ .link = -1 };
}

static void answer(struct job *job, struct wire_msg *msg, int fd)
{
    job->due_ms = 0;
    msg->number = job->number;
    if (job->done)
        job->done(msg, fd);
    shutdown(job->link, SHUT_RDWR); /* others have copies of it */
    close_one(&job->link);
    if (!job->own && job->asker == say_asker()) {
        msg->verb = job->verb;
        say(msg, NULL, 0);
    }
    settle(job);
}

static void hear(struct job *job)
{
    struct wire_msg msg;
    int fds[WIRE_FDS_MAX];
    unsigned count;
    int got = wire_recv(job->link, &msg, fds, &count);

    if (got < 0 && errno == EAGAIN)
        return;
    if (got != 1)
        msg = (struct wire_msg){ .status = ECHILD }; /* it died over its work */
    answer(job, &msg, count ? fds[0] : -1);
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
}

unsigned jobs_waits(struct pollfd waits[JOBS_MAX])
{
    unsigned count = 0;

    for (unsigned i = 0; i < JOBS_MAX; i++)
        if (jobs[i].used && jobs[i].link >= 0)
            waits[count++] = (struct pollfd){ .fd = jobs[i].link, .events = POLLIN };
    return count;
}

bool jobs_woken(int fd)
{
    for (unsigned i = 0; i < JOBS_MAX; i++)
        if (jobs[i].used && jobs[i].link == fd) {
            hear(&jobs[i]);
            return true;
        }
    return false;
}

static struct job *find(pid_t pid)
{
    for (unsigned i = 0; i < JOBS_MAX; i++)
        if (jobs[i].used && jobs[i].pid == pid)
            return &jobs[i];
    return NULL;
}

bool jobs_own(pid_t pid)
{
    return find(pid) != NULL;
}

bool jobs_idle(void)
{
    for (unsigned i = 0; i < JOBS_MAX; i++)
        if (jobs[i].used)
            return false;
    return true;
}

void jobs_reaped(pid_t pid)
{
    struct job *job = find(pid);

    if (!job)
        return;
    job->pid = 0;
    if (job->link >= 0)
        hear(job); /* what it said, or its end */
    else
        settle(job);
}

int64_t jobs_due_ms(void)
{
    int64_t first = 0;

    for (unsigned i = 0; i < JOBS_MAX; i++)
        if (jobs[i].due_ms && (!first || jobs[i].due_ms < first))
            first = jobs[i].due_ms;
    return first;
}

void jobs_run_due(int64_t now_ms)
{
    for (unsigned i = 0; i < JOBS_MAX; i++) {
        struct wire_msg late = { .status = ETIMEDOUT };

        if (!jobs[i].due_ms || jobs[i].due_ms > now_ms)
            continue;
        log_error("work on disks took too long, it is given up", kv_int("pid", jobs[i].pid));
        if (jobs[i].pid)
            kill(jobs[i].pid, SIGKILL); /* not waited for: the number is its own */
        answer(&jobs[i], &late, -1);
    }
}

void jobs_close(void)
{
    for (unsigned i = 0; i < JOBS_MAX; i++) {
        if (!jobs[i].used)
            continue;
        if (jobs[i].pid) {
            kill(jobs[i].pid, SIGKILL);
            waitpid(jobs[i].pid, NULL, 0);
        }
        close_one(&jobs[i].link);
        jobs[i] = (struct job){ .link = -1 };
    }
}
