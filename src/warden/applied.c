/*
 * What holds for a box, as the kernel tells it: /proc/PID, the cgroups' files, and the filter read
 * back instruction by instruction. Nothing is taken from the request.
 *
 * The filter can be had by ptrace alone, from a process that is stopped: process 1 is stopped for
 * the moment it takes. One that does not stop in time (frozen, or waiting for the kernel) keeps its
 * secret: the digest stays empty. Who was told to stop and is not yet there cannot be let go of,
 * and would stop later, for ever. So a child of the warden does all this, and lets go by its end.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "seccomp/seccomp.h"
#include "warden/disk.h"

#define FILTER_MAX 4096 /* instructions; the kernel's own limit */
#define QUICK_TURNS 5   /* from then on with a pause */

static char text[131072];

static bool read_proc(pid_t pid, const char *name)
{
    char path[64];
    size_t len = 0;
    ssize_t got;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (len < sizeof(text) - 1 && (got = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
        len += (size_t)got;
    text[len] = 0;
    return len > 0;
}

/* The number after a name at the start of a line. */
static uint64_t field(const char *name, int base)
{
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (strncmp(at, name, strlen(name)) == 0)
            return strtoull(at + strlen(name), NULL, base);
    }
    return 0;
}

static void read_status(struct box_applied *out)
{
    static const char *const caps[BOX_CAPS_COUNT] = { "CapInh:", "CapPrm:", "CapEff:", "CapBnd:",
                                                      "CapAmb:" };

    for (int i = 0; i < BOX_CAPS_COUNT; i++)
        out->caps[i] = field(caps[i], 16);
    out->uid = (uint32_t)field("Uid:", 10);
    out->no_new_privs = (uint32_t)field("NoNewPrivs:", 10);
    out->seccomp_mode = (uint32_t)field("Seccomp:", 10);
    out->seccomp_filters = (uint32_t)field("Seccomp_filters:", 10);
}

static int read_namespaces(pid_t pid, struct box_applied *out)
{
    static const char *const names[BOX_NS_COUNT] = { "pid", "mnt",    "net", "ipc",
                                                     "uts", "cgroup", "user" };
    char path[64];
    struct stat its, ours;

    for (int i = 0; i < BOX_NS_COUNT; i++) {
        snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, names[i]);
        if (stat(path, &its) < 0)
            return -1;
        snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        if (stat(path, &ours) < 0)
            return -1;
        out->ns[i] = its.st_ino;
        out->own_ns |= (uint64_t)(its.st_ino != ours.st_ino) << i;
    }
    return 0;
}

/* "36 35 98:0 / /mnt rw,nosuid - ext3 …": the options stand before the dash. */
static void count_mounts(struct box_applied *out)
{
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n'), *option = line;

        out->mounts++;
        for (int i = 0; i < 5 && option; i++)
            option = (option = strchr(option, ' ')) ? option + 1 : NULL;
        if (option && strncmp(option, "rw", 2) == 0)
            out->mounts_writable++;
        line = end ? end + 1 : line + strlen(line);
    }
}

/* The second of its two numbers, beyond which it cannot be raised. */
static uint64_t hard_limit(const char *name)
{
    const char *at = strstr(text, name);
    char value[32];

    if (!at || sscanf(at + strlen(name), "%*s %31s", value) != 1 || strcmp(value, "unlimited") == 0)
        return UINT64_MAX;
    return strtoull(value, NULL, 10);
}

/* By text: the call for it wants a capability that we may not have. */
static void read_limits(pid_t pid, struct box_applied *out)
{
    out->data = out->nproc = UINT64_MAX;
    if (!read_proc(pid, "limits"))
        return;
    out->nofile = hard_limit("Max open files");
    out->core = hard_limit("Max core file size");
    out->data = hard_limit("Max data size");
    out->nproc = hard_limit("Max processes");
}

static void read_disk(pid_t pid, struct box_applied *out)
{
    char path[64];
    struct statfs fs;

    snprintf(path, sizeof(path), "/proc/%d/root/", (int)pid);
    if (statfs(path, &fs) == 0) {
        out->disk = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
        out->inodes = (uint64_t)fs.f_files;
    }
}

/* ---- the filter ---- */

static void nap(int turn)
{
    poll(NULL, 0, turn < QUICK_TURNS ? 0 : 1);
}

/* One tracer at a time: whoever looks at this box besides us is through in a moment. */
static bool seized(pid_t pid, int64_t until)
{
    for (int i = 0; ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0; i++) {
        if (errno != EPERM || clock_mono_ms() >= until)
            return false;
        nap(i);
    }
    return true;
}

static bool stopped(pid_t pid, int64_t until)
{
    int status;

    if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0)
        return false;
    for (int i = 0; waitpid(pid, &status, WNOHANG | __WALL) != pid; i++) {
        if (clock_mono_ms() >= until)
            return false;
        nap(i);
    }
    return WIFSTOPPED(status);
}

static void read_filter(pid_t pid, struct box_applied *out)
{
    static struct sock_filter filter[FILTER_MAX];
    int64_t until = clock_mono_ms() + BOX_STOP_MS;

    if (!seized(pid, until) || !stopped(pid, until))
        return;
    long count = syscall(SYS_ptrace, PTRACE_SECCOMP_GET_FILTER, pid, 0, filter);
    ptrace(PTRACE_DETACH, pid, NULL, NULL);
    const char *digest =
        count > 0 && count <= FILTER_MAX ? seccomp_digest_of(filter, (size_t)count) : NULL;
    snprintf(out->seccomp_digest, sizeof(out->seccomp_digest), "%s",
             digest      ? digest
             : count > 0 ? "unknown"
                         : "");
}

static int read_all(pid_t pid, const char *id, struct box_applied *out)
{
    *out = (struct box_applied){ 0 };
    if (read_namespaces(pid, out) < 0 || !read_proc(pid, "status"))
        return -1;
    read_status(out);
    if (process_map(pid, "uid_map", &out->uid_first, &out->uid_count) < 0 ||
        process_map(pid, "gid_map", &out->gid_first, &out->gid_count) < 0 ||
        !read_proc(pid, "mountinfo")) {
        errno = EPROTO;
        return -1;
    }
    count_mounts(out);
    if (read_proc(pid, "oom_score_adj"))
        out->oom_score_adj = (int32_t)strtol(text, NULL, 10);
    read_limits(pid, out);
    read_disk(pid, out);
    cgroup_applied(id, out);
    /* To root of the host alone the kernel tells a filter. */
    if (!box_host.rootless && !cgroup_frozen(id))
        read_filter(pid, out);
    return 0;
}

/* ---- the child ---- */

static int asked_pidfd; /* what the next child is to look at: it is born with a copy */

/* ENOENT would say that there never was such a box. */
static int gone(void)
{
    errno = ESRCH;
    return -1;
}

static int read_child(struct wire_msg *msg, int *fd)
{
    const struct box *box = table_find(msg->name.id);
    struct disk_usage usage = { 0 };

    (void)fd;
    *msg = (struct wire_msg){ .verb = msg->verb };
    if (read_all(box->pid, box->id, &msg->applied) < 0 ||
        /* It is still there: so its number was its own all the time. */
        syscall(SYS_pidfd_send_signal, asked_pidfd, 0, NULL, 0) < 0)
        return gone();
    msg->applied.landlock_abi = box->landlock_abi;
    msg->applied.lost = box_host.lost;
    msg->applied.nested = box->nested;
    if (box->upper) { /* its root would tell of the store that all disks share */
        msg->applied.inodes = 0;
        msg->applied.disk = disks_bytes(box->upper, &usage) < 0 ? 0 : usage.bytes;
    }
    return 0;
}

void applied_hear(struct box *box, const struct wire_msg *request)
{
    autoclose int pidfd = box_pidfd(box);

    asked_pidfd = pidfd;
    if (pidfd < 0)
        say_status(request, ESRCH);
    else
        job_start(request, read_child, NULL);
}
