/*
 * cgroups behind one interface. Where the controllers are is read from /proc/self/mountinfo and
 * /proc/self/cgroup, never assumed: each controller is on v1 or v2 by itself (hybrid machines have
 * both). Ours live in one directory beneath the cgroup we were started in, named after the state
 * directory, so that two servers do not meet; only what is in it is ever made, changed or removed.
 * It is made with the first box and opened once; everything goes by that descriptor.
 *
 * A new process enters v1 hierarchies by writing "0" to the tasks files it was handed open: moving
 * oneself as a single thread does not wait for an RCU grace period, which moving another process
 * through cgroup.procs does (10 ms now and then). Into v2 it is born (CLONE_INTO_CGROUP).
 *
 * An ordinary user has only what was handed over (v2 with Delegate=yes): then each controller that
 * is missing is a limit that is missing, and cgroup_lost says which.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "warden/cgroup.h"
#include "wire/layout.h"

#define PATH_SIZE 700
#define NAME_SIZE CGROUP_NAME
#define ASIDE "warden.self"
#define PROBE "/probe.self"

enum controller { C_MEMORY, C_CPU, C_CPUACCT, C_PIDS, C_FREEZER, C_IO, C_COUNT };
#define C_NEEDED C_IO /* those before it */
static const char *const controller_names[C_COUNT] = { "memory", "cpu",     "cpuacct",
                                                       "pids",   "freezer", "blkio" };
#define IO_V2 "io"

/* Each hierarchy that we use: one directory of ours in it. */
struct hierarchy {
    char path[PATH_SIZE];
    int fd; /* of it */
    bool v2;
    unsigned controllers; /* bits */
    bool rare;            /* groups are made when they are needed: cgroup_io.c */
};

static struct hierarchy hierarchies[C_COUNT + 1];
static unsigned hierarchy_count;
static int where[C_COUNT]; /* index of the hierarchy, or -1 */
static const char *mode = "none";
static char owner[PATH_SIZE]; /* the state directory, or "" */
static bool some;             /* what is not there is lost, and not a failure */

const char *cgroup_mode(void)
{
    return mode;
}

static bool has(enum controller c)
{
    return where[c] >= 0;
}

const char *cgroup_missing(void)
{
    for (int c = 0; c < C_NEEDED; c++)
        if (!has(c))
            return controller_names[c];
    return NULL;
}

uint32_t cgroup_lost(void)
{
    return (has(C_MEMORY) ? 0u : BOX_LOST_MEMORY) | (has(C_CPU) ? 0u : BOX_LOST_CPU) |
           (has(C_PIDS) ? 0u : BOX_LOST_PIDS) | (has(C_FREEZER) ? 0u : BOX_LOST_FREEZER) |
           (has(C_MEMORY) && has(C_CPUACCT) && has(C_PIDS) ? 0u : BOX_LOST_USAGE) |
           (cgroup_io_works() ? 0u : BOX_LOST_IO);
}

static bool is_v2(enum controller c)
{
    return where[c] >= 0 && hierarchies[where[c]].v2;
}

ssize_t cgroup_read(int dir, const char *path, char *out, size_t size)
{
    autoclose int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
    ssize_t total = 0, got;

    if (fd < 0)
        return -1;
    while ((size_t)total < size - 1 && (got = read(fd, out + total, size - 1 - (size_t)total)) > 0)
        total += got;
    out[total] = 0;
    return total;
}

int cgroup_write(int dir, const char *path, const char *text)
{
    autoclose int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);

    return fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) ? -1 : 0;
}

/* ---- finding them ---- */

/* Is `word` one of a list? */
static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = list; *p;) {
        size_t len = strcspn(p, ", \n");

        if (len == n && strncmp(p, word, n) == 0)
            return true;
        p += len + (p[len] != 0);
    }
    return false;
}

static const char *ours = "";

/* Of one who is in a group of ours already: where that one is. */
static void above_ours(char *path)
{
    size_t n = strlen(ours);

    for (char *at = path; n && (at = strstr(at, ours)); at++)
        if (at > path && at[-1] == '/' && (at[n] == '/' || !at[n])) {
            at[at - 1 == path ? 0 : -1] = 0;
            return;
        }
}

/* Our own place in the hierarchy that holds `controller` ("" for v2): "/" or "/some/where". */
static bool self_path(const char *self, const char *controller, char *out, size_t size)
{
    for (const char *line = self; *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : "") {
        const char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        char list[128];

        if (!path)
            return false;
        snprintf(list, sizeof(list), "%.*s", (int)MIN(path - names - 1, 127), names + 1);
        if (*controller ? listed(list, controller) : list[0] == 0) {
            snprintf(out, size, "%.*s", (int)MIN(strcspn(path + 1, "\n"), size - 1), path + 1);
            above_ours(out);
            return true;
        }
    }
    return false;
}

/* A mount may show a part of a hierarchy alone (of a container's): our place below that. */
static const char *below(const char *own, const char *root)
{
    size_t n = strlen(root);

    if (strcmp(root, "/") == 0 || strncmp(own, root, n) != 0 || (own[n] && own[n] != '/'))
        return own;
    return own[n] ? own + n : "/";
}

static void add(const char *mount_point, const char *own, bool v2, unsigned controllers,
                const char *name)
{
    struct hierarchy *h = &hierarchies[hierarchy_count];

    if (hierarchy_count == ARRAY_LEN(hierarchies) || !controllers)
        return;
    snprintf(h->path, sizeof(h->path), "%.200s%.300s%s%.64s", mount_point, own,
             strcmp(own, "/") == 0 ? "" : "/", name);
    h->v2 = v2;
    h->fd = -1;
    h->controllers = controllers;
    h->rare = !v2 && controllers == 1u << C_IO;
    for (int c = 0; c < C_COUNT; c++)
        if (controllers >> c & 1)
            where[c] = (int)hierarchy_count;
    hierarchy_count++;
}

/* A kernel may have the controller without what holds anybody back. */
static bool can_throttle(const char *mount_point)
{
    char path[PATH_SIZE];

    snprintf(path, sizeof(path), "%.200s/blkio.throttle.read_bps_device", mount_point);
    return faccessat(AT_FDCWD, path, F_OK, 0) == 0;
}

static void add_v1(const char *mount_point, const char *root, const char *options, const char *self,
                   const char *name)
{
    unsigned bits = 0;
    char own[300] = "/";

    for (int c = 0; c < C_COUNT; c++)
        if (where[c] < 0 && listed(options, controller_names[c]) &&
            (c != C_IO || can_throttle(mount_point))) {
            bits |= 1u << c;
            self_path(self, controller_names[c], own, sizeof(own));
        }
    add(mount_point, below(own, root), false, bits, name);
}

static void add_v2(const char *mount_point, const char *root, const char *self, const char *name)
{
    char own[300] = "/", path[PATH_SIZE], list[512];
    unsigned bits = 0;

    self_path(self, "", own, sizeof(own));
    snprintf(path, sizeof(path), "%.200s%.300s/cgroup.controllers", mount_point, below(own, root));
    if (cgroup_read(AT_FDCWD, path, list, sizeof(list)) < 0)
        return;
    for (int c = C_MEMORY; c <= C_PIDS; c++)
        if (c != C_CPUACCT && where[c] < 0 && listed(list, controller_names[c]))
            bits |= 1u << c;
    if (where[C_IO] < 0 && listed(list, IO_V2))
        bits |= 1u << C_IO;
    if (bits & 1u << C_CPU && where[C_CPUACCT] < 0)
        bits |= 1u << C_CPUACCT; /* cpu.stat is always there */
    if ((bits || some) && where[C_FREEZER] < 0)
        bits |= 1u << C_FREEZER; /* needs no controller */
    add(mount_point, below(own, root), true, bits, name);
}

/* "36 25 0:30 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory" */
static void scan(const char *mountinfo, const char *self, bool v2, const char *name)
{
    for (const char *line = mountinfo; *line;) {
        char root[300], point[200], type[32], options[200];
        const char *end = strchr(line, '\n'), *dash = strstr(line, " - ");
        size_t len = end ? (size_t)(end - line) : strlen(line);

        if (dash && (size_t)(dash - line) < len &&
            sscanf(line, "%*s %*s %*s %299s %199s", root, point) == 2 &&
            sscanf(dash + 3, "%31s %*s %199s", type, options) == 2) {
            if (v2 && strcmp(type, "cgroup2") == 0)
                add_v2(point, root, self, name);
            else if (!v2 && strcmp(type, "cgroup") == 0)
                add_v1(point, root, options, self, name);
        }
        line += len + (end != NULL);
    }
}

/* Us and the api process, which was started before; the boxes, our children too, are elsewhere. */
static void move_ours(int procs_dir, int into)
{
    static char procs[65536], children[65536];

    if (cgroup_write(into, ASIDE "/cgroup.procs", "0") < 0 ||
        cgroup_read(procs_dir, "cgroup.procs", procs, sizeof(procs)) < 0 ||
        cgroup_read(AT_FDCWD, "/proc/thread-self/children", children, sizeof(children)) < 0)
        return;
    for (char *at = procs, *end; *at; at = end + (*end == '\n')) {
        char pid[16];

        end = at + strcspn(at, "\n");
        snprintf(pid, sizeof(pid), "%.*s", (int)MIN(end - at, 15), at);
        if (*pid && listed(children, pid))
            (void)!cgroup_write(into, ASIDE "/cgroup.procs", pid);
    }
}

/*
 * A group of v2 that hands on controllers may hold no process (but for the real root, which has no
 * cgroup.type), and the one that was handed to us holds us: we move into a group beside the boxes,
 * whose name no box can have. Others there are not ours to move; the kernel then says EBUSY.
 */
static void step_aside(const struct hierarchy *h, int up)
{
    if (faccessat(up, "cgroup.type", F_OK, 0) == 0 &&
        (mkdirat(h->fd, ASIDE, 0755) == 0 || errno == EEXIST))
        move_ours(up, h->fd);
}

static int open_above(const struct hierarchy *h)
{
    char above[PATH_SIZE];

    snprintf(above, sizeof(above), "%s", h->path);
    *strrchr(above, '/') = 0;
    return open(above, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void each_in(int dir_fd, void (*fn)(const char id[BOX_ID_SIZE]));
static bool boxes_in_it;

static void see_box(const char id[BOX_ID_SIZE])
{
    boxes_in_it = *id != 0;
}

static size_t control_text(const struct hierarchy *h, char sign, char out[64])
{
    size_t len = 0;

    out[0] = 0;
    for (int c = 0; c < C_COUNT; c++)
        if (h->controllers >> c & 1 && c != C_CPUACCT && c != C_FREEZER)
            len += (size_t)snprintf(out + len, 64 - len, "%s%c%s", len ? " " : "", sign,
                                    c == C_IO ? IO_V2 : controller_names[c]);
    return len;
}

/* Not while boxes are in it: without its controllers the group of a box has no limits. */
static void step_back(const struct hierarchy *h)
{
    autoclose int up = open_above(h);

    boxes_in_it = false;
    each_in(h->fd, see_box);
    if (up < 0 || boxes_in_it || faccessat(h->fd, ASIDE, F_OK, 0) < 0)
        return;
    char text[64];
    control_text(h, '-', text);
    (void)!cgroup_write(h->fd, "cgroup.subtree_control", text);
    (void)!cgroup_write(up, "cgroup.subtree_control", text);
    (void)!cgroup_write(up, "cgroup.procs", "0");
    unlinkat(h->fd, ASIDE, AT_REMOVEDIR);
}

/* What the box's directories may control must be switched on above them. */
static int enable_v2(struct hierarchy *h)
{
    char text[64];

    if (control_text(h, '+', text) == 0)
        return 0;
    autoclose int up = open_above(h);
    if (up < 0)
        return -1;
    step_aside(h, up);
    (void)!cgroup_write(up, "cgroup.subtree_control",
                        text); /* perhaps it is on, and not ours to set */
    if (cgroup_write(h->fd, "cgroup.subtree_control", text) == 0)
        return 0;
    if (!(h->controllers >> C_IO & 1))
        return -1;
    h->controllers &= ~(1u << C_IO); /* the one that a box can be without */
    if (control_text(h, '+', text) && cgroup_write(h->fd, "cgroup.subtree_control", text) < 0) {
        h->controllers |= 1u << C_IO; /* it is not what was in the way */
        return -1;
    }
    where[C_IO] = -1;
    return 0;
}

void cgroup_owner(int state_fd)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", state_fd);
    ssize_t len = readlink(path, owner, sizeof(owner) - 1);
    owner[len > 0 ? len : 0] = 0;
}

/* For `doctor --leaks`, when no server is left to be asked; without it there is just less to say.
 */
static void say_owner(const struct hierarchy *h)
{
    if (owner[0] && fsetxattr(h->fd, "trusted." CGROUP_OWNER, owner, strlen(owner), 0) < 0)
        (void)!fsetxattr(h->fd, "user." CGROUP_OWNER, owner, strlen(owner), 0);
}

/* What an earlier warden left is opened; our own directories are made with the first box. */
static int open_one(struct hierarchy *h, bool make)
{
    if (make && mkdir(h->path, 0755) < 0 && errno != EEXIST)
        return -1;
    h->fd = open(h->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (h->fd < 0)
        return make || errno != ENOENT ? -1 : 0;
    (void)!flock(h->fd, LOCK_SH | LOCK_NB); /* a warden lives: host_sweep leaves it alone */
    say_owner(h);
    if (!h->v2 || enable_v2(h) == 0)
        return 0;
    int error = errno; /* EBUSY while others are in the group above: the next box tries again */
    close(h->fd);
    h->fd = -1;
    errno = error;
    return -1;
}

/* May we make groups there? The way to find out is to make one. */
static bool can_make(const struct hierarchy *h)
{
    char below[PATH_SIZE + sizeof(PROBE)];

    if (mkdir(h->path, 0755) == 0) {
        rmdir(h->path);
        return true;
    }
    snprintf(below, sizeof(below), "%s" PROBE, h->path);
    return errno == EEXIST && mkdir(below, 0755) == 0 && rmdir(below) == 0;
}

/* Takes out what is closed to us. */
static void keep_open_ones(void)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < hierarchy_count; i++) {
        bool keep = can_make(&hierarchies[i]);

        for (int c = 0; c < C_COUNT; c++)
            if (where[c] == (int)i)
                where[c] = keep ? (int)kept : -1;
        if (keep)
            hierarchies[kept++] = hierarchies[i];
    }
    hierarchy_count = kept;
}

static int open_all(const char *mountinfo_path, const char *self_path_, const char *name)
{
    static char mountinfo[262144], self[8192];
    unsigned v1 = 0, v2 = 0;

    cgroup_close(false);
    for (int c = 0; c < C_COUNT; c++)
        where[c] = -1;
    if (cgroup_read(AT_FDCWD, mountinfo_path, mountinfo, sizeof(mountinfo)) < 0 ||
        cgroup_read(AT_FDCWD, self_path_, self, sizeof(self)) < 0)
        return -1;
    ours = name;
    scan(mountinfo, self, false, name);
    scan(mountinfo, self, true, name);
    if (some)
        keep_open_ones();
    for (unsigned i = 0; i < hierarchy_count; i++)
        hierarchies[i].v2 ? v2++ : v1++;
    mode = v1 && v2 ? "hybrid" : v1 ? "v1" : v2 ? "v2" : "none";
    if (!some && cgroup_missing()) { /* a box without one of its limits is not made */
        errno = ENOTSUP;
        return -1;
    }
    for (unsigned i = 0; i < hierarchy_count; i++)
        if (open_one(&hierarchies[i], false) < 0)
            return -1;
    return 0;
}

int cgroup_open(const char *mountinfo, const char *self, const char *name)
{
    some = false;
    return open_all(mountinfo, self, name);
}

int cgroup_open_some(const char *mountinfo, const char *self, const char *name)
{
    some = true;
    return open_all(mountinfo, self, name);
}

void cgroup_close(bool remove)
{
    if (remove)
        spares_drop(); /* of a warden before us, too */
    spares_forget();
    for (unsigned i = 0; i < hierarchy_count; i++) {
        if (remove && hierarchies[i].v2 && hierarchies[i].fd >= 0)
            step_back(&hierarchies[i]);
        if (hierarchies[i].fd >= 0)
            close(hierarchies[i].fd);
        if (remove)
            rmdir(hierarchies[i].path); /* not while boxes are in it */
    }
    hierarchy_count = 0;
}

/* ---- one box ---- */

static struct cgroup_place place_of(enum controller c)
{
    if (!has(c))
        return (struct cgroup_place){ .fd = CGROUP_NONE };
    return (struct cgroup_place){ hierarchies[where[c]].fd, hierarchies[where[c]].v2 };
}

struct cgroup_place cgroup_io_place(void)
{
    return place_of(C_IO);
}

struct cgroup_place cgroup_pids_place(void)
{
    return place_of(C_PIDS);
}

int cgroup_io_open(void)
{
    if (!has(C_IO)) {
        errno = ENOTSUP;
        return -1;
    }
    struct hierarchy *h = &hierarchies[where[C_IO]];
    return h->fd >= 0 ? 0 : open_one(h, true);
}

static int set(enum controller c, const char *id, const char *file, const char *text)
{
    char path[NAME_SIZE];

    if (!has(c)) {
        errno = ENOTSUP;
        return -1;
    }
    snprintf(path, sizeof(path), "%.32s/%s", id, file);
    return cgroup_write(hierarchies[where[c]].fd, path, text);
}

static int set_num(enum controller c, const char *id, const char *file, uint64_t num)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)num);
    return set(c, id, file, text);
}

static int limit_memory(const char *id, uint64_t bytes)
{
    if (is_v2(C_MEMORY)) {
        (void)!set(C_MEMORY, id, "memory.swap.max", "0"); /* not there without swap */
        return set_num(C_MEMORY, id, "memory.max", bytes);
    }
    /* Memory may not exceed memory and swap together, whichever way they move. */
    if (set_num(C_MEMORY, id, "memory.limit_in_bytes", bytes) < 0) {
        if (errno != EINVAL || set_num(C_MEMORY, id, "memory.memsw.limit_in_bytes", bytes) < 0)
            return -1;
        return set_num(C_MEMORY, id, "memory.limit_in_bytes", bytes);
    }
    if (set_num(C_MEMORY, id, "memory.memsw.limit_in_bytes", bytes) < 0 && errno != ENOENT)
        return -1; /* without swap accounting there is no such file */
    return 0;
}

static bool get_text(enum controller c, const char *id, const char *file, char *out, size_t size)
{
    char path[NAME_SIZE];

    snprintf(path, sizeof(path), "%.32s/%s", id, file);
    return where[c] >= 0 && cgroup_read(hierarchies[where[c]].fd, path, out, size) > 0;
}

/* To write this, even the same again, takes the kernel a look at every group there is. */
static int set_quota(const char *id, const char *text)
{
    char now[32];

    if (get_text(C_CPU, id, "cpu.cfs_quota_us", now, sizeof(now))) {
        now[strcspn(now, "\n")] = 0;
        if (strcmp(now, text) == 0)
            return 0;
    }
    return set(C_CPU, id, "cpu.cfs_quota_us", text);
}

static int limit_cpu(const char *id, uint32_t percent)
{
    char cpu[64];

    if (percent == BOX_CPU_FREE)
        return is_v2(C_CPU) ? set(C_CPU, id, "cpu.max", "max 100000") : set_quota(id, "-1");
    snprintf(cpu, sizeof(cpu), "%llu%s", percent * 1000ull, is_v2(C_CPU) ? " 100000" : "");
    return is_v2(C_CPU) ? set(C_CPU, id, "cpu.max", cpu) : set_quota(id, cpu);
}

int cgroup_limit(const char *id, uint64_t memory, uint32_t pids, uint32_t cpu_percent)
{
    if (memory && guard(memory_max) && limit_memory(id, memory) < 0)
        return -1; /* the one that may be refused comes first */
    if (pids && guard(pids_max) && set_num(C_PIDS, id, "pids.max", pids) < 0)
        return -1;
    return cpu_percent && guard(cpu_max) ? limit_cpu(id, cpu_percent) : 0;
}

/* ---- groups that are there ---- */

struct cgroup_place cgroup_dir(unsigned number)
{
    return number < hierarchy_count
               ? (struct cgroup_place){ hierarchies[number].fd, hierarchies[number].v2 }
               : (struct cgroup_place){ .fd = CGROUP_NONE };
}

unsigned cgroup_what(unsigned number)
{
    const unsigned bits = hierarchies[number].controllers;

    return (bits >> C_MEMORY & 1 ? CGROUP_MEMORY : 0) |
           (bits >> C_CPUACCT & 1 ? CGROUP_CPUACCT : 0) |
           (bits >> C_FREEZER & 1 ? CGROUP_FREEZER : 0) | (bits >> C_IO & 1 ? CGROUP_RARE : 0);
}

static int make_in(unsigned number, const char *id)
{
    struct hierarchy *h = &hierarchies[number];

    if (h->fd < 0 && open_one(h, true) < 0)
        return -1;
    return spare_take(number, id) ? 0 : mkdirat(h->fd, id, 0755);
}

int cgroup_make(const char *id, const struct box_spec *spec)
{
    for (unsigned i = 0; i < hierarchy_count; i++)
        if (!hierarchies[i].rare && make_in(i, id) < 0)
            return -1;
    if (has(C_IO) && cgroup_io(id, spec->io_bytes, spec->io_ops) < 0)
        return -1;
    /* Each of them, also where there is none: a group of v1 has those of a box before. */
    uint32_t no_limit = is_v2(C_CPU) ? 0 : BOX_CPU_FREE;
    uint32_t cpu = spec->cpu_percent ? spec->cpu_percent : no_limit;
    return cgroup_limit(id, has(C_MEMORY) ? spec->memory : 0, has(C_PIDS) ? spec->pids : 0,
                        has(C_CPU) ? cpu : 0);
}

int cgroup_doors(const char *id, struct cgroup_doors *doors)
{
    char path[NAME_SIZE];

    *doors = (struct cgroup_doors){ .memory = -1, .into = -1 };
    for (unsigned i = 0; i < hierarchy_count; i++) {
        bool v2 = hierarchies[i].v2;

        snprintf(path, sizeof(path), "%.32s%s", id, v2 ? "" : "/tasks");
        int fd = openat(hierarchies[i].fd, path,
                        v2 ? O_PATH | O_DIRECTORY | O_CLOEXEC : O_WRONLY | O_CLOEXEC);
        if (fd < 0 && hierarchies[i].rare && (errno == ENOENT || errno == EBADF))
            continue;
        if (fd < 0)
            return -1;
        if (v2)
            doors->into = fd;
        else if (has(C_MEMORY) && (int)i == where[C_MEMORY])
            doors->memory = fd;
        else
            doors->tasks[doors->count++] = fd;
    }
    return 0;
}

void cgroup_doors_close(struct cgroup_doors *doors)
{
    while (doors->count)
        close(doors->tasks[--doors->count]);
    if (doors->memory >= 0)
        close(doors->memory);
    if (doors->into >= 0)
        close(doors->into);
    doors->memory = doors->into = -1;
}

int cgroup_freeze(const char *id, bool freeze)
{
    if (is_v2(C_FREEZER))
        return set(C_FREEZER, id, "cgroup.freeze", freeze ? "1" : "0");
    if (freeze)
        spare_freeze();
    return set(C_FREEZER, id, "freezer.state", freeze ? "FROZEN" : "THAWED");
}

bool cgroup_frozen(const char *id)
{
    char text[256];

    if (is_v2(C_FREEZER))
        return get_text(C_FREEZER, id, "cgroup.events", text, sizeof(text)) &&
               strstr(text, "frozen 1") != NULL;
    return get_text(C_FREEZER, id, "freezer.state", text, sizeof(text)) &&
           strncmp(text, "FROZEN", 6) == 0;
}

/* The number after `key` at the start of a line, or of the whole file; UINT64_MAX for "max", -1. */
static uint64_t get(enum controller c, const char *id, const char *file, const char *key)
{
    char text[4096];
    const char *at = text;

    if (!get_text(c, id, file, text, sizeof(text)))
        return 0;
    while (key && at && strncmp(at, key, strlen(key)) != 0) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return 0;
    at += key ? strlen(key) : 0;
    return *at == 'm' || *at == '-' ? UINT64_MAX : strtoull(at, NULL, 10);
}

void cgroup_usage(const char *id, struct box_usage *out)
{
    bool v2 = is_v2(C_MEMORY);

    *out = (struct box_usage){
        .cpu_us = is_v2(C_CPUACCT) ? get(C_CPUACCT, id, "cpu.stat", "usage_usec ")
                                   : get(C_CPUACCT, id, "cpuacct.usage", NULL) / 1000,
        .memory = get(C_MEMORY, id, v2 ? "memory.current" : "memory.usage_in_bytes", NULL),
        .memory_peak = get(C_MEMORY, id, v2 ? "memory.peak" : "memory.max_usage_in_bytes", NULL),
        .pids = get(C_PIDS, id, "pids.current", NULL),
        .oom_kills = get(C_MEMORY, id, v2 ? "memory.events" : "memory.oom_control", "oom_kill "),
        .frozen = cgroup_frozen(id),
        .dirty = get(C_MEMORY, id, "memory.stat", v2 ? "file_dirty " : "dirty ") +
                 get(C_MEMORY, id, "memory.stat", v2 ? "file_writeback " : "writeback "),
        .shmem = get(C_MEMORY, id, "memory.stat", "shmem "),
    };
    cgroup_io_usage(id, out);
}

void cgroup_applied(const char *id, struct box_applied *out)
{
    char text[64] = "";

    out->memory =
        !has(C_MEMORY)
            ? UINT64_MAX
            : get(C_MEMORY, id, is_v2(C_MEMORY) ? "memory.max" : "memory.limit_in_bytes", NULL);
    out->pids = has(C_PIDS) ? get(C_PIDS, id, "pids.max", NULL) : UINT64_MAX;
    if (!is_v2(C_CPU)) {
        uint64_t quota = get(C_CPU, id, "cpu.cfs_quota_us", NULL);

        out->cpu_quota_us = quota == UINT64_MAX ? 0 : quota;
        out->cpu_period_us = get(C_CPU, id, "cpu.cfs_period_us", NULL);
    } else if (get_text(C_CPU, id, "cpu.max", text, sizeof(text))) {
        const char *space = strchr(text, ' ');

        out->cpu_quota_us = *text == 'm' ? 0 : strtoull(text, NULL, 10);
        out->cpu_period_us = space ? strtoull(space + 1, NULL, 10) : 0;
    }
    cgroup_io_applied(id, out);
    snprintf(out->cgroup_mode, sizeof(out->cgroup_mode), "%s", mode);
}

/* ---- its end ---- */

int cgroup_remove(const char *id)
{
    int rc = 0;

    for (unsigned i = 0; i < hierarchy_count; i++)
        if (hierarchies[i].fd >= 0 && !spare_give(i, id) &&
            unlinkat(hierarchies[i].fd, id, AT_REMOVEDIR) < 0 && errno != ENOENT)
            rc = -1;
    return rc;
}

static unsigned kill_in(const struct hierarchy *h, const char *id)
{
    static char text[65536];
    char path[NAME_SIZE];
    unsigned found = 0;

    snprintf(path, sizeof(path), "%.32s/cgroup.procs", id);
    if (cgroup_read(h->fd, path, text, sizeof(text)) <= 0)
        return 0;
    snprintf(path, sizeof(path), "%.32s/cgroup.kill", id);
    bool killed = h->v2 && cgroup_write(h->fd, path, "1") == 0; /* since 5.14, and without a race */
    for (char *at = text, *end; *at; at = end + (*end == '\n')) {
        long pid = strtol(at, &end, 10);

        if (end == at)
            break;
        found++;
        if (pid > 1 && !killed) /* 0: of a pid namespace that we do not see; that one is not ours */
            kill((pid_t)pid, SIGKILL);
    }
    return found;
}

/*
 * Only for what no record and no pidfd tells about: a box whose maker died on the way. The numbers
 * are used at once; a process that ends in between frees its number, but reuse within microseconds
 * needs the whole range of numbers to be used up first.
 */
unsigned cgroup_kill(const char *id)
{
    unsigned found = 0;

    (void)!cgroup_freeze(id, false); /* the frozen do not die */
    for (unsigned i = 0; i < hierarchy_count; i++)
        found += kill_in(&hierarchies[i], id);
    return found;
}

static void each_in(int dir_fd, void (*fn)(const char id[BOX_ID_SIZE]))
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((entry = readdir(dir))) {
        char id[BOX_ID_SIZE] = "";

        if (entry->d_type != DT_DIR || strlen(entry->d_name) >= sizeof(id))
            continue;
        memcpy(id, entry->d_name, strlen(entry->d_name));
        if (box_id_ok(id))
            fn(id);
    }
    closedir(dir);
}

void cgroup_each(void (*fn)(const char id[BOX_ID_SIZE]))
{
    for (unsigned i = 0; i < hierarchy_count; i++)
        each_in(hierarchies[i].fd, fn);
}
