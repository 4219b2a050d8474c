/*
 * own - what the files of auth share and nobody else sees: the table of the living, and the clocks
 * (replaceable, so that a test can stand at exactly 60 seconds).
 */
#pragma once

#include "auth/auth.h"
#include "auth/limit.h"
#include "auth/replay.h"
#include "base/hash.h"
#include "base/map.h"

/* A token or a browser session that may be used now. */
struct live {
    struct principal who;
    unsigned char hash[SHA256_SIZE];
    unsigned char key[SHA256_SIZE]; /* of a token: signing key; of a session: CSRF value */
    bool signing;
    int64_t used_ms;  /* of a token: last use, and… */
    int64_t noted_ms; /* …the last one that was given to the store */
};

/* By hash for who shows the secret, by id for who names it. */
struct living {
    struct map by_hash, by_id; /* by_id owns */
};

struct auth {
    struct loop *loop;
    struct auth_options options;
    struct living tokens, sessions; /* apart: a cookie is no bearer token, nor the reverse */
    uint64_t generation;            /* changes whenever something stops being alive */
    struct timer sweep, used;
    struct limit limit;
    struct replay replay;
    unsigned char pass_key[SHA256_SIZE]; /* of this process */
    int64_t (*wall_ms)(void);
    int64_t (*mono_ms)(void);
};

/* Alive and not past its time; NULL otherwise. */
struct live *live_by_hash(const struct living *living, const unsigned char hash[SHA256_SIZE],
                          int64_t now_ms);
struct live *live_by_id(const struct living *living, const char *id, int64_t now_ms);

static inline bool live_now(const struct live *live, int64_t now_ms)
{
    return live->who.expires_ms == 0 || live->who.expires_ms > now_ms;
}

/* used.c: a token was used; write what is due; `used` has run out. */
void used_note(struct auth *auth, struct live *live, int64_t now_ms);
void used_write(struct auth *auth);
void used_soon(struct timer *timer);

/* 256 random bits as text: a prefix of four characters, then base64url. */
void secret_make(const char *prefix, char out[TOKEN_TEXT_SIZE], unsigned char hash[SHA256_SIZE]);
bool secret_shaped(struct str text, const char *prefix);

#define TOKEN_PREFIX "atl_"
#define SESSION_PREFIX "ats_"
#define LOGIN_PREFIX "atc_"

/* Makes sure that the tenant has a row; the others refer to it. */
must_use int tenant_ensure(struct db *db, const char *tenant, struct err *err);

/* Every row that may be used now, for auth_load. */
must_use int token_each_live(struct db *db, int64_t now_ms,
                             void (*fn)(void *ctx, const struct token_row *row), void *ctx,
                             struct err *err);
must_use int session_each_live(struct db *db, int64_t now_ms,
                               void (*fn)(void *ctx, const struct session_row *row), void *ctx,
                               struct err *err);
