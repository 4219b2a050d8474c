/*
 * changes - what is different between two manifests of one tree: before a command, and after it.
 *
 * The manifests come from a sandbox, so nothing in them is believed but that they describe what the
 * sandbox would send. Paths are clean (tree_record_take) and unique; that is all. One thread.
 */
#pragma once

#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "tree/tree.h"

struct manifest {
    char *bytes;           /* owned */
    struct tree_entry *at; /* owned; sorted by path */
    size_t count;
    /*
     * Of a view, `before` has no more than what changed: the rest is in this directory, as it is.
     * What it says of a file there was true at `since` if the file did not change after that.
     */
    bool partial;
    int here; /* borrowed */
    struct timespec since;
};

/* Takes the bytes out of `in`. */
must_use int manifest_read(struct manifest *out, struct buf *in, struct err *err);
void manifest_free(struct manifest *manifest);
#define automanifest auto_with(manifest_free)
const struct tree_entry *manifest_find(const struct manifest *manifest, struct str path);

static inline struct str entry_path(const struct tree_entry *entry)
{
    return (struct str){ entry->name, entry->head.name_len };
}

static inline struct str entry_link(const struct tree_entry *entry)
{
    return (struct str){ entry->link, entry->head.link_len };
}

/* The same file as far as anybody here looks: kind, permissions, contents. */
bool entry_same(const struct tree_entry *a, const struct tree_entry *b);
/* The same kind and contents, whatever the permissions. */
bool entry_same_data(const struct tree_entry *a, const struct tree_entry *b);

struct change {
    struct str path;
    const struct tree_entry *before, *after; /* NULL: it is not there */
    bool git;                                /* one of git's own, which can make git run programs */
    bool hidden; /* a directory that goes without saying: there are changes in it */
};

struct changes {
    struct change *at; /* owned; sorted by path; what it points to is the manifests' */
    size_t count;
    size_t added, modified, removed; /* of those that are not hidden */
};

void changes_between(const struct manifest *before, const struct manifest *after,
                     struct changes *out);
/* Drops those that `skip` says, of the path itself or of a directory above it; how many files. */
size_t changes_leave_out(struct changes *changes, bool (*skip)(const void *ctx, const char *path),
                         const void *ctx);
/* Drops those that `skip` says, of each alone; how many files. */
size_t changes_drop(struct changes *changes,
                    bool (*skip)(const void *ctx, const struct change *change), const void *ctx);
void changes_free(struct changes *changes);
#define autochanges auto_with(changes_free)

/* 'A' added, 'D' removed, 'M' modified, 'T' of another kind than before. */
char change_letter(const struct change *change);
/* A line for each, at most `max`, then how many of which; names are made visible. */
void changes_summary(const struct changes *changes, size_t max, struct buf *out);
