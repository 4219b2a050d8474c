/*
 * Refusals become audit rows, but a flood of them must not: it would fill the disk and drown the
 * log. Each peer address has REFUSALS_AUDITED_PER_MIN rows a minute; what is beyond is counted and
 * written as one row when the minute ends. Addresses share a fixed table by their hash, so a
 * flood from many addresses costs no memory.
 */
#include "api/own.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/map.h"

#define PEER_SLOTS 1024
#define WINDOW_MS 60000

struct refusals {
    struct api *api;
    struct timer window;
    uint16_t used[PEER_SLOTS];
    int64_t suppressed;
};

struct refusal_row {
    struct store_job job;
    struct arena arena;
    struct audit row;
};

static int row_run(struct store_job *job, struct db *db, struct err *err)
{
    return audit_add(db, &container_of(job, struct refusal_row, job)->row, err);
}

static void row_done(struct store_job *job)
{
    struct refusal_row *refusal = container_of(job, struct refusal_row, job);

    arena_free(&refusal->arena);
    free(refusal);
}

static struct refusal_row *row_new(void)
{
    struct refusal_row *refusal = xnew(struct refusal_row);

    refusal->job = (struct store_job){ .run = row_run, .done = row_done };
    refusal->row = (struct audit){ .at_ms = clock_wall_ms(),
                                   .tenant = "default",
                                   .actor = "-",
                                   .role = "-",
                                   .object = "",
                                   .request_id = "",
                                   .peer = "",
                                   .detail = "{}" };
    return refusal;
}

static void window_ends(struct timer *timer)
{
    struct refusals *refusals = container_of(timer, struct refusals, window);

    memset(refusals->used, 0, sizeof(refusals->used));
    if (!refusals->suppressed)
        return;
    struct refusal_row *refusal = row_new();
    refusal->row.action = "refused.suppressed";
    refusal->row.outcome = "rate_limited";
    refusal->row.detail =
        arena_printf(&refusal->arena, "{\"count\":%lld}", (long long)refusals->suppressed);
    refusals->suppressed = 0;
    store_write(refusals->api->store, &refusal->job);
}

struct refusals *refusals_new(struct api *api)
{
    struct refusals *refusals = xnew(struct refusals);

    refusals->api = api;
    refusals->window.fn = window_ends;
    return refusals;
}

void refusals_free(struct refusals *refusals)
{
    timer_cancel(refusals->api->loop, &refusals->window);
    free(refusals);
}

void refusals_note(struct refusals *refusals, const struct call *call, const struct err *err)
{
    const char *addr = call->req ? call->req->peer->addr : "";
    unsigned slot = map_hash(addr, strlen(addr)) % PEER_SLOTS;

    if (!timer_is_set(&refusals->window))
        timer_set(refusals->api->loop, &refusals->window, WINDOW_MS);
    if (refusals->used[slot] >= REFUSALS_AUDITED_PER_MIN) {
        refusals->suppressed++;
        return;
    }
    refusals->used[slot]++;

    struct refusal_row *refusal = row_new();
    struct arena *arena = &refusal->arena;
    autobuf struct buf detail = { 0 };
    struct json_out json = json_to(&detail);
    json_open(&json, '{');
    json_kv_text(&json, "message", err->msg);
    if (call->req) {
        json_kv_str(&json, "method", call->req->method);
        json_kv_str(&json, "path",
                    (struct str){ call->req->path.p, MIN(call->req->path.n, (size_t)512) });
    }
    json_close(&json, '}');
    refusal->row.action = call->route ? call->route->name : "refused";
    refusal->row.outcome = err_info(err->code)->name;
    refusal->row.detail = arena_memdup0(arena, detail.data, detail.len);
    refusal->row.request_id = arena_strdup(arena, call->request_id);
    refusal->row.peer = arena_strdup(arena, call->req    ? call->req->peer->text
                                            : call->peer ? call->peer
                                                         : "");
    if (call->who.id[0]) {
        refusal->row.actor = arena_strdup(arena, call->who.id);
        refusal->row.role = call->who.role ? role_name(call->who.role) : "-";
        refusal->row.tenant = arena_strdup(arena, call->who.tenant);
    }
    store_write(refusals->api->store, &refusal->job);
}
