/*
 * Unpacking an archive that somebody hostile may have made, where somebody hostile may be at work.
 *
 * Every name is cleaned (no "..", not absolute) and its directory is opened beneath the destination
 * through no symbolic link; missing directories are made on the way. A file is never written into:
 * what stands in its place is unlinked (a directory is not) and a new one is made exclusively, so
 * neither a link that the archive itself brought nor one that somebody swaps in is followed.
 * Hard links lead to names beneath the destination only. Owners are not restored, and of the mode
 * only the nine bits: no setuid. Directories get their mode and time at the end, because a
 * directory that may not be written could not be filled. Devices, FIFOs and sparse files are
 * refused. The archive must have its end mark: what stops early is an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/guard.h"
#include "tree/tar.h"

#define CHUNK 65536
#define LOOK_BACK 256

/* A directory that was made here, for the end. */
struct made {
    uint32_t mode;
    int64_t mtime;
    size_t path; /* in the texts */
};

struct unpacker {
    int root;
    const struct tree_source *source;
    const struct untar_options *options;
    struct untar_sum *sum;
    struct tree_fail *fail;
    char *chunk;
    size_t have, at; /* bytes in the chunk, and those used */
    struct tar_head head;
    struct tar_extra extra;
    char *pax; /* TREE_PAX_MAX */
    int parent;
    char parent_path[TREE_PATH_MAX + 1];
    struct made *made;
    size_t made_count, made_cap;
    char *texts;
    size_t texts_len, texts_cap;
};

static int fail(struct unpacker *un, enum tree_why why, int error)
{
    (void)tree_fail(un->fail, why, error, un->head.path);
    return -1; /* said here too, for analyzers that do not look across files */
}

/* ---- bytes ---- */

/* Up to `max` bytes of the archive; 0 at its end. */
static ssize_t more(struct unpacker *un, const char **data, size_t max)
{
    if (un->at == un->have) {
        ssize_t got;

        do
            got = un->source->get(un->source->ctx, un->chunk, CHUNK);
        while (got < 0 && errno == EINTR);
        if (got <= 0)
            return got < 0 ? fail(un, TREE_SYSTEM, errno) : 0;
        un->have = (size_t)got;
        un->at = 0;
    }
    size_t len = MIN(max, un->have - un->at);
    *data = un->chunk + un->at;
    un->at += len;
    return (ssize_t)len;
}

/* Exactly `len` bytes: 1; 0 at the end before the first of them; -1. */
static int whole(struct unpacker *un, char *out, size_t len)
{
    size_t done = 0;

    while (done < len) {
        const char *data;
        ssize_t got = more(un, &data, len - done);

        if (got < 0)
            return -1;
        if (got == 0)
            return done ? fail(un, TREE_ARCHIVE, EBADMSG) : 0;
        memcpy(out + done, data, (size_t)got);
        done += (size_t)got;
    }
    return 1;
}

/* The contents and their padding, to a file or (-1) nowhere. */
static int contents(struct unpacker *un, uint64_t size, int fd)
{
    uint64_t left = size, pad = (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;

    while (left + pad) {
        const char *data;
        ssize_t got = more(un, &data, (size_t)MIN(left ? left : pad, (uint64_t)CHUNK));

        if (got <= 0)
            return got < 0 ? -1 : fail(un, TREE_ARCHIVE, EBADMSG);
        if (!left) {
            pad -= (uint64_t)got;
            continue;
        }
        for (ssize_t put = 0, n; fd >= 0 && put < got; put += n) {
            n = write(fd, data + put, (size_t)(got - put));
            if (n < 0)
                return fail(un, TREE_SYSTEM, errno);
        }
        left -= (uint64_t)got;
        un->sum->bytes += (uint64_t)got;
    }
    return 0;
}

/* ---- directories ---- */

static int open_beneath(const struct unpacker *un, const char *path, int flags)
{
    if (!guard(untar_beneath))
        return openat(un->root, path, flags | O_CLOEXEC);
    return tree_open(un->root, path, flags, 0);
}

static int remember(struct unpacker *un, const char *path)
{
    size_t size = strlen(path) + 1;

    if (un->made_count == un->made_cap) {
        size_t cap = un->made_cap ? un->made_cap * 2 : 64;
        struct made *grown = realloc(un->made, cap * sizeof(*grown));

        if (!grown)
            return fail(un, TREE_SYSTEM, ENOMEM);
        un->made = grown;
        un->made_cap = cap;
    }
    if (un->texts_len + size > un->texts_cap) {
        size_t cap = (un->texts_len + size) * 2;
        char *grown = cap > TREE_PENDING_MAX ? NULL : realloc(un->texts, cap);

        if (!grown)
            return fail(un, TREE_LIMIT, E2BIG);
        un->texts = grown;
        un->texts_cap = cap;
    }
    memcpy(un->texts + un->texts_len, path, size);
    un->made[un->made_count++] =
        (struct made){ .mode = 0755, .mtime = INT64_MIN, .path = un->texts_len };
    un->texts_len += size;
    return 0;
}

/* Makes the directory if nothing is there; what is there and is none is replaced. */
static int make_dir(struct unpacker *un, const char *name)
{
    for (int i = 0; i < 2; i++) {
        struct stat st;

        if (mkdirat(un->parent, name, 0700) == 0)
            return remember(un, un->head.path);
        if (errno != EEXIST || fstatat(un->parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return fail(un, TREE_SYSTEM, errno);
        if (S_ISDIR(st.st_mode))
            return 0;
        if (unlinkat(un->parent, name, 0) < 0)
            return fail(un, TREE_SYSTEM, errno);
    }
    return fail(un, TREE_SYSTEM, EEXIST);
}

/* The directories on the way to an entry; a link in their place is neither replaced nor followed.
 */
static int make_parents(struct unpacker *un, char *path)
{
    char *from = path;

    for (;;) {
        autoclose int above = -1;
        char *slash = strchrnul(from, '/'), kept = *slash;
        int rc = 0;

        if (from > path) {
            from[-1] = 0;
            above = open_beneath(un, path, O_PATH | O_DIRECTORY);
            from[-1] = '/';
        } else {
            above = open_beneath(un, ".", O_PATH | O_DIRECTORY);
        }
        if (above < 0)
            return fail(un, errno == ELOOP || errno == EXDEV ? TREE_OUTSIDE : TREE_SYSTEM, errno);
        *slash = 0;
        if (mkdirat(above, from, 0700) == 0)
            rc = remember(un, path);
        else if (errno != EEXIST)
            rc = fail(un, TREE_SYSTEM, errno);
        *slash = kept;
        if (rc < 0 || !kept)
            return rc;
        from = slash + 1;
    }
}

/* The directory of un->head.path, as un->parent; *name is the last part. */
static int enter_parent(struct unpacker *un, const char **name)
{
    char *slash = strrchr(un->head.path, '/');
    size_t len = slash ? (size_t)(slash - un->head.path) : 0;
    char path[TREE_PATH_MAX + 1];

    *name = slash ? slash + 1 : un->head.path;
    memcpy(path, un->head.path, len);
    path[len] = 0;
    if (un->parent >= 0 && strcmp(path, un->parent_path) == 0)
        return 0;
    if (un->parent >= 0)
        close(un->parent);
    un->parent = open_beneath(un, len ? path : ".", O_PATH | O_DIRECTORY);
    if (un->parent < 0 && errno == ENOENT) {
        if (make_parents(un, path) < 0)
            return -1;
        un->parent = open_beneath(un, path, O_PATH | O_DIRECTORY);
    }
    if (un->parent < 0)
        return fail(un, errno == ELOOP || errno == EXDEV ? TREE_OUTSIDE : TREE_SYSTEM, errno);
    memcpy(un->parent_path, path, len + 1);
    return 0;
}

/* ---- entries ---- */

static int clear_place(struct unpacker *un, const char *name)
{
    if (!guard(untar_exclusive) || unlinkat(un->parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    return fail(un, errno == EISDIR ? TREE_KIND : TREE_SYSTEM, errno);
}

static uint32_t nine_bits(uint32_t mode)
{
    return guard(untar_mode) ? mode & 0777 : mode & 07777;
}

static void set_times(int fd, int64_t mtime)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = mtime } };

    futimens(fd, times);
}

static int take_file(struct unpacker *un, const char *name)
{
    int only = guard(untar_exclusive) ? O_EXCL | O_NOFOLLOW : 0;

    if (clear_place(un, name) < 0)
        return -1;
    autoclose int fd =
        openat(un->parent, name, O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC | only, 0600);
    if (fd < 0)
        return fail(un, TREE_SYSTEM, errno);
    if (contents(un, un->head.size, fd) < 0)
        return -1;
    if (fchmod(fd, nine_bits(un->head.mode)) < 0)
        return fail(un, TREE_SYSTEM, errno);
    set_times(fd, un->head.mtime);
    return 0;
}

static int take_dir(struct unpacker *un, const char *name)
{
    if (make_dir(un, name) < 0)
        return -1;
    /* It may have been made for an earlier entry, not long ago. */
    for (size_t i = un->made_count, n = 0; i-- > 0 && n < LOOK_BACK; n++) {
        struct made *made = &un->made[i];

        if (strcmp(un->texts + made->path, un->head.path) == 0) {
            made->mode = nine_bits(un->head.mode);
            made->mtime = un->head.mtime;
            break;
        }
    }
    return 0;
}

static int take_symlink(struct unpacker *un, const char *name)
{
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = un->head.mtime } };

    if (!un->head.link[0])
        return fail(un, TREE_ARCHIVE, EBADMSG);
    if (clear_place(un, name) < 0)
        return -1;
    if (symlinkat(un->head.link, un->parent, name) < 0)
        return fail(un, TREE_SYSTEM, errno);
    utimensat(un->parent, name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/* The other name must be a regular file beneath the destination, reached through no link. */
static int take_hard_link(struct unpacker *un, const char *name)
{
    enum tree_why why = TREE_OUTSIDE;
    struct stat st;

    if (guard(untar_link) && tar_path_clean(un->head.link, &why) <= 0)
        return fail(un, why, EXDEV);
    char *slash = strrchr(un->head.link, '/');
    const char *last = slash ? slash + 1 : un->head.link;
    if (slash)
        *slash = 0;
    autoclose int dir = guard(untar_link)
                            ? open_beneath(un, slash ? un->head.link : ".", O_PATH | O_DIRECTORY)
                            : openat(un->root, slash ? un->head.link : ".", O_PATH | O_CLOEXEC);
    if (dir < 0)
        return fail(un, errno == ELOOP || errno == EXDEV ? TREE_OUTSIDE : TREE_SYSTEM, errno);
    if (fstatat(dir, last, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(un, TREE_SYSTEM, errno);
    if (!S_ISREG(st.st_mode))
        return fail(un, TREE_KIND, EINVAL);
    if (clear_place(un, name) < 0)
        return -1;
    if (linkat(dir, last, un->parent, name, 0) < 0)
        return fail(un, TREE_SYSTEM, errno);
    return 0;
}

static int take_entry(struct unpacker *un)
{
    enum tree_why why = TREE_OUTSIDE;
    const char *name;
    int rc = guard(untar_clean) ? tar_path_clean(un->head.path, &why) : 1;

    if (rc < 0)
        return fail(un, why, why == TREE_LIMIT ? ENAMETOOLONG : EXDEV);
    if (!strchr("0125", un->head.type)) /* devices, FIFOs, sparse files, volumes of GNU's */
        return fail(un, TREE_KIND, ENOTSUP);
    if (un->head.type != '0' && un->head.size)
        return fail(un, TREE_ARCHIVE, EBADMSG);
    if (rc == 0) /* the destination itself */
        return un->head.type == '5' ? 0 : fail(un, TREE_KIND, EISDIR);
    if (enter_parent(un, &name) < 0)
        return -1;
    switch (un->head.type) {
    case '0':
        return take_file(un, name);
    case '1':
        return take_hard_link(un, name);
    case '2':
        return take_symlink(un, name);
    default:
        return take_dir(un, name);
    }
}

static int take_extended(struct unpacker *un)
{
    char type = un->head.type;
    struct tar_extra ignored = { 0 };

    if (un->head.size > TREE_PAX_MAX)
        return fail(un, TREE_LIMIT, E2BIG);
    size_t size = (size_t)un->head.size, padded = (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    int rc = size ? whole(un, un->pax, padded) : 1;
    if (rc <= 0)
        return rc < 0 ? -1 : fail(un, TREE_ARCHIVE, EBADMSG);
    bool ok = type == 'x'   ? tar_pax_parse(un->pax, size, &un->extra)
              : type == 'g' ? tar_pax_parse(un->pax, size, &ignored) && !ignored.has_path &&
                                  !ignored.has_link && !ignored.has_size
                            : tar_long_parse(un->pax, size, type, &un->extra);
    return ok ? 0 : fail(un, TREE_ARCHIVE, EBADMSG);
}

/* ---- all of it ---- */

static int finish_dirs(struct unpacker *un)
{
    for (size_t i = un->made_count; i-- > 0;) {
        const struct made *made = &un->made[i];
        autoclose int fd = open_beneath(un, un->texts + made->path, O_RDONLY | O_DIRECTORY);

        if (fd < 0)
            continue; /* somebody has taken it away */
        if (fchmod(fd, made->mode) < 0)
            return tree_fail(un->fail, TREE_SYSTEM, errno, un->texts + made->path);
        if (made->mtime != INT64_MIN)
            set_times(fd, made->mtime);
    }
    return 0;
}

static int unpack(struct unpacker *un)
{
    uint64_t max =
        un->options && un->options->entries_max ? un->options->entries_max : TREE_ENTRIES_MAX;
    char block[TAR_BLOCK];
    int rc;

    for (;;) {
        rc = whole(un, block, sizeof(block));
        if (rc <= 0)
            return rc < 0 ? -1 : fail(un, TREE_ARCHIVE, EBADMSG); /* no end mark */
        rc = tar_head_parse(block, &un->head);
        if (rc < 0)
            return fail(un, TREE_ARCHIVE, EBADMSG);
        if (rc == 0)
            return 0;
        if (strchr("xgLK", un->head.type)) {
            if (take_extended(un) < 0)
                return -1;
            continue;
        }
        tar_extra_apply(&un->extra, &un->head);
        un->extra = (struct tar_extra){ 0 };
        if (++un->sum->entries > max)
            return fail(un, TREE_LIMIT, E2BIG);
        if (take_entry(un) < 0)
            return -1;
        if (un->options && un->options->progress)
            un->options->progress(un->options->ctx, un->sum->entries, un->sum->bytes);
    }
}

/* What follows the end mark is nobody's, but its writer must get rid of it. */
static int drain(struct unpacker *un)
{
    const char *data;
    ssize_t got;

    while ((got = more(un, &data, CHUNK)) > 0)
        ;
    return (int)got;
}

int tree_untar(int root, const struct tree_source *source, const struct untar_options *options,
               struct untar_sum *sum, struct tree_fail *fail_)
{
    autofree struct unpacker *un = calloc(1, sizeof(*un));
    autofree char *chunk = malloc(CHUNK), *pax = malloc(TREE_PAX_MAX + TAR_BLOCK);

    *sum = (struct untar_sum){ 0 };
    if (!un || !chunk || !pax)
        return tree_fail(fail_, TREE_SYSTEM, ENOMEM, NULL);
    un->root = root;
    un->source = source;
    un->options = options;
    un->sum = sum;
    un->fail = fail_;
    un->chunk = chunk;
    un->pax = pax;
    un->parent = -1;
    int rc = unpack(un);
    if (rc == 0)
        rc = drain(un);
    if (finish_dirs(un) < 0) /* also of what a failure left behind */
        rc = -1;
    if (un->parent >= 0)
        close(un->parent);
    free(un->made);
    free(un->texts);
    return rc;
}
