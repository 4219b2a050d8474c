/*
 * Processes and cgroups, and the state directories they belong to.
 *
 * Inits and cgroups carry a mark, "atoll-DEV-INO", the numbers of their state directory; a cgroup
 * also says where that was (CGROUP_OWNER, set by the warden). So of each mark it can be told
 * whether
 *
 *   its server runs       a warden holds that directory open
 *   it waits for one      the directory is where it was: its sandboxes stay on purpose
 *   it is gone            the directory is not there any more: nobody will ever come back for them
 *   nothing is known      another user's, or a mark without a cgroup while there are wardens that
 *                         we may not look into: nobody is accused
 *
 * /proc is walked once, whatever there is to be judged.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/mem.h"
#include "base/str.h"
#include "host/own.h"
#include "wire/layout.h"

#define CGROUP_DEPTH 6
#define MARK_SIZE 64
#define MARK "atoll-%llx-%llx"

enum role { ROLE_NONE, ROLE_WARDEN, ROLE_CHILD, ROLE_INIT };

struct process {
    pid_t pid, parent;
    enum role role;
    char comm[32];
    char mark[MARK_SIZE]; /* of an init; "" without one */
};

enum verdict { STATE_UNKNOWN, STATE_RUNS, STATE_WAITS, STATE_GONE };

struct state {
    char mark[MARK_SIZE];
    enum verdict verdict;
    char *dir; /* where it was; NULL: nobody has said */
};

struct leak_live {
    struct process *processes; /* by pid */
    size_t count, room;
    struct state *states;
    size_t states_count, states_room;
    bool closed; /* there are wardens that we may not look into */
};

/* ---- processes ---- */

/* The numbers of a state directory, whole and nothing else. */
static bool is_mark(const char *name)
{
    unsigned long long dev, ino;
    int end = 0;

    return sscanf(name, MARK "%n", &dev, &ino, &end) == 2 && name[end] == 0;
}

static bool read_stat(pid_t pid, struct process *out)
{
    char path[64], text[512], state;

    *out = (struct process){ .pid = pid };
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (!host_line(path, text, sizeof(text)))
        return false;
    char *open_at = strchr(text, '('), *close_at = strrchr(text, ')');
    if (!open_at || !close_at || sscanf(close_at + 1, " %c %d", &state, &out->parent) != 2 ||
        state == 'Z')
        return false;
    snprintf(out->comm, sizeof(out->comm), "%.*s", (int)(close_at - open_at - 1), open_at + 1);
    return true;
}

/* Roles that only a warden starts. Their first words are ours: nobody types `atoll api`. */
static void read_role(struct process *out)
{
    static const char *const roles[] = { "api", "egress", "llm" };
    char path[64], text[512];

    snprintf(path, sizeof(path), "/proc/%d/cmdline", out->pid);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[len > 0 ? len : 0] = 0;
    const char *first = strrchr(text, '/'), *word = first ? first + 1 : text;
    const char *second = strlen(text) + 1 < (size_t)MAX(len, 0) ? text + strlen(text) + 1 : "";

    if (strcmp(out->comm, "atoll-warden") == 0 && strcmp(word, "atoll-warden") == 0)
        out->role = ROLE_WARDEN;
    if (strcmp(out->comm, "atoll-init") == 0 || strcmp(text, "atoll-init") == 0)
        out->role = ROLE_INIT;
    if (out->role == ROLE_INIT && is_mark(second))
        snprintf(out->mark, sizeof(out->mark), "%s", second);
    for (size_t i = 0; strcmp(text, "atoll") == 0 && i < ARRAY_LEN(roles); i++)
        if (strcmp(second, roles[i]) == 0)
            out->role = ROLE_CHILD;
}

bool leak_is_warden(pid_t pid)
{
    struct process process;

    if (!read_stat(pid, &process))
        return false;
    read_role(&process);
    return process.role == ROLE_WARDEN;
}

static int by_pid(const void *a, const void *b)
{
    const struct process *x = a, *y = b;

    return (x->pid > y->pid) - (x->pid < y->pid);
}

static void walk(struct leak_live *live)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    struct process process;
    uint64_t pid;

    while (dir && (entry = readdir(dir))) {
        if (!str_to_u64(str_of(entry->d_name), &pid) || !read_stat((pid_t)pid, &process))
            continue;
        read_role(&process);
        if (live->count == live->room) {
            live->room = MAX(2 * live->room, (size_t)256);
            live->processes = xrealloc(live->processes, live->room * sizeof(process));
        }
        live->processes[live->count++] = process;
    }
    if (dir)
        closedir(dir);
    if (live->count)
        qsort(live->processes, live->count, sizeof(process), by_pid);
}

/* Follows parents up to a warden. */
static bool below_warden(const struct leak_live *live, pid_t pid)
{
    for (int depth = 0; pid > 1 && depth < 64; depth++) {
        const struct process key = { .pid = pid };
        const struct process *found =
            bsearch(&key, live->processes, live->count, sizeof(key), by_pid);

        if (!found || found->role == ROLE_WARDEN)
            return found != NULL;
        pid = found->parent;
    }
    return false;
}

/* ---- state directories ---- */

static bool mark_of(const char *path, char out[MARK_SIZE])
{
    struct stat st;

    if (stat(path, &st) < 0)
        return false;
    snprintf(out, MARK_SIZE, MARK, (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
    return true;
}

static struct state *state_of(struct leak_live *live, const char *mark)
{
    for (size_t i = 0; i < live->states_count; i++)
        if (strcmp(live->states[i].mark, mark) == 0)
            return &live->states[i];
    if (live->states_count == live->states_room) {
        live->states_room = MAX(2 * live->states_room, (size_t)16);
        live->states = xrealloc(live->states, live->states_room * sizeof(*live->states));
    }
    struct state *state = &live->states[live->states_count++];
    *state = (struct state){ 0 };
    snprintf(state->mark, sizeof(state->mark), "%s", mark);
    return state;
}

static void know_wardens(struct leak_search *search)
{
    struct leak_live *live = search->live;
    char path[64], mark[MARK_SIZE];

    for (size_t i = 0; i < live->count; i++) {
        if (live->processes[i].role != ROLE_WARDEN)
            continue;
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", live->processes[i].pid, WARDEN_FD_STATE);
        if (mark_of(path, mark))
            state_of(live, mark)->verdict = STATE_RUNS;
        else if (errno != ENOENT)
            live->closed = true;
    }
    if (mark_of(search->dir, mark))
        state_of(live, mark)->verdict = search->holder ? STATE_RUNS : STATE_WAITS;
}

/* Where a group says that its state directory is; false: it says nothing. */
static bool group_says(const char *path, char dir[4096])
{
    static const char *const names[] = { "trusted." CGROUP_OWNER, "user." CGROUP_OWNER };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        ssize_t len = getxattr(path, names[i], dir, 4095);

        if (len > 0 && dir[0] == '/') {
            dir[len] = 0;
            return true;
        }
    }
    return false;
}

static bool is_there(const char *dir, const char *name)
{
    char mark[MARK_SIZE];

    return mark_of(dir, mark) && strcmp(mark, name) == 0;
}

static void know_group(struct leak_live *live, const char *path, const char *name)
{
    struct state *state = state_of(live, name);
    char dir[4096];

    if (!state->dir && group_says(path, dir))
        state->dir = xstrdup(dir);
    if (state->verdict == STATE_UNKNOWN && state->dir)
        state->verdict = is_there(state->dir, name) ? STATE_WAITS : STATE_GONE;
}

bool leak_dir_gone(const struct leak_search *search, const char *dir)
{
    for (size_t i = 0; i < search->live->states_count; i++) {
        const struct state *state = &search->live->states[i];

        if (state->verdict == STATE_GONE && state->dir && strcmp(state->dir, dir) == 0)
            return true;
    }
    return false;
}

bool leak_dir_used(const struct leak_search *search)
{
    char mark[MARK_SIZE];

    for (size_t i = 0; mark_of(search->dir, mark) && i < search->live->count; i++)
        if (strcmp(search->live->processes[i].mark, mark) == 0)
            return true;
    return false;
}

/* Why what bears this mark is a leak, or NULL. */
static const char *why_gone(struct leak_live *live, const char *mark)
{
    const struct state *state = state_of(live, mark);

    if (state->verdict == STATE_GONE)
        return "its state directory is gone";
    if (state->verdict == STATE_UNKNOWN && !live->closed)
        return "no server runs that it could belong to";
    return NULL;
}

/* ---- judging processes ---- */

static const char *why_process(struct leak_live *live, const struct process *process)
{
    if (process->role == ROLE_WARDEN && !leak_holds_a_lock(process->pid))
        return "a warden without a state directory";
    if (process->role == ROLE_INIT && process->mark[0])
        return below_warden(live, process->parent) ? NULL : why_gone(live, process->mark);
    if ((process->role == ROLE_CHILD || process->role == ROLE_INIT) &&
        !below_warden(live, process->parent))
        return "its warden is gone";
    return NULL;
}

static void judge_processes(struct leak_search *search)
{
    for (size_t i = 0; i < search->live->count; i++) {
        const struct process *process = &search->live->processes[i];
        const char *why = why_process(search->live, process);

        if (why)
            leak_report(search, LEAK_PROCESS, process->pid, why, "pid %d (%s)", process->pid,
                        process->role == ROLE_INIT ? "atoll-init" : process->comm);
    }
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

static bool group_is_ours(const char *path, const char *name)
{
    const char *dot = strrchr(name, '.');
    struct stat st;

    /* systemd's own groups (atoll.service) are systemd's to remove. */
    if (dot &&
        (strcmp(dot, ".service") == 0 || strcmp(dot, ".slice") == 0 || strcmp(dot, ".scope") == 0))
        return false;
    return strncmp(name, "atoll", 5) == 0 && stat(path, &st) == 0 &&
           (geteuid() == 0 || st.st_uid == geteuid());
}

/* Of the server that runs here: each box has its process 1 in it. */
static void judge_boxes(struct leak_search *search, const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        autofree char *box = xprintf("%s/%s", path, entry->d_name);

        if (entry->d_type == DT_DIR && entry->d_name[0] != '.' && !group_in_use(box, 1))
            leak_report(search, LEAK_CGROUP, 0, "a sandbox without a process", "%s", box);
    }
    if (dir)
        closedir(dir);
}

/* A server that was not there yet when processes were looked at. */
static bool starts_now(const struct state *state)
{
    struct err err;

    return state->dir && host_lock_holder(state->dir, &err) != 0;
}

static void judge_group(struct leak_search *search, const char *path, const char *name, int depth)
{
    struct leak_live *live = search->live;
    char ours[MARK_SIZE];

    if (is_mark(name)) {
        const char *why = why_gone(live, name);

        if (why && state_of(live, name)->verdict == STATE_GONE && !group_in_use(path, depth))
            why = "its state directory is gone; the next server that starts removes it";
        if (why) {
            leak_report(search, LEAK_CGROUP, 0, why, "%s", path);
            return;
        }
        if (state_of(live, name)->verdict == STATE_RUNS) {
            if (mark_of(search->dir, ours) && strcmp(ours, name) == 0)
                judge_boxes(search, path);
            return; /* another's business, or done */
        }
        if (state_of(live, name)->verdict == STATE_UNKNOWN || starts_now(state_of(live, name)))
            return;
    }
    if (!group_in_use(path, depth))
        leak_report(search, LEAK_CGROUP, 0, "no process is left in it", "%s", path);
}

typedef void group_fn(struct leak_search *search, const char *path, const char *name, int depth);

static void know(struct leak_search *search, const char *path, const char *name, int depth)
{
    (void)depth;
    if (is_mark(name))
        know_group(search->live, path, name);
}

static void groups_in(struct leak_search *search, const char *path, int depth, group_fn *fn)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        autofree char *below = xprintf("%s/%s", path, entry->d_name);
        if (group_is_ours(below, entry->d_name))
            fn(search, below, entry->d_name, depth);
        else if (depth > 0)
            groups_in(search, below, depth - 1, fn);
    }
    if (dir)
        closedir(dir);
}

static bool is_cgroup(const struct host_mount *mount)
{
    return strcmp(mount->type, "cgroup") == 0 || strcmp(mount->type, "cgroup2") == 0;
}

static bool know_groups(void *ctx, const struct host_mount *mount)
{
    if (is_cgroup(mount))
        groups_in(ctx, mount->point, CGROUP_DEPTH, know);
    return true;
}

static bool judge_groups(void *ctx, const struct host_mount *mount)
{
    if (is_cgroup(mount))
        groups_in(ctx, mount->point, CGROUP_DEPTH, judge_group);
    return true;
}

void leak_find_live(struct leak_search *search)
{
    search->live = xnew(struct leak_live);
    walk(search->live);
    know_wardens(search);
    host_mounts(know_groups, search);
    judge_processes(search);
    host_mounts(judge_groups, search);
}

/* ---- removing ---- */

/* What is in it are groups of boxes; the kernel removes none that somebody is in. */
static bool remove_group(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (entry->d_type == DT_DIR && strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    if (dir)
        closedir(dir);
    return rmdir(path) == 0;
}

/*
 * A warden that lives has its groups locked: one whose state directory was moved, or that is where
 * neither its process nor its directory can be seen from here. And the number of a directory that
 * is gone may be another's by now, whose server begins just then: so what it says is read again.
 */
static void sweep_group(struct leak_search *search, const char *path, const char *name, int depth)
{
    char dir[4096];

    if (!is_mark(name) || state_of(search->live, name)->verdict != STATE_GONE ||
        group_in_use(path, depth))
        return;
    autoclose int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && group_says(path, dir) &&
        !is_there(dir, name) && remove_group(path))
        search->found++;
}

static bool sweep_groups(void *ctx, const struct host_mount *mount)
{
    if (is_cgroup(mount))
        groups_in(ctx, mount->point, CGROUP_DEPTH, sweep_group);
    return true;
}

int host_sweep(const char *state_dir)
{
    struct leak_search search = { .dir = state_dir, .live = xnew(struct leak_live) };

    walk(search.live);
    know_wardens(&search);
    host_mounts(know_groups, &search);
    if (!search.live->closed)
        host_mounts(sweep_groups, &search);
    leak_live_free(&search);
    return search.found;
}

void leak_live_free(struct leak_search *search)
{
    for (size_t i = 0; i < search->live->states_count; i++)
        free(search->live->states[i].dir);
    free(search->live->states);
    free(search->live->processes);
    free(search->live);
    search->live = NULL;
}
