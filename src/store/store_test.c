/*
 * store: jobs in order, each whole or not at all, many to a commit; events only of what was
 * committed, without gaps; readers that see one committed moment; limits; closing.
 */
#include "store/store.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "base/metric.h"
#include "store/engine.h"
#include "store/testing.h"

/* The value of a metric, by the beginning of its line. */
static int64_t metric_value(const char *line)
{
    autobuf struct buf text = { 0 };

    metric_text(&text);
    const char *at = strstr(buf_cstr(&text), line);
    CHECK(at != NULL);
    return at ? strtoll(at + strlen(line), NULL, 10) : -1;
}

static int64_t commits(void)
{
    return metric_value("\natoll_store_commits_total ");
}

/* ---- a writer that can be held, to fill the queue behind it ---- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static int wait_at_gate(struct db *db, void *ctx, struct err *err)
{
    (void)db, (void)ctx, (void)err;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return 0;
}

/* ---- the random model ---- */

enum { MODEL_KEYS = 40, MODEL_JOBS = 6000, MODEL_AHEAD = 300 };

struct model {
    int64_t values[MODEL_KEYS]; /* 0: no row */
    int64_t events;             /* numbers given out */
};

struct model_job {
    struct store_job job;
    unsigned number;
    uint32_t steps[4]; /* key*2 + (1: remove) */
    unsigned step_count;
    bool fails;
};

static struct model model;
static unsigned model_started, model_finished, model_failed;
static int64_t events_seen;
static unsigned jobs_run; /* writer thread */

static int model_run(struct store_job *job, struct db *db, struct err *err)
{
    struct model_job *mine = container_of(job, struct model_job, job);

    if (mine->number != jobs_run++)
        return err_set(err, ERR_INTERNAL, "job %u ran as number %u", mine->number, jobs_run - 1);
    for (unsigned i = 0; i < mine->step_count; i++) {
        bool remove = mine->steps[i] & 1;
        autoquery struct query *q =
            remove ? db_query(db, "DELETE FROM nonce WHERE key = $1")
                   : db_query(db, "INSERT INTO nonce (key, at_ms) VALUES ($1, $2)"
                                  " ON CONFLICT (key) DO UPDATE SET at_ms = excluded.at_ms");
        autofree char *key = xprintf("key%u", mine->steps[i] / 2);

        query_text(q, 1, key);
        if (!remove)
            query_i64(q, 2, mine->number + 1);
        if (query_run(q, err) < 0 || event_add(db, "default", "step", key, STR("{}"), err) < 0)
            return -1;
    }
    return mine->fails ? err_set(err, ERR_CONFLICT, "wanted") : 0;
}

/* The model runs when a job comes back, which must be in the order of handing in. */
static void model_done(struct store_job *job)
{
    struct model_job *mine = container_of(job, struct model_job, job);
    unsigned events = 0;

    CHECK_INT(mine->number, model_finished);
    model_finished++;
    for (const struct event *event = job->events; event; event = event->next)
        events++;
    if (mine->fails) {
        CHECK_INT(job->rc, -1);
        CHECK_INT(job->err.code, ERR_CONFLICT);
        CHECK_INT(events, 0);
        model_failed++;
    } else {
        CHECK_OK(job->rc, &job->err);
        CHECK_INT(events, mine->step_count);
        for (unsigned i = 0; i < mine->step_count; i++)
            model.values[mine->steps[i] / 2] = mine->steps[i] & 1 ? 0 : mine->number + 1;
        model.events += mine->step_count;
    }
    CHECK_INT(events_seen, model.events); /* on_event came before `done` */
    free(mine);
    loop_stop(test_loop);
}

static void model_event(void *ctx, const struct event *event)
{
    (void)ctx;
    CHECK_INT(event->seq, ++events_seen);
    CHECK_STR(event->type, "step");
}

static void model_start(void)
{
    struct model_job *mine = xnew(struct model_job);

    mine->job = (struct store_job){ .run = model_run, .done = model_done };
    mine->number = model_started++;
    mine->step_count = test_rand(ARRAY_LEN(mine->steps) + 1);
    for (unsigned i = 0; i < mine->step_count; i++)
        mine->steps[i] = test_rand(MODEL_KEYS) * 2 + (test_rand(3) == 0);
    mine->fails = test_rand(5) == 0;
    store_write(test_store, &mine->job);
}

static int compare(struct db *db, void *ctx, struct err *err)
{
    const struct model *want = ctx;

    for (int i = 0; i < MODEL_KEYS; i++) {
        autofree char *key = xprintf("key%d", i);
        autoquery struct query *q = db_query(db, "SELECT at_ms FROM nonce WHERE key = $1");

        query_text(q, 1, key);
        int rc = query_step(q, err);
        if (rc < 0)
            return -1;
        if ((rc ? query_col_i64(q, 0) : 0) != want->values[i])
            return err_set(err, ERR_INTERNAL, "%s differs", key);
    }
    if (test_number(db, "SELECT event_seq FROM tenant WHERE id = 'default'") != want->events ||
        test_number(db, "SELECT count(*) FROM event") != want->events ||
        test_number(db, "SELECT coalesce(max(seq), 0) FROM event") != want->events)
        return err_set(err, ERR_INTERNAL, "event numbers differ");
    return 0;
}

TEST(random_jobs_match_a_naive_model)
{
    autofree char *path = test_path("db");
    struct err err;

    test_open(path, model_event, NULL);
    while (model_finished < MODEL_JOBS) {
        uint32_t ahead = test_rand(8) == 0 ? test_rand(MODEL_AHEAD) : test_rand(10);

        while (model_started < MODEL_JOBS && model_started - model_finished <= ahead)
            model_start();
        unsigned before = model_finished;
        loop_run(test_loop);
        CHECK(model_finished > before);
        if (model_finished == model_started) /* nothing under way: the model is the truth */
            CHECK_OK(test_read(compare, &model, &err), &err);
    }
    CHECK(model_failed > MODEL_JOBS / 20);
    CHECK_OK(test_read(compare, &model, &err), &err);
    CHECK_INT(store_event_head(test_store, "default"), model.events);
    test_close();
    test_open(path, model_event, NULL);
    CHECK_OK(test_read(compare, &model, &err), &err);
    CHECK_INT(store_event_head(test_store, "default"), model.events);
    test_close();
}

/* ---- sharing commits ---- */

static int add_event(struct db *db, void *ctx, struct err *err)
{
    (void)ctx;
    return event_add(db, "default", "test", "", STR("{}"), err);
}

static void count_down(struct store_job *job)
{
    struct test_job *test = container_of(job, struct test_job, job);
    unsigned *left = test->ctx;

    CHECK_OK(job->rc, &job->err);
    if (--*left == 0)
        loop_stop(test_loop);
}

static int64_t commits_for(unsigned jobs)
{
    struct test_job *all = xcalloc(jobs, sizeof(*all));
    struct test_job first = test_job_of(wait_at_gate, NULL);
    unsigned left = jobs + 1;

    first.ctx = &left;
    first.job.done = count_down;
    pthread_mutex_lock(&gate);
    store_write(test_store, &first.job);
    for (unsigned i = 0; i < jobs; i++) {
        all[i] = test_job_of(add_event, &left);
        all[i].job.done = count_down;
        store_write(test_store, &all[i].job);
    }
    int64_t before = commits();
    pthread_mutex_unlock(&gate);
    loop_run(test_loop);
    free(all);
    return commits() - before;
}

TEST(jobs_that_wait_share_one_commit_up_to_the_limit)
{
    autofree char *path = test_path("db");

    test_open(path, NULL, NULL);
    CHECK_INT(commits_for(STORE_BATCH_MAX - 1), 1); /* with the one at the gate: a full batch */
    CHECK_INT(commits_for(STORE_BATCH_MAX), 2);
    CHECK_INT(commits_for(STORE_BATCH_MAX * 4 - 1), 4);
    CHECK_INT(commits_for(0), 1);
    test_close();
}

/* ---- the limit of the queue ---- */

static unsigned turned_away, came_back;

static void maybe_turned_away(struct store_job *job)
{
    struct test_job *test = container_of(job, struct test_job, job);
    unsigned *left = test->ctx;

    came_back++;
    if (job->rc < 0) {
        CHECK_INT(job->err.code, ERR_UNAVAILABLE);
        CHECK_INT(job->err.retry_after, 1);
        turned_away++;
    }
    if (--*left == 0)
        loop_stop(test_loop);
}

static void fill_queue(unsigned jobs, bool write)
{
    struct test_job *all = xcalloc(jobs, sizeof(*all));
    struct test_job first[2];
    unsigned left = jobs + (write ? 1 : 2);

    turned_away = came_back = 0;
    pthread_mutex_lock(&gate);
    for (int i = 0; i < (write ? 1 : 2); i++) { /* one for each thread that takes them */
        first[i] = test_job_of(wait_at_gate, &left);
        first[i].job.done = maybe_turned_away;
        if (write)
            store_write(test_store, &first[i].job);
        else
            store_read(test_store, &first[i].job);
    }
    usleep(50000); /* taken out of the queue, waiting at the gate */
    for (unsigned i = 0; i < jobs; i++) {
        all[i] = test_job_of(wait_at_gate, &left);
        all[i].job.done = maybe_turned_away;
        if (write)
            store_write(test_store, &all[i].job);
        else
            store_read(test_store, &all[i].job);
    }
    CHECK_INT(came_back, 0); /* never from inside store_write */
    pthread_mutex_unlock(&gate);
    loop_run(test_loop);
    free(all);
}

TEST(more_than_the_queue_holds_is_turned_away)
{
    autofree char *path = test_path("db");

    test_open(path, NULL, NULL);
    fill_queue(STORE_QUEUE_MAX, true);
    CHECK_INT(turned_away, 0);
    fill_queue(STORE_QUEUE_MAX + 1, true);
    CHECK_INT(turned_away, 1);
    fill_queue(STORE_QUEUE_MAX, false);
    CHECK_INT(turned_away, 0);
    fill_queue(STORE_QUEUE_MAX + 3, false);
    CHECK_INT(turned_away, 3);
    CHECK_INT(metric_value("\natoll_store_queue_jobs{kind=\"write\"} "), 0);
    CHECK_INT(metric_value("\natoll_store_queue_jobs{kind=\"read\"} "), 0);
    test_close();
}

/* ---- readers ---- */

static int insert_then_wait(struct db *db, void *ctx, struct err *err)
{
    if (event_add(db, "default", "test", "", STR("{}"), err) < 0)
        return -1;
    return wait_at_gate(db, ctx, err);
}

static int count_events(struct db *db, void *ctx, struct err *err)
{
    (void)err;
    *(int64_t *)ctx = test_number(db, "SELECT count(*) FROM event");
    return 0;
}

static sem_t counted, go_on;

/* Counts, lets somebody commit, and counts again: the same moment both times. */
static int count_twice(struct db *db, void *ctx, struct err *err)
{
    int64_t *out = ctx;

    (void)err;
    out[0] = test_number(db, "SELECT count(*) FROM event");
    sem_post(&counted);
    sem_wait(&go_on);
    out[1] = test_number(db, "SELECT count(*) FROM event");
    return 0;
}

TEST(readers_see_one_committed_moment)
{
    autofree char *path = test_path("db");
    int64_t counts[2] = { -1, -1 }, now = -1;
    struct err err;

    test_open(path, NULL, NULL);
    pthread_mutex_lock(&gate);
    struct test_job writer = test_job_of(insert_then_wait, NULL);
    writer.stop = false;
    store_write(test_store, &writer.job);
    usleep(50000); /* the row is there, not committed */
    CHECK_OK(test_read(count_events, &now, &err), &err);
    CHECK_INT(now, 0);
    pthread_mutex_unlock(&gate);
    CHECK_OK(test_write(add_event, NULL, &err), &err);
    CHECK_OK(test_read(count_events, &now, &err), &err);
    CHECK_INT(now, 2); /* what came back is there for whoever reads now */

    CHECK(sem_init(&counted, 0, 0) == 0 && sem_init(&go_on, 0, 0) == 0);
    struct test_job reader = test_job_of(count_twice, counts);
    store_read(test_store, &reader.job);
    sem_wait(&counted);
    CHECK_OK(test_write(add_event, NULL, &err), &err);
    sem_post(&go_on);
    loop_run(test_loop);
    CHECK_INT(counts[0], 2);
    CHECK_INT(counts[1], 2);
    test_close();
}

static int write_on_reader(struct db *db, void *ctx, struct err *err)
{
    (void)ctx;
    return event_add(db, "default", "test", "", STR("{}"), err);
}

TEST(a_reader_cannot_write)
{
    autofree char *path = test_path("db");
    struct err err = { 0 };
    int64_t count = -1;

    test_open(path, NULL, NULL);
    CHECK_INT(test_read(write_on_reader, NULL, &err), -1);
    CHECK_INT(err.code, ERR_INTERNAL);
    CHECK_OK(test_read(count_events, &count, &err), &err);
    CHECK_INT(count, 0);
    test_close();
}

/* ---- odd jobs ---- */

static int fail_silently(struct db *db, void *ctx, struct err *err)
{
    (void)db, (void)ctx, (void)err;
    return -1;
}

TEST(a_job_that_fails_without_a_word_has_an_error_all_the_same)
{
    autofree char *path = test_path("db");
    struct err err = { 0 };

    test_open(path, NULL, NULL);
    CHECK_INT(test_write(fail_silently, NULL, &err), -1);
    CHECK_INT(err.code, ERR_INTERNAL);
    test_close();
}

/* ---- a job is taken back alone ---- */

struct put {
    const char *name;
    const char *blob; /* NULL is bound as NULL */
    size_t len;
    bool fails, again; /* after it has written; with the same query once more */
};

static int put_secret(struct db *db, void *ctx, struct err *err)
{
    const struct put *put = ctx;
    autoquery struct query *q =
        db_query(db, "INSERT INTO secret (tenant, name, kind, version, by, created_ms, changed_ms,"
                     " sealed, hash) VALUES ('default', $1, 'value', $2, 'me', 1, 1, $3, $4)"
                     " ON CONFLICT (tenant, name) DO UPDATE SET version = secret.version + 1"
                     " RETURNING version");

    query_text(q, 1, put->name);
    query_i64(q, 2, 7);
    query_blob(q, 3, put->blob, put->len);
    query_str(q, 4, STR_NONE);
    for (int turn = 0; turn < (put->again ? 2 : 1); turn++)
        CHECK_OK(query_run(q, err), err);
    if (event_add(db, "default", "put", put->name, STR("{}"), err) < 0 ||
        audit_add(db, &(struct audit){ .tenant = "default", .action = put->name }, err) < 0)
        return -1;
    return put->fails ? err_set(err, ERR_CONFLICT, "wanted") : 0;
}

static int look_at_puts(struct db *db, void *ctx, struct err *err)
{
    struct audit_verdict verdict = { 0 };

    (void)ctx;
    CHECK_INT(test_number(db, "SELECT count(*) FROM secret"), 3);
    CHECK_INT(test_number(db, "SELECT version FROM secret WHERE name = 'a' AND hash IS NULL"), 8);
    CHECK_INT(test_number(db, "SELECT hex(sealed) = '00FF00' FROM secret WHERE name = 'a'"), 1);
    CHECK_INT(test_number(db, "SELECT sealed IS NULL FROM secret WHERE name = 'c'"), 1);
    CHECK_INT(test_number(db, "SELECT version FROM secret WHERE name = 'd'"), 7);
    CHECK_INT(test_number(db, "SELECT count(*) FROM event"), 3);
    CHECK_INT(test_number(db, "SELECT event_seq FROM tenant WHERE id = 'default'"), 3);
    CHECK_OK(audit_verify(db, &verdict, err), err);
    CHECK(verdict.rows == 3 && verdict.bad_seq == 0);
    return 0;
}

/* Those before it are done again as they were, those after it come in the next batch. */
TEST(a_job_that_fails_late_takes_nothing_with_it)
{
    autofree char *path = test_path("db");
    struct put puts[] = { { "a", "\0\377\0", 3, false, true },
                          { "c", NULL, 0, false, false },
                          { "b", "x", 1, true, false },
                          { "d", "y", 1, false, false } };
    struct test_job jobs[ARRAY_LEN(puts)], first = test_job_of(wait_at_gate, NULL);
    struct err err;

    test_open(path, NULL, NULL);
    int64_t before = commits();
    pthread_mutex_lock(&gate);
    first.job.done = NULL;
    store_write(test_store, &first.job);
    for (unsigned i = 0; i < ARRAY_LEN(puts); i++) {
        jobs[i] = test_job_of(put_secret, &puts[i]);
        jobs[i].stop = i == ARRAY_LEN(puts) - 1;
        store_write(test_store, &jobs[i].job);
    }
    pthread_mutex_unlock(&gate);
    loop_run(test_loop);
    for (unsigned i = 0; i < ARRAY_LEN(puts); i++)
        CHECK_INT(jobs[i].job.rc, puts[i].fails ? -1 : 0);
    CHECK_INT(commits() - before, 2);
    CHECK_OK(test_read(look_at_puts, NULL, &err), &err);
    test_close();
}

/* How many commits three jobs of so many bytes each need. */
static int64_t commits_of(size_t len)
{
    autofree char *path = test_path("redo");
    autofree char *blob = xcalloc(1, len);
    struct put puts[3];
    struct test_job jobs[ARRAY_LEN(puts)], first = test_job_of(wait_at_gate, NULL);

    (void)unlink(path);
    test_open(path, NULL, NULL);
    int64_t before = commits();
    pthread_mutex_lock(&gate);
    first.job.done = NULL;
    store_write(test_store, &first.job);
    for (unsigned i = 0; i < ARRAY_LEN(puts); i++) {
        puts[i] = (struct put){ .name = "same", .blob = blob, .len = len };
        jobs[i] = test_job_of(put_secret, &puts[i]);
        jobs[i].stop = i == ARRAY_LEN(puts) - 1;
        store_write(test_store, &jobs[i].job);
    }
    pthread_mutex_unlock(&gate);
    loop_run(test_loop);
    int64_t made = commits() - before;
    test_close();
    return made;
}

TEST(what_a_batch_keeps_to_do_it_again_is_limited)
{
    CHECK_INT(commits_of(STORE_REDO_MAX / 8), 1);
    CHECK_INT(commits_of(STORE_REDO_MAX), 3); /* one fills it */
}

/* A job that makes it impossible to write what all of them told of. */
static int move_the_head(struct db *db, void *ctx, struct err *err)
{
    (void)ctx;
    return db->engine->script(db, "UPDATE tenant SET event_seq = event_seq + 1", err);
}

static int look_for_puts(struct db *db, void *ctx, struct err *err)
{
    (void)err;
    CHECK_INT(test_number(db, "SELECT count(*) FROM secret"), *(int *)ctx);
    CHECK_INT(test_number(db, "SELECT count(*) FROM event"), *(int *)ctx);
    CHECK_INT(test_number(db, "SELECT count(*) FROM audit"), *(int *)ctx);
    CHECK_INT(test_number(db, "SELECT event_seq FROM tenant WHERE id = 'default'"), *(int *)ctx);
    return 0;
}

TEST(events_that_cannot_be_written_fail_their_batch_and_leave_nothing)
{
    autofree char *path = test_path("db");
    struct put puts[] = { { .name = "a" }, { .name = "b" }, { .name = "c" } };
    struct test_job jobs[ARRAY_LEN(puts)], first = test_job_of(wait_at_gate, NULL);
    struct err err;

    test_open(path, NULL, NULL);
    pthread_mutex_lock(&gate);
    first.job.done = NULL;
    store_write(test_store, &first.job);
    for (unsigned i = 0; i < ARRAY_LEN(puts); i++) {
        jobs[i] = test_job_of(i == 1 ? move_the_head : put_secret, &puts[i]);
        jobs[i].stop = i == ARRAY_LEN(puts) - 1;
        store_write(test_store, &jobs[i].job);
    }
    pthread_mutex_unlock(&gate);
    loop_run(test_loop);
    for (unsigned i = 0; i < ARRAY_LEN(puts); i++) {
        CHECK_INT(jobs[i].job.rc, -1);
        CHECK_INT(jobs[i].job.err.code, ERR_INTERNAL);
        CHECK(strstr(jobs[i].job.err.msg, "events: the newest event's number has moved"));
        CHECK(jobs[i].job.events == NULL); /* nobody hears of them */
    }
    CHECK_OK(test_read(look_for_puts, &(int){ 0 }, &err), &err);
    CHECK_OK(test_write(put_secret, &puts[2], &err), &err); /* and the next one is the first */
    CHECK_OK(test_read(look_for_puts, &(int){ 1 }, &err), &err);
    test_close();
}

/* Rolls the transaction back under its neighbours, as a full disk can, and hides it. */
static int lose_transaction(struct db *db, void *ctx, struct err *err)
{
    (void)ctx, (void)err;
    if (db->engine->script(db, "ROLLBACK", err) < 0)
        return -1;
    struct err hidden = { 0 };
    CHECK_INT(event_add(db, "default", "outside", "", STR("{}"), &hidden), -1);
    CHECK(strstr(hidden.msg, "given up") != NULL);
    return 0;
}

TEST(a_lost_transaction_fails_all_that_were_in_it_and_nobody_after)
{
    autofree char *path = test_path("db");
    struct test_job jobs[8], first = test_job_of(wait_at_gate, NULL);
    int64_t count = -1;
    struct err err;

    test_open(path, NULL, NULL);
    pthread_mutex_lock(&gate);
    first.job.done = NULL;
    store_write(test_store, &first.job);
    for (unsigned i = 0; i < ARRAY_LEN(jobs); i++) {
        jobs[i] = test_job_of(i == 3 ? lose_transaction : add_event, NULL);
        jobs[i].job.done = NULL;
        store_write(test_store, &jobs[i].job);
    }
    pthread_mutex_unlock(&gate);
    CHECK_OK(test_write(add_event, NULL, &err), &err);
    CHECK_INT(first.job.rc, -1);
    for (unsigned i = 0; i < ARRAY_LEN(jobs); i++) {
        CHECK_INT(jobs[i].job.rc, i <= 3 ? -1 : 0);
        CHECK(i > 3 || strstr(jobs[i].job.err.msg, "given up"));
    }
    CHECK_OK(test_read(count_events, &count, &err), &err);
    CHECK_INT(count, 5);
    CHECK_INT(store_event_head(test_store, "default"), 5); /* without gaps */
    test_close();
}

static unsigned again_left;

static void hand_in_again(struct store_job *job)
{
    CHECK_OK(job->rc, &job->err);
    if (--again_left == 0) {
        loop_stop(test_loop);
        return;
    }
    *job = (struct store_job){ .run = test_job_run, .done = hand_in_again };
    store_write(test_store, job);
}

TEST(a_job_may_be_handed_in_again_by_its_own_done)
{
    autofree char *path = test_path("db");
    struct test_job test = test_job_of(add_event, NULL);

    test_open(path, NULL, NULL);
    again_left = 50;
    test.job.done = hand_in_again;
    store_write(test_store, &test.job);
    loop_run(test_loop);
    CHECK_INT(again_left, 0);
    CHECK_INT(store_event_head(test_store, "default"), 50);
    test_close();
}

/* ---- closing ---- */

static unsigned closed_done, closed_failed;

static void late_done(struct store_job *job)
{
    closed_done++;
    closed_failed += job->rc < 0;
}

/* A read whose end leads to a write, as a backup's audit row does. */
static void read_then_write(struct store_job *job)
{
    CHECK_OK(job->rc, &job->err);
    struct test_job *test = container_of(job, struct test_job, job);
    *test = test_job_of(add_event, NULL);
    test->job.done = late_done;
    store_write(test_store, &test->job);
}

static void write_then_write(struct store_job *job)
{
    CHECK_OK(job->rc, &job->err);
    job->done = late_done;
    store_write(test_store, job);
}

TEST(closing_finishes_what_was_handed_in)
{
    enum { JOBS = 1000 };
    autofree char *path = test_path("db");
    struct test_job *jobs = xcalloc(JOBS + 2, sizeof(*jobs));
    struct db *db;
    struct err err;
    int64_t count = -1;

    test_open(path, NULL, NULL);
    closed_done = closed_failed = 0;
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = test_job_of(add_event, NULL);
        jobs[i].job.done = late_done;
        store_write(test_store, &jobs[i].job);
    }
    jobs[JOBS] = test_job_of(count_events, &count);
    jobs[JOBS].job.done = read_then_write;
    store_read(test_store, &jobs[JOBS].job);
    jobs[JOBS + 1] = test_job_of(add_event, NULL);
    jobs[JOBS + 1].job.done = write_then_write; /* too late, and told so */
    store_write(test_store, &jobs[JOBS + 1].job);
    store_close(test_store);
    test_store = NULL;
    CHECK_INT(closed_done, JOBS + 2);
    CHECK_INT(closed_failed, 1);
    loop_free(test_loop);
    test_loop = NULL;
    free(jobs);
    CHECK_OK(store_open_alone(&db, path, false, &err), &err);
    CHECK_INT(test_number(db, "SELECT count(*) FROM event"), JOBS + 2);
    store_close_alone(db);
    autofree char *log = xprintf("%s-wal", path);
    CHECK(access(log, F_OK) < 0); /* settled into the file */
}

/* ---- jobs that can wait ---- */

static void note_done(struct store_job *job)
{
    struct test_job *test = container_of(job, struct test_job, job);

    *(int *)test->ctx += 1;
}

TEST(a_lazy_job_shares_the_commit_of_the_next_one)
{
    autofree char *path = test_path("db");
    struct test_job lazy = test_job_of(add_event, &(int){ 0 });
    int64_t before, rows;
    struct err err;

    test_open(path, NULL, NULL);
    lazy.job.done = note_done;
    lazy.job.lazy_ms = 60000;
    before = metric_value("\natoll_store_commits_total ");
    store_write(test_store, &lazy.job);
    CHECK_OK(test_read(count_events, &rows, &err), &err);
    CHECK(*(int *)lazy.ctx == 0 && rows == 0);
    CHECK_OK(test_write(add_event, NULL, &err), &err); /* and is waited for */
    CHECK_INT(*(int *)lazy.ctx, 1);
    CHECK_INT(metric_value("\natoll_store_commits_total ") - before, 1);
    /* Alone it waits as long as it said. */
    lazy.job.lazy_ms = 20;
    lazy.job.done = test_job_done;
    store_write(test_store, &lazy.job);
    loop_run(test_loop);
    CHECK_INT(lazy.job.rc, 0);
    CHECK_INT(metric_value("\natoll_store_commits_total ") - before, 2);
    /* And when the store closes it is committed. */
    lazy.job.lazy_ms = 60000;
    store_write(test_store, &lazy.job);
    test_close();
    CHECK_INT(lazy.job.rc, 0);
}

/* ---- the log ---- */

static int add_big_event(struct db *db, void *ctx, struct err *err)
{
    return event_add(db, "default", "big", "", *(struct str *)ctx, err);
}

TEST(the_log_does_not_grow_without_end)
{
    autofree char *path = test_path("db");
    static char body[60000];
    struct str text = { body, sizeof(body) };
    struct err err;

    memset(body, ' ', sizeof(body));
    test_open(path, NULL, NULL);
    int64_t before = metric_value("\natoll_store_checkpoints_total ");
    for (int i = 0; i < 3000; i++) /* 180 MB */
        CHECK_OK(test_write(add_big_event, &text, &err), &err);
    autofree char *log = xprintf("%s-wal", path);
    FILE *file = fopen(log, "re");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    CHECK(ftell(file) < (STORE_LOG_FRAMES + 200) * 4200l);
    fclose(file);
    CHECK(metric_value("\natoll_store_checkpoints_total ") - before >= 4);
    test_close();
}

static int64_t log_size(const char *path)
{
    autofree char *log = xprintf("%s-wal", path);
    struct stat st;

    return stat(log, &st) == 0 ? (int64_t)st.st_size : -1;
}

struct look {
    struct timer timer;
    const char *path;
};

static void look_again(struct timer *timer)
{
    struct look *look = container_of(timer, struct look, timer);

    if (log_size(look->path) >= STORE_LOG_ROOM)
        loop_stop(test_loop);
    else
        timer_set(test_loop, timer, 10);
}

TEST(an_idle_writer_makes_room_that_commits_then_overwrite)
{
    autofree char *path = test_path("db");
    struct look look = { .timer = { .fn = look_again }, .path = path };
    struct str text = STR("{}");
    struct err err;

    test_open(path, NULL, NULL);
    CHECK_OK(test_write(add_big_event, &text, &err), &err);
    CHECK(log_size(path) < STORE_LOG_ROOM);
    timer_set(test_loop, &look.timer, 0);
    loop_run(test_loop);
    int64_t size = log_size(path);
    for (int i = 0; i < 50; i++)
        CHECK_OK(test_write(add_big_event, &text, &err), &err);
    CHECK_INT(log_size(path), size);
    test_close();
}
