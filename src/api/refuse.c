/*
 * Refusals become audit rows, on disk before the refused one hears of it; but a flood of them must
 * not: it would fill the disk and drown the log. Each peer address has REFUSALS_AUDITED_PER_MIN
 * rows a minute and all of them together REFUSALS_AUDITED_MAX; what is beyond is answered at once,
 * counted, and written as one row when the minute ends. Addresses share a fixed table by their
 * hash, so a flood from many addresses costs no memory.
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
    unsigned used_by_all;
    int64_t suppressed;
};

/* The row at the end of a minute. */
struct tally {
    struct store_job job;
    char detail[48];
};

static const struct audit nobody = { .tenant = TENANT_OWNER,
                                     .actor = "-",
                                     .role = "-",
                                     .object = "",
                                     .request_id = "",
                                     .peer = "",
                                     .detail = "{}" };

static int tally_run(struct store_job *job, struct db *db, struct err *err)
{
    struct audit row = nobody;

    row.action = "refused.suppressed";
    row.outcome = "rate_limited";
    row.detail = container_of(job, struct tally, job)->detail;
    return audit_add(db, &row, err);
}

static void tally_done(struct store_job *job)
{
    free(container_of(job, struct tally, job));
}

static void window_ends(struct timer *timer)
{
    struct refusals *refusals = container_of(timer, struct refusals, window);

    memset(refusals->used, 0, sizeof(refusals->used));
    refusals->used_by_all = 0;
    if (!refusals->suppressed)
        return;
    struct tally *tally = xnew(struct tally);
    tally->job = (struct store_job){ .run = tally_run, .done = tally_done };
    snprintf(tally->detail, sizeof(tally->detail), "{\"count\":%lld}",
             (long long)refusals->suppressed);
    refusals->suppressed = 0;
    store_write(refusals->api->store, &tally->job);
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

/* Takes one of the rows that this peer has left. */
static bool take_share(struct refusals *refusals, const struct call *call)
{
    const char *addr = call->req ? call->req->peer->addr : "";
    unsigned slot = map_hash(addr, strlen(addr)) % PEER_SLOTS;

    if (!timer_is_set(&refusals->window))
        timer_set(refusals->api->loop, &refusals->window, WINDOW_MS);
    if (refusals->used[slot] >= REFUSALS_AUDITED_PER_MIN ||
        refusals->used_by_all >= REFUSALS_AUDITED_MAX) {
        refusals->suppressed++;
        return false;
    }
    refusals->used[slot]++;
    refusals->used_by_all++;
    return true;
}

static const char *detail_of(struct call *call, const struct err *err)
{
    autobuf struct buf detail = { 0 };
    struct json_out json = json_to(&detail);

    json_open(&json, '{');
    json_kv_text(&json, "message", err->msg);
    if (call->req) {
        json_kv_str(&json, "method", call->req->method);
        json_kv_str(&json, "path",
                    (struct str){ call->req->path.p, MIN(call->req->path.n, (size_t)512) });
    }
    if (call->detail) { /* what the handler had noted about it before it failed */
        json_key(&json, "about");
        json_put_raw(&json, str_of(call->detail));
    }
    json_close(&json, '}');
    return arena_memdup0(&call->arena, detail.data, detail.len);
}

bool refusals_row(struct refusals *refusals, struct call *call, const struct err *err,
                  struct audit *out)
{
    if (!take_share(refusals, call))
        return false;
    *out = nobody;
    out->at_ms = clock_wall_ms();
    out->action = call->route ? call->route->name : "refused";
    out->outcome = err_info(err->code)->name;
    out->detail = detail_of(call, err);
    out->request_id = call->request_id;
    if (call->req)
        out->peer = arena_strdup(&call->arena, call->req->peer->text);
    else if (call->peer)
        out->peer = call->peer;
    if (call->who.id[0]) {
        out->actor = call->who.id;
        out->role = call->who.role ? role_name(call->who.role) : "-";
        out->tenant = call->who.tenant;
    }
    return true;
}
