/*
 * map - string keys to pointers. Keys are copied; values are borrowed. The hash is seeded per
 * process, because keys may come from peers. Zero is a valid empty map. One thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/str.h"

struct map_slot {
    char *key; /* owned; NULL is empty, map_gone_ is deleted */
    uint32_t len, hash;
    void *value;
};

struct map {
    struct map_slot *slots;
    size_t cap, used, gone;
};

void map_free(struct map *map);
#define automap auto_with(map_free)

void *map_get(const struct map *map, struct str key);
/* Stores `value` (not NULL) and returns what stood there before, or NULL. */
void *map_put(struct map *map, struct str key, void *value);
/* Takes the entry out and returns its value, or NULL. */
void *map_del(struct map *map, struct str key);

/* Walks in no order: size_t at = 0; while ((slot = map_next(map, &at))) …; no changes meanwhile. */
struct map_slot *map_next(const struct map *map, size_t *at);

/* The seeded hash itself, for other tables over hostile keys. */
uint32_t map_hash(const void *data, size_t len);
