/*
 * router - from method and path to a route; inside the api room.
 *
 * Paths without parameters are found by one hash look-up; the others, if their number of segments
 * and what stands before their first parameter fit, are compared segment by segment; one whose last
 * segment is `{name*}` takes all that is left, not decoded. Built once; read-only afterwards.
 */
#pragma once

#include "api/api.h"

/* All routes of one path pattern. */
struct router_path {
    const char *pattern;
    const struct route *routes[8];
    unsigned count;
};

struct router;

struct router *router_new(const struct route *const *tables);
void router_free(struct router *router);

/* The path's routes, with its parameters decoded into the arena; NULL when nothing matches. */
const struct router_path *router_find(const struct router *router, struct str path,
                                      struct arena *arena, struct call_param *params,
                                      unsigned *count);
/* Of one path, by method and wish (0, ROUTE_SSE, ROUTE_WS, ROUTE_FOLLOW); NULL when the method is
 * not there. */
const struct route *router_pick(const struct router_path *path, struct str method, unsigned wish);
/* "GET, HEAD, POST" */
void router_allow(const struct router_path *path, struct buf *out);
