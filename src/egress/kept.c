/* Shared memory, or memory of our own in its place. */
#include "egress/kept.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"

static void *map(int flags, int fd)
{
    return mmap(NULL, EGRESS_KEPT_SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);
}

struct kept *kept_open(int fd)
{
    void *at = fd >= 0 ? map(MAP_SHARED, fd) : MAP_FAILED;

    if (fd >= 0 && at == MAP_FAILED)
        log_error("what is kept for a sandbox cannot be read", kv_str("now", "begun anew"));
    if (at == MAP_FAILED)
        at = map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    if (at == MAP_FAILED)
        abort();
    return at;
}

void kept_close(struct kept *kept)
{
    if (kept)
        munmap(kept, EGRESS_KEPT_SIZE);
}
