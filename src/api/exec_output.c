/*
 * What commands print, in sandboxes and on linked agents. Output is kept by position, so a reader
 * needs no queue: it continues at the position of its peer, stops when the peer is slow, and is
 * called when there is more output. A peer that reconnects names its position.
 *
 * An answer has one of three forms: the bytes of one stream; both streams as server-sent events,
 * whose ids are the positions of both ("OUT,ERR") and whose data is base64; or both streams as
 * frames, which cost a program least. A frame begins with 8 bytes: the stream (1 stdout, 2 stderr,
 * 3 the end), three zeros, and the length of what follows as 32 bits, the highest byte first. The
 * last event or frame is the command as JSON.
 *
 * With `hold` the command is held back instead of losing bytes that its reader has not had. Only
 * roles that may run commands may hold one back.
 */
#include "api/exec.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

#define CHUNK 49152 /* a multiple of 3: base64 without padding in between */
#define FRAME_MAX 131072

#define FRAME_HEAD 8
#define FRAME_END 3

enum output_form { FORM_BYTES, FORM_EVENTS, FORM_FRAMES };

struct output {
    struct printed printed;
    struct list node; /* in the api's outputs */
    struct http_req *req;
    struct gate *gate;
    uint64_t at[INIT_STREAMS];
    unsigned first, last; /* streams: both, or one */
    enum output_form form;
    bool follow;
    char who[ID_SIZE];
};

static void output_free(struct output *output)
{
    printed_unfollow(&output->printed);
    list_remove(&output->node);
    free(output);
}

static void frame_head(char head[FRAME_HEAD], unsigned kind, size_t len)
{
    uint32_t size = htobe32((uint32_t)len);

    memset(head, 0, FRAME_HEAD);
    head[0] = (char)kind;
    memcpy(head + 4, &size, sizeof(size));
}

/* `data` has FRAME_HEAD bytes before it that may be overwritten. */
static enum http_flow put_bytes(struct output *output, unsigned stream, struct str data)
{
    autobuf struct buf text = { 0 };

    if (output->form == FORM_FRAMES) {
        char *head = (char *)(uintptr_t)data.p - FRAME_HEAD;

        frame_head(head, stream == INIT_ERR ? 2 : 1, data.n);
        return http_reply_write(output->req, (struct str){ head, data.n + FRAME_HEAD });
    }
    if (output->form == FORM_BYTES)
        return http_reply_write(output->req, data);
    buf_printf(&text, "id: %llu,%llu\nevent: %s\ndata: ", (unsigned long long)output->at[INIT_OUT],
               (unsigned long long)output->at[INIT_ERR], stream == INIT_ERR ? "stderr" : "stdout");
    base64_put(&text, data.p, data.n);
    buf_puts(&text, "\n\n");
    return http_reply_write(output->req, buf_view(&text));
}

static void put_exit(struct output *output)
{
    bool frames = output->form == FORM_FRAMES;
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);
    autoarena struct arena arena = { 0 };
    struct command_view command;
    struct exec_view exec;

    if (frames)
        buf_append(&text, (const char[FRAME_HEAD]){ 0 }, FRAME_HEAD);
    else
        buf_puts(&text, "event: exit\ndata: ");
    if (output->printed.exec) {
        box_exec_view(output->printed.exec, &exec);
        exec_put_blocked(output->gate, &exec, &arena);
        field_encode(exec_fields, &exec, &json);
    } else {
        command_view(output->printed.linked, &command);
        field_encode(command_fields, &command, &json);
    }
    if (frames)
        frame_head(text.data, FRAME_END, text.len - FRAME_HEAD);
    else
        buf_puts(&text, "\n\n");
    (void)http_reply_write(output->req, buf_view(&text));
}

/* 1: the peer must read first; 0: everything was given; -1: cannot go on. */
static int give(struct output *output, unsigned stream)
{
    static char data[FRAME_HEAD + FRAME_MAX]; /* the loop thread's */
    size_t most = output->form == FORM_FRAMES ? FRAME_MAX : CHUNK;
    struct err err;

    for (;;) {
        ssize_t got = printed_read(&output->printed, stream, output->at[stream], data + FRAME_HEAD,
                                   most, &err);
        if (got <= 0)
            return got < 0 ? -1 : 0;
        output->at[stream] += (uint64_t)got;
        printed_advance(&output->printed, stream, output->at[stream]);
        enum http_flow flow =
            put_bytes(output, stream, (struct str){ data + FRAME_HEAD, (size_t)got });
        if (flow != HTTP_OK)
            return 1;
    }
}

static void pump(struct output *output)
{
    struct http_req *req = output->req;
    bool ended = printed_ended(&output->printed);

    for (unsigned s = output->first; s <= output->last; s++) {
        int rc = give(output, s);

        if (rc > 0)
            return;
        if (rc < 0) { /* the reader fell behind what is kept, which a holding reader never does */
            output_free(output);
            http_cut(req, "output beyond what is kept");
            return;
        }
    }
    if (output->follow && !ended)
        return;
    if (output->form != FORM_BYTES)
        put_exit(output);
    output_free(output);
    http_reply_end(req, NULL, 0);
}

static void output_more(struct printed *printed)
{
    struct output *output = container_of(printed, struct output, printed);

    if (!http_full(output->req))
        pump(output);
}

static void output_cut(struct output *output, const char *why)
{
    struct http_req *req = output->req;

    output_free(output);
    http_cut(req, why);
}

static void output_gone(struct printed *printed)
{
    output_cut(container_of(printed, struct output, printed), "the command is no longer kept here");
}

static void on_req_gone(struct http_req *req)
{
    output_free(req->app);
}

static void on_req_drain(struct http_req *req)
{
    pump(req->app);
}

void output_streams_cut(struct api *api, const char *who)
{
    list_each_safe (pos, &api->own->outputs) {
        struct output *output = list_entry(pos, struct output, node);

        if (strcmp(output->who, who) == 0)
            output_cut(output, "the credential has ended");
    }
}

static int check_place(const struct printed *of, unsigned stream, uint64_t at, struct err *err)
{
    uint64_t begin, end;

    printed_range(of, stream, &begin, &end);
    if (at < begin)
        return err_set(err, ERR_GONE, "bytes before position %llu are no longer kept",
                       (unsigned long long)begin);
    if (at > end)
        return err_set(err, ERR_RANGE, "the stream has %llu bytes so far", (unsigned long long)end);
    return 0;
}

/* Takes the request over from the call. */
static void output_begin(struct call *call, struct output *output)
{
    static const char *const types[] = { [FORM_BYTES] = "application/octet-stream",
                                         [FORM_EVENTS] = "text/event-stream",
                                         [FORM_FRAMES] = "application/vnd.atoll.output" };
    struct http_req *req = call->req;
    struct http_header headers[CALL_EXTRA_MAX + 4];
    unsigned count = call_headers(call, headers, CALL_EXTRA_MAX);

    headers[count++] = (struct http_header){ STR("content-type"), str_of(types[output->form]) };
    headers[count++] = (struct http_header){ STR("x-accel-buffering"), STR("no") };
    output->printed.more = output_more;
    output->printed.gone = output_gone;
    output->req = req;
    output->gate = call->api->gate;
    snprintf(output->who, sizeof(output->who), "%s", call->who.id);
    req->app = output;
    req->on_gone = on_req_gone;
    req->on_drain = on_req_drain;
    list_append(&call->api->own->outputs, &output->node);
    printed_follow(&output->printed, output->at);
    http_reply_begin(req, 200, headers, count);
    http_slim(req);
    if (output->printed.holds)
        http_patient(req); /* an empty pager's pipe is no reason to lose what it will read */
    call->req = NULL;
    call_free(call);
    pump(output);
}

/* Whether the command is held back for this reader. */
static int wants_hold(struct call *call, bool *holds, struct err *err)
{
    int64_t hold;

    if (call_query_int(call, "hold", 0, 1, 0, &hold, err) < 0)
        return -1;
    if (hold && !(call->who.role & ROLE_USE))
        return err_role(err, "role %s may read output and not hold a command back",
                        role_name(call->who.role));
    *holds = hold;
    return 0;
}

static struct output *output_new(const struct printed *of, enum output_form form, bool holds)
{
    struct output *output = xnew(struct output);

    output->printed = *of;
    output->printed.holds = holds;
    output->form = form;
    output->follow = true;
    output->first = INIT_OUT;
    output->last = INIT_ERR;
    return output;
}

static int output_one(struct call *call, const struct printed *of, unsigned number, bool holds,
                      struct err *err)
{
    uint64_t begin, end;
    int64_t from, follow;

    printed_range(of, number, &begin, &end);
    if (call_query_int(call, "from", 0, INT64_MAX, 0, &from, err) < 0 ||
        call_query_int(call, "follow", 0, 1, 0, &follow, err) < 0)
        return -1;
    if (!call_query(call, "from"))
        from = (int64_t)begin;
    if (check_place(of, number, (uint64_t)from, err) < 0)
        return -1;
    struct output *output = output_new(of, FORM_BYTES, holds);
    output->first = output->last = number;
    output->at[!number] = POSITION_ANY;
    output->at[number] = (uint64_t)from;
    output->follow = follow;
    call_header(call, "atoll-position", arena_printf(&call->arena, "%lld", (long long)from));
    output_begin(call, output);
    return 0;
}

/* "OUT,ERR" from Last-Event-ID or ?from=; without either, everything that is kept. */
static int both_places(struct call *call, const struct printed *of, uint64_t at[INIT_STREAMS],
                       struct err *err)
{
    struct str last = http_header(call->req, "last-event-id");
    struct str text = last.n ? last : str_of(call_query(call, "from"));
    uint64_t end;

    if (!text.n) {
        printed_range(of, INIT_OUT, &at[INIT_OUT], &end);
        printed_range(of, INIT_ERR, &at[INIT_ERR], &end);
        return 0;
    }
    struct str out = str_cut(&text, ',');
    if (!str_to_u64(out, &at[INIT_OUT]) || !str_to_u64(text, &at[INIT_ERR]))
        return err_field(err, last.n ? "Last-Event-ID" : "from",
                         "two positions, such as 120,0: of stdout and of stderr");
    if (check_place(of, INIT_OUT, at[INIT_OUT], err) < 0)
        return -1;
    return check_place(of, INIT_ERR, at[INIT_ERR], err);
}

static int output_both(struct call *call, const struct printed *of, enum output_form form,
                       struct err *err)
{
    uint64_t at[INIT_STREAMS];
    bool holds;

    if (wants_hold(call, &holds, err) < 0 || both_places(call, of, at, err) < 0)
        return -1;
    struct output *output = output_new(of, form, holds);
    call_header(call, "atoll-position",
                arena_printf(&call->arena, "%llu,%llu", (unsigned long long)at[INIT_OUT],
                             (unsigned long long)at[INIT_ERR]));
    memcpy(output->at, at, sizeof(at));
    output_begin(call, output);
    return 0;
}

int output_get(struct call *call, struct err *err)
{
    static const char *const streams[] = { "stdout", "stderr", "both" };
    const char *text = call_query(call, "stream");
    struct printed of = { 0 };
    unsigned stream = 0;
    bool holds;

    while (text && stream < ARRAY_LEN(streams) && strcmp(text, streams[stream]) != 0)
        stream++;
    if (stream == ARRAY_LEN(streams))
        return err_field(err, "stream", "stdout, stderr or both");
    if (call_exec(call, &of.exec, err) < 0)
        return -1;
    if (stream == INIT_STREAMS)
        return output_both(call, &of, FORM_FRAMES, err);
    return wants_hold(call, &holds, err) < 0 ? -1 : output_one(call, &of, stream, holds, err);
}

int output_events(struct call *call, const struct printed *of, struct err *err)
{
    return output_both(call, of, FORM_EVENTS, err);
}

int output_sse(struct call *call, struct err *err)
{
    struct printed of = { 0 };

    return call_exec(call, &of.exec, err) < 0 ? -1 : output_events(call, &of, err);
}
