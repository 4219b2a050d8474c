/*
 * What is said to the client, in the words of its protocol. gRPC has its status in HTTP/2 trailers,
 * or in the only header block when there is no message; gRPC-Web has it in a last frame of the body
 * (flag 0x80), because browsers do not show trailers to programs; so have streams of Connect (flag
 * 0x02, as JSON). A unary call of Connect is plain HTTP: the status is the response's own.
 *
 * A browser sends Origin; whoever serves has judged it before a call begins, so what is left to do
 * is to tell the browser that its page may read the answer.
 */
#include <openssl/evp.h>
#include <stdio.h>

#include "base/json.h"
#include "base/metric.h"
#include "http/grpc_own.h"
#include "http/url.h"

METRIC_COUNTER(calls_total, "atoll_grpc_calls_total", "gRPC and Connect calls ended", "status",
               "ok", "client_error", "server_error", "deadline", "gone");
enum { CALL_OK, CALL_CLIENT_ERROR, CALL_SERVER_ERROR, CALL_DEADLINE, CALL_GONE };

#define FLAG_TRAILERS 0x80
#define FLAG_END 0x02
#define SMALL_FRAME 4096
#define STATUS_TEXT_MAX 1024 /* of grpc-message, before percent-encoding */
#define HEADERS_MAX 8

static const struct grpc_type types[] = {
    { "application/grpc", KIND_GRPC, false },
    { "application/grpc+proto", KIND_GRPC, false },
    { "application/grpc-web", KIND_WEB, false },
    { "application/grpc-web+proto", KIND_WEB, false },
    { "application/grpc-web-text", KIND_WEB_TEXT, false },
    { "application/grpc-web-text+proto", KIND_WEB_TEXT, false },
    { "application/connect+proto", KIND_CONNECT, false },
    { "application/connect+json", KIND_CONNECT, true },
    { "application/proto", KIND_UNARY, false },
    { "application/json", KIND_UNARY, true },
};

/* By number: the name and the HTTP status that Connect gives it. */
static const struct {
    const char *name;
    int http;
} codes[] = {
    [GRPC_OK] = { "ok", 200 },
    [GRPC_CANCELLED] = { "canceled", 499 },
    [GRPC_UNKNOWN] = { "unknown", 500 },
    [GRPC_INVALID_ARGUMENT] = { "invalid_argument", 400 },
    [GRPC_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504 },
    [GRPC_NOT_FOUND] = { "not_found", 404 },
    [GRPC_ALREADY_EXISTS] = { "already_exists", 409 },
    [GRPC_PERMISSION_DENIED] = { "permission_denied", 403 },
    [GRPC_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429 },
    [GRPC_FAILED_PRECONDITION] = { "failed_precondition", 400 },
    [GRPC_ABORTED] = { "aborted", 409 },
    [GRPC_OUT_OF_RANGE] = { "out_of_range", 400 },
    [GRPC_UNIMPLEMENTED] = { "unimplemented", 501 },
    [GRPC_INTERNAL] = { "internal", 500 },
    [GRPC_UNAVAILABLE] = { "unavailable", 503 },
    [GRPC_DATA_LOSS] = { "data_loss", 500 },
    [GRPC_UNAUTHENTICATED] = { "unauthenticated", 401 },
};

/* ---- which protocol ---- */

static const struct grpc_type *type_named(struct str essence)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (str_eq_nocase(essence, str_of(types[i].text)))
            return &types[i];
    return NULL;
}

static const struct grpc_type *type_of_query(struct str query)
{
    struct str key, value;

    while (url_query_next(&query, &key, &value))
        if (str_is(key, "encoding"))
            return str_is(value, "json")    ? type_named(STR("application/json"))
                   : str_is(value, "proto") ? type_named(STR("application/proto"))
                                            : NULL;
    return NULL;
}

const struct grpc_type *grpc_type_of(const struct http_req *req)
{
    if (str_is(req->method, "GET"))
        return type_of_query(req->query);
    struct str rest = http_header(req, "content-type");
    return type_named(str_trim(str_cut(&rest, ';')));
}

bool grpc_wanted(const struct http_req *req)
{
    const struct grpc_type *type = grpc_type_of(req);

    return type && type->kind <= KIND_WEB_TEXT;
}

enum grpc_shape grpc_shape(const struct http_req *req)
{
    const struct grpc_type *type = grpc_type_of(req);

    if (!type || type->kind <= KIND_WEB_TEXT)
        return GRPC_ANY;
    return type->kind == KIND_UNARY ? GRPC_ONE : GRPC_STREAM;
}

/* ---- frames ---- */

static void frame_head(uint8_t out[GRPC_PREFIX], uint8_t flag, size_t len)
{
    out[0] = flag;
    out[1] = (uint8_t)(len >> 24);
    out[2] = (uint8_t)(len >> 16);
    out[3] = (uint8_t)(len >> 8);
    out[4] = (uint8_t)len;
}

/* One frame of the body, in base64 where the client asked for text; one write for all of it. */
static enum http_flow write_frame(struct http_req *req, enum grpc_kind kind, uint8_t flag,
                                  struct str data)
{
    uint8_t small[GRPC_PREFIX + SMALL_FRAME];
    autofree uint8_t *large = NULL;
    uint8_t *frame = small;
    size_t len = GRPC_PREFIX + data.n;

    if (data.n > SMALL_FRAME)
        frame = large = xmalloc(len);
    frame_head(frame, flag, data.n);
    if (data.n)
        memcpy(frame + GRPC_PREFIX, data.p, data.n);
    if (kind != KIND_WEB_TEXT)
        return http_reply_write(req, (struct str){ (char *)frame, len });

    autofree unsigned char *text = xmalloc((len + 2) / 3 * 4 + 1);
    int size = EVP_EncodeBlock(text, frame, (int)len);
    return http_reply_write(req, (struct str){ (char *)text, (size_t)size });
}

/* ---- heads ---- */

/* What a page needs to read an answer of another origin. */
static size_t put_origin(const struct http_req *req, struct http_header *out)
{
    struct str origin = http_header(req, "origin");

    if (!origin.n)
        return 0;
    out[0] = (struct http_header){ STR("access-control-allow-origin"), origin };
    out[1] = (struct http_header){ STR("access-control-expose-headers"),
                                   STR("grpc-status, grpc-message, x-request-id") };
    out[2] = (struct http_header){ STR("vary"), STR("origin") };
    return 3;
}

unsigned grpc_preflight(const struct http_req *req, struct http_header *out)
{
    struct str origin = http_header(req, "origin");

    if (!origin.n)
        return 0;
    out[0] = (struct http_header){ STR("access-control-allow-origin"), origin };
    out[1] = (struct http_header){ STR("access-control-allow-methods"), STR("POST, GET") };
    out[2] = (struct http_header){
        STR("access-control-allow-headers"),
        STR("authorization, content-type, x-grpc-web, x-user-agent, grpc-timeout, "
            "connect-protocol-version, connect-timeout-ms")
    };
    out[3] = (struct http_header){ STR("access-control-max-age"), STR("7200") };
    out[4] = (struct http_header){ STR("vary"), STR("origin") };
    return 5;
}

static size_t answer_head(const struct http_req *req, const struct grpc_type *type, bool failed,
                          struct http_header out[HEADERS_MAX])
{
    static const char *const accept[] = { [KIND_GRPC] = "grpc-accept-encoding",
                                          [KIND_WEB] = "grpc-accept-encoding",
                                          [KIND_WEB_TEXT] = "grpc-accept-encoding",
                                          [KIND_CONNECT] = "connect-accept-encoding",
                                          [KIND_UNARY] = "accept-encoding" };
    bool as_json = failed && type->kind == KIND_UNARY;

    out[0] = (struct http_header){ STR("content-type"),
                                   as_json ? STR("application/json") : str_of(type->text) };
    out[1] = (struct http_header){ str_of(accept[type->kind]), STR("identity") };
    return 2 + put_origin(req, out + 2);
}

void grpc_answer_begin(struct http_req *req, const struct grpc_type *type)
{
    struct http_header headers[HEADERS_MAX];

    http_reply_begin(req, 200, headers, answer_head(req, type, false, headers));
}

enum http_flow grpc_answer_message(struct http_req *req, const struct grpc_type *type,
                                   struct str message)
{
    return write_frame(req, type->kind, 0, message);
}

/* ---- the end of gRPC ---- */

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

/* The last frame of gRPC-Web: the trailers as HTTP/1 would write them. */
static void end_web(struct http_req *req, enum grpc_kind kind, struct str status,
                    struct str message)
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

static void end_grpc(struct http_req *req, const struct grpc_type *type, bool begun, int status,
                     const char *message)
{
    autobuf struct buf encoded = { 0 };
    struct http_header headers[HEADERS_MAX];
    char digits[12];

    if (message)
        percent_encode(&encoded, message);
    int len = snprintf(digits, sizeof(digits), "%d", status);
    struct str code = { digits, (size_t)len };

    if (type->kind != KIND_GRPC) {
        if (!begun)
            grpc_answer_begin(req, type);
        end_web(req, type->kind, code, buf_view(&encoded));
        return;
    }
    size_t count = begun ? 0 : answer_head(req, type, true, headers);
    headers[count++] = (struct http_header){ STR("grpc-status"), code };
    if (encoded.len)
        headers[count++] = (struct http_header){ STR("grpc-message"), buf_view(&encoded) };
    if (begun)
        http_reply_end(req, headers, count);
    else
        http_reply(req, 200, headers, count, STR_NONE);
}

/* ---- the end of Connect ---- */

static void put_error(struct json_out *json, int status, const char *message)
{
    json_open(json, '{');
    json_kv_text(json, "code", codes[status].name);
    if (message)
        json_kv_str(json, "message", (struct str){ message, strnlen(message, STATUS_TEXT_MAX) });
    json_close(json, '}');
}

static void end_stream(struct http_req *req, const struct grpc_type *type, bool begun, int status,
                       const char *message)
{
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);

    json_open(&json, '{');
    if (status != GRPC_OK) {
        json_key(&json, "error");
        put_error(&json, status, message);
    }
    json_close(&json, '}');
    if (!begun)
        grpc_answer_begin(req, type);
    write_frame(req, type->kind, FLAG_END, buf_view(&text));
    http_reply_end(req, NULL, 0);
}

static void end_unary(struct http_req *req, const struct grpc_type *type, int status,
                      const char *message, struct str only)
{
    struct http_header headers[HEADERS_MAX];
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);
    size_t count = answer_head(req, type, status != GRPC_OK, headers);

    if (status == GRPC_OK) {
        http_reply(req, 200, headers, count, only);
        return;
    }
    put_error(&json, status, message);
    if (status == GRPC_UNAUTHENTICATED)
        headers[count++] =
            (struct http_header){ STR("www-authenticate"), STR("Bearer realm=\"atoll\"") };
    http_reply(req, codes[status].http, headers, count, buf_view(&text));
}

/* ---- all of them ---- */

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

void grpc_answer_end(struct http_req *req, const struct grpc_type *type, bool begun, int status,
                     const char *message, struct str only)
{
    metric_add(&calls_total, call_outcome(status), 1);
    if (type->kind <= KIND_WEB_TEXT) {
        end_grpc(req, type, begun, status, message);
        return;
    }
    if (status < 0 || (size_t)status >= ARRAY_LEN(codes))
        status = GRPC_UNKNOWN; /* gRPC may have its own numbers; Connect has names only */
    if (type->kind == KIND_CONNECT)
        end_stream(req, type, begun, status, message);
    else
        end_unary(req, type, status, message, only);
}

void grpc_answer_gone(void)
{
    metric_add(&calls_total, CALL_GONE, 1);
}

void grpc_refuse(struct http_req *req, int status, const char *message)
{
    static const struct grpc_type json = { "application/json", KIND_UNARY, true };
    const struct grpc_type *type = grpc_type_of(req);

    grpc_answer_end(req, type ? type : &json, false, status, message, STR_NONE);
}
