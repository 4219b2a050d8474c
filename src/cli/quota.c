/* Quotas: how much sandboxes of a subject may have. */
#include "cli/sandbox.h"

static int put_limits(struct cli *cli, struct json_out *json, struct err *err)
{
    static const struct {
        const char *flag, *field;
        bool bytes;
    } limits[] = {
        { "sandboxes", "sandboxes", false },       { "memory", "memory", true },
        { "cpu", "cpu_percent", false },           { "disk", "disk", true },
        { "each-memory", "sandbox_memory", true }, { "each-cpu", "sandbox_cpu_percent", false },
        { "each-disk", "sandbox_disk", true }
    };
    bool any = false;

    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        int64_t count;

        any |= cli_has(cli, limits[i].flag);
        if (limits[i].bytes) {
            if (sandbox_put_size(cli, json, limits[i].flag, limits[i].field, err) < 0)
                return -1;
        } else if (cli_has(cli, limits[i].flag)) {
            if (cli_int(cli, limits[i].flag, 0, 0, &count, err) < 0)
                return -1;
            json_kv_int(json, limits[i].field, count);
        }
    }
    return any ? 0 : cli_usage(cli, err, "at least one limit is needed, such as --sandboxes 20");
}

static int quota_set_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    json_open(&json, '{');
    if (put_limits(cli, &json, err) < 0)
        return -1;
    json_close(&json, '}');
    if (cli_call(cli, "PUT", buf_view(&body), &reply, err, "/api/v1/quotas/%s",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "set quota %s", cli->args[0]);
    return cli_word(cli, reply, "subject");
}

static const struct cli_flag quota_set_flags[] = {
    { "sandboxes", "N", "Sandboxes at once, stopped ones included" },
    { "memory", "SIZE", "Sum of their memory limits, such as 64G" },
    { "cpu", "PERCENT", "Sum of their processor limits; 100 is one core" },
    { "disk", "SIZE", "Sum of the sizes of their disks, volumes and snapshots" },
    { "each-memory", "SIZE", "Memory limit of one sandbox" },
    { "each-cpu", "PERCENT", "Processor limit of one sandbox" },
    { "each-disk", "SIZE", "Disk of one sandbox, or size of a volume" },
    { 0 },
};

const struct command cmd_quota_set = {
    .name = "quota set",
    .args = "SUBJECT",
    .help = "Limit what the sandboxes of a subject may have.",
    .more =
        "Replaces the quota of the subject: a limit that is not named does not exist. SUBJECT is "
        "tenant:NAME, role:NAME (each principal of the role), by:ID (what a principal creates) or "
        "label:KEY=VALUE; * instead of NAME, ID or VALUE means each of them by itself. Every "
        "quota that covers a sandbox is checked when it is created, started, forked or given "
        "other limits. Role agent has a preset until it is set here. Only the tenant that owns "
        "the server sets quotas of tenants.\n\n"
        "Examples:\n  atoll quota set tenant:acme --sandboxes 50 --memory 64G --disk 500G\n"
        "  atoll quota set role:agent --sandboxes 20 --each-memory 4G --each-cpu 400\n"
        "  atoll quota set 'label:user=*' --sandboxes 5",
    .flags = quota_set_flags,
    .traits = CMD_REMOTE,
    .run = quota_set_run,
};

const struct command cmd_quota_ls = {
    .name = "quota ls",
    .help = "List quotas, and what is used of them.",
    .more = "0 means no limit. `machine` is what the settings sandboxes_max and overcommit_* allow "
            "for all tenants together; limits up to 8 GiB of memory, 8 processors and 64 GiB of "
            "disk do not count there. `group` names the largest of several users, tenants or "
            "label values that a quota covers.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/quotas",
              .member = "items",
              .table = "subject,>used_sandboxes,>sandboxes,>used_memory,>memory,>used_cpu_percent,"
                       ">cpu_percent,>used_disk,>disk,>sandbox_memory,>sandbox_cpu_percent,"
                       ">sandbox_disk,group" },
    .run = cli_view,
};

static int quota_rm_run(struct cli *cli, struct err *)
{
    return cli_each(
        cli,
        &(struct cli_each){ .method = "DELETE", .path = "/api/v1/quotas", .what = "remove quota" });
}

const struct command cmd_quota_rm = {
    .name = "quota rm",
    .args = "SUBJECT…",
    .help = "Remove quotas.",
    .traits = CMD_REMOTE,
    .run = quota_rm_run,
};
