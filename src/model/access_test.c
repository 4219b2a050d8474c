#include "model/access.h"

#include "base/test.h"

static const char *const shared[] = { "bob", "carol", NULL };

static struct reach agent(const char *tenant, const char *id, const char *name)
{
    return (struct reach){ .tenant = tenant, .id = id, .name = name };
}

TEST(the_zero_reach_reaches_nothing)
{
    struct access wide = { .owner = "alice", .visibility = "tenant" };

    CHECK(!reach_has((struct reach){ 0 }, "t", "tok1", &wide));
    CHECK(!reach_has((struct reach){ .tenant = "t" }, "t", "tok1", &wide));
    CHECK(!reach_has((struct reach){ .tenant = "t" }, "t", NULL, &(struct access){ 0 }));
}

TEST(a_tenant_is_a_wall)
{
    struct access wide = { .owner = "alice", .visibility = "tenant" };

    CHECK(reach_has(reach_all("t"), "t", "tok1", &wide));
    CHECK(!reach_has(reach_all("u"), "t", "tok1", &wide));
    CHECK(reach_has(reach_all(NULL), "t", "tok1", &wide));
    CHECK(!reach_has(agent("u", "tok1", "alice"), "t", "tok1", &wide));
}

TEST(names_are_compared_with_names_and_ids_with_ids)
{
    struct access none = { 0 }, owned = { .owner = "alice" };

    CHECK(reach_has(agent("t", "tok1", "x"), "t", "tok1", &none));
    CHECK(!reach_has(agent("t", "tok2", "tok1"), "t", "tok1", &none));
    CHECK(reach_has(agent("t", "tok2", "alice"), "t", "tok1", &owned));
    CHECK(!reach_has(agent("t", "tok1", "x"), "t", "tok1", &owned));
    CHECK(!reach_has(agent("t", "alice", "x"), "t", "tok1", &owned));
}

TEST(what_was_given_is_not_owned)
{
    struct access given = { .owner = "alice", .shared_with = (const char **)shared };

    CHECK(reach_has(agent("t", "tok2", "carol"), "t", "tok1", &given));
    CHECK(!reach_owns(agent("t", "tok2", "carol"), "t", "tok1", &given));
    CHECK(!reach_has(agent("t", "tok2", "dave"), "t", "tok1", &given));
    CHECK(reach_owns(reach_all("t"), "t", "tok1", &given));
}

TEST(a_column_is_read_as_it_was_written)
{
    autoarena struct arena arena = { 0 };
    struct access all = { "alice", "tenant", (const char **)shared }, read;
    struct access none = { .shared_with = (const char *[]){ NULL } };
    struct err err = { 0 };

    CHECK_OK(access_read(&arena, str_of(access_text(&arena, &all)), &read, &err), &err);
    CHECK_STR(read.owner, "alice");
    CHECK_STR(read.visibility, "tenant");
    CHECK_STR(read.shared_with[1], "carol");
    CHECK_STR(access_text(&arena, &(struct access){ 0 }), "");
    CHECK_OK(access_read(&arena, STR(""), &read, &err), &err);
    CHECK(!read.owner && !read.visibility && !read.shared_with);
    CHECK_OK(access_read(&arena, str_of(access_text(&arena, &none)), &read, &err), &err);
    CHECK(read.shared_with && !read.shared_with[0]);
    CHECK(access_read(&arena, STR("{\"owner\":1}"), &read, &err) < 0);
}
