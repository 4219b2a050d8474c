/*
 * seccomp - the system call filter of a sandbox: which profiles there are, and loading one.
 *
 * The programs are made at build time from the table in policy.c (see there and docs/seccomp.md for
 * what is refused and why); here they are constant bytes, so loading one is a single system call.
 * Over libc alone, for the static warden. Any thread.
 */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"

enum seccomp_profile {
    SECCOMP_AGENT,   /* the default */
    SECCOMP_ROOT,    /* root inside: capabilities differ, system calls do not */
    SECCOMP_NESTING, /* opt-in: user namespaces and mounts inside */
    SECCOMP_DEBUG,   /* opt-in: debuggers and tracers inside */
    SECCOMP_PROFILES /* how many there are */
};

const char *seccomp_name(enum seccomp_profile profile);

/* The program for this machine's architecture; NULL for a profile that is none. */
const struct sock_fprog *seccomp_profile(enum seccomp_profile profile);

/*
 * "sha256:" and 64 digits, over the instructions as they lie in memory. seccomp_digest_of answers
 * for a program read back from the kernel: NULL means that it is none of ours.
 */
const char *seccomp_digest(enum seccomp_profile profile);
const char *seccomp_digest_of(const struct sock_filter *insns, size_t count);

/*
 * Filters the calling thread and everything it starts from now on, for ever. no_new_privs must be
 * set before. Returns 0, or -1 with errno: EACCES without no_new_privs, EINVAL for no such profile.
 * The warden's child calls this between fork and exec, hence errno and no struct err.
 */
must_use int seccomp_profile_load(enum seccomp_profile profile);
