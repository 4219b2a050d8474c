/*
 * Bytes as a head and then a chunked body. Two promises are checked: how the bytes are cut does
 * not change the answer, and whatever we take, http-parser (an independent implementation) takes
 * too, with the same framing. The first byte of the input chooses the cuts.
 */
#include "http/h1.h"

#include <http_parser.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond))                                                                               \
            abort();                                                                               \
    } while (0)

struct result {
    int size;
    const struct h1_bad *bad;
    struct h1_head head;
    struct arena arena;
};

static void read_head(struct result *out, struct str data, size_t step)
{
    struct h1_resume resume = { 0 };
    size_t len = 0;

    do {
        len = MIN(data.n, len + step);
        out->size = h1_head_scan(data.p, len, &resume, &out->head, &out->bad);
    } while (out->size == 0 && len < data.n);
    if (out->size > 0 &&
        h1_head_finish(&out->arena, data.p, (size_t)out->size, &out->head, &out->bad) < 0)
        out->size = -1;
}

static void check_head(const struct h1_head *head)
{
    must(head->method.n && head->path.n && head->count <= HTTP_FIELDS_MAX);
    must(head->version == HTTP_1_0 || head->host.n);
    for (size_t i = 0; i < head->count; i++) {
        must(h1_is_token(head->fields[i].name) && h1_is_value(head->fields[i].value));
        for (size_t at = 0; at < head->fields[i].name.n; at++)
            must(head->fields[i].name.p[at] < 'A' || head->fields[i].name.p[at] > 'Z');
    }
}

static void check_same(const struct result *a, const struct result *b)
{
    must(a->size == b->size);
    if (a->size < 0)
        must(a->bad == b->bad);
    if (a->size <= 0)
        return;
    must(a->head.count == b->head.count && a->head.body_size == b->head.body_size);
    must(a->head.keep_alive == b->head.keep_alive && str_eq(a->head.host, b->head.host));
    for (size_t i = 0; i < a->head.count; i++)
        must(str_eq(a->head.fields[i].name, b->head.fields[i].name) &&
             str_eq(a->head.fields[i].value, b->head.fields[i].value));
}

/* ---- the other reader ---- */

struct peer {
    http_parser parser;
    bool head, done;
    struct buf body;
};

static int on_head(http_parser *parser)
{
    ((struct peer *)parser->data)->head = true;
    return 0;
}

static int on_body(http_parser *parser, const char *at, size_t len)
{
    buf_append(&((struct peer *)parser->data)->body, at, len);
    return 0;
}

static int on_done(http_parser *parser)
{
    ((struct peer *)parser->data)->done = true;
    http_parser_pause(parser, 1);
    return 0;
}

static const http_parser_settings settings = {
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_message_complete = on_done,
};

static void check_peer(const struct h1_head *head, struct str data)
{
    struct peer peer = { 0 };

    http_parser_init(&peer.parser, HTTP_REQUEST);
    peer.parser.data = &peer;
    http_parser_execute(&peer.parser, &settings, data.p, data.n);
    enum http_errno error = HTTP_PARSER_ERRNO(&peer.parser);
    /*
     * Its known differences: it has a list of methods, stops counting at an upgrade, and takes
     * "transfer-encodingx" for the coding.
     */
    if (error == HPE_INVALID_METHOD || peer.parser.upgrade)
        return;
    for (size_t i = 0; i < head->count; i++)
        if (head->fields[i].name.n > 17 &&
            str_starts(head->fields[i].name, STR("transfer-encoding")))
            return;
    must(peer.head && (error == HPE_OK || error == HPE_PAUSED));
    bool chunked = peer.parser.flags & F_CHUNKED, counted = peer.parser.flags & F_CONTENTLENGTH;
    int64_t size = peer.done ? 0 : chunked ? -1 : counted ? (int64_t)peer.parser.content_length : 0;
    must(size == head->body_size);
}

/* ---- chunks ---- */

static int read_chunks(struct str data, size_t step, struct buf *body)
{
    struct h1_chunks chunks = { 0 };
    const struct h1_bad *bad;
    bool done = false;
    size_t at = 0, have = 0;

    while (!done) {
        struct str piece;

        if (at == have) {
            if (have == data.n)
                return 0;
            have = MIN(data.n, have + step);
        }
        int64_t taken = h1_chunks_next(&chunks, data.p + at, have - at, &piece, &done, &bad);
        if (taken < 0)
            return -bad->status;
        must((size_t)taken <= have - at && (taken || done));
        must(!piece.n || (piece.p >= data.p + at && piece.p + piece.n <= data.p + have));
        buf_str(body, piece);
        at += (size_t)taken;
    }
    return (int)at;
}

static void check_chunks(struct str data, size_t step)
{
    static const char head[] = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    autobuf struct buf whole = { 0 }, cut = { 0 };
    struct peer peer = { 0 };
    int size = read_chunks(data, data.n ? data.n : 1, &whole);

    must(read_chunks(data, step, &cut) == size);
    must(str_eq(buf_view(&whole), buf_view(&cut)));
    if (size <= 0)
        return;
    http_parser_init(&peer.parser, HTTP_REQUEST);
    peer.parser.data = &peer;
    must(http_parser_execute(&peer.parser, &settings, head, sizeof(head) - 1) == sizeof(head) - 1);
    http_parser_execute(&peer.parser, &settings, data.p, (size_t)size);
    /* It reads lengths and codings in trailers as if they were in the head; we drop trailers. */
    enum http_errno error = HTTP_PARSER_ERRNO(&peer.parser);
    bool trailers = error == HPE_INVALID_CONTENT_LENGTH || error == HPE_UNEXPECTED_CONTENT_LENGTH ||
                    error == HPE_INVALID_TRANSFER_ENCODING;
    must(trailers || peer.done);
    must(str_eq(buf_view(&peer.body), buf_view(&whole)));
    buf_free(&peer.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct result whole, cut; /* large */
    size_t step = size ? 1 + data[0] % 16u : 1;
    struct str text = { (const char *)data + 1, size ? size - 1 : 0 };

    if (!size)
        return 0;
    read_head(&whole, text, text.n ? text.n : 1);
    read_head(&cut, text, step);
    check_same(&whole, &cut);
    if (whole.size > 0) {
        check_head(&whole.head);
        check_peer(&whole.head, (struct str){ text.p, (size_t)whole.size });
    }
    check_chunks(whole.size > 0 ? str_from(text, (size_t)whole.size) : text, step);
    arena_free(&whole.arena);
    arena_free(&cut.arena);
    return 0;
}
