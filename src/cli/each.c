/*
 * One change for each of the names that were given. A name that is refused keeps nobody from the
 * others: it is said, and the first refusal is the exit status. Where the server is away or knows
 * us not, the next name would fare no better, and it ends there.
 */
#include "cli/cli.h"

static bool concerns_all(const struct err *err)
{
    return err->sys || err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT ||
           err->code == ERR_UNAUTHENTICATED;
}

static int change(struct cli *cli, const struct cli_each *each, const char *name, struct err *err)
{
    const struct json *reply;

    if (cli_call(cli, each->method, STR_NONE, &reply, err, "%s/%s%s", each->path,
                 cli_escape(cli, name), each->after ? each->after : "") < 0)
        return err_wrap(err, "%s %s", each->what, name);
    return each->word ? cli_word(cli, reply, each->word) : cli->json ? cli_put_reply(cli) : 0;
}

int cli_each(struct cli *cli, const struct cli_each *each)
{
    int status = EXIT_OK;

    for (size_t i = 0; i < cli->arg_count; i++) {
        struct err err = { 0 };

        if (change(cli, each, cli->args[i], &err) == 0)
            continue;
        int now = cli_failed(cli, &err);
        status = status ? status : now;
        if (concerns_all(&err))
            break;
        cli->hint[0] = cli->request_id[0] = 0; /* those of the next are its own */
    }
    return status;
}
