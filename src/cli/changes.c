/* Two sorted lists, walked side by side. */
#include "cli/changes.h"

#include <fcntl.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/show.h"
#include "diff/patch.h"

#define KIND(entry) ((entry)->head.mode & S_IFMT)

/* ---- manifests ---- */

static int by_path(const void *a, const void *b)
{
    struct str x = entry_path(a), y = entry_path(b);
    int order = memcmp(x.p, y.p, MIN(x.n, y.n));

    return order ? order : (x.n > y.n) - (x.n < y.n);
}

int manifest_read(struct manifest *out, struct buf *in, struct err *err)
{
    struct manifest made = { 0 };
    size_t cap = 0, len;

    made.bytes = buf_take(in, &len);
    for (size_t at = 0; at < len; made.count++) {
        struct tree_entry entry;
        ssize_t used = tree_record_take(made.bytes + at, len - at, &entry);

        if (used <= 0) {
            manifest_free(&made);
            return err_set(err, ERR_INTERNAL, "the list of files is broken at byte %zu", at);
        }
        if (made.count == cap) {
            cap = cap ? cap * 2 : 256;
            made.at = xrealloc(made.at, cap * sizeof(*made.at));
        }
        made.at[made.count] = entry;
        at += (size_t)used;
    }
    if (made.count)
        qsort(made.at, made.count, sizeof(*made.at), by_path);
    for (size_t i = 1; i < made.count; i++)
        if (by_path(&made.at[i - 1], &made.at[i]) == 0) {
            manifest_free(&made);
            return err_set(err, ERR_INTERNAL, "the list of files names one twice");
        }
    *out = made;
    return 0;
}

void manifest_free(struct manifest *manifest)
{
    free(manifest->bytes);
    free(manifest->at);
    *manifest = (struct manifest){ 0 };
}

const struct tree_entry *manifest_find(const struct manifest *manifest, struct str path)
{
    struct tree_entry key = { .head.name_len = (uint16_t)path.n, .name = path.p };

    if (!manifest->count || path.n > TREE_PATH_MAX)
        return NULL;
    return bsearch(&key, manifest->at, manifest->count, sizeof(*manifest->at), by_path);
}

/* ---- comparing ---- */

bool entry_same_data(const struct tree_entry *a, const struct tree_entry *b)
{
    if (KIND(a) != KIND(b))
        return false;
    if (S_ISLNK(a->head.mode))
        return str_eq(entry_link(a), entry_link(b));
    if (!S_ISREG(a->head.mode))
        return true;
    /* One that could not be read, both times, is taken as what its size and time say. */
    if (a->head.flags != b->head.flags || a->head.size != b->head.size)
        return false;
    if (!(a->head.flags & TREE_HASHED))
        return a->head.mtime == b->head.mtime && a->head.mtime_ns == b->head.mtime_ns;
    return memcmp(a->head.sha256, b->head.sha256, sizeof(a->head.sha256)) == 0;
}

bool entry_same(const struct tree_entry *a, const struct tree_entry *b)
{
    return entry_same_data(a, b) && (S_ISLNK(a->head.mode) || a->head.mode == b->head.mode);
}

char change_letter(const struct change *change)
{
    if (!change->before)
        return 'A';
    if (!change->after)
        return 'D';
    return KIND(change->before) == KIND(change->after) ? 'M' : 'T';
}

static bool is_dir(const struct tree_entry *entry)
{
    return entry && S_ISDIR(entry->head.mode);
}

/* Both sides of a comparison. */
struct sides {
    const struct manifest *before, *after;
};

static bool has(const struct sides *sides, struct str dir, const char *name)
{
    autofree char *path = dir.n ? xprintf("%.*s/%s", (int)dir.n, dir.p, name) : xstrdup(name);

    if (manifest_find(sides->after, str_of(path)))
        return true;
    if (!sides->before->partial || manifest_find(sides->before, str_of(path)))
        return false;
    autoclose int fd = tree_open(sides->before->here, path, O_PATH | O_NOFOLLOW, 0);
    return fd >= 0; /* it did not change */
}

/*
 * Whatever its name, a directory like this is a repository to a git that is started in it or below
 * it, and its config can make that git run programs.
 */
static bool in_repository(const struct sides *sides, struct str path)
{
    while (path.n) {
        while (path.n && path.p[path.n - 1] != '/')
            path.n--;
        path.n -= path.n > 0; /* the directory */
        if (has(sides, path, "HEAD") &&
            ((has(sides, path, "objects") && has(sides, path, "refs")) ||
             has(sides, path, "commondir")))
            return true;
    }
    return false;
}

static void add(struct changes *out, size_t *cap, const struct sides *sides, struct str path,
                const struct tree_entry *before, const struct tree_entry *after)
{
    if (out->count == *cap) {
        *cap = *cap ? *cap * 2 : 64;
        out->at = xrealloc(out->at, *cap * sizeof(*out->at));
    }
    struct change *change = &out->at[out->count++];
    *change = (struct change){ .path = path, .before = before, .after = after };
    change->git =
        patch_path_is_git(path, after && S_ISLNK(after->head.mode)) || in_repository(sides, path);
}

/*
 * A directory that came or went is not worth a line when there is one for something in it. Sorted
 * by bytes, "d/x" does not follow "d" at once ("d-e" is between), so each change hides its parents.
 */
static void hide_parents(struct changes *changes)
{
    for (size_t i = 0; i < changes->count; i++) {
        struct str path = changes->at[i].path;

        for (size_t n = path.n; n-- > 0;) {
            if (path.p[n] != '/')
                continue;
            struct change key = { .path = { path.p, n } };
            size_t low = 0, high = i;

            while (low < high) { /* the parent is somewhere before */
                size_t mid = (low + high) / 2;
                struct str at = changes->at[mid].path;
                int order = memcmp(at.p, key.path.p, MIN(at.n, n));

                if (order < 0 || (order == 0 && at.n < n))
                    low = mid + 1;
                else
                    high = mid;
            }
            struct change *parent = &changes->at[low];
            if (low == i || !str_eq(parent->path, key.path) || parent->hidden)
                break;
            parent->hidden = (is_dir(parent->before) || is_dir(parent->after)) &&
                             (!parent->before || !parent->after);
        }
    }
}

static void count(struct changes *changes)
{
    changes->added = changes->modified = changes->removed = 0;
    for (size_t i = 0; i < changes->count; i++) {
        if (changes->at[i].hidden)
            continue;
        char letter = change_letter(&changes->at[i]);
        size_t *number = letter == 'A'   ? &changes->added
                         : letter == 'D' ? &changes->removed
                                         : &changes->modified;
        ++*number;
    }
}

void changes_between(const struct manifest *before, const struct manifest *after,
                     struct changes *out)
{
    const struct sides sides = { before, after };
    size_t i = 0, j = 0, cap = 0;

    *out = (struct changes){ 0 };
    while (i < before->count || j < after->count) {
        int order = i == before->count  ? 1
                    : j == after->count ? -1
                                        : by_path(&before->at[i], &after->at[j]);
        const struct tree_entry *a = order <= 0 ? &before->at[i] : NULL;
        const struct tree_entry *b = order >= 0 ? &after->at[j] : NULL;

        if (order != 0 || !entry_same(a, b))
            add(out, &cap, &sides, entry_path(order <= 0 ? a : b), a, b);
        i += order <= 0;
        j += order >= 0;
    }
    hide_parents(out);
    count(out);
}

struct skip_path {
    bool (*skip)(const void *ctx, const char *path);
    const void *ctx;
};

static bool path_or_above(const void *ctx, const struct change *change)
{
    const struct skip_path *by = ctx;
    autofree char *name = xmemdup0(change->path.p, change->path.n);

    if (by->skip(by->ctx, name))
        return true;
    for (size_t n = change->path.n; n-- > 0;) {
        if (name[n] != '/')
            continue;
        name[n] = 0;
        if (by->skip(by->ctx, name))
            return true;
    }
    return false;
}

size_t changes_leave_out(struct changes *changes, bool (*skip)(const void *ctx, const char *path),
                         const void *ctx)
{
    const struct skip_path by = { skip, ctx };

    return changes_drop(changes, path_or_above, &by);
}

size_t changes_drop(struct changes *changes,
                    bool (*skip)(const void *ctx, const struct change *change), const void *ctx)
{
    size_t kept = 0, files = 0;

    for (size_t i = 0; i < changes->count; i++) {
        struct change *change = &changes->at[i];

        if (skip(ctx, change)) {
            files += !change->hidden;
            continue;
        }
        changes->at[kept] = *change;
        changes->at[kept++].hidden = false;
    }
    changes->count = kept;
    hide_parents(changes); /* a directory in which nothing is left speaks for itself again */
    count(changes);
    return files;
}

void changes_free(struct changes *changes)
{
    free(changes->at);
    *changes = (struct changes){ 0 };
}

/* ---- telling ---- */

void changes_summary(const struct changes *changes, size_t max, struct buf *out)
{
    size_t all = changes->added + changes->modified + changes->removed, shown = 0;

    for (size_t i = 0; i < changes->count && shown < max; i++) {
        const struct change *change = &changes->at[i];

        if (change->hidden)
            continue;
        shown++;
        buf_printf(out, "%c ", change_letter(change));
        show_text(out, change->path);
        if (is_dir(change->after ? change->after : change->before))
            buf_putc(out, '/');
        else if (change->before && change->after && entry_same_data(change->before, change->after))
            buf_printf(out, " (mode %03o, was %03o)", change->after->head.mode & 07777u,
                       change->before->head.mode & 07777u);
        buf_putc(out, '\n');
    }
    if (shown < all)
        buf_printf(out, "… and %zu more\n", all - shown);
    if (!all)
        buf_puts(out, "no files changed\n");
    else
        buf_printf(out, "%zu file%s changed: %zu added, %zu modified, %zu removed\n", all,
                   all == 1 ? "" : "s", changes->added, changes->modified, changes->removed);
}
