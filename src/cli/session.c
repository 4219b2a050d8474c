/*
 * Terminals of all sandboxes by themselves, as agentic's command line has them: a session is found
 * by its id, by the beginning of it, or by a name that only one has. What is done to it is done by
 * the routes of its sandbox, so roles and leases are those of every terminal.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/show.h"
#include "cli/attach.h"

#define INPUT_PIECE 65536
#define OBSERVE_MS 10000   /* how long it is observed, unless said */
#define OBSERVE_ASK_MS 100 /* how often it is looked at meanwhile */

/* ---- finding ---- */

static bool is_named(const struct json *item, struct str text)
{
    return str_eq(json_text(item, "session_id"), text) || str_eq(json_text(item, "name"), text);
}

/* The one that the first argument means; out of the list of those that run. */
static int find(struct cli *cli, const struct json **out, struct err *err)
{
    struct str text = str_of(cli->args[0]);
    const struct json *reply, *found = NULL;
    unsigned exact = 0, begins = 0;

    if (cli_get(cli, &reply, err, "/api/v1/sessions") < 0)
        return err_wrap(err, "sessions");
    json_each(item, reply)
    {
        bool named = is_named(item, text);

        if (!named && (exact || !str_starts(json_text(item, "session_id"), text)))
            continue;
        exact += named;
        begins += !named;
        found = item;
    }
    if (!text.n || !found)
        return err_set(err, ERR_NOT_FOUND, "no session %s runs; `atoll session ls` lists them",
                       cli->args[0]);
    if (exact > 1 || (!exact && begins > 1))
        return err_set(err, ERR_CONFLICT,
                       "more than one session is called %s; `atoll session ls` tells their ids",
                       cli->args[0]);
    *out = found;
    return 0;
}

/* Its path as a command ("execs") or as a terminal ("terminals"). */
static const char *path_of(struct cli *cli, const struct json *item, const char *as)
{
    struct str agent = json_text(item, "agent_id"), id = json_text(item, "session_id");

    return arena_printf(&cli->arena, "/api/v1/sandboxes/%s/%s/%s",
                        cli_escape(cli, arena_memdup0(&cli->arena, agent.p, agent.n)), as,
                        cli_escape(cli, arena_memdup0(&cli->arena, id.p, id.n)));
}

static int find_path(struct cli *cli, const char *as, const char **out, struct err *err)
{
    const struct json *item;

    if (find(cli, &item, err) < 0)
        return -1;
    *out = path_of(cli, item, as);
    return 0;
}

/* ---- looking ---- */

static int show_run(struct cli *cli, struct err *err)
{
    struct json_out json = json_to(&cli->out);
    const struct json *item;

    if (find(cli, &item, err) < 0)
        return -1;
    if (!cli->json)
        return cli_details(cli, item,
                           "session_id,agent_id,name,attachment_count,controllers,observers,"
                           "replay_oldest_seq,replay_newest_seq,replay_total_bytes,max_client_lag");
    json_put(&json, item);
    buf_putc(&cli->out, '\n');
    return EXIT_OK;
}

const struct command cmd_session_show = {
    .name = "session show",
    .args = "SESSION",
    .help = "Show a session, and who is attached to it.",
    .traits = CMD_REMOTE,
    .run = show_run,
};

static void put_lines(struct cli *cli, struct str text)
{
    while (text.n && strchr(" \n", text.p[text.n - 1])) /* rows below the last that has any */
        text.n--;
    while (text.n) {
        show_text(&cli->out, str_cut(&text, '\n'));
        buf_putc(&cli->out, '\n');
    }
}

static int screen_run(struct cli *cli, struct err *err)
{
    const struct json *item, *reply;

    if (find(cli, &item, err) < 0 || cli_get(cli, &reply, err, "/api/v1/sessions/%.*s/screen",
                                             STR_FMT(json_text(item, "session_id"))) < 0)
        return -1;
    if (cli->json)
        return cli_put_reply(cli);
    put_lines(cli, json_text(reply, "text"));
    return EXIT_OK;
}

const struct command cmd_session_screen = {
    .name = "session screen",
    .args = "SESSION",
    .help = "Print what a session shows now.",
    .more = "With --json also the cursor, the newest rows above, and whether it asks something.",
    .traits = CMD_REMOTE,
    .run = screen_run,
};

/* Prints the screen if it is not `shown`: 1. 0: it is. */
static int print_new(struct cli *cli, const char *id, struct buf *shown, struct err *err)
{
    const struct json *reply;

    cli_forget(cli);
    if (cli_get(cli, &reply, err, "/api/v1/sessions/%s/screen", cli_escape(cli, id)) < 0)
        return err_wrap(err, "session %s", id);
    struct str text = json_text(reply, "text");
    if (shown->len && str_eq(str_from(buf_view(shown), 1), text))
        return 0;
    buf_clear(shown);
    buf_putc(shown, '='); /* an empty screen is something, too */
    buf_str(shown, text);
    if (cli->json)
        (void)cli_put_reply(cli);
    else
        put_lines(cli, text);
    return cli_flush(cli, err) < 0 ? -1 : 1;
}

/*
 * It asks ten times a second: what flickers in between is not seen, and the server keeps nothing
 * for it.
 */
static int observe_run(struct cli *cli, struct err *err)
{
    int64_t frames, limit, begun = clock_mono_ms();
    autobuf struct buf shown = { 0 };
    const struct json *item;

    if (cli_int(cli, "frames", 1, 1, &frames, err) < 0 ||
        cli_ms(cli, "timeout", OBSERVE_MS, &limit, err) < 0 || find(cli, &item, err) < 0)
        return -1;
    struct str found = json_text(item, "session_id");
    const char *id = arena_memdup0(&cli->arena, found.p, found.n);
    for (;;) {
        int printed = print_new(cli, id, &shown, err);

        if (printed < 0)
            return -1;
        frames -= printed;
        if (frames == 0)
            return EXIT_OK;
        if (clock_mono_ms() - begun >= limit)
            break;
        poll(NULL, 0, OBSERVE_ASK_MS);
    }
    if (cli_has(cli, "idle-ok"))
        return EXIT_OK;
    return err_set(err, ERR_TIMEOUT, "%s shows nothing else; %lld more were waited for", id,
                   (long long)frames);
}

static const struct cli_flag observe_flags[] = {
    { "frames", "N", "End when it was printed so often (1)" },
    { "idle-ok", NULL, "It is well when nothing else comes in time" },
    { 0 },
};

const struct command cmd_session_observe = {
    .name = "session observe",
    .args = "SESSION",
    .help = "Print what a session shows, and again whenever it shows something else.",
    .more = "--timeout limits how long (10s); fewer frames until then are status 5, unless "
            "--idle-ok. --json prints one object for each.",
    .flags = observe_flags,
    .traits = CMD_REMOTE,
    .timeout_ms = CLI_TIMEOUT_MS,
    .run = observe_run,
};

static int search_run(struct cli *cli, struct err *err)
{
    const struct json *item, *reply;
    int64_t limit;

    if (cli_int(cli, "limit", 1, 20, &limit, err) < 0 || find(cli, &item, err) < 0 ||
        cli_get(cli, &reply, err, "/api/v1/sessions/%.*s/transcript?q=%s&limit=%lld",
                STR_FMT(json_text(item, "session_id")), cli_escape(cli, cli->args[1]),
                (long long)limit) < 0)
        return -1;
    return cli_table(cli, json_get(reply, "items"), ">seq,>bytes,text");
}

static const struct cli_flag search_flags[] = {
    { "limit", "N", "At most so many (20)" },
    { 0 },
};

const struct command cmd_session_search = {
    .name = "session search",
    .args = "SESSION TEXT",
    .help = "Find text in what a session printed; the numbers are those of its frames.",
    .flags = search_flags,
    .traits = CMD_REMOTE,
    .run = search_run,
};

static int tail_run(struct cli *cli, struct err *err)
{
    const struct json *item;

    if (find(cli, &item, err) < 0)
        return -1;
    /* The path that linked agents and sandboxes have in common. */
    struct str agent = json_text(item, "agent_id"), id = json_text(item, "session_id");
    const char *name = cli_escape(cli, arena_memdup0(&cli->arena, agent.p, agent.n));
    return logs_show(
        cli, arena_printf(&cli->arena, "/api/v1/agents/%s/commands/%.*s", name, STR_FMT(id)), true,
        err);
}

static const struct cli_flag tail_flags[] = {
    { "from", "POSITION", "Begin at this byte (0)" },
    { "raw", NULL, "On a terminal too: the bytes as they were printed" },
    { 0 },
};

const struct command cmd_session_tail = {
    .name = "session tail",
    .args = "SESSION",
    .help = "Print what a session prints, until its command has ended.",
    .more = "On a terminal control bytes are shown instead of obeyed; `session attach` draws them.",
    .flags = tail_flags,
    .traits = CMD_REMOTE,
    .run = tail_run,
};

static int record_run(struct cli *cli, struct err *err)
{
    const char *path;

    return find_path(cli, "terminals", &path, err) < 0 ? -1 : terminal_record(cli, path, err);
}

static const struct cli_flag record_flags[] = {
    { "output", "FILE", "A new file for it; standard output unless said" },
    { 0 },
};

const struct command cmd_session_record = {
    .name = "session record",
    .args = "SESSION",
    .help = "Fetch the recording of a session as an asciicast (version 2).",
    .flags = record_flags,
    .traits = CMD_REMOTE,
    .run = record_run,
};

/* ---- joining ---- */

static int attach_run(struct cli *cli, struct err *err)
{
    struct attach_how how = { .observe = !cli_has(cli, "write") && !cli_has(cli, "take") };
    const char *path;

    if (attach_check(cli, err) < 0 ||
        cli_int(cli, "from", 0, ATTACH_PICTURE, &how.position, err) < 0 ||
        find_path(cli, "terminals", &path, err) < 0)
        return -1;
    return attach_to(cli, path, how, err);
}

static const struct cli_flag attach_flags[] = {
    { "write", NULL, "Type too, unless somebody else does" },
    { "take", NULL, "Type, even if somebody else does: they watch from then on" },
    { "from", "POSITION", "Begin at this byte, not with a picture of the screen" },
    ATTACH_FLAGS,
    { 0 },
};

const struct command cmd_session_attach = {
    .name = "session attach",
    .args = "SESSION",
    .help = "Watch a session in this terminal; with --write, type too.",
    .more = "The detach keys leave it running. As `attach`, which types unless told not to.\n\n"
            "Example:\n  atoll session attach main --write --detach-keys ctrl-a,d",
    .flags = attach_flags,
    .traits = CMD_REMOTE,
    .run = attach_run,
};

/* ---- changing ---- */

static int type(struct cli *cli, const char *path, struct str data, int64_t *sent, struct err *err)
{
    if (cli_call(cli, "POST", data, NULL, err, "%s/stdin", path) < 0)
        return err_wrap(err, "after %lld bytes", (long long)*sent);
    *sent += (int64_t)data.n;
    cli_forget(cli);
    return 0;
}

static int type_fd(struct cli *cli, const char *path, int fd, int64_t *sent, struct err *err)
{
    static char piece[INPUT_PIECE];

    for (;;) {
        ssize_t got = read(fd, piece, sizeof(piece));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "read the input");
        if (got == 0)
            return 0;
        if (type(cli, path, (struct str){ piece, (size_t)got }, sent, err) < 0)
            return -1;
    }
}

static int input_run(struct cli *cli, struct err *err)
{
    const char *text = cli_text(cli, "text"), *file = cli_text(cli, "file"), *path;
    bool enter = cli_has(cli, "enter");
    autoclose int fd = -1;
    int64_t sent = 0;

    if (text && file)
        return cli_usage(cli, err, "--text or --file, not both");
    if (!text && !file && enter)
        text = "";
    if (file && strcmp(file, "-") != 0 && (fd = open(file, O_RDONLY | O_CLOEXEC)) < 0)
        return err_sys(err, "%s", file);
    if (find_path(cli, "execs", &path, err) < 0)
        return -1;
    if (text && *text && type(cli, path, str_of(text), &sent, err) < 0)
        return -1;
    if (!text && type_fd(cli, path, fd >= 0 ? fd : 0, &sent, err) < 0)
        return -1;
    if (enter && type(cli, path, STR("\r"), &sent, err) < 0)
        return -1;
    if (cli->json)
        buf_printf(&cli->out, "{\"bytes\":%lld}\n", (long long)sent);
    return EXIT_OK;
}

static const struct cli_flag input_flags[] = {
    { "text", "TEXT", "This, and not standard input" },
    { "file", "FILE", "What this file holds; - is standard input" },
    { "enter", NULL, "And the Enter key" },
    { 0 },
};

const struct command cmd_session_input = {
    .name = "session input",
    .args = "SESSION",
    .help = "Type into a session: standard input, a file or a text.",
    .more = "Refused while somebody else controls it.\n\n"
            "Example:\n  atoll session input main --text 'make test' --enter",
    .flags = input_flags,
    .traits = CMD_REMOTE,
    .run = input_run,
};

static int resize_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    const struct json *reply;
    int64_t rows, cols;
    const char *path;

    if (!cli_has(cli, "rows") || !cli_has(cli, "cols"))
        return cli_usage(cli, err, "--rows and --cols are needed");
    if (cli_int(cli, "rows", TERM_ROWS_MIN, 0, &rows, err) < 0 ||
        cli_int(cli, "cols", TERM_COLS_MIN, 0, &cols, err) < 0 ||
        find_path(cli, "terminals", &path, err) < 0)
        return -1;
    buf_printf(&body, "{\"rows\":%lld,\"cols\":%lld}", (long long)rows, (long long)cols);
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "%s/resize", path) < 0)
        return err_wrap(err, "resize %s", cli->args[0]);
    return cli_details(cli, reply, "id,rows,cols");
}

static const struct cli_flag resize_flags[] = {
    { "rows", "N", "Lines" },
    { "cols", "N", "Columns" },
    { 0 },
};

const struct command cmd_session_resize = {
    .name = "session resize",
    .args = "SESSION",
    .help = "Give a session another size.",
    .flags = resize_flags,
    .traits = CMD_REMOTE,
    .run = resize_run,
};

static int kill_run(struct cli *cli, struct err *err)
{
    const char *signal = cli_has(cli, "signal") ? cli_text(cli, "signal") : "TERM", *path;
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    if (find_path(cli, "terminals", &path, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "signal", signal);
    json_kv_bool(&json, "tree", strcmp(signal, "KILL") == 0 || strcmp(signal, "SIGKILL") == 0);
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "%s/signal", path) < 0)
        return err_wrap(err, "signal %s", cli->args[0]);
    return cli_word(cli, reply, "id");
}

static const struct cli_flag kill_flags[] = {
    { "signal", "NAME", "TERM unless said; KILL goes to everything that it started" },
    { 0 },
};

const struct command cmd_session_kill = {
    .name = "session kill",
    .args = "SESSION",
    .help = "Send a signal to the command of a session.",
    .flags = kill_flags,
    .traits = CMD_REMOTE,
    .run = kill_run,
};
