/* own - what the files of the host room share among themselves. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/str.h"
#include "host/leaks.h"
#include "host/probe.h"

struct probe_world {
    const char *state_dir; /* as asked for */
    char near[4096];       /* it, or its nearest parent that exists */
    bool root;
    bool exists, writable; /* the state directory itself */
};

typedef void (*probe_fn)(const struct probe_world *world, struct probe_result *out);

struct probe_check {
    const char *name;
    probe_fn run;
};

/* Tables, each ended by a NULL name; probe.c lists them. */
extern const struct probe_check probe_kernel_checks[];
extern const struct probe_check probe_mount_checks[];
extern const struct probe_check probe_machine_checks[];

/* probe_kvm.c, probe_disks.c */
void probe_kvm(const struct probe_world *world, struct probe_result *out);
void probe_disks(const struct probe_world *world, struct probe_result *out);

/* Has a kernel of this version CVE-2022-0847, unless its distribution fixed it alone? */
bool probe_dirty_pipe(unsigned major, unsigned minor, unsigned patch);

/* What a value of fs.suid_dumpable means. */
void probe_dumpable(int64_t value, struct probe_result *out);

/* Filling a result. */
void probe_found(struct probe_result *out, const char *fmt, ...) printf_like(2, 3);
void probe_say(struct probe_result *out, enum probe_state state, const char *lost, const char *fix);

/*
 * Runs `fn` in a child that is killed after `ms`. 0 or an errno as fn returned it; -1 when the
 * child died. Whatever namespaces it entered and mounts it made end with it.
 */
int probe_child(int (*fn)(const void *arg), const void *arg, int ms);

/* The first line of a small file without its newline; false when it cannot be read. */
bool host_line(const char *path, char *out, size_t size);
/* The number in a small file, or `otherwise`. */
int64_t host_number(const char *path, int64_t otherwise);

/* One line of mountinfo, texts unescaped. */
struct host_mount {
    char root[4096], point[4096];
    char type[64], source[4096], options[1024];
};
must_use bool host_mount_parse(struct str line, struct host_mount *out);
/* Calls `fn` for each until it returns false; false when mountinfo cannot be read. */
bool host_mounts(bool (*fn)(void *ctx, const struct host_mount *mount), void *ctx);

/* ---- leaks.c, leaks_live.c ---- */

struct leak_search {
    const char *dir; /* the state directory */
    leak_fn fn;
    void *ctx;
    int holder; /* of the lock; 0: nobody */
    int found;
    struct leak_live *live; /* leaks_live.c */
};

void leak_report(struct leak_search *search, enum leak_kind kind, pid_t pid, const char *why,
                 const char *fmt, ...) printf_like(5, 6);
bool leak_holds_a_lock(pid_t pid);
bool leak_is_warden(pid_t pid);
/* Processes and cgroups; what they tell of state directories is kept until leak_live_free. */
void leak_find_live(struct leak_search *search);
/* Something of ours is left of a state directory that was at this path and is there no more. */
bool leak_dir_gone(const struct leak_search *search, const char *dir);
/* Sandboxes of the state directory run. */
bool leak_dir_used(const struct leak_search *search);
void leak_live_free(struct leak_search *search);
