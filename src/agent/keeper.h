/*
 * keeper - one process for each command, which outlives the client that started it.
 *
 * It owns the command, its pipes or terminal, and appends what comes out to files of the command's
 * directory, where a byte's place is its position. The client only reads these files, so it may be
 * killed and started again at any moment. What the client wants of the keeper comes by a socket in
 * the same directory.
 *
 *   spec     CommandRequest, as the server sent it; written first, by the client
 *   out err  what came out, by position; holes where it was acknowledged
 *   result   CommandResult; its presence says that the command has ended and all output is there
 *   ctl      the socket
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

#define KEEPER_DIR_FD 3
#define KEEPER_DATA_MAX 65536

enum keeper_verb {
    KEEPER_INPUT = 1, /* data for its standard input */
    KEEPER_EOF,       /* nothing more follows there */
    KEEPER_SIGNAL,    /* number: to the whole group */
    KEEPER_SIZE,      /* number: rows, position: columns */
    KEEPER_ACK,       /* number: stream, position: what is before may go */
    KEEPER_MORE,      /* from the keeper: look at the files */
};

struct keeper_msg {
    uint32_t verb, number;
    uint64_t position;
    /* data follows */
};

/* The program's role `agent-keep`: the command's directory is KEEPER_DIR_FD. */
int keeper_main(void);

/* For the client: starts a keeper for the command whose spec is in `dir`. */
must_use int keeper_start(int dir, struct err *err);
/* Its socket, or -1: it is not there (any more). Non-blocking. */
int keeper_connect(int dir);
