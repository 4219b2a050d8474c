/*
 * ignore - which paths of a work tree git ignores: the rules of .gitignore files (gitignore(5)) and
 * the list of files that are tracked, to which no rule applies.
 *
 * Paths are relative to the top of the work tree and clean. The rules and the list are anybody's
 * bytes: whatever is in them, a question has an answer. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

struct ignore_rule;

struct ignore {
    struct ignore_rule *rules; /* owned; the last one that matches decides */
    size_t count, cap;
    char **texts; /* owned; what the rules point into */
    size_t text_count;
    char *names; /* owned; tracked files, one behind the other */
    struct str *tracked;
    size_t tracked_count;
    bool knows_tracked; /* a list was read: a file that is not in it is not tracked */
};

/*
 * The rules of one file in the directory `dir` ("" is the top, otherwise without a slash at the
 * end). Files of directories above come first. More than IGNORE_RULES_MAX rules are not kept.
 */
void ignore_add(struct ignore *ignore, struct str dir, struct str text);
/* The list of tracked files, as in .git/index. False: of a form that is not known here. */
bool ignore_read_index(struct ignore *ignore, struct str bytes);
/* Is this a file that git tracks? */
bool ignore_is_tracked(const struct ignore *ignore, struct str path);
/* Does a rule say so, of the path or of a directory above it? A tracked file is not asked for. */
bool ignore_match(const struct ignore *ignore, struct str path, bool is_dir);
void ignore_free(struct ignore *ignore);
#define autoignore auto_with(ignore_free)
