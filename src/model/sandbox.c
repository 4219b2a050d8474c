/*
 * The tables of the nouns sandbox and exec. Lengths that end up in a kernel call are the kernel's:
 * an argument or a setting of the environment has at most 128 KiB with its NUL.
 */
#include "model/sandbox.h"

#include <signal.h>
#include <stdio.h>

#include "base/limits.h"
#include "model/egress.h"

#define TO(state) (1u << (state))
#define ARG_BYTES_MAX (131072 - 1)
#define DAY_MS (24ll * 3600 * 1000)

struct state_row {
    const char *name;
    unsigned to;
};

/* clang-format off */
static const struct state_row sandbox_table[SANDBOX_STATES] = {
    [SANDBOX_CREATING] = { "creating", TO(SANDBOX_RUNNING) | TO(SANDBOX_FAILED) | TO(SANDBOX_DELETED) },
    [SANDBOX_RUNNING]  = { "running",  TO(SANDBOX_PAUSED) | TO(SANDBOX_STOPPED) | TO(SANDBOX_FAILED) | TO(SANDBOX_DELETED) },
    [SANDBOX_PAUSED]   = { "paused",   TO(SANDBOX_RUNNING) | TO(SANDBOX_STOPPED) | TO(SANDBOX_FAILED) | TO(SANDBOX_DELETED) },
    [SANDBOX_STOPPED]  = { "stopped",  TO(SANDBOX_RUNNING) | TO(SANDBOX_FAILED) | TO(SANDBOX_DELETED) },
    [SANDBOX_FAILED]   = { "failed",   TO(SANDBOX_RUNNING) | TO(SANDBOX_DELETED) },
    [SANDBOX_DELETED]  = { "deleted",  0 },
};

static const struct state_row exec_table[EXEC_STATES] = {
    [EXEC_STARTING] = { "starting", TO(EXEC_RUNNING) | TO(EXEC_LOST) },
    [EXEC_RUNNING]  = { "running",  TO(EXEC_EXITED) | TO(EXEC_LOST) },
    [EXEC_EXITED]   = { "exited",   0 },
    [EXEC_LOST]     = { "lost",     0 },
};
/* clang-format on */

static bool state_parse(const struct state_row *table, unsigned count, struct str text,
                        unsigned *out)
{
    for (unsigned i = 0; i < count; i++)
        if (str_is(text, table[i].name)) {
            *out = i;
            return true;
        }
    return false;
}

const char *sandbox_state_name(enum sandbox_state state)
{
    return sandbox_table[state].name;
}

bool sandbox_state_parse(struct str text, enum sandbox_state *out)
{
    unsigned at;

    if (!state_parse(sandbox_table, SANDBOX_STATES, text, &at))
        return false;
    *out = (enum sandbox_state)at;
    return true;
}

bool sandbox_may(enum sandbox_state from, enum sandbox_state to)
{
    return (sandbox_table[from].to & TO(to)) != 0;
}

const char *exec_state_name(enum exec_state state)
{
    return exec_table[state].name;
}

bool exec_state_parse(struct str text, enum exec_state *out)
{
    unsigned at;

    if (!state_parse(exec_table, EXEC_STATES, text, &at))
        return false;
    *out = (enum exec_state)at;
    return true;
}

bool exec_may(enum exec_state from, enum exec_state to)
{
    return (exec_table[from].to & TO(to)) != 0;
}

/* ---- sandbox ---- */

static const struct field volume_use_fields[] = {
    FIELD(volume_use, volume, F_STRING, F_REQUIRED, .min = 1, .max = DISK_NAME_MAX,
          .help = "Name or id of a volume"),
    FIELD(volume_use, path, F_STRING, F_REQUIRED, .min = 2, .max = 255,
          .help = "Where it is put; absolute, made if it is not there"),
    FIELD(volume_use, read_only, F_BOOL, 0, .help = "Nothing in it can be changed from here"),
    { 0 },
};

static const struct field bind_use_fields[] = {
    FIELD(bind_use, ticket, F_STRING, F_REQUIRED | F_SECRET, .max = (int64_t)2 * BIND_TICKET_BYTES,
          .help = "What the server's door gave for a directory of its machine, in hex; good once"),
    FIELD(bind_use, path, F_STRING, F_REQUIRED, .min = 2, .max = 255,
          .help = "Where it is put; absolute, made if it is not there"),
    FIELD(bind_use, read_only, F_BOOL, 0, .help = "Nothing in it can be changed from here"),
    FIELD(bind_use, view, F_BOOL, 0,
          .help =
              "What is changed in it stays in the sandbox until it stops, where its storage is: "
              "/changes lists it. Of one directory, with a server started by root"),
    { 0 },
};

static const struct field file_rule_fields[] = {
    FIELD(file_rule, path, F_STRING, F_REQUIRED, .min = 1, .max = 4095,
          .help = "A file or directory inside, absolute; it and all below it"),
    FIELD(file_rule, access, F_ENUM, F_REQUIRED, .choices = "read|write",
          .help = "read: read and execute; write: everything"),
    { 0 },
};

const struct field idle_fields[] = {
    FIELD(idle_policy, after_ms, F_INT, F_REQUIRED, .min = 100, .max = 365 * DAY_MS,
          .help = "Milliseconds without a running command, a reader of output or a request about "
                  "it"),
    FIELD(idle_policy, action, F_ENUM, F_REQUIRED, .choices = "pause|stop|delete",
          .help = "Then it is paused, stopped or deleted; a command wakes it from the first two"),
    { 0 },
};

const struct field sandbox_spec_fields[] = {
    FIELD(sandbox_spec, name, F_STRING, 0, .min = 1, .max = SANDBOX_NAME_MAX,
          .help = "A name of its own within the tenant; may be used instead of the id"),
    FIELD(sandbox_spec, user, F_ENUM, 0, .choices = "agent|root",
          .help = "Who commands run as unless they say otherwise; root is nobody outside, but has "
                  "a few capabilities inside. agent unless said"),
    FIELD(sandbox_spec, memory, F_INT, F_BYTES, .min = SANDBOX_MEMORY_MIN,
          .max = SANDBOX_MEMORY_MAX, .help = "Bytes of memory; 1 GiB unless said"),
    FIELD(sandbox_spec, pids, F_INT, 0, .min = SANDBOX_PIDS_MIN, .max = SANDBOX_PIDS_MAX,
          .help = "Processes and threads at once; 512 unless said"),
    FIELD(sandbox_spec, cpu_percent, F_INT, 0, .min = 1, .max = 102400,
          .help = "Share of processor time, 100 is one core; 200 unless said"),
    FIELD(sandbox_spec, io_bytes, F_INT, 0, .min = SANDBOX_IO_BYTES_MIN,
          .max = SANDBOX_IO_BYTES_MAX,
          .help = "Bytes a second that it may read from each disk of the machine, and as many that "
                  "it may write; no limit unless said"),
    FIELD(sandbox_spec, io_ops, F_INT, 0, .min = SANDBOX_IO_OPS_MIN, .max = SANDBOX_IO_OPS_MAX,
          .help = "Likewise in operations a second"),
    FIELD(sandbox_spec, disk, F_INT, F_BYTES, .min = SANDBOX_DISK_MIN, .max = SANDBOX_DISK_MAX,
          .help =
              "Bytes of everything written inside; with storage memory half of memory unless said, "
              "with storage disk 8 GiB"),
    FIELD(sandbox_spec, inodes, F_INT, 0, .min = 1024, .max = 1 << 24,
          .help = "Files and directories made inside, with storage memory; 100000 unless said"),
    FIELD(sandbox_spec, nofile, F_INT, 0, .min = 16, .max = 65536,
          .help = "Open descriptors of each process; 1024 unless said"),
    FIELD(sandbox_spec, ttl_ms, F_INT, 0, .min = 1000, .max = 365 * DAY_MS,
          .help = "Lifetime in milliseconds, after which it is deleted; without it, until deleted"),
    FIELD(sandbox_spec, env, F_MAP, 0, .max = 256, .each_max = 32768,
          .help = "Environment of every command"),
    FIELD(sandbox_spec, labels, F_MAP, 0, .max = 64, .help = "Anything, to find it again"),
    FIELD(sandbox_spec, storage, F_ENUM, 0, .choices = "memory|disk",
          .help = "Where what it writes goes: memory is gone when it ends, disk stays over stop "
                  "and start. disk unless said, where the machine can"),
    FIELD(sandbox_spec, image, F_STRING, 0, .min = 1, .max = 255,
          .help = "What it begins with; the programs of this machine unless said"),
    FIELD(sandbox_spec, from_snapshot, F_STRING, 0, .min = 1, .max = DISK_NAME_MAX,
          .help = "Begin with the files of this snapshot (id, or a name that only one has)"),
    FIELD(sandbox_spec, template, F_STRING, 0, .min = 1, .max = DISK_NAME_MAX,
          .help = "Takes from this template what is not said here; environment and labels of both"),
    FIELD(sandbox_spec, volumes, F_LIST, 0, .of = volume_use_fields,
          .of_size = sizeof(struct volume_use), .max = SANDBOX_VOLUMES_MAX,
          .help = "Volumes in it"),
    FIELD(sandbox_spec, binds, F_LIST, 0, .of = bind_use_fields, .of_size = sizeof(struct bind_use),
          .max = SANDBOX_BINDS_MAX, .help = "Directories of the machine in it; gone after a stop"),
    FIELD(sandbox_spec, files, F_LIST, 0, .of = file_rule_fields,
          .of_size = sizeof(struct file_rule), .max = FILE_RULES_MAX,
          .help = "With any, commands can open only what they name, besides the standard places: "
                  "/usr, /lib*, /bin, /sbin and /etc to read, /dev, /proc and /tmp to write. Not "
                  "for file requests of this API"),
    FIELD(sandbox_spec, idle, F_OBJECT, 0, .of = idle_fields, .of_size = sizeof(struct idle_policy),
          .help = "What happens when nobody uses it; without it, nothing"),
    FIELD(sandbox_spec, egress, F_OBJECT, 0, .of = sandbox_egress_fields,
          .of_size = sizeof(struct egress_spec),
          .help = "What it may reach, besides what node, tenant and project say. Only operators "
                  "allow anything; others can only take away"),
    FIELD(sandbox_spec, nesting, F_BOOL, 0,
          .help = "Tools inside may make sandboxes of their own: user namespaces and mounts are "
                  "allowed, /proc is not masked and Landlock does not guard files"),
    FIELD(sandbox_spec, sys, F_BOOL, 0, .help = "A read-only /sys; without it, none"),
    FIELD(sandbox_spec, tier, F_ENUM, 0, .choices = "T0|T1|T2|T3|T4|vm",
          .help = "How strongly it is isolated, in one word. T3 (unless said): namespaces, no "
                  "capabilities outside its own user namespace (commands as agent have none, those "
                  "as root some of that namespace; /applied names them), seccomp, Landlock, and no "
                  "way out but through policy. T1: the same as nesting. The others are not "
                  "offered, and refused"),
    FIELD(sandbox_spec, warm, F_MAYBE, 0,
          .help = "false: it is made anew, though a pool has one that fits. true unless said; null "
                  "where a template leaves it open"),
    FIELD(sandbox_spec, parent, F_STRING, F_READONLY, .help = "The sandbox whose files it has"),
    ACCESS_FIELDS(sandbox_spec, 0),
    { 0 },
};

static const struct field bind_view_fields[] = {
    FIELD(bind_use, path, F_STRING, F_READONLY, .help = "Where it is"),
    FIELD(bind_use, read_only, F_BOOL, F_READONLY, .help = "Nothing in it can be changed"),
    FIELD(bind_use, view, F_BOOL, F_READONLY, .help = "What is changed in it stays in the sandbox"),
    { 0 },
};

const struct field sandbox_fields[] = {
    FIELD(sandbox_view, id, F_STRING, F_READONLY, .help = "sb…"),
    FIELD(sandbox_view, name, F_STRING, F_READONLY, .help = "Its name; null when it has none"),
    FIELD(sandbox_view, state, F_STRING, F_READONLY,
          .help = "creating, running, paused, stopped or failed"),
    FIELD(sandbox_view, reason, F_STRING, F_READONLY,
          .help = "Why it stopped or failed; null while it is well"),
    FIELD(sandbox_view, crashed, F_BOOL, F_READONLY,
          .help = "It does not run because its process 1 died by itself; `reason` says how"),
    FIELD(sandbox_view, crash_loop, F_BOOL, F_READONLY,
          .help =
              "It died 5 times within 10 minutes, after less than 60 s each; false again once it "
              "has run for 5 minutes"),
    FIELD(sandbox_view, asleep, F_BOOL, F_READONLY,
          .help = "Its idle policy paused or stopped it; a command wakes it"),
    FIELD(sandbox_view, storage, F_STRING, F_READONLY, .help = "memory or disk"),
    FIELD(sandbox_view, image, F_STRING, F_READONLY,
          .help = "What it began with; null for the programs of the machine"),
    FIELD(sandbox_view, template, F_STRING, F_READONLY,
          .help = "The template that it was made of; null for none"),
    FIELD(sandbox_view, parent, F_STRING, F_READONLY,
          .help = "Id of the sandbox whose files it began with, by a fork or a snapshot; null for "
                  "none. That one may be gone"),
    FIELD(sandbox_view, user, F_STRING, F_READONLY, .help = "Who commands run as"),
    FIELD(sandbox_view, memory, F_INT, F_READONLY, .help = "Bytes of memory it may use"),
    FIELD(sandbox_view, pids, F_INT, F_READONLY, .help = "Processes and threads it may have"),
    FIELD(sandbox_view, cpu_percent, F_INT, F_READONLY, .help = "100 is one core"),
    FIELD(sandbox_view, io_bytes, F_INT, F_READONLY,
          .help = "Bytes a second of each disk, each way; 0 for no limit"),
    FIELD(sandbox_view, io_ops, F_INT, F_READONLY,
          .help = "Operations a second of each disk, each way; 0 for no limit"),
    FIELD(sandbox_view, disk, F_INT, F_READONLY, .help = "Bytes it may write"),
    FIELD(sandbox_view, inodes, F_INT, F_READONLY,
          .help = "Files it may make; 0 on a disk, where its bytes bound them"),
    FIELD(sandbox_view, nofile, F_INT, F_READONLY, .help = "Open descriptors of each process"),
    FIELD(sandbox_view, ttl_ms, F_INT, F_READONLY, .help = "Lifetime; 0 for none"),
    FIELD(sandbox_view, env, F_MAP, F_READONLY, .help = "Environment of every command"),
    FIELD(sandbox_view, labels, F_MAP, F_READONLY, .help = "Anything, to find it again"),
    FIELD(sandbox_view, volumes, F_LIST, F_READONLY, .of = volume_use_fields,
          .of_size = sizeof(struct volume_use), .help = "Volumes in it"),
    FIELD(sandbox_view, binds, F_LIST, F_READONLY, .of = bind_view_fields,
          .of_size = sizeof(struct bind_use), .help = "Directories of the machine in it"),
    FIELD(sandbox_view, files, F_LIST, F_READONLY, .of = file_rule_fields,
          .of_size = sizeof(struct file_rule),
          .help = "What its commands can open besides the standard places; empty: no such policy"),
    FIELD(sandbox_view, idle, F_OBJECT, F_READONLY, .of = idle_fields,
          .of_size = sizeof(struct idle_policy), .help = "What happens when nobody uses it"),
    FIELD(sandbox_view, egress, F_OBJECT, F_READONLY, .of = sandbox_egress_fields,
          .of_size = sizeof(struct egress_spec),
          .help = "Its own layer of what it may reach; null when it says nothing"),
    FIELD(sandbox_view, nesting, F_BOOL, F_READONLY,
          .help = "May tools inside make sandboxes of their own?"),
    FIELD(sandbox_view, sys, F_BOOL, F_READONLY, .help = "Has it a read-only /sys?"),
    FIELD(sandbox_view, tier, F_STRING, F_READONLY,
          .help = "T3, or T1 with nesting; /applied says what the kernel says"),
    FIELD(sandbox_view, egress_mode, F_STRING, F_READONLY,
          .help = "What happens to hosts that no rule names, by all layers together: deny, ask or "
                  "open"),
    FIELD(sandbox_view, execs_running, F_INT, F_READONLY, .help = "Commands that run now"),
    FIELD(sandbox_view, by, F_STRING, F_READONLY, .help = "Who made it"),
    ACCESS_FIELDS(sandbox_view, F_READONLY),
    FIELD(sandbox_view, created_at, F_TIME, F_READONLY, .help = "When it was made"),
    FIELD(sandbox_view, changed_at, F_TIME, F_READONLY, .help = "When its state last changed"),
    FIELD(sandbox_view, expires_at, F_TIME, F_READONLY,
          .help = "When it will be deleted; null for never"),
    FIELD(sandbox_view, start, F_STRING, F_READONLY,
          .help = "In the answer to its creation: cold, or warm out of a pool; otherwise null"),
    FIELD(sandbox_view, create_us, F_INT, F_READONLY,
          .help = "Likewise: microseconds from the request until it ran; otherwise 0"),
    { 0 },
};

static const struct field io_use_fields[] = {
    FIELD(io_use, read, F_INT, F_READONLY, .help = "Bytes read"),
    FIELD(io_use, written, F_INT, F_READONLY, .help = "Bytes written"),
    { 0 },
};

const struct field stats_fields[] = {
    FIELD(stats_view, cpu_us, F_INT, F_READONLY, .help = "Processor time used, microseconds"),
    FIELD(stats_view, memory, F_INT, F_READONLY, .help = "Bytes of memory in use"),
    FIELD(stats_view, memory_peak, F_INT, F_READONLY, .help = "The most it has used"),
    FIELD(stats_view, pids, F_INT, F_READONLY, .help = "Processes and threads"),
    FIELD(stats_view, oom_kills, F_INT, F_READONLY,
          .help = "Processes that the kernel killed for want of memory"),
    FIELD(stats_view, disk, F_INT, F_READONLY,
          .help =
              "Bytes that it has written and that are still there, as of some seconds ago; with "
              "storage memory all files in memory"),
    FIELD(stats_view, io, F_OBJECT, F_READONLY, .of = io_use_fields,
          .of_size = sizeof(struct io_use),
          .help = "Of disks; null where nobody counts: with cgroup v1, unless it has a limit"),
    { 0 },
};

/* A name stands in paths and tables: lower-case letters, digits, hyphens. */
static bool name_ok(const char *name)
{
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(name) && name[0] != '-';
}

int name_check(const char *name, const char *id_prefix, const char *field, struct err *err)
{
    if (!name_ok(name))
        return err_field(err, field, "a name has lower-case letters, digits and hyphens only");
    if (strncmp(name, id_prefix, strlen(id_prefix)) == 0 && strlen(name) >= 20)
        return err_field(err, field, "must not look like an id");
    return 0;
}

static int check_env(const struct field_pair *env, struct err *err)
{
    for (; env && env->key; env++) {
        if (!env->key[0])
            return err_field(err, "env", "a name must not be empty");
        if (strchr(env->key, '='))
            return err_field(err, "env", "a name must not contain =");
        for (const char *p = env->key; *p; p++)
            if ((unsigned char)*p < ' ' || *p == 0x7f)
                return err_field(err, "env", "a name must not contain control characters");
    }
    return 0;
}

static int check_files(struct field_list files, struct err *err)
{
    const struct file_rule *rules = files.items;

    for (size_t i = 0; i < files.count; i++) {
        char field[40];

        snprintf(field, sizeof(field), "files[%zu].path", i);
        if (rules[i].path[0] != '/')
            return err_field(err, field, "must be an absolute path");
    }
    return 0;
}

static void otherwise(int64_t *value, int64_t standard)
{
    if (*value == 0)
        *value = standard;
}

static int check_storage(const struct sandbox_spec *spec, struct err *err)
{
    if (sandbox_on_disk(spec))
        return 0;
    /* What is written lies in memory and counts as such: a full disk must come before that limit,
       or writing would end in an out-of-memory kill instead of "no space left". */
    if (spec->disk > spec->memory / 4 * 3)
        return err_field(err, "disk", "at most three quarters of memory, which holds it");
    if (spec->idle && strcmp(spec->idle->action, "stop") == 0)
        return err_field(err, "idle.action",
                         "with storage memory a stop would lose its files; pause or delete");
    return 0;
}

/*
 * A tier is a word for a set of layers. One that would take more away than `nesting` does, or add
 * what this server does not have, is refused: nobody gets another one than was asked for.
 */
static int settle_tier(struct sandbox_spec *spec, struct err *err)
{
    static const char *const refused[][2] = {
        { "T0", "a process with limits alone is not offered: T3, or T1 for tools that nest" },
        { "T2", "the way out goes through policy in every sandbox, which is T3" },
        { "T4", "there is no gVisor here: T3 is the strongest" },
        { "vm", "there are no virtual machines here: T3 is the strongest" },
    };

    for (size_t i = 0; spec->tier && i < ARRAY_LEN(refused); i++)
        if (strcmp(spec->tier, refused[i][0]) == 0)
            return err_field(err, "tier", "%s", refused[i][1]);
    if (spec->tier && strcmp(spec->tier, "T3") == 0 && spec->nesting)
        return err_field(err, "tier",
                         "nesting takes Landlock's rules about files away, which T3 has: T1");
    spec->nesting |= spec->tier && strcmp(spec->tier, "T1") == 0;
    spec->tier = spec->nesting ? "T1" : "T3";
    return 0;
}

int sandbox_spec_settle(struct sandbox_spec *spec, struct err *err)
{
    if (spec->name && name_check(spec->name, "sb", "name", err) < 0)
        return -1;
    if (check_env(spec->env, err) < 0 || check_files(spec->files, err) < 0 ||
        settle_tier(spec, err) < 0)
        return -1;
    if (spec->egress && egress_spec_check(spec->egress, "egress.", err) < 0)
        return -1;
    if (spec->egress)
        otherwise(&spec->egress->version, 1);
    if (!spec->user)
        spec->user = "agent";
    if (!spec->storage)
        spec->storage = "memory";
    otherwise(&spec->memory, 1ll << 30);
    otherwise(&spec->pids, 512);
    otherwise(&spec->cpu_percent, 200);
    otherwise(&spec->disk, sandbox_on_disk(spec) ? 8ll << 30 : spec->memory / 2);
    if (!sandbox_on_disk(spec))
        otherwise(&spec->inodes, 100000);
    otherwise(&spec->nofile, SANDBOX_NOFILE);
    return check_storage(spec, err);
}

/* ---- exec ---- */

const struct field exec_spec_fields[] = {
    FIELD(exec_spec, argv, F_STRINGS, 0, .min = 1, .max = EXEC_ARGC_MAX, .each_max = ARG_BYTES_MAX,
          .help = "Program and arguments; the program is looked for in PATH"),
    FIELD(exec_spec, command, F_STRING, 0, .min = 1, .max = ARG_BYTES_MAX,
          .help = "A line for /bin/sh -c, instead of argv"),
    FIELD(exec_spec, cwd, F_STRING, 0, .max = EXEC_CWD_MAX,
          .help = "Working directory, absolute; unless said /workspace, or what the image says"),
    FIELD(exec_spec, user, F_ENUM, 0, .choices = "agent|root",
          .help = "Who runs it; the sandbox's user unless said"),
    FIELD(exec_spec, env, F_MAP, 0, .max = 256, .each_max = 32768,
          .help = "More environment, over the sandbox's"),
    FIELD(exec_spec, tty, F_BOOL, 0, .help = "A terminal instead of pipes"),
    FIELD(exec_spec, background, F_BOOL, 0,
          .help = "A note for people and for clients of agentic: nobody means to look at it"),
    FIELD(exec_spec, stdin_open, F_BOOL, 0,
          .help = "More input will follow; otherwise it ends with stdin, or is empty"),
    FIELD(exec_spec, hold, F_BOOL, 0,
          .help = "Hold the command back when its output is not read, instead of dropping the "
                  "oldest bytes; a reader with `hold`=1 is expected (see exec.output)"),
    FIELD(exec_spec, stdin, F_STRING, 0, .max = EXEC_STDIN_INLINE_MAX,
          .help = "Its input, as text; of a terminal: what is typed first"),
    FIELD(exec_spec, stdin_base64, F_STRING, 0, .max = (int64_t)EXEC_STDIN_BASE64_MAX,
          .help = "The same for any bytes, in base64; instead of stdin"),
    FIELD(exec_spec, rows, F_INT, 0, .min = 1, .max = SCREEN_ROWS_MAX,
          .help = "Of the terminal (24)"),
    FIELD(exec_spec, cols, F_INT, 0, .min = 1, .max = SCREEN_COLS_MAX,
          .help = "Of the terminal (80)"),
    FIELD(exec_spec, timeout_ms, F_INT, 0, .min = 1, .max = EXEC_TIMEOUT_MAX_MS,
          .help = "Then it and everything it started is killed; without it, never"),
    FIELD(exec_spec, files, F_LIST, 0, .of = file_rule_fields, .of_size = sizeof(struct file_rule),
          .max = FILE_RULES_MAX,
          .help = "With any, it can open only what they name, besides the standard places (see the "
                  "sandbox's); never more than the sandbox's rules leave open"),
    FIELD(exec_spec, name, F_STRING, 0, .min = 1, .max = SANDBOX_NAME_MAX,
          .help = "To find it again; of terminals, no other that runs in the sandbox has it"),
    FIELD(exec_spec, max_controllers, F_INT, 0, .min = 1, .max = TERM_CONTROLLERS_MAX,
          .help = "Of a terminal: how many may type at once (1)"),
    FIELD(exec_spec, lease_ms, F_INT, 0, .min = 1, .max = TERM_LEASE_MAX_MS,
          .help = "Of a terminal: who has typed nothing for this long becomes an observer (10 "
                  "minutes)"),
    { 0 },
};

const struct field exec_fields[] = {
    FIELD(exec_view, id, F_STRING, F_READONLY, .help = "ex…"),
    FIELD(exec_view, sandbox, F_STRING, F_READONLY, .help = "Where it runs"),
    FIELD(exec_view, name, F_STRING, F_READONLY, .help = "If it was given one"),
    FIELD(exec_view, state, F_STRING, F_READONLY, .help = "starting, running, exited or lost"),
    FIELD(exec_view, reason, F_STRING, F_READONLY,
          .help = "Why its output or its end waits, such as a full disk; otherwise null"),
    FIELD(exec_view, argv, F_STRINGS, F_READONLY, .help = "Program and arguments"),
    FIELD(exec_view, cwd, F_STRING, F_READONLY, .help = "Working directory"),
    FIELD(exec_view, user, F_STRING, F_READONLY, .help = "Who runs it"),
    FIELD(exec_view, tty, F_BOOL, F_READONLY, .help = "Has it a terminal?"),
    FIELD(exec_view, background, F_BOOL, F_READONLY, .help = "As it was wished for"),
    FIELD(exec_view, stdin_open, F_BOOL, F_READONLY, .help = "Was input to follow?"),
    FIELD(exec_view, timeout_ms, F_INT, F_READONLY, .help = "0 for none"),
    FIELD(exec_view, files, F_LIST, F_READONLY, .of = file_rule_fields,
          .of_size = sizeof(struct file_rule), .help = "Its own rules about files"),
    FIELD(exec_view, file_policy, F_BOOL, F_READONLY,
          .help = "It was started under rules about files, the sandbox's or its own"),
    FIELD(exec_view, pid, F_INT, F_READONLY, .help = "Process id inside"),
    FIELD(exec_view, exit_code, F_INT, F_READONLY,
          .help = "As a shell says it (128 + signal); -1 until it has exited"),
    FIELD(exec_view, signal, F_INT, F_READONLY, .help = "That ended it, or 0"),
    FIELD(exec_view, timed_out, F_BOOL, F_READONLY, .help = "Ended by timeout_ms"),
    FIELD(exec_view, oom, F_BOOL, F_READONLY,
          .help = "It failed, and the kernel killed something in its sandbox for lack of memory"),
    FIELD(exec_view, stdout_bytes, F_INT, F_READONLY, .help = "Printed so far"),
    FIELD(exec_view, stderr_bytes, F_INT, F_READONLY, .help = "Printed so far"),
    FIELD(exec_view, user_us, F_INT, F_READONLY, .help = "Processor time, microseconds"),
    FIELD(exec_view, system_us, F_INT, F_READONLY, .help = "Likewise, in the kernel"),
    FIELD(exec_view, maxrss_kb, F_INT, F_READONLY, .help = "Most memory, kibibytes"),
    FIELD(exec_view, by, F_STRING, F_READONLY, .help = "Who started it"),
    FIELD(exec_view, started_at, F_TIME, F_READONLY, .help = "When it was started"),
    FIELD(exec_view, ended_at, F_TIME, F_READONLY, .help = "When it ended; null until then"),
    FIELD(exec_view, blocked, F_STRINGS, F_READONLY,
          .help = "HOST:PORT of what was denied to the sandbox while it ran; null in lists"),
    FIELD(exec_view, output, F_STRING, F_READONLY,
          .help = "The first of standard output, when it was waited for; otherwise null"),
    FIELD(exec_view, errors, F_STRING, F_READONLY, .help = "Likewise, of standard error"),
    { 0 },
};

static int check_text_size(const struct exec_spec *spec, struct err *err)
{
    size_t total = 0;

    for (const char **arg = spec->argv; *arg; arg++) {
        size_t len = strlen(*arg);

        if (arg - spec->argv >= EXEC_ARGC_MAX || len > ARG_BYTES_MAX)
            return err_field(err, "argv", "at most %d arguments of %d bytes", EXEC_ARGC_MAX,
                             ARG_BYTES_MAX);
        total += len + 1;
    }
    for (const struct field_pair *pair = spec->env; pair && pair->key; pair++)
        total += strlen(pair->key) + strlen(pair->value) + 2;
    if (total > EXEC_TEXT_MAX)
        return err_field(err, "argv", "arguments and environment have more than %d bytes",
                         EXEC_TEXT_MAX);
    return 0;
}

/*
 * Not in the table, which reads the rows of earlier releases too; and not every caller fills a
 * specification from JSON. A row that the table refuses keeps the server from starting.
 */
static int check_bounds(const struct exec_spec *spec, struct err *err)
{
    if (spec->rows && (spec->rows < TERM_ROWS_MIN || spec->rows > SCREEN_ROWS_MAX))
        return err_field(err, "rows", "must be %d to %d", TERM_ROWS_MIN, SCREEN_ROWS_MAX);
    if (spec->cols && (spec->cols < TERM_COLS_MIN || spec->cols > SCREEN_COLS_MAX))
        return err_field(err, "cols", "must be %d to %d", TERM_COLS_MIN, SCREEN_COLS_MAX);
    if (spec->name && strlen(spec->name) > SANDBOX_NAME_MAX)
        return err_field(err, "name", "at most %d bytes", SANDBOX_NAME_MAX);
    if (spec->cwd && strlen(spec->cwd) > EXEC_CWD_MAX)
        return err_field(err, "cwd", "at most %d bytes", EXEC_CWD_MAX);
    if (spec->timeout_ms < 0 || spec->timeout_ms > EXEC_TIMEOUT_MAX_MS)
        return err_field(err, "timeout_ms", "at most %lld", (long long)EXEC_TIMEOUT_MAX_MS);
    return 0;
}

int exec_spec_settle(struct exec_spec *spec, const char *user, struct err *err)
{
    if (!spec->argv == !spec->command)
        return err_field(err, spec->argv ? "command" : "argv",
                         spec->argv ? "argv or command, not both" : "argv or command is needed");
    if (spec->argv && !spec->argv[0][0])
        return err_field(err, "argv[0]", "must name a program");
    if (spec->cwd && spec->cwd[0] != '/')
        return err_field(err, "cwd", "must be an absolute path");
    if (check_bounds(spec, err) < 0 || check_env(spec->env, err) < 0 ||
        check_files(spec->files, err) < 0)
        return -1;
    if ((spec->rows || spec->cols) && !spec->tty)
        return err_field(err, spec->rows ? "rows" : "cols", "only with tty");
    if (!spec->tty && (spec->max_controllers || spec->lease_ms))
        return err_field(err, spec->max_controllers ? "max_controllers" : "lease_ms",
                         "only with tty");
    if (spec->stdin && spec->stdin_base64)
        return err_field(err, "stdin_base64", "stdin or stdin_base64, not both");
    if (spec->name && name_check(spec->name, "ex", "name", err) < 0)
        return -1;
    if (!spec->cwd)
        spec->cwd = "/workspace";
    if (!spec->user)
        spec->user = user;
    return spec->argv ? check_text_size(spec, err) : 0;
}

/* ---- signals ---- */

const struct field signal_wish_fields[] = {
    FIELD(signal_wish, signal, F_STRING, F_REQUIRED, .min = 1, .max = 16,
          .help = "TERM, SIGINT, 9…"),
    FIELD(signal_wish, tree, F_BOOL, 0,
          .help = "To everything it started too, not to its process group alone"),
    { 0 },
};

const struct field resize_wish_fields[] = {
    FIELD(resize_wish, rows, F_INT, F_REQUIRED, .min = TERM_ROWS_MIN, .max = SCREEN_ROWS_MAX,
          .help = "Lines"),
    FIELD(resize_wish, cols, F_INT, F_REQUIRED, .min = TERM_COLS_MIN, .max = SCREEN_COLS_MAX,
          .help = "Columns"),
    { 0 },
};

int signal_parse(const char *text)
{
    uint64_t number;

    if (str_to_u64(str_of(text), &number))
        return number >= 1 && number <= 64 ? (int)number : 0;
    if (strncmp(text, "SIG", 3) == 0)
        text += 3;
    for (int signal = 1; signal < 32; signal++) {
        const char *name = sigabbrev_np(signal);

        if (name && strcmp(name, text) == 0)
            return signal;
    }
    return 0;
}
