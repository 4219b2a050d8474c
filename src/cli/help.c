/*
 * Help is laid out here and worded in the tables. Paragraphs are wrapped to 80 columns; a line that
 * begins with a blank (an example) stays as it is.
 */
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/wrap.h"
#include "conf/conf.h"

#define WIDTH 80
#define GAP 26 /* where explanations begin */

static void put_pair(struct buf *out, const char *left, const char *right)
{
    size_t start = out->len;

    buf_printf(out, "  %s", left);
    size_t used = text_width((struct str){ out->data + start, out->len - start });
    if (used + 2 > GAP) {
        buf_putc(out, '\n');
        used = 0;
    }
    for (; used < GAP; used++)
        buf_putc(out, ' ');
    wrap_text(out, right, GAP, GAP, WIDTH);
}

void flag_title(struct buf *out, const struct cli_flag *flag)
{
    if (flag_letter(flag))
        buf_printf(out, "-%c, ", flag_letter(flag));
    buf_printf(out, "--%s%s%s", flag->name, flag->arg ? " " : "", flag->arg ? flag->arg : "");
}

static void put_flags(struct buf *out, const char *title, const struct cli_flag *flags)
{
    if (!flags || !flags->name)
        return;
    buf_printf(out, "\n%s\n", title);
    for (const struct cli_flag *flag = flags; flag->name; flag++) {
        autobuf struct buf left = { 0 };

        flag_title(&left, flag);
        put_pair(out, buf_cstr(&left), flag->help);
    }
}

static void put_settings(struct buf *out)
{
    buf_puts(out, "\nSettings, each also as ATOLL_NAME or in the settings file\n");
    for (const struct conf_key *key = conf_table; key->name; key++) {
        autobuf struct buf left = { 0 }, right = { 0 };
        const char *shown = key->shown ? key->shown : key->otherwise;

        conf_flag_name(key, &left);
        if (key->arg) /* one that is true or false needs none */
            buf_printf(&left, " %s", key->arg);
        buf_puts(&right, key->help);
        if (key->choices)
            buf_printf(&right, " %s %s.", strstr(key->choices, "..") ? "Range" : "One of",
                       key->choices);
        if (shown && shown[0])
            buf_printf(&right, " Default: %s.", shown);
        put_pair(out, buf_cstr(&left), buf_cstr(&right));
    }
}

/* A command that asks no server has only the last two. */
static const struct cli_flag *globals_of(const struct command *command)
{
    const struct cli_flag *flag = cli_globals;

    while (!(command->traits & CMD_REMOTE) && strcmp(flag->name, "json") != 0)
        flag++;
    return flag;
}

void help_command(struct buf *out, const struct command *command)
{
    bool conf = command->traits & CMD_CONF;

    buf_printf(out, "Usage: atoll %s", command->name);
    if (command->args)
        buf_printf(out, " %s", command->args);
    buf_puts(out, conf ? " [SETTING]…\n\n" : " [FLAG]…\n\n");
    wrap_text(out, command->help, 0, 0, WIDTH);
    if (command->more) {
        buf_putc(out, '\n');
        wrap_text(out, command->more, 0, 0, WIDTH);
    }
    put_flags(out, "Flags", command->flags);
    if (conf)
        put_settings(out);
    else
        put_flags(out, "Flags of every command", globals_of(command));
}

static void put_commands(struct buf *out, const char *group)
{
    for (const struct command *const *at = commands; *at; at++) {
        const struct command *command = *at;
        struct str rest = str_of(command->name);

        if (command->traits & CMD_HIDDEN)
            continue;
        if (group && (!str_is(str_cut(&rest, ' '), group) || !rest.n))
            continue;
        autofree char *left = xprintf("%s%s%s", command->name, command->args ? " " : "",
                                      command->args ? command->args : "");
        put_pair(out, left, command->help);
    }
    for (const struct alias *alias = aliases; group && alias->name; alias++) {
        struct str rest = str_of(alias->name);

        if (!str_is(str_cut(&rest, ' '), group) || !rest.n)
            continue;
        autofree char *right = xprintf("The same as `atoll %s`.", alias->is);
        put_pair(out, alias->name, right);
    }
}

void help_group(struct buf *out, const char *group)
{
    buf_printf(out, "Usage: atoll %s COMMAND\n\n", group);
    put_commands(out, group);
    buf_printf(out, "\n`atoll %s COMMAND --help` explains one of them.\n", group);
}

void help_all(struct buf *out)
{
    buf_puts(out, "Usage: atoll COMMAND [ARGUMENT]… [FLAG]…\n\n"
                  "Sandboxes for AI agents on hardware you own.\n\n");
    put_commands(out, NULL);
    put_flags(out, "Flags of every command", cli_globals);
    buf_puts(out,
             "\nExit status: 0 ok, 1 error, 2 not found, 3 conflict, 4 not allowed, 5 timeout,\n"
             "64 wrong usage. `atoll COMMAND --help` explains a command.\n");
}

static int help_run(struct cli *cli, struct err *err)
{
    autobuf struct buf name = { 0 };

    for (size_t i = 0; i < cli->arg_count; i++)
        buf_printf(&name, "%s%s", i ? " " : "", cli->args[i]);
    if (!name.len) {
        help_all(&cli->out);
        return EXIT_OK;
    }
    const struct command *command = command_find(buf_cstr(&name));
    if (command) {
        help_command(&cli->out, command);
        return EXIT_OK;
    }
    if (!command_is_group(buf_view(&name)))
        return cli_usage(cli, err, "there is no command '%s'", buf_cstr(&name));
    help_group(&cli->out, buf_cstr(&name));
    return EXIT_OK;
}

const struct command cmd_help = {
    .name = "help",
    .args = "[COMMAND…]",
    .help = "Explain a command, or list them all.",
    .run = help_run,
};
