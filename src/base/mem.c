/*
 * Arenas start with a small chunk and double up to a cap, so that a request that needs 200 bytes
 * costs one small malloc and one that needs a megabyte does not cost a thousand.
 */
#include "base/mem.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#define ARENA_FIRST 1024u
#define ARENA_CHUNK_MAX ((size_t)256 * 1024)
#define ARENA_ALIGN 16u

struct arena_chunk {
    alignas(16) struct arena_chunk *older;
    size_t size;
};

static void out_of_memory(size_t size)
{
    fprintf(stderr, "atoll: out of memory (%zu bytes wanted)\n", size);
    abort();
}

void *xmalloc(size_t size)
{
    void *ptr = malloc(size ? size : 1);

    if (!ptr)
        out_of_memory(size);
    return ptr;
}

void *xcalloc(size_t count, size_t size)
{
    void *ptr = calloc(count ? count : 1, size ? size : 1);

    if (!ptr)
        out_of_memory(size);
    return ptr;
}

void *xrealloc(void *ptr, size_t size)
{
    void *grown = realloc(ptr, size ? size : 1);

    if (!grown)
        out_of_memory(size);
    return grown;
}

char *xmemdup0(const void *data, size_t len)
{
    char *copy = xmalloc(len + 1);

    if (len)
        memcpy(copy, data, len);
    copy[len] = 0;
    return copy;
}

char *xstrdup(const char *text)
{
    return xmemdup0(text, strlen(text));
}

char *xprintf(const char *fmt, ...)
{
    char *out = NULL;
    va_list args;

    va_start(args, fmt);
    int len = vasprintf(&out, fmt, args);
    va_end(args);
    if (len < 0)
        out_of_memory(0);
    return out;
}

void arena_free(struct arena *arena)
{
    struct arena_chunk *chunk = arena->chunks;

    while (chunk) {
        struct arena_chunk *older = chunk->older;

        free(chunk);
        chunk = older;
    }
    *arena = (struct arena){ 0 };
}

static void arena_grow(struct arena *arena, size_t need)
{
    size_t size = arena->chunks ? MIN(arena->chunks->size * 2, ARENA_CHUNK_MAX) : ARENA_FIRST;

    if (size < need + sizeof(struct arena_chunk))
        size = need + sizeof(struct arena_chunk);

    struct arena_chunk *chunk = xmalloc(size);
    chunk->older = arena->chunks;
    chunk->size = size;
    arena->chunks = chunk;
    arena->next = (char *)(chunk + 1);
    arena->end = (char *)chunk + size;
    arena->total += size;
}

void *arena_raw_slow_(struct arena *arena, size_t size)
{
    size_t need = (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);

    if (need < size || need > SIZE_MAX - sizeof(struct arena_chunk))
        out_of_memory(size);
    arena_grow(arena, need);
    void *ptr = arena->next;
    arena->next += need;
    return ptr;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    return memset(arena_raw(arena, size), 0, size);
}

char *arena_memdup0(struct arena *arena, const void *data, size_t len)
{
    char *copy = arena_raw(arena, len + 1);

    if (len)
        memcpy(copy, data, len);
    copy[len] = 0;
    return copy;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    return arena_memdup0(arena, text, strlen(text));
}

struct str arena_str(struct arena *arena, struct str text)
{
    return (struct str){ arena_memdup0(arena, text.p, text.n), text.n };
}

char *arena_printf(struct arena *arena, const char *fmt, ...)
{
    va_list args, again;
    char few[256]; /* most fit, and are composed once */

    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(few, sizeof(few), fmt, args);
    va_end(args);
    if (len < 0)
        len = 0, few[0] = 0;
    char *out = arena_raw(arena, (size_t)len + 1);
    if ((size_t)len < sizeof(few))
        memcpy(out, few, (size_t)len + 1);
    else
        vsnprintf(out, (size_t)len + 1, fmt, again);
    va_end(again);
    return out;
}

static bool untraced;

void mem_untraced(void)
{
    untraced = true;
}

#ifdef __SANITIZE_ADDRESS__
/* It asks here. To look, it would stop all threads from a process of its own. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return untraced;
}
#endif
