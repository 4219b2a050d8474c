/*
 * test - TEST and CHECK over cmocka, a seeded random source, and temporary directories.
 *
 * A file x_test.c becomes one program; TESTs register themselves. A failing CHECK names the file,
 * line and expression and ends that test. The seed is printed and can be set by ATOLL_TEST_SEED.
 * A test that cannot run here calls test_skip(why); with ATOLL_MUST_WORK=1 a skip is a failure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

struct test_case {
    const char *name;
    void (*fn)(void);
    struct test_case *next;
};

void test_register(struct test_case *test);
_Noreturn void test_fail(const char *file, int line, const char *fmt, ...) printf_like(3, 4);
_Noreturn void test_skip(const char *why);

/* Uniform in [0, below). */
uint32_t test_rand(uint32_t below);
/*
 * How long something may take here that takes at most `ms` on a quiet machine: more where many
 * processes want each core. For limits that only a failure reaches.
 */
int test_patience(int ms);
/* A fresh directory, removed when the program ends. Borrowed until then. */
const char *test_dir(void);

#define TEST(test_name)                                                                            \
    static void test_name(void);                                                                   \
    __attribute__((constructor)) static void test_name##_register_(void)                           \
    {                                                                                              \
        static struct test_case test_ = { #test_name, test_name, NULL };                           \
        test_register(&test_);                                                                     \
    }                                                                                              \
    static void test_name(void)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            test_fail(__FILE__, __LINE__, "%s", #cond);                                            \
    } while (0)

#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        long long got_ = (long long)(got), want_ = (long long)(want);                              \
        if (got_ != want_)                                                                         \
            test_fail(__FILE__, __LINE__, "%s is %lld, not %lld", #got, got_, want_);              \
    } while (0)

#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (!got_ || !want_ || strcmp(got_, want_) != 0)                                           \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #got, got_ ? got_ : "NULL",  \
                      want_ ? want_ : "NULL");                                                     \
    } while (0)

/* For a fallible call: shows the error's message when it fails. */
#define CHECK_OK(call, err)                                                                        \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            test_fail(__FILE__, __LINE__, "%s: %s", #call, (err)->msg);                            \
    } while (0)
