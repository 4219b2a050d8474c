/*
 * Starting a child: fork, put exactly its descriptors where it expects them, become the user it
 * runs as, drop everything, exec the program that `atoll serve` itself was (by descriptor, so that
 * a file replaced meanwhile changes nothing). Between fork and exec the child may log and must not
 * return.
 *
 * Order of dropping: the bounding set needs CAP_SETPCAP, the groups CAP_SETGID, so both come before
 * the uid. The parent-death signal comes after it, because the kernel clears that signal when the
 * credentials change; then the parent is looked at once more, in case it died in between.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/guard.h"
#include "base/limits.h"
#include "warden/warden.h"

/* Not in every libc's headers; from the kernel's asm-generic/socket.h (6.16). */
#define SO_PASSRIGHTS_ 83

/* What supervising and reloading need of root; the rest is given up at start. */
static const int kept_caps[] = {
    CAP_SETUID,          /* the api process's user */
    CAP_SETGID,          /* its groups */
    CAP_SETPCAP,         /* its empty bounding set */
    CAP_KILL,            /* signals to it */
    CAP_SYS_RESOURCE,    /* its oom score; often missing, then it stays as it is */
    CAP_DAC_READ_SEARCH, /* `serve --resolve` reads settings and keys wherever they are */
    /* sandboxes: */
    CAP_SYS_ADMIN,        /* namespaces and mounts */
    CAP_SYS_CHROOT,       /* entering a mount namespace */
    CAP_NET_ADMIN,        /* their loopback, and what leads to the egress process */
    CAP_NET_BIND_SERVICE, /* its DNS socket in them */
    CAP_MKNOD,            /* their /dev */
    CAP_SYS_PTRACE,       /* which namespaces and filter they have, for `show` */
    CAP_DAC_OVERRIDE,     /* files of theirs, whoever owns them */
    CAP_CHOWN,            /* the default image's home */
    CAP_FOWNER,
};

/* What reading the settings again needs of them. */
#define RESOLVE_CAPS (UINT64_C(1) << CAP_DAC_READ_SEARCH)

static int caps_set(uint64_t permitted)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = { 0 };

    for (unsigned i = 0; i < 2; i++)
        data[i].permitted = data[i].effective = (uint32_t)(permitted >> (32 * i));
    return (int)syscall(SYS_capset, &head, data);
}

static int caps_get(uint64_t *permitted)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = { 0 };

    if (syscall(SYS_capget, &head, data) < 0)
        return -1;
    *permitted = data[0].permitted | (uint64_t)data[1].permitted << 32;
    return 0;
}

/* Drops all of the bounding set but `keep`. The kernel says EINVAL past its last capability. */
static int bounding_keep(uint64_t keep)
{
    for (int cap = 0; cap < 64; cap++) {
        int held = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

        if (held < 0)
            return errno == EINVAL ? 0 : -1;
        if (held && !(keep & UINT64_C(1) << cap) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return -1;
    }
    return 0;
}

/* Lower is safer from the kernel's out-of-memory killer; only root may lower it. */
static void oom_score(const char *score)
{
    autoclose int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, score, strlen(score)) < 0)
        log_debug("the out-of-memory score stays as it is", kv_str("error", strerror(errno)));
}

int warden_harden(bool root, bool one_id)
{
    uint64_t keep = 0, held;

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        (guard(warden_nnp) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) ||
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 }) < 0)
        return -1;
    umask(077);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (root) {
        for (size_t i = 0; i < ARRAY_LEN(kept_caps); i++)
            keep |= UINT64_C(1) << kept_caps[i];
        if (one_id) /* who gives its own root to a box must be able to mark files as root's */
            keep |= UINT64_C(1) << CAP_SETFCAP;
        if (bounding_keep(keep) < 0)
            return -1;
        oom_score("-900");
    }
    if (caps_get(&held) < 0)
        return -1;
    return caps_set(held & keep);
}

/* ---- in the child ---- */

static _Noreturn void child_fail(const char *what)
{
    log_error("cannot start a process", kv_str("step", what), kv_str("error", strerror(errno)));
    _exit(127);
}

static void signals_default(void)
{
    const struct sigaction normal = { .sa_handler = SIG_DFL };
    sigset_t none;

    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &normal, NULL); /* SIGKILL and the C library's own refuse: fine */
    if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
        child_fail("signal mask");
}

static void null_stdin(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (fd < 0 || dup2(fd, 0) < 0)
        child_fail("/dev/null");
    if (fd != 0)
        close(fd);
}

/*
 * No way back: after this the process has no privilege and cannot get one by exec. The first range
 * of ids is the server's: the api process has the first of them, the egress process the second.
 */
enum role { ROLE_API, ROLE_EGRESS };

static void become(const struct warden_args *args, unsigned role)
{
    if (args->ids >= 0 && bounding_keep(0) < 0)
        child_fail("bounding set");
    if (args->api_uid >= 0) {
        uid_t uid = (uid_t)args->api_uid + role;
        gid_t gid = (gid_t)args->api_gid + role;

        if (guard(child_bounding) && bounding_keep(0) < 0)
            child_fail("bounding set");
        if (guard(child_groups) && (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0))
            child_fail("groups");
        if (guard(child_user) && setresuid(uid, uid, uid) < 0)
            child_fail("user");
    }
    if (guard(child_caps) && caps_set(0) < 0)
        child_fail("capabilities");
    if (guard(child_nnp) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        child_fail("no_new_privs");
}

static void die_with(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        child_fail("parent death signal");
    if (getppid() != parent)
        _exit(0);
}

static _Noreturn void run(int exec_fd, const char *const *argv, const char *const *envp,
                          const char *what)
{
    syscall(SYS_execveat, exec_fd, "", argv, envp, AT_EMPTY_PATH);
    child_fail(what);
}

/* What both have in common, from the fork on: where they are and what they are called with. */
static _Noreturn void role_child(const struct warden_args *args, enum role role, const int *fds,
                                 unsigned count, const char *const *argv, pid_t parent)
{
    static const char *const envp[] = { NULL };

    setsid(); /* so that Ctrl-C reaches the warden alone */
    signals_default();
    null_stdin();
    if (chdir("/") < 0)
        child_fail("chdir");
    oom_score("-500");
    int exec_fd = layout_place(fds, count, WARDEN_FD_ATOLL);
    if (exec_fd < 0)
        child_fail("descriptors");
    become(args, role);
    die_with(parent);
    run(exec_fd, argv, envp, argv[1]);
}

static _Noreturn void api_child(const struct warden_args *args, int link, pid_t parent)
{
    static const char *const argv[] = { "atoll", "api", NULL };
    int fds[PLACE_MAX] = { link, WARDEN_FD_START, WARDEN_FD_SETTINGS, WARDEN_FD_DATA };
    unsigned count = API_FD_LISTENERS - API_FD_LINK;

    for (unsigned i = 0; i < args->listeners; i++)
        fds[count++] = WARDEN_FD_LISTENERS + (int)i;
    role_child(args, ROLE_API, fds, count, argv, parent);
}

/* It is told how to log, and gets its link and its key. */
static _Noreturn void egress_child(const struct warden_args *args, int link, pid_t parent)
{
    const char level[] = { (char)('0' + args->log_level), 0 },
               format[] = { (char)('0' + args->log_format), 0 };
    const char *const argv[] = { "atoll", "egress", level, format, NULL };

    const int fds[] = { link, WARDEN_FD_KEY, WARDEN_FD_ROOTS };

    role_child(args, ROLE_EGRESS, fds, ARRAY_LEN(fds), argv, parent);
}

static _Noreturn void resolve_child(const struct warden_args *args, int out_fd, pid_t parent)
{
    extern char **environ;
    static const char *argv[SERVE_ARGS_MAX + 3] = { "atoll" };
    int count = 1;

    for (char **arg = args->serve; *arg && count <= SERVE_ARGS_MAX; arg++)
        argv[count++] = *arg;
    argv[count++] = "--resolve";
    argv[count] = NULL;
    setsid();
    signals_default();
    null_stdin();
    int exec_fd = layout_place(&out_fd, 1, WARDEN_FD_ATOLL);
    if (exec_fd < 0)
        child_fail("descriptors");
    if ((args->api_uid >= 0 || args->ids >= 0) &&
        bounding_keep(RESOLVE_CAPS) < 0) /* root's exec gets no more */
        child_fail("bounding set");
    die_with(parent);
    run(exec_fd, argv, (const char *const *)environ, "exec atoll serve --resolve");
}

/* ---- in the warden ---- */

static int child_opened(pid_t pid, int link, struct child *out)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (pidfd < 0) {
        int why = errno;

        kill(pid, SIGKILL); /* ours and not reaped yet, so the number is still its own */
        waitpid(pid, NULL, 0);
        errno = why;
        return -1;
    }
    *out = (struct child){ .pid = pid, .pidfd = pidfd, .link = link };
    return 0;
}

typedef void role_fn(const struct warden_args *args, int link, pid_t parent);

static int spawn_role(const struct warden_args *args, role_fn *be, struct child *out)
{
    pid_t parent = getpid();
    int pair[2], off = 0;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -1;
    /* No child sends descriptors up. Where the kernel can refuse them, closing them is not ours. */
    (void)setsockopt(pair[0], SOL_SOCKET, SO_PASSRIGHTS_, &off, sizeof(off));
    pid_t pid = fork();
    if (pid == 0)
        be(args, pair[1], parent);
    int why = errno;
    close(pair[1]);
    errno = why;
    if (pid < 0 || child_opened(pid, pair[0], out) < 0) {
        why = errno;
        close(pair[0]);
        errno = why;
        return -1;
    }
    return 0;
}

int spawn_api(const struct warden_args *args, struct child *out)
{
    return spawn_role(args, api_child, out);
}

int spawn_egress(const struct warden_args *args, struct child *out)
{
    return spawn_role(args, egress_child, out);
}

int spawn_resolve(const struct warden_args *args, int out_fd, struct child *out)
{
    pid_t parent = getpid(), pid = fork();

    if (pid == 0)
        resolve_child(args, out_fd, parent);
    return pid < 0 ? -1 : child_opened(pid, -1, out);
}

void child_kill(const struct child *child)
{
    if (child->pid && syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0) < 0 &&
        errno != ESRCH)
        log_error("cannot kill a process", kv_int("pid", child->pid),
                  kv_str("error", strerror(errno)));
}

int child_end(struct child *child)
{
    int status = 0;

    while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(child->pidfd);
    if (child->link >= 0)
        close(child->link);
    *child = (struct child){ .pidfd = -1, .link = -1 };
    return status;
}
