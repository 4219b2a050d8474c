/* A head of 8 bytes, then as many bytes as it says; see framed.h. */
#include "cli/framed.h"

#include <endian.h>
#include <string.h>

void framed_free(struct framed *frames)
{
    buf_free(&frames->end);
}

void framed_reset(struct framed *frames)
{
    frames->have = 0;
    frames->left = 0;
    buf_clear(&frames->end);
}

static int take_head(struct framed *frames, struct str *bytes, struct err *err)
{
    size_t take = MIN(sizeof(frames->head) - frames->have, bytes->n);
    uint32_t size;

    memcpy(frames->head + frames->have, bytes->p, take);
    frames->have += (unsigned)take;
    *bytes = str_from(*bytes, take);
    if (frames->have < sizeof(frames->head))
        return 0;
    memcpy(&size, frames->head + 4, sizeof(size));
    frames->left = be32toh(size);
    if (frames->head[0] < FRAME_STDOUT || frames->head[0] > FRAME_END)
        return err_set(err, ERR_INTERNAL, "the server's output has an unknown frame");
    if (frames->head[0] == FRAME_END && frames->left > FRAMED_END_MAX)
        return err_set(err, ERR_LIMIT, "the end of the command is longer than %d bytes",
                       FRAMED_END_MAX);
    return 0;
}

static int take_data(struct framed *frames, struct str *bytes, framed_fn fn, void *ctx,
                     struct err *err)
{
    struct str data = { bytes->p, MIN(bytes->n, (size_t)frames->left) };
    unsigned kind = frames->head[0];

    *bytes = str_from(*bytes, data.n);
    frames->left -= (uint32_t)data.n;
    if (!frames->left)
        frames->have = 0;
    if (kind != FRAME_END)
        return data.n ? fn(ctx, kind, data, err) : 0;
    buf_str(&frames->end, data);
    return frames->left ? 0 : fn(ctx, kind, buf_view(&frames->end), err);
}

int framed_feed(struct framed *frames, struct str bytes, framed_fn fn, void *ctx, struct err *err)
{
    while (bytes.n) {
        if (frames->have < sizeof(frames->head) && take_head(frames, &bytes, err) < 0)
            return -1;
        if (frames->have == sizeof(frames->head) && take_data(frames, &bytes, fn, ctx, err) < 0)
            return -1;
    }
    return 0;
}
