/*
 * mem - allocation that does not fail, and arenas that are freed all at once.
 *
 * Small allocations abort when the machine is out of memory: sandboxes outlive the process and the
 * warden restarts it. Sizes that a peer chooses never come here directly; they go through buf.h
 * and limits.h, which fail as ERR_LIMIT.
 */
#pragma once

#include <stdarg.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/str.h"

void *xmalloc(size_t size) __attribute__((malloc, alloc_size(1), returns_nonnull));
void *xcalloc(size_t count, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *ptr, size_t size) __attribute__((returns_nonnull));
char *xstrdup(const char *text) __attribute__((malloc, returns_nonnull));
char *xmemdup0(const void *data, size_t len) __attribute__((malloc, returns_nonnull));
char *xprintf(const char *fmt, ...) printf_like(1, 2) __attribute__((malloc, returns_nonnull));

#define xnew(type) ((type *)xcalloc(1, sizeof(type)))

/*
 * An arena: allocations live until arena_free. Zero is a valid empty arena. One thread at a time;
 * handing the whole arena to another thread is fine.
 */
struct arena {
    struct arena_chunk *chunks; /* owned, newest first */
    char *next, *end;
    size_t total; /* bytes asked of malloc, for limits and metrics */
};

void arena_free(struct arena *arena);
#define autoarena auto_with(arena_free)

/* Zeroed, aligned to 16. */
void *arena_alloc(struct arena *arena, size_t size) __attribute__((returns_nonnull));

void *arena_raw_slow_(struct arena *arena, size_t size) __attribute__((returns_nonnull));
/* Not zeroed, aligned to 16: for those who write every byte themselves and are in a hurry. */
static inline void *arena_raw(struct arena *arena, size_t size)
{
    size_t need = (size + 15) & ~(size_t)15;

    if (need < size || (uintptr_t)arena->end - (uintptr_t)arena->next < need)
        return arena_raw_slow_(arena, size);
    void *ptr = arena->next;
    arena->next += need;
    return ptr;
}
char *arena_memdup0(struct arena *arena, const void *data, size_t len);
char *arena_strdup(struct arena *arena, const char *text);
struct str arena_str(struct arena *arena, struct str text);
char *arena_printf(struct arena *arena, const char *fmt, ...) printf_like(2, 3);

#define arena_new(arena, type) ((type *)arena_alloc((arena), sizeof(type)))

/* From now on nobody can trace this process: a sanitizer must not search it for leaks at its end.
 */
void mem_untraced(void);
