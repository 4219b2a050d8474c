/*
 * Memory is the smaller of the machine's and of the cgroup that the server runs in; processors are
 * those that it may run on; disk is the file system of the state directory, or the setting
 * disks_size where that is smaller.
 */
#include "daemon/machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "box/quota.h"

static int64_t cgroup_memory(void)
{
    static const char *const files[] = { "/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes" };
    int64_t least = INT64_MAX;

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        autoclose int fd = open(files[i], O_RDONLY | O_CLOEXEC);
        char text[32] = "";
        long long bytes;

        if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && sscanf(text, "%lld", &bytes) == 1 &&
            bytes > 0)
            least = MIN(least, bytes);
    }
    return least;
}

static int64_t disk_size(const struct conf *conf)
{
    int64_t size = conf_int(conf, "disks_size");
    struct statvfs fs;

    if (statvfs(".", &fs) < 0)
        return size;
    int64_t whole = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
    return size ? MIN(size, whole) : whole;
}

void machine_measure(struct boxes_machine *out, const struct conf *conf)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    *out = (struct boxes_machine){ .meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC) };
    if (pages > 0 && page > 0)
        out->has[QUOTA_MEMORY] = MIN((int64_t)pages * page, cgroup_memory());
    out->has[QUOTA_CPU] = cores > 0 ? (int64_t)cores * 100 : 0;
    out->has[QUOTA_DISK] = disk_size(conf);
    out->factor[QUOTA_MEMORY] = conf_int(conf, "overcommit_memory");
    out->factor[QUOTA_CPU] = conf_int(conf, "overcommit_cpu");
    out->factor[QUOTA_DISK] = conf_int(conf, "overcommit_disk");
}
