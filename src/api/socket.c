/* See socket.h. */
#include "api/socket.h"

#include "base/clock.h"

static struct socket *socket_of(struct ws *ws)
{
    return ws_ctx(ws);
}

static void on_message(struct ws *ws, bool text, struct str data)
{
    struct socket *socket = socket_of(ws);

    socket->ops->message(socket, text, data);
}

static void on_drain(struct ws *ws)
{
    struct socket *socket = socket_of(ws);

    if (socket->ops->drained)
        socket->ops->drained(socket);
}

static void on_close(struct ws *ws, int code, struct str reason)
{
    struct socket *socket = socket_of(ws);

    (void)code, (void)reason;
    timer_cancel(socket->api->loop, &socket->expiry);
    list_remove(&socket->node);
    socket->ws = NULL;
    socket->ops->closed(socket);
}

static const struct ws_ops ws_ops = { .on_message = on_message,
                                      .on_drain = on_drain,
                                      .on_close = on_close };

static void expired(struct timer *timer)
{
    socket_close(container_of(timer, struct socket, expiry), SOCKET_NOBODY,
                 "the credential has expired");
}

static void watch_expiry(struct socket *socket)
{
    socket->expiry.fn = expired;
    if (socket->who.expires_ms)
        timer_set(socket->api->loop, &socket->expiry,
                  MAX(socket->who.expires_ms - clock_wall_ms(), (int64_t)1));
}

bool socket_open(struct socket *socket, struct call *call, const char *protocol,
                 const struct socket_ops *ops)
{
    struct http_req *req = call->req;
    struct err err = { 0 };
    bool opened = false;

    socket->api = (struct api *)call->api;
    socket->who = call->who;
    socket->ops = ops;
    if (call->api->draining)
        err_set(&err, ERR_UNAVAILABLE, "the server is about to stop");
    else
        opened = ws_accept(req, protocol, &ws_ops, socket, &socket->ws, &err) == 0;
    if (!opened) {
        req->on_gone = NULL;
        ws_refuse(req, &err); /* 426 and the version we speak, or by its code */
    } else {
        list_append(&socket->api->own->sockets, &socket->node);
        watch_expiry(socket);
    }
    call->req = NULL;
    call_free(call);
    return opened;
}

bool socket_text(struct socket *socket, struct buf *text)
{
    return socket->ws && ws_send(socket->ws, true, buf_view(text)) == HTTP_OK;
}

bool socket_bytes(struct socket *socket, struct str data)
{
    return socket->ws && ws_send(socket->ws, false, data) == HTTP_OK;
}

void socket_close(struct socket *socket, int code, const char *reason)
{
    if (socket->ws)
        ws_close(socket->ws, code, reason);
}

void sockets_cut(struct api *api, const char *who)
{
    list_each_safe (pos, &api->own->sockets) {
        struct socket *socket = list_entry(pos, struct socket, node);

        if (strcmp(socket->who.id, who) == 0)
            socket_close(socket, SOCKET_NOBODY, "the credential was revoked");
    }
}

void sockets_drain(struct api *api)
{
    list_each_safe (pos, &api->own->sockets)
        socket_close(list_entry(pos, struct socket, node), SOCKET_GOING,
                     "the server is about to stop");
}
