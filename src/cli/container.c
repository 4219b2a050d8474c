/* Containers as agentic's command line makes them; the other verbs are those of sandboxes. */
#include "cli/cli.h"

/* "K=V" each, as that route takes them. */
static int put_env(struct cli *cli, struct json_out *json, struct err *err)
{
    const char *text;
    size_t at = 0;

    if (!cli_has(cli, "env"))
        return 0;
    json_key(json, "env");
    json_open(json, '[');
    while ((text = cli_next(cli, "env", &at))) {
        if (text[0] == '=' || !strchr(text, '='))
            return cli_usage(cli, err, "--env: \"%s\" is not NAME=VALUE", text);
        json_put_str(json, str_of(text));
    }
    json_close(json, ']');
    return 0;
}

static int container_create_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    if (!cli_has(cli, "image"))
        return cli_usage(cli, err, "--image says what it begins with; see `atoll image ls`");
    json_open(&json, '{');
    json_kv_text(&json, "name", cli->args[0]);
    json_kv_text(&json, "image", cli_text(cli, "image"));
    if (put_env(cli, &json, err) < 0)
        return -1;
    if (cli->arg_count > 1) {
        json_key(&json, "cmd");
        json_open(&json, '[');
        for (size_t i = 1; i < cli->arg_count; i++)
            json_put_str(&json, str_of(cli->args[i]));
        json_close(&json, ']');
    }
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/containers") < 0)
        return err_wrap(err, "create container %s", cli->args[0]);
    return cli_details(cli, reply, "id,name,image,status,command_id");
}

static const struct cli_flag container_create_flags[] = {
    { "image", "NAME", "What it begins with" },
    { "env", "NAME=VALUE", "Environment of every command; may repeat" },
    { 0 },
};

const struct command cmd_container_create = {
    .name = "container create",
    .args = "NAME [COMMAND] [ARG…]",
    .help = "Make a sandbox of an image, and run a command in it; its end ends nothing else.",
    .more =
        "`atoll create` can say more. Directories of this machine are for `atoll run --bind`, and "
        "there are no networks to choose from. Put -- before the command.\n\n"
        "Example:\n  atoll container create web --image web -e PORT=3000 -- ./server",
    .flags = container_create_flags,
    .traits = CMD_REMOTE,
    .run = container_create_run,
};
