/*
 * What a command of a sandbox or of a linked agent has printed, from any position on, and what it
 * goes on printing. The
 * server keeps output by position, so a connection that is lost is taken up where it was. On a
 * terminal what a stranger's program printed is made visible rather than obeyed.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/show.h"
#include "cli/sandbox.h"
#include "cli/sse.h"

#define RETRY_MS 100
#define RETRY_MAX_MS 60000
#define LINE_MAX_BYTES 65536 /* longer ones are shown in pieces */

struct sink {
    int fd;
    bool wanted, visible;
    struct buf line; /* of a visible one, until it is whole */
    int64_t at;      /* position */
    int64_t until;   /* asked again before this: an answer may be a part */
};

struct logs {
    struct cli *cli;
    const char *path; /* of the command */
    struct sink sinks[2];
    int64_t ends_ms; /* following goes on until then at most */
    bool ended;
    struct sse sse;
};

/* ---- printing ---- */

static int write_all(int fd, struct str data, struct err *err)
{
    while (data.n) {
        ssize_t done = write(fd, data.p, data.n);

        if (done < 0 && errno != EINTR)
            return err_sys(err, "write the output");
        data = str_from(data, done > 0 ? (size_t)done : 0);
    }
    return 0;
}

static int put_line(struct sink *sink, bool end, struct err *err)
{
    autobuf struct buf shown = { 0 };
    struct str rest = buf_view(&sink->line);

    while (rest.n) { /* tabs are harmless, and tables need them */
        bool more = memchr(rest.p, '\t', rest.n);

        show_text(&shown, str_cut(&rest, '\t'));
        if (more)
            buf_putc(&shown, '\t');
    }
    if (end)
        buf_putc(&shown, '\n');
    buf_clear(&sink->line);
    return write_all(sink->fd, buf_view(&shown), err);
}

static int put(struct sink *sink, struct str data, struct err *err)
{
    sink->at += (int64_t)data.n;
    if (!sink->wanted)
        return 0;
    if (!sink->visible)
        return write_all(sink->fd, data, err);
    while (data.n) {
        bool end = memchr(data.p, '\n', data.n);

        buf_str(&sink->line, str_cut(&data, '\n'));
        if ((end || sink->line.len > LINE_MAX_BYTES) && put_line(sink, end, err) < 0)
            return -1;
    }
    return 0;
}

static int put_rest(struct logs *logs, struct err *err)
{
    for (int i = 0; i < 2; i++)
        if (logs->sinks[i].line.len && put_line(&logs->sinks[i], true, err) < 0)
            return -1;
    return 0;
}

/* ---- reading ---- */

static int on_event(void *ctx, const char *type, struct str data, struct err *err)
{
    struct logs *logs = ctx;
    autobuf struct buf bytes = { 0 };
    int stream = strcmp(type, "stderr") == 0;

    if (strcmp(type, "exit") == 0)
        logs->ended = true;
    if (!stream && strcmp(type, "stdout") != 0)
        return 0;
    if (!base64_get(&bytes, data))
        return err_set(err, ERR_INTERNAL, "output that is no base64");
    return put(&logs->sinks[stream], buf_view(&bytes), err);
}

/* One connection: `path` of the output, as events or (stream 0 or 1) as bytes. */
static int read_once(struct logs *logs, const char *path, int stream, struct err *err)
{
    struct cli *cli = logs->cli;
    struct client_options options = { .ca_file = cli->at.ca };
    struct client_request request = { .method = "GET",
                                      .path = path,
                                      .token = cli->at.token,
                                      .accept = stream < 0 ? "text/event-stream" : "*/*" };
    autoclient struct client *client = NULL;
    struct client_reply reply = { 0 };
    static char data[65536];
    ssize_t got;

    if (cli_deadline(cli, &options.deadline_ms, err) < 0 ||
        client_start(&client, &cli->at.target, &request, &options, &reply, err) < 0)
        return -1;
    if (reply.status != 200)
        return cli_refused_on(cli, client, &reply, err);
    sse_reset(&logs->sse);
    client_deadline(client, logs->ends_ms);
    while (!logs->ended && (got = client_read(client, data, sizeof(data), err)) != 0) {
        struct str part = { data, got > 0 ? (size_t)got : 0 };

        if (got < 0 || (stream < 0 ? sse_feed(&logs->sse, part, on_event, logs, err)
                                   : put(&logs->sinks[stream], part, err)) < 0)
            return -1;
    }
    return 0;
}

static int follow(struct logs *logs, struct err *err)
{
    int64_t lost_ms = 0;

    while (!logs->ended) {
        autofree char *path = xprintf("%s/output?from=%lld,%lld", logs->path,
                                      (long long)logs->sinks[0].at, (long long)logs->sinks[1].at);
        int64_t before = logs->sinks[0].at + logs->sinks[1].at;

        if (read_once(logs, path, -1, err) < 0 && err->code != ERR_UNAVAILABLE &&
            err->code != ERR_TIMEOUT)
            return -1;
        if (!logs->ended && clock_mono_ms() >= logs->ends_ms)
            return err_set(err, ERR_TIMEOUT, "the command goes on");
        if (before != logs->sinks[0].at + logs->sinks[1].at || !lost_ms)
            lost_ms = clock_mono_ms();
        if (!logs->ended && clock_mono_ms() - lost_ms > RETRY_MAX_MS)
            return -1;
        if (!logs->ended)
            poll(NULL, 0, RETRY_MS);
    }
    return 0;
}

static int read_all(struct logs *logs, struct err *err)
{
    static const char *const names[] = { "stdout", "stderr" };

    for (int i = 0; i < 2; i++) {
        struct sink *sink = &logs->sinks[i];
        int64_t before;

        do {
            autofree char *path =
                xprintf("%s/output?stream=%s&from=%lld", logs->path, names[i], (long long)sink->at);

            before = sink->at;
            if (sink->wanted && read_once(logs, path, i, err) < 0)
                return -1;
        } while (sink->at != before && sink->at < sink->until);
    }
    return 0;
}

/* ---- which command ---- */

/* The newest of a list, or the one whose id begins so; `key` is where that stands. */
static int find_in(const struct json *list, const char *key, const char *wanted,
                   const struct json **out, struct err *err)
{
    const struct json *found = NULL;

    json_each(item, json_get(list, "items"))
    {
        if (wanted && !str_starts(json_text(item, key), str_of(wanted)))
            continue;
        if (wanted && found)
            return err_set(err, ERR_CONFLICT, "more than one command's id begins with %s", wanted);
        found = item;
    }
    if (!found)
        return err_set(err, ERR_NOT_FOUND, wanted ? "no command %s" : "no command yet%s",
                       wanted ? wanted : "");
    *out = found;
    return 0;
}

static int find_linked(struct logs *logs, const char *wanted, struct err *err)
{
    struct cli *cli = logs->cli;
    const char *agent = cli_escape(cli, cli->args[0]);
    const struct json *reply, *found;
    struct err why = { 0 };

    if (cli_get(cli, &reply, &why, "/api/v1/agents/%s/commands", agent) < 0) {
        if (why.code != ERR_NOT_FOUND)
            *err = why;
        return -1;
    }
    if (find_in(reply, "command_id", wanted, &found, err) < 0)
        return -1;
    logs->path = arena_printf(&cli->arena, "/api/v1/agents/%s/commands/%.*s", agent,
                              STR_FMT(json_text(found, "command_id")));
    logs->sinks[0].until = json_num(found, "stdout_bytes", 0);
    logs->sinks[1].until = json_num(found, "stderr_bytes", 0);
    return 0;
}

static int find_exec(struct logs *logs, const char *wanted, struct err *err)
{
    struct cli *cli = logs->cli;
    const struct json *reply, *found;

    if (cli_get(cli, &reply, err, "/api/v1/sandboxes/%s/execs", cli_escape(cli, cli->args[0])) <
        0) {
        err_wrap(err, "commands of sandbox %s", cli->args[0]);
        return err->code == ERR_NOT_FOUND ? find_linked(logs, wanted, err) : -1;
    }
    if (find_in(reply, "id", wanted, &found, err) < 0)
        return -1;
    logs->path =
        arena_printf(&cli->arena, "/api/v1/sandboxes/%.*s/execs/%.*s",
                     STR_FMT(json_text(found, "sandbox")), STR_FMT(json_text(found, "id")));
    return 0;
}

static int take_from(struct cli *cli, struct logs *logs, struct err *err)
{
    struct str second = str_of(cli_text(cli, "from")), first = str_cut(&second, ',');

    if ((first.n && !str_to_i64(first, &logs->sinks[0].at)) ||
        (second.n && !str_to_i64(second, &logs->sinks[1].at)) || logs->sinks[0].at < 0 ||
        logs->sinks[1].at < 0)
        return cli_usage(cli, err, "--from is a position, or two: OUT,ERR");
    return 0;
}

int logs_show(struct cli *cli, const char *path, bool follows, struct err *err)
{
    const char *stream = cli_text(cli, "stream");
    bool raw = cli_has(cli, "raw");
    struct logs logs = { .cli = cli,
                         .path = path,
                         .sinks = { { .fd = cli->out_fd, .wanted = true },
                                    { .fd = cli->err_fd, .wanted = true } } };

    if (stream && strcmp(stream, "stdout") != 0 && strcmp(stream, "stderr") != 0)
        return cli_usage(cli, err, "--stream is stdout or stderr");
    for (int i = 0; i < 2; i++) {
        logs.sinks[i].wanted = !stream || (strcmp(stream, "stderr") == 0) == i;
        logs.sinks[i].visible = !raw && isatty(logs.sinks[i].fd);
    }
    if (take_from(cli, &logs, err) < 0 || cli_ends(cli, &logs.ends_ms, err) < 0 ||
        (!path && find_exec(&logs, cli->arg_count > 1 ? cli->args[1] : NULL, err) < 0))
        return -1;
    int rc = follows ? follow(&logs, err) : read_all(&logs, err);
    if (rc == 0)
        rc = put_rest(&logs, err);
    buf_free(&logs.sinks[0].line);
    buf_free(&logs.sinks[1].line);
    sse_free(&logs.sse);
    return rc < 0 ? err_wrap(err, "output") : EXIT_OK;
}

static int logs_run(struct cli *cli, struct err *err)
{
    return logs_show(cli, NULL, cli_has(cli, "follow"), err);
}

static const struct cli_flag logs_flags[] = {
    { "follow", NULL, "Go on until the command has ended" },
    { "from", "OUT[,ERR]", "Begin at these positions, in bytes (0,0)" },
    { "stream", "NAME", "Only stdout, or only stderr" },
    { "raw", NULL, "On a terminal too: the bytes as they were printed" },
    { 0 },
};

const struct command cmd_logs = {
    .name = "logs",
    .args = "ID|NAME [EXEC]",
    .help = "Print what a command of a sandbox has printed: the newest one, or EXEC.",
    .more = "Of a linked agent likewise, by its name. Standard output and standard error of the "
            "command go to those of this one. On a "
            "terminal control bytes are shown instead of obeyed.\n\n"
            "Examples:\n  atoll logs build --follow\n"
            "  atoll logs build ex01 --stream stderr --from 4096",
    .flags = logs_flags,
    .traits = CMD_REMOTE,
    .run = logs_run,
};

/* ---- what runs ---- */

const struct command cmd_ps = {
    .name = "ps",
    .args = "ID|NAME",
    .help = "List the processes in a sandbox.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/sandboxes/{}/processes",
              .member = "items",
              .table = ">pid,>parent,>uid,state,>threads,>rss,>cpu_us,command" },
    .run = cli_view,
};
