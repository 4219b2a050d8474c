/*
 * Who owns what: a server owns its state directory while it holds STATE/lock, and its processes
 * while they are below its warden. So a leak is
 *
 *   - a process of ours in a role that needs a parent (api, init…) without a warden above it, and a
 *     warden that holds no lock at all;
 *   - a cgroup named atoll… in which no process of ours is left, a mount or a pinned namespace of a
 *     state directory whose server is gone, or a loop device that holds its disks;
 *   - a file that only a running server has (the socket), that only lives for a moment (*.tmp), or
 *     that we never make.
 *
 * The lock is looked up in /proc/locks by device and inode: asking for it ourselves, even for a
 * moment, could make a server that starts just then believe that another one is running.
 */
#include "host/leaks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "base/mem.h"
#include "base/str.h"
#include "host/own.h"

#define CGROUP_DEPTH 6
#define TMP_YOUNG_S 60 /* a *.tmp of a running server may be younger than this */

struct search {
    const char *dir; /* the state directory */
    leak_fn fn;
    void *ctx;
    int holder; /* of the lock; 0: nobody */
    int found;
};

const char *leak_kind_name(enum leak_kind kind)
{
    static const char *const names[] = {
        "process", "cgroup", "mount", "namespace", "file", "device"
    };

    return (unsigned)kind < ARRAY_LEN(names) ? names[kind] : "unknown";
}

static void report(struct search *search, enum leak_kind kind, pid_t pid, const char *why,
                   const char *fmt, ...) printf_like(5, 6);

static void report(struct search *search, enum leak_kind kind, pid_t pid, const char *why,
                   const char *fmt, ...)
{
    struct leak leak = { .kind = kind, .pid = pid };
    va_list args;

    va_start(args, fmt);
    vsnprintf(leak.what, sizeof(leak.what), fmt, args);
    va_end(args);
    snprintf(leak.why, sizeof(leak.why), "%s", why);
    search->found++;
    search->fn(search->ctx, &leak);
}

/* ---- the lock ---- */

/* "1: FLOCK  ADVISORY  WRITE 4242 fe:00:123456 0 EOF" */
static bool lock_line(const char *line, const char *place, int *pid)
{
    char at[64];

    return sscanf(line, "%*d: FLOCK %*s WRITE %d %63s", pid, at) == 2 && strcmp(at, place) == 0;
}

static int holder_in_proc(const struct stat *st)
{
    FILE *file = fopen("/proc/locks", "re");
    char line[256], place[64];
    int pid = 0, holder = 0;

    snprintf(place, sizeof(place), "%02x:%02x:%llu", major(st->st_dev), minor(st->st_dev),
             (unsigned long long)st->st_ino);
    while (file && !holder && fgets(line, sizeof(line), file))
        if (lock_line(line, place, &pid))
            holder = pid > 0 ? pid : 1;
    if (file)
        fclose(file);
    return holder;
}

/* Does this process hold any lock file? */
static bool holds_a_lock(pid_t pid)
{
    FILE *file = fopen("/proc/locks", "re");
    char line[256], at[64];
    int owner;
    bool found = !file; /* cannot be told: no accusation */

    while (file && !found && fgets(line, sizeof(line), file))
        found = sscanf(line, "%*d: FLOCK %*s WRITE %d %63s", &owner, at) == 2 && owner == pid;
    if (file)
        fclose(file);
    return found;
}

/* ---- processes ---- */

struct process {
    pid_t pid, parent;
    char comm[32];
    char argv0[256], argv1[64];
};

static bool read_process(pid_t pid, struct process *out)
{
    char path[64], text[512];
    autoclose int fd = -1;

    *out = (struct process){ .pid = pid };
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (!host_line(path, text, sizeof(text)))
        return false;
    char *open_at = strchr(text, '('), *close_at = strrchr(text, ')');
    char state;
    if (!open_at || !close_at || sscanf(close_at + 1, " %c %d", &state, &out->parent) != 2 ||
        state == 'Z')
        return false;
    snprintf(out->comm, sizeof(out->comm), "%.*s", (int)(close_at - open_at - 1), open_at + 1);
    snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[len > 0 ? len : 0] = 0;
    snprintf(out->argv0, sizeof(out->argv0), "%.*s", (int)sizeof(out->argv0) - 1, text);
    size_t first = strlen(text) + 1;
    if (len > 0 && first < (size_t)len)
        snprintf(out->argv1, sizeof(out->argv1), "%.*s", (int)sizeof(out->argv1) - 1, text + first);
    return true;
}

static bool is_warden(const struct process *process)
{
    const char *slash = strrchr(process->argv0, '/');

    return strcmp(process->comm, "atoll-warden") == 0 &&
           strcmp(slash ? slash + 1 : process->argv0, "atoll-warden") == 0;
}

/*
 * Some file systems (btrfs) show another device in /proc/locks than stat does: then the process
 * whose number is in the file counts, if it is a warden.
 */
static int holder_by_name(const char *path)
{
    int64_t pid = host_number(path, 0);
    struct process process;

    if (pid < 2 || pid > INT32_MAX || !read_process((pid_t)pid, &process) || !is_warden(&process))
        return 0;
    return (int)pid;
}

int host_lock_holder(const char *state_dir, struct err *err)
{
    autofree char *path = xprintf("%s/lock", state_dir);
    struct stat st;

    if (stat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(err, "look at %s", path);
    int holder = holder_in_proc(&st);
    return holder ? holder : holder_by_name(path);
}

/* Roles that only a warden starts. Their first words are ours: nobody types `atoll api`. */
static bool is_role(const struct process *process)
{
    static const char *const roles[] = { "api", "egress", "llm" };

    if (strcmp(process->comm, "atoll-init") == 0)
        return true;
    if (strcmp(process->argv0, "atoll") != 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(roles); i++)
        if (strcmp(process->argv1, roles[i]) == 0)
            return true;
    return false;
}

/* Follows parents up to a warden. */
static bool below_warden(pid_t pid)
{
    struct process process;

    for (int depth = 0; pid > 1 && depth < 64; depth++) {
        if (!read_process(pid, &process))
            return false;
        if (is_warden(&process))
            return true;
        pid = process.parent;
    }
    return false;
}

static void find_processes(struct search *search)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    struct process process;
    uint64_t pid;

    while (dir && (entry = readdir(dir))) {
        if (!str_to_u64(str_of(entry->d_name), &pid) || !read_process((pid_t)pid, &process))
            continue;
        if (is_warden(&process) && !holds_a_lock(process.pid))
            report(search, LEAK_PROCESS, process.pid, "a warden without a state directory",
                   "pid %d (%s)", process.pid, process.comm);
        else if (is_role(&process) && !below_warden(process.parent))
            report(search, LEAK_PROCESS, process.pid, "its warden is gone", "pid %d (%s)",
                   process.pid, process.comm);
    }
    if (dir)
        closedir(dir);
}

/* ---- cgroups ---- */

/* Is there a process in this group or below? v2 says so itself; v1 is asked group by group. */
static bool group_in_use(const char *path, int depth)
{
    autofree char *procs = xprintf("%s/cgroup.procs", path);
    char line[64];

    if (host_line(procs, line, sizeof(line)) && line[0])
        return true;
    DIR *dir = depth > 0 ? opendir(path) : NULL;
    struct dirent *entry;
    bool used = false;
    while (dir && !used && (entry = readdir(dir)))
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            autofree char *below = xprintf("%s/%s", path, entry->d_name);

            used = group_in_use(below, depth - 1);
        }
    if (dir)
        closedir(dir);
    return used;
}

static bool group_is_ours(const char *name)
{
    const char *dot = strrchr(name, '.');

    /* systemd's own groups (atoll.service) are systemd's to remove. */
    if (dot &&
        (strcmp(dot, ".service") == 0 || strcmp(dot, ".slice") == 0 || strcmp(dot, ".scope") == 0))
        return false;
    return strncmp(name, "atoll", 5) == 0;
}

/* "atoll-DEV-INO": the warden's name for the groups of the state directory with these numbers. */
static bool group_of_a_state(const char *name)
{
    unsigned long long dev, ino;
    int end = 0;

    return sscanf(name, "atoll-%llx-%llx%n", &dev, &ino, &end) == 2 && name[end] == 0;
}

static bool group_of_this_state(const struct search *search, const char *name)
{
    char ours[64];
    struct stat st;

    if (stat(search->dir, &st) < 0)
        return false;
    snprintf(ours, sizeof(ours), "atoll-%llx-%llx", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return strcmp(name, ours) == 0;
}

static void judge_group(struct search *search, const char *path, const char *name, int depth)
{
    if (group_of_a_state(name)) {
        if (!group_of_this_state(search, name))
            return; /* another server's business */
        if (search->holder) {
            DIR *dir = opendir(path);
            struct dirent *entry;

            while (dir && (entry = readdir(dir))) {
                autofree char *box = xprintf("%s/%s", path, entry->d_name);

                if (entry->d_type == DT_DIR && entry->d_name[0] != '.' && !group_in_use(box, depth))
                    report(search, LEAK_CGROUP, 0, "a sandbox without a process", "%s", box);
            }
            if (dir)
                closedir(dir);
            return;
        }
    }
    if (!group_in_use(path, depth))
        report(search, LEAK_CGROUP, 0, "no process is left in it", "%s", path);
}

static void find_groups_in(struct search *search, const char *path, int depth)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        autofree char *below = xprintf("%s/%s", path, entry->d_name);
        if (!group_is_ours(entry->d_name)) {
            if (depth > 0)
                find_groups_in(search, below, depth - 1);
        } else {
            judge_group(search, below, entry->d_name, depth);
        }
    }
    if (dir)
        closedir(dir);
}

static bool find_groups(void *ctx, const struct host_mount *mount)
{
    if (strcmp(mount->type, "cgroup") == 0 || strcmp(mount->type, "cgroup2") == 0)
        find_groups_in(ctx, mount->point, CGROUP_DEPTH);
    return true;
}

/* ---- mounts and namespaces ---- */

static bool find_mount(void *ctx, const struct host_mount *mount)
{
    struct search *search = ctx;
    size_t len = strlen(search->dir);
    bool inside = strncmp(mount->point, search->dir, len) == 0 && mount->point[len] == '/';
    bool named = strncmp(mount->source, "atoll", 5) == 0;

    if (search->holder || (!inside && !named))
        return true; /* a running server knows its own */
    if (strcmp(mount->type, "nsfs") == 0)
        report(search, LEAK_NAMESPACE, 0, "pinned, and its server is not running", "%s",
               mount->point);
    else
        report(search, LEAK_MOUNT, 0, "its server is not running", "%s (%s)", mount->point,
               mount->type);
    return true;
}

/* ---- loop devices ---- */

/* Whose file is STATE/disks.img, also when that was removed meanwhile. */
static void judge_loop(struct search *search, const char *name)
{
    autofree char *path = xprintf("/sys/block/%s/loop/backing_file", name);
    autofree char *disks = xprintf("%s/disks.img", search->dir);
    size_t len = strlen(disks);
    char file[4096];

    if (!host_line(path, file, sizeof(file)) || strncmp(file, disks, len) != 0)
        return;
    if (file[len] == 0 || strcmp(file + len, " (deleted)") == 0)
        report(search, LEAK_DEVICE, 0, "it holds the disks of a server that is not running",
               "/dev/%s (%s)", name, file);
}

static void find_loops(struct search *search)
{
    DIR *dir = search->holder ? NULL : opendir("/sys/block");
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (strncmp(entry->d_name, "loop", 4) == 0)
            judge_loop(search, entry->d_name);
    if (dir)
        closedir(dir);
}

/* ---- files ---- */

struct known {
    const char *name;
    bool only_running; /* a stopped server has removed it */
};

static const struct known state_files[] = {
    { "lock", false },
    { "admin.token", false },
    { "egress.key", false },
    { "data", false },
    { "boxes", false },
    { "images", false },
    { "records", false },
    { "atoll.sock", true },
    { "door.sock", true },
    { "disks.img", false },
    { "disks.new", true },
    { "disks", false }, /* where kernels that cannot do without it attach them */
    { 0 },
};

static bool is_tmp(const char *name)
{
    return strstr(name, ".tmp") != NULL || strstr(name, ".db.new") != NULL ||
           strstr(name, ".db.part") != NULL;
}

static bool young(int dir_fd, const char *name)
{
    struct stat st;

    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_mtime > time(NULL) - TMP_YOUNG_S;
}

static void judge_file(struct search *search, int dir_fd, const char *dir, const char *name,
                       const struct known *known)
{
    if (is_tmp(name)) {
        if (!search->holder || !young(dir_fd, name))
            report(search, LEAK_FILE, 0, "was to live for a moment only", "%s/%s", dir, name);
        return;
    }
    for (; known && known->name; known++)
        if (strcmp(known->name, name) == 0) {
            if (known->only_running && !search->holder)
                report(search, LEAK_FILE, 0, "its server is not running", "%s/%s", dir, name);
            return;
        }
    if (known)
        report(search, LEAK_FILE, 0, "not a file of ours", "%s/%s", dir, name);
}

/* `known` NULL: every name may be there, and only the passing ones are looked for. */
static int find_files(struct search *search, const char *dir, const struct known *known,
                      struct err *err)
{
    DIR *handle = opendir(dir);
    struct dirent *entry;

    if (!handle)
        return errno == ENOENT || errno == EACCES ? 0 : err_sys(err, "list %s", dir);
    while ((entry = readdir(handle)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            judge_file(search, dirfd(handle), dir, entry->d_name, known);
    closedir(handle);
    return 0;
}

int host_leaks(const char *state_dir, leak_fn fn, void *ctx, struct err *err)
{
    struct search search = { .dir = state_dir, .fn = fn, .ctx = ctx };
    autofree char *data = xprintf("%s/data", state_dir);

    search.holder = host_lock_holder(state_dir, err);
    if (search.holder < 0)
        return -1;
    find_processes(&search);
    host_mounts(find_groups, &search);
    host_mounts(find_mount, &search);
    find_loops(&search);
    if (find_files(&search, state_dir, state_files, err) < 0 ||
        find_files(&search, data, NULL, err) < 0)
        return -1;
    return search.found;
}
