/*
 * The readers of HTTP/1.1 alone: what is taken, what is refused and with which status, each limit
 * at and past its edge, and that the answer never depends on how the bytes were cut.
 */
#include "http/h1.h"

#include <stdio.h>

#include "base/test.h"

/* What became of some bytes: a head of `size`, incomplete (0), or refused with a status. */
struct outcome {
    int size, status;
    const char *text;
    struct h1_head head;
    struct arena arena;
};

static void outcome_free(struct outcome *outcome)
{
    arena_free(&outcome->arena);
}
#define autooutcome auto_with(outcome_free)

/* Feeds prefixes of growing length; `step` 0 gives all at once, 1 byte by byte, others at random.
 */
static void feed(struct outcome *out, struct str data, uint32_t step)
{
    struct h1_resume resume = { 0 };
    const struct h1_bad *bad = NULL;
    size_t len = 0;

    out->size = 0;
    do {
        size_t more = step == 0 ? data.n : step == 1 ? 1 : 1 + test_rand(step);

        len = MIN(data.n, len + more);
        out->size = h1_head_scan(data.p, len, &resume, &out->head, &bad);
    } while (out->size == 0 && len < data.n);
    if (out->size > 0 &&
        h1_head_finish(&out->arena, data.p, (size_t)out->size, &out->head, &bad) < 0)
        out->size = -1;
    out->status = out->size < 0 ? bad->status : 0;
    out->text = out->size < 0 ? bad->text : NULL;
}

static int status_of(struct str data)
{
    autooutcome struct outcome out = { 0 };

    feed(&out, data, 0);
    return out.size < 0 ? out.status : out.size > 0 ? 200 : 0;
}

static int status(const char *text)
{
    return status_of(str_of(text));
}

TEST(a_request_is_taken_apart)
{
    static const char text[] = "POST /a/b?c=d&e HTTP/1.1\r\n"
                               "HOST: example.org:8080\r\n"
                               "X-Empty:\r\n"
                               "X-Tabs: \t a b\t \r\n"
                               "Content-Length: 12\r\n"
                               "X-Latin: caf\xe9\r\n"
                               "\r\n"
                               "hello world!";
    autooutcome struct outcome out = { 0 };

    feed(&out, str_of(text), 0);
    CHECK_INT(out.size, sizeof(text) - 1 - 12);
    struct h1_head *head = &out.head;
    CHECK(head->version == HTTP_1_1 && head->keep_alive && !head->expect_continue);
    CHECK(str_is(head->method, "POST") && str_is(head->target, "/a/b?c=d&e"));
    CHECK(str_is(head->path, "/a/b") && str_is(head->query, "c=d&e"));
    CHECK(str_is(head->host, "example.org:8080"));
    CHECK_INT(head->body_size, 12);
    CHECK_INT(head->count, 5);
    CHECK(str_is(head->fields[0].name, "host"));
    CHECK(str_is(head->fields[1].name, "x-empty") && head->fields[1].value.n == 0);
    CHECK(str_is(head->fields[2].value, "a b"));
    CHECK(str_is(head->fields[4].value, "caf\xe9"));
    /* The strings live in the arena, not in the input. */
    CHECK(head->method.p < text || head->method.p >= text + sizeof(text));
}

/* clang-format off */
#define HOST "Host: a\r\n"
static const struct {
    const char *text;
    int status; /* 200: taken */
} requests[] = {
    { "GET / HTTP/1.1\r\n" HOST "\r\n", 200 },
    { "\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 200 },
    { "GET / HTTP/1.0\r\n\r\n", 200 },
    { "GET / HTTP/1.0\r\n" HOST "\r\n", 200 },
    { "get / HTTP/1.1\r\n" HOST "\r\n", 200 },            /* a method of its own, for the router */
    { "M-SEARCH / HTTP/1.1\r\n" HOST "\r\n", 200 },
    { "GET /?a=[]|{}\\^`\"<> HTTP/1.1\r\n" HOST "\r\n", 200 },
    { "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 200 },
    { "GET http://b/c HTTP/1.1\r\n" HOST "\r\n", 200 },
    { "GET HTTPS://b:1/ HTTP/1.1\r\n" HOST "\r\n", 200 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 200 },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n", 200 },
    { "GET / HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\n\r\n", 200 },
    { "GET / HTTP/1.1\r\n" HOST "X:\ta\r\n\r\n", 200 },
    { "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200 },

    /* request line */
    { " GET / HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "\nGET / HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET / HTTP/1.1\n" HOST "\r\n", 400 },
    { "GET / HTTP/1.1 \r\n" HOST "\r\n", 400 },
    { "GET  / HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET /  HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET /\tHTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET\t/ HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET /a b HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET /\r\n" HOST "\r\n", 400 },                     /* HTTP/0.9 */
    { "GET /\r\n\r\n", 400 },
    { "GET\r\n\r\n", 400 },
    { "G@T / HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "G\x80T / HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET /\x80 HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET /\x7f HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET /\x01 HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET /#a HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET a HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET * HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "OPTIONS *a HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", 400 },     /* authority-form */
    { "GET a:80 HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET http:/a HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET http://a HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET http:///a HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET http://u@a/ HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET http://a:x/ HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET ftp://a/ HTTP/1.1\r\n" HOST "\r\n", 400 },
    { "GET / HTTP/2.0\r\n" HOST "\r\n", 505 },
    { "GET / HTTP/1.2\r\n" HOST "\r\n", 505 },
    { "GET / HTTP/1.11\r\n" HOST "\r\n", 400 },
    { "GET / HTTP/11\r\n" HOST "\r\n", 400 },
    { "GET / HTTP/01.1\r\n" HOST "\r\n", 505 },
    { "GET / http/1.1\r\n" HOST "\r\n", 400 },
    { "GET / HTTP/1.x\r\n" HOST "\r\n", 400 },
    { "GET / HTTPS/1.1\r\n" HOST "\r\n", 400 },
    { "PRI * HTTP/2.0\r\n\r\n", 505 },

    /* fields */
    { "GET / HTTP/1.1\r\n" HOST "X : a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "X\t: a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST " X: a\r\n\r\n", 400 },   /* folded */
    { "GET / HTTP/1.1\r\n" HOST "X: a\r\n b\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "X: a\r\n\tb\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "X\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST ": a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "X: a\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "X: a\n\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "X: a\rb\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "X: a\x01" "b\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "X: a\x7f" "b\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "X\x80: a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "X(): a\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "\r\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "\n", 400 },

    /* meaning */
    { "GET / HTTP/1.1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST HOST "\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "host: b\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost:\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400 },
    { "GET / HTTP/1.0\r\nHost: a@b\r\n\r\n", 400 },
    { "GET http://b/ HTTP/1.1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length:\t1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 1 \t\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 1 \r\n\r\n", 200 },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding:\tchunked\r\n\r\n", 501 },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\t\r\n\r\n", 501 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 1 2\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 1,1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 0x1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 1e3\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 1234567890123456789\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551617\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 999999999999999999\r\n\r\n", 413 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\ncontent-length: 2\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n", 501 },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, chunked\r\n\r\n", 501 },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501 },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n", 501 },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n\r\n", 501 },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: \"chunked\"\r\n\r\n", 501 },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
    { "GET / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" HOST "Expect: 200-ok\r\n\r\n", 417 },
    { "GET / HTTP/1.1\r\n" HOST "Expect:\r\n\r\n", 417 },
    { "GET / HTTP/1.0\r\n" HOST "Expect: 200-ok\r\n\r\n", 200 },

    /* not complete */
    { "", 0 },
    { "\r", 0 },
    { "GET", 0 },
    { "GET / HTTP/1.1", 0 },
    { "GET / HTTP/1.1\r", 0 },
    { "GET / HTTP/1.1\r\n", 0 },
    { "GET / HTTP/1.1\r\n" HOST, 0 },
    { "GET / HTTP/1.1\r\n" HOST "\r", 0 },
};
/* clang-format on */

TEST(each_bad_request_has_its_status)
{
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        int got = status(requests[i].text);

        if (got != requests[i].status)
            test_fail(__FILE__, __LINE__, "%d, not %d: %s", got, requests[i].status,
                      requests[i].text);
    }
    CHECK_INT(status_of(STR("GET /\0 HTTP/1.1\r\n" HOST "\r\n")), 400);
    CHECK_INT(status_of(STR("GET / HTTP/1.1\r\n" HOST "X: a\0b\r\n\r\n")), 400);
    CHECK_INT(status_of(STR("GET / HTTP/1.1\r\n" HOST "X\0: a\r\n\r\n")), 400);
    CHECK_INT(status_of(STR("\0")), 400);
}

TEST(absolute_form_gives_the_host)
{
    autooutcome struct outcome out = { 0 };

    feed(&out, STR("GET http://b.org:1/c/d?e HTTP/1.1\r\n" HOST "\r\n"), 0);
    CHECK(out.size > 0);
    CHECK(str_is(out.head.host, "b.org:1") && str_is(out.head.target, "/c/d?e"));
    CHECK(str_is(out.head.path, "/c/d") && str_is(out.head.query, "e"));
}

TEST(connection_options)
{
    static const struct {
        const char *version, *field;
        bool keep;
    } cases[] = {
        { "1.1", "", true },
        { "1.1", "Connection: close\r\n", false },
        { "1.1", "Connection: Keep-Alive, CLOSE\r\n", false },
        { "1.1", "Connection: x\r\nConnection: close\r\n", false },
        { "1.1", "Connection: closed\r\n", true },
        { "1.0", "", false },
        { "1.0", "Connection: keep-alive\r\n", true },
        { "1.0", "Connection: keep-alive, close\r\n", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autooutcome struct outcome out = { 0 };
        char text[200];

        snprintf(text, sizeof(text), "GET / HTTP/%s\r\n" HOST "%s\r\n", cases[i].version,
                 cases[i].field);
        feed(&out, str_of(text), 0);
        CHECK(out.size > 0 && out.head.keep_alive == cases[i].keep);
    }
}

/* ---- limits ---- */

static void repeat(struct buf *out, char c, size_t count)
{
    for (size_t i = 0; i < count; i++)
        buf_putc(out, c);
}

TEST(request_line_limit)
{
    for (size_t over = 0; over < 2; over++) {
        autobuf struct buf text = { 0 };

        buf_puts(&text, "GET /");
        repeat(&text, 'a', HTTP_LINE_MAX - strlen("GET / HTTP/1.1\r\n") + over);
        buf_puts(&text, " HTTP/1.1\r\n");
        CHECK_INT(text.len, HTTP_LINE_MAX + over);
        buf_puts(&text, HOST "\r\n");
        CHECK_INT(status_of(buf_view(&text)), over ? 414 : 200);
    }
    autobuf struct buf endless = { 0 };
    buf_puts(&endless, "GET /");
    repeat(&endless, 'a', HTTP_LINE_MAX - 5 - 1);
    CHECK_INT(status_of(buf_view(&endless)), 0);
    buf_putc(&endless, 'a');
    CHECK_INT(status_of(buf_view(&endless)), 414);
}

TEST(head_limit)
{
    for (size_t over = 0; over < 2; over++) {
        autobuf struct buf text = { 0 };

        buf_puts(&text, "GET / HTTP/1.1\r\n" HOST "X: ");
        repeat(&text, 'a', HTTP_HEAD_MAX - text.len - 4 + over);
        buf_puts(&text, "\r\n\r\n");
        CHECK_INT(text.len, HTTP_HEAD_MAX + over);
        CHECK_INT(status_of(buf_view(&text)), over ? 431 : 200);
    }
}

TEST(field_limit)
{
    for (unsigned over = 0; over < 2; over++) {
        autobuf struct buf text = { 0 };

        buf_puts(&text, "GET / HTTP/1.1\r\n" HOST);
        for (unsigned i = 1; i < HTTP_FIELDS_MAX + over; i++)
            buf_printf(&text, "X%u: a\r\n", i);
        buf_puts(&text, "\r\n");
        CHECK_INT(status_of(buf_view(&text)), over ? 431 : 200);
    }
}

TEST(method_limit)
{
    for (unsigned over = 0; over < 2; over++) {
        autobuf struct buf text = { 0 };

        repeat(&text, 'A', 32 + over);
        buf_puts(&text, " / HTTP/1.1\r\n" HOST "\r\n");
        CHECK_INT(status_of(buf_view(&text)), over ? 400 : 200);
    }
}

TEST(body_length_limit)
{
    for (unsigned over = 0; over < 2; over++) {
        char text[200];

        snprintf(text, sizeof(text), "GET / HTTP/1.1\r\n" HOST "Content-Length: %llu\r\n\r\n",
                 HTTP_BODY_STREAM_MAX + over);
        CHECK_INT(status(text), over ? 413 : 200);
    }
}

/* ---- cuts ---- */

static void check_same(const struct outcome *a, const struct outcome *b, struct str data)
{
    bool same = a->size == b->size && a->status == b->status && a->text == b->text;

    if (same && a->size > 0) {
        same = a->head.count == b->head.count && a->head.body_size == b->head.body_size &&
               a->head.keep_alive == b->head.keep_alive && a->head.version == b->head.version &&
               str_eq(a->head.path, b->head.path) && str_eq(a->head.host, b->head.host) &&
               str_eq(a->head.query, b->head.query) && str_eq(a->head.method, b->head.method);
        for (size_t i = 0; same && i < a->head.count; i++)
            same = str_eq(a->head.fields[i].name, b->head.fields[i].name) &&
                   str_eq(a->head.fields[i].value, b->head.fields[i].value);
    }
    if (!same)
        test_fail(__FILE__, __LINE__, "%d/%d against %d/%d: %.*s", a->size, a->status, b->size,
                  b->status, STR_FMT(data));
}

static void check_cuts(struct str data)
{
    autooutcome struct outcome whole = { 0 };

    feed(&whole, data, 0);
    for (uint32_t step = 1; step < 40; step += 1 + test_rand(20)) {
        autooutcome struct outcome cut = { 0 };

        feed(&cut, data, step);
        check_same(&whole, &cut, data);
    }
}

TEST(cuts_do_not_matter)
{
    for (size_t i = 0; i < ARRAY_LEN(requests); i++)
        check_cuts(str_of(requests[i].text));
}

/* Requests with bytes changed, removed and doubled. */
TEST(cuts_do_not_matter_in_damaged_requests)
{
    for (int round = 0; round < 20000; round++) {
        const char *from = requests[test_rand(ARRAY_LEN(requests))].text;
        size_t len = strlen(from);
        char text[300];

        CHECK(len + 1 < sizeof(text));
        memcpy(text, from, len + 1);
        for (uint32_t i = test_rand(3); i > 0 && len > 1; i--) {
            size_t at = test_rand((uint32_t)len);

            if (test_rand(2)) {
                text[at] = "\r\n \t:\0\x7f\xff"
                           "A/"[test_rand(10)];
            } else {
                memmove(text + at, text + at + 1, len - at - 1);
                len--;
            }
        }
        check_cuts((struct str){ text, len });
    }
}

TEST(cuts_do_not_matter_at_the_limits)
{
    autobuf struct buf line = { 0 }, head = { 0 };

    buf_puts(&line, "GET /");
    repeat(&line, 'a', HTTP_LINE_MAX);
    buf_puts(&line, "\x01 HTTP/1.1\r\n\r\n"); /* bad, but behind the limit */
    buf_puts(&head, "GET / HTTP/1.1\r\n" HOST "X: ");
    repeat(&head, 'a', HTTP_HEAD_MAX);
    buf_puts(&head, "\x01\r\n\r\n");
    check_cuts(buf_view(&line));
    check_cuts(buf_view(&head));
    CHECK_INT(status_of(buf_view(&line)), 414);
    CHECK_INT(status_of(buf_view(&head)), 431);
}

/* ---- chunks ---- */

/* Decodes with random cuts: the status of the refusal, 200 when over, 0 when more is needed. */
static int unchunk(struct str data, uint32_t step, struct buf *body, size_t *used)
{
    struct h1_chunks chunks = { 0 };
    const struct h1_bad *bad = NULL;
    bool done = false;
    size_t at = 0, have = 0;

    while (!done) {
        struct str piece;

        if (at == have) {
            if (have == data.n)
                return 0;
            size_t more = step ? 1 + test_rand(step) : data.n;

            have = MIN(data.n, have + more);
        }
        int64_t taken = h1_chunks_next(&chunks, data.p + at, have - at, &piece, &done, &bad);
        if (taken < 0)
            return bad->status;
        CHECK((size_t)taken <= have - at && (taken > 0 || done));
        buf_str(body, piece);
        at += (size_t)taken;
    }
    *used = at;
    return 200;
}

static int chunk_status(struct str data)
{
    autobuf struct buf body = { 0 };
    size_t used;

    return unchunk(data, 0, &body, &used);
}

/* clang-format off */
static const struct {
    const char *text;
    int status;
} bodies[] = {
    { "0\r\n\r\n", 200 },
    { "5\r\nhello\r\n0\r\n\r\n", 200 },
    { "5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1", 200 },
    { "A\r\n0123456789\r\na\r\n0123456789\r\n00\r\n\r\n", 200 },
    { "1;a\r\nx\r\n0;b=\"c d\";e=\t\r\n\r\n", 200 },
    { "0\r\nA: b\r\nC:\r\n\r\n", 200 },
    { "000000000000001\r\nx\r\n0\r\n\r\n", 200 },
    { "", 0 }, { "5", 0 }, { "5\r", 0 }, { "5\r\nhell", 0 }, { "5\r\nhello", 0 }, { "5\r\nhello\r\n", 0 },
    { "0\r\n", 0 }, { "0\r\n\r", 0 }, { "0\r\nA: b\r\n", 0 },
    { "\r\n", 400 },
    { "x\r\n", 400 },
    { " 5\r\nhello\r\n", 400 },
    { "5 \r\nhello\r\n", 400 },
    { "5 ;a\r\nhello\r\n", 400 },
    { "+5\r\nhello\r\n", 400 },
    { "-5\r\nhello\r\n", 400 },
    { "0x5\r\nhello\r\n", 400 },
    { "5\nhello\r\n", 400 },
    { "5\r\r\nhello\r\n", 400 },
    { "5\r\nhello\n0\r\n\r\n", 400 },
    { "5\r\nhello0\r\n\r\n", 400 },
    { "5\r\nhello!\r\n0\r\n\r\n", 400 },
    { "5\r\nhello\r0\r\n\r\n", 400 },
    { "4\r\nhello\r\n0\r\n\r\n", 400 },
    { "0\r\n\n", 400 },
    { "0\n\r\n", 400 },
    { ";a\r\n", 400 },
    { "5;a\nb\r\n", 400 },
    { "5;\x01\r\n", 400 },
    { "1000000000000000\r\n", 400 },
    { "ffffffffffffffff\r\n", 400 },
    { "0\r\nA : b\r\n\r\n", 400 },
    { "0\r\n A: b\r\n\r\n", 400 },
    { "0\r\nA: b\r\n c\r\n\r\n", 400 },
    { "0\r\nA: b\n\r\n", 400 },
    { "0\r\nA\r\n\r\n", 400 },
    { "0\r\n: b\r\n\r\n", 400 },
    { "0\r\nA: \x7f\r\n\r\n", 400 },
};
/* clang-format on */

TEST(each_bad_chunk_is_refused)
{
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        int got = chunk_status(str_of(bodies[i].text));

        if (got != bodies[i].status)
            test_fail(__FILE__, __LINE__, "%d, not %d: %s", got, bodies[i].status, bodies[i].text);
    }
    CHECK_INT(chunk_status(STR("5;\0\r\nhello\r\n0\r\n\r\n")), 400);
}

TEST(chunk_limits)
{
    for (size_t over = 0; over < 2; over++) {
        autobuf struct buf line = { 0 }, trailer = { 0 };

        buf_puts(&line, "0;");
        repeat(&line, 'a', HTTP_CHUNK_LINE_MAX - 4 + over);
        buf_puts(&line, "\r\n\r\n");
        CHECK_INT(chunk_status(buf_view(&line)), over ? 400 : 200);

        buf_puts(&trailer, "0\r\nA:");
        repeat(&trailer, 'a', HTTP_TRAILER_MAX - 6 + over);
        buf_puts(&trailer, "\r\n\r\n");
        CHECK_INT(trailer.len, 3 + HTTP_TRAILER_MAX + over);
        CHECK_INT(chunk_status(buf_view(&trailer)), over ? 431 : 200);
    }
}

/* Random bodies in random chunks come back whole, in whatever pieces they arrive. */
TEST(chunked_bodies_come_back)
{
    for (int round = 0; round < 2000; round++) {
        autobuf struct buf want = { 0 }, wire = { 0 }, got = { 0 };
        size_t used = 0;

        for (uint32_t chunks = test_rand(6); chunks > 0; chunks--) {
            size_t len = 1 + test_rand(test_rand(8) ? 40 : 3000);

            buf_printf(&wire, test_rand(2) ? "%zx" : "0%zX", len);
            buf_puts(&wire, test_rand(3) ? "\r\n" : ";name=value\r\n");
            for (size_t i = 0; i < len; i++) {
                char c = (char)test_rand(256);

                buf_putc(&want, c);
                buf_putc(&wire, c);
            }
            buf_puts(&wire, "\r\n");
        }
        buf_puts(&wire, test_rand(2) ? "0\r\n\r\n" : "0\r\nA: b\r\n\r\n");
        size_t len = wire.len;
        buf_puts(&wire, "next");
        CHECK_INT(unchunk(buf_view(&wire), test_rand(2) ? 1 : 50, &got, &used), 200);
        CHECK_INT(used, len);
        CHECK(str_eq(buf_view(&want), buf_view(&got)));
    }
}

TEST(cuts_do_not_matter_in_damaged_chunks)
{
    for (int round = 0; round < 20000; round++) {
        const char *from = bodies[test_rand(ARRAY_LEN(bodies))].text;
        autobuf struct buf text = { 0 }, whole = { 0 }, cut = { 0 };
        size_t used_whole = 0, used_cut = 0;

        buf_puts(&text, from);
        if (text.len && test_rand(2))
            text.data[test_rand((uint32_t)text.len)] = "\r\n 0f;:\0"[test_rand(8)];
        int a = unchunk(buf_view(&text), 0, &whole, &used_whole);
        int b = unchunk(buf_view(&text), 1 + test_rand(3), &cut, &used_cut);
        if (a != b)
            test_fail(__FILE__, __LINE__, "%d against %d: %.*s", a, b, STR_FMT(buf_view(&text)));
        CHECK(used_whole == used_cut && str_eq(buf_view(&whole), buf_view(&cut)));
    }
}

TEST(tokens_and_values)
{
    CHECK(h1_is_token(STR("x-Y.9!")) && !h1_is_token(STR("")) && !h1_is_token(STR("a b")));
    CHECK(!h1_is_token(STR("a:")) && !h1_is_token(STR("a\x80")) && !h1_is_token(STR("a\0")));
    CHECK(h1_is_value(STR("")) && h1_is_value(STR("a\tb \xff 0123456789")));
    CHECK(!h1_is_value(STR("a\r\nb")) && !h1_is_value(STR("a\0")) && !h1_is_value(STR("\x7f")));
    CHECK(!h1_is_value(STR("0123456789\n")) && !h1_is_value(STR("\t\t\t\t\t\t\t\t\t\n")));
}
