/* A large store is served at once and checked meanwhile; what is small is checked first. */
#include <fcntl.h>
#include <poll.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "base/log.h"
#include "store/testing.h"

static void raw_sql(const char *path, const char *sql)
{
    sqlite3 *handle;

    CHECK(sqlite3_open(path, &handle) == SQLITE_OK);
    CHECK(sqlite3_exec(handle, sql, NULL, NULL, NULL) == SQLITE_OK);
    CHECK(sqlite3_close(handle) == SQLITE_OK);
}

/* A store whose file has exactly this size: one long row in a table that nobody reads. */
static char *make_sized(int64_t bytes)
{
    char *path = test_path("db");
    struct err err;
    struct db *db;
    struct stat st;

    log_setup(LOG_ERROR + 1, LOG_TEXT, "test");
    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    store_close_alone(db);
    raw_sql(path, "CREATE TABLE filler (x)");
    CHECK(stat(path, &st) == 0);
    autofree char *sql = xprintf("INSERT INTO filler VALUES (zeroblob(%jd))",
                                 (intmax_t)((bytes - st.st_size) / 4096 * 4092));
    raw_sql(path, sql);
    CHECK(stat(path, &st) == 0);
    CHECK_INT(st.st_size, bytes);
    return path;
}

/* The page in the middle of the long row says that the row goes on in a page far outside. */
static void break_middle(const char *path, int64_t bytes)
{
    autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);

    CHECK(pwrite(fd, "\x7f\xff\xff\xff", 4, bytes / 8192 * 4096) == 4);
}

static enum store_state wait_for_verdict(void)
{
    enum store_state state = STORE_CHECKING;

    for (int i = 0; i < 3000 && (state = store_state(test_store)) == STORE_CHECKING; i++)
        poll(NULL, 0, 10);
    return state;
}

static int write_row(struct db *db, void *ctx, struct err *err)
{
    (void)ctx;
    return event_add(db, "default", "a.b", "", STR("{}"), err);
}

static int read_row(struct db *db, void *ctx, struct err *err)
{
    (void)ctx, (void)err;
    return test_number(db, "SELECT COUNT(*) FROM event") >= 0 ? 0 : -1;
}

#define NOW STORE_CHECK_NOW_MAX

TEST(a_store_at_the_limit_is_checked_before_it_is_served)
{
    autofree char *path = make_sized(NOW);
    struct store_options options = { .path = path };
    struct store *store;
    struct loop *loop;
    struct err err;

    test_open(path, NULL, NULL);
    CHECK_INT(store_state(test_store), STORE_SOUND);
    test_close();
    break_middle(path, NOW);
    CHECK_OK(loop_new(&loop, &err), &err);
    CHECK_INT(store_open(&store, loop, &options, &err), -1);
    CHECK(strstr(err.msg, "damaged") && strstr(err.msg, "left as it is"));
    loop_free(loop);
}

TEST(a_store_past_the_limit_is_served_and_found_sound)
{
    autofree char *path = make_sized(NOW + 4096);
    struct err err;

    test_open(path, NULL, NULL);
    CHECK_OK(test_write(write_row, NULL, &err), &err);
    CHECK_INT(wait_for_verdict(), STORE_SOUND);
    CHECK_OK(test_write(write_row, NULL, &err), &err);
    test_close();
}

TEST(damage_found_meanwhile_ends_writing_and_not_reading)
{
    autofree char *path = make_sized(NOW + 4096);
    struct err err;

    break_middle(path, NOW + 4096);
    test_open(path, NULL, NULL);
    CHECK_INT(wait_for_verdict(), STORE_DAMAGED);
    CHECK_INT(test_write(write_row, NULL, &err), -1);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK(strstr(err.msg, "restore a backup"));
    CHECK_OK(test_read(read_row, NULL, &err), &err);
    test_close();
}

TEST(closing_does_not_wait_for_the_check)
{
    autofree char *path = make_sized(8 * NOW);

    for (int i = 0; i < 5; i++) {
        test_open(path, NULL, NULL);
        poll(NULL, 0, (int)test_rand(20));
        test_close();
    }
    test_open(path, NULL, NULL);
    CHECK_INT(wait_for_verdict(), STORE_SOUND); /* an end half-way left nothing behind */
    test_close();
}

TEST(without_a_server_all_of_it_is_checked_first)
{
    autofree char *path = make_sized(NOW + 4096);
    struct db *db = NULL;
    struct err err;

    break_middle(path, NOW + 4096);
    CHECK_INT(store_open_alone(&db, path, true, &err), -1);
    CHECK(strstr(err.msg, "damaged"));
}
