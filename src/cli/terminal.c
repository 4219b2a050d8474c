/*
 * Terminals of a sandbox: joined (attach.c), started as a shell, listed, killed, recorded. What a
 * program printed goes to this terminal as it is only while it is joined; everywhere else it comes
 * through tables, which make controls visible, or as an asciicast, whose text is JSON.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/attach.h"

/* ---- attach ---- */

/* The only one that runs, or the newest; says which there are when that is not clear. */
static int find_one(struct cli *cli, const char *box, const char **out, struct err *err)
{
    const struct json *reply;
    struct str found = STR_NONE;
    unsigned count = 0;

    if (cli_get(cli, &reply, err, "/api/v1/sandboxes/%s/terminals", box) < 0)
        return -1;
    json_each(item, json_get(reply, "items"))
    {
        if (!str_is(json_text(item, "state"), "running"))
            continue;
        found = json_text(item, "id");
        count++;
    }
    if (count == 0)
        return err_set(err, ERR_NOT_FOUND, "no terminal runs in it; `atoll shell` starts one");
    if (count > 1)
        return err_set(err, ERR_CONFLICT, "%u terminals run in it; `atoll terminal ls` tells them",
                       count);
    *out = arena_memdup0(&cli->arena, found.p, found.n);
    return 0;
}

static const char *terminal_path(struct cli *cli, const char *box, const char *terminal)
{
    return arena_printf(&cli->arena, "/api/v1/sandboxes/%s/terminals/%s", box,
                        cli_escape(cli, terminal));
}

static int attach_run(struct cli *cli, struct err *err)
{
    const char *box = cli_escape(cli, cli->args[0]), *terminal = NULL;

    if (attach_check(cli, err) < 0)
        return -1;
    if (cli_has(cli, "observe") && cli_has(cli, "take"))
        return cli_usage(cli, err, "--observe or --take, not both");
    if (cli->arg_count > 1)
        terminal = cli->args[1];
    else if (find_one(cli, box, &terminal, err) < 0)
        return err_wrap(err, "sandbox %s", cli->args[0]);
    struct attach_how how = { .observe = cli_has(cli, "observe"), .position = ATTACH_PICTURE };
    return attach_to(cli, terminal_path(cli, box, terminal), how, err);
}

static const struct cli_flag attach_flags[] = {
    { "observe", NULL, "Watch only" },
    { "take", NULL, "Type, even if somebody else does: they watch from then on" },
    ATTACH_FLAGS,
    { 0 },
};

const struct command cmd_attach = {
    .name = "attach",
    .args = "ID|NAME [TERMINAL]",
    .help = "Join this terminal to one in a sandbox.",
    .more =
        "Without TERMINAL the only one that runs. Shows its screen and goes on from there; ends "
        "with the exit status of its command, or with 0 after the detach keys, which leave it "
        "running. Who comes while somebody else types watches; their first key asks for control "
        "again. A connection that is lost is made again and goes on where it was.\n\n"
        "Examples:\n  atoll attach build\n  atoll attach --observe build main\n"
        "  atoll attach --take --detach-keys ctrl-a,d build",
    .flags = attach_flags,
    .traits = CMD_REMOTE,
    .run = attach_run,
};

/* ---- shell ---- */

static int put_shell(struct cli *cli, struct json_out *json, struct err *err)
{
    unsigned rows, cols;

    json_open(json, '{');
    if (cli_has(cli, "cwd"))
        json_kv_text(json, "cwd", cli_text(cli, "cwd"));
    if (cli_has(cli, "user"))
        json_kv_text(json, "user", cli_text(cli, "user"));
    if (cli_has(cli, "name"))
        json_kv_text(json, "name", cli_text(cli, "name"));
    if (cli_size(&rows, &cols)) {
        json_kv_int(json, "rows", rows);
        json_kv_int(json, "cols", cols);
    }
    if (sandbox_put_pairs(cli, json, "env", "env", err) < 0)
        return -1;
    json_close(json, '}');
    return 0;
}

static int shell_run(struct cli *cli, struct err *err)
{
    static const char *argv[] = { "/bin/sh", "-c",
                                  "command -v bash >/dev/null && exec bash -l; exec sh -l" };
    const char *box = cli_escape(cli, cli->args[0]);
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    if (!isatty(0) || !isatty(1) || cli->json)
        return exec_anywhere(cli, box, argv, ARRAY_LEN(argv), err);
    if (put_shell(cli, &json, err) < 0)
        return -1;
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/sandboxes/%s/terminals", box) <
        0)
        return err->code == ERR_NOT_FOUND ? exec_linked(cli, box, argv, ARRAY_LEN(argv), err) : -1;
    autofree char *id = xmemdup0(json_text(reply, "id").p, json_text(reply, "id").n);
    return attach_to(cli, terminal_path(cli, box, id), (struct attach_how){ 0 }, err);
}

static const struct cli_flag shell_flags[] = {
    { "cwd", "DIR", "Working directory (/workspace)" },
    { "env", "NAME=VALUE", "Environment of the shell; may repeat" },
    { "user", "USER", "agent or root; the sandbox's own unless said" },
    { "name", "NAME", "To find its terminal again" },
    ATTACH_FLAGS,
    { 0 },
};

const struct command cmd_shell = {
    .name = "shell",
    .args = "ID|NAME",
    .help = "Open a shell in a sandbox: bash where it has one, otherwise sh.",
    .more = "With this terminal joined to it; the detach keys leave it running, and `atoll attach` "
            "comes back to it. Without a terminal it reads its commands from standard input. A "
            "sandbox that its idle policy put to sleep wakes up first. On a linked agent, by its "
            "name, there are no detach keys: hanging up ends it.",
    .flags = shell_flags,
    .traits = CMD_REMOTE,
    .run = shell_run,
};

/* ---- terminal ls, kill, record ---- */

const struct command cmd_terminal_ls = {
    .name = "terminal ls",
    .args = "ID|NAME",
    .help = "List the terminals of a sandbox, oldest first.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/sandboxes/{}/terminals",
              .member = "items",
              .table = "id,name,state,argv,>rows,>cols,>viewers,>controllers,>end,"
                       ">exit_code,started_at" },
    .run = cli_view,
};

static int kill_run(struct cli *cli, struct err *err)
{
    const struct json *reply;

    if (cli_call(cli, "DELETE", STR_NONE, &reply, err, "%s",
                 terminal_path(cli, cli_escape(cli, cli->args[0]), cli->args[1])) < 0)
        return -1;
    return cli_word(cli, reply, "id");
}

const struct command cmd_terminal_kill = {
    .name = "terminal kill",
    .args = "ID|NAME TERMINAL",
    .help = "Kill the command of a terminal and everything that it started.",
    .traits = CMD_REMOTE,
    .run = kill_run,
};

static int copy_out(struct client *client, int fd, struct err *err)
{
    static char data[65536];
    ssize_t got;

    while ((got = client_read(client, data, sizeof(data), err)) > 0)
        for (ssize_t at = 0; at < got;) {
            ssize_t put = write(fd, data + at, (size_t)(got - at));

            if (put < 0 && errno != EINTR)
                return err_sys(err, "write the recording");
            at += MAX(put, (ssize_t)0);
        }
    return got < 0 ? -1 : 0;
}

int terminal_record(struct cli *cli, const char *path, struct err *err)
{
    const char *file = cli_text(cli, "output");
    struct client_options options = { 0 };
    struct client_reply reply = { 0 };
    autoclient struct client *client = NULL;
    autoclose int fd = -1;

    if (endpoint_find(cli, err) < 0)
        return -1;
    options.ca_file = cli->at.ca;
    struct client_request request = { .method = "GET",
                                      .path = arena_printf(&cli->arena, "%s/recording", path),
                                      .token = cli->at.token,
                                      .accept = "application/x-asciicast" };
    if (cli_deadline(cli, &options.deadline_ms, err) < 0 ||
        client_start(&client, &cli->at.target, &request, &options, &reply, err) < 0)
        return -1;
    if (reply.status != 200)
        return cli_refused_on(cli, client, &reply, err);
    if (file) {
        fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
            return err_sys(err, "%s", file);
    }
    client_deadline(client, INT64_MAX / 2);
    return copy_out(client, file ? fd : cli->out_fd, err);
}

static int record_run(struct cli *cli, struct err *err)
{
    return terminal_record(cli, terminal_path(cli, cli_escape(cli, cli->args[0]), cli->args[1]),
                           err);
}

static const struct cli_flag record_flags[] = {
    { "output", "FILE", "A new file for it; standard output unless said" },
    { 0 },
};

const struct command cmd_terminal_record = {
    .name = "terminal record",
    .args = "ID|NAME TERMINAL",
    .help = "Fetch the recording of a terminal as an asciicast (version 2).",
    .more = "What is kept of it, up to now; it is recorded always.\n\n"
            "Example:\n  atoll terminal record build main --output build.cast",
    .flags = record_flags,
    .traits = CMD_REMOTE,
    .run = record_run,
};
