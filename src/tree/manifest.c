/*
 * A manifest tells two states of a tree apart without moving its contents. A file that cannot be
 * read has a record without a digest.
 */
#include <errno.h>
#include <stdlib.h>

#include "tree/sha.h"
#include "tree/tree.h"

#define CHUNK 65536

bool tree_digest(const struct walk *walk, char *chunk, size_t size, uint8_t out[32])
{
    autoclose int fd = walk_open(walk);
    struct sha_run run;
    ssize_t got;

    if (fd < 0)
        return false;
    sha_begin(&run);
    while ((got = read(fd, chunk, size)) > 0)
        sha_add(&run, chunk, (size_t)got);
    sha_end(&run, out);
    return got == 0;
}

int tree_manifest(int root, const struct tree_sink *sink, struct tree_fail *fail)
{
    autofree char *record = malloc(TREE_RECORD_MAX), *chunk = malloc(CHUNK);
    auto_with(walk_end) struct walk walk = { 0 };
    int rc;

    if (!record || !chunk)
        return tree_fail(fail, TREE_SYSTEM, ENOMEM, NULL);
    if (walk_begin(&walk, root, fail) < 0)
        return -1;
    while ((rc = walk_next(&walk)) > 0) {
        uint8_t sha256[32];
        bool hashed = S_ISREG(walk.st.st_mode) && tree_digest(&walk, chunk, CHUNK, sha256);
        size_t len = tree_record_put(record, &walk.st, walk.path, walk.link[0] ? walk.link : NULL,
                                     hashed ? sha256 : NULL);

        if (sink->put(sink->ctx, record, len) < 0)
            return tree_fail(fail, TREE_SYSTEM, errno, NULL);
    }
    return rc;
}
