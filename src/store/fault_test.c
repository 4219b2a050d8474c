/*
 * A disk that is full, fails, or lies: no job is told a success that is not there, none that
 * failed leaves a trace, numbers have no gaps, and work goes on when the disk does. A failing
 * fsync ends the process.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/log.h"
#include "store/engine.h"
#include "store/fault_vfs.h"
#include "store/testing.h"

static char body_text[20000];

/* A job of several pages: event, audit row and a row of its own. */
static int add_rows(struct db *db, void *ctx, struct err *err)
{
    autofree char *key = xprintf("%d", *(int *)ctx);
    const struct audit row = { .tenant = "default", .action = "test", .object = key };
    autoquery struct query *q = db_query(db, "INSERT INTO nonce (key, at_ms) VALUES ($1, 1)");

    query_text(q, 1, key);
    if (query_run(q, err) < 0 || audit_add(db, &row, err) < 0)
        return -1;
    return event_add(db, "default", "test", key, (struct str){ body_text, sizeof(body_text) }, err);
}

struct truth {
    bool there[1000];
    int count;
};

/* Exactly the jobs that were told "ok" are there, whole. */
static int compare(struct db *db, void *ctx, struct err *err)
{
    const struct truth *truth = ctx;
    struct audit_verdict verdict = { 0 };
    int found = 0;

    for (int i = 0; i < truth->count; i++) {
        autofree char *key = xprintf("%d", i);
        autoquery struct query *q =
            db_query(db, "SELECT (SELECT count(*) FROM nonce WHERE key = $1),"
                         " (SELECT count(*) FROM audit WHERE object = $1),"
                         " (SELECT count(*) FROM event WHERE object = $1)");

        query_text(q, 1, key);
        if (query_step(q, err) < 0)
            return -1;
        for (int col = 0; col < 3; col++)
            if (query_col_i64(q, col) != truth->there[i])
                return err_set(err, ERR_INTERNAL, "job %d: column %d is %lld", i, col,
                               (long long)query_col_i64(q, col));
        found += truth->there[i];
    }
    if (test_number(db, "SELECT event_seq FROM tenant WHERE id = 'default'") != found ||
        test_number(db, "SELECT coalesce(max(seq), 0) FROM event") != found)
        return err_set(err, ERR_INTERNAL, "event numbers have a gap");
    if (audit_verify(db, &verdict, err) < 0)
        return -1;
    return verdict.bad_seq ? err_set(err, ERR_INTERNAL, "audit: %s", verdict.why) : 0;
}

static struct truth truth;

/* Hands in one job and notes how it went. */
static int try_job(struct err *err)
{
    int number = truth.count++;
    int rc = test_write(add_rows, &number, err);

    truth.there[number] = rc >= 0;
    return rc;
}

static void check_truth(void)
{
    struct err err;

    CHECK_OK(test_read(compare, &truth, &err), &err);
}

static void start_over(const char *path)
{
    fault_install();
    memset(body_text, ' ', sizeof(body_text));
    truth = (struct truth){ 0 };
    fault.full = fault.sync_fails = fault.bad_reads = false;
    fault.fail_at = 0;
    test_open(path, NULL, NULL);
}

/* ---- by the shim ---- */

TEST(a_full_disk_is_told_and_work_goes_on_when_there_is_room)
{
    autofree char *path = test_path("db");
    struct err err;

    start_over(path);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++)
            CHECK_OK(try_job(&err), &err);
        fault.full = true;
        for (int i = 0; i < 3; i++) {
            CHECK_INT(try_job(&err), -1);
            CHECK_INT(err.code, ERR_NO_SPACE);
        }
        check_truth(); /* reading works on a full disk */
        fault.full = false;
    }
    CHECK_OK(try_job(&err), &err);
    check_truth();
    test_close();
}

/* Each single call to the disk fails once, with each error, while a few jobs run. */
static void fail_each_call(int code, enum err_code seen_as)
{
    int failures = 0;

    for (long nth = 1; nth < 60; nth++) {
        autofree char *path = test_path("db");
        struct err err;

        start_over(path);
        CHECK_OK(try_job(&err), &err);
        fault.fail_code = code;
        fault.fail_at = fault.calls + nth;
        for (int i = 0; i < 20; i++) { /* two calls each: the log is written in one piece */
            if (try_job(&err) == 0)
                continue;
            CHECK_INT(err.code, seen_as);
            failures++;
        }
        fault.fail_at = 0;
        CHECK_OK(try_job(&err), &err);
        check_truth();
        test_close();
        test_open(path, NULL, NULL);
        check_truth();
        test_close();
    }
    CHECK(failures > 10);
}

TEST(any_call_may_find_the_disk_full)
{
    fail_each_call(SQLITE_FULL, ERR_NO_SPACE);
}

TEST(any_write_may_fail)
{
    fail_each_call(SQLITE_IOERR_WRITE, ERR_INTERNAL);
}

/* Neighbours in one batch share its fate, and are told. */
TEST(a_commit_that_fails_fails_for_all_in_the_batch)
{
    enum { JOBS = 50 };
    autofree char *path = test_path("db");
    static struct test_job jobs[JOBS];
    static int numbers[JOBS];
    struct err err;

    start_over(path);
    fault.full = true;
    for (int i = 0; i < JOBS; i++) {
        numbers[i] = truth.count++;
        jobs[i] = test_job_of(add_rows, &numbers[i]);
        jobs[i].stop = i == JOBS - 1;
        store_write(test_store, &jobs[i].job);
    }
    loop_run(test_loop);
    for (int i = 0; i < JOBS; i++) {
        CHECK_INT(jobs[i].job.rc, -1);
        CHECK_INT(jobs[i].job.err.code, ERR_NO_SPACE);
        CHECK(jobs[i].job.events == NULL);
    }
    fault.full = false;
    check_truth();
    CHECK_OK(try_job(&err), &err);
    check_truth();
    CHECK_INT(store_event_head(test_store, "default"), 1);
    test_close();
}

static int touch_tokens(struct db *db, void *ctx, struct err *err)
{
    (void)ctx, (void)err;
    autoquery struct query *q =
        db_query(db, "INSERT INTO token (id, name, tenant, role, scopes, hash, created_ms) VALUES"
                     " ('t', 't', 'default', 'admin', '', 'h', 1)");
    return query_run(q, err) < 0 ? -1 : 0;
}

static int touch_tokens_quietly(struct db *db, void *ctx, struct err *err)
{
    struct err hidden;

    (void)err;
    (void)!touch_tokens(db, ctx, &hidden);
    return 0;
}

TEST(damage_is_not_committed_over_even_if_a_job_hides_it)
{
    autofree char *path = test_path("db");
    struct err err = { 0 };

    start_over(path);
    CHECK_OK(try_job(&err), &err);
    test_close();
    test_open(path, NULL, NULL);
    fault.bad_reads = true;
    CHECK_INT(test_write(touch_tokens_quietly, NULL, &err), -1);
    CHECK(strstr(err.msg, "nothing was written") != NULL);
    fault.bad_reads = false;
    check_truth();
    test_close();
}

TEST(a_database_that_turns_out_damaged_is_not_written_any_more)
{
    autofree char *path = test_path("db");
    struct err err = { 0 };

    start_over(path);
    CHECK_OK(try_job(&err), &err);
    test_close();
    test_open(path, NULL, NULL);
    fault.bad_reads = true;
    CHECK_INT(test_write(touch_tokens, NULL, &err), -1);
    CHECK(strstr(err.msg, "damaged") != NULL);
    fault.bad_reads = false;
    CHECK_INT(try_job(&err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK(strstr(err.msg, "restore a backup") != NULL);
    check_truth();
    test_close();
}

/* ---- in a process of its own ---- */

/* Runs `fn` in a child and gives its wait status and the beginning of what it said. */
static int in_child(int (*fn)(const char *path), const char *path, char *said, size_t size)
{
    int ends[2], status;
    size_t len = 0;
    ssize_t got;

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], 2);
        struct rlimit none = { 0, 0 };
        setrlimit(RLIMIT_CORE, &none);
        _exit(fn(path));
    }
    close(ends[1]);
    while ((got = read(ends[0], said + len, size - 1 - len)) > 0)
        len += (size_t)got;
    said[len] = 0;
    close(ends[0]);
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static int fail_fsync(const char *path)
{
    struct err err;

    signal(SIGABRT, SIG_DFL);
    start_over(path);
    if (try_job(&err) < 0)
        return 2;
    fault.sync_fails = true;
    (void)try_job(&err);
    return 3; /* it went on */
}

TEST(a_failing_fsync_ends_the_process_with_a_word)
{
    autofree char *path = test_path("db");
    char said[4096];
    int status = in_child(fail_fsync, path, said, sizeof(said));
    struct db *db;
    struct err err;

    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        test_fail(__FILE__, __LINE__, "status %d: %s", status, said);
    CHECK(strstr(said, "fsync failed") != NULL);
    CHECK_OK(store_open_alone(&db, path, true, &err), &err); /* and starts again */
    CHECK(test_number(db, "SELECT count(*) FROM event") >= 1);
    store_close_alone(db);
}

static int limit_file_size(const char *path)
{
    struct rlimit small = { 600000, RLIM_INFINITY }, none = { RLIM_INFINITY, RLIM_INFINITY };
    struct err err;
    int failed = 0;

    start_over(path);
    if (setrlimit(RLIMIT_FSIZE, &small) < 0)
        return 2;
    for (int i = 0; i < 60; i++) {
        if (try_job(&err) == 0)
            continue;
        failed++;
        if (err.code != ERR_NO_SPACE) {
            fprintf(stderr, "%s\n", err.msg);
            return 3;
        }
    }
    if (setrlimit(RLIMIT_FSIZE, &none) < 0 || !failed)
        return 4;
    if (try_job(&err) < 0)
        return 5;
    check_truth();
    test_close();
    return 0;
}

TEST(a_limit_of_the_file_size_is_a_full_disk)
{
    autofree char *path = test_path("db");
    char said[4096];
    int status = in_child(limit_file_size, path, said, sizeof(said));

    if (status != 0)
        test_fail(__FILE__, __LINE__, "status %x: %s", (unsigned)status, said);
}

enum { CANNOT_MOUNT = 77 };

/* A real file system with a megabyte of room, and a file that takes some of it and goes away. */
static int fill_file_system(const char *dir)
{
    autofree char *path = xprintf("%s/db", dir);
    autofree char *ballast = xprintf("%s/ballast", dir);
    static const char zeros[600000];
    struct err err;
    int failed = 0;

    if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NODEV, "size=1200k") < 0)
        return CANNOT_MOUNT;
    int fd = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, zeros, sizeof(zeros)) != (ssize_t)sizeof(zeros))
        return 2;
    close(fd);
    start_over(path);
    for (int i = 0; i < 25; i++) {
        if (try_job(&err) == 0)
            continue;
        failed++;
        if (err.code != ERR_NO_SPACE) {
            fprintf(stderr, "%s\n", err.msg);
            return 3;
        }
    }
    check_truth();
    if (!failed || unlink(ballast) < 0)
        return 4;
    if (try_job(&err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 5;
    }
    check_truth();
    test_close();
    return 0;
}

TEST(a_file_system_without_room_is_a_full_disk)
{
    char said[4096];
    int status = in_child(fill_file_system, test_dir(), said, sizeof(said));

    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_MOUNT)
        test_skip("no mount namespace here");
    if (status != 0)
        test_fail(__FILE__, __LINE__, "status %x: %s", (unsigned)status, said);
}
