/* See agent.h. */
#include "model/agent.h"

#include "base/limits.h"

const char *agent_status_name(enum agent_status status)
{
    static const char *const names[AGENT_STATUSES] = { "Unknown", "Starting",     "Ready",
                                                       "Busy",    "Error",        "ShuttingDown",
                                                       "Stale",   "Disconnected", "Provisioning" };

    return (unsigned)status < AGENT_STATUSES ? names[status] : names[0];
}

static void put_text(struct json_out *json, const char *key, const char *text)
{
    if (text && text[0])
        json_kv_text(json, key, text);
}

void agent_metrics_put(struct json_out *json, const struct agent_metrics *metrics)
{
    json_kv_double(json, "cpu_percent", metrics->cpu_percent);
    json_kv_int(json, "memory_used_bytes", metrics->memory_used);
    json_kv_int(json, "memory_total_bytes", metrics->memory_total);
    json_kv_int(json, "disk_used_bytes", metrics->disk_used);
    json_kv_int(json, "disk_total_bytes", metrics->disk_total);
    json_key(json, "load_avg");
    json_open(json, '[');
    for (size_t i = 0; i < ARRAY_LEN(metrics->load_avg) && metrics->load_avg[0] >= 0; i++)
        json_put_double(json, metrics->load_avg[i]);
    json_close(json, ']');
    json_kv_int(json, "uptime_seconds", metrics->uptime_s);
}

static void put_metrics(struct json_out *json, const struct agent_metrics *metrics)
{
    json_key(json, "metrics");
    json_open(json, '{');
    agent_metrics_put(json, metrics);
    json_close(json, '}');
}

static void put_system(struct json_out *json, const struct agent_system *system)
{
    json_key(json, "system_info");
    json_open(json, '{');
    json_kv_text(json, "os", system->os);
    json_kv_text(json, "kernel", system->kernel);
    json_kv_int(json, "cpu_cores", system->cpu_cores);
    json_kv_int(json, "memory_bytes", system->memory_bytes);
    json_kv_int(json, "disk_bytes", system->disk_bytes);
    json_close(json, '}');
}

static void put_frameworks(struct json_out *json, const struct agent_framework *frameworks)
{
    json_key(json, "aiwg_frameworks");
    json_open(json, '[');
    for (; frameworks->name; frameworks++) {
        json_open(json, '{');
        json_kv_text(json, "name", frameworks->name);
        json_key(json, "providers");
        json_open(json, '[');
        for (const char **one = frameworks->providers; one && *one; one++)
            json_put_str(json, str_of(*one));
        json_close(json, ']');
        json_close(json, '}');
    }
    json_close(json, ']');
}

void agent_put(struct json_out *json, const struct agent_view *view)
{
    json_open(json, '{');
    json_kv_text(json, "id", view->id);
    put_text(json, "instance_id", view->instance_id);
    json_kv_text(json, "hostname", view->hostname ? view->hostname : "");
    json_kv_text(json, "ip_address", view->ip_address ? view->ip_address : "");
    put_text(json, "profile", view->profile);
    put_text(json, "loadout", view->loadout);
    json_kv_text(json, "status", agent_status_name(view->status));
    put_text(json, "setup_status", view->setup_status);
    put_text(json, "setup_progress_json", view->setup_progress_json);
    json_kv_int(json, "connected_at", view->connected_at);
    json_kv_int(json, "last_heartbeat", view->last_heartbeat);
    if (view->metrics)
        put_metrics(json, view->metrics);
    if (view->system)
        put_system(json, view->system);
    if (view->frameworks && view->frameworks->name)
        put_frameworks(json, view->frameworks);
    json_kv_text(json, "runtime", view->runtime);
    json_kv_bool(json, "crash_loop", view->crash_loop);
    access_put(json, &view->access, NULL);
    json_close(json, '}');
}

/* ---- commands ---- */

const struct field command_wish_fields[] = {
    FIELD(command_wish, command, F_STRING, F_REQUIRED, .min = 1, .max = LINK_WORD_MAX,
          .help = "The program; with a terminal and no arguments, a line for bash"),
    FIELD(command_wish, args, F_STRINGS, 0, .max = LINK_ARGS_MAX, .each_max = LINK_WORD_MAX,
          .help = "Its arguments"),
    FIELD(command_wish, working_dir, F_STRING, 0, .max = 4095,
          .help = "Where it starts; none means where the agent runs"),
    FIELD(command_wish, env, F_MAP, 0, .max = 256, .each_max = 32768,
          .help = "Variables besides the agent's own"),
    FIELD(command_wish, timeout_seconds, F_INT, 0, .min = 0, .max = LINK_TIMEOUT_MAX_S,
          .help = "Killed after this long; 0 means never"),
    FIELD(command_wish, run_as, F_STRING, 0, .max = 32,
          .help = "Another user of that machine, by sudo"),
    FIELD(command_wish, allocate_pty, F_BOOL, 0, .help = "Give it a terminal"),
    FIELD(command_wish, background, F_BOOL, 0,
          .help = "A note for people and for clients of agentic: nobody means to look at it"),
    FIELD(command_wish, hold, F_BOOL, 0,
          .help = "The command waits for a reader that has to have every byte (agentic.output with "
                  "hold=1); not at agents that are no clients of Atoll"),
    FIELD(command_wish, pty_cols, F_INT, 0, .min = TERM_COLS_MIN, .max = 1000,
          .help = "Columns (80)"),
    FIELD(command_wish, pty_rows, F_INT, 0, .min = TERM_ROWS_MIN, .max = 1000, .help = "Rows (24)"),
    FIELD(command_wish, pty_term, F_STRING, 0, .max = 64, .help = "TERM (xterm-256color)"),
    FIELD(command_wish, session_name, F_STRING, 0, .max = 63, .help = "A name for people"),
    { 0 },
};

int command_wish_settle(struct command_wish *wish, struct err *err)
{
    for (const struct field_pair *pair = wish->env; pair && pair->key; pair++)
        if (!pair->key[0] || strchr(pair->key, '='))
            return err_field(err, "env", "\"%.32s\" is no name of a variable", pair->key);
    if (wish->working_dir && wish->working_dir[0] && wish->working_dir[0] != '/' &&
        wish->working_dir[0] != '~')
        return err_field(err, "working_dir", "must begin with '/' or be '~'");
    if (!wish->pty_cols)
        wish->pty_cols = 80;
    if (!wish->pty_rows)
        wish->pty_rows = 24;
    return 0;
}

const struct field command_fields[] = {
    FIELD(command_view, command_id, F_STRING, F_READONLY, .help = "A UUID"),
    FIELD(command_view, agent_id, F_STRING, F_READONLY, .help = "Where it runs"),
    FIELD(command_view, state, F_ENUM, F_READONLY, .choices = "running|exited|lost",
          .help = "lost: its agent came back without it, or did not come back"),
    FIELD(command_view, command, F_STRING, F_READONLY, .help = "Program and arguments"),
    FIELD(command_view, session_name, F_STRING, F_READONLY, .help = "As it was named"),
    FIELD(command_view, pty, F_BOOL, F_READONLY, .help = "It has a terminal"),
    FIELD(command_view, background, F_BOOL, F_READONLY, .help = "As it was wished for"),
    FIELD(command_view, exit_code, F_INT, F_READONLY,
          .help = "As a shell says it; -1 while it runs, when lost and when it could not start"),
    FIELD(command_view, error, F_STRING, F_READONLY, .help = "Why it did not end by itself"),
    FIELD(command_view, gap, F_BOOL, F_READONLY,
          .help = "The agent left out bytes: what is kept is not all of the output"),
    FIELD(command_view, duration_ms, F_INT, F_READONLY, .help = "As the agent measured it"),
    FIELD(command_view, stdout_bytes, F_INT, F_READONLY, .help = "Output so far"),
    FIELD(command_view, stderr_bytes, F_INT, F_READONLY, .help = "Errors so far"),
    FIELD(command_view, by, F_STRING, F_READONLY, .help = "Who ran it"),
    FIELD(command_view, started_at, F_TIME, F_READONLY, .help = "When it was asked for"),
    FIELD(command_view, ended_at, F_TIME, F_READONLY, .help = "When its end was heard of"),
    { 0 },
};
