/* The tables of what is made of a sandbox's files, and of changes to a sandbox. */
#include "base/limits.h"
#include "model/egress.h"
#include "model/sandbox.h"

#define DAY_MS (24ll * 3600 * 1000)

const struct field sandbox_patch_fields[] = {
    [PATCH_MEMORY] = FIELD(sandbox_patch, memory, F_INT, F_BYTES, .min = SANDBOX_MEMORY_MIN,
                           .max = SANDBOX_MEMORY_MAX, .help = "Bytes of memory"),
    [PATCH_PIDS] = FIELD(sandbox_patch, pids, F_INT, 0, .min = SANDBOX_PIDS_MIN,
                         .max = SANDBOX_PIDS_MAX, .help = "Processes and threads at once"),
    [PATCH_CPU] = FIELD(sandbox_patch, cpu_percent, F_INT, 0, .min = 1, .max = 102400,
                        .help = "Share of processor time, 100 is one core"),
    [PATCH_IO_BYTES] =
        FIELD(sandbox_patch, io_bytes, F_INT, 0, .min = 0, .max = SANDBOX_IO_BYTES_MAX,
              .help = "Bytes a second of each disk, each way, at least 65536; 0 for no limit"),
    [PATCH_IO_OPS] =
        FIELD(sandbox_patch, io_ops, F_INT, 0, .min = 0, .max = SANDBOX_IO_OPS_MAX,
              .help = "Operations a second of each disk, each way, at least 10; 0 for no limit"),
    [PATCH_DISK] =
        FIELD(sandbox_patch, disk, F_INT, F_BYTES, .min = SANDBOX_DISK_MIN, .max = SANDBOX_DISK_MAX,
              .help = "Bytes of everything written inside; below what is used, nothing "
                      "can be written until enough is removed"),
    [PATCH_INODES] = FIELD(sandbox_patch, inodes, F_INT, 0, .min = 1024, .max = 1 << 24,
                           .help = "Files and directories made inside, with storage memory"),
    [PATCH_TTL] = FIELD(sandbox_patch, ttl_ms, F_INT, 0, .min = 0, .max = 365 * DAY_MS,
                        .help = "Lifetime from now, in milliseconds; 0 until it is deleted"),
    [PATCH_LABELS] =
        FIELD(sandbox_patch, labels, F_MAP, 0, .max = 64, .help = "Instead of those it has"),
    [PATCH_IDLE] = FIELD(sandbox_patch, idle, F_OBJECT, F_NULL, .of = idle_fields,
                         .of_size = sizeof(struct idle_policy),
                         .help = "What happens when nobody uses it; null: nothing any more"),
    [PATCH_EGRESS] = FIELD(sandbox_patch, egress, F_OBJECT, 0, .of = sandbox_egress_fields,
                           .of_size = sizeof(struct egress_spec),
                           .help = "Its own layer of what it may reach, instead of the one it has; "
                                   "operators only"),
    [PATCH_ACCESS] = ACCESS_FIELDS(sandbox_patch, 0),
    { 0 },
};

const struct field fork_wish_fields[] = {
    FIELD(fork_wish, name, F_STRING, 0, .min = 1, .max = SANDBOX_NAME_MAX,
          .help = "Of the new one; without it, none"),
    FIELD(fork_wish, ttl_ms, F_INT, 0, .min = 1000, .max = 365 * DAY_MS,
          .help = "Lifetime of the new one; without it, until it is deleted"),
    FIELD(fork_wish, labels, F_MAP, 0, .max = 64, .help = "Of the new one; without it, the same"),
    { 0 },
};

const struct field rollback_wish_fields[] = {
    FIELD(rollback_wish, snapshot, F_STRING, F_REQUIRED, .min = 1, .max = DISK_NAME_MAX,
          .help = "Name of a snapshot of this sandbox, or id of any"),
    { 0 },
};

const struct field rollback_fields[] = {
    FIELD(rollback_view, id, F_STRING, F_READONLY, .help = "The sandbox"),
    FIELD(rollback_view, snapshot, F_STRING, F_READONLY, .help = "Whose files it has now"),
    FIELD(rollback_view, state, F_STRING, F_READONLY,
          .help = "running if it ran or was paused before, otherwise stopped"),
    FIELD(rollback_view, execs_ended, F_INT, F_READONLY, .help = "Commands that ended by this"),
    { 0 },
};

const struct field volume_wish_fields[] = {
    FIELD(volume_wish, name, F_STRING, F_REQUIRED, .min = 1, .max = DISK_NAME_MAX,
          .help = "Lower-case letters, digits and hyphens"),
    FIELD(volume_wish, bytes, F_INT, F_REQUIRED, .min = SANDBOX_DISK_MIN, .max = SANDBOX_DISK_MAX,
          .help = "How much may be written to it"),
    ACCESS_FIELDS(volume_wish, 0),
    { 0 },
};

const struct field volume_patch_fields[] = {
    FIELD(volume_wish, bytes, F_INT, 0, .min = SANDBOX_DISK_MIN, .max = SANDBOX_DISK_MAX,
          .help = "How much may be written to it; below what is used, nothing more can be"),
    [VOLUME_PATCH_ACCESS] = ACCESS_FIELDS(volume_wish, 0),
    { 0 },
};

/* clang-format off */
#define VOLUME_FIELDS                                                                              \
    FIELD(volume_view, id, F_STRING, F_READONLY, .help = "vo…"),                                   \
    FIELD(volume_view, name, F_STRING, F_READONLY, .help = "Its name"),                            \
    FIELD(volume_view, state, F_STRING, F_READONLY, .help = "ready, or lost: its disk is gone"),   \
    FIELD(volume_view, bytes, F_INT, F_READONLY, .help = "How much may be written to it"),         \
    FIELD(volume_view, sandboxes, F_STRINGS, F_READONLY, .help = "Ids of those that name it"),     \
    FIELD(volume_view, by, F_STRING, F_READONLY, .help = "Who made it"),                           \
    ACCESS_FIELDS(volume_view, F_READONLY),                                                        \
    FIELD(volume_view, created_at, F_TIME, F_READONLY, .help = "When it was made")
/* clang-format on */

const struct field volume_fields[] = { VOLUME_FIELDS, { 0 } };

const struct field volume_stat_fields[] = {
    VOLUME_FIELDS,
    FIELD(volume_view, used, F_INT, F_READONLY, .help = "Bytes that are written"),
    { 0 },
};

const struct field snapshot_wish_fields[] = {
    FIELD(snapshot_wish, name, F_STRING, F_REQUIRED, .min = 1, .max = DISK_NAME_MAX,
          .help = "Lower-case letters, digits and hyphens; its own within the sandbox"),
    { 0 },
};

const struct field snapshot_fields[] = {
    FIELD(snapshot_view, id, F_STRING, F_READONLY, .help = "sn…"),
    FIELD(snapshot_view, name, F_STRING, F_READONLY, .help = "Its name"),
    FIELD(snapshot_view, sandbox, F_STRING, F_READONLY,
          .help = "Whose files it has; that one may be gone"),
    FIELD(snapshot_view, state, F_STRING, F_READONLY, .help = "ready, or lost: its disk is gone"),
    FIELD(snapshot_view, bytes, F_INT, F_READONLY, .help = "Size of the disk it was taken of"),
    FIELD(snapshot_view, by, F_STRING, F_READONLY, .help = "Who made it"),
    ACCESS_FIELDS(snapshot_view, F_READONLY),
    FIELD(snapshot_view, created_at, F_TIME, F_READONLY, .help = "When it was made"),
    { 0 },
};
