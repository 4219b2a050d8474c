/* loop: timers fire in order, posts keep their order across threads, removal in mid-round holds. */
#include "loop/loop.h"

#include <pthread.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"

struct tick {
    struct timer timer;
    int64_t wanted;
    struct loop *loop;
};

static int64_t last_due;
static unsigned ticks_left;

static void on_tick(struct timer *timer)
{
    struct tick *tick = container_of(timer, struct tick, timer);

    CHECK(timer->due_ms >= last_due);
    last_due = timer->due_ms;
    if (--ticks_left == 0)
        loop_stop(tick->loop);
}

TEST(timers_fire_in_order_of_due_time_after_random_changes)
{
    struct loop *loop;
    struct err err;
    struct tick ticks[300] = { 0 };
    unsigned set = 0;

    CHECK_OK(loop_new(&loop, &err), &err);
    last_due = 0;
    for (int round = 0; round < 3000; round++) {
        struct tick *tick = &ticks[test_rand(ARRAY_LEN(ticks))];

        tick->loop = loop;
        tick->timer.fn = on_tick;
        if (test_rand(3) == 0)
            timer_cancel(loop, &tick->timer);
        else
            timer_set(loop, &tick->timer, test_rand(40));
    }
    for (size_t i = 0; i < ARRAY_LEN(ticks); i++)
        set += timer_is_set(&ticks[i].timer);
    ticks_left = set;
    loop_run(loop);
    CHECK_INT(ticks_left, 0);
    loop_free(loop);
}

struct numbered {
    struct post post;
    unsigned thread, number;
};

static unsigned next_number[4], posts_left;
static struct loop *post_loop;

static void on_post(struct post *post)
{
    struct numbered *msg = container_of(post, struct numbered, post);

    CHECK_INT(msg->number, next_number[msg->thread]);
    next_number[msg->thread]++;
    free(msg);
    if (--posts_left == 0)
        loop_stop(post_loop);
}

static void *poster(void *arg)
{
    for (unsigned i = 0; i < 5000; i++) {
        struct numbered *msg = xnew(struct numbered);

        *msg = (struct numbered){ .post.fn = on_post, .thread = *(unsigned *)arg, .number = i };
        loop_post(post_loop, &msg->post);
    }
    return NULL;
}

TEST(posts_of_each_thread_arrive_complete_and_in_order)
{
    pthread_t threads[4];
    unsigned names[4] = { 0, 1, 2, 3 };
    struct err err;

    CHECK_OK(loop_new(&post_loop, &err), &err);
    posts_left = 4 * 5000;
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, poster, &names[i]) == 0);
    loop_run(post_loop);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(posts_left, 0);
    loop_free(post_loop);
}

struct pair_watch {
    struct watch watch;
    struct loop *loop;
    struct pair_watch *other;
    int calls;
};

static void on_either(struct watch *watch, uint32_t events)
{
    struct pair_watch *mine = container_of(watch, struct pair_watch, watch);

    (void)events;
    mine->calls++;
    loop_unwatch(mine->loop, &mine->other->watch); /* it is ready in this very round */
    loop_stop(mine->loop);
}

TEST(a_watch_removed_in_mid_round_is_not_called)
{
    struct loop *loop;
    struct err err;
    int a[2], b[2];

    CHECK_OK(loop_new(&loop, &err), &err);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, a) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b) == 0);
    struct pair_watch one = { .watch = { a[0], EPOLLIN, on_either }, .loop = loop };
    struct pair_watch two = { .watch = { b[0], EPOLLIN, on_either }, .loop = loop, .other = &one };
    one.other = &two;
    CHECK_OK(loop_watch(loop, &one.watch, &err), &err);
    CHECK_OK(loop_watch(loop, &two.watch, &err), &err);
    CHECK(write(a[1], "x", 1) == 1 && write(b[1], "x", 1) == 1);
    loop_run(loop);
    CHECK_INT(one.calls + two.calls, 1);
    for (int i = 0; i < 2; i++) {
        close(a[i]);
        close(b[i]);
    }
    loop_free(loop);
}

/* ---- a callback that takes long ---- */

struct held_up {
    struct timer quick, slow;
    struct loop *loop;
    const void *held;
    int64_t ms;
    unsigned count;
};

static void on_quick(struct timer *timer)
{
    loop_stop(container_of(timer, struct held_up, quick)->loop);
}

static void on_slow_timer(struct timer *timer)
{
    int64_t end = clock_mono_us() + 30000;

    (void)timer;
    while (clock_mono_us() < end)
        continue;
}

static void on_held_up(void *ctx, const void *held, int64_t ms)
{
    struct held_up *told = ctx;

    told->held = held;
    told->ms = ms;
    told->count++;
}

TEST(the_callback_that_held_up_the_loop_is_named)
{
    struct held_up told = { .quick.fn = on_quick, .slow.fn = on_slow_timer };
    struct err err;

    CHECK_OK(loop_new(&told.loop, &err), &err);
    loop_on_slow(told.loop, 30, on_held_up, &told);
    timer_set(told.loop, &told.slow, 0);
    timer_set(told.loop, &told.quick, 1);
    loop_run(told.loop);
    CHECK(told.count >= 1 && told.ms >= 30);
    CHECK(told.held == (const void *)on_slow_timer || told.count > 1);
    told.count = 0;
    loop_on_slow(told.loop, 60000, on_held_up, &told);
    timer_set(told.loop, &told.slow, 0);
    timer_set(told.loop, &told.quick, 1);
    loop_run(told.loop);
    CHECK(told.count == 0);
    loop_free(told.loop);
}
