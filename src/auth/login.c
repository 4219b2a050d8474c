/*
 * A browser comes in by a link that works once: the code in it is kept as a hash, marked as used in
 * the same statement that finds it, and exchanged for a session. The session's secret is the
 * cookie; what proves that a change comes from our own page is the CSRF value, an HMAC under that
 * secret, which another site can neither read nor compute.
 *
 * Also here: nonces of signed requests, the third thing that may be used once.
 */
#include "auth/own.h"

#include "base/clock.h"

static int check_room(struct query *q, int64_t max, const char *what, struct err *err)
{
    if (query_step(q, err) < 0)
        return -1;
    if (query_col_i64(q, 0) >= max)
        return err_set(err, ERR_LIMIT, "there are %lld %s already", (long long)max, what);
    return 0;
}

int login_link(struct db *db, const char *tenant, enum role role, char code[TOKEN_TEXT_SIZE],
               struct err *err)
{
    int64_t now_ms = clock_wall_ms();
    unsigned char hash[SHA256_SIZE];
    char text[TOKEN_TEXT_SIZE];
    autoquery struct query *count =
        db_query(db, "SELECT COUNT(*) FROM login_code WHERE used_ms = 0 AND expires_ms > $1");

    query_i64(count, 1, now_ms);
    if (check_room(count, LOGIN_CODES_MAX, "unused login links", err) < 0 ||
        tenant_ensure(db, tenant, err) < 0)
        return err_wrap(err, "login link");
    secret_make(LOGIN_PREFIX, text, hash);
    autoquery struct query *q = db_query(
        db, "INSERT INTO login_code (hash, tenant, role, expires_ms) VALUES ($1, $2, $3, $4)");
    query_blob(q, 1, hash, sizeof(hash));
    query_text(q, 2, tenant);
    query_text(q, 3, role_name(role));
    query_i64(q, 4, now_ms + LOGIN_LINK_MS);
    int rc = query_run(q, err);
    if (rc >= 0)
        memcpy(code, text, sizeof(text));
    explicit_bzero(text, sizeof(text));
    return rc < 0 ? err_wrap(err, "login link") : 0;
}

static int refused(struct err *err)
{
    return err_set(err, ERR_UNAUTHENTICATED, "the login link is unknown, used or expired");
}

/* Marks the code and learns whom it lets in, in one statement: two browsers cannot both win. */
static int use_code(struct db *db, struct str code, int64_t now_ms, struct session_row *row,
                    struct err *err)
{
    unsigned char hash[SHA256_SIZE];

    if (!secret_shaped(code, LOGIN_PREFIX))
        return refused(err);
    sha256(code.p, code.n, hash);
    autoquery struct query *q =
        db_query(db, "UPDATE login_code SET used_ms = $1 WHERE hash = $2 AND used_ms = 0"
                     " AND expires_ms > $3 RETURNING tenant, role");
    query_i64(q, 1, now_ms);
    query_blob(q, 2, hash, sizeof(hash));
    query_i64(q, 3, now_ms);
    int rc = query_step(q, err);
    if (rc < 0)
        return err_wrap(err, "login");
    if (rc == 0)
        return refused(err);
    struct str tenant = query_col_str(q, 0);
    if (tenant.n >= sizeof(row->tenant) || !role_parse(query_col_str(q, 1), &row->role))
        return err_set(err, ERR_INTERNAL, "a login code is not readable");
    memcpy(row->tenant, tenant.p, tenant.n);
    /* To the end, or the statement has not taken effect everywhere it must. */
    return query_step(q, err) < 0 ? -1 : 0;
}

static int insert_session(struct db *db, const struct session_row *row, int64_t now_ms,
                          struct err *err)
{
    autoquery struct query *q =
        db_query(db, "INSERT INTO session (id, tenant, role, hash, csrf, created_ms, expires_ms)"
                     " VALUES ($1, $2, $3, $4, $5, $6, $7)");
    query_text(q, 1, row->id);
    query_text(q, 2, row->tenant);
    query_text(q, 3, role_name(row->role));
    query_blob(q, 4, row->hash, sizeof(row->hash));
    query_blob(q, 5, row->csrf, sizeof(row->csrf));
    query_i64(q, 6, now_ms);
    query_i64(q, 7, row->expires_ms);
    return query_run(q, err);
}

/* Fills the rest of *row in: an id with this beginning, and a secret. */
static int make_session(struct db *db, const char *prefix, struct session_row *row,
                        char cookie[TOKEN_TEXT_SIZE], struct err *err)
{
    int64_t now_ms = clock_wall_ms();
    char text[TOKEN_TEXT_SIZE];
    autoquery struct query *count =
        db_query(db, "SELECT COUNT(*) FROM session WHERE ended_ms = 0 AND expires_ms > $1");

    query_i64(count, 1, now_ms);
    if (check_room(count, SESSIONS_MAX, "browser sessions", err) < 0)
        return -1;
    id_make(row->id, prefix);
    secret_make(SESSION_PREFIX, text, row->hash);
    hmac_sha256((struct str){ text, sizeof(text) - 1 }, STR("atoll-csrf-v1"), row->csrf);
    int rc = insert_session(db, row, now_ms, err);
    if (rc >= 0)
        memcpy(cookie, text, sizeof(text));
    explicit_bzero(text, sizeof(text));
    return rc < 0 ? err_wrap(err, "login") : 0;
}

int login_exchange(struct db *db, const char *code, struct session_row *out,
                   char cookie[TOKEN_TEXT_SIZE], struct err *err)
{
    int64_t now_ms = clock_wall_ms();
    struct session_row row = { .expires_ms = now_ms + LOGIN_SESSION_MS };

    if (use_code(db, str_of(code), now_ms, &row, err) < 0 ||
        make_session(db, "ses", &row, cookie, err) < 0)
        return -1;
    *out = row;
    return 0;
}

/* ---- other tenants ---- */

bool principal_visits(const struct principal *who)
{
    if (who->via == VIA_COOKIE && str_starts(str_of(who->id), STR(VISIT_PREFIX)))
        return true;
    return who->role == ROLE_ADMIN && strcmp(who->tenant, TENANT_OWNER) == 0;
}

int session_move(struct db *db, const struct principal *who, const char *tenant,
                 struct session_row *out, char cookie[TOKEN_TEXT_SIZE], struct err *err)
{
    struct session_row row = { .role = who->role, .expires_ms = who->expires_ms };
    bool home = strcmp(tenant, TENANT_OWNER) == 0;
    autoquery struct query *q = db_query(db, "SELECT 1 FROM tenant WHERE id = $1");

    query_text(q, 1, tenant);
    int rc = query_step(q, err);
    if (rc < 0)
        return -1;
    if (rc == 0 || strlen(tenant) > TENANT_MAX)
        return err_set(err, ERR_NOT_FOUND, "there is no tenant %.64s", tenant);
    memcpy(row.tenant, tenant, strlen(tenant));
    if (make_session(db, home ? "ses" : VISIT_PREFIX, &row, cookie, err) < 0 ||
        session_end(db, who->id, err) < 0)
        return -1;
    *out = row;
    return 0;
}

int tenant_each(struct db *db, void (*fn)(void *ctx, struct str tenant), void *ctx, struct err *err)
{
    autoquery struct query *q = db_query(db, "SELECT id FROM tenant ORDER BY id");
    int rc;

    while ((rc = query_step(q, err)) > 0)
        fn(ctx, query_col_str(q, 0));
    return rc;
}

int session_end(struct db *db, const char *id, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "UPDATE session SET ended_ms = $1 WHERE id = $2 AND ended_ms = 0");

    query_i64(q, 1, clock_wall_ms());
    query_text(q, 2, id);
    int rows = query_run(q, err);
    if (rows < 0)
        return err_wrap(err, "end session");
    return rows ? 0 : err_set(err, ERR_NOT_FOUND, "there is no such session");
}

int session_each_live(struct db *db, int64_t now_ms,
                      void (*fn)(void *ctx, const struct session_row *row), void *ctx,
                      struct err *err)
{
    int rc;
    autoquery struct query *q =
        db_query(db, "SELECT id, tenant, role, hash, csrf, expires_ms FROM session"
                     " WHERE ended_ms = 0 AND expires_ms > $1 ORDER BY id");
    query_i64(q, 1, now_ms);
    while ((rc = query_step(q, err)) > 0) {
        struct str id = query_col_str(q, 0), tenant = query_col_str(q, 1);
        struct str hash = query_col_str(q, 3), csrf = query_col_str(q, 4);
        struct session_row row = { .expires_ms = query_col_i64(q, 5) };

        if (id.n >= sizeof(row.id) || tenant.n >= sizeof(row.tenant) ||
            !role_parse(query_col_str(q, 2), &row.role) || hash.n != sizeof(row.hash) ||
            csrf.n != sizeof(row.csrf))
            return err_set(err, ERR_INTERNAL, "a session is not readable");
        memcpy(row.id, id.p, id.n);
        memcpy(row.tenant, tenant.p, tenant.n);
        memcpy(row.hash, hash.p, hash.n);
        memcpy(row.csrf, csrf.p, csrf.n);
        fn(ctx, &row);
    }
    return rc;
}

void session_csrf(const struct session_row *row, char out[65])
{
    hex_text(row->csrf, sizeof(row->csrf), out);
}

int auth_nonce_put(struct db *db, const char *nonce_key, struct err *err)
{
    struct err why = { 0 };
    autoquery struct query *q = db_query(db, "INSERT INTO nonce (key, at_ms) VALUES ($1, $2)");

    query_text(q, 1, nonce_key);
    query_i64(q, 2, clock_wall_ms());
    if (query_run(q, &why) >= 0)
        return 0;
    if (why.code == ERR_CONFLICT)
        return err_set(err, ERR_UNAUTHENTICATED, "this signed request was made before");
    if (err)
        *err = why;
    return err_wrap(err, "remember nonce");
}
