/* Events from bytes, however they are cut; and what a hostile stream cannot do. */
#include "cli/sse.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/test.h"

static int collect(void *ctx, const char *type, struct str data, struct err *err)
{
    (void)err;
    buf_printf(ctx, "[%s|%.*s]", type, STR_FMT(data));
    return 0;
}

static void check_feed(const char *text, const char *want, int64_t last_id)
{
    for (size_t step = 1; step < 9; step++) {
        autosse struct sse sse = { 0 };
        autobuf struct buf out = { 0 };
        struct err err = { 0 };

        for (struct str rest = str_of(text); rest.n; rest = str_from(rest, step))
            CHECK_OK(sse_feed(&sse, (struct str){ rest.p, MIN(rest.n, step) }, collect, &out, &err),
                     &err);
        CHECK_STR(buf_cstr(&out), want);
        CHECK_INT(sse.last_id, last_id);
    }
}

TEST(sse_reads_events)
{
    check_feed("retry: 1000\n: hello\n\nid: 7\nevent: token.created\ndata: {\"a\":1}\n\n",
               "[token.created|{\"a\":1}]", 7);
    check_feed("data: one\ndata: two\n\ndata\n\n", "[message|one\ntwo][message|]", 0);
    check_feed("data:no blank\r\n\r\n", "[message|no blank]", 0);
    check_feed("event: x\n\ndata: y\n\n", "[message|y]", 0); /* no data, no event */
    check_feed("data: not finished\n", "", 0);               /* the stream ended there */
    check_feed("id: 12x\ndata: a\n\nid: 99999999999999999999\ndata: b\n\n",
               "[message|a][message|b]", 0); /* numbers only */
    check_feed("unknown: field\ndata:  two blanks\n\n", "[message| two blanks]", 0);
}

TEST(sse_keeps_retry_within_reason)
{
    autosse struct sse sse = { 0 };
    autobuf struct buf out = { 0 };
    struct err err = { 0 };

    CHECK_OK(sse_feed(&sse, STR("retry: 2500\nretry: 60001\nretry: -1\n"), collect, &out, &err),
             &err);
    CHECK_INT(sse.retry_ms, 2500);
}

TEST(sse_reset_forgets_the_unfinished)
{
    autosse struct sse sse = { 0 };
    autobuf struct buf out = { 0 };
    struct err err = { 0 };

    CHECK_OK(sse_feed(&sse, STR("id: 3\nevent: e\ndata: half\nda"), collect, &out, &err), &err);
    sse_reset(&sse);
    CHECK_OK(sse_feed(&sse, STR("data: whole\n\n"), collect, &out, &err), &err);
    CHECK_STR(buf_cstr(&out), "[message|whole]");
    CHECK_INT(sse.last_id, 3);
}

static int refuse(void *ctx, const char *type, struct str data, struct err *err)
{
    (void)ctx, (void)type, (void)data;
    return err_set(err, ERR_CANCELLED, "enough");
}

TEST(sse_stops_when_told)
{
    autosse struct sse sse = { 0 };
    struct err err = { 0 };

    CHECK(sse_feed(&sse, STR("data: a\n\ndata: b\n\n"), refuse, NULL, &err) < 0);
    CHECK_INT(err.code, ERR_CANCELLED);
}

static int count_bytes(void *ctx, const char *type, struct str data, struct err *err)
{
    (void)type, (void)err;
    *(size_t *)ctx += data.n;
    return 0;
}

TEST(sse_limits_lines_and_events)
{
    autobuf struct buf text = { 0 };

    for (int over = 0; over < 2; over++) {
        autosse struct sse sse = { 0 };
        struct err err = { 0 };
        size_t got = 0;

        buf_clear(&text);
        while (text.len < SSE_TEXT_MAX + (size_t)over)
            buf_putc(&text, ':');
        buf_puts(&text, "\n");
        CHECK_INT(sse_feed(&sse, buf_view(&text), count_bytes, &got, &err), over ? -1 : 0);
        CHECK(!over || err.code == ERR_LIMIT);
    }
    for (int over = 0; over < 2; over++) { /* one event of many short lines */
        autosse struct sse sse = { 0 };
        struct err err = { 0 };
        size_t got = 0, lines = SSE_TEXT_MAX / 8;
        int rc = 0;

        for (size_t i = 0; rc == 0 && i < lines; i++)
            rc = sse_feed(&sse, STR("data: 1234567\n"), count_bytes, &got, &err);
        CHECK_INT(rc, 0);
        if (over)
            rc = sse_feed(&sse, STR("data: 1\n"), count_bytes, &got, &err);
        CHECK_INT(rc < 0 ? -1 : sse_feed(&sse, STR("\n"), count_bytes, &got, &err), over ? -1 : 0);
        CHECK_INT(got, over ? 0 : lines * 8 - 1);
    }
}
