/*
 * The changes as one patch. Both sides of a file are held in memory while its part is written; a
 * file that is too large for that is left out and named, and so is one whose old side is gone
 * because it changed here too. What git keeps in no tree (empty directories, other permissions than
 * the owner's x, git's own files) is in no patch either.
 *
 * In a directory of a git repository `git apply` takes paths from the top of its work tree, and
 * leaves out all others without a word: so they begin there, as those of `git diff` do.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "base/mem.h"
#include "cli/apply.h"
#include "diff/patch.h"

struct writing {
    struct cli *cli;
    int root, out;
    const char *prefix; /* before every path: "", "sub/dir/" */
    const struct manifest *was;
    struct stage *stage;
    size_t changed_here, git;
};

static unsigned mode_of(const struct tree_entry *entry)
{
    if (!entry || S_ISDIR(entry->head.mode))
        return 0;
    if (S_ISLNK(entry->head.mode))
        return PATCH_LINK;
    return entry->head.mode & 0100 ? PATCH_PROGRAM : PATCH_FILE;
}

static bool taken(const struct tree_entry *entry)
{
    return !entry || S_ISDIR(entry->head.mode) || S_ISLNK(entry->head.mode) ||
           S_ISREG(entry->head.mode);
}

static bool too_large(const struct tree_entry *entry)
{
    return entry && S_ISREG(entry->head.mode) && entry->head.size > (uint64_t)DIFF_FILE_MAX;
}

static int read_all(int dir, const char *path, uint64_t size, struct buf *out, struct err *err)
{
    autoclose int fd = tree_open(dir, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    ssize_t got = 1;

    if (fd < 0)
        return err_sys(err, "open %s", path);
    out->max = (size_t)DIFF_FILE_MAX + 65536;
    while (got > 0 && out->len <= size) {
        char *room = buf_reserve(out, 65536);

        got = room ? read(fd, room, 65536) : 0;
        out->len += got > 0 ? (size_t)got : 0;
    }
    if (got < 0)
        return err_sys(err, "read %s", path);
    return out->len == size ? 0 : err_set(err, ERR_CONFLICT, "%s changed just now", path);
}

static int load_before(struct writing *w, const struct change *change, struct buf *out,
                       struct err *err)
{
    const struct tree_entry *entry = change->before;
    autofree char *path = xmemdup0(change->path.p, change->path.n);

    if (!entry || S_ISDIR(entry->head.mode))
        return 0;
    if (S_ISLNK(entry->head.mode)) {
        buf_str(out, entry_link(entry));
        return 0;
    }
    return read_all(w->root, path, entry->head.size, out, err);
}

/* What did not change has its old contents. */
static int load_after(struct writing *w, const struct change *change, size_t at,
                      const struct buf *before, struct buf *out, struct err *err)
{
    const struct tree_entry *entry = change->after;
    autofree char *staged = xprintf("%zu", at);

    if (!entry || S_ISDIR(entry->head.mode))
        return 0;
    if (S_ISLNK(entry->head.mode))
        buf_str(out, entry_link(entry));
    else if (!change_has_data(change))
        buf_str(out, buf_view(before));
    else
        return read_all(w->stage->dir, staged, entry->head.size, out, err);
    return 0;
}

static int write_all(int fd, struct str data, struct err *err)
{
    while (data.n) {
        ssize_t done = write(fd, data.p, data.n);

        if (done < 0)
            return err_sys(err, "write the patch");
        data = str_from(data, (size_t)done);
    }
    return 0;
}

static int put_one(struct writing *w, const struct change *change, size_t at, struct err *err)
{
    autobuf struct buf before = { 0 }, after = { 0 };
    autobuf struct buf text = { .max = 8 * (size_t)DIFF_FILE_MAX };
    autofree char *path = xprintf("%s%.*s", w->prefix, STR_FMT(change->path));
    struct patch_file file = { .path = str_of(path) };

    if (load_before(w, change, &before, err) < 0 ||
        load_after(w, change, at, &before, &after, err) < 0)
        return -1;
    file.before = (struct patch_side){ mode_of(change->before), buf_view(&before) };
    file.after = (struct patch_side){ mode_of(change->after), buf_view(&after) };
    patch_put(&text, &file);
    if (!buf_ok(&text))
        return err_set(err, ERR_LIMIT, "the patch of %.*s is too large", STR_FMT(change->path));
    return write_all(w->out, buf_view(&text), err);
}

static int one(struct writing *w, const struct change *change, size_t at, struct err *err)
{
    const char *why = NULL;

    if (!mode_of(change->before) && !mode_of(change->after))
        return 0; /* directories */
    if (change->git) {
        w->git++;
        return 0;
    }
    if (!apply_is_still(w->root, w->was, change->path, change->before) &&
        !apply_in_new_directory(w->was, change)) {
        cli_note(w->cli, "changed here too: %.*s", STR_FMT(change->path));
        w->changed_here++;
        return 0;
    }
    if (!taken(change->before) || !taken(change->after))
        why = "neither file nor link";
    else if (too_large(change->before) || too_large(change->after))
        why = "too large";
    else if (change_has_data(change) && !w->stage->have[at])
        why = "it could not be read";
    if (!why)
        return put_one(w, change, at, err);
    cli_note(w->cli, "not in the patch: %.*s: %s", STR_FMT(change->path), why);
    return 0;
}

static bool is_work_tree(const char *dir)
{
    autofree char *git = xprintf("%s/.git", dir), *head = xprintf("%s/.git/HEAD", dir);
    struct stat st;

    /* A file says where the repository is: of a submodule, or of one of several work trees. */
    return lstat(git, &st) == 0 && (S_ISREG(st.st_mode) || lstat(head, &st) == 0);
}

char *apply_prefix(int root)
{
    char link[64], path[PATH_MAX];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", root);
    ssize_t len = readlink(link, path, sizeof(path) - 1);
    if (len <= 1 || path[0] != '/')
        return xstrdup("");
    path[len] = 0;
    autofree char *whole = xstrdup(path);
    while (!is_work_tree(path)) {
        char *slash = strrchr(path, '/');

        if (!slash)
            return xstrdup("");
        *slash = 0; /* in the end "", which is the root directory */
    }
    const char *below = whole + strlen(path);
    below += *below == '/';
    if (!below[0] || patch_path_is_git(str_of(below), false))
        return xstrdup("");
    return xprintf("%s/", below);
}

int apply_patch(struct cli *cli, int root, const struct manifest *before,
                const struct changes *changes, struct stage *stage, int out, struct err *err)
{
    autofree char *prefix = apply_prefix(root);
    struct writing w = {
        .cli = cli, .root = root, .out = out, .prefix = prefix, .was = before, .stage = stage
    };

    for (size_t i = 0; i < changes->count; i++)
        if (one(&w, &changes->at[i], i, err) < 0)
            return -1;
    if (w.git)
        cli_note(cli, "not in the patch: %zu of git's own files, which git would refuse", w.git);
    if (w.changed_here)
        return err_set(err, ERR_CONFLICT, "not in the patch: %zu file%s changed here meanwhile",
                       w.changed_here, w.changed_here == 1 ? "" : "s");
    return 0;
}
