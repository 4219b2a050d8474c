/* Questions to people: what waits, and its one decision. */
#include <stdio.h>
#include <strings.h>

#include "base/mem.h"
#include "base/show.h"
#include "cli/cli.h"

static void action_text(const struct json *action, struct buf *out)
{
    struct json_out json = json_to(out);

    if (action)
        json_put(&json, action);
}

static int ask_ls_run(struct cli *cli, struct err *err)
{
    const char *state = cli_has(cli, "all") ? "" : "?state=pending";
    autotable struct table table = { 0 };
    const struct json *reply;

    if (cli_get(cli, &reply, err, "/api/v1/asks%s", state) < 0)
        return err_wrap(err, "list asks");
    if (cli->json)
        return cli_put_reply(cli);
    table_titles(&table, "ID,SANDBOX,STATE,EXPIRES,ACTION");
    json_each(item, json_get(reply, "items"))
    {
        autobuf struct buf action = { 0 };

        action_text(json_get(item, "action"), &action);
        table_cell(&table, json_text(item, "id"));
        table_cell(&table, json_text(item, "sandbox"));
        table_cell(&table, json_text(item, "state"));
        table_cell(&table, json_text(item, "expires_at"));
        table_cell(&table, buf_view(&action));
    }
    table_put(&table, &cli->out, cli_width(cli), cli_width(cli) != 0);
    return EXIT_OK;
}

static const struct cli_flag ls_flags[] = {
    { "all", NULL, "Also those that are decided or over" },
    { 0 },
};

const struct command cmd_ask_ls = {
    .name = "ask ls",
    .help = "List questions that wait for an answer.",
    .flags = ls_flags,
    .traits = CMD_REMOTE,
    .run = ask_ls_run,
};

static int show(struct cli *cli, const struct json *ask)
{
    autobuf struct buf action = { 0 };

    if (cli->json)
        return cli_put_reply(cli);
    if (cli_details(cli, ask, "id,kind,sandbox,state,created_at,expires_at,by,note,hash") < 0)
        return -1;
    action_text(json_get(ask, "action"), &action);
    buf_puts(&cli->out, "\n");
    show_text(&cli->out, buf_view(&action));
    buf_puts(&cli->out, "\n");
    return EXIT_OK;
}

static int ask_show_run(struct cli *cli, struct err *err)
{
    const struct json *reply;

    if (cli_get(cli, &reply, err, "/api/v1/asks/%s", cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "ask %s", cli->args[0]);
    return show(cli, reply);
}

const struct command cmd_ask_show = {
    .name = "ask show",
    .args = "ASK",
    .help = "Show a question, with exactly what it asks for.",
    .traits = CMD_REMOTE,
    .run = ask_show_run,
};

static int decide(struct cli *cli, const char *verdict, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *ask;

    /* What is decided is what is there now, digest and all. */
    if (cli_get(cli, &ask, err, "/api/v1/asks/%s", cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "ask %s", cli->args[0]);
    json_open(&json, '{');
    json_kv_text(&json, "verdict", verdict);
    json_kv_str(&json, "hash", json_text(ask, "hash"));
    if (cli_has(cli, "note"))
        json_kv_text(&json, "note", cli_text(cli, "note"));
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &ask, err, "/api/v1/asks/%s/decision",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "%s ask %s", verdict, cli->args[0]);
    return show(cli, ask);
}

static int ask_allow_run(struct cli *cli, struct err *err)
{
    return decide(cli, "allow", err);
}

static int ask_deny_run(struct cli *cli, struct err *err)
{
    return decide(cli, "deny", err);
}

static const struct cli_flag decide_flags[] = {
    { "note", "TEXT", "Why; kept with it" },
    { 0 },
};

const struct command cmd_ask_allow = {
    .name = "ask allow",
    .args = "ASK",
    .help = "Allow what a question asks for.",
    .more = "Of the kind egress: the connections that wait, and no later one. To allow the host "
            "from now\n"
            "on: atoll egress allow SANDBOX HOST\n"
            "Of the kind rule: the rule is added to the sandbox's own layer and stays there; to "
            "take it\n"
            "back: atoll egress deny SANDBOX HOST",
    .flags = decide_flags,
    .traits = CMD_REMOTE,
    .run = ask_allow_run,
};

const struct command cmd_ask_deny = {
    .name = "ask deny",
    .args = "ASK",
    .help = "Deny what a question asks for.",
    .flags = decide_flags,
    .traits = CMD_REMOTE,
    .run = ask_deny_run,
};

static int ask_respond_run(struct cli *cli, struct err *err)
{
    static const char *const yes[] = { "y", "yes", "allow", "approve" };
    static const char *const no[] = { "n", "no", "deny", "reject" };
    const char *text = cli_text(cli, "text");

    if (!text)
        return cli_usage(cli, err, "--text is needed");
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0)
            return decide(cli, "allow", err);
        if (strcasecmp(text, no[i]) == 0)
            return decide(cli, "deny", err);
    }
    return cli_usage(cli, err, "'%.64s' is neither yes nor no, which is what this one asks for",
                     text);
}

static const struct cli_flag respond_flags[] = {
    { "text", "TEXT", "yes, y, allow or approve; no, n, deny or reject" },
    { "note", "TEXT", "Why; kept with it" },
    { 0 },
};

const struct command cmd_ask_respond = {
    .name = "ask respond",
    .args = "ASK",
    .help = "Answer a question in words.",
    .more = "The same as `ask allow` or `ask deny`, for those who know it as `hitl respond`.",
    .flags = respond_flags,
    .traits = CMD_REMOTE,
    .run = ask_respond_run,
};
