/*
 * apply - takes changes back from a sandbox into a directory here.
 *
 * What a sandbox sends is hostile: every file is reached beneath the directory and through no
 * symbolic link, whatever stands there by now; links are made only if they cannot lead out; set-id
 * bits are dropped; git's own files are left alone unless asked for. And it is the user's
 * directory: what has changed here since it was copied is never overwritten. Either every change
 * can be made, or none is.
 */
#pragma once

#include "cli/changes.h"
#include "cli/cli.h"

#define STAGE_PREFIX ".atoll-"
#define STAGE_ID 16 /* characters behind it */

/* The contents of the changed files, each in a file named by the number of its change. */
struct stage {
    int dir;    /* -1: none */
    int parent; /* where it stands */
    char name[32];
    bool *have; /* owned; per change */
};
#define STAGE_NONE ((struct stage){ .dir = -1, .parent = -1 })

/* A fresh directory in `parent`, which it takes. */
must_use int stage_make(struct stage *stage, int parent, size_t count, struct err *err);
/* A new, empty file for a change: a descriptor. */
must_use int stage_new(struct stage *stage, size_t at, struct err *err);
/* Checks that it is what the manifest promised, and keeps it. */
must_use int stage_keep(struct stage *stage, size_t at, int fd, const struct tree_entry *entry,
                        struct err *err);
/* A directory in the stage for a whole tree, and a file of that tree as the one of a change. */
must_use int stage_tree(struct stage *stage, struct err *err);
must_use int stage_take(struct stage *stage, int tree, size_t at, const struct change *change,
                        struct err *err);
void stage_remove(struct stage *stage);
#define autostage auto_with(stage_remove)

/* Does this change need contents? */
bool change_has_data(const struct change *change);

struct apply_options {
    int root;                   /* the directory that was copied */
    bool git;                   /* git's own files too */
    void (*planned)(void *ctx); /* for tests: called before anything is done; may be NULL */
    void *ctx;
};

/* ERR_CONFLICT when files here have changed: they are named on standard error, nothing is done. */
must_use int apply_changes(struct cli *cli, const struct apply_options *options,
                           const struct manifest *before, const struct changes *changes,
                           struct stage *stage, struct err *err);

/*
 * The changes as a patch for git. The old side of a file is what is here, if it still is what was
 * copied; those of which it is not are named and left out (ERR_CONFLICT in the end).
 */
must_use int apply_patch(struct cli *cli, int root, const struct manifest *before,
                         const struct changes *changes, struct stage *stage, int out,
                         struct err *err);

/* Where `root` is below the top of git's work tree, with a slash behind it; "" if it is none. */
char *apply_prefix(int root);

/* Is the file here still what `before` says of it (`entry`, NULL: there is none)? */
bool apply_is_still(int root, const struct manifest *before, struct str path,
                    const struct tree_entry *entry);
/* Is it new, in a directory that was no directory? Then what stands in the way is judged there. */
bool apply_in_new_directory(const struct manifest *before, const struct change *change);
/* May a link with this target stand at this path? */
bool apply_link_ok(struct str path, struct str target);
