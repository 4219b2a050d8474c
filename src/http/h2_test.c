/*
 * HTTP/2 between nghttp2's client role and our server, over a loopback socket, bytes in random
 * pieces: requests and answers of every shape against what was sent, flow control both ways, the
 * end of streams and connections. Limits and abuse are in h2_limit_test.c.
 */
#include "http/h2_peer.h"

#include "base/limits.h"

/* ---- the application ---- */

static struct app {
    unsigned requests, gone, drains;
    struct http_req *held; /* the last request to /hold */
    size_t held_got;
    bool held_last;
    char seen[4096]; /* head of the last request to /head */
} app;

static void echo_all(struct http_req *req, struct str body)
{
    http_reply(req, 200, NULL, 0, body);
}

static void echo_piece(struct http_req *req, struct str data, bool last)
{
    if (http_reply_write(req, data) == HTTP_FULL)
        http_read_pause(req);
    if (last)
        http_reply_end(req, NULL, 0);
}

static void resume(struct http_req *req)
{
    app.drains++;
    http_read_resume(req);
}

static void hold_piece(struct http_req *req, struct str data, bool last)
{
    CHECK(req == app.held);
    app.held_got += data.n;
    app.held_last |= last;
}

static void hold_gone(struct http_req *req)
{
    CHECK(req == app.held);
    app.held = NULL;
    app.gone++;
}

static void hold_drain(struct http_req *req)
{
    CHECK(req == app.held);
    app.drains++;
}

/* ---- /keep: requests that the test moves at random ---- */

static struct http_req *kept[1024];
static unsigned kept_count, kept_ended;

static void unkeep(struct http_req *req)
{
    for (unsigned i = 0; i < kept_count; i++)
        if (kept[i] == req) {
            kept[i] = kept[--kept_count];
            kept_ended++;
            return;
        }
    CHECK(!"a request ended twice");
}

/* What has been done with a kept request, in req->app. */
#define KEPT_BEGUN 1u
#define KEPT_READING 2u

static bool kept_did(const struct http_req *req, uintptr_t what)
{
    return (uintptr_t)req->app & what;
}

static void kept_note(struct http_req *req, uintptr_t what)
{
    req->app = (void *)((uintptr_t)req->app | what);
}

static void keep_end(struct http_req *req, struct str data)
{
    static const struct http_header trailer = { STR("x"), STR("y") };

    unkeep(req);
    if (kept_did(req, KEPT_BEGUN))
        http_reply_end(req, &trailer, test_rand(2));
    else
        http_reply(req, 200, NULL, 0, data);
}

static void keep_piece(struct http_req *req, struct str data, bool last)
{
    if (last && test_rand(2))
        keep_end(req, data);
    else if (test_rand(3) == 0)
        http_read_pause(req);
}

static void move_kept(struct http_req *req)
{
    static char data[300000];
    const struct str some = { data, test_rand(sizeof(data)) };

    switch (test_rand(6)) {
    case 0:
        if (!kept_did(req, KEPT_READING))
            http_read_stream(req, UINT64_MAX, keep_piece);
        kept_note(req, KEPT_READING);
        break;
    case 1:
        keep_end(req, some);
        break;
    case 2:
        if (!kept_did(req, KEPT_BEGUN))
            http_reply_begin(req, 200, NULL, 0);
        kept_note(req, KEPT_BEGUN);
        break;
    case 3:
        if (kept_did(req, KEPT_BEGUN))
            http_reply_write(req, some);
        break;
    case 4:
        http_read_resume(req);
        break;
    default:
        unkeep(req);
        http_cut(req, "random");
    }
}

static void show_head(struct http_req *req)
{
    struct buf text = { 0 };

    buf_printf(&text, "%.*s %.*s ? %.*s @ %.*s [%lld]\n", STR_FMT(req->method), STR_FMT(req->path),
               STR_FMT(req->query), STR_FMT(req->host), (long long)req->body_size);
    for (size_t i = 0; i < req->header_count; i++)
        buf_printf(&text, "%.*s: %.*s\n", STR_FMT(req->headers[i].name),
                   STR_FMT(req->headers[i].value));
    snprintf(app.seen, sizeof(app.seen), "%s", buf_cstr(&text));
    buf_free(&text);
    http_reply(req, 200, NULL, 0, STR("seen"));
}

static void on_request(void *ctx, struct http_req *req)
{
    static const struct http_header own[] = { { STR("X-Mixed-Case"), STR("Kept") },
                                              { STR("connection"), STR("close") },
                                              { STR("bad"), STR("split\r\nheader: x") } };
    static const struct http_header trailers[] = { { STR("X-Sum"), STR("42") },
                                                   { STR("bad"), STR("a\nb") } };

    (void)ctx;
    app.requests++;
    CHECK(req->version == HTTP_2);
    if (str_is(req->path, "/all")) {
        http_read_all(req, HTTP_BODY_DEFAULT_MAX, echo_all);
    } else if (str_is(req->path, "/stream")) {
        req->on_drain = resume;
        http_reply_begin(req, 200, NULL, 0);
        http_read_stream(req, UINT64_MAX, echo_piece);
    } else if (str_is(req->path, "/hold")) {
        app.held = req;
        app.held_got = 0;
        app.held_last = false;
        req->on_gone = hold_gone;
        req->on_drain = hold_drain;
    } else if (str_is(req->path, "/keep")) {
        CHECK(kept_count < ARRAY_LEN(kept));
        kept[kept_count++] = req;
        req->on_gone = unkeep;
    } else if (str_is(req->path, "/204")) {
        http_reply(req, 204, NULL, 0, STR_NONE);
    } else if (str_is(req->path, "/304")) {
        http_reply(req, 304, NULL, 0, STR("not shown"));
    } else if (str_is(req->path, "/trailers")) {
        http_reply_begin(req, 200, own, ARRAY_LEN(own));
        http_reply_write(req, STR("body"));
        http_reply_end(req, trailers, ARRAY_LEN(trailers));
    } else if (str_is(req->path, "/trailers-no-body")) {
        http_reply_begin(req, 200, NULL, 0);
        http_reply_end(req, trailers, 1);
    } else if (str_is(req->path, "/head")) {
        show_head(req);
    } else {
        http_reply(req, 200, NULL, 0, STR("hello"));
    }
}

static const struct http_app the_app = { .on_request = on_request };

static void start(const struct http_options *options)
{
    serve(&the_app, options);
    app = (struct app){ 0 };
}

static bool said(struct buf *where, const char *line)
{
    return strstr(buf_cstr(where), line) != NULL;
}

/* ---- requests and answers ---- */

static char *random_bytes(size_t len)
{
    char *data = xmalloc(len + 1);

    for (size_t i = 0; i < len; i++)
        data[i] = (char)test_rand(256);
    return data;
}

TEST(h2_echoes_every_body_however_it_arrives)
{
    start(NULL);
    for (int round = 0; round < 12; round++) {
        uint32_t piece = round % 3 == 0 ? 0 : round % 3 == 1 ? 1 + test_rand(40) : 5000;
        uint32_t large = round % 3 == 1 ? 3000 : 200000;
        struct peer *peer = peer_open(piece, NULL, 0);
        char *bodies[30];
        struct str sent[30];

        for (unsigned i = 0; i < 30; i++) {
            size_t len = test_rand(test_rand(8) ? 2000 : large);

            sent[i] = (struct str){ bodies[i] = random_bytes(len), len };
            peer_ask(peer, "POST", test_rand(2) ? "/all" : "/stream", &sent[i]);
            if (test_rand(3) == 0)
                step(0);
        }
        for (unsigned i = 0; i < 30; i++) {
            struct peer_stream *stream = &peer->streams[i];

            WAIT(stream->closed);
            CHECK_INT(stream->status, 200);
            CHECK_INT(stream->code, NGHTTP2_NO_ERROR);
            CHECK(str_eq(buf_view(&stream->body), sent[i]));
            free(bodies[i]);
        }
        CHECK(!peer->goaway);
        peer_shut(peer);
    }
}

TEST(h2_answers_have_the_headers_of_http1)
{
    start(NULL);
    struct peer *peer = peer_open(7, NULL, 0);
    struct peer_stream *stream = peer_ask(peer, "GET", "/hello", NULL);
    WAIT(stream->closed);
    CHECK(said(&stream->head, "date: "));
    CHECK(said(&stream->head, "content-length: 5\n"));
    CHECK(said(&stream->head, "x-content-type-options: nosniff\n"));
    CHECK(said(&stream->head, "cache-control: no-store\n"));
    CHECK(str_is(buf_view(&stream->body), "hello"));
    peer_shut(peer);
}

TEST(h2_answers_without_body)
{
    static const struct {
        const char *method, *path;
        int status;
        const char *length;
    } cases[] = {
        { "HEAD", "/hello", 200, "content-length: 5\n" },
        { "HEAD", "/stream", 200, NULL },
        { "GET", "/204", 204, NULL },
        { "GET", "/304", 304, "content-length: 9\n" },
    };

    start(NULL);
    struct peer *peer = peer_open(100, NULL, 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct peer_stream *stream = peer_ask(peer, cases[i].method, cases[i].path, NULL);

        WAIT(stream->closed);
        CHECK_INT(stream->status, cases[i].status);
        CHECK_INT(stream->code, NGHTTP2_NO_ERROR);
        CHECK_INT(stream->body.len, 0);
        CHECK(said(&stream->head, "content-length") == (cases[i].length != NULL));
        if (cases[i].length)
            CHECK(said(&stream->head, cases[i].length));
    }
    peer_shut(peer);
}

TEST(h2_sends_trailers)
{
    start(NULL);
    struct peer *peer = peer_open(11, NULL, 0);
    struct peer_stream *stream = peer_ask(peer, "GET", "/trailers", NULL);
    WAIT(stream->closed);
    CHECK(str_is(buf_view(&stream->body), "body"));
    CHECK(said(&stream->head, "x-mixed-case: Kept\n"));
    CHECK(!said(&stream->head, "connection"));
    CHECK(!said(&stream->head, "bad"));
    CHECK_STR(buf_cstr(&stream->trailers), "x-sum: 42\n");
    stream = peer_ask(peer, "GET", "/trailers-no-body", NULL);
    WAIT(stream->closed);
    CHECK_INT(stream->status, 200);
    CHECK_STR(buf_cstr(&stream->trailers), "x-sum: 42\n");
    peer_shut(peer);
}

TEST(h2_takes_trailers_of_requests)
{
    static const nghttp2_nv trailer = NV("x-check", "sum");
    const struct str body = STR("with trailers");

    start(NULL);
    for (int i = 0; i < 2; i++) {
        struct peer *peer = peer_open(9, NULL, 0);
        struct peer_stream *stream = &peer->streams[0];

        stream->trailer = &trailer;
        peer_ask(peer, "POST", i ? "/all" : "/stream", &body);
        WAIT(stream->closed);
        CHECK_INT(stream->status, 200);
        CHECK(str_eq(buf_view(&stream->body), body));
        peer_shut(peer);
    }
}

TEST(h2_joins_cookies_and_understands_the_head)
{
    static const nghttp2_nv fields[] = {
        NV(":method", "PUT"),
        NV(":scheme", "https"),
        NV(":path", "/head?a=1?b"),
        NV(":authority", "h:1"),
        NV("host", "H:1"),
        NV("cookie", "a=1"),
        NV("x", "y"),
        NV("cookie", "b=2"),
        NV("te", "trailers"),
        NV("cookie", "c=3"),
        NV("x-empty", ""),
    };

    start(NULL);
    struct peer *peer = peer_open(5, NULL, 0);
    struct peer_stream *stream = peer_send(peer, fields, ARRAY_LEN(fields), NULL);
    WAIT(stream->closed);
    CHECK_INT(stream->status, 200);
    CHECK_STR(app.seen, "PUT /head ? a=1?b @ h:1 [0]\n"
                        "host: H:1\ncookie: a=1; b=2; c=3\nx: y\nte: trailers\nx-empty: \n");
    peer_shut(peer);
}

TEST(h2_expect_continue)
{
    static const nghttp2_nv fields[] = {
        NV(":method", "POST"), NV(":scheme", "http"),        NV(":path", "/all"),
        NV("host", "h"),       NV("expect", "100-continue"),
    };
    const struct str body = STR("only when asked");

    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    struct peer_stream *stream = &peer->streams[0];
    stream->stall = true;
    peer_send(peer, fields, ARRAY_LEN(fields), &body);
    WAIT(stream->informed);
    CHECK_INT(stream->status, 0);
    stream->stall = false;
    peer_go_on(peer, stream);
    WAIT(stream->closed);
    CHECK_INT(stream->status, 200);
    peer_shut(peer);
}

TEST(h2_extended_connect_is_raw_both_ways)
{
    static const nghttp2_nv fields[] = {
        NV(":method", "CONNECT"), NV(":protocol", "websocket"), NV(":scheme", "http"),
        NV(":path", "/stream"),   NV(":authority", "h"),
    };
    const struct str body = STR("raw bytes back and forth");

    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    WAIT(peer->settings);
    CHECK_INT(nghttp2_session_get_remote_settings(peer->session,
                                                  NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL),
              1);
    struct peer_stream *stream = &peer->streams[0];
    stream->hold = true;
    peer_send(peer, fields, ARRAY_LEN(fields), &body);
    WAIT(stream->body.len == body.n);
    CHECK_INT(stream->status, 200);
    CHECK(str_eq(buf_view(&stream->body), body));
    CHECK(!stream->closed);
    stream->hold = false;
    peer_go_on(peer, stream);
    WAIT(stream->closed);
    CHECK_INT(stream->code, NGHTTP2_NO_ERROR);
    peer_shut(peer);
}

/* ---- what a request must be ---- */

TEST(h2_refuses_malformed_requests)
{
    /* Replaces or adds one field; `status` 0: the stream is reset with PROTOCOL_ERROR. */
    static const struct {
        const char *name, *value;
        int status;
    } cases[] = {
        { ":method", "GET", 200 },
        { ":method", "G T", 0 },
        { ":method", "", 0 },
        { ":method", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF", 200 },
        { ":method", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG", 400 },
        { ":method", "CONNECT", 0 }, /* with :path and :scheme */
        { ":path", "", 0 },
        { ":path", "hello", 0 },
        { ":path", "*", 0 },
        { ":path", "/a b", 0 },
        { ":path", "/a#b", 400 },
        { ":path", "/\xc3\xa9", 400 },
        { ":path", "http://h/", 0 },
        { ":scheme", "ftp", 400 },
        { ":authority", "h@evil", 400 },
        { ":authority", "a b", 0 },
        { ":authority", "", 0 },
        { ":unknown", "x", 0 },
        { ":status", "200", 0 },
        { ":protocol", "websocket", 0 }, /* without CONNECT */
        { "host", "other", 400 },
        { "sp ace", "x", 0 },
        { "", "x", 0 },
        { "connection", "close", 0 },
        { "keep-alive", "x", 0 },
        { "proxy-connection", "x", 0 },
        { "transfer-encoding", "chunked", 0 },
        { "upgrade", "websocket", 0 },
        { "te", "gzip", 0 },
        { "te", "trailers", 200 },
        { "x", "line\r\nbreak", 0 },
        { "x", "delete \x7f", 0 },
        { "x", " led by a space", 0 },
        { "x", "high \xff bytes", 200 },
        { "content-length", "-1", 0 },
        { "content-length", "+1", 0 },
        { "content-length", "1", 0 }, /* but the stream ends */
        { "content-length", "0", 200 },
        { "content-length", "99999999999999999999999", 0 },
        { "expect", "200-ok", 417 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        nghttp2_nv fields[] = { NV(":method", "GET"), NV(":path", "/hello"), NV(":scheme", "http"),
                                NV(":authority", "h"), NV("x-last", "x") };
        size_t count = 4, at = 4;

        start(NULL);
        struct peer *peer = peer_open(0, NULL, 0);
        for (size_t k = 0; k < 4; k++)
            if (strlen(cases[i].name) == fields[k].namelen &&
                memcmp(cases[i].name, fields[k].name, fields[k].namelen) == 0)
                at = k;
        count += at == 4;
        fields[at] = nv_of(str_of(cases[i].name), str_of(cases[i].value));
        struct peer_stream *stream = peer_send(peer, fields, count, NULL);
        WAIT(stream->closed);
        fprintf(stderr, "%s: %s\n", cases[i].name, cases[i].value);
        CHECK_INT(stream->status, cases[i].status);
        CHECK_INT(stream->code, cases[i].status ? NGHTTP2_NO_ERROR : NGHTTP2_PROTOCOL_ERROR);
        CHECK_INT(app.requests, cases[i].status == 200);
        peer_shut(peer);
    }
}

TEST(h2_refuses_heads_with_parts_missing_or_twice)
{
    static const nghttp2_nv method = NV(":method", "GET"), path = NV(":path", "/hello"),
                            scheme = NV(":scheme", "http"), authority = NV(":authority", "h"),
                            host = NV("host", "h"), x = NV("x", "y"),
                            length = NV("content-length", "0");
    const struct {
        nghttp2_nv fields[6];
        size_t count;
        int status;
    } cases[] = {
        { { method, path, scheme, host }, 4, 200 },
        { { method, path, scheme, authority, host }, 5, 200 },
        { { path, scheme, authority }, 3, 0 },
        { { method, scheme, authority }, 3, 0 },
        { { method, path, authority }, 3, 0 },
        { { method, path, scheme }, 3, 0 },
        { { method, path, scheme, authority, authority }, 5, 0 },
        { { method, method, path, scheme, authority }, 5, 0 },
        { { method, path, scheme, host, host }, 5, 0 },
        { { method, path, scheme, x, authority }, 5, 0 }, /* pseudo after regular */
        { { method, path, scheme, authority, length, length }, 6, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        start(NULL);
        struct peer *peer = peer_open(0, NULL, 0);
        struct peer_stream *stream = peer_send(peer, cases[i].fields, cases[i].count, NULL);
        WAIT(stream->closed);
        fprintf(stderr, "case %zu\n", i);
        CHECK_INT(stream->status, cases[i].status);
        CHECK_INT(app.requests, cases[i].status == 200);
        peer_shut(peer);
    }
}

TEST(h2_limit_of_the_target)
{
    char path[HTTP_LINE_MAX + 2] = "/";

    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    memset(path + 1, 'p', HTTP_LINE_MAX - 1);
    struct peer_stream *stream = peer_ask(peer, "GET", path, NULL);
    WAIT(stream->closed);
    CHECK_INT(stream->status, 200);
    path[HTTP_LINE_MAX] = 'p';
    stream = peer_ask(peer, "GET", path, NULL);
    WAIT(stream->closed);
    CHECK_INT(stream->status, 414);
    peer_shut(peer);
}

TEST(h2_limit_of_the_announced_length)
{
    static const struct {
        const char *length;
        int status;
    } cases[] = { { "68719476736", 200 }, { "68719476737", 413 } }; /* HTTP_BODY_STREAM_MAX */

    start(NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const nghttp2_nv fields[] = { NV(":method", "POST"), NV(":path", "/hello"),
                                      NV(":scheme", "http"), NV(":authority", "h"),
                                      nv_of(STR("content-length"), str_of(cases[i].length)) };
        struct peer *peer = peer_open(0, NULL, 0);
        struct peer_stream *stream = &peer->streams[0];

        stream->hold = true;
        peer_send(peer, fields, ARRAY_LEN(fields), &(struct str){ "x", 1 });
        WAIT(stream->status);
        CHECK_INT(stream->status, cases[i].status);
        peer_shut(peer);
    }
}

TEST(h2_plain_connect_is_refused)
{
    static const nghttp2_nv fields[] = { NV(":method", "CONNECT"), NV(":authority", "h:443") };

    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    struct peer_stream *stream = peer_send(peer, fields, 2, NULL);
    WAIT(stream->closed);
    CHECK_INT(stream->status, 501);
    CHECK_INT(app.requests, 0);
    peer_shut(peer);
}

TEST(h2_body_must_match_its_length)
{
    static const struct {
        const char *length;
        int status;
    } cases[] = { { "10", 200 }, { "9", 0 }, { "11", 0 } };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const nghttp2_nv fields[] = { NV(":method", "POST"), NV(":path", "/all"),
                                      NV(":scheme", "http"), NV(":authority", "h"),
                                      nv_of(STR("content-length"), str_of(cases[i].length)) };
        const struct str body = STR("0123456789");

        start(NULL);
        struct peer *peer = peer_open(3, NULL, 0);
        struct peer_stream *stream = peer_send(peer, fields, ARRAY_LEN(fields), &body);
        WAIT(stream->closed);
        CHECK_INT(stream->status, cases[i].status);
        peer_shut(peer);
    }
}

TEST(h2_body_over_the_limit_is_413_and_the_rest_not_wanted)
{
    const size_t len = HTTP_BODY_DEFAULT_MAX + 1;
    autofree char *data = random_bytes(len);

    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    struct peer_stream *stream =
        peer_ask(peer, "POST", "/all", &(struct str){ data, HTTP_BODY_DEFAULT_MAX });
    WAIT(stream->closed);
    CHECK_INT(stream->status, 200);
    stream = peer_ask(peer, "POST", "/all", &(struct str){ data, len });
    WAIT(stream->closed);
    CHECK_INT(stream->status, 413);

    stream = &peer->streams[peer->count]; /* one that never ends is reset, kindly */
    stream->hold = true;
    peer_ask(peer, "POST", "/hello", &(struct str){ data, 10 });
    WAIT(stream->status);
    CHECK_INT(stream->status, 200);
    CHECK(!stream->closed);
    WAIT(stream->closed);
    CHECK_INT(stream->code, NGHTTP2_NO_ERROR);
    peer_shut(peer);
}

/* ---- flow control and queues ---- */

TEST(h2_unread_body_waits_in_the_network)
{
    const size_t len = (size_t)3 * H2_STREAM_WINDOW;
    autofree char *data = random_bytes(len);

    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    WAIT(peer->settings);
    struct peer_stream *stream = peer_ask(peer, "POST", "/hold", &(struct str){ data, len });
    WAIT(stream->sent >= H2_STREAM_WINDOW);
    step(50);
    CHECK_INT(stream->sent, H2_STREAM_WINDOW);

    http_read_stream(app.held, UINT64_MAX, hold_piece);
    CHECK_INT(app.held_got, 0); /* not from inside the call */
    http_read_pause(app.held);
    step(20);
    CHECK_INT(app.held_got, 0);
    http_read_resume(app.held);
    WAIT(app.held_last);
    CHECK_INT(app.held_got, len);
    http_reply(app.held, 200, NULL, 0, STR_NONE);
    WAIT(stream->closed);
    peer_shut(peer);
}

TEST(h2_paused_stream_does_not_stop_the_others)
{
    const size_t len = (size_t)2 * H2_STREAM_WINDOW;
    autofree char *data = random_bytes(len);

    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    WAIT(peer->settings);
    struct peer_stream *stuck = peer_ask(peer, "POST", "/hold", &(struct str){ data, len });
    WAIT(stuck->sent == H2_STREAM_WINDOW);
    for (int i = 0; i < 8; i++) {
        struct peer_stream *stream = peer_ask(peer, "POST", "/all", &(struct str){ data, len });

        WAIT(stream->closed);
        CHECK_INT(stream->status, 200);
    }
    /* Streams that end unread give their share of the connection's window back. */
    for (int i = 0; i < 8; i++) {
        http_reply(take_ptr(&app.held), 200, NULL, 0, STR_NONE);
        WAIT(stuck->status);
        stuck = peer_ask(peer, "POST", "/hold", &(struct str){ data, len });
        WAIT(stuck->sent == H2_STREAM_WINDOW && app.held);
    }
    peer_shut(peer);
    WAIT(app.gone == 1);
}

TEST(h2_bodies_that_nobody_reads_do_not_use_up_the_connection)
{
    const struct str part = { random_bytes(H2_STREAM_WINDOW), H2_STREAM_WINDOW };

    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    WAIT(peer->settings);
    for (unsigned i = 0; i < 2 * H2_CONN_WINDOW / H2_STREAM_WINDOW; i++) {
        struct peer_stream *stream = peer_ask(peer, "POST", "/hello", &part);

        WAIT(stream->closed);
        CHECK_INT(stream->status, 200);
        CHECK_INT(stream->sent, part.n);
    }
    free((char *)(uintptr_t)part.p);
    peer_shut(peer);
}

TEST(h2_producer_is_told_to_wait_and_to_go_on)
{
    static char data[HTTP_OUT_HIGH + 1];
    const nghttp2_settings_entry none = { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0 };

    start(NULL);
    struct peer *peer = peer_open(0, &none, 1);
    struct peer_stream *stream = peer_ask(peer, "GET", "/hold", NULL);
    WAIT(app.held);
    http_reply_begin(app.held, 200, NULL, 0);
    CHECK(http_reply_write(app.held, (struct str){ data, HTTP_OUT_HIGH }) == HTTP_OK);
    CHECK(http_reply_write(app.held, (struct str){ data, 1 }) == HTTP_FULL);
    CHECK_INT(http_unsent(app.held), HTTP_OUT_HIGH + 1);
    step(20);
    CHECK_INT(app.drains, 0);
    CHECK_INT(stream->body.len, 0);
    nghttp2_submit_window_update(peer->session, NGHTTP2_FLAG_NONE, stream->id, 1000000);
    peer_pump(peer);
    WAIT(app.drains == 1);
    WAIT(stream->body.len == HTTP_OUT_HIGH + 1);
    http_reply_end(app.held, NULL, 0);
    WAIT(stream->closed);
    CHECK_INT(app.gone, 0);
    peer_shut(peer);
}

TEST(h2_large_streams_flow_with_small_windows)
{
    const nghttp2_settings_entry small = { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 777 };
    const size_t len = 400000;
    autofree char *data = random_bytes(len);

    start(NULL);
    struct peer *peer = peer_open(3000, &small, 1);
    struct peer_stream *stream = peer_ask(peer, "POST", "/stream", &(struct str){ data, len });
    WAIT(stream->closed);
    CHECK(str_eq(buf_view(&stream->body), (struct str){ data, len }));
    peer_shut(peer);
}

/* ---- ends ---- */

TEST(h2_tells_the_application_when_a_peer_resets_or_leaves)
{
    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    struct peer_stream *stream = peer_ask(peer, "GET", "/hold", NULL);
    WAIT(app.held);
    nghttp2_submit_rst_stream(peer->session, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_CANCEL);
    peer_pump(peer);
    WAIT(app.gone == 1);
    peer_ask(peer, "GET", "/hold", NULL);
    WAIT(app.held);
    http_reply_begin(app.held, 200, NULL, 0);
    peer_shut(peer);
    WAIT(app.gone == 2);
    WAIT(http_server_conns(server) == 0);
}

TEST(h2_cut_resets_the_stream_and_not_the_connection)
{
    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    struct peer_stream *stream = peer_ask(peer, "GET", "/hold", NULL);
    WAIT(app.held);
    http_reply_begin(app.held, 200, NULL, 0);
    http_reply_write(app.held, STR("some"));
    http_cut(app.held, "test");
    WAIT(stream->closed);
    CHECK_INT(stream->code, NGHTTP2_CANCEL);
    CHECK_INT(app.gone, 0);
    stream = peer_ask(peer, "GET", "/hello", NULL);
    WAIT(stream->closed);
    CHECK_INT(stream->status, 200);
    peer_shut(peer);
}

static bool drain_done;

static void drained(void *ctx)
{
    (void)ctx;
    drain_done = true;
}

TEST(h2_drain_finishes_what_is_under_way)
{
    start(NULL);
    struct peer *idle = peer_open(0, NULL, 0);
    struct peer *busy = peer_open(0, NULL, 0);
    struct peer_stream *stream = peer_ask(busy, "GET", "/hold", NULL);
    WAIT(app.held && idle->settings);
    drain_done = false;
    http_server_drain(server, 5000, drained, NULL);
    WAIT(idle->goaway && busy->goaway);
    CHECK_INT(busy->goaway_code, NGHTTP2_NO_ERROR);
    WAIT(idle->eof);
    CHECK(!drain_done && !busy->eof);
    http_reply(app.held, 200, NULL, 0, STR("last words"));
    WAIT(stream->closed);
    CHECK(str_is(buf_view(&stream->body), "last words"));
    WAIT(busy->eof);
    peer_shut(idle);
    peer_shut(busy);
    WAIT(drain_done);
}

TEST(h2_drain_takes_what_was_already_on_its_way)
{
    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer);
    WAIT(raw_count(peer, NGHTTP2_SETTINGS, NULL) == 2);
    drain_done = false;
    http_server_drain(server, 5000, drained, NULL);
    WAIT(raw_count(peer, NGHTTP2_GOAWAY, NULL) == 1);
    raw_frame(peer, NGHTTP2_HEADERS, 5, 1, RAW_GET, sizeof(RAW_GET) - 1);
    peer_pump(peer);
    WAIT(raw_count(peer, NGHTTP2_HEADERS, NULL) == 1);
    WAIT(peer->eof);
    CHECK_INT(raw_count(peer, NGHTTP2_GOAWAY, NULL), 2);
    peer_shut(peer);
    WAIT(drain_done);
}

TEST(h2_drain_cuts_what_takes_too_long)
{
    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    peer_ask(peer, "GET", "/hold", NULL);
    WAIT(app.held);
    drain_done = false;
    http_server_drain(server, 50, drained, NULL);
    WAIT(drain_done);
    CHECK_INT(app.gone, 1);
    peer_shut(peer);
}

TEST(h2_server_may_be_freed_with_streams_open)
{
    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    peer_ask(peer, "GET", "/hold", NULL);
    WAIT(app.held);
    http_server_free(server);
    server = NULL;
    CHECK_INT(app.gone, 1);
    peer_shut(peer);
}

/* Everything at once, at random, for the sanitizers: requests, resets, departures, late answers. */
TEST(h2_random_life)
{
    static const char *const paths[] = { "/all", "/stream", "/keep", "/keep", "/keep", "/hello" };
    struct peer *peers[3] = { 0 };
    const size_t len = 100000;
    autofree char *data = random_bytes(len);
    unsigned shown = 0;

    start(NULL);
    kept_count = kept_ended = 0;
    for (int round = 0; round < 6000; round++) {
        struct peer **slot = &peers[test_rand(3)];
        struct peer *peer = *slot;

        if (!peer || peer->eof || peer->count == PEER_STREAMS_MAX) {
            if (peer)
                peer_shut(peer);
            *slot = peer = peer_open(test_rand(2) ? 3000 : 0, NULL, 0);
        }
        uint32_t dice = test_rand(100);
        if (dice < 30) {
            const char *path = paths[test_rand(ARRAY_LEN(paths))];
            struct str body = { data, test_rand(test_rand(4) ? 2000 : (uint32_t)len) };

            peer->streams[peer->count].hold = test_rand(4) == 0;
            peer_ask(peer, "POST", path, test_rand(3) ? &body : NULL);
            shown += path[1] == 'k';
        } else if (dice < 35 && peer->count) {
            struct peer_stream *stream = &peer->streams[test_rand(peer->count)];

            if (!stream->closed)
                nghttp2_submit_rst_stream(peer->session, NGHTTP2_FLAG_NONE, stream->id,
                                          NGHTTP2_CANCEL);
            peer_pump(peer);
        } else if (dice < 36) {
            peer_shut(peer);
            *slot = NULL;
        } else if (dice < 70 && kept_count) {
            move_kept(kept[test_rand(kept_count)]);
        } else {
            step(0);
        }
    }
    for (int i = 0; i < 3; i++)
        if (peers[i])
            peer_shut(peers[i]);
    WAIT(http_server_conns(server) == 0);
    CHECK_INT(kept_count, 0);
    CHECK(kept_ended > 100 && kept_ended <= shown);
}
