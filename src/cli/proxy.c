/*
 * The proxy for signed tokens: what was said on the command line. What it does is src/egress, in a
 * jail that main.c's role puts around it.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "egress/egress.h"
#include "net/sock.h"
#include "policy/grant.h"
#include "policy/host.h"

#define PROXY_LISTEN "127.0.0.1:15004"
#define PROXY_BACKLOG 1024
#define KEY_MAX 4096
#define KEY_SHORT 32

static int read_key_file(const char *path, struct buf *out, struct err *err)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *room = buf_reserve(out, KEY_MAX + 2);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "read the key from %s", path);
    if (S_ISREG(st.st_mode) && st.st_mode & 077)
        log_warn("others can read the key, go on", kv_str("file", path));
    ssize_t got = read(fd, room, KEY_MAX + 2);
    if (got < 0)
        return err_sys(err, "read the key from %s", path);
    out->len = (size_t)got;
    if (out->len && out->data[out->len - 1] == '\n')
        out->len--;
    return 0;
}

/* The key stays until the end: it is all that this process is about. */
static int read_key(struct cli *cli, struct str *out, struct err *err)
{
    const char *from = cli_text(cli, "token-key");
    struct buf key = { 0 };

    if (!from)
        return cli_usage(cli, err, "--token-key is needed: a file, or env:NAME");
    if (strncmp(from, "env:", 4) == 0) {
        char *value = getenv(from + 4);

        if (!value)
            return err_set(err, ERR_INVALID, "the environment has no %s", from + 4);
        buf_puts(&key, value);
        explicit_bzero(value, strlen(value)); /* what /proc shows */
        unsetenv(from + 4);
    } else if (read_key_file(from, &key, err) < 0) {
        buf_free(&key);
        return -1;
    }
    if (!key.len || key.len > KEY_MAX) {
        err_set(err, ERR_INVALID, "a key has 1 to %d bytes, this one %zu", KEY_MAX, key.len);
        buf_free(&key);
        return -1;
    }
    if (key.len < KEY_SHORT)
        log_warn("the key is short enough to be guessed, go on", kv_int("bytes", (int64_t)key.len));
    out->p = buf_take(&key, &out->n);
    return 0;
}

static int read_resolver(const char *text, struct egress_addr *out, struct err *err)
{
    struct host host;
    uint16_t port;

    if (host_port_parse(str_of(text), 53, &host, &port, err) < 0 || host.kind != HOST_ADDR)
        return err_set(err, ERR_INVALID, "--resolver: %s is no address", text);
    *out = (struct egress_addr){ .family = host.addr.family, .port = port };
    memcpy(out->bytes, host.addr.bytes, sizeof(out->bytes));
    return 0;
}

int proxy_wish(struct cli *cli, struct egress_signed *out, struct err *err)
{
    const char *listen = cli_text(cli, "listen"), *text;
    char actual[SOCK_TEXT_SIZE];
    unsigned resolvers = 0;
    int64_t life_ms;

    log_setup(LOG_INFO, cli->json ? LOG_JSON : LOG_TEXT, "proxy");
    if (cli_ms(cli, "max-life", (int64_t)GRANT_LIFE_S * 1000, &life_ms, err) < 0 ||
        read_key(cli, &out->key, err) < 0)
        return -1;
    out->life_s = life_ms / 1000;
    for (size_t at = 0; (text = cli_next(cli, "resolver", &at));) {
        if (resolvers == EGRESS_RESOLVERS)
            return cli_usage(cli, err, "--resolver: at most %d", EGRESS_RESOLVERS);
        if (read_resolver(text, &out->config.resolvers[resolvers++], err) < 0)
            return -1;
    }
    out->listener = sock_listen(listen ? listen : PROXY_LISTEN, PROXY_BACKLOG, actual, err);
    if (out->listener < 0)
        return -1;
    log_info("proxy for signed tokens", kv_str("listen", actual),
             kv_int("max_life_s", out->life_s));
    return 0;
}

/* main.c starts it before it comes to this. */
static int proxy_run(struct cli *cli, struct err *err)
{
    (void)cli;
    return err_set(err, ERR_UNSUPPORTED, "this program was built without the proxy");
}

static const struct cli_flag proxy_flags[] = {
    { "token-key", "FILE", "The key that tokens are signed with: a file, or env:NAME" },
    { "listen", "ADDRESS", "Where to listen; " PROXY_LISTEN " unless said" },
    { "resolver", "ADDRESS", "A name server to ask, up to three; unless said, the machine's" },
    { "max-life", "DURATION", "Refuse tokens that end later than so; 24h unless said" },
    { 0 },
};

const struct command cmd_proxy = {
    .name = "proxy",
    .help = "Be a proxy for clients that bring signed tokens.",
    .more =
        "For programs outside of sandboxes, and for clients of agentbox: CONNECT and plain HTTP. "
        "Each request brings a token (JWT, HS256) in Proxy-Authorization, as Bearer TOKEN or as "
        "the password jwt_TOKEN of any user, so http://sandbox:jwt_TOKEN@HOST:15004 works as "
        "HTTPS_PROXY. Without a good token the answer is 407, and there is no list of hosts that "
        "would count instead.\n\n"
        "The token's allowed_hosts (a list, or a text with commas) are names, each for ports 80 "
        "and 443 unless :PORT follows; *.NAME is NAME and all beneath it. Addresses in it allow "
        "nothing. Its claims are iss (sandbox-egress-control), session_id, tenant_id, "
        "allowed_hosts and exp. Names that lead to private addresses or to this machine are "
        "refused, and in a tunnel to port 443 there must be TLS to the host that was asked "
        "for.\n\n"
        "Every decision is a line on standard error.\n\n"
        "Example:\n  SIGNING_KEY=… atoll proxy --token-key env:SIGNING_KEY --listen 0.0.0.0:15004",
    .flags = proxy_flags,
    .run = proxy_run,
};
