/*
 * kept - what of a sandbox outlives this process: which address stands for which name, and how many
 * bytes it has used. It is memory that the warden holds and hands to the next egress process, so a
 * program inside that remembers an address, and a limit, notice nothing of our death.
 *
 * A process may be killed between any two writes: a name counts when its address is written, which
 * is last. What is found is checked like what a stranger says.
 */
#pragma once

#include "base/limits.h"
#include "policy/host.h"
#include "wire/egress.h"

struct kept_name {
    uint32_t addr; /* 0: this place is free */
    uint8_t zero[2];
    char text[HOST_TEXT_SIZE]; /* NUL-terminated */
    uint64_t used;             /* the turn of its last use */
};

struct kept {
    uint64_t bytes; /* sent and received */
    uint64_t turn;  /* counts uses of names */
    uint32_t next;  /* address to be given out, without the network's part */
    uint32_t top;   /* places that were ever used: what lies behind was never touched */
    struct kept_name names[EGRESS_NAMES_MAX];
};
_Static_assert(sizeof(struct kept) <= EGRESS_KEPT_SIZE, "it fits into what the warden makes");

/* What is in `fd`, or new memory of this process alone when that is -1. Never NULL. */
struct kept *kept_open(int fd);
void kept_close(struct kept *kept);
