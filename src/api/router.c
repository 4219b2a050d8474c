/* See router.h. A parameter never matches an empty segment, and never crosses a slash. */
#include "api/router.h"

#include "base/map.h"
#include "http/url.h"

#define SEGMENTS_MAX 12

/* What tells most patterns with parameters apart from a path, side by side in memory. */
struct router_open {
    struct str fixed; /* up to the first parameter */
    unsigned deep;
    bool rest;
    const struct router_path *path;
};

struct router {
    struct map exact; /* path -> struct router_path * */
    struct router_path *paths;
    size_t count;
    struct router_open *open;
    size_t open_count;
};

static bool has_rest(const char *pattern)
{
    size_t len = strlen(pattern);

    return len > 2 && strcmp(pattern + len - 2, "*}") == 0;
}

static unsigned slashes(struct str path)
{
    unsigned count = 0;

    for (size_t i = 0; i < path.n; i++)
        count += path.p[i] == '/';
    return count;
}

static struct router_path *path_for(struct router *router, const char *pattern)
{
    for (size_t i = 0; i < router->count; i++)
        if (strcmp(router->paths[i].pattern, pattern) == 0)
            return &router->paths[i];
    struct router_path *path = &router->paths[router->count++];
    path->pattern = pattern;
    return path;
}

static void add_path(struct router *router, struct router_path *path)
{
    struct str pattern = str_of(path->pattern);
    const char *first = strchr(path->pattern, '{');

    if (first)
        router->open[router->open_count++] = (struct router_open){
            .fixed = { pattern.p, (size_t)(first - pattern.p) },
            .deep = slashes(pattern),
            .rest = has_rest(path->pattern),
            .path = path,
        };
    else
        map_put(&router->exact, pattern, path);
}

struct router *router_new(const struct route *const *tables)
{
    struct router *router = xnew(struct router);
    size_t total = 0;

    for (const struct route *const *table = tables; *table; table++)
        for (const struct route *route = *table; route->name; route++)
            total++;
    router->paths = xcalloc(total, sizeof(*router->paths));
    router->open = xcalloc(total, sizeof(*router->open));
    for (const struct route *const *table = tables; *table; table++)
        for (const struct route *route = *table; route->name; route++) {
            struct router_path *path = path_for(router, route->path);

            if (path->count == ARRAY_LEN(path->routes))
                abort(); /* our own table */
            path->routes[path->count++] = route;
        }
    for (size_t i = 0; i < router->count; i++)
        add_path(router, &router->paths[i]);
    return router;
}

void router_free(struct router *router)
{
    if (!router)
        return;
    map_free(&router->exact);
    free(router->open);
    free(router->paths);
    free(router);
}

/* "{name}" */
static bool is_param(struct str segment)
{
    return segment.n > 2 && segment.p[0] == '{' && segment.p[segment.n - 1] == '}';
}

/* "{name*}", at the end of a pattern: all that is left, slashes and all, as it was sent. */
static bool is_rest(struct str segment)
{
    return is_param(segment) && segment.p[segment.n - 2] == '*';
}

static bool match(const struct router_path *entry, struct str path, struct arena *arena,
                  struct call_param *params, unsigned *count)
{
    struct str want = str_of(entry->pattern);
    unsigned found = 0;

    for (int i = 0; i < SEGMENTS_MAX; i++) {
        if (!want.n || (!path.n && !is_rest(want)))
            break;
        struct str want_part = str_cut(&want, '/');
        if (is_rest(want_part)) {
            if (found == CALL_PARAMS_MAX)
                return false;
            params[found++] = (struct call_param){
                .name = arena_memdup0(arena, want_part.p + 1, want_part.n - 3),
                .value = arena_memdup0(arena, path.p ? path.p : "", path.n),
            };
            *count = found;
            return true;
        }
        struct str part = str_cut(&path, '/'), text;

        if (!is_param(want_part)) {
            if (!str_eq(want_part, part))
                return false;
            continue;
        }
        if (!part.n || found == CALL_PARAMS_MAX || !url_decode(arena, part, false, &text))
            return false;
        params[found++] = (struct call_param){
            .name = arena_memdup0(arena, want_part.p + 1, want_part.n - 2),
            .value = arena_memdup0(arena, text.p, text.n),
        };
    }
    if (want.n || path.n)
        return false;
    *count = found;
    return true;
}

const struct router_path *router_find(const struct router *router, struct str path,
                                      struct arena *arena, struct call_param *params,
                                      unsigned *count)
{
    const struct router_path *exact = map_get(&router->exact, path);

    *count = 0;
    if (exact)
        return exact;
    if (!path.n)
        return NULL;
    bool ends = path.p[path.n - 1] == '/'; /* then it is nobody's who does not take a rest */
    unsigned deep = slashes(path);
    for (size_t i = 0; i < router->open_count; i++) {
        const struct router_open *entry = &router->open[i];

        if ((entry->rest ? entry->deep > deep : ends || entry->deep != deep) ||
            !str_starts(path, entry->fixed))
            continue;
        if (match(entry->path, path, arena, params, count))
            return entry->path;
    }
    return NULL;
}

const struct route *router_pick(const struct router_path *path, struct str method, unsigned wish)
{
    const struct route *plain = NULL, *other = NULL;

    if (str_is(method, "HEAD"))
        method = STR("GET");
    for (unsigned i = 0; i < path->count; i++) {
        const struct route *route = path->routes[i];

        if (!str_is(method, route->method))
            continue;
        unsigned kind = route->flags & (ROUTE_SSE | ROUTE_WS | ROUTE_FOLLOW);
        if (kind & wish)
            return route;
        if (!kind)
            plain = route;
        else if (!other)
            other = route;
    }
    return plain ? plain : other; /* a path that only streams does so for everyone */
}

void router_allow(const struct router_path *path, struct buf *out)
{
    for (unsigned i = 0; i < path->count; i++) {
        const char *method = path->routes[i]->method;
        bool seen = false;

        for (unsigned k = 0; k < i; k++)
            seen |= strcmp(path->routes[k]->method, method) == 0;
        if (seen)
            continue;
        buf_printf(out, "%s%s", out->len ? ", " : "", method);
        if (strcmp(method, "GET") == 0)
            buf_puts(out, ", HEAD");
    }
    buf_puts(out, out->len ? ", OPTIONS" : "OPTIONS");
}
