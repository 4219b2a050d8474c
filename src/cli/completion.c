/*
 * Completions for three shells, from the table of commands. Each script carries the whole table, so
 * completing never runs the program. All words come from our own tables and hold nothing that a
 * shell would expand, except help texts, which are quoted.
 */
#include "cli/cli.h"
#include "conf/conf.h"

/* Calls `fn` with every flag of a command, its own first; settings for those that take them. */
static void each_flag(const struct command *command,
                      void (*fn)(struct buf *out, const char *name, const char *arg,
                                 const char *help),
                      struct buf *out)
{
    for (const struct cli_flag *flag = command->flags; flag && flag->name; flag++)
        fn(out, flag->name, flag->arg, flag->help);
    bool conf = command->traits & CMD_CONF;
    for (const struct conf_key *key = conf_table; conf && key->name; key++) {
        autobuf struct buf name = { 0 };

        conf_flag_name(key, &name);
        fn(out, buf_cstr(&name) + 2, key->arg, key->help);
    }
    for (const struct cli_flag *flag = cli_globals; flag->name; flag++)
        if (!conf || !conf_find(str_of(flag->name)))
            fn(out, flag->name, flag->arg, flag->help);
}

static void word_only(struct buf *out, const char *name, const char *arg, const char *help)
{
    (void)arg, (void)help;
    buf_printf(out, " --%s", name);
}

/* The words that may follow `group` ("" for the first word), each once, a blank before each. */
static void next_words(struct buf *out, struct str group)
{
    autobuf struct buf seen = { 0 };

    for (const struct command *const *at = commands; *at; at++) {
        struct str rest = str_of((*at)->name), word = str_cut(&rest, ' ');
        autobuf struct buf entry = { 0 };

        if ((*at)->traits & CMD_HIDDEN)
            continue;
        if (group.n && (!str_eq(word, group) || !rest.n))
            continue;
        buf_printf(&entry, " %.*s ", STR_FMT(group.n ? rest : word));
        buf_puts(&seen, " ");
        if (memmem(seen.data, seen.len, entry.data, entry.len))
            continue;
        buf_str(&seen, buf_view(&entry));
        buf_append(out, entry.data, entry.len - 1);
    }
}

static void groups(struct buf *out, void (*fn)(struct buf *out, struct str group))
{
    struct str last = STR("");

    for (const struct command *const *at = commands; *at; at++) {
        struct str rest = str_of((*at)->name), word = str_cut(&rest, ' ');

        if (!rest.n || str_eq(word, last) || ((*at)->traits & CMD_HIDDEN))
            continue;
        fn(out, word);
        last = word;
    }
}

/* ---- bash ---- */

static void bash_group(struct buf *out, struct str group)
{
    buf_printf(out, "        %.*s) words='", STR_FMT(group));
    size_t start = out->len;
    next_words(out, group);
    memmove(out->data + start, out->data + start + 1, out->len - start - 1);
    out->len--;
    buf_puts(out, "' ;;\n");
}

static void bash(struct buf *out)
{
    buf_puts(out, "# bash completion for atoll; source it, or install it as\n"
                  "# /usr/share/bash-completion/completions/atoll\n"
                  "_atoll() {\n"
                  "    local cur=${COMP_WORDS[COMP_CWORD]} command='' words='' word i\n"
                  "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                  "        word=${COMP_WORDS[i]}\n"
                  "        [[ $word == -* ]] || command+=\"${command:+ }$word\"\n"
                  "    done\n"
                  "    case $command in\n"
                  "        '') words='");
    size_t start = out->len;
    next_words(out, STR(""));
    memmove(out->data + start, out->data + start + 1, out->len - start - 1);
    out->len--;
    buf_puts(out, "' ;;\n");
    groups(out, bash_group);
    buf_puts(out, "        'completion') words='bash zsh fish' ;;\n    esac\n");
    buf_puts(out, "    if [[ $cur == -* ]]; then\n        case $command in\n");
    for (const struct command *const *at = commands; *at; at++) {
        if ((*at)->traits & CMD_HIDDEN)
            continue;
        buf_printf(out, "            '%s'*) words='", (*at)->name);
        each_flag(*at, word_only, out);
        buf_puts(out, "' ;;\n");
    }
    buf_puts(out, "            *) words='");
    for (const struct cli_flag *flag = cli_globals; flag->name; flag++)
        word_only(out, flag->name, flag->arg, flag->help);
    buf_puts(out, "' ;;\n        esac\n    fi\n"
                  "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                  "}\n"
                  "complete -o default -F _atoll atoll\n");
}

/* ---- zsh ---- */

/* Inside single quotes and brackets of _arguments. */
static void zsh_text(struct buf *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            buf_puts(out, "'\\''");
        else if (*p == '[' || *p == ']' || *p == ':')
            buf_printf(out, "\\%c", *p);
        else
            buf_putc(out, *p);
    }
}

static void zsh_flag(struct buf *out, const char *name, const char *arg, const char *help)
{
    buf_printf(out, " \\\n                '--%s%s[", name, arg ? "=" : "");
    zsh_text(out, help);
    buf_puts(out, "]");
    if (arg) {
        bool files = strcmp(arg, "FILE") == 0, dirs = strcmp(arg, "DIR") == 0;

        buf_printf(out, ":%s:%s", arg, files ? "_files" : dirs ? "_files -/" : "");
    }
    buf_puts(out, "'");
}

static void zsh(struct buf *out)
{
    buf_puts(out, "#compdef atoll\n"
                  "# zsh completion for atoll; put it in a directory of $fpath as _atoll\n"
                  "_atoll() {\n"
                  "    local -a names entries\n"
                  "    names=(${(@)${(@)words[2,CURRENT-1]}:#-*})\n"
                  "    entries=(\n");
    for (const struct command *const *at = commands; *at; at++) {
        if ((*at)->traits & CMD_HIDDEN)
            continue;
        buf_printf(out, "        '%s:", (*at)->name);
        zsh_text(out, (*at)->help);
        buf_puts(out, "'\n");
    }
    buf_puts(out, "    )\n"
                  "    case \"${names[*]}\" in\n");
    for (const struct command *const *at = commands; *at; at++) {
        if ((*at)->traits & CMD_HIDDEN)
            continue;
        buf_printf(out, "        '%s'*) _arguments", (*at)->name);
        each_flag(*at, zsh_flag, out);
        buf_puts(out, " \\\n                '*:argument:_files' ;;\n");
    }
    buf_puts(out,
             "        *)\n"
             "            local -a next\n"
             "            local entry rest\n"
             "            for entry in $entries; do\n"
             "                rest=\"${entry#${names[*]} }\"\n"
             "                [[ -n \"${names[*]}\" && \"$rest\" == \"$entry\" ]] && continue\n"
             "                next+=(\"${${rest%%:*}%% *}:${entry#*:}\")\n"
             "            done\n"
             "            _describe command next ;;\n"
             "    esac\n"
             "}\n"
             "if [[ $funcstack[1] == _atoll ]]; then\n" /* loaded from $fpath */
             "    _atoll \"$@\"\n"
             "else\n"
             "    compdef _atoll atoll\n"
             "fi\n");
}

/* ---- fish ---- */

static void fish_text(struct buf *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\'' || *p == '\\')
            buf_putc(out, '\\');
        buf_putc(out, *p);
    }
}

/* True on the command line when all these words were given. */
static void fish_seen(struct buf *out, struct str name)
{
    const char *between = "";

    while (name.n) {
        struct str word = str_cut(&name, ' ');

        buf_printf(out, "%s__fish_seen_subcommand_from %.*s", between, STR_FMT(word));
        between = "; and ";
    }
}

static const struct command *fish_command; /* for fish_flag: one thread, one script at a time */

static void fish_flag(struct buf *out, const char *name, const char *arg, const char *help)
{
    buf_puts(out, "complete -c atoll -n '");
    fish_seen(out, str_of(fish_command->name));
    buf_printf(out, "' -l %s%s -d '", name, arg ? " -r" : "");
    fish_text(out, help);
    buf_puts(out, "'\n");
}

static void fish_group(struct buf *out, struct str group)
{
    autobuf struct buf words = { 0 };
    struct str rest;

    next_words(&words, group);
    for (rest = str_from(buf_view(&words), 1); rest.n;) {
        struct str word = str_cut(&rest, ' ');

        buf_puts(out, "complete -c atoll -f -n '");
        fish_seen(out, group);
        buf_printf(out, "; and not __fish_seen_subcommand_from%.*s' -a %.*s\n",
                   STR_FMT(buf_view(&words)), STR_FMT(word));
    }
}

static void fish(struct buf *out)
{
    autobuf struct buf words = { 0 };

    next_words(&words, STR(""));
    buf_puts(out, "# fish completion for atoll; install it as\n"
                  "# ~/.config/fish/completions/atoll.fish\n");
    buf_printf(out, "complete -c atoll -f -n '__fish_use_subcommand' -a '%s'\n",
               buf_cstr(&words) + 1);
    groups(out, fish_group);
    buf_puts(out, "complete -c atoll -f -n '__fish_seen_subcommand_from completion'"
                  " -a 'bash zsh fish'\n");
    for (const struct command *const *at = commands; *at; at++) {
        if ((*at)->traits & CMD_HIDDEN)
            continue;
        fish_command = *at;
        each_flag(*at, fish_flag, out);
    }
}

/* ---- the command ---- */

static int completion_run(struct cli *cli, struct err *err)
{
    static const struct {
        const char *name;
        void (*put)(struct buf *out);
    } shells[] = { { "bash", bash }, { "zsh", zsh }, { "fish", fish } };

    for (size_t i = 0; i < ARRAY_LEN(shells); i++)
        if (strcmp(cli->args[0], shells[i].name) == 0) {
            shells[i].put(&cli->out);
            return EXIT_OK;
        }
    return cli_usage(cli, err, "'%s' is not one of bash, zsh, fish", cli->args[0]);
}

const struct command cmd_completion = {
    .name = "completion",
    .args = "bash|zsh|fish",
    .help = "Print a script that completes commands and flags in a shell.",
    .more = "Example, for the running shell:\n  source <(atoll completion bash)",
    .run = completion_run,
};
