/*
 * What cgroup.c writes and reads, against a made-up tree: plain directories with the kernel's
 * files in them. A write goes over the beginning of such a file, so each begins empty.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test.h"
#include "warden/box.h"

#define MAX_BYTES (512ull << 20)

static const char *top; /* of this test's tree */

static const char *in_tree(const char *path)
{
    static char text[4][600];
    static unsigned turn;
    char *out = text[turn++ % 4];

    snprintf(out, 600, "%s/%s", top, path);
    return out;
}

static void dir(const char *path)
{
    CHECK(mkdir(in_tree(path), 0755) == 0 || errno == EEXIST);
}

static void put(const char *path, const char *text)
{
    autoclose int fd = open(in_tree(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    CHECK(fd >= 0);
    CHECK_INT(write(fd, text, strlen(text)), strlen(text));
}

static const char *saw(const char *path)
{
    static char text[4096];
    autoclose int fd = open(in_tree(path), O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    CHECK(got >= 0);
    text[got] = 0;
    return text;
}

/* Files that a group of the kernel's would have, empty. */
static void files(const char *group, const char *const *names)
{
    char path[300];

    for (; *names; names++) {
        snprintf(path, sizeof(path), "%s/%s", group, *names);
        put(path, "");
    }
}

#define FILES(group, ...) files(group, (const char *const[]){ __VA_ARGS__, NULL })

static int open_with(const char *mounts, bool some)
{
    char mountinfo[600], self[600];

    snprintf(mountinfo, sizeof(mountinfo), "%s", in_tree("mountinfo"));
    snprintf(self, sizeof(self), "%s", in_tree("self"));
    put("mountinfo", mounts);
    return some ? cgroup_open_some(mountinfo, self, "ours") : cgroup_open(mountinfo, self, "ours");
}

static const char *v2_mount(void)
{
    static char text[700];

    snprintf(text, sizeof(text),
             "22 1 0:20 / /proc rw - proc proc rw\n"
             "36 25 0:30 / %s/v2 rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
             top);
    return text;
}

/* A service's group with `controllers` handed to it; ours is in it already, as on a restart. */
static void make_v2(const char *controllers)
{
    top = test_dir();
    dir("v2");
    dir("v2/svc");
    put("v2/svc/cgroup.controllers", controllers);
    FILES("v2/svc", "cgroup.type", "cgroup.subtree_control", "cgroup.procs");
    put("self", "0::/svc\n");
    dir("v2/svc/ours");
    FILES("v2/svc/ours", "cgroup.subtree_control");
    dir("v2/svc/ours/warden.self");
    FILES("v2/svc/ours/warden.self", "cgroup.procs");
}

#define BOX "v2/svc/ours/box1"

/* The kernel fills a new directory; here it is done after it was made. */
static void make_box(void)
{
    struct box_spec none = { .memory = 0 };

    CHECK_INT(cgroup_make("box1", &none), 0);
    FILES(BOX, "memory.max", "memory.swap.max", "cpu.max", "pids.max", "cgroup.freeze", "io.max");
}

static void make_blocks(void)
{
    static char path[600];

    dir("block");
    dir("block/vda");
    put("block/vda/dev", "254:0\n");
    put("block/vda/size", "536870912\n");
    dir("block/loop3"); /* without a file */
    put("block/loop3/dev", "7:3\n");
    put("block/loop3/size", "0\n");
    snprintf(path, sizeof(path), "%s", in_tree("block"));
    cgroup_io_blocks(path);
}

TEST(v2_limits_are_written_as_the_kernel_reads_them)
{
    struct box_applied applied = { .memory = 1 };

    make_v2("cpuset cpu io memory pids\n");
    make_blocks();
    CHECK_INT(open_with(v2_mount(), false), 0);
    CHECK_STR(cgroup_mode(), "v2");
    CHECK_INT(cgroup_lost(), 0);
    CHECK(!cgroup_missing());
    CHECK_STR(saw("v2/svc/cgroup.subtree_control"), "+memory +cpu +pids +io");
    CHECK_STR(saw("v2/svc/ours/cgroup.subtree_control"), "+memory +cpu +pids +io");
    CHECK_STR(saw("v2/svc/ours/warden.self/cgroup.procs"), "0");

    make_box();
    CHECK_INT(cgroup_limit("box1", MAX_BYTES, 77, 250), 0);
    CHECK_STR(saw(BOX "/memory.max"), "536870912");
    CHECK_STR(saw(BOX "/memory.swap.max"), "0");
    CHECK_STR(saw(BOX "/pids.max"), "77");
    CHECK_STR(saw(BOX "/cpu.max"), "250000 100000");
    cgroup_applied("box1", &applied);
    CHECK_INT(applied.memory, MAX_BYTES);
    CHECK_INT(applied.pids, 77);
    CHECK_INT(applied.cpu_quota_us, 250000);
    CHECK_INT(applied.cpu_period_us, 100000);
    CHECK_STR(applied.cgroup_mode, "v2");

    FILES(BOX, "cpu.max");
    CHECK_INT(cgroup_limit("box1", 0, 0, BOX_CPU_FREE), 0); /* 0 leaves the others alone */
    CHECK_STR(saw(BOX "/cpu.max"), "max 100000");
    CHECK_STR(saw(BOX "/pids.max"), "77");
    put(BOX "/memory.max", "max\n");
    put(BOX "/pids.max", "max\n");
    cgroup_applied("box1", &applied);
    CHECK(applied.memory == UINT64_MAX && applied.pids == UINT64_MAX);
    CHECK_INT(applied.cpu_quota_us, 0);

    CHECK_INT(unlink(in_tree(BOX "/memory.swap.max")), 0); /* a kernel without swap */
    FILES(BOX, "memory.max");
    CHECK_INT(cgroup_limit("box1", 1 << 20, 0, 0), 0);
    CHECK_STR(saw(BOX "/memory.max"), "1048576");
    CHECK_INT(unlink(in_tree(BOX "/memory.max")), 0); /* what cannot be set is not made */
    CHECK_INT(cgroup_limit("box1", 1 << 20, 0, 0), -1);
    cgroup_close(false);
}

TEST(v2_io_is_limited_for_every_disk_and_read_back)
{
    struct box_applied applied = { 0 };
    struct box_usage usage;

    make_v2("cpu io memory pids\n");
    make_blocks();
    CHECK_INT(open_with(v2_mount(), false), 0);
    CHECK_INT(cgroup_lost(), 0);
    make_box();
    cgroup_applied("box1", &applied);
    CHECK(applied.io_bytes == BOX_IO_FREE && applied.io_ops == BOX_IO_FREE && !applied.io_direct);
    CHECK_INT(cgroup_io("box1", 1 << 20, 0), 0);
    CHECK_STR(saw(BOX "/io.max"), "254:0 rbps=1048576 wbps=1048576");
    FILES(BOX, "io.max");
    CHECK_INT(cgroup_io("box1", 0, 50), 0);
    CHECK_STR(saw(BOX "/io.max"), "254:0 riops=50 wiops=50");
    FILES(BOX, "io.max");
    CHECK_INT(cgroup_io("box1", BOX_IO_FREE, BOX_IO_FREE), 0);
    CHECK_STR(saw(BOX "/io.max"), "254:0 rbps=max wbps=max riops=max wiops=max");
    put(BOX "/io.max", "7:3 rbps=1048576 wbps=max riops=max wiops=max\n"); /* it is away now */
    CHECK_INT(cgroup_io("box1", BOX_IO_FREE, 0), 0);
    CHECK(strncmp(saw(BOX "/io.max"), "7:3 rbps=max wbps=max", 21) == 0); /* over the other's */
    put(BOX "/io.max", "254:0 rbps=2097152 wbps=1048576 riops=max wiops=max\n"
                       "7:0 rbps=1048576 wbps=1048576 riops=max wiops=70\n");
    cgroup_applied("box1", &applied);
    CHECK_INT(applied.io_bytes, 1 << 20);
    CHECK(applied.io_ops == BOX_IO_FREE); /* one way is not held back */
    FILES(BOX, "io.max");
    CHECK_INT(cgroup_io("box1", 0, 0), 0);
    CHECK_STR(saw(BOX "/io.max"), "");

    cgroup_usage("box1", &usage);
    CHECK(usage.io_read == UINT64_MAX && usage.io_written == UINT64_MAX);
    put(BOX "/io.stat", "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n"
                        "7:0 rbytes=1 wbytes=2 rios=1 wios=1\n");
    cgroup_usage("box1", &usage);
    CHECK_INT(usage.io_read, 4097);
    CHECK_INT(usage.io_written, 8194);
    CHECK_INT(unlink(in_tree(BOX "/io.max")), 0); /* what cannot be set is an error */
    CHECK_INT(cgroup_io("box1", 1 << 20, 0), -1);
    cgroup_close(false);
    cgroup_io_blocks("/sys/block");
}

TEST(without_a_disk_or_a_controller_io_is_lost)
{
    make_v2("cpu io memory pids\n");
    make_blocks();
    put("block/vda/size", "0\n");
    CHECK_INT(open_with(v2_mount(), false), 0);
    CHECK_INT(cgroup_lost(), BOX_LOST_IO);
    make_box();
    CHECK_INT(cgroup_io("box1", 1 << 20, 0), -1);
    CHECK_INT(errno, ENOTSUP);
    cgroup_close(false);

    make_v2("cpu memory pids\n");
    make_blocks();
    CHECK_INT(open_with(v2_mount(), false), 0);
    CHECK_INT(cgroup_lost(), BOX_LOST_IO);
    make_box();
    CHECK_INT(cgroup_io("box1", 1 << 20, 0), -1);
    CHECK_INT(errno, ENOTSUP);
    cgroup_close(false);
    cgroup_io_blocks("/sys/block");
}

TEST(v2_usage_is_read_by_its_names)
{
    struct box_usage usage;

    make_v2("cpu memory pids\n");
    CHECK_INT(open_with(v2_mount(), false), 0);
    make_box();
    put(BOX "/cpu.stat", "nr_usage_usec 9\nusage_usec 123456\nuser_usec 100000\n");
    put(BOX "/memory.current", "4096\n");
    put(BOX "/memory.peak", "8192\n");
    put(BOX "/memory.events", "low 0\nhigh 1\nmax 5\noom 4\noom_kill 3\noom_group_kill 2\n");
    put(BOX "/pids.current", "6\n");
    put(BOX "/memory.stat", "anon 1\nfile 2\nshmem 30\nfile_dirty 500\nfile_writeback 60\n");
    put(BOX "/cgroup.events", "populated 1\nfrozen 1\n");
    cgroup_usage("box1", &usage);
    CHECK_INT(usage.dirty, 560);
    CHECK_INT(usage.shmem, 30);
    CHECK_INT(usage.cpu_us, 123456);
    CHECK_INT(usage.memory, 4096);
    CHECK_INT(usage.memory_peak, 8192);
    CHECK_INT(usage.oom_kills, 3);
    CHECK_INT(usage.pids, 6);
    CHECK_INT(usage.frozen, 1);
    put(BOX "/cgroup.events", "populated 1\nfrozen 0\n");
    CHECK(!cgroup_frozen("box1"));
    CHECK_INT(unlink(in_tree(BOX "/memory.peak")), 0); /* before 5.19 */
    cgroup_usage("box1", &usage);
    CHECK_INT(usage.memory_peak, 0);
    CHECK_INT(usage.memory, 4096);

    CHECK_INT(cgroup_freeze("box1", true), 0);
    CHECK_STR(saw(BOX "/cgroup.freeze"), "1");
    CHECK_INT(cgroup_freeze("box1", false), 0);
    CHECK_STR(saw(BOX "/cgroup.freeze"), "0");
    cgroup_close(false);
}

static pid_t sleeper(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* not left behind by a test that fails */
        for (;;)
            pause();
    }
    CHECK(pid > 0);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

TEST(v2_is_killed_at_once_or_by_number)
{
    pid_t pid = sleeper();
    autoclose int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd ended = { .fd = pidfd, .events = POLLIN };
    char text[64];
    int status;

    make_v2("cpu memory pids\n");
    CHECK_INT(open_with(v2_mount(), false), 0);
    make_box();
    snprintf(text, sizeof(text), "0\n%d\n", pid); /* 0: one that we do not see */
    put(BOX "/cgroup.procs", text);
    put(BOX "/cgroup.freeze", "1");
    put(BOX "/cgroup.kill", "");
    CHECK_INT(cgroup_kill("box1"), 2);
    CHECK_STR(saw(BOX "/cgroup.kill"), "1");
    CHECK_STR(saw(BOX "/cgroup.freeze"), "0"); /* thawed for it */
    CHECK_INT(poll(&ended, 1, 100), 0);        /* that was for the kernel to do */
    CHECK_INT(unlink(in_tree(BOX "/cgroup.kill")), 0);
    CHECK_INT(cgroup_kill("box1"), 2);
    CHECK_INT(poll(&ended, 1, 10000), 1);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    put(BOX "/cgroup.procs", "");
    CHECK_INT(cgroup_kill("box1"), 0);
    cgroup_close(false);
}

TEST(a_new_process_is_born_into_v2)
{
    struct cgroup_doors doors;
    struct stat into, box;

    make_v2("cpu memory pids\n");
    CHECK_INT(open_with(v2_mount(), false), 0);
    make_box();
    CHECK_INT(cgroup_doors("box1", &doors), 0);
    CHECK_INT(doors.count, 0);
    CHECK(fstat(doors.into, &into) == 0 && stat(in_tree(BOX), &box) == 0);
    CHECK(into.st_ino == box.st_ino && into.st_dev == box.st_dev);
    cgroup_doors_close(&doors);
    CHECK_INT(doors.into, -1);
    cgroup_close(false);
}

TEST(our_own_processes_step_aside_and_no_others)
{
    pid_t ours = sleeper();
    char text[64], number[16];

    make_v2("cpu memory pids\n");
    snprintf(number, sizeof(number), "%d", ours);
    snprintf(text, sizeof(text), "%d\n%s\n%d\n", getpid(), number, getppid());
    put("v2/svc/cgroup.procs", text);
    CHECK_INT(open_with(v2_mount(), false), 0);
    CHECK_STR(saw("v2/svc/ours/warden.self/cgroup.procs"), number); /* the last that was written */
    cgroup_close(false);

    FILES("v2/svc/ours/warden.self", "cgroup.procs"); /* the real root holds whom it likes */
    CHECK_INT(unlink(in_tree("v2/svc/cgroup.type")), 0);
    CHECK_INT(open_with(v2_mount(), false), 0);
    CHECK_STR(saw("v2/svc/ours/warden.self/cgroup.procs"), "");
    cgroup_close(false);
    end(ours);
}

TEST(boxes_that_go_on_keep_their_limits)
{
    make_v2("cpu memory pids\n");
    CHECK_INT(open_with(v2_mount(), false), 0);
    make_box();
    cgroup_close(true);
    CHECK_STR(saw("v2/svc/ours/cgroup.subtree_control"), "+memory +cpu +pids");
    CHECK_STR(saw("v2/svc/cgroup.procs"), "");

    CHECK_INT(rename(in_tree(BOX), in_tree("gone")), 0);
    CHECK_INT(open_with(v2_mount(), false), 0);
    cgroup_close(true);
    CHECK_STR(saw("v2/svc/ours/cgroup.subtree_control"), "-memory -cpu -pids");
    CHECK_STR(saw("v2/svc/cgroup.subtree_control"), "-memory -cpu -pids");
    CHECK_STR(saw("v2/svc/cgroup.procs"), "0");
}

TEST(a_missing_controller_is_named)
{
    static const struct {
        const char *has, *missing;
        uint32_t lost;
    } cases[] = {
        { "cpu pids\n", "memory", BOX_LOST_MEMORY | BOX_LOST_USAGE },
        { "memory pids cpuset\n", "cpu", BOX_LOST_CPU | BOX_LOST_USAGE },
        { "cpu memory\n", "pids", BOX_LOST_PIDS | BOX_LOST_USAGE },
        { "\n", "memory", BOX_LOST_MEMORY | BOX_LOST_CPU | BOX_LOST_PIDS | BOX_LOST_USAGE },
    };
    struct box_spec spec = { .memory = MAX_BYTES, .pids = 9, .cpu_percent = 100 };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        make_v2(cases[i].has);
        errno = 0;
        CHECK_INT(open_with(v2_mount(), false), -1);
        CHECK_INT(errno, ENOTSUP);
        CHECK_STR(cgroup_missing(), cases[i].missing);

        /* An ordinary user goes without, and is told. */
        CHECK_INT(open_with(v2_mount(), true), 0);
        CHECK_INT(cgroup_lost(), cases[i].lost | BOX_LOST_IO);
        CHECK_STR(cgroup_mode(), "v2");
        dir("v2/svc/ours/box1");
        FILES(BOX, "cgroup.freeze");
        CHECK_INT(cgroup_freeze("box1", true), 0); /* needs no controller */
        CHECK_STR(saw(BOX "/cgroup.freeze"), "1");
        CHECK_INT(cgroup_limit("box1", cases[i].lost & BOX_LOST_MEMORY ? spec.memory : 0,
                               cases[i].lost & BOX_LOST_PIDS ? spec.pids : 0,
                               cases[i].lost & BOX_LOST_CPU ? spec.cpu_percent : 0),
                  -1);
        CHECK_INT(errno, ENOTSUP);
        cgroup_close(false);
    }
    make_v2("\n"); /* with nothing to set, nothing is set */
    CHECK_INT(open_with(v2_mount(), true), 0);
    CHECK_INT(cgroup_make("box1", &spec), 0);
    CHECK_STR(saw("v2/svc/ours/cgroup.subtree_control"), "");
    cgroup_close(false);
}

/* As while a stranger is in the group above. */
TEST(controllers_that_cannot_be_had_now_are_tried_for_again)
{
    struct box_spec none = { .memory = 0 };

    top = test_dir();
    dir("v2");
    dir("v2/svc");
    put("v2/svc/cgroup.controllers", "memory cpu pids io\n");
    FILES("v2/svc", "cgroup.subtree_control", "cgroup.procs");
    put("self", "0::/svc\n");
    make_blocks();
    CHECK_INT(open_with(v2_mount(), false), 0);
    for (int i = 0; i < 3; i++)
        CHECK_INT(cgroup_make("box1", &none), -1);
    CHECK(!(cgroup_lost() & BOX_LOST_IO)); /* nothing was given up for it */
    FILES("v2/svc/ours", "cgroup.subtree_control");
    CHECK_INT(cgroup_make("box1", &none), 0);
    CHECK_STR(saw("v2/svc/ours/cgroup.subtree_control"), "+memory +cpu +pids +io");
    cgroup_close(false);
}

TEST(a_user_without_any_group_has_none)
{
    make_v2("cpu memory pids\n");
    CHECK_INT(open_with("22 1 0:20 / /proc rw - proc proc rw\n", true), 0);
    CHECK_STR(cgroup_mode(), "none");
    CHECK_INT(cgroup_lost(), BOX_LOST_MEMORY | BOX_LOST_CPU | BOX_LOST_PIDS | BOX_LOST_FREEZER |
                                 BOX_LOST_USAGE | BOX_LOST_IO);
    cgroup_close(false);

    /* One that may not be written to is as good as none: here a file is in the way. */
    top = test_dir();
    dir("v2");
    put("v2/cgroup.controllers", "cpu memory pids\n");
    put("v2/ours", "");
    put("self", "0::/\n");
    CHECK_INT(open_with(v2_mount(), true), 0);
    CHECK_STR(cgroup_mode(), "none");
    CHECK(cgroup_lost() & BOX_LOST_MEMORY);
    cgroup_close(false);
}

/* memory and freezer on v1, the rest on v2: each by itself. */
static void make_hybrid(void)
{
    char mounts[3000];

    make_v2("cpu pids memory\n");
    dir("memory");
    dir("memory/a");
    dir("freezer");
    put("self", "5:memory:/a\n4:freezer:/\n1:name=systemd:/x\n0::/svc\n");
    snprintf(mounts, sizeof(mounts),
             "%s40 25 0:31 / %s/memory rw - cgroup cgroup rw,memory\n"
             "41 25 0:32 / %s/freezer rw - cgroup cgroup rw,freezer\n",
             v2_mount(), top, top);
    CHECK_INT(open_with(mounts, false), 0);
    CHECK_STR(cgroup_mode(), "hybrid");
    make_box();
    FILES("memory/a/ours/box1", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "tasks");
    FILES("freezer/ours/box1", "freezer.state", "tasks");
}

TEST(hybrid_puts_each_limit_where_its_controller_is)
{
    struct box_applied applied = { .memory = 1 };
    struct cgroup_doors doors;

    make_hybrid();
    CHECK_STR(saw("v2/svc/ours/cgroup.subtree_control"), "+cpu +pids"); /* memory is taken */
    CHECK_INT(cgroup_limit("box1", MAX_BYTES, 12, 50), 0);
    CHECK_STR(saw("memory/a/ours/box1/memory.limit_in_bytes"), "536870912");
    CHECK_STR(saw("memory/a/ours/box1/memory.memsw.limit_in_bytes"), "536870912");
    CHECK_STR(saw(BOX "/memory.max"), "");
    CHECK_STR(saw(BOX "/cpu.max"), "50000 100000");
    CHECK_STR(saw(BOX "/pids.max"), "12");
    cgroup_applied("box1", &applied);
    CHECK_INT(applied.memory, MAX_BYTES);
    CHECK_INT(applied.pids, 12);
    CHECK_INT(applied.cpu_quota_us, 50000);
    CHECK_STR(applied.cgroup_mode, "hybrid");
    CHECK_INT(cgroup_doors("box1", &doors), 0);
    CHECK_INT(doors.count, 1);
    CHECK(doors.memory >= 0 && doors.into >= 0);
    cgroup_doors_close(&doors);
    cgroup_close(false);
}

TEST(a_quota_that_is_there_is_not_written_again)
{
#define QUOTA "cpu/ours/box1/cpu.cfs_quota_us"
    const struct timespec long_ago[] = { { 1, 0 }, { 1, 0 } };
    struct stat st;
    char mounts[3000];

    make_v2("pids memory\n");
    dir("cpu");
    dir("cpu/ours");
    dir("cpu/ours/box1");
    dir("freezer");
    put("self", "5:cpu,cpuacct:/\n4:freezer:/\n0::/svc\n");
    snprintf(mounts, sizeof(mounts),
             "%s40 25 0:31 / %s/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
             "41 25 0:32 / %s/freezer rw - cgroup cgroup rw,freezer\n",
             v2_mount(), top, top);
    CHECK_INT(open_with(mounts, false), 0);
    put(QUOTA, "50000\n");
    CHECK_INT(utimensat(AT_FDCWD, in_tree(QUOTA), long_ago, 0), 0);
    CHECK_INT(cgroup_limit("box1", 0, 0, 50), 0);
    CHECK(stat(in_tree(QUOTA), &st) == 0 && st.st_mtime == 1);
    CHECK_INT(cgroup_limit("box1", 0, 0, 5), 0);
    CHECK(strncmp(saw(QUOTA), "5000", 4) == 0);
    put(QUOTA, "-1\n");
    CHECK_INT(cgroup_limit("box1", 0, 0, 500), 0);
    CHECK_STR(saw(QUOTA), "500000");
    cgroup_close(false);
}

TEST(hybrid_reads_each_number_where_its_controller_is)
{
    struct box_usage usage;

    make_hybrid();
    put("memory/a/ours/box1/memory.usage_in_bytes", "4097\n");
    put("memory/a/ours/box1/memory.max_usage_in_bytes", "8193\n");
    put("memory/a/ours/box1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    put("freezer/ours/box1/freezer.state", "FREEZING\n");
    put(BOX "/memory.current", "1\n");
    put(BOX "/cpu.stat", "usage_usec 7\n");
    put(BOX "/pids.current", "3\n");
    put(BOX "/cgroup.events", "populated 1\nfrozen 1\n"); /* not asked */
    cgroup_usage("box1", &usage);
    CHECK_INT(usage.memory, 4097);
    CHECK_INT(usage.memory_peak, 8193);
    CHECK_INT(usage.oom_kills, 2);
    CHECK_INT(usage.cpu_us, 7);
    CHECK_INT(usage.pids, 3);
    CHECK_INT(usage.frozen, 0);
    FILES("freezer/ours/box1", "freezer.state");
    dir("freezer/ours/.cold");
    FILES("freezer/ours/.cold", "freezer.state");
    CHECK_INT(cgroup_freeze("box1", false), 0);
    CHECK_STR(saw("freezer/ours/.cold/freezer.state"), "");
    CHECK_INT(cgroup_freeze("box1", true), 0);
    CHECK_STR(saw("freezer/ours/box1/freezer.state"), "FROZEN");
    CHECK(cgroup_frozen("box1"));
    /* One that nobody is in is frozen with the first, and stays so. */
    CHECK_STR(saw("freezer/ours/.cold/freezer.state"), "FROZEN");
    CHECK_INT(cgroup_freeze("box1", false), 0);
    CHECK_STR(saw("freezer/ours/box1/freezer.state"), "THAWED");
    CHECK_STR(saw("freezer/ours/.cold/freezer.state"), "FROZEN");
    CHECK_STR(saw(BOX "/cgroup.freeze"), "");
    cgroup_close(false);
}

TEST(a_part_of_a_hierarchy_that_is_mounted_is_found)
{
    char mounts[700];

    top = test_dir();
    dir("v2");
    put("v2/cgroup.controllers", "cpu memory pids\n");
    FILES("v2", "cgroup.type", "cgroup.subtree_control", "cgroup.procs");
    dir("v2/ours");
    FILES("v2/ours", "cgroup.subtree_control");
    put("self", "0::/docker/abc\n");
    snprintf(mounts, sizeof(mounts), "36 25 0:30 /docker/abc %s/v2 rw - cgroup2 cgroup2 rw\n", top);
    CHECK_INT(open_with(mounts, false), 0);
    CHECK_STR(cgroup_mode(), "v2");
    cgroup_close(false);
}
