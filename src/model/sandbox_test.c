/* Tiers of sandboxes: a word for layers, and no other layers than the word says. */
#include "model/sandbox.h"

#include "base/test.h"

static int settle(struct sandbox_spec *spec, struct err *err)
{
    return sandbox_spec_settle(spec, err);
}

TEST(tiers_are_what_the_layers_say)
{
    struct sandbox_spec usual = { 0 }, nests = { .nesting = true }, t1 = { .tier = "T1" },
                        t3 = { .tier = "T3" };
    struct err err = { 0 };

    CHECK_OK(settle(&usual, &err), &err);
    CHECK_STR(usual.tier, "T3");
    CHECK_OK(settle(&nests, &err), &err);
    CHECK_STR(nests.tier, "T1");
    CHECK_OK(settle(&t1, &err), &err);
    CHECK(t1.nesting && strcmp(t1.tier, "T1") == 0);
    CHECK_OK(settle(&t1, &err), &err); /* as the row is read again */
    CHECK_STR(t1.tier, "T1");
    CHECK_OK(settle(&t3, &err), &err);
    CHECK(!t3.nesting && strcmp(t3.tier, "T3") == 0);
}

TEST(tiers_that_are_not_there_are_refused)
{
    static const char *const none[] = { "T0", "T2", "T4", "vm" };
    struct sandbox_spec both = { .tier = "T3", .nesting = true };
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        struct sandbox_spec spec = { .tier = none[i] };

        CHECK(settle(&spec, &err) < 0);
        CHECK_INT(err.code, ERR_INVALID);
        CHECK_STR(err.field, "tier");
    }
    CHECK(settle(&both, &err) < 0);
    CHECK_STR(err.field, "tier");
}

/* A newline would make another variable of the second line for whoever prints the environment. */
TEST(names_in_the_environment_are_one_line)
{
    static const char *const bad[] = { "", "A=B", "A\nB", "A\r", "\t", "A\x7f" };
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct field_pair env[] = { { "FINE", "a\nb" }, { bad[i], "x" }, { 0 } };
        struct sandbox_spec spec = { .env = env };
        const char *argv[] = { "true", NULL };
        struct exec_spec exec = { .argv = argv, .env = env };

        CHECK(settle(&spec, &err) < 0);
        CHECK_STR(err.field, "env");
        CHECK(exec_spec_settle(&exec, "agent", &err) < 0);
        CHECK_STR(err.field, "env");
    }
}
