/*
 * One disk is a subvolume of the store, named by its number, with two directories: `up`, the tree
 * that a box sees, and `work`, which overlay wants beside it. It is made under another name and
 * renamed when it is whole. Dropping one takes a moment whatever is in it: the kernel cleans up
 * behind, and no tree that a workload made is ever walked here.
 *
 * What may be written is bounded by simple quotas: every block belongs to the disk that wrote it,
 * for as long as any disk has it, and a copy begins with nothing of its own. Kernels before 6.7
 * have only the full quotas, where what counts is what no other disk has.
 */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "warden/disk.h"
#include "warden/mount.h"

#define QUOTA_SIMPLE_ 4          /* BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA, Linux 6.7 */
#define STATUS_SIMPLE_ (1u << 3) /* BTRFS_QGROUP_STATUS_FLAG_SIMPLE_MODE */
#define MAKING "making-"

#ifdef ATOLL_FAULTS
bool disk_full_quotas; /* as on a kernel that has no others */
#else
#define disk_full_quotas false
#endif

void disk_name(uint64_t id, char out[DISK_NAME_SIZE])
{
    snprintf(out, DISK_NAME_SIZE, "%016llx", (unsigned long long)id);
}

/* The C libraries do not agree on the type of an ioctl's number. */
static int btrfs_call(int fd, unsigned long call, void *args)
{
    return (int)syscall(SYS_ioctl, fd, call, args);
}

static int dir_open(int store)
{
    return openat(store, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int disk_open_name(int store, const char *name)
{
    return open_beneath(store, name, O_RDONLY | O_DIRECTORY);
}

static int disk_open(int store, uint64_t id)
{
    char name[DISK_NAME_SIZE];

    disk_name(id, name);
    return disk_open_name(store, name);
}

/* ---- quotas ---- */

/* One item of the tree that holds them, as it is on disk. */
static int quota_item(int fd, uint32_t type, uint64_t offset, void *out, size_t size)
{
    struct btrfs_ioctl_search_args args = { .key = { .tree_id = BTRFS_QUOTA_TREE_OBJECTID,
                                                     .min_type = type,
                                                     .max_type = type,
                                                     .min_offset = offset,
                                                     .max_offset = offset,
                                                     .max_transid = UINT64_MAX,
                                                     .nr_items = 1 } };
    struct btrfs_ioctl_search_header head;

    if (btrfs_call(fd, BTRFS_IOC_TREE_SEARCH, &args) < 0)
        return -1;
    memcpy(&head, args.buf, sizeof(head));
    if (args.key.nr_items == 0 || head.len < size) {
        errno = ENOENT;
        return -1;
    }
    memcpy(out, args.buf + sizeof(head), size);
    return 0;
}

static bool quotas_simple(int fd)
{
    struct btrfs_qgroup_status_item item;

    return quota_item(fd, BTRFS_QGROUP_STATUS_KEY, 0, &item, sizeof(item)) == 0 &&
           le64toh(item.flags) & STATUS_SIMPLE_;
}

int disk_quotas(int store)
{
    struct btrfs_ioctl_quota_ctl_args simple = { .cmd = QUOTA_SIMPLE_ };
    struct btrfs_ioctl_quota_ctl_args full = { .cmd = BTRFS_QUOTA_CTL_ENABLE };
    struct btrfs_qgroup_status_item item;
    autoclose int fd = dir_open(store);

    if (fd < 0)
        return -1;
    if (quota_item(fd, BTRFS_QGROUP_STATUS_KEY, 0, &item, sizeof(item)) == 0)
        return 0;
    if (!disk_full_quotas && btrfs_call(fd, BTRFS_IOC_QUOTA_CTL, &simple) == 0)
        return 0;
    return btrfs_call(fd, BTRFS_IOC_QUOTA_CTL, &full);
}

static int set_limit(int fd, uint64_t bytes)
{
    uint64_t most = bytes ? bytes : UINT64_MAX;
    struct btrfs_ioctl_qgroup_limit_args args = { 0 }; /* group 0: the disk's own */

    if (quotas_simple(fd)) {
        args.lim.flags = BTRFS_QGROUP_LIMIT_MAX_RFER;
        args.lim.max_rfer = most;
    } else {
        args.lim.flags = BTRFS_QGROUP_LIMIT_MAX_EXCL;
        args.lim.max_excl = most;
    }
    return btrfs_call(fd, BTRFS_IOC_QGROUP_LIMIT, &args);
}

/* ---- making ---- */

#define AGENT 1000 /* as a box sees it; disks are mapped into its range */

static int make_dir(int disk, const char *name, mode_t mode)
{
    return mkdirat(disk, name, 0700) < 0 || fchmodat(disk, name, mode, 0) < 0 ? -1 : 0;
}

static int make_empty(int parent, const char *name, bool for_agent)
{
    struct btrfs_ioctl_vol_args_v2 args = { 0 };

    snprintf(args.name, sizeof(args.name), "%s", name);
    if (btrfs_call(parent, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0)
        return -1;
    autoclose int disk = disk_open_name(parent, name);
    return disk < 0 || box_fault_now() || make_dir(disk, "up", 0755) < 0 ||
                   (for_agent && fchownat(disk, "up", AGENT, AGENT, 0) < 0) ||
                   make_dir(disk, "work", 0700) < 0
               ? -1
               : 0;
}

/* A copy of a disk has the directories of its source's views: each view makes one of its own. */
static int make_view_dir(int disk, char name[DISK_NAME_SIZE])
{
    for (unsigned i = 0; i < DISK_VIEWS_MAX; i++) {
        snprintf(name, DISK_NAME_SIZE, "view-%u", i);
        if (mkdirat(disk, name, 0755) == 0)
            return disk_open_name(disk, name);
        if (errno != EEXIST)
            return -1;
    }
    errno = ENOSPC;
    return -1;
}

int disk_view(int store, uint64_t id, uid_t owner)
{
    char name[DISK_NAME_SIZE];
    autoclose int disk = disk_open(store, id);
    autoclose int dir = disk < 0 ? -1 : make_view_dir(disk, name);

    if (dir < 0 || box_fault_now() || fchmod(dir, 0755) < 0 || make_dir(dir, "work", 0700) < 0 ||
        make_dir(dir, "upper", 0700) < 0 || fchownat(dir, "upper", owner, owner, 0) < 0)
        return -1;
    return tree_clone(disk, name);
}

/* What is dirty in the other is written first: that is what takes time. */
static int make_copy(int store, int parent, const char *name, uint64_t from)
{
    autoclose int source = disk_open(store, from);
    struct btrfs_ioctl_vol_args_v2 args = { .fd = source };

    if (source < 0)
        return -1;
    snprintf(args.name, sizeof(args.name), "%s", name);
    return btrfs_call(parent, BTRFS_IOC_SNAP_CREATE_V2, &args);
}

static int destroy(int parent, const char *name)
{
    struct btrfs_ioctl_vol_args_v2 args = { 0 };

    snprintf(args.name, sizeof(args.name), "%s", name);
    if (btrfs_call(parent, BTRFS_IOC_SNAP_DESTROY_V2, &args) == 0)
        return 0;
    if (errno != ENOTTY)
        return -1;
    struct btrfs_ioctl_vol_args old = { 0 }; /* before Linux 5.7 */
    snprintf(old.name, sizeof(old.name), "%s", name);
    return btrfs_call(parent, BTRFS_IOC_SNAP_DESTROY, &old);
}

static int finish(int parent, const char *making, const struct disk_wish *wish)
{
    char name[DISK_NAME_SIZE];
    autoclose int disk = disk_open_name(parent, making);

    disk_name(wish->id, name);
    if (disk < 0 || box_fault_now() || (guard(disk_quota) && set_limit(disk, wish->bytes) < 0) ||
        box_fault_now())
        return -1;
    return (int)syscall(SYS_renameat2, parent, making, parent, name, RENAME_NOREPLACE);
}

int disk_make(int store, const struct disk_wish *wish)
{
    char name[DISK_NAME_SIZE], making[sizeof(MAKING) + DISK_NAME_SIZE];
    autoclose int parent = dir_open(store);

    disk_name(wish->id, name);
    snprintf(making, sizeof(making), MAKING "%s", name);
    if (parent < 0 || box_fault_now())
        return -1;
    if (faccessat(parent, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = EEXIST;
        return -1;
    }
    if ((wish->from ? make_copy(store, parent, making, wish->from)
                    : make_empty(parent, making, wish->flags & DISK_FOR_AGENT)) == 0 &&
        finish(parent, making, wish) == 0)
        return 0;
    int error = errno;
    if (error != EEXIST) /* another child is making it just now */
        (void)!destroy(parent, making);
    errno = error;
    return -1;
}

/* ---- the others ---- */

int disk_limit(int store, const struct disk_wish *wish)
{
    autoclose int disk = disk_open(store, wish->id);

    return disk < 0 ? -1 : set_limit(disk, wish->bytes);
}

int disk_stat(int store, uint64_t id, struct disk_usage *out)
{
    autoclose int disk = disk_open(store, id);
    struct btrfs_ioctl_ino_lookup_args root = { .objectid = BTRFS_FIRST_FREE_OBJECTID };
    struct btrfs_qgroup_info_item info;
    struct btrfs_qgroup_limit_item limit;

    if (disk < 0 || btrfs_call(disk, BTRFS_IOC_INO_LOOKUP, &root) < 0 ||
        quota_item(disk, BTRFS_QGROUP_INFO_KEY, root.treeid, &info, sizeof(info)) < 0 ||
        quota_item(disk, BTRFS_QGROUP_LIMIT_KEY, root.treeid, &limit, sizeof(limit)) < 0)
        return -1;
    bool simple = quotas_simple(disk);
    uint64_t used = le64toh(simple ? info.rfer : info.excl);
    uint64_t flag = simple ? BTRFS_QGROUP_LIMIT_MAX_RFER : BTRFS_QGROUP_LIMIT_MAX_EXCL;
    uint64_t most = le64toh(simple ? limit.max_rfer : limit.max_excl);
    bool limited = le64toh(limit.flags) & flag && most != UINT64_MAX;
    *out = (struct disk_usage){ .used = used, .bytes = limited ? most : 0 };
    return 0;
}

int disk_drop(int store, uint64_t id)
{
    char name[DISK_NAME_SIZE];
    autoclose int parent = dir_open(store);

    disk_name(id, name);
    return parent < 0 || box_fault_now() ? -1 : destroy(parent, name);
}

static bool id_of(const char *name, uint64_t *id)
{
    char again[DISK_NAME_SIZE];
    unsigned long long value;

    if (strlen(name) != 16 || sscanf(name, "%16llx", &value) != 1)
        return false;
    disk_name(value, again);
    *id = value;
    return strcmp(name, again) == 0;
}

/* Keeps the lowest ids that are above `after`; in no order does the directory have them. */
static void row_add(struct disk_rows *rows, uint64_t id)
{
    uint32_t at = rows->count;

    if (rows->count == DISK_ROWS) {
        rows->more = 1;
        if (id > rows->ids[DISK_ROWS - 1])
            return;
        at = DISK_ROWS - 1;
    } else {
        rows->count++;
    }
    for (; at > 0 && rows->ids[at - 1] > id; at--)
        rows->ids[at] = rows->ids[at - 1];
    rows->ids[at] = id;
}

int disk_list(int store, uint64_t after, struct disk_rows *out)
{
    int fd = dir_open(store);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    uint64_t id;

    *out = (struct disk_rows){ 0 };
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    while ((entry = readdir(dir)))
        if (id_of(entry->d_name, &id) && id > after)
            row_add(out, id);
    closedir(dir);
    return 0;
}

void disk_sweep(int store)
{
    int fd = dir_open(store);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (strncmp(entry->d_name, MAKING, sizeof(MAKING) - 1) == 0)
            (void)!destroy(fd, entry->d_name);
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
}
