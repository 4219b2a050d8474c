/* Rows of secrets. A row is of a value (`sealed`) or of an agent (`hash`); `kind` says which. */
#include "auth/vault.h"

#include <stdio.h>

#include "auth/own.h"
#include "base/clock.h"
#include "base/id.h"

#define COLUMNS                                                                                    \
    "name, tenant, kind, version, by, created_ms, changed_ms, hash, next, next_until_ms, use,"     \
    " hosts, placeholder"

int secret_name_check(const char *name, const char *field, struct err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_.-";
    size_t len = strlen(name);

    if (len == 0 || len > SECRET_NAME_MAX || strspn(name, letters) != len || name[0] == '.' ||
        name[0] == '-')
        return err_field(err, field,
                         "1 to %d letters, digits, '_', '.' and '-', not beginning with "
                         "the last two",
                         SECRET_NAME_MAX);
    return 0;
}

static bool copy_text(struct query *q, int col, char *out, size_t size)
{
    struct str text = query_col_str(q, col);

    if (!text.p || text.n >= size || str_has_nul(text))
        return false;
    memcpy(out, text.p, text.n);
    out[text.n] = 0;
    return true;
}

static bool copy_hash(struct query *q, int col, unsigned char out[SHA256_SIZE])
{
    struct str blob = query_col_str(q, col);

    if (blob.n == SHA256_SIZE)
        memcpy(out, blob.p, SHA256_SIZE);
    return blob.n == SHA256_SIZE;
}

static int read_row(struct query *q, struct secret_row *row, struct err *err)
{
    *row = (struct secret_row){ .agent = str_is(query_col_str(q, 2), "agent"),
                                .version = query_col_i64(q, 3),
                                .created_ms = query_col_i64(q, 5),
                                .changed_ms = query_col_i64(q, 6),
                                .next_until_ms = query_col_i64(q, 9),
                                .request = str_is(query_col_str(q, 10), "request") };
    bool fits = copy_text(q, 0, row->name, sizeof(row->name)) &&
                copy_text(q, 1, row->tenant, sizeof(row->tenant)) &&
                copy_text(q, 4, row->by, sizeof(row->by)) &&
                copy_text(q, 11, row->hosts, sizeof(row->hosts)) &&
                copy_text(q, 12, row->placeholder, sizeof(row->placeholder)) &&
                (!row->agent || copy_hash(q, 7, row->hash)) &&
                (!row->next_until_ms || copy_hash(q, 8, row->next));

    return fits ? 0 : err_set(err, ERR_INTERNAL, "secret \"%s\" is not readable", row->name);
}

/* 1: there is one. */
static int find(struct db *db, const char *tenant, const char *name, struct secret_row *out,
                struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT " COLUMNS " FROM secret WHERE tenant = $1 AND name = $2");

    query_text(q, 1, tenant);
    query_text(q, 2, name);
    int rc = query_step(q, err);
    return rc <= 0 ? rc : read_row(q, out, err) < 0 ? -1 : 1;
}

static int check_count(struct db *db, const char *tenant, struct err *err)
{
    autoquery struct query *q = db_query(db, "SELECT COUNT(*) FROM secret WHERE tenant = $1");

    query_text(q, 1, tenant);
    if (query_step(q, err) < 0)
        return -1;
    if (query_col_i64(q, 0) >= SECRETS_MAX)
        return err_set(err, ERR_LIMIT, "there are %d secrets already", SECRETS_MAX);
    return 0;
}

static int insert(struct db *db, const struct secret_row *row, struct str sealed, struct err *err)
{
    autoquery struct query *q = db_query(
        db, "INSERT INTO secret (name, tenant, kind, version, by, created_ms, changed_ms, hash,"
            " sealed, use, hosts, placeholder) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,"
            " $11, $12)");

    if (check_count(db, row->tenant, err) < 0 || tenant_ensure(db, row->tenant, err) < 0)
        return -1;
    query_text(q, 1, row->name);
    query_text(q, 2, row->tenant);
    query_text(q, 3, row->agent ? "agent" : "value");
    query_i64(q, 4, row->version);
    query_text(q, 5, row->by);
    query_i64(q, 6, row->created_ms);
    query_i64(q, 7, row->changed_ms);
    if (row->agent)
        query_blob(q, 8, row->hash, sizeof(row->hash));
    else
        query_text(q, 8, NULL);
    if (row->agent)
        query_text(q, 9, NULL);
    else
        query_blob(q, 9, sealed.p, sealed.n);
    query_text(q, 10, row->request ? "request" : "server");
    query_text(q, 11, row->hosts);
    query_text(q, 12, row->placeholder);
    if (query_run(q, err) >= 0)
        return 0;
    if (err && err->code == ERR_CONFLICT)
        return err_set(err, ERR_CONFLICT, "\"%s\" is taken", row->name);
    return -1;
}

static struct secret_row row_of(const char *tenant, const char *name, const char *by)
{
    struct secret_row row = { .version = 1, .created_ms = clock_wall_ms() };

    row.changed_ms = row.created_ms;
    snprintf(row.name, sizeof(row.name), "%s", name);
    snprintf(row.tenant, sizeof(row.tenant), "%s", tenant);
    snprintf(row.by, sizeof(row.by), "%s", by);
    return row;
}

/* ---- values ---- */

/* What a sealed value is bound to: its row. */
static void put_context(struct buf *out, const char *tenant, const char *name)
{
    buf_append(out, tenant, strlen(tenant) + 1);
    buf_puts(out, name);
}

static int replace(struct db *db, struct secret_row *row, struct str sealed, const char *by,
                   struct err *err)
{
    autoquery struct query *q =
        db_query(db, "UPDATE secret SET version = version + 1, by = $1, changed_ms = $2,"
                     " sealed = $3, use = $4, hosts = $5, placeholder = $6"
                     " WHERE tenant = $7 AND name = $8 AND kind = 'value'");

    row->version++;
    row->changed_ms = clock_wall_ms();
    snprintf(row->by, sizeof(row->by), "%s", by);
    query_text(q, 1, by);
    query_i64(q, 2, row->changed_ms);
    query_blob(q, 3, sealed.p, sealed.n);
    query_text(q, 4, row->request ? "request" : "server");
    query_text(q, 5, row->hosts);
    query_text(q, 6, row->placeholder);
    query_text(q, 7, row->tenant);
    query_text(q, 8, row->name);
    return query_run(q, err) < 0 ? -1 : 0;
}

/* The same as long as the secret has its name: sandboxes that run have it in their environment. */
static void make_placeholder(struct secret_row *row)
{
    static const struct str prefix = STR_INIT(INJECT_PLACEHOLDER_PREFIX);
    unsigned char raw[INJECT_PLACEHOLDER_LEN / 2];
    char hex[2 * sizeof(raw) + 1];

    if (row->placeholder[0])
        return;
    random_bytes(raw, sizeof(raw));
    hex_text(raw, sizeof(raw), hex);
    memcpy(row->placeholder, prefix.p, prefix.n);
    memcpy(row->placeholder + prefix.n, hex, INJECT_PLACEHOLDER_LEN - prefix.n);
    row->placeholder[INJECT_PLACEHOLDER_LEN] = 0;
}

/* Sealed to the egress process; nobody here can open it again. */
static int seal_request(const struct vault_keys *keys, struct secret_row *row,
                        const struct vault_value *value, struct buf *sealed, struct err *err)
{
    autobuf struct buf context = { 0 };

    if (inject_value_check(value->value, err) < 0)
        return err_field(err, "value", "%s", err->msg);
    if (inject_context(&context, row->tenant, row->name, value->hosts, err) < 0)
        return err_field(err, "hosts", "%s", err->msg);
    struct str hosts = buf_view(&context);
    str_cut(&hosts, 0);
    str_cut(&hosts, 0);
    snprintf(row->hosts, sizeof(row->hosts), "%.*s", STR_FMT(hosts));
    make_placeholder(row);
    return seal_to(&keys->egress, buf_view(&context), value->value, sealed, err);
}

static int seal_server(const struct vault_keys *keys, struct secret_row *row,
                       const struct vault_value *value, struct buf *sealed, struct err *err)
{
    autobuf struct buf context = { 0 };

    if (value->hosts && value->hosts[0])
        return err_field(err, "hosts", "only a secret for requests has hosts");
    row->hosts[0] = row->placeholder[0] = 0;
    put_context(&context, row->tenant, row->name);
    return seal(&keys->own, buf_view(&context), value->value, sealed, err);
}

int vault_put(struct db *db, const struct vault_keys *keys, const char *tenant, const char *name,
              const struct vault_value *value, const char *by, struct secret_row *out,
              struct err *err)
{
    autobuf struct buf sealed = { 0 };
    struct secret_row row = row_of(tenant, name, by);

    if (secret_name_check(name, "name", err) < 0)
        return -1;
    if (value->value.n > SECRET_VALUE_MAX)
        return err_field(err, "value", "at most %d bytes", SECRET_VALUE_MAX);
    int found = find(db, tenant, name, &row, err);
    if (found < 0)
        return -1;
    if (found && row.agent)
        return err_set(err, ERR_CONFLICT, "\"%s\" is an agent's", name);
    row.request = value->request;
    if ((row.request ? seal_request : seal_server)(keys, &row, value, &sealed, err) < 0)
        return -1;
    if ((found ? replace(db, &row, buf_view(&sealed), by, err)
               : insert(db, &row, buf_view(&sealed), err)) < 0)
        return err_wrap(err, "keep secret %s", name);
    *out = row;
    return 0;
}

int vault_open(struct db *db, const struct seal_key *key, const char *tenant, const char *name,
               struct buf *out, struct err *err)
{
    autobuf struct buf context = { 0 };
    autoquery struct query *q =
        db_query(db, "SELECT sealed FROM secret WHERE tenant = $1"
                     " AND name = $2 AND kind = 'value' AND use = 'server'");

    query_text(q, 1, tenant);
    query_text(q, 2, name);
    int rc = query_step(q, err);
    if (rc <= 0)
        return rc < 0 ? -1 : err_set(err, ERR_NOT_FOUND, "there is no secret \"%s\"", name);
    put_context(&context, tenant, name);
    return unseal(key, buf_view(&context), query_col_str(q, 0), out, err);
}

int vault_sealed(struct db *db, const char *tenant, const char *name, struct secret_row *row,
                 struct buf *context, struct buf *sealed, struct err *err)
{
    autoquery struct query *q =
        db_query(db, "SELECT sealed FROM secret WHERE tenant = $1 AND name = $2"
                     " AND kind = 'value' AND use = 'request'");
    int found = find(db, tenant, name, row, err);

    if (found < 0)
        return -1;
    query_text(q, 1, tenant);
    query_text(q, 2, name);
    int rc = query_step(q, err);
    if (rc < 0)
        return -1;
    if (!found || !rc)
        return err_set(err, ERR_NOT_FOUND, "there is no secret \"%s\" for requests", name);
    buf_append(context, tenant, strlen(tenant) + 1);
    buf_append(context, name, strlen(name) + 1);
    buf_puts(context, row->hosts);
    buf_str(sealed, query_col_str(q, 0));
    return 0;
}

/* ---- agents ---- */

static void make_plain(char plain[AGENT_SECRET_SIZE], unsigned char hash[SHA256_SIZE])
{
    unsigned char raw[32];

    random_bytes(raw, sizeof(raw));
    hex_text(raw, sizeof(raw), plain);
    sha256(plain, AGENT_SECRET_SIZE - 1, hash);
    explicit_bzero(raw, sizeof(raw));
}

int agent_secret_create(struct db *db, const char *tenant, const char *agent, const char *by,
                        struct secret_row *out, char plain[AGENT_SECRET_SIZE], struct err *err)
{
    struct secret_row row = row_of(tenant, agent, by);

    if (secret_name_check(agent, "agent_id", err) < 0)
        return -1;
    row.agent = true;
    make_plain(plain, row.hash);
    if (insert(db, &row, STR_NONE, err) < 0) {
        explicit_bzero(plain, AGENT_SECRET_SIZE);
        return err_wrap(err, "secret of agent %s", agent);
    }
    *out = row;
    return 0;
}

int agent_secret_rotate(struct db *db, const char *tenant, const char *agent, int64_t until_ms,
                        struct secret_row *out, char plain[AGENT_SECRET_SIZE], struct err *err)
{
    autoquery struct query *q =
        db_query(db, "UPDATE secret SET next = $1, next_until_ms = $2, changed_ms = $3,"
                     " version = version + 1 WHERE tenant = $4 AND name = $5 AND kind = 'agent'");
    struct secret_row row;
    int found = find(db, tenant, agent, &row, err);

    if (found < 0)
        return -1;
    if (!found || !row.agent)
        return err_set(err, ERR_NOT_FOUND, "agent \"%s\" has no secret", agent);
    row.version++;
    row.changed_ms = clock_wall_ms();
    row.next_until_ms = until_ms;
    make_plain(plain, row.next);
    query_blob(q, 1, row.next, sizeof(row.next));
    query_i64(q, 2, until_ms);
    query_i64(q, 3, row.changed_ms);
    query_text(q, 4, tenant);
    query_text(q, 5, agent);
    if (query_run(q, err) < 0)
        return err_wrap(err, "rotate the secret of agent %s", agent);
    *out = row;
    return 0;
}

int agent_secret_settle(struct db *db, const char *agent, const unsigned char hash[SHA256_SIZE],
                        struct err *err)
{
    autoquery struct query *q =
        db_query(db, "UPDATE secret SET hash = next, next = NULL, next_until_ms = 0"
                     " WHERE name = $1 AND kind = 'agent' AND next = $2");

    query_text(q, 1, agent);
    query_blob(q, 2, hash, SHA256_SIZE);
    return query_run(q, err) < 0 ? -1 : 0;
}

/* ---- both ---- */

int secret_delete(struct db *db, const char *tenant, const char *name, struct secret_row *out,
                  struct err *err)
{
    autoquery struct query *q = db_query(db, "DELETE FROM secret WHERE tenant = $1 AND name = $2");
    int found = find(db, tenant, name, out, err);

    if (found < 0)
        return -1;
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "there is no secret \"%s\"", name);
    query_text(q, 1, tenant);
    query_text(q, 2, name);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int each(struct query *q, void (*fn)(void *ctx, const struct secret_row *row), void *ctx,
                struct err *err)
{
    struct secret_row row;
    int rc;

    while ((rc = query_step(q, err)) > 0) {
        if (read_row(q, &row, err) < 0)
            return -1;
        fn(ctx, &row);
    }
    return rc;
}

int secret_each(struct db *db, const char *tenant,
                void (*fn)(void *ctx, const struct secret_row *row), void *ctx, struct err *err)
{
    autoquery struct query *q =
        tenant ? db_query(db, "SELECT " COLUMNS " FROM secret WHERE tenant = $1 ORDER BY name")
               : db_query(db, "SELECT " COLUMNS " FROM secret WHERE kind = 'agent' ORDER BY name");

    if (tenant)
        query_text(q, 1, tenant);
    return each(q, fn, ctx, err);
}
