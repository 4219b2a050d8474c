/*
 * testd - the http room as a server of its own, for tests with other people's clients: plain HTTP,
 * WebSocket echo and a few gRPC calls, on every protocol that the room speaks. Not installed.
 *
 *     testd ADDRESS [CERT.pem KEY.pem]      prints "listening ADDRESS", ends cleanly on SIGTERM
 *
 * HTTP    /hello   /echo (body back, streamed)   /all (body back, collected)   /bytes?N
 *         /status?N   /trailers   /headers (the request's, as it was understood)   /metrics
 * WS      /ws echo, subprotocol echo.v1; the text "close N" closes with code N, "flood" sends until
 * cut gRPC    /test.Echo/Unary  Collect (client stream)  Count (server stream: the message is a
 * decimal number)  Chat (both)  Fail ("N text")  Wait (until cancelled)
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/metric.h"
#include "http/grpc.h"
#include "http/ws.h"
#include "net/sock.h"
#include "net/tls.h"

static struct loop *loop;
static struct http_server *server;

static void reply_text(struct http_req *req, int status, struct str text)
{
    static const struct http_header type = { STR("Content-Type"), STR("text/plain") };

    http_reply(req, status, &type, 1, text);
}

/* ---- streams of bytes ---- */

/* Byte `at` of /bytes: so that a client can check what it got. */
static char pattern(uint64_t at)
{
    return (char)('a' + at % 26);
}

struct source {
    uint64_t at, end;
};

static void pour(struct http_req *req)
{
    struct source *source = req->app;
    char piece[8192];

    while (source->at < source->end) {
        size_t n = (size_t)MIN(sizeof(piece), source->end - source->at);

        for (size_t i = 0; i < n; i++)
            piece[i] = pattern(source->at + i);
        source->at += n;
        if (http_reply_write(req, (struct str){ piece, n }) != HTTP_OK)
            return; /* on_drain or on_gone follows */
    }
    free(source);
    http_reply_end(req, NULL, 0);
}

static void pour_lost(struct http_req *req)
{
    free(req->app);
}

static void serve_bytes(struct http_req *req)
{
    struct source *source = xnew(struct source);

    if (!str_to_u64(req->query, &source->end))
        source->end = 1000;
    req->app = source;
    req->on_drain = pour;
    req->on_gone = pour_lost;
    http_reply_begin(req, 200, NULL, 0);
    pour(req);
}

static void echo_piece(struct http_req *req, struct str data, bool last)
{
    if (http_reply_write(req, data) == HTTP_FULL)
        http_read_pause(req);
    if (last)
        http_reply_end(req, NULL, 0);
}

static void serve_echo(struct http_req *req)
{
    req->on_drain = http_read_resume;
    http_reply_begin(req, 200, NULL, 0);
    http_read_stream(req, HTTP_BODY_STREAM_MAX, echo_piece);
}

static void echo_all(struct http_req *req, struct str body)
{
    reply_text(req, 200, body);
}

static void serve_headers(struct http_req *req)
{
    struct buf text = { 0 };

    buf_printf(&text, "method %.*s\npath %.*s\nquery %.*s\nhost %.*s\nbody %lld\n",
               STR_FMT(req->method), STR_FMT(req->path), STR_FMT(req->query), STR_FMT(req->host),
               (long long)req->body_size);
    for (size_t i = 0; i < req->header_count; i++)
        buf_printf(&text, "%.*s: %.*s\n", STR_FMT(req->headers[i].name),
                   STR_FMT(req->headers[i].value));
    reply_text(req, 200, buf_view(&text));
    buf_free(&text);
}

static void serve_status(struct http_req *req)
{
    uint64_t status;

    reply_text(req, str_to_u64(req->query, &status) && status < 600 ? (int)status : 400,
               STR("as you wish\n"));
}

static void serve_trailers(struct http_req *req)
{
    const struct http_header trailers[] = { { STR("X-Sum"), STR("42") } };

    http_reply_begin(req, 200, NULL, 0);
    http_reply_write(req, STR("body\n"));
    http_reply_end(req, trailers, 1);
}

static void serve_metrics(struct http_req *req)
{
    struct buf text = { 0 };

    metric_text(&text);
    reply_text(req, 200, buf_view(&text));
    buf_free(&text);
}

static void serve_hello(struct http_req *req)
{
    reply_text(req, 200, STR("hello\n"));
}

static void serve_all(struct http_req *req)
{
    http_read_all(req, HTTP_BODY_DEFAULT_MAX, echo_all);
}

/* ---- WebSocket ---- */

static void flood(struct ws *ws)
{
    static char data[60000];
    enum http_flow flow;

    do {
        flow = ws_send(ws, false, (struct str){ data, sizeof(data) });
    } while (flow != HTTP_CUT);
}

static void ws_echo(struct ws *ws, bool text, struct str data)
{
    uint64_t code;

    if (text && str_starts(data, STR("close ")) && str_to_u64(str_from(data, 6), &code))
        ws_close(ws, (int)code, "as you wish");
    else if (text && str_is(data, "flood"))
        flood(ws);
    else if (ws_send(ws, text, data) == HTTP_FULL)
        ws_pause(ws);
}

static void ws_closed(struct ws *ws, int code, struct str reason)
{
    (void)ws;
    printf("ws closed %d %.*s\n", code, STR_FMT(reason));
    fflush(stdout);
}

static const struct ws_ops echo_ops = { ws_echo, ws_resume, ws_closed };

static void serve_ws(struct http_req *req)
{
    struct ws *ws;
    struct err err;

    if (ws_accept(req, ws_offers(req, "echo.v1") ? "echo.v1" : NULL, &echo_ops, NULL, &ws, &err) <
        0)
        ws_refuse(req, &err);
}

/* ---- gRPC ---- */

struct call {
    struct buf collected;
    uint64_t at, count; /* of Count */
};

static void call_end(struct grpc *grpc, int status, const char *message)
{
    struct call *call = grpc_ctx(grpc);

    buf_free(&call->collected);
    free(call);
    grpc_finish(grpc, status, message);
}

static void call_cancelled(struct grpc *grpc)
{
    struct call *call = grpc_ctx(grpc);

    buf_free(&call->collected);
    free(call);
    printf("grpc cancelled\n");
    fflush(stdout);
}

static void call_nothing(struct grpc *grpc)
{
    (void)grpc;
}

static void call_missing(struct grpc *grpc)
{
    call_end(grpc, GRPC_INVALID_ARGUMENT, "a message is needed");
}

static void unary_message(struct grpc *grpc, struct str message)
{
    grpc_send(grpc, message);
    call_end(grpc, GRPC_OK, NULL);
}

static void collect_message(struct grpc *grpc, struct str message)
{
    buf_str(&((struct call *)grpc_ctx(grpc))->collected, message);
}

static void collect_end(struct grpc *grpc)
{
    grpc_send(grpc, buf_view(&((struct call *)grpc_ctx(grpc))->collected));
    call_end(grpc, GRPC_OK, NULL);
}

static void count_more(struct grpc *grpc)
{
    struct call *call = grpc_ctx(grpc);
    char text[24];

    while (call->at < call->count) {
        int len = snprintf(text, sizeof(text), "%llu", (unsigned long long)call->at++);

        if (grpc_send(grpc, (struct str){ text, (size_t)len }) != HTTP_OK)
            return; /* on_drain or on_cancel follows */
    }
    call_end(grpc, GRPC_OK, NULL);
}

static void count_message(struct grpc *grpc, struct str message)
{
    struct call *call = grpc_ctx(grpc);

    if (call->count || !str_to_u64(message, &call->count)) {
        call_end(grpc, GRPC_INVALID_ARGUMENT, "one decimal number is needed");
        return;
    }
    count_more(grpc);
}

static void chat_message(struct grpc *grpc, struct str message)
{
    if (grpc_send(grpc, message) == HTTP_FULL)
        grpc_pause(grpc);
}

static void chat_end(struct grpc *grpc)
{
    call_end(grpc, GRPC_OK, NULL);
}

static void fail_message(struct grpc *grpc, struct str message)
{
    autofree char *text = xmemdup0(message.p, message.n);
    char *rest = NULL;
    long status = strtol(text, &rest, 10);

    call_end(grpc, (int)status, *rest ? rest + 1 : NULL);
}

static void wait_message(struct grpc *grpc, struct str message)
{
    (void)grpc, (void)message;
}

static const struct {
    const char *path;
    struct grpc_ops ops;
} calls[] = {
    { "/test.Echo/Unary", { unary_message, call_missing, NULL, call_cancelled } },
    { "/test.Echo/Collect", { collect_message, collect_end, NULL, call_cancelled } },
    { "/test.Echo/Count", { count_message, call_nothing, count_more, call_cancelled } },
    { "/test.Echo/Chat", { chat_message, chat_end, grpc_resume, call_cancelled } },
    { "/test.Echo/Fail", { fail_message, call_missing, NULL, call_cancelled } },
    { "/test.Echo/Wait", { wait_message, call_nothing, NULL, call_cancelled } },
};

static void serve_grpc(struct http_req *req)
{
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (str_is(req->path, calls[i].path)) {
            grpc_begin(req, &calls[i].ops, xnew(struct call));
            return;
        }
    grpc_refuse(req, GRPC_UNIMPLEMENTED, "no such method");
}

/* ---- the server ---- */

static const struct {
    const char *path;
    void (*serve)(struct http_req *req);
} routes[] = {
    { "/hello", serve_hello },     { "/echo", serve_echo },       { "/all", serve_all },
    { "/bytes", serve_bytes },     { "/status", serve_status },   { "/trailers", serve_trailers },
    { "/headers", serve_headers }, { "/metrics", serve_metrics }, { "/ws", serve_ws },
};

static void on_request(void *ctx, struct http_req *req)
{
    (void)ctx;
    if (grpc_wanted(req)) {
        serve_grpc(req);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        if (str_is(req->path, routes[i].path)) {
            routes[i].serve(req);
            return;
        }
    reply_text(req, 404, STR("no such thing\n"));
}

static void error_body(void *ctx, struct str path, const struct err *err, struct buf *out)
{
    (void)ctx, (void)path;
    buf_printf(out, "{\"code\":\"%s\"}", err_info(err->code)->name);
}

static void drained(void *ctx)
{
    (void)ctx;
    loop_stop(loop);
}

static void on_signal(void *ctx, int signal)
{
    (void)ctx, (void)signal;
    http_server_drain(server, 3000, drained, NULL);
}

static int read_file(const char *path, struct buf *out)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *room = fd < 0 ? NULL : buf_reserve(out, 65536);
    ssize_t n = room ? read(fd, room, 65536) : -1;

    out->len = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -1 : 0;
}

static int start(const char *address, char **pem, struct tls **tls, struct err *err)
{
    static const struct http_app app = { .on_request = on_request, .error_body = error_body };
    static const int signals[] = { SIGTERM, SIGINT };
    char actual[SOCK_TEXT_SIZE];
    autobuf struct buf cert = { 0 }, key = { 0 };

    if (loop_new(&loop, err) < 0 ||
        loop_signals(loop, signals, ARRAY_LEN(signals), on_signal, NULL, err) < 0)
        return -1;
    if (pem && (read_file(pem[0], &cert) < 0 || read_file(pem[1], &key) < 0))
        return err_sys(err, "read %s and %s", pem[0], pem[1]);
    if (pem && tls_new(tls, buf_view(&cert), buf_view(&key), err) < 0)
        return -1;
    int fd = sock_listen(address, 1024, actual, err);
    if (fd < 0 || http_server_new(&server, loop, &app, NULL, err) < 0 ||
        http_server_listen(server, fd, *tls, err) < 0)
        return -1;
    printf("listening %s\n", actual);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    struct tls *tls = NULL;
    struct err err;

    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: testd ADDRESS [CERT.pem KEY.pem]\n");
        return 64;
    }
    signal(SIGPIPE, SIG_IGN);
    log_setup(getenv("TESTD_DEBUG") ? LOG_DEBUG : LOG_INFO, LOG_TEXT, "testd");
    if (start(argv[1], argc == 4 ? argv + 2 : NULL, &tls, &err) < 0) {
        fprintf(stderr, "testd: %s\n", err.msg);
        return 1;
    }
    loop_run(loop);
    http_server_free(server);
    tls_free(tls);
    loop_free(loop);
    return 0;
}
