/*
 * The programs of policy.c as constant bytes, and the one system call that loads them. blob.h is
 * written by tools/gen-seccomp on every build; it holds one program per profile for this machine's
 * architecture.
 */
#include "seccomp/seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/syscall.h>

#include "seccomp/blob.h"

#if defined(__x86_64__)
static const struct seccomp_blob *const blobs = seccomp_blobs_x86_64;
#elif defined(__aarch64__)
static const struct seccomp_blob *const blobs = seccomp_blobs_arm64;
#elif !defined(ATOLL_CPPCHECK) /* which pretends to be on no machine */
#error "no system call filter for this architecture: a sandbox without one is not made"
#endif

static const char *const names[SECCOMP_PROFILES] = {
    [SECCOMP_AGENT] = "agent",
    [SECCOMP_ROOT] = "root",
    [SECCOMP_NESTING] = "nesting",
    [SECCOMP_DEBUG] = "debug",
};

static bool is_profile(enum seccomp_profile profile)
{
    return (unsigned)profile < SECCOMP_PROFILES;
}

const char *seccomp_name(enum seccomp_profile profile)
{
    return is_profile(profile) ? names[profile] : NULL;
}

const struct sock_fprog *seccomp_profile(enum seccomp_profile profile)
{
    return is_profile(profile) ? &blobs[profile].program : NULL;
}

const char *seccomp_digest(enum seccomp_profile profile)
{
    return is_profile(profile) ? blobs[profile].digest : NULL;
}

const char *seccomp_digest_of(const struct sock_filter *insns, size_t count)
{
    for (int i = 0; i < SECCOMP_PROFILES; i++)
        if (count == blobs[i].program.len &&
            memcmp(insns, blobs[i].program.filter, count * sizeof(*insns)) == 0)
            return blobs[i].digest;
    return NULL;
}

int seccomp_profile_load(enum seccomp_profile profile)
{
    if (!is_profile(profile)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &blobs[profile].program);
}
