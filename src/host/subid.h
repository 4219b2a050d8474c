/*
 * subid - the further user and group ids that an ordinary user may use, and what hands them out:
 * /etc/subuid and /etc/subgid, and the setuid programs of the package uidmap.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/auto.h"

/* The smallest range that a sandbox can live in: its agent is 1000. */
#define SUBID_USEFUL 1024u
/* More than all sandboxes together can use. */
#define SUBID_MAX (4096u * 65536u)

struct subid_range {
    uint32_t first, count;
};

/*
 * The largest range that a file like /etc/subuid gives to a user, by name (may be NULL) or number;
 * false: none. What is malformed counts as not there.
 */
must_use bool subid_find(const char *path, const char *name, uid_t uid, struct subid_range *out);

/* Everything that mapping a range takes. */
struct subid {
    const char *uid_program, *gid_program; /* newuidmap, newgidmap; NULL: not installed */
    struct subid_range uids, gids;
};
/* Of the calling user. NULL when all is there, otherwise what is not. */
const char *subid_look(struct subid *out);
