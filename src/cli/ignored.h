/*
 * ignored - which changes git would not look at, by the rules that hold after the changes: the
 * .gitignore files of the work tree here, those that the sandbox changed as they are there, and
 * what stands beside them (.git/info/exclude, the user's own ignore file). A file that git tracks
 * is never among them.
 */
#pragma once

#include "cli/changes.h"
#include "cli/cli.h"

struct ignored_source {
    const char *id;   /* of the sandbox; NULL: nothing is asked there */
    const char *path; /* of the directory there */
    int root;         /* the directory here */
};

/* Drops them; how many files. A rule file that cannot be fetched does not count. */
size_t ignored_leave_out(struct cli *cli, const struct ignored_source *source,
                         struct changes *changes);
