/*
 * assets - files that are part of the program: the dashboard, embedded compressed.
 *
 * A table lists them, ended by an entry without a path. Each has at least its gzip form; a client
 * that takes neither gzip nor br gets it inflated. Loop thread.
 */
#pragma once

#include "http/http.h"
#include "http/range.h"

struct asset {
    const char *path; /* "/app-3f9c.js"; NULL ends the table */
    const char *type; /* "text/javascript; charset=utf-8" */
    const char *etag; /* hash of the content, without quotes */
    struct str br;    /* n == 0: there is none */
    struct str gz;
    struct str plain; /* n == 0: made from gz when somebody wants it */
    size_t plain_size;
    bool immutable; /* the name holds the hash: may be cached for ever */
};

/* The asset of this path (not decoded), or NULL. */
const struct asset *asset_find(const struct asset *table, struct str path);

/*
 * Answers GET and HEAD (405 otherwise): content negotiation, If-None-Match, one Range of the plain
 * bytes. `headers` are added to every answer (content-security-policy, request id). Ends the
 * request.
 */
void asset_serve(struct http_req *req, const struct asset *asset, const struct http_header *headers,
                 size_t count);
