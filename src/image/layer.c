/*
 * One directory, filled entry by entry, as own.h says.
 *
 * The archive may hold anything in any order: a link first and then a file "below" it, the same
 * name twice, a directory where a file was. So nothing is looked up by a path that a link could
 * bend: the directory of an entry is opened from the root with openat2, which follows no link at
 * all, and what is in it is made, replaced or linked by its last name alone. Files are made new
 * (O_EXCL) after whatever had the name was removed; a directory that has entries is never removed.
 *
 * Directories are made 0700 and get their mode and time at the end: a read-only one can be filled
 * until then, and filling it does not change its time afterwards.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/mem.h"
#include "image/own.h"

#define OPAQUE "user.overlay.opaque"
#define UIDS 65536 /* that a sandbox has */

/* A directory in tree->dirs; its name follows. */
struct later {
    struct timespec when;
    mode_t mode;
    uint32_t len; /* of the name behind it */
};

void layer_init(struct layer *tree, const struct image_limits *limits, int root)
{
    *tree = (struct layer){ .limits = limits,
                            .root = root,
                            .owners = geteuid() == 0,
                            .parent = -1,
                            .dirs = { .max = limits->dirs_bytes } };
}

void layer_free(struct layer *tree)
{
    if (tree->parent >= 0)
        close(tree->parent);
    buf_free(&tree->dirs);
    tree->parent = -1;
}

int layer_fail(struct err *err, const char *what, const char *name)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return err_set(err, ERR_NO_SPACE, "no room for %s", name_show(name));
    return err_sys(err, "%s %s", what, name_show(name));
}

/* ---- directories ---- */

int layer_open(int root, const char *path, int flags)
{
    struct open_how how = {
        .flags = (unsigned)(flags | O_CLOEXEC),
        .resolve = guard(layer_links) ? RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                            RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV
                                      : 0,
    };

    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

static bool is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* Takes the directory. What it hides by name is hidden already when it is opaque. */
static int drop_whiteouts(int fd, struct err *err)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    struct stat st;
    int rc = 0;

    if (!dir) {
        close(fd);
        return err_sys(err, "list a directory");
    }
    while (rc == 0 && (entry = readdir(dir)))
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && is_whiteout(&st) &&
            unlinkat(dirfd(dir), entry->d_name, 0) < 0)
            rc = layer_fail(err, "remove", entry->d_name);
    closedir(dir);
    return rc;
}

/*
 * Hides what the layers below have in this directory. overlayfs lists the names of whiteouts in a
 * directory that has nothing below it, so an opaque one must have none.
 */
static int make_opaque(int dir, const char *name, struct err *err)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || fsetxattr(fd, OPAQUE, "y", 1, 0) < 0) {
        if (fd >= 0)
            close(fd);
        return layer_fail(err, "mark as opaque", name);
    }
    return drop_whiteouts(fd, err);
}

static bool is_opaque(int dir)
{
    char value[2];

    return fgetxattr(dir, OPAQUE, value, sizeof(value)) == 1;
}

/* A directory of that name in `dir`; one that comes where something was deleted hides it all. */
static int make_dir(int dir, const char *name, mode_t mode, struct err *err)
{
    struct stat st;

    if (mkdirat(dir, name, mode) == 0)
        return 0;
    if (errno != EEXIST || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return layer_fail(err, "make", name);
    if (S_ISDIR(st.st_mode))
        return 0;
    if (unlinkat(dir, name, 0) < 0 || mkdirat(dir, name, mode) < 0)
        return layer_fail(err, "make", name);
    return is_whiteout(&st) ? make_opaque(dir, name, err) : 0;
}

/* Makes what is missing of a path that openat2 did not find; gives the last one. */
static int make_parents(const struct layer *tree, const char *path, struct err *err)
{
    autoclose int at = fcntl(tree->root, F_DUPFD_CLOEXEC, 3);
    struct str rest = str_of(path);

    while (at >= 0 && rest.n) {
        struct str part = str_cut(&rest, '/');
        char name[256];
        struct stat st;

        memcpy(name, part.p, part.n);
        name[part.n] = 0;
        if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode) &&
            !is_whiteout(&st))
            return err_set(err, ERR_INVALID, "%s has entries in it, but is no directory",
                           name_show(path));
        if (make_dir(at, name, 0755, err) < 0)
            return -1;
        int next = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(at);
        at = next;
    }
    return at < 0 ? layer_fail(err, "open", path) : take_fd(&at);
}

/*
 * Borrowed until the next call. The last one is kept, for entries come directory by directory; it
 * cannot be one that was replaced meanwhile, because replacing it opens the one above.
 */
static int open_parent(struct layer *tree, const char *path, struct err *err)
{
    if (tree->parent >= 0 && strcmp(path, tree->parent_name) == 0)
        return tree->parent;
    int fd = layer_open(tree->root, *path ? path : ".", O_RDONLY | O_DIRECTORY);

    if (fd < 0 && (errno == ELOOP || errno == EXDEV))
        return err_set(err, ERR_INVALID, "%s leads through a symbolic link", name_show(path));
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR)
        return layer_fail(err, "open", path);
    if (fd < 0)
        fd = make_parents(tree, path, err);
    if (fd < 0)
        return -1;
    if (tree->parent >= 0)
        close(tree->parent);
    tree->parent = fd;
    snprintf(tree->parent_name, sizeof(tree->parent_name), "%s", path);
    return fd;
}

/* ---- what a file has besides its content ---- */

static bool keep_xattr(const char *name)
{
    return !guard(attributes) ||
           (strncmp(name, "user.", 5) == 0 && strncmp(name, "user.overlay.", 13) != 0);
}

static int put_xattrs(struct layer *tree, int fd, const char *what, struct archive_entry *entry,
                      struct err *err)
{
    const char *name;
    const void *value;
    size_t size;

    if (archive_entry_xattr_reset(entry) > IMAGE_XATTRS_MAX)
        return err_set(err, ERR_LIMIT, "%s has more than %d attributes", name_show(what),
                       IMAGE_XATTRS_MAX);
    while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
        if (!name || !keep_xattr(name) || fd < 0) {
            tree->counts.xattrs++;
            continue;
        }
        if (size > IMAGE_XATTR_MAX)
            return err_set(err, ERR_LIMIT, "%s has an attribute of %zu bytes", name_show(what),
                           size);
        if (fsetxattr(fd, name, value, size, 0) < 0)
            return layer_fail(err, "set an attribute of", what);
    }
    return 0;
}

static int put_owner(struct layer *tree, int dir, const char *name, struct archive_entry *entry,
                     struct err *err)
{
    int64_t uid = archive_entry_uid(entry), gid = archive_entry_gid(entry);

    if ((uid < 0 || uid >= UIDS || gid < 0 || gid >= UIDS) && guard(owner))
        return err_set(err, ERR_INVALID, "%s belongs to %lld:%lld; a sandbox has ids up to %d",
                       name_show(name), (long long)uid, (long long)gid, UIDS - 1);
    if (tree->owners && fchownat(dir, name, (uid_t)uid, (gid_t)gid, AT_SYMLINK_NOFOLLOW) < 0)
        return layer_fail(err, "give away", name);
    return 0;
}

static struct timespec time_of(struct archive_entry *entry)
{
    long nsec = archive_entry_mtime_nsec(entry);

    return (struct timespec){ archive_entry_mtime(entry),
                              nsec >= 0 && nsec < 1000000000 ? nsec : 0 };
}

static int put_time(int dir, const char *name, struct timespec when, struct err *err)
{
    struct timespec times[2] = { when, when };

    if (utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return layer_fail(err, "set the time of", name);
    return 0;
}

/* ---- one kind of entry each ---- */

/* Makes the name free. A directory goes only when it is empty, or from a layer further down. */
static int make_room(const struct layer *tree, int dir, const char *name, struct err *err)
{
    if (!guard(exclusive) || unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR)
        return layer_fail(err, "replace", name);
    if (tree->flat)
        return flat_remove(dir, name, err);
    if (unlinkat(dir, name, AT_REMOVEDIR) < 0)
        return errno == ENOTEMPTY ? err_set(err, ERR_INVALID,
                                            "%s replaces a directory with entries", name_show(name))
                                  : layer_fail(err, "replace", name);
    return 0;
}

static int write_all(int fd, struct str data, int64_t at)
{
    while (data.n) {
        ssize_t put = pwrite(fd, data.p, data.n, at);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return -1;
        data = str_from(data, (size_t)put);
        at += put;
    }
    return 0;
}

static int copy_content(struct layer *tree, struct image_stream *stream, int fd, const char *name,
                        int64_t size, struct err *err)
{
    struct str data;
    int64_t at;
    int rc;

    if (size < 0 || ((uint64_t)size > tree->limits->bytes - tree->counts.bytes && guard(bytes)))
        return err_set(err, ERR_LIMIT, "the files of a layer may have %llu bytes; %s passes that",
                       (unsigned long long)tree->limits->bytes, name_show(name));
    tree->counts.bytes += (uint64_t)size;
    while ((rc = stream_data(stream, &data, &at, err)) > 0) {
        if (at < 0 || at > size || data.n > (uint64_t)(size - at))
            return err_set(err, ERR_INVALID, "%s has more bytes than it says", name_show(name));
        if (write_all(fd, data, at) < 0)
            return layer_fail(err, "write", name);
    }
    if (rc < 0)
        return err_wrap(err, "%s", name_show(name));
    return ftruncate(fd, size) < 0 ? layer_fail(err, "write", name) : 0;
}

static mode_t file_mode(struct layer *tree, struct archive_entry *entry)
{
    mode_t mode = archive_entry_perm(entry) & 07777;

    if (mode & (S_ISUID | S_ISGID))
        tree->counts.setuid++;
    return guard(setuid) ? mode & ~(mode_t)(S_ISUID | S_ISGID) : mode;
}

static int add_file(struct layer *tree, struct image_stream *stream, int dir, const char *name,
                    struct archive_entry *entry, struct err *err)
{
    if (make_room(tree, dir, name, err) < 0)
        return -1;
    autoclose int fd =
        openat(dir, name,
               O_WRONLY | O_CREAT | (guard(exclusive) ? O_EXCL | O_NOFOLLOW : 0) | O_CLOEXEC, 0600);

    if (fd < 0)
        return layer_fail(err, "make", name);
    if (copy_content(tree, stream, fd, name, archive_entry_size(entry), err) < 0 ||
        put_owner(tree, dir, name, entry, err) < 0 || put_xattrs(tree, fd, name, entry, err) < 0)
        return -1;
    if (fchmod(fd, file_mode(tree, entry)) < 0)
        return layer_fail(err, "set the mode of", name);
    return put_time(dir, name, time_of(entry), err);
}

static int add_dir(struct layer *tree, int dir, const struct image_name *name,
                   struct archive_entry *entry, struct err *err)
{
    const char *base = *name->base ? name->base : ".";
    struct later later = { .when = time_of(entry), .mode = archive_entry_perm(entry) & 03777 };

    if (*name->base && make_dir(dir, base, 0700, err) < 0)
        return -1;
    autoclose int fd = openat(dir, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return layer_fail(err, "open", base);
    if (put_owner(tree, dir, base, entry, err) < 0 || put_xattrs(tree, fd, base, entry, err) < 0)
        return -1;
    later.len = (uint32_t)((*name->dir != 0) + strlen(name->dir) + 1 + strlen(base));
    buf_append(&tree->dirs, &later, sizeof(later));
    buf_printf(&tree->dirs, "%s%s/%s", *name->dir ? "/" : "", name->dir, base);
    if (!buf_ok(&tree->dirs))
        return err_set(err, ERR_LIMIT, "too many directories");
    return 0;
}

static int add_symlink(struct layer *tree, int dir, const char *name, struct archive_entry *entry,
                       struct err *err)
{
    const char *target = archive_entry_symlink(entry);

    if (!target || !*target)
        return err_set(err, ERR_INVALID, "%s is a link to nothing", name_show(name));
    if (make_room(tree, dir, name, err) < 0)
        return -1;
    if (symlinkat(target, dir, name) < 0)
        return errno == ENAMETOOLONG ? err_set(err, ERR_INVALID, "%s is a link to %zu bytes",
                                               name_show(name), strlen(target))
                                     : layer_fail(err, "make", name);
    if (put_owner(tree, dir, name, entry, err) < 0 || put_xattrs(tree, -1, name, entry, err) < 0)
        return -1;
    return put_time(dir, name, time_of(entry), err);
}

static int add_hardlink(struct layer *tree, int dir, const char *name, const char *target_text,
                        struct err *err)
{
    struct image_name *target = xnew(struct image_name);
    autofree void *owned = target;
    struct stat st, here;

    if (name_parse(target, target_text, err) < 0)
        return err_wrap(err, "%s is a hard link", name_show(name));
    autoclose int from =
        layer_open(tree->root, *target->dir ? target->dir : ".", O_RDONLY | O_DIRECTORY);
    if (from < 0 || fstatat(from, target->base, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        S_ISDIR(st.st_mode) || is_whiteout(&st))
        return err_set(err, ERR_INVALID, "%s is a hard link to %s, which is no file of the layer",
                       name_show(name), name_show(target_text));
    if (fstatat(dir, name, &here, AT_SYMLINK_NOFOLLOW) == 0 && here.st_ino == st.st_ino &&
        here.st_dev == st.st_dev)
        return 0; /* to itself, or made before */
    if (make_room(tree, dir, name, err) < 0)
        return -1;
    return linkat(from, target->base, dir, name, 0) < 0 ? layer_fail(err, "link", name) : 0;
}

static int add_fifo(struct layer *tree, int dir, const char *name, struct archive_entry *entry,
                    struct err *err)
{
    if (make_room(tree, dir, name, err) < 0)
        return -1;
    if (mknodat(dir, name, S_IFIFO | file_mode(tree, entry), 0) < 0)
        return layer_fail(err, "make", name);
    if (put_owner(tree, dir, name, entry, err) < 0)
        return -1;
    return put_time(dir, name, time_of(entry), err);
}

/* ---- whiteouts ---- */

static int add_whiteout(struct layer *tree, int dir, const struct image_name *name, struct err *err)
{
    const char *gone = name->base + strlen(WHITEOUT);
    struct stat st;

    if (strcmp(gone, ".wh..opq") == 0) {
        if (!*name->dir)
            return err_set(err, ERR_UNPROCESSABLE,
                           "a layer that hides all others; flatten the image first");
        tree->counts.whiteouts++;
        return make_opaque(dir, ".", err);
    }
    if (strncmp(gone, WHITEOUT, strlen(WHITEOUT)) == 0)
        return 0; /* aufs' own books */
    if ((!*gone || strcmp(gone, ".") == 0 || strcmp(gone, "..") == 0) && guard(whiteout))
        return err_set(err, ERR_INVALID, "%s hides nothing that has a name", name_show(name->base));
    tree->counts.whiteouts++;
    if (is_opaque(dir) || mknodat(dir, gone, S_IFCHR, makedev(0, 0)) == 0)
        return 0;
    if (errno != EEXIST || fstatat(dir, gone, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return layer_fail(err, "hide", gone);
    /* The layer has it itself: then only what is below is hidden. */
    return S_ISDIR(st.st_mode) ? make_opaque(dir, gone, err) : 0;
}

/* ---- entries ---- */

/* Where every sandbox has something of its own mounted or written. */
static bool is_mount_point(const struct image_name *name)
{
    static const char *const points[] = { "dev", "proc", "sys", "tmp", "run", "etc" };

    for (size_t i = 0; i < ARRAY_LEN(points) && !*name->dir; i++)
        if (strcmp(name->base, points[i]) == 0)
            return true;
    return false;
}

/*
 * Where files and commands of a sandbox go unless they say otherwise. A link is left alone, because
 * what it leads to may be in another layer, and such images work; a file leads nowhere.
 */
static bool is_workspace(const struct image_name *name)
{
    return !*name->dir && strcmp(name->base, "workspace") == 0;
}

static int place(struct layer *tree, struct image_stream *stream, int dir,
                 const struct image_name *name, struct archive_entry *entry, struct err *err)
{
    const char *hardlink = archive_entry_hardlink(entry);
    mode_t type = archive_entry_filetype(entry);

    if (!hardlink && type == AE_IFDIR)
        return add_dir(tree, dir, name, entry, err);
    if (!*name->base)
        return err_set(err, ERR_INVALID, "the root is no directory");
    if (is_mount_point(name) && guard(mount_point))
        return err_set(err, ERR_UNPROCESSABLE, "/%s is %s; every sandbox needs a directory there",
                       name->base, type == AE_IFLNK ? "a symbolic link" : "no directory");
    if (is_workspace(name) && (hardlink || type != AE_IFLNK))
        return err_set(err, ERR_UNPROCESSABLE, "/%s is no directory; every sandbox needs one there",
                       name->base);
    if (hardlink)
        return add_hardlink(tree, dir, name->base, hardlink, err);
    switch (type) {
    case AE_IFREG:
        return add_file(tree, stream, dir, name->base, entry, err);
    case AE_IFLNK:
        return add_symlink(tree, dir, name->base, entry, err);
    case AE_IFIFO:
        return add_fifo(tree, dir, name->base, entry, err);
    case AE_IFCHR:
    case AE_IFBLK:
    case AE_IFSOCK:
        tree->counts.devices++;
        return 0;
    default:
        return err_set(err, ERR_INVALID, "%s is of a kind that nobody knows",
                       name_show(name->base));
    }
}

int layer_add(struct layer *tree, struct image_stream *stream, struct archive_entry *entry,
              struct err *err)
{
    const char *text = archive_entry_pathname(entry);
    struct image_name *name = &tree->name;

    if (!text)
        return err_set(err, ERR_INVALID, "an entry without a name");
    if (name_parse(name, text, err) < 0)
        return -1;
    int dir = open_parent(tree, name->dir, err);
    if (dir < 0)
        return err_wrap(err, "%s", name_show(text));
    tree->counts.entries++;
    if (strncmp(name->base, WHITEOUT, strlen(WHITEOUT)) == 0)
        return tree->flat ? 0 : add_whiteout(tree, dir, name, err);
    return place(tree, stream, dir, name, entry, err);
}

/* A directory that something else has replaced since is no longer our affair. */
static int finish_dir(const struct layer *tree, const struct later *later, const char *path,
                      struct err *err)
{
    struct timespec times[2] = { later->when, later->when };
    mode_t mode = tree->owners ? later->mode : later->mode | 0700; /* or we lock ourselves out */
    autoclose int fd = layer_open(tree->root, path, O_RDONLY | O_DIRECTORY);

    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                   ? 0
                   : layer_fail(err, "open", path);
    if (fchmod(fd, mode) < 0 || futimens(fd, times) < 0)
        return layer_fail(err, "set the mode of", path);
    return 0;
}

int layer_finish(struct layer *tree, struct err *err)
{
    struct str rest = buf_view(&tree->dirs);
    char path[IMAGE_PATH_MAX + 260];
    struct later later;

    while (rest.n) {
        memcpy(&later, rest.p, sizeof(later));
        rest = str_from(rest, sizeof(later));
        snprintf(path, sizeof(path), ".%.*s", (int)later.len, rest.p);
        rest = str_from(rest, later.len);
        if (finish_dir(tree, &later, path, err) < 0)
            return -1;
    }
    buf_clear(&tree->dirs);
    return 0;
}
