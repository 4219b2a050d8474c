/*
 * One request and the program in the sandbox that answers it.
 *
 *   wake     a sandbox that sleeps is woken; nothing of the body is read meanwhile
 *   connect  a job in the sandbox (INIT "connect") says one byte when something has taken it
 *   ask      the head as preview_head.c composes it, then the body as it comes and as it is taken
 *   answer   read strictly (http/origin.h) and composed anew; pieces as they come and as they are
 *            taken; after a 101 the bytes of both sides, untouched
 *
 * One connection is one request: nothing is kept open inside for somebody else's. What fails before
 * the answer has begun is an ordinary error; what fails later cuts the connection.
 */
#include "api/preview.h"

#include <errno.h>
#include <stdio.h>

#include "base/metric.h"
#include "http/ws.h"

METRIC_COUNTER(previews_total, "atoll_previews_total", "Requests and tunnels to ports of sandboxes",
               "way", "path", "host", "tunnel");

/* ---- its end ---- */

static void preview_free(struct preview *preview)
{
    box_job_drop(&preview->job);
    box_unwake(&preview->waking);
    timer_cancel(preview->api->loop, &preview->linger);
    list_remove(&preview->node);
    origin_free(&preview->origin);
    buf_free(&preview->in);
    free(preview);
}

/* Takes the preview. An ordinary error as long as no answer has begun. */
static void give_up(struct preview *preview, const struct err *err)
{
    struct call *call = preview->call;
    struct http_req *req = preview->req;
    struct err copy = *err;

    preview_free(preview);
    if (call)
        call_refuse(call, &copy);
    else
        http_cut(req, copy.msg);
}

static void finish(struct preview *preview)
{
    struct http_req *req = preview->req;

    preview_free(preview);
    http_reply_end(req, NULL, 0);
}

/* The peer left before an answer had begun. */
static void early_gone(struct http_req *req)
{
    struct preview *preview = req->app;
    struct call *call = preview->call;

    call->req = NULL;
    preview_free(preview);
    call_free(call);
}

static void on_gone(struct http_req *req)
{
    preview_free(req->app);
}

static void on_drain(struct http_req *req)
{
    struct preview *preview = req->app;

    box_job_resume(&preview->job);
}

void preview_streams_cut(struct api *api, const char *who)
{
    list_each_safe (pos, &api->own->previews) {
        struct preview *preview = list_entry(pos, struct preview, node);
        struct err err = { 0 };

        err_set(&err, ERR_UNAUTHENTICATED, "the credential has ended");
        if (strcmp(preview->who, who) == 0)
            give_up(preview, &err);
    }
}

/* ---- inside ---- */

static struct http_req *req_of(const struct preview *preview)
{
    return preview->call ? preview->call->req : preview->req;
}

static void push(struct preview *preview)
{
    while (preview->in.len) {
        size_t took = box_job_put(&preview->job, buf_view(&preview->in));

        if (!took)
            break;
        buf_consume(&preview->in, took);
    }
    bool full = preview->in.len > 0;
    if (preview->raw && preview->last && !full)
        box_job_eof(&preview->job);
    if (!preview->last && full != preview->read_paused) {
        preview->read_paused = full;
        if (full)
            http_read_pause(req_of(preview));
        else
            http_read_resume(req_of(preview));
    }
}

static void on_room(struct box_job *job)
{
    struct preview *preview = container_of(job, struct preview, job);

    if (preview->connected)
        push(preview);
}

/*
 * After a 101. A peer that has nothing more to say may still listen, or may be gone: nothing tells
 * the two apart, so what is inside has so long to say something.
 */
static void on_raw(struct http_req *req, struct str data, bool last)
{
    struct preview *preview = req->app;

    buf_str(&preview->in, data);
    preview->last = last;
    if (last)
        timer_set(preview->api->loop, &preview->linger, PREVIEW_LINGER_MS);
    push(preview);
}

static void on_linger(struct timer *timer)
{
    finish(container_of(timer, struct preview, linger));
}

static void on_body(struct http_req *req, struct str data, bool last)
{
    struct preview *preview = req->app;

    if (preview->chunked && data.n)
        buf_printf(&preview->in, "%zx\r\n", data.n);
    buf_str(&preview->in, data);
    if (preview->chunked && data.n)
        buf_puts(&preview->in, "\r\n");
    if (preview->chunked && last)
        buf_puts(&preview->in, "0\r\n\r\n");
    preview->last = last;
    push(preview);
}

/* ---- outside ---- */

/* The request is ours from here on. */
static void begin(struct preview *preview, int status, const struct preview_headers *headers)
{
    struct call *call = preview->call;
    struct http_req *req = call->req;

    preview->req = req;
    preview->call = NULL;
    req->app = preview;
    req->on_gone = on_gone;
    req->on_drain = on_drain;
    http_reply_begin(req, status, headers->list, headers->count);
    call->req = NULL;
    call_free(call);
}

/* From here on both sides say what they like. */
static void begin_raw(struct preview *preview, const struct preview_headers *headers)
{
    struct http_req *req = preview->call->req;

    preview->raw = true;
    begin(preview, req->version == HTTP_2 ? 200 : 101, headers);
    preview->last = false;
    http_read_stream(req, UINT64_MAX, on_raw);
}

static void begin_answer(struct preview *preview)
{
    struct preview_headers headers;
    bool body = preview->call->req->body_size != 0;

    preview_answer(preview, &headers);
    if (preview->origin.status == 101) {
        begin_raw(preview, &headers);
        return;
    }
    begin(preview, preview->origin.status, &headers);
    if (!body)
        http_slim(preview->req); /* a peer that leaves an endless answer is noticed */
}

static void take_answer(struct preview *preview, struct str data)
{
    struct err err = { 0 };
    struct str piece;

    for (;;) {
        switch (origin_next(&preview->origin, &data, &piece, &err)) {
        case ORIGIN_HEAD:
            begin_answer(preview);
            break;
        case ORIGIN_DATA:
            if (http_reply_write(preview->req, piece) != HTTP_OK)
                box_job_pause(&preview->job);
            break;
        case ORIGIN_END:
            finish(preview);
            return;
        case ORIGIN_BAD:
            give_up(preview, &err);
            return;
        default:
            return;
        }
    }
}

/* ---- the connection ---- */

static void connected(struct preview *preview)
{
    struct http_req *req = preview->call->req;
    struct preview_headers headers;

    preview->connected = true;
    if (preview->way == PREVIEW_TUNNEL) {
        headers.count = call_headers(preview->call, headers.list, CALL_EXTRA_MAX);
        headers.list[headers.count++] = (struct http_header){ STR("upgrade"), STR("tcp") };
        begin_raw(preview, &headers);
        return;
    }
    preview->last = req->body_size == 0 || preview->origin.may_switch;
    if (!preview->last)
        http_read_stream(req, HTTP_BODY_STREAM_MAX, on_body);
    push(preview);
}

static void on_data(struct box_job *job, struct str data)
{
    struct preview *preview = container_of(job, struct preview, job);
    struct err err = { 0 };

    if (!preview->connected) {
        if (data.p[0] != INIT_CONNECTED) {
            err_set(&err, ERR_UNAVAILABLE, "the sandbox answered with nonsense");
            give_up(preview, &err);
            return;
        }
        connected(preview);
        data = str_from(data, 1);
    }
    if (!data.n)
        return;
    if (timer_is_set(&preview->linger))
        timer_set(preview->api->loop, &preview->linger, PREVIEW_LINGER_MS);
    if (preview->way != PREVIEW_TUNNEL)
        take_answer(preview, data);
    else if (http_reply_write(preview->req, data) != HTTP_OK)
        box_job_pause(job);
}

static void not_connected(const struct preview *preview, const struct err *why, struct err *err)
{
    if (why && why->sys == ECONNREFUSED)
        err_set(err, ERR_UPSTREAM, "nothing listens on port %u in sandbox %s", preview->port,
                preview->id);
    else if (why && why->code != ERR_INTERNAL)
        *err = *why;
    else
        err_set(err, ERR_UPSTREAM, "port %u in sandbox %s could not be reached: %s", preview->port,
                preview->id, why ? why->msg : "the connection ended at once");
}

static void on_done(struct box_job *job, const struct err *why)
{
    struct preview *preview = container_of(job, struct preview, job);
    bool whole = !why && (preview->raw || origin_closed(&preview->origin));
    struct err err = { 0 };

    if (!preview->connected)
        not_connected(preview, why, &err);
    else if (preview->req && whole) {
        finish(preview);
        return;
    } else
        err_set(&err, ERR_UPSTREAM, "what listens on port %u ended without %s answer%s%s",
                preview->port, preview->call ? "an" : "its whole", why ? ": " : "",
                why ? why->msg : "");
    give_up(preview, &err);
}

static int connect_inside(struct preview *preview, struct box *box, struct err *err)
{
    char port[8];
    const char *args[] = { "connect", port, NULL };
    struct box_job_spec spec = { .args = args, .input = true };

    snprintf(port, sizeof(port), "%u", preview->port);
    preview->job = (struct box_job){
        .data = on_data, .room = on_room, .done = on_done, .endless = true, .conn = true
    };
    return box_job_start(box, &preview->job, &spec, err);
}

static void awake(struct box_op *op, const struct err *failed)
{
    struct preview *preview = container_of(op, struct preview, waking);
    struct err err = { 0 };

    if (failed)
        give_up(preview, failed);
    else if (connect_inside(preview, op->box, &err) < 0)
        give_up(preview, &err);
}

int preview_start(struct call *call, struct box *box, unsigned port, enum preview_way way,
                  const char *prefix, const char *target, struct err *err)
{
    if (ws_wanted(call->req) && ws_check(call->req, err) < 0)
        return -1;
    struct preview *preview = xnew(struct preview);
    struct sandbox_view view;

    box_view(box, &view);
    preview->api = (struct api *)call->api;
    preview->linger.fn = on_linger;
    preview->call = call;
    preview->port = port;
    preview->way = way;
    preview->prefix = prefix;
    preview->target = target;
    preview->origin.to_head = str_is(call->req->method, "HEAD");
    preview->origin.may_switch = ws_wanted(call->req);
    snprintf(preview->id, sizeof(preview->id), "%s", view.id);
    snprintf(preview->who, sizeof(preview->who), "%s", call->who.id);
    if (way != PREVIEW_TUNNEL)
        preview_request(preview, &preview->in);
    preview->waking =
        (struct box_op){ .tenant = preview->id, .by = preview->who, .done = awake, .box = box };
    int rc = box_wake(box, &preview->waking, err);
    if (rc < 0 || (rc == 1 && connect_inside(preview, box, err) < 0)) {
        preview_free(preview);
        return -1;
    }
    metric_add(&previews_total, way, 1);
    list_append(&preview->api->own->previews, &preview->node);
    call->req->app = preview;
    call->req->on_gone = early_gone;
    return 0;
}
