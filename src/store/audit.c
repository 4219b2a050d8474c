/*
 * The audit chain: h(n) = SHA-256(h(n-1) || canonical(row n)), h(0) = 32 zero bytes.
 *
 * canonical() writes each number as 8 bytes and each text as its length in 8 bytes and its bytes,
 * most significant first, in the order of struct audit. Two different rows can never give the same
 * bytes; a NULL, which we never write, has a length of its own. audit_head repeats number and hash
 * of the newest row, so that rows cut off at the end are missed.
 *
 * Whoever can write the file can compute a whole new chain. Against that helps only a head that
 * was noted somewhere else: audit_verify_against.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/limits.h"
#include "store/engine.h"
#include "store/store.h"

#define COLUMNS                                                                                    \
    "seq, at_ms, tenant, actor, role, action, object, outcome, request_id, peer, detail, hash"
#define TEXTS 9 /* of them, from tenant to detail */

/* How far ahead a displaced row is looked for, to say what happened; the verdict needs no such. */
#define LOOK_AHEAD_ROWS 10000

/* ---- the hash ---- */

static void put_u64(struct buf *out, uint64_t num)
{
    unsigned char bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(num >> (56 - 8 * i));
    buf_append(out, bytes, sizeof(bytes));
}

static void put_text(struct buf *out, struct str text)
{
    put_u64(out, text.p ? text.n : UINT64_MAX);
    buf_str(out, text);
}

/* buf's memory is reused from row to row. */
static void chain(struct buf *buf, const unsigned char before[SHA256_SIZE], int64_t seq,
                  int64_t at_ms, const struct str texts[TEXTS], unsigned char out[SHA256_SIZE])
{
    buf_clear(buf);
    buf_append(buf, before, SHA256_SIZE);
    put_u64(buf, (uint64_t)seq);
    put_u64(buf, (uint64_t)at_ms);
    for (int i = 0; i < TEXTS; i++)
        put_text(buf, texts[i]);
    sha256(buf->data, buf->len, out);
}

/* ---- adding ---- */

struct head {
    int64_t seq;
    unsigned char hash[SHA256_SIZE];
};

/* 0 when it is there and makes sense, 1 when not. */
static int read_head(struct db *db, struct head *out, struct err *err)
{
    autoquery struct query *q = db_query(db, "SELECT seq, hash FROM audit_head WHERE id = 1");
    int rc = query_step(q, err);

    if (rc < 0)
        return -1;
    if (rc == 0 || !hex_bytes(query_col_str(q, 1), out->hash, sizeof(out->hash)))
        return 1;
    out->seq = query_col_i64(q, 0);
    return 0;
}

static int know_head(struct db *db, struct err *err)
{
    struct head head;

    if (db->audit_head.known)
        return 0;
    int rc = read_head(db, &head, err);
    if (rc < 0)
        return -1;
    if (rc > 0)
        return err_set(err, ERR_INTERNAL, "the head of the audit chain is missing or damaged");
    db->audit_head = (struct audit_head){ .known = true, .seq = head.seq, .stored = head.seq };
    memcpy(db->audit_head.hash, head.hash, sizeof(head.hash));
    return 0;
}

struct audit_row {
    struct audit_row *next;
    int64_t seq, at_ms;
    struct str texts[TEXTS];
    char hex[SHA256_HEX_SIZE];
};

#define COLUMN_COUNT (TEXTS + 3)

static int insert(struct db *db, const struct audit_row **first, unsigned count, struct err *err)
{
    const struct audit_row *row = *first;
    autoquery struct query *q =
        db_query_rows(db, "audit (" COLUMNS ") VALUES", COLUMN_COUNT, count);

    for (int at = 0; count--; at += COLUMN_COUNT, row = row->next) {
        query_i64(q, at + 1, row->seq);
        query_i64(q, at + 2, row->at_ms);
        for (int text = 0; text < TEXTS; text++)
            query_lent(q, at + 3 + text, row->texts[text]);
        query_lent(q, at + COLUMN_COUNT, str_of(row->hex));
    }
    *first = row;
    return query_run(q, err) < 0 ? -1 : 0;
}

static int write_head(struct db *db, struct err *err)
{
    struct audit_head *head = &db->audit_head;
    char hex[SHA256_HEX_SIZE];
    autoquery struct query *q =
        db_query(db, "UPDATE audit_head SET seq = $1, hash = $2 WHERE id = 1 AND seq = $3");

    if (!head->moved)
        return 0;
    hex_text(head->hash, sizeof(head->hash), hex);
    query_i64(q, 1, head->seq);
    query_text(q, 2, hex);
    query_i64(q, 3, head->stored);
    int rows = query_run(q, err);
    if (rows == 0)
        return err_set(err, ERR_INTERNAL, "the head of the audit chain has moved");
    if (rows < 0)
        return -1;
    head->stored = head->seq;
    head->moved = false;
    return 0;
}

int audits_write(struct db *db, struct err *err)
{
    const struct audit_row *row = db->audits;
    unsigned left = 0;

    for (const struct audit_row *each = row; each; each = each->next)
        if (each->seq != db->audit_head.stored + ++left) /* a row is only ever added at the end */
            return err_set(err, ERR_INTERNAL, "audit row %lld is not the next one",
                           (long long)each->seq);
    for (unsigned count; left; left -= count) {
        count = rows_at_once(left);
        if (insert(db, &row, count, err) < 0)
            return err_wrap(err, "audit");
    }
    db->audits = NULL;
    db->audits_end = &db->audits;
    return write_head(db, err);
}

static struct str text_of(const char *text)
{
    return str_of(text ? text : "");
}

int audit_add(struct db *db, const struct audit *row, struct err *err)
{
    const struct str texts[TEXTS] = {
        text_of(row->tenant),     text_of(row->actor),  text_of(row->role),
        text_of(row->action),     text_of(row->object), text_of(row->outcome),
        text_of(row->request_id), text_of(row->peer),   text_of(row->detail),
    };
    int64_t at_ms = row->at_ms ? row->at_ms : clock_wall_ms();
    autobuf struct buf bytes = { .max = AUDIT_ROW_MAX };
    struct audit_head *head = &db->audit_head;
    unsigned char hash[SHA256_SIZE];

    if (db_check_job(db, err) < 0 || know_head(db, err) < 0)
        return -1;
    (void)buf_reserve(&bytes, 1024); /* as much as most have: once */
    chain(&bytes, head->hash, head->seq + 1, at_ms, texts, hash);
    if (!buf_ok(&bytes))
        return err_set(err, ERR_LIMIT, "an audit row may have %d bytes", AUDIT_ROW_MAX);
    struct audit_row *made = arena_raw(&db->redo.arena, sizeof(*made));
    *made = (struct audit_row){ .seq = ++head->seq, .at_ms = at_ms };
    head->moved = true;
    memcpy(head->hash, hash, sizeof(hash));
    hex_text(hash, sizeof(hash), made->hex);
    for (int i = 0; i < TEXTS; i++)
        made->texts[i] = arena_str(&db->redo.arena, texts[i]);
    *db->audits_end = made;
    db->audits_end = &made->next;
    return db->job ? 0 : audits_write(db, err);
}

/* ---- listing ---- */

static void give_row(struct query *q, void (*fn)(void *, const struct audit *, const char *),
                     void *ctx)
{
    /* SQLite's and libpq's texts end with a NUL. */
    struct audit row = {
        .seq = query_col_i64(q, 0),
        .at_ms = query_col_i64(q, 1),
        .tenant = query_col_str(q, 2).p,
        .actor = query_col_str(q, 3).p,
        .role = query_col_str(q, 4).p,
        .action = query_col_str(q, 5).p,
        .object = query_col_str(q, 6).p,
        .outcome = query_col_str(q, 7).p,
        .request_id = query_col_str(q, 8).p,
        .peer = query_col_str(q, 9).p,
        .detail = query_col_str(q, 10).p,
    };

    fn(ctx, &row, query_col_str(q, 11).p);
}

/*
 * Rows of the hub and all others have an index each, and every row is in one of them: these are the
 * words of the two (schema.c), or they are not used.
 */
#define OF_HUB "action >= 'hub.' AND action < 'hub/'"
#define NOT_OF_HUB "(action < 'hub.' OR action >= 'hub/')"
#define SOME_OF(which, order)                                                                      \
    "SELECT " COLUMNS " FROM (SELECT " COLUMNS " FROM audit WHERE tenant = $1 AND seq > $2"        \
    " AND " which " ORDER BY seq " order " LIMIT $3)"
#define OF_TENANT(order)                                                                           \
    SOME_OF(OF_HUB, order)                                                                         \
    " UNION ALL " SOME_OF(NOT_OF_HUB, order) " ORDER BY seq " order " LIMIT $3"

/* Four statements, because a condition that may be absent would cost the index. */
static const char *list_sql(bool one_tenant, bool from_end)
{
    if (one_tenant && from_end)
        return "SELECT " COLUMNS " FROM (" OF_TENANT("DESC") ") AS newest ORDER BY seq";
    if (one_tenant)
        return OF_TENANT("");
    if (from_end)
        return "SELECT " COLUMNS " FROM (SELECT " COLUMNS " FROM audit WHERE seq > $1"
               " ORDER BY seq DESC LIMIT $2) AS newest ORDER BY seq";
    return "SELECT " COLUMNS " FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2";
}

int audit_list(struct db *db, const char *tenant, int64_t since, unsigned limit,
               void (*fn)(void *ctx, const struct audit *row, const char *hash_hex), void *ctx,
               struct err *err)
{
    autoquery struct query *q = db_query(db, list_sql(tenant != NULL, since < 0));
    int rc, at = 1;

    if (tenant)
        query_text(q, at++, tenant);
    query_i64(q, at++, since);
    query_i64(q, at, limit);
    while ((rc = query_step(q, err)) > 0)
        give_row(q, fn, ctx);
    return rc;
}

int audit_list_hub(struct db *db, const char *tenant, unsigned limit,
                   void (*fn)(void *ctx, const struct audit *row, const char *hash_hex), void *ctx,
                   struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT " COLUMNS " FROM (SELECT " COLUMNS " FROM audit WHERE tenant = $1"
                     " AND " OF_HUB " ORDER BY seq DESC LIMIT $2) AS newest"
                     " ORDER BY seq");
    int rc;

    query_text(q, 1, tenant);
    query_i64(q, 2, limit);
    while ((rc = query_step(q, err)) > 0)
        give_row(q, fn, ctx);
    return rc;
}

/* ---- verifying ---- */

struct walk {
    struct db *db;
    struct audit_verdict *verdict;
    struct head last; /* the last row that fits */
    struct buf bytes;
    /* a head noted elsewhere, or seq 0 */
    struct head noted;
};

static int bad(struct walk *walk, int64_t seq, const char *why)
{
    walk->verdict->bad_seq = seq;
    snprintf(walk->verdict->why, sizeof(walk->verdict->why), "%s", why);
    return 1;
}

/* Does the row that the query stands on fit as number `seq` after `before`? */
static bool fits(struct walk *walk, struct query *q, int64_t seq,
                 const unsigned char before[SHA256_SIZE])
{
    struct str texts[TEXTS];
    unsigned char stored[SHA256_SIZE], computed[SHA256_SIZE];

    if (!hex_bytes(query_col_str(q, 11), stored, sizeof(stored)))
        return false;
    for (int i = 0; i < TEXTS; i++)
        texts[i] = query_col_str(q, 2 + i);
    chain(&walk->bytes, before, seq, query_col_i64(q, 1), texts, computed);
    return memcmp(stored, computed, sizeof(stored)) == 0;
}

/* Where does the row stand that belongs after walk->last? 0 when nowhere near. */
static int find_displaced(struct walk *walk, int64_t *out, struct err *err)
{
    int64_t want = walk->last.seq + 1;
    int rc;
    autoquery struct query *q =
        db_query(walk->db, "SELECT " COLUMNS " FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2");
    query_i64(q, 1, want);
    query_i64(q, 2, LOOK_AHEAD_ROWS);

    *out = 0;
    while ((rc = query_step(q, err)) > 0) {
        if (!fits(walk, q, want, walk->last.hash))
            continue;
        *out = query_col_i64(q, 0);
        return 0;
    }
    return rc;
}

/* Is the row at `at` the one that belonged at `home`, going by the hash of the row before that? */
static int belongs_at(struct walk *walk, int64_t at, int64_t home, bool *out, struct err *err)
{
    unsigned char before[SHA256_SIZE];
    int rc;
    autoquery struct query *prior = db_query(walk->db, "SELECT hash FROM audit WHERE seq = $1");
    autoquery struct query *q = db_query(walk->db, "SELECT " COLUMNS " FROM audit WHERE seq = $1");

    /* Two neighbours that changed places: the row before `home` now stands at `home`. */
    query_i64(prior, 1, home == at + 1 ? home : home - 1);
    query_i64(q, 1, at);
    *out = false;
    if ((rc = query_step(prior, err)) <= 0 || (rc = query_step(q, err)) <= 0)
        return rc;
    *out =
        hex_bytes(query_col_str(prior, 0), before, sizeof(before)) && fits(walk, q, home, before);
    return 0;
}

/* The row at `seq` does not fit after the last one that did: say what most likely happened. */
static int explain(struct walk *walk, int64_t seq, struct err *err)
{
    char why[160];
    int64_t displaced;
    bool swapped = false;

    if (find_displaced(walk, &displaced, err) < 0 ||
        (displaced && belongs_at(walk, seq, displaced, &swapped, err) < 0))
        return -1;
    if (swapped)
        snprintf(why, sizeof(why), "rows %lld and %lld were reordered", (long long)seq,
                 (long long)displaced);
    else if (displaced)
        snprintf(why, sizeof(why), "row %lld was inserted: what belongs there stands at %lld",
                 (long long)seq, (long long)displaced);
    else if (seq > 1)
        snprintf(why, sizeof(why), "row %lld was edited (or row %lld together with its hash)",
                 (long long)seq, (long long)seq - 1);
    else
        snprintf(why, sizeof(why), "row 1 was edited");
    return bad(walk, seq, why);
}

static int check_row(struct walk *walk, struct query *q, struct err *err)
{
    int64_t seq = query_col_i64(q, 0), want = walk->last.seq + 1;
    char why[160];

    if (seq < want) {
        snprintf(why, sizeof(why), "row %lld was inserted", (long long)seq);
        return bad(walk, seq, why);
    }
    if (seq > want) {
        if (seq == want + 1)
            snprintf(why, sizeof(why), "row %lld is missing", (long long)want);
        else
            snprintf(why, sizeof(why), "rows %lld..%lld are missing", (long long)want,
                     (long long)seq - 1);
        return bad(walk, want, why);
    }
    if (!fits(walk, q, seq, walk->last.hash))
        return explain(walk, seq, err);
    walk->last.seq = seq;
    walk->verdict->rows++;
    if (!hex_bytes(query_col_str(q, 11), walk->last.hash, sizeof(walk->last.hash)))
        return err_set(err, ERR_INTERNAL, "a hash that fits is not a hash");
    if (walk->noted.seq == seq && memcmp(walk->noted.hash, walk->last.hash, SHA256_SIZE) != 0) {
        snprintf(why, sizeof(why),
                 "row %lld is not the one that was noted: the chain up to it was made anew",
                 (long long)seq);
        return bad(walk, seq, why);
    }
    return 0;
}

/* The end of the rows against what should be the end. */
static int check_end(struct walk *walk, const struct head *head, const char *whose)
{
    char why[160];

    if (walk->last.seq < head->seq) {
        snprintf(why, sizeof(why), "truncated after row %lld: %s says there are %lld",
                 (long long)walk->last.seq, whose, (long long)head->seq);
        return bad(walk, walk->last.seq + 1, why);
    }
    return 0;
}

static int check_own_head(struct walk *walk, struct err *err)
{
    struct head head;
    char why[160];
    int rc = read_head(walk->db, &head, err);

    if (rc < 0)
        return -1;
    if (rc > 0)
        return bad(walk, walk->last.seq ? walk->last.seq : 1, "the head of the chain was removed");
    if (check_end(walk, &head, "the head of the chain"))
        return 1;
    if (walk->last.seq > head.seq) {
        snprintf(why, sizeof(why), "row %lld was inserted after the end", (long long)head.seq + 1);
        return bad(walk, head.seq + 1, why);
    }
    if (memcmp(walk->last.hash, head.hash, SHA256_SIZE) != 0) {
        snprintf(why, sizeof(why), "row %lld was edited: the head of the chain has another hash",
                 (long long)head.seq);
        return bad(walk, head.seq ? head.seq : 1, why);
    }
    return 0;
}

static int walk_rows(struct walk *walk, struct err *err)
{
    int rc, verdict;
    autoquery struct query *q = db_query(walk->db, "SELECT " COLUMNS " FROM audit ORDER BY seq");

    while ((rc = query_step(q, err)) > 0)
        if ((verdict = check_row(walk, q, err)) != 0)
            return verdict;
    return rc;
}

static int walk_all(struct walk *walk, struct err *err)
{
    int rc = walk_rows(walk, err);

    if (rc == 0)
        rc = check_own_head(walk, err);
    if (rc == 0)
        rc = check_end(walk, &walk->noted, "the noted head");
    hex_text(walk->last.hash, SHA256_SIZE, walk->verdict->head);
    return rc < 0 ? -1 : 0;
}

/* Rows and head must be seen at one moment, so outside of a transaction this opens one. */
static int verify(struct db *db, const struct head *noted, struct audit_verdict *out,
                  struct err *err)
{
    bool alone = !db_in_transaction(db);
    struct audit_verdict verdict = { 0 };
    struct walk walk = { .db = db, .verdict = &verdict, .noted = *noted };

    walk.bytes.max = SIZE_MAX / 2; /* whatever stands in the table, it must be hashed */
    if (alone && db_begin_read(db, err) < 0)
        return -1;
    int rc = walk_all(&walk, err);
    buf_free(&walk.bytes);
    if (alone)
        db_rollback(db);
    if (rc < 0)
        return err_wrap(err, "verify the audit chain");
    *out = verdict;
    return 0;
}

int audit_verify(struct db *db, struct audit_verdict *out, struct err *err)
{
    return verify(db, &(struct head){ 0 }, out, err);
}

int audit_verify_against(struct db *db, int64_t seq, struct str hash_hex, struct audit_verdict *out,
                         struct err *err)
{
    struct head noted = { .seq = seq };

    if (seq < 1 || !hex_bytes(hash_hex, noted.hash, sizeof(noted.hash)))
        return err_set(err, ERR_INVALID, "a noted head is a row number and 64 hex digits");
    return verify(db, &noted, out, err);
}
