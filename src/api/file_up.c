/*
 * Bodies into a sandbox: passed on as they come, at the pace at which the operation inside takes
 * them; the network is not read meanwhile. A body that ends early never becomes a file: the
 * operation is killed, because only the whole body ends its input.
 */
#include "api/file.h"

#include <stdio.h>

static void push(struct fileop *op)
{
    struct http_req *req = op->call->req;

    while (op->rest.len) {
        size_t took = box_job_put(&op->job, buf_view(&op->rest));

        if (!took)
            break;
        op->bytes += took;
        buf_consume(&op->rest, took);
    }
    bool full = op->rest.len > 0;
    if (req && !op->last && full != op->read_paused) {
        op->read_paused = full;
        if (full)
            http_read_pause(req);
        else
            http_read_resume(req);
    }
    if (op->last && !full)
        box_job_eof(&op->job);
}

static void up_room(struct box_job *job)
{
    push(container_of(job, struct fileop, job));
}

/* Most clients do not listen before they have sent everything: a little more is taken from them. */
static void discard(struct fileop *op, size_t len)
{
    op->discarded += len;
    if (!op->last && op->discarded <= FILE_DISCARD_MAX)
        return;
    op->failed = false;
    struct err err = op->err;
    fileop_record(op, &err);
}

static void up_body(struct http_req *req, struct str data, bool last)
{
    struct fileop *op = req->app;

    if (!op->job.box && !op->failed)
        return; /* being recorded */
    if (op->failed) {
        op->last = last;
        discard(op, data.n);
        return;
    }
    if (!op->rest.len) {
        size_t took = box_job_put(&op->job, data);

        op->bytes += took;
        data = str_from(data, took);
    }
    buf_str(&op->rest, data);
    op->last = last;
    push(op);
}

static void up_data(struct box_job *job, struct str data)
{
    buf_str(&container_of(job, struct fileop, job)->out, data);
}

/* What the operation said on its way out. */
static int up_reply(struct fileop *op, struct err *err)
{
    struct json_out json = call_json(op->call);
    struct init_unpacked unpacked;
    struct tree_entry entry;

    if (op->call->route->gives == file_change_fields) {
        if (op->out.len != sizeof(unpacked))
            return err_set(err, ERR_UNAVAILABLE, "the sandbox answered with nonsense");
        memcpy(&unpacked, op->out.data, sizeof(unpacked));
        struct file_change change = { .path = op->path,
                                      .bytes = (int64_t)(unpacked.bytes & INT64_MAX),
                                      .entries = (int64_t)(unpacked.entries & INT64_MAX) };
        field_encode(file_change_fields, &change, &json);
        return 0;
    }
    ssize_t took = tree_record_take(op->out.data, op->out.len, &entry);
    if (took <= 0 || (size_t)took != op->out.len)
        return err_set(err, ERR_UNAVAILABLE, "the sandbox answered with nonsense");
    file_put(&json, &entry, op->path);
    return 0;
}

static void up_done(struct box_job *job, const struct err *err)
{
    struct fileop *op = container_of(job, struct fileop, job);
    struct err own = { 0 };

    buf_clear(&op->rest);
    if (!err && up_reply(op, &own) < 0)
        err = &own;
    struct http_req *req = op->call->req;
    if (!err || op->last || !req) {
        fileop_record(op, err);
        return;
    }
    op->err = *err;
    op->failed = true;
    if (op->read_paused)
        http_read_resume(req);
}

static void up_gone(struct http_req *req)
{
    struct fileop *op = req->app;
    struct err err = { 0 };

    op->call->req = NULL;
    if (!op->job.box && !op->failed)
        return; /* being recorded */
    box_job_drop(&op->job);
    err_set(&err, ERR_CANCELLED, "the caller went away");
    fileop_record(op, &err);
}

static int up(struct call *call, struct fileop *op, const char *const *args, struct err *err)
{
    op->job.data = up_data;
    op->job.room = up_room;
    op->job.done = up_done;
    op->out.max = TREE_RECORD_MAX;
    if (fileop_start(op, args, true, err) < 0)
        return -1;
    call->peer = arena_strdup(&call->arena, call->req->peer->text); /* for another thread */
    call->req->app = op;
    call->req->on_gone = up_gone;
    http_read_stream(call->req, HTTP_BODY_STREAM_MAX, up_body);
    return 0;
}

/* `how`: write or append; only the former knows a mode. */
static int file_in(struct call *call, const char *how, const char *mode, struct err *err)
{
    int64_t sync;

    if (call_query_int(call, "sync", 0, 1, 0, &sync, err) < 0)
        return -1;
    struct fileop *op = fileop_new(call, "path", err);
    if (!op)
        return -1;
    const char *durable = sync ? "1" : "0";
    return up(call, op,
              mode ? (const char *[]){ how, op->path, mode, durable, NULL }
                   : (const char *[]){ how, op->path, durable, NULL },
              err);
}

int file_write(struct call *call, struct err *err)
{
    const char *mode = call_query(call, "mode");

    return file_in(call, "write", mode ? mode : "-", err);
}

int file_append(struct call *call, struct err *err)
{
    return file_in(call, "append", NULL, err);
}

int tree_put(struct call *call, struct err *err)
{
    struct fileop *op = fileop_new(call, "path", err);

    if (!op)
        return -1;
    return up(call, op, (const char *[]){ "untar", op->path, NULL }, err);
}
