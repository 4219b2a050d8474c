/*
 * state - the directory that a server owns: who may use it, what stands in it, who is using it now.
 *
 *   STATE/             0711, the user's who started the server
 *   STATE/lock         held (flock) as long as the server runs, with its process id inside
 *   STATE/atoll.sock   0666: who may do what is decided by the peer's credentials
 *   STATE/admin.token  0600, written once
 *   STATE/egress.key   0600, written once: opens secrets that go into requests. It is read here,
 *                      for its public half, and by the egress process, which gets it open
 *   STATE/data/        0700, the api process's own: the store
 *
 * A directory that belongs to somebody else, or that others may write in, is refused: whoever can
 * change names in it could put their own files there.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/seal.h"

struct state {
    const char *dir; /* borrowed */
    int dir_fd, lock_fd, data_fd;
    bool data_made; /* the data directory was not there */
};
#define STATE_NONE ((struct state){ NULL, -1, -1, -1, false })

/*
 * Makes what is missing and takes the lock; ERR_CONFLICT names the process that has it. `api_uid`
 * is who the data directory is for; -1 is ourselves.
 */
must_use int state_open(struct state *out, const char *dir, int64_t api_uid, struct err *err);
void state_close(struct state *state);

/*
 * ERR_CONFLICT when a server ran in this directory and its database is gone: an empty one would
 * name none of its disks and open none of its secrets.
 */
must_use int state_check_store(const struct state *state, struct err *err);
#define autostate auto_with(state_close)

/* The hash of the admin token; makes the token if there is none. */
must_use int state_token(const struct state *state, unsigned char hash[SHA256_SIZE],
                         struct err *err);

/*
 * The public half of the egress process's key, and the key itself as an open file; makes it if
 * there is none.
 */
must_use int state_egress_key(const struct state *state, struct seal_public *out, int *fd,
                              struct err *err);

/* The listening Unix socket, however long the path of the directory is. */
must_use int state_listen(const struct state *state, int backlog, struct err *err);
