/*
 * A gRPC body. The first byte chooses content type and piece size; the same bytes go in at once
 * and in pieces, and what the handler saw must not depend on that. The second byte chooses when
 * the handler finishes and whether it pauses.
 */
#include "http/grpc.h"

#include "base/clock.h"
#include "http/http_fake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct buf seen;
static unsigned messages, finish_at;
static bool over, pauses, paused;
static struct grpc *the_call;

static void saw_message(struct grpc *call, struct str message)
{
    uint32_t len = (uint32_t)message.n;

    if (over || paused || message.n > GRPC_MESSAGE_MAX)
        abort();
    buf_append(&seen, &len, sizeof(len));
    buf_str(&seen, message);
    if (pauses) {
        paused = true;
        grpc_pause(call);
    }
    if (++messages == finish_at) {
        over = true;
        grpc_finish(call, GRPC_OK, "done");
    } else {
        grpc_send(call, message);
    }
}

static void saw_end(struct grpc *call)
{
    if (over)
        abort();
    over = true;
    buf_puts(&seen, "end");
    grpc_finish(call, GRPC_NOT_FOUND, "\xff end");
}

static void saw_cancel(struct grpc *call)
{
    (void)call;
    if (over)
        abort();
    over = true;
    buf_puts(&seen, "cancel");
}

static void let_go_on(void)
{
    while (paused && !over) {
        paused = false;
        grpc_resume(the_call);
        fake_run(0);
    }
}

static void run(const char *type, const uint8_t *data, size_t size, size_t piece,
                struct buf *result)
{
    static const struct grpc_ops ops = { .on_message = saw_message,
                                         .on_end = saw_end,
                                         .on_cancel = saw_cancel };
    static struct loop *loop;
    struct err err;

    if (!loop && loop_new(&loop, &err) < 0)
        abort();
    over = paused = false;
    messages = 0;
    fake_reset(loop, HTTP_2, "POST");
    fake_header("content-type", type);
    the_call = grpc_begin(&fake.req, &ops, NULL);
    if (!the_call)
        abort();
    for (size_t at = 0; at < size && !over; at += piece) {
        fake_feed(data + at, MIN(piece, size - at), false);
        let_go_on();
    }
    fake_feed(NULL, 0, true);
    let_go_on();
    if (!over || !fake_over())
        abort();
    buf_str(result, buf_view(&seen));
    buf_str(result, buf_view(&fake.body));
    buf_free(&seen);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const types[] = { "application/grpc", "application/grpc-web",
                                         "application/grpc-web-text", "application/connect+proto",
                                         "application/json" };
    autobuf struct buf whole = { 0 }, pieces = { 0 };

    if (size < 2)
        return 0;
    const char *type = types[data[0] % ARRAY_LEN(types)];
    finish_at = data[1] % 16;
    pauses = data[1] >= 128;
    run(type, data + 2, size - 2, size, &whole);
    run(type, data + 2, size - 2, 1 + data[0] / ARRAY_LEN(types) % 16, &pieces);
    if (!str_eq(buf_view(&whole), buf_view(&pieces)))
        abort();
    return 0;
}
