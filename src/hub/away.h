/*
 * away - does a text hold a URL that leads away from here?
 *
 * URLs are found and read as browsers read them, because whoever acts on a message does so with
 * their means: letters of the scheme in any case, any number of slashes and backslashes, a user
 * name, percent signs in the host, numbers that are addresses, other scripts. What cannot be read
 * for certain leads away. A host is allowed when the list names it (exactly, or as an address
 * within a CIDR) or when it has no dot and is no number: a name of the local network. Pure; any
 * thread.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct away;

/* Lists end with NULL: "localhost", "10.0.0.0/8", "::1"; "http", "https". */
must_use int away_new(struct away **out, const char *const *allow, const char *const *schemes,
                      struct err *err);
void away_free(struct away *filter);
/* True: it holds one that is not allowed. */
bool away_hit(const struct away *filter, struct str text);
