/* db: values survive, statements are kept and never mixed up, errors have the right names. */
#include "store/engine.h"

#include "store/testing.h"

static struct db *fresh(void)
{
    autofree char *path = test_path("db");
    struct db *db;
    struct err err;

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    CHECK_OK(db->engine->script(db,
                                "CREATE TABLE thing (id BIGINT PRIMARY KEY, name TEXT UNIQUE,"
                                " data BLOB)",
                                &err),
             &err);
    return db;
}

static int put(struct db *db, int64_t id, struct str name, const void *data, size_t len,
               struct err *err)
{
    autoquery struct query *q =
        db_query(db, "INSERT INTO thing (id, name, data) VALUES ($1, $2, $3)");

    query_i64(q, 1, id);
    query_str(q, 2, name);
    query_blob(q, 3, data, len);
    return query_run(q, err);
}

TEST(values_come_back_as_they_were_bound)
{
    static const struct {
        int64_t id;
        struct str name;
        struct str data;
    } rows[] = {
        { 0, { "", 0 }, { "", 0 } },
        { INT64_MIN, { "a\0b", 3 }, { "\0\1\2\377", 4 } },
        { INT64_MAX, { NULL, 0 }, { NULL, 0 } },
        { -1, { "h\303\244r", 4 }, { "x", 1 } },
        { 7, { "\377\376", 2 }, { "\200", 1 } },
    };
    struct db *db = fresh();
    struct err err;
    autoarena struct arena arena = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CHECK_INT(put(db, rows[i].id, rows[i].name, rows[i].data.p, rows[i].data.n, &err), 1);
        autoquery struct query *q = db_query(db, "SELECT id, name, data FROM thing WHERE id = $1");
        query_i64(q, 1, rows[i].id);
        CHECK_INT(query_step(q, &err), 1);
        CHECK(query_col_i64(q, 0) == rows[i].id);
        for (int col = 1; col <= 2; col++) {
            struct str want = col == 1 ? rows[i].name : rows[i].data, got = query_col_str(q, col);
            const char *dup = query_col_dup(q, col, &arena);

            CHECK(str_eq(got, want));
            CHECK((got.p == NULL) == (want.p == NULL));
            CHECK((dup == NULL) == (want.p == NULL));
            if (dup)
                CHECK(memcmp(dup, want.p, want.n) == 0 && dup[want.n] == 0);
        }
        CHECK_INT(query_step(q, &err), 0);
    }
    store_close_alone(db);
}

TEST(a_statement_is_prepared_once_and_twice_when_it_is_in_use)
{
    struct db *db = fresh();
    struct err err;
    static const char literal_sql[] = "SELECT id FROM thing WHERE id >= $1 ORDER BY id";

    for (int i = 0; i < 3; i++)
        CHECK_INT(put(db, i, STR_NONE, NULL, 0, &err), 1);
    size_t before = db->query_count;
    for (int round = 0; round < 10; round++) {
        struct query *q = db_query(db, literal_sql);
        query_done(&q);
        CHECK(q == NULL);
    }
    CHECK_INT(db->query_count - before, 1);
    for (int round = 0; round < 10; round++) {
        autoquery struct query *outer = db_query(db, literal_sql);
        autoquery struct query *inner = db_query(db, literal_sql);

        query_i64(outer, 1, 0);
        query_i64(inner, 1, 2);
        CHECK_INT(query_step(outer, &err), 1);
        CHECK_INT(query_step(inner, &err), 1);
        CHECK_INT(query_col_i64(outer, 0), 0);
        CHECK_INT(query_col_i64(inner, 0), 2);
        CHECK_INT(query_step(outer, &err), 1);
        CHECK_INT(query_col_i64(outer, 0), 1);
    }
    CHECK_INT(db->query_count - before, 2);
    CHECK_INT(db->busy, 0);
    store_close_alone(db);
}

/* Many statements, found again however the table has grown. */
TEST(every_statement_is_found_again)
{
    enum { COUNT = 300 };
    struct db *db = fresh();
    struct err err;
    char *texts[COUNT];

    size_t before = db->query_count;
    for (int i = 0; i < COUNT; i++)
        texts[i] = xprintf("SELECT %d", i);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            const char *literal_sql = texts[i];
            autoquery struct query *q = db_query(db, literal_sql);

            CHECK_INT(query_step(q, &err), 1);
            CHECK_INT(query_col_i64(q, 0), i);
        }
        CHECK_INT(db->query_count - before, COUNT);
    }
    for (int i = 0; i < COUNT; i++)
        free(texts[i]);
    store_close_alone(db);
}

TEST(a_buffer_with_new_words_never_runs_the_old_statement)
{
    struct db *db = fresh();
    struct err err;
    char literal_sql[32]; /* which it is not */

    for (int i = 0; i < 5; i++) {
        snprintf(literal_sql, sizeof(literal_sql), "SELECT %d", i);
        autoquery struct query *q = db_query(db, literal_sql);
        CHECK_INT(query_step(q, &err), 1);
        CHECK_INT(query_col_i64(q, 0), i);
    }
    store_close_alone(db);
}

TEST(parameters_do_not_stay_for_the_next_use)
{
    struct db *db = fresh();
    struct err err;
    static const char literal_sql[] = "SELECT $1";

    struct query *q = db_query(db, literal_sql);
    query_text(q, 1, "secret");
    CHECK_INT(query_step(q, &err), 1);
    query_done(&q);
    q = db_query(db, literal_sql);
    CHECK_INT(query_step(q, &err), 1);
    CHECK(query_col_str(q, 0).p == NULL);
    query_done(&q);
    store_close_alone(db);
}

static void check_step_fails(struct db *db, const char *literal_sql, int at, enum err_code code)
{
    autoquery struct query *q = db_query(db, literal_sql);
    struct err err = { 0 };

    if (at)
        query_i64(q, at, 1);
    CHECK_INT(query_step(q, &err), -1);
    CHECK_INT(err.code, code);
    CHECK(err.msg[0] != 0);
}

TEST(mistakes_are_told_by_the_step)
{
    struct db *db = fresh();
    struct err err;

    check_step_fails(db, "SELECT nothing FROM nowhere", 0, ERR_INTERNAL);
    check_step_fails(db, "SELECT $2, $1", 0, ERR_INTERNAL);
    check_step_fails(db, "SELECT ?", 0, ERR_INTERNAL);
    check_step_fails(db, "SELECT 1; SELECT 2", 0, ERR_INTERNAL);
    check_step_fails(db, "", 0, ERR_INTERNAL);
    check_step_fails(db, "SELECT $1", 2, ERR_INTERNAL);
    CHECK_INT(db->busy, 0);
    /* and the connection is as good as before */
    CHECK_INT(put(db, 1, STR("one"), NULL, 0, &err), 1);
    store_close_alone(db);
}

TEST(a_broken_constraint_is_a_conflict)
{
    struct db *db = fresh();
    struct err err = { 0 };

    CHECK_INT(put(db, 1, STR("one"), NULL, 0, &err), 1);
    CHECK_INT(put(db, 1, STR("two"), NULL, 0, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    CHECK_INT(put(db, 2, STR("one"), NULL, 0, &err), -1);
    CHECK_INT(err.code, ERR_CONFLICT);
    check_step_fails(db,
                     "INSERT INTO token (id, name, tenant, role, scopes, hash, created_ms) VALUES"
                     " ('t', 't', 'nobody', 'admin', '', 'h', 1)",
                     0, ERR_CONFLICT); /* foreign keys are on */
    store_close_alone(db);
}

/* A full database file, by SQLite's own limit of pages: the real disk is fault_test.c's subject. */
TEST(a_full_database_says_so_and_goes_on_when_there_is_room)
{
    struct db *db = fresh();
    struct err err = { 0 };
    static char big[100000];

    int64_t pages = test_number(db, "PRAGMA page_count");
    /* check-style: allow sql: a pragma takes no parameters */
    autofree char *limit = xprintf("PRAGMA max_page_count = %lld", (long long)pages + 2);
    CHECK_OK(db->engine->script(db, limit, &err), &err);
    CHECK_INT(put(db, 1, STR("big"), big, sizeof(big), &err), -1);
    CHECK_INT(err.code, ERR_NO_SPACE);
    CHECK_OK(db->engine->script(db, "PRAGMA max_page_count = 100000", &err), &err);
    CHECK_INT(put(db, 1, STR("big"), big, sizeof(big), &err), 1);
    store_close_alone(db);
}

/* A chain of random puts, removals, commits and rollbacks against an array. */
TEST(random_changes_match_a_naive_model)
{
    enum { KEYS = 50 };
    int64_t model[KEYS] = { 0 }, saved[KEYS];
    struct db *db = fresh();
    struct err err;
    bool open = false;

    for (int round = 0; round < 3000; round++) {
        uint32_t key = test_rand(KEYS), what = test_rand(10);

        if (what == 0 && !open) {
            CHECK_OK(db_begin(db, &err), &err);
            memcpy(saved, model, sizeof(saved));
            open = true;
        } else if (what == 1 && open) {
            CHECK_OK(db_commit(db, &err), &err);
            open = false;
        } else if (what == 2 && open) {
            db_rollback(db);
            memcpy(model, saved, sizeof(saved));
            open = false;
        } else if (what < 5) {
            autoquery struct query *q = db_query(db, "DELETE FROM thing WHERE id = $1");
            query_i64(q, 1, key);
            CHECK_INT(query_run(q, &err), model[key] ? 1 : 0);
            model[key] = 0;
        } else {
            autoquery struct query *q =
                db_query(db, "INSERT INTO thing (id, data) VALUES ($1, $2)"
                             " ON CONFLICT (id) DO UPDATE SET data = excluded.data");
            query_i64(q, 1, key);
            query_i64(q, 2, round + 1);
            CHECK_INT(query_run(q, &err), 1);
            model[key] = round + 1;
        }
        CHECK(db_in_transaction(db) == open);
        autoquery struct query *q = db_query(db, "SELECT data FROM thing WHERE id = $1");
        query_i64(q, 1, key);
        int rc = query_step(q, &err);
        CHECK_INT(rc ? query_col_i64(q, 0) : 0, model[key]);
    }
    db_rollback(db);
    store_close_alone(db);
}

TEST(the_connection_is_set_up_as_promised)
{
    struct db *db = fresh();
    struct err err;

    CHECK_INT(test_number(db, "PRAGMA synchronous"), 2);
    CHECK_INT(test_number(db, "PRAGMA foreign_keys"), 1);
    CHECK_INT(test_number(db, "PRAGMA trusted_schema"), 0);
    CHECK_INT(test_number(db, "PRAGMA wal_autocheckpoint"), 0);
    CHECK_INT(test_number(db, "PRAGMA temp_store"), 2);
    autoquery struct query *q = db_query(db, "PRAGMA journal_mode");
    CHECK_INT(query_step(q, &err), 1);
    CHECK(str_is(query_col_str(q, 0), "wal"));
    query_done(&q);
    store_close_alone(db);
}
