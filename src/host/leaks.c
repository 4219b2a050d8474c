/*
 * Who owns what: a server owns its state directory while it holds STATE/lock, and its processes
 * while they are below its warden. Sandboxes stay when it ends, and belong to the state directory,
 * which the next server finds. So a leak is
 *
 *   - a process of ours in a role that needs a parent (api…) without a warden above it, a warden
 * that holds no lock at all, and an init whose state directory is gone (leaks_live.c);
 *   - a cgroup named atoll… in which no process of ours is left or whose state directory is gone, a
 *     mount or a pinned namespace of a state directory whose server is not running, or a loop
 * device that holds its disks;
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

#define TMP_YOUNG_S 60 /* a *.tmp of a running server may be younger than this */

const char *leak_kind_name(enum leak_kind kind)
{
    static const char *const names[] = { "process", "cgroup", "mount", "namespace",
                                         "file",    "device", "disk" };

    return (unsigned)kind < ARRAY_LEN(names) ? names[kind] : "unknown";
}

void leak_report(struct leak_search *search, enum leak_kind kind, pid_t pid, const char *why,
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
bool leak_holds_a_lock(pid_t pid)
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

/*
 * Some file systems (btrfs) show another device in /proc/locks than stat does: then the process
 * whose number is in the file counts, if it is a warden.
 */
static int holder_by_name(const char *path)
{
    int64_t pid = host_number(path, 0);

    return pid < 2 || pid > INT32_MAX || !leak_is_warden((pid_t)pid) ? 0 : (int)pid;
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

/* ---- mounts and namespaces ---- */

static bool find_mount(void *ctx, const struct host_mount *mount)
{
    struct leak_search *search = ctx;
    size_t len = strlen(search->dir);
    bool inside = strncmp(mount->point, search->dir, len) == 0 && mount->point[len] == '/';
    bool named = strncmp(mount->source, "atoll", 5) == 0;

    if (search->holder || (!inside && !named))
        return true; /* a running server knows its own */
    if (strcmp(mount->type, "nsfs") == 0)
        leak_report(search, LEAK_NAMESPACE, 0, "pinned, and its server is not running", "%s",
                    mount->point);
    else
        leak_report(search, LEAK_MOUNT, 0, "its server is not running", "%s (%s)", mount->point,
                    mount->type);
    return true;
}

/* ---- loop devices ---- */

/* Whose file is STATE/disks.img, also when that was removed meanwhile. */
static void judge_loop(struct leak_search *search, const char *name)
{
    autofree char *path = xprintf("/sys/block/%s/loop/backing_file", name);
    char file[4096], dir[4096];

    if (!host_line(path, file, sizeof(file)))
        return;
    char *end = strstr(file, "/disks.img");
    size_t len = end ? (size_t)(end - file) : 0;
    if (!end || (end[10] && strcmp(end + 10, " (deleted)") != 0))
        return;
    snprintf(dir, sizeof(dir), "%.*s", (int)len, file);
    bool left = strcmp(dir, search->dir) == 0 && !search->holder && !leak_dir_used(search);
    if (left || leak_dir_gone(search, dir))
        leak_report(search, LEAK_DEVICE, 0, "it holds the disks of a server that is not running",
                    "/dev/%s (%s)", name, file);
}

static void find_loops(struct leak_search *search)
{
    DIR *dir = opendir("/sys/block");
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

static void judge_file(struct leak_search *search, int dir_fd, const char *dir, const char *name,
                       const struct known *known)
{
    if (is_tmp(name)) {
        if (!search->holder || !young(dir_fd, name))
            leak_report(search, LEAK_FILE, 0, "was to live for a moment only", "%s/%s", dir, name);
        return;
    }
    for (; known && known->name; known++)
        if (strcmp(known->name, name) == 0) {
            if (known->only_running && !search->holder)
                leak_report(search, LEAK_FILE, 0, "its server is not running", "%s/%s", dir, name);
            return;
        }
    if (known)
        leak_report(search, LEAK_FILE, 0, "not a file of ours", "%s/%s", dir, name);
}

/* `known` NULL: every name may be there, and only the passing ones are looked for. */
static int find_files(struct leak_search *search, const char *dir, const struct known *known,
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
    struct leak_search search = { .dir = state_dir, .fn = fn, .ctx = ctx };
    autofree char *data = xprintf("%s/data", state_dir);

    int rc = 0;

    search.holder = host_lock_holder(state_dir, err);
    if (search.holder < 0)
        return -1;
    leak_find_live(&search);
    host_mounts(find_mount, &search);
    find_loops(&search);
    if (find_files(&search, state_dir, state_files, err) < 0 ||
        find_files(&search, data, NULL, err) < 0)
        rc = -1;
    leak_live_free(&search);
    return rc < 0 ? -1 : search.found;
}
