/*
 * Events in the words of agentic: {event_type, vm_name, timestamp, details, agent_id?, trace_id?},
 * the newest first, by source, type and time. The log is the one that everybody reads. An event
 * that was posted has the type external.TYPE in every answer, so no client takes it for an event of
 * the server's own.
 *
 * A question without any parameter that tells which words it is in gets both views in one answer.
 */
#include "api/event_words.h"

#include "base/clock.h"

#define EXTERNAL "external."
#define BACK_WINDOW 500 /* events that are turned around at a time */

/* ---- what is asked for ---- */

static bool is_time(const char *since)
{
    return since && strchr(since, '-') != NULL;
}

static bool any_of(struct call *call, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (call_query(call, words[i]))
            return true;
    return false;
}

enum event_words event_words_asked(struct call *call)
{
    static const char *const theirs[] = { "follow", "source", "event_type", "include_archived" };
    static const char *const ours[] = { "since", "type", "object" };

    if (any_of(call, theirs, ARRAY_LEN(theirs)) || is_time(call_query(call, "since")))
        return EVENT_WORDS_AGENTIC;
    return any_of(call, ours, ARRAY_LEN(ours)) ? EVENT_WORDS_OWN : EVENT_WORDS_BOTH;
}

int event_words_since(struct call *call, int64_t *at_ms, struct err *err)
{
    const char *since = call_query(call, "since");

    *at_ms = -1;
    if (is_time(since) && !clock_parse(str_of(since), at_ms))
        return err_field(err, "since", "a time such as 2026-11-15T09:14:07Z, or an event number");
    return 0;
}

static bool type_ok(const char *type)
{
    return type[0] && strspn(type, "abcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(type);
}

int event_words_check(struct call *call, struct err *err)
{
    static const char *const truths[] = { "follow", "include_archived" };
    const char *type = call_query(call, "event_type"), *source = call_query(call, "source");

    for (size_t i = 0; i < ARRAY_LEN(truths); i++) {
        const char *said = call_query(call, truths[i]);

        if (said && strcmp(said, "true") != 0 && strcmp(said, "false") != 0)
            return err_field(err, truths[i], "true or false");
    }
    if (type && (!type_ok(type) || strlen(type) > EVENT_NAME_MAX))
        return err_field(err, "event_type", "\"%.64s\" is no type, such as vm.started", type);
    if (source && (!*source || strlen(source) > EVENT_NAME_MAX))
        return err_field(err, "source", "the id of an agent or the name of a machine");
    if (call_query(call, "type") || call_query(call, "object"))
        return err_field(err, "type", "event_type and source, or type and object");
    return 0;
}

/* ---- telling ---- */

struct told {
    const struct json *details; /* NULL: the body is it */
    struct str type, vm, object, agent, trace, when;
    bool external;
};

static void told_external(struct told *told, const struct json *body)
{
    told->external = true;
    told->vm = json_text(body, "vm_name");
    told->agent = json_text(body, "agent_id");
    told->trace = json_text(body, "trace_id");
    told->when = json_text(body, "timestamp");
    told->details = json_get(body, "details");
}

static void tell(const struct event *event, struct arena *arena, struct told *told)
{
    struct str object = str_of(event->object), kind = str_cut(&object, '/');
    struct json *body;

    *told = (struct told){ .type = str_of(event->type), .vm = object, .object = object };
    if (json_parse(arena, event->body, &body, &(struct err){ 0 }) < 0)
        return;
    if (str_starts(told->type, STR(EXTERNAL))) {
        told_external(told, body);
    } else if (str_is(kind, "agent")) {
        told->agent = object;
    } else if (str_is(kind, "sandbox") && json_text(body, "name").n) {
        told->vm = json_text(body, "name");
    } else if (str_is(kind, "exec") && json_text(body, "sandbox").n) {
        told->vm = json_text(body, "sandbox");
    }
}

bool event_words_about(const struct event *event, const char *source)
{
    autoarena struct arena arena = { 0 };
    struct told told;

    tell(event, &arena, &told);
    return str_is(told.vm, source) || str_is(told.agent, source) || str_is(told.object, source);
}

void event_words_members(struct json_out *json, const struct event *event)
{
    autoarena struct arena arena = { 0 };
    char when[CLOCK_TEXT_SIZE];
    struct told told;

    tell(event, &arena, &told);
    clock_text(event->at_ms, when);
    json_kv_str(json, "event_type", told.type);
    json_kv_str(json, "vm_name", told.vm.n ? told.vm : STR(""));
    json_kv_str(json, "timestamp", told.when.n ? told.when : str_of(when));
    json_key(json, "details");
    if (told.external && told.details)
        json_put(json, told.details);
    else
        json_put_raw(json, told.external ? STR("{}") : event->body);
    if (told.agent.n)
        json_kv_str(json, "agent_id", told.agent);
    if (told.trace.n)
        json_kv_str(json, "trace_id", told.trace);
    if (told.external)
        json_kv_bool(json, "external", true);
}

void event_words_put(struct json_out *json, const struct event *event)
{
    json_open(json, '{');
    event_words_members(json, event);
    json_close(json, '}');
}

/* ---- backwards through the log ---- */

struct look {
    struct call *call;
    struct event_filter filter;
    struct within within;
    const char *source;
    int64_t since_ms, limit, found;
    struct json_out *json;
    bool over; /* what follows is older than wanted */
};

/* Those with numbers from > `from` up to `to`, the newest first; owned by the caller. */
static int read_back(struct call *call, int64_t from, int64_t to, struct event **out,
                     struct err *err)
{
    struct event *newest = NULL;

    while (from < to) {
        struct event_page page = { 0 };

        if (event_page(call->db, call->who.tenant, from, (unsigned)(to - from), &page, err) < 0) {
            event_list_free(newest);
            return -1;
        }
        if (!page.first)
            break;
        for (struct event *event = page.first, *next; event; event = next) {
            next = event->next;
            from = event->seq;
            event->next = newest;
            newest = event;
        }
    }
    *out = newest;
    return 0;
}

static void look_at(struct look *look, const struct event *event)
{
    if (event->at_ms < look->since_ms)
        look->over = true;
    else if (event_matches(event, &look->filter) &&
             (!look->source || event_words_about(event, look->source)) &&
             within_event(&look->within, event)) {
        event_words_put(look->json, event);
        look->found++;
    }
}

static int look_back(struct look *look, int64_t floor, int64_t head, struct err *err)
{
    int64_t last = MAX(floor, head - EVENTS_BACK_MAX + 1);

    while (head >= last && look->found < look->limit && !look->over) {
        int64_t from = MAX(last - 1, head - BACK_WINDOW);
        struct event *newest;

        if (read_back(look->call, from, head, &newest, err) < 0)
            return -1;
        for (const struct event *event = newest; event && look->found < look->limit && !look->over;
             event = event->next)
            look_at(look, event);
        event_list_free(newest);
        head = from;
    }
    return 0;
}

int event_words_page(struct call *call, struct json_out *json, struct err *err)
{
    struct look look = { .call = call,
                         .filter = { call_query(call, "event_type"), NULL },
                         .within = { .reach = call_reach(call), .list = call->within },
                         .source = call_query(call, "source"),
                         .json = json };
    struct event_page page = { 0 };

    if (event_words_check(call, err) < 0 || event_words_since(call, &look.since_ms, err) < 0 ||
        call_query_int(call, "limit", 1, EVENTS_WORDS_MAX, PAGE_DEFAULT, &look.limit, err) < 0)
        return -1;
    if (event_page(call->db, call->who.tenant, INT64_MAX, 1, &page, err) < 0)
        return -1;
    json_key(json, "events");
    json_open(json, '[');
    if (look_back(&look, page.floor, page.head, err) < 0)
        return -1;
    json_close(json, ']');
    json_kv_int(json, "total_count", look.found);
    json_kv_int(json, "last_event_id", page.head);
    return 0;
}

/* ---- from outside ---- */

struct event_post {
    const char *event_type, *vm_name, *timestamp, *agent_id, *trace_id;
    const struct json *details;
};

const struct field event_post_fields[] = {
    FIELD(event_post, event_type, F_STRING, F_REQUIRED, .min = 1, .max = 128,
          .help = "Such as vm.started; kept as external.vm.started"),
    FIELD(event_post, vm_name, F_STRING, F_REQUIRED, .min = 1, .max = 200,
          .help = "What it is about"),
    FIELD(event_post, timestamp, F_STRING, F_REQUIRED, .max = 64,
          .help = "When it happened there, in RFC 3339"),
    FIELD(event_post, details, F_JSON, 0, .help = "An object with more about it"),
    FIELD(event_post, agent_id, F_STRING, 0, .max = 200, .help = "Of the agent it is about"),
    FIELD(event_post, trace_id, F_STRING, 0, .max = 128, .help = "Of the trace it belongs to"),
    { 0 },
};

static int check_post(const struct event_post *post, struct err *err)
{
    int64_t at_ms;

    if (!type_ok(post->event_type))
        return err_field(err, "event_type", "event_type looks like vm.started");
    if (!clock_parse(str_of(post->timestamp), &at_ms))
        return err_field(err, "timestamp", "timestamp is a time such as 2026-11-15T09:14:07Z");
    if (post->details && post->details->type != JSON_OBJECT)
        return err_field(err, "details", "details must be an object");
    return 0;
}

int event_words_post(struct call *call, struct err *err)
{
    struct event_post post = { 0 };
    autobuf struct buf body = { 0 };
    struct json_out json = json_to(&body);

    if (call_decode(call, &post, err) < 0 || check_post(&post, err) < 0)
        return -1;
    json_open(&json, '{');
    json_kv_text(&json, "vm_name", post.vm_name);
    json_kv_text(&json, "timestamp", post.timestamp);
    json_key(&json, "details");
    if (post.details)
        json_put(&json, post.details);
    else
        json_put_raw(&json, STR("{}"));
    json_kv_text(&json, "agent_id", post.agent_id);
    json_kv_text(&json, "trace_id", post.trace_id);
    json_kv_text(&json, "by", call->who.id);
    json_close(&json, '}');
    if (body.len > EVENT_BODY_MAX)
        return err_set(err, ERR_LIMIT, "an event has at most %d bytes", EVENT_BODY_MAX);
    call->object = arena_printf(&call->arena, "external/%s", post.vm_name);
    if (call_event(call, arena_printf(&call->arena, EXTERNAL "%s", post.event_type), call->object,
                   buf_view(&body), err) < 0)
        return -1;
    buf_puts(&call->reply, "{\"received\":true}\n");
    return 0;
}
