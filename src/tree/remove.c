/*
 * Removing a tree of any depth with two descriptors: down by name, up by "..", and where each step
 * came from is remembered, because somebody may move a directory while we are in it: ".." is then
 * not where we came from, and nothing there is ours to remove.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/guard.h"
#include "tree/tree.h"

#define RETRIES_MAX 16

struct level {
    dev_t dev;
    ino_t ino;
};

struct removal {
    struct level *levels; /* the directories above the current one, from `dir` on */
    size_t depth, cap;
    int at; /* the current directory, owned */
};

static void removal_free(struct removal *removal)
{
    free(removal->levels);
    if (removal->at >= 0)
        close(removal->at);
}

static int down(struct removal *removal, int from, const char *name)
{
    struct stat st;

    if (removal->depth == removal->cap) {
        size_t cap = removal->cap ? removal->cap * 2 : 64;
        struct level *grown = realloc(removal->levels, cap * sizeof(*grown));

        if (!grown)
            return -1;
        removal->levels = grown;
        removal->cap = cap;
    }
    if (fstat(from, &st) < 0)
        return -1;
    int fd = openat(from, name,
                    O_RDONLY | O_DIRECTORY | O_CLOEXEC | (guard(remove_links) ? O_NOFOLLOW : 0));
    if (fd < 0)
        return -1;
    removal->levels[removal->depth++] = (struct level){ st.st_dev, st.st_ino };
    if (removal->at >= 0)
        close(removal->at);
    removal->at = fd;
    return 0;
}

static int up(struct removal *removal)
{
    autoclose int fd = openat(removal->at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct level *from = &removal->levels[removal->depth - 1];
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if ((st.st_dev != from->dev || st.st_ino != from->ino) && guard(remove_up)) {
        errno = ESTALE;
        return -1;
    }
    close(removal->at);
    removal->at = take_fd(&fd);
    removal->depth--;
    return 0;
}

/* Empties the current directory of what is no directory: 1 with the name of one to enter, 0, -1. */
static int empty_flat(int at, char name[TREE_NAME_MAX + 1])
{
    int copy = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* from its beginning */
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    int rc = 0;

    if (!dir) {
        if (copy >= 0)
            close(copy);
        return -1;
    }
    while (rc == 0 && (errno = 0, (entry = readdir(dir)))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(at, entry->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if ((errno == EISDIR || errno == EPERM) && unlinkat(at, entry->d_name, AT_REMOVEDIR) == 0)
            continue;
        if (errno == ENOTEMPTY || errno == EEXIST) {
            memcpy(name, entry->d_name, strnlen(entry->d_name, TREE_NAME_MAX) + 1);
            rc = 1;
        } else if (errno != ENOENT) {
            rc = -1;
        }
    }
    if (rc == 0 && errno)
        rc = -1;
    int error = errno;
    closedir(dir);
    errno = error;
    return rc;
}

/* From the top down to the deepest and back; 0 when `name` is gone. */
static int attempt(int dir, const char *name)
{
    auto_with(removal_free) struct removal removal = { .at = -1 };
    char inner[TREE_NAME_MAX + 1];

    if (down(&removal, dir, name) < 0)
        return -1;
    for (;;) {
        int rc = empty_flat(removal.at, inner);

        if (rc < 0 || (rc > 0 && down(&removal, removal.at, inner) < 0))
            return -1;
        if (rc > 0)
            continue;
        if (removal.depth == 1)
            return unlinkat(dir, name, AT_REMOVEDIR);
        if (up(&removal) < 0)
            return -1; /* the parent's next reading removes the now empty one */
    }
}

int tree_remove(int dir, const char *name, struct tree_fail *fail)
{
    if (unlinkat(dir, name, 0) == 0)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return tree_fail(fail, TREE_SYSTEM, errno, name);
    for (int i = 0; i < RETRIES_MAX; i++) {
        if (attempt(dir, name) == 0)
            return 0;
        if (errno != ESTALE && errno != ENOTEMPTY && errno != EEXIST && errno != ENOENT)
            break; /* somebody else is at work in there: begin again */
    }
    return tree_fail(fail, TREE_SYSTEM, errno, name);
}
