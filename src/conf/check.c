/*
 * Checks across settings, and the reading of addresses. Only literal addresses are taken:
 * a name would be resolved at start and could quietly mean something wider than what was written.
 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/mem.h"
#include "conf/conf.h"
#include "policy/host.h"

#define DNS_PORT 53

static int bad(const char *text, const char *why, struct err *err)
{
    return err_field(err, "listen", "listen '%s': %s", text, why);
}

static int listen_unix(const char *text, struct str path, struct conf_listen *out, struct err *err)
{
    if (!path.n || path.p[0] != '/')
        return bad(text, "the path must begin with '/'", err);
    if (path.n >= sizeof(out->path))
        return bad(text, "the path is too long", err);
    out->is_unix = true;
    out->loopback = true;
    memcpy(out->path, path.p, path.n);
    return 0;
}

/* "host:port" into its halves; false when it has no such shape. */
static bool split_port(struct str text, struct str *host, uint16_t *port)
{
    const char *colon = text.n ? memrchr(text.p, ':', text.n) : NULL;
    uint64_t number;

    if (!colon || !str_to_u64(str_from(text, (size_t)(colon - text.p) + 1), &number) ||
        number > 65535)
        return false;
    *host = (struct str){ text.p, (size_t)(colon - text.p) };
    *port = (uint16_t)number;
    return true;
}

/* Writes the numeric form, so that two spellings of one address become equal. */
static bool numeric(struct str host, struct conf_listen *out)
{
    char text[64] = "";
    struct in_addr four;
    struct in6_addr six;

    if (!host.n || str_is(host, "localhost"))
        host = STR("127.0.0.1");
    bool bracketed = host.n > 2 && host.p[0] == '[' && host.p[host.n - 1] == ']';
    if (bracketed)
        host = (struct str){ host.p + 1, host.n - 2 };
    if (host.n >= sizeof(text))
        return false;
    memcpy(text, host.p, host.n);
    if (!bracketed && inet_pton(AF_INET, text, &four) == 1) {
        out->loopback = ntohl(four.s_addr) >> 24 == 127;
        return inet_ntop(AF_INET, &four, out->host, sizeof(out->host));
    }
    if (bracketed && inet_pton(AF_INET6, text, &six) == 1) {
        out->loopback = IN6_IS_ADDR_LOOPBACK(&six);
        return inet_ntop(AF_INET6, &six, out->host, sizeof(out->host));
    }
    return false;
}

int conf_listen_parse(const char *text, struct conf_listen *out, struct err *err)
{
    struct str rest = str_of(text), host;
    struct conf_listen found = { 0 };

    if (str_starts(rest, STR("unix:"))) {
        if (listen_unix(text, str_from(rest, 5), &found, err) < 0)
            return -1;
        *out = found;
        return 0;
    }
    found.tls = str_starts(rest, STR("https://"));
    if (found.tls)
        rest = str_from(rest, 8);
    else if (str_starts(rest, STR("http://")))
        rest = str_from(rest, 7);
    if (!split_port(rest, &host, &found.port))
        return bad(text, "write ADDRESS:PORT, https://ADDRESS:PORT or unix:PATH", err);
    if (!numeric(host, &found))
        return bad(text, "the address must be IPv4, IPv6 in [brackets] or localhost", err);
    *out = found;
    return 0;
}

static bool same_place(const struct conf_listen *a, const struct conf_listen *b)
{
    if (a->is_unix || b->is_unix)
        return a->is_unix == b->is_unix && strcmp(a->path, b->path) == 0;
    return a->port != 0 && a->port == b->port && strcmp(a->host, b->host) == 0;
}

static int check_listen(const struct conf *conf, const char *const *list, size_t at, bool has_tls,
                        struct err *err)
{
    struct conf_listen one, other;

    if (conf_listen_parse(list[at], &one, err) < 0)
        return -1;
    for (size_t i = 0; i < at; i++)
        if (conf_listen_parse(list[i], &other, err) < 0)
            return -1;
        else if (same_place(&one, &other))
            return bad(list[at], "listed twice", err);
    if (one.tls && !has_tls)
        return bad(list[at], "https:// needs tls_cert and tls_key", err);
    if (!one.loopback && strcmp(conf_text(conf, "auth"), "open") == 0)
        return err_field(err, "auth",
                         "auth = open is refused with listen '%s': it would make everybody who can "
                         "reach that address admin; use loopback or auth = token",
                         list[at]);
    if (!one.loopback && !one.tls && !conf_bool(conf, "insecure"))
        return err_field(
            err, "listen",
            "listen '%s' is refused without TLS: everybody on the way could read the "
            "tokens; write https:// with tls_cert and tls_key, put a proxy in front of "
            "a loopback listener, or say --insecure",
            list[at]);
    return 0;
}

int conf_resolver_parse(const char *text, struct host *out, uint16_t *port, struct err *err)
{
    struct host host;

    if (host_port_parse(str_of(text), DNS_PORT, &host, port, err) < 0 || host.kind != HOST_ADDR)
        return err_field(err, "egress_resolver",
                         "egress_resolver '%s': write ADDRESS or ADDRESS:PORT, IPv6 in [brackets]",
                         text);
    *out = host;
    return 0;
}

static int check_resolvers(const struct conf *conf, struct err *err)
{
    const char *const *list = conf_list(conf, "egress_resolver");
    const char *where;
    struct host host;
    uint16_t port;
    size_t count = 0;
    int rc = 0;

    for (; rc == 0 && list[count]; count++)
        rc = conf_resolver_parse(list[count], &host, &port, err);
    if (rc == 0 && count > CONF_RESOLVERS_MAX)
        rc = err_field(err, "egress_resolver", "egress_resolver: at most %d", CONF_RESOLVERS_MAX);
    if (rc == 0)
        return 0;
    conf_source(conf, "egress_resolver", &where);
    return err_wrap(err, "%s", where);
}

int conf_check(const struct conf *conf, struct err *err)
{
    bool cert = conf_text(conf, "tls_cert")[0], key = conf_text(conf, "tls_key")[0];
    const char *const *list = conf_list(conf, "listen");
    const char *where;

    if (cert != key)
        return err_field(err, cert ? "tls_key" : "tls_cert", "%s is set but %s is not",
                         cert ? "tls_cert" : "tls_key", cert ? "tls_key" : "tls_cert");
    for (size_t i = 0; list[i]; i++)
        if (check_listen(conf, list, i, cert, err) < 0) {
            conf_source(conf, "listen", &where);
            return err_wrap(err, "%s", where);
        }
    return check_resolvers(conf, err);
}
