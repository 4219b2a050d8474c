/*
 * Each representation (br, gzip, plain) has an ETag of its own, the content's hash and a suffix,
 * because a strong validator names bytes, not content. A client may hold any of them, so
 * If-None-Match is compared with all three: the content is the same.
 *
 * A Range is served from the plain bytes only; who asks for one resumes a download of those.
 */
#include "http/assets.h"

#include <stdio.h>
#include <zlib.h>

#include "base/log.h"

#define EXTRA_HEADERS_MAX 16
#define PLAIN_MAX ((size_t)16 << 20)

enum form { FORM_PLAIN, FORM_GZIP, FORM_BR, FORMS };

static const struct {
    const char *coding, *suffix;
} forms[FORMS] = {
    [FORM_PLAIN] = { "identity", "" },
    [FORM_GZIP] = { "gzip", "-gz" },
    [FORM_BR] = { "br", "-br" },
};

const struct asset *asset_find(const struct asset *table, struct str path)
{
    for (; table && table->path; table++)
        if (str_is(path, table->path))
            return table;
    return NULL;
}

/* ---- negotiation ---- */

/* "q=0", "q=0.0", "q=0.000" and so on refuse; every other weight takes. */
static bool weight_refuses(struct str params)
{
    while (params.n) {
        struct str param = str_trim(str_cut(&params, ';'));

        if (param.n < 3 || (param.p[0] | 0x20) != 'q' || param.p[1] != '=' || param.p[2] != '0')
            continue;
        size_t at = 3;
        while (at < param.n && (param.p[at] == '.' || param.p[at] == '0'))
            at++;
        return at == param.n;
    }
    return false;
}

/* Which codings the client takes; plain unless it says otherwise. */
static void accepted(struct str header, bool takes[FORMS])
{
    bool named[FORMS] = { 0 };

    takes[FORM_PLAIN] = true;
    takes[FORM_GZIP] = takes[FORM_BR] = false;
    while (header.n) {
        struct str params = str_cut(&header, ',');
        struct str coding = str_trim(str_cut(&params, ';'));
        bool takes_it = !weight_refuses(params);
        bool any = str_is(coding, "*");

        for (int form = 0; form < FORMS; form++) {
            bool this_one = str_eq_nocase(coding, str_of(forms[form].coding));

            if (this_one || (any && !named[form]))
                takes[form] = takes_it;
            named[form] = named[form] || this_one;
        }
    }
}

static enum form choose(const struct asset *asset, const struct http_req *req)
{
    bool takes[FORMS];

    accepted(http_header(req, "accept-encoding"), takes);
    if (takes[FORM_BR] && asset->br.n)
        return FORM_BR;
    if (takes[FORM_GZIP] && asset->gz.n)
        return FORM_GZIP;
    return FORM_PLAIN; /* even if refused: better than 406 */
}

/* Does this entity tag, as a header has it, name one of our representations? */
static bool names_asset(struct str tag, const struct asset *asset, bool weak_counts)
{
    struct str hash = str_of(asset->etag);

    if (str_starts(tag, STR("W/"))) {
        if (!weak_counts)
            return false;
        tag = str_from(tag, 2);
    }
    if (tag.n < hash.n + 2 || tag.p[0] != '"' || tag.p[tag.n - 1] != '"')
        return false;
    struct str inner = { tag.p + 1, tag.n - 2 };
    if (!str_starts(inner, hash))
        return false;
    for (int form = 0; form < FORMS; form++)
        if (str_is(str_from(inner, hash.n), forms[form].suffix))
            return true;
    return false;
}

static bool not_modified(const struct asset *asset, const struct http_req *req)
{
    struct str list = http_header(req, "if-none-match");

    while (list.n) {
        struct str tag = str_trim(str_cut(&list, ','));

        if (str_is(tag, "*") || names_asset(tag, asset, true))
            return true;
    }
    return false;
}

/* ---- bytes ---- */

/* The plain bytes in the request's arena, from the gzip form. */
static bool inflate_plain(struct arena *arena, const struct asset *asset, struct str *out)
{
    z_stream stream = { 0 };

    if (asset->plain_size > PLAIN_MAX || inflateInit2(&stream, 15 + 16) != Z_OK)
        return false;
    char *plain = arena_alloc(arena, asset->plain_size + 1);
    stream.next_in = (Bytef *)(uintptr_t)asset->gz.p;
    stream.avail_in = (uInt)asset->gz.n;
    stream.next_out = (Bytef *)plain;
    stream.avail_out = (uInt)asset->plain_size + 1;
    bool whole = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.avail_out == 1;
    inflateEnd(&stream);
    *out = (struct str){ plain, asset->plain_size };
    return whole;
}

static bool bytes_of(struct http_req *req, const struct asset *asset, enum form form,
                     struct str *out)
{
    if (form != FORM_PLAIN) {
        *out = form == FORM_BR ? asset->br : asset->gz;
        return true;
    }
    *out = asset->plain;
    return asset->plain.n || !asset->plain_size || inflate_plain(&req->arena, asset, out);
}

/* ---- answering ---- */

struct answer {
    struct http_header headers[EXTRA_HEADERS_MAX + 8];
    size_t count;
};

static void add(struct answer *answer, const char *name, struct str value)
{
    answer->headers[answer->count++] = (struct http_header){ str_of(name), value };
}

static enum http_range wanted_range(const struct http_req *req, const struct asset *asset,
                                    uint64_t *first, uint64_t *last)
{
    struct str if_range = http_header(req, "if-range");

    if (!str_is(req->method, "GET"))
        return HTTP_RANGE_NONE;
    if (if_range.p && !names_asset(if_range, asset, false))
        return HTTP_RANGE_NONE;
    return http_range_parse(http_header(req, "range"), asset->plain_size, first, last);
}

void asset_serve(struct http_req *req, const struct asset *asset, const struct http_header *headers,
                 size_t count)
{
    struct answer answer = { .count = MIN(count, (size_t)EXTRA_HEADERS_MAX) };
    char tag[128], range_text[HTTP_RANGE_TEXT_SIZE];
    uint64_t first = 0, last = 0;
    struct str body = STR_NONE;

    for (size_t i = 0; i < answer.count; i++)
        answer.headers[i] = headers[i];
    if (!str_is(req->method, "GET") && !str_is(req->method, "HEAD")) {
        add(&answer, "allow", STR("GET, HEAD"));
        http_reply(req, 405, answer.headers, answer.count, STR_NONE);
        return;
    }
    enum http_range range = wanted_range(req, asset, &first, &last);
    enum form form = range == HTTP_RANGE_NONE ? choose(asset, req) : FORM_PLAIN;
    int len = snprintf(tag, sizeof(tag), "\"%s%s\"", asset->etag, forms[form].suffix);
    add(&answer, "etag", (struct str){ tag, MIN((size_t)len, sizeof(tag) - 1) });
    add(&answer, "vary", STR("accept-encoding"));
    add(&answer, "cache-control",
        asset->immutable ? STR("public, max-age=31536000, immutable") : STR("no-cache"));
    if (not_modified(asset, req)) {
        http_reply(req, 304, answer.headers, answer.count, STR_NONE);
        return;
    }
    add(&answer, "accept-ranges", STR("bytes"));
    if (range != HTTP_RANGE_NONE)
        add(&answer, "content-range",
            http_range_text(range_text, range, first, last, asset->plain_size));
    if (range == HTTP_RANGE_BAD) {
        http_reply(req, 416, answer.headers, answer.count, STR_NONE);
        return;
    }
    if (!bytes_of(req, asset, form, &body)) {
        log_error("an embedded asset is damaged", kv_str("path", asset->path));
        http_reply(req, 500, answer.headers, count, STR_NONE);
        return;
    }
    add(&answer, "content-type", str_of(asset->type));
    if (form != FORM_PLAIN)
        add(&answer, "content-encoding", str_of(forms[form].coding));
    if (range == HTTP_RANGE_PART)
        body = (struct str){ body.p + first, (size_t)(last - first + 1) };
    http_reply(req, range == HTTP_RANGE_PART ? 206 : 200, answer.headers, answer.count, body);
}
