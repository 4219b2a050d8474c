/* client_head - the pure half of the client: targets, requests and reply heads as text. */
#pragma once

#include "http/client.h"
#include "http/http.h"

enum client_framing { FRAMED_NONE, FRAMED_LENGTH, FRAMED_CHUNKED, FRAMED_CLOSE };

/* Appends the whole request. ERR_INVALID when a value could break out of its line. */
must_use int client_request_put(struct buf *out, const struct client_target *target,
                                const struct client_request *request, struct err *err);

/* A reply's head, line by line; the slices point into it. */
struct client_head {
    int status;
    struct http_header fields[HTTP_FIELDS_MAX]; /* names as sent */
    size_t count;
    int64_t length; /* of the body; -1 when only its end will tell */
    enum client_framing framing;
};

/*
 * Splits and checks a head without its final empty line, from "HTTP/1.1" on: what could be read in
 * two ways (two lengths, bare line ends, other transfer codings) is refused. `to_head` is true for
 * the reply to a HEAD request, which has no body whatever it says.
 */
must_use int client_head_split(struct str head, bool to_head, struct client_head *out,
                               struct err *err);

/*
 * A reply's head without its final empty line, from "HTTP/1.1" on. `to_head` is true for the reply
 * to a HEAD request, which has no body whatever it says.
 */
must_use int client_head_parse(struct str head, bool to_head, struct client_reply *reply,
                               enum client_framing *framing, struct err *err);

/* A connected socket, within the deadline. */
must_use int client_connect(const struct client_target *target,
                            const struct client_options *options, struct err *err);
