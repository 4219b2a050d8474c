/*
 * auto - locals that clean up after themselves, and the words for handing them over.
 *
 * A local that owns something is declared with its `auto…` word; every return then frees it. To
 * give the thing away, take it out of the local with take_ptr() or take_fd(), which leave behind
 * a value that is harmless to free.
 */
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define must_use __attribute__((warn_unused_result))
#define printf_like(fmt, first) __attribute__((format(printf, fmt, first)))
#define auto_with(fn) __attribute__((cleanup(fn)))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* The object that holds `member` at `ptr`. */
#define container_of(ptr, type, member)                                                            \
    ((type *)(void *)((char *)(1 ? (ptr) : &((type *)0)->member) - offsetof(type, member)))

static inline void auto_free_ptr_(void *slot)
{
    free(*(void **)slot);
}

static inline void auto_close_fd_(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

#define autofree auto_with(auto_free_ptr_)
#define autoclose auto_with(auto_close_fd_)

#define take_ptr(slot)                                                                             \
    __extension__({                                                                                \
        __typeof__(*(slot)) taken_ = *(slot);                                                      \
        *(slot) = NULL;                                                                            \
        taken_;                                                                                    \
    })

static inline int take_fd(int *slot)
{
    int fd = *slot;

    *slot = -1;
    return fd;
}
