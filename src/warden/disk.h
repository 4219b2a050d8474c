/*
 * disk - disks, mounts into boxes that run, and the door: what these files share.
 *
 *   jobs.c   work that may take long, in a child of its own
 *   store.c  the file system that holds all disks: image, loop device, mount
 *   btrfs.c  one disk: made, copied, limited, measured, dropped
 *   disks.c  the verbs about disks, and when the store is opened
 *   inject.c a mount into a box that runs; a new size of a box's memory
 *   door.c   where callers leave directories
 *
 * The store is one btrfs file system in STATE/disks.img. Its mount is never attached anywhere (on
 * kernels that can copy such a thing): it lives as long as a descriptor or a box does, and so
 * nobody else on the machine ever sees a file of a box, and nothing is left to unmount.
 */
#pragma once

#include "base/limits.h"
#include "warden/boxes.h"

/* ---- jobs.c ---- */

#define DOOR_CALLERS 8        /* heard at once… */
#define DOOR_CALLERS_EACH 4   /* …of one user who is neither root nor the owner… */
#define DOOR_CALLERS_OTHERS 6 /* …and of all of those */
#define JOBS_MAX (16 + DOOR_CALLERS)

/*
 * In the child: *msg is the request and becomes the answer; a descriptor may go along in *fd. 0, or
 * -1 with errno, which is then the answer's status.
 */
typedef int job_fn(struct wire_msg *msg, int *fd);
/* In the warden, when the child is through; before the answer is said. */
typedef void job_done_fn(struct wire_msg *answer, int fd);

/* Answered when it is done; at once with EAGAIN when too many are under way. `done` may be NULL. */
void job_start(const struct wire_msg *request, job_fn *fn, job_done_fn *done);
/*
 * The same for something that the api did not ask for; -1 when it could not be started. `number` is
 * in the request and in the answer; with it, job_kill ends the work, and `done` hears of that.
 */
must_use int job_own(uint32_t number, job_fn *fn, job_done_fn *done);
void job_kill(job_fn *fn, uint32_t number);
unsigned jobs_waits(struct pollfd waits[JOBS_MAX]);
/* False when the descriptor is no job's. */
bool jobs_woken(int fd);
/* The process was one of ours: it has ended, and is still to be waited for. */
bool jobs_own(pid_t pid);
bool jobs_idle(void); /* none is under way or to be waited for */
void jobs_reaped(pid_t pid);
int64_t jobs_due_ms(void);
void jobs_run_due(int64_t now_ms);
/* Ends all that are under way. */
void jobs_close(void);

/* ---- store.c: in a child ---- */

/*
 * The mounted store, from STATE/disks.img, which is made if it is missing; -1 with errno and what
 * it was that failed.
 */
must_use int store_open(int state_fd, const char **why);
bool store_exists(int state_fd);
/* Whether one could be made; -1 with errno and what is missing. */
must_use int store_possible(const char **why);

/* ---- btrfs.c: in a child; `store` is the mount ---- */

#define DISK_NAME_SIZE 24

void disk_name(uint64_t id, char out[DISK_NAME_SIZE]);
must_use int disk_make(int store, const struct disk_wish *wish);
must_use int disk_limit(int store, const struct disk_wish *wish);
must_use int disk_stat(int store, uint64_t id, struct disk_usage *out);
must_use int disk_drop(int store, uint64_t id);
must_use int disk_list(int store, uint64_t after, struct disk_rows *out);
/* Turns limits on for the whole store. */
must_use int disk_quotas(int store);
/*
 * A detached copy of the mount below a new directory on a disk, which has `upper` and `work` for a
 * view; `owner`, as a box sees it, is the owner of `upper`.
 */
must_use int disk_view(int store, uint64_t id, uid_t owner);
/* Removes those whose making was cut off. */
void disk_sweep(int store);

/* ---- disks.c ---- */

void disks_open(int state_fd);
void disks_close(void);
void disks_hear(const struct wire_msg *request);
/*
 * Whether boxes can be made of disks now: 0; or the request was put aside and will be heard again
 * (EINPROGRESS), or an errno.
 */
int disks_ready(const struct wire_msg *request);
/* A detached copy of a disk's mount: the whole of it (up and work), or only its tree. */
must_use int disks_tree(uint64_t id, bool whole);
must_use int disks_view(uint64_t id, uid_t owner);
int disks_bytes(uint64_t id, struct disk_usage *out);
/* A box that wrote to a disk has ended: the data gets to the image, some time. */
void disks_sync(void);

/* ---- inject.c ---- */

void inject_mount(struct box *box, const struct wire_msg *request);
void inject_size(struct box *box, const struct wire_msg *request);
/*
 * In a child that is in the box's mount namespace: a view at the path `target` below the root.
 * `lower` is the directory, a detached mount. `disk` is a detached mount of what disk_view made, or
 * -1: what is changed is kept in memory. `owner` is the directory's user, `first` the box's root.
 */
struct view_wish {
    int lower, disk;
    uid_t first, owner;
    const char *target;
};
must_use int view_mount(const struct view_wish *wish);
/*
 * The directory `path` (relative, checked) beneath `root`, part by part; what is missing is made.
 * Whoever calls has become the one that should own it. A descriptor, or -1.
 */
must_use int target_make(int root, const char *path);

#ifdef ATOLL_FAULTS
extern bool disk_full_quotas;
#endif

/* ---- door.c ---- */

#define DOOR_WAITS 1

must_use int door_open(int state_fd);
void door_close(int state_fd);
unsigned door_waits(struct pollfd waits[DOOR_WAITS]);
bool door_woken(int fd);
int64_t door_due_ms(void);
void door_run_due(int64_t now_ms);

struct door_dir {
    int fd; /* a detached copy of the mount below the directory; the taker closes it */
    uid_t uid;
    gid_t gid;
    gid_t groups[DOOR_GROUPS_MAX];
    unsigned group_count;
};
/* 0, or EBUSY, ETIMEDOUT. A ticket is good once. */
must_use int door_take(const uint8_t ticket[16], struct door_dir *out);
#ifdef ATOLL_FAULTS
bool door_busy(void); /* somebody is heard, waits, or is to be let go of */
void door_forget_knocks(void);
#endif
