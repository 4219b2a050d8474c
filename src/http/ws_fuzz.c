/*
 * Frames after the handshake. The same bytes go in at once and in pieces (whose sizes the input's
 * first byte chooses); what the application saw and what went out must not depend on that.
 */
#include "http/ws.h"

#include "http/http_fake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct buf seen;
static unsigned messages;
static bool closed;

static void saw_message(struct ws *ws, bool text, struct str data)
{
    uint32_t len = (uint32_t)data.n;

    if (closed || (text && !str_utf8(data)) || data.n > WS_MESSAGE_MAX)
        abort();
    buf_putc(&seen, text ? 't' : 'b');
    buf_append(&seen, &len, sizeof(len));
    buf_str(&seen, data);
    ws_send(ws, text, data);
    if (++messages % 8 == 0)
        ws_close(ws, 1000, "enough");
}

static void saw_close(struct ws *ws, int code, struct str reason)
{
    (void)ws;
    if (closed || code < 1000 || code > 4999 || !str_utf8(reason))
        abort();
    closed = true;
    buf_append(&seen, &code, sizeof(code));
    buf_str(&seen, reason);
}

static void run(const uint8_t *data, size_t size, size_t piece, struct buf *result)
{
    static const struct ws_ops ops = { .on_message = saw_message, .on_close = saw_close };
    static struct loop *loop;
    struct err err;
    struct ws *ws;

    if (!loop && loop_new(&loop, &err) < 0)
        abort();
    closed = false;
    messages = 0;
    fake_reset(loop, HTTP_2, "CONNECT");
    fake_header(":protocol", "websocket");
    fake_header("sec-websocket-version", "13");
    if (ws_accept(&fake.req, NULL, &ops, NULL, &ws, &err) < 0)
        abort();
    for (size_t at = 0; at < size; at += piece)
        fake_feed(data + at, MIN(piece, size - at), false);
    fake_feed(NULL, 0, true);
    if (!closed)
        abort();
    buf_str(result, buf_view(&seen));
    buf_str(result, buf_view(&fake.body));
    buf_free(&seen);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    autobuf struct buf whole = { 0 }, pieces = { 0 };

    if (size < 1)
        return 0;
    run(data + 1, size - 1, size, &whole);
    run(data + 1, size - 1, 1 + data[0] % 16, &pieces);
    if (!str_eq(buf_view(&whole), buf_view(&pieces)))
        abort();
    return 0;
}
