/*
 * HTTP/1.1 through real sockets: framing both ways, order, bodies, expectations, upgrades, and who
 * is told when somebody leaves. Limits and time are in server_limits_test.c.
 */
#include <errno.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "base/log.h"
#include "base/metric.h"
#include "http/http_rig.h"

#define H "\r\nHost: a\r\n"

static const struct http_header plain = { STR("content-type"), STR("text/plain") };

static void reply(struct http_req *req, struct str body)
{
    http_reply(req, 200, &plain, 1, body);
}

/* ---- an answer that comes later ---- */

struct later {
    struct timer timer;
    struct http_req *req;
};

static void later_gone(struct http_req *req)
{
    struct later *later = req->app;

    rig.gone++;
    timer_cancel(rig.loop, &later->timer);
    free(later);
}

static void later_due(struct timer *timer)
{
    struct later *later = container_of(timer, struct later, timer);

    reply(later->req, later->req->query);
    free(later);
}

static void answer_later(struct http_req *req, int64_t ms, void (*fn)(struct timer *timer))
{
    struct later *later = xnew(struct later);

    later->timer.fn = fn;
    later->req = req;
    req->app = later;
    req->on_gone = later_gone;
    timer_set(rig.loop, &later->timer, ms);
}

/* ---- bodies ---- */

static void echo_all(struct http_req *req, struct str body)
{
    reply(req, body);
}

static void echo_piece(struct http_req *req, struct str data, bool last)
{
    http_reply_write(req, data);
    if (last)
        http_reply_end(req, NULL, 0);
}

static void answer_at_last(struct http_req *req, struct str data, bool last)
{
    (void)data;
    if (last)
        reply(req, STR("all read"));
}

static void read_now(struct timer *timer)
{
    struct later *later = container_of(timer, struct later, timer);
    struct http_req *req = later->req;

    free(later);
    req->on_gone = rig_count_gone;
    http_read_all(req, 1000, echo_all);
}

/* Takes a piece, pauses for a moment, takes the next. */
static void resume(struct timer *timer)
{
    struct later *later = container_of(timer, struct later, timer);
    struct http_req *req = later->req;

    free(later);
    req->on_gone = rig_count_gone;
    http_read_resume(req);
}

static void sip(struct http_req *req, struct str data, bool last)
{
    http_reply_write(req, data);
    if (last) {
        http_reply_end(req, NULL, 0);
        return;
    }
    http_read_pause(req);
    answer_later(req, 1, resume);
}

/* ---- routes ---- */

static void route_hello(struct http_req *req)
{
    reply(req, STR("hello"));
}

static void route_echo(struct http_req *req)
{
    http_read_all(req, 1000, echo_all);
}

static void route_echo_stream(struct http_req *req)
{
    http_read_stream(req, 4 << 20, echo_piece);
    http_reply_begin(req, 200, &plain, 1);
}

static void route_sip(struct http_req *req)
{
    http_read_stream(req, 4 << 20, sip);
    http_reply_begin(req, 200, &plain, 1);
}

static void route_swallow(struct http_req *req)
{
    http_read_stream(req, 1000, answer_at_last);
}

static void route_later(struct http_req *req)
{
    answer_later(req, (int64_t)(req->query.n % 7), later_due);
}

static void route_slow(struct http_req *req)
{
    answer_later(req, 100, later_due);
}

static void route_read_later(struct http_req *req)
{
    answer_later(req, 20, read_now);
}

static void route_chunks(struct http_req *req)
{
    static const struct http_header trailer = { STR("x-end"), STR("yes") };

    http_reply_begin(req, 200, &plain, 1);
    http_reply_write(req, STR("one "));
    http_reply_write(req, STR(""));
    http_reply_write(req, STR("two"));
    http_reply_end(req, &trailer, 1);
}

static void route_promise(struct http_req *req)
{
    static const struct http_header size = { STR("content-length"), STR("5") };

    http_reply_begin(req, 200, &size, 1);
    http_reply_write(req, STR("abc"));
    http_reply_write(req, str_is(req->query, "long") ? STR("def") : STR("de"));
    http_reply_end(req, NULL, 0);
}

static void route_broken_promise(struct http_req *req)
{
    static const struct http_header size = { STR("content-length"), STR("5") };

    http_reply_begin(req, 200, &size, 1);
    http_reply_write(req, STR("abc"));
    http_reply_end(req, NULL, 0);
}

static void route_empty(struct http_req *req)
{
    http_reply(req, 204, NULL, 0, STR_NONE);
}

static void route_same(struct http_req *req)
{
    http_reply(req, 304, NULL, 0, STR_NONE);
}

static void route_inject(struct http_req *req)
{
    static const struct http_header headers[] = {
        { STR("x-one"), STR("a\r\nx-evil: 1") },
        { STR("x two"), STR("b") },
        { STR("x-three\r\nx-evil"), STR("c") },
        { STR("x-four"), STR("d\0") },
        { STR("transfer-encoding"), STR("gzip") },
        { STR("Content-Length"), STR("99") },
        { STR("x-good"), STR("e\tf") },
        { STR("cache-control"), STR("max-age=1") },
    };

    http_reply(req, 200, headers, ARRAY_LEN(headers), STR("x"));
}

static void route_events(struct http_req *req)
{
    req->on_gone = rig_count_gone;
    http_reply_begin(req, 200, &plain, 1);
    http_slim(req);
    http_reply_write(req, STR("first\n"));
}

static void route_cut(struct http_req *req)
{
    req->on_gone = rig_count_gone;
    http_cut(req, "because");
}

static void raw_piece(struct http_req *req, struct str data, bool last)
{
    http_reply_write(req, data);
    if (last || (data.n && memchr(data.p, '.', data.n))) {
        http_reply_write(req, last ? STR("<end>") : STR("<dot>"));
        http_reply_end(req, NULL, 0);
    }
}

static void route_upgrade(struct http_req *req)
{
    static const struct http_header upgrade = { STR("upgrade"), STR("echo") };

    req->on_gone = rig_count_gone;
    http_reply_begin(req, 101, &upgrade, 1);
    http_read_stream(req, UINT64_MAX, raw_piece);
}

static void route_peer(struct http_req *req)
{
    char text[200];
    int len = snprintf(text, sizeof(text), "%s|%s|%d|%d|%u|%d", req->peer->text, req->peer->addr,
                       req->peer->local, req->peer->loopback, req->peer->uid, req->peer->pid);

    reply(req, (struct str){ text, (size_t)len });
}

static const struct {
    const char *path;
    void (*fn)(struct http_req *req);
} routes[] = {
    { "/hello", route_hello },
    { "/echo", route_echo },
    { "/swallow", route_swallow },
    { "/echo-stream", route_echo_stream },
    { "/sip", route_sip },
    { "/later", route_later },
    { "/slow", route_slow },
    { "/read-later", route_read_later },
    { "/chunks", route_chunks },
    { "/promise", route_promise },
    { "/broken", route_broken_promise },
    { "/empty", route_empty },
    { "/same", route_same },
    { "/inject", route_inject },
    { "/events", route_events },
    { "/cut", route_cut },
    { "/upgrade", route_upgrade },
    { "/peer", route_peer },
};

static void on_request(void *ctx, struct http_req *req)
{
    (void)ctx;
    rig.requests++;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        if (str_is(req->path, routes[i].path)) {
            routes[i].fn(req);
            return;
        }
    http_reply(req, 404, NULL, 0, STR("nothing here"));
}

static void start(void)
{
    log_setup(LOG_ERROR + 1, LOG_TEXT, "test"); /* bad input is the point here */
    rig_start(on_request, NULL);
}

/* ---- answers ---- */

TEST(an_answer_has_what_it_needs)
{
    autoanswer struct answer answer = { 0 };

    start();
    rig_ask("GET /hello HTTP/1.1" H "\r\n", &answer);
    CHECK_INT(answer.status, 200);
    CHECK(body_is(&answer, "hello") && !answer.close);
    CHECK_STR(answer_header(&answer, "content-type"), "text/plain");
    CHECK_STR(answer_header(&answer, "content-length"), "5");
    CHECK_STR(answer_header(&answer, "cache-control"), "no-store");
    CHECK_STR(answer_header(&answer, "x-content-type-options"), "nosniff");
    CHECK_STR(answer_header(&answer, "referrer-policy"), "no-referrer");
    CHECK_STR(answer_header(&answer, "cross-origin-resource-policy"), "same-origin");
    const char *date = answer_header(&answer, "date");
    struct tm tm = { 0 };
    CHECK(date && strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &tm));
    CHECK(llabs(timegm(&tm) - clock_wall_ms() / 1000) <= 2);
    rig_ask("GET /nowhere HTTP/1.1" H "\r\n", &answer);
    CHECK(answer.status == 404 && body_is(&answer, "nothing here"));
    rig_stop();
}

TEST(what_the_application_says_cannot_split_the_answer)
{
    autoanswer struct answer answer = { 0 };

    start();
    rig_ask("GET /inject HTTP/1.1" H "\r\n", &answer);
    CHECK(!strstr(buf_cstr(&answer.head), "evil"));
    CHECK(!answer_header(&answer, "x-one") && !answer_header(&answer, "x two"));
    CHECK(!answer_header(&answer, "x-four") && !answer_header(&answer, "transfer-encoding"));
    CHECK_STR(answer_header(&answer, "content-length"), "1");
    CHECK_STR(answer_header(&answer, "x-good"), "e\tf");
    CHECK_STR(answer_header(&answer, "cache-control"), "max-age=1");
    CHECK(body_is(&answer, "x"));
    rig_stop();
}

TEST(streamed_answers_are_chunked_or_end_with_the_connection)
{
    autoanswer struct answer answer = { 0 };

    start();
    rig_ask("GET /chunks HTTP/1.1" H "\r\n", &answer);
    CHECK(answer.chunked && body_is(&answer, "one two"));
    CHECK_STR(buf_cstr(&answer.trailers), "x-end: yes\r\n");
    rig_ask("GET /chunks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &answer);
    CHECK(!answer.chunked && answer.close && body_is(&answer, "one two"));
    rig_ask("HEAD /chunks HTTP/1.1" H "\r\n", &answer);
    CHECK(answer.status == 200 && !answer.body.len);
    rig_stop();
}

TEST(a_promised_length_is_kept)
{
    autoanswer struct answer answer = { 0 };
    autobuf struct buf in = { 0 };

    start();
    rig_ask("GET /promise HTTP/1.1" H "\r\n", &answer);
    CHECK(!answer.chunked && body_is(&answer, "abcde"));
    static const char *const broken[] = { "GET /promise?long HTTP/1.1" H "\r\n",
                                          "GET /broken HTTP/1.1" H "\r\n" };
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) { /* cut: nothing can follow as a next answer */
        autoclose int fd = rig_connect();

        buf_clear(&in);
        rig_puts(fd, broken[i]);
        rig_read_end(fd, &in);
        CHECK(!in.len || !memmem(in.data, in.len, "abcdef", 6));
    }
    rig_stop();
}

TEST(heads_and_empty_answers_have_no_body)
{
    autoclose int fd = -1;
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };

    start();
    fd = rig_connect();
    rig_puts(fd, "HEAD /hello HTTP/1.1" H "\r\nGET /empty HTTP/1.1" H "\r\n"
                 "GET /same HTTP/1.1" H "\r\nGET /hello HTTP/1.1" H "\r\n");
    rig_answer(fd, &in, true, &answer);
    CHECK_STR(answer_header(&answer, "content-length"), "5");
    rig_answer(fd, &in, false, &answer);
    CHECK(answer.status == 204 && !answer_header(&answer, "content-length"));
    rig_answer(fd, &in, false, &answer);
    CHECK(answer.status == 304 && !answer_header(&answer, "content-length"));
    rig_answer(fd, &in, false, &answer);
    CHECK(answer.status == 200 && body_is(&answer, "hello"));
    rig_stop();
}

TEST(who_asks_for_close_gets_it)
{
    static const char *const requests[] = {
        "GET /hello HTTP/1.1" H "Connection: close\r\n\r\n",
        "GET /hello HTTP/1.0\r\n\r\n",
        "GET /later HTTP/1.1" H "Connection: close\r\n\r\n",
        "POST /echo HTTP/1.1" H "Connection: close\r\nContent-Length: 2\r\n\r\nhi",
    };

    start();
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        autoclose int fd = rig_connect();
        autobuf struct buf in = { 0 };
        autoanswer struct answer answer = { 0 };

        rig_puts(fd, requests[i]);
        rig_answer(fd, &in, false, &answer);
        CHECK(answer.status == 200 && answer.close);
        CHECK(!rig_more(fd, &in));
    }
    autoclose int fd = rig_connect();
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };
    for (int i = 0; i < 2; i++) {
        rig_puts(fd, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        rig_answer(fd, &in, false, &answer);
        CHECK_STR(answer_header(&answer, "connection"), "keep-alive");
    }
    rig_stop();
}

/* ---- bad requests ---- */

TEST(bad_requests_are_answered_and_the_connection_ends)
{
    static const struct {
        const char *text;
        int status;
        const char *body;
    } cases[] = {
        { "GET / HTTP/1.1\r\n\r\n", 400, "{\"error\":\"invalid\"}" },
        { "GET / HTTP/1.1\nHost: a\n\n", 400, "{\"error\":\"invalid\"}" },
        { "GET / HTTP/1.1" H "Host: b\r\n\r\n", 400, "{\"error\":\"invalid\"}" },
        { "GET / HTTP/3.0" H "\r\n", 505, "{\"error\":\"unsupported\"}" },
        { "\x16\x03\x01\x02", 400, "{\"error\":\"invalid\"}" },
        { "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", 505, "{\"error\":\"unsupported\"}" },
        { "GET / HTTP/1.1" H "Expect: x\r\n\r\n", 417, "{\"error\":\"expectation_failed\"}" },
        { "POST /echo HTTP/1.1" H "Transfer-Encoding: gzip\r\n\r\n", 501,
          "{\"error\":\"unsupported\"}" },
        { "POST /echo HTTP/1.1" H "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400,
          "{\"error\":\"invalid\"}" },
        { "POST /echo HTTP/1.1" H "Transfer-Encoding: chunked\r\n\r\nx\r\n", 400,
          "{\"error\":\"invalid\"}" },
        { "POST /echo HTTP/1.1" H "Transfer-Encoding: chunked\r\n\r\n2\r\nabc", 400,
          "{\"error\":\"invalid\"}" },
        { "POST /swallow HTTP/1.1" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\nx", 400,
          "{\"error\":\"invalid\"}" },
    };

    start();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autoclose int fd = rig_connect();
        autobuf struct buf in = { 0 };
        autoanswer struct answer answer = { 0 };

        rig_puts(fd, cases[i].text);
        rig_answer(fd, &in, false, &answer);
        if (answer.status != cases[i].status || !body_is(&answer, cases[i].body))
            test_fail(__FILE__, __LINE__, "%d %.*s for %s", answer.status,
                      STR_FMT(buf_view(&answer.body)), cases[i].text);
        CHECK(answer.close && !rig_more(fd, &in) && !in.len);
        CHECK_STR(answer_header(&answer, "content-type"), "application/json");
    }
    rig_stop();
}

TEST(a_request_behind_a_bad_one_is_not_looked_at)
{
    autoclose int fd = -1;
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };

    start();
    fd = rig_connect();
    rig_puts(fd, "GET /hello HTTP/1.1" H "\r\nGET / HTTP/1.1" H "X : y\r\n\r\n"
                 "GET /hello HTTP/1.1" H "\r\n");
    rig_answer(fd, &in, false, &answer);
    CHECK_INT(answer.status, 200);
    rig_answer(fd, &in, false, &answer);
    CHECK_INT(answer.status, 400);
    CHECK(!rig_more(fd, &in) && !in.len);
    CHECK_INT(rig.requests, 1);
    rig_stop();
}

/* ---- order ---- */

TEST(pipelined_answers_come_in_order_whenever_they_are_ready)
{
    autoclose int fd = -1;
    autobuf struct buf out = { 0 }, in = { 0 };
    autoanswer struct answer answer = { 0 };

    start();
    fd = rig_connect();
    for (int i = 0; i < 200; i++)
        buf_printf(&out, "GET /%s?%0*d HTTP/1.1" H "\r\n", i % 3 ? "later" : "hello", 1 + i % 11,
                   i);
    rig_send(fd, buf_view(&out));
    for (int i = 0; i < 200; i++) {
        char want[32];

        snprintf(want, sizeof(want), "%0*d", 1 + i % 11, i);
        rig_answer(fd, &in, false, &answer);
        CHECK(body_is(&answer, i % 3 ? want : "hello"));
    }
    CHECK_INT(rig.requests, 200);
    rig_stop();
}

/* Many more than are answered per turn, and than fit any buffer. */
TEST(a_long_pipeline_is_answered_to_its_end)
{
    autoclose int fd = -1;
    autobuf struct buf out = { 0 }, in = { 0 };
    autoanswer struct answer answer = { 0 };
    const int count = HTTP_PIPELINE_MAX * 40 + 1;

    start();
    fd = rig_connect();
    for (int i = 0; i < count; i++)
        buf_puts(&out, "GET /hello HTTP/1.1" H "\r\n");
    rig_send(fd, buf_view(&out)); /* the answers fit the socket buffers */
    for (int i = 0; i < count; i++) {
        rig_answer(fd, &in, false, &answer);
        CHECK_INT(answer.status, 200);
    }
    rig_stop();
}

/* ---- cuts ---- */

/* Everything but the date, which may tick. */
static void drop_dates(struct buf *text)
{
    for (;;) {
        char *at = text->len ? memmem(text->data, text->len, "date: ", 6) : NULL;

        if (!at)
            return;
        memmove(at, at + 37, text->len - (size_t)(at - text->data) - 37);
        text->len -= 37;
    }
}

TEST(cuts_in_the_input_do_not_change_the_answers)
{
    static const char script[] =
        "GET /hello HTTP/1.1" H "\r\n"
        "POST /echo HTTP/1.1" H "Content-Length: 11\r\n\r\nhello world"
        "POST /echo HTTP/1.1" H "Transfer-Encoding: chunked\r\n\r\n"
        "5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: u\r\n\r\n"
        "\r\nGET /later?abc HTTP/1.1" H "\r\n"
        "POST /nowhere HTTP/1.1" H "Content-Length: 5\r\n\r\n12345"
        "POST /nowhere HTTP/1.1" H "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
        "HEAD /hello HTTP/1.1" H "\r\n"
        "POST /read-later HTTP/1.1" H "Content-Length: 3\r\n\r\nabc"
        "POST /swallow HTTP/1.1" H "Content-Length: 4\r\n\r\nabcd"
        "POST /echo HTTP/1.1" H "\r\n"
        "GET /chunks HTTP/1.1" H "\r\n"
        "GET /hello HTTP/1.1" H "Connection: close\r\n\r\n";
    autobuf struct buf want = { 0 };

    start();
    for (int round = 0; round < 40; round++) {
        autoclose int fd = rig_connect();
        autobuf struct buf in = { 0 };
        struct str rest = str_of(script);
        uint32_t most = round == 0 ? 100000 : round == 1 ? 1 : 1 + test_rand(120);

        while (rest.n) {
            size_t len = 1 + test_rand(most);

            if (!round)
                len = rest.n;
            len = MIN(len, rest.n);
            rig_send(fd, (struct str){ rest.p, len });
            rest = str_from(rest, len);
            if (most < 100 && test_rand(8) == 0)
                poll(NULL, 0, 1);
        }
        rig_read_end(fd, &in);
        drop_dates(&in);
        if (!round)
            buf_str(&want, buf_view(&in));
        else if (!str_eq(buf_view(&want), buf_view(&in)))
            test_fail(__FILE__, __LINE__, "pieces of %u: %.*s", most, STR_FMT(buf_view(&in)));
    }
    CHECK(memmem(want.data, want.len, "all read", 8) && memmem(want.data, want.len, "one ", 4));
    rig_stop();
}

/* ---- bodies ---- */

TEST(bodies_within_and_over_the_limit)
{
    static const struct {
        const char *path;
        size_t size;
        bool chunked;
        int status;
    } cases[] = {
        { "/echo", 0, false, 200 },       { "/echo", 1000, false, 200 },
        { "/echo", 1001, false, 413 },    { "/echo", 0, true, 200 },
        { "/echo", 1000, true, 200 },     { "/echo", 1001, true, 413 },
        { "/swallow", 1000, false, 200 }, { "/swallow", 1001, false, 413 },
        { "/swallow", 1000, true, 200 },  { "/swallow", 1001, true, 413 },
    };

    start();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autobuf struct buf request = { 0 };
        autoanswer struct answer answer = { 0 };
        char body[1001];

        memset(body, 'x', sizeof(body));
        buf_printf(&request, "POST %s HTTP/1.1" H, cases[i].path);
        if (cases[i].chunked)
            buf_puts(&request, "Transfer-Encoding: chunked\r\n\r\n");
        else
            buf_printf(&request, "Content-Length: %zu\r\n\r\n", cases[i].size);
        if (cases[i].chunked && cases[i].size)
            buf_printf(&request, "%zx\r\n", cases[i].size);
        buf_append(&request, body, cases[i].size);
        if (cases[i].chunked)
            buf_puts(&request, cases[i].size ? "\r\n0\r\n\r\n" : "0\r\n\r\n");
        rig_ask(buf_cstr(&request), &answer);
        CHECK_INT(answer.status, cases[i].status);
        if (answer.status == 413)
            CHECK(answer.close && body_is(&answer, "{\"error\":\"too_large\"}"));
        else if (strcmp(cases[i].path, "/echo") == 0)
            CHECK_INT(answer.body.len, cases[i].size);
    }
    rig_stop();
}

/* A length over the limit is refused before any of the body has come. */
TEST(a_body_that_will_be_too_large_is_not_waited_for)
{
    autoanswer struct answer answer = { 0 };

    start();
    rig_ask("POST /echo HTTP/1.1" H "Content-Length: 1001\r\n\r\n", &answer);
    CHECK_INT(answer.status, 413);
    rig_ask("POST /echo HTTP/1.1" H "Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n",
            &answer);
    CHECK_INT(answer.status, 413);
    rig_stop();
}

static void big_body_through(const char *path, size_t size)
{
    autoclose int fd = rig_connect();
    autobuf struct buf body = { 0 }, in = { 0 };
    autoanswer struct answer answer = { 0 };
    char head[200];

    for (size_t i = 0; i < size; i++)
        buf_putc(&body, (char)test_rand(256));
    snprintf(head, sizeof(head), "POST %s HTTP/1.1" H "Content-Length: %zu\r\n\r\n", path, size);
    rig_puts(fd, head);
    for (size_t at = 0; at < size;) {
        size_t len = 1 + test_rand(50000);

        len = MIN(len, size - at);
        rig_send(fd, (struct str){ body.data + at, len });
        at += len;
        while (!rig_silent(fd, 0)) /* or both of us would wait for ever */
            CHECK(rig_more(fd, &in));
    }
    rig_answer(fd, &in, false, &answer);
    CHECK(str_eq(buf_view(&answer.body), buf_view(&body)));
    CHECK(!answer.close);
}

TEST(streamed_bodies_come_back_whole)
{
    start();
    big_body_through("/echo-stream", 2000000);
    big_body_through("/sip", 300000);
    rig_stop();
}

TEST(an_unread_body_is_passed_over_or_ends_the_connection)
{
    static const struct {
        size_t size;
        bool keeps;
    } cases[] = { { 100, true }, { 65536, true }, { 65537, false } };

    start();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autoclose int fd = rig_connect();
        autobuf struct buf out = { 0 }, in = { 0 };
        autoanswer struct answer answer = { 0 };

        buf_printf(&out, "POST /nowhere HTTP/1.1" H "Content-Length: %zu\r\n\r\n", cases[i].size);
        rig_send(fd, buf_view(&out));
        rig_answer(fd, &in, false, &answer);
        CHECK(answer.status == 404 && answer.close == !cases[i].keeps);
        buf_clear(&out);
        while (out.len < cases[i].size)
            buf_putc(&out, 'x');
        rig_send(fd, buf_view(&out)); /* must not be reset before the answer is read */
        if (cases[i].keeps) {
            rig_puts(fd, "GET /hello HTTP/1.1" H "\r\n");
            rig_answer(fd, &in, false, &answer);
            CHECK(body_is(&answer, "hello"));
        } else {
            CHECK(!rig_more(fd, &in));
        }
    }
    rig_stop();
}

/* Closing with bytes on their way would reset the connection and lose the answer. */
TEST(the_last_answer_survives_a_peer_that_goes_on_sending)
{
    start();
    for (int i = 0; i < 20; i++) {
        autoclose int fd = rig_connect();
        autobuf struct buf out = { 0 }, in = { 0 };
        autoanswer struct answer answer = { 0 };

        buf_puts(&out, "POST /echo HTTP/1.1" H "Content-Length: 800000\r\n\r\n");
        while (out.len < 800000)
            buf_putc(&out, 'x');
        rig_send(fd, buf_view(&out));
        rig_answer(fd, &in, false, &answer);
        CHECK_INT(answer.status, 413);
    }
    rig_stop();
}

/* ---- 100-continue ---- */

TEST(continue_is_said_when_the_body_is_wanted)
{
    static const char head[] =
        "POST /read-later HTTP/1.1" H "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    autoclose int fd = -1;
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };

    start();
    fd = rig_connect();
    rig_puts(fd, head);
    CHECK(rig_silent(fd, 5)); /* the application has not asked yet */
    rig_answer(fd, &in, false, &answer);
    CHECK(answer.status == 100 && !in.len);
    CHECK(rig_silent(fd, 20));
    rig_puts(fd, "hello");
    rig_answer(fd, &in, false, &answer);
    CHECK(answer.status == 200 && body_is(&answer, "hello"));

    rig_puts(fd, head); /* who does not wait for it does not get it */
    rig_puts(fd, "again");
    rig_answer(fd, &in, false, &answer);
    CHECK(answer.status == 200 && body_is(&answer, "again"));
    rig_stop();
}

TEST(an_answer_instead_of_continue_ends_the_connection)
{
    autoclose int fd = -1;
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };

    start();
    fd = rig_connect();
    rig_puts(fd, "POST /nowhere HTTP/1.1" H "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    rig_answer(fd, &in, false, &answer);
    CHECK(answer.status == 404 && answer.close);
    CHECK(!rig_more(fd, &in));
    rig_stop();
}

/* ---- raw bytes ---- */

TEST(after_an_upgrade_bytes_go_both_ways)
{
    start();
    for (int i = 0; i < 2; i++) {
        autoclose int fd = rig_connect();
        autobuf struct buf in = { 0 };
        autoanswer struct answer answer = { 0 };

        rig_puts(fd,
                 "GET /upgrade HTTP/1.1" H "Connection: upgrade\r\nUpgrade: echo\r\n\r\nearly ");
        rig_answer(fd, &in, false, &answer);
        CHECK(answer.status == 101);
        CHECK_STR(answer_header(&answer, "connection"), "upgrade");
        CHECK_STR(answer_header(&answer, "upgrade"), "echo");
        rig_until(fd, &in, 0, "early ");
        rig_puts(fd, "GET / HTTP\r\n\r\n"); /* just bytes now */
        rig_until(fd, &in, 0, "HTTP\r\n\r\n");
        if (i) {
            rig_puts(fd, ".");
            rig_read_end(fd, &in);
            CHECK(memmem(in.data, in.len, ".<dot>", 6));
        } else {
            shutdown(fd, SHUT_WR);
            rig_read_end(fd, &in);
            CHECK(memmem(in.data, in.len, "<end>", 5));
        }
    }
    CHECK_INT(rig.gone, 0);
    rig_stop();
}

/* ---- leaving ---- */

static void leave(int fd, bool reset)
{
    struct linger now = { .l_onoff = 1 };

    if (reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
}

TEST(whoever_waits_for_an_answer_and_leaves_is_reported)
{
    static const struct {
        const char *request;
        bool reset;
    } cases[] = {
        { "GET /events HTTP/1.1" H "\r\n", false },
        { "GET /events HTTP/1.1" H "\r\n", true },
        { "GET /slow HTTP/1.1" H "\r\n", true },
        { "POST /read-later HTTP/1.1" H "Content-Length: 9\r\n\r\nabc", false },
        { "GET /upgrade HTTP/1.1" H "\r\n", true },
    };

    start();
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        int fd = rig_connect();

        rig_puts(fd, cases[i].request);
        rig_wait(rig.requests, i + 1);
        poll(NULL, 0, 5);
        leave(fd, cases[i].reset);
        rig_wait(rig.gone, i + 1);
    }
    CHECK_INT(rig.gone, ARRAY_LEN(cases));
    CHECK_INT(rig_conns(), 0);
    rig_stop();
}

TEST(half_closed_clients_get_their_answers)
{
    autoclose int fd = -1;
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };

    start();
    fd = rig_connect();
    rig_puts(fd, "GET /slow?one HTTP/1.1" H "\r\nGET /later?two HTTP/1.1" H "\r\n"
                 "POST /echo HTTP/1.1" H "Content-Length: 5\r\n\r\nthree");
    shutdown(fd, SHUT_WR);
    rig_answer(fd, &in, false, &answer);
    CHECK(body_is(&answer, "one"));
    rig_answer(fd, &in, false, &answer);
    CHECK(body_is(&answer, "two"));
    rig_answer(fd, &in, false, &answer);
    CHECK(body_is(&answer, "three"));
    CHECK(!rig_more(fd, &in));
    rig_stop();
}

TEST(a_body_that_ends_early_is_no_request)
{
    autobuf struct buf in = { 0 };

    start();
    autoclose int fd = rig_connect();
    rig_puts(fd, "POST /echo HTTP/1.1" H "Content-Length: 5\r\n\r\nfour");
    shutdown(fd, SHUT_WR);
    rig_read_end(fd, &in);
    CHECK_INT(in.len, 0);
    rig_stop();
}

TEST(the_application_may_cut)
{
    autobuf struct buf in = { 0 };

    start();
    autoclose int fd = rig_connect();
    rig_puts(fd, "GET /cut HTTP/1.1" H "\r\nGET /hello HTTP/1.1" H "\r\n");
    rig_read_end(fd, &in);
    CHECK_INT(in.len, 0);
    CHECK_INT(rig.gone, 0);
    CHECK_INT(rig.requests, 1);
    rig_stop();
}

/* ---- peers ---- */

TEST(peers_are_named)
{
    autoanswer struct answer answer = { 0 };
    autofree char *path = xprintf("unix:%s/sock", test_dir());
    char want[64];

    log_setup(LOG_ERROR + 1, LOG_TEXT, "test");
    rig_start_at(path, on_request, NULL, NULL);
    rig_ask("GET /peer HTTP/1.1" H "\r\n", &answer);
    snprintf(want, sizeof(want), "unix:uid=%u|unix:uid=%u|1|1|%u|%d", getuid(), getuid(), getuid(),
             getpid());
    CHECK(body_is(&answer, want));
    rig_stop();

    rig_start_at("[::1]:0", on_request, NULL, NULL);
    rig_ask("GET /peer HTTP/1.1" H "\r\n", &answer);
    CHECK(strncmp(buf_cstr(&answer.body), "[::1]:", 6) == 0);
    CHECK(strstr(answer.body.data, "|::1|0|1|0|0"));
    rig_stop();

    rig_start(on_request, NULL);
    rig_ask("GET /peer HTTP/1.1" H "\r\n", &answer);
    CHECK(strncmp(buf_cstr(&answer.body), "127.0.0.1:", 10) == 0);
    CHECK(strstr(answer.body.data, "|127.0.0.1|0|1|0|0"));
    rig_stop();
}

/* ---- metrics ---- */

static long long metric_value(const char *name)
{
    autobuf struct buf text = { 0 };
    autofree char *line = xprintf("\n%s", name);

    metric_text(&text);
    const char *at = strstr(buf_cstr(&text), line);
    if (!at)
        test_fail(__FILE__, __LINE__, "no metric %s", name);
    return strtoll(at + strlen(line), NULL, 10);
}

TEST(metrics_move)
{
    static const char *const names[] = {
        "atoll_http_requests_total{status=\"2xx\"} ",
        "atoll_http_requests_total{status=\"4xx\"} ",
        "atoll_http_connections_total{result=\"accepted\"} ",
        "atoll_http_request_seconds_count ",
    };
    static const long long moves[] = { 2, 1, 3, 3 };
    long long before[4], bytes = metric_value("atoll_http_received_bytes_total ");
    autoanswer struct answer answer = { 0 };

    start();
    for (size_t i = 0; i < 4; i++)
        before[i] = metric_value(names[i]);
    rig_ask("GET /hello HTTP/1.1" H "\r\n", &answer);
    rig_ask("GET /later?1 HTTP/1.1" H "\r\n", &answer);
    rig_ask("GET /nowhere HTTP/1.1" H "\r\n", &answer);
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(metric_value(names[i]) - before[i], moves[i]);
    CHECK(metric_value("atoll_http_received_bytes_total ") > bytes + 60);
    rig_stop();
}
