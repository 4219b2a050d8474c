/*
 * What sandboxes may reach: layers, single rules, packs, reasons. `set` changes what it names and
 * leaves the rest; lists replace the lists that are there.
 */
#include "cli/sandbox.h"

#include <poll.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/show.h"

/* ---- the wish ---- */

static void put_list(struct cli *cli, struct json_out *json, const char *flag, const char *field)
{
    const char *text;
    size_t at = 0;

    if (!cli_has(cli, flag))
        return;
    json_key(json, field);
    json_open(json, '[');
    while ((text = cli_next(cli, flag, &at)))
        if (text[0]) /* --allow '': none */
            json_put_str(json, str_of(text));
    json_close(json, ']');
}

void egress_put_wish(struct cli *cli, struct json_out *json)
{
    static const char *const flags[] = { "allow",   "deny",   "pack",   "egress-mode",
                                         "project", "inject", "secret", "agent" };
    bool any = false;

    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        any = any || cli_has(cli, flags[i]);
    if (!any)
        return;
    json_key(json, "egress");
    json_open(json, '{');
    put_list(cli, json, "allow", "allow");
    put_list(cli, json, "deny", "deny");
    put_list(cli, json, "pack", "packs");
    put_list(cli, json, "inject", "inject");
    put_list(cli, json, "secret", "secrets");
    if (cli_has(cli, "egress-mode"))
        json_kv_text(json, "mode", cli_text(cli, "egress-mode"));
    if (cli_has(cli, "project"))
        json_kv_text(json, "project", cli_text(cli, "project"));
    if (cli_has(cli, "agent"))
        json_kv_text(json, "agent", cli_text(cli, "agent"));
    json_close(json, '}');
}

/* ---- show ---- */

static void put_list_cell(struct table *table, const struct json *list)
{
    autobuf struct buf text = { 0 };

    json_each(item, list)
    {
        if (text.len)
            buf_puts(&text, ", ");
        buf_str(&text, item->text);
    }
    table_cell(table, text.len ? buf_view(&text) : STR("-"));
}

static int show_layers(struct cli *cli, struct err *err)
{
    const struct json *reply;
    autotable struct table table = { 0 };

    if (cli_get(cli, &reply, err, "/api/v1/egress/policies") < 0)
        return err_wrap(err, "list policies");
    if (cli->json)
        return cli_put_reply(cli);
    table_titles(&table, "LEVEL,NAME,MODE,ALLOW,DENY,PACKS,LOCKED,>VERSION");
    json_each(item, json_get(reply, "items"))
    {
        const struct json *policy = json_get(item, "policy");
        struct str name = json_text(item, "name"), mode = json_text(policy, "mode");
        char version[24];

        snprintf(version, sizeof(version), "%lld", (long long)json_num(policy, "version", 0));
        table_cell(&table, json_text(item, "level"));
        table_cell(&table, name.n ? name : STR("-"));
        table_cell(&table, mode.n ? mode : STR("-"));
        put_list_cell(&table, json_get(policy, "allow"));
        put_list_cell(&table, json_get(policy, "deny"));
        put_list_cell(&table, json_get(policy, "packs"));
        table_cell(&table, json_true(policy, "locked") ? STR("yes") : STR("no"));
        table_cell(&table, str_of(version));
    }
    table_put(&table, &cli->out, cli_width(cli), cli_width(cli) != 0);
    return EXIT_OK;
}

static int egress_show_run(struct cli *cli, struct err *err)
{
    const struct json *reply;

    if (cli->arg_count == 0)
        return show_layers(cli, err);
    if (cli_get(cli, &reply, err, "/api/v1/sandboxes/%s/egress", cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "egress of %s", cli->args[0]);
    if (cli->json)
        return cli_put_reply(cli);
    if (cli_details(cli, reply,
                    "sandbox,mode,mode_level,project,error,credentials_error,max_bytes,"
                    "max_connections,allowed,denied,sent,received,used") < 0)
        return -1;
    buf_putc(&cli->out, '\n');
    if (cli_table(cli, json_get(reply, "rules"), "list,rule,level,pack") < 0)
        return -1;
    if (!json_get(reply, "credentials")->count)
        return EXIT_OK;
    buf_putc(&cli->out, '\n');
    return cli_table(cli, json_get(reply, "credentials"), "list,rule,level,missing");
}

const struct command cmd_egress_show = {
    .name = "egress show",
    .args = "[SANDBOX]",
    .help = "Show what a sandbox may reach and why; without one, the layers of policy.",
    .traits = CMD_REMOTE,
    .run = egress_show_run,
};

/* ---- set ---- */

static int put_number(struct cli *cli, struct json_out *json, const char *flag, const char *field,
                      struct err *err)
{
    int64_t number;

    if (!cli_has(cli, flag))
        return 0;
    if (cli_int(cli, flag, 0, 0, &number, err) < 0)
        return -1;
    json_kv_int(json, field, number);
    return 0;
}

static int put_size(struct cli *cli, struct json_out *json, struct err *err)
{
    const char *text = cli_text(cli, "max-bytes");
    uint64_t bytes;

    if (!text)
        return 0;
    if (!str_to_bytes(str_of(text), &bytes) || bytes > INT64_MAX)
        return cli_usage(cli, err, "--max-bytes: \"%s\" is no size, such as 512M or 2G", text);
    json_kv_int(json, "max_bytes", (int64_t)bytes);
    return 0;
}

/* The path of the layer that is meant. */
static int layer_path(struct cli *cli, const char **out, struct err *err)
{
    int named = cli_has(cli, "node") + cli_has(cli, "tenant") +
                (cli->arg_count == 0 && cli_has(cli, "project")) + (cli->arg_count > 0);

    if (named != 1)
        return cli_usage(cli, err, "name one: a sandbox, --project NAME, --tenant or --node");
    if (cli->arg_count)
        *out =
            arena_printf(&cli->arena, "/api/v1/sandboxes/%s/egress", cli_escape(cli, cli->args[0]));
    else if (cli_has(cli, "project"))
        *out = arena_printf(&cli->arena, "/api/v1/egress/policies/projects/%s",
                            cli_escape(cli, cli_text(cli, "project")));
    else
        *out = cli_has(cli, "node") ? "/api/v1/egress/policies/node"
                                    : "/api/v1/egress/policies/tenant";
    return 0;
}

static int put_settings(struct cli *cli, struct json_out *json, struct err *err)
{
    if (cli_has(cli, "mode"))
        json_kv_text(json, "mode", cli_text(cli, "mode"));
    put_list(cli, json, "allow", "allow");
    put_list(cli, json, "deny", "deny");
    put_list(cli, json, "pack", "packs");
    put_list(cli, json, "intercept", "intercept");
    put_list(cli, json, "unchecked", "unchecked");
    put_list(cli, json, "inject", "inject");
    put_list(cli, json, "secret", "secrets");
    if (cli_has(cli, "lock") || cli_has(cli, "unlock"))
        json_kv_bool(json, "locked", cli_has(cli, "lock"));
    if (cli->arg_count && cli_has(cli, "project"))
        json_kv_text(json, "project", cli_text(cli, "project"));
    if (cli_has(cli, "agent"))
        json_kv_text(json, "agent", cli_text(cli, "agent"));
    if (put_size(cli, json, err) < 0 ||
        put_number(cli, json, "max-connections", "max_connections", err) < 0 ||
        put_number(cli, json, "ask-seconds", "ask_s", err) < 0 ||
        put_number(cli, json, "version", "version", err) < 0)
        return -1;
    return 0;
}

static int told(struct cli *cli, const struct json *reply)
{
    if (cli->json)
        return cli_put_reply(cli);
    struct str level = json_text(reply, "level"), name = json_text(reply, "name");

    show_text(&cli->out, level);
    if (name.n) {
        buf_putc(&cli->out, ' ');
        show_text(&cli->out, name);
    }
    buf_printf(&cli->out, ": version %lld\n",
               (long long)json_num(json_get(reply, "policy"), "version", 0));
    return EXIT_OK;
}

static int egress_set_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;
    const char *path = NULL;
    const char *method = cli_has(cli, "replace") ? "PUT" : "PATCH";

    if (layer_path(cli, &path, err) < 0)
        return -1;
    json_open(&json, '{');
    if (put_settings(cli, &json, err) < 0)
        return -1;
    json_close(&json, '}');
    if (str_is(buf_view(&body), "{}") && !cli_has(cli, "replace"))
        return cli_usage(cli, err, "nothing to change; see --help for what can be");
    if (cli_call(cli, method, buf_view(&body), &reply, err, "%s", path) < 0)
        return err_wrap(err, "set a policy");
    return told(cli, reply);
}

static const struct cli_flag egress_set_flags[] = {
    { "node", NULL, "The layer of the whole server" },
    { "tenant", NULL, "The layer of your tenant" },
    { "project", "NAME", "The layer of a project; with a sandbox: the project it belongs to" },
    { "agent", "NAME", "With a sandbox: as whom its programs reach the hub, '' for nobody" },
    { "mode", "MODE", "deny, ask or open: what happens to hosts that no rule allows" },
    { "allow", "RULE", "Allow these instead of those it has; may repeat, '' for none" },
    { "deny", "RULE", "Likewise: deny" },
    { "pack", "NAME", "Likewise: packs" },
    { "intercept", "HOST", "Likewise: hosts whose TLS is opened" },
    { "unchecked", "HOST", "Likewise: hosts to which any bytes may be sent; port 443 unless said" },
    { "inject", "RULE", "Likewise: credentials, as HOST => HEADER: VALUE" },
    { "secret", "NAME", "Likewise: secrets whose placeholder is in the environment" },
    { "max-bytes", "SIZE", "Both ways together, of each sandbox; 0 for no limit" },
    { "max-connections", "N", "Open at once, of each sandbox; 0 for no limit" },
    { "ask-seconds", "N", "How long a connection waits for an answer; 0 for 60" },
    { "lock", NULL, "Layers inside can only deny" },
    { "unlock", NULL, "They may allow again" },
    { "replace", NULL, "What is not named is cleared instead of kept" },
    { "version", "N", "Only if this is its version" },
    { 0 },
};

const struct command cmd_egress_set = {
    .name = "egress set",
    .args = "[SANDBOX]",
    .help = "Change a layer of policy: of a sandbox, a project, your tenant or the node.",
    .more = "What counts for a sandbox is all four together: a deny of any wins, and the innermost "
            "mode counts. A rule is HOST, *.SUFFIX (what is beneath it), .SUFFIX (and itself), an "
            "address or a network, with :PORT or :* (80 and 443 otherwise), then METHODS and a "
            "PATH.\n\nExamples:\n  atoll egress set --tenant --pack python --pack github\n"
            "  atoll egress set web --mode ask --allow 'api.example.org:8443'",
    .flags = egress_set_flags,
    .traits = CMD_REMOTE,
    .run = egress_set_run,
};

/* ---- one rule ---- */

static int add_rule(struct cli *cli, const char *verdict, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    json_open(&json, '{');
    json_kv_text(&json, "rule", cli->args[1]);
    json_kv_text(&json, "verdict", verdict);
    if (cli_has(cli, "for"))
        json_kv_text(&json, "level", cli_text(cli, "for"));
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/sandboxes/%s/egress/rules",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "%s %s", verdict, cli->args[1]);
    return told(cli, reply);
}

static int egress_allow_run(struct cli *cli, struct err *err)
{
    return add_rule(cli, "allow", err);
}

static int egress_deny_run(struct cli *cli, struct err *err)
{
    return add_rule(cli, "deny", err);
}

static const struct cli_flag rule_flags[] = {
    { "for", "LEVEL", "sandbox, project, tenant or node: for whom (sandbox)" },
    { 0 },
};

const struct command cmd_egress_allow = {
    .name = "egress allow",
    .args = "SANDBOX RULE",
    .help = "Allow a host, for a sandbox or for all like it.",
    .more = "Counts for new connections at once.\n\n"
            "Example:\n  atoll egress allow web api.example.org --for tenant",
    .flags = rule_flags,
    .traits = CMD_REMOTE,
    .run = egress_allow_run,
};

const struct command cmd_egress_deny = {
    .name = "egress deny",
    .args = "SANDBOX RULE",
    .help = "Deny a host, for a sandbox or for all like it.",
    .more = "A deny wins over every allow, and closes connections that are open.",
    .flags = rule_flags,
    .traits = CMD_REMOTE,
    .run = egress_deny_run,
};

/* ---- packs ---- */

static int egress_packs_run(struct cli *cli, struct err *err)
{
    const struct json *reply;
    autotable struct table table = { 0 };

    if (cli_get(cli, &reply, err, "/api/v1/egress/packs") < 0)
        return err_wrap(err, "list packs");
    if (cli->json)
        return cli_put_reply(cli);
    table_titles(&table, "NAME,RULES,ADDED,HELP");
    json_each(item, json_get(reply, "items"))
    {
        struct str help = json_text(item, "help");

        table_cell(&table, json_text(item, "name"));
        put_list_cell(&table, json_get(item, "rules"));
        put_list_cell(&table, json_get(item, "added"));
        table_cell(&table, help.n ? help : STR("-"));
    }
    table_put(&table, &cli->out, cli_width(cli), cli_width(cli) != 0);
    return EXIT_OK;
}

const struct command cmd_egress_packs = {
    .name = "egress packs",
    .help = "List packs: names for lists of hosts.",
    .traits = CMD_REMOTE,
    .run = egress_packs_run,
};

static int egress_pack_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const char *name = cli_escape(cli, cli->args[0]);

    if (cli_has(cli, "rm") != (cli->arg_count == 1))
        return cli_usage(cli, err, "give rules, or --rm");
    if (cli_has(cli, "rm")) {
        if (cli_call(cli, "DELETE", STR_NONE, NULL, err, "/api/v1/egress/packs/%s", name) < 0)
            return err_wrap(err, "remove pack %s", cli->args[0]);
        return EXIT_OK;
    }
    json_open(&json, '{');
    if (cli_has(cli, "about"))
        json_kv_text(&json, "help", cli_text(cli, "about"));
    json_key(&json, "rules");
    json_open(&json, '[');
    for (size_t i = 1; i < cli->arg_count; i++)
        json_put_str(&json, str_of(cli->args[i]));
    json_close(&json, ']');
    json_close(&json, '}');
    if (cli_call(cli, "PUT", buf_view(&body), NULL, err, "/api/v1/egress/packs/%s", name) < 0)
        return err_wrap(err, "set pack %s", cli->args[0]);
    return cli->json ? cli_put_reply(cli) : EXIT_OK;
}

static const struct cli_flag pack_flags[] = {
    { "about", "TEXT", "What it is for" },
    { "rm", NULL, "Forget it, or what was added to a built-in one" },
    { 0 },
};

const struct command cmd_egress_pack = {
    .name = "egress pack",
    .args = "NAME [RULE…]",
    .help = "Make a pack, or say what is added to a built-in one.",
    .more = "Example:\n  atoll egress pack company .corp.example 'git.example:22'",
    .flags = pack_flags,
    .traits = CMD_REMOTE,
    .run = egress_pack_run,
};

/* ---- why ---- */

static int egress_explain_run(struct cli *cli, struct err *err)
{
    const char *method = cli_has(cli, "method") ? cli_text(cli, "method") : "GET";
    const struct json *reply;

    if (cli_get(cli, &reply, err, "/api/v1/sandboxes/%s/egress/explain?url=%s&method=%s",
                cli_escape(cli, cli->args[0]), cli_escape(cli, cli->args[1]),
                cli_escape(cli, method)) < 0)
        return err_wrap(err, "explain %s", cli->args[1]);
    return cli_word(cli, reply, "reason");
}

static const struct cli_flag explain_flags[] = {
    { "method", "METHOD", "Of a request whose method is seen (GET)" },
    { 0 },
};

const struct command cmd_egress_explain = {
    .name = "egress explain",
    .args = "SANDBOX URL",
    .help = "Say whether a sandbox would reach an address, and by which rule.",
    .more = "Nothing is looked up and nothing is sent. HOST or HOST:PORT stands for a tunnel.\n\n"
            "Example:\n  atoll egress explain web https://example.org/",
    .flags = explain_flags,
    .traits = CMD_REMOTE,
    .run = egress_explain_run,
};

/* ---- what went out ---- */

static void put_line(struct cli *cli, const struct json *record)
{
    static const char *const words[] = { "at_ms", "sandbox", "verdict", "kind" };
    struct str reason = json_text(record, "reason"), rule = json_text(record, "rule");

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        show_text(&cli->out, json_text(record, words[i]));
        buf_putc(&cli->out, ' ');
    }
    show_text(&cli->out, json_text(record, "host"));
    buf_printf(&cli->out, ":%lld ", (long long)json_num(record, "port", 0));
    show_text(&cli->out, reason.n ? reason : rule.n ? rule : STR("-"));
    buf_putc(&cli->out, '\n');
}

static int put_records(struct cli *cli, const struct json *page, struct err *err)
{
    json_each(record, json_get(page, "items"))
    {
        struct json_out json = json_to(&cli->out);

        if (cli->json) {
            json_put(&json, record);
            buf_putc(&cli->out, '\n');
        } else {
            put_line(cli, record);
        }
    }
    return cli_flush(cli, err);
}

#define LOG_PAUSE_MS 500

static int egress_log_run(struct cli *cli, struct err *err)
{
    const char *sandbox = cli->arg_count ? cli_escape(cli, cli->args[0]) : NULL;
    const char *path = sandbox ? arena_printf(&cli->arena, "/api/v1/sandboxes/%s/egress", sandbox)
                               : "/api/v1/egress";
    const char *denied = cli_has(cli, "denied") ? "&denied=true" : "";
    int64_t since = -1, limit;
    const struct json *page;

    if (cli_int(cli, "since", 0, -1, &since, err) < 0 ||
        cli_int(cli, "limit", 1, PAGE_DEFAULT, &limit, err) < 0)
        return -1;
    for (bool first = true;; first = false) {
        const char *from =
            since >= 0 ? arena_printf(&cli->arena, "&since=%lld", (long long)since) : "";

        if (cli_get(cli, &page, err, "%s/records?limit=%lld%s%s", path,
                    (long long)(first ? limit : PAGE_MAX), denied, from) < 0)
            return err_wrap(err, "records");
        bool none = !json_first(json_get(page, "items"));
        since = json_num(page, "next", since);
        if (put_records(cli, page, err) < 0)
            return -1;
        cli_forget(cli);
        if (!cli_has(cli, "follow"))
            return EXIT_OK;
        if (none)
            poll(NULL, 0, LOG_PAUSE_MS);
    }
}

static const struct cli_flag log_flags[] = {
    { "denied", NULL, "Only what was not let out" },
    { "follow", NULL, "Go on with what comes" },
    { "since", "N", "After record N, instead of the newest" },
    { "limit", "N", "At most so many to begin with (100)" },
    { 0 },
};

const struct command cmd_egress_log = {
    .name = "egress log",
    .args = "[SANDBOX]",
    .help = "Show what a sandbox, or all of them, reached or tried to.",
    .more = "What was denied and should not be:\n  atoll egress allow SANDBOX HOST",
    .flags = log_flags,
    .traits = CMD_REMOTE,
    .run = egress_log_run,
};

static int egress_hosts_run(struct cli *cli, struct err *err)
{
    const struct json *reply;

    if (cli_get(cli, &reply, err, "/api/v1/sandboxes/%s/egress/hosts",
                cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "hosts of %s", cli->args[0]);
    return cli_table(cli, json_get(reply, "items"), "host,>port,>denied,>allowed,>sent,>received");
}

const struct command cmd_egress_hosts = {
    .name = "egress hosts",
    .args = "SANDBOX",
    .help = "Count what a sandbox reached or tried to, by host.",
    .traits = CMD_REMOTE,
    .run = egress_hosts_run,
};
