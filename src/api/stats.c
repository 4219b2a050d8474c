/*
 * What sandboxes use, again and again, over one WebSocket: the peer names them, and gets a message
 * with the figures of all of them every so often. The kernel is asked for one sandbox after the
 * other, so a watcher has at most one question under way, and a slow reader none.
 *
 * Looking is no use of a sandbox: its idle time goes on. There may be STATS_WATCHERS_MAX watchers,
 * so that all of them together stay far below what the warden takes in a second.
 */
#include "api/socket.h"

#include "base/clock.h"
#include "box/boxes.h"
#include "model/sandbox.h"

struct watch_wish {
    const char **sandboxes;
    int64_t every_ms;
};

static const struct field watch_fields[] = {
    FIELD(watch_wish, sandboxes, F_STRINGS, F_REQUIRED, .max = STATS_WATCHED_MAX,
          .each_max = ID_SIZE - 1, .help = "Their ids, instead of those before"),
    FIELD(watch_wish, every_ms, F_INT, 0, .min = STATS_EVERY_MIN_MS, .max = STATS_EVERY_MAX_MS,
          .help = "Milliseconds from one message to the next"),
    { 0 },
};

/* A wish and the memory of its names. */
struct subject {
    struct arena arena;
    struct watch_wish wish;
};

struct watcher {
    struct socket socket;
    struct timer due;
    struct subject *now, *next; /* of this round, and from the next on; or NULL */
    struct box_op op;
    struct box_usage usage;
    unsigned at;      /* in now->wish.sandboxes */
    int64_t begun_ms; /* the round; 0: none yet */
    struct buf text;  /* its message */
    struct json_out json;
    bool asking, full, closed;
};

static unsigned watchers; /* loop thread */

static void subject_free(struct subject *subject)
{
    if (subject)
        arena_free(&subject->arena);
    free(subject);
}

static void watcher_free(struct watcher *watcher)
{
    watchers--;
    timer_cancel(watcher->socket.api->loop, &watcher->due);
    subject_free(watcher->now);
    subject_free(watcher->next);
    buf_free(&watcher->text);
    free(watcher);
}

/* ---- a round ---- */

static void ask_on(struct watcher *watcher);

/* The next round a while after this one began, and never at once: names may change quickly. */
static void plan(struct watcher *watcher)
{
    const struct subject *subject = watcher->next ? watcher->next : watcher->now;
    int64_t past = clock_mono_ms() - watcher->begun_ms;
    int64_t wait = watcher->next ? STATS_EVERY_MIN_MS : subject->wish.every_ms;

    if (watcher->asking || watcher->full || watcher->closed || !subject->wish.sandboxes[0])
        return;
    timer_set(watcher->socket.api->loop, &watcher->due,
              watcher->begun_ms ? MAX(wait - past, (int64_t)1) : 1);
}

static void begin(struct timer *timer)
{
    struct watcher *watcher = container_of(timer, struct watcher, due);

    if (watcher->next) {
        subject_free(watcher->now);
        watcher->now = watcher->next;
        watcher->next = NULL;
    }
    watcher->begun_ms = clock_mono_ms();
    watcher->at = 0;
    buf_clear(&watcher->text);
    watcher->json = json_to(&watcher->text);
    json_open_list(&watcher->json, "items");
    ask_on(watcher);
}

static void put(struct watcher *watcher)
{
    const struct box_usage *usage = &watcher->usage;
    struct json_out *json = &watcher->json;

    json_open(json, '{');
    json_kv_text(json, "sandbox", watcher->now->wish.sandboxes[watcher->at]);
    json_kv_int(json, "at_us", clock_mono_us());
    json_kv_int(json, "cpu_us", (int64_t)usage->cpu_us);
    json_kv_int(json, "memory", (int64_t)usage->memory);
    json_kv_int(json, "memory_peak", (int64_t)usage->memory_peak);
    json_kv_int(json, "pids", (int64_t)usage->pids);
    json_kv_int(json, "oom_kills", (int64_t)usage->oom_kills);
    json_kv_int(json, "disk", (int64_t)usage->disk);
    json_key(json, "io");
    if (usage->io_read == UINT64_MAX) {
        json_put_null(json);
    } else {
        json_open(json, '{');
        json_kv_int(json, "read", (int64_t)usage->io_read);
        json_kv_int(json, "written", (int64_t)usage->io_written);
        json_close(json, '}');
    }
    json_close(json, '}');
}

static void answered(struct box_op *op, const struct err *err)
{
    struct watcher *watcher = container_of(op, struct watcher, op);

    watcher->asking = false;
    if (watcher->closed) {
        watcher_free(watcher);
        return;
    }
    if (!err)
        put(watcher);
    watcher->at++;
    ask_on(watcher);
}

/* Whoever is gone, not the caller's or not up is left out. */
static void ask_on(struct watcher *watcher)
{
    for (const char *id; (id = watcher->now->wish.sandboxes[watcher->at]); watcher->at++) {
        struct box *box = boxes_by_id(watcher->socket.api->boxes, id);
        struct err err = { 0 };

        if (!box || !box_within(box, principal_reach(&watcher->socket.who)))
            continue;
        watcher->op = (struct box_op){ .done = answered };
        watcher->asking = box_stats(box, &watcher->usage, &watcher->op, &err) == 0;
        if (watcher->asking)
            return;
    }
    json_close_list(&watcher->json);
    watcher->full = !socket_text(&watcher->socket, &watcher->text);
    plan(watcher);
}

/* ---- the peer ---- */

static void on_message(struct socket *socket, bool text, struct str data)
{
    struct watcher *watcher = container_of(socket, struct watcher, socket);
    struct subject *subject = xnew(struct subject);
    struct err err = { 0 };
    struct json *json;

    int rc = text ? json_parse(&subject->arena, arena_str(&subject->arena, data), &json, &err)
                  : err_set(&err, ERR_INVALID, "what is to be watched is told in text messages");
    if (rc < 0 ||
        field_decode(watch_fields, json, &subject->wish, &subject->arena, NULL, &err) < 0) {
        subject_free(subject);
        socket_close(socket, SOCKET_INVALID, err.msg);
        return;
    }
    if (!subject->wish.every_ms)
        subject->wish.every_ms = STATS_EVERY_MS;
    subject_free(watcher->next);
    watcher->next = subject;
    timer_cancel(socket->api->loop, &watcher->due);
    plan(watcher);
}

static void on_drained(struct socket *socket)
{
    struct watcher *watcher = container_of(socket, struct watcher, socket);

    watcher->full = false;
    if (watcher->now && !timer_is_set(&watcher->due))
        plan(watcher);
}

static void on_closed(struct socket *socket)
{
    struct watcher *watcher = container_of(socket, struct watcher, socket);

    watcher->closed = true;
    timer_cancel(socket->api->loop, &watcher->due);
    if (!watcher->asking)
        watcher_free(watcher);
}

static const struct socket_ops ops = { .message = on_message,
                                       .drained = on_drained,
                                       .closed = on_closed };

static int watch_open(struct call *call, struct err *err)
{
    if (watchers >= STATS_WATCHERS_MAX)
        return err_set(err, ERR_RATE, "%d sockets watch figures already", STATS_WATCHERS_MAX);
    struct watcher *watcher = xnew(struct watcher);
    watcher->due.fn = begin;
    if (!socket_open(&watcher->socket, call, NULL, &ops))
        free(watcher);
    else
        watchers++;
    return 0;
}

const struct route stats_routes[] = {
    { .name = "stats.watch",
      .method = "GET",
      .path = "/api/v1/stats",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = watch_open,
      .flags = ROUTE_WS,
      .summary = "As a WebSocket: what sandboxes use, again and again. A text message "
                 "`{\"sandboxes\":[ID…],\"every_ms\":2000}` says of which; then come messages "
                 "`{\"items\":[…]}` with `sandbox`, `at_us` (a clock that never jumps) and the "
                 "figures of /stats, of those that are up. Another message names others." },
    { 0 },
};
