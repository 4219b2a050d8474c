/*
 * How the program is made.
 *
 * It first asks for the architecture, then searches the number in a tree of ranges:
 *
 *   numbers   0 … 15   16     17 … 40   41      42 … 52   53      …
 *   outcome   allow    ioctl  allow     socket  allow     socket  …
 *
 * Adjacent numbers of the same outcome are one range. A single number between two ranges of the
 * same outcome (16, 41 above) would cost two comparisons with >=; it becomes an exception of one
 * range instead and costs one comparison with ==. What remains is split in halves of equal weight.
 * So the program is about 130 instructions for 380 calls, which matters because loading it costs
 * time in proportion: the kernel translates it and then runs it once for every number there is, to
 * learn which calls are always allowed and need not be asked about again.
 *
 * Jumps in this machine only go forward, and conditional ones no further than 255. The program is
 * therefore written backwards, last instruction first: whatever is jumped to exists already, its
 * distance is known, and where that is too far an unconditional jump is put within reach. A label
 * is a position counted from the end. Equal verdicts share one return, equal tests one copy.
 */
#include "seccomp/compile.h"

#include <assert.h>
#include <linux/audit.h>
#include <stddef.h>

#include "base/mem.h"

/* More exceptions in one chain would make paths long; the range is cut in two instead. */
#define CHAIN_MAX 4
#define REACH_MAX 255
#define VERDICTS_MAX 16
#define TESTS_MAX 64

/*
 * A branch is at most three instructions, with both its trampolines. Each number can cost one, each
 * case of a test one, and a test a load, its jump and a mask besides: there is always room.
 */
static_assert(3 * SECCOMP_NR_MAX + TESTS_MAX * (3 + 3 * SECCOMP_CASES_MAX) + VERDICTS_MAX + 16 <
                  SECCOMP_INSNS_MAX,
              "a program may not fit");

struct writer {
    struct sock_filter *insns; /* borrowed; backwards until the end */
    int count;
    struct {
        uint32_t verdict;
        int label;
    } returns[VERDICTS_MAX];
    int return_count;
    bool too_many_verdicts;
    int test_label[TESTS_MAX];
};

/* A run of numbers from `first` to the next range's, all with this outcome. */
struct range {
    uint32_t first;
    uint32_t outcome;
};

/* A run of numbers with this outcome except for a few, which lie in ranges[] in [from, to). */
struct leaf {
    uint32_t first;
    uint32_t outcome;
    int except_from, except_to;
};

struct tree {
    struct range ranges[SECCOMP_NR_MAX + 1];
    int range_count;
    struct range excepts[SECCOMP_NR_MAX];
    int except_count;
    struct leaf leaves[SECCOMP_NR_MAX + 1];
    int leaf_count;
};

uint32_t seccomp_audit_arch(enum seccomp_arch arch)
{
    return arch == SECCOMP_X86_64 ? AUDIT_ARCH_X86_64 : AUDIT_ARCH_AARCH64;
}

/* ---- instructions, last one first ------------------------------------------------------------ */

static int put(struct writer *w, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
    w->insns[w->count] = (struct sock_filter){ code, jt, jf, k };
    return w->count++;
}

static int put_return(struct writer *w, uint32_t verdict)
{
    for (int i = 0; i < w->return_count; i++)
        if (w->returns[i].verdict == verdict)
            return w->returns[i].label;

    if (w->return_count == VERDICTS_MAX) {
        w->too_many_verdicts = true;
        return 0;
    }
    w->returns[w->return_count].verdict = verdict;
    return w->returns[w->return_count++].label = put(w, BPF_RET | BPF_K, 0, 0, verdict);
}

static int put_load(struct writer *w, size_t offset, int next)
{
    /* What follows a load is always what was written just before. */
    if (next != w->count - 1)
        put(w, BPF_JMP | BPF_JA, 0, 0, (uint32_t)(w->count - next - 1));
    return put(w, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

/* A label at most `reach` before the next instruction that leads to `target`. */
static int near(struct writer *w, int target, int reach)
{
    if (w->count - target - 1 <= reach)
        return target;
    return put(w, BPF_JMP | BPF_JA, 0, 0, (uint32_t)(w->count - target - 1));
}

static int put_branch(struct writer *w, uint16_t op, uint32_t k, int yes, int no)
{
    /* Making `no` reachable may move `yes` one further away. */
    yes = near(w, yes, REACH_MAX - 1);
    no = near(w, no, REACH_MAX);
    return put(w, (uint16_t)(BPF_JMP | BPF_K | op), (uint8_t)(w->count - yes - 1),
               (uint8_t)(w->count - no - 1), k);
}

/* Where this outcome is answered; a test must have been written before. */
static int label_of(struct writer *w, uint32_t outcome)
{
    return OUTCOME_IS_TEST(outcome) ? w->test_label[OUTCOME_TEST_OF(outcome)]
                                    : put_return(w, outcome);
}

/* ---- tests of arguments ---------------------------------------------------------------------- */

static uint16_t op_of(enum seccomp_how how)
{
    return how == CASE_IS ? BPF_JEQ : how == CASE_FROM ? BPF_JGE : BPF_JSET;
}

static int put_test(struct writer *w, const struct seccomp_test *test)
{
    int count = 0;

    while (test->cases[count].how != CASE_END)
        count++;
    int next = label_of(w, test->otherwise);
    for (int i = count - 1; i >= 0; i--)
        next = put_branch(w, op_of(test->cases[i].how), test->cases[i].value,
                          label_of(w, test->cases[i].outcome), next);
    if (test->mask)
        next = put(w, BPF_ALU | BPF_AND | BPF_K, 0, 0, test->mask);
    /* The low half: both architectures are little-endian. */
    return put_load(w, offsetof(struct seccomp_data, args) + sizeof(uint64_t) * test->arg, next);
}

static int check_tests(const struct seccomp_policy *policy, struct err *err)
{
    if (policy->test_count > TESTS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d tests", TESTS_MAX);
    for (size_t i = 0; i < policy->test_count; i++) {
        const struct seccomp_test *test = &policy->tests[i];
        uint32_t outcome = test->otherwise;

        if (test->arg > 5 || test->cases[0].how == CASE_END)
            return err_set(err, ERR_INVALID, "test \"%s\" asks nothing", test->what);
        if (test->cases[SECCOMP_CASES_MAX].how != CASE_END)
            return err_set(err, ERR_LIMIT, "test \"%s\" has too many cases", test->what);
        for (int c = 0;; c++) {
            if (OUTCOME_IS_TEST(outcome) &&
                (OUTCOME_TEST_OF(outcome) <= i || OUTCOME_TEST_OF(outcome) >= policy->test_count))
                return err_set(err, ERR_INVALID, "test \"%s\" leads backwards", test->what);
            if (test->cases[c].how == CASE_END)
                break;
            outcome = test->cases[c].outcome;
        }
    }
    return 0;
}

/* Which tests some range, directly or through another test, leads to. */
static uint64_t used_tests(const struct seccomp_policy *policy, const struct tree *tree)
{
    uint64_t used = 0;

    for (int i = 0; i < tree->range_count; i++)
        if (OUTCOME_IS_TEST(tree->ranges[i].outcome))
            used |= 1ull << OUTCOME_TEST_OF(tree->ranges[i].outcome);
    for (size_t i = 0; i < policy->test_count; i++) {
        const struct seccomp_test *test = &policy->tests[i];

        if (!(used & 1ull << i))
            continue;
        if (OUTCOME_IS_TEST(test->otherwise))
            used |= 1ull << OUTCOME_TEST_OF(test->otherwise);
        for (int c = 0; test->cases[c].how != CASE_END; c++)
            if (OUTCOME_IS_TEST(test->cases[c].outcome))
                used |= 1ull << OUTCOME_TEST_OF(test->cases[c].outcome);
    }
    return used;
}

/* ---- ranges of numbers ----------------------------------------------------------------------- */

static int find_ranges(const struct seccomp_policy *policy, enum seccomp_profile profile,
                       enum seccomp_arch arch, struct tree *tree, struct err *err)
{
    uint32_t outcomes[SECCOMP_NR_MAX] = { 0 };

    for (size_t i = 0; i < policy->line_count; i++) {
        const struct seccomp_line *line = &policy->lines[i];
        uint32_t outcome = seccomp_outcome(line, profile);
        int nr = line->nr[arch];

        if (nr < 0)
            continue;
        /* The last place stays free: it stands for everything above. */
        if (nr >= SECCOMP_NR_MAX - 1)
            return err_set(err, ERR_LIMIT, "%s has the number %d", line->name, nr);
        if (outcomes[nr])
            return err_set(err, ERR_INVALID, "%s is not the only one with number %d", line->name,
                           nr);
        if (!outcome ||
            (OUTCOME_IS_TEST(outcome) && OUTCOME_TEST_OF(outcome) >= policy->test_count))
            return err_set(err, ERR_INVALID, "%s has no outcome", line->name);
        outcomes[nr] = outcome;
    }
    for (uint32_t nr = 0; nr < SECCOMP_NR_MAX; nr++) {
        uint32_t outcome = outcomes[nr] ? outcomes[nr] : policy->unknown;

        if (nr == 0 || outcome != tree->ranges[tree->range_count - 1].outcome)
            tree->ranges[tree->range_count++] = (struct range){ nr, outcome };
    }
    return 0;
}

static bool is_single(const struct tree *tree, int i)
{
    return i + 1 < tree->range_count && tree->ranges[i + 1].first == tree->ranges[i].first + 1;
}

/* How many single numbers follow range i before its outcome comes again; 0 if it does not. */
static int island_after(const struct tree *tree, int i, uint32_t outcome)
{
    int length = 0;

    while (length < 3 && is_single(tree, i + length + 1)) {
        length++;
        if (i + length + 1 < tree->range_count && tree->ranges[i + length + 1].outcome == outcome)
            return length;
    }
    return 0;
}

static void find_leaves(struct tree *tree)
{
    for (int i = 0; i < tree->range_count; i++) {
        uint32_t outcome = tree->ranges[i].outcome;
        struct leaf *leaf = &tree->leaves[tree->leaf_count++];
        int length;

        *leaf =
            (struct leaf){ tree->ranges[i].first, outcome, tree->except_count, tree->except_count };
        while ((length = island_after(tree, i, outcome)) > 0) {
            if (leaf->except_to - leaf->except_from + length > CHAIN_MAX) {
                /* Full: another leaf of the same outcome begins behind this island's front. */
                leaf = &tree->leaves[tree->leaf_count++];
                *leaf = (struct leaf){ tree->ranges[i].first, outcome, tree->except_count,
                                       tree->except_count };
            }
            for (int k = 1; k <= length; k++)
                tree->excepts[tree->except_count++] = tree->ranges[i + k];
            leaf->except_to = tree->except_count;
            i += length + 1;
        }
    }
}

static int put_leaf(struct writer *w, const struct tree *tree, const struct leaf *leaf)
{
    int next = label_of(w, leaf->outcome);

    for (int i = leaf->except_to - 1; i >= leaf->except_from; i--)
        next = put_branch(w, BPF_JEQ, tree->excepts[i].first, label_of(w, tree->excepts[i].outcome),
                          next);
    return next;
}

/* Where the leaves [from, to) fall into halves of about equal work. */
static int middle_of(const struct tree *tree, int from, int to)
{
    int total = 0, half = 0, at = from;

    for (int i = from; i < to; i++)
        total += 1 + tree->leaves[i].except_to - tree->leaves[i].except_from;
    while (at < to - 1 && 2 * half < total) {
        half += 1 + tree->leaves[at].except_to - tree->leaves[at].except_from;
        at++;
    }
    return at == from ? from + 1 : at;
}

/* Depth is the logarithm of our own table's length. */
static int put_tree(struct writer *w, const struct tree *tree, int from, int to)
{
    if (to - from == 1)
        return put_leaf(w, tree, &tree->leaves[from]);

    int middle = middle_of(tree, from, to);
    int above = put_tree(w, tree, middle, to);
    int below = put_tree(w, tree, from, middle);
    return put_branch(w, BPF_JGE, tree->leaves[middle].first, above, below);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void put_program(struct writer *w, const struct seccomp_policy *policy,
                        enum seccomp_arch arch, const struct tree *tree)
{
    uint64_t used = used_tests(policy, tree);

    /* The verdicts stand last, so that everything can jump to them. */
    for (int i = 0; i < tree->range_count; i++)
        if (!OUTCOME_IS_TEST(tree->ranges[i].outcome))
            put_return(w, tree->ranges[i].outcome);
    int foreign = put_return(w, policy->foreign);
    for (size_t i = policy->test_count; i-- > 0;)
        if (used & 1ull << i)
            w->test_label[i] = put_test(w, &policy->tests[i]);

    int next = put_tree(w, tree, 0, tree->leaf_count);
    if (arch == SECCOMP_X86_64) {
        /* -1 is no x32 call: tracers put it there to skip one, and the kernel says ENOSYS. */
        int x32 = put_branch(w, BPF_JEQ, 0xffffffff, label_of(w, policy->unknown),
                             label_of(w, policy->x32));
        next = put_branch(w, BPF_JGE, SECCOMP_X32_BIT, x32, next);
    }
    next = put_load(w, offsetof(struct seccomp_data, nr), next);
    next = put_branch(w, BPF_JEQ, seccomp_audit_arch(arch), next, foreign);
    put_load(w, offsetof(struct seccomp_data, arch), next);
}

static void turn_round(struct sock_filter *insns, int count)
{
    for (int i = 0; i < count / 2; i++) {
        struct sock_filter insn = insns[i];

        insns[i] = insns[count - 1 - i];
        insns[count - 1 - i] = insn;
    }
}

int seccomp_compile(const struct seccomp_policy *policy, enum seccomp_profile profile,
                    enum seccomp_arch arch, struct sock_filter out[SECCOMP_INSNS_MAX],
                    struct err *err)
{
    struct writer w = { .insns = out };
    autofree struct tree *tree = xnew(struct tree);

    if (check_tests(policy, err) < 0)
        return -1;
    if (find_ranges(policy, profile, arch, tree, err) < 0)
        return -1;
    find_leaves(tree);
    put_program(&w, policy, arch, tree);
    if (w.too_many_verdicts)
        return err_set(err, ERR_LIMIT, "more than %d different verdicts", VERDICTS_MAX);
    turn_round(out, w.count);
    return w.count;
}
