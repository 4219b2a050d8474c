/*
 * pack - named lists of rules that people would otherwise look up one denial at a time.
 *
 * Built in, one line each. Operators add packs of their own and add rules to these; that is kept in
 * the store and merged by whoever compiles a policy. A pack only ever allows.
 */
#pragma once

#include "base/str.h"

#define PACK_NAME_MAX 32

struct pack {
    const char *name, *help;
    const char *const *rules; /* NULL-terminated */
};

/* Ended by a NULL name. */
extern const struct pack packs[];
const struct pack *pack_find(struct str name); /* NULL: none */
/* Lower-case letters, digits and hyphens, beginning with a letter, at most PACK_NAME_MAX. */
bool pack_name_ok(struct str name);
