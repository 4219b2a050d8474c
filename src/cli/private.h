/*
 * private - a server of our own, for as long as one command runs.
 *
 * Where no server is to be found, `atoll run` starts one: a state directory of its own, its Unix
 * socket and no other listener. Between us and it stands a keeper, a process of its own session
 * that holds nothing but the server: when its standard input ends, because we said so or because
 * we were killed, it removes the sandboxes, stops the server and removes the directory.
 */
#pragma once

#include <sys/types.h>

#include "cli/cli.h"

struct private_server {
    pid_t keeper; /* 0: none */
    int end;      /* closing it ends everything */
};
#define PRIVATE_NONE ((struct private_server){ .end = -1 })

/* Starts one and makes it cli's server. *out is PRIVATE_NONE before. */
must_use int private_start(struct cli *cli, struct private_server *out, struct err *err);
/* Ends it and waits until everything of it is gone. */
void private_stop(struct private_server *server);

/* Is there nobody at the place where a server would be, and did nobody name a place? */
bool private_wanted(struct cli *cli, struct err *err);
