/* `context …`: naming servers, and choosing which of them is meant. Tokens are never printed. */
#include <stdio.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/context.h"

static int check_name(struct cli *cli, struct err *err)
{
    if (context_name_ok(cli->args[0]))
        return 0;
    return cli_usage(cli, err,
                     "'%s' is no context name: letters, digits, '.', '_', '-', at most %d",
                     cli->args[0], CONTEXT_NAME_MAX);
}

static int missing(struct cli *cli, struct err *err)
{
    snprintf(cli->hint, sizeof(cli->hint), "`atoll context list` shows them");
    return err_set(err, ERR_NOT_FOUND, "there is no context '%s'", cli->args[0]);
}

static void put_context(struct json_out *json, const struct contexts *contexts,
                        const struct context *context)
{
    json_open(json, '{');
    json_kv_text(json, "name", context->name);
    json_kv_bool(json, "current",
                 contexts->current && strcmp(contexts->current, context->name) == 0);
    json_kv_text(json, "addr", context->addr);
    json_kv_bool(json, "has_token", context->token != NULL);
    json_kv_text(json, "ca", context->ca);
    json_close(json, '}');
}

/* What a change left behind, as JSON if wanted. */
static int done(struct cli *cli, const struct contexts *contexts, const char *what)
{
    const struct context *context = contexts_find(contexts, cli->args[0]);

    if (cli->json) {
        struct json_out json = json_to(&cli->out);

        if (context)
            put_context(&json, contexts, context);
        else
            buf_puts(&cli->out, "{}");
        buf_putc(&cli->out, '\n');
    } else {
        buf_printf(&cli->out, "context %s %s\n", cli->args[0], what);
    }
    return EXIT_OK;
}

static int set_run(struct cli *cli, struct err *err)
{
    autocontexts struct contexts contexts = { .lock_fd = -1 };
    const char *addr = cli_text(cli, "addr"), *token = cli_text(cli, "token");
    const char *ca = cli_text(cli, "ca");
    struct client_target target;
    struct context *context;

    if (check_name(cli, err) < 0 || contexts_open(&contexts, err) < 0)
        return -1;
    if (!addr && !contexts_find(&contexts, cli->args[0]))
        return cli_usage(cli, err, "a new context needs --addr");
    if (addr && client_target_parse(addr, &target, err) < 0) {
        cli->usage = true;
        return -1;
    }
    if (contexts_put(&contexts, cli->args[0], &context, err) < 0)
        return -1;
    if (addr)
        context_text(&context->addr, addr);
    if (token)
        context_text(&context->token, token[0] ? token : NULL);
    if (ca)
        context_text(&context->ca, ca[0] ? ca : NULL);
    if (!contexts.current)
        context_text(&contexts.current, cli->args[0]);
    if (contexts_save(&contexts, err) < 0)
        return -1;
    return done(cli, &contexts,
                strcmp(contexts.current, cli->args[0]) == 0 ? "is set and current" : "is set");
}

static const struct cli_flag set_flags[] = {
    { "addr", "URL", "http://HOST:PORT, https://HOST:PORT or unix:/PATH" },
    { "token", "TOKEN", "Credential to send there" },
    { "ca", "FILE", "Authorities that may sign its certificate" },
    { 0 },
};

const struct command cmd_context_set = {
    .name = "context set",
    .args = "NAME",
    .flags = set_flags,
    .help = "Remember a server: its --addr, --token and --ca.",
    .more = "What is not given stays as it was; an empty value forgets it. The first context "
            "becomes the current one. The file is ~/.config/atoll/contexts.json, which only you "
            "can read.\n\n"
            "Example:\n  atoll context set lab --addr https://lab.example.org --token \"$TOKEN\"",
    .run = set_run,
};

static int use_run(struct cli *cli, struct err *err)
{
    autocontexts struct contexts contexts = { .lock_fd = -1 };

    if (check_name(cli, err) < 0 || contexts_open(&contexts, err) < 0)
        return -1;
    if (!contexts_find(&contexts, cli->args[0]))
        return missing(cli, err);
    context_text(&contexts.current, cli->args[0]);
    if (contexts_save(&contexts, err) < 0)
        return -1;
    return done(cli, &contexts, "is current");
}

const struct command cmd_context_use = {
    .name = "context use",
    .args = "NAME",
    .help = "Choose the server that commands talk to from now on.",
    .run = use_run,
};

static int list_run(struct cli *cli, struct err *err)
{
    autocontexts struct contexts contexts = { .lock_fd = -1 };
    autotable struct table table = { 0 };
    struct json_out json = json_to(&cli->out);

    if (contexts_load(&contexts, err) < 0)
        return -1;
    if (cli->json) {
        json_open(&json, '{');
        json_key(&json, "items");
        json_open(&json, '[');
        for (size_t i = 0; i < contexts.count; i++)
            put_context(&json, &contexts, &contexts.list[i]);
        json_close(&json, ']');
        json_close(&json, '}');
        buf_putc(&cli->out, '\n');
        return EXIT_OK;
    }
    table_titles(&table, "CURRENT,NAME,ADDRESS,TOKEN");
    for (size_t i = 0; i < contexts.count; i++) {
        const struct context *context = &contexts.list[i];
        bool current = contexts.current && strcmp(contexts.current, context->name) == 0;

        table_cell(&table, current ? STR("*") : STR(""));
        table_cell(&table, str_of(context->name));
        table_cell(&table, str_of(context->addr));
        table_cell(&table, context->token ? STR("yes") : STR("no"));
    }
    table_put(&table, &cli->out, cli_width(cli), cli_colour(cli, cli->out_fd));
    return EXIT_OK;
}

const struct command cmd_context_list = {
    .name = "context list",
    .help = "List the remembered servers.",
    .run = list_run,
};

static int rm_run(struct cli *cli, struct err *err)
{
    autocontexts struct contexts contexts = { .lock_fd = -1 };

    if (check_name(cli, err) < 0 || contexts_open(&contexts, err) < 0)
        return -1;
    if (!contexts_remove(&contexts, cli->args[0]))
        return missing(cli, err);
    if (contexts_save(&contexts, err) < 0)
        return -1;
    return done(cli, &contexts, "is forgotten");
}

const struct command cmd_context_rm = {
    .name = "context rm",
    .args = "NAME",
    .help = "Forget a server.",
    .run = rm_run,
};
