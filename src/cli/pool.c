/* Pools of warm sandboxes. */
#include "cli/sandbox.h"

static int pool_set_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;
    int64_t size;

    if (!cli_has(cli, "size"))
        return cli_usage(cli, err, "--size says how many are to stand ready; 0 removes the pool");
    if (cli_int(cli, "size", 0, 0, &size, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_int(&json, "size", size);
    for (const char *const *flag =
             (const char *const[]){ "image", "user", "storage", "template", NULL };
         *flag; flag++)
        if (cli_has(cli, *flag))
            json_kv_text(&json, *flag, cli_text(cli, *flag));
    json_close(&json, '}');
    if (cli_call(cli, "PUT", buf_view(&body), &reply, err, "/api/v1/pools/%s",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "set pool %s", cli->args[0]);
    return cli_details(cli, reply, "name,size,image,user,storage");
}

static const struct cli_flag pool_set_flags[] = {
    { "size", "N", "Sandboxes that stand ready; 0 removes the pool" },
    { "image", "NAME", "What they begin with (the programs of this machine)" },
    { "user", "USER", "agent or root (agent)" },
    { "storage", "WHERE", "memory or disk (disk where disks work)" },
    { "template", "NAME", "As this template says" },
    { 0 },
};

const struct command cmd_pool_set = {
    .name = "pool set",
    .args = "NAME",
    .help = "Keep sandboxes ready, so that who makes one does not wait.",
    .more =
        "A creation of the same image, user and storage takes a warm one; limits, volumes, labels "
        "and environment are bound then. The pool `default` is there without being set.\n\n"
        "Examples:\n  atoll pool set default --size 8\n"
        "  atoll pool set builders --size 2 --user root --storage disk",
    .flags = pool_set_flags,
    .traits = CMD_REMOTE,
    .run = pool_set_run,
};

const struct command cmd_pool_ls = {
    .name = "pool ls",
    .help = "List the pools of warm sandboxes.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/pools",
              .member = "items",
              .table = "name,>ready,>size,image,user,storage,>taken,>missed,error" },
    .run = cli_view,
};
