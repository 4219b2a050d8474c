/*
 * Any bytes as an archive: into a directory beside another, where nothing may ever appear. What was
 * unpacked is packed again and must be readable by the same reader.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "tree/tree.h"

static char top[] = "/dev/shm/atoll-fuzz-XXXXXX";
static int top_fd = -1;

static int put(void *ctx, const void *data, size_t len)
{
    buf_append(ctx, data, len);
    return 0;
}

static ssize_t get(void *ctx, void *out, size_t len)
{
    struct str *rest = ctx;
    size_t part = MIN(len, rest->n);

    if (part)
        memcpy(out, rest->p, part);
    *rest = str_from(*rest, part);
    return (ssize_t)part;
}

static void leave(void)
{
    rmdir(top);
}

static int unpack(const char *name, struct str archive)
{
    struct tree_source source = { get, &archive };
    struct untar_options options = { .entries_max = 1000 };
    struct untar_sum sum;
    struct tree_fail fail;

    if (mkdirat(top_fd, name, 0755) < 0)
        abort();
    autoclose int dir = openat(top_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return tree_untar(dir, &source, &options, &sum, &fail);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    autobuf struct buf again = { 0 };
    struct tree_sink sink = { put, &again };
    struct tree_fail fail;

    if (top_fd < 0) {
        if (!mkdtemp(top) || (top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            abort();
        atexit(leave);
    }
    (void)!unpack("in", (struct str){ (const char *)data, size });
    autoclose int in = openat(top_fd, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree_tar(in, NULL, &sink, &fail) == 0 && unpack("again", buf_view(&again)) < 0)
        abort();
    if (tree_remove(top_fd, "in", &fail) < 0 ||
        (tree_remove(top_fd, "again", &fail) < 0 && fail.error != 2))
        abort();
    /* Anything else in there has come from an escape, and so would its removal fail to do. */
    if (rmdir(top) < 0 || mkdir(top, 0700) < 0)
        abort();
    close(top_fd);
    top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return 0;
}
