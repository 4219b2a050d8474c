/*
 * audit: the chain is what the format says (checked by a second computation), triggers refuse, and
 * every kind of tampering with the file is found and the right row named.
 */
#include "store/store.h"

#include <openssl/evp.h>
#include <sqlite3.h>

#include "base/hash.h"
#include "base/limits.h"
#include "store/engine.h"
#include "store/testing.h"

enum { ROWS = 20 };

static const struct audit sample = {
    .at_ms = 1700000000000,
    .tenant = "default",
    .actor = "tok_1",
    .role = "admin",
    .action = "token.create",
    .object = "token/tok_2",
    .outcome = "ok",
    .request_id = "r-1",
    .peer = "127.0.0.1",
    .detail = "{}",
};

static int add_rows(struct db *db, void *ctx, struct err *err)
{
    for (int i = 0; i < *(int *)ctx; i++) {
        autofree char *object = xprintf("thing/%d", i);
        struct audit row = sample;

        row.object = object;
        row.tenant = i % 3 ? "default" : "other";
        if (audit_add(db, &row, err) < 0)
            return -1;
    }
    return 0;
}

static char *make(int rows)
{
    char *path = test_path("db");
    struct db *db;
    struct err err;

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    CHECK_OK(test_alone(db, add_rows, &rows, &err), &err);
    store_close_alone(db);
    return path;
}

/* As somebody with the file and the sqlite3 program would. */
static void tamper(const char *path, const char *sql)
{
    sqlite3 *raw;
    char *said = NULL;

    CHECK(sqlite3_open(path, &raw) == SQLITE_OK);
    CHECK(sqlite3_exec(raw,
                       "DROP TRIGGER audit_no_update; DROP TRIGGER audit_no_delete;"
                       "DROP TRIGGER audit_head_no_delete;",
                       NULL, NULL, NULL) == SQLITE_OK);
    if (sqlite3_exec(raw, sql, NULL, NULL, &said) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, said);
    sqlite3_close(raw);
}

static struct audit_verdict verify(const char *path)
{
    struct audit_verdict verdict = { 0 };
    struct db *db;
    struct err err;

    CHECK_OK(store_open_alone(&db, path, false, &err), &err);
    CHECK_OK(audit_verify(db, &verdict, &err), &err);
    store_close_alone(db);
    return verdict;
}

/* ---- the format ---- */

static void put_be(EVP_MD_CTX *ctx, uint64_t num)
{
    for (int shift = 56; shift >= 0; shift -= 8) {
        unsigned char byte = (unsigned char)(num >> shift);

        EVP_DigestUpdate(ctx, &byte, 1);
    }
}

/* Written from the description in audit.c's head, not from its code. */
static void expected_hash(const unsigned char before[32], int64_t seq, const struct audit *row,
                          unsigned char out[32])
{
    const char *texts[] = { row->tenant,  row->actor,      row->role, row->action, row->object,
                            row->outcome, row->request_id, row->peer, row->detail };
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
    EVP_DigestUpdate(ctx, before, 32);
    put_be(ctx, (uint64_t)seq);
    put_be(ctx, (uint64_t)row->at_ms);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        put_be(ctx, strlen(texts[i]));
        EVP_DigestUpdate(ctx, texts[i], strlen(texts[i]));
    }
    EVP_DigestFinal_ex(ctx, out, NULL);
    EVP_MD_CTX_free(ctx);
}

struct listed {
    int64_t first, last;
    unsigned count;
    unsigned char hash[32];
    bool compare;
};

static void on_row(void *ctx, const struct audit *row, const char *hash_hex)
{
    struct listed *listed = ctx;

    if (!listed->count++)
        listed->first = row->seq;
    CHECK(listed->count == 1 || row->seq > listed->last);
    listed->last = row->seq;
    if (listed->compare) {
        char hex[SHA256_HEX_SIZE];

        expected_hash(listed->hash, row->seq, row, listed->hash);
        hex_text(listed->hash, 32, hex);
        CHECK_STR(hash_hex, hex);
    }
}

static struct listed list(struct db *db, const char *tenant, int64_t since, unsigned limit)
{
    struct listed listed = { 0 };
    struct err err;

    CHECK_OK(audit_list(db, tenant, since, limit, on_row, &listed, &err), &err);
    return listed;
}

TEST(the_chain_is_what_the_description_says)
{
    autofree char *path = make(ROWS);
    struct listed listed = { .compare = true };
    struct audit_verdict verdict = verify(path);
    char hex[SHA256_HEX_SIZE];
    struct db *db;
    struct err err;

    CHECK_OK(store_open_alone(&db, path, false, &err), &err);
    CHECK_OK(audit_list(db, NULL, -1, 1000, on_row, &listed, &err), &err);
    store_close_alone(db);
    CHECK_INT(listed.count, ROWS);
    hex_text(listed.hash, 32, hex);
    CHECK_INT(verdict.bad_seq, 0);
    CHECK_INT(verdict.rows, ROWS);
    CHECK_STR(verdict.why, "");
    CHECK_STR(verdict.head, hex);
}

TEST(an_empty_chain_is_whole)
{
    autofree char *path = make(0);
    struct audit_verdict verdict = verify(path);

    CHECK_INT(verdict.bad_seq, 0);
    CHECK_INT(verdict.rows, 0);
}

/* Moving bytes from one field to the next must change the hash. */
TEST(fields_cannot_flow_into_each_other)
{
    struct audit one = sample, two = sample;
    unsigned char before[32] = { 0 }, a[32], b[32];

    one.actor = "ab", one.role = "c";
    two.actor = "a", two.role = "bc";
    expected_hash(before, 1, &one, a);
    expected_hash(before, 1, &two, b);
    CHECK(memcmp(a, b, 32) != 0);
    autofree char *path = test_path("db");
    struct db *db;
    struct err err;
    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    CHECK_OK(audit_add(db, &one, &err), &err);
    store_close_alone(db);
    tamper(path, "UPDATE audit SET actor = 'a', role = 'bc'");
    CHECK_INT(verify(path).bad_seq, 1);
}

TEST(listing_from_the_end_and_onwards)
{
    autofree char *path = make(ROWS);
    struct db *db;
    struct err err;

    CHECK_OK(store_open_alone(&db, path, false, &err), &err);
    struct listed newest = list(db, NULL, -1, 5);
    CHECK(newest.count == 5 && newest.first == 16 && newest.last == 20);
    struct listed oldest = list(db, NULL, 0, 5);
    CHECK(oldest.count == 5 && oldest.first == 1 && oldest.last == 5);
    struct listed onwards = list(db, NULL, 3, 5);
    CHECK(onwards.count == 5 && onwards.first == 4 && onwards.last == 8);
    struct listed theirs = list(db, "other", 0, 100); /* 1, 4, 7, … 19 */
    CHECK(theirs.count == 7 && theirs.first == 1 && theirs.last == 19);
    struct listed some = list(db, "other", 4, 2);
    CHECK(some.count == 2 && some.first == 7 && some.last == 10);
    struct listed few = list(db, "other", -1, 2);
    CHECK(few.count == 2 && few.first == 16 && few.last == 19);
    CHECK_INT(list(db, "nobody", 0, 10).count, 0);
    CHECK_INT(list(db, NULL, 20, 10).count, 0);
    store_close_alone(db);
}

TEST(a_row_has_a_largest_size)
{
    autofree char *path = test_path("db");
    static char big[AUDIT_ROW_MAX];
    struct audit row = { .tenant = "default", .detail = big };
    struct db *db;
    struct err err = { 0 };

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    size_t rest = SHA256_SIZE + 2 * 8 + 9 * 8 + strlen("default");
    memset(big, 'x', AUDIT_ROW_MAX - rest);
    CHECK_OK(audit_add(db, &row, &err), &err);
    big[AUDIT_ROW_MAX - rest] = 'x';
    CHECK_INT(audit_add(db, &row, &err), -1);
    CHECK_INT(err.code, ERR_LIMIT);
    store_close_alone(db);
    CHECK_INT(verify(path).rows, 1);
}

TEST(triggers_refuse_changes)
{
    static const char *const tries[] = {
        "UPDATE audit SET actor = 'x' WHERE seq = 1",
        "UPDATE audit SET hash = 'x'",
        "DELETE FROM audit WHERE seq = 3",
        "DELETE FROM audit",
        "REPLACE INTO audit SELECT * FROM audit WHERE seq = 2",
        "INSERT OR REPLACE INTO audit SELECT 5, 1, '', '', '', '', '', '', '', '', '', ''",
        "DELETE FROM audit_head",
    };
    autofree char *path = make(5);
    struct db *db;
    struct err err = { 0 };

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    for (size_t i = 0; i < ARRAY_LEN(tries); i++) {
        if (db->engine->script(db, tries[i], &err) == 0)
            test_fail(__FILE__, __LINE__, "not refused: %s", tries[i]);
        CHECK_INT(err.code, ERR_CONFLICT);
        CHECK(strstr(err.msg, "never") != NULL);
    }
    store_close_alone(db);
    CHECK_INT(verify(path).rows, 5);
}

/* A row whose number was taken and then lost. */
static int add_with_a_gap(struct db *db, void *ctx, struct err *err)
{
    if (audit_add(db, &sample, err) < 0)
        return -1;
    db->audit_head.seq += *(int *)ctx;
    return audit_add(db, &sample, err);
}

TEST(rows_are_added_at_the_end_and_nowhere_else)
{
    autofree char *path = make(5);
    struct db *db;
    struct err err = { 0 };

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    for (int gap = -1; gap <= 1; gap += 2) {
        CHECK_INT(test_alone(db, add_with_a_gap, &gap, &err), -1);
        CHECK(strstr(err.msg, "is not the next one") != NULL);
    }
    CHECK_OK(test_alone(db, add_with_a_gap, &(int){ 0 }, &err), &err);
    store_close_alone(db);
    CHECK_INT(verify(path).rows, 7);
}

/* ---- tampering ---- */

TEST(every_kind_of_tampering_is_found_at_the_right_row)
{
    static const struct {
        const char *sql;
        int64_t bad;
        const char *why;
    } cases[] = {
        { "UPDATE audit SET actor = 'x' WHERE seq = 7", 7, "row 7 was edited" },
        { "UPDATE audit SET at_ms = at_ms + 1 WHERE seq = 1", 1, "row 1 was edited" },
        { "UPDATE audit SET tenant = 'x' WHERE seq = 8", 8, "row 8 was edited" },
        { "UPDATE audit SET role = 'x' WHERE seq = 9", 9, "row 9 was edited" },
        { "UPDATE audit SET action = 'x' WHERE seq = 10", 10, "row 10 was edited" },
        { "UPDATE audit SET object = 'x' WHERE seq = 11", 11, "row 11 was edited" },
        { "UPDATE audit SET outcome = 'x' WHERE seq = 12", 12, "row 12 was edited" },
        { "UPDATE audit SET request_id = 'x' WHERE seq = 13", 13, "row 13 was edited" },
        { "UPDATE audit SET peer = '' WHERE seq = 14", 14, "row 14 was edited" },
        { "UPDATE audit SET detail = '{ }' WHERE seq = 20", 20, "row 20 was edited" },
        { "UPDATE audit SET hash = 'zz' WHERE seq = 4", 4, "row 4 was edited" },
        { "UPDATE audit SET hash = (SELECT hash FROM audit WHERE seq = 5) WHERE seq = 4", 4,
          "row 4 was edited" },
        { "DELETE FROM audit WHERE seq = 1", 1, "row 1 is missing" },
        { "DELETE FROM audit WHERE seq = 6", 6, "row 6 is missing" },
        { "DELETE FROM audit WHERE seq IN (5, 6, 7)", 5, "rows 5..7 are missing" },
        { "DELETE FROM audit WHERE seq = 20", 20, "truncated after row 19" },
        { "DELETE FROM audit WHERE seq > 12", 13, "truncated after row 12" },
        { "DELETE FROM audit", 1, "truncated after row 0" },
        /* removed, and the rest moved down to hide it */
        { "DELETE FROM audit WHERE seq = 6;"
          "UPDATE audit SET seq = seq - 1 WHERE seq > 6;",
          6, "row 6 was edited" },
        /* neighbours, and rows further apart, that changed places */
        { "UPDATE audit SET seq = -1 WHERE seq = 5; UPDATE audit SET seq = 5 WHERE seq = 6;"
          "UPDATE audit SET seq = 6 WHERE seq = -1;",
          5, "rows 5 and 6 were reordered" },
        { "UPDATE audit SET seq = -1 WHERE seq = 5; UPDATE audit SET seq = 5 WHERE seq = 11;"
          "UPDATE audit SET seq = 11 WHERE seq = -1;",
          5, "rows 5 and 11 were reordered" },
        /* one too many, in the middle and at the end */
        { "UPDATE audit SET seq = -seq WHERE seq >= 9; UPDATE audit SET seq = 1 - seq WHERE seq < "
          "0;"
          "INSERT INTO audit SELECT 9, at_ms, tenant, actor, role, action, object, outcome,"
          " request_id, peer, detail, hash FROM audit WHERE seq = 3;",
          9, "row 9 was inserted" },
        { "INSERT INTO audit SELECT 21, at_ms, tenant, actor, role, action, object, outcome,"
          " request_id, peer, detail, hash FROM audit WHERE seq = 3;",
          21, "row 21 was edited" },
        { "INSERT INTO audit SELECT 0, at_ms, tenant, actor, role, action, object, outcome,"
          " request_id, peer, detail, hash FROM audit WHERE seq = 3;",
          0, "row 0 was inserted" },
        /* the head itself */
        { "UPDATE audit_head SET seq = 25", 21, "truncated after row 20" },
        { "UPDATE audit_head SET seq = 15", 16, "row 16 was inserted after the end" },
        { "UPDATE audit_head SET hash = (SELECT hash FROM audit WHERE seq = 19)", 20,
          "row 20 was edited" },
        { "UPDATE audit_head SET hash = 'short'", 20, "head of the chain was removed" },
        { "DELETE FROM audit_head", 20, "head of the chain was removed" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autofree char *path = make(ROWS);

        tamper(path, cases[i].sql);
        struct audit_verdict verdict = verify(path);
        if (verdict.bad_seq != cases[i].bad || !strstr(verdict.why, cases[i].why))
            test_fail(__FILE__, __LINE__, "%s: row %lld, \"%s\"", cases[i].sql,
                      (long long)verdict.bad_seq, verdict.why);
    }
}

/* A NULL where an empty text was: the column forbids it, a writable schema does not. */
TEST(nothing_is_not_the_same_as_an_empty_text)
{
    autofree char *path = test_path("db");
    struct audit row = { .tenant = "default" };
    struct db *db;
    struct err err;

    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    CHECK_OK(audit_add(db, &row, &err), &err);
    store_close_alone(db);
    CHECK_INT(verify(path).bad_seq, 0);
    tamper(path, "CREATE TABLE copy AS SELECT * FROM audit; DROP TABLE audit;"
                 "ALTER TABLE copy RENAME TO audit; UPDATE audit SET peer = NULL;");
    CHECK_INT(verify(path).bad_seq, 1);
}

TEST(any_random_edit_is_found)
{
    static const char *const columns[] = { "tenant",  "actor",      "role", "action", "object",
                                           "outcome", "request_id", "peer", "detail" };
    autofree char *path = make(ROWS);

    tamper(path, "CREATE TABLE original AS SELECT * FROM audit");
    for (int round = 0; round < 50; round++) {
        int64_t seq = 1 + test_rand(ROWS);
        /* check-style: allow sql: what a tamperer types */
        autofree char *sql = xprintf("DELETE FROM audit; INSERT INTO audit SELECT * FROM original;"
                                     "UPDATE audit SET %s = %s || char(%u) WHERE seq = %lld",
                                     columns[test_rand(9)], columns[test_rand(9)],
                                     33 + test_rand(90), (long long)seq);
        sqlite3 *raw;

        CHECK(sqlite3_open(path, &raw) == SQLITE_OK);
        CHECK(sqlite3_exec(raw, sql, NULL, NULL, NULL) == SQLITE_OK);
        sqlite3_close(raw);
        CHECK_INT(verify(path).bad_seq, seq);
    }
}

/* Whoever rewrites the whole chain is caught only by a head that was noted elsewhere. */
TEST(a_noted_head_detects_rollback_and_a_new_chain)
{
    autofree char *path = make(ROWS);
    autofree char *shorter = make(ROWS - 5);
    struct audit_verdict noted = verify(path), verdict = { 0 };
    struct str head = str_of(noted.head);
    struct db *db;
    struct err err = { 0 };

    CHECK_OK(store_open_alone(&db, path, false, &err), &err);
    CHECK_OK(audit_verify_against(db, ROWS, head, &verdict, &err), &err);
    CHECK_INT(verdict.bad_seq, 0);
    CHECK_OK(audit_verify_against(db, ROWS - 1, head, &verdict, &err), &err);
    CHECK_INT(verdict.bad_seq, ROWS - 1);
    CHECK(strstr(verdict.why, "not the one that was noted") != NULL);
    CHECK_INT(audit_verify_against(db, 0, head, &verdict, &err), -1);
    CHECK_INT(audit_verify_against(db, 1, STR("abc"), &verdict, &err), -1);
    CHECK_INT(err.code, ERR_INVALID);
    store_close_alone(db);

    CHECK_OK(store_open_alone(&db, shorter, false, &err), &err); /* an older backup put in place */
    CHECK_OK(audit_verify(db, &verdict, &err), &err);
    CHECK_INT(verdict.bad_seq, 0);
    CHECK_OK(audit_verify_against(db, ROWS, head, &verdict, &err), &err);
    CHECK_INT(verdict.bad_seq, ROWS - 4);
    CHECK(strstr(verdict.why, "truncated after row 15: the noted head") != NULL);
    store_close_alone(db);
}

/* Whoever broke the chain must not get it continued as if nothing had happened. */
TEST(nothing_is_added_to_a_chain_without_its_head)
{
    autofree char *path = make(5);
    struct db *db;
    struct err err = { 0 };

    tamper(path, "UPDATE audit_head SET hash = 'gone'");
    CHECK_OK(store_open_alone(&db, path, true, &err), &err);
    CHECK_INT(audit_add(db, &sample, &err), -1);
    CHECK(strstr(err.msg, "missing or damaged") != NULL);
    store_close_alone(db);
}

/* On the file of a running server: the log is read too, and the verdict is of one moment. */
TEST(a_live_store_can_be_verified_from_outside)
{
    autofree char *path = test_path("db");
    struct err err;
    int rows = 3;

    test_open(path, NULL, NULL);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(test_write(add_rows, &rows, &err), &err);
        struct audit_verdict verdict = verify(path);
        CHECK_INT(verdict.bad_seq, 0);
        CHECK_INT(verdict.rows, rows * (i + 1));
    }
    test_close();
}
