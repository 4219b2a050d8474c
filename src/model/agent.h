/*
 * agent - the nouns agent (an instance as agentic knows it) and command: what is shown, and in
 * which words. No I/O. Texts are borrowed.
 */
#pragma once

#include "model/access.h"

enum agent_status { /* the numbers of AgentStatus in proto/agentic */
                    AGENT_UNKNOWN,
                    AGENT_STARTING,
                    AGENT_READY,
                    AGENT_BUSY,
                    AGENT_ERROR,
                    AGENT_SHUTTING_DOWN,
                    AGENT_STALE,
                    AGENT_DISCONNECTED,
                    AGENT_PROVISIONING,
                    AGENT_STATUSES
};
const char *agent_status_name(enum agent_status status);

struct agent_metrics {
    double cpu_percent, load_avg[3]; /* load_avg[0] below 0: not told */
    int64_t memory_used, memory_total, disk_used, disk_total, uptime_s;
};

struct agent_system {
    const char *os, *kernel;
    int64_t cpu_cores, memory_bytes, disk_bytes;
};

struct agent_framework {
    const char *name;
    const char **providers; /* NULL-terminated */
};

struct agent_view {
    const char *id, *instance_id, *hostname, *ip_address, *profile, *loadout;
    enum agent_status status;
    const char *setup_status, *setup_progress_json;
    int64_t connected_at, last_heartbeat; /* Unix milliseconds, as agents have them */
    const struct agent_metrics *metrics;  /* NULL: not told */
    const struct agent_system *system;
    const struct agent_framework *frameworks; /* ended by a NULL name; NULL: none */
    const char *runtime;                      /* "link": connected from elsewhere; "sandbox" */
    bool crash_loop;
    struct access access; /* of a linked one; members that were not set are left out */
};

/* Members of an object that is open. */
void agent_metrics_put(struct json_out *json, const struct agent_metrics *metrics);
/* What is empty is left out, as agentic does it. */
void agent_put(struct json_out *json, const struct agent_view *view);

/* ---- commands of a linked agent ---- */

struct command_wish {
    const char *command;
    const char **args; /* NULL: none */
    const char *working_dir, *run_as, *pty_term, *session_name;
    struct field_pair *env;
    int64_t timeout_seconds, pty_cols, pty_rows;
    bool allocate_pty, background, hold;
};
extern const struct field command_wish_fields[];
/* What no table can say. */
must_use int command_wish_settle(struct command_wish *wish, struct err *err);

struct command_view {
    const char *command_id, *agent_id, *state, *command, *error, *by, *session_name;
    bool pty, background, gap;
    int64_t exit_code, duration_ms, stdout_bytes, stderr_bytes, started_at, ended_at;
};
extern const struct field command_fields[];
