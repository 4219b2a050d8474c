/* Taking away what nobody needs any more: sandboxes that ended, and volumes that nobody names. */
#include "base/clock.h"
#include "cli/sandbox.h"

struct pruning {
    bool stopped, dry;
    char before[CLOCK_TEXT_SIZE]; /* only what changed before; "": all */
    size_t count;
};

static int remove_one(struct cli *cli, struct pruning *pruning, const char *path, struct str id,
                      struct err *err)
{
    const char *own = arena_memdup0(&cli->arena, id.p, id.n);

    pruning->count++;
    if (!pruning->dry &&
        cli_call(cli, "DELETE", STR_NONE, NULL, err, "%s/%s", path, cli_escape(cli, own)) < 0)
        return err_wrap(err, "remove %s", own);
    if (!cli->json)
        buf_printf(&cli->out, "%s\n", own);
    return 0;
}

/* Ids of those to go, before the first goes: answers live until the next is asked for. */
static int prune_sandboxes(struct cli *cli, struct pruning *pruning, struct err *err)
{
    const struct json *reply;

    if (cli_list(cli, &reply, err, "/api/v1/sandboxes") < 0)
        return err_wrap(err, "list sandboxes");
    json_each(item, json_get(reply, "items"))
    {
        struct str state = json_text(item, "state");
        struct str changed = json_text(item, "changed_at");

        if (!str_is(state, "failed") && !(pruning->stopped && str_is(state, "stopped")))
            continue;
        /* Times of one form sort as text. */
        if (pruning->before[0] && (changed.n != strlen(pruning->before) ||
                                   memcmp(changed.p, pruning->before, changed.n) > 0))
            continue;
        if (remove_one(cli, pruning, "/api/v1/sandboxes", json_text(item, "id"), err) < 0)
            return -1;
    }
    return 0;
}

static int prune_volumes(struct cli *cli, struct pruning *pruning, struct err *err)
{
    const struct json *reply;

    if (cli_list(cli, &reply, err, "/api/v1/volumes") < 0)
        return err_wrap(err, "list volumes");
    json_each(item, json_get(reply, "items"))
    {
        const struct json *users = json_get(item, "sandboxes");
        bool used = !users || users->count > 0;

        if (!used && remove_one(cli, pruning, "/api/v1/volumes", json_text(item, "id"), err) < 0)
            return -1;
    }
    return 0;
}

static int prune_run(struct cli *cli, struct err *err)
{
    struct pruning pruning = { .stopped = cli_has(cli, "stopped"), .dry = cli_has(cli, "dry-run") };
    int64_t age = 0;

    if (cli_ms(cli, "older", 0, &age, err) < 0)
        return -1;
    if (age)
        clock_text(clock_wall_ms() - age, pruning.before);
    if (prune_sandboxes(cli, &pruning, err) < 0 ||
        (cli_has(cli, "volumes") && prune_volumes(cli, &pruning, err) < 0))
        return -1;
    if (cli->json)
        buf_printf(&cli->out, "{\"removed\":%zu}\n", pruning.count);
    return EXIT_OK;
}

static const struct cli_flag prune_flags[] = {
    { "stopped", NULL, "Stopped sandboxes too, with their files" },
    { "volumes", NULL, "Volumes too that no sandbox names, with their files" },
    { "older", "TIME", "Only sandboxes whose state has not changed for so long, such as 7d" },
    { "dry-run", NULL, "Only print what would go" },
    { 0 },
};

const struct command cmd_prune = {
    .name = "prune",
    .help = "Remove sandboxes that have failed, and what else is asked for.",
    .more = "Prints the ids of what was removed.\n\n"
            "Examples:\n  atoll prune\n  atoll prune --stopped --older 7d --volumes",
    .flags = prune_flags,
    .traits = CMD_REMOTE,
    .run = prune_run,
};
