/*
 * addr - network addresses as bytes, and which of them no sandbox may reach.
 *
 * An IPv4 address that comes wrapped in an IPv6 one by the kernel (a mapped address of a socket) is
 * unwrapped by addr_from_bytes and nowhere else: everywhere else the wrapping is a class of its
 * own, because a name that leads to one is a trick.
 *
 * ADDR_PUBLIC is the only class that needs no rule. The others are refused unless a rule with an
 * address opens them (policy.h), and those that addr_never() names are refused always: rules that
 * cover them have no effect there. Which addresses are the machine's own is not known here; who
 * connects adds that. Pure; any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum addr_class {
    ADDR_PUBLIC,
    ADDR_UNSPECIFIED,   /* 0.0.0.0/8, :: */
    ADDR_LOOPBACK,      /* 127/8, ::1 */
    ADDR_PRIVATE,       /* RFC 1918, fc00::/7, fec0::/10 */
    ADDR_SHARED,        /* 100.64/10: carriers, and cloud providers' inner services */
    ADDR_LINK_LOCAL,    /* 169.254/16, fe80::/10 */
    ADDR_METADATA,      /* where clouds hand out credentials */
    ADDR_DOCUMENTATION, /* 192.0.2/24 and its like */
    ADDR_BENCHMARK,     /* 198.18/15: what our own DNS answers with */
    ADDR_MULTICAST,
    ADDR_RESERVED, /* and all of IPv6 outside 2000::/3 */
    ADDR_EMBEDDED, /* an IPv4 address inside: mapped, compatible, NAT64, 6to4, Teredo */
    ADDR_CLASSES
};

struct addr {
    uint8_t family;    /* 4 or 6 */
    uint8_t bytes[16]; /* network order; of IPv4 the first four */
};

/* `len` 4 or 16; a mapped address becomes the IPv4 address that it is. */
struct addr addr_from_bytes(const void *bytes, size_t len);
/*
 * inet_pton's forms alone, and of IPv4 only four decimal numbers without leading zeros. No
 * brackets, no zone. False leaves *out alone.
 */
must_use bool addr_parse(struct str text, struct addr *out);
#define ADDR_TEXT_SIZE 46
/* As inet_ntop says it, without brackets. */
void addr_text(const struct addr *addr, char out[ADDR_TEXT_SIZE]);
bool addr_eq(const struct addr *a, const struct addr *b);
/* Is it in base/prefix? Of another family: no. */
bool addr_within(const struct addr *addr, const struct addr *base, unsigned prefix);

enum addr_class addr_class(const struct addr *addr);
const char *addr_class_name(enum addr_class class); /* "link-local" */
/* No rule opens these: they are this machine, nobody, everybody, or credentials. */
bool addr_never(enum addr_class class);
