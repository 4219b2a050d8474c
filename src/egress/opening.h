/*
 * opening - the protocol that the first bytes of a client belong to. Pure, any bytes.
 *
 * A tunnel carries only what its rule names, so its bytes must be of a protocol that says which
 * host it is for, and that can be read here: TLS (hello.h) or HTTP/1 (http.c). SSH has no names at
 * all: one address and port is one server.
 */
#pragma once

#include "base/str.h"

#define OPENING_LINE_MAX 16384 /* bytes of the first line, while its end has not come */

enum opening {
    OPENING_MORE, /* more bytes are needed */
    OPENING_TLS,  /* a record of a handshake; hello_read says whether the message is valid */
    OPENING_HTTP, /* a request line of HTTP/1 */
    OPENING_HTTP2,
    OPENING_SSH,
    OPENING_OTHER,
};

enum opening opening_of(struct str data);
