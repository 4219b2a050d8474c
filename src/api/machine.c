/*
 * What the server runs on and what it allows: the answers of `atoll doctor` at its start, which
 * another process left in a file (daemon/report.h), and the limits that are enforced, each under
 * the name of the field or setting it is about.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "api/own.h"

#define DOCTOR_FILE "doctor.json" /* STATE_DOCTOR, in the data directory */
#define DOCTOR_MAX 65536

static int doctor_get(struct call *call, struct err *err)
{
    const char *path = arena_printf(&call->arena, "%s/" DOCTOR_FILE, call->api->options.data_dir);
    autoclose int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char *text = arena_alloc(&call->arena, DOCTOR_MAX);

    if (fd < 0 && errno == ENOENT)
        return err_set(err, ERR_UNAVAILABLE, "the checks of this start have not ended yet");
    ssize_t len = fd < 0 ? -1 : read(fd, text, DOCTOR_MAX);
    if (len <= 0)
        return err_sys(err, "read what the checks said");
    buf_str(&call->reply, (struct str){ text, (size_t)len });
    return 0;
}

/* ---- limits ---- */

enum unit { COUNT, BYTES, MS, PER_SECOND };
static const char *const units[] = { "count", "bytes", "ms", "per second" };

struct limit {
    const char *of, *name;
    enum unit unit;
    int64_t least, most; /* -1: has none */
    const char *help;
};

/* clang-format off */
static const struct limit limits[] = {
    { "a sandbox", "memory", BYTES, SANDBOX_MEMORY_MIN, SANDBOX_MEMORY_MAX, "Memory that may be asked for" },
    { "a sandbox", "pids", COUNT, SANDBOX_PIDS_MIN, SANDBOX_PIDS_MAX, "Processes and threads" },
    { "a sandbox", "disk", BYTES, SANDBOX_DISK_MIN, SANDBOX_DISK_MAX, "What it writes" },
    { "a sandbox", "io_bytes", BYTES, SANDBOX_IO_BYTES_MIN, SANDBOX_IO_BYTES_MAX, "Of each disk, in a second" },
    { "a sandbox", "io_ops", PER_SECOND, SANDBOX_IO_OPS_MIN, SANDBOX_IO_OPS_MAX, "Of each disk" },
    { "a sandbox", "execs_running", COUNT, -1, EXECS_RUNNING_MAX, "Commands at once" },
    { "a sandbox", "execs_kept", COUNT, -1, EXECS_KEPT_MAX, "Ended commands that are remembered" },
    { "a sandbox", "connections", COUNT, -1, EGRESS_CONNS_MAX, "Connections out of it at once" },
    { "a sandbox", "asks_pending", COUNT, -1, ASKS_PENDING_MAX, "Questions that wait for an answer" },
    { "a sandbox", "egress_records", PER_SECOND, -1, EGRESS_RECORDS_PER_SECOND, "Decisions kept; more are counted" },
    { "a command", "timeout_ms", MS, 1, EXEC_TIMEOUT_MAX_MS, "Its time limit" },
    { "a command", "output", BYTES, -1, SPOOL_RING, "Newest bytes kept of each stream" },
    { "a terminal", "viewers", COUNT, -1, TERM_VIEWERS_MAX, "Attached at once" },
    { "a terminal", "controllers", COUNT, 1, TERM_CONTROLLERS_MAX, "Who may type at once" },
    { "the server", "tokens", COUNT, -1, TOKENS_MAX, "Not revoked" },
    { "a tenant", "volumes", COUNT, -1, DISKS_NAMED_MAX, "And as many snapshots" },
    { "a tenant", "templates", COUNT, -1, TEMPLATES_MAX, "Of sandboxes" },
    { "a tenant", "images", COUNT, -1, IMAGES_MAX, "Imported" },
    { "a tenant", "secrets", COUNT, -1, SECRETS_MAX, "Sealed values" },
    { "a tenant", "agents", COUNT, -1, HUB_AGENTS_MAX, "Registered at the hub" },
    { "a tenant", "projects", COUNT, -1, HUB_PROJECTS_MAX, "With a board each" },
    { "a project", "tasks", COUNT, -1, HUB_TASKS_MAX, "On its board" },
    { "a project", "files", BYTES, -1, HUB_PROJECT_BYTES, "All versions together" },
    { "a project", "comments", COUNT, -1, HUB_COMMENTS_MAX, "Of one task" },
    { "the server", "body", BYTES, -1, HTTP_BODY_DEFAULT_MAX, "Of a request, unless its route takes files" },
    { "the server", "connections", COUNT, -1, HTTP_CONNS_MAX, "Of clients, at once" },
    { "the server", "event_streams", COUNT, -1, SUBSCRIBERS_MAX, "At once" },
    { "the server", "events", COUNT, -1, EVENT_KEEP_ROWS, "Kept, of those that are not too old" },
    { "the server", "page", COUNT, 1, PAGE_MAX, "Rows of one answer" },
    { "the server", "failed_logins", COUNT, -1, AUTH_FAILS_PER_MIN, "Of one peer in a minute" },
};
/* clang-format on */

static void put_limit(struct json_out *json, const struct limit *limit, const char *setting)
{
    json_open(json, '{');
    json_kv_text(json, "of", limit->of);
    json_kv_text(json, "name", limit->name);
    json_kv_text(json, "unit", units[limit->unit]);
    if (limit->least >= 0)
        json_kv_int(json, "least", limit->least);
    json_kv_int(json, "most", limit->most);
    json_kv_text(json, "setting", setting);
    json_kv_text(json, "help", limit->help);
    json_close(json, '}');
}

static int limits_get(struct call *call, struct err *err)
{
    const struct api_options *options = &call->api->options;
    const struct limit said[] = {
        { "the server", "sandboxes_max", COUNT, -1, options->sandboxes_max,
          "Sandboxes that are not deleted" },
        { "the server", "rate_per_second", PER_SECOND, -1, options->rate_per_second,
          "Requests of one caller" },
        { "the server", "rate_burst", COUNT, -1, options->rate_burst,
          "Of these at once, after a rest" },
        { "the server", "event_keep", MS, -1, options->event_keep_ms,
          "For how long events can be read again" },
    };
    struct json_out json = call_json(call);

    (void)err;
    json_open_list(&json, "items");
    for (size_t i = 0; i < ARRAY_LEN(said); i++)
        put_limit(&json, &said[i], said[i].name);
    for (size_t i = 0; i < ARRAY_LEN(limits); i++)
        put_limit(&json, &limits[i], NULL);
    json_close_list(&json);
    return 0;
}

const struct route machine_routes[] = {
    { .name = "doctor.read",
      .method = "GET",
      .path = "/api/v1/doctor",
      .on = ON_READER,
      .roles = ROLE_STEER,
      .fn = doctor_get,
      .flags = ROUTE_NODE,
      .summary = "What `atoll doctor` found when the server started: `ok`, `at`, and `items` with "
                 "`name`, `state` (ok, lost, fail, unknown), `found`, `lost` and `fix`. 503 until "
                 "the checks have ended." },
    { .name = "limits.read",
      .method = "GET",
      .path = "/api/v1/limits",
      .on = ON_LOOP,
      .roles = ROLE_ANY,
      .fn = limits_get,
      .summary = "What this server allows: `items` with `of`, `name`, `unit`, `least`, `most`, "
                 "`help`, and the `setting` that says it, or null." },
    { 0 },
};
