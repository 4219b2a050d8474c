/*
 * probe - what this machine can do, for `atoll doctor` and for deciding what to use.
 *
 * Each check tries the thing itself (the system call, the mount, the open) in a short-lived child
 * or on a scratch object, never guesses from a version, and leaves nothing behind. Where only a
 * version can be known, the result says so. Any thread but forks: call it before threads start or
 * from the command line.
 */
#pragma once

#include <stddef.h>

#include "base/json.h"

enum probe_state {
    PROBE_OK,
    PROBE_LOST,    /* works without it; `lost` says what is missing then */
    PROBE_FAIL,    /* the server cannot work (or not safely) like this */
    PROBE_UNKNOWN, /* could not be told; `lost` says why, `fix` how to find out */
};

struct probe_result {
    const char *name; /* short and stable, as allow_degraded knows it: "landlock"; static */
    enum probe_state state;
    char found[160]; /* what is there: "ABI 7" */
    char lost[240];  /* what is lost without it; empty when ok */
    char fix[240];   /* how to get it; empty when ok */
};

#define PROBES_MAX 48

/*
 * Runs every check and fills `out`, at most `max`; the number of results. `state_dir` need not
 * exist yet: its nearest existing parent is looked at.
 */
size_t host_probe(const char *state_dir, struct probe_result *out, size_t max);

/* {"ok", "at", "items": […]}; ok unless one has failed, `at` is left out when it is NULL. */
void probe_json(struct json_out *json, const struct probe_result *results, size_t count,
                const char *at);

/* "ok", "lost", "fail", "unknown". */
const char *probe_state_name(enum probe_state state);
