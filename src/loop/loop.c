/*
 * epoll for descriptors, a binary heap for timers, one eventfd for posts from other threads.
 *
 * Removal during dispatch: epoll_wait may have returned an event for a watch that an earlier
 * callback of the same round removed, and whose memory may be gone. loop_unwatch therefore blanks
 * the pointer in the events still to be delivered. Posts are a lock-free stack, reversed when
 * taken, so they run in the order posted.
 */
#include "loop/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include "base/clock.h"
#include "base/mem.h"

#define ROUND_EVENTS 256

struct loop {
    int epoll_fd;
    bool running;
    int64_t now_ms;

    struct epoll_event ready[ROUND_EVENTS];
    int ready_at, ready_count;

    struct timer **heap; /* 1-based: heap[slot] */
    uint32_t heap_len, heap_cap;

    void (*before_fn)(void *ctx);
    void *before_ctx;

    int64_t slow_us, mark_us; /* mark_us: the end of the last callback, or of the last wait */
    void (*slow_fn)(void *ctx, const void *held, int64_t ms);
    void *slow_ctx;

    struct watch wake;
    _Atomic(struct post *) posts;

    struct watch signal_watch;
    void (*signal_fn)(void *ctx, int signal);
    void *signal_ctx;
};

/* ---- callbacks that take long ---- */

void loop_on_slow(struct loop *loop, int64_t over_ms,
                  void (*fn)(void *ctx, const void *held, int64_t ms), void *ctx)
{
    loop->slow_us = over_ms * 1000;
    loop->slow_fn = fn;
    loop->slow_ctx = ctx;
    loop->mark_us = clock_mono_us();
}

/* After each callback; one reading of the clock serves as its end and as the start of the next. */
static void called(struct loop *loop, const void *callback)
{
    if (!loop->slow_fn)
        return;
    int64_t now = clock_mono_us(), took = now - loop->mark_us;

    loop->mark_us = now;
    if (took >= loop->slow_us)
        loop->slow_fn(loop->slow_ctx, callback, took / 1000);
}

/* ---- posts ---- */

static void run_posts(struct watch *watch, uint32_t events)
{
    struct loop *loop = container_of(watch, struct loop, wake);
    uint64_t count;

    (void)events;
    if (read(watch->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        abort();
    struct post *newest = atomic_exchange_explicit(&loop->posts, NULL, memory_order_acquire);
    struct post *oldest = NULL;
    while (newest) {
        struct post *next = newest->next;

        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest) {
        struct post *next = oldest->next; /* fn may free the post */
        void (*fn)(struct post *) = oldest->fn;

        fn(oldest);
        called(loop, (const void *)fn);
        oldest = next;
    }
}

void loop_post(struct loop *loop, struct post *post)
{
    const uint64_t one = 1;
    struct post *head = atomic_load_explicit(&loop->posts, memory_order_relaxed);

    do {
        post->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&loop->posts, &head, post, memory_order_release,
                                                    memory_order_relaxed));
    if (head)
        return; /* whoever posted first has rung the bell and nobody has emptied it since */
    if (write(loop->wake.fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        abort();
}

/* ---- watches ---- */

int loop_watch(struct loop *loop, struct watch *watch, struct err *err)
{
    struct epoll_event event = { .events = watch->events, .data.ptr = watch };

    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) < 0)
        return err_sys(err, "watch descriptor %d", watch->fd);
    return 0;
}

void loop_change(struct loop *loop, struct watch *watch, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = watch };

    if (watch->events == events)
        return;
    watch->events = events;
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) < 0)
        abort(); /* the descriptor was watched: only our own mistake can make this fail */
}

static void blank(struct loop *loop, const struct watch *watch)
{
    for (int i = loop->ready_at; i < loop->ready_count; i++)
        if (loop->ready[i].data.ptr == watch)
            loop->ready[i].data.ptr = NULL;
}

void loop_unwatch(struct loop *loop, struct watch *watch)
{
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    blank(loop, watch);
}

void loop_close(struct loop *loop, struct watch *watch)
{
    blank(loop, watch);
    close(watch->fd);
    watch->fd = -1;
}

void loop_before_wait(struct loop *loop, void (*fn)(void *ctx), void *ctx)
{
    loop->before_fn = fn;
    loop->before_ctx = ctx;
}

/* ---- timers ---- */

static void heap_place(struct loop *loop, uint32_t slot, struct timer *timer)
{
    loop->heap[slot] = timer;
    timer->slot = slot;
}

static void heap_up(struct loop *loop, uint32_t slot)
{
    struct timer *timer = loop->heap[slot];

    while (slot > 1 && loop->heap[slot / 2]->due_ms > timer->due_ms) {
        heap_place(loop, slot, loop->heap[slot / 2]);
        slot /= 2;
    }
    heap_place(loop, slot, timer);
}

static void heap_down(struct loop *loop, uint32_t slot)
{
    struct timer *timer = loop->heap[slot];

    for (;;) {
        uint32_t child = slot * 2;

        if (child > loop->heap_len)
            break;
        if (child < loop->heap_len && loop->heap[child + 1]->due_ms < loop->heap[child]->due_ms)
            child++;
        if (loop->heap[child]->due_ms >= timer->due_ms)
            break;
        heap_place(loop, slot, loop->heap[child]);
        slot = child;
    }
    heap_place(loop, slot, timer);
}

void timer_set(struct loop *loop, struct timer *timer, int64_t after_ms)
{
    timer_cancel(loop, timer);
    timer->due_ms = clock_mono_ms() + after_ms;
    if (loop->heap_len + 2 > loop->heap_cap) {
        loop->heap_cap = loop->heap_cap ? loop->heap_cap * 2 : 16;
        loop->heap = xrealloc(loop->heap, loop->heap_cap * sizeof(struct timer *));
    }
    loop->heap[++loop->heap_len] = timer;
    heap_up(loop, loop->heap_len);
}

void timer_cancel(struct loop *loop, struct timer *timer)
{
    uint32_t slot = timer->slot;

    if (!slot)
        return;
    struct timer *last = loop->heap[loop->heap_len--];
    timer->slot = 0;
    if (last == timer)
        return;
    heap_place(loop, slot, last);
    heap_up(loop, slot);
    heap_down(loop, last->slot);
}

static void run_timers(struct loop *loop)
{
    while (loop->heap_len && loop->heap[1]->due_ms <= loop->now_ms) {
        struct timer *timer = loop->heap[1];

        timer_cancel(loop, timer);
        void (*fn)(struct timer *) = timer->fn;
        fn(timer); /* may free the timer */
        called(loop, (const void *)fn);
    }
}

static int wait_ms(const struct loop *loop)
{
    if (!loop->heap_len)
        return -1;
    int64_t left = loop->heap[1]->due_ms - clock_mono_ms();
    return left < 0 ? 0 : left > 60000 ? 60000 : (int)left;
}

/* ---- signals ---- */

static void run_signal(struct watch *watch, uint32_t events)
{
    struct loop *loop = container_of(watch, struct loop, signal_watch);
    struct signalfd_siginfo info;

    (void)events;
    while (read(watch->fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        loop->signal_fn(loop->signal_ctx, (int)info.ssi_signo);
}

int loop_signals(struct loop *loop, const int *signals, size_t count,
                 void (*fn)(void *ctx, int signal), void *ctx, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < count; i++)
        sigaddset(&set, signals[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_sys(err, "block signals");
    autoclose int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return err_sys(err, "signalfd");
    loop->signal_fn = fn;
    loop->signal_ctx = ctx;
    loop->signal_watch = (struct watch){ .fd = fd, .events = EPOLLIN, .fn = run_signal };
    if (loop_watch(loop, &loop->signal_watch, err) < 0) {
        loop->signal_watch.fd = -1;
        return -1;
    }
    (void)take_fd(&fd);
    return 0;
}

/* ---- the loop itself ---- */

int loop_new(struct loop **out, struct err *err)
{
    autoclose int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    autoclose int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (epoll_fd < 0 || wake_fd < 0)
        return err_sys(err, "make the event loop");

    struct loop *loop = xnew(struct loop);
    loop->epoll_fd = epoll_fd;
    loop->now_ms = clock_mono_ms();
    loop->signal_watch.fd = -1;
    loop->wake = (struct watch){ .fd = wake_fd, .events = EPOLLIN, .fn = run_posts };
    if (loop_watch(loop, &loop->wake, err) < 0) {
        free(loop);
        return -1;
    }
    (void)take_fd(&epoll_fd);
    (void)take_fd(&wake_fd);
    *out = loop;
    return 0;
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    if (loop->signal_watch.fd >= 0)
        close(loop->signal_watch.fd);
    close(loop->wake.fd);
    close(loop->epoll_fd);
    free(loop->heap);
    free(loop);
}

int64_t loop_now(const struct loop *loop)
{
    return loop->now_ms;
}

void loop_run(struct loop *loop)
{
    loop->running = true;
    while (loop->running) {
        if (loop->before_fn) {
            loop->before_fn(loop->before_ctx);
            called(loop, (const void *)loop->before_fn);
        }
        int count = epoll_wait(loop->epoll_fd, loop->ready, ROUND_EVENTS, wait_ms(loop));

        loop->mark_us = clock_mono_us();
        loop->now_ms = loop->mark_us / 1000;
        loop->ready_count = count < 0 ? 0 : count;
        for (loop->ready_at = 0; loop->ready_at < loop->ready_count;) {
            struct epoll_event *event = &loop->ready[loop->ready_at++];
            struct watch *watch = event->data.ptr;
            void (*fn)(struct watch *, uint32_t) = watch ? watch->fn : NULL;

            if (!fn)
                continue;
            fn(watch, event->events); /* may free the watch */
            called(loop, (const void *)fn);
        }
        loop->ready_count = 0;
        run_timers(loop);
    }
}

void loop_stop(struct loop *loop)
{
    loop->running = false;
}
