/*
 * Events as pages, as server-sent events and over a WebSocket; and notes, which are events that
 * people write.
 *
 * A stream keeps a bus subscription and very little else: the call it began as is freed, the
 * request is slimmed, and the text of an event is made once and sent to all. When its peer reads
 * slowly the bus pauses it (no queue here); when its place is beyond retention it is told "reset"
 * and ended. A stream ends with the credential that opened it.
 */
#include "api/event_words.h"
#include "api/rpc.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/metric.h"
#include "http/ws.h"

METRIC_GAUGE(streams_open, "atoll_event_streams", "Open event streams", "kind", "sse", "ws");
METRIC_COUNTER(streams_ended, "atoll_event_streams_ended_total",
               "Event streams ended by the server", "why", "lost", "revoked", "drain");
enum { END_LOST, END_REVOKED, END_DRAIN };

struct stream {
    struct bus_sub sub;
    struct list node;
    struct api *api;
    struct http_req *req; /* SSE; NULL once gone */
    struct ws *ws;        /* WebSocket */
    struct store_job job; /* looks whether the place asked for still exists */
    struct call *call;    /* until the answer has begun */
    int64_t since;
    int64_t expires_ms;
    bool hub;                        /* the hub's path: its own events are told in its words */
    enum event_words words;          /* in whose words; of agentic's… */
    int64_t since_ms;                /* …where a time is said instead of a number; -1: none… */
    char source[EVENT_NAME_MAX + 1]; /* …and whom it is about; "": anybody */
    struct principal who;
};

/* `both`: with agentic's members besides. */
static void event_json(const struct event *event, bool both, struct json_out *json)
{
    char when[CLOCK_TEXT_SIZE];

    clock_text(event->at_ms, when);
    json_open(json, '{');
    json_kv_int(json, "seq", event->seq);
    json_kv_text(json, "time", when);
    json_kv_text(json, "type", event->type);
    json_kv_text(json, "object", event->object);
    json_key(json, "data");
    json_put_raw(json, event->body);
    if (both)
        event_words_members(json, event);
    json_close(json, '}');
}

/* The hub's clients know its events by their name and get the payload alone. */
static bool in_hub_words(const struct event *event)
{
    return str_starts(str_of(event->object), STR("hub/"));
}

/* The event as SSE text; the same bytes serve every subscriber, so the newest is kept. */
static struct str event_sse(struct api *api, const struct event *event, bool hub)
{
    struct event_text *kept = &api->own->event_texts[hub && in_hub_words(event)];

    if (kept->seq == event->seq && strcmp(kept->tenant, event->tenant) == 0)
        return buf_view(&kept->text);
    struct json_out json = json_to(&kept->text);
    buf_clear(&kept->text);
    buf_printf(&kept->text, "id: %lld\nevent: %s\ndata: ", (long long)event->seq, event->type);
    if (hub && in_hub_words(event))
        buf_str(&kept->text, event->body);
    else
        event_json(event, false, &json);
    buf_puts(&kept->text, "\n\n");
    kept->seq = event->seq;
    snprintf(kept->tenant, sizeof(kept->tenant), "%s", event->tenant);
    return buf_view(&kept->text);
}

/* Without a name, as agentic's are: a browser's EventSource gives it to onmessage. */
static void words_sse(const struct event *event, bool both, struct buf *out)
{
    struct json_out json = json_to(out);

    buf_printf(out, "id: %lld\ndata: ", (long long)event->seq);
    if (both)
        event_json(event, true, &json);
    else
        event_words_put(&json, event);
    buf_puts(out, "\n\n");
}

/* ---- a stream's life ---- */

static void stream_free(struct stream *stream)
{
    if (stream->req || stream->ws)
        metric_add(&streams_open, stream->ws ? 1 : 0, -1);
    bus_unsubscribe(&stream->sub);
    list_remove(&stream->node);
    free(stream);
}

static void stream_end(struct stream *stream, int why, int ws_code, const char *reason)
{
    metric_add(&streams_ended, (unsigned)why, 1);
    if (stream->ws) {
        bus_unsubscribe(&stream->sub);
        ws_close(stream->ws, ws_code, reason); /* on_close frees */
        return;
    }
    struct http_req *req = stream->req;
    char text[160];
    int len = snprintf(text, sizeof(text), "event: reset\ndata: {\"reason\":\"%s\"}\n\n", reason);

    if (http_reply_write(req, (struct str){ text, (size_t)len }) != HTTP_CUT)
        http_reply_end(req, NULL, 0);
    stream_free(stream);
}

static enum bus_take on_event(struct bus_sub *sub, const struct event *event)
{
    struct stream *stream = container_of(sub, struct stream, sub);
    enum http_flow flow;
    autobuf struct buf text = { 0 };
    struct json_out json = json_to(&text);

    struct within within = { .api = stream->api, .reach = principal_reach(&stream->who) };

    if ((stream->source[0] && !event_words_about(event, stream->source)) ||
        !within_event(&within, event))
        return BUS_MORE;
    if (stream->ws) {
        if (stream->words == EVENT_WORDS_AGENTIC)
            event_words_put(&json, event);
        else
            event_json(event, false, &json);
        flow = ws_send(stream->ws, true, buf_view(&text));
    } else if (stream->words != EVENT_WORDS_OWN) {
        words_sse(event, stream->words == EVENT_WORDS_BOTH, &text);
        flow = http_reply_write(stream->req, buf_view(&text));
    } else {
        flow = http_reply_write(stream->req, event_sse(stream->api, event, stream->hub));
    }
    return flow == HTTP_OK ? BUS_MORE : BUS_WAIT;
}

static void on_lost(struct bus_sub *sub, const struct err *err)
{
    stream_end(container_of(sub, struct stream, sub), END_LOST, 4410,
               err->code == ERR_GONE ? "events before this point are no longer kept"
                                     : "the events cannot be read now; come back later");
}

static void on_req_gone(struct http_req *req)
{
    struct stream *stream = req->app;

    stream_free(stream);
}

static void on_req_drain(struct http_req *req)
{
    struct stream *stream = req->app;

    bus_resume(&stream->sub);
}

static void on_ws_drain(struct ws *ws)
{
    struct stream *stream = ws_ctx(ws);

    bus_resume(&stream->sub);
}

static void on_ws_close(struct ws *ws, int code, struct str reason)
{
    struct stream *stream = ws_ctx(ws);

    (void)code, (void)reason;
    stream_free(stream);
}

static void on_ws_message(struct ws *ws, bool text, struct str data)
{
    (void)text, (void)data;
    ws_close(ws, 1008, "this stream takes no messages");
}

static const struct ws_ops stream_ws_ops = { .on_message = on_ws_message,
                                             .on_drain = on_ws_drain,
                                             .on_close = on_ws_close };

/* What `object`, or one of the hub's words for it, narrows the stream to. */
static const char *object_of(struct call *call)
{
    const char *project = call_query(call, "project"), *agent = call_query(call, "agent");

    if (project)
        return arena_printf(&call->arena, "hub/project/%s/", project);
    if (agent)
        return arena_printf(&call->arena, "hub/agent/%s", agent);
    return call_query(call, "hub") ? "hub/" : call_query(call, "object");
}

static int check_objects(struct call *call, struct err *err)
{
    static const char *const words[] = { "object", "project", "agent", "hub" };
    const char *hub = call_query(call, "hub");
    int given = 0;

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        given += call_query(call, words[i]) != NULL;
    if (given > 1)
        return err_field(err, "object", "one of object, project, agent and hub at a time");
    if (hub && strcmp(hub, "true") != 0)
        return err_field(err, "hub", "hub: must be true, or left out");
    return 0;
}

static void stream_go(struct stream *stream)
{
    struct call *call = stream->call;
    bool theirs = stream->words == EVENT_WORDS_AGENTIC;
    struct event_filter filter = { call_query(call, theirs ? "event_type" : "type"),
                                   object_of(call) };
    struct api *api = stream->api;

    stream->sub.on_event = on_event;
    stream->sub.on_lost = on_lost;
    list_append(&api->own->streams, &stream->node);
    metric_add(&streams_open, stream->ws ? 1 : 0, 1);
    if (!timer_is_set(&api->own->keepalive))
        timer_set(api->loop, &api->own->keepalive, SSE_KEEPALIVE_MS);
    bus_subscribe(api->bus, &stream->sub, stream->who.tenant, &filter, stream->since);
}

static void sse_begin(struct stream *stream)
{
    struct call *call = stream->call;
    struct http_req *req = call->req;
    struct http_header headers[CALL_EXTRA_MAX + 4];
    unsigned count = call_headers(call, headers, CALL_EXTRA_MAX);
    char hello[64];

    headers[count++] = (struct http_header){ STR("content-type"), STR("text/event-stream") };
    headers[count++] = (struct http_header){ STR("x-accel-buffering"), STR("no") };
    req->app = stream;
    req->on_gone = on_req_gone;
    req->on_drain = on_req_drain;
    stream->req = req;
    http_reply_begin(req, 200, headers, count);
    int len = snprintf(hello, sizeof(hello), ": connected\nretry: %d\n\n", SSE_RETRY_MS);
    http_reply_write(req, (struct str){ hello, (size_t)len });
    http_slim(req);
    stream_go(stream);
    call->req = NULL;
    call_free(call);
    stream->call = NULL;
}

static void ws_begin(struct stream *stream)
{
    struct call *call = stream->call;
    struct http_req *req = call->req;
    struct err err = { 0 };

    if (ws_accept(req, NULL, &stream_ws_ops, stream, &stream->ws, &err) < 0) {
        req->on_gone = NULL;
        ws_refuse(req, &err); /* 426 and the version we speak, or 400 */
        free(stream);
    } else {
        stream_go(stream);
        stream->call = NULL;
    }
    call->req = NULL;
    call_free(call);
}

static void stream_begin(struct stream *stream)
{
    if (ws_wanted(stream->call->req))
        ws_begin(stream);
    else
        sse_begin(stream);
}

/* A type that no event can have would match nothing for ever, without a word. */
static int check_types(struct call *call, struct err *err)
{
    const char *types = call_query(call, "type");
    struct str rest = str_of(types ? types : "");

    while (rest.n) {
        struct str type = str_trim(str_cut(&rest, ',')), name = type;

        if (name.n > 2 && memcmp(name.p + name.n - 2, ".*", 2) == 0)
            name.n -= 2;
        for (size_t i = 0; i < MAX(name.n, (size_t)1); i++)
            if (!name.n || !strchr("abcdefghijklmnopqrstuvwxyz0123456789._-", name.p[i]))
                return err_field(err, "type",
                                 "\"%.*s\" is no type; they look like note.created or token.*",
                                 STR_FMT(type));
    }
    return 0;
}

/* ---- opening one ---- */

static int place_run(struct store_job *job, struct db *db, struct err *err)
{
    struct stream *stream = container_of(job, struct stream, job);
    struct event_page page = { 0 };

    if (stream->since_ms >= 0)
        return event_before(db, stream->who.tenant, stream->since_ms, &stream->since, err);
    if (event_page(db, stream->who.tenant, stream->since, 1, &page, err) < 0)
        return -1;
    event_list_free(page.first);
    if (stream->since > page.head)
        return err_field(err, "since", "event %lld has not happened yet; the newest is %lld",
                         (long long)stream->since, (long long)page.head);
    return 0;
}

static void place_done(struct store_job *job)
{
    struct stream *stream = container_of(job, struct stream, job);

    if (!stream->call->req) { /* left meanwhile */
        call_free(stream->call);
        free(stream);
        return;
    }
    if (job->rc < 0) {
        call_refuse(stream->call, &job->err);
        free(stream);
        return;
    }
    stream_begin(stream);
}

static void on_gone_early(struct http_req *req)
{
    struct stream *stream = req->app;

    stream->call->req = NULL; /* place_done frees both */
}

/* Where to begin: Last-Event-ID (a browser coming back) before ?since=; -1 means from now on. */
static int since_of(struct call *call, int64_t *out, struct err *err)
{
    struct str last = http_header(call->req, "last-event-id");
    const char *query = call_query(call, "since");

    *out = -1;
    if (!last.n && (!query || strchr(query, '-'))) /* a time: event_words_since */
        return 0;
    struct str text = last.n ? last : str_of(query);
    if (!event_since_parse(text, out))
        return err_field(err, last.n ? "Last-Event-ID" : "since", "must be an event number");
    return 0;
}

static int stream_open(struct call *call, struct err *err)
{
    enum event_words words =
        call->route->surface == SURFACE_HUB ? EVENT_WORDS_OWN : event_words_asked(call);
    bool theirs = words == EVENT_WORDS_AGENTIC;
    int64_t since, since_ms = -1;

    if (call->api->draining)
        return err_set(err, ERR_UNAVAILABLE, "the server is about to stop");
    if (theirs && (event_words_check(call, err) < 0 || event_words_since(call, &since_ms, err) < 0))
        return -1;
    if (since_of(call, &since, err) < 0 || check_types(call, err) < 0 ||
        check_objects(call, err) < 0)
        return -1;
    if (since >= 0)
        since_ms = -1; /* coming back says more than where it began */
    if (bus_subscribers(call->api->bus) >= SUBSCRIBERS_MAX)
        return err_set(err, ERR_UNAVAILABLE, "%d event streams are open already", SUBSCRIBERS_MAX);

    struct stream *stream = xnew(struct stream);
    stream->api = (struct api *)call->api;
    stream->call = call;
    stream->since = since;
    stream->words = words;
    stream->since_ms = since_ms;
    if (theirs && call_query(call, "source"))
        snprintf(stream->source, sizeof(stream->source), "%s", call_query(call, "source"));
    stream->hub = call->route->surface == SURFACE_HUB;
    stream->expires_ms = call->who.expires_ms;
    stream->who = call->who;
    list_init(&stream->node);
    if (since < 0 && since_ms < 0) {
        stream_begin(stream);
        return 0;
    }
    call->req->app = stream;
    call->req->on_gone = on_gone_early;
    stream->job = (struct store_job){ .run = place_run, .done = place_done };
    store_read(call->api->store, &stream->job);
    return 0;
}

/* ---- keep-alives and endings ---- */

static void keepalive(struct timer *timer)
{
    struct api_private *own = container_of(timer, struct api_private, keepalive);
    int64_t now = clock_wall_ms();
    struct api *api = NULL;
    char text[48];
    int len = snprintf(text, sizeof(text), ": keepalive %lld\n\n", (long long)now / 1000);

    list_each_safe (node, &own->streams) {
        struct stream *stream = list_entry(node, struct stream, node);

        api = stream->api;
        if (stream->expires_ms && stream->expires_ms <= now)
            stream_end(stream, END_REVOKED, 4401, "the credential has expired");
        else if (stream->req && http_unsent(stream->req) == 0)
            http_reply_write(stream->req, (struct str){ text, (size_t)len });
    }
    if (api && !list_empty(&own->streams))
        timer_set(api->loop, timer, SSE_KEEPALIVE_MS);
}

void event_streams_init(struct api *api)
{
    list_init(&api->own->streams);
    api->own->keepalive.fn = keepalive;
}

void event_streams_cut(struct api *api, const char *who)
{
    output_streams_cut(api, who);
    file_streams_cut(api, who);
    preview_streams_cut(api, who);
    sockets_cut(api, who);
    cast_streams_cut(api, who);
    session_streams_cut(api, who);
    rpc_cut(api, who);
    list_each_safe (node, &api->own->streams) {
        struct stream *stream = list_entry(node, struct stream, node);

        if (strcmp(stream->who.id, who) == 0)
            stream_end(stream, END_REVOKED, 4401, "the credential was revoked");
    }
}

void api_drain(struct api *api)
{
    api->draining = true;
    if (!api->own)
        return; /* it had not begun */
    sockets_drain(api);
    rpc_drain(api);
    list_each_safe (node, &api->own->streams)
        stream_end(list_entry(node, struct stream, node), END_DRAIN, 1001,
                   "the server is about to stop");
}

void event_streams_free(struct api *api)
{
    timer_cancel(api->loop, &api->own->keepalive);
    for (size_t i = 0; i < ARRAY_LEN(api->own->event_texts); i++)
        buf_free(&api->own->event_texts[i].text);
}

/* ---- pages ---- */

/* {items, next, head, floor}, the oldest first, in an object that is open. */
static int own_page(struct call *call, struct json_out *json, struct err *err)
{
    struct event_filter filter = { call_query(call, "type"), call_query(call, "object") };
    struct event_page page = { 0 };
    int64_t since, limit;

    struct within within = { .reach = call_reach(call), .list = call->within };

    if (call_query_int(call, "since", 0, INT64_MAX, -1, &since, err) < 0 ||
        call_query_int(call, "limit", 1, PAGE_MAX, PAGE_DEFAULT, &limit, err) < 0 ||
        check_types(call, err) < 0)
        return -1;
    if (since < 0) { /* the oldest that are kept */
        if (event_page(call->db, call->who.tenant, INT64_MAX, 1, &page, err) < 0)
            return -1;
        since = page.floor - 1;
    }
    if (event_page(call->db, call->who.tenant, since, (unsigned)limit, &page, err) < 0)
        return -1;
    int64_t next = since;
    json_key(json, "items");
    json_open(json, '[');
    for (const struct event *event = page.first; event; event = event->next) {
        next = event->seq;
        if (event_matches(event, &filter) && within_event(&within, event))
            event_json(event, false, json);
    }
    json_close(json, ']');
    json_kv_int(json, "next", next); /* pass it as since= to go on; items may be fewer: filters */
    json_kv_int(json, "head", page.head);
    json_kv_int(json, "floor", page.floor);
    event_list_free(page.first);
    return 0;
}

static int page_get(struct call *call, struct err *err)
{
    enum event_words words = event_words_asked(call);
    struct json_out json = call_json(call);

    json_open(&json, '{');
    if (words != EVENT_WORDS_AGENTIC && own_page(call, &json, err) < 0)
        return -1;
    if (words != EVENT_WORDS_OWN && event_words_page(call, &json, err) < 0)
        return -1;
    json_close(&json, '}');
    return 0;
}

/* ---- notes ---- */

struct note {
    const char *text;
    int64_t seq, time;
    const char *by;
};

static const struct field note_wish_fields[] = {
    FIELD(note, text, F_STRING, F_REQUIRED, .min = 1, .max = 16384,
          .help = "What is to be remembered"),
    { 0 },
};

static const struct field note_fields[] = {
    FIELD(note, seq, F_INT, F_READONLY, .help = "Its event number"),
    FIELD(note, time, F_TIME, F_READONLY, .help = "When it was written"),
    FIELD(note, by, F_STRING, F_READONLY, .help = "Who wrote it"),
    FIELD(note, text, F_STRING, F_READONLY, .help = "The note"),
    { 0 },
};

static int note_post(struct call *call, struct err *err)
{
    struct note note = { 0 };
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    if (call_decode(call, &note, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "text", note.text);
    json_kv_text(&json, "by", call->who.id);
    json_close(&json, '}');
    if (call_event(call, "note.created", "", buf_view(&body), err) < 0)
        return -1;
    note.seq = event_last_seq(call->db);
    note.time = clock_wall_ms();
    note.by = call->who.id;
    call->object = arena_printf(&call->arena, "event/%lld", (long long)note.seq);
    return call_reply(call, &note);
}

/* The same stream under its two paths. */
#define AGENTIC_WORDS "follow:agentic,source:agentic,event_type:agentic,include_archived:agentic"
#define EVENT_STREAM                                                                               \
    .name = "event.read", .method = "GET", .on = ON_STREAM, .roles = ROLE_LOOK, .fn = stream_open, \
    .flags = ROUTE_SSE | ROUTE_WS

const struct route event_routes[] = {
    { .name = "event.read",
      .method = "GET",
      .path = "/api/v1/events",
      .on = ON_READER,
      .roles = ROLE_LOOK,
      .fn = page_get,
      .query = "since:int,limit:int,type:string,object:string," AGENTIC_WORDS,
      .flags = ROUTE_AFTER | ROUTE_WITHIN,
      .summary =
          "Events after number `since`, oldest first. With Accept: text/event-stream, or as "
          "a WebSocket, they go on live. With `source`, `event_type`, `include_archived`, "
          "`follow` or a time as `since` it is agentic's question and gets its answer: "
          "`{events, total_count, last_event_id}`, the newest first. Without any of these and "
          "without `since`, `type` and `object` the answer holds both." },
    { EVENT_STREAM | ROUTE_FOLLOW, .path = "/api/v1/events",
      .query = "since:int,type:string,object:string,limit:agentic," AGENTIC_WORDS,
      .summary = "Server-sent events, or over a WebSocket one JSON text message an event; "
                 "Last-Event-ID or `since` replays what was missed, 410 when that is no longer "
                 "kept. Events have names with `since`, `type` or `object`; otherwise they have "
                 "none, and the members that agentic's clients read besides." },
    { EVENT_STREAM, .path = "/events", .surface = SURFACE_HUB,
      .query = "since:int,type:string,object:string,project:string,agent:string,hub:string",
      .summary = "The live event stream under the hub's path: its events have their payload as "
                 "`data`, others the envelope. Those of a `project`, of an `agent`, or with "
                 "`hub=true` those of the hub." },
    { .name = "event.post",
      .method = "POST",
      .path = "/api/v1/events",
      .on = ON_WRITER,
      .roles = ROLE_STEER,
      .fn = event_words_post,
      .takes = event_post_fields,
      .body_max = EVENT_BODY_MAX,
      .surface = SURFACE_HUB,
      .summary = "Something that happened elsewhere, as agentic's bridges say it; kept as "
                 "external.TYPE." },
    { .name = "note.create",
      .method = "POST",
      .path = "/api/v1/notes",
      .on = ON_WRITER,
      .roles = ROLE_USE,
      .fn = note_post,
      .takes = note_wish_fields,
      .gives = note_fields,
      .flags = ROUTE_CREATES,
      .summary = "Write a note into the event log, where everyone who listens sees it." },
    { 0 },
};
