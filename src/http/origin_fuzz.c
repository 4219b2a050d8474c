/* Any bytes as an answer from inside: in one piece and cut anywhere they must mean the same. */
#include "base/mem.h"
#include "http/origin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct heard {
    struct buf body;
    int status;
    enum origin_got last;
    bool closed;
};

static void feed(struct origin *origin, struct str in, struct heard *heard)
{
    struct err err;
    struct str piece;

    if (heard->last == ORIGIN_BAD || heard->last == ORIGIN_END)
        return;
    do {
        heard->last = origin_next(origin, &in, &piece, &err);
        if (heard->last == ORIGIN_HEAD)
            heard->status = origin->status;
        if (heard->last == ORIGIN_DATA)
            buf_str(&heard->body, piece);
    } while (heard->last == ORIGIN_HEAD || heard->last == ORIGIN_DATA);
}

static struct heard listen_to(const uint8_t *data, size_t size, size_t cut, unsigned how)
{
    struct origin origin = { .to_head = how & 1, .may_switch = how >> 1 & 1 };
    struct str all = { (const char *)data, size };
    struct heard heard = { 0 };

    feed(&origin, (struct str){ all.p, cut }, &heard);
    feed(&origin, str_from(all, cut), &heard);
    heard.closed = origin_closed(&origin);
    origin_free(&origin);
    return heard;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3 || size > 100000)
        return 0;
    unsigned how = data[0];
    size_t cut = ((size_t)data[1] << 8 | data[2]) % (size - 2);
    struct heard whole = listen_to(data + 3, size - 3, size - 3, how);
    struct heard halves = listen_to(data + 3, size - 3, MIN(cut, size - 3), how);

    if (whole.status != halves.status || whole.last != halves.last ||
        whole.closed != halves.closed || whole.body.len > size ||
        !str_eq(buf_view(&whole.body), buf_view(&halves.body)))
        abort();
    buf_free(&whole.body);
    buf_free(&halves.body);
    return 0;
}
