/*
 * A ring that grows from RING_LEAST to INIT_RING_SIZE (out_max), so that a silent command costs
 * nothing and a busy one a bounded amount. What was emptied keeps up to RING_KEEP while more may
 * come, and one of the least size is kept for whoever comes next: asking the kernel for fresh pages
 * at each burst costs more than moving the bytes. Positions never wrap; the place of a byte is its
 * position modulo the capacity (a power of two), so growing moves the bytes to their new places.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "init/init.h"

#define RING_LEAST 4096
#define RING_KEEP 65536

static char *spare; /* RING_LEAST bytes, or none */

static char *ring_new(uint32_t cap)
{
    char *mem = cap == RING_LEAST && spare ? spare : malloc(cap);

    if (mem == spare)
        spare = NULL;
    return mem;
}

static void ring_free(struct out *out)
{
    if (out->cap == RING_LEAST && !spare)
        spare = out->mem;
    else
        free(out->mem);
    out->mem = NULL;
    out->cap = 0;
}

void out_free(struct out *out)
{
    ring_free(out);
    if (out->fd >= 0)
        close(out->fd);
    *out = (struct out){ .fd = -1 };
}

static bool grow(struct out *out)
{
    uint32_t cap = out->cap ? out->cap * 2 : RING_LEAST;

    if (cap > out_max(out) && guard(output_ring))
        return false;
    char *mem = ring_new(cap);
    if (!mem)
        return false;
    for (uint64_t at = out->begin; at < out->end;) {
        uint32_t from = (uint32_t)(at & (out->cap - 1)), to = (uint32_t)(at & (cap - 1));
        uint64_t len = MIN(out->end - at, (uint64_t)MIN(out->cap - from, cap - to));

        memcpy(mem + to, out->mem + from, len);
        at += len;
    }
    ring_free(out);
    out->mem = mem;
    out->cap = cap;
    return true;
}

int out_fill(struct out *out)
{
    if (out->fd < 0)
        return -1;
    if (out->end - out->begin == out->cap && !grow(out))
        return 0;
    uint32_t at = (uint32_t)(out->end & (out->cap - 1));
    uint64_t room = MIN((uint64_t)(out->cap - at), out->cap - (out->end - out->begin));
    ssize_t got = read(out->fd, out->mem + at, room);

    if (got > 0) {
        out->end += (uint64_t)got;
        return 1;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    close_late(out->fd); /* end of a pipe; EIO of a terminal whose last user has left */
    out->fd = -1;
    if (out->begin == out->end)
        ring_free(out);
    return -1;
}

void out_ack(struct out *out, uint64_t position)
{
    if (position > out->end || position <= out->begin)
        return;
    out->begin = position;
    if (out->sent < position)
        out->sent = position;
    if (out->begin == out->end && (out->fd < 0 || out->cap > RING_KEEP))
        ring_free(out);
}

size_t out_next(const struct out *out, size_t max, const char **data)
{
    if (out->sent == out->end)
        return 0;
    uint32_t at = (uint32_t)(out->sent & (out->cap - 1));
    uint64_t len = MIN(out->end - out->sent, (uint64_t)(out->cap - at));

    *data = out->mem + at;
    return (size_t)MIN(len, (uint64_t)max);
}
