/* See stream.h. libarchive stays in the C locale here, in which a name is its bytes. */
#include "image/stream.h"

#include <errno.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/mem.h"
#include "image/own.h"

#define BLOCK 65536

static ssize_t fill(struct archive *raw, void *ctx, const void **out)
{
    struct image_stream *stream = ctx;
    ssize_t got;

    do
        got = read(stream->fd, stream->block, BLOCK);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        archive_set_error(raw, errno, "read: %s", strerror(errno));
        return ARCHIVE_FATAL;
    }
    stream->in += (uint64_t)got;
    *out = stream->block;
    return got;
}

/* What the decompressor says is about the archive, unless a callback knows better. */
static int bad(struct image_stream *stream, struct archive *reader, struct err *err)
{
    const char *text = archive_error_string(reader);

    if (stream->failed.code) {
        *err = stream->failed;
        return -1;
    }
    return err_set(err, ERR_INVALID, "not an archive that can be read: %s",
                   text ? text : "damaged");
}

/* One block out of the decompressor: its size, 0 at the end, -1. */
static ssize_t pull(struct image_stream *stream, const void **data)
{
    const struct image_limits *limits = stream->limits;
    size_t size = 0;
    int64_t at;

    if (stream->ended)
        return 0;
    int rc = archive_read_data_block(stream->raw, data, &size, &at);
    if (rc == ARCHIVE_EOF) {
        stream->ended = true;
        return 0;
    }
    if (rc != ARCHIVE_OK)
        return bad(stream, stream->raw, &stream->failed);
    stream->out += size;
    sha256_put(stream->hash, *data, size);
    if (stream->out > limits->ratio_free && stream->out / limits->ratio > stream->in &&
        guard(ratio))
        return err_set(&stream->failed, ERR_LIMIT,
                       "more than %llu bytes come out of each byte of the archive",
                       (unsigned long long)limits->ratio);
    return (ssize_t)size;
}

static ssize_t feed(struct archive *tar, void *ctx, const void **out)
{
    ssize_t got = pull(ctx, out);

    if (got < 0)
        archive_set_error(tar, EINVAL, "the archive itself");
    return got < 0 ? ARCHIVE_FATAL : got;
}

static int open_raw(struct image_stream *stream, struct err *err)
{
    struct archive_entry *entry;

    stream->raw = archive_read_new();
    if (!stream->raw || archive_read_support_format_raw(stream->raw) != ARCHIVE_OK ||
        archive_read_support_filter_gzip(stream->raw) != ARCHIVE_OK ||
        archive_read_support_filter_xz(stream->raw) != ARCHIVE_OK ||
        archive_read_support_filter_zstd(stream->raw) != ARCHIVE_OK)
        return err_set(err, ERR_INTERNAL, "libarchive lacks gzip, xz or zstd");
    if (archive_read_open(stream->raw, stream, NULL, fill, NULL) != ARCHIVE_OK ||
        archive_read_next_header(stream->raw, &entry) != ARCHIVE_OK)
        return stream->in ? bad(stream, stream->raw, err)
                          : err_set(err, ERR_INVALID, "the archive is empty");
    if (archive_filter_count(stream->raw) > 2 && guard(once))
        return err_set(err, ERR_INVALID, "the archive is compressed more than once");
    return 0;
}

int stream_open(struct image_stream *stream, const struct image_limits *limits, int fd,
                struct err *err)
{
    *stream = (struct image_stream){ .limits = limits, .fd = fd };
    stream->block = xmalloc(BLOCK);
    stream->hash = sha256_new();
    if (open_raw(stream, err) < 0)
        return -1;
    stream->tar = archive_read_new();
    if (!stream->tar || archive_read_support_format_tar(stream->tar) != ARCHIVE_OK)
        return err_set(err, ERR_INTERNAL, "libarchive lacks tar");
    if (archive_read_open(stream->tar, stream, NULL, feed, NULL) != ARCHIVE_OK)
        return bad(stream, stream->tar, err);
    return 0;
}

void stream_free(struct image_stream *stream)
{
    if (stream->tar)
        archive_read_free(stream->tar);
    if (stream->raw)
        archive_read_free(stream->raw);
    sha256_drop(stream->hash);
    free(stream->block);
    *stream = (struct image_stream){ .fd = -1 };
}

int stream_next(struct image_stream *stream, struct archive_entry **out, struct err *err)
{
    int rc = archive_read_next_header(stream->tar, out);

    if (rc == ARCHIVE_EOF)
        return 0;
    /* WARN is about character sets and attributes it does not know; RETRY about damage. */
    if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
        return bad(stream, stream->tar, err);
    if (++stream->entries > stream->limits->entries)
        return err_set(err, ERR_LIMIT, "more than %llu entries",
                       (unsigned long long)stream->limits->entries);
    return 1;
}

int stream_data(struct image_stream *stream, struct str *data, int64_t *at, struct err *err)
{
    const void *block = NULL;
    size_t size = 0;
    int rc = archive_read_data_block(stream->tar, &block, &size, at);

    if (rc == ARCHIVE_EOF)
        return 0;
    if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
        return bad(stream, stream->tar, err);
    *data = (struct str){ block, size };
    return 1;
}

int stream_digest(struct image_stream *stream, char out[IMAGE_DIGEST_SIZE], struct err *err)
{
    unsigned char digest[SHA256_SIZE];
    const void *rest;
    ssize_t got;

    while ((got = pull(stream, &rest)) > 0)
        ; /* what follows the end of the tar belongs to its digest too */
    if (got < 0) {
        *err = stream->failed;
        return -1;
    }
    sha256_end(take_ptr(&stream->hash), digest);
    digest_text(digest, out);
    return 0;
}
