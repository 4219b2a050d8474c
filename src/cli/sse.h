/*
 * sse - reading server-sent events (WHATWG HTML section 9.2): bytes in, events out.
 *
 * The stream is untrusted: a line or an event's data beyond SSE_TEXT_MAX is ERR_LIMIT. Line ends
 * are LF or CR LF (a bare CR, which our server never sends, is part of the line). Zero is a valid
 * reader. One thread at a time.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define SSE_TEXT_MAX 1048576

struct sse {
    struct buf line, data;
    struct buf type;
    int64_t last_id; /* the newest "id:" that was a number; 0 before the first */
    int retry_ms;    /* what the server asked for; 0 before it did */
    bool has_data;
};

void sse_free(struct sse *sse);
#define autosse auto_with(sse_free)

/* Forgets an unfinished event, for a new connection; the last id stays. */
void sse_reset(struct sse *sse);

/* One event: its type ("message" when unsaid), its data, and sse->last_id. -1 stops. */
typedef int (*sse_fn)(void *ctx, const char *type, struct str data, struct err *err);
/* Bytes as they came; calls `fn` for each event that they complete. */
must_use int sse_feed(struct sse *sse, struct str bytes, sse_fn fn, void *ctx, struct err *err);
