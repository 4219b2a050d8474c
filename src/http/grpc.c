/*
 * A call is a request taken over. The body goes, after base64 for gRPC-Web text, through one small
 * machine: five bytes of prefix (flag, length), then that many bytes of message. A message that
 * lies whole in one piece of body is handed on where it lies; others are collected in one buffer,
 * which grows as bytes really arrive, never by what a prefix announces. A unary call of Connect has
 * no prefix: its body is the message, or, of a GET, a part of its query.
 *
 * Ending follows the same rule as ws.c: `over` stops everything, the last call is made at the top
 * of an event (depth 0), and what ends inside a call from the handler rings `wake`.
 */
#include "http/grpc.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/limits.h"
#include "http/grpc_own.h"
#include "http/url.h"

#define PREFIX GRPC_PREFIX
#define FLAG_COMPRESSED 0x01
#define MESSAGE_KEEP 4096 /* larger collecting buffers are given back after each message */

struct grpc {
    struct http_req *req; /* borrowed until it is ended or gone; then NULL */
    struct loop *loop;
    const struct grpc_ops *ops;
    void *ctx;
    const struct grpc_type *type;

    uint8_t prefix[PREFIX];
    uint8_t prefix_size;
    uint8_t quad[4]; /* base64 digits waiting for their group to fill */
    uint8_t quad_size;
    uint32_t message_size; /* of the message under way, when the prefix is whole */
    struct buf message;
    struct buf held; /* bytes that arrived while paused */
    struct buf only; /* KIND_UNARY: the answer, until the call ends */

    bool json;      /* messages are */
    bool encoding;  /* the request names an encoding other than identity */
    bool begun;     /* the answer's head is out */
    bool paused;    /* by the handler */
    bool reads;     /* there is a body */
    bool eof;       /* the client's body is complete */
    bool whole;     /* KIND_UNARY: the message was handed on */
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
    buf_free(&call->only);
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

enum http_flow grpc_send(struct grpc *call, struct str message)
{
    if (call->over || !call->req)
        return HTTP_CUT;
    if (call->type->kind == KIND_UNARY) {
        buf_clear(&call->only);
        buf_str(&call->only, message);
        return HTTP_OK;
    }
    call->depth++;
    if (!call->begun) {
        call->begun = true;
        grpc_answer_begin(call->req, call->type);
    }
    enum http_flow flow =
        call->req ? grpc_answer_message(call->req, call->type, message) : HTTP_CUT;
    call->depth--;
    if (flow == HTTP_FULL)
        call->full = true;
    return flow;
}

bool grpc_full(const struct grpc *call)
{
    return call->full;
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
    grpc_answer_end(req, call->type, call->begun, status, message, buf_view(&call->only));
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
    if (call->type->kind == KIND_UNARY && !call->whole) {
        call->whole = true;
        give_message(call, buf_view(&call->message));
        if (call->over || call->paused)
            return;
    }
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
    if (call->type->kind == KIND_UNARY) {
        buf_str(&call->message, data);
        if (!buf_ok(&call->message))
            fail(call, GRPC_RESOURCE_EXHAUSTED, "message over the limit");
        return;
    }
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

    grpc_answer_gone();
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
    if (!call->over && !call->paused && call->req && call->reads) {
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
            /* Less than a microsecond has passed already: "1n" is how gRPC's own clients say so. */
            bool past = units[i].unit == 'n' && value < 1000;
            *ms = past ? 0 : (value * units[i].mul + units[i].div - 1) / units[i].div;
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

/* "1500" of Connect-Timeout-Ms: at most ten digits. */
static bool connect_timeout(struct str text, int64_t *ms)
{
    uint64_t value;

    if (text.n > 10 || !str_to_u64(text, &value))
        return false;
    *ms = (int64_t)value;
    return true;
}

/* What the protocols of Connect ask for besides; NULL when all is well, otherwise what is wrong. */
static const char *connect_wrong(struct http_req *req, const struct grpc_type *type, int *status)
{
    bool stream = type->kind == KIND_CONNECT;
    struct str version = http_header(req, "connect-protocol-version");
    struct str encoding =
        http_header(req, stream ? "connect-content-encoding" : "content-encoding");

    *status = GRPC_INVALID_ARGUMENT;
    if (version.p && !str_is(version, "1"))
        return "connect-protocol-version must be 1";
    if (!encoding.n || str_is(encoding, "identity"))
        return NULL;
    *status = GRPC_UNIMPLEMENTED;
    return "only the identity encoding is supported";
}

/* Milliseconds from its beginning; -1: none. False: not as its protocol writes them. */
static bool read_timeout(struct http_req *req, const struct grpc_type *type, int64_t *ms)
{
    bool connect = type->kind >= KIND_CONNECT;
    struct str text = http_header(req, connect ? "connect-timeout-ms" : "grpc-timeout");

    *ms = -1;
    return !text.p || (connect ? connect_timeout(text, ms) : grpc_timeout(text, ms));
}

/* Answers a request that cannot be a call; false if it can. *left_ms: until its deadline. */
static bool refused(struct http_req *req, const struct grpc_type *type, int64_t *left_ms)
{
    const char *wrong;
    int status;

    if (!str_is(req->method, "POST") && !(type && str_is(req->method, "GET")))
        refuse_plain(req, 405, "calls are POST");
    else if (!type)
        refuse_plain(req, 415, "the content type is none of gRPC, gRPC-Web and Connect");
    else if (type->kind == KIND_GRPC && req->version != HTTP_2)
        refuse_plain(req, 505, "gRPC needs HTTP/2; gRPC-Web and Connect work without");
    else if (type->kind >= KIND_CONNECT && (wrong = connect_wrong(req, type, &status)))
        grpc_refuse(req, status, wrong);
    else if (!read_timeout(req, type, left_ms))
        grpc_refuse(req, type->kind >= KIND_CONNECT ? GRPC_INVALID_ARGUMENT : GRPC_INTERNAL,
                    "malformed timeout");
    else if (*left_ms >= 0 && (*left_ms -= (clock_mono_us() - req->started_us) / 1000) <= 0)
        grpc_refuse(req, GRPC_DEADLINE_EXCEEDED, "deadline exceeded");
    else
        return false;
    return true;
}

/* The message of a GET, which is in its query. */
static bool take_query(struct grpc *call)
{
    struct http_req *req = call->req;
    struct str rest = req->query, key, value, message = STR_NONE;
    bool is_base64 = false, known = false, plain = true;

    while (url_query_next(&rest, &key, &value)) {
        if (str_is(key, "message") && !url_decode(&req->arena, value, true, &message))
            return false;
        known |= str_is(key, "message");
        is_base64 |= str_is(key, "base64") && str_is(value, "1");
        plain &= !str_is(key, "compression") || !value.n || str_is(value, "identity");
    }
    if (is_base64)
        return known && plain && base64_get(&call->message, message);
    buf_str(&call->message, message);
    return known && plain;
}

struct grpc *grpc_begin(struct http_req *req, const struct grpc_ops *ops, void *ctx)
{
    struct str encoding = http_header(req, "grpc-encoding");
    struct grpc *call = xnew(struct grpc);
    int64_t left_ms;

    call->loop = http_loop(req);
    call->ops = ops;
    call->ctx = ctx;
    call->type = grpc_type_of(req);
    call->encoding = encoding.n && !str_is(encoding, "identity");
    call->message.max = GRPC_MESSAGE_MAX;
    call->held.max = GRPC_MESSAGE_MAX;
    call->deadline.fn = on_deadline;
    call->wake.fn = on_wake;
    if (refused(req, call->type, &left_ms)) {
        call->over = true;
        timer_set(call->loop, &call->wake, 0);
        return call;
    }
    call->json = call->type->json;
    call->req = req;
    req->app = call;
    req->on_gone = on_gone;
    req->on_drain = on_drain;
    http_hangup_counts(req);
    if (left_ms >= 0)
        timer_set(call->loop, &call->deadline, left_ms);
    call->reads = !str_is(req->method, "GET");
    if (call->reads) {
        http_read_stream(req, HTTP_BODY_STREAM_MAX, on_data);
        return call;
    }
    call->eof = true;
    if (!take_query(call))
        fail(call, GRPC_INVALID_ARGUMENT, "the query needs message=, and base64=1 if it is that");
    timer_set(call->loop, &call->wake, 0);
    return call;
}

bool grpc_json(const struct grpc *call)
{
    return call->json;
}

void *grpc_ctx(const struct grpc *call)
{
    return call->ctx;
}

struct http_req *grpc_req(const struct grpc *call)
{
    return call->req;
}
