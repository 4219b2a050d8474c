/*
 * Agents on agentic's socket: the output of commands as text, and agents that somebody subscribed
 * to. A tap follows one command from a place on and needs no queue: it reads on when the peer has
 * read. What it gives is text; bytes that are none become U+FFFD, and a character that two pieces
 * share is kept whole. Commands are begun in tap_run.c (sandboxes) and tap_link.c (linked agents).
 *
 * A subscription is told of each command when it starts, and follows it from its first byte to its
 * end, however short it is. Of a command that ran before the subscription it tells what comes from
 * then on.
 */
#include <stdio.h>

#include "api/tap.h"
#include "api/target.h"
#include "base/clock.h"

#define BEAT_MS 200
#define PIECE 32768

struct tap {
    struct printed printed;
    struct list node;
    struct hub *hub;
    char agent[64], command[64];
    uint64_t at[INIT_STREAMS];
    bool own; /* begun or asked for here, so no subscription is needed */
};

struct subscription {
    struct list node;
    char agent[64], sandbox[ID_SIZE]; /* sandbox "": none, or all of them with agent "*" */
};

/* ---- taps ---- */

static void tap_free(struct tap *tap)
{
    printed_unfollow(&tap->printed);
    list_remove(&tap->node);
    free(tap);
}

/* Without the beginning of a character whose end has not come; all of it if nothing follows. */
static size_t whole_text(const char *data, size_t len, bool last)
{
    for (size_t back = 1; !last && back <= MIN(len, (size_t)3); back++) {
        unsigned char c = (unsigned char)data[len - back];

        if (c < 0x80 || c > 0xf4) /* the latter begins nothing */
            break;
        if (c >= 0xc0)
            return back < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) ? len - back : len;
    }
    return len;
}

static void say_output(struct tap *tap, unsigned stream, struct str data)
{
    autobuf struct buf text = { 0 };
    struct json_out json = hub_open(&text, "output");

    json_kv_text(&json, "agent_id", tap->agent);
    json_kv_text(&json, "command_id", tap->command);
    json_kv_text(&json, "stream", stream == INIT_ERR ? "stderr" : "stdout");
    json_kv_str(&json, "data", data);
    json_kv_int(&json, "ts", clock_wall_ms());
    (void)hub_send(tap->hub, &json);
}

/* How it ended, in one shape for both kinds. */
static struct command_view tap_end(const struct tap *tap)
{
    struct command_view end;
    struct exec_view view;

    if (tap->printed.linked) {
        command_view(tap->printed.linked, &end);
        return end;
    }
    box_exec_view(tap->printed.exec, &view);
    return (struct command_view){ .exit_code = view.exit_code,
                                  .duration_ms = view.ended_at - view.started_at,
                                  .error = strcmp(view.state, "lost") == 0
                                               ? "the sandbox ended before the command did"
                                           : view.oom ? "out of memory"
                                                      : NULL };
}

static void say_completed(struct tap *tap)
{
    autobuf struct buf text = { 0 };
    struct json_out json = hub_open(&text, "command_completed");
    struct command_view end = tap_end(tap);

    json_kv_text(&json, "agent_id", tap->agent);
    json_kv_text(&json, "command_id", tap->command);
    json_kv_int(&json, "exit_code", end.exit_code);
    json_kv_int(&json, "duration_ms", end.duration_ms);
    if (end.error)
        json_kv_text(&json, "error", end.error);
    (void)hub_send(tap->hub, &json);
}

/* False: the tap is gone. */
static bool tap_pump(struct tap *tap)
{
    static char data[PIECE]; /* the loop thread's */
    bool ended = printed_ended(&tap->printed);
    struct err err;

    for (unsigned s = 0; s < INIT_STREAMS; s++)
        while (!tap->hub->full) {
            ssize_t got = printed_read(&tap->printed, s, tap->at[s], data, sizeof(data), &err);

            if (got < 0) {
                hub_error(tap->hub, "too slow: output was left out");
                tap_free(tap);
                return false;
            }
            size_t len = got ? whole_text(data, (size_t)got, ended) : 0;
            if (len == 0)
                break;
            tap->at[s] += len;
            say_output(tap, s, (struct str){ data, len });
        }
    if (tap->hub->full || !ended)
        return true;
    say_completed(tap);
    tap_free(tap);
    return false;
}

static void tap_more(struct printed *printed)
{
    (void)tap_pump(container_of(printed, struct tap, printed));
}

/* It was told whole unless the peer was too slow for that. */
static void tap_gone(struct printed *printed)
{
    struct tap *tap = container_of(printed, struct tap, printed);
    struct hub *hub = tap->hub;

    tap_free(tap);
    if (hub->full)
        hub_error(hub, "too slow: output was left out");
}

/* NULL: it is told already. */
static struct tap *tap_new(struct hub *hub, const char *agent, const char *command, bool own)
{
    struct tap *tap;

    list_each (pos, &hub->taps) {
        tap = list_entry(pos, struct tap, node);
        if (strcmp(tap->command, command) != 0)
            continue;
        tap->own |= own;
        return NULL;
    }
    tap = xnew(struct tap);
    tap->own = own;
    tap->hub = hub;
    snprintf(tap->agent, sizeof(tap->agent), "%s", agent);
    snprintf(tap->command, sizeof(tap->command), "%s", command);
    list_append(&hub->taps, &tap->node);
    return tap;
}

enum { TAP_OWN = 1, TAP_FROM_NOW = 2 };

static void follow(struct hub *hub, const struct printed *of, const char *agent,
                   const char *command, unsigned how)
{
    struct tap *tap = tap_new(hub, agent, command, how & TAP_OWN);
    uint64_t begin, end;

    if (!tap)
        return;
    tap->printed = *of;
    tap->printed.more = tap_more;
    tap->printed.gone = tap_gone;
    for (unsigned s = 0; s < INIT_STREAMS; s++) {
        printed_range(&tap->printed, s, &begin, &end);
        tap->at[s] = how & TAP_FROM_NOW ? end : begin;
    }
    printed_follow(&tap->printed, tap->at);
    (void)tap_pump(tap);
}

static void follow_exec(struct hub *hub, struct box_exec *exec, const char *agent, unsigned how)
{
    struct exec_view view;

    box_exec_view(exec, &view);
    follow(hub, &(struct printed){ .exec = exec }, agent, view.id, how);
}

static void follow_command(struct hub *hub, struct link_command *command, unsigned how)
{
    struct command_view view;

    command_view(command, &view);
    follow(hub, &(struct printed){ .linked = command }, view.agent_id, view.command_id, how);
}

void tap_exec(struct hub *hub, struct box_exec *exec, const char *agent)
{
    follow_exec(hub, exec, agent, TAP_OWN);
}

void tap_command(struct hub *hub, struct link_command *command)
{
    follow_command(hub, command, TAP_OWN);
}

/* ---- subscriptions ---- */

/* What runs of a sandbox already. */
static void follow_box(struct hub *hub, struct box *box)
{
    struct sandbox_view agent;

    box_view(box, &agent);
    for (struct box_exec *exec = NULL; (exec = box_exec_next(box, exec));)
        if (!box_exec_ended(exec))
            follow_exec(hub, exec, agent_name(&agent), TAP_FROM_NOW);
}

static void follow_linked(struct hub *hub, struct linked *agent)
{
    for (struct link_command *command = NULL; (command = linked_next(agent, command));)
        if (!command_ended(command))
            follow_command(hub, command, TAP_FROM_NOW);
}

static void follow_running(struct hub *hub, const struct subscription *sub)
{
    struct links *links = hub->socket.api->links;
    struct boxes *boxes = hub->socket.api->boxes;
    struct reach reach = principal_reach(&hub->socket.who);
    bool all = strcmp(sub->agent, "*") == 0;
    struct linked *linked = NULL;
    struct box *box = NULL;
    struct err ignored;

    if (sub->sandbox[0] && boxes_find(boxes, reach, sub->sandbox, &box, &ignored) == 0)
        follow_box(hub, box);
    else if (!all && links_find(links, reach, sub->agent, &linked, &ignored) == 0)
        follow_linked(hub, linked);
    for (box = NULL; all && (box = boxes_next(boxes, reach, box));)
        follow_box(hub, box);
    for (linked = NULL; all && (linked = links_next(links, reach, linked));)
        follow_linked(hub, linked);
}

/* A command has begun: from its first byte, which may have come already. */
static void exec_began(struct boxes_watch *watch, struct box_exec *exec)
{
    struct hub *hub = container_of(watch, struct hub, execs);
    struct box *box = box_exec_box(exec);
    struct sandbox_view agent;

    if (list_empty(&hub->subscriptions) || !box_within(box, principal_reach(&hub->socket.who)))
        return;
    box_view(box, &agent);
    if (hub_subscribed(hub, agent_name(&agent), agent.id))
        follow_exec(hub, exec, agent_name(&agent), 0);
}

static void command_began(struct links_watch *watch, struct link_command *command)
{
    struct hub *hub = container_of(watch, struct hub, commands);
    struct command_view view;
    struct linked *linked;

    command_view(command, &view);
    if (links_find(hub->socket.api->links, principal_reach(&hub->socket.who), view.agent_id,
                   &linked, NULL) == 0 &&
        hub_subscribed(hub, view.agent_id, NULL))
        follow_command(hub, command, 0);
}

bool hub_subscribed(const struct hub *hub, const char *agent, const char *sandbox)
{
    list_each (pos, &hub->subscriptions) {
        const struct subscription *sub = list_entry(pos, struct subscription, node);

        if (strcmp(sub->agent, "*") == 0 || strcmp(sub->agent, agent) == 0 ||
            (sandbox && strcmp(sub->sandbox, sandbox) == 0))
            return true;
    }
    return false;
}

static void beat(struct timer *timer)
{
    struct hub *hub = container_of(timer, struct hub, beat);

    pulse_beat(hub);
    if (!list_empty(&hub->subscriptions))
        timer_set(hub->socket.api->loop, timer, BEAT_MS);
}

static void subscribe(struct hub *hub, const char *agent, const char *sandbox)
{
    list_each (pos, &hub->subscriptions)
        if (strcmp(list_entry(pos, struct subscription, node)->agent, agent) == 0)
            return;
    struct subscription *sub = xnew(struct subscription);
    snprintf(sub->agent, sizeof(sub->agent), "%s", agent);
    snprintf(sub->sandbox, sizeof(sub->sandbox), "%s", sandbox);
    list_append(&hub->subscriptions, &sub->node);
    follow_running(hub, sub);
    if (!timer_is_set(&hub->beat))
        timer_set(hub->socket.api->loop, &hub->beat, BEAT_MS);
}

static void answer_agent(struct hub *hub, const char *type, const char *agent)
{
    autobuf struct buf text = { 0 };
    struct json_out json = hub_open(&text, type);

    json_kv_text(&json, "agent_id", agent);
    (void)hub_send(hub, &json);
}

int hub_subscribe(struct hub *hub, const struct json *json, struct err *err)
{
    const char *agent = hub_text(hub, json, "agent_id");
    struct sandbox_view view = { .id = "" };
    struct box *box;

    if (!tap_linked(hub, json) && strcmp(agent, "*") != 0) {
        if (tap_box(hub, agent, &box, err) < 0)
            return -1;
        box_view(box, &view);
    }
    answer_agent(hub, "subscribed", agent);
    subscribe(hub, agent, view.id);
    return 0;
}

/* Is it of this agent, whichever of its two names was said? `sandbox` "": a linked one's. */
static bool tap_of(const struct tap *tap, const char *agent, const char *sandbox)
{
    struct exec_view view = { .sandbox = "" };

    if (tap->printed.exec)
        box_exec_view(tap->printed.exec, &view);
    return strcmp(tap->agent, agent) == 0 || (sandbox[0] && strcmp(view.sandbox, sandbox) == 0);
}

/* Another subscription may have it as well. */
static bool tap_subscribed(const struct tap *tap)
{
    struct exec_view view = { .sandbox = NULL };

    if (tap->printed.exec)
        box_exec_view(tap->printed.exec, &view);
    return hub_subscribed(tap->hub, tap->agent, view.sandbox);
}

int hub_unsubscribe(struct hub *hub, const struct json *json, struct err *err)
{
    const char *agent = hub_text(hub, json, "agent_id");
    struct reach reach = principal_reach(&hub->socket.who);
    bool all = strcmp(agent, "*") == 0;
    struct sandbox_view view = { .id = "" };
    struct box *box;

    if (!all && boxes_find(hub->socket.api->boxes, reach, agent, &box, err) == 0)
        box_view(box, &view);
    list_each_safe (pos, &hub->subscriptions) {
        struct subscription *sub = list_entry(pos, struct subscription, node);

        if (strcmp(sub->agent, agent) != 0 && (!view.id[0] || strcmp(sub->sandbox, view.id) != 0))
            continue;
        list_remove(&sub->node);
        free(sub);
    }
    list_each_safe (pos, &hub->taps) {
        struct tap *tap = list_entry(pos, struct tap, node);

        if ((all ? !tap->own : tap_of(tap, agent, view.id)) && !tap_subscribed(tap))
            tap_free(tap);
    }
    answer_agent(hub, "unsubscribed", agent);
    return 0;
}

/* ---- questions ---- */

int hub_ping(struct hub *hub, const struct json *json, struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "pong");

    (void)err;
    json_kv_int(&reply, "timestamp", json_num(json, "timestamp", 0));
    (void)hub_send(hub, &reply);
    return 0;
}

static void put_agent(struct json_out *json, const struct agent_view *view)
{
    json_open(json, '{');
    json_kv_text(json, "id", view->id);
    json_kv_text(json, "hostname", view->hostname);
    json_kv_text(json, "ip_address", view->ip_address);
    json_kv_text(json, "status", agent_status_name(view->status));
    json_kv_int(json, "connected_at", view->connected_at);
    json_kv_int(json, "last_heartbeat", view->last_heartbeat);
    json_close(json, '}');
}

int hub_list_agents(struct hub *hub, const struct json *json, struct err *err)
{
    struct reach reach = principal_reach(&hub->socket.who);
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "agent_list");
    struct target at = { 0 };

    (void)json, (void)err;
    json_key(&reply, "agents");
    json_open(&reply, '[');
    while (target_next(hub->socket.api, reach, &at)) {
        struct agent_view view;

        target_view(&at, &view);
        put_agent(&reply, &view);
    }
    json_close(&reply, ']');
    (void)hub_send(hub, &reply);
    return 0;
}

static void put_session(struct json_out *json, const struct exec_view *view)
{
    autobuf struct buf line = { .max = 4096 };

    for (const char **arg = view->argv; arg && *arg; arg++) {
        buf_puts(&line, arg == view->argv ? "" : " ");
        buf_puts(&line, *arg);
    }
    tap_put_session(json, view->id, session_name(view), session_type(view->tty, view->background),
                    buf_cstr(&line));
}

void tap_put_session(struct json_out *json, const char *id, const char *name, const char *type,
                     const char *command)
{
    json_open(json, '{');
    json_kv_text(json, "session_name", name);
    json_kv_text(json, "command_id", id);
    json_kv_text(json, "session_id", id);
    json_kv_text(json, "session_type", type);
    json_kv_text(json, "command", command);
    json_kv_bool(json, "running", true);
    json_close(json, '}');
}

int hub_list_sessions(struct hub *hub, const struct json *json, struct err *err)
{
    const char *agent = hub_text(hub, json, "agent_id");
    struct linked *linked = tap_linked(hub, json);
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "session_list");
    struct box *box;

    if (!linked && tap_box(hub, agent, &box, err) < 0)
        return -1;
    json_kv_text(&reply, "agent_id", agent);
    json_key(&reply, "sessions");
    json_open(&reply, '[');
    if (linked)
        link_put_sessions(&reply, linked);
    for (struct box_exec *exec = NULL; !linked && (exec = box_exec_next(box, exec));) {
        struct exec_view view;

        box_exec_view(exec, &view);
        if (strcmp(view.state, "running") == 0)
            put_session(&reply, &view);
    }
    json_close(&reply, ']');
    (void)hub_send(hub, &reply);
    return 0;
}

/* ---- with the connection ---- */

void taps_init(struct hub *hub)
{
    list_init(&hub->taps);
    list_init(&hub->subscriptions);
    list_init(&hub->starts);
    list_init(&hub->link_starts);
    hub->beat.fn = beat;
    hub->execs.began = exec_began;
    hub->commands.began = command_began;
    boxes_watch(hub->socket.api->boxes, &hub->execs);
    links_watch(hub->socket.api->links, &hub->commands);
    pulse_init(hub);
}

void taps_drained(struct hub *hub)
{
    hub->full = false;
    list_each_safe (pos, &hub->taps)
        (void)tap_pump(list_entry(pos, struct tap, node));
}

void taps_free(struct hub *hub)
{
    struct list *node;

    timer_cancel(hub->socket.api->loop, &hub->beat);
    boxes_unwatch(&hub->execs);
    links_unwatch(&hub->commands);
    pulse_free(hub);
    while (!list_empty(&hub->taps))
        tap_free(list_entry(hub->taps.next, struct tap, node));
    while ((node = list_pop(&hub->subscriptions)))
        free(list_entry(node, struct subscription, node));
    tap_starts_free(hub);
    link_starts_free(hub);
}
