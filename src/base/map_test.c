/* map: agrees with a plain array through any mix of changes, and stays small. */
#include "base/map.h"

#include "base/mem.h"
#include "base/test.h"

#define KEYS 200

static struct str key_of(uint32_t i, char out[8])
{
    /* Keys with NUL inside and of every length, the empty one too. */
    for (size_t k = 0; k < 8; k++)
        out[k] = (char)((size_t)i * 37 + k);
    return (struct str){ out, i % 9 == 8 ? 0 : 1 + i % 8 };
}

TEST(map_agrees_with_a_plain_array)
{
    automap struct map map = { 0 };
    void *model[KEYS] = { 0 };
    static char values[1000];
    size_t live = 0;

    for (int step = 0; step < 60000; step++) {
        char room[8];
        uint32_t i = test_rand(KEYS);
        struct str key = key_of(i, room);
        uint32_t same = i; /* the first index with an equal key stands for all */

        for (uint32_t k = 0; k < i; k++) {
            char other[8];

            if (str_eq(key_of(k, other), key)) {
                same = k;
                break;
            }
        }
        void *value = &values[test_rand(sizeof(values))];
        /* Waves of growth and decay, so that graves pile up. */
        uint32_t what = test_rand(step / 5000 % 2 ? 3 : 8);
        if (what == 0) {
            CHECK(map_del(&map, key) == model[same]);
            live -= model[same] != NULL;
            model[same] = NULL;
        } else if (what == 1) {
            CHECK(map_get(&map, key) == model[same]);
        } else {
            CHECK(map_put(&map, key, value) == model[same]);
            live += model[same] == NULL;
            model[same] = value;
        }
        CHECK(map.used == live && map.cap <= 1024);
    }
    struct map_slot *slot;
    size_t at = 0, seen = 0;
    while ((slot = map_next(&map, &at))) {
        CHECK(map_get(&map, (struct str){ slot->key, slot->len }) == slot->value);
        seen++;
    }
    CHECK_INT(seen, live);
}

TEST(churn_does_not_grow_the_map)
{
    automap struct map map = { 0 };
    char value;

    for (uint32_t i = 0; i < 100000; i++) {
        struct str key = { (const char *)&i, sizeof(i) };

        CHECK(!map_put(&map, key, &value));
        CHECK(map_del(&map, key) == &value);
    }
    CHECK(map.cap <= 16 && map.used == 0);
}

TEST(an_empty_map_has_nothing)
{
    struct map map = { 0 };
    size_t at = 0;

    CHECK(!map_get(&map, STR("a")) && !map_del(&map, STR("a")) && !map_next(&map, &at));
    map_free(&map);
    map_free(&map);
}

TEST(keys_are_copied)
{
    automap struct map map = { 0 };
    char key[] = "abc", value;

    map_put(&map, STR("abc"), &value);
    map_put(&map, (struct str){ key, 3 }, &value);
    key[0] = 'x';
    CHECK(map.used == 1 && map_get(&map, STR("abc")) == &value);
}

TEST(the_hash_spreads_and_depends_on_every_byte)
{
    unsigned buckets[64] = { 0 };
    char data[24];

    for (uint32_t i = 0; i < 64000; i++)
        buckets[map_hash(&i, sizeof(i)) % 64]++;
    for (size_t i = 0; i < 64; i++)
        CHECK(buckets[i] > 700 && buckets[i] < 1300); /* 1000 expected, deviation about 32 */
    for (size_t len = 0; len <= sizeof(data); len++) {
        memset(data, 7, sizeof(data));
        uint32_t before = map_hash(data, len);
        CHECK(map_hash(data, len) == before);
        for (size_t i = 0; i < len; i++) {
            data[i] ^= 1;
            CHECK(map_hash(data, len) != before);
            data[i] ^= 1;
        }
    }
}
