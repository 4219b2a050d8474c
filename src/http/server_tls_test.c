/* The same server behind TLS: with large bodies, with slow readers, and without plain HTTP. */
#include <errno.h>

#include "base/log.h"
#include "http/http_rig.h"
#include "net/tls_rig.h"

#define H "\r\nHost: a\r\n"

static char block[65536];

static void echo(struct http_req *req, struct str body)
{
    http_reply(req, 200, NULL, 0, body);
}

static void produce(struct http_req *req)
{
    size_t *left = req->app;

    while (*left) {
        *left -= sizeof(block);
        if (http_reply_write(req, (struct str){ block, sizeof(block) }) != HTTP_OK && *left)
            return;
    }
    http_reply_end(req, NULL, 0);
}

static void on_request(void *ctx, struct http_req *req)
{
    static size_t left;

    (void)ctx;
    rig.requests++;
    req->on_gone = rig_count_gone;
    if (str_is(req->path, "/echo")) {
        http_read_all(req, 8 << 20, echo);
    } else if (str_is(req->path, "/flood")) {
        left = 16u << 20;
        req->app = &left;
        req->on_drain = produce;
        http_reply_begin(req, 200, NULL, 0);
        produce(req);
    } else {
        http_reply(req, 200, NULL, 0, req->peer->tls ? STR("secret") : STR("leaked"));
    }
}

static struct tls *tls;

static void start(const struct http_options *options)
{
    autopem struct tls_pem pem = tls_pem_new("localhost");
    struct err err;

    log_setup(LOG_ERROR + 1, LOG_TEXT, "test");
    CHECK_OK(tls_new(&tls, str_of(pem.cert), str_of(pem.key), &err), &err);
    rig_start_at("127.0.0.1:0", on_request, options, tls);
}

static void stop(void)
{
    rig_stop();
    tls_free(tls);
}

static SSL *connect_tls(int fd, const char *alpn)
{
    SSL *ssl = tls_client(fd, alpn, 0);

    CHECK(SSL_connect(ssl) == 1);
    return ssl;
}

static void send_all(SSL *ssl, struct str data)
{
    while (data.n) {
        int n = SSL_write(ssl, data.p, (int)MIN(data.n, (size_t)1 << 20));

        CHECK(n > 0);
        data = str_from(data, (size_t)n);
    }
}

/* Reads until `text` has come. */
static void read_until(SSL *ssl, struct buf *in, const char *text)
{
    size_t len = strlen(text);

    while (in->len < len || memcmp(in->data + in->len - len, text, len) != 0) {
        char *room = buf_reserve(in, 65536);
        int n = SSL_read(ssl, room, 65536);

        if (n <= 0)
            test_fail(__FILE__, __LINE__, "ends early: %.*s", STR_FMT(buf_view(in)));
        in->len += (size_t)n;
    }
}

TEST(plain_http_is_refused)
{
    static const char *const asked[] = { "GET / HTTP/1.1" H "\r\n",
                                         "POST /echo HTTP/1.1" H "Content-Length: 5\r\n\r\nhello",
                                         "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" };

    start(NULL);
    for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
        autoanswer struct answer answer = { 0 };

        rig_ask(asked[i], &answer);
        CHECK_INT(answer.status, 400);
        CHECK(body_is(&answer, "{\"error\":\"invalid\"}"));
    }
    CHECK_INT(rig.requests, 0);
    stop();
}

TEST(what_is_neither_tls_nor_http_is_not_answered)
{
    char byte;

    start(NULL);
    autoclose int fd = rig_connect();
    CHECK(send(fd, "\x80\x2e\x01", 3, 0) == 3);
    CHECK_INT(recv(fd, &byte, 1, 0), 0);
    stop();
}

TEST(requests_follow_each_other_with_and_without_alpn)
{
    autobuf struct buf in = { 0 };

    start(NULL);
    static const char *const offers[] = { NULL, "\x08http/1.1" };
    for (size_t i = 0; i < ARRAY_LEN(offers); i++) {
        autoclose int fd = rig_connect();
        SSL *ssl = connect_tls(fd, offers[i]);

        for (int round = 0; round < 3; round++) {
            buf_clear(&in);
            send_all(ssl, STR("GET / HTTP/1.1" H "\r\n"));
            read_until(ssl, &in, "secret");
        }
        SSL_free(ssl);
    }
    stop();
}

TEST(pipelines_and_bodies_of_many_records)
{
    autobuf struct buf in = { 0 }, out = { 0 }, body = { 0 };

    start(NULL);
    autoclose int fd = rig_connect();
    SSL *ssl = connect_tls(fd, NULL);
    for (int i = 0; i < 300; i++)
        buf_puts(&out, "GET / HTTP/1.1" H "\r\n");
    for (int i = 0; i < 3000000; i++)
        buf_putc(&body, (char)('a' + test_rand(26)));
    buf_printf(&out, "POST /echo HTTP/1.1" H "Content-Length: %zu\r\n\r\n", body.len);
    buf_str(&out, buf_view(&body));
    buf_puts(&body, "!");
    send_all(ssl, buf_view(&out));
    send_all(ssl, STR("POST /echo HTTP/1.1" H "Content-Length: 1\r\n\r\n!"));
    read_until(ssl, &in, "\r\n\r\n!");
    CHECK_INT(rig.requests, 302);
    CHECK(memmem(in.data, in.len, body.data, body.len - 1));
    SSL_free(ssl);
    stop();
}

static void doze(struct post *post)
{
    (void)post;
    poll(NULL, 0, 300);
}

/*
 * What the library has read ahead the socket does not announce. Here the server wakes up to more
 * than it reads at once, in records so small that the rest is in the library when it stops reading.
 */
TEST(bytes_inside_the_library_are_not_forgotten)
{
    static struct post nap = { .fn = doze };
    autobuf struct buf in = { 0 }, out = { 0 };

    start(NULL);
    autoclose int fd = rig_connect();
    SSL *ssl = connect_tls(fd, NULL);
    send_all(ssl, STR("GET / HTTP/1.1" H "\r\n")); /* the handshake is over */
    read_until(ssl, &in, "secret");
    buf_puts(&out, "POST /echo HTTP/1.1" H "Content-Length: 65600\r\n\r\n");
    size_t size = out.len + 65600;
    while (out.len < size - 11)
        buf_putc(&out, 'x');
    buf_puts(&out, "0123456789!");
    loop_post(rig.loop, &nap);
    poll(NULL, 0, 20);
    for (size_t at = 0; at < out.len; at += 16)
        send_all(ssl, (struct str){ out.data + at, MIN(out.len - at, 16u) });
    read_until(ssl, &in, "x0123456789!");
    SSL_free(ssl);
    stop();
}

/* The goodbye lies in the library behind the request, and nothing more comes from the socket. */
TEST(a_goodbye_behind_a_request_is_seen)
{
    static struct post nap = { .fn = doze };
    autobuf struct buf in = { 0 };
    char byte;

    start(NULL);
    autoclose int fd = rig_connect();
    SSL *ssl = connect_tls(fd, NULL);
    send_all(ssl, STR("GET / HTTP/1.1" H "\r\n"));
    read_until(ssl, &in, "secret");
    buf_clear(&in);
    loop_post(rig.loop, &nap);
    poll(NULL, 0, 20);
    send_all(ssl, STR("GET / HTTP/1.1" H "\r\n"));
    SSL_shutdown(ssl);
    read_until(ssl, &in, "secret");
    CHECK(SSL_read(ssl, &byte, 1) == 0); /* answered and closed, not kept for a minute */
    CHECK(SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN);
    SSL_free(ssl);
    stop();
}

TEST(a_slow_reader_gets_everything)
{
    autobuf struct buf in = { 0 };

    start(NULL);
    autoclose int fd = rig_connect();
    SSL *ssl = connect_tls(fd, NULL);
    send_all(ssl, STR("GET /flood HTTP/1.1" H "\r\n"));
    poll(NULL, 0, 100);
    read_until(ssl, &in, "\r\n0\r\n\r\n");
    CHECK(in.len > 16u << 20);
    CHECK_INT(rig.gone, 0);
    SSL_free(ssl);
    stop();
}

TEST(a_reader_that_stops_is_cut)
{
    struct http_options options = { .write_stall_ms = 200 };

    start(&options);
    autoclose int fd = rig_connect();
    SSL *ssl = connect_tls(fd, NULL);
    send_all(ssl, STR("GET /flood HTTP/1.1" H "\r\n"));
    rig_wait(rig.gone, 1);
    CHECK_INT(rig_conns(), 0);
    SSL_free(ssl);
    stop();
}

TEST(a_handshake_that_stops_is_dropped)
{
    struct http_options options = { .head_timeout_ms = 150 };
    autobuf struct buf in = { 0 };

    start(&options);
    autoclose int fd = rig_connect();
    rig_send(fd, STR("\x16\x03\x01\x02\x00\x01"));
    rig_read_end(fd, &in);
    CHECK_INT(in.len, 0);
    CHECK_INT(rig_conns(), 0);
    stop();
}

TEST(garbage_instead_of_a_hello)
{
    autobuf struct buf in = { 0 };

    start(NULL);
    autoclose int fd = rig_connect();
    rig_send(fd, STR("\x16garbage that is no hello of any kind, long enough to be read"));
    rig_read_end(fd, &in); /* an alert, then the end */
    CHECK(in.len < 20);
    CHECK_INT(rig.requests, 0);
    stop();
}

TEST(closing_says_goodbye_first)
{
    autobuf struct buf in = { 0 };
    char byte;

    start(NULL);
    autoclose int fd = rig_connect();
    SSL *ssl = connect_tls(fd, NULL);
    send_all(ssl, STR("GET / HTTP/1.1" H "Connection: close\r\n\r\n"));
    read_until(ssl, &in, "secret");
    CHECK(SSL_read(ssl, &byte, 1) == 0);
    CHECK(SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN);
    SSL_free(ssl);
    stop();
}
