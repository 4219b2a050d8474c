/*
 * auth - who is asking, and how often they may.
 *
 * Tokens are 256 random bits, written "atl_" + base64url; only SHA-256 of the token is kept. All
 * live tokens and browser sessions are held in memory, loaded at start and changed when a commit
 * comes back, so a check is one hash and one look-up, and on a connection that repeats the same
 * Authorization not even the hash. Loop thread, except the functions that take a struct db.
 *
 * Ways in, in this order: signed request, token (Bearer, or the password of Basic), session cookie
 * (+ CSRF header on anything but GET and HEAD), Unix peer (uid 0 or the owner of the server:
 * admin), auth=open (loopback only).
 *
 * Signed requests carry X-Atoll-Key (token id), X-Atoll-Time (Unix ms), X-Atoll-Nonce and
 * X-Atoll-Signature: hex HMAC-SHA256 over "method\ntarget\ntime\nnonce\nsha256hex(body)\nkey id"
 * with the token's signing key, which is HMAC-SHA256(token, "atoll-sign-v1") and kept only for
 * tokens created with signing on, which are valid in no other way. Time may differ by AUTH_SKEW_MS.
 * A nonce is AUTH_NONCE_MIN to AUTH_NONCE_MAX of [A-Za-z0-9_-], and is remembered on disk.
 *
 * A credential that was given but does not hold is refused, never ignored in favour of a weaker way
 * in. Unknown, wrong, expired and revoked are one answer. A valid credential always passes. After
 * AUTH_FAILS_PER_MIN failures in a minute the same credential from the same address is answered
 * with 429 instead of 401, and so is every new one after that many different ones from an address.
 */
#pragma once

#include "base/id.h"
#include "base/limits.h"
#include "http/http.h"
#include "model/access.h"
#include "store/store.h"

enum role {
    ROLE_SANDBOX = 1,
    ROLE_AGENT = 2,
    ROLE_VIEWER = 4,
    ROLE_OPERATOR = 8,
    ROLE_ADMIN = 16,
};
#define ROLE_ANY 31u /* every authenticated principal */
#define ROLE_PEOPLE (ROLE_VIEWER | ROLE_OPERATOR | ROLE_ADMIN)
#define ROLE_STEER (ROLE_OPERATOR | ROLE_ADMIN)
#define ROLE_USE (ROLE_STEER | ROLE_AGENT)   /* who works with sandboxes */
#define ROLE_LOOK (ROLE_PEOPLE | ROLE_AGENT) /* who watches them */
#define ROLE_PUBLIC 32u                      /* routes that need nobody */

const char *role_name(enum role role);
must_use bool role_parse(struct str text, enum role *out);

enum auth_via {
    VIA_TOKEN,
    VIA_COOKIE,
    VIA_UNIX,
    VIA_SIGNED,
    VIA_OPEN,
    VIA_INSIDE /* a program in a sandbox */
};

#define TENANT_MAX 32
#define TENANT_OWNER "default" /* the tenant that owns the server; its admins reach the others */
#define TENANT_DEFAULT "default"
#define SCOPES_MAX 256 /* bytes of the comma list; empty means everything its role may */

struct principal {
    char id[ID_SIZE]; /* token or session id; "unix:UID"; "open" */
    char name[TOKEN_NAME_MAX + 1];
    char tenant[TENANT_MAX + 1];
    char scopes[SCOPES_MAX + 1];
    enum role role;
    enum auth_via via;
    int64_t expires_ms; /* wall; 0 never */
};

/* The whole tenant, or for role agent the objects that it owns and those shared with it. */
struct reach principal_reach(const struct principal *who);

/* May it, by scope ("token.create" against "token.*,event.read")? An empty list allows all. */
bool principal_scope(const struct principal *who, const char *action);

struct auth;

struct auth_options {
    bool open;          /* auth = open */
    unsigned owner_uid; /* Unix peers with this uid, or 0, are admin */
    int64_t rate_per_second, rate_burst;
    struct store *store; /* for when tokens were last used; NULL: that is not kept */
};

/* Starts empty; auth_load (on a reader or the opening thread) fills it. */
struct auth *auth_new(struct loop *loop, const struct auth_options *options);
void auth_free(struct auth *auth);
void auth_reload(struct auth *auth, const struct auth_options *options);

enum auth_result {
    AUTH_OK,
    AUTH_NOBODY,  /* no credentials at all: err is ERR_UNAUTHENTICATED */
    AUTH_REFUSED, /* wrong, expired, revoked (401), CSRF (403), brute force or rate (429) */
    AUTH_BODY,    /* signed: collect the body, then call auth_signed */
};
enum auth_result auth_check(struct auth *auth, struct http_req *req, struct principal *who,
                            struct err *err);
/*
 * Second step of a signed request. Checks the signature, and gives in `nonce_key` what must be
 * stored with auth_nonce_put inside a write job before the request may act (ERR_UNAUTHENTICATED:
 * replayed).
 */
must_use int auth_signed(struct auth *auth, struct http_req *req, struct str body,
                         struct principal *who, char nonce_key[160], struct err *err);
must_use int auth_nonce_put(struct db *db, const char *nonce_key, struct err *err);

/*
 * A credential that is checked elsewhere (a login code, an agent's secret) did not hold: counts it,
 * and makes *err ERR_RATE with retry_after where too many did. Empty: one that nobody can name.
 */
void auth_failed(struct auth *auth, const struct http_peer *peer, struct str credential,
                 struct err *err);

/* One request of this principal: 0, or -1 with ERR_RATE and retry_after. */
must_use int auth_rate(struct auth *auth, const struct principal *who, struct err *err);

/* ---- tokens (struct db: inside a job) ---- */

struct token_row {
    char id[ID_SIZE], name[TOKEN_NAME_MAX + 1], tenant[TENANT_MAX + 1], scopes[SCOPES_MAX + 1];
    enum role role;
    bool signing;
    int64_t created_ms, expires_ms, revoked_ms, used_ms;
    unsigned char hash[32], sign_key[32];
};

/*
 * Makes row and plaintext; the plaintext exists nowhere else. Of the wish count name, tenant, role,
 * scopes, signing and expires_ms. ERR_CONFLICT: a live token of the tenant has the name; ERR_LIMIT:
 * TOKENS_MAX are alive.
 */
#define TOKEN_TEXT_SIZE 48
must_use int token_create(struct db *db, const struct token_row *wish, struct token_row *out,
                          char plain[TOKEN_TEXT_SIZE], struct err *err);
/*
 * Ensures that the token with this hash exists as admin "bootstrap" (the owner's token file). An
 * older bootstrap token, whose file was lost, ends. ERR_CONFLICT: this one was revoked; whoever
 * keeps the file must make another.
 */
must_use int token_bootstrap(struct db *db, const unsigned char hash[32], struct token_row *out,
                             struct err *err);
/* Oldest first; live ones, and those that ended within TOKEN_SHOW_MS. */
#define TOKEN_SHOW_MS (30ll * 24 * 3600 * 1000)
must_use int token_list(struct db *db, const char *tenant,
                        void (*fn)(void *ctx, const struct token_row *row), void *ctx,
                        struct err *err);
/* By id or unique name. ERR_NOT_FOUND; ERR_CONFLICT when already revoked. */
must_use int token_revoke(struct db *db, const char *tenant, const char *id_or_name,
                          struct token_row *out, struct err *err);
/* 1: a live token of role agent has this name; 0: none has. */
must_use int token_is_agent(struct db *db, const char *tenant, const char *name, struct err *err);
/* Notes a use, unless a later one is noted. */
must_use int token_used(struct db *db, const char *id, int64_t at_ms, struct err *err);
/* Is it a token as token_create writes them? */
bool token_shaped(struct str text);
/* Is this offer of a WebSocket (http/ws.h) one? Its text, NUL-terminated, into `out`. */
bool token_offered(struct str item, char out[TOKEN_TEXT_SIZE]);

/* Loop thread, after the commit: makes the change effective. */
void auth_token_added(struct auth *auth, const struct token_row *row);
void auth_token_revoked(struct auth *auth, const char *id);
/* All live tokens and sessions into memory; with any db, before serving. */
must_use int auth_load(struct auth *auth, struct db *db, struct err *err);

/* ---- browser login ---- */

/* A one-time code for `#login=CODE`, LOGIN_LINK_MS valid, acting with role and tenant. */
must_use int login_link(struct db *db, const char *tenant, enum role role,
                        char code[TOKEN_TEXT_SIZE], struct err *err);
struct session_row {
    char id[ID_SIZE], tenant[TENANT_MAX + 1];
    enum role role;
    int64_t expires_ms;
    unsigned char hash[32], csrf[32];
};
/*
 * Uses the code up (single use) and makes a session; the cookie value exists nowhere else.
 * ERR_UNAUTHENTICATED: unknown, used or expired, which is one answer.
 */
must_use int login_exchange(struct db *db, const char *code, struct session_row *out,
                            char cookie[TOKEN_TEXT_SIZE], struct err *err);
/*
 * Admins of the tenant that owns the server look at others: their session ends and another one
 * begins, of that tenant, as long as the first would have lasted. Its id tells that it may go on to
 * others, and back. Who may not was asked before (principal_visits). ERR_NOT_FOUND: no such tenant.
 */
#define VISIT_PREFIX "vis"
bool principal_visits(const struct principal *who);
must_use int session_move(struct db *db, const struct principal *who, const char *tenant,
                          struct session_row *out, char cookie[TOKEN_TEXT_SIZE], struct err *err);
must_use int tenant_each(struct db *db, void (*fn)(void *ctx, struct str tenant), void *ctx,
                         struct err *err);
/* ERR_NOT_FOUND when there is none, or it has ended already. */
must_use int session_end(struct db *db, const char *id, struct err *err);
void auth_session_added(struct auth *auth, const struct session_row *row);
void auth_session_ended(struct auth *auth, const char *id);
/* What the page must send as X-Atoll-CSRF; derived from the session, not stored in the page. */
void session_csrf(const struct session_row *row, char out[65]);
/* The same, of a live session by id; -1 when it has ended. Loop thread. */
must_use int auth_session_csrf(const struct auth *auth, const char *session_id, char out[65]);
#define SESSION_COOKIE "atoll_session"

/* ---- passes to a port of a sandbox (pass.c) ---- */

#define PASS_COOKIE "atoll_pass"
#define PASS_TEXT_SIZE 160

struct pass {
    enum {
        PASS_LINK = 'l',
        PASS_SHOWN = 'c'
    } kind; /* in a link, once; in a cookie, from then on */
    const char *sandbox;
    unsigned port;
    int64_t expires_ms; /* wall; only for making one */
};

void auth_pass_make(const struct auth *auth, const struct pass *pass, const struct principal *who,
                    char out[PASS_TEXT_SIZE]);
/* On whose behalf, as they are now. ERR_UNAUTHENTICATED whatever is wrong with it. */
must_use int auth_pass_check(const struct auth *auth, const struct pass *pass, struct str text,
                             struct principal *who, struct err *err);
