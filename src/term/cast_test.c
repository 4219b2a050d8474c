/* Recordings: every line is JSON, the text of all events is the output, however it was cut. */
#include "term/cast.h"

#include "base/json.h"
#include "base/test.h"

TEST(a_recording_reads_as_the_format_says)
{
    autobuf struct buf out = { 0 };
    struct cast cast;
    struct cast_head head = { .rows = 24, .cols = 80, .start_ms = 5000, .wall_ms = 1700000000999 };

    head.title = STR("a \"title\"");
    head.term = STR("xterm-256color");
    cast_begin(&cast, &head, &out);
    cast_output(&cast, 5000, STR("hi\r\n\033[1m"), &out);
    cast_resize(&cast, 6001, 30, 100, &out);
    cast_output(&cast, 5500, STR("\x01\xff"), &out); /* a clock that went back */
    cast_end(&cast, 70000, &out);
    CHECK_STR(buf_cstr(&out),
              "{\"version\":2,\"width\":80,\"height\":24,\"timestamp\":1700000000,"
              "\"title\":\"a \\\"title\\\"\",\"env\":{\"TERM\":\"xterm-256color\"}}\n"
              "[0.000,\"o\",\"hi\\r\\n\\u001b[1m\"]\n"
              "[1.001,\"r\",\"100x30\"]\n"
              "[1.001,\"o\",\"\\u0001\uFFFD\"]\n");
}

/* All the text of "o" events; every line parses. */
static void collect(struct str recording, struct buf *text)
{
    str_cut(&recording, '\n');
    while (recording.n) {
        autoarena struct arena arena = { 0 };
        struct str line = str_cut(&recording, '\n');
        struct json *root = NULL;
        struct err err = { 0 };

        CHECK_OK(json_parse(&arena, line, &root, &err), &err);
        CHECK(root->type == JSON_ARRAY && root->count == 3);
        CHECK(str_is(root->first->next->text, "o"));
        buf_str(text, root->first->next->next->text);
    }
}

TEST(characters_survive_any_cut)
{
    static const char *const words[] = { "a", "\u00e9", "\u4e2d", "\U0001f600", "\n", "\"" };

    for (int round = 0; round < 1000; round++) {
        autobuf struct buf bytes = { 0 }, out = { 0 }, text = { 0 };
        struct cast cast;

        for (uint32_t n = test_rand(30); n > 0; n--)
            buf_puts(&bytes, words[test_rand(ARRAY_LEN(words))]);
        cast_begin(&cast, &(struct cast_head){ .rows = 1, .cols = 1 }, &out);
        for (size_t at = 0; at < bytes.len;) {
            size_t n = 1 + test_rand(3);

            n = MIN(n, bytes.len - at);
            cast_output(&cast, 0, (struct str){ bytes.data + at, n }, &out);
            at += n;
        }
        CHECK_INT(cast.held_len, 0);
        collect(buf_view(&out), &text);
        CHECK(str_eq(buf_view(&text), buf_view(&bytes)));
    }
}

TEST(a_character_that_never_ends_is_told_at_the_end)
{
    autobuf struct buf out = { 0 }, text = { 0 };
    struct cast cast;

    cast_begin(&cast, &(struct cast_head){ .rows = 1, .cols = 1 }, &out);
    cast_output(&cast, 0, STR("ab\xe4\xb8"), &out);
    CHECK_INT(cast.held_len, 2);
    cast_end(&cast, 10, &out);
    collect(buf_view(&out), &text);
    CHECK_STR(buf_cstr(&text), "ab\uFFFD\uFFFD");
}

TEST(a_full_buffer_says_so)
{
    autobuf struct buf out = { .max = 100 };
    struct cast cast;

    cast_begin(&cast, &(struct cast_head){ .rows = 1, .cols = 1 }, &out);
    CHECK(buf_ok(&out));
    for (int i = 0; i < 10; i++)
        cast_output(&cast, 0, STR("01234567890123456789"), &out);
    CHECK(!buf_ok(&out));
}
