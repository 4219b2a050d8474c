/*
 * A deadline for the whole of an upload would have to guess its size: instead each piece has the
 * time that --timeout says, and the answer, which comes when the server has worked the upload in,
 * has UPLOAD_ANSWER_MS.
 */
#include "cli/upload.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"

#define PIECE 131072
#define UPLOAD_ANSWER_MS (60ll * 60 * 1000)
#define TELL_MS 200

void upload_free(struct upload *upload)
{
    client_free(upload->client);
    upload->client = NULL;
}

int upload_begin(struct upload *upload, struct cli *cli, const char *path, struct err *err)
{
    struct client_options options = { 0 };

    *upload = (struct upload){ .cli = cli };
    if (endpoint_find(cli, err) < 0 || cli_deadline(cli, &options.deadline_ms, err) < 0)
        return -1;
    options.ca_file = cli->at.ca;
    struct client_request request = {
        .method = "POST", .path = path, .token = cli->at.token, .stream = "application/octet-stream"
    };
    if (client_open(&upload->client, &cli->at.target, &request, &options, err) < 0) {
        cli_hint_unreached(cli, err);
        return -1;
    }
    return 0;
}

static void tell(struct upload *upload, bool last)
{
    int64_t now = clock_mono_ms();
    char line[64];

    if (!isatty(upload->cli->err_fd) || upload->cli->json)
        return;
    if (!last && now - upload->told_ms < TELL_MS)
        return;
    upload->told_ms = now;
    int len = snprintf(line, sizeof(line), "\r%.1f MB sent%s", (double)upload->sent / 1e6,
                       last ? ", unpacking\n" : " ");
    (void)!write(upload->cli->err_fd, line, (size_t)len);
}

int upload_put(struct upload *upload, const void *data, size_t len, struct err *err)
{
    int64_t deadline;

    if (upload->refused)
        return 0;
    if (cli_deadline(upload->cli, &deadline, err) < 0)
        return -1;
    client_deadline(upload->client, deadline);
    if (client_write(upload->client, data, len, err) < 0) {
        upload->refused = err->code == ERR_UNAVAILABLE;
        return upload->refused ? 0 : -1;
    }
    upload->sent += len;
    tell(upload, false);
    return 0;
}

int upload_fd(struct upload *upload, int fd, const char *name, struct err *err)
{
    autofree char *piece = xmalloc(PIECE);

    while (!upload->refused) {
        ssize_t got = read(fd, piece, PIECE);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "read %s", name);
        if (got == 0)
            break;
        if (upload_put(upload, piece, (size_t)got, err) < 0)
            return -1;
    }
    return 0;
}

int upload_end(struct upload *upload, const struct json **out, struct err *err)
{
    struct cli *cli = upload->cli;
    autobuf struct buf body = { .max = CLI_REPLY_MAX };
    struct client_reply reply;
    struct json *root = NULL;
    ssize_t got;

    tell(upload, true);
    client_deadline(upload->client, clock_mono_ms() + UPLOAD_ANSWER_MS);
    if (client_finish(upload->client, &reply, err) < 0) {
        cli_hint_unreached(cli, err);
        return -1;
    }
    if (reply.status < 200 || reply.status > 299)
        return cli_refused_on(cli, upload->client, &reply, err);
    for (;;) {
        char *room = buf_reserve(&body, 65536);

        if (!room)
            return err_set(err, ERR_LIMIT, "the server's answer is too long");
        got = client_read(upload->client, room, 65536, err);
        if (got <= 0)
            break;
        body.len += (size_t)got;
    }
    if (got < 0)
        return -1;
    cli->reply = arena_str(&cli->answers, buf_view(&body));
    if (json_parse(&cli->answers, cli->reply, &root, err) < 0)
        return err_wrap(err, "the server's answer");
    *out = root;
    return 0;
}
