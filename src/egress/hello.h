/*
 * hello - the first message of a TLS client: is it one, and whom does it want? Pure, any bytes.
 *
 * Strict: one record that holds the whole message and nothing else, every length exact, at most one
 * server name, which is a name by host.h. With an encrypted message inside, the outer name is what
 * counts: it is the one that the far end is reached by.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "policy/host.h"

#define HELLO_MAX (5 + 16384) /* a record */

enum hello {
    HELLO_BAD = -1, /* not TLS, or not as it must be */
    HELLO_MORE,     /* fine as far as it goes */
    HELLO_NAMED,    /* *host is the server's name */
    HELLO_UNNAMED,  /* it names none */
};

enum hello hello_read(const uint8_t *data, size_t len, struct host *host);
