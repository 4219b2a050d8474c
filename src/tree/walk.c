/*
 * A walk without recursion and without open directories: what is still to be visited is a stack of
 * paths, each looked up from the root's descriptor when its turn comes, beneath it and through no
 * link. So the depth costs no descriptors, and a tree that changes meanwhile (a directory swapped
 * for a link to elsewhere) loses those files from the walk and gains none. What is gone when its
 * turn comes is passed over.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tree/tree.h"

struct names {
    char *text;
    size_t len, cap;
    size_t count;
};

static int grow(char **mem, size_t *cap, size_t need)
{
    size_t size = *cap ? *cap : 4096;

    if (need > TREE_PENDING_MAX) {
        errno = E2BIG;
        return -1;
    }
    while (size < need)
        size *= 2;
    if (size == *cap)
        return 0;
    char *grown = realloc(*mem, size);
    if (!grown)
        return -1;
    *mem = grown;
    *cap = size;
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int read_names(DIR *dir, struct names *names)
{
    struct dirent *entry;

    while (errno = 0, (entry = readdir(dir))) {
        size_t size = strlen(entry->d_name) + 1;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (grow(&names->text, &names->cap, names->len + size) < 0)
            return -1;
        memcpy(names->text + names->len, entry->d_name, size);
        names->len += size;
        names->count++;
    }
    return errno ? -1 : 0;
}

/* [path] NUL [length, 4 bytes]: read from its end. */
static int push(struct walk *walk, const char *parent, const char *name)
{
    size_t before = strlen(parent), len = before + (before ? 1 : 0) + strlen(name);
    uint32_t number = (uint32_t)len;

    if (len > TREE_PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (grow(&walk->stack, &walk->cap, walk->len + len + 1 + sizeof(number)) < 0)
        return -1;
    char *at = walk->stack + walk->len;
    snprintf(at, len + 1, "%s%s%s", parent, before ? "/" : "", name);
    memcpy(at + len + 1, &number, sizeof(number));
    walk->len += len + 1 + sizeof(number);
    return 0;
}

static int push_names(struct walk *walk, const char *parent, const struct names *names)
{
    autofree char **sorted = calloc(names->count ? names->count : 1, sizeof(char *));
    char *at = names->text;

    if (!sorted)
        return -1;
    for (size_t i = 0; i < names->count; i++) {
        sorted[i] = at;
        at += strlen(at) + 1;
    }
    qsort(sorted, names->count, sizeof(char *), compare);
    for (size_t i = names->count; i-- > 0;)
        if (push(walk, parent, sorted[i]) < 0)
            return -1;
    return 0;
}

static bool gone(int error)
{
    return error == ENOENT || error == ELOOP || error == ENOTDIR || error == EXDEV;
}

/* The names in directory `path` ("" is the root itself) are to be visited next. */
static int enter(struct walk *walk, const char *path)
{
    struct names names = { 0 };
    int fd = tree_open(walk->root, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);

    if (fd < 0)
        return gone(errno) && *path ? 0 : tree_fail(walk->fail, TREE_SYSTEM, errno, path);
    DIR *dir = tree_place_ok(fd) ? fdopendir(fd) : NULL;
    if (!dir) { /* a mounted /proc is shown, not entered */
        close(fd);
        return 0;
    }
    int rc = read_names(dir, &names);
    if (rc == 0)
        rc = push_names(walk, path, &names);
    int error = errno;
    closedir(dir);
    free(names.text);
    if (rc < 0)
        return tree_fail(walk->fail,
                         error == E2BIG || error == ENAMETOOLONG ? TREE_LIMIT : TREE_SYSTEM, error,
                         path);
    return 0;
}

int walk_begin(struct walk *walk, int root, struct tree_fail *fail)
{
    *walk = (struct walk){ .root = root, .fail = fail };
    return enter(walk, "");
}

static void pop(struct walk *walk)
{
    uint32_t len;

    memcpy(&len, walk->stack + walk->len - sizeof(len), sizeof(len));
    walk->len -= len + 1 + sizeof(len);
    memcpy(walk->path, walk->stack + walk->len, (size_t)len + 1);
}

int walk_look(struct walk *walk)
{
    autoclose int fd = tree_open(walk->root, walk->path, O_PATH | O_NOFOLLOW, 0);

    walk->link[0] = 0;
    if (fd < 0 || fstat(fd, &walk->st) < 0)
        return -1;
    if (S_ISLNK(walk->st.st_mode)) {
        ssize_t len = readlinkat(fd, "", walk->link, TREE_PATH_MAX);

        if (len < 0)
            return -1;
        walk->link[len] = 0;
    }
    return 0;
}

int walk_next(struct walk *walk)
{
    while (walk->len) {
        pop(walk);
        if (walk->after && strcmp(walk->path, walk->after) <= 0)
            continue;
        if (walk_look(walk) < 0) {
            if (gone(errno))
                continue;
            return tree_fail(walk->fail, TREE_SYSTEM, errno, walk->path);
        }
        if (walk->filter && walk->filter->skip(walk->filter->ctx, walk->path, &walk->st)) {
            walk->skipped++;
            continue;
        }
        if (++walk->count > TREE_ENTRIES_MAX)
            return tree_fail(walk->fail, TREE_LIMIT, E2BIG, walk->path);
        if (!walk->flat && S_ISDIR(walk->st.st_mode) && enter(walk, walk->path) < 0)
            return -1;
        return 1;
    }
    return 0;
}

int walk_open(const struct walk *walk)
{
    autoclose int fd = tree_open(walk->root, walk->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    struct stat st;

    if (fd < 0 && gone(errno))
        errno = ENOENT;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (st.st_dev != walk->st.st_dev || st.st_ino != walk->st.st_ino) {
        errno = ENOENT; /* another file by now */
        return -1;
    }
    return take_fd(&fd);
}

void walk_end(struct walk *walk)
{
    free(walk->stack);
    walk->stack = NULL;
}
