/*
 * server - inside the http room: the server as conn.c and server.c share it. Loop thread.
 */
#pragma once

#include "base/list.h"
#include "base/map.h"
#include "http/proto.h"
#include "net/tls.h"

#define HTTP_RECV_SIZE 65536
#define HTTP_DATE_SIZE 30

struct http_listener {
    struct watch watch;
    struct http_server *server;
    struct tls *tls; /* borrowed; NULL: plain */
    unsigned index;
};

struct http_server {
    struct loop *loop;
    struct http_app app;
    struct http_options options; /* every value filled in */

    struct http_listener *listeners[33]; /* owned; CONF_LIST_MAX, and one in the state directory */
    unsigned listener_count;
    struct timer accept_again; /* set while no descriptor or memory is left for accepting */
    int spare_fd;              /* given up for a moment to refuse somebody when none is left */

    struct list conns; /* alive */
    unsigned conn_count;
    struct map peers;   /* connections by address, as numbers */
    struct list later;  /* connections that asked for a turn */
    struct list dead;   /* freed at the end of the round */
    struct timer round; /* set for "now" while `later` or `dead` holds something */
    struct timer tick;
    int64_t tick_ms;

    bool draining;    /* from http_server_drain on */
    bool drain_asked; /* connections are still to be told */
    struct timer drain_timer;
    void (*drained)(void *ctx);
    void *drained_ctx;

    /* What connections use in their turn, one at a time. */
    char *recv;   /* HTTP_RECV_SIZE bytes just received */
    char *gather; /* HTTP_SEND_MAX bytes to be sent when the turn ends */
    size_t gathered;

    int64_t date_s;
    char date[HTTP_DATE_SIZE];
};

/* conn.c: takes an accepted socket. */
void http_conn_open(struct http_server *server, int fd, const struct http_peer *peer,
                    struct tls *tls);
void http_conn_tick(struct http_conn *conn, int64_t now_ms);
/* The turn asked for by later or again, or the cut of a doomed one. */
void http_conn_turn(struct http_conn *conn);
/* In a turn of its own: proto.on_drain. */
void http_conn_drain(struct http_conn *conn);
void http_conn_free(struct http_conn *conn);

/* Bytes that the socket did not take. */
static inline size_t http_conn_waiting(const struct http_conn *conn)
{
    return conn->out_end - conn->out_at;
}

/* conn.c: watches for what this connection waits for. */
void http_conn_events(struct http_conn *conn);
/* conn_out.c: sends from the queue until the socket is full; the output of a turn, at its end. */
void http_conn_send_queue(struct http_conn *conn);
void http_conn_send_gathered(struct http_conn *conn);

/* server.c: this connection is dead; free it at the end of the round. */
void http_server_lost(struct http_server *server, struct http_conn *conn);
/* Makes the round timer run. */
void http_server_wake(struct http_server *server);
