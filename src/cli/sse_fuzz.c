/* The same bytes in one piece and cut in two must give the same events and the same last id. */
#include "base/mem.h"
#include "cli/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int collect(void *ctx, const char *type, struct str text, struct err *err)
{
    (void)err;
    buf_puts(ctx, type);
    buf_putc(ctx, 0);
    buf_str(ctx, text);
    buf_putc(ctx, 1);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = { (const char *)data, size };
    autosse struct sse whole = { 0 }, cut = { 0 };
    autobuf struct buf one = { 0 }, two = { 0 };
    struct err err = { 0 };
    size_t at = size ? data[0] % size : 0;

    int rc = sse_feed(&whole, all, collect, &one, &err);
    int rc2 = sse_feed(&cut, (struct str){ all.p, at }, collect, &two, &err);
    if (rc2 == 0)
        rc2 = sse_feed(&cut, str_from(all, at), collect, &two, &err);
    if (rc != rc2 || !str_eq(buf_view(&one), buf_view(&two)) || whole.last_id != cut.last_id ||
        whole.last_id < 0)
        abort();
    return 0;
}
