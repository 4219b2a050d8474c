/* attach - this terminal joined to one in a sandbox. */
#pragma once

#include "cli/sandbox.h"

#define DETACH_KEYS "ctrl-p,ctrl-q"

struct attach_how {
    bool observe;     /* only watch */
    int64_t position; /* the first byte to show; ATTACH_PICTURE: what the screen shows now */
};
#define ATTACH_PICTURE (-1)

/*
 * Until the command ends (its exit status), the detach keys are typed (0) or a signal comes. `path`
 * is the terminal's, under /api/v1; flags --take and --detach-keys count where the command has
 * them.
 */
must_use int attach_to(struct cli *cli, const char *path, struct attach_how how, struct err *err);
/* Is there a terminal to attach? Says what is wrong otherwise. */
must_use int attach_check(struct cli *cli, struct err *err);
/* The asciicast of the terminal at `path`, to --output or standard output. */
must_use int terminal_record(struct cli *cli, const char *path, struct err *err);
/* Keys as bytes; -1 when they make no sense. */
must_use int attach_keys(const char *text, char *keys, size_t max, size_t *count);

#define ATTACH_FLAGS                                                                               \
    {                                                                                              \
        "detach-keys", "KEYS", "What is typed to leave it running (ctrl-p,ctrl-q); \"\" for none"  \
    }
