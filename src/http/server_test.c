/*
 * HTTP/1.1 through real sockets: answers and their framing, bad requests, order, upgrades, and who
 * is told when somebody leaves. Bodies are in server_body_test.c, limits and time in
 * server_limits_test.c.
 */
#include <errno.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "base/metric.h"
#include "http/http_rig_app.h"

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

/* Many more than are answered per turn and than fit any buffer of ours. */
TEST(a_long_pipeline_is_answered_to_its_end)
{
    static const char request[] = "GET /hello HTTP/1.1" H "\r\n";
    autoclose int fd = -1;
    autobuf struct buf out = { 0 }, in = { 0 };
    const int portions = 60, each = 500;

    start();
    fd = rig_connect();
    for (int i = 0; i < each; i++)
        buf_puts(&out, request);
    for (int i = 0; i < portions; i++) {
        rig_send(fd, buf_view(&out));
        while (!rig_silent(fd, 0)) /* or both of us would wait for ever */
            CHECK(rig_more(fd, &in));
    }
    shutdown(fd, SHUT_WR);
    rig_read_end(fd, &in);
    int answers = 0;
    for (const char *at = in.data;
         (at = memmem(at, in.len - (size_t)(at - in.data), "\r\n\r\nhello", 9)); at++)
        answers++;
    CHECK_INT(answers, portions * each);
    CHECK_INT(rig.requests, portions * each);
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

/* An echo that never listens to HTTP_FULL: its input is stopped before its output is cut. */
TEST(a_peer_that_does_not_read_is_not_read_from)
{
    static char block[32768];
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };
    size_t sent = 0, got;

    start();
    autoclose int fd = rig_connect();
    rig_puts(fd, "GET /upgrade HTTP/1.1" H "\r\n");
    rig_answer(fd, &in, false, &answer);
    memset(block, 'x', sizeof(block));
    for (int idle = 0; idle < 20 && sent < 64u << 20;) { /* until nobody moves any more */
        ssize_t n = send(fd, block, sizeof(block), MSG_NOSIGNAL | MSG_DONTWAIT);

        idle = n > 0 ? 0 : idle + 1;
        sent += n > 0 ? (size_t)n : 0;
        if (n < 0)
            poll(NULL, 0, 5);
    }
    CHECK(sent < 64u << 20);
    for (got = in.len; got < sent; got += in.len) {
        buf_clear(&in);
        CHECK(rig_more(fd, &in));
    }
    CHECK_INT(got, sent);
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
        while (!rig_silent(fd, 5)) { /* unread bytes would turn the close into a reset */
            autobuf struct buf in = { 0 };

            CHECK(rig_more(fd, &in));
        }
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
    if (at)
        return strtoll(at + strlen(line), NULL, 10);
    test_fail(__FILE__, __LINE__, "no metric %s", name);
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
