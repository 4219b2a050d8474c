/*
 * Leaks that are made on purpose. This program is also the processes that leak: started with the
 * name of one of ours, a constructor plays its part before any test framework runs.
 */
#include "host/leaks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "base/mem.h"
#include "base/test.h"
#include "host/own.h"
#include "wire/layout.h"

/* ---- the parts ---- */

/* "atoll-warden" DIR: holds DIR/lock if DIR is given, with an "atoll-init" below itself. */
__attribute__((constructor)) static void play(int argc, char **argv, char **envp)
{
    (void)envp;
    if (argc > 1 && strcmp(argv[0], "atoll-init") == 0)
        for (;;)
            pause();
    if (argc < 1 || strcmp(argv[0], "atoll-warden") != 0)
        return;
    prctl(PR_SET_NAME, "atoll-warden", 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    int fd = -1;
    if (argc > 1) {
        char path[4096];

        snprintf(path, sizeof(path), "%s/lock", argv[1]);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ||
            dup2(open(argv[1], O_PATH | O_CLOEXEC), WARDEN_FD_STATE) < 0)
            _exit(1);
    }
    if (fork() == 0) {
        close(fd);
        prctl(PR_SET_NAME, "atoll-init", 0, 0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (write(1, "x", 1) == 1)
            for (;;)
                pause();
    }
    for (;;)
        pause();
}

static pid_t start_warden(const char *dir)
{
    int ready[2];
    char byte;

    CHECK(pipe2(ready, O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(ready[1], 1);
        execl("/proc/self/exe", "atoll-warden", dir, (char *)NULL);
        _exit(1);
    }
    close(ready[1]);
    CHECK_INT(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- looking ---- */

static struct leak seen[8192]; /* of all that is on this machine */
static size_t seen_count;

static void note(void *ctx, const struct leak *leak)
{
    (void)ctx;
    CHECK(leak->what[0] && leak->why[0]);
    if (seen_count < ARRAY_LEN(seen))
        seen[seen_count++] = *leak;
}

static void look(const char *dir)
{
    struct err err;

    seen_count = 0;
    int found = host_leaks(dir, note, NULL, &err);
    CHECK_OK(found, &err);
    CHECK(found >= (int)seen_count);
}

static const struct leak *with(enum leak_kind kind, const char *text)
{
    for (size_t i = 0; i < seen_count; i++)
        if (seen[i].kind == kind && strstr(seen[i].what, text))
            return &seen[i];
    return NULL;
}

static void make(const char *dir, const char *name)
{
    autofree char *path = xprintf("%s/%s", dir, name);
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
}

TEST(a_directory_that_is_not_there_has_no_leaks_of_its_own)
{
    autofree char *dir = xprintf("%s/none", test_dir());
    struct err err;

    CHECK_INT(host_lock_holder(dir, &err), 0);
    look(dir);
    CHECK(!with(LEAK_FILE, dir));
}

TEST(files_without_a_server)
{
    const char *dir = test_dir();
    autofree char *data = xprintf("%s/data", dir);

    CHECK(mkdir(data, 0700) == 0);
    make(dir, "lock");
    make(dir, "admin.token");
    make(dir, "egress.key");
    make(dir, "disks.img");
    make(data, "atoll.db");
    make(data, "atoll.db-wal");
    look(dir);
    CHECK(!with(LEAK_FILE, dir));

    make(dir, "atoll.sock");
    make(dir, "door.sock");
    make(dir, "disks.new");
    make(dir, "admin.token.tmp");
    make(dir, "stranger");
    make(data, "atoll.db.new");
    look(dir);
    CHECK(with(LEAK_FILE, "/atoll.sock"));
    CHECK(with(LEAK_FILE, "/door.sock"));
    CHECK(with(LEAK_FILE, "/disks.new"));
    CHECK(with(LEAK_FILE, "/admin.token.tmp"));
    CHECK(with(LEAK_FILE, "/stranger"));
    CHECK(with(LEAK_FILE, "/data/atoll.db.new"));
    CHECK_INT(with(LEAK_FILE, "/stranger")->pid, 0);
}

TEST(a_running_server_owns_its_files_and_processes)
{
    const char *dir = test_dir();
    struct err err;

    make(dir, "atoll.sock");
    make(dir, "admin.token.tmp"); /* young */
    look(dir);
    CHECK(with(LEAK_FILE, "/atoll.sock"));
    pid_t pid = start_warden(dir);
    CHECK_INT(host_lock_holder(dir, &err), pid);
    look(dir);
    autofree char *name = xprintf("pid %d ", pid);
    CHECK(!with(LEAK_FILE, dir));
    CHECK(!with(LEAK_PROCESS, name));
    for (size_t i = 0; i < seen_count; i++) {
        autofree char *stat = xprintf("/proc/%d/stat", seen[i].pid);
        autofree char *parent = xprintf(") S %d ", pid);
        char line[512];

        /* none of the processes found is a child of this warden */
        CHECK(!seen[i].pid || !host_line(stat, line, sizeof(line)) || !strstr(line, parent));
    }
    end(pid);
    CHECK_INT(host_lock_holder(dir, &err), 0);
}

TEST(processes_without_an_owner)
{
    pid_t lockless = start_warden(NULL);
    autofree char *name = xprintf("pid %d (atoll-warden)", lockless);
    const struct leak *leak;

    look(test_dir());
    CHECK((leak = with(LEAK_PROCESS, name)) && leak->pid == lockless);
    end(lockless);

    pid_t orphan = fork(); /* an init whose parent is no warden */
    CHECK(orphan >= 0);
    if (orphan == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        prctl(PR_SET_NAME, "atoll-init", 0, 0, 0);
        for (;;)
            pause();
    }
    autofree char *init = xprintf("pid %d (atoll-init)", orphan);
    for (int i = 0; i < 100 && !with(LEAK_PROCESS, init); i++) {
        usleep(10000);
        look(test_dir());
    }
    CHECK(with(LEAK_PROCESS, init));
    end(orphan);
    look(test_dir());
    CHECK(!with(LEAK_PROCESS, init));
}

static char group[4096];

static bool make_group(void *ctx, const struct host_mount *mount)
{
    (void)ctx;
    if (strncmp(mount->type, "cgroup", 6) != 0)
        return true;
    snprintf(group, sizeof(group), "%.4000s/atoll-leak-test-%d", mount->point, getpid());
    if (mkdir(group, 0700) == 0)
        return false;
    group[0] = 0;
    return true;
}

TEST(a_cgroup_without_processes)
{
    if (geteuid() != 0)
        test_skip("needs root");
    CHECK(host_mounts(make_group, NULL));
    if (!group[0])
        test_skip("no cgroup can be made here");
    look(test_dir());
    const struct leak *leak = with(LEAK_CGROUP, group);
    CHECK(rmdir(group) == 0);
    CHECK(leak != NULL);
    look(test_dir());
    CHECK(!with(LEAK_CGROUP, group));
}

/* ---- what is left of state directories ---- */

struct left {
    const char *dir; /* what its group says; NULL: nothing */
    char mark[64];
    pid_t init; /* in it */
};

static bool make_left(void *ctx, const struct host_mount *mount)
{
    struct left *left = ctx;

    if (strcmp(mount->type, "cgroup") != 0 && strcmp(mount->type, "cgroup2") != 0)
        return true;
    snprintf(group, sizeof(group), "%.3900s/%s", mount->point, left->mark);
    if (mkdir(group, 0700) == 0 && (!left->dir || setxattr(group, "trusted." CGROUP_OWNER,
                                                           left->dir, strlen(left->dir), 0) == 0))
        return false;
    rmdir(group);
    group[0] = 0;
    return true;
}

/* A group as a server leaves it, with an init in it, whose parent is no warden. */
static void leave(struct left *left)
{
    struct stat st = { .st_dev = 1, .st_ino = (ino_t)getpid() };

    CHECK(!left->dir || stat(left->dir, &st) == 0);
    snprintf(left->mark, sizeof(left->mark), "atoll-%llx-%llx", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    group[0] = 0;
    CHECK(host_mounts(make_left, left));
    if (!group[0])
        test_skip("no cgroup can be made here");
    CHECK((left->init = fork()) >= 0);
    if (left->init == 0) {
        autofree char *procs = xprintf("%s/cgroup.procs", group);
        autoclose int fd = open(procs, O_WRONLY | O_CLOEXEC);

        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (fd < 0 || write(fd, "0", 1) != 1)
            _exit(1);
        execl("/proc/self/exe", "atoll-init", left->mark, "box", (char *)NULL);
        _exit(1);
    }
}

/* Waits until it is in its group, and what it is to be. */
static void await_init(const struct left *left)
{
    autofree char *path = xprintf("/proc/%d/cmdline", left->init);
    char line[64] = "";

    for (int i = 0; i < 500 && strcmp(line, "atoll-init") != 0; i++) {
        usleep(10000);
        host_line(path, line, sizeof(line));
    }
}

static void look_at(const char *dir, const struct left *left)
{
    await_init(left);
    look(dir);
}

static void tidy(struct left *left)
{
    end(left->init);
    for (int i = 0; i < 500 && rmdir(group) < 0 && errno == EBUSY; i++)
        usleep(10000);
    CHECK(access(group, F_OK) < 0);
}

static bool names(const struct left *left, const char *why)
{
    autofree char *pid = xprintf("pid %d (atoll-init)", left->init);
    const struct leak *process = with(LEAK_PROCESS, pid), *cgroup = with(LEAK_CGROUP, group);

    return process && cgroup && strstr(process->why, why) && strstr(cgroup->why, why);
}

TEST(sandboxes_of_a_state_directory_that_waits_are_no_leak)
{
    const char *base = test_dir(); /* once: the next may get the number of one that is gone */
    autofree char *dir = xprintf("%s/other", base);
    struct left left = { .dir = dir };

    if (geteuid() != 0)
        test_skip("needs root");
    CHECK(mkdir(dir, 0700) == 0);
    leave(&left);
    look_at(base, &left);
    bool accused = with(LEAK_CGROUP, group) || names(&left, "");
    end(left.init);
    left.init = 0;
    look(base); /* and without them its group is one */
    const struct leak *empty = with(LEAK_CGROUP, group);
    bool named = empty && strstr(empty->why, "no process");
    CHECK(rmdir(group) == 0);
    CHECK(!accused && named);
}

TEST(sandboxes_whose_state_directory_is_gone)
{
    const char *base = test_dir(); /* once: the next may get the number of one that is gone */
    autofree char *dir = xprintf("%s/other", base);
    struct left left = { .dir = dir };

    if (geteuid() != 0)
        test_skip("needs root");
    CHECK(mkdir(dir, 0700) == 0);
    leave(&left);
    CHECK(rmdir(dir) == 0);
    look_at(base, &left);
    bool gone = names(&left, "state directory is gone");
    CHECK(mkdir(dir, 0700) == 0); /* the same path, and another directory */
    struct stat st;
    CHECK(stat(dir, &st) == 0);
    look(base);
    autofree char *now = xprintf("-%llx", (unsigned long long)st.st_ino);
    bool other = strstr(left.mark, now) || names(&left, "state directory is gone");
    tidy(&left);
    CHECK(gone && other);
}

/* True: it is gone, or something in it. Others of this machine that are nobody's go with it. */
static bool swept(const char *base, const char *in)
{
    host_sweep(base);
    return access(group, F_OK) < 0 || access(in, F_OK) < 0;
}

/* As a warden that cannot be seen from here: no server that is started meanwhile removes it. */
static int hold_group(void)
{
    int lock = open(group, O_RDONLY | O_CLOEXEC);

    CHECK(lock >= 0 && flock(lock, LOCK_SH) == 0);
    return lock;
}

TEST(an_empty_group_whose_state_directory_is_gone_is_removed_and_no_other)
{
    const char *base = test_dir(); /* once: the next may get the number of one that is gone */
    autofree char *dir = xprintf("%s/other", base), *moved = xprintf("%s/moved", base);
    struct left left = { .dir = dir };

    if (geteuid() != 0)
        test_skip("needs root");
    CHECK(mkdir(dir, 0700) == 0);
    leave(&left);
    autofree char *box = xprintf("%s/box", group), *spare = xprintf("%s/.ahead0", group);
    CHECK(mkdir(box, 0755) == 0 && mkdir(spare, 0755) == 0);
    await_init(&left);
    CHECK(rename(dir, moved) == 0);
    bool busy = swept(base, box); /* somebody is in it */
    int lock = hold_group();
    end(left.init);
    CHECK(rename(moved, dir) == 0);
    close(lock);
    bool there = swept(base, box); /* a server may come back */
    lock = hold_group();
    CHECK(rename(dir, moved) == 0);
    pid_t warden = start_warden(moved);
    close(lock);
    bool runs = swept(base, box);
    lock = hold_group();
    end(warden);
    bool locked = swept(base, box);
    close(lock);
    look(base);
    const struct leak *leak = with(LEAK_CGROUP, group);
    bool told = leak ? strstr(leak->why, "the next server that starts removes it") != NULL
                     : access(group, F_OK) < 0; /* one has just been started */
    host_sweep(base);
    bool gone = access(group, F_OK) < 0;
    if (!gone)
        CHECK(rmdir(box) == 0 && rmdir(spare) == 0 && rmdir(group) == 0);
    CHECK(!busy && !there && !runs && !locked && told && gone);
    left.dir = NULL; /* one that says nothing is nobody's to remove */
    leave(&left);
    end(left.init);
    bool silent = swept(base, group);
    CHECK(silent || rmdir(group) == 0);
    CHECK(!silent);
}

TEST(sandboxes_that_no_server_knows)
{
    const char *base = test_dir();
    struct left left = { 0 };

    if (geteuid() != 0)
        test_skip("needs root");
    leave(&left);
    look_at(base, &left);
    bool named = names(&left, "no server runs");
    tidy(&left);
    CHECK(named);
}

TEST(sandboxes_of_a_server_that_runs_elsewhere)
{
    const char *base = test_dir(); /* once: the next may get the number of one that is gone */
    autofree char *dir = xprintf("%s/other", base);
    struct left left = { .dir = dir };

    if (geteuid() != 0)
        test_skip("needs root");
    CHECK(mkdir(dir, 0700) == 0);
    leave(&left);
    pid_t warden = start_warden(dir);
    autofree char *moved = xprintf("%s/moved", base);
    CHECK(rename(dir, moved) == 0); /* it has it open, wherever it is */
    look_at(base, &left);
    bool accused = names(&left, "") || with(LEAK_CGROUP, group);
    end(warden);
    tidy(&left);
    CHECK(!accused);
}

/* In a mount namespace of its own: what is seen there is ours. */
static int mounted(const void *arg)
{
    const char *dir = arg;
    autofree char *a = xprintf("%s/a", dir), *b = xprintf("%s/b", dir);

    make(dir, "b");
    if (mkdir(a, 0700) < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", a, "tmpfs", 0, NULL) < 0 ||
        mount("/proc/self/ns/uts", b, NULL, MS_BIND, NULL) < 0)
        return 1;
    look(dir);
    if (!with(LEAK_MOUNT, a) || !with(LEAK_NAMESPACE, b))
        return 2;
    pid_t pid = start_warden(dir);
    look(dir);
    bool owned = !with(LEAK_MOUNT, a) && !with(LEAK_NAMESPACE, b);
    end(pid);
    return owned ? 0 : 3;
}

TEST(mounts_and_namespaces_without_a_server)
{
    if (geteuid() != 0)
        test_skip("needs root");
    CHECK_INT(probe_child(mounted, test_dir(), 5000), 0);
}

/* The device that now holds DIR/disks.img, or -1. It lets go when it is closed. */
static int hold_disks(const char *dir, char name[32])
{
    autofree char *path = xprintf("%s/disks.img", dir);
    autoclose int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    autoclose int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    CHECK(file >= 0 && ftruncate(file, 1 << 20) == 0);
    for (int i = 0; control >= 0 && i < 20; i++) { /* others look for one too */
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        struct loop_config config = { .fd = (uint32_t)file, .info.lo_flags = LO_FLAGS_AUTOCLEAR };

        snprintf(name, 32, "/dev/loop%d", number);
        autoclose int loop = number < 0 ? -1 : open(name, O_RDWR | O_CLOEXEC);
        if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config) == 0)
            return take_fd(&loop);
    }
    return -1;
}

TEST(a_loop_device_without_a_server)
{
    const char *dir = test_dir();
    autofree char *path = xprintf("%s/disks.img", dir), *other = xprintf("%s/dis", dir);
    char name[32];
    autoclose int loop = geteuid() == 0 ? hold_disks(dir, name) : -1;

    if (loop < 0)
        test_skip("no loop device can be had here");
    look(dir);
    const struct leak *leak = with(LEAK_DEVICE, name);
    CHECK(leak && strstr(leak->what, path));
    look(other); /* another server's is not this one's */
    CHECK(!with(LEAK_DEVICE, name));
    pid_t pid = start_warden(dir);
    look(dir);
    CHECK(!with(LEAK_DEVICE, name));
    end(pid);
    struct left left = { .dir = dir }; /* a sandbox that stays holds it, as it should */
    leave(&left);
    look_at(dir, &left);
    bool accused = with(LEAK_DEVICE, name);
    tidy(&left);
    CHECK(!accused);
    CHECK(unlink(path) == 0);
    look(dir);
    CHECK(with(LEAK_DEVICE, name));
    close(take_fd(&loop));
    for (int i = 0; i < 100 && with(LEAK_DEVICE, name); i++) {
        usleep(10000);
        look(dir);
    }
    CHECK(!with(LEAK_DEVICE, name));
}

TEST(kinds_have_names)
{
    CHECK_STR(leak_kind_name(LEAK_PROCESS), "process");
    CHECK_STR(leak_kind_name(LEAK_FILE), "file");
    CHECK_STR(leak_kind_name(LEAK_DEVICE), "device");
}
