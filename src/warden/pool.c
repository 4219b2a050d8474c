/*
 * A user and a network namespace cost more than the rest of a box together, its cgroups of v1 not
 * much less. A few are made ahead, each for one free index, when nothing else is to be done; none
 * is ever used twice.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/limits.h"
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
    struct userns_making making;

    *out = (struct box_ahead){ -1, -1, -1 };
    *step = BOX_STEP_USERNS;
    if (userns_begin(&box_host, slot, nested, &making) < 0)
        return -1;
    autoclose int network = box_host.rootless ? rootless_netns(&net) : netns_make(&net);
    int error = errno;
    autoclose int user = userns_finish(&making);
    if (network >= 0 && user >= 0) {
        net_keep(slot, &net);
        out->userns = take_fd(&user);
        out->netns = take_fd(&network);
        return 0;
    }
    *step = network < 0 ? BOX_STEP_NETNS : BOX_STEP_USERNS;
    error = network < 0 ? error : errno;
    net_close(&net);
    errno = error;
    return -1;
}

/*
 * A box costs the warden three or four descriptors for as long as it runs. The last ones are kept
 * for those that are there: to reach, freeze and end them. The kernel gives the lowest free number,
 * so if that is near the limit, so few are left.
 */
static bool fds_short(void)
{
    struct rlimit limit;
    autoclose int lowest = fcntl(box_host.boxes_fd, F_DUPFD_CLOEXEC, 0);

    return lowest < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
           (rlim_t)lowest + BOX_FDS_SPARE >= limit.rlim_cur;
}

/* 1: there is one more; 0: there is no room for it, until a box ends; -1: it failed. */
static int fill_one(void)
{
    struct box *box = table_free();
    enum box_step step;

    if (!box || fds_short())
        return 0;
    if (pair_make(table_slot(box), false, &pool[pool_count].ahead, &step) < 0)
        return -1;
    cgroup_make_ahead(pool_count);
    pool[pool_count].ahead.groups = (int)pool_count;
    table_reserve(box, true);
    pool[pool_count++].slot = table_slot(box);
    return 1;
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
    int made = table_pending() == 0 && pool_count < pool_size ? fill_one() : 1;
    if (made < 0) {
        log_debug("no namespaces in advance", kv_str("error", strerror(errno)));
        due_ms = clock_mono_ms() + POOL_PAUSE_MS;
    } else if (made) {
        pool_wish();
    }
}

struct box *pool_take(bool nested, struct box_ahead *ahead, enum box_step *step)
{
    *step = BOX_STEP_SPEC;
    if (fds_short()) {
        errno = EMFILE;
        return NULL;
    }
    if (pool_count && !nested) {
        struct box *box = table_at(pool[--pool_count].slot);

        *ahead = pool[pool_count].ahead;
        return box;
    }
    struct box *box = table_free();
    if (!box) {
        errno = ENOSPC;
        return NULL;
    }
    return pair_make(table_slot(box), nested, ahead, step) < 0 ? NULL : box;
}
