/*
 * The recording of a terminal as an asciicast (version 2): made from the log of frames and the
 * spool while it is sent, so nothing is recorded twice and a recording of any length costs one
 * frame of memory. One whose beginning is no longer kept begins later, with the time it really was.
 * It ends with what has been printed so far.
 */
#include "api/terminal.h"

#include "base/clock.h"

struct cast {
    struct box_reader reader; /* to hear when the command is forgotten */
    struct list node;         /* of all */
    struct http_req *req;
    struct box_exec *exec;
    uint64_t next, end; /* frames */
    uint64_t at;        /* position */
    struct str_tail {   /* of a character that the next frame ends */
        char bytes[4];
        size_t len;
    } tail;
    char who[ID_SIZE];
};

static void cast_free(struct cast *cast)
{
    box_exec_unfollow(&cast->reader);
    list_remove(&cast->node);
    free(cast);
}

/* Bytes at the end that begin a character and do not end it. */
static size_t unfinished(struct str data)
{
    for (size_t back = 1; back <= MIN(data.n, (size_t)3); back++) {
        unsigned char c = (unsigned char)data.p[data.n - back];

        if (c < 0x80)
            return 0;
        if (c >= 0xc0)
            return back < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) ? back : 0;
    }
    return 0;
}

static void put_event(struct cast *cast, const struct term_frame *frame, const char *code,
                      struct str data, struct buf *out)
{
    struct json_out json = json_to(out);
    struct exec_view view;

    box_exec_view(cast->exec, &view);
    int64_t ms = MAX(frame->at_ms - view.started_at, (int64_t)0);
    buf_printf(out, "[%lld.%03d,\"%s\",", (long long)(ms / 1000), (int)(ms % 1000), code);
    json_put_str(&json, data);
    buf_puts(out, "]\n");
}

static void put_output(struct cast *cast, const struct term_frame *frame, struct str data,
                       bool last, struct buf *out)
{
    autobuf struct buf whole = { 0 };

    buf_append(&whole, cast->tail.bytes, cast->tail.len);
    buf_str(&whole, data);
    cast->tail.len = last ? 0 : unfinished(buf_view(&whole));
    whole.len -= cast->tail.len;
    memcpy(cast->tail.bytes, whole.data + whole.len, cast->tail.len);
    if (whole.len)
        put_event(cast, frame, "o", buf_view(&whole), out);
}

static void put_head(struct cast *cast, struct buf *out)
{
    struct json_out json = json_to(out);
    struct exec_view view;
    struct term_frame frame;
    struct err ignored;
    unsigned rows, cols;

    box_exec_view(cast->exec, &view);
    term_first_size(box_exec_term(cast->exec), &rows, &cols);
    if (cast->next && term_frame(box_exec_term(cast->exec), cast->next - 1, &frame, &ignored) > 0) {
        rows = frame.rows;
        cols = frame.cols;
    }
    json_open(&json, '{');
    json_kv_int(&json, "version", 2);
    json_kv_int(&json, "width", cols);
    json_kv_int(&json, "height", rows);
    json_kv_int(&json, "timestamp", view.started_at / 1000);
    if (view.name)
        json_kv_text(&json, "title", view.name);
    json_key(&json, "env");
    json_put_raw(&json, STR("{\"TERM\":\"xterm-256color\"}"));
    json_close(&json, '}');
    buf_putc(out, '\n');
}

/* 1 there may be more, 0 that was all, -1 what comes next is gone. */
static int put_frame(struct cast *cast, struct buf *out)
{
    static char data[TERM_FRAME_MAX]; /* the loop thread's */
    struct term_frame frame;
    struct err err;
    char size[24];

    if (cast->next >= cast->end)
        return 0;
    if (term_frame(box_exec_term(cast->exec), cast->next, &frame, &err) <= 0)
        return -1;
    if (frame.kind == TERM_RESIZE) {
        int len = snprintf(size, sizeof(size), "%ux%u", frame.cols, frame.rows);
        put_event(cast, &frame, "r", (struct str){ size, (size_t)len }, out);
    }
    size_t len = 0;
    while (frame.kind == TERM_OUTPUT && frame.from + len < frame.to) {
        ssize_t got = box_exec_read(cast->exec, INIT_OUT, frame.from + len, data + len,
                                    MIN((size_t)(frame.to - frame.from), sizeof(data)) - len, &err);
        if (got <= 0)
            return -1;
        len += (size_t)got;
    }
    cast->next++;
    if (len)
        put_output(cast, &frame, (struct str){ data, len }, cast->next == cast->end, out);
    return 1;
}

static void cut(struct cast *cast, const char *why)
{
    struct http_req *req = cast->req;

    cast_free(cast);
    http_cut(req, why);
}

static void pump(struct cast *cast)
{
    struct http_req *req = cast->req;

    for (;;) {
        autobuf struct buf text = { 0 };
        int rc = put_frame(cast, &text);

        if (rc < 0) {
            cut(cast, "recording beyond what is kept");
            return;
        }
        if (rc == 0)
            break;
        if (text.len && http_reply_write(req, buf_view(&text)) != HTTP_OK)
            return;
    }
    cast_free(cast);
    http_reply_end(req, NULL, 0);
}

static void on_req_gone(struct http_req *req)
{
    cast_free(req->app);
}

static void on_req_drain(struct http_req *req)
{
    pump(req->app);
}

static void on_more(struct box_reader *reader)
{
    (void)reader; /* it ends where it was when it was asked for */
}

static void on_forgotten(struct box_reader *reader)
{
    cut(container_of(reader, struct cast, reader), "the command is no longer kept here");
}

void cast_streams_cut(struct api *api, const char *who)
{
    list_each_safe (pos, &api->own->casts) {
        struct cast *cast = list_entry(pos, struct cast, node);

        if (strcmp(cast->who, who) == 0)
            cut(cast, "the credential has ended");
    }
}

int terminal_recording(struct call *call, struct err *err)
{
    struct http_header headers[CALL_EXTRA_MAX + 2];
    autobuf struct buf text = { 0 };
    struct http_req *req = call->req;
    struct box_exec *exec;

    if (call_terminal(call, &exec, err) < 0)
        return -1;
    struct cast *cast = xnew(struct cast);
    cast->exec = exec;
    cast->req = req;
    cast->reader = (struct box_reader){ .more = on_more, .gone = on_forgotten };
    snprintf(cast->who, sizeof(cast->who), "%s", call->who.id);
    term_range(box_exec_term(exec), &cast->next, &cast->end);
    put_head(cast, &text);
    unsigned count = call_headers(call, headers, CALL_EXTRA_MAX);
    headers[count++] = (struct http_header){ STR("content-type"), STR("application/x-asciicast") };
    req->app = cast;
    req->on_gone = on_req_gone;
    req->on_drain = on_req_drain;
    list_append(&((struct api *)call->api)->own->casts, &cast->node);
    box_exec_follow(exec, &cast->reader);
    http_reply_begin(req, 200, headers, count);
    http_slim(req);
    call->req = NULL;
    call_free(call);
    (void)http_reply_write(req, buf_view(&text));
    pump(cast);
    return 0;
}
