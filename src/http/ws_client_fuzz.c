/*
 * Frames of a server that may be anybody, after the handshake. The same bytes come at once and in
 * pieces (whose sizes the input's first byte chooses): messages, the close and its code must not
 * depend on that.
 */
#include <sys/socket.h>

#include "http/ws_client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX 8192 /* what we answer to pings fits into a socket that nobody reads */

/* 0 when all that is whole was taken, -1 at the end. */
static int take(struct ws_client *ws, struct buf *seen, struct err *err)
{
    struct ws_message message;
    int rc;

    while ((rc = ws_client_next(ws, &message, err)) > 0) {
        if (message.text && !str_utf8(message.data))
            abort();
        buf_printf(seen, "%c%zu:", message.text ? 't' : 'b', message.data.n);
        buf_str(seen, message.data);
    }
    if (rc < 0)
        buf_printf(seen, "%d %s", ws_client_code(ws), err->msg);
    return rc;
}

static void run(const uint8_t *data, size_t size, size_t piece, struct buf *seen)
{
    struct ws_client *ws = NULL;
    struct err err = { 0 };
    int pair[2], rc = 0;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
        ws_client_adopt(&ws, pair[1], &err) < 0)
        abort();
    for (size_t at = 0; at < size && rc == 0; at += piece) {
        size_t len = MIN(piece, size - at);

        if (send(pair[0], data + at, len, MSG_NOSIGNAL) != (ssize_t)len ||
            ws_client_read(ws, &err) < 0)
            abort();
        rc = take(ws, seen, &err);
    }
    shutdown(pair[0], SHUT_WR);
    if (rc == 0 && ws_client_read(ws, &err) == 0)
        abort(); /* it goes on after its end */
    if (!err.code || ws_client_code(ws) < 1000 || ws_client_code(ws) > 4999)
        abort();
    ws_client_free(ws);
    close(pair[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    autobuf struct buf whole = { 0 }, pieces = { 0 };

    if (size < 1 || size > INPUT_MAX)
        return 0;
    run(data + 1, size - 1, size, &whole);
    run(data + 1, size - 1, 1 + data[0] % 16, &pieces);
    if (!str_eq(buf_view(&whole), buf_view(&pieces)))
        abort();
    return 0;
}
