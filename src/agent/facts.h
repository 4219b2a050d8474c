/* facts - what a machine says about itself, for registration and heartbeats. One thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"

struct facts {
    char hostname[256], os[256], kernel[256];
    int cpu_cores;
    int64_t memory_total, disk_total;
};
void facts_read(struct facts *out);

/*
 * What a loadout left in ~/.loadout-manifest.json under `aiwg_frameworks`: the root of the list, or
 * NULL. What a server would refuse (limits.h) is for the caller to leave out.
 */
const struct json *facts_frameworks(struct arena *arena);

struct facts_now {
    double cpu_percent, load_avg[3];
    int64_t memory_used, memory_total, disk_used, disk_total, uptime_s;
};
/* cpu_percent is since the last call. */
void facts_now(struct facts_now *out);

/*
 * How far its setup is, by the files that setup scripts leave in `dir`: agentic-setup-complete and
 * agentic-setup-progress.json. A machine with neither was not set up by such a script: it is ready.
 */
struct facts_setup {
    char status[256];
    char progress[16385];
    bool ready;
};
void facts_setup(const char *dir, struct facts_setup *out);
