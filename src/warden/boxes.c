/*
 * The beginning: what every box needs is opened once, the boxes that run are taken over, all else
 * is removed. Then what wakes us: reports of new boxes, ends of boxes, deadlines.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "warden/disk.h"
#include "warden/net.h"

struct box_host box_host = { .state_fd = -1,
                             .boxes_fd = -1,
                             .records_fd = -1,
                             .skeleton_fd = -1,
                             .usr_fd = -1,
                             .init_fd = -1,
                             .lean_fd = -1,
                             .dev_fd = -1,
                             .tool_fd = -1,
                             .uids = BOX_UIDS,
                             .slots = BOX_SLOTS,
                             .host_dev_fd = -1 };
_Static_assert(BOXES_WAITS == BOXES_PENDING_MAX + 1 + JOBS_MAX + DOOR_WAITS, "box.h counts them");
static bool usable;
static int adopted_fd = -1; /* epoll of the pidfds of adopted boxes */

bool boxes_hear(const struct wire_msg *msg)
{
    return verbs_hear(msg, usable);
}

/* ---- what wakes it ---- */

unsigned boxes_waits(struct pollfd waits[BOXES_WAITS])
{
    unsigned count = 0;

    for (unsigned i = 0; i < table_pending(); i++) /* their ends alone: all is said by then */
        waits[count++] = (struct pollfd){ .fd = table_pending_at(i)->report };
    if (adopted_fd >= 0)
        waits[count++] = (struct pollfd){ .fd = adopted_fd, .events = POLLIN };
    count += jobs_waits(waits + count);
    count += door_waits(waits + count);
    return count;
}

static void adopted_ended(void)
{
    struct epoll_event events[16];
    int count = epoll_wait(adopted_fd, events, ARRAY_LEN(events), 0);

    for (int i = 0; i < count; i++) {
        struct box *box = table_at(events[i].data.u32);

        epoll_ctl(adopted_fd, EPOLL_CTL_DEL, box->pidfd, NULL);
        life_died(box, -1);
    }
}

void boxes_woken(const struct pollfd *waits, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (!waits[i].revents)
            continue;
        if (waits[i].fd == adopted_fd) {
            adopted_ended();
            continue;
        }
        if (jobs_woken(waits[i].fd) || door_woken(waits[i].fd))
            continue;
        for (unsigned k = 0; k < table_pending(); k++) /* the list changes under way */
            if (table_pending_at(k)->report == waits[i].fd) {
                life_report(table_pending_at(k));
                break;
            }
    }
}

pid_t boxes_reap(void)
{
    for (;;) {
        siginfo_t info = { 0 };
        int status;

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            return 0;
        struct box *box = table_find_child(info.si_pid);
        if (!box && jobs_own(info.si_pid)) {
            if (waitpid(info.si_pid, &status, 0) == info.si_pid)
                jobs_reaped(info.si_pid);
            continue;
        }
        if (!box && sweep_own(info.si_pid)) {
            if (waitpid(info.si_pid, &status, 0) == info.si_pid)
                sweep_reaped();
            continue;
        }
        if (!box)
            return info.si_pid; /* somebody else's; behind it there may be more */
        if (box->state == BOX_CREATING && box->report >= 0)
            life_report(box); /* it may have said why */
        if (waitpid(info.si_pid, &status, 0) == info.si_pid)
            life_died(box, status);
    }
}

void boxes_run_due(void)
{
    int64_t now = clock_mono_ms();

    pool_run_due(now);
    jobs_run_due(now);
    door_run_due(now);
    table_run_due(now, life_due);
}

int64_t boxes_due_ms(void)
{
    const int64_t dues[] = { pool_due_ms(), jobs_due_ms(), door_due_ms(), table_due_first() };
    int64_t first = 0;

    for (size_t i = 0; i < ARRAY_LEN(dues); i++)
        if (dues[i] && (!first || dues[i] < first))
            first = dues[i];
    return first;
}

/* ---- the beginning ---- */

extern const char init_image[] __attribute__((visibility("hidden")));
extern const char init_image_end[] __attribute__((visibility("hidden")));

/* What runs in every box comes from a file that nobody can write and that has no name. */
static int init_memfd(void)
{
    autoclose int fd = memfd_create("atoll-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t len = (size_t)((uintptr_t)init_image_end - (uintptr_t)init_image);

    if (fd < 0 || fchmod(fd, 0555) < 0 || write(fd, init_image, len) != (ssize_t)len ||
        (guard(init_sealed) &&
         fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0))
        return -1;
    return take_fd(&fd);
}

static int dir_make(int at, const char *name)
{
    if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return -1;
    return openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/*
 * The setting uid_base may be another than when it was made. Which ids it has is asked of the
 * kernel: so it holds for boxes of every earlier build.
 */
static void adopt_ids(struct box *box)
{
    uint32_t first, count;

    if (process_map(box->pid, "uid_map", &first, &count) < 0)
        return; /* it has just ended: they are nobody's */
    table_set_ids(box, first, count);
    if (!box_host.rootless && first < box_host.uid_first &&
        (uint64_t)first + count > box_host.uid_first - BOX_UIDS)
        log_warn("uid_base is among the user ids of a sandbox that runs: end it, or choose another",
                 kv_str("box", box->id), kv_int("first", first), kv_int("count", count));
}

/* Taken over if its process 1 is the one that was recorded. */
static void adopt(const struct box_record *record)
{
    autoclose int pidfd = table_find(record->id) ? -1 : record_process(record);
    fd_lift(&pidfd);
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = record->slot };
    struct box *box = table_at(record->slot);

    if (pidfd < 0 || epoll_ctl(adopted_fd, EPOLL_CTL_ADD, pidfd, &event) < 0) {
        record_remove(&box_host, record->slot);
        return;
    }
    table_take(box, record->id, BOX_RUNNING);
    table_set_pid(box, record->pid);
    adopt_ids(box);
    box->landlock_abi = record->landlock_abi;
    box->frozen = true;
    box->nested = record->nested;
    table_set_upper(box, record->upper);
    box->pidfd = take_fd(&pidfd);
    net_adopt(record->slot);
}

static void remove_unknown(const char id[BOX_ID_SIZE])
{
    if (table_find(id))
        return;
    log_info("removing what is left of a sandbox", kv_str("box", id));
    for (int i = 0; i < 2000 && (cgroup_kill(id) || box_unmake(&box_host, id) < 0); i++)
        poll(NULL, 0, 1); /* at the start nothing else waits for us */
}

static pid_t living; /* process 1 of a box that runs, or 0 */

static void see_living(const struct box_record *record)
{
    autoclose int pidfd = living ? -1 : record_process(record);

    if (pidfd >= 0)
        living = record->pid;
}

/* Beneath the group that we were started in; or where the boxes are that an earlier one made. */
static int cgroups_open(int state_fd)
{
    char self[32] = "/proc/self/cgroup";
    struct stat st;

    if (fstat(state_fd, &st) < 0)
        return -1;
    snprintf(box_host.name, sizeof(box_host.name), "atoll-%llx-%llx", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    cgroup_owner(state_fd);
    living = 0;
    records_each(&box_host, see_living);
    if (living)
        snprintf(self, sizeof(self), "/proc/%d/cgroup", (int)living);
    return (box_host.rootless ? cgroup_open_some : cgroup_open)("/proc/self/mountinfo", self,
                                                                box_host.name);
}

/* The descriptors, one after the other; which one could not be had. */
static const char *host_open(int state_fd)
{
    if ((box_host.boxes_fd = dir_make(state_fd, "boxes")) < 0)
        return "the directory of sandboxes";
    if ((box_host.records_fd = records_open(state_fd)) < 0)
        return "the records of sandboxes";
    if ((box_host.skeleton_fd = skeleton_open(state_fd, !box_host.rootless)) < 0)
        return "the default image";
    if ((box_host.usr_fd = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        return "/usr";
    if ((box_host.init_fd = init_memfd()) < 0)
        return "a sealed copy of init";
    if (cgroups_open(state_fd) < 0) {
        static char what[48];
        const char *missing = errno == ENOTSUP ? cgroup_missing() : NULL;

        snprintf(what, sizeof(what), "cgroup%s%s", missing ? " controller " : "s",
                 missing ? missing : "");
        return what;
    }
    box_host.landlock_abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
    if (box_host.landlock_abi <= 0)
        return "Landlock";
    if ((adopted_fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
        return "epoll";
    if ((box_host.lean_fd = lean_make()) < 0)
        return "a mount namespace";
    if ((box_host.dev_fd = dev_make(!box_host.rootless)) < 0)
        return "/dev";
    if (box_host.rootless && (box_host.host_dev_fd = open("/dev", O_PATH | O_CLOEXEC)) < 0)
        return "the host's /dev";
    if (door_open(state_fd) < 0)
        return "the door for directories";
    autoclose int copy = tree_detach(box_host.dev_fd);
    if (copy < 0)
        close_one(&box_host.dev_fd); /* an older kernel: each box gets one of its own */
    return NULL;
}

int boxes_open(int state_fd, uint32_t uid_base, boxes_say_fn *fn, void *owner, const char **what)
{
    unsigned count = 0;

    say_to(fn, owner);
    if (state_fd < 0) {
        *what = NULL;
        return 0; /* not as this user */
    }
    box_host.state_fd = state_fd;
    box_host.ignored = signals_ignored();
    if (!box_host.rootless)
        box_host.uid_first = uid_base + BOX_UIDS; /* the first range is the api process's own */
    *what = host_open(state_fd);
    if (*what)
        return -1;
    if (box_host.rootless)
        rootless_count();
    else
        box_host.lost = cgroup_lost();
    tool_close(&box_host);
    records_each(&box_host, adopt);
    sockets_each(&box_host, remove_unknown);
    cgroup_each(remove_unknown);
    rootless_sweep();
    for (const struct box *box = table_next(0); box; box = table_next(table_slot(box) + 1))
        count++;
    if (count)
        log_info("sandboxes taken over", kv_int("count", count));
    usable = true;
    disks_open(state_fd);
    pool_on(true);
    pool_wish();
    return 0;
}

void boxes_tool(int fd)
{
    box_host.tool_fd = fd;
}

static bool any_ending(void)
{
    for (const struct box *box = table_next(0); box; box = table_next(table_slot(box) + 1))
        if (box->state == BOX_ENDING)
            return true;
    return false;
}

void boxes_close(void)
{
    int *const fds[] = { &box_host.boxes_fd,    &box_host.skeleton_fd,
                         &box_host.usr_fd,      &box_host.init_fd,
                         &box_host.lean_fd,     &box_host.dev_fd,
                         &box_host.host_dev_fd, &adopted_fd };

    usable = false;
    pool_on(false);
    door_close(box_host.state_fd);
    while (table_pending())
        life_failed(table_pending_at(0), ECANCELED, BOX_STEP_TIME);
    for (int i = 0; i < 2000; i++) { /* those under way are taken back; the others go on */
        for (pid_t other; i < 2000 && (other = boxes_reap()); i++)
            waitpid(other, NULL, WNOHANG); /* nobody else is left who would wait for it */
        boxes_run_due();
        if (!any_ending())
            break;
        poll(NULL, 0, 1);
    }
    jobs_close();
    sweep_stop();
    disks_close();
    pool_empty();
    net_spares_close();
    userns_close();
    tool_close(&box_host);
    if (box_host.records_fd >= 0)
        records_close(&box_host, box_host.state_fd);
    for (struct box *box = table_next(0); box; box = table_next(table_slot(box) + 1))
        table_leave(box);
    cgroup_close(true);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close_one(fds[i]);
}
