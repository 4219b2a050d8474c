/*
 * How it works: bytes are read into one small window; the head is cut from it, and then body bytes
 * are handed out of it by the framing that the head announced. Only a body that ended the way its
 * framing says gives 0 from client_read.
 */
#include "http/client.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/client_head.h"
#include "http/client_io.h"

#define WINDOW 16384
#define INTERIM_MAX 8 /* 1xx replies before the real one */

struct client {
    struct client_io io;
    char window[HTTP_HEAD_MAX];
    size_t at, end; /* unread bytes of the window */
    enum client_framing framing;
    uint64_t left; /* of the body, or of the chunk */
    bool first;    /* before the first chunk */
    bool over;     /* the body ended as it should */
    bool to_head;  /* the request is a HEAD */
    bool stream;   /* the request's body is not over */
    bool deaf;     /* the server closed before it had read the request */
    bool upgrade;  /* a 101 is welcome */
};

void client_free(struct client *client)
{
    if (!client)
        return;
    client_io_free(&client->io);
    free(client);
}

void client_deadline(struct client *client, int64_t deadline_ms)
{
    client->io.deadline_ms = deadline_ms;
}

static int cut_short(struct err *err)
{
    return err_set(err, ERR_UNAVAILABLE, "the server's reply ends in the middle");
}

/* More bytes behind those in the window: how many, 0 at the end of the stream. */
static ssize_t fill(struct client *client, struct err *err)
{
    if (client->at) {
        memmove(client->window, client->window + client->at, client->end - client->at);
        client->end -= client->at;
        client->at = 0;
    }
    size_t room = MIN(sizeof(client->window) - client->end, (size_t)WINDOW);
    ssize_t got = client_io_read(&client->io, client->window + client->end, room, err);
    if (got > 0)
        client->end += (size_t)got;
    return got;
}

/*
 * Cuts everything up to `mark` out of the window, at most `max` bytes before it. The slice lives
 * until the next fill.
 */
static int cut(struct client *client, struct str mark, size_t max, struct str *out, struct err *err)
{
    for (;;) {
        struct str have = { client->window + client->at, client->end - client->at };
        const char *found = have.n ? memmem(have.p, have.n, mark.p, mark.n) : NULL;

        if (found && (size_t)(found - have.p) <= max) {
            *out = (struct str){ have.p, (size_t)(found - have.p) };
            client->at += out->n + mark.n;
            return 0;
        }
        if (found || have.n >= max + mark.n)
            return err_set(err, ERR_LIMIT, "a line of the server's reply is too long");
        ssize_t got = fill(client, err);
        if (got <= 0)
            return got < 0 ? -1 : cut_short(err);
    }
}

/* ---- the head ---- */

static int read_head(struct client *client, bool to_head, struct client_reply *reply,
                     struct err *err)
{
    for (int i = 0; i < INTERIM_MAX; i++) {
        struct str head;

        if (cut(client, STR("\r\n\r\n"), HTTP_HEAD_MAX - 4, &head, err) < 0)
            return err->code == ERR_LIMIT
                       ? err_set(err, ERR_HEADERS, "the head of the server's reply is too long")
                       : -1;
        if (client_head_parse(head, to_head, reply, &client->framing, err) < 0)
            return -1;
        if (reply->status >= 200) {
            client->left = reply->length > 0 ? (uint64_t)reply->length : 0;
            client->first = true;
            return 0;
        }
        if (reply->status == 101 && client->upgrade)
            return 0;
        if (reply->status == 101)
            break; /* nobody asked to switch */
    }
    return err_set(err, ERR_INTERNAL, "the server never gives its real reply");
}

/* A server may refuse and close before it has read everything; its words are worth more. */
static int send_bytes(struct client *client, const void *data, size_t len, struct err *err)
{
    struct err late = { 0 };

    if (client->deaf || client_io_write(&client->io, data, len, &late) == 0)
        return 0;
    client->deaf = late.code == ERR_UNAVAILABLE;
    if (client->deaf)
        return 0;
    *err = late;
    return -1;
}

int client_open_on(struct client **out, int fd, const struct client_target *target,
                   const struct client_request *request, const struct client_options *options,
                   struct err *err)
{
    autoclient struct client *client = xnew(struct client);
    autobuf struct buf text = { 0 };

    client->io.fd = -1;
    client->to_head = strcmp(request->method, "HEAD") == 0;
    client->stream = request->stream != NULL;
    client->upgrade = request->upgrade != NULL;
    if (client_io_init(&client->io, fd, target->tls ? target->name : NULL, "http/1.1",
                       options->ca_file, options->deadline_ms, err) < 0)
        return -1;
    if (client_request_put(&text, target, request, err) < 0)
        return -1;
    if (!buf_ok(&text))
        return err_set(err, ERR_LIMIT, "the request is too long");
    if (send_bytes(client, text.data, text.len, err) < 0)
        return -1;
    *out = take_ptr(&client);
    return 0;
}

int client_write(struct client *client, const void *data, size_t len, struct err *err)
{
    char line[24];
    int n = snprintf(line, sizeof(line), "%zx\r\n", len);

    if (!len)
        return 0; /* an empty chunk would be the end */
    if (send_bytes(client, line, (size_t)n, err) < 0 || send_bytes(client, data, len, err) < 0 ||
        send_bytes(client, "\r\n", 2, err) < 0)
        return -1;
    return client->deaf ? err_set(err, ERR_UNAVAILABLE, "the server does not listen any more") : 0;
}

int client_finish(struct client *client, struct client_reply *reply, struct err *err)
{
    if (client->stream && send_bytes(client, "0\r\n\r\n", 5, err) < 0)
        return -1;
    client->stream = false;
    return read_head(client, client->to_head, reply, err);
}

int client_start_on(struct client **out, int fd, const struct client_target *target,
                    const struct client_request *request, const struct client_options *options,
                    struct client_reply *reply, struct err *err)
{
    autoclient struct client *client = NULL;

    if (client_open_on(&client, fd, target, request, options, err) < 0 ||
        client_finish(client, reply, err) < 0)
        return -1;
    *out = take_ptr(&client);
    return 0;
}

int client_connect(const struct client_target *target, const struct client_options *options,
                   struct err *err)
{
    int64_t left = options->deadline_ms - clock_mono_ms();

    if (left <= 0)
        return err_set(err, ERR_TIMEOUT, "no time left to connect");
    return sock_connect(target->connect, (int)MIN(left, 86400000), err);
}

int client_open(struct client **out, const struct client_target *target,
                const struct client_request *request, const struct client_options *options,
                struct err *err)
{
    int fd = client_connect(target, options, err);

    return fd < 0 ? -1 : client_open_on(out, fd, target, request, options, err);
}

int client_start(struct client **out, const struct client_target *target,
                 const struct client_request *request, const struct client_options *options,
                 struct client_reply *reply, struct err *err)
{
    int fd = client_connect(target, options, err);

    return fd < 0 ? -1 : client_start_on(out, fd, target, request, options, reply, err);
}

/* ---- after a 101 ---- */

int client_fd(const struct client *client)
{
    return client->io.fd;
}

ssize_t client_take(struct client *client, void *out, size_t len, struct err *err)
{
    if (client->at == client->end)
        return client_io_take(&client->io, out, len, err);
    len = MIN(len, client->end - client->at);
    memcpy(out, client->window + client->at, len);
    client->at += len;
    return (ssize_t)len;
}

ssize_t client_give(struct client *client, const void *data, size_t len, struct err *err)
{
    return client_io_give(&client->io, data, len, err);
}

void client_shut(struct client *client)
{
    client_io_shut(&client->io);
}

/* ---- the body ---- */

static int bad_chunk(struct err *err)
{
    return err_set(err, ERR_INTERNAL, "the server's reply is not proper HTTP: chunk");
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Fifteen digits at most, then nothing or an extension, which is not looked at. */
static bool chunk_size(struct str line, uint64_t *size)
{
    size_t n = 0;

    *size = 0;
    while (n < line.n && hex_digit(line.p[n]) >= 0) {
        if (n == 15)
            return false; /* more than any body of ours */
        *size = *size << 4 | (uint64_t)hex_digit(line.p[n++]);
    }
    return n > 0 && (n == line.n || line.p[n] == ';');
}

static int skip_trailer(struct client *client, struct err *err)
{
    size_t total = 0;
    struct str line;

    do {
        if (cut(client, STR("\r\n"), HTTP_TRAILER_MAX, &line, err) < 0)
            return -1;
        total += line.n + 2;
        if (total > HTTP_TRAILER_MAX)
            return err_set(err, ERR_LIMIT, "the trailer of the server's reply is too long");
    } while (line.n);
    return 0;
}

/* Reads up to the next chunk's bytes; `over` is set at the end of the body. */
static int next_chunk(struct client *client, struct err *err)
{
    struct str line;

    if (!client->first) {
        if (cut(client, STR("\r\n"), HTTP_CHUNK_LINE_MAX, &line, err) < 0)
            return -1;
        if (line.n)
            return bad_chunk(err);
    }
    client->first = false;
    if (cut(client, STR("\r\n"), HTTP_CHUNK_LINE_MAX, &line, err) < 0)
        return -1;
    if (!chunk_size(line, &client->left))
        return bad_chunk(err);
    if (client->left)
        return 0;
    client->over = true;
    return skip_trailer(client, err);
}

/* Large pieces do not go through the window. */
static ssize_t take_bytes(struct client *client, void *out, size_t len, struct err *err)
{
    bool empty = client->at == client->end;
    ssize_t got;

    if (client->framing != FRAMED_CLOSE)
        len = (size_t)MIN(len, client->left);
    if (empty && len >= WINDOW) {
        got = client_io_read(&client->io, out, len, err);
        if (got > 0 && client->framing != FRAMED_CLOSE)
            client->left -= (uint64_t)got;
        return got;
    }
    if (empty && (got = fill(client, err)) <= 0)
        return got;
    len = MIN(len, client->end - client->at);
    memcpy(out, client->window + client->at, len);
    client->at += len;
    if (client->framing != FRAMED_CLOSE)
        client->left -= len;
    return (ssize_t)len;
}

ssize_t client_read(struct client *client, void *out, size_t len, struct err *err)
{
    if (client->framing == FRAMED_CHUNKED && !client->left && !client->over &&
        next_chunk(client, err) < 0)
        return -1;
    if (client->over || client->framing == FRAMED_NONE ||
        (client->framing == FRAMED_LENGTH && !client->left))
        return 0;
    ssize_t got = take_bytes(client, out, len, err);
    if (got == 0 && client->framing != FRAMED_CLOSE)
        return cut_short(err);
    client->over = got == 0;
    return got;
}

int client_call(const struct client_target *target, const struct client_request *request,
                const struct client_options *options, size_t body_max, struct client_reply *reply,
                struct buf *body, struct err *err)
{
    autoclient struct client *client = NULL;
    size_t before = body->len;
    char part[4096];

    if (client_start(&client, target, request, options, reply, err) < 0)
        return -1;
    if (reply->length > 0 && (uint64_t)reply->length > body_max)
        return err_set(err, ERR_LIMIT, "the server's reply is longer than %zu bytes", body_max);
    for (;;) {
        ssize_t got = client_read(client, part, sizeof(part), err);

        if (got <= 0)
            return (int)got;
        buf_append(body, part, (size_t)got);
        if (body->len - before > body_max || !buf_ok(body))
            return err_set(err, ERR_LIMIT, "the server's reply is longer than %zu bytes", body_max);
    }
}
