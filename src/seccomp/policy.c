/*
 * The table behind policy.h. To decide a call: find its group, or make one that says why.
 *
 *   OK(name, x86-64, arm64)                       allowed
 *   IF(name, x86-64, arm64, TEST)                 as the test of its arguments says
 *   NO(name, x86-64, arm64, ERRNO)                refused
 *   NO_BUT(name, x86-64, arm64, ERRNO, PROFILE)   refused, but allowed in that profile
 *   IF_BUT(name, x86-64, arm64, TEST, PROFILE, OUTCOME)
 *
 * Which errno: EPERM says "not here". ENOSYS says "this kernel has no such thing" and is for calls
 * that callers probe: libc, libnuma, language runtimes then take their older way, where EPERM would
 * end them. Sockets answer what a kernel without the protocol does, because that too is probed: the
 * tools that add users give up on EPERM from an audit socket, and go on with EPROTONOSUPPORT.
 *
 * The agent and root profiles are the same list. What root inside may do more (chown, setuid, bind
 * below 1024…) is a matter of capabilities, which the kernel checks behind these calls.
 *
 * The numbers are here and not taken from the system's headers, so that the filter and its digest
 * do not depend on where it was built; policy_test.c holds them against the headers it finds.
 */
#include "seccomp/policy.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Newer than the oldest headers we build with. */
#define TEST_PR_SCHED_CORE 62
#define TEST_PR_SET_MEMORY_MERGE 67
#define CLONE_NEW_ANY                                                                              \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)
#define IOPRIO_CLASS(class) ((uint32_t)(class) << 13)

enum {
    TEST_IOCTL,
    TEST_FCNTL,
    TEST_MKNOD,
    TEST_MKNODAT,
    TEST_MKNOD_DEVICE,
    TEST_MKNODAT_DEVICE,
    TEST_CLONE,
    TEST_PRCTL,
    TEST_PERSONALITY,
    TEST_PERSONALITY_DEBUG,
    TEST_SCHEDULER,
    TEST_IOPRIO,
    TEST_IOPRIO_LEVEL,
    TEST_SOCKET,
    TEST_NETLINK_PROTOCOL,
    TEST_UNIX_TYPE,
    TEST_INET_TYPE,
    TEST_INET_PROTOCOL,
    TEST_SOCKOPT,
    TEST_SOCKOPT_TCP,
};

#define REFUSE VERDICT_ERRNO(EPERM)
#define IS(name, outcome)                                                                          \
    {                                                                                              \
        CASE_IS, (uint32_t)(name), outcome, #name                                                  \
    }
#define SOCK_TYPE_BITS (~(uint32_t)(SOCK_CLOEXEC | SOCK_NONBLOCK))

/* clang-format off */
static const struct seccomp_test tests[] = {
    [TEST_IOCTL] = { "ioctl: the request",
        "Typing into a terminal for whoever reads it, the console's own commands, and line "
        "disciplines: a door to rarely read drivers that any terminal opens.", 1, 0, {
        IS(TIOCSTI, REFUSE),
        IS(TIOCLINUX, REFUSE),
        IS(TIOCSETD, REFUSE),
    }, VERDICT_ALLOW },

    [TEST_FCNTL] = { "fcntl: the command",
        "Who has a lease on a file lets others wait that open it, up to 45 seconds and again: "
        "process 1 too, when it is to start that file.", 1, 0, {
        IS(F_SETLEASE, REFUSE),
    }, VERDICT_ALLOW },

    /* Character and block devices have the bit of S_IFCHR; files, FIFOs and sockets do not. */
    [TEST_MKNOD] = { "mknod: the kind of file",
        "A device node is a way to the device; the sandbox has all that it may use.", 1, 0, {
        { CASE_HAS, S_IFCHR, OUTCOME_TEST(TEST_MKNOD_DEVICE), "a device" },
    }, VERDICT_ALLOW },
    [TEST_MKNODAT] = { "mknodat: the kind of file", "As `mknod`.", 2, 0, {
        { CASE_HAS, S_IFCHR, OUTCOME_TEST(TEST_MKNODAT_DEVICE), "a device" },
    }, VERDICT_ALLOW },
    /* The kernel lets anybody make a character device 0:0 and nobody open one. */
    [TEST_MKNOD_DEVICE] = { "mknod: the device",
        "Device 0:0 is how overlayfs writes \"deleted\"; unpacking an image makes them.", 2, 0, {
        { CASE_IS, 0, VERDICT_ALLOW, "0:0" },
    }, REFUSE },
    [TEST_MKNODAT_DEVICE] = { "mknodat: the device", NULL, 3, 0, {
        { CASE_IS, 0, VERDICT_ALLOW, "0:0" },
    }, REFUSE },

    /* CLONE_NEWTIME shares its bit with the exit signal here; clone cannot ask for it. */
    [TEST_CLONE] = { "clone: the flags",
        "Processes and threads, but no new namespaces: see Namespaces above.", 0, 0, {
        { CASE_HAS, CLONE_NEW_ANY, REFUSE, "CLONE_NEWUSER, CLONE_NEWNS, any other new namespace" },
    }, VERDICT_ALLOW },

    /* What else prctl sets is a process's own affair or needs a capability, and libraries ask for
     * new options as they come; so these are named and the rest is let through. */
    [TEST_PRCTL] = { "prctl: the option",
        "Lying about one's own executable; forcing idle processor siblings on the host; sharing "
        "equal pages with neighbours, which tells what theirs hold.", 0, 0, {
        IS(PR_SET_MM, REFUSE),
        { CASE_IS, TEST_PR_SCHED_CORE, REFUSE, "PR_SCHED_CORE" },
        { CASE_IS, TEST_PR_SET_MEMORY_MERGE, REFUSE, "PR_SET_MEMORY_MERGE" },
    }, VERDICT_ALLOW },

    [TEST_PERSONALITY] = { "personality: the persona",
        "Its flags weaken a process: no randomised addresses, executable data.", 0, 0, {
        IS(PER_LINUX, VERDICT_ALLOW),
        { CASE_IS, 0xffffffff, VERDICT_ALLOW, "0xffffffff, which only asks" },
    }, REFUSE },
    [TEST_PERSONALITY_DEBUG] = { "personality: the persona (debug)",
        "Debuggers start programs at fixed addresses.", 0, 0, {
        IS(PER_LINUX, VERDICT_ALLOW),
        { CASE_IS, 0xffffffff, VERDICT_ALLOW, "0xffffffff, which only asks" },
        IS(ADDR_NO_RANDOMIZE, VERDICT_ALLOW),
    }, REFUSE },

    [TEST_SCHEDULER] = { "sched_setscheduler: the policy",
        "Real-time policies take the processor from everyone else.",
        1, ~(uint32_t)SCHED_RESET_ON_FORK, {
        { CASE_IS, SCHED_NORMAL, VERDICT_ALLOW, "SCHED_OTHER" },
        IS(SCHED_BATCH, VERDICT_ALLOW),
        IS(SCHED_IDLE, VERDICT_ALLOW),
    }, REFUSE },
    [TEST_IOPRIO] = { "ioprio_set: the class",
        "A sandbox may ask for less of the disk, not for more.", 2, IOPRIO_CLASS(7), {
        { CASE_IS, IOPRIO_CLASS(0), VERDICT_ALLOW, "none" },
        { CASE_IS, IOPRIO_CLASS(3), VERDICT_ALLOW, "idle" },
        { CASE_IS, IOPRIO_CLASS(2), OUTCOME_TEST(TEST_IOPRIO_LEVEL), "best effort" },
    }, REFUSE },
    [TEST_IOPRIO_LEVEL] = { "ioprio_set: the level within best effort", NULL, 2, 7, {
        { CASE_FROM, 4, VERDICT_ALLOW, "4 (the default) to 7 (the lowest)" },
    }, REFUSE },

    [TEST_SOCKET] = { "socket, socketpair: the family",
        "Most of the kernel's holes of a decade were in the families that nearly nothing uses "
        "(AF_ALG, AF_PACKET, AF_VSOCK, AF_RXRPC…). AF_VSOCK also reaches the machine's own "
        "hypervisor, past every network namespace.", 0, 0, {
        IS(AF_UNIX, OUTCOME_TEST(TEST_UNIX_TYPE)),
        IS(AF_INET, OUTCOME_TEST(TEST_INET_TYPE)),
        IS(AF_INET6, OUTCOME_TEST(TEST_INET_TYPE)),
        IS(AF_NETLINK, OUTCOME_TEST(TEST_NETLINK_PROTOCOL)),
    }, VERDICT_ERRNO(EAFNOSUPPORT) },
    [TEST_NETLINK_PROTOCOL] = { "AF_NETLINK: the protocol",
        "Listing addresses and routes; not audit, netfilter, xfrm or kernel events.", 2, 0, {
        { CASE_IS, 0, VERDICT_ALLOW, "NETLINK_ROUTE" },
    }, VERDICT_ERRNO(EPROTONOSUPPORT) },
    [TEST_UNIX_TYPE] = { "AF_UNIX: the type", NULL, 1, SOCK_TYPE_BITS, {
        IS(SOCK_STREAM, VERDICT_ALLOW),
        IS(SOCK_DGRAM, VERDICT_ALLOW),
        IS(SOCK_SEQPACKET, VERDICT_ALLOW),
    }, REFUSE },
    [TEST_INET_TYPE] = { "AF_INET, AF_INET6: the type", "No raw packets.", 1, SOCK_TYPE_BITS, {
        IS(SOCK_STREAM, OUTCOME_TEST(TEST_INET_PROTOCOL)),
        IS(SOCK_DGRAM, OUTCOME_TEST(TEST_INET_PROTOCOL)),
    }, REFUSE },
    [TEST_INET_PROTOCOL] = { "AF_INET, AF_INET6: the protocol",
        "TCP is 6, UDP 17; above are UDP-Lite, SCTP, L2TP, MPTCP (262).", 2, 0, {
        { CASE_FROM, IPPROTO_UDP + 1, VERDICT_ERRNO(EPROTONOSUPPORT), "18 and above" },
    }, VERDICT_ALLOW },

    [TEST_SOCKOPT] = { "setsockopt: the level",
        "Upper layer protocols put more of the kernel on a TCP connection: TLS and relatives, a "
        "yearly source of holes.", 1, 0, {
        { CASE_IS, IPPROTO_TCP, OUTCOME_TEST(TEST_SOCKOPT_TCP), "SOL_TCP" },
    }, VERDICT_ALLOW },
    [TEST_SOCKOPT_TCP] = { "setsockopt on SOL_TCP: the option", NULL, 2, 0, {
        IS(TCP_ULP, VERDICT_ERRNO(ENOPROTOOPT)),
    }, VERDICT_ALLOW },
};

#define NONE (-1)
#define GROUP(title, why) { title, { NONE, NONE }, 0, why, 0, 0 }
#define OK(name, x, a) { #name, { x, a }, VERDICT_ALLOW, NULL, 0, 0 }
#define NO(name, x, a, number) { #name, { x, a }, VERDICT_ERRNO(number), NULL, 0, 0 }
#define IF(name, x, a, test) { #name, { x, a }, OUTCOME_TEST(test), NULL, 0, 0 }
#define NO_BUT(name, x, a, number, in) \
    { #name, { x, a }, VERDICT_ERRNO(number), NULL, SECCOMP_##in, VERDICT_ALLOW }
#define IF_BUT(name, x, a, test, in, but) \
    { #name, { x, a }, OUTCOME_TEST(test), NULL, SECCOMP_##in, but }

static const struct seccomp_line lines[] = {
    GROUP("Bytes and descriptors",
          "Reading, writing and passing descriptors on: the kernel checks each descriptor."),
    OK(read, 0, 63),
    OK(write, 1, 64),
    OK(readv, 19, 65),
    OK(writev, 20, 66),
    OK(pread64, 17, 67),
    OK(pwrite64, 18, 68),
    OK(preadv, 295, 69),
    OK(pwritev, 296, 70),
    OK(preadv2, 327, 286),
    OK(pwritev2, 328, 287),
    OK(lseek, 8, 62),
    OK(close, 3, 57),
    OK(close_range, 436, 436),
    OK(dup, 32, 23),
    OK(dup2, 33, NONE),
    OK(dup3, 292, 24),
    IF(fcntl, 72, 25, TEST_FCNTL),
    OK(pipe, 22, NONE),
    OK(pipe2, 293, 59),
    OK(sendfile, 40, 71),
    OK(copy_file_range, 326, 285),
    OK(splice, 275, 76),
    OK(tee, 276, 77),
    OK(vmsplice, 278, 75),
    OK(fsync, 74, 82),
    OK(fdatasync, 75, 83),
    OK(sync, 162, 81),
    OK(syncfs, 306, 267),
    OK(sync_file_range, 277, 84),
    OK(readahead, 187, 213),
    OK(fadvise64, 221, 223),
    OK(fallocate, 285, 47),
    OK(truncate, 76, 45),
    OK(ftruncate, 77, 46),
    OK(flock, 73, 32),
    IF(ioctl, 16, 29, TEST_IOCTL),

    GROUP("Files by name",
          "Who may touch which file is said by mounts, owners and Landlock, not by this "
          "list."),
    OK(open, 2, NONE),
    OK(openat, 257, 56),
    OK(openat2, 437, 437),
    OK(creat, 85, NONE),
    OK(access, 21, NONE),
    OK(faccessat, 269, 48),
    OK(faccessat2, 439, 439),
    OK(stat, 4, NONE),
    OK(lstat, 6, NONE),
    OK(fstat, 5, 80),
    OK(newfstatat, 262, 79),
    OK(statx, 332, 291),
    OK(statfs, 137, 43),
    OK(fstatfs, 138, 44),
    OK(getdents, 78, NONE),
    OK(getdents64, 217, 61),
    OK(getcwd, 79, 17),
    OK(chdir, 80, 49),
    OK(fchdir, 81, 50),
    OK(mkdir, 83, NONE),
    OK(mkdirat, 258, 34),
    OK(rmdir, 84, NONE),
    OK(rename, 82, NONE),
    OK(renameat, 264, 38),
    OK(renameat2, 316, 276),
    OK(link, 86, NONE),
    OK(linkat, 265, 37),
    OK(unlink, 87, NONE),
    OK(unlinkat, 263, 35),
    OK(symlink, 88, NONE),
    OK(symlinkat, 266, 36),
    OK(readlink, 89, NONE),
    OK(readlinkat, 267, 78),
    OK(umask, 95, 166),
    OK(chmod, 90, NONE),
    OK(fchmod, 91, 52),
    OK(fchmodat, 268, 53),
    OK(fchmodat2, 452, 452),
    OK(chown, 92, NONE),
    OK(fchown, 93, 55),
    OK(lchown, 94, NONE),
    OK(fchownat, 260, 54),
    OK(utime, 132, NONE),
    OK(utimes, 235, NONE),
    OK(futimesat, 261, NONE),
    OK(utimensat, 280, 88),
    OK(setxattr, 188, 5),
    OK(lsetxattr, 189, 6),
    OK(fsetxattr, 190, 7),
    OK(setxattrat, 463, 463),
    OK(getxattr, 191, 8),
    OK(lgetxattr, 192, 9),
    OK(fgetxattr, 193, 10),
    OK(getxattrat, 464, 464),
    OK(listxattr, 194, 11),
    OK(llistxattr, 195, 12),
    OK(flistxattr, 196, 13),
    OK(listxattrat, 465, 465),
    OK(removexattr, 197, 14),
    OK(lremovexattr, 198, 15),
    OK(fremovexattr, 199, 16),
    OK(removexattrat, 466, 466),
    OK(name_to_handle_at, 303, 264),
    OK(inotify_init, 253, NONE),
    OK(inotify_init1, 294, 26),
    OK(inotify_add_watch, 254, 27),
    OK(inotify_rm_watch, 255, 28),
    IF(mknod, 133, NONE, TEST_MKNOD),
    IF(mknodat, 259, 33, TEST_MKNODAT),

    GROUP("Waiting",
          "Event loops of every language."),
    OK(poll, 7, NONE),
    OK(ppoll, 271, 73),
    OK(select, 23, NONE),
    OK(pselect6, 270, 72),
    OK(epoll_create, 213, NONE),
    OK(epoll_create1, 291, 20),
    OK(epoll_ctl, 233, 21),
    OK(epoll_wait, 232, NONE),
    OK(epoll_pwait, 281, 22),
    OK(epoll_pwait2, 441, 441),
    OK(eventfd, 284, NONE),
    OK(eventfd2, 290, 19),
    OK(signalfd, 282, NONE),
    OK(signalfd4, 289, 74),
    OK(timerfd_create, 283, 85),
    OK(timerfd_settime, 286, 86),
    OK(timerfd_gettime, 287, 87),
    OK(io_setup, 206, 0),
    OK(io_destroy, 207, 1),
    OK(io_submit, 209, 2),
    OK(io_cancel, 210, 3),
    OK(io_getevents, 208, 4),
    OK(io_pgetevents, 333, 292),

    GROUP("Memory",
          "A process arranges its own address space; RLIMIT_MEMLOCK and the cgroup bound "
          "it."),
    OK(mmap, 9, 222),
    OK(mprotect, 10, 226),
    OK(munmap, 11, 215),
    OK(mremap, 25, 216),
    OK(brk, 12, 214),
    OK(madvise, 28, 233),
    OK(msync, 26, 227),
    OK(mincore, 27, 232),
    OK(mlock, 149, 228),
    OK(mlock2, 325, 284),
    OK(munlock, 150, 229),
    OK(mlockall, 151, 230),
    OK(munlockall, 152, 231),
    OK(pkey_mprotect, 329, 288),
    OK(pkey_alloc, 330, 289),
    OK(pkey_free, 331, 290),
    OK(membarrier, 324, 283),
    OK(memfd_create, 319, 279),
    OK(mseal, 462, 462),
    OK(map_shadow_stack, 453, 453),

    GROUP("Processes and threads",
          "Own processes only: the pid namespace has no others."),
    IF_BUT(clone, 56, 220, TEST_CLONE, NESTING, VERDICT_ALLOW),
    OK(fork, 57, NONE),
    OK(vfork, 58, NONE),
    OK(execve, 59, 221),
    OK(execveat, 322, 281),
    OK(exit, 60, 93),
    OK(exit_group, 231, 94),
    OK(wait4, 61, 260),
    OK(waitid, 247, 95),
    OK(kill, 62, 129),
    OK(tkill, 200, 130),
    OK(tgkill, 234, 131),
    OK(pidfd_open, 434, 434),
    OK(pidfd_send_signal, 424, 424),
    OK(rt_sigqueueinfo, 129, 138),
    OK(rt_tgsigqueueinfo, 297, 240),
    OK(rt_sigaction, 13, 134),
    OK(rt_sigprocmask, 14, 135),
    OK(rt_sigreturn, 15, 139),
    OK(rt_sigpending, 127, 136),
    OK(rt_sigtimedwait, 128, 137),
    OK(rt_sigsuspend, 130, 133),
    OK(sigaltstack, 131, 132),
    OK(pause, 34, NONE),
    OK(restart_syscall, 219, 128),
    OK(futex, 202, 98),
    OK(futex_waitv, 449, 449),
    OK(set_robust_list, 273, 99),
    OK(get_robust_list, 274, 100),
    OK(set_tid_address, 218, 96),
    OK(rseq, 334, 293),
    OK(getpid, 39, 172),
    OK(getppid, 110, 173),
    OK(gettid, 186, 178),
    OK(getpgid, 121, 155),
    OK(setpgid, 109, 154),
    OK(getpgrp, 111, NONE),
    OK(getsid, 124, 156),
    OK(setsid, 112, 157),
    OK(getrlimit, 97, 163),
    OK(setrlimit, 160, 164),
    OK(prlimit64, 302, 261),
    OK(getrusage, 98, 165),
    OK(times, 100, 153),
    OK(sysinfo, 99, 179),
    OK(uname, 63, 160),
    OK(getcpu, 309, 168),
    OK(getrandom, 318, 278),
    OK(arch_prctl, 158, NONE),
    IF(prctl, 157, 167, TEST_PRCTL),
    IF_BUT(personality, 135, 92, TEST_PERSONALITY, DEBUG, OUTCOME_TEST(TEST_PERSONALITY_DEBUG)),

    GROUP("Who one is",
          "The user namespace decides which ids exist; without a capability these only go "
          "down."),
    OK(getuid, 102, 174),
    OK(geteuid, 107, 175),
    OK(getgid, 104, 176),
    OK(getegid, 108, 177),
    OK(getresuid, 118, 148),
    OK(getresgid, 120, 150),
    OK(getgroups, 115, 158),
    OK(setuid, 105, 146),
    OK(setgid, 106, 144),
    OK(setreuid, 113, 145),
    OK(setregid, 114, 143),
    OK(setresuid, 117, 147),
    OK(setresgid, 119, 149),
    OK(setfsuid, 122, 151),
    OK(setfsgid, 123, 152),
    OK(setgroups, 116, 159),
    OK(capget, 125, 90),
    OK(capset, 126, 91),

    GROUP("Filters of one's own",
          "They only ever take away: browsers and sshd confine their parts with them."),
    OK(seccomp, 317, 277),
    OK(landlock_create_ruleset, 444, 444),
    OK(landlock_add_rule, 445, 445),
    OK(landlock_restrict_self, 446, 446),

    GROUP("Scheduling",
          "Being nicer is fine; real-time classes and raised I/O priority would starve the "
          "host."),
    OK(sched_yield, 24, 124),
    OK(getpriority, 140, 141),
    OK(setpriority, 141, 140),
    OK(sched_getaffinity, 204, 123),
    OK(sched_setaffinity, 203, 122),
    OK(sched_getparam, 143, 121),
    OK(sched_setparam, 142, 118),
    OK(sched_getscheduler, 145, 120),
    OK(sched_getattr, 315, 275),
    OK(sched_get_priority_max, 146, 125),
    OK(sched_get_priority_min, 147, 126),
    OK(sched_rr_get_interval, 148, 127),
    OK(ioprio_get, 252, 31),
    IF(sched_setscheduler, 144, 119, TEST_SCHEDULER),
    IF(ioprio_set, 251, 30, TEST_IOPRIO),
    NO(sched_setattr, 314, 274, EPERM),

    GROUP("Clocks and timers",
          "Reading time and being woken."),
    OK(time, 201, NONE),
    OK(gettimeofday, 96, 169),
    OK(clock_gettime, 228, 113),
    OK(clock_getres, 229, 114),
    OK(nanosleep, 35, 101),
    OK(clock_nanosleep, 230, 115),
    OK(alarm, 37, NONE),
    OK(getitimer, 36, 102),
    OK(setitimer, 38, 103),
    OK(timer_create, 222, 107),
    OK(timer_settime, 223, 110),
    OK(timer_gettime, 224, 108),
    OK(timer_getoverrun, 225, 109),
    OK(timer_delete, 226, 111),

    GROUP("Sockets",
          "Only the families that programs use: most of a decade's kernel holes were in the "
          "others."),
    IF(socket, 41, 198, TEST_SOCKET),
    IF(socketpair, 53, 199, TEST_SOCKET),
    IF(setsockopt, 54, 208, TEST_SOCKOPT),
    OK(getsockopt, 55, 209),
    OK(bind, 49, 200),
    OK(listen, 50, 201),
    OK(accept, 43, 202),
    OK(accept4, 288, 242),
    OK(connect, 42, 203),
    OK(shutdown, 48, 210),
    OK(getsockname, 51, 204),
    OK(getpeername, 52, 205),
    OK(sendto, 44, 206),
    OK(recvfrom, 45, 207),
    OK(sendmsg, 46, 211),
    OK(recvmsg, 47, 212),
    OK(sendmmsg, 307, 269),
    OK(recvmmsg, 299, 243),

    GROUP("System V and POSIX queues",
          "The sandbox has its own IPC namespace."),
    OK(shmget, 29, 194),
    OK(shmat, 30, 196),
    OK(shmctl, 31, 195),
    OK(shmdt, 67, 197),
    OK(semget, 64, 190),
    OK(semop, 65, 193),
    OK(semtimedop, 220, 192),
    OK(semctl, 66, 191),
    OK(msgget, 68, 186),
    OK(msgsnd, 69, 189),
    OK(msgrcv, 70, 188),
    OK(msgctl, 71, 187),
    OK(mq_open, 240, 180),
    OK(mq_unlink, 241, 181),
    OK(mq_timedsend, 242, 182),
    OK(mq_timedreceive, 243, 183),
    OK(mq_notify, 244, 184),
    OK(mq_getsetattr, 245, 185),

    GROUP("Namespaces",
          "A fresh user namespace gives capabilities over bug-rich code. clone3 hides its "
          "flags in memory, where no filter can look."),
    NO(clone3, 435, 435, ENOSYS),
    NO_BUT(unshare, 272, 97, EPERM, NESTING),
    NO_BUT(setns, 308, 268, EPERM, NESTING),
    NO_BUT(sethostname, 170, 161, EPERM, NESTING),
    NO_BUT(setdomainname, 171, 162, EPERM, NESTING),

    GROUP("Mounts",
          "The sandbox's file tree is made outside; mounting is the way to cgroup and "
          "overlay escapes."),
    NO_BUT(mount, 165, 40, EPERM, NESTING),
    NO_BUT(umount2, 166, 39, EPERM, NESTING),
    NO_BUT(pivot_root, 155, 41, EPERM, NESTING),
    NO_BUT(chroot, 161, 51, EPERM, NESTING),
    NO_BUT(mount_setattr, 442, 442, EPERM, NESTING),
    NO_BUT(open_tree, 428, 428, EPERM, NESTING),
    NO_BUT(open_tree_attr, 467, 467, EPERM, NESTING),
    NO_BUT(move_mount, 429, 429, EPERM, NESTING),
    NO_BUT(fsopen, 430, 430, EPERM, NESTING),
    NO_BUT(fsconfig, 431, 431, EPERM, NESTING),
    NO_BUT(fsmount, 432, 432, EPERM, NESTING),
    NO_BUT(fspick, 433, 433, EPERM, NESTING),

    GROUP("Other processes' memory and descriptors",
          "The way into a neighbour with other rights."),
    NO_BUT(ptrace, 101, 117, EPERM, DEBUG),
    NO_BUT(process_vm_readv, 310, 270, EPERM, DEBUG),
    NO_BUT(process_vm_writev, 311, 271, EPERM, DEBUG),
    NO(pidfd_getfd, 438, 438, EPERM),
    NO(kcmp, 312, 272, EPERM),
    NO(process_madvise, 440, 440, ENOSYS),
    NO(process_mrelease, 448, 448, ENOSYS),

    GROUP("Asynchronous rings",
          "Their operations pass by every filter, and they have the worst record of all."),
    NO(io_uring_setup, 425, 425, ENOSYS),
    NO(io_uring_enter, 426, 426, ENOSYS),
    NO(io_uring_register, 427, 427, ENOSYS),

    GROUP("Programs and counters in the kernel",
          "Verifiers, sampling and fault handling are favourite tools of exploits."),
    NO(bpf, 321, 280, EPERM),
    NO(perf_event_open, 298, 241, EPERM),
    NO(userfaultfd, 323, 282, EPERM),

    GROUP("Trampolines of the kernel's own",
          "Only code that the kernel itself put into a process calls these. Newer kernels let them "
          "pass whatever a filter says, and end a process that calls one by itself."),
    NO(uretprobe, 335, NONE, ENOSYS),
    NO(uprobe, 336, NONE, ENOSYS),

    GROUP("Keyrings",
          "Kernel keys are shared by uid and are not in any namespace."),
    NO(add_key, 248, 217, ENOSYS),
    NO(request_key, 249, 218, ENOSYS),
    NO(keyctl, 250, 219, ENOSYS),

    GROUP("Files past their names",
          "Handles and mount-wide watches reach files outside every path check."),
    NO(open_by_handle_at, 304, 265, EPERM),
    NO(fanotify_init, 300, 262, EPERM),
    NO(fanotify_mark, 301, 263, EPERM),

    GROUP("The machine",
          "Belongs to the host: its kernel, power, clocks, swap, accounting, quotas, log, "
          "ports and terminals."),
    NO(kexec_load, 246, 104, EPERM),
    NO(kexec_file_load, 320, 294, EPERM),
    NO(init_module, 175, 105, EPERM),
    NO(finit_module, 313, 273, EPERM),
    NO(delete_module, 176, 106, EPERM),
    NO(reboot, 169, 142, EPERM),
    NO(settimeofday, 164, 170, EPERM),
    NO(clock_settime, 227, 112, EPERM),
    NO(adjtimex, 159, 171, EPERM),
    NO(clock_adjtime, 305, 266, EPERM),
    NO(swapon, 167, 224, EPERM),
    NO(swapoff, 168, 225, EPERM),
    NO(acct, 163, 89, EPERM),
    NO(quotactl, 179, 60, EPERM),
    NO(quotactl_fd, 443, 443, EPERM),
    NO(syslog, 103, 116, EPERM),
    NO(iopl, 172, NONE, EPERM),
    NO(ioperm, 173, NONE, EPERM),
    NO(vhangup, 153, 58, EPERM),

    GROUP("Placement of memory",
          "Moves pages of whole machines about; libnuma then sees one node."),
    NO(mbind, 237, 235, ENOSYS),
    NO(set_mempolicy, 238, 237, ENOSYS),
    NO(get_mempolicy, 239, 236, ENOSYS),
    NO(set_mempolicy_home_node, 450, 450, ENOSYS),
    NO(migrate_pages, 256, 238, ENOSYS),
    NO(move_pages, 279, 239, ENOSYS),

    GROUP("Rare, risky, with a fallback",
          "No program needs them, each has had holes or tells of neighbours."),
    NO(modify_ldt, 154, NONE, ENOSYS),
    NO(remap_file_pages, 216, 234, ENOSYS),
    NO(memfd_secret, 447, 447, ENOSYS),
    NO(cachestat, 451, 451, ENOSYS),
    NO(futex_wake, 454, 454, ENOSYS),
    NO(futex_wait, 455, 455, ENOSYS),
    NO(futex_requeue, 456, 456, ENOSYS),
    NO(statmount, 457, 457, ENOSYS),
    NO(listmount, 458, 458, ENOSYS),
    NO(file_getattr, 468, 468, ENOSYS),
    NO(file_setattr, 469, 469, ENOSYS),
    NO(lsm_get_self_attr, 459, 459, ENOSYS),
    NO(lsm_set_self_attr, 460, 460, ENOSYS),
    NO(lsm_list_modules, 461, 461, ENOSYS),

    GROUP("Gone from Linux, or never there",
          "Answered as the kernel itself does."),
    NO(uselib, 134, NONE, ENOSYS),
    NO(ustat, 136, NONE, ENOSYS),
    NO(sysfs, 139, NONE, ENOSYS),
    NO(_sysctl, 156, NONE, ENOSYS),
    NO(create_module, 174, NONE, ENOSYS),
    NO(get_kernel_syms, 177, NONE, ENOSYS),
    NO(query_module, 178, NONE, ENOSYS),
    NO(nfsservctl, 180, 42, ENOSYS),
    NO(getpmsg, 181, NONE, ENOSYS),
    NO(putpmsg, 182, NONE, ENOSYS),
    NO(afs_syscall, 183, NONE, ENOSYS),
    NO(tuxcall, 184, NONE, ENOSYS),
    NO(security, 185, NONE, ENOSYS),
    NO(set_thread_area, 205, NONE, ENOSYS),
    NO(get_thread_area, 211, NONE, ENOSYS),
    NO(lookup_dcookie, 212, 18, ENOSYS),
    NO(epoll_ctl_old, 214, NONE, ENOSYS),
    NO(epoll_wait_old, 215, NONE, ENOSYS),
    NO(vserver, 236, NONE, ENOSYS),
};
/* clang-format on */

const struct seccomp_policy seccomp_policy = {
    .lines = lines,
    .line_count = ARRAY_LEN(lines),
    .tests = tests,
    .test_count = ARRAY_LEN(tests),
    .unknown = VERDICT_ERRNO(ENOSYS),
    .foreign = VERDICT_KILL,
    .x32 = VERDICT_KILL,
};
