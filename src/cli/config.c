/* `config show`: every setting, its value, and who said so. `serve` has only its help here. */
#include "base/mem.h"
#include "cli/cli.h"
#include "conf/conf.h"

static void show_json(struct cli *cli, const struct conf *conf)
{
    struct json_out json = json_to(&cli->out);

    json_open(&json, '{');
    json_key(&json, "settings");
    json_open(&json, '[');
    for (const struct conf_key *key = conf_table; key->name; key++) {
        const char *where;
        enum conf_source source = conf_source(conf, key->name, &where);

        json_open(&json, '{');
        json_kv_text(&json, "name", key->name);
        json_kv_text(&json, "value", conf_text(conf, key->name));
        json_kv_text(&json, "source", conf_source_name(source));
        json_kv_text(&json, "where", where);
        json_kv_text(&json, "default", key->otherwise);
        json_kv_bool(&json, "reload", key->reload);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    buf_putc(&cli->out, '\n');
}

static void show_text(struct cli *cli, const struct conf *conf)
{
    autotable struct table table = { 0 };

    table_titles(&table, "SETTING,VALUE,FROM");
    for (const struct conf_key *key = conf_table; key->name; key++) {
        const char *where, *value = conf_text(conf, key->name);
        enum conf_source source = conf_source(conf, key->name, &where);
        autofree char *from = source == CONF_DEFAULT
                                  ? xstrdup("default")
                                  : xprintf("%s %s", conf_source_name(source), where);

        table_cell(&table, str_of(key->name));
        table_cell(&table, value[0] ? str_of(value) : STR("-"));
        table_cell(&table, str_of(from));
    }
    table_put(&table, &cli->out, 0, cli_colour(cli, cli->out_fd));
}

static int show_run(struct cli *cli, struct err *err)
{
    struct conf *conf = NULL;

    if (cli_settings(cli, &conf, err) < 0)
        return -1;
    if (cli->json)
        show_json(cli, conf);
    else
        show_text(cli, conf);
    conf_free(conf);
    return EXIT_OK;
}

const struct command cmd_config_show = {
    .name = "config show",
    .help = "Show every setting of the server, its value, and which source won.",
    .more = "Reads what `atoll serve` would read if started here with the same flags: flag, "
            "environment, settings file, default, in that order. A setting that would keep the "
            "server from starting is reported as it would be there.",
    .traits = CMD_CONF,
    .run = show_run,
};

static int serve_run(struct cli *cli, struct err *err)
{
    (void)cli;
    return err_set(err, ERR_UNSUPPORTED, "`serve` must be the first word: `atoll serve [FLAG…]`");
}

const struct command cmd_serve = {
    .name = "serve",
    .help = "Run the server in the foreground.",
    .more = "Started as root it splits at once into a small privileged warden and an "
            "unprivileged process that serves; otherwise everything runs as you. SIGTERM and "
            "Ctrl-C finish requests under way and stop; SIGHUP reads the settings again.\n\n"
            "The first start writes an admin token that only its owner can read to admin.token in "
            "the state directory, and prints a login link for the dashboard.\n\n"
            "Example:\n  atoll serve --listen 127.0.0.1:8080 --state /srv/atoll",
    .traits = CMD_CONF,
    .run = serve_run,
};
