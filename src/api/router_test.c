/* router: exact and parametrised paths, methods, wishes; every served route finds itself. */
#include "api/router.h"

#include "base/test.h"

static int never(struct call *call, struct err *err)
{
    (void)call;
    return err_set(err, ERR_INTERNAL, "never called");
}

static const struct route table[] = {
    { .name = "a.list", .method = "GET", .path = "/a", .fn = never },
    { .name = "a.make", .method = "POST", .path = "/a", .fn = never },
    { .name = "a.watch", .method = "GET", .path = "/a", .fn = never, .flags = ROUTE_SSE },
    { .name = "a.one", .method = "GET", .path = "/a/{id}", .fn = never },
    { .name = "a.special", .method = "GET", .path = "/a/special", .fn = never },
    { .name = "a.part", .method = "DELETE", .path = "/a/{id}/parts/{part}", .fn = never },
    { .name = "a.beyond", .method = "GET", .path = "/b/{id}/to/{rest*}", .fn = never },
    { .name = "a.bare", .method = "GET", .path = "/b/{id}/to", .fn = never },
    { .name = "only.live",
      .method = "GET",
      .path = "/live",
      .fn = never,
      .flags = ROUTE_SSE | ROUTE_WS },
    { 0 },
};
static const struct route *const tables[] = { table, NULL };

static const char *pick(struct router *router, const char *method, const char *path, unsigned wish)
{
    static struct call_param params[CALL_PARAMS_MAX];
    static struct arena arena;
    unsigned count;
    const struct router_path *found = router_find(router, str_of(path), &arena, params, &count);
    const struct route *route = found ? router_pick(found, str_of(method), wish) : NULL;

    return route ? route->name : found ? "405" : "404";
}

TEST(router_picks_by_path_method_and_wish)
{
    struct router *router = router_new(tables);

    CHECK_STR(pick(router, "GET", "/a", 0), "a.list");
    CHECK_STR(pick(router, "HEAD", "/a", 0), "a.list");
    CHECK_STR(pick(router, "POST", "/a", 0), "a.make");
    CHECK_STR(pick(router, "GET", "/a", ROUTE_SSE), "a.watch");
    CHECK_STR(pick(router, "GET", "/a", ROUTE_WS), "a.list");
    CHECK_STR(pick(router, "PUT", "/a", 0), "405");
    CHECK_STR(pick(router, "GET", "/a/special", 0), "a.special");
    CHECK_STR(pick(router, "GET", "/a/x", 0), "a.one");
    CHECK_STR(pick(router, "GET", "/live", 0), "only.live");
    CHECK_STR(pick(router, "GET", "/live", ROUTE_SSE), "only.live");
    CHECK_STR(pick(router, "GET", "/live", ROUTE_WS), "only.live");
    CHECK_STR(pick(router, "DELETE", "/a/1/parts/2", 0), "a.part");
    CHECK_STR(pick(router, "GET", "/a/", 0), "404");
    CHECK_STR(pick(router, "GET", "/a/x/", 0), "404");
    CHECK_STR(pick(router, "GET", "/a/x/y", 0), "404");
    CHECK_STR(pick(router, "DELETE", "/a//parts/2", 0), "404");
    CHECK_STR(pick(router, "GET", "", 0), "404");
    CHECK_STR(pick(router, "GET", "/a/%zz", 0), "404");
    router_free(router);
}

TEST(router_decodes_parameters)
{
    struct router *router = router_new(tables);
    struct call_param params[CALL_PARAMS_MAX];
    autoarena struct arena arena = { 0 };
    unsigned count;

    CHECK(router_find(router, STR("/a/x%20y/parts/%C3%A9"), &arena, params, &count) != NULL);
    CHECK_INT(count, 2);
    CHECK_STR(params[0].name, "id");
    CHECK_STR(params[0].value, "x y");
    CHECK_STR(params[1].name, "part");
    CHECK_STR(params[1].value, "\xc3\xa9");
    router_free(router);
}

TEST(router_gives_the_rest_as_it_was_sent)
{
    static const struct {
        const char *path, *rest;
    } rests[] = {
        { "/b/1/to/", "" },
        { "/b/1/to/x", "x" },
        { "/b/1/to/x/", "x/" },
        { "/b/1/to/a/b/c/d/e/f/g/h/i/j/k/l/m/n", "a/b/c/d/e/f/g/h/i/j/k/l/m/n" },
        { "/b/1/to/%20", "%20" },
    };
    struct router *router = router_new(tables);
    struct call_param params[CALL_PARAMS_MAX];
    autoarena struct arena arena = { 0 };
    unsigned count;

    for (size_t i = 0; i < ARRAY_LEN(rests); i++) {
        const struct router_path *path =
            router_find(router, str_of(rests[i].path), &arena, params, &count);

        CHECK(path && count == 2);
        CHECK_STR(path->routes[0]->name, "a.beyond");
        CHECK_STR(params[1].name, "rest");
        CHECK_STR(params[1].value, rests[i].rest);
    }
    CHECK_STR(pick(router, "GET", "/b/1/to", 0), "a.bare");
    CHECK_STR(pick(router, "GET", "/b/1", 0), "404");
    CHECK_STR(pick(router, "GET", "/b//to/x", 0), "404");
    router_free(router);
}

TEST(router_tells_what_is_allowed)
{
    struct router *router = router_new(tables);
    struct call_param params[CALL_PARAMS_MAX];
    autoarena struct arena arena = { 0 };
    autobuf struct buf allow = { 0 };
    unsigned count;

    router_allow(router_find(router, STR("/a"), &arena, params, &count), &allow);
    CHECK_STR(buf_cstr(&allow), "GET, HEAD, POST, OPTIONS");
    router_free(router);
}

TEST(every_route_is_complete_and_closed_by_default)
{
    for (const struct route *const *t = api_tables; *t; t++)
        for (const struct route *route = *t; route->name; route++) {
            CHECK(route->fn && route->summary && route->path[0] == '/');
            CHECK(route->roles != 0 && (route->roles & ~(ROLE_ANY | ROLE_PUBLIC)) == 0);
            /* Nothing that changes something is open to everybody, but for the login itself and
             * the link of an agent, whose first message is its secret. Others change nothing. */
            if (strcmp(route->method, "GET") != 0 && (route->roles & ROLE_PUBLIC))
                CHECK(strcmp(route->name, "login.use") == 0 ||
                      strcmp(route->name, "agent.connect") == 0 ||
                      strcmp(route->name, "grpc.health") == 0 ||
                      strcmp(route->name, "hub.ping") == 0);
        }
}
