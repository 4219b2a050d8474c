/*
 * hosts - which values of the Host header name this server.
 *
 * A page in somebody's browser can make a name of its own resolve to our address (DNS rebinding),
 * but it cannot change the Host header that names it; so only names that are ours are answered.
 * Those are the addresses listened on, localhost for loopback, the machine's own addresses and its
 * host name for a listener on all of them, and whatever the `host` setting adds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"

#define HOSTS_MAX 512

/* Texts live in the arena; `items` ends with NULL. Zero is a valid empty list. */
struct hosts {
    const char *items[HOSTS_MAX + 1];
    size_t count;
};

/* Adds a text unless it is there, or the list is full. */
void hosts_add(struct hosts *hosts, struct arena *arena, const char *text);

/*
 * Adds what names a listener: `text` is its address ("127.0.0.1:8080", "[::]:443", "unix:…").
 * `own` are the machine's host name and addresses, without ports, IPv6 in brackets;
 * NULL-terminated.
 */
void hosts_of_listener(struct hosts *hosts, struct arena *arena, const char *text, bool tls,
                       const char *const *own);

/* The machine's host name and addresses as hosts_of_listener wants them; in the arena. */
const char *const *hosts_own(struct arena *arena);
