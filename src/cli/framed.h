/*
 * framed - reading both streams of a command's output in frames (see exec.output): bytes in, pieces
 * of frames out.
 *
 * A frame of output is given on as its bytes come, in as many pieces as they take. The last frame
 * is given on whole. The stream is untrusted: a kind that is none of these, and a last frame beyond
 * FRAMED_END_MAX, is an error. Zero is a valid reader. One thread at a time.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define FRAMED_END_MAX 8388608

enum { FRAME_STDOUT = 1, FRAME_STDERR, FRAME_END };

struct framed {
    unsigned char head[8];
    unsigned have; /* bytes of the head */
    uint32_t left; /* bytes of the frame that have not come */
    struct buf end;
};

void framed_free(struct framed *frames);
#define autoframed auto_with(framed_free)

/* Forgets an unfinished frame, for a new connection. */
void framed_reset(struct framed *frames);

/* -1 stops. */
typedef int (*framed_fn)(void *ctx, unsigned kind, struct str data, struct err *err);
must_use int framed_feed(struct framed *frames, struct str bytes, framed_fn fn, void *ctx,
                         struct err *err);
