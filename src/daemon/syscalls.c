/*
 * The seccomp layer: a list of what each process may ask of the kernel. Everything else kills
 * it: a call outside the list means that somebody else is driving.
 *
 * Left out on purpose: execve and fork (nothing is ever started), socket, connect and bind (its
 * sockets were made by `atoll serve`), kill and ptrace, anything that changes who it is, mappings
 * that can be executed (all code is loaded before the jail). clone3 hides its flags behind a
 * pointer that a filter cannot follow, so it does not exist here and libc falls back to clone,
 * which must make a thread. ioctl answers as if nothing were a terminal.
 *
 * The egress process has no threads and no files: to open one is refused, not deadly, because the C
 * library tries it for its own purposes. It may make sockets of two families, pipes, and connect.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <seccomp.h>

#include "daemon/jail.h"

/* clang-format off */
static const int allowed[] = {
    /* bytes in and out */
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(pread64),
    SCMP_SYS(pwrite64), SCMP_SYS(preadv), SCMP_SYS(pwritev), SCMP_SYS(close), SCMP_SYS(lseek),
    SCMP_SYS(fcntl),
    /* files below the data directory; Landlock says which */
    SCMP_SYS(openat), SCMP_SYS(openat2), SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(statx),
    SCMP_SYS(fstatfs),
    SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(faccessat2),
    SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getcwd), SCMP_SYS(unlink),
    SCMP_SYS(unlinkat), SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2),
    SCMP_SYS(getdents64), SCMP_SYS(ftruncate), SCMP_SYS(fallocate), SCMP_SYS(fsync),
    SCMP_SYS(fdatasync), SCMP_SYS(fadvise64), SCMP_SYS(fchmod), SCMP_SYS(umask), SCMP_SYS(flock),
    SCMP_SYS(mkdir), SCMP_SYS(mkdirat), SCMP_SYS(rmdir),
    /* connections that were accepted, and the link */
    SCMP_SYS(accept4), SCMP_SYS(recvfrom), SCMP_SYS(recvmsg), SCMP_SYS(sendto), SCMP_SYS(sendmsg),
    SCMP_SYS(shutdown), SCMP_SYS(getsockopt), SCMP_SYS(setsockopt), SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    /* waiting */
    SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_pwait2), SCMP_SYS(eventfd2), SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(futex),
    SCMP_SYS(nanosleep), SCMP_SYS(clock_nanosleep), SCMP_SYS(restart_syscall),
    SCMP_SYS(sched_yield),
    /* memory */
    SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
    /* threads, signals to oneself, the end */
    SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(sched_getaffinity), SCMP_SYS(gettid),
    SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack),
    SCMP_SYS(exit), SCMP_SYS(exit_group),
    /* time, chance, what one is */
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(gettimeofday), SCMP_SYS(time),
    SCMP_SYS(getrandom), SCMP_SYS(getpid), SCMP_SYS(getppid), SCMP_SYS(getuid), SCMP_SYS(geteuid),
    SCMP_SYS(getgid), SCMP_SYS(getegid), SCMP_SYS(getrusage), SCMP_SYS(sysinfo), SCMP_SYS(uname),
    SCMP_SYS(getcpu),
};

static const int egress_allowed[] = {
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(close),
    SCMP_SYS(fcntl), SCMP_SYS(splice), SCMP_SYS(pipe2),
    SCMP_SYS(accept4), SCMP_SYS(connect), SCMP_SYS(recvfrom), SCMP_SYS(recvmsg), SCMP_SYS(sendto),
    SCMP_SYS(sendmsg), SCMP_SYS(sendmmsg), SCMP_SYS(shutdown), SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt), SCMP_SYS(getsockname), SCMP_SYS(getpeername),
    SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait), SCMP_SYS(futex),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
    SCMP_SYS(gettid), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack), SCMP_SYS(exit), SCMP_SYS(exit_group),
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(gettimeofday), SCMP_SYS(time),
    SCMP_SYS(getrandom), SCMP_SYS(getpid),
};
/* clang-format on */

/* A call with a condition on one argument. */
static const struct limited {
    int call;
    unsigned arg;
    uint64_t mask, value;
} limited[] = {
    { SCMP_SYS(mmap), 2, PROT_EXEC, 0 },
    { SCMP_SYS(mprotect), 2, PROT_EXEC, 0 },
    /* memory that can be sealed: long arguments for a sandbox */
    { SCMP_SYS(memfd_create), 1, UINT32_MAX, MFD_CLOEXEC | MFD_ALLOW_SEALING },
    { SCMP_SYS(prctl), 0, UINT32_MAX, PR_SET_NAME },
    /* a stream for the bytes of a file operation (box/side.c); it reaches nobody by itself */
    { SCMP_SYS(socketpair), 0, UINT64_MAX, AF_UNIX },
    { SCMP_SYS(prlimit64), 2, UINT64_MAX, 0 }, /* reading limits, not setting them */
    /* a thread, in no new namespace */
    { SCMP_SYS(clone), 0,
      CLONE_THREAD | CLONE_VM | CLONE_SIGHAND | CLONE_PTRACE | CLONE_NEWUSER | CLONE_NEWPID |
          CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
      CLONE_THREAD | CLONE_VM | CLONE_SIGHAND },
};

static const struct limited egress_limited[] = {
    { SCMP_SYS(mmap), 2, PROT_EXEC, 0 },
    { SCMP_SYS(mprotect), 2, PROT_EXEC, 0 },
    { SCMP_SYS(socket), 0, UINT64_MAX, AF_INET },
    { SCMP_SYS(socket), 0, UINT64_MAX, AF_INET6 },
};

static const struct refused {
    int call, error;
} refused[] = {
    { SCMP_SYS(clone3), ENOSYS },
    { SCMP_SYS(ioctl), ENOTTY },
    { SCMP_SYS(fchown), EPERM }, /* SQLite tries it as uid 0: an ordinary user's in a namespace */
};

static const struct refused egress_refused[] = {
    { SCMP_SYS(ioctl), ENOTTY },
    { SCMP_SYS(openat), EACCES },
    { SCMP_SYS(open), EACCES },
};

/* What one process may do. */
static const struct list {
    const int *allowed;
    size_t allowed_count;
    const struct limited *limited;
    size_t limited_count;
    const struct refused *refused;
    size_t refused_count;
} of_api = { allowed, ARRAY_LEN(allowed), limited, ARRAY_LEN(limited), refused,
             ARRAY_LEN(refused), },
  of_egress = { egress_allowed, ARRAY_LEN(egress_allowed),
                egress_limited, ARRAY_LEN(egress_limited),
                egress_refused, ARRAY_LEN(egress_refused) };

static int add_rules(scmp_filter_ctx filter, const struct list *list)
{
    int rc = 0;

    for (size_t i = 0; i < list->allowed_count && rc == 0; i++)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, list->allowed[i], 0);
    for (size_t i = 0; i < list->limited_count && rc == 0; i++) {
        const struct limited *one = &list->limited[i];

        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, one->call, 1,
                              SCMP_CMP(one->arg, SCMP_CMP_MASKED_EQ, one->mask, one->value));
    }
    for (size_t i = 0; i < list->refused_count && rc == 0; i++)
        rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)list->refused[i].error),
                              list->refused[i].call, 0);
    /* abort() and raise() signal the own process; nobody else's. */
    if (rc == 0)
        rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                              SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
    return rc;
}

static int load(scmp_filter_ctx filter, const struct list *list)
{
    int rc = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

    if (rc == 0)
        rc = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (rc == 0)
        rc = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree instead of a line */
    if (rc == 0)
        rc = add_rules(filter, list);
    return rc == 0 ? seccomp_load(filter) : rc;
}

int jail_seccomp(const struct jail *jail, struct err *err)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_KILL_PROCESS);

    if (!filter)
        return err_set(err, ERR_INTERNAL, "make a seccomp filter");
    /* Logged where the kernel can; a kernel that cannot still kills. */
    (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_LOG, 1);
    int rc = load(filter, jail->egress ? &of_egress : &of_api);
    seccomp_release(filter);
    if (rc < 0)
        return err_set(err, ERR_UNSUPPORTED, "load the seccomp filter: %s", strerrordesc_np(-rc));
    return 0;
}
