/* Tokens: made, listed, revoked. The plaintext of a token is printed once and kept nowhere. */
#include "base/mem.h"
#include "cli/cli.h"

static void put_scopes(struct cli *cli, struct json_out *json)
{
    const char *scope;
    size_t at = 0;

    json_key(json, "scopes");
    json_open(json, '[');
    while ((scope = cli_next(cli, "scope", &at))) {
        struct str rest = str_of(scope);

        while (rest.n)
            json_put_str(json, str_trim(str_cut(&rest, ',')));
    }
    json_close(json, ']');
}

static int create_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;
    int64_t ttl;

    if (!cli_has(cli, "role"))
        return cli_usage(cli, err, "--role is missing: admin, operator, viewer, agent or sandbox");
    if (cli_ms(cli, "ttl", 0, &ttl, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "name", cli->args[0]);
    json_kv_text(&json, "role", cli_text(cli, "role"));
    if (cli_has(cli, "tenant"))
        json_kv_text(&json, "tenant", cli_text(cli, "tenant"));
    if (cli_has(cli, "scope"))
        put_scopes(cli, &json);
    if (ttl)
        json_kv_int(&json, "ttl_ms", ttl);
    if (cli_has(cli, "signing"))
        json_kv_bool(&json, "signing", true);
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/tokens") < 0)
        return err_wrap(err, "create token %s", cli->args[0]);
    if (cli->json)
        return cli_put_reply(cli);
    cli_note(cli, "keep the token now; it is not shown again");
    return cli_details(cli, reply, "id,name,role,tenant,scopes,signing,expires_at,token");
}

static const struct cli_flag create_flags[] = {
    { "role", "ROLE", "admin, operator, viewer, agent or sandbox" },
    { "tenant", "TENANT", "Whose objects it sees; yours unless said otherwise" },
    { "scope", "SCOPE", "Only these actions, such as event.* or token.list; may repeat" },
    { "ttl", "TIME", "How long it lives, such as 12h or 30d; without it, until revoked" },
    { "signing", NULL,
      "Make it sign every request (HMAC); it is then not valid when it is sent itself" },
    { 0 },
};

const struct command cmd_token_create = {
    .name = "token create",
    .args = "NAME",
    .help = "Make a token and print it, this once.",
    .more = "Example:\n  atoll token create ci --role operator --scope 'event.*' --ttl 30d",
    .flags = create_flags,
    .traits = CMD_REMOTE,
    .run = create_run,
};

const struct command cmd_token_list = {
    .name = "token list",
    .help = "List tokens, oldest first, without the tokens themselves.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/tokens",
              .member = "items",
              .table = "id,name,role,tenant,scopes,expires_at,used_at,revoked_at" },
    .run = cli_view,
};

static int revoke_run(struct cli *cli, struct err *err)
{
    const struct json *reply;

    if (cli_call(cli, "DELETE", STR_NONE, &reply, err, "/api/v1/tokens/%s",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "revoke token %s", cli->args[0]);
    return cli_details(cli, reply, "id,name,role,revoked_at");
}

const struct command cmd_token_revoke = {
    .name = "token revoke",
    .args = "ID|NAME",
    .help = "Revoke a token; it stops working at once.",
    .traits = CMD_REMOTE,
    .run = revoke_run,
};
