/*
 * A mutex, a condition variable and a list. The pusher signals only when somebody sleeps, so under
 * load, when the writer is always awake, a push costs an uncontended lock and no system call.
 */
#include "store/queue.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#include "base/limits.h"

void jobs_init(struct jobs *jobs)
{
    *jobs = (struct jobs){ 0 };
    jobs->end = &jobs->first;
}

void jobs_append(struct jobs *jobs, struct store_job *job)
{
    job->next = NULL;
    *jobs->end = job;
    jobs->end = &job->next;
    jobs->count++;
}

struct store_job *jobs_pop(struct jobs *jobs)
{
    struct store_job *job = jobs->first;

    if (!job)
        return NULL;
    jobs->first = job->next;
    if (!jobs->first)
        jobs->end = &jobs->first;
    jobs->count--;
    job->next = NULL;
    return job;
}

void jobs_join(struct jobs *to, struct jobs *from)
{
    if (!from->first)
        return;
    *to->end = from->first;
    to->end = from->end;
    to->count += from->count;
    jobs_init(from);
}

void queue_init(struct queue *queue)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&queue->lock, NULL);
    jobs_init(&queue->jobs);
}

void queue_free(struct queue *queue)
{
    assert(!queue->jobs.first);
    pthread_cond_destroy(&queue->wake);
    pthread_mutex_destroy(&queue->lock);
}

bool queue_push(struct queue *queue, struct store_job *job)
{
    pthread_mutex_lock(&queue->lock);
    bool taken = !queue->closed && queue->jobs.count < STORE_QUEUE_MAX;
    bool sleeping = queue->sleepers > 0;
    if (taken)
        jobs_append(&queue->jobs, job);
    pthread_mutex_unlock(&queue->lock);
    if (taken && sleeping)
        pthread_cond_signal(&queue->wake);
    return taken;
}

void queue_close(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_mutex_unlock(&queue->lock);
    pthread_cond_broadcast(&queue->wake);
}

static struct timespec from_now(int ms)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += (ms % 1000) * 1000000L;
    if (at.tv_nsec >= 1000000000L)
        at.tv_sec++, at.tv_nsec -= 1000000000L;
    return at;
}

/* Sleeps until there is something, or the end, or the time is over. */
static void wait_locked(struct queue *queue, int wait_ms)
{
    struct timespec until = wait_ms > 0 ? from_now(wait_ms) : (struct timespec){ 0 };
    int rc = 0;

    queue->sleepers++;
    while (!queue->jobs.first && !queue->closed && rc != ETIMEDOUT)
        rc = wait_ms > 0 ? pthread_cond_timedwait(&queue->wake, &queue->lock, &until)
                         : pthread_cond_wait(&queue->wake, &queue->lock);
    queue->sleepers--;
}

enum queue_got queue_take(struct queue *queue, struct jobs *out, unsigned most, int wait_ms)
{
    pthread_mutex_lock(&queue->lock);
    if (!queue->jobs.first && !queue->closed && wait_ms != 0)
        wait_locked(queue, wait_ms);
    enum queue_got got = queue->jobs.first ? QUEUE_JOBS : queue->closed ? QUEUE_END : QUEUE_IDLE;
    if (queue->jobs.count <= most)
        jobs_join(out, &queue->jobs);
    for (struct store_job *job; most && (job = jobs_pop(&queue->jobs)); most--)
        jobs_append(out, job);
    pthread_mutex_unlock(&queue->lock);
    return got;
}
