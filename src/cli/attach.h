/* attach - this terminal joined to one in a sandbox. */
#pragma once

#include "cli/sandbox.h"

#define DETACH_KEYS "ctrl-p,ctrl-q"

/*
 * Until the command ends (its exit status), the detach keys are typed (0) or a signal comes. `path`
 * is the terminal's, under /api/v1; flags --observe, --take and --detach-keys count where the
 * command has them. From its first byte, or from a picture of its screen.
 */
must_use int attach_to(struct cli *cli, const char *path, bool from_start, struct err *err);
/* Keys as bytes; -1 when they make no sense. */
must_use int attach_keys(const char *text, char *keys, size_t max, size_t *count);

#define ATTACH_FLAGS                                                                               \
    {                                                                                              \
        "detach-keys", "KEYS", "What is typed to leave it running (ctrl-p,ctrl-q); \"\" for none"  \
    }
