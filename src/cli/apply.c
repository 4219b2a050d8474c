/*
 * How it works: first every change is looked at and given a plan (left out with a warning, or to be
 * made), and the file here compared with what was copied. Only when nothing stands in the way are
 * files removed, children first, and then made, parents first: each is complete in the stage and is
 * moved into its place in one step. A file that somebody changes between the look and the step is
 * seen by its inode and times, and is left alone too.
 */
#include "cli/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/mem.h"

#define CHUNK 65536
#define NAMED_MAX 20 /* conflicts that are named one by one */

enum plan { PLAN_SKIP, PLAN_MAKE, PLAN_DONE /* it is here already */ };

struct applying {
    struct cli *cli;
    const struct apply_options *options;
    const struct manifest *before;
    const struct changes *changes;
    struct stage *stage;
    enum plan *plan;  /* owned; per change */
    struct stat *was; /* owned; what was here at the look; st_ino 0: nothing */
    size_t conflicts, made;
    mode_t mask;
    struct tree_fail fail; /* large: not on the stack */
};

static void applying_free(struct applying *a)
{
    free(a->plan);
    free(a->was);
}

/* ---- links ---- */

bool apply_link_ok(struct str path, struct str target)
{
    size_t depth = 0, up = 0;
    bool down = false;

    for (size_t i = 0; i < path.n; i++)
        depth += path.p[i] == '/';
    if (!target.n || target.p[0] == '/' || str_has_nul(target))
        return false;
    while (target.n) {
        struct str part = str_cut(&target, '/');

        /* After a name, ".." depends on where that name leads: another link may be there. */
        if (str_is(part, ".."))
            up += down ? depth + 1 : 1;
        else if (part.n && !str_is(part, "."))
            down = true;
    }
    return up <= depth;
}

/* ---- what is here ---- */

static bool same_bytes(int root, const char *path, const struct tree_entry *entry)
{
    autoclose int fd = tree_open(root, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    autofree char *chunk = xmalloc(CHUNK);
    uint8_t digest[32];
    ssize_t got;

    if (fd < 0)
        return false;
    struct sha256_stream *run = sha256_new();
    while ((got = read(fd, chunk, CHUNK)) > 0)
        sha256_put(run, chunk, (size_t)got);
    sha256_end(run, digest);
    return got == 0 && memcmp(digest, entry->head.sha256, sizeof(digest)) == 0;
}

/* Directories change with what is in them, which is looked at by itself. */
static bool changed_after(const struct stat *st, const struct timespec *since)
{
    return since && !S_ISDIR(st->st_mode) &&
           (st->st_ctim.tv_sec > since->tv_sec ||
            (st->st_ctim.tv_sec == since->tv_sec && st->st_ctim.tv_nsec > since->tv_nsec));
}

/*
 * 1: here is what `entry` says. 0: something else, or something that changed after `since` (NULL:
 * it does not matter). Nothing at all equals no entry.
 */
static int is_still(int root, struct str path, const struct tree_entry *entry,
                    const struct timespec *since, struct stat *st)
{
    autofree char *name = xmemdup0(path.p, path.n); /* paths of records hold no NUL */
    autoclose int fd = tree_open(root, name, O_PATH | O_NOFOLLOW, 0);

    *st = (struct stat){ 0 };
    if (fd < 0 && errno == ENOENT)
        return !entry;
    if (fd < 0 || fstat(fd, st) < 0)
        return 0; /* a link or a file where a directory was */
    if (!entry || (st->st_mode & S_IFMT) != (entry->head.mode & S_IFMT) || changed_after(st, since))
        return 0;
    if (S_ISLNK(st->st_mode)) {
        autofree char *link = xmalloc(TREE_PATH_MAX + 1);
        ssize_t n = readlinkat(fd, "", link, TREE_PATH_MAX + 1);

        return n >= 0 && str_eq((struct str){ link, (size_t)n }, entry_link(entry));
    }
    if (!S_ISREG(st->st_mode))
        return S_ISDIR(st->st_mode);
    return (uint64_t)st->st_size == entry->head.size && (entry->head.flags & TREE_HASHED) &&
           same_bytes(root, name, entry);
}

static const struct timespec *since_of(const struct manifest *before)
{
    return before->partial ? &before->since : NULL;
}

bool apply_is_still(int root, const struct manifest *before, struct str path,
                    const struct tree_entry *entry)
{
    struct stat st;

    return is_still(root, path, entry, since_of(before), &st) == 1;
}

/* A directory that is to become something else: is there anything in it that was not copied? */
static bool holds_more(struct applying *a, struct str path)
{
    auto_with(walk_end) struct walk walk = { 0 };
    autofree char *name = xmemdup0(path.p, path.n);
    autoclose int dir = tree_open(a->options->root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    int rc;

    if (dir < 0 || walk_begin(&walk, dir, &a->fail) < 0)
        return true;
    while ((rc = walk_next(&walk)) > 0) {
        autofree char *full = xprintf("%s/%s", name, walk.path);

        if (!manifest_find(a->before, str_of(full)))
            return true;
    }
    return rc < 0;
}

bool apply_in_new_directory(const struct manifest *before, const struct change *change)
{
    struct str path = change->path;

    while (!change->before && path.n-- > 0) {
        const struct tree_entry *above = path.p[path.n] == '/' ? manifest_find(before, path) : NULL;

        if (above)
            return !S_ISDIR(above->head.mode);
    }
    return false;
}

/* ---- the plan ---- */

static void warn(const struct applying *a, const struct change *change, const char *why)
{
    cli_note(a->cli, "not taken back: %.*s: %s", STR_FMT(change->path), why);
}

/* NULL: it may be made. */
static const char *why_not(const struct applying *a, const struct change *change)
{
    const struct tree_entry *after = change->after;

    if (change->git && !a->options->git)
        return "git's own file; --apply-git takes it";
    if (!after)
        return NULL;
    if (S_ISLNK(after->head.mode))
        return apply_link_ok(change->path, entry_link(after))
                   ? NULL
                   : "a link that could lead out of the directory";
    if (S_ISREG(after->head.mode))
        return after->head.flags & TREE_HASHED ? NULL : "it could not be read";
    return S_ISDIR(after->head.mode) ? NULL : "neither file, directory nor link";
}

static void conflict(struct applying *a, const struct change *change)
{
    if (++a->conflicts <= NAMED_MAX)
        cli_note(a->cli, "changed here too: %.*s", STR_FMT(change->path));
}

static void plan_one(struct applying *a, size_t i, size_t *git)
{
    const struct change *change = &a->changes->at[i];
    const char *why = why_not(a, change);
    struct stat now;

    if (why) {
        if (change->git && !a->options->git)
            ++*git; /* hundreds of objects are one line */
        else
            warn(a, change, why);
        return;
    }
    if (is_still(a->options->root, change->path, change->before, since_of(a->before), &a->was[i]) ||
        apply_in_new_directory(a->before, change)) {
        bool other = change->before && S_ISDIR(change->before->head.mode) && change->after &&
                     !S_ISDIR(change->after->head.mode);

        a->plan[i] = PLAN_MAKE;
        if (other && holds_more(a, change->path))
            conflict(a, change);
    } else if (is_still(a->options->root, change->path, change->after, NULL, &now)) {
        a->plan[i] = PLAN_DONE;
    } else {
        conflict(a, change);
    }
}

static int plan_all(struct applying *a, struct err *err)
{
    size_t git = 0;

    for (size_t i = 0; i < a->changes->count; i++)
        plan_one(a, i, &git);
    if (git)
        cli_note(a->cli, "not taken back: %zu of git's own files; --apply-git takes them", git);
    if (a->conflicts > NAMED_MAX)
        cli_note(a->cli, "and %zu more", a->conflicts - NAMED_MAX);
    if (a->conflicts)
        return err_set(err, ERR_CONFLICT,
                       "nothing was taken back: %zu file%s changed here meanwhile", a->conflicts,
                       a->conflicts == 1 ? "" : "s");
    return 0;
}

/* ---- doing it ---- */

/* The directory that holds `path`; its name in there is given. */
static int open_parent(int root, struct str path, char **name)
{
    autofree char *dir = xmemdup0(path.p, path.n);
    char *slash = strrchr(dir, '/');

    *name = xstrdup(slash ? slash + 1 : dir);
    if (!slash)
        return fcntl(root, F_DUPFD_CLOEXEC, 3);
    *slash = 0;
    return tree_open(root, dir, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
}

static bool untouched(int dir, const char *name, const struct stat *was)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT && !was->st_ino;
    return st.st_ino == was->st_ino && st.st_dev == was->st_dev &&
           (S_ISDIR(st.st_mode) || (st.st_ctim.tv_sec == was->st_ctim.tv_sec &&
                                    st.st_ctim.tv_nsec == was->st_ctim.tv_nsec));
}

/* Goes, and with it what is to become another kind of file. */
static int take_away(struct applying *a, const struct change *change, const struct stat *was,
                     struct err *err)
{
    autofree char *name = NULL;
    autoclose int dir = open_parent(a->options->root, change->path, &name);
    bool is_dir = S_ISDIR(change->before->head.mode);

    if (dir < 0)
        return err_sys(err, "open the directory of %.*s", STR_FMT(change->path));
    if (!untouched(dir, name, was))
        return err_set(err, ERR_CONFLICT, "%.*s changed just now", STR_FMT(change->path));
    if (unlinkat(dir, name, is_dir ? AT_REMOVEDIR : 0) == 0)
        return 0;
    if (is_dir && !change->after && (errno == ENOTEMPTY || errno == EEXIST))
        return 0; /* something in it was never copied: it stays */
    return err_sys(err, "remove %.*s", STR_FMT(change->path));
}

/* What the file may be once it is here: no set-id bits, not more than the caller gives anybody. */
static mode_t mode_for(const struct applying *a, const struct change *change,
                       const struct stat *was)
{
    mode_t wish = change->after->head.mode & 0777 & ~a->mask;

    if (was->st_ino && change->before && change->before->head.mode == change->after->head.mode)
        wish = was->st_mode & 0777; /* only its contents changed */
    return wish;
}

static int make_dir(struct applying *a, const struct change *change, const struct stat *was,
                    int dir, const char *name, struct err *err)
{
    mode_t mode = mode_for(a, change, was) | 0700;

    if (mkdirat(dir, name, mode) == 0)
        return 0;
    autoclose int fd =
        errno == EEXIST ? openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0 || fchmod(fd, mode) < 0)
        return err_sys(err, "make the directory %.*s", STR_FMT(change->path));
    return 0;
}

/* From the stage to its place, or, of a file whose mode alone changed, just that. */
static int make_file(struct applying *a, size_t i, int dir, const char *name, struct err *err)
{
    const struct change *change = &a->changes->at[i];
    const struct stat *was = &a->was[i];
    bool fresh = change_has_data(change), is_link = S_ISLNK(change->after->head.mode);
    autofree char *target = xmemdup0(entry_link(change->after).p, entry_link(change->after).n);
    char staged[32];

    snprintf(staged, sizeof(staged), "%zu", i);
    autoclose int fd = is_link ? -1
                               : openat(fresh ? a->stage->dir : dir, fresh ? staged : name,
                                        O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (is_link ? symlinkat(target, a->stage->dir, staged) < 0
                : fd < 0 || fchmod(fd, mode_for(a, change, was)) < 0)
        return err_sys(err, "make %.*s", STR_FMT(change->path));
    if (!is_link && !fresh)
        return 0;
    /* Root works in somebody's directory: their file stays theirs. */
    if (was->st_ino && geteuid() == 0 &&
        fchownat(a->stage->dir, staged, was->st_uid, was->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, "give %.*s to its owner", STR_FMT(change->path));
    bool gone = !was->st_ino || (was->st_mode & S_IFMT) == S_IFDIR;
    if (renameat2(a->stage->dir, staged, dir, name, gone ? RENAME_NOREPLACE : 0) < 0)
        return err_sys(err, "put %.*s in its place", STR_FMT(change->path));
    return 0;
}

static int make(struct applying *a, size_t i, struct err *err)
{
    const struct change *change = &a->changes->at[i];
    autofree char *name = NULL;
    autoclose int dir = open_parent(a->options->root, change->path, &name);
    bool replaced = change->before && change_letter(change) == 'T' &&
                    (S_ISDIR(change->before->head.mode) || S_ISDIR(change->after->head.mode));

    if (dir < 0)
        return err_sys(err, "open the directory of %.*s", STR_FMT(change->path));
    if (replaced)
        a->was[i] = (struct stat){ 0 }; /* it has been taken away */
    if (!S_ISDIR(change->after->head.mode) && !untouched(dir, name, &a->was[i]))
        return err_set(err, ERR_CONFLICT, "%.*s changed just now", STR_FMT(change->path));
    return S_ISDIR(change->after->head.mode) ? make_dir(a, change, &a->was[i], dir, name, err)
                                             : make_file(a, i, dir, name, err);
}

static bool goes_first(const struct change *change)
{
    if (!change->before)
        return false;
    return !change->after || (change_letter(change) == 'T' && (S_ISDIR(change->before->head.mode) ||
                                                               S_ISDIR(change->after->head.mode)));
}

static int make_all(struct applying *a, struct err *err)
{
    for (size_t i = a->changes->count; i-- > 0;) {
        const struct change *change = &a->changes->at[i];

        if (a->plan[i] != PLAN_MAKE || !goes_first(change))
            continue;
        if (take_away(a, change, &a->was[i], err) < 0)
            return -1;
        a->made += !change->after;
    }
    for (size_t i = 0; i < a->changes->count; i++) {
        if (a->plan[i] != PLAN_MAKE || !a->changes->at[i].after)
            continue;
        if (make(a, i, err) < 0)
            return -1;
        a->made++;
    }
    return 0;
}

int apply_changes(struct cli *cli, const struct apply_options *options,
                  const struct manifest *before, const struct changes *changes, struct stage *stage,
                  struct err *err)
{
    auto_with(applying_free) struct applying a = {
        .cli = cli, .options = options, .before = before, .changes = changes, .stage = stage
    };

    a.plan = xcalloc(changes->count + 1, sizeof(*a.plan));
    a.was = xcalloc(changes->count + 1, sizeof(*a.was));
    a.mask = umask(077);
    umask(a.mask);
    if (plan_all(&a, err) < 0)
        return -1;
    if (options->planned)
        options->planned(options->ctx);
    if (make_all(&a, err) < 0)
        return a.made ? err_wrap(err, "%zu changes were taken back, then", a.made) : -1;
    return 0;
}
