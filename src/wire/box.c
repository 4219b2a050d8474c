/* The checks of everything that one process may ask of another, and the names of the steps. */
#include "wire/box.h"

#include <string.h>

#include "wire/wire.h"

_Static_assert(sizeof(struct box_spec) == 216, "fixed");
_Static_assert(sizeof(struct box_name) == 40, "fixed");
_Static_assert(sizeof(struct box_row) == 44, "fixed");
_Static_assert(sizeof(struct box_rows) <= WIRE_PAYLOAD, "fits a message");
_Static_assert(sizeof(struct box_applied) <= WIRE_PAYLOAD, "fits a message");
_Static_assert(sizeof(struct box_died) == 72, "fixed");
_Static_assert(sizeof(struct box_mount) == 328, "fixed");
_Static_assert(sizeof(struct disk_rows) <= WIRE_PAYLOAD, "fits a message");

/* clang-format off */
static const char *const step_names[BOX_STEPS] = {
    [BOX_STEP_NONE] = "none", [BOX_STEP_SPEC] = "check of the request",
    [BOX_STEP_CGROUP] = "cgroups and limits", [BOX_STEP_SOCKET] = "control socket",
    [BOX_STEP_USERNS] = "user namespace", [BOX_STEP_LOWER] = "image layer",
    [BOX_STEP_NETNS] = "network namespace", [BOX_STEP_CLONE] = "clone",
    [BOX_STEP_ENTER_CGROUP] = "entering the cgroups", [BOX_STEP_OOM] = "out-of-memory score",
    [BOX_STEP_ENTER_NETNS] = "entering the network namespace", [BOX_STEP_MOUNTNS] = "mount namespace", [BOX_STEP_SCRATCH] = "scratch space",
    [BOX_STEP_UPPER] = "writable layer", [BOX_STEP_OVERLAY] = "overlay", [BOX_STEP_ROOT] = "root directory",
    [BOX_STEP_USR] = "/usr", [BOX_STEP_PROC] = "/proc", [BOX_STEP_DEV] = "/dev", [BOX_STEP_PTS] = "/dev/pts",
    [BOX_STEP_SHM] = "/dev/shm", [BOX_STEP_TMP] = "/tmp", [BOX_STEP_SYS] = "/sys", [BOX_STEP_TOOL] = "/run/atoll",
    [BOX_STEP_MASKS] = "masks of /proc",
    [BOX_STEP_PIVOT] = "pivot_root", [BOX_STEP_HOSTNAME] = "hostname", [BOX_STEP_CGROUPNS] = "cgroup namespace",
    [BOX_STEP_ENTER_USERNS] = "entering the user namespace",
    [BOX_STEP_STDIO] = "descriptors", [BOX_STEP_RLIMITS] = "resource limits", [BOX_STEP_CAPS] = "capabilities",
    [BOX_STEP_NNP] = "no_new_privs", [BOX_STEP_LANDLOCK] = "Landlock", [BOX_STEP_SECCOMP] = "seccomp",
    [BOX_STEP_INIT] = "start of init", [BOX_STEP_KEEP] = "keeping the record", [BOX_STEP_TIME] = "time",
};
/* clang-format on */

const char *box_step_name(uint32_t step)
{
    return step < BOX_STEPS && step_names[step] ? step_names[step] : "?";
}

static bool all_zero(const void *data, size_t len)
{
    const unsigned char *bytes = data;
    unsigned char any = 0;

    for (size_t i = 0; i < len; i++)
        any |= bytes[i];
    return any == 0;
}

/* The id is a name of a directory and of cgroups: nothing but these characters, and NULs after. */
bool box_id_ok(const char id[BOX_ID_SIZE])
{
    size_t len = strnlen(id, BOX_ID_SIZE);

    if (len == 0 || len >= BOX_ID_SIZE || !all_zero(id + len, BOX_ID_SIZE - len))
        return false;
    return strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == len;
}

bool box_name_ok(const struct box_name *name)
{
    return box_id_ok(name->id) && all_zero(name->zero, sizeof(name->zero));
}

static bool within(uint64_t value, uint64_t least, uint64_t most)
{
    return value >= least && value <= most;
}

/* As many as it says, none of them 0, nor the one that is written to. */
static bool layers_ok(const struct box_spec *spec)
{
    if (spec->layer_count > BOX_LAYERS_MAX)
        return false;
    for (uint32_t i = 0; i < spec->layer_count; i++)
        if (!spec->layers[i] || spec->layers[i] == spec->upper)
            return false;
    return all_zero(spec->layers + spec->layer_count,
                    (BOX_LAYERS_MAX - spec->layer_count) * sizeof(spec->layers[0]));
}

static bool io_ok(uint64_t bytes, uint64_t ops)
{
    return (!bytes || within(bytes, BOX_IO_BYTES_MIN, BOX_IO_BYTES_MAX)) &&
           (!ops || within(ops, BOX_IO_OPS_MIN, BOX_IO_OPS_MAX));
}

bool box_spec_ok(const struct box_spec *spec)
{
    return box_id_ok(spec->id) && all_zero(spec->zero, sizeof(spec->zero)) &&
           !(spec->flags & ~BOX_FLAGS) && spec->profile < BOX_PROFILES &&
           within(spec->memory, BOX_MEMORY_MIN, BOX_MEMORY_MAX) &&
           within(spec->disk, BOX_DISK_MIN, BOX_MEMORY_MAX) &&
           within(spec->inodes, BOX_INODES_MIN, BOX_INODES_MAX) &&
           within(spec->nofile, BOX_NOFILE_MIN, BOX_NOFILE_MAX) &&
           within(spec->pids, BOX_PIDS_MIN, BOX_PIDS_MAX) && spec->cpu_percent <= BOX_CPU_MAX &&
           spec->net == 0 && !(spec->must >> BOX_LOSSES) && spec->unused == 0 &&
           io_ok(spec->io_bytes, spec->io_ops) && layers_ok(spec);
}

bool box_limits_ok(const struct box_limits *limits)
{
    return box_name_ok(&limits->name) && limits->zero == 0 &&
           (!limits->disk || within(limits->disk, BOX_DISK_MIN, BOX_MEMORY_MAX)) &&
           (!limits->inodes || within(limits->inodes, BOX_INODES_MIN, BOX_INODES_MAX)) &&
           (!limits->memory || within(limits->memory, BOX_MEMORY_MIN, BOX_MEMORY_MAX)) &&
           (!limits->pids || within(limits->pids, BOX_PIDS_MIN, BOX_PIDS_MAX)) &&
           (limits->cpu_percent <= BOX_CPU_MAX || limits->cpu_percent == BOX_CPU_FREE) &&
           io_ok(limits->io_bytes == BOX_IO_FREE ? 0 : limits->io_bytes,
                 limits->io_ops == BOX_IO_FREE ? 0 : limits->io_ops);
}

/* Where a mount may go: the parts are looked up one by one, so each must be a name. */
static bool target_ok(const char target[BOX_TARGET_SIZE])
{
    static const char *const kept[] = { "/proc", "/sys", "/dev" };
    size_t len = strnlen(target, BOX_TARGET_SIZE);

    if (len < 2 || len >= BOX_TARGET_SIZE || target[0] != '/' ||
        !all_zero(target + len, BOX_TARGET_SIZE - len))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        size_t n = strlen(kept[i]);

        if (strncmp(target, kept[i], n) == 0 && (target[n] == '/' || target[n] == 0))
            return false;
    }
    for (const char *part = target; *part;) {
        size_t n = strcspn(++part, "/");

        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part += n;
    }
    return true;
}

bool box_mount_ok(const struct box_mount *mount)
{
    bool ticket = mount->flags & BOX_MOUNT_TICKET;

    return box_name_ok(&mount->name) && mount->zero == 0 &&
           !(mount->flags & ~(uint32_t)(BOX_MOUNT_READ_ONLY | BOX_MOUNT_TICKET | BOX_MOUNT_AS_ROOT |
                                        BOX_MOUNT_VIEW)) &&
           (ticket || !(mount->flags & BOX_MOUNT_VIEW)) &&
           (ticket ? mount->disk == 0 : mount->disk != 0 && all_zero(mount->ticket, 16)) &&
           target_ok(mount->target);
}

bool disk_wish_ok(const struct disk_wish *wish)
{
    return wish->id != 0 && wish->from != wish->id && wish->zero == 0 &&
           !(wish->flags & ~(uint32_t)DISK_FOR_AGENT) && (!wish->flags || !wish->from) &&
           (!wish->bytes || within(wish->bytes, BOX_DISK_MIN, BOX_MEMORY_MAX));
}
