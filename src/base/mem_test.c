/* mem: arenas give aligned memory that nothing else shares, in few large pieces. */
#include "base/mem.h"

#include "base/test.h"

TEST(what_an_arena_gave_is_never_given_again)
{
    for (int round = 0; round < 50; round++) {
        autoarena struct arena arena = { 0 };
        struct {
            unsigned char *p;
            size_t n;
            unsigned char fill;
        } given[200];

        for (size_t i = 0; i < ARRAY_LEN(given); i++) {
            size_t n = test_rand(20) ? test_rand(200) : test_rand(100000);

            if (test_rand(2)) {
                given[i].p = arena_alloc(&arena, n);
                for (size_t k = 0; k < n; k++)
                    CHECK(given[i].p[k] == 0);
            } else {
                given[i].p = arena_raw(&arena, n);
            }
            CHECK((uintptr_t)given[i].p % 16 == 0);
            given[i].n = n;
            given[i].fill = (unsigned char)test_rand(256);
            memset(given[i].p, given[i].fill, n);
        }
        for (size_t i = 0; i < ARRAY_LEN(given); i++)
            for (size_t k = 0; k < given[i].n; k++)
                CHECK(given[i].p[k] == given[i].fill);
    }
}

TEST(an_arena_grows_by_few_large_chunks)
{
    autoarena struct arena arena = { 0 };

    arena_alloc(&arena, 1);
    CHECK_INT(arena.total, 1024);
    for (int i = 0; i < 100000; i++)
        arena_alloc(&arena, 16);
    CHECK(arena.total >= 1600000 && arena.total < 2300000);
    size_t before = arena.total;
    arena_alloc(&arena, 10 << 20); /* larger than any chunk: one of its own */
    CHECK(arena.total - before < (10 << 20) + 4096);
    arena_free(&arena);
    CHECK(arena.total == 0 && !arena.chunks);
    arena_free(&arena);
}

TEST(arena_copies_are_ended_by_nul)
{
    autoarena struct arena arena = { 0 };

    for (size_t n = 0; n < 40; n++) {
        memset(arena_raw(&arena, 64), 0xff, 64); /* so that nothing is zero by luck */
        char *copy = arena_memdup0(&arena, "0123456789012345678901234567890123456789", n);
        CHECK(strlen(copy) == n);
    }
    CHECK_STR(arena_strdup(&arena, "abc"), "abc");
    CHECK_STR(arena_memdup0(&arena, NULL, 0), "");
    struct str text = arena_str(&arena, STR("x\0y"));
    CHECK(text.n == 3 && memcmp(text.p, "x\0y", 4) == 0);
    CHECK_STR(arena_printf(&arena, "%s-%d", "n", 5), "n-5");
    CHECK_STR(arena_printf(&arena, "%s", ""), "");
    for (int len = 250; len < 260; len++) { /* around what is composed in one go */
        const char *made = arena_printf(&arena, "%0*d.", len - 1, 7);

        CHECK_INT(strlen(made), len);
        CHECK_STR(made + len - 3, "07.");
    }
}

TEST(the_x_family_gives_memory_for_nothing_too)
{
    autofree char *none = xmalloc(0), *zero = xcalloc(0, 8), *copy = xmemdup0(NULL, 0);
    autofree char *text = xprintf("%05d", 42), *same = xstrdup("abc");

    CHECK(none && zero && copy[0] == 0);
    CHECK_STR(text, "00042");
    CHECK_STR(same, "abc");
    none = xrealloc(none, 100);
    memset(none, 1, 100);
    CHECK(none[99] == 1);
}

TEST(taking_leaves_nothing_behind)
{
    autofree char *owner = xstrdup("abc");
    autoclose int fd = -1;

    autofree char *taken = take_ptr(&owner);
    CHECK(!owner);
    CHECK_STR(taken, "abc");
    fd = 77;
    CHECK(take_fd(&fd) == 77 && fd == -1);
}
