/*
 * What an HTTP/2 peer may not do: each limit at its value and one past it, each abuse until the
 * connection is closed for it. Frames are made by hand where a proper client would not make them.
 */
#include "http/h2_peer.h"

#include "base/limits.h"
#include "http/h2_own.h"

#define WHOLE 200000 /* the answer to /whole */

static struct app {
    unsigned requests, gone, drains;
    struct http_req *held; /* the last one */
    enum http_flow flow;   /* of the last write to /flood */
    size_t flooded;
} app;

static void on_gone(struct http_req *req)
{
    if (req == app.held)
        app.held = NULL;
    app.gone++;
}

static void on_drain(struct http_req *req)
{
    (void)req;
    app.drains++;
}

static void take_all(struct http_req *req, struct str body)
{
    http_reply(req, 200, NULL, 0, body);
}

static void on_request(void *ctx, struct http_req *req)
{
    static char data[50000];

    (void)ctx;
    app.requests++;
    req->on_gone = on_gone;
    req->on_drain = on_drain;
    if (str_is(req->path, "/hold")) {
        app.held = req;
    } else if (str_is(req->path, "/all")) {
        app.held = req;
        http_read_all(req, HTTP_BODY_DEFAULT_MAX, take_all);
    } else if (str_is(req->path, "/flood")) {
        http_reply_begin(req, 200, NULL, 0);
        while ((app.flow = http_reply_write(req, (struct str){ data, sizeof(data) })) != HTTP_CUT)
            app.flooded += sizeof(data);
    } else if (str_is(req->path, "/fill")) { /* as much as one may who waits when told so */
        http_reply_begin(req, 200, NULL, 0);
        do {
            app.flow = http_reply_write(req, (struct str){ data, sizeof(data) });
            app.flooded += sizeof(data);
        } while (app.flow == HTTP_OK);
    } else if (str_is(req->path, "/whole")) {
        static char whole[WHOLE];

        http_reply(req, 200, NULL, 0, (struct str){ whole, sizeof(whole) });
    } else {
        http_reply(req, 200, NULL, 0, STR("hello"));
    }
}

static const struct http_app the_app = { .on_request = on_request };
static const nghttp2_settings_entry no_window = { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0 };

static void start(const struct http_options *options)
{
    serve(&the_app, options);
    app = (struct app){ 0 };
}

/* The connection is closed with GOAWAY of this code. */
static void check_goaway(struct peer *peer, uint32_t code)
{
    uint32_t got = 0;

    WAIT(peer->eof);
    if (peer->session) {
        CHECK(peer->goaway);
        got = peer->goaway_code;
    } else {
        CHECK(raw_count(peer, NGHTTP2_GOAWAY, &got) == 1);
    }
    CHECK_INT(got, code);
    peer_shut(peer);
    WAIT(http_server_conns(server) == 0);
}

/* ---- heads ---- */

TEST(h2_limit_of_fields)
{
    start(NULL);
    for (size_t over = 0; over < 2; over++) {
        nghttp2_nv fields[4 + HTTP_FIELDS_MAX + 1] = { NV(":method", "GET"), NV(":path", "/x"),
                                                       NV(":scheme", "http"),
                                                       NV(":authority", "h") };
        struct peer *peer = peer_open(0, NULL, 0);

        for (size_t i = 0; i < HTTP_FIELDS_MAX + over; i++)
            fields[4 + i] = nv_of(STR("x"), STR("y"));
        struct peer_stream *stream = peer_send(peer, fields, 4 + HTTP_FIELDS_MAX + over, NULL);
        WAIT(stream->closed);
        CHECK_INT(stream->status, over ? 431 : 200);
        peer_shut(peer);
    }
    CHECK_INT(app.requests, 1);
}

/* A bomb: one long field put into the table, then named again and again by one byte each. */
TEST(h2_limit_of_the_decoded_head)
{
    static char value[3000];
    const size_t fixed = (7 + 3 + 32) + (5 + 2 + 32) + (7 + 4 + 32) + (10 + 1 + 32);
    const size_t each = 1 + sizeof(value) + 32;
    const size_t fit = (HTTP_DECODED_HEAD_MAX - fixed) / each;
    const size_t rest = HTTP_DECODED_HEAD_MAX - fixed - fit * each - 33;

    memset(value, 'v', sizeof(value));
    start(NULL);
    for (size_t over = 0; over < 2; over++) {
        nghttp2_nv fields[40] = { NV(":method", "GET"), NV(":path", "/x"), NV(":scheme", "http"),
                                  NV(":authority", "h") };
        struct peer *peer = peer_open(0, NULL, 0);
        size_t count = 4;

        for (size_t i = 0; i < fit; i++)
            fields[count++] = nv_of(STR("x"), (struct str){ value, sizeof(value) });
        fields[count++] = nv_of(STR("y"), (struct str){ value, rest + over });
        struct peer_stream *stream = peer_send(peer, fields, count, NULL);
        WAIT(stream->closed);
        CHECK_INT(stream->status, over ? 431 : 200);
        CHECK_INT(stream->code, NGHTTP2_NO_ERROR);
        peer_shut(peer);
    }
    CHECK_INT(app.requests, 1);
}

/* A header block of exactly `size` bytes in frames of `each`. */
static void send_block(struct peer *peer, size_t size, size_t each)
{
    static const char head[] = RAW_GET;
    autobuf struct buf block = { 0 };

    buf_append(&block, head, sizeof(head) - 1);
    /* Updates of the table's size (RFC 7541 section 6.3) only come first; fields fill the rest. */
    while (block.len < size) {
        size_t len = MIN(size - block.len, (size_t)60);

        if (size - block.len - len > 0 && size - block.len - len < 4)
            len -= 4;
        /* Literal, not indexed: name of one letter, value of len - 4 bytes. */
        buf_append(&block, "\0\1x", 3);
        buf_putc(&block, (char)(len - 4));
        for (size_t i = 0; i < len - 4; i++)
            buf_putc(&block, 'v');
    }
    CHECK_INT(block.len, size);
    for (size_t at = 0; at < size; at += each) {
        size_t n = MIN(each, size - at);
        unsigned flags = (at == 0 ? NGHTTP2_FLAG_END_STREAM : 0u) |
                         (at + n == size ? NGHTTP2_FLAG_END_HEADERS : 0u);

        raw_frame(peer, at ? NGHTTP2_CONTINUATION : NGHTTP2_HEADERS, flags, 1, block.data + at, n);
    }
    peer_pump(peer);
}

TEST(h2_limit_of_the_header_block)
{
    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer);
    send_block(peer, HTTP_HEAD_MAX, 16384); /* too many fields, but read to its end */
    WAIT(raw_count(peer, NGHTTP2_HEADERS, NULL) == 1);
    CHECK_INT(raw_count(peer, NGHTTP2_GOAWAY, NULL), 0);
    peer_shut(peer);

    peer = peer_raw();
    raw_hello(peer);
    send_block(peer, HTTP_HEAD_MAX + 4, 16384);
    check_goaway(peer, NGHTTP2_ENHANCE_YOUR_CALM);
    CHECK_INT(app.requests, 0);
}

TEST(h2_limit_of_continuations)
{
    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer);
    send_block(peer, (size_t)10 * (H2_CONTINUATIONS_MAX + 1), 10);
    WAIT(raw_count(peer, NGHTTP2_HEADERS, NULL) == 1);
    CHECK_INT(app.requests, 1);
    peer_shut(peer);

    peer = peer_raw();
    raw_hello(peer);
    send_block(peer, (size_t)10 * (H2_CONTINUATIONS_MAX + 2), 10);
    check_goaway(peer, NGHTTP2_ENHANCE_YOUR_CALM);
    CHECK_INT(app.requests, 1);
}

TEST(h2_upper_case_names_are_refused)
{
    static const char block[] = RAW_GET "\0\5Upper\1x";
    uint32_t code = 0;

    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer);
    raw_frame(peer, NGHTTP2_HEADERS, 5, 1, block, sizeof(block) - 1);
    peer_pump(peer);
    WAIT(raw_count(peer, NGHTTP2_RST_STREAM, &code) == 1);
    CHECK_INT(code, NGHTTP2_PROTOCOL_ERROR);
    CHECK_INT(app.requests, 0);
    peer_shut(peer);
}

TEST(h2_header_block_has_a_time_limit)
{
    start(&(struct http_options){ .head_timeout_ms = 60 });
    struct peer *peer = peer_raw();
    raw_hello(peer);
    raw_frame(peer, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_STREAM, 1, "\x82", 1);
    peer_pump(peer);
    step(30);
    CHECK(!peer->eof);
    check_goaway(peer, NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST(h2_settings_must_come_in_time)
{
    start(&(struct http_options){ .head_timeout_ms = 60 });
    struct peer *peer = peer_raw();
    buf_puts(&peer->out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    peer_pump(peer);
    check_goaway(peer, NGHTTP2_SETTINGS_TIMEOUT);
}

TEST(h2_idle_connections_end)
{
    start(&(struct http_options){ .keepalive_ms = 100 });
    struct peer *peer = peer_open(0, NULL, 0);
    struct peer_stream *stream = peer_ask(peer, "GET", "/hold", NULL);
    step(300);
    CHECK(!peer->eof); /* not while a request is under way */
    http_reply(app.held, 200, NULL, 0, STR_NONE);
    WAIT(stream->closed);
    check_goaway(peer, NGHTTP2_NO_ERROR);
}

TEST(h2_bad_preface_and_bad_frames_end_the_connection)
{
    uint32_t code;

    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer);
    raw_frame(peer, NGHTTP2_DATA, 0, 0, "x", 1); /* DATA on stream 0 */
    peer_pump(peer);
    check_goaway(peer, NGHTTP2_PROTOCOL_ERROR);
    peer = peer_raw();
    raw_hello(peer);
    raw_frame(peer, NGHTTP2_PING, 0, 0, "short", 5);
    peer_pump(peer);
    check_goaway(peer, NGHTTP2_FRAME_SIZE_ERROR);
    peer = peer_raw();
    raw_hello(peer);
    raw_frame(peer, NGHTTP2_HEADERS, 5, 1, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    peer_pump(peer);
    check_goaway(peer, NGHTTP2_COMPRESSION_ERROR);
    peer = peer_raw();
    buf_puts(&peer->out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    raw_frame(peer, NGHTTP2_PING, 0, 0, "12345678", 8); /* SETTINGS must be first */
    peer_pump(peer);
    WAIT(peer->eof);
    CHECK(raw_count(peer, NGHTTP2_GOAWAY, &code) == 1);
    peer_shut(peer);
    CHECK_INT(app.requests, 0);
}

/* ---- streams ---- */

TEST(h2_limit_of_streams)
{
    uint32_t code = 0;

    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer);
    static const char block[] = "\x82\x86\x04\x05/hold\x41\x09localhost";
    for (uint32_t i = 0; i < H2_STREAMS_MAX; i++)
        raw_frame(peer, NGHTTP2_HEADERS, 5, 1 + 2 * i, block, sizeof(block) - 1);
    peer_pump(peer);
    WAIT(app.requests == H2_STREAMS_MAX);
    raw_frame(peer, NGHTTP2_HEADERS, 5, 1 + 2 * H2_STREAMS_MAX, block, sizeof(block) - 1);
    peer_pump(peer);
    WAIT(raw_count(peer, NGHTTP2_RST_STREAM, &code) == 1);
    CHECK_INT(code, NGHTTP2_REFUSED_STREAM);
    CHECK_INT(app.requests, H2_STREAMS_MAX);
    peer_shut(peer);
    WAIT(app.gone == H2_STREAMS_MAX);
}

/* CVE-2023-44487: requests, each taken back at once. */
static void send_resets(struct peer *peer, uint32_t from, uint32_t count)
{
    static const char block[] = "\x82\x86\x04\x05/hold\x41\x09localhost";

    for (uint32_t i = from; i < from + count; i++) {
        raw_frame(peer, NGHTTP2_HEADERS, 5, 1 + 2 * i, block, sizeof(block) - 1);
        raw_frame(peer, NGHTTP2_RST_STREAM, 0, 1 + 2 * i, "\0\0\0\x08", 4);
    }
    peer_pump(peer);
}

TEST(h2_limit_of_resets_by_the_peer)
{
    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer);
    send_resets(peer, 0, H2_RESETS_MAX);
    WAIT(app.gone == H2_RESETS_MAX);
    step(20);
    CHECK(!peer->eof);
    send_resets(peer, H2_RESETS_MAX, 1);
    check_goaway(peer, NGHTTP2_ENHANCE_YOUR_CALM);
    CHECK_INT(app.requests, app.gone);
}

/* CVE-2025-8671: frames that make the server reset the stream. */
static void provoke(struct peer *peer, uint32_t from, uint32_t count)
{
    static const char good[] = "\x82\x86\x04\x05/hold\x41\x09localhost";
    static const char bad[] = RAW_GET "\0\5Upper\1x";

    for (uint32_t i = from; i < from + count; i++) {
        if (i % 2) {
            raw_frame(peer, NGHTTP2_HEADERS, 5, 1 + 2 * i, bad, sizeof(bad) - 1);
            continue;
        }
        raw_frame(peer, NGHTTP2_HEADERS, 5, 1 + 2 * i, good, sizeof(good) - 1);
        raw_frame(peer, NGHTTP2_WINDOW_UPDATE, 0, 1 + 2 * i, "\x7f\xff\xff\xff", 4);
    }
    peer_pump(peer);
}

TEST(h2_limit_of_resets_provoked)
{
    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer);
    for (uint32_t i = 0; i < H2_RESETS_MAX; i += 50) {
        provoke(peer, i, 50);
        WAIT(raw_count(peer, NGHTTP2_RST_STREAM, NULL) == i + 50);
    }
    CHECK_INT(app.gone, H2_RESETS_MAX / 2);
    step(20);
    CHECK(!peer->eof);
    provoke(peer, H2_RESETS_MAX, 1);
    check_goaway(peer, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* ---- floods ---- */

static void send_pings(struct peer *peer, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        raw_frame(peer, NGHTTP2_PING, 0, 0, "12345678", 8);
    peer_pump(peer);
}

TEST(h2_limit_of_frames_that_move_nothing)
{
    unsigned acks = 0;

    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer); /* the SETTINGS are one such frame */
    for (unsigned left = H2_IDLE_FRAMES_MAX - 1; left;) {
        unsigned n = MIN(left, 100u);

        send_pings(peer, n);
        left -= n;
        acks += n;
        WAIT(raw_count(peer, NGHTTP2_PING, NULL) == acks);
    }
    step(20);
    CHECK(!peer->eof);
    send_pings(peer, 1);
    check_goaway(peer, NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST(h2_frames_that_move_bytes_are_free)
{
    unsigned acks = 0;

    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer);
    for (uint32_t i = 0; i < 15; i++) {
        send_pings(peer, 100);
        raw_frame(peer, NGHTTP2_HEADERS, 5, 1 + 2 * i, RAW_GET, sizeof(RAW_GET) - 1);
        peer_pump(peer);
        acks += 100;
        WAIT(raw_count(peer, NGHTTP2_PING, NULL) == acks);
    }
    CHECK(!peer->eof);
    CHECK_INT(app.requests, 15);
    peer_shut(peer);
}

TEST(h2_limit_of_unsent_acks)
{
    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer);
    WAIT(raw_count(peer, NGHTTP2_SETTINGS, NULL) == 2);
    send_pings(peer, 3 * H2_ACKS_MAX); /* one segment: read at once, answered later */
    check_goaway(peer, NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST(h2_empty_frames_are_a_flood_too)
{
    static const char block[] = "\x83\x86\x04\x05/hold\x41\x09localhost";

    start(NULL);
    struct peer *peer = peer_raw();
    raw_hello(peer);
    raw_frame(peer, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, block, sizeof(block) - 1);
    for (int i = 0; i < H2_IDLE_FRAMES_MAX + 1; i++)
        raw_frame(peer, NGHTTP2_DATA, 0, 1, NULL, 0);
    peer_pump(peer);
    check_goaway(peer, NGHTTP2_ENHANCE_YOUR_CALM);
    CHECK_INT(app.gone, 1);
}

/* ---- readers that do not read ---- */

TEST(h2_producer_that_does_not_wait_is_cut)
{
    start(NULL);
    struct peer *peer = peer_open(0, &no_window, 1);
    struct peer_stream *stream = peer_ask(peer, "GET", "/flood", NULL);
    WAIT(stream->closed);
    CHECK_INT(stream->code, NGHTTP2_ENHANCE_YOUR_CALM);
    CHECK_INT(app.gone, 1);
    CHECK(app.flooded <= HTTP_OUT_MAX && app.flooded + 50000 > HTTP_OUT_MAX);
    stream = peer_ask(peer, "GET", "/hold", NULL); /* the connection lives */
    WAIT(app.held);
    peer_shut(peer);
}

TEST(h2_one_large_write_is_no_reason_to_cut)
{
    static char data[2 * HTTP_OUT_MAX];

    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    struct peer_stream *stream = peer_ask(peer, "GET", "/hold", NULL);
    WAIT(app.held);
    http_reply_begin(app.held, 200, NULL, 0);
    CHECK(http_reply_write(app.held, STR("small first")) == HTTP_OK);
    CHECK(http_reply_write(app.held, (struct str){ data, sizeof(data) }) == HTTP_FULL);
    http_reply_end(app.held, NULL, 0);
    WAIT(stream->closed);
    CHECK_INT(stream->body.len, sizeof(data) + 11);
    peer_shut(peer);
}

TEST(h2_all_streams_together_are_bounded)
{
    const nghttp2_settings_entry *none = &no_window;

    start(NULL);
    struct peer *peer = peer_open(0, none, 1);
    WAIT(peer->settings);
    for (int i = 0; i < 60; i++)
        peer_ask(peer, "GET", "/fill", NULL);
    WAIT(app.requests == 60);
    CHECK(app.flow == HTTP_FULL);
    CHECK_INT(app.gone, 0);
    /* Each may fill its queue until half of what all may hold is used; then they wait at once. */
    CHECK(app.flooded > H2_OUT_MAX / 2 - HTTP_OUT_HIGH && app.flooded < H2_OUT_MAX);

    /* Room for one is told to all who wait. */
    for (unsigned i = 0; i < peer->count; i++)
        nghttp2_submit_window_update(peer->session, NGHTTP2_FLAG_NONE, peer->streams[i].id,
                                     10000000);
    peer_pump(peer);
    WAIT(app.drains == 60);
    peer_shut(peer);
    WAIT(app.gone == 60);
}

TEST(h2_whole_answers_unread_are_bounded)
{
    const unsigned fit = H2_OUT_MAX / WHOLE + 1; /* the last one may pass the limit */
    unsigned refused = 0;

    start(NULL);
    struct peer *peer = peer_open(0, &no_window, 1);
    WAIT(peer->settings);
    for (unsigned i = 0; i < H2_STREAMS_MAX; i++)
        peer_ask(peer, "GET", "/whole", NULL);
    WAIT(app.requests == H2_STREAMS_MAX);
    step(50);
    for (unsigned i = 0; i < peer->count; i++) {
        refused += peer->streams[i].closed;
        CHECK_INT(peer->streams[i].code, peer->streams[i].closed ? NGHTTP2_ENHANCE_YOUR_CALM : 0);
    }
    CHECK_INT(refused, H2_STREAMS_MAX - fit);
    peer_shut(peer);
}

TEST(h2_stalled_window_is_cut)
{
    start(&(struct http_options){ .write_stall_ms = 100 });
    struct peer *peer = peer_open(0, &no_window, 1);
    struct peer_stream *stream = peer_ask(peer, "GET", "/whole", NULL);
    WAIT(stream->status == 200);
    CHECK(!stream->closed);
    WAIT(stream->closed);
    CHECK_INT(stream->code, NGHTTP2_CANCEL);

    stream = peer_ask(peer, "GET", "/fill", NULL); /* and the application is told */
    WAIT(stream->closed);
    CHECK_INT(app.gone, 1);
    peer_shut(peer);
}

TEST(h2_deaf_peer_is_cut)
{
    start(&(struct http_options){ .write_stall_ms = 100 });
    struct peer *peer = peer_open(0, NULL, 0);
    WAIT(peer->settings);
    peer->deaf = true;
    nghttp2_session_set_local_window_size(peer->session, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    struct peer_stream *stream = peer_ask(peer, "GET", "/fill", NULL);
    nghttp2_submit_window_update(peer->session, NGHTTP2_FLAG_NONE, stream->id, 1 << 29);
    peer_pump(peer);
    WAIT(app.requests == 1);
    WAIT(app.gone == 1 || app.drains == 1); /* the kernel may take it all */
    peer_shut(peer);
    WAIT(http_server_conns(server) == 0);
}

TEST(h2_answered_requests_give_their_window_back)
{
    static char data[100000];

    start(NULL);
    struct peer *peer = peer_open(0, NULL, 0);
    peer->streams[0].hold = true;
    peer_ask(peer, "POST", "/hold", &(struct str){ data, sizeof(data) });
    WAIT(app.held && app.held->stream->body_got == sizeof(data));
    struct h2_stream *own = container_of(app.held->stream, struct h2_stream, base);
    CHECK_INT(own->unconsumed, sizeof(data));
    http_reply(app.held, 200, NULL, 0, STR_NONE);
    CHECK_INT(own->unconsumed, 0); /* the stream is there until the peer has ended too */
    WAIT(peer->streams[0].status);
    peer_shut(peer);
}

TEST(h2_slow_bodies_are_refused)
{
    const struct str body = STR("slow");

    start(&(struct http_options){ .write_stall_ms = 100 }); /* for a fast tick */
    struct peer *peer = peer_open(0, NULL, 0);
    struct peer_stream *stream = &peer->streams[0];
    stream->hold = true;
    peer_ask(peer, "POST", "/all", &body);
    WAIT(app.held && app.held->stream->body_got == 4);
    step(100);
    CHECK_INT(stream->status, 0);
    struct h2_stream *own = container_of(app.held->stream, struct h2_stream, base);
    own->rate_ms -= HTTP_BODY_WINDOW_MS; /* as if the window were over */
    WAIT(stream->status);
    CHECK_INT(stream->status, 408);
    CHECK_INT(app.gone, 1);
    peer_shut(peer);
}
