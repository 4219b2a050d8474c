/*
 * bus: whoever listens gets every event that fits, once, in order, from its place on, whatever
 * the pace; or is told that its place is gone. Nobody waits for anybody.
 *
 * What an event says is a function of its number, so any mix-up shows.
 */
#include "bus/bus.h"

#include <pthread.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/metric.h"
#include "store/engine.h"
#include "store/testing.h"

static const char *const types[] = { "a.made", "a.gone", "b.made", "c" };
static const char *const objects[] = { "a/1", "a/2", "b/1", "" };

static const char *type_of(int64_t seq)
{
    return types[(uint64_t)seq * 2654435761u / 7 % ARRAY_LEN(types)];
}

static const char *object_of(int64_t seq)
{
    return objects[(uint64_t)seq * 40503u / 11 % ARRAY_LEN(objects)];
}

static const struct event_filter filters[] = {
    { NULL, NULL },     { "a.*", NULL },     { "c", NULL },   { NULL, "a/" },
    { "a.*,c", "a/1" }, { "nothing", NULL }, { NULL, "b/1" }, { "*", "" },
};

static bool fits(int64_t seq, const struct event_filter *filter)
{
    struct event event = { .type = (char *)type_of(seq), .object = (char *)object_of(seq) };

    return event_matches(&event, filter);
}

/* ---- a bus on a store ---- */

static struct bus *bus;
static bool hold; /* publications wait, as if the loop had been slow */
static struct event *held, **held_end = &held;

static void publish(void *ctx, const struct event *event)
{
    (void)ctx;
    if (!hold) {
        bus_publish(bus, event);
        return;
    }
    *held_end = event_copy(event);
    held_end = &(*held_end)->next;
}

static void publish_held(void)
{
    for (const struct event *event = held; event; event = event->next)
        bus_publish(bus, event);
    event_list_free(held);
    held = NULL;
    held_end = &held;
    hold = false;
}

/* The writer's: numbers that are given out and, until the transaction ends, in no row. */
static int64_t made_default, made_other;

static void open_bus(const char *path)
{
    struct err err;

    made_default = made_other = 0;
    test_open(path, publish, NULL);
    CHECK_OK(bus_new(&bus, test_loop, test_store, &err), &err);
}

static void close_bus(void)
{
    store_close(test_store);
    test_store = NULL;
    bus_free(bus);
    bus = NULL;
    loop_free(test_loop);
    test_loop = NULL;
}

struct adding {
    const char *tenant;
    int count;
    size_t body; /* bytes, more or less */
    bool fails;
};

static int64_t head_in_store(struct db *db, const char *tenant, struct err *err)
{
    autoquery struct query *q = db_query(db, "SELECT event_seq FROM tenant WHERE id = $1");

    query_text(q, 1, tenant);
    return query_step(q, err) > 0 ? query_col_i64(q, 0) : -1;
}

static int add_events(struct db *db, void *ctx, struct err *err)
{
    const struct adding *adding = ctx;
    int64_t *newest = strcmp(adding->tenant, "other") == 0 ? &made_other : &made_default;
    autobuf struct buf body = { 0 };

    buf_puts(&body, "{}");
    while (body.len < adding->body)
        buf_putc(&body, ' ');
    int64_t head = MAX(head_in_store(db, adding->tenant, err), *newest);
    for (int i = 0; i < adding->count; i++) {
        int64_t seq = head + 1 + i;

        if (seq < 1 ||
            event_add(db, adding->tenant, type_of(seq), object_of(seq), buf_view(&body), err) < 0)
            return -1;
    }
    if (adding->fails)
        return err_set(err, ERR_CONFLICT, "on purpose");
    *newest = head + adding->count;
    return 0;
}

static void add(const char *tenant, int count, size_t body)
{
    struct adding adding = { tenant, count, body, false };
    struct err err;

    CHECK_OK(test_write(add_events, &adding, &err), &err);
}

static int add_tenant(struct db *db, void *ctx, struct err *err)
{
    autoquery struct query *q = db_query(db, "INSERT INTO tenant (id) VALUES ($1)");

    query_text(q, 1, ctx);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int cut(struct db *db, void *ctx, struct err *err)
{
    autoquery struct query *move =
        db_query(db, "UPDATE tenant SET event_floor = $1 WHERE id = 'default'");
    autoquery struct query *q =
        db_query(db, "DELETE FROM event WHERE tenant = 'default' AND seq < $1");

    query_i64(move, 1, *(int64_t *)ctx);
    query_i64(q, 1, *(int64_t *)ctx);
    return query_run(move, err) < 0 || query_run(q, err) < 0 ? -1 : 0;
}

/* Lets the loop run for a moment. */
static void stop_now(struct timer *timer)
{
    (void)timer;
    loop_stop(test_loop);
}

static void run_for(int ms)
{
    struct timer timer = { .fn = stop_now };

    timer_set(test_loop, &timer, ms);
    loop_run(test_loop);
}

/* ---- a listener that checks ---- */

struct ear {
    struct list node;
    struct bus_sub sub;
    const char *tenant;
    const struct event_filter *filter;
    int64_t at; /* last number heard, or where it began */
    unsigned heard;
    bool paused, lost, moody;
    enum err_code why;
    unsigned takes; /* asks to wait after this many; 0: never */
};

static struct list ears;
static bool inside; /* a call into the bus: no callback may come now */

static void ear_free(struct ear *ear)
{
    bus_unsubscribe(&ear->sub);
    list_remove(&ear->node);
    free(ear);
}

static struct ear *any_ear(void)
{
    uint32_t skip = test_rand(40);

    list_each (node, &ears)
        if (skip-- == 0)
            return list_entry(node, struct ear, node);
    return NULL;
}

static void check_next(struct ear *ear, const struct event *event)
{
    CHECK(!inside && !ear->paused && !ear->lost);
    CHECK_STR(event->tenant, ear->tenant);
    CHECK(event->seq > ear->at);
    for (int64_t seq = ear->at + 1; seq < event->seq; seq++)
        if (fits(seq, ear->filter))
            test_fail(__FILE__, __LINE__, "event %lld was skipped", (long long)seq);
    CHECK(fits(event->seq, ear->filter));
    CHECK_STR(event->type, type_of(event->seq));
    CHECK_STR(event->object, object_of(event->seq));
    ear->at = event->seq;
    ear->heard++;
}

static enum bus_take on_event(struct bus_sub *sub, const struct event *event)
{
    struct ear *ear = container_of(sub, struct ear, sub);

    check_next(ear, event);
    if (ear->moody && test_rand(60) == 0) { /* ends itself, or somebody else, from in here */
        struct ear *other = test_rand(2) ? ear : any_ear();

        if (other)
            ear_free(other);
        if (other == ear)
            return test_rand(2) ? BUS_MORE : BUS_WAIT; /* of no consequence any more */
    }
    bool full = ear->takes && ear->heard % ear->takes == 0;
    ear->paused = full || (ear->moody && test_rand(15) == 0);
    return ear->paused ? BUS_WAIT : BUS_MORE;
}

static void on_lost(struct bus_sub *sub, const struct err *err)
{
    struct ear *ear = container_of(sub, struct ear, sub);

    CHECK(!inside && !ear->lost);
    CHECK(sub->bus == NULL);
    ear->lost = true;
    ear->why = err->code;
    if (ear->moody && test_rand(2))
        ear_free(ear);
}

static struct ear *listen(const char *tenant, const struct event_filter *filter, int64_t since)
{
    struct ear *ear = xnew(struct ear);

    if (!ears.next)
        list_init(&ears);
    ear->tenant = tenant;
    ear->filter = filter;
    ear->at = since < 0 ? bus_head(bus, tenant) : since;
    ear->sub.on_event = on_event;
    ear->sub.on_lost = on_lost;
    list_append(&ears, &ear->node);
    inside = true;
    bus_subscribe(bus, &ear->sub, tenant, filter, since);
    inside = false;
    return ear;
}

static void resume(struct ear *ear)
{
    ear->paused = false;
    inside = true;
    bus_resume(&ear->sub);
    inside = false;
}

/* Has it heard everything there is for it? */
static bool caught_up(const struct ear *ear)
{
    int64_t head = bus_head(bus, ear->tenant);

    for (int64_t seq = ear->at + 1; seq <= head; seq++)
        if (fits(seq, ear->filter))
            return false;
    return true;
}

static void run_until_caught_up(struct ear *ear)
{
    for (int i = 0; i < 5000 && !caught_up(ear) && !ear->lost; i++) {
        if (ear->paused)
            resume(ear);
        run_for(1);
    }
}

static void free_ears(void)
{
    while (!list_empty(&ears))
        ear_free(list_entry(ears.next, struct ear, node));
}

/* ---- the random model ---- */

static int64_t floor_wanted = 1;
static unsigned jobs_out, lost_count;

struct work {
    struct store_job job;
    struct adding adding;
    int64_t floor; /* or 0 */
};

static int work_run(struct store_job *job, struct db *db, struct err *err)
{
    struct work *work = container_of(job, struct work, job);

    return work->floor ? cut(db, &work->floor, err) : add_events(db, &work->adding, err);
}

static void work_done(struct store_job *job)
{
    struct work *work = container_of(job, struct work, job);

    if (!work->adding.fails)
        CHECK_OK(job->rc, &job->err);
    jobs_out--;
    free(work);
}

static void random_work(void)
{
    struct work *work = xnew(struct work);

    work->job = (struct store_job){ .run = work_run, .done = work_done };
    work->adding =
        (struct adding){ test_rand(4) ? "default" : "other", (int)test_rand(12),
                         test_rand(20) ? test_rand(100) : test_rand(30000), test_rand(6) == 0 };
    if (test_rand(400) == 0) {
        int64_t head = bus_head(bus, "default");

        floor_wanted += test_rand((uint32_t)(head - floor_wanted + 1) / 3 + 1);
        work->floor = floor_wanted;
    }
    jobs_out++;
    store_write(test_store, &work->job);
}

static void random_listener(void)
{
    const char *tenant = test_rand(4) ? "default" : "other";
    int64_t head = bus_head(bus, tenant);
    int64_t since = test_rand(3) ? (int64_t)test_rand((uint32_t)head + 1) : -1;

    listen(tenant, &filters[test_rand(ARRAY_LEN(filters))], since)->moody = true;
}

static unsigned count_ears(void)
{
    unsigned count = 0;

    list_each (node, &ears)
        count++;
    return count;
}

/* A loss is fair when retention has passed the place (it may be about to). */
static void sweep_ears(void)
{
    list_each_safe (node, &ears) {
        struct ear *ear = list_entry(node, struct ear, node);

        if (ear->lost) {
            CHECK_INT(ear->why, ERR_GONE);
            CHECK_STR(ear->tenant, "default");
            CHECK(ear->sub.cursor + 1 < floor_wanted);
            lost_count++;
            ear_free(ear);
        } else if (ear->paused && test_rand(3) == 0) {
            resume(ear);
        } else if (test_rand(200) == 0) {
            ear_free(ear);
        }
    }
}

TEST(everyone_hears_everything_that_fits_in_order_or_is_told)
{
    autofree char *path = test_path("db");
    struct err err;
    unsigned done = 0;

    open_bus(path);
    CHECK_OK(test_write(add_tenant, "other", &err), &err);
    for (int round = 0; round < 1500 || bus_head(bus, "default") < 4ll * BUS_RING_EVENTS ||
                        (!lost_count && round < 30000);
         round++) {
        for (uint32_t i = test_rand(4); i && jobs_out < 20; i--)
            random_work();
        if (count_ears() < 40)
            random_listener();
        sweep_ears();
        run_for((int)test_rand(2));
    }
    while (jobs_out)
        run_for(1);
    while (!list_empty(&ears)) {
        struct ear *ear = list_entry(ears.next, struct ear, node);

        ear->moody = false;
        list_each (node, &ears)
            list_entry(node, struct ear, node)->moody = false;
        run_until_caught_up(ear);
        if (ear->lost) {
            CHECK(ear->sub.cursor + 1 < floor_wanted);
            lost_count++;
        } else {
            CHECK(caught_up(ear));
            done++;
        }
        ear_free(ear);
    }
    CHECK(done > 5);
    CHECK(lost_count > 0); /* otherwise that was not tried */
    CHECK_INT(bus_subscribers(bus), 0);
    close_bus();
}

/* ---- one thing at a time ---- */

TEST(from_now_on_means_from_now_on)
{
    autofree char *path = test_path("db");

    open_bus(path);
    add("default", 5, 2);
    struct ear *ear = listen("default", &filters[0], -1);
    run_for(20);
    CHECK_INT(ear->heard, 0);
    add("default", 3, 2);
    CHECK_INT(ear->heard, 3); /* at once: with the job that made them */
    CHECK_INT(ear->at, 8);
    CHECK_INT(bus_head(bus, "default"), 8);
    CHECK_INT(bus_head(bus, "nobody"), 0);
    free_ears();
    close_bus();
    open_bus(path); /* the head is known after a restart */
    CHECK_INT(bus_head(bus, "default"), 8);
    ear = listen("default", &filters[0], -1);
    add("default", 1, 2);
    CHECK_INT(ear->at, 9);
    free_ears();
    close_bus();
}

TEST(a_place_beyond_retention_or_in_the_future_is_told)
{
    autofree char *path = test_path("db");
    struct err err;
    int64_t floor = 11;

    open_bus(path);
    add("default", 20, 2);
    CHECK_OK(test_write(cut, &floor, &err), &err);
    close_bus();
    open_bus(path); /* an empty ring: the store must be asked */
    struct ear *gone = listen("default", &filters[0], 9);
    struct ear *edge = listen("default", &filters[0], 10);
    struct ear *newest = listen("default", &filters[0], 20);
    struct ear *future = listen("default", &filters[0], 21);
    struct ear *stranger = listen("nobody", &filters[0], 1);
    run_for(60);
    CHECK(gone->lost && gone->why == ERR_GONE && gone->heard == 0);
    CHECK(future->lost && future->why == ERR_GONE);
    CHECK(stranger->lost && stranger->why == ERR_GONE);
    CHECK(!edge->lost && edge->heard == 10);
    CHECK(!newest->lost && newest->heard == 0);
    CHECK_INT(bus_subscribers(bus), 2);
    bus_unsubscribe(&gone->sub); /* fine when it has ended */
    free_ears();
    close_bus();
}

TEST(a_slow_one_holds_nobody_up_and_misses_nothing)
{
    autofree char *path = test_path("db");

    open_bus(path);
    struct ear *slow = listen("default", &filters[0], -1);
    struct ear *quick = listen("default", &filters[0], -1);
    slow->takes = 1;
    for (int i = 0; i < 30; i++)
        add("default", 100, 2); /* three times the ring */
    CHECK_INT(quick->heard, 3000);
    CHECK_INT(slow->heard, 1);
    CHECK(slow->sub.state == BUS_PAUSED && quick->sub.state == BUS_LIVE);
    run_for(20);
    CHECK_INT(slow->heard, 1); /* nothing comes while it waits */
    slow->takes = 700;
    run_until_caught_up(slow);
    CHECK_INT(slow->heard, 3000);
    run_for(5);
    CHECK(slow->sub.state == BUS_LIVE);
    free_ears();
    close_bus();
}

static int64_t heard_from_store(void)
{
    static const char line[] = "\natoll_bus_events_total{from=\"store\"} ";
    autobuf struct buf text = { 0 };

    metric_text(&text);
    const char *at = strstr(buf_cstr(&text), line);
    CHECK(at != NULL);
    return at ? strtoll(at + strlen(line), NULL, 10) : -1;
}

/* Large events push small ones out of the ring early; they are in the store all the same. */
TEST(the_ring_is_bounded_by_bytes_too)
{
    autofree char *path = test_path("db");

    open_bus(path);
    struct ear *slow = listen("default", &filters[0], -1);
    slow->takes = 1;
    for (int i = 0; i < 6; i++)
        add("default", 10, 60000); /* 3.6 MB */
    CHECK_INT(slow->heard, 1);
    int64_t before = heard_from_store();
    slow->takes = 7;
    run_until_caught_up(slow);
    CHECK_INT(slow->heard, 60);
    CHECK(heard_from_store() - before >= 60 - 1 - BUS_RING_BYTES / 60000);
    free_ears();
    close_bus();
}

TEST(a_filter_is_applied_to_what_comes_from_the_store)
{
    autofree char *path = test_path("db");
    int64_t want = 0;

    open_bus(path);
    add("default", 3000, 2);
    close_bus();
    open_bus(path);
    for (int64_t seq = 1; seq <= 3000; seq++)
        want += fits(seq, &filters[4]);
    struct ear *ear = listen("default", &filters[4], 0);
    struct ear *none = listen("default", &filters[5], 0);
    run_until_caught_up(ear);
    run_for(50);
    CHECK(want > 100);
    CHECK_INT(ear->heard, want);
    CHECK_INT(none->heard, 0);
    CHECK(none->sub.state == BUS_LIVE && none->sub.cursor == 3000);
    free_ears();
    close_bus();
}

/* The store is ahead of the loop: what was read there must not come again. */
TEST(what_is_published_late_is_not_heard_twice)
{
    autofree char *path = test_path("db");

    open_bus(path);
    add("default", 5, 2);
    hold = true;
    add("default", 10, 2);
    CHECK_INT(bus_head(bus, "default"), 5);
    struct ear *ahead = listen("default", &filters[0], 8); /* it has seen a page, say */
    struct ear *behind = listen("default", &filters[0], 2);
    run_for(30);
    CHECK(ahead->heard == 7 && ahead->at == 15 && ahead->sub.state == BUS_LIVE);
    CHECK(behind->heard == 3 && behind->at == 5);
    publish_held();
    CHECK_INT(ahead->heard, 7);
    CHECK(behind->heard == 13 && behind->at == 15);
    add("default", 1, 2);
    CHECK_INT(ahead->heard, 8);
    CHECK_INT(behind->heard, 14);
    free_ears();
    close_bus();
}

TEST(there_is_a_largest_number_of_subscribers)
{
    autofree char *path = test_path("db");

    open_bus(path);
    for (int i = 0; i < SUBSCRIBERS_MAX; i++)
        listen("default", &filters[0], -1);
    struct ear *last = list_entry(ears.prev, struct ear, node);
    run_for(5);
    CHECK(!last->lost);
    struct ear *over = listen("default", &filters[0], -1);
    CHECK(!over->lost); /* not from inside the call */
    struct ear *changed_its_mind = listen("default", &filters[0], -1);
    ear_free(changed_its_mind);
    run_for(20);
    CHECK(over->lost && over->why == ERR_UNAVAILABLE);
    CHECK_INT(bus_subscribers(bus), SUBSCRIBERS_MAX);
    ear_free(last);
    struct ear *again = listen("default", &filters[0], -1);
    add("default", 1, 2);
    CHECK(!again->lost && again->heard == 1);
    CHECK_INT(over->heard, 0);
    free_ears();
    CHECK_INT(bus_subscribers(bus), 0);
    close_bus();
}

/* ---- ending while the store reads ---- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static int wait_at_gate(struct db *db, void *ctx, struct err *err)
{
    (void)db, (void)ctx, (void)err;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return 0;
}

/* Both readers are kept busy until the gate opens. */
static void hold_readers(struct test_job holders[2])
{
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 2; i++) {
        holders[i] = test_job_of(wait_at_gate, NULL);
        holders[i].stop = false;
        store_read(test_store, &holders[i].job);
    }
}

TEST(ending_while_the_store_reads_is_fine)
{
    autofree char *path = test_path("db");
    struct test_job holders[2];

    open_bus(path);
    add("default", 100, 2);
    close_bus();
    open_bus(path);
    hold_readers(holders);
    struct ear *leaves = listen("default", &filters[0], 3);
    struct ear *stays = listen("default", &filters[0], 3);
    run_for(10);
    CHECK(leaves->sub.state == BUS_REPLAY && leaves->sub.replay != NULL);
    ear_free(leaves);
    pthread_mutex_unlock(&gate);
    run_until_caught_up(stays);
    CHECK_INT(stays->heard, 97);
    free_ears();
    close_bus();
}

TEST(a_bus_may_end_before_its_reads)
{
    autofree char *path = test_path("db");
    struct test_job holders[2];

    open_bus(path);
    add("default", 100, 2);
    close_bus();
    open_bus(path);
    hold_readers(holders);
    for (int i = 0; i < 50; i++) /* more than may read at once */
        listen("default", &filters[0], 1);
    run_for(10);
    unsigned reading = 0;
    list_each (node, &ears)
        reading += list_entry(node, struct ear, node)->sub.replay != NULL;
    CHECK_INT(reading, BUS_REPLAYS_MAX);
    bus_free(bus);
    bus = NULL;
    list_each (node, &ears)
        CHECK(list_entry(node, struct ear, node)->sub.bus == NULL);
    free_ears();
    pthread_mutex_unlock(&gate);
    close_bus();
}

/* Many come back at once, all with old numbers, and the store's queue is nearly full as well. */
TEST(a_crowd_that_comes_back_is_served)
{
    enum { CROWD = 6000 };
    autofree char *path = test_path("db");
    unsigned behind = CROWD;

    open_bus(path);
    add("default", 40, 2);
    close_bus();
    open_bus(path);
    for (int i = 0; i < CROWD; i++)
        listen("default", &filters[0], (int64_t)test_rand(40));
    for (int i = 0; i < 2000 && behind; i++) {
        run_for(5);
        behind = 0;
        list_each (node, &ears) {
            CHECK(!list_entry(node, struct ear, node)->lost);
            behind += !caught_up(list_entry(node, struct ear, node));
        }
    }
    CHECK_INT(behind, 0);
    free_ears();
    close_bus();
}
