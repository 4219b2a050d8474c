/* Tokens and browser logins. A secret leaves the server once, in the reply that made it. */
#include "api/own.h"

#include <stdio.h>

#include "base/clock.h"
#include "box/quota.h"

#define TTL_MAX_MS (3650ll * 24 * 3600 * 1000)

struct token_wish {
    const char *name, *role, *tenant;
    const char **scopes;
    int64_t ttl_ms;
    bool signing;
};

static const struct field token_wish_fields[] = {
    FIELD(token_wish, name, F_STRING, F_REQUIRED, .min = 1, .max = TOKEN_NAME_MAX,
          .help = "What it is for; unique among live tokens"),
    FIELD(token_wish, role, F_ENUM, F_REQUIRED, .choices = "admin|operator|viewer|agent|sandbox",
          .help = "What it may do"),
    FIELD(token_wish, tenant, F_STRING, 0, .max = TENANT_MAX,
          .help = "Whose objects it sees; the caller's own unless an admin says otherwise"),
    FIELD(token_wish, scopes, F_STRINGS, 0, .max = 16,
          .help = "Actions such as token.* or event.read; none means all that the role may"),
    FIELD(token_wish, ttl_ms, F_INT, 0, .min = 1000, .max = TTL_MAX_MS,
          .help = "Lifetime in milliseconds; without it the token does not expire"),
    FIELD(token_wish, signing, F_BOOL, 0,
          .help = "It must sign every request (HMAC); the token itself is then not accepted"),
    { 0 },
};

struct token_view {
    const char *id, *name, *role, *tenant, *scopes, *token;
    bool signing;
    int64_t created_at, expires_at, used_at, revoked_at;
};

/* What every reply about a token begins with. */
#define TOKEN_FIELDS                                                                               \
    FIELD(token_view, id, F_STRING, F_READONLY, .help = "tok…"),                                   \
        FIELD(token_view, name, F_STRING, F_READONLY, .help = "What it is for"),                   \
        FIELD(token_view, role, F_STRING, F_READONLY, .help = "What it may do"),                   \
        FIELD(token_view, tenant, F_STRING, F_READONLY, .help = "Whose objects it sees"),          \
        FIELD(token_view, scopes, F_STRING, F_READONLY,                                            \
              .help = "Comma list; empty means all that the role may"),                            \
        FIELD(token_view, signing, F_BOOL, F_READONLY, .help = "May sign requests"),               \
        FIELD(token_view, created_at, F_TIME, F_READONLY, .help = "When it was made"),             \
        FIELD(token_view, expires_at, F_TIME, F_READONLY, .help = "When it ends; null for never")

static const struct field token_fields[] = {
    TOKEN_FIELDS,
    FIELD(token_view, used_at, F_TIME, F_READONLY,
          .help = "When it was last used, to about a minute; null for not yet"),
    FIELD(token_view, revoked_at, F_TIME, F_READONLY,
          .help = "When it was revoked; null while it lives"),
    { 0 },
};

static const struct field token_made_fields[] = {
    TOKEN_FIELDS,
    FIELD(token_view, token, F_STRING, F_READONLY | F_SECRET,
          .help = "The token itself, shown this once; null when replayed by Idempotency-Key"),
    { 0 },
};

static struct token_view view_of(const struct token_row *row)
{
    return (struct token_view){ .id = row->id,
                                .name = row->name,
                                .role = role_name(row->role),
                                .tenant = row->tenant,
                                .scopes = row->scopes,
                                .signing = row->signing,
                                .created_at = row->created_ms,
                                .expires_at = row->expires_ms,
                                .used_at = row->used_ms,
                                .revoked_at = row->revoked_ms };
}

/* Another tenant's tokens are for admins of the tenant that owns the server. */
static int may_reach(const struct call *call, const char *tenant, struct err *err)
{
    if (strcmp(tenant, call->who.tenant) == 0 ||
        (call->who.role == ROLE_ADMIN && strcmp(call->who.tenant, TENANT_OWNER) == 0))
        return 0;
    return err_role(err, "tokens of another tenant are for admins of tenant " TENANT_OWNER);
}

/* The tenant that the query names, or the caller's own. */
static int tenant_of(struct call *call, const char **out, struct err *err)
{
    const char *asked = call_query(call, "tenant");

    *out = asked ? asked : call->who.tenant;
    return may_reach(call, *out, err);
}

/* A name is shown in tables and logs: letters, digits and a few marks. */
static bool name_ok(const char *name)
{
    for (const char *p = name; *p; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@ ", *p))
            return false;
    return name[0] && name[0] != ' ';
}

static int scopes_join(const char **scopes, char out[SCOPES_MAX + 1], struct err *err)
{
    size_t len = 0;

    for (size_t i = 0; scopes && scopes[i]; i++) {
        size_t n = strlen(scopes[i]);

        if (n == 0 || strspn(scopes[i], "abcdefghijklmnopqrstuvwxyz_.*") != n)
            return err_field(err, "scopes",
                             "\"%s\" is no scope; they look like token.create or event.*",
                             scopes[i]);
        if (len + n + 1 > SCOPES_MAX)
            return err_field(err, "scopes", "more than %d bytes in all", SCOPES_MAX);
        len += (size_t)snprintf(out + len, SCOPES_MAX + 1 - len, "%s%s", len ? "," : "", scopes[i]);
    }
    return 0;
}

static int wish_to_row(struct call *call, const struct token_wish *wish, struct token_row *row,
                       struct err *err)
{
    if (!name_ok(wish->name))
        return err_field(err, "name", "letters, digits, space and -_.@ only");
    if (!role_parse(str_of(wish->role), &row->role))
        return err_field(err, "role", "unknown role");
    const char *tenant = wish->tenant ? wish->tenant : call->who.tenant;
    if (!tenant[0] || strspn(tenant, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(tenant))
        return err_field(err, "tenant", "lower-case letters, digits and hyphens only");
    if (may_reach(call, tenant, err) < 0)
        return -1;
    if (row->role > call->who.role)
        return err_role(err, "role %s may not make a token with role %s", role_name(call->who.role),
                        wish->role);
    if (call->who.scopes[0])
        return err_role(err, "a token that is itself limited by scopes may not make tokens");
    snprintf(row->name, sizeof(row->name), "%s", wish->name);
    snprintf(row->tenant, sizeof(row->tenant), "%s", tenant);
    row->signing = wish->signing;
    row->expires_ms = wish->ttl_ms ? clock_wall_ms() + wish->ttl_ms : 0;
    return scopes_join(wish->scopes, row->scopes, err);
}

static void token_added(struct call *call)
{
    const struct token_row *row = call->state;

    auth_token_added(call->api->auth, row);
    quota_tenant(call->api->boxes, row->tenant);
}

static int token_event(struct call *call, const char *type, const struct token_row *row,
                       struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    json_open(&json, '{');
    json_kv_text(&json, "name", row->name);
    json_kv_text(&json, "role", role_name(row->role));
    json_kv_text(&json, "by", call->who.id);
    json_close(&json, '}');
    call->object = arena_printf(&call->arena, "token/%s", row->id);
    call->detail = arena_memdup0(&call->arena, body.data, body.len);
    return call_event(call, type, call->object, buf_view(&body), err);
}

static int token_post(struct call *call, struct err *err)
{
    struct token_wish wish = { 0 };
    struct token_row wanted = { 0 }, *row = arena_new(&call->arena, struct token_row);
    char plain[TOKEN_TEXT_SIZE];

    if (call_decode(call, &wish, err) < 0 || wish_to_row(call, &wish, &wanted, err) < 0)
        return -1;
    if (token_create(call->db, &wanted, row, plain, err) < 0 ||
        token_event(call, "token.created", row, err) < 0)
        return -1;
    call->state = row;
    call->committed = token_added;
    struct token_view view = view_of(row);
    view.token = plain;
    call_reply(call, &view);
    explicit_bzero(plain, sizeof(plain));
    return 0;
}

static void list_one(void *ctx, const struct token_row *row)
{
    struct token_view view = view_of(row);

    field_encode(token_fields, &view, ctx);
}

static int token_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);
    const char *tenant;

    if (tenant_of(call, &tenant, err) < 0)
        return -1;
    json_open_list(&json, "items");
    if (token_list(call->db, tenant, list_one, &json, err) < 0)
        return -1;
    json_close_list(&json);
    return 0;
}

static void token_removed(struct call *call)
{
    const struct token_row *row = call->state;

    auth_token_revoked(call->api->auth, row->id);
    event_streams_cut((struct api *)call->api, row->id);
}

static int token_delete(struct call *call, struct err *err)
{
    struct token_row *row = arena_new(&call->arena, struct token_row);
    const char *tenant;

    if (tenant_of(call, &tenant, err) < 0)
        return -1;
    if (token_revoke(call->db, tenant, call_param(call, "id"), row, err) < 0)
        return -1;
    if (row->role > call->who.role)
        return err_role(err, "role %s may not revoke a token with role %s",
                        role_name(call->who.role), role_name(row->role));
    if (token_event(call, "token.revoked", row, err) < 0)
        return -1;
    call->state = row;
    call->committed = token_removed;
    struct token_view view = view_of(row);
    return call_reply(call, &view);
}

/* ---- browser login ---- */

struct link_view {
    const char *url_path, *url;
    int64_t expires_at;
};

static const struct field link_fields[] = {
    FIELD(link_view, url_path, F_STRING, F_READONLY | F_SECRET,
          .help = "To be opened in a browser, once"),
    FIELD(link_view, url, F_STRING, F_READONLY | F_SECRET,
          .help = "The same with the address that the server listens on; null when it has only a "
                  "Unix socket"),
    FIELD(link_view, expires_at, F_TIME, F_READONLY, .help = "When the link stops working"),
    { 0 },
};

static int link_post(struct call *call, struct err *err)
{
    char code[TOKEN_TEXT_SIZE];

    if (login_link(call->db, call->who.tenant, call->who.role, code, err) < 0)
        return -1;
    const char *path = arena_printf(&call->arena, "/#login=%s", code),
               *base = call->api->options.base_url;
    struct link_view view = {
        .url_path = path,
        .url = base ? arena_printf(&call->arena, "%s%s", base, path) : NULL,
        .expires_at = clock_wall_ms() + LOGIN_LINK_MS,
    };
    return call_reply(call, &view);
}

struct login_wish {
    const char *code;
};

static const struct field login_fields[] = {
    FIELD(login_wish, code, F_STRING, F_REQUIRED | F_SECRET, .max = 128,
          .help = "From the login link"),
    { 0 },
};

struct session_view {
    const char *csrf, *role, *tenant;
    int64_t expires_at;
};

static const struct field session_fields[] = {
    FIELD(session_view, csrf, F_STRING, F_READONLY,
          .help = "To be sent as X-Atoll-CSRF with every change"),
    FIELD(session_view, role, F_STRING, F_READONLY, .help = "What the page may do"),
    FIELD(session_view, tenant, F_STRING, F_READONLY, .help = "Whose objects it sees"),
    FIELD(session_view, expires_at, F_TIME, F_READONLY, .help = "When the session ends"),
    { 0 },
};

static int set_cookie(struct call *call, const char *cookie, int64_t ms)
{
    const char *set = arena_printf(
        &call->arena, SESSION_COOKIE "=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%lld%s",
        cookie, (long long)ms / 1000, call->tls ? "; Secure" : "");

    call_header(call, "set-cookie", set);
    return 0;
}

static void session_added(struct call *call)
{
    auth_session_added(call->api->auth, call->state);
}

static int login_post(struct call *call, struct err *err)
{
    struct login_wish wish = { 0 };
    struct session_row *row = arena_new(&call->arena, struct session_row);
    char cookie[TOKEN_TEXT_SIZE], csrf[65];

    if (call_decode(call, &wish, err) < 0)
        return -1;
    if (login_exchange(call->db, wish.code, row, cookie, err) < 0)
        return -1;
    session_csrf(row, csrf);
    call->state = row;
    call->committed = session_added;
    call->object = arena_printf(&call->arena, "session/%s", row->id);
    snprintf(call->who.tenant, sizeof(call->who.tenant), "%s", row->tenant);
    set_cookie(call, cookie, LOGIN_SESSION_MS);
    struct session_view view = { csrf, role_name(row->role), row->tenant, row->expires_ms };
    return call_reply(call, &view);
}

static int session_get(struct call *call, struct err *err)
{
    char csrf[65];

    if (call->who.via != VIA_COOKIE)
        return err_set(err, ERR_NOT_FOUND, "this caller has no browser session");
    if (auth_session_csrf(call->api->auth, call->who.id, csrf) < 0)
        return err_set(err, ERR_NOT_FOUND, "the session has ended");
    struct session_view view = { csrf, role_name(call->who.role), call->who.tenant,
                                 call->who.expires_ms };
    return call_reply(call, &view);
}

static void session_removed(struct call *call)
{
    auth_session_ended(call->api->auth, call->who.id);
    event_streams_cut((struct api *)call->api, call->who.id);
}

/* ---- other tenants ---- */

struct tenant_wish {
    const char *tenant;
};

static const struct field tenant_wish_fields[] = {
    FIELD(tenant_wish, tenant, F_STRING, F_REQUIRED, .min = 1, .max = TENANT_MAX,
          .help = "Whose objects are to be seen"),
    { 0 },
};

static void put_tenant(void *ctx, struct str tenant)
{
    struct json_out *json = ctx;

    json_open(json, '{');
    json_kv_str(json, "name", tenant);
    json_close(json, '}');
}

static int tenants_get(struct call *call, struct err *err)
{
    struct json_out json = call_json(call);

    json_open_list(&json, "items");
    if (!principal_visits(&call->who))
        put_tenant(&json, str_of(call->who.tenant));
    else if (tenant_each(call->db, put_tenant, &json, err) < 0)
        return -1;
    json_close_list(&json);
    return 0;
}

static void session_moved(struct call *call)
{
    session_removed(call);
    session_added(call);
}

static int session_tenant_post(struct call *call, struct err *err)
{
    struct tenant_wish wish = { 0 };
    struct session_row *row = arena_new(&call->arena, struct session_row);
    char cookie[TOKEN_TEXT_SIZE], csrf[65];

    if (call_decode(call, &wish, err) < 0)
        return -1;
    call->object = arena_printf(&call->arena, "tenant/%.64s", wish.tenant);
    if (call->who.via != VIA_COOKIE)
        return err_set(err, ERR_NOT_FOUND, "this caller has no browser session");
    if (!principal_visits(&call->who))
        return err_role(err, "other tenants are for admins of tenant " TENANT_OWNER);
    if (session_move(call->db, &call->who, wish.tenant, row, cookie, err) < 0)
        return -1;
    session_csrf(row, csrf);
    call->state = row;
    call->committed = session_moved;
    set_cookie(call, cookie, row->expires_ms - clock_wall_ms());
    struct session_view view = { csrf, role_name(row->role), row->tenant, row->expires_ms };
    return call_reply(call, &view);
}

static int logout_post(struct call *call, struct err *err)
{
    if (call->who.via != VIA_COOKIE)
        return err_set(err, ERR_INVALID,
                       "only a browser session can log out; revoke a token instead");
    if (session_end(call->db, call->who.id, err) < 0)
        return -1;
    call->committed = session_removed;
    call->object = arena_printf(&call->arena, "session/%s", call->who.id);
    call->status = 204;
    call_header(call, "set-cookie",
                SESSION_COOKIE "=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    return 0;
}

const struct route token_routes[] = {
    { .name = "token.create",
      .method = "POST",
      .path = "/api/v1/tokens",
      .on = ON_WRITER,
      .roles = ROLE_ADMIN,
      .fn = token_post,
      .takes = token_wish_fields,
      .gives = token_made_fields,
      .flags = ROUTE_CREATES,
      .summary = "Make a token. It is shown this once." },
    { .name = "token.list",
      .method = "GET",
      .path = "/api/v1/tokens",
      .on = ON_READER,
      .roles = ROLE_ADMIN,
      .fn = token_get,
      .items = token_fields,
      .query = "tenant:string",
      .summary =
          "All tokens of the caller's tenant, oldest first, without the tokens themselves." },
    { .name = "token.revoke",
      .method = "DELETE",
      .path = "/api/v1/tokens/{id}",
      .on = ON_WRITER,
      .roles = ROLE_ADMIN,
      .fn = token_delete,
      .query = "tenant:string",
      .gives = token_fields,
      .summary = "Revoke a token, by id or name; it stops working at once." },
    { .name = "login.link",
      .method = "POST",
      .path = "/api/v1/login-links",
      .on = ON_WRITER,
      .roles = ROLE_PEOPLE,
      .fn = link_post,
      .gives = link_fields,
      .flags = ROUTE_CREATES,
      .summary = "A one-time link that logs a browser in with the caller's role." },
    { .name = "login.session",
      .method = "GET",
      .path = "/api/v1/session",
      .on = ON_LOOP,
      .roles = ROLE_PEOPLE,
      .fn = session_get,
      .gives = session_fields,
      .summary = "The browser's own session and its CSRF value." },
    { .name = "tenant.list",
      .method = "GET",
      .path = "/api/v1/tenants",
      .on = ON_READER,
      .roles = ROLE_PEOPLE,
      .fn = tenants_get,
      .summary =
          "The tenants that the caller can look at: its own, or of admins of the tenant that "
          "owns the server all of them; `items` with `name`." },
    { .name = "login.tenant",
      .method = "POST",
      .path = "/api/v1/session/tenant",
      .on = ON_WRITER,
      .roles = ROLE_PEOPLE,
      .fn = session_tenant_post,
      .takes = tenant_wish_fields,
      .gives = session_fields,
      .summary =
          "Look at another tenant: the browser's session ends, and another one begins there." },
    { .name = "login.use",
      .method = "POST",
      .path = "/login",
      .on = ON_WRITER,
      .roles = ROLE_PUBLIC,
      .fn = login_post,
      .takes = login_fields,
      .gives = session_fields,
      .summary = "Exchange a login link's code for a session cookie." },
    { .name = "login.end",
      .method = "POST",
      .path = "/logout",
      .on = ON_WRITER,
      .roles = ROLE_PEOPLE,
      .fn = logout_post,
      .summary = "End the browser's session." },
    { 0 },
};
