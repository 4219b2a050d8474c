/*
 * queue - jobs on their way between the loop thread and the store's threads. Private to store/.
 * A job is in one queue at a time, linked through its own `next`. Any thread.
 */
#pragma once

#include <pthread.h>

#include "store/store.h"

/* A chain of jobs in order; one thread. Zero with `end` set by jobs_init is empty. */
struct jobs {
    struct store_job *first, **end;
    unsigned count;
};

void jobs_init(struct jobs *jobs);
void jobs_append(struct jobs *jobs, struct store_job *job);
struct store_job *jobs_pop(struct jobs *jobs); /* NULL when empty */
/* Moves all of `from` behind `to`. */
void jobs_join(struct jobs *to, struct jobs *from);

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct jobs jobs;
    unsigned sleepers;
    bool closed;
};

void queue_init(struct queue *queue);
void queue_free(struct queue *queue);
/* False when it is closed or holds STORE_QUEUE_MAX jobs already. */
must_use bool queue_push(struct queue *queue, struct store_job *job);
/* No more is taken in; who waits for more wakes up. */
void queue_close(struct queue *queue);

enum queue_got { QUEUE_JOBS, QUEUE_IDLE, QUEUE_END };
/*
 * Moves at most `most` jobs behind `out`. Without any it waits `wait_ms` (0: not at all; -1:
 * without end) and says QUEUE_IDLE when none came, QUEUE_END when it is closed and empty.
 */
enum queue_got queue_take(struct queue *queue, struct jobs *out, unsigned most, int wait_ms);
