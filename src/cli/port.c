/*
 * Ports of a sandbox: listed, opened in a browser, forwarded.
 *
 * A forward listens here and has one process for each connection, which asks the server for a
 * tunnel (HTTP/1.1 Upgrade: tcp) and moves bytes both ways without ever waiting for one side alone:
 * a program that answers while it reads must not be able to stop us.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/sandbox.h"

#define FORWARDS_MAX 16
#define CONNECTIONS_MAX 128 /* of one command */

/* ---- one connection ---- */

struct half {
    char data[65536];
    size_t at, len;
    bool over, told; /* its source has ended; its sink has heard so */
};

static bool empty(const struct half *half)
{
    return half->at == half->len;
}

/* -1 failed, 1 something moved, 0 nothing. */
static int fill(struct half *half, ssize_t got)
{
    if (got == CLIENT_LATER)
        return 0;
    if (got < 0)
        return -1;
    half->over = got == 0;
    half->at = 0;
    half->len = (size_t)got;
    return 1;
}

static int drain(struct half *half, ssize_t put)
{
    if (put == CLIENT_LATER)
        return 0;
    if (put < 0)
        return -1;
    half->at += (size_t)put;
    return 1;
}

static ssize_t local_result(ssize_t rc, struct err *err)
{
    if (rc >= 0)
        return rc;
    if (errno == EAGAIN || errno == EINTR)
        return CLIENT_LATER;
    return err_sys(err, "the local connection");
}

/* Whatever can be moved now, once in each direction. */
static int turn(struct client *client, int fd, struct half *up, struct half *down, struct err *err)
{
    int moved = 0, rc = 0;

    if (empty(up) && !up->over)
        rc = fill(up, local_result(recv(fd, up->data, sizeof(up->data), MSG_DONTWAIT), err));
    moved |= rc;
    rc = 0;
    if (moved >= 0 && !empty(up))
        rc = drain(up, client_give(client, up->data + up->at, up->len - up->at, err));
    moved |= rc;
    if (moved >= 0 && empty(up) && up->over && !up->told) {
        client_shut(client);
        up->told = true;
    }
    rc = 0;
    if (moved >= 0 && empty(down) && !down->over)
        rc = fill(down, client_take(client, down->data, sizeof(down->data), err));
    moved |= rc;
    rc = 0;
    if (moved >= 0 && !empty(down))
        rc = drain(down, local_result(send(fd, down->data + down->at, down->len - down->at,
                                           MSG_DONTWAIT | MSG_NOSIGNAL),
                                      err));
    return moved | rc;
}

static int relay(struct client *client, int fd, struct err *err)
{
    static struct half up, down; /* a process has one connection */

    while (!down.over || !empty(&down)) {
        int moved = turn(client, fd, &up, &down, err);

        if (moved < 0)
            return -1;
        if (moved)
            continue;
        struct pollfd wait[] = {
            { .fd = fd,
              .events =
                  (short)((empty(&up) && !up.over ? POLLIN : 0) | (empty(&down) ? 0 : POLLOUT)) },
            { .fd = client_fd(client),
              .events = (short)((empty(&down) ? POLLIN : 0) | (empty(&up) ? 0 : POLLOUT)) },
        };
        if (!wait[0].events)
            wait[0].fd = -1; /* half closed: there is nothing to be told */
        if (poll(wait, ARRAY_LEN(wait), -1) < 0 && errno != EINTR)
            return err_sys(err, "wait");
    }
    return 0;
}

static int tunnel(struct cli *cli, int fd, const char *sandbox, unsigned port, struct err *err)
{
    struct client_options options = { .ca_file = cli->at.ca };
    autoclient struct client *client = NULL;
    autobuf struct buf path = { 0 };
    struct client_reply reply;

    buf_printf(&path, "/api/v1/sandboxes/%s/tunnels/%u", sandbox, port);
    struct client_request request = {
        .method = "GET", .path = buf_cstr(&path), .token = cli->at.token, .upgrade = "tcp"
    };
    if (cli_deadline(cli, &options.deadline_ms, err) < 0 ||
        client_start(&client, &cli->at.target, &request, &options, &reply, err) < 0)
        return -1;
    if (reply.status != 101)
        return cli_refused_on(cli, client, &reply, err);
    return relay(client, fd, err);
}

/* ---- listening ---- */

struct forward {
    int fd;
    unsigned port;
    char local[SOCK_TEXT_SIZE];
};

/* "8080:80", "127.0.0.1:8080:80", "80": the last is inside, what stands before it is here. */
static int forward_parse(struct cli *cli, const char *text, struct forward *out, struct err *err)
{
    const char *colon = strrchr(text, ':');
    struct str inside = str_of(colon ? colon + 1 : text);
    struct str here = colon ? (struct str){ text, (size_t)(colon - text) } : inside;
    uint64_t port, own;

    if (!str_to_u64(inside, &port) || port < 1 || port > 65535)
        return cli_usage(cli, err, "'%s' is not [ADDRESS:]LOCAL:REMOTE: ports are 1 to 65535",
                         text);
    out->port = (unsigned)port;
    if (str_to_u64(here, &own))
        snprintf(out->local, sizeof(out->local), "127.0.0.1:%.*s", STR_FMT(here));
    else
        snprintf(out->local, sizeof(out->local), "%.*s", STR_FMT(here));
    out->fd = sock_listen(out->local, 64, out->local, err);
    return out->fd < 0 ? err_wrap(err, "listen for %s", text) : 0;
}

static void reap(unsigned *children)
{
    while (*children && waitpid(-1, NULL, WNOHANG) > 0)
        (*children)--;
}

static void accept_one(struct cli *cli, const struct forward *forward, const char *sandbox,
                       unsigned *children)
{
    struct err err = { 0 };
    int fd = accept4(forward->fd, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    reap(children);
    /* check-style: allow fork: each connection has a process, which ends with it and with us */
    pid_t pid = *children < CONNECTIONS_MAX ? fork() : -1;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (tunnel(cli, fd, sandbox, forward->port, &err) < 0)
            cli_show_error(cli, &err);
        _exit(0);
    }
    *children += pid > 0;
    close(fd);
}

static int serve(struct cli *cli, struct forward *forwards, size_t count, const char *sandbox,
                 struct err *err)
{
    struct pollfd waits[FORWARDS_MAX];
    unsigned children = 0;

    for (size_t i = 0; i < count; i++)
        waits[i] = (struct pollfd){ .fd = forwards[i].fd, .events = POLLIN };
    for (;;) {
        if (poll(waits, count, -1) < 0 && errno != EINTR)
            return err_sys(err, "wait");
        for (size_t i = 0; i < count; i++)
            if (waits[i].revents)
                accept_one(cli, &forwards[i], sandbox, &children);
        reap(&children);
    }
}

static int forward_run(struct cli *cli, const char *sandbox, struct err *err)
{
    struct forward forwards[FORWARDS_MAX] = { 0 };
    size_t count = cli->arg_count - 1;
    const struct json *reply;

    if (count > FORWARDS_MAX)
        return cli_usage(cli, err, "at most %d ports at once", FORWARDS_MAX);
    /* Whom it is about is settled once: a name might be another's tomorrow. */
    if (cli_get(cli, &reply, err, "/api/v1/sandboxes/%s", sandbox) < 0)
        return err_wrap(err, "find sandbox %s", cli->args[0]);
    struct str id = json_text(reply, "id");
    const char *own = cli_escape(cli, arena_memdup0(&cli->arena, id.p, id.n));
    for (size_t i = 0; i < count; i++)
        if (forward_parse(cli, cli->args[1 + i], &forwards[i], err) < 0)
            return -1;
    for (size_t i = 0; i < count; i++)
        buf_printf(&cli->out, "%s -> %s:%u\n", forwards[i].local, own, forwards[i].port);
    if (cli_flush(cli, err) < 0)
        return -1;
    return serve(cli, forwards, count, own, err);
}

/* ---- the command ---- */

static int list_run(struct cli *cli, const char *sandbox, struct err *err)
{
    const struct json *reply;

    if (cli_get(cli, &reply, err, "/api/v1/sandboxes/%s/ports", sandbox) < 0)
        return err_wrap(err, "list the ports of %s", cli->args[0]);
    return cli_table(cli, json_get(reply, "items"), ">port,address,>uid");
}

static int open_run(struct cli *cli, const char *sandbox, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;
    int64_t port;

    if (cli_int(cli, "open", 1, 0, &port, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_int(&json, "port", port);
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/sandboxes/%s/previews",
                 sandbox) < 0)
        return err_wrap(err, "open port %lld of %s", (long long)port, cli->args[0]);
    return cli_word(cli, reply, "url");
}

static int port_run(struct cli *cli, struct err *err)
{
    const char *sandbox = cli_escape(cli, cli->args[0]);

    if (cli_has(cli, "open"))
        return cli->arg_count > 1 ? cli_usage(cli, err, "--open or LOCAL:REMOTE, not both")
                                  : open_run(cli, sandbox, err);
    return cli->arg_count > 1 ? forward_run(cli, sandbox, err) : list_run(cli, sandbox, err);
}

static const struct cli_flag port_flags[] = {
    { "open", "PORT", "Print a link to that port, for a browser on this machine" },
    { 0 },
};

const struct command cmd_port = {
    .name = "port",
    .args = "SANDBOX [LOCAL:REMOTE…]",
    .help = "List the ports that programs in a sandbox listen on, or forward some.",
    .more = "Each LOCAL:REMOTE listens here (127.0.0.1 unless an address stands before it; LOCAL 0 "
            "takes any free port) and forwards every connection to that port inside, until it is "
            "interrupted.\n\n"
            "Examples:\n  atoll port web\n  atoll port web 8080:80 0.0.0.0:2222:22\n"
            "  atoll port web --open 3000",
    .flags = port_flags,
    .traits = CMD_REMOTE,
    .run = port_run,
};
