/*
 * What is on disk about a box: STATE/boxes/ID/ with its socket and, once it runs, a record.
 *
 * A directory without a record that names a living process is a box that was being made or unmade
 * when the warden died, or one of before a reboot: it is removed with all that belongs to it. So
 * the record is written last and removed first, and nothing needs to be flushed: after a reboot
 * there is nothing to find. A process is the one meant when number, start time, pid namespace and
 * the machine's boot id are all the same.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "warden/box.h"

#define RECORD_MAGIC 0x42584c41u /* "ALXB" */
#define RECORD_FILE "box"

static ssize_t read_text(const char *path, char *out, size_t size)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, out, size - 1);

    out[got < 0 ? 0 : got] = 0;
    return got;
}

static uint32_t sum_of(const struct box_record *record)
{
    const unsigned char *bytes = (const unsigned char *)record;
    uint32_t sum = 2166136261u;

    for (size_t i = 0; i < offsetof(struct box_record, sum); i++)
        sum = (sum ^ bytes[i]) * 16777619u;
    return sum;
}

int record_of(pid_t pid, struct box_record *out)
{
    char path[64], text[1024];
    struct stat ns;
    unsigned long long start;

    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
    if (stat(path, &ns) < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (read_text(path, text, sizeof(text)) <= 0)
        return -1;
    const char *after = strrchr(text, ')'); /* the name may hold anything */
    if (!after || sscanf(after + 1,
                         " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                         "%*d %llu",
                         &start) != 1) {
        errno = EPROTO;
        return -1;
    }
    if (read_text("/proc/sys/kernel/random/boot_id", text, sizeof(out->boot)) < 36)
        return -1;
    text[36] = 0;
    memset(out->boot, 0, sizeof(out->boot));
    memcpy(out->boot, text, 36);
    out->pid = pid;
    out->pidns = ns.st_ino;
    out->start = start;
    return 0;
}

int record_write(const struct box_host *host, struct box_record *record)
{
    char path[BOX_ID_SIZE + 8];

    record->magic = RECORD_MAGIC;
    record->size = sizeof(*record);
    record->sum = sum_of(record);
    snprintf(path, sizeof(path), "%s/" RECORD_FILE, record->id);
    autoclose int fd =
        openat(host->boxes_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 || write(fd, record, sizeof(*record)) != (ssize_t)sizeof(*record) ? -1 : 0;
}

void record_remove(const struct box_host *host, const char *id)
{
    char path[BOX_ID_SIZE + 8];

    snprintf(path, sizeof(path), "%s/" RECORD_FILE, id);
    unlinkat(host->boxes_fd, path, 0);
}

static bool record_read(const struct box_host *host, const char *id, struct box_record *out)
{
    char path[BOX_ID_SIZE + 8];

    snprintf(path, sizeof(path), "%s/" RECORD_FILE, id);
    autoclose int fd = openat(host->boxes_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && read(fd, out, sizeof(*out)) == (ssize_t)sizeof(*out) &&
           out->magic == RECORD_MAGIC && out->size == sizeof(*out) && out->sum == sum_of(out) &&
           memchr(out->id, 0, sizeof(out->id)) && strcmp(out->id, id) == 0 && out->pid > 1 &&
           out->slot < BOX_SLOTS;
}

int record_find(const struct box_host *host, const char *id, struct box_record *out)
{
    struct box_record now = { 0 };

    if (!record_read(host, id, out))
        return -1;
    /* First the descriptor, then the look: so it is this process that was looked at. */
    autoclose int pidfd = (int)syscall(SYS_pidfd_open, out->pid, 0);
    if (pidfd < 0 || record_of(out->pid, &now) < 0 || now.start != out->start ||
        now.pidns != out->pidns || memcmp(now.boot, out->boot, sizeof(now.boot)) != 0 ||
        syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0)
        return -1;
    return take_fd(&pidfd);
}

void record_each(const struct box_host *host, void (*fn)(const char id[BOX_ID_SIZE]))
{
    int fd = openat(host->boxes_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((entry = readdir(dir))) {
        char id[BOX_ID_SIZE] = "";

        if (strlen(entry->d_name) >= sizeof(id))
            continue;
        memcpy(id, entry->d_name, strlen(entry->d_name));
        if (box_id_ok(id))
            fn(id);
    }
    closedir(dir);
}
