/*
 * client - a blocking HTTP/1.1 client for the command line.
 *
 * One connection for each request, over TCP, TLS or a Unix socket. Every wait ends at the deadline
 * (ERR_TIMEOUT). What the server says is untrusted: heads, chunk lines, trailers and collected
 * bodies have limits, and a reply that ends early is an error, never a short success. Redirects are
 * not followed, because they would carry the token elsewhere. One thread at a time.
 */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "net/sock.h"

struct client_target {
    bool tls;
    bool local;                   /* Unix socket or loopback: nobody else can listen in */
    char connect[SOCK_TEXT_SIZE]; /* for sock_connect */
    char host[300];               /* the Host header; "localhost" for a Unix socket */
    char name[256];               /* what the certificate must name */
};

/* "http://HOST[:PORT]", "https://HOST[:PORT]" or "unix:/PATH"; nothing behind the port. */
must_use int client_target_parse(const char *text, struct client_target *out, struct err *err);

struct client_field {
    const char *name, *value;
};

struct client_request {
    const char *method, *path;
    const char *token;  /* NULL: none */
    const char *accept; /* NULL: application/json */
    struct str body;    /* p == NULL: none; sent as application/json */
    const char *stream; /* its type, when the body comes by client_write instead; otherwise NULL */
    struct client_field extra[2];
    const char *upgrade; /* to what the connection is to become after a 101; otherwise NULL */
};

struct client_options {
    const char *ca_file; /* PEM; NULL: the system's */
    int64_t deadline_ms; /* clock_mono_ms; connecting, sending and the head end here */
};

struct client_reply {
    int status;
    int64_t length;    /* of the body; -1 when only its end will tell */
    int retry_after;   /* seconds; 0 means unsaid */
    char position[48]; /* where the output of a command begins (atoll-position) */
    char content_type[128];
    char request_id[REQUEST_ID_MAX + 1];
};

struct client;

/* Connects, sends, and reads up to the end of the reply's head. On failure *out is untouched. */
must_use int client_start(struct client **out, const struct client_target *target,
                          const struct client_request *request,
                          const struct client_options *options, struct client_reply *reply,
                          struct err *err);
/* The same over a connected stream socket, which it takes. */
must_use int client_start_on(struct client **out, int fd, const struct client_target *target,
                             const struct client_request *request,
                             const struct client_options *options, struct client_reply *reply,
                             struct err *err);
/*
 * In three steps, for a body whose length nobody knows: the request is begun, its body written
 * piece by piece, and then the reply's head read. A server that refuses early makes client_write
 * fail with ERR_UNAVAILABLE; client_finish then still has its answer, if it gave one.
 */
must_use int client_open(struct client **out, const struct client_target *target,
                         const struct client_request *request, const struct client_options *options,
                         struct err *err);
must_use int client_open_on(struct client **out, int fd, const struct client_target *target,
                            const struct client_request *request,
                            const struct client_options *options, struct err *err);
must_use int client_write(struct client *client, const void *data, size_t len, struct err *err);
must_use int client_finish(struct client *client, struct client_reply *reply, struct err *err);
/* Body bytes as they come: how many, 0 at its proper end, -1 (ERR_UNAVAILABLE when cut short). */
must_use ssize_t client_read(struct client *client, void *out, size_t len, struct err *err);
/*
 * After a 101 (request.upgrade): bytes both ways, without waiting. Taken and given: how many, or
 * CLIENT_LATER when none can be now (poll client_fd), -1; take gives 0 at the end.
 */
#define CLIENT_LATER (-2)
int client_fd(const struct client *client);
must_use ssize_t client_take(struct client *client, void *out, size_t len, struct err *err);
must_use ssize_t client_give(struct client *client, const void *data, size_t len, struct err *err);
void client_shut(struct client *client); /* nothing more will be given */
/* Another deadline, for the reads that follow. */
void client_deadline(struct client *client, int64_t deadline_ms);
void client_free(struct client *client);

static inline void client_drop_(struct client **client)
{
    client_free(*client);
}
#define autoclient auto_with(client_drop_)

/* All of it: the body, at most `body_max` bytes (ERR_LIMIT), is appended to `body`. */
must_use int client_call(const struct client_target *target, const struct client_request *request,
                         const struct client_options *options, size_t body_max,
                         struct client_reply *reply, struct buf *body, struct err *err);
