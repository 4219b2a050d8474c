/* origin: answers of programs in sandboxes, proper ones and others, however they are cut. */
#include "http/origin.h"

#include <stdio.h>

#include "base/test.h"

struct heard {
    struct origin origin;
    struct buf body;
    struct err err;
    enum origin_got last;
    bool headed;
};

/* Feeds `text` in pieces of `step` bytes. */
static void hear(struct heard *heard, const char *text, size_t size, size_t step)
{
    for (size_t at = 0; at < size; at += step) {
        struct str in = { text + at, MIN(step, size - at) }, piece;

        do {
            heard->last = origin_next(&heard->origin, &in, &piece, &heard->err);
            heard->headed |= heard->last == ORIGIN_HEAD;
            if (heard->last == ORIGIN_DATA)
                buf_str(&heard->body, piece);
        } while (heard->last == ORIGIN_HEAD || heard->last == ORIGIN_DATA);
        if (heard->last != ORIGIN_MORE)
            return;
    }
}

static void heard_free(struct heard *heard)
{
    origin_free(&heard->origin);
    buf_free(&heard->body);
}

static const struct {
    const char *text;
    int status;
    const char *body;
    enum origin_got last;
    bool closed; /* complete if the connection ends now */
} answers[] = {
    { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", ORIGIN_END, true },
    { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", 200, "hell", ORIGIN_MORE, false },
    { "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokMORE", 200, "ok", ORIGIN_END, true },
    { "HTTP/1.0 200 OK\r\n\r\nto the end", 200, "to the end", ORIGIN_MORE, true },
    { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\nT: "
      "v\r\n\r\n",
      200, "abcd", ORIGIN_END, true },
    { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", 200, "ab", ORIGIN_MORE,
      false },
    { "HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n", 204, "", ORIGIN_END, true },
    { "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 404 No\r\n"
      "Content-Length: 0\r\n\r\n",
      404, "", ORIGIN_END, true },
    { "HTTP/1.1 200 OK\r\n", 0, "", ORIGIN_MORE, false },
};

TEST(proper_answers_are_understood_however_they_are_cut)
{
    for (size_t i = 0; i < ARRAY_LEN(answers); i++)
        for (size_t step = 1; step < 90; step++) {
            struct heard heard = { 0 };

            hear(&heard, answers[i].text, strlen(answers[i].text), step);
            CHECK_INT(heard.origin.status, answers[i].status);
            CHECK_INT(heard.last, answers[i].last);
            CHECK_STR(buf_cstr(&heard.body), answers[i].body);
            CHECK_INT(origin_closed(&heard.origin), answers[i].closed);
            heard_free(&heard);
        }
}

TEST(what_can_be_read_in_two_ways_is_refused)
{
    static const char *const bad[] = {
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
        "HTTP/1.1 200 OK\r\n X: folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : space\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: \x01\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct heard heard = { 0 };
        /* A head that never ends by the strict rule is not refused, but never believed. */
        char text[256];
        int len = snprintf(text, sizeof(text), "%s\r\n\r\n", bad[i]);

        hear(&heard, text, (size_t)len, sizeof(text));
        CHECK_INT(heard.last, ORIGIN_BAD);
        CHECK_INT(heard.err.code, ERR_UPSTREAM);
        heard_free(&heard);
    }
}

TEST(a_switch_gives_raw_bytes_to_who_wanted_it)
{
    struct heard heard = { .origin.may_switch = true };
    static const char text[] = "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n\x82\0\r\n\r\n";

    hear(&heard, text, sizeof(text) - 1, 7);
    CHECK_INT(heard.origin.status, 101);
    CHECK(str_eq(buf_view(&heard.body), (struct str){ "\x82\0\r\n\r\n", 6 }));
    CHECK(origin_closed(&heard.origin));
    heard_free(&heard);
}

TEST(an_answer_to_head_has_no_body_whatever_it_says)
{
    struct heard heard = { .origin.to_head = true };
    static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    hear(&heard, text, sizeof(text) - 1, 1000);
    CHECK_INT(heard.last, ORIGIN_END);
    CHECK_INT(heard.body.len, 0);
    heard_free(&heard);
}

TEST(names_are_lower_case_and_a_head_has_an_end)
{
    struct heard heard = { 0 }, long_head = { 0 };
    static const char text[] = "HTTP/1.1 200 OK\r\nX-Thing: A b\r\n\r\n";
    autobuf struct buf line = { 0 };

    hear(&heard, text, sizeof(text) - 1, 3);
    CHECK_INT(heard.origin.count, 1);
    CHECK(str_is(heard.origin.headers[0].name, "x-thing"));
    CHECK(str_is(heard.origin.headers[0].value, "A b"));
    heard_free(&heard);

    buf_puts(&line, "HTTP/1.1 200 OK\r\nX: ");
    while (line.len < HTTP_HEAD_MAX - 1)
        buf_putc(&line, 'a');
    hear(&long_head, line.data, line.len, 4096);
    CHECK_INT(long_head.last, ORIGIN_MORE);
    hear(&long_head, "a", 1, 1);
    CHECK_INT(long_head.last, ORIGIN_BAD);
    heard_free(&long_head);
}

TEST(lists_of_words)
{
    CHECK(header_lists(STR("close, Upgrade"), STR("upgrade")));
    CHECK(!header_lists(STR("close, Upgraded"), STR("upgrade")));
    CHECK(header_is_hop(STR("Keep-Alive")) && header_is_hop(STR("te")));
    CHECK(!header_is_hop(STR("content-type")));
}
