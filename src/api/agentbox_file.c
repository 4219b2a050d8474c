/*
 * Files of agentbox: one message holds one file, or a part of it. The sandbox's own init does the
 * work as the workload's user (box/job.h), beneath the directory that the path is in: whatever
 * links there are, the file is in that directory or the operation fails. Everything else about
 * paths is agentbox's: relative ones begin at /workspace, what is written is there or in the
 * outputs, what is read there or in the user's data.
 */
#include "api/agentbox.h"

#include <errno.h>

#include "base/limits.h"
#include "box/job.h"

#define NOT_ALLOWED "Path not allowed"
#define MARGIN 4096 /* of a message, for all but the content */

struct fileop {
    struct box_job job;
    struct box_op op;
    struct rpc *rpc;
    struct box *box;
    const char *id; /* of the sandbox */
    const char *path, *root, *rest;
    const char *how; /* write, append, mkdir; read */
    struct str content;
    size_t sent;
    uint64_t offset, length; /* to be read */
    uint64_t size;           /* of the file */
    struct buf out;
    bool headed, made_parents;
    struct err err;
};

/* ---- paths ---- */

static const char *const written[] = { "/workspace", "/mnt/user-data/outputs", NULL };
static const char *const readable[] = { "/workspace", "/mnt/user-data", NULL };

/* Without ".", ".." and empty parts; absolute. What the links in it mean is not known here. */
static char *canonical(struct arena *arena, const char *path)
{
    struct str rest = str_of(path);
    char *out = arena_alloc(arena, strlen(path) + sizeof("/workspace/"));
    size_t len = 0;

    if (*path != '/') {
        memcpy(out, "/workspace", 10);
        len = 10;
    }
    while (rest.n) {
        struct str part = str_cut(&rest, '/');

        if (!part.n || str_is(part, "."))
            continue;
        if (str_is(part, "..")) {
            while (len && out[--len] != '/')
                ;
            continue;
        }
        out[len++] = '/';
        memcpy(out + len, part.p, part.n);
        len += part.n;
    }
    out[len] = 0;
    return out;
}

/* Which of the places it is beneath, by whole names, and where in it. */
static bool find_place(struct fileop *op, const char *const *places, const char *path)
{
    for (; *places; places++) {
        size_t len = strlen(*places);

        if (strncmp(path, *places, len) == 0 && (path[len] == '/' || !path[len])) {
            op->root = *places;
            op->rest = path[len] ? path + len + 1 : ".";
            return true;
        }
    }
    return false;
}

/* ---- what both do ---- */

static struct fileop *fileop_new(struct rpc *rpc, struct box *box, const char *path)
{
    struct fileop *op = arena_new(&rpc->call->arena, struct fileop);
    struct sandbox_view view;

    box_view(box, &view);
    op->id = arena_strdup(&rpc->call->arena, view.id);
    op->rpc = rpc;
    op->path = path;
    op->out.max = GRPC_MESSAGE_MAX;
    rpc->state = op;
    return op;
}

/* As agentbox says it. */
static const char *error_text(const struct err *err, bool reading)
{
    if (err->sys == EXDEV || err->sys == ELOOP)
        return NOT_ALLOWED;
    return reading && err->sys == ENOENT ? "File not found" : err->msg;
}

/* Is it about the file, which agentbox tells inside of an answer that is well? */
static bool about_file(const struct err *err)
{
    return err->sys != 0;
}

/* Nobody waits: a read is given up, a write goes on to its end and its record. */
static void read_over(struct rpc *rpc, enum rpc_end why)
{
    struct fileop *op = rpc->state;

    (void)why;
    box_job_drop(&op->job);
    buf_free(&op->out);
    rpc->over = NULL;
    rpc_drop(rpc);
}

static int start(struct fileop *op, struct box *box, const char *const *args, bool input,
                 struct err *err)
{
    struct box_job_spec spec = { .args = args, .input = input };

    return box_job_start(box, &op->job, &spec, err);
}

/* ---- writing ---- */

static void reply_written(struct rpc *rpc, const char *error)
{
    Sandbox__V1__WriteFileResponse reply = SANDBOX__V1__WRITE_FILE_RESPONSE__INIT;

    reply.success = !error;
    if (error)
        RPC_SET(&reply, error, 2, (char *)error);
    rpc_reply(rpc, &reply.base);
}

static void push(struct box_job *job)
{
    struct fileop *op = container_of(job, struct fileop, job);

    while (op->sent < op->content.n) {
        size_t took = box_job_put(job, str_from(op->content, op->sent));

        if (!took)
            return;
        op->sent += took;
    }
    box_job_eof(job);
}

static int write_begin(struct fileop *op, struct box *box, struct err *err)
{
    bool append = strcmp(op->how, "append") == 0;
    const char *const write_args[] = { "beneath", op->root, "write", op->rest, "-", "0", NULL };
    const char *const append_args[] = { "beneath", op->root, "append", op->rest, "0", NULL };

    op->sent = 0;
    op->job.room = push;
    if (start(op, box, append ? append_args : write_args, true, err) < 0)
        return -1;
    push(&op->job);
    return 0;
}

static int record(struct box_op *box_op, struct db *db, struct err *err)
{
    return call_record(container_of(box_op, struct fileop, op)->rpc->call, db, err);
}

static void recorded(struct box_op *box_op, const struct err *err)
{
    struct fileop *op = container_of(box_op, struct fileop, op);
    struct rpc *rpc = op->rpc;

    if (err)
        rpc_finish(rpc, err);
    else if (op->err.code && !about_file(&op->err))
        rpc_finish(rpc, &op->err);
    else
        reply_written(rpc, op->err.code ? error_text(&op->err, false) : NULL);
    rpc_drop(rpc);
}

/* The audit row, then the answer. */
static void write_record(struct fileop *op)
{
    struct call *call = op->rpc->call;
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);
    struct box *box;

    if (boxes_find(call->api->boxes, call_reach(call), op->id, &box, &(struct err){ 0 }) < 0) {
        recorded(&op->op, NULL);
        return;
    }
    json_open(&json, '{');
    json_kv_text(&json, "path", op->path);
    json_kv_int(&json, "bytes", (int64_t)op->content.n);
    if (op->err.code)
        json_kv_text(&json, "error", op->err.msg);
    json_close(&json, '}');
    call->object = arena_printf(&call->arena, "sandbox/%s", op->id);
    call->detail = arena_memdup0(&call->arena, text.data, text.len);
    call->outcome = op->err.code ? "failed" : NULL;
    op->op = (struct box_op){
        .tenant = call->who.tenant, .by = call->who.id, .record = record, .done = recorded
    };
    box_note(box, &op->op);
}

/* The directory that the file is to be in. */
static const char *parent_of(struct arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? arena_memdup0(arena, path, (size_t)(slash - path)) : NULL;
}

static void write_done(struct box_job *job, const struct err *err);

static void parents_done(struct box_job *job, const struct err *err)
{
    struct fileop *op = container_of(job, struct fileop, job);
    struct box *box;

    if (err)
        op->err = *err;
    op->job = (struct box_job){ .done = write_done };
    if (err ||
        boxes_find(op->rpc->call->api->boxes, call_reach(op->rpc->call), op->id, &box, &op->err) <
            0 ||
        write_begin(op, box, &op->err) < 0)
        write_record(op);
}

/* 0: they are being made, and the file after them. */
static int make_parents(struct fileop *op)
{
    struct call *call = op->rpc->call;
    const char *parent = parent_of(&call->arena, op->rest);
    const char *const args[] = { "beneath", op->root, "mkdir", parent, "755", "1", NULL };
    struct box *box;
    struct err err = { 0 };

    if (op->made_parents || !parent)
        return -1;
    op->made_parents = true;
    op->job = (struct box_job){ .done = parents_done };
    if (boxes_find(call->api->boxes, call_reach(call), op->id, &box, &err) < 0)
        return -1;
    return start(op, box, args, false, &err);
}

static void write_done(struct box_job *job, const struct err *err)
{
    struct fileop *op = container_of(job, struct fileop, job);

    if (err && err->sys == ENOENT && make_parents(op) == 0)
        return;
    if (err)
        op->err = *err;
    write_record(op);
}

static int write_awake(struct rpc *rpc, struct box *box, struct err *err)
{
    struct fileop *op = rpc->state;

    op->job.done = write_done;
    if (write_begin(op, box, err) < 0)
        return -1;
    rpc_hold(rpc);
    return 0;
}

static int write_file(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    const Sandbox__V1__WriteFileRequest *request = (void *)message;
    struct box *box = session_find(rpc, request->session_id);

    if (!box) {
        reply_written(rpc, NO_SESSION);
        return 0;
    }
    if (strlen(request->path) > AGENTBOX_PATH_MAX)
        return err_field(err, "path", "path has more than %d bytes", AGENTBOX_PATH_MAX);
    if (request->content_bytes_is_case && *request->content)
        return err_field(err, "content", "content or content_bytes, not both");
    struct fileop *op = fileop_new(rpc, box, request->path);
    if (!find_place(op, written, canonical(&rpc->call->arena, request->path))) {
        reply_written(rpc, NOT_ALLOWED);
        return 0;
    }
    op->how = !*request->mode || strcmp(request->mode, "w") == 0 ? "write" : "append";
    op->content =
        request->content_bytes_is_case
            ? (struct str){ (char *)request->content_bytes.data, request->content_bytes.len }
            : str_of(request->content);
    return session_awake(rpc, box, write_awake, err);
}

/* ---- reading ---- */

static void reply_unread(struct rpc *rpc, const char *error)
{
    Sandbox__V1__ReadFileResponse reply = SANDBOX__V1__READ_FILE_RESPONSE__INIT;

    RPC_SET(&reply, error, 3, (char *)error);
    rpc_reply(rpc, &reply.base);
}

static void reply_read(struct fileop *op, bool binary)
{
    Sandbox__V1__ReadFileResponse reply = SANDBOX__V1__READ_FILE_RESPONSE__INIT;
    struct str bytes = buf_view(&op->out);
    char *text;

    reply.success = true;
    reply.size = op->size;
    if (binary) {
        RPC_SET(&reply, content_bytes, 100, ((ProtobufCBinaryData){ bytes.n, (uint8_t *)bytes.p }));
    } else if (session_text(&op->rpc->call->arena, bytes, &text)) {
        RPC_SET(&reply, content, 2, text);
    } else {
        reply_unread(op->rpc, "the file is not UTF-8 text; ask for it with binary");
        return;
    }
    rpc_reply(op->rpc, &reply.base);
}

static bool wants_bytes(const struct rpc *rpc)
{
    return ((const Sandbox__V1__ReadFileRequest *)(const void *)rpc->request)->binary;
}

static void read_end(struct fileop *op, const struct err *err)
{
    struct rpc *rpc = op->rpc;

    rpc->over = NULL;
    if (!err)
        reply_read(op, wants_bytes(rpc));
    else if (about_file(err))
        reply_unread(rpc, error_text(err, true));
    else
        rpc_finish(rpc, err);
    buf_free(&op->out);
    rpc_drop(rpc);
}

static void read_done(struct box_job *job, const struct err *err)
{
    struct fileop *op = container_of(job, struct fileop, job);
    struct err own = { 0 };

    if (!err && (!op->headed || op->out.len != op->length)) {
        err_set(&own, ERR_UNAVAILABLE, "the sandbox answered with nonsense");
        err = &own;
    }
    read_end(op, err);
}

static void give_up(struct fileop *op, enum err_code code, const char *text)
{
    struct err err = { 0 };

    box_job_drop(&op->job);
    err_set(&err, code, "%s", text);
    if (code == ERR_LIMIT)
        err.sys = EFBIG; /* about the file */
    read_end(op, &err);
}

/* The size is known: what is wanted of the file is said now. */
static void read_head(struct fileop *op, uint64_t size)
{
    struct init_range range = { .offset = MIN(op->offset, size) };
    uint64_t left = size - range.offset;

    op->headed = true;
    op->size = size;
    range.len = op->length ? MIN(op->length, left) : left;
    if (range.len > GRPC_MESSAGE_MAX - MARGIN) {
        give_up(op, ERR_LIMIT,
                arena_printf(&op->rpc->call->arena,
                             "the file has %llu bytes, more than a message; ask for parts",
                             (unsigned long long)size));
        return;
    }
    op->length = range.len;
    buf_clear(&op->out);
    (void)box_job_put(&op->job, (struct str){ (const char *)&range, sizeof(range) });
    box_job_eof(&op->job);
}

static void read_data(struct box_job *job, struct str data)
{
    struct fileop *op = container_of(job, struct fileop, job);
    struct tree_entry entry;

    buf_str(&op->out, data);
    if (op->headed) {
        if (op->out.len > op->length || !buf_ok(&op->out))
            give_up(op, ERR_UNAVAILABLE, "the sandbox answered with nonsense");
        return;
    }
    ssize_t took = tree_record_take(op->out.data, op->out.len, &entry);
    if (took == 0 && op->out.len <= TREE_RECORD_MAX)
        return;
    if (took <= 0 || (size_t)took != op->out.len)
        give_up(op, ERR_UNAVAILABLE, "the sandbox answered with nonsense");
    else
        read_head(op, entry.head.size);
}

static int read_awake(struct rpc *rpc, struct box *box, struct err *err)
{
    struct fileop *op = rpc->state;
    const char *const args[] = { "beneath", op->root, "read", op->rest, NULL };

    op->job.data = read_data;
    op->job.done = read_done;
    if (start(op, box, args, true, err) < 0)
        return -1;
    rpc->over = read_over;
    rpc_hold(rpc);
    return 0;
}

static int read_file(struct rpc *rpc, ProtobufCMessage *message, struct err *err)
{
    const Sandbox__V1__ReadFileRequest *request = (void *)message;
    struct box *box = session_find(rpc, request->session_id);

    if (!box) {
        reply_unread(rpc, NO_SESSION);
        return 0;
    }
    if (strlen(request->path) > AGENTBOX_PATH_MAX)
        return err_field(err, "path", "path has more than %d bytes", AGENTBOX_PATH_MAX);
    struct fileop *op = fileop_new(rpc, box, request->path);
    if (!find_place(op, readable, canonical(&rpc->call->arena, request->path))) {
        reply_unread(rpc, NOT_ALLOWED);
        return 0;
    }
    op->offset = request->offset;
    op->length = request->length;
    return session_awake(rpc, box, read_awake, err);
}

const struct rpc_method agentbox_write_file = {
    .takes = &sandbox__v1__write_file_request__descriptor,
    .gives = &sandbox__v1__write_file_response__descriptor,
    .fn = write_file,
};
const struct rpc_method agentbox_read_file = {
    .takes = &sandbox__v1__read_file_request__descriptor,
    .gives = &sandbox__v1__read_file_response__descriptor,
    .fn = read_file,
};
