/*
 * A user and a network namespace cost more than the rest of a box together, its cgroups of v1 not
 * much less. A few are made ahead, each for one free index, when nothing else is to be done.
 *
 * What was done in a network namespace may be seen in it. One in which nothing was done serves
 * again (net_used.c), all others are used once. A user namespace is a map of ids, which the next
 * box at the same index would get again, and a limit of 0 further ones; nobody inside can change
 * either, and keys, which it would hold too, cannot be made inside. So that of a box that was
 * destroyed serves the next one, unless ones inside of it were allowed.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "warden/boxes.h"
#include "warden/net.h"

#define POOL_SIZE CGROUP_AHEAD
#define POOL_REST_MS 1    /* after the last request, before the pool is filled */
#define TIDY_MS 5         /* until groups are looked at again that were not empty */
#define POOL_PAUSE_MS 500 /* after a namespace could not be made */

static struct {
    uint32_t slot;
    struct box_ahead ahead;
} pool[POOL_SIZE];
static unsigned pool_count, pool_size = POOL_SIZE;
static int64_t due_ms, tidy_ms;
static bool pool_is_on;

void pool_on(bool on)
{
    pool_is_on = on;
    due_ms = tidy_ms = 0;
}

int64_t pool_due_ms(void)
{
    return !due_ms || (tidy_ms && tidy_ms < due_ms) ? tidy_ms : due_ms;
}

/* ---- user namespaces that serve again ---- */

static struct {
    uint32_t slot;
    int fd;
} used[USERS_MAX];
static unsigned used_count;

unsigned users_count(void)
{
    return used_count;
}

uint64_t users_inode(int fd)
{
    struct stat st;

    return fd < 0 || fstat(fd, &st) < 0 ? 0 : st.st_ino;
}

int users_hold(const struct box *box, int pidfd)
{
    if (!box->users_inode || box->nested || box->pidfd >= 0 || box_host.rootless)
        return -1;
    autoclose int fd = process_namespace(pidfd, box->pid, CLONE_NEWUSER);
    return users_inode(fd) == box->users_inode ? take_fd(&fd) : -1;
}

void users_keep(uint32_t slot, int *fd)
{
    if (*fd >= 0 && used_count < USERS_MAX && pool_is_on) {
        used[used_count].slot = slot;
        used[used_count++].fd = take_fd(fd);
    }
    close_one(fd);
}

static int users_take(uint32_t slot)
{
    for (unsigned i = 0; i < used_count; i++)
        if (used[i].slot == slot) {
            int fd = used[i].fd;

            used[i] = used[--used_count];
            return fd;
        }
    return -1;
}

/* ---- networks that serve again ---- */

static struct {
    uint32_t slot; /* of the box that had it */
    struct net net;
} idle[2 * POOL_SIZE];
static unsigned idle_count;

/* One of an earlier warden may be made in another way. */
static bool network_ours(const struct box *box)
{
    return pool_is_on && !box->nested && box->pidfd < 0 && !box_host.rootless;
}

void network_keep(const struct box *box)
{
    if (network_ours(box) && idle_count < 2 * pool_size &&
        net_take_back(table_slot(box), &idle[idle_count].net))
        idle[idle_count++].slot = table_slot(box);
}

unsigned networks_count(void)
{
    return idle_count;
}

static void networks_drop(unsigned keep)
{
    while (idle_count > keep)
        net_close(&idle[--idle_count].net);
}

/* Looked at now and not when its box ended: nobody waits for this, if there is a pool. */
static int network_again(struct net *net)
{
    if (!idle_count || !net_forgotten(idle[idle_count - 1].slot))
        return -1;
    struct net had = idle[--idle_count].net;
    autoclose int fd = net_where(&had);
    if (fd < 0 || !net_as_new(fd, &had)) {
        net_close(&had);
        return -1;
    }
    *net = had;
    return take_fd(&fd);
}

static int network_make(struct net *net)
{
    if (box_host.rootless)
        return rootless_netns(net);
    int fd = network_again(net);
    return fd >= 0 ? fd : netns_make(net);
}

/* ---- pairs ---- */

static int pair_make(uint32_t slot, bool nested, struct box_ahead *out, enum box_step *step)
{
    struct net net = NET_NONE;
    struct userns_making making;
    autoclose int user = nested ? -1 : users_take(slot);
    bool again = user >= 0;

    *out = (struct box_ahead){ -1, -1 };
    *step = BOX_STEP_USERNS;
    if (again ? box_fault_now() : userns_begin(&box_host, slot, nested, &making) < 0)
        return -1;
    autoclose int network = network_make(&net);
    int error = errno;
    if (!again)
        user = userns_finish(&making);
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
 * for those that are there: to reach, freeze and end them. The kernel gives the lowest free number
 * of those that such descriptors get (clone.c), so if that is near the limit, so few are left.
 */
static bool fds_short(void)
{
    struct rlimit limit;
    autoclose int lowest = fcntl(box_host.boxes_fd, F_DUPFD_CLOEXEC, fds_kept_from());

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
    cgroup_make_ahead();
    table_reserve(box, true);
    pool[pool_count++].slot = table_slot(box);
    return 1;
}

void pool_wish(void)
{
    if (pool_is_on && pool_count < pool_size && !due_ms)
        due_ms = clock_mono_ms() + POOL_REST_MS;
}

void pool_left(void)
{
    if (pool_is_on && !tidy_ms)
        tidy_ms = clock_mono_ms() + POOL_REST_MS;
    pool_wish();
}

static void give_back(unsigned keep)
{
    while (pool_count > keep) {
        table_reserve(table_at(pool[--pool_count].slot), false);
        net_leave(pool[pool_count].slot);
        close(pool[pool_count].ahead.userns);
        close(pool[pool_count].ahead.netns);
    }
}

void pool_empty(void)
{
    give_back(0);
    networks_drop(0);
    while (used_count)
        close(used[--used_count].fd);
}

void boxes_pool(unsigned size)
{
    pool_size = MIN(size, POOL_SIZE);
    give_back(pool_size);
    networks_drop(2 * pool_size);
    pool_wish();
}

void pool_run_due(int64_t now_ms)
{
    if (tidy_ms && tidy_ms <= now_ms)
        tidy_ms = cgroup_tidy() ? clock_mono_ms() + TIDY_MS : 0;
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
    if (fds_short())
        networks_drop(0); /* for a box that is asked for, and not for one that may be */
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
