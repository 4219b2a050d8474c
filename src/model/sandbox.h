/*
 * sandbox - the nouns sandbox and exec: what may be wished, what is shown, which states follow
 * which. No I/O. Texts in these structs are borrowed from whatever arena they were decoded into.
 */
#pragma once

#include "model/access.h"

/* ---- sandbox ---- */

enum sandbox_state {
    SANDBOX_CREATING,
    SANDBOX_RUNNING,
    SANDBOX_PAUSED,
    SANDBOX_STOPPED, /* nothing runs; its disk, rows and outputs are kept */
    SANDBOX_FAILED,  /* it ended and cannot go on; the reason says how */
    SANDBOX_DELETED,
    SANDBOX_STATES
};

const char *sandbox_state_name(enum sandbox_state state);
must_use bool sandbox_state_parse(struct str text, enum sandbox_state *out);
bool sandbox_may(enum sandbox_state from, enum sandbox_state to);
/* Does anything of it run or wait in the kernel? */
static inline bool sandbox_lives(enum sandbox_state state)
{
    return state <= SANDBOX_PAUSED;
}

#define SANDBOX_NAME_MAX 63
#define SANDBOX_VOLUMES_MAX 16
#define SANDBOX_BINDS_MAX 16
#define BIND_TICKET_BYTES 16

struct volume_use {
    const char *volume, *path;
    bool read_only;
};

struct bind_use {
    const char *ticket, *path; /* ticket: hex; empty once it was used */
    bool read_only, view;
};

struct file_rule {
    const char *path, *access; /* "read" or "write" */
};

struct idle_policy {
    int64_t after_ms;
    const char *action; /* "pause", "stop", "delete" */
};
extern const struct field idle_fields[];

/* What was asked for; zero means the default until sandbox_spec_settle. */
struct sandbox_spec {
    const char *name; /* or NULL */
    const char *user; /* "agent" or "root": who commands run as unless they say otherwise */
    int64_t memory;   /* bytes */
    int64_t pids;
    int64_t cpu_percent;      /* 100 is one core */
    int64_t io_bytes, io_ops; /* a second, of each disk, each way; 0: no limit */
    int64_t disk;             /* bytes of everything writable */
    int64_t inodes;
    int64_t nofile;
    int64_t ttl_ms; /* 0: until it is deleted */
    struct field_pair *env, *labels;
    const char *storage;        /* "memory" or "disk" */
    const char *image;          /* or NULL: the host's programs */
    const char *from_snapshot;  /* or NULL; settled when it is made, not kept */
    const char *template;       /* or NULL; what it says is taken when it is made */
    const char *parent;         /* id of whose files it began with, or NULL; the server says it */
    struct field_list volumes;  /* struct volume_use */
    struct field_list binds;    /* struct bind_use */
    struct field_list files;    /* struct file_rule; none: no policy */
    struct idle_policy *idle;   /* or NULL */
    struct egress_spec *egress; /* or NULL: its own layer of what it may reach */
    const char *tier;           /* "T1" or "T3", as the layers say, once it is settled */
    bool sys, nesting;
    const bool *warm; /* or NULL: true; whether one out of a pool will do, not kept */
    struct access access;
};

extern const struct field sandbox_spec_fields[]; /* decodes a request, encodes the row */
/* Fills the defaults in and checks what no table can say. */
must_use int sandbox_spec_settle(struct sandbox_spec *spec, struct err *err);
static inline bool sandbox_on_disk(const struct sandbox_spec *spec)
{
    return spec->storage && spec->storage[0] == 'd';
}
/* A name of a sandbox, volume, snapshot or pool; says what is wrong about `field`. */
must_use int name_check(const char *name, const char *id_prefix, const char *field,
                        struct err *err);

struct sandbox_view {
    const char *id, *name, *state, *reason, *user, *by;
    int64_t memory, pids, cpu_percent, io_bytes, io_ops, disk, inodes, nofile, ttl_ms;
    struct field_pair *env, *labels;
    const char *storage, *image, *template, *parent, *start, *tier;
    const char *egress_mode; /* of all layers together; NULL: not asked for */
    struct field_list volumes, binds, files;
    struct idle_policy *idle;
    struct egress_spec *egress;
    bool sys, nesting, asleep, crashed, crash_loop;
    int64_t execs_running, create_us;
    int64_t created_at, changed_at, expires_at;
    int64_t used_at; /* when somebody last did something with it */
    struct access access;
};
extern const struct field sandbox_fields[];

struct io_use {
    int64_t read, written;
};
struct stats_view {
    int64_t cpu_us, memory, memory_peak, pids, oom_kills, disk;
    struct io_use *io; /* or NULL: not counted */
};
extern const struct field stats_fields[];

/* ---- changes and copies of a sandbox ---- */

struct sandbox_patch {
    int64_t memory, pids, cpu_percent, io_bytes, io_ops, disk, inodes, ttl_ms;
    struct field_pair *labels;
    struct idle_policy *idle;
    struct egress_spec *egress;
    struct access access;
};
enum { /* the places in sandbox_patch_fields */
       PATCH_MEMORY,
       PATCH_PIDS,
       PATCH_CPU,
       PATCH_IO_BYTES,
       PATCH_IO_OPS,
       PATCH_DISK,
       PATCH_INODES,
       PATCH_TTL,
       PATCH_LABELS,
       PATCH_IDLE,
       PATCH_EGRESS,
       PATCH_ACCESS /* the first of its three */
};
extern const struct field sandbox_patch_fields[];

struct fork_wish {
    const char *name;
    int64_t ttl_ms;
    struct field_pair *labels;
};
extern const struct field fork_wish_fields[];

struct rollback_wish {
    const char *snapshot;
};
extern const struct field rollback_wish_fields[];
struct rollback_view {
    const char *id, *snapshot, *state;
    int64_t execs_ended;
};
extern const struct field rollback_fields[];

/* ---- volumes and snapshots ---- */

struct volume_wish {
    const char *name;
    int64_t bytes;
    struct access access;
};
extern const struct field volume_wish_fields[], volume_patch_fields[];
#define VOLUME_PATCH_ACCESS 1 /* place of the first field of `access` in volume_patch_fields */
struct volume_view {
    const char *id, *name, *state, *by;
    const char **sandboxes;
    int64_t bytes, used;
    int64_t created_at;
    struct access access;
};
extern const struct field volume_fields[], volume_stat_fields[];

struct snapshot_wish {
    const char *name;
};
extern const struct field snapshot_wish_fields[];
struct snapshot_view {
    const char *id, *name, *sandbox, *state, *by;
    int64_t bytes, created_at;
    struct access access;
};
extern const struct field snapshot_fields[];

/* ---- exec ---- */

enum exec_state {
    EXEC_STARTING,
    EXEC_RUNNING,
    EXEC_EXITED,
    EXEC_LOST, /* its sandbox ended first */
    EXEC_STATES
};

const char *exec_state_name(enum exec_state state);
must_use bool exec_state_parse(struct str text, enum exec_state *out);
bool exec_may(enum exec_state from, enum exec_state to);

struct exec_spec {
    const char **argv;
    const char *command; /* for /bin/sh -c; instead of argv */
    const char *cwd, *user;
    struct field_pair *env;
    bool tty, stdin_open;
    bool background;                  /* the type of session that clients of agentic asked for */
    bool hold;                        /* a reader that must have every byte follows */
    const char *stdin, *stdin_base64; /* input that comes with the wish; one of them, or neither */
    struct str input;                 /* the same, from where bytes can be said; p NULL: none */
    int64_t rows, cols, timeout_ms;
    struct field_list files; /* struct file_rule, besides the sandbox's */
    const char *name;        /* of a terminal, or NULL */
    int64_t max_controllers, lease_ms;
};

extern const struct field exec_spec_fields[];
/* Defaults (`user` of the sandbox), and what no table can say. */
must_use int exec_spec_settle(struct exec_spec *spec, const char *user, struct err *err);

struct exec_view {
    const char *id, *sandbox, *name, *state, *reason, *command, *cwd, *user, *by;
    const char **argv;
    bool tty, stdin_open, background, timed_out, oom, file_policy;
    struct field_list files;
    int64_t timeout_ms, pid;
    int64_t exit_code, signal; /* exit_code as a shell says it: 128 + signal */
    int64_t stdout_bytes, stderr_bytes;
    int64_t user_us, system_us, maxrss_kb;
    int64_t started_at, ended_at;
    const char **blocked;        /* only where it is shown: hosts that were denied while it ran */
    const char *output, *errors; /* only where a caller waited: up to EXEC_INLINE_MAX each */
};
extern const struct field exec_fields[];

struct signal_wish {
    const char *signal; /* "TERM", "SIGTERM" or "15" */
    bool tree;
};
extern const struct field signal_wish_fields[];
/* 0 when it is no signal. */
int signal_parse(const char *text);

struct resize_wish {
    int64_t rows, cols;
};
extern const struct field resize_wish_fields[];
