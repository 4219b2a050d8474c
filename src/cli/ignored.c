/*
 * How it works: the rules are collected for the directories that hold a change and those above
 * them, from the top of the work tree down; what is below an ignored directory is not looked at, so
 * the thousands of a package directory cost nothing. Where no work tree is, the directory itself is
 * the top. The list of tracked files is read from .git/index; if there is one in a form that is
 * not known (diff/ignore.h), a file that was here before counts as tracked.
 */
#include "cli/ignored.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "base/mem.h"
#include "cli/apply.h"
#include "cli/transfer.h"
#include "diff/ignore.h"

#define RULES ".gitignore"

struct collecting {
    struct cli *cli;
    const struct ignored_source *source;
    const struct changes *changes;
    struct ignore ignore;
    char *prefix; /* owned; of the directory below the top of the work tree, or "" */
    size_t fetched;
    bool odd_index; /* there is a list of tracked files, and it cannot be read */
};

/* ---- reading ---- */

static bool read_some(int fd, size_t max, struct buf *out)
{
    struct stat st;
    ssize_t got = 1;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > max)
        return false;
    out->max = max + 65536;
    while (got > 0 && out->len <= max) {
        char *room = buf_reserve(out, 65536);

        got = room ? pread(fd, room, 65536, (off_t)out->len) : -1;
        out->len += got > 0 ? (size_t)got : 0;
    }
    return got == 0;
}

static bool read_at(int dir, const char *path, size_t max, struct buf *out)
{
    autoclose int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    return read_some(fd, max, out);
}

static void add_file(struct collecting *c, int dir, const char *path, struct str of)
{
    autobuf struct buf text = { 0 };

    if (dir != -1 && read_at(dir, path, IGNORE_FILE_MAX, &text))
        ignore_add(&c->ignore, of, buf_view(&text));
}

/* ---- what stands above the directory, and git's own ---- */

/* The text of a file of one line, such as "gitdir: PATH"; NULL. */
static char *line_of(int dir, const char *path, const char *begin)
{
    autobuf struct buf text = { 0 };

    if (!read_at(dir, path, PATH_MAX, &text))
        return NULL;
    struct str rest = buf_view(&text), line = str_cut(&rest, '\n');
    if (!str_starts(line, str_of(begin)))
        return NULL;
    line = str_from(line, strlen(begin));
    return xmemdup0(line.p, line.n);
}

static int open_dir(int at, const char *path)
{
    return openat(at, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The directory of git's own files, and the one that several work trees share. */
static int open_git(int top, int *common)
{
    autofree char *elsewhere = line_of(top, ".git", "gitdir: ");
    int git = open_dir(top, elsewhere ? elsewhere : ".git");
    autofree char *shared = git < 0 ? NULL : line_of(git, "commondir", "");

    *common = git < 0 ? -1 : open_dir(git, shared ? shared : ".");
    return git;
}

static void add_users(struct collecting *c)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    autofree char *path = config && config[0] == '/' ? xprintf("%s/git/ignore", config)
                          : home && home[0] == '/'   ? xprintf("%s/.config/git/ignore", home)
                                                     : NULL;

    if (path)
        add_file(c, AT_FDCWD, path, STR_NONE);
}

static void add_git(struct collecting *c, int top)
{
    autoclose int common = -1, git = open_git(top, &common);
    autobuf struct buf index = { 0 };

    add_users(c);
    add_file(c, common, "info/exclude", STR_NONE);
    if (git >= 0 && faccessat(git, "index", F_OK, 0) == 0)
        c->odd_index = !read_at(git, "index", IGNORE_INDEX_MAX, &index) ||
                       !ignore_read_index(&c->ignore, buf_view(&index));
}

/* From the top of the work tree down to the directory, which is not among them. */
static void add_above(struct collecting *c)
{
    autobuf struct buf up = { 0 };
    const char *prefix = c->prefix;

    for (const char *p = prefix; *p; p++)
        if (*p == '/')
            buf_puts(&up, "../");
    buf_puts(&up, "./");
    autoclose int top = open_dir(c->source->root, buf_cstr(&up));
    add_git(c, top);
    for (const char *slash = prefix; (slash = strchr(slash, '/')); slash++) {
        size_t n = (size_t)(slash - prefix), begin = n;

        while (begin && prefix[begin - 1] != '/')
            begin--; /* of the directory above this one */
        autofree char *path = xprintf("%.*s" RULES, (int)begin, prefix);
        add_file(c, top, path, (struct str){ prefix, begin ? begin - 1 : 0 });
    }
}

/* ---- the directories that hold changes ---- */

static const struct change *change_of(const struct changes *changes, struct str path)
{
    size_t low = 0, high = changes->count;

    while (low < high) {
        size_t mid = (low + high) / 2;
        struct str at = changes->at[mid].path;
        size_t both = MIN(at.n, path.n);
        int order = both ? memcmp(at.p, path.p, both) : 0;

        if (order == 0 && at.n == path.n)
            return &changes->at[mid];
        if (order < 0 || (order == 0 && at.n < path.n))
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static void fetch_rules(struct collecting *c, const struct change *change, struct str dir)
{
    autoclose int fd = memfd_create("rules", MFD_CLOEXEC);
    autofree char *path = xprintf("%s/%.*s", c->source->path, STR_FMT(change->path));
    autobuf struct buf text = { 0 };
    struct err ignored = { 0 };

    if (!S_ISREG(change->after->head.mode) || change->after->head.size > IGNORE_FILE_MAX ||
        fd < 0 || c->fetched++ >= IGNORE_FETCHED_MAX)
        return;
    if (transfer_file(c->cli, c->source->id, path, change->after->head.size, fd, &ignored) == 0 &&
        read_some(fd, IGNORE_FILE_MAX, &text))
        ignore_add(&c->ignore, dir, buf_view(&text));
}

/* As they are after the changes: there, if they are among them. */
static void add_dir(struct collecting *c, struct str dir)
{
    autofree char *path = xprintf("%.*s%s" RULES, STR_FMT(dir), dir.n ? "/" : "");
    autofree char *full = xprintf("%s%.*s", c->prefix, STR_FMT(dir));
    size_t len = strlen(full) - (!dir.n && full[0]); /* without the slash of a prefix */
    struct str of = { full, len };
    const struct change *change = change_of(c->changes, str_of(path));

    if (of.n && ignore_match(&c->ignore, of, true))
        return;
    if (change && !change->after)
        return;
    if (change && c->source->id) {
        fetch_rules(c, change, of);
        return;
    }
    autobuf struct buf text = { 0 };
    autoclose int fd = tree_open(c->source->root, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (read_some(fd, IGNORE_FILE_MAX, &text))
        ignore_add(&c->ignore, of, buf_view(&text));
}

static int by_bytes(const void *a, const void *b)
{
    const struct str *x = a, *y = b;
    int order = memcmp(x->p, y->p, MIN(x->n, y->n));

    return order ? order : (x->n > y->n) - (x->n < y->n);
}

static size_t same_begin(struct str a, struct str b)
{
    size_t n = 0;

    while (n < a.n && n < b.n && a.p[n] == b.p[n])
        n++;
    return n;
}

static void add_dirs(struct collecting *c)
{
    size_t count = 0, cap = 64;
    struct str *dirs = xcalloc(cap, sizeof(*dirs)), before = STR_NONE;

    for (size_t i = 0; i < c->changes->count; i++) {
        struct str path = c->changes->at[i].path;

        for (size_t n = same_begin(before, path); n < path.n; n++) {
            if (path.p[n] != '/')
                continue;
            if (count == cap)
                dirs = xrealloc(dirs, (cap *= 2) * sizeof(*dirs));
            dirs[count++] = (struct str){ path.p, n };
        }
        before = path;
    }
    if (count)
        qsort(dirs, count, sizeof(*dirs), by_bytes);
    add_dir(c, STR_NONE);
    for (size_t i = 0; i < count; i++)
        if (!i || by_bytes(&dirs[i - 1], &dirs[i]) != 0)
            add_dir(c, dirs[i]); /* a directory comes before those in it */
    free(dirs);
}

/* ---- asking ---- */

static bool is_dir(const struct tree_entry *entry)
{
    return entry && S_ISDIR(entry->head.mode);
}

static bool is_ignored(const void *ctx, const struct change *change)
{
    const struct collecting *c = ctx;
    autofree char *path = xprintf("%s%.*s", c->prefix, STR_FMT(change->path));
    bool dir = is_dir(change->after) || (!change->after && is_dir(change->before));

    if (ignore_is_tracked(&c->ignore, str_of(path)) || (c->odd_index && change->before && !dir))
        return false;
    return ignore_match(&c->ignore, str_of(path), dir);
}

size_t ignored_leave_out(struct cli *cli, const struct ignored_source *source,
                         struct changes *changes)
{
    struct collecting c = {
        .cli = cli, .source = source, .changes = changes, .prefix = apply_prefix(source->root)
    };

    add_above(&c);
    add_dirs(&c);
    size_t left = c.ignore.count ? changes_drop(changes, is_ignored, &c) : 0;
    ignore_free(&c.ignore);
    free(c.prefix);
    return left;
}
