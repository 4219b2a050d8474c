/*
 * Open addressing with linear probing, at most 3/4 full counting the graves. The hash is
 * SipHash-1-3 with a random key per process: an outsider cannot aim for collisions.
 */
#include "base/map.h"

#include <pthread.h>
#include <sys/random.h>

#include "base/mem.h"

static char map_gone_[1];
static uint64_t seed[2];
static pthread_once_t seed_once = PTHREAD_ONCE_INIT;

static void seed_make(void)
{
    if (getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        abort();
}

static uint64_t rotl(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[2] += v[3];
    v[1] = rotl(v[1], 13) ^ v[0], v[3] = rotl(v[3], 16) ^ v[2];
    v[0] = rotl(v[0], 32);
    v[2] += v[1], v[0] += v[3];
    v[1] = rotl(v[1], 17) ^ v[2], v[3] = rotl(v[3], 21) ^ v[0];
    v[2] = rotl(v[2], 32);
}

uint32_t map_hash(const void *data, size_t len)
{
    const unsigned char *p = data;
    uint64_t word = 0;

    pthread_once(&seed_once, seed_make);
    uint64_t v[4] = { seed[0] ^ 0x736f6d6570736575u, seed[1] ^ 0x646f72616e646f6du,
                      seed[0] ^ 0x6c7967656e657261u, seed[1] ^ 0x7465646279746573u };
    size_t whole = len & ~(size_t)7;

    for (size_t i = 0; i < whole; i += 8) {
        memcpy(&word, p + i, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = (uint64_t)len << 56;
    for (size_t i = whole; i < len; i++)
        word |= (uint64_t)p[i] << (8 * (i - whole));
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    uint64_t out = v[0] ^ v[1] ^ v[2] ^ v[3];
    return (uint32_t)(out ^ out >> 32);
}

static bool live(const struct map_slot *slot)
{
    return slot->key && slot->key != map_gone_;
}

void map_free(struct map *map)
{
    for (size_t i = 0; i < map->cap; i++)
        if (live(&map->slots[i]))
            free(map->slots[i].key);
    free(map->slots);
    *map = (struct map){ 0 };
}

static struct map_slot *find(const struct map *map, struct str key, uint32_t hash)
{
    if (!map->cap)
        return NULL;
    for (size_t i = hash & (map->cap - 1);; i = (i + 1) & (map->cap - 1)) {
        struct map_slot *slot = &map->slots[i];

        if (!slot->key)
            return NULL;
        if (live(slot) && slot->hash == hash && slot->len == key.n &&
            (key.n == 0 || memcmp(slot->key, key.p, key.n) == 0))
            return slot;
    }
}

static struct map_slot *vacancy(struct map_slot *slots, size_t cap, uint32_t hash)
{
    size_t i = hash & (cap - 1);

    while (live(&slots[i]))
        i = (i + 1) & (cap - 1);
    return &slots[i];
}

static void rehash(struct map *map)
{
    size_t cap = map->cap ? map->cap : 8;

    while (map->used * 2 >= cap)
        cap *= 2;
    struct map_slot *slots = xcalloc(cap, sizeof(*slots));
    for (size_t i = 0; i < map->cap; i++)
        if (live(&map->slots[i]))
            *vacancy(slots, cap, map->slots[i].hash) = map->slots[i];
    free(map->slots);
    map->slots = slots;
    map->cap = cap;
    map->gone = 0;
}

void *map_get(const struct map *map, struct str key)
{
    struct map_slot *slot = find(map, key, map_hash(key.p, key.n));

    return slot ? slot->value : NULL;
}

void *map_put(struct map *map, struct str key, void *value)
{
    uint32_t hash = map_hash(key.p, key.n);
    struct map_slot *slot = find(map, key, hash);

    if (slot) {
        void *old = slot->value;

        slot->value = value;
        return old;
    }
    if ((map->used + map->gone + 1) * 4 > map->cap * 3)
        rehash(map);
    slot = vacancy(map->slots, map->cap, hash);
    if (slot->key == map_gone_)
        map->gone--;
    *slot = (struct map_slot){ xmemdup0(key.p, key.n), (uint32_t)key.n, hash, value };
    map->used++;
    return NULL;
}

void *map_del(struct map *map, struct str key)
{
    struct map_slot *slot = find(map, key, map_hash(key.p, key.n));

    if (!slot)
        return NULL;
    void *old = slot->value;
    free(slot->key);
    *slot = (struct map_slot){ .key = map_gone_ };
    map->used--;
    map->gone++;
    return old;
}

struct map_slot *map_next(const struct map *map, size_t *at)
{
    while (*at < map->cap) {
        struct map_slot *slot = &map->slots[(*at)++];

        if (live(slot))
            return slot;
    }
    return NULL;
}
