/*
 * The socket of agentic: many agents and sessions over one connection, as JSON text messages.
 *
 * Two protocols share it. The older one is about agents: subscribe, start, type; all output of an
 * agent that was subscribed to, or of commands begun here, comes as `output` with lossy text (a
 * tap, tap.c). The newer one joins single sessions by id and gets numbered frames (box/attach.c).
 * Nothing sent here is ever taken as a reason to close: what is not understood is answered with
 * `error`. What was started goes on when the connection ends.
 */
#include "api/session_ws.h"

#include "base/clock.h"
#include "base/hash.h"
#include "term/screen.h"

static const char *const features[] = { "replay_buffer", "session_frames", "keyframes",
                                        "pty_signals", NULL };

/* ---- messages out ---- */

struct json_out hub_open(struct buf *text, const char *type)
{
    struct json_out json = json_to(text);

    json_open(&json, '{');
    json_kv_text(&json, "type", type);
    return json;
}

bool hub_send(struct hub *hub, struct json_out *json)
{
    json_close(json, '}');
    hub->full = !socket_text(&hub->socket, json->buf);
    return !hub->full;
}

void hub_error(struct hub *hub, const char *message)
{
    autobuf struct buf text = { 0 };
    struct json_out json = hub_open(&text, "error");

    json_kv_text(&json, "message", message);
    (void)hub_send(hub, &json);
}

static void put_texts(struct json_out *json, const char *key, const char *const *texts)
{
    json_key(json, key);
    json_open(json, '[');
    for (; *texts; texts++)
        json_put_str(json, str_of(*texts));
    json_close(json, ']');
}

/* ---- joined sessions ---- */

struct join {
    struct attach attach;
    struct list node;
    struct hub *hub;
    char session[ID_SIZE];
    /* What is told when the frames before it are: 0, or its number and one. */
    uint64_t role_due, members_due;
    enum attach_why why; /* of the role */
};

static struct join *join_of(struct attach *attach)
{
    return container_of(attach, struct join, attach);
}

static void join_free(struct join *join)
{
    attach_close(&join->attach);
    list_remove(&join->node);
    free(join);
}

static bool send_text(struct join *join, struct buf *text)
{
    return socket_text(&join->hub->socket, text);
}

static bool send_role(struct join *join)
{
    autobuf struct buf text = { 0 };
    struct json_out json = session_frame_open(&text, "session_frame", join->session,
                                              join->role_due - 1, clock_wall_ms(), "role_assigned");

    json_kv_text(&json, "role", attach_role_name(join->attach.role));
    json_kv_text(&json, "reason", attach_why_name(join->why));
    json_close(&json, '}');
    join->role_due = 0;
    return send_text(join, &text);
}

static bool send_members(struct join *join);

/* All that is due before frame `next`: numbers only grow, also for who has much to read first. */
static bool send_due(struct join *join, uint64_t next)
{
    bool more = true;

    if (join->role_due && join->role_due <= next)
        more = send_role(join);
    if (join->members_due && join->members_due <= next)
        more = send_members(join);
    return more;
}

static void tell_role(struct attach *attach, enum attach_why why)
{
    struct join *join = join_of(attach);

    join->role_due = term_note(attach->term) + 1;
    join->why = why;
    (void)send_due(join, attach->frame + 1);
}

static bool tell_frame(struct attach *attach, const struct term_frame *frame, struct str data)
{
    struct join *join = join_of(attach);
    autobuf struct buf text = { 0 };

    if (!session_frame_put(&text, "session_frame", join->session, frame, data))
        return send_due(join, frame->number + 1);
    return send_text(join, &text);
}

static void tell_gap(struct attach *attach, uint64_t to)
{
    (void)attach, (void)to; /* this protocol leaves numbers out, and a keyframe follows */
}

static bool tell_keyframe(struct attach *attach, struct str data)
{
    struct join *join = join_of(attach);
    autobuf struct buf text = { 0 };

    session_keyframe_put(&text, "session_frame", join->session,
                         attach->frame ? attach->frame - 1 : 0, data);
    bool more = send_text(join, &text);
    return send_due(join, attach->frame) && more;
}

static int by_id(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_clients(struct json_out *json, const char *key, struct box_term *term,
                        enum attach_role role)
{
    const char *ids[TERM_VIEWERS_MAX] = { 0 };
    size_t count = 0;

    for (struct attach *at = NULL; (at = term_attached(term, at));)
        if (at->role == role && count < TERM_VIEWERS_MAX)
            ids[count++] = at->id;
    qsort(ids, count, sizeof(ids[0]), by_id);
    json_key(json, key);
    json_open(json, '[');
    for (size_t i = 0; i < count; i++)
        json_put_str(json, str_of(ids[i]));
    json_close(json, ']');
}

static bool send_members(struct join *join)
{
    autobuf struct buf text = { 0 };
    struct json_out json =
        session_frame_open(&text, "session_frame", join->session, join->members_due - 1,
                           clock_wall_ms(), "membership_changed");

    put_clients(&json, "controllers", join->attach.term, ATTACH_CONTROLLER);
    put_clients(&json, "observers", join->attach.term, ATTACH_OBSERVER);
    json_close(&json, '}');
    join->members_due = 0;
    return send_text(join, &text);
}

static void tell_members(struct attach *attach, uint64_t number)
{
    struct join *join = join_of(attach);

    join->members_due = number + 1;
    (void)send_due(join, attach->frame + 1);
}

static void tell_ended(struct attach *attach)
{
    struct join *join = join_of(attach);
    autobuf struct buf text = { 0 };

    session_closed_put(&text, "session_frame", term_exec(attach->term));
    (void)send_text(join, &text);
    join_free(join);
}

static void tell_lost(struct attach *attach, const char *why)
{
    struct join *join = join_of(attach);
    autobuf struct buf text = { 0 };
    struct json_out json = session_frame_open(&text, "session_frame", join->session, attach->frame,
                                              clock_wall_ms(), "error");

    json_kv_text(&json, "message", why);
    json_close(&json, '}');
    (void)send_text(join, &text);
    join_free(join);
}

static const struct attach_ops join_ops = { .frame = tell_frame,
                                            .gap = tell_gap,
                                            .keyframe = tell_keyframe,
                                            .role = tell_role,
                                            .members = tell_members,
                                            .ended = tell_ended,
                                            .lost = tell_lost };

static struct join *joined(struct hub *hub, const char *session)
{
    list_each (pos, &hub->joins) {
        struct join *join = list_entry(pos, struct join, node);

        if (strcmp(join->session, session) == 0)
            return join;
    }
    return NULL;
}

/* ---- messages in: sessions ---- */

static int do_join(struct hub *hub, const struct json *json, struct err *err)
{
    const char *id = hub_text(hub, json, "session_id"), *role = hub_text(hub, json, "role");
    const struct json *from = json_get(json, "replay_from");
    struct attach_wish wish = { .from = ATTACH_SCREEN, .take = json_true(json, "take") };
    struct exec_view view;
    struct box_exec *exec;
    enum attach_why why;

    if (terminal_by_id(hub->socket.api, principal_reach(&hub->socket.who), id, &exec, err) < 0)
        return -1;
    box_exec_view(exec, &view);
    id = view.id; /* all of it, as every frame will say it */
    struct join *join = joined(hub, id);
    if (join)
        join_free(join);
    if (from && from->type == JSON_INT && from->num >= 0) {
        wish.from = ATTACH_FRAME;
        wish.place = (uint64_t)from->num;
    }
    wish.role = strcmp(role, "controller") == 0 && may_type(&hub->socket.who) ? ATTACH_CONTROLLER
                                                                              : ATTACH_OBSERVER;
    join = xnew(struct join);
    join->hub = hub;
    snprintf(join->session, sizeof(join->session), "%s", id);
    attach_prepare(&join->attach, &join_ops, &hub->socket.who);
    if (attach_open(&join->attach, exec, &wish, &why, err) < 0) {
        free(join);
        return -1;
    }
    list_append(&hub->joins, &join->node);
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "session_joined");
    uint64_t begin, end;
    term_range(join->attach.term, &begin, &end);
    json_kv_text(&reply, "session_id", id);
    json_kv_text(&reply, "role", attach_role_name(join->attach.role));
    json_kv_int(&reply, "current_seq", (int64_t)end);
    (void)hub_send(hub, &reply);
    attach_go(&join->attach);
    join = joined(hub, id); /* one that has ended is gone again */
    if (join)
        tell_role(&join->attach, why);
    return 0;
}

static int find_join(struct hub *hub, const struct json *json, struct join **out, struct err *err)
{
    const char *id = hub_text(hub, json, "session_id");

    *out = joined(hub, id);
    return *out ? 0 : err_set(err, ERR_NOT_FOUND, "Not attached to session '%.64s'", id);
}

static int do_leave(struct hub *hub, const struct json *json, struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json_out reply = hub_open(&text, "session_left");
    struct join *join;

    if (find_join(hub, json, &join, err) < 0)
        return -1;
    json_kv_text(&reply, "session_id", join->session);
    join_free(join);
    (void)hub_send(hub, &reply);
    return 0;
}

static int check_controls(const struct join *join, struct err *err)
{
    if (join->attach.role == ATTACH_CONTROLLER)
        return 0;
    return err_set(
        err, ERR_FORBIDDEN,
        "Attached as observer (read-only); re-attach with role=controller to send input");
}

static int do_session_input(struct hub *hub, const struct json *json, struct err *err)
{
    struct join *join;

    if (find_join(hub, json, &join, err) < 0 || check_controls(join, err) < 0)
        return -1;
    return attach_input(&join->attach, json_text(json, "data"), err);
}

int size_of(const struct json *json, int64_t *rows, int64_t *cols, struct err *err)
{
    *cols = json_num(json, "cols", TERM_COLS);
    *rows = json_num(json, "rows", TERM_ROWS);
    if (*cols < TERM_COLS_MIN || *rows < TERM_ROWS_MIN)
        return err_set(err, ERR_INVALID, "terminal size %lldx%lld is below the minimum of %dx%d",
                       (long long)*cols, (long long)*rows, TERM_COLS_MIN, TERM_ROWS_MIN);
    return 0;
}

static int do_session_resize(struct hub *hub, const struct json *json, struct err *err)
{
    struct join *join;
    int64_t rows, cols;

    if (find_join(hub, json, &join, err) < 0 || check_controls(join, err) < 0 ||
        size_of(json, &rows, &cols, err) < 0)
        return -1;
    return attach_resize(&join->attach, rows, cols, err);
}

/* Beyond the original: to take the lease, and to give it back. */
static int do_take(struct hub *hub, const struct json *json, struct err *err)
{
    struct join *join;

    if (find_join(hub, json, &join, err) < 0)
        return -1;
    return attach_control(&join->attach, true, err);
}

static int do_release(struct hub *hub, const struct json *json, struct err *err)
{
    struct join *join;

    if (find_join(hub, json, &join, err) < 0)
        return -1;
    attach_release(&join->attach);
    return 0;
}

bool hub_controls(struct hub *hub, const char *session)
{
    struct join *join = joined(hub, session);

    return join && join->attach.role == ATTACH_CONTROLLER;
}

/* ---- dispatch ---- */

/* What messages are made of. Fields of others are theirs, and null is none. */
static const struct message_field {
    const char *name;
    enum json_type type;
} fields[] = {
    { "agent_id", JSON_STRING },     { "session_id", JSON_STRING },  { "command_id", JSON_STRING },
    { "session_name", JSON_STRING }, { "command", JSON_STRING },     { "data", JSON_STRING },
    { "session_type", JSON_STRING }, { "working_dir", JSON_STRING }, { "role", JSON_STRING },
    { "args", JSON_ARRAY },          { "cols", JSON_INT },           { "rows", JSON_INT },
    { "replay_from", JSON_INT },     { "timestamp", JSON_INT },      { "take", JSON_BOOL },
};

static const struct kind {
    const char *type;
    int (*fn)(struct hub *hub, const struct json *json, struct err *err);
    const char *needs[4];
} kinds[] = {
    { "subscribe", hub_subscribe, { "agent_id" } },
    { "unsubscribe", hub_unsubscribe, { "agent_id" } },
    { "start_shell", hub_start_shell, { "agent_id" } },
    { "send_input", hub_send_input, { "agent_id", "command_id", "data" } },
    { "pty_resize", hub_pty_resize, { "agent_id", "command_id", "cols", "rows" } },
    { "list_sessions", hub_list_sessions, { "agent_id" } },
    { "kill_session", hub_kill_session, { "agent_id", "session_name" } },
    { "attach_session", hub_attach_session, { "agent_id", "session_name" } },
    { "join_session", do_join, { "session_id" } },
    { "leave_session", do_leave, { "session_id" } },
    { "session_input", do_session_input, { "session_id", "data" } },
    { "session_resize", do_session_resize, { "session_id" } },
    { "session_take", do_take, { "session_id" } },
    { "session_release", do_release, { "session_id" } },
    { "ping", hub_ping, { NULL } },
    { "list_agents", hub_list_agents, { NULL } },
    { "send_command", hub_send_command, { "agent_id", "command" } },
    { "create_session", hub_create_session, { "agent_id", "session_name" } },
    { "detach_session", hub_detach_session, { "agent_id", "session_name" } },
};

const char *hub_text(struct hub *hub, const struct json *json, const char *key)
{
    struct str text = json_text(json, key);

    return text.p ? arena_memdup0(&hub->arena, text.p, text.n) : "";
}

static int check_field(const struct json *json, const struct message_field *field, struct err *err)
{
    const struct json *value = json_get(json, field->name);

    if (!value || value->type == JSON_NULL)
        return 0;
    if (value->type != field->type)
        return err_set(err, ERR_INVALID, "%s must be of type %s", field->name,
                       json_type_name(field->type));
    json_each(item, value)
    {
        if (item->type != JSON_STRING)
            return err_set(err, ERR_INVALID, "%s must hold strings", field->name);
    }
    return 0;
}

static int check_message(const struct kind *kind, const struct json *json, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (check_field(json, &fields[i], err) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_LEN(kind->needs) && kind->needs[i]; i++) {
        const struct json *value = json_get(json, kind->needs[i]);

        if (!value || value->type == JSON_NULL)
            return err_set(err, ERR_INVALID, "%s is missing", kind->needs[i]);
    }
    return 0;
}

static int take_message(struct hub *hub, struct str data, struct err *err)
{
    struct json *json;

    if (json_parse(&hub->arena, data, &json, err) < 0)
        return err_wrap(err, "Invalid message");
    struct str type = json_text(json, "type");
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_is(type, kinds[i].type))
            return check_message(&kinds[i], json, err) < 0 ? err_wrap(err, "Invalid message")
                                                           : kinds[i].fn(hub, json, err);
    return err_set(err, ERR_INVALID, "Invalid message: unknown type \"%.*s\"", STR_FMT(type));
}

static void on_message(struct socket *socket, bool text, struct str data)
{
    struct hub *hub = container_of(socket, struct hub, socket);
    struct err err = { 0 };

    if (!text) {
        hub_error(hub, "Invalid message: binary messages are not understood here");
        return;
    }
    if (take_message(hub, data, &err) < 0)
        hub_error(hub, err.msg);
    arena_free(&hub->arena);
    hub->arena = (struct arena){ 0 };
}

static void on_drained(struct socket *socket)
{
    struct hub *hub = container_of(socket, struct hub, socket);

    list_each_safe (pos, &hub->joins)
        attach_drained(&list_entry(pos, struct join, node)->attach);
    taps_drained(hub);
}

static void on_closed(struct socket *socket)
{
    struct hub *hub = container_of(socket, struct hub, socket);

    while (!list_empty(&hub->joins))
        join_free(list_entry(hub->joins.next, struct join, node));
    taps_free(hub);
    arena_free(&hub->arena);
    free(hub);
}

static const struct socket_ops ops = { .message = on_message,
                                       .drained = on_drained,
                                       .closed = on_closed };

static int hub_ws(struct call *call, struct err *err)
{
    const char *names[ARRAY_LEN(kinds) + 1] = { 0 };
    struct hub *hub = xnew(struct hub);
    autobuf struct buf text = { 0 };

    (void)err;
    list_init(&hub->joins);
    if (!socket_open(&hub->socket, call, NULL, &ops)) {
        free(hub);
        return 0;
    }
    taps_init(hub);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        names[i] = kinds[i].type;
    struct json_out json = hub_open(&text, "server_hello");
    json_kv_text(&json, "server_version", hub->socket.api->options.version);
    put_texts(&json, "supported_client_messages", names);
    put_texts(&json, "features", features);
    (void)hub_send(hub, &json);
    return 0;
}

/* The original ignores the path; clients of it use the root. */
#define HUB                                                                                        \
    .name = "session.socket", .method = "GET", .on = ON_STREAM, .roles = ROLE_LOOK, .fn = hub_ws,  \
    .surface = SURFACE_HUB

const struct route session_ws_routes[] = {
    { HUB, .path = "/ws", .flags = ROUTE_WS,
      .summary =
          "Many agents and sessions over one WebSocket, in JSON messages (docs/terminals.md)." },
    { HUB, .path = "/", .flags = ROUTE_WS | ROUTE_HIDDEN,
      .summary = "The same under the path that existing clients use." },
    { 0 },
};
