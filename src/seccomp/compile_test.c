/*
 * compile: random policies, compiled and run in the interpreter, against the table taken literally;
 * jumps over long distances; and policies that must be refused.
 */
#include "seccomp/compile.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/test.h"
#include "seccomp/model.h"

struct made {
    struct seccomp_line lines[SECCOMP_NR_MAX];
    struct seccomp_test tests[64];
    struct seccomp_policy policy;
    struct sock_filter insns[SECCOMP_INSNS_MAX];
    int count;
};

static uint32_t random_verdict(void)
{
    switch (test_rand(4)) {
    case 0:
        return VERDICT_KILL;
    case 1:
        return VERDICT_ALLOW;
    default:
        return VERDICT_ERRNO(1 + test_rand(8));
    }
}

static uint32_t random_outcome(size_t from, size_t tests)
{
    if (from < tests && test_rand(3) == 0)
        return OUTCOME_TEST(from + test_rand((uint32_t)(tests - from)));
    return random_verdict();
}

/* Few and near each other, so that cases really match. */
static uint32_t random_value(void)
{
    return test_rand(4) ? test_rand(12) : 1u << test_rand(32);
}

static void random_test(struct seccomp_test *test, size_t at, size_t tests)
{
    int cases = 1 + (int)test_rand(SECCOMP_CASES_MAX);

    *test = (struct seccomp_test){ .what = "random", .arg = (uint8_t)test_rand(6) };
    if (test_rand(2))
        test->mask = ~random_value();
    for (int i = 0; i < cases; i++) {
        test->cases[i].how = (enum seccomp_how)(CASE_IS + test_rand(3));
        test->cases[i].value = random_value();
        test->cases[i].outcome = random_outcome(at + 1, tests);
    }
    test->otherwise = random_outcome(at + 1, tests);
}

/* Runs of equal outcomes and single numbers between them, as real tables have. */
static void random_lines(struct made *made, uint32_t top, size_t tests)
{
    uint32_t outcome = random_outcome(0, tests);

    made->policy.line_count = 0;
    for (uint32_t nr = 0; nr < top; nr++) {
        uint32_t dice = test_rand(10);
        struct seccomp_line *line = &made->lines[made->policy.line_count];

        if (dice == 0)
            outcome = random_outcome(0, tests);
        if (dice == 1)
            continue;
        *line =
            (struct seccomp_line){ .name = "random", .nr = { (int)nr, -1 }, .outcome = outcome };
        if (dice == 2)
            line->outcome = random_outcome(0, tests);
        if (dice == 3) {
            line->but = random_outcome(0, tests);
            line->but_in = (enum seccomp_profile)test_rand(SECCOMP_PROFILES);
        }
        /* The second architecture counts backwards. */
        line->nr[SECCOMP_ARM64] = (int)(SECCOMP_NR_MAX - 2 - nr);
        made->policy.line_count++;
    }
}

static void random_policy(struct made *made, uint32_t top, size_t tests)
{
    made->policy = (struct seccomp_policy){ .lines = made->lines,
                                            .tests = made->tests,
                                            .test_count = tests,
                                            .unknown = random_verdict(),
                                            .foreign = random_verdict(),
                                            .x32 = random_verdict() };
    for (size_t i = 0; i < tests; i++)
        random_test(&made->tests[i], i, tests);
    random_lines(made, top, tests);
}

static void check_compiled(struct made *made, enum seccomp_profile profile, enum seccomp_arch arch)
{
    struct err err = { 0 };

    made->count = seccomp_compile(&made->policy, profile, arch, made->insns, &err);
    CHECK_OK(made->count, &err);
    CHECK(model_is_sound(made->insns, made->count));
    for (int nr = -2; nr < SECCOMP_NR_MAX + 2; nr++)
        for (int round = 0; round < 3; round++) {
            struct seccomp_data data = { .nr = nr, .arch = seccomp_audit_arch(arch) };

            if (test_rand(50) == 0)
                data.nr = (int)(SECCOMP_X32_BIT | (uint32_t)nr);
            if (test_rand(50) == 0)
                data.arch = AUDIT_ARCH_I386;
            for (int i = 0; i < 6; i++)
                data.args[i] = random_value() | (uint64_t)test_rand(2) << 32;
            uint32_t got = model_run(made->insns, made->count, &data);
            uint32_t want = model_decide(&made->policy, profile, arch, &data);
            if (got != want)
                test_fail(__FILE__, __LINE__, "number %d: 0x%08x, not 0x%08x", nr, got, want);
        }
}

TEST(random_policies_do_what_their_tables_say)
{
    autofree struct made *made = xmalloc(sizeof(*made));

    for (int round = 0; round < 60; round++) {
        random_policy(made, 1 + test_rand(SECCOMP_NR_MAX - 2), test_rand(20));
        for (int arch = 0; arch < SECCOMP_ARCHES; arch++)
            check_compiled(made, (enum seccomp_profile)test_rand(SECCOMP_PROFILES),
                           (enum seccomp_arch)arch);
    }
}

/* Every number its own outcome: hundreds of leaves, so that the ends are far from the beginning. */
TEST(jumps_reach_over_long_distances)
{
    autofree struct made *made = xmalloc(sizeof(*made));
    int longest = 0, trampolines = 0;

    for (int round = 0; round < 40; round++) {
        random_policy(made, SECCOMP_NR_MAX - 2, 60);
        for (size_t i = 0; i < made->policy.line_count; i++)
            made->lines[i].outcome = i % 3 ? VERDICT_ERRNO(1 + i % 7) : OUTCOME_TEST(test_rand(60));
        check_compiled(made, SECCOMP_AGENT, SECCOMP_X86_64);
        CHECK(made->count > 800);
        for (int i = 0; i < made->count; i++) {
            if (made->insns[i].code == (BPF_JMP | BPF_JA) && made->insns[i].k > 255)
                trampolines++;
            longest = MAX(longest, MAX(made->insns[i].jt, made->insns[i].jf));
        }
    }
    /* Otherwise this test has not tried what it is for. */
    CHECK(trampolines > 100);
    CHECK_INT(longest, 255);
}

TEST(the_real_policy_stays_small)
{
    autofree struct made *made = xmalloc(sizeof(*made));
    struct err err = { 0 };

    for (int arch = 0; arch < SECCOMP_ARCHES; arch++)
        for (int profile = 0; profile < SECCOMP_PROFILES; profile++) {
            int count = seccomp_compile(&seccomp_policy, (enum seccomp_profile)profile,
                                        (enum seccomp_arch)arch, made->insns, &err);
            CHECK_OK(count, &err);
            CHECK(count <= 140);
        }
}

static void check_refused(struct made *made, enum err_code code, const char *word)
{
    struct err err = { 0 };

    CHECK_INT(seccomp_compile(&made->policy, SECCOMP_AGENT, SECCOMP_X86_64, made->insns, &err), -1);
    CHECK_INT(err.code, code);
    if (!strstr(err.msg, word))
        test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", err.msg, word);
}

static void one_line(struct made *made, int nr, uint32_t outcome)
{
    made->policy = (struct seccomp_policy){ .lines = made->lines,
                                            .line_count = 1,
                                            .tests = made->tests,
                                            .unknown = VERDICT_ERRNO(ENOSYS),
                                            .foreign = VERDICT_KILL,
                                            .x32 = VERDICT_KILL };
    made->lines[0] = (struct seccomp_line){ .name = "it", .nr = { nr, -1 }, .outcome = outcome };
}

TEST(a_number_has_one_line_and_a_limit)
{
    autofree struct made *made = xmalloc(sizeof(*made));

    one_line(made, SECCOMP_NR_MAX - 2, VERDICT_ALLOW);
    check_compiled(made, SECCOMP_AGENT, SECCOMP_X86_64);
    one_line(made, SECCOMP_NR_MAX - 1, VERDICT_ALLOW);
    check_refused(made, ERR_LIMIT, "number 767");
    one_line(made, 5, VERDICT_ALLOW);
    made->lines[1] = made->lines[0];
    made->policy.line_count = 2;
    check_refused(made, ERR_INVALID, "not the only one");
    one_line(made, 5, 0);
    check_refused(made, ERR_INVALID, "no outcome");
}

TEST(tests_only_lead_forward_and_exist)
{
    autofree struct made *made = xmalloc(sizeof(*made));
    struct seccomp_test asks = { .what = "ask",
                                 .cases = { { CASE_IS, 1, VERDICT_ALLOW, "one" } },
                                 .otherwise = VERDICT_KILL };

    one_line(made, 5, OUTCOME_TEST(0));
    check_refused(made, ERR_INVALID, "no outcome");

    made->policy.test_count = 2;
    made->tests[0] = made->tests[1] = asks;
    made->tests[0].otherwise = OUTCOME_TEST(1);
    check_compiled(made, SECCOMP_AGENT, SECCOMP_X86_64);
    made->tests[1].cases[0].outcome = OUTCOME_TEST(1);
    check_refused(made, ERR_INVALID, "backwards");
    made->tests[1].cases[0].outcome = OUTCOME_TEST(2);
    check_refused(made, ERR_INVALID, "backwards");
    made->tests[1] = (struct seccomp_test){ .what = "nothing", .otherwise = VERDICT_ALLOW };
    check_refused(made, ERR_INVALID, "asks nothing");
    made->tests[1] = asks;
    made->tests[1].arg = 6;
    check_refused(made, ERR_INVALID, "asks nothing");
}

TEST(cases_and_verdicts_have_a_limit)
{
    autofree struct made *made = xmalloc(sizeof(*made));

    one_line(made, 5, OUTCOME_TEST(0));
    made->policy.test_count = 1;
    made->tests[0] = (struct seccomp_test){ .what = "many", .otherwise = VERDICT_KILL };
    for (int i = 0; i <= SECCOMP_CASES_MAX; i++) {
        if (i > 0)
            check_compiled(made, SECCOMP_AGENT, SECCOMP_X86_64);
        made->tests[0].cases[i].how = CASE_IS;
        made->tests[0].cases[i].value = (uint32_t)i;
        made->tests[0].cases[i].outcome = VERDICT_ALLOW;
    }
    check_refused(made, ERR_LIMIT, "cases");

    /* Two verdicts are in the frame already: unknown and killed. */
    one_line(made, 0, VERDICT_ALLOW);
    for (int nr = 0; nr < 15; nr++) {
        made->lines[nr] = made->lines[0];
        made->lines[nr].nr[SECCOMP_X86_64] = nr;
        made->lines[nr].outcome = VERDICT_ERRNO(100 + nr);
    }
    made->policy.line_count = 14;
    check_compiled(made, SECCOMP_AGENT, SECCOMP_X86_64);
    made->policy.line_count = 15;
    check_refused(made, ERR_LIMIT, "verdicts");
}

TEST(tests_have_a_limit)
{
    autofree struct made *made = xmalloc(sizeof(*made));

    one_line(made, 5, OUTCOME_TEST(63));
    for (int i = 0; i < 64; i++)
        made->tests[i] = (struct seccomp_test){ .what = "ask",
                                                .cases = { { CASE_IS, 1, VERDICT_ALLOW, "one" } },
                                                .otherwise = VERDICT_KILL };
    made->policy.test_count = 64;
    check_compiled(made, SECCOMP_AGENT, SECCOMP_X86_64);
    made->policy.test_count = 65;
    check_refused(made, ERR_LIMIT, "64 tests");
}
