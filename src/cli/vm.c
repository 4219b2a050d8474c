/*
 * What agentic's command line does that takes a while: the server answers 202 with an operation,
 * and --wait asks how far it is until it is over.
 */
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"

#define ASK_MS 100
#define ASK_MAX_MS 5000
#define WAIT_MS 300000

#define OPERATION_LINES "id,type,status,target,progress_percent,error,created_at,completed_at"

/* ---- operations ---- */

static int wait_for(struct cli *cli, const char *id, struct err *err)
{
    int64_t limit, begun = clock_mono_ms(), pause = ASK_MS;
    const struct json *reply;

    if (cli_ms(cli, "timeout", WAIT_MS, &limit, err) < 0)
        return -1;
    for (;;) {
        if (cli_get(cli, &reply, err, "/api/v1/operations/%s", cli_escape(cli, id)) < 0)
            return err_wrap(err, "operation %s", id);
        struct str status = json_text(reply, "status");
        if (!str_is(status, "pending") && !str_is(status, "running")) {
            (void)cli_details(cli, reply, OPERATION_LINES);
            return str_is(status, "completed") ? EXIT_OK : EXIT_ERROR;
        }
        if (clock_mono_ms() - begun > limit)
            return err_set(err, ERR_TIMEOUT, "operation %s goes on: %lld %% are done", id,
                           (long long)json_num(reply, "progress_percent", 0));
        cli_forget(cli);
        poll(NULL, 0, (int)pause);
        pause = MIN(pause * 2, ASK_MAX_MS);
    }
}

static int operation_wait_run(struct cli *cli, struct err *err)
{
    return wait_for(cli, cli->args[0], err);
}

const struct command cmd_operation_wait = {
    .name = "operation wait",
    .args = "ID",
    .help = "Wait until an operation is over; ends with status 1 when it failed.",
    .more = "--timeout limits how long (5m).",
    .traits = CMD_REMOTE,
    .timeout_ms = CLI_TIMEOUT_MS,
    .run = operation_wait_run,
};

/* The answer of 202: shown, or with --wait its end. */
static int accepted(struct cli *cli, const struct json *reply, struct err *err)
{
    const struct json *operation = json_get(reply, "operation");
    struct str id = json_text(operation ? operation : reply, operation ? "id" : "operation_id");

    if (cli_has(cli, "wait"))
        return wait_for(cli, arena_memdup0(&cli->arena, id.p, id.n), err);
    if (operation)
        return cli_details(cli, operation, "id,type,status,target");
    return cli_details(cli, reply, "operation_id,status");
}

static int order(struct cli *cli, struct str body, const char *noun, const char *end,
                 const char *verb, struct err *err)
{
    const struct json *reply;

    if (cli_call(cli, "POST", body, &reply, err, "/api/v1/%s/%s/%s", noun,
                 cli_escape(cli, cli->args[0]), end) < 0)
        return err_wrap(err, "%s %s", verb, cli->args[0]);
    return accepted(cli, reply, err);
}

#define WAIT_FLAG                                                                                  \
    {                                                                                              \
        "wait", NULL, "Until it is done; --timeout limits how long (5m)"                           \
    }
static const struct cli_flag wait_flags[] = { WAIT_FLAG, { 0 } };

/* ---- virtual machines ---- */

/* A size, in units of 1 << shift, rounded up. */
static int put_size(struct cli *cli, struct json_out *json, const char *flag, const char *field,
                    unsigned shift, struct err *err)
{
    uint64_t bytes, unit = 1ull << shift;

    if (!cli_has(cli, flag))
        return 0;
    if (!str_to_bytes(str_of(cli_text(cli, flag)), &bytes) || bytes > INT64_MAX)
        return cli_usage(cli, err, "--%s: \"%s\" is no size, such as 512M or 2G", flag,
                         cli_text(cli, flag));
    json_kv_int(json, field, (int64_t)((bytes + unit - 1) >> shift));
    return 0;
}

static int vm_create_run(struct cli *cli, struct err *err)
{
    static const char *const texts[] = { "profile", "loadout" };
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;
    int64_t vcpus;

    json_open(&json, '{');
    json_kv_text(&json, "name", cli->args[0]);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (cli_has(cli, texts[i]))
            json_kv_text(&json, texts[i], cli_text(cli, texts[i]));
    if (cli_int(cli, "vcpus", 1, 0, &vcpus, err) < 0 ||
        put_size(cli, &json, "memory", "memory_mb", 20, err) < 0 ||
        put_size(cli, &json, "disk", "disk_gb", 30, err) < 0)
        return -1;
    if (vcpus)
        json_kv_int(&json, "vcpus", vcpus);
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/vms") < 0)
        return err_wrap(err, "create %s", cli->args[0]);
    return accepted(cli, reply, err);
}

static const struct cli_flag vm_create_flags[] = {
    { "vcpus", "N", "Cores (4)" },
    { "memory", "SIZE", "Memory, such as 512M or 2G (8G)" },
    { "disk", "SIZE", "Everything writable (50G)" },
    { "profile", "NAME", "agentic-dev; others are not there" },
    { "loadout", "NAME", "None is there yet" },
    WAIT_FLAG,
    { 0 },
};

const struct command cmd_vm_create = {
    .name = "vm create",
    .args = "NAME",
    .help = "Make a sandbox, as agentic makes virtual machines.",
    .more = "Its name has lower-case letters, digits and hyphens. `create` makes one with all that "
            "a sandbox can have.",
    .flags = vm_create_flags,
    .traits = CMD_REMOTE,
    .run = vm_create_run,
};

static int vm_restart_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    int64_t grace;

    if (cli_ms(cli, "grace", 60000, &grace, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "mode", cli_has(cli, "hard") ? "hard" : "graceful");
    json_kv_int(&json, "timeout_seconds", (grace + 999) / 1000);
    json_close(&json, '}');
    return order(cli, buf_view(&body), "vms", "restart", "restart", err);
}

static const struct cli_flag vm_restart_flags[] = {
    { "hard", NULL, "At once, without asking commands to end" },
    { "grace", "TIME", "How long commands have to end, such as 10s (1m)" },
    WAIT_FLAG,
    { 0 },
};

const struct command cmd_vm_restart = {
    .name = "vm restart",
    .args = "NAME",
    .help = "Stop one and let it run again; its disk stays.",
    .flags = vm_restart_flags,
    .traits = CMD_REMOTE,
    .run = vm_restart_run,
};

static int vm_deploy_run(struct cli *cli, struct err *err)
{
    return order(cli, STR_NONE, "vms", "deploy-agent", "deploy an agent to", err);
}

const struct command cmd_vm_deploy_agent = {
    .name = "vm deploy-agent",
    .args = "NAME",
    .help = "Make sure that one has an agent, as every sandbox has.",
    .flags = wait_flags,
    .traits = CMD_REMOTE,
    .run = vm_deploy_run,
};

static int reprovision_run(struct cli *cli, struct err *err)
{
    return order(cli, STR_NONE, "agents", "reprovision", "reprovision", err);
}

const struct command cmd_vm_reprovision = {
    .name = "vm reprovision",
    .args = "NAME",
    .help = "Delete one with its disk, and make another with the same name, image and limits.",
    .flags = wait_flags,
    .traits = CMD_REMOTE,
    .run = reprovision_run,
};
