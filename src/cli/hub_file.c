/* Files of a project: up as a form, which is how the hub takes them, and down as they are. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/id.h"
#include "base/mem.h"
#include "cli/cli.h"

/* A path of a file in a URL: its slashes stay. */
static const char *escape_path(struct cli *cli, const char *path)
{
    autobuf struct buf out = { 0 };
    struct str rest = str_of(path);

    for (bool first = true; rest.n || first; first = false) {
        struct str part = str_cut(&rest, '/');

        buf_printf(&out, "%s%s", first ? "" : "/",
                   cli_escape(cli, arena_memdup0(&cli->arena, part.p ? part.p : "", part.n)));
    }
    return arena_memdup0(&cli->arena, out.data, out.len);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* ---- up ---- */

static int send_file(struct client *client, int fd, const char *name, struct err *err)
{
    char piece[8192];

    for (;;) {
        ssize_t got = read(fd, piece, sizeof(piece));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "read %s", name);
        if (got == 0)
            return 0;
        if (client_write(client, piece, (size_t)got, err) < 0)
            return err->code == ERR_UNAVAILABLE ? 0 : -1; /* its answer says why */
    }
}

static int put_form(struct cli *cli, int fd, const char *name, const char *edge,
                    struct client *client, struct err *err)
{
    autobuf struct buf head = { 0 }, end = { 0 };
    const char *uploader = cli_text(cli, "uploader");

    if (uploader)
        buf_printf(&head, "--%s\r\nContent-Disposition: form-data; name=\"uploader\"\r\n\r\n%s\r\n",
                   edge, uploader);
    buf_printf(&head,
               "--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n"
               "Content-Type: application/octet-stream\r\n\r\n",
               edge, name);
    buf_printf(&end, "\r\n--%s--\r\n", edge);
    if (client_write(client, head.data, head.len, err) < 0)
        return err->code == ERR_UNAVAILABLE ? 0 : -1;
    if (send_file(client, fd, cli->args[1], err) < 0)
        return -1;
    if (client_write(client, end.data, end.len, err) < 0)
        return err->code == ERR_UNAVAILABLE ? 0 : -1;
    return 0;
}

static int read_answer(struct cli *cli, struct client *client, const struct json **out,
                       struct err *err)
{
    autobuf struct buf answer = { .max = CLI_REPLY_MAX };
    struct client_reply reply;
    struct json *root = NULL;
    ssize_t got = 1;

    if (client_finish(client, &reply, err) < 0)
        return -1;
    if (reply.status < 200 || reply.status > 299)
        return cli_refused_on(cli, client, &reply, err);
    while (got > 0) {
        char *room = buf_reserve(&answer, 4096);

        if (!room)
            return err_set(err, ERR_LIMIT, "the server's answer is too long");
        got = client_read(client, room, 4096, err);
        if (got < 0)
            return -1;
        answer.len += (size_t)got;
    }
    cli->reply = arena_str(&cli->answers, buf_view(&answer));
    if (json_parse(&cli->answers, cli->reply, &root, err) < 0)
        return err_wrap(err, "the server's answer");
    *out = root;
    return 0;
}

static int put_run(struct cli *cli, struct err *err)
{
    const char *from = cli->args[1];
    const char *name = cli_text(cli, "name") ? cli_text(cli, "name") : last_part(from);
    autoclose int fd = open(from, O_RDONLY | O_CLOEXEC);
    autoclient struct client *client = NULL;
    struct client_options options = { 0 };
    const struct json *reply = NULL;
    char edge[ID_SIZE], key[ID_SIZE];

    if (fd < 0)
        return err_sys(err, "open %s", from);
    if (strpbrk(name, "\"\r\n") ||
        (cli_has(cli, "uploader") && strpbrk(cli_text(cli, "uploader"), "\r\n")))
        return cli_usage(cli, err, "quotes and line ends cannot stand in a name");
    id_make(edge, "edge");
    id_make(key, "cli");
    const char *kind = arena_printf(&cli->arena, "multipart/form-data; boundary=%s", edge);
    if (endpoint_find(cli, err) < 0 || cli_deadline(cli, &options.deadline_ms, err) < 0)
        return -1;
    options.ca_file = cli->at.ca;
    struct client_request request = {
        .method = "POST",
        .path = arena_printf(&cli->arena, "/projects/%s/files", cli_escape(cli, cli->args[0])),
        .token = cli->at.token,
        .stream = kind,
        .extra = { { "Idempotency-Key", key } },
    };
    if (client_open(&client, &cli->at.target, &request, &options, err) < 0) {
        cli_hint_unreached(cli, err);
        return -1;
    }
    if (put_form(cli, fd, name, edge, client, err) < 0 || read_answer(cli, client, &reply, err) < 0)
        return err_wrap(err, "put %s", name);
    if (cli->json)
        return cli_put_reply(cli);
    return cli_details(cli, reply, "filename,version,size,checksum");
}

const struct command cmd_project_put = {
    .name = "project put",
    .args = "PROJECT FILE",
    .help = "Put a file into a project, as a new version if it is there.",
    .flags = (const struct cli_flag[]){ { "name", "NAME", "Under another name; notes/x is fine" },
                                        { "uploader", "NAME", "For which agent" },
                                        { 0 } },
    .traits = CMD_REMOTE,
    .run = put_run,
};

/* ---- down ---- */

/* Standard output is where all output goes; so a file takes its place. */
static int save(struct cli *cli, struct str data, struct err *err)
{
    const char *to = cli_text(cli, "output");
    int out_fd = cli->out_fd;

    buf_str(&cli->out, data);
    if (!to)
        return EXIT_OK;
    autoclose int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_sys(err, "write %s", to);
    cli->out_fd = fd;
    int rc = cli_flush(cli, err);
    cli->out_fd = out_fd;
    return rc < 0 ? err_wrap(err, "write %s", to) : EXIT_OK;
}

static int get_run(struct cli *cli, struct err *err)
{
    const char *version = cli_text(cli, "version");
    autobuf struct buf data = { 0 };
    struct client_options options = { 0 };
    struct client_reply reply;

    if (endpoint_find(cli, err) < 0 || cli_deadline(cli, &options.deadline_ms, err) < 0)
        return -1;
    options.ca_file = cli->at.ca;
    struct client_request request = {
        .method = "GET",
        .path = arena_printf(&cli->arena, "/projects/%s/files/%s%s%s",
                             cli_escape(cli, cli->args[0]), escape_path(cli, cli->args[1]),
                             version ? "?version=" : "", version ? cli_escape(cli, version) : ""),
        .token = cli->at.token,
        .accept = "*/*",
    };
    if (client_call(&cli->at.target, &request, &options, CLI_REPLY_MAX, &reply, &data, err) < 0) {
        cli_hint_unreached(cli, err);
        return -1;
    }
    if (reply.status != 200) {
        cli_refused(cli, &reply, arena_str(&cli->answers, buf_view(&data)), err);
        return err_wrap(err, "get %s", cli->args[1]);
    }
    return save(cli, buf_view(&data), err);
}

const struct command cmd_project_get = {
    .name = "project get",
    .args = "PROJECT NAME",
    .help = "Write a file of a project to standard output.",
    .flags = (const struct cli_flag[]){ { "output", "FILE", "Into a file instead" },
                                        { "version", "N", "An earlier version" },
                                        { 0 } },
    .traits = CMD_REMOTE,
    .run = get_run,
};

/* ---- names with slashes in a path ---- */

static int named(struct cli *cli, const char *method, const char *what, struct err *err)
{
    const struct json *reply;

    if (cli_call(cli, method, STR_NONE, &reply, err, "/projects/%s/%s/%s",
                 cli_escape(cli, cli->args[0]), what, escape_path(cli, cli->args[1])) < 0)
        return err_wrap(err, "%s %s", cli->command->name, cli->args[1]);
    if (cli->json)
        return cli_put_reply(cli);
    if (reply && reply->type == JSON_ARRAY)
        return cli_table(cli, reply, ">version,>size,uploader,updated_at,checksum");
    return cli_details(cli, reply, "status");
}

static int versions_run(struct cli *cli, struct err *err)
{
    return named(cli, "GET", "versions", err);
}

static int forget_run(struct cli *cli, struct err *err)
{
    return named(cli, "DELETE", "files", err);
}

const struct command cmd_project_versions = {
    .name = "project versions",
    .args = "PROJECT NAME",
    .help = "List the versions of a file, the newest first.",
    .traits = CMD_REMOTE,
    .run = versions_run,
};

const struct command cmd_project_rm_file = {
    .name = "project rm-file",
    .args = "PROJECT NAME",
    .help = "Delete a file of a project with all its versions.",
    .traits = CMD_REMOTE,
    .run = forget_run,
};
