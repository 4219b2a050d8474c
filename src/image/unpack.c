/* Layers into a directory: stream.c reads, layer.c writes. */
#include "base/limits.h"
#include "image/own.h"

const struct image_limits image_limits = {
    .upload = IMAGE_UPLOAD_MAX,
    .bytes = IMAGE_BYTES_MAX,
    .entries = IMAGE_ENTRIES_MAX,
    .ratio = IMAGE_RATIO_MAX,
    .ratio_free = IMAGE_RATIO_FREE,
    .dirs_bytes = IMAGE_DIRS_BYTES_MAX,
    .parts = IMAGE_PARTS_MAX,
};

static int hide_below(struct layer *tree, int fd, struct err *err)
{
    autostream struct image_stream stream = { .fd = -1 };

    if (stream_open(&stream, tree->limits, fd, err) < 0 || flat_hide(tree, &stream, err) < 0)
        return -1;
    return lseek(fd, 0, SEEK_SET) < 0 ? err_sys(err, "read it again") : 0;
}

static int add_layer(struct layer *tree, int fd, struct err *err)
{
    autostream struct image_stream stream = { .fd = -1 };
    struct archive_entry *entry;
    int rc;

    if (stream_open(&stream, tree->limits, fd, err) < 0)
        return -1;
    while ((rc = stream_next(&stream, &entry, err)) > 0)
        if (layer_add(tree, &stream, entry, err) < 0)
            return -1;
    return rc < 0 ? -1 : layer_finish(tree, err);
}

int image_unpack(const struct image_limits *limits, const int *fds, size_t count, int out,
                 struct image_counts *counts, struct err *err)
{
    struct layer *tree = xnew(struct layer);
    autofree void *owned = tree;
    int rc = 0;

    layer_init(tree, limits, out);
    tree->flat = count > 1;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (i > 0)
            rc = hide_below(tree, fds[i], err);
        if (rc == 0)
            rc = add_layer(tree, fds[i], err);
    }
    if (rc == 0)
        *counts = tree->counts;
    layer_free(tree);
    return rc;
}
