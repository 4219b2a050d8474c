/* operation - what was answered 202 and goes on by itself; see operation.c. */
#pragma once

#include "api/own.h"
#include "base/uuid.h"

struct operation {
    const char *id, *tenant, *type, *status, *target, *error, *result;
    int64_t progress, created_ms, completed_ms;
};

/* Within a write job: it has begun. */
must_use int operation_add(struct db *db, const struct operation *op, struct err *err);
/*
 * Loop thread: it has ended, told by this event; error NULL: well. `result` is JSON of ours, or
 * NULL.
 */
struct operation_end {
    const char *id, *tenant, *event, *object, *error, *result;
};
void operation_end(const struct api *api, const struct operation_end *end);
void operation_put(struct json_out *json, const struct operation *op);
/* An error with a word of agentic's own ("VM_RUNNING"), for SURFACE_VM; returns -1. */
int err_word(struct err *err, enum err_code code, const char *word, const char *fmt, ...)
    printf_like(4, 5);
