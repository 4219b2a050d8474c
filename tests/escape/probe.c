/*
 * Run inside a sandbox: tries what must be refused there, one line each, "held NAME" or
 * "BROKEN NAME what happened". It looks and asks; nothing here does harm where it is let through.
 * Static, so that it needs nothing of the image.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <mqueue.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static char why[256];

static int bad(const char *text, long number)
{
    snprintf(why, sizeof(why), "%s %ld", text, number);
    return 1;
}

/* A refusal is one of these; anything else was let through to the code behind. */
static int refused(long rc)
{
    if (rc < 0 && (errno == EPERM || errno == EACCES || errno == EROFS || errno == ENOSYS))
        return 0;
    return rc < 0 ? bad("errno", errno) : bad("worked:", rc);
}

static int refused_as(long rc, int error)
{
    return rc < 0 && errno == error ? 0 : bad("not the refusal meant: errno", rc < 0 ? errno : 0);
}

static int reads(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, out, size - 1);

    out[got < 0 ? 0 : got] = 0;
    if (fd >= 0)
        close(fd);
    return (int)got;
}

/* ---- namespaces and mounts ---- */

static int unshare_user(void)
{
    return refused(unshare(CLONE_NEWUSER));
}
static int unshare_mount(void)
{
    return refused(unshare(CLONE_NEWNS));
}
static int unshare_net(void)
{
    return refused(unshare(CLONE_NEWNET));
}
static int clone_user(void)
{
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);

    if (pid == 0)
        _exit(0);
    return refused(pid);
}
static int clone3_hidden(void)
{
    struct clone_args args = { .exit_signal = SIGCHLD };
    long pid = syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0)
        _exit(0);
    return refused_as(pid, ENOSYS);
}
static int setns_own(void)
{
    int fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);

    return refused(setns(fd, CLONE_NEWUTS));
}
static int mount_tmpfs(void)
{
    return refused(mount("x", "/tmp", "tmpfs", 0, NULL));
}
static int mount_cgroup(void)
{
    return refused(mount("x", "/tmp", "cgroup", 0, "memory"));
}
static int mount_bind(void)
{
    return refused(mount("/usr", "/tmp", NULL, MS_BIND, NULL));
}
static int remount_usr(void)
{
    return refused(mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL));
}
static int umount_proc(void)
{
    return refused(umount2("/proc/sys", MNT_DETACH));
}
static int fsopen_tmpfs(void)
{
    return refused(syscall(SYS_fsopen, "tmpfs", 0));
}
static int open_tree_root(void)
{
    return refused(syscall(SYS_open_tree, AT_FDCWD, "/", 1));
}
static int pivot(void)
{
    return refused(syscall(SYS_pivot_root, "/", "/"));
}
static int chroot_tmp(void)
{
    return refused(chroot("/tmp"));
}
static int set_hostname(void)
{
    return refused(sethostname("evil", 4));
}

/* ---- system calls that reach far ---- */

#define CALL(name, ...)                                                                            \
    static int name(void)                                                                          \
    {                                                                                              \
        return refused(syscall(__VA_ARGS__));                                                      \
    }
CALL(bpf_map, SYS_bpf, 0, NULL, 0)
CALL(perf_open, SYS_perf_event_open, NULL, 0, -1, -1, 0)
CALL(userfault, SYS_userfaultfd, 0)
CALL(add_a_key, SYS_add_key, "user", "atoll-probe", "x", 1, -3)
CALL(keyctl_get, SYS_keyctl, 0, -3, 0)
CALL(request_a_key, SYS_request_key, "user", "atoll-probe", NULL, 0)
CALL(load_module, SYS_init_module, NULL, 0, "")
CALL(load_module_fd, SYS_finit_module, -1, "", 0)
CALL(kexec, SYS_kexec_load, 0, 17, NULL, 0) /* one more than may be */
CALL(reboot_machine, SYS_reboot, 0, 0, 0, NULL)
CALL(swap_on, SYS_swapon, "/dev/null", 0)
CALL(accounting, SYS_acct, "/none/such")
CALL(quota, SYS_quotactl, 0, NULL, 0, NULL)
CALL(by_handle, SYS_open_by_handle_at, AT_FDCWD, NULL, 0)
CALL(kernel_log, SYS_syslog, 3, NULL, 0)
CALL(compare, SYS_kcmp, 1, 1, 0, 0, 0)
CALL(steal_fd, SYS_pidfd_getfd, 0, 0, 0)
CALL(trace_1, SYS_ptrace, 0x4206, 1, 0, 0) /* PTRACE_SEIZE, which stops nobody */
CALL(set_time, SYS_settimeofday, NULL, NULL)
CALL(fanotify, SYS_fanotify_init, 0, 0)
CALL(move_the_pages, SYS_move_pages, 1, 0, NULL, NULL, NULL, 0)
CALL(persona, SYS_personality, 0x0400000)
static int io_uring(void)
{
    return refused_as(syscall(SYS_io_uring_setup, 1, NULL), ENOSYS);
}
static int read_1(void)
{
    char byte;
    struct iovec to = { &byte, 1 }, from = { &byte, 1 };

    return refused(process_vm_readv(1, &to, 1, &from, 1, 0));
}
static int make_device(void)
{
    return refused(mknod("/tmp/disk", S_IFBLK | 0600, makedev(8, 0)));
}
static int make_null(void)
{
    return refused(mknod("/tmp/null", S_IFCHR | 0600, makedev(1, 3)));
}

/* The 32-bit entry has other numbers: whoever uses it dies. 20 is getpid there. */
static int entry_32(void)
{
#ifdef __x86_64__
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        long rc = 20;

        __asm__ volatile("int $0x80" : "+a"(rc) : : "memory", "r8", "r9", "r10", "r11");
        _exit(rc > 0 ? 7 : 8);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? 0 : bad("not killed: exit", WEXITSTATUS(status));
#else
    return 0;
#endif
}

/* ---- sockets ---- */

static int family(int domain, int type, int protocol)
{
    int fd = socket(domain, type | SOCK_CLOEXEC, protocol);

    if (fd >= 0)
        close(fd);
    if (fd < 0 && (errno == EAFNOSUPPORT || errno == EPROTONOSUPPORT))
        return 0; /* the kernel has none, or the filter says so */
    return refused(fd);
}
static int vsock(void)
{
    return family(40, SOCK_STREAM, 0);
}
static int alg(void)
{
    return family(38, SOCK_SEQPACKET, 0);
}
static int packet(void)
{
    return family(17, SOCK_RAW, 0);
}
static int raw(void)
{
    return family(AF_INET, SOCK_RAW, 1);
}
static int netfilter(void)
{
    return family(16, SOCK_RAW, 12);
}
static int audit(void)
{
    return family(16, SOCK_RAW, 9);
}
static int xfrm(void)
{
    return family(16, SOCK_RAW, 6);
}
static int rxrpc(void)
{
    return family(33, SOCK_DGRAM, 2);
}
static int mptcp(void)
{
    return family(AF_INET, SOCK_STREAM, 262);
}
static int only_loopback(void)
{
    struct if_nameindex *all = if_nameindex();
    int count = 0;

    for (struct if_nameindex *at = all; at && at->if_index; at++)
        count += strcmp(at->if_name, "lo") != 0;
    return count ? bad("other interfaces:", count) : 0;
}

/* ---- terminals ---- */

static int type_into_terminal(void)
{
    char x = 'x';
    int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

    return refused(ioctl(fd, TIOCSTI, &x));
}

/* ---- what would keep process 1 waiting ---- */

static int lease(void)
{
    int fd = open("/tmp/leased", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || unlink("/tmp/leased") < 0)
        return bad("no file", errno);
    return refused(fcntl(fd, F_SETLEASE, F_WRLCK));
}

/* ---- what process 1 hides ---- */

static int look_into_1(void)
{
    static const char *const names[] = { "mem", "environ", "maps", "auxv", "stack", "syscall" };
    char path[64], text[64];

    for (size_t i = 0; i < LEN(names); i++) {
        snprintf(path, sizeof(path), "/proc/1/%s", names[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, text, sizeof(text)) > 0)
            return bad(names[i], 0);
        if (fd >= 0)
            close(fd);
    }
    if (readlink("/proc/1/exe", path, sizeof(path)) >= 0)
        return bad("exe", 0);
    if (readlink("/proc/1/fd/3", path, sizeof(path)) >= 0)
        return bad("fd", 0);
    return open("/proc/1/root/etc", O_RDONLY | O_CLOEXEC) >= 0 ? bad("root", 0) : 0;
}
static int kill_1(void)
{
    kill(1, SIGKILL);
    usleep(20000);
    return kill(1, 0) < 0 && errno == ESRCH ? bad("gone", 1) : 0;
}

/* ---- who we are ---- */

static unsigned long long status(const char *key, int base)
{
    char text[8192];

    reads("/proc/self/status", text, sizeof(text));
    const char *at = strstr(text, key);
    return at ? strtoull(at + strlen(key), NULL, base) : ~0ull;
}
static int capabilities(void)
{
    unsigned long long short_list = 1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE |
                                    1ull << CAP_FOWNER | 1ull << CAP_FSETID | 1ull << CAP_KILL |
                                    1ull << CAP_SETGID | 1ull << CAP_SETUID | 1ull << CAP_SETPCAP |
                                    1ull << CAP_NET_BIND_SERVICE | 1ull << CAP_SETFCAP;
    unsigned long long may = getuid() == 0 ? short_list : 0;
    unsigned long long has =
        status("CapPrm:\t", 16) | status("CapEff:\t", 16) | status("CapBnd:\t", 16);

    if (status("CapInh:\t", 16) || status("CapAmb:\t", 16))
        return bad("inheritable or ambient", 0);
    return has & ~may ? bad("too many:", (long)(has & ~may)) : 0;
}
static int no_new_privs(void)
{
    return status("NoNewPrivs:\t", 10) == 1 ? 0 : bad("off", 0);
}
static int filtered(void)
{
    return status("Seccomp:\t", 10) == 2 ? 0 : bad("off", 0);
}
static int own_ids(void)
{
    char text[128];
    unsigned long first = 0, count = 0;

    reads("/proc/self/uid_map", text, sizeof(text));
    if (sscanf(text, " 0 %lu %lu", &first, &count) != 2 || first < 65536 || count != 65536)
        return bad("uid_map", (long)first);
    return 0;
}
static int become_root(void)
{
    return getuid() == 0 || (setuid(0) < 0 && errno == EINVAL) /* there is none */
               ? 0
               : refused(setuid(0));
}
static int own_cgroup(void)
{
    char text[4096];

    reads("/proc/self/cgroup", text, sizeof(text));
    return strstr(text, "atoll") ? bad("shows its place on the host", 0) : 0;
}
static int own_name(void)
{
    char name[64];

    gethostname(name, sizeof(name));
    return strcmp(name, "probe") == 0 ? 0 : bad("the host's name", 0);
}
static int no_core(void)
{
    struct rlimit limit;

    getrlimit(RLIMIT_CORE, &limit);
    return limit.rlim_max <= 1 ? 0 : bad("core", (long)limit.rlim_max);
}
static int oom_score(void)
{
    char text[32];

    reads("/proc/self/oom_score_adj", text, sizeof(text));
    long score = strtol(text, NULL, 10);

    if (score < 300)
        return bad("score", score);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    return refused(fd < 0 ? -1 : write(fd, "-500", 4));
}
static int be_nice(void)
{
    return refused(setpriority(PRIO_PROCESS, 0, -10));
}
static int real_time(void)
{
    struct sched_param param = { .sched_priority = 1 };

    return refused(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &param));
}
/* Pools of the kernel's that all users share: what one box can take of them has an end. */
static int timers(void)
{
    struct sigevent none = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
    long made = 0;
    int id;

    while (made < 5000 && syscall(SYS_timer_create, CLOCK_MONOTONIC, &none, &id) == 0)
        made++;
    return made < 5000 ? 0 : bad("timers:", made);
}
static int message_queues(void)
{
    struct mq_attr attr = { .mq_maxmsg = 10, .mq_msgsize = 8192 }; /* 80 kB */
    char name[32];
    long made = 0;

    for (long rc = 0; made < 64 && rc >= 0; made++) {
        snprintf(name, sizeof(name), "probe%ld", made);
        rc = syscall(SYS_mq_open, name, O_CREAT | O_RDWR | O_CLOEXEC, 0600, &attr);
        syscall(SYS_mq_unlink, name);
    }
    return made < 20 ? 0 : bad("message queues:", made);
}
static int lock_memory(void)
{
    const size_t size = 64u << 20;
    void *at = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return at == MAP_FAILED || mlock(at, size) < 0 ? 0 : bad("locked:", (long)size);
}
static int only_stdio(void)
{
    for (int fd = 3; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return bad("open:", fd);
    return 0;
}
static int stdio_is_no_file(void)
{
    struct stat st;

    for (int fd = 0; fd < 3; fd++)
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
            return bad("a file:", fd);
    return 0;
}

/* ---- files of the host ---- */

static int masked(void)
{
    static const char *const names[] = { "/proc/kcore",      "/proc/keys",       "/proc/timer_list",
                                         "/proc/interrupts", "/proc/kallsyms",   "/proc/slabinfo",
                                         "/proc/kmsg",       "/proc/key-users",  "/proc/softirqs",
                                         "/proc/kpageflags", "/proc/sched_debug" };
    char text[64];

    for (size_t i = 0; i < LEN(names); i++)
        if (reads(names[i], text, sizeof(text)) > 0)
            return bad(names[i], 0);
    return 0;
}
static int scan_for_writing(const char *top)
{
    static char stack[4096][200];
    int depth = 0;

    snprintf(stack[depth++], sizeof(stack[0]), "%s", top);
    while (depth) {
        char here[200];
        DIR *dir;
        struct dirent *entry;

        memcpy(here, stack[--depth], sizeof(here));
        dir = opendir(here);
        while (dir && (entry = readdir(dir))) {
            char path[500];

            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", here, entry->d_name);
            if (entry->d_type == DT_DIR && depth < 4095 && strlen(path) < 199)
                memcpy(stack[depth++], path, strlen(path) + 1);
            if (entry->d_type != DT_REG)
                continue;
            int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
            if (fd >= 0) {
                close(fd);
                closedir(dir);
                return bad(path, 0);
            }
        }
        if (dir)
            closedir(dir);
    }
    return 0;
}
static int proc_sys(void)
{
    return scan_for_writing("/proc/sys");
}
static int proc_rest(void)
{
    static const char *const dirs[] = { "/proc/irq",    "/proc/bus",  "/proc/fs",
                                        "/proc/driver", "/proc/acpi", "/proc/scsi" };
    static const char *const files[] = { "/proc/sysrq-trigger", "/proc/mtrr", "/proc/latency_stats",
                                         "/proc/timer_stats" };

    for (size_t i = 0; i < LEN(files); i++)
        if (open(files[i], O_WRONLY | O_CLOEXEC) >= 0)
            return bad(files[i], 0);
    for (size_t i = 0; i < LEN(dirs); i++)
        if (scan_for_writing(dirs[i]))
            return 1;
    return 0;
}
static int no_sys(void)
{
    DIR *dir = opendir("/sys");
    int count = 0;

    while (dir && readdir(dir))
        count++;
    return count > 2 ? scan_for_writing("/sys") : 0;
}
static int few_devices(void)
{
    static const char *const known[] = { "null", "zero",   "full",   "random", "urandom", "tty",
                                         "fd",   "stdin",  "stdout", "stderr", "ptmx",    "pts",
                                         "shm",  "mqueue", ".",      ".." };
    DIR *dir = opendir("/dev");
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        size_t i = 0;

        while (i < LEN(known) && strcmp(known[i], entry->d_name) != 0)
            i++;
        if (i == LEN(known))
            return bad(entry->d_name, 0);
    }
    return dir ? 0 : bad("no /dev", 0);
}
static int dev_is_fixed(void)
{
    return refused(open("/dev/evil", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}
static int usr_is_fixed(void)
{
    return refused(open("/usr/bin/evil-probe", O_CREAT | O_WRONLY | O_CLOEXEC, 0755));
}
static int no_secrets(void)
{
    return access("/etc/shadow", F_OK) == 0 ? bad("/etc/shadow", 0) : 0;
}
static int mounts_tell_nothing(void)
{
    static char text[65536];

    reads("/proc/self/mountinfo", text, sizeof(text));
    return strstr(text, "/images/") || strstr(text, "/boxes/") ? bad("paths of the host", 0) : 0;
}
static int setuid_is_dead(void)
{
    static char text[65536];

    reads("/proc/self/mountinfo", text, sizeof(text));
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!end)
            break;
        *end = 0;
        if (!strstr(line, "nosuid"))
            return bad(line, 0);
    }
    return 0;
}
static int other_processes(void)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    int count = 0;

    while (dir && (entry = readdir(dir)))
        count += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
    return count > 8 ? bad("processes in sight:", count) : 0;
}

#define P(name)                                                                                    \
    {                                                                                              \
#name, name                                                                                \
    }
static const struct {
    const char *name;
    int (*fn)(void);
} probes[] = {
    P(unshare_user),
    P(unshare_mount),
    P(unshare_net),
    P(clone_user),
    P(clone3_hidden),
    P(setns_own),
    P(mount_tmpfs),
    P(mount_cgroup),
    P(mount_bind),
    P(remount_usr),
    P(umount_proc),
    P(fsopen_tmpfs),
    P(open_tree_root),
    P(pivot),
    P(chroot_tmp),
    P(set_hostname),
    P(bpf_map),
    P(perf_open),
    P(userfault),
    P(add_a_key),
    P(keyctl_get),
    P(request_a_key),
    P(load_module),
    P(load_module_fd),
    P(kexec),
    P(reboot_machine),
    P(swap_on),
    P(accounting),
    P(quota),
    P(by_handle),
    P(kernel_log),
    P(compare),
    P(steal_fd),
    P(trace_1),
    P(set_time),
    P(fanotify),
    P(move_the_pages),
    P(persona),
    P(io_uring),
    P(read_1),
    P(make_device),
    P(make_null),
    P(entry_32),
    P(vsock),
    P(alg),
    P(packet),
    P(raw),
    P(netfilter),
    P(audit),
    P(xfrm),
    P(rxrpc),
    P(mptcp),
    P(only_loopback),
    P(type_into_terminal),
    P(lease),
    P(look_into_1),
    P(kill_1),
    P(capabilities),
    P(no_new_privs),
    P(filtered),
    P(own_ids),
    P(become_root),
    P(own_cgroup),
    P(own_name),
    P(no_core),
    P(oom_score),
    P(be_nice),
    P(real_time),
    P(timers),
    P(message_queues),
    P(lock_memory),
    P(only_stdio),
    P(stdio_is_no_file),
    P(masked),
    P(proc_sys),
    P(proc_rest),
    P(no_sys),
    P(few_devices),
    P(dev_is_fixed),
    P(usr_is_fixed),
    P(no_secrets),
    P(mounts_tell_nothing),
    P(setuid_is_dead),
    P(other_processes),
};

/*
 * Not a probe: so many lines of which each forks, leaves its session and ends, again and again. Who
 * is looked at is gone already, and there is another one.
 */
static int storm(int lines)
{
    while (lines > 0) {
        pid_t pid = fork();

        while (pid == 0) {
            if (fork() > 0)
                _exit(0);
            setsid();
        }
        lines -= pid > 0;
    }
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    int broken = 0;

    if (argc == 3 && strcmp(argv[1], "storm") == 0)
        return storm((int)strtol(argv[2], NULL, 10));
    for (size_t i = 0; i < LEN(probes); i++) {
        int status_;

        fflush(stdout);
        pid_t pid = fork(); /* a probe that gets through may change its process */
        if (pid == 0) {
            int rc = probes[i].fn();

            printf(rc ? "BROKEN %s %s\n" : "held %s\n", probes[i].name, why);
            fflush(stdout);
            _exit(rc);
        }
        if (pid < 0 || waitpid(pid, &status_, 0) != pid) {
            printf("BROKEN %s cannot be run\n", probes[i].name);
            broken++;
            continue;
        }
        if (WIFSIGNALED(status_))
            printf("held %s (killed)\n", probes[i].name);
        broken += WIFEXITED(status_) && WEXITSTATUS(status_) != 0;
    }
    printf("%zu probes, %d broken\n", LEN(probes), broken);
    return broken != 0;
}
