/*
 * The hosts that were blocked while a command ran, and the command that allows them: what a program
 * says about a refused connection is seldom more than a status.
 */
#include "cli/cli.h"

/* The rule that allows it: without a port that rules mean anyway. */
static void put_rule(struct buf *out, struct str blocked)
{
    static const struct str usual[] = { STR_INIT(":443"), STR_INIT(":80") };

    for (size_t i = 0; i < ARRAY_LEN(usual); i++)
        if (blocked.n > usual[i].n && str_eq(str_from(blocked, blocked.n - usual[i].n), usual[i])) {
            blocked.n -= usual[i].n;
            break;
        }
    buf_str(out, blocked);
}

void cli_note_blocked(struct cli *cli, const struct json *exec)
{
    const struct json *list = json_get(exec, "blocked");
    autobuf struct buf hosts = { 0 }, allow = { 0 };
    bool once = strcmp(cli->command->name, "run") == 0 && !cli_has(cli, "keep");
    size_t count = 0;

    if (!list || list->type != JSON_ARRAY)
        return;
    json_each(one, list)
    {
        buf_puts(&hosts, count ? ", " : "");
        buf_str(&hosts, one->text);
        if (once)
            buf_puts(&allow, " --allow ");
        else
            buf_printf(&allow, "%satoll egress allow %.*s ", count ? "; " : "",
                       STR_FMT(json_text(exec, "sandbox")));
        put_rule(&allow, one->text);
        count++;
    }
    if (count)
        cli_note(cli, "%zu host%s blocked: %.*s. Allow: %s%.*s%s", count,
                 count == 1 ? " was" : "s were", STR_FMT(buf_view(&hosts)), once ? "atoll run" : "",
                 STR_FMT(buf_view(&allow)), once ? " ..." : "");
}
