/* Cgroups, the disk, limits, virtual machines, and what a kernel's version can and cannot tell. */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include "base/buf.h"
#include "base/mem.h"
#include "host/own.h"

/* ---- cgroups ---- */

static const char *const controllers[] = { "cpu", "memory", "pids", "freezer" };
enum { CPU, MEMORY, PIDS, FREEZER, CONTROLLERS };

struct cgroups {
    char v1[CONTROLLERS][4096]; /* mount point, or "" */
    char v2[4096];
    char v2_controllers[512];
};

static bool has_word(const char *list, const char *word, char separator)
{
    struct str rest = str_of(list);

    while (rest.n)
        if (str_is(str_cut(&rest, separator), word))
            return true;
    return false;
}

static bool note_cgroup(void *ctx, const struct host_mount *mount)
{
    struct cgroups *groups = ctx;

    if (strcmp(mount->type, "cgroup2") == 0 && !groups->v2[0])
        snprintf(groups->v2, sizeof(groups->v2), "%s", mount->point);
    if (strcmp(mount->type, "cgroup") != 0)
        return true;
    for (size_t i = 0; i < CONTROLLERS; i++)
        if (has_word(mount->options, controllers[i], ','))
            snprintf(groups->v1[i], sizeof(groups->v1[i]), "%s", mount->point);
    return true;
}

/* Our own place in a hierarchy, as /proc/self/cgroup says: "4:memory:/x" or "0::/x". */
static void own_place(const char *controller, char *out, size_t size)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[4096];

    snprintf(out, size, "/");
    while (file && fgets(line, sizeof(line), file)) {
        struct str rest = { line, strcspn(line, "\n") };

        (void)str_cut(&rest, ':');
        struct str names = str_cut(&rest, ':');
        autofree char *list = xmemdup0(names.p, names.n);
        if (controller ? has_word(list, controller, ',') : names.n == 0)
            snprintf(out, size, "%.*s", STR_FMT(rest));
    }
    if (file)
        fclose(file);
}

/* Makes and removes a group beside ourselves. */
static bool group_can_be_made(const char *mount, const char *controller)
{
    char place[4096];

    own_place(controller, place, sizeof(place));
    autofree char *path = xprintf("%s%s/atoll-probe-%d", mount, place, getpid());
    autofree char *top = xprintf("%s/atoll-probe-%d", mount, getpid());
    const char *const tries[] = { path, top };
    for (size_t i = 0; i < ARRAY_LEN(tries); i++)
        if (mkdir(tries[i], 0700) == 0)
            return rmdir(tries[i]) == 0;
    return false;
}

static const char *mode_of(const struct cgroups *groups, bool any_v1)
{
    if (!groups->v2[0])
        return any_v1 ? "v1" : "none";
    return any_v1 ? "hybrid" : "v2";
}

static void cgroups(const struct probe_world *world, struct probe_result *out)
{
    autofree struct cgroups *groups = xnew(struct cgroups);
    autobuf struct buf text = { .max = sizeof(out->found) - 1 };
    bool any_v1 = false, all = true;

    host_mounts(note_cgroup, groups);
    if (groups->v2[0]) {
        autofree char *path = xprintf("%s/cgroup.controllers", groups->v2);

        host_line(path, groups->v2_controllers, sizeof(groups->v2_controllers));
    }
    for (size_t i = 0; i < CONTROLLERS; i++)
        any_v1 = any_v1 || groups->v1[i][0];
    buf_printf(&text, "%s:", mode_of(groups, any_v1));
    for (size_t i = 0; i < CONTROLLERS; i++) {
        bool one = groups->v1[i][0];
        /* In v2 freezing is always there. */
        bool two = !one && groups->v2[0] &&
                   (i == FREEZER || has_word(groups->v2_controllers, controllers[i], ' '));
        bool ours = one   ? group_can_be_made(groups->v1[i], controllers[i])
                    : two ? group_can_be_made(groups->v2, NULL)
                          : false;

        buf_printf(&text, " %s=%s%s", controllers[i],
                   one   ? "v1"
                   : two ? "v2"
                         : "no",
                   (one || two) && !ours ? "(not ours)" : "");
        all = all && ours;
    }
    probe_found(out, "%.*s", STR_FMT(buf_view(&text)));
    if (!all)
        probe_say(
            out, PROBE_LOST,
            world->root ? "sandboxes cannot be made: their limits could not hold"
                        : "memory is limited for each process and processes for each user inside; "
                          "no limit of cpu, no pause, no figures of use",
            world->root ? "mount the cgroup controllers cpu, memory, pids and freezer"
                        : "start the server as root, or with cgroup v2 as a systemd user service "
                          "with Delegate=yes; allow_degraded = cgroups accepts limits that do not "
                          "hold");
}

/* ---- the disk ---- */

#define SPACE_FAIL (64ull << 20)
#define SPACE_LOST (1ull << 30)

static void disk(const struct probe_world *world, struct probe_result *out)
{
    struct statvfs fs;

    if (statvfs(world->near, &fs) < 0) {
        probe_found(out, "%s: %s", world->near, strerrordesc_np(errno));
        probe_say(out, PROBE_FAIL, "the state directory cannot be used", "choose another --state");
        return;
    }
    uint64_t space = (uint64_t)fs.f_bavail * fs.f_frsize;
    bool few_inodes = fs.f_files && fs.f_favail < 10000;
    probe_found(out, "%llu MiB and %llu inodes free at %.60s", (unsigned long long)(space >> 20),
                (unsigned long long)fs.f_favail, world->near);
    if (space < SPACE_FAIL)
        probe_say(out, PROBE_FAIL, "the store has no room",
                  "free space, or choose another --state");
    else if (space < SPACE_LOST || few_inodes)
        probe_say(out, PROBE_LOST, "there is little room for images and workspaces",
                  "free space, or choose another --state");
}

static void state_fs(const struct probe_world *world, struct probe_result *out)
{
    static const struct {
        long magic;
        const char *name;
        enum probe_state state;
        const char *lost;
    } known[] = {
        { 0xef53, "ext4", PROBE_OK, "" },
        { 0x58465342, "xfs", PROBE_OK, "" },
        { 0x9123683e, "btrfs", PROBE_OK, "" },
        { 0xf2f52010, "f2fs", PROBE_OK, "" },
        { 0x2fc12fc1, "zfs", PROBE_OK, "" },
        { TMPFS_MAGIC, "tmpfs", PROBE_LOST, "everything is gone after a restart of the machine" },
        { OVERLAYFS_SUPER_MAGIC, "overlay", PROBE_LOST,
          "it goes with its container, and cannot be the upper layer of sandboxes" },
        { NFS_SUPER_MAGIC, "nfs", PROBE_FAIL, "locks and the write-ahead log need a local disk" },
        { 0xff534d42, "cifs", PROBE_FAIL, "locks and the write-ahead log need a local disk" },
        { FUSE_SUPER_MAGIC, "fuse", PROBE_LOST, "flushing to disk is only as good as its server" },
    };
    struct statfs fs;

    if (statfs(world->near, &fs) < 0) {
        probe_found(out, "%s", strerrordesc_np(errno));
        probe_say(out, PROBE_UNKNOWN, "the file system of the state directory is not known",
                  "put the state directory on ext4, xfs or btrfs");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if ((long)fs.f_type == known[i].magic) {
            probe_found(out, "%s", known[i].name);
            if (known[i].state != PROBE_OK)
                probe_say(out, known[i].state, known[i].lost,
                          "put the state directory on ext4, xfs or btrfs");
            return;
        }
    probe_found(out, "type %lx", (unsigned long)fs.f_type);
    probe_say(out, PROBE_UNKNOWN, "whether it keeps what was flushed is not known",
              "put the state directory on ext4, xfs or btrfs");
}

/* ---- limits ---- */

static void nofile(const struct probe_world *world, struct probe_result *out)
{
    struct rlimit limit = { 0 };

    (void)world;
    getrlimit(RLIMIT_NOFILE, &limit);
    probe_found(out, "%llu", (unsigned long long)limit.rlim_max);
    if (limit.rlim_max < 1024)
        probe_say(out, PROBE_FAIL, "too few descriptors for a server", "raise ulimit -Hn to 65536");
    else if (limit.rlim_max < 16384 + 1024)
        probe_say(out, PROBE_LOST, "fewer connections at once than allowed by default",
                  "raise ulimit -Hn to 65536 (LimitNOFILE= in a systemd unit)");
}

static void pid_max(const struct probe_world *world, struct probe_result *out)
{
    int64_t max = host_number("/proc/sys/kernel/pid_max", -1);

    (void)world;
    probe_found(out, "%lld", (long long)max);
    if (max < 0)
        probe_say(out, PROBE_UNKNOWN, "/proc/sys/kernel/pid_max cannot be read", "mount /proc");
    else if (max < 65536)
        probe_say(out, PROBE_LOST, "all sandboxes together have no more processes than that",
                  "sysctl kernel.pid_max=4194304");
}

/* ---- BPF ---- */

static void sk_lookup(const struct probe_world *world, struct probe_result *out)
{
    /* r0 = 1 (SK_PASS); exit */
    struct bpf_insn program[] = { { .code = 0xb7, .dst_reg = 0, .imm = 1 }, { .code = 0x95 } };
    union bpf_attr attr = { .prog_type = BPF_PROG_TYPE_SK_LOOKUP,
                            .expected_attach_type = BPF_SK_LOOKUP,
                            .insn_cnt = ARRAY_LEN(program),
                            .insns = (uintptr_t)program,
                            .license = (uintptr_t) "MIT" };
    autoclose int fd = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));

    if (fd >= 0) {
        probe_found(out, "loads");
        return;
    }
    probe_found(out, "%s", strerrordesc_np(errno));
    probe_say(out, PROBE_LOST, "programs that ignore proxy settings have no network at all",
              world->root ? "use Linux 5.9 or newer with CONFIG_BPF_SYSCALL"
                          : "start the server as root");
}

/* ---- the kernel ---- */

struct version {
    unsigned major, minor, patch;
};

static bool older(struct version a, struct version b)
{
    return a.major != b.major   ? a.major < b.major
           : a.minor != b.minor ? a.minor < b.minor
                                : a.patch < b.patch;
}

/* CVE-2022-0847: in 5.8, fixed in these stable releases and in everything from 5.17 on. */
bool probe_dirty_pipe(unsigned major, unsigned minor, unsigned patch)
{
    const struct version v = { major, minor, patch };
    static const struct version fixed[] = { { 5, 10, 102 }, { 5, 15, 25 }, { 5, 16, 11 } };

    if (older(v, (struct version){ 5, 8, 0 }) || !older(v, (struct version){ 5, 17, 0 }))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        if (v.major == fixed[i].major && v.minor == fixed[i].minor)
            return older(v, fixed[i]);
    return true;
}

/*
 * Bugs that let a reader of a file write to its cached pages. Distributions fix them without a new
 * version number, so of the newer ones (CVE-2026-31431, -43284, -43500, -43503, -46300) a version
 * tells nothing, and trying them out is an attack. What can be said is which of their doors is
 * open.
 */
static void kernel(const struct probe_world *world, struct probe_result *out)
{
    struct utsname name;
    struct version v = { 0 };

    (void)world;
    if (uname(&name) < 0 || sscanf(name.release, "%u.%u.%u", &v.major, &v.minor, &v.patch) < 2) {
        probe_found(out, "?");
        probe_say(out, PROBE_UNKNOWN, "the kernel does not say its version",
                  "install the newest kernel of your distribution");
        return;
    }
    probe_found(out, "%s", name.release);
    if (older(v, (struct version){ 5, 13, 0 }))
        probe_say(out, PROBE_FAIL, "older than any kernel that this server was tried on",
                  "use Linux 6.1 or newer");
    else if (probe_dirty_pipe(v.major, v.minor, v.patch))
        probe_say(out, PROBE_FAIL,
                  "by its version it has CVE-2022-0847: whoever may read a file may change it",
                  "install the newest kernel of your distribution, and restart");
    else
        probe_say(
            out, PROBE_UNKNOWN,
            "no version tells whether CVE-2026-31431, -43284, -43500, -43503 and -46300 (writes "
            "to cached pages) are fixed; the filters of sandboxes close their doors",
            "install the newest kernel of your distribution, and restart");
}

static bool protocol_loaded(const char *name)
{
    FILE *file = fopen("/proc/net/protocols", "re");
    char line[256];
    bool found = false;

    while (file && !found && fgets(line, sizeof(line), file))
        found = strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ' ';
    if (file)
        fclose(file);
    return found;
}

static void families(const struct probe_world *world, struct probe_result *out)
{
    bool alg = protocol_loaded("ALG"), rxrpc = protocol_loaded("RXRPC");

    (void)world;
    probe_found(out, "AF_ALG is %s, rxrpc is %s", alg ? "loaded" : "not loaded",
                rxrpc ? "loaded" : "not loaded");
    if (alg || rxrpc)
        probe_say(out, PROBE_LOST,
                  "programs outside of sandboxes can reach the code of CVE-2026-31431 and -43500",
                  "if nothing needs them: `install af_alg /bin/false` in /etc/modprobe.d");
}

const struct probe_check probe_machine_checks[] = {
    { "cgroups", cgroups },
    { "disk", disk },
    { "state_fs", state_fs },
    { "nofile", nofile },
    { "pid_max", pid_max },
    { "kvm", probe_kvm },
    { "sk_lookup", sk_lookup },
    { "kernel", kernel },
    { "families", families },
    { "disks", probe_disks },
    { 0 },
};
