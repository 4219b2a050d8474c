/*
 * The set of sandboxes: who is in it, what can be seen of one. What brings one up is make.c, what
 * happens to it afterwards life.c.
 */
#include "box/boxes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "box/own.h"

METRIC_GAUGE(sandboxes, "atoll_sandboxes", "Sandboxes that were not deleted");

/* ---- the set ---- */

struct boxes *boxes_new(const struct boxes_options *options)
{
    struct boxes *boxes = xnew(struct boxes);

    boxes->loop = options->loop;
    boxes->store = options->store;
    boxes->spool_dir = options->spool_dir;
    boxes->max = options->sandboxes_max;
    boxes->hold_ms = EXEC_HOLD_MS;
    boxes->away_ms = EXEC_AWAY_MS;
    ends_open(boxes);
    boxes->degraded = options->degraded;
    boxes->send = options->send;
    boxes->ctx = options->ctx;
    list_init(&boxes->all);
    list_init(&boxes->watches);
    list_init(&boxes->disks);
    list_init(&boxes->pools);
    list_init(&boxes->templates);
    list_init(&boxes->quotas);
    boxes->machine = options->machine;
    boxes->pool_default = options->pool_default;
    list_init(&boxes->drops);
    list_init(&boxes->aside);
    boxes->aside_keep_ms = options->aside_keep_ms;
    list_init(&boxes->images);
    list_init(&boxes->imports);
    asks_init(boxes);
    return boxes;
}

void boxes_free(struct boxes *boxes)
{
    if (!boxes)
        return;
    boxes->stopping = true;
    while (list_pop(&boxes->watches))
        ;
    asks_free(boxes);
    imports_free(boxes);
    while (!list_empty(&boxes->all))
        box_free(list_entry(boxes->all.next, struct box, node));
    images_free(boxes);
    disks_free(boxes);
    pools_free(boxes);
    templates_free(boxes);
    quotas_free(boxes);
    if (boxes->machine.meminfo > 0)
        close(boxes->machine.meminfo);
    map_free(&boxes->by_id);
    map_free(&boxes->listed);
    ends_close(boxes);
    if (boxes->spool_dir >= 0)
        close(boxes->spool_dir);
    free(boxes);
}

/* By id, which is by age: at the end, unless the clock was set back or stands still. */
static void put_in_order(struct boxes *boxes, struct box *box)
{
    struct list *next = &boxes->all;

    while (next->prev != &boxes->all &&
           strcmp(list_entry(next->prev, struct box, node)->id, box->id) > 0)
        next = next->prev;
    list_append(next, &box->node);
}

struct box *box_new(struct boxes *boxes, const char *id, const char *tenant)
{
    struct box *box = xnew(struct box);

    box->boxes = boxes;
    snprintf(box->id, sizeof(box->id), "%s", id);
    snprintf(box->tenant, sizeof(box->tenant), "%s", tenant);
    box->next_number = 1;
    life_init(box);
    trusted_init(box);
    copy_init(box);
    list_init(&box->execs);
    list_init(&box->heard);
    box_jobs_init(box);
    link_init(box);
    put_in_order(boxes, box);
    (void)map_put(&boxes->by_id, str_of(box->id), box);
    box_count(box);
    return box;
}

void box_count(struct box *box)
{
    metric_set(&sandboxes, 0, ++box->boxes->count);
}

void box_uncount(struct box *box)
{
    metric_set(&sandboxes, 0, --box->boxes->count);
}

void box_free(struct box *box)
{
    struct boxes *boxes = box->boxes;

    box_jobs_lost(box, ERR_UNAVAILABLE, "the server is stopping");
    while (!list_empty(&box->execs)) {
        struct box_exec *exec = list_entry(box->execs.next, struct box_exec, node);
        struct box_op *op = exec->starting;

        if (op && (exec->state == EXEC_STARTING || exec->held)) {
            struct err err = { 0 };

            err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
            exec->starting = NULL;
            op->done(op, &err);
        }
        exec_free(exec);
    }
    life_free(box);
    copy_free(box);
    timer_cancel(boxes->loop, &box->tick);
    link_close(box);
    list_remove(&box->node);
    (void)map_del(&boxes->by_id, str_of(box->id));
    list_remove(&box->pool_node);
    if (!box->pool)
        box_uncount(box);
    arena_free(&box->arena);
    free(box);
}

bool box_owned(const struct box *box, struct reach reach)
{
    return reach_owns(reach, box->tenant, box->by, &box->spec.access);
}

bool box_within(const struct box *box, struct reach reach)
{
    if (reach.box && strcmp(reach.box, box->id) == 0)
        return true;
    return reach_has(reach, box->tenant, box->by, &box->spec.access);
}

int boxes_find(struct boxes *boxes, struct reach reach, const char *text, struct box **out,
               struct err *err)
{
    struct box *box = map_get(&boxes->by_id, str_of(text));

    if (box && box_within(box, reach)) {
        *out = box;
        return 0;
    }
    for (box = NULL; (box = boxes_next(boxes, reach, box));)
        if (box->spec.name && strcmp(box->spec.name, text) == 0) {
            *out = box;
            return 0;
        }
    return err_set(err, ERR_NOT_FOUND, "no sandbox %.64s", text);
}

int boxes_find_prefix(struct boxes *boxes, struct reach reach, const char *text, struct box **out,
                      struct err *err)
{
    struct box *found = NULL;
    size_t len = strlen(text);

    if (boxes_find(boxes, reach, text, out, err) == 0)
        return 0;
    for (struct box *box = NULL; len >= ID_PREFIX_MIN && (box = boxes_next(boxes, reach, box));) {
        if (strncmp(box->id, text, len) != 0)
            continue;
        if (found)
            return err_set(err, ERR_CONFLICT, "more than one sandbox begins with %.64s", text);
        found = box;
    }
    if (!found)
        return -1; /* as boxes_find said */
    *out = found;
    return 0;
}

/* One of a pool, or a helper, has no tenant: the rooms above never see it. */
static bool is_sandbox(const struct box *box)
{
    return box->tenant[0] != 0;
}

struct box *boxes_next(struct boxes *boxes, struct reach reach, struct box *after)
{
    struct list *at = after ? &after->node : &boxes->all;

    do
        at = at->next;
    while (at != &boxes->all && (!is_sandbox(list_entry(at, struct box, node)) ||
                                 !box_within(list_entry(at, struct box, node), reach)));
    return at == &boxes->all ? NULL : list_entry(at, struct box, node);
}

struct box *boxes_upto(struct boxes *boxes, const char *id)
{
    struct box *found = map_get(&boxes->by_id, str_of(id));

    if (found)
        return found;
    list_each (pos, &boxes->all) {
        struct box *box = list_entry(pos, struct box, node);

        if (strcmp(box->id, id) > 0)
            break;
        found = box;
    }
    return found;
}

unsigned boxes_living(const struct boxes *boxes)
{
    unsigned count = 0;

    list_each (pos, &boxes->all) {
        const struct box *box = list_entry(pos, struct box, node);

        count += is_sandbox(box) && sandbox_lives(box->state);
    }
    return count;
}

const char *box_tenant(const struct box *box)
{
    return box->tenant;
}

struct box *boxes_by_id(struct boxes *boxes, const char *id)
{
    struct box *box = map_get(&boxes->by_id, str_of(id));

    return box && is_sandbox(box) ? box : NULL;
}

/* On the clock of the wall; what was not used since a restart was when it changed. */
static int64_t used_at(const struct box *box)
{
    return box->used_ms ? clock_wall_ms() - (clock_mono_ms() - box->used_ms) : box->changed_ms;
}

void box_view(const struct box *box, struct sandbox_view *out)
{
    const struct sandbox_spec *spec = &box->spec;

    *out = (struct sandbox_view){ .id = box->id,
                                  .name = spec->name,
                                  .state = sandbox_state_name(box->state),
                                  .reason = box->reason[0] ? box->reason : NULL,
                                  .crashed = !sandbox_lives(box->state) && box->crashed_ms &&
                                             box->crashed_ms == box->changed_ms,
                                  .crash_loop = box_in_crash_loop(box),
                                  .user = spec->user,
                                  .by = box->by,
                                  .memory = spec->memory,
                                  .pids = spec->pids,
                                  .cpu_percent = spec->cpu_percent,
                                  .io_bytes = spec->io_bytes,
                                  .io_ops = spec->io_ops,
                                  .disk = spec->disk,
                                  .inodes = spec->inodes,
                                  .nofile = spec->nofile,
                                  .ttl_ms = spec->ttl_ms,
                                  .env = spec->env,
                                  .labels = spec->labels,
                                  .storage = spec->storage,
                                  .image = spec->image,
                                  .template = spec->template,
                                  .parent = spec->parent,
                                  .start = box->start,
                                  .create_us = box->create_us,
                                  .volumes = spec->volumes,
                                  .binds = spec->binds,
                                  .files = spec->files,
                                  .idle = spec->idle,
                                  .egress = spec->egress,
                                  .sys = spec->sys,
                                  .nesting = spec->nesting,
                                  .tier = spec->tier,
                                  .asleep = box->asleep,
                                  .execs_running = box->running,
                                  .created_at = box->created_ms,
                                  .changed_at = box->changed_ms,
                                  .expires_at = box->expires_ms,
                                  .used_at = used_at(box),
                                  .access = access_shown(&spec->access, box->by) };
}

void box_move(struct box *box, enum sandbox_state to)
{
    if (!sandbox_may(box->state, to))
        abort(); /* every way here has checked */
    bool starts = to == SANDBOX_RUNNING && box->state != SANDBOX_PAUSED;
    box->state = to;
    if (to != SANDBOX_RUNNING && to != SANDBOX_PAUSED)
        trusted_ended(box);
    box->changed_ms = clock_wall_ms();
    if (starts)
        box->up_ms = box->changed_ms;
}

void boxes_heard(struct boxes *boxes, const struct wire_msg *msg, const int *fds, unsigned count)
{
    int mine[WIRE_FDS_MAX];

    for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
        mine[i] = i < count ? fds[i] : -1;
    if (msg->verb == WIRE_BOX_DIED)
        box_died(boxes, &msg->died);
    else
        asks_heard(boxes, msg, mine);
    for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
        if (mine[i] >= 0)
            close(mine[i]);
}

/* ---- questions ---- */

static void told(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct err err = { 0 };

    (void)fds;
    if (!msg || msg->status) {
        ask_err(&err, msg, "ask about the sandbox");
        ask->op->done(ask->op, &err);
        return;
    }
    *(struct box_applied *)ask->out = msg->applied;
    ask->op->done(ask->op, NULL);
}

static int question(struct box *box, uint16_t verb,
                    void (*answered)(struct ask *, const struct wire_msg *, int[WIRE_FDS_MAX]),
                    void *out, struct box_op *op, struct err *err)
{
    if (box->state != SANDBOX_RUNNING && box->state != SANDBOX_PAUSED)
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id,
                       sandbox_state_name(box->state));
    struct ask *ask = ask_new(verb, box->id);
    ask->answered = answered;
    ask->boxes = box->boxes;
    ask->op = op;
    ask->out = out;
    ask_send(box->boxes, ask);
    return 0;
}

/* A disk counts what has reached it; until then what was written is dirty memory of the sandbox. */
static void told_disk(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box_usage *usage = ask->out;

    (void)fds;
    usage->disk = usage->dirty + (msg && !msg->status ? msg->disk_usage.used : 0);
    ask->op->done(ask->op, NULL);
}

static void told_usage(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box_usage *usage = ask->out;
    struct box *box;

    if (!msg || msg->status) {
        told(ask, msg, fds);
        return;
    }
    *usage = msg->usage;
    box = map_get(&ask->boxes->by_id, str_of(ask->msg.name.id));
    if (box && box->disk) {
        struct ask *more = ask_new(WIRE_DISK_STAT, NULL);

        more->msg.disk.id = box->disk;
        more->answered = told_disk;
        more->op = ask->op;
        more->out = usage;
        ask_send(box->boxes, more);
        return;
    }
    usage->disk = usage->shmem;
    ask->op->done(ask->op, NULL);
}

int box_stats(struct box *box, struct box_usage *out, struct box_op *op, struct err *err)
{
    return question(box, WIRE_BOX_STAT, told_usage, out, op, err);
}

int box_applied(struct box *box, struct box_applied *out, struct box_op *op, struct err *err)
{
    return question(box, WIRE_BOX_APPLIED, told, out, op, err);
}

void boxes_drain(struct boxes *boxes)
{
    pools_stop(boxes);
    boxes->stopping = true;
    imports_drain(boxes);
    list_each (pos, &boxes->all) {
        struct box *box = list_entry(pos, struct box, node);

        timer_cancel(boxes->loop, &box->ttl);
        box_jobs_drain(box);
        timer_cancel(boxes->loop, &box->idle);
        list_each (at, &box->execs) {
            struct box_exec *exec = list_entry(at, struct box_exec, node);

            exec_store_start(exec);
            list_each (one, &exec->waits)
                timer_set(boxes->loop, &list_entry(one, struct box_wait, node)->timer, 0);
            while (!list_empty(&exec->pace.readers))
                reader_gone(list_entry(exec->pace.readers.next, struct box_reader, pace.node));
        }
    }
}
