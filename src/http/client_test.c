/*
 * The client against a scripted server: a thread that says what it was told to say, whole, in
 * pieces, too late, cut off, or under TLS.
 */
#include "http/client.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "http/client_head.h"

/* ---- a server that says what it was told to say ---- */

struct script {
    int fd; /* owned by the thread */
    struct str say;
    size_t step;       /* bytes at a time; 0: all at once */
    int silent_ms;     /* stays open without a word afterwards */
    int refuse_now;    /* answers and closes before it has read anything */
    const char *until; /* hears up to this; NULL: up to the end of a head */
    char heard[4096];
    pthread_t thread;
};

static void hear(struct script *script)
{
    size_t len = 0;
    const char *until = script->until ? script->until : "\r\n\r\n";

    while (len < sizeof(script->heard) - 1 && !strstr(script->heard, until)) {
        ssize_t got = recv(script->fd, script->heard + len, sizeof(script->heard) - 1 - len, 0);

        if (got <= 0)
            return;
        len += (size_t)got;
        script->heard[len] = 0;
    }
}

static void *play(void *arg)
{
    struct script *script = arg;
    size_t at = 0;

    if (!script->refuse_now)
        hear(script);
    while (at < script->say.n) {
        size_t len = script->say.n - at;

        if (script->step)
            len = MIN(len, script->step);
        ssize_t sent = send(script->fd, script->say.p + at, len, MSG_NOSIGNAL);
        if (sent < 0)
            break;
        at += (size_t)sent;
    }
    if (script->silent_ms) {
        struct timespec pause = { script->silent_ms / 1000,
                                  (long)(script->silent_ms % 1000) * 1000000 };
        nanosleep(&pause, NULL);
    }
    shutdown(script->fd, SHUT_WR);
    close(script->fd);
    return NULL;
}

static int begin(struct script *script)
{
    int pair[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    script->fd = pair[0];
    CHECK(pthread_create(&script->thread, NULL, play, script) == 0);
    return pair[1];
}

static const struct client_target nowhere = { .host = "localhost" };

struct result {
    int rc;
    struct err err;
    struct client_reply reply;
    struct buf body;
};

static void result_free(struct result *result)
{
    buf_free(&result->body);
}
#define autoresult auto_with(result_free)

/* Runs the script against the client and reads the body in pieces of at most `piece` bytes. */
static struct result run(struct script *script, const struct client_request *wanted, size_t piece)
{
    const struct client_request get = { .method = "GET", .path = "/x" };
    struct result result = { .rc = -1 };
    struct client_options options = { .deadline_ms = clock_mono_ms() + test_patience(5000) };
    autoclient struct client *client = NULL;
    char part[4096];

    if (script->silent_ms)
        options.deadline_ms = clock_mono_ms() + 100;
    int fd = begin(script);
    int rc = client_start_on(&client, fd, &nowhere, wanted ? wanted : &get, &options, &result.reply,
                             &result.err);
    while (rc == 0) {
        ssize_t got = client_read(client, part, MIN(piece, sizeof(part)), &result.err);

        if (got > 0)
            buf_append(&result.body, part, (size_t)got);
        else if (got == 0)
            result.rc = 0, rc = 1;
        else
            rc = -1;
    }
    client_free(take_ptr(&client));
    pthread_join(script->thread, NULL);
    return result;
}

static struct result ask(const char *say)
{
    struct script script = { .say = str_of(say), .step = 7 };

    return run(&script, NULL, 4096);
}

static void check_body(const char *say, int status, const char *body)
{
    autoresult struct result result = ask(say);

    CHECK_OK(result.rc, &result.err);
    CHECK_INT(result.reply.status, status);
    CHECK_STR(buf_cstr(&result.body), body);
}

static void check_fails(const char *say, enum err_code code)
{
    autoresult struct result result = ask(say);

    if (result.rc == 0 || result.err.code != code)
        test_fail(__FILE__, __LINE__, "%.60s: rc %d, %s %s", say, result.rc,
                  err_info(result.err.code)->name, result.err.msg);
}

TEST(client_reads_every_framing)
{
    check_body("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello");
    check_body("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more", 200, "hello");
    check_body(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n"
        "Sum: 1\r\n\r\n",
        200, "hello");
    check_body("HTTP/1.0 200 \r\n\r\nuntil the end", 200, "until the end");
    check_body("HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello", 204, "");
    check_body("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, "");
    check_body("HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 103 Hint\r\nA: b\r\n\r\nHTTP/1.1 404 No\r\n"
               "content-length: 1\r\n\r\nx",
               404, "x");
}

TEST(client_takes_what_it_needs_from_the_head)
{
    autoresult struct result result =
        ask("HTTP/1.1 429 Slow\r\nContent-Type: application/json\r\nX-Request-Id: r1\r\n"
            "Retry-After: 7\r\nContent-Length: 2\r\n\r\n{}");

    CHECK_OK(result.rc, &result.err);
    CHECK_STR(result.reply.content_type, "application/json");
    CHECK_STR(result.reply.request_id, "r1");
    CHECK_INT(result.reply.retry_after, 7);
    CHECK_INT(result.reply.length, 2);
}

TEST(client_refuses_truncated_replies)
{
    check_fails("", ERR_UNAVAILABLE);
    check_fails("HTTP/1.1 200 OK\r\nContent-Le", ERR_UNAVAILABLE);
    check_fails("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", ERR_UNAVAILABLE);
    check_fails("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhell", ERR_UNAVAILABLE);
    check_fails("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                ERR_UNAVAILABLE);
    check_fails("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", ERR_UNAVAILABLE);
}

TEST(client_refuses_what_is_not_http)
{
    static const char *const heads[] = {
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000\r\n\r\n",
        "HTTP/1.1 099 x\r\n\r\n",
        "HTTP/1.1 600 x\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nnameless\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: x\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: x\x01\r\n\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1 \r\nx\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000000000000000\r\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        check_fails(heads[i], ERR_INTERNAL);
}

TEST(client_refuses_two_lengths_whatever_the_body)
{
    struct client_reply reply;
    enum client_framing framing;
    struct err err = { 0 };

    CHECK(
        client_head_parse(STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked"),
                          false, &reply, &framing, &err) < 0);
    CHECK(
        client_head_parse(STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5"),
                          false, &reply, &framing, &err) < 0);
    CHECK_OK(client_head_parse(STR("HTTP/1.1 200 OK\r\nContent-Length: 5"), true, &reply, &framing,
                               &err),
             &err);
    CHECK(framing == FRAMED_NONE); /* to HEAD there is no body */
}

/* A reply made of a prefix, a run of one byte, and a suffix. */
static struct result long_reply(const char *prefix, char fill, size_t count, const char *suffix)
{
    autobuf struct buf say = { 0 };

    buf_puts(&say, prefix);
    for (size_t i = 0; i < count; i++)
        buf_putc(&say, fill);
    buf_puts(&say, suffix);
    struct script script = { .say = buf_view(&say) };
    return run(&script, NULL, 4096);
}

TEST(client_limits_head)
{
    const char *start = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: ";
    size_t most = HTTP_HEAD_MAX - strlen(start) - 4;

    autoresult struct result fits = long_reply(start, 'a', most, "\r\n\r\n");
    CHECK_OK(fits.rc, &fits.err);
    autoresult struct result over = long_reply(start, 'a', most + 1, "\r\n\r\n");
    CHECK_INT(over.rc, -1);
    CHECK_INT(over.err.code, ERR_HEADERS);
}

TEST(client_limits_fields)
{
    for (int extra = 0; extra < 2; extra++) {
        autobuf struct buf say = { 0 };

        buf_puts(&say, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n");
        for (int i = 1; i < HTTP_FIELDS_MAX + extra; i++)
            buf_puts(&say, "A: b\r\n");
        buf_puts(&say, "\r\n");
        struct script script = { .say = buf_view(&say) };
        autoresult struct result result = run(&script, NULL, 4096);
        CHECK_INT(result.rc, extra ? -1 : 0);
        if (extra)
            CHECK_INT(result.err.code, ERR_HEADERS);
    }
}

TEST(client_limits_chunk_line_and_trailer)
{
    const char *start = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0";

    autoresult struct result fits = long_reply(start, ';', HTTP_CHUNK_LINE_MAX - 1, "\r\n\r\n");
    CHECK_OK(fits.rc, &fits.err);
    autoresult struct result over = long_reply(start, ';', HTTP_CHUNK_LINE_MAX, "\r\n\r\n");
    CHECK_INT(over.err.code, ERR_LIMIT);

    start = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA:";
    autoresult struct result tail = long_reply(start, 'a', HTTP_TRAILER_MAX - 6, "\r\n\r\n");
    CHECK_OK(tail.rc, &tail.err);
    autoresult struct result tail_over = long_reply(start, 'a', HTTP_TRAILER_MAX - 5, "\r\n\r\n");
    CHECK_INT(tail_over.err.code, ERR_LIMIT);
}

TEST(client_endless_interim_replies)
{
    autobuf struct buf say = { 0 };

    for (int i = 0; i < 20; i++)
        buf_puts(&say, "HTTP/1.1 102 Wait\r\n\r\n");
    buf_puts(&say, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    struct script script = { .say = buf_view(&say) };
    autoresult struct result result = run(&script, NULL, 4096);
    CHECK_INT(result.err.code, ERR_INTERNAL);
}

TEST(client_gives_up_at_the_deadline)
{
    static const char *const says[] = {
        "",
        "HTTP/1.1 200",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello",
    };

    for (size_t i = 0; i < ARRAY_LEN(says); i++) {
        struct script script = { .say = str_of(says[i]), .silent_ms = 400 };
        autoresult struct result result = run(&script, NULL, 4096);

        CHECK_INT(result.rc, -1);
        CHECK_INT(result.err.code, ERR_TIMEOUT);
        CHECK_INT(err_info(result.err.code)->exit, 5);
    }
}

TEST(client_hears_a_refusal_given_before_it_was_read)
{
    struct script script = { .say = STR("HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno"),
                             .refuse_now = true };
    autofree char *big = xcalloc(1, 4 << 20);
    struct client_request post = { .method = "POST", .path = "/", .body = { big, 4 << 20 } };
    autoresult struct result result = run(&script, &post, 4096);

    CHECK_OK(result.rc, &result.err);
    CHECK_INT(result.reply.status, 413);
}

TEST(client_sends_what_it_was_given)
{
    struct script script = { .say = STR("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") };
    struct client_request post = { .method = "POST",
                                   .path = "/a?b=c",
                                   .token = "atl_x",
                                   .body = STR("{}"),
                                   .extra = { { "Idempotency-Key", "k 1" } } };
    autoresult struct result result = run(&script, &post, 4096);

    CHECK_OK(result.rc, &result.err);
    CHECK(strstr(script.heard, "POST /a?b=c HTTP/1.1\r\nHost: localhost\r\n") == script.heard);
    CHECK(strstr(script.heard, "\r\nAuthorization: Bearer atl_x\r\n"));
    CHECK(strstr(script.heard, "\r\nIdempotency-Key: k 1\r\n"));
    CHECK(strstr(script.heard, "\r\nContent-Length: 2\r\n\r\n{}"));
}

/* The server of the script answers at the first empty line: behind the head, or behind the body. */
TEST(client_sends_a_body_piece_by_piece)
{
    struct script script = { .say = STR("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
                             .until = "\r\n0\r\n\r\n" };
    struct client_request put = { .method = "PUT", .path = "/", .stream = "application/x-tar" };
    struct client_options options = { .deadline_ms = clock_mono_ms() + test_patience(5000) };
    autoclient struct client *client = NULL;
    struct client_reply reply;
    struct err err = { 0 };

    CHECK_OK(client_open_on(&client, begin(&script), &nowhere, &put, &options, &err), &err);
    CHECK_OK(client_write(client, "hello", 5, &err), &err);
    CHECK_OK(client_write(client, "", 0, &err), &err);
    CHECK_OK(client_write(client, "0123456789abcdef!", 17, &err), &err);
    CHECK_OK(client_finish(client, &reply, &err), &err);
    CHECK_INT(reply.status, 200);
    pthread_join(script.thread, NULL);
    CHECK(strstr(script.heard, "\r\nContent-Type: application/x-tar\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n"
                               "5\r\nhello\r\n11\r\n0123456789abcdef!\r\n0\r\n\r\n"));
    CHECK(!strstr(script.heard, "Content-Length"));
}

TEST(client_hears_a_refusal_in_the_middle_of_a_body)
{
    struct script script = { .say = STR("HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno"),
                             .refuse_now = true };
    struct client_request put = { .method = "PUT", .path = "/", .stream = "application/x-tar" };
    struct client_options options = { .deadline_ms = clock_mono_ms() + test_patience(5000) };
    autofree char *big = xcalloc(1, 4 << 20);
    autoclient struct client *client = NULL;
    struct client_reply reply;
    struct err err = { 0 };

    CHECK_OK(client_open_on(&client, begin(&script), &nowhere, &put, &options, &err), &err);
    CHECK(client_write(client, big, 4 << 20, &err) < 0);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    CHECK(client_write(client, big, 1, &err) < 0);
    CHECK_OK(client_finish(client, &reply, &err), &err);
    CHECK_INT(reply.status, 413);
    pthread_join(script.thread, NULL);
}

TEST(client_refuses_values_that_break_lines)
{
    static const struct client_request bad[] = {
        { .method = "GET", .path = "/a b" },
        { .method = "GET", .path = "/a\r\nX: y" },
        { .method = "GET", .path = "a" },
        { .method = "GET", .path = "/", .token = "a\nb" },
        { .method = "GET", .path = "/", .token = "" },
        { .method = "GET", .path = "/", .token = "a b" },
        { .method = "GET", .path = "/", .extra = { { "A", "x\r\nB: c" } } },
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autobuf struct buf out = { 0 };
        struct err err = { 0 };

        CHECK(client_request_put(&out, &nowhere, &bad[i], &err) < 0);
        CHECK_INT(err.code, ERR_INVALID);
    }
}

TEST(client_body_survives_any_cutting)
{
    for (int round = 0; round < 200; round++) {
        autobuf struct buf say = { 0 }, body = { 0 };
        size_t total = test_rand(20000), at = 0;
        bool chunked = test_rand(2);

        for (size_t i = 0; i < total; i++)
            buf_putc(&body, (char)(i * 7 + i / 256));
        buf_puts(&say, "HTTP/1.1 200 OK\r\n");
        if (chunked)
            buf_puts(&say, "Transfer-Encoding: chunked\r\n\r\n");
        else
            buf_printf(&say, "Content-Length: %zu\r\n\r\n", total);
        while (chunked && at < total) {
            size_t len = test_rand(3000) + 1;
            len = MIN(len, total - at);

            buf_printf(&say, test_rand(2) ? "%zx\r\n" : "%zX\r\n", len);
            buf_append(&say, body.data + at, len);
            buf_puts(&say, "\r\n");
            at += len;
        }
        if (chunked)
            buf_puts(&say, "0\r\n\r\n");
        else
            buf_str(&say, buf_view(&body));

        struct script script = { .say = buf_view(&say), .step = test_rand(5000) };
        autoresult struct result result = run(&script, NULL, test_rand(4096) + 1);
        CHECK_OK(result.rc, &result.err);
        CHECK(str_eq(buf_view(&result.body), buf_view(&body)));
    }
}

/* ---- targets ---- */

TEST(client_targets)
{
    static const struct {
        const char *text, *connect, *host;
        bool tls, local;
    } good[] = {
        { "http://127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1:8080", false, true },
        { "http://127.0.0.1:8080/", "127.0.0.1:8080", "127.0.0.1:8080", false, true },
        { "http://localhost", "localhost:80", "localhost", false, true },
        { "https://example.org", "example.org:443", "example.org", true, false },
        { "https://example.org:80", "example.org:80", "example.org:80", true, false },
        { "http://127.example.org:1", "127.example.org:1", "127.example.org:1", false, false },
        { "https://[::1]:8443", "[::1]:8443", "[::1]:8443", true, true },
        { "http://[fe80::1]", "[fe80::1]:80", "[fe80::1]", false, false },
        { "unix:/run/atoll.sock", "unix:/run/atoll.sock", "localhost", false, true },
    };
    static const char *const bad[] = {
        "",           "127.0.0.1:8080", "ftp://x",     "http://",       "http:///",
        "http://a:0", "http://a:65536", "http://a:",   "http://a:1x",   "http://a/b",
        "http://a b", "http://u@h",     "http://[::1", "http://[::1]x", "http://a\r\nb",
        "unix:x",     "unix:"
    };
    struct client_target target;
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        CHECK_OK(client_target_parse(good[i].text, &target, &err), &err);
        CHECK_STR(target.connect, good[i].connect);
        CHECK_STR(target.host, good[i].host);
        CHECK(target.tls == good[i].tls && target.local == good[i].local);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (client_target_parse(bad[i], &target, &err) == 0)
            test_fail(__FILE__, __LINE__, "accepted %s", bad[i]);

    char path[SOCK_TEXT_SIZE + 1] = "unix:/";
    memset(path + 6, 'p', SOCK_TEXT_SIZE - 7);
    CHECK_OK(client_target_parse(path, &target, &err), &err);
    path[SOCK_TEXT_SIZE - 1] = 'p';
    CHECK(client_target_parse(path, &target, &err) < 0);
}

/* ---- over real sockets ---- */

struct door {
    int listener;
    struct script script;
    SSL_CTX *tls; /* NULL: plain */
    bool rude;    /* TLS: ends without close_notify */
};

static void serve_tls(struct door *door)
{
    SSL *ssl = SSL_new(door->tls);
    char heard[4096];
    size_t got;

    SSL_set_fd(ssl, door->script.fd);
    if (SSL_accept(ssl) == 1 && SSL_read_ex(ssl, heard, sizeof(heard), &got) == 1) {
        SSL_write_ex(ssl, door->script.say.p, door->script.say.n, &got);
        if (!door->rude)
            SSL_shutdown(ssl);
    }
    SSL_free(ssl);
    close(door->script.fd);
}

static void *open_door(void *arg)
{
    struct door *door = arg;

    door->script.fd = accept4(door->listener, NULL, NULL, SOCK_CLOEXEC);
    while (door->script.fd < 0 && errno == EAGAIN) {
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
        door->script.fd = accept4(door->listener, NULL, NULL, SOCK_CLOEXEC);
    }
    if (door->tls)
        serve_tls(door);
    else
        play(&door->script);
    return NULL;
}

static int call_door(struct door *door, const char *address, const char *scheme, const char *ca,
                     struct buf *body, struct err *err)
{
    struct client_request get = { .method = "GET", .path = "/" };
    struct client_options options = { .deadline_ms = clock_mono_ms() + test_patience(5000),
                                      .ca_file = ca };
    struct client_target target;
    struct client_reply reply;
    char actual[SOCK_TEXT_SIZE];

    door->listener = sock_listen(address, 4, actual, err);
    CHECK_OK(door->listener, err);
    CHECK(pthread_create(&door->script.thread, NULL, open_door, door) == 0);
    autofree char *url = xprintf("%s%s", scheme, actual);
    CHECK_OK(client_target_parse(url, &target, err), err);
    int rc = client_call(&target, &get, &options, 5, &reply, body, err);
    pthread_join(door->script.thread, NULL);
    close(door->listener);
    return rc;
}

TEST(client_calls_over_tcp_and_unix_within_a_size)
{
    struct door door = { .script.say = STR("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") };
    autofree char *path = xprintf("unix:%s/s", test_dir());
    autobuf struct buf body = { 0 };
    struct err err = { 0 };

    CHECK_OK(call_door(&door, "127.0.0.1:0", "http://", NULL, &body, &err), &err);
    CHECK_STR(buf_cstr(&body), "hello");
    buf_clear(&body);
    CHECK_OK(call_door(&door, path, "", NULL, &body, &err), &err);
    CHECK_STR(buf_cstr(&body), "hello");

    static const char *const over[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello!\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhel", /* refused before it is read */
    };
    for (size_t i = 0; i < ARRAY_LEN(over); i++) {
        door.script = (struct script){ .say = str_of(over[i]) };
        CHECK(call_door(&door, "127.0.0.1:0", "http://", NULL, &body, &err) < 0);
        CHECK_INT(err.code, ERR_LIMIT);
    }
}

TEST(client_says_when_nobody_listens)
{
    struct client_request get = { .method = "GET", .path = "/" };
    struct client_options options = { .deadline_ms = clock_mono_ms() + test_patience(2000) };
    struct client_target target;
    struct client_reply reply;
    autobuf struct buf body = { 0 };
    autofree char *path = xprintf("unix:%s/none", test_dir());
    struct err err = { 0 };

    CHECK_OK(client_target_parse(path, &target, &err), &err);
    CHECK(client_call(&target, &get, &options, 5, &reply, &body, &err) < 0);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    options.deadline_ms = clock_mono_ms();
    CHECK(client_call(&target, &get, &options, 5, &reply, &body, &err) < 0);
    CHECK_INT(err.code, ERR_TIMEOUT);
}

/* ---- TLS ---- */

static X509 *certificate(EVP_PKEY *key, const char *alt)
{
    X509 *cert = X509_new();
    X509_NAME *name = X509_get_subject_name(cert);

    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1, 0);
    X509_set_issuer_name(cert, name);
    X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, alt);
    X509_add_ext(cert, ext, -1);
    X509_EXTENSION_free(ext);
    CHECK(X509_sign(cert, key, EVP_sha256()) > 0);
    return cert;
}

/* A server's context with a fresh certificate for `alt`, and the file that trusts it. */
static SSL_CTX *tls_server(const char *alt, char **ca_file)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = certificate(key, alt);
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

    *ca_file = xprintf("%s/ca.pem", test_dir());
    FILE *file = fopen(*ca_file, "we");
    CHECK(file && PEM_write_X509(file, cert) == 1 && fclose(file) == 0);
    CHECK(SSL_CTX_use_certificate(ctx, cert) == 1 && SSL_CTX_use_PrivateKey(ctx, key) == 1);
    X509_free(cert);
    EVP_PKEY_free(key);
    return ctx;
}

TEST(client_verifies_the_certificate)
{
    autofree char *ca = NULL, *other_ca = NULL;
    struct door door = { .script.say = STR("HTTP/1.1 200 OK\r\n\r\nhello"),
                         .tls = tls_server("IP:127.0.0.1", &ca) };
    SSL_CTX *foreign = tls_server("DNS:example.org", &other_ca);
    autobuf struct buf body = { 0 };
    struct err err = { 0 };

    signal(SIGPIPE, SIG_IGN);
    CHECK_OK(call_door(&door, "127.0.0.1:0", "https://", ca, &body, &err), &err);
    CHECK_STR(buf_cstr(&body), "hello");
    /* unknown to the system's authorities */
    CHECK(call_door(&door, "127.0.0.1:0", "https://", NULL, &body, &err) < 0);
    CHECK_INT(err.code, ERR_UNAUTHENTICATED);
    /* trusted, but for somebody else */
    SSL_CTX *own = door.tls;
    door.tls = foreign;
    CHECK(call_door(&door, "127.0.0.1:0", "https://", other_ca, &body, &err) < 0);
    CHECK_INT(err.code, ERR_UNAUTHENTICATED);
    /* cut by somebody in between: the end of the stream is not proven */
    door.tls = own;
    door.rude = true;
    buf_clear(&body);
    CHECK(call_door(&door, "127.0.0.1:0", "https://", ca, &body, &err) < 0);
    CHECK_INT(err.code, ERR_UNAVAILABLE);
    SSL_CTX_free(own);
    SSL_CTX_free(foreign);
}
