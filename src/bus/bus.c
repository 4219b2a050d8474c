/*
 * Each tenant is a topic: the newest events in a ring, and the list of those who are caught up.
 * Every subscription is in exactly one list, by what it waits for:
 *
 *   topic->live    the next event
 *   bus->ready     its turn to read on from the ring (the pump, a timer of 0 ms)
 *   bus->waiting   one of the BUS_REPLAYS_MAX reads of the store
 *   bus->reading   the end of such a read
 *   bus->paused    its peer
 *
 * Hand-over without gaps or duplicates: an event number is given out only if it is the cursor's
 * next one, whatever the source; the store has every number up to the topic's head (an event is
 * published after its commit); so whoever has read up to the head is live. The store may be ahead
 * of what was published; the cursor then passes the head, and the late publication is skipped.
 *
 * Filters are applied to pages on the reader thread, so that somebody who wants one event in a
 * million does not take the loop's time. Delivery allocates nothing.
 */
#include "bus/bus.h"

#include <assert.h>

#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/metric.h"

METRIC_COUNTER(delivered, "atoll_bus_events_total", "Events handed to subscribers", "from", "live",
               "ring", "store");
enum { FROM_LIVE, FROM_RING, FROM_STORE };
METRIC_COUNTER(lost, "atoll_bus_lost_total",
               "Subscriptions that ended because their place is gone");
METRIC_GAUGE(subscribers, "atoll_bus_subscribers", "Subscriptions");

#define RETRY_MS 100 /* after the store had no room for one more read */

struct bus_topic {
    char *tenant;        /* owned */
    int64_t head, first; /* newest published; oldest in the ring, head+1 when it is empty */
    struct event **ring; /* owned, BUS_RING_EVENTS places, by number; NULL before the first */
    size_t bytes;
    struct list live;
};

struct bus {
    struct loop *loop;
    struct store *store;
    struct map topics;
    struct list ready, waiting, reading, paused; /* of subscriptions */
    struct list replays;
    struct timer pump;
    unsigned count, reads;
    struct bus_sub *calling; /* whose callback runs; NULL once that has ended it */
};

/* A page of the store on its way; outlives a subscriber (and a bus) that ends meanwhile. */
struct bus_replay {
    struct store_job job;
    struct bus *bus;
    struct bus_sub *sub;
    struct list node; /* in bus->replays */
    char *tenant;     /* owned */
    struct event_filter filter;
    int64_t since, last; /* asked for; read up to */
    int64_t head;
    struct event *first; /* owned: those that pass the filter */
};

/* ---- topics and their rings ---- */

static struct bus_topic *topic_of(struct bus *bus, const char *tenant)
{
    struct bus_topic *topic = map_get(&bus->topics, str_of(tenant));

    if (topic)
        return topic;
    topic = xnew(struct bus_topic);
    topic->tenant = xstrdup(tenant);
    topic->head = store_event_head(bus->store, tenant);
    topic->first = topic->head + 1;
    list_init(&topic->live);
    map_put(&bus->topics, str_of(tenant), topic);
    return topic;
}

static struct event **place(struct bus_topic *topic, int64_t seq)
{
    return &topic->ring[seq % BUS_RING_EVENTS];
}

static void forget_oldest(struct bus_topic *topic)
{
    struct event **oldest = place(topic, topic->first++);

    topic->bytes -= event_size(*oldest);
    event_list_free(*oldest);
    *oldest = NULL;
}

static void remember(struct bus_topic *topic, const struct event *event)
{
    if (!topic->ring)
        topic->ring = xcalloc(BUS_RING_EVENTS, sizeof(struct event *));
    while (topic->first <= topic->head && (event->seq - topic->first >= BUS_RING_EVENTS ||
                                           topic->bytes + event_size(event) > BUS_RING_BYTES))
        forget_oldest(topic);
    *place(topic, event->seq) = event_copy(event);
    topic->bytes += event_size(event);
    topic->head = event->seq;
}

static void topic_free(struct bus_topic *topic)
{
    while (topic->first <= topic->head)
        forget_oldest(topic);
    free(topic->ring);
    free(topic->tenant);
    free(topic);
}

/* ---- one subscriber ---- */

static void move_to(struct bus_sub *sub, struct list *list)
{
    list_remove(&sub->node);
    list_append(list, &sub->node);
}

static void make_ready(struct bus_sub *sub, int after_ms)
{
    struct bus *bus = sub->bus;

    sub->state = BUS_REPLAY;
    move_to(sub, &bus->ready);
    if (!timer_is_set(&bus->pump))
        timer_set(bus->loop, &bus->pump, after_ms);
}

/* Every way a subscription ends comes through here; what it points to is the caller's again. */
static void detach(struct bus_sub *sub)
{
    struct bus *bus = sub->bus;

    assert(bus);
    list_remove(&sub->node);
    if (sub->replay)
        sub->replay->sub = NULL;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a sub is in one list, once */
    if (bus->calling == sub)
        bus->calling = NULL;
    if (sub->state != BUS_REFUSED) {
        bus->count--;
        metric_set(&subscribers, 0, bus->count);
    }
    free((char *)sub->filter.types);
    free((char *)sub->filter.object);
    sub->filter = (struct event_filter){ 0 };
    sub->replay = NULL;
    sub->topic = NULL;
    sub->bus = NULL;
}

static void end(struct bus_sub *sub, const struct err *err)
{
    metric_add(&lost, 0, 1);
    detach(sub);
    sub->on_lost(sub, err);
}

/* Hands over one event. False when that was the last for now: it waits, or it is no more. */
static bool give(struct bus_sub *sub, const struct event *event, unsigned from)
{
    struct bus *bus = sub->bus;

    sub->cursor = event->seq;
    metric_add(&delivered, from, 1);
    bus->calling = sub;
    enum bus_take take = sub->on_event(sub, event);
    if (bus->calling != sub)
        return false; /* and perhaps no memory any more */
    bus->calling = NULL;
    if (take == BUS_MORE)
        return true;
    sub->state = BUS_PAUSED;
    move_to(sub, &bus->paused);
    return false;
}

static bool wants(const struct bus_sub *sub, const struct event *event)
{
    if (!sub->filter.types && !sub->filter.object)
        return true;
    return event_matches(event, &sub->filter);
}

/* Reads on from the ring until it is caught up, its turn is over, or the store must help. */
static void catch_up(struct bus_sub *sub)
{
    struct bus_topic *topic = sub->topic;

    for (int given = 0; sub->cursor < topic->head; given++) {
        if (sub->cursor + 1 < topic->first) {
            move_to(sub, &sub->bus->waiting);
            return;
        }
        if (given == BUS_TURN) {
            make_ready(sub, 0);
            return;
        }
        const struct event *event = *place(topic, sub->cursor + 1);
        if (!wants(sub, event))
            sub->cursor = event->seq;
        else if (!give(sub, event, FROM_RING))
            return;
    }
    sub->state = BUS_LIVE;
    move_to(sub, &topic->live);
}

/* ---- pages from the store ---- */

static void replay_free(struct bus_replay *replay)
{
    event_list_free(replay->first);
    free((char *)replay->filter.types);
    free((char *)replay->filter.object);
    free(replay->tenant);
    free(replay);
}

/* On a reader thread. */
static int replay_run(struct store_job *job, struct db *db, struct err *err)
{
    struct bus_replay *replay = container_of(job, struct bus_replay, job);
    struct event_page page = { 0 };

    if (event_page(db, replay->tenant, replay->since, BUS_PAGE, &page, err) < 0)
        return -1;
    replay->head = page.head;
    replay->last = replay->since;
    replay->first = page.first;
    for (struct event **at = &replay->first; *at;) {
        struct event *event = *at;

        replay->last = event->seq;
        if (event_matches(event, &replay->filter)) {
            at = &event->next;
            continue;
        }
        *at = event->next;
        event->next = NULL;
        event_list_free(event);
    }
    return 0;
}

static void take_page(struct bus_sub *sub, const struct bus_replay *replay)
{
    struct err err;

    if (replay->head < replay->since) {
        (void)err_set(&err, ERR_GONE, "event %lld was never given out; the newest is %lld",
                      (long long)replay->since, (long long)replay->head);
        end(sub, &err);
        return;
    }
    for (const struct event *event = replay->first; event; event = event->next)
        if (!give(sub, event, FROM_STORE))
            return;
    sub->cursor = replay->last;
    make_ready(sub, 0);
}

static void start_reads(struct bus *bus);

static void replay_done(struct store_job *job)
{
    struct bus_replay *replay = container_of(job, struct bus_replay, job);
    struct bus_sub *sub = replay->sub;
    struct bus *bus = replay->bus;

    if (bus) {
        list_remove(&replay->node);
        bus->reads--;
    }
    if (bus && sub) {
        sub->replay = NULL;
        if (job->rc >= 0)
            take_page(sub, replay);
        else if (job->err.code == ERR_UNAVAILABLE)
            make_ready(sub, RETRY_MS);
        else
            end(sub, &job->err);
    }
    if (bus && job->rc >= 0)
        start_reads(bus);
    replay_free(replay);
}

static char *copy_or_null(const char *text)
{
    return text && *text ? xstrdup(text) : NULL;
}

static void start_read(struct bus_sub *sub)
{
    struct bus_replay *replay = xnew(struct bus_replay);
    struct bus *bus = sub->bus;

    replay->job = (struct store_job){ .run = replay_run, .done = replay_done };
    replay->bus = bus;
    replay->sub = sub;
    replay->tenant = xstrdup(sub->topic->tenant);
    replay->filter.types = copy_or_null(sub->filter.types);
    replay->filter.object = copy_or_null(sub->filter.object);
    replay->since = sub->cursor;
    sub->replay = replay;
    sub->state = BUS_REPLAY;
    move_to(sub, &bus->reading);
    list_append(&bus->replays, &replay->node);
    bus->reads++;
    store_read(bus->store, &replay->job);
}

static void start_reads(struct bus *bus)
{
    while (bus->reads < BUS_REPLAYS_MAX && !list_empty(&bus->waiting))
        start_read(list_entry(bus->waiting.next, struct bus_sub, node));
}

/* ---- the pump ---- */

static void refuse(struct bus_sub *sub)
{
    struct err err;

    (void)err_set(&err, ERR_UNAVAILABLE, "%d subscribers listen already", SUBSCRIBERS_MAX);
    end(sub, &err);
}

/* Moves all of `from` into `to`, so that what is added meanwhile waits for the next round. */
static void take_list(struct list *to, struct list *from)
{
    list_init(to);
    if (list_empty(from))
        return;
    *to = *from;
    to->next->prev = to->prev->next = to;
    list_init(from);
}

static void pump(struct timer *timer)
{
    struct bus *bus = container_of(timer, struct bus, pump);
    struct list turn;

    take_list(&turn, &bus->ready);
    while (!list_empty(&turn)) {
        struct bus_sub *sub = list_entry(turn.next, struct bus_sub, node);

        if (sub->state == BUS_REFUSED)
            refuse(sub);
        else
            catch_up(sub);
    }
    start_reads(bus);
}

/* ---- the public side ---- */

void bus_publish(struct bus *bus, const struct event *event)
{
    struct bus_topic *topic = topic_of(bus, event->tenant);
    struct list turn;

    if (event->seq <= topic->head)
        return; /* the topic began after it: its head came from the store */
    assert(event->seq == topic->head + 1);
    remember(topic, event);
    take_list(&turn, &topic->live);
    while (!list_empty(&turn)) {
        struct bus_sub *sub = list_entry(turn.next, struct bus_sub, node);

        move_to(sub, &topic->live);
        if (event->seq <= sub->cursor)
            continue; /* it read this one from the store already */
        if (wants(sub, event))
            give(sub, event, FROM_LIVE);
        else
            sub->cursor = event->seq;
    }
}

void bus_subscribe(struct bus *bus, struct bus_sub *sub, const char *tenant,
                   const struct event_filter *filter, int64_t since)
{
    struct bus_topic *topic = topic_of(bus, tenant);

    sub->bus = bus;
    sub->topic = topic;
    sub->filter.types = copy_or_null(filter ? filter->types : NULL);
    sub->filter.object = copy_or_null(filter ? filter->object : NULL);
    sub->cursor = since < 0 ? topic->head : since;
    sub->replay = NULL;
    list_init(&sub->node);
    if (bus->count >= SUBSCRIBERS_MAX) {
        make_ready(sub, 0);
        sub->state = BUS_REFUSED;
        return;
    }
    bus->count++;
    metric_set(&subscribers, 0, bus->count);
    if (sub->cursor == topic->head) {
        sub->state = BUS_LIVE;
        move_to(sub, &topic->live);
    } else if (sub->cursor < topic->head) {
        make_ready(sub, 0);
    } else { /* ahead of what was published: only the store knows whether that exists */
        sub->state = BUS_REPLAY;
        move_to(sub, &bus->waiting);
        start_reads(bus);
    }
}

void bus_resume(struct bus_sub *sub)
{
    if (sub->bus && sub->state == BUS_PAUSED)
        make_ready(sub, 0);
}

void bus_unsubscribe(struct bus_sub *sub)
{
    if (sub->bus)
        detach(sub);
}

int64_t bus_head(struct bus *bus, const char *tenant)
{
    const struct bus_topic *topic = map_get(&bus->topics, str_of(tenant));

    return topic ? topic->head : store_event_head(bus->store, tenant);
}

unsigned bus_subscribers(const struct bus *bus)
{
    return bus->count;
}

int bus_new(struct bus **out, struct loop *loop, struct store *store, struct err *err)
{
    struct bus *bus = xnew(struct bus);

    (void)err;
    bus->loop = loop;
    bus->store = store;
    bus->pump.fn = pump;
    list_init(&bus->ready);
    list_init(&bus->waiting);
    list_init(&bus->reading);
    list_init(&bus->paused);
    list_init(&bus->replays);
    *out = bus;
    return 0;
}

static void detach_all(struct list *subs)
{
    while (!list_empty(subs))
        detach(list_entry(subs->next, struct bus_sub, node));
}

void bus_free(struct bus *bus)
{
    struct map_slot *slot;
    size_t at = 0;

    if (!bus)
        return;
    timer_cancel(bus->loop, &bus->pump);
    detach_all(&bus->ready);
    detach_all(&bus->waiting);
    detach_all(&bus->reading);
    detach_all(&bus->paused);
    while ((slot = map_next(&bus->topics, &at))) {
        struct bus_topic *topic = slot->value;

        detach_all(&topic->live);
        topic_free(topic);
    }
    map_free(&bus->topics);
    list_each_safe (node, &bus->replays) {
        list_entry(node, struct bus_replay, node)->bus = NULL;
        list_remove(node);
    }
    free(bus);
}
