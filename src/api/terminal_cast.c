/*
 * The recording of a terminal as an asciicast (version 2): made from the log of frames and the
 * spool while it is sent, so nothing is recorded twice and a recording of any length costs one
 * frame of memory. One whose beginning is no longer kept begins later, with the time it really was.
 * It ends with what has been printed so far.
 */
#include "api/terminal.h"

#include "base/clock.h"
#include "term/cast.h"

struct recording {
    struct box_reader reader; /* to hear when the command is forgotten */
    struct list node;         /* of all */
    struct http_req *req;
    struct box_exec *exec;
    uint64_t next, end; /* frames */
    struct cast cast;   /* as it is written */
    char who[ID_SIZE];
};

static void recording_free(struct recording *rec)
{
    box_exec_unfollow(&rec->reader);
    list_remove(&rec->node);
    free(rec);
}

static void put_head(struct recording *rec, struct buf *out)
{
    struct exec_view view;
    struct term_frame frame;
    struct err ignored;
    unsigned rows, cols;

    box_exec_view(rec->exec, &view);
    term_first_size(box_exec_term(rec->exec), &rows, &cols);
    if (rec->next && term_frame(box_exec_term(rec->exec), rec->next - 1, &frame, &ignored) > 0) {
        rows = frame.rows;
        cols = frame.cols;
    }
    struct cast_head head = { .rows = rows,
                              .cols = cols,
                              .start_ms = view.started_at,
                              .wall_ms = view.started_at,
                              .title = str_of(view.name),
                              .term = STR("xterm-256color") };
    cast_begin(&rec->cast, &head, out);
}

/* 1 there may be more, 0 that was all, -1 what comes next is gone. */
static int put_frame(struct recording *rec, struct buf *out)
{
    static char data[TERM_FRAME_MAX]; /* the loop thread's */
    struct term_frame frame;
    struct err err;

    if (rec->next >= rec->end)
        return 0;
    if (term_frame(box_exec_term(rec->exec), rec->next, &frame, &err) <= 0)
        return -1;
    if (frame.kind == TERM_RESIZE)
        cast_resize(&rec->cast, frame.at_ms, frame.rows, frame.cols, out);
    size_t len = 0;
    while (frame.kind == TERM_OUTPUT && frame.from + len < frame.to) {
        ssize_t got = box_exec_read(rec->exec, INIT_OUT, frame.from + len, data + len,
                                    MIN((size_t)(frame.to - frame.from), sizeof(data)) - len, &err);
        if (got <= 0)
            return -1;
        len += (size_t)got;
    }
    rec->next++;
    if (len)
        cast_output(&rec->cast, frame.at_ms, (struct str){ data, len }, out);
    if (rec->next == rec->end)
        cast_end(&rec->cast, frame.at_ms, out);
    return 1;
}

static void cut(struct recording *rec, const char *why)
{
    struct http_req *req = rec->req;

    recording_free(rec);
    http_cut(req, why);
}

static void pump(struct recording *rec)
{
    struct http_req *req = rec->req;

    for (;;) {
        autobuf struct buf text = { 0 };
        int rc = put_frame(rec, &text);

        if (rc < 0) {
            cut(rec, "recording beyond what is kept");
            return;
        }
        if (rc == 0)
            break;
        if (text.len && http_reply_write(req, buf_view(&text)) != HTTP_OK)
            return;
    }
    recording_free(rec);
    http_reply_end(req, NULL, 0);
}

static void on_req_gone(struct http_req *req)
{
    recording_free(req->app);
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
    cut(container_of(reader, struct recording, reader), "the command is no longer kept here");
}

void cast_streams_cut(struct api *api, const char *who)
{
    list_each_safe (pos, &api->own->casts) {
        struct recording *rec = list_entry(pos, struct recording, node);

        if (strcmp(rec->who, who) == 0)
            cut(rec, "the credential has ended");
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
    struct recording *rec = xnew(struct recording);
    rec->exec = exec;
    rec->req = req;
    rec->reader = (struct box_reader){ .more = on_more, .gone = on_forgotten };
    snprintf(rec->who, sizeof(rec->who), "%s", call->who.id);
    term_range(box_exec_term(exec), &rec->next, &rec->end);
    put_head(rec, &text);
    unsigned count = call_headers(call, headers, CALL_EXTRA_MAX);
    headers[count++] = (struct http_header){ STR("content-type"), STR("application/x-asciicast") };
    req->app = rec;
    req->on_gone = on_req_gone;
    req->on_drain = on_req_drain;
    list_append(&((struct api *)call->api)->own->casts, &rec->node);
    box_exec_follow(exec, &rec->reader);
    http_reply_begin(req, 200, headers, count);
    http_slim(req);
    call->req = NULL;
    call_free(call);
    (void)http_reply_write(req, buf_view(&text));
    pump(rec);
    return 0;
}
