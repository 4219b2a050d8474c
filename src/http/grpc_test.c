/*
 * gRPC framing against a naive model: messages of random sizes, the body cut anywhere, in the
 * three content types; then each rule that a client can break, and how the status comes out.
 */
#include "http/grpc.h"

#include <openssl/evp.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/test.h"
#include "http/http_fake.h"

static struct seen {
    struct buf messages; /* length and bytes of each */
    unsigned count, ends, cancels, drains;
    unsigned finish_at; /* grpc_finish in this message; 0 never */
    bool pause_each;
} seen;

static struct grpc *the_call;

static void note(struct buf *out, struct str data)
{
    uint32_t len = (uint32_t)data.n;

    buf_append(out, &len, sizeof(len));
    buf_str(out, data);
}

static void saw_message(struct grpc *call, struct str message)
{
    CHECK(call == the_call);
    CHECK(grpc_ctx(call) == &seen);
    CHECK_INT(seen.ends + seen.cancels, 0);
    note(&seen.messages, message);
    seen.count++;
    if (seen.pause_each)
        grpc_pause(call);
    if (seen.count == seen.finish_at)
        grpc_finish(call, GRPC_OK, NULL);
}

static void saw_end(struct grpc *call)
{
    CHECK(call == the_call);
    seen.ends++;
}

static void saw_drain(struct grpc *call)
{
    CHECK(call == the_call);
    seen.drains++;
}

static void saw_cancel(struct grpc *call)
{
    CHECK(call == the_call);
    CHECK(grpc_send(call, STR("too late")) == HTTP_CUT);
    seen.cancels++;
    the_call = NULL;
}

static const struct grpc_ops ops = { saw_message, saw_end, saw_drain, saw_cancel };

static void ask(enum http_version version, const char *type)
{
    static struct loop *loop;
    struct err err;

    if (!loop)
        CHECK_OK(loop_new(&loop, &err), &err);
    buf_free(&seen.messages);
    seen = (struct seen){ 0 };
    fake_reset(loop, version, "POST");
    fake_header("content-type", type);
    fake.req.started_us = clock_mono_us();
}

static void open_call(enum http_version version, const char *type)
{
    ask(version, type);
    CHECK(grpc_wanted(&fake.req));
    the_call = grpc_begin(&fake.req, &ops, &seen);
    CHECK(the_call != NULL);
}

static void put_message(struct buf *out, unsigned flag, const void *data, size_t len)
{
    buf_putc(out, (char)flag);
    for (int shift = 24; shift >= 0; shift -= 8)
        buf_putc(out, (char)(len >> shift));
    buf_append(out, data, len);
}

static void feed_split(struct str bytes, size_t piece_max, bool last)
{
    for (size_t at = 0; at < bytes.n;) {
        size_t n = 1 + test_rand((uint32_t)piece_max);

        n = MIN(n, bytes.n - at);
        at += n;
        fake_feed(bytes.p + at - n, n, last && at == bytes.n && test_rand(2));
    }
    if (last && !seen.ends && !seen.cancels && the_call)
        fake_feed(NULL, 0, true);
}

static void to_base64(struct buf *out, struct str data)
{
    /* Clients encode piece by piece, so that padding stands in the middle. */
    for (size_t at = 0; at < data.n;) {
        unsigned char text[136];
        size_t n = 1 + test_rand(100);

        n = MIN(n, data.n - at);
        buf_append(out, text,
                   (size_t)EVP_EncodeBlock(text, (const unsigned char *)data.p + at, (int)n));
        at += n;
    }
}

static bool said(const struct buf *where, const char *line)
{
    autobuf struct buf copy = { 0 };

    buf_str(&copy, buf_view(where));
    return strstr(buf_cstr(&copy), line) != NULL;
}

/* The bytes of the answer, decoded if they are text. */
static void answer_bytes(struct buf *out, bool text)
{
    if (!text) {
        buf_str(out, buf_view(&fake.body));
        return;
    }
    CHECK_INT(fake.body.len % 4, 0);
    for (size_t at = 0; at < fake.body.len; at += 4) {
        unsigned char bytes[3];
        const char *quad = fake.body.data + at;

        CHECK_INT(EVP_DecodeBlock(bytes, (const unsigned char *)quad, 4), 3);
        buf_append(out, bytes, quad[2] == '=' ? 1 : quad[3] == '=' ? 2 : 3);
    }
}

static const char *const types[] = {
    "application/grpc",           "application/grpc+proto",    "application/grpc-web",
    "application/grpc-web+proto", "application/grpc-web-text", "application/grpc-web-text+proto",
};

TEST(grpc_knows_its_content_types)
{
    static const char *const others[] = { "application/grpcx",     "application/grpc+json",
                                          "application/json",      "application/grpc-web-",
                                          "text/application/grpc", "" };

    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        ask(HTTP_2, others[i]);
        CHECK(!grpc_wanted(&fake.req));
    }
    ask(HTTP_2, "Application/gRPC; charset=utf-8");
    CHECK(grpc_wanted(&fake.req));
    ask(HTTP_2, "x");
    fake.req.header_count = 0;
    CHECK(!grpc_wanted(&fake.req));
}

TEST(grpc_gives_the_messages_that_were_sent_however_they_arrive)
{
    static char data[70000];

    for (int round = 0; round < 120; round++) {
        autobuf struct buf bytes = { 0 }, model = { 0 }, text = { 0 };
        const char *type = types[test_rand(ARRAY_LEN(types))];
        bool is_text = strstr(type, "text");

        open_call(HTTP_2, type);
        for (unsigned i = 0, n = test_rand(12); i < n; i++) {
            size_t len = test_rand(test_rand(5) ? 200 : sizeof(data));

            for (size_t k = 0; k < len; k++)
                data[k] = (char)test_rand(256);
            put_message(&bytes, 0, data, len);
            note(&model, (struct str){ data, len });
        }
        if (is_text)
            to_base64(&text, buf_view(&bytes));
        feed_split(buf_view(is_text ? &text : &bytes), test_rand(2) ? 7 : 30000, true);
        CHECK(str_eq(buf_view(&seen.messages), buf_view(&model)));
        CHECK_INT(seen.ends, 1);
        CHECK_INT(seen.cancels, 0);
        grpc_finish(the_call, GRPC_OK, NULL);
        CHECK(fake.ended);
    }
}

TEST(grpc_pause_holds_messages_and_loses_none)
{
    autobuf struct buf bytes = { 0 }, model = { 0 };

    open_call(HTTP_2, "application/grpc");
    seen.pause_each = true;
    for (unsigned i = 0; i < 20; i++) {
        put_message(&bytes, 0, "0123456789abcdefghijk", i);
        note(&model, (struct str){ "0123456789abcdefghijk", i });
    }
    feed_split(buf_view(&bytes), 40, true);
    CHECK(fake.paused);
    for (unsigned i = 1; i <= 20; i++) {
        CHECK_INT(seen.count, i);
        CHECK_INT(seen.ends, 0);
        grpc_resume(the_call);
        CHECK_INT(seen.count, i); /* not from inside the call */
        fake_run(0);
    }
    CHECK(str_eq(buf_view(&seen.messages), buf_view(&model)));
    CHECK_INT(seen.ends, 1);
    CHECK(!fake.paused);
    fake_gone();
    CHECK_INT(seen.cancels, 1);
}

/* ---- answers ---- */

TEST(grpc_answers_in_trailers)
{
    open_call(HTTP_2, "application/grpc+proto");
    CHECK(grpc_send(the_call, STR("one")) == HTTP_OK);
    CHECK(grpc_send(the_call, STR("")) == HTTP_OK);
    CHECK_INT(fake.status, 200);
    CHECK(said(&fake.head, "content-type: application/grpc+proto\n"));
    CHECK(said(&fake.head, "grpc-accept-encoding: identity\n"));
    CHECK(!said(&fake.head, "grpc-status"));
    grpc_finish(the_call, GRPC_NOT_FOUND, "no \xc3\xbc 100%\n");
    CHECK(str_eq(buf_view(&fake.body), STR("\0\0\0\0\3one\0\0\0\0\0")));
    CHECK(said(&fake.trailers, "grpc-status: 5\n"));
    CHECK(said(&fake.trailers, "grpc-message: no %C3%BC 100%25%0A\n"));
    CHECK_INT(seen.cancels, 0);
}

TEST(grpc_answers_trailers_only)
{
    open_call(HTTP_2, "application/grpc");
    grpc_finish(the_call, GRPC_UNAUTHENTICATED, "who?");
    CHECK_INT(fake.status, 200);
    CHECK(fake.ended);
    CHECK_INT(fake.body.len, 0);
    CHECK(said(&fake.head, "content-type: application/grpc\n"));
    CHECK(said(&fake.head, "grpc-status: 16\n"));
    CHECK(said(&fake.head, "grpc-message: who?\n"));

    ask(HTTP_2, "application/grpc");
    grpc_refuse(&fake.req, GRPC_UNIMPLEMENTED, NULL);
    CHECK(said(&fake.head, "grpc-status: 12\n"));
    CHECK(!said(&fake.head, "grpc-message"));
}

TEST(grpc_web_answers_in_the_body)
{
    for (size_t i = 2; i < ARRAY_LEN(types); i++) {
        autobuf struct buf got = { 0 }, want = { 0 };
        bool text = i >= 4;

        open_call(i % 2 ? HTTP_2 : HTTP_1_1, types[i]);
        grpc_send(the_call, STR("hello"));
        grpc_finish(the_call, GRPC_ABORTED, "try again");
        CHECK(said(&fake.head, types[i]));
        CHECK_INT(fake.trailers.len, 0);
        put_message(&want, 0, "hello", 5);
        put_message(&want, 0x80, "grpc-status: 10\r\ngrpc-message: try again\r\n", 42);
        answer_bytes(&got, text);
        CHECK(str_eq(buf_view(&got), buf_view(&want)));

        ask(HTTP_1_1, types[i]);
        grpc_refuse(&fake.req, GRPC_INTERNAL, NULL);
        got.len = want.len = 0;
        put_message(&want, 0x80, "grpc-status: 13\r\n", 17);
        answer_bytes(&got, text);
        CHECK(str_eq(buf_view(&got), buf_view(&want)));
    }
}

TEST(grpc_status_message_is_bounded)
{
    static char text[5000];

    memset(text, 'x', sizeof(text) - 1);
    open_call(HTTP_2, "application/grpc");
    grpc_finish(the_call, GRPC_INTERNAL, text);
    CHECK(fake.head.len < 1300);
}

TEST(grpc_finish_inside_a_message_is_safe)
{
    autobuf struct buf bytes = { 0 };

    open_call(HTTP_2, "application/grpc");
    seen.finish_at = 2;
    for (int i = 0; i < 5; i++)
        put_message(&bytes, 0, "abc", 3);
    fake_feed(bytes.data, bytes.len, true);
    CHECK_INT(seen.count, 2);
    CHECK_INT(seen.ends + seen.cancels, 0);
    CHECK(said(&fake.head, "grpc-status: 0\n"));
}

TEST(grpc_back_pressure)
{
    static char data[HTTP_OUT_HIGH];

    open_call(HTTP_2, "application/grpc");
    fake.stuck = true;
    CHECK(grpc_send(the_call, (struct str){ data, sizeof(data) }) == HTTP_FULL);
    fake_drain();
    CHECK_INT(seen.drains, 1);
    fake.stuck = true;
    fake.unsent = HTTP_OUT_MAX;
    CHECK(grpc_send(the_call, STR("x")) == HTTP_CUT);
    CHECK_INT(seen.cancels, 0); /* not from inside the call */
    fake_run(0);
    CHECK_INT(seen.cancels, 1);
}

TEST(grpc_finish_after_the_client_left_is_safe)
{
    open_call(HTTP_2, "application/grpc");
    fake.stuck = true;
    fake.unsent = HTTP_OUT_MAX;
    CHECK(grpc_send(the_call, STR("x")) == HTTP_CUT);
    grpc_finish(the_call, GRPC_OK, NULL);
    fake_run(0);
    CHECK_INT(seen.cancels, 0);
}

/* ---- rules ---- */

static void check_fails(struct str bytes, int status)
{
    char line[32];

    feed_split(bytes, 9, true);
    snprintf(line, sizeof(line), "grpc-status: %d\n", status);
    CHECK(said(&fake.head, line));
    CHECK_INT(seen.cancels, 1);
    CHECK_INT(seen.ends, 0);
    CHECK(fake.ended);
}

TEST(grpc_fails_broken_bodies)
{
    open_call(HTTP_2, "application/grpc");
    check_fails(STR("\1\0\0\0\3abc"), GRPC_INTERNAL); /* compressed, no encoding named */
    open_call(HTTP_2, "application/grpc");
    check_fails(STR("\2\0\0\0\3abc"), GRPC_INTERNAL); /* unknown flag */
    open_call(HTTP_2, "application/grpc");
    check_fails(STR("\0\0\0\0\3ab"), GRPC_INTERNAL); /* ends inside a message */
    open_call(HTTP_2, "application/grpc");
    check_fails(STR("\0\0\0"), GRPC_INTERNAL); /* ends inside a prefix */

    ask(HTTP_2, "application/grpc");
    fake_header("grpc-encoding", "gzip");
    the_call = grpc_begin(&fake.req, &ops, &seen);
    check_fails(STR("\0\0\0\0\1a\1\0\0\0\3abc"), GRPC_UNIMPLEMENTED);
    CHECK_INT(seen.count, 1);
    CHECK(said(&fake.head, "grpc-accept-encoding: identity\n"));
}

TEST(grpc_fails_text_that_is_not_base64)
{
    static const char *const bad[] = { "AAAA*AAA", "AA=A", "=AAA", "A===",    "AAAAA",
                                       "AB==",     "AAB=", "AAA-", "AAAAAAB=" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autobuf struct buf got = { 0 };

        open_call(HTTP_1_1, "application/grpc-web-text");
        feed_split(str_of(bad[i]), 3, true);
        CHECK_INT(seen.cancels, 1);
        answer_bytes(&got, true);
        CHECK(strstr(buf_cstr(&got) + 5, "grpc-status: 13\r\n"));
    }
}

TEST(grpc_message_limit)
{
    static char data[GRPC_MESSAGE_MAX];
    autobuf struct buf bytes = { 0 };

    put_message(&bytes, 0, data, sizeof(data));
    open_call(HTTP_2, "application/grpc");
    feed_split(buf_view(&bytes), 65536, true);
    CHECK_INT(seen.count, 1);
    CHECK_INT(seen.ends, 1);
    grpc_finish(the_call, GRPC_OK, NULL);
    bytes.data[4] = (char)(bytes.data[4] + 1);
    open_call(HTTP_2, "application/grpc");
    fake_feed(bytes.data, 5, false); /* refused by its prefix, before any byte of it */
    CHECK(said(&fake.head, "grpc-status: 8\n"));
    CHECK_INT(seen.cancels, 1);
}

TEST(grpc_paused_input_is_bounded)
{
    static char chunk[65536];
    autobuf struct buf bytes = { 0 };

    open_call(HTTP_2, "application/grpc");
    seen.pause_each = true;
    put_message(&bytes, 0, "pause", 5);
    fake_feed(bytes.data, bytes.len, false);
    for (size_t i = 0; i < GRPC_MESSAGE_MAX / sizeof(chunk); i++)
        fake_feed(chunk, sizeof(chunk), false);
    CHECK_INT(seen.cancels, 0);
    fake_feed(chunk, 1, false);
    CHECK_INT(seen.cancels, 1);
    CHECK(said(&fake.head, "grpc-status: 8\n"));
}

static void check_refused(void)
{
    the_call = grpc_begin(&fake.req, &ops, &seen);
    CHECK(the_call && !grpc_req(the_call));
    CHECK(fake.ended);
    CHECK(grpc_send(the_call, STR("nobody listens")) == HTTP_CUT);
    CHECK_INT(seen.cancels, 0); /* not from inside the call */
    fake_run(0);
    CHECK_INT(seen.cancels, 1);
}

TEST(grpc_refuses_what_cannot_be_a_call)
{
    ask(HTTP_1_1, "application/grpc");
    check_refused();
    CHECK_INT(fake.status, 505);
    ask(HTTP_2, "application/grpc");
    fake.req.method = STR("GET");
    check_refused();
    CHECK_INT(fake.status, 405);
    ask(HTTP_2, "text/plain");
    check_refused();
    CHECK_INT(fake.status, 415);
    ask(HTTP_2, "application/grpc");
    fake_header("grpc-timeout", "soon");
    check_refused();
    CHECK(said(&fake.head, "grpc-status: 13\n"));
    open_call(HTTP_1_1, "application/grpc-web");
    fake_gone();
    CHECK_INT(seen.cancels, 1);

    ask(HTTP_1_1, "application/grpc"); /* a handler that ends it first is not told */
    the_call = grpc_begin(&fake.req, &ops, &seen);
    grpc_finish(the_call, GRPC_OK, NULL);
    fake_run(0);
    CHECK_INT(seen.cancels, 0);
}

TEST(grpc_reads_timeouts)
{
    /* clang-format off */
    static const struct { const char *text; int64_t ms; } good[] = {
        { "1H", 3600000 }, { "2M", 120000 }, { "3S", 3000 }, { "4m", 4 }, { "0m", 0 },
        { "5000u", 5 }, { "5001u", 6 }, { "1n", 0 }, { "0n", 0 }, { "999n", 0 }, { "1000n", 1 },
        { "1000000n", 1 }, { "1u", 1 },
        { "99999999H", 99999999ll * 3600000 }, { "00000001S", 1000 },
    };
    /* clang-format on */
    static const char *const bad[] = { "",   "S",  "1",   "1s",         "-1S",
                                       "1h", "1 ", " 1S", "123456789S", "1.5S" };
    int64_t ms;

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        CHECK(grpc_timeout(str_of(good[i].text), &ms));
        CHECK_INT(ms, good[i].ms);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK(!grpc_timeout(str_of(bad[i]), &ms));
}

TEST(grpc_deadline_passes)
{
    ask(HTTP_2, "application/grpc");
    fake_header("grpc-timeout", "30m");
    the_call = grpc_begin(&fake.req, &ops, &seen);
    fake_run(10);
    CHECK_INT(seen.cancels, 0);
    grpc_send(the_call, STR("partial"));
    fake_run(40);
    CHECK_INT(seen.cancels, 1);
    CHECK(said(&fake.trailers, "grpc-status: 4\n"));

    ask(HTTP_2, "application/grpc");
    fake_header("grpc-timeout", "20m");
    the_call = grpc_begin(&fake.req, &ops, &seen);
    grpc_finish(the_call, GRPC_OK, NULL);
    fake_run(40);
    CHECK_INT(seen.cancels, 0);
}
