/*
 * box - sandboxes, inside the warden: what its files share.
 *
 * A box is: a process 1 (atoll-init) in namespaces of its own, a root made of mounts that only it
 * has, a range of user ids that nobody else has, cgroups with limits, and a filter. It is made by
 * one clone and a child that walks through box_step in order; the first step that fails ends the
 * child, is told by name, and everything made so far is taken back. Nothing is left out silently.
 *
 * Who owns what: all namespaces are made from the host's user namespace and the box's own user
 * namespace is entered last, so that root inside has no power over any of them.
 *
 *   boxes.h       the table of them and their lives     make.c      one box: before and after clone
 *   child.c       between clone and exec                 mounts.c    its root
 *   namespaces.c  user and network                       cgroup.c    limits, usage, freezer
 *   cgroup_io.c   limits of disks                        cgroup_spare.c  groups that serve again
 *   record.c      what is on disk: adoption and sweep    applied.c   what the kernel says holds
 *   skeleton.c    the lower layer of the default image   lean.c      where a root is put together
 *   sweep.c       its mounts, when all else is gone       net.h       its way out
 *   tool.c        our own program, for boxes that work on images
 */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/auto.h"
#include "base/guard.h"
#include "wire/box.h"
#include "wire/wire.h"

/* ---- faults: in the builds for tests alone ---- */

#ifdef ATOLL_FAULTS
extern int box_fault_in;           /* the n-th try from here fails with EIO; 0: none */
extern uint64_t box_skips;         /* bits of enum box_step: left out, to see what misses them */
extern enum box_step box_fault_at; /* this step fails, in the warden itself */
extern bool box_fault_ends;        /* instead of failing, a child ends without a word */
bool box_fault_now(void);
bool box_fault_here(enum box_step step);
#define box_skipped(step) ((box_skips >> (step)) & 1)
#else
#define box_fault_now() false
#define box_fault_here(step) false
#define box_skipped(step) false
#endif

/* Runs one step; the first that fails ends the function. Needs `enum box_step *step`. */
#define TRY(which, call)                                                                           \
    do {                                                                                           \
        *step = (which);                                                                           \
        if (!box_skipped(which) && (box_fault_now() || (call) < 0))                                \
            return -1;                                                                             \
    } while (0)

struct net;

/* Where the warden keeps things; descriptors, opened once. */
struct box_host {
    int state_fd;       /* STATE, borrowed */
    int boxes_fd;       /* STATE/boxes: a socket per box */
    uint64_t ignored;   /* signals, as a set from 1 on: not what a box begins with */
    int records_fd;     /* STATE/records */
    int skeleton_fd;    /* lower layer of the default image */
    int usr_fd;         /* the host's /usr */
    int init_fd;        /* sealed memfd with atoll-init */
    int lean_fd;        /* mount namespace that boxes begin in a copy of: lean.c */
    int dev_fd;         /* a /dev made once, detached; -1: the kernel cannot copy such a thing */
    int tool_fd;        /* the atoll program, borrowed; -1: none */
    uint32_t uid_first; /* of the first box */
    int landlock_abi;   /* 0: the kernel has none, and no box is made */
    uint32_t uids;      /* of each box; 1: they share the one there is, which is its agent inside */
    uint32_t slots;     /* so many boxes have ids */
    bool rootless;      /* in a user namespace of an ordinary user's: rootless.c */
    int host_dev_fd;    /* then: the host's /dev */
    uint32_t lost;      /* enum box_lost */
    char name[64];      /* of this server's cgroups, and the mark of its processes */
};

static inline uint32_t box_uid_first(const struct box_host *host, uint32_t slot)
{
    return host->uids == 1 ? host->uid_first
                           : host->uid_first + (guard(own_ids) ? slot * host->uids : 0);
}

/* ---- cgroup.c: v1, hybrid and v2 behind one interface ---- */

struct cgroup_doors {
    int tasks[8]; /* v1: where a new process writes "0" */
    unsigned count;
    int memory; /* likewise, or -1: later, when its mounts are there */
    int into;   /* v2: directory for CLONE_INTO_CGROUP, or -1 */
};

/*
 * Finds out what this machine has and makes the directory `name` in each hierarchy; the two paths
 * are /proc/self/mountinfo and /proc/self/cgroup, or a test's. ENOTSUP when a controller is
 * missing.
 */
must_use int cgroup_open(const char *mountinfo, const char *self_cgroup, const char *name);
/* The same with what is there and may be used: never ENOTSUP. What is missing, as enum box_lost. */
must_use int cgroup_open_some(const char *mountinfo, const char *self_cgroup, const char *name);
/* Before either: whose groups these are. */
void cgroup_owner(int state_fd);
uint32_t cgroup_lost(void);
const char *cgroup_missing(void); /* the first controller that is, or NULL */
void cgroup_close(bool remove);
const char *cgroup_mode(void); /* "v1", "v2", "hybrid", "none" */
must_use int cgroup_make(const char *id, const struct box_spec *spec);
/* cgroup_spare.c: one more in each hierarchy, up to so many. */
#define CGROUP_AHEAD 4
#define CGROUP_KEPT 8 /* of those that boxes had: more than that are removed */
void cgroup_make_ahead(void);
/* Looks at those that boxes had: true when it is to be called again in a moment. */
bool cgroup_tidy(void);
must_use int cgroup_limit(const char *id, uint64_t memory, uint32_t pids, uint32_t cpu_percent);
/* For each disk there is; 0 leaves it, BOX_IO_FREE lifts it. Then the same for disks that are new.
 */
must_use int cgroup_io(const char *id, uint64_t bytes, uint64_t ops);
must_use int cgroup_io_again(const char *id);
bool cgroup_io_works(void);
void cgroup_io_usage(const char *id, struct box_usage *out);
void cgroup_io_applied(const char *id, struct box_applied *out);
void cgroup_io_blocks(const char *path); /* instead of /sys/block: a test's */
must_use int cgroup_doors(const char *id, struct cgroup_doors *doors);
void cgroup_doors_close(struct cgroup_doors *doors);
/* Begins it; on v1 it takes until cgroup_frozen says so. */
must_use int cgroup_freeze(const char *id, bool freeze);
bool cgroup_frozen(const char *id);
void cgroup_usage(const char *id, struct box_usage *out);
void cgroup_applied(const char *id, struct box_applied *out);
/* 0 when all are gone; EBUSY while a process is still leaving. */
must_use int cgroup_remove(const char *id);
/* Kills whoever is in it; how many were seen. */
unsigned cgroup_kill(const char *id);
void cgroup_each(void (*fn)(const char id[BOX_ID_SIZE]));

/* ---- namespaces.c ---- */

/*
 * A user namespace in two steps, so that something else can be done while its child runs: 0, and a
 * descriptor; or -1 with errno. What was begun must be finished.
 */
struct userns_making {
    pid_t pid;
    int talk;
};
must_use int userns_begin(const struct box_host *host, uint32_t slot, bool nested,
                          struct userns_making *out);
must_use int userns_finish(struct userns_making *making);
void userns_close(void); /* what is kept open for it */
/* Both: a descriptor, or -1 with errno. */
/* For mounts alone: the one user and group of the host are seen as the user id `to`. */
must_use int userns_make_one(uid_t uid, gid_t gid, uid_t to);
/* With the sockets of a box in it, where they can be made (net.h). */
must_use int netns_make(struct net *net);
must_use int loopback_up(void);

/* ---- rootless.c ---- */

#define ROOTLESS_UIDS_MIN 1024u /* the agent is 1000 */
#define ROOTLESS_BOXES 64u      /* rather so many boxes than more ids for each */

/* How many ids a box gets of so many, and for how many boxes that is enough. */
void rootless_plan(uint32_t ids, uint32_t *each, uint32_t *slots);
void rootless_count(void);
must_use int rootless_netns(struct net *net);
/* The sockets in the network of a process that runs. */
must_use int rootless_net(int pidfd, struct net *net);
/* As tree_detach; with what is mounted below, where the kernel gives one only with the other. */
must_use int rootless_tree(int dir_fd);
/* The host's devices, detached; and bound over the files of the same name in a box's /dev. */
must_use int rootless_devices(const struct box_host *host, int *devices);
must_use int rootless_dev(int root, const int *devices);
/* Ends boxes that have a process 1 and no place in the table. */
void rootless_sweep(void);

/* ---- clone.c ---- */

/*
 * The number from which on descriptors are that the warden keeps as long as a box: FDS_KEPT, or 0
 * where the limit on descriptors leaves no room for that.
 */
int fds_kept_from(void);
/* Gives the descriptor such a number; where none is free, it keeps the one that it has. */
void fd_lift(int *fd);

/*
 * clone3 of a child that gets copies of the descriptors up to `highest` and of all below FDS_KEPT,
 * and of no others. `ends` are the two ends of a pipe or a pair: the child writes a byte to the
 * second when it has its copies, and closes the first. The warden reads that byte here; its caller
 * closes both ends. Returns the process id, 0 in the child, or -1 with errno.
 */
struct clone_args;
must_use pid_t clone_apart(struct clone_args *args, const int ends[2], int highest, int *pidfd);

/* ---- make.c ---- */

#define BOX_DEVICES 6 /* in every /dev */

/* What the child gets open, and what of it the parent keeps. */
struct box_fds {
    int listen, link, userns, netns, report;
    int lower, usr, dev;      /* detached copies of mounts: descriptors of the warden's own mount
                                 namespace cannot be cloned from the child's */
    int devices[BOX_DEVICES]; /* likewise, of the host's, where none can be made */
    int upper, tool, layers[BOX_LAYERS_MAX];
    int proc, sys; /* made by the child before it leaves the host's mounts */
    struct cgroup_doors doors;
};

struct box_begun {
    pid_t pid;
    int pidfd;
    int link;   /* the first connection to its init */
    int report; /* ends with the child or when it has become init: what it said is in the pipe */
};

/* What failed; or, with error 0, that the next thing is to become init. */
struct box_report {
    int32_t step, error;
};

/* What there is of a box before it is asked for. */
struct box_ahead {
    int userns, netns;
};

/*
 * Everything before and including the clone. The namespaces are taken and closed. 0, or -1
 * with errno and *step: then no process was started, and box_unmake takes back the rest.
 */
must_use int box_begin(const struct box_host *host, const struct box_spec *spec, uint32_t slot,
                       const struct box_ahead *ahead, struct box_begun *out, enum box_step *step);
/* Removes cgroups and socket; -1 and EBUSY: again in a moment. From any half-made state. */
must_use int box_unmake(const struct box_host *host, const char *id);
/* A new connection to the init of a box that runs. */
must_use int box_connect(const struct box_host *host, const char *id);

/* ---- tool.c ---- */

/* A detached mount of the atoll program, wherever its file is by now; or -1 with errno. */
must_use int tool_tree(const struct box_host *host);
/* Removes the copy, also of a warden before us. */
void tool_close(const struct box_host *host);

/* ---- lean.c ---- */

/* A mount namespace with next to nothing in it: a descriptor, or -1 with errno. */
must_use int lean_make(void);
/* In the child: its own copy of it. */
must_use int lean_enter(int lean_fd);

/* ---- mounts.c: in the child, in its own mount namespace ---- */

must_use int box_mounts(const struct box_host *host, const struct box_spec *spec,
                        const struct box_fds *fds, uid_t uid_first, enum box_step *step);
/* Before that: /proc, and /sys if it is wished for, detached. */
must_use int box_mounts_early(const struct box_spec *spec, struct box_fds *fds,
                              enum box_step *step);
/* In the parent: a detached copy of the mount below this directory; a /dev, detached. */
must_use int tree_detach(int dir_fd);
must_use int dev_make(bool nodes); /* without nodes: files to bind them over */
#define SECBIT_NO_SETUID_FIXUP_ 4  /* linux/securebits.h has it as an expression of others */
/* Files are made in the name of `uid` from here on, until fs_return; the capabilities stay. */
void fs_become(uid_t uid);
void fs_return(void); /* leaves errno alone */
/* What an overlay that this process mounts writes counts for the quota of the disk below it. */
must_use int fs_drop_resource(void);

/* ---- child.c: all of the child; returns only on failure ---- */

/* Of this process, as a set whose first bit is signal 1. */
uint64_t signals_ignored(void);
must_use int box_child(const struct box_host *host, const struct box_spec *spec, uint32_t slot,
                       struct box_fds *fds, enum box_step *step);

/* ---- record.c ---- */

/* ---- process.c ---- */

/* Who a process is: the number of its inode, and pidns is 0; or when it began, and where. */
struct process_who {
    uint64_t start, pidns;
};
must_use int process_who(int pidfd, pid_t pid, struct process_who *out);
/* In the second way, as every record of earlier builds has it. */
must_use int process_who_by_number(pid_t pid, struct process_who *out);
/* The first line of its "uid_map" or "gid_map", as ids of ours. */
must_use int process_map(pid_t pid, const char *name, uint32_t *first, uint32_t *count);
/* Its mount or user namespace: CLONE_NEWNS, CLONE_NEWUSER. */
must_use int process_namespace(int pidfd, pid_t pid, int which);

/* What is needed to find a box again: who its process 1 is, in a way that no other can be. */
struct box_record {
    uint32_t magic, size;
    char id[BOX_ID_SIZE];
    char boot[39]; /* the machine's boot id */
    uint32_t slot;
    int32_t pid;
    struct process_who who;
    uint64_t upper; /* the disk it writes to */
    uint32_t landlock_abi, nested;
    uint32_t unused, sum;
};

/* Fills in what identifies the process. */
must_use int record_of(int pidfd, pid_t pid, struct box_record *out);
must_use int records_open(int state_fd);
void records_close(struct box_host *host, int state_fd); /* none left: no file either */
must_use int record_write(const struct box_host *host, struct box_record *record);
void record_remove(const struct box_host *host, uint32_t slot);
/* A pidfd of the very process that the record names, or -1. */
must_use int record_process(const struct box_record *record);
void records_each(const struct box_host *host, void (*fn)(const struct box_record *record));
void sockets_each(const struct box_host *host, void (*fn)(const char id[BOX_ID_SIZE]));

/* ---- skeleton.c ---- */

/* STATE/images/host-…, made if it is not there; a descriptor, or -1 with errno. */
must_use int skeleton_open(int state_fd, bool owners);
/* Its directories once more, without what is in them, as a box with these ids must see them. */
must_use int skeleton_dirs(int dir_fd, uid_t uid_first);

/* ---- boxes.c ---- */

#define BOXES_PENDING_MAX 32 /* creations at once */
/* Descriptors to wait for: those, adopted boxes, jobs and the door (disk.h). */
#define BOXES_WAITS (BOXES_PENDING_MAX + 1 + 24 + 1)

/* How an answer goes out; `number` 0 is news. The descriptors stay ours. */
typedef void boxes_say_fn(void *owner, const struct wire_msg *msg, const int *fds, unsigned count);

/*
 * Finds what is needed below `state_fd`, takes over the boxes that run, removes all else. 0, or -1
 * with errno and *what; then every request is answered ENOTSUP.
 */
/* Before boxes_open: an ordinary user's namespace, in which ids 1 to `ids` are to be had. */
void boxes_rootless(uint32_t ids);
must_use int boxes_open(int state_fd, uint32_t uid_base, boxes_say_fn *say, void *owner,
                        const char **what);
/* The atoll program, for boxes that want it; borrowed. */
void boxes_tool(int fd);
/* How large the image of all disks will be, if there is none yet; 0: most of what is free. */
void disks_size(uint64_t bytes);
/*
 * The boxes go on; their cgroups stay as long as they do. Whoever else has ended is waited for: who
 * wants to know about a child of his own has asked before.
 */
void boxes_close(void);
/* A request; false when it is none. */
bool boxes_hear(const struct wire_msg *msg);
/* The asker of everything under way is gone. */
void boxes_forget_asker(void);
unsigned boxes_waits(struct pollfd waits[BOXES_WAITS]);
void boxes_woken(const struct pollfd *waits, unsigned count);
/*
 * SIGCHLD came: takes the ends of boxes, and of no other process. 0, or the number of another child
 * whose end is in the way: call again when that was waited for.
 */
pid_t boxes_reap(void);
/* How many pairs of namespaces to have ready, 4 at most (and at first). */
void boxes_pool(unsigned size);
/* Retries, deadlines, the pool. */
void boxes_run_due(void);
int64_t boxes_due_ms(void); /* when boxes_run_due wants to be called, monotonic; 0: never */
bool box_known(const char *id);
