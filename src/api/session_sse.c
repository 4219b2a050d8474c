/* The frames of a session as server-sent events: one more way of being attached (box/attach.c). */
#include "api/session.h"

#include "base/clock.h"

struct reader {
    struct attach attach;
    struct list node; /* with the recordings: cut with their credential */
    struct http_req *req;
    char session[ID_SIZE], who[ID_SIZE];
};

static struct reader *reader_of(struct attach *attach)
{
    return container_of(attach, struct reader, attach);
}

static void reader_free(struct reader *reader)
{
    attach_close(&reader->attach);
    list_remove(&reader->node);
    free(reader);
}

static bool send_event(struct reader *reader, struct buf *json)
{
    autobuf struct buf text = { 0 };

    buf_puts(&text, "data: ");
    buf_str(&text, buf_view(json));
    buf_puts(&text, "\n\n");
    return http_reply_write(reader->req, buf_view(&text)) == HTTP_OK;
}

static bool on_frame(struct attach *attach, const struct term_frame *frame, struct str data)
{
    struct reader *reader = reader_of(attach);
    autobuf struct buf json = { 0 };

    return !session_frame_put(&json, NULL, reader->session, frame, data) ||
           send_event(reader, &json);
}

static void on_gap(struct attach *attach, uint64_t to)
{
    (void)attach, (void)to; /* this protocol leaves the numbers out, and a keyframe follows */
}

static bool on_keyframe(struct attach *attach, struct str data)
{
    struct reader *reader = reader_of(attach);
    autobuf struct buf json = { 0 };

    session_keyframe_put(&json, NULL, reader->session, attach->frame ? attach->frame - 1 : 0, data);
    return send_event(reader, &json);
}

static void on_role(struct attach *attach, enum attach_why why)
{
    (void)attach, (void)why;
}

static void end(struct reader *reader)
{
    struct http_req *req = reader->req;

    reader_free(reader);
    http_reply_end(req, NULL, 0);
}

static void on_ended(struct attach *attach)
{
    struct reader *reader = reader_of(attach);
    autobuf struct buf json = { 0 };

    session_closed_put(&json, NULL, term_exec(attach->term));
    (void)send_event(reader, &json);
    end(reader);
}

static void on_lost(struct attach *attach, const char *why)
{
    struct reader *reader = reader_of(attach);
    autobuf struct buf text = { 0 };
    struct json_out json =
        session_frame_open(&text, NULL, reader->session, attach->frame, clock_wall_ms(), "error");

    json_kv_text(&json, "message", why);
    json_close(&json, '}');
    (void)send_event(reader, &text);
    end(reader);
}

static const struct attach_ops ops = { .frame = on_frame,
                                       .gap = on_gap,
                                       .keyframe = on_keyframe,
                                       .role = on_role,
                                       .ended = on_ended,
                                       .lost = on_lost };

static void on_req_gone(struct http_req *req)
{
    reader_free(req->app);
}

static void on_req_drain(struct http_req *req)
{
    struct reader *reader = req->app;

    attach_drained(&reader->attach);
}

void session_streams_cut(struct api *api, const char *who)
{
    list_each_safe (pos, &api->own->session_streams) {
        struct reader *reader = list_entry(pos, struct reader, node);
        struct http_req *req = reader->req;

        if (strcmp(reader->who, who) != 0)
            continue;
        reader_free(reader);
        http_cut(req, "the credential has ended");
    }
}

int session_stream(struct call *call, struct err *err)
{
    struct http_header headers[CALL_EXTRA_MAX + 4];
    struct attach_wish wish = { .from = ATTACH_SCREEN };
    struct http_req *req = call->req;
    struct exec_view view;
    struct box_exec *exec;
    enum attach_why why;
    int64_t from;

    if (terminal_by_id((struct api *)call->api, call_reach(call), call_param(call, "sid"), &exec,
                       err) < 0 ||
        call_query_int(call, "from", 0, INT64_MAX, -1, &from, err) < 0)
        return -1;
    if (from >= 0) {
        wish.from = ATTACH_FRAME;
        wish.place = (uint64_t)from;
    }
    struct reader *reader = xnew(struct reader);
    attach_prepare(&reader->attach, &ops, &call->who);
    if (attach_open(&reader->attach, exec, &wish, &why, err) < 0) {
        free(reader);
        return -1;
    }
    box_exec_view(exec, &view);
    snprintf(reader->session, sizeof(reader->session), "%s", view.id);
    snprintf(reader->who, sizeof(reader->who), "%s", call->who.id);
    reader->req = req;
    unsigned count = call_headers(call, headers, CALL_EXTRA_MAX);
    headers[count++] = (struct http_header){ STR("content-type"), STR("text/event-stream") };
    headers[count++] = (struct http_header){ STR("x-accel-buffering"), STR("no") };
    req->app = reader;
    req->on_gone = on_req_gone;
    req->on_drain = on_req_drain;
    list_append(&((struct api *)call->api)->own->session_streams, &reader->node);
    http_reply_begin(req, 200, headers, count);
    http_slim(req);
    call->req = NULL;
    call_free(call);
    attach_go(&reader->attach);
    return 0;
}
