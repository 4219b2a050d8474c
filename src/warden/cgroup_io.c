/*
 * How much is read from and written to disks: as many bytes and operations a second for each disk
 * that there is when the limit is set, each way. A box may reach any of them (its image, its own
 * disk, a directory of the host's), so none is left out.
 *
 *   v2   io.max "254:0 rbps=N wbps=N riops=N wiops=N"
 *   v1   blkio.throttle.read_bps_device "254:0 N" and three more. Only what a process reads, or
 *        writes past the page cache, is its own there; applied says so.
 *
 * A group of v1 costs time at every creation and few boxes want this one, so it is made when a
 * limit is set for the first time; processes that are there already are moved into it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "warden/cgroup.h"

#define DISKS_MAX 256
#define DEV_SIZE 24
#define MOVES 100 /* passes over the processes of a box that goes on making new ones */

static const char *blocks = "/sys/block";

struct disks {
    unsigned count;
    char dev[DISKS_MAX][DEV_SIZE]; /* "254:0" */
};

/* clang-format off */
static const struct way {
    const char *v1, *v2; /* file; key in io.max */
    bool ops;
} ways[] = {
    { "blkio.throttle.read_bps_device",   "rbps=",  false },
    { "blkio.throttle.write_bps_device",  "wbps=",  false },
    { "blkio.throttle.read_iops_device",  "riops=", true },
    { "blkio.throttle.write_iops_device", "wiops=", true },
};
/* clang-format on */

void cgroup_io_blocks(const char *path)
{
    blocks = path;
}

/* ---- disks ---- */

/* One that something can be read from: loop devices without a file are none. */
static bool disk_of(int dir, const char *name, char out[DEV_SIZE])
{
    char path[300], size[32];

    snprintf(path, sizeof(path), "%.255s/size", name);
    if (cgroup_read(dir, path, size, sizeof(size)) <= 0 || strtoull(size, NULL, 10) == 0)
        return false;
    snprintf(path, sizeof(path), "%.255s/dev", name);
    if (cgroup_read(dir, path, out, DEV_SIZE) <= 0)
        return false;
    out[strcspn(out, "\n")] = 0;
    return true;
}

static int disks_find(struct disks *out)
{
    DIR *dir = opendir(blocks);
    struct dirent *entry;

    out->count = 0;
    while (dir && (entry = readdir(dir)) && out->count < DISKS_MAX)
        if (entry->d_name[0] != '.' && disk_of(dirfd(dir), entry->d_name, out->dev[out->count]))
            out->count++;
    if (dir)
        closedir(dir);
    if (out->count && out->count < DISKS_MAX)
        return 0;
    errno = ENOTSUP; /* none, or more than could be held back */
    return -1;
}

bool cgroup_io_works(void)
{
    static struct disks disks;

    return cgroup_io_place().fd != CGROUP_NONE && disks_find(&disks) == 0;
}

/* ---- the group of v1 ---- */

static bool listed_in(const char *list, const char *pid, size_t len)
{
    for (const char *at = list; (at = strstr(at, pid)); at++)
        if ((at == list || at[-1] == '\n') && at[len] == '\n')
            return true;
    return false;
}

/* Those of the box that are not in it yet; how many were seen, or -1. */
static int move_some(int io, int from, const char *id)
{
    static char all[1 << 18], in[1 << 18];
    char path[CGROUP_NAME];
    int moved = 0;

    snprintf(path, sizeof(path), "%.32s/cgroup.procs", id);
    if (cgroup_read(from, path, all, sizeof(all)) < 0 || cgroup_read(io, path, in, sizeof(in)) < 0)
        return -1;
    for (char *at = all, *end; (end = strchr(at, '\n')); at = end + 1) {
        char pid[16];

        snprintf(pid, sizeof(pid), "%.*s", (int)MIN(end - at, 15), at);
        if (listed_in(in, pid, strlen(pid)))
            continue;
        if (cgroup_write(io, path, pid) < 0 && errno != ESRCH)
            return -1;
        moved++;
    }
    return moved;
}

static int group_make(const struct cgroup_place *place, const char *id)
{
    int from = cgroup_pids_place().fd, moved = 1;

    if (mkdirat(place->fd, id, 0755) < 0 && errno != EEXIST)
        return -1; /* one that is there may not have all of them: an earlier try gave up */
    for (int i = 0; i < MOVES && from >= 0 && moved > 0; i++)
        moved = move_some(place->fd, from, id);
    if (moved > 0)
        errno = EAGAIN; /* it forks faster than this */
    return moved ? -1 : 0;
}

/* ---- setting ---- */

static int write_v1(const struct cgroup_place *place, const char *id, const char *dev,
                    const uint64_t values[2])
{
    char path[CGROUP_NAME], text[64];

    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        uint64_t value = values[ways[i].ops];

        if (!value)
            continue;
        snprintf(path, sizeof(path), "%.32s/%s", id, ways[i].v1);
        snprintf(text, sizeof(text), "%s %llu", dev,
                 (unsigned long long)(value == BOX_IO_FREE ? 0 : value));
        if (cgroup_write(place->fd, path, text) < 0)
            return -1;
    }
    return 0;
}

static int write_v2(const struct cgroup_place *place, const char *id, const char *dev,
                    const uint64_t values[2])
{
    char path[CGROUP_NAME], text[160];
    size_t len = (size_t)snprintf(text, sizeof(text), "%s", dev);

    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        uint64_t value = values[ways[i].ops];

        if (value == BOX_IO_FREE)
            len += (size_t)snprintf(text + len, sizeof(text) - len, " %smax", ways[i].v2);
        else if (value)
            len += (size_t)snprintf(text + len, sizeof(text) - len, " %s%llu", ways[i].v2,
                                    (unsigned long long)value);
    }
    snprintf(path, sizeof(path), "%.32s/io.max", id);
    return cgroup_write(place->fd, path, text);
}

/* The line at *at, ended here; *at goes to the next. NULL: there is none. */
static char *line_next(char **at)
{
    char *line = *at, *end = strchrnul(line, '\n');

    *at = *end ? end + 1 : end;
    *end = 0;
    return *line ? line : NULL;
}

static bool among(const struct disks *disks, const char *dev)
{
    for (unsigned i = 0; i < disks->count; i++)
        if (strcmp(disks->dev[i], dev) == 0)
            return true;
    return false;
}

/* Disks that went away keep their limits, and may come back: what is set counts for them too. */
static void disks_held(const struct cgroup_place *place, const char *id, struct disks *disks)
{
    static char text[65536];
    char path[CGROUP_NAME];

    for (size_t i = 0; i < (place->v2 ? 1 : ARRAY_LEN(ways)); i++) {
        snprintf(path, sizeof(path), "%.32s/%s", id, place->v2 ? "io.max" : ways[i].v1);
        if (cgroup_read(place->fd, path, text, sizeof(text)) <= 0)
            continue;
        for (char *at = text, *line; (line = line_next(&at)) && disks->count < DISKS_MAX;) {
            line[strcspn(line, " ")] = 0;
            if (strlen(line) < DEV_SIZE && !among(disks, line))
                snprintf(disks->dev[disks->count++], DEV_SIZE, "%s", line);
        }
    }
}

int cgroup_io(const char *id, uint64_t bytes, uint64_t ops)
{
    static struct disks disks;
    const uint64_t values[2] = { bytes, ops };

    if ((!bytes && !ops) || !guard(io_max))
        return 0;
    if (cgroup_io_open() < 0 || disks_find(&disks) < 0)
        return -1;
    const struct cgroup_place place = cgroup_io_place();
    if (!place.v2 && group_make(&place, id) < 0)
        return -1;
    disks_held(&place, id, &disks);
    for (unsigned i = 0; i < disks.count; i++)
        if ((place.v2 ? write_v2 : write_v1)(&place, id, disks.dev[i], values) < 0 &&
            errno != ENODEV) /* gone since it was looked for */
            return -1;
    return 0;
}

/* ---- reading ---- */

/* The least that a disk has; UINT64_MAX: none has any. */
static uint64_t least(const struct cgroup_place *place, const char *id, const struct way *way)
{
    static char text[65536];
    char path[CGROUP_NAME];
    uint64_t found = BOX_IO_FREE;

    snprintf(path, sizeof(path), "%.32s/%s", id, place->v2 ? "io.max" : way->v1);
    if (place->fd < 0 || cgroup_read(place->fd, path, text, sizeof(text)) <= 0)
        return found;
    for (char *at = text, *line; (line = line_next(&at));) {
        const char *said = place->v2 ? strstr(line, way->v2) : strchr(line, ' ');
        said += said ? (place->v2 ? strlen(way->v2) : 1) : 0;
        uint64_t value = said && *said != 'm' ? strtoull(said, NULL, 10) : 0;

        if (value && value < found)
            found = value;
    }
    return found;
}

void cgroup_io_applied(const char *id, struct box_applied *out)
{
    const struct cgroup_place place = cgroup_io_place();

    out->io_bytes = MAX(least(&place, id, &ways[0]), least(&place, id, &ways[1]));
    out->io_ops = MAX(least(&place, id, &ways[2]), least(&place, id, &ways[3]));
    out->io_direct = place.fd != CGROUP_NONE && !place.v2;
}

int cgroup_io_again(const char *id)
{
    struct box_applied now = { 0 };

    cgroup_io_applied(id, &now);
    return cgroup_io(id, now.io_bytes == BOX_IO_FREE ? 0 : now.io_bytes,
                     now.io_ops == BOX_IO_FREE ? 0 : now.io_ops);
}

void cgroup_io_usage(const char *id, struct box_usage *out)
{
    static char text[65536];
    const struct cgroup_place place = cgroup_io_place();
    char path[CGROUP_NAME];

    out->io_read = out->io_written = UINT64_MAX; /* not counted */
    snprintf(path, sizeof(path), "%.32s/%s", id,
             place.v2 ? "io.stat" : "blkio.throttle.io_service_bytes");
    if (place.fd < 0 || cgroup_read(place.fd, path, text, sizeof(text)) < 0)
        return;
    out->io_read = out->io_written = 0;
    for (char *at = text, *line; (line = line_next(&at));) {
        const char *in = strstr(line, place.v2 ? " rbytes=" : " Read "),
                   *written = strstr(line, place.v2 ? " wbytes=" : " Write ");

        out->io_read += in ? strtoull(in + (place.v2 ? 8 : 6), NULL, 10) : 0;
        out->io_written += written ? strtoull(written + (place.v2 ? 8 : 7), NULL, 10) : 0;
    }
}
