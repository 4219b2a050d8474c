/* What may be asked of a box that runs, and the table of all that may be asked. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/limits.h"
#include "warden/disk.h"

#define FREEZE_STEP_MS 1
#define FREEZE_NAPS 4 /* before that: an idle box is frozen in less than a step */
#define FREEZE_NAP_NS 10000
#define FREEZE_AGAIN 50 /* looks after which the order is given once more */

/*
 * ENOENT says that there is no such box, and who asked then takes it for ended: a step that fails
 * for one that is there never says that.
 */
static int not_gone(int error)
{
    return error == ENOENT ? EIO : error;
}

static void on_open(struct box *box, const struct wire_msg *request)
{
    struct wire_msg msg = { .verb = request->verb, .number = request->number };

    autoclose int pidfd = box_pidfd(box);
    autoclose int link = pidfd < 0 ? -1 : box_connect(&box_host, box->id);
    if (link < 0) {
        say_status(request, not_gone(errno));
        return;
    }
    msg.created = (struct box_created){ .slot = table_slot(box),
                                        .pid = box->pid,
                                        .uid_first = box->uid_first };
    say(&msg, (int[]){ pidfd, link }, 2);
}

static void on_signal(struct box *box, const struct wire_msg *request)
{
    if (request->signal.number == SIGKILL)
        life_kill(box);
    say_status(request, request->signal.number == SIGKILL ? 0 : EINVAL);
}

/* Frozen is what the kernel says is frozen; it is asked again until it does. */
void freeze_look(struct box *box)
{
    struct wire_msg msg = { 0 };

    table_due_off(box);
    if (cgroup_frozen(box->id)) {
        say_answer(box, &msg, 0, NULL, 0);
    } else if (++box->tries > BOX_FREEZE_MS / FREEZE_STEP_MS) {
        (void)!cgroup_freeze(box->id, false);
        say_answer(box, &msg, ETIMEDOUT, NULL, 0);
    } else {
        /*
         * The v1 freezer can get stuck half way when processes come and go meanwhile; its kernel
         * documentation says to try again. A moment of running lets them get past that point.
         */
        if (box->tries % FREEZE_AGAIN == 0) {
            (void)!cgroup_freeze(box->id, false);
            (void)!cgroup_freeze(box->id, true);
        }
        table_due(box, FREEZE_STEP_MS);
    }
}

/*
 * Those who sleep must wake up to be frozen. With nothing else to do they have done so before the
 * first timer could: some naps that are too short to keep others waiting spare its whole step.
 */
static void freeze_nap(const struct box *box)
{
    for (int i = 0; i < FREEZE_NAPS && !cgroup_frozen(box->id); i++)
        nanosleep(&(struct timespec){ .tv_nsec = FREEZE_NAP_NS }, NULL);
}

static void on_freeze(struct box *box, const struct wire_msg *request)
{
    box->frozen = true;
    if (box->asked || cgroup_freeze(box->id, true) < 0) {
        say_status(request, box->asked ? EBUSY : not_gone(errno));
        return;
    }
    say_later(box, request);
    box->tries = 0;
    freeze_nap(box);
    freeze_look(box);
}

static void on_thaw(struct box *box, const struct wire_msg *request)
{
    bool failed = !box->asked && cgroup_freeze(box->id, false) < 0;

    say_status(request, box->asked ? EBUSY : failed ? not_gone(errno) : 0);
}

static void on_limits(struct box *box, const struct wire_msg *request)
{
    const struct box_limits *limits = &request->limits;
    bool size = limits->disk || limits->inodes;

    if (!box_limits_ok(limits) || (size && box->upper))
        say_status(request, EINVAL);
    else if (cgroup_limit(box->id, limits->memory, limits->pids, limits->cpu_percent) < 0 ||
             cgroup_io(box->id, limits->io_bytes, limits->io_ops) < 0)
        say_status(request, not_gone(errno));
    else if (size)
        inject_size(box, request);
    else
        say_status(request, 0);
}

static void on_stat(struct box *box, const struct wire_msg *request)
{
    struct wire_msg msg = { .verb = request->verb, .number = request->number };

    if (box_host.lost & BOX_LOST_USAGE) { /* no figures rather than zeros */
        say_status(request, ENOTSUP);
        return;
    }
    cgroup_usage(box->id, &msg.usage);
    say(&msg, NULL, 0);
}

static void on_list(const struct wire_msg *request)
{
    struct wire_msg msg = { .verb = request->verb, .number = request->number };
    struct box_rows *out = &msg.rows;
    const struct box *box = table_next(request->page.from);

    for (; box && out->count < BOX_ROWS; box = table_next(table_slot(box) + 1)) {
        struct box_row *row = &out->rows[out->count++];

        *row = (struct box_row){ .state = box->state, .slot = table_slot(box), .pid = box->pid };
        memcpy(row->id, box->id, BOX_ID_SIZE);
    }
    out->next = box ? table_slot(box) : 0;
    say(&msg, NULL, 0);
}

/* A verb is about a box that runs, or it finds out for itself what it is about. */
/* clang-format off */
static const struct verb {
    void (*of_box)(struct box *box, const struct wire_msg *request);
    void (*any)(const struct wire_msg *request);
} verbs[WIRE_VERBS] = {
    [WIRE_BOX_CREATE]  = { .any = life_create },
    [WIRE_BOX_OPEN]    = { on_open },
    [WIRE_BOX_SIGNAL]  = { on_signal },
    [WIRE_BOX_FREEZE]  = { on_freeze },
    [WIRE_BOX_THAW]    = { on_thaw },
    [WIRE_BOX_LIMITS]  = { on_limits },
    [WIRE_BOX_STAT]    = { on_stat },
    [WIRE_BOX_APPLIED] = { applied_hear },
    [WIRE_BOX_DESTROY] = { .any = life_destroy },
    [WIRE_BOX_LIST]    = { .any = on_list },
    [WIRE_BOX_MOUNT]   = { inject_mount },
    [WIRE_DISK_MAKE]   = { .any = disks_hear },
    [WIRE_DISK_LIMIT]  = { .any = disks_hear },
    [WIRE_DISK_STAT]   = { .any = disks_hear },
    [WIRE_DISK_DROP]   = { .any = disks_hear },
    [WIRE_DISK_LIST]   = { .any = disks_hear },
};
/* clang-format on */

/* Every request about a box begins with its name. */
static void hear_of_box(const struct verb *verb, const struct wire_msg *request)
{
    bool good = box_name_ok(&request->name);
    struct box *box = good ? table_find(request->name.id) : NULL;

    if (box && box->state == BOX_RUNNING)
        verb->of_box(box, request);
    else
        say_status(request, !good ? EINVAL : box ? EBUSY : ENOENT);
}

bool verbs_hear(const struct wire_msg *request, bool usable)
{
    const struct verb *verb = request->verb < WIRE_VERBS ? &verbs[request->verb] : NULL;

    if (!verb || (!verb->of_box && !verb->any))
        return false;
    if (!usable)
        say_status(request, ENOTSUP);
    else if (verb->of_box)
        hear_of_box(verb, request);
    else
        verb->any(request);
    return true;
}
