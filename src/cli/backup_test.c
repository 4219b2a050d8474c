/*
 * Backup, restore and offline verification on real stores, without a server. A store is told apart
 * by the number of its audit rows.
 */
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/test.h"
#include "cli/cli.h"
#include "store/store.h"

/* ---- stores ---- */

static int add_row(struct store_job *job, struct db *db, struct err *err)
{
    const struct audit row = { .tenant = "main",
                               .actor = "test",
                               .role = "admin",
                               .action = "test.add",
                               .object = "",
                               .outcome = "ok",
                               .request_id = "r",
                               .peer = "-",
                               .detail = "{}" };

    (void)job;
    return audit_add(db, &row, err);
}

static void add_rows(const char *path, int count)
{
    struct db *db = NULL;
    struct err err = { 0 };

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    for (int i = 0; i < count; i++) {
        struct store_job job = { .run = add_row };

        CHECK_OK(store_run_alone(db, &job), &job.err);
    }
    store_close_alone(db);
}

static int64_t rows_of(const char *path)
{
    struct audit_verdict verdict = { 0 };
    struct db *db = NULL;
    struct err err = { 0 };

    CHECK_OK(store_open_alone(&db, path, false, &err), &err);
    CHECK_OK(audit_verify(db, &verdict, &err), &err);
    store_close_alone(db);
    CHECK_INT(verdict.bad_seq, 0);
    return verdict.rows;
}

/* A state directory whose store has `rows` rows; gives the path of the database. */
static char *make_state(const char *state, int rows)
{
    autofree char *data = xprintf("%s/data", state);

    CHECK(mkdir(data, 0700) == 0);
    char *path = xprintf("%s/atoll.db", data);
    add_rows(path, rows);
    setenv("ATOLL_STATE", state, 1);
    setenv("HOME", state, 1);
    return path;
}

static void spoil(const char *path, off_t at)
{
    autoclose int fd = open(path, O_RDWR | O_CLOEXEC);

    CHECK(fd >= 0 && pwrite(fd, "spoiled by the test", 19, at) == 19);
}

/* ---- running ---- */

static char said[65536]; /* by the last run, on both descriptors */

static int run(const char *first, const char *second, const char *third, const char *fourth)
{
    char *argv[] = { (char *)"atoll",          (char *)(uintptr_t)first,  (char *)(uintptr_t)second,
                     (char *)(uintptr_t)third, (char *)(uintptr_t)fourth, NULL };
    autoclose int fd = memfd_create("said", MFD_CLOEXEC);
    int argc = 1;

    while (argv[argc])
        argc++;
    int rc = cli_run(argc, argv, fd, fd);
    ssize_t got = pread(fd, said, sizeof(said) - 1, 0);
    said[got > 0 ? got : 0] = 0;
    return rc;
}

#define CHECK_SAID(part)                                                                           \
    do {                                                                                           \
        if (!strstr(said, part))                                                                   \
            test_fail(__FILE__, __LINE__, "\"%s\" has no \"%s\"", said, part);                     \
    } while (0)

static size_t files_like(const char *pattern)
{
    glob_t found = { 0 };
    size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;

    globfree(&found);
    return count;
}

TEST(backup_and_restore_without_a_server)
{
    const char *state = test_dir(), *elsewhere = test_dir();
    autofree char *db = make_state(state, 3), *copy = xprintf("%s/copy.db", elsewhere);
    struct stat st;

    CHECK_INT(run("backup", copy, "--json", NULL), 0);
    CHECK_SAID("\"from\":\"file\"");
    CHECK_INT(rows_of(copy), 3);
    CHECK(stat(copy, &st) == 0 && (st.st_mode & 0777) == 0600);
    CHECK_INT(run("backup", copy, NULL, NULL), 3); /* never overwrites */
    CHECK_SAID("exists already");

    add_rows(db, 2);
    CHECK_INT(rows_of(db), 5);
    CHECK_INT(run("restore", copy, NULL, NULL), 0);
    CHECK_INT(rows_of(db), 3);
    autofree char *aside = xprintf("%s.before-*", db), *left = xprintf("%s.restore-*", db);
    CHECK_INT(files_like(aside), 1);
    CHECK_INT(files_like(left), 0);
    glob_t kept;
    CHECK(glob(aside, 0, NULL, &kept) == 0);
    CHECK_INT(rows_of(kept.gl_pathv[0]), 5); /* what was there is whole */
    CHECK_SAID(kept.gl_pathv[0]);
    globfree(&kept);
    add_rows(db, 1); /* and the restored one works on */
    CHECK_INT(rows_of(db), 4);
}

TEST(restore_into_an_empty_directory)
{
    const char *state = test_dir(), *other = test_dir();
    autofree char *db = make_state(state, 2), *fresh = xprintf("%s/new", other);
    autofree char *restored = xprintf("%s/data/atoll.db", fresh);

    CHECK_INT(run("restore", db, "--state", fresh), 0);
    CHECK_INT(rows_of(restored), 2);
    CHECK(!strstr(said, "is kept as"));
}

TEST(restore_refuses_while_the_server_runs)
{
    const char *state = test_dir(), *other = test_dir();
    autofree char *db = make_state(state, 3), *lock = xprintf("%s/lock", state);
    autofree char *good = xprintf("%s/good.db", other);

    add_rows(good, 1);
    autoclose int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    CHECK_INT(run("restore", good, NULL, NULL), 3);
    CHECK_SAID("is running; stop it first");
    CHECK_INT(rows_of(db), 3);
    CHECK(flock(fd, LOCK_UN) == 0);

    /* The api process may live on for a moment when its warden is gone: the store has its lock. */
    struct db *open = NULL;
    struct err err = { 0 };
    CHECK_OK(store_open_alone(&open, db, true, &err), &err);
    CHECK_INT(run("restore", good, NULL, NULL), 3);
    CHECK_SAID("in use by another process");
    store_close_alone(open);
    CHECK_INT(rows_of(db), 3);
    autofree char *left = xprintf("%s.*-*", db);
    CHECK_INT(files_like(left), 0);
}

TEST(restore_refuses_what_is_no_whole_backup)
{
    const char *state = test_dir(), *other = test_dir();
    autofree char *db = make_state(state, 3), *bad = xprintf("%s/bad.db", other);
    autofree char *gone = xprintf("%s/gone.db", other), *text = xprintf("%s/text", other);
    struct stat st;

    add_rows(bad, 200);
    CHECK(stat(bad, &st) == 0);
    for (off_t at = 4096; at < st.st_size; at += 4096)
        spoil(bad, at);
    CHECK_INT(run("restore", bad, NULL, NULL), 1);
    CHECK_SAID(bad);
    autofree char *nowhere = xprintf("%s/state", other);
    CHECK_INT(run("restore", bad, "--state", nowhere), 1);
    CHECK_INT(files_like(nowhere), 0); /* looked at before anything is touched */
    CHECK_INT(run("restore", gone, NULL, NULL), 2);
    autoclose int fd = open(text, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 8192) == 0);
    CHECK_INT(run("restore", text, NULL, NULL), 1);
    CHECK_INT(rows_of(db), 3); /* as it was */
    autofree char *left = xprintf("%s.*-*", db);
    CHECK_INT(files_like(left), 0);
}

TEST(restore_replaces_a_broken_store_and_keeps_its_log)
{
    const char *state = test_dir(), *other = test_dir();
    autofree char *db = make_state(state, 3), *good = xprintf("%s/good.db", other);
    autofree char *wal = xprintf("%s-wal", db), *aside = xprintf("%s.before-*-wal", db);

    add_rows(good, 7);
    spoil(db, 0); /* no longer a database */
    autoclose int fd = open(wal, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, "stale log", 9) == 9);
    CHECK_INT(run("restore", good, NULL, NULL), 0);
    CHECK_INT(rows_of(db), 7); /* the stale log did not get into it */
    CHECK_INT(files_like(aside), 1);
}

TEST(backup_says_when_there_is_nothing_to_copy)
{
    const char *state = test_dir();
    autofree char *file = xprintf("%s/out.db", state);

    setenv("ATOLL_STATE", state, 1);
    CHECK_INT(run("backup", file, NULL, NULL), 1);
    CHECK_SAID("nobody listens");
    CHECK_INT(files_like(file), 0);
}

/* ---- audit verify --db ---- */

TEST(audit_verify_works_on_a_file)
{
    const char *state = test_dir();
    autofree char *db = make_state(state, 3), *three = NULL;
    struct audit_verdict verdict = { 0 };
    struct db *open = NULL;
    struct err err = { 0 };

    CHECK_OK(store_open_alone(&open, db, false, &err), &err);
    CHECK_OK(audit_verify(open, &verdict, &err), &err);
    store_close_alone(open);
    three = xprintf("--head=3:%s", verdict.head);
    autofree char *last = xprintf("--head=%s", verdict.head), *file = xprintf("--db=%s", db);
    autofree char *lies = xprintf("--head=2:%s", verdict.head);
    autofree char *beyond = xprintf("--head=4:%s", verdict.head);

    CHECK_INT(run("audit", "verify", file, NULL), 0);
    CHECK_SAID("ok: 3 rows fit together");
    CHECK_INT(run("audit", "verify", file, three), 0);
    CHECK_INT(run("audit", "verify", file, last), 0);
    CHECK_INT(run("audit", "verify", file, lies), 1);
    CHECK_INT(run("audit", "verify", file, beyond), 1); /* rolled back or cut off */
    add_rows(db, 1);
    CHECK_INT(run("audit", "verify", file, three), 0); /* still there, no longer last */
    CHECK_INT(run("audit", "verify", file, last), 1);
    CHECK_SAID("another hash");
    CHECK_INT(run("audit", "verify", "--db=/nowhere/at/all", NULL), 2);
    CHECK_INT(run("audit", "verify", NULL, NULL), 0); /* no server: the local store's file */
    CHECK_SAID("ok: 4 rows");
    CHECK_INT(run("audit", "verify", "--state", test_dir()), 1);
    CHECK_SAID("nobody listens");
}
