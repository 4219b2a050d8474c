/*
 * The living: every token and session that may be used, found by the hash of its secret or by id.
 * Rows enter after their commit and leave at their revocation, both on the loop thread, so there
 * is no lock; what merely expires is refused by its time and swept out once a minute. Whenever an
 * entry leaves, the generation changes, and whatever remembered the entry looks again.
 */
#include "auth/own.h"

#include <stdio.h>

#include "base/clock.h"

#define SWEEP_MS 60000

static struct str hash_key(const unsigned char hash[SHA256_SIZE])
{
    return (struct str){ (const char *)hash, SHA256_SIZE };
}

static struct live *if_now(struct live *live, int64_t now_ms)
{
    return live && live_now(live, now_ms) ? live : NULL;
}

struct live *live_by_hash(const struct living *living, const unsigned char hash[SHA256_SIZE],
                          int64_t now_ms)
{
    return if_now(map_get(&living->by_hash, hash_key(hash)), now_ms);
}

struct live *live_by_id(const struct living *living, const char *id, int64_t now_ms)
{
    return if_now(map_get(&living->by_id, str_of(id)), now_ms);
}

static void live_remove(struct auth *auth, struct living *living, const char *id)
{
    struct live *live = map_del(&living->by_id, str_of(id));

    if (!live)
        return;
    map_del(&living->by_hash, hash_key(live->hash));
    explicit_bzero(live, sizeof(*live));
    free(live);
    auth->generation++;
}

static void live_add(struct auth *auth, struct living *living, const struct live *live)
{
    if (!live_now(live, auth->wall_ms()))
        return;
    live_remove(auth, living, live->who.id);
    struct live *own = xnew(struct live);
    *own = *live;
    map_put(&living->by_id, str_of(own->who.id), own);
    map_put(&living->by_hash, hash_key(own->hash), own);
}

static void living_sweep(struct auth *auth, struct living *living, int64_t now_ms)
{
    struct map_slot *slot;
    size_t at = 0, count = 0;
    autofree struct live **ended = NULL;

    /* The map must not change while it is walked. */
    while ((slot = map_next(&living->by_id, &at)))
        if (!live_now(slot->value, now_ms)) {
            if ((count & (count - 1)) == 0)
                ended = xrealloc(ended, (count ? count * 2 : 1) * sizeof(struct live *));
            ended[count++] = slot->value;
        }
    for (size_t i = 0; i < count; i++) {
        char id[ID_SIZE];

        snprintf(id, sizeof(id), "%s", ended[i]->who.id);
        live_remove(auth, living, id);
    }
}

static void sweep(struct timer *timer)
{
    struct auth *auth = container_of(timer, struct auth, sweep);
    int64_t now_ms = auth->wall_ms();

    used_write(auth);
    living_sweep(auth, &auth->tokens, now_ms);
    living_sweep(auth, &auth->sessions, now_ms);
    timer_set(auth->loop, &auth->sweep, SWEEP_MS);
}

static void living_free(struct living *living)
{
    struct map_slot *slot;
    size_t at = 0;

    while ((slot = map_next(&living->by_id, &at))) {
        explicit_bzero(slot->value, sizeof(struct live));
        free(slot->value);
    }
    map_free(&living->by_id);
    map_free(&living->by_hash);
}

struct auth *auth_new(struct loop *loop, const struct auth_options *options)
{
    struct auth *auth = xnew(struct auth);

    auth->loop = loop;
    auth->generation = 1;
    random_bytes(auth->pass_key, sizeof(auth->pass_key));
    auth->wall_ms = clock_wall_ms;
    auth->mono_ms = clock_mono_ms;
    auth->sweep.fn = sweep;
    auth->used.fn = used_soon;
    auth_reload(auth, options);
    timer_set(loop, &auth->sweep, SWEEP_MS);
    return auth;
}

void auth_free(struct auth *auth)
{
    if (!auth)
        return;
    timer_cancel(auth->loop, &auth->sweep);
    timer_cancel(auth->loop, &auth->used);
    living_free(&auth->tokens);
    living_free(&auth->sessions);
    limit_free(&auth->limit);
    replay_free(&auth->replay);
    free(auth);
}

void auth_reload(struct auth *auth, const struct auth_options *options)
{
    auth->options = *options;
    if (auth->options.rate_per_second <= 0)
        auth->options.rate_per_second = RATE_PER_SECOND;
    if (auth->options.rate_burst <= 0)
        auth->options.rate_burst = RATE_BURST;
}

void auth_token_added(struct auth *auth, const struct token_row *row)
{
    struct live live = { .signing = row->signing,
                         .used_ms = row->used_ms,
                         .noted_ms = row->used_ms };

    if (row->revoked_ms)
        return;
    live.who =
        (struct principal){ .role = row->role, .via = VIA_TOKEN, .expires_ms = row->expires_ms };
    memcpy(live.who.id, row->id, sizeof(live.who.id));
    memcpy(live.who.name, row->name, sizeof(live.who.name));
    memcpy(live.who.tenant, row->tenant, sizeof(live.who.tenant));
    memcpy(live.who.scopes, row->scopes, sizeof(live.who.scopes));
    memcpy(live.hash, row->hash, sizeof(live.hash));
    memcpy(live.key, row->sign_key, sizeof(live.key));
    live_add(auth, &auth->tokens, &live);
    explicit_bzero(&live, sizeof(live));
}

void auth_token_revoked(struct auth *auth, const char *id)
{
    live_remove(auth, &auth->tokens, id);
}

void auth_session_added(struct auth *auth, const struct session_row *row)
{
    struct live live = { 0 };

    live.who = (struct principal){
        .name = "browser", .role = row->role, .via = VIA_COOKIE, .expires_ms = row->expires_ms
    };
    memcpy(live.who.id, row->id, sizeof(live.who.id));
    memcpy(live.who.tenant, row->tenant, sizeof(live.who.tenant));
    memcpy(live.hash, row->hash, sizeof(live.hash));
    memcpy(live.key, row->csrf, sizeof(live.key));
    live_add(auth, &auth->sessions, &live);
}

void auth_session_ended(struct auth *auth, const char *id)
{
    live_remove(auth, &auth->sessions, id);
}

int auth_session_csrf(const struct auth *auth, const char *session_id, char out[65])
{
    const struct live *live = live_by_id(&auth->sessions, session_id, auth->wall_ms());

    if (!live)
        return -1;
    hex_text(live->key, sizeof(live->key), out);
    return 0;
}

static void load_token(void *ctx, const struct token_row *row)
{
    auth_token_added(ctx, row);
}

static void load_session(void *ctx, const struct session_row *row)
{
    auth_session_added(ctx, row);
}

int auth_load(struct auth *auth, struct db *db, struct err *err)
{
    int64_t now_ms = auth->wall_ms();

    if (token_each_live(db, now_ms, load_token, auth, err) < 0)
        return err_wrap(err, "load tokens");
    if (session_each_live(db, now_ms, load_session, auth, err) < 0)
        return err_wrap(err, "load sessions");
    return 0;
}
