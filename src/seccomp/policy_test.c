/*
 * policy: the filters that were built, asked about every number and every argument that matters.
 *
 * Three witnesses that do not know each other: the built programs, run in an interpreter; the
 * table, taken literally (model.h); and what is written by hand below, with numbers from the
 * system's own headers. The last tests remove one refusal after another and want both kinds of
 * check to notice.
 */
#include "seccomp/policy.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/test.h"
#include "seccomp/model.h"
#include "seccomp/numbers.h"
#include "seccomp/page.h"

#define SECCOMP_BLOB_ALL
#include "seccomp/blob.h"

#define NUMBERS_END ((size_t)600)
#define HIGH 0xffffffff00000000u

struct filters {
    struct {
        const struct sock_filter *insns;
        int count;
    } of[SECCOMP_ARCHES][SECCOMP_PROFILES];
};

static struct filters built_filters(void)
{
    struct filters filters = { 0 };

    for (int i = 0; i < SECCOMP_PROFILES; i++) {
        filters.of[SECCOMP_X86_64][i].insns = seccomp_blobs_x86_64[i].program.filter;
        filters.of[SECCOMP_X86_64][i].count = seccomp_blobs_x86_64[i].program.len;
        filters.of[SECCOMP_ARM64][i].insns = seccomp_blobs_arm64[i].program.filter;
        filters.of[SECCOMP_ARM64][i].count = seccomp_blobs_arm64[i].program.len;
    }
    return filters;
}

static uint32_t ask(const struct filters *filters, enum seccomp_arch arch, int profile,
                    const struct seccomp_data *data)
{
    return model_run(filters->of[arch][profile].insns, filters->of[arch][profile].count, data);
}

/* ---- the table against the system's headers ----------------------------------------------------
 */

static const struct seccomp_line *line_named(const struct seccomp_policy *policy, const char *name)
{
    for (size_t i = 0; i < policy->line_count; i++)
        if (!seccomp_is_heading(&policy->lines[i]) && strcmp(policy->lines[i].name, name) == 0)
            return &policy->lines[i];
    return NULL;
}

static void check_numbers(const struct seccomp_number *numbers, size_t count,
                          enum seccomp_arch arch)
{
    CHECK(count > 300);
    for (size_t i = 0; i < count; i++) {
        const struct seccomp_line *line = line_named(&seccomp_policy, numbers[i].name);

        if (!line && numbers[i].nr > SECCOMP_KNOWN)
            continue; /* headers newer than the table: unknown, ENOSYS */
        if (!line)
            test_fail(__FILE__, __LINE__, "%s is not decided", numbers[i].name);
        if (line->nr[arch] != numbers[i].nr)
            test_fail(__FILE__, __LINE__, "%s is %d, not %d", line->name, numbers[i].nr,
                      line->nr[arch]);
    }
}

static const enum seccomp_arch native =
#if defined(__x86_64__)
    SECCOMP_X86_64;
#else
    SECCOMP_ARM64;
#endif

TEST(every_call_of_the_headers_is_decided_under_its_number)
{
    check_numbers(seccomp_numbers_native, ARRAY_LEN(seccomp_numbers_native), native);
    check_numbers(seccomp_numbers_generic, ARRAY_LEN(seccomp_numbers_generic), SECCOMP_ARM64);
}

TEST(numbers_and_names_are_unique_and_complete)
{
    int known[SECCOMP_ARCHES] = { 0 };

    CHECK(seccomp_is_heading(&seccomp_policy.lines[0]));
    for (size_t i = 0; i < seccomp_policy.line_count; i++) {
        const struct seccomp_line *line = &seccomp_policy.lines[i];

        if (seccomp_is_heading(line))
            continue;
        CHECK(line_named(&seccomp_policy, line->name) == line);
        for (int arch = 0; arch < SECCOMP_ARCHES; arch++) {
            if (line->nr[arch] < 0)
                continue;
            CHECK(model_line(&seccomp_policy, (enum seccomp_arch)arch, line->nr[arch]) == line);
            CHECK(line->nr[arch] <= SECCOMP_KNOWN);
            known[arch]++;
        }
    }
    /* Linux 6.18: x86-64 has 0 to 336 and 424 to 469; arm64 0 to 294 but for 16 of its own. */
    CHECK_INT(known[SECCOMP_X86_64], 337 + 46);
    CHECK_INT(known[SECCOMP_ARM64], 295 - 16 + 46);
}

/* ---- every number, every argument --------------------------------------------------------------
 */

struct values {
    uint64_t of[6][160];
    int count[6];
};

static void add_value(struct values *values, int arg, uint64_t value)
{
    for (int i = 0; i < values->count[arg]; i++)
        if (values->of[arg][i] == value)
            return;
    CHECK(values->count[arg] < (int)ARRAY_LEN(values->of[arg]));
    values->of[arg][values->count[arg]++] = value;
}

static void add_around(struct values *values, const struct seccomp_test *test, uint32_t value)
{
    uint32_t free_bits = test->mask ? ~test->mask : 0;

    add_value(values, test->arg, value);
    add_value(values, test->arg, value - 1);
    add_value(values, test->arg, value + 1);
    add_value(values, test->arg, value | 1ull << 32);
    add_value(values, test->arg, value | HIGH);
    add_value(values, test->arg, value | free_bits);
    add_value(values, test->arg, value | (free_bits & -free_bits));
    add_value(values, test->arg, value | (free_bits & -free_bits) | HIGH);
}

/* Everything near what the test, and those it leads to, compare with. */
static void add_test(struct values *values, const struct seccomp_policy *policy, uint32_t outcome)
{
    if (!OUTCOME_IS_TEST(outcome))
        return;
    for (size_t i = OUTCOME_TEST_OF(outcome); i < policy->test_count; i++) {
        const struct seccomp_test *test = &policy->tests[i];
        bool reached = i == OUTCOME_TEST_OF(outcome);

        for (size_t k = OUTCOME_TEST_OF(outcome); k < i; k++) {
            reached |= policy->tests[k].otherwise == OUTCOME_TEST(i);
            for (int c = 0; policy->tests[k].cases[c].how != CASE_END; c++)
                reached |= policy->tests[k].cases[c].outcome == OUTCOME_TEST(i);
        }
        if (!reached)
            continue;
        add_value(values, test->arg, 0);
        add_value(values, test->arg, ~0ull);
        add_value(values, test->arg, 1u << 31);
        for (int c = 0; test->cases[c].how != CASE_END; c++) {
            uint32_t value = test->cases[c].value;

            add_around(values, test, value);
            for (uint32_t bit = 1; test->cases[c].how == CASE_HAS && bit; bit <<= 1)
                if (value & bit)
                    add_around(values, test, bit);
        }
    }
}

/* The next combination, like a counter whose digits have different bases; false after the last. */
static bool next_combination(const struct values *values, int at[6])
{
    for (int arg = 0; arg < 6; arg++) {
        if (++at[arg] < values->count[arg])
            return true;
        at[arg] = 0;
    }
    return false;
}

static bool same_for_all_values(const struct filters *filters, const struct seccomp_policy *policy,
                                enum seccomp_arch arch, enum seccomp_profile profile, int nr)
{
    const struct seccomp_line *line = model_line(policy, arch, nr);
    struct values values = { 0 };
    int at[6] = { 0 };

    if (line)
        add_test(&values, policy, seccomp_outcome(line, profile));
    for (int arg = 0; arg < 6; arg++)
        if (values.count[arg] == 0)
            add_value(&values, arg, (uint64_t)test_rand(UINT32_MAX) << 32 | test_rand(UINT32_MAX));
    do {
        struct seccomp_data data = { .nr = nr, .arch = seccomp_audit_arch(arch) };

        for (int arg = 0; arg < 6; arg++)
            data.args[arg] = values.of[arg][at[arg]];
        if (ask(filters, arch, profile, &data) != model_decide(policy, profile, arch, &data))
            return false;
    } while (next_combination(&values, at));
    return true;
}

static const uint32_t other_arches[] = { AUDIT_ARCH_I386,    AUDIT_ARCH_X86_64,  AUDIT_ARCH_ARM,
                                         AUDIT_ARCH_AARCH64, AUDIT_ARCH_RISCV64, 0,
                                         0xffffffff };

static bool same_for_foreign(const struct filters *filters, const struct seccomp_policy *policy,
                             enum seccomp_arch arch, enum seccomp_profile profile, int nr)
{
    for (size_t i = 0; i < ARRAY_LEN(other_arches); i++) {
        struct seccomp_data data = { .nr = nr, .arch = other_arches[i] };

        if (other_arches[i] != seccomp_audit_arch(arch) &&
            ask(filters, arch, profile, &data) != model_decide(policy, profile, arch, &data))
            return false;
    }
    return true;
}

static const uint32_t far_numbers[] = { SECCOMP_NR_MAX - 1, SECCOMP_NR_MAX, 0xffff,     0x10000,
                                        0x3fffffff,         0x7fffffff,     0x80000000, 0xfffffffe,
                                        0xffffffff };

/* NULL, or where filters and table differ. */
static const char *difference(const struct filters *filters, const struct seccomp_policy *policy)
{
    static char where[128];

    for (int a = 0; a < SECCOMP_ARCHES; a++)
        for (int profile = 0; profile < SECCOMP_PROFILES; profile++)
            for (size_t i = 0; i < 2 * NUMBERS_END + ARRAY_LEN(far_numbers); i++) {
                enum seccomp_arch arch = (enum seccomp_arch)a;
                uint32_t nr = i < NUMBERS_END       ? (uint32_t)i
                              : i < 2 * NUMBERS_END ? (uint32_t)(i - NUMBERS_END) | SECCOMP_X32_BIT
                                                    : far_numbers[i - 2 * NUMBERS_END];

                if (same_for_all_values(filters, policy, arch, (enum seccomp_profile)profile,
                                        (int)nr) &&
                    same_for_foreign(filters, policy, arch, (enum seccomp_profile)profile, (int)nr))
                    continue;
                snprintf(where, sizeof(where), "architecture %d, profile %d, number 0x%x", a,
                         profile, nr);
                return where;
            }
    return NULL;
}

TEST(the_built_filters_do_what_the_table_says)
{
    struct filters filters = built_filters();
    const char *where = difference(&filters, &seccomp_policy);

    for (int arch = 0; arch < SECCOMP_ARCHES; arch++)
        for (int i = 0; i < SECCOMP_PROFILES; i++)
            CHECK(model_is_sound(filters.of[arch][i].insns, filters.of[arch][i].count));
    if (where)
        test_fail(__FILE__, __LINE__, "they differ: %s", where);
}

/* ---- written by hand ---------------------------------------------------------------------------
 */

/* Nothing but these is refused by name, in the agent profile. */
static const char refused_eperm[] =
    "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp bpf perf_event_open userfaultfd "
    "open_by_handle_at fanotify_init fanotify_mark unshare setns sethostname setdomainname "
    "mount umount2 pivot_root chroot mount_setattr open_tree open_tree_attr move_mount fsopen "
    "fsconfig fsmount fspick kexec_load kexec_file_load init_module finit_module delete_module "
    "reboot settimeofday clock_settime adjtimex clock_adjtime swapon swapoff acct quotactl "
    "quotactl_fd syslog iopl ioperm vhangup sched_setattr";
static const char refused_enosys[] =
    "clone3 io_uring_setup io_uring_enter io_uring_register process_madvise process_mrelease "
    "add_key request_key keyctl mbind set_mempolicy get_mempolicy set_mempolicy_home_node "
    "migrate_pages move_pages modify_ldt remap_file_pages memfd_secret cachestat futex_wake "
    "futex_wait futex_requeue statmount listmount file_getattr file_setattr lsm_get_self_attr "
    "lsm_set_self_attr lsm_list_modules uretprobe uprobe uselib ustat sysfs _sysctl create_module "
    "get_kernel_syms query_module nfsservctl getpmsg putpmsg afs_syscall tuxcall security "
    "set_thread_area get_thread_area lookup_dcookie epoll_ctl_old epoll_wait_old vserver";

/* How many of the list's names are lines with this verdict; -1 when one is not. */
static int count_refused(const struct seccomp_policy *policy, const char *list, uint32_t verdict)
{
    struct str rest = str_of(list);
    int count = 0;

    while (rest.n) {
        struct str name = str_cut(&rest, ' ');
        bool found = false;

        for (size_t i = 0; i < policy->line_count; i++)
            found |= str_is(name, policy->lines[i].name) &&
                     seccomp_outcome(&policy->lines[i], SECCOMP_AGENT) == verdict;
        if (!found)
            return -1;
        count++;
    }
    return count;
}

static bool refuses_as_listed(const struct seccomp_policy *policy)
{
    int eperm = count_refused(policy, refused_eperm, VERDICT_ERRNO(EPERM));
    int enosys = count_refused(policy, refused_enosys, VERDICT_ERRNO(ENOSYS));
    int refused = 0;

    for (size_t i = 0; i < policy->line_count; i++) {
        uint32_t outcome = seccomp_outcome(&policy->lines[i], SECCOMP_AGENT);

        if (!seccomp_is_heading(&policy->lines[i]) && outcome != VERDICT_ALLOW &&
            !OUTCOME_IS_TEST(outcome))
            refused++;
    }
    return eperm > 0 && enosys > 0 && eperm + enosys == refused &&
           policy->unknown == VERDICT_ERRNO(ENOSYS) && policy->foreign == VERDICT_KILL &&
           policy->x32 == VERDICT_KILL;
}

TEST(the_table_refuses_what_is_listed_here_and_no_more)
{
    CHECK(refuses_as_listed(&seccomp_policy));
}

#define A SECCOMP_AGENT
#define R SECCOMP_ROOT
#define N SECCOMP_NESTING
#define D SECCOMP_DEBUG
#define YES VERDICT_ALLOW
#define NO VERDICT_ERRNO(EPERM)
#define NOSYS VERDICT_ERRNO(ENOSYS)
#define NOFAM VERDICT_ERRNO(EAFNOSUPPORT)
#define NOPROTO VERDICT_ERRNO(EPROTONOSUPPORT)

/* Numbers, not names: what the kernel sees. */
static const struct {
    const char *call;
    enum seccomp_profile profile;
    uint64_t args[4];
    uint32_t verdict;
} expected[] = {
    /* TIOCSTI, TIOCLINUX, TIOCSETD; with garbage where the kernel does not look; neighbours. */
    { "ioctl", A, { 0, 0x5412 }, NO },
    { "ioctl", A, { 0, 0x5412 | HIGH }, NO },
    { "ioctl", A, { 0, 0x105412 }, YES },
    { "ioctl", R, { 0, 0x541c | 1ull << 32 }, NO },
    { "ioctl", N, { 0, 0x5423 }, NO },
    { "ioctl", D, { 0, 0x5412 }, NO },
    { "ioctl", A, { 0, 0x5411 }, YES },
    { "ioctl", A, { 0, 0x5413 }, YES },
    { "ioctl", A, { 0x5412, 0x5401, 0x5412 }, YES },
    /* F_SETLEASE, and what only asks. */
    { "fcntl", A, { 0, 1024 }, NO },
    { "fcntl", R, { 0, 1024 | HIGH }, NO },
    { "fcntl", N, { 0, 1024 | 1ull << 32 }, NO },
    { "fcntl", D, { 1024, 1025 }, YES },
    { "fcntl", A, { 0, 1023 }, YES },
    { "fcntl", A, { 0, 1030, 1024 }, YES },
    /* Families. */
    { "socket", A, { 1, 1, 0 }, YES },
    { "socket", A, { 1, 5 | 02000000 | 04000, 0 }, YES },
    { "socket", A, { 1, 2, 0 }, YES },
    { "socket", A, { 1, 3, 0 }, NO },
    { "socket", A, { 2, 1, 6 }, YES },
    { "socket", A, { 2, 2 | 02000000, 17 }, YES },
    { "socket", A, { 2, 1, 18 }, NOPROTO },
    { "socket", A, { 2, 1, 132 }, NOPROTO },
    { "socket", A, { 2, 1, 262 }, NOPROTO },
    { "socket", A, { 2, 2, 136 }, NOPROTO },
    { "socket", A, { 2, 1, 262 | HIGH }, NOPROTO },
    { "socket", A, { 2, 3, 1 }, NO },
    { "socket", R, { 2, 3 | 02000000, 255 }, NO },
    { "socket", A, { 2, 5, 0 }, NO },
    { "socket", A, { 10, 1, 0 }, YES },
    { "socket", A, { 10, 2, 0 }, YES },
    { "socket", A, { 10, 3, 58 }, NO },
    { "socket", A, { 10, 2, 262 }, NOPROTO },
    { "socket", A, { 16, 3, 0 }, YES },
    { "socket", A, { 16, 3, 9 }, NOPROTO },
    { "socket", A, { 16, 3, 12 }, NOPROTO },
    { "socket", A, { 16, 2, 15 }, NOPROTO },
    { "socket", A, { 40, 1, 0 }, NOFAM },
    { "socket", A, { 40 | HIGH, 1, 0 }, NOFAM },
    { "socket", N, { 38, 5, 0 }, NOFAM },
    { "socket", R, { 17, 3, 0x300 }, NOFAM },
    { "socket", A, { 33, 2, 0 }, NOFAM },
    { "socket", A, { 0, 1, 0 }, NOFAM },
    { "socketpair", A, { 1, 1, 0 }, YES },
    { "socketpair", A, { 30, 1, 0 }, NOFAM },
    { "socketpair", A, { 1, 3, 0 }, NO },
    /* TCP_ULP. */
    { "setsockopt", A, { 3, 6, 31 }, VERDICT_ERRNO(ENOPROTOOPT) },
    { "setsockopt", A, { 3, 6 | HIGH, 31 | HIGH }, VERDICT_ERRNO(ENOPROTOOPT) },
    { "setsockopt", A, { 3, 6, 1 }, YES },
    { "setsockopt", A, { 3, 1, 31 }, YES },
    /* A thread, a process, and each new namespace. */
    { "clone", A, { 0x3d0f00 }, YES },
    { "clone", A, { 0x1200011 }, YES },
    { "clone", A, { 0x10000011 }, NO },
    { "clone", R, { 0x10000011 | 0xfull << 32 }, NO },
    { "clone", A, { 0x00020011 }, NO },
    { "clone", A, { 0x02000011 }, NO },
    { "clone", A, { 0x04000011 }, NO },
    { "clone", A, { 0x08000011 }, NO },
    { "clone", A, { 0x20000011 }, NO },
    { "clone", A, { 0x40000011 }, NO },
    { "clone", D, { 0x10000011 }, NO },
    { "clone", N, { 0x10000011 }, YES },
    { "clone3", N, { 0 }, NOSYS },
    { "unshare", A, { 0x10000000 }, NO },
    { "unshare", N, { 0x10000000 }, YES },
    { "setns", N, { 3, 0 }, YES },
    { "mount", N, { 0 }, YES },
    { "mount", D, { 0 }, NO },
    { "chroot", N, { 0 }, YES },
    { "keyctl", N, { 0 }, NOSYS },
    { "bpf", N, { 0 }, NO },
    { "io_uring_setup", N, { 0 }, NOSYS },
    /* Tracing. */
    { "ptrace", A, { 0 }, NO },
    { "ptrace", R, { 0 }, NO },
    { "ptrace", N, { 0 }, NO },
    { "ptrace", D, { 0 }, YES },
    { "process_vm_readv", D, { 0 }, YES },
    { "process_vm_writev", D, { 0 }, YES },
    { "pidfd_getfd", D, { 0 }, NO },
    { "perf_event_open", D, { 0 }, NO },
    { "personality", A, { 0 }, YES },
    { "personality", A, { 0xffffffff }, YES },
    { "personality", A, { ~0ull }, YES },
    { "personality", A, { 0x0040000 }, NO },
    { "personality", A, { 0x0400000 | HIGH }, NO },
    { "personality", A, { 8 }, NO },
    { "personality", D, { 0 }, YES },
    { "personality", D, { 0xffffffff }, YES },
    { "personality", D, { 0x0040000 }, YES },
    { "personality", D, { 0x0400000 }, NO },
    /* Files, FIFOs, sockets; character and block devices; whiteouts. */
    { "mknodat", A, { 0, 0, 0100644, 0 }, YES },
    { "mknodat", A, { 0, 0, 0644, 0 }, YES },
    { "mknodat", A, { 0, 0, 0010644, 0 }, YES },
    { "mknodat", A, { 0, 0, 0140644, 0 }, YES },
    { "mknodat", A, { 0, 0, 0020644, 0x103 }, NO },
    { "mknodat", R, { 0, 0, 0060644 | HIGH, 0x800 }, NO },
    { "mknodat", A, { 0, 0, 0020000, 0 }, YES },
    { "mknodat", A, { 0, 0, 0020000, 1 }, NO },
    { "mknodat", N, { 0, 0, 0020000, 0 }, YES },
    { "mknodat", N, { 0, 0, 0020000, HIGH }, YES },
    { "mknodat", N, { 0, 0, 0020644, 0x103 }, NO },
    { "mknodat", N, { 0, 0, 0100644, 0x103 }, YES },
    { "mknod", A, { 0, 0010644, 0 }, YES },
    { "mknod", A, { 0, 0020644, 0x103 }, NO },
    { "mknod", A, { 0, 0060644, 0x800 }, NO },
    { "mknod", A, { 0, 0020000, 0 }, YES },
    { "mknod", N, { 0, 0020000, 0 }, YES },
    { "mknod", N, { 0, 0020644, 0x103 }, NO },
    /* PR_SET_MM, PR_SCHED_CORE, PR_SET_MEMORY_MERGE; PR_SET_NAME, PR_SET_NO_NEW_PRIVS. */
    { "prctl", A, { 35 }, NO },
    { "prctl", A, { 35 | HIGH }, NO },
    { "prctl", A, { 62 }, NO },
    { "prctl", A, { 67 }, NO },
    { "prctl", A, { 15 }, YES },
    { "prctl", A, { 38 }, YES },
    /* Other, batch, idle; FIFO, RR, deadline. */
    { "sched_setscheduler", A, { 0, 0 }, YES },
    { "sched_setscheduler", A, { 0, 3 | 0x40000000 }, YES },
    { "sched_setscheduler", A, { 0, 5 }, YES },
    { "sched_setscheduler", A, { 0, 1 }, NO },
    { "sched_setscheduler", A, { 0, 2 | 0x40000000 }, NO },
    { "sched_setscheduler", A, { 0, 6 }, NO },
    { "ioprio_set", A, { 1, 0, 3 << 13 }, YES },
    { "ioprio_set", A, { 1, 0, 0 }, YES },
    { "ioprio_set", A, { 1, 0, 2 << 13 | 4 }, YES },
    { "ioprio_set", A, { 1, 0, 2 << 13 | 7 }, YES },
    { "ioprio_set", A, { 1, 0, 2 << 13 | 3 }, NO },
    { "ioprio_set", A, { 1, 0, 1 << 13 | 4 }, NO },
};

/* The call's number as the headers have it; -1 if this architecture has none. */
static int header_number(enum seccomp_arch arch, const char *name)
{
    const struct seccomp_number *numbers =
        arch == native ? seccomp_numbers_native : seccomp_numbers_generic;
    size_t count =
        arch == native ? ARRAY_LEN(seccomp_numbers_native) : ARRAY_LEN(seccomp_numbers_generic);

    for (size_t i = 0; i < count; i++)
        if (strcmp(numbers[i].name, name) == 0)
            return numbers[i].nr;
    return -1;
}

/* NULL, or the first call that is answered otherwise than written above. */
static const char *surprise(const struct filters *filters)
{
    static char what[160];

    for (int a = 0; a < SECCOMP_ARCHES; a++)
        for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
            enum seccomp_arch arch = (enum seccomp_arch)a;
            struct seccomp_data data = { .nr = header_number(arch, expected[i].call),
                                         .arch = seccomp_audit_arch(arch) };

            /* x86-64 has no headers on an arm64 machine, arm64 has no mknod. */
            if (data.nr < 0 || (native == SECCOMP_ARM64 && arch == SECCOMP_X86_64))
                continue;
            memcpy(data.args, expected[i].args, sizeof(expected[i].args));
            uint32_t got = ask(filters, arch, expected[i].profile, &data);
            if (got == expected[i].verdict)
                continue;
            snprintf(what, sizeof(what), "%s(0x%llx, 0x%llx, 0x%llx) on %d in %d gets 0x%08x",
                     expected[i].call, (unsigned long long)data.args[0],
                     (unsigned long long)data.args[1], (unsigned long long)data.args[2], a,
                     expected[i].profile, got);
            return what;
        }
    return NULL;
}

TEST(arguments_are_judged_as_written_here)
{
    struct filters filters = built_filters();
    const char *what = surprise(&filters);

    if (what)
        test_fail(__FILE__, __LINE__, "%s", what);
}

TEST(no_other_family_passes)
{
    struct filters filters = built_filters();

    for (int profile = 0; profile < SECCOMP_PROFILES; profile++)
        for (uint32_t family = 0; family < 4096; family++)
            for (uint32_t type = 0; type < 16; type++) {
                struct seccomp_data data = { .nr = header_number(native, "socket"),
                                             .arch = seccomp_audit_arch(native),
                                             .args = { family, type, 0 } };
                bool may = (family == 1 && (type == 1 || type == 2 || type == 5)) ||
                           ((family == 2 || family == 10) && (type == 1 || type == 2)) ||
                           family == 16;

                CHECK((ask(&filters, native, profile, &data) == VERDICT_ALLOW) == may);
            }
}

TEST(root_inside_may_call_what_the_agent_may)
{
    CHECK_STR(seccomp_blobs_x86_64[SECCOMP_ROOT].digest,
              seccomp_blobs_x86_64[SECCOMP_AGENT].digest);
    CHECK_STR(seccomp_blobs_arm64[SECCOMP_ROOT].digest, seccomp_blobs_arm64[SECCOMP_AGENT].digest);
}

/* ---- would it be noticed? ----------------------------------------------------------------------
 */

/* A copy of the policy that may be changed, and room for the programs made from it. */
struct mutant {
    struct seccomp_line lines[SECCOMP_NR_MAX];
    struct seccomp_test tests[64];
    struct seccomp_policy policy;
    struct sock_filter insns[SECCOMP_ARCHES][SECCOMP_PROFILES][SECCOMP_INSNS_MAX];
    struct filters filters;
};

static void mutant_reset(struct mutant *mutant)
{
    mutant->policy = seccomp_policy;
    memcpy(mutant->lines, seccomp_policy.lines, seccomp_policy.line_count * sizeof(*mutant->lines));
    memcpy(mutant->tests, seccomp_policy.tests, seccomp_policy.test_count * sizeof(*mutant->tests));
    mutant->policy.lines = mutant->lines;
    mutant->policy.tests = mutant->tests;
}

static void mutant_compile(struct mutant *mutant)
{
    struct err err = { 0 };

    for (int arch = 0; arch < SECCOMP_ARCHES; arch++)
        for (int i = 0; i < SECCOMP_PROFILES; i++) {
            struct sock_filter *insns = mutant->insns[arch][i];

            mutant->filters.of[arch][i].insns = insns;
            mutant->filters.of[arch][i].count = seccomp_compile(
                &mutant->policy, (enum seccomp_profile)i, (enum seccomp_arch)arch, insns, &err);
            CHECK_OK(mutant->filters.of[arch][i].count, &err);
        }
}

/* A build with this change: do the comparison with the table and the one by hand both see it? */
static void check_noticed(struct mutant *mutant, const char *what)
{
    mutant_compile(mutant);
    if (!difference(&mutant->filters, &seccomp_policy))
        test_fail(__FILE__, __LINE__, "%s: the comparison with the table does not see it", what);
    if (!surprise(&mutant->filters) && refuses_as_listed(&mutant->policy))
        test_fail(__FILE__, __LINE__, "%s: what is written by hand does not see it", what);
}

TEST(an_unchanged_copy_is_not_noticed)
{
    autofree struct mutant *mutant = xmalloc(sizeof(*mutant));

    mutant_reset(mutant);
    mutant_compile(mutant);
    CHECK(!difference(&mutant->filters, &seccomp_policy));
    CHECK(!surprise(&mutant->filters));
    CHECK(refuses_as_listed(&mutant->policy));
}

TEST(every_line_that_refuses_is_missed_when_it_allows)
{
    autofree struct mutant *mutant = xmalloc(sizeof(*mutant));
    int flipped = 0;

    for (size_t i = 0; i < seccomp_policy.line_count; i++) {
        if (seccomp_is_heading(&seccomp_policy.lines[i]) ||
            seccomp_policy.lines[i].outcome == VERDICT_ALLOW)
            continue;
        mutant_reset(mutant);
        mutant->lines[i].outcome = VERDICT_ALLOW;
        check_noticed(mutant, mutant->lines[i].name);
        flipped++;
    }
    CHECK(flipped > 100);
}

TEST(every_case_that_refuses_is_missed_when_it_allows)
{
    autofree struct mutant *mutant = xmalloc(sizeof(*mutant));
    int flipped = 0;

    for (size_t i = 0; i < seccomp_policy.test_count; i++) {
        const struct seccomp_test *test = &seccomp_policy.tests[i];

        for (int c = 0; test->cases[c].how != CASE_END; c++) {
            if (test->cases[c].outcome == VERDICT_ALLOW)
                continue;
            mutant_reset(mutant);
            mutant->tests[i].cases[c].outcome = VERDICT_ALLOW;
            check_noticed(mutant, test->what);
            flipped++;
        }
        if (test->otherwise != VERDICT_ALLOW) {
            mutant_reset(mutant);
            mutant->tests[i].otherwise = VERDICT_ALLOW;
            check_noticed(mutant, test->what);
            flipped++;
        }
        if (test->mask) {
            mutant_reset(mutant);
            mutant->tests[i].mask = 0;
            check_noticed(mutant, "a mask");
            flipped++;
        }
    }
    CHECK(flipped > 25);
}

TEST(the_frame_is_missed_when_it_allows)
{
    autofree struct mutant *mutant = xmalloc(sizeof(*mutant));

    mutant_reset(mutant);
    mutant->policy.unknown = VERDICT_ALLOW;
    check_noticed(mutant, "unknown numbers");
    mutant_reset(mutant);
    mutant->policy.foreign = VERDICT_ALLOW;
    check_noticed(mutant, "other architectures");
    mutant_reset(mutant);
    mutant->policy.x32 = VERDICT_ALLOW;
    check_noticed(mutant, "the x32 entry");
}

/* ---- the manual --------------------------------------------------------------------------------
 */

TEST(the_page_in_docs_is_the_one_the_table_gives)
{
    autofree char *path = xprintf("%s/page", test_dir());
    FILE *have = fopen("docs/seccomp.md", "re"), *want = fopen(path, "w+e");

    if (have && want) {
        int a, b;

        seccomp_page(want, &seccomp_policy);
        rewind(want);
        do {
            a = fgetc(have);
            b = fgetc(want);
            if (a != b)
                test_fail(__FILE__, __LINE__, "docs/seccomp.md is not fresh: make docs");
        } while (a != EOF);
        CHECK(ftell(want) > 1000);
        fclose(have);
        fclose(want);
        return;
    }
    test_fail(__FILE__, __LINE__, "cannot open both pages");
}
