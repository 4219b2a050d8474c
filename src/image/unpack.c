/* A layer into a directory: stream.c reads, tree.c writes. */
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

int image_unpack(const struct image_limits *limits, int fd, int out, struct image_counts *counts,
                 struct err *err)
{
    struct image_tree *tree = xnew(struct image_tree);
    autofree void *owned = tree;
    autostream struct image_stream stream = { .fd = -1 };
    struct archive_entry *entry;
    int rc;

    tree_init(tree, limits, out);
    if ((rc = stream_open(&stream, limits, fd, err)) == 0)
        while ((rc = stream_next(&stream, &entry, err)) > 0 &&
               (rc = tree_add(tree, &stream, entry, err)) == 0)
            ;
    if (rc == 0)
        rc = tree_finish(tree, err);
    if (rc == 0)
        *counts = tree->counts;
    tree_free(tree);
    return rc;
}
