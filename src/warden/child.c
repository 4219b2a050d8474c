/*
 * The child between clone and exec: it gives away, step by step, everything it was born with. The
 * order matters: cgroup and network while it still may, mounts, then the user namespace, then
 * capabilities, then what forbids the rest (no_new_privs, Landlock, seccomp last). It runs in a
 * copy of the warden, so it allocates nothing and trusts nothing it inherited but its descriptors.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/guard.h"
#include "seccomp/seccomp.h"
#include "warden/box.h"
#include "wire/init.h"

#define LANDLOCK_SCOPES_ 3u /* abstract Unix sockets and signals, since ABI 6 */

static int drop_caps(uint64_t mask)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = {
        { (uint32_t)mask, (uint32_t)mask, 0 },
        { (uint32_t)(mask >> 32), (uint32_t)(mask >> 32), 0 },
    };

    for (unsigned long cap = 0; cap < 64; cap++)
        if (!(mask >> cap & 1) && guard(bounding) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno == EINVAL && cap > CAP_LAST_CAP)
                break;
            if (errno != EINVAL)
                return -1;
        }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -1;
    return guard(capset) ? (int)syscall(SYS_capset, &head, data) : 0;
}

static int set_limit(int which, rlim_t value)
{
    struct rlimit limit = { value, value };
    struct rlimit now;

    if (getrlimit(which, &now) == 0 && now.rlim_max < value)
        limit.rlim_cur = limit.rlim_max = now.rlim_max; /* never upwards */
    return setrlimit(which, &limit);
}

/*
 * Where no cgroup counts: for each process, and for each user inside. Late, as this process is to
 * have nothing to do under them: what a sanitizer's build has mapped is more than they allow.
 */
static int set_substitutes(const struct box_spec *spec, uint32_t lost)
{
    if (lost & BOX_LOST_MEMORY && guard(data_max) && set_limit(RLIMIT_DATA, spec->memory) < 0)
        return -1;
    return lost & BOX_LOST_PIDS && guard(nproc_max) ? set_limit(RLIMIT_NPROC, spec->pids) : 0;
}

static int set_limits(const struct box_spec *spec)
{
    /* A core size of 1 also keeps a piped core handler of the host from being started; 0 does not.
     */
    return set_limit(RLIMIT_CORE, guard(core) ? 1 : RLIM_INFINITY) < 0 ||
                   set_limit(RLIMIT_NOFILE, guard(nofile) ? spec->nofile : RLIM_INFINITY) < 0 ||
                   set_limit(RLIMIT_MEMLOCK, guard(memlock) ? 8u << 20 : RLIM_INFINITY) < 0 ||
                   set_limit(RLIMIT_MSGQUEUE, guard(msgqueue) ? 819200 : RLIM_INFINITY) < 0 ||
                   set_limit(RLIMIT_SIGPENDING, guard(sigpending) ? 4096 : RLIM_INFINITY) < 0 ||
                   set_limit(RLIMIT_NICE, guard(nice) ? 0 : RLIM_INFINITY) < 0 ||
                   set_limit(RLIMIT_RTPRIO, guard(rtprio) ? 0 : RLIM_INFINITY) < 0
               ? -1
               : 0;
}

/*
 * One rule on "/": it makes a leaked descriptor of the host useless and costs next to nothing. Who
 * is under any rule about files cannot mount; so where tools inside make sandboxes of their own,
 * the scopes alone are left, and nothing on kernels that have none.
 */
static int enter_landlock(int abi, bool nesting)
{
    static const uint64_t rights[] = { 0, 0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff, 0xffff };
    struct {
        uint64_t fs, net, scoped;
    } attr = { .fs = nesting || !guard(landlock_files) ? 0 : rights[abi < 6 ? abi : 6],
               .scoped = abi >= 6 && guard(landlock_scopes) ? LANDLOCK_SCOPES_ : 0 };
    size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;

    if (!attr.fs && !attr.scoped)
        return 0;
    autoclose int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    autoclose int root = open("/", O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr beneath = { .allowed_access = attr.fs, .parent_fd = root };

    if (rules < 0 || root < 0 ||
        (attr.fs &&
         syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) < 0))
        return -1;
    return (int)syscall(SYS_landlock_restrict_self, rules, 0);
}

/* Where there is only one id the kernel does not let go of groups, and there are none inside. */
static int enter_userns(int fd, bool one_id)
{
    uint32_t id = one_id ? BOX_AGENT : 0;

    if (setns(fd, CLONE_NEWUSER) < 0 || (!one_id && setgroups(0, NULL) < 0))
        return -1;
    return setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0 ? -1 : 0;
}

/* 0-2 are /dev/null, 3 listens, 4 is the first connection, the rest closes with exec. */
static int set_stdio(int listen_fd, int link_fd, int init_fd, int report_fd, int *init_at,
                     int *report_at)
{
    int high[4] = { fcntl(listen_fd, F_DUPFD_CLOEXEC, 64), fcntl(link_fd, F_DUPFD_CLOEXEC, 64),
                    fcntl(init_fd, F_DUPFD_CLOEXEC, 64), fcntl(report_fd, F_DUPFD_CLOEXEC, 64) };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int i = 0; i < 4; i++)
        if (high[i] < 0)
            return -1;
    if (null < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (dup2(null, i) < 0)
            return -1;
    if (dup2(high[0], 3) < 0 || dup2(high[1], 4) < 0 || dup3(high[2], 5, O_CLOEXEC) < 0 ||
        dup3(high[3], 6, O_CLOEXEC) < 0)
        return -1;
    *init_at = 5;
    *report_at = 6;
    return guard(inherited) ? (int)syscall(SYS_close_range, 7u, ~0u, 0) : 0;
}

/*
 * It begins with the warden's own score, which is the lowest on the machine. While CAP_SYS_RESOURCE
 * is still there (mounts.c drops it), what is written is also the least that anybody inside can go
 * back to; without it, that would stay the warden's.
 */
static int oom_score(void)
{
    autoclose int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    return fd < 0 || write(fd, "300", 3) != 3 ? -1 : 0;
}

/*
 * It dies with a warden that dies, until it becomes init: the warden hears of that, and tells
 * others, when this is over, so that what was told of outlives it. The kernel
 * forgets this when it gets a user of its own, so it is said again then. Who died before
 * this was set has closed the other end of the report pipe; a parent outside of the own pid
 * namespace cannot be asked for by number.
 */
static int die_with_parent(int report)
{
    struct pollfd other_end = { .fd = report };

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || poll(&other_end, 1, 0) < 0)
        return -1;
    if (other_end.revents & POLLERR)
        _exit(1);
    return 0;
}

/* The report ends with us, however we end; without a word it would look as if we were init now. */
static int become_init(int init_fd, int report, char *const argv[])
{
    const struct box_report ready = { BOX_STEP_INIT, 0 };

    if (syscall(SYS_write, report, &ready, sizeof(ready)) != (long)sizeof(ready))
        return -1;
    return (int)syscall(SYS_execveat, init_fd, "", argv, guard_env(), AT_EMPTY_PATH);
}

static int enter_cgroups(const struct cgroup_doors *doors)
{
    for (unsigned i = 0; i < doors->count; i++)
        if (write(doors->tasks[i], "0", 1) != 1)
            return -1;
    return 0;
}

/*
 * After the mounts: what the kernel keeps for those is our doing, of a known size, and costs more
 * where it is counted. For each file system of which a memory cgroup has an object there are lists
 * of its own: 20 kB for those of a box.
 */
static int enter_memory(const struct cgroup_doors *doors)
{
    return doors->memory >= 0 && write(doors->memory, "0", 1) != 1 ? -1 : 0;
}

/* As the kernel has it: the C library keeps signals of its own out of sigaction. */
struct kernel_action {
    uint64_t handler, flags, restorer, mask;
};

uint64_t signals_ignored(void)
{
    uint64_t ignored = 0;

    for (int number = 1; number <= 64; number++) {
        struct kernel_action now = { 0 };

        if (syscall(SYS_rt_sigaction, number, NULL, &now, 8) == 0 &&
            now.handler == (uint64_t)(uintptr_t)SIG_IGN)
            ignored |= UINT64_C(1) << (number - 1);
    }
    return ignored;
}

/*
 * What the server was told to ignore (by nohup, or by a shell that put it into the background) is
 * not for commands: clone took handlers back, and leaves what is ignored.
 */
static void default_signals(uint64_t ignored)
{
    const struct kernel_action by_default = { 0 };

    for (; ignored; ignored &= ignored - 1)
        syscall(SYS_rt_sigaction, __builtin_ctzll(ignored) + 1, &by_default, NULL, 8);
}

int box_child(const struct box_host *host, const struct box_spec *spec, uint32_t slot,
              struct box_fds *fds, enum box_step *step)
{
    char name[sizeof(host->name)], id[BOX_ID_SIZE];
    char *const argv[] = { (char *)"atoll-init", name, id, NULL };
    int init_at = -1;

    memcpy(name, host->name, sizeof(name));
    memcpy(id, spec->id, sizeof(id));

    TRY(BOX_STEP_CLONE, die_with_parent(fds->report));
    TRY(BOX_STEP_ENTER_CGROUP, enter_cgroups(&fds->doors));
    TRY(BOX_STEP_OOM, oom_score());
    TRY(BOX_STEP_ENTER_NETNS, setns(fds->netns, CLONE_NEWNET));
    if (box_mounts_early(spec, fds, step) < 0)
        return -1;
    TRY(BOX_STEP_MOUNTNS, lean_enter(host->lean_fd));
    if (box_mounts(host, spec, fds, box_uid_first(host, slot), step) < 0)
        return -1;
    TRY(BOX_STEP_ENTER_CGROUP, enter_memory(&fds->doors));
    TRY(BOX_STEP_HOSTNAME, sethostname(spec->id, strlen(spec->id)));
    TRY(BOX_STEP_CGROUPNS, unshare(CLONE_NEWCGROUP));
    TRY(BOX_STEP_ENTER_USERNS, enter_userns(fds->userns, host->uids == 1));
    TRY(BOX_STEP_ENTER_USERNS, die_with_parent(fds->report));
    default_signals(host->ignored);
    TRY(BOX_STEP_STDIO,
        set_stdio(fds->listen, fds->link, host->init_fd, fds->report, &init_at, &fds->report));
    TRY(BOX_STEP_RLIMITS, set_limits(spec));
    TRY(BOX_STEP_CAPS, drop_caps(host->uids == 1 ? 0 : INIT_CAPS));
    umask(022);
    TRY(BOX_STEP_NNP, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    TRY(BOX_STEP_LANDLOCK, enter_landlock(host->landlock_abi, spec->profile == SECCOMP_NESTING));
    TRY(BOX_STEP_SECCOMP, seccomp_profile_load((enum seccomp_profile)spec->profile));
    TRY(BOX_STEP_RLIMITS, set_substitutes(spec, host->lost));
    TRY(BOX_STEP_INIT, prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0));
    TRY(BOX_STEP_INIT, become_init(init_at, fds->report, argv));
    return -1;
}
