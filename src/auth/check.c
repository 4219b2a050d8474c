/*
 * Who sent this request? The headers are gathered in one pass, then the ways in are tried from the
 * strongest to the weakest; the first one that was attempted decides.
 *
 * A connection remembers the last Authorization that held (http_peer.app), with the generation of
 * the living at that time. When the same bytes come again and nobody has left since, the answer is
 * the same except for the time, so a busy client is hashed once per connection and not once per
 * request.
 */
#include "auth/own.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/metric.h"
#include "http/ws.h"

METRIC_COUNTER(checks, "atoll_auth_checks_total", "Credentials looked at", "result", "ok", "nobody",
               "refused", "signed")

/* ---- what was sent ---- */

enum cred { C_AUTHORIZATION, C_CSRF, C_KEY, C_TIME, C_NONCE, C_SIGNATURE, C_COUNT };

struct creds {
    struct str value[C_COUNT];
    unsigned count[C_COUNT];
    struct str cookie; /* of ours */
    unsigned cookies;
    char offered[8 + TOKEN_TEXT_SIZE]; /* an Authorization made of a WebSocket's offer */
};

/*
 * Cookies are shared by every port of a host, so others may be among them, of any form; ours is an
 * exact name and everything up to the next semicolon.
 */
static void gather_cookie(struct creds *creds, struct str header)
{
    while (header.n) {
        struct str value = str_trim(str_cut(&header, ';'));

        if (str_is(str_cut(&value, '='), SESSION_COOKIE)) {
            creds->cookie = value;
            creds->cookies++;
        }
    }
}

bool token_offered(struct str item, char out[TOKEN_TEXT_SIZE])
{
    autobuf struct buf token = { 0 };

    if (!str_starts(item, STR(WS_BEARER)) ||
        !base64_get(&token, str_from(item, strlen(WS_BEARER))) || token.len >= TOKEN_TEXT_SIZE ||
        !token_shaped(buf_view(&token)))
        return false;
    memcpy(out, token.data, token.len);
    out[token.len] = 0;
    return true;
}

/* From then on it is an Authorization like any other; beside one, it is one too many. */
static void gather_offers(const struct http_req *req, struct creds *creds)
{
    char token[TOKEN_TEXT_SIZE];
    struct ws_offers at = { 0 };
    struct str item;

    while (ws_wanted(req) && ws_offer_next(req, &at, &item)) {
        if (!token_offered(item, token))
            continue;
        int len = snprintf(creds->offered, sizeof(creds->offered), "Bearer %s", token);
        creds->value[C_AUTHORIZATION] = (struct str){ creds->offered, (size_t)len };
        creds->count[C_AUTHORIZATION]++;
    }
}

static void gather(const struct http_req *req, struct creds *creds)
{
    static const struct str names[C_COUNT] = {
        [C_AUTHORIZATION] = { "authorization", 13 },
        [C_CSRF] = { "x-atoll-csrf", 12 },
        [C_KEY] = { "x-atoll-key", 11 },
        [C_TIME] = { "x-atoll-time", 12 },
        [C_NONCE] = { "x-atoll-nonce", 13 },
        [C_SIGNATURE] = { "x-atoll-signature", 17 },
    };

    for (size_t i = 0; i < req->header_count; i++) {
        const struct http_header *header = &req->headers[i];

        if (str_eq(header->name, STR("cookie")))
            gather_cookie(creds, header->value);
        for (size_t k = 0; k < C_COUNT; k++)
            if (str_eq(header->name, names[k])) {
                creds->value[k] = header->value;
                creds->count[k]++;
            }
    }
    gather_offers(req, creds);
}

/* ---- refusing ---- */

static enum auth_result done(enum auth_result result)
{
    metric_add(&checks, (unsigned)result, 1);
    return result;
}

void auth_failed(struct auth *auth, const struct http_peer *peer, struct str credential,
                 struct err *err)
{
    int64_t wait_ms = limit_fail(&auth->limit, peer->addr, credential, auth->mono_ms());

    if (wait_ms == 0)
        return;
    err_set(err, ERR_RATE, "too many requests with credentials that are not valid");
    if (err)
        err->retry_after = (int)((wait_ms + 999) / 1000);
}

/* A credential that does not hold. Unknown, wrong, expired and revoked are one answer. */
static int wrong(struct auth *auth, const struct http_req *req, struct str credential,
                 struct err *err)
{
    err_set(err, ERR_UNAUTHENTICATED, "the credentials are not valid");
    auth_failed(auth, req->peer, credential, err);
    return -1;
}

/* One that cannot be read at all; what is wrong with its form tells nothing about any secret. */
static int malformed(struct auth *auth, const struct http_req *req, struct str credential,
                     const char *what, struct err *err)
{
    err_set(err, ERR_UNAUTHENTICATED, "%s", what);
    auth_failed(auth, req->peer, credential, err);
    return -1;
}

/* ---- bearer token ---- */

struct remembered {
    struct live *live; /* borrowed while the generation stands */
    uint64_t generation;
    uint8_t len;
    char value[8 + TOKEN_TEXT_SIZE]; /* of Authorization */
};

static bool recall(struct auth *auth, const struct http_req *req, struct str value,
                   struct principal *who)
{
    const struct remembered *last = req->peer->app;
    int64_t now_ms = auth->wall_ms();

    if (!last || last->generation != auth->generation || last->len != value.n ||
        !secret_eq(last->value, value.p, value.n) || !live_now(last->live, now_ms))
        return false;
    used_note(auth, last->live, now_ms);
    *who = last->live->who;
    return true;
}

static void forget(void *app)
{
    explicit_bzero(app, sizeof(struct remembered));
    free(app);
}

static void remember(const struct auth *auth, const struct http_req *req, struct str value,
                     struct live *live)
{
    struct remembered *last = req->peer->app;

    if (value.n > sizeof(last->value))
        return;
    if (!last) {
        req->peer->app = last = xnew(struct remembered);
        req->peer->app_free = forget;
    }
    last->live = live;
    last->generation = auth->generation;
    last->len = (uint8_t)value.n;
    memcpy(last->value, value.p, value.n);
}

/*
 * The token of "Bearer TOKEN", or of "Basic": the password, as in http://name:TOKEN@host. `room` is
 * for the decoded one. False: it is in neither form.
 */
static bool token_of(struct str value, struct buf *room, struct str *out)
{
    struct str scheme = str_cut(&value, ' ');

    *out = value;
    if (str_eq_nocase(scheme, STR("Bearer")))
        return true;
    if (!str_eq_nocase(scheme, STR("Basic")) || !base64_get(room, str_trim(value)))
        return false;
    *out = buf_view(room);
    str_cut(out, ':');
    return true;
}

static int check_authorization(struct auth *auth, struct http_req *req, struct str value,
                               struct principal *who, struct err *err)
{
    unsigned char hash[SHA256_SIZE];
    autobuf struct buf room = { 0 };
    struct str token;

    if (!token_of(value, &room, &token))
        return malformed(
            auth, req, value,
            "Authorization must be \"Bearer\" and a token, or \"Basic\" with the token "
            "as password",
            err);
    if (!token_shaped(token))
        return malformed(auth, req, value,
                         "not a token of this server: those begin with " TOKEN_PREFIX, err);
    int64_t now_ms = auth->wall_ms();
    sha256(token.p, token.n, hash);
    struct live *live = live_by_hash(&auth->tokens, hash, now_ms);
    if (!live)
        return wrong(auth, req, token, err);
    if (live->signing)
        return malformed(auth, req, token,
                         "this token signs requests (X-Atoll-Signature) and is never sent", err);
    used_note(auth, live, now_ms);
    *who = live->who;
    remember(auth, req, value, live);
    return 0;
}

/* ---- session cookie ---- */

static int check_csrf(const struct http_req *req, const struct creds *creds,
                      const struct live *live, struct err *err)
{
    unsigned char given[SHA256_SIZE];

    if (str_is(req->method, "GET") || str_is(req->method, "HEAD"))
        return 0;
    if (creds->count[C_CSRF] == 1 && hex_bytes(creds->value[C_CSRF], given, sizeof(given)) &&
        secret_eq(given, live->key, sizeof(given)))
        return 0;
    return err_set(err, ERR_FORBIDDEN, "a change by cookie needs the page's X-Atoll-CSRF header");
}

static int check_cookie(struct auth *auth, struct http_req *req, const struct creds *creds,
                        struct principal *who, struct err *err)
{
    unsigned char hash[SHA256_SIZE];

    if (creds->cookies > 1)
        return malformed(auth, req, creds->cookie, "more than one session cookie", err);
    if (!secret_shaped(creds->cookie, SESSION_PREFIX))
        return wrong(auth, req, creds->cookie, err);
    sha256(creds->cookie.p, creds->cookie.n, hash);
    const struct live *live = live_by_hash(&auth->sessions, hash, auth->wall_ms());
    if (!live)
        return wrong(auth, req, creds->cookie, err);
    if (check_csrf(req, creds, live, err) < 0)
        return -1;
    *who = live->who;
    return 0;
}

/* ---- signed request ---- */

static bool is_signed(const struct creds *creds)
{
    return creds->count[C_KEY] || creds->count[C_TIME] || creds->count[C_NONCE] ||
           creds->count[C_SIGNATURE];
}

static bool nonce_ok(struct str nonce)
{
    if (nonce.n < AUTH_NONCE_MIN || nonce.n > AUTH_NONCE_MAX)
        return false;
    for (size_t i = 0; i < nonce.n; i++) {
        char c = nonce.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_'))
            return false;
    }
    return true;
}

/* What can be told before the body is there, and from the headers alone. */
static int check_signed_head(struct auth *auth, const struct http_req *req,
                             const struct creds *creds, unsigned char signature[SHA256_SIZE],
                             struct err *err)
{
    int64_t time_ms, now_ms = auth->wall_ms();

    for (size_t k = C_KEY; k <= C_SIGNATURE; k++)
        if (creds->count[k] != 1)
            return malformed(auth, req, creds->value[C_KEY],
                             "a signed request needs X-Atoll-Key, -Time, -Nonce and -Signature, "
                             "each once",
                             err);
    if (!id_valid(creds->value[C_KEY], "tok"))
        return malformed(auth, req, creds->value[C_KEY], "X-Atoll-Key must be a token's id", err);
    if (!nonce_ok(creds->value[C_NONCE]))
        return malformed(auth, req, creds->value[C_KEY],
                         "X-Atoll-Nonce must be 8 to 64 of A-Z a-z 0-9 _ -", err);
    if (!hex_bytes(creds->value[C_SIGNATURE], signature, SHA256_SIZE))
        return malformed(auth, req, creds->value[C_KEY], "X-Atoll-Signature must be 64 hex digits",
                         err);
    if (!str_to_i64(creds->value[C_TIME], &time_ms) || time_ms < 0)
        return malformed(auth, req, creds->value[C_KEY],
                         "X-Atoll-Time must be milliseconds since 1970", err);
    if (time_ms < now_ms - AUTH_SKEW_MS || time_ms > now_ms + AUTH_SKEW_MS)
        return malformed(auth, req, creds->value[C_KEY],
                         "X-Atoll-Time is more than 60 s from the server's clock", err);
    return 0;
}

/* A key that is not there, of a peer that has guessed too often: its body is not read. */
static bool guesses_key(struct auth *auth, const struct http_req *req, const struct creds *creds,
                        struct err *err)
{
    char id[ID_SIZE];

    if (!limit_failed(&auth->limit, req->peer->addr, auth->mono_ms()))
        return false;
    snprintf(id, sizeof(id), "%.*s", STR_FMT(creds->value[C_KEY]));
    if (live_by_id(&auth->tokens, id, auth->wall_ms()))
        return false;
    (void)wrong(auth, req, creds->value[C_KEY], err);
    return true;
}

static void sign(const struct http_req *req, const struct creds *creds, struct str body,
                 const unsigned char key[SHA256_SIZE], unsigned char out[SHA256_SIZE])
{
    unsigned char body_hash[SHA256_SIZE];
    char body_hex[SHA256_HEX_SIZE];
    autobuf struct buf text = { 0 };

    sha256(body.p, body.n, body_hash);
    hex_text(body_hash, sizeof(body_hash), body_hex);
    const struct str lines[] = { req->method,
                                 req->target,
                                 creds->value[C_TIME],
                                 creds->value[C_NONCE],
                                 { body_hex, SHA256_HEX_SIZE - 1 },
                                 creds->value[C_KEY] };
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        if (i)
            buf_putc(&text, '\n');
        buf_str(&text, lines[i]);
    }
    hmac_sha256((struct str){ (const char *)key, SHA256_SIZE }, buf_view(&text), out);
}

int auth_signed(struct auth *auth, struct http_req *req, struct str body, struct principal *who,
                char nonce_key[160], struct err *err)
{
    static const unsigned char nobody[SHA256_SIZE];
    unsigned char given[SHA256_SIZE], want[SHA256_SIZE];
    struct creds creds = { 0 };
    char id[ID_SIZE];

    gather(req, &creds);
    /* Again, for the body may have taken its time. */
    if (check_signed_head(auth, req, &creds, given, err) < 0)
        return -1;
    snprintf(id, sizeof(id), "%.*s", STR_FMT(creds.value[C_KEY]));
    struct live *live = live_by_id(&auth->tokens, id, auth->wall_ms());
    if (live && !live->signing)
        live = NULL;
    /* The same work for a key that is not there. */
    sign(req, &creds, body, live ? live->key : nobody, want);
    if (!secret_eq(given, want, sizeof(want)) || !live)
        return wrong(auth, req, creds.value[C_KEY], err);
    switch (replay_note(&auth->replay, want, auth->mono_ms())) {
    case REPLAY_SEEN:
        return malformed(auth, req, creds.value[C_KEY], "this signed request was made before", err);
    case REPLAY_FULL:
        err_set(err, ERR_RATE, "too many signed requests");
        if (err)
            err->retry_after = AUTH_SKEW_MS / 1000;
        return -1;
    case REPLAY_NEW:
    default:
        break;
    }
    used_note(auth, live, auth->wall_ms());
    *who = live->who;
    who->via = VIA_SIGNED;
    snprintf(nonce_key, 160, "%s:%.*s", id, STR_FMT(creds.value[C_NONCE]));
    return 0;
}

/* ---- without a credential ---- */

static void admin(struct principal *who, enum auth_via via)
{
    *who = (struct principal){ .tenant = TENANT_DEFAULT, .role = ROLE_ADMIN, .via = via };
}

/* auth = open, and a peer that it is open to. */
static bool is_open(const struct auth *auth, const struct http_peer *peer)
{
    return auth->options.open && (peer->loopback || peer->local);
}

static bool by_position(const struct auth *auth, const struct http_peer *peer,
                        struct principal *who)
{
    if (peer->local && (peer->uid == 0 || peer->uid == auth->options.owner_uid)) {
        admin(who, VIA_UNIX);
        snprintf(who->id, sizeof(who->id), "unix:%u", peer->uid);
        memcpy(who->name, who->id, sizeof(who->id));
        return true;
    }
    if (is_open(auth, peer)) {
        admin(who, VIA_OPEN);
        memcpy(who->id, "open", 5);
        memcpy(who->name, "open", 5);
        return true;
    }
    return false;
}

/* ---- all of it ---- */

static int check_given(struct auth *auth, struct http_req *req, const struct creds *creds,
                       struct principal *who, struct err *err)
{
    if (creds->count[C_AUTHORIZATION] > 1)
        return malformed(auth, req, creds->value[C_AUTHORIZATION],
                         "more than one Authorization header", err);
    if (creds->count[C_AUTHORIZATION])
        return check_authorization(auth, req, creds->value[C_AUTHORIZATION], who, err);
    return check_cookie(auth, req, creds, who, err);
}

enum auth_result auth_check(struct auth *auth, struct http_req *req, struct principal *who,
                            struct err *err)
{
    struct creds creds = { 0 };

    gather(req, &creds);
    /* A browser goes on sending the cookie of an earlier server; where none is needed, let it. */
    if (is_open(auth, req->peer))
        creds.cookies = 0;
    if (is_signed(&creds)) {
        unsigned char signature[SHA256_SIZE];

        if (check_signed_head(auth, req, &creds, signature, err) < 0 ||
            guesses_key(auth, req, &creds, err))
            return done(AUTH_REFUSED);
        return done(AUTH_BODY);
    }
    if (creds.count[C_AUTHORIZATION] == 1 && recall(auth, req, creds.value[C_AUTHORIZATION], who))
        return done(AUTH_OK);
    if (creds.count[C_AUTHORIZATION] || creds.cookies)
        return done(check_given(auth, req, &creds, who, err) < 0 ? AUTH_REFUSED : AUTH_OK);
    if (by_position(auth, req->peer, who))
        return done(AUTH_OK);
    err_set(err, ERR_UNAUTHENTICATED, "credentials are needed");
    return done(AUTH_NOBODY);
}

int auth_rate(struct auth *auth, const struct principal *who, struct err *err)
{
    int64_t wait_ms = limit_rate(&auth->limit, who->id, auth->options.rate_per_second,
                                 auth->options.rate_burst, auth->mono_ms());

    if (wait_ms == 0)
        return 0;
    err_set(err, ERR_RATE, "more than %lld requests per second",
            (long long)auth->options.rate_per_second);
    if (err)
        err->retry_after = (int)((wait_ms + 999) / 1000);
    return -1;
}
