/*
 * TLS is told by its first byte, SSH by its identification string (RFC 4253 section 4.2), HTTP by a
 * whole first line that ends in a version (RFC 9112 section 3), because lines of other protocols
 * ("EHLO name", "NICK name") begin like it. Nothing is skipped: a server may skip an empty line
 * before a request, so a tunnel that begins with one is of no known protocol.
 */
#include "egress/opening.h"

#include <string.h>

#define HANDSHAKE 22
#define METHOD_MAX 32
#define SSH_LINE_MAX 255

static bool is_token(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static enum opening version(struct str line)
{
    static const struct str http1 = STR_INIT(" HTTP/1."), http2 = STR_INIT(" HTTP/2.");

    if (line.n && line.p[line.n - 1] == '\r')
        line.n--;
    if (line.n < http1.n + 1)
        return OPENING_OTHER;
    struct str end = { line.p + line.n - http1.n - 1, http1.n };
    return str_eq(end, http1) ? OPENING_HTTP : str_eq(end, http2) ? OPENING_HTTP2 : OPENING_OTHER;
}

/* "SSH-2.0-x / HTTP/1.1" has a method that is an identification string: it is a request. */
static enum opening ssh(struct str data)
{
    static const struct str begins[] = { STR_INIT("SSH-2.0-"), STR_INIT("SSH-1.99-") };

    for (size_t i = 0; i < ARRAY_LEN(begins); i++) {
        size_t n = MIN(data.n, begins[i].n);
        const char *end = memchr(data.p, '\n', MIN(data.n, SSH_LINE_MAX));

        if (memcmp(data.p, begins[i].p, n) != 0)
            continue;
        if (!end)
            return data.n < SSH_LINE_MAX ? OPENING_MORE : OPENING_OTHER;
        return version((struct str){ data.p, (size_t)(end - data.p) }) == OPENING_OTHER
                   ? OPENING_SSH
                   : OPENING_OTHER;
    }
    return OPENING_OTHER;
}

static enum opening http(struct str data)
{
    size_t method = 0;

    while (method < data.n && method < METHOD_MAX && is_token(data.p[method]))
        method++;
    if (method == data.n && method < METHOD_MAX)
        return OPENING_MORE;
    if (method == 0 || method == data.n || data.p[method] != ' ')
        return OPENING_OTHER;
    const char *end = memchr(data.p, '\n', data.n);
    if (end)
        return version((struct str){ data.p, (size_t)(end - data.p) });
    return data.n < OPENING_LINE_MAX ? OPENING_MORE : OPENING_OTHER;
}

enum opening opening_of(struct str data)
{
    if (data.n == 0)
        return OPENING_MORE;
    if (data.p[0] == HANDSHAKE)
        return OPENING_TLS;
    enum opening found = ssh(data);
    return found == OPENING_OTHER ? http(data) : found;
}
