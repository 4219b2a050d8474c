/* signals - signals without a meaning for our processes, which must not end them. */
#pragma once

#include <signal.h>

/*
 * Adds them to the set, to be blocked. Blocked rather than ignored: what a process is started with
 * is put right for every command of a sandbox, and so is the mask.
 */
void signals_add_meaningless(sigset_t *set);

/* What the server's own processes begin with, before they have threads: the warden alone hears. */
void signals_block(void);
