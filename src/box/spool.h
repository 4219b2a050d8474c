/*
 * spool - the newest bytes of one stream of a command, in a file, by position.
 *
 * The file is a ring of SPOOL_RING bytes behind a header that says where the stream ends. A byte is
 * in the ring before the header counts it, so after a kill the header tells less than is there, and
 * what it does not tell comes again from the sandbox's init and lands on the same bytes. Nothing is
 * synced: the processes of a sandbox do not outlive a power failure either. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/id.h"

struct spool {
    int fd; /* -1: not open */
    uint64_t end;
    bool made; /* there is a file */
    /* Readers that must have every byte: how many, and the position of the slowest (pace.c). */
    unsigned holders;
    uint64_t held;
};

#define SPOOL_NONE ((struct spool){ .fd = -1 })
#define SPOOL_NAME_SIZE (ID_SIZE + 8)

/* "ex….out", "ex….err" */
void spool_name(char out[SPOOL_NAME_SIZE], const char *exec, unsigned stream);
/* Looks how far an existing file goes; none is an empty stream. */
must_use int spool_load(struct spool *spool, int dir, const char *name, struct err *err);
/* Adds bytes at the end. On failure nothing counts as added. */
must_use int spool_add(struct spool *spool, int dir, const char *name, const void *data, size_t len,
                       struct err *err);
/* Writes `holders` and `held` into an existing file; spool_add writes them too. */
must_use int spool_note(struct spool *spool, int dir, const char *name, struct err *err);
/* Oldest position that can still be read. */
uint64_t spool_begin(const struct spool *spool);
/*
 * Reads from a position between begin and end; how many bytes, 0 at the end. ERR_GONE before the
 * beginning, ERR_RANGE past the end.
 */
must_use ssize_t spool_read(struct spool *spool, int dir, const char *name, uint64_t from,
                            void *out, size_t len, struct err *err);
void spool_close(struct spool *spool);
