/* See url.h. Everything is one pass over the bytes; nothing is normalised, only accepted or not. */
#include "http/url.h"

#include <arpa/inet.h>

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that begins at text[*at], which moves past it; -1 if it is a bad escape. */
static int next_byte(struct str text, size_t *at)
{
    char c = text.p[*at];

    if (c != '%') {
        ++*at;
        return (unsigned char)c;
    }
    if (text.n - *at < 3)
        return -1;
    int high = hex_value(text.p[*at + 1]), low = hex_value(text.p[*at + 2]);
    if (high < 0 || low < 0)
        return -1;
    *at += 3;
    return high * 16 + low;
}

static bool needs_decoding(struct str text, bool plus)
{
    return text.n && (memchr(text.p, '%', text.n) || (plus && memchr(text.p, '+', text.n)));
}

bool url_decode(struct arena *arena, struct str text, bool plus, struct str *out)
{
    size_t len = 0;

    if (str_has_nul(text))
        return false;
    if (!needs_decoding(text, plus)) {
        *out = text;
        return true;
    }
    char *copy = arena_alloc(arena, text.n + 1);
    for (size_t at = 0; at < text.n;) {
        bool space = plus && text.p[at] == '+';
        int c = next_byte(text, &at);

        if (c <= 0)
            return false;
        copy[len++] = space ? ' ' : (char)c;
    }
    *out = (struct str){ copy, len };
    return true;
}

/* Neither empty nor a step. */
static bool is_name(size_t len, size_t dots)
{
    return len > 0 && !(dots == len && len <= 2);
}

/*
 * Is the segment, decoded, a name that can only mean itself? With `slashes` also such names with
 * %2F between them.
 */
static bool segment_ok(struct str segment, bool slashes)
{
    size_t len = 0, dots = 0;

    for (size_t at = 0; at < segment.n;) {
        int c = next_byte(segment, &at);

        if (c <= 0 || c == '\\' || (c == '/' && !(slashes && is_name(len, dots))))
            return false;
        len = c == '/' ? 0 : len + 1;
        dots = c == '/' ? 0 : dots + (c == '.');
    }
    return is_name(len, dots);
}

static bool path_ok(struct str path, bool slashes)
{
    if (!path.n || path.p[0] != '/')
        return false;
    for (struct str rest = str_from(path, 1); rest.n;)
        if (!segment_ok(str_cut(&rest, '/'), slashes))
            return false;
    return true;
}

bool url_path_ok(struct str path)
{
    return path_ok(path, false);
}

bool url_path_ok_slashes(struct str path)
{
    return path_ok(path, true);
}

bool url_query_next(struct str *rest, struct str *key, struct str *value)
{
    while (rest->n) {
        struct str piece = str_cut(rest, '&');

        if (!piece.n)
            continue;
        *key = str_cut(&piece, '=');
        *value = piece;
        return true;
    }
    return false;
}

static bool port_ok(struct str port)
{
    unsigned number = 0;

    if (port.n < 1 || port.n > 5)
        return false;
    for (size_t i = 0; i < port.n; i++) {
        if (port.p[i] < '0' || port.p[i] > '9')
            return false;
        number = number * 10 + (unsigned)(port.p[i] - '0');
    }
    return number <= 65535;
}

static bool v6_ok(struct str text)
{
    char copy[INET6_ADDRSTRLEN];
    unsigned char addr[16];

    if (text.n >= sizeof(copy) || str_has_nul(text))
        return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = 0;
    return inet_pton(AF_INET6, copy, addr) == 1;
}

/* A name so far; every request has a Host, so it is one pass without calls. */
struct name {
    unsigned label;          /* bytes in this label */
    unsigned labels;         /* finished */
    unsigned number;         /* value of this label, if it is digits */
    bool digits, all_octets; /* this label is digits; every finished one is 0 to 255 */
    char last;
};

static bool end_label(struct name *name)
{
    if (name->label < 1 || name->label > 63 || name->last == '-')
        return false;
    if (!name->digits || name->label > 3 || name->number > 255)
        name->all_octets = false;
    name->labels++;
    return true;
}

/* Letters, digits and inner hyphens; a number at the end makes it an IPv4 address or nothing. */
static bool name_ok(const char *p, const char *end)
{
    struct name name = { .digits = true, .all_octets = true };

    if (end - p > 253)
        return false;
    for (; p < end; p++) {
        char c = *p;

        if (c >= '0' && c <= '9') {
            if (name.digits && name.label == 1 && name.last == '0')
                name.all_octets = false; /* 01 is octal to some */
            name.number = name.label < 3 ? name.number * 10 + (unsigned)(c - '0') : 256;
        } else if (c == '.') {
            if (!end_label(&name))
                return false;
            name.label = name.number = 0;
            name.digits = true;
            continue;
        } else if (((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c == '-' && name.label)) {
            name.digits = false;
        } else {
            return false;
        }
        name.label++;
        name.last = c;
    }
    return end_label(&name) && (!name.digits || (name.all_octets && name.labels == 4));
}

bool url_host_ok(struct str host)
{
    if (!host.n)
        return false;
    if (host.p[0] == '[') {
        const char *close = memchr(host.p, ']', host.n);

        if (!close)
            return false;
        size_t end = (size_t)(close - host.p);
        struct str after = str_from(host, end + 1);
        return v6_ok((struct str){ host.p + 1, end - 1 }) &&
               (!after.n || (after.p[0] == ':' && port_ok(str_from(after, 1))));
    }
    const char *end = host.p + host.n, *colon = end;
    for (size_t back = 1; back <= 6 && back <= host.n; back++) /* a port has at most 5 digits */
        if (end[-(ptrdiff_t)back] == ':')
            colon = end - back;
    return name_ok(host.p, colon) &&
           (colon == end || port_ok((struct str){ colon + 1, (size_t)(end - colon - 1) }));
}
