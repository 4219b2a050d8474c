/*
 * Every check twice: on this machine as it is, and on the same machine with one system call taken
 * away, where exactly that check must notice. And nothing may be left behind.
 */
#include "host/probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <seccomp.h>

#include "base/mem.h"
#include "base/test.h"
#include "host/own.h"

static struct probe_result results[PROBES_MAX];

static const struct probe_result *find(size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(results[i].name, name) == 0)
            return &results[i];
    return NULL;
}

static size_t entries(const char *path)
{
    DIR *dir = opendir(path);
    size_t count = 0;

    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static size_t lines(const char *path)
{
    FILE *file = fopen(path, "re");
    size_t count = 0;
    int c;

    CHECK(file != NULL);
    while ((c = fgetc(file)) != EOF)
        count += c == '\n';
    fclose(file);
    return count;
}

TEST(every_check_says_something_whole)
{
    size_t count = host_probe(test_dir(), results, PROBES_MAX);

    CHECK(count >= 20 && count < PROBES_MAX);
    for (size_t i = 0; i < count; i++) {
        CHECK(results[i].name[0] && results[i].found[0]);
        /* ok needs no advice; anything else says what is lost */
        CHECK((results[i].state == PROBE_OK) == (results[i].lost[0] == 0));
        CHECK(strlen(results[i].lost) < sizeof(results[i].lost) - 1); /* not cut */
        CHECK(strlen(results[i].fix) < sizeof(results[i].fix) - 1);
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(results[i].name, results[j].name) != 0);
    }
    CHECK_INT(host_probe(test_dir(), results, 3), 3);
}

TEST(nothing_is_left_behind)
{
    const char *dir = test_dir();
    size_t mounts = lines("/proc/self/mountinfo"), fds = entries("/proc/self/fd");
    size_t files = entries(dir);

    CHECK(host_probe(dir, results, PROBES_MAX) > 0);
    CHECK_INT(lines("/proc/self/mountinfo"), mounts);
    CHECK_INT(entries("/proc/self/fd"), fds);
    CHECK_INT(entries(dir), files);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

TEST(a_state_directory_that_is_not_there_is_not_made)
{
    autofree char *dir = xprintf("%s/not/there", test_dir());
    size_t count = host_probe(dir, results, PROBES_MAX);
    const struct probe_result *disk = find(count, "disk");
    struct stat st;

    CHECK(disk && disk->state == PROBE_OK);
    CHECK(stat(dir, &st) < 0 && errno == ENOENT);
}

/* ---- what is taken away is missed ---- */

struct missing {
    const char *check;
    int call, error;
};

static int probe_without(const void *arg)
{
    const struct missing *missing = arg;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)missing->error), missing->call, 0) < 0 ||
        seccomp_load(filter) < 0)
        return 99;
    seccomp_release(filter);
    size_t count = host_probe("/tmp", results, PROBES_MAX);
    const struct probe_result *result = find(count, missing->check);
    return !result                               ? 98
           : result->state == PROBE_OK           ? 97
           : !result->lost[0] || !result->fix[0] ? 96
                                                 : 0;
}

TEST(a_check_misses_what_is_taken_away)
{
    static const struct missing all[] = {
        { "pidfd", SCMP_SYS(pidfd_open), ENOSYS },
        { "close_range", SCMP_SYS(close_range), ENOSYS },
        { "openat2", SCMP_SYS(openat2), ENOSYS },
        { "clone3", SCMP_SYS(clone3), ENOSYS },
        { "memfd", SCMP_SYS(memfd_create), ENOSYS },
        { "landlock", SCMP_SYS(landlock_create_ruleset), ENOSYS },
        { "landlock", SCMP_SYS(landlock_restrict_self), EPERM },
        { "seccomp", SCMP_SYS(seccomp), EINVAL },
        { "user_namespaces", SCMP_SYS(unshare), EPERM },
        { "namespaces", SCMP_SYS(unshare), ENOSPC },
        { "mount_api", SCMP_SYS(fsopen), ENOSYS },
        { "disks", SCMP_SYS(fsopen), ENODEV },
        { "idmapped_mounts", SCMP_SYS(mount_setattr), EINVAL },
        { "overlayfs", SCMP_SYS(fsconfig), EINVAL },
        { "cgroups", SCMP_SYS(mkdir), EACCES },
        { "kvm", SCMP_SYS(ioctl), EPERM },
        { "sk_lookup", SCMP_SYS(bpf), EPERM },
        { "state_fs", SCMP_SYS(statfs), EIO },
        { "disk", SCMP_SYS(statfs), EIO },
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        int how = probe_child(probe_without, &all[i], 20000);

        if (how)
            test_fail(__FILE__, __LINE__, "%s without call %d: %d", all[i].check, all[i].call, how);
    }
}

/* ---- pieces ---- */

TEST(versions_with_dirty_pipe)
{
    CHECK(!probe_dirty_pipe(4, 19, 300) && !probe_dirty_pipe(5, 7, 19));
    CHECK(probe_dirty_pipe(5, 8, 0) && probe_dirty_pipe(5, 9, 16));
    CHECK(probe_dirty_pipe(5, 10, 101) && !probe_dirty_pipe(5, 10, 102));
    CHECK(probe_dirty_pipe(5, 15, 24) && !probe_dirty_pipe(5, 15, 25));
    CHECK(probe_dirty_pipe(5, 16, 10) && !probe_dirty_pipe(5, 16, 11));
    CHECK(!probe_dirty_pipe(5, 17, 0) && !probe_dirty_pipe(6, 1, 0));
}

TEST(only_one_value_lets_process_1_be_looked_into)
{
    for (int64_t value = 0; value < 3; value++) {
        struct probe_result result = { 0 };

        probe_dumpable(value, &result);
        CHECK_INT(result.state, value == 1 ? PROBE_LOST : PROBE_OK);
        CHECK((result.fix[0] != 0) == (value == 1));
    }
}

TEST(lines_of_mountinfo)
{
    autofree struct host_mount *mount = xnew(struct host_mount);

    CHECK(
        host_mount_parse(STR("36 35 98:0 /sub\\040dir /mnt/a\\011b rw,noatime shared:1 master:2 - "
                             "ext3 /dev/root rw,errors=continue"),
                         mount));
    CHECK_STR(mount->root, "/sub dir");
    CHECK_STR(mount->point, "/mnt/a\tb");
    CHECK_STR(mount->type, "ext3");
    CHECK_STR(mount->source, "/dev/root");
    CHECK_STR(mount->options, "rw,errors=continue");
    CHECK(host_mount_parse(STR("1 2 0:3 / / rw - proc proc rw"), mount));
    CHECK_STR(mount->point, "/");
    CHECK(!host_mount_parse(STR("1 2 0:3 / / rw"), mount));
    CHECK(!host_mount_parse(STR(""), mount));
    CHECK(!host_mount_parse(STR("a b"), mount));
}

static int sleep_long(const void *arg)
{
    (void)arg;
    pause();
    return 0;
}

static int return_arg(const void *arg)
{
    return *(const int *)arg;
}

static int die(const void *arg)
{
    (void)arg;
    abort();
}

TEST(a_child_is_bounded_and_its_answer_told)
{
    CHECK_INT(probe_child(sleep_long, NULL, 50), -1);
    CHECK_INT(probe_child(die, NULL, 2000), -1);
    CHECK_INT(probe_child(return_arg, &(int){ 0 }, 2000), 0);
    CHECK_INT(probe_child(return_arg, &(int){ ENOSPC }, 2000), ENOSPC);
    CHECK_INT(probe_child(return_arg, &(int){ 1000 }, 2000), -1);
}
