/* disk_rig - disks, boxes on them and callers at the door, for tests. */
#pragma once

#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/un.h>

#include "warden/box_rig.h"
#include "warden/disk.h"

#define MIB (1ull << 20)

static inline struct rig_heard disk_ask(enum wire_verb verb, uint64_t id, uint64_t bytes,
                                        uint64_t from)
{
    struct wire_msg msg = { .verb = (uint16_t)verb, .disk = { id, bytes, from } };

    return rig_ask(&msg);
}

static inline void disk_made(uint64_t id, uint64_t bytes, uint64_t from)
{
    struct rig_heard heard = disk_ask(WIRE_DISK_MAKE, id, bytes, from);

    if (heard.msg.status == ENOTSUP)
        test_skip("this machine keeps no disks");
    CHECK_INT(heard.msg.status, 0);
}

static inline struct rig_box box_on(const char *id, uint64_t upper)
{
    struct wire_msg spec = rig_spec(id);

    spec.spec.upper = upper;
    return rig_create(spec, id);
}

#define check_sh(box, script, flags)                                                               \
    do {                                                                                           \
        struct rig_ran *ran_ = rig_sh(box, script, flags);                                         \
        if (ran_->code != 0 || ran_->error)                                                        \
            test_fail(__FILE__, __LINE__, "code %d: %s", ran_->code, ran_->out);                   \
    } while (0)

/* Loop devices on the image of this state directory. */
static inline int rig_loops(const char *state)
{
    char path[4096];
    struct stat st;
    struct dirent *entry;
    int found = 0;

    snprintf(path, sizeof(path), "%s/disks.img", state);
    if (stat(path, &st) < 0)
        return 0;
    DIR *dir = opendir("/dev");
    CHECK(dir != NULL);
    while ((entry = readdir(dir))) {
        struct loop_info64 info;
        unsigned number;
        char end;

        if (sscanf(entry->d_name, "loop%u%c", &number, &end) != 1)
            continue;
        snprintf(path, sizeof(path), "/dev/loop%u", number);
        autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
        found += fd >= 0 && ioctl(fd, LOOP_GET_STATUS64, &info) == 0 &&
                 info.lo_inode == st.st_ino && info.lo_device == st.st_dev;
    }
    closedir(dir);
    return found;
}

/* The last user of a loop device is gone when the kernel has unmounted; that may take a moment. */
static inline void rig_check_no_loops(const char *state)
{
    int64_t until = clock_mono_ms() + test_patience(10000);

    while (rig_loops(state) && clock_mono_ms() < until)
        poll(NULL, 0, 5);
    CHECK_INT(rig_loops(state), 0);
}

/* ---- mounts into a box ---- */

static inline struct wire_msg mount_wish(const char *box, uint64_t disk, const char *target,
                                         uint32_t flags)
{
    struct wire_msg msg = { .verb = WIRE_BOX_MOUNT, .mount = { .flags = flags, .disk = disk } };

    snprintf(msg.mount.name.id, sizeof(msg.mount.name.id), "%s", box);
    snprintf(msg.mount.target, sizeof(msg.mount.target), "%s", target);
    return msg;
}

static inline int mount_disk(const char *box, uint64_t disk, const char *target, uint32_t flags)
{
    struct wire_msg msg = mount_wish(box, disk, target, flags);

    return rig_ask(&msg).msg.status;
}

static inline int mount_ticket(const char *box, const uint8_t ticket[16], const char *target,
                               uint32_t flags)
{
    struct wire_msg msg = mount_wish(box, 0, target, flags | BOX_MOUNT_TICKET);

    memcpy(msg.mount.ticket, ticket, 16);
    return rig_ask(&msg).msg.status;
}

/* The options of what is mounted at `point` in the box of this process, or NULL. */
static inline const char *mount_options(pid_t pid, const char *point)
{
    static char line[4096];
    static char options[256];
    char path[64], at[2048];

    snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
    FILE *file = fopen(path, "re");
    const char *found = NULL;

    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "%*d %*d %*s %*s %2047s %255s", at, options) == 2 &&
            strcmp(at, point) == 0) {
            found = options;
            break;
        }
    fclose(file);
    return found;
}

/* ---- the door ---- */

static inline int door_connect(const char *state)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(name.sun_path, sizeof(name.sun_path), "%s/door.sock", state);
    return fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof(name)) == 0 ? fd : -1;
}

static inline void door_say(int fd, const void *data, size_t len, const int *fds, unsigned count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 4)];
    } control = { 0 };
    struct iovec iov = { (void *)(uintptr_t)data, len };
    struct msghdr head = { .msg_iov = &iov, .msg_iovlen = 1 };

    if (count) {
        head.msg_control = control.bytes;
        head.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        control.align = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int) * count),
                                          .cmsg_level = SOL_SOCKET,
                                          .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * count);
    }
    CHECK(sendmsg(fd, &head, MSG_NOSIGNAL) == (ssize_t)len);
}

/* What the door answers to this; ECONNRESET when it just closes. */
static inline int door_answer(int fd, uint8_t ticket[16])
{
    struct door_left left = { 0 };
    ssize_t got = -1;

    for (int i = 0; i < 200 && got < 0; i++) {
        rig_pump(5);
        got = recv(fd, &left, sizeof(left), MSG_DONTWAIT);
    }
    close(fd);
    if (got != (ssize_t)sizeof(left))
        return ECONNRESET;
    CHECK_INT(left.magic, DOOR_MAGIC);
    if (ticket)
        memcpy(ticket, left.ticket, 16);
    return left.error;
}

static inline int door_leave_fd(const char *state, int dir, uint8_t ticket[16])
{
    struct door_leave leave = { .magic = DOOR_MAGIC };
    int fd = door_connect(state);

    CHECK(fd >= 0);
    door_say(fd, &leave, sizeof(leave), &dir, 1);
    return door_answer(fd, ticket);
}

static inline int door_leave_path(const char *state, const char *path, int flags,
                                  uint8_t ticket[16])
{
    autoclose int dir = open(path, flags | O_CLOEXEC);

    CHECK(dir >= 0);
    return door_leave_fd(state, dir, ticket);
}
