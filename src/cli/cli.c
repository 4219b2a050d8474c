/*
 * From arguments to exit status. A command that fails returns -1 with an error; it is shown here,
 * once, and its code chooses the exit status: 0 ok, 1 error, 2 not found, 3 conflict, 4 auth,
 * 5 timeout, 64 usage.
 */
#include "cli/cli.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>

#include "base/mem.h"
#include "conf/conf.h"

extern char **environ;

static void cli_init(struct cli *cli, int out_fd, int err_fd)
{
    *cli = (struct cli){ .out_fd = out_fd, .err_fd = err_fd };
}

static void cli_free(struct cli *cli)
{
    buf_free(&cli->out);
    endpoint_free(&cli->at);
    arena_free(&cli->answers);
    arena_free(&cli->arena);
}

int cli_failed(struct cli *cli, const struct err *err)
{
    if (err->sys == EPIPE)
        return EXIT_PIPE; /* nobody reads us any more; nothing to say */
    cli_show_error(cli, err);
    return cli->usage ? EXIT_USAGE : MAX(err_info(err->code)->exit, EXIT_ERROR);
}

/* Help that was asked for; everything else that ends without a command is a mistake. */
static int explain(struct cli *cli, struct err *err)
{
    if (cli->command)
        help_command(&cli->out, cli->command);
    else if (cli->group)
        help_group(&cli->out, cli->group);
    else
        help_all(&cli->out);
    if (cli->help)
        return EXIT_OK;
    int fd = cli->out_fd;
    cli->out_fd = cli->err_fd;
    int rc = cli->json ? 0 : cli_flush(cli, err);
    cli->out_fd = fd;
    buf_clear(&cli->out);
    if (cli->json)
        return cli_usage(cli, err, "a command is missing");
    return rc < 0 ? -1 : EXIT_USAGE;
}

void (*cli_elsewhere)(void);

static int perform(struct cli *cli, int argc, char **argv, struct err *err)
{
    int parsed = cli_parse(cli, argc, argv, err);

    if (cli_elsewhere && (parsed < 0 || cli->help || !cli->command))
        cli_elsewhere();
    if (parsed < 0)
        return -1;
    int rc = cli->help || !cli->command ? explain(cli, err) : cli->command->run(cli, err);
    /* What was found out before a failure is still worth printing. */
    struct err late = { 0 };
    if (cli_flush(cli, &late) < 0 && rc >= 0) {
        *err = late;
        return -1;
    }
    return rc;
}

int cli_run(int argc, char **argv, int out_fd, int err_fd)
{
    struct err err = { 0 };
    struct cli cli;

    cli_init(&cli, out_fd, err_fd);
    int rc = perform(&cli, argc, argv, &err);
    if (rc < 0)
        rc = cli_failed(&cli, &err);
    cli_free(&cli);
    return rc;
}

static void on_sigpipe(void (*what)(int))
{
    struct sigaction action = { .sa_handler = what };

    sigaction(SIGPIPE, &action, NULL);
}

/* For the width of characters. */
static void set_locale(void)
{
    setlocale(LC_CTYPE, "C.UTF-8");
}

int cli_main(int argc, char **argv)
{
    set_locale();
    on_sigpipe(SIG_IGN); /* a server that closes must not end us */
    int rc = cli_run(argc, argv, STDOUT_FILENO, STDERR_FILENO);
    if (rc == EXIT_PIPE) { /* end as every program in a pipeline does */
        on_sigpipe(SIG_DFL);
        raise(SIGPIPE);
    }
    return rc;
}

/* ---- the settings of serve ---- */

static int settings(struct cli *cli, struct conf *conf, struct err *err)
{
    cli->conf_args[cli->conf_count] = NULL;
    if (conf_args(conf, cli->conf_args, err) < 0) {
        cli->usage = true;
        return -1;
    }
    if (conf_env(conf, environ, err) < 0 || conf_load(conf, err) < 0)
        return -1;
    if (conf_check(conf, err) == 0)
        return 0;
    cli->usage = str_starts(str_of(err->msg), STR("--")); /* it names who set the value: a flag */
    return -1;
}

int cli_settings(struct cli *cli, struct conf **out, struct err *err)
{
    struct conf *conf = conf_new();

    if (settings(cli, conf, err) < 0) {
        conf_free(conf);
        return -1;
    }
    *out = conf;
    return 0;
}

/* Of a command that is a role: -1 when it is to be started, else the exit status. */
static int role(struct cli *cli, int argc, char **argv, struct err *err)
{
    set_locale(); /* and nothing else: the server inherits what is changed here */
    cli_init(cli, STDOUT_FILENO, STDERR_FILENO);
    if (cli_parse(cli, argc, argv, err) < 0)
        return cli_failed(cli, err);
    if (!cli->help)
        return -1;
    return explain(cli, err) == EXIT_OK && cli_flush(cli, err) == 0 ? EXIT_OK
                                                                    : cli_failed(cli, err);
}

int cli_serve(int argc, char **argv, struct conf **out)
{
    struct err err = { 0 };
    struct cli cli;
    int rc = role(&cli, argc, argv, &err);

    if (rc < 0 && cli_settings(&cli, out, &err) < 0)
        rc = cli_failed(&cli, &err);
    cli_free(&cli);
    return rc;
}

int cli_proxy(int argc, char **argv, struct egress_signed *out)
{
    struct err err = { 0 };
    struct cli cli;
    int rc = role(&cli, argc, argv, &err);

    if (rc < 0 && proxy_wish(&cli, out, &err) < 0)
        rc = cli_failed(&cli, &err);
    cli_free(&cli);
    return rc;
}
