/* Directories: listed, packed, unpacked, compared; the work itself is the tree room's. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "init/init.h"
#include "wire/box.h"

static int open_dir(struct builtin *job, const char *path)
{
    return builtin_open(job, path, O_RDONLY | O_DIRECTORY);
}

int builtin_list(struct builtin *job)
{
    const char *path = job->args[0];
    autofree char *record = malloc(TREE_RECORD_MAX);
    auto_with(walk_end) struct walk walk = { 0 };
    uint64_t limit;
    int rc = 0;

    if (!record)
        return builtin_sys(job, path);
    if (builtin_number(job, job->args[2], 10, TREE_ENTRIES_MAX, &limit) < 0)
        return -1;
    autoclose int dir = open_dir(job, path);
    if (dir < 0 || walk_begin(&walk, dir, &job->fail) < 0)
        return -1;
    walk.flat = true;
    walk.after = job->args[1];
    for (uint64_t i = 0; i < limit && (rc = walk_next(&walk)) > 0; i++) {
        size_t len =
            tree_record_put(record, &walk.st, walk.path, walk.link[0] ? walk.link : NULL, NULL);

        if (job->out.put(job->out.ctx, record, len) < 0)
            return builtin_sys(job, NULL);
    }
    return rc < 0 ? -1 : 0;
}

int builtin_tar(struct builtin *job)
{
    autoclose int dir = open_dir(job, job->args[0]);

    return dir < 0 ? -1 : tree_tar(dir, NULL, &job->out, &job->fail);
}

int builtin_manifest(struct builtin *job)
{
    autoclose int dir = open_dir(job, job->args[0]);

    return dir < 0 ? -1 : tree_manifest(dir, &job->out, &job->fail);
}

/* "changes PATH": of a view at PATH, whose layers are at VIEW_PLACE. */
int builtin_changes(struct builtin *job)
{
    autoclose int now = open_dir(job, job->args[0]);
    autoclose int before = now < 0 ? -1 : open_dir(job, VIEW_PLACE "/before");
    autoclose int upper = before < 0 ? -1 : open_dir(job, VIEW_PLACE "/upper");

    return upper < 0 ? -1 : tree_view(before, upper, now, &job->out, &job->fail);
}

static ssize_t input(void *ctx, void *out, size_t len)
{
    (void)ctx;
    return read(0, out, len);
}

int builtin_untar(struct builtin *job)
{
    autoclose int dir = open_dir(job, job->args[0]);
    struct tree_source source = { .get = input };
    struct untar_sum sum;

    if (dir < 0 || tree_untar(dir, &source, NULL, &sum, &job->fail) < 0)
        return -1;
    struct init_unpacked told = { sum.entries, sum.bytes };
    return job->out.put(job->out.ctx, &told, sizeof(told)) < 0 ? builtin_sys(job, NULL) : 0;
}
