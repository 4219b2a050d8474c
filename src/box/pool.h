/*
 * pool - sandboxes made ahead, so that who wants one does not wait for its making.
 *
 * A pool says how many of which kind (image, user, storage) stand ready. An image is a tenant's, so
 * a pool of one is for that tenant's sandboxes; others are for everybody's. A warm one is a box of
 * the warden's that nobody owns and no row knows; it has run one command, so that what a first
 * command needs is in memory. A creation that fits takes it together with its id, and binds limits,
 * mounts, labels and environment then. Refilling happens between requests, one at a time; when
 * making fails it is tried again ever more slowly. A process that starts destroys what an earlier
 * one had warm.
 *
 * Loop thread, except where there is a struct db.
 */
#pragma once

#include "box/boxes.h"

#define POOL_DEFAULT_NAME "default"

struct pool;

struct pool_view {
    const char *name, *image, *user, *storage, *error;
    int64_t size, ready, taken, missed;
};
extern const struct field pool_fields[];

struct pool_wish {
    int64_t size; /* 0: no such pool any more */
    const char *image, *user, *storage;
    const char *tenant;   /* whose image that is; NULL without one */
    const char *template; /* or NULL; says what of these is not said */
};
extern const struct field pool_wish_fields[];

/* Settles the wish: a template of the tenant's, defaults. */
must_use int pool_check(struct boxes *boxes, const char *tenant, const char *name,
                        struct pool_wish *wish, struct err *err);
/* The pool of this name is now so; what does not fit any more is destroyed. */
void pool_set(struct boxes *boxes, const char *name, const struct pool_wish *wish);
must_use int pool_row_set(struct db *db, const char *name, const struct pool_wish *wish,
                          struct err *err);
/* The next one, by age; NULL begins and ends. */
struct pool *pool_next(struct boxes *boxes, struct pool *after);
void pool_view(const struct pool *pool, struct pool_view *out);
