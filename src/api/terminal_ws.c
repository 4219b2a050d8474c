/*
 * A terminal over a WebSocket, in our own words; docs/terminals.md is the protocol.
 *
 * Output is binary messages and nothing else is: the position of each byte follows from `hello` and
 * `gap` by counting. All else is JSON in text messages. Input is binary; a text message is a wish,
 * so that a key that happens to look like JSON can never be one. What roles, leases, places and
 * gaps mean is box/attach.c's; this file only says it.
 */
#include "api/terminal.h"

#include "base/hash.h"

struct viewer {
    struct socket socket;
    struct attach attach;
    bool paused; /* its peer is not read from: what it typed has not been taken yet */
};

static struct viewer *viewer_of(struct attach *attach)
{
    return container_of(attach, struct viewer, attach);
}

/* ---- to the peer ---- */

static struct json_out open_message(struct buf *text, const char *type)
{
    struct json_out json = json_to(text);

    json_open(&json, '{');
    json_kv_text(&json, "type", type);
    return json;
}

static bool send_message(struct viewer *viewer, struct json_out *json)
{
    json_close(json, '}');
    return socket_text(&viewer->socket, json->buf);
}

static void say_error(struct viewer *viewer, const struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, "error");

    json_kv_text(&json, "code", err_info(err->code)->name);
    json_kv_text(&json, "message", err->msg);
    (void)send_message(viewer, &json);
}

static bool say_frame(struct attach *attach, const struct term_frame *frame, struct str data)
{
    struct viewer *viewer = viewer_of(attach);
    autobuf struct buf text = { 0 };

    if (frame->kind == TERM_OUTPUT)
        return socket_bytes(&viewer->socket, data);
    if (frame->kind != TERM_RESIZE)
        return true;
    struct json_out json = open_message(&text, "resize");
    json_kv_int(&json, "rows", frame->rows);
    json_kv_int(&json, "cols", frame->cols);
    json_kv_int(&json, "position", (int64_t)frame->to);
    return send_message(viewer, &json);
}

static void say_gap(struct attach *attach, uint64_t to)
{
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, "gap");

    json_kv_int(&json, "from", (int64_t)attach->at);
    json_kv_int(&json, "to", (int64_t)to);
    (void)send_message(viewer_of(attach), &json);
}

static bool say_keyframe(struct attach *attach, struct str data)
{
    autobuf struct buf text = { 0 }, base64 = { 0 };
    struct json_out json = open_message(&text, "keyframe");
    unsigned rows, cols;

    term_size(attach->term, &rows, &cols);
    base64_put(&base64, data.p, data.n);
    json_kv_int(&json, "position", (int64_t)attach->at);
    json_kv_int(&json, "rows", rows);
    json_kv_int(&json, "cols", cols);
    json_kv_str(&json, "data", buf_view(&base64));
    return send_message(viewer_of(attach), &json);
}

static void say_role(struct attach *attach, enum attach_why why)
{
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, "role");

    json_kv_text(&json, "role", attach_role_name(attach->role));
    json_kv_text(&json, "reason", attach_why_name(why));
    (void)send_message(viewer_of(attach), &json);
}

static void say_members(struct attach *attach, uint64_t number)
{
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, "members");

    (void)number;
    json_kv_int(&json, "viewers", term_viewers(attach->term));
    json_kv_int(&json, "controllers", term_controllers(attach->term));
    (void)send_message(viewer_of(attach), &json);
}

static void say_room(struct attach *attach)
{
    struct viewer *viewer = viewer_of(attach);

    if (viewer->paused && viewer->socket.ws)
        ws_resume(viewer->socket.ws);
    viewer->paused = false;
}

static void say_end(struct attach *attach)
{
    struct viewer *viewer = viewer_of(attach);
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, "exit");
    struct exec_view view;

    box_exec_view(term_exec(attach->term), &view);
    json_kv_text(&json, "state", view.state);
    json_kv_int(&json, "exit_code", view.exit_code);
    json_kv_int(&json, "signal", view.signal);
    json_kv_bool(&json, "timed_out", view.timed_out);
    json_kv_bool(&json, "oom", view.oom);
    json_kv_int(&json, "position", view.stdout_bytes);
    (void)send_message(viewer, &json);
    socket_close(&viewer->socket, SOCKET_NORMAL, "the command has ended");
}

static void say_lost(struct attach *attach, const char *why)
{
    struct viewer *viewer = viewer_of(attach);
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, "detached");

    json_kv_text(&json, "reason", why);
    json_kv_int(&json, "position", (int64_t)attach->at);
    (void)send_message(viewer, &json);
    socket_close(&viewer->socket, SOCKET_SLOW, why);
}

static const struct attach_ops viewer_ops = { .frame = say_frame,
                                              .gap = say_gap,
                                              .keyframe = say_keyframe,
                                              .role = say_role,
                                              .members = say_members,
                                              .room = say_room,
                                              .ended = say_end,
                                              .lost = say_lost };

static void say_hello(struct viewer *viewer, enum attach_why why)
{
    struct attach *attach = &viewer->attach;
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, "hello");
    struct exec_view view;
    uint64_t begin, end;
    unsigned rows, cols;

    box_exec_view(term_exec(attach->term), &view);
    box_exec_range(term_exec(attach->term), INIT_OUT, &begin, &end);
    term_size(attach->term, &rows, &cols);
    json_kv_text(&json, "terminal", view.id);
    json_kv_text(&json, "sandbox", view.sandbox);
    json_kv_text(&json, "state", view.state);
    json_kv_text(&json, "client", attach->id);
    json_kv_text(&json, "role", attach_role_name(attach->role));
    json_kv_text(&json, "reason", attach_why_name(why));
    json_kv_int(&json, "rows", rows);
    json_kv_int(&json, "cols", cols);
    json_kv_int(&json, "begin", (int64_t)begin);
    json_kv_int(&json, "end", (int64_t)end);
    json_kv_int(&json, "position", (int64_t)attach->at);
    (void)send_message(viewer, &json);
}

/* ---- from the peer ---- */

struct wish {
    const char *type, *signal;
    bool take, tree;
    int64_t rows, cols;
};

static const struct field wish_fields[] = {
    FIELD(wish, type, F_ENUM, F_REQUIRED, .choices = "resize|control|release|signal|keyframe|ping"),
    FIELD(wish, rows, F_INT, 0),
    FIELD(wish, cols, F_INT, 0),
    FIELD(wish, take, F_BOOL, 0),
    FIELD(wish, signal, F_STRING, 0, .max = 16),
    FIELD(wish, tree, F_BOOL, 0),
    { 0 },
};

static int do_resize(struct viewer *viewer, const struct wish *wish, struct err *err)
{
    return attach_resize(&viewer->attach, wish->rows, wish->cols, err);
}

static int do_control(struct viewer *viewer, const struct wish *wish, struct err *err)
{
    return attach_control(&viewer->attach, wish->take, err);
}

static int do_release(struct viewer *viewer, const struct wish *wish, struct err *err)
{
    (void)wish, (void)err;
    attach_release(&viewer->attach);
    return 0;
}

static int do_signal(struct viewer *viewer, const struct wish *wish, struct err *err)
{
    int number = wish->signal ? signal_parse(wish->signal) : 0;

    if (!number)
        return err_field(err, "signal", "\"%.16s\" is no signal", wish->signal ? wish->signal : "");
    return attach_signal(&viewer->attach, number, wish->tree, err);
}

static int do_keyframe(struct viewer *viewer, const struct wish *wish, struct err *err)
{
    (void)wish, (void)err;
    attach_repaint(&viewer->attach);
    return 0;
}

static int do_ping(struct viewer *viewer, const struct wish *wish, struct err *err)
{
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, "pong");

    (void)wish, (void)err;
    json_kv_int(&json, "position", (int64_t)viewer->attach.at);
    (void)send_message(viewer, &json);
    return 0;
}

static const struct {
    const char *type;
    int (*fn)(struct viewer *viewer, const struct wish *wish, struct err *err);
} wishes[] = { { "resize", do_resize }, { "control", do_control },   { "release", do_release },
               { "signal", do_signal }, { "keyframe", do_keyframe }, { "ping", do_ping } };

static int take_wish(struct viewer *viewer, struct str data, struct err *err)
{
    auto_with(arena_free) struct arena arena = { 0 };
    struct wish wish = { 0 };
    struct json *json;

    if (json_parse(&arena, data, &json, err) < 0 || json->type != JSON_OBJECT) {
        err_set(err, ERR_INVALID,
                "a text message is a JSON object; what is typed goes in binary ones");
        say_error(viewer, err);
        socket_close(&viewer->socket, SOCKET_INVALID, "not a JSON object");
        return 0;
    }
    if (field_decode(wish_fields, json, &wish, &arena, NULL, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(wishes); i++)
        if (strcmp(wishes[i].type, wish.type) == 0)
            return wishes[i].fn(viewer, &wish, err);
    return 0;
}

static int take_input(struct viewer *viewer, struct str data, struct err *err)
{
    int rc = attach_input(&viewer->attach, data, err);

    if (rc > 0) {
        viewer->paused = true;
        ws_pause(viewer->socket.ws);
    }
    return rc;
}

static void on_message(struct socket *socket, bool text, struct str data)
{
    struct viewer *viewer = container_of(socket, struct viewer, socket);
    struct err err = { 0 };

    if (!viewer->attach.term)
        return; /* it is being closed */
    if ((text ? take_wish : take_input)(viewer, data, &err) < 0)
        say_error(viewer, &err);
}

static void on_drained(struct socket *socket)
{
    attach_drained(&container_of(socket, struct viewer, socket)->attach);
}

static void on_closed(struct socket *socket)
{
    struct viewer *viewer = container_of(socket, struct viewer, socket);

    attach_close(&viewer->attach);
    free(viewer);
}

static const struct socket_ops socket_ops = { .message = on_message,
                                              .drained = on_drained,
                                              .closed = on_closed };

/* ---- opening ---- */

bool may_type(const struct principal *who)
{
    return (who->role & ROLE_USE) && principal_scope(who, "terminal.control");
}

int role_of(const char *text, enum attach_role *out, struct err *err)
{
    *out = text && strcmp(text, "controller") == 0 ? ATTACH_CONTROLLER : ATTACH_OBSERVER;
    if (text && *out == ATTACH_OBSERVER && strcmp(text, "observer") != 0)
        return err_field(err, "role", "invalid role \"%.32s\": observer or controller", text);
    return 0;
}

void attach_prepare(struct attach *attach, const struct attach_ops *ops,
                    const struct principal *who)
{
    attach->ops = ops;
    attach->may_control = may_type(who);
    snprintf(attach->who, sizeof(attach->who), "%s", who->id);
}

int terminal_ws(struct call *call, struct err *err)
{
    struct attach_wish wish = { .from = ATTACH_SCREEN };
    struct box_exec *exec;
    enum attach_why why;
    int64_t from, take;

    if (call_terminal(call, &exec, err) < 0 ||
        role_of(call_query(call, "role"), &wish.role, err) < 0 ||
        call_query_int(call, "from", 0, INT64_MAX, -1, &from, err) < 0 ||
        call_query_int(call, "take", 0, 1, 0, &take, err) < 0)
        return -1;
    wish.take = take;
    if (from >= 0) {
        wish.from = ATTACH_POSITION;
        wish.place = (uint64_t)from;
    }
    struct viewer *viewer = xnew(struct viewer);
    attach_prepare(&viewer->attach, &viewer_ops, &call->who);
    if (attach_open(&viewer->attach, exec, &wish, &why, err) < 0) {
        free(viewer);
        return -1;
    }
    const char *protocol = ws_offers(call->req, TERMINAL_PROTOCOL) ? TERMINAL_PROTOCOL : NULL;
    if (!socket_open(&viewer->socket, call, protocol, &socket_ops)) {
        attach_close(&viewer->attach);
        free(viewer);
        return 0;
    }
    say_hello(viewer, why);
    attach_go(&viewer->attach);
    return 0;
}
