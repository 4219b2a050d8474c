/*
 * The screen of a session over a WebSocket, for programs that read screens rather than bytes
 * (agentic): a new picture at most every UPDATE_MS while something changes, whether or not the
 * output ever pauses, and prompts that are shown.
 */
#include "api/session.h"

#include "base/clock.h"
#include "term/prompt.h"

#define UPDATE_MS 100

struct watcher {
    struct socket socket;
    struct attach attach;
    struct timer update;
    char session[ID_SIZE];
};

static struct watcher *watcher_of(struct attach *attach)
{
    return container_of(attach, struct watcher, attach);
}

/* ---- to the peer ---- */

static struct json_out open_message(struct buf *text, struct watcher *watcher, const char *type)
{
    struct json_out json = json_to(text);

    json_open(&json, '{');
    json_kv_text(&json, "type", type);
    if (watcher)
        json_kv_text(&json, "session_id", watcher->session);
    return json;
}

static void send_message(struct watcher *watcher, struct json_out *json)
{
    json_close(json, '}');
    (void)socket_text(&watcher->socket, json->buf);
}

static void say_error(struct watcher *watcher, const char *message)
{
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, NULL, "error");

    json_kv_text(&json, "message", message);
    send_message(watcher, &json);
}

static void say_prompt(struct watcher *watcher, const char *prompt, double score)
{
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, watcher, "prompt_detected");

    json_kv_text(&json, "prompt_text", prompt);
    json_kv_double(&json, "confidence", score);
    send_message(watcher, &json);
}

static void say_screen(struct watcher *watcher)
{
    autobuf struct buf text = { 0 }, prompt = { 0 };
    struct err err = { 0 };
    uint64_t position;
    struct screen *screen = term_screen(watcher->attach.term, &position, &err);

    if (!screen) {
        say_error(watcher, "the screen cannot be read now");
        return;
    }
    double score = screen_prompt(screen, &prompt);
    if (score >= PROMPT_ASKS)
        say_prompt(watcher, buf_cstr(&prompt), score);
    struct json_out json = open_message(&text, watcher, "screen_update");
    json_kv_int(&json, "timestamp", clock_wall_ms());
    json_key(&json, "screen");
    json_open(&json, '{');
    session_screen_put(&json, screen, false);
    json_close(&json, '}');
    json_kv_bool(&json, "prompt_detected", score > 0);
    if (score > 0)
        json_kv_text(&json, "prompt_text", buf_cstr(&prompt));
    send_message(watcher, &json);
}

static void update(struct timer *timer)
{
    struct watcher *watcher = container_of(timer, struct watcher, update);

    if (!watcher->attach.term)
        return;
    if (watcher->socket.ws && ws_unsent(watcher->socket.ws) > HTTP_OUT_HIGH)
        timer_set(watcher->socket.api->loop, timer, UPDATE_MS); /* it has not read the last ones */
    else
        say_screen(watcher);
}

static void changed(struct watcher *watcher)
{
    if (!timer_is_set(&watcher->update))
        timer_set(watcher->socket.api->loop, &watcher->update, UPDATE_MS);
}

static bool on_frame(struct attach *attach, const struct term_frame *frame, struct str data)
{
    (void)data;
    if (frame->kind != TERM_NOTE)
        changed(watcher_of(attach));
    return true;
}

static void on_gap(struct attach *attach, uint64_t to)
{
    (void)attach, (void)to; /* a screen has none */
}

static bool on_keyframe(struct attach *attach, struct str data)
{
    (void)data;
    changed(watcher_of(attach));
    return true;
}

static void on_role(struct attach *attach, enum attach_why why)
{
    struct watcher *watcher = watcher_of(attach);
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, watcher, "role_changed");

    json_kv_text(&json, "role", attach_role_name(attach->role));
    json_kv_bool(&json, "can_write", attach->role == ATTACH_CONTROLLER);
    json_kv_text(&json, "reason", attach_why_name(why));
    send_message(watcher, &json);
}

static void on_ended(struct attach *attach)
{
    struct watcher *watcher = watcher_of(attach);
    autobuf struct buf text = { 0 };
    struct exec_view view;

    say_screen(watcher);
    box_exec_view(term_exec(attach->term), &view);
    struct json_out json = open_message(&text, watcher, "session_end");
    if (view.exit_code >= 0)
        json_kv_int(&json, "exit_code", view.exit_code);
    send_message(watcher, &json);
    socket_close(&watcher->socket, SOCKET_NORMAL, "the session has ended");
}

static void on_lost(struct attach *attach, const char *why)
{
    struct watcher *watcher = watcher_of(attach);

    say_error(watcher, why);
    socket_close(&watcher->socket, SOCKET_GONE, why);
}

static const struct attach_ops watcher_ops = { .frame = on_frame,
                                               .gap = on_gap,
                                               .keyframe = on_keyframe,
                                               .role = on_role,
                                               .ended = on_ended,
                                               .lost = on_lost };

/* ---- from the peer ---- */

static int do_signal(struct watcher *watcher, struct str name, struct err *err)
{
    static const char *const known[] = { "SIGINT", "SIGTERM", "SIGKILL" };

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_is(name, known[i]))
            return attach_signal(&watcher->attach, signal_parse(known[i]), i == 2, err);
    return err_set(err, ERR_INVALID, "unsupported signal %.*s", (int)MIN(name.n, (size_t)32),
                   name.p);
}

/* What a well-formed message asks for, or NULL. */
static const char *kind_of(const struct json *json)
{
    struct str type = json_text(json, "type");

    if (str_is(type, "write") && json_text(json, "text").p)
        return "write";
    if (str_is(type, "resize") && json_num(json, "rows", -1) >= 0 &&
        json_num(json, "cols", -1) >= 0)
        return "resize";
    return str_is(type, "signal") && json_text(json, "signal").p ? "signal" : NULL;
}

static int take_message(struct watcher *watcher, struct str data, struct err *err)
{
    auto_with(arena_free) struct arena arena = { 0 };
    struct json *json;
    struct err ignored;

    const char *kind = json_parse(&arena, data, &json, &ignored) < 0 ? NULL : kind_of(json);
    if (!kind)
        return err_set(err, ERR_INVALID, "invalid orchestrator input");
    if (watcher->attach.role != ATTACH_CONTROLLER)
        return err_set(err, ERR_FORBIDDEN,
                       "orchestrator role observer cannot write; reconnect with ?role=controller");
    if (kind[0] == 'w')
        return attach_input(&watcher->attach, json_text(json, "text"), err);
    if (kind[0] == 's')
        return do_signal(watcher, json_text(json, "signal"), err);
    return attach_resize(&watcher->attach, json_num(json, "rows", 0), json_num(json, "cols", 0),
                         err);
}

static void on_message(struct socket *socket, bool text, struct str data)
{
    struct watcher *watcher = container_of(socket, struct watcher, socket);
    struct err err = { 0 };

    if (!watcher->attach.term)
        return;
    if (!text)
        say_error(watcher, "invalid orchestrator input");
    else if (take_message(watcher, data, &err) < 0)
        say_error(watcher, err.msg);
}

static void on_closed(struct socket *socket)
{
    struct watcher *watcher = container_of(socket, struct watcher, socket);

    timer_cancel(socket->api->loop, &watcher->update);
    attach_close(&watcher->attach);
    free(watcher);
}

static const struct socket_ops ops = { .message = on_message, .closed = on_closed };

static int orchestrate_ws(struct call *call, struct err *err)
{
    struct attach_wish wish = { .from = ATTACH_SCREEN };
    struct exec_view view;
    struct box_exec *exec;
    enum attach_why why;

    if (role_of(call_query(call, "role"), &wish.role, err) < 0 ||
        terminal_by_id((struct api *)call->api, call_reach(call), call_param(call, "sid"), &exec,
                       err) < 0)
        return -1;
    struct watcher *watcher = xnew(struct watcher);
    watcher->update.fn = update;
    box_exec_view(exec, &view);
    snprintf(watcher->session, sizeof(watcher->session), "%s", view.id);
    attach_prepare(&watcher->attach, &watcher_ops, &call->who);
    if (attach_open(&watcher->attach, exec, &wish, &why, err) < 0) {
        free(watcher);
        return -1;
    }
    if (!socket_open(&watcher->socket, call, NULL, &ops)) {
        attach_close(&watcher->attach);
        free(watcher);
        return 0;
    }
    autobuf struct buf text = { 0 };
    struct json_out json = open_message(&text, watcher, "session_start");
    json_kv_text(&json, "role", attach_role_name(watcher->attach.role));
    json_kv_bool(&json, "can_write", watcher->attach.role == ATTACH_CONTROLLER);
    send_message(watcher, &json);
    attach_go(&watcher->attach);
    return 0;
}

const struct route orchestrate_routes[] = {
    { .name = "session.orchestrate",
      .method = "GET",
      .path = "/ws/sessions/{sid}/orchestrate",
      .on = ON_STREAM,
      .roles = ROLE_LOOK,
      .fn = orchestrate_ws,
      .query = "role:string",
      .flags = ROUTE_WS,
      .surface = SURFACE_HUB,
      .summary = "A session's screen over a WebSocket, at most every 100 ms; as `role`=controller "
                 "also written to." },
    { 0 },
};
