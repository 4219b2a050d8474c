/*
 * Everything between the client preface and the application, with a connection that is only
 * memory and a clock that the input moves. The first bytes choose how the rest is cut, how much
 * the peer reads per turn and what the application does; the rest is what the peer sends.
 *
 * Checked: every request shown ends exactly once (answered or gone), the sum of the queues is the
 * connection's, nothing is held beyond the limits, and nothing is left when the connection is.
 */
#include "base/limits.h"
#include "http/h2_own.h"
#include "http/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct http_conn conn;
static struct http_server server;
static int64_t now_ms;
static size_t written, room;
static bool again;
static uint8_t behaviour;
static unsigned shown, over;
static struct http_req *kept[256];
static unsigned kept_count;

/* ---- the connection ---- */

void http_conn_write(struct http_conn *c, const struct str *parts, size_t count)
{
    if (c->dead || c->closing)
        abort();
    for (size_t i = 0; i < count; i++) {
        written += parts[i].n;
        room -= MIN(room, parts[i].n);
    }
}

size_t http_conn_unsent(const struct http_conn *c)
{
    (void)c;
    return 0;
}

size_t http_conn_room(struct http_conn *c)
{
    return c->dead || c->closing ? 0 : room;
}

void http_conn_again(struct http_conn *c)
{
    (void)c;
    again = true;
}

void http_conn_later(struct http_conn *c)
{
    if (!c->in_turn)
        again = true;
}

void http_conn_cut(struct http_conn *c, const char *reason)
{
    if (c->dead)
        return;
    c->dead = true;
    c->proto->on_close(c, reason);
}

void http_conn_finish(struct http_conn *c, const char *reason)
{
    (void)reason;
    c->closing = true;
}

const struct http_app *http_conn_app(const struct http_conn *c)
{
    return &c->server->app;
}

const struct http_options *http_conn_options(const struct http_conn *c)
{
    return &c->server->options;
}

int64_t http_conn_now(const struct http_conn *c)
{
    (void)c;
    return now_ms;
}

/* ---- the application ---- */

static void end(struct http_req *req)
{
    for (unsigned i = 0; i < kept_count; i++)
        if (kept[i] == req)
            kept[i] = kept[--kept_count];
    over++;
}

static void gone(struct http_req *req)
{
    end(req);
}

static void got_all(struct http_req *req, struct str body)
{
    end(req);
    http_reply(req, 200, NULL, 0, body);
}

static void got_piece(struct http_req *req, struct str data, bool last)
{
    static const struct http_header trailers[] = { { STR("Grpc-Status"), STR("0") } };

    if (http_reply_write(req, data) == HTTP_FULL)
        http_read_pause(req);
    if (last) {
        end(req);
        http_reply_end(req, trailers, 1);
    }
}

static void drain(struct http_req *req)
{
    http_read_resume(req);
}

static void on_request(void *ctx, struct http_req *req)
{
    static char data[70000];

    (void)ctx;
    shown++;
    req->on_gone = gone;
    req->on_drain = drain;
    if (!req->method.n || !req->path.n || !req->host.n || req->header_count > HTTP_FIELDS_MAX)
        abort();
    switch (behaviour++ % 6) {
    case 0:
        end(req);
        http_reply(req, 200, NULL, 0, STR("hello"));
        break;
    case 1:
        http_read_all(req, 20000, got_all);
        break;
    case 2:
        http_reply_begin(req, 200, NULL, 0);
        http_read_stream(req, UINT64_MAX, got_piece);
        break;
    case 3:
        http_reply_begin(req, 200, NULL, 0);
        http_slim(req);
        while (http_reply_write(req, (struct str){ data, sizeof(data) }) == HTTP_OK)
            ;
        break; /* left open until the peer is gone */
    case 4:
        end(req);
        http_cut(req, "fuzz");
        break;
    default:
        if (kept_count < ARRAY_LEN(kept))
            kept[kept_count++] = req; /* answered later */
    }
}

/* ---- one run ---- */

static void check_queues(void)
{
    struct h2 *h2 = conn.state;
    size_t sum = 0;
    unsigned count = 0;

    list_each (pos, &h2->streams) {
        struct h2_stream *stream = list_entry(pos, struct h2_stream, link);

        sum += h2_unsent(stream);
        count++;
        if (stream->base.body.len > H2_STREAM_WINDOW || h2_unsent(stream) > HTTP_OUT_MAX)
            abort();
    }
    if (sum != h2->queued || count != h2->stream_count || count > H2_STREAMS_MAX + 1)
        abort();
}

static void turn(const uint8_t *data, size_t len, size_t may_write)
{
    room = may_write;
    conn.in_turn = true;
    if (conn.proto->on_data(&conn, (const char *)data, len) != len && !conn.dead)
        abort();
    if (!conn.dead && !conn.closing)
        conn.proto->on_flush(&conn);
    conn.in_turn = false;
    for (int i = 0; again && i < 4 && !conn.dead && !conn.closing; i++) {
        again = false;
        room = may_write;
        conn.in_turn = true;
        conn.proto->on_flush(&conn);
        conn.in_turn = false;
    }
    if (!conn.dead)
        check_queues();
}

static void tick(int64_t ms)
{
    now_ms += ms;
    if (conn.dead || conn.closing)
        return;
    conn.in_turn = true;
    conn.proto->on_tick(&conn, now_ms);
    if (!conn.dead)
        conn.proto->on_flush(&conn);
    conn.in_turn = false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";

    if (size < 4)
        return 0;
    server = (struct http_server){
        .app = { .on_request = on_request },
        .options = { .head_timeout_ms = 1000, .keepalive_ms = 5000, .write_stall_ms = 3000 },
    };
    conn = (struct http_conn){ .server = &server };
    now_ms = 1000000;
    shown = over = kept_count = 0;
    size_t piece = data[0] ? data[0] : size;
    size_t may_write = (size_t)data[1] * 512;
    unsigned slow = data[2]; /* milliseconds per piece */
    behaviour = data[3];
    data += 4, size -= 4;

    h2_start(&conn);
    turn((const uint8_t *)hello, sizeof(hello), may_write);
    for (size_t at = 0; at < size && !conn.dead && !conn.closing; at += piece) {
        turn(data + at, MIN(piece, size - at), may_write);
        tick(slow);
        if (kept_count && at / piece % 2) {
            struct http_req *req = kept[0];

            end(req);
            http_reply(req, 404, NULL, 0, STR("late"));
        }
    }
    if (!conn.dead && !conn.closing)
        conn.proto->on_drain(&conn);
    for (int i = 0; i < 8; i++)
        tick(1100);
    http_conn_cut(&conn, "the end");
    if (shown != over)
        abort();
    return 0;
}
