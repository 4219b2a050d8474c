/*
 * Connect on the machine of grpc.c: the body that is the message, frames whose last one is the end,
 * errors as JSON with a status of HTTP, and what browsers are told.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/test.h"
#include "http/grpc.h"
#include "http/http_fake.h"

static struct buf seen; /* all messages, a '|' behind each */
static unsigned ends, cancels;
static struct grpc *the_call;

static void saw_message(struct grpc *call, struct str message)
{
    CHECK(call == the_call);
    buf_str(&seen, message);
    buf_putc(&seen, '|');
}

static void saw_end(struct grpc *call)
{
    CHECK(call == the_call);
    ends++;
}

static void saw_cancel(struct grpc *call)
{
    CHECK(call == the_call);
    cancels++;
    the_call = NULL;
}

static const struct grpc_ops ops = { saw_message, saw_end, NULL, saw_cancel };

static void ask(const char *method, const char *type)
{
    static struct loop *loop;
    struct err err;

    if (!loop)
        CHECK_OK(loop_new(&loop, &err), &err);
    buf_free(&seen);
    ends = cancels = 0;
    fake_reset(loop, HTTP_1_1, method);
    if (type)
        fake_header("content-type", type);
    fake.req.started_us = clock_mono_us();
}

static void begin(void)
{
    the_call = grpc_begin(&fake.req, &ops, NULL);
    CHECK(the_call && grpc_req(the_call));
}

static void check_refused(int status, const char *code)
{
    the_call = grpc_begin(&fake.req, &ops, NULL);
    CHECK(fake.ended);
    CHECK_INT(fake.status, status);
    CHECK(memmem(fake.body.data, fake.body.len, code, strlen(code)) != NULL);
    fake_run(0);
    CHECK_INT(cancels, 1);
    CHECK_INT(seen.len, 0); /* the handler saw nothing */
}

static bool head_says(const char *line)
{
    return strstr(buf_cstr(&fake.head), line) != NULL;
}

TEST(connect_unary_is_the_body)
{
    ask("POST", "application/json; charset=utf-8");
    fake_header("connect-protocol-version", "1");
    begin();
    CHECK(grpc_json(the_call));
    CHECK(grpc_shape(&fake.req) == GRPC_ONE && !grpc_wanted(&fake.req));
    fake_feed("{\"a\"", 4, false);
    fake_feed(":1}", 3, true);
    CHECK_STR(buf_cstr(&seen), "{\"a\":1}|");
    CHECK_INT(ends, 1);
    CHECK(grpc_send(the_call, STR("{}")) == HTTP_OK);
    CHECK_INT(fake.status, 0); /* not before its end: it may still become an error */
    grpc_finish(the_call, GRPC_OK, NULL);
    CHECK_INT(fake.status, 200);
    CHECK_STR(buf_cstr(&fake.body), "{}");
    CHECK(head_says("content-type: application/json\n"));

    ask("POST", "application/proto");
    begin();
    CHECK(!grpc_json(the_call));
    fake_feed(NULL, 0, true);
    CHECK_STR(buf_cstr(&seen), "|"); /* no bytes are a message */
    grpc_finish(the_call, GRPC_OK, NULL);
    CHECK(head_says("content-type: application/proto\n"));
}

TEST(connect_unary_error)
{
    ask("POST", "application/proto");
    begin();
    fake_feed(NULL, 0, true);
    grpc_send(the_call, STR("dropped"));
    grpc_finish(the_call, GRPC_NOT_FOUND, "no \"such\" thing");
    CHECK_INT(fake.status, 404);
    CHECK_STR(buf_cstr(&fake.body),
              "{\"code\":\"not_found\",\"message\":\"no \\\"such\\\" thing\"}");
    CHECK(head_says("content-type: application/json\n"));
    ask("POST", "application/json");
    grpc_refuse(&fake.req, GRPC_UNAUTHENTICATED, "who");
    CHECK_INT(fake.status, 401);
    CHECK(head_says("www-authenticate: "));
    ask("POST", "application/json");
    grpc_refuse(&fake.req, 77, NULL); /* not a number of gRPC's */
    CHECK_STR(buf_cstr(&fake.body), "{\"code\":\"unknown\"}");
}

TEST(connect_unary_limit)
{
    autofree char *body = xmalloc(GRPC_MESSAGE_MAX + 1);

    memset(body, 'x', GRPC_MESSAGE_MAX + 1);
    ask("POST", "application/json");
    begin();
    fake_feed(body, GRPC_MESSAGE_MAX, true);
    CHECK_INT(seen.len, GRPC_MESSAGE_MAX + 1);
    grpc_finish(the_call, GRPC_OK, NULL);
    ask("POST", "application/json");
    begin();
    fake_feed(body, GRPC_MESSAGE_MAX + 1, false);
    CHECK_INT(fake.status, 429);
    CHECK_INT(cancels, 1);
}

TEST(connect_stream_ends_with_a_frame)
{
    ask("POST", "application/connect+json");
    begin();
    CHECK(grpc_json(the_call) && grpc_shape(&fake.req) == GRPC_STREAM);
    fake_feed("\0\0\0\0\2{}", 7, true);
    CHECK_STR(buf_cstr(&seen), "{}|");
    grpc_send(the_call, STR("[]"));
    grpc_finish(the_call, GRPC_OK, NULL);
    CHECK_INT(fake.status, 200);
    CHECK(str_eq(buf_view(&fake.body), STR("\0\0\0\0\2[]\2\0\0\0\2{}")));
    CHECK(head_says("connect-accept-encoding: identity\n"));

    ask("POST", "application/connect+proto");
    begin();
    fake_feed(NULL, 0, true);
    grpc_finish(the_call, GRPC_UNAVAILABLE, "later");
    CHECK_INT(fake.status, 200); /* a stream's error is in its end */
    const char *text = "{\"error\":{\"code\":\"unavailable\",\"message\":\"later\"}}";
    CHECK(fake.body.data[0] == 2 && (size_t)fake.body.data[4] == strlen(text));
    CHECK(str_eq(str_from(buf_view(&fake.body), 5), str_of(text)));
}

TEST(connect_refuses_other_encodings_and_versions)
{
    ask("POST", "application/json");
    fake_header("content-encoding", "gzip");
    check_refused(501, "\"unimplemented\"");
    CHECK(head_says("accept-encoding: identity\n"));
    ask("POST", "application/connect+json");
    fake_header("connect-content-encoding", "br");
    check_refused(200, "\"unimplemented\"");
    ask("POST", "application/json");
    fake_header("connect-protocol-version", "2");
    check_refused(400, "\"invalid_argument\"");
}

TEST(connect_deadlines)
{
    static const char *const bad[] = { "x", "-1", "1.5", "12345678901", "" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ask("POST", "application/json");
        fake_header("connect-timeout-ms", bad[i]);
        check_refused(400, "\"invalid_argument\"");
    }
    ask("POST", "application/json"); /* past before it began: no handler may see it */
    fake_header("connect-timeout-ms", "0");
    check_refused(504, "\"deadline_exceeded\"");
    ask("POST", "application/json");
    fake.req.started_us -= 3000000;
    fake_header("connect-timeout-ms", "2000");
    check_refused(504, "\"deadline_exceeded\"");
    ask("POST", "application/grpc-web");
    fake_header("grpc-timeout", "0m");
    check_refused(200, "grpc-status: 4");
    ask("POST", "application/json");
    fake_header("connect-timeout-ms", "20");
    begin();
    fake_feed(NULL, 0, true);
    fake_run(60);
    CHECK_INT(cancels, 1);
    CHECK_INT(fake.status, 504);
}

static void get(const char *query)
{
    ask("GET", NULL);
    fake.req.query = str_of(query);
}

TEST(connect_get_has_its_message_in_the_query)
{
    get("connect=v1&encoding=json&message=%7B%22a%22%3A1%7D");
    begin();
    CHECK_INT(seen.len, 0); /* not from inside */
    fake_run(0);
    CHECK_STR(buf_cstr(&seen), "{\"a\":1}|");
    CHECK_INT(ends, 1);
    grpc_send(the_call, STR("{}"));
    grpc_finish(the_call, GRPC_OK, NULL);
    CHECK_INT(fake.status, 200);

    get("message=YWI_&base64=1&encoding=proto");
    begin();
    fake_run(0);
    CHECK_STR(buf_cstr(&seen), "ab?|");
    grpc_finish(the_call, GRPC_OK, NULL);

    static const char *const bad[] = { "encoding=json", "encoding=json&message=%7",
                                       "encoding=json&message=*&base64=1",
                                       "encoding=json&message=%7B%7D&compression=gzip" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        get(bad[i]);
        the_call = grpc_begin(&fake.req, &ops, NULL);
        CHECK_INT(fake.status, 400);
        fake_run(0);
        CHECK_INT(cancels, 1);
        CHECK_INT(seen.len, 0);
    }
    get("message=x");
    the_call = grpc_begin(&fake.req, &ops, NULL);
    CHECK_INT(fake.status, 405);
    fake_run(0);
}

TEST(connect_tells_a_browser_that_it_may_read)
{
    struct http_header headers[8];

    ask("POST", "application/json");
    fake_header("origin", "http://a.example");
    begin();
    fake_feed(NULL, 0, true);
    grpc_finish(the_call, GRPC_OK, NULL);
    CHECK(head_says("access-control-allow-origin: http://a.example\n"));
    CHECK(head_says("vary: origin\n"));
    ask("OPTIONS", NULL);
    CHECK_INT(grpc_preflight(&fake.req, headers), 0);
    fake_header("origin", "http://a.example");
    CHECK_INT(grpc_preflight(&fake.req, headers), 5);
}
