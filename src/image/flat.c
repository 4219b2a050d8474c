/*
 * Layers on top of one another in one directory: a sandbox takes only so many of them, so an image
 * that has more gets its lowest ones as one. A layer's whiteouts hide what lies below it wherever
 * they stand in its archive, so it is read twice: first for them, then for what is in it.
 *
 * Removing a tree needs neither memory nor descriptors in proportion to its depth: it goes down to
 * a directory without directories, empties it, and goes down again from the top.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "image/own.h"

/* Removes all files of a directory; the name of a directory in it that is left, or NULL. Takes. */
static int empty_files(int fd, char subdir[256], struct err *err)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    int rc = 0;

    subdir[0] = 0;
    if (!dir) {
        close(fd);
        return err_sys(err, "list a directory");
    }
    while (rc == 0 && (entry = readdir(dir))) {
        const char *name = entry->d_name;

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || unlinkat(dirfd(dir), name, 0) == 0)
            continue;
        if (errno != EISDIR)
            rc = layer_fail(err, "remove", name);
        else
            memcpy(subdir, name, strlen(name) + 1);
    }
    closedir(dir);
    return rc;
}

/* Empties and removes one directory that has no directories, somewhere below `name`: 1 more. */
static int remove_lowest(int top, const char *name, struct err *err)
{
    autoclose int parent = fcntl(top, F_DUPFD_CLOEXEC, 3);
    char here[256], below[256];

    memcpy(here, name, strlen(name) + 1);
    for (bool first = true;; first = false) {
        int fd = openat(parent, here, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int again = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);

        if (again < 0)
            return fd < 0 ? layer_fail(err, "open", here) : (close(fd), err_sys(err, "open"));
        if (empty_files(fd, below, err) < 0) {
            close(again);
            return -1;
        }
        if (!below[0]) {
            close(again);
            return unlinkat(parent, here, AT_REMOVEDIR) < 0 ? layer_fail(err, "remove", here)
                                                            : !first;
        }
        close(parent);
        parent = again;
        memcpy(here, below, sizeof(here));
    }
}

int flat_remove(int dir, const char *name, struct err *err)
{
    int more = 1;

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR)
        return layer_fail(err, "remove", name);
    while (more > 0)
        more = remove_lowest(dir, name, err);
    return more;
}

static int remove_children(int dir, struct err *err)
{
    char subdir[256];

    do {
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0)
            return err_sys(err, "open a directory");
        if (empty_files(fd, subdir, err) < 0 || (subdir[0] && flat_remove(dir, subdir, err) < 0))
            return -1;
    } while (subdir[0]);
    return 0;
}

static int hide(struct layer *tree, const struct image_name *name, struct err *err)
{
    const char *gone = name->base + strlen(WHITEOUT);
    autoclose int dir =
        layer_open(tree->root, *name->dir ? name->dir : ".", O_RDONLY | O_DIRECTORY);

    if (dir < 0) /* nothing there to hide, or not where it says */
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                   ? 0
                   : layer_fail(err, "open", name->dir);
    tree->counts.whiteouts++;
    if (strcmp(gone, ".wh..opq") == 0)
        return remove_children(dir, err);
    if (strncmp(gone, WHITEOUT, strlen(WHITEOUT)) == 0)
        return 0;
    if (!*gone || strcmp(gone, ".") == 0 || strcmp(gone, "..") == 0)
        return err_set(err, ERR_INVALID, "%s hides nothing that has a name", name_show(name->base));
    return flat_remove(dir, gone, err);
}

int flat_hide(struct layer *tree, struct image_stream *stream, struct err *err)
{
    struct archive_entry *entry;
    int rc;

    if (tree->parent >= 0)
        close(take_fd(&tree->parent)); /* it may be among what goes */
    while ((rc = stream_next(stream, &entry, err)) > 0) {
        const char *text = archive_entry_pathname(entry);

        if (!text || name_parse(&tree->name, text, err) < 0)
            return text ? -1 : err_set(err, ERR_INVALID, "an entry without a name");
        if (strncmp(tree->name.base, WHITEOUT, strlen(WHITEOUT)) == 0 &&
            hide(tree, &tree->name, err) < 0)
            return -1;
    }
    return rc;
}
