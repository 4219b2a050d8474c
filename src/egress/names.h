/*
 * names - which address stands for which name, in one sandbox. Bounded: the name that was used
 * longest ago makes room. Addresses are given out in turn, so that one that a program still
 * remembers is not soon another name's.
 *
 * The table itself is what is kept (egress/kept.h); here are the ways into it.
 */
#pragma once

#include "base/limits.h"
#include "base/list.h"
#include "base/map.h"
#include "egress/kept.h"
#include "policy/host.h"

struct names {
    struct kept *kept;           /* borrowed */
    struct map by_name, by_addr; /* struct name, of names.c */
    struct list used;            /* the one longest ago first */
    unsigned count;
};

/* Of `kept` with whatever is in it; what cannot be is thrown away. */
void names_open(struct names *names, struct kept *kept);
/* Leaves in `kept` what is there. */
void names_free(struct names *names);
/* In the host's order. */
uint32_t names_put(struct names *names, const struct host *host);
/* False when the address stands for nothing. */
must_use bool names_get(struct names *names, uint32_t addr, struct host *out);
