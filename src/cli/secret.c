/* Secrets. A value is read from standard input: an argument could be seen by everybody. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/mem.h"
#include "cli/cli.h"

static int read_value(struct buf *out, struct err *err)
{
    while (out->len <= SECRET_VALUE_MAX + 1) { /* one more than fits, or its newline */
        char *room = buf_reserve(out, 4096);
        ssize_t got = read(0, room, 4096);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, "read the value");
        if (got == 0)
            break;
        out->len += (size_t)got;
    }
    if (out->len && out->data[out->len - 1] == '\n')
        out->len--;
    if (out->len > SECRET_VALUE_MAX)
        return err_set(err, ERR_LIMIT, "a value has at most %d bytes", SECRET_VALUE_MAX);
    if (!out->len)
        return err_set(err, ERR_INVALID, "no value came by standard input");
    return 0;
}

static void put_hosts(struct cli *cli, struct json_out *json)
{
    const char *host;
    size_t at = 0;

    json_key(json, "hosts");
    json_open(json, '[');
    while ((host = cli_next(cli, "host", &at)))
        json_put_str(json, str_of(host));
    json_close(json, ']');
}

static int secret_set_run(struct cli *cli, struct err *err)
{
    autobuf struct buf value = { 0 }, body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply = NULL;

    if (isatty(0))
        cli_note(cli, "the value, then Ctrl-D:");
    int rc = read_value(&value, err);
    if (rc == 0) {
        json_open(&json, '{');
        json_kv_str(&json, "value", buf_view(&value));
        put_hosts(cli, &json);
        json_close(&json, '}');
        rc = cli_call(cli, "PUT", buf_view(&body), &reply, err, "/api/v1/secrets/%s",
                      cli_escape(cli, cli->args[0]));
    }
    if (value.data)
        explicit_bzero(value.data, value.cap);
    if (body.data)
        explicit_bzero(body.data, body.cap);
    if (rc < 0)
        return err_wrap(err, "set secret %s", cli->args[0]);
    return cli_details(cli, reply, "name,kind,use,hosts,placeholder,version,changed_at");
}

static const struct cli_flag set_flags[] = {
    { "host", "RULE",
      "It goes into requests to this host, and can be opened for nothing else: "
      "HOST, *.SUFFIX, HOST:PORT, \"HOST GET,POST /path/\"; may repeat" },
    { 0 },
};

const struct command cmd_secret_set = {
    .name = "secret set",
    .args = "NAME",
    .help = "Keep a value under a name, or put another in its place.",
    .more = "The value is read from standard input, without its last newline. It is sealed by the "
            "server, and no command gives it back. With --host it is sealed to the process that "
            "all traffic of sandboxes goes through and bound to those hosts: only that process can "
            "open it, and it sends it nowhere else. Without a port a host means 443 with TLS. To "
            "change the hosts, set the value again.\n\n"
            "Examples:\n  atoll secret set API_KEY --host api.example.org < key.txt\n"
            "  atoll secret set NOTE < note.txt",
    .flags = set_flags,
    .traits = CMD_REMOTE,
    .run = secret_set_run,
};

static int secret_agent_run(struct cli *cli, struct err *err)
{
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);
    const struct json *reply;

    json_open(&json, '{');
    json_kv_text(&json, "agent_id", cli->args[0]);
    json_close(&json, '}');
    if (cli_call(cli, "POST", buf_view(&body), &reply, err, "/api/v1/secrets") < 0)
        return err_wrap(err, "make a secret for agent %s", cli->args[0]);
    return cli_word(cli, reply, "secret");
}

const struct command cmd_secret_agent = {
    .name = "secret agent",
    .args = "AGENT",
    .help = "Make the secret that an agent connects with, and print it.",
    .more = "It is printed this once; the server keeps its hash.\n\n"
            "Example:\n  AGENT_SECRET=$(atoll secret agent agent-01) atoll agent-client …",
    .traits = CMD_REMOTE,
    .run = secret_agent_run,
};

const struct command cmd_secret_ls = {
    .name = "secret ls",
    .help = "List secrets by name; never a value.",
    .traits = CMD_REMOTE,
    .view = { .path = "/api/v1/secrets",
              .member = "items",
              .table = "name,kind,use,hosts,fingerprint,>version,changed_at,by" },
    .run = cli_view,
};

static int secret_rm_run(struct cli *cli, struct err *err)
{
    if (cli_call(cli, "DELETE", STR_NONE, NULL, err, "/api/v1/secrets/%s",
                 cli_escape(cli, cli->args[0])) < 0)
        return err_wrap(err, "remove secret %s", cli->args[0]);
    return EXIT_OK;
}

const struct command cmd_secret_rm = {
    .name = "secret rm",
    .args = "NAME",
    .help = "Forget a secret; an agent that connects with it is disconnected.",
    .traits = CMD_REMOTE,
    .run = secret_rm_run,
};
