/*
 * The hub's messages. Reading a mailbox marks what is shown as delivered, which is a change: the
 * page is read first, and only where something is new there is a second job that writes.
 */
#include "api/hub_call.h"

#include "base/clock.h"

/* ---- sending ---- */

static void put_sent(struct call *call, const struct hub_message *sent, int64_t recipients)
{
    struct json_out json = call_json(call);
    char when[CLOCK_NAIVE_SIZE];

    clock_naive(sent->timestamp, when);
    json_open(&json, '{');
    json_kv_text(&json, "id", sent->id);
    json_kv_text(&json, "from", sent->from);
    json_kv_text(&json, sent->channel ? "channel" : "to", sent->to);
    json_kv_text(&json, "timestamp", when);
    json_kv_text(&json, "thread", sent->thread[0] ? sent->thread : NULL);
    if (sent->channel)
        json_kv_int(&json, "recipients", recipients);
    json_close(&json, '}');
}

static int send_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_send wish = { 0 };
    struct hub_message sent;

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, wish.from, "to", wish.to, NULL);
    if (hub_message_send(&by, &wish, &sent, err) < 0)
        return -1;
    call->object = arena_printf(&call->arena, "message/%s", sent.id);
    put_sent(call, &sent, 1);
    return 0;
}

static int publish_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *channel = call_param(call, "channel");
    struct hub_send wish = { 0 };
    struct hub_message sent;
    int64_t recipients;

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, wish.from, "channel", channel, NULL);
    if (hub_publish(&by, channel, &wish, &sent, &recipients, err) < 0)
        return -1;
    put_sent(call, &sent, recipients);
    return 0;
}

/* ---- reading ---- */

static void put_page(struct call *call, const struct hub_page *page)
{
    struct hub_list list = hub_list(call);

    for (size_t i = 0; i < page->count; i++)
        hub_put_item(&list, &page->items[i]);
    (void)!hub_list_end(&list, 0);
}

struct reading {
    struct call *call;
    struct store_job job;
    struct hub_inbox wish;
    struct hub_page page;
};

static int inbox_run(struct store_job *job, struct db *db, struct err *err)
{
    struct reading *one = container_of(job, struct reading, job);
    struct hub_by by = hub_by_db(one->call, db);

    if (hub_inbox(&by, &one->wish, &one->page, err) < 0)
        return -1;
    put_page(one->call, &one->page);
    return 0;
}

static int mark_run(struct store_job *job, struct db *db, struct err *err)
{
    struct reading *one = container_of(job, struct reading, job);
    struct hub_by by = hub_by_db(one->call, db);

    return hub_inbox_mark(&by, one->wish.name, &one->page, err);
}

static void inbox_done(struct store_job *job)
{
    struct reading *one = container_of(job, struct reading, job);

    if (job->rc == 0 && job->run == inbox_run && one->page.mark) {
        one->job = (struct store_job){ .run = mark_run, .done = inbox_done };
        store_write(one->call->api->store, &one->job);
        return;
    }
    call_finish(one->call, job->rc < 0 ? &job->err : NULL);
}

static int inbox_get(struct call *call, struct err *err)
{
    struct reading *one = arena_new(&call->arena, struct reading);
    int64_t limit;
    bool peek;

    if (hub_limit(call, HUB_PAGE, HUB_PAGE, &limit, err) < 0 ||
        hub_yes(call, "peek", &peek, err) < 0)
        return -1;
    one->call = call;
    one->wish = (struct hub_inbox){ .name = call_param(call, "agent"),
                                    .after = call_query(call, "after"),
                                    .unread = hub_true(call, "unread"),
                                    .peek = peek,
                                    .limit = (unsigned)limit };
    one->job = (struct store_job){ .run = inbox_run, .done = inbox_done };
    store_read(call->api->store, &one->job);
    return 0;
}

static int ack_post(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    const char *id = call_param(call, "id");

    hub_note(call, by.agent, "id", id, NULL);
    call->object = arena_printf(&call->arena, "message/%.64s", id);
    if (hub_message_ack(&by, id, err) < 0)
        return -1;
    return hub_ok(call);
}

static int history_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_page page;
    int64_t limit;

    if (hub_limit(call, 50, PAGE_MAX, &limit, err) < 0 ||
        hub_history(&by, call_param(call, "a"), call_param(call, "b"), call_query(call, "before"),
                    (unsigned)limit, &page, err) < 0)
        return -1;
    put_page(call, &page);
    return 0;
}

static int thread_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_page page;
    int64_t limit;

    if (hub_limit(call, 50, PAGE_MAX, &limit, err) < 0 ||
        hub_thread(&by, call_param(call, "thread"), call_query(call, "after"), (unsigned)limit,
                   &page, err) < 0)
        return -1;
    put_page(call, &page);
    return 0;
}

static int graph_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct json_out json = call_json(call);

    return hub_graph(&by, &json, err);
}

/* ---- channels ---- */

static int member_post(struct call *call,
                       int (*change)(const struct hub_by *, const char *, const char *,
                                     struct err *),
                       struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_agent_named wish = { 0 };
    const char *channel = call_param(call, "channel");

    if (hub_take(call, &wish, NULL, err) < 0)
        return -1;
    hub_note(call, wish.agent, "channel", channel, NULL);
    if (change(&by, channel, wish.agent, err) < 0)
        return -1;
    return hub_ok(call);
}

static int join_post(struct call *call, struct err *err)
{
    return member_post(call, hub_channel_join, err);
}

static int leave_post(struct call *call, struct err *err)
{
    return member_post(call, hub_channel_leave, err);
}

static int channels_get(struct call *call, struct err *err)
{
    struct hub_by by = hub_by(call);
    struct hub_list list = hub_list(call);

    return hub_list_end(&list, hub_channels(&by, hub_put_item, &list, err));
}

#define MESSAGE(name_, method_, path_, on_, roles_, fn_, ...)                                      \
    {                                                                                              \
        .name = "hub." name_, .method = method_, .path = path_, .on = on_, .roles = roles_,        \
        .fn = fn_, .surface = SURFACE_HUB, __VA_ARGS__                                             \
    }

/* clang-format off */
const struct route hub_message_routes[] = {
    MESSAGE("send_message", "POST", "/messages/send", ON_WRITER, ROLE_USE, send_post,
        .takes = hub_send_fields, .flags = HUB_CHANGE,
        .summary = "Leave a message in a mailbox."),
    MESSAGE("read_graph", "GET", "/messages/graph", ON_READER, ROLE_LOOK, graph_get,
        .summary = "Who writes to whom, and how much."),
    MESSAGE("read_history", "GET", "/messages/history/{a}/{b}", ON_READER, ROLE_LOOK, history_get,
        .items = hub_message_fields, .query = "limit:int,before:string", .flags = ROUTE_BARE,
        .summary = "What two have written to each other, newest first; before the message `before`."),
    MESSAGE("read_thread", "GET", "/messages/threads/{thread}", ON_READER, ROLE_LOOK, thread_get,
        .items = hub_message_fields, .query = "limit:int,after:string", .flags = ROUTE_BARE,
        .summary = "A conversation, oldest first."),
    MESSAGE("read_inbox", "GET", "/messages/{agent}", ON_LATER, ROLE_LOOK, inbox_get,
        .items = hub_message_fields, .query = "unread:string,limit:int,after:string,peek:string",
        .flags = ROUTE_BARE,
        .summary = "A mailbox, oldest first, behind the message `after`; `unread=true`: what was "
                   "neither shown nor acknowledged. Without it, and without `peek=true`, what is "
                   "shown counts as delivered."),
    MESSAGE("ack_message", "POST", "/messages/{id}/ack", ON_WRITER, ROLE_USE, ack_post,
        .takes = hub_nothing, .flags = HUB_CHANGE, .summary = "A message was dealt with."),
    MESSAGE("list_channels", "GET", "/channels", ON_READER, ROLE_LOOK, channels_get,
        .items = hub_channel_fields, .flags = ROUTE_BARE, .summary = "Channels and their members."),
    MESSAGE("join_channel", "POST", "/channels/{channel}/join", ON_WRITER, ROLE_USE, join_post,
        .takes = hub_agent_named_fields, .flags = HUB_CHANGE,
        .summary = "From now on an agent gets what is sent to the channel."),
    MESSAGE("leave_channel", "POST", "/channels/{channel}/leave", ON_WRITER, ROLE_USE, leave_post,
        .takes = hub_agent_named_fields, .flags = HUB_CHANGE, .summary = "And no longer."),
    MESSAGE("send_channel", "POST", "/channels/{channel}/send", ON_WRITER, ROLE_USE, publish_post,
        .takes = hub_publish_fields, .flags = HUB_CHANGE,
        .summary = "A copy for every member but the sender; the channel `all` is everyone."),
    { 0 },
};
/* clang-format on */
