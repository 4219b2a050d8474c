/*
 * Bytes out of a sandbox: passed on as they come, at the pace at which the peer reads them. The
 * answer begins with the first of them, so that what fails before is an ordinary error; what fails
 * later cuts the connection, because nothing else says "incomplete" to every client.
 */
#include "api/file.h"

#include <stdio.h>

#include "base/hash.h"
#include "http/range.h"

/* ---- the answer ---- */

static void cut(struct fileop *op, const char *why)
{
    struct http_req *req = op->req;

    fileop_free(op);
    http_cut(req, why);
}

void file_streams_cut(struct api *api, const char *who)
{
    list_each_safe (pos, &api->own->files) {
        struct fileop *op = list_entry(pos, struct fileop, node);

        if (strcmp(op->who, who) == 0)
            cut(op, "the credential has ended");
    }
}

static void on_req_gone(struct http_req *req)
{
    fileop_free(req->app);
}

static void on_req_drain(struct http_req *req)
{
    struct fileop *op = req->app;

    box_job_resume(&op->job);
}

/* Takes the request over from the call. */
static void begin(struct fileop *op, int status, const char *type, const struct http_header *more,
                  unsigned more_count)
{
    struct call *call = op->call;
    struct http_req *req = call->req;
    struct http_header headers[CALL_EXTRA_MAX + 8];
    unsigned count = call_headers(call, headers, CALL_EXTRA_MAX);

    headers[count++] = (struct http_header){ STR("content-type"), str_of(type) };
    for (unsigned i = 0; i < more_count; i++)
        headers[count++] = more[i];
    op->req = req;
    snprintf(op->who, sizeof(op->who), "%s", call->who.id);
    req->app = op;
    req->on_gone = on_req_gone;
    req->on_drain = on_req_drain;
    list_append(&call->api->own->files, &op->node);
    http_reply_begin(req, status, headers, count);
    /* A file's length is told, so its reader may send the next request before the job has ended;
     * only a stream without an end may throw away what its peer still says. */
    if (op->what == DOWN_WATCH)
        http_slim(req);
    call->req = NULL;
    call_free(call);
    op->call = NULL;
}

static void pass_on(struct fileop *op, struct str data)
{
    if (data.n && http_reply_write(op->req, data) != HTTP_OK)
        box_job_pause(&op->job);
}

/* Ends with an error: as an answer if none has begun. Takes the operation. */
static void give_up(struct fileop *op, const struct err *err)
{
    struct call *call = op->call;
    struct err copy = *err;

    if (!call) {
        cut(op, copy.msg);
        return;
    }
    fileop_free(op);
    call_refuse(call, &copy);
}

static void nonsense(struct fileop *op)
{
    struct err err = { 0 };

    err_set(&err, ERR_UNAVAILABLE, "the sandbox answered with nonsense");
    give_up(op, &err);
}

/* ---- one file ---- */

/* The record has come: what is wanted of the file is said now. */
static void head_file(struct fileop *op, uint64_t size)
{
    struct http_req *req = op->call->req;
    struct init_range range = { .len = size };
    uint64_t first = 0, last = 0;
    char range_text[HTTP_RANGE_TEXT_SIZE], length[24];
    enum http_range kind = http_range_parse(http_header(req, "range"), size, &first, &last);
    struct http_header more[5];
    unsigned count = 0;

    if (kind == HTTP_RANGE_BAD) {
        struct err err = { 0 };

        call_header(op->call, "content-range",
                    arena_printf(&op->call->arena, "bytes */%llu", (unsigned long long)size));
        err_set(&err, ERR_RANGE, "the file has %llu bytes", (unsigned long long)size);
        give_up(op, &err);
        return;
    }
    if (kind == HTTP_RANGE_PART) {
        range = (struct init_range){ .offset = first, .len = last - first + 1 };
        more[count++] =
            (struct http_header){ STR("content-range"),
                                  http_range_text(range_text, kind, first, last, size) };
    }
    int len = snprintf(length, sizeof(length), "%llu", (unsigned long long)range.len);
    more[count++] = (struct http_header){ STR("content-length"), { length, (size_t)len } };
    more[count++] = (struct http_header){ STR("accept-ranges"), STR("bytes") };
    more[count++] = (struct http_header){ STR("content-disposition"), STR("attachment") };
    op->bytes = range.len;
    bool to_head = str_is(req->method, "HEAD");
    begin(op, kind == HTTP_RANGE_PART ? 206 : 200, "application/octet-stream", more, count);
    if (to_head) {
        fileop_free(op);
        http_reply_end(req, NULL, 0);
        return;
    }
    range.side = range.len >= SIDE_LEAST && box_job_expect(&op->job, range.len);
    (void)box_job_put(&op->job, (struct str){ (const char *)&range, sizeof(range) });
    box_job_eof(&op->job);
}

static void file_data(struct box_job *job, struct str data)
{
    struct fileop *op = container_of(job, struct fileop, job);
    struct tree_entry entry;

    if (op->headed) {
        if (data.n > op->bytes) { /* more than was asked for */
            nonsense(op);
            return;
        }
        op->bytes -= data.n;
        pass_on(op, data);
        return;
    }
    buf_str(&op->out, data);
    ssize_t took = tree_record_take(op->out.data, op->out.len, &entry);
    if (took == 0 && buf_ok(&op->out))
        return;
    if (took <= 0 || (size_t)took != op->out.len) {
        nonsense(op);
        return;
    }
    op->headed = true;
    head_file(op, entry.head.size);
}

/* ---- archives and manifests ---- */

static void tar_data(struct box_job *job, struct str data)
{
    struct fileop *op = container_of(job, struct fileop, job);
    static const struct http_header more[] = { { STR_INIT("content-disposition"),
                                                 STR_INIT("attachment; filename=\"tree.tar\"") } };

    if (op->call)
        begin(op, 200, "application/x-tar", more, 1);
    pass_on(op, data);
}

/* One of the two lines about a file that changed. */
static void put_side(struct json_out *json, const struct tree_entry *entry)
{
    json_open(json, '{');
    json_kv_text(json, "side", entry->head.flags & TREE_BEFORE ? "before" : "after");
    json_key(json, "file");
    file_put(json, entry, NULL);
    json_close(json, '}');
}

static void manifest_data(struct box_job *job, struct str data)
{
    struct fileop *op = container_of(job, struct fileop, job);
    autobuf struct buf text = { 0 };
    struct tree_entry entry;
    ssize_t took;

    op->bytes += data.n;
    buf_str(&op->out, data);
    struct str rest = buf_view(&op->out);
    while ((took = tree_record_take(rest.p, rest.n, &entry)) > 0) {
        struct json_out json = json_to(&text);

        if (op->what == DOWN_CHANGES)
            put_side(&json, &entry);
        else
            file_put(&json, &entry, NULL);
        buf_putc(&text, '\n');
        rest = str_from(rest, (size_t)took);
    }
    if (took < 0 || op->bytes > FILE_MANIFEST_MAX) {
        nonsense(op);
        return;
    }
    buf_consume(&op->out, op->out.len - rest.n);
    if (op->call)
        begin(op, 200, "application/jsonl", NULL, 0);
    pass_on(op, buf_view(&text));
}

/* ---- changes as they happen ---- */

static void put_seen(struct buf *text, const struct init_seen *seen, struct str path, bool first)
{
    static const char *const whats[INIT_SEEN_WHATS] = {
        [INIT_SEEN_CREATED] = "created",   [INIT_SEEN_CHANGED] = "changed",
        [INIT_SEEN_REMOVED] = "removed",   [INIT_SEEN_MOVED_FROM] = "moved_from",
        [INIT_SEEN_MOVED_TO] = "moved_to", [INIT_SEEN_MODE] = "attributes",
        [INIT_SEEN_LOST] = "lost",
    };
    struct json_out json = json_to(text);

    buf_puts(text, first                          ? "event: ready\ndata: "
                   : seen->what == INIT_SEEN_LOST ? "event: lost\ndata: "
                                                  : "event: change\ndata: ");
    json_open(&json, '{');
    if (!first && seen->what != INIT_SEEN_LOST) {
        json_kv_text(&json, "what", whats[seen->what]);
        json_kv_str(&json, "path", path);
        if (!str_utf8(path)) {
            autobuf struct buf base64 = { 0 };

            base64_put(&base64, path.p, path.n);
            json_kv_str(&json, "path_base64", buf_view(&base64));
        }
        json_kv_bool(&json, "directory", seen->is_dir);
    }
    json_close(&json, '}');
    buf_puts(text, "\n\n");
}

static void watch_data(struct box_job *job, struct str data)
{
    struct fileop *op = container_of(job, struct fileop, job);
    static const struct http_header more[] = { { STR_INIT("x-accel-buffering"), STR_INIT("no") } };
    autobuf struct buf text = { 0 };
    struct init_seen seen;

    buf_str(&op->out, data);
    struct str rest = buf_view(&op->out);
    while (rest.n >= sizeof(seen)) {
        memcpy(&seen, rest.p, sizeof(seen));
        if (seen.what == 0 || seen.what >= INIT_SEEN_WHATS || seen.path_len > TREE_PATH_MAX) {
            nonsense(op);
            return;
        }
        if (rest.n < sizeof(seen) + seen.path_len)
            break;
        put_seen(&text, &seen, (struct str){ rest.p + sizeof(seen), seen.path_len }, !op->headed);
        op->headed = true;
        rest = str_from(rest, sizeof(seen) + seen.path_len);
    }
    buf_consume(&op->out, op->out.len - rest.n);
    if (op->call)
        begin(op, 200, "text/event-stream", more, 1);
    pass_on(op, buf_view(&text));
}

/* ---- the end ---- */

static void down_done(struct box_job *job, const struct err *err)
{
    struct fileop *op = container_of(job, struct fileop, job);
    bool whole = op->what == DOWN_FILE ? op->headed && op->bytes == 0 : op->out.len == 0;

    if (err) {
        give_up(op, err);
        return;
    }
    if (!whole) {
        nonsense(op);
        return;
    }
    if (op->call) /* an empty directory has an empty manifest */
        begin(op, 200, "application/jsonl", NULL, 0);
    struct http_req *req = op->req;
    fileop_free(op);
    http_reply_end(req, NULL, 0);
}

/* The peer left before the answer began. */
static void early_gone(struct http_req *req)
{
    struct fileop *op = req->app;
    struct call *call = op->call;

    call->req = NULL;
    fileop_free(op);
    call_free(call);
}

static int down_op(struct fileop *op, const char *const *args, bool input, int what,
                   void (*data)(struct box_job *job, struct str data), struct err *err)
{
    struct call *call = op->call;

    op->what = what;
    op->job.data = data;
    op->job.done = down_done;
    op->job.endless = what == DOWN_WATCH;
    if (fileop_start(op, args, input, err) < 0)
        return -1;
    call->req->app = op;
    call->req->on_gone = early_gone;
    return 0;
}

static int down(struct call *call, const char *const *args, bool input, int what,
                void (*data)(struct box_job *job, struct str data), struct err *err)
{
    struct fileop *op = fileop_new(call, "path", err);

    return op ? down_op(op, args, input, what, data, err) : -1;
}

int file_read(struct call *call, struct err *err)
{
    return down(call, (const char *[]){ "read", call_query(call, "path"), NULL }, true, DOWN_FILE,
                file_data, err);
}

int tree_get(struct call *call, struct err *err)
{
    return down(call, (const char *[]){ "tar", call_query(call, "path"), NULL }, false, DOWN_TAR,
                tar_data, err);
}

int manifest_get(struct call *call, struct err *err)
{
    return down(call, (const char *[]){ "manifest", call_query(call, "path"), NULL }, false,
                DOWN_MANIFEST, manifest_data, err);
}

/* Where the sandbox has its view of a directory; NULL. */
static const char *view_of(struct box *box)
{
    struct sandbox_view view;

    box_view(box, &view);
    const struct bind_use *binds = view.binds.items;
    for (size_t i = 0; i < view.binds.count; i++)
        if (binds[i].view)
            return binds[i].path;
    return NULL;
}

int changes_get(struct call *call, struct err *err)
{
    struct box *box;

    if (call_box(call, &box, err) < 0)
        return -1;
    const char *path = view_of(box);
    if (!path)
        return err_set(err, ERR_CONFLICT,
                       "the sandbox has no view of a directory, so there is nothing to compare its "
                       "files with");
    path = arena_strdup(&call->arena, path);
    struct fileop *op = fileop_at(call, box, path, err);
    return op ? down_op(op, (const char *[]){ "changes", path, NULL }, false, DOWN_CHANGES,
                        manifest_data, err)
              : -1;
}

int watch_get(struct call *call, struct err *err)
{
    int64_t recursive;

    if (call_query_int(call, "recursive", 0, 1, 0, &recursive, err) < 0)
        return -1;
    return down(call,
                (const char *[]){ "watch", call_query(call, "path"), recursive ? "1" : "0", NULL },
                false, DOWN_WATCH, watch_data, err);
}
