/*
 * cgroups behind one interface. Where the controllers are is read from /proc/self/mountinfo and
 * /proc/self/cgroup, never assumed: each controller is on v1 or v2 by itself (hybrid machines have
 * both). Ours live in a directory "atoll" beneath the cgroup we were started in; only those are
 * ever made, changed or removed.
 *
 * A new process enters v1 hierarchies by writing "0" to the tasks files it was handed open: moving
 * oneself as a single thread does not wait for an RCU grace period, which moving another process
 * through cgroup.procs does (10 ms now and then). On v2 it is the same file write by the child.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "warden/box.h"

#define PATH_SIZE 512

enum controller { C_MEMORY, C_CPU, C_CPUACCT, C_PIDS, C_FREEZER, C_COUNT };
static const char *const controller_names[C_COUNT] = { "memory", "cpu", "cpuacct", "pids",
                                                       "freezer" };

/* Each hierarchy that we use: one directory "atoll" in it. */
struct hierarchy {
    char path[PATH_SIZE]; /* …/atoll */
    bool v2;
    unsigned controllers; /* bits */
};

static struct hierarchy hierarchies[C_COUNT + 1];
static unsigned hierarchy_count;
static int where[C_COUNT]; /* index of the hierarchy, or -1 */
static const char *mode = "none";

const char *cgroup_mode(void)
{
    return mode;
}

static ssize_t read_text(const char *path, char *out, size_t size)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t total = 0, got;

    if (fd < 0)
        return -1;
    while ((size_t)total < size - 1 && (got = read(fd, out + total, size - 1 - (size_t)total)) > 0)
        total += got;
    out[total] = 0;
    return total;
}

static int write_text(const char *path, const char *text)
{
    autoclose int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ? -1 : 0;
}

/* Is `word` one of a comma or space separated list? */
static bool listed(const char *list, const char *word, char sep)
{
    size_t n = strlen(word);

    for (const char *p = list; *p && *p != '\n';) {
        size_t len = strcspn(p, sep == ',' ? ",\n " : " \n");

        if (len == n && strncmp(p, word, n) == 0)
            return true;
        p += len;
        if (*p == sep)
            p++;
        else
            break;
    }
    return false;
}

/* Our own place in the hierarchy that holds `controller` ("" for v2): "/" or "/some/where". */
static bool self_path(const char *self, const char *controller, char *out, size_t size)
{
    for (const char *line = self; *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : "") {
        const char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        char list[128];

        if (!path)
            return false;
        snprintf(list, sizeof(list), "%.*s", (int)(path - names - 1), names + 1);
        if (*controller ? listed(list, controller, ',') : list[0] == 0) {
            snprintf(out, size, "%.*s", (int)strcspn(path + 1, "\n"), path + 1);
            return true;
        }
    }
    return false;
}

static void add(const char *mount_point, const char *own, bool v2, unsigned controllers)
{
    struct hierarchy *h = &hierarchies[hierarchy_count];

    if (hierarchy_count == ARRAY_LEN(hierarchies) || !controllers)
        return;
    snprintf(h->path, sizeof(h->path), "%.200s%.200s%satoll", mount_point, own,
             strcmp(own, "/") == 0 ? "" : "/");
    h->v2 = v2;
    h->controllers = controllers;
    for (int c = 0; c < C_COUNT; c++)
        if (controllers >> c & 1)
            where[c] = (int)hierarchy_count;
    hierarchy_count++;
}

static void add_v1(const char *mount_point, const char *options, const char *self)
{
    unsigned bits = 0;
    char own[200] = "/";

    for (int c = 0; c < C_COUNT; c++)
        if (where[c] < 0 && listed(options, controller_names[c], ',')) {
            bits |= 1u << c;
            self_path(self, controller_names[c], own, sizeof(own));
        }
    add(mount_point, own, false, bits);
}

static void add_v2(const char *mount_point, const char *self)
{
    char own[200] = "/", path[PATH_SIZE], list[512];
    unsigned bits = 0;

    self_path(self, "", own, sizeof(own));
    snprintf(path, sizeof(path), "%.200s%.200s/cgroup.controllers", mount_point, own);
    if (read_text(path, list, sizeof(list)) < 0)
        return;
    for (int c = C_MEMORY; c <= C_PIDS; c++)
        if (c != C_CPUACCT && where[c] < 0 && listed(list, controller_names[c], ' '))
            bits |= 1u << c;
    if (bits & 1u << C_CPU && where[C_CPUACCT] < 0)
        bits |= 1u << C_CPUACCT; /* cpu.stat is always there */
    if (bits && where[C_FREEZER] < 0)
        bits |= 1u << C_FREEZER;
    add(mount_point, own, true, bits);
}

/* "36 25 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory" */
static void scan(const char *mountinfo, const char *self, bool v2)
{
    for (const char *line = mountinfo; *line;) {
        char point[200], type[32], options[200];
        const char *end = strchr(line, '\n'), *dash = strstr(line, " - ");
        size_t len = end ? (size_t)(end - line) : strlen(line);

        if (dash && (size_t)(dash - line) < len &&
            sscanf(line, "%*s %*s %*s %*s %199s", point) == 1 &&
            sscanf(dash + 3, "%31s %*s %199s", type, options) == 2) {
            if (v2 && strcmp(type, "cgroup2") == 0)
                add_v2(point, self);
            else if (!v2 && strcmp(type, "cgroup") == 0)
                add_v1(point, options, self);
        }
        line += len + (end != NULL);
    }
}

int cgroup_open(const char *mountinfo_path, const char *self_path_)
{
    static char mountinfo[262144], self[8192];
    unsigned v1 = 0, v2 = 0;

    hierarchy_count = 0;
    for (int c = 0; c < C_COUNT; c++)
        where[c] = -1;
    if (read_text(mountinfo_path, mountinfo, sizeof(mountinfo)) < 0 ||
        read_text(self_path_, self, sizeof(self)) < 0)
        return -1;
    scan(mountinfo, self, false);
    scan(mountinfo, self, true);
    for (unsigned i = 0; i < hierarchy_count; i++)
        hierarchies[i].v2 ? v2++ : v1++;
    mode = v1 && v2 ? "hybrid" : v1 ? "v1" : v2 ? "v2" : "none";
    if (where[C_MEMORY] < 0 || where[C_PIDS] < 0 || where[C_CPU] < 0) {
        errno = ENOTSUP;
        return -1;
    }
    for (unsigned i = 0; i < hierarchy_count; i++) {
        if (mkdir(hierarchies[i].path, 0755) < 0 && errno != EEXIST)
            return -1;
        if (hierarchies[i].v2) {
            char path[PATH_SIZE + 32];

            snprintf(path, sizeof(path), "%s/cgroup.subtree_control", hierarchies[i].path);
            if (write_text(path, "+memory +cpu +pids") < 0)
                return -1;
        }
    }
    return 0;
}

static int set(enum controller c, const char *id, const char *file, const char *text)
{
    char path[PATH_SIZE + 128];

    snprintf(path, sizeof(path), "%s/%s/%s", hierarchies[where[c]].path, id, file);
    return write_text(path, text);
}

static int set_num(enum controller c, const char *id, const char *file, uint64_t num)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)num);
    return set(c, id, file, text);
}

static int limit(const char *id, const struct box_spec *spec)
{
    char cpu[64];

    if (set_num(C_PIDS, id, "pids.max", spec->pids) < 0)
        return -1;
    if (hierarchies[where[C_MEMORY]].v2) {
        if (set_num(C_MEMORY, id, "memory.max", spec->memory) < 0 ||
            set_num(C_MEMORY, id, "memory.oom.group", 0) < 0)
            return -1;
        (void)!set(C_MEMORY, id, "memory.swap.max", "0"); /* not there without swap */
    } else {
        if (set_num(C_MEMORY, id, "memory.limit_in_bytes", spec->memory) < 0)
            return -1;
        (void)!set_num(C_MEMORY, id, "memory.memsw.limit_in_bytes", spec->memory);
    }
    if (!spec->cpu_percent)
        return 0;
    if (!hierarchies[where[C_CPU]].v2)
        return set_num(C_CPU, id, "cpu.cfs_quota_us", spec->cpu_percent * 1000ull);
    snprintf(cpu, sizeof(cpu), "%llu 100000", spec->cpu_percent * 1000ull);
    return set(C_CPU, id, "cpu.max", cpu);
}

int cgroup_make(const char *id, const struct box_spec *spec)
{
    char path[PATH_SIZE + 64];

    for (unsigned i = 0; i < hierarchy_count; i++) {
        snprintf(path, sizeof(path), "%s/%s", hierarchies[i].path, id);
        if (mkdir(path, 0755) < 0)
            return -1;
    }
    return limit(id, spec);
}

int cgroup_doors(const char *id, int fds[CGROUP_DOORS_MAX], unsigned *count)
{
    char path[PATH_SIZE + 64];

    *count = 0;
    for (unsigned i = 0; i < hierarchy_count; i++) {
        snprintf(path, sizeof(path), "%s/%s/%s", hierarchies[i].path, id,
                 hierarchies[i].v2 ? "cgroup.procs" : "tasks");
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0) {
            while (*count)
                close(fds[--*count]);
            return -1;
        }
        fds[(*count)++] = fd;
    }
    return 0;
}

int cgroup_freeze(const char *id, bool freeze)
{
    if (where[C_FREEZER] < 0) {
        errno = ENOTSUP;
        return -1;
    }
    if (hierarchies[where[C_FREEZER]].v2)
        return set(C_FREEZER, id, "cgroup.freeze", freeze ? "1" : "0");
    if (set(C_FREEZER, id, "freezer.state", freeze ? "FROZEN" : "THAWED") < 0)
        return -1;
    for (int i = 0; freeze && i < 1000; i++) { /* FREEZING lasts until every process has stopped */
        char path[PATH_SIZE + 64], text[32];

        snprintf(path, sizeof(path), "%s/%s/freezer.state", hierarchies[where[C_FREEZER]].path, id);
        if (read_text(path, text, sizeof(text)) > 0 && strncmp(text, "FROZEN", 6) == 0)
            return 0;
        usleep(20);
    }
    return 0;
}

static uint64_t get(enum controller c, const char *id, const char *file, const char *key)
{
    char path[PATH_SIZE + 128], text[4096];

    if (where[c] < 0)
        return 0;
    snprintf(path, sizeof(path), "%s/%s/%s", hierarchies[where[c]].path, id, file);
    if (read_text(path, text, sizeof(text)) < 0)
        return 0;
    const char *at = key ? strstr(text, key) : text;
    return at ? strtoull(at + (key ? strlen(key) : 0), NULL, 10) : 0;
}

int cgroup_usage(const char *id, struct cgroup_usage *out)
{
    bool v2 = hierarchies[where[C_MEMORY]].v2,
         cpu2 = where[C_CPUACCT] >= 0 && hierarchies[where[C_CPUACCT]].v2;

    *out = (struct cgroup_usage){
        .cpu_us = cpu2 ? get(C_CPUACCT, id, "cpu.stat", "usage_usec ")
                       : get(C_CPUACCT, id, "cpuacct.usage", NULL) / 1000,
        .memory = get(C_MEMORY, id, v2 ? "memory.current" : "memory.usage_in_bytes", NULL),
        .memory_peak = get(C_MEMORY, id, v2 ? "memory.peak" : "memory.max_usage_in_bytes", NULL),
        .pids = get(C_PIDS, id, "pids.current", NULL),
        .oom_kills = get(C_MEMORY, id, v2 ? "memory.events" : "memory.oom_control", "oom_kill "),
    };
    return 0;
}

int cgroup_remove(const char *id)
{
    char path[PATH_SIZE + 64];
    int rc = 0;

    for (unsigned i = 0; i < hierarchy_count; i++) {
        snprintf(path, sizeof(path), "%s/%s", hierarchies[i].path, id);
        if (rmdir(path) < 0 && errno != ENOENT)
            rc = -1;
    }
    return rc;
}
