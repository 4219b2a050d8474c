/*
 * bus - committed events to everyone who listens; loop thread.
 *
 * A subscriber has a cursor: the last event number it was given. While it is caught up, a published
 * event is handed to it at once. When it is not (it just came with an old number, or its peer reads
 * slowly) it reads on from the ring of recent events, and before that from the store, at its own
 * pace; there is no queue per subscriber, so a slow one costs nothing. One whose place is beyond
 * retention is told (on_lost) and dropped.
 *
 * Callbacks come from the loop, never from inside bus_subscribe or bus_resume. A callback may end
 * and free its own subscription or any other.
 */
#pragma once

#include "loop/loop.h"
#include "store/store.h"

struct bus;

enum bus_take { BUS_MORE, BUS_WAIT }; /* BUS_WAIT: call bus_resume when there is room again */

struct bus_sub {
    struct list node;
    struct bus *bus; /* NULL when it has ended */
    struct bus_topic *topic;
    struct event_filter filter; /* strings owned */
    int64_t cursor;
    enum { BUS_LIVE, BUS_REPLAY, BUS_PAUSED, BUS_REFUSED } state;
    /* One event that passed the filter. */
    enum bus_take (*on_event)(struct bus_sub *sub, const struct event *event);
    /*
     * The place is gone (ERR_GONE), there are SUBSCRIBERS_MAX already (ERR_UNAVAILABLE), or the
     * store failed; the subscription has ended.
     */
    void (*on_lost)(struct bus_sub *sub, const struct err *err);
    struct bus_replay *replay; /* the bus's own */
};

must_use int bus_new(struct bus **out, struct loop *loop, struct store *store, struct err *err);
/* Ends every subscription without a word. Close the store first, or stop publishing. */
void bus_free(struct bus *bus);
/* From store_options.on_event. */
void bus_publish(struct bus *bus, const struct event *event);
/* Begins after number `since`; -1 means from now on. Set the callbacks first. */
void bus_subscribe(struct bus *bus, struct bus_sub *sub, const char *tenant,
                   const struct event_filter *filter, int64_t since);
void bus_resume(struct bus_sub *sub);
void bus_unsubscribe(struct bus_sub *sub); /* fine when it has ended, or is zero */
/* Newest number of the tenant that was published. */
int64_t bus_head(struct bus *bus, const char *tenant);
unsigned bus_subscribers(const struct bus *bus);
