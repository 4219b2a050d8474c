/* About the server as a whole: is it well, which version, who am I to it, a link for the browser.
 */
#include <stdio.h>

#include "base/mem.h"
#include "base/show.h"
#include "cli/cli.h"
#include "conf/conf.h"

/* What anybody may know, when we are nobody to the server. */
static int health_of_nobody(struct cli *cli, struct err *err)
{
    const struct json *reply;

    cli->hint[0] = cli->request_id[0] = 0;
    if (cli_get(cli, &reply, err, "/readyz") < 0)
        return err_wrap(err, "health");
    return cli_details(cli, reply, "status");
}

static int health_run(struct cli *cli, struct err *err)
{
    const struct json *reply;

    if (cli_get(cli, &reply, err, "/api/v1/health") < 0) {
        if (err->code == ERR_UNAUTHENTICATED && cli->at.found && !cli->at.token)
            return health_of_nobody(cli, err);
        return err_wrap(err, "health");
    }
    (void)cli_details(cli, reply, "status,version,ready,store,uptime_ms,started_at,subscribers");
    return json_true(reply, "ready") ? EXIT_OK : EXIT_ERROR;
}

const struct command cmd_health = {
    .name = "health",
    .help = "Ask whether the server is well.",
    .more =
        "Ends with status 0 only when the server answers and takes requests. Needs no token, but "
        "tells more with one.",
    .traits = CMD_REMOTE,
    .run = health_run,
};

static int version_run(struct cli *cli, struct err *err)
{
    struct json_out json = json_to(&cli->out);
    const struct json *reply = NULL;
    bool both = cli_has(cli, "server");

    if (both && cli_get(cli, &reply, err, "/api/v1/version") < 0)
        return err_wrap(err, "version of the server");
    if (cli->json) {
        json_open(&json, '{');
        json_kv_text(&json, "version", ATOLL_VERSION);
        if (both) {
            json_key(&json, "server");
            json_put(&json, reply);
        }
        json_close(&json, '}');
        buf_putc(&cli->out, '\n');
        return EXIT_OK;
    }
    buf_puts(&cli->out, "atoll " ATOLL_VERSION "\n");
    if (both) {
        buf_puts(&cli->out, "server ");
        show_text(&cli->out, json_text(reply, "version"));
        buf_putc(&cli->out, '\n');
    }
    return EXIT_OK;
}

static const struct cli_flag version_flags[] = {
    { "server", NULL, "Ask the server for its version too" },
    { 0 },
};

const struct command cmd_version = {
    .name = "version",
    .help = "Print the version.",
    .flags = version_flags,
    .run = version_run,
};

const struct command cmd_whoami = {
    .name = "whoami",
    .help = "Show who the server takes you for, and what you may do.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/whoami", .lines = "id,name,role,tenant,scopes,via,expires_at" },
    .run = cli_view,
};

/* ---- login ---- */

/* Where a browser finds the server that we may have reached by its Unix socket; gives. */
static char *browser_base(struct cli *cli)
{
    char *base = NULL;

    if (cli->at.target.name[0])
        return xprintf("http%s://%s", cli->at.target.tls ? "s" : "", cli->at.target.host);
    /* The settings as the server most likely read them; flags of serve are not known here. */
    struct conf *conf = NULL;
    struct err ignored;
    if (cli_settings(cli, &conf, &ignored) == 0) {
        const char *const *list = conf_list(conf, "listen");

        for (size_t i = 0; list[i] && !base; i++) {
            struct conf_listen at;

            if (conf_listen_parse(list[i], &at, &ignored) < 0 || at.is_unix)
                continue;
            base = xprintf(strchr(at.host, ':') ? "http%s://[%s]:%u" : "http%s://%s:%u",
                           at.tls ? "s" : "", at.host, at.port);
        }
    }
    conf_free(conf);
    return base ? base : xstrdup("http://127.0.0.1:8080");
}

static int login_run(struct cli *cli, struct err *err)
{
    const struct json *reply;

    if (cli_call(cli, "POST", STR_NONE, &reply, err, "/api/v1/login-links") < 0)
        return err_wrap(err, "make a login link");
    if (cli->json)
        return cli_put_reply(cli);
    struct str url = json_text(reply, "url"), path = json_text(reply, "url_path");
    autofree char *base = url.p ? NULL : browser_base(cli);
    if (!url.p && !path.p)
        return err_set(err, ERR_INTERNAL, "the server's answer holds no link");
    show_text(&cli->out, str_of(base));
    show_text(&cli->out, url.p ? url : path);
    buf_putc(&cli->out, '\n');
    return EXIT_OK;
}

const struct command cmd_login = {
    .name = "login",
    .help = "Print a fresh link that logs a browser in to the dashboard, once.",
    .more = "The link works for ten minutes and a single time, with the role you have here.",
    .traits = CMD_REMOTE,
    .run = login_run,
};
