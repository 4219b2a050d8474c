/*
 * What changed in a view: an overlay over the tree `before`, with `upper` as the layer that has the
 * changes. A whiteout there stands for what was removed. A directory that overlay calls opaque
 * replaces the one before: what that had and the view (`now`) has not is gone too. Only what
 * changed is read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "tree/tree.h"

#define CHUNK 65536

struct view {
    int before, upper, now;
    const struct tree_sink *sink;
    struct tree_fail *fail;
    char *record, *chunk;
};

/* A walk is large: not on the stack. */
static void walk_drop(struct walk **walk)
{
    if (*walk)
        walk_end(*walk);
    free(*walk);
}

/* Of a directory of `before`, which is opened as *dir; NULL: it is none, or the failure is told. */
static struct walk *walk_before(struct view *v, const char *path, int *dir, int *rc)
{
    struct walk *walk = NULL;

    *dir = tree_open(v->before, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    *rc = 0;
    if (*dir < 0)
        return NULL;
    walk = calloc(1, sizeof(*walk));
    *rc = walk ? walk_begin(walk, *dir, v->fail) : tree_fail(v->fail, TREE_SYSTEM, ENOMEM, path);
    if (*rc < 0)
        walk_drop(&walk);
    return *rc < 0 ? NULL : walk;
}

/* "dir/name"; NULL with the failure told. */
static char *joined(struct view *v, const char *dir, const char *name)
{
    size_t before = strlen(dir), len = strlen(name);
    char *path = before + len + 1 > TREE_PATH_MAX ? NULL : malloc(before + len + 2);

    if (!path) {
        tree_fail(v->fail, TREE_LIMIT, ENAMETOOLONG, dir);
        return NULL;
    }
    char *end = mempcpy(path, dir, before);
    *end = '/';
    memcpy(end + 1, name, len + 1);
    return path;
}

static int put(struct view *v, const struct walk *walk, const char *path, bool before)
{
    uint8_t sha256[32];
    bool hashed = S_ISREG(walk->st.st_mode) && tree_digest(walk, v->chunk, CHUNK, sha256);
    size_t len = tree_record_put(v->record, &walk->st, path, walk->link[0] ? walk->link : NULL,
                                 hashed ? sha256 : NULL);

    if (before)
        tree_record_before(v->record);
    return v->sink->put(v->sink->ctx, v->record, len) < 0
               ? tree_fail(v->fail, TREE_SYSTEM, errno, path)
               : 0;
}

static int put_below(struct view *v, const char *path)
{
    int rc;
    autoclose int dir = -1;
    auto_with(walk_drop) struct walk *walk = walk_before(v, path, &dir, &rc);

    while (walk && (rc = walk_next(walk)) > 0) {
        autofree char *full = joined(v, path, walk->path);

        if (!full || put(v, walk, full, true) < 0)
            return -1;
    }
    return rc;
}

/* What the path was, if it was there; with `gone` everything below it too. */
static int put_before(struct view *v, const char *path, bool gone)
{
    autofree struct walk *one = calloc(1, sizeof(*one));

    if (!one)
        return tree_fail(v->fail, TREE_SYSTEM, ENOMEM, path);
    one->root = v->before;
    one->fail = v->fail;
    memcpy(one->path, path, strlen(path) + 1);
    if (walk_look(one) < 0)
        return 0;
    if (put(v, one, path, true) < 0)
        return -1;
    return gone && S_ISDIR(one->st.st_mode) ? put_below(v, path) : 0;
}

static bool is_opaque(const struct view *v, const char *path)
{
    autoclose int dir = tree_open(v->upper, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    char mark[8];

    return dir >= 0 && fgetxattr(dir, "user.overlay.opaque", mark, sizeof(mark)) >= 0;
}

/* Of a directory that replaced another: what that had in it, and this has not. */
static int put_missing(struct view *v, const char *path)
{
    int rc;
    autoclose int dir = -1;
    auto_with(walk_drop) struct walk *walk = walk_before(v, path, &dir, &rc);

    if (walk)
        walk->flat = true;
    while (walk && (rc = walk_next(walk)) > 0) {
        autofree char *full = joined(v, path, walk->path);
        autoclose int there = full ? tree_open(v->now, full, O_PATH | O_NOFOLLOW, 0) : -1;

        if (!full || (there < 0 && put_before(v, full, true) < 0))
            return -1;
    }
    return rc;
}

static int put_one(struct view *v, const struct walk *walk)
{
    const struct stat *st = &walk->st;

    if (S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0))
        return put_before(v, walk->path, true);
    if (put_before(v, walk->path, !S_ISDIR(st->st_mode)) < 0 || put(v, walk, walk->path, false) < 0)
        return -1;
    return S_ISDIR(st->st_mode) && is_opaque(v, walk->path) ? put_missing(v, walk->path) : 0;
}

int tree_view(int before, int upper, int now, const struct tree_sink *sink, struct tree_fail *fail)
{
    autofree char *record = malloc(TREE_RECORD_MAX), *chunk = malloc(CHUNK);
    auto_with(walk_end) struct walk walk = { 0 };
    struct view v = { before, upper, now, sink, fail, record, chunk };
    int rc;

    if (!record || !chunk)
        return tree_fail(fail, TREE_SYSTEM, ENOMEM, NULL);
    if (walk_begin(&walk, upper, fail) < 0)
        return -1;
    while ((rc = walk_next(&walk)) > 0)
        if (put_one(&v, &walk) < 0)
            return -1;
    return rc;
}
