/*
 * Token rows. A revoked token keeps its row, for the list and for the audit; its name is free
 * again. One that merely expired gives its name up when somebody wants it.
 */
#include "auth/own.h"

#include <stdio.h>

#include "base/clock.h"

#define COLUMNS                                                                                    \
    "id, name, tenant, role, scopes, hash, sign_key, signing, created_ms, expires_ms,"             \
    " revoked_ms, used_ms"

static bool copy_text(struct query *q, int col, char *out, size_t size)
{
    struct str text = query_col_str(q, col);

    if (!text.p || text.n >= size || str_has_nul(text))
        return false;
    memcpy(out, text.p, text.n);
    out[text.n] = 0;
    return true;
}

static bool copy_key(struct query *q, int col, unsigned char out[SHA256_SIZE])
{
    struct str blob = query_col_str(q, col);

    if (blob.n != SHA256_SIZE)
        return false;
    memcpy(out, blob.p, SHA256_SIZE);
    return true;
}

/* A row that does not fit is our own mistake or somebody else's hand in the file: not usable. */
static int read_row(struct query *q, struct token_row *row, struct err *err)
{
    *row = (struct token_row){ .signing = query_col_i64(q, 7) != 0,
                               .created_ms = query_col_i64(q, 8),
                               .expires_ms = query_col_i64(q, 9),
                               .revoked_ms = query_col_i64(q, 10),
                               .used_ms = query_col_i64(q, 11) };
    bool fits = copy_text(q, 0, row->id, sizeof(row->id)) &&
                copy_text(q, 1, row->name, sizeof(row->name)) &&
                copy_text(q, 2, row->tenant, sizeof(row->tenant)) &&
                copy_text(q, 4, row->scopes, sizeof(row->scopes)) &&
                role_parse(query_col_str(q, 3), &row->role) && copy_key(q, 5, row->hash) &&
                (!row->signing || copy_key(q, 6, row->sign_key));

    return fits ? 0 : err_set(err, ERR_INTERNAL, "token \"%s\" is not readable", row->id);
}

int tenant_ensure(struct db *db, const char *tenant, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "INSERT INTO tenant (id) VALUES ($1) ON CONFLICT (id) DO NOTHING");

    query_text(q, 1, tenant);
    return query_run(q, err);
}

/* ---- making ---- */

static int insert(struct db *db, const struct token_row *row, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "INSERT INTO token (" COLUMNS ")"
                     " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, 0)");
    query_text(q, 1, row->id);
    query_text(q, 2, row->name);
    query_text(q, 3, row->tenant);
    query_text(q, 4, role_name(row->role));
    query_text(q, 5, row->scopes);
    query_blob(q, 6, row->hash, sizeof(row->hash));
    if (row->signing)
        query_blob(q, 7, row->sign_key, sizeof(row->sign_key));
    else
        query_text(q, 7, NULL);
    query_i64(q, 8, row->signing);
    query_i64(q, 9, row->created_ms);
    query_i64(q, 10, row->expires_ms);
    if (query_run(q, err) >= 0)
        return 0;
    if (err && err->code == ERR_CONFLICT)
        return err_set(err, ERR_CONFLICT, "a token named \"%s\" exists", row->name);
    return -1;
}

static int check_count(struct db *db, int64_t now_ms, struct err *err)
{
    autoquery struct query *q = db_query(
        db,
        "SELECT COUNT(*) FROM token WHERE revoked_ms = 0 AND (expires_ms = 0 OR expires_ms > $1)");

    query_i64(q, 1, now_ms);
    if (query_step(q, err) < 0)
        return -1;
    if (query_col_i64(q, 0) >= TOKENS_MAX)
        return err_set(err, ERR_LIMIT, "there are %d tokens already; revoke some", TOKENS_MAX);
    return 0;
}

/* Ends an expired token of that name, so that the name can be used again. */
static int free_name(struct db *db, const struct token_row *wish, int64_t now_ms, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "UPDATE token SET revoked_ms = expires_ms WHERE tenant = $1 AND name = $2"
                     " AND revoked_ms = 0 AND expires_ms > 0 AND expires_ms <= $3");
    query_text(q, 1, wish->tenant);
    query_text(q, 2, wish->name);
    query_i64(q, 3, now_ms);
    return query_run(q, err);
}

int token_create(struct db *db, const struct token_row *wish, struct token_row *out,
                 char plain[TOKEN_TEXT_SIZE], struct err *err)
{
    struct token_row row = *wish;
    char text[TOKEN_TEXT_SIZE];

    if (!wish->name[0])
        return err_field(err, "name", "a token needs a name");
    if (strcmp(role_name(wish->role), "nobody") == 0)
        return err_field(err, "role", "unknown role");
    if (!row.tenant[0])
        snprintf(row.tenant, sizeof(row.tenant), "%s", TENANT_DEFAULT);
    row.created_ms = clock_wall_ms();
    row.revoked_ms = row.used_ms = 0;
    if (row.expires_ms && row.expires_ms <= row.created_ms)
        return err_field(err, "expires", "a token cannot expire in the past");
    if (check_count(db, row.created_ms, err) < 0 || tenant_ensure(db, row.tenant, err) < 0 ||
        free_name(db, &row, row.created_ms, err) < 0)
        return err_wrap(err, "create token");
    id_make(row.id, "tok");
    secret_make(TOKEN_PREFIX, text, row.hash);
    memset(row.sign_key, 0, sizeof(row.sign_key));
    if (row.signing)
        hmac_sha256((struct str){ text, sizeof(text) - 1 }, STR("atoll-sign-v1"), row.sign_key);
    int rc = insert(db, &row, err);
    if (rc == 0) {
        *out = row;
        memcpy(plain, text, sizeof(text));
    }
    explicit_bzero(text, sizeof(text));
    return rc;
}

/* ---- the owner's token ---- */

static int find_by_hash(struct db *db, const unsigned char hash[32], struct token_row *out,
                        struct err *err)
{
    autoquery struct query *q = db_query(db, "SELECT " COLUMNS " FROM token WHERE hash = $1");

    query_blob(q, 1, hash, SHA256_SIZE);
    int rc = query_step(q, err);
    if (rc <= 0)
        return rc;
    return read_row(q, out, err) < 0 ? -1 : 1;
}

static int end_older_bootstrap(struct db *db, int64_t now_ms, struct err *err)
{
    autoquery struct query *q = db_query(db, "UPDATE token SET revoked_ms = $1 WHERE tenant = $2"
                                             " AND name = 'bootstrap' AND revoked_ms = 0");
    query_i64(q, 1, now_ms);
    query_text(q, 2, TENANT_DEFAULT);
    return query_run(q, err);
}

int token_bootstrap(struct db *db, const unsigned char hash[32], struct token_row *out,
                    struct err *err)
{
    struct token_row row = { .name = "bootstrap", .tenant = TENANT_DEFAULT, .role = ROLE_ADMIN };
    int found = find_by_hash(db, hash, &row, err);

    if (found < 0)
        return err_wrap(err, "owner's token");
    if (found && row.revoked_ms)
        return err_set(err, ERR_CONFLICT, "the owner's token was revoked");
    if (!found) {
        row.created_ms = clock_wall_ms();
        id_make(row.id, "tok");
        memcpy(row.hash, hash, sizeof(row.hash));
        if (tenant_ensure(db, row.tenant, err) < 0 ||
            end_older_bootstrap(db, row.created_ms, err) < 0 || insert(db, &row, err) < 0)
            return err_wrap(err, "owner's token");
    }
    *out = row;
    return 0;
}

/* ---- reading ---- */

static int each(struct query *q, void (*fn)(void *ctx, const struct token_row *row), void *ctx,
                struct err *err)
{
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        struct token_row row;

        if (read_row(q, &row, err) < 0)
            return -1;
        fn(ctx, &row);
        explicit_bzero(row.sign_key, sizeof(row.sign_key));
    }
    return rc;
}

int token_list(struct db *db, const char *tenant,
               void (*fn)(void *ctx, const struct token_row *row), void *ctx, struct err *err)
{
    int64_t shown_ms = clock_wall_ms() - TOKEN_SHOW_MS;
    autoquery struct query *q =
        db_query(db, "SELECT " COLUMNS " FROM token WHERE tenant = $1"
                     " AND (revoked_ms = 0 OR revoked_ms > $2)"
                     " AND (expires_ms = 0 OR expires_ms > $2) ORDER BY created_ms, id LIMIT $3");
    query_text(q, 1, tenant);
    query_i64(q, 2, shown_ms);
    query_i64(q, 3, TOKENS_MAX);
    return each(q, fn, ctx, err);
}

int token_each_live(struct db *db, int64_t now_ms,
                    void (*fn)(void *ctx, const struct token_row *row), void *ctx, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT " COLUMNS " FROM token WHERE revoked_ms = 0"
                     " AND (expires_ms = 0 OR expires_ms > $1) ORDER BY id");
    query_i64(q, 1, now_ms);
    return each(q, fn, ctx, err);
}

/* ---- ending ---- */

/* An id is preferred to a name that looks like one, and a live token to a revoked one. */
static int find_one(struct db *db, const char *tenant, const char *id_or_name,
                    struct token_row *out, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT " COLUMNS " FROM token WHERE tenant = $1 AND (id = $2 OR name = $2)"
                     " ORDER BY CASE WHEN id = $2 THEN 0 WHEN revoked_ms = 0 THEN 1 ELSE 2 END,"
                     " created_ms DESC LIMIT 1");
    query_text(q, 1, tenant);
    query_text(q, 2, id_or_name);
    int rc = query_step(q, err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no such token");
    return read_row(q, out, err);
}

int token_is_agent(struct db *db, const char *tenant, const char *name, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT 1 FROM token WHERE tenant = $1 AND name = $2 AND role = 'agent'"
                     " AND revoked_ms = 0 AND (expires_ms = 0 OR expires_ms > $3)");

    query_text(q, 1, tenant);
    query_text(q, 2, name);
    query_i64(q, 3, clock_wall_ms());
    return query_step(q, err);
}

int token_revoke(struct db *db, const char *tenant, const char *id_or_name, struct token_row *out,
                 struct err *err)
{
    struct token_row row;

    if (find_one(db, tenant, id_or_name, &row, err) < 0)
        return -1;
    if (row.revoked_ms)
        return err_set(err, ERR_CONFLICT, "token \"%s\" is revoked already", row.name);
    autoquery struct query *q =
        db_query(db, "UPDATE token SET revoked_ms = $1 WHERE id = $2 AND revoked_ms = 0");
    row.revoked_ms = clock_wall_ms();
    query_i64(q, 1, row.revoked_ms);
    query_text(q, 2, row.id);
    int rows = query_run(q, err);
    if (rows < 0)
        return err_wrap(err, "revoke token");
    if (rows == 0)
        return err_set(err, ERR_CONFLICT, "token \"%s\" is revoked already", row.name);
    *out = row;
    return 0;
}
