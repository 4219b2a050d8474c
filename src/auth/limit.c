/*
 * Both tables are sets of WAYS entries chosen by a seeded hash, as in a processor's cache: finding
 * is a handful of comparisons, and a full set gives up the entry that was idle longest. The seed is
 * secret, so nobody can aim at the set of somebody else.
 *
 * Failures are logs of the last AUTH_FAILS_PER_MIN times: with a log full, its oldest entry must be
 * a minute old before the next failure is judged. So no minute, wherever it begins, sees more than
 * the limit. An IPv6 peer is its /64, since it may use any address in it.
 *
 * A credential that has failed from a peer has a log of its own, so that a client which repeats one
 * wrong credential uses up nothing but that. A credential that is new to the peer is a guess, and
 * guesses share the log of the peer. With that log full no log is made for a new credential: a peer
 * has at most AUTH_FAILS_PER_MIN new entries in a minute.
 *
 * The pace of a principal is a token bucket in thousandths of a request. A bucket that was pushed
 * out comes back full; it had time to fill, or the table is thousands of busy principals wide.
 */
#include "auth/limit.h"

#include <arpa/inet.h>
#include <assert.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"

#define WAYS 8u
#define MINUTE_MS 60000
#define PEER_KEY_MAX 48
#define FAIL_KEY_MAX (PEER_KEY_MAX + 8) /* with a hash of the credential */

struct fail_entry {
    char key[FAIL_KEY_MAX];
    uint8_t len;   /* of key; 0: free */
    uint8_t count; /* of at_ms in use */
    uint8_t next;  /* where the next one goes: the oldest when all are in use */
    int64_t at_ms[AUTH_FAILS_PER_MIN];
};

struct rate_entry {
    char id[ID_SIZE];
    int64_t last_ms;
    int64_t milli; /* thousandths of a request left */
};

_Static_assert(AUTH_PEERS_MAX % WAYS == 0 && AUTH_RATES_MAX % WAYS == 0, "whole sets");

void limit_free(struct limit *limit)
{
    free(limit->fails);
    free(limit->rates);
    *limit = (struct limit){ 0 };
}

/* ---- failures by peer ---- */

static struct str peer_key(const char *addr, char out[PEER_KEY_MAX])
{
    struct in6_addr v6;

    if (inet_pton(AF_INET6, addr, &v6) == 1 && !IN6_IS_ADDR_V4MAPPED(&v6)) {
        out[0] = '6';
        memcpy(out + 1, &v6, 8);
        return (struct str){ out, 9 };
    }
    return (struct str){ addr, MIN(strlen(addr), (size_t)PEER_KEY_MAX) };
}

static struct fail_entry *fail_set(const struct limit *limit, struct str key)
{
    return limit->fails + (size_t)map_hash(key.p, key.n) % (AUTH_PEERS_MAX / WAYS) * WAYS;
}

static struct fail_entry *fail_find(const struct limit *limit, struct str key)
{
    if (!limit->fails || !key.n)
        return NULL;
    struct fail_entry *set = fail_set(limit, key);
    for (size_t i = 0; i < WAYS; i++)
        if (str_eq((struct str){ set[i].key, set[i].len }, key))
            return &set[i];
    return NULL;
}

static int64_t fail_newest(const struct fail_entry *entry)
{
    return entry->at_ms[(entry->next + AUTH_FAILS_PER_MIN - 1) % AUTH_FAILS_PER_MIN];
}

static struct fail_entry *fail_make(struct limit *limit, struct str key)
{
    struct fail_entry *set = fail_set(limit, key), *idle = set;

    for (size_t i = 0; i < WAYS && idle->len; i++)
        if (!set[i].len || fail_newest(&set[i]) < fail_newest(idle))
            idle = &set[i];
    *idle = (struct fail_entry){ .len = (uint8_t)key.n };
    memcpy(idle->key, key.p, key.n);
    return idle;
}

/* Notes a failure: 0, or with a full log the milliseconds until the next one is judged. */
static int64_t fail_note(struct fail_entry *entry, int64_t now_ms)
{
    if (entry->count == AUTH_FAILS_PER_MIN && entry->at_ms[entry->next] + MINUTE_MS > now_ms)
        return entry->at_ms[entry->next] + MINUTE_MS - now_ms;
    entry->at_ms[entry->next] = now_ms;
    entry->next = (uint8_t)((entry->next + 1) % AUTH_FAILS_PER_MIN);
    if (entry->count < AUTH_FAILS_PER_MIN)
        entry->count++;
    return 0;
}

static int64_t fail_note_key(struct limit *limit, struct str key, int64_t now_ms)
{
    struct fail_entry *entry = fail_find(limit, key);

    return fail_note(entry ? entry : fail_make(limit, key), now_ms);
}

int64_t limit_fail(struct limit *limit, const char *peer_addr, struct str credential,
                   int64_t now_ms)
{
    char room[PEER_KEY_MAX], own[FAIL_KEY_MAX];
    struct str peer = peer_key(peer_addr, room);

    if (!peer.n)
        peer = STR("?");
    if (!limit->fails)
        limit->fails = xcalloc(AUTH_PEERS_MAX, sizeof(*limit->fails));
    if (!credential.n)
        return fail_note_key(limit, peer, now_ms);
    uint64_t hash = map_hash(credential.p, credential.n);
    memcpy(own, peer.p, peer.n);
    memcpy(own + peer.n, &hash, sizeof(hash));
    struct str key = { own, peer.n + sizeof(hash) };
    if (fail_find(limit, key))
        return fail_note_key(limit, key, now_ms);
    int64_t wait_ms = fail_note_key(limit, peer, now_ms);
    return wait_ms ? wait_ms : fail_note_key(limit, key, now_ms);
}

bool limit_failed(const struct limit *limit, const char *peer_addr, int64_t now_ms)
{
    char room[PEER_KEY_MAX];
    const struct fail_entry *entry = fail_find(limit, peer_key(peer_addr, room));

    return entry && entry->count == AUTH_FAILS_PER_MIN &&
           entry->at_ms[entry->next] + MINUTE_MS > now_ms;
}

/* ---- pace by principal ---- */

static struct rate_entry *rate_entry(struct limit *limit, const char *id, int64_t full_milli,
                                     int64_t now_ms)
{
    size_t len = strlen(id);
    struct rate_entry *set, *idle;

    assert(len > 0 && len < sizeof(set->id));
    if (!limit->rates)
        limit->rates = xcalloc(AUTH_RATES_MAX, sizeof(*limit->rates));
    set = idle = limit->rates + (size_t)map_hash(id, len) % (AUTH_RATES_MAX / WAYS) * WAYS;
    for (size_t i = 0; i < WAYS; i++) {
        if (strcmp(set[i].id, id) == 0)
            return &set[i];
        if (idle->id[0] && (!set[i].id[0] || set[i].last_ms < idle->last_ms))
            idle = &set[i];
    }
    *idle = (struct rate_entry){ .last_ms = now_ms, .milli = full_milli };
    memcpy(idle->id, id, len);
    return idle;
}

int64_t limit_rate(struct limit *limit, const char *id, int64_t per_second, int64_t burst,
                   int64_t now_ms)
{
    int64_t full = burst * 1000;
    struct rate_entry *entry = rate_entry(limit, id, full, now_ms);
    int64_t passed = MAX(now_ms - entry->last_ms, 0);

    /* per_second requests in a second are per_second thousandths in a millisecond. */
    if (passed >= full / per_second + 1)
        entry->milli = full;
    else
        entry->milli = MIN(entry->milli + passed * per_second, full);
    entry->last_ms = now_ms;
    if (entry->milli < 1000)
        return (1000 - entry->milli + per_second - 1) / per_second;
    entry->milli -= 1000;
    return 0;
}
