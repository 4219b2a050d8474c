/*
 * One writer, a few readers, and the way back to the loop.
 *
 *   loop thread            writer                           loop thread
 *   store_write -> queue -> BEGIN                            bell (eventfd)
 *                           job->run, job->run, …             on_event, job->done …
 *                           COMMIT (one fsync for all)
 *                           done list ---------------------->
 *
 * The writer takes what is there, and what came meanwhile, until the queue is empty or the batch
 * is full; then it commits. While it waits for the disk the next batch gathers, so batches grow
 * with the load and a lone job waits for nothing but its own fsync. Jobs that are lazy are run at
 * once, and the commit waits a little for one that is not.
 *
 * A job that fails is taken back alone. Mostly it has changed nothing yet; if it has, the whole
 * transaction is rolled back, what the jobs before it changed is changed again (db_redo), and the
 * batch ends there, so that no job is done again twice. Some errors (a full disk) make SQLite give
 * up the whole transaction; then everything in the batch so far is lost and comes back failed. A
 * database that turns out damaged is not written to any more.
 *
 * The log is settled into the database file when nothing else is to be done, or when it has grown
 * long. One eventfd wakes the loop, at most once per delivery; unlike loop_post it can be taken
 * back when the store closes.
 */
#include "store/store.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/map.h"
#include "base/metric.h"
#include "store/checker.h"
#include "store/open.h"
#include "store/queue.h"

METRIC_COUNTER(jobs_total, "atoll_store_jobs_total", "Jobs that came back from the store", "kind",
               "write", "read", "failed", "turned_away");
enum { JOBS_WRITE, JOBS_READ, JOBS_FAILED, JOBS_AWAY };
METRIC_COUNTER(commits_total, "atoll_store_commits_total",
               "Transactions committed; write jobs divided by this is the size of a batch");
METRIC_HISTOGRAM(commit_seconds, "atoll_store_commit_seconds", "Time to put a batch on disk", .0001,
                 .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5);
METRIC_GAUGE(queue_jobs, "atoll_store_queue_jobs", "Jobs that wait for a thread", "kind", "write",
             "read");
METRIC_GAUGE(batch_jobs, "atoll_store_batch_jobs", "Jobs of the newest batch");
METRIC_COUNTER(settles_total, "atoll_store_checkpoints_total",
               "Times the log was moved into the database file");

struct worker {
    struct store *store;
    struct db *db; /* owned; used by the thread alone while it runs */
    pthread_t thread;
    bool started;
};

struct store {
    struct loop *loop;
    struct store_options options;
    struct map heads; /* tenant to struct head: newest number that reached the loop */

    struct queue writes, reads;
    struct worker writer;
    struct worker *readers; /* owned */
    unsigned reader_count;
    struct checker checker;
    _Atomic enum store_state state;

    pthread_mutex_t done_lock;
    struct jobs done; /* back to the loop */
    struct watch bell;
};

struct head {
    int64_t seq;
};

/* ---- the way back ---- */

static void deliver(struct store *store, struct jobs *jobs)
{
    const uint64_t one = 1;

    if (!jobs->first)
        return;
    pthread_mutex_lock(&store->done_lock);
    bool rung = store->done.first != NULL;
    jobs_join(&store->done, jobs);
    pthread_mutex_unlock(&store->done_lock);
    if (!rung && write(store->bell.fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        abort();
}

static void note_head(struct store *store, const char *tenant, int64_t seq)
{
    struct head *head = map_get(&store->heads, str_of(tenant));

    if (!head) {
        head = xnew(struct head);
        map_put(&store->heads, str_of(tenant), head);
    }
    head->seq = seq;
}

int64_t store_event_head(const struct store *store, const char *tenant)
{
    const struct head *head = map_get(&store->heads, str_of(tenant));

    return head ? head->seq : 0;
}

enum store_state store_state(const struct store *store)
{
    return atomic_load(&store->state);
}

/* `done` may free the job or hand it in again: nothing of it is touched afterwards. */
static void finish(struct store *store, struct store_job *job)
{
    struct event *events = job->events;

    if (job->rc >= 0 && job->committed)
        job->committed(job);
    for (const struct event *event = events; event; event = event->next) {
        if (store->options.on_event)
            store->options.on_event(store->options.ctx, event);
        note_head(store, event->tenant, event->seq);
    }
    if (job->done)
        job->done(job);
    event_list_free(events);
}

static bool finish_all(struct store *store)
{
    struct store_job *job;
    struct jobs jobs;

    jobs_init(&jobs);
    pthread_mutex_lock(&store->done_lock);
    jobs_join(&jobs, &store->done);
    pthread_mutex_unlock(&store->done_lock);
    bool any = jobs.first != NULL;
    while ((job = jobs_pop(&jobs)))
        finish(store, job);
    return any;
}

static void on_bell(struct watch *watch, uint32_t events)
{
    struct store *store = container_of(watch, struct store, bell);
    uint64_t count;

    (void)events;
    if (read(watch->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        abort();
    finish_all(store);
}

/* ---- handing in ---- */

static void turn_away(struct store *store, struct store_job *job, const struct queue *queue)
{
    struct jobs jobs;

    job->rc = err_set(&job->err, ERR_UNAVAILABLE,
                      queue->closed ? "the store is closing" : "too many calls are waiting");
    job->err.retry_after = 1;
    metric_add(&jobs_total, JOBS_AWAY, 1);
    jobs_init(&jobs);
    jobs_append(&jobs, job);
    deliver(store, &jobs);
}

static void hand_in(struct store *store, struct queue *queue, struct store_job *job, unsigned kind)
{
    job->rc = 0;
    job->err = (struct err){ 0 };
    job->events = NULL;
    job->events_end = &job->events;
    metric_add(&queue_jobs, kind, 1);
    if (!queue_push(queue, job)) {
        metric_add(&queue_jobs, kind, -1);
        turn_away(store, job, queue);
    }
}

void store_write(struct store *store, struct store_job *job)
{
    hand_in(store, &store->writes, job, JOBS_WRITE);
}

void store_read(struct store *store, struct store_job *job)
{
    hand_in(store, &store->reads, job, JOBS_READ);
}

/* ---- the writer ---- */

static void drop_events(struct store_job *job)
{
    event_list_free(job->events);
    job->events = NULL;
    job->events_end = &job->events;
}

static void fail_job(struct store_job *job, const struct err *err)
{
    drop_events(job);
    job->rc = -1;
    job->err = *err;
}

/* Those that had succeeded did so in a transaction that is no more. */
static void fail_batch(struct jobs *batch, const struct err *err)
{
    for (struct store_job *job = batch->first; job; job = job->next)
        if (job->rc >= 0)
            fail_job(job, err);
}

/* False when the whole transaction is gone: *err is why. */
static bool run_job(struct db *db, struct store_job *job, struct err *err)
{
    struct redo_step **mark = db->redo.end;
    struct audit_head audit_head = db->audit_head;
    struct audit_row **audits_end = db->audits_end;

    db->job = job;
    db->last_seq = 0;
    job->rc = job->run(job, db, &job->err);
    db->job = NULL;
    assert(db->busy == 0); /* a query without query_done would hold the transaction */
    if (job->rc >= 0 && !db_in_transaction(db)) /* it did not notice */
        job->rc = err_set(&job->err, ERR_INTERNAL, "the transaction was given up");
    if (job->rc >= 0)
        return true;
    if (job->err.code == ERR_NONE)
        (void)err_set(&job->err, ERR_INTERNAL, "a job failed without saying why");
    event_heads_back(db, job->events);
    db->audit_head = audit_head;
    db->audits_end = audits_end;
    *audits_end = NULL;
    drop_events(job);
    *err = job->err;
    if (!db_in_transaction(db))
        return false;
    return db->redo.end == mark || db_redo(db, mark, err) == 0;
}

/* Found by the writer itself, or by who reads the whole file meanwhile. */
static bool is_damaged(struct store *store)
{
    if (store->writer.db->damaged)
        atomic_store(&store->state, STORE_DAMAGED);
    return atomic_load(&store->state) == STORE_DAMAGED;
}

/* What these jobs told of; from here on it is all or nothing. */
static int write_told(struct db *db, const struct store_job *first, struct err *err)
{
    db->redo.on = false;
    return events_write(db, first, err) < 0 || audits_write(db, err) < 0 ? -1 : 0;
}

static int commit(struct db *db, struct err *err)
{
    int64_t began_us = clock_mono_us();

    if (db->damaged)
        return err_set(err, ERR_INTERNAL, "the store's file is damaged; nothing was written");
    if (db_commit(db, err) < 0)
        return err_wrap(err, "commit");
    metric_observe_us(&commit_seconds, clock_mono_us() - began_us);
    metric_add(&commits_total, 0, 1);
    return 0;
}

/* May one more job share the transaction? */
static bool has_room(const struct store *store, const struct jobs *batch)
{
    const struct redo *redo = &store->writer.db->redo;

    return batch->count < STORE_BATCH_MAX && !redo->again && redo->arena.total < STORE_REDO_MAX;
}

/*
 * What has come meanwhile. When there is nothing, whoever shares the processor with us may be about
 * to hand something in: one turn for them costs less than a commit.
 */
static bool take_more(struct store *store, struct jobs *taken, const struct jobs *batch)
{
    unsigned most = STORE_BATCH_MAX - batch->count;

    if (queue_take(&store->writes, taken, most, 0) == QUEUE_JOBS)
        return true;
    sched_yield();
    return queue_take(&store->writes, taken, most, 0) == QUEUE_JOBS;
}

/*
 * Runs jobs of `taken`, and what else has come, in the open transaction. False when it broke; the
 * error is then that of the job that broke it.
 */
static bool run_jobs(struct store *store, struct jobs *taken, struct jobs *batch, struct err *err)
{
    struct store_job *job;

    do {
        while (has_room(store, batch) && (job = jobs_pop(taken))) {
            jobs_append(batch, job);
            if (!run_job(store->writer.db, job, err))
                return false;
        }
    } while (has_room(store, batch) && take_more(store, taken, batch));
    return true;
}

/* How long its commit may wait. */
static int patience(const struct store *store, const struct jobs *batch, int64_t began_ms)
{
    int64_t least = INT_MAX;

    for (const struct store_job *job = batch->first; job; job = job->next)
        least = MIN(least, (int64_t)job->lazy_ms);
    if (least == 0 || !has_room(store, batch))
        return 0;
    return (int)MAX(began_ms + least - clock_mono_ms(), (int64_t)0);
}

static void count_jobs(const struct jobs *batch)
{
    int64_t failed = 0;

    for (const struct store_job *job = batch->first; job; job = job->next)
        failed += job->rc < 0;
    metric_add(&jobs_total, JOBS_WRITE, batch->count);
    metric_add(&jobs_total, JOBS_FAILED, failed);
    metric_add(&queue_jobs, JOBS_WRITE, -(int64_t)batch->count);
    metric_set(&batch_jobs, 0, batch->count);
}

/* One transaction: from jobs in `taken` to the loop. May leave some when the transaction broke. */
static void run_batch(struct store *store, struct jobs *taken)
{
    struct db *db = store->writer.db;
    struct jobs batch;
    struct err err = { 0 };
    int64_t began_ms = clock_mono_ms();
    int wait_ms;

    jobs_init(&batch);
    bool damaged = is_damaged(store), good = !damaged && db_begin(db, &err) == 0;
    if (damaged)
        (void)err_set(&err, ERR_UNAVAILABLE, "the store's file is damaged; restore a backup");
    if (good) {
        db_redo_begin(db);
        good = run_jobs(store, taken, &batch, &err);
        while (good && (wait_ms = patience(store, &batch, began_ms)) > 0 &&
               queue_take(&store->writes, taken, STORE_BATCH_MAX - batch.count, wait_ms) ==
                   QUEUE_JOBS)
            good = run_jobs(store, taken, &batch, &err);
        good = good && write_told(db, batch.first, &err) == 0;
#ifdef ATOLL_LAZY_COMMIT /* a build that lies, to prove that the crash checker catches it */
        count_jobs(&batch);
        deliver(store, &batch);
        usleep(5000); /* check-style: allow banned: so that a kill falls into the gap */
#endif
        good = good && commit(db, &err) == 0;
        db_redo_end(db);
    } else {
        jobs_join(&batch, taken);
    }
    if (!good) {
        db_rollback(db);
        heads_forget(db);
        fail_batch(&batch, &err);
    }
    (void)is_damaged(store); /* told at once, not with the next batch */
    count_jobs(&batch);
    deliver(store, &batch);
}

static void settle(struct db *db)
{
    struct err err;

    metric_add(&settles_total, 0, 1);
    if (db->engine->settle(db, false, &err) < 0) /* the log simply stays longer */
        log_debug("checkpoint put off", kv_str("why", err.msg));
}

/* Nothing else is to be done: what will have to be done is done now. */
static void prepare(struct db *db)
{
    struct err err;

    if (db->engine->make_room(db, &err) < 0) /* then commits make it, one by one */
        log_debug("no room for the log yet", kv_str("why", err.msg));
}

static void *writer_main(void *arg)
{
    struct worker *worker = arg;
    struct store *store = worker->store;
    struct db *db = worker->db;
    struct jobs taken;

    pthread_setname_np(pthread_self(), "store-writer");
    jobs_init(&taken);
    for (;;) {
        int backlog = db->engine->backlog(db);
        enum queue_got got =
            queue_take(&store->writes, &taken, STORE_BATCH_MAX, backlog ? STORE_LOG_IDLE_MS : -1);

        if (got == QUEUE_END)
            return NULL;
        while (taken.first)
            run_batch(store, &taken);
        if (got == QUEUE_IDLE || db->engine->backlog(db) >= STORE_LOG_FRAMES)
            settle(db);
        if (got == QUEUE_IDLE)
            prepare(db);
    }
}

/* ---- readers ---- */

static int run_read(struct db *db, struct store_job *job)
{
    if (db_begin_read(db, &job->err) < 0)
        return -1;
    int rc = job->run(job, db, &job->err);
    assert(db->busy == 0);
    db_rollback(db);
    return rc;
}

static void *reader_main(void *arg)
{
    struct worker *worker = arg;
    struct store *store = worker->store;
    struct jobs taken;

    pthread_setname_np(pthread_self(), "store-reader");
    jobs_init(&taken);
    while (queue_take(&store->reads, &taken, 1, -1) != QUEUE_END) {
        struct store_job *job = taken.first;

        job->rc = run_read(worker->db, job);
        metric_add(&jobs_total, JOBS_READ, 1);
        metric_add(&jobs_total, JOBS_FAILED, job->rc < 0);
        metric_add(&queue_jobs, JOBS_READ, -1);
        deliver(store, &taken);
    }
    return NULL;
}

/* ---- opening and closing ---- */

static int start(struct worker *worker, void *(*fn)(void *), struct err *err)
{
    sigset_t all, before;

    sigfillset(&all); /* signals are the loop thread's business */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    errno = pthread_create(&worker->thread, NULL, fn, worker);
    int rc = errno ? err_sys(err, "start a thread of the store") : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc < 0)
        return -1;
    worker->started = true;
    return 0;
}

static int load_heads(struct store *store, struct err *err)
{
    int rc;
    autoquery struct query *q = db_query(store->writer.db, "SELECT id, event_seq FROM tenant");

    while ((rc = query_step(q, err)) > 0)
        note_head(store, query_col_str(q, 0).p, query_col_i64(q, 1));
    return rc;
}

static int open_all(struct store *store, const char *path, struct err *err)
{
    store->writer.store = store;
    if (store_open_writer(&store->writer.db, path, err) < 0 || load_heads(store, err) < 0)
        return -1;
    for (unsigned i = 0; i < store->reader_count; i++) {
        store->readers[i].store = store;
        if (store_open_reader(&store->readers[i].db, path, err) < 0)
            return -1;
    }
    if (store->writer.db->unread && checker_start(&store->checker, path, &store->state, err) < 0)
        return -1;
    store->bell.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (store->bell.fd < 0)
        return err_sys(err, "make the store's bell");
    if (loop_watch(store->loop, &store->bell, err) < 0)
        return -1;
    if (start(&store->writer, writer_main, err) < 0)
        return -1;
    for (unsigned i = 0; i < store->reader_count; i++)
        if (start(&store->readers[i], reader_main, err) < 0)
            return -1;
    return 0;
}

int store_open(struct store **out, struct loop *loop, const struct store_options *options,
               struct err *err)
{
    struct store *store = xnew(struct store);

    store->loop = loop;
    store->options = *options;
    if (options->throw_away)
        sqlite_throw_away();
    store->options.path = NULL; /* the caller's */
    store->reader_count = options->readers ? options->readers : 2;
    store->readers = xcalloc(store->reader_count, sizeof(struct worker));
    queue_init(&store->writes);
    queue_init(&store->reads);
    jobs_init(&store->done);
    pthread_mutex_init(&store->done_lock, NULL);
    store->bell = (struct watch){ .fd = -1, .events = EPOLLIN, .fn = on_bell };
    if (open_all(store, options->path, err) < 0) {
        store_close(store);
        return -1;
    }
    *out = store;
    return 0;
}

static void join(struct worker *worker)
{
    if (worker->started)
        pthread_join(worker->thread, NULL);
    worker->started = false;
}

static void free_heads(struct store *store)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&store->heads, &at)))
        free(slot->value);
    map_free(&store->heads);
}

/* Readers end first: what they finish may still lead to a write. */
void store_close(struct store *store)
{
    if (!store)
        return;
    checker_stop(&store->checker);
    queue_close(&store->reads);
    for (unsigned i = 0; i < store->reader_count; i++) {
        join(&store->readers[i]);
        db_close(store->readers[i].db);
    }
    finish_all(store);
    queue_close(&store->writes);
    join(&store->writer);
    while (finish_all(store))
        ;
    store_close_alone(store->writer.db);
    if (store->bell.fd >= 0) {
        loop_unwatch(store->loop, &store->bell);
        close(store->bell.fd);
    }
    queue_free(&store->writes);
    queue_free(&store->reads);
    pthread_mutex_destroy(&store->done_lock);
    free_heads(store);
    free(store->readers);
    free(store);
}

/* ---- without threads ---- */

int store_run_alone(struct db *db, struct store_job *job)
{
    struct err err;

    job->events = NULL;
    job->events_end = &job->events;
    job->next = NULL;
    job->err = (struct err){ 0 };
    job->rc = db_begin(db, &job->err);
    db_redo_begin(db);
    if (job->rc == 0 && run_job(db, job, &err) && job->rc >= 0 &&
        (write_told(db, job, &job->err) < 0 || commit(db, &job->err) < 0))
        job->rc = -1;
    db_rollback(db);
    db_redo_end(db);
    heads_forget(db);
    drop_events(job);
    return job->rc;
}
