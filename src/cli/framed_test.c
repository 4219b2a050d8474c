/* Frames from bytes, however they are cut; and what a hostile stream cannot do. */
#include "cli/framed.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"

static int collect(void *ctx, unsigned kind, struct str data, struct err *err)
{
    (void)err;
    for (size_t i = 0; i < data.n; i++)
        buf_printf(ctx, "%u%c", kind, data.p[i]);
    if (!data.n)
        buf_printf(ctx, "%u-", kind);
    return 0;
}

TEST(frames_are_the_same_however_they_are_cut)
{
    static const char text[] = "\1\0\0\0\0\0\0\3abc\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\1e"
                               "\1\0\0\0\0\0\0\1d\3\0\0\0\0\0\0\2{}";

    for (size_t step = 1; step < sizeof(text); step++) {
        autoframed struct framed frames = { 0 };
        autobuf struct buf out = { 0 };
        struct err err = { 0 };

        for (struct str rest = { text, sizeof(text) - 1 }; rest.n;
             rest = str_from(rest, MIN(step, rest.n)))
            CHECK_OK(framed_feed(&frames, (struct str){ rest.p, MIN(rest.n, step) }, collect, &out,
                                 &err),
                     &err);
        CHECK_STR(buf_cstr(&out), "1a1b1c2e1d3{3}");
    }
}

TEST(a_new_connection_forgets_half_a_frame)
{
    autoframed struct framed frames = { 0 };
    autobuf struct buf out = { 0 };
    struct err err = { 0 };

    CHECK_OK(framed_feed(&frames, (struct str){ "\3\0\0\0\0\0\0\4{\"", 10 }, collect, &out, &err),
             &err);
    framed_reset(&frames);
    CHECK_OK(framed_feed(&frames, (struct str){ "\3\0\0\0\0\0\0\2{}", 10 }, collect, &out, &err),
             &err);
    CHECK_STR(buf_cstr(&out), "3{3}");
}

TEST(an_unknown_kind_and_an_end_that_is_too_long_are_refused)
{
    static const struct {
        const char *head;
        int rc;
    } heads[] = {
        { "\0\0\0\0\0\0\0\1", -1 },        { "\4\0\0\0\0\0\0\1", -1 },
        { "\3\0\0\0\0\x80\0\0", 0 },       { "\3\0\0\0\0\x80\0\1", -1 },
        { "\1\0\0\0\xff\xff\xff\xff", 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        autoframed struct framed frames = { 0 };
        autobuf struct buf out = { 0 };
        struct err err = { 0 };

        CHECK_INT(framed_feed(&frames, (struct str){ heads[i].head, 8 }, collect, &out, &err),
                  heads[i].rc);
    }
}
