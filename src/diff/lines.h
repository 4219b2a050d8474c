/*
 * lines - which lines of a text became which: the shortest list of removed and added lines.
 *
 * The texts are anybody's: work and memory are bounded, and where a bound is met the rest of the
 * text counts as replaced, which is longer but as right. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/str.h"

/* The lines of a text, each with its newline; the last one may have none. */
struct lines {
    struct str *at; /* owned; they point into the text */
    uint32_t count;
};

/* False when there are more than DIFF_LINES_MAX. */
must_use bool lines_split(struct lines *lines, struct str text);
void lines_free(struct lines *lines);
#define autolines auto_with(lines_free)

/* One place where the texts differ: `old_count` lines at `old_at` became `new_count` at `new_at`.
 */
struct lines_change {
    uint32_t old_at, old_count, new_at, new_count;
};

struct lines_script {
    struct lines_change *at; /* owned; in order, never touching each other */
    size_t count;
};

void lines_compare(const struct lines *before, const struct lines *after, struct lines_script *out);
/* The same with at most `work` steps of search, for tests of the bound. */
void lines_compare_within(const struct lines *before, const struct lines *after, int64_t work,
                          struct lines_script *out);
void lines_script_free(struct lines_script *script);
#define autoscript auto_with(lines_script_free)
