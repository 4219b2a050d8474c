/* Templates: wishes for sandboxes under a name. */
#include "cli/sandbox.h"

static int template_set_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    json_open(&json, '{');
    if (sandbox_put_wish(cli, &json, 0, NULL, err) < 0 || sandbox_put_more(cli, &json, err) < 0)
        return -1;
    json_close(&json, '}');
    if (cli_call(cli, "PUT", buf_view(&body), &reply, err, "/api/v1/templates/%s",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "set template %s", cli->args[0]);
    return cli_word(cli, reply, "name");
}

static const struct cli_flag template_set_flags[] = { SANDBOX_FLAGS, CREATE_FLAGS, { 0 } };

const struct command cmd_template_set = {
    .name = "template set",
    .args = "NAME",
    .help = "Keep a wish for a sandbox under a name, for `create --template`.",
    .more = "What `create` says itself wins over the template; environment and labels are joined. "
            "`pool set NAME --template NAME` keeps sandboxes for it ready.\n\n"
            "Examples:\n  atoll template set web --image web --memory 2G --env PORT=3000\n"
            "  atoll create --template web --memory 4G",
    .flags = template_set_flags,
    .traits = CMD_REMOTE,
    .run = template_set_run,
};

const struct command cmd_template_ls = {
    .name = "template ls",
    .help = "List templates, by name.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/templates", .member = "items", .table = "name,by,changed_at" },
    .run = cli_view,
};

static int template_show_run(struct cli *cli, struct err *err)
{
    const struct json *reply;

    if (cli_get(cli, &reply, err, "/api/v1/templates/%s", cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "show template %s", cli->args[0]);
    if (cli->json)
        return cli_put_reply(cli);
    (void)cli_details(cli, reply, "name,by,changed_at");
    return cli_details(
        cli, json_get(reply, "spec"),
        "image,from_snapshot,user,storage,memory,disk,pids,cpu_percent,io_bytes,io_ops,inodes,"
        "nofile,ttl_ms,idle,env,labels,volumes,files,tier,nesting,sys,warm");
}

const struct command cmd_template_show = {
    .name = "template show",
    .args = "NAME",
    .help = "Show what a template says; 0 and empty is what it leaves open.",
    .traits = CMD_REMOTE,
    .run = template_show_run,
};

static int template_rm_run(struct cli *cli, struct err *)
{
    return cli_each(cli, &(struct cli_each){ .method = "DELETE",
                                             .path = "/api/v1/templates",
                                             .what = "remove template" });
}

const struct command cmd_template_rm = {
    .name = "template rm",
    .args = "NAME…",
    .help = "Remove templates; sandboxes made of them stay.",
    .traits = CMD_REMOTE,
    .run = template_rm_run,
};
