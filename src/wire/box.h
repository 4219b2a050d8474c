/*
 * box - what the api process may ask of the warden about sandboxes: ids and numbers, never a path.
 *
 * A request carries its number; the answer repeats verb and number, has 0 or an errno in `status`,
 * and comes when the thing is done: several may be under way at once, answers are in any order.
 *
 *   verb              request           answer               descriptors of the answer
 *   WIRE_BOX_CREATE   box_spec          box_created          pidfd of its init, connected socket
 *   WIRE_BOX_OPEN     box_name          box_created          the same, for a box that runs already
 *   WIRE_BOX_SIGNAL   box_signal        -                    (to process 1: KILL is the only use)
 *   WIRE_BOX_FREEZE   box_name          -
 *   WIRE_BOX_THAW     box_name          -
 *   WIRE_BOX_LIMITS   box_limits        -
 *   WIRE_BOX_STAT     box_name          box_usage
 *   WIRE_BOX_APPLIED  box_name          box_applied
 *   WIRE_BOX_DESTROY  box_name          -                    ENOENT when there is none
 *   WIRE_BOX_LIST     box_page          box_rows
 *   WIRE_BOX_DIED     (the warden's)    box_died             number 0; never for a box that was
 *                                                            asked to be destroyed
 *
 * Whatever ends a box, everything of it is gone when DIED or the answer to DESTROY is said: its
 * processes, cgroups, mounts and its directory. The warden chooses the range of user ids.
 *
 * errno in status: EINVAL malformed, EEXIST an id in use, ENOENT no such box, ENOSPC no free slot,
 * EAGAIN too many creations under way, ENOTSUP not on this machine or not as this user; otherwise
 * what the kernel said at `step`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

#define BOX_ID_SIZE 33  /* [a-z0-9]{1,32} and the NUL; the rest of the field is NULs */
#define BOX_UIDS 65536u /* user ids of a box */
#define BOX_SLOTS 4096u /* boxes at once */
#define BOX_LAYERS_MAX 12
#define BOX_MEMORY_MIN (8ull << 20)
#define BOX_MEMORY_MAX (4ull << 40)
#define BOX_PIDS_MIN 4u
#define BOX_PIDS_MAX 32768u
#define BOX_CPU_MAX (100u * 1024u)
#define BOX_DISK_MIN (1ull << 20)
#define BOX_INODES_MIN 64u
#define BOX_INODES_MAX (1u << 24)
#define BOX_NOFILE_MIN 16u
#define BOX_NOFILE_MAX 65536u
#define BOX_PROFILES 4u /* enum seccomp_profile: agent, root, nesting, debug */

/* What a caller may wish for. */
struct box_spec {
    char id[BOX_ID_SIZE];
    uint8_t zero[7];
    uint32_t flags;   /* none are known yet: 0 */
    uint32_t profile; /* enum seccomp_profile; nesting is refused for now */
    uint64_t memory;  /* bytes; what is written to tmpfs counts too */
    uint64_t disk;    /* bytes of everything writable */
    uint32_t inodes, nofile;
    uint32_t pids;
    uint32_t cpu_percent; /* 100 is one core; 0 unlimited */
    uint64_t image;       /* 0: the host's /usr over a generated skeleton; others refused for now */
    uint32_t layer_count, net; /* net 0: a network of its own with nothing but loopback */
    uint64_t layers[BOX_LAYERS_MAX];
};

struct box_name {
    char id[BOX_ID_SIZE];
    uint8_t zero[7];
};

struct box_created {
    uint32_t step; /* enum box_step: where it failed; BOX_STEP_NONE with status 0 */
    uint32_t slot;
    int32_t pid; /* of its process 1, as the host sees it */
    uint32_t uid_first;
};

struct box_signal {
    struct box_name name;
    int32_t number;
};

/* Only what is not 0 changes. */
struct box_limits {
    struct box_name name;
    uint64_t memory;
    uint32_t pids;
    uint32_t cpu_percent; /* BOX_CPU_FREE lifts the limit */
};
#define BOX_CPU_FREE UINT32_MAX

struct box_usage {
    uint64_t cpu_us, memory, memory_peak, pids, oom_kills;
    uint32_t frozen, unused;
};

enum box_ns {
    BOX_NS_PID,
    BOX_NS_MNT,
    BOX_NS_NET,
    BOX_NS_IPC,
    BOX_NS_UTS,
    BOX_NS_CGROUP,
    BOX_NS_USER,
    BOX_NS_COUNT
};
enum box_caps {
    BOX_CAPS_INHERITABLE,
    BOX_CAPS_PERMITTED,
    BOX_CAPS_EFFECTIVE,
    BOX_CAPS_BOUNDING,
    BOX_CAPS_AMBIENT,
    BOX_CAPS_COUNT
};

/* Read back from the kernel, of the box's process 1; nothing here is what was asked for. */
struct box_applied {
    uint64_t ns[BOX_NS_COUNT];     /* inodes */
    uint64_t own_ns;               /* bit per box_ns: it is not the warden's */
    uint64_t caps[BOX_CAPS_COUNT]; /* of process 1; a command of the agent has none */
    uint32_t uid_first, uid_count, gid_first, gid_count;
    uint32_t uid, seccomp_mode, seccomp_filters, no_new_privs;
    uint32_t mounts, mounts_writable;
    int32_t oom_score_adj;
    uint32_t
        landlock_abi; /* the kernel has no way to ask a process: what was entered at its start */
    uint64_t memory, pids;                /* limits; UINT64_MAX: none */
    uint64_t cpu_quota_us, cpu_period_us; /* quota 0: none */
    uint64_t nofile, core;
    uint64_t disk, inodes;   /* of its root */
    char cgroup_mode[8];     /* "v1", "hybrid", "v2" */
    char seccomp_digest[72]; /* "sha256:…" of the filter, "" when the kernel does not tell */
};

struct box_page {
    uint32_t from; /* 0 first, then `next` of the last answer */
};

enum box_state { BOX_FREE, BOX_CREATING, BOX_RUNNING, BOX_ENDING };

struct box_row {
    char id[BOX_ID_SIZE];
    uint8_t state; /* enum box_state */
    uint16_t zero;
    uint32_t slot;
    int32_t pid;
};
#define BOX_ROWS 11
struct box_rows {
    uint32_t count, next; /* next 0: that was all */
    struct box_row rows[BOX_ROWS];
};

struct box_died {
    struct box_name name;
    int32_t code;   /* of exit, or -1 */
    int32_t signal; /* or 0; both unknown (-1, 0) for a box that an earlier warden started */
    uint64_t oom_kills;
    uint64_t cpu_us, memory_peak;
};

/* Every step of making a box, in order; a failure names one. */
/* clang-format off */
enum box_step {
    BOX_STEP_NONE,
    BOX_STEP_SPEC, BOX_STEP_RECORD, BOX_STEP_CGROUP, BOX_STEP_SOCKET, BOX_STEP_USERNS, BOX_STEP_LOWER,
    BOX_STEP_NETNS, BOX_STEP_CLONE, BOX_STEP_ENTER_CGROUP, BOX_STEP_ENTER_NETNS, BOX_STEP_SCRATCH,
    BOX_STEP_UPPER, BOX_STEP_OVERLAY, BOX_STEP_ROOT, BOX_STEP_USR, BOX_STEP_PROC, BOX_STEP_DEV,
    BOX_STEP_PTS, BOX_STEP_SHM, BOX_STEP_TMP, BOX_STEP_MASKS, BOX_STEP_PIVOT, BOX_STEP_HOSTNAME,
    BOX_STEP_CGROUPNS, BOX_STEP_OOM, BOX_STEP_ENTER_USERNS, BOX_STEP_STDIO, BOX_STEP_RLIMITS, BOX_STEP_CAPS,
    BOX_STEP_NNP, BOX_STEP_LANDLOCK, BOX_STEP_SECCOMP, BOX_STEP_INIT, BOX_STEP_KEEP, BOX_STEP_TIME,
    BOX_STEPS
};
/* clang-format on */

/* A text for people; "?" for a number that is none. */
const char *box_step_name(uint32_t step);
bool box_id_ok(const char id[BOX_ID_SIZE]);
/* Everything the warden checks about a wish before it begins; the api may ask first. */
bool box_spec_ok(const struct box_spec *spec);
bool box_name_ok(const struct box_name *name);
bool box_limits_ok(const struct box_limits *limits);
