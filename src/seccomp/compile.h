/*
 * compile - from the policy table to a program for the kernel's classic BPF machine.
 *
 * Runs at build time (tools/gen-seccomp) and in tests; nothing at run time needs it.
 */
#pragma once

#include "base/err.h"
#include "seccomp/policy.h"

/* The kernel's own maximum, BPF_MAXINSNS. */
#define SECCOMP_INSNS_MAX 4096

/*
 * Writes the program and returns its length. ERR_INVALID when the policy contradicts itself (a
 * number twice, a test that leads backwards), ERR_LIMIT when it has too large numbers, too many
 * tests, cases or different verdicts.
 */
must_use int seccomp_compile(const struct seccomp_policy *policy, enum seccomp_profile profile,
                             enum seccomp_arch arch, struct sock_filter out[SECCOMP_INSNS_MAX],
                             struct err *err);

/* What an architecture is called by the kernel's audit constants. */
uint32_t seccomp_audit_arch(enum seccomp_arch arch);
