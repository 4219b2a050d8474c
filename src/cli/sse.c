/* Line by line; an empty line ends an event, and one without data is no event. */
#include "cli/sse.h"

void sse_free(struct sse *sse)
{
    buf_free(&sse->line);
    buf_free(&sse->data);
    buf_free(&sse->type);
}

void sse_reset(struct sse *sse)
{
    buf_clear(&sse->line);
    buf_clear(&sse->data);
    buf_clear(&sse->type);
    sse->has_data = false;
}

static void take_number(struct str value, int64_t most, int64_t *out)
{
    uint64_t number;

    if (str_to_u64(value, &number) && number <= (uint64_t)most)
        *out = (int64_t)number;
}

static void take_field(struct sse *sse, struct str name, struct str value)
{
    int64_t retry = 0;

    if (str_is(name, "data")) {
        if (sse->has_data)
            buf_putc(&sse->data, '\n');
        sse->has_data = true;
        buf_str(&sse->data, value);
    } else if (str_is(name, "event")) {
        buf_clear(&sse->type);
        buf_str(&sse->type, value);
    } else if (str_is(name, "id")) {
        take_number(value, INT64_MAX, &sse->last_id);
    } else if (str_is(name, "retry")) {
        take_number(value, 60000, &retry);
        if (retry)
            sse->retry_ms = (int)retry;
    }
}

static int dispatch(struct sse *sse, sse_fn fn, void *ctx, struct err *err)
{
    int rc = 0;

    if (sse->has_data)
        rc = fn(ctx, sse->type.len ? buf_cstr(&sse->type) : "message", buf_view(&sse->data), err);
    buf_clear(&sse->data);
    buf_clear(&sse->type);
    sse->has_data = false;
    return rc;
}

static int take_line(struct sse *sse, struct str line, sse_fn fn, void *ctx, struct err *err)
{
    if (!line.n)
        return dispatch(sse, fn, ctx, err);
    struct str name = str_cut(&line, ':'); /* a comment has the empty name */
    if (line.n && line.p[0] == ' ')
        line = str_from(line, 1);
    take_field(sse, name, line);
    if (!buf_ok(&sse->data) || !buf_ok(&sse->type))
        return err_set(err, ERR_LIMIT, "an event is longer than %d bytes", SSE_TEXT_MAX);
    return 0;
}

int sse_feed(struct sse *sse, struct str bytes, sse_fn fn, void *ctx, struct err *err)
{
    sse->line.max = sse->data.max = sse->type.max = SSE_TEXT_MAX;
    while (bytes.n) {
        const char *end = memchr(bytes.p, '\n', bytes.n);
        struct str part = { bytes.p, end ? (size_t)(end - bytes.p) : bytes.n };

        buf_str(&sse->line, part);
        if (!buf_ok(&sse->line))
            return err_set(err, ERR_LIMIT, "a line of events is longer than %d bytes",
                           SSE_TEXT_MAX);
        if (!end)
            return 0;
        bytes = str_from(bytes, part.n + 1);
        struct str line = buf_view(&sse->line);
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        if (take_line(sse, line, fn, ctx, err) < 0)
            return -1;
        buf_clear(&sse->line);
    }
    return 0;
}
