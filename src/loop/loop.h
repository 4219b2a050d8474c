/*
 * loop - one thread that waits for everything: descriptors, timers, signals, and messages from
 * other threads. Nothing on it blocks.
 *
 * Watches, timers and posts are embedded in their owners; the loop never allocates for them. A
 * callback may remove or free any watch, its own too: the loop forgets what it had still to call.
 * All functions are for the loop thread except those marked *any*.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/list.h"

struct loop;

struct watch {
    int fd;
    uint32_t events; /* EPOLLIN, EPOLLOUT…; level-triggered */
    void (*fn)(struct watch *watch, uint32_t events);
};

struct timer {
    int64_t due_ms; /* monotonic */
    void (*fn)(struct timer *timer);
    uint32_t slot; /* place in the heap + 1; 0 means not set */
};

/* A message to the loop thread; embedded in what it is about. */
struct post {
    struct post *next;
    void (*fn)(struct post *post);
};

must_use int loop_new(struct loop **out, struct err *err);
void loop_free(struct loop *loop);

must_use int loop_watch(struct loop *loop, struct watch *watch, struct err *err);
void loop_change(struct loop *loop, struct watch *watch, uint32_t events);
void loop_unwatch(struct loop *loop, struct watch *watch); /* does not close the descriptor */
/* Unwatches and closes it, when nobody else holds the same: the kernel then forgets it by itself.
 */
void loop_close(struct loop *loop, struct watch *watch);
/*
 * Calls `fn` when one callback took `over_ms` or longer: `held` is the address of that callback and
 * `ms` its time on the clock. Other threads and the kernel may have had the processor meanwhile.
 */
void loop_on_slow(struct loop *loop, int64_t over_ms,
                  void (*fn)(void *ctx, const void *held, int64_t ms), void *ctx);
/* Called each time before the loop waits; for what is better done once for many events. */
void loop_before_wait(struct loop *loop, void (*fn)(void *ctx), void *ctx);

void timer_set(struct loop *loop, struct timer *timer, int64_t after_ms);
void timer_cancel(struct loop *loop, struct timer *timer); /* fine when not set */
static inline bool timer_is_set(const struct timer *timer)
{
    return timer->slot != 0;
}

/* Signals arrive as calls on the loop thread. Call before other threads start: it blocks them. */
must_use int loop_signals(struct loop *loop, const int *signals, size_t count,
                          void (*fn)(void *ctx, int signal), void *ctx, struct err *err);

/* *any*: runs post->fn on the loop thread, in the order posted. */
void loop_post(struct loop *loop, struct post *post);

/* The time when this round began, monotonic; cheap. */
int64_t loop_now(const struct loop *loop);

void loop_run(struct loop *loop); /* until loop_stop */
void loop_stop(struct loop *loop);
