/*
 * tar_rig - archives for tests, written by hand so that they can lie: ustar headers with a right
 * checksum, GNU long names, pax records, sizes that are not true.
 */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <zlib.h>

#include "base/buf.h"
#include "base/test.h"

struct rig_entry {
    const char *name, *link;
    char type; /* '0' file, '1' hard link, '2' symlink, '3' char, '4' block, '5' dir, '6' FIFO */
    unsigned mode, uid, gid, major, minor;
    long long mtime;
    struct str data;
    long long size; /* said instead of data's own; -1: data's own */
};

static inline void rig_octal(char *field, size_t size, unsigned long long value)
{
    for (size_t i = size - 1; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
    field[size - 1] = 0;
}

static inline void rig_pad(struct buf *tar)
{
    while (tar->len % 512)
        buf_putc(tar, 0);
}

static inline void rig_header(struct buf *tar, const struct rig_entry *entry, size_t size)
{
    char head[512] = { 0 };
    unsigned sum = 0;

    memcpy(head, entry->name, MIN(strlen(entry->name), 100));
    rig_octal(head + 100, 8, entry->mode);
    rig_octal(head + 108, 8, entry->uid);
    rig_octal(head + 116, 8, entry->gid);
    rig_octal(head + 124, 12, size);
    rig_octal(head + 136, 12, (unsigned long long)entry->mtime);
    memset(head + 148, ' ', 8);
    head[156] = entry->type;
    if (entry->link)
        memcpy(head + 157, entry->link, MIN(strlen(entry->link), 100));
    memcpy(head + 257, "ustar\00000", 8);
    rig_octal(head + 329, 8, entry->major);
    rig_octal(head + 337, 8, entry->minor);
    for (size_t i = 0; i < sizeof(head); i++)
        sum += (unsigned char)head[i];
    rig_octal(head + 148, 7, sum);
    buf_append(tar, head, sizeof(head));
}

/* GNU's way of a long name ('L') or link ('K'): an entry before the entry. */
static inline void rig_long(struct buf *tar, char type, const char *text)
{
    struct rig_entry entry = { .name = "././@LongLink", .type = type };

    rig_header(tar, &entry, strlen(text) + 1);
    buf_append(tar, text, strlen(text) + 1);
    rig_pad(tar);
}

static inline void rig_add(struct buf *tar, struct rig_entry entry)
{
    if (entry.link && strlen(entry.link) > 99)
        rig_long(tar, 'K', entry.link);
    if (strlen(entry.name) > 99)
        rig_long(tar, 'L', entry.name);
    rig_header(tar, &entry, entry.size >= 0 ? (size_t)entry.size : entry.data.n);
    buf_str(tar, entry.data);
    rig_pad(tar);
}

/* One record of a pax header: its length counts itself. */
static inline void rig_record(struct buf *records, const char *key, struct str value)
{
    size_t len = strlen(key) + value.n + 3, total;

    for (total = len + 1; snprintf(NULL, 0, "%zu", total) + (int)len != (int)total;)
        total++;
    buf_printf(records, "%zu %s=", total, key);
    buf_str(records, value);
    buf_putc(records, '\n');
}

static inline void rig_records(struct buf *tar, const struct buf *records)
{
    rig_add(tar, (struct rig_entry){
                     .name = "pax", .type = 'x', .data = buf_view(records), .size = -1 });
}

static inline void rig_pax(struct buf *tar, const char *key, struct str value)
{
    autobuf struct buf records = { 0 };

    rig_record(&records, key, value);
    rig_records(tar, &records);
}

static inline void rig_dir(struct buf *tar, const char *name)
{
    rig_add(tar, (struct rig_entry){ .name = name, .type = '5', .mode = 0755, .size = -1 });
}

static inline void rig_file(struct buf *tar, const char *name, const char *text)
{
    rig_add(tar, (struct rig_entry){
                     .name = name, .type = '0', .mode = 0644, .data = str_of(text), .size = -1 });
}

static inline void rig_link(struct buf *tar, char type, const char *name, const char *to)
{
    rig_add(tar,
            (struct rig_entry){ .name = name, .link = to, .type = type, .mode = 0777, .size = -1 });
}

static inline void rig_end(struct buf *tar)
{
    char zero[1024] = { 0 };

    buf_append(tar, zero, sizeof(zero));
}

static inline void rig_gzip(struct buf *out, struct str data)
{
    z_stream z = { 0 };

    CHECK(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
    size_t room = deflateBound(&z, data.n);
    char *to = buf_reserve(out, room);
    CHECK(to != NULL);
    z.next_in = (Bytef *)(uintptr_t)data.p;
    z.avail_in = (uInt)data.n;
    z.next_out = (Bytef *)to;
    z.avail_out = (uInt)room;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out->len += z.total_out;
    deflateEnd(&z);
}

/* The bytes as a descriptor at its beginning; the caller closes it. */
static inline int rig_fd(struct str data)
{
    int fd = memfd_create("tar", MFD_CLOEXEC);

    CHECK(fd >= 0 && write(fd, data.p, data.n) == (ssize_t)data.n && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static inline int rig_dir_fd(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK(fd >= 0);
    return fd;
}
