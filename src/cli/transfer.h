/*
 * transfer - files between here and a sandbox, for `atoll run` and `atoll cp`. What comes back is
 * hostile: it is read with limits and goes nowhere but where it is told.
 */
#pragma once

#include "cli/changes.h"
#include "cli/cli.h"

/* Everything below the directory `path` of a sandbox. */
must_use int transfer_manifest(struct cli *cli, const char *id, const char *path,
                               struct manifest *out, struct err *err);
/* What changed in the view of a sandbox: the files that did, as they were and as they are. */
must_use int transfer_changes(struct cli *cli, const char *id, struct manifest *before,
                              struct manifest *after, struct err *err);
/*
 * Everything below the directory `root` here into the directory `path` of a sandbox, but for what
 * the filter says.
 */
must_use int transfer_tree(struct cli *cli, const char *id, const char *path, int root,
                           const struct tree_filter *filter, struct err *err);
/* A failure of the tree room, as an error: -1. */
int transfer_failed(const struct tree_fail *fail, struct err *err);
/* The bytes of one file, at most `max` of them, into `fd`. */
must_use int transfer_file(struct cli *cli, const char *id, const char *path, uint64_t max, int fd,
                           struct err *err);
/* What `fd` has to read, as a file of a sandbox, whole or not at all. */
must_use int transfer_file_up(struct cli *cli, const char *id, const char *path, int fd,
                              unsigned mode, struct err *err);

/* Everything below a directory of a sandbox into the directory `root` here. */
must_use int transfer_tree_back(struct cli *cli, const char *id, const char *path, int root,
                                struct err *err);

/* One line of a manifest (a JSON object) as a record behind those in `out`, for manifest_read. */
must_use int transfer_line(struct buf *out, struct str line, struct err *err);
