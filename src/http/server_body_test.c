/* Bodies of requests through real sockets: limits, streams, what nobody reads, expectations. */
#include <errno.h>

#include "http/http_rig_app.h"

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

/* The limit is the application's, not that of a buffer somewhere. */
TEST(a_body_may_be_as_large_as_the_application_says)
{
    static char block[1 << 20];
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };

    start();
    autoclose int fd = rig_connect();
    rig_puts(fd, "POST /huge HTTP/1.1" H "Content-Length: 68157440\r\n\r\n");
    for (int i = 0; i < 65; i++)
        rig_send(fd, (struct str){ block, sizeof(block) });
    rig_answer(fd, &in, false, &answer);
    CHECK(body_is(&answer, "68157440"));
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
    static const char body[10000];
    autobuf struct buf in = { 0 };
    autoanswer struct answer answer = { 0 };

    start();
    autoclose int fd = rig_connect();
    rig_puts(fd, "POST /echo HTTP/1.1" H "Content-Length: 800000\r\n\r\n");
    CHECK(!rig_silent(fd, 5000)); /* the refusal is here, and we do not look */
    for (int i = 0; i < 20; i++) {
        rig_send(fd, (struct str){ body, sizeof(body) });
        poll(NULL, 0, 2);
    }
    rig_answer(fd, &in, false, &answer);
    CHECK_INT(answer.status, 413);
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
