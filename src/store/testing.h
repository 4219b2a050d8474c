/*
 * testing - what the tests of store/ and bus/ share: a loop with a store on it, and running a
 * function as a job and waiting for it. Only for x_test.c files.
 */
#pragma once

#include <stdio.h>

#include "base/mem.h"
#include "base/test.h"
#include "loop/loop.h"
#include "store/store.h"

#define UNUSED_OK __attribute__((unused))

static struct loop *test_loop;
static struct store *test_store;

UNUSED_OK static char *test_path(const char *name)
{
    return xprintf("%s/%s", test_dir(), name);
}

UNUSED_OK static void test_open(const char *path, void (*on_event)(void *, const struct event *),
                                void *ctx)
{
    struct store_options options = { .path = path, .on_event = on_event, .ctx = ctx };
    struct err err;

    if (!test_loop)
        CHECK_OK(loop_new(&test_loop, &err), &err);
    CHECK_OK(store_open(&test_store, test_loop, &options, &err), &err);
}

UNUSED_OK static void test_close(void)
{
    store_close(test_store);
    test_store = NULL;
    loop_free(test_loop);
    test_loop = NULL;
}

/* A job around a function, waited for. */
struct test_job {
    struct store_job job;
    int (*fn)(struct db *db, void *ctx, struct err *err);
    void *ctx;
    bool stop;
};

UNUSED_OK static int test_job_run(struct store_job *job, struct db *db, struct err *err)
{
    struct test_job *test = container_of(job, struct test_job, job);

    return test->fn(db, test->ctx, err);
}

UNUSED_OK static void test_job_done(struct store_job *job)
{
    if (container_of(job, struct test_job, job)->stop)
        loop_stop(test_loop);
}

static inline struct test_job test_job_of(int (*fn)(struct db *, void *, struct err *), void *ctx)
{
    return (struct test_job){
        .job = { .run = test_job_run, .done = test_job_done }, .fn = fn, .ctx = ctx, .stop = true
    };
}

UNUSED_OK static int test_write(int (*fn)(struct db *, void *, struct err *), void *ctx,
                                struct err *err)
{
    struct test_job test = test_job_of(fn, ctx);

    store_write(test_store, &test.job);
    loop_run(test_loop);
    *err = test.job.err;
    return test.job.rc;
}

UNUSED_OK static int test_read(int (*fn)(struct db *, void *, struct err *), void *ctx,
                               struct err *err)
{
    struct test_job test = test_job_of(fn, ctx);

    store_read(test_store, &test.job);
    loop_run(test_loop);
    *err = test.job.err;
    return test.job.rc;
}

/* The same without a server. */
UNUSED_OK static int test_alone(struct db *db, int (*fn)(struct db *, void *, struct err *),
                                void *ctx, struct err *err)
{
    struct test_job test = test_job_of(fn, ctx);
    int rc = store_run_alone(db, &test.job);

    *err = test.job.err;
    return rc;
}

/* The number that a statement without parameters answers with. */
UNUSED_OK static int64_t test_number(struct db *db, const char *literal_sql)
{
    struct err err;
    autoquery struct query *q = db_query(db, literal_sql);
    int rc = query_step(q, &err);

    if (rc < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", literal_sql, err.msg);
    return rc ? query_col_i64(q, 0) : -1;
}
