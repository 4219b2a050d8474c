/*
 * Writing an archive: the same tree gives the same bytes. Directories, regular files and symbolic
 * links; sockets, FIFOs and devices are left out, hard links are written as files of their own.
 * Owners are written as numbers. Names that no header holds get a pax record. A file that shrinks
 * while it is read is filled up with zeros, one that grows is cut: its header has promised a size.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tree/tar.h"

#define CHUNK 65536
#define SIZE_OCTAL_MAX ((UINT64_C(1) << 33) - 1) /* eleven octal digits */
#define ID_OCTAL_MAX 2097151

struct packer {
    const struct tree_sink *sink;
    struct tree_fail *fail;
    char *chunk;
    struct walk walk;
};

static int put(struct packer *packer, const void *data, size_t len)
{
    if (packer->sink->put(packer->sink->ctx, data, len) == 0)
        return 0;
    return tree_fail(packer->fail, TREE_SYSTEM, errno, NULL);
}

static int put_zeros(struct packer *packer, uint64_t len)
{
    memset(packer->chunk, 0, (size_t)MIN(len, (uint64_t)CHUNK));
    while (len) {
        size_t part = (size_t)MIN(len, (uint64_t)CHUNK);

        if (put(packer, packer->chunk, part) < 0)
            return -1;
        len -= part;
    }
    return 0;
}

static uint64_t padding(uint64_t size)
{
    return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
}

void tar_number(char *field, size_t len, uint64_t value)
{
    if (value >> (3 * (len - 1))) {
        field[0] = (char)0x80;
        for (size_t i = len - 1; i > 0; i--, value >>= 8)
            field[i] = (char)(value & 255);
        return;
    }
    field[len - 1] = 0;
    for (size_t i = len - 1; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
}

void tar_seal(struct tar_raw *raw)
{
    uint32_t sum = 0;

    memcpy(raw->magic, "ustar\00000", sizeof(raw->magic));
    memset(raw->sum, ' ', sizeof(raw->sum));
    for (size_t i = 0; i < sizeof(*raw); i++)
        sum += ((const unsigned char *)raw)[i];
    tar_number(raw->sum, 7, sum);
}

static int put_head(struct packer *packer, struct tar_raw *raw)
{
    tar_seal(raw);
    return put(packer, raw, sizeof(*raw));
}

/* "LEN KEY=VALUE\n", where LEN counts itself. */
static size_t pax_record(char *out, const char *key, const char *value, size_t value_len)
{
    size_t rest = 1 + strlen(key) + 1 + value_len + 1, len = rest + 1;
    char digits[24];

    for (int n = 0;;) {
        int wrote = snprintf(digits, sizeof(digits), "%zu", len);

        if (wrote == n)
            break;
        n = wrote;
        len = rest + (size_t)n;
    }
    size_t at = (size_t)snprintf(out, 64, "%s %s=", digits, key);
    memcpy(out + at, value, value_len);
    out[at + value_len] = '\n';
    return at + value_len + 1;
}

/* What the header of the entry cannot say. */
static int put_pax(struct packer *packer, const char *path, const char *link, uint64_t size)
{
    autofree char *records = malloc(2 * TREE_PATH_MAX + 256);
    struct tar_raw raw = { .name = "././@PaxHeader", .type = 'x' };
    char digits[24];
    size_t len = 0;

    if (!records)
        return tree_fail(packer->fail, TREE_SYSTEM, ENOMEM, path);
    if (strlen(path) > sizeof(raw.name))
        len += pax_record(records + len, "path", path, strlen(path));
    if (strlen(link) > sizeof(raw.link))
        len += pax_record(records + len, "linkpath", link, strlen(link));
    if (size > SIZE_OCTAL_MAX) {
        snprintf(digits, sizeof(digits), "%llu", (unsigned long long)size);
        len += pax_record(records + len, "size", digits, strlen(digits));
    }
    if (!len)
        return 0;
    tar_number(raw.mode, sizeof(raw.mode), 0644);
    tar_number(raw.uid, sizeof(raw.uid), 0);
    tar_number(raw.gid, sizeof(raw.gid), 0);
    tar_number(raw.size, sizeof(raw.size), len);
    tar_number(raw.mtime, sizeof(raw.mtime), 0);
    if (put_head(packer, &raw) < 0 || put(packer, records, len) < 0)
        return -1;
    return put_zeros(packer, padding(len));
}

static int put_entry(struct packer *packer, char type, uint64_t size)
{
    const struct stat *st = &packer->walk.st;
    struct tar_raw raw = { .type = type };
    char path[TREE_PATH_MAX + 2];

    snprintf(path, sizeof(path), "%s%s", packer->walk.path, type == '5' ? "/" : "");
    if (put_pax(packer, path, packer->walk.link, size) < 0)
        return -1;
    memcpy(raw.name, path, strnlen(path, sizeof(raw.name)));
    memcpy(raw.link, packer->walk.link, strnlen(packer->walk.link, sizeof(raw.link)));
    tar_number(raw.mode, sizeof(raw.mode), st->st_mode & 07777);
    tar_number(raw.uid, sizeof(raw.uid), MIN(st->st_uid, (uid_t)ID_OCTAL_MAX));
    tar_number(raw.gid, sizeof(raw.gid), MIN(st->st_gid, (gid_t)ID_OCTAL_MAX));
    tar_number(raw.size, sizeof(raw.size), MIN(size, SIZE_OCTAL_MAX));
    tar_number(raw.mtime, sizeof(raw.mtime),
               st->st_mtim.tv_sec > 0 ? MIN((uint64_t)st->st_mtim.tv_sec, SIZE_OCTAL_MAX) : 0);
    return put_head(packer, &raw);
}

static int put_file(struct packer *packer)
{
    autoclose int fd = walk_open(&packer->walk);
    struct stat st;

    if (fd < 0 && errno == ENOENT)
        return 0; /* gone meanwhile */
    if (fd < 0 || fstat(fd, &st) < 0)
        return tree_fail(packer->fail, TREE_SYSTEM, errno, packer->walk.path);
    uint64_t size = (uint64_t)st.st_size, left = size;
    if (put_entry(packer, '0', size) < 0)
        return -1;
    while (left) {
        ssize_t got = read(fd, packer->chunk, (size_t)MIN(left, (uint64_t)CHUNK));

        if (got < 0)
            return tree_fail(packer->fail, TREE_SYSTEM, errno, packer->walk.path);
        if (got == 0)
            break;
        if (put(packer, packer->chunk, (size_t)got) < 0)
            return -1;
        left -= (uint64_t)got;
    }
    return put_zeros(packer, left + padding(size));
}

static int put_one(struct packer *packer)
{
    switch (packer->walk.st.st_mode & S_IFMT) {
    case S_IFREG:
        return put_file(packer);
    case S_IFDIR:
        return put_entry(packer, '5', 0);
    case S_IFLNK:
        return put_entry(packer, '2', 0);
    default:
        return 0;
    }
}

int tree_tar(int root, const struct tree_filter *filter, const struct tree_sink *sink,
             struct tree_fail *fail)
{
    autofree struct packer *packer = calloc(1, sizeof(*packer));
    autofree char *chunk = malloc(CHUNK);
    int rc;

    if (!packer || !chunk)
        return tree_fail(fail, TREE_SYSTEM, ENOMEM, NULL);
    packer->sink = sink;
    packer->fail = fail;
    packer->chunk = chunk;
    rc = walk_begin(&packer->walk, root, fail);
    packer->walk.filter = filter;
    while (rc == 0 && (rc = walk_next(&packer->walk)) > 0)
        rc = put_one(packer);
    walk_end(&packer->walk);
    return rc < 0 ? -1 : put_zeros(packer, (uint64_t)2 * TAR_BLOCK);
}
