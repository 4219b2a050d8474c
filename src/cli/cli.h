/*
 * cli - the command line, a client of the API.
 *
 * A command is one entry in a table (commands.c) and a function. From the entry come the parser,
 * --help, the manual page, docs/commands.md and the shell completions. A command writes into
 * cli->out; what it fails with is shown once, by cli_run, as text or (--json) as JSON on standard
 * error, and becomes the exit status. One thread.
 */
#pragma once

#include "base/json.h"
#include "cli/text.h"
#include "http/client.h"

enum {
    EXIT_OK = 0,
    EXIT_ERROR = 1,
    EXIT_USAGE = 64,
    EXIT_PIPE = 141, /* as a shell shows SIGPIPE */
};

struct cli_flag {
    const char *name; /* "since": --since */
    const char *arg;  /* what help calls its value; NULL: a switch */
    const char *help;
};

enum command_trait {
    CMD_HIDDEN = 1, /* not in help or completion */
    CMD_CONF = 2,   /* takes the settings of the server as flags */
    CMD_REMOTE = 4, /* talks to a server */
    CMD_LIMITS = 8, /* --timeout is for the command that it runs, and lengthens calls at most */
};

struct cli;

/* One question whose answer is shown: for commands that are nothing else (cli_view). */
struct cli_view {
    const char *method; /* NULL: GET */
    const char *path;   /* each {} is the next argument */
    /*
     * Members of the body and of the query, each from an argument or a flag: "agent=!--agent,
     * reason=--reason". A source is @0 (an argument), @2+ (a list of all from there on) or --flag,
     * and before that # for a number, ? for a switch, ^ for the opposite of one, * for a flag that
     * may repeat (a list), ~ for a time in seconds, ! for one that must be given.
     * "from=--from|human" has a default. What was not given is left out.
     */
    const char *body, *query;
    const char *member; /* of the answer, that is shown; NULL: all of it */
    const char *table;  /* columns, when that is a list, or… */
    const char *lines;  /* …members of the object */
};

struct command {
    const char *name; /* "token create" */
    const char *args; /* "NAME [OTHER] [MORE…]"; NULL: none */
    const char *help; /* one sentence */
    const char *more; /* paragraphs for --help and the manual; may be NULL */
    const struct cli_flag *flags;
    unsigned traits;
    int64_t timeout_ms;   /* unless --timeout says otherwise; 0: CLI_TIMEOUT_MS */
    struct cli_view view; /* of cli_view */
    /* An exit status, or -1 with *err. */
    int (*run)(struct cli *cli, struct err *err);
};

/*
 * Other names for the same commands, for those who know them from agentic. One that ends with
 * ALIAS_ARG is what a noun means when no verb follows it.
 */
#define ALIAS_ARG "ID|NAME"
struct alias {
    const char *name, *is;
};
extern const struct alias aliases[]; /* ends with a NULL name */
const struct command *command_find(const char *name);

extern const struct command *const commands[]; /* NULL-terminated, in the order of help */
/*
 * Set by the client program: replaces the process by `atoll-server` with the same arguments. Called
 * for a command line that names none of `commands`, and for help. NULL in `atoll-server`.
 */
extern void (*cli_elsewhere)(void);
extern const struct cli_flag cli_globals[]; /* ends with a NULL name */

#define CLI_FLAGS_MAX 64
#define CLI_ARGS_MAX 1024
#define CLI_TIMEOUT_MS 30000
#define CLI_REPLY_MAX JSON_SIZE_MAX

/* Where to ask, and with which credential. */
struct endpoint {
    struct client_target target;
    char *token;            /* owned; NULL: none */
    char *ca;               /* owned; NULL: the system's */
    char *how;              /* owned; "context prod", "state /var/lib/atoll" */
    const char *token_from; /* "--token" or "ATOLL_TOKEN"; NULL: the token came with `how` */
    char *state; /* owned; the state directory when it is the local server; otherwise NULL */
    bool found;
};

struct cli {
    const struct command *command;
    const char *group; /* "token" when only that was given */
    struct {
        const struct cli_flag *flag;
        const char *value;
    } set[CLI_FLAGS_MAX];
    size_t set_count;
    const char *args[CLI_ARGS_MAX + 1];
    size_t arg_count;
    char *conf_args[CLI_FLAGS_MAX + 2]; /* CMD_CONF: for conf_args() */
    size_t conf_count;

    bool json, help;
    bool usage; /* the error is about how we were called: exit 64 */
    int out_fd, err_fd;
    struct buf out;
    struct arena arena; /* until the end */
    struct endpoint at;
    struct arena answers; /* what the server said; cli_forget */
    struct str reply;     /* its last answer, in there */
    char request_id[REQUEST_ID_MAX + 1];
    char hint[256];
    /* Contents went by, for whoever shows progress; NULL: nobody does. */
    void (*moved)(struct cli *cli, size_t bytes);
};

/* The whole program, roles apart; returns the exit status. */
int cli_main(int argc, char **argv);
/* The same with given descriptors for output, for tests. */
int cli_run(int argc, char **argv, int out_fd, int err_fd);

struct conf;
/*
 * For the serve role: reads flags, environment and file. -1 gives the settings in *out; anything
 * else is the exit status, after help or an error was printed. argv[1] is "serve".
 */
int cli_serve(int argc, char **argv, struct conf **out);
struct egress_signed;
/* The same for `atoll proxy`; what is in *out lives until the end. */
int cli_proxy(int argc, char **argv, struct egress_signed *out);
must_use int proxy_wish(struct cli *cli, struct egress_signed *out, struct err *err);
/* The settings of a CMD_CONF command: flags, environment, file, checked; gives. */
must_use int cli_settings(struct cli *cli, struct conf **out, struct err *err);

/* ---- arguments (flags.c) ---- */

must_use int cli_parse(struct cli *cli, int argc, char **argv, struct err *err);
/* The value of a flag (the last one given), or NULL. */
const char *cli_text(const struct cli *cli, const char *flag);
bool cli_has(const struct cli *cli, const char *flag);
/* The next value of a flag that may repeat: size_t at = 0; while ((v = cli_next(…, &at))) */
const char *cli_next(const struct cli *cli, const char *flag, size_t *at);
must_use int cli_int(struct cli *cli, const char *flag, int64_t least, int64_t otherwise,
                     int64_t *out, struct err *err);
must_use int cli_ms(struct cli *cli, const char *flag, int64_t otherwise, int64_t *out,
                    struct err *err);
/* A mistake of the caller; returns -1. */
int cli_usage(struct cli *cli, struct err *err, const char *fmt, ...) printf_like(3, 4);
/* How many arguments the words of `args` allow. */
void command_arity(const struct command *command, size_t *least, size_t *most);
bool command_is_group(struct str word); /* do commands begin with this word? */

/* ---- help (help.c) ---- */

/* 'e' of --env, whichever command has it; 0: none */
char flag_letter(const struct cli_flag *flag);
/* "-e, --env NAME=VALUE" */
void flag_title(struct buf *out, const struct cli_flag *flag);

void help_all(struct buf *out);
void help_group(struct buf *out, const char *group);
void help_command(struct buf *out, const struct command *command);

/* ---- output (out.c) ---- */

/* Writes cli->out to standard output and empties it. */
must_use int cli_flush(struct cli *cli, struct err *err);
/* Columns to fit tables into; 0 when output is no terminal. */
size_t cli_width(const struct cli *cli);
/* The size of the terminal at standard input, moved into what the server takes; false: none. */
bool cli_size(unsigned *rows, unsigned *cols);
bool cli_colour(const struct cli *cli, int fd);
/* The server's last answer, exactly. */
int cli_put_reply(struct cli *cli);
/*
 * Of that answer, or of a part of it, what a person reads; with --json each gives the answer itself
 * instead. All return 0. Members of the objects of an array as a table: "id,name,>bytes".
 */
int cli_table(struct cli *cli, const struct json *items, const char *columns);
/* Members of one object, one line each. */
int cli_details(struct cli *cli, const struct json *object, const char *members);
/* One of them, on a line of its own. */
int cli_word(struct cli *cli, const struct json *object, const char *member);
/* What command->view says. */
int cli_view(struct cli *cli, struct err *err);
/* The path of command->view with its arguments and query; in cli's arena, NULL with *err. */
const char *cli_view_path(struct cli *cli, struct err *err);
/* One JSON value as a person reads it. */
void cli_value(struct buf *out, const struct json *value, const char *key);
/* A line on standard error that is no error. */
void cli_note(struct cli *cli, const char *fmt, ...) printf_like(2, 3);
/* Of a command that has ended, as the server shows it: which hosts it was denied, if any. */
void cli_note_blocked(struct cli *cli, const struct json *exec);
void cli_show_error(struct cli *cli, const struct err *err);

/* ---- the server (endpoint.c, call.c) ---- */

/* Settles cli->at: flag, environment, context, local state directory. */
must_use int endpoint_find(struct cli *cli, struct err *err);
void endpoint_free(struct endpoint *at);
/* The server of this state directory, whatever was said. */
must_use int endpoint_use_state(struct cli *cli, const char *dir, struct err *err);
/* The state directory that is meant, and whether somebody named it; gives. */
char *cli_state_dir(const struct cli *cli, bool *named);

/*
 * One call: the path is printf-like. *out (may be NULL) is the answer's JSON, until cli_forget; the
 * answer's text is cli->reply. An error answer becomes *err with its own code and message.
 */
must_use int cli_call(struct cli *cli, const char *method, struct str body, const struct json **out,
                      struct err *err, const char *path, ...) printf_like(6, 7);
#define cli_get(cli, out, err, ...) cli_call(cli, "GET", STR_NONE, out, err, __VA_ARGS__)
/*
 * The whole of a list whose answers are {"items":[…],"next":ID}: asks for page after page. *out,
 * and with --json cli->reply, is then one answer with all items. A list without pages is one page.
 */
must_use int cli_list(struct cli *cli, const struct json **out, struct err *err, const char *path,
                      ...) printf_like(4, 5);
/* Frees all answers so far, for commands that go on asking. */
void cli_forget(struct cli *cli);
/* Turns an error answer (status, body) into *err, hint and request id; returns -1. */
int cli_refused(struct cli *cli, const struct client_reply *reply, struct str body,
                struct err *err);
/* The same, with the body still to be read. */
int cli_refused_on(struct cli *cli, struct client *client, const struct client_reply *reply,
                   struct err *err);
/* Deadline for one request from now. */
must_use int cli_deadline(struct cli *cli, int64_t *deadline_ms, struct err *err);
/* When a command that follows something gives up: never, unless --timeout is given. */
must_use int cli_ends(struct cli *cli, int64_t *ends_ms, struct err *err);
/* Percent-encoded for a path segment or query value; in cli's arena. */
const char *cli_escape(struct cli *cli, const char *text);
/* Shows an error at once; the exit status that goes with it. */
int cli_failed(struct cli *cli, const struct err *err);
/* Says what could be done about an error of reaching the server. */
void cli_hint_unreached(struct cli *cli, const struct err *err);

/* ---- one change for each name that was given (each.c) ---- */

struct cli_each {
    const char *method, *path; /* of what stands before the name */
    const char *after;         /* and behind it; NULL: nothing */
    const char *what;          /* is done, for errors: "remove volume" */
    const char *word;          /* the answer's member that is printed; NULL: none */
};

/* What is refused is said, and the others are done; the exit status is the first refusal's. */
int cli_each(struct cli *cli, const struct cli_each *each);

/* ---- events (event.c) ---- */

/* One event after the other; `settled` comes when all that has arrived is told, and at first. */
struct cli_follower {
    int (*event)(void *ctx, const struct json *event, struct str text, struct err *err);
    int (*settled)(void *ctx, struct err *err); /* NULL: not of interest */
    void *ctx;
};
/*
 * Follows events after number `since` (-1: from now on), for ever: connects again when the
 * connection is lost, and misses none. `filter` is "&type=…&object=…".
 */
must_use int cli_follow(struct cli *cli, int64_t since, const char *filter,
                        const struct cli_follower *follower, struct err *err);
