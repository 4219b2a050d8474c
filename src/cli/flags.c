/*
 * Reading the command line. Words before the command may only be global flags; the command is one
 * word or two ("token create"); from there on its own flags are known too. For commands that take
 * the server's settings, everything but --help and --json is collected for conf_args.
 *
 * Some flags have a letter: -e NAME=VALUE, -eNAME=VALUE, and switches together, -it.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/near.h"
#include "cli/cli.h"
#include "conf/conf.h"

const struct cli_flag cli_globals[] = {
    { "addr", "URL", "The server: http://HOST:PORT, https://HOST:PORT or unix:/PATH (ATOLL_ADDR)" },
    { "token", "TOKEN", "Credential; better given as ATOLL_TOKEN, where others cannot see it" },
    { "state", "DIR", "State directory of a local server (ATOLL_STATE)" },
    { "context", "NAME", "A server remembered by `atoll context set` (ATOLL_CONTEXT)" },
    { "ca", "FILE", "Authorities that may sign the server's certificate (ATOLL_CA)" },
    { "timeout", "TIME",
      "Give up after this long, such as 5s or 2m (30s; what follows something never)" },
    { "json", NULL, "Print JSON, exactly as the server sent it; errors are JSON too" },
    { "help", NULL, "Explain the command" },
    { 0 },
};

/* A letter means the same flag of every command that has it; as in docker, where that has one. */
static const struct {
    char letter;
    const char *flag;
} letters[] = {
    { 'd', "detach" },
    { 'e', "env" },
    { 'f', "follow" },
    { 'i', "interactive" },
    { 'l', "label" },
    { 'm', "memory" },
    { 'o', "output" },
    { 'r', "recursive" },
    { 't', "tty" },
    { 'u', "user" },
    { 'v', "volume" },
    { 'w', "cwd" },
    /* of agentic's client */
    { 'H', "heartbeat" },
    { 'i', "agent-id" },
    { 's', "server" },
    { 'S', "secret" },
};

char flag_letter(const struct cli_flag *flag)
{
    for (size_t i = 0; i < ARRAY_LEN(letters); i++)
        if (strcmp(letters[i].flag, flag->name) == 0)
            return letters[i].letter;
    return 0;
}

int cli_usage(struct cli *cli, struct err *err, const char *fmt, ...)
{
    char text[ERR_MSG_SIZE];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    cli->usage = true;
    if (!cli->hint[0] && cli->command)
        snprintf(cli->hint, sizeof(cli->hint), "see `atoll %s --help`", cli->command->name);
    else if (!cli->hint[0])
        snprintf(cli->hint, sizeof(cli->hint), "see `atoll help`");
    return err_set(err, ERR_INVALID, "%s", text);
}

/* ---- the command ---- */

static const struct command *named(const char *name)
{
    for (const struct alias *alias = aliases; alias->name; alias++)
        if (strcmp(alias->name, name) == 0)
            name = alias->is;
    for (const struct command *const *at = commands; *at; at++)
        if (strcmp((*at)->name, name) == 0)
            return *at;
    return NULL;
}

/* By its name, another name of it, or with another word for the same verb. */
const struct command *command_find(const char *name)
{
    static const char *const verbs[][2] = {
        { "list", "ls" }, { "ls", "list" }, { "get", "show" }, { "delete", "rm" }
    };
    const char *verb = strrchr(name, ' ');
    const struct command *found = named(name);

    for (size_t i = 0; !found && verb && i < ARRAY_LEN(verbs); i++) {
        if (strcmp(verb + 1, verbs[i][0]) != 0)
            continue;
        autofree char *other = xprintf("%.*s %s", (int)(verb - name), name, verbs[i][1]);
        found = named(other);
    }
    return found;
}

static bool begins_with_word(const char *text, struct str word)
{
    struct str name = str_of(text);

    return name.n > word.n && name.p[word.n] == ' ' && str_starts(name, word);
}

bool command_is_group(struct str word)
{
    for (const struct alias *alias = aliases; alias->name; alias++)
        if (begins_with_word(alias->name, word))
            return true;
    for (const struct command *const *at = commands; *at; at++)
        if (begins_with_word((*at)->name, word))
            return true;
    return false;
}

/* "did you mean": against whole names, and against their first words. */
static const char *nearest(const char *typed)
{
    const char *best = NULL;
    unsigned least = UINT_MAX;

    for (const struct command *const *at = commands; *at; at++) {
        struct str rest = str_of((*at)->name), word = str_cut(&rest, ' ');
        unsigned whole = near_distance(str_of(typed), str_of((*at)->name));
        unsigned first = near_distance(str_of(typed), word);
        unsigned last = rest.n ? near_distance(str_of(typed), rest) : UINT_MAX;

        if ((*at)->traits & CMD_HIDDEN)
            continue;
        whole = MIN(whole, MIN(first, last));
        if (whole < least)
            least = whole, best = (*at)->name;
    }
    return near_enough(least, str_of(typed)) ? best : NULL;
}

static int no_command(struct cli *cli, const char *typed, struct err *err)
{
    const char *near = nearest(typed);

    if (near)
        snprintf(cli->hint, sizeof(cli->hint), "did you mean `atoll %s`?", near);
    return cli_usage(cli, err, "there is no command '%s'", typed);
}

static int take_arg(struct cli *cli, const char *word, struct err *err);

/* Takes one more word of the command's name; 1 when the command is known now. */
static int take_word(struct cli *cli, const char *word, struct err *err)
{
    autofree char *both = cli->group ? xprintf("%s %s", cli->group, word) : xstrdup(word);

    cli->command = command_find(both);
    if (cli->command)
        return 1;
    if (!cli->group && command_is_group(str_of(word))) {
        cli->group = word;
        return 0;
    }
    autofree char *bare = xprintf("%s " ALIAS_ARG, cli->group ? cli->group : "");
    cli->command = command_find(bare); /* `snapshot box` is one of it */
    if (cli->command)
        return take_arg(cli, word, err) < 0 ? -1 : 1;
    return no_command(cli, both, err);
}

void command_arity(const struct command *command, size_t *least, size_t *most)
{
    struct str rest = str_of(command->args);

    *least = *most = 0;
    while (rest.n) {
        struct str word = str_cut(&rest, ' ');

        *least += word.p[0] != '[';
        *most = memmem(word.p, word.n, "…", strlen("…")) ? CLI_ARGS_MAX : *most + 1;
    }
}

/* ---- flags ---- */

static const struct cli_flag *find_in(const struct cli_flag *flags, struct str name)
{
    for (const struct cli_flag *flag = flags; flag && flag->name; flag++)
        if (str_is(name, flag->name))
            return flag;
    return NULL;
}

static const struct cli_flag *find_flag(const struct cli *cli, struct str name)
{
    const struct cli_flag *flag = cli->command ? find_in(cli->command->flags, name) : NULL;

    return flag ? flag : find_in(cli_globals, name);
}

/* Is this rather a flag of the command that we are to run? */
static void hint_command(struct cli *cli)
{
    if (cli->command && cli->command->args && strstr(cli->command->args, "COMMAND") &&
        cli->arg_count)
        snprintf(cli->hint, sizeof(cli->hint), "put -- before the command that has flags");
}

static int unknown_flag(struct cli *cli, struct str name, struct err *err)
{
    const struct cli_flag *tables[] = { cli->command ? cli->command->flags : NULL, cli_globals };
    const char *best = NULL;
    unsigned least = UINT_MAX;

    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        for (const struct cli_flag *flag = tables[i]; flag && flag->name; flag++) {
            unsigned distance = near_distance(name, str_of(flag->name));

            if (distance < least)
                least = distance, best = flag->name;
        }
    hint_command(cli);
    if (near_enough(least, name))
        snprintf(cli->hint, sizeof(cli->hint), "did you mean --%s?", best);
    return cli_usage(cli, err, "unknown flag --%.*s", STR_FMT(name));
}

static int keep_flag(struct cli *cli, const struct cli_flag *flag, const char *value,
                     struct err *err)
{
    if (cli->set_count == CLI_FLAGS_MAX)
        return cli_usage(cli, err, "more than %d flags", CLI_FLAGS_MAX);
    cli->set[cli->set_count].flag = flag;
    cli->set[cli->set_count++].value = value;
    return 0;
}

/* The letters of **at: switches, of which the last may be a flag with a value. */
static int take_letters(struct cli *cli, char ***at, struct err *err)
{
    for (const char *letter = **at + 1; *letter; letter++) {
        const struct cli_flag *flag = cli->command ? cli->command->flags : NULL;
        const char *value = "";

        if (*letter == 'h') {
            cli->help = true;
            continue;
        }
        while (flag && flag->name && flag_letter(flag) != *letter)
            flag++;
        if (!flag || !flag->name) {
            hint_command(cli);
            return cli_usage(cli, err, "unknown flag -%c in %s", *letter, **at);
        }
        if (flag->arg && letter[1])
            value = letter + 1;
        else if (flag->arg && !(value = *++*at))
            return cli_usage(cli, err, "-%c needs a value: %s", *letter, flag->arg);
        if (keep_flag(cli, flag, value, err) < 0)
            return -1;
        if (flag->arg)
            break;
    }
    return 0;
}

/* One flag at **at, with its value in the same word or the next; moves *at over what it used. */
static int take_flag(struct cli *cli, char ***at, struct err *err)
{
    struct str value = str_of(**at + 2), name = str_cut(&value, '=');
    bool inlined = name.p[name.n] == '=';
    const struct cli_flag *flag = find_flag(cli, name);

    if (!flag)
        return unknown_flag(cli, name, err);
    if (!flag->arg && inlined)
        return cli_usage(cli, err, "--%s takes no value", flag->name);
    const char *text = inlined ? value.p : "";
    if (flag->arg && !inlined && !(text = *++*at))
        return cli_usage(cli, err, "--%s needs a value: %s", flag->name, flag->arg);
    return keep_flag(cli, flag, text, err);
}

/* Is this word a flag of the settings by itself (--no-…)? What it is not, conf says best. */
static int conf_knows(char *word, struct err *err)
{
    char *alone[] = { word, NULL };
    struct conf *conf = conf_new();
    int rc = conf_args(conf, alone, err);

    conf_free(conf);
    return rc;
}

/* The flags of the server's settings; a value follows unless it is in the same word. */
static int take_conf(struct cli *cli, char ***at, struct err *err)
{
    struct str value = str_of(**at + 2), name = str_cut(&value, '=');
    const struct conf_key *key = conf_find(name);

    if (!key && conf_knows(**at, err) < 0)
        return cli_usage(cli, err, "%s", arena_strdup(&cli->arena, err->msg));
    if (cli->conf_count + 2 > CLI_FLAGS_MAX)
        return cli_usage(cli, err, "more than %d flags", CLI_FLAGS_MAX / 2);
    cli->conf_args[cli->conf_count++] = **at;
    if (key && key->type != CONF_BOOL && name.p[name.n] != '=' && (*at)[1])
        cli->conf_args[cli->conf_count++] = *++*at;
    return 0;
}

static bool is_common(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "--json") == 0;
}

static int take_arg(struct cli *cli, const char *word, struct err *err)
{
    size_t least, most;

    command_arity(cli->command, &least, &most);
    if (most == 0) { /* `health` is a command, and so is `health status` */
        autofree char *both = xprintf("%s %s", cli->command->name, word);
        const struct command *longer = command_find(both);

        if (longer) {
            cli->command = longer;
            return 0;
        }
    }
    if (cli->arg_count >= most)
        return cli_usage(cli, err, "unexpected argument '%s'", word);
    cli->args[cli->arg_count++] = word;
    return 0;
}

static int take_one(struct cli *cli, char ***at, bool *only_args, struct err *err)
{
    char *word = **at;

    if (*only_args || word[0] != '-' || !word[1])
        return cli->command ? take_arg(cli, word, err) : take_word(cli, word, err);
    if (!cli->command && strcmp(word, "--version") == 0) {
        cli->command = command_find("version");
        return 0;
    }
    if (strcmp(word, "--") == 0) {
        *only_args = true;
        return 0;
    }
    if (word[1] != '-')
        return take_letters(cli, at, err);
    if (cli->command && (cli->command->traits & CMD_CONF) && !is_common(word))
        return take_conf(cli, at, err);
    return take_flag(cli, at, err);
}

/* Global flags before a command that takes settings: --state means the same there. */
static int hand_over(struct cli *cli, struct err *err)
{
    const char *state = cli_text(cli, "state");

    if (!state || !(cli->command->traits & CMD_CONF))
        return 0;
    if (cli->conf_count + 2 > CLI_FLAGS_MAX)
        return cli_usage(cli, err, "more than %d flags", CLI_FLAGS_MAX / 2);
    memmove(cli->conf_args + 2, cli->conf_args, cli->conf_count * sizeof(*cli->conf_args));
    cli->conf_args[0] = arena_strdup(&cli->arena, "--state");
    cli->conf_args[1] = arena_strdup(&cli->arena, state);
    cli->conf_count += 2;
    return 0;
}

int cli_parse(struct cli *cli, int argc, char **argv, struct err *err)
{
    bool only_args = false;
    size_t least, most;

    /* Looked for first, so that a mistake anywhere is told in the form that was asked for. */
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        cli->json |= strcmp(argv[i], "--json") == 0;
    for (char **at = argv + 1; argc > 0 && *at; at++)
        if (take_one(cli, &at, &only_args, err) < 0)
            return -1;
    cli->help |= cli_has(cli, "help");
    if (cli->help || !cli->command)
        return 0;
    command_arity(cli->command, &least, &most);
    if (cli->arg_count < least)
        return cli_usage(cli, err, "`atoll %s` needs %s", cli->command->name, cli->command->args);
    return hand_over(cli, err);
}

/* ---- values ---- */

const char *cli_text(const struct cli *cli, const char *flag)
{
    for (size_t i = cli->set_count; i-- > 0;)
        if (strcmp(cli->set[i].flag->name, flag) == 0)
            return cli->set[i].value;
    return NULL;
}

bool cli_has(const struct cli *cli, const char *flag)
{
    return cli_text(cli, flag) != NULL;
}

const char *cli_next(const struct cli *cli, const char *flag, size_t *at)
{
    while (*at < cli->set_count) {
        size_t i = (*at)++;

        if (strcmp(cli->set[i].flag->name, flag) == 0)
            return cli->set[i].value;
    }
    return NULL;
}

int cli_int(struct cli *cli, const char *flag, int64_t least, int64_t otherwise, int64_t *out,
            struct err *err)
{
    const char *text = cli_text(cli, flag);
    int64_t value = otherwise;

    if (text && (!str_to_i64(str_of(text), &value) || value < least))
        return cli_usage(cli, err, "--%s is '%s', not a number from %lld on", flag, text,
                         (long long)least);
    *out = value;
    return 0;
}

int cli_ms(struct cli *cli, const char *flag, int64_t otherwise, int64_t *out, struct err *err)
{
    const char *text = cli_text(cli, flag);
    uint64_t value = (uint64_t)otherwise;

    if (text && (!str_to_ms(str_of(text), &value) || value == 0 || value > INT64_MAX / 2))
        return cli_usage(cli, err, "--%s is '%s', not a time such as 250ms, 30s, 5m, 2h or 7d",
                         flag, text);
    *out = (int64_t)value;
    return 0;
}
