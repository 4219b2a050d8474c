/*
 * WebSocket rules against frames made by hand. A naive generator knows what each stream of frames
 * means; the bytes then arrive in random pieces, and what the application saw must be the same.
 */
#include "http/ws.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/test.h"
#include "http/http_fake.h"

static struct seen {
    struct buf messages; /* 't' or 'b', length, bytes, for each */
    unsigned count, drains;
    int close_code; /* 0: not closed */
    char close_reason[128];
    bool pause_each; /* pause in every on_message */
    int close_at;    /* ws_close in this message (1 = first); 0 never */
} seen;

static struct ws *the_ws;

static void note_message(struct buf *out, bool text, struct str data)
{
    uint32_t len = (uint32_t)data.n;

    buf_putc(out, text ? 't' : 'b');
    buf_append(out, &len, sizeof(len));
    buf_str(out, data);
}

static void saw_message(struct ws *ws, bool text, struct str data)
{
    CHECK(ws == the_ws);
    CHECK_INT(seen.close_code, 0);
    CHECK(ws_ctx(ws) == &seen);
    note_message(&seen.messages, text, data);
    seen.count++;
    if (seen.pause_each)
        ws_pause(ws);
    if (seen.close_at && (int)seen.count == seen.close_at)
        ws_close(ws, 1000, "enough");
}

static void saw_drain(struct ws *ws)
{
    CHECK(ws == the_ws);
    seen.drains++;
}

static void saw_close(struct ws *ws, int code, struct str reason)
{
    CHECK(ws == the_ws);
    CHECK_INT(seen.close_code, 0);
    CHECK(ws_send(ws, true, STR("too late")) == HTTP_CUT);
    seen.close_code = code;
    snprintf(seen.close_reason, sizeof(seen.close_reason), "%.*s", STR_FMT(reason));
    the_ws = NULL;
}

static const struct ws_ops ops = { saw_message, saw_drain, saw_close };

static void hello(enum http_version version)
{
    static struct loop *loop;
    struct err err;

    if (!loop)
        CHECK_OK(loop_new(&loop, &err), &err);
    buf_free(&seen.messages);
    seen = (struct seen){ 0 };
    fake_reset(loop, version, version == HTTP_2 ? "CONNECT" : "GET");
    if (version == HTTP_2) {
        fake_header(":protocol", "websocket");
    } else {
        fake_header("connection", "keep-alive, Upgrade");
        fake_header("upgrade", "websocket");
        fake_header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    }
    fake_header("sec-websocket-version", "13");
}

static void open_ws(void)
{
    struct err err;

    hello(HTTP_1_1);
    CHECK_OK(ws_accept(&fake.req, NULL, &ops, &seen, &the_ws, &err), &err);
    CHECK_INT(fake.status, 101);
}

/* ---- frames by hand ---- */

static void put_frame(struct buf *out, unsigned first, bool mask, const void *data, size_t len)
{
    const uint8_t *bytes = data;
    uint8_t key[4];

    buf_putc(out, (char)first);
    char bit = mask ? (char)0x80 : 0;
    if (len < 126) {
        buf_putc(out, (char)(bit | (char)len));
    } else if (len < 65536) {
        buf_putc(out, (char)(bit | 126));
        buf_putc(out, (char)(len >> 8));
        buf_putc(out, (char)len);
    } else {
        buf_putc(out, (char)(bit | 127));
        for (int shift = 56; shift >= 0; shift -= 8)
            buf_putc(out, (char)((uint64_t)len >> shift));
    }
    for (int i = 0; i < 4; i++)
        key[i] = mask ? (uint8_t)test_rand(256) : 0;
    if (mask)
        buf_append(out, key, 4);
    for (size_t i = 0; i < len; i++)
        buf_putc(out, (char)(bytes[i] ^ key[i % 4]));
}

#define FIN 0x80
#define FRAME(out, first, literal) put_frame(out, first, true, literal, sizeof(literal) - 1)

static void feed_split(const struct buf *bytes, size_t piece_max)
{
    for (size_t at = 0; at < bytes->len;) {
        size_t n = 1 + test_rand((uint32_t)piece_max);

        n = MIN(n, bytes->len - at);
        fake_feed(bytes->data + at, n, false);
        at += n;
    }
}

/* The first frame that we wrote, from `at`; false at the end. */
static bool next_frame(size_t *at, unsigned *first, struct str *payload)
{
    const uint8_t *p = (const uint8_t *)fake.body.data + *at;
    size_t left = fake.body.len - *at, head = 2;

    if (left < 2)
        return false;
    CHECK(!(p[1] & 0x80)); /* servers do not mask */
    uint64_t len = p[1];
    if (len == 126) {
        len = (uint64_t)p[2] << 8 | p[3];
        CHECK(len >= 126);
        head = 4;
    } else if (len == 127) {
        len = 0;
        for (int i = 0; i < 8; i++)
            len = len << 8 | p[2 + i];
        CHECK(len >= 65536);
        head = 10;
    }
    CHECK(left >= head + len);
    *first = p[0];
    *payload = (struct str){ (const char *)p + head, len };
    *at += head + len;
    return true;
}

static int sent_close(void)
{
    struct str payload;
    unsigned first;
    int code = 0;

    for (size_t at = 0; next_frame(&at, &first, &payload);)
        if ((first & 15) == 8) {
            CHECK_INT(code, 0); /* one only */
            code = payload.n ? (uint8_t)payload.p[0] << 8 | (uint8_t)payload.p[1] : 1005;
        }
    return code;
}

static void check_closed(const struct buf *bytes, int code)
{
    open_ws();
    feed_split(bytes, 64);
    CHECK_INT(seen.close_code, code);
    CHECK_INT(sent_close(), code);
    CHECK(fake.ended && !fake.cut);
}

/* ---- the handshake ---- */

TEST(ws_accepts_with_the_value_of_the_rfc)
{
    open_ws();
    CHECK(strstr(buf_cstr(&fake.head), "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\n"));
    CHECK(strstr(buf_cstr(&fake.head), "Upgrade: websocket\n"));
    CHECK(!strstr(buf_cstr(&fake.head), "Sec-WebSocket-Protocol"));
    CHECK(!strstr(buf_cstr(&fake.head), "Sec-WebSocket-Extensions"));
    CHECK(fake.slim);
    CHECK(ws_peer(the_ws) == &fake.peer);
    fake_gone();
    CHECK_INT(seen.close_code, 1006);
}

TEST(ws_accepts_extended_connect)
{
    struct err err;

    hello(HTTP_2);
    CHECK(ws_wanted(&fake.req));
    CHECK_OK(ws_accept(&fake.req, NULL, &ops, &seen, &the_ws, &err), &err);
    CHECK_INT(fake.status, 200);
    CHECK_INT(fake.head.len, 0);
    fake_gone();
    hello(HTTP_2);
    fake.headers[0].value = STR("connect-udp");
    CHECK(!ws_wanted(&fake.req));
}

TEST(ws_chooses_an_offered_subprotocol)
{
    struct err err;

    hello(HTTP_1_1);
    fake_header("sec-websocket-protocol", "atoll.v1, other");
    fake_header("sec-websocket-protocol", "third");
    CHECK(ws_offers(&fake.req, "other"));
    CHECK(ws_offers(&fake.req, "third"));
    CHECK(!ws_offers(&fake.req, "Other"));
    CHECK(!ws_offers(&fake.req, "oth"));
    CHECK(ws_accept(&fake.req, "fourth", &ops, &seen, &the_ws, &err) < 0);
    CHECK_INT(fake.status, 0);
    CHECK_OK(ws_accept(&fake.req, "other", &ops, &seen, &the_ws, &err), &err);
    CHECK(strstr(buf_cstr(&fake.head), "Sec-WebSocket-Protocol: other\n"));
    fake_gone();
}

TEST(ws_refuses_wrong_handshakes)
{
    /* clang-format off */
    static const struct { size_t header; const char *value; int status; } cases[] = {
        { 0, "keep-alive", 400 },
        { 2, "dGhlIHNhbXBsZSBub25jZQ=", 400 },
        { 2, "dGhlIHNhbXBsZSBub25jZQ=a", 400 },
        { 2, "dGhlIHNhbXBsZSBub25jZT0=", 400 },
        { 2, "dGhlIHNhbXBsZSBub25j-Q==", 400 },
        { 2, "", 400 },
        { 3, "8", 426 },
        { 3, "013", 426 },
        { 3, "13, 8", 426 },
        { 3, "", 426 },
    };
    /* clang-format on */
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err;

        hello(HTTP_1_1);
        fake.headers[cases[i].header].value = str_of(cases[i].value);
        CHECK(ws_accept(&fake.req, NULL, &ops, &seen, &the_ws, &err) < 0);
        CHECK_INT(fake.status, 0);
        ws_refuse(&fake.req, &err);
        CHECK_INT(fake.status, cases[i].status);
        CHECK(!strstr(buf_cstr(&fake.head), "Sec-WebSocket-Version: 13") ==
              (cases[i].status != 426));
    }
    hello(HTTP_1_1);
    fake_header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    CHECK(ws_accept(&fake.req, NULL, &ops, &seen, &the_ws, NULL) < 0);
    hello(HTTP_1_1);
    fake_header("sec-websocket-version", "13");
    CHECK(ws_accept(&fake.req, NULL, &ops, &seen, &the_ws, NULL) < 0);
    hello(HTTP_1_1);
    fake.req.body_size = 5;
    CHECK(ws_accept(&fake.req, NULL, &ops, &seen, &the_ws, NULL) < 0);
    hello(HTTP_1_1);
    fake.req.method = STR("POST");
    CHECK(!ws_wanted(&fake.req));
    hello(HTTP_1_0);
    CHECK(!ws_wanted(&fake.req));
}

/* ---- messages ---- */

static size_t random_text(char *out, size_t room)
{
    static const char *const glyphs[] = { "a",    "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8f\x9d",
                                          "\x7f", "\n" };
    size_t len = 0;

    for (size_t want = test_rand((uint32_t)room); len < want;) {
        const char *glyph = glyphs[test_rand(ARRAY_LEN(glyphs))];
        size_t n = strlen(glyph);

        if (len + n > room)
            break;
        memcpy(out + len, glyph, n); /* NOLINT(bugprone-not-null-terminated-result): counted */
        len += n;
    }
    return len;
}

/* One message in random fragments, control frames among them; the model notes what it means. */
static void random_message(struct buf *bytes, struct buf *model, struct buf *pongs,
                           unsigned *controls)
{
    static char data[80000];
    bool text = test_rand(2);
    size_t room = test_rand(8) ? 300 : sizeof(data);
    size_t len = text ? random_text(data, room) : test_rand((uint32_t)room);

    for (size_t i = 0; !text && i < len; i++)
        data[i] = (char)test_rand(256);
    note_message(model, text, (struct str){ data, len });
    unsigned opcode = text ? 1 : 2;
    for (size_t at = 0;;) {
        bool last = test_rand(3) == 0;
        size_t n = last ? len - at : test_rand((uint32_t)(len - at + 1));

        put_frame(bytes, (last ? FIN : 0) | opcode, true, data + at, n);
        opcode = 0;
        at += n;
        if (last)
            break;
        if (*controls < WS_PINGS_MAX && test_rand(4) == 0) {
            char note[125];
            size_t size = test_rand(126);

            for (size_t i = 0; i < size; i++)
                note[i] = (char)test_rand(256);
            bool ping = test_rand(2);
            put_frame(bytes, FIN | (ping ? 9 : 10), true, note, size);
            if (ping)
                note_message(pongs, false, (struct str){ note, size });
            (*controls)++;
        }
    }
}

TEST(ws_gives_the_messages_that_were_sent_however_they_arrive)
{
    for (int round = 0; round < 60; round++) {
        autobuf struct buf bytes = { 0 }, model = { 0 }, pongs = { 0 }, got = { 0 };
        unsigned controls = 0, first;
        struct str payload;

        open_ws();
        for (unsigned i = 0, n = test_rand(20); i < n; i++)
            random_message(&bytes, &model, &pongs, &controls);
        feed_split(&bytes, test_rand(2) ? 10 : 70000);
        CHECK(str_eq(buf_view(&seen.messages), buf_view(&model)));
        for (size_t at = 0; next_frame(&at, &first, &payload);) {
            CHECK_INT(first, FIN | 10);
            note_message(&got, false, payload);
        }
        CHECK(str_eq(buf_view(&got), buf_view(&pongs)));
        bytes.len = 0;
        FRAME(&bytes, FIN | 8,
              "\x03\xe8"
              "bye");
        feed_split(&bytes, 3);
        CHECK_INT(seen.close_code, 1000);
        CHECK_STR(seen.close_reason, "bye");
        CHECK(fake.ended);
    }
}

TEST(ws_pause_holds_messages_and_loses_none)
{
    autobuf struct buf bytes = { 0 }, model = { 0 }, pongs = { 0 };
    unsigned controls = WS_PINGS_MAX;

    open_ws();
    seen.pause_each = true;
    for (int i = 0; i < 20; i++)
        random_message(&bytes, &model, &pongs, &controls);
    feed_split(&bytes, 5000);
    CHECK(fake.paused);
    CHECK_INT(seen.count, 1);
    for (unsigned i = 2; i <= 20; i++) {
        ws_resume(the_ws);
        CHECK_INT(seen.count, i - 1); /* not from inside the call */
        fake_run(0);
        CHECK_INT(seen.count, i);
    }
    CHECK(str_eq(buf_view(&seen.messages), buf_view(&model)));
    CHECK(fake.paused);
    ws_resume(the_ws);
    fake_run(0);
    CHECK(!fake.paused);
    fake_gone();
}

TEST(ws_paused_input_is_bounded)
{
    static char chunk[65536];
    autobuf struct buf bytes = { 0 };

    open_ws();
    seen.pause_each = true;
    FRAME(&bytes, FIN | 1, "pause now");
    fake_feed(bytes.data, bytes.len, false);
    for (int i = 0; i < 16; i++)
        fake_feed(chunk, sizeof(chunk), false);
    CHECK_INT(seen.close_code, 0);
    fake_feed(chunk, 1, false);
    CHECK_INT(seen.close_code, 1006);
}

TEST(ws_sends_frames_of_every_length_form)
{
    static const size_t sizes[] = { 0, 1, 125, 126, 4096, 4097, 65535, 65536, 200000 };
    static char data[200000];
    struct str payload;
    unsigned first;
    size_t at = 0;

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)('a' + i % 26);
    open_ws();
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        CHECK(ws_send(the_ws, i % 2, (struct str){ data, sizes[i] }) == HTTP_OK);
        CHECK(next_frame(&at, &first, &payload));
        CHECK_INT(first, FIN | (i % 2 ? 1 : 2));
        CHECK(str_eq(payload, (struct str){ data, sizes[i] }));
    }
    fake_gone();
}

/* ---- rules ---- */

TEST(ws_fails_broken_frames_with_the_right_code)
{
    /* clang-format off */
    static const struct { const char *what; unsigned first; bool mask; const char *data; size_t len; int code; } cases[] = {
        { "reserved bit 1", FIN | 0x40 | 1, true, "x", 1, 1002 },
        { "reserved bit 2", FIN | 0x20 | 1, true, "x", 1, 1002 },
        { "reserved bit 3", FIN | 0x10 | 9, true, "x", 1, 1002 },
        { "no mask", FIN | 1, false, "x", 1, 1002 },
        { "no mask, empty", FIN | 1, false, "", 0, 1002 },
        { "opcode 3", FIN | 3, true, "x", 1, 1002 },
        { "opcode 7", FIN | 7, true, "", 0, 1002 },
        { "opcode 11", FIN | 11, true, "", 0, 1002 },
        { "opcode 15", FIN | 15, true, "x", 1, 1002 },
        { "continuation of nothing", FIN, true, "x", 1, 1002 },
        { "ping in fragments", 9, true, "x", 1, 1002 },
        { "close of one byte", FIN | 8, true, "\x03", 1, 1002 },
        { "close 999", FIN | 8, true, "\x03\xe7", 2, 1002 },
        { "close 1004", FIN | 8, true, "\x03\xec", 2, 1002 },
        { "close 1005", FIN | 8, true, "\x03\xed", 2, 1002 },
        { "close 1006", FIN | 8, true, "\x03\xee", 2, 1002 },
        { "close 1015", FIN | 8, true, "\x03\xf7", 2, 1002 },
        { "close 2999", FIN | 8, true, "\x0b\xb7", 2, 1002 },
        { "close 5000", FIN | 8, true, "\x13\x88", 2, 1002 },
        { "close reason not UTF-8", FIN | 8, true, "\x03\xe8\xff", 3, 1007 },
        { "text not UTF-8", FIN | 1, true, "ok\xc0\xaf", 4, 1007 },
        { "text a surrogate", FIN | 1, true, "\xed\xa0\x80", 3, 1007 },
        { "text half a character", FIN | 1, true, "\xe2\x82", 2, 1007 },
        { "close without code", FIN | 8, true, "", 0, 1005 },
        { "close 1000", FIN | 8, true, "\x03\xe8", 2, 1000 },
        { "close 1014", FIN | 8, true, "\x03\xf6", 2, 1014 },
        { "close 3000", FIN | 8, true, "\x0b\xb8", 2, 3000 },
        { "close 4999", FIN | 8, true, "\x13\x87", 2, 4999 },
    };
    /* clang-format on */
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autobuf struct buf bytes = { 0 };

        put_frame(&bytes, cases[i].first, cases[i].mask, cases[i].data, cases[i].len);
        fprintf(stderr, "%s\n", cases[i].what);
        check_closed(&bytes, cases[i].code);
        CHECK_INT(seen.count, 0);
    }
}

TEST(ws_fails_broken_length_forms)
{
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
        { "\x89\xfe\x00\x7e", 4 },                       /* ping of 126 */
        { "\x82\xfe\x00\x7d\0\0\0\0x", 9 },              /* 125 in 16 bits */
        { "\x82\xff\0\0\0\0\0\0\xff\xff\0\0\0\0x", 15 }, /* 65535 in 64 bits */
        { "\x82\xff\x80\0\0\0\0\0\0\0\0\0\0\0x", 15 },   /* top bit */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autobuf struct buf bytes = { 0 };

        buf_append(&bytes, cases[i].bytes, cases[i].len);
        check_closed(&bytes, 1002);
    }
}

TEST(ws_fails_messages_begun_inside_others)
{
    autobuf struct buf bytes = { 0 };

    FRAME(&bytes, 1, "be");
    FRAME(&bytes, FIN | 2, "gun");
    check_closed(&bytes, 1002);
}

TEST(ws_text_may_split_inside_a_character)
{
    autobuf struct buf bytes = { 0 };

    open_ws();
    FRAME(&bytes, 1, "\xe2\x82");
    FRAME(&bytes, FIN | 9, "between");
    FRAME(&bytes, FIN, "\xac");
    feed_split(&bytes, 4);
    CHECK_INT(seen.count, 1);
    CHECK(seen.messages.len == 8 && memcmp(seen.messages.data + 5, "\xe2\x82\xac", 3) == 0);
    fake_gone();
}

TEST(ws_message_limit)
{
    static char data[WS_MESSAGE_MAX + 1];
    autobuf struct buf whole = { 0 }, over = { 0 }, parts = { 0 }, many = { 0 };

    put_frame(&whole, FIN | 2, true, data, WS_MESSAGE_MAX);
    open_ws();
    feed_split(&whole, 65536);
    CHECK_INT(seen.count, 1);
    CHECK_INT(seen.close_code, 0);
    fake_gone();

    put_frame(&over, FIN | 2, true, data, WS_MESSAGE_MAX + 1);
    open_ws();
    feed_split(&over, 65536);
    CHECK_INT(seen.close_code, 1009);
    CHECK_INT(sent_close(), 1009);

    put_frame(&parts, 2, true, data, WS_MESSAGE_MAX);
    put_frame(&parts, FIN, true, data, 0);
    open_ws();
    feed_split(&parts, 65536);
    CHECK_INT(seen.count, 1);
    fake_gone();

    put_frame(&many, 2, true, data, WS_MESSAGE_MAX);
    put_frame(&many, FIN, true, data, 1);
    open_ws();
    feed_split(&many, 65536);
    CHECK_INT(seen.close_code, 1009);
    CHECK_INT(seen.count, 0);
}

TEST(ws_empty_frame_limit)
{
    autobuf struct buf most = { 0 }, over = { 0 };

    for (int message = 0; message < 2; message++) {
        for (int i = 0; i < WS_EMPTY_MAX; i++)
            put_frame(&most, i == 0 ? 2 : 0, true, "", 0);
        FRAME(&most, FIN, "end");
    }
    open_ws();
    feed_split(&most, 100);
    CHECK_INT(seen.count, 2);
    CHECK_INT(seen.close_code, 0);
    fake_gone();

    for (int i = 0; i < WS_EMPTY_MAX + 1; i++)
        put_frame(&over, i == 0 ? 2 : 0, true, "", 0);
    open_ws();
    feed_split(&over, 100);
    CHECK_INT(seen.close_code, 1008);
    CHECK_INT(sent_close(), 1008);
}

TEST(ws_ping_limit)
{
    autobuf struct buf bytes = { 0 };

    open_ws();
    for (int i = 0; i < WS_PINGS_MAX; i++)
        FRAME(&bytes, FIN | (i % 2 ? 9 : 10), "p");
    feed_split(&bytes, 100);
    CHECK_INT(seen.close_code, 0);
    bytes.len = 0;
    FRAME(&bytes, FIN | 9, "p");
    feed_split(&bytes, 100);
    CHECK_INT(seen.close_code, 1008);
    CHECK_INT(sent_close(), 1008);
}

/* ---- closing ---- */

TEST(ws_close_waits_for_the_answer)
{
    autobuf struct buf bytes = { 0 };

    open_ws();
    ws_close(the_ws, 4000, "done here");
    ws_close(the_ws, 4001, "twice");
    CHECK_INT(sent_close(), 4000);
    CHECK(ws_send(the_ws, true, STR("late")) == HTTP_CUT);
    FRAME(&bytes, FIN | 1, "was on its way");
    FRAME(&bytes, FIN | 9, "ping");
    feed_split(&bytes, 7);
    CHECK_INT(seen.count, 0);
    CHECK_INT(seen.close_code, 0);
    bytes.len = 0;
    FRAME(&bytes, FIN | 8, "\x0f\xa0");
    feed_split(&bytes, 7);
    CHECK_INT(seen.close_code, 4000);
    CHECK(fake.ended);
    CHECK_INT(sent_close(), 4000);
}

TEST(ws_close_inside_a_message_is_safe)
{
    autobuf struct buf bytes = { 0 };

    open_ws();
    seen.close_at = 2;
    for (int i = 0; i < 4; i++)
        FRAME(&bytes, FIN | 1, "m");
    FRAME(&bytes, FIN | 8, "\x03\xe8");
    FRAME(&bytes, FIN | 1, "after the end");
    fake_feed(bytes.data, bytes.len, false);
    CHECK_INT(seen.count, 2);
    CHECK_INT(seen.close_code, 1000);
    CHECK_INT(sent_close(), 1000);
}

TEST(ws_close_has_a_deadline)
{
    ws_set_times(0, 20);
    open_ws();
    ws_close(the_ws, 1001, NULL);
    fake_run(10);
    CHECK_INT(seen.close_code, 0);
    fake_run(30);
    CHECK_INT(seen.close_code, 1006);
    CHECK(fake.cut);
    ws_set_times(0, WS_CLOSE_MS);
}

TEST(ws_close_reason_is_never_half_a_character)
{
    static const char euro[3] = { '\xe2', '\x82', '\xac' };
    char reason[200] = { 0 };
    struct str payload;
    unsigned first;
    size_t at = 0;

    for (size_t i = 0; i < 60; i++)
        memcpy(reason + i * sizeof(euro), euro, sizeof(euro));
    open_ws();
    ws_close(the_ws, 1000, reason);
    CHECK(next_frame(&at, &first, &payload));
    CHECK_INT(payload.n, 2 + 123 / 3 * 3);
    CHECK(str_utf8(str_from(payload, 2)));
    fake_gone();
}

TEST(ws_notices_a_peer_that_vanishes)
{
    autobuf struct buf bytes = { 0 };

    open_ws();
    FRAME(&bytes, 1, "half a mess");
    fake_feed(bytes.data, bytes.len, false);
    fake_feed(NULL, 0, true);
    CHECK_INT(seen.close_code, 1006);
    CHECK_INT(seen.count, 0);
}

TEST(ws_pings_a_silent_peer_and_cuts_it)
{
    autobuf struct buf pong = { 0 };
    struct str payload;
    unsigned first;
    size_t at = 0;

    ws_set_times(150, 0);
    open_ws();
    FRAME(&pong, FIN | 10, "");
    fake_run(200);
    CHECK(next_frame(&at, &first, &payload));
    CHECK_INT(first, FIN | 9);
    fake_feed(pong.data, pong.len, false);
    fake_run(150);
    CHECK_INT(seen.close_code, 0);
    CHECK(next_frame(&at, &first, &payload));
    fake_run(200);
    CHECK_INT(seen.close_code, 1006);
    CHECK(fake.cut);

    open_ws();
    ws_pause(the_ws); /* we do not listen: silence proves nothing */
    fake_run(500);
    CHECK_INT(seen.close_code, 0);
    fake_gone();
    ws_set_times(WS_PING_MS, 0);
}

TEST(ws_reader_that_stops_is_told_1013)
{
    static char data[100000];
    enum http_flow flow;
    unsigned sent = 0;

    open_ws();
    fake.stuck = true;
    while ((flow = ws_send(the_ws, false, (struct str){ data, sizeof(data) })) != HTTP_CUT)
        CHECK(flow == (++sent * (sizeof(data) + 10) > HTTP_OUT_HIGH ? HTTP_FULL : HTTP_OK));
    CHECK_INT(sent, HTTP_OUT_MAX / (sizeof(data) + 10));
    CHECK_INT(sent_close(), 1013);
    CHECK_INT(seen.close_code, 0); /* not from inside the call */
    CHECK(ws_unsent(the_ws) <= HTTP_OUT_MAX);
    CHECK_INT(seen.drains, 0);
    fake_gone();
    CHECK_INT(seen.close_code, 1006);
}

TEST(ws_tells_when_there_is_room_again)
{
    static char data[HTTP_OUT_HIGH];

    open_ws();
    fake.stuck = true;
    CHECK(ws_send(the_ws, false, (struct str){ data, sizeof(data) }) == HTTP_FULL);
    CHECK_INT(seen.drains, 0);
    fake_drain();
    CHECK_INT(seen.drains, 1);
    CHECK(ws_send(the_ws, false, STR("more")) == HTTP_OK);
    fake_gone();
}

TEST(ws_cut_during_a_send_ends_later)
{
    open_ws();
    fake.stuck = true;
    fake.unsent = HTTP_OUT_MAX - 200; /* room by our count, none by the server's */
    CHECK(ws_send(the_ws, true, STR("x")) == HTTP_FULL);
    fake.unsent = HTTP_OUT_MAX;
    ws_close(the_ws, 1000, NULL);
    CHECK_INT(seen.close_code, 0);
    fake_run(0);
    CHECK_INT(seen.close_code, 1006);
}
