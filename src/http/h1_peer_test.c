/*
 * Our reader of heads and chunks beside an independent one (Debian's http-parser, linked by this
 * test only). Whatever we take, it takes too and understands the same; what it takes and we refuse
 * is listed, so that strictness stays a decision.
 */
#include <http_parser.h>
#include <stdio.h>

#include "base/test.h"
#include "http/h1.h"

struct peer {
    http_parser parser;
    struct buf url, names, values, body;
    bool value_open; /* the last callback was a value: a name begins the next field */
    bool head_done, done;
};

static void peer_free(struct peer *peer)
{
    buf_free(&peer->url);
    buf_free(&peer->names);
    buf_free(&peer->values);
    buf_free(&peer->body);
}
#define autopeer auto_with(peer_free)

static int peer_url(http_parser *parser, const char *at, size_t len)
{
    buf_append(&((struct peer *)parser->data)->url, at, len);
    return 0;
}

static int peer_name(http_parser *parser, const char *at, size_t len)
{
    struct peer *peer = parser->data;

    if (peer->value_open) {
        buf_putc(&peer->names, '\n');
        buf_putc(&peer->values, '\n');
    }
    peer->value_open = false;
    for (size_t i = 0; i < len; i++)
        buf_putc(&peer->names, (char)(at[i] >= 'A' && at[i] <= 'Z' ? at[i] | 0x20 : at[i]));
    return 0;
}

static int peer_value(http_parser *parser, const char *at, size_t len)
{
    struct peer *peer = parser->data;

    peer->value_open = true;
    buf_append(&peer->values, at, len);
    return 0;
}

static int peer_head(http_parser *parser)
{
    ((struct peer *)parser->data)->head_done = true;
    return 0;
}

static int peer_body(http_parser *parser, const char *at, size_t len)
{
    buf_append(&((struct peer *)parser->data)->body, at, len);
    return 0;
}

static int peer_done(http_parser *parser)
{
    ((struct peer *)parser->data)->done = true;
    http_parser_pause(parser, 1); /* one message only */
    return 0;
}

static bool peer_takes(struct peer *peer, struct str data)
{
    static const http_parser_settings settings = {
        .on_url = peer_url,
        .on_header_field = peer_name,
        .on_header_value = peer_value,
        .on_headers_complete = peer_head,
        .on_body = peer_body,
        .on_message_complete = peer_done,
    };

    http_parser_init(&peer->parser, HTTP_REQUEST);
    peer->parser.data = peer;
    http_parser_execute(&peer->parser, &settings, data.p, data.n);
    enum http_errno error = HTTP_PARSER_ERRNO(&peer->parser);
    return peer->head_done && (error == HPE_OK || error == HPE_PAUSED);
}

/* Trailing blanks are part of a value there, not here. */
static void trim_lines(struct buf *text)
{
    struct buf out = { 0 };
    struct str rest = buf_view(text);

    while (rest.n) {
        bool more = memchr(rest.p, '\n', rest.n) != NULL;

        buf_str(&out, str_trim(str_cut(&rest, '\n')));
        if (more)
            buf_putc(&out, '\n');
    }
    buf_free(text);
    *text = out;
}

static void check_same(const struct h1_head *head, struct peer *peer, struct str data)
{
    autobuf struct buf names = { 0 }, values = { 0 };

    for (size_t i = 0; i < head->count; i++) {
        buf_str(&names, head->fields[i].name);
        buf_str(&values, head->fields[i].value);
        if (i + 1 < head->count) {
            buf_putc(&names, '\n');
            buf_putc(&values, '\n');
        }
    }
    trim_lines(&peer->values);
    bool same = str_eq(buf_view(&names), buf_view(&peer->names)) &&
                str_eq(buf_view(&values), buf_view(&peer->values)) &&
                peer->parser.http_major == 1 &&
                peer->parser.http_minor == (head->version == HTTP_1_1 ? 1u : 0u) &&
                str_eq(head->method, str_of(http_method_str(peer->parser.method)));
    bool chunked = peer->parser.flags & F_CHUNKED;
    uint64_t length = peer->parser.flags & F_CONTENTLENGTH ? peer->parser.content_length : 0;
    int64_t body_size = peer->done ? 0 : chunked ? -1 : (int64_t)length;
    same = same && body_size == head->body_size;
    if (!same)
        test_fail(__FILE__, __LINE__, "read differently: %.*s", STR_FMT(data));
}

/* True: we take it (and so does the peer). */
static bool compare(struct str data, bool *peer_took)
{
    autoarena struct arena arena = { 0 };
    autopeer struct peer peer = { 0 };
    struct h1_resume resume = { 0 };
    const struct h1_bad *bad = NULL;
    static struct h1_head head;

    int size = h1_head_scan(data.p, data.n, &resume, &head, &bad);
    bool ours = size > 0 && h1_head_finish(&arena, data.p, (size_t)size, &head, &bad) == 0;
    if (ours)
        data.n = (size_t)size; /* bodies are compared below */
    *peer_took = peer_takes(&peer, data);
    if (!ours)
        return false;
    /*
     * It knows a list of methods; to us any token is one, and the router knows the list. And it
     * takes "transfer-encodingx" for the coding.
     */
    enum http_errno error = HTTP_PARSER_ERRNO(&peer.parser);
    if (!*peer_took && error == HPE_INVALID_METHOD)
        return false;
    for (size_t i = 0; i < head.count; i++)
        if (head.fields[i].name.n > 17 && str_starts(head.fields[i].name, STR("transfer-encoding")))
            return false;
    if (!*peer_took)
        test_fail(__FILE__, __LINE__, "we take what http-parser refuses (%s): %.*s",
                  http_errno_description(HTTP_PARSER_ERRNO(&peer.parser)), STR_FMT(data));
    check_same(&head, &peer, data);
    return true;
}

/* clang-format off */
static const char *const seeds[] = {
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /a/b?c=d HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n",
    "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nhello",
    "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HEAD http://b:1/ HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: [::1]\r\nConnection: close, x\r\nX-Y:\t z \r\n\r\n",
    "PUT /%41 HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 0\r\n\r\n",
    "DELETE /a HTTP/1.1\r\nHost: a\r\nCookie: a=b; c=d\r\nX-Empty:\r\n\r\n",
};

/* What http-parser takes and we refuse, on purpose. */
static const char *const stricter[] = {
    "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    "GET / HTTP/1.1\nHost: a\n\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
};
/* clang-format on */

TEST(seeds_are_read_alike)
{
    bool took;

    for (size_t i = 0; i < ARRAY_LEN(seeds); i++)
        CHECK(compare(str_of(seeds[i]), &took));
}

TEST(we_are_stricter_where_we_mean_to_be)
{
    bool took;

    for (size_t i = 0; i < ARRAY_LEN(stricter); i++) {
        CHECK(!compare(str_of(stricter[i]), &took));
        if (!took)
            test_fail(__FILE__, __LINE__, "http-parser refuses it too: %s", stricter[i]);
    }
}

TEST(damaged_requests_are_read_alike)
{
    int taken = 0;

    for (int round = 0; round < 50000; round++) {
        const char *seed = seeds[test_rand(ARRAY_LEN(seeds))];
        const char *other = seeds[test_rand(ARRAY_LEN(seeds))];
        autobuf struct buf text = { 0 };
        bool took;

        buf_puts(&text, seed);
        for (uint32_t i = 1 + test_rand(3); i > 0; i--) {
            size_t at = test_rand((uint32_t)text.len);

            switch (test_rand(3)) {
            case 0:
                text.data[at] = "\r\n \t:\0\x7f\xff"
                                "A/?#*,0"[test_rand(15)];
                break;
            case 1:
                text.data[at] = (char)test_rand(256);
                break;
            default: /* a piece of another request put over it */
                memcpy(text.data + at, other, MIN(text.len - at, strlen(other) / 2));
            }
        }
        taken += compare(buf_view(&text), &took);
    }
    CHECK(taken > 1000); /* or nothing was compared */
}

/* ---- chunks ---- */

static void compare_chunks(struct str body)
{
    static const char head[] = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    autobuf struct buf request = { 0 }, got = { 0 };
    autopeer struct peer peer = { 0 };
    struct h1_chunks chunks = { 0 };
    const struct h1_bad *bad = NULL;
    bool done = false;
    size_t at = 0;

    while (!done) {
        struct str piece;
        int64_t taken = h1_chunks_next(&chunks, body.p + at, body.n - at, &piece, &done, &bad);

        if (taken < 0 || (taken == 0 && !done))
            return; /* refused or cut off: nothing to hold against */
        buf_str(&got, piece);
        at += (size_t)taken;
    }
    buf_puts(&request, head);
    buf_str(&request, body);
    bool took = peer_takes(&peer, buf_view(&request));
    if (!took || !peer.done || !str_eq(buf_view(&peer.body), buf_view(&got)))
        test_fail(__FILE__, __LINE__, "chunks read differently: %.*s", STR_FMT(body));
}

TEST(damaged_chunks_are_read_alike)
{
    static const char seed[] = "5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nTrailer: x\r\n\r\nGET";

    for (int round = 0; round < 50000; round++) {
        char text[sizeof(seed)];

        memcpy(text, seed, sizeof(seed));
        for (uint32_t i = test_rand(4); i > 0; i--)
            text[test_rand(sizeof(seed) - 1)] = "\r\n 012af;:\0x"[test_rand(12)];
        compare_chunks((struct str){ text, sizeof(seed) - 1 });
    }
}
