/*
 * jail - what the api and the egress process give up before they read a byte from anyone.
 *
 * Landlock leaves the api process one directory and the egress process none; seccomp leaves the one
 * the system calls of a server that neither starts programs nor opens connections, the other those
 * of a relay that opens connections and no files; they leave no core and cannot be read by others
 * of their user. There is no way out. A layer that this machine cannot give ends the start with an
 * error that names it, unless the operator allowed its loss.
 *
 * Landlock holds for the calling thread and those it starts later: enter before threads start.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct jail {
    bool egress;                       /* who it is for: otherwise the api process */
    int data_fd;                       /* the one directory; borrowed. Of the egress process: -1 */
    const char *const *allow_degraded; /* layers that may be missing; NULL-terminated, or NULL */
};

/* How many layers were lost (allowed, and logged), or -1. */
must_use int jail_enter(const struct jail *jail, struct err *err);

/* The layers by themselves; jail_enter's table calls them. */
must_use int jail_process(const struct jail *jail, struct err *err);  /* "no_new_privs" */
must_use int jail_landlock(const struct jail *jail, struct err *err); /* "landlock" */
must_use int jail_seccomp(const struct jail *jail, struct err *err);  /* "seccomp" */

/* The kernel's Landlock version, or 0. */
int jail_landlock_abi(void);
