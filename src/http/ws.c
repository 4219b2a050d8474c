/*
 * A WebSocket is a request whose two directions became raw bytes (http_reply_begin 101, or 200 to
 * an extended CONNECT). What arrives goes through wslay's frame reader, which checks header forms
 * and unmasks; the rules between frames are ours: fragments, control frames among them, sizes,
 * UTF-8, close codes, ping rate. A message that arrived in one piece is handed on where it lies,
 * others are collected in one buffer that is given back when they were large.
 *
 * Life: open -> (close frame sent or received) -> over -> finish. `over` stops everything at once
 * and remembers the code; finish() makes the last call and frees. It runs only at the top of an
 * event (depth 0); anything that ends inside a call from the application rings `wake`, a timer of
 * zero, so that the application is never called back from within its own call.
 *
 * One timer serves both purposes that never coincide: the ping interval while open, the deadline
 * of the closing handshake afterwards.
 */
#include "http/ws.h"

#include <wslay/wslay.h>

#include "base/limits.h"
#include "base/metric.h"
#include "http/ws_own.h"

METRIC_GAUGE(open_now, "atoll_ws_connections", "Open WebSockets");
METRIC_GAUGE(agentic_open, "agentic_ws_connections_current", "Open WebSockets");
METRIC_COUNTER(agentic_total, "agentic_ws_connections_total", "WebSockets opened");
METRIC_COUNTER(messages_total, "atoll_ws_messages_total", "WebSocket messages", "direction", "in",
               "out");
METRIC_COUNTER(failed_total, "atoll_ws_failed_total",
               "WebSockets closed because of what the peer did or did not do", "why", "protocol",
               "text", "pings", "size", "slow", "silent");
enum { MESSAGE_IN, MESSAGE_OUT };
enum { FAILED_PROTOCOL, FAILED_TEXT, FAILED_PINGS, FAILED_SIZE, FAILED_SLOW, FAILED_SILENT };

#define MINUTE_MS 60000
#define CONTROL_MAX 125
#define SMALL_FRAME 4096

#define CODE_PROTOCOL 1002
#define CODE_NO_STATUS 1005
#define CODE_VANISHED 1006
#define CODE_BAD_TEXT 1007
#define CODE_POLICY 1008
#define CODE_TOO_BIG 1009
#define CODE_TRY_LATER 1013

struct ws {
    struct http_req *req;   /* borrowed until it is ended or gone; then NULL */
    struct http_peer *peer; /* borrowed likewise */
    struct loop *loop;
    const struct ws_ops *ops;
    void *ctx;

    wslay_frame_context_ptr frames; /* owned */
    struct str input;               /* what the frame reader may take, borrowed */
    struct buf held;                /* input that arrived while paused */
    struct buf message;             /* fragments so far */
    uint64_t frame_at;              /* bytes of the current frame's payload seen */
    uint64_t message_size;          /* as announced by the frame heads so far */
    uint8_t opcode;                 /* of the message being collected; 0 for none */
    uint8_t empty;                  /* frames without data in it */
    uint8_t control_size;
    uint8_t control[CONTROL_MAX];
    bool in_frame;

    bool starting;   /* inside ws_accept: hold what comes */
    bool paused;     /* by the application */
    bool eof;        /* the peer sends no more bytes */
    bool heard;      /* anything since our last ping */
    bool close_sent; /* a close frame went out */
    bool full;       /* on_drain is owed */
    bool cut;        /* finish drops the connection instead of ending it */
    bool over;
    unsigned depth; /* of calls that may call us back */

    int code;
    uint8_t reason_size;
    char reason[CONTROL_MAX];

    int64_t pings_since_ms;
    unsigned pings;
    struct timer tick, wake;
};

static int64_t ping_ms = WS_PING_MS, close_ms = WS_CLOSE_MS;

void ws_set_times(int64_t ping, int64_t close)
{
    ping_ms = ping ? ping : ping_ms;
    close_ms = close ? close : close_ms;
}

/* ---- the end ---- */

static void over(struct ws *ws, int code, struct str reason)
{
    if (ws->over)
        return;
    ws->over = true;
    ws->code = code;
    ws->reason_size = (uint8_t)MIN(reason.n, sizeof(ws->reason));
    if (ws->reason_size)
        memcpy(ws->reason, reason.p, ws->reason_size);
    if (ws->depth)
        timer_set(ws->loop, &ws->wake, 0);
}

static void finish(struct ws *ws)
{
    struct http_req *req = ws->req;

    timer_cancel(ws->loop, &ws->tick);
    timer_cancel(ws->loop, &ws->wake);
    ws->ops->on_close(ws, ws->code, (struct str){ ws->reason, ws->reason_size });
    if (req) {
        req->on_gone = NULL;
        req->on_drain = NULL;
        if (ws->cut)
            http_cut(req, "websocket peer does not answer");
        else
            http_reply_end(req, NULL, 0);
    }
    metric_add(&open_now, 0, -1);
    metric_add(&agentic_open, 0, -1);
    wslay_frame_context_free(ws->frames);
    buf_free(&ws->held);
    buf_free(&ws->message);
    free(ws);
}

/* ---- writing ---- */

static size_t frame_head(uint8_t out[10], unsigned opcode, uint64_t len)
{
    size_t wide = len < 126 ? 0 : len < 65536 ? 2 : 8;

    out[0] = (uint8_t)(0x80 | opcode);
    out[1] = (uint8_t)(wide == 0 ? len : wide == 2 ? 126 : 127);
    for (size_t i = 0; i < wide; i++)
        out[2 + i] = (uint8_t)(len >> (8 * (wide - 1 - i)));
    return 2 + wide;
}

static enum http_flow write_bytes(struct ws *ws, const void *data, size_t len)
{
    ws->depth++;
    enum http_flow flow = http_reply_write(ws->req, (struct str){ data, len });
    ws->depth--;
    if (flow == HTTP_FULL)
        ws->full = true;
    return flow; /* after HTTP_CUT comes on_gone */
}

/* Head and payload in one write: one system call, and no frame is ever cut between the two. */
static enum http_flow send_frame(struct ws *ws, unsigned opcode, struct str payload)
{
    uint8_t small[10 + SMALL_FRAME];
    autofree uint8_t *large = NULL;
    uint8_t *frame = small;

    if (!ws->req || ws->over)
        return HTTP_CUT;
    if (payload.n > SMALL_FRAME)
        frame = large = xmalloc(10 + payload.n);
    size_t head = frame_head(frame, opcode, payload.n);
    if (payload.n)
        memcpy(frame + head, payload.p, payload.n);
    return write_bytes(ws, frame, head + payload.n);
}

static void send_close(struct ws *ws, int code, struct str reason)
{
    char payload[CONTROL_MAX];
    size_t len = 0;

    if (ws->close_sent)
        return;
    if (code != CODE_NO_STATUS) {
        payload[len++] = (char)(code >> 8);
        payload[len++] = (char)code;
        size_t room = MIN(reason.n, sizeof(payload) - 2);
        while (room && !str_utf8((struct str){ reason.p, room }))
            room--; /* never half a character */
        if (room)
            memcpy(payload + len, reason.p, room);
        len += room;
    }
    send_frame(ws, WSLAY_CONNECTION_CLOSE, (struct str){ payload, len });
    ws->close_sent = true;
}

/* RFC 6455 section 7.1.7: say why, then close without waiting for more. */
static void fail(struct ws *ws, int code, const char *why)
{
    metric_add(&failed_total,
               code == CODE_BAD_TEXT  ? FAILED_TEXT
               : code == CODE_POLICY  ? FAILED_PINGS
               : code == CODE_TOO_BIG ? FAILED_SIZE
                                      : FAILED_PROTOCOL,
               1);
    send_close(ws, code, str_of(why));
    over(ws, code, str_of(why));
}

enum http_flow ws_send(struct ws *ws, bool text, struct str data)
{
    if (ws->over || ws->close_sent)
        return HTTP_CUT;
    size_t unsent = ws_unsent(ws);
    if (unsent > HTTP_OUT_HIGH && unsent + data.n + 10 + CONTROL_MAX > HTTP_OUT_MAX) {
        metric_add(&failed_total, FAILED_SLOW, 1);
        ws_close(ws, CODE_TRY_LATER, "reading too slowly");
        return HTTP_CUT;
    }
    metric_add(&messages_total, MESSAGE_OUT, 1);
    return send_frame(ws, text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, data);
}

size_t ws_unsent(const struct ws *ws)
{
    return ws->req ? http_unsent(ws->req) : 0;
}

void ws_close(struct ws *ws, int code, const char *reason)
{
    if (ws->over || ws->close_sent)
        return;
    send_close(ws, code, str_of(reason));
    timer_set(ws->loop, &ws->tick, close_ms);
}

/* ---- reading: what a whole frame means ---- */

/* Codes a peer may send: the registered ones, libraries' (3000) and applications' (4000). */
static bool code_allowed(int code)
{
    return (code >= 1000 && code <= 1014 && code != 1004 && code != CODE_NO_STATUS &&
            code != CODE_VANISHED) ||
           (code >= 3000 && code <= 4999);
}

static void take_close(struct ws *ws)
{
    struct str reason = STR_NONE;
    int code = CODE_NO_STATUS;

    if (ws->control_size == 1)
        return fail(ws, CODE_PROTOCOL, "close frame of one byte");
    if (ws->control_size >= 2) {
        code = ws->control[0] << 8 | ws->control[1];
        reason = (struct str){ (char *)ws->control + 2, (size_t)ws->control_size - 2 };
        if (!code_allowed(code))
            return fail(ws, CODE_PROTOCOL, "close code not allowed");
        if (!str_utf8(reason))
            return fail(ws, CODE_BAD_TEXT, "close reason is not UTF-8");
    }
    send_close(ws, code, STR_NONE);
    over(ws, code, reason);
}

/* Pongs count too: an unasked one costs as much as a ping. Ours is one each WS_PING_MS. */
static bool ping_allowed(struct ws *ws)
{
    int64_t now = loop_now(ws->loop);

    if (now - ws->pings_since_ms >= MINUTE_MS) {
        ws->pings_since_ms = now;
        ws->pings = 0;
    }
    return ++ws->pings <= WS_PINGS_MAX;
}

static void take_control(struct ws *ws, unsigned opcode)
{
    if (opcode == WSLAY_CONNECTION_CLOSE)
        return take_close(ws);
    if (!ping_allowed(ws))
        return fail(ws, CODE_POLICY, "too many pings");
    if (opcode == WSLAY_PING && !ws->close_sent)
        send_frame(ws, WSLAY_PONG, (struct str){ (char *)ws->control, ws->control_size });
}

static void take_message(struct ws *ws, struct str data)
{
    bool text = ws->opcode == WSLAY_TEXT_FRAME;

    if (text && !str_utf8(data))
        return fail(ws, CODE_BAD_TEXT, "text is not UTF-8");
    metric_add(&messages_total, MESSAGE_IN, 1);
    if (!ws->close_sent)
        ws->ops->on_message(ws, text, data);
    ws->opcode = 0;
    ws->message_size = 0;
    ws->empty = 0;
    ws->message.len = 0;
    if (ws->message.cap > SMALL_FRAME)
        buf_free(&ws->message);
}

/* ---- reading: frames ---- */

/* What section 5 says of a frame's head. False: the connection was failed. */
static bool frame_begins(struct ws *ws, const struct wslay_frame_iocb *frame)
{
    const char *wrong = NULL;

    if (frame->rsv)
        wrong = "reserved bit set";
    else if (!frame->mask)
        wrong = "frame without mask";
    else if ((frame->opcode & 7) > 2)
        wrong = "unknown opcode";
    else if (frame->opcode == WSLAY_CONTINUATION_FRAME && !ws->opcode)
        wrong = "continuation of nothing";
    else if ((frame->opcode == WSLAY_TEXT_FRAME || frame->opcode == WSLAY_BINARY_FRAME) &&
             ws->opcode)
        wrong = "message begun inside another";
    if (wrong) {
        fail(ws, CODE_PROTOCOL, wrong);
        return false;
    }
    ws->in_frame = true;
    ws->frame_at = 0;
    ws->control_size = 0;
    if (wslay_is_ctrl_frame(frame->opcode))
        return true; /* wslay refused those over 125 bytes and those in fragments */
    if (frame->opcode)
        ws->opcode = frame->opcode;
    if (frame->payload_length > WS_MESSAGE_MAX - ws->message_size) {
        fail(ws, CODE_TOO_BIG, "message too big");
        return false;
    }
    ws->message_size += frame->payload_length;
    if (frame->payload_length == 0 && !frame->fin && ++ws->empty > WS_EMPTY_MAX) {
        fail(ws, CODE_POLICY, "too many empty frames");
        return false;
    }
    return true;
}

static void take_piece(struct ws *ws, const struct wslay_frame_iocb *frame)
{
    bool control = wslay_is_ctrl_frame(frame->opcode);
    struct str data = { (const char *)frame->data, frame->data_length };

    ws->frame_at += data.n;
    bool ends = ws->frame_at == frame->payload_length;
    ws->in_frame = !ends;
    if (control) {
        if (data.n)
            memcpy(ws->control + ws->control_size, data.p, data.n);
        ws->control_size = (uint8_t)(ws->control_size + data.n);
        if (ends)
            take_control(ws, frame->opcode);
    } else if (ends && frame->fin && !ws->message.len) {
        take_message(ws, data);
    } else {
        buf_str(&ws->message, data);
        if (ends && frame->fin)
            take_message(ws, buf_view(&ws->message));
    }
}

static ssize_t give_input(uint8_t *out, size_t len, int flags, void *user)
{
    struct ws *ws = user;
    size_t n = MIN(len, ws->input.n);

    (void)flags;
    if (!n)
        return -1; /* wslay: come back with more */
    memcpy(out, ws->input.p, n);
    ws->input = str_from(ws->input, n);
    return (ssize_t)n;
}

static void read_frames(struct ws *ws)
{
    ws->depth++;
    while (!ws->over && !ws->paused) {
        struct wslay_frame_iocb frame = { 0 };
        ssize_t n = wslay_frame_recv(ws->frames, &frame);

        if (n == WSLAY_ERR_WANT_READ)
            break;
        if (n < 0)
            fail(ws, CODE_PROTOCOL, "bad frame");
        else if (ws->in_frame || frame_begins(ws, &frame))
            take_piece(ws, &frame);
    }
    ws->depth--;
}

/* Reads on from what was held back, then from the network again. */
static void read_held(struct ws *ws)
{
    if (ws->over || ws->paused || !ws->req)
        return;
    ws->input = buf_view(&ws->held);
    read_frames(ws);
    buf_consume(&ws->held, ws->held.len - ws->input.n);
    ws->input = STR_NONE;
    if (ws->held.len || ws->over || ws->paused)
        return;
    buf_free(&ws->held);
    if (ws->eof)
        over(ws, CODE_VANISHED, STR_NONE);
    else
        http_read_resume(ws->req);
}

/* ---- events ---- */

static void on_data(struct http_req *req, struct str data, bool last)
{
    struct ws *ws = req->app;

    ws->heard = true;
    ws->eof |= last;
    if (ws->over)
        return;
    if (ws->starting || ws->paused || ws->held.len || ws->depth) {
        buf_str(&ws->held, data);
        if (!buf_ok(&ws->held))
            over(ws, CODE_VANISHED, STR("paused too long"));
        if (!ws->paused)
            timer_set(ws->loop, &ws->wake, 0);
    } else {
        ws->input = data;
        read_frames(ws);
        buf_str(&ws->held, ws->input);
        ws->input = STR_NONE;
        if (ws->eof && !ws->paused)
            over(ws, CODE_VANISHED, STR_NONE);
    }
    if (ws->over && !ws->depth)
        finish(ws);
}

static void on_gone(struct http_req *req)
{
    struct ws *ws = req->app;

    ws->req = NULL;
    over(ws, CODE_VANISHED, STR_NONE);
    if (ws->depth)
        ws->peer = NULL; /* it will not live until `wake` */
    else
        finish(ws);
}

static void tell_drain(struct ws *ws)
{
    if (!ws->full || ws->over || ws->close_sent || ws_unsent(ws) > HTTP_OUT_HIGH)
        return;
    ws->full = false;
    if (ws->ops->on_drain)
        ws->ops->on_drain(ws);
}

static void on_drain(struct http_req *req)
{
    struct ws *ws = req->app;

    if (ws->depth)
        timer_set(ws->loop, &ws->wake, 0);
    else
        tell_drain(ws);
}

static void on_wake(struct timer *timer)
{
    struct ws *ws = container_of(timer, struct ws, wake);

    read_held(ws);
    tell_drain(ws);
    if (ws->over)
        finish(ws);
}

/*
 * A peer whose network is gone sends no FIN. One that we do not read from (paused), or that still
 * has our bytes to take, is not judged here: the server's write-stall limit watches the latter.
 */
static void on_tick(struct timer *timer)
{
    struct ws *ws = container_of(timer, struct ws, tick);
    bool waiting = ws->paused || ws_unsent(ws) > 0;

    if (ws->close_sent || (!ws->heard && !waiting)) {
        ws->cut = true;
        metric_add(&failed_total, FAILED_SILENT, 1);
        over(ws, CODE_VANISHED, STR_NONE);
        finish(ws);
        return;
    }
    ws->heard = false;
    timer_set(ws->loop, &ws->tick, ping_ms);
    if (!waiting)
        send_frame(ws, WSLAY_PING, STR_NONE);
    if (ws->over)
        finish(ws);
}

void ws_pause(struct ws *ws)
{
    if (ws->paused || ws->over)
        return;
    ws->paused = true;
    http_read_pause(ws->req);
}

void ws_resume(struct ws *ws)
{
    if (!ws->paused || ws->over)
        return;
    ws->paused = false;
    ws->heard = true;
    timer_set(ws->loop, &ws->wake, 0);
}

/* ---- the beginning ---- */

int ws_accept(struct http_req *req, const char *protocol, const struct ws_ops *ops, void *ctx,
              struct ws **out, struct err *err)
{
    static const struct wslay_frame_callbacks callbacks = { .recv_callback = give_input };

    if (ws_hello_check(req, protocol, err) < 0)
        return -1;

    struct ws *ws = xnew(struct ws);
    ws->req = req;
    ws->peer = req->peer;
    ws->loop = http_loop(req);
    ws->ops = ops;
    ws->ctx = ctx;
    ws->held.max = HTTP_OUT_MAX;
    ws->message.max = WS_MESSAGE_MAX;
    ws->tick.fn = on_tick;
    ws->wake.fn = on_wake;
    ws->pings_since_ms = loop_now(ws->loop);
    ws->heard = true;
    if (wslay_frame_context_init(&ws->frames, &callbacks, ws) != 0) {
        free(ws);
        return err_set(err, ERR_UNAVAILABLE, "no memory for a WebSocket");
    }
    metric_add(&open_now, 0, 1);
    metric_add(&agentic_open, 0, 1);
    metric_add(&agentic_total, 0, 1);
    req->app = ws;
    req->on_gone = on_gone;
    req->on_drain = on_drain;
    *out = ws;

    ws->starting = true;
    ws->depth++;
    ws_hello_answer(req, protocol);
    if (ws->req) {
        http_slim(req);
        http_read_stream(req, UINT64_MAX, on_data);
    }
    ws->depth--;
    ws->starting = false;
    timer_set(ws->loop, &ws->tick, ping_ms);
    return 0;
}

void *ws_ctx(const struct ws *ws)
{
    return ws->ctx;
}

struct http_peer *ws_peer(const struct ws *ws)
{
    return ws->peer;
}
