/*
 * HTTP/2 (RFC 9113): nghttp2 reads and writes frames, keeps HPACK and the windows; this file sits
 * between it and the connection core.
 *
 * In a turn: bytes go into nghttp2, whose callbacks make streams and hand heads and bodies on;
 * streams about which the application is to be told something (body wanted, room again, cut) are on
 * the `ready` list; the flush at the turn's end tells them and lets nghttp2 write while the
 * connection has room. nghttp2 may not be re-entered or deleted from its own callbacks: `busy`
 * counts, and a connection that dies meanwhile is freed by whoever called nghttp2.
 *
 * Windows open only when the application has taken the bytes, so an unread body costs at most
 * H2_STREAM_WINDOW, all of a connection's H2_CONN_WINDOW.
 *
 * Abuse is counted per connection over H2_RESET_WINDOW_MS: streams reset by the peer or because of
 * what it sent (CVE-2023-44487, CVE-2025-8671), and frames that move nothing (pings, settings,
 * empty data: CVE-2019-9512 and its kin). Header blocks are bounded as they arrive, continuations
 * included (CVE-2024-27316), and again after HPACK. Over a limit: GOAWAY and the end.
 */
#include "base/limits.h"
#include "base/metric.h"
#include "http/h2_own.h"

METRIC_COUNTER(streams_total, "atoll_http2_streams_total", "HTTP/2 requests begun");
METRIC_COUNTER(resets_total, "atoll_http2_resets_total", "HTTP/2 streams reset", "by", "peer",
               "server");
METRIC_COUNTER(faults_total, "atoll_http2_faults_total",
               "HTTP/2 connections closed because of what the peer sent");
enum { RESET_BY_PEER, RESET_BY_SERVER };

#define GOAWAY_GRACE_MS 1000 /* between the notice of a drain and the last stream taken */
#define ANSWERED_MS 1000     /* how long an answered request may go on sending its body */

static void h2_free(struct h2 *h2)
{
    nghttp2_session_del(h2->session);
    free(h2);
}

void h2_fail(struct h2 *h2, uint32_t code, const char *reason)
{
    if (h2->fault || h2->dead)
        return;
    h2->fault = reason;
    metric_add(&faults_total, 0, 1);
    nghttp2_session_terminate_session(h2->session, code);
    http_conn_later(h2->conn);
}

void h2_ready(struct h2_stream *stream)
{
    if (list_empty(&stream->ready_link))
        list_append(&stream->h2->ready, &stream->ready_link);
    http_conn_later(stream->h2->conn);
}

static void drop_streams(struct h2 *h2, const char *reason)
{
    while (!list_empty(&h2->streams))
        h2_stream_closed(list_entry(h2->streams.next, struct h2_stream, link), reason);
}

/* ---- abuse ---- */

static void turn_window(struct h2 *h2)
{
    int64_t now = http_conn_now(h2->conn);

    if (now - h2->window_ms < H2_RESET_WINDOW_MS)
        return;
    h2->window_ms = now;
    h2->resets = 0;
    h2->idle_frames = 0;
}

static void count_reset(struct h2 *h2, unsigned by)
{
    metric_add(&resets_total, by, 1);
    turn_window(h2);
    if (++h2->resets > H2_RESETS_MAX)
        h2_fail(h2, NGHTTP2_ENHANCE_YOUR_CALM, "too many streams reset");
}

static void count_idle(struct h2 *h2)
{
    turn_window(h2);
    if (++h2->idle_frames > H2_IDLE_FRAMES_MAX)
        h2_fail(h2, NGHTTP2_ENHANCE_YOUR_CALM, "too many frames that carry nothing");
}

/* The compressed size of a header block, as its frames are announced. */
static void count_block(struct h2 *h2, const nghttp2_frame_hd *hd)
{
    if (hd->type == NGHTTP2_HEADERS) {
        h2->block = 0;
        h2->block_ms = http_conn_now(h2->conn);
    }
    h2->block += hd->length;
    if (hd->flags & NGHTTP2_FLAG_END_HEADERS)
        h2->block_ms = 0;
    if (h2->block > HTTP_HEAD_MAX)
        h2_fail(h2, NGHTTP2_ENHANCE_YOUR_CALM, "header block too large");
}

/* ---- nghttp2 tells what came ---- */

/* Whether callbacks should still do anything; nghttp2 stops on the failure code. */
static int state(const struct h2 *h2)
{
    return h2->dead || h2->fault ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user)
{
    struct h2 *h2 = user;

    (void)session;
    if (hd->type == NGHTTP2_HEADERS || hd->type == NGHTTP2_CONTINUATION)
        count_block(h2, hd);
    else
        count_idle(h2); /* forgotten when bytes of a body move */
    return state(h2);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct h2 *h2 = user;

    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct h2_stream *stream = h2_stream_new(h2, frame->hd.stream_id);
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
    metric_add(&streams_total, 0, 1);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct h2_stream *stream;

    (void)flags, (void)user;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0; /* trailers: counted by their block, kept by nobody */
    stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream)
        h2_head_field(stream, (struct str){ (const char *)name, name_len },
                      (struct str){ (const char *)value, value_len });
    return 0;
}

/* Without this nghttp2 would leave a malformed field out and go on. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
                             const uint8_t *name, size_t name_len, const uint8_t *value,
                             size_t value_len, uint8_t flags, void *user)
{
    (void)session, (void)frame, (void)name, (void)name_len, (void)value, (void)value_len;
    (void)flags, (void)user;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static void body_ended(struct h2_stream *stream)
{
    if (!stream->released && !stream->base.ended && !stream->base.body_done &&
        !http_stream_body(&stream->base, NULL, 0, true))
        return; /* it ended by that */
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct h2_stream *stream = NULL;
    struct h2 *h2 = user;
    bool last = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;

    if (frame->hd.stream_id)
        stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        if (stream && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
            h2_head_done(stream, last);
        else if (stream && last)
            body_ended(stream);
        break;
    case NGHTTP2_DATA:
        if (stream && last)
            body_ended(stream);
        break;
    case NGHTTP2_SETTINGS:
        h2->greeted = true;
        break;
    case NGHTTP2_RST_STREAM:
        count_reset(h2, RESET_BY_PEER);
        break;
    default:
        break;
    }
    return state(h2);
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                         size_t len, void *user)
{
    struct h2_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    struct h2 *h2 = user;

    (void)flags;
    h2->idle_frames = 0;
    if (!stream || stream->released || stream->base.ended || stream->base.body_done) {
        nghttp2_session_consume_connection(session, len); /* nobody reads it; no more, please */
        return 0;
    }
    stream->unconsumed += len;
    if (!http_stream_body(&stream->base, (const char *)data, len, false))
        return state(h2);
    return state(h2);
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct h2_stream *stream = nghttp2_session_get_stream_user_data(session, id);

    (void)user;
    if (stream)
        h2_stream_closed(stream, code ? "stream reset" : "stream closed");
    return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct h2 *h2 = user;

    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
            count_reset(h2, RESET_BY_SERVER);
        return 0;
    }
    /*
     * The answer is complete: a body still on its way is not wanted (RFC 9113 section 8.1). The
     * reset that says so comes a moment later, because clients are known to drop the answer on it.
     */
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) &&
        nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0) {
        struct h2_stream *stream =
            nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

        if (stream)
            stream->answered_ms = http_conn_now(h2->conn);
    }
    return 0;
}

/* ---- telling the application ---- */

static void tell(struct h2_stream *stream)
{
    if (stream->doomed) {
        nghttp2_submit_rst_stream(stream->h2->session, NGHTTP2_FLAG_NONE, stream->id,
                                  stream->doom_code);
        if (!stream->base.ended)
            http_stream_gone(&stream->base, stream->doomed);
        return;
    }
    if (stream->base.ended)
        return;
    if (stream->late) {
        struct err err;

        err_set(&err, ERR_TIMEOUT, "the body comes too slowly");
        http_stream_refuse(&stream->base, &err);
        return;
    }
    if (stream->wants) {
        stream->wants = false;
        if (!http_stream_deliver(&stream->base))
            return;
    }
    if (stream->base.full && h2_unsent(stream) <= HTTP_OUT_LOW && h2_has_room(stream) &&
        !http_stream_drained(&stream->base))
        return;
}

static void tell_ready(struct h2 *h2)
{
    struct list *node;

    if (h2->crowded && h2->queued <= H2_OUT_MAX / 4) {
        h2->crowded = false;
        list_each (pos, &h2->streams) {
            struct h2_stream *stream = list_entry(pos, struct h2_stream, link);

            if (stream->base.full && list_empty(&stream->ready_link))
                list_append(&h2->ready, &stream->ready_link);
        }
    }
    while (!h2->dead && (node = list_pop(&h2->ready)))
        tell(list_entry(node, struct h2_stream, ready_link));
}

/* ---- what the core calls ---- */

static size_t on_data(struct http_conn *conn, const char *data, size_t len)
{
    struct h2 *h2 = conn->state;

    if (!len)
        return 0; /* a turn that we asked for: on_flush does it */
    h2->busy++;
    ssize_t n = nghttp2_session_mem_recv(h2->session, (const uint8_t *)data, len);
    h2->busy--;
    if (h2->dead)
        h2_free(h2);
    else if (n < 0)
        h2_fail(h2,
                n == NGHTTP2_ERR_BAD_CLIENT_MAGIC ? NGHTTP2_PROTOCOL_ERROR
                                                  : NGHTTP2_ENHANCE_YOUR_CALM,
                nghttp2_strerror((int)n));
    return len;
}

/* False: there is nothing to write, or no room for it. */
static bool write_some(struct h2 *h2)
{
    const uint8_t *data;

    if (!http_conn_room(h2->conn))
        return false;
    h2->busy++;
    ssize_t n = nghttp2_session_mem_send(h2->session, &data);
    h2->busy--;
    if (n > 0) {
        struct str bytes = { (const char *)data, (size_t)n };

        http_conn_write(h2->conn, &bytes, 1);
    } else if (n < 0) {
        http_conn_cut(h2->conn, "nghttp2 cannot write");
    }
    return n > 0;
}

static void on_flush(struct http_conn *conn)
{
    struct h2 *h2 = conn->state;
    bool more = true;

    h2->busy++;
    while (more && !h2->dead) {
        if (!h2->fault)
            tell_ready(h2);
        if (!h2->dead)
            more = write_some(h2);
        if (!more && !h2->dead && !h2->fault && !list_empty(&h2->ready))
            more = http_conn_room(conn) > 0;
    }
    h2->busy--;
    if (h2->dead) {
        h2_free(h2);
        return;
    }
    bool reads = nghttp2_session_want_read(h2->session);
    bool writes = nghttp2_session_want_write(h2->session);
    if (h2->fault || (!reads && !writes)) {
        const char *reason = h2->fault ? h2->fault : "session over";

        drop_streams(h2, reason);
        http_conn_finish(conn, reason);
    } else if (writes && !conn->out) {
        http_conn_again(conn); /* one send is full; others have their turn first */
    }
}

static void on_room(struct http_conn *conn)
{
    (void)conn; /* on_flush follows */
}

static void on_eof(struct http_conn *conn)
{
    http_conn_cut(conn, "closed by the peer");
}

static void check_stream(struct h2_stream *stream, int64_t now_ms, int64_t stall_ms)
{
    struct http_stream *base = &stream->base;

    if (stream->answered_ms && now_ms - stream->answered_ms > ANSWERED_MS) {
        stream->answered_ms = 0;
        nghttp2_submit_rst_stream(stream->h2->session, NGHTTP2_FLAG_NONE, stream->id,
                                  NGHTTP2_NO_ERROR);
    }
    if (h2_unsent(stream) && now_ms - stream->moved_ms > stall_ms) {
        stream->doomed = "peer gives no window";
        stream->doom_code = NGHTTP2_CANCEL;
        h2_ready(stream);
    }
    if (!stream->rate_ms || base->body_done || base->ended ||
        now_ms - stream->rate_ms < HTTP_BODY_WINDOW_MS)
        return;
    if (base->body_got - stream->rate_got < HTTP_BODY_MIN_RATE * HTTP_BODY_WINDOW_MS / 1000) {
        stream->late = true;
        h2_ready(stream);
    }
    stream->rate_ms = now_ms;
    stream->rate_got = base->body_got;
}

static void on_tick(struct http_conn *conn, int64_t now_ms)
{
    struct h2 *h2 = conn->state;
    const struct http_options *options = http_conn_options(conn);

    list_each_safe (pos, &h2->streams)
        check_stream(list_entry(pos, struct h2_stream, link), now_ms, options->write_stall_ms);
    if (h2->goaway_ms && !h2->goaway && now_ms - h2->goaway_ms >= GOAWAY_GRACE_MS) {
        h2->goaway = true;
        nghttp2_submit_goaway(h2->session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(h2->session),
                              NGHTTP2_NO_ERROR, NULL, 0);
    }
    if (h2->block_ms && now_ms - h2->block_ms > options->head_timeout_ms)
        h2_fail(h2, NGHTTP2_ENHANCE_YOUR_CALM, "header block not complete in time");
    else if (!h2->greeted && now_ms - h2->born_ms > options->head_timeout_ms)
        h2_fail(h2, NGHTTP2_SETTINGS_TIMEOUT, "no SETTINGS in time");
    else if (!h2->stream_count && now_ms - h2->idle_ms > options->keepalive_ms)
        nghttp2_session_terminate_session(h2->session, NGHTTP2_NO_ERROR);
}

/* RFC 9113 section 6.8: first announce, a little later say which stream was the last. */
static void on_drain(struct http_conn *conn)
{
    struct h2 *h2 = conn->state;

    nghttp2_submit_shutdown_notice(h2->session);
    h2->goaway_ms = http_conn_now(conn);
}

static void on_close(struct http_conn *conn, const char *reason)
{
    struct h2 *h2 = conn->state;

    conn->state = NULL;
    h2->dead = true;
    drop_streams(h2, reason);
    if (!h2->busy)
        h2_free(h2);
}

static const struct http_proto h2_proto = {
    .name = "HTTP/2",
    .on_data = on_data,
    .on_flush = on_flush,
    .on_room = on_room,
    .on_eof = on_eof,
    .on_tick = on_tick,
    .on_drain = on_drain,
    .on_close = on_close,
};

/* ---- the beginning ---- */

static nghttp2_session_callbacks *make_callbacks(void)
{
    nghttp2_session_callbacks *all;

    if (nghttp2_session_callbacks_new(&all) != 0)
        abort();
    nghttp2_session_callbacks_set_on_begin_frame_callback(all, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(all, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(all, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(all, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(all, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(all, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(all, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(all, on_frame_send);
    return all;
}

static nghttp2_option *make_options(void)
{
    nghttp2_option *option;

    if (nghttp2_option_new(&option) != 0)
        abort();
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_outbound_ack(option, H2_ACKS_MAX);
    nghttp2_option_set_max_continuations(option, H2_CONTINUATIONS_MAX);
    return option;
}

static int greet(nghttp2_session *session)
{
    const nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX },
        { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_STREAM_WINDOW },
        { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP_DECODED_HEAD_MAX },
        { NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1 },
        { NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1 },
    };

    if (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings)) != 0)
        return -1;
    return nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, H2_CONN_WINDOW);
}

void h2_start(struct http_conn *conn)
{
    static nghttp2_session_callbacks *callbacks;
    static nghttp2_option *options;
    struct h2 *h2 = xnew(struct h2);

    if (!callbacks) {
        callbacks = make_callbacks();
        options = make_options();
    }
    h2->conn = conn;
    list_init(&h2->streams);
    list_init(&h2->ready);
    h2->born_ms = h2->idle_ms = h2->window_ms = http_conn_now(conn);
    if (nghttp2_session_server_new2(&h2->session, callbacks, h2, options) != 0)
        abort(); /* out of memory */
    conn->proto = &h2_proto;
    conn->state = h2;
    if (greet(h2->session) != 0)
        abort();
    http_conn_later(conn);
}
