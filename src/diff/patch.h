/*
 * patch - what changed in a tree of files, written as git writes it, for `git apply` to take.
 *
 * The paths and bytes are anybody's. A path must be relative and clean (patch_path_ok): no patch
 * that this writes names anything outside of the tree or git's own files in it, which git would
 * refuse together with the whole patch. Any thread.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

enum {
    PATCH_FILE = 0100644,
    PATCH_PROGRAM = 0100755,
    PATCH_LINK = 0120000, /* its data is the target */
};

struct patch_side {
    unsigned mode; /* one of the above; 0: it is not there */
    struct str data;
};

struct patch_file {
    struct str path;
    struct patch_side before, after;
};

/* Relative, without NUL, empty, "." and ".." parts. */
bool patch_path_ok(struct str path);
/*
 * Is it one of git's own, however a file system may spell it (".GIT", "git~1", ".git.")? Such files
 * can make git run programs. With `link`, also the names that git takes only as plain files.
 */
bool patch_path_is_git(struct str path, bool link);

/*
 * Appends the patch of one file; nothing when the sides are the same. The path must be ok and not
 * git's. Data that is no text (a NUL, or more lines than fit) becomes a binary patch.
 */
void patch_put(struct buf *out, const struct patch_file *file);

/* As git quotes a name: in double quotes with escapes, if there is anything to escape. */
void patch_quote(struct buf *out, const char *prefix, struct str name);
/* The lines of a binary patch: each has its length as a letter, then base 85. */
void patch_base85(struct buf *out, struct str data);
