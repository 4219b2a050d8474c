/*
 * The file system that holds all disks, in a sparse file of the state directory: made once (beside
 * its name, so it is there whole or not at all), put on a loop device that ends with its last user,
 * mounted and never attached. All of this runs in a child: making, and what the kernel replays
 * after a crash, take their time.
 *
 * A warden that dies leaves the loop device to the boxes that use its disks. The next one finds it
 * by the image's device and inode: a second loop device on the same file would be a second cache of
 * the same blocks, and the end of all disks.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "base/limits.h"
#include "warden/disk.h"
#include "warden/mount.h"
#include "wire/layout.h"

#define IMAGE STATE_DISKS
#define IMAGE_NEW "disks.new"
#define NO_MKFS "mkfs.btrfs is not installed (package btrfs-progs)"
#define NO_LOOP "there is no loop device"
#define NO_BTRFS "btrfs cannot be mounted"
#define LOOP_TRIES 16
#define NOROOT_ 1u /* SECBIT_NOROOT: root's exec brings no capabilities */

bool store_exists(int state_fd)
{
    return faccessat(state_fd, IMAGE, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- the image ---- */

static uint64_t size_wish;

void disks_size(uint64_t bytes)
{
    size_wish = bytes;
}

static uint64_t image_size(int fd)
{
    struct statvfs fs;

    if (size_wish)
        return MAX(size_wish, DISKS_SIZE_MIN) & ~(uint64_t)0xfffff;
    uint64_t free_bytes = fstatvfs(fd, &fs) < 0 ? 0 : (uint64_t)fs.f_bavail * fs.f_frsize;

    return MAX(free_bytes / 100 * DISKS_FREE_PERCENT, DISKS_SIZE_MIN) & ~(uint64_t)0xfffff;
}

static int mkfs_open(void)
{
    static const char *const places[] = { "/usr/sbin/mkfs.btrfs", "/sbin/mkfs.btrfs" };

    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        int fd = open(places[i], O_PATH | O_CLOEXEC);

        if (fd >= 0)
            return fd;
    }
    return -1;
}

/* It gets the image and nothing else: no other descriptor, no capability, no environment. */
static _Noreturn void mkfs_child(int program, int image)
{
    static char *const argv[] = { (char *)"mkfs.btrfs",
                                  (char *)"-q",
                                  (char *)"-f",
                                  (char *)"-K", /* the file is empty: nothing to discard */
                                  (char *)"-d",
                                  (char *)"single",
                                  (char *)"-m",
                                  (char *)"single",
                                  (char *)"-L",
                                  (char *)"atoll",
                                  (char *)"/proc/self/fd/3",
                                  NULL };
    static char *const env[] = { NULL };
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { 0 };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int at = fcntl(program, F_DUPFD_CLOEXEC, 64), file = fcntl(image, F_DUPFD_CLOEXEC, 64);
    sigset_t no_signals;

    sigemptyset(&no_signals);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (null < 0 || at < 0 || file < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
        dup2(file, 3) < 0 || syscall(SYS_close_range, 4u, (unsigned)MIN(at, file) - 1, 0) < 0 ||
        prctl(PR_SET_SECUREBITS, NOROOT_, 0, 0, 0) < 0 || syscall(SYS_capset, &head, none) < 0 ||
        sigprocmask(SIG_SETMASK, &no_signals, NULL) < 0)
        _exit(126);
    syscall(SYS_execveat, at, "", argv, env, AT_EMPTY_PATH);
    _exit(127);
}

static int mkfs_run(int program, int image)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    int status;

    if (pid == 0)
        mkfs_child(program, image);
    if (pid < 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    if (status != 0)
        errno = EIO;
    return status == 0 ? 0 : -1;
}

static int image_make(int state_fd, const char **why)
{
    autoclose int program = mkfs_open();

    *why = NO_MKFS;
    if (program < 0) {
        errno = ENOTSUP;
        return -1;
    }
    *why = "the image of all disks cannot be made";
    autoclose int fd =
        openat(state_fd, IMAGE_NEW, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int no_cow = FS_NOCOW_FL;
    if (fd < 0 || box_fault_now())
        return -1;
    (void)ioctl(fd, FS_IOC_SETFLAGS, &no_cow); /* on a file system that copies by itself */
    if (ftruncate(fd, (off_t)image_size(fd)) < 0)
        return -1;
    *why = "mkfs.btrfs failed";
    if (box_fault_now() || mkfs_run(program, fd) < 0)
        return -1;
    if (fsync(fd) < 0 || renameat(state_fd, IMAGE_NEW, state_fd, IMAGE) < 0)
        return -1;
    return take_fd(&fd);
}

/* ---- the loop device ---- */

static bool loop_is_of(int fd, const struct stat *image)
{
    struct loop_info64 info;

    return ioctl(fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_device == image->st_dev &&
           info.lo_inode == image->st_ino;
}

/* The one that an earlier warden made, if anybody still uses it. */
static int loop_find(const struct stat *image, char path[32])
{
    DIR *dir = opendir("/dev");
    struct dirent *entry;
    int found = -1;

    while (dir && found < 0 && (entry = readdir(dir))) {
        unsigned number;
        char end;

        if (sscanf(entry->d_name, "loop%u%c", &number, &end) != 1)
            continue;
        snprintf(path, 32, "/dev/loop%u", number);
        autoclose int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && loop_is_of(fd, image))
            found = take_fd(&fd);
    }
    if (dir)
        closedir(dir);
    return found;
}

/* Others may be looking for a free one at the same time: then the next. */
static int loop_make(int image, char path[32])
{
    struct loop_config config = { .fd = (unsigned)image,
                                  .info = { .lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
                                            .lo_file_name = "atoll " IMAGE } };
    autoclose int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    for (int i = 0; control >= 0 && i < LOOP_TRIES; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);

        if (number < 0)
            return -1;
        snprintf(path, 32, "/dev/loop%d", number);
        autoclose int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && ioctl(fd, LOOP_CONFIGURE, &config) == 0)
            return take_fd(&fd);
        if (fd >= 0 && errno == EINVAL && config.info.lo_flags & LO_FLAGS_DIRECT_IO)
            config.info.lo_flags &= ~(unsigned)LO_FLAGS_DIRECT_IO;
        else if (fd >= 0 && errno != EBUSY)
            return -1;
    }
    return -1;
}

/* ---- the mount ---- */

/* What this machine does not have is said in one way, whatever its absence looks like. */
static int lacking(void)
{
    if (errno == ENOENT || errno == ENODEV || errno == ENXIO || errno == ENOSYS)
        errno = ENOTSUP;
    return -1;
}

static int store_mount(const char *device)
{
    autoclose int fs = fs_open("btrfs");

    if (fs < 0 || box_fault_now() || fs_string(fs, "source", device) < 0 ||
        fs_string(fs, "discard", "async") < 0 || fs_string(fs, "commit", "5") < 0 ||
        fs_create(fs) < 0)
        return -1;
    return fs_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
}

int store_possible(const char **why)
{
    autoclose int program = mkfs_open();

    *why = NO_MKFS;
    errno = ENOENT;
    if (program < 0)
        return lacking();
    *why = NO_LOOP;
    autoclose int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return lacking();
    *why = NO_BTRFS;
    autoclose int fs = fs_open("btrfs"); /* where it is a module, this loads it */
    return fs < 0 ? lacking() : 0;
}

int store_open(int state_fd, const char **why)
{
    char device[32];
    struct stat st;
    autoclose int image = openat(state_fd, IMAGE, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

    if (image < 0 && errno == ENOENT)
        image = image_make(state_fd, why);
    else
        *why = "the image of all disks cannot be opened";
    if (image < 0 || fstat(image, &st) < 0)
        return -1;
    *why = NO_LOOP;
    autoclose int loop = loop_find(&st, device);
    if (loop < 0 && (box_fault_now() || (loop = loop_make(image, device)) < 0))
        return lacking();
    *why = NO_BTRFS;
    autoclose int store = store_mount(device);
    if (store < 0)
        return lacking();
    *why = "btrfs without quotas";
    if (box_fault_now() || fchmodat(store, ".", 0700, 0) < 0 || disk_quotas(store) < 0)
        return -1;
    disk_sweep(store);
    return take_fd(&store);
}
