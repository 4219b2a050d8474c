/*
 * leaks - anything of ours on this machine that no live server owns.
 *
 * Looks only at what the kernel shows (/proc, mountinfo, cgroupfs, the state directory), so it
 * works when every process of ours is gone, and changes nothing but by host_sweep. A server is live
 * when its lock is held.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"

enum leak_kind {
    LEAK_PROCESS,
    LEAK_CGROUP,
    LEAK_MOUNT,
    LEAK_NAMESPACE,
    LEAK_FILE,
    LEAK_DEVICE,
    LEAK_DISK /* that the database does not name; the caller looks there */
};

struct leak {
    enum leak_kind kind;
    pid_t pid;       /* of a process; otherwise 0 */
    char what[1024]; /* path, or "pid 4242 (atoll-init)" */
    char why[160];   /* "its warden is gone" */
};

typedef void (*leak_fn)(void *ctx, const struct leak *leak);

/* "process", "cgroup", "mount", "namespace", "file", "device", "disk". */
const char *leak_kind_name(enum leak_kind kind);

/*
 * Calls `fn` with each leak; the number found, or -1. Without root only what this user may see is
 * looked at. A state directory that does not exist has no leaks.
 */
must_use int host_leaks(const char *state_dir, leak_fn fn, void *ctx, struct err *err);

/*
 * The process that holds STATE/lock, or 0 when the server is not running; -1 with *err when the
 * lock cannot be looked at. Does not take the lock.
 */
must_use int host_lock_holder(const char *state_dir, struct err *err);

/*
 * Removes the cgroups in which nobody is and whose state directory is gone: of a server that was
 * killed and will never start again, so that nobody else comes back for them. How many.
 */
int host_sweep(const char *state_dir);
