/*
 * The page in four walks over the table: the profiles and how they differ, the groups that are
 * refused, the tests of arguments, and the groups that are allowed.
 */
#include "seccomp/page.h"

#include <stdlib.h>
#include <string.h>

static const char *const profile_names[SECCOMP_PROFILES] = { "agent", "root", "nesting", "debug" };

static const char *const profile_uses[SECCOMP_PROFILES] = {
    [SECCOMP_AGENT] = "the default: an ordinary user inside",
    [SECCOMP_ROOT] = "root inside, with its short list of capabilities",
    [SECCOMP_NESTING] = "opt-in: container tools inside, with user namespaces and mounts",
    [SECCOMP_DEBUG] = "opt-in: `gdb`, `strace` and profilers of one's own processes",
};

static const struct {
    int number;
    const char *name;
} errnos[] = {
    { EPERM, "EPERM" },
    { ENOSYS, "ENOSYS" },
    { EAFNOSUPPORT, "EAFNOSUPPORT" },
    { EPROTONOSUPPORT, "EPROTONOSUPPORT" },
    { ENOPROTOOPT, "ENOPROTOOPT" },
};

/* clang-format off */
static const char intro[] =
    "# seccomp: what a sandbox may ask of the kernel\n"
    "\n"
    "<!-- Written by `make docs` from src/seccomp/policy.c: change that. -->\n"
    "\n"
    "Every process of a sandbox runs under a filter of system calls. It is loaded before the first\n"
    "byte of the image runs, is inherited by everything started later and cannot be taken off. What it\n"
    "refuses never reaches the kernel's code for it, so a hole there cannot be used from inside.\n"
    "\n"
    "The list is complete: each system call of Linux is either allowed or refused below, and a number\n"
    "that is not on the list is refused. It is one layer of several. Which *files* may be touched is said\n"
    "by mounts, owners and Landlock; which *hosts* may be reached, by the network namespace and the\n"
    "egress policy; what *root inside* may do, by capabilities.\n"
    "\n"
    "`atoll show` prints the filter that is loaded, by its digest.\n";

static const char answers[] =
    "\n## How a refusal looks\n"
    "\n"
    "- **EPERM** \"operation not permitted\": not in this sandbox.\n"
    "- **ENOSYS** \"function not implemented\": as on a kernel without it. For calls that programs try\n"
    "  first and do without, such as `clone3`; EPERM would end them. Every call that is newer than this\n"
    "  list is answered so too.\n"
    "- **EAFNOSUPPORT, EPROTONOSUPPORT, ENOPROTOOPT**: the same for sockets.\n"
    "- **Killed** (SIGSYS): a call through another architecture's door, that is 32-bit code or the x32\n"
    "  entry on x86-64, and 32-bit code on arm64. Their numbers mean other calls, and one of them hides\n"
    "  socket arguments in memory, so there is nothing to filter: no such program runs.\n"
    "\n"
    "To find what a program misses, run it under `strace -f -Z` in a sandbox with the `debug` profile\n"
    "and look for these answers.\n";
/* clang-format on */

static void print_outcome(FILE *out, uint32_t outcome)
{
    if (outcome == VERDICT_ALLOW)
        fputs("allowed", out);
    else if (outcome == VERDICT_KILL)
        fputs("killed", out);
    else if (OUTCOME_IS_TEST(outcome))
        fputs("by its arguments", out);
    else
        for (size_t i = 0; i < ARRAY_LEN(errnos); i++)
            if (outcome == VERDICT_ERRNO(errnos[i].number))
                fputs(errnos[i].name, out);
}

/* ---- profiles -------------------------------------------------------------------------------- */

static void print_profiles(FILE *out, const struct seccomp_policy *policy)
{
    fputs("\n## Profiles\n\n| profile | for | differs from `agent` in |\n|---|---|---|\n", out);
    for (int p = 0; p < SECCOMP_PROFILES; p++) {
        const char *comma = "";

        fprintf(out, "| `%s` | %s | ", profile_names[p], profile_uses[p]);
        for (size_t i = 0; i < policy->line_count; i++) {
            const struct seccomp_line *line = &policy->lines[i];

            if (seccomp_outcome(line, (enum seccomp_profile)p) ==
                seccomp_outcome(line, SECCOMP_AGENT))
                continue;
            fprintf(out, "%s`%s`", comma, line->name);
            comma = ", ";
        }
        fprintf(out, "%s |\n", *comma ? "" : "nothing");
    }
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* The lines of the group that begins at `at` are (at, end). */
static size_t group_end(const struct seccomp_policy *policy, size_t at)
{
    do
        at++;
    while (at < policy->line_count && !seccomp_is_heading(&policy->lines[at]));
    return at;
}

static bool is_refused(const struct seccomp_line *line)
{
    return line->outcome != VERDICT_ALLOW && !OUTCOME_IS_TEST(line->outcome);
}

/* Calls with the same answer share a row; `from` is the first of them. */
static void print_row(FILE *out, const struct seccomp_policy *policy, size_t from, size_t end)
{
    const struct seccomp_line *first = &policy->lines[from];
    const char *comma = "| ";

    for (size_t i = from; i < end; i++) {
        const struct seccomp_line *line = &policy->lines[i];

        if (line->outcome != first->outcome || line->but != first->but ||
            line->but_in != first->but_in)
            continue;
        fprintf(out, "%s`%s`", comma, line->name);
        comma = ", ";
    }
    fputs(" | ", out);
    print_outcome(out, first->outcome);
    if (first->but == VERDICT_ALLOW)
        fprintf(out, "; allowed in `%s`", profile_names[first->but_in]);
    fputs(" |\n", out);
}

static bool row_was_printed(const struct seccomp_policy *policy, size_t from, size_t i)
{
    for (size_t k = from; k < i; k++)
        if (policy->lines[k].outcome == policy->lines[i].outcome &&
            policy->lines[k].but == policy->lines[i].but &&
            policy->lines[k].but_in == policy->lines[i].but_in)
            return true;
    return false;
}

static void print_refused(FILE *out, const struct seccomp_policy *policy)
{
    fputs("\n## Refused\n", out);
    for (size_t at = 0, end; at < policy->line_count; at = end) {
        bool titled = false;

        end = group_end(policy, at);
        for (size_t i = at + 1; i < end; i++) {
            if (!is_refused(&policy->lines[i]) || row_was_printed(policy, at + 1, i))
                continue;
            if (!titled)
                fprintf(out, "\n### %s\n\n%s\n\n| call | answer |\n|---|---|\n",
                        policy->lines[at].name, policy->lines[at].why);
            titled = true;
            print_row(out, policy, i, end);
        }
    }
}

static void print_allowed(FILE *out, const struct seccomp_policy *policy)
{
    fputs("\n## Allowed\n\nA star marks a call that is decided by its arguments, as above.\n", out);
    for (size_t at = 0, end; at < policy->line_count; at = end) {
        const char *comma = "\n";

        end = group_end(policy, at);
        for (size_t i = at + 1; i < end; i++) {
            const struct seccomp_line *line = &policy->lines[i];

            if (is_refused(line))
                continue;
            if (*comma == '\n')
                fprintf(out, "\n### %s\n\n%s\n", policy->lines[at].name, policy->lines[at].why);
            fprintf(out, "%s`%s`%s", comma, line->name,
                    OUTCOME_IS_TEST(line->outcome) ? "\\*" : "");
            comma = ", ";
        }
        if (*comma != '\n')
            fputc('\n', out);
    }
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void print_leads_to(FILE *out, const struct seccomp_policy *policy, uint32_t outcome)
{
    if (OUTCOME_IS_TEST(outcome))
        fprintf(out, "see \"%s\"", policy->tests[OUTCOME_TEST_OF(outcome)].what);
    else
        print_outcome(out, outcome);
}

static void print_tests(FILE *out, const struct seccomp_policy *policy)
{
    fputs(
        "\n## Decided by arguments\n\n"
        "Flags such as SOCK_CLOEXEC are looked through, and only the 32 bits that the kernel uses "
        "are\ncompared.\n",
        out);
    for (size_t i = 0; i < policy->test_count; i++) {
        const struct seccomp_test *test = &policy->tests[i];

        fprintf(out, "\n### %s\n\n", test->what);
        if (test->why)
            fprintf(out, "%s\n\n", test->why);
        fputs("| value | answer |\n|---|---|\n", out);
        for (int c = 0; test->cases[c].how != CASE_END; c++) {
            fprintf(out, "| %s | ", test->cases[c].name);
            print_leads_to(out, policy, test->cases[c].outcome);
            fputs(" |\n", out);
        }
        fputs("| anything else | ", out);
        print_leads_to(out, policy, test->otherwise);
        fputs(" |\n", out);
    }
}

void seccomp_page(FILE *out, const struct seccomp_policy *policy)
{
    fputs(intro, out);
    print_profiles(out, policy);
    fputs(answers, out);
    print_refused(out, policy);
    print_tests(out, policy);
    print_allowed(out, policy);
}
