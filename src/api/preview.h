/*
 * preview - a request that a program in a sandbox answers; inside the api room.
 *
 * Two ways lead to a port. By path (`/api/v1/sandboxes/{id}/ports/{port}/…`) the page would be one
 * of the dashboard's own origin: so it gets no cookie, may set none, and is shown by a browser as
 * an origin of nobody (CSP sandbox). By host (`PORT-ID.localhost`) it is an origin of its own, and
 * a pass (auth.h) in a cookie of that host lets the browser in. Either way nothing that lets
 * somebody in with us goes inside.
 */
#pragma once

#include "api/own.h"
#include "box/job.h"
#include "http/origin.h"

enum preview_way { PREVIEW_BY_PATH, PREVIEW_BY_HOST, PREVIEW_TUNNEL };

struct preview {
    struct box_job job;
    struct box_op waking;
    struct api *api;
    struct call *call;    /* until the answer has begun; NULL afterwards */
    struct http_req *req; /* from then on */
    struct list node;     /* in the api's previews */
    char who[ID_SIZE];
    char id[BOX_ID_SIZE];
    unsigned port;
    enum preview_way way;
    const char *prefix; /* by path: what stands before the program's own; in the call's arena */
    const char *target; /* path and query as the program sees them; likewise */

    struct origin origin;
    struct buf in; /* on its way inside: the head, then pieces of the body */
    bool connected, raw, chunked, last, read_paused;
    struct timer linger;
};

/* The preview of a port, ON_STREAM; answers in the end whatever happens. -1: refused at once. */
must_use int preview_start(struct call *call, struct box *box, unsigned port, enum preview_way way,
                           const char *prefix, const char *target, struct err *err);

/* preview_head.c: the request as it goes inside, and what of the answer's head comes out. */
void preview_request(struct preview *preview, struct buf *out);
struct preview_headers {
    struct http_header list[HTTP_FIELDS_MAX + CALL_EXTRA_MAX + 4];
    unsigned count;
};
void preview_answer(struct preview *preview, struct preview_headers *out);

/* "1" to "65535", nothing else. */
must_use bool port_parse(struct str text, unsigned *out);
