/* ws_client: against a server that is played byte by byte, over a real socket. */
#include "http/ws_client.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/test.h"

/* ---- a server that is played ---- */

static struct {
    int listener;
    char address[SOCK_TEXT_SIZE];
    pthread_t thread;
    const char *head; /* sent instead of a proper answer; NULL: 101 */
    struct str frames;
    char request[4096], heard[256];
    size_t heard_len;
} played;

static void answer(int fd)
{
    const char *key = strstr(played.request, "Sec-WebSocket-Key: ");
    struct str parts[] = { { key ? key + 19 : "", key ? 24 : 0 },
                           STR("258EAFA5-E914-47DA-95CA-C5AB0DC85B11") };
    unsigned char digest[SHA1_SIZE];
    autobuf struct buf text = { 0 };

    sha1_parts(parts, 2, digest);
    buf_puts(&text, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                    "Connection: Upgrade\r\nSec-WebSocket-Accept: ");
    base64_put(&text, digest, sizeof(digest));
    buf_puts(&text, "\r\n\r\n");
    if (played.head) {
        buf_clear(&text);
        buf_puts(&text, played.head);
    }
    buf_str(&text, played.frames); /* at once: frames behind the head are not lost */
    CHECK(write(fd, text.data, text.len) == (ssize_t)text.len);
}

static void *play(void *ctx)
{
    int fd = accept4(played.listener, NULL, NULL, SOCK_CLOEXEC);
    size_t len = 0;
    ssize_t got;

    (void)ctx;
    while (!strstr(played.request, "\r\n\r\n") &&
           (got = read(fd, played.request + len, sizeof(played.request) - 1 - len)) > 0)
        len += (size_t)got;
    answer(fd);
    shutdown(fd, SHUT_WR);
    while ((got = read(fd, played.heard + played.heard_len,
                       sizeof(played.heard) - played.heard_len)) > 0)
        played.heard_len += (size_t)got;
    close(fd);
    return NULL;
}

static int open_with(const char *head, struct str frames, struct ws_client **out,
                     struct client_reply *reply, struct buf *body, struct err *err)
{
    struct client_options options = { .deadline_ms = clock_mono_ms() + test_patience(10000) };
    struct client_target target;
    char url[SOCK_TEXT_SIZE + 8];

    memset(played.request, 0, sizeof(played.request));
    played.heard_len = 0;
    played.head = head;
    played.frames = frames;
    played.listener = sock_listen("127.0.0.1:0", 1, played.address, err);
    CHECK(played.listener >= 0);
    CHECK(fcntl(played.listener, F_SETFL, 0) == 0);
    snprintf(url, sizeof(url), "http://%s", played.address);
    CHECK_OK(client_target_parse(url, &target, err), err);
    CHECK_INT(pthread_create(&played.thread, NULL, play, NULL), 0);
    return ws_client_open(out, &target, "/x", "secret", &options, reply, body, err);
}

static void over(struct ws_client *ws)
{
    ws_client_free(ws);
    pthread_join(played.thread, NULL);
    close(played.listener);
}

/* The next message as text, or why there is none. */
static const char *next(struct ws_client *ws)
{
    static char text[600];
    struct ws_message message;
    struct err err = { 0 };
    int rc;

    while ((rc = ws_client_next(ws, &message, &err)) == 0)
        if (ws_client_read(ws, &err) < 0)
            return "end";
    if (rc < 0)
        snprintf(text, sizeof(text), "%d %s", ws_client_code(ws), err.msg);
    else
        snprintf(text, sizeof(text), "%c:%.*s", message.text ? 't' : 'b',
                 (int)MIN(message.data.n, (size_t)200), message.data.p);
    return text;
}

TEST(messages_arrive_and_pings_are_answered)
{
    struct ws_client *ws = NULL;
    struct client_reply reply;
    autobuf struct buf body = { 0 };
    struct err err = { 0 };

    CHECK_INT(open_with(NULL, STR("\x81\x02hi\x89\x01p\x82\x03\x01\x02\x03\x88\x06\x03\xe8over"),
                        &ws, &reply, &body, &err),
              1);
    CHECK(strstr(played.request, "\r\nAuthorization: Bearer secret\r\n") != NULL);
    CHECK_STR(next(ws), "t:hi");
    CHECK_STR(next(ws), "b:\x01\x02\x03");
    CHECK_STR(next(ws), "1000 the server closed: over");
    over(ws);
    CHECK(played.heard_len >= 7);
    CHECK_INT((unsigned char)played.heard[0], 0x8a); /* pong… */
    CHECK_INT((unsigned char)played.heard[1], 0x81); /* …masked, one byte */
    CHECK_INT(played.heard[6] ^ played.heard[2], 'p');
}

TEST(what_we_send_is_masked_and_whole)
{
    struct ws_client *ws = NULL;
    struct client_reply reply;
    autobuf struct buf body = { 0 };
    struct err err = { 0 };
    char data[200];

    memset(data, 'k', sizeof(data));
    CHECK_INT(open_with(NULL, STR_NONE, &ws, &reply, &body, &err), 1);
    CHECK_OK(ws_client_send(ws, false, (struct str){ data, sizeof(data) }, &err), &err);
    over(ws);
    CHECK_INT(played.heard_len, 8 + sizeof(data));
    CHECK_INT((unsigned char)played.heard[0], 0x82);
    CHECK_INT((unsigned char)played.heard[1], 0xfe);
    CHECK_INT((unsigned char)played.heard[3], 200);
    for (size_t i = 0; i < sizeof(data); i++)
        CHECK_INT(played.heard[8 + i] ^ played.heard[4 + i % 4], 'k');
}

TEST(frames_that_break_the_rules_end_it)
{
    static const struct str bad[] = {
        STR_INIT("\x01\x02hi"),                               /* a fragment */
        STR_INIT("\x81\x82\x01\x02\x03\x04hi"),               /* masked */
        STR_INIT("\xc1\x02hi"),                               /* a reserved bit */
        STR_INIT("\x83\x02hi"),                               /* no such kind */
        STR_INIT("\x80\x02hi"),                               /* goes on with nothing */
        STR_INIT("\x82\x7f\x00\x00\x00\x00\x04\x00\x00\x01"), /* over the limit */
        STR_INIT("\x89\x7e\x00\x7e"),                         /* a ping of 126 bytes */
        STR_INIT("\x81\x02\xc3("),                            /* a text that is none */
        STR_INIT("\x88\x01\x03"),                             /* half a code */
        STR_INIT("\x88\x02\x00\x01"),                         /* and none at all */
        STR_INIT("\x88\x03\x03\xe8\xff"),                     /* a reason that is no text */
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct ws_client *ws = NULL;
        struct client_reply reply;
        autobuf struct buf body = { 0 };
        struct err err = { 0 };

        CHECK_INT(open_with(NULL, bad[i], &ws, &reply, &body, &err), 1);
        CHECK(strncmp(next(ws), "1006 ", 5) == 0);
        over(ws);
    }
}

TEST(another_answer_is_told_as_it_is)
{
    struct ws_client *ws = NULL;
    struct client_reply reply = { 0 };
    autobuf struct buf body = { 0 };
    struct err err = { 0 };

    CHECK_INT(open_with("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", STR_NONE, &ws,
                        &reply, &body, &err),
              0);
    CHECK_INT(reply.status, 404);
    CHECK_STR(buf_cstr(&body), "gone");
    over(NULL);
    CHECK(open_with("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                    "Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
                    STR_NONE, &ws, &reply, &body, &err) < 0); /* it only says so */
    over(NULL);
}

TEST(a_path_or_token_cannot_leave_its_line)
{
    struct client_options options = { .deadline_ms = clock_mono_ms() + 1000 };
    struct client_target target;
    struct ws_client *ws = NULL;
    struct client_reply reply;
    autobuf struct buf body = { 0 };
    struct err err = { 0 };
    char address[SOCK_TEXT_SIZE], url[SOCK_TEXT_SIZE + 8];

    autoclose int fd = sock_listen("127.0.0.1:0", 1, address, &err);
    snprintf(url, sizeof(url), "http://%s", address);
    CHECK_OK(client_target_parse(url, &target, &err), &err);
    CHECK(ws_client_open(&ws, &target, "/x\r\nA: b", NULL, &options, &reply, &body, &err) < 0);
    CHECK_INT(err.code, ERR_INVALID);
    CHECK(ws_client_open(&ws, &target, "/x", "a\nb", &options, &reply, &body, &err) < 0);
    CHECK_INT(err.code, ERR_INVALID);
}
