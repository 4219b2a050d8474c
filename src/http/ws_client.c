/*
 * See ws_client.h. The opening handshake is one HTTP request whose answer is 101; bytes behind its
 * head are frames already. Our server sends no fragments, and one that does is not understood.
 */
#include "http/ws_client.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/mem.h"
#include "http/client_head.h"
#include "http/client_io.h"

#define READ_CHUNK 65536
#define REFUSAL_MAX 65536
#define SEND_MS 30000

enum { OP_TEXT = 1, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10 };

struct ws_client {
    struct client_io io;
    struct buf in;
    size_t taken; /* of `in`, by messages that were given out */
    int code;
};

void ws_client_free(struct ws_client *ws)
{
    if (!ws)
        return;
    client_io_free(&ws->io);
    buf_free(&ws->in);
    free(ws);
}

static inline void ws_client_drop_(struct ws_client **ws)
{
    ws_client_free(*ws);
}

int ws_client_fd(const struct ws_client *ws)
{
    return ws->io.fd;
}

int ws_client_code(const struct ws_client *ws)
{
    return ws->code;
}

/* ---- opening ---- */

static bool one_line(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || *text == 0x7f)
            return false;
    return true;
}

static void put_key(struct buf *key)
{
    unsigned char raw[16];

    random_bytes(raw, sizeof(raw));
    base64_put(key, raw, sizeof(raw));
}

/* RFC 6455 section 4.1: proves that the other end speaks the protocol, and nothing more. */
static bool accepted(struct str head, struct str key)
{
    struct str parts[] = { key, STR("258EAFA5-E914-47DA-95CA-C5AB0DC85B11") };
    unsigned char digest[SHA1_SIZE];
    autobuf struct buf want = { 0 };

    sha1_parts(parts, ARRAY_LEN(parts), digest);
    base64_put(&want, digest, sizeof(digest));
    while (head.n) {
        struct str line = str_cut(&head, '\n');
        struct str name = str_cut(&line, ':');

        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        if (str_eq_nocase(name, STR("sec-websocket-accept")))
            return str_eq(str_trim(line), buf_view(&want));
    }
    return false;
}

/* Up to the end of the head; false: it is not whole yet. */
static bool cut_head(struct ws_client *ws, struct str *head)
{
    const char *end = ws->in.len ? memmem(ws->in.data, ws->in.len, "\r\n\r\n", 4) : NULL;

    if (!end)
        return false;
    *head = (struct str){ ws->in.data, (size_t)(end - ws->in.data) };
    return true;
}

static int read_some(struct ws_client *ws, struct err *err)
{
    char *room = buf_reserve(&ws->in, READ_CHUNK);

    if (!room)
        return err_set(err, ERR_LIMIT, "a message of the server's is too large");
    ssize_t got = client_io_read(&ws->io, room, READ_CHUNK, err);
    if (got <= 0)
        return got < 0 ? -1 : err_set(err, ERR_UNAVAILABLE, "the server ended the connection");
    ws->in.len += (size_t)got;
    return 0;
}

static void read_refusal(struct ws_client *ws, size_t head, const struct client_reply *reply,
                         struct buf *body)
{
    struct err ignored;
    size_t want = reply->length > 0 ? MIN((size_t)reply->length, (size_t)REFUSAL_MAX) : 0;

    while (ws->in.len - head < want && read_some(ws, &ignored) == 0)
        ;
    buf_append(body, ws->in.data + head, MIN(ws->in.len - head, want));
}

static int shake_hands(struct ws_client *ws, const struct client_target *target, const char *path,
                       const char *token, struct client_reply *reply, struct buf *body,
                       struct err *err)
{
    autobuf struct buf text = { 0 }, key = { 0 };
    enum client_framing framing;
    struct str head;

    if (!one_line(path) || (token && !one_line(token)))
        return err_set(err, ERR_INVALID, "a path or token with blanks");
    put_key(&key);
    buf_printf(&text,
               "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
               "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ",
               path, target->host);
    buf_str(&text, buf_view(&key));
    if (token)
        buf_printf(&text, "\r\nAuthorization: Bearer %s", token);
    buf_puts(&text, "\r\n\r\n");
    if (client_io_write(&ws->io, text.data, text.len, err) < 0)
        return -1;
    while (!cut_head(ws, &head)) {
        if (ws->in.len > HTTP_HEAD_MAX)
            return err_set(err, ERR_HEADERS, "the head of the server's reply is too long");
        if (read_some(ws, err) < 0)
            return -1;
    }
    if (client_head_parse(head, false, reply, &framing, err) < 0)
        return -1;
    if (reply->status != 101) {
        read_refusal(ws, head.n + 4, reply, body);
        return 0;
    }
    if (!accepted(head, buf_view(&key)))
        return err_set(err, ERR_INTERNAL, "the server does not speak WebSocket");
    buf_consume(&ws->in, head.n + 4);
    return 1;
}

static struct ws_client *new_client(void)
{
    struct ws_client *ws = xnew(struct ws_client);

    ws->io.fd = -1;
    ws->in.max = WS_CLIENT_MESSAGE_MAX + READ_CHUNK;
    ws->code = 1006;
    return ws;
}

int ws_client_adopt(struct ws_client **out, int fd, struct err *err)
{
    auto_with(ws_client_drop_) struct ws_client *ws = new_client();

    if (client_io_init(&ws->io, fd, NULL, "http/1.1", NULL, clock_mono_ms() + SEND_MS, err) < 0)
        return -1;
    *out = take_ptr(&ws);
    return 0;
}

int ws_client_open(struct ws_client **out, const struct client_target *target, const char *path,
                   const char *token, const struct client_options *options,
                   struct client_reply *reply, struct buf *body, struct err *err)
{
    auto_with(ws_client_drop_) struct ws_client *ws = new_client();
    int fd = client_connect(target, options, err);
    if (fd < 0)
        return -1;
    if (client_io_init(&ws->io, fd, target->tls ? target->name : NULL, "http/1.1", options->ca_file,
                       options->deadline_ms, err) < 0)
        return -1;
    int rc = shake_hands(ws, target, path, token, reply, body, err);
    if (rc == 1)
        *out = take_ptr(&ws);
    return rc;
}

/* ---- frames ---- */

static int send_frame(struct ws_client *ws, unsigned opcode, struct str data, struct err *err)
{
    autobuf struct buf frame = { 0 };
    unsigned char mask[4];
    size_t wide = data.n < 126 ? 0 : data.n < 65536 ? 2 : 8;

    random_bytes(mask, sizeof(mask));
    buf_putc(&frame, (char)(0x80 | opcode));
    buf_putc(&frame, (char)(0x80 | (wide == 0 ? data.n : wide == 2 ? 126 : 127)));
    for (size_t i = 0; i < wide; i++)
        buf_putc(&frame, (char)((uint64_t)data.n >> (8 * (wide - 1 - i))));
    buf_append(&frame, mask, sizeof(mask));
    for (size_t i = 0; i < data.n; i++)
        buf_putc(&frame, (char)(data.p[i] ^ mask[i % 4]));
    ws->io.deadline_ms = clock_mono_ms() + SEND_MS;
    return client_io_write(&ws->io, frame.data, frame.len, err);
}

int ws_client_send(struct ws_client *ws, bool text, struct str data, struct err *err)
{
    return send_frame(ws, text ? OP_TEXT : OP_BINARY, data, err);
}

int ws_client_read(struct ws_client *ws, struct err *err)
{
    buf_consume(&ws->in, ws->taken);
    ws->taken = 0;
    ws->io.deadline_ms = clock_mono_ms() + SEND_MS;
    do
        if (read_some(ws, err) < 0)
            return -1;
    while (client_io_pending(&ws->io)); /* what TLS holds, no poll would tell */
    return 0;
}

/* The head of a frame at `at`: its size, 0 when it is not whole. */
static size_t frame_head(const unsigned char *at, size_t have, uint64_t *len)
{
    if (have < 2)
        return 0;
    size_t wide = (at[1] & 127) < 126 ? 0 : (at[1] & 127) == 126 ? 2 : 8;
    if (have < 2 + wide)
        return 0;
    *len = wide ? 0 : at[1] & 127;
    for (size_t i = 0; i < wide; i++)
        *len = *len << 8 | at[2 + i];
    return 2 + wide;
}

static int nonsense(struct err *err)
{
    return err_set(err, ERR_INTERNAL, "the server sent a frame that makes no sense");
}

static int take_control(struct ws_client *ws, unsigned opcode, struct str data, struct err *err)
{
    if (opcode == OP_PING)
        return send_frame(ws, OP_PONG, data, err);
    if (opcode != OP_CLOSE)
        return 0;
    int code = data.n >= 2 ? (unsigned char)data.p[0] << 8 | (unsigned char)data.p[1] : 1005;
    struct str reason = str_from(data, 2);
    if (data.n == 1 || code < 1000 || code > 4999 || !str_utf8(reason))
        return nonsense(err);
    ws->code = code;
    (void)!send_frame(ws, OP_CLOSE, (struct str){ data.p, MIN(data.n, (size_t)2) }, err);
    return err_set(err, ERR_UNAVAILABLE, "the server closed: %.*s", STR_FMT(reason));
}

/* Whole, not masked, of a kind we know; one about the connection itself is short (RFC 6455, 5.5).
 */
static bool makes_sense(const unsigned char *at, uint64_t len)
{
    unsigned opcode = at[0] & 15;

    return (at[0] & 0xf0) == 0x80 && !(at[1] & 0x80) && opcode && (opcode & 7) <= 2 &&
           (opcode < OP_CLOSE || len <= 125);
}

int ws_client_next(struct ws_client *ws, struct ws_message *out, struct err *err)
{
    for (;;) {
        const unsigned char *at = (const unsigned char *)ws->in.data + ws->taken;
        size_t have = ws->in.len - ws->taken;
        uint64_t len = 0;
        size_t head = frame_head(at, have, &len);

        if (head && !makes_sense(at, len))
            return nonsense(err);
        if (head && len > WS_CLIENT_MESSAGE_MAX)
            return err_set(err, ERR_LIMIT, "a message of the server's is too large");
        if (!head || have - head < len)
            return 0;
        unsigned opcode = at[0] & 15;
        struct str data = { (const char *)at + head, (size_t)len };
        if (opcode == OP_TEXT && !str_utf8(data))
            return nonsense(err);
        ws->taken += head + (size_t)len;
        if (opcode == OP_TEXT || opcode == OP_BINARY) {
            *out = (struct ws_message){ opcode == OP_TEXT, data };
            return 1;
        }
        if (take_control(ws, opcode, data, err) < 0)
            return -1;
    }
}
