/*
 * policy - what a sandbox may ask of the kernel, as a table.
 *
 * One line per system call, one column of numbers per architecture, in groups that say why. Every
 * call that Linux has up to SECCOMP_KNOWN is decided here; a number that is not in the table gets
 * `unknown`, another architecture `foreign`, the x32 entry `x32`. From the same lines come the
 * filter (compile.c), the manual page (page.c) and the expectations of the tests.
 *
 * An outcome is either a verdict of the kernel's (SECCOMP_RET_…) or OUTCOME_TEST(n): look at an
 * argument. A test compares one masked argument with its cases, first match wins. Only the low 32
 * bits are ever compared: every argument tested here is an int or a 16 or 32 bit number to the
 * kernel, which drops the upper half, so a comparison of 64 bits could be walked around with
 * garbage there (CVE-2019-10063). A test leads only to tests behind it, so there are no circles.
 */
#pragma once

#include <errno.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>

#include "seccomp/seccomp.h"

enum seccomp_arch { SECCOMP_X86_64, SECCOMP_ARM64, SECCOMP_ARCHES };

/* The last number Linux 6.18 has. What comes later is unknown: ENOSYS, and libc falls back. */
#define SECCOMP_KNOWN 469
/* The compiler's ceiling; all architectures count well below it. */
#define SECCOMP_NR_MAX 768
#define SECCOMP_X32_BIT 0x40000000u

#define VERDICT_ALLOW SECCOMP_RET_ALLOW
#define VERDICT_KILL SECCOMP_RET_KILL_PROCESS
#define VERDICT_ERRNO(number) (SECCOMP_RET_ERRNO | (uint32_t)(number))
/* A pattern that no verdict of the kernel has. */
#define OUTCOME_TEST(n) (0x0a510000u | (uint32_t)(n))
#define OUTCOME_IS_TEST(outcome) (((outcome)&0xffff0000u) == 0x0a510000u)
#define OUTCOME_TEST_OF(outcome) ((outcome)&0xffffu)

struct seccomp_line {
    const char *name;
    int nr[SECCOMP_ARCHES]; /* -1: that architecture does not have it */
    uint32_t outcome;
    const char *why;             /* only a heading has one, and it has no numbers */
    enum seccomp_profile but_in; /* in this one profile … */
    uint32_t but;                /* … this instead of outcome; 0 means no exception */
};

enum seccomp_how { CASE_END, CASE_IS, CASE_FROM /* >= */, CASE_HAS /* any of these bits */ };

#define SECCOMP_CASES_MAX 5

struct seccomp_test {
    const char *what; /* for the manual: "socket: the family" */
    const char *why;  /* NULL: as the test that leads here */
    uint8_t arg;      /* 0 to 5 */
    uint32_t mask;    /* 0 means all 32 bits */
    struct {
        enum seccomp_how how;
        uint32_t value;
        uint32_t outcome;
        const char *name; /* of the value */
    } cases[SECCOMP_CASES_MAX + 1];
    uint32_t otherwise;
};

struct seccomp_policy {
    const struct seccomp_line *lines;
    size_t line_count;
    const struct seccomp_test *tests;
    size_t test_count;
    uint32_t unknown; /* a number without a line */
    uint32_t foreign; /* entered through another architecture */
    uint32_t x32;     /* x86-64 only: a number with SECCOMP_X32_BIT */
};

extern const struct seccomp_policy seccomp_policy;

static inline bool seccomp_is_heading(const struct seccomp_line *line)
{
    return line->why != NULL;
}

static inline uint32_t seccomp_outcome(const struct seccomp_line *line, enum seccomp_profile in)
{
    return line->but && line->but_in == in ? line->but : line->outcome;
}
