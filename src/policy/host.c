/*
 * A name is checked label by label and copied in lower case; whatever ends in a number goes to
 * inet_pton. Nothing is skipped, trimmed or decoded on the way.
 */
#include "policy/host.h"

#include <stdio.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Would some program read a name that ends so as an address? */
static bool is_number(struct str label)
{
    bool digits = label.n > 0, hex = label.n >= 2 && label.p[0] == '0' && (label.p[1] | 32) == 'x';

    for (size_t i = 0; i < label.n; i++) {
        digits = digits && is_digit(label.p[i]);
        hex = hex && (i < 2 || is_hex(label.p[i]));
    }
    return digits || hex;
}

static struct str last_label(struct str name)
{
    size_t at = name.n;

    while (at > 0 && name.p[at - 1] != '.')
        at--;
    return str_from(name, at);
}

/* NULL, or what is wrong with it. */
static const char *label_wrong(struct str label)
{
    if (label.n == 0)
        return "a label of the name is empty";
    if (label.n > HOST_LABEL_MAX_LEN)
        return "a label of the name is longer than 63 bytes";
    if (label.p[0] == '-' || label.p[label.n - 1] == '-')
        return "a label of the name begins or ends with a hyphen";
    for (size_t i = 0; i < label.n; i++) {
        char c = label.p[i];

        if (!is_digit(c) && c != '-' && !((c | 32) >= 'a' && (c | 32) <= 'z'))
            return "a name is letters, digits, hyphens and dots";
    }
    return NULL;
}

static const char *name_wrong(struct str name)
{
    if (name.n == 0)
        return "there is no name";
    if (name.n > HOST_NAME_MAX_LEN)
        return "a name is at most 253 bytes";
    for (struct str rest = name;;) {
        struct str label = { rest.p, 0 };

        while (label.n < rest.n && rest.p[label.n] != '.')
            label.n++;
        const char *wrong = label_wrong(label);
        if (wrong)
            return wrong;
        if (label.n == rest.n)
            return NULL;
        rest = str_from(rest, label.n + 1);
        if (rest.n == 0)
            return "a label of the name is empty";
    }
}

static void put_name(struct host *out, struct str name)
{
    struct host host = { .kind = HOST_NAME, .len = (uint8_t)name.n };

    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];

        host.text[i] = c >= 'A' && c <= 'Z' ? (char)(c | 32) : c;
    }
    *out = host;
}

int host_parse_name(struct str text, struct host *out, struct err *err)
{
    struct str name = text;

    if (name.n > 1 && name.p[name.n - 1] == '.')
        name.n--;
    const char *wrong = name_wrong(name);
    if (wrong)
        return err_set(err, ERR_INVALID, "%s", wrong);
    if (is_number(last_label(name)))
        return err_set(err, ERR_INVALID, "a name whose last label is a number is an address");
    put_name(out, name);
    return 0;
}

void host_from_addr(const struct addr *addr, struct host *out)
{
    struct host host = { .kind = HOST_ADDR, .addr = *addr };
    char text[ADDR_TEXT_SIZE];

    addr_text(addr, text);
    host.len = (uint8_t)strlen(text);
    memcpy(host.text, text, host.len);
    *out = host;
}

static int parse_bracketed(struct str inside, struct host *out, struct err *err)
{
    struct addr addr;

    if (!memchr(inside.n ? inside.p : "", ':', inside.n) || !addr_parse(inside, &addr))
        return err_set(err, ERR_INVALID, "there is no IPv6 address in the brackets");
    if (addr_class(&addr) == ADDR_EMBEDDED)
        return err_set(err, ERR_INVALID, "an IPv4 address is not written inside an IPv6 address");
    host_from_addr(&addr, out);
    return 0;
}

int host_parse(struct str text, struct host *out, struct err *err)
{
    struct addr addr;

    if (text.n >= 2 && text.p[0] == '[' && text.p[text.n - 1] == ']')
        return parse_bracketed((struct str){ text.p + 1, text.n - 2 }, out, err);
    if (!is_number(last_label(text)))
        return host_parse_name(text, out, err);
    if (!addr_parse(text, &addr) || addr.family != 4)
        return err_set(err, ERR_INVALID,
                       "an IPv4 address is four numbers from 0 to 255 without leading zeros");
    host_from_addr(&addr, out);
    return 0;
}

bool host_eq(const struct host *a, const struct host *b)
{
    if (a->kind != b->kind || a->kind == HOST_NONE)
        return false;
    return a->kind == HOST_ADDR ? addr_eq(&a->addr, &b->addr) : str_eq(host_str(a), host_str(b));
}

bool host_port_number(struct str text, uint16_t *out)
{
    uint32_t value = 0;

    if (text.n == 0 || text.n > 5 || text.p[0] == '0')
        return false;
    for (size_t i = 0; i < text.n; i++) {
        if (!is_digit(text.p[i]))
            return false;
        value = value * 10 + (uint32_t)(text.p[i] - '0');
    }
    if (value > 65535)
        return false;
    *out = (uint16_t)value;
    return true;
}

int host_port_parse(struct str text, uint16_t otherwise, struct host *host, uint16_t *port,
                    struct err *err)
{
    const char *from = text.n && text.p[0] == '[' ? memchr(text.p, ']', text.n) : text.p;
    const char *colon = from && text.n ? memchr(from, ':', text.n - (size_t)(from - text.p)) : NULL;
    struct str name = { text.p, colon ? (size_t)(colon - text.p) : text.n };
    uint16_t number = otherwise;
    struct host found;

    if (colon && !host_port_number(str_from(text, name.n + 1), &number))
        return err_set(err, ERR_INVALID, "a port is a number from 1 to 65535");
    if (number == 0)
        return err_set(err, ERR_INVALID, "there is no port");
    if (host_parse(name, &found, err) < 0)
        return -1;
    *host = found;
    *port = number;
    return 0;
}

void host_port_text(const struct host *host, uint16_t port, char out[HOST_PORT_SIZE])
{
    bool brackets = host->kind == HOST_ADDR && host->addr.family == 6;
    const char *left = brackets ? "[" : "", *right = brackets ? "]" : "";

    if (port)
        snprintf(out, HOST_PORT_SIZE, "%s%s%s:%u", left, host->text, right, port);
    else
        snprintf(out, HOST_PORT_SIZE, "%s%s%s", left, host->text, right);
}

static bool cut_scheme(struct str *rest, bool *tls)
{
    static const struct str schemes[] = { STR_INIT("http://"), STR_INIT("https://") };

    for (size_t i = 0; i < 2; i++) {
        struct str head = { rest->p, MIN(rest->n, schemes[i].n) };

        if (!str_eq_nocase(head, schemes[i]))
            continue;
        *rest = str_from(*rest, schemes[i].n);
        *tls = i == 1;
        return true;
    }
    return false;
}

int host_url_parse(struct str text, struct host_url *out, struct err *err)
{
    struct host_url url = { .path = STR("/") };
    struct str rest = text, authority;

    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] <= ' ' || text.p[i] >= 0x7f || text.p[i] == '#' || text.p[i] == '\\')
            return err_set(err, ERR_INVALID, "a byte that does not belong into an address");
    if (!cut_scheme(&rest, &url.tls))
        return err_set(err, ERR_INVALID, "an address begins with http:// or https://");
    authority = (struct str){ rest.p, 0 };
    while (authority.n < rest.n && rest.p[authority.n] != '/' && rest.p[authority.n] != '?')
        authority.n++;
    rest = str_from(rest, authority.n);
    if (rest.n && rest.p[0] != '/')
        return err_set(err, ERR_INVALID, "a query needs a path before it");
    if (host_port_parse(authority, url.tls ? 443 : 80, &url.host, &url.port, err) < 0)
        return -1;
    if (rest.n)
        url.path = rest;
    *out = url;
    return 0;
}
