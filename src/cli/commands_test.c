/* What each command asks of the server, and what it makes of the answer. */
#include "cli/cli_rig.h"

/* ---- commands ---- */

TEST(token_create_sends_what_was_said)
{
    autofake struct fake fake = { .answers = { ANSWER(
                                      "201", "{\"id\":\"tok1\",\"name\":\"ci\",\"role\":\"agent\","
                                             "\"tenant\":\"t\",\"scopes\":\"\",\"expires_at\":null,"
                                             "\"token\":\"atl_abc\"}") } };

    fake_begin(&fake);
    autoran struct ran ran = run("token create c%20i --role agent --tenant t --scope a.*,b "
                                 "--scope c --ttl 30d --signing");
    CHECK_INT(ran.rc, 0);
    CHECK_HAS(fake.asked[0], "POST /api/v1/tokens HTTP/1.1\r\n");
    CHECK_HAS(fake.asked[0], "\r\nIdempotency-Key: cli");
    CHECK_HAS(fake.asked[0], "\r\n\r\n{\"name\":\"c i\",\"role\":\"agent\",\"tenant\":\"t\","
                             "\"scopes\":[\"a.*\",\"b\",\"c\"],\"ttl_ms\":2592000000,"
                             "\"signing\":true}");
    CHECK_HAS(ran.out, "Token    atl_abc\n");
    CHECK_HAS(ran.out, "Expires  never\n");
    CHECK_HAS(ran.err, "not shown again");
}

TEST(token_create_leaves_out_what_was_not_said)
{
    autofake struct fake fake = { .answers = { OK "Content-Length: 2\r\n\r\n{}" } };

    fake_begin(&fake);
    autoran struct ran ran = run("token create x --role viewer");
    CHECK_INT(ran.rc, 0);
    CHECK_HAS(fake.asked[0], "\r\n\r\n{\"name\":\"x\",\"role\":\"viewer\"}");
}

/* ---- several names ---- */

TEST(a_name_that_is_refused_keeps_nobody_from_the_others)
{
    static const struct {
        const char *line, *asked[3];
    } cases[] = {
#define EACH(line_, before_, after_)                                                               \
    {                                                                                              \
        line_ " a b c",                                                                            \
        {                                                                                          \
            before_ "a" after_ " ", before_ "b" after_ " ", before_ "c" after_ " "                 \
        }                                                                                          \
    }
        EACH("rm", "DELETE /api/v1/sandboxes/", ""),
        EACH("stop", "POST /api/v1/sandboxes/", "/stop"),
        EACH("start", "POST /api/v1/sandboxes/", "/start"),
        EACH("pause", "POST /api/v1/sandboxes/", "/pause"),
        EACH("resume", "POST /api/v1/sandboxes/", "/resume"),
        EACH("image rm", "DELETE /api/v1/images/", ""),
        EACH("template rm", "DELETE /api/v1/templates/", ""),
        EACH("volume rm", "DELETE /api/v1/volumes/", ""),
        EACH("disk rm", "DELETE /api/v1/disks/", ""),
        EACH("snapshot rm", "DELETE /api/v1/snapshots/", ""),
#undef EACH
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        autofake struct fake fake = {
            .answers = { ANSWER("404",
                                "{\"error\":{\"code\":\"not_found\",\"message\":\"first\"}}"),
                         ANSWER("409",
                                "{\"error\":{\"code\":\"conflict\",\"message\":\"second\"}}"),
                         ANSWER("200", "{\"id\":\"third\"}") }
        };

        fake_begin(&fake);
        autoran struct ran ran = run(cases[i].line);
        for (size_t k = 0; k < 3; k++)
            CHECK(fake.asked[k] &&
                  strncmp(fake.asked[k], cases[i].asked[k], strlen(cases[i].asked[k])) == 0);
        CHECK_INT(ran.rc, 2);
        CHECK_HAS(ran.err, " a: first\n");
        CHECK_HAS(ran.err, " b: second\n");
    }
}

TEST(a_server_that_does_not_know_us_is_not_asked_for_every_name)
{
    autofake struct fake fake = {
        .answers = { ANSWER("401", "{\"error\":{\"code\":\"unauthenticated\",\"message\":\"no\"}}"),
                     ANSWER("200", "{\"id\":\"b\"}") }
    };

    fake_begin(&fake);
    autoran struct ran ran = run("rm a b");
    CHECK_INT(ran.rc, 4);
    CHECK_STR(ran.out, "");
}

/* ---- commands that are a table: what they ask ---- */

struct asks {
    const char *line, *head, *body;
};

TEST(views_put_arguments_and_flags_where_they_belong)
{
    static const struct asks asks[] = {
        { "message send ada h%20i", "POST /messages/send ",
          "{\"from\":\"human\",\"to\":\"ada\",\"content\":\"h i\"}" },
        { "message send ada x --from eve --reply-to 7", "POST /messages/send ",
          "{\"from\":\"eve\",\"to\":\"ada\",\"content\":\"x\",\"reply_to\":\"7\"}" },
        { "message ls a/b", "GET /messages/a%2Fb?peek=true ", "" },
        { "message ls a --mark --unread --limit 7", "GET /messages/a?unread=true&limit=7 ", "" },
        { "agent can ada x y", "POST /agents/ada/capabilities ", "{\"tags\":[\"x\",\"y\"]}" },
        { "agent register ada --capability x --capability y", "POST /agents/register ",
          "{\"name\":\"ada\",\"capabilities\":[\"x\",\"y\"]}" },
        { "agent heartbeat ada", "POST /agents/ada/heartbeat ", "{}" },
        { "agent peers --status online --type t", "GET /agents?status=online&type=t ", "" },
        { "agent who-can a&b", "GET /capabilities/match?tag=a%26b ", "" },
        { "project limit p in_review 4", "PATCH /projects/p/wip ",
          "{\"status\":\"in_review\",\"limit\":4}" },
        { "project metrics p --window 1h --bucket 600s",
          "GET /projects/p/metrics?window=3600&bucket=600 ", "" },
        { "task move p t blocked --blocked-by 1 --blocked-by 2", "PATCH /projects/p/tasks/t ",
          "{\"status\":\"blocked\",\"blocked_by\":[\"1\",\"2\"]}" },
        { "task reviewer p t ada", "POST /projects/p/tasks/t/reviewers/ada ", "{}" },
        { "task proposals", "GET /proposals?state=pending ", "" },
        { "task proposals --which expired", "GET /proposals?state=expired ", "" },
        { "lease take p src docs --agent ada --ttl 2m", "POST /projects/p/leases ",
          "{\"agent\":\"ada\",\"paths\":[\"src\",\"docs\"],\"ttl_seconds\":120}" },
    };

    for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
        autofake struct fake fake = { .answers = { OK "Content-Length: 2\r\n\r\n{}" } };
        autofree char *end = xprintf("\r\n\r\n%s", asks[i].body);

        fake_begin(&fake);
        autoran struct ran ran = run(asks[i].line);
        CHECK_STR(ran.err, "");
        CHECK_INT(ran.rc, 0);
        CHECK(strncmp(fake.asked[0], asks[i].head, strlen(asks[i].head)) == 0);
        CHECK_STR(strstr(fake.asked[0], "\r\n\r\n"), end);
    }
}

TEST(views_say_what_is_missing_or_wrong)
{
    static const char *const bad[][2] = {
        { "task claim p t", "--agent is missing" },
        { "lease take p src", "--agent is missing" },
        { "project limit p ready many", "is 'many', which is no number" },
        { "message ls a --limit x", "--limit is 'x', which is no number" },
        { "lease renew p l --ttl soon", "not a time such as" },
        { "lease take p", "needs" },
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        autoran struct ran ran = run(bad[i][0]);

        CHECK_INT(ran.rc, 64);
        CHECK_HAS(ran.err, bad[i][1]);
    }
}

TEST(errors_of_the_hub_are_understood)
{
    autofake struct fake fake = { .answers = {
                                      ANSWER("409", "{\"error\":\"Task is \\u001balready\"}"),
                                  } };

    fake_begin(&fake);
    autoran struct ran ran = run("task claim p t --agent a");
    CHECK_HAS(ran.err, "task claim p: Task is \\x1balready");
}

TEST(names_from_elsewhere_cannot_command_the_terminal)
{
    static const char body[] =
        "{\"items\":[{\"id\":\"tok1\",\"name\":\"\\u001b]0;x\\u0007\\u202e\","
        "\"scopes\":\"\"},{\"id\":7},null,{\"name\":[\"a\",1]}]}";
    autofree char *answer = xprintf(OK "Content-Length: %zu\r\n\r\n%s", sizeof(body) - 1, body);
    autofake struct fake fake = { .answers = { answer, answer } };

    fake_begin(&fake);
    autoran struct ran ran = run("token list"), json = run("token list --json");
    CHECK_INT(ran.rc, 0);
    CHECK_HAS(ran.out, "tok1  \\x1b]0;x\\x07\\u{202e}");
    CHECK(!strchr(ran.out, 0x1b));
    autofree char *exact = xprintf("%s\n", body);
    CHECK_STR(json.out, exact);
}

TEST(names_are_escaped_in_paths)
{
    autofake struct fake fake = { .answers = { OK "Content-Length: 2\r\n\r\n{}" } };

    fake_begin(&fake);
    autoran struct ran ran = run("token revoke a/../b%20ü?x");
    CHECK_INT(ran.rc, 0);
    CHECK_HAS(fake.asked[0], "DELETE /api/v1/tokens/a%2F..%2Fb%20%C3%BC%3Fx HTTP/1.1\r\n");
    CHECK_HAS(fake.asked[0], "\r\nContent-Length: 0\r\n");
}

TEST(login_prints_a_link_for_the_browser)
{
    autofake struct fake fake = { .answers = {
                                      OK "Content-Length: 24\r\n\r\n{\"url_path\":\"/#login=C\"}",
                                  } };

    fake_begin(&fake);
    setenv("ATOLL_LISTEN", "unix:/x,https://[::1]:8443", 1);
    setenv("ATOLL_TLS_CERT", "/c", 1);
    setenv("ATOLL_TLS_KEY", "/k", 1);
    autoran struct ran ran = run("login");
    CHECK_STR(ran.out, "https://[::1]:8443/#login=C\n");
    unsetenv("ATOLL_LISTEN");
    unsetenv("ATOLL_TLS_CERT");
    unsetenv("ATOLL_TLS_KEY");
}

/* ---- events ---- */

#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nretry: 1000\n: atoll\n\n"
#define EVENT(n)                                                                                   \
    "id: " #n "\nevent: note\ndata: {\"seq\":" #n                                                  \
    ",\"time\":\"T\",\"type\":\"note\",\"object\":\"\",\"data\":{\"x\":\"\\u0007\"}}\n\n"

TEST(event_tail_goes_on_after_breaks_without_gap_or_repeat)
{
    autofake struct fake fake = {
        .answers = { STREAM EVENT(1) EVENT(2) "id: 3\nevent: note\ndata: {\"seq\":3,",
                     "HTTP/1.1 503 x\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
                     STREAM EVENT(2) EVENT(3),
                     STREAM EVENT(4) "event: reset\ndata: {\"reason\":\"stop\"}\n\n",
                     ANSWER("410",
                            "{\"error\":{\"code\":\"gone\",\"message\":\"too old now\"}}") }
    };

    fake_begin(&fake);
    autoran struct ran ran = run("event tail --since 0 --type note,x.* --object a/");
    CHECK_INT(ran.rc, 2);
    CHECK_STR(ran.out, "1 T note - {\"x\":\"\\u0007\"}\n2 T note - {\"x\":\"\\u0007\"}\n"
                       "3 T note - {\"x\":\"\\u0007\"}\n4 T note - {\"x\":\"\\u0007\"}\n");
    CHECK_HAS(fake.asked[0], "GET /api/v1/events?since=0&type=note%2Cx.%2A&object=a%2F HTTP/1.1");
    CHECK_HAS(fake.asked[0], "\r\nAccept: text/event-stream\r\n");
    CHECK(!strstr(fake.asked[0], "Last-Event-ID"));
    CHECK_HAS(fake.asked[1], "?since=2&");
    CHECK_HAS(fake.asked[1], "\r\nLast-Event-ID: 2\r\n");
    CHECK_HAS(fake.asked[2], "?since=2&");
    CHECK_HAS(fake.asked[3], "?since=3&");
    CHECK_HAS(fake.asked[4], "?since=4&");
    CHECK_HAS(ran.err, "connecting again, from event 2");
    CHECK_HAS(ran.err, "connected again");
    CHECK_HAS(ran.err, "too old now");
}

TEST(event_tail_begins_at_the_newest)
{
    autofake struct fake fake = {
        .answers = { OK "Content-Length: 31\r\n\r\n{\"items\":[],\"next\":0,\"head\":41}",
                     STREAM EVENT(41) EVENT(42), "HTTP/1.1 401 x\r\nContent-Length: 0\r\n\r\n" }
    };

    fake_begin(&fake);
    autoran struct ran ran = run("event tail --json");
    CHECK_INT(ran.rc, 4);
    CHECK_HAS(fake.asked[1], "?since=41 ");
    CHECK_STR(ran.out, "{\"seq\":42,\"time\":\"T\",\"type\":\"note\",\"object\":\"\","
                       "\"data\":{\"x\":\"\\u0007\"}}\n");
}

TEST(event_tail_fails_at_once_when_it_never_connected)
{
    autofake struct fake fake = { .answers = { "HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n",
                                               OK "Content-Length: 2\r\n\r\n{}" /* no stream */ } };

    fake_begin(&fake);
    autoran struct ran down = run("event tail --since 0"), alien = run("event tail --since 0");
    CHECK_INT(down.rc, 1);
    CHECK_INT(alien.rc, 1);
    CHECK_HAS(alien.err, "no event stream");
    CHECK_INT(fake.count, 2);
}

TEST(event_tail_reads_pages_to_the_end)
{
    autofake struct fake fake = {
        .answers = { ANSWER("200", "{\"items\":[{\"seq\":1},{\"seq\":2}],\"next\":3,\"head\":4}"),
                     ANSWER("200", "{\"items\":[{\"seq\":4}],\"next\":4,\"head\":4}") }
    };

    fake_begin(&fake);
    autoran struct ran ran = run("event tail --no-follow --json");
    CHECK_INT(ran.rc, 0);
    CHECK_STR(ran.out, "{\"seq\":1}\n{\"seq\":2}\n{\"seq\":4}\n");
    CHECK_HAS(fake.asked[0], "?since=0&limit=1000 ");
    CHECK_HAS(fake.asked[1], "?since=3&limit=1000 ");
}

/* ---- audit ---- */

TEST(audit_tail_prints_rows)
{
    autofake struct fake fake = {
        .answers = { ANSWER("200", "{\"items\":[{\"seq\":9,\"time\":\"T\",\"actor\":\"tok1\","
                                   "\"role\":\"admin\",\"action\":\"a\\u001bb\",\"object\":\"\","
                                   "\"outcome\":\"ok\",\"request_id\":\"r\",\"detail\":"
                                   "{\"name\":\"x\"}}]}") }
    };

    fake_begin(&fake);
    autoran struct ran ran = run("audit tail");
    CHECK_INT(ran.rc, 0);
    CHECK_STR(ran.out, "9 T tok1 admin a\\x1bb - ok r {\"name\":\"x\"}\n");
    CHECK_HAS(fake.asked[0], "GET /api/v1/audit?limit=20 ");
}

#define H64 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define VERDICT(ok, bad)                                                                           \
    OK "Connection: close\r\n\r\n{\"ok\":" #ok ",\"rows\":5,\"bad_seq\":" #bad                     \
       ",\"why\":\"row 3 was edited\",\"head\":\"" H64 "\"}"

TEST(audit_verify_tells_good_from_bad)
{
    autofake struct fake fake = {
        .answers = { VERDICT(true, 0), VERDICT(false, 3), VERDICT(true, null), VERDICT(true, 0),
                     VERDICT(true, 0), VERDICT(true, 0), VERDICT(true, 0),
                     OK "Connection: close\r\n\r\n{\"items\":[{\"seq\":4,\"hash\":\"" H64
                        "\"}]}" }
    };

    fake_begin(&fake);
    autoran struct ran good = run("audit verify"), bad = run("audit verify"),
                       json = run("audit verify --json"), head = run("audit verify --head " H64),
                       old = run("audit verify --head 1" H64),
                       at5 = run("audit verify --head 5:" H64),
                       beyond = run("audit verify --head 6:" H64),
                       at4 = run("audit verify --head 4:" H64);
    CHECK_INT(good.rc, 0);
    CHECK_STR(good.out, "ok: 5 rows fit together\nhead 5:" H64 "\n");
    CHECK_INT(bad.rc, 1);
    CHECK_STR(bad.out, "NOT OK at row 3: row 3 was edited\n");
    CHECK_STR(json.out,
              "{\"ok\":true,\"rows\":5,\"bad_seq\":null,\"why\":null,\"head\":\"" H64 "\"}\n");
    CHECK_INT(head.rc, 0);
    CHECK_INT(old.rc, EXIT_USAGE);
    CHECK_INT(at5.rc, 0);
    CHECK_INT(beyond.rc, 1);
    CHECK_HAS(beyond.out, "the log ends at 5");
    CHECK_INT(at4.rc, 0);
    CHECK_HAS(fake.asked[7], "/api/v1/audit?since=3&limit=1 ");
}

/* ---- backup by a server ---- */

TEST(backup_asks_for_nothing_when_the_file_is_there)
{
    autofake struct fake fake = { .answers = { ANSWER("201", "{\"bytes\":3}") } };

    fake_begin(&fake);
    put_token(fake.state, "x");
    autofree char *line = xprintf("backup %s/admin.token", fake.state);
    autoran struct ran ran = run(line);
    CHECK_INT(ran.rc, 3);
    CHECK_INT(fake.count, 0);
}

TEST(backup_leaves_nothing_of_a_bad_copy)
{
    static const char *const second[] = {
        ANSWER("200", "abc"), /* not as long as promised */
        "HTTP/1.1 200 x\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 x\r\nContent-Length: 5\r\n\r\nabcde", /* whole, but no store */
        ANSWER("404", "{}"),
    };

    for (size_t i = 0; i < ARRAY_LEN(second); i++) {
        autofake struct fake fake = { .answers = { ANSWER("201", "{\"bytes\":5}"), second[i],
                                                   ANSWER("204", "") } };

        fake_begin(&fake);
        autofree char *line = xprintf("backup %s/copy", fake.state), *path = NULL;
        path = xprintf("%s/copy", fake.state);
        autoran struct ran ran = run(line);
        CHECK_INT(ran.rc, i == 3 ? 2 : 1);
        CHECK(open(path, O_RDONLY | O_CLOEXEC) < 0 && errno == ENOENT);
        CHECK_INT(fake.count, 3); /* and the server's copy is removed */
        if (i == 0)
            CHECK_HAS(ran.err, "promised 5 bytes and sent 3");
    }
}
