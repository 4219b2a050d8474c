/*
 * rootless - an ordinary user's server enters a user namespace before it becomes the warden: there
 * it is root, and has a range of further user ids for its sandboxes.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

#define ROOTLESS_NONE (-1) /* no namespace was entered */

/*
 * Enters the namespace: the one of sandboxes of this state directory that still run, or else a new
 * one. *state_fd is opened again in the mount namespace that comes with it. How many ids there are
 * besides our own, or ROOTLESS_NONE with *err: then nothing has changed. A failure after which one
 * cannot go on ends the process.
 */
int64_t rootless_enter(int *state_fd, struct err *err);
