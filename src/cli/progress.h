/*
 * progress - how much of a copy went by and how fast, on a terminal alone: one line on standard
 * error that is written over. What moves bytes says so by cli->moved. One copy at a time.
 */
#pragma once

#include "cli/cli.h"

/* Without a terminal, or with --json, nothing is shown. */
void progress_begin(struct cli *cli);
/* `keep`: the line stays, as it was at the end; otherwise it goes. Fine without a begin. */
void progress_end(struct cli *cli, bool keep);
