/*
 *   (timer) ─▶ making: [disk row · DISK_MAKE] · BOX_CREATE ─▶ warming: `true` ─▶ ready ─▶ taken
 *
 * A box of a pool is a struct box whose `pool` is set: it has no owner, is not counted, and what
 * ends it is nobody's event. Its object is freed by the pool's timer and not where its end is
 * noticed, because that may be in the middle of reading from it.
 */
#include "box/pool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "box/own.h"
#include "box/template.h"

METRIC_GAUGE(pool_ready, "atoll_pool_ready", "Warm sandboxes that wait to be taken");
METRIC_COUNTER(pool_takes, "atoll_pool_takes_total", "Creations that fitted a pool", "what", "warm",
               "empty");

#define REFILL_MS 4 /* whoever took one is about to use it: not beside that */
#define RETRY_MIN_MS 500
#define RETRY_MAX_MS 60000
#define WARM_MS 10000
#define WARM_EXEC 1u /* number of the one command */
#define POOL_TENANT "default"

struct pool {
    struct list node;
    struct boxes *boxes;
    char *name, *image, *tenant; /* owned; image and whose it is "" for none */
    const char *user, *storage;
    unsigned size, ready_count;
    struct list ready; /* by box->pool_node */
    struct list dead;
    struct box *making; /* at most one */
    struct timer timer;
    int64_t retry_ms, warm_due_ms;
    char error[160];
    int64_t taken, missed;
    bool going; /* its boxes go, then it goes */
};

const struct field pool_wish_fields[] = {
    FIELD(pool_wish, size, F_INT, F_REQUIRED, .min = 0, .max = POOL_SIZE_MAX,
          .help = "Sandboxes that stand ready; 0 removes the pool"),
    FIELD(pool_wish, image, F_STRING, 0, .min = 1, .max = 255,
          .help = "What they begin with; the programs of this machine unless said"),
    FIELD(pool_wish, user, F_ENUM, 0, .choices = "agent|root", .help = "agent unless said"),
    FIELD(pool_wish, storage, F_ENUM, 0, .choices = "memory|disk", .help = "memory unless said"),
    FIELD(pool_wish, template, F_STRING, 0, .min = 1, .max = DISK_NAME_MAX,
          .help = "Ready for this template: image, user and storage as it says now"),
    { 0 },
};

const struct field pool_fields[] = {
    FIELD(pool_view, name, F_STRING, F_READONLY, .help = "Its name"),
    FIELD(pool_view, size, F_INT, F_READONLY, .help = "How many are to stand ready"),
    FIELD(pool_view, ready, F_INT, F_READONLY, .help = "How many do now"),
    FIELD(pool_view, image, F_STRING, F_READONLY, .help = "null: the programs of this machine"),
    FIELD(pool_view, user, F_STRING, F_READONLY, .help = "agent or root"),
    FIELD(pool_view, storage, F_STRING, F_READONLY, .help = "memory or disk"),
    FIELD(pool_view, taken, F_INT, F_READONLY, .help = "Taken since the server process started"),
    FIELD(pool_view, missed, F_INT, F_READONLY,
          .help = "Creations that fitted and found none ready"),
    FIELD(pool_view, error, F_STRING, F_READONLY,
          .help = "Why the last making failed; null when it did not"),
    { 0 },
};

/* ---- the set ---- */

static void on_timer(struct timer *timer);

static struct pool *pool_find(const struct boxes *boxes, const char *name)
{
    list_each (pos, &boxes->pools) {
        struct pool *pool = list_entry(pos, struct pool, node);

        if (!pool->going && strcmp(pool->name, name) == 0)
            return pool;
    }
    return NULL;
}

struct pool *pool_next(struct boxes *boxes, struct pool *after)
{
    struct list *at = after ? &after->node : &boxes->pools;

    do
        at = at->next;
    while (at != &boxes->pools && list_entry(at, struct pool, node)->going);
    return at == &boxes->pools ? NULL : list_entry(at, struct pool, node);
}

void pool_view(const struct pool *pool, struct pool_view *out)
{
    *out = (struct pool_view){ .name = pool->name,
                               .image = pool->image[0] ? pool->image : NULL,
                               .user = pool->user,
                               .storage = pool->storage,
                               .error = pool->error[0] ? pool->error : NULL,
                               .size = pool->size,
                               .ready = pool->ready_count,
                               .taken = pool->taken,
                               .missed = pool->missed };
}

const char *pool_tenant(const struct pool *pool)
{
    return pool->tenant;
}

const char *pool_of_image(const struct boxes *boxes, const char *tenant, const char *name)
{
    list_each (pos, &boxes->pools) {
        const struct pool *pool = list_entry(pos, struct pool, node);

        if (!pool->going && strcmp(pool->tenant, tenant) == 0 && strcmp(pool->image, name) == 0)
            return pool->name;
    }
    return NULL;
}

static void soon(struct pool *pool, int64_t ms)
{
    if (!pool->boxes->stopping && pool->boxes->pools_on)
        timer_set(pool->boxes->loop, &pool->timer, ms);
}

static void count_ready(struct pool *pool, int by)
{
    pool->ready_count = (unsigned)((int)pool->ready_count + by);
    pool->boxes->warm_count = (unsigned)((int)pool->boxes->warm_count + by);
    metric_set(&pool_ready, 0, pool->boxes->warm_count);
}

/* ---- the end of a warm one ---- */

static void destroyed(struct ask *ask, const struct wire_msg *msg, int fds[WIRE_FDS_MAX])
{
    const struct boxes *boxes = ask->out;

    (void)fds;
    if (!boxes->stopping && (!msg || (msg->status && msg->status != ENOENT)))
        log_error("a warm sandbox could not be destroyed; the next start tries again",
                  kv_str("sandbox", ask->msg.name.id));
}

static void destroy(struct box *box)
{
    struct ask *ask = ask_new(WIRE_BOX_DESTROY, box->id);

    ask->answered = destroyed;
    ask->out = box->boxes;
    ask_send(box->boxes, ask);
}

/* Out of use at once; the object is freed by the timer. */
static void retire(struct box *box)
{
    struct pool *pool = box->pool;

    if (box->state == SANDBOX_FAILED)
        return;
    destroy(box);
    link_close(box);
    timer_cancel(pool->boxes->loop, &box->tick);
    if (pool->making == box)
        pool->making = NULL;
    else
        count_ready(pool, -1);
    box->state = SANDBOX_FAILED;
    list_remove(&box->pool_node);
    list_append(&pool->dead, &box->pool_node);
    soon(pool, 0);
}

void pool_lost(struct box *box, const char *why)
{
    log_warn("a warm sandbox is gone", kv_str("sandbox", box->id), kv_str("why", why));
    retire(box);
}

static void bury(struct pool *pool)
{
    struct list *node;

    while ((node = list_pop(&pool->dead))) {
        struct box *box = list_entry(node, struct box, pool_node);
        struct disk *disk = disk_by_number(pool->boxes, box->disk);

        if (disk)
            disk_drop(disk); /* tried again until the box has let go of it */
        box_free(box);
    }
}

static void retire_ready(struct pool *pool, unsigned keep)
{
    while (pool->ready_count > keep)
        retire(list_entry(pool->ready.next, struct box, pool_node));
}

static void pool_free(struct pool *pool)
{
    timer_cancel(pool->boxes->loop, &pool->timer);
    list_remove(&pool->node);
    free(pool->name);
    free(pool->image);
    free(pool->tenant);
    free(pool);
}

/* ---- making ---- */

static void make_failed(struct pool *pool, const struct err *err)
{
    if (strcmp(pool->error, err->msg) != 0)
        log_warn("a warm sandbox could not be made", kv_str("pool", pool->name),
                 kv_str("error", err->msg));
    snprintf(pool->error, sizeof(pool->error), "%.*s", (int)sizeof(pool->error) - 1, err->msg);
    pool->retry_ms = MIN(MAX(pool->retry_ms * 2, (int64_t)RETRY_MIN_MS), (int64_t)RETRY_MAX_MS);
    soon(pool, pool->retry_ms);
}

static void made(struct box *box, const struct err *err)
{
    struct pool *pool = box->pool;

    if (err) {
        make_failed(pool, err);
        pool->making = NULL;
        box->state = SANDBOX_FAILED;
        list_append(&pool->dead, &box->pool_node);
        return;
    }
    box_move(box, SANDBOX_RUNNING);
    box->busy = NULL;
    trusted_try(box);
    pool->warm_due_ms = clock_mono_ms() + WARM_MS;
    soon(pool, WARM_MS);
}

static void disk_made(struct disk_op *op, const struct err *err)
{
    struct box *box = container_of(op, struct box, disk_op);

    if (err) {
        made(box, err);
        return;
    }
    box->disk = op->disk->number;
    if (!box->boxes->stopping) /* or the next start finds a disk that nobody owns */
        box_up(box, made);
}

static void make_one(struct pool *pool)
{
    struct sandbox_spec spec = { .user = pool->user,
                                 .storage = pool->storage,
                                 .image = pool->image[0] ? pool->image : NULL };
    struct err err = { 0 };
    char id[ID_SIZE];

    if (sandbox_spec_settle(&spec, &err) < 0 ||
        image_apply(pool->boxes, &spec, pool->tenant, &err) < 0) {
        make_failed(pool, &err);
        return;
    }
    id_make(id, "sb");
    struct box *box = box_new(pool->boxes, id, "");
    box_uncount(box);
    box->pool = pool;
    box->busy = "warming up";
    wish_copy(&box->arena, &box->spec, &spec);
    pool->making = box;
    if (!sandbox_on_disk(&spec)) {
        box_up(box, made);
        return;
    }
    struct disk_want want = {
        .kind = DISK_ROOT, .tenant = POOL_TENANT, .by = "-", .sandbox = id, .bytes = spec.disk
    };
    box->disk_op = (struct disk_op){ .done = disk_made };
    if (disk_make(pool->boxes, &want, &box->disk_op, &err) < 0)
        made(box, &err);
}

static void on_timer(struct timer *timer)
{
    struct pool *pool = container_of(timer, struct pool, timer);

    if (pool->boxes->stopping)
        return;
    bury(pool);
    if (pool->making && pool->making->state == SANDBOX_RUNNING &&
        clock_mono_ms() >= pool->warm_due_ms)
        pool_lost(pool->making, "it did not run its first command");
    if (pool->going && !pool->making && list_empty(&pool->dead)) {
        pool_free(pool);
        return;
    }
    if (!pool->going && !pool->making && pool->ready_count < pool->size)
        make_one(pool);
}

/* Its init has said what runs, nothing: one command, to have everything in memory. */
void pool_connected(struct box *box)
{
    static const char *const argv[] = { "true", NULL };

    if (box != box->pool->making || box->next_number > WARM_EXEC)
        return;
    if (exec_send_bare(box, WARM_EXEC, argv))
        box->next_number = WARM_EXEC + 1;
    else
        pool_lost(box, "it cannot be reached");
}

void pool_exited(struct box *box)
{
    struct pool *pool = box->pool;

    if (box != pool->making)
        return;
    pool->making = NULL;
    pool->retry_ms = 0;
    pool->error[0] = 0;
    list_append(&pool->ready, &box->pool_node);
    count_ready(pool, 1);
    retire_ready(pool, pool->going ? 0 : pool->size); /* it was made less meanwhile */
    soon(pool, REFILL_MS);
}

/* ---- taking ---- */

static bool fits(const struct pool *pool, const struct sandbox_spec *spec, const char *tenant)
{
    return !pool->going && strcmp(pool->user, spec->user) == 0 &&
           strcmp(pool->storage, spec->storage) == 0 &&
           strcmp(pool->image, spec->image ? spec->image : "") == 0 &&
           (!spec->image || strcmp(pool->tenant, tenant) == 0);
}

/* Where limits hold without cgroups, they too were settled at birth. */
static bool limits_fit(const struct box *box, const struct sandbox_spec *spec, uint32_t must)
{
    if (box->lost & must)
        return false;
    if (!(box->lost & (BOX_LOST_MEMORY | BOX_LOST_CPU | BOX_LOST_PIDS)))
        return true;
    return box->spec.memory == spec->memory && box->spec.pids == spec->pids &&
           box->spec.cpu_percent == spec->cpu_percent;
}

struct box *pool_take(struct boxes *boxes, const struct sandbox_spec *spec, const char *tenant,
                      uint32_t must)
{
    if (spec->nofile != SANDBOX_NOFILE || spec->sys || spec->nesting) /* settled at birth */
        return NULL;
    if (spec->warm && !*spec->warm)
        return NULL;
    list_each (pos, &boxes->pools) {
        struct pool *pool = list_entry(pos, struct pool, node);

        if (!fits(pool, spec, tenant) || !pool->size)
            continue;
        metric_add(&pool_takes, pool->ready_count ? 0 : 1, 1);
        if (!pool->ready_count) {
            pool->missed++;
            continue;
        }
        struct box *box = list_entry(pool->ready.next, struct box, pool_node);
        if (!limits_fit(box, spec, must))
            continue;
        list_remove(&box->pool_node);
        count_ready(pool, -1);
        pool->taken++;
        box->pool = NULL;
        box_count(box);
        soon(pool, REFILL_MS);
        return box;
    }
    return NULL;
}

/* ---- settings ---- */

/* What settles at birth is said by the template; the rest binds late and needs no pool. */
static int ask_template(struct boxes *boxes, const char *tenant, struct pool_wish *wish,
                        struct err *err)
{
    struct sandbox_spec spec = { .image = wish->image,
                                 .user = wish->user,
                                 .storage = wish->storage,
                                 .template = wish->template };
    autoarena struct arena arena = { 0 };

    if (template_apply(boxes, tenant, &spec, &arena, err) < 0)
        return -1;
    if (spec.from_snapshot || spec.nesting || spec.sys || spec.nofile ||
        (spec.warm && !*spec.warm) || (spec.tier && strcmp(spec.tier, "T3") != 0))
        return err_field(err, "template",
                         "what begins with a snapshot, or asks for nesting, sys, nofile, another "
                         "tier or none out of a pool, is made when it is wanted");
    wish->image = spec.image;
    wish->user = spec.user;
    wish->storage = spec.storage;
    return 0;
}

int pool_check(struct boxes *boxes, const char *tenant, const char *name, struct pool_wish *wish,
               struct err *err)
{
    unsigned count = 0;
    struct sandbox_spec spec = { 0 };

    if (strlen(name) > DISK_NAME_MAX || name_check(name, "sb", "name", err) < 0)
        return err_field(err, "name", "lower-case letters, digits and hyphens, at most %d",
                         DISK_NAME_MAX);
    if (wish->template && ask_template(boxes, tenant, wish, err) < 0)
        return -1;
    spec.image = wish->image;
    spec.user = wish->user;
    if (wish->size && image_apply(boxes, &spec, tenant, err) < 0) {
        err->code = ERR_UNPROCESSABLE;
        return -1;
    }
    wish->tenant = wish->image ? tenant : NULL;
    wish->user = spec.user ? spec.user : "agent";
    if (!wish->storage)
        wish->storage = disks_storage(boxes);
    if (wish->size && strcmp(wish->storage, "disk") == 0 && !disks_work(boxes))
        return disks_refuse(boxes, err);
    list_each (pos, &boxes->pools)
        count++;
    if (wish->size && !pool_find(boxes, name) && count >= POOLS_MAX)
        return err_set(err, ERR_RATE, "there are %d pools already; remove one", POOLS_MAX);
    return 0;
}

static struct pool *pool_new(struct boxes *boxes, const char *name, const struct pool_wish *wish)
{
    struct pool *pool = xnew(struct pool);

    pool->boxes = boxes;
    pool->name = xstrdup(name);
    pool->image = xstrdup(wish->image ? wish->image : "");
    pool->tenant = xstrdup(wish->image ? wish->tenant : "");
    pool->user = strcmp(wish->user, "root") == 0 ? "root" : "agent";
    pool->storage = strcmp(wish->storage, "disk") == 0 ? "disk" : "memory";
    pool->size = (unsigned)wish->size;
    pool->timer.fn = on_timer;
    list_init(&pool->ready);
    list_init(&pool->dead);
    list_append(&boxes->pools, &pool->node);
    return pool;
}

void pool_set(struct boxes *boxes, const char *name, const struct pool_wish *wish)
{
    struct pool *pool = pool_find(boxes, name);

    boxes->pool_default_set |= strcmp(name, POOL_DEFAULT_NAME) == 0;
    if (pool && (!wish->size || strcmp(pool->user, wish->user) != 0 ||
                 strcmp(pool->storage, wish->storage) != 0 ||
                 strcmp(pool->image, wish->image ? wish->image : "") != 0 ||
                 strcmp(pool->tenant, wish->image ? wish->tenant : "") != 0)) {
        pool->going = true; /* one of another kind takes its place */
        retire_ready(pool, 0);
        if (pool->making && !pool->making->busy)
            retire(pool->making);
        soon(pool, 0);
        pool = NULL;
    }
    if (!wish->size)
        return;
    if (!pool)
        pool = pool_new(boxes, name, wish);
    pool->size = (unsigned)wish->size;
    retire_ready(pool, pool->size);
    soon(pool, REFILL_MS);
}

int pool_row_set(struct db *db, const char *name, const struct pool_wish *wish, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "INSERT INTO pool (name, size, image, user_name, storage, changed_ms)"
                     " VALUES ($1, $2, $3, $4, $5, $6)"
                     " ON CONFLICT (name) DO UPDATE SET size = excluded.size,"
                     " image = excluded.image, user_name = excluded.user_name,"
                     " storage = excluded.storage, changed_ms = excluded.changed_ms");
    query_text(q, 1, name);
    query_i64(q, 2, wish->size);
    autobuf struct buf image = { 0 }; /* "" or TENANT, a space and its name */
    if (wish->image)
        buf_printf(&image, "%s %s", wish->tenant, wish->image);
    query_text(q, 3, buf_cstr(&image));
    query_text(q, 4, wish->user);
    query_text(q, 5, wish->storage);
    query_i64(q, 6, clock_wall_ms());
    if (query_run(q, err) < 0)
        return err_wrap(err, "store pool %s", name);
    /* Only of the default pool it means something that somebody wanted none. */
    autoquery struct query *clean =
        db_query(db, "DELETE FROM pool WHERE size = 0 AND name <> '" POOL_DEFAULT_NAME "'");
    return query_run(clean, err) < 0 ? -1 : 0;
}

int pools_load(struct boxes *boxes, struct db *db, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT name, size, image, user_name, storage FROM pool ORDER BY name");
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        autoarena struct arena arena = { 0 };
        const char *name = query_col_dup(q, 0, &arena);
        struct str image = str_of(query_col_dup(q, 2, &arena));
        struct str tenant = str_cut(&image, ' ');
        struct pool_wish wish = { .size = query_col_i64(q, 1),
                                  .image = image.n ? image.p : NULL,
                                  .tenant = arena_memdup0(&arena, tenant.p, tenant.n),
                                  .user = query_col_dup(q, 3, &arena),
                                  .storage = query_col_dup(q, 4, &arena) };

        boxes->pool_default_set |= strcmp(name, POOL_DEFAULT_NAME) == 0;
        if (wish.size > 0 && wish.size <= POOL_SIZE_MAX)
            (void)pool_new(boxes, name, &wish);
    }
    return rc;
}

/* Waits until the warden has said whether disks work: the default pool serves default requests. */
static void add_default(struct boxes *boxes)
{
    const struct pool_wish wish = { .size = boxes->pool_default,
                                    .user = "agent",
                                    .storage = disks_storage(boxes) };

    if (wish.size && !boxes->pool_default_set)
        (void)pool_new(boxes, POOL_DEFAULT_NAME, &wish);
}

void pools_start(struct boxes *boxes)
{
    boxes->pools_on = true;
    add_default(boxes);
    list_each (pos, &boxes->pools)
        soon(list_entry(pos, struct pool, node), REFILL_MS);
}

void pools_stop(struct boxes *boxes)
{
    list_each (pos, &boxes->pools) {
        struct pool *pool = list_entry(pos, struct pool, node);

        retire_ready(pool, 0);
        if (pool->making) /* whatever has been asked about it: this comes after */
            destroy(pool->making);
    }
}

void pools_free(struct boxes *boxes)
{
    while (!list_empty(&boxes->pools))
        pool_free(list_entry(boxes->pools.next, struct pool, node));
}
