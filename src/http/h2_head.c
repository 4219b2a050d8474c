/*
 * From header fields to a request, held to the standard of HTTP/1 (h1_head.c): the same characters,
 * the same limits, the same answers. nghttp2 has already refused what RFC 9113 section 8 forbids:
 * upper-case names, control bytes in values, misplaced, repeated or unknown pseudo-headers,
 * connection-specific fields, TE other than trailers, lengths that repeat or do not match. Here is
 * what it lets pass.
 */
#include "base/limits.h"
#include "http/h1.h"
#include "http/h2_own.h"
#include "http/url.h"

#define METHOD_MAX 32
#define FIELD_OVERHEAD 32 /* RFC 9113 section 6.5.2 */

/* clang-format off */
static const struct h2_bad
    large_head   = { 431, ERR_HEADERS, "request head too large" },
    many_fields  = { 431, ERR_HEADERS, "too many header fields" },
    bad_method   = { 400, ERR_INVALID, "malformed method" },
    bad_connect  = { 501, ERR_UNSUPPORTED, "CONNECT is for WebSocket only" },
    bad_target   = { 400, ERR_INVALID, "malformed request target" },
    long_target  = { 414, ERR_HEADERS, "request target too long" },
    bad_scheme   = { 400, ERR_INVALID, "scheme is neither http nor https" },
    bad_host     = { 400, ERR_INVALID, "malformed Host" },
    other_host   = { 400, ERR_INVALID, "Host differs from :authority" },
    bad_length   = { 400, ERR_INVALID, "malformed Content-Length" },
    big_length   = { 413, ERR_LIMIT, "body too large" },
    bad_expect   = { 417, ERR_EXPECTATION, "Expect other than 100-continue" };
/* clang-format on */

struct h2_stream *h2_stream_new(struct h2 *h2, int32_t id)
{
    struct h2_stream *stream = xnew(struct h2_stream);

    http_stream_init(&stream->base, &h2_stream_ops, h2->conn);
    stream->base.req.version = HTTP_2;
    stream->h2 = h2;
    stream->id = id;
    list_append(&h2->streams, &stream->link);
    h2->stream_count++;
    return stream;
}

/* ---- fields as they come ---- */

static void add_header(struct h2_stream *stream, struct str name, struct str value)
{
    struct http_req *req = &stream->base.req;

    if (req->header_count == stream->header_room) {
        size_t room = stream->header_room ? stream->header_room * 2 : 16;
        struct http_header *more = arena_alloc(&req->arena, room * sizeof(*more));

        if (req->header_count)
            memcpy(more, stream->headers, req->header_count * sizeof(*more));
        stream->headers = more;
        stream->header_room = room;
        req->headers = more;
    }
    stream->headers[req->header_count++] = (struct http_header){ name, value };
}

static void take_pseudo(struct h2_stream *stream, struct str name, struct str value)
{
    struct http_req *req = &stream->base.req;

    if (str_is(name, ":method")) {
        req->method = value;
    } else if (str_is(name, ":path")) {
        req->target = value;
    } else if (str_is(name, ":authority")) {
        stream->authority = value;
        stream->has_authority = true;
    } else if (str_is(name, ":scheme")) {
        if (!str_eq_nocase(value, STR("http")) && !str_eq_nocase(value, STR("https")))
            stream->bad = &bad_scheme;
    } else if (str_is(name, ":protocol")) {
        stream->protocol = value;
        add_header(stream, name, value);
    }
}

void h2_head_field(struct h2_stream *stream, struct str name, struct str value)
{
    struct arena *arena = &stream->base.req.arena;

    if (stream->bad)
        return; /* nothing more is kept of it */
    stream->head_size += name.n + value.n + FIELD_OVERHEAD;
    if (stream->head_size > HTTP_DECODED_HEAD_MAX)
        stream->bad = &large_head;
    else if (name.n && name.p[0] == ':')
        take_pseudo(stream, arena_str(arena, name), arena_str(arena, value));
    else if (stream->base.req.header_count == HTTP_FIELDS_MAX)
        stream->bad = &many_fields;
    else
        add_header(stream, arena_str(arena, name), arena_str(arena, value));
}

/* ---- what they mean together ---- */

static const struct h2_bad *check_target(struct http_req *req)
{
    struct str target = req->target;

    if (target.n > HTTP_LINE_MAX)
        return &long_target;
    for (size_t i = 0; i < target.n; i++)
        if (target.p[i] <= ' ' || target.p[i] == '#' || target.p[i] == 0x7f)
            return &bad_target; /* bytes from 0x80 on are negative, so refused too */
    if (str_is(target, "*")) {
        req->path = target;
        return str_is(req->method, "OPTIONS") ? NULL : &bad_target;
    }
    if (!target.n || target.p[0] != '/')
        return &bad_target;
    req->query = target;
    req->path = str_cut(&req->query, '?');
    return NULL;
}

static const struct h2_bad *check_method(const struct h2_stream *stream)
{
    struct str method = stream->base.req.method;

    if (method.n > METHOD_MAX || !h1_is_token(method))
        return &bad_method;
    if (str_is(method, "CONNECT") && !stream->protocol.n)
        return &bad_connect;
    return NULL;
}

/* nghttp2 sees to it that there is at least one of the two, and no second Host. */
static const struct h2_bad *check_host(struct h2_stream *stream)
{
    struct http_req *req = &stream->base.req;
    struct str host = http_header(req, "host");

    req->host = stream->has_authority ? stream->authority : host;
    if (host.p && !str_eq_nocase(host, req->host))
        return &other_host;
    return url_host_ok(req->host) ? NULL : &bad_host;
}

static const struct h2_bad *check_body(struct h2_stream *stream, bool no_body)
{
    struct http_req *req = &stream->base.req;
    struct str length = http_header(req, "content-length");
    struct str expect = http_header(req, "expect");
    uint64_t size;

    req->body_size = no_body ? 0 : -1;
    if (length.p && (length.n > 18 || !str_to_u64(length, &size)))
        return &bad_length;
    if (length.p && size > HTTP_BODY_STREAM_MAX)
        return &big_length;
    if (length.p && !no_body)
        req->body_size = (int64_t)size;
    if (expect.p && !str_eq_nocase(expect, STR("100-continue")))
        return &bad_expect;
    stream->expect = expect.p && !no_body;
    return NULL;
}

/* A cookie may come in crumbs, one field each (RFC 9113 section 8.2.3): the application sees one.
 */
static void join_cookies(struct h2_stream *stream)
{
    struct http_req *req = &stream->base.req;
    struct http_header *first = NULL;
    size_t total = 0, kept = 0, crumbs = 0;

    for (size_t i = 0; i < req->header_count; i++)
        if (str_is(stream->headers[i].name, "cookie")) {
            total += stream->headers[i].value.n + 2;
            crumbs++;
        }
    if (crumbs < 2)
        return;
    char *joined = arena_alloc(&req->arena, total);
    size_t at = 0;
    for (size_t i = 0; i < req->header_count; i++) {
        struct http_header header = stream->headers[i];

        if (!str_is(header.name, "cookie")) {
            stream->headers[kept++] = header;
            continue;
        }
        if (!first) {
            first = &stream->headers[kept];
            stream->headers[kept++] = header;
        } else {
            joined[at++] = ';';
            joined[at++] = ' ';
        }
        if (header.value.n)
            memcpy(joined + at, header.value.p, header.value.n);
        at += header.value.n;
    }
    first->value = (struct str){ joined, at };
    req->header_count = kept;
}

void h2_head_done(struct h2_stream *stream, bool no_body)
{
    const struct h2_bad *bad = stream->bad;

    if (!bad)
        bad = check_method(stream);
    if (!bad)
        bad = check_target(&stream->base.req);
    if (!bad)
        bad = check_host(stream);
    if (!bad)
        bad = check_body(stream, no_body);
    if (bad) {
        struct err err = { 0 };

        err_set(&err, bad->code, "%s", bad->text);
        http_stream_refuse_as(&stream->base, bad->status, &err);
        return;
    }
    join_cookies(stream);
    if (!http_stream_request(&stream->base))
        return; /* answered at once, usually */
}
