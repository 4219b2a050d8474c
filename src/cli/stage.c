/*
 * Contents on their way back: a directory beside the place they will go to, so that each can be
 * moved there in one step, with one plain file for each change that has contents. Only its owner
 * can look into it. Nothing in it is believed before its digest is what the manifest said: a
 * process of the sandbox that is still running may have changed the file in between.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/id.h"
#include "base/mem.h"
#include "cli/apply.h"

#define CHUNK 65536

int stage_make(struct stage *stage, int parent, size_t count, struct err *err)
{
    char id[ID_SIZE];

    stage->parent = parent;
    id_make(id, "");
    snprintf(stage->name, sizeof(stage->name), STAGE_PREFIX "%s", id + strlen(id) - STAGE_ID);
    if (mkdirat(parent, stage->name, 0700) < 0) {
        stage->name[0] = 0;
        return err_sys(err, "make a directory for what comes back");
    }
    stage->dir = tree_open(parent, stage->name, O_RDONLY | O_DIRECTORY, 0);
    if (stage->dir < 0)
        return err_sys(err, "open the directory for what comes back");
    stage->have = xcalloc(count + 1, sizeof(*stage->have));
    return 0;
}

void stage_remove(struct stage *stage)
{
    struct tree_fail fail;

    if (stage->dir >= 0)
        close(stage->dir);
    if (stage->name[0])
        (void)!tree_remove(stage->parent, stage->name, &fail);
    if (stage->parent >= 0)
        close(stage->parent);
    free(stage->have);
    *stage = STAGE_NONE;
}

int stage_new(struct stage *stage, size_t at, struct err *err)
{
    char name[32];

    snprintf(name, sizeof(name), "%zu", at);
    int fd = openat(stage->dir, name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(err, "keep what comes back") : fd;
}

int stage_keep(struct stage *stage, size_t at, int fd, const struct tree_entry *entry,
               struct err *err)
{
    autofree char *chunk = xmalloc(CHUNK);
    struct sha256_stream *run = sha256_new();
    uint8_t digest[32];
    uint64_t size = 0;
    ssize_t got;

    while ((got = pread(fd, chunk, CHUNK, (off_t)size)) > 0) {
        sha256_put(run, chunk, (size_t)got);
        size += (uint64_t)got;
    }
    sha256_end(run, digest);
    if (got < 0)
        return err_sys(err, "read what came back");
    if (size != entry->head.size || memcmp(digest, entry->head.sha256, sizeof(digest)) != 0)
        return err_set(err, ERR_CONFLICT, "it changed while it was fetched");
    stage->have[at] = true;
    return 0;
}

/* ---- out of a whole tree ---- */

int stage_tree(struct stage *stage, struct err *err)
{
    if (mkdirat(stage->dir, "tree", 0700) < 0)
        return err_sys(err, "make a directory for what comes back");
    int fd = tree_open(stage->dir, "tree", O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? err_sys(err, "open the directory for what comes back") : fd;
}

int stage_take(struct stage *stage, int tree, size_t at, const struct change *change,
               struct err *err)
{
    autofree char *path = xmemdup0(change->path.p, change->path.n);
    autoclose int fd = tree_open(tree, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    char *slash = strrchr(path, '/');
    char name[32];

    if (fd < 0)
        return err_set(err, ERR_CONFLICT, "it was gone when it was fetched");
    if (stage_keep(stage, at, fd, change->after, err) < 0)
        return -1;
    stage->have[at] = false;
    if (slash)
        *slash = 0;
    autoclose int dir = slash ? tree_open(tree, path, O_PATH | O_DIRECTORY, 0) : -1;
    snprintf(name, sizeof(name), "%zu", at);
    if ((slash && dir < 0) ||
        renameat(slash ? dir : tree, slash ? slash + 1 : path, stage->dir, name) < 0)
        return err_sys(err, "keep what came back");
    stage->have[at] = true;
    return 0;
}

/* ---- which changes have contents ---- */

bool change_has_data(const struct change *change)
{
    return change->after && S_ISREG(change->after->head.mode) &&
           !(change->before && entry_same_data(change->before, change->after));
}
