/*
 * Leases on paths of a project: whoever is about to edit says so, for a time. A path covers itself
 * and all beneath it; two leases conflict when a path of one covers a path of the other, and not
 * both are shared. One whose time is over counts no more, from that millisecond on; its row goes
 * with the next sweep.
 */
#include "hub/own.h"

/* ---- paths ---- */

/* Without "./" and slashes at the end; "" is everything. False: it leads elsewhere. */
static bool clean(const struct hub_by *by, const char *path, const char **out)
{
    autobuf struct buf text = { 0 };
    struct str rest = str_of(path);

    if (!rest.n || rest.n > HUB_LEASE_PATH_MAX || rest.p[0] == '/' || memchr(rest.p, '\\', rest.n))
        return false;
    if (hub_title_check(path, "paths", NULL) < 0) /* no hidden characters */
        return false;
    while (rest.n) {
        struct str part = str_cut(&rest, '/');

        if (str_is(part, ".."))
            return false;
        if (!part.n || str_is(part, "."))
            continue;
        if (text.len)
            buf_putc(&text, '/');
        buf_str(&text, part);
    }
    *out = arena_memdup0(by->arena, text.data ? text.data : "", text.len);
    return true;
}

static bool covers(const char *path, const char *other)
{
    size_t len = strlen(path);

    return !len || (strncmp(path, other, len) == 0 && (!other[len] || other[len] == '/'));
}

static bool overlap(const char *const *a, const char *const *b)
{
    for (; *a; a++)
        for (const char *const *other = b; *other; other++)
            if (covers(*a, *other) || covers(*other, *a))
                return true;
    return false;
}

static int clean_all(const struct hub_by *by, const char *const *paths, const char ***out,
                     struct err *err)
{
    size_t count = 0;

    while (paths[count])
        count++;
    const char **items = arena_alloc(by->arena, (count + 1) * sizeof(*items));
    for (size_t i = 0; i < count; i++)
        if (!clean(by, paths[i], &items[i]))
            return err_field(err, "paths",
                             "[%zu] must be a path beneath the project: relative, without ..", i);
    *out = items;
    return 0;
}

/* ---- rows ---- */

#define COLUMNS "id, project, agent, mode, paths, reason, created_ms, expires_ms FROM hub_lease"

static void take_row(const struct hub_by *by, struct query *q, struct hub_lease *out)
{
    *out = (struct hub_lease){ .id = query_col_dup(q, 0, by->arena),
                               .project = query_col_dup(q, 1, by->arena),
                               .agent = query_col_dup(q, 2, by->arena),
                               .mode = query_col_dup(q, 3, by->arena),
                               .paths = hub_strings(by, query_col_str(q, 4)),
                               .reason = query_col_dup(q, 5, by->arena),
                               .created_at = query_col_i64(q, 6),
                               .expires_at = query_col_i64(q, 7) };
    for (const char **path = out->paths; *path; path++)
        if (!**path)
            *path = "."; /* as it is said */
}

static const char *const *paths_of(const struct hub_by *by, const struct hub_lease *lease)
{
    const char **out;

    return clean_all(by, lease->paths, &out, NULL) < 0 ? lease->paths : out;
}

int hub_leases(const struct hub_by *by, const char *project, const char *agent, const char *path,
               hub_item_fn *fn, void *ctx, struct err *err)
{
    const char *wanted[2] = { NULL };
    autoquery struct query *q =
        db_query(by->db, "SELECT " COLUMNS " WHERE tenant = $1 AND project = $2 AND expires_ms > $3"
                         " AND ($4 = '' OR agent = $4) ORDER BY expires_ms, id");
    int rc;

    if (path && !clean(by, path, &wanted[0]))
        return err_field(err, "path", "must be a path beneath the project: relative, without ..");
    query_text(q, 1, by->tenant);
    query_text(q, 2, project);
    query_i64(q, 3, by->now_ms);
    query_text(q, 4, agent ? agent : "");
    while ((rc = query_step(q, err)) > 0) {
        struct hub_lease lease;

        take_row(by, q, &lease);
        if (!path || overlap(paths_of(by, &lease), wanted))
            fn(ctx, &lease);
    }
    return rc;
}

static int tell(const struct hub_by *by, const char *type, const struct hub_lease *lease,
                const char *why, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    field_encode(hub_lease_fields, lease, &json);
    if (why) {
        body.len--; /* the brace: there is more */
        json.comma = true;
        json_kv_text(&json, "why", why);
        json_close(&json, '}');
    }
    return hub_tell_json(by, type, hub_project_object(by, lease->project, "lease"), &body, err);
}

/* ---- taking ---- */

struct search {
    const struct hub_lease_wish *wish;
    const char *const *paths;
    const struct hub_by *by;
    struct hub_lease *holder;
    bool found, shared;
    size_t count;
};

static void look(void *ctx, const void *item)
{
    const struct hub_lease *lease = item;
    struct search *search = ctx;

    search->count++;
    if (search->found || strcmp(lease->agent, search->wish->agent) == 0 ||
        (search->shared && strcmp(lease->mode, "shared") == 0) ||
        !overlap(search->paths, paths_of(search->by, lease)))
        return;
    *search->holder = *lease;
    search->found = true;
}

static int insert(const struct hub_by *by, const struct hub_lease *lease, struct err *err)
{
    autoquery struct query *q = db_query(
        by->db,
        "INSERT INTO hub_lease (tenant, id, project, agent, mode, paths, reason, created_ms,"
        " expires_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)");

    query_text(q, 1, by->tenant);
    query_text(q, 2, lease->id);
    query_text(q, 3, lease->project);
    query_text(q, 4, lease->agent);
    query_text(q, 5, lease->mode);
    query_text(q, 6, hub_strings_text(by, lease->paths));
    query_text(q, 7, lease->reason);
    query_i64(q, 8, lease->created_at);
    query_i64(q, 9, lease->expires_at);
    return query_run(q, err) < 0 ? -1 : 0;
}

static int check_take(const struct hub_by *by, const char *project,
                      const struct hub_lease_wish *wish, struct err *err)
{
    if (hub_project_exists(by, project, err) < 0 || hub_name_check(wish->agent, "agent", err) < 0 ||
        hub_self(by, wish->agent, "agent", err) < 0 || hub_text_check(by, wish->reason, err) < 0)
        return -1;
    return hub_active(by, wish->agent, err);
}

int hub_lease_take(const struct hub_by *by, const char *project, const struct hub_lease_wish *wish,
                   struct hub_lease *out, struct err *err)
{
    const char **paths;

    if (check_take(by, project, wish, err) < 0 || clean_all(by, wish->paths, &paths, err) < 0)
        return -1;
    const char *mode = wish->mode ? wish->mode : "exclusive";
    struct search search = {
        .wish = wish, .paths = paths, .by = by, .holder = out, .shared = strcmp(mode, "shared") == 0
    };
    if (hub_leases(by, project, NULL, NULL, look, &search, err) < 0)
        return -1;
    if (search.found)
        return 1;
    if (search.count >= HUB_LEASES_MAX)
        return err_set(err, ERR_CONFLICT, "a project has %d leases already", HUB_LEASES_MAX);
    int64_t ttl = wish->ttl_seconds ? wish->ttl_seconds : HUB_LEASE_S;
    *out = (struct hub_lease){ .id = hub_uuid(by),
                               .project = project,
                               .agent = wish->agent,
                               .mode = mode,
                               .paths = wish->paths,
                               .reason = wish->reason ? wish->reason : "",
                               .created_at = by->now_ms,
                               .expires_at = by->now_ms + ttl * 1000 };
    return insert(by, out, err) < 0 ? -1 : tell(by, "lease_taken", out, NULL, err);
}

/* ---- later ---- */

static int find(const struct hub_by *by, const char *project, const char *id, struct hub_lease *out,
                struct err *err)
{
    autoquery struct query *q =
        hub_query(by,
                  "SELECT " COLUMNS " WHERE tenant = $1 AND id = $2 AND project = $3"
                  " AND expires_ms > $4",
                  id, project);

    query_i64(q, 4, by->now_ms);
    if (hub_row(q, "lease not found", err) < 0)
        return -1;
    take_row(by, q, out);
    if (by->agent && strcmp(by->agent, out->agent) != 0)
        return err_set(err, ERR_FORBIDDEN, "%s does not hold this lease", by->agent);
    return 0;
}

int hub_lease_renew(const struct hub_by *by, const char *project, const char *id, int64_t ttl_s,
                    struct hub_lease *out, struct err *err)
{
    autoquery struct query *q =
        db_query(by->db, "UPDATE hub_lease SET expires_ms = $1 WHERE tenant = $2 AND id = $3");

    if (find(by, project, id, out, err) < 0 || hub_active(by, out->agent, err) < 0)
        return -1;
    out->expires_at = by->now_ms + (ttl_s ? ttl_s : HUB_LEASE_S) * 1000;
    query_i64(q, 1, out->expires_at);
    query_text(q, 2, by->tenant);
    query_text(q, 3, id);
    return query_run(q, err) < 0 ? -1 : tell(by, "lease_renewed", out, NULL, err);
}

static int end_one(const struct hub_by *by, const struct hub_lease *lease, const char *why,
                   struct err *err)
{
    return hub_change(by, err, "DELETE FROM hub_lease WHERE tenant = $1 AND id = $2", lease->id) < 0
               ? -1
               : tell(by, "lease_released", lease, why, err);
}

int hub_lease_release(const struct hub_by *by, const char *project, const char *id, struct err *err)
{
    struct hub_lease lease;

    return find(by, project, id, &lease, err) < 0 ? -1 : end_one(by, &lease, "released", err);
}

/* The next one of these columns; 1: there is one. */
static int first_of(const struct hub_by *by, struct query *q, struct hub_lease *out,
                    struct err *err)
{
    int rc = query_step(q, err);

    if (rc > 0)
        take_row(by, q, out);
    return rc;
}

int hub_leases_end(const struct hub_by *by, const char *agent, const char *why, struct err *err)
{
    for (;;) {
        struct hub_lease lease;
        autoquery struct query *q =
            hub_query(by, "SELECT " COLUMNS " WHERE tenant = $1 AND agent = $2 LIMIT 1", agent);
        int rc = first_of(by, q, &lease, err);

        if (rc <= 0)
            return rc;
        if (end_one(by, &lease, lease.expires_at > by->now_ms ? why : "expired", err) < 0)
            return -1;
    }
}

int hub_leases_drop(const struct hub_by *by, const char *project, struct err *err)
{
    return hub_change(by, err, "DELETE FROM hub_lease WHERE tenant = $1 AND project = $2", project);
}

int hub_leases_sweep(struct db *db, int64_t now_ms, struct err *err)
{
    int64_t left;
    autoquery struct query *any = db_query(db, "SELECT 1 FROM hub_lease LIMIT 1");

    for (int i = 0; i < STORE_SWEEP_ROWS; i++) {
        autoarena struct arena arena = { 0 };
        struct hub_by by = { .db = db, .arena = &arena, .now_ms = now_ms };
        struct hub_lease lease;
        autoquery struct query *q = db_query(
            db, "SELECT id, project, agent, mode, paths, reason, created_ms, expires_ms, tenant"
                " FROM hub_lease WHERE expires_ms <= $1 ORDER BY expires_ms LIMIT 1");

        query_i64(q, 1, now_ms);
        int rc = first_of(&by, q, &lease, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            break;
        by.tenant = query_col_dup(q, 8, &arena);
        if (end_one(&by, &lease, "expired", err) < 0)
            return -1;
    }
    return hub_number(any, 0, &left, err) < 0 ? -1 : (int)left;
}
