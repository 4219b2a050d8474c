/*
 * context - servers the user has named: ~/.config/atoll/contexts.json, readable by its owner alone
 * because it holds tokens. Changes are made under a lock and replace the file in one step, so two
 * commands at once cannot lose each other's and a crash leaves the old file or the new one.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

#define CONTEXT_NAME_MAX 64
#define CONTEXTS_MAX 64
#define CONTEXTS_FILE_MAX 262144

struct context {
    char *name, *addr; /* owned */
    char *token, *ca;  /* owned; NULL: none */
};

struct contexts {
    struct context *list; /* owned */
    size_t count;
    char *current; /* owned; NULL: none */
    int lock_fd;   /* while being changed; otherwise -1 */
};

/* Letters, digits, '.', '_' and '-', not beginning with '-' or '.'. */
bool context_name_ok(const char *name);

/* For reading. A missing file is an empty list. */
must_use int contexts_load(struct contexts *out, struct err *err);
/* For changing: holds the lock until contexts_free. */
must_use int contexts_open(struct contexts *out, struct err *err);
must_use int contexts_save(const struct contexts *contexts, struct err *err);
void contexts_free(struct contexts *contexts);
#define autocontexts auto_with(contexts_free)

struct context *contexts_find(const struct contexts *contexts, const char *name);
/* The one with this name, made if need be; ERR_LIMIT when there are too many. */
must_use int contexts_put(struct contexts *contexts, const char *name, struct context **out,
                          struct err *err);
/* Also forgets it as the current one. False when there is none. */
bool contexts_remove(struct contexts *contexts, const char *name);
/* Replaces an owned text; NULL clears it. */
void context_text(char **slot, const char *text);
