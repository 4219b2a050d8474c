/*
 * open: a store comes into being whole, steps go forward only, and what is damaged, foreign, newer
 * or in use is refused with a reason and left as it is.
 */
#include "store/open.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/limits.h"
#include "store/engine.h"
#include "store/testing.h"

/* ---- files as bytes ---- */

static struct buf read_file(const char *path)
{
    struct buf out = { 0 };
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;

    CHECK(fd >= 0);
    while ((got = read(fd, buf_reserve(&out, 65536), 65536)) > 0)
        out.len += (size_t)got;
    CHECK(got == 0);
    return out;
}

static void write_file(const char *path, struct str bytes)
{
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && write(fd, bytes.p, bytes.n) == (ssize_t)bytes.n);
}

static void damage(const char *path, size_t at, size_t len)
{
    autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);
    char junk[4096];

    for (size_t i = 0; i < len; i++)
        junk[i] = (char)(test_rand(255) + 1);
    CHECK(fd >= 0 && pwrite(fd, junk, len, (off_t)at) == (ssize_t)len);
}

static bool exists(const char *path, const char *suffix)
{
    autofree char *full = xprintf("%s%s", path, suffix);

    return access(full, F_OK) == 0;
}

static void raw_sql(const char *path, const char *sql)
{
    sqlite3 *raw;
    char *said = NULL;

    CHECK(sqlite3_open(path, &raw) == SQLITE_OK);
    if (sqlite3_exec(raw, sql, NULL, NULL, &said) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, said);
    sqlite3_close(raw);
}

/* ---- stores to try things on ---- */

static int fill(struct db *db, void *ctx, struct err *err)
{
    const struct audit row = { .tenant = "default", .actor = "-", .action = "test" };
    int rows = *(int *)ctx;

    for (int i = 0; i < rows; i++)
        if (event_add(db, "default", "test.happened", "thing/1", STR("{\"n\":1}"), err) < 0 ||
            audit_add(db, &row, err) < 0)
            return -1;
    return 0;
}

static void make(const char *path, int rows)
{
    struct db *db;
    struct err err;

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    CHECK_OK(test_alone(db, fill, &rows, &err), &err);
    store_close_alone(db);
}

static void check_opens(const char *path)
{
    struct db *db;
    struct err err;

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    store_close_alone(db);
}

/* Refused for writing, with these words, and not a byte of it changed. */
static void check_refused(const char *path, const char *words, enum err_code code)
{
    autobuf struct buf before = read_file(path);
    struct db *db = NULL;
    struct err err = { 0 };

    CHECK_INT(store_open_alone(&db, path, true, &err), -1);
    CHECK(db == NULL);
    if (!strstr(err.msg, words))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", err.msg, words);
    CHECK_INT(err.code, code);
    autobuf struct buf after = read_file(path);
    CHECK(str_eq(buf_view(&before), buf_view(&after)));
}

/* ---- coming into being ---- */

TEST(a_new_store_is_whole_private_and_alone)
{
    autofree char *path = test_path("a store with spaces, 100%?#");
    struct stat st;

    make(path, 10);
    CHECK(stat(path, &st) == 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    CHECK(!exists(path, ".new") && !exists(path, "-wal") && !exists(path, "-shm"));
    check_opens(path);
    struct db *db;
    struct err err;
    CHECK_OK(store_open_alone(&db, path, false, &err), &err);
    CHECK_INT(test_number(db, "SELECT count(*) FROM event"), 10);
    CHECK_INT(test_number(db, "SELECT event_seq FROM tenant WHERE id = 'default'"), 10);
    store_close_alone(db);
    CHECK(!exists(path, "-wal") && !exists(path, "-shm"));
}

/* Made by root for a server that is not: the files must be the server's. */
TEST(the_files_belong_to_the_owner_of_the_directory)
{
    static const char *const suffixes[] = { "", ".lock", "-wal", "-shm" };
    const char *dir = test_dir();
    autofree char *path = xprintf("%s/db", dir);
    uid_t owner = geteuid() == 0 ? 12345 : geteuid();
    struct db *db;
    struct err err;

    CHECK(chown(dir, owner, (gid_t)-1) == 0);
    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        autofree char *file = xprintf("%s%s", path, suffixes[i]);
        struct stat st;

        CHECK(stat(file, &st) == 0);
        CHECK_INT(st.st_uid, owner);
        CHECK_INT(st.st_mode & 0777, 0600);
    }
    store_close_alone(db);
}

TEST(what_a_killed_start_left_behind_is_no_store)
{
    autofree char *path = test_path("db");
    autofree char *fresh = xprintf("%s.new", path);

    write_file(fresh, STR("half a store"));
    make(path, 1);
    CHECK(!exists(path, ".new"));
    check_opens(path);
}

TEST(a_log_without_its_store_is_refused)
{
    autofree char *path = test_path("db");
    autofree char *log = xprintf("%s-wal", path);
    struct db *db;
    struct err err;

    write_file(log, STR("frames that somebody will want back"));
    CHECK_INT(store_open_alone(&db, path, true, &err), -1);
    CHECK(strstr(err.msg, "missing") != NULL);
    CHECK(!exists(path, "") && exists(path, "-wal"));
}

TEST(only_one_may_write)
{
    autofree char *path = test_path("db");
    struct db *db, *second = NULL;
    struct err err;

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    CHECK_INT(store_open_alone(&second, path, true, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_OK(store_open_alone(&second, path, false, &err), &err); /* reading is fine */
    store_close_alone(second);
    store_close_alone(db);
    check_opens(path);
}

TEST(a_lock_that_is_a_link_is_not_followed)
{
    autofree char *path = test_path("db");
    autofree char *lock = xprintf("%s.lock", path);
    autofree char *victim = test_path("victim");
    struct db *db;
    struct err err;

    CHECK(symlink(victim, lock) == 0);
    CHECK_INT(store_open_alone(&db, path, true, &err), -1);
    CHECK(!exists(victim, ""));
    write_file(victim, STR("x"));
    CHECK_INT(store_open_alone(&db, path, true, &err), -1);
}

TEST(there_is_nothing_to_read_where_nothing_is)
{
    autofree char *path = test_path("db");
    struct db *db;
    struct err err;

    CHECK_INT(store_open_alone(&db, path, false, &err), -1);
    CHECK_INT(err.code, ERR_NOT_FOUND);
    CHECK(!exists(path, ""));
}

/* ---- damage ---- */

TEST(what_is_no_store_is_refused)
{
    autofree char *path = test_path("db");
    char text[8192];

    memset(text, 'x', sizeof(text));
    write_file(path, STR(""));
    check_refused(path, "cut to 0 bytes", ERR_INTERNAL);
    write_file(path, (struct str){ text, 100 });
    check_refused(path, "cut to 100 bytes", ERR_INTERNAL);
    write_file(path, (struct str){ text, sizeof(text) });
    check_refused(path, "damaged: file is not a database", ERR_INTERNAL);
    unlink(path);
    CHECK(mkdir(path, 0700) == 0);
    struct db *db;
    struct err err;
    CHECK_INT(store_open_alone(&db, path, true, &err), -1);
    CHECK(strstr(err.msg, "not a regular file") != NULL);
}

TEST(somebody_elses_database_is_refused_and_not_converted)
{
    autofree char *path = test_path("db");

    raw_sql(path, "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);");
    check_refused(path, "not an Atoll store", ERR_UNSUPPORTED);
}

/* Cut at any page: the file says how long it should be. */
TEST(a_cut_store_is_refused)
{
    autofree char *path = test_path("db");

    make(path, 2000);
    autobuf struct buf whole = read_file(path);
    for (int round = 0; round < 20; round++) {
        size_t pages = whole.len / 4096, keep = 1 + test_rand((uint32_t)pages - 1);

        write_file(path, (struct str){ whole.data, keep * 4096 });
        check_refused(path, "damaged", ERR_INTERNAL);
    }
    write_file(path, buf_view(&whole));
    check_opens(path);
}

/* The first bytes of a page say what it is and where its cells are. */
TEST(a_store_with_a_damaged_page_is_refused)
{
    autofree char *path = test_path("db");

    make(path, 2000);
    autobuf struct buf whole = read_file(path);
    size_t pages = whole.len / 4096;
    for (size_t page = 0; page < pages; page += 1 + test_rand((uint32_t)pages / 16)) {
        bool overflow = page > 0 && whole.data[page * 4096] == 0;

        if (overflow) /* or free: its bytes are content, which has no structure to break */
            continue;
        write_file(path, buf_view(&whole));
        damage(path, page * 4096 + (page == 0 ? 100 : 0), 16);
        check_refused(path, "damaged", ERR_INTERNAL);
    }
    write_file(path, buf_view(&whole));
    check_opens(path);
}

/* A row that disagrees with its index. */
TEST(a_store_whose_index_lies_is_refused)
{
    autofree char *path = test_path("db");

    make(path, 3);
    raw_sql(path, "INSERT INTO token (id, name, tenant, role, scopes, hash, created_ms) VALUES"
                  " ('tok_findme', 'n', 'default', 'admin', '', 'SEVENTEENBYTESHSH', 1)");
    autobuf struct buf whole = read_file(path);
    char *at = memmem(whole.data, whole.len, "SEVENTEENBYTESHSH", 17);
    CHECK(at != NULL);
    at[3] = 'X';
    write_file(path, buf_view(&whole));
    check_refused(path, "damaged", ERR_INTERNAL);
}

/* Anything at all, anywhere: it opens or is refused with a reason; it never brings us down. */
TEST(random_damage_is_survived)
{
    autofree char *path = test_path("db");
    int refused = 0;

    make(path, 300);
    autobuf struct buf whole = read_file(path);
    for (int round = 0; round < 100; round++) {
        struct db *db = NULL;
        struct err err = { 0 };

        write_file(path, buf_view(&whole));
        for (uint32_t i = 0, hits = 1 + test_rand(8); i < hits; i++)
            damage(path, test_rand((uint32_t)whole.len - 8), 1 + test_rand(8));
        if (store_open_alone(&db, path, true, &err) == 0) {
            struct audit_verdict verdict;
            int rows = 5;

            (void)!audit_verify(db, &verdict, &err);
            (void)!test_alone(db, fill, &rows, &err);
            store_close_alone(db);
        } else {
            CHECK(err.msg[0] != 0 && err.code != ERR_NONE);
            refused++;
        }
        autofree char *log = xprintf("%s-wal", path);
        autofree char *shm = xprintf("%s-shm", path);
        unlink(log);
        unlink(shm);
    }
    CHECK(refused > 10); /* otherwise nothing was damaged */
}

/* ---- steps ---- */

#define FIRST_STEP                                                                                 \
    {                                                                                              \
        1, "first", "CREATE TABLE one (x {blob}) ; INSERT INTO one VALUES ('kept')"                \
    }

static const struct migration two_steps[] = {
    FIRST_STEP,
    { 2, "second", "ALTER TABLE one ADD COLUMN y BIGINT NOT NULL DEFAULT 5" },
    { 0 },
};
static const struct migration one_step[] = { FIRST_STEP, { 0 } };

static int open_steps(const char *path, const struct migration *steps, struct err *err)
{
    struct db *db = NULL;

    if (store_open_steps(&db, path, steps, err) < 0)
        return -1;
    store_close_alone(db);
    return 0;
}

TEST(a_store_goes_forward_with_its_rows_and_never_back)
{
    autofree char *path = test_path("db");
    struct err err;

    CHECK_OK(open_steps(path, one_step, &err), &err);
    CHECK_OK(open_steps(path, two_steps, &err), &err);
    CHECK_OK(open_steps(path, two_steps, &err), &err);
    struct db *db;
    CHECK_OK(store_open_steps(&db, path, two_steps, &err), &err);
    CHECK_INT(test_number(db, "SELECT count(*) FROM one WHERE x = 'kept' AND y = 5"), 1);
    CHECK_INT(test_number(db, "SELECT count(*) FROM schema_migration"), 2);
    store_close_alone(db);

    CHECK_INT(open_steps(path, one_step, &err), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    CHECK(strstr(err.msg, "newer") && strstr(err.msg, "schema 2") && strstr(err.msg, "up to 1"));
}

/* Schema 20 had other guards, and kept events and audit rows in other trees. */
TEST(a_store_of_schema_20_keeps_its_events_and_its_chain)
{
    struct migration old[21] = { 0 };
    struct audit_verdict verdict;
    autofree char *path = test_path("db");
    int count = 5;
    struct db *db;
    struct err err = { 0 };

    for (int i = 0; i < 20; i++)
        old[i] = schema_migrations[i];
    CHECK_OK(store_open_steps(&db, path, old, &err), &err);
    CHECK_OK(test_alone(db, fill, &count, &err), &err);
    store_close_alone(db);
    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    CHECK_OK(test_alone(db, fill, &count, &err), &err);
    CHECK_INT(test_number(db, "SELECT count(*) FROM event"), 10);
    CHECK_INT(test_number(db, "SELECT count(*) FROM event WHERE body = '{\"n\":1}'"), 10);
    CHECK_INT(test_number(db, "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%_at_end'"), 0);
    CHECK_INT(test_number(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'"), 5);
    CHECK_OK(audit_verify(db, &verdict, &err), &err);
    CHECK_INT(verdict.rows, 10);
    CHECK_INT(verdict.bad_seq, 0);
    CHECK_INT(db->engine->script(db, "REPLACE INTO event SELECT * FROM event WHERE seq = 3", &err),
              -1);
    store_close_alone(db);
}

TEST(a_step_that_was_changed_afterwards_is_refused)
{
    static const struct migration changed[] = {
        { 1, "first", "CREATE TABLE one (x {blob}, z BIGINT)" },
        { 0 },
    };
    autofree char *path = test_path("db");
    struct err err;

    CHECK_OK(open_steps(path, one_step, &err), &err);
    CHECK_INT(open_steps(path, changed, &err), -1);
    CHECK_INT(err.code, ERR_UNSUPPORTED);
    CHECK(strstr(err.msg, "not the one this program knows") != NULL);
}

TEST(a_step_that_fails_leaves_nothing_behind)
{
    static const struct migration broken[] = {
        FIRST_STEP,
        { 2, "broken", "CREATE TABLE half (x TEXT); INSERT INTO nowhere VALUES (1)" },
        { 0 },
    };
    autofree char *path = test_path("db");
    struct err err;

    CHECK_OK(open_steps(path, one_step, &err), &err);
    CHECK_INT(open_steps(path, broken, &err), -1);
    CHECK(strstr(err.msg, "migration 2 (broken)") != NULL);
    CHECK_OK(open_steps(path, one_step, &err), &err); /* it is still of the first schema */
    CHECK_OK(open_steps(path, two_steps, &err), &err);

    autofree char *other = test_path("db"); /* and a store that cannot be made is not there */
    CHECK_INT(open_steps(other, broken, &err), -1);
    CHECK(!exists(other, "") && !exists(other, ".new"));
}

TEST(a_list_of_steps_with_a_hole_is_refused)
{
    autofree char *path = test_path("db");
    struct err err;

    CHECK_OK(open_steps(path, two_steps, &err), &err);
    raw_sql(path, "DELETE FROM schema_migration WHERE version = 1");
    CHECK_INT(open_steps(path, two_steps, &err), -1);
    CHECK(strstr(err.msg, "gap after 0") != NULL);
    raw_sql(path, "DELETE FROM schema_migration");
    CHECK_INT(open_steps(path, two_steps, &err), -1);
    CHECK(strstr(err.msg, "empty") != NULL);
}

/* ---- copies ---- */

TEST(a_backup_is_a_store_and_never_overwrites)
{
    autofree char *path = test_path("db");
    autofree char *copy = test_path("copy");
    struct db *db;
    struct err err;
    struct stat st;
    int rows = 500;

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    CHECK_OK(test_alone(db, fill, &rows, &err), &err);
    CHECK_OK(store_backup(db, copy, &err), &err);
    CHECK(stat(copy, &st) == 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    CHECK_INT(store_backup(db, copy, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_OK(test_alone(db, fill, &rows, &err), &err); /* not in the copy */
    store_close_alone(db);

    CHECK_OK(store_check(copy, &err), &err);
    CHECK(!exists(copy, "-wal") && !exists(copy, "-shm") && !exists(copy, "-journal"));
    CHECK_OK(store_open_alone(&db, copy, false, &err), &err);
    CHECK_INT(test_number(db, "SELECT count(*) FROM event"), 500);
    store_close_alone(db);
    check_opens(copy);

    autofree char *nowhere = xprintf("%s/no/such/place", test_dir());
    CHECK_OK(store_open_alone(&db, path, false, &err), &err);
    CHECK_INT(store_backup(db, nowhere, &err), -1);
    store_close_alone(db);
}

TEST(a_backup_made_inside_a_transaction_holds_what_was_committed)
{
    autofree char *path = test_path("db");
    autofree char *copy = test_path("copy");
    struct db *db;
    struct err err;
    int rows = 7;

    make(path, 3);
    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    CHECK_OK(db_begin(db, &err), &err);
    CHECK_OK(fill(db, &rows, &err), &err);
    CHECK_OK(store_backup(db, copy, &err), &err);
    db_rollback(db);
    store_close_alone(db);
    CHECK_OK(store_open_alone(&db, copy, false, &err), &err);
    CHECK_INT(test_number(db, "SELECT count(*) FROM event"), 3);
    store_close_alone(db);
}

/* Copied with cp while it was open, log and all, as somebody will. */
TEST(a_copy_with_its_log_can_be_read)
{
    autofree char *path = test_path("db");
    autofree char *copy = test_path("copy");
    autofree char *log = xprintf("%s-wal", path);
    autofree char *copy_log = xprintf("%s-wal", copy);
    struct db *db;
    struct err err;
    int rows = 40;

    make(path, 1);
    autobuf struct buf bytes = read_file(path);
    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    CHECK_OK(db->engine->make_room(db, &err), &err);
    CHECK_OK(test_alone(db, fill, &rows, &err), &err);
    /* Only the log: a descriptor of an open database, when closed, would drop SQLite's locks. */
    autobuf struct buf log_bytes = read_file(log);
    CHECK_INT(log_bytes.len, STORE_LOG_ROOM); /* frames, and room that is no frame */
    write_file(copy, buf_view(&bytes));
    write_file(copy_log, buf_view(&log_bytes));
    store_close_alone(db);

    CHECK_OK(store_check(copy, &err), &err);
    CHECK_OK(store_open_alone(&db, copy, false, &err), &err);
    CHECK_INT(test_number(db, "SELECT count(*) FROM event"), 41);
    store_close_alone(db);
}

TEST(store_check_finds_damage_and_a_broken_chain)
{
    autofree char *path = test_path("db");
    struct err err;

    make(path, 400);
    CHECK_OK(store_check(path, &err), &err);
    raw_sql(path, "DROP TRIGGER audit_no_update;"
                  "UPDATE audit SET actor = 'somebody else' WHERE seq = 17;");
    CHECK_INT(store_check(path, &err), -1);
    CHECK(strstr(err.msg, "row 17 was edited") != NULL);
    damage(path, 3ul * 4096, 16);
    CHECK_INT(store_check(path, &err), -1);
    CHECK(strstr(err.msg, "damaged") != NULL);
}
