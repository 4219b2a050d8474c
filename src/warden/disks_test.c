/* Disks by their verbs, and boxes on them: real ones, as root. */
#include "warden/disk_rig.h"

/* ---- the verbs ---- */

TEST(disks_are_made_listed_and_dropped)
{
    const char *state = rig_open();
    struct wire_msg list = { .verb = WIRE_DISK_LIST };
    int mounts = rig_lines("/proc/self/mountinfo");

    CHECK_INT(rig_ask(&list).msg.disk_rows.count, 0);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 1, 0, 0).msg.status, ENOENT);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 1, 0, 0).msg.status, ENOENT);
    CHECK_INT(rig_left(state).dirs, 0);
    disk_made(7, 10 * MIB, 0);
    disk_made(UINT64_MAX, 0, 0);
    disk_made(9, 20 * MIB, 7);
    CHECK_INT(rig_loops(state), 1);
    CHECK_INT(rig_lines("/proc/self/mountinfo"), mounts); /* nobody sees it */
    CHECK_INT(disk_ask(WIRE_DISK_MAKE, 7, 0, 0).msg.status, EEXIST);
    CHECK_INT(disk_ask(WIRE_DISK_MAKE, 8, 0, 99).msg.status, ENOENT);
    CHECK_INT(disk_ask(WIRE_DISK_MAKE, 0, 0, 0).msg.status, EINVAL);
    CHECK_INT(disk_ask(WIRE_DISK_MAKE, 8, 1, 0).msg.status, EINVAL);
    CHECK_INT(disk_ask(WIRE_DISK_MAKE, 8, 0, 8).msg.status, EINVAL);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 9, 0, 7).msg.status, EINVAL);
    CHECK_INT(disk_ask(WIRE_DISK_LIMIT, 8, MIB, 0).msg.status, ENOENT);
    struct rig_heard heard = rig_ask(&list);
    CHECK_INT(heard.msg.disk_rows.count, 3);
    CHECK(heard.msg.disk_rows.ids[0] == 7 && heard.msg.disk_rows.ids[1] == 9 &&
          heard.msg.disk_rows.ids[2] == UINT64_MAX);
    heard = disk_ask(WIRE_DISK_STAT, 7, 0, 0);
    CHECK_INT(heard.msg.status, 0);
    CHECK_INT(heard.msg.disk_usage.bytes, 10 * MIB);
    CHECK_INT(disk_ask(WIRE_DISK_LIMIT, 7, 30 * MIB, 0).msg.status, 0);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 7, 0, 0).msg.disk_usage.bytes, 30 * MIB);
    CHECK_INT(disk_ask(WIRE_DISK_LIMIT, 7, 0, 0).msg.status, 0);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 7, 0, 0).msg.disk_usage.bytes, 0);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 7, 0, 0).msg.status, 0);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 7, 0, 0).msg.status, ENOENT);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 9, 0, 0).msg.status, 0);
    rig_close();
    rig_check_no_loops(state);
    rig_open_at(state); /* and all is there again */
    heard = rig_ask(&list);
    CHECK_INT(heard.msg.disk_rows.count, 2);
    CHECK_INT(disk_ask(WIRE_DISK_STAT, 9, 0, 0).msg.disk_usage.bytes, 20 * MIB);
    rig_close();
    rig_check_no_loops(state);
}

TEST(a_box_on_a_disk_keeps_its_files)
{
    const char *state = rig_open();

    disk_made(1, 100 * MIB, 0);
    struct rig_box box = box_on("keep", 1);
    check_sh(&box,
             "echo hello > /tmp/a && echo you > ~/b 2>/dev/null || cd; id -u;"
             "echo deep > /workspace/c && mkdir -p /workspace/d && df /tmp /dev/shm",
             0);
    check_sh(&box, "echo root > /etc/new && rm /etc/hostname && chown 1000 /etc/new", INIT_AS_ROOT);
    struct wire_msg again = rig_spec("second");
    again.spec.upper = 1;
    CHECK_INT(rig_ask(&again).msg.status, EBUSY);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 1, 0, 0).msg.status, EBUSY);
    rig_destroy(&box);
    box = box_on("keep", 1);
    check_sh(&box,
             "grep hello /tmp/a && grep deep /workspace/c && grep root /etc/new &&"
             "[ ! -e /etc/hostname ] && [ -O /etc/new ] && [ -d /workspace/d ]",
             0);
    rig_destroy(&box);
    CHECK_INT(disk_ask(WIRE_DISK_DROP, 1, 0, 0).msg.status, 0);
    rig_close();
    rig_check_no_loops(state);
}
