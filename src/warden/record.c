/*
 * What is on disk about a box: its socket, STATE/boxes/ID, and once it runs a record, in its slot
 * of STATE/records. A record is a few bytes written over others: a file for each would be made and
 * removed with every box, which takes a file system longer than the rest of the bookkeeping.
 *
 * A socket without a record that names a living process is a box that was being made or unmade when
 * the warden died, or one of before a reboot: it is removed with all that belongs to it. So the
 * record is written last and removed first, and nothing needs to be flushed: after a reboot there
 * is nothing to find. A process is the one meant when its number, who it is (process.c) and the
 * machine's boot id are all the same.
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
#define RECORDS "records"

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

static int boot_id(char out[sizeof((struct box_record){ 0 }.boot)])
{
    static char text[64];

    if (!*text && read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text)) < 36)
        return -1;
    memset(out, 0, sizeof((struct box_record){ 0 }.boot));
    memcpy(out, text, 36);
    return 0;
}

int record_of(int pidfd, pid_t pid, struct box_record *out)
{
    out->pid = pid;
    return boot_id(out->boot) < 0 ? -1 : process_who(pidfd, pid, &out->who);
}

static off_t place_of(uint32_t slot)
{
    return (off_t)slot * (off_t)sizeof(struct box_record);
}

int records_open(int state_fd)
{
    return openat(state_fd, RECORDS, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

int record_write(const struct box_host *host, struct box_record *record)
{
    record->magic = RECORD_MAGIC;
    record->size = sizeof(*record);
    record->sum = sum_of(record);
    ssize_t put = pwrite(host->records_fd, record, sizeof(*record), place_of(record->slot));
    if (put == (ssize_t)sizeof(*record))
        return 0;
    if (put >= 0)
        errno = ENOSPC;
    return -1;
}

void record_remove(const struct box_host *host, uint32_t slot)
{
    static const struct box_record none;

    (void)!pwrite(host->records_fd, &none, sizeof(none), place_of(slot));
}

static bool record_ok(const struct box_record *record, uint32_t slot)
{
    return record->magic == RECORD_MAGIC && record->size == sizeof(*record) &&
           record->sum == sum_of(record) && memchr(record->id, 0, sizeof(record->id)) &&
           box_id_ok(record->id) && record->pid > 1 && record->slot == slot;
}

void records_each(const struct box_host *host, void (*fn)(const struct box_record *record))
{
    struct box_record record;

    for (uint32_t slot = 0; slot < BOX_SLOTS; slot++) {
        ssize_t got = pread(host->records_fd, &record, sizeof(record), place_of(slot));

        if (got != (ssize_t)sizeof(record))
            return; /* no box was ever beyond */
        if (record_ok(&record, slot))
            fn(&record);
    }
}

static bool any;

static void see(const struct box_record *record)
{
    any = record->pid > 0;
}

void records_close(struct box_host *host, int state_fd)
{
    any = false;
    records_each(host, see);
    if (!any)
        unlinkat(state_fd, RECORDS, 0);
    close(host->records_fd);
    host->records_fd = -1;
}

/* As it was identified when the record was written, which another build may have done. */
static bool is_who(const struct box_record *record, int pidfd)
{
    struct process_who now = { 0 };
    int rc = record->who.pidns ? process_who_by_number(record->pid, &now)
                               : process_who(pidfd, record->pid, &now);

    return rc == 0 && now.pidns == record->who.pidns &&
           (now.start == record->who.start || !guard(record_start));
}

int record_process(const struct box_record *record)
{
    char boot[sizeof(record->boot)];

    /* First the descriptor, then the look: so it is this process that was looked at. */
    autoclose int pidfd = (int)syscall(SYS_pidfd_open, record->pid, 0);
    if (pidfd < 0 || boot_id(boot) < 0 || memcmp(boot, record->boot, sizeof(boot)) != 0 ||
        !is_who(record, pidfd) || syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0)
        return -1;
    return take_fd(&pidfd);
}

void sockets_each(const struct box_host *host, void (*fn)(const char id[BOX_ID_SIZE]))
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
