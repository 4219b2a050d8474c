/*
 * dns - questions of a sandbox's programs, and what they are answered: pure, any bytes.
 *
 * Nobody is ever asked on the way: a name gets an address that means this name in this sandbox and
 * nothing outside (names.h). So a question carries nothing out, and whether the name exists or is
 * allowed is found out by who connects.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "policy/host.h"

#define DNS_ANSWER_MAX 512
#define DNS_TTL_S 30

/* The address for a name, in the host's order; 0: there is none to be had. */
typedef uint32_t dns_name_fn(void *ctx, const struct host *host);

/*
 * Composes the answer to one message; its length, or 0 when it deserves none. `name` is called once
 * at most, for a question about an IPv4 address of a well-formed name.
 */
size_t dns_answer(const uint8_t *ask, size_t len, dns_name_fn *name, void *ctx,
                  uint8_t out[DNS_ANSWER_MAX]);
