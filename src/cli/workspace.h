/*
 * workspace - the directory that a sandbox of `atoll run` has, and what became of it there.
 *
 * The sandbox has a view of it: it reads the files here, and what it changes stays with it, beside
 * them. So nothing is copied, and what changed is what it keeps. A file that changes here meanwhile
 * is seen by its time of change.
 *
 * Where that cannot be had, a copy: sent whole, as the sandbox's user; then the sandbox is asked
 * what it got, before anything else runs in it: that list, and not what is here a moment later, is
 * what changes are measured against.
 */
#pragma once

#include <stdatomic.h>

#include "cli/changes.h"
#include "cli/cli.h"

#define WORKSPACE "/workspace"

struct workspace {
    int root;      /* the directory here; -1: none */
    int patch;     /* what --patch writes to, if it is there and no file; -1 */
    bool view;     /* the sandbox has a view of it, and no copy */
    uint64_t room; /* of a view: how much memory there is for what is changed; 0: it is on disk */
    struct timespec since;
    struct manifest before;
    /* What there is here */
    uint64_t files, bytes, excluded, special;
    const atomic_int *signal; /* not 0: give up */
    /* The stage, while there is one; for workspace_unstage */
    char stage[32];
    atomic_int stage_in; /* descriptor of where it stands; -1 */
};
#define WORKSPACE_NONE ((struct workspace){ .root = -1, .patch = -1, .stage_in = -1 })

/* Is anything to be taken back? */
bool workspace_asked(const struct cli *cli);
/* Opens the directory, and sees whether changes can be taken back. */
must_use int workspace_open(struct cli *cli, struct workspace *ws, const char *path,
                            struct err *err);
/* Counts what is to be copied. */
must_use int workspace_scan(struct cli *cli, struct workspace *ws, const char *path,
                            struct err *err);
/* From now on a change of the directory is one that the sandbox may not have seen. */
void workspace_since(struct workspace *ws);
/* The sandbox has a view of it: says what is not in it. Before the command. */
void workspace_viewed(struct cli *cli, const struct workspace *ws);
/* Copies it into the sandbox. */
must_use int workspace_send(struct cli *cli, struct workspace *ws, const char *id, struct err *err);
/* Asks what has changed, says it, and does what --patch and --apply want. */
must_use int workspace_finish(struct cli *cli, struct workspace *ws, const char *id,
                              struct err *err);
/* Removes what taking back has made beside the files: for another thread, right before the end. */
void workspace_unstage(struct workspace *ws);
/* Fetches everything into a new directory, for when it could not be taken back; says where. */
must_use int workspace_save(struct cli *cli, const char *id, struct err *err);
void workspace_free(struct workspace *ws);
