/*
 * Whether sandboxes can be kept on disks: the warden makes one btrfs file system in a file of the
 * state directory and mounts it by a loop device. Nothing is made here; each part is only touched.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "host/own.h"

#define LOST "sandboxes live in memory only: no stop and start, copies, volumes or images"

static bool have_mkfs(void)
{
    autoclose int usual = open("/usr/sbin/mkfs.btrfs", O_PATH | O_CLOEXEC);
    autoclose int other = open("/sbin/mkfs.btrfs", O_PATH | O_CLOEXEC);

    return usual >= 0 || other >= 0;
}

void probe_disks(const struct probe_world *world, struct probe_result *out)
{
    if (!world->root) {
        probe_found(out, "not as an ordinary user");
        probe_say(out, PROBE_LOST, LOST, "start the server as root");
        return;
    }
    autoclose int loop = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (loop < 0) {
        probe_found(out, "/dev/loop-control: %s", strerrordesc_np(errno));
        probe_say(out, PROBE_LOST, LOST, "modprobe loop; a container must be given loop devices");
        return;
    }
    /* Where it is a module, asking for it loads it. */
    autoclose int fs = (int)syscall(SYS_fsopen, "btrfs", 1u /* FSOPEN_CLOEXEC */);
    if (fs < 0) {
        probe_found(out, "btrfs: %s", strerrordesc_np(errno));
        probe_say(out, PROBE_LOST, LOST, "use a kernel that has btrfs, or load its module");
        return;
    }
    if (!have_mkfs()) {
        probe_found(out, "no mkfs.btrfs");
        probe_say(out, PROBE_LOST, LOST, "apt install btrfs-progs");
        return;
    }
    probe_found(out, "btrfs in a file of the state directory, by a loop device");
}
