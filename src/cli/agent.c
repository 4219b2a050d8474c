/* The client of the agent link. Flags go before the environment, and that before a file of it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/agent.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"

#define ENV_FILE "/etc/agentic-sandbox/agent.env"
#define ENV_FILE_MAX 65536
#define HEARTBEAT_S 30

/* KEY=VALUE lines; what the environment has already stays. */
static int read_env_file(struct cli *cli, struct err *err)
{
    const char *named = cli_text(cli, "env-file"), *path = named ? named : ENV_FILE;
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = arena_alloc(&cli->arena, ENV_FILE_MAX);

    if (fd < 0 && !named)
        return 0;
    ssize_t got = fd < 0 ? -1 : read(fd, text, ENV_FILE_MAX - 1);
    if (got < 0)
        return err_sys(err, "read %s", path);
    struct str rest = { text, (size_t)got };
    while (rest.n) {
        struct str value = str_trim(str_cut(&rest, '\n'));
        struct str key = str_trim(str_cut(&value, '='));

        if (!key.n || key.p[0] == '#' || !value.p)
            continue;
        if (value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"')
            value = (struct str){ value.p + 1, value.n - 2 };
        setenv(arena_memdup0(&cli->arena, key.p, key.n),
               arena_memdup0(&cli->arena, value.p, value.n), 0);
    }
    return 0;
}

static const char *pick(struct cli *cli, const char *flag, const char *variable,
                        const char *otherwise)
{
    const char *value = flag ? cli_text(cli, flag) : NULL;

    if (!value)
        value = getenv(variable);
    return value && value[0] ? value : otherwise;
}

static const char *own_hostname(struct cli *cli)
{
    char name[256] = "";

    gethostname(name, sizeof(name) - 1);
    return arena_strdup(&cli->arena, name);
}

static const char *default_dir(struct cli *cli, const char *id)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    if (geteuid() == 0)
        return arena_printf(&cli->arena, "/var/lib/atoll-agent-%s", id);
    if (state && state[0])
        return arena_printf(&cli->arena, "%s/atoll-agent-%s", state, id);
    return arena_printf(&cli->arena, "%s/.atoll-agent-%s", home ? home : ".", id);
}

/* "HOST:PORT" as agentic writes it, or a URL. */
static int parse_server(struct cli *cli, const char *text, struct client_target *out,
                        struct err *err)
{
    if (!strstr(text, "://") && strncmp(text, "unix:", 5) != 0)
        text = arena_printf(&cli->arena, "http://%s", text);
    return client_target_parse(text, out, err);
}

static int check_id(const char *id, struct err *err)
{
    if (strchr(id, '/') || id[0] == '.' || strlen(id) > SECRET_NAME_MAX)
        return err_field(err, "agent-id", "\"%.80s\" is no name of an agent", id);
    return 0;
}

/* A time, or as agentic has it a number of seconds. */
static int read_heartbeat(struct cli *cli, int64_t *out, struct err *err)
{
    const char *flag = cli_text(cli, "heartbeat");
    const char *text = flag ? flag : getenv("HEARTBEAT_INTERVAL");
    uint64_t seconds = HEARTBEAT_S;

    if (flag && !str_to_u64(str_of(flag), &seconds))
        return cli_ms(cli, "heartbeat", 0, out, err);
    if (text && (!str_to_u64(str_of(text), &seconds) || seconds < 1 || seconds > 3600))
        return err_set(err, ERR_INVALID, "%s must be 1 to 3600 seconds",
                       flag ? "--heartbeat" : "HEARTBEAT_INTERVAL");
    *out = (int64_t)seconds * 1000;
    return 0;
}

/* As agentic's client is told to: "debug", or "info,other=debug", of which the first word counts.
 */
static void set_up_log(const struct cli *cli)
{
    const char *format = getenv("LOG_FORMAT"), *level = getenv("RUST_LOG");
    enum log_level least = LOG_INFO;

    for (enum log_level at = LOG_DEBUG; level && at <= LOG_ERROR; at++)
        if (str_starts(str_of(level), str_of(log_level_name(at))))
            least = at;
    log_setup(least, cli->json || (format && strcmp(format, "json") == 0) ? LOG_JSON : LOG_TEXT,
              "agent");
}

static int client_run(struct cli *cli, struct err *err)
{
    struct agent_options options = { 0 };

    if (read_env_file(cli, err) < 0)
        return -1;
    const char *server = pick(cli, "server", "MANAGEMENT_SERVER", "host.internal:8120");
    options.id = pick(cli, "agent-id", "AGENT_ID", own_hostname(cli));
    options.secret = pick(cli, "secret", "AGENT_SECRET", NULL);
    if (options.secret)
        options.secret = arena_strdup(&cli->arena, options.secret);
    unsetenv("AGENT_SECRET"); /* keepers and commands do not get it */
    if (!options.secret)
        return cli_usage(cli, err,
                         "a secret is needed: AGENT_SECRET, or --secret; "
                         "`POST /api/v1/secrets` makes one");
    options.instance_id =
        pick(cli, NULL, "AGENT_INSTANCE_ID", pick(cli, NULL, "AIWG_INSTANCE_ID", ""));
    options.profile = pick(cli, NULL, "AGENT_PROFILE", "");
    options.loadout = pick(cli, NULL, "AGENT_LOADOUT", "");
    options.setup_dir = pick(cli, NULL, "AGENT_SETUP_DIR", "/var/run");
    options.ca_file = pick(cli, "ca", "ATOLL_CA", NULL);
    if (check_id(options.id, err) < 0 || parse_server(cli, server, &options.target, err) < 0 ||
        read_heartbeat(cli, &options.heartbeat_ms, err) < 0 ||
        cli_ms(cli, "retry", 1000, &options.retry_ms, err) < 0)
        return -1;
    options.retry_ms = MAX(options.retry_ms, (int64_t)10);
    options.dir = cli_text(cli, "dir") ? cli_text(cli, "dir") : default_dir(cli, options.id);
    set_up_log(cli);
    return agent_run(&options, err);
}

static const struct cli_flag client_flags[] = {
    { "server", "ADDRESS", "HOST:PORT, a URL, or unix:/PATH (MANAGEMENT_SERVER)" },
    { "agent-id", "NAME", "Who we are (AGENT_ID, or the host's name)" },
    { "secret", "SECRET", "Better given as AGENT_SECRET, where others cannot see it" },
    { "heartbeat", "TIME", "Until the server says otherwise (HEARTBEAT_INTERVAL in seconds, 30s)" },
    { "retry", "TIME", "First pause before connecting again; doubles up to a minute (1s)" },
    { "env-file", "FILE", "KEY=VALUE lines for what is not in the environment (" ENV_FILE ")" },
    { "dir", "DIR", "Where commands and their output are kept until the server has them" },
    { 0 },
};

const struct command cmd_agent_client = {
    .name = "agent-client",
    .help = "Connect this machine to a server as an agent, and run what it is told to.",
    .more =
        "Commands run in processes of their own, which outlive this one: it may be killed and "
        "started again, and the server may be away, without a command ending or a byte of output "
        "being lost or sent twice. SIGHUP connects anew; SIGTERM leaves, and commands go on.\n\n"
        "The secret is made by POST /api/v1/secrets with the agent's id, and shown once. A secret "
        "that the server gives later (rotation) is kept in the directory.\n\n"
        "LOG_FORMAT=json and RUST_LOG (debug, info, warn, error) are about what it logs.\n\n"
        "Example:\n  AGENT_SECRET=… atoll agent-client --server 10.0.0.1:8080 --agent-id agent-01",
    .flags = client_flags,
    .run = client_run,
};
