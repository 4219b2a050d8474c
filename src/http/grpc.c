/*
 * A call is a request taken over. The body goes, after base64 for gRPC-Web text, through one small
 * machine: five bytes of prefix (flag, length), then that many bytes of message. A message that
 * lies whole in one piece of body is handed on where it lies; others are collected in one buffer,
 * which grows as bytes really arrive, never by what a prefix announces.
 *
 * Answers: gRPC has its status in HTTP/2 trailers, or in the only header block when there is no
 * message; gRPC-Web has it in a last frame of the body (flag 0x80), because browsers do not show
 * trailers to programs.
 *
 * Ending follows the same rule as ws.c: `over` stops everything, the last call is made at the top
 * of an event (depth 0), and what ends inside a call from the handler rings `wake`.
 */
#include "http/grpc.h"

#include <openssl/evp.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/metric.h"

METRIC_COUNTER(calls_total, "atoll_grpc_calls_total", "gRPC calls ended", "status", "ok",
               "client_error", "server_error", "deadline", "gone");
enum { CALL_OK, CALL_CLIENT_ERROR, CALL_SERVER_ERROR, CALL_DEADLINE, CALL_GONE };

#define PREFIX 5
#define FLAG_COMPRESSED 0x01
#define FLAG_TRAILERS 0x80
#define MESSAGE_KEEP 4096 /* larger collecting buffers are given back after each message */
#define SMALL_FRAME 4096
#define STATUS_TEXT_MAX 1024 /* of grpc-message, before percent-encoding */

enum kind { KIND_NONE, KIND_GRPC, KIND_WEB, KIND_WEB_TEXT };

static const struct content_type {
    const char *text;
    enum kind kind;
} content_types[] = {
    { "application/grpc", KIND_GRPC },
    { "application/grpc+proto", KIND_GRPC },
    { "application/grpc-web", KIND_WEB },
    { "application/grpc-web+proto", KIND_WEB },
    { "application/grpc-web-text", KIND_WEB_TEXT },
    { "application/grpc-web-text+proto", KIND_WEB_TEXT },
};

struct grpc {
    struct http_req *req; /* borrowed until it is ended or gone; then NULL */
    struct loop *loop;
    const struct grpc_ops *ops;
    void *ctx;
    const struct content_type *type;

    uint8_t prefix[PREFIX];
    uint8_t prefix_size;
    uint8_t quad[4]; /* base64 digits waiting for their group to fill */
    uint8_t quad_size;
    uint32_t message_size; /* of the message under way, when the prefix is whole */
    struct buf message;
    struct buf held; /* bytes that arrived while paused */

    bool encoding;  /* the request names an encoding other than identity */
    bool begun;     /* the answer's head is out */
    bool paused;    /* by the handler */
    bool eof;       /* the client's body is complete */
    bool broken;    /* its text is not base64; failed when what came before is handed on */
    bool full;      /* on_drain is owed */
    bool finished;  /* the handler has ended it: no on_cancel */
    bool over;      /* nothing more is to happen but the end */
    unsigned depth; /* of calls that may call us back */
    struct timer deadline, wake;
};

/* ---- the end ---- */

static void call_free(struct grpc *call)
{
    timer_cancel(call->loop, &call->deadline);
    timer_cancel(call->loop, &call->wake);
    buf_free(&call->message);
    buf_free(&call->held);
    free(call);
}

/* At the top of an event, when `over`. */
static void last_call(struct grpc *call)
{
    if (!call->finished)
        call->ops->on_cancel(call);
    call_free(call);
}

/* ---- the answer ---- */

static const struct content_type *type_of(const struct http_req *req)
{
    struct str rest = http_header(req, "content-type");
    struct str essence = str_trim(str_cut(&rest, ';'));

    for (size_t i = 0; i < ARRAY_LEN(content_types); i++)
        if (str_eq_nocase(essence, str_of(content_types[i].text)))
            return &content_types[i];
    return NULL;
}

bool grpc_wanted(const struct http_req *req)
{
    return type_of(req) != NULL;
}

/* Space to '~' pass, except '%' (gRPC over HTTP2, "Status-Message"). */
static void percent_encode(struct buf *out, const char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t len = strnlen(text, STATUS_TEXT_MAX);

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c >= 0x20 && c <= 0x7e && c != '%') {
            buf_putc(out, (char)c);
            continue;
        }
        buf_putc(out, '%');
        buf_putc(out, digits[c >> 4]);
        buf_putc(out, digits[c & 15]);
    }
}

static void frame_head(uint8_t out[PREFIX], uint8_t flag, size_t len)
{
    out[0] = flag;
    out[1] = (uint8_t)(len >> 24);
    out[2] = (uint8_t)(len >> 16);
    out[3] = (uint8_t)(len >> 8);
    out[4] = (uint8_t)len;
}

/* One frame of the body, in base64 where the client asked for text; one write for all of it. */
static enum http_flow write_frame(struct http_req *req, enum kind kind, uint8_t flag,
                                  struct str data)
{
    uint8_t small[PREFIX + SMALL_FRAME];
    autofree uint8_t *large = NULL;
    uint8_t *frame = small;
    size_t len = PREFIX + data.n;

    if (data.n > SMALL_FRAME)
        frame = large = xmalloc(len);
    frame_head(frame, flag, data.n);
    if (data.n)
        memcpy(frame + PREFIX, data.p, data.n);
    if (kind != KIND_WEB_TEXT)
        return http_reply_write(req, (struct str){ (char *)frame, len });

    autofree unsigned char *text = xmalloc((len + 2) / 3 * 4 + 1);
    int size = EVP_EncodeBlock(text, frame, (int)len);
    return http_reply_write(req, (struct str){ (char *)text, (size_t)size });
}

static size_t answer_head(const struct content_type *type, struct http_header out[2])
{
    out[0] = (struct http_header){ STR("content-type"), str_of(type->text) };
    out[1] = (struct http_header){ STR("grpc-accept-encoding"), STR("identity") };
    return 2;
}

/* The last frame of gRPC-Web: the trailers as HTTP/1 would write them. */
static void end_web(struct http_req *req, enum kind kind, struct str status, struct str message)
{
    autobuf struct buf text = { 0 };

    buf_puts(&text, "grpc-status: ");
    buf_str(&text, status);
    buf_puts(&text, "\r\n");
    if (message.n) {
        buf_puts(&text, "grpc-message: ");
        buf_str(&text, message);
        buf_puts(&text, "\r\n");
    }
    write_frame(req, kind, FLAG_TRAILERS, buf_view(&text));
    http_reply_end(req, NULL, 0);
}

static unsigned call_outcome(int status)
{
    switch (status) {
    case GRPC_OK:
        return CALL_OK;
    case GRPC_DEADLINE_EXCEEDED:
        return CALL_DEADLINE;
    case GRPC_UNKNOWN:
    case GRPC_INTERNAL:
    case GRPC_UNAVAILABLE:
    case GRPC_DATA_LOSS:
        return CALL_SERVER_ERROR;
    default:
        return CALL_CLIENT_ERROR;
    }
}

/* Ends the request with this status. Its on_gone must not be ours any more. */
static void answer_status(struct http_req *req, const struct content_type *type, bool begun,
                          int status, const char *message)
{
    autobuf struct buf encoded = { 0 };
    struct http_header headers[4];
    char digits[12];

    metric_add(&calls_total, call_outcome(status), 1);
    if (message)
        percent_encode(&encoded, message);
    int len = snprintf(digits, sizeof(digits), "%d", status);
    struct str code = { digits, (size_t)len };

    if (type->kind != KIND_GRPC) {
        if (!begun)
            http_reply_begin(req, 200, headers, answer_head(type, headers));
        return end_web(req, type->kind, code, buf_view(&encoded));
    }
    size_t count = begun ? 0 : answer_head(type, headers);
    headers[count++] = (struct http_header){ STR("grpc-status"), code };
    if (encoded.len)
        headers[count++] = (struct http_header){ STR("grpc-message"), buf_view(&encoded) };
    if (begun)
        http_reply_end(req, headers, count);
    else
        http_reply(req, 200, headers, count, STR_NONE);
}

void grpc_refuse(struct http_req *req, int status, const char *message)
{
    const struct content_type *type = type_of(req);

    answer_status(req, type ? type : &content_types[0], false, status, message);
}

enum http_flow grpc_send(struct grpc *call, struct str message)
{
    struct http_header headers[2];

    if (call->over || !call->req)
        return HTTP_CUT;
    call->depth++;
    if (!call->begun) {
        call->begun = true;
        http_reply_begin(call->req, 200, headers, answer_head(call->type, headers));
    }
    enum http_flow flow =
        call->req ? write_frame(call->req, call->type->kind, 0, message) : HTTP_CUT;
    call->depth--;
    if (flow == HTTP_FULL)
        call->full = true;
    return flow;
}

/* Takes the request away from the call and answers it. */
static void end_request(struct grpc *call, int status, const char *message)
{
    struct http_req *req = take_ptr(&call->req);

    if (!req)
        return;
    req->on_gone = NULL;
    req->on_drain = NULL;
    req->app = NULL;
    answer_status(req, call->type, call->begun, status, message);
}

void grpc_finish(struct grpc *call, int status, const char *message)
{
    call->finished = true;
    call->over = true;
    end_request(call, status, message);
    if (!call->depth)
        call_free(call);
}

/* The client broke the rules or the deadline passed: it gets the status, the handler on_cancel. */
static void fail(struct grpc *call, int status, const char *message)
{
    if (call->over)
        return;
    call->over = true;
    end_request(call, status, message);
}

/* ---- messages in ---- */

/* The prefix is whole: may this message come? */
static bool message_begins(struct grpc *call)
{
    uint8_t flag = call->prefix[0];
    const uint8_t *p = call->prefix;

    call->message_size =
        (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | (uint32_t)p[4];
    if (flag == FLAG_COMPRESSED && call->encoding)
        fail(call, GRPC_UNIMPLEMENTED, "only the identity encoding is supported");
    else if (flag == FLAG_COMPRESSED)
        fail(call, GRPC_INTERNAL, "compressed message without grpc-encoding");
    else if (flag)
        fail(call, GRPC_INTERNAL, "unknown flag before a message");
    else if (call->message_size > GRPC_MESSAGE_MAX)
        fail(call, GRPC_RESOURCE_EXHAUSTED, "message over the limit");
    return !call->over;
}

static void give_message(struct grpc *call, struct str message)
{
    call->prefix_size = 0;
    call->ops->on_message(call, message);
    call->message.len = 0;
    if (call->message.cap > MESSAGE_KEEP)
        buf_free(&call->message);
}

/* Takes what it can; returns what is left because the handler paused or the call ended. */
static struct str take_bytes(struct grpc *call, struct str data)
{
    while (!call->over && !call->paused) {
        if (call->prefix_size < PREFIX) {
            size_t n = MIN((size_t)(PREFIX - call->prefix_size), data.n);

            if (!data.n)
                break;
            memcpy(call->prefix + call->prefix_size, data.p, n);
            call->prefix_size = (uint8_t)(call->prefix_size + n);
            data = str_from(data, n);
            if (call->prefix_size < PREFIX || !message_begins(call))
                break;
        }
        size_t missing = call->message_size - call->message.len;
        struct str part = { data.p, MIN(missing, data.n) };
        data = str_from(data, part.n);
        if (part.n < missing) {
            buf_str(&call->message, part);
            break;
        }
        if (call->message.len) {
            buf_str(&call->message, part);
            part = buf_view(&call->message);
        }
        give_message(call, part);
    }
    return data;
}

static void at_end(struct grpc *call)
{
    if (!(call->eof || call->broken) || call->over || call->paused || call->held.len)
        return;
    call->eof = false; /* told once */
    if (call->broken)
        fail(call, GRPC_INTERNAL, "the body is not base64");
    else if (call->prefix_size || call->quad_size)
        fail(call, GRPC_INTERNAL, "the body ends inside a message");
    else
        call->ops->on_end(call);
}

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Four digits, the last one or two of which may be padding, to one to three bytes. */
static bool decode_quad(const uint8_t quad[4], struct buf *out)
{
    int a = digit_of((char)quad[0]), b = digit_of((char)quad[1]);
    int c = digit_of((char)quad[2]), d = digit_of((char)quad[3]);
    size_t bytes = quad[2] == '=' && quad[3] == '=' ? 1 : quad[3] == '=' ? 2 : 3;

    if (a < 0 || b < 0 || (bytes > 1 && c < 0) || (bytes > 2 && d < 0))
        return false;
    uint32_t bits = (uint32_t)a << 18 | (uint32_t)b << 12;
    bits |= bytes > 1 ? (uint32_t)c << 6 : 0;
    bits |= bytes > 2 ? (uint32_t)d : 0;
    if (bits & ((1u << (8 * (3 - bytes))) - 1))
        return false; /* bits that no byte holds must be zero: one text for one value */
    for (size_t i = 0; i < bytes; i++)
        buf_putc(out, (char)(bits >> (16 - 8 * i)));
    return true;
}

/* Clients join separately encoded pieces, so padding may come anywhere. */
static bool decode_text(struct grpc *call, struct str text, struct buf *out)
{
    for (size_t i = 0; i < text.n; i++) {
        call->quad[call->quad_size++] = (uint8_t)text.p[i];
        if (call->quad_size < 4)
            continue;
        call->quad_size = 0;
        if (!decode_quad(call->quad, out))
            return false;
    }
    return true;
}

static void take_body(struct grpc *call, struct str data)
{
    autobuf struct buf decoded = { 0 };

    if (call->broken)
        return;
    if (call->type->kind == KIND_WEB_TEXT) {
        call->broken = !decode_text(call, data, &decoded);
        data = buf_view(&decoded);
    }
    if (!call->held.len && !call->paused)
        data = take_bytes(call, data);
    if (call->over)
        return;
    buf_str(&call->held, data);
    if (!buf_ok(&call->held))
        fail(call, GRPC_RESOURCE_EXHAUSTED, "paused too long");
}

/* ---- events ---- */

static void on_data(struct http_req *req, struct str data, bool last)
{
    struct grpc *call = req->app;

    if (call->over)
        return;
    call->eof |= last;
    call->depth++;
    take_body(call, data);
    at_end(call);
    call->depth--;
    if (call->over)
        last_call(call);
}

static void on_gone(struct http_req *req)
{
    struct grpc *call = req->app;

    metric_add(&calls_total, CALL_GONE, 1);
    call->req = NULL;
    call->over = true;
    if (call->depth)
        timer_set(call->loop, &call->wake, 0);
    else
        last_call(call);
}

static void on_drain(struct http_req *req)
{
    struct grpc *call = req->app;

    if (!call->full || call->over)
        return;
    call->full = false;
    if (call->ops->on_drain)
        call->ops->on_drain(call);
}

static void on_wake(struct timer *timer)
{
    struct grpc *call = container_of(timer, struct grpc, wake);

    call->depth++;
    if (!call->over && !call->paused) {
        struct str rest = take_bytes(call, buf_view(&call->held));

        buf_consume(&call->held, call->held.len - rest.n);
        at_end(call);
    }
    if (!call->over && !call->paused && call->req) {
        buf_free(&call->held);
        http_read_resume(call->req);
    }
    call->depth--;
    if (call->over)
        last_call(call);
}

static void on_deadline(struct timer *timer)
{
    struct grpc *call = container_of(timer, struct grpc, deadline);

    fail(call, GRPC_DEADLINE_EXCEEDED, "deadline exceeded");
    last_call(call);
}

void grpc_pause(struct grpc *call)
{
    if (call->paused || call->over || !call->req)
        return;
    call->paused = true;
    http_read_pause(call->req);
}

void grpc_resume(struct grpc *call)
{
    if (!call->paused || call->over)
        return;
    call->paused = false;
    timer_set(call->loop, &call->wake, 0);
}

/* ---- the beginning ---- */

bool grpc_timeout(struct str text, int64_t *ms)
{
    static const struct {
        char unit;
        int64_t mul, div; /* to milliseconds */
    } units[] = { { 'H', 3600000, 1 }, { 'M', 60000, 1 }, { 'S', 1000, 1 },
                  { 'm', 1, 1 },       { 'u', 1, 1000 },  { 'n', 1, 1000000 } };
    int64_t value = 0;

    if (text.n < 2 || text.n > 9)
        return false;
    for (size_t i = 0; i + 1 < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
        value = value * 10 + (text.p[i] - '0');
    }
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (units[i].unit == text.p[text.n - 1]) {
            *ms = (value * units[i].mul + units[i].div - 1) / units[i].div;
            return true;
        }
    return false;
}

static void refuse_plain(struct http_req *req, int status, const char *why)
{
    static const struct http_header headers[] = {
        { STR("content-type"), STR("text/plain; charset=utf-8") },
        { STR("allow"), STR("POST") },
    };

    http_reply(req, status, headers, status == 405 ? 2 : 1, str_of(why));
}

/* Answers a request that cannot be a call; false if it can. */
static bool refused(struct http_req *req, const struct content_type *type, int64_t *timeout_ms)
{
    struct str timeout = http_header(req, "grpc-timeout");

    *timeout_ms = -1;
    if (!type)
        refuse_plain(req, 415, "not a gRPC content type");
    else if (!str_is(req->method, "POST"))
        refuse_plain(req, 405, "gRPC calls are POST");
    else if (type->kind == KIND_GRPC && req->version != HTTP_2)
        refuse_plain(req, 505, "gRPC needs HTTP/2; gRPC-Web works without");
    else if (timeout.p && !grpc_timeout(timeout, timeout_ms))
        grpc_refuse(req, GRPC_INTERNAL, "malformed grpc-timeout");
    else
        return false;
    return true;
}

struct grpc *grpc_begin(struct http_req *req, const struct grpc_ops *ops, void *ctx)
{
    struct str encoding = http_header(req, "grpc-encoding");
    struct grpc *call = xnew(struct grpc);
    int64_t timeout_ms;

    call->loop = http_loop(req);
    call->ops = ops;
    call->ctx = ctx;
    call->type = type_of(req);
    call->encoding = encoding.n && !str_is(encoding, "identity");
    call->message.max = GRPC_MESSAGE_MAX;
    call->held.max = GRPC_MESSAGE_MAX;
    call->deadline.fn = on_deadline;
    call->wake.fn = on_wake;
    if (refused(req, call->type, &timeout_ms)) {
        call->over = true;
        timer_set(call->loop, &call->wake, 0);
        return call;
    }
    call->req = req;
    req->app = call;
    req->on_gone = on_gone;
    req->on_drain = on_drain;
    if (timeout_ms >= 0)
        timer_set(call->loop, &call->deadline,
                  MAX(0, timeout_ms - (clock_mono_us() - req->started_us) / 1000));
    http_read_stream(req, HTTP_BODY_STREAM_MAX, on_data);
    return call;
}

void *grpc_ctx(const struct grpc *call)
{
    return call->ctx;
}

struct http_req *grpc_req(const struct grpc *call)
{
    return call->req;
}
