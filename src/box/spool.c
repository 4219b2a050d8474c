/* See spool.h. Writing may wrap in the middle, so both directions go piece by piece. */
#include "box/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/limits.h"

#define HEAD_SIZE 4096
#define SPOOL_MAGIC UINT64_C(0x31304c4f4f505341) /* "ASPOOL01" */
/*
 * Bytes at the old end of the ring that may be overwritten before the header says so: one frame.
 * They are never given to readers.
 */
#define SLACK 65536

struct spool_head {
    uint64_t magic, end;
    uint64_t holders, held; /* 0 in files of older releases */
};

void spool_name(char out[SPOOL_NAME_SIZE], const char *exec, unsigned stream)
{
    snprintf(out, SPOOL_NAME_SIZE, "%s.%s", exec, stream ? "err" : "out");
}

void spool_close(struct spool *spool)
{
    if (spool->fd >= 0)
        close(spool->fd);
    spool->fd = -1;
}

static int spool_open(struct spool *spool, int dir, const char *name, bool make, struct err *err)
{
    if (spool->fd >= 0)
        return 0;
    spool->fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
    if (spool->fd < 0)
        return err_sys(err, "open the output file %s", name);
    spool->made = true;
    return 0;
}

int spool_load(struct spool *spool, int dir, const char *name, struct err *err)
{
    struct spool_head head;
    struct err why = { 0 };

    *spool = SPOOL_NONE;
    if (spool_open(spool, dir, name, false, &why) < 0) {
        if (why.sys == ENOENT)
            return 0;
        *err = why;
        return -1;
    }
    ssize_t got = pread(spool->fd, &head, sizeof(head), 0);
    spool_close(spool);
    if (got == 0)
        return 0; /* made, and nothing counted yet */
    if (got != (ssize_t)sizeof(head) || head.magic != SPOOL_MAGIC)
        return err_set(err, ERR_INTERNAL, "%s is no output file of ours", name);
    spool->end = head.end;
    spool->holders = (unsigned)MIN(head.holders, (uint64_t)UINT32_MAX);
    spool->held = head.held;
    return 0;
}

static int put(int fd, const void *data, size_t len, off_t at)
{
    const char *from = data;

    while (len) {
        ssize_t done = pwrite(fd, from, len, at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -1;
        from += done;
        at += done;
        len -= (size_t)done;
    }
    return 0;
}

static int put_head(struct spool *spool, uint64_t end, const char *name, struct err *err)
{
    struct spool_head head = { SPOOL_MAGIC, end, spool->holders, spool->held };

    if (put(spool->fd, &head, sizeof(head), 0) < 0)
        return err_sys(err, "write the output file %s", name);
    return 0;
}

int spool_note(struct spool *spool, int dir, const char *name, struct err *err)
{
    if (!spool->made)
        return 0;
    if (spool_open(spool, dir, name, false, err) < 0)
        return -1;
    return put_head(spool, spool->end, name, err);
}

int spool_add(struct spool *spool, int dir, const char *name, const void *data, size_t len,
              struct err *err)
{
    const char *from = data;
    uint64_t end = spool->end;

    if (spool_open(spool, dir, name, true, err) < 0)
        return -1;
    while (len) {
        uint64_t at = end % SPOOL_RING;
        size_t piece = (size_t)MIN((uint64_t)len, SPOOL_RING - at);

        if (put(spool->fd, from, piece, (off_t)(HEAD_SIZE + at)) < 0)
            return err_sys(err, "write the output file %s", name);
        from += piece;
        end += piece;
        len -= piece;
    }
    if (put_head(spool, end, name, err) < 0)
        return -1;
    spool->end = end;
    return 0;
}

uint64_t spool_begin(const struct spool *spool)
{
    return spool->end > SPOOL_RING ? spool->end - SPOOL_RING + SLACK : 0;
}

ssize_t spool_read(struct spool *spool, int dir, const char *name, uint64_t from, void *out,
                   size_t len, struct err *err)
{
    if (from < spool_begin(spool))
        return err_set(err, ERR_GONE, "bytes before position %llu are no longer kept",
                       (unsigned long long)spool_begin(spool));
    if (from > spool->end)
        return err_set(err, ERR_RANGE, "the stream has %llu bytes", (unsigned long long)spool->end);
    uint64_t at = from % SPOOL_RING;
    size_t want = (size_t)MIN(MIN((uint64_t)len, spool->end - from), SPOOL_RING - at);
    if (want == 0)
        return 0;
    if (spool_open(spool, dir, name, false, err) < 0)
        return -1;
    ssize_t got = pread(spool->fd, out, want, (off_t)(HEAD_SIZE + at));
    if (got <= 0)
        return err_sys(err, "read the output file %s", name);
    return got;
}
