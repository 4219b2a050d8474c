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
 *   WIRE_BOX_MOUNT    box_mount         -                    into a box that runs
 *   WIRE_DISK_MAKE    disk_wish         -                    empty, or a copy of another
 *   WIRE_DISK_LIMIT   disk_wish         -                    new size
 *   WIRE_DISK_STAT    disk_wish         disk_usage
 *   WIRE_DISK_DROP    disk_wish         -                    ENOENT when there is none
 *   WIRE_DISK_LIST    disk_page         disk_rows
 *
 * A disk is a numbered tree of files with a size, on a file system of the warden's own that can
 * copy one in a moment. It is what every kept thing is made of: the writable layer of a box that
 * may be stopped, a layer of an image, a volume, a snapshot. The api chooses the number and knows
 * which is what. A copy of a disk in use is as of one instant if its box is frozen. DROP of one
 * that a box writes to is EBUSY; whatever else uses one that is dropped sees its files vanish. The
 * answer to the first LIST tells whether this machine can have disks at all (ENOTSUP).
 *
 * Whatever ends a box, everything of it is gone when DIED or the answer to DESTROY is said: its
 * processes, cgroups and socket, and its mounts if a disk is among them. Mounts in memory are out
 * of everybody's reach by then and are taken apart at once. The warden chooses the range of user
 * ids.
 *
 * errno in status: EINVAL malformed, EEXIST an id in use, ENOENT no such box, ENOSPC no free slot,
 * EMFILE the warden may have no more descriptors, EAGAIN too many creations under way, ENOTSUP not
 * on this machine or not as this user; otherwise what the kernel said at `step`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

#define BOX_ID_SIZE 33      /* [a-z0-9]{1,32} and the NUL; the rest of the field is NULs */
#define BOX_UIDS 65536u     /* user ids of a box, where there are enough */
#define BOX_AGENT 1000u     /* the workload's user inside */
#define BOX_SLOTS 8192u     /* boxes at once */
#define BOX_TARGET_SIZE 256 /* a path inside, with its NUL */
#define BOX_LAYERS_MAX 12
#define BOX_MEMORY_MIN (8ull << 20)
#define BOX_MEMORY_MAX (4ull << 40)
#define BOX_PIDS_MIN 4u
#define BOX_PIDS_MAX 32768u
#define BOX_CPU_MAX (100u * 1024u)
#define BOX_IO_BYTES_MIN (64ull << 10)
#define BOX_IO_BYTES_MAX (1ull << 40)
#define BOX_IO_OPS_MIN 10ull
#define BOX_IO_OPS_MAX 10000000ull
#define BOX_DISK_MIN (1ull << 20)
#define BOX_INODES_MIN 64u
#define BOX_INODES_MAX (1u << 24)
#define BOX_NOFILE_MIN 16u
#define BOX_NOFILE_MAX 65536u
#define BOX_PROFILES 4u /* enum seccomp_profile: agent, root, nesting, debug */

enum box_flag {
    BOX_WITH_SYS = 1,  /* a read-only /sys */
    BOX_WITH_TOOL = 2, /* the atoll program itself, read-only, at /run/atoll: for our own helpers */
};
#define BOX_FLAGS 3u

/*
 * What a box can be without, where the kernel does not give it to whoever started the server. A
 * wish says which of them it cannot be without, and then is refused; an answer says which are
 * missing. With root only the last ever is.
 */
enum box_lost {
    BOX_LOST_MEMORY = 1,   /* one limit for all it has: instead, one for each process */
    BOX_LOST_CPU = 2,      /* a share of processor time */
    BOX_LOST_PIDS = 4,     /* one count of all processes: instead, one for each user inside */
    BOX_LOST_FREEZER = 8,  /* pausing */
    BOX_LOST_USAGE = 16,   /* what it uses, and whether memory ran out */
    BOX_LOST_DISKS = 32,   /* disks: what is written lies in memory */
    BOX_LOST_IMAGE = 64,   /* an image owned by its root: its files belong to nobody */
    BOX_LOST_IDS = 128,    /* as many user ids as a machine has */
    BOX_LOST_OWN_ID = 256, /* user ids of its own at all: outside it is who started the server */
    BOX_LOST_FILTER = 512, /* reading the filter back */
    BOX_LOST_IO = 1024,    /* how much is read from and written to disks; root may lack it too */
};
#define BOX_LOSSES 11u

/* What a caller may wish for. */
struct box_spec {
    char id[BOX_ID_SIZE];
    uint8_t zero[7];
    uint32_t flags;   /* enum box_flag */
    uint32_t profile; /* enum seccomp_profile; nesting is refused for now */
    uint64_t memory;  /* bytes; what is written to tmpfs counts too */
    uint64_t disk;    /* bytes of everything writable */
    uint32_t inodes, nofile;
    uint32_t pids;
    uint32_t cpu_percent; /* 100 is one core; 0 unlimited */
    uint64_t upper;       /* disk that is the writable layer; 0: memory, gone with the box */
    uint32_t layer_count; /* 0: the host's /usr over a generated skeleton */
    uint32_t net;         /* 0: a network of its own with nothing but loopback */
    uint64_t layers[BOX_LAYERS_MAX]; /* disks, the lowest first; each is only read */
    uint32_t must;                   /* enum box_lost: ENOTSUP rather than without one of these */
    uint32_t unused;
    uint64_t io_bytes, io_ops; /* a second, of each disk, each way; 0: no limit */
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
    uint32_t lost; /* enum box_lost: what it is without, or which of its musts cannot be had */
    uint32_t unused;
};

struct box_signal {
    struct box_name name;
    int32_t number;
};

enum box_mount_flag {
    BOX_MOUNT_READ_ONLY = 1,
    BOX_MOUNT_TICKET = 2,  /* a directory that was left at the warden's door, not a disk */
    BOX_MOUNT_AS_ROOT = 4, /* with a ticket: its owner is the box's root instead of its agent */
    BOX_MOUNT_VIEW = 8,    /* with a ticket: what is changed stays in the box */
};

/*
 * Puts a disk, or a directory left at the door, at `target` in a box that runs. The target is a
 * path inside: absolute, without empty, "." or ".." parts and not below /proc, /sys or /dev; what
 * is missing of it is made (as the box's root), and a symlink on the way is a refusal. EBUSY: the
 * ticket was used; ETIMEDOUT: it is too old or unknown.
 */
struct box_mount {
    struct box_name name;
    uint32_t flags, zero;
    uint64_t disk;
    uint8_t ticket[16];
    char target[BOX_TARGET_SIZE];
};

/* Where a box has the parts of its view (BOX_MOUNT_VIEW): `before` and `upper`, to read. */
#define VIEW_PLACE "/run/workspace"

struct disk_wish {
    uint64_t id;    /* never 0 */
    uint64_t bytes; /* how much may be written to it, 0: as much as there is; it can be made less,
                     * too: then nothing can be written until enough is removed */
    uint64_t from;  /* MAKE: the disk that it begins as a copy of; 0: empty */
    uint32_t flags; /* MAKE: enum disk_flag */
    uint32_t zero;
};
enum disk_flag {
    DISK_FOR_AGENT = 1, /* empty: its top belongs to the agent of a box, not to its root */
};

struct disk_usage {
    uint64_t used, bytes; /* what it wrote beyond what it was a copy of, as of some seconds ago; its
                           * limit, or 0 */
};

struct disk_page {
    uint64_t after; /* 0 first, then the last id of the answer before */
};
#define DISK_ROWS 60
struct disk_rows {
    uint32_t count, more; /* in rising order; more: there are further ones */
    uint64_t ids[DISK_ROWS];
};

/* Only what is not 0 changes. */
struct box_limits {
    struct box_name name;
    uint64_t disk;   /* of a box that writes to memory; ENOSPC: there is more in it */
    uint32_t inodes; /* the same */
    uint32_t zero;
    uint64_t memory;
    uint32_t pids;
    uint32_t cpu_percent;      /* BOX_CPU_FREE lifts the limit */
    uint64_t io_bytes, io_ops; /* BOX_IO_FREE likewise */
};
#define BOX_CPU_FREE UINT32_MAX
#define BOX_IO_FREE UINT64_MAX

struct box_usage {
    uint64_t cpu_us, memory, memory_peak, pids, oom_kills;
    uint32_t frozen, unused;
    uint64_t io_read, io_written; /* bytes of disks; UINT64_MAX: not counted */
    uint64_t dirty, shmem;        /* written to a disk, which does not count it yet; in memory */
    uint64_t disk;                /* all that it has written; 0 from the warden */
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
    uint64_t disk, inodes;     /* of its root */
    char cgroup_mode[8];       /* "v1", "hybrid", "v2", "none" */
    char seccomp_digest[72];   /* "sha256:…" of the filter, "" when the kernel does not tell */
    uint32_t lost;             /* enum box_lost */
    uint32_t nested;           /* user namespaces may be made inside */
    uint64_t data, nproc;      /* limits of each process and each user, UINT64_MAX: none */
    uint64_t io_bytes, io_ops; /* UINT64_MAX: none */
    uint32_t io_direct;        /* of writes, only those past the page cache are held back */
    uint32_t unused;
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
    BOX_STEP_SPEC, BOX_STEP_CGROUP, BOX_STEP_SOCKET, BOX_STEP_USERNS, BOX_STEP_LOWER,
    BOX_STEP_NETNS, BOX_STEP_CLONE, BOX_STEP_ENTER_CGROUP, BOX_STEP_OOM, BOX_STEP_ENTER_NETNS, BOX_STEP_MOUNTNS, BOX_STEP_SCRATCH,
    BOX_STEP_UPPER, BOX_STEP_OVERLAY, BOX_STEP_ROOT, BOX_STEP_USR, BOX_STEP_PROC, BOX_STEP_DEV,
    BOX_STEP_PTS, BOX_STEP_SHM, BOX_STEP_TMP, BOX_STEP_SYS, BOX_STEP_TOOL, BOX_STEP_MASKS, BOX_STEP_PIVOT, BOX_STEP_HOSTNAME,
    BOX_STEP_CGROUPNS, BOX_STEP_ENTER_USERNS, BOX_STEP_STDIO, BOX_STEP_RLIMITS, BOX_STEP_CAPS,
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
bool box_mount_ok(const struct box_mount *mount);
bool disk_wish_ok(const struct disk_wish *wish);

/* ---- the door ---- */

/*
 * A caller on this machine leaves a directory for a box to use: it connects to STATE/door.sock (a
 * SOCK_SEQPACKET socket of the warden's), sends one door_leave with the open directory beside it
 * and gets one door_left with a ticket. The ticket is good once, for DOOR_TICKET_MS; whoever has it
 * may ask the api to mount that directory, in which the box can then do what the caller can: files
 * of the caller's user and group are the box's agent's own, nobody else's are.
 */
#define DOOR_MAGIC 0x524f4f44u /* "DOOR" */
#define DOOR_SOCKET "door.sock"
#define DOOR_TICKET_MS 60000
#define DOOR_TICKETS_MAX 64
#define DOOR_TICKETS_EACH 24   /* of one user who is neither root nor the server's owner… */
#define DOOR_TICKETS_OTHERS 48 /* …and of all of those */
struct door_leave {
    uint32_t magic, zero;
};
struct door_left {
    uint32_t magic;
    int32_t error; /* errno, or 0 */
    uint8_t ticket[16];
};
