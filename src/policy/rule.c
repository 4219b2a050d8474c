/*
 * A rule is cut at its spaces; the target then at its port, by whether there are brackets or one
 * colon. Paths are compared byte by byte with escapes undone, after a first walk has found nothing
 * in them that another program could read differently.
 */
#include "policy/rule.h"

/* clang-format off */
static const struct {
    struct str name;
    uint8_t bit;
} methods[] = {
    { STR_INIT("GET"),    METHOD_GET },    { STR_INIT("HEAD"),    METHOD_HEAD },
    { STR_INIT("POST"),   METHOD_POST },   { STR_INIT("PUT"),     METHOD_PUT },
    { STR_INIT("PATCH"),  METHOD_PATCH },  { STR_INIT("DELETE"),  METHOD_DELETE },
    { STR_INIT("OPTIONS"), METHOD_OPTIONS },
};
/* clang-format on */

uint8_t rule_method(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        if (str_eq(name, methods[i].name))
            return methods[i].bit;
    return METHOD_OTHER;
}

/* ---- paths ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The next byte with its escape undone; -1 at the end or at a '?', -2 when it could be two things.
 */
static int next_byte(struct str *rest)
{
    if (rest->n == 0 || rest->p[0] == '?')
        return -1;
    unsigned char c = (unsigned char)rest->p[0];
    if (c <= ' ' || c >= 0x7f || c == '\\' || c == '#')
        return -2;
    if (c != '%') {
        *rest = str_from(*rest, 1);
        return c;
    }
    int high = rest->n > 2 ? hex_digit(rest->p[1]) : -1;
    int low = rest->n > 2 ? hex_digit(rest->p[2]) : -1;
    int value = high * 16 + low;
    if (high < 0 || low < 0 || value < ' ' || value == 0x7f || strchr("/\\.%", value))
        return -2;
    *rest = str_from(*rest, 3);
    return value;
}

/* "", "." and "..", also with parameters behind them ("..;x"): some servers drop those. */
static bool odd_segment(struct str segment)
{
    struct str name = str_cut(&segment, ';');

    return name.n == 0 || str_is(name, ".") || str_is(name, "..");
}

static bool path_odd(struct str path)
{
    struct str rest = path, segments;
    int c;

    if (path.n == 0 || path.p[0] != '/')
        return true;
    while ((c = next_byte(&rest)) >= 0)
        ;
    if (c == -2)
        return true;
    segments = (struct str){ path.p + 1, path.n - rest.n - 1 };
    while (segments.n)
        if (odd_segment(str_cut(&segments, '/')))
            return true;
    return false;
}

enum rule_path rule_path_match(struct str prefix, struct str path)
{
    struct str want = prefix, have = path;
    int last = 0, w, h;

    if (path_odd(path))
        return RULE_PATH_ODD;
    for (; (w = next_byte(&want)) >= 0; last = w)
        if (next_byte(&have) != w)
            return RULE_PATH_OUT;
    h = next_byte(&have);
    return last == '/' || h == '/' || h < 0 ? RULE_PATH_IN : RULE_PATH_OUT;
}

/* ---- reading ---- */

static int parse_prefix(struct str text, const struct addr *addr, uint8_t *out, struct err *err)
{
    unsigned most = addr->family == 4 ? 32 : 128;
    struct addr base = { .family = addr->family };
    uint64_t bits;

    if (text.n > 3 || !str_to_u64(text, &bits) || bits > most)
        return err_set(err, ERR_INVALID, "a prefix is a number from 0 to %u", most);
    for (unsigned i = 0; i < bits; i++)
        base.bytes[i / 8] |= (uint8_t)(addr->bytes[i / 8] & (0x80 >> i % 8));
    if (!addr_eq(&base, addr))
        return err_set(err, ERR_INVALID, "an address with a prefix has no bits behind it");
    *out = (uint8_t)bits;
    return 0;
}

/* "10.0.0.0/8", "2001:4860::", without brackets and port. */
static int parse_addr(struct str text, struct rule *out, struct err *err)
{
    struct str rest = text, base = str_cut(&rest, '/');
    bool has_prefix = base.n < text.n;
    struct addr addr;

    if (!addr_parse(base, &addr))
        return err_set(err, ERR_INVALID, "not an address as it is usually written");
    if (addr_class(&addr) == ADDR_EMBEDDED)
        return err_set(err, ERR_INVALID, "an IPv4 address is not written inside an IPv6 address");
    out->prefix = addr.family == 4 ? 32 : 128;
    if (has_prefix && parse_prefix(rest, &addr, &out->prefix, err) < 0)
        return -1;
    out->kind = RULE_ADDR;
    host_from_addr(&addr, &out->host);
    return 0;
}

static int parse_name(struct str text, struct rule *out, struct err *err)
{
    struct str name = text;

    out->kind = RULE_HOST;
    if (str_starts(text, STR("*.")))
        out->kind = RULE_SUFFIX, name = str_from(text, 2);
    else if (str_starts(text, STR(".")))
        out->kind = RULE_TREE, name = str_from(text, 1);
    if (str_is(text, "*"))
        return err_set(err, ERR_INVALID, "to allow every host, an operator sets the mode to open");
    if (name.n && memchr(name.p, '*', name.n))
        return err_set(err, ERR_INVALID,
                       "a wildcard is the whole first label, as in *.example.org");
    if (out->kind == RULE_HOST)
        return host_parse(name, &out->host, err);
    return host_parse_name(name, &out->host, err);
}

static size_t count_of(struct str text, char c)
{
    size_t count = 0;

    for (size_t i = 0; i < text.n; i++)
        count += text.p[i] == c;
    return count;
}

/* What stands before the port, and the port behind ":" (empty: none). -1: it cannot be cut. */
static int cut_port(struct str text, struct str *target, struct str *port, struct err *err)
{
    struct str rest = text;

    *port = STR_NONE;
    *target = text;
    if (text.n && text.p[0] == '[') {
        *target = str_cut(&rest, ']');
        if (target->n == text.n || (rest.n && rest.p[0] != ':'))
            return err_set(err, ERR_INVALID, "brackets are around an IPv6 address");
        *target = str_from(*target, 1);
        *port = str_from(rest, 1);
        return rest.n == 1 ? err_set(err, ERR_INVALID, "there is no port behind the colon") : 0;
    }
    if (count_of(text, ':') != 1) /* none, or an IPv6 address */
        return 0;
    *target = str_cut(&rest, ':');
    *port = rest;
    return rest.n ? 0 : err_set(err, ERR_INVALID, "there is no port behind the colon");
}

/* A rule is often pasted as the address of a page. */
static int check_url(struct str text, struct err *err)
{
    static const struct str schemes[] = { STR_INIT("http://"), STR_INIT("https://") };
    char name[HOST_PORT_SIZE];
    struct host host;

    for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
        struct str rest = str_from(text, MIN(text.n, schemes[i].n));
        uint16_t port;

        if (!str_starts(text, schemes[i]))
            continue;
        if (host_port_parse(str_cut(&rest, '/'), i ? 443 : 80, &host, &port, NULL) < 0)
            return err_set(err, ERR_INVALID, "write the host alone, without %s", schemes[i].p);
        host_port_text(&host, port == 80 || port == 443 ? 0 : port, name);
        return err_set(err, ERR_INVALID, "write the host alone: %s", name);
    }
    return 0;
}

/* "5432", "*", with "/raw" behind; empty: unsaid. */
static int parse_port(struct str port, struct rule *out, struct err *err)
{
    const struct str raw = STR(RULE_RAW);

    if (port.n > raw.n && str_eq(str_from(port, port.n - raw.n), raw)) {
        out->raw = true;
        port.n -= raw.n;
    }
    if (str_is(port, "*"))
        out->ports = RULE_PORTS_ANY;
    else if (port.n && !host_port_number(port, &out->port))
        return err_set(err, ERR_INVALID,
                       "a port is a number from 1 to 65535, or *; \"" RULE_RAW "\" may follow");
    else if (port.n)
        out->ports = RULE_PORTS_ONE;
    return 0;
}

static int parse_target(struct str text, struct rule *out, struct err *err)
{
    struct str target, port;

    if (check_url(text, err) < 0 || cut_port(text, &target, &port, err) < 0 ||
        parse_port(port, out, err) < 0)
        return -1;
    if (text.p[0] == '[' && !count_of(target, ':'))
        return err_set(err, ERR_INVALID, "brackets are around an IPv6 address");
    if (!port.n && text.n > 4 && str_is(str_from(text, text.n - 4), RULE_RAW))
        return err_set(err, ERR_INVALID,

                       "\"" RULE_RAW "\" follows a port, as in db.example:5432/raw");
    if (count_of(target, ':') || count_of(target, '/'))
        return parse_addr(target, out, err);
    if (parse_name(target, out, err) < 0)
        return -1;
    if (out->host.kind == HOST_ADDR) {
        out->kind = RULE_ADDR;
        out->prefix = 32;
    }
    return 0;
}

static int parse_methods(struct str text, uint8_t *out, struct err *err)
{
    uint8_t all = 0;

    if (str_is(text, "*"))
        return 0;
    for (bool more = true; more;) {
        size_t before = text.n;
        struct str name = str_cut(&text, ',');
        uint8_t bit = rule_method(name);

        more = name.n < before;
        if (bit == METHOD_OTHER || all & bit)
            return err_set(err, ERR_INVALID,
                           "methods are GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, each once");
        all |= bit;
    }
    *out = all;
    return 0;
}

static int parse_path(struct str text, struct str *out, struct err *err)
{
    if (text.n > RULE_PATH_MAX)
        return err_set(err, ERR_INVALID, "a path is at most %d bytes", RULE_PATH_MAX);
    if (path_odd(text) || memchr(text.p, '?', text.n))
        return err_set(err, ERR_INVALID,
                       "a path begins with / and can be read in one way only: no query, no empty "
                       "parts, no dots or slashes in escapes");
    *out = text;
    return 0;
}

int rule_parse(struct str text, struct rule *out, struct err *err)
{
    struct rule rule = { 0 };
    struct str rest = text, target, word;

    if (text.n == 0 || text.n > RULE_TEXT_MAX)
        return err_set(err, ERR_INVALID, "a rule is 1 to %d bytes", RULE_TEXT_MAX);
    if (count_of(text, ' ') > 2 || text.p[text.n - 1] == ' ')
        return err_set(err, ERR_INVALID, "a rule is HOST[:PORT] [METHODS [PATH]], one space each");
    target = str_cut(&rest, ' ');
    if (target.n == 0)
        return err_set(err, ERR_INVALID, "a rule begins with a host");
    if (parse_target(target, &rule, err) < 0)
        return -1;
    if (rest.n && rule.kind == RULE_ADDR)
        return err_set(err, ERR_INVALID, "a rule with an address has no methods and no path");
    if (rest.n && rule.raw)
        return err_set(err, ERR_INVALID, "a rule for raw bytes has no methods and no path");
    if (rest.n) {
        word = str_cut(&rest, ' ');
        if (parse_methods(word, &rule.methods, err) < 0)
            return -1;
        if (rest.n && parse_path(rest, &rule.path, err) < 0)
            return -1;
    }
    *out = rule;
    return 0;
}

/* Ranges of one class are never split by a prefix, so the two ends speak for what is between. */
int rule_reachable(const struct rule *rule, struct err *err)
{
    struct addr last = rule->host.addr;

    if (rule->kind != RULE_ADDR)
        return 0;
    for (unsigned i = rule->prefix; i < (last.family == 4 ? 32 : 128); i++)
        last.bytes[i / 8] |= (uint8_t)(0x80 >> i % 8);
    enum addr_class class = addr_class(&rule->host.addr);
    if (!addr_never(class) || addr_class(&last) != class)
        return 0;
    return err_set(err, ERR_INVALID, "%s addresses are never reached, whatever a rule says",
                   addr_class_name(class));
}

static void put_methods(const struct rule *rule, struct buf *out)
{
    char sep = ' ';

    if (rule->methods == 0)
        buf_puts(out, " *");
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        if (!(rule->methods & methods[i].bit))
            continue;
        buf_putc(out, sep);
        buf_str(out, methods[i].name);
        sep = ',';
    }
}

void rule_text(const struct rule *rule, struct buf *out)
{
    static const char *const before[] = { "", "*.", ".", "" };
    bool v6 = rule->kind == RULE_ADDR && rule->host.addr.family == 6;
    bool brackets = v6 && rule->ports != RULE_PORTS_UNSAID;

    buf_puts(out, brackets ? "[" : before[rule->kind]);
    buf_str(out, host_str(&rule->host));
    if (rule->kind == RULE_ADDR && rule->prefix < (v6 ? 128 : 32))
        buf_printf(out, "/%u", rule->prefix);
    if (brackets)
        buf_putc(out, ']');
    if (rule->ports == RULE_PORTS_ONE)
        buf_printf(out, ":%u", rule->port);
    else if (rule->ports == RULE_PORTS_ANY)
        buf_puts(out, ":*");
    if (rule->raw)
        buf_puts(out, RULE_RAW);
    if (rule->methods || rule->path.n)
        put_methods(rule, out);
    if (rule->path.n) {
        buf_putc(out, ' ');
        buf_str(out, rule->path);
    }
}
