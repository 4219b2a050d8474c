/*
 * pty-ws/v1: one session over a WebSocket, in envelopes {op, seq, ts, payload} (agentic). The
 * numbers are those of the log of frames. Membership and roles as everywhere: the first who joins
 * controls it, and who leaves stops nothing. What answers an envelope has its `id`. With
 * subprotocol pty-ws.v1.binary output and input are binary messages: "PW1O", eight bytes of number,
 * one of stream, bytes; and "PW1I", bytes.
 */
#include "api/session.h"

#include <assert.h>

#include "base/clock.h"
#include "base/hash.h"

#define PROTOCOL "pty-ws.v1"
#define PROTOCOL_BINARY "pty-ws.v1.binary"
#define BINDING_URI "https://agentic-sandbox.dev/bindings/pty-ws/v1"

struct peer {
    struct socket socket;
    struct attach attach;
    struct box_exec *exec; /* until it has joined; found anew then */
    char session[ID_SIZE], instance[ID_SIZE];
    int64_t from;         /* replay_from; -1: none */
    uint64_t members_due; /* 0, or the number of the frame after which they are told, and one */
    bool binary, in;
    struct str id; /* of the envelope that is being answered; no bytes: it had none */
};

static const char *const operations[] = { "pty.join_session",   "pty.session_input",
                                          "pty.session_resize", "pty.request_keyframe",
                                          "pty.request_role",   "pty.release_role",
                                          "pty.leave_session" };

static struct peer *peer_of(struct attach *attach)
{
    return container_of(attach, struct peer, attach);
}

/* ---- to the peer ---- */

/* {op, seq, ts, payload: {… */
static struct json_out envelope(struct buf *text, const char *op, uint64_t seq)
{
    struct json_out json = json_to(text);

    json_open(&json, '{');
    json_kv_text(&json, "op", op);
    json_kv_int(&json, "seq", (int64_t)seq);
    json_kv_int(&json, "ts", clock_wall_ms());
    json_key(&json, "payload");
    json_open(&json, '{');
    return json;
}

static bool send_envelope(struct peer *peer, struct json_out *json)
{
    json_close(json, '}');
    json_close(json, '}');
    return socket_text(&peer->socket, json->buf);
}

/* The same for what may answer one of the peer's. */
static bool send_answer(struct peer *peer, struct json_out *json)
{
    json_close(json, '}');
    if (peer->id.n)
        json_kv_str(json, "id", peer->id);
    json_close(json, '}');
    return socket_text(&peer->socket, json->buf);
}

static void say_error(struct peer *peer, const char *code, const char *message, int status)
{
    autobuf struct buf text = { 0 };
    struct json_out json = envelope(&text, "error", 0);

    json_kv_text(&json, "code", code);
    json_kv_text(&json, "message", message);
    json_kv_int(&json, "status", status);
    (void)send_answer(peer, &json);
}

/* Who is there, unless frames before it are still to be sent: numbers only grow. */
static bool send_members(struct peer *peer, uint64_t next)
{
    autobuf struct buf text = { 0 };

    if (!peer->members_due || peer->members_due > next)
        return true;
    struct json_out json = envelope(&text, "membership_changed", peer->members_due - 1);
    peer->members_due = 0;
    json_key(&json, "members");
    json_open(&json, '[');
    for (struct attach *at = NULL; (at = term_attached(peer->attach.term, at));) {
        json_open(&json, '{');
        json_kv_text(&json, "client_id", at->id);
        json_kv_text(&json, "role", attach_role_name(at->role));
        json_close(&json, '}');
    }
    json_close(&json, ']');
    return send_envelope(peer, &json);
}

static bool on_frame(struct attach *attach, const struct term_frame *frame, struct str data)
{
    struct peer *peer = peer_of(attach);
    autobuf struct buf text = { 0 }, base64 = { 0 };

    if (frame->kind == TERM_OUTPUT && peer->binary) {
        buf_puts(&text, "PW1O");
        for (int shift = 56; shift >= 0; shift -= 8)
            buf_putc(&text, (char)(frame->number >> shift));
        buf_putc(&text, 1);
        buf_str(&text, data);
        return socket_bytes(&peer->socket, buf_view(&text));
    }
    if (frame->kind == TERM_NOTE)
        return send_members(peer, frame->number + 1);
    bool output = frame->kind == TERM_OUTPUT;
    struct json_out json = envelope(&text, output ? "output" : "resize", frame->number);
    if (output) {
        base64_put(&base64, data.p, data.n);
        json_kv_str(&json, "data", buf_view(&base64));
    } else {
        json_kv_int(&json, "cols", frame->cols);
        json_kv_int(&json, "rows", frame->rows);
    }
    return send_envelope(peer, &json);
}

static void on_gap(struct attach *attach, uint64_t to)
{
    struct peer *peer = peer_of(attach);
    autobuf struct buf text = { 0 };
    struct json_out json = envelope(&text, "error", 0);
    uint64_t begin, end;

    (void)to;
    term_range(attach->term, &begin, &end);
    json_kv_text(&json, "code", "replay.out_of_range");
    json_kv_text(&json, "message", "what comes next is not kept here; a keyframe follows");
    json_kv_int(&json, "status", 410);
    json_kv_int(&json, "oldest", (int64_t)begin);
    (void)send_envelope(peer, &json);
}

static bool on_keyframe(struct attach *attach, struct str data)
{
    struct peer *peer = peer_of(attach);
    autobuf struct buf text = { 0 }, base64 = { 0 };
    uint64_t anchor = attach->frame ? attach->frame - 1 : 0;
    struct json_out json = envelope(&text, "keyframe", anchor);
    unsigned rows, cols;

    term_size(attach->term, &rows, &cols);
    base64_put(&base64, data.p, data.n);
    json_kv_int(&json, "anchor_sequence", (int64_t)anchor);
    json_kv_int(&json, "cols", cols);
    json_kv_int(&json, "rows", rows);
    json_kv_str(&json, "data", buf_view(&base64));
    bool more = send_answer(peer, &json);
    return send_members(peer, attach->frame) && more;
}

static void on_role(struct attach *attach, enum attach_why why)
{
    struct peer *peer = peer_of(attach);
    autobuf struct buf text = { 0 };
    struct json_out json = envelope(&text, "role_assigned", term_note(attach->term));

    json_kv_text(&json, "client_id", attach->id);
    json_kv_text(&json, "role", attach_role_name(attach->role));
    json_kv_text(&json, "reason", attach_why_name(why));
    (void)send_answer(peer, &json);
}

static void on_members(struct attach *attach, uint64_t number)
{
    struct peer *peer = peer_of(attach);

    peer->members_due = number + 1;
    (void)send_members(peer, attach->frame + 1);
}

static void on_ended(struct attach *attach)
{
    struct peer *peer = peer_of(attach);
    autobuf struct buf text = { 0 };
    struct exec_view view;
    uint64_t begin, end;

    box_exec_view(term_exec(attach->term), &view);
    term_range(attach->term, &begin, &end);
    struct json_out json = envelope(&text, "closed", end);
    if (view.exit_code >= 0) {
        json_kv_int(&json, "exit_code", view.exit_code);
    } else {
        json_key(&json, "exit_code");
        json_put_null(&json);
    }
    (void)send_envelope(peer, &json);
    socket_close(&peer->socket, SOCKET_NORMAL, "the session has ended");
}

static void on_lost(struct attach *attach, const char *why)
{
    struct peer *peer = peer_of(attach);

    say_error(peer, "broadcast.lagged", why, 429);
    socket_close(&peer->socket, 4429, why);
}

static const struct attach_ops peer_ops = { .frame = on_frame,
                                            .gap = on_gap,
                                            .keyframe = on_keyframe,
                                            .role = on_role,
                                            .members = on_members,
                                            .ended = on_ended,
                                            .lost = on_lost };

/* ---- from the peer ---- */

static void refuse(struct peer *peer, const struct err *err)
{
    if (err->code == ERR_FORBIDDEN)
        say_error(peer, "pty.permission_denied", err->msg, 403);
    else if (err->code == ERR_INVALID || err->code == ERR_LIMIT || err->code == ERR_RANGE)
        say_error(peer, "request.invalid_params", err->msg, 400);
    else
        say_error(peer, "internal.error", err->msg, err_info(err->code)->http);
}

static int check_role(struct str role, struct err *err)
{
    if (!role.p || str_is(role, "observer") || str_is(role, "controller"))
        return 0;
    return err_set(err, ERR_INVALID, "role is observer or controller");
}

/* Has the peer seen more than there is? hello told the number that comes next. */
static bool is_beyond(const struct peer *peer)
{
    uint64_t begin, end;

    term_range(box_exec_term(peer->exec), &begin, &end);
    return peer->from >= 0 && (uint64_t)peer->from > end;
}

static int do_join(struct peer *peer, const struct json *payload, struct err *err)
{
    const struct json *size = json_get(payload, "terminal_size");
    struct attach_wish wish = { .from = ATTACH_SCREEN };
    struct str role = json_text(payload, "role");
    enum attach_why why;

    if (peer->in)
        return err_set(err, ERR_INVALID, "joined already");
    if (check_role(role, err) < 0)
        return -1;
    if (terminal_by_id(peer->socket.api, principal_reach(&peer->socket.who), peer->session,
                       &peer->exec, err) < 0)
        return -1;
    if (may_type(&peer->socket.who) && !str_is(role, "observer"))
        wish.role = ATTACH_CONTROLLER; /* the first gets it; the others watch */
    bool beyond = is_beyond(peer);
    if (peer->from >= 0 && !beyond) {
        wish.from = ATTACH_FRAME;
        wish.place = (uint64_t)peer->from + 1;
    }
    attach_prepare(&peer->attach, &peer_ops, &peer->socket.who);
    if (attach_open(&peer->attach, peer->exec, &wish, &why, err) < 0)
        return -1;
    peer->in = true;
    on_role(&peer->attach, why);
    peer->id = STR_NONE; /* that was the answer */
    if (beyond)
        on_gap(&peer->attach, 0);
    attach_go(&peer->attach);
    size = size ? size : payload;
    int64_t rows = json_num(size, "rows", 0), cols = json_num(size, "cols", 0);
    if (peer->attach.role == ATTACH_CONTROLLER && rows && cols)
        return attach_resize(&peer->attach, rows, cols, err);
    return 0;
}

static int do_resize(struct peer *peer, const struct json *size, struct err *err)
{
    return attach_resize(&peer->attach, json_num(size, "rows", 0), json_num(size, "cols", 0), err);
}

static int do_input(struct peer *peer, const struct json *payload, struct err *err)
{
    const struct json *size = json_get(payload, "terminal_size");
    autobuf struct buf data = { 0 };
    struct str text = json_text(payload, "data");

    if (peer->attach.role != ATTACH_CONTROLLER)
        return err_set(err, ERR_FORBIDDEN, "only the controller may type");
    if (!text.p || !base64_get(&data, text))
        return err_set(err, ERR_INVALID, "data is not base64");
    if (size && do_resize(peer, size, err) < 0)
        return -1;
    return attach_input(&peer->attach, buf_view(&data), err);
}

static int do_keyframe(struct peer *peer, const struct json *payload, struct err *err)
{
    (void)payload, (void)err;
    attach_repaint(&peer->attach);
    return 0;
}

static int do_role(struct peer *peer, const struct json *payload, struct err *err)
{
    if (check_role(json_text(payload, "role"), err) < 0)
        return -1;
    if (str_is(json_text(payload, "role"), "observer")) {
        attach_release(&peer->attach);
        return 0;
    }
    return attach_control(&peer->attach, json_true(payload, "take"), err);
}

static int do_release(struct peer *peer, const struct json *payload, struct err *err)
{
    (void)payload, (void)err;
    attach_release(&peer->attach);
    return 0;
}

static int do_leave(struct peer *peer, const struct json *payload, struct err *err)
{
    (void)payload, (void)err;
    attach_close(&peer->attach);
    peer->in = false;
    return 0;
}

static int (*const doers[])(struct peer *peer, const struct json *payload,
                            struct err *err) = { do_join, do_input,   do_resize, do_keyframe,
                                                 do_role, do_release, do_leave };
static_assert(ARRAY_LEN(doers) == ARRAY_LEN(operations), "one for each operation");

static void take_envelope(struct peer *peer, struct str data)
{
    auto_with(arena_free) struct arena arena = { 0 };
    struct err err = { 0 };
    struct json *json;

    if (json_parse(&arena, data, &json, &err) < 0 || !json_text(json, "op").p) {
        say_error(peer, "request.invalid_params", "not an envelope with an op", 400);
        return;
    }
    size_t i = 0;
    while (i < ARRAY_LEN(operations) && !str_is(json_text(json, "op"), operations[i]))
        i++;
    peer->id = json_text(json, "id");
    if (i == ARRAY_LEN(operations))
        say_error(peer, "request.unsupported_operation", "no such op", 400);
    else if (i && !peer->in)
        say_error(peer, "request.invalid_params", "not joined", 400);
    else if (doers[i](peer, json_get(json, "payload"), &err) < 0)
        refuse(peer, &err);
    peer->id = STR_NONE;
}

static void on_message(struct socket *socket, bool text, struct str data)
{
    struct peer *peer = container_of(socket, struct peer, socket);
    struct err err = { 0 };

    if (peer->in && !peer->attach.term)
        return; /* it is being closed */
    if (text)
        take_envelope(peer, data);
    else if (!peer->binary || !str_starts(data, STR("PW1I")))
        say_error(peer, "request.invalid_params", "binary messages are PW1I and bytes", 400);
    else if (!peer->in)
        say_error(peer, "request.invalid_params", "not joined", 400);
    else if (attach_input(&peer->attach, str_from(data, 4), &err) < 0)
        refuse(peer, &err);
}

static void on_drained(struct socket *socket)
{
    attach_drained(&container_of(socket, struct peer, socket)->attach);
}

static void on_closed(struct socket *socket)
{
    struct peer *peer = container_of(socket, struct peer, socket);

    attach_close(&peer->attach);
    free(peer);
}

static const struct socket_ops ops = { .message = on_message,
                                       .drained = on_drained,
                                       .closed = on_closed };

static void say_hello(struct peer *peer, struct box_exec *exec)
{
    autobuf struct buf text = { 0 };
    struct json_out json = envelope(&text, "binding_hello", 0);
    uint64_t begin, end;

    term_range(box_exec_term(exec), &begin, &end);
    json_kv_text(&json, "binding_uri", BINDING_URI);
    json_kv_text(&json, "binding_version", "1.0.0");
    json_key(&json, "activated_extensions");
    json_put_raw(&json, STR("[]"));
    json_key(&json, "supported_operations");
    json_open(&json, '[');
    for (size_t i = 0; i < ARRAY_LEN(operations); i++)
        json_put_str(&json, str_of(operations[i]));
    json_close(&json, ']');
    json_key(&json, "session");
    json_open(&json, '{');
    json_kv_text(&json, "instance_id", peer->instance);
    json_kv_text(&json, "session_id", peer->session);
    json_kv_int(&json, "current_sequence", (int64_t)end);
    json_close(&json, '}');
    json_key(&json, "server_info");
    json_open(&json, '{');
    json_kv_text(&json, "name", "atoll");
    json_kv_text(&json, "version", peer->socket.api->options.version);
    json_close(&json, '}');
    (void)send_envelope(peer, &json);
}

/* Offered, and none of ours: refused in the shape that existing clients know. */
static bool refuse_protocol(struct call *call)
{
    struct http_header headers[] = { { STR("content-type"), STR("application/json") } };

    if (!ws_offers_any(call->req) || ws_offers(call->req, PROTOCOL) ||
        ws_offers(call->req, PROTOCOL_BINARY))
        return false;
    call->req->on_gone = NULL;
    http_reply(call->req, 400, headers, 1,
               STR("{\"error\":\"unsupported_subprotocol\",\"supported\":[\"" PROTOCOL "\"]}"));
    call->req = NULL;
    call_free(call);
    return true;
}

static int pty_ws(struct call *call, struct err *err)
{
    struct sandbox_view view;
    struct box_exec *exec;
    struct box *box;
    int64_t from;

    if (session_box(call, &box, err) < 0 ||
        terminal_find(box, call_param(call, "sid"), &exec, err) < 0 ||
        call_query_int(call, "replay_from", 0, INT64_MAX, -1, &from, err) < 0)
        return -1;
    if (refuse_protocol(call))
        return 0;
    struct peer *peer = xnew(struct peer);
    struct exec_view session;
    box_view(box, &view);
    box_exec_view(exec, &session);
    peer->from = from;
    peer->binary = ws_offers(call->req, PROTOCOL_BINARY);
    snprintf(peer->session, sizeof(peer->session), "%s", session.id);
    snprintf(peer->instance, sizeof(peer->instance), "%s", view.id);
    const char *protocol = peer->binary                     ? PROTOCOL_BINARY
                           : ws_offers(call->req, PROTOCOL) ? PROTOCOL
                                                            : NULL;
    if (!socket_open(&peer->socket, call, protocol, &ops)) {
        free(peer);
        return 0;
    }
    say_hello(peer, exec);
    return 0;
}

const struct route pty_ws_routes[] = {
    { .name = "session.attach",
      .method = "GET",
      .path = "/agents/{id}/sessions/{sid}/attach",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = pty_ws,
      .query = "replay_from:int",
      .flags = ROUTE_WS,
      .surface = SURFACE_HUB,
      .summary = "A session over a WebSocket with subprotocol pty-ws.v1 (or pty-ws.v1.binary)." },
    { 0 },
};
