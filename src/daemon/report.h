/*
 * report - what `atoll doctor` says of this machine, for those who look at the server from
 * elsewhere.
 *
 * The checks try things that only the user who starts the server may do, so neither the warden nor
 * the api process can run them. `atoll serve` lets a process of their own do it at its start, which
 * leaves the answer in STATE/data/doctor.json and ends; nobody waits for it.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/*
 * `data_fd` is the data directory, `owner` whose the file is to be (-1: ours). Before the server is
 * in a user namespace of its own: the machine is to be looked at, not that. Failing is no reason
 * not to serve.
 */
void report_begin(const char *state_dir, int data_fd, int64_t owner);
