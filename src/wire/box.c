/* The checks of everything that one process may ask of another, and the names of the steps. */
#include "wire/box.h"

#include <string.h>

#include "wire/wire.h"

_Static_assert(sizeof(struct box_spec) == 192, "fixed");
_Static_assert(sizeof(struct box_name) == 40, "fixed");
_Static_assert(sizeof(struct box_row) == 44, "fixed");
_Static_assert(sizeof(struct box_rows) <= WIRE_PAYLOAD, "fits a message");
_Static_assert(sizeof(struct box_applied) <= WIRE_PAYLOAD, "fits a message");
_Static_assert(sizeof(struct box_died) == 72, "fixed");

/* clang-format off */
static const char *const step_names[BOX_STEPS] = {
    [BOX_STEP_NONE] = "none", [BOX_STEP_SPEC] = "check of the request", [BOX_STEP_RECORD] = "record on disk",
    [BOX_STEP_CGROUP] = "cgroups and limits", [BOX_STEP_SOCKET] = "control socket",
    [BOX_STEP_USERNS] = "user namespace", [BOX_STEP_LOWER] = "image layer",
    [BOX_STEP_NETNS] = "network namespace", [BOX_STEP_CLONE] = "clone",
    [BOX_STEP_ENTER_CGROUP] = "entering the cgroups",
    [BOX_STEP_ENTER_NETNS] = "entering the network namespace", [BOX_STEP_SCRATCH] = "scratch space",
    [BOX_STEP_UPPER] = "writable layer", [BOX_STEP_OVERLAY] = "overlay", [BOX_STEP_ROOT] = "root directory",
    [BOX_STEP_USR] = "/usr", [BOX_STEP_PROC] = "/proc", [BOX_STEP_DEV] = "/dev", [BOX_STEP_PTS] = "/dev/pts",
    [BOX_STEP_SHM] = "/dev/shm", [BOX_STEP_TMP] = "/tmp", [BOX_STEP_MASKS] = "masks of /proc",
    [BOX_STEP_PIVOT] = "pivot_root", [BOX_STEP_HOSTNAME] = "hostname", [BOX_STEP_CGROUPNS] = "cgroup namespace",
    [BOX_STEP_OOM] = "out-of-memory score", [BOX_STEP_ENTER_USERNS] = "entering the user namespace",
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

bool box_spec_ok(const struct box_spec *spec)
{
    return box_id_ok(spec->id) && all_zero(spec->zero, sizeof(spec->zero)) && spec->flags == 0 &&
           spec->profile < BOX_PROFILES && within(spec->memory, BOX_MEMORY_MIN, BOX_MEMORY_MAX) &&
           within(spec->disk, BOX_DISK_MIN, BOX_MEMORY_MAX) &&
           within(spec->inodes, BOX_INODES_MIN, BOX_INODES_MAX) &&
           within(spec->nofile, BOX_NOFILE_MIN, BOX_NOFILE_MAX) &&
           within(spec->pids, BOX_PIDS_MIN, BOX_PIDS_MAX) && spec->cpu_percent <= BOX_CPU_MAX &&
           spec->image == 0 && spec->layer_count == 0 && spec->net == 0 &&
           all_zero(spec->layers, sizeof(spec->layers));
}

bool box_limits_ok(const struct box_limits *limits)
{
    return box_name_ok(&limits->name) &&
           (!limits->memory || within(limits->memory, BOX_MEMORY_MIN, BOX_MEMORY_MAX)) &&
           (!limits->pids || within(limits->pids, BOX_PIDS_MIN, BOX_PIDS_MAX)) &&
           (limits->cpu_percent <= BOX_CPU_MAX || limits->cpu_percent == BOX_CPU_FREE);
}
