/*
 * A user and a network namespace cost more than the rest of a box together, its cgroups of v1 not
 * much less. A few are made ahead, each for one free index, when nothing else is to be done; none
 * is ever used twice.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "warden/boxes.h"
#include "warden/net.h"

#define POOL_SIZE CGROUP_AHEAD
#define POOL_REST_MS 1    /* after the last request, before the pool is filled */
#define POOL_PAUSE_MS 500 /* after a namespace could not be made */

static struct {
    uint32_t slot;
    struct box_ahead ahead; /* its groups have the number of its place here */
} pool[POOL_SIZE];
static unsigned pool_count, pool_size = POOL_SIZE;
static int64_t due_ms;
static bool pool_is_on;

void pool_on(bool on)
{
    pool_is_on = on;
    due_ms = 0;
}

int64_t pool_due_ms(void)
{
    return due_ms;
}

static int pair_make(uint32_t slot, bool nested, struct box_ahead *out, enum box_step *step)
{
    struct net net = NET_NONE;

    *out = (struct box_ahead){ -1, -1, -1 };
    *step = BOX_STEP_USERNS;
    autoclose int user = userns_make(&box_host, slot, nested);
    if (user < 0)
        return -1;
    *step = BOX_STEP_NETNS;
    if ((out->netns = box_host.rootless ? rootless_netns(&net) : netns_make(&net)) < 0)
        return -1;
    net_keep(slot, &net);
    out->userns = take_fd(&user);
    return 0;
}

static int fill_one(void)
{
    struct box *box = table_free();
    enum box_step step;

    if (!box)
        return 0;
    if (pair_make(table_slot(box), false, &pool[pool_count].ahead, &step) < 0)
        return -1;
    cgroup_make_ahead(pool_count);
    pool[pool_count].ahead.groups = (int)pool_count;
    table_reserve(box, true);
    pool[pool_count++].slot = table_slot(box);
    return 0;
}

void pool_wish(void)
{
    if (pool_is_on && pool_count < pool_size && !due_ms)
        due_ms = clock_mono_ms() + POOL_REST_MS;
}

static void give_back(unsigned keep)
{
    while (pool_count > keep) {
        table_reserve(table_at(pool[--pool_count].slot), false);
        net_leave(pool[pool_count].slot);
        cgroup_drop_ahead(pool_count);
        close(pool[pool_count].ahead.userns);
        close(pool[pool_count].ahead.netns);
    }
}

void pool_empty(void)
{
    give_back(0);
}

void boxes_pool(unsigned size)
{
    pool_size = MIN(size, POOL_SIZE);
    give_back(pool_size);
    pool_wish();
}

void pool_run_due(int64_t now_ms)
{
    if (!due_ms || due_ms > now_ms)
        return;
    due_ms = 0;
    if (table_pending() == 0 && pool_count < pool_size && fill_one() < 0) {
        log_debug("no namespaces in advance", kv_str("error", strerror(errno)));
        due_ms = clock_mono_ms() + POOL_PAUSE_MS;
        return;
    }
    pool_wish();
}

struct box *pool_take(bool nested, struct box_ahead *ahead, enum box_step *step)
{
    if (pool_count && !nested) {
        struct box *box = table_at(pool[--pool_count].slot);

        *ahead = pool[pool_count].ahead;
        return box;
    }
    struct box *box = table_free();
    *step = BOX_STEP_SPEC;
    if (!box) {
        errno = ENOSPC;
        return NULL;
    }
    return pair_make(table_slot(box), nested, ahead, step) < 0 ? NULL : box;
}
