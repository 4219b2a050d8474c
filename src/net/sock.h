/*
 * sock - addresses as text, listening and connecting sockets.
 *
 * An address is "127.0.0.1:8080", "[::1]:8080", "localhost:8080" (127.0.0.1), ":8080" (127.0.0.1)
 * or "unix:/path". A listener is exact: other names are refused. sock_connect resolves them. Any
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/str.h"

#define SOCK_TEXT_SIZE 512 /* longest address text, with the NUL */

struct sock_addr {
    bool unix_socket;
    char path[SOCK_TEXT_SIZE]; /* of a Unix socket */
    struct sockaddr_storage inet;
    socklen_t inet_len;
};

must_use int sock_parse(const char *text, struct sock_addr *out, struct err *err);

/*
 * A listening socket, close-on-exec and non-blocking. `actual` gets the address with the port that
 * the kernel chose when 0 was asked for. A Unix socket file left behind by a dead server is
 * replaced; one that somebody still listens on is ERR_CONFLICT; anything else that stands there is
 * left alone and refused. The socket file has mode 0600 from its first instant.
 */
must_use int sock_listen(const char *text, int backlog, char actual[SOCK_TEXT_SIZE],
                         struct err *err);

/* A connected, blocking, close-on-exec socket, for the command line. */
must_use int sock_connect(const char *text, int timeout_ms, struct err *err);
