/*
 * Each forbidden act is tried twice in a child process: outside the jail, where it must work (or
 * the test would prove nothing), and inside, where it must end as the table says. So a layer that
 * is taken out of the jail fails its lines here.
 */
#include "daemon/jail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <seccomp.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/test.h"

/* What an act needs, made before the jail closes. */
static struct {
    const char *dir;
    int data_fd;
    pid_t other; /* a process to be unkind to */
    int tcp;     /* an unconnected socket */
    struct sockaddr_in addr;
} world;

/* How an act ended. */
enum { DONE = 0, KILLED = 1000, ABORTED = 1001, ODD = 1002 }; /* else: an errno */

static int result(int rc)
{
    return rc < 0 ? errno : DONE;
}

static const struct jail *the_jail(void)
{
    static struct jail jail;

    jail.data_fd = world.data_fd;
    return &jail;
}

/* Runs enter() and then act() in a child; how that ended. */
static int in_child(int (*enter)(const struct jail *jail, struct err *err), int (*act)(void))
{
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        struct err err;

        if (enter && enter(the_jail(), &err) < 0) {
            fprintf(stderr, "jail: %s\n", err.msg);
            _exit(255);
        }
        int how = act();
        _exit(how > 200 ? 200 : how);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGSYS ? KILLED : WTERMSIG(status) == SIGABRT ? ABORTED : ODD;
    CHECK(WEXITSTATUS(status) != 255);
    return WEXITSTATUS(status);
}

/* ---- acts ---- */

static int act_exec(void)
{
    execl("/bin/true", "true", (char *)NULL);
    return errno;
}

static int act_execveat(void)
{
    char *const argv[] = { (char[]){ "true" }, NULL };
    int fd = open("/bin/true", O_PATH | O_CLOEXEC);

    return result((int)syscall(SYS_execveat, fd < 0 ? 0 : fd, "", argv, argv + 1, AT_EMPTY_PATH));
}

static int reap(pid_t pid)
{
    if (pid == 0)
        _exit(0);
    return pid < 0 ? errno : waitpid(pid, NULL, 0) == pid ? DONE : errno;
}

static int act_fork(void)
{
    return reap(fork());
}

static int act_vfork(void)
{
    pid_t pid = vfork();

    if (pid == 0)
        _exit(0);
    return reap(pid);
}

static int clone_main(void *arg)
{
    (void)arg;
    return 0;
}

static int act_clone_vm(void) /* shares everything, but is not a thread */
{
    static char stack[65536] __attribute__((aligned(16)));

    return reap(clone(clone_main, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL));
}

static int act_clone3(void)
{
    return result((int)syscall(SYS_clone3, NULL, 0)); /* EINVAL when it exists */
}

static int act_open_outside(void)
{
    return result(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
}

static int act_open_parent(void)
{
    return result(openat(world.data_fd, "../outside", O_RDONLY | O_CLOEXEC));
}

static int act_list_root(void)
{
    return result(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int act_write_inside(void)
{
    int fd = openat(world.data_fd, "file", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, "x", 1) != 1 || ftruncate(fd, 0) < 0 || fdatasync(fd) < 0)
        return errno;
    if (renameat(world.data_fd, "file", world.data_fd, "file2") < 0 ||
        unlinkat(world.data_fd, "file2", 0) < 0 || mkdirat(world.data_fd, "sub", 0700) < 0 ||
        unlinkat(world.data_fd, "sub", AT_REMOVEDIR) < 0)
        return errno;
    return result(openat(world.data_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int act_make_link(void)
{
    unlinkat(world.data_fd, "link", 0);
    return result(symlinkat("/etc/passwd", world.data_fd, "link"));
}

static int act_pair(void)
{
    int pair[2];

    return result(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
}

static int act_other_pair(void)
{
    int pair[2];

    return result(socketpair(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
}

static int act_socket(void)
{
    return result(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int act_connect(void)
{
    return result(connect(world.tcp, (struct sockaddr *)&world.addr, sizeof(world.addr)));
}

static int act_kill(void)
{
    return result(kill(world.other, SIGCONT));
}

static int act_tgkill(void)
{
    return result((int)syscall(SYS_tgkill, world.other, world.other, SIGCONT));
}

static int act_ptrace(void)
{
    return result((int)ptrace(PTRACE_SEIZE, world.other, NULL, NULL));
}

static int act_read_other(void)
{
    char byte;
    struct iovec iov = { &byte, 1 }, far = { &world, 1 };

    return result((int)syscall(SYS_process_vm_readv, world.other, &iov, 1, &far, 1, 0));
}

static int act_mmap_exec(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
               ? errno
               : DONE;
}

static int act_mprotect_exec(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return result(mprotect(page, 4096, PROT_READ | PROT_EXEC));
}

static int act_dumpable(void)
{
    return result(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
}

static int act_raise_limit(void)
{
    return result(setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }));
}

static int act_setuid(void)
{
    return result((int)syscall(SYS_setuid, getuid()));
}

static int act_unshare(void)
{
    return result(unshare(CLONE_FS));
}

static int act_sealable(void)
{
    return result(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
}

static int act_memfd(void)
{
    return result(memfd_create("x", MFD_CLOEXEC));
}

static int act_io_uring(void)
{
    char params[120] = { 0 };

    return result((int)syscall(SYS_io_uring_setup, 1, params));
}

#ifdef __x86_64__
static int act_int80(void)
{
    long got = 20; /* getpid, in the 32-bit numbering */

    __asm__ volatile("int $0x80" : "+a"(got) : : "memory", "r8", "r9", "r10", "r11");
    return got > 0 ? DONE : (int)-got;
}

static int act_x32(void)
{
    return result((int)syscall(0x40000000 | SYS_getpid));
}
#endif

static int act_abort(void)
{
    abort();
}

static void *thread(void *arg)
{
    return arg;
}

static int act_thread(void)
{
    pthread_t id;
    void *back = NULL;
    int here;

    if (pthread_create(&id, NULL, thread, &here) != 0 || pthread_join(id, &back) != 0)
        return 199;
    return back == &here ? DONE : 198;
}

static int act_isatty(void)
{
    return isatty(0) ? DONE : errno;
}

static int act_limits_readable(void)
{
    struct rlimit limit;

    return result(getrlimit(RLIMIT_NOFILE, &limit));
}

static int act_name(void)
{
    return result(prctl(PR_SET_NAME, "other", 0, 0, 0));
}

/* ---- what is expected ---- */

#define ANY (-1)

/* clang-format off */
static const struct act {
    const char *name;
    int (*fn)(void);
    int outside, inside; /* how it ends; ANY: whatever the machine says */
} acts[] = {
    { "execve",                     act_exec,            DONE,   KILLED },
    { "execveat",                   act_execveat,        DONE,   KILLED },
    { "fork",                       act_fork,            DONE,   KILLED },
    { "vfork",                      act_vfork,           DONE,   KILLED },
    { "clone that is no thread",    act_clone_vm,        DONE,   KILLED },
    { "clone3",                     act_clone3,          EINVAL, ENOSYS },
    { "open /etc/passwd",           act_open_outside,    DONE,   EACCES },
    { "open ../outside",            act_open_parent,     DONE,   EACCES },
    { "list /",                     act_list_root,       DONE,   EACCES },
    { "make a symbolic link",       act_make_link,       DONE,   KILLED },
    { "socket",                     act_socket,          DONE,   KILLED },
    { "socketpair, unix",           act_pair,            DONE,   DONE },
    { "socketpair, other",          act_other_pair,      EOPNOTSUPP, KILLED },
    { "connect",                    act_connect,         DONE,   KILLED },
    { "kill another process",       act_kill,            DONE,   KILLED },
    { "tgkill another process",     act_tgkill,          DONE,   KILLED },
    { "ptrace",                     act_ptrace,          DONE,   KILLED },
    { "process_vm_readv",           act_read_other,      DONE,   KILLED },
    { "mmap executable",            act_mmap_exec,       DONE,   KILLED },
    { "mprotect executable",        act_mprotect_exec,   DONE,   KILLED },
    { "become dumpable",            act_dumpable,        DONE,   KILLED },
    { "setrlimit",                  act_raise_limit,     DONE,   KILLED },
    { "setuid",                     act_setuid,          DONE,   KILLED },
    { "unshare",                    act_unshare,         DONE,   KILLED },
    { "memfd_create",               act_memfd,           DONE,   KILLED },
    { "memfd_create, sealable",     act_sealable,        DONE,   DONE },
    { "io_uring_setup",             act_io_uring,        ANY,    KILLED },
#ifdef __x86_64__
    { "32-bit entry",               act_int80,           ANY,    KILLED },
    { "x32 entry",                  act_x32,             ANY,    KILLED },
#endif
    /* and what must go on working */
    { "files in the data directory", act_write_inside,   DONE,   DONE },
    { "a thread",                   act_thread,          DONE,   DONE },
    { "abort",                      act_abort,           ABORTED, ABORTED },
    { "isatty",                     act_isatty,          ANY,    ENOTTY },
    { "getrlimit",                  act_limits_readable, DONE,   DONE },
    { "naming a thread",            act_name,            DONE,   DONE },
};
/* clang-format on */

static void world_make(void)
{
    int ready[2];
    struct sockaddr_in bound;
    socklen_t len = sizeof(bound);

    world.dir = test_dir();
    autofree char *data = xprintf("%s/data", world.dir), *out = xprintf("%s/outside", world.dir);
    CHECK(mkdir(data, 0700) == 0);
    autoclose int file = open(out, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    world.data_fd = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(world.data_fd >= 0 && file >= 0);

    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bound =
        (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    CHECK(bind(listener, (struct sockaddr *)&bound, sizeof(bound)) == 0);
    CHECK(listen(listener, 64) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&world.addr, &len) == 0);
    world.tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(pipe2(ready, O_CLOEXEC) == 0);
    world.other = fork();
    CHECK(world.other >= 0);
    if (world.other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        close(ready[1]);
        for (;;)
            pause();
    }
    close(ready[0]);
    close(ready[1]);
}

static void world_end(void)
{
    kill(world.other, SIGKILL);
    waitpid(world.other, NULL, 0);
    close(world.tcp);
    close(world.data_fd);
}

TEST(each_act_ends_as_it_must_inside_and_outside)
{
    bool failed = false;

    world_make();
    for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
        const struct act *act = &acts[i];
        int outside = in_child(NULL, act->fn), inside = in_child(jail_enter, act->fn);

        close(world.tcp); /* the act outside has connected it */
        world.tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if ((act->outside == ANY || outside == act->outside) && inside == act->inside)
            continue;
        fprintf(stderr, "%s: outside %d (wanted %d), inside %d (wanted %d)\n", act->name, outside,
                act->outside, inside, act->inside);
        failed = true;
    }
    world_end();
    CHECK(!failed);
}

/* Landlock by itself: what it forbids even if the filter had a hole. */
TEST(landlock_alone_holds_files_connections_and_signals)
{
    int abi = jail_landlock_abi();

    CHECK(abi >= 1);
    world_make();
    CHECK_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_INT(in_child(jail_landlock, act_open_outside), EACCES);
    CHECK_INT(in_child(jail_landlock, act_open_parent), EACCES);
    CHECK_INT(in_child(jail_landlock, act_exec), EACCES);
    CHECK_INT(in_child(jail_landlock, act_make_link), EACCES);
    CHECK_INT(in_child(jail_landlock, act_write_inside), DONE);
    if (abi >= 4)
        CHECK_INT(in_child(jail_landlock, act_connect), EACCES);
    if (abi >= 6)
        CHECK_INT(in_child(jail_landlock, act_kill), EPERM);
    world_end();
}

static char *status_of(pid_t pid, const char *key)
{
    autofree char *path = xprintf("/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    char line[256], *found = NULL;

    CHECK(file != NULL);
    while (!found && fgets(line, sizeof(line), file))
        if (strncmp(line, key, strlen(key)) == 0)
            found = xmemdup0(line + strlen(key), strcspn(line + strlen(key), "\n"));
    fclose(file);
    CHECK(found != NULL);
    return found;
}

TEST(the_kernel_says_that_the_jail_is_on)
{
    int ready[2];
    char byte;

    world_make();
    CHECK(pipe2(ready, O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct err err;

        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (jail_enter(the_jail(), &err) != 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            poll(NULL, 0, 1000);
    }
    close(ready[1]);
    CHECK_INT(read(ready[0], &byte, 1), 1);
    autofree char *seccomp = status_of(pid, "Seccomp:\t"), *nnp = status_of(pid, "NoNewPrivs:\t");
    CHECK_STR(seccomp, "2");
    CHECK_STR(nnp, "1");
    struct rlimit core;
    CHECK_INT(prlimit(pid, RLIMIT_CORE, NULL, &core), 0);
    CHECK(core.rlim_cur == 0 && core.rlim_max == 0);
    struct stat st;
    autofree char *proc = xprintf("/proc/%d/environ", pid);
    CHECK(stat(proc, &st) == 0 && st.st_uid == 0); /* root's: it is not dumpable */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    world_end();
}

/* ---- a layer that is missing ---- */

static const char *const *degraded;
static struct err entered_err;

/* The machine without a feature: its system call answers as an old kernel's would. */
static void take_away(int call, int error)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)error), call, 0) < 0 ||
        seccomp_load(filter) < 0)
        _exit(254);
    seccomp_release(filter);
}

static int enter_and_tell(void)
{
    struct jail jail = { .data_fd = world.data_fd, .allow_degraded = degraded };
    int lost = jail_enter(&jail, &entered_err);

    if (lost < 0)
        return strstr(entered_err.msg, "jail layer landlock")  ? 101
               : strstr(entered_err.msg, "jail layer seccomp") ? 102
                                                               : 103;
    return lost;
}

static int without_landlock(void)
{
    take_away(SCMP_SYS(landlock_create_ruleset), ENOSYS);
    return enter_and_tell();
}

static int without_seccomp(void)
{
    take_away(SCMP_SYS(seccomp), EINVAL);
    return enter_and_tell();
}

TEST(a_missing_layer_ends_the_start_unless_its_loss_is_allowed)
{
    static const char *const landlock[] = { "landlock", NULL }, *const other[] = { "other", NULL };
    static const char *const both[] = { "seccomp", "landlock", NULL };

    world_make();
    log_setup(LOG_ERROR, LOG_TEXT, "test");
    degraded = NULL;
    CHECK_INT(in_child(NULL, enter_and_tell), 0);
    CHECK_INT(in_child(NULL, without_landlock), 101);
    CHECK_INT(in_child(NULL, without_seccomp), 102);
    degraded = other;
    CHECK_INT(in_child(NULL, without_landlock), 101);
    degraded = landlock;
    CHECK_INT(in_child(NULL, without_landlock), 1);
    CHECK_INT(in_child(NULL, without_seccomp), 102);
    degraded = both;
    CHECK_INT(in_child(NULL, without_seccomp), 1);
    world_end();
}
