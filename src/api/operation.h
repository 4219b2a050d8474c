/* operation - what was answered 202 and goes on by itself; see operation.c. */
#pragma once

#include "api/own.h"
#include "base/uuid.h"

struct operation {
    const char *id, *tenant, *by, *type, *status, *target, *error, *result;
    int64_t progress, created_ms, completed_ms;
};

/* Within a write job: its row. completed_ms: it is over already. */
must_use int operation_add(struct db *db, const struct operation *op, struct err *err);
/*
 * Of an ON_LATER call whose answer is composed: writes it down with what the call records, and then
 * answers 202. `go` begins the work, before the answer; not called where nothing was written.
 */
struct operation_start {
    struct store_job job;
    struct call *call;
    struct operation operation;
    const char *event; /* NULL: none */
    void (*go)(struct operation_start *start);
    void (*drop)(struct operation_start *start); /* instead of go */
};
void operation_begin(struct call *call, struct operation_start *start);
/* What an answer of 202 says of it; texts in the call's arena. */
struct operation operation_new(struct call *call, const char *type, const char *target);
/* Loop thread: how far it is. */
void operation_progress(const struct api *api, const char *id, int percent);
/*
 * Loop thread: it has ended, told by this event; error NULL: well. `result` is JSON of ours, or
 * NULL; so is `reason`, a word for the event.
 */
struct operation_end {
    const char *id, *tenant, *event, *object, *reason, *error, *result;
    int percent; /* of operation_progress: it goes on */
};
void operation_end(const struct api *api, const struct operation_end *end);
void operation_put(struct json_out *json, const struct operation *op);
/* An error with a word of agentic's own ("VM_RUNNING"), for SURFACE_VM; returns -1. */
int err_word(struct err *err, enum err_code code, const char *word, const char *fmt, ...)
    printf_like(4, 5);
#if defined(__clang_analyzer__) || defined(ATOLL_ANALYZE)
/* What it promises, as in base/err.h. */
#define err_word(...) __extension__({ (void)err_word(__VA_ARGS__), -1; })
#endif
