/*
 * agent - the client of the agent link: `atoll agent-client`.
 *
 * It connects to a server, says who it is, and runs what it is told to, in keepers (keeper.h) that
 * outlive it. Whatever the server has not acknowledged is kept, and said again after a cut.
 */
#pragma once

#include "http/client.h"

struct agent_options {
    struct client_target target;
    const char *id, *secret;
    const char *instance_id, *profile, *loadout; /* "" for none */
    const char *dir;                             /* ours: commands, and a secret that was changed */
    const char *setup_dir;
    const char *ca_file;  /* NULL: the system's */
    int64_t heartbeat_ms; /* until the server says otherwise */
    int64_t retry_ms;     /* first pause before connecting again; doubles up to a minute */
};

/* Until it is told to end: an exit status, or -1. */
must_use int agent_run(const struct agent_options *options, struct err *err);
