/*
 * Any bytes as an upload: inspected, and every layer of what is found unpacked. The directory they
 * are unpacked into has a sentinel beside it that no archive may touch. Limits are small, so that a
 * run is short.
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "image/own.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct image_limits small = {
    .upload = 1 << 20,
    .bytes = 1 << 20,
    .entries = 200,
    .ratio = 200,
    .ratio_free = 1 << 20,
    .dirs_bytes = 65536,
    .parts = 32,
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int make_dir(const char *base, const char *name)
{
    autofree char *path = xprintf("%s/%s", base, name);

    if (mkdir(path, 0700) < 0)
        abort();
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        abort();
    return fd;
}

static void unpack_all(const char *base, int in, const struct image_info *info)
{
    for (uint32_t k = 0; k < info->layer_count && k < 4; k++) {
        char name[32];
        struct image_counts counts;
        struct err err = { 0 };

        snprintf(name, sizeof(name), "layer.%u", k);
        autoclose int fd = openat(in, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        snprintf(name, sizeof(name), "out.%u", k);
        autoclose int out = make_dir(base, name);
        if (fd < 0) /* inspect promised it */
            abort();
        if (image_unpack(&small, &fd, 1, out, &counts, &err) < 0 && (!err.code || !err.msg[0]))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char base[] = "/tmp/atoll-fuzz-XXXXXX";
    autoinfo struct image_info info = { 0 };
    autobuf struct buf json = { 0 };
    struct err err = { 0 };
    struct stat before, after;

    if (!mkdtemp(base))
        abort();
    autoclose int up = memfd_create("upload", MFD_CLOEXEC), in = make_dir(base, "in");
    autoclose int sentinel = make_dir(base, "sentinel");
    if (up < 0 || fstat(sentinel, &before) < 0 ||
        (size && write(up, data, size) != (ssize_t)size) || lseek(up, 0, SEEK_SET) < 0)
        abort();
    if (image_inspect(&small, up, in, "amd64", &info, &err) == 0) {
        if (image_info_put(&info, &json, &err) < 0 && err.code != ERR_LIMIT)
            abort();
        unpack_all(base, in, &info);
    } else if (!err.code || !err.msg[0]) {
        abort();
    }
    if (fstat(sentinel, &after) < 0 || after.st_mode != before.st_mode ||
        after.st_mtim.tv_nsec != before.st_mtim.tv_nsec || after.st_nlink != before.st_nlink)
        abort();
    nftw(base, remove_one, 32, FTW_DEPTH | FTW_PHYS);
    return 0;
}
