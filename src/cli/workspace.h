/*
 * workspace - the directory that `atoll run` copies into a sandbox, and what became of it there.
 *
 * Sent whole, as the sandbox's user; then the sandbox is asked what it got, before anything else
 * runs in it: that list, and not what is here a moment later, is what changes are measured against.
 */
#pragma once

#include <stdatomic.h>

#include "cli/changes.h"
#include "cli/cli.h"

#define WORKSPACE "/workspace"

struct workspace {
    int root;  /* the directory here; -1: none */
    int patch; /* what --patch writes to, if it is there and no file; -1 */
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
/* Opens the directory, counts what is in it, and sees whether changes can be taken back. */
must_use int workspace_open(struct cli *cli, struct workspace *ws, const char *path,
                            struct err *err);
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
