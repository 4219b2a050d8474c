/*
 * How a box begins and ends.
 *
 * For its own children the warden holds no descriptor: SIGCHLD tells of their end, and until it has
 * waited for one its number is its own. A box of an earlier warden is nobody's child here, so for
 * those a pidfd is kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/limits.h"
#include "base/log.h"
#include "seccomp/seccomp.h"
#include "warden/disk.h"
#include "warden/net.h"

#define END_SOON_MS 1 /* cgroups are busy for a moment after the last exit */
#define END_LATER_MS 1000
#define END_TRIES 3000

static void end_try(struct box *box);

/* ---- the end of a box ---- */

void life_kill(const struct box *box)
{
    if (box->gone || !box->pid)
        return;
    if (box->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, box->pidfd, SIGKILL, NULL, 0);
    else
        kill(box->pid, SIGKILL); /* our child, not waited for: the number is its own */
    if (box->frozen)
        (void)!cgroup_freeze(box->id, false); /* the frozen do not die */
}

int box_pidfd(const struct box *box)
{
    return box->pidfd >= 0 ? fcntl(box->pidfd, F_DUPFD_CLOEXEC, 0)
                           : (int)syscall(SYS_pidfd_open, box->pid, 0);
}

static void end_begin(struct box *box)
{
    if (box->state == BOX_CREATING)
        table_pending_remove(box);
    box->state = BOX_ENDING;
    box->tries = 0;
    record_remove(&box_host, table_slot(box));
    close_one(&box->link);
    close_one(&box->report);
    table_due_off(box);
    life_kill(box);
    if (box->gone || !box->pid)
        end_try(box);
}

static void say_created(struct box *box, const int *fds, unsigned count)
{
    struct wire_msg msg = { .created = { .step = box->step,
                                         .slot = table_slot(box),
                                         .pid = box->error ? 0 : box->pid,
                                         .uid_first = box->uid_first,
                                         .lost = box_host.lost } };

    say_answer(box, &msg, box->error, fds, count);
}

static void say_died(struct box *box)
{
    struct wire_msg msg = { .verb = WIRE_BOX_DIED, .died = box->last };

    memcpy(msg.died.name.id, box->id, BOX_ID_SIZE);
    msg.died.code = box->status != -1 && WIFEXITED(box->status) ? WEXITSTATUS(box->status) : -1;
    msg.died.signal = box->status != -1 && WIFSIGNALED(box->status) ? WTERMSIG(box->status) : 0;
    say(&msg, NULL, 0);
}

/* Everything of it is gone: whoever waits for that is told, once. */
static void ended(struct box *box)
{
    struct wire_msg msg = { 0 };

    if (box->error)
        say_created(box, NULL, 0);
    else if (box->asked)
        say_answer(box, &msg, box->asked == WIRE_BOX_DESTROY ? 0 : ESRCH, NULL, 0);
    else
        say_died(box);
    if (box->upper)
        disks_sync();
    sweep_take(&box->mounts);
    users_keep(table_slot(box), &box->users);
    network_keep(box);
    table_leave(box);
    pool_left();
}

static void end_try(struct box *box)
{
    if (box_unmake(&box_host, box->id) == 0) {
        ended(box);
        return;
    }
    if (++box->tries == END_TRIES)
        log_error("a sandbox that ended cannot be cleaned up yet", kv_str("box", box->id),
                  kv_str("error", strerror(errno)));
    table_due(box, box->tries < END_TRIES ? END_SOON_MS : END_LATER_MS);
}

static void read_last(struct box *box)
{
    struct box_usage usage;

    cgroup_usage(box->id, &usage);
    box->last.oom_kills = usage.oom_kills;
    box->last.cpu_us = usage.cpu_us;
    box->last.memory_peak = usage.memory_peak;
}

void life_died(struct box *box, int status)
{
    box->gone = true;
    box->status = status;
    if (box->state == BOX_ENDING) {
        end_try(box);
        return;
    }
    read_last(box);
    end_begin(box);
}

/* ---- creating ---- */

static int check_new(const struct wire_msg *request)
{
    const struct box_spec *spec = &request->spec;

    if (!box_spec_ok(spec) && guard(wish))
        return EINVAL;
    if (spec->must & box_host.lost)
        return ENOTSUP;
    if (box_host.rootless && (spec->upper || spec->layer_count))
        return ENOTSUP; /* no disks */
    if (spec->flags & BOX_WITH_TOOL && box_host.tool_fd < 0)
        return ENOTSUP;
    if (table_find(spec->id))
        return EEXIST;
    if (spec->upper && table_upper(spec->upper))
        return EBUSY; /* two overlays over one upper would be the end of both */
    if (table_pending() == BOXES_PENDING_MAX)
        return EAGAIN;
    return spec->upper || spec->layer_count ? disks_ready(request) : 0;
}

static void refuse_new(const struct wire_msg *request, int error, enum box_step step)
{
    struct wire_msg msg = { .verb = request->verb, .number = request->number, .status = error };

    msg.created.step = step;
    msg.created.lost = request->spec.must & box_host.lost;
    say(&msg, NULL, 0);
}

void life_create(const struct wire_msg *request)
{
    const struct box_spec *spec = &request->spec;
    struct box_begun begun;
    enum box_step step = BOX_STEP_SPEC;
    struct box_ahead ahead = { -1, -1 };
    int refused = check_new(request);

    if (refused == EINPROGRESS)
        return; /* heard again when there are disks */
    struct box *box = refused ? NULL : pool_take(spec->profile == SECCOMP_NESTING, &ahead, &step);
    pool_wish();
    if (!box) {
        refuse_new(request, refused ? refused : errno, step);
        return;
    }
    table_take(box, spec->id, BOX_CREATING);
    say_later(box, request);
    box->landlock_abi = (uint32_t)box_host.landlock_abi;
    box->nested = spec->profile == SECCOMP_NESTING;
    table_set_upper(box, spec->upper);
    box->in_memory = !spec->upper && !spec->layer_count;
    box->users_inode = users_inode(ahead.userns);
    if (box_begin(&box_host, spec, table_slot(box), &ahead, &begun, &step) < 0) {
        box->error = errno;
        box->step = step;
        end_begin(box);
        return;
    }
    table_set_pid(box, begun.pid);
    box->pidfd = begun.pidfd;
    box->link = begun.link;
    box->report = begun.report;
    table_pending_add(box);
    table_due(box, BOX_CREATE_MS);
}

void life_failed(struct box *box, int error, uint32_t step)
{
    box->error = error ? error : EPROTO;
    box->step = step;
    end_begin(box);
}

static int keep_record(const struct box *box)
{
    struct box_record record = { .slot = table_slot(box),
                                 .landlock_abi = box->landlock_abi,
                                 .nested = box->nested,
                                 .upper = box->upper };

    memcpy(record.id, box->id, BOX_ID_SIZE);
    if (box_fault_here(BOX_STEP_KEEP) || record_of(box->pidfd, box->pid, &record) < 0)
        return -1;
    return record_write(&box_host, &record);
}

/* Its child has become init. */
static void created(struct box *box)
{
    if (box->asker != say_asker()) { /* nobody would ever hear of it */
        life_failed(box, ECANCELED, BOX_STEP_KEEP);
        return;
    }
    if (keep_record(box) < 0) {
        life_failed(box, errno, BOX_STEP_KEEP);
        return;
    }
    int fds[2] = { box->pidfd, box->link };

    table_pending_remove(box);
    box->state = BOX_RUNNING;
    table_due_off(box);
    say_created(box, fds, 2);
    net_tell(table_slot(box));
    close_one(&box->pidfd);
    close_one(&box->link);
    close_one(&box->report);
}

/* The pipe is at its end: the last of what was said counts. */
void life_report(struct box *box)
{
    struct box_report said[2] = { { BOX_STEP_INIT, ECHILD } }; /* nothing: it was ended */
    ssize_t got = read(box->report, said, sizeof(said));

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    const struct box_report *last = &said[got == (ssize_t)sizeof(said)];
    if (got < 0 || got % (ssize_t)sizeof(*last))
        life_failed(box, EPROTO, BOX_STEP_INIT);
    else if (last->error)
        life_failed(box, last->error, (uint32_t)last->step);
    else
        created(box);
}

/* ---- what was asked, and when its time has come ---- */

/* What is reached by its process alone, and outlives it. */
static void hold_parts(struct box *box)
{
    autoclose int pidfd = box_pidfd(box);

    if (pidfd < 0 || box->gone)
        return;
    box->mounts = sweep_hold(box, pidfd);
    box->users = users_hold(box, pidfd);
}

void life_destroy(const struct wire_msg *request)
{
    struct box *box = box_name_ok(&request->name) ? table_find(request->name.id) : NULL;

    bool creating = box && box->state == BOX_CREATING;

    if (!box || (box->asked && !creating)) {
        say_status(request, !box_name_ok(&request->name) ? EINVAL : box ? EBUSY : ENOENT);
        return;
    }
    if (creating) { /* its creator is told at once, whoever ends it when all is gone */
        box->error = ECANCELED;
        say_created(box, NULL, 0);
        box->error = 0;
    }
    say_later(box, request);
    if (box->state == BOX_RUNNING)
        hold_parts(box);
    if (box->state != BOX_ENDING)
        end_begin(box);
}

void life_due(struct box *box)
{
    if (box->state == BOX_CREATING)
        life_failed(box, ETIMEDOUT, BOX_STEP_TIME);
    else if (box->state == BOX_ENDING)
        end_try(box);
    else
        freeze_look(box);
}
