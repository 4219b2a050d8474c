/*
 * stream - a file, compressed or not, as the entries of the tar inside.
 *
 * Two readers of libarchive, one behind the other: the first only takes off one layer of
 * compression, the second only reads tar. Between them every byte is counted and hashed, so that
 * the diff id is of exactly the bytes that were unpacked, and a bomb is seen by what comes out of
 * it. One thread.
 */
#pragma once

#include <archive.h>
#include <archive_entry.h>

#include "base/err.h"
#include "base/hash.h"
#include "image/image.h"

struct image_stream {
    const struct image_limits *limits; /* borrowed */
    int fd;                            /* borrowed */
    struct archive *raw, *tar;         /* owned */
    struct sha256_stream *hash;        /* owned */
    uint64_t in, out;                  /* bytes, before and after the first reader */
    uint64_t entries;
    bool ended;
    struct err failed; /* what a callback found; libarchive has no room for it */
    char *block;       /* owned */
};

void stream_free(struct image_stream *stream);
#define autostream auto_with(stream_free)

/* From the descriptor's place on. */
must_use int stream_open(struct image_stream *stream, const struct image_limits *limits, int fd,
                         struct err *err);
/* 1 with the next entry (borrowed until the next call), 0 at the end, -1. */
must_use int stream_next(struct image_stream *stream, struct archive_entry **out, struct err *err);
/* The next piece of the entry's content and where it belongs: 1, 0 at its end, -1. */
must_use int stream_data(struct image_stream *stream, struct str *data, int64_t *at,
                         struct err *err);
/* After stream_next said 0: the digest of everything between the readers. */
must_use int stream_digest(struct image_stream *stream, char out[IMAGE_DIGEST_SIZE],
                           struct err *err);
