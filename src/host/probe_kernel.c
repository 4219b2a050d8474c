/*
 * System calls that are there or not. Each is made in a way that changes nothing: a descriptor that
 * is closed again, arguments that a kernel with the call refuses as wrong and one without as
 * unknown.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "host/own.h"

#define MFD_NOEXEC_SEAL_ 8u /* linux/memfd.h, from 6.3 */

static void have(struct probe_result *out, const char *found)
{
    probe_found(out, "%s", found);
    out->state = PROBE_OK;
}

static void lack(struct probe_result *out, enum probe_state state, const char *lost,
                 const char *fix)
{
    probe_found(out, "%s", strerrordesc_np(errno));
    probe_say(out, state, lost, fix);
}

static void pidfd(const struct probe_world *world, struct probe_result *out)
{
    autoclose int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    (void)world;
    if (fd >= 0 && syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0)
        have(out, "opens and signals");
    else
        lack(out, PROBE_FAIL, "processes cannot be watched safely; the server does not start",
             "use Linux 5.3 or newer, and a container runtime that allows pidfd_open");
}

static void close_range_check(const struct probe_world *world, struct probe_result *out)
{
    (void)world;
    if (syscall(SYS_close_range, 1000000000u, 1000000001u, 0) == 0)
        have(out, "works");
    else
        lack(out, PROBE_FAIL, "descriptors cannot be kept from children; the server does not start",
             "use Linux 5.9 or newer, and a container runtime that allows close_range");
}

static void openat2_check(const struct probe_world *world, struct probe_result *out)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC | O_DIRECTORY,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
    autoclose int fd = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how));

    (void)world;
    if (fd >= 0)
        have(out, "resolves beneath a directory");
    else
        lack(out, PROBE_FAIL, "paths cannot be confined; the store does not open",
             "use Linux 5.6 or newer, and a container runtime that allows openat2");
}

static void clone3(const struct probe_world *world, struct probe_result *out)
{
    (void)world;
    if (syscall(SYS_clone3, NULL, 0) < 0 && errno == EINVAL)
        have(out, "there");
    else
        lack(out, PROBE_LOST, "sandboxes cannot be born into their cgroup; creating them is slower",
             "use Linux 5.7 or newer, and a container runtime that allows clone3");
}

static void memfd(const struct probe_world *world, struct probe_result *out)
{
    autoclose int fd = memfd_create("probe", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL_);

    (void)world;
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) == 0)
        have(out, "seals");
    else
        lack(out, PROBE_FAIL, "settings cannot be handed over; the server does not start",
             "use a container runtime that allows memfd_create");
}

/* Entering it needs no more than the version says, but a wrapper may still refuse: really enter. */
static int enter_landlock(const void *arg)
{
    uint64_t handled = 1; /* LANDLOCK_ACCESS_FS_EXECUTE */
    int fd;

    (void)arg;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return errno;
    fd = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);
    if (fd < 0 || syscall(SYS_landlock_restrict_self, fd, 0) < 0)
        return errno;
    return 0;
}

static void landlock(const struct probe_world *world, struct probe_result *out)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    int failed = abi < 1 ? errno : probe_child(enter_landlock, NULL, 2000);

    (void)world;
    if (abi < 1 || failed) {
        errno = failed > 0 ? failed : ENOSYS;
        lack(out, PROBE_FAIL, "the api process would see the whole file system; it does not start",
             "use a kernel with Landlock and lsm=…,landlock, or accept with allow_degraded = "
             "landlock");
        return;
    }
    probe_found(out, "version %ld", abi);
    if (abi >= 6)
        out->state = PROBE_OK;
    else
        probe_say(out, PROBE_LOST,
                  abi >= 4 ? "signals and abstract sockets are held back by seccomp alone"
                           : "TCP, signals and abstract sockets are held back by seccomp alone",
                  "use Linux 6.12 or newer");
}

static int enter_seccomp(const void *arg)
{
    /* allow everything: BPF_RET SECCOMP_RET_ALLOW */
    struct {
        uint16_t code;
        uint8_t jt, jf;
        uint32_t k;
    } program[] = { { 0x06, 0, 0, SECCOMP_RET_ALLOW } };
    struct {
        uint16_t len;
        void *filter;
    } all = { 1, program };

    (void)arg;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &all) < 0)
        return errno;
    return 0;
}

static void seccomp(const struct probe_world *world, struct probe_result *out)
{
    uint32_t action = SECCOMP_RET_KILL_PROCESS;
    int failed = probe_child(enter_seccomp, NULL, 2000);

    (void)world;
    if (!failed && syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0) {
        have(out, "filters and kills");
        return;
    }
    errno = failed > 0 ? failed : errno;
    lack(out, PROBE_FAIL, "the api process could make any system call; it does not start",
         "use a kernel with CONFIG_SECCOMP_FILTER, or accept with allow_degraded = seccomp");
}

#ifdef __x86_64__
static int enter_ia32(const void *arg)
{
    long got = 20; /* getpid, in the 32-bit numbering */

    (void)arg;
    __asm__ volatile("int $0x80" : "+a"(got) : : "memory", "r8", "r9", "r10", "r11");
    return got > 0 ? 0 : ENOSYS;
}

/* A filter that we run under may kill for trying: in a child too. */
static int enter_x32(const void *arg)
{
    (void)arg;
    return syscall(0x40000000L | SYS_getpid) > 0 ? 0 : ENOSYS;
}

static void other_entries(const struct probe_world *world, struct probe_result *out)
{
    bool ia32 = probe_child(enter_ia32, NULL, 2000) == 0;
    bool x32 = probe_child(enter_x32, NULL, 2000) == 0;

    (void)world;
    /* Nothing is lost either way: our filters kill both. It is the host that one may want to know.
     */
    probe_found(out, "32-bit entry is %s, x32 is %s; our filters kill both", ia32 ? "on" : "off",
                x32 ? "on" : "off");
    out->state = PROBE_OK;
}
#endif

/*
 * A process that takes another user may be looked into as before where this is 1. What becomes a
 * command shares the memory of its sandbox's process 1 until it has become that.
 */
void probe_dumpable(int64_t value, struct probe_result *out)
{
    probe_found(out, "fs.suid_dumpable is %lld", (long long)value);
    if (value == 1)
        probe_say(out, PROBE_LOST,
                  "a process in a sandbox can look into process 1 of it for a moment at each "
                  "start of a command",
                  "sysctl -w fs.suid_dumpable=0 (or 2)");
    else
        out->state = PROBE_OK;
}

static void suid_dumpable(const struct probe_world *world, struct probe_result *out)
{
    (void)world;
    probe_dumpable(host_number("/proc/sys/fs/suid_dumpable", 0), out);
}

const struct probe_check probe_kernel_checks[] = {
    { "pidfd", pidfd },
    { "close_range", close_range_check },
    { "openat2", openat2_check },
    { "clone3", clone3 },
    { "memfd", memfd },
    { "landlock", landlock },
    { "seccomp", seccomp },
    { "suid_dumpable", suid_dumpable },
#ifdef __x86_64__
    { "ia32_entry", other_entries },
#endif
    { 0 },
};
