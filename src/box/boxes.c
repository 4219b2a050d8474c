/*
 * The set of sandboxes and what can be done to one. Each change asks the warden first; its answer
 * moves the state, the store writes it down, and then the caller is told. While a change is under
 * way the sandbox is busy, and a second one is refused.
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
METRIC_HISTOGRAM(create_seconds, "atoll_sandbox_create_seconds",
                 "From the wish for a sandbox to its being stored", 0.001, 0.002, 0.005, 0.01, 0.02,
                 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5);

#define PROFILE_AGENT 0 /* enum seccomp_profile, by wire/box.h */
#define PROFILE_ROOT 1
#define TTL_RETRY_MS 1000
#define TTL_TURN_MAX_MS (24ll * 3600 * 1000)
#define PREFIX_MIN 3

/* ---- the set ---- */

struct boxes *boxes_new(const struct boxes_options *options)
{
    struct boxes *boxes = xnew(struct boxes);

    boxes->loop = options->loop;
    boxes->store = options->store;
    boxes->spool_dir = options->spool_dir;
    boxes->max = options->sandboxes_max;
    boxes->send = options->send;
    boxes->ctx = options->ctx;
    list_init(&boxes->all);
    list_init(&boxes->disks);
    list_init(&boxes->drops);
    asks_init(boxes);
    return boxes;
}

void boxes_free(struct boxes *boxes)
{
    if (!boxes)
        return;
    boxes->stopping = true;
    asks_free(boxes);
    while (!list_empty(&boxes->all))
        box_free(list_entry(boxes->all.next, struct box, node));
    disks_free(boxes);
    map_free(&boxes->by_id);
    map_free(&boxes->listed);
    if (boxes->spool_dir >= 0)
        close(boxes->spool_dir);
    free(boxes);
}

static void on_ttl(struct timer *timer);

struct box *box_new(struct boxes *boxes, const char *id, const char *tenant)
{
    struct box *box = xnew(struct box);

    box->boxes = boxes;
    snprintf(box->id, sizeof(box->id), "%s", id);
    snprintf(box->tenant, sizeof(box->tenant), "%s", tenant);
    box->next_number = 1;
    box->ttl.fn = on_ttl;
    list_init(&box->execs);
    link_init(box);
    list_append(&boxes->all, &box->node);
    (void)map_put(&boxes->by_id, str_of(box->id), box);
    boxes->count++;
    metric_set(&sandboxes, 0, boxes->count);
    return box;
}

void box_free(struct box *box)
{
    struct boxes *boxes = box->boxes;

    while (!list_empty(&box->execs)) {
        struct box_exec *exec = list_entry(box->execs.next, struct box_exec, node);
        struct box_op *op = exec->starting;

        if (exec->state == EXEC_STARTING && op) {
            struct err err = { 0 };

            err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
            exec->starting = NULL;
            op->done(op, &err);
        }
        exec_free(exec);
    }
    timer_cancel(boxes->loop, &box->ttl);
    timer_cancel(boxes->loop, &box->tick);
    link_close(box);
    list_remove(&box->node);
    (void)map_del(&boxes->by_id, str_of(box->id));
    boxes->count--;
    metric_set(&sandboxes, 0, boxes->count);
    arena_free(&box->arena);
    free(box);
}

static bool owned(const struct box *box, const char *tenant)
{
    return strcmp(box->tenant, tenant) == 0;
}

int boxes_find(struct boxes *boxes, const char *tenant, const char *text, struct box **out,
               struct err *err)
{
    struct box *box = map_get(&boxes->by_id, str_of(text));
    struct box *found = box && owned(box, tenant) ? box : NULL;
    bool exact = found != NULL;
    size_t len = strlen(text);

    list_each (pos, &boxes->all) {
        if (exact)
            break;
        box = list_entry(pos, struct box, node);
        if (!owned(box, tenant))
            continue;
        if (box->spec.name && strcmp(box->spec.name, text) == 0) {
            found = box;
            exact = true;
        } else if (len >= PREFIX_MIN && strncmp(box->id, text, len) == 0) {
            if (found)
                return err_set(err, ERR_CONFLICT, "more than one sandbox begins with %.64s", text);
            found = box;
        }
    }
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "no sandbox %.64s", text);
    *out = found;
    return 0;
}

struct box *boxes_next(struct boxes *boxes, const char *tenant, struct box *after)
{
    struct list *at = after ? &after->node : &boxes->all;

    do
        at = at->next;
    while (at != &boxes->all && !owned(list_entry(at, struct box, node), tenant));
    return at == &boxes->all ? NULL : list_entry(at, struct box, node);
}

void box_view(const struct box *box, struct sandbox_view *out)
{
    const struct sandbox_spec *spec = &box->spec;

    *out = (struct sandbox_view){ .id = box->id,
                                  .name = spec->name,
                                  .state = sandbox_state_name(box->state),
                                  .reason = box->reason[0] ? box->reason : NULL,
                                  .user = spec->user,
                                  .by = box->by,
                                  .memory = spec->memory,
                                  .pids = spec->pids,
                                  .cpu_percent = spec->cpu_percent,
                                  .disk = spec->disk,
                                  .inodes = spec->inodes,
                                  .nofile = spec->nofile,
                                  .ttl_ms = spec->ttl_ms,
                                  .env = spec->env,
                                  .labels = spec->labels,
                                  .execs_running = box->running,
                                  .created_at = box->created_ms,
                                  .changed_at = box->changed_ms,
                                  .expires_at = box->expires_ms };
}

static void move(struct box *box, enum sandbox_state to)
{
    if (!sandbox_may(box->state, to))
        abort(); /* every way here has checked */
    box->state = to;
    box->changed_ms = clock_wall_ms();
}

/* ---- creating ---- */

static struct field_pair *pairs_copy(struct arena *arena, const struct field_pair *from)
{
    size_t count = 0;

    while (from && from[count].key)
        count++;
    struct field_pair *to = arena_alloc(arena, (count + 1) * sizeof(*to));
    for (size_t i = 0; i < count; i++)
        to[i] = (struct field_pair){ arena_strdup(arena, from[i].key),
                                     arena_strdup(arena, from[i].value) };
    return to;
}

static void spec_copy(struct box *box, const struct sandbox_spec *from)
{
    box->spec = *from;
    box->spec.name = from->name ? arena_strdup(&box->arena, from->name) : NULL;
    box->spec.user = strcmp(from->user, "root") == 0 ? "root" : "agent";
    box->spec.env = pairs_copy(&box->arena, from->env);
    box->spec.labels = pairs_copy(&box->arena, from->labels);
}

static void destroyed_quietly(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    (void)fds;
    if (!msg || (msg->status && msg->status != ENOENT))
        log_error("a sandbox could not be destroyed; the next start tries again",
                  kv_str("sandbox", ask->msg.name.id));
}

static void destroy_quietly(struct boxes *boxes, const char *id)
{
    struct ask *ask = ask_new(WIRE_BOX_DESTROY, id);

    ask->answered = destroyed_quietly;
    ask_send(boxes, ask);
}

static void create_stored(struct change *change, const struct err *err)
{
    struct box *box = change->box;
    struct box_op *op = change->op;

    box->busy = NULL;
    if (err) {
        destroy_quietly(box->boxes, box->id);
        op->box = NULL;
        op->done(op, err);
        box_free(box);
        return;
    }
    metric_observe_us(&create_seconds, (clock_wall_ms() - box->created_ms) * 1000);
    box_ttl_set(box);
    op->done(op, NULL);
}

static void created(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;
    struct box_op *op = ask->op;
    struct err err = { 0 };

    if (!msg || msg->status || fds[1] < 0) {
        ask_err(&err, msg && msg->status ? msg : NULL, "create a sandbox");
        if (!msg || !msg->status)
            destroy_quietly(box->boxes, box->id);
        op->done(op, &err);
        box_free(box);
        return;
    }
    box->slot = msg->created.slot;
    link_open(box, take_fd(&fds[1]));
    move(box, SANDBOX_RUNNING);
    op->box = box;
    if (op->prepare)
        op->prepare(op);
    struct change *change = change_new(box, NULL, op, "sandbox.created");
    change->write = row_sandbox_insert;
    change->settled = create_stored;
    change_submit(change);
}

static int check_room(struct boxes *boxes, const struct sandbox_spec *spec, const char *tenant,
                      struct err *err)
{
    if (boxes->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    if (boxes->count >= boxes->max)
        return err_set(err, ERR_RATE,
                       "there are %u sandboxes, and the setting sandboxes_max allows no more; "
                       "delete some",
                       boxes->count);
    list_each (pos, &boxes->all) {
        const struct box *box = list_entry(pos, struct box, node);

        if (spec->name && box->spec.name && strcmp(spec->name, box->spec.name) == 0 &&
            owned(box, tenant)) {
            err_field(err, "name", "a sandbox is named %s already: %s", spec->name, box->id);
            err->code = ERR_CONFLICT;
            return -1;
        }
    }
    return 0;
}

int boxes_create(struct boxes *boxes, const struct sandbox_spec *spec, struct box_op *op,
                 struct err *err)
{
    struct sandbox_spec settled = *spec;
    char id[ID_SIZE];

    if (sandbox_spec_settle(&settled, err) < 0 || check_room(boxes, &settled, op->tenant, err) < 0)
        return -1;
    id_make(id, "sb");
    struct ask *ask = ask_new(WIRE_BOX_CREATE, id);
    struct box_spec *wish = &ask->msg.spec;
    wish->profile = strcmp(settled.user, "root") == 0 ? PROFILE_ROOT : PROFILE_AGENT;
    wish->memory = (uint64_t)settled.memory;
    wish->disk = (uint64_t)settled.disk;
    wish->inodes = (uint32_t)settled.inodes;
    wish->nofile = (uint32_t)settled.nofile;
    wish->pids = (uint32_t)settled.pids;
    wish->cpu_percent = (uint32_t)settled.cpu_percent;
    if (!box_spec_ok(wish)) {
        free(ask);
        return err_set(err, ERR_INVALID, "limits that no sandbox can have");
    }
    struct box *box = box_new(boxes, id, op->tenant);
    spec_copy(box, &settled);
    snprintf(box->by, sizeof(box->by), "%s", op->by);
    box->busy = "being created";
    box->created_ms = box->changed_ms = clock_wall_ms();
    box->expires_ms = settled.ttl_ms ? box->created_ms + settled.ttl_ms : 0;
    ask->answered = created;
    ask->box = box;
    ask->op = op;
    ask_send(boxes, ask);
    return 0;
}

/* ---- the end ---- */

static void tell_op(struct change *change, const struct err *err)
{
    change->box->busy = NULL;
    if (change->op)
        change->op->done(change->op, err);
    else if (err)
        log_error("the end of a sandbox is not stored", kv_str("sandbox", change->id),
                  kv_str("error", err->msg));
}

void box_ended(struct box *box, enum sandbox_state state, const char *reason, struct box_op *op)
{
    link_drain(box);
    list_each_safe (pos, &box->execs)
        exec_lost(list_entry(pos, struct box_exec, node));
    timer_cancel(box->boxes->loop, &box->tick);
    snprintf(box->reason, sizeof(box->reason), "%s", reason);
    move(box, state);
    if (op) {
        op->box = box;
        if (op->prepare)
            op->prepare(op);
    }
    struct change *change =
        change_new(box, NULL, op, state == SANDBOX_STOPPED ? "sandbox.stopped" : "sandbox.failed");
    change->write = row_sandbox_update;
    change->settled = tell_op;
    change->audit = op == NULL;
    change_submit(change);
}

void box_condemn(struct box *box, const char *why)
{
    if (!sandbox_lives(box->state) || box->busy)
        return;
    log_error("a sandbox is destroyed", kv_str("sandbox", box->id), kv_str("why", why));
    link_close(box); /* nothing more is believed */
    destroy_quietly(box->boxes, box->id);
    box_ended(box, SANDBOX_FAILED, why, NULL);
}

static void died(struct boxes *boxes, const struct box_died *news)
{
    struct box *box = NULL;
    char reason[160];

    if (box_name_ok(&news->name))
        box = map_get(&boxes->by_id, str_of(news->name.id));
    if (!box || !sandbox_lives(box->state) || box->busy)
        return; /* whoever is busy with it learns it from the answer */
    if (news->oom_kills)
        snprintf(reason, sizeof(reason), "out of memory: its process 1 was killed");
    else if (news->signal)
        snprintf(reason, sizeof(reason), "its process 1 was killed by signal %d", news->signal);
    else
        snprintf(reason, sizeof(reason), "its process 1 ended (%d)", news->code);
    box_ended(box, SANDBOX_FAILED, reason, NULL);
}

void boxes_heard(struct boxes *boxes, const struct wire_msg *msg, const int *fds, unsigned count)
{
    int mine[WIRE_FDS_MAX] = { -1, -1, -1, -1 };

    for (unsigned i = 0; i < count && i < WIRE_FDS_MAX; i++)
        mine[i] = fds[i];
    if (msg->verb == WIRE_BOX_DIED)
        died(boxes, &msg->died);
    else
        asks_heard(boxes, msg, mine);
    for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
        if (mine[i] >= 0)
            close(mine[i]);
}

/* ---- changes ---- */

static int may_begin(struct box *box, enum sandbox_state to, const char *busy, struct err *err)
{
    if (box->busy)
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id, box->busy);
    if (!sandbox_may(box->state, to))
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id,
                       sandbox_state_name(box->state));
    if (box->boxes->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is stopping");
    box->busy = busy;
    return 0;
}

static void begin(struct box *box, uint16_t verb, struct box_op *op,
                  void (*answered)(struct ask *, const struct wire_msg *, int[WIRE_FDS_MAX]))
{
    struct ask *ask = ask_new(verb, box->id);

    ask->answered = answered;
    ask->box = box;
    ask->op = op;
    if (op)
        op->box = box;
    ask_send(box->boxes, ask);
}

/* The warden does not know it any more: it died, and nobody could listen. */
static bool gone_already(struct ask *ask, const struct wire_msg *msg)
{
    if (!msg || msg->status != ENOENT)
        return false;
    struct err err = { 0 };
    struct box *box = ask->box;
    struct box_op *op = ask->op;

    box->busy = NULL;
    box_ended(box, SANDBOX_FAILED, "it ended", NULL);
    err_set(&err, ERR_CONFLICT, "sandbox %s has ended", box->id);
    op->done(op, &err);
    return true;
}

static void frozen(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;
    bool pause = ask->msg.verb == WIRE_BOX_FREEZE;
    struct err err = { 0 };

    (void)fds;
    if (gone_already(ask, msg))
        return;
    if (!msg || msg->status) {
        box->busy = NULL;
        ask_err(&err, msg, pause ? "pause" : "resume");
        ask->op->done(ask->op, &err);
        return;
    }
    move(box, pause ? SANDBOX_PAUSED : SANDBOX_RUNNING);
    if (ask->op->prepare)
        ask->op->prepare(ask->op);
    struct change *change =
        change_new(box, NULL, ask->op, pause ? "sandbox.paused" : "sandbox.resumed");
    change->write = row_sandbox_update;
    change->settled = tell_op;
    change_submit(change);
    link_tick_soon(box);
}

int box_pause(struct box *box, struct box_op *op, struct err *err)
{
    if (may_begin(box, SANDBOX_PAUSED, "being paused", err) < 0)
        return -1;
    begin(box, WIRE_BOX_FREEZE, op, frozen);
    return 0;
}

int box_resume(struct box *box, struct box_op *op, struct err *err)
{
    if (box->state != SANDBOX_PAUSED && !box->busy)
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id,
                       sandbox_state_name(box->state));
    if (may_begin(box, SANDBOX_RUNNING, "being resumed", err) < 0)
        return -1;
    begin(box, WIRE_BOX_THAW, op, frozen);
    return 0;
}

static void stopped(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;
    struct err err = { 0 };
    char reason[160];

    (void)fds;
    if (!msg || (msg->status && msg->status != ENOENT)) {
        box->busy = NULL;
        ask_err(&err, msg, "stop");
        ask->op->done(ask->op, &err);
        return;
    }
    snprintf(reason, sizeof(reason), "stopped by %s", ask->op->by);
    box_ended(box, SANDBOX_STOPPED, reason, ask->op);
}

int box_stop(struct box *box, struct box_op *op, struct err *err)
{
    if (may_begin(box, SANDBOX_STOPPED, "being stopped", err) < 0)
        return -1;
    begin(box, WIRE_BOX_DESTROY, op, stopped);
    return 0;
}

/* ---- deleting ---- */

static void delete_stored(struct change *change, const struct err *err)
{
    struct box *box = change->box;
    struct box_op *op = change->op;

    if (err) { /* nothing runs any more, but its row is there: it can be deleted again */
        box->busy = NULL;
        if (op)
            op->done(op, err);
        else
            timer_set(box->boxes->loop, &box->ttl, TTL_RETRY_MS);
        return;
    }
    list_each (pos, &box->execs)
        exec_remove_files(list_entry(pos, struct box_exec, node));
    if (op) {
        op->box = NULL;
        op->done(op, NULL);
    }
    box_free(box);
}

static void delete_rows(struct box *box, struct box_op *op)
{
    link_drain(box);
    list_each_safe (pos, &box->execs)
        exec_lost(list_entry(pos, struct box_exec, node));
    timer_cancel(box->boxes->loop, &box->ttl);
    timer_cancel(box->boxes->loop, &box->tick);
    move(box, SANDBOX_DELETED);
    if (op && op->prepare)
        op->prepare(op);
    struct change *change = change_new(box, NULL, op, "sandbox.deleted");
    change->write = row_sandbox_delete;
    change->settled = delete_stored;
    change->audit = op == NULL;
    change_submit(change);
}

static void deleted(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    struct box *box = ask->box;
    struct err err = { 0 };

    (void)fds;
    if (msg && (!msg->status || msg->status == ENOENT)) {
        delete_rows(box, ask->op);
        return;
    }
    box->busy = NULL;
    if (ask->op) {
        ask_err(&err, msg, "delete");
        ask->op->done(ask->op, &err);
    } else if (!box->boxes->stopping) {
        timer_set(box->boxes->loop, &box->ttl, TTL_RETRY_MS);
    }
}

static int begin_delete(struct box *box, struct box_op *op, struct err *err)
{
    bool lives = sandbox_lives(box->state);

    if (box->state == SANDBOX_DELETED) { /* its row could not be deleted then */
        if (box->busy)
            return err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id, box->busy);
        box->state = SANDBOX_FAILED;
    }
    if (may_begin(box, SANDBOX_DELETED, "being deleted", err) < 0)
        return -1;
    if (op)
        op->box = box;
    if (lives)
        begin(box, WIRE_BOX_DESTROY, op, deleted);
    else
        delete_rows(box, op);
    return 0;
}

int box_delete(struct box *box, struct box_op *op, struct err *err)
{
    return begin_delete(box, op, err);
}

static void on_ttl(struct timer *timer)
{
    struct box *box = container_of(timer, struct box, ttl);
    struct err err;

    if (clock_wall_ms() < box->expires_ms)
        box_ttl_set(box);
    else if (begin_delete(box, NULL, &err) < 0 && !box->boxes->stopping)
        timer_set(box->boxes->loop, timer, TTL_RETRY_MS);
}

void box_ttl_set(struct box *box)
{
    int64_t left = box->expires_ms - clock_wall_ms();

    if (box->expires_ms)
        timer_set(box->boxes->loop, &box->ttl, left < 0 ? 0 : MIN(left, (int64_t)TTL_TURN_MAX_MS));
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
    if (msg->verb == WIRE_BOX_STAT)
        *(struct box_usage *)ask->out = msg->usage;
    else
        *(struct box_applied *)ask->out = msg->applied;
    ask->op->done(ask->op, NULL);
}

static int question(struct box *box, uint16_t verb, void *out, struct box_op *op, struct err *err)
{
    if (box->state != SANDBOX_RUNNING && box->state != SANDBOX_PAUSED)
        return err_set(err, ERR_CONFLICT, "sandbox %s is %s", box->id,
                       sandbox_state_name(box->state));
    struct ask *ask = ask_new(verb, box->id);
    ask->answered = told;
    ask->op = op;
    ask->out = out;
    ask_send(box->boxes, ask);
    return 0;
}

int box_stats(struct box *box, struct box_usage *out, struct box_op *op, struct err *err)
{
    return question(box, WIRE_BOX_STAT, out, op, err);
}

int box_applied(struct box *box, struct box_applied *out, struct box_op *op, struct err *err)
{
    return question(box, WIRE_BOX_APPLIED, out, op, err);
}

void boxes_drain(struct boxes *boxes)
{
    boxes->stopping = true;
    list_each (pos, &boxes->all) {
        struct box *box = list_entry(pos, struct box, node);

        timer_cancel(boxes->loop, &box->ttl);
        list_each (at, &box->execs) {
            struct box_exec *exec = list_entry(at, struct box_exec, node);

            list_each (one, &exec->waits)
                timer_set(boxes->loop, &list_entry(one, struct box_wait, node)->timer, 0);
            list_each_safe (one, &exec->readers) {
                struct box_reader *reader = list_entry(one, struct box_reader, node);

                list_remove(&reader->node);
                reader->gone(reader);
            }
        }
    }
}
