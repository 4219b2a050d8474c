/*
 * Reply heads are read as strictly as the server reads requests: exact line ends, no folding, one
 * way to say how long the body is. A reply that could be read in two ways is refused.
 */
#include "http/client_head.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "base/mem.h"

/* ---- targets ---- */

static int target_bad(const char *text, struct err *err)
{
    return err_set(err, ERR_INVALID,
                   "address '%s' is not http://HOST:PORT, https://HOST:PORT or unix:/PATH", text);
}

static bool host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

/* Splits HOST[:PORT]; the name loses the brackets of IPv6. */
static bool split(struct str rest, struct str *name, struct str *port, bool *six)
{
    const char *end;

    *six = rest.n && rest.p[0] == '[';
    if (*six) {
        end = memchr(rest.p, ']', rest.n);
        if (!end)
            return false;
        *name = (struct str){ rest.p + 1, (size_t)(end - rest.p) - 1 };
        rest = str_from(rest, name->n + 2);
        if (rest.n && rest.p[0] != ':')
            return false;
        *port = rest.n ? str_from(rest, 1) : STR_NONE;
    } else {
        end = memchr(rest.p, ':', rest.n);
        *name = str_cut(&rest, ':');
        *port = rest;
        if (!end)
            *port = STR_NONE;
    }
    for (size_t i = 0; i < name->n; i++)
        if (!host_char(name->p[i]) && !(*six && name->p[i] == ':'))
            return false;
    return name->n > 0 && name->n < 256;
}

/* A literal of 127/8, ::1 or localhost; "127.example.org" is somebody else's name. */
static bool loopback(const char *name, bool six)
{
    struct in_addr four;

    if (six || strcmp(name, "localhost") == 0)
        return !six || strcmp(name, "::1") == 0;
    return inet_pton(AF_INET, name, &four) == 1 && ntohl(four.s_addr) >> 24 == 127;
}

int client_target_parse(const char *text, struct client_target *out, struct err *err)
{
    struct client_target found = { 0 };
    struct str rest = str_of(text), name, port;
    uint64_t number;
    bool six;

    if (str_starts(rest, STR("unix:/"))) {
        if (rest.n >= sizeof(found.connect))
            return target_bad(text, err);
        memcpy(found.connect, rest.p, rest.n);
        memcpy(found.host, "localhost", 10);
        found.local = true;
        *out = found;
        return 0;
    }
    found.tls = str_starts(rest, STR("https://"));
    if (!found.tls && !str_starts(rest, STR("http://")))
        return target_bad(text, err);
    rest = str_from(rest, found.tls ? 8 : 7);
    if (rest.n && rest.p[rest.n - 1] == '/')
        rest.n--;
    if (!rest.n || !split(rest, &name, &port, &six))
        return target_bad(text, err);
    number = found.tls ? 443 : 80;
    if (port.p && (!str_to_u64(port, &number) || number == 0 || number > 65535))
        return target_bad(text, err);
    memcpy(found.name, name.p, name.n);
    found.local = loopback(found.name, six);
    snprintf(found.connect, sizeof(found.connect), six ? "[%s]:%u" : "%s:%u", found.name,
             (unsigned)number);
    /* As browsers do, the port stands in Host unless it is the scheme's own. */
    bool usual = number == (found.tls ? 443 : 80);
    snprintf(found.host, sizeof(found.host), "%.*s",
             (int)(usual ? strlen(found.connect) - (found.tls ? 4 : 3) : strlen(found.connect)),
             found.connect);
    *out = found;
    return 0;
}

/* ---- requests ---- */

/* Visible ASCII and inner blanks only: a token from the environment may hold anything. */
static bool value_fits(const char *value, bool blanks)
{
    for (const char *p = value; *p; p++)
        if (*p < 0x20 || *p > 0x7e || (*p == ' ' && !blanks))
            return false;
    return true;
}

int client_request_put(struct buf *out, const struct client_target *target,
                       const struct client_request *request, struct err *err)
{
    if (request->path[0] != '/' || !value_fits(request->path, false))
        return err_set(err, ERR_INVALID, "the request path holds a byte that has no place there");
    if (request->token && (!request->token[0] || !value_fits(request->token, false)))
        return err_set(err, ERR_INVALID, "the token is empty or holds a blank or control byte");
    buf_printf(out,
               "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: atoll/" ATOLL_VERSION
               "\r\nAccept: %s\r\nConnection: %s\r\n",
               request->method, request->path, target->host,
               request->accept ? request->accept : "application/json",
               request->upgrade ? "upgrade" : "close");
    if (request->upgrade)
        buf_printf(out, "Upgrade: %s\r\n", request->upgrade);
    if (request->token)
        buf_printf(out, "Authorization: Bearer %s\r\n", request->token);
    for (size_t i = 0; i < ARRAY_LEN(request->extra) && request->extra[i].name; i++) {
        if (!value_fits(request->extra[i].value, true))
            return err_set(err, ERR_INVALID, "%s holds a control byte", request->extra[i].name);
        buf_printf(out, "%s: %s\r\n", request->extra[i].name, request->extra[i].value);
    }
    if (request->stream)
        buf_printf(out, "Content-Type: %s\r\nTransfer-Encoding: chunked\r\n", request->stream);
    else if (request->body.p)
        buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                   request->body.n);
    else if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0)
        buf_puts(out, "Content-Length: 0\r\n");
    buf_puts(out, "\r\n");
    buf_str(out, request->body);
    return 0;
}

/* ---- replies ---- */

static int not_http(const char *why, struct err *err)
{
    return err_set(err, ERR_INTERNAL, "the server's reply is not proper HTTP: %s", why);
}

static bool token_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

struct seen {
    bool length, chunked;
};

/* Where the body ends. */
static int take_framing(struct http_header field, struct client_head *head, struct seen *seen,
                        struct err *err)
{
    uint64_t number;

    if (str_eq_nocase(field.name, STR("content-length"))) {
        if (seen->length || !str_to_u64(field.value, &number) || number > INT64_MAX)
            return not_http("Content-Length", err);
        seen->length = true;
        head->length = (int64_t)number;
    } else if (str_eq_nocase(field.name, STR("transfer-encoding"))) {
        if (seen->chunked || !str_eq_nocase(field.value, STR("chunked")))
            return not_http("Transfer-Encoding", err);
        seen->chunked = true;
    }
    return 0;
}

static int take_line(struct str line, struct http_header *field, struct err *err)
{
    size_t n = 0;

    while (n < line.n && token_char(line.p[n]))
        n++;
    if (n == 0 || n == line.n || line.p[n] != ':')
        return not_http("a field has no name", err);
    struct str value = str_trim(str_from(line, n + 1));
    for (size_t i = 0; i < value.n; i++)
        if ((unsigned char)value.p[i] < 0x20 && value.p[i] != '\t')
            return not_http("a field holds a control byte", err);
    *field = (struct http_header){ { line.p, n }, value };
    return 0;
}

/* Cuts one line off; false when it does not end in CR LF (the last needs no end). */
static bool next_line(struct str *rest, struct str *line)
{
    bool last = !rest->n || !memchr(rest->p, '\n', rest->n);

    *line = str_cut(rest, '\n');
    if (last)
        return !line->n || line->p[line->n - 1] != '\r';
    if (!line->n || line->p[line->n - 1] != '\r')
        return false;
    line->n--;
    return true;
}

static bool status_line(struct str line, int *status)
{
    if (line.n < 12 || (!str_starts(line, STR("HTTP/1.1 ")) && !str_starts(line, STR("HTTP/1.0 "))))
        return false;
    for (size_t i = 9; i < 12; i++)
        if (line.p[i] < '0' || line.p[i] > '9')
            return false;
    *status = (line.p[9] - '0') * 100 + (line.p[10] - '0') * 10 + (line.p[11] - '0');
    return *status >= 100 && *status <= 599 && (line.n == 12 || line.p[12] == ' ');
}

static void settle_framing(struct client_head *head, bool to_head, const struct seen *seen)
{
    if (to_head || head->status < 200 || head->status == 204 || head->status == 304)
        head->framing = FRAMED_NONE;
    else
        head->framing = seen->chunked  ? FRAMED_CHUNKED
                        : seen->length ? FRAMED_LENGTH
                                       : FRAMED_CLOSE;
}

int client_head_split(struct str head, bool to_head, struct client_head *out, struct err *err)
{
    struct seen seen = { 0 };
    struct str line;

    out->count = 0;
    out->length = -1;
    if (!next_line(&head, &line) || !status_line(line, &out->status))
        return not_http("status line", err);
    while (head.n) {
        if (!next_line(&head, &line))
            return not_http("line end", err);
        if (out->count == HTTP_FIELDS_MAX)
            return err_set(err, ERR_HEADERS, "the server's reply has more than %d fields",
                           HTTP_FIELDS_MAX);
        struct http_header *field = &out->fields[out->count++];
        if (take_line(line, field, err) < 0 || take_framing(*field, out, &seen, err) < 0)
            return -1;
    }
    if (seen.chunked && seen.length)
        return not_http("two lengths", err);
    settle_framing(out, to_head, &seen);
    return 0;
}

static void copy_value(char *out, size_t size, struct str value)
{
    if (value.n >= size)
        return;
    memcpy(out, value.p, value.n);
    out[value.n] = 0;
}

int client_head_parse(struct str head, bool to_head, struct client_reply *reply,
                      enum client_framing *framing, struct err *err)
{
    struct client_head split;
    uint64_t seconds;

    if (client_head_split(head, to_head, &split, err) < 0)
        return -1;
    struct client_reply found = { .status = split.status, .length = split.length };
    for (size_t i = 0; i < split.count; i++) {
        struct str name = split.fields[i].name, value = split.fields[i].value;

        if (str_eq_nocase(name, STR("content-encoding")))
            return not_http("compressed, though not asked for", err);
        if (str_eq_nocase(name, STR("content-type")))
            copy_value(found.content_type, sizeof(found.content_type), value);
        else if (str_eq_nocase(name, STR("x-request-id")))
            copy_value(found.request_id, sizeof(found.request_id), value);
        else if (str_eq_nocase(name, STR("atoll-position")))
            copy_value(found.position, sizeof(found.position), value);
        else if (str_eq_nocase(name, STR("retry-after")) && str_to_u64(value, &seconds))
            found.retry_after = (int)MIN(seconds, 86400u);
    }
    *framing = split.framing;
    if (split.framing == FRAMED_NONE)
        found.length = 0;
    *reply = found;
    return 0;
}
