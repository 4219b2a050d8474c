/* The same bytes in one piece and cut in two must give the same bytes of each kind. */
#include "base/mem.h"
#include "cli/framed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int collect(void *ctx, unsigned kind, struct str data, struct err *err)
{
    struct buf *bufs = ctx;

    (void)err;
    if (kind < FRAME_STDOUT || kind > FRAME_END)
        abort();
    buf_str(&bufs[kind - 1], data);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = { (const char *)data, size };
    autoframed struct framed whole = { 0 }, cut = { 0 };
    struct buf one[FRAME_END] = { 0 }, two[FRAME_END] = { 0 };
    struct err err = { 0 };
    size_t at = size ? data[size - 1] % size : 0;

    int rc = framed_feed(&whole, all, collect, one, &err);
    int rc2 = framed_feed(&cut, (struct str){ all.p, at }, collect, two, &err);
    if (rc2 == 0)
        rc2 = framed_feed(&cut, str_from(all, at), collect, two, &err);
    for (size_t i = 0; i < FRAME_END; i++) {
        if (rc != rc2 || !str_eq(buf_view(&one[i]), buf_view(&two[i])))
            abort();
        buf_free(&one[i]);
        buf_free(&two[i]);
    }
    return 0;
}
