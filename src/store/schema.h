/*
 * schema - the tables, as numbered steps that only go forward. Private to store/.
 */
#pragma once

#include "store/engine.h"

/* One step. {blob}, {clustered} and {number} in the text stand for the engine's own words. */
struct migration {
    int version; /* 1, 2, 3… without gaps */
    const char *name;
    const char *sql;
};

extern const struct migration schema_migrations[]; /* ends with version 0 */
extern const char schema_hub[];                    /* schema_hub.c: one step's text */
extern const char schema_hub_owned[];
extern const char schema_hub_count[];
extern const char schema_hub_owner[];

/* Marks an empty file as ours and runs every step. */
must_use int schema_create(struct db *db, const struct migration *steps, struct err *err);
/*
 * Is it our store, with the steps this program knows, unchanged, and none that it does not know?
 * Gives the newest step applied.
 */
must_use int schema_check(struct db *db, const struct migration *steps, int *version,
                          struct err *err);
/* schema_check, and then the steps that are missing, each in a transaction of its own. */
must_use int schema_migrate(struct db *db, const struct migration *steps, struct err *err);
