/*
 * client_io - the client's connection: a stream socket, TLS over it or not, and a deadline. Used by
 * client.c and ws_client.c. One thread at a time; with TLS the program must ignore SIGPIPE.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct client_io {
    int fd; /* owned; non-blocking */
    struct ssl_st *ssl;
    struct ssl_ctx_st *ssl_ctx; /* owned */
    int64_t deadline_ms;
};

/*
 * Takes `fd`. With `tls_name` a TLS handshake follows; the certificate must name it, and the server
 * is asked for the protocol `alpn` ("h2").
 */
must_use int client_io_init(struct client_io *io, int fd, const char *tls_name, const char *alpn,
                            const char *ca_file, int64_t deadline_ms, struct err *err);
void client_io_free(struct client_io *io);

/* Bytes, 0 when the peer closed in order, -1. */
must_use ssize_t client_io_read(struct client_io *io, void *out, size_t len, struct err *err);
/* All of them. ERR_UNAVAILABLE when the peer closed; it may still have answered before that. */
must_use int client_io_write(struct client_io *io, const void *data, size_t len, struct err *err);

/* Without waiting: as client_take and client_give of client.h. */
must_use ssize_t client_io_take(struct client_io *io, void *out, size_t len, struct err *err);
must_use ssize_t client_io_give(struct client_io *io, const void *data, size_t len,
                                struct err *err);
void client_io_shut(struct client_io *io); /* the end of what we write */
/* Are there bytes that were read from the network already? No poll would tell. */
bool client_io_pending(const struct client_io *io);
