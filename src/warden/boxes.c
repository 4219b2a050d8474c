/*
 * The table of boxes and the verbs about them. Nothing here waits: a request that takes time is
 * remembered in its box and answered when a descriptor, a SIGCHLD or a deadline says so.
 *
 *   FREE ── CREATE ──▶ CREATING ── init runs, record written ──▶ RUNNING
 *    ▲                    │ a step failed, or too slow              │ DESTROY, or its process 1
 * died └── cgroups and ── ENDING ◀────────────────────────────────────┘ directory gone
 *
 * The index in the table is the box's range of user ids. For its own children the warden holds no
 * descriptor: SIGCHLD tells of their end, and until it has waited for one its number is its own. A
 * box of an earlier warden is nobody's child here, so for those a pidfd is kept.
 *
 * A user and a network namespace cost more than the rest of a box together. A few pairs are made
 * ahead, each for one free index, when nothing else is to be done; none is ever used twice.
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
#include "base/limits.h"
#include "base/log.h"
#include "seccomp/seccomp.h"
#include "warden/box.h"

#define POOL_SIZE 4
#define POOL_REST_MS 1    /* after the last request, before the pool is filled */
#define POOL_PAUSE_MS 500 /* after a namespace could not be made */
#define END_SOON_MS 1     /* cgroups are busy for a moment after the last exit */
#define END_LATER_MS 1000
#define END_TRIES 3000
#define FREEZE_STEP_MS 1
#define FREEZE_AGAIN 50 /* looks after which the order is given once more */

struct box {
    char id[BOX_ID_SIZE];
    uint8_t state; /* enum box_state */
    bool reserved; /* the pool has namespaces for this index */
    bool gone;     /* its process 1 has ended and was waited for */
    pid_t pid;
    int pidfd;        /* while it is made, and of an adopted one; else -1 */
    int link, report; /* while it is made; else -1 */
    uint32_t landlock_abi;
    uint16_t asked;  /* verb that waits for an answer, or 0 */
    uint32_t number; /* of it */
    uint32_t asker;  /* which api process it came from */
    int32_t error;   /* of a creation */
    uint32_t step;
    int status; /* of its process 1; -1 unknown */
    int64_t due_ms;
    unsigned tries;
    struct box_died last;
};

static struct box boxes[BOX_SLOTS];
static uint32_t top;       /* all at and above are free */
static unsigned due_count; /* boxes that have a due_ms */
static uint32_t pending[BOXES_PENDING_MAX];
static unsigned pending_count;
static struct box_host host = { -1, -1, -1, -1, -1, 0, 0 };
static bool usable;
static int adopted_fd = -1; /* epoll of the pidfds of adopted boxes */
static uint32_t asker = 1;
static boxes_say_fn *say;
static void *say_owner;

static struct {
    uint32_t slot;
    int userns, netns;
} pool[POOL_SIZE];
static unsigned pool_count, pool_size = POOL_SIZE;
static int64_t pool_due_ms;

static void end_try(struct box *box);

/* ---- the table ---- */

static uint32_t slot_of(const struct box *box)
{
    return (uint32_t)(box - boxes);
}

static struct box *find(const char *id)
{
    for (uint32_t i = 0; i < top; i++)
        if (boxes[i].state != BOX_FREE && memcmp(boxes[i].id, id, BOX_ID_SIZE) == 0)
            return &boxes[i];
    return NULL;
}

bool box_known(const char *id)
{
    return find(id) != NULL;
}

static struct box *find_child(pid_t pid)
{
    for (uint32_t i = 0; i < top; i++)
        if (boxes[i].state != BOX_FREE && boxes[i].pid == pid && !boxes[i].gone)
            return &boxes[i];
    return NULL;
}

static struct box *free_slot(void)
{
    for (uint32_t i = 0; i < BOX_SLOTS; i++)
        if (boxes[i].state == BOX_FREE && !boxes[i].reserved)
            return &boxes[i];
    return NULL;
}

static void set_due(struct box *box, int64_t in_ms)
{
    due_count += !box->due_ms;
    box->due_ms = clock_mono_ms() + in_ms;
}

static void unset_due(struct box *box)
{
    due_count -= box->due_ms != 0;
    box->due_ms = 0;
}

static void take_slot(struct box *box, const char *id, enum box_state state)
{
    *box = (struct box){
        .state = (uint8_t)state, .pidfd = -1, .link = -1, .report = -1, .status = -1
    };
    memcpy(box->id, id, BOX_ID_SIZE);
    top = MAX(top, slot_of(box) + 1);
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void leave_slot(struct box *box)
{
    unset_due(box);
    close_one(&box->pidfd);
    close_one(&box->link);
    close_one(&box->report);
    *box = (struct box){ .pidfd = -1, .link = -1, .report = -1 };
    while (top && boxes[top - 1].state == BOX_FREE)
        top--;
}

static void pending_remove(const struct box *box)
{
    for (unsigned i = 0; i < pending_count; i++)
        if (pending[i] == slot_of(box)) {
            pending[i] = pending[--pending_count];
            return;
        }
}

/* ---- answers ---- */

static void answer(const struct wire_msg *request, int error)
{
    struct wire_msg msg = { .verb = request->verb, .number = request->number, .status = error };

    say(say_owner, &msg, NULL, 0);
}

static void ask(struct box *box, const struct wire_msg *request)
{
    box->asked = request->verb;
    box->number = request->number;
    box->asker = asker;
}

/* Answers what the box was asked; nothing when whoever asked is gone. */
static void answer_asked(struct box *box, struct wire_msg *msg, int error, const int *fds,
                         unsigned count)
{
    msg->verb = box->asked;
    msg->number = box->number;
    msg->status = error;
    if (box->asked && box->asker == asker)
        say(say_owner, msg, fds, count);
    box->asked = 0;
}

void boxes_forget_asker(void)
{
    asker++;
}

/* ---- the pool ---- */

static int pool_fill_one(void)
{
    struct box *box = free_slot();

    if (!box)
        return 0;
    autoclose int userns = userns_make(box_uid_first(&host, slot_of(box)));
    autoclose int netns = userns < 0 ? -1 : netns_make();
    if (netns < 0)
        return -1;
    box->reserved = true;
    pool[pool_count].slot = slot_of(box);
    pool[pool_count].userns = take_fd(&userns);
    pool[pool_count++].netns = take_fd(&netns);
    return 0;
}

static void pool_due(void)
{
    if (usable && pool_count < pool_size && !pool_due_ms)
        pool_due_ms = clock_mono_ms() + POOL_REST_MS;
}

void boxes_pool(unsigned size)
{
    pool_size = MIN(size, POOL_SIZE);
    while (pool_count > pool_size) {
        boxes[pool[--pool_count].slot].reserved = false;
        close(pool[pool_count].userns);
        close(pool[pool_count].netns);
    }
    pool_due();
}

static void pool_run(void)
{
    pool_due_ms = 0;
    if (pending_count == 0 && pool_count < pool_size && pool_fill_one() < 0) {
        log_debug("no namespaces in advance", kv_str("error", strerror(errno)));
        pool_due_ms = clock_mono_ms() + POOL_PAUSE_MS;
        return;
    }
    pool_due();
}

/* A free index with its namespaces, from the pool or made now. */
static struct box *pool_take(int *userns, int *netns, enum box_step *step)
{
    if (pool_count) {
        struct box *box = &boxes[pool[--pool_count].slot];

        *userns = pool[pool_count].userns;
        *netns = pool[pool_count].netns;
        box->reserved = false;
        return box;
    }
    struct box *box = free_slot();
    *step = BOX_STEP_SPEC;
    if (!box) {
        errno = ENOSPC;
        return NULL;
    }
    *step = BOX_STEP_USERNS;
    autoclose int user = userns_make(box_uid_first(&host, slot_of(box)));
    if (user < 0)
        return NULL;
    *step = BOX_STEP_NETNS;
    if ((*netns = netns_make()) < 0)
        return NULL;
    *userns = take_fd(&user);
    return box;
}

/* ---- the end of a box ---- */

static void kill_init(const struct box *box)
{
    if (box->gone || !box->pid)
        return;
    if (box->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, box->pidfd, SIGKILL, NULL, 0);
    else
        kill(box->pid, SIGKILL);          /* our child, not waited for: the number is its own */
    (void)!cgroup_freeze(box->id, false); /* the frozen do not die */
}

static void end_begin(struct box *box)
{
    if (box->state == BOX_CREATING)
        pending_remove(box);
    box->state = BOX_ENDING;
    box->tries = 0;
    record_remove(&host, box->id);
    close_one(&box->link);
    close_one(&box->report);
    unset_due(box);
    kill_init(box);
    if (box->gone || !box->pid)
        end_try(box);
}

static void say_created(struct box *box, const int *fds, unsigned count)
{
    struct wire_msg msg = { .created = { .step = box->step,
                                         .slot = slot_of(box),
                                         .pid = box->error ? 0 : box->pid,
                                         .uid_first = box_uid_first(&host, slot_of(box)) } };

    answer_asked(box, &msg, box->error, fds, count);
}

static void say_died(struct box *box)
{
    struct wire_msg msg = { .verb = WIRE_BOX_DIED, .died = box->last };

    memcpy(msg.died.name.id, box->id, BOX_ID_SIZE);
    msg.died.code = box->status != -1 && WIFEXITED(box->status) ? WEXITSTATUS(box->status) : -1;
    msg.died.signal = box->status != -1 && WIFSIGNALED(box->status) ? WTERMSIG(box->status) : 0;
    say(say_owner, &msg, NULL, 0);
}

/* Everything of it is gone: whoever waits for that is told, once. */
static void ended(struct box *box)
{
    struct wire_msg msg = { 0 };

    if (box->error)
        say_created(box, NULL, 0);
    else if (box->asked)
        answer_asked(box, &msg, box->asked == WIRE_BOX_DESTROY ? 0 : ESRCH, NULL, 0);
    else
        say_died(box);
    leave_slot(box);
    pool_due();
}

static void end_try(struct box *box)
{
    if (box_unmake(&host, box->id) == 0) {
        ended(box);
        return;
    }
    if (++box->tries == END_TRIES)
        log_error("a sandbox that ended cannot be cleaned up yet", kv_str("box", box->id),
                  kv_str("error", strerror(errno)));
    set_due(box, box->tries < END_TRIES ? END_SOON_MS : END_LATER_MS);
}

static void read_last(struct box *box)
{
    struct box_usage usage;

    cgroup_usage(box->id, &usage);
    box->last.oom_kills = usage.oom_kills;
    box->last.cpu_us = usage.cpu_us;
    box->last.memory_peak = usage.memory_peak;
}

static void died(struct box *box, int status)
{
    box->gone = true;
    box->status = status;
    if (box->state == BOX_ENDING) {
        end_try(box);
        return;
    }
    if (box->state == BOX_CREATING && !box->error) { /* a report would have been read before */
        box->error = ECHILD;
        box->step = BOX_STEP_INIT;
    }
    read_last(box);
    end_begin(box);
}

/* ---- creating ---- */

static int check_new(const struct box_spec *spec)
{
    if (!box_spec_ok(spec) || spec->profile == SECCOMP_NESTING)
        return EINVAL;
    if (spec->upper || spec->layer_count || spec->flags)
        return ENOTSUP; /* until disks are there */
    if (find(spec->id))
        return EEXIST;
    return pending_count == BOXES_PENDING_MAX ? EAGAIN : 0;
}

static void refuse_new(const struct wire_msg *request, int error, enum box_step step)
{
    struct wire_msg msg = { .verb = request->verb, .number = request->number, .status = error };

    msg.created.step = step;
    say(say_owner, &msg, NULL, 0);
}

static void on_create(const struct wire_msg *request)
{
    const struct box_spec *spec = &request->spec;
    struct box_begun begun;
    enum box_step step = BOX_STEP_SPEC;
    int userns = -1, netns = -1, refused = check_new(spec);
    struct box *box = refused ? NULL : pool_take(&userns, &netns, &step);

    pool_due();
    if (!box) {
        refuse_new(request, refused ? refused : errno, step);
        return;
    }
    take_slot(box, spec->id, BOX_CREATING);
    ask(box, request);
    box->landlock_abi = (uint32_t)host.landlock_abi;
    if (box_begin(&host, spec, slot_of(box), userns, netns, &begun, &step) < 0) {
        box->error = errno;
        box->step = step;
        end_begin(box);
        return;
    }
    box->pid = begun.pid;
    box->pidfd = begun.pidfd;
    box->link = begun.link;
    box->report = begun.report;
    pending[pending_count++] = slot_of(box);
    set_due(box, BOX_CREATE_MS);
}

static void create_failed(struct box *box, int error, uint32_t step)
{
    box->error = error ? error : EPROTO;
    box->step = step;
    end_begin(box);
}

static int keep_record(const struct box *box)
{
    struct box_record record = { .slot = slot_of(box), .landlock_abi = box->landlock_abi };

    memcpy(record.id, box->id, BOX_ID_SIZE);
    if (box_fault_here(BOX_STEP_KEEP) || record_of(box->pid, &record) < 0)
        return -1;
    return record_write(&host, &record);
}

/* Its child has become init. */
static void created(struct box *box)
{
    if (keep_record(box) < 0) {
        create_failed(box, errno, BOX_STEP_KEEP);
        return;
    }
    int fds[2] = { box->pidfd, box->link };

    pending_remove(box);
    box->state = BOX_RUNNING;
    unset_due(box);
    say_created(box, fds, 2);
    close_one(&box->pidfd);
    close_one(&box->link);
    close_one(&box->report);
}

/* The child said what failed, or that it is through, or nothing yet. */
static void hear_report(struct box *box)
{
    struct box_report report;
    ssize_t got = read(box->report, &report, sizeof(report));

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got == 0)
        created(box);
    else
        create_failed(box, got == (ssize_t)sizeof(report) ? report.error : EPROTO,
                      got == (ssize_t)sizeof(report) ? (uint32_t)report.step : BOX_STEP_INIT);
}

/* ---- the other verbs ---- */

/* The box that a request names, if it runs; otherwise the request is answered. */
static struct box *named(const struct wire_msg *request)
{
    struct box *box = box_name_ok(&request->name) ? find(request->name.id) : NULL;

    if (box && box->state == BOX_RUNNING)
        return box;
    answer(request, !box_name_ok(&request->name) ? EINVAL : box ? EBUSY : ENOENT);
    return NULL;
}

static void on_open(const struct wire_msg *request)
{
    struct box *box = named(request);
    struct wire_msg msg = { .verb = request->verb, .number = request->number };

    if (!box)
        return;
    autoclose int pidfd = box->pidfd >= 0 ? fcntl(box->pidfd, F_DUPFD_CLOEXEC, 0)
                                          : (int)syscall(SYS_pidfd_open, box->pid, 0);
    autoclose int link = pidfd < 0 ? -1 : box_connect(&host, box->id);
    if (link < 0) {
        answer(request, errno);
        return;
    }
    msg.created = (struct box_created){ .slot = slot_of(box),
                                        .pid = box->pid,
                                        .uid_first = box_uid_first(&host, slot_of(box)) };
    say(say_owner, &msg, (int[]){ pidfd, link }, 2);
}

static void on_signal(const struct wire_msg *request)
{
    struct box *box = named(request);

    if (!box)
        return;
    if (request->signal.number == SIGKILL)
        kill_init(box);
    answer(request, request->signal.number == SIGKILL ? 0 : EINVAL);
}

/* Frozen is what the kernel says is frozen; it is asked again until it does. */
static void freeze_look(struct box *box)
{
    struct wire_msg msg = { 0 };

    unset_due(box);
    if (cgroup_frozen(box->id)) {
        answer_asked(box, &msg, 0, NULL, 0);
    } else if (++box->tries > BOX_FREEZE_MS / FREEZE_STEP_MS) {
        (void)!cgroup_freeze(box->id, false);
        answer_asked(box, &msg, ETIMEDOUT, NULL, 0);
    } else {
        /*
         * The v1 freezer can get stuck half way when processes come and go meanwhile; its kernel
         * documentation says to try again. A moment of running lets them get past that point.
         */
        if (box->tries % FREEZE_AGAIN == 0) {
            (void)!cgroup_freeze(box->id, false);
            (void)!cgroup_freeze(box->id, true);
        }
        set_due(box, FREEZE_STEP_MS);
    }
}

static void on_freeze(const struct wire_msg *request)
{
    struct box *box = named(request);

    if (!box)
        return;
    if (box->asked || cgroup_freeze(box->id, true) < 0) {
        answer(request, box->asked ? EBUSY : errno);
        return;
    }
    ask(box, request);
    box->tries = 0;
    freeze_look(box);
}

static void on_thaw(const struct wire_msg *request)
{
    struct box *box = named(request);

    if (box)
        answer(request, box->asked ? EBUSY : cgroup_freeze(box->id, false) < 0 ? errno : 0);
}

static void on_limits(const struct wire_msg *request)
{
    const struct box_limits *limits = &request->limits;
    struct box *box = named(request);

    if (!box)
        return;
    if (!box_limits_ok(limits))
        answer(request, EINVAL);
    else
        answer(request, cgroup_limit(box->id, limits->memory, limits->pids, limits->cpu_percent) < 0
                            ? errno
                            : 0);
}

static void on_stat(const struct wire_msg *request)
{
    struct wire_msg msg = { .verb = request->verb, .number = request->number };
    const struct box *box = named(request);

    if (!box)
        return;
    cgroup_usage(box->id, &msg.usage);
    say(say_owner, &msg, NULL, 0);
}

static void on_applied(const struct wire_msg *request)
{
    struct wire_msg msg = { .verb = request->verb, .number = request->number };
    const struct box *box = named(request);

    if (!box)
        return;
    if (applied_read(box->pid, box->id, &msg.applied) < 0)
        msg.status = errno;
    msg.applied.landlock_abi = box->landlock_abi;
    say(say_owner, &msg, NULL, 0);
}

static void on_destroy(const struct wire_msg *request)
{
    struct box *box = box_name_ok(&request->name) ? find(request->name.id) : NULL;

    if (!box || box->state == BOX_CREATING || box->asked) {
        answer(request, !box_name_ok(&request->name) ? EINVAL : box ? EBUSY : ENOENT);
        return;
    }
    ask(box, request);
    if (box->state == BOX_RUNNING)
        end_begin(box);
}

static void on_list(const struct wire_msg *request)
{
    struct wire_msg msg = { .verb = request->verb, .number = request->number };
    struct box_rows *out = &msg.rows;
    uint32_t i;

    for (i = request->page.from; i < top && out->count < BOX_ROWS; i++) {
        if (boxes[i].state == BOX_FREE)
            continue;
        struct box_row *row = &out->rows[out->count++];
        *row = (struct box_row){ .state = boxes[i].state, .slot = i, .pid = boxes[i].pid };
        memcpy(row->id, boxes[i].id, BOX_ID_SIZE);
    }
    out->next = i < top ? i : 0;
    say(say_owner, &msg, NULL, 0);
}

/* clang-format off */
static void (*const verb_fn[WIRE_VERBS])(const struct wire_msg *request) = {
    [WIRE_BOX_CREATE]  = on_create,
    [WIRE_BOX_OPEN]    = on_open,
    [WIRE_BOX_SIGNAL]  = on_signal,
    [WIRE_BOX_FREEZE]  = on_freeze,
    [WIRE_BOX_THAW]    = on_thaw,
    [WIRE_BOX_LIMITS]  = on_limits,
    [WIRE_BOX_STAT]    = on_stat,
    [WIRE_BOX_APPLIED] = on_applied,
    [WIRE_BOX_DESTROY] = on_destroy,
    [WIRE_BOX_LIST]    = on_list,
};
/* clang-format on */

bool boxes_hear(const struct wire_msg *msg)
{
    if (msg->verb >= WIRE_VERBS || !verb_fn[msg->verb])
        return false;
    if (usable)
        verb_fn[msg->verb](msg);
    else
        answer(msg, ENOTSUP);
    return true;
}

/* ---- what wakes it ---- */

unsigned boxes_waits(struct pollfd waits[BOXES_WAITS])
{
    unsigned count = 0;

    for (unsigned i = 0; i < pending_count; i++)
        waits[count++] = (struct pollfd){ .fd = boxes[pending[i]].report, .events = POLLIN };
    if (adopted_fd >= 0)
        waits[count++] = (struct pollfd){ .fd = adopted_fd, .events = POLLIN };
    return count;
}

static void adopted_ended(void)
{
    struct epoll_event events[16];
    int count = epoll_wait(adopted_fd, events, ARRAY_LEN(events), 0);

    for (int i = 0; i < count; i++) {
        struct box *box = &boxes[events[i].data.u32 % BOX_SLOTS];

        epoll_ctl(adopted_fd, EPOLL_CTL_DEL, box->pidfd, NULL);
        died(box, -1);
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
        for (unsigned k = 0; k < pending_count; k++) /* the list changes under way */
            if (boxes[pending[k]].report == waits[i].fd) {
                hear_report(&boxes[pending[k]]);
                break;
            }
    }
}

bool boxes_reap(void)
{
    for (;;) {
        siginfo_t info = { 0 };
        int status;

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
            return true;
        struct box *box = find_child(info.si_pid);
        if (!box)
            return false; /* somebody else's; behind it there may be more */
        if (box->state == BOX_CREATING && box->report >= 0)
            hear_report(box); /* it may have said why */
        if (waitpid(info.si_pid, &status, 0) == info.si_pid)
            died(box, status);
    }
}

void boxes_run_due(void)
{
    int64_t now = clock_mono_ms();

    if (pool_due_ms && pool_due_ms <= now)
        pool_run();
    for (uint32_t i = 0; due_count && i < top; i++) {
        struct box *box = &boxes[i];

        if (!box->due_ms || box->due_ms > now)
            continue;
        unset_due(box);
        if (box->state == BOX_CREATING)
            create_failed(box, ETIMEDOUT, BOX_STEP_TIME);
        else if (box->state == BOX_ENDING)
            end_try(box);
        else
            freeze_look(box);
    }
}

int64_t boxes_due_ms(void)
{
    int64_t first = pool_due_ms;

    for (uint32_t i = 0; due_count && i < top; i++)
        if (boxes[i].due_ms && (!first || boxes[i].due_ms < first))
            first = boxes[i].due_ms;
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
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return -1;
    return take_fd(&fd);
}

static int dir_make(int at, const char *name)
{
    if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return -1;
    return openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* A box on disk: taken over if its process 1 is the one that was recorded, else removed. */
static void adopt_or_remove(const char id[BOX_ID_SIZE])
{
    struct box_record record;
    autoclose int pidfd = record_find(&host, id, &record);
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = 0 };

    if (pidfd >= 0 && boxes[record.slot].state == BOX_FREE) {
        struct box *box = &boxes[record.slot];

        event.data.u32 = record.slot;
        if (epoll_ctl(adopted_fd, EPOLL_CTL_ADD, pidfd, &event) == 0) {
            take_slot(box, id, BOX_RUNNING);
            box->pid = record.pid;
            box->landlock_abi = record.landlock_abi;
            box->pidfd = take_fd(&pidfd);
            return;
        }
    }
    log_info("removing what is left of a sandbox", kv_str("box", id));
    record_remove(&host, id);
    for (int i = 0; i < 2000 && (cgroup_kill(id) || box_unmake(&host, id) < 0); i++)
        poll(NULL, 0, 1); /* at the start nothing else waits for us */
}

static void remove_unknown(const char id[BOX_ID_SIZE])
{
    if (!find(id))
        adopt_or_remove(id);
}

static int cgroups_open(int state_fd)
{
    struct stat st;
    char name[64];

    if (fstat(state_fd, &st) < 0)
        return -1;
    snprintf(name, sizeof(name), "atoll-%llx-%llx", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return cgroup_open("/proc/self/mountinfo", "/proc/self/cgroup", name);
}

/* The descriptors, one after the other; which one could not be had. */
static const char *host_open(int state_fd)
{
    if ((host.boxes_fd = dir_make(state_fd, "boxes")) < 0)
        return "the directory of sandboxes";
    if ((host.skeleton_fd = skeleton_open(state_fd)) < 0)
        return "the default image";
    if ((host.usr_fd = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
        return "/usr";
    if ((host.init_fd = init_memfd()) < 0)
        return "a sealed copy of init";
    if (cgroups_open(state_fd) < 0)
        return "cgroups";
    host.landlock_abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
    if (host.landlock_abi <= 0)
        return "Landlock";
    if ((adopted_fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
        return "epoll";
    if ((host.dev_fd = dev_make()) < 0)
        return "/dev";
    autoclose int copy = tree_detach(host.dev_fd);
    if (copy < 0)
        close_one(&host.dev_fd); /* an older kernel: each box gets one of its own */
    return NULL;
}

int boxes_open(int state_fd, uint32_t uid_base, boxes_say_fn *fn, void *owner, const char **what)
{
    unsigned count = 0;

    say = fn;
    say_owner = owner;
    if (state_fd < 0) {
        *what = NULL;
        return 0; /* not as this user */
    }
    host.uid_base = uid_base;
    *what = host_open(state_fd);
    if (*what)
        return -1;
    record_each(&host, adopt_or_remove);
    cgroup_each(remove_unknown);
    for (uint32_t i = 0; i < top; i++)
        count += boxes[i].state != BOX_FREE;
    if (count)
        log_info("sandboxes taken over", kv_int("count", count));
    usable = true;
    pool_due();
    return 0;
}

void boxes_close(void)
{
    int *const fds[] = { &host.boxes_fd, &host.skeleton_fd, &host.usr_fd,
                         &host.init_fd,  &host.dev_fd,      &adopted_fd };

    usable = false;
    pool_due_ms = 0;
    while (pending_count)
        create_failed(&boxes[pending[0]], ECANCELED, BOX_STEP_TIME);
    for (int i = 0; i < 2000; i++) { /* those under way are taken back; the others go on */
        bool ending = false;

        while (!boxes_reap() && i < 2000)
            i++;
        boxes_run_due();
        for (uint32_t k = 0; k < top; k++)
            ending |= boxes[k].state == BOX_ENDING;
        if (!ending)
            break;
        poll(NULL, 0, 1);
    }
    unsigned size = pool_size;

    boxes_pool(0);
    pool_size = size;
    for (uint32_t i = 0; i < BOX_SLOTS; i++)
        if (boxes[i].state != BOX_FREE)
            leave_slot(&boxes[i]);
    cgroup_close(true);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close_one(fds[i]);
}
